//! `table`.

use super::follow::{Steps, follow};
use crate::args::cluster::{CreateOptions, EngineArg, LogArg, TableCommand};
use crate::connect::Context;
use crate::out::counted;
use client::Map;
use ops::design::{Choices, parse_placement};
use ops::{Failure, survive};
use serde::Serialize;
use std::path::Path;
use types::data::{Column, parse_columns};
use types::database::SHARED;
use types::policy::Below;
use types::{EngineKind, LogKind, NodeId, Policy, Scheme, TableRecord};
use wire::RecordText;
use wire::control::{AdminCommand, AlterTable};

/// A table in one object.
#[derive(Serialize)]
struct Shown {
    table: String,
    id: u32,
    columns: String,
    key: Vec<String>,
    partition_by: usize,
    partitions: u32,
    first_partition: u32,
    policy: String,
    factor: u8,
    min_in_sync: u8,
    below: Below,
    engine: EngineKind,
    log: LogKind,
    survives: String,
    /// Milliseconds that a failover may replay, if that is bounded.
    failover_target_ms: Option<u64>,
}

impl Shown {
    fn new(record: &TableRecord) -> Shown {
        let schema = &record.schema;
        let columns = schema.columns().iter().map(|column| format!("{}:{}", column.name, column.column_type));
        let policy = &record.policy;
        Shown {
            table: record.name.clone(),
            id: record.id.0,
            columns: columns.collect::<Vec<_>>().join(","),
            key: schema.key_columns().map(|column| column.name.clone()).collect(),
            partition_by: schema.partition_by(),
            partitions: record.partitions,
            first_partition: record.first_partition.0,
            policy: policy.name.clone(),
            factor: policy.factor,
            min_in_sync: policy.min_in_sync,
            below: policy.below,
            engine: record.engine,
            log: record.log,
            survives: survive::survives(policy, policy.factor.into(), record.is_global()),
            failover_target_ms: record.failover_target_ms,
        }
    }

    fn words(&self) -> String {
        format!(
            "table {}: {}, {} each, policy {}; an acknowledged commit {}",
            self.table,
            counted(self.partitions.into(), "partition", "partitions"),
            counted(self.factor.into(), "copy", "copies"),
            self.policy,
            self.survives
        )
    }
}

/// `table ...`
pub fn run(command: TableCommand, context: &mut Context) -> Result<(), Failure> {
    match command {
        TableCommand::Create { name, columns, key, database, options } => {
            let choices = choices(&options)?;
            if let Some(database) = database {
                return super::database::create_table(
                    &database,
                    &name,
                    choices.schema(&columns, &key)?,
                    context,
                );
            }
            let request = choices.table(&name, choices.schema(&columns, &key)?)?;
            let table = context.client()?.create_table(&request)?;
            let shown = Shown::new(table.record());
            context.out.either(&shown, || shown.words());
            Ok(())
        }
        TableCommand::List { database: Some(database) } => super::database::list_tables(&database, context),
        TableCommand::List { database: None } => list(context),
        TableCommand::Alter {
            name,
            policy,
            factor,
            min_in_sync,
            available,
            strict,
            standby,
            failover_target,
            add_column,
        } => {
            let standby = standby.map(Into::into);
            let available = (available || strict).then_some(available);
            let add_columns = new_columns(add_column.as_deref())?;
            alter(
                AlterTable {
                    name,
                    policy,
                    factor,
                    min_in_sync,
                    available,
                    standby,
                    failover_target_ms: failover_target,
                    add_columns,
                    ..AlterTable::default()
                },
                context,
            )
        }
        TableCommand::Drop { name, yes } => drop_table(name, yes, context),
    }
}

fn list(context: &mut Context) -> Result<(), Failure> {
    let mut tables: Vec<Shown> = context.cluster_map()?.tables().map(|record| Shown::new(record)).collect();
    tables.sort_by(|a, b| a.table.cmp(&b.table));
    if context.out.json {
        tables.iter().for_each(|table| context.out.object(table));
        return Ok(());
    }
    let shared = match context.cluster_map()?.database(SHARED).is_some() {
        true => super::database::tables_of(SHARED, context)?,
        false => Vec::new(),
    };
    if tables.is_empty() && shared.is_empty() {
        context.out.line("no tables; `understudy table create` or `understudy load --create` makes one");
        return Ok(());
    }
    let head = ["table", "key", "partitions", "copies", "min in sync", "policy", "engine", "log", "columns"];
    let text = |value: serde_json::Value| value.as_str().unwrap_or_default().to_string();
    let row = |table: &Shown| {
        vec![
            table.table.clone(),
            table.key.join(","),
            table.partitions.to_string(),
            table.factor.to_string(),
            format!("{} {}", table.min_in_sync, text(serde_json::json!(table.below))),
            table.policy.clone(),
            text(serde_json::json!(table.engine)),
            text(serde_json::json!(table.log)),
            table.columns.clone(),
        ]
    };
    if !tables.is_empty() {
        context.out.table(&head, tables.iter().map(row));
    }
    if !shared.is_empty() {
        let so_many = counted(shared.len() as u64, "table lies", "tables lie");
        context.out.line(format!("{so_many} together in one partition: `table list --database {SHARED}`"));
    }
    Ok(())
}

/// Columns to be added.
fn new_columns(text: Option<&str>) -> Result<Vec<Column>, Failure> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let columns = parse_columns(text).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(columns.into_iter().map(|(name, of)| Column::new(name, of)).collect())
}

