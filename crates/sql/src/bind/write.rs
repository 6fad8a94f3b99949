//! INSERT and DELETE: which rows, and what is done with those that are there.

use super::{
    Binder, Bound, Condition, Form, Scope, Slot, Source, Typed, folded, no_table, parts, table_name,
    whole_key,
};
use crate::catalog::Catalog;
use crate::ty::Ty;
use pg::Failure;
use sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, Delete, Expr, FromTable, Ident, Insert, OnConflictAction,
    OnInsert, Query, SetExpr, TableFactor, TableObject,
};
use std::sync::Arc;
use types::TableRecord;
use types::data::Value;

/// What becomes of a row whose key is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// The statement fails.
    Fail,
    /// The row stays, and the new one is passed over.
    Keep,
    /// The new row takes its place, as a whole.
    Replace,
}

/// Where the rows of an INSERT come from.
pub enum Rows {
    /// They are written in the statement.
    Slots(Vec<Vec<Slot>>),
    /// They are computed.
    Query(Box<Bound>),
}

/// An INSERT.
pub struct Insertion {
    /// Into this table.
    pub table: Arc<TableRecord>,
    /// The columns that are given; the others are null.
    pub columns: Vec<usize>,
    /// The rows.
    pub rows: Rows,
    /// If a key is there already.
    pub conflict: Conflict,
}

/// A DELETE of one row by its key.
pub struct Deletion {
    /// From this table.
    pub table: Arc<TableRecord>,
    /// Values of the key's columns.
    pub key: Vec<Slot>,
}

/// A table that may be written.
pub fn writable(catalog: &Catalog, name: &str) -> Result<Arc<TableRecord>, Failure> {
    let table = catalog.table(name).cloned().ok_or_else(|| no_table(name))?;
    match types::system::is_reserved(name) {
        true => Err(Failure::new("42501", format!("permission denied for table {name}"))
            .hint("it is written by the cluster alone; it can be read")),
        false => Ok(table),
    }
}

impl Binder<'_> {
    /// An INSERT, and the types of its parameters.
    pub fn insert(mut self, insert: &Insert) -> Result<(Insertion, Vec<Ty>), Failure> {
        refuse_rest(insert)?;
        let TableObject::TableName(name) = &insert.table else {
            return Err(Failure::unsupported("INSERT into something else than a table", "name a table"));
        };
        let table = writable(self.catalog, &table_name(name)?)?;
        let columns = target_columns(&table, insert)?;
        let conflict = conflict(&table, &columns, insert.on.as_ref())?;
        let wanted: Vec<(String, Ty)> = columns
            .iter()
            .map(|at| &table.schema.columns()[*at])
            .map(|column| (column.name.clone(), Ty::of(column.column_type)))
            .collect();
        let Some(query) = &insert.source else {
            return Err(Failure::unsupported(
                "INSERT ... DEFAULT VALUES",
                "columns have no defaults but null",
            ));
        };
        if let Some(slots) = self.plain_rows(query, &wanted)? {
            let params = self.parameter_types()?;
            return Ok((Insertion { table, columns, rows: Rows::Slots(slots), conflict }, params));
        }
        let given = self.params.clone();
        let (bound, params) = Binder::new(self.catalog, &given).whole_as(query, &wanted)?;
        Ok((Insertion { table, columns, rows: Rows::Query(Box::new(bound)), conflict }, params))
    }

    /// Rows of nothing but constants and parameters. `None`: something must be computed.
    fn plain_rows(
        &mut self,
        query: &Query,
        wanted: &[(String, Ty)],
    ) -> Result<Option<Vec<Vec<Slot>>>, Failure> {
        let plain = query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none();
        let SetExpr::Values(values) = query.body.as_ref() else { return Ok(None) };
        if !plain || query.fetch.is_some() {
            return Ok(None);
        }
        self.scopes.push(Scope::default());
        let mut rows = Vec::new();
        for row in &values.rows {
            let row: &Vec<Expr> = row;
            if row.len() != wanted.len() {
                let (more, less) = match row.len() > wanted.len() {
                    true => ("expressions", "target columns"),
                    false => ("target columns", "expressions"),
                };
                return Err(Failure::new(pg::code::SYNTAX, format!("INSERT has more {more} than {less}")));
            }
            let mut slots = Vec::new();
            for (expr, (name, ty)) in row.iter().zip(wanted) {
                let typed = match is_default(expr) {
                    true => Typed::slot(Slot::Const(Value::Null), None),
                    false => self.expr(expr)?,
                };
                match self.assigned(typed, *ty, name)?.form {
                    Form::Slot(slot) => slots.push(slot),
                    Form::Engine(_) => return Ok(None),
                }
            }
            rows.push(slots);
        }
        self.scopes.pop();
        Ok(Some(rows))
    }

    /// A DELETE of one row, and the types of its parameters.
    pub fn delete(mut self, delete: &Delete) -> Result<(Deletion, Vec<Ty>), Failure> {
        let hint = "name the whole key: DELETE FROM table WHERE key = value";
        let refuse = |what: &str| Err(Failure::unsupported(what, hint));
        if delete.returning.is_some() {
            return refuse("DELETE ... RETURNING");
        }
        if delete.using.is_some()
            || !delete.order_by.is_empty()
            || delete.limit.is_some()
            || !delete.tables.is_empty()
        {
            return refuse("this form of DELETE");
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [from] = from.as_slice() else { return refuse("DELETE from several tables") };
        let TableFactor::Table { name, .. } = &from.relation else { return refuse("this form of DELETE") };
        let table = writable(self.catalog, &table_name(name)?)?;
        self.scopes.push(Scope::default());
        self.from(std::slice::from_ref(from))?;
        let Some(selection) = &delete.selection else { return refuse("DELETE of a whole table") };
        let condition = self.condition(selection, "WHERE")?;
        let conditions: Vec<&Condition> =
            condition.conditions.iter().map(|(_, condition)| condition).collect();
        let key = self.sources.first().filter(|_| condition.exact && self.sources.len() == 1);
        let key = key.and_then(|source: &Source| whole_key(source, &conditions));
        let Some(key) = key else { return refuse("DELETE by anything but the whole key") };
        let params = self.parameter_types()?;
        Ok((Deletion { table, key }, params))
    }
}

fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(Ident { value, quote_style: None, .. }) if value.eq_ignore_ascii_case("default"))
}

fn column(table: &TableRecord, name: &str) -> Result<usize, Failure> {
    table.schema.column_index(name).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        Failure::new("42703", message)
    })
}

/// The columns that an INSERT gives; all of them if it names none.
fn target_columns(table: &TableRecord, insert: &Insert) -> Result<Vec<usize>, Failure> {
    if insert.columns.is_empty() {
        // Without names, values are for the first columns.
        let all = table.schema.columns().len();
        let given = match insert.source.as_deref().map(|query| query.body.as_ref()) {
            Some(SetExpr::Values(values)) => values.rows.first().map_or(all, |row| row.len()),
            _ => all,
        };
        return Ok((0..given.min(all)).collect());
    }
    let mut found = Vec::new();
    for name in &insert.columns {
        let name = parts(name)?.concat();
        let at = column(table, &name)?;
        if found.contains(&at) {
            return Err(Failure::new("42701", format!("column \"{name}\" specified more than once")));
        }
        found.push(at);
    }
    Ok(found)
}

/// What ON CONFLICT asks for, if it is one of the things that one write can do.
fn conflict(table: &TableRecord, given: &[usize], on: Option<&OnInsert>) -> Result<Conflict, Failure> {
    let on = match on {
        None => return Ok(Conflict::Fail),
        Some(OnInsert::OnConflict(on)) => on,
        Some(_) => return Err(Failure::unsupported("ON DUPLICATE KEY", "use ON CONFLICT")),
    };
    match &on.conflict_target {
        None => {}
        Some(ConflictTarget::OnConstraint(_)) => {
            return Err(Failure::unsupported("ON CONFLICT ON CONSTRAINT", "name the key's columns"));
        }
        Some(ConflictTarget::Columns(columns)) => {
            let mut named =
                columns.iter().map(|name| column(table, &folded(name))).collect::<Result<Vec<_>, _>>()?;
            let mut key = table.schema.key().to_vec();
            named.sort_unstable();
            key.sort_unstable();
            if named != key {
                let message =
                    "there is no unique or exclusion constraint matching the ON CONFLICT specification";
                return Err(Failure::new("42P10", message).hint("name all columns of the key"));
            }
        }
    }
    match &on.action {
        OnConflictAction::DoNothing => Ok(Conflict::Keep),
        OnConflictAction::DoUpdate(update) => {
            let hint = "set every column outside of the key to EXCLUDED's, which writes the row as a whole";
            if on.conflict_target.is_none() {
                let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                return Err(Failure::new(pg::code::SYNTAX, message));
            }
            let mut set =
                update.assignments.iter().map(|one| replaced(table, one)).collect::<Result<Vec<_>, _>>()?;
            set.sort_unstable();
            let all = set == table.schema.values() && set.iter().all(|column| given.contains(column));
            if update.selection.is_some() || !all || table.schema.is_open() {
                return Err(Failure::unsupported("this ON CONFLICT DO UPDATE", hint));
            }
            Ok(Conflict::Replace)
        }
    }
}

/// The column of `column = EXCLUDED.column`.
fn replaced(table: &TableRecord, assignment: &Assignment) -> Result<usize, Failure> {
    let hint = "set columns to the new row's: column = EXCLUDED.column";
    let refuse = || Failure::unsupported(format!("{assignment} in ON CONFLICT DO UPDATE"), hint);
    let AssignmentTarget::ColumnName(name) = &assignment.target else { return Err(refuse()) };
    let name = parts(name)?.concat();
    match &assignment.value {
        Expr::CompoundIdentifier(path) => match path.as_slice() {
            [row, value] if folded(row) == "excluded" && folded(value) == name => column(table, &name),
            _ => Err(refuse()),
        },
        _ => Err(refuse()),
    }
}

fn refuse_rest(insert: &Insert) -> Result<(), Failure> {
    let found = [
        (insert.returning.is_some(), "INSERT ... RETURNING"),
        (insert.or.is_some() || insert.ignore || insert.replace_into, "this form of INSERT"),
        (
            insert.overwrite || insert.partitioned.is_some() || !insert.assignments.is_empty(),
            "this form of INSERT",
        ),
        (insert.table_alias.is_some(), "an alias in INSERT"),
    ];
    match found.iter().find(|(there, _)| *there) {
        Some((_, what)) => Err(Failure::unsupported(*what, "write INSERT INTO table (columns) VALUES (...)")),
        None => Ok(()),
    }
}
