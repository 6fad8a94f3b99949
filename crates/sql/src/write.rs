//! Writes of rows. Each is one write of one partition: done as a whole or not at all.

use crate::driver::Handle;
use crate::fault::{self, Decided};
use crate::read::{self, CALL};
use crate::rows::fitted;
use crate::txn::Edit;
use crate::txn::View;
use crate::txn::buffer::{MAX_WRITE_BYTES, Written};
use bytes::Bytes;
use client::Table;
use pg::{Failure, Object, code};
use std::collections::BTreeMap;
use types::data::{Row, Value};
use types::{PartitionId, Position, TableId};
use wire::message::MAX_OPS;
use wire::{Body, Op, RowOp, TableChange, TablePart};

/// The most bytes of keys and rows in one write. The wire's limit is a little higher.
const MAX_BYTES: usize = MAX_WRITE_BYTES;

/// So many inserted rows are asked about, if it is to be said which of them is there already.
pub const MAX_ASKED: usize = 1_000;

/// What the error of a statement that writes more than a write may have begins with.
const TOO_MUCH: &str = "a statement writes at most";

/// The error of a statement that writes more than a write may have.
pub fn too_much(bytes: usize) -> Failure {
    Failure::new(code::LIMIT, format!("{TOO_MUCH} {MAX_OPS} rows, and {bytes} bytes of them")).hint(
        "write fewer rows at once; outside of a transaction any number, as in docs/databases-reference.md",
    )
}

/// True for the errors that [`too_much`] makes.
pub fn is_too_much(failure: &Failure) -> bool {
    failure.code == code::LIMIT && failure.message.starts_with(TOO_MUCH)
}

/// Operations on rows of one partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// The partition, once there is a row.
    pub partition: Option<PartitionId>,
    /// The operations, in order.
    pub ops: Vec<RowOp>,
}

impl Batch {
    /// Adds one. The error: its row lies in another partition than those before it.
    pub fn add(&mut self, table: &Table, op: RowOp) -> Result<(), Failure> {
        let place = table.partition_of(op.key()).map_err(fault::of_client)?;
        if self.partition.is_some_and(|known| known != place) {
            let what = format!("rows 1 and {} lie in different partitions", self.ops.len() + 1);
            return Err(elsewhere(table, &what, "a statement that writes in several partitions"));
        }
        self.partition = Some(place);
        self.ops.push(op);
        Ok(())
    }

    /// Sends it. With `since` it is done only if no row of it has changed since then.
    pub async fn send(
        self,
        handle: &Handle,
        table: &Table,
        since: Option<Position>,
    ) -> Result<Decided, Failure> {
        let Some(partition) = self.partition else {
            return Err(Failure::new(code::INTERNAL, "a write of no rows"));
        };
        let bytes: usize = self.ops.iter().map(|op| op.key().len() + op.row().map_or(0, Bytes::len)).sum();
        if self.ops.len() > MAX_OPS || bytes > MAX_BYTES {
            return Err(too_much(MAX_BYTES));
        }
        let op = Op::Write { ops: self.ops, mark: None, since };
        fault::decided(handle.call(table.call(partition, op).within(CALL)).await)
    }
}

/// Changes tables of the session's database and writes rows of several, all or none, if no row of them has
/// changed since. With `since` it is done only where that entry is on the primary's log. All rows lie in this
/// partition.
pub async fn send_parts(
    handle: &Handle,
    (changes, tables): (Vec<TableChange>, &BTreeMap<TableId, Table>),
    (parts, since): (Vec<Written>, Option<Position>),
    partition: PartitionId,
) -> Result<Decided, Failure> {
    let database = handle.database_record()?;
    let part = |Written { table, ops, seen }: Written| {
        let known =
            tables.get(&table).ok_or_else(|| Failure::new(code::INTERNAL, "rows of an unknown table"));
        known.map(|table| TablePart { seen, ..table.part(ops) })
    };
    let parts = parts.into_iter().map(part).collect::<Result<_, _>>()?;
    let call = database.transact_in(partition, changes, parts, since);
    fault::decided(handle.call(call.within(CALL)).await)
}

/// The error of rows that do not lie together.
pub fn elsewhere(table: &Table, how: &str, what: &str) -> Failure {
    if table.record().database().is_some() && table.record().partitions > 1 {
        let columns = table.schema().key_columns().take(table.schema().partition_by());
        let columns: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
        let hint = format!(
            "{how} of \"{}\": write rows of one value of ({}) at once",
            table.name(),
            columns.join(", ")
        );
        return Failure::unsupported(what, hint);
    }
    let hint = format!(
        "{how} of \"{}\"; write row by row, or create the table with partition_by so that rows which are written together \
         lie together, or WITH (partitions = 1)",
        table.name()
    );
    Failure::unsupported(what, hint)
}

/// How many rows a write has changed.
pub fn affected(decided: &Decided) -> Result<u64, Failure> {
    match decided {
        Decided::Done(answer) => match answer.body {
            Body::Affected(rows) => Ok(rows.into()),
            ref other => {
                let message = format!("the answer was not of the expected kind: {other:?}");
                Err(Failure::new(code::INTERNAL, message))
            }
        },
        other => Err(Failure::new(code::INTERNAL, format!("a write was refused: {other:?}"))),
    }
}

