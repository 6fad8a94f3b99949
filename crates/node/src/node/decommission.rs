//! Replicas that have moved away: the configuration has no place for them here any more, so they are removed like those of
//! dropped tables, once it is known that nothing is in them alone (R9).

use super::Node;
use crate::failure::Failure;
use replica::{STAYS, has_moved};
use std::collections::BTreeMap;
use types::{Micros, PartitionId};

/// Replicas that have no place here any more, and since when.
#[derive(Debug, Default)]
pub struct Moved {
    since: BTreeMap<PartitionId, Micros>,
}

impl Moved {
    /// Takes note of all that have no place now. Gives those that have had none for [`STAYS`].
    pub fn look(&mut self, moved: &[PartitionId], now: Micros) -> Vec<PartitionId> {
        self.since.retain(|id, _| moved.contains(id));
        for id in moved {
            self.since.entry(*id).or_insert(now);
        }
        self.since.iter().filter(|(_, since)| now.since(**since) >= STAYS).map(|(id, _)| *id).collect()
    }

    /// It is removed.
    pub fn remove(&mut self, id: PartitionId) {
        self.since.remove(&id);
    }
}

impl Node {
    /// Looks at all replicas; one that has gone on for long enough takes its leave, and is removed the next time.
    pub(super) fn leave_moved(&mut self) -> Result<(), Failure> {
        // While no controller is there, nothing is known of it.
        let told = self.connections.has_controller();
        let me = self.replicas.me().node;
        let moved = |id: &PartitionId| {
            let record = self.view.partition(*id);
            told && record.is_some_and(|record| has_moved(record, self.view.table(record.table), me))
        };
        let moved: Vec<PartitionId> = self.storage.known().into_iter().filter(moved).collect();
        let due = self.moved.look(&moved, self.timer.mono());
        due.into_iter().try_for_each(|id| self.leave(id))
    }

    fn leave(&mut self, id: PartitionId) -> Result<(), Failure> {
        let Some(replica) = self.replicas.host().replica(id) else {
            // The log has something of it, and there are no files: what the log has may be nowhere else.
            let record = self.view.partition(id).cloned();
            return record.map_or(Ok(()), |record| self.make_replica(record));
        };
        if !replica.is_decommissioned() {
            self.replicas.input(self.timer.now(), |host, now, out| host.decommission(now, id, out));
            return Ok(());
        }
        // What is being written must be known first: a replica that is made here again must not be told of it.
        if self.tails.holds(id) || self.journal.is_writing(id) {
            return Ok(());
        }
        let node = self.replicas.me().node.0;
        eprintln!("partition {id} has moved away from node {node}: its replica here is removed");
        self.moved.remove(id);
        self.drop_replica(id)
    }
}
