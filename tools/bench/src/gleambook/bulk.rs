//! How long a bulk load takes, by the number of copies (figure 5.1): `understudy load --bulk` of a file with
//! a JSON object per line, so reading, parsing, sorting, building components and installing them on every
//! copy all count, as in the document.

use super::ingestion::FACTORS;
use super::point::{Goal, Shape};
use super::stage::{BenchCluster, Counts};
use super::{LARGE, NODES, Run, increase, records_in_words};
use crate::error::{BenchError, During};
use crate::procfs;
use crate::stats::median;
use client::Table;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Figure 5.1.
pub(super) const BY_FACTOR: Shape = Shape {
    name: "bulk-by-factor",
    title: "bulk load with different replication factors (figure 5.1)",
    across: "records",
    unit: "seconds",
    columns: &[
        ("records_per_s", "records/s"),
        ("cpu_us_per_record", "CPU us/record"),
        ("cluster_cpu_us_per_record", "of it nodes"),
        ("network_bytes_per_record", "network B/record"),
        ("log_bytes_per_record", "log B/record"),
        ("file_bytes_per_record", "files B/record"),
        ("copies", "copies"),
    ],
};

/// One load.
#[derive(Clone, Copy, Debug)]
struct Once {
    took: Duration,
    cost: Counts,
    /// Processor microseconds of the command.
    command_us: u64,
    file_bytes: u64,
    copies: usize,
}

struct Config {
    records: u64,
    factor: u8,
    rounds: Vec<Once>,
}

impl Config {
    fn seconds(&self) -> Vec<f64> {
        self.rounds.iter().map(|once| once.took.as_secs_f64()).collect()
    }

    fn per_record(&self, of: impl Fn(&Once) -> u64) -> f64 {
        let all: Vec<f64> = self.rounds.iter().map(|once| of(once) as f64 / self.records as f64).collect();
        median(&all).unwrap_or(0.0)
    }

    fn cpu(&self) -> f64 {
        self.per_record(|once| once.cost.cpu_us() + once.command_us)
    }
}

/// Writes the records as lines of JSON.
fn input(run: &Run, folder: &Path, records: u64) -> Result<PathBuf, BenchError> {
    let path = folder.join(format!("{records}.ndjson"));
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(&path)?);
        for id in 0..records {
            writeln!(file, "{}", run.users.line(id))?;
        }
        file.flush()
    };
    write().during(&format!("{} cannot be written", path.display()))?;
    Ok(path)
}

/// Runs the command to its end.
fn load(
    run: &Run,
    stage: &BenchCluster,
    table: &Table,
    file: &Path,
    folder: &Path,
) -> Result<Value, BenchError> {
    let binary = run.options.target.binary.clone().map_or_else(std::env::current_exe, Ok);
    let mut command = Command::new(binary.during("this program cannot be found")?);
    command.arg("load").arg(file).args(["--table", table.name(), "--bulk", "--json", "--timeout", "120s"]);
    command.args(["--connect", &stage.cluster.controllers().join(",")]).arg("--sort-dir").arg(folder);
    let output = command.stdin(Stdio::null()).output().during("`understudy load` cannot be run")?;
    match serde_json::from_slice(&output.stdout) {
        Ok(report) if output.status.success() => Ok(report),
        _ => {
            let words = String::from_utf8_lossy(&output.stderr);
            let last = words.lines().last().unwrap_or("it said nothing");
            Err(BenchError::Wrong(format!("`understudy load --bulk` failed: {last}")))
        }
    }
}

fn once(
    run: &mut Run,
    stage: &mut BenchCluster,
    config: &Config,
    file: &Path,
    folder: &Path,
) -> Result<Once, BenchError> {
    run.options.common.goes_on()?;
    let table = stage.table(config.factor, run.options.partitions, run.options.standby)?;
    stage.copies(&table, config.factor.into(), Duration::from_secs(10))?;
    let (before, reaped, begun) = (stage.counts()?, procfs::reaped_cpu_us(), Instant::now());
    let report = load(run, stage, &table, file, folder)?;
    let (took, command_us) = (begun.elapsed(), procfs::reaped_cpu_us().saturating_sub(reaped));
    stage.settle()?;
    let cost = stage.counts()?.since(before);
    let counted = stage.client.count(&table)?;
    if counted != config.records {
        return Err(BenchError::Wrong(format!("{counted} of {} records were loaded", config.records)));
    }
    let copies = stage.copies(&table, 0, Duration::ZERO)?;
    stage.drop_table(&table)?;
    run.say(&format!(
        "  {} records, factor {}: {:.2} s",
        records_in_words(config.records),
        config.factor,
        took.as_secs_f64(),
    ));
    let file_bytes = report["file_bytes"].as_u64().unwrap_or(0);
    Ok(Once { took, cost, command_us, file_bytes, copies })
}

/// `bulk-by-factor`: all factors of a size in turn, on one cluster.
pub(super) fn by_factor(run: &mut Run) -> Result<(), BenchError> {
    let memory = run.options.memory(LARGE);
    let (common, target) = (&run.options.common, &run.options.target);
    let folder = common.folder("gleambook-input")?;
    let mut stage = BenchCluster::start(common, target, NODES, Some(memory.of_partition), &[])?;
    for records in run.options.data_sets() {
        let file = input(run, folder.path(), records)?;
        let mut configs = FACTORS.map(|factor| Config { records, factor, rounds: Vec::new() });
        for _ in 0..run.options.rounds(records) {
            for config in &mut configs {
                let once = once(run, &mut stage, config, &file, folder.path())?;
                config.rounds.push(once);
            }
        }
        std::fs::remove_file(&file).during("an input file cannot be removed")?;
        for config in &configs {
            let mut point = told(run, config);
            if config.factor > 1 {
                point.increase_percent = increase(&config.seconds(), &configs[0].seconds());
                let must = config.per_record(|once| once.file_bytes) * f64::from(config.factor);
                if must > 0.0 && records == run.options.records {
                    // Built outside of the nodes: every copy is sent the files.
                    let network = config.per_record(|once| once.cost.between_nodes());
                    let what = "bytes between nodes over the files of the backups";
                    let backups = must * f64::from(config.factor - 1) / f64::from(config.factor);
                    point.goals.push(Goal::at_most(what, network / backups, 1.1));
                }
            }
            run.done(point);
        }
    }
    run.finish(&BY_FACTOR)
}

fn told(run: &Run, config: &Config) -> super::Point {
    let seconds = config.seconds();
    let figures = json!({
        "records": config.records,
        "data_bytes": config.records * super::users::RECORD_BYTES,
        "factor": config.factor,
        "standby": if config.factor > 1 { Some(run.options.standby) } else { None },
        "partitions": run.options.partitions,
        "records_per_s": median(&seconds).map(|took| config.records as f64 / took),
        "cpu_us_per_record": config.cpu(),
        "cluster_cpu_us_per_record": config.per_record(|once| once.cost.cluster_us),
        "network_bytes_per_record": config.per_record(|once| once.cost.between_nodes()),
        "log_bytes_per_record": config.per_record(|once| once.cost.log) / f64::from(config.factor),
        "file_bytes_per_record": config.per_record(|once| once.file_bytes),
        "copies": config.rounds.iter().map(|once| once.copies).min(),
    });
    let (at, series) = (records_in_words(config.records), format!("factor {}", config.factor));
    run.point(&BY_FACTOR, at, series, &seconds, figures)
}
