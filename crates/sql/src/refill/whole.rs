//! Replicated tables under other ids: those of which every partition of a database has all rows.
//!
//! Rows of such a table never change under its id (PR-406). What rows there are to be is written under
//! another id, which has no name yet, in the first partition, and one entry of it gives that the name and
//! drops the table as it was. Whoever brings the other partitions level copies the rows there, and then
//! switches the name (`client::Client::level`, PR-405). `DESIGN.md` says what each interruption leaves.
//!
//! Nothing is held meanwhile: the last entry names the version of the table that was read. If somebody else
//! was faster it is refused (PR-407).

use super::{Convert, FoundRow, Refusal, Target, inserted};
use crate::catalog::as_of;
use crate::fault;
use bytes::Bytes;
use client::{Client, ClientError, Database, Table, created, wall_ms};
use pg::{Failure, code};
use std::collections::{BTreeMap, BTreeSet};
use types::data::constraint::{Constraint, Demand};
use types::data::{Row, Schema, Value};
use types::index::entry_prefix;
use types::{CatalogTable, Position, TableId};
use wire::request::ReadSnapshot;
use wire::{Body, Op, RecordText, RowOp, TableChange};

/// The most bytes of keys and rows of such a table: all of them are written, in every partition, whenever one
/// of them changes.
pub const MAX_REPLICATED_BYTES: usize = 16 << 20;
/// Rows that are read or written at once.
const ROWS: u32 = 2_000;
/// Bytes of keys and rows behind which no more are written at once.
const BYTES: usize = 4 << 20;

/// The error of what comes before the last entry: whatever became of it, the table is as it was.
fn before(error: ClientError) -> Failure {
    let failure = fault::of_client(error);
    if fault::is_unknown(&failure) { fault::stale() } else { failure }
}

/// Gives a replicated table the columns of `target` and the rows that `convert` makes of its own, in the
/// first partition: the others get them from whoever brings them level. Stale: the table has changed since it
/// was read, and nothing was done.
pub fn refill(
    client: &mut Client,
    database: &Database,
    (table, target): (&Table, &Target),
    convert: &mut dyn Convert,
) -> Result<(), Failure> {
    // What an earlier write has left to do comes first.
    client.level(database).map_err(before)?;
    convert.begin()?;
    let found = found(client, database, table)?;
    // Rows of what nobody refers to are not kept twice.
    let referred = found.iter().filter(|_| !target.children.is_empty());
    let old: Vec<Row> = referred.map(|one| one.row.clone()).collect();
    let new = converted(convert, found)?;
    values_stay((table, target), &old, &new)?;
    let count = 3 + target.children.len() as u32;
    let numbers = client.numbers(count).map_err(before)?;
    let named = named(table, target, numbers)?;
    let internal = |why: String| Failure::new(code::INTERNAL, why);
    let filling = CatalogTable { created_ms: wall_ms(), ..named.to_fill().map_err(internal)? };
    let to = database.table(filling.clone());
    let rows = encoded(&to, &new, convert)?;
    let changes = changes((table, target), (&filling, &named))?;
    let made = client.call(database.transact(vec![created(&filling)], Vec::new(), None));
    let made = made.map_err(before)?.position();
    let done = match fill(client, database, (table, &to), (rows, made), convert) {
        Ok(last) => switch(client, database, (changes, last), named.id),
        Err(failure) => Err(failure),
    };
    if done.is_err() {
        // Without it the last entry is not made any more. That it was not made before is not known by that:
        // the first partition may have lost it by a forced promotion, and others have it (PR-409).
        let gone = TableChange::Drop { table: filling.id, schema: filling.schema.version() };
        drop(client.call(database.transact(vec![gone], Vec::new(), None)));
    }
    done
}

/// The table as it is.
fn found(client: &mut Client, database: &Database, table: &Table) -> Result<Vec<FoundRow>, Failure> {
    let (mut found, mut next) = (Vec::new(), Some(Bytes::new()));
    while let Some(first) = next {
        let op = Op::Scan { from: first, to: Bytes::new(), limit: ROWS, at: ReadSnapshot::Newest };
        let answer = client.call(table.call(database.partition(), op)).map_err(before)?;
        let Body::Rows { rows, more } = answer.body else {
            return Err(Failure::new(code::INTERNAL, "a table without rows"));
        };
        // The smallest key above the last one.
        let last = rows.last().map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
        for (key, version, stored) in rows {
            let row = table.decode(&key, &stored).map_err(before)?;
            found.push(FoundRow { key, version, row });
        }
        next = last.filter(|_| more);
    }
    Ok(found)
}

/// The rows as they are to be.
fn converted(convert: &mut dyn Convert, found: Vec<FoundRow>) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::with_capacity(found.len());
    while let Some(more) = convert.more()? {
        rows.extend(more);
    }
    let mut found = found.into_iter().peekable();
    while found.peek().is_some() {
        let piece = found.by_ref().take(ROWS as usize).collect();
        rows.extend(convert.rows(piece)?);
    }
    while let Some(more) = convert.rest()? {
        rows.extend(more);
    }
    Ok(rows)
}

