//! Rows of a COPY on their way into a table.
//!
//! The first 4 MiB are only read and checked: what ends before is refused as a whole if a row is malformed,
//! and written as one write if it lies in one partition. What is longer is written in batches, several at
//! once, while it comes. Memory is bounded by what is held and what is on its way. Nothing that is written is
//! undone: an error says how much that is.

use super::CopyIn;
use crate::constraints::check;
use crate::constraints::violation::{self, Refused};
use crate::evaluate::Evaluator;
use crate::fault::{self, Decided};
use crate::read::Values;
use crate::rows::Filler;
use crate::txn::{Acknowledged, Limit, Room};
use crate::ty::Ty;
use crate::write::{self, encoded, whole};
use bytes::Bytes;
use client::{Outcome, Table};
use pg::copy::{Reader, Record};
use pg::{Failure, Kind, code};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use types::data::Value;
use types::{Micros, PartitionId};
use wire::message::MAX_OPS;
use wire::request::ReadSnapshot;
use wire::{Body, Op, RowOp};

/// So many bytes of keys and rows are checked before the first is written.
const HELD_BYTES: usize = 4 << 20;
/// A batch is sent when it has so many rows.
const BATCH_ROWS: usize = 500;
/// A batch is sent when it has so many bytes of keys and rows.
const BATCH_BYTES: usize = 256 << 10;
/// Batches of one partition that are on their way at once.
const PER_PARTITION: usize = 4;
/// Bytes of all batches that are on their way at once.
const FLYING_BYTES: usize = 16 << 20;
/// Bytes of rows that wait for their batches to be full.
const FORMING_BYTES: usize = 16 << 20;
/// How long one batch may take, a failover in between included.
const BATCH: Micros = Micros::from_millis(60_000);
/// Memory that rows of a transaction have before they are its own, however much others have.
const FREE_BYTES: usize = 32 << 20;
/// So many bytes of memory are asked for at once.
const STEP_BYTES: usize = 1 << 20;
/// What such a row takes beside its own bytes.
const ROW_MEMORY: usize = 128;

/// Rows for one partition, with their lines.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) ops: Vec<RowOp>,
    pub(super) lines: Vec<u64>,
    pub(super) bytes: usize,
}

/// A batch that was sent: its keys, to say which one was there already.
struct Flying {
    partition: PartitionId,
    keys: Vec<Bytes>,
    lines: Vec<u64>,
    bytes: usize,
}

/// What of a COPY is stored.
#[derive(Default)]
pub(super) struct Stored {
    pub(super) rows: u64,
    acknowledged: Acknowledged,
}

/// A COPY FROM STDIN under way.
pub struct CopyInput {
    pub(super) evaluator: Evaluator,
    /// When it began, in microseconds since 1970.
    now: i64,
    pub(super) table: Table,
    /// Those that the client gives.
    columns: Vec<usize>,
    kinds: Vec<Kind>,
    filler: Filler,
    reader: Reader,
    pub(super) forming: BTreeMap<PartitionId, Batch>,
    pub(super) forming_bytes: usize,
    /// Nothing is sent yet.
    holding: bool,
    flying: HashMap<u64, Flying>,
    flying_bytes: usize,
    sent: u64,
    done: UnboundedSender<(u64, Outcome)>,
    ended: UnboundedReceiver<(u64, Outcome)>,
    /// Rows that are stored.
    pub(super) stored: Stored,
    /// Rows of which it is not known whether they are stored.
    pub(super) unknown: u64,
    /// What went wrong with a batch first.
    trouble: Option<Failure>,
    /// Whose rows they are until the end.
    into: Into,
    /// How many the transaction may take in.
    limit: Limit,
    /// What they have of the memory until it does, and how much was asked for.
    room: Room,
    asked: usize,
    /// So many the transaction has taken in already.
    taken: usize,
}

/// Where rows of a COPY go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Into {
    /// They are stored as they come, and stay.
    Table,
    /// They are stored as they come, in a table that a transaction has made: it takes them back.
    Made,
    /// A transaction, or a replicated table, takes all of them in when the last one has come.
    Transaction,
}

impl CopyInput {
    /// Begins.
    pub fn new(
        evaluator: Evaluator,
        (copy, into, limit): (&CopyIn, Into, Limit),
        values: &Values,
    ) -> Result<CopyInput, Failure> {
        let table = Table::new(copy.table.clone());
        let column = |at: &usize| &table.schema().columns()[*at];
        let names = copy.columns.iter().map(|at| column(at).name.clone()).collect();
        let kinds = copy.columns.iter().map(|at| Ty::of_column(column(at)).kind()).collect();
        let (done, ended) = unbounded_channel();
        Ok(CopyInput {
            room: Room::new(&evaluator.memory, FREE_BYTES),
            evaluator,
            now: values.now,
            filler: Filler::new(&table, &copy.columns, values)?,
            columns: copy.columns.clone(),
            kinds,
            reader: Reader::new(copy.format.clone(), names),
            table,
            forming: BTreeMap::new(),
            forming_bytes: 0,
            holding: true,
            flying: HashMap::new(),
            flying_bytes: 0,
            sent: 0,
            done,
            ended,
            stored: Stored::default(),
            unknown: 0,
            trouble: None,
            into,
            limit,
            asked: 0,
            taken: 0,
        })
    }

