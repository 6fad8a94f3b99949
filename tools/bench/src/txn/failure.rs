//! Figure 3: throughput and response time over time, while a server is killed. Transactions begin at their
//! own times. Beside them each partition is read again and again, so that a gap shows where it is.

use super::clients::{Beside, Event, SharedStore, Transactions};
use super::figure::{self, Panel};
use super::store::{Leaders, Store, start};
use super::watch::Watch;
use super::{Goal, Run, Shape, ms};
use crate::cluster::{Ours, Shared};
use crate::error::BenchError;
use crate::stats::{median, tidy};
use crate::subject::Subject;
use crate::ycsb::arrivals::Arrivals;
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::{NodeId, PartitionId};

const SHAPE: Shape = Shape {
    name: "failure",
    title: "a server fails (figure 3)",
    across: "offered/s",
    unit: "s until 90 % of the throughput",
    columns: &[
        ("before_s", "txn/s before"),
        ("others_gap_ms", "longest gap of the others, ms"),
        ("own_back_ms", "its own back, ms"),
        ("own_gap_ms", "longest gap of its own, ms"),
        ("stall_ms", "longest without a commit, ms"),
        ("p50_before_ms", "p50 before, ms"),
        ("most_ms", "longest, ms"),
        ("failed", "calls failed"),
        ("unknown", "unknown"),
    ],
};

/// Partitions that the server did not lead; its own; its own where it led the manager; the throughput.
const GAP_MS: f64 = 250.0;
const BACK_MS: f64 = 800.0;
const BACK_WITH_MANAGER_MS: f64 = 2_000.0;
const RECOVERED_S: f64 = 3.0;
/// Of the throughput from before, which is taken for recovered, over so long.
const SHARE: f64 = 0.9;
const OVER: Duration = Duration::from_secs(1);
/// Of the throughput that clients reach who do not wait between transactions.
const OF_PEAK: f64 = 0.7;
/// Of the figure.
const BUCKET: Duration = Duration::from_millis(100);

/// What a round said.
#[derive(Clone, Debug, Default)]
struct Failed {
    before_s: f64,
    p50_before_ms: f64,
    recovered_s: f64,
    /// False: it was not within the round, and `recovered_s` is when the last second began that was
    /// looked at.
    recovered: bool,
    others_gap_ms: Option<f64>,
    own_back_ms: f64,
    own_gap_ms: Option<f64>,
    stall_ms: f64,
    most_ms: f64,
    failed: u64,
    unknown: u64,
    own: usize,
    fault_s: f64,
    /// Seconds, transactions a second, mean response time in milliseconds.
    line: Vec<(f64, f64, f64)>,
}

impl Failed {
    /// The round in a line.
    fn in_words(&self, victim: NodeId, with_manager: bool) -> String {
        let until = match self.recovered {
            true => format!("{:.2} s until", self.recovered_s),
            false => format!("not back within {:.2} s at", self.recovered_s),
        };
        let gap = |gap: Option<f64>| gap.map_or("not measured".into(), |gap| format!("{gap:.0} ms"));
        format!(
            "  server {} of {} partitions{}: {until} {:.0} % of the throughput; its own back after {:.0} ms, their longest gap \
             {}; the others' longest gap {}",
            victim.0,
            self.own,
            if with_manager { " and the manager" } else { "" },
            SHARE * 100.0,
            self.own_back_ms,
            gap(self.own_gap_ms),
            gap(self.others_gap_ms),
        )
    }
}

/// Kills a node.
struct Killing {
    node: NodeId,
    at: Duration,
    done: Rc<Cell<Option<Duration>>>,
}

