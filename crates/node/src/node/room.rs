//! Room on the disk: how much there is, and whether that is too little.

use crate::watch::free_bytes;
use std::path::{Path, PathBuf};

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