    /// Takes a piece in, and waits while too much is on its way.
    pub async fn data(&mut self, piece: &[u8]) -> Result<(), Failure> {
        while let Ok((number, outcome)) = self.ended.try_recv() {
            self.take_in(number, outcome).await?;
        }
        self.reader.push(piece);
        self.rows(false).await
    }

    /// Everything has come. The tag of what was done.
    pub async fn finish(&mut self) -> Result<String, Failure> {
        self.rows(true).await?;
        if self.into == Into::Transaction {
            let rows: usize = self.forming.values().map(|batch| batch.ops.len()).sum();
            return Ok(format!("COPY {}", self.taken + rows));
        }
        if self.table.is_global() {
            self.commit_rows().await?;
            return Ok(format!("COPY {}", self.stored.rows));
        }
        // What is one write is done as a whole or not at all.
        let rows = self.forming.values().next().map_or(0, |batch| batch.ops.len());
        let whole = self.holding && self.forming.len() == 1 && rows <= MAX_OPS;
        let partitions: Vec<PartitionId> = self.forming.keys().copied().collect();
        for partition in partitions {
            self.send(partition, if whole { MAX_OPS } else { BATCH_ROWS }).await?;
        }
        while !self.flying.is_empty() {
            self.wait().await?;
        }
        Ok(format!("COPY {}", self.stored.rows))
    }

    /// True if a transaction takes back what is stored when it is rolled back.
    pub fn is_taken_back(&self) -> bool {
        self.into == Into::Made
    }

    /// The entries that stored its rows.
    pub fn acknowledged(&self) -> &Acknowledged {
        &self.stored.acknowledged
    }

    /// The rows that a transaction takes in, if it does.
    pub fn kept(&mut self) -> Option<(Table, Vec<RowOp>)> {
        if self.into != Into::Transaction {
            return None;
        }
        let rows = std::mem::take(&mut self.forming).into_values().flat_map(|batch| batch.ops);
        Some((self.table.clone(), rows.collect()))
    }

