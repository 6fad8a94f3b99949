//! Changes of partitions' logs: what a replica asks of the log, and what the log is given to keep.

use crate::entry::{Entry, Kind};
use bytes::Bytes;
use std::collections::BTreeSet;
use types::{Epoch, Lsn, PartitionId, Position};

/// One change of a partition's log. Replicas ask for it, and the log on the disk keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// The next entry of its partition's log.
    Entry(Entry),
    /// The partition's log is cut: `to` is kept and what follows it is gone (PR-42).
    Truncate {
        /// Whose log.
        partition: PartitionId,
        /// The last position to be kept.
        to: Position,
    },
    /// The whole log of the partition is dropped; it continues above `at` (PR-35). Also ends its being
    /// damaged.
    Base {
        /// Whose log.
        partition: PartitionId,
        /// The position before the next entry.
        at: Position,
        /// The checksum of the entry there, which the next entry will name.
        crc: u32,
    },
    /// Entries below need not be recovered any more.
    Trim {
        /// Whose log.
        partition: PartitionId,
        /// The lowest LSN still needed.
        below: Lsn,
    },
    /// The highest epoch this replica knows (R2). It never falls.
    Promise {
        /// Whose.
        partition: PartitionId,
        /// The epoch.
        epoch: Epoch,
    },
    /// A small value of the partition's, kept by key; the latest one wins, an empty one removes the key.
    Custom {
        /// Whose.
        partition: PartitionId,
        /// Which.
        key: u16,
        /// What.
        value: Bytes,
    },
    /// Nothing of the partition is needed any more, not even its promise.
    Forget {
        /// Whose.
        partition: PartitionId,
    },
    /// The owner compared a damaged partition with a good copy, and what is here now is right.
    Repaired {
        /// Whose.
        partition: PartitionId,
    },
}

impl Record {
    /// The partition it is about.
    pub fn partition(&self) -> PartitionId {
        match self {
            Record::Entry(entry) => entry.header().partition,
            Record::Truncate { partition, .. }
            | Record::Base { partition, .. }
            | Record::Trim { partition, .. }
            | Record::Promise { partition, .. }
            | Record::Custom { partition, .. }
            | Record::Forget { partition }
            | Record::Repaired { partition } => *partition,
        }
    }

    /// True if it is an entry, but for the marker of a term: see [`need_room`].
    pub fn needs_room(&self) -> bool {
        matches!(self, Record::Entry(entry) if entry.header().kind != Kind::Configuration)
    }

    /// True if it is the marker of a term.
    pub fn is_marker(&self) -> bool {
        matches!(self, Record::Entry(entry) if entry.header().kind == Kind::Configuration)
    }
}

/// True if a full log refuses these records (F20): there are entries among them, but for the markers of terms
/// and what goes before one. Those are few, and without them nothing is committed, so nothing could be
/// checkpointed and the log would stay full (PR-126).
pub fn need_room(records: &[Record]) -> bool {
    let mut marked = BTreeSet::new();
    for record in records.iter().rev() {
        if record.is_marker() {
            marked.insert(record.partition());
        } else if record.needs_room() && !marked.contains(&record.partition()) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Header;
    use types::Term;

    fn entry(partition: u32, lsn: u64, kind: Kind) -> Record {
        let at = Position::new(Term(1), Lsn(lsn));
        Record::Entry(Entry::encode(Header::new(kind, PartitionId(partition), at, 7), b""))
    }

    #[test]
    fn pr126_what_goes_before_a_terms_marker_needs_no_room() {
        let rows = |partition: u32, lsn: u64| entry(partition, lsn, Kind::Rows);
        let marker = |lsn: u64| entry(1, lsn, Kind::Configuration);
        let promise = Record::Promise { partition: PartitionId(1), epoch: Epoch(1) };
        for (records, needs) in [
            (vec![promise.clone()], false),
            (vec![rows(1, 1), promise.clone()], true),
            (vec![marker(1)], false),
            (vec![rows(1, 1), promise, rows(1, 2), marker(3)], false),
            (vec![rows(1, 1), marker(2), rows(1, 3)], true),
            (vec![rows(2, 1), rows(1, 1), marker(2)], true),
        ] {
            assert_eq!(need_room(&records), needs, "{records:?}");
        }
    }
}
