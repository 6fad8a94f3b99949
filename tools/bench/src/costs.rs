//! What one operation costs: processor time of the servers and of the load generator, user and kernel apart,
//! and how often the kernel was asked.

use crate::report::Side;
use crate::stats::{Spread, median, tidy};
use crate::subject::{Round, Series};
use client::Traffic;
use serde::Serialize;

/// System calls, as those who make them count them. They only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallCounts {
    /// Waits for events, and looks for some without waiting.
    pub polls: u64,
    /// Reads of sockets.
    pub reads: u64,
    /// Writes to sockets.
    pub writes: u64,
    /// Wake-ups of other threads.
    pub wakes: u64,
    /// Writes of the log.
    pub file_writes: u64,
    /// Fsyncs of the log.
    pub fsyncs: u64,
}

impl CallCounts {
    /// Of a client that makes load.
    pub fn of_client(traffic: Traffic) -> CallCounts {
        let Traffic { polls, reads, writes, .. } = traffic;
        CallCounts { polls, reads, writes, ..CallCounts::default() }
    }

    /// Both together.
    pub fn plus(self, other: CallCounts) -> CallCounts {
        CallCounts {
            polls: self.polls + other.polls,
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            wakes: self.wakes + other.wakes,
            file_writes: self.file_writes + other.file_writes,
            fsyncs: self.fsyncs + other.fsyncs,
        }
    }

    /// What came to it since `before`, for each of so many operations.
    pub fn per_op(self, before: CallCounts, ops: f64) -> Calls {
        let of = |now: u64, then: u64| now.saturating_sub(then) as f64 / ops;
        Calls {
            polls: of(self.polls, before.polls),
            reads: of(self.reads, before.reads),
            writes: of(self.writes, before.writes),
            wakes: of(self.wakes, before.wakes),
            file_writes: of(self.file_writes, before.file_writes),
            fsyncs: of(self.fsyncs, before.fsyncs),
        }
    }
}

/// The calls that a node has counted, and how many microseconds its fsyncs took together, from the text of
/// its `/metrics`. `None` if it does not count them.
pub fn parse_metrics(text: &str) -> Option<(CallCounts, u64)> {
    let sample = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let calls = |call: &str| {
        sample(&format!("understudy_system_calls_total{{call=\"{call}\"}}"))?.parse::<u64>().ok()
    };
    let counts = CallCounts {
        polls: calls("poll")?,
        reads: calls("read")?,
        writes: calls("write")?,
        wakes: calls("wake")?,
        file_writes: calls("file_write")?,
        fsyncs: calls("fsync")?,
    };
    let fsync_s = sample("understudy_log_fsync_duration_seconds_sum")?.parse::<f64>().ok()?;
    Some((counts, (fsync_s * 1e6) as u64))
}

/// System calls for one operation, on the average.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Calls {
    /// Waits for events, and looks for some without waiting.
    pub polls: f64,
    /// Reads of sockets.
    pub reads: f64,
    /// Writes to sockets.
    pub writes: f64,
    /// Wake-ups of other threads.
    pub wakes: f64,
    /// Writes of the log.
    pub file_writes: f64,
    /// Fsyncs of the log.
    pub fsyncs: f64,
}

impl Calls {
    /// Figure by figure, the median of several rounds. `None`: it is not known of one, or there are none.
    fn median_of(rounds: &[Cost], calls: fn(&Cost) -> Option<Calls>) -> Option<Calls> {
        let rounds: Vec<Calls> = rounds.iter().map(calls).collect::<Option<_>>()?;
        let of =
            |figure: fn(&Calls) -> f64| median(&rounds.iter().map(figure).collect::<Vec<f64>>()).map(tidy);
        Some(Calls {
            polls: of(|calls| calls.polls)?,
            reads: of(|calls| calls.reads)?,
            writes: of(|calls| calls.writes)?,
            wakes: of(|calls| calls.wakes)?,
            file_writes: of(|calls| calls.file_writes)?,
            fsyncs: of(|calls| calls.fsyncs)?,
        })
    }

    /// For people; what there is nothing of is left out.
    fn in_words(&self) -> String {
        let figures = [
            (self.polls, "polls"),
            (self.reads, "reads"),
            (self.writes, "writes"),
            (self.wakes, "wakes of threads"),
            (self.file_writes, "writes of the log"),
            (self.fsyncs, "fsyncs"),
        ];
        let told = figures.iter().filter(|(count, _)| *count > 0.0);
        told.map(|(count, what)| format!("{count:.2} {what}")).collect::<Vec<String>>().join(", ")
    }
}

