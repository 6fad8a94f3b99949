//! `backup restore`: makes the tables of a backup and loads their rows, in whatever cluster, and compares
//! what is there then.

use super::create::{DatabaseReport, TableReport};
use super::into_database;
use super::manifest::{DatabaseEntry, Manifest, TableEntry};
use super::verify::{self, manifest, read};
use super::{Hex, Sum};
use crate::failure::{Failure, Status};
use crate::load::Watcher;
use crate::pipeline::{Limits, Pipeline, Placed};
use crate::secured;
use bytes::Bytes;
use client::{Client, Table};
use input::Progress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use types::data::{Row, Schema, Value, row_version, with_row_version};
use types::database::SHARED;
use types::policy::Below;
use types::system::SEQUENCES;
use types::{ClusterId, TableId, TableRecord};
use wire::RecordText;
use wire::control::{AddIndex, AdminCommand, AlterTable, ClusterStatus, CreateTable};

/// A node that was not heard for so long is not live.
const SILENT_MS: u64 = 1_500;
/// How long copies may take to follow.
const FOLLOW: Duration = Duration::from_secs(120);

/// A backup to be restored.
#[derive(Clone, Debug)]
pub struct RestorePlan {
    /// Where it is.
    pub dir: PathBuf,
    /// Which tables that have partitions of their own. With no database either: all.
    pub tables: Vec<String>,
    /// Which databases. With no table either: all.
    pub databases: Vec<String>,
    /// The name that the one database gets that is restored, instead of its own.
    pub rename: Option<String>,
    /// Copies, instead of as many as there were.
    pub factor: Option<u8>,
    /// Tables and databases that are there are dropped first.
    pub yes: bool,
    /// How rows are cut into batches.
    pub limits: Limits,
}

/// How a restoration ended.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RestoreReport {
    /// Where the backup is.
    pub dir: PathBuf,
    /// Of which cluster it is.
    pub cluster: ClusterId,
    /// When its point was, milliseconds since 1970.
    pub taken_ms: u64,
    /// The tables, as they are now; those of databases as DATABASE.TABLE.
    pub tables: Vec<TableReport>,
    /// The databases, as they are now.
    pub databases: Vec<DatabaseReport>,
    /// Those tables and databases that were there and were dropped.
    pub replaced: Vec<String>,
    /// Rows of all tables.
    pub rows: u64,
    /// The fewest copies that an acknowledgement counted.
    pub copies: Option<u8>,
    /// How long all of it took.
    pub seconds: f64,
}