/// Its definition behind the last entry, by the first of three numbers.
fn named(table: &Table, target: &Target, numbers: u32) -> Result<CatalogTable, Failure> {
    let mut parts = target.schema.clone().into_parts();
    parts.version = numbers + 2;
    let schema = Schema::from_parts(parts);
    let schema = schema.map_err(|error| Failure::new("42P16", error.to_string()))?;
    Ok(CatalogTable::new(TableId(numbers), &target.name, schema, table.record().created_ms))
}

/// Rows as they are stored in the table that gets them. The error: they are too many, or two have one key.
fn encoded(to: &Table, rows: &[Row], convert: &dyn Convert) -> Result<Vec<RowOp>, Failure> {
    let (mut ops, mut bytes) = (BTreeMap::new(), 0);
    for row in rows {
        let op = inserted(to, row)?;
        bytes += op.key().len() + op.row().map_or(0, Bytes::len);
        if bytes > MAX_REPLICATED_BYTES {
            return Err(fault::replicated_too_large(to.name(), MAX_REPLICATED_BYTES));
        }
        let key = op.key().clone();
        if ops.insert(key.clone(), op).is_some() {
            return Err(convert.refused(Refusal::Key(to, Some(&key))));
        }
    }
    Ok(ops.into_values().collect())
}

/// Writes rows in pieces, each resting on the one before. The last entry.
fn fill(
    client: &mut Client,
    database: &Database,
    (table, to): (&Table, &Table),
    (rows, mut last): (Vec<RowOp>, Position),
    convert: &dyn Convert,
) -> Result<Position, Failure> {
    let (mut piece, mut bytes) = (Vec::new(), 0);
    let mut rows = rows.into_iter().peekable();
    while let Some(op) = rows.next() {
        bytes += op.key().len() + op.row().map_or(0, Bytes::len);
        piece.push(op);
        if piece.len() < ROWS as usize && bytes < BYTES && rows.peek().is_some() {
            continue;
        }
        let ops = std::mem::take(&mut piece);
        last = match client.call(to.write_since(database.partition(), ops.clone(), last)) {
            Ok(answer) => answer.position(),
            Err(ClientError::Violates(number)) => {
                return Err(convert.refused(Refusal::Constraint(table, number, &ops)));
            }
            Err(error) => return Err(before(error)),
        };
        bytes = 0;
    }
    Ok(last)
}

/// What the last entry changes: the name goes from the table as it was to the one that has the rows.
fn changes(
    (table, target): (&Table, &Target),
    (filling, named): (&CatalogTable, &CatalogTable),
) -> Result<Vec<TableChange>, Failure> {
    let gone = TableChange::Drop { table: table.id(), schema: table.schema().version() };
    let from = filling.schema.version();
    let mut changes = vec![gone, TableChange::Alter { from, to: RecordText::new(named) }];
    changes.extend(target.definitions.iter().cloned());
    for (child, version) in target.children.iter().zip(named.schema.version() + 1..) {
        let referring = child.schema.constraints().iter().cloned();
        let referring = referring.map(|one| redirected(one, (table.id(), named.id), target)).collect();
        let to = as_of(child, version).constrained(referring);
        let to = to.map_err(|why| Failure::new("42P16", why))?;
        changes.push(TableChange::Alter { from: child.schema.version(), to: RecordText::new(&to) });
    }
    Ok(changes)
}

/// A constraint of another table, which refers to the table under its other id.
fn redirected(mut one: Constraint, (from, to): (TableId, TableId), target: &Target) -> Constraint {
    if let Demand::Foreign(reference) = &mut one.demand
        && reference.parent == from
        && let Some(columns) = moved(&reference.parent_columns, target)
    {
        (reference.parent, reference.parent_columns) = (to, columns);
    }
    one
}

/// Where columns are from then on; `None`: one of them goes.
fn moved(columns: &[usize], target: &Target) -> Option<Vec<usize>> {
    columns.iter().map(|at| target.places[*at]).collect()
}

/// The last entry.
fn switch(
    client: &mut Client,
    database: &Database,
    (changes, last): (Vec<TableChange>, Position),
    id: TableId,
) -> Result<(), Failure> {
    match client.call(database.transact(changes, Vec::new(), Some(last))) {
        Err(ClientError::OutcomeUnknown(_)) if is_there(client, database, id) => Ok(()),
        done => done.map(drop).map_err(fault::of_client),
    }
}

/// True if a table of this id has a name.
fn is_there(client: &mut Client, database: &Database, id: TableId) -> bool {
    client.tables_of(database).is_ok_and(|tables| tables.iter().any(|table| table.id() == id))
}

