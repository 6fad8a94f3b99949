//! Calls within transactions. The procedure runs here and not at the primary: it sees the transaction's
//! snapshots with what the transaction has written, and what it writes becomes the transaction's. What it is
//! given and what it may use is as it is at the primary.

use crate::catalog::Catalog;
use crate::driver::Handle;
use crate::edits::Edits;
use crate::evaluate::Evaluator;
use crate::fault;
use crate::read::{self, CALL};
use crate::txn::buffer::aside;
use crate::txn::{After, Buffer, Edit, View};
use bytes::Bytes;
use client::{Call, Table};
use pg::{Failure, code};
use procedure::{Effects, Found, Given, Limits, Look, Prepared, Rows, Running, Runtime, Shape, Step};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::{CatalogTable, EngineError, KeySpace, Micros, PartitionId, TableId, TableRecord, TableState};
use wire::{Body, CallRequest, Op};

/// So many steps a call takes before other sessions have their turn: about a tenth of a millisecond.
const SLICE_STEPS: u64 = 300_000;
/// Rows in one page of a range.
const PAGE: usize = 2_000;

/// What runs procedures at a gateway.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The interpreter, and what is compiled in.
    pub runtime: Runtime,
    /// What one call may use.
    pub limits: Limits,
}

/// The procedures that a session has called in transactions, ready to be called again.
pub struct Procedures {
    programs: Programs,
    /// The catalog that they were made by.
    revision: u64,
    known: BTreeMap<(TableId, u32), Arc<Prepared>>,
}

impl Procedures {
    /// None yet.
    pub fn new(programs: Programs) -> Procedures {
        Procedures { programs, revision: 0, known: BTreeMap::new() }
    }

    /// What one call may use.
    pub fn limits(&self) -> Limits {
        self.programs.limits.clone()
    }

    /// A procedure of this catalog, ready to be called.
    pub fn prepared(&mut self, catalog: &Catalog, record: &TableRecord) -> Result<Arc<Prepared>, Failure> {
        if self.revision != catalog.revision {
            self.known.clear();
            self.revision = catalog.revision;
        }
        let which = (record.id, record.schema.version());
        if let Some(known) = self.known.get(&which) {
            return Ok(known.clone());
        }
        let gone = |why: String| Failure::new("42P01", why);
        let Some((parameters, definition)) = record.schema.procedure() else {
            return Err(gone(format!("\"{}\" is not a procedure", record.name)));
        };
        let defined = CatalogTable::procedure(record.id, &record.name, parameters, definition.clone(), 0)
            .map_err(gone)?;
        let find = |name: &str| {
            let table = catalog.table(name).filter(|table| table.database().is_some())?;
            let (id, name, schema) = (table.id, table.name.clone(), table.schema.clone());
            Some(Shape { id, name, schema, state: TableState::Live })
        };
        let prepared = Arc::new(self.programs.runtime.prepare(&defined, &find).map_err(gone)?);
        self.known.insert(which, prepared.clone());
        Ok(prepared)
    }
}

/// A call that is to be made in a transaction. It may be made again, if rows have changed: then it is given
/// the same.
pub struct Calling {
    partition: PartitionId,
    request: CallRequest,
    given: Given,
    limits: Limits,
    prepared: Arc<Prepared>,
    tables: Arc<BTreeMap<TableId, Table>>,
}

impl Calling {
    /// This call.
    pub fn new(
        handle: &Handle,
        call: Call,
        (prepared, limits): (Arc<Prepared>, Limits),
    ) -> Result<Calling, Failure> {
        let (partition, Op::Call(request)) = (call.partition, call.op) else {
            return Err(Failure::new(code::INTERNAL, "a call that is none"));
        };
        let map = handle.map();
        let record = map.partitions().find(|record| record.id == partition);
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| Failure::new(code::INTERNAL, error.to_string()))?;
        let given = Given {
            now_ms: client::wall_ms(),
            seed: u64::from_le_bytes(seed),
            policy: record.map(|record| record.policy.name.clone()).unwrap_or_default(),
            copies: record.map_or(0, |record| u8::try_from(record.in_sync.len()).unwrap_or(u8::MAX)),
            route: request.route.clone(),
        };
        let catalog = handle.catalog().ok_or_else(fault::not_ready)?;
        let within = catalog.all().filter(|table| table.database().is_some());
        let tables = within.map(|table| (table.id, Table::new(table.clone()))).collect();
        Ok(Calling { partition, request, given, limits, prepared, tables: Arc::new(tables) })
    }

    /// Makes it over what a view sees. What it does to rows, table by table, and the rows that it gives.
    pub async fn run(&self, evaluator: &Evaluator, view: &View) -> Result<(Vec<Edits>, Vec<Bytes>), Failure> {
        let handle = evaluator.handle.clone();
        let (tables, view, partition) = (self.tables.clone(), view.clone(), self.partition);
        let sight = Arc::new(Sight { handle, view, tables, partition, locked: Mutex::default() });
        let begun = self.prepared.begin(&self.request.arguments, self.given.clone(), self.limits.clone());
        let running = begun.map_err(|failure| fault::of_call(&failure))?;
        let ended = match running.is_stepped() {
            true => in_steps(running, &sight).await?,
            false => apart(running, sight.clone()).await?,
        };
        let effects: Effects = ended.map_err(|failure| fault::of_call(&failure))?;
        let mut written: BTreeMap<TableId, BTreeMap<Bytes, Option<Bytes>>> = BTreeMap::new();
        for mutation in effects.mutations {
            let (table, key) = sight.row(&mutation.key)?;
            written.entry(table.id()).or_default().insert(key, mutation.value);
        }
        Ok((sight.edits(written).await?, effects.rows))
    }
}