/// Restores a backup. It is read and verified before anything is changed.
pub fn restore(
    client: &mut Client,
    plan: &RestorePlan,
    watcher: &mut dyn Watcher,
) -> Result<RestoreReport, Failure> {
    let begun = Instant::now();
    let found = manifest(&plan.dir)?;
    let chosen = Chosen::of(&found, plan)?;
    let replaced = chosen.present(client)?;
    if !replaced.is_empty() && !plan.yes {
        return Err(Failure::refused(format!(
            "{} exist already: --yes drops them with all their rows and restores what the backup has; --tables and --databases name others",
            replaced.listed()
        )));
    }
    room(client, plan, &chosen)?;
    sound(plan, watcher)?;
    let numbers = Numbers::read(plan, &found)?;
    let mut copies: Option<u8> = None;
    let mut tables = Vec::new();
    for entry in &chosen.tables {
        let counted = one(client, plan, entry, &replaced, &numbers, watcher)
            .map_err(|failure| failure.and(unfinished(&format!("table `{}`", entry.record.name))))?;
        copies = copies.into_iter().chain(counted).min();
        tables.push(TableReport::from(*entry));
    }
    let mut databases = Vec::new();
    for (name, entry) in &chosen.databases {
        if replaced.databases.contains(name) {
            match name == SHARED {
                // It is always there: its tables go.
                true => into_database::empty(client, name)?,
                false => {
                    client.admin(AdminCommand::DropDatabase(name.clone()))?;
                    gone(client, name)?;
                }
            }
        }
        let counted = into_database::restore(client, plan, (name, entry), &numbers, watcher)
            .map_err(|failure| failure.and(unfinished(&format!("database `{name}`"))))?;
        copies = copies.into_iter().chain(counted).min();
        let own = entry.tables.iter().filter(|table| table.has_rows());
        tables.extend(own.map(|table| TableReport::within(name, table)));
        databases.push(DatabaseReport::of(name, entry));
    }
    Ok(RestoreReport {
        dir: plan.dir.clone(),
        cluster: found.cluster,
        taken_ms: found.taken_ms,
        rows: tables.iter().map(|table| table.rows).sum(),
        tables,
        databases,
        replaced: replaced.tables.into_iter().chain(replaced.databases).collect(),
        copies,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

fn unfinished(what: &str) -> String {
    format!("{what} is not complete; the restoration can be run again with --yes")
}

/// What is restored.
struct Chosen<'a> {
    /// The users' tables that have partitions of their own.
    tables: Vec<&'a TableEntry>,
    /// Databases, with the names that they get.
    databases: Vec<(String, &'a DatabaseEntry)>,
}

/// What the cluster has of that already, by name.
#[derive(Default)]
struct Present {
    tables: Vec<String>,
    databases: Vec<String>,
}

impl<'a> Chosen<'a> {
    fn of(found: &'a Manifest, plan: &RestorePlan) -> Result<Chosen<'a>, Failure> {
        let own = |table: &&TableEntry| !table.is_system();
        let has = |name: &String| found.tables.iter().filter(own).any(|table| table.record.name == *name);
        if let Some(name) = plan.tables.iter().find(|name| !has(name)) {
            return Err(Failure::not_found(format!("the backup has no table `{name}`")));
        }
        let has = |name: &String| found.databases.iter().any(|one| one.record.name == *name);
        if let Some(name) = plan.databases.iter().find(|name| !has(name)) {
            return Err(Failure::not_found(format!("the backup has no database `{name}`")));
        }
        let all = plan.tables.is_empty() && plan.databases.is_empty();
        let meant = |table: &&TableEntry| all || plan.tables.contains(&table.record.name);
        let tables: Vec<&TableEntry> = found.tables.iter().filter(own).filter(meant).collect();
        let meant = |one: &&DatabaseEntry| all || plan.databases.contains(&one.record.name);
        let databases: Vec<&DatabaseEntry> = found.databases.iter().filter(meant).collect();
        if plan.rename.is_some() && (databases.len() != 1 || !tables.is_empty()) {
            return Err(Failure::usage("--as names one database: say which with --databases"));
        }
        let name = |one: &DatabaseEntry| plan.rename.clone().unwrap_or_else(|| one.record.name.clone());
        Ok(Chosen { tables, databases: databases.into_iter().map(|one| (name(one), one)).collect() })
    }

    fn present(&self, client: &mut Client) -> Result<Present, Failure> {
        let _ = client.poll(Duration::ZERO)?;
        let map = client.cluster_map();
        let tables = self.tables.iter().map(|table| &table.record.name);
        let databases = self.databases.iter().map(|(name, _)| name);
        let tables = tables.filter(|name| map.table(name).is_some()).cloned().collect();
        let mut databases: Vec<String> =
            databases.filter(|name| map.database(name).is_some()).cloned().collect();
        // The one that is always there is as good as not there while it has no table.
        if databases.iter().any(|name| name == SHARED) {
            let shared = client.database(SHARED)?;
            let is_empty = client.tables_of(&shared)?.is_empty();
            databases.retain(|name| name != SHARED || !is_empty);
        }
        Ok(Present { tables, databases })
    }

    /// The records of all that, with what each is called.
    fn records(&self) -> impl Iterator<Item = (String, &TableRecord)> {
        let tables =
            self.tables.iter().map(|table| (format!("table `{}`", table.record.name), &table.record));
        tables.chain(self.databases.iter().map(|(name, one)| (format!("database `{name}`"), &one.record)))
    }
}

impl Present {
    fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.databases.is_empty()
    }

    fn listed(&self) -> String {
        let of = |what: &str, names: &[String]| {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            (!names.is_empty()).then(|| format!("the {what} {}", names.join(", ")))
        };
        let both = [of("tables", &self.tables), of("databases", &self.databases)];
        both.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }
}

/// Refuses more copies than there are nodes before anything is dropped.
fn room(client: &mut Client, plan: &RestorePlan, chosen: &Chosen<'_>) -> Result<(), Failure> {
    let status: ClusterStatus = secured::read(&client.admin(AdminCommand::Status)?)?;
    let live = status.nodes.iter().filter(|(_, age)| *age < SILENT_MS).count();
    let wants = |record: &TableRecord| plan.factor.unwrap_or(record.policy.factor);
    match chosen.records().find(|(_, record)| usize::from(wants(record)) > live) {
        None => Ok(()),
        Some((what, record)) => Err(Failure::refused(format!(
            "{what} wants {} copies, but only {live} nodes are live; --factor {live} restores it with fewer",
            wants(record)
        ))),
    }
}

fn sound(plan: &RestorePlan, watcher: &mut dyn Watcher) -> Result<(), Failure> {
    let report = verify::verify(&plan.dir, watcher)?;
    let Some(first) = report.damaged.first() else { return Ok(()) };
    let more = match report.damaged.len() {
        1 => String::new(),
        count => format!(", and {} more files are damaged", count - 1),
    };
    Err(Failure::failed(format!(
        "{}: {}{more}; nothing was changed; `understudy backup verify {}` lists all",
        plan.dir.join(&first.file).display(),
        first.what,
        plan.dir.display()
    )))
}

/// One table: dropped if it is there, made, filled, compared. The fewest copies that an acknowledgement
/// counted.
fn one(
    client: &mut Client,
    plan: &RestorePlan,
    entry: &TableEntry,
    replaced: &Present,
    numbers: &Numbers,
    watcher: &mut dyn Watcher,
) -> Result<Option<u8>, Failure> {
    let name = &entry.record.name;
    if replaced.tables.contains(name) {
        client.admin(AdminCommand::DropTable(name.clone()))?;
        gone(client, name)?;
    }
    let table = client.create_table(&request(&entry.record, name, plan.factor))?;
    add_indexes(client, entry)?;
    // Before any row: whoever adds rows meanwhile gets no number that the backup's rows have.
    numbers.give_all(client, &entry.record, table.id())?;
    watcher.say(&format!("restores table {name}: {} rows", entry.rows));
    load(client, plan, entry, &table, None, watcher)
}

/// Loads the rows of a table and compares. `versions`: what rows of the table's newest version are of now;
/// those of older ones are of version 1. The fewest copies that an acknowledgement counted.
pub(super) fn load(
    client: &mut Client,
    plan: &RestorePlan,
    entry: &TableEntry,
    table: &Table,
    versions: Option<u32>,
    watcher: &mut dyn Watcher,
) -> Result<Option<u8>, Failure> {
    let progress = Progress::new(Some(entry.partitions.iter().map(|part| part.file_bytes).sum()));
    watcher.phase("loading", Some(progress.clone()));
    let mut pipeline = Pipeline::new(client, table.clone(), plan.limits.clone(), None);
    let mut filling = Filling { table, versions, sum: Sum::default() };
    let loaded = filling.fill(&mut pipeline, plan, entry, watcher, &progress);
    let drained = pipeline.drain();
    let (done, trouble) = pipeline.finish();
    loaded?;
    drained?;
    if let Some(trouble) = trouble {
        return Err(trouble.failure);
    }
    secured::wait(client, table, &done.last, FOLLOW)?;
    compare(client, &filling.sum, table, watcher)?;
    Ok(done.copies)
}

/// The request that makes the table, or the database, as it was.
pub(super) fn request(record: &TableRecord, name: &str, factor: Option<u8>) -> CreateTable {
    let policy = &record.policy;
    let copies = factor.unwrap_or(policy.factor);
    CreateTable {
        name: name.into(),
        schema: counted_alone(&record.schema),
        engine: record.engine,
        log: record.log,
        policy: policy.name.clone(),
        factor: Some(copies),
        // Of another number of copies the policy says itself how many are enough.
        min_in_sync: (copies == policy.factor).then_some(policy.min_in_sync),
        available: policy.below == Below::Available,
        partitions: record.partitions,
        placement: Vec::new(),
        scheme: record.scheme(),
        standby: Some(policy.standby),
        failover_target_ms: record.failover_target_ms,
        holds: record.holds,
        global: record.is_global(),
        ship: record.ship,
        ranges: record.ranges.clone(),
    }
}

/// The same columns, of which those that are numbered are so by counters of the table's own: that of a table
/// whose place it has taken may be another one's here.
fn counted_alone(schema: &Schema) -> Schema {
    let mut parts = schema.clone().into_parts();
    parts.columns.iter_mut().for_each(|column| column.rules.counter = None);
    // As valid as it was.
    Schema::from_parts(parts).unwrap_or_else(|_| schema.clone())
}

/// Gives the table the indexes that it had: they are built as rows come.
fn add_indexes(client: &mut Client, entry: &TableEntry) -> Result<(), Failure> {
    let named = entry.record.schema.columns();
    for index in &entry.record.indexes.wanted {
        let columns = index.columns.iter().filter_map(|at| named.get(*at)).map(|column| column.name.clone());
        let index = AddIndex { name: index.name.clone(), columns: columns.collect() };
        let name = entry.record.name.clone();
        let request = AlterTable { name, add_index: Some(index), ..AlterTable::default() };
        client.admin(AdminCommand::AlterTable(RecordText::new(&request)))?;
    }
    Ok(())
}

/// Waits until the cluster map does not have a table, or a database, any more.
fn gone(client: &mut Client, name: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + client.timeout();
    while client.cluster_map().owners().any(|record| record.name == name) {
        if Instant::now() >= deadline {
            let what = format!("`{name}` was dropped, but is still there after a while");
            return Err(Failure::new(Status::Unreachable, what));
        }
        let _ = client.poll(Duration::from_millis(20))?;
    }
    Ok(())
}

/// A table that rows of a backup come into.
struct Filling<'a> {
    table: &'a Table,
    versions: Option<u32>,
    /// What it has then.
    sum: Sum,
}

impl Filling<'_> {
    fn fill(
        &mut self,
        pipeline: &mut Pipeline<'_, Client>,
        plan: &RestorePlan,
        entry: &TableEntry,
        watcher: &mut dyn Watcher,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let newest = entry.record.schema.version();
        for part in &entry.partitions {
            let add = read(&plan.dir, part, &mut |block, first| {
                let bytes = block.iter().map(|(key, value)| 8 + (key.len() + value.len()) as u64).sum();
                for ((key, row), index) in block.into_iter().zip(first..) {
                    let row = self.row(row, newest)?;
                    self.sum.add(&key, &row);
                    let partition = self.table.partition_of(&key)?;
                    pipeline.add(Placed { index, partition, key, row })?;
                }
                progress.add(bytes);
                watcher.rows(pipeline.done().rows);
                match pipeline.trouble() {
                    Some(trouble) => Err(trouble.failure.clone()),
                    None if watcher.stopped() => Err(Failure::failed("stopped")),
                    None => Ok(()),
                }
            });
            add.map_err(|broken| broken.failure(&plan.dir, part))?;
        }
        Ok(())
    }

    /// A row as the table has it now.
    fn row(&self, row: Bytes, newest: u32) -> Result<Bytes, Failure> {
        let Some(now) = self.versions else { return Ok(row) };
        let of = if row_version(&row) == Some(newest) { now } else { 1 };
        let row = with_row_version(&row, of).map(Bytes::from);
        row.ok_or_else(|| Failure::failed(format!("a row of `{}` is none", self.table.name())))
    }
}

/// Reads the table back: what is there must come to what was loaded.
fn compare(
    client: &mut Client,
    wanted: &Sum,
    table: &Table,
    watcher: &mut dyn Watcher,
) -> Result<(), Failure> {
    watcher.phase("comparing", None);
    let mut sum = Sum::default();
    for found in client.scan(table, client::ScanOptions { ordered: false, ..Default::default() }) {
        let found = found?;
        sum.add(&found.key, &found.stored);
        watcher.rows(sum.rows);
    }
    if sum == *wanted {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "table `{}` has {} rows with digest {}, the backup {} with {}; does anybody write to it?",
        table.name(),
        sum.rows,
        String::from(Hex(sum.digest)),
        wanted.rows,
        String::from(Hex(wanted.digest))
    )))
}

