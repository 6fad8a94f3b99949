//! Databases in the simulator: tables of several partitions are changed partition by partition, under faults,
//! by clients that stop in the middle; and large transactions are seen as a whole or not at all.

use std::collections::BTreeMap;
use understudy_sim::plan::databases::{has_large_writes, has_spread_database};
use understudy_sim::{Options, run};

/// In how many of these seeds came what. None breaks a promise.
fn came_of(seeds: &[u64]) -> BTreeMap<&'static str, usize> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in seeds {
        let outcome = run(*seed, Options::default());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        for what in outcome.faults.into_keys() {
            *seen.entry(what).or_default() += 1;
        }
    }
    seen
}

#[test]
fn large_transactions_are_committed_beside_changes_and_drops_of_their_tables() {
    let seeds: Vec<u64> = (0..1_000).filter(|seed| has_large_writes(*seed)).collect();
    let seen = came_of(&seeds);
    let seeds_with = |what: &str| seen.get(what).copied().unwrap_or(0);
    assert!(seeds_with("large-write-committed") * 3 >= seeds.len(), "{seen:?}");
    assert!(seeds_with("tables-changed") * 3 >= seeds.len() * 2, "{seen:?}");
    assert!(seeds_with("rows-cascaded") > 0, "{seen:?}");
}

#[test]
fn changes_of_tables_come_to_every_partition() {
    let seeds: Vec<u64> = (0..1_000).filter(|seed| has_spread_database(*seed)).collect();
    let seen = came_of(&seeds);
    let seeds_with = |what: &str| seen.get(what).copied().unwrap_or(0);
    for what in ["tables-changed", "tables-levelled"] {
        assert!(seeds_with(what) * 3 >= seeds.len() * 2, "{what} in {}: {seen:?}", seeds.len());
    }
    for what in ["table-constraint-kept", "table-write-stale", "crash"] {
        assert!(seeds_with(what) > 0, "{what}: {seen:?}");
    }
}
