//! Databases of several partitions: what their rows are spread by, and changes of tables that come to all of
//! them.

use crate::columns;
use crate::ddl::on_a_client;
use crate::driver::Handle;
use crate::fault;
use crate::late;
use crate::read::CALL;
use pg::Failure;
use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::time::Duration;
use tokio::time::Instant;
use types::TableId;
use types::data::{Column, Schema, Standing};
use wire::TableChange;

/// The longest text of a partition key, in bytes.
const LONGEST_KEY: usize = 1_000;
/// An index of a new table is waited for so long, and asked for so often.
const LONGEST_BUILD: Duration = Duration::from_secs(5);
const BUILD_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Something cannot be done now.
const NOT_READY: &str = "57P03";

/// The columns that rows of a database are spread by: `(w_id)`, which is a whole number, or with their types.
pub fn partition_key(text: &str) -> Result<Vec<Column>, Failure> {
    let wrong = || {
        Failure::new("22023", format!("invalid value for parameter \"partition_by\": \"{text}\"")).hint(
            "it is the columns that all primary keys begin with, as '(w_id)' or '(tenant text, year int)'",
        )
    };
    let inner = text.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).ok_or_else(wrong)?;
    // Nothing that could be an expression.
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ' ' | ',');
    if inner.len() > LONGEST_KEY || !inner.chars().all(plain) {
        return Err(wrong());
    }
    let typed = inner.split(',').map(|column| match column.split_whitespace().count() {
        1 => format!("{column} int"),
        _ => column.to_string(),
    });
    let text = format!("CREATE TABLE t ({})", typed.collect::<Vec<_>>().join(","));
    let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &text).map_err(|_| wrong())?;
    let [Statement::CreateTable(create)] = parsed.as_slice() else { return Err(wrong()) };
    let good = create.constraints.is_empty() && create.columns.iter().all(|column| column.options.is_empty());
    if !good || create.columns.is_empty() {
        return Err(wrong());
    }
    let read = |column| columns::read(column, &mut Vec::new());
    let columns = create.columns.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let bare = |column: Column| Column::new(column.name, column.column_type);
    Ok(columns.into_iter().map(bare).collect())
}

/// The option `transactions` of a database: whether they reach over all partitions.
pub fn are_global(text: &str) -> Result<bool, Failure> {
    match text {
        "global" => Ok(true),
        "partition" => Ok(false),
        _ => {
            let message = format!("invalid value for parameter \"transactions\": \"{text}\"");
            Err(Failure::new("22023", message).hint("it is partition or global"))
        }
    }
}

/// Changes tables of a database: done when all of its partitions have the change. The first one has it first,
/// and what counts is what that one says.
pub async fn enter(handle: &Handle, changes: Vec<TableChange>) -> Result<(), Failure> {
    let changes = if handle.is_global() { late::prepared(handle, changes).await? } else { changes };
    let indexes = if handle.is_global() { late::new_indexes(&changes)? } else { Vec::new() };
    let call = handle.database_record()?.transact(changes, Vec::new(), None).within(CALL);
    fault::decided(handle.call(call).await)?;
    handle.outdate();
    level(handle).await.map_err(|failure| {
        let hint = "the first partition has it, and the others get it from whoever uses them";
        let message = format!("the change is not in every partition yet: {}", failure.message);
        // It is not to be done again.
        Failure::new(if fault::is_stale(&failure) { NOT_READY } else { failure.code }, message).hint(hint)
    })?;
    built(handle, indexes).await;
    Ok(())
}

/// Waits until indexes of new tables are built in all partitions, which have no rows of these yet: what the
/// next statement says may rest on them. The change is done, whatever becomes of this.
async fn built(handle: &Handle, indexes: Vec<(TableId, u32)>) {
    let deadline = Instant::now() + LONGEST_BUILD;
    for (table, number) in indexes {
        while Instant::now() < deadline {
            match standing(handle, table, number).await {
                Ok(Standing::Building) => tokio::time::sleep(BUILD_POLL_INTERVAL).await,
                _ => break,
            }
        }
    }
}

/// Brings all partitions of the session's database to what the first one has of tables (PR-170), and the
/// transaction manager where transactions are global.
pub async fn level(handle: &Handle) -> Result<(), Failure> {
    match handle.spread() {
        None => Ok(()),
        Some(database) => on_a_client(handle, move |client| client.level(&database)).await,
    }
}

/// How far a constraint is that is valid in the first partition: it is valid if it is in all.
pub async fn standing(handle: &Handle, table: TableId, number: u32) -> Result<Standing, Failure> {
    let Some(database) = handle.spread() else { return Ok(Standing::Valid) };
    let all = on_a_client(handle, move |client| client.standings(&database, (table, number))).await?;
    if all.contains(&Some(Standing::Failed)) {
        return Ok(Standing::Failed);
    }
    match all.iter().all(|one| *one == Some(Standing::Valid)) {
        true => Ok(Standing::Valid),
        false => Ok(Standing::Building),
    }
}

/// A table's columns as the session's database has them.
pub fn placed(handle: &Handle, schema: Schema) -> Result<Schema, Failure> {
    let hint = "CREATE DATABASE has said what its rows are spread by";
    let placed = handle.database_record()?.record().placed(schema);
    placed.map_err(|why| Failure::new("42P16", why).hint(hint))
}