/// What rows of other tables may refer to must stay: a partition takes rows that refer to it until it has
/// switched (PR-408).
fn values_stay((table, target): (&Table, &Target), old: &[Row], new: &[Row]) -> Result<(), Failure> {
    let value = |row: &Row, columns: &[usize]| {
        let values: Vec<Value> = columns.iter().map(|at| row.values[*at].clone()).collect();
        // Null is referred to by nothing, nor is what is too long to be found.
        if values.iter().any(Value::is_null) { None } else { entry_prefix(&values).ok() }
    };
    for child in &target.children {
        for one in child.schema.constraints().iter().filter(|one| one.is_enforced()) {
            let Some(reference) = one.reference().filter(|to| to.parent == table.id()) else { continue };
            let columns = moved(&reference.parent_columns, target).unwrap_or_default();
            let left: BTreeSet<Vec<u8>> = new.iter().filter_map(|row| value(row, &columns)).collect();
            let mut all = old.iter().filter_map(|row| value(row, &reference.parent_columns));
            if all.all(|value| left.contains(&value)) {
                continue;
            }
            let name = |at: &usize| table.schema().columns()[*at].name.as_str();
            let columns: Vec<&str> = reference.parent_columns.iter().map(name).collect();
            let columns = columns.join(", ");
            let (name, foreign, child) = (table.name(), &one.name, &child.name);
            let what = format!(
                "removing or changing ({columns}) of the replicated table \"{name}\", \
                 to which \"{foreign}\" of \"{child}\" refers,"
            );
            let hint = "drop that foreign key before, and add it again behind";
            return Err(Failure::unsupported(what, hint));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use types::TableRecord;
    use types::data::constraint::Reference;
    use types::data::{Column, ColumnType};

    fn table() -> Table {
        let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("v", ColumnType::Int)];
        Table::new(Arc::new(crate::catalog::example(columns)))
    }

    fn row(id: i64, v: i64) -> Row {
        Row::new(vec![Value::Int(id), Value::Int(v)])
    }

    fn rows(all: &[(i64, i64)]) -> Vec<Row> {
        all.iter().map(|(id, v)| row(*id, *v)).collect()
    }

    /// Rows stay as they are.
    struct Unchanged;

    impl Convert for Unchanged {
        fn rows(&mut self, found: Vec<FoundRow>) -> Result<Vec<Row>, Failure> {
            Ok(found.into_iter().map(|one| one.row).collect())
        }

        fn refused(&self, _: Refusal<'_>) -> Failure {
            Failure::new("23505", "two rows have one key")
        }
    }

    const BEFORE: [(i64, i64); 2] = [(1, 10), (2, 20)];

    /// The table as it is, and one that refers to this column of it.
    fn referred(column: usize) -> Target {
        let reference = Reference {
            columns: vec![1],
            parent: table().id(),
            parent_columns: vec![column],
            on_delete: Default::default(),
            on_update: Default::default(),
            deferred: None,
        };
        let foreign = Constraint::new(21, "stock_item_fkey", Demand::Foreign(reference));
        let schema = table().schema().clone();
        let child = TableRecord {
            id: TableId(9),
            name: "stock".into(),
            schema: schema.clone().with_constraints(vec![foreign]).expect("valid"),
            ..table().record().clone()
        };
        let (children, definitions) = (vec![Arc::new(child)], Vec::new());
        Target { name: "t".into(), schema, places: vec![Some(0), Some(1)], children, definitions }
    }

    #[test]
    fn pr408_what_rows_may_refer_to_stays() {
        let stay = |column: usize, new: &[(i64, i64)]| {
            let checked = values_stay((&table(), &referred(column)), &rows(&BEFORE), &rows(new));
            checked.map_err(|failure| failure.code)
        };
        assert_eq!(stay(0, &[(1, 10), (2, 20), (3, 30)]), Ok(()));
        assert_eq!(stay(0, &[(1, 10), (2, 21)]), Ok(()));
        assert_eq!(stay(0, &[(1, 10)]), Err(code::UNSUPPORTED));
        assert_eq!(stay(1, &[(1, 10), (2, 21)]), Err(code::UNSUPPORTED), "a unique value");
        let target = referred(0);
        let one = target.children[0].schema.constraints()[0].clone();
        let other = redirected(one, (table().id(), TableId(70)), &target);
        assert_eq!(other.reference().map(|reference| reference.parent), Some(TableId(70)));
    }

    #[test]
    fn such_a_table_is_small() {
        let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("v", ColumnType::Text)];
        let wide = Table::new(Arc::new(crate::catalog::example(columns)));
        let text = "x".repeat(1 << 20);
        let of = |id: i64| Row::new(vec![Value::Int(id), text.as_str().into()]);
        let count = |ids: std::ops::Range<i64>| {
            let rows: Vec<Row> = ids.map(of).collect();
            encoded(&wide, &rows, &Unchanged).map(|ops| ops.len()).map_err(|failure| failure.code)
        };
        assert_eq!((count(0..16), count(0..15)), (Err(code::LIMIT), Ok(15)));
        let twice = encoded(&wide, &[of(1), of(1)], &Unchanged).map_err(|failure| failure.code);
        assert_eq!(twice, Err("23505"));
    }
}