/// The next numbers of columns whose rows are numbered, and of sequences, by the former id.
pub(super) struct Numbers(BTreeMap<i64, Vec<(i64, i64)>>);

impl Numbers {
    fn read(plan: &RestorePlan, found: &Manifest) -> Result<Numbers, Failure> {
        let mut numbers: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        let Some(entry) = found.tables.iter().find(|table| table.record.name == SEQUENCES) else {
            return Ok(Numbers(numbers));
        };
        let table = Table::new(std::sync::Arc::new(entry.record.clone()));
        for part in &entry.partitions {
            let take = read(&plan.dir, part, &mut |block, _| {
                for (key, stored) in block {
                    let row = table.decode(&key, &stored)?;
                    if let [Value::Int(of), Value::Int(column), Value::Int(next)] = row.values[..] {
                        numbers.entry(of).or_default().push((column, next));
                    }
                }
                Ok(())
            });
            take.map_err(|broken| broken.failure(&plan.dir, part))?;
        }
        Ok(Numbers(numbers))
    }

    /// Has numbers of a table's columns, or of the sequence that it is, go on where they were, under its id
    /// of now. Another table may have counted them.
    pub(super) fn give_all(
        &self,
        client: &mut Client,
        record: &TableRecord,
        id: TableId,
    ) -> Result<(), Failure> {
        self.give(client, record.id, |column| Some((id, column)))?;
        for (at, column) in record.schema.columns().iter().enumerate() {
            let Some((table, counted)) = column.rules.counter else { continue };
            let own = |column: i64| (column == i64::from(counted)).then_some((id, at as i64));
            self.give(client, TableId(table), own)?;
        }
        Ok(())
    }

