//! What a program may import. Names are resolved when the procedure is made ready, so that a program which
//! names a table or a column that is not there is refused before it runs.
//!
//! | module | name | what it does |
//! | --- | --- | --- |
//! | `arg`, `table:T` | `int C` | the number of the argument C, or of column C in the current row of T; 0 if null |
//! | | `len C` | how many bytes its text has |
//! | | `read C` (at) | copies its text into memory, and gives how many bytes that were |
//! | | `null C` | 1 if it is null |
//! | | `push C` | adds it to the list |
//! | `value` | `int` (number), `text` (at, bytes), `null`, `policy` | adds a value to the list |
//! | `call` | `now`, `seed`, `copies` | what the primary has given the call: milliseconds, any number, copies |
//! | | `result` | the list becomes a row that the call gives |
//! | | `fail` (at, bytes) | ends the call with this sentence; nothing of it is done |
//! | `table:T` | `get` | the row whose key is the list becomes current: 1 if there is one |
//! | | `range` (fixed, rows) | rows whose keys begin with the first values of the list, from where all of it stands; gives how many |
//! | | `range_back` (fixed, rows) | the same backwards: from where all of the list stands to the range's first row |
//! | | `next` | the next row of the range becomes current: 0 if there is none |
//! | | `new` | a row of defaults becomes current |
//! | | `set C` | the list's last value becomes the value of C in the current row |
//! | | `put` | writes the list as a row; an empty list: the current row |
//! | | `delete` | removes the row whose key is the list: 1 if there was one |
//!
//! The list is empty behind whatever takes it.

use super::host::{HostState, MAX_RANGE, Source, Wanted, number_or_stop, read_text, well, write_memory};
use crate::convert::{content, fitted, is_number, number};
use crate::shape::Shape;
use crate::work::{Order, row_failure};
use types::data::{Column, Row, Value};
use types::procedure::{Failure, FailureKind};
use wasmi::{Caller, Engine, Error, Linker, Module};

type Host<'a> = Caller<'a, HostState>;

/// Defines what a module imports. Gives the tables that it names. The error is a sentence.
pub(super) fn link(
    engine: &Engine,
    module: &Module,
    (parameters, read_only): (&[Column], bool),
    find: &dyn Fn(&str) -> Option<Shape>,
) -> Result<(Linker<HostState>, Vec<Shape>), String> {
    let mut links = Links { linker: Linker::new(engine), shapes: Vec::new() };
    let mut seen = std::collections::BTreeSet::new();
    for import in module.imports() {
        let (of, name) = (import.module(), import.name());
        if !seen.insert((of.to_string(), name.to_string())) {
            continue;
        }
        let refused = || format!("it imports `{of}` `{name}`, which there is not");
        let known = match of.strip_prefix("table:") {
            Some(table) => {
                let table = links.table(table, find)?;
                if read_only && (name == "put" || name == "delete") {
                    return Err(format!("it is read only and imports `{of}` `{name}`"));
                }
                links.of_table((of, name), table).and_then(|known| match known {
                    true => Ok(true),
                    false => {
                        let columns = links.shapes[table].schema.columns().to_vec();
                        links.of_column((of, name), Source::Table(table), &columns)
                    }
                })
            }
            None if of == "arg" => links.of_column((of, name), Source::Arguments, parameters),
            None if of == "value" => links.of_list((of, name)),
            None if of == "call" => links.of_call((of, name)),
            None => Ok(false),
        };
        if !known? {
            return Err(refused());
        }
    }
    Ok((links.linker, links.shapes))
}

struct Links {
    linker: Linker<HostState>,
    shapes: Vec<Shape>,
}

/// Whether a name is known; the error is a sentence.
type Known = Result<bool, String>;

fn linked(linked: Result<&mut Linker<HostState>, impl std::fmt::Display>) -> Known {
    linked.map(|_| true).map_err(|error| error.to_string())
}

impl Links {
    /// The number of a table that a program names.
    fn table(&mut self, name: &str, find: &dyn Fn(&str) -> Option<Shape>) -> Result<usize, String> {
        if let Some(at) = self.shapes.iter().position(|shape| shape.name == name) {
            return Ok(at);
        }
        let shape = find(name).ok_or_else(|| format!("there is no table `{name}`"))?;
        if let Some(kind) = shape.schema.kind() {
            return Err(format!("`{name}` is a {} and has no rows", kind.name()));
        }
        self.shapes.push(shape);
        Ok(self.shapes.len() - 1)
    }

