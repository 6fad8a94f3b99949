//! What clients asked and what they were told: all that the checkers of promises know.

use types::{Epoch, Lsn, PartitionId, Position, SessionId};

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
    /// Read at any replica that has this LSN.
    GetAny(Lsn),
    /// Asked where an epoch ended, having an acknowledgement of it.
    TermEnd(Position),
}

impl Action {
    /// True if it may change something.
    pub fn writes(&self) -> bool {
        matches!(self, Action::Put(_) | Action::Insert(_) | Action::Delete | Action::Swap { .. })
    }

    /// The value it writes.
    pub fn value(&self) -> Option<u64> {
        match self {
            Action::Put(value) | Action::Insert(value) | Action::Swap { value, .. } => Some(*value),
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
    /// A row was not as the snapshot had it.
    Changed,
    /// A read found this value, written at that LSN; or nothing. It was made at this LSN.
    Found {
        /// The value and the LSN that wrote it.
        row: Option<(Lsn, u64)>,
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
    /// Where its write was acknowledged, if it was.
    pub fn acknowledged(&self) -> Option<Position> {
        match self.told {
            Answer::Done { at, .. } if self.action.writes() => Some(at),
            _ => None,
        }
    }
}
