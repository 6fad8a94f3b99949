//! The engine on every state that a power loss can leave of its files.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeMap;
use std::time::Instant;
use types::Finding;
use understudy_crash::Errno;
use understudy_crash::fault::{Fault, Strike};
use understudy_crash::follow::{Action, FollowError};
use understudy_crash::known::Known;
use understudy_crash::mutants::{MOVED, MUTANTS};
use understudy_crash::promise::Note;
use understudy_crash::record::{Chance, Injected};
use understudy_crash::run::{Run, Subject, record, record_subject, work_if_asked};
use understudy_crash::scenario::Scenario;
use understudy_crash::states::Effort;

/// Set to look at more.
const LONG: &str = "UNDERSTUDY_CRASH_LONG";
/// Set to a part of an error's name to make calls fail only so.
const ONLY: &str = "UNDERSTUDY_CRASH_ONLY";
/// Set to see what was recorded.
const PRINT: &str = "UNDERSTUDY_CRASH_PRINT";

fn is_long() -> bool {
    std::env::var_os(LONG).is_some()
}

/// What was recorded; none if this system does not let a process be followed.
fn recorded(test: &str, scenario: Scenario, fault: Option<Fault>) -> Option<Run> {
    match record(test, scenario, fault) {
        Ok(run) => {
            for (number, step) in run.recording.steps.iter().enumerate() {
                if std::env::var_os(PRINT).is_some() {
                    eprintln!("{number:5} {step}");
                }
            }
            Some(run)
        }
        Err(FollowError::NotPermitted(why)) => {
            eprintln!("{test} is skipped: {why}");
            None
        }
        Err(FollowError::Refused(why)) => panic!("{why}"),
    }
}

fn power_losses(scenario: Scenario) {
    work_if_asked();
    let begun = Instant::now();
    let Some(run) = recorded(scenario.name(), scenario, None) else { return };
    let mut known = Known::default();
    let effort = if is_long() { Effort::LONG } else { Effort::SHORT };
    let outcome = known.check(scenario, &run.recording, 0..usize::MAX, effort);
    let steps = run.recording.steps.len();
    eprintln!("crash: {}: {steps} steps, {:?} in {:.1?}", scenario.name(), known.looked(), begun.elapsed());
    outcome.unwrap();
}

#[test]
fn flush() {
    power_losses(Scenario::Flush);
}

#[test]
fn merge() {
    power_losses(Scenario::Merge);
}

#[test]
fn install() {
    power_losses(Scenario::Install);
}

#[test]
fn load() {
    power_losses(Scenario::Load);
}

#[test]
fn refill() {
    power_losses(Scenario::Refill);
}

