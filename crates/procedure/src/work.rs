//! What a call has written, read and given so far, whatever its program is written in.

use crate::convert::fitted;
use crate::limits::Limits;
use crate::prepared::Given;
use crate::rows::{Found, Look};
use crate::shape::Shape;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use types::data::key::encode_row_key;
use types::data::{
    Fallback, Row, Signature, Value, decode_row, encode_key, encode_key_prefix, encode_row, prefix_end,
};
use types::procedure::{Failure, FailureKind};
use types::{Mutation, TableState};

/// What a call comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effects {
    /// How many rows are other than they were, or were written again.
    pub affected: u32,
    /// What is to be stored, by stored key.
    pub mutations: Vec<Mutation>,
    /// The rows that it gives, as their [`Signature`] encodes them.
    pub rows: Vec<Bytes>,
}

/// In which order a range is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Forwards,
    /// From its last row to its first.
    Backwards,
}

/// A range that is read backwards has no more rows: rows are stored forwards, so all of them are looked at.
const MAX_BACKWARDS: usize = 10_000;

/// One call's work.
pub(crate) struct Work {
    pub shapes: Arc<[Shape]>,
    pub given: Given,
    pub limits: Limits,
    results: Option<Signature>,
    read_only: bool,
    writes: BTreeMap<Bytes, Option<Bytes>>,
    rows: Vec<Bytes>,
    read_bytes: usize,
    written_bytes: usize,
    result_bytes: usize,
}

impl Work {
    pub fn new(
        shapes: Arc<[Shape]>,
        (results, read_only): (Option<Signature>, bool),
        given: Given,
        limits: Limits,
    ) -> Work {
        Work {
            shapes,
            given,
            limits,
            results,
            read_only,
            writes: BTreeMap::new(),
            rows: Vec::new(),
            read_bytes: 0,
            written_bytes: 0,
            result_bytes: 0,
        }
    }

    /// Notes that so many bytes were read.
    pub fn read(&mut self, bytes: usize) -> Result<(), Failure> {
        self.read_bytes = self.read_bytes.saturating_add(bytes);
        match self.read_bytes > self.limits.read_bytes {
            true => {
                let most = self.limits.read_bytes;
                Err(Failure::new(FailureKind::Reads, format!("the call reads more than {most} bytes")))
            }
            false => Ok(()),
        }
    }

    /// The stored key of a table's row with these values in its key.
    pub fn key(&self, table: usize, values: Vec<Value>) -> Result<Bytes, Failure> {
        let shape = &self.shapes[table];
        let (expected, given) = (shape.schema.key().len(), values.len());
        if given != expected {
            let why = format!("a key of table `{}` has {expected} values, not {given}", shape.name);
            return Err(Failure::new(FailureKind::Row, why));
        }
        let values = self.key_values(table, values)?;
        let key = encode_key(&shape.schema, &values).map_err(|error| row_failure(shape, &error))?;
        self.check_place(shape, &key)?;
        Ok(shape.keys().row_key(&key))
    }

    fn key_values(&self, table: usize, values: Vec<Value>) -> Result<Vec<Value>, Failure> {
        let shape = &self.shapes[table];
        let fit = |(column, value)| fitted(column, value).map_err(|why| row_failure(shape, &why));
        shape.schema.key_columns().zip(values).map(fit).collect()
    }

    /// A row that lies in another partition is refused by name. Those of a replicated table are in all.
    fn check_place(&self, shape: &Shape, key: &[u8]) -> Result<(), Failure> {
        match shape.schema.is_replicated() || key.starts_with(&self.given.route) {
            true => Ok(()),
            false => {
                let name = &shape.name;
                let why = format!("the call needs a row of table `{name}` that lies in another partition");
                Err(Failure::new(FailureKind::Elsewhere, why))
            }
        }
    }

    /// What the call itself has made of a row; none: nothing.
    pub fn own(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.writes.get(key).cloned()
    }

    /// A stored row, read.
    pub fn decode(&self, table: usize, key: &Bytes, value: &[u8]) -> Result<Row, Failure> {
        let shape = &self.shapes[table];
        decode_row(&shape.schema, &shape.keys().key_of(key), value)
            .map_err(|error| row_failure(shape, &error))
    }