/// Runs a program of a user on the sessions' own thread, others between its slices.
async fn in_steps(
    mut running: Running,
    sight: &Sight,
) -> Result<Result<Effects, types::procedure::Failure>, Failure> {
    let mut found = None;
    loop {
        let began = thread_cpu();
        let step = running.step(SLICE_STEPS, found.take());
        running.ran(thread_cpu().since(began));
        match step {
            Step::More => tokio::task::yield_now().await,
            Step::Look(look) => found = Some(sight.find(&look).await?),
            Step::Ended(ended) => return Ok(ended),
        }
    }
}

/// Runs a program that is compiled in on a thread of its own: it waits for rows where it stands.
async fn apart(
    mut running: Running,
    sight: Arc<Sight>,
) -> Result<Result<Effects, types::procedure::Failure>, Failure> {
    let waiting = Waiting { sight, runtime: tokio::runtime::Handle::current(), failed: Mutex::default() };
    let run = move || {
        let progress = running.go_on(&waiting, u64::MAX);
        (progress, waiting.failed.into_inner().unwrap_or_else(PoisonError::into_inner))
    };
    let stopped = |error: tokio::task::JoinError| Failure::new(code::INTERNAL, format!("a call: {error}"));
    match tokio::task::spawn_blocking(run).await.map_err(stopped)? {
        (_, Some(failure)) => Err(failure),
        (Ok(procedure::Progress::Ended(ended)), None) => Ok(ended),
        (Ok(procedure::Progress::More), None) => Err(Failure::new(code::INTERNAL, "a call has no end")),
        (Err(error), None) => Err(Failure::new(code::INTERNAL, error.to_string())),
    }
}

/// Processor time of this thread. What runs beside it on the machine does not count.
fn thread_cpu() -> Micros {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Micros(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000)
}

/// What a call sees.
struct Sight {
    handle: Handle,
    view: View,
    tables: Arc<BTreeMap<TableId, Table>>,
    partition: PartitionId,
    /// The rows that it has looked up by their keys.
    locked: Mutex<BTreeSet<(TableId, Bytes)>>,
}

impl Sight {
    /// Whose row has this stored key, and its encoded key.
    fn row(&self, stored: &Bytes) -> Result<(&Table, Bytes), Failure> {
        let of = self.tables.values().find(|table| KeySpace::Table(table.id()).has(stored));
        let table = of.ok_or_else(|| Failure::new(code::INTERNAL, "a call names a row of no table"))?;
        Ok((table, KeySpace::Table(table.id()).key_of(stored)))
    }

