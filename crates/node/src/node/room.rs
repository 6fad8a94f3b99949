//! Room on the disk: how much there is, and replicas for which there is none, or nothing else that the system
//! gives, just now: one that is to be made here, or that is to be given another place. That is no failure of
//! the node (F20): the others go on, the partition goes on without this copy, and it is tried again.

use crate::watch::free_bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use types::{Micros, PartitionId};

/// What found no room is tried again this often.
const AGAIN: Micros = Micros::from_millis(1_000);

/// Room where the data directory and the log are.
#[derive(Debug)]
pub struct Room {
    /// Bytes that are kept free for the log and for flushes (`log.reserve_bytes`).
    reserve: u64,
    log: PathBuf,
    /// Free bytes where the data directory is.
    free: u64,
    low: bool,
    full: bool,
}

impl Room {
    /// For a log in this place. How much room there is, is not known before [`Room::look`].
    pub fn new(reserve: u64, log: PathBuf) -> Room {
        Room { reserve, log, free: u64::MAX, low: false, full: false }
    }

    /// Looks at the disks.
    pub fn look(&mut self, data_dir: &Path) {
        self.free = free_bytes(data_dir);
        self.low = self.free.min(free_bytes(&self.log)) < self.reserve;
    }

    /// True if there is less than what is kept free.
    pub fn is_low(&self) -> bool {
        self.low
    }

    /// Writes are refused from now on if there is too little room, or the log refuses them.
    pub fn settle(&mut self, log_is_full: bool) {
        self.full = log_is_full || self.low;
    }

    /// True if writes are refused: there is no room.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Free bytes where the data directory is.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Bytes that are kept free.
    pub fn reserve(&self) -> u64 {
        self.reserve
    }
}

/// Partitions whose replica finds no room here, and when it is tried again.
#[derive(Debug, Default)]
pub struct Waiting {
    again: BTreeMap<PartitionId, Micros>,
}

impl Waiting {
    /// It found no room. True if that is news.
    pub fn add(&mut self, id: PartitionId, now: Micros) -> bool {
        self.again.insert(id, now + AGAIN).is_none()
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
    fn who_finds_no_room_is_tried_again_and_told_once() {
        let (p, at) = (PartitionId(64), Micros::from_millis(10));
        let mut waiting = Waiting::default();
        assert!(waiting.add(p, at) && waiting.rests(p, at) && waiting.due(at).is_empty());
        let later = at + AGAIN;
        assert_eq!(waiting.due(later), [p]);
        assert!(!waiting.add(p, later), "it was told");
        assert!(waiting.has(p) && waiting.rests(p, later));
        waiting.keep(|_| false);
        assert!(waiting.is_empty() && !waiting.has(p));
    }
}