/// What one operation costs, on the average. Microseconds of processor time, and counts.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Cost {
    /// Of the processes that serve.
    pub servers_user_us: f64,
    /// Of these, in the kernel.
    pub servers_kernel_us: f64,
    /// Of this process, which makes the load.
    pub generator_user_us: f64,
    /// Of it, in the kernel.
    pub generator_kernel_us: f64,
    /// Times that a thread of the servers waited and was woken up.
    pub wakeups: f64,
    /// Times that the kernel took the processor away from a thread of the servers.
    pub preempted: f64,
    /// System calls of the servers that read or write files, as the system counts them.
    pub file_calls: f64,
    /// Packets on the loopback interface, those of others among them.
    pub packets: f64,
    /// Times that the load generator waited and was woken up.
    pub generator_wakeups: f64,
    /// System calls that the servers have counted; `None` if they do not count any.
    pub server_calls: Option<Calls>,
    /// The same of the load generator.
    pub generator_calls: Option<Calls>,
}

impl Cost {
    /// Figure by figure, the median of several rounds. None: there are no rounds, or it is not known of one.
    pub fn median_of(rounds: &[Option<Cost>]) -> Option<Cost> {
        let rounds: Vec<Cost> = rounds.iter().copied().collect::<Option<_>>()?;
        let of =
            |figure: fn(&Cost) -> f64| median(&rounds.iter().map(figure).collect::<Vec<f64>>()).map(tidy);
        Some(Cost {
            servers_user_us: of(|cost| cost.servers_user_us)?,
            servers_kernel_us: of(|cost| cost.servers_kernel_us)?,
            generator_user_us: of(|cost| cost.generator_user_us)?,
            generator_kernel_us: of(|cost| cost.generator_kernel_us)?,
            wakeups: of(|cost| cost.wakeups)?,
            preempted: of(|cost| cost.preempted)?,
            file_calls: of(|cost| cost.file_calls)?,
            packets: of(|cost| cost.packets)?,
            generator_wakeups: of(|cost| cost.generator_wakeups)?,
            server_calls: Calls::median_of(&rounds, |cost| cost.server_calls),
            generator_calls: Calls::median_of(&rounds, |cost| cost.generator_calls),
        })
    }

    /// Microseconds of the servers.
    pub fn servers_us(&self) -> f64 {
        self.servers_user_us + self.servers_kernel_us
    }

    /// Microseconds of the load generator.
    pub fn generator_us(&self) -> f64 {
        self.generator_user_us + self.generator_kernel_us
    }
}

/// Figures of every round, with the least, the middle one and the most.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Spreads {
    /// Processor microseconds per operation of all processes.
    pub cpu_us_per_op: Spread,
    /// Of it, by who used it and for what; `None` where it is not known.
    pub servers_user_us: Option<Spread>,
    /// Of the servers, in the kernel.
    pub servers_kernel_us: Option<Spread>,
    /// Of the load generator.
    pub generator_user_us: Option<Spread>,
    /// Of it, in the kernel.
    pub generator_kernel_us: Option<Spread>,
    /// Operations that one fsync of one node takes to disk.
    pub commits_per_fsync_of_one_node: Option<Spread>,
    /// How long an fsync took, on the average of a round.
    pub fsync_latency_us: Option<Spread>,
    /// 99 of 100 operations of a round were at least so fast.
    pub p99_us: Spread,
}

impl Spreads {
    /// Of all rounds. `None` if there are none.
    pub fn of(series: &Series) -> Option<Spreads> {
        let known = |figure: &dyn Fn(&Round) -> Option<f64>| {
            Spread::of(series.rounds.iter().map(figure).collect::<Option<Vec<f64>>>()?)
        };
        let cost = |figure: fn(&Cost) -> f64| known(&|round: &Round| round.cost.as_ref().map(figure));
        let way = series.way;
        Some(Spreads {
            cpu_us_per_op: known(&|round: &Round| Some(round.cpu_us_per_op))?,
            servers_user_us: cost(|cost| cost.servers_user_us),
            servers_kernel_us: cost(|cost| cost.servers_kernel_us),
            generator_user_us: cost(|cost| cost.generator_user_us),
            generator_kernel_us: cost(|cost| cost.generator_kernel_us),
            commits_per_fsync_of_one_node: known(&|round: &Round| {
                round.ops_per_fsync.map(|ops| way.commits_per_fsync(ops))
            }),
            fsync_latency_us: known(&|round: &Round| round.fsync_us),
            p99_us: known(&|round: &Round| Some(round.p99_us))?,
        })
    }
}

