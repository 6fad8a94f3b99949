//! What MERGE does to rows: for each pair of a row that comes and the table's row that it matches, what the
//! first WHEN clause says whose condition holds. All pairs are as they were when the statement began.

use crate::bind::{Branch, Merge};
use crate::constraints::{Replaced, check};
use crate::edits::{self, Edits};
use crate::engine::unpack_row;
use crate::evaluate::Evaluator;
use crate::fault;
use crate::read::{self, Values};
use crate::txn::{After, Edit, Limit, View};
use crate::ty::Ty;
use crate::write::{self, as_stored, duplicate, encoded};
use bytes::Bytes;
use client::Table;
use pg::{Failure, Row as PgRow, code};
use std::collections::BTreeMap;
use std::vec::IntoIter;
use types::data::{Row, Value};

/// So many pairs are seen to at once.
const PIECE_STEPS: usize = 2_000;

/// What is done for a pair.
enum Step {
    /// The row with this key is removed, or gets these values for columns of a branch.
    Change { key: Bytes, stored: Bytes, branch: usize, values: Vec<Value> },
    /// The next new row of this branch is inserted.
    Insert { branch: usize },
}

/// What it does. It reads by the view; `ahead` has what other parts of the statement have written.
pub async fn of_merge(
    evaluator: &Evaluator,
    merge: &Merge,
    values: &Values,
    (view, ahead): (&View, &View),
) -> Result<Edits, Failure> {
    let table = Table::new(merge.table.clone());
    let follows = edits::is_followed(evaluator, &table);
    let limit = if follows { Limit::WRITE } else { view.limit(table.record()) };
    read::pin(&evaluator.handle, read::partitions(&merge.read.sources, values), view).await?;
    let (pairs, _room) = evaluator.all(merge.read.clone(), values.clone(), view.clone(), limit).await?;
    let (steps, coming) = steps(&table, merge, pairs)?;
    let mut new: BTreeMap<usize, IntoIter<New>> = BTreeMap::new();
    for (branch, rows) in coming {
        let columns = merge.branches[branch].columns();
        let rows = edits::filled(evaluator, (&table, columns), rows, values).await?;
        new.insert(branch, inserted(&table, rows)?.into_iter());
    }
    let all: Vec<Bytes> = new.values().flat_map(|rows| rows.as_slice()).map(|row| row.key.clone()).collect();
    let there = met(evaluator, &table, all, ahead).await?;
    let (checks, done) = (check::has_any(table.schema()), Done::default());
    let mut doing = Doing { table: &table, merge, ahead, follows, checks, there, new, done };
    for (at, step) in steps.into_iter().enumerate() {
        doing.step(step)?;
        if (at + 1).is_multiple_of(PIECE_STEPS) {
            // The sessions of a node share a thread.
            tokio::task::yield_now().await;
        }
    }
    let Done { mut written, order, rows, replaced, count } = doing.done;
    check::rows(evaluator, &table, &rows, values).await?;
    let edits: Vec<Edit> = order.iter().filter_map(|key| written.remove(key)).collect();
    Ok(Edits { replaced, ..Edits::new(table, edits, count, None)? })
}

/// A row that is inserted.
struct New {
    row: Row,
    key: Bytes,
    stored: Bytes,
}

fn inserted(table: &Table, rows: Vec<Row>) -> Result<Vec<New>, Failure> {
    let one = |row: Row| -> Result<New, Failure> {
        let (key, stored) = encoded(table, &row)?;
        Ok(New { row, key, stored })
    };
    rows.into_iter().map(one).collect()
}

/// What is done, in order, and the rows that are inserted by each branch.
type Steps = (Vec<Step>, BTreeMap<usize, Vec<PgRow>>);

fn steps(table: &Table, merge: &Merge, pairs: Vec<PgRow>) -> Result<Steps, Failure> {
    let types = |branch: usize| -> Option<Vec<Ty>> {
        let columns = merge.branches.get(branch)?.columns().iter();
        Some(columns.map(|at| Ty::of_column(&table.schema().columns()[*at])).collect())
    };
    let (mut steps, mut coming) = (Vec::new(), BTreeMap::<usize, Vec<PgRow>>::new());
    for pair in pairs {
        let mut pair = pair.into_iter();
        let (key, stored, does) = match (pair.next(), pair.next(), pair.next()) {
            (_, _, Some(Value::Null)) => continue,
            (Some(key), Some(stored), Some(Value::Bytes(does))) => (key, stored, does),
            other => return Err(Failure::new(code::INTERNAL, format!("it is no pair of MERGE: {other:?}"))),
        };
        let (branch, values) = unpack_row(&does, types)?;
        match (&merge.branches[branch], key, stored) {
            (Branch::Insert(_), ..) => {
                coming.entry(branch).or_default().push(values);
                steps.push(Step::Insert { branch });
            }
            (_, Value::Bytes(key), Value::Bytes(stored)) => {
                steps.push(Step::Change { key: key.into(), stored: stored.into(), branch, values });
            }
            _ => return Err(Failure::new(code::INTERNAL, "a change of no row")),
        }
    }
    Ok((steps, coming))
}

