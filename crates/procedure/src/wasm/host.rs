//! What a program has at its host: its arguments, a list of values, a current row of each table, its work.

use crate::convert::content;
use crate::rows::{Found, Look};
use crate::work::{Order, Work, one, several};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use types::data::{Row, Value};
use types::procedure::{Failure, FailureKind};
use wasmi::errors::HostError;
use wasmi::{Caller, Error, Extern, StoreLimits};

/// The most values in a list.
const MAX_LIST: usize = 1_100;
/// The most rows of one range.
pub(super) const MAX_RANGE: usize = 10_000;

/// Stops the program where it calls its host: for rows, or for good.
#[derive(Debug)]
struct Stop;

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the host stopped it")
    }
}

impl std::error::Error for Stop {}

impl HostError for Stop {}

/// What a host function waits for.
#[derive(Debug)]
pub(crate) enum Wanted {
    Get(usize, Bytes),
    Delete(usize, Bytes),
    Range(usize, Look, (usize, Order)),
}

impl Wanted {
    pub fn look(&self) -> Look {
        match self {
            Wanted::Get(_, key) | Wanted::Delete(_, key) => Look::Get(key.clone()),
            Wanted::Range(_, look, _) => look.clone(),
        }
    }
}

/// A table's current row, and those of the range behind it.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    pub current: Option<Row>,
    pub next: VecDeque<Row>,
}

/// What a program has at its host.
pub(crate) struct HostState {
    pub work: Work,
    pub arguments: Vec<Value>,
    pub list: Vec<Value>,
    pub cursors: Vec<Cursor>,
    pub wanted: Option<Wanted>,
    pub failed: Option<Failure>,
    pub limits: StoreLimits,
}

impl HostState {
    pub fn new(work: Work, arguments: Vec<Value>) -> HostState {
        let cursors = work.shapes.iter().map(|_| Cursor::default()).collect();
        HostState {
            work,
            arguments,
            list: Vec::new(),
            cursors,
            wanted: None,
            failed: None,
            limits: StoreLimits::default(),
        }
    }

    /// For a program that is looked at and not called.
    pub fn of_nothing() -> HostState {
        let work = Work::new(Arc::new([]), (None, true), crate::Given::default(), crate::Limits::default());
        HostState::new(work, Vec::new())
    }

    /// Adds to the list.
    pub fn push(&mut self, value: Value) -> Result<(), Failure> {
        if self.list.len() >= MAX_LIST {
            return Err(Failure::new(FailureKind::Memory, format!("a list has more than {MAX_LIST} values")));
        }
        self.list.push(value);
        Ok(())
    }

    /// The list, which is empty from here on.
    pub fn take(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.list)
    }

    /// The value of a column in the current row of a table.
    pub fn value(&self, of: Source, at: usize) -> Result<&Value, Failure> {
        match of {
            Source::Arguments => Ok(&self.arguments[at]),
            Source::Table(table) => match &self.cursors[table].current {
                Some(row) => Ok(&row.values[at]),
                None => {
                    let name = &self.work.shapes[table].name;
                    let why = format!("the program reads a row of table `{name}` and has none");
                    Err(Failure::new(FailureKind::Trap, why))
                }
            },
        }
    }

    /// Asks for a row, or says at once what the call itself has made of it. None: it must be looked for.
    pub fn ask(&mut self, wanted: Wanted) -> Result<Option<i32>, Failure> {
        let own = match &wanted {
            Wanted::Get(_, key) | Wanted::Delete(_, key) => self.work.own(key),
            Wanted::Range(..) => None,
        };
        match own {
            Some(own) => self.found(wanted, Found::Row(own)).map(Some),
            None => {
                self.wanted = Some(wanted);
                Ok(None)
            }
        }
    }

    /// What was found, as the host function gives it.
    pub fn found(&mut self, wanted: Wanted, found: Found) -> Result<i32, Failure> {
        match wanted {
            Wanted::Get(table, key) => {
                let value = one(found);
                self.work.read(key.len() + value.as_ref().map_or(0, Bytes::len))?;
                let row = value.map(|value| self.work.decode(table, &key, &value)).transpose()?;
                let there = row.is_some();
                self.cursors[table].current = row;
                Ok(i32::from(there))
            }
            Wanted::Delete(table, key) => {
                let there = one(found).is_some();
                if there {
                    self.work.delete(table, key)?;
                }
                Ok(i32::from(there))
            }
            Wanted::Range(table, look, rows) => {
                let rows = self.work.merged(table, &look, several(found), rows)?;
                let many = i32::try_from(rows.len()).expect("a range has few rows");
                self.cursors[table] = Cursor { current: None, next: rows.into() };
                Ok(many)
            }
        }
    }
}

/// Where values come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Arguments,
    /// The current row of the table with this number.
    Table(usize),
}

/// Ends the call unless this went well.
pub(crate) fn well<T>(caller: &mut Caller<'_, HostState>, done: Result<T, Failure>) -> Result<T, Error> {
    done.map_err(|failure| {
        caller.data_mut().failed = Some(failure);
        Error::host(Stop)
    })
}

/// Gives the number, or stops the program until there is one.
pub(crate) fn number_or_stop(
    caller: &mut Caller<'_, HostState>,
    asked: Result<Option<i32>, Failure>,
) -> Result<i32, Error> {
    well(caller, asked)?.ok_or_else(|| Error::host(Stop))
}

/// Bytes of the program's memory.
pub(crate) fn read_memory(
    caller: &mut Caller<'_, HostState>,
    at: i32,
    bytes: i32,
) -> Result<Vec<u8>, Failure> {
    let (at, bytes) = (at as u32 as usize, bytes as u32 as usize);
    caller.data_mut().work.read(bytes)?;
    let memory = caller.get_export("memory").and_then(Extern::into_memory);
    let range = at..at.saturating_add(bytes);
    let found = memory.as_ref().and_then(|memory| memory.data(&*caller).get(range));
    found.map(<[u8]>::to_vec).ok_or_else(outside)
}

/// A text of the program's memory.
pub(crate) fn read_text(caller: &mut Caller<'_, HostState>, at: i32, bytes: i32) -> Result<String, Failure> {
    let bytes = read_memory(caller, at, bytes)?;
    String::from_utf8(bytes)
        .map_err(|_| Failure::new(FailureKind::Trap, "a text of the program is not UTF-8"))
}

/// Copies a value's content into the program's memory. Gives how many bytes that were.
pub(crate) fn write_memory(
    caller: &mut Caller<'_, HostState>,
    at: i32,
    value: &Value,
) -> Result<i32, Failure> {
    let bytes = content(value);
    caller.data_mut().work.read(bytes.len())?;
    let memory = caller.get_export("memory").and_then(Extern::into_memory).ok_or_else(outside)?;
    memory.write(caller, at as u32 as usize, &bytes).map_err(|_| outside())?;
    i32::try_from(bytes.len()).map_err(|_| outside())
}

fn outside() -> Failure {
    Failure::new(FailureKind::Trap, "the program names bytes outside of its memory, or exports no `memory`")
}
