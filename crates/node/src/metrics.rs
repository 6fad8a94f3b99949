//! Counters of a node, and their text for Prometheus (conventions). Labels are bounded; keys and queries are
//! never among them.

use crate::system_calls::SystemCalls;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the histogram's buckets, in microseconds.
const BOUNDS: [u64; 14] =
    [25, 50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 102_400, 409_600, 1_638_400];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    sum_us: AtomicU64,
}

impl Histogram {
    /// Counts one.
    pub fn record(&self, duration: Duration) {
        let us = duration.as_micros() as u64;
        if let Some(at) = BOUNDS.iter().position(|bound| us <= *bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    fn print(&self, out: &mut String, name: &str, help: &str) {
        head(out, name, "histogram", help);
        let mut below = 0;
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            below += bucket.load(Ordering::Relaxed);
            line(out, &format!("{name}_bucket{{le=\"{}\"}}", bound as f64 / 1e6), below);
        }
        let count = self.count.load(Ordering::Relaxed);
        line(out, &format!("{name}_bucket{{le=\"+Inf\"}}"), count);
        line(out, &format!("{name}_sum"), self.sum_us.load(Ordering::Relaxed) as f64 / 1e6);
        line(out, &format!("{name}_count"), count);
    }
}

/// How a write was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Committed.
    Ok,
    /// Decided against by the state of the data.
    Refused,
    /// Not done.
    NotDone,
    /// Not known.
    Unknown,
}

impl Outcome {
    const ALL: [(Outcome, &'static str); 4] = [
        (Outcome::Ok, "ok"),
        (Outcome::Refused, "refused"),
        (Outcome::NotDone, "not_done"),
        (Outcome::Unknown, "unknown"),
    ];
}

/// What a node counts.
#[derive(Debug, Default)]
pub struct Metrics {
    /// How long fsyncs of the log took.
    pub fsync: Histogram,
    /// Fsyncs of the log.
    pub fsyncs: AtomicU64,
    /// System calls of executors and of the log.
    pub system_calls: SystemCalls,
    /// Bytes written to the log.
    pub log_bytes: AtomicU64,
    /// Entries written to the log.
    pub log_entries: AtomicU64,
    /// Bytes sent to clients, nodes and controllers.
    pub sent: AtomicU64,
    /// Bytes received.
    pub received: AtomicU64,
    /// Bytes of files sent to other nodes.
    pub ship_sent: AtomicU64,
    /// Bytes of files received.
    pub ship_received: AtomicU64,
    /// Requests of clients.
    pub requests: AtomicU64,
    /// Those of them that came without a socket, from clients of this process.
    pub local_requests: AtomicU64,
    /// Reigns that began here.
    pub primary_changes: AtomicU64,
    /// Connections open.
    pub connections: AtomicU64,
    /// Connections that were closed because of what came on them.
    pub bad_connections: AtomicU64,
    /// Checkpoints of engines.
    pub checkpoints: AtomicU64,
    /// The longest checkpoint, from its beginning until it was durable, in microseconds.
    pub checkpoint_max_us: AtomicU64,
    /// How often one of several executors did nothing for half a second.
    pub executor_hangs: AtomicU64,
    /// The longest turn of an executor, in microseconds: so long everything else of it has waited.
    pub turn_max_us: AtomicU64,
    /// Start: opening the log, in microseconds.
    pub recovery_log_us: AtomicU64,
    /// Start: opening engines, in microseconds.
    pub recovery_engines_us: AtomicU64,
    /// Start: replaying the log into engines, in microseconds.
    pub recovery_replay_us: AtomicU64,
    commits: [AtomicU64; 4],
}

impl Metrics {
    /// Counts a write's answer.
    pub fn answered(&self, outcome: Outcome) {
        self.commits[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Writes with this answer.
    pub fn answers(&self, outcome: Outcome) -> u64 {
        self.commits[outcome as usize].load(Ordering::Relaxed)
    }

    /// Raises the longest checkpoint.
    pub fn checkpointed(&self, took: Duration) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.checkpoint_max_us.fetch_max(took.as_micros() as u64, Ordering::Relaxed);
    }

    /// Everything that does not depend on a partition.
    pub fn print(&self, out: &mut String) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |counter: &AtomicU64| load(counter) as f64 / 1e6;
        let p = "understudy_";
        self.fsync.print(out, "understudy_log_fsync_duration_seconds", "Time of one fsync of the log.");
        for (name, help, counter) in [
            ("log_fsyncs_total", "Fsyncs of the log.", &self.fsyncs),
            ("log_written_bytes_total", "Bytes written to the log.", &self.log_bytes),
            ("log_entries_total", "Entries written to the log.", &self.log_entries),
            ("network_sent_bytes_total", "Bytes sent.", &self.sent),
            ("network_received_bytes_total", "Bytes received.", &self.received),
            ("ship_sent_bytes_total", "Bytes of engines' files sent to other nodes.", &self.ship_sent),
            ("ship_received_bytes_total", "Bytes of engines' files received.", &self.ship_received),
            ("requests_total", "Requests of clients.", &self.requests),
            (
                "local_requests_total",
                "Requests of clients in this process, without a socket.",
                &self.local_requests,
            ),
            ("primary_changes_total", "Terms that began on this node.", &self.primary_changes),
            ("connections_refused_total", "Connections closed for what came on them.", &self.bad_connections),
            ("checkpoints_total", "Engines written to disk.", &self.checkpoints),
            (
                "executor_hangs_total",
                "Times that one of several executors stood still.",
                &self.executor_hangs,
            ),
        ] {
            let name = format!("{p}{name}");
            head(out, &name, "counter", help);
            line(out, &name, load(counter));
        }
        self.print_system_calls(out);
        head(out, "understudy_commits_total", "counter", "Writes by how they were answered.");
        for (outcome, label) in Outcome::ALL {
            line(out, &format!("understudy_commits_total{{outcome=\"{label}\"}}"), self.answers(outcome));
        }
        head(out, "understudy_recovery_duration_seconds", "gauge", "How long this start took, by phase.");
        for (phase, counter) in [
            ("log", &self.recovery_log_us),
            ("engines", &self.recovery_engines_us),
            ("replay", &self.recovery_replay_us),
        ] {
            line(
                out,
                &format!("understudy_recovery_duration_seconds{{phase=\"{phase}\"}}"),
                seconds(counter),
            );
        }
        head(out, "understudy_connections", "gauge", "Open connections.");
        line(out, "understudy_connections", load(&self.connections));
        head(out, "understudy_checkpoint_max_seconds", "gauge", "The longest write of an engine to disk.");
        line(out, "understudy_checkpoint_max_seconds", seconds(&self.checkpoint_max_us));
        head(out, "understudy_turn_max_seconds", "gauge", "The longest turn of the event loop.");
        line(out, "understudy_turn_max_seconds", seconds(&self.turn_max_us));
    }

