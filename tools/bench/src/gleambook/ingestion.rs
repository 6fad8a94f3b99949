//! How long ingestion takes: by the number of copies (figure 5.2), and by the size of memory components
//! (figure 5.5).

use super::point::{Goal, Shape};
use super::stage::{BenchCluster, Counts, ingest};
use super::{LARGE, Memory, NODES, Run, SMALL, bytes_in_words, increase, records_in_words};
use crate::error::BenchError;
use crate::stats::median;
use serde_json::json;
use std::time::Duration;
use types::policy::Standby;

const COLUMNS: &[(&str, &str)] = &[
    ("records_per_s", "records/s"),
    ("cpu_us_per_record", "CPU us/record"),
    ("cluster_cpu_us_per_record", "of it nodes"),
    ("network_bytes_per_record", "network B/record"),
    ("log_bytes_per_record", "log B/record"),
    ("files_bytes_per_record", "shipped B/record"),
    ("components", "components"),
    ("node_peak_bytes", "peak of a node, B"),
    ("copies", "copies"),
];

/// Figure 5.2.
pub(super) const BY_FACTOR: Shape = Shape {
    name: "ingestion-by-factor",
    title: "ingestion with different replication factors (figure 5.2)",
    across: "records",
    unit: "seconds",
    columns: COLUMNS,
};

/// Figure 5.5.
pub(super) const BY_MEMORY: Shape = Shape {
    name: "ingestion-by-memory",
    title: "ingestion with different memory component sizes, factor 3 (figure 5.5)",
    across: "records",
    unit: "seconds",
    columns: COLUMNS,
};

/// Copies of a table.
pub(super) const FACTORS: [u8; 3] = [1, 2, 3];
/// The most processor time per record with three copies, in that with one.
const CPU_GOAL: f64 = 1.6;
/// The most memory in bytes of a node with a gigabyte of records, beyond its memory components.
const MEMORY_GOAL: f64 = 512e6;
/// What such a node has at least.
const GIGABYTE: f64 = 1e9;
/// The most bytes between nodes, in (copies - 1) times log and components.
const NETWORK_GOAL: f64 = 1.1;

/// One ingestion.
#[derive(Clone, Copy, Debug)]
struct Once {
    took: Duration,
    /// Until the last component was made and shipped.
    cost: Counts,
    copies: usize,
    /// The most memory that a node had meanwhile, in bytes.
    peak: Option<u64>,
}

/// All rounds of one configuration.
struct Config {
    records: u64,
    factor: u8,
    standby: Standby,
    memory: Memory,
    rounds: Vec<Once>,
}

impl Config {
    fn seconds(&self) -> Vec<f64> {
        self.rounds.iter().map(|once| once.took.as_secs_f64()).collect()
    }

    /// The median over rounds of a counter, per record.
    fn per_record(&self, counter: impl Fn(Counts) -> u64) -> f64 {
        let all: Vec<f64> =
            self.rounds.iter().map(|once| counter(once.cost) as f64 / self.records as f64).collect();
        median(&all).unwrap_or(0.0)
    }

    /// Bytes of one log, and of the components that one backup got.
    fn once(&self) -> (f64, f64) {
        let backups = f64::from(self.factor - 1);
        let log = self.per_record(|counts| counts.log) / f64::from(self.factor);
        (log, if backups > 0.0 { self.per_record(|counts| counts.files) / backups } else { 0.0 })
    }

    /// The most memory that a node had, in bytes.
    fn peak(&self) -> Option<u64> {
        self.rounds.iter().filter_map(|once| once.peak).max()
    }

    /// Bytes of the records that a node holds.
    fn held(&self) -> f64 {
        let records = self.records * super::users::RECORD_BYTES;
        records as f64 * f64::from(self.factor) / f64::from(NODES)
    }

    /// Where a node has a gigabyte: its memory beyond what memory components may take.
    fn memory_goal(&self) -> Option<Goal> {
        let beyond = self.peak()?.saturating_sub(self.memory.of_node) as f64;
        let what =
            "peak memory in bytes of a node with a gigabyte, memory components left out, caches included";
        (self.held() >= GIGABYTE).then(|| Goal::at_most(what, beyond, MEMORY_GOAL))
    }

    /// Bytes between nodes, in what must cross: log and components, once for each backup.
    fn network_ratio(&self) -> Option<f64> {
        let (log, files) = self.once();
        let must = (log + files) * f64::from(self.factor - 1);
        (must > 0.0).then(|| self.per_record(Counts::between_nodes) / must)
    }
}

