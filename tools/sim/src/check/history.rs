//! What clients asked and what they were told: all that the checkers of promises know.

use bytes::Bytes;
use types::{Epoch, Lsn, PartitionId, Position, SessionId};
use wire::request::ReadSnapshot;

/// How old what any replica shows may be for a client that asks for nothing special, milliseconds.
pub const USUAL_LAG_MS: u64 = 400;

/// What a write does to one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowChange {
    /// Writes it, whatever was there.
    Put,
    /// Writes it; if it is there the whole write is refused.
    Insert,
    /// Writes it if it is there.
    Update,
    /// Removes it.
    Delete,
    /// Leaves it as it is.
    Keep,
}

/// A write of several rows, all or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The value that each of them is given, and that no other write gives.
    pub value: u64,
    /// What becomes of which key, in order.
    pub ops: Vec<(RowChange, String)>,
    /// The snapshot that it rests on.
    pub since: Option<Position>,
    /// The feed that makes it, and how far that is.
    pub mark: Option<(u64, u64)>,
}

/// How old what any replica shows may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// It has this LSN.
    pub token: Lsn,
    /// It has what was acknowledged longer ago, milliseconds.
    pub max_lag_ms: u64,
}

/// A part of an index, by its entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexRange {
    /// The index's number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The first entry; empty: the first there is.
    pub from: Bytes,
    /// The end, which does not belong to it; empty: none.
    pub to: Bytes,
}

/// Keys from one up to another, by their names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// The first; empty: of all.
    pub from: String,
    /// Without that one itself.
    pub behind: bool,
    /// The end, which does not belong to it; empty: none.
    pub to: String,
}

impl KeyRange {
    /// True if it has this key.
    pub fn has(&self, key: &str) -> bool {
        let from = self.from.as_str();
        let begun = if self.behind { key > from } else { key >= from };
        begun && (self.to.is_empty() || key < self.to.as_str())
    }
}

/// What a client did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Wrote this value, which nobody else writes.
    Put(u64),
    /// Wrote this value if the key was absent.
    Insert(u64),
    /// Removed the key.
    Delete,
    /// Wrote this value if the key was still as a read had found it.
    Swap {
        /// The value, which nobody else writes.
        value: u64,
        /// What the read found: the LSN that wrote the value, and the value.
        read: Option<(Lsn, u64)>,
        /// The snapshot that was read.
        since: Position,
    },
    /// Read at the primary. True: at a snapshot that is kept.
    Get(bool),
    /// Read at the primary at an earlier read's snapshot.
    GetAt(Position),
    /// Read at any replica.
    GetAny(Bound),
    /// Wrote several rows.
    Batch(Box<Batch>),
    /// Asked how far a feed is.
    Feed(u64),
    /// Read the rows of a range.
    Scan {
        /// Which.
        range: KeyRange,
        /// At most so many.
        limit: u32,
        /// In which state.
        at: ReadSnapshot,
        /// At any replica.
        any: Option<Bound>,
    },
    /// Counted the rows of a range.
    Count {
        /// Which.
        range: KeyRange,
        /// In which state.
        at: ReadSnapshot,
        /// At any replica.
        any: Option<Bound>,
    },
    /// Asked which indexes are ready.
    Indexes,
    /// Read rows by an index.
    Find {
        /// Which.
        range: IndexRange,
        /// At most so many.
        limit: u32,
        /// In which state.
        at: ReadSnapshot,
        /// At any replica.
        any: Option<Bound>,
    },
    /// Asked where an epoch ended, having an acknowledgement of it.
    TermEnd(Position),
}

impl Action {
    /// True if it may change something.
    pub fn writes(&self) -> bool {
        let row = matches!(self, Action::Put(_) | Action::Insert(_) | Action::Delete | Action::Swap { .. });
        row || matches!(self, Action::Batch(_))
    }

    /// The value it writes.
    pub fn value(&self) -> Option<u64> {
        match self {
            Action::Put(value) | Action::Insert(value) | Action::Swap { value, .. } => Some(*value),
            Action::Batch(batch) => Some(batch.value),
            _ => None,
        }
    }

    /// How old what is shown may be, where any replica may show it.
    pub fn bound(&self) -> Option<Bound> {
        match self {
            Action::GetAny(bound) => Some(*bound),
            Action::Scan { any, .. } | Action::Count { any, .. } | Action::Find { any, .. } => *any,
            _ => None,
        }
    }

