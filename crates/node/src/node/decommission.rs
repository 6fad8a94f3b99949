//! Replicas that have moved away: the configuration has no place for them here any more, so they are removed like those of
//! dropped tables, once it is known that nothing is in them alone (R9).

use super::Node;
use crate::failure::Failure;
use replica::{STAYS, has_moved};
use types::PartitionId;

impl Node {
    /// Looks at all replicas; one that has gone on for long enough takes its leave, and is removed the next time.
    pub(super) fn leave_moved(&mut self) -> Result<(), Failure> {
        let now = self.now.mono;
        let known = self.metas.keys().chain(self.found.keys());
        let moved: Vec<PartitionId> = known.filter(|id| self.has_moved(**id)).copied().collect();
        self.moved.retain(|id, _| moved.contains(id));
        for id in moved {
            let since = *self.moved.entry(id).or_insert(now);
            if now.since(since) >= STAYS {
                self.leave(id)?;
            }
        }
        Ok(())
    }

    /// While no controller is there, nothing is known of it.
    fn has_moved(&self, id: PartitionId) -> bool {
        let Some(record) = self.view.partitions.get(&id) else { return false };
        let table = self.view.tables.get(&record.table);
        has_moved(record, table, self.host.me().node) && !self.controllers.all().is_empty()
    }

    fn leave(&mut self, id: PartitionId) -> Result<(), Failure> {
        let Some(replica) = self.host.replica(id) else {
            // The log has something of it, and there are no files: what the log has may be nowhere else.
            let Some(record) = self.view.partitions.get(&id).cloned() else { return Ok(()) };
            if self.make_replica(&record)? {
                self.host.configure(self.now, record, &mut self.out);
            }
            return Ok(());
        };
        if !replica.is_decommissioned() {
            self.host.decommission(self.now, id, &mut self.out);
            return Ok(());
        }
        // What is being written must be known first: a replica that is made here again must not be told of it.
        if self.holds(id) || self.journal.is_writing(id) {
            return Ok(());
        }
        eprintln!(
            "partition {id} has moved away from node {}: its replica here is removed",
            self.host.me().node.0
        );
        self.moved.remove(&id);
        self.drop_replica(id)
    }
}
