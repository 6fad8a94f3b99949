//! Which seeds have backups: a client that makes and restores them, and a table that they are restored into.

use super::{Part, RunPlan, TablePlan};

/// Remainders of the numbers of seeds with backups: none of the seeds that found something before there were
/// any has one of them, so that those are what they were.
const SEEDS: [u64; 28] = [
    0, 14, 24, 31, 36, 43, 47, 53, 64, 73, 79, 92, 97, 106, 118, 123, 130, 140, 146, 153, 163, 169, 178, 184,
    192, 199, 215, 223,
];
const OF: u64 = 233;

/// True if backups are made and restored in a seed.
pub fn has_backups(seed: u64) -> bool {
    SEEDS.contains(&(seed % OF))
}

impl RunPlan {
    /// A client that makes backups of the tables, and a table of its own into which it restores them. What
    /// is acknowledged there rests on disks.
    pub(super) fn add_backups(&mut self) {
        let table = self.table_of_its_own("restored", Part::Restored);
        self.tables.push(TablePlan { partitions: 2, ..table });
        self.workload.backups = true;
    }
}
