//! What a caller asks for and what it is told: calls, tickets, outcomes.

use bytes::Bytes;
use std::fmt;
use types::{Epoch, Lsn, Micros, NodeId, PartitionId, Position, SessionId, TableId, Term};
use wire::request::Outcome as Refusal;
use wire::{Body, Op, ReadLevel};

/// A logical client with sessions of its own. Ten closed-loop clients are ten lanes of one [`crate::Client`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LaneId(pub u32);

/// Names a submitted call until it completes. Grows with every call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ticket(pub u64);

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane{}", self.0)
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

/// One operation on one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The table.
    pub table: TableId,
    /// The schema version by which keys and rows were encoded.
    pub schema: u32,
    /// The partition.
    pub partition: PartitionId,
    /// Who may answer a read.
    pub read: ReadLevel,
    /// Only this node may answer; `None`: as `read` says. For reads alone.
    pub node: Option<NodeId>,
    /// How long the caller waits from submission on. Zero: as long as it takes.
    pub deadline: Micros,
    /// Follows the call through logs; 0: none.
    pub trace: u64,
    /// What is asked.
    pub op: Op,
}

impl Call {
    /// A call to the primary, without a deadline.
    pub fn new(table: TableId, schema: u32, partition: PartitionId, op: Op) -> Call {
        Call {
            table,
            schema,
            partition,
            read: ReadLevel::Primary,
            node: None,
            deadline: Micros::ZERO,
            trace: 0,
            op,
        }
    }

    /// The same call with a deadline.
    pub fn within(mut self, deadline: Micros) -> Call {
        self.deadline = deadline;
        self
    }

    /// The same read with another read level.
    pub fn at_level(mut self, read: ReadLevel) -> Call {
        self.read = read;
        self
    }

    /// The same read, answered by this node alone.
    pub fn at_node(mut self, node: NodeId) -> Call {
        self.node = Some(node);
        self
    }
}

/// What a reply said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// For a write the LSN that carries its outcome; for a read the LSN at which it was made.
    pub lsn: Lsn,
    /// The epoch of that entry for a write, else of the configuration.
    pub epoch: Epoch,
    /// The policy's version.
    pub policy: u32,
    /// For a write, how many copies had what the policy demands when it was acknowledged.
    pub copies: u8,
    /// What came back.
    pub body: Body,
}

impl Answer {
    /// The snapshot at which a read of a primary was made, by which it can be read again
    /// ([`wire::request::ReadSnapshot::At`]) and written on ([`crate::Table::write_since`]).
    pub fn snapshot(&self) -> Position {
        Position::new(Term::of(self.epoch), self.lsn)
    }

    /// The position of a write's entry.
    pub fn position(&self) -> Position {
        Position::new(Term::of(self.epoch), self.lsn)
    }

    /// The stored row of a get.
    pub fn row(&self) -> Option<&(Lsn, Bytes)> {
        match &self.body {
            Body::Row(Some(row)) => Some(row),
            _ => None,
        }
    }

    /// The number of a count, a digest or a feed's position.
    pub fn number(&self) -> Option<u64> {
        match self.body {
            Body::Number(number) => Some(number),
            _ => None,
        }
    }

    /// The number of the constraint that forbids it, of a refusal that says so; 0: of none that is known.
    pub fn violated(&self) -> u32 {
        match self.body {
            Body::Affected(number) => number,
            _ => 0,
        }
    }
}

/// Why a call surely did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailKind {
    /// The deadline passed before anybody could have done it.
    TimedOut,
    /// The request itself is wrong.
    Bad,
    /// Fewer copies than the policy allows.
    TooFewCopies,
    /// The node's disk is full.
    Full,
    /// No such table or partition.
    NotFound,
    /// Damaged data were found and not returned.
    Corrupt,
    /// The snapshot that was to be read is not kept any more, or a failover has lost it.
    TooOld,
    /// There is no such index, or it is not ready.
    NoIndex,
    /// The table has another schema than the caller thought, or is gone.
    Stale,
    /// A commit that was to be seen or followed is not in the partition yet: the newest one there is this.
    Behind(Position),
}

impl FailKind {
    /// The process's exit status for it.
    pub fn exit_status(self) -> u8 {
        match self {
            FailKind::Bad => 1,
            FailKind::NotFound => 3,
            FailKind::TimedOut | FailKind::TooOld | FailKind::NoIndex | FailKind::Stale => 4,
            FailKind::Behind(_) => 4,
            FailKind::TooFewCopies => 5,
            FailKind::Corrupt => 6,
            FailKind::Full => 7,
        }
    }
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Done; a write is committed under its policy.
    Ok(Answer),
    /// Decided against by the state of the data, and committed as such.
    Refused(Refusal, Answer),
    /// A write that may have been done or not, or may still be done. One sentence why.
    Unknown(String),
    /// Surely not done, and nobody will do it later. One sentence why.
    Failed(FailKind, String),
}

impl Outcome {
    /// The answer, if there is one.
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Outcome::Ok(answer) | Outcome::Refused(_, answer) => Some(answer),
            Outcome::Unknown(_) | Outcome::Failed(..) => None,
        }
    }

    /// True if the call was done.
    pub fn is_ok(&self) -> bool {
        matches!(self, Outcome::Ok(_))
    }
}

/// A call that ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completed {
    /// As given by submit.
    pub ticket: Ticket,
    /// Whose.
    pub lane: LaneId,
    /// The partition it went to.
    pub partition: PartitionId,
    /// How it ended.
    pub outcome: Outcome,
    /// From submission to the end, microseconds.
    pub latency_us: u64,
    /// How often it was sent.
    pub attempts: u32,
    /// Of a write: the session and the number that it had when it ended.
    pub number: Option<(SessionId, u64)>,
}

/// Acknowledged writes of a lane that a failover lost: the new primary expects their sequence numbers again
/// (PR-47).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Whose.
    pub lane: LaneId,
    /// Where.
    pub partition: PartitionId,
    /// In which session.
    pub session: SessionId,
    /// The first sequence number lost.
    pub from_seq: u64,
    /// The last sequence number that had been acknowledged and is lost.
    pub to_seq: u64,
    /// The calls, oldest first; of a longer loss only the newest [`Loss::TICKETS`].
    pub tickets: Vec<Ticket>,
    /// The epoch in which it was noticed.
    pub noticed_in: Epoch,
}

impl Loss {
    /// How many acknowledged calls a session remembers by name.
    pub const TICKETS: usize = 1024;
}

/// Whether an acknowledged commit is still there (PR-29).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Its term goes on, or what is left of it reaches up to it.
    Kept,
    /// What is left of its term ends below it: what was acknowledged is lost.
    Lost {
        /// The last LSN of that term which was kept; zero if nothing of it was.
        ended: Lsn,
    },
}

impl Fate {
    /// From the answer to [`Op::TermEnd`] of the commit's term.
    pub fn of(lsn: Lsn, end: Option<Lsn>) -> Fate {
        match end {
            Some(ended) if ended < lsn => Fate::Lost { ended },
            _ => Fate::Kept,
        }
    }
}
