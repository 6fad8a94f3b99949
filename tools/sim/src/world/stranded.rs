//! Every replica of one partition is damaged, and the operator who would have to recover it does nothing
//! (PR-301). Whatever its log has stays where it is, on every node that has a copy; all others go on.

use super::World;
use crate::plan::Part;
use types::PartitionId;

/// What the nodes say of it.
const WHY: &str = "its rows cannot be read";

impl World {
    /// All replicas of the partition that nobody writes are damaged from now on, each as soon as its node
    /// runs. False if they are already.
    pub(super) fn strand(&mut self) -> bool {
        let found = self.plan.partitions().find(|(_, _, table)| table.part == Part::Stranded);
        let found = found.map(|(partition, ..)| partition);
        if found.is_none() || self.faults.stranded().is_some() {
            return false;
        }
        *self.faults.stranded() = found;
        let nodes: Vec<u32> = self.machines.iter().map(|machine| machine.id).collect();
        for node in nodes {
            self.strand_again(node);
        }
        true
    }

    /// The node runs, again or still: it finds what is damaged.
    pub(super) fn strand_again(&mut self, node: u32) {
        let Some(partition) = *self.faults.stranded() else { return };
        let process = self.machine(node).process.as_ref();
        let replica = process.and_then(|process| process.host.replica(partition));
        if replica.is_some_and(|replica| !replica.is_damaged()) {
            self.input(node, |host, now, out| host.fail(now, partition, WHY.into(), out));
        }
    }

    /// True if an operator has to recover this partition, and nobody does.
    pub(super) fn is_stranded(&self, partition: PartitionId) -> bool {
        self.faults.is_stranded(partition)
    }
}
