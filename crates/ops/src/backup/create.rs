//! `backup create`: a point over all partitions, then each of them at its position, into a directory.

use super::cluster_snapshot::{self, Parts, SnapshotPositions};
use super::databases::{self, Found};
use super::file::Writer;
use super::manifest::{DatabaseEntry, Manifest, NAME, PartitionEntry, TableEntry, file_name};
use super::pages::{Pages, Sink, Stop, Stream};
use super::{Fault, Hex};
use crate::failure::{Failure, Status};
use crate::load::Watcher;
use bytes::Bytes;
use client::database::Database;
use client::{Client, Table};
use input::Progress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use types::system::SEQUENCES;
use types::{ClusterId, PartitionId, Position, TableId, TableRecord};

/// How often it is begun anew when a failover has taken the states away.
const ATTEMPTS: u32 = 5;
/// Before it is begun again. All these times together are longer than a table that has moved has no name.
const REST: Duration = Duration::from_millis(400);

/// A backup to be made.
#[derive(Clone, Debug)]
pub struct BackupPlan {
    /// Where: a directory that is empty or is not there.
    pub dir: PathBuf,
    /// Which tables that have partitions of their own. With no database either: all of the users'.
    pub tables: Vec<String>,
    /// Which databases. With no table either: all.
    pub databases: Vec<String>,
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

impl TableReport {
    /// Of a table of a database, under the database's name.
    pub fn within(database: &str, entry: &TableEntry) -> TableReport {
        let own = TableReport::from(entry);
        TableReport { table: format!("{database}.{}", own.table), ..own }
    }

    /// Of all the users' tables of a backup.
    pub fn all(found: &Manifest) -> Vec<TableReport> {
        let bare = found.tables.iter().filter(|table| !table.is_system()).map(TableReport::from);
        let of = |database: &DatabaseEntry| {
            let tables = database.tables.iter().filter(|table| table.has_rows());
            tables.map(|table| TableReport::within(&database.record.name, table)).collect::<Vec<_>>()
        };
        bare.chain(found.databases.iter().flat_map(of)).collect()
    }
}

/// A database in a report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DatabaseReport {
    /// Its name.
    pub database: String,
    /// Its tables.
    pub tables: u64,
    /// Its sequences and views.
    pub others: u64,
    /// Rows of its tables.
    pub rows: u64,
}

impl DatabaseReport {
    /// Of a database that has the name now.
    pub fn of(name: &str, entry: &DatabaseEntry) -> DatabaseReport {
        let (tables, others): (Vec<_>, Vec<_>) = entry.tables.iter().partition(|table| table.has_rows());
        let rows = tables.iter().map(|table| table.rows).sum();
        DatabaseReport {
            database: name.into(),
            tables: tables.len() as u64,
            others: others.len() as u64,
            rows,
        }
    }

