//! `database`, and tables that are in one.

use crate::args::cluster::{EngineArg, LogArg, TransactionsArg};
use crate::args::database::{CreateDatabase, DatabaseCommand};
use crate::connect::Context;
use crate::out::counted;
use client::{ClientError, Table};
use ops::design::Choices;
use ops::{Failure, survive};
use serde::Serialize;
use types::data::{Column, Schema, parse_columns};
use types::database::SHARED;
use types::policy::Below;
use types::{EngineKind, LogKind, Policy, Ranges, Ship, TableRecord};
use wire::RecordText;
use wire::control::{AdminCommand, AlterTable, CreateTable};

/// A database in one object.
#[derive(Serialize)]
struct Shown {
    database: String,
    id: u32,
    partitions: u32,
    first_partition: u32,
    policy: String,
    factor: u8,
    min_in_sync: u8,
    below: Below,
    engine: EngineKind,
    log: LogKind,
    ship: Ship,
    survives: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    partition_by: Vec<String>,
    /// The lowest value of each partition behind the first one. Empty: a hash spreads the rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ranges: Vec<String>,
    /// How far a transaction reaches: `partition` or `global`.
    transactions: &'static str,
}

impl Shown {
    fn new(record: &TableRecord) -> Shown {
        let policy = &record.policy;
        Shown {
            database: record.name.clone(),
            id: record.id.0,
            partitions: record.partitions,
            first_partition: record.first_partition.0,
            policy: policy.name.clone(),
            factor: policy.factor,
            min_in_sync: policy.min_in_sync,
            below: policy.below,
            engine: record.engine,
            log: record.log,
            ship: record.ship,
            survives: survive::survives(policy, policy.factor.into(), record.is_global()),
            partition_by: record.partition_key().iter().map(|column| column.name.clone()).collect(),
            ranges: record.ranges.values(),
            transactions: if record.is_global() { "global" } else { "partition" },
        }
    }
}

impl Shown {
    fn words(&self) -> String {
        let Shown { database, policy, survives, .. } = self;
        let copies = counted(self.factor.into(), "copy", "copies");
        let spread = match self.partitions {
            1 => "one partition".to_string(),
            several if self.transactions == "global" => {
                format!("{several} partitions, with transactions over all of them")
            }
            several => {
                let at = if self.ranges.is_empty() { "" } else { ", from " };
                format!(
                    "{several} partitions by ({}){at}{}",
                    self.partition_by.join(", "),
                    self.ranges.join(", ")
                )
            }
        };
        let ship = if self.ship.is_effects() { "" } else { "; calls are shipped" };
        format!(
            "database {database}: {spread}, {copies}, policy {policy}; an acknowledged commit {survives}{ship}"
        )
    }
}

/// `database ...`
pub fn run(command: DatabaseCommand, context: &mut Context) -> Result<(), Failure> {
    match command {
        DatabaseCommand::Create(args) => create(&args, context),
        DatabaseCommand::List => list(context),
        DatabaseCommand::Alter { name, policy, factor, min_in_sync, available, strict, standby, ship } => {
            let request = AlterTable {
                name,
                policy,
                factor,
                min_in_sync,
                available: (available || strict).then_some(available),
                standby: standby.map(Into::into),
                ship: ship.map(Into::into),
                ..AlterTable::default()
            };
            alter(request, context)
        }
        DatabaseCommand::Drop { name, yes } => drop(name, yes, context),
    }
}

