//! Reads at any replica: how old what they show is.

use super::World;
use crate::check::staleness::AnyRead;
use types::PartitionId;
use wire::Reply;

impl World {
    /// An answer leaves that any replica could give.
    pub(super) fn look_at_age(&mut self, partition: PartitionId, read: AnyRead, reply: &Reply) {
        let must_have = read.must_have(self.settings.drift_permille);
        self.checks.shows_at_any(self.now(), partition, (must_have, reply.lsn));
    }
}