/// What an operation costs on one side, for people: a line each.
pub fn in_words(name: &str, side: &Side) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(cost) = &side.cost_per_op else { return lines };
    let spread = side.spread.as_ref().map_or(String::new(), |spread| {
        let all = &spread.cpu_us_per_op;
        format!("; together {:.1} ({:.1} to {:.1})", all.median, all.min, all.max)
    });
    lines.push(format!(
        "{name}: us of processor time for each operation: servers {:.1} user, {:.1} kernel; generator {:.1} user, {:.1} \
         kernel{spread}",
        cost.servers_user_us, cost.servers_kernel_us, cost.generator_user_us, cost.generator_kernel_us
    ));
    let fsync = side.spread.as_ref().and_then(|spread| spread.fsync_latency_us.as_ref());
    let fsync = fsync.map_or(String::new(), |us| {
        format!("; an fsync took {:.0} us ({:.0} to {:.0})", us.median, us.min, us.max)
    });
    lines.push(format!(
        "{name}: for each operation: {:.2} wake-ups, {:.2} preemptions, {:.2} file calls, {:.2} packets{fsync}",
        cost.wakeups, cost.preempted, cost.file_calls, cost.packets
    ));
    for (who, calls) in [("servers", &cost.server_calls), ("generator", &cost.generator_calls)] {
        if let Some(calls) = calls {
            lines.push(format!("{name}: counted by the {who}: {}", calls.in_words()));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "# HELP understudy_log_fsync_duration_seconds Time.\n\
        understudy_log_fsync_duration_seconds_sum 1.5\nunderstudy_log_fsync_duration_seconds_count 4\n\
        # TYPE understudy_system_calls_total counter\nunderstudy_system_calls_total{call=\"poll\"} 10\n\
        understudy_system_calls_total{call=\"read\"} 8\nunderstudy_system_calls_total{call=\"write\"} 7\n\
        understudy_system_calls_total{call=\"wake\"} 3\nunderstudy_system_calls_total{call=\"file_write\"} 5\n\
        understudy_system_calls_total{call=\"fsync\"} 4\n";

    #[test]
    fn counters_of_a_node_are_found_in_its_metrics() {
        let counts = CallCounts { polls: 10, reads: 8, writes: 7, wakes: 3, file_writes: 5, fsyncs: 4 };
        assert_eq!(parse_metrics(METRICS), Some((counts, 1_500_000)));
        assert_eq!(parse_metrics(&METRICS.replace("fsync\"} 4", "")), None, "another build");
    }

    #[test]
    fn calls_are_told_for_each_operation() {
        let before = CallCounts { polls: 10, reads: 10, ..CallCounts::default() };
        let now = before.plus(CallCounts { polls: 30, wakes: 5, ..CallCounts::default() });
        let calls = now.per_op(before, 10.0);
        assert_eq!(calls, Calls { polls: 3.0, wakes: 0.5, ..Calls::default() });
        assert_eq!(calls.in_words(), "3.00 polls, 0.50 wakes of threads");
    }

    #[test]
    fn medians_of_costs_are_figure_by_figure() {
        let cost = |user: f64, polls: Option<f64>| {
            let calls = polls.map(|polls| Calls { polls, ..Calls::default() });
            Some(Cost { servers_user_us: user, server_calls: calls, ..Cost::default() })
        };
        let middle = Cost::median_of(&[cost(1.0, Some(9.0)), cost(5.0, Some(1.0)), cost(2.0, Some(2.0))]);
        let middle = middle.expect("all are known");
        assert_eq!((middle.servers_user_us, middle.server_calls.map(|calls| calls.polls)), (2.0, Some(2.0)));
        assert_eq!(middle.servers_us() + middle.generator_us(), 2.0);
        let partly = Cost::median_of(&[cost(1.0, Some(9.0)), cost(3.0, None)]).expect("all are known");
        assert_eq!((partly.servers_user_us, partly.server_calls), (2.0, None));
        assert_eq!(Cost::median_of(&[cost(1.0, None), None]), None);
    }
}
