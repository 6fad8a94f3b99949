//! `load --bulk`: the rows are sorted on disk, written into files of the table's engine once, staged on every copy of their
//! partitions, and become part of each partition's state at one position (PR-39).
//!
//! Nothing of the load can be seen before the files of *all* partitions are at all copies. From then on it is per partition: each
//! one has all of its rows or none, and a report says which have it. Loading the file again is safe: every row takes the place
//! of itself.

mod send;
mod sort;

pub use send::SendState;

use crate::badrows::BadRows;
use crate::failure::Failure;
use crate::load::{LoadPlan, OnBad, Watcher, header, open};
use crate::port::Port;
use client::table::Table;
use input::{Item, Reader};
use send::Sending;
use serde::Serialize;
use sort::{Sortable, Sorter};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::engine::space;
use types::{Component, EngineKind, LoadId, LogKind, PartitionId};

/// Between two looks at whether to stop.
const LOOK_EVERY: u64 = 256;
/// Copies that are slower to take the files in are not waited for.
const INSTALLED: Duration = Duration::from_secs(120);

/// What a bulk load may use.
#[derive(Clone, Debug)]
pub struct Means {
    /// Memory for sorting, in bytes.
    pub memory: usize,
    /// Where sorted rows and files are kept meanwhile.
    pub dir: PathBuf,
}

/// Rows of one partition.
#[derive(Debug)]
pub struct Part {
    partition: PartitionId,
    rows: u64,
    /// Its files, in order.
    files: Vec<(Component, PathBuf)>,
}

/// What became of a partition.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PartReport {
    /// The partition.
    pub partition: PartitionId,
    /// Rows of the load that belong to it.
    pub rows: u64,
    /// `loaded`, `not loaded` or `unknown`.
    pub state: &'static str,
    /// The position from which on it has them.
    pub lsn: Option<u64>,
    /// Its epoch.
    pub epoch: Option<u64>,
}

/// How a bulk load ended.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BulkReport {
    /// The table.
    pub table: String,
    /// Whether the load made it.
    pub created: bool,
    /// The load's name, as nodes report it.
    pub load: String,
    /// Rows loaded.
    pub rows: u64,
    /// Rows that were left out, as a later row of the input has their key.
    pub replaced: u64,
    /// Malformed rows left out.
    pub bad_rows: u64,
    /// Where they are.
    pub bad_rows_file: Option<PathBuf>,
    /// Bytes of keys and rows.
    pub bytes: u64,
    /// Bytes of the files.
    pub file_bytes: u64,
    /// Bytes of sorted rows that went to disk meanwhile.
    pub spilled_bytes: u64,
    /// Bytes of files that were sent to primaries.
    pub sent_bytes: u64,
    /// How long all of it took.
    pub seconds: f64,
    /// Rows per second of it.
    pub rows_per_second: f64,
    /// The policy under which the load is committed.
    pub policy: String,
    /// The fewest copies that an acknowledgement counted.
    pub copies: Option<u8>,
    /// True if every copy that counts has the load in its own files.
    pub installed: bool,
    /// Each partition that has rows of it.
    pub partitions: Vec<PartReport>,
}

/// Why a table of this kind cannot be loaded in bulk, as a failure.
pub fn check_engine(table: &str, engine: EngineKind, log: LogKind) -> Result<(), Failure> {
    if engine.ships_files() && log == LogKind::Disk {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "--bulk needs a table with the engine lsm and its log on disk, and `{table}` is none; load it without --bulk"
    )))
}

/// A directory that goes with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &Path, load: LoadId) -> Result<Scratch, Failure> {
        let path = dir.join(format!("understudy-load-{load}"));
        let made = std::fs::create_dir_all(dir).and_then(|()| std::fs::create_dir(&path));
        made.map_err(|error| Failure::io(format!("cannot make {}", path.display()), &error))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is a directory of temporary files with a name that says whose it is.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Loads the rows. The file was checked before if the rule is `abort`.