    /// `value`: what adds to the list.
    fn of_list(&mut self, (of, name): (&str, &str)) -> Known {
        let linker = &mut self.linker;
        match name {
            "int" => linked(linker.func_wrap(of, name, |mut host: Host<'_>, number: i64| {
                let done = host.data_mut().push(Value::Int(number));
                well(&mut host, done)
            })),
            "null" => linked(linker.func_wrap(of, name, |mut host: Host<'_>| {
                let done = host.data_mut().push(Value::Null);
                well(&mut host, done)
            })),
            "text" => linked(linker.func_wrap(of, name, |mut host: Host<'_>, at: i32, bytes: i32| {
                let text = read_text(&mut host, at, bytes);
                let done = text.and_then(|text| host.data_mut().push(Value::Text(text)));
                well(&mut host, done)
            })),
            "policy" => linked(linker.func_wrap(of, name, |mut host: Host<'_>| {
                let policy = host.data().work.given.policy.clone();
                let done = host.data_mut().push(Value::Text(policy));
                well(&mut host, done)
            })),
            _ => Ok(false),
        }
    }

    /// `call`: what the call was given, and what it gives.
    fn of_call(&mut self, (of, name): (&str, &str)) -> Known {
        let linker = &mut self.linker;
        match name {
            "now" => {
                linked(linker.func_wrap(of, name, |host: Host<'_>| host.data().work.given.now_ms as i64))
            }
            "seed" => linked(linker.func_wrap(of, name, |host: Host<'_>| host.data().work.given.seed as i64)),
            "copies" => {
                linked(linker.func_wrap(of, name, |host: Host<'_>| i32::from(host.data().work.given.copies)))
            }
            "result" => linked(linker.func_wrap(of, name, |mut host: Host<'_>| {
                let state = host.data_mut();
                let row = state.take();
                let done = state.work.give(row);
                well(&mut host, done)
            })),
            "fail" => linked(linker.func_wrap(of, name, |mut host: Host<'_>, at: i32, bytes: i32| {
                let text = read_text(&mut host, at, bytes);
                let failed = text.and_then(|text| Err::<(), _>(Failure::new(FailureKind::Raised, text)));
                well(&mut host, failed)
            })),
            _ => Ok(false),
        }
    }

    /// What is asked of a table as a whole.
    fn of_table(&mut self, (of, name): (&str, &str), table: usize) -> Known {
        let linker = &mut self.linker;
        let order = if name == "range_back" { Order::Backwards } else { Order::Forwards };
        match name {
            "get" => linked(linker.func_wrap(of, name, move |mut host: Host<'_>| -> Result<i32, Error> {
                let asked = key(host.data_mut(), table);
                let asked = asked.and_then(|key| host.data_mut().ask(Wanted::Get(table, key)));
                number_or_stop(&mut host, asked)
            })),
            "delete" => linked(linker.func_wrap(of, name, move |mut host: Host<'_>| -> Result<i32, Error> {
                let asked = key(host.data_mut(), table);
                let asked = asked.and_then(|key| host.data_mut().ask(Wanted::Delete(table, key)));
                number_or_stop(&mut host, asked)
            })),
            "range" | "range_back" => linked(linker.func_wrap(
                of,
                name,
                move |mut host: Host<'_>, fixed: i32, rows: i32| -> Result<i32, Error> {
                    let asked = range(host.data_mut(), table, (fixed, rows, order));
                    let asked = asked.and_then(|wanted| host.data_mut().ask(wanted));
                    number_or_stop(&mut host, asked)
                },
            )),
            "next" => linked(linker.func_wrap(of, name, move |mut host: Host<'_>| -> i32 {
                let cursor = &mut host.data_mut().cursors[table];
                cursor.current = cursor.next.pop_front();
                i32::from(cursor.current.is_some())
            })),
            "new" => linked(linker.func_wrap(of, name, move |mut host: Host<'_>| {
                let state = host.data_mut();
                state.cursors[table].current = Some(state.work.fresh(table));
            })),
            "put" => {
                if let Some(why) = self.shapes[table].unwritable() {
                    return Err(why);
                }
                linked(self.linker.func_wrap(of, name, move |mut host: Host<'_>| {
                    let done = put(host.data_mut(), table);
                    well(&mut host, done)
                }))
            }
            _ => Ok(false),
        }
    }

    /// What is asked of a column, or of an argument.
    fn of_column(&mut self, (of, name): (&str, &str), source: Source, columns: &[Column]) -> Known {
        let Some((verb, column)) = name.split_once(' ') else { return Ok(false) };
        let Some(at) = columns.iter().position(|one| one.name == column && !one.rules.hidden) else {
            return Ok(false);
        };
        let number_like = is_number(columns[at].column_type);
        let linker = &mut self.linker;
        match (verb, source) {
            ("int", _) if number_like => {
                linked(linker.func_wrap(of, name, move |mut host: Host<'_>| -> Result<i64, Error> {
                    let found = host.data().value(source, at).map(number);
                    well(&mut host, found)
                }))
            }
            ("len", _) if !number_like => {
                linked(linker.func_wrap(of, name, move |mut host: Host<'_>| -> Result<i32, Error> {
                    let found = host.data().value(source, at).map(|value| content(value).len());
                    well(&mut host, found.map(|bytes| bytes as i32))
                }))
            }
            ("read", _) if !number_like => {
                linked(linker.func_wrap(of, name, move |mut host: Host<'_>, to: i32| -> Result<i32, Error> {
                    let found = host.data().value(source, at).cloned();
                    let done = found.and_then(|value| write_memory(&mut host, to, &value));
                    well(&mut host, done)
                }))
            }
            ("null", _) => {
                linked(linker.func_wrap(of, name, move |mut host: Host<'_>| -> Result<i32, Error> {
                    let found = host.data().value(source, at).map(|value| i32::from(value.is_null()));
                    well(&mut host, found)
                }))
            }
            ("push", _) => linked(linker.func_wrap(of, name, move |mut host: Host<'_>| {
                let found = host.data().value(source, at).cloned();
                let done = found.and_then(|value| host.data_mut().push(value));
                well(&mut host, done)
            })),
            ("set", Source::Table(table)) => linked(linker.func_wrap(of, name, move |mut host: Host<'_>| {
                let done = set(host.data_mut(), table, at);
                well(&mut host, done)
            })),
            ("int" | "len" | "read", _) => {
                let right = if number_like { "int" } else { "len` and `read" };
                let of_type = columns[at].column_type;
                Err(format!("`{column}` is of type {of_type}: import `{right}` and not `{verb}`"))
            }
            _ => Ok(false),
        }
    }
}

