//! What follows for rows that refer to one that goes, or that gets other values: CASCADE, SET NULL and SET
//! DEFAULT. RESTRICT has nothing follow, and the statement fails at once.
//!
//! They are statements like any others, computed one after the other over what the ones before have done, and
//! sent with the first as one write. A row that refers, and that was not seen here, has the whole write
//! refused.

use crate::bind::{Binder, Change};
use crate::catalog::Catalog;
use crate::constraints::unique::Finder;
use crate::constraints::{Replaced, children, follows, names, violation};
use crate::constraints::{define::ident, unreadable};
use crate::edits::{self, Edits};
use crate::evaluate::Evaluator;
use crate::fault;
use crate::read::Values;
use crate::txn::buffer::Written;
use crate::txn::{Buffer, Limit, View};
use crate::ty::Ty;
use crate::write;
use client::Table;
use pg::{Failure, code};
use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::data::constraint::{Action, Constraint, Reference, Standing};
use types::data::{Row, Value};
use types::{PartitionId, Position, TableId, TableRecord};

/// Where a transaction has written more rows that refer, COMMIT alone says whether RESTRICT allows it.
const MAX_WRITTEN_ROWS: usize = 1_000;

/// What a statement does, part by part, with all that follows from it, in order.
pub async fn with_all(
    evaluator: &Evaluator,
    parts: Vec<Edits>,
    values: &Values,
    view: &View,
) -> Result<Vec<Edits>, Failure> {
    let catalog = evaluator.handle.catalog().ok_or_else(fault::not_ready)?;
    let followed = |part: &Edits| !part.replaced.is_empty() && follows(&catalog, part.table.id());
    if !parts.iter().any(followed) {
        return Ok(parts);
    }
    let mut view = view.clone();
    for part in &parts {
        see(&mut view, part)?;
    }
    let mut all = parts;
    let mut at = 0;
    while at < all.len() {
        let replaced = std::mem::take(&mut all[at].replaced);
        let (parent, partition) = (all[at].table.clone(), all[at].partition);
        for (child, constraint, reference) in children(&catalog, parent.id()) {
            let foreign = (&child, &constraint, &reference);
            restricted(evaluator, (&parent, partition), foreign, &replaced, &view).await?;
            for (old, new) in &replaced {
                let Some((text, parameters)) = statement(&child, &reference, old, new.as_ref()) else {
                    continue;
                };
                let change = planned(&catalog, &text, &child, &reference)?;
                let values = Values { parameters, now: values.now };
                let edits = edits::of_change(evaluator, &change, &values, &view).await?;
                if edits.edits.is_empty() {
                    continue;
                }
                see(&mut view, &edits)?;
                all.push(edits);
            }
        }
        at += 1;
    }
    Ok(all)
}

/// The error of rows that go, or get other values, to which others refer by a foreign key with RESTRICT. It
/// is told at once, also if COMMIT alone looks at that key, and if another row gets the values.
async fn restricted(
    evaluator: &Evaluator,
    (parent, partition): (&Table, Option<PartitionId>),
    (child, constraint, reference): (&Arc<TableRecord>, &Constraint, &Reference),
    replaced: &[Replaced],
    view: &View,
) -> Result<(), Failure> {
    let of = |row: &Row| -> Vec<Value> {
        reference.parent_columns.iter().map(|at| row.values[*at].clone()).collect()
    };
    let goes = |(old, new): &&Replaced| {
        let action = if new.is_some() { reference.on_update } else { reference.on_delete };
        let old = of(old);
        let stays = old.iter().any(Value::is_null) || new.as_ref().is_some_and(|new| of(new) == old);
        action == Action::Restrict && !stays
    };
    let rows: Vec<&Row> = replaced.iter().filter(goes).map(|(old, _)| old).collect();
    let looks = constraint.standing == Standing::Valid && !view.buffer.has_more(child.id, MAX_WRITTEN_ROWS);
    let Some(partition) = partition.filter(|_| looks && !rows.is_empty()) else { return Ok(()) };
    let child = Table::new(child.clone());
    let referring: Vec<Row> =
        rows.iter().map(|row| row_with(&child, &reference.columns, of(row).into_iter())).collect();
    let finder = Finder::new(&evaluator.handle, (&child, partition), view, constraint).await?;
    let found = finder.find_all(referring.iter().map(|row| (row, None))).await?;
    let Some(at) = found.iter().position(Option::is_some) else { return Ok(()) };
    let shown = violation::key(parent.record(), &reference.parent_columns, rows[at]);
    Err(violation::still_referred(child.record(), constraint, parent.record(), Some(shown)))
}

