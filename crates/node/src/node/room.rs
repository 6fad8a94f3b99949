//! Replicas for which there is no room on the disk, or nothing else that the system gives, just now: one that is to be made here, or that is to be given another place. That is no
//! failure of the node (F20): the others go on, the partition goes on without this copy, and it is tried again.

use super::Node;
use crate::failure::Failure;
use types::{Micros, PartitionId};

/// What found no room is tried again this often.
const AGAIN: Micros = Micros::from_millis(1_000);

impl Node {
    /// What became of making a replica, or a place for it: false if there was no room, and it is tried again.
    pub(super) fn with_room(
        &mut self,
        id: PartitionId,
        outcome: Result<(), Failure>,
    ) -> Result<bool, Failure> {
        match outcome {
            Err(failure) if failure.passing => {
                if self.waiting.insert(id, self.now.mono + AGAIN).is_none() {
                    let node = self.host.me().node.0;
                    eprintln!("partition {id} finds no place on node {node}: {failure}; it is tried again");
                    self.timer.status_soon();
                }
                Ok(false)
            }
            outcome => {
                self.waiting.remove(&id);
                outcome.map(|()| true)
            }
        }
    }

    /// True if it was tried a moment ago.
    pub(super) fn waits_for_room(&self, id: PartitionId) -> bool {
        self.waiting.get(&id).is_some_and(|at| *at > self.now.mono)
    }

    /// Tries again to make replicas that are still wanted here.
    pub(super) fn make_waiting(&mut self) -> Result<(), Failure> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let (me, storage_lost) = (self.host.me(), self.host.storage_lost());
        let (host, view) = (&self.host, &self.view);
        self.waiting.retain(|id, _| match host.has(*id) {
            // It has another place meanwhile, or needs none.
            true => storage_lost.contains(id),
            false => view.partitions.get(id).is_some_and(|record| record.holds(&me)),
        });
        let due = self.waiting.keys().filter(|id| !self.host.has(**id) && !self.waits_for_room(**id));
        for id in due.copied().collect::<Vec<_>>() {
            if let Some(record) = self.view.partitions.get(&id).cloned() {
                self.adopt(record)?;
            }
        }
        Ok(())
    }
}
