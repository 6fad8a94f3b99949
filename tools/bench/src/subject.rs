//! Rounds: something is put under load, and what it did is counted from outside.
//!
//! A [`Subject`] only makes the load. [`interleave`] goes round its subjects, A B A B, so that whatever else
//! the machine does hits all of them alike, and reads clocks, processors and counters before and after.

use crate::costs::{CallCounts, Cost};
use crate::error::BenchError;
use crate::procfs::{self, CpuTime, MachineStat, Switches};
use hdrhistogram::Histogram;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Latencies in nanoseconds.
pub type Latencies = Histogram<u64>;

/// An empty histogram: up to a minute, three digits.
pub fn latencies() -> Latencies {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}

/// Adds one latency; one beyond the bounds counts as the bound.
pub fn note(latencies: &mut Latencies, latency: Duration) {
    latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(1));
}

/// What one round did.
#[derive(Clone, Debug)]
pub struct Load {
    /// Operations that ended well.
    pub ops: u64,
    /// From the first operation to the end of the last one.
    pub elapsed: Duration,
    /// Of each operation, from when it was to begin.
    pub latencies: Latencies,
    /// The same from when it did begin, where operations may have to wait for that.
    pub service: Option<Latencies>,
    /// Processor time that cannot be seen from outside any more: of a process that the round started and that
    /// ended.
    pub ended_cpu_us: u64,
}

impl Load {
    /// Nothing yet.
    pub fn empty() -> Load {
        Load { ops: 0, elapsed: Duration::ZERO, latencies: latencies(), service: None, ended_cpu_us: 0 }
    }

    /// Takes in what another thread did in the same round.
    pub fn join(&mut self, other: &Load) {
        self.ops += other.ops;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.ended_cpu_us += other.ended_cpu_us;
        self.latencies.add(&other.latencies).expect("all histograms have the same bounds");
        join(&mut self.service, other.service.as_ref());
    }
}

/// Takes latencies in, if there are any.
fn join(all: &mut Option<Latencies>, others: Option<&Latencies>) {
    if let Some(others) = others {
        let all = all.get_or_insert_with(latencies);
        all.add(others).expect("all histograms have the same bounds");
    }
}

/// Counters that only grow. `None`: nobody counts this.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bytes that went over sockets between all processes involved, each counted once.
    pub wire_bytes: Option<u64>,
    /// Fsyncs of all processes that count theirs.
    pub fsyncs: Option<u64>,
    /// Processor microseconds of processes that cannot be seen from here, because they run elsewhere.
    pub remote_cpu_us: u64,
    /// Microseconds that these fsyncs took together.
    pub fsync_us: Option<u64>,
    /// System calls of the servers.
    pub server_calls: Option<CallCounts>,
    /// System calls of the load generator.
    pub generator_calls: Option<CallCounts>,
}

/// Who counts, for the readers of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sources {
    /// Of the bytes. Empty: the loopback interface, which also carries what does not belong here.
    pub wire: &'static str,
    /// Of the fsyncs.
    pub fsyncs: &'static str,
}

/// How an operation goes through a subject: known from what the subject does, not measured. Means over the
/// mix of operations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Way {
    /// Messages that follow one another between the question and its answer. 0: no network.
    pub messages: f64,
    /// Logs that each operation is written to.
    pub logs: f64,
    /// Nodes with a log, whose fsyncs are counted together.
    pub nodes: u32,
}

impl Way {
    /// To a log in this process.
    pub const ONE_LOG: Way = Way { messages: 0.0, logs: 1.0, nodes: 1 };

    /// To a primary of so many copies, on a node each. `acknowledged`: an update is answered after backups
    /// have it. The rest, besides the updates, are reads from the primary.
    pub fn of_copies(copies: u32, nodes: u32, acknowledged: bool, update_percent: u8) -> Way {
        let updates = f64::from(update_percent) / 100.0;
        let beyond = if acknowledged && copies > 1 { 2.0 } else { 0.0 };
        Way { messages: 2.0 + beyond * updates, logs: f64::from(copies) * updates, nodes }
    }

    /// Commits that one fsync of one node takes to disk, from operations per fsync of all nodes together.
    pub fn commits_per_fsync(self, ops_per_fsync: f64) -> f64 {
        ops_per_fsync * self.logs
    }

