//! Reads of the cluster's tables: one row by its key, and scans that feed the evaluating engine.

use crate::bind::{Condition, KEY, STORED, Slot, Source};
use crate::driver::Handle;
use crate::engine::encode::encode;
use crate::engine::{Pages, Reader};
use crate::eval;
use crate::fault;
use crate::range::{Entries, Range, range};
use crate::system::{self, facts::Facts};
use crate::txn::buffer::{Seen, aside};
use crate::txn::{Buffer, View};
use bytes::Bytes;
use client::{Call, FailKind, Outcome, Table};
use pg::{Cancel, Failure, Row, code};
use rusqlite::types::Value as Kept;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;
use tokio::sync::oneshot;
use types::data::Value;
use types::{Lsn, Micros, PartitionId};
use wire::request::ReadSnapshot;
use wire::{Body, Op};

/// A row as a replica sends it: key, LSN and bytes.
type StoredRow = (Bytes, Lsn, Bytes);

/// How long one call may take, a failover in between included.
pub const CALL: Micros = Micros::from_millis(10_000);
/// Rows in one page.
const PAGE: u32 = 2_000;
/// Pages of one scan that are on their way at once.
const AHEAD: usize = 8;
/// Rows asked for by their keys that are on their way at once.
const FLYING: usize = 1_000;
/// Between two looks whether the statement is to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

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
            Slot::Random => eval::random_uuid(),
        }
    }

    /// The values of these conditions' slots.
    pub fn of_conditions(&self, conditions: &[Condition]) -> Vec<Value> {
        conditions.iter().map(|condition| self.of(&condition.slot)).collect()
    }
}

fn no_row(body: &Body) -> Failure {
    Failure::new(code::INTERNAL, format!("the answer was not of the expected kind: {body:?}"))
}

/// The row under a key, as it is stored.
pub async fn get(handle: &Handle, table: &Table, key: &Bytes, view: &View) -> Result<Option<Bytes>, Failure> {
    let partition = table.partition_of(key).map_err(fault::of_client)?;
    if let Some(written) = Buffer::seen(&view.buffer, (table.id(), partition), key).await? {
        return Ok(written);
    }
    if view.is_empty(table) {
        return Ok(None);
    }
    let op = Op::Get { key: key.clone(), at: view.at(table, partition) };
    let call = view.asks(table.call(partition, op));
    got(handle.call(call.within(CALL)).await, table, partition, view)
}

/// The rows under keys of one partition, in their order; where transactions are global, of any partitions.
pub async fn get_all(
    handle: &Handle,
    table: &Table,
    partition: PartitionId,
    keys: &[Bytes],
    view: &View,
) -> Result<Vec<Option<Bytes>>, Failure> {
    pin(handle, [(table.clone(), partition)].into(), view).await?;
    let mut rows = Vec::with_capacity(keys.len());
    for keys in keys.chunks(FLYING) {
        let seen = Buffer::rows(&view.buffer, (table.id(), partition), keys).await?;
        let ask = |(key, seen): (&Bytes, Seen)| match seen {
            Some(written) => Err(written),
            None if view.is_empty(table) => Err(None),
            None => {
                // Global transactions write in any partitions.
                let own = view.is_global().then(|| table.partition_of(key).ok()).flatten();
                let partition = own.unwrap_or(partition);
                let op = Op::Get { key: key.clone(), at: view.at(table, partition) };
                Ok(ask(handle, view.asks(table.call(partition, op))))
            }
        };
        let asked: Vec<_> = keys.iter().zip(seen).map(ask).collect();
        for one in asked {
            rows.push(match one {
                Err(written) => written,
                Ok(answered) => got(answered.await.unwrap_or_else(|_| gone()), table, partition, view)?,
            });
        }
    }
    Ok(rows)
}

