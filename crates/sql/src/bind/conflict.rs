//! ON CONFLICT: by what a row is met that is there, and what becomes of it.

use super::{Arbiters, Binder, Conflict, folded, parts, target_column};
use crate::catalog::Catalog;
use crate::ty::Ty;
use pg::Failure;
use sqlparser::ast::{Assignment, AssignmentTarget, ConflictTarget, Expr, OnConflictAction, OnInsert};
use std::sync::Arc;
use types::TableRecord;
use types::data::Constraint;

/// What ON CONFLICT asks for, by what, and the types of parameters as far as they are decided.
pub(super) fn conflict(
    catalog: &Catalog,
    table: &Arc<TableRecord>,
    name: &str,
    given: &[usize],
    on: Option<&OnInsert>,
    params: Vec<Option<Ty>>,
) -> Result<(Conflict, Arbiters, Vec<Option<Ty>>), Failure> {
    let on = match on {
        None => return Ok((Conflict::Fail, Arbiters { key: true, unique: Vec::new() }, params)),
        Some(OnInsert::OnConflict(on)) => on,
        Some(_) => return Err(Failure::unsupported("ON DUPLICATE KEY", "use ON CONFLICT")),
    };
    let arbiters = arbiters(catalog, table, on.conflict_target.as_ref())?;
    let update = match &on.action {
        OnConflictAction::DoNothing => return Ok((Conflict::Keep, arbiters, params)),
        OnConflictAction::DoUpdate(update) => update,
    };
    if on.conflict_target.is_none() {
        let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
        return Err(Failure::new(pg::code::SYNTAX, message));
    }
    let set: Option<Vec<usize>> = update.assignments.iter().map(|one| replaced(table, one)).collect();
    if let Some(mut set) = set.filter(|_| arbiters.unique.is_empty()) {
        set.sort_unstable();
        let all = set == table.schema.values() && set.iter().all(|column| given.contains(column));
        if all && update.selection.is_none() && !table.schema.is_open() {
            return Ok((Conflict::Replace, arbiters, params));
        }
    }
    let (upsert, params) = Binder::new(catalog, &params).upsert(table, name, update)?;
    Ok((Conflict::Update(Box::new(upsert)), arbiters, params))
}

/// What is unique by itself: the key, and what a constraint makes so.
fn arbiters(
    catalog: &Catalog,
    table: &TableRecord,
    target: Option<&ConflictTarget>,
) -> Result<Arbiters, Failure> {
    let valid = |one: &&Constraint| one.unique().is_some() && one.is_kept();
    let unique = || table.schema.constraints().iter().filter(valid);
    let of_key = || Arbiters { key: true, unique: Vec::new() };
    let named = match target {
        None => return Ok(Arbiters { key: true, unique: unique().map(|one| one.number).collect() }),
        Some(ConflictTarget::OnConstraint(name)) => {
            let name = parts(name)?.concat();
            if name == format!("{}_pkey", catalog.placed(&table.name).1) && !table.schema.has_hidden_key() {
                return Ok(of_key());
            }
            let found = unique().find(|one| one.name == name);
            let missing = || {
                let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                Failure::new("42704", message).hint("name that of the key, or a unique one")
            };
            let number = found.ok_or_else(missing)?.number;
            return Ok(Arbiters { key: false, unique: vec![number] });
        }
        Some(ConflictTarget::Columns(columns)) => {
            columns.iter().map(|name| target_column(table, &folded(name)))
        }
    };
    let mut named = named.collect::<Result<Vec<_>, _>>()?;
    named.sort_unstable();
    let is_named = |columns: &[usize]| {
        let mut columns = columns.to_vec();
        columns.sort_unstable();
        columns == named
    };
    if is_named(table.schema.key()) {
        return Ok(of_key());
    }
    match unique().find(|one| one.unique().is_some_and(is_named)) {
        Some(one) => Ok(Arbiters { key: false, unique: vec![one.number] }),
        None => {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            Err(Failure::new("42P10", message).hint("name all columns of the key, or of a unique constraint"))
        }
    }
}

/// The column of `column = EXCLUDED.column`, if it is that.
fn replaced(table: &TableRecord, assignment: &Assignment) -> Option<usize> {
    let AssignmentTarget::ColumnName(name) = &assignment.target else { return None };
    let name = parts(name).ok()?.concat();
    match &assignment.value {
        Expr::CompoundIdentifier(path) => match path.as_slice() {
            [row, value] if folded(row) == "excluded" && folded(value) == name => {
                table.schema.column_index(&name)
            }
            _ => None,
        },
        _ => None,
    }
}
