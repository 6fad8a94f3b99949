//! Replicas that have moved away: the configuration has no place for them here any more, so they are removed like those of
//! dropped tables, once it is known that nothing is in them alone (R9).

use super::Node;
use crate::failure::Failure;
use types::{Micros, PartitionId, PartitionRecord};

/// A replica without a place stays this long: what is planned may change again.
const STAYS: Micros = Micros::from_millis(3_000);

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

    /// True if all copies that there should be are elsewhere, and none is wanted here. While no controller is there,
    /// nothing is known of it.
    fn has_moved(&self, id: PartitionId) -> bool {
        let Some(record) = self.view.partitions.get(&id) else { return false };
        let enough = record.in_sync.len() >= usize::from(record.policy.factor);
        let elsewhere = record.member_on(self.host.me().node).is_none();
        enough && elsewhere && !self.is_placed_here(record) && !self.controllers.all().is_empty()
    }

    /// True if the table wants a copy of this partition here, or it is not known where it wants them.
    fn is_placed_here(&self, record: &PartitionRecord) -> bool {
        let Some(table) = self.view.tables.get(&record.table) else { return true };
        let row = record.id.0.checked_sub(table.first_partition.0);
        let row = row.and_then(|row| table.placement.get(row as usize));
        row.is_none_or(|row| row.contains(&self.host.me().node))
    }

    fn leave(&mut self, id: PartitionId) -> Result<(), Failure> {
        let Some(replica) = self.host.replica(id) else {
            // The log has something of it, and there are no files: what the log has may be nowhere else.
            let Some(record) = self.view.partitions.get(&id).cloned() else { return Ok(()) };
            self.make_replica(&record)?;
            self.host.configure(self.now, record, &mut self.out);
            return Ok(());
        };
        if !replica.has_departed() {
            self.host.depart(self.now, id, &mut self.out);
            return Ok(());
        }
        if self.holds(id) {
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