pub fn load<P: Port>(
    port: &mut P,
    table: &Table,
    plan: &LoadPlan,
    means: &Means,
    watcher: &mut dyn Watcher,
) -> Result<BulkReport, Failure> {
    let record = table.record();
    check_engine(table.name(), record.engine, record.log)?;
    let begun = Instant::now();
    let load = LoadId::from_random(RandomState::new().hash_one(std::process::id()));
    let scratch = Scratch::new(&means.dir, load)?;
    let mut bad_rows = match plan.on_bad {
        OnBad::Abort => BadRows::counted(),
        OnBad::Skip => BadRows::kept_in(&plan.bad_rows, header(plan)?)?,
    };
    let mut sorter = Sorter::new(&scratch.0, means.memory);
    let nothing = |failure: Failure| failure.and("nothing was loaded");
    let bytes = read(table, plan, &mut sorter, &mut bad_rows, watcher).map_err(nothing)?;
    let kept = bad_rows.finish()?;
    if let Some(rest) = bad_rows.rest() {
        watcher.say(&rest);
    }
    let spilled_bytes = sorter.spilled;
    let (parts, replaced) = build(table, &scratch.0, load, sorter, watcher).map_err(nothing)?;
    if replaced > 0 {
        watcher.say(&format!("{replaced} rows have the key of a later row, which takes their place"));
    }
    watcher.phase("sending", None);
    let mut sending = Sending::new(port, table, load, &parts);
    if let Err(failure) = sending.stage(watcher) {
        sending.give_up();
        return Err(nothing(failure));
    }
    let loaded = sending.load();
    let partitions = reports(&parts, &sending.states());
    if let Err(failure) = loaded {
        sending.give_up();
        return Err(failure.and(halfway(&partitions)));
    }
    let installed = sending.installed(INSTALLED)?;
    let copies = sending.states().into_iter().filter_map(|state| match state {
        SendState::Loaded(_, copies) => Some(copies),
        _ => None,
    });
    let (copies, sent_bytes) = (copies.min(), sending.sent);
    let rows: u64 = parts.iter().map(|part| part.rows).sum();
    let seconds = begun.elapsed().as_secs_f64().max(1e-6);
    Ok(BulkReport {
        table: table.name().to_string(),
        created: false,
        load: load.to_string(),
        rows,
        replaced,
        bad_rows: bad_rows.count(),
        bad_rows_file: kept,
        bytes,
        file_bytes: parts.iter().flat_map(|part| &part.files).map(|(file, _)| file.bytes).sum(),
        spilled_bytes,
        sent_bytes,
        seconds,
        rows_per_second: rows as f64 / seconds,
        policy: record.policy.name.clone(),
        copies,
        installed,
        partitions,
    })
}

/// Reads the file into the sorter. Gives the bytes of keys and rows.
fn read(
    table: &Table,
    plan: &LoadPlan,
    sorter: &mut Sorter,
    bad_rows: &mut BadRows,
    watcher: &mut dyn Watcher,
) -> Result<u64, Failure> {
    let mut reader: Reader = open(plan)?.reader(table.schema())?;
    watcher.phase("sorting", Some(reader.progress()));
    let first = table.record().first_partition.0;
    let mut bytes = 0;
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Row(record) => {
                let partition = table.partition_of(&record.key)?.0 - first;
                bytes += (record.key.len() + record.value.len()) as u64;
                let (key, index, row) = (record.key, record.index, record.value);
                sorter.add(Sortable { partition, key, index, row })?;
            }
            Item::Bad(bad) if plan.on_bad == OnBad::Abort => {
                return Err(Failure::failed(format!("the file changed while it was loaded: {bad}")));
            }
            Item::Bad(bad) => {
                if let Some(sentence) = bad_rows.take(&bad)? {
                    watcher.say(&sentence);
                }
            }
        }
        if reader.records().is_multiple_of(LOOK_EVERY) {
            watcher.rows(reader.records());
            if watcher.stopped() {
                return Err(Failure::failed("stopped"));
            }
        }
    }
    Ok(bytes)
}

