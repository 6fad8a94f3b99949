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
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;
use types::data::constraint::Constraint;
use types::data::{Column, Schema, Standing};
use types::{CatalogTable, TableId};
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
    let call = handle.database_record()?.transact(changes.clone(), Vec::new(), None).within(CALL);
    if let Err(failure) = fault::decided(handle.call(call).await)
        && !(fault::is_unknown(&failure) && are_done(handle, &changes).await)
    {
        return Err(failure);
    }
    finished(handle).await?;
    built(handle, indexes).await;
    Ok(())
}

/// Has the other partitions get what was changed in the first one. The error: they do not have it yet, and it
/// is done all the same.
pub async fn finished(handle: &Handle) -> Result<(), Failure> {
    handle.outdate();
    level(handle).await.map_err(unfinished)
}

/// What is said of what is done, and not in all partitions yet.
fn unfinished(why: Failure) -> Failure {
    let hint = "the first partition has it, and the others get it from whoever uses them";
    let message = format!("the change is not in every partition yet: {}", why.message);
    // It is not to be done again, as a client does what ends with a code of this class.
    let code = if why.code.starts_with("40") { NOT_READY } else { why.code };
    Failure::new(code, message).hint(hint)
}

/// True if it is sure that an entry with these changes was made of which nobody has said so. That it was not
/// nobody can see, as it may still come. Where transactions are global a change is done when it is secured,
/// and that is not seen here (PR-362).
pub async fn are_done(handle: &Handle, changes: &[TableChange]) -> bool {
    if handle.is_global() {
        return false;
    }
    let looked = handle.seeing(None).look().await;
    looked.is_ok_and(|catalog| {
        let known = |id: TableId| catalog.all().chain(catalog.definitions()).find(|known| known.id == id);
        are_shown(changes, |id| known(id).map(|known| known.schema.version()))
    })
}

/// True if tables show that these changes were made: all of them in one entry, so one is enough that has made
/// or altered a table, under a number that was given out for it alone. `version` is what tables have now.
pub fn are_shown(changes: &[TableChange], version: impl Fn(TableId) -> Option<u32>) -> bool {
    changes.iter().any(|change| {
        let (TableChange::Create(to) | TableChange::Alter { to, .. }) = change else { return false };
        to.read::<CatalogTable>().is_ok_and(|to| version(to.id) == Some(to.schema.version()))
    })
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

/// Waits a moment until these indexes are built, by their numbers: what the next statement says may rest on
/// them. The change is done, whatever becomes of this.
pub async fn built_soon(handle: &Handle, numbers: &BTreeSet<u32>) {
    let (handle, deadline) = (handle.seeing(None), Instant::now() + LONGEST_BUILD);
    while !numbers.is_empty() && Instant::now() < deadline {
        let Ok(catalog) = handle.look().await else { return };
        let is_being_built =
            |one: &Constraint| numbers.contains(&one.number) && one.standing == Standing::Building;
        if !catalog.all().any(|table| table.schema.constraints().iter().any(is_being_built)) {
            return;
        }
        tokio::time::sleep(BUILD_POLL_INTERVAL).await;
    }
}

/// Brings all partitions of the session's database to what the first one has of tables (PR-170), and the
/// transaction manager where transactions are global.
pub async fn level(handle: &Handle) -> Result<(), Failure> {
    match handle.spread() {
        None => Ok(()),
        Some(database) => {
            let id = database.id();
            handle.levelled(id, on_a_client(handle, move |client| client.level(&database))).await
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use types::data::ColumnType;
    use wire::RecordText;

    #[test]
    fn nobody_is_told_to_do_again_what_is_done() {
        for why in [fault::stale(), fault::conflict(), Failure::new("40003", "it is not known")] {
            let told = unfinished(why.clone());
            assert_eq!(told.code, NOT_READY);
            assert!(told.message.ends_with(&why.message) && !fault::is_stale(&told), "{told:?}");
        }
        assert_eq!(unfinished(Failure::new("53100", "the disk is full")).code, "53100");
    }

    #[test]
    fn what_is_not_known_to_be_done_is_done_if_a_table_has_a_number_that_was_given_out_for_it() {
        let table = |id: u32, version: u32| {
            let schema = Schema::new(vec![Column::new("id", ColumnType::Int)], &["id"], 1, false);
            let mut parts = schema.expect("valid").into_parts();
            parts.version = version;
            let schema = Schema::from_parts(parts).expect("valid");
            RecordText::new(&CatalogTable::new(TableId(id), "t", schema, 0))
        };
        let made = TableChange::Create(table(7, 1));
        let altered = TableChange::Alter { from: 3, to: table(5, 90) };
        let dropped = TableChange::Drop { table: TableId(4), schema: 2 };
        let shown = |changes: &[&TableChange], id: u32, version: u32| {
            let changes: Vec<TableChange> = changes.iter().map(|change| (*change).clone()).collect();
            are_shown(&changes, |asked| (asked == TableId(id)).then_some(version))
        };
        assert!(shown(&[&made], 7, 1));
        assert!(shown(&[&dropped, &altered, &made], 5, 90), "all in one entry");
        assert!(!shown(&[&altered], 5, 3), "it may still come");
        assert!(!shown(&[&altered], 5, 91), "somebody has altered it since, or instead");
        assert!(!shown(&[&made], 8, 1));
        assert!(!shown(&[&dropped], 4, 3), "anybody may have dropped it");
    }
}