    /// Makes numbers go on where they were, under the table and the column that `to` says; `None`: not these.
    fn give(
        &self,
        client: &mut Client,
        from: TableId,
        to: impl Fn(i64) -> Option<(TableId, i64)>,
    ) -> Result<(), Failure> {
        let Some(numbers) = self.0.get(&i64::from(from.0)) else { return Ok(()) };
        let counters = client.wait_table(SEQUENCES)?;
        for (column, next) in numbers {
            let Some((table, column)) = to(*column) else { continue };
            let of = Value::Int(i64::from(table.0));
            client.put(&counters, &Row::new(vec![of, Value::Int(column), Value::Int(*next)]))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::policy::Standby;

    #[test]
    fn a_table_is_made_as_it_was_also_with_fewer_copies() {
        let mut record = crate::testing::table(4).record().clone();
        (record.policy.standby, record.policy.min_in_sync) = (Standby::Cold, 3);
        let spread = serde_json::json!(types::Scheme::Spread);
        record.unknown.insert(types::config::TableRecord::SCHEME.into(), spread);
        let same = request(&record, "t", None);
        assert_eq!(same.scheme, types::Scheme::Spread);
        assert_eq!((same.partitions, same.factor, same.min_in_sync), (4, Some(3), Some(3)));
        assert_eq!(same.standby, Some(Standby::Cold));
        let fewer = request(&record, "t", Some(2));
        assert_eq!((fewer.factor, fewer.min_in_sync, fewer.standby), (Some(2), None, Some(Standby::Cold)));
    }

    #[test]
    fn a_table_is_made_with_counters_of_its_own_and_is_not_held() {
        use types::data::{Column, ColumnType, Identity, Rules};
        let mut record = crate::testing::table(4).record().clone();
        let rules = Rules { identity: Some(Identity::Always), counter: Some((3, 0)), ..Rules::default() };
        let columns = vec![Column::new("id", ColumnType::Int).with(rules).not_null()];
        record.schema = Schema::new(columns, &["id"], 1, false).expect("valid");
        record.policy.moves = Some(types::Moves { number: TableId(9), into: None, closed: false });
        let made = request(&record, "t", None).schema;
        assert_eq!(made.columns()[0].rules.counter, None);
        assert!(made.columns()[0].rules.identity.is_some() && made.key() == record.schema.key());
    }
}