    /// Of all databases of a backup.
    pub fn all(found: &Manifest) -> Vec<DatabaseReport> {
        found.databases.iter().map(|entry| DatabaseReport::of(&entry.record.name, entry)).collect()
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
    /// The users' tables in it, those of databases as DATABASE.TABLE.
    pub tables: Vec<TableReport>,
    /// The databases in it.
    pub databases: Vec<DatabaseReport>,
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
    let mut meant = Meant::find(client, plan)?;
    let made = prepare(&plan.dir)?;
    let mut tried = 0;
    let mut void_cluster_snapshots = 0;
    let taken = loop {
        match attempt(client, plan, &meant, watcher) {
            Ok((manifest, taken)) => {
                void_cluster_snapshots += taken.void;
                break Ok((manifest, taken));
            }
            Err(Stop::Gone(why)) if tried < ATTEMPTS => {
                tried += 1;
                watcher.say(&format!("begins anew: {why}"));
                clear(&plan.dir)?;
                thread::sleep(REST);
                // A table may have got partitions of its own since the last time (PR-381).
                match Meant::find(client, plan) {
                    Ok(found) => meant = found,
                    Err(failure) => break Err(failure),
                }
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
        tables: TableReport::all(&manifest),
        databases: DatabaseReport::all(&manifest),
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
    meant: &Meant,
    watcher: &mut dyn Watcher,
) -> Result<(Manifest, SnapshotPositions), Stop> {
    let parts = meant.parts();
    let global: Vec<Database> =
        meant.databases.iter().filter(|database| database.record().is_global()).cloned().collect();
    let taken = cluster_snapshot::take(client, (&parts, &global), &mut |line| watcher.say(line))?;
    let progress = Progress::new(None);
    watcher.phase("reading", Some(progress.clone()));
    let mut streams = Vec::new();
    for table in &meant.tables {
        streams.extend(table.partitions().map(|partition| Stream { partition, table: table.clone() }));
    }
    let mut found = Vec::new();
    for database in &meant.databases {
        let tables = databases::tables_at(client, database, &taken.at)?;
        streams.extend(tables.iter().flat_map(Found::streams));
        found.push((database, tables));
    }
    let mut files = Files::new(&plan.dir, (&taken.at, &streams), watcher, progress);
    Pages::new(client, (&parts, &streams), &taken.at, plan.bytes_per_second).read(&mut files)?;
    let Files { done, versions, .. } = files;
    let parts_of = |table: &Table, of: Option<TableId>| -> Vec<PartitionEntry> {
        table.partitions().filter_map(|partition| done.get(&(partition, of)).cloned()).collect()
    };
    let mut tables = Vec::new();
    for table in &meant.tables {
        let newest = table.partitions().filter_map(|partition| versions.get(&partition)).max();
        let record = with_schema(client, table, newest.copied().unwrap_or(0))?;
        tables.push(TableEntry::new(record.record().clone(), parts_of(table, None)));
    }
    let entry = |(database, tables): (&Database, Vec<Found>)| {
        let own = |found: Found| {
            let parts = parts_of(&found.table, Some(found.table.id()));
            TableEntry::new(found.table.record().clone(), parts)
        };
        let record = (**database.record()).clone();
        DatabaseEntry { record, tables: tables.into_iter().map(own).collect() }
    };
    let databases = found.into_iter().map(entry).collect();
    let _ = client.poll(Duration::ZERO)?;
    if let Some(name) = named_meanwhile(&meant.moving, client.cluster_map().tables()) {
        return Err(Stop::Gone(format!("table `{name}` has got partitions of its own meanwhile")));
    }
    let cluster = client.cluster_map().cluster().map(|record| record.id).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION").to_string();
    let manifest = Manifest { version, cluster, taken_ms: taken.wall_ms, tables, databases };
    manifest.write(&plan.dir).map_err(|fault| fault.of(plan.dir.join(NAME).display()))?;
    Ok((manifest, taken))
}

/// The table that had not got its name when tables were looked for, and has it now. At the point it may have
/// been neither among those that lie together nor among those with partitions of their own (PR-381).
fn named_meanwhile<'a>(
    moving: &[TableId],
    mut now: impl Iterator<Item = &'a Arc<TableRecord>>,
) -> Option<&'a str> {
    let named =
        now.find(|record| moving.contains(&record.id) && types::system::moves(&record.name).is_none());
    named.map(|record| record.name.as_str())
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

/// What is backed up.
struct Meant {
    /// By name, and the one that numbers rows.
    tables: Vec<Table>,
    databases: Vec<Database>,
    /// Tables that get the rows of others, and have not got their names yet.
    moving: Vec<TableId>,
}

impl Meant {
    fn find(client: &mut Client, plan: &BackupPlan) -> Result<Meant, Failure> {
        let _ = client.poll(Duration::ZERO)?;
        let (mut tables, mut databases): (Vec<Table>, Vec<Database>) = (Vec::new(), Vec::new());
        if plan.tables.is_empty() && plan.databases.is_empty() {
            let map = client.cluster_map();
            let all = map.tables().filter(|record| !types::system::is_reserved(&record.name));
            tables.extend(all.cloned().map(Table::new));
            databases.extend(map.databases().cloned().map(Database::new));
        }
        for name in &plan.tables {
            if types::system::is_reserved(name) {
                return Err(Failure::usage(format!(
                    "table `{name}` is the cluster's own; what is needed of it is in every backup"
                )));
            }
            if let Some((database, _)) = name.split_once('.') {
                return Err(Failure::refused(format!(
                    "table `{name}` is in a database, which is backed up as a whole: --databases {database}"
                )));
            }
            tables.push(client.table(name)?);
        }
        for name in &plan.databases {
            databases.push(client.database(name)?);
        }
        if tables.is_empty() && databases.is_empty() {
            return Err(Failure::failed("there are no tables"));
        }
        tables.extend(client.cluster_map().table(SEQUENCES).cloned().map(Table::new));
        tables.sort_by(|a, b| a.name().cmp(b.name()));
        tables.dedup_by(|a, b| a.name() == b.name());
        databases.sort_by(|a, b| a.name().cmp(b.name()));
        databases.dedup_by(|a, b| a.name() == b.name());
        let moves = |record: &&Arc<TableRecord>| types::system::moves(&record.name).is_some();
        let moving = client.cluster_map().tables().filter(moves).map(|record| record.id).collect();
        Ok(Meant { tables, databases, moving })
    }

    /// All partitions of it. One of a database is asked in the name of its catalog.
    fn parts(&self) -> Parts {
        let bare = self.tables.iter().flat_map(|table| table.partitions().map(|one| (one, table.clone())));
        let of = |database: &Database| -> Vec<_> {
            database.partitions().map(|one| (one, database.catalog_in(one))).collect()
        };
        bare.chain(self.databases.iter().flat_map(of)).collect()
    }
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

/// The partition and, in a database, the table of a stream.
type Of = (PartitionId, Option<TableId>);

/// The files of the streams.
struct Files<'a> {
    dir: &'a Path,
    at: &'a BTreeMap<PartitionId, Position>,
    streams: &'a [Stream],
    open: BTreeMap<usize, Writer>,
    done: BTreeMap<Of, PartitionEntry>,
    /// The newest schema version of any row of a bare table.
    versions: BTreeMap<PartitionId, u32>,
    rows: u64,
    watcher: &'a mut dyn Watcher,
    progress: Progress,
}

impl<'a> Files<'a> {
    fn new(
        dir: &'a Path,
        (at, streams): (&'a BTreeMap<PartitionId, Position>, &'a [Stream]),
        watcher: &'a mut dyn Watcher,
        progress: Progress,
    ) -> Files<'a> {
        let (open, done, versions) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Files { dir, at, streams, open, done, versions, rows: 0, watcher, progress }
    }

    fn of(&self, stream: usize) -> Of {
        let Stream { partition, table } = &self.streams[stream];
        (*partition, table.record().database().map(|_| table.id()))
    }

    fn path(&self, stream: usize) -> PathBuf {
        let (partition, table) = self.of(stream);
        self.dir.join(file_name(partition, table))
    }

    fn take(&mut self, stream: usize) -> Result<Writer, Failure> {
        if let Some(writer) = self.open.remove(&stream) {
            return Ok(writer);
        }
        let (partition, _) = self.of(stream);
        let made = Writer::create(&self.path(stream), partition, self.at[&partition]);
        made.map_err(|fault| self.failed(stream, fault))
    }

    fn failed(&self, stream: usize, fault: Fault) -> Failure {
        fault.of(self.path(stream).display())
    }
}

impl Sink for Files<'_> {
    fn rows(&mut self, stream: usize, rows: Vec<(Bytes, Bytes)>) -> Result<(), Failure> {
        let mut writer = self.take(stream)?;
        let newest = self.versions.entry(self.streams[stream].partition).or_default();
        let mut bytes = 0;
        for (key, value) in &rows {
            *newest = types::data::row_version(value).unwrap_or(0).max(*newest);
            bytes += (key.len() + value.len()) as u64;
        }
        for (key, value) in &rows {
            writer.add(key, value).map_err(|fault| self.failed(stream, fault))?;
        }
        self.open.insert(stream, writer);
        self.rows += rows.len() as u64;
        self.progress.add(bytes);
        self.watcher.rows(self.rows);
        if self.watcher.stopped() { Err(Failure::failed("stopped")) } else { Ok(()) }
    }

    fn end(&mut self, stream: usize) -> Result<(), Failure> {
        let writer = self.take(stream)?;
        let whole = writer.finish().map_err(|fault| self.failed(stream, fault))?;
        let (partition, table) = self.of(stream);
        let entry = PartitionEntry::new(partition, self.at[&partition], &whole).of_table(table);
        self.done.insert((partition, table), entry);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::data::{Column, ColumnType, Schema};
    use types::{LogKind, Policy};

    #[test]
    fn pr381_a_table_that_got_its_name_meanwhile_is_noticed() {
        let schema = Schema::new(vec![Column::new("id", ColumnType::Int)], &["id"], 1, false).expect("valid");
        let policy = Policy::preset("durable", 1, LogKind::Disk).expect("valid");
        let record = |id: u32, name: &str| {
            Arc::new(TableRecord::new(TableId(id), name, schema.clone(), policy.clone()))
        };
        let moving = [TableId(5), TableId(6)];
        let known = [record(4, "plain"), record(5, "sys_moving_90"), record(6, "sys_moving_91")];
        assert_eq!(named_meanwhile(&moving, known.iter()), None);
        let later = [record(4, "plain"), record(5, "sys_moving_90"), record(6, "wide"), record(7, "new")];
        assert_eq!(named_meanwhile(&moving, later.iter()), Some("wide"));
    }
}
