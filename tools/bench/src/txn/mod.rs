//! `bench txn`: transactions over partitions, as the document on failure recovery of a transactional
//! key-value store measures them (section 4).
//!
//! | experiment | figure | file |
//! | --- | --- | --- |
//! | `persistence` | 2(a): response time over throughput, lazy and synchronous persistence | `persistence.rs` |
//! | `interval` | 2(b): the interval of heartbeats; here of the recovery manager's passes | `interval.rs` |
//! | `failure` | 3: throughput and response time over time, while a server fails | `failure.rs` |
//! | `manager` | none: what the transaction manager alone commits | `manager.rs` |
//!
//! A transaction is ten row operations, half of which write a row and half read one, drawn at random. What it
//! writes stays with the client until it commits.

mod clients;
mod failure;
mod figure;
mod interval;
mod ledger;
mod manager;
mod persistence;
mod store;
mod watch;

use crate::cluster::Target;
use crate::error::BenchError;
use crate::gleambook::{Goal, Point, Progress, Shape, Table};
use crate::options::Common;
use crate::report::Machine;
use crate::stats::{Spread, tidy};
use crate::subject::Series;
use clients::Mix;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// Experiments, in the order in which they run.
pub const TXN_EXPERIMENTS: [&str; 4] = ["persistence", "interval", "failure", "manager"];

/// Rows of the document's table, and here unless something else is asked for.
const PAPER_ROWS: u64 = 500_000;
const ROWS: u64 = 50_000;
/// What the document keeps in each heartbeat's turn, in milliseconds, at its ends.
const PAPER_INTERVALS: [u64; 8] = [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];
const INTERVALS: [u64; 4] = [50, 200, 1_000, 10_000];

/// Options of `bench txn`.
#[derive(Clone, Debug)]
pub struct TxnOptions {
    /// Options of every bench. `seconds` is the length of a round.
    pub common: Common,
    /// The program to run, and settings over the experiments' own.
    pub target: Target,
    /// `--rows N`; none: 50,000, and with `--paper` half a million.
    pub rows: Option<u64>,
    /// `--value-bytes N` of a row.
    pub value_bytes: usize,
    /// `--clients N,N,...`: the last one is what all experiments but the first use.
    pub clients: Vec<u32>,
    /// `--servers N,N,...`: the first one is what all experiments but the first use.
    pub servers: Vec<u32>,
    /// `--factor N`: copies; none: one on each server, at most three.
    pub factor: Option<u8>,
    /// `--partitions N` of the database.
    pub partitions: u32,
    /// `--operations N` of a transaction.
    pub operations: u32,
    /// `--updates N` of a hundred of them.
    pub updates: u8,
    /// `--intervals MS,MS,...`; empty: some, and with `--paper` more.
    pub intervals: Vec<u64>,
    /// `--rate N`: transactions a second while a server fails.
    pub rate: f64,
    /// `--write-set-bytes N`: what the manager alone is asked to commit.
    pub write_set_bytes: usize,
    /// `--flying N`: how much of that is on its way at once.
    pub flying: u32,
    /// `--check`: what was acknowledged is compared with the rows behind every experiment. Behind a failure
    /// it always is.
    pub check: bool,
    /// `--paper`: sizes and times as in the document.
    pub paper: bool,
}

impl Default for TxnOptions {
    fn default() -> TxnOptions {
        TxnOptions {
            common: Common { rounds: 3, seconds: 2.0, ..Common::default() },
            target: Target::default(),
            rows: None,
            value_bytes: 100,
            clients: vec![1, 10, 25, 50],
            servers: vec![2, 3],
            factor: None,
            partitions: 6,
            operations: 10,
            updates: 50,
            intervals: Vec::new(),
            rate: 250.0,
            write_set_bytes: 200,
            flying: 64,
            check: false,
            paper: false,
        }
    }
}

