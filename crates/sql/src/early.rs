//! Constraints at the end of a statement within a transaction, as PostgreSQL looks at them.
//!
//! A partition looks at them with the write, which is at COMMIT. What is seen to be wrong before is told at
//! once, so that a client learns of it where PostgreSQL's would. Nothing rests on it: under REPEATABLE READ
//! and in large transactions COMMIT alone says so.

use crate::constraints::unique::{self, Finder};
use crate::constraints::{children, violation};
use crate::edits::Edits;
use crate::evaluate::Evaluator;
use crate::fault;
use crate::follow;
use crate::read;
use crate::txn::{After, Edit, View};
use bytes::Bytes;
use client::Table;
use pg::{Failure, code};
use types::PartitionId;
use types::data::constraint::{Constraint, Reference, Standing, Target};
use types::data::{Row, Value, decode_key};

/// Statements of more rows, and transactions that have written more, are told at COMMIT.
const MAX_EARLY_ROWS: usize = 1_000;

/// What a statement does to one table.
struct Written<'a> {
    table: &'a Table,
    partition: PartitionId,
    rows: Vec<(Bytes, Row)>,
}

/// Looks at what a statement writes, with all that follows from it.
pub async fn look(evaluator: &Evaluator, all: &[Edits], view: &View) -> Result<(), Failure> {
    let catalog = evaluator.handle.catalog().ok_or_else(fault::not_ready)?;
    let constrained = |edits: &&Edits| {
        let own = !edits.table.schema().constraints().is_empty();
        own || !children(&catalog, edits.table.id()).is_empty()
    };
    let count: usize = all.iter().map(|edits| edits.edits.len()).sum();
    if count > MAX_EARLY_ROWS || !all.iter().any(|edits| constrained(&edits)) {
        return Ok(());
    }
    let mut view = view.clone();
    for edits in all {
        follow::see(&mut view, edits)?;
    }
    for edits in all.iter().filter(constrained) {
        let Some(partition) = edits.partition else { continue };
        let mut rows = Vec::new();
        for edit in &edits.edits {
            if let After::Row(stored) = &edit.after {
                let row = edits.table.decode(&edit.key, stored).map_err(fault::of_client)?;
                rows.push((edit.key.clone(), row));
            }
        }
        let written = Written { table: &edits.table, partition, rows };
        are_unique(evaluator, &written, &view).await?;
        have_parents(evaluator, &written, &view).await?;
        are_left(evaluator, (edits, partition), &view).await?;
    }
    Ok(())
}

/// True if the transaction has written so much of the table that it is not looked through.
fn is_much(view: &View, table: &Table) -> bool {
    let (from, to) = (Bytes::new(), Bytes::new());
    view.buffer.range(table.id(), (&from, &to)).nth(MAX_EARLY_ROWS).is_some()
}

/// No row refers to one that goes. Where they refer by something else than its key, COMMIT alone says so.
async fn are_left(
    evaluator: &Evaluator,
    (edits, partition): (&Edits, PartitionId),
    view: &View,
) -> Result<(), Failure> {
    let (catalog, parent) = (evaluator.handle.catalog().ok_or_else(fault::not_ready)?, &edits.table);
    let gone: Vec<&Edit> = edits.edits.iter().filter(|edit| edit.after == After::Gone).collect();
    for (child, constraint, reference) in children(&catalog, parent.id()) {
        let key = parent.schema().key();
        let by_key = reference.parent_columns.iter().all(|at| key.contains(at));
        let looked_at = constraint.standing == Standing::Valid && reference.deferred != Some(true);
        let child = Table::new(child);
        if gone.is_empty() || !by_key || !looked_at || is_much(view, &child) {
            continue;
        }
        let finder = Finder::new(&evaluator.handle, (&child, partition), view, &constraint).await?;
        for edit in &gone {
            let values = decode_key(parent.schema(), &edit.key);
            let values = values.map_err(|error| Failure::new(code::INTERNAL, error.to_string()))?;
            let mut old = Row::new(vec![Value::Null; parent.schema().columns().len()]);
            key.iter().zip(values).for_each(|(at, value)| old.values[*at] = value);
            let mut referring = Row::new(vec![Value::Null; child.schema().columns().len()]);
            let pairs = reference.columns.iter().zip(&reference.parent_columns);
            pairs.for_each(|(own, of)| referring.values[*own] = old.values[*of].clone());
            if finder.find(&referring).await?.is_some() {
                let shown = violation::key(parent.record(), &reference.parent_columns, &old);
                let (child, parent) = (child.record(), parent.record());
                return Err(violation::still_referred(child, &constraint, parent, Some(shown)));
            }
        }
    }
    Ok(())
}

