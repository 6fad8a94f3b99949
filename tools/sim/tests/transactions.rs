//! Global transactions in the simulator: clients die in every step of them, sessions say what became of
//! commits, and mutants are found in these worlds.

use std::collections::BTreeMap;
use types::Finding;
use understudy_sim::plan::transactions::{has_doubts, has_transactions};
use understudy_sim::{Options, run, run_all};

/// So many seeds are looked at, from this one on.
const SEEDS: u64 = 40;
const FROM: u64 = 2_522;

#[test]
fn pr361_clients_die_anywhere_and_sessions_say_what_became_of_their_commits() {
    let seeds: Vec<u64> = (FROM..).filter(|seed| has_doubts(*seed)).take(SEEDS as usize).collect();
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in &seeds {
        let outcome = run(*seed, Options::default());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        for what in outcome.faults.into_keys() {
            *seen.entry(what).or_default() += 1;
        }
    }
    let seeds_with = |what: &str| seen.get(what).copied().unwrap_or(0);
    for what in ["transaction-committed", "commit-found-made"] {
        assert!(seeds_with(what) * 2 >= SEEDS, "{what}: {seen:?}");
    }
    assert!(seeds_with("commit-found-not-made") > 0, "{seen:?}");
}

#[test]
fn a_range_of_seeds_is_run_of_those_with_global_transactions_alone() {
    let options = Options { transactions: true, ..Options::default() };
    let (from, count) = (FROM, (FROM..FROM + 60).filter(|seed| has_transactions(*seed)).count() as u64);
    assert!((3..30).contains(&count), "{count} of sixty");
    let summary = run_all(from..from + 60, options, false, |_, _| {}, 2);
    assert_eq!((summary.seeds, summary.violations.len()), (count, 0), "{:?}", summary.violations);
    let committed = summary.faults.get("transaction-committed").copied().unwrap_or(0);
    assert!(committed * 2 >= count, "{:?}", summary.faults);
}

#[test]
fn pr361_a_late_copy_of_what_was_said_not_to_be_made_is_found() {
    let mutant = Options::of_mutant(Finding::Pr361);
    let found: Vec<String> =
        (0..20).flat_map(|seed| run(seed, mutant).violations).map(|broken| broken.id).collect();
    assert!(found.iter().any(|id| id == "PR-361"), "{found:?}");
}