impl TxnOptions {
    fn check(&self) -> Result<(), BenchError> {
        self.common.check(&TXN_EXPERIMENTS)?;
        let usage = |sentence: &str| Err(BenchError::Usage(sentence.into()));
        if !(100..=10_000_000).contains(&self.rows()) {
            return usage("a table has 100 to 10000000 rows here");
        }
        if !(16..=100_000).contains(&self.value_bytes) || !(80..=100_000).contains(&self.write_set_bytes) {
            return usage("a value has 16 to 100000 bytes here, and a write-set of the manager 80 to 100000");
        }
        if self.clients.is_empty() || self.clients.iter().chain([&self.flying]).any(|clients| *clients == 0) {
            return usage("clients, and what is on its way to the manager, are at least 1");
        }
        if self.servers.is_empty() || self.servers.iter().any(|servers| !(1..=9).contains(servers)) {
            return usage("servers are 1 to 9");
        }
        if !(1..=64).contains(&self.partitions) || !(1..=1_000).contains(&self.operations) {
            return usage("partitions are 1 to 64, and operations of a transaction 1 to 1000");
        }
        if self.intervals().iter().any(|ms| !(10..=3_600_000).contains(ms)) {
            return usage("intervals are 10 to 3600000 milliseconds");
        }
        if !(self.rate.is_finite() && self.rate >= 1.0 && self.rate <= 1e6) {
            return usage("1 to 1000000 transactions a second are offered");
        }
        match self.updates <= 100 {
            true => Ok(()),
            false => usage("updates are percent of the operations"),
        }
    }

    fn rows(&self) -> u64 {
        self.rows.unwrap_or(if self.paper { PAPER_ROWS } else { ROWS })
    }

    fn intervals(&self) -> Vec<u64> {
        match (self.intervals.is_empty(), self.paper) {
            (false, _) => self.intervals.clone(),
            (true, true) => PAPER_INTERVALS.to_vec(),
            (true, false) => INTERVALS.to_vec(),
        }
    }

    fn mix(&self) -> Mix {
        Mix { operations: self.operations, updates: self.updates, rows: self.rows() }
    }

    /// How many clients all experiments but the first have.
    fn most_clients(&self) -> u32 {
        self.clients.last().copied().unwrap_or(1)
    }

    /// How many servers all experiments but the first have.
    fn first_servers(&self) -> u32 {
        self.servers.first().copied().unwrap_or(2)
    }

    /// What every point says of its settings.
    fn in_json(&self) -> Value {
        json!({
            "rows": self.rows(), "value_bytes": self.value_bytes, "partitions": self.partitions,
            "operations": self.operations, "update_percent": self.updates,
        })
    }
}

/// What the experiments share.
struct Run<'a> {
    options: &'a TxnOptions,
    machine: Machine,
    progress: &'a mut dyn Write,
    tell: &'a mut dyn FnMut(Progress<'_>),
    points: Vec<Point>,
}

impl Run<'_> {
    /// Progress is a courtesy: a closed standard error does not stop the bench.
    fn say(&mut self, text: &str) {
        let _ = writeln!(self.progress, "{text}");
    }

    fn point(&self, shape: &Shape, (at, series): (String, String), value: &[f64], figures: Value) -> Point {
        let mut all = self.options.in_json();
        let (Value::Object(own), Value::Object(settings)) = (figures, &mut all) else {
            panic!("figures are objects")
        };
        settings.extend(own);
        Point {
            bench: "txn",
            name: shape.name,
            at,
            series,
            rounds: value.len(),
            unit: shape.unit,
            value: Spread::of(value.iter().copied()),
            increase_percent: None,
            figures: settings.clone(),
            goals: Vec::new(),
            machine: self.machine.clone(),
        }
    }

    fn done(&mut self, point: Point) {
        for goal in &point.goals {
            let words = format!("  {}, {}: {}", point.at, point.series, goal.in_words());
            self.say(&words);
        }
        (self.tell)(Progress::Point(&point));
        self.points.push(point);
    }

    /// Prints an experiment's table.
    fn finish(&mut self, shape: &Shape) {
        let points: Vec<Point> =
            self.points.iter().filter(|point| point.name == shape.name).cloned().collect();
        (self.tell)(Progress::Table(&Table::of(shape, &points)));
    }
}

