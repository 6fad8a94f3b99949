//! `backup create`: a point over all partitions, then each of them at its position, into a directory.

use super::cluster_snapshot::{self, Parts, Taken};
use super::file::Writer;
use super::manifest::{Manifest, NAME, PartitionEntry, TableEntry, file_name};
use super::pages::{Pages, Sink, Stop};
use super::{Fault, Hex};
use crate::failure::{Failure, Status};
use crate::load::Watcher;
use bytes::Bytes;
use client::{Client, Table};
use input::Progress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::system::SEQUENCES;
use types::{ClusterId, PartitionId, Position};

/// How often it is begun anew when a failover has taken the states away.
const ATTEMPTS: u32 = 5;

/// A backup to be made.
#[derive(Clone, Debug)]
pub struct BackupPlan {
    /// Where: a directory that is empty or is not there.
    pub dir: PathBuf,
    /// Which tables; empty: all of the users'.
    pub tables: Vec<String>,
    /// The most bytes of rows that are read in a second; 0: no limit.
    pub bytes_per_second: u64,
}

/// A table in a report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TableReport {
    /// Its name.
    pub table: String,
    /// Its rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The digest of all of them.
    pub digest: Hex,
}

impl From<&TableEntry> for TableReport {
    fn from(entry: &TableEntry) -> TableReport {
        let (rows, bytes, digest) = (entry.rows, entry.bytes, entry.digest);
        TableReport { table: entry.record.name.clone(), rows, bytes, digest }
    }
}

/// How a backup ended.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BackupReport {
    /// Where it is.
    pub dir: PathBuf,
    /// Of which cluster.
    pub cluster: ClusterId,
    /// When its point was, milliseconds since 1970.
    pub taken_ms: u64,
    /// The users' tables in it.
    pub tables: Vec<TableReport>,
    /// Rows of all tables.
    pub rows: u64,
    /// Bytes of its files.
    pub file_bytes: u64,
    /// How long acknowledgements waited for the point, milliseconds.
    pub held_ms: u64,
    /// Searches for a point that were void.
    pub void_cluster_snapshots: u32,
    /// How often it was begun anew.
    pub begun_from_scratch: u32,
    /// How long all of it took.
    pub seconds: f64,
}

