//! CREATE TABLE and DROP TABLE, with the cluster's options.

use crate::bind::{folded, table_name};
use crate::columns::{self, Numbered};
use crate::constraints::define::{self, Declared};
use crate::driver::Handle;
use crate::fault;
use client::{Client, ClientError};
use pg::{Failure, code};
use sqlparser::ast::{CreateTable, CreateTableOptions, Expr, SqlOption, TableConstraint, Value as Literal};
use std::time::Duration;
use types::data::{Column, ColumnType, Identity, Rules, Schema};
use types::policy::Standby;
use types::system::SEQUENCES;
use types::{EngineKind, LogKind, Ship};
use wire::control::{AdminCommand, CreateTable as Request};

/// How long the cluster may take to make or drop a table.
const DDL_TIMEOUT: Duration = Duration::from_secs(20);
/// Partitions of a table that does not say how many: as `understudy table create` has it.
const PARTITIONS: u32 = 6;
/// The option of a table that every partition of its database has with all rows.
const REPLICATED: &str = "replicated";

/// The cluster's request for a CREATE TABLE of a table that has partitions for itself.
pub fn request(create: &CreateTable) -> Result<Request, Failure> {
    read(create, false).map(|(request, _)| request)
}

/// True if it says how the table is kept: then it has partitions for itself, where there are such tables.
pub fn is_apart(create: &CreateTable) -> bool {
    let CreateTableOptions::With(options) = &create.table_options else { return false };
    say_how(options)
}

/// What the client is told of `fillfactor`.
pub const NO_FILL: &str = "fillfactor changes nothing here: rows lie in no pages that are filled";

/// True if it says how full pages are to be.
pub fn is_filled(create: &CreateTable) -> bool {
    let CreateTableOptions::With(options) = &create.table_options else { return false };
    say_fill(options)
}

/// True if one of these options says how full pages are to be.
pub fn say_fill(options: &[SqlOption]) -> bool {
    options
        .iter()
        .any(|option| matches!(option, SqlOption::KeyValue { key, .. } if folded(key) == "fillfactor"))
}

/// True if one of these options says how a table is kept.
pub fn say_how(options: &[SqlOption]) -> bool {
    let says = |option: &SqlOption| match option {
        SqlOption::KeyValue { key, .. } => !matches!(folded(key).as_str(), "fillfactor" | REPLICATED),
        _ => true,
    };
    options.iter().any(says)
}

/// What is wrong with a CREATE TABLE, in a database's partition or outside of one.
pub fn check(create: &CreateTable, within: bool) -> Result<(), Failure> {
    read(create, within).map(drop)
}

/// The key of a table that has none: its rows are numbered, and nobody sees that.
pub(crate) fn hidden_key() -> Column {
    let rules = Rules { identity: Some(Identity::Always), hidden: true, ..Rules::default() };
    Column::new(columns::HIDDEN, ColumnType::Int).with(rules).not_null()
}

fn read(create: &CreateTable, within: bool) -> Result<(Request, Vec<Declared>), Failure> {
    refuse_rest(create)?;
    let name = table_name(&create.name)?;
    let mut key = Vec::new();
    let (mut made, mut declared) = (Vec::new(), Vec::new());
    for column in &create.columns {
        made.push(columns::read(column, &mut key)?);
        if !within {
            columns::numbered_by_cluster(column)?;
        }
        declared.extend(define::of_column(column)?);
    }
    for constraint in &create.constraints {
        declared.extend(define::of_table(constraint)?);
        let TableConstraint::PrimaryKey(primary) = constraint else { continue };
        if !key.is_empty() {
            return Err(Failure::new(
                "42P16",
                format!("multiple primary keys for table \"{name}\" are not allowed"),
            ));
        }
        for column in &primary.columns {
            match &column.column.expr {
                Expr::Identifier(column) => key.push(folded(column)),
                other => {
                    return Err(Failure::unsupported(format!("{other} in a primary key"), "name columns"));
                }
            }
        }
    }
    if !within {
        define::refuse_bare(&declared)?;
    }
    if key.is_empty() && !within {
        return Err(Failure::unsupported(
            "a table without a primary key",
            "its rows would be spread by nothing: add PRIMARY KEY, or leave WITH (...) out",
        ));
    }
    if key.is_empty() {
        let hidden = hidden_key();
        key.push(hidden.name.clone());
        made.push(hidden);
    }
    for column in &mut made {
        column.nullable &= !key.contains(&column.name);
    }
    let request = Request {
        partitions: PARTITIONS,
        ..Request::new(&name, Schema::new(made, &key, key.len(), false).map_err(invalid)?, "durable")
    };
    Ok((with_options(request, create, within)?, declared))
}

