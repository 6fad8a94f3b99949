//! The evaluating engine: SQLite, without a table or a file of its own. Statements come from the binder, rows
//! from the cluster.

mod arrays;
mod counted;
pub mod encode;
mod functions;
mod json;
mod packed;
mod scan;

pub use packed::{MOST_COLUMNS, pack, packed_width, unpack_row};
pub use scan::{Pages, scan_width};

use crate::bind::Bound;
use crate::system::{facts::Facts, names};
use crate::ty::Ty;
use pg::{Failure, Row, code};
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, Error, InterruptHandle};
use std::cell::RefCell;
use types::data::Value;

/// What the engine may assume of functions that look at their arguments alone.
const FLAGS: FunctionFlags = FunctionFlags::SQLITE_UTF8
    .union(FunctionFlags::SQLITE_DETERMINISTIC)
    .union(FunctionFlags::SQLITE_INNOCUOUS);

/// Rows that are handed over at once.
const BATCH: usize = 128;
/// The most memory that statements of the engine take together for sorting and grouping before files are
/// used, in KiB.
const CACHE_KIB: i64 = 16 * 1024;

/// Opens the sources of a statement.
pub trait Reader {
    /// The rows of a source, from its beginning.
    fn open(&self, source: usize) -> Result<Box<dyn Pages>, Failure>;

    /// What functions ask for that look at more than their arguments.
    fn facts(&self) -> Option<&Facts> {
        None
    }
}

struct Running {
    reader: Box<dyn Reader>,
    failure: Option<Failure>,
}

thread_local! {
    /// The statement that this thread is running. The engine calls back without a place for it.
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// Keeps the first reason for which the running statement fails.
fn fail(failure: Failure) {
    RUNNING.with_borrow_mut(|running| {
        if let Some(running) = running {
            running.failure.get_or_insert(failure);
        }
    });
}

/// One engine. It runs one statement at a time.
pub struct Engine {
    connection: Connection,
}

impl Engine {
    /// Opens one.
    pub fn open() -> Result<Engine, Failure> {
        let connection = Connection::open_in_memory().map_err(broken)?;
        connection.set_prepared_statement_cache_capacity(64);
        connection.pragma_update(None, "cache_size", -CACHE_KIB).map_err(broken)?;
        // The schema never changes, and no statement of ours may change it.
        connection.pragma_update(None, "trusted_schema", false).map_err(broken)?;
        functions::register(&connection).map_err(broken)?;
        arrays::register(&connection).map_err(broken)?;
        json::register(&connection).map_err(broken)?;
        counted::register(&connection).map_err(broken)?;
        packed::register(&connection).map_err(broken)?;
        scan::register(&connection).map_err(broken)?;
        connection.pragma_update(None, "query_only", true).map_err(broken)?;
        Ok(Engine { connection })
    }

    /// Stops what runs, from another thread.
    pub fn interrupt(&self) -> InterruptHandle {
        self.connection.get_interrupt_handle()
    }

    /// Runs a statement. `values` are those of its slots; `emit` takes rows and answers whether more are
    /// wanted.
    pub fn run(
        &self,
        bound: &Bound,
        values: &[Value],
        reader: Box<dyn Reader>,
        emit: &mut dyn FnMut(Vec<Row>) -> bool,
    ) -> Result<(), Failure> {
        RUNNING.set(Some(Running { reader, failure: None }));
        let ran = self.step(bound, values, emit);
        let running = RUNNING.take();
        match ran {
            Ok(()) => Ok(()),
            Err(error) => Err(running.and_then(|running| running.failure).unwrap_or(error)),
        }
    }

    /// What the engine would do for a statement, step by step.
    pub fn describe(&self, text: &str) -> Result<Vec<String>, Failure> {
        let mut statement = self.connection.prepare(&format!("EXPLAIN QUERY PLAN {text}")).map_err(broken)?;
        // Nothing is evaluated, so slots need no values.
        let mut rows = statement.raw_query();
        let mut steps = Vec::new();
        while let Some(row) = rows.next().map_err(broken)? {
            steps.push(row.get(3).map_err(broken)?);
        }
        Ok(steps)
    }

    fn step(
        &self,
        bound: &Bound,
        values: &[Value],
        emit: &mut dyn FnMut(Vec<Row>) -> bool,
    ) -> Result<(), Failure> {
        let mut statement = self.connection.prepare_cached(&bound.text).map_err(broken)?;
        // Slots that a later thought made superfluous are not in the text.
        for (at, value) in values.iter().enumerate().take(statement.parameter_count()) {
            statement.raw_bind_parameter(at + 1, encode::encode(value)).map_err(broken)?;
        }
        let types: Vec<Ty> = bound.columns.iter().map(|(_, ty)| *ty).collect();
        let mut rows = statement.raw_query();
        let mut batch = Vec::new();
        while let Some(row) = rows.next().map_err(broken)? {
            let mut decoded = Vec::with_capacity(types.len());
            for (at, ty) in types.iter().enumerate() {
                let value = encode::decode(row.get_ref(at).map_err(broken)?, *ty)?;
                decoded.push(if ty.is_reg() { named(value, *ty)? } else { value });
            }
            batch.push(decoded);
            if batch.len() == BATCH && !emit(std::mem::take(&mut batch)) {
                return Ok(());
            }
        }
        if !batch.is_empty() {
            emit(batch);
        }
        Ok(())
    }
}

/// An oid as the name that clients are shown for it.
fn named(value: Value, ty: Ty) -> Result<Value, Failure> {
    with_facts(|facts| {
        Ok(match value {
            Value::Int(oid) => Value::Text(names::shown(facts, ty, oid)),
            other => other,
        })
    })
}

/// Does something with what the running statement knows.
fn with_facts<T>(work: impl FnOnce(&Facts) -> Result<T, Failure>) -> Result<T, Failure> {
    RUNNING.with_borrow(|running| {
        let facts = running.as_ref().and_then(|running| running.reader.facts());
        work(facts.ok_or_else(crate::read::no_facts)?)
    })
}

/// An error of the engine that is none of ours.
fn broken(error: rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::OperationInterrupted) => {
            Failure::new(code::CANCELED, "canceling statement due to user request")
        }
        Some(rusqlite::ErrorCode::TooBig) => {
            Failure::new(code::LIMIT, "the statement or a value of it is too large")
        }
        Some(rusqlite::ErrorCode::DiskFull) => Failure::new("53100", "no room for sorting or grouping"),
        Some(rusqlite::ErrorCode::OutOfMemory) => Failure::new("53200", "out of memory"),
        _ => Failure::new(code::INTERNAL, format!("the evaluating engine failed: {error}")),
    }
}

/// The engine is told that it failed; the reason waits where the statement's runner finds it.
fn failed(failure: Failure) -> Error {
    fail(failure.clone());
    Error::UserFunctionError(Box::new(failure))
}

#[cfg(test)]
mod tests;