impl Run<'_> {
    fn ingest_once(&mut self, stage: &mut BenchCluster, config: &Config) -> Result<Once, BenchError> {
        self.options.common.goes_on()?;
        let table = stage.table(config.factor, self.options.partitions, config.standby)?;
        stage.copies(&table, config.factor.into(), Duration::from_secs(10))?;
        stage.forget_peak();
        let before = stage.counts()?;
        let took = ingest(&mut stage.client, &table, &self.users, 0..config.records)?;
        stage.settle()?;
        let cost = stage.counts()?.since(before);
        let copies = stage.copies(&table, 0, Duration::ZERO)?;
        let peak = stage.peak();
        stage.drop_table(&table)?;
        let once = Once { took, cost, copies, peak };
        self.say(&format!(
            "  {} records, factor {}, {} memory: {:.2} s, {:.1} us cpu per record",
            records_in_words(config.records),
            config.factor,
            bytes_in_words(config.memory.of_node),
            took.as_secs_f64(),
            cost.cpu_us() as f64 / config.records as f64,
        ));
        Ok(once)
    }

    fn ingested(&self, shape: &Shape, series: String, config: &Config) -> super::Point {
        let (log, files) = config.once();
        let at = records_in_words(config.records);
        let seconds = config.seconds();
        let fewest = config.rounds.iter().map(|once| once.copies).min();
        let figures = json!({
            "records": config.records,
            "data_bytes": config.records * super::users::RECORD_BYTES,
            "factor": config.factor,
            "standby": if config.factor > 1 { Some(config.standby) } else { None },
            "memory_bytes_per_node": config.memory.of_node,
            "partitions": self.options.partitions,
            "records_per_s": median(&seconds).map(|took| config.records as f64 / took),
            "cpu_us_per_record": config.per_record(Counts::cpu_us),
            "cluster_cpu_us_per_record": config.per_record(|counts| counts.cluster_us),
            "network_bytes_per_record": config.per_record(Counts::between_nodes),
            "log_bytes_per_record": log,
            "files_bytes_per_record": files,
            "network_ratio": config.network_ratio(),
            "components": config.per_record(|counts| counts.flushes) * config.records as f64,
            "copies": fewest,
            "node_peak_bytes": config.peak(),
            "node_record_bytes": config.held(),
        });
        let mut point = self.point(shape, at, series, &seconds, figures);
        point.goals.extend(config.memory_goal());
        point
    }
}

/// `ingestion-by-factor`: all factors of a size in turn, on one cluster.
pub(super) fn by_factor(run: &mut Run) -> Result<(), BenchError> {
    let memory = run.options.memory(LARGE);
    let standby = run.options.standby;
    let (common, target) = (&run.options.common, &run.options.target);
    let mut stage = BenchCluster::start(common, target, NODES, Some(memory.of_partition), &[])?;
    for records in run.options.data_sets() {
        let config = |factor| Config { records, factor, standby, memory, rounds: Vec::new() };
        let mut configs = FACTORS.map(config);
        for _ in 0..run.options.rounds(records) {
            for config in &mut configs {
                let once = run.ingest_once(&mut stage, config)?;
                config.rounds.push(once);
            }
        }
        for config in &configs {
            let mut point = run.ingested(&BY_FACTOR, format!("factor {}", config.factor), config);
            if config.factor > 1 {
                point.increase_percent = increase(&config.seconds(), &configs[0].seconds());
                let cpu = config.per_record(Counts::cpu_us) / configs[0].per_record(Counts::cpu_us);
                point.figures.insert("cpu_ratio".into(), crate::stats::tidy(cpu).into());
                let largest = records == run.options.records;
                if config.factor == 3 && largest {
                    point.goals.push(Goal::at_most("CPU per record over that of factor 1", cpu, CPU_GOAL));
                }
                if let Some(ratio) = config.network_ratio().filter(|_| largest) {
                    let what = "bytes between nodes over log and components of the backups";
                    point.goals.push(Goal::at_most(what, ratio, NETWORK_GOAL));
                }
            }
            run.done(point);
        }
    }
    run.finish(&BY_FACTOR)
}

/// `ingestion-by-memory`: a cluster for each size, used in turn.
pub(super) fn by_memory(run: &mut Run) -> Result<(), BenchError> {
    let memories = [run.options.memory(LARGE), run.options.memory(SMALL)];
    let (common, target) = (&run.options.common, &run.options.target);
    let start = |memory: Memory| BenchCluster::start(common, target, NODES, Some(memory.of_partition), &[]);
    let mut stages = [start(memories[0])?, start(memories[1])?];
    for records in run.options.data_sets() {
        let standby = run.options.standby;
        let config = |memory| Config { records, factor: 3, standby, memory, rounds: Vec::new() };
        let mut configs = memories.map(config);
        for _ in 0..run.options.rounds(records) {
            for (config, stage) in configs.iter_mut().zip(&mut stages) {
                let once = run.ingest_once(stage, config)?;
                config.rounds.push(once);
            }
        }
        for config in &configs {
            let series = format!("{} memory", bytes_in_words(config.memory.of_node));
            let mut point = run.ingested(&BY_MEMORY, series, config);
            let smaller = config.memory != memories[0];
            point.increase_percent =
                smaller.then(|| increase(&config.seconds(), &configs[0].seconds())).flatten();
            run.done(point);
        }
    }
    run.finish(&BY_MEMORY)
}