/// A process is killed, another one opens what it left and says where it is, and then the power is lost: what
/// it said must hold.
#[test]
fn what_is_found_after_a_kill_outlives_a_power_loss() {
    work_if_asked();
    let test = "what_is_found_after_a_kill_outlives_a_power_loss";
    let (begun, mut runs, mut known) = (Instant::now(), 0, Known::default());
    let mut faults = Vec::new();
    for scenario in Scenario::ALL {
        let Some(whole) = recorded(test, scenario, None) else { return };
        let chances = whole.recording.chances.iter().enumerate();
        let syncs = chances.filter(|(_, chance)| ["fsync", "rename", "unlink"].contains(&chance.call));
        for (from, _) in syncs.step_by(if is_long() { 1 } else { 5 }) {
            let fault = Fault { from, strike: Strike::Kill };
            let run = recorded(test, scenario, Some(fault)).expect("it was followed before");
            let injected = run.recording.injected.as_ref().expect("the call is made again");
            if let Err(why) = known.check(scenario, &run.recording, run.restarted..usize::MAX, Effort::LEAST)
            {
                faults.push(format!("{injected}: {why}"));
            }
            runs += 1;
        }
    }
    eprintln!("crash: {runs} kills, {:?} in {:.1?}", known.looked(), begun.elapsed());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The recorder finds what it is for.
#[test]
fn mutants_are_found() {
    work_if_asked();
    let mut survived = Vec::new();
    for scenario in Scenario::ALL {
        let Some(run) = recorded("mutants_are_found", scenario, None) else { return };
        for mutant in MUTANTS.iter().chain(&MOVED).filter(|mutant| mutant.scenario == scenario) {
            let mutated = mutant.apply(&run.recording);
            match Known::default().check(scenario, &mutated, 0..usize::MAX, Effort::LEAST) {
                Ok(()) => survived.push(mutant.name),
                Err(why) => eprintln!("crash: {}: {why}", mutant.name),
            }
        }
    }
    assert!(survived.is_empty(), "not found: {survived:#?}");
}

/// What is found in what an engine leaves that lacks a rule, if something is.
fn fault_of_mutant(test: &str, mutant: Finding, scenario: Scenario) -> Result<Option<String>, FollowError> {
    let run = match record_subject(Subject { test, scenario, mutant: Some(mutant) }, None) {
        Ok(run) => run,
        // Its own engine shows what is wrong.
        Err(FollowError::Refused(why)) => return Ok(Some(why)),
        Err(error) => return Err(error),
    };
    Ok(Known::default().check(scenario, &run.recording, 0..usize::MAX, Effort::LEAST).err())
}

/// Bugs of the engine (`docs/rules.md`), and where each shows.
const OF_THE_ENGINE: [(Finding, Scenario); 5] = [
    (Finding::Le01, Scenario::Load),
    (Finding::Le04, Scenario::Flush),
    (Finding::Le06, Scenario::Refill),
    (Finding::Le07, Scenario::Load),
    (Finding::Le10, Scenario::Install),
];

#[test]
fn mutants_of_the_engine_are_found() {
    work_if_asked();
    let mut survived = Vec::new();
    for (mutant, scenario) in OF_THE_ENGINE {
        match fault_of_mutant("mutants_of_the_engine_are_found", mutant, scenario) {
            Ok(Some(why)) => eprintln!("crash: {}: {why}", mutant.id()),
            Ok(None) => survived.push(mutant),
            Err(FollowError::NotPermitted(why)) => return eprintln!("it is skipped: {why}"),
            Err(FollowError::Refused(why)) => panic!("{why}"),
        }
    }
    assert!(survived.is_empty(), "not found: {survived:?}");
}

/// A received file whose sync failed is taken for durable at the next sync: the power loss after it shows
/// that it never was (PR-97).
#[test]
fn le12_a_sync_that_is_tried_again_is_found() {
    work_if_asked();
    let (test, scenario) = ("le12_a_sync_that_is_tried_again_is_found", Scenario::Install);
    let Some(whole) = recorded(test, scenario, None) else { return };
    let of_file = |chance: &&Chance| chance.call == "fsync" && chance.path.contains("/incoming/tree/tables/");
    let from = whole.recording.chances.iter().position(|chance| of_file(&chance)).expect("files are synced");
    let fault = Some(Fault { from, strike: Strike::Fail(Errno::EIO) });
    for (mutant, expected) in [(None, false), (Some(Finding::Le12), true)] {
        let run = record_subject(Subject { test, scenario, mutant }, fault).expect("it comes to its end");
        let (answer, wrong) = fault_of(&run, &mut Known::default());
        assert_eq!(wrong.is_some(), expected, "{mutant:?}: {answer}: {wrong:?}");
    }
}

/// A system call fails inside the engine's files: the engine says so, can be used on or says that it cannot,
/// and opens again.
#[test]
fn failing_calls_leave_the_engine_whole() {
    work_if_asked();
    let only = std::env::var(ONLY).unwrap_or_default();
    let (begun, mut runs, mut known, mut faults) = (Instant::now(), 0, Known::default(), Vec::new());
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for scenario in Scenario::ALL {
        let Some(whole) = recorded(FAILING, scenario, None) else { return };
        let chances = whole.recording.chances.iter().enumerate();
        let fails = chances.flat_map(|(from, chance)| chance.errors.iter().map(move |errno| (from, *errno)));
        let fails: Vec<_> = fails.filter(|(_, errno)| format!("{errno:?}").contains(&only)).collect();
        // Not always the same error of each call.
        let step = if is_long() { 1 } else { (fails.len() / 40) | 1 };
        let chosen = fails.iter().copied().enumerate();
        // What was found among all of them (PR-97) is always tried.
        let is_known = |from: usize, errno| {
            let chance = &whole.recording.chances[from];
            (chance.call, errno) == ("fsync", Errno::EIO) && chance.path.contains("/incoming/tree/tables/")
        };
        let chosen = chosen.filter(|(n, (from, errno))| n.is_multiple_of(step) || is_known(*from, *errno));
        for (_, (from, errno)) in chosen {
            let fault = Fault { from, strike: Strike::Fail(errno) };
            match record(FAILING, scenario, Some(fault)) {
                Ok(run) => {
                    let (answer, wrong) = fault_of(&run, &mut known);
                    *answers.entry(answer).or_default() += 1;
                    faults.extend(wrong);
                }
                Err(FollowError::Refused(why)) => faults.push(why),
                Err(FollowError::NotPermitted(why)) => panic!("it was permitted before: {why}"),
            }
            runs += 1;
        }
    }
    eprintln!("crash: {runs} failing calls, {:?} in {:.1?}", known.looked(), begun.elapsed());
    for (answer, times) in answers {
        eprintln!("crash: {times:5} {answer}");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The system has no memory for a call that makes or writes a file: the engine can do it later, and is whole
/// meanwhile.
#[test]
fn pr459_want_of_memory_is_no_damage_and_no_failed_disk() {
    work_if_asked();
    let (test, mut known) = ("pr459_want_of_memory_is_no_damage_and_no_failed_disk", Known::default());
    let Some(whole) = recorded(test, Scenario::Flush, None) else { return };
    let makes =
        |chance: &Chance| ["open", "write"].contains(&chance.call) && chance.errors.contains(&Errno::ENOSPC);
    let chances = whole.recording.chances.iter().enumerate().filter(|(_, chance)| makes(chance));
    let chances: Vec<usize> = chances.map(|(from, _)| from).collect();
    assert!(!chances.is_empty(), "a flush writes files");
    let (step, mut faults) = (chances.len().div_ceil(12), Vec::new());
    for from in chances.into_iter().step_by(step) {
        let fault = Fault { from, strike: Strike::Fail(Errno::ENOMEM) };
        match record(test, Scenario::Flush, Some(fault)) {
            Ok(run) => faults.extend(fault_of(&run, &mut known).1),
            Err(FollowError::Refused(why)) => faults.push(why),
            Err(FollowError::NotPermitted(why)) => panic!("it was permitted before: {why}"),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

const FAILING: &str = "failing_calls_leave_the_engine_whole";

/// So many steps after a failing call the power may be lost.
const SOON: usize = 50;

/// How the engine answered, and what is wrong, if something is.
fn fault_of(run: &Run, known: &mut Known) -> (String, Option<String>) {
    let Some(injected) = &run.recording.injected else { return ("not injected".into(), None) };
    let notes = run.notes();
    let answers: Vec<_> = notes.iter().filter(|note| [Note::Full, Note::Failed].contains(note)).collect();
    let answer =
        format!("{:?} at {} of {}: {answers:?}", injected.action, injected.at.call, kind(&injected.at.path));
    let left = run.fault_of_what_is_left();
    let soon = injected.step..injected.step + SOON;
    let lost = known.check(run.scenario, &run.recording, soon, Effort::ORDERED).err();
    let harsh = (is_for_now(injected) && answers.contains(&&Note::Failed))
        .then(|| "it must say that it is full".into());
    let wrong =
        left.or(lost).or(harsh).map(|why| format!("{} {injected}, {answers:?}: {why}", run.scenario.name()));
    (answer, wrong)
}

/// True if something could only not be made for now: that must take nothing out of service (F20, PR-96). The
/// crate makes its temporary files with a library that hides how that failed, so of those it cannot be told.
fn is_for_now(injected: &Injected) -> bool {
    let makes = ["open", "write", "mkdir", "link"].contains(&injected.at.call)
        && injected.at.errors.contains(&Errno::ENOSPC)
        && !injected.at.path.contains("/.tmp");
    makes && [Errno::ENOSPC, Errno::EMFILE, Errno::ENOMEM].map(Action::Fail).contains(&injected.action)
}

/// A path without its numbers and arbitrary names.
fn kind(path: &str) -> String {
    let kind = path.replace(|c: char| c.is_ascii_digit(), "");
    kind.split(".tmp").next().unwrap_or_default().to_owned()
}
