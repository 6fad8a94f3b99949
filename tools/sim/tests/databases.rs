//! Databases of several partitions in the simulator: their tables are changed partition by partition, under
//! faults, by clients that stop in the middle.

use std::collections::BTreeMap;
use understudy_sim::plan::RunPlan;
use understudy_sim::plan::databases::has_spread_database;
use understudy_sim::{Options, run};

#[test]
fn changes_of_tables_come_to_every_partition() {
    let seeds: Vec<u64> = (0..1_000).filter(|seed| has_spread_database(*seed)).collect();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in &seeds {
        assert!(RunPlan::new(*seed, 300, None).database_partitions().len() > 1, "seed {seed}");
        let outcome = run(*seed, Options::default());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        for what in outcome.faults.into_keys() {
            *seen.entry(what).or_default() += 1;
        }
    }
    let seeds_with = |what: &str| seen.get(what).copied().unwrap_or(0);
    for what in ["tables-changed", "tables-levelled"] {
        assert!(seeds_with(what) * 3 >= seeds.len() * 2, "{what} in {}: {seen:?}", seeds.len());
    }
    for what in ["table-constraint-kept", "table-write-stale", "crash"] {
        assert!(seeds_with(what) > 0, "{what}: {seen:?}");
    }
}