/// Changes the policy, the copies or the columns, and waits until every partition has it: before that the old
/// promise may still be the weaker one.
fn alter(request: AlterTable, context: &mut Context) -> Result<(), Failure> {
    let nothing = AlterTable { name: request.name.clone(), ..AlterTable::default() };
    if request == nothing {
        return Err(Failure::usage(
            "nothing is to be changed: give --policy, --factor, --min-in-sync, --available, --strict, --standby, --failover-target or --add-column",
        ));
    }
    let name = request.name.clone();
    let table = context.client()?.table(&name)?;
    if table.record().database().is_some() {
        return super::database::add_columns(&table, &request, context);
    }
    let known = request.add_columns.iter().find(|column| table.schema().column_index(&column.name).is_some());
    if let Some(column) = known {
        return Err(Failure::usage(format!("table `{name}` has a column `{}` already", column.name)));
    }
    let answer = context.admin(AdminCommand::AlterTable(RecordText::new(&request)))?;
    let policy: Policy = ops::secured::read(&answer)?;
    if request.factor.is_some() {
        let copies = counted(policy.factor.into(), "copy", "copies");
        follow(context, &format!("table {name} is to have {copies} of each partition"), |map| {
            copying(map, &name)
        })?;
    }
    let (wanted, table) = (policy.version, name.clone());
    let everywhere = context.wait_for(move |map| {
        let Some(table) = map.table(&table) else { return true };
        let records = map.partitions().filter(|record| record.table == table.id);
        records.into_iter().all(|record| record.policy.version >= wanted && record.next_policy.is_none())
    })?;
    let object = serde_json::json!({ "table": name, "policy": policy, "everywhere": everywhere });
    context.out.either(&object, || {
        let rest = if everywhere {
            ""
        } else {
            "; some partitions have not taken it over yet: see `understudy status`"
        };
        format!("table {name}: {policy}{rest}")
    });
    Ok(())
}

/// What is left to do until the table has as many copies as it is to have, and its partitions say so.
fn copying(map: &Map, name: &str) -> Steps {
    let Some(table) = map.table(name) else { return Steps { left: 0, says: String::new() } };
    let (mut there, mut coming, mut going) = (0, 0, 0);
    for (partition, row) in table.partition_ids().zip(&table.placement) {
        let Some(record) = map.partition(partition) else { continue };
        coming += row.len().saturating_sub(record.in_sync.len());
        going += record.members().count().saturating_sub(row.len());
        let says_so = record.policy.version >= table.policy.version && record.next_policy.is_none();
        let level = record.in_sync.len() == row.len() && record.catching_up.is_empty();
        there += usize::from(says_so && level);
    }
    let all = table.partitions as usize;
    let says = format!("{there} of {all} partitions have them, {coming} copies to come, {going} to go");
    Steps { left: all - there, says }
}

fn drop_table(name: String, yes: bool, context: &mut Context) -> Result<(), Failure> {
    if !yes {
        let table = context.client()?.table(&name)?;
        return Err(Failure::refused(format!(
            "this deletes table `{name}` with all its rows in {}; add --yes if that is meant",
            counted(table.record().partitions.into(), "partition", "partitions")
        )));
    }
    match context.client()?.table(&name) {
        Ok(table) if table.record().database().is_some() => drop(context.client()?.drop_table_in(&table)?),
        // The error of a database that there is not.
        Err(error) if name.contains('.') => return Err(error.into()),
        _ => drop(context.admin(AdminCommand::DropTable(name.clone()))?),
    }
    context.out.either(&serde_json::json!({ "dropped": name }), || format!("table {name} is dropped"));
    Ok(())
}

/// The scheme, or the nodes of each partition, that `--placement` says.
pub fn placement(said: Option<&Path>) -> Result<(Scheme, Vec<Vec<NodeId>>), Failure> {
    let Some(path) = said else { return Ok((Scheme::default(), Vec::new())) };
    // A name of ours is no file: for one that is called so there is `./spread`.
    if let Some(scheme) = path.to_str().and_then(|name| Scheme::parse(name).ok()) {
        return Ok((scheme, Vec::new()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::not_found(format!(
            "there is no file {0}, and {0} is no scheme of placement",
            path.display()
        )),
        _ => Failure::io(path.display(), &error),
    })?;
    Ok((Scheme::default(), parse_placement(&text)?))
}

/// A new table's options.
pub fn choices(options: &CreateOptions) -> Result<Choices, Failure> {
    let (scheme, placement) = placement(options.placement.as_deref())?;
    Ok(Choices {
        partition_by: options.partition_by,
        open: options.open,
        partitions: options.partitions,
        factor: options.factor.or_else(|| placement.first().map(|copies| copies.len() as u8)),
        policy: options.policy.clone(),
        min_in_sync: options.min_in_sync,
        available: options.available,
        engine: match options.engine {
            EngineArg::Lsm => EngineKind::Lsm,
            EngineArg::Memory => EngineKind::Memory,
        },
        log: match options.log {
            LogArg::Disk => LogKind::Disk,
            LogArg::Memory => LogKind::Memory,
        },
        placement,
        scheme,
        standby: Some(options.standby.into()),
        failover_target_ms: options.failover_target,
    })
}

/// Refuses writes to the cluster's own tables.
pub fn writable(name: &str) -> Result<(), Failure> {
    match types::system::is_reserved(name) {
        true => {
            Err(Failure::refused(format!("table `{name}` is written by the cluster alone; it can be read")))
        }
        false => Ok(()),
    }
}
