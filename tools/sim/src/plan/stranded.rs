//! Which seeds have a partition of which all replicas are damaged one day, and logs that are soon full.

use super::{Part, RunPlan};
use crate::faults::Fault;
use crate::plan::flushes::FlushPlan;

/// Remainders of the numbers of such seeds: none of the seeds that found something before there were any has
/// one of them, so that those are what they were.
const SEEDS: [u64; 8] = [5, 36, 71, 102, 132, 152, 171, 193];
const OF: u64 = 227;

/// True if a seed has such a partition.
pub fn has_stranded(seed: u64) -> bool {
    SEEDS.contains(&(seed % OF))
}

impl RunPlan {
    /// A table that nobody writes, all copies of which are damaged one day, and logs in which there is little
    /// room.
    pub(super) fn add_stranded(&mut self) {
        let table = self.table_of_its_own("stranded", Part::Stranded);
        self.tables.push(table);
        self.own.faults.insert(Fault::Strand);
        self.flushes = FlushPlan { log_bytes: Some(2 << 10), by_lot: true };
        self.small_logs = true;
    }
}
