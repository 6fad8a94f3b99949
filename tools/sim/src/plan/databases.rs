//! Which seeds have a database: several tables in one partition, or in each of several.

use super::{RunPlan, TablePlan};
use crate::random::{Concern, Stream};
use types::LogKind;

/// Remainders of the numbers of seeds with a database: none of the seeds that found something before there
/// were any has one of them, so that those are what they were.
const SEEDS: [u64; 12] = [0, 1, 2, 4, 5, 9, 17, 20, 24, 31, 32, 33];
const OF: u64 = 59;

/// True if a seed has a database.
pub fn has_database(seed: u64) -> bool {
    SEEDS.contains(&(seed % OF))
}

/// The same of a database of several partitions, each of which has all tables. Another modulus, so that these
/// seeds are not always those with something else.
const SPREAD: [u64; 12] = [14, 35, 59, 83, 103, 130, 155, 178, 203, 246, 264, 289];
const SPREAD_OF: u64 = 311;

/// True if a seed has a database of several partitions, if it has no other one.
pub fn has_spread_database(seed: u64) -> bool {
    SPREAD.contains(&(seed % SPREAD_OF)) && !has_database(seed) && !super::calls::has_calls(seed)
}

/// The same of a database of one partition whose clients make large transactions, too.
const LARGE: [u64; 12] = [17, 39, 51, 67, 92, 121, 150, 189, 216, 256, 273, 294];

/// True if a seed has such a database, if it has no other one.
pub fn has_large_writes(seed: u64) -> bool {
    LARGE.contains(&(seed % SPREAD_OF)) && !has_database(seed) && !super::calls::has_calls(seed)
}

impl RunPlan {
    /// The database that a seed has, if it has one.
    pub(super) fn vary_databases(&mut self, seed: u64) {
        self.workload.large_writes = has_large_writes(seed);
        if has_database(seed) || self.workload.large_writes {
            self.add_database(seed);
        }
        if has_spread_database(seed) {
            self.add_spread_database(seed);
        }
    }

    /// A database of several partitions besides the tables, and clients for each of them. Its tables are
    /// changed in the first one, and the others follow, so a failover must not lose it: no acknowledgement
    /// rests on the primary alone.
    fn add_spread_database(&mut self, seed: u64) {
        let mut random = Stream::new(seed, Concern::Shape, 9);
        let drawn = super::table(&mut random, 0, self.nodes);
        let policy = *random.pick(&["durable", "durable", "semi", "sync"]).expect("not empty");
        let partitions = random.between(2, 3) as u32;
        let (name, log) = ("shop".into(), LogKind::Disk);
        self.tables.push(TablePlan { name, policy, log, partitions, database: true, ..drawn });
        self.workload.table_clients = random.between(u64::from(partitions) + 1, 5) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_in_fifty_has_large_transactions() {
        let plans = (0..3_110).filter(|seed| has_large_writes(*seed));
        let plans: Vec<RunPlan> = plans.map(|seed| RunPlan::new(seed, 300, None)).collect();
        assert!(plans.len() * 50 >= 3_110, "{}", plans.len());
        assert!(plans.iter().all(|plan| plan.database().is_some() && plan.workload.large_writes));
    }

    #[test]
    fn one_seed_in_fifty_has_a_database_of_several_partitions() {
        let plans = (0..3_110).filter(|seed| has_spread_database(*seed));
        let plans: Vec<RunPlan> = plans.map(|seed| RunPlan::new(seed, 300, None)).collect();
        assert!(plans.len() * 50 >= 3_110, "{}", plans.len());
        for plan in plans {
            assert_eq!(plan.database(), None);
            assert!((2..=3).contains(&plan.database_partitions().len()));
            assert!(plan.workload.table_clients as usize > plan.database_partitions().len());
        }
    }

    #[test]
    fn a_fifth_of_the_seeds_have_a_database() {
        let seeds = (0..5_900).filter(|seed| has_database(*seed)).count();
        assert_eq!(seeds, 1_200);
    }
}
