//! `bench gleambook`: the experiments of the AsterixDB replication document (chapter 5), on its data, at a
//! scale that one machine goes through in minutes.
//!
//! | experiment | figure | file |
//! | --- | --- | --- |
//! | `bulk-by-factor` | 5.1 | `bulk.rs` |
//! | `ingestion-by-factor` | 5.2 | `ingestion.rs` |
//! | `query-by-factor` | 5.3 | `query.rs` |
//! | `failover` | 5.4 | `failover.rs` |
//! | `ingestion-by-memory` | 5.5 | `ingestion.rs` |
//! | `failover-by-checkpoint` | 5.6 | `failover.rs` |
//! | `failback` | 5.7 | `failback.rs` |
//! | `moves` | none | `moves.rs` |
//!
//! The document's cluster has six nodes with a disk each for log and data, 7.8 GB of records at most and
//! memory components of 1 GB or 100 MB. Here three nodes share two processors and a disk, so sizes are kept
//! in the document's proportions to the largest data set ([`GleambookOptions::records`]), and increases and
//! ratios are what can be compared.

mod bulk;
mod failback;
mod failover;
mod figure;
mod ingestion;
mod moves;
mod point;
mod query;
mod stage;
mod users;

pub use point::{Goal, Point, Shape, Table};

use crate::cluster::Target;
use crate::error::BenchError;
use crate::options::Common;
use crate::report::Machine;
use crate::stats::Spread;
use serde_json::{Map, Value};
use std::io::Write;
use types::policy::Standby;
use users::Users;

/// Experiments, in the order in which they run.
pub const EXPERIMENTS: [&str; 8] = [
    "bulk-by-factor",
    "ingestion-by-factor",
    "query-by-factor",
    "failover",
    "ingestion-by-memory",
    "failover-by-checkpoint",
    "failback",
    "moves",
];

/// The document's data sets, in millions of records: here in twentieths of the largest one.
pub const SIZES: [u64; 5] = [1, 5, 10, 15, 20];

/// Records of the largest data set, unless something else is asked for: with three copies some 100 MB of log
/// on each of three nodes.
pub const RECORDS: u64 = 260_000;

/// Options of `bench gleambook`.
#[derive(Clone, Debug)]
pub struct GleambookOptions {
    /// Options of every bench. `only` names experiments in full; `seconds` is the length of a round where
    /// rounds have one.
    pub common: Common,
    /// The program to run, and settings over the experiments' own.
    pub target: Target,
    /// `--records N`: records of the largest data set; the others have the document's proportions to it.
    pub records: u64,
    /// `--sizes N,N,...`: data sets, in twentieths of the largest.
    pub sizes: Vec<u64>,
    /// `--partitions N` of each table, spread over three nodes.
    pub partitions: u32,
    /// `--moves N`: copies that are moved.
    pub moves: u32,
    /// `--standby cold|hot`: what backups do, where an experiment does not compare both. The document's are
    /// cold.
    pub standby: Standby,
}

impl Default for GleambookOptions {
    fn default() -> GleambookOptions {
        GleambookOptions {
            common: Common { rounds: 3, seconds: 2.0, ..Common::default() },
            target: Target::default(),
            records: RECORDS,
            sizes: SIZES.to_vec(),
            partitions: 6,
            moves: 50,
            standby: Standby::Cold,
        }
    }
}

/// The document's largest data set in units of its larger and its smaller memory component.
const LARGE: f64 = 7.8;
const SMALL: f64 = 78.0;

