//! Reads of the cluster's tables: one row by its key, and scans that feed the evaluating engine.

use crate::bind::{Condition, Slot, Source};
use crate::driver::Handle;
use crate::engine::encode::encode;
use crate::engine::{Pages, Reader};
use crate::fault;
use crate::range::{Range, range};
use bytes::Bytes;
use client::{Outcome, Table};
use pg::{Cancel, Failure, Row, code};
use rusqlite::types::Value as Kept;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;
use types::data::Value;
use types::{Lsn, Micros, PartitionId};
use wire::request::Snapshot;
use wire::{Body, Op};

/// How long one call may take, a failover in between included.
pub const CALL: Micros = Micros::from_millis(10_000);
/// Rows in one page.
const PAGE: u32 = 2_000;
/// Pages of one scan that are on their way at once.
const AHEAD: usize = 8;
/// Between two looks whether the statement is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The values of slots, for one execution.
#[derive(Clone, Debug)]
pub struct Values {
    /// The parameters.
    pub parameters: Vec<Value>,
    /// When the statement began, in microseconds since 1970.
    pub now: i64,
}

impl Values {
    /// A slot's value.
    pub fn of(&self, slot: &Slot) -> Value {
        match slot {
            Slot::Const(value) => value.clone(),
            Slot::Param(number) => self.parameters.get(*number).cloned().unwrap_or_default(),
            Slot::Now => Value::Timestamp(self.now),
            Slot::Today => Value::Date(self.now.div_euclid(86_400_000_000) as i32),
        }
    }

    fn of_conditions(&self, conditions: &[Condition]) -> Vec<Value> {
        conditions.iter().map(|condition| self.of(&condition.slot)).collect()
    }
}

fn no_row(body: &Body) -> Failure {
    Failure::new(code::INTERNAL, format!("the answer was not of the expected kind: {body:?}"))
}

/// One row by its whole key, as the wanted columns of it.
pub async fn point(
    handle: &Handle,
    table: &Table,
    key: &[Value],
    columns: &[usize],
) -> Result<Option<Row>, Failure> {
    if key.iter().any(Value::is_null) {
        return Ok(None);
    }
    // A key too long to be stored is in no row.
    let Ok(encoded) = table.key(key) else { return Ok(None) };
    let call = table.get(key).map_err(fault::of_client)?.within(CALL);
    let answer = fault::done(handle.call(call).await)?;
    match answer.map(|answer| answer.body) {
        Some(Body::Row(None)) => Ok(None),
        Some(Body::Row(Some((_, stored)))) => {
            let row = table.decode(&encoded, &stored).map_err(fault::of_client)?;
            Ok(Some(columns.iter().map(|at| row.values[*at].clone()).collect()))
        }
        other => Err(no_row(&other.unwrap_or(Body::None))),
    }
}

/// How many rows are in a part of a table.
pub async fn count(handle: &Handle, table: &Table, range: &Range) -> Result<i64, Failure> {
    let mut waiting = Vec::new();
    for partition in &range.partitions {
        let (from, to, at) = (range.from.clone(), range.to.clone(), Snapshot::Newest);
        let op = Op::Count { from, to, at };
        let (answer, answered) = tokio::sync::oneshot::channel();
        handle.submit(table.call(*partition, op).within(CALL), |outcome| {
            // Nobody waits any more.
            let _ = answer.send(outcome);
        });
        waiting.push(answered);
    }
    let mut sum = 0;
    for answered in waiting {
        let outcome = answered.await.unwrap_or_else(|_| Outcome::Unknown("this node is going down".into()));
        match fault::done(outcome)?.map(|answer| answer.body) {
            Some(Body::Number(rows)) => sum += rows as i64,
            other => return Err(no_row(&other.unwrap_or(Body::None))),
        }
    }
    Ok(sum)
}

/// The sources of one execution of a statement.
pub struct Tables {
    handle: Handle,
    sources: Vec<Source>,
    values: Values,
    cancel: Cancel,
}

