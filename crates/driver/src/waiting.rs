//! Replicas for which there is no room, or nothing else that the system gives, just now: one that is to be
//! made here, or that is to be given another place. That is no failure of the node (F20): the others go on,
//! the partition goes on without this copy, and it is tried again.

use std::collections::BTreeMap;
use types::{Micros, PartitionId};

/// What found no room is tried again after so long.
pub const TRY_AGAIN_AFTER: Micros = Micros::from_millis(1_000);

/// Partitions whose replica finds no room here, and when it is tried again.
#[derive(Debug, Default)]
pub struct WaitingReplicas {
    again: BTreeMap<PartitionId, Micros>,
}

impl WaitingReplicas {
    /// It found no room. True if that is news.
    pub fn add(&mut self, id: PartitionId, now: Micros) -> bool {
        self.again.insert(id, now + TRY_AGAIN_AFTER).is_none()
    }

    /// It has what it needs, or needs nothing any more.
    pub fn remove(&mut self, id: PartitionId) {
        self.again.remove(&id);
    }

    /// Forgets those that need nothing any more.
    pub fn keep(&mut self, needs: impl Fn(PartitionId) -> bool) {
        self.again.retain(|id, _| needs(*id));
    }

    /// True if it was tried a moment ago.
    pub fn rests(&self, id: PartitionId, now: Micros) -> bool {
        self.again.get(&id).is_some_and(|at| *at > now)
    }

    /// True if it waits.
    pub fn has(&self, id: PartitionId) -> bool {
        self.again.contains_key(&id)
    }

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.again.is_empty()
    }

    /// Those that are to be tried again.
    pub fn due(&self, now: Micros) -> Vec<PartitionId> {
        self.again.keys().filter(|id| !self.rests(**id, now)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f20_who_finds_no_room_is_tried_again_and_told_once() {
        let (p, at) = (PartitionId(64), Micros::from_millis(10));
        let mut waiting = WaitingReplicas::default();
        assert!(waiting.add(p, at) && waiting.rests(p, at) && waiting.due(at).is_empty());
        let later = at + TRY_AGAIN_AFTER;
        assert_eq!(waiting.due(later), [p]);
        assert!(!waiting.add(p, later), "it was told");
        assert!(waiting.has(p) && waiting.rests(p, later));
        waiting.keep(|_| false);
        assert!(waiting.is_empty() && !waiting.has(p));
    }
}