fn got(
    outcome: Outcome,
    table: &Table,
    partition: PartitionId,
    view: &View,
) -> Result<Option<Bytes>, Failure> {
    let answer = fault::answer(outcome)?;
    view.saw(table, partition, answer.snapshot());
    match answer.body {
        Body::Row(row) => Ok(row.map(|(_, stored)| stored)),
        other => Err(no_row(&other)),
    }
}

/// Makes a call; its end is awaited later.
pub fn ask(handle: &Handle, call: Call) -> oneshot::Receiver<Outcome> {
    let (answer, answered) = oneshot::channel();
    handle.submit(call.within(CALL), |outcome| {
        // Nobody waits any more.
        let _ = answer.send(outcome);
    });
    answered
}

/// What a call ended with that nobody answers any more.
pub fn gone() -> Outcome {
    Outcome::Unknown("this node is going down".into())
}

/// Decides at which states partitions are read from now on, if that is to last and was not decided before.
pub async fn pin(handle: &Handle, partitions: Vec<(Table, PartitionId)>, view: &View) -> Result<(), Failure> {
    if !view.is_lasting() {
        return Ok(());
    }
    let new = partitions.into_iter().filter(|(table, partition)| {
        let unknown = view.position(*partition).is_none();
        unknown && matches!(view.at(table, *partition), ReadSnapshot::Begin)
    });
    let hold = |(table, partition): (Table, PartitionId)| {
        let call = table.call(partition, Op::Hold { at: ReadSnapshot::Begin });
        (ask(handle, call), table, partition)
    };
    let asked: Vec<_> = new.map(hold).collect();
    for (answered, table, partition) in asked {
        let answer = fault::answer(answered.await.unwrap_or_else(|_| gone()))?;
        view.saw(&table, partition, answer.snapshot());
    }
    Ok(())
}

/// The partitions that these sources are read from.
pub fn partitions(sources: &[Source], values: &Values) -> Vec<(Table, PartitionId)> {
    let mut found = Vec::new();
    for source in sources {
        let table = Table::new(source.table.clone());
        if let Some(part) = range(&table, source, &values.of_conditions(&source.conditions)) {
            found.extend(part.partitions.into_iter().map(|partition| (table.clone(), partition)));
        }
    }
    found
}

/// One row by its whole key, as the wanted columns of it.
pub async fn point(
    handle: &Handle,
    table: &Table,
    key: &[Value],
    columns: &[usize],
    view: &View,
) -> Result<Option<Row>, Failure> {
    let Some(key) = encoded_key(table, key) else { return Ok(None) };
    let Some(stored) = get(handle, table, &key, view).await? else { return Ok(None) };
    let row = table.decode(&key, &stored).map_err(fault::of_client)?;
    Ok(Some(columns.iter().map(|at| row.values[*at].clone()).collect()))
}

/// A key that a row can have. Nothing compares with null, and a key too long to be stored is in no row.
pub fn encoded_key(table: &Table, key: &[Value]) -> Option<Bytes> {
    if key.iter().any(Value::is_null) { None } else { table.key(key).ok() }
}

/// How many rows are in a part of a table.
pub async fn count(handle: &Handle, table: &Table, range: &Range, view: &View) -> Result<i64, Failure> {
    let mut waiting = Vec::new();
    let mut sum = 0;
    if view.is_empty(table) {
        sum += grown(table, range, view).await?;
    }
    for partition in range.partitions.iter().filter(|_| !view.is_empty(table)) {
        let at = view.at(table, *partition);
        let op = Op::Count { from: range.from.clone(), to: range.to.clone(), at };
        waiting.push((*partition, ask(handle, view.asks(table.call(*partition, op)))));
    }
    for (partition, answered) in waiting {
        let answer = fault::answer(answered.await.unwrap_or_else(|_| gone()))?;
        view.saw(table, partition, answer.snapshot());
        match answer.body {
            Body::Number(rows) => sum += rows as i64,
            other => return Err(no_row(&other)),
        }
    }
    if !view.is_empty(table) && range.partitions.iter().any(|partition| view.buffer.holds(*partition)) {
        sum += grown(table, range, view).await?;
    }
    Ok(sum)
}