    fn print_system_calls(&self, out: &mut String) {
        let name = "understudy_system_calls_total";
        head(out, name, "counter", "System calls of executors and of the log, by what they do.");
        let fsyncs = ("fsync", self.fsync.count.load(Ordering::Relaxed));
        for (call, count) in self.system_calls.each().into_iter().chain([fsyncs]) {
            line(out, &format!("{name}{{call=\"{call}\"}}"), count);
        }
    }
}

/// The two lines before a metric.
pub fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// One sample.
pub fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{name} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_all_that_is_below_them() {
        let metrics = Metrics::default();
        for us in [10, 60, 60, 5_000_000] {
            metrics.fsync.record(Duration::from_micros(us));
        }
        metrics.answered(Outcome::Unknown);
        metrics.system_calls.count_file_write();
        let mut out = String::new();
        metrics.print(&mut out);
        for expected in [
            "understudy_log_fsync_duration_seconds_bucket{le=\"0.000025\"} 1\n",
            "understudy_log_fsync_duration_seconds_bucket{le=\"0.0001\"} 3\n",
            "understudy_log_fsync_duration_seconds_bucket{le=\"+Inf\"} 4\n",
            "understudy_log_fsync_duration_seconds_count 4\n",
            "understudy_commits_total{outcome=\"unknown\"} 1\n",
            "understudy_system_calls_total{call=\"file_write\"} 1\n",
            "understudy_system_calls_total{call=\"fsync\"} 4\n",
        ] {
            assert!(out.contains(expected), "{expected} is missing in\n{out}");
        }
    }
}