/// Writes the files of all partitions that have rows.
fn build(
    table: &Table,
    dir: &Path,
    load: LoadId,
    sorter: Sorter,
    watcher: &mut dyn Watcher,
) -> Result<(Vec<Part>, u64), Failure> {
    watcher.phase("building", None);
    let first = table.record().first_partition.0;
    let mut sorted = sorter.sorted()?;
    let mut next = sorted.next().transpose()?;
    let mut parts: Vec<Part> = Vec::new();
    let mut built = 0;
    let mut failure = None;
    while failure.is_none()
        && let Some(partition) = next.as_ref().map(|row| row.partition)
    {
        let mut rows = 0;
        let of_partition = std::iter::from_fn(|| {
            let row = next.take_if(|row| row.partition == partition)?;
            next = sorted.next().transpose().unwrap_or_else(|error| {
                failure = Some(error);
                None
            });
            (rows, built) = (rows + 1, built + 1);
            if u64::is_multiple_of(built, LOOK_EVERY) {
                watcher.rows(built);
                if watcher.stopped() {
                    failure = Some(Failure::failed("stopped"));
                }
            }
            failure.is_none().then(|| ([&[space::ROW], &row.key[..]].concat(), row.row))
        });
        let into = dir.join(format!("files-{}", parts.len()));
        let written = engine::lsm::write_load(&into, load, of_partition);
        let files = written.map_err(|error| Failure::failed(format!("cannot write the files: {error}")))?;
        let partition = PartitionId(first + partition);
        parts.push(Part { partition, rows, files });
    }
    match failure {
        Some(failure) => Err(failure),
        None => Ok((parts, sorted.replaced)),
    }
}

fn reports(parts: &[Part], states: &[SendState]) -> Vec<PartReport> {
    let report = |(part, state): (&Part, &SendState)| {
        let (name, at) = match state {
            SendState::Loaded(at, _) => ("loaded", Some(*at)),
            SendState::Unknown => ("unknown", None),
            SendState::Staging | SendState::Staged | SendState::Failed => ("not loaded", None),
        };
        PartReport {
            partition: part.partition,
            rows: part.rows,
            state: name,
            lsn: at.map(|at| at.lsn.0),
            epoch: at.map(|at| at.term.0),
        }
    };
    parts.iter().zip(states).map(report).collect()
}

/// What is said of a load that did not end well everywhere.
fn halfway(partitions: &[PartReport]) -> String {
    let of = |state: &str| {
        let these: Vec<&PartReport> = partitions.iter().filter(|part| part.state == state).collect();
        let names: Vec<String> = these.iter().map(|part| part.partition.to_string()).collect();
        let rows: u64 = these.iter().map(|part| part.rows).sum();
        (!these.is_empty()).then(|| format!("{state} in {} ({rows} rows)", names.join(", ")))
    };
    let states: Vec<String> =
        ["loaded", "not loaded", "unknown"].iter().filter_map(|state| of(state)).collect();
    format!(
        "the load is {}; loading the file again writes every row once more, and none twice",
        states.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_partitions_have_it_is_said() {
        let part = |partition, rows, state| PartReport {
            partition: PartitionId(partition),
            rows,
            state,
            lsn: None,
            epoch: None,
        };
        let parts = [part(64, 3, "loaded"), part(65, 4, "not loaded"), part(66, 5, "loaded")];
        let said = halfway(&parts);
        assert!(
            said.starts_with("the load is loaded in p64, p66 (8 rows), not loaded in p65 (4 rows); "),
            "{said}"
        );
    }

    #[test]
    fn tables_without_files_are_refused() {
        assert_eq!(check_engine("t", EngineKind::Lsm, LogKind::Disk), Ok(()));
        for (engine, log) in [(EngineKind::Memory, LogKind::Disk), (EngineKind::Lsm, LogKind::Memory)] {
            let why = check_engine("t", engine, log).expect_err("it has no files");
            assert!(why.sentence.contains("load it without --bulk"), "{why}");
        }
    }
}
