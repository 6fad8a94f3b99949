//! Procedures in the simulator: calls are shipped either way, by builds that differ, with limits that differ
//! from start to start; and mutants are found in them.

use std::collections::BTreeMap;
use types::{Finding, Ship};
use understudy_sim::plan::RunPlan;
use understudy_sim::plan::calls::has_calls;
use understudy_sim::{Options, run};

#[test]
fn seeds_with_procedures_are_clean_and_ship_calls_and_effects() {
    let mut injected: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in (0..500).filter(|seed| has_calls(*seed)) {
        let plan = RunPlan::new(seed, 300, None).calls.expect("it has procedures");
        let outcome = run(seed, Options::default());
        assert!(outcome.violations.is_empty(), "{seed}: {:?}", outcome.violations);
        let logged = outcome.faults.get("call-logged").copied().unwrap_or(0);
        assert!(logged == 0 || plan.ship == Ship::Calls, "seed {seed} ships effects");
        for (what, times) in outcome.faults {
            *injected.entry(what).or_default() += times;
        }
    }
    let times = |what: &str| injected.get(what).copied().unwrap_or(0);
    for (what, least) in [("call-logged", 500), ("call-done", 500), ("call-failed", 100), ("crash", 20)] {
        assert!(times(what) >= least, "{what}: {injected:?}");
    }
}

#[test]
fn f22_calls_that_are_made_twice_are_found() {
    let mutant = Options { mutant: Some(Finding::F22), profile: Some(Finding::Pr240), ..Options::default() };
    let found = (0..20).filter(|seed| !run(*seed, mutant).violations.is_empty()).count();
    assert!(found >= 10, "found at {found} of 20 seeds");
}