fn create(args: &CreateDatabase, context: &mut Context) -> Result<(), Failure> {
    let (scheme, placement) = super::table::placement(args.placement.as_deref())?;
    let choices = Choices {
        partition_by: None,
        open: false,
        partitions: args.partitions,
        factor: args.factor.or_else(|| placement.first().map(|copies| copies.len() as u8)),
        policy: args.policy.clone(),
        min_in_sync: args.min_in_sync,
        available: args.available,
        engine: match args.engine {
            EngineArg::Lsm => EngineKind::Lsm,
            EngineArg::Memory => EngineKind::Memory,
        },
        log: match args.log {
            LogArg::Disk => LogKind::Disk,
            LogArg::Memory => LogKind::Memory,
        },
        placement,
        scheme,
        standby: Some(args.standby.into()),
        failover_target_ms: None,
    };
    let mut request = choices.database(&args.name)?;
    request.ship = args.ship.into();
    if let Some(by) = &args.partition_by {
        spread(&mut request, by, args.ranges.as_deref())?;
    }
    let client = context.client()?;
    let database = match args.transactions {
        TransactionsArg::Partition => client.create_database(&request)?,
        TransactionsArg::Global => client.create_global_database(&request)?,
    };
    let shown = Shown::new(database.record());
    context.out.either(&shown, || shown.words());
    Ok(())
}

/// By which columns rows are spread, and at which bounds if not by a hash.
fn spread(request: &mut CreateTable, by: &str, bounds: Option<&str>) -> Result<(), Failure> {
    let key = partition_key(by)?;
    let schema = types::database::catalog_schema_by(&key);
    request.schema = schema.map_err(|error| Failure::usage(error.to_string()))?;
    if let (Some(bounds), Some(column)) = (bounds, key.first()) {
        request.ranges = Ranges::parse(bounds, column).map_err(Failure::usage)?;
    }
    Ok(())
}

/// The columns of a partition key. One without a type is a whole number.
fn partition_key(text: &str) -> Result<Vec<Column>, Failure> {
    let typed = text.split(',').map(|one| if one.contains(':') { one.into() } else { format!("{one}:int") });
    let read = parse_columns(&typed.collect::<Vec<_>>().join(","));
    let columns = read.map_err(|error| Failure::usage(error.to_string()))?;
    Ok(columns.into_iter().map(|(name, of)| Column::new(name, of)).collect())
}

fn list(context: &mut Context) -> Result<(), Failure> {
    let all = context.cluster_map()?.databases();
    let mut databases: Vec<Shown> = all.map(|record| Shown::new(record)).collect();
    databases.sort_by(|a, b| a.database.cmp(&b.database));
    if context.out.json {
        databases.iter().for_each(|database| context.out.object(database));
        return Ok(());
    }
    if databases.is_empty() {
        context.out.line("no databases; `understudy database create` makes one");
        return Ok(());
    }
    let text = |value: serde_json::Value| value.as_str().unwrap_or_default().to_string();
    let row = |shown: &Shown| {
        vec![
            shown.database.clone(),
            shown.partitions.to_string(),
            shown.factor.to_string(),
            format!("{} {}", shown.min_in_sync, text(serde_json::json!(shown.below))),
            shown.policy.clone(),
            text(serde_json::json!(shown.engine)),
            text(serde_json::json!(shown.log)),
            shown.ship.to_string(),
        ]
    };
    let head = ["database", "partitions", "copies", "min in sync", "policy", "engine", "log", "ship"];
    context.out.table(&head, databases.iter().map(row));
    Ok(())
}

/// Changes the policy or the copies, and waits until every partition has it.
fn alter(request: AlterTable, context: &mut Context) -> Result<(), Failure> {
    let name = request.name.clone();
    let database = context.client()?.database(&name)?.id();
    let answer = context.admin(AdminCommand::AlterDatabase(RecordText::new(&request)))?;
    let policy: Policy = ops::secured::read(&answer)?;
    let (wanted, factor) = (policy.version, usize::from(policy.factor));
    let everywhere = context.wait_for(move |map| {
        let mut records = map.partitions().filter(|record| record.table == database);
        records.all(|record| {
            let level = record.in_sync.len() == factor && record.catching_up.is_empty();
            level && record.policy.version >= wanted && record.next_policy.is_none()
        })
    })?;
    let object = serde_json::json!({ "database": name, "policy": policy, "everywhere": everywhere });
    context.out.either(&object, || {
        let rest = if everywhere { "" } else { "; it has not been taken over yet: see `understudy status`" };
        format!("database {name}: {policy}{rest}")
    });
    Ok(())
}