    /// The same, if they take more memory than so many bytes: more are to come.
    pub fn kept_over(&mut self, bytes: usize) -> Option<(Table, Vec<RowOp>)> {
        let kept = self.kept_bytes() >= bytes && self.into == Into::Transaction;
        let (table, rows) = kept.then(|| self.kept()).flatten()?;
        self.taken += rows.len();
        (self.forming_bytes, self.asked) = (0, 0);
        // It is less than it was.
        drop(self.room.hold(0));
        Some((table, rows))
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// True if the transaction has taken rows of it in already.
    pub fn is_taken_in_pieces(&self) -> bool {
        self.taken > 0
    }

    /// Waits for what is on its way. The reason with what became of the rows.
    pub async fn give_up(&mut self, why: Failure) -> Failure {
        self.forming.clear();
        while !self.flying.is_empty() {
            // The first error is told.
            let _ = self.wait().await;
        }
        if self.into != Into::Table {
            return why;
        }
        let mut outcome = match self.stored.rows {
            0 => "nothing was written".to_string(),
            1 => "1 row of this COPY is stored and stays, it is not undone".to_string(),
            rows => format!("{rows} rows of this COPY are stored and stay, they are not undone"),
        };
        if self.unknown > 0 {
            let begin = if self.stored.rows == 0 { String::new() } else { format!("{outcome}; ") };
            outcome = format!("{begin}of {} rows it is not known whether they are stored", self.unknown);
        }
        let hint = why.hint.as_ref().map_or(outcome.clone(), |hint| format!("{hint} ({outcome})"));
        why.hint(hint)
    }

    async fn rows(&mut self, last: bool) -> Result<(), Failure> {
        loop {
            let record = self.reader.next(last).map_err(|failure| self.at_line(failure))?;
            let Some(record) = record else { return Ok(()) };
            self.add(record).await?;
        }
    }

    fn at_line(&self, failure: Failure) -> Failure {
        let (name, line) = (self.table.name(), self.reader.line());
        failure.context(format!("COPY {name}, line {line}: \"{}\"", self.reader.shown()))
    }

    async fn add(&mut self, record: Record) -> Result<(), Failure> {
        let mut values = Vec::with_capacity(record.len());
        for ((field, kind), at) in record.into_iter().zip(&self.kinds).zip(&self.columns) {
            let Some(text) = field else {
                values.push(Value::Null);
                continue;
            };
            values.push(pg::text::parse(*kind, &text).map_err(|failure| {
                let (name, column) = (self.table.name(), &self.table.schema().columns()[*at].name);
                let (line, shown) = (self.reader.line(), pg::copy::shortened(&text));
                failure.context(format!("COPY {name}, line {line}, column {column}: \"{shown}\""))
            })?);
        }
        let mut rows = [values];
        self.filler.fill(&self.evaluator.handle, self.evaluator.numbers(), &self.table, &mut rows).await?;
        let [values] = rows;
        let row = whole(&self.table, &self.filler.columns, values);
        let row = row.map_err(|failure| self.at_line(failure))?;
        let (key, row) = encoded(&self.table, &row).map_err(|failure| self.at_line(failure))?;
        let partition = self.table.partition_of(&key).map_err(fault::of_client)?;
        let batch = self.forming.entry(partition).or_default();
        let bytes = key.len() + row.len();
        batch.lines.push(self.reader.line());
        batch.ops.push(RowOp::Insert { key, row });
        batch.bytes += bytes;
        self.forming_bytes += bytes;
        self.send_full(partition).await
    }

    /// Sends what is full, or too much to wait.
    async fn send_full(&mut self, partition: PartitionId) -> Result<(), Failure> {
        if self.into == Into::Transaction {
            return self.keep();
        }
        if self.table.is_global() {
            return self.commit_full().await;
        }
        if self.holding {
            if self.forming_bytes < HELD_BYTES {
                return Ok(());
            }
            self.holding = false;
            let held: Vec<PartitionId> = self.forming.keys().copied().collect();
            for partition in held {
                self.send(partition, BATCH_ROWS).await?;
            }
            return Ok(());
        }
        let full = |batch: &Batch| batch.ops.len() >= BATCH_ROWS || batch.bytes >= BATCH_BYTES;
        if self.forming.get(&partition).is_some_and(full) {
            self.send(partition, BATCH_ROWS).await?;
        }
        if self.forming_bytes >= FORMING_BYTES {
            let largest = self.forming.iter().max_by_key(|(_, batch)| batch.bytes);
            if let Some(largest) = largest.map(|(partition, _)| *partition) {
                self.send(largest, BATCH_ROWS).await?;
            }
        }
        Ok(())
    }

    /// The memory that rows take which are kept.
    fn kept_bytes(&self) -> usize {
        let rows: usize = self.forming.values().map(|batch| batch.ops.len()).sum();
        self.forming_bytes + rows * ROW_MEMORY
    }

    /// Rows are kept until the transaction takes them in, if there is room.
    fn keep(&mut self) -> Result<(), Failure> {
        let rows: usize = self.forming.values().map(|batch| batch.ops.len()).sum();
        if rows > self.limit.rows || self.forming_bytes > self.limit.bytes {
            if self.table.schema().is_replicated() {
                return Err(fault::replicated_too_large(self.table.name(), self.limit.bytes));
            }
            let hint = "COPY by itself, or into a table that the transaction has made or truncated";
            return Err(self.limit.passed().hint(hint));
        }
        let taken = self.kept_bytes();
        if taken > self.asked {
            self.asked = taken + STEP_BYTES;
            self.room.hold(self.asked)?;
        }
        Ok(())
    }

    /// Sends the rows of a partition, in writes of at most so many.
    async fn send(&mut self, partition: PartitionId, rows: usize) -> Result<(), Failure> {
        let limit = if rows == BATCH_ROWS { BATCH_BYTES } else { usize::MAX };
        let Some(batch) = self.forming.remove(&partition) else { return Ok(()) };
        self.forming_bytes -= batch.bytes;
        let mut part = Batch::default();
        for (op, line) in batch.ops.into_iter().zip(batch.lines) {
            part.bytes += op.key().len() + op.row().map_or(0, Bytes::len);
            part.ops.push(op);
            part.lines.push(line);
            if part.ops.len() >= rows || part.bytes >= limit {
                self.submit(partition, std::mem::take(&mut part)).await?;
            }
        }
        if part.ops.is_empty() { Ok(()) } else { self.submit(partition, part).await }
    }

    async fn submit(&mut self, partition: PartitionId, batch: Batch) -> Result<(), Failure> {
        let busy = |copy_input: &CopyInput| {
            let there = copy_input.flying.values().filter(|flying| flying.partition == partition).count();
            there >= PER_PARTITION || copy_input.flying_bytes >= FLYING_BYTES
        };
        self.check(&batch).await?;
        while busy(self) {
            self.wait().await?;
        }
        let keys = batch.ops.iter().map(|op| op.key().clone()).collect();
        let (number, done) = (self.sent, self.done.clone());
        self.sent += 1;
        self.flying_bytes += batch.bytes;
        self.flying.insert(number, Flying { partition, keys, lines: batch.lines, bytes: batch.bytes });
        self.evaluator.handle.submit(self.table.write(partition, batch.ops).within(BATCH), move |outcome| {
            // The client is gone: nobody is told.
            let _ = done.send((number, outcome));
        });
        Ok(())
    }

    /// Looks at rows before they are sent.
    pub(super) async fn check(&self, batch: &Batch) -> Result<(), Failure> {
        if !check::has_any(self.table.schema()) {
            return Ok(());
        }
        let row = |op: &RowOp| self.table.decode(op.key(), op.row().unwrap_or(&Bytes::new()));
        let rows = batch.ops.iter().map(row).collect::<Result<Vec<_>, _>>().map_err(fault::of_client)?;
        let values = Values { parameters: Vec::new(), now: self.now };
        let against = check::first_against(&self.evaluator, &self.table, &rows, &values).await?;
        let Some((at, name)) = against else { return Ok(()) };
        let failure = check::against(&self.table, &rows[at], &name);
        Err(failure.context(format!("COPY {}, line {}", self.table.name(), batch.lines[at])))
    }

    /// Waits until a batch has ended. The error is that of the first that was not done.
    async fn wait(&mut self) -> Result<(), Failure> {
        let ended = self.ended.recv().await;
        let (number, outcome) = ended.expect("a sender is kept, so the channel is open");
        self.take_in(number, outcome).await
    }

    async fn take_in(&mut self, number: u64, outcome: Outcome) -> Result<(), Failure> {
        let Some(flying) = self.flying.remove(&number) else { return Ok(()) };
        self.flying_bytes -= flying.bytes;
        let rows = flying.keys.len() as u64;
        let unknown = matches!(outcome, Outcome::Unknown(_));
        let failure = match fault::decided(outcome) {
            Ok(Decided::Done(answer)) => {
                self.stored.rows += rows;
                self.stored.acknowledged.add(answer.position());
                return Ok(());
            }
            Ok(Decided::Exists | Decided::Changed) => self.duplicate(&flying).await,
            Ok(Decided::Violates(number)) => {
                let refused = Refused::of(&self.table);
                let failure = violation::told(&self.evaluator.handle, number, &refused).await;
                failure.context(format!("COPY {}", self.table.name()))
            }
            Err(failure) => {
                let (first, last) = (flying.lines.first(), flying.lines.last());
                let lines =
                    first.zip(last).map_or(String::new(), |(first, last)| format!("{first} to {last}"));
                let context = format!("COPY {}, rows of lines {lines}", self.table.name());
                Failure { hint: None, ..failure }.context(context)
            }
        };
        self.unknown += if unknown { rows } else { 0 };
        Err(self.trouble.get_or_insert(failure).clone())
    }

    /// The error of a batch with a key that is there already, or twice in it.
    async fn duplicate(&self, flying: &Flying) -> Failure {
        let name = self.table.name();
        let found = self.first_that_exists(flying).await.or_else(|| twice(&flying.keys));
        let key = found.map(|at| &flying.keys[at][..]);
        // How much of it is stored is said when it ends.
        let failure = Failure { hint: None, ..write::duplicate(&self.table, key) };
        match found {
            None => failure.context(format!("COPY {name}")),
            Some(at) => failure.context(format!("COPY {name}, line {}", flying.lines[at])),
        }
    }

    async fn first_that_exists(&self, flying: &Flying) -> Option<usize> {
        let (done, mut ended) = unbounded_channel();
        for (at, key) in flying.keys.iter().enumerate() {
            let done = done.clone();
            let call = self
                .table
                .call(flying.partition, Op::Get { key: key.clone(), at: ReadSnapshot::Newest })
                .within(crate::read::CALL);
            self.evaluator.handle.submit(call, move |outcome| {
                let _ = done.send((at, outcome));
            });
        }
        drop(done);
        let mut first: Option<usize> = None;
        while let Some((at, outcome)) = ended.recv().await {
            let there = outcome.answer().is_some_and(|answer| matches!(answer.body, Body::Row(Some(_))));
            if there {
                first = Some(first.map_or(at, |known| known.min(at)));
            }
        }
        first
    }
}

/// The second place of a key that is there twice.
pub(super) fn twice(keys: &[Bytes]) -> Option<usize> {
    let mut seen = BTreeSet::new();
    keys.iter().position(|key| !seen.insert(key))
}

/// The error of rows for a COPY that has not begun.
pub fn not_begun() -> Failure {
    Failure::new(code::INTERNAL, "no COPY is under way")
}
