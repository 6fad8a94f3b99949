//! Algorithm 3: at a server.

use std::collections::{BTreeMap, BTreeSet};
use types::{PartitionId, Position};

/// What a server tracks of the write-sets that it has received.
#[derive(Clone, Debug)]
pub struct ServerTracker {
    /// T_P(s): everything up to here that it was ever to receive was received and persisted.
    persisted_upto: Position,
    /// PQ: received write-sets, in commit order, and their regions.
    queue: BTreeMap<Position, BTreeSet<PartitionId>>,
}

impl ServerTracker {
    /// On startup: T_P(s) is T_F*.
    pub fn start(flushed_by_all: Position) -> ServerTracker {
        ServerTracker { persisted_upto: flushed_by_all, queue: BTreeMap::new() }
    }

    /// On receive of a write-set.
    pub fn received(&mut self, at: Position, region: PartitionId) {
        self.queue.entry(at).or_default().insert(region);
    }

    /// On receive of a write-set that is replayed, with the threshold of the server that had it: this one
    /// inherits it. True: it is to send a heartbeat at once.
    pub fn replayed(&mut self, at: Position, region: PartitionId, threshold: Position) -> bool {
        self.received(at, region);
        let inherits = threshold < self.persisted_upto;
        self.persisted_upto = self.persisted_upto.min(threshold);
        inherits
    }

    /// On heartbeat: `flushed_by_all` is T_F* as it was read before. The regions whose write-sets are to be
    /// persisted; then [`ServerTracker::persisted`].
    pub fn to_persist(&mut self) -> BTreeSet<PartitionId> {
        std::mem::take(&mut self.queue).into_values().flatten().collect()
    }

    /// They are: T_P(s), to be sent.
    pub fn persisted(&mut self, flushed_by_all: Position) -> Position {
        self.persisted_upto = flushed_by_all;
        self.persisted_upto
    }

    /// How many write-sets wait to be persisted.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Lsn, Term};

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    #[test]
    fn what_is_replayed_is_inherited_until_it_is_persisted() {
        let mut server = ServerTracker::start(at(9));
        assert!(server.replayed(at(6), PartitionId(64), at(5)));
        assert!(!server.replayed(at(7), PartitionId(64), at(5)), "it has it already");
        assert_eq!((server.persisted_upto, server.waiting()), (at(5), 2));
        assert_eq!(server.to_persist(), BTreeSet::from([PartitionId(64)]));
        assert_eq!((server.persisted(at(8)), server.waiting()), (at(8), 0));
    }
}