impl Beside for Killing {
    fn turn(&mut self, ours: &mut Ours, elapsed: Duration) -> Result<(), BenchError> {
        if self.done.get().is_none() && elapsed >= self.at {
            self.done.set(Some(elapsed));
            ours.cluster()?.kill(self.node)?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.done.get().is_some()
    }
}

pub(super) fn measure(run: &mut Run) -> Result<(), BenchError> {
    let options = run.options;
    let servers = options.first_servers();
    if servers < 2 || options.factor == Some(1) {
        return Err(BenchError::Usage(
            "a failure is measured with two servers and two copies at least".into(),
        ));
    }
    let shared = start(options, servers, &[])?;
    run.say(&format!("txn: loading {} rows on {servers} servers", options.rows()));
    let store = Rc::new(RefCell::new(Store::create(options, &shared, servers, "async")?));
    let clients = options.most_clients();
    let mut transactions = Transactions::new(&shared, &store, options.mix(), (clients, Arrivals::Closed), 1);
    transactions.run(options.common.plan().warm_up)?;
    let peak = transactions.run(options.common.plan().time)?;
    let peak = peak.ops as f64 / peak.elapsed.as_secs_f64();
    run.say(&format!("txn: {peak:.0} transactions a second are the peak of {clients} clients"));
    let mut panels = Vec::new();
    for (rate, with_manager) in
        [(options.rate, false), ((peak * OF_PEAK).max(1.0), false), (options.rate, true)]
    {
        let mut rounds = Vec::new();
        for _ in 0..options.common.rounds {
            run.options.common.goes_on()?;
            transactions.set_clients(clients, Arrivals::Open(rate));
            rounds.push(fail(run, (&shared, &store), &mut transactions, with_manager)?);
        }
        panels.extend(drawn(&rounds, rate, with_manager));
        tell(run, (rate, peak), with_manager, &rounds);
    }
    run.finish(&SHAPE);
    figure::write(&options.common, SHAPE.name, &panels)
}

/// Runs the load while a server dies, starts it again, and waits for its copies. What was acknowledged must
/// be there.
fn fail(
    run: &mut Run,
    (shared, store): (&Shared, &SharedStore),
    transactions: &mut Transactions,
    with_manager: bool,
) -> Result<Failed, BenchError> {
    let leaders = store.borrow().leaders(shared.borrow_mut().client())?;
    let victim = leaders.victim(with_manager);
    let victim = victim.ok_or_else(|| BenchError::Wrong("one node leads everything".into()))?;
    let (before, after) = match run.options.paper {
        true => (Duration::from_secs(20), Duration::from_secs(60)),
        false => (run.options.common.plan().time, run.options.common.plan().time.mul_f64(3.0)),
    };
    let done = Rc::new(Cell::new(None));
    transactions.ends = Default::default();
    transactions.watch = Some(Watch::new(&store.borrow(), run.options.rows())?);
    transactions.beside = Some(Box::new(Killing { node: victim, at: before, done: done.clone() }));
    transactions.run(before + after)?;
    transactions.beside = None;
    let watch = transactions.watch.take();
    let fault = done.get().unwrap_or(before);
    let mut failed = weighed(&transactions.events, fault, before + after);
    (failed.failed, failed.unknown) = (transactions.ends.failed, transactions.ends.unknown);
    if let Some(watch) = &watch {
        look(&mut failed, watch, (&leaders, victim), (fault, before + after));
    }
    let words = failed.in_words(victim, with_manager);
    run.say(&words);
    let mut ours = shared.borrow_mut();
    ours.cluster()?.restart(victim)?;
    store.borrow().wait_for_copies(ours.client())?;
    drop(ours);
    store.borrow().check(shared)?;
    Ok(failed)
}

/// What the reads beside the load saw.
fn look(
    failed: &mut Failed,
    watch: &Watch,
    (leaders, victim): (&Leaders, NodeId),
    (fault, length): (Duration, Duration),
) {
    let led: &[PartitionId] = leaders.led.get(&victim).map_or(&[], Vec::as_slice);
    failed.own = led.len();
    let back = watch.all_back(|partition| led.contains(&partition), fault);
    failed.own_back_ms = back.map_or(f64::INFINITY, ms);
    // Where the manager fails nobody gets a snapshot for a while.
    let others = || watch.longest_gap(|partition| !led.contains(&partition), (fault, length));
    failed.others_gap_ms = (leaders.manager != victim).then(others).flatten().map(ms);
    failed.own_gap_ms = watch.longest_gap(|partition| led.contains(&partition), (fault, length)).map(ms);
}

/// What the transactions say of a round of this length with a fault in it.
fn weighed(events: &[Event], fault: Duration, length: Duration) -> Failed {
    let mut events = events.to_vec();
    events.sort_unstable();
    let count = |from: Duration, to: Duration| {
        let of =
            events.partition_point(|(end, _)| *end < to) - events.partition_point(|(end, _)| *end < from);
        of as f64
    };
    let before_s = count(Duration::ZERO, fault) / fault.as_secs_f64().max(f64::MIN_POSITIVE);
    let mut recovered = fault;
    let is_back = |at: Duration| count(at, at + OVER) >= SHARE * before_s * OVER.as_secs_f64();
    while recovered + OVER < length && !is_back(recovered) {
        recovered += Duration::from_millis(20);
    }
    // A round may be too short to show it: then it was not seen.
    let seen = recovered + OVER <= length && is_back(recovered);
    let before: Vec<f64> = events.iter().filter(|(end, _)| *end < fault).map(|(_, took)| ms(*took)).collect();
    let behind: Vec<&Event> = events.iter().filter(|(end, _)| *end >= fault).collect();
    let ends = [fault].into_iter().chain(behind.iter().map(|(end, _)| *end)).collect::<Vec<_>>();
    let stall = ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(length - fault);
    let buckets = (length.as_secs_f64() / BUCKET.as_secs_f64()).ceil() as u32;
    let line = (0..buckets).map(|bucket| {
        let (from, to) = (BUCKET * bucket, BUCKET * (bucket + 1));
        let within: Vec<f64> = events
            .iter()
            .filter(|(end, _)| (from..to).contains(end))
            .map(|(_, took)| took.as_secs_f64() * 1_000.0)
            .collect();
        let mean = within.iter().sum::<f64>() / within.len().max(1) as f64;
        (tidy(from.as_secs_f64()), tidy(within.len() as f64 / BUCKET.as_secs_f64()), tidy(mean))
    });
    Failed {
        before_s: tidy(before_s),
        p50_before_ms: median(&before).map_or(0.0, tidy),
        recovered_s: tidy((recovered - fault).as_secs_f64()),
        recovered: seen,
        stall_ms: ms(stall),
        most_ms: behind.iter().map(|(_, took)| ms(*took)).fold(0.0, f64::max),
        fault_s: tidy(fault.as_secs_f64()),
        line: line.collect(),
        ..Failed::default()
    }
}

/// The panels of a case: its first round.
fn drawn(rounds: &[Failed], rate: f64, with_manager: bool) -> Vec<Panel> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let what = if with_manager { ", the manager on the server" } else { "" };
    let panel = |title: String, unit, of: fn(&(f64, f64, f64)) -> f64| Panel {
        title,
        across: "s",
        unit,
        lines: vec![("all".into(), first.line.iter().map(|point| (point.0, of(point))).collect())],
        mark: Some(first.fault_s),
    };
    vec![
        panel(format!("Throughput at {rate:.0} a second{what}"), "transactions a second", |point| point.1),
        panel(format!("Response time at {rate:.0} a second{what}"), "mean, ms", |point| point.2),
    ]
}

