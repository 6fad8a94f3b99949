//! `backup restore`: makes the tables of a backup and loads their rows, in whatever cluster, and compares
//! what is there then.

use super::create::TableReport;
use super::manifest::{Manifest, TableEntry};
use super::verify::{self, manifest, read};
use super::{Hex, Sum};
use crate::failure::{Failure, Status};
use crate::load::Watcher;
use crate::pipeline::{Limits, Pipeline, Placed};
use crate::secured;
use client::{Client, Table};
use input::Progress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use types::ClusterId;
use types::data::{Row, Value};
use types::policy::Below;
use types::system::SEQUENCES;
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
    /// Which tables; empty: all.
    pub tables: Vec<String>,
    /// Copies, instead of as many as there were.
    pub factor: Option<u8>,
    /// Tables that are there are dropped first.
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
    /// The tables, as they are now.
    pub tables: Vec<TableReport>,
    /// Those that were there and were dropped.
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
    let tables = chosen(&found, &plan.tables)?;
    let replaced = present(client, &tables)?;
    if !replaced.is_empty() && !plan.yes {
        return Err(Failure::refused(format!(
            "{} exist already: --yes drops them with all their rows and restores what the backup has; --tables names others",
            listed(&replaced)
        )));
    }
    room(client, plan, &tables)?;
    sound(plan, watcher)?;
    let numbers = Numbers::read(plan, &found)?;
    let mut copies: Option<u8> = None;
    let mut reports = Vec::new();
    let mut rows = 0;
    for entry in tables {
        let counted = one(client, plan, entry, &replaced, &numbers, watcher)
            .map_err(|failure| failure.and(unfinished(&entry.record.name)))?;
        copies = copies.into_iter().chain(counted).min();
        reports.push(TableReport::from(entry));
        rows += entry.rows;
    }
    Ok(RestoreReport {
        dir: plan.dir.clone(),
        cluster: found.cluster,
        taken_ms: found.taken_ms,
        tables: reports,
        replaced,
        rows,
        copies,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

fn unfinished(table: &str) -> String {
    format!("table `{table}` is not complete; the restoration can be run again with --yes")
}

fn listed(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("the tables {}", names.join(", "))
}

/// The users' tables that are meant.
fn chosen<'a>(found: &'a Manifest, names: &[String]) -> Result<Vec<&'a TableEntry>, Failure> {
    let has =
        |name: &String| found.tables.iter().any(|table| table.record.name == *name && !table.is_system());
    if let Some(name) = names.iter().find(|name| !has(name)) {
        return Err(Failure::not_found(format!("the backup has no table `{name}`")));
    }
    let meant = |table: &&TableEntry| names.is_empty() || names.contains(&table.record.name);
    Ok(found.tables.iter().filter(|table| !table.is_system()).filter(meant).collect())
}

/// Those of the tables that the cluster has.
fn present(client: &mut Client, tables: &[&TableEntry]) -> Result<Vec<String>, Failure> {
    let _ = client.poll(Duration::ZERO)?;
    let names = tables.iter().map(|table| &table.record.name);
    Ok(names.filter(|name| client.cluster_map().table(name).is_some()).cloned().collect())
}