/// What a series says beside its throughput. Times are milliseconds.
fn figures_of(series: &Series) -> Value {
    let all = |of: fn(&crate::subject::Round) -> f64| {
        crate::stats::median(&series.rounds.iter().map(of).collect::<Vec<_>>()).map(tidy)
    };
    let ms = |quantile: f64| tidy(series.latencies.value_at_quantile(quantile) as f64 / 1e6);
    let fsyncs: Option<Vec<f64>> = series.rounds.iter().map(|round| round.ops_per_fsync).collect();
    json!({
        "p50_ms": ms(0.5), "p99_ms": ms(0.99), "mean_ms": tidy(series.latencies.mean() / 1e6),
        "cpu_us_per_txn": all(|round| round.cpu_us_per_op),
        "txn_per_fsync": fsyncs.and_then(|fsyncs| crate::stats::median(&fsyncs)).map(tidy),
        "cpu_share": all(|round| round.cpu_share), "other_cpu_share": all(|round| round.other_cpu_share),
    })
}

/// Throughputs of all rounds.
fn rates(series: &Series) -> Vec<f64> {
    series.rounds.iter().map(|round| round.ops_s).collect()
}

fn ms(time: Duration) -> f64 {
    tidy(time.as_secs_f64() * 1_000.0)
}

/// Runs `bench txn`. What was measured is told at once; the points are returned in the order in which they
/// came.
pub fn txn(
    options: &TxnOptions,
    progress: &mut dyn Write,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Point>, BenchError> {
    options.check()?;
    let machine = Machine::here(&options.common.base_dir());
    let mut run = Run { options, machine, progress, tell, points: Vec::new() };
    for (name, experiment) in [
        ("persistence", persistence::measure as fn(&mut Run) -> Result<(), BenchError>),
        ("interval", interval::measure),
        ("failure", failure::measure),
        ("manager", manager::measure),
    ] {
        if options.common.wants(name) {
            run.options.common.goes_on()?;
            run.say(&format!("txn: {name}"));
            experiment(&mut run)?;
        }
    }
    Ok(run.points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_before_anything_starts() {
        let refused = |options: TxnOptions| {
            let ended = txn(&options, &mut std::io::sink(), &mut |_| ()).expect_err("refused");
            assert_eq!(ended.exit_status(), 2);
            ended.to_string()
        };
        let default = TxnOptions::default;
        assert!(refused(TxnOptions { rows: Some(5), ..default() }).contains("100 to 10000000 rows"));
        assert!(refused(TxnOptions { clients: vec![0], ..default() }).contains("at least 1"));
        assert!(refused(TxnOptions { servers: vec![], ..default() }).contains("1 to 9"));
        assert!(refused(TxnOptions { value_bytes: 7, ..default() }).contains("16 to 100000 bytes"));
        assert!(refused(TxnOptions { intervals: vec![1], ..default() }).contains("10 to 3600000"));
        assert!(refused(TxnOptions { rate: 0.0, ..default() }).contains("offered"));
        let only = Common { only: vec!["figure".into()], ..default().common };
        assert!(refused(TxnOptions { common: only, ..default() }).contains("choose from persistence, "));
    }

    #[test]
    fn the_documents_sizes_are_taken_on_request_and_give_way_to_what_is_said() {
        let paper = TxnOptions { paper: true, ..TxnOptions::default() };
        assert_eq!((paper.rows(), paper.intervals().len()), (500_000, 8));
        assert_eq!(TxnOptions { rows: Some(700), ..paper }.rows(), 700);
        assert_eq!(TxnOptions::default().rows(), 50_000);
    }
}