    /// Fsyncs a second of one node, from those of all nodes together.
    pub fn fsyncs_of_one_node(self, fsyncs_s: f64) -> f64 {
        fsyncs_s / f64::from(self.nodes.max(1))
    }
}

/// Something that can be put under load.
pub trait Subject {
    /// What it is, in a few words.
    fn label(&self) -> String;

    /// Settings that a reader needs in order to judge its figures.
    fn settings(&self) -> String {
        String::new()
    }

    /// Processes, besides this one, whose time counts, with all that they start.
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Who counts what [`Subject::counters`] says.
    fn sources(&self) -> Sources;

    /// How an operation goes through it.
    fn way(&self) -> Way;

    /// Counters as they are now. Called outside of the measured time; may wait until they are up to date.
    fn counters(&mut self) -> Result<Counters, BenchError>;

    /// Works for about `time`.
    fn run(&mut self, time: Duration) -> Result<Load, BenchError>;
}

/// One round's figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Round {
    /// Operations a second.
    pub ops_s: f64,
    /// Operations.
    pub ops: u64,
    /// Processor microseconds per operation of all processes involved, this one included.
    pub cpu_us_per_op: f64,
    /// What the kernel used of it. `None` if some of the processes run elsewhere, or have ended.
    pub kernel_cpu_us_per_op: Option<f64>,
    /// Who used what. `None` as above.
    pub cost: Option<Cost>,
    /// Bytes on the wire per operation.
    pub wire_bytes_per_op: Option<f64>,
    /// Operations per fsync.
    pub ops_per_fsync: Option<f64>,
    /// Fsyncs a second.
    pub fsyncs_s: Option<f64>,
    /// The share of all processors that the processes involved used.
    pub cpu_share: f64,
    /// The share that everything else on this machine and its host used.
    pub other_cpu_share: f64,
    /// How long an fsync took, on the average.
    pub fsync_us: Option<f64>,
    /// 99 of 100 operations were at least so fast, microseconds.
    pub p99_us: f64,
}

/// All rounds of one subject.
#[derive(Clone, Debug)]
pub struct Series {
    /// What it is.
    pub label: String,
    /// Its settings.
    pub settings: String,
    /// Who counted.
    pub sources: Sources,
    /// How an operation goes.
    pub way: Way,
    /// Its rounds, in order.
    pub rounds: Vec<Round>,
    /// Latencies of all rounds.
    pub latencies: Latencies,
    /// The same from when operations did begin, where they may have to wait for that.
    pub service: Option<Latencies>,
}

/// How often and how long.
#[derive(Clone, Debug)]
pub struct RoundPlan {
    /// Measured rounds of each subject.
    pub rounds: u32,
    /// Length of one.
    pub time: Duration,
    /// Length of a first round of each that is not counted.
    pub warm_up: Duration,
    /// Once true, no further round begins.
    pub stop: Option<Arc<AtomicBool>>,
}

/// Puts the subjects under load in turn, as often as the plan says.
pub fn interleave(
    subjects: &mut [&mut dyn Subject],
    plan: RoundPlan,
    progress: &mut dyn Write,
) -> Result<Vec<Series>, BenchError> {
    let mut series: Vec<Series> = subjects
        .iter()
        .map(|subject| Series {
            label: subject.label(),
            settings: subject.settings(),
            sources: subject.sources(),
            way: subject.way(),
            rounds: Vec::new(),
            latencies: latencies(),
            service: None,
        })
        .collect();
    for round in 0..=plan.rounds {
        for (subject, series) in subjects.iter_mut().zip(&mut series) {
            if plan.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(BenchError::Stopped);
            }
            if round == 0 {
                subject.run(plan.warm_up)?;
                continue;
            }
            let (figures, load) = measure(&mut **subject, plan.time)?;
            // Progress is a courtesy: a closed standard error does not stop the bench.
            let _ = writeln!(
                progress,
                "  round {round}/{}  {:>9.0}/s  {:>6.1} us cpu  {}",
                plan.rounds, figures.ops_s, figures.cpu_us_per_op, series.label
            );
            series.rounds.push(figures);
            series.latencies.add(&load.latencies).expect("all histograms have the same bounds");
            join(&mut series.service, load.service.as_ref());
        }
    }
    Ok(series)
}