/// Refuses more copies than there are nodes before anything is dropped.
fn room(client: &mut Client, plan: &RestorePlan, tables: &[&TableEntry]) -> Result<(), Failure> {
    let status: ClusterStatus = secured::read(&client.admin(AdminCommand::Status)?)?;
    let live = status.nodes.iter().filter(|(_, age)| *age < SILENT_MS).count();
    let wants = |table: &TableEntry| plan.factor.unwrap_or(table.record.policy.factor);
    match tables.iter().find(|table| usize::from(wants(table)) > live) {
        None => Ok(()),
        Some(table) => Err(Failure::refused(format!(
            "table `{}` wants {} copies, but only {live} nodes are live; --factor {live} restores it with fewer",
            table.record.name,
            wants(table)
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
    replaced: &[String],
    numbers: &Numbers,
    watcher: &mut dyn Watcher,
) -> Result<Option<u8>, Failure> {
    let name = &entry.record.name;
    if replaced.contains(name) {
        client.admin(AdminCommand::DropTable(name.clone()))?;
        gone(client, name)?;
    }
    let table = client.create_table(&request(entry, plan.factor))?;
    add_indexes(client, entry)?;
    // Before any row: whoever adds rows meanwhile gets no number that the backup's rows have.
    numbers.give(client, entry, &table)?;
    watcher.say(&format!("restores table {name}: {} rows", entry.rows));
    let progress = Progress::new(Some(entry.partitions.iter().map(|part| part.file_bytes).sum()));
    watcher.phase("loading", Some(progress.clone()));
    let mut pipeline = Pipeline::new(client, table.clone(), plan.limits.clone(), None);
    let loaded = fill(&mut pipeline, plan, entry, &table, watcher, &progress);
    let drained = pipeline.drain();
    let (done, trouble) = pipeline.finish();
    loaded?;
    drained?;
    if let Some(trouble) = trouble {
        return Err(trouble.failure);
    }
    secured::wait(client, &table, &done.last, FOLLOW)?;
    compare(client, entry, &table, watcher)?;
    Ok(done.copies)
}

/// The request that makes the table as it was.
fn request(entry: &TableEntry, factor: Option<u8>) -> CreateTable {
    let (record, policy) = (&entry.record, &entry.record.policy);
    let copies = factor.unwrap_or(policy.factor);
    CreateTable {
        name: record.name.clone(),
        schema: record.schema.clone(),
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
    }
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

/// Waits until the cluster map does not have a table any more.
fn gone(client: &mut Client, name: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + client.timeout();
    while client.cluster_map().table(name).is_some() {
        if Instant::now() >= deadline {
            let what = format!("table `{name}` was dropped, but is still there after a while");
            return Err(Failure::new(Status::Unreachable, what));
        }
        let _ = client.poll(Duration::from_millis(20))?;
    }
    Ok(())
}

fn fill(
    pipeline: &mut Pipeline<'_, Client>,
    plan: &RestorePlan,
    entry: &TableEntry,
    table: &Table,
    watcher: &mut dyn Watcher,
    progress: &Progress,
) -> Result<(), Failure> {
    for part in &entry.partitions {
        let add = read(&plan.dir, part, &mut |block, first| {
            let bytes = block.iter().map(|(key, value)| 8 + (key.len() + value.len()) as u64).sum();
            for ((key, row), index) in block.into_iter().zip(first..) {
                let partition = table.partition_of(&key)?;
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

/// Reads the table back: what is there must come to what was there.
fn compare(
    client: &mut Client,
    entry: &TableEntry,
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
    if sum == entry.sum() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "table `{}` has {} rows with digest {}, the backup {} with {}; does anybody write to it?",
        table.name(),
        sum.rows,
        String::from(Hex(sum.digest)),
        entry.rows,
        String::from(entry.digest)
    )))
}

/// The next numbers of columns whose rows are numbered, by the table's former id.
struct Numbers(BTreeMap<i64, Vec<(i64, i64)>>);

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

    /// Makes a table's numbers go on where they were, under the id that it has now.
    fn give(&self, client: &mut Client, entry: &TableEntry, table: &Table) -> Result<(), Failure> {
        let Some(numbers) = self.0.get(&i64::from(entry.record.id.0)) else { return Ok(()) };
        let counters = client.wait_table(SEQUENCES)?;
        for (column, next) in numbers {
            let of = Value::Int(i64::from(table.id().0));
            client.put(&counters, &Row::new(vec![of, Value::Int(*column), Value::Int(*next)]))?;
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
        let entry = TableEntry::new(record, Vec::new());
        let same = request(&entry, None);
        assert_eq!(same.scheme, types::Scheme::Spread);
        assert_eq!((same.partitions, same.factor, same.min_in_sync), (4, Some(3), Some(3)));
        assert_eq!(same.standby, Some(Standby::Cold));
        let fewer = request(&entry, Some(2));
        assert_eq!((fewer.factor, fewer.min_in_sync, fewer.standby), (Some(2), None, Some(Standby::Cold)));
    }
}