/// The partition in which all these rows lie, or the first of them where transactions are global; `None`:
/// there are none.
pub fn place(table: &Table, edits: &[Edit]) -> Result<Option<PartitionId>, Failure> {
    let mut found = None;
    for (number, edit) in edits.iter().enumerate() {
        let place = table.partition_of(&edit.key).map_err(fault::of_client)?;
        if table.is_global() {
            return Ok(Some(place));
        }
        if found.is_some_and(|known| known != place) {
            let what = format!("rows 1 and {} lie in different partitions", number + 1);
            return Err(elsewhere(table, &what, "a statement that writes in several partitions"));
        }
        found = Some(place);
    }
    Ok(found)
}

/// The error of a key that is there already, if it is known which.
pub fn duplicate(table: &Table, key: Option<&[u8]>) -> Failure {
    let constraint = format!("{}_pkey", table.name());
    let message = format!("duplicate key value violates unique constraint \"{constraint}\"");
    let failure = Failure::new("23505", message).hint("nothing was changed");
    let failure = failure.about(Object { constraint: Some(constraint), ..object(table) });
    match key.and_then(|key| shown(table, key)) {
        Some(key) => failure.detail(format!("Key {key} already exists.")),
        None => failure,
    }
}

/// The error of rows one of which is there already. If they are several, which one it is is asked for. If
/// none is there any more, or it is one that `is_met`, the transaction can be done again; if there are more
/// than [`MAX_ASKED`] and it is none of the first, only a table is named.
pub async fn one_exists(
    handle: &Handle,
    inserted: &[(Table, Bytes)],
    is_met: impl Fn(TableId, &[u8]) -> bool,
) -> Failure {
    let Some((first, key)) = inserted.first() else { return fault::conflict() };
    let told = |table: &Table, key: &Bytes| match is_met(table.id(), key) {
        true => fault::conflict(),
        false => duplicate(table, Some(key)),
    };
    if inserted.len() == 1 {
        return told(first, key);
    }
    // Who begins again is told which one it is, unless it is met then.
    let unknown = || match inserted.iter().any(|(table, key)| is_met(table.id(), key)) {
        true => fault::conflict(),
        false => duplicate(first, None),
    };
    let mut asked: BTreeMap<(TableId, PartitionId), (&Table, Vec<Bytes>)> = BTreeMap::new();
    for (table, key) in inserted.iter().take(MAX_ASKED) {
        if let Ok(partition) = table.partition_of(key) {
            let (_, keys) = asked.entry((table.id(), partition)).or_insert((table, Vec::new()));
            keys.push(key.clone());
        }
    }
    for ((_, partition), (table, keys)) in asked {
        let Ok(rows) = read::get_all(handle, table, partition, &keys, &View::default()).await else {
            return unknown();
        };
        if let Some(at) = rows.iter().position(Option::is_some) {
            return told(table, &keys[at]);
        }
    }
    if inserted.len() > MAX_ASKED { unknown() } else { fault::conflict() }
}

/// A table, as what an error is about.
fn object(table: &Table) -> Object {
    Object { schema: "public".into(), table: table.name().into(), ..Object::default() }
}

/// A key with the names of its columns.
pub(crate) fn shown(table: &Table, key: &[u8]) -> Option<String> {
    let schema = table.schema();
    let values = types::data::decode_key(schema, key).ok()?;
    let names: Vec<&str> = schema.key_columns().map(|column| column.name.as_str()).collect();
    let values: Vec<String> = values.iter().map(pg::text::to_text).collect();
    Some(format!("({})=({})", names.join(", "), values.join(", ")))
}

/// A row with a value for each column: those that were not given are null.
pub fn whole(table: &Table, columns: &[usize], values: Vec<Value>) -> Result<Row, Failure> {
    let mut row = Row::new(vec![Value::Null; table.schema().columns().len()]);
    for (at, value) in columns.iter().zip(values) {
        row.values[*at] = fitted(&table.schema().columns()[*at], value)?;
    }
    check(table, &row)?;
    Ok(row)
}

/// A row must have a value for each column that demands one.
pub fn check(table: &Table, row: &Row) -> Result<(), Failure> {
    let missing = table.schema().columns().iter().enumerate().find(|(at, column)| {
        let must = !column.nullable || table.schema().key().contains(at);
        must && row.values[*at].is_null()
    });
    match missing {
        None => Ok(()),
        Some((_, column)) => {
            let (column, name) = (&column.name, table.name());
            let message = format!(
                "null value in column \"{column}\" of relation \"{name}\" violates not-null constraint"
            );
            let about = Object { column: Some(column.clone()), ..object(table) };
            Err(Failure::new("23502", message).about(about))
        }
    }
}

/// A row as it is stored: key and value.
pub fn encoded(table: &Table, row: &Row) -> Result<(Bytes, Bytes), Failure> {
    table.encode(row).map_err(|error| Failure::new(code::LIMIT, error.to_string()))
}

/// A row as a reader will see it, if that is `wanted`: some values are kept in another form than they were
/// given.
pub fn as_stored(table: &Table, key: &Bytes, stored: &Bytes, row: Row, wanted: bool) -> Result<Row, Failure> {
    if wanted { table.decode(key, stored).map_err(fault::of_client) } else { Ok(row) }
}
