//! ALTER TABLE: a table's policy and number of copies, and columns that are added to it.

use crate::bind::{folded, table_name};
use crate::catalog::Catalog;
use crate::columns;
use crate::constraining::{self, Constraining, Step};
use crate::constraints::define;
use crate::ddl::{on_a_client, option_text};
use crate::driver::Handle;
use client::{Client, ClientError};
use pg::Failure;
use sqlparser::ast::{
    AlterTable, AlterTableOperation, ColumnDef, DropBehavior, Expr, IndexColumn, SqlOption, TableConstraint,
};
use std::time::{Duration, Instant};
use types::PartitionRecord;
use types::data::{Column, Schema};
use wire::RecordText;
use wire::control::{AdminCommand, AlterTable as Request};

/// How long partitions may take to take a policy over.
const EVERYWHERE: Duration = Duration::from_secs(15);

/// A change of a table; `None`: there is nothing to change.
pub fn plan(catalog: &Catalog, alter: &AlterTable) -> Result<Option<Request>, Failure> {
    let name = table_name(&alter.name)?;
    let Some(table) = catalog.table(&name) else {
        return match alter.if_exists {
            true => Ok(None),
            false => Err(Failure::new("42P01", format!("relation \"{name}\" does not exist"))),
        };
    };
    if types::system::is_reserved(&name) {
        return Err(Failure::new("42501", format!("permission denied for table {name}"))
            .hint("it is the cluster's own"));
    }
    let mut request = Request { name, ..Request::default() };
    for operation in &alter.operations {
        match operation {
            AlterTableOperation::SetOptionsParens { options } => {
                options.iter().try_for_each(|option| set(option, &mut request))?;
            }
            AlterTableOperation::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
                let column = new_column(column_def)?;
                let known = |column: &Column| table.schema.column_index(&column.name).is_some();
                match (known(&column), if_not_exists) {
                    (true, true) => {}
                    (true, false) => {
                        let message = format!(
                            "column \"{}\" of relation \"{}\" already exists",
                            column.name, table.name
                        );
                        return Err(Failure::new("42701", message));
                    }
                    (false, _) => request.add_columns.push(column),
                }
            }
            other => {
                let hint = "what can be changed: SET (policy = ..., factor = ..., min_in_sync = ..., available = ...), and ADD COLUMN of a \
                            nullable column";
                return Err(Failure::unsupported(format!("ALTER TABLE ... {other}"), hint));
            }
        }
    }
    let nothing = Request { name: request.name.clone(), ..Request::default() };
    Ok((request != nothing).then_some(request))
}

/// Another primary key for a table.
#[derive(Clone, Debug)]
pub struct Rekey {
    /// The table's name.
    pub table: String,
    /// A table that there is not is skipped.
    pub if_exists: bool,
    /// It has one now, which goes.
    pub drops: bool,
    /// The key's columns; `None`: none that anybody sees.
    pub columns: Option<Vec<String>>,
}

impl Rekey {
    /// Why a table with or without a key cannot get this one, if so.
    pub fn fault(&self, schema: &Schema) -> Option<Failure> {
        (!self.drops && !schema.has_hidden_key()).then(|| several_keys(&self.table))
    }
}

/// The key that an ALTER TABLE gives or takes, if that is all it does.
pub fn rekeyed(catalog: &Catalog, alter: &AlterTable) -> Result<Option<Rekey>, Failure> {
    use AlterTableOperation::{AddConstraint, DropConstraint};
    let table = table_name(&alter.name)?;
    let (drop, add) = match alter.operations.as_slice() {
        [AddConstraint { constraint: TableConstraint::PrimaryKey(key), .. }] => (None, Some(key)),
        [DropConstraint { name, drop_behavior: None | Some(DropBehavior::Restrict), .. }] => {
            (Some(name), None)
        }
        [
            DropConstraint { name, drop_behavior: None | Some(DropBehavior::Restrict), .. },
            AddConstraint { constraint: TableConstraint::PrimaryKey(key), .. },
        ] => (Some(name), Some(key)),
        _ => return Ok(None),
    };
    if let Some(name) = drop {
        let known = catalog.table(&table).filter(|table| !table.schema.has_hidden_key());
        let named = format!("{}_pkey", catalog.placed(&table).1);
        if known.is_none() || !catalog.is_within(&table) || folded(name) != named {
            return Ok(None);
        }
    }
    let columns = add.map(|key| key_columns(&key.columns)).transpose()?;
    Ok(Some(Rekey { table, if_exists: alter.if_exists, drops: drop.is_some(), columns }))
}