/// By how many rows the transaction has more there.
async fn grown(table: &Table, range: &Range, view: &View) -> Result<i64, Failure> {
    let (id, from, to) = (table.id(), range.from.clone(), range.to.clone());
    aside(&view.buffer, move |buffer| buffer.grown(id, (&from, &to))).await
}

/// The statement was started without what system tables are made from.
pub fn no_facts() -> Failure {
    Failure::new(code::INTERNAL, "nothing is known of the cluster here")
}

/// Rows that are there.
pub struct Ready(pub Option<Vec<Vec<Kept>>>);

impl Pages for Ready {
    fn next(&mut self) -> Result<Option<Vec<Vec<Kept>>>, Failure> {
        Ok(self.0.take())
    }
}

/// The sources of one execution of a statement.
pub struct Tables {
    handle: Handle,
    sources: Vec<Source>,
    values: Values,
    view: View,
    cancel: Cancel,
    facts: Option<Facts>,
}

impl Tables {
    /// For these sources, as the view has them.
    pub fn new(handle: Handle, sources: Vec<Source>, values: Values, view: View, cancel: Cancel) -> Tables {
        Tables { handle, sources, values, view, cancel, facts: None }
    }

    /// With what functions and system tables ask for.
    pub fn knowing(self, facts: Facts) -> Tables {
        Tables { facts: Some(facts), ..self }
    }
}

impl Reader for Tables {
    fn facts(&self) -> Option<&Facts> {
        self.facts.as_ref()
    }

    fn open(&self, source: usize) -> Result<Box<dyn Pages>, Failure> {
        if let Some(system) = source.checked_sub(system::FIRST) {
            let facts = self.facts.as_ref().ok_or_else(no_facts)?;
            return Ok(Box::new(Ready(Some(system::rows(system, facts)?))));
        }
        let source = &self.sources[source];
        let table = Table::new(source.table.clone());
        let (done, ended) = mpsc::channel();
        let part = range(&table, source, &self.values.of_conditions(&source.conditions));
        let mut scan = Scan {
            handle: self.handle.clone(),
            columns: source.columns.clone(),
            range: part.clone(),
            view: self.view.clone(),
            own: None,
            todo: Vec::new(),
            flying: 0,
            table,
            done,
            ended,
            cancel: self.cancel.clone(),
        };
        if let Some(part) = part {
            let (by_index, from) = match &part.by {
                Some(entries) => (true, entries.from.clone()),
                None => (false, part.from.clone()),
            };
            let begin = |partition: &PartitionId| {
                let at = self.view.at(&scan.table, *partition);
                Page { partition: *partition, by_index, from: from.clone(), at, first: true }
            };
            let there = part.partitions.iter().rev().filter(|_| !self.view.is_empty(&scan.table));
            scan.todo = there.map(begin).collect();
            if part.partitions.iter().any(|partition| self.view.buffer.holds(*partition)) {
                scan.own = Some(part.from.clone());
            }
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
    range: Option<Range>,
    view: View,
    /// The first key from which rows that the transaction has written are to be given.
    own: Option<Bytes>,
    /// Pages to be asked for.
    todo: Vec<Page>,
    flying: usize,
    done: Sender<(Page, Outcome)>,
    ended: Receiver<(Page, Outcome)>,
    cancel: Cancel,
}

/// A page of a scan.
#[derive(Clone)]
struct Page {
    partition: PartitionId,
    /// By the range's index, else by key.
    by_index: bool,
    /// The first key, or the first entry of the index.
    from: Bytes,
    /// At which state.
    at: ReadSnapshot,
    /// The partition's first.
    first: bool,
}

impl Scan {
    fn ask(&mut self) {
        while self.flying < AHEAD
            && let (Some(page), Some(range)) = (self.todo.pop(), &self.range)
        {
            let (from, at) = (page.from.clone(), page.at);
            let op = match range.by.as_ref().filter(|_| page.by_index) {
                Some(Entries { index, to, .. }) => {
                    Op::Find { index: *index, from, to: to.clone(), limit: PAGE, at }
                }
                None => Op::Scan { from, to: range.to.clone(), limit: PAGE, at },
            };
            let done = self.done.clone();
            let call = self.view.asks(self.table.call(page.partition, op));
            self.handle.submit(call.within(CALL), move |outcome| {
                // The scan was given up.
                let _ = done.send((page, outcome));
            });
            self.flying += 1;
        }
    }

    /// Some of the rows that the transaction has written; `None`: there are no more.
    fn next_own(&mut self) -> Result<Option<Vec<StoredRow>>, Failure> {
        let (Some(from), Some(range)) = (self.own.take(), self.range.as_ref()) else { return Ok(None) };
        let own = self.view.buffer.range(self.table.id(), (&from, &range.to), PAGE as usize)?;
        let own: Vec<_> = own.into_iter().map(|(key, row)| (key, Lsn::ZERO, row)).collect();
        // The smallest key above the last one.
        self.own = own.last().map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
        Ok((!own.is_empty()).then_some(own))
    }

    fn wait(&mut self) -> Result<(Page, Outcome), Failure> {
        loop {
            if self.cancel.asked() {
                return Err(Failure::new(code::CANCELED, "canceling statement due to user request"));
            }
            match self.ended.recv_timeout(POLL_INTERVAL) {
                Ok(ended) => return Ok(ended),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new(code::SHUTDOWN, "this node is going down"));
                }
            }
        }
    }

