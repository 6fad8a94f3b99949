//! What is said where a constraint forbids a write, as PostgreSQL says it.

use super::names;
use super::unique::Finder;
use crate::catalog::Catalog;
use crate::driver::Handle;
use crate::fault;
use crate::txn::View;
use client::Table;
use pg::{Failure, Object};
use std::sync::Arc;
use types::data::constraint::{Constraint, Demand, Reference};
use types::data::{Row, Value};
use types::{TableId, TableRecord};
use wire::RowOp;

/// A row refers to none, or one that is referred to goes.
pub const NO_PARENT: &str = "23503";

/// Of larger writes no row is named.
const MAX_NAMED_ROWS: usize = 1_000;

/// A write that was refused: what it did, as far as it matters for what is said.
#[derive(Clone, Debug, Default)]
pub struct Refused {
    tables: Vec<Part>,
}

/// What it did to one table.
#[derive(Clone, Debug)]
struct Part {
    table: Table,
    /// Rows of it are written.
    writes: bool,
    /// Rows of it are removed.
    removes: bool,
    /// All of it, unless there is too much.
    ops: Vec<RowOp>,
}

impl Part {
    /// The rows that are there behind it.
    fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.ops.iter().filter_map(|op| self.table.decode(op.key(), op.row()?).ok())
    }
}

impl Refused {
    /// A write of these rows.
    pub fn new<'a>(parts: impl IntoIterator<Item = (&'a Table, &'a [RowOp])>) -> Refused {
        let part = |(table, ops): (&Table, &[RowOp])| Part {
            table: table.clone(),
            writes: ops.iter().any(|op| op.row().is_some()),
            removes: ops.iter().any(|op| matches!(op, RowOp::Delete { .. })),
            ops: if ops.len() > MAX_NAMED_ROWS { Vec::new() } else { ops.to_vec() },
        };
        Refused { tables: parts.into_iter().map(part).collect() }
    }

    /// A write of many rows of this table.
    pub fn of(table: &Table) -> Refused {
        let part = Part { table: table.clone(), writes: true, removes: false, ops: Vec::new() };
        Refused { tables: vec![part] }
    }

    fn part(&self, table: TableId) -> Option<&Part> {
        self.tables.iter().find(|part| part.table.id() == table)
    }

    fn removes(&self, table: TableId) -> bool {
        self.part(table).is_some_and(|part| part.removes)
    }

    /// True if a row of this table that it writes may refer to none by this foreign key. What refers to a row
    /// that is written beside it refers to that: so it is where rows follow one that gets other values.
    fn refers(&self, table: TableId, reference: &Reference) -> bool {
        let Some(part) = self.part(table).filter(|part| part.writes) else { return false };
        if self.removes(reference.parent) {
            return false;
        }
        let parents = self.part(reference.parent).into_iter().flat_map(Part::rows);
        let parents: Vec<Vec<Value>> = parents.map(|row| values(&row, &reference.parent_columns)).collect();
        let mut written = part.rows().map(|row| values(&row, &reference.columns));
        // Of too many rows none is known.
        let lacks = |of: Vec<Value>| !of.iter().any(Value::is_null) && !parents.contains(&of);
        part.ops.is_empty() || written.any(lacks)
    }

    /// True if it may be done when it is computed again: it changes rows that others refer to by this
    /// constraint, these follow, and one of them it did not see.
    fn passes(&self, table: TableId, constraint: &Constraint) -> bool {
        let Some(reference) = constraint.reference() else { return false };
        let Some(parent) = self.part(reference.parent) else { return false };
        let by_removal = parent.removes && reference.on_delete.changes_rows();
        let by_change = parent.writes && reference.on_update.changes_rows();
        (by_removal || by_change) && !self.refers(table, reference)
    }

    /// What a row that it writes has in these columns: the only one, or one that another of them is like.
    fn key(&self, record: &TableRecord, columns: &[usize]) -> Option<String> {
        let part = self.part(record.id)?;
        let mut keys: Vec<String> = part.rows().map(|row| key(record, columns, &row)).collect();
        if let [only] = keys.as_slice() {
            return Some(only.clone());
        }
        keys.sort_unstable();
        keys.windows(2).find(|two| two[0] == two[1]).map(|two| two[0].clone())
    }

    /// What the only row that it removes has in these columns, if they are of its key.
    fn removed(&self, record: &TableRecord, columns: &[usize]) -> Option<String> {
        let part = self.part(record.id)?;
        let mut gone = part.ops.iter().filter(|op| matches!(op, RowOp::Delete { .. }));
        let (Some(op), None) = (gone.next(), gone.next()) else { return None };
        let schema = part.table.schema();
        let values = types::data::decode_key(schema, op.key()).ok()?;
        let mut row = Row::new(vec![Value::Null; schema.columns().len()]);
        schema.key().iter().zip(values).for_each(|(at, value)| row.values[*at] = value);
        columns.iter().all(|at| !row.values[*at].is_null()).then(|| key(record, columns, &row))
    }
}