fn drop(name: String, yes: bool, context: &mut Context) -> Result<(), Failure> {
    let client = context.client()?;
    let database = client.database(&name)?;
    if !yes {
        let tables = client.tables_of(&database)?.len() as u64;
        return Err(Failure::refused(format!(
            "this deletes database `{name}` with {}; add --yes if that is meant",
            counted(tables, "table and all its rows", "tables and all their rows")
        )));
    }
    context.admin(AdminCommand::DropDatabase(name.clone()))?;
    let object = serde_json::json!({ "dropped": name });
    context.out.either(&object, || format!("database {name} is dropped"));
    Ok(())
}

/// A table of a database in one object.
#[derive(Serialize)]
struct ShownTable {
    table: String,
    id: u32,
    columns: String,
    key: Vec<String>,
    version: u32,
    /// All of its rows are in every partition.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replicated: bool,
}

impl ShownTable {
    fn new(database: &str, table: &Table) -> ShownTable {
        let schema = table.schema();
        let columns = schema.columns().iter().map(|column| format!("{}:{}", column.name, column.column_type));
        ShownTable {
            table: format!("{database}.{}", table.name()),
            id: table.id().0,
            columns: columns.collect::<Vec<_>>().join(","),
            key: schema.key_columns().map(|column| column.name.clone()).collect(),
            version: schema.version(),
            replicated: schema.is_replicated(),
        }
    }
}

/// `table create --database`
pub fn create_table(
    database: &str,
    name: &str,
    schema: Schema,
    context: &mut Context,
) -> Result<(), Failure> {
    let client = context.client()?;
    let known = if database == SHARED { client.shared_database()? } else { client.database(database)? };
    let schema = known.record().placed(schema).map_err(Failure::usage)?;
    let table = client.create_table_in(&known, name, schema).map_err(|error| match error {
        ClientError::NameTaken => Failure::failed(format!("table '{database}.{name}' exists already")),
        other => other.into(),
    })?;
    let shown = ShownTable::new(database, &table);
    context.out.either(&shown, || format!("table {} is in database {database}", shown.table));
    Ok(())
}

/// The tables of a database.
pub fn tables_of(database: &str, context: &mut Context) -> Result<Vec<Table>, Failure> {
    let client = context.client()?;
    let known = client.database(database)?;
    let mut tables = client.tables_of(&known)?;
    tables.retain(|table| table.schema().procedure().is_none());
    Ok(tables)
}

/// `table list --database`
pub fn list_tables(database: &str, context: &mut Context) -> Result<(), Failure> {
    let tables = tables_of(database, context)?;
    let tables: Vec<ShownTable> = tables.iter().map(|table| ShownTable::new(database, table)).collect();
    if context.out.json {
        tables.iter().for_each(|table| context.out.object(table));
        return Ok(());
    }
    let row = |shown: &ShownTable| vec![shown.table.clone(), shown.key.join(","), shown.columns.clone()];
    context.out.table(&["table", "key", "columns"], tables.iter().map(row));
    Ok(())
}

/// `table alter` of a table of a database: it gets columns. All else is the database's.
pub fn add_columns(table: &Table, request: &AlterTable, context: &mut Context) -> Result<(), Failure> {
    let columns = request.add_columns.clone();
    let others = AlterTable { add_columns: Vec::new(), ..request.clone() };
    if others != (AlterTable { name: request.name.clone(), ..AlterTable::default() }) {
        let why = "policy, copies and standby are the database's: use `understudy database alter`";
        return Err(Failure::usage(why));
    }
    let wrong = |why: String| ClientError::Data { table: request.name.clone(), why };
    let altered = context.client()?.alter_table_in(table, |table| {
        let mut schema = table.schema().clone();
        for column in &columns {
            schema = schema.with_column(column.clone()).map_err(|error| wrong(error.to_string()))?;
        }
        Ok((table.name().to_string(), schema))
    })?;
    let database = request.name.split_once('.').map_or(SHARED, |(database, _)| database);
    let shown = ShownTable::new(database, &altered);
    context.out.either(&shown, || format!("table {}: {}", shown.table, shown.columns));
    Ok(())
}
