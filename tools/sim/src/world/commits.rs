//! What partitions have of global transactions, where they are served: in a healed world all of it.

use super::World;
use replica::Replica;
use types::commits::{Head, decode_timestamp, head_key, newest_flush_key, truncated_key};
use types::{PartitionId, Position, ReadAt};

impl World {
    /// The replica of the partition's recorded primary.
    fn led(&self, partition: PartitionId) -> Option<&Replica> {
        let primary = self.checks.epochs.newest(partition)?.primary;
        let process = self.machine(primary.node.0).process.as_ref()?;
        process.host.replica(partition)
    }

    /// A commit that is in the transaction manager's log, and not where it writes (PR-253).
    pub(super) fn missing_commits(&self) -> Option<String> {
        let transactional = self.checks.lineage.transactional();
        let manager = self.led(transactional.manager?)?;
        // What waits for a disk that is gone is brought once an operator has another copy lead.
        let closed = self.closed_for_good();
        let mut open = transactional.written.iter().filter(|partition| !closed.contains(partition));
        open.find_map(|partition| {
            let head = manager.engine().get(&head_key(*partition), ReadAt::Applied).ok()??.1;
            let wanted = Head::decode(&head)?.newest;
            let there = self.led(*partition)?.engine().get(&newest_flush_key(), ReadAt::Applied).ok()?;
            let there = there.map_or(Some(Position::ZERO), |(_, value)| decode_timestamp(&value))?;
            // An operator had a copy lead that lacks what all had secured: the manager does not keep it, and
            // whoever reads a snapshot there is told so.
            let kept = manager.engine().get(&truncated_key(), ReadAt::Applied).ok()?;
            let kept = kept.and_then(|(_, value)| decode_timestamp(&value)).unwrap_or_default();
            if there < kept && self.checks.epochs.was_forced(*partition) {
                return None;
            }
            let why = format!("{partition} has commits up to {there}, and {wanted} was committed");
            (there != wanted).then_some(why)
        })
    }
}