/// Statements from here on see what this one does.
pub fn see(view: &mut View, edits: &Edits) -> Result<(), Failure> {
    let Some(partition) = edits.partition else { return Ok(()) };
    let (list, limit) = (edits.edits.clone(), view.limit(edits.table.record()));
    view.ahead().take((edits.table.id(), partition), list, (limit, None))
}

/// The statement that follows for the rows which refer to this one, with its parameters; `None`: there is
/// nothing to do.
fn statement(
    child: &TableRecord,
    reference: &Reference,
    old: &Row,
    new: Option<&Row>,
) -> Option<(String, Vec<Value>)> {
    let of = |row: &Row| reference.parent_columns.iter().map(|at| row.values[*at].clone()).collect();
    let mut parameters: Vec<Value> = of(old);
    if parameters.iter().any(Value::is_null) {
        return None;
    }
    let new: Option<Vec<Value>> = new.map(of);
    if new.as_ref() == Some(&parameters) {
        return None;
    }
    let action = if new.is_some() { reference.on_update } else { reference.on_delete };
    let names: Vec<String> =
        self::names(child, &reference.columns).iter().map(|name| ident(name).to_string()).collect();
    let table = ident(&child.name);
    let each = |of: &dyn Fn(usize, &str) -> String, between: &str| {
        let each = names.iter().enumerate().map(|(at, name)| of(at, name));
        each.collect::<Vec<_>>().join(between)
    };
    let found = each(&|at, name| format!("{name} = ${}", at + 1), " AND ");
    let set = |value: &dyn Fn(usize) -> String| {
        let set = each(&|at, name| format!("{name} = {}", value(at)), ", ");
        format!("UPDATE {table} SET {set} WHERE {found}")
    };
    let text = match (action, new) {
        (Action::None | Action::Restrict, _) => return None,
        (Action::Cascade, None) => format!("DELETE FROM {table} WHERE {found}"),
        (Action::Cascade, Some(new)) => {
            parameters.extend(new);
            set(&|at| format!("${}", names.len() + at + 1))
        }
        (Action::SetNull, _) => set(&|_| "NULL".into()),
        (Action::SetDefault, _) => set(&|_| "DEFAULT".into()),
    };
    Some((text, parameters))
}

fn planned(
    catalog: &Catalog,
    text: &str,
    child: &TableRecord,
    reference: &Reference,
) -> Result<Change, Failure> {
    let parsed = Parser::parse_sql(&PostgreSqlDialect {}, text);
    let parsed = parsed.map_err(|error| unreadable(&error.to_string()))?;
    let own = reference.columns.iter().map(|at| Some(Ty::of_column(&child.schema.columns()[*at])));
    let own: Vec<Option<Ty>> = own.collect();
    let given = if text.contains(&format!("${}", own.len() + 1)) { [&own[..], &own].concat() } else { own };
    let binder = Binder::new(catalog, &given);
    Ok(match parsed.as_slice() {
        [Statement::Delete(delete)] => binder.delete(delete)?.0,
        [Statement::Update(update)] => binder.update(update)?.0,
        _ => return Err(unreadable(text)),
    })
}

/// All of it as one write, and its tables. Each row rests on this state.
pub fn gathered(
    all: Vec<Edits>,
    since: Option<Position>,
) -> Result<(Vec<Written>, BTreeMap<TableId, Table>), Failure> {
    let (mut buffer, mut tables) = (Buffer::default(), BTreeMap::new());
    for mut edits in all {
        let Some(partition) = edits.partition else { continue };
        if edits.table.is_global() {
            buffer.spread();
        }
        if !buffer.is_empty() && !buffer.holds(partition) {
            let how = "what another part does, or follows from it, lies in another partition; a row is one";
            return Err(write::elsewhere(&edits.table, how, "a statement that writes in several partitions"));
        }
        edits.edits.iter_mut().for_each(|edit| edit.since = since);
        buffer.take((edits.table.id(), partition), edits.edits, (Limit::WRITE, None))?;
        tables.insert(edits.table.id(), edits.table);
    }
    let written = buffer.operations()?;
    match written.is_empty() {
        true => Err(Failure::new(code::INTERNAL, "a write of no rows")),
        false => Ok((written, tables)),
    }
}

/// A row of the table that has these values in these columns, and nothing else.
pub fn row_with(table: &Table, columns: &[usize], values: impl Iterator<Item = Value>) -> Row {
    let mut row = Row::new(vec![Value::Null; table.schema().columns().len()]);
    columns.iter().zip(values).for_each(|(at, value)| row.values[*at] = value);
    row
}