/// Makes a backup. What it wrote is removed if it fails; a directory without a manifest is no backup in any
/// case.
pub fn create(
    client: &mut Client,
    plan: &BackupPlan,
    watcher: &mut dyn Watcher,
) -> Result<BackupReport, Failure> {
    let begun = Instant::now();
    let tables = tables(client, &plan.tables)?;
    let made = prepare(&plan.dir)?;
    let mut tried = 0;
    let mut void_cluster_snapshots = 0;
    let taken = loop {
        match attempt(client, plan, &tables, watcher) {
            Ok((manifest, taken)) => {
                void_cluster_snapshots += taken.void;
                break Ok((manifest, taken));
            }
            Err(Stop::Gone(why)) if tried < ATTEMPTS => {
                tried += 1;
                watcher.say(&format!("begins anew: {why}"));
                clear(&plan.dir)?;
            }
            Err(Stop::Gone(why)) => {
                let what = format!("the states could not be kept in {} attempts: {why}", ATTEMPTS + 1);
                break Err(Failure::new(Status::Unreachable, what));
            }
            Err(Stop::Failed(failure)) => break Err(failure),
        }
    };
    let (manifest, taken) = match taken {
        Ok(taken) => taken,
        Err(failure) => {
            // What cannot be removed is no backup either.
            let _ = clear(&plan.dir);
            if made {
                let _ = fs::remove_dir(&plan.dir);
            }
            return Err(failure.and("there is no backup"));
        }
    };
    Ok(BackupReport {
        dir: plan.dir.clone(),
        cluster: manifest.cluster,
        taken_ms: manifest.taken_ms,
        tables: manifest.tables.iter().filter(|table| !table.is_system()).map(TableReport::from).collect(),
        rows: manifest.rows(),
        file_bytes: manifest.file_bytes(),
        held_ms: taken.held.as_millis() as u64,
        void_cluster_snapshots,
        begun_from_scratch: tried,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

fn attempt(
    client: &mut Client,
    plan: &BackupPlan,
    tables: &[Table],
    watcher: &mut dyn Watcher,
) -> Result<(Manifest, Taken), Stop> {
    let parts: Parts = tables
        .iter()
        .flat_map(|table| table.partitions().map(|partition| (partition, table.clone())))
        .collect();
    let taken = cluster_snapshot::take(client, &parts, &mut |line| watcher.say(line))?;
    let progress = Progress::new(None);
    watcher.phase("reading", Some(progress.clone()));
    let mut files = Files::new(&plan.dir, &taken.at, watcher, progress);
    Pages::new(client, &parts, &taken.at, plan.bytes_per_second).read(&mut files)?;
    let Files { done, versions, .. } = files;
    let cluster = client.cluster_map().cluster().map(|record| record.id).unwrap_or_default();
    let mut entries = Vec::new();
    for table in tables {
        let newest = table.partitions().filter_map(|partition| versions.get(&partition)).max();
        let record = with_schema(client, table, newest.copied().unwrap_or(0))?;
        let partitions = table.partitions().filter_map(|partition| done.get(&partition).cloned()).collect();
        entries.push(TableEntry::new(record.record().clone(), partitions));
    }
    let version = env!("CARGO_PKG_VERSION").to_string();
    let manifest = Manifest { version, cluster, taken_ms: taken.wall_ms, tables: entries };
    manifest.write(&plan.dir).map_err(|fault| fault.of(plan.dir.join(NAME).display()))?;
    Ok((manifest, taken))
}

/// The table's record in which this schema version is known: a column that was added since is on its way
/// here.
fn with_schema(client: &mut Client, table: &Table, version: u32) -> Result<Table, Failure> {
    let deadline = Instant::now() + client.timeout();
    loop {
        let found = client.cluster_map().tables().find(|record| record.id == table.id()).cloned();
        let Some(record) = found else {
            return Err(Failure::failed(format!("table `{}` was dropped meanwhile", table.name())));
        };
        if record.schema.version() >= version {
            return Ok(Table::new(record));
        }
        if Instant::now() >= deadline {
            return Err(client::ClientError::NewerSchema { table: table.name().to_string() }.into());
        }
        let _ = client.poll(Duration::from_millis(50))?;
    }
}

/// The tables meant, by name, and the one that numbers rows.
fn tables(client: &mut Client, names: &[String]) -> Result<Vec<Table>, Failure> {
    let _ = client.poll(Duration::ZERO)?;
    let mut found: Vec<Table> = Vec::new();
    if names.is_empty() {
        // What is left out silently would be missed when it is needed.
        if let Some(database) = client.cluster_map().databases().next() {
            return Err(Failure::refused(format!(
                "database `{}` cannot be backed up yet; name the tables that are to be in the backup",
                database.name
            )));
        }
        let all = client.cluster_map().tables().filter(|record| !types::system::is_reserved(&record.name));
        found.extend(all.cloned().map(Table::new));
    }
    for name in names {
        if types::system::is_reserved(name) {
            return Err(Failure::usage(format!(
                "table `{name}` is the cluster's own; what is needed of it is in every backup"
            )));
        }
        if name.contains('.') {
            let why = format!("table `{name}` is in a database, and these cannot be backed up yet");
            return Err(Failure::refused(why));
        }
        found.push(client.table(name)?);
    }
    if found.is_empty() {
        return Err(Failure::failed("there are no tables"));
    }
    found.extend(client.cluster_map().table(SEQUENCES).cloned().map(Table::new));
    found.sort_by(|a, b| a.name().cmp(b.name()));
    found.dedup_by(|a, b| a.name() == b.name());
    Ok(found)
}

/// Makes the directory, or finds it empty. True if it was made.
fn prepare(dir: &Path) -> Result<bool, Failure> {
    match fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(false),
            Some(_) => Err(Failure::refused(format!(
                "{} is not empty: a backup needs a directory of its own",
                dir.display()
            ))),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(dir).map_err(|error| Failure::io(dir.display(), &error))?;
            Ok(true)
        }
        Err(error) => Err(Failure::io(dir.display(), &error)),
    }
}

/// Removes what an attempt has written.
fn clear(dir: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::io(dir.display(), &error);
    for entry in fs::read_dir(dir).map_err(failed)? {
        fs::remove_file(entry.map_err(failed)?.path()).map_err(failed)?;
    }
    Ok(())
}

/// The files of the partitions.
struct Files<'a> {
    dir: &'a Path,
    at: &'a BTreeMap<PartitionId, Position>,
    open: BTreeMap<PartitionId, Writer>,
    done: BTreeMap<PartitionId, PartitionEntry>,
    /// The newest schema version of any row.
    versions: BTreeMap<PartitionId, u32>,
    rows: u64,
    watcher: &'a mut dyn Watcher,
    progress: Progress,
}

impl<'a> Files<'a> {
    fn new(
        dir: &'a Path,
        at: &'a BTreeMap<PartitionId, Position>,
        watcher: &'a mut dyn Watcher,
        progress: Progress,
    ) -> Files<'a> {
        let (open, done, versions) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Files { dir, at, open, done, versions, rows: 0, watcher, progress }
    }

    fn of(&mut self, partition: PartitionId) -> Result<Writer, Failure> {
        let path = self.dir.join(file_name(partition));
        match self.open.remove(&partition) {
            Some(writer) => Ok(writer),
            None => Writer::create(&path, partition, self.at[&partition])
                .map_err(|fault| fault.of(path.display())),
        }
    }

    fn failed(&self, partition: PartitionId, fault: Fault) -> Failure {
        fault.of(self.dir.join(file_name(partition)).display())
    }
}

impl Sink for Files<'_> {
    fn rows(&mut self, partition: PartitionId, rows: Vec<(Bytes, Bytes)>) -> Result<(), Failure> {
        let mut writer = self.of(partition)?;
        let newest = self.versions.entry(partition).or_default();
        let mut bytes = 0;
        for (key, value) in &rows {
            *newest = types::data::row_version(value).unwrap_or(0).max(*newest);
            bytes += (key.len() + value.len()) as u64;
        }
        for (key, value) in &rows {
            writer.add(key, value).map_err(|fault| self.failed(partition, fault))?;
        }
        self.open.insert(partition, writer);
        self.rows += rows.len() as u64;
        self.progress.add(bytes);
        self.watcher.rows(self.rows);
        if self.watcher.stopped() { Err(Failure::failed("stopped")) } else { Ok(()) }
    }

    fn end(&mut self, partition: PartitionId) -> Result<(), Failure> {
        let writer = self.of(partition)?;
        let whole = writer.finish().map_err(|fault| self.failed(partition, fault))?;
        self.done.insert(partition, PartitionEntry::new(partition, self.at[&partition], &whole));
        Ok(())
    }
}
