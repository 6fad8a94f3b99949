//! Many seeds: run them on a few threads and add up.

use crate::check::Violation;
use crate::outcome::{Options, Outcome, run};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use types::Finding;
use xxhash_rust::xxh3::xxh3_64;

/// What came of a range of seeds.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Summary {
    /// Seeds that were run.
    pub seeds: u64,
    /// Promises that were broken, by seed.
    pub violations: Vec<Violation>,
    /// Client operations that ended.
    pub operations: u64,
    /// Virtual time that passed.
    pub simulated_seconds: u64,
    /// Seeds in which a primary changed.
    pub primary_changes: u64,
    /// Seeds in which one partition's primary changed twice or more.
    pub double_failovers: u64,
    /// How long partitions had to wait for who serves them; its fields are among these in JSON.
    #[serde(flatten)]
    pub times: Times,
    /// In how many seeds each class of faults struck.
    pub faults: BTreeMap<String, u64>,
    /// A hash of all seeds' traces, in order.
    pub trace_hash: String,
    /// A hash of the numbers of all seeds' events, in order.
    pub event_hash: String,
}

/// How long partitions had to wait for who serves them. Times are virtual milliseconds, rounded down; zero if
/// there are none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Times {
    /// Failovers whose time was taken: a fault took the primary, the others could do without it, and nothing
    /// else befell them.
    pub failovers: u64,
    /// The median of their times, from the fault until the next primary served its first request.
    pub failover_median_ms: u64,
    /// The longest of them.
    pub failover_most_ms: u64,
    /// How often a partition that nobody served, and that could be served, was served again, whatever befell
    /// it meanwhile; but for those whose primary was waited for (PR-85), had a load to install, or had a disk
    /// that hung.
    pub fault_to_serving: u64,
    /// The median of how long that took, from the last fault that concerned it, or from when it could be
    /// served if that was later.
    pub fault_to_serving_median_ms: u64,
    /// The longest of them.
    pub fault_to_serving_most_ms: u64,
}

impl Times {
    /// Of times in virtual microseconds, in any order.
    fn of(mut failovers: Vec<u64>, mut closures: Vec<u64>) -> Times {
        let median = |sorted: &[u64]| sorted.get(sorted.len() / 2).map_or(0, |us| us / 1000);
        let most = |sorted: &[u64]| sorted.last().map_or(0, |us| us / 1000);
        failovers.sort_unstable();
        closures.sort_unstable();
        Times {
            failovers: failovers.len() as u64,
            failover_median_ms: median(&failovers),
            failover_most_ms: most(&failovers),
            fault_to_serving: closures.len() as u64,
            fault_to_serving_median_ms: median(&closures),
            fault_to_serving_most_ms: most(&closures),
        }
    }
}

impl Summary {
    /// The first seed with a violation.
    pub fn found_at(&self) -> Option<u64> {
        self.violations.first().map(|violation| violation.seed)
    }

    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.violations.extend(outcome.violations.iter().cloned());
        self.operations += outcome.operations;
        self.primary_changes += u64::from(outcome.primary_changes > 0);
        self.double_failovers += u64::from(outcome.most_changes > 1);
        for fault in outcome.faults.keys() {
            *self.faults.entry((*fault).to_string()).or_insert(0) += 1;
        }
    }
}

/// Runs the seeds of a range on so many threads. With a mutant, its fault profile applies, and the run ends
/// at the first seed that finds it. `progress` is called after each seed, with what is done so far.
pub fn run_range(
    seeds: Range<u64>,
    mutant: Option<Finding>,
    progress: impl Fn(u64, &Outcome) + Sync,
    threads: usize,
) -> Summary {
    let options = mutant.map_or_else(Options::default, Options::of_mutant);
    run_all(seeds, options, mutant.is_some(), progress, threads)
}

/// [`run_range`] with options of one's own, which may choose some of the seeds; `until_found` ends it at the
/// first seed with a violation.
pub fn run_all(
    seeds: Range<u64>,
    options: Options,
    until_found: bool,
    progress: impl Fn(u64, &Outcome) + Sync,
    threads: usize,
) -> Summary {
    let (next, done, found) = (AtomicU64::new(seeds.start), AtomicU64::new(0), AtomicBool::new(false));
    let outcomes: Mutex<BTreeMap<u64, Outcome>> = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !found.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if !options.chooses(seed) {
                        continue;
                    }
                    let mut outcome = run(seed, options);
                    if until_found && !outcome.violations.is_empty() {
                        found.store(true, Ordering::Relaxed);
                    }
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, &outcome);
                    outcome.trace.clear();
                    outcomes.lock().expect("no thread panics with the outcomes").insert(seed, outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("all threads have ended");
    let mut summary = Summary::default();
    let (mut hashes, mut events, mut simulated) = (Vec::new(), Vec::new(), 0);
    let (mut failovers, mut closures) = (Vec::new(), Vec::new());
    let chosen = seeds.filter(|seed| options.chooses(*seed));
    for (outcome, seed) in outcomes.values().zip(chosen) {
        // What other threads were ahead is left out, so that the summary does not depend on their speed.
        if outcome.seed != seed || until_found && !summary.violations.is_empty() {
            break;
        }
        summary.add(outcome);
        simulated += outcome.simulated_us;
        failovers.extend(&outcome.failovers);
        closures.extend(&outcome.closures);
        hashes.extend_from_slice(&outcome.trace_hash.to_le_bytes());
        events.extend_from_slice(&outcome.event_hash.to_le_bytes());
    }
    summary.times = Times::of(failovers, closures);
    summary.simulated_seconds = simulated / 1_000_000;
    summary.trace_hash = format!("{:016x}", xxh3_64(&hashes));
    summary.event_hash = format!("{:016x}", xxh3_64(&events));
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_by_their_median_and_their_longest() {
        let times = Times::of(vec![9_000, 1_000, 5_999], vec![2_000_500]);
        assert_eq!((times.failovers, times.failover_median_ms, times.failover_most_ms), (3, 5, 9));
        assert_eq!((times.fault_to_serving, times.fault_to_serving_median_ms), (1, 2_000));
        assert_eq!(Times::of(Vec::new(), Vec::new()), Times::default());
        let json = serde_json::to_value(Summary { times, ..Summary::default() }).expect("it has text keys");
        assert_eq!((&json["failovers"], &json["fault_to_serving_most_ms"]), (&3.into(), &2_000.into()));
    }
}