/// The columns of a primary key.
pub fn key_columns(columns: &[IndexColumn]) -> Result<Vec<String>, Failure> {
    let column = |column: &IndexColumn| match &column.column.expr {
        Expr::Identifier(column) => Ok(folded(column)),
        other => Err(Failure::unsupported(format!("{other} in a primary key"), "name columns")),
    };
    columns.iter().map(column).collect()
}

/// The error of a second primary key for a table.
pub fn several_keys(table: &str) -> Failure {
    Failure::new("42P16", format!("multiple primary keys for table \"{table}\" are not allowed"))
}

/// The change of constraints that an ALTER TABLE is, if it is one.
pub fn changed_constraints(catalog: &Catalog, change: &AlterTable) -> Result<Option<Constraining>, Failure> {
    let read = constraining::read(change)?;
    let Some(constraining) = &read else { return Ok(None) };
    if catalog.is_within(&constraining.table) {
        return Ok(read);
    }
    let added = constraining.steps.iter().filter_map(|step| match step {
        Step::Add { declared, .. } => Some(declared.clone()),
        Step::Drop { .. } | Step::Validate(_) => None,
    });
    define::refuse_bare(&added.collect::<Vec<_>>())?;
    // What it would drop or look at is not there.
    Err(Failure::unsupported(
        "constraints of a table with partitions for itself",
        "make the table without options, or in a database (CREATE DATABASE)",
    ))
}

/// A column whose rows are there already: they have null in it.
fn new_column(definition: &ColumnDef) -> Result<Column, Failure> {
    let mut key = Vec::new();
    let column = columns::read(definition, &mut key)?;
    let hint = "rows that are there have null in it: add it without, and write them";
    let refuse =
        |what: &str| Err(Failure::unsupported(format!("{what} of the new column \"{}\"", column.name), hint));
    if !key.is_empty() {
        return refuse("a primary key");
    }
    if !define::of_column(definition)?.is_empty() {
        let what = format!("a constraint of the new column \"{}\"", column.name);
        return Err(Failure::unsupported(what, "add the column, and then ADD CONSTRAINT"));
    }
    if column.rules.identity.is_some() {
        return refuse("numbering");
    }
    if !column.nullable {
        return refuse("NOT NULL");
    }
    if column.rules.default.is_some() {
        return refuse("a default");
    }
    Ok(column)
}

/// The error of an option that is chosen when a table is created.
fn fixed(option: &str) -> Failure {
    let hint =
        "it is chosen when the table is created; copies are moved by `understudy node add` and `remove`";
    Failure::unsupported(format!("changing {option}"), hint)
}

/// One option of SET.
pub(crate) fn set(option: &SqlOption, request: &mut Request) -> Result<(), Failure> {
    let SqlOption::KeyValue { key, value } = option else {
        return Err(Failure::unsupported(format!("the option {option}"), "write name = value"));
    };
    let (name, text) = (folded(key), option_text(value)?);
    let wrong = |expected: &str| {
        let message = format!("invalid value for parameter \"{name}\": \"{text}\"");
        Failure::new("22023", message).hint(format!("it is {expected}"))
    };
    match name.as_str() {
        "policy" => request.policy = Some(text),
        "min_in_sync" => request.min_in_sync = Some(text.parse().map_err(|_| wrong("1 to 7"))?),
        "available" => request.available = Some(text.parse().map_err(|_| wrong("true or false"))?),
        "factor" => request.factor = Some(text.parse().map_err(|_| wrong("1 to 7"))?),
        "standby" => request.standby = Some(crate::ddl::standby(&text).ok_or_else(|| wrong("hot or cold"))?),
        "failover_target" => {
            let target = crate::ddl::target(&text).ok_or_else(|| wrong("a time, as 500ms, or none"))?;
            request.failover_target_ms = Some(target);
        }
        "partitions" | "partition_by" | "engine" | "log" | "placement" => {
            return Err(fixed(&name));
        }
        _ => {
            let hint = "the options that can be changed are policy, factor, min_in_sync, available, standby and \
                        failover_target";
            return Err(Failure::new("22023", format!("unrecognized parameter \"{name}\"")).hint(hint));
        }
    }
    Ok(())
}

