//! Reads at any replica: how old what they show is.

use super::World;
use crate::check::staleness::AnyRead;
use types::{PartitionId, Position};
use wire::Reply;

impl World {
    /// An answer leaves that any replica could give. What a failover has lost, or may have, need not be
    /// in it.
    pub(super) fn look_at_age(&mut self, partition: PartitionId, read: AnyRead, reply: &Reply) {
        let must_have = read.must_have(self.settings.drift_permille);
        let epochs = &self.checks.epochs;
        let sealed = epochs.newest(partition).filter(|record| record.lossy);
        let served =
            self.checks.survival.lossy(partition).and_then(|lossy| epochs.get(partition, lossy.epoch));
        let lossy = sealed.map(|record| record.term).max(served.map(|record| record.term));
        let counts = |at: Position| {
            let before = lossy.is_some_and(|term| at.term < term);
            !before && !self.checks.survival.lost().contains_key(&(partition, at))
        };
        let verdict = self.checks.staleness.answered(partition, must_have, reply.lsn, counts);
        self.checks.expect("I5", self.now(), verdict);
    }
}
