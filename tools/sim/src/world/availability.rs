//! I13: in a healed world a partition that has somebody to serve it is served.

use super::{Phase, World};
use types::policy::Below;
use types::{Member, PartitionId, PartitionRecord};

impl World {
    /// Looks at who is served, once the last fault is over.
    pub(super) fn look_at_availability(&mut self) {
        if self.stage.phase() != Phase::Healed || !self.plan.recoverable {
            return;
        }
        let look = |record: &PartitionRecord| (record.id, self.could_be_served(record));
        let closed: Vec<(PartitionId, bool)> = self.checks.epochs.records().map(look).collect();
        let now = self.now();
        for (id, closed) in closed {
            let verdict = self.checks.availability.look(id, now, closed);
            self.checks.expect("I13", now, verdict);
        }
    }

    /// True if nobody serves a partition, and every member that is in sync runs or never will. Where a copy
    /// is lacking, one on a disk that hangs is waited for as long as on one that is slow.
    fn could_be_served(&self, record: &PartitionRecord) -> bool {
        let comes = |member: &Member| {
            let machine = self.machine(member.node.0);
            machine.process.is_none() && !machine.starts.is_dead()
        };
        let strict = record.policy.below == Below::Strict;
        let short = strict && record.in_sync.len() < usize::from(record.policy.min_in_sync);
        let hangs = self.machines.iter().any(|machine| machine.health.hangs());
        let awaited = record.in_sync.iter().any(comes) || short && hangs;
        !self.is_serving(record) && !self.is_closed_for_good(record) && !awaited
    }
}
