//! Runs of the evaluating engine: on threads of their own, over the cluster's tables or over rows that are
//! given.

use crate::bind::{Bound, KEY, NUMBER, STORED, Slot, Source};
use crate::driver::Handle;
use crate::engine::encode::encode;
use crate::engine::{Engine, Pages, Reader};
use crate::fault;
use crate::read::{self, Tables, Values};
use crate::sequences::{SequenceValues, Sequences};
use crate::system;
use crate::system::facts::{Asker, Facts};
use crate::txn::{Limit, NodeMemory, Room, View};
use crate::write;
use bytes::Bytes;
use pg::{Cancel, Failure, Row, Rows};
use rusqlite::types::Value as Kept;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};
use types::data::Value;

/// Batches of rows that wait for a client.
const WAITING: usize = 4;
/// Engines that are kept for the next statement.
const ENGINES: usize = 8;
/// How often a query is begun, if a failover loses what it reads before it has given a row.
pub const BEGINNINGS: u32 = 5;
/// The most bytes of rows that a statement which writes may collect, unless its transaction may be large.
/// That one has so many in any case.
const MAX_BYTES: usize = 64 << 20;
/// So many bytes of memory are asked for at once.
const STEP_BYTES: usize = 1 << 20;
/// What a collected row takes beside its values.
const ROW_MEMORY: usize = 48;

/// Engines that run no statement.
#[derive(Default)]
pub struct Engines {
    free: Mutex<Vec<Engine>>,
}

impl Engines {
    fn take(&self) -> Result<Engine, Failure> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.map_or_else(Engine::open, Ok)
    }

    fn give_back(&self, engine: Engine) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < ENGINES {
            free.push(engine);
        }
    }
}

/// A row that is not read from a table.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Its key, where it is asked for.
    pub key: Bytes,
    /// Itself as it is stored, where it is asked for.
    pub stored: Bytes,
    /// Its columns.
    pub values: Vec<Value>,
}

/// Where statements of one session are evaluated.
#[derive(Clone)]
pub struct Evaluator {
    /// The cluster.
    pub handle: Handle,
    /// Engines, of all sessions.
    pub engines: Arc<Engines>,
    /// Numbers for rows, of all sessions.
    pub sequences: Arc<Sequences>,
    /// Memory for large transactions, of all sessions.
    pub memory: Arc<NodeMemory>,
    /// Stops them.
    pub cancel: Cancel,
    /// Whose statements they are, as of now.
    pub asker: Asker,
}

impl Evaluator {
    /// Numbers for rows, and what the session is told of them.
    pub fn numbers(&self) -> (&Sequences, &SequenceValues) {
        (&self.sequences, &self.asker.told)
    }

    /// The way by which global transactions wait until they are secured; none if they do not.
    pub fn securing(&self, waits: bool) -> Option<Handle> {
        waits.then(|| self.handle.securing(self.asker.late.clone()))
    }

    /// Starts a query over the cluster's tables. Its rows come as they are made.
    pub fn start(&self, bound: Arc<Bound>, values: Values, view: View) -> Result<Rows, Failure> {
        self.begin(bound, values, 1, move || view.clone())
    }

    /// Starts a query that belongs to no transaction. If a failover loses a state that it reads before it has
    /// given a row, it is begun again on newer ones.
    pub fn start_alone(&self, bound: Arc<Bound>, values: Values) -> Result<Rows, Failure> {
        self.begin(bound, values, BEGINNINGS, View::default)
    }

    fn begin(
        &self,
        bound: Arc<Bound>,
        values: Values,
        beginnings: u32,
        view: impl Fn() -> View + Send + 'static,
    ) -> Result<Rows, Failure> {
        let evaluator = self.clone();
        let sources = bound.sources.clone();
        let slots = slots(&bound, &values);
        self.run(bound, slots, beginnings, move || {
            let (handle, cancel) = (evaluator.handle.clone(), evaluator.cancel.clone());
            let facts = evaluator.facts(values.now)?;
            let tables = Tables::new(handle, sources.clone(), values.clone(), view(), cancel);
            Ok(Box::new(tables.knowing(facts)))
        })
    }

    /// All rows of a query over the cluster's tables, at most as many as a statement may write; with what
    /// they have of the memory.
    pub async fn all(
        &self,
        bound: Arc<Bound>,
        values: Values,
        view: View,
        limit: Limit,
    ) -> Result<(Vec<Row>, Room), Failure> {
        let mut computed = self.start(bound, values, view)?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let (room, mut asked) = (Room::new(&self.memory, MAX_BYTES), 0);
        while let Some(row) = computed.next().await {
            let row = row?;
            bytes += row.iter().map(size).sum::<usize>();
            rows.push(row);
            if limit == Limit::WRITE && (rows.len() > limit.rows || bytes > MAX_BYTES) {
                return Err(write::too_much(MAX_BYTES));
            }
            if rows.len() > limit.rows {
                return Err(limit.passed());
            }
            let taken = bytes + rows.len() * ROW_MEMORY;
            if limit != Limit::WRITE && taken > asked {
                asked = taken + STEP_BYTES;
                room.hold(asked)?;
            }
        }
        Ok((rows, room))
    }