fn measure(subject: &mut dyn Subject, time: Duration) -> Result<(Round, Load), BenchError> {
    let loopback = subject.sources().wire.is_empty();
    let processes = subject.processes();
    let counters = subject.counters()?;
    let before = Clocks::read(&processes, loopback);
    let load = subject.run(time)?;
    let after = Clocks::read(&processes, loopback);
    let counted = subject.counters()?;
    if load.ops == 0 {
        return Err(BenchError::Wrong(format!("{}: no operation ended within a round", subject.label())));
    }
    Ok((before.until(&after, &load, counters, counted), load))
}

/// What is read around a round.
struct Clocks {
    at: Instant,
    own_us: CpuTime,
    theirs_us: CpuTime,
    machine: MachineStat,
    loopback: Option<u64>,
    own: Switches,
    theirs: Switches,
    packets: u64,
}

impl Clocks {
    fn read(processes: &[u32], loopback: bool) -> Clocks {
        Clocks {
            at: Instant::now(),
            own_us: procfs::own_cpu_us(),
            theirs_us: procfs::trees_cpu_us(processes),
            machine: MachineStat::now(),
            loopback: if loopback { procfs::loopback_bytes() } else { None },
            own: Switches::own(),
            theirs: Switches::of_trees(processes),
            packets: procfs::loopback_packets().unwrap_or(0),
        }
    }

    fn cost(&self, after: &Clocks, ops: f64, (from, to): (Counters, Counters)) -> Cost {
        let (own, theirs) = (after.own_us.since(self.own_us), after.theirs_us.since(self.theirs_us));
        let per_op = |count: u64| count as f64 / ops;
        let grown = |figure: fn(&Clocks) -> u64| per_op(figure(after).saturating_sub(figure(self)));
        let calls = |figure: fn(&Counters) -> Option<CallCounts>| {
            figure(&from).zip(figure(&to)).map(|(from, to)| to.per_op(from, ops))
        };
        Cost {
            servers_user_us: per_op(theirs.all - theirs.kernel),
            servers_kernel_us: per_op(theirs.kernel),
            generator_user_us: per_op(own.all - own.kernel),
            generator_kernel_us: per_op(own.kernel),
            wakeups: grown(|clocks| clocks.theirs.waits),
            preempted: grown(|clocks| clocks.theirs.preempted),
            file_calls: grown(|clocks| clocks.theirs.file_calls),
            packets: grown(|clocks| clocks.packets),
            generator_wakeups: grown(|clocks| clocks.own.waits),
            server_calls: calls(|counters| counters.server_calls),
            generator_calls: calls(|counters| counters.generator_calls),
        }
    }