/// The stored key that the list says.
fn key(state: &mut HostState, table: usize) -> Result<bytes::Bytes, Failure> {
    let values = state.take();
    state.work.key(table, values)
}

fn range(
    state: &mut HostState,
    table: usize,
    (fixed, rows, order): (i32, i32, Order),
) -> Result<Wanted, Failure> {
    let values = state.take();
    let fixed = usize::try_from(fixed).unwrap_or(usize::MAX);
    let rows = usize::try_from(rows).unwrap_or(0).min(MAX_RANGE);
    let look = state.work.range(table, (values, fixed), (rows, order))?;
    Ok(Wanted::Range(table, look, (rows, order)))
}

/// Writes the list as a row, or the current row.
fn put(state: &mut HostState, table: usize) -> Result<(), Failure> {
    let values = state.take();
    let wrong = |why: String| Err(Failure::new(FailureKind::Row, why));
    let schema = &state.work.shapes[table].schema;
    let name = &state.work.shapes[table].name;
    let row = match (values.is_empty(), &state.cursors[table].current) {
        (true, Some(row)) => row.clone(),
        (true, None) => return wrong(format!("the program writes a row of table `{name}` and has none")),
        (false, _) => {
            let visible: Vec<usize> = schema.visible().collect();
            if visible.len() != values.len() {
                let (wanted, given) = (visible.len(), values.len());
                return wrong(format!("a row of table `{name}` has {wanted} values, not {given}"));
            }
            let mut all = vec![Value::Null; schema.columns().len()];
            visible.into_iter().zip(values).for_each(|(at, value)| all[at] = value);
            Row::new(all)
        }
    };
    state.work.put(table, row)
}

/// Changes a value of the current row.
fn set(state: &mut HostState, table: usize, at: usize) -> Result<(), Failure> {
    let value = state.list.pop();
    let shape = &state.work.shapes[table];
    match (value, &mut state.cursors[table].current) {
        (Some(value), Some(row)) => {
            let fit = fitted(&shape.schema.columns()[at], value);
            row.values[at] = fit.map_err(|why| row_failure(shape, &why))?;
            Ok(())
        }
        _ => Err(Failure::new(FailureKind::Trap, "a value is set, and there is none in the list, or no row")),
    }
}
