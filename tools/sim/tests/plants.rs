//! The simulator is itself tested: put a known bug back, and it is found.

use types::Finding;
use understudy_sim::plan::profiles::AS_DRAWN;
use understudy_sim::plants::{ELSEWHERE, FOUND};
use understudy_sim::{Options, run};

#[test]
fn every_finding_is_in_the_list_once() {
    let listed: Vec<Finding> = FOUND.iter().map(|(finding, _)| *finding).collect();
    let here = |finding: &Finding| !ELSEWHERE.contains(finding);
    let expected: Vec<Finding> = Finding::ALL.into_iter().filter(here).collect();
    assert_eq!(listed, expected, "one line for each, in order");
    assert!(FOUND.iter().all(|(finding, seed)| *seed < 2_000 || AS_DRAWN.contains(finding)));
}

#[test]
fn each_other_name_is_that_of_a_mutant_with_a_seed() {
    for (alias, finding) in Finding::ALIASES {
        let named = Finding::parse(alias);
        assert_eq!(named, Some(finding), "{alias}");
        assert!(FOUND.iter().any(|(found, _)| named == Some(*found)), "{alias} has no seed");
    }
}

#[test]
fn each_mutant_is_found_at_its_seed() {
    let missed: Vec<String> = FOUND
        .iter()
        .filter(|(finding, seed)| run(*seed, Options::of_mutant(*finding)).violations.is_empty())
        .map(|(finding, seed)| format!("{} at {seed}", finding.id()))
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn the_same_seeds_and_faults_are_clean_with_the_rule() {
    for (finding, seed) in FOUND {
        let options = Options { profile: Some(finding), ..Options::default() };
        let outcome = run(seed, options);
        assert!(outcome.violations.is_empty(), "{} at {seed}: {:?}", finding.id(), outcome.violations);
    }
}