    fn until(&self, after: &Clocks, load: &Load, from: Counters, to: Counters) -> Round {
        let ops = load.ops as f64;
        let grown = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?) as f64);
        let seen = after.own_us.since(self.own_us).plus(after.theirs_us.since(self.theirs_us));
        let unseen = load.ended_cpu_us + to.remote_cpu_us.saturating_sub(from.remote_cpu_us);
        let cpu_us = seen.all + unseen;
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let all_us = after.at.duration_since(self.at).as_micros() as f64 * cores;
        let cpu_share = cpu_us as f64 / all_us;
        let ticks = after.machine.total.saturating_sub(self.machine.total).max(1) as f64;
        let idle = after.machine.idle.saturating_sub(self.machine.idle) as f64;
        let wire = grown(from.wire_bytes, to.wire_bytes).or(grown(self.loopback, after.loopback));
        let fsyncs = grown(from.fsyncs, to.fsyncs);
        let fsync_us = grown(from.fsync_us, to.fsync_us).zip(fsyncs.filter(|fsyncs| *fsyncs > 0.0));
        let seconds = load.elapsed.as_secs_f64();
        Round {
            ops_s: ops / seconds,
            ops: load.ops,
            cpu_us_per_op: cpu_us as f64 / ops,
            kernel_cpu_us_per_op: (unseen == 0).then_some(seen.kernel as f64 / ops),
            cost: (unseen == 0).then(|| self.cost(after, ops, (from, to))),
            wire_bytes_per_op: wire.map(|bytes| bytes / ops),
            ops_per_fsync: fsyncs.filter(|fsyncs| *fsyncs > 0.0).map(|fsyncs| ops / fsyncs),
            fsyncs_s: fsyncs.map(|fsyncs| fsyncs / seconds),
            cpu_share,
            other_cpu_share: ((ticks - idle) / ticks - cpu_share).max(0.0),
            fsync_us: fsync_us.map(|(us, fsyncs)| us / fsyncs),
            p99_us: load.latencies.value_at_quantile(0.99) as f64 / 1_000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter {
        calls: Vec<Duration>,
        bytes: u64,
        ops: u64,
    }

    impl Subject for Counter {
        fn label(&self) -> String {
            "counter".into()
        }

        fn sources(&self) -> Sources {
            Sources { wire: "itself", fsyncs: "itself" }
        }

        fn way(&self) -> Way {
            Way::ONE_LOG
        }

        fn counters(&mut self) -> Result<Counters, BenchError> {
            let calls = CallCounts { polls: self.bytes / 500, ..CallCounts::default() };
            Ok(Counters {
                wire_bytes: Some(self.bytes),
                fsyncs: Some(self.bytes / 100),
                fsync_us: Some(self.bytes * 3),
                server_calls: Some(calls),
                ..Counters::default()
            })
        }

        fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
            self.calls.push(time);
            self.bytes += self.ops * 1_000;
            let mut load = Load { ops: self.ops, elapsed: Duration::from_millis(500), ..Load::empty() };
            note(&mut load.latencies, Duration::from_micros(70));
            Ok(load)
        }
    }

    #[test]
    fn rounds_count_what_happened_within_them_and_not_the_warm_up() {
        let mut a = Counter { calls: vec![], bytes: 7, ops: 200 };
        let mut b = Counter { calls: vec![], bytes: 0, ops: 400 };
        let plan = RoundPlan {
            rounds: 3,
            time: Duration::from_secs(2),
            warm_up: Duration::from_secs(1),
            stop: None,
        };
        let series = interleave(&mut [&mut a, &mut b], plan, &mut std::io::sink()).expect("runs");
        assert_eq!(series.len(), 2);
        let round = series[0].rounds[0];
        assert_eq!((round.ops, round.ops_s), (200, 400.0));
        assert_eq!(round.wire_bytes_per_op, Some(1_000.0));
        assert_eq!(round.ops_per_fsync, Some(0.1));
        assert_eq!((round.fsync_us, round.p99_us.round()), (Some(300.0), 70.0));
        let cost = round.cost.expect("nothing is unseen");
        assert_eq!((cost.server_calls.map(|calls| calls.polls), cost.generator_calls), (Some(2.0), None));
        assert_eq!(series[1].rounds.len(), 3);
        assert_eq!(series[1].latencies.len(), 3);
        assert_eq!(a.calls, [1, 2, 2, 2].map(Duration::from_secs));
    }

    #[test]
    fn an_update_that_backups_acknowledge_takes_two_more_messages() {
        let way = |copies, acknowledged, percent| Way::of_copies(copies, 3, acknowledged, percent);
        assert_eq!((way(3, true, 100).messages, way(3, true, 100).logs), (4.0, 3.0));
        assert_eq!((way(3, true, 50).messages, way(3, true, 50).logs), (3.0, 1.5));
        assert_eq!(way(1, true, 100).messages, 2.0);
        assert_eq!(way(3, false, 100).messages, 2.0);
        assert_eq!(way(3, true, 0), Way { messages: 2.0, logs: 0.0, nodes: 3 });
    }

    #[test]
    fn no_round_begins_once_it_is_to_stop() {
        let mut subject = Counter { calls: vec![], bytes: 0, ops: 1 };
        let stop = Some(Arc::new(AtomicBool::new(true)));
        let plan = RoundPlan { rounds: 1, time: Duration::ZERO, warm_up: Duration::ZERO, stop };
        let ended = interleave(&mut [&mut subject], plan, &mut std::io::sink());
        assert!(matches!(ended, Err(BenchError::Stopped)));
        assert!(subject.calls.is_empty());
    }

    #[test]
    fn a_round_without_an_operation_is_an_error_and_no_zero() {
        let mut idle = Counter { calls: vec![], bytes: 0, ops: 0 };
        let plan = RoundPlan { rounds: 1, time: Duration::ZERO, warm_up: Duration::ZERO, stop: None };
        assert!(interleave(&mut [&mut idle], plan, &mut std::io::sink()).is_err());
    }
}