    /// The state that a read looks at, where it says.
    pub fn snapshot(&self) -> Option<Position> {
        match self {
            Action::GetAt(at) | Action::Find { at: ReadSnapshot::At(at), .. } => Some(*at),
            Action::Scan { at: ReadSnapshot::At(at), .. }
            | Action::Count { at: ReadSnapshot::At(at), .. } => Some(*at),
            _ => None,
        }
    }
}

/// What a client was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A write is committed at this position, with so many copies.
    Done {
        /// Where.
        at: Position,
        /// The copies that the reply named.
        copies: u8,
    },
    /// An insert found its key, as of this LSN.
    Exists(Lsn),
    /// A row was not as the snapshot had it, as of this LSN.
    Changed(Lsn),
    /// A read found this value, written at that LSN; or nothing. It was made at this LSN.
    Found {
        /// The value and the LSN that wrote it.
        row: Option<(Lsn, u64)>,
        /// Where the read was made.
        at: Lsn,
        /// In which epoch.
        epoch: Epoch,
    },
    /// A read found these rows: key, the LSN that wrote it, value.
    Rows {
        /// In the order of their keys.
        rows: Vec<(String, Lsn, u64)>,
        /// The range goes on behind them.
        more: bool,
        /// Where the read was made.
        at: Lsn,
        /// In which epoch.
        epoch: Epoch,
    },
    /// These indexes are ready: number and name.
    Indexes(Vec<(u32, String)>),
    /// Rows were found by an index: key, the LSN that wrote it, value.
    FoundBy {
        /// In the order of the index.
        rows: Vec<(String, Lsn, u64)>,
        /// Where the range goes on; empty: it does not.
        next: Bytes,
        /// Where the read was made.
        at: Lsn,
        /// In which epoch.
        epoch: Epoch,
    },
    /// A number was told: of rows, or of how far a feed is.
    Number {
        /// The number.
        number: u64,
        /// Where the read was made.
        at: Lsn,
        /// In which epoch.
        epoch: Epoch,
    },
    /// The epoch ended there, or has not ended.
    Ended(Option<Lsn>),
    /// Surely nothing was done.
    NotDone,
    /// Nobody knows.
    Unknown,
}

/// An operation, from its beginning to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Unique in the run.
    pub number: u64,
    /// The client.
    pub client: u32,
    /// The partition.
    pub partition: PartitionId,
    /// The key.
    pub key: String,
    /// What was asked.
    pub action: Action,
    /// The session and number, for writes that have them.
    pub session: Option<(SessionId, u64)>,
    /// When it began, virtual microseconds.
    pub invoked: u64,
    /// When it ended.
    pub completed: u64,
    /// How.
    pub told: Answer,
}

impl Operation {
    /// True if it may write a register, whose values are to be known from answers alone.
    pub fn writes_register(&self) -> bool {
        let register = |key: &str| key.starts_with('r');
        match &self.action {
            Action::Batch(batch) => batch.ops.iter().any(|(_, key)| register(key)),
            action => action.writes() && register(&self.key),
        }
    }

    /// The state in which a read was answered: its LSN, and the configuration of whoever answered.
    pub fn read_at(&self) -> Option<(Lsn, Epoch)> {
        match self.told {
            Answer::Found { at, epoch, .. }
            | Answer::Rows { at, epoch, .. }
            | Answer::FoundBy { at, epoch, .. }
            | Answer::Number { at, epoch, .. } => Some((at, epoch)),
            _ => None,
        }
    }

    /// What is worth being counted: that a read of many rows or of a feed was answered, or one at any replica
    /// with a bound.
    pub fn seen(&self) -> [Option<&'static str>; 2] {
        if self.read_at().is_none() {
            return [None; 2];
        }
        let kind = match self.action {
            Action::Scan { .. } => Some("scan-answered"),
            Action::Count { .. } => Some("count-answered"),
            Action::Find { .. } => Some("find-answered"),
            Action::Feed(_) => Some("feed-answered"),
            _ => None,
        };
        let any = self.action.bound().map(|bound| match bound.max_lag_ms < USUAL_LAG_MS {
            true => "any-tight-answered",
            false => "any-answered",
        });
        [kind, any]
    }

    /// Where its write was acknowledged, if it was.
    pub fn acknowledged(&self) -> Option<Position> {
        match self.told {
            Answer::Done { at, .. } if self.action.writes() => Some(at),
            _ => None,
        }
    }
}
