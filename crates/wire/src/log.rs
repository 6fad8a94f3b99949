//! Changes of partitions' logs: what a replica asks of the log, and what the log is given to keep.

use crate::entry::{Entry, Kind};
use bytes::Bytes;
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

    /// True if a full log refuses it (F20): an entry, but for the marker of a term. That one is small, and
    /// without it nothing is committed, so nothing could be checkpointed and the log would stay full.
    pub fn needs_room(&self) -> bool {
        matches!(self, Record::Entry(entry) if entry.header().kind != Kind::Configuration)
    }
}