impl GleambookOptions {
    fn check(&self) -> Result<(), BenchError> {
        let usage = |sentence: String| Err(BenchError::Usage(sentence));
        if let Some(other) = self.common.only.iter().find(|name| !EXPERIMENTS.contains(&name.as_str())) {
            return usage(format!(
                "there is no experiment '{other}'; choose from {}",
                EXPERIMENTS.join(", ")
            ));
        }
        if !(100..=100_000_000).contains(&self.records) {
            return usage(format!("the largest data set has 100 to 100000000 records, not {}", self.records));
        }
        if self.sizes.is_empty() || self.sizes.iter().any(|size| !(1..=20).contains(size)) {
            return usage("sizes are twentieths of the largest data set, 1 to 20".into());
        }
        if !(1..=10_000).contains(&self.moves) {
            return usage(format!("1 to 10000 copies are moved, not {}", self.moves));
        }
        if !(1..=64).contains(&self.partitions) {
            return usage(format!("a table has 1 to 64 partitions here, not {}", self.partitions));
        }
        Common { only: Vec::new(), ..self.common.clone() }.check(&EXPERIMENTS)
    }

    fn wants(&self, name: &str) -> bool {
        self.common.only.is_empty() || self.common.only.iter().any(|only| only == name)
    }

    /// Records of the data sets that are wanted.
    fn data_sets(&self) -> Vec<u64> {
        self.sizes.iter().map(|size| self.part(*size)).collect()
    }

    /// Rounds with a data set of so many records: half as many for those that are not the largest.
    fn rounds(&self, records: u64) -> u32 {
        if records == self.records { self.common.rounds } else { self.common.rounds.div_ceil(2) }
    }

    /// Records of so many twentieths of the largest data set.
    fn part(&self, size: u64) -> u64 {
        (self.records * size / SIZES[SIZES.len() - 1]).max(1)
    }

    /// What a node's memory component holds, of `parts` in the largest data set.
    fn memory(&self, parts: f64) -> Memory {
        let of_node = (self.records * users::RECORD_BYTES) as f64 / parts;
        // A node leads a third of the partitions.
        let of_partition = of_node * f64::from(NODES) / f64::from(self.partitions.max(NODES));
        Memory { of_node: of_node as u64, of_partition: of_partition as u64 }
    }
}

/// Nodes of the experiments' clusters.
const NODES: u32 = 3;

/// The size of memory components, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Memory {
    /// Of all partitions that a node leads.
    of_node: u64,
    /// Of one of them.
    of_partition: u64,
}

/// What a run tells, as soon as it is there.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A configuration was measured.
    Point(&'a Point),
    /// So was a whole experiment.
    Table(&'a Table),
}

/// What the experiments share.
struct Run<'a> {
    options: &'a GleambookOptions,
    users: Users,
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

    fn point(&self, shape: &Shape, at: String, series: String, value: &[f64], figures: Value) -> Point {
        let Value::Object(figures) = figures else { panic!("figures are an object: {figures}") };
        let figures: Map<String, Value> =
            figures.into_iter().map(|(name, value)| (name, tidied(value))).collect();
        Point {
            bench: "gleambook",
            name: shape.name,
            at,
            series,
            rounds: value.len(),
            unit: shape.unit,
            value: Spread::of(value.iter().copied()),
            increase_percent: None,
            figures,
            goals: Vec::new(),
            machine: self.machine.clone(),
        }
    }

    fn done(&mut self, point: Point) {
        (self.tell)(Progress::Point(&point));
        self.points.push(point);
    }

    /// Prints an experiment's table and draws its figure.
    fn finish(&mut self, shape: &Shape) -> Result<(), BenchError> {
        let points: Vec<Point> =
            self.points.iter().filter(|point| point.name == shape.name).cloned().collect();
        (self.tell)(Progress::Table(&Table::of(shape, &points)));
        figure::write(&self.options.common, shape, &points)
    }
}

/// Fractions with four digits.
fn tidied(value: Value) -> Value {
    match value.as_f64() {
        Some(figure) if value.is_f64() => crate::stats::tidy(figure).into(),
        _ => value,
    }
}

/// How much more in percent, round by round.
fn increase(figures: &[f64], base: &[f64]) -> Option<Spread> {
    Spread::of(figures.iter().zip(base).map(|(figure, base)| (figure / base - 1.0) * 100.0))
}

/// A number of records for people: `200k`.
fn records_in_words(records: u64) -> String {
    match records {
        whole if whole >= 10_000 && whole % 1_000 == 0 => format!("{}k", whole / 1_000),
        other => other.to_string(),
    }
}