/// What a row has in these columns.
fn values(row: &Row, columns: &[usize]) -> Vec<Value> {
    columns.iter().map(|at| row.values.get(*at).cloned().unwrap_or_default()).collect()
}

/// Columns of a row, as an error names them.
pub fn key(table: &TableRecord, columns: &[usize], row: &Row) -> String {
    let values: Vec<String> = columns.iter().map(|at| pg::text::to_text(&row.values[*at])).collect();
    format!("({})=({})", names(table, columns).join(", "), values.join(", "))
}

/// A constraint by its number, with its table.
pub fn by_number(catalog: &Catalog, number: u32) -> Option<(Arc<TableRecord>, Constraint)> {
    catalog.all().find_map(|table| {
        let found = table.schema.constraints().iter().find(|one| one.number == number);
        found.map(|constraint| (table.clone(), constraint.clone()))
    })
}

/// A constraint of a table by its number.
pub fn of_table(table: &TableRecord, number: u32) -> Result<&Constraint, Failure> {
    let found = table.schema.constraints().iter().find(|one| one.number == number);
    found.ok_or_else(|| super::unreadable("it is not there"))
}

/// The error of a write that the constraint with this number forbids. What nobody here knows of was made
/// meanwhile: then tables are looked at again.
pub async fn told(handle: &Handle, number: u32, refused: &Refused) -> Failure {
    for looks in 0..2 {
        let catalog = handle.catalog();
        let found = catalog.as_ref().and_then(|catalog| Some((catalog, by_number(catalog, number)?)));
        match found {
            Some(_) if looks > 0 => return fault::stale(),
            Some((catalog, (table, constraint))) => {
                let failure = of_write(catalog, (&table, &constraint), refused);
                let met = match failure.detail.is_none() && constraint.unique().is_some() {
                    true => met(handle, &constraint, refused.part(table.id)).await,
                    false => None,
                };
                return match met {
                    Some(key) => duplicate(&table, &constraint, Some(key)),
                    None => failure,
                };
            }
            None => handle.look_again().await,
        }
    }
    let message = "a constraint forbids it that is not known here";
    Failure::new("23000", message).hint("nothing was changed")
}

/// What a row that was there has of the first of several rows that met one.
async fn met(handle: &Handle, constraint: &Constraint, part: Option<&Part>) -> Option<String> {
    let Part { table, ops, .. } = part?;
    let (partition, view) = (table.partition_of(ops.first()?.key()).ok()?, View::default());
    let finder = Finder::new(handle, (table, partition), &view, constraint).await.ok()?;
    for op in ops {
        let Some(row) = op.row().and_then(|row| table.decode(op.key(), row).ok()) else { continue };
        if finder.find_other(&row, op.key()).await.ok()?.is_some() {
            return Some(key(table.record(), constraint.unique()?, &row));
        }
    }
    None
}

/// True if a write may be done when it is computed again: it was refused for a row that it did not see.
pub fn passes(handle: &Handle, number: u32, refused: &Refused) -> bool {
    let found = handle.catalog().and_then(|catalog| by_number(&catalog, number));
    found.is_some_and(|(table, constraint)| refused.passes(table.id, &constraint))
}

