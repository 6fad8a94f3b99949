//! Replicas that have moved away: the configuration has no place for them here any more, so they are removed
//! like those of dropped tables, once it is known that nothing is in them alone (R9).

use super::Node;
use crate::failure::Failure;
use driver::moved::{Leave, next_step};
use replica::has_moved;
use types::PartitionId;

impl Node {
    /// Looks at all replicas; one that has gone on for long enough takes its leave, and is removed the next
    /// time.
    pub(super) fn leave_moved(&mut self) -> Result<(), Failure> {
        // While no controller is there, nothing is known of it.
        let told = self.connections.has_controller();
        let me = self.replicas.me().node;
        let moved = |id: &PartitionId| {
            let record = self.view.partition(*id);
            told && record.is_some_and(|record| has_moved(record, self.view.table(record.table), me))
        };
        let moved: Vec<PartitionId> = self.storage.known().into_iter().filter(moved).collect();
        let due = self.replicas.moved().look(&moved, self.timer.mono());
        due.into_iter().try_for_each(|id| self.leave(id))
    }

    fn leave(&mut self, id: PartitionId) -> Result<(), Failure> {
        let writing = self.tails.held().holds(id) || self.journal.is_writing(id);
        match next_step(self.replicas.host().replica(id), writing) {
            Leave::Make => {
                let record = self.view.partition(id).cloned();
                record.map_or(Ok(()), |record| self.make_replica(record))
            }
            Leave::Decommission => {
                self.replicas.input(self.timer.now(), |host, now, out| host.decommission(now, id, out));
                Ok(())
            }
            Leave::Wait => Ok(()),
            Leave::Remove => {
                let node = self.replicas.me().node.0;
                eprintln!("partition {id} has moved away from node {node}: its replica here is removed");
                self.replicas.moved().remove(id);
                self.drop_replica(id)
            }
        }
    }
}