/// A number of bytes for people.
fn bytes_in_words(bytes: u64) -> String {
    match bytes {
        large if large >= 10_000_000 => format!("{} MB", large / 1_000_000),
        middle if middle >= 100_000 => format!("{:.1} MB", middle as f64 / 1e6),
        small => format!("{} kB", small.div_ceil(1_000)),
    }
}

/// Runs `bench gleambook`. What was measured is told at once; the points are returned in the order in which
/// they came.
pub fn gleambook(
    options: &GleambookOptions,
    progress: &mut dyn Write,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Point>, BenchError> {
    options.check()?;
    let machine = Machine::here(&options.common.base_dir());
    let _ = writeln!(progress, "gleambook: making up {} records", options.records);
    let users = Users::new(options.common.seed, options.records);
    let mut run = Run { options, users, machine, progress, tell, points: Vec::new() };
    for (name, experiment) in [
        ("bulk-by-factor", bulk::by_factor as fn(&mut Run) -> Result<(), BenchError>),
        ("ingestion-by-factor", ingestion::by_factor),
        ("query-by-factor", query::by_factor),
        ("failover", failover::by_size),
        ("ingestion-by-memory", ingestion::by_memory),
        ("failover-by-checkpoint", failover::by_checkpoint),
        ("failback", failback::failback),
        ("moves", moves::moves),
    ] {
        if options.wants(name) {
            run.say(&format!("gleambook: {name}"));
            experiment(&mut run)?;
        }
    }
    Ok(run.points)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: GleambookOptions) -> String {
        let ended = gleambook(&options, &mut std::io::sink(), &mut |_| ()).expect_err("refused");
        assert_eq!(ended.exit_status(), 2);
        ended.to_string()
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_starts() {
        let default = GleambookOptions::default;
        let only = |name: &str| Common { only: vec![name.into()], ..default().common };
        let unknown = refused(GleambookOptions { common: only("ingestion"), ..default() });
        assert!(unknown.starts_with("there is no experiment 'ingestion'; choose from bulk-by-factor, "));
        assert!(refused(GleambookOptions { records: 99, ..default() }).contains("100 to 100000000 records"));
        assert!(refused(GleambookOptions { sizes: vec![1, 21], ..default() }).contains("1 to 20"));
        assert!(refused(GleambookOptions { partitions: 0, ..default() }).contains("1 to 64 partitions"));
        assert!(refused(GleambookOptions { moves: 0, ..default() }).contains("1 to 10000 copies"));
        let rounds = Common { rounds: 0, ..default().common };
        assert!(refused(GleambookOptions { common: rounds, ..default() }).contains("round"));
    }

    #[test]
    fn sizes_and_memory_keep_the_documents_proportions() {
        let options = GleambookOptions { records: 200_000, ..GleambookOptions::default() };
        assert_eq!(options.data_sets(), [10_000, 50_000, 100_000, 150_000, 200_000]);
        let (large, small) = (options.memory(LARGE), options.memory(SMALL));
        assert_eq!(large.of_node, 200_000 * 384 * 10 / 78);
        assert_eq!((large.of_node / 2, small.of_node), (large.of_partition, large.of_node / 10));
        let one = GleambookOptions { partitions: 1, ..options };
        assert_eq!(one.memory(LARGE).of_partition, large.of_node);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(records_in_words(200_000), "200k");
        assert_eq!(records_in_words(1_500), "1500");
        assert_eq!(bytes_in_words(98_461), "99 kB");
        assert_eq!(bytes_in_words(984_615), "1.0 MB");
        assert_eq!(bytes_in_words(128_000_000), "128 MB");
    }

    #[test]
    fn increases_are_taken_round_by_round() {
        let increase = increase(&[2.2, 5.5], &[2.0, 5.0]).expect("two rounds");
        assert_eq!((increase.median, increase.rounds.len()), (10.0, 2));
    }
}