/// The error of a write that this constraint forbids.
pub fn of_write(
    catalog: &Catalog,
    (table, constraint): (&TableRecord, &Constraint),
    refused: &Refused,
) -> Failure {
    match &constraint.demand {
        Demand::Foreign(reference) => {
            let parent = catalog.all().find(|parent| parent.id == reference.parent);
            let parent = parent.map_or(table, |parent| parent.as_ref());
            match refused.refers(table.id, reference) {
                true => {
                    let key = refused.key(table, &reference.columns);
                    no_parent(table, constraint, parent, key)
                }
                false => {
                    let key = refused.removed(parent, &reference.parent_columns);
                    still_referred(table, constraint, parent, key)
                }
            }
        }
        Demand::Unique(columns) => duplicate(table, constraint, refused.key(table, columns)),
        Demand::Check(_) | Demand::Index(_) => super::unreadable("it is kept by nobody"),
    }
}

/// The error of a value that another row has.
pub fn duplicate(table: &TableRecord, constraint: &Constraint, key: Option<String>) -> Failure {
    let message = format!("duplicate key value violates unique constraint \"{}\"", constraint.name);
    let failure = Failure::new("23505", message).about(object(table, constraint));
    match key {
        Some(key) => failure.detail(format!("Key {key} already exists.")),
        None => failure,
    }
}

/// The error of a row that refers to none.
pub fn no_parent(
    table: &TableRecord,
    constraint: &Constraint,
    parent: &TableRecord,
    key: Option<String>,
) -> Failure {
    let (name, foreign) = (&table.name, &constraint.name);
    let message =
        format!("insert or update on table \"{name}\" violates foreign key constraint \"{foreign}\"");
    let failure = Failure::new(NO_PARENT, message).about(object(table, constraint));
    match key {
        Some(key) => failure.detail(format!("Key {key} is not present in table \"{}\".", parent.name)),
        None => failure,
    }
}

/// The error of a row that goes, and others refer to it.
pub fn still_referred(
    table: &TableRecord,
    constraint: &Constraint,
    parent: &TableRecord,
    key: Option<String>,
) -> Failure {
    let (name, child, foreign) = (&parent.name, &table.name, &constraint.name);
    let message = format!(
        "update or delete on table \"{name}\" violates foreign key constraint \"{foreign}\" on table \"{child}\""
    );
    let failure = Failure::new(NO_PARENT, message).about(object(table, constraint));
    match key {
        Some(key) => failure.detail(format!("Key {key} is still referenced from table \"{child}\".")),
        None => failure,
    }
}

/// The error of a constraint that rows which were there do not keep.
pub fn not_kept(
    table: &TableRecord,
    constraint: &Constraint,
    parent: impl Fn(TableId) -> Option<Arc<TableRecord>>,
) -> Failure {
    let about = object(table, constraint);
    let (columns, text) = (names(table, constraint.indexed().unwrap_or_default()), &constraint.note);
    // Something else than its values may be wrong with a row.
    let is_key = text.starts_with(&format!("({})=", columns.join(", ")));
    let detail = |of: String, failure: Failure| match is_key {
        true => failure.detail(of),
        false => failure.detail(text.clone()),
    };
    match &constraint.demand {
        Demand::Foreign(Reference { parent: id, .. }) => {
            let name = parent(*id).map(|table| table.name.clone()).unwrap_or_default();
            let message = format!(
                "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
                table.name, constraint.name
            );
            detail(
                format!("Key {text} is not present in table \"{name}\"."),
                Failure::new(NO_PARENT, message).about(about),
            )
        }
        _ => {
            let message = format!("could not create unique index \"{}\"", constraint.name);
            detail(format!("Key {text} is duplicated."), Failure::new("23505", message).about(about))
        }
    }
}

/// The error of a check that rows which were there do not keep.
pub fn check_not_kept(table: &TableRecord, check: &str) -> Failure {
    let name = &table.name;
    let message = format!("check constraint \"{check}\" of relation \"{name}\" is violated by some row");
    let about = Object {
        schema: "public".into(),
        table: name.clone(),
        constraint: Some(check.into()),
        ..Object::default()
    };
    Failure::new("23514", message).about(about)
}