    /// All rows of a query whose only source is given.
    pub async fn over(
        &self,
        bound: Arc<Bound>,
        values: &Values,
        rows: Vec<Given>,
    ) -> Result<Vec<Row>, Failure> {
        let source = bound.sources.first().cloned();
        let slots = slots(&bound, values);
        let facts = self.facts(values.now)?;
        let mut memory = Some(Memory { source, rows, facts });
        let mut computed = self.run(bound, slots, 1, move || match memory.take() {
            Some(memory) => Ok(Box::new(memory)),
            None => Err(read::no_facts()),
        })?;
        let mut rows = Vec::new();
        while let Some(row) = computed.next().await {
            rows.push(row?);
        }
        Ok(rows)
    }

    /// What functions and system tables ask for.
    fn facts(&self, now: i64) -> Result<Facts, Failure> {
        let catalog = self.handle.catalog().ok_or_else(fault::not_ready)?;
        Ok(Facts::new(catalog, self.asker.clone(), self.handle.clone(), self.cancel.clone(), now))
    }

    fn run(
        &self,
        bound: Arc<Bound>,
        slots: Vec<Value>,
        beginnings: u32,
        mut reader: impl FnMut() -> Result<Box<dyn Reader>, Failure> + Send + 'static,
    ) -> Result<Rows, Failure> {
        let engine = self.engines.take()?;
        let interrupt = engine.interrupt();
        let (send, receive) = mpsc::channel(WAITING);
        let (over, ended) = oneshot::channel::<()>();
        let cancel = self.cancel.clone();
        // The engine is stopped as soon as it is asked for, also while it makes no rows.
        tokio::spawn(async move {
            tokio::select! {
                () = cancel.wait() => interrupt.interrupt(),
                _ = ended => {}
            }
        });
        let engines = self.engines.clone();
        tokio::task::spawn_blocking(move || {
            let mut emit = |rows| send.blocking_send(Ok(rows)).is_ok();
            let ran = run(&engine, &bound, &slots, beginnings, &mut reader, &mut emit);
            // Who waits for its end has what it read by for himself then, and need not clone it to write.
            drop((over, reader));
            if let Err(failure) = ran {
                // The client may be gone.
                let _ = send.blocking_send(Err(failure));
            }
            engines.give_back(engine);
        });
        Ok(Rows::stream(receive))
    }
}

/// Runs a query; from its beginning again, so often, as long as it has given no row and fails because what it
/// read is lost.
pub(crate) fn run(
    engine: &Engine,
    bound: &Bound,
    slots: &[Value],
    beginnings: u32,
    reader: &mut dyn FnMut() -> Result<Box<dyn Reader>, Failure>,
    emit: &mut dyn FnMut(Vec<Row>) -> bool,
) -> Result<(), Failure> {
    let mut given = false;
    let mut left = beginnings;
    loop {
        left = left.saturating_sub(1);
        let ran = engine.run(bound, slots, reader()?, &mut |rows| {
            given = true;
            emit(rows)
        });
        match ran {
            Err(failure) if failure.code == fault::SERIALIZATION && !given && left > 0 => {}
            ran => return ran,
        }
    }
}

fn slots(bound: &Bound, values: &Values) -> Vec<Value> {
    bound.slots.iter().map(|(slot, _): &(Slot, _)| values.of(slot)).collect()
}

/// About how much memory a value takes.
pub fn size(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len() + 32,
        Value::Bytes(bytes) => bytes.len() + 32,
        _ => 32,
    }
}

/// Rows that are given, as the only source.
struct Memory {
    source: Option<Source>,
    rows: Vec<Given>,
    facts: Facts,
}

impl Reader for Memory {
    fn facts(&self) -> Option<&Facts> {
        Some(&self.facts)
    }

    fn open(&self, source: usize) -> Result<Box<dyn Pages>, Failure> {
        if let Some(system) = source.checked_sub(system::FIRST) {
            return Ok(Box::new(Once(Some(system::rows(system, &self.facts)?))));
        }
        let columns = self.source.as_ref().map_or(&[][..], |source| &source.columns);
        let row = |(number, row): (usize, &Given)| {
            let one = |at: &usize| match *at {
                KEY => Kept::Blob(row.key.to_vec()),
                STORED => Kept::Blob(row.stored.to_vec()),
                NUMBER => Kept::Integer(number as i64),
                at => row.values.get(at).map_or(Kept::Null, encode),
            };
            columns.iter().map(one).collect()
        };
        Ok(Box::new(Once(Some(self.rows.iter().enumerate().map(row).collect()))))
    }
}

struct Once(Option<Vec<Vec<Kept>>>);

impl Pages for Once {
    fn next(&mut self) -> Result<Option<Vec<Vec<Kept>>>, Failure> {
        Ok(self.0.take())
    }
}