    /// The range of a table's rows whose keys begin with the first `fixed` of these values, from where all of
    /// them stand: to its end, or backwards to its beginning, with the rows whose keys begin with all of
    /// them.
    pub fn range(
        &self,
        table: usize,
        (values, fixed): (Vec<Value>, usize),
        (rows, order): (usize, Order),
    ) -> Result<Look, Failure> {
        let shape = &self.shapes[table];
        if fixed > values.len() || values.len() > shape.schema.key().len() {
            let why = format!("a range of table `{}` is given by values of its key", shape.name);
            return Err(Failure::new(FailureKind::Row, why));
        }
        let values = self.key_values(table, values)?;
        let encode =
            |values: &[Value]| encode_key_prefix(&shape.schema, values).map_err(|e| row_failure(shape, &e));
        let (from, prefix) = (encode(&values)?, encode(&values[..fixed])?);
        self.check_place(shape, &prefix)?;
        let (from, to) = match order {
            Order::Forwards => shape.keys().range(&from, &prefix_end(&prefix)),
            Order::Backwards => shape.keys().range(&prefix, &prefix_end(&from)),
        };
        // Those that the call has removed itself are found, too.
        let gone = self.within(&from, &to).filter(|(_, value)| value.is_none()).count();
        let bytes = self.limits.read_bytes.saturating_sub(self.read_bytes) + 1;
        let rows = match order {
            Order::Forwards => rows + gone,
            Order::Backwards => MAX_BACKWARDS + 1,
        };
        Ok(Look::Scan { from, to, rows, bytes })
    }

