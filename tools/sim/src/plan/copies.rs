//! How copies are made in a seed's world: of files, of rows, or by the log.

use crate::random::{Concern, Stream};
use std::collections::BTreeSet;

/// How copies are made.
#[derive(Clone, PartialEq, Debug)]
pub struct CopyPlan {
    /// Partitions whose number is even, or odd, have engines that ship files.
    pub ships: BTreeSet<u32>,
    /// Bytes of them that a node ships in a second; slow enough that faults strike on the way, or without a
    /// limit.
    pub ship_bytes_per_second: u64,
    /// Replicas that come back ignore what they have.
    pub failback_full: bool,
    /// So many bytes of log are sent to who comes back without looking at files.
    pub failback_log_bytes: u64,
    /// So many bytes of log are kept for those that are away.
    pub failback_keep_bytes: u64,
    /// So many bytes of the newest log are in memory, where it can be on the disk too.
    pub tail_bytes: usize,
}

impl CopyPlan {
    /// What a seed has. A biased run comes back as it can, and keeps no log for those that are away.
    pub fn new(seed: u64, biased: bool) -> CopyPlan {
        let mut shipping = Stream::new(seed, Concern::Shape, 2);
        let ships = (0..2).filter(|_| shipping.chance(600)).collect();
        let ship_bytes_per_second = *shipping.pick(&[0, 6_000, 30_000]).expect("not empty");
        let mut failback = Stream::new(seed, Concern::Shape, 4);
        let failback_full = !biased && failback.chance(150);
        let failback_log_bytes = *failback.pick(&[0, 600, 4 << 20]).expect("not empty");
        let failback_keep_bytes = *failback.pick(&[0, 0, 2_000, 20_000]).expect("not empty");
        CopyPlan {
            ships,
            ship_bytes_per_second,
            failback_full,
            failback_log_bytes,
            failback_keep_bytes: if biased { 0 } else { failback_keep_bytes },
            tail_bytes: 1 << 20,
        }
    }
}