/// What WITH says, for a table in a database's partition or outside of one.
fn with_options(mut request: Request, create: &CreateTable, within: bool) -> Result<Request, Failure> {
    let options = match &create.table_options {
        CreateTableOptions::None => &[][..],
        CreateTableOptions::With(options) => options,
        other => {
            return Err(Failure::unsupported(format!("{other}"), "write options as WITH (name = value)"));
        }
    };
    for option in options {
        match option {
            SqlOption::KeyValue { key, value } if folded(key) == "fillfactor" => check_fill(value)?,
            SqlOption::KeyValue { key, value } if folded(key) == REPLICATED => {
                let mut parts = request.schema.clone().into_parts();
                parts.replicated = is_replicated(value, within)?;
                request.schema = Schema::from_parts(parts).map_err(invalid)?;
            }
            _ if within => {
                let hint = "it is kept as its database: leave WITH (...) out, or make it in the database \"understudy\"";
                return Err(Failure::unsupported("storage options of a table in a database", hint));
            }
            option => apply(option, &mut request)?,
        }
    }
    Ok(request)
}

/// What the option says. Where one transaction reaches all rows in any case it changes nothing, and a dump of
/// a database of several partitions is restored there ([`types::TableRecord::placed`]).
fn is_replicated(value: &Expr, within: bool) -> Result<bool, Failure> {
    let text = option_text(value)?;
    let wrong = || {
        let message = format!("invalid value for parameter \"{REPLICATED}\": \"{text}\"");
        Failure::new("22023", message).hint("it is true or false")
    };
    let replicated = text.parse::<bool>().map_err(|_| wrong())?;
    if replicated && !within {
        let hint = "make it in a database of several partitions: CREATE DATABASE ... WITH (partitions, partition_by)";
        return Err(Failure::unsupported("a replicated table with partitions for itself", hint));
    }
    Ok(replicated)
}

/// How full PostgreSQL fills its pages says nothing here.
fn check_fill(value: &Expr) -> Result<(), Failure> {
    let factor = option_text(value)?.parse::<u32>().ok();
    if factor.is_some_and(|factor| (10..=100).contains(&factor)) {
        return Ok(());
    }
    let message = format!("value {value} out of bounds for option \"fillfactor\"");
    Err(Failure::new("22023", message).hint("valid values are between 10 and 100"))
}

fn invalid(error: types::data::SchemaError) -> Failure {
    Failure::new("42P16", error.to_string())
}

/// A table in a database is kept as that is: the name and the columns of a CREATE TABLE there, and its
/// constraints, with these indexes behind them.
pub fn in_database(create: &CreateTable, indexes: &[Declared]) -> Result<Asked, Failure> {
    let (request, mut declared) = read(create, true)?;
    declared.extend_from_slice(indexes);
    let mut numbered = Vec::new();
    for (at, column) in create.columns.iter().enumerate() {
        numbered.extend(columns::numbered(column)?.map(|by| (at, by)));
    }
    Ok((request.name, request.schema, declared, numbered))
}

/// A table that is asked for: its name, its columns, its constraints, and which columns are numbered, how.
pub type Asked = (String, Schema, Vec<Declared>, Vec<(usize, Numbered)>);