    /// What the call itself has made of the rows of a range.
    fn within(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        self.writes.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)))
    }

    /// What was found in a range, with what the call has written itself.
    pub fn merged(
        &mut self,
        table: usize,
        look: &Look,
        found: Vec<(Bytes, Bytes)>,
        (rows, order): (usize, Order),
    ) -> Result<Vec<Row>, Failure> {
        let Look::Scan { from, to, rows: asked, .. } = look else { return Ok(Vec::new()) };
        self.read(found.iter().map(|(key, value)| key.len() + value.len()).sum())?;
        if order == Order::Backwards && found.len() > MAX_BACKWARDS {
            let name = &self.shapes[table].name;
            let why = format!(
                "a range of table `{name}` that is read backwards has more than {MAX_BACKWARDS} rows"
            );
            return Err(Failure::new(FailureKind::Reads, format!("{why}: fix more of its key")));
        }
        // Behind the last row that was found others may be that were not.
        let cut_off = (found.len() >= *asked).then(|| found.last().map(|(key, _)| key.clone())).flatten();
        let mut all: BTreeMap<Bytes, Bytes> = found.into_iter().collect();
        for (key, value) in self.within(from, to) {
            match value {
                Some(value) => all.insert(key.clone(), value.clone()),
                None => all.remove(key),
            };
        }
        let within = |key: &Bytes| cut_off.as_ref().is_none_or(|end| key <= end);
        let kept: Vec<_> = match order {
            Order::Forwards => all.into_iter().filter(|(key, _)| within(key)).take(rows).collect(),
            Order::Backwards => all.into_iter().rev().take(rows).collect(),
        };
        kept.iter().map(|(key, value)| self.decode(table, key, value)).collect()
    }

    /// A row with what its columns have if nothing is said.
    pub fn fresh(&self, table: usize) -> Row {
        let columns = self.shapes[table].schema.columns();
        let value = |column: &types::data::Column| match &column.rules.default {
            Some(Fallback::Value(text)) => column.column_type.parse(text).unwrap_or_default(),
            _ => Value::Null,
        };
        Row::new(columns.iter().map(value).collect())
    }

    /// Writes a row, whatever was there.
    pub fn put(&mut self, table: usize, row: Row) -> Result<(), Failure> {
        self.writable(table)?;
        let shapes = self.shapes.clone();
        let shape = &shapes[table];
        if let Some(why) = shape.unwritable() {
            return Err(Failure::new(FailureKind::Row, why));
        }
        let mut fit = Row { values: Vec::with_capacity(row.values.len()), open: row.open };
        for (column, value) in shape.schema.columns().iter().zip(row.values) {
            fit.values.push(fitted(column, value).map_err(|why| row_failure(shape, &why))?);
        }
        let key = encode_row_key(&shape.schema, &fit).map_err(|error| row_failure(shape, &error))?;
        self.check_place(shape, &key)?;
        if key.len() > shape.keys().longest_key() {
            return Err(row_failure(shape, &"its key is too long"));
        }
        let value = encode_row(&shape.schema, &fit).map_err(|error| row_failure(shape, &error))?;
        self.write(shape.keys().row_key(&key), Some(value.into()))
    }

    /// Removes the row with this stored key.
    pub fn delete(&mut self, table: usize, key: Bytes) -> Result<(), Failure> {
        self.writable(table)?;
        self.write(key, None)
    }

    fn writable(&self, table: usize) -> Result<(), Failure> {
        let shape = &self.shapes[table];
        if self.read_only {
            let why = "the procedure is read only and writes";
            return Err(Failure::new(FailureKind::ReadOnly, why));
        }
        if let Some(why) = shape.unwritable().filter(|_| shape.schema.is_replicated()) {
            return Err(Failure::new(FailureKind::Row, why));
        }
        match shape.state {
            TableState::Live | TableState::Filling => Ok(()),
            TableState::Held | TableState::Dropping => {
                let why =
                    format!("rows of table `{}` are being copied: call again when that is done", shape.name);
                Err(Failure::new(FailureKind::Later, why))
            }
        }
    }

    fn write(&mut self, key: Bytes, value: Option<Bytes>) -> Result<(), Failure> {
        self.written_bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        self.writes.insert(key, value);
        let (bytes, rows) = (self.limits.written_bytes, self.limits.written_rows);
        if self.written_bytes > bytes || self.writes.len() > rows {
            let why = format!("the call writes more than {rows} rows or {bytes} bytes");
            return Err(Failure::new(FailureKind::Writes, why));
        }
        Ok(())
    }

    /// Gives a row.
    pub fn give(&mut self, values: Vec<Value>) -> Result<(), Failure> {
        let refused =
            |why: String| Failure::new(FailureKind::Row, format!("a row that the call gives: {why}"));
        let Some(results) = &self.results else {
            return Err(refused("the procedure has no columns to give".into()));
        };
        let (expected, given) = (results.columns().len(), values.len());
        if expected != given {
            return Err(refused(format!("it has {given} values and not {expected}")));
        }
        let fit = |(column, value)| fitted(column, value);
        let values: Result<Vec<Value>, String> = results.columns().iter().zip(values).map(fit).collect();
        let row = results.encode(values.map_err(refused)?).map_err(|error| refused(error.to_string()))?;
        // What stands around a row is counted with it.
        self.result_bytes += row.len() + 8;
        if self.result_bytes > self.limits.result_bytes {
            let most = self.limits.result_bytes;
            return Err(Failure::new(FailureKind::Results, format!("the call gives more than {most} bytes")));
        }
        self.rows.push(row.into());
        Ok(())
    }

    /// What it comes to.
    pub fn finish(&mut self) -> Effects {
        let writes = std::mem::take(&mut self.writes);
        let affected = u32::try_from(writes.len()).unwrap_or(u32::MAX);
        let mutations = writes.into_iter().map(|(key, value)| Mutation { key, value }).collect();
        Effects { affected, mutations, rows: std::mem::take(&mut self.rows) }
    }
}

/// What is found is what was looked for.
pub(crate) fn one(found: Found) -> Option<Bytes> {
    match found {
        Found::Row(row) => row,
        Found::Rows(_) => panic!("a row was looked for, and a range was found"),
    }
}

/// The same of a range.
pub(crate) fn several(found: Found) -> Vec<(Bytes, Bytes)> {
    match found {
        Found::Rows(rows) => rows,
        Found::Row(_) => panic!("a range was looked for, and a row was found"),
    }
}

pub(crate) fn row_failure(shape: &Shape, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Row, format!("table `{}`: {why}", shape.name))
}