    fn locked(&self) -> MutexGuard<'_, BTreeSet<(TableId, Bytes)>> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn find(&self, look: &Look) -> Result<Found, Failure> {
        match look {
            Look::Get(stored) => {
                let (table, key) = self.row(stored)?;
                let row = read::get(&self.handle, table, &key, &self.view).await?;
                if row.is_some() {
                    self.locked().insert((table.id(), key));
                }
                Ok(Found::Row(row))
            }
            Look::Scan { from, to, rows, bytes } => {
                let (table, first) = self.row(&Bytes::copy_from_slice(from))?;
                let space = KeySpace::Table(table.id());
                // A range may end where the table does.
                let to = if space.has(to) { space.key_of(&Bytes::copy_from_slice(to)) } else { Bytes::new() };
                let found = self.range(table, (first, to), (*rows, *bytes)).await?;
                let stored = |(key, row): (Bytes, Bytes)| (space.row_key(&key), row);
                Ok(Found::Rows(found.into_iter().map(stored).collect()))
            }
        }
    }

    /// The partitions in which a call looks for rows: its own; where transactions are global, all.
    fn partitions(&self) -> Vec<PartitionId> {
        match self.view.is_global() {
            true => self.handle.partitions().map(PartitionId).collect(),
            false => vec![self.partition],
        }
    }

    /// The first rows of a range, by encoded keys: so many, and none behind so many bytes.
    async fn range(
        &self,
        table: &Table,
        (first, to): (Bytes, Bytes),
        (rows, bytes): (usize, usize),
    ) -> Result<Vec<(Bytes, Bytes)>, Failure> {
        let mut all: BTreeMap<Bytes, Bytes> = BTreeMap::new();
        let mut end: Option<Bytes> = None;
        for partition in self.partitions() {
            let range = (first.clone(), to.clone());
            let (found, last) = self.range_in(table, partition, range, (rows, bytes)).await?;
            all.extend(found);
            end = [end, last].into_iter().flatten().min();
        }
        // What a partition, or the transaction, has behind the last row that was asked for is not next to it.
        let near = |key: &Bytes| end.as_ref().is_none_or(|end| key <= end);
        let buffer = &self.view.buffer;
        if buffer.holds(self.partition) {
            let (id, range) = (table.id(), (first.clone(), to.clone()));
            let own = move |buffer: &Buffer| buffer.range(id, (&range.0, &range.1), rows);
            all.extend(aside(buffer, own).await?);
        }
        Ok(all.into_iter().filter(|(key, _)| near(key)).take(rows).collect())
    }

    /// The same of one partition, without what the transaction has written. With the last key that was looked
    /// at, if there may be more behind it.
    async fn range_in(
        &self,
        table: &Table,
        partition: PartitionId,
        (mut from, to): (Bytes, Bytes),
        (rows, bytes): (usize, usize),
    ) -> Result<(Vec<(Bytes, Bytes)>, Option<Bytes>), Failure> {
        let (buffer, place) = (&self.view.buffer, (table.id(), partition));
        let (mut found, mut read) = (Vec::new(), 0);
        while !self.view.is_empty(table) {
            let limit = u32::try_from((rows - found.len().min(rows)).clamp(1, PAGE)).unwrap_or(u32::MAX);
            let op = Op::Scan { from, to: to.clone(), limit, at: self.view.at(table, partition) };
            let call = self.view.asks(table.call(partition, op)).within(CALL);
            let answer = fault::answer(self.handle.call(call).await)?;
            self.view.saw(table, partition, answer.snapshot());
            let Body::Rows { rows: page, more } = answer.body else {
                return Err(Failure::new(code::INTERNAL, "a range without rows"));
            };
            let last = page.last().map(|(key, ..)| key.clone());
            let keys: Vec<Bytes> = page.iter().map(|(key, ..)| key.clone()).collect();
            let own = Buffer::rows(buffer, place, &keys).await?;
            for ((key, _, row), seen) in page.into_iter().zip(own) {
                if seen.is_none() {
                    read += key.len() + row.len();
                    found.push((key, row));
                }
            }
            let Some(last) = last.filter(|_| more) else { break };
            if found.len() >= rows || read >= bytes {
                return Ok((found, Some(last)));
            }
            from = [&last[..], &[0]].concat().into();
        }
        Ok((found, None))
    }

    /// What a call does to rows. One that writes has locked those that it has looked up, too: what it writes
    /// follows from them.
    async fn edits(
        &self,
        written: BTreeMap<TableId, BTreeMap<Bytes, Option<Bytes>>>,
    ) -> Result<Vec<Edits>, Failure> {
        if written.is_empty() {
            return Ok(Vec::new());
        }
        let locked = std::mem::take(&mut *self.locked());
        let mut edits: BTreeMap<TableId, Vec<Edit>> = BTreeMap::new();
        for (id, rows) in &written {
            let table =
                self.tables.get(id).ok_or_else(|| Failure::new(code::INTERNAL, "rows of no table"))?;
            let keys: Vec<Bytes> = rows.keys().cloned().collect();
            let there = read::get_all(&self.handle, table, self.partition, &keys, &self.view).await?;
            let each = rows.iter().zip(there).map(|((key, row), there)| {
                let after = row.clone().map_or(After::Gone, After::Row);
                Edit::new(key.clone(), there.is_some(), after)
            });
            edits.insert(*id, each.collect());
        }
        for (id, key) in locked {
            let is_written = written.get(&id).is_some_and(|rows| rows.contains_key(&key));
            // Nobody else writes rows of a table that the transaction has made.
            let is_own = self.tables.get(&id).is_none_or(|table| self.view.is_made(table));
            if !is_written && !is_own {
                edits.entry(id).or_default().push(Edit::new(key, true, After::Same));
            }
        }
        let of = |(id, edits): (TableId, Vec<Edit>)| {
            let table = self.tables.get(&id)?.clone();
            let (partition, count) = (Some(self.partition), edits.len() as u64);
            Some(Edits { table, partition, edits, count, told: None, replaced: Vec::new() })
        };
        Ok(edits.into_iter().filter_map(of).collect())
    }
}

/// The rows for a program that waits for them.
struct Waiting {
    sight: Arc<Sight>,
    runtime: tokio::runtime::Handle,
    /// Why there are none.
    failed: Mutex<Option<Failure>>,
}

impl Waiting {
    fn find(&self, look: &Look) -> Result<Found, EngineError> {
        self.runtime.block_on(self.sight.find(look)).map_err(|failure| {
            let error = EngineError::Io(std::io::Error::other(failure.message.clone()));
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            error
        })
    }
}

impl Rows for Waiting {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        match self.find(&Look::Get(Bytes::copy_from_slice(key)))? {
            Found::Row(row) => Ok(row),
            Found::Rows(_) => Ok(None),
        }
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        rows: usize,
        bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        match self.find(&Look::Scan { from: from.into(), to: to.into(), rows, bytes })? {
            Found::Rows(rows) => Ok(rows),
            Found::Row(_) => Ok(Vec::new()),
        }
    }
}
