//! What the demo's clients know of their own writes: the ground that everything found afterwards is judged
//! on.

use std::collections::HashMap;
use types::{Epoch, Lsn, PartitionId, Position, Term};

/// A row that the demo writes, by its number in the data set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct KeyId(pub u32);

/// How a write ended for the client that made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Committed under its policy.
    Acknowledged {
        /// The position of its entry.
        at: Position,
        /// Milliseconds since 1970 when the client was told.
        ms: u64,
    },
    /// It may have been done.
    Unknown,
    /// Surely not done.
    NotDone,
}

/// One write of one key. A key belongs to one client, whose sequence numbers only grow; 0 is the row as it
/// was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// Which row.
    pub key: KeyId,
    /// Whose.
    pub client: u32,
    /// The number that the written row carries.
    pub sequence: u64,
    /// How it ended.
    pub end: End,
}

impl Attempt {
    /// The position, if it was acknowledged.
    pub fn position(&self) -> Option<Position> {
        match self.end {
            End::Acknowledged { at, .. } => Some(at),
            End::Unknown | End::NotDone => None,
        }
    }
}

/// What the cluster says it lost: where each term ended, for the terms in which something was acknowledged
/// (PR-29).
#[derive(Clone, Debug, Default)]
pub struct Reports {
    ends: HashMap<(PartitionId, Term), Lsn>,
    kept: HashMap<PartitionId, Vec<(Epoch, Position)>>,
}

impl Reports {
    /// A partition said where a term ended.
    pub fn ended(&mut self, partition: PartitionId, term: Term, end: Lsn) {
        self.ends.insert((partition, term), end);
    }

    /// A failover's record says what was kept of everything older than `new_epoch`.
    pub fn failover(&mut self, partition: PartitionId, new_epoch: Epoch, kept: Position) {
        self.kept.entry(partition).or_default().push((new_epoch, kept));
    }

    /// True if the partition says that what stood at this position is lost.
    pub fn lost(&self, partition: PartitionId, at: Position) -> bool {
        self.ends.get(&(partition, at.term)).is_some_and(|end| *end < at.lsn)
    }

    /// What the records of failovers say; `None` if none of them speaks of this position.
    pub fn lost_by_records(&self, partition: PartitionId, at: Position) -> Option<bool> {
        let records = self.kept.get(&partition)?.iter().filter(|(new_epoch, _)| *new_epoch > at.term.began());
        records.map(|(_, kept)| *kept < at).reduce(|one, other| one || other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_that_goes_on_has_lost_nothing() {
        let mut reports = Reports::default();
        let (partition, other) = (PartitionId(64), PartitionId(65));
        reports.ended(partition, Term(3), Lsn(10));
        let at = |epoch, lsn| Position::new(Term(epoch), Lsn(lsn));
        assert!(reports.lost(partition, at(3, 11)));
        assert!(!reports.lost(partition, at(3, 10)));
        assert!(!reports.lost(partition, at(4, 11)));
        assert!(!reports.lost(other, at(3, 11)));
        reports.failover(partition, Epoch(4), at(3, 10));
        reports.failover(partition, Epoch(9), at(4, 500));
        assert_eq!(reports.lost_by_records(partition, at(3, 11)), Some(true));
        assert_eq!(reports.lost_by_records(partition, at(4, 11)), Some(false));
        assert_eq!(reports.lost_by_records(partition, at(9, 900)), None);
        assert_eq!(reports.lost_by_records(other, at(3, 11)), None);
    }
}