impl Tables {
    /// For these sources.
    pub fn new(handle: Handle, sources: Vec<Source>, values: Values, cancel: Cancel) -> Tables {
        Tables { handle, sources, values, cancel }
    }
}

impl Reader for Tables {
    fn open(&self, source: usize) -> Result<Box<dyn Pages>, Failure> {
        let source = &self.sources[source];
        let table = Table::new(source.table.clone());
        let (done, ended) = mpsc::channel();
        let part = range(&table, source, &self.values.of_conditions(&source.conditions));
        let mut scan = Scan {
            handle: self.handle.clone(),
            columns: source.columns.clone(),
            to: part.as_ref().map_or(Bytes::new(), |part| part.to.clone()),
            todo: Vec::new(),
            flying: 0,
            table,
            done,
            ended,
            cancel: self.cancel.clone(),
        };
        if let Some(part) = part {
            let begin = |partition: &PartitionId| (*partition, part.from.clone(), Snapshot::Newest);
            scan.todo = part.partitions.iter().rev().map(begin).collect();
        }
        scan.ask();
        Ok(Box::new(scan))
    }
}

/// A scan of some partitions, each at one LSN, in no order.
struct Scan {
    handle: Handle,
    table: Table,
    columns: Vec<usize>,
    to: Bytes,
    /// Pages to be asked for: partition, first key, and at which state.
    todo: Vec<(PartitionId, Bytes, Snapshot)>,
    flying: usize,
    done: Sender<(PartitionId, Outcome)>,
    ended: Receiver<(PartitionId, Outcome)>,
    cancel: Cancel,
}

impl Scan {
    fn ask(&mut self) {
        while self.flying < AHEAD
            && let Some((partition, from, at)) = self.todo.pop()
        {
            let op = Op::Scan { from, to: self.to.clone(), limit: PAGE, at };
            let done = self.done.clone();
            self.handle.submit(self.table.call(partition, op).within(CALL), move |outcome| {
                // The scan was given up.
                let _ = done.send((partition, outcome));
            });
            self.flying += 1;
        }
    }

    fn wait(&mut self) -> Result<(PartitionId, Outcome), Failure> {
        loop {
            if self.cancel.asked() {
                return Err(Failure::new(code::CANCELED, "canceling statement due to user request"));
            }
            match self.ended.recv_timeout(LOOK) {
                Ok(ended) => return Ok(ended),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new(code::SHUTDOWN, "this node is going down"));
                }
            }
        }
    }

    fn decode(&self, rows: Vec<(Bytes, Lsn, Bytes)>) -> Result<Vec<Vec<Kept>>, Failure> {
        let mut page = Vec::with_capacity(rows.len());
        for (key, _, stored) in rows {
            // A count needs no column.
            if self.columns.is_empty() {
                page.push(Vec::new());
                continue;
            }
            let row = self.table.decode(&key, &stored).map_err(fault::of_client)?;
            page.push(self.columns.iter().map(|at| encode(&row.values[*at])).collect());
        }
        Ok(page)
    }
}

impl Pages for Scan {
    fn next(&mut self) -> Result<Option<Vec<Vec<Kept>>>, Failure> {
        if self.flying == 0 {
            return Ok(None);
        }
        let (partition, outcome) = self.wait()?;
        self.flying -= 1;
        let Some(answer) = fault::done(outcome)? else { return Err(no_row(&Body::None)) };
        let snapshot = Snapshot::At(answer.snapshot());
        let Body::Rows { rows, more } = answer.body else { return Err(no_row(&answer.body)) };
        match rows.last() {
            Some((last, ..)) if more => {
                // The smallest key above the last one.
                self.todo.push((partition, [last, &[0u8][..]].concat().into(), snapshot));
            }
            None if more => return Err(no_row(&Body::None)),
            _ => {}
        }
        self.ask();
        self.decode(rows).map(Some)
    }
}
