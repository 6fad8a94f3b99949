//! Histories each of which breaks one promise: the checker of that one rejects it, and no other does. Every
//! checker is shown every one of them, to the end.
//!
//! | file | what |
//! | --- | --- |
//! | `run` | a small cluster, shown to the checkers as the world shows it |
//! | `cluster` | what nodes and controllers did |
//! | `losses` | failovers after which something is missing |
//! | `world` | what nodes did of which the world itself has what a checker needs |
//! | `clients` | what clients were told |
//! | `commits` | global transactions, and calls of procedures |
//!
//! Those of several tables in one partition are in `check/tables/known_bad.rs`.

mod clients;
mod cluster;
mod commits;
mod losses;
mod run;
mod world;

use run::Run;

/// A history that breaks a promise.
struct KnownBad {
    /// The module of the checker that rejects it.
    checker: &'static str,
    /// What is wrong with it.
    what: &'static str,
    /// What is reported: an id, and words of the sentence. More than one id only where one cannot be broken
    /// by itself.
    broken: &'static [(&'static str, &'static str)],
    history: fn() -> Run,
}

/// A history in which nothing is wrong, and what is in it.
type Accepted = (&'static str, fn() -> Run);

/// A row of a table of known-bad histories.
const fn bad(
    checker: &'static str,
    what: &'static str,
    broken: &'static [(&'static str, &'static str)],
    history: fn() -> Run,
) -> KnownBad {
    KnownBad { checker, what, broken, history }
}

impl KnownBad {
    /// How what is reported differs from what should be; none: it does not.
    fn fault(&self) -> Option<String> {
        let found = (self.history)().end();
        let fits = |(id, words): &(&str, &str), (of, sentence): &(String, String)| {
            of.as_str() == *id && sentence.contains(*words)
        };
        let expected = found.iter().all(|one| self.broken.iter().any(|wanted| fits(wanted, one)));
        let reported = self.broken.iter().all(|wanted| found.iter().any(|one| fits(wanted, one)));
        let (checker, what, broken) = (self.checker, self.what, self.broken);
        let right = expected && reported && !broken.is_empty();
        (!right).then(|| format!("{checker}: {what}: {found:?} is reported, and not {broken:?}"))
    }
}

/// Every known-bad history.
fn all() -> impl Iterator<Item = &'static KnownBad> {
    [cluster::CASES, losses::CASES, clients::CASES, commits::CASES, world::CASES].into_iter().flatten()
}

/// The ids that are reported of a history, each once.
fn ids(run: Run) -> Vec<String> {
    let mut ids: Vec<String> = run.end().into_iter().map(|(id, _)| id).collect();
    ids.sort();
    ids.dedup();
    ids
}

#[test]
fn each_history_is_rejected_for_what_it_breaks_and_for_nothing_else() {
    let wrong: Vec<String> = all().filter_map(KnownBad::fault).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn histories_that_keep_every_promise_are_accepted() {
    let sound = [cluster::ACCEPTED, losses::ACCEPTED, clients::ACCEPTED, commits::ACCEPTED, world::ACCEPTED]
        .into_iter()
        .flatten();
    let rejected = sound.filter_map(|(what, history)| {
        let found = history().end();
        (!found.is_empty()).then(|| format!("{what}: {found:?}"))
    });
    let rejected: Vec<String> = rejected.collect();
    assert!(rejected.is_empty(), "\n{}", rejected.join("\n"));
}

/// Modules that reject nothing by themselves, and the one whose known-bad histories are beside it.
const NO_CHECKERS: [&str; 6] = ["catalog", "final_log", "history", "states", "wanted", "tables"];

#[test]
fn every_checker_has_a_known_bad_history() {
    let module = |line: &'static str| line.strip_prefix("pub mod ")?.strip_suffix(';');
    let modules: Vec<&str> = include_str!("../mod.rs").lines().filter_map(module).collect();
    let has_case = |module: &&str| all().any(|case| case.checker == *module);
    let lacking = modules.iter().filter(|module| !NO_CHECKERS.contains(*module) && !has_case(module));
    assert_eq!(lacking.collect::<Vec<_>>(), [&""; 0]);
    let unknown = all().filter(|case| !modules.contains(&case.checker)).map(|case| case.checker);
    assert_eq!(unknown.collect::<Vec<_>>(), [""; 0]);
}
