//! Which seeds have backups: a client that makes and restores them, and a table that they are restored into.

use super::{Part, RunPlan, TablePlan};
use crate::check::backups::Backup;

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

/// What is added to the number of a seed for the cluster that its last backup is restored into: a world of
/// another shape, with other faults.
const ELSEWHERE: u64 = 1 << 40;
/// Operations of clients there: for so long it is restored and read back, as a rule.
const OPERATIONS_ELSEWHERE: u64 = 60;

impl RunPlan {
    /// Another cluster, into which a backup of a seed is restored, and the seed of that.
    pub fn elsewhere(seed: u64, backup: Backup) -> (u64, RunPlan) {
        let seed = seed.wrapping_add(ELSEWHERE);
        let mut plan = RunPlan::new(seed, OPERATIONS_ELSEWHERE, None);
        if !plan.workload.backups {
            plan.add_backups();
        }
        plan.workload.given = vec![backup];
        (seed, plan)
    }

    /// A client that makes backups of the tables, and a table of its own into which it restores them. What
    /// is acknowledged there rests on disks.
    pub(super) fn add_backups(&mut self) {
        let table = self.table_of_its_own("restored", Part::Restored);
        self.tables.push(TablePlan { partitions: 2, ..table });
        self.workload.backups = true;
    }
}
