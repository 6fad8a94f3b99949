//! Commands on indexes.

use crate::args::data::IndexCommand;
use crate::connect::Context;
use client::index::IndexProgress;
use client::table::Table;
use ops::{Failure, Status};
use serde::Serialize;
use std::time::Duration;
use wire::RecordText;
use wire::control::{AddIndex, AdminCommand, AlterTable};

/// Between two looks at how far it is.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An index as it is shown.
#[derive(Serialize)]
struct Shown {
    table: String,
    index: String,
    columns: Vec<String>,
    state: String,
    ready_partitions: u32,
    partitions: u32,
    indexed_rows: u64,
}

impl Shown {
    fn new(table: &Table, index: &IndexProgress) -> Shown {
        Shown {
            table: table.name().into(),
            index: index.name.clone(),
            columns: index.columns.clone(),
            state: index.state(),
            ready_partitions: index.ready,
            partitions: index.partitions,
            indexed_rows: index.entries,
        }
    }
}

/// `understudy index`.
pub fn run(command: &IndexCommand, context: &mut Context) -> Result<(), Failure> {
    match command {
        IndexCommand::Create { table, columns, name, wait } => {
            create(table, columns, name.as_deref(), *wait, context)
        }
        IndexCommand::Drop { table, name } => drop(table, name, context),
        IndexCommand::List { table } => list(table.as_deref(), context),
    }
}

fn create(
    table: &str,
    columns: &[String],
    name: Option<&str>,
    wait: bool,
    context: &mut Context,
) -> Result<(), Failure> {
    let name = name.map_or_else(|| format!("{table}_{}_idx", columns.join("_")), str::to_string);
    let add_index = Some(AddIndex { name: name.clone(), columns: columns.to_vec() });
    let request = AlterTable { name: table.into(), add_index, ..AlterTable::default() };
    context.admin(AdminCommand::AlterTable(RecordText::new(&request)))?;
    let (of, wanted) = (table.to_string(), name.clone());
    context.wait_for(move |map| map.table(&of).is_none_or(|table| table.indexes.named(&wanted).is_some()))?;
    let mut progress = look(table, &name, context)?;
    while wait && !progress.is_ready() {
        if let Some((partition, why)) = &progress.failed {
            let sentence =
                format!("index {name} of table {table} failed in partition {partition}: {why}; drop it");
            return Err(Failure::new(Status::Failed, sentence));
        }
        std::thread::sleep(POLL_INTERVAL);
        progress = look(table, &name, context)?;
    }
    let known = context.client()?.table(table)?;
    let shown = Shown::new(&known, &progress);
    context.out.either(&shown, || match progress.is_ready() {
        true => format!("index {name} of table {table} is ready"),
        false => format!("index {name} of table {table} is being built; `understudy index list {table}` shows how far it is"),
    });
    Ok(())
}

fn look(table: &str, name: &str, context: &mut Context) -> Result<IndexProgress, Failure> {
    let client = context.client()?;
    let known = client.table(table)?;
    let found =
        client.indexes(&known)?.into_iter().find(|index| index.name == name && !index.columns.is_empty());
    found.ok_or_else(|| Failure::not_found(format!("index {name} of table {table} was dropped meanwhile")))
}

fn drop(table: &str, name: &str, context: &mut Context) -> Result<(), Failure> {
    let request = AlterTable { name: table.into(), drop_index: Some(name.into()), ..AlterTable::default() };
    context.admin(AdminCommand::AlterTable(RecordText::new(&request)))?;
    let object = serde_json::json!({ "table": table, "dropped": name });
    context.out.either(&object, || format!("index {name} of table {table} is dropped"));
    Ok(())
}

fn list(table: Option<&str>, context: &mut Context) -> Result<(), Failure> {
    let mut names: Vec<String> = match table {
        Some(name) => vec![name.into()],
        None => context.cluster_map()?.tables().map(|record| record.name.clone()).collect(),
    };
    names.sort();
    let mut all = Vec::new();
    for name in names {
        let client = context.client()?;
        let known = client.table(&name)?;
        if known.record().indexes.is_empty() {
            continue;
        }
        all.extend(client.indexes(&known)?.iter().map(|index| Shown::new(&known, index)));
    }
    if context.out.json {
        all.iter().for_each(|shown| context.out.object(shown));
        return Ok(());
    }
    if all.is_empty() {
        context.out.line("no indexes; `understudy index create` makes one");
        return Ok(());
    }
    let row = |shown: &Shown| {
        let (columns, rows) = (shown.columns.join(","), shown.indexed_rows.to_string());
        vec![shown.table.clone(), shown.index.clone(), columns, rows, shown.state.clone()]
    };
    context
        .out
        .table(&["table", "index", "columns", "rows indexed while building", "state"], all.iter().map(row));
    Ok(())
}