fn tell(run: &mut Run, (rate, peak): (f64, f64), with_manager: bool, rounds: &[Failed]) {
    let middle = |of: fn(&Failed) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let gaps: Vec<f64> = rounds.iter().filter_map(|failed| failed.others_gap_ms).collect();
    let gap = gaps.iter().copied().reduce(f64::max);
    let own_gap = rounds.iter().filter_map(|failed| failed.own_gap_ms).reduce(f64::max);
    let back = middle(|failed| failed.own_back_ms);
    let recovered: Vec<f64> = rounds.iter().map(|failed| failed.recovered_s).collect();
    let figures = json!({
        "servers": run.options.first_servers(), "clients": run.options.most_clients(),
        "offered_s": tidy(rate), "peak_s": tidy(peak), "with_manager": with_manager,
        "before_s": middle(|failed| failed.before_s), "p50_before_ms": middle(|failed| failed.p50_before_ms),
        "others_gap_ms": gap, "own_back_ms": back, "own_gap_ms": own_gap,
        "others_gap_rounds_ms": rounds.iter().map(|failed| failed.others_gap_ms).collect::<Vec<_>>(),
        "recovered_rounds": rounds.iter().filter(|failed| failed.recovered).count(),
        "own_back_rounds_ms": rounds.iter().map(|failed| failed.own_back_ms).collect::<Vec<_>>(),
        "stall_ms": middle(|failed| failed.stall_ms), "most_ms": middle(|failed| failed.most_ms),
        "failed": rounds.iter().map(|failed| failed.failed).sum::<u64>(),
        "unknown": rounds.iter().map(|failed| failed.unknown).sum::<u64>(),
        "own_partitions": rounds.iter().map(|failed| failed.own).max(),
        "checked": true,
        "fault_s": rounds.first().map(|failed| failed.fault_s),
        "over_time": rounds.first().map(|failed| &failed.line),
    });
    let series = if with_manager { "manager on it" } else { "manager elsewhere" };
    let mut point = run.point(&SHAPE, (format!("{rate:.0}"), series.into()), &recovered, figures);
    if let Some(gap) = gap {
        point.goals.push(Goal::at_most("longest gap of partitions that it did not lead, ms", gap, GAP_MS));
    }
    let limit = if with_manager { BACK_WITH_MANAGER_MS } else { BACK_MS };
    point.goals.push(Goal::at_most(
        "its own partitions are back, median ms",
        back.unwrap_or(f64::MAX),
        limit,
    ));
    let mut until =
        Goal::at_most("s until 90 % of the throughput", median(&recovered).unwrap_or(f64::MAX), RECOVERED_S);
    // What was not seen is not met, however short the rounds are.
    until.met &= 2 * rounds.iter().filter(|failed| failed.recovered).count() > rounds.len();
    point.goals.push(until);
    run.done(point);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_back_when_a_whole_second_has_enough_of_it() {
        let ms = Duration::from_millis;
        // A hundred a second; none from 2 to 2.5 seconds, and half as many for another half.
        let early = (0..200).map(|at| (ms(at * 10), ms(5)));
        let half = (0..25).map(|at| (ms(2_500 + at * 20), ms(300)));
        let late = (0..300).map(|at| (ms(3_000 + at * 10), ms(6)));
        let events: Vec<Event> = early.chain(half).chain(late).collect();
        let failed = weighed(&events, ms(2_000), ms(6_000));
        assert_eq!((failed.before_s, failed.p50_before_ms), (100.0, 5.0));
        assert_eq!((failed.stall_ms, failed.most_ms), (500.0, 300.0));
        assert!(failed.recovered && (0.8..0.9).contains(&failed.recovered_s), "{failed:?}");
        assert_eq!(failed.line.len(), 60);
        assert_eq!((failed.line[10], failed.line[21].1), ((1.0, 100.0, 5.0), 0.0));
        let never = weighed(&events[..200], ms(2_000), ms(6_000));
        assert!(never.recovered_s >= 2.9 && never.stall_ms == 4_000.0, "{never:?}");
        assert!(!never.recovered, "{never:?}");
        let short = weighed(&events, ms(2_000), ms(2_900));
        assert!(!short.recovered, "less than a second behind the fault says nothing: {short:?}");
        let words = |failed: &Failed| {
            Failed { others_gap_ms: Some(31.0), ..failed.clone() }.in_words(NodeId(2), true)
        };
        assert!(words(&failed).contains("s until 90 % of the throughput"), "{}", words(&failed));
        assert!(words(&never).contains("not back within"), "{}", words(&never));
        assert!(words(&never).ends_with("the others' longest gap 31 ms"), "{}", words(&never));
    }
}