/// The error of something that others need.
pub fn depended_on(message: String, detail: String) -> Failure {
    let hint = "Use DROP ... CASCADE to drop the dependent objects too.";
    Failure::new("2BP01", message).detail(detail).hint(hint)
}

fn object(table: &TableRecord, constraint: &Constraint) -> Object {
    Object {
        schema: "public".into(),
        table: table.name.clone(),
        constraint: Some(constraint.name.clone()),
        ..Object::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::example;
    use bytes::Bytes;
    use types::data::constraint::Action;
    use types::data::{Column, ColumnType};

    /// A table with this id, of a key and a value.
    fn table(id: u32) -> Table {
        let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("n", ColumnType::Int)];
        Table::new(Arc::new(TableRecord { id: TableId(id), ..example(columns) }))
    }

    fn encoded(table: &Table, id: i64, n: Option<i64>) -> (Bytes, Bytes) {
        let n = n.map_or(Value::Null, Value::Int);
        table.encode(&Row::new(vec![Value::Int(id), n])).expect("it fits")
    }

    fn written(table: &Table, id: i64, n: Option<i64>) -> RowOp {
        let (key, row) = encoded(table, id, n);
        RowOp::Update { key, row }
    }

    fn removed(table: &Table, id: i64) -> RowOp {
        RowOp::Delete { key: encoded(table, id, None).0 }
    }

    /// The value of rows of the second table refers to that of rows of the first one.
    fn foreign(on_delete: Action, on_update: Action) -> Constraint {
        let (columns, parent_columns) = (vec![1], vec![1]);
        let reference =
            Reference { columns, parent: TableId(1), parent_columns, on_delete, on_update, deferred: None };
        Constraint::new(7, "f", Demand::Foreign(reference))
    }

    /// What follows from a statement is part of its write, and is not what it is refused for.
    #[test]
    fn a_write_whose_own_rows_follow_passes_where_one_came_meanwhile() {
        let (parent, child) = (table(1), table(2));
        let change = [written(&parent, 1, Some(11))];
        let goes = [removed(&parent, 1)];
        let passes = |parents: &[RowOp], children: &[RowOp], (on_delete, on_update): (Action, Action)| {
            let refused = Refused::new([(&parent, parents), (&child, children)]);
            refused.passes(child.id(), &foreign(on_delete, on_update))
        };
        let (none, cascade, null) = (Action::None, Action::Cascade, Action::SetNull);
        // One that follows was seen, and another one was not.
        assert!(passes(&change, &[written(&child, 5, Some(11))], (none, cascade)));
        assert!(passes(&change, &[written(&child, 5, None)], (none, null)));
        assert!(passes(&goes, &[removed(&child, 5)], (cascade, none)));
        assert!(passes(&goes, &[written(&child, 5, None)], (null, none)));
        assert!(passes(&change, &[], (none, cascade)) && passes(&goes, &[], (cascade, none)));
        // Nothing follows from what it does.
        assert!(!passes(&change, &[], (cascade, none)) && !passes(&goes, &[], (none, cascade)));
        // It writes a row itself that refers to nothing.
        assert!(!passes(&change, &[written(&child, 5, Some(99))], (none, cascade)));
        assert!(!passes(&[], &[written(&child, 5, Some(99))], (cascade, cascade)));
    }

    #[test]
    fn the_error_says_which_side_is_wrong() {
        let (parent, child) = (table(1), table(2));
        let constraint = foreign(Action::None, Action::Cascade);
        let said = |parents: &[RowOp], children: &[RowOp]| {
            let refused = Refused::new([(&parent, parents), (&child, children)]);
            of_write(&Catalog::default(), (child.record(), &constraint), &refused).message
        };
        let change = [written(&parent, 1, Some(11))];
        assert!(said(&change, &[written(&child, 5, Some(11))]).starts_with("update or delete"));
        assert!(said(&change, &[written(&child, 5, Some(99))]).starts_with("insert or update"));
        assert!(said(&[removed(&parent, 1)], &[]).starts_with("update or delete"));
    }
}
