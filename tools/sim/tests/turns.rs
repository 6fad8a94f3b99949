//! Turns at rows in the simulator: clients wait for them, get them, die with them and go on without, over
//! failovers.

use std::collections::BTreeMap;
use understudy_sim::plan::RunPlan;
use understudy_sim::{Options, run};

#[test]
fn turns_are_waited_for_and_end_whatever_becomes_of_who_has_them() {
    let has_turns = |seed: &u64| RunPlan::new(*seed, 300, None).workload.turns.is_some();
    let seeds: Vec<u64> = (0..1_000).filter(has_turns).collect();
    assert!(seeds.len() * 50 >= 1_000, "{} of a thousand seeds have turns", seeds.len());
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in &seeds {
        let outcome = run(*seed, Options::default());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        for what in outcome.faults.into_keys() {
            *seen.entry(what).or_default() += 1;
        }
    }
    let seeds_with = |what: &str| seen.get(what).copied().unwrap_or(0);
    for what in ["turn-given", "turn-waited-for"] {
        assert!(seeds_with(what) * 2 >= seeds.len(), "{what}: {seen:?}");
    }
    for what in ["turn-without", "turn-deadlock", "turn-holder-died"] {
        assert!(seeds_with(what) > 0, "{what}: {seen:?}");
    }
}