async fn are_unique(evaluator: &Evaluator, written: &Written<'_>, view: &View) -> Result<(), Failure> {
    let table = written.table;
    if is_much(view, table) {
        return Ok(());
    }
    for constraint in unique::all(table) {
        let of = (table, written.partition);
        let finder = Finder::new(&evaluator.handle, of, view, constraint).await?;
        for (key, row) in &written.rows {
            if finder.find_other(row, key).await?.is_some() {
                let columns = constraint.unique().unwrap_or_default();
                let shown = violation::key(table.record(), columns, row);
                return Err(violation::duplicate(table.record(), constraint, Some(shown)));
            }
        }
    }
    Ok(())
}

async fn have_parents(evaluator: &Evaluator, written: &Written<'_>, view: &View) -> Result<(), Failure> {
    let record = written.table.record();
    for constraint in record.schema.constraints() {
        let looked_at = constraint.standing == Standing::Valid;
        let Some(reference) = constraint.reference().filter(|_| looked_at) else { continue };
        if reference.deferred == Some(true) {
            continue;
        }
        has_parents(evaluator, written, (constraint, reference), view).await?;
    }
    Ok(())
}

async fn has_parents(
    evaluator: &Evaluator,
    written: &Written<'_>,
    (constraint, reference): (&Constraint, &Reference),
    view: &View,
) -> Result<(), Failure> {
    let catalog = evaluator.handle.catalog().ok_or_else(fault::not_ready)?;
    let Some(parent) = catalog.all().find(|table| table.id == reference.parent).cloned() else {
        return Ok(());
    };
    let parent = Table::new(parent);
    let values = |row: &Row| {
        let values: Vec<Value> = reference.columns.iter().map(|at| row.values[*at].clone()).collect();
        (!values.iter().any(Value::is_null)).then_some(values)
    };
    let rows: Vec<_> = written.rows.iter().filter_map(|(_, row)| Some((row, values(row)?))).collect();
    let mut lacks = None;
    match parent.schema().target(&reference.parent_columns) {
        Some(Target::Key(places)) => {
            let mut keys = Vec::new();
            for (row, values) in &rows {
                let key: Vec<Value> = places.iter().map(|at| values[*at].clone()).collect();
                match read::encoded_key(&parent, &key) {
                    Some(key) => keys.push(key),
                    None => lacks = Some(*row),
                }
            }
            let there = read::get_all(&evaluator.handle, &parent, written.partition, &keys, view).await?;
            let first = there.iter().position(Option::is_none);
            lacks = lacks.or(first.map(|at| rows[at].0));
        }
        Some(Target::Unique(number, _)) => {
            let by = violation::of_table(parent.record(), number)?;
            let of = (&parent, written.partition);
            let finder = Finder::new(&evaluator.handle, of, view, by).await?;
            for (row, values) in &rows {
                let mut other = Row::new(vec![Value::Null; parent.schema().columns().len()]);
                let pairs = reference.parent_columns.iter().zip(values);
                pairs.for_each(|(at, value)| other.values[*at] = value.clone());
                if finder.find(&other).await?.is_none() {
                    lacks = Some(*row);
                    break;
                }
            }
        }
        None => {}
    }
    let Some(row) = lacks else { return Ok(()) };
    let shown = violation::key(written.table.record(), &reference.columns, row);
    Err(violation::no_parent(written.table.record(), constraint, parent.record(), Some(shown)))
}