/// One option of WITH.
pub(crate) fn apply(option: &SqlOption, request: &mut Request) -> Result<(), Failure> {
    let SqlOption::KeyValue { key, value } = option else {
        return Err(Failure::unsupported(format!("the option {option}"), "write name = value"));
    };
    let (name, text) = (folded(key), option_text(value)?);
    let wrong = |expected: &str| {
        let message = format!("invalid value for parameter \"{name}\": \"{text}\"");
        Failure::new("22023", message).hint(format!("it is {expected}"))
    };
    let number = || text.parse::<u32>().map_err(|_| wrong("a whole number"));
    match name.as_str() {
        "engine" => {
            request.engine = EngineKind::by_name(&text).ok_or_else(|| wrong("lsm or memory"))?;
        }
        "log" => {
            request.log = match text.as_str() {
                "disk" => LogKind::Disk,
                "memory" => LogKind::Memory,
                _ => return Err(wrong("disk or memory")),
            }
        }
        "policy" => request.policy = text,
        "partitions" => request.partitions = number()?,
        "factor" => request.factor = Some(u8::try_from(number()?).map_err(|_| wrong("1 to 7"))?),
        "min_in_sync" => request.min_in_sync = Some(u8::try_from(number()?).map_err(|_| wrong("1 to 7"))?),
        "available" => request.available = text.parse().map_err(|_| wrong("true or false"))?,
        "partition_by" => {
            let mut parts = request.schema.clone().into_parts();
            parts.partition_by = number()? as usize;
            request.schema = Schema::from_parts(parts).map_err(invalid)?;
        }
        "standby" => request.standby = Some(standby(&text).ok_or_else(|| wrong("hot or cold"))?),
        "ship" => request.ship = Ship::by_name(&text).ok_or_else(|| wrong("effects or calls"))?,
        "failover_target" => {
            let target = target(&text).ok_or_else(|| wrong("a time, as 500ms, or none"))?;
            request.failover_target_ms = Some(target);
        }
        _ => {
            let hint = "the options are engine, log, policy, partitions, partition_by, factor, min_in_sync, available, standby and failover_target, and of a database ship, ranges and transactions";
            return Err(Failure::new("22023", format!("unrecognized parameter \"{name}\"")).hint(hint));
        }
    }
    Ok(())
}

/// Milliseconds, from `500ms` or `2s`; 0 from `none`.
pub(crate) fn target(text: &str) -> Option<u64> {
    if text == "none" {
        return Some(0);
    }
    let (digits, factor) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    digits.trim_end().parse::<u64>().ok()?.checked_mul(factor)
}

/// What backups do, by its name.
pub(crate) fn standby(text: &str) -> Option<Standby> {
    match text {
        "hot" => Some(Standby::Hot),
        "cold" => Some(Standby::Cold),
        _ => None,
    }
}

pub(crate) fn option_text(value: &Expr) -> Result<String, Failure> {
    Ok(match value {
        Expr::Identifier(word) => folded(word),
        Expr::Value(value) => match &value.value {
            Literal::Number(digits, _) => digits.clone(),
            Literal::SingleQuotedString(text) => text.clone(),
            Literal::Boolean(truth) => truth.to_string(),
            other => return Err(Failure::new(code::SYNTAX, format!("syntax error at \"{other}\""))),
        },
        other => return Err(Failure::new(code::SYNTAX, format!("syntax error at \"{other}\""))),
    })
}

fn refuse_rest(create: &CreateTable) -> Result<(), Failure> {
    let found = [
        (create.or_replace, "CREATE OR REPLACE TABLE"),
        (create.temporary || create.on_commit.is_some(), "a temporary table"),
        (create.query.is_some(), "a query behind columns with types"),
        (create.like.is_some() || create.clone.is_some(), "this form of CREATE TABLE ... LIKE"),
        (create.inherits.is_some(), "INHERITS"),
        (create.partition_by.is_some() || create.partition_of.is_some(), "PARTITION BY"),
        (create.external || create.global.is_some() || create.transient, "this kind of table"),
        (create.columns.is_empty(), "a table without columns"),
    ];
    match found.iter().find(|(there, _)| *there) {
        Some((_, what)) => Err(Failure::unsupported(
            *what,
            "write CREATE TABLE name (columns, PRIMARY KEY (columns)) WITH (partitions = 6, ...)",
        )),
        None => Ok(()),
    }
}

