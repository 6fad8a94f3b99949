//! `load --bulk`: the rows are sorted on disk, written into files of the table's engine once, staged on every
//! copy of their partitions, and become part of each partition's state at one position (PR-39).
//!
//! Nothing of the load can be seen before the files of *all* partitions are at all copies. From then on it is
//! per partition: each one has all of its rows or none, and a report says which have it. Loading the file
//! again is safe: every row takes the place of itself.

mod send;
mod sort;

pub use send::SendState;

use crate::failure::Failure;
use crate::load::{LOOK_EVERY, LoadPlan, Watcher};
use crate::port::Port;
use crate::reading::{LoadReport, Reading, Rows};
use client::table::Table;
use input::Record;
use send::Sending;
use serde::Serialize;
use sort::{Sortable, Sorter};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{Component, EngineKind, KeySpace, LoadId, LogKind, PartitionId};

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
    /// What is said of every load.
    #[serde(flatten)]
    pub load: LoadReport,
    /// The load's name, as nodes report it.
    #[serde(rename = "load")]
    pub id: String,
    /// Rows that were left out, as a later row of the input has their key.
    pub replaced: u64,
    /// Bytes of the files.
    pub file_bytes: u64,
    /// Bytes of sorted rows that went to disk meanwhile.
    pub spilled_bytes: u64,
    /// Bytes of files that were sent to primaries.
    pub sent_bytes: u64,
    /// For so many milliseconds at most the writes of a partition have waited for the load: from when it was
    /// asked to make the files a part of its state until it had done so.
    pub writes_waited_ms: u64,
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

/// Why a table of a database cannot be loaded in bulk, as a failure: its partitions look at no row of it
/// (PR-449).
pub fn check_table(table: &Table) -> Result<(), Failure> {
    let record = table.record();
    check_engine(table.name(), record.engine, record.log)?;
    if table.schema().constraints().is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "table `{}` has constraints or indexes, which a bulk load does not look at; load it without --bulk, or drop \
         them first",
        table.name()
    )))
}

/// What is said before a table of a database is loaded in bulk.
pub fn warning(database: &str) -> String {
    format!(
        "while the files are put in their place, writes to all tables of the database `{database}` wait, in each partition \
         of it; for how long is said at the end"
    )
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
    let load = LoadId::from_random(RandomState::new().hash_one(std::process::id()));
    let scratch = Scratch::new(&means.dir, load)?;
    let mut reading = Reading::begin(plan, table, "sorting", watcher)?;
    let keys = key_space(table);
    let mut sorting = Sorting { table, keys, sorter: Sorter::new(&scratch.0, means.memory), bytes: 0 };
    let nothing = |failure: Failure| failure.and("nothing was loaded");
    reading.read(&mut sorting, watcher).map_err(nothing)?;
    reading.close_bad_rows(watcher)?;
    let Sorting { sorter, bytes, .. } = sorting;
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
    let writes_waited_ms = sending.waited().as_millis() as u64;
    let rows: u64 = parts.iter().map(|part| part.rows).sum();
    Ok(BulkReport {
        load: reading.report(table, rows, bytes, copies)?,
        id: load.to_string(),
        replaced,
        file_bytes: parts.iter().flat_map(|part| &part.files).map(|(file, _)| file.bytes).sum(),
        spilled_bytes,
        sent_bytes,
        writes_waited_ms,
        installed,
        partitions,
    })
}

/// Where the rows of the table lie among the keys of its partitions.
fn key_space(table: &Table) -> KeySpace {
    match table.record().database() {
        Some(_) => KeySpace::Table(table.id()),
        None => KeySpace::Bare,
    }
}

/// Takes rows into the sorter.
struct Sorting<'a> {
    table: &'a Table,
    keys: KeySpace,
    sorter: Sorter,
    /// Of keys and rows.
    bytes: u64,
}

impl Rows for Sorting<'_> {
    fn take(&mut self, record: Record) -> Result<(), Failure> {
        let longest = self.keys.longest_key();
        if record.key.len() > longest {
            let bytes = record.key.len();
            return Err(Failure::failed(format!("a key of {bytes} bytes is longer than {longest}")));
        }
        let partition = self.table.partition_of(&record.key)?.0 - self.table.record().first_partition.0;
        self.bytes += (record.key.len() + record.value.len()) as u64;
        let (key, index, row) = (record.key, record.index, record.value);
        self.sorter.add(Sortable { partition, key, index, row })
    }

    fn look(&mut self, records: u64) -> Result<u64, Failure> {
        Ok(records)
    }
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
    let prefix = key_space(table).row_key(&[]);
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
            failure.is_none().then(|| ([&prefix[..], &row.key[..]].concat(), row.row))
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
