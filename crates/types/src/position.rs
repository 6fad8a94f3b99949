//! Positions in a partition's log, and the watermarks that are compared (design section 2).

use serde::{Deserialize, Serialize};
use std::fmt;

/// A log sequence number of one partition. The first entry has LSN 1; 0 means "nothing". The same on every
/// replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before the first entry.
    pub const ZERO: Lsn = Lsn(0);
    /// Above every entry.
    pub const MAX: Lsn = Lsn(u64::MAX);

    /// The LSN that follows.
    pub fn next(self) -> Lsn {
        Lsn(self.0 + 1)
    }

    /// The LSN before, or zero.
    pub fn prev(self) -> Lsn {
        Lsn(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a partition's configuration. It exists only once a compare-and-set has written it (N2, I10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Before the first configuration.
    pub const ZERO: Epoch = Epoch(0);

    /// The epoch that follows.
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

/// A primary's tenure of a partition, by the epoch in which it began. Epochs grow with every change of the
/// configuration; a term lasts until another primary is recorded (Raft: term; Kafka: leader epoch).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub u64);

impl Term {
    /// Before the first term.
    pub const ZERO: Term = Term(0);

    /// The term that began in this epoch.
    pub fn of(epoch: Epoch) -> Term {
        Term(epoch.0)
    }

    /// The epoch in which it began.
    pub fn began(self) -> Epoch {
        Epoch(self.0)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

/// An entry's name: the term in which it was made and its LSN. Ordered by term first (PR-12).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Position {
    /// The term of the primary that made the entry.
    pub term: Term,
    /// The entry's LSN.
    pub lsn: Lsn,
}

impl Position {
    /// Before the first entry of the first term.
    pub const ZERO: Position = Position { term: Term::ZERO, lsn: Lsn::ZERO };

    /// The position of `lsn` made in `term`.
    pub fn new(term: Term, lsn: Lsn) -> Position {
        Position { term, lsn }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.term.0, self.lsn.0)
    }
}

/// Proof that storage made something durable (habits 3): an acknowledgement that claims durability is made
/// from it.
///
/// Only a log may call [`Durable::by_storage`], after its fsync returned; the build checks who does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Durable<T>(T);

impl<T: Copy> Durable<T> {
    /// To be called by storage alone, after the write that `value` names has been fsynced.
    pub fn by_storage(value: T) -> Durable<T> {
        Durable(value)
    }

    /// What is durable.
    pub fn get(&self) -> T {
        self.0
    }
}

/// How far one replica of one partition has got. Each means "everything up to and including" (design section
/// 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Watermarks {
    /// In this replica's memory.
    pub received: Lsn,
    /// Fsynced in this replica's log. Stays zero under `log = memory`.
    pub durable: Lsn,
    /// Executed by this replica's engine, undoably above `committed` (PR-30).
    pub applied: Lsn,
    /// Contained in this replica's installed components: recovery needs no log at or below it.
    pub persisted: Lsn,
}

impl fmt::Display for Watermarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "received {} durable {} applied {} persisted {}",
            self.received, self.durable, self.applied, self.persisted
        )
    }
}