    fn decode(&self, rows: Vec<StoredRow>) -> Result<Vec<Vec<Kept>>, Failure> {
        let mut page = Vec::with_capacity(rows.len());
        for (key, _, stored) in rows {
            // A count needs no column.
            if self.columns.is_empty() {
                page.push(Vec::new());
                continue;
            }
            let row = self.table.decode(&key, &stored).map_err(fault::of_client)?;
            let one = |at: &usize| match *at {
                KEY => Kept::Blob(key.to_vec()),
                STORED => Kept::Blob(stored.to_vec()),
                at => encode(&row.values[at]),
            };
            page.push(self.columns.iter().map(one).collect());
        }
        Ok(page)
    }
}

impl Pages for Scan {
    fn next(&mut self) -> Result<Option<Vec<Vec<Kept>>>, Failure> {
        if let Some(own) = self.next_own()? {
            return self.decode(own).map(Some);
        }
        if self.flying == 0 {
            return Ok(None);
        }
        let (page, outcome) = self.wait()?;
        self.flying -= 1;
        let partition = page.partition;
        if let (Outcome::Failed(FailKind::NoIndex, _), true, Some(range)) =
            (&outcome, page.first, &self.range)
        {
            // It is not ready there: the partition's rows are read by key.
            self.todo.push(Page { by_index: false, from: range.from.clone(), ..page });
            self.ask();
            return Ok(Some(Vec::new()));
        }
        let answer = fault::answer(outcome)?;
        let snapshot = answer.snapshot();
        self.view.saw(&self.table, partition, snapshot);
        let (mut rows, next) = match answer.body {
            Body::Rows { rows, more } => {
                // The smallest key above the last one.
                let next = rows.last().map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
                if more && next.is_none() {
                    return Err(no_row(&Body::None));
                }
                (rows, next.filter(|_| more))
            }
            Body::Found { rows, next } => (rows, (!next.is_empty()).then_some(next)),
            other => return Err(no_row(&other)),
        };
        if let Some(from) = next {
            self.todo.push(Page { from, at: View::next_page(page.at, snapshot), first: false, ..page });
        }
        self.ask();
        if !self.view.buffer.is_empty() {
            let place = (self.table.id(), partition);
            let mut left = Vec::with_capacity(rows.len());
            for row in rows {
                if self.view.buffer.row(place, &row.0)?.is_none() {
                    left.push(row);
                }
            }
            rows = left;
        }
        self.decode(rows).map(Some)
    }
}