/// Changes a table, and waits until every partition keeps the new policy and this node knows the new columns.
pub async fn alter(handle: &Handle, request: Request) -> Result<(), Failure> {
    let (name, columns) = (request.name.clone(), request.add_columns.clone());
    let everywhere = on_a_client(handle, move |client| everywhere(client, &request, false)).await?;
    handle
        .wait_catalog(|catalog| match catalog.table(&name) {
            None => true,
            Some(table) => columns.iter().all(|column| table.schema.column_index(&column.name).is_some()),
        })
        .await;
    match everywhere {
        true => Ok(()),
        false => Err(Failure::new(
            "57P03",
            format!("table \"{name}\" is changed, but some partitions have not taken it over yet"),
        )
        .hint("`understudy status` shows which; nothing has to be repeated")),
    }
}

/// Sends the request about a table, or a database. True once every partition keeps what it says: before that
/// the old promise may still be the weaker one.
pub(crate) fn everywhere(
    client: &mut Client,
    request: &Request,
    is_database: bool,
) -> Result<bool, ClientError> {
    let text = RecordText::new(request);
    let answer = client.admin(match is_database {
        true => AdminCommand::AlterDatabase(text),
        false => AdminCommand::AlterTable(text),
    })?;
    let policy = RecordText(answer).read::<types::Policy>();
    let policy = policy.map_err(|error| ClientError::Protocol(format!("the new policy: {error}")))?;
    let deadline = Instant::now() + EVERYWHERE;
    loop {
        let map = client.cluster_map();
        let found = if is_database { map.database(&request.name) } else { map.table(&request.name) };
        let Some(table) = found.map(|table| table.id) else { return Ok(true) };
        let keeps = |partition: &PartitionRecord| {
            let (copies, all) = (partition.in_sync.len(), partition.members().count());
            let there = request.factor.is_none_or(|factor| copies == all && all == usize::from(factor));
            there && partition.policy.version >= policy.version && partition.next_policy.is_none()
        };
        if map.partitions().filter(|partition| partition.table == table).all(keeps) {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        client.poll(Duration::from_millis(20))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::ast::Statement;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::parser::Parser;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use types::data::ColumnType;

    fn planned(text: &str) -> Result<Option<Request>, String> {
        let columns = vec![Column::new("id", ColumnType::Int), Column::new("name", ColumnType::Text)];
        let table = crate::catalog::example(columns);
        let catalog = Catalog::from_map(1, BTreeMap::from([("t".to_string(), Arc::new(table))]));
        let text = format!("ALTER TABLE {text}");
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &text).map_err(|error| error.to_string())?;
        let [Statement::AlterTable(alter)] = parsed.as_slice() else { panic!("{text}") };
        plan(&catalog, alter).map_err(|failure| failure.code.to_string())
    }

    #[test]
    fn policies_and_nullable_columns_are_changed_and_nothing_else() {
        let request = Request { name: "t".into(), ..Request::default() };
        let policy = Request { policy: Some("semi".into()), min_in_sync: Some(2), ..request.clone() };
        assert_eq!(planned("t SET (policy = semi, min_in_sync = 2)"), Ok(Some(policy)));
        let wider = Request { factor: Some(3), ..request.clone() };
        assert_eq!(planned("t SET (factor = 3)"), Ok(Some(wider)));
        let column = Column::new("note", ColumnType::Text);
        let added = Request { add_columns: vec![column], ..request };
        assert_eq!(planned("t ADD COLUMN note text"), Ok(Some(added.clone())));
        assert_eq!(planned("IF EXISTS t ADD note text NULL"), Ok(Some(added)));
        assert_eq!(planned("t ADD COLUMN IF NOT EXISTS name text"), Ok(None));
        assert_eq!(planned("IF EXISTS u ADD COLUMN name text"), Ok(None));
        for (text, code) in [
            ("u ADD COLUMN x text", "42P01"),
            ("t ADD COLUMN name text", "42701"),
            ("t ADD COLUMN IF NOT EXISTS ctid text", "42701"),
            ("t ADD COLUMN x text NOT NULL", "0A000"),
            ("t ADD COLUMN x int DEFAULT 1", "0A000"),
            ("t ADD COLUMN x serial", "0A000"),
            ("t ADD COLUMN x int PRIMARY KEY", "0A000"),
            ("t SET (partitions = 2)", "0A000"),
            ("t SET (factor = many)", "22023"),
            ("t SET (speed = 2)", "22023"),
            ("t SET (available = maybe)", "22023"),
            ("t DROP COLUMN name", "0A000"),
            ("t RENAME TO u", "0A000"),
            ("t ALTER COLUMN name SET NOT NULL", "0A000"),
        ] {
            assert_eq!(planned(text), Err(code.into()), "{text}");
        }
    }
}
