//! Writes of rows. Each is one write of one partition: done as a whole or not at all.

use crate::bind::Conflict;
use crate::driver::Handle;
use crate::fault;
use crate::read::CALL;
use bytes::Bytes;
use client::Table;
use pg::{Failure, code};
use std::collections::BTreeSet;
use types::data::{Row, Value};
use wire::{Body, RowOp};

/// Inserts rows. How many were.
pub async fn insert(
    handle: &Handle,
    table: &Table,
    columns: &[usize],
    rows: Vec<Vec<Value>>,
    conflict: Conflict,
) -> Result<u64, Failure> {
    if conflict == Conflict::Keep && rows.len() > 1 {
        let hint = "insert row by row: each is passed over for itself";
        return Err(Failure::unsupported("ON CONFLICT DO NOTHING with several rows", hint));
    }
    let count = rows.len() as u64;
    let (mut ops, mut keys, mut partition) = (Vec::new(), BTreeSet::new(), None);
    for (number, values) in rows.into_iter().enumerate() {
        let row = whole(table, columns, values)?;
        let (key, row) = encoded(table, &row)?;
        let place = table.partition_of(&key).map_err(fault::of_client)?;
        if partition.is_some_and(|known| known != place) {
            return Err(Failure::unsupported(
                "a statement that writes in several partitions",
                format!(
                    "rows 1 and {} lie in different partitions of \"{}\"; insert row by row, or create the table with \
                 partition_by so that rows which are written together lie together, or WITH (partitions = 1)",
                    number + 1,
                    table.name()
                ),
            ));
        }
        partition = Some(place);
        if !keys.insert(key.clone()) {
            return Err(match conflict {
                Conflict::Replace => {
                    let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
                    Failure::new("21000", message)
                }
                _ => duplicate(table),
            });
        }
        ops.push(match conflict {
            Conflict::Replace => RowOp::Put { key, row },
            Conflict::Fail | Conflict::Keep => RowOp::Insert { key, row },
        });
    }
    let Some(partition) = partition else { return Ok(0) };
    match fault::done(handle.call(table.write(partition, ops).within(CALL)).await)? {
        Some(_) => Ok(count),
        None if conflict == Conflict::Keep => Ok(0),
        None => Err(duplicate(table)),
    }
}

/// Removes the row with this key. How many there were.
pub async fn delete(handle: &Handle, table: &Table, key: &[Value]) -> Result<u64, Failure> {
    if key.iter().any(Value::is_null) || table.key(key).is_err() {
        // Nothing compares with null, and a key too long to be stored is in no row.
        return Ok(0);
    }
    let call = table.delete(key).map_err(fault::of_client)?.within(CALL);
    match fault::done(handle.call(call).await)?.map(|answer| answer.body) {
        Some(Body::Affected(rows)) => Ok(rows.into()),
        other => {
            Err(Failure::new(code::INTERNAL, format!("the answer was not of the expected kind: {other:?}")))
        }
    }
}

fn duplicate(table: &Table) -> Failure {
    let name = table.name();
    let message = format!("duplicate key value violates unique constraint \"{name}_pkey\"");
    Failure::new("23505", message).hint("nothing was changed")
}

/// A row with a value for each column: those that were not given are null.
pub(crate) fn whole(table: &Table, columns: &[usize], values: Vec<Value>) -> Result<Row, Failure> {
    let all = table.schema().columns();
    let mut row = Row::new(vec![Value::Null; all.len()]);
    for (at, value) in columns.iter().zip(values) {
        row.values[*at] = value;
    }
    let missing = all.iter().enumerate().find(|(at, column)| {
        let must = !column.nullable || table.schema().key().contains(at);
        must && row.values[*at].is_null()
    });
    match missing {
        None => Ok(row),
        Some((_, column)) => {
            let (column, name) = (&column.name, table.name());
            let message = format!(
                "null value in column \"{column}\" of relation \"{name}\" violates not-null constraint"
            );
            Err(Failure::new("23502", message))
        }
    }
}

pub(crate) fn encoded(table: &Table, row: &Row) -> Result<(Bytes, Bytes), Failure> {
    table.encode(row).map_err(|error| Failure::new(code::LIMIT, error.to_string()))
}