/// Makes a table, and waits until all its partitions serve and this node knows it.
pub async fn create(handle: &Handle, request: Request, if_not_exists: bool) -> Result<(), Failure> {
    let name = request.name.clone();
    if handle.look().await?.has_relation(&name) {
        if if_not_exists {
            return Ok(());
        }
        return Err(Failure::new("42P07", format!("relation \"{name}\" already exists")));
    }
    if types::system::is_reserved(&name) {
        return Err(Failure::new("42939", format!("the name \"{name}\" is reserved"))
            .hint(format!("names that begin with {} are the cluster's own", types::system::PREFIX)));
    }
    let numbered = request.schema.columns().iter().any(|column| column.rules.identity.is_some());
    let made = on_a_client(handle, move |client| {
        if numbered {
            counters(client)?;
        }
        client.create_table(&request).map(drop)
    });
    match made.await {
        // Somebody else was faster.
        Err(failure) if fault::is_taken(&failure) && !if_not_exists => {
            return Err(Failure::new("42P07", format!("relation \"{name}\" already exists")));
        }
        Err(failure) if !fault::is_taken(&failure) => return Err(failure),
        _ => {}
    }
    handle.bare().wait_catalog(|catalog| catalog.table(&name).is_some()).await;
    Ok(())
}

/// Makes the table that numbers rows, unless it is there.
pub(crate) fn counters(client: &mut Client) -> Result<(), ClientError> {
    // A table that is not there is not waited for.
    match client.table(SEQUENCES) {
        Ok(_) => return client.wait_table(SEQUENCES).map(drop),
        Err(ClientError::NoTable(_)) => {}
        Err(error) => return Err(error),
    }
    let nodes = client.cluster_map().nodes().count();
    let made = client.create_table(&Request::system(SEQUENCES, nodes).expect("a table of this version"));
    match made {
        Ok(_) => Ok(()),
        // Somebody else may have been faster.
        Err(error) => client.wait_table(SEQUENCES).map(drop).map_err(|_| error),
    }
}

/// Refuses names of tables that get the rows of others: they are read alone.
pub fn not_moving<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<(), Failure> {
    match names.into_iter().find(|name| types::system::moves(name).is_some()) {
        None => Ok(()),
        Some(name) => {
            let hint = "it goes by itself, when the table that moves into it has done so or is dropped";
            Err(Failure::new("42501", format!("permission denied for table {name}")).hint(hint))
        }
    }
}

/// Drops tables that have partitions for themselves, one after the other.
pub async fn drop_tables(handle: &Handle, names: Vec<String>, if_exists: bool) -> Result<(), Failure> {
    let handle = &handle.bare();
    let catalog = handle.catalog().ok_or_else(fault::not_ready)?;
    not_moving(&names)?;
    let missing = names.iter().find(|name| catalog.table(name).is_none());
    if let Some(name) = missing.filter(|_| !if_exists) {
        return Err(Failure::new("42P01", format!("table \"{name}\" does not exist")));
    }
    for name in names.into_iter().filter(|name| catalog.table(name).is_some()) {
        let asked = name.clone();
        let dropped =
            on_a_client(handle, move |client| client.admin(AdminCommand::DropTable(asked)).map(drop));
        match dropped.await {
            // Somebody else was faster.
            Err(failure) if failure.code == "42P01" && if_exists => {}
            done => done?,
        }
        handle.wait_catalog(|catalog| catalog.table(&name).is_none()).await;
    }
    Ok(())
}

/// Does something with a client of its own: what takes long must not keep others waiting.
pub(crate) async fn on_a_client<T: Send + 'static>(
    handle: &Handle,
    work: impl FnOnce(&mut Client) -> Result<T, ClientError> + Send + 'static,
) -> Result<T, Failure> {
    let options = client::Options { timeout: DDL_TIMEOUT, ..handle.options().clone() };
    let done = tokio::task::spawn_blocking(move || {
        Client::connect(options).and_then(|mut client| work(&mut client))
    });
    match done.await {
        Ok(done) => done.map_err(fault::of_client),
        Err(_) => Err(Failure::new(code::SHUTDOWN, "this node is going down")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failover_targets_are_times() {
        for (text, millis) in [("500ms", 500), ("2s", 2000), ("20 ms", 20), ("none", 0)] {
            assert_eq!(target(text), Some(millis), "{text}");
        }
        for wrong in ["", "500", "ms", "-1s", "5m", "99999999999999999999s"] {
            assert_eq!(target(wrong), None, "{wrong}");
        }
    }
}