/// The keys among these under which there is a row.
async fn met(
    evaluator: &Evaluator,
    table: &Table,
    keys: Vec<Bytes>,
    ahead: &View,
) -> Result<Vec<Bytes>, Failure> {
    let planned = |key: &Bytes| Edit::new(key.clone(), false, After::Same);
    let planned: Vec<Edit> = keys.iter().map(planned).collect();
    let Some(partition) = write::place(table, &planned)? else { return Ok(Vec::new()) };
    let there = read::get_all(&evaluator.handle, table, partition, &keys, ahead).await?;
    let mut met: Vec<Bytes> = keys.into_iter().zip(there).filter_map(|(key, row)| row.map(|_| key)).collect();
    met.sort_unstable();
    Ok(met)
}

/// What was done so far.
#[derive(Default)]
struct Done {
    written: BTreeMap<Bytes, Edit>,
    /// The keys of it, in order.
    order: Vec<Bytes>,
    /// All rows that are written, as they are, if they must keep checks.
    rows: Vec<Row>,
    /// Rows as they were and as they are, if something may follow from that.
    replaced: Vec<Replaced>,
    /// For so many pairs something was done.
    count: u64,
}

/// A MERGE, pair by pair.
struct Doing<'a> {
    table: &'a Table,
    merge: &'a Merge,
    ahead: &'a View,
    /// Something may follow from what it does.
    follows: bool,
    /// There are checks that rows must keep.
    checks: bool,
    /// Keys of new rows that are there already, in order.
    there: Vec<Bytes>,
    /// New rows by branch.
    new: BTreeMap<usize, IntoIter<New>>,
    done: Done,
}

impl Doing<'_> {
    fn step(&mut self, step: Step) -> Result<(), Failure> {
        self.done.count += 1;
        match step {
            Step::Insert { branch } => {
                let new = self.new.get_mut(&branch).and_then(Iterator::next);
                let new = new.ok_or_else(|| Failure::new(code::INTERNAL, "a new row is lacking"))?;
                self.insert(new)
            }
            Step::Change { key, stored, branch, values } => self.change(key, &stored, (branch, values)),
        }
    }

    fn insert(&mut self, New { row, key, stored }: New) -> Result<(), Failure> {
        let before = self.done.written.get(&key).map(|edit| &edit.after);
        let is_there = match before {
            Some(after) => *after != After::Gone,
            None => self.there.binary_search(&key).is_ok(),
        };
        if is_there {
            return Err(duplicate(self.table, Some(&key)));
        }
        // Where it has removed the row, that one is changed.
        let existed = before.is_some();
        self.put(Edit::new(key, existed, After::Row(stored)));
        if self.checks {
            self.done.rows.push(row);
        }
        Ok(())
    }

    fn change(
        &mut self,
        key: Bytes,
        stored: &Bytes,
        (branch, values): (usize, Vec<Value>),
    ) -> Result<(), Failure> {
        let by_others = self.ahead.buffer.is_written_ahead(self.table.id(), &key);
        if by_others || self.done.written.contains_key(&key) {
            return Err(second_time());
        }
        let mut row = self.table.decode(&key, stored).map_err(fault::of_client)?;
        let old = self.follows.then(|| row.clone());
        let (after, new) = match &self.merge.branches[branch] {
            Branch::Update(set) => {
                edits::set(self.table, &mut row, set, values)?;
                let stored = encoded(self.table, &row)?.1;
                let row = as_stored(self.table, &key, &stored, row, true)?;
                (After::Row(stored), Some(row))
            }
            Branch::Delete | Branch::Insert(_) => (After::Gone, None),
        };
        self.done.replaced.extend(old.map(|old| (old, new.clone())));
        self.done.rows.extend(new.filter(|_| self.checks));
        self.put(Edit::new(key, true, after));
        Ok(())
    }

    fn put(&mut self, edit: Edit) {
        let key = edit.key.clone();
        if self.done.written.insert(key.clone(), edit).is_none() {
            self.done.order.push(key);
        }
    }
}

fn second_time() -> Failure {
    Failure::new("21000", "MERGE command cannot affect row a second time")
        .hint("Ensure that not more than one source row matches any one target row.")
}
