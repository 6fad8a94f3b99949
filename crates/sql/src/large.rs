//! Statements that write more rows than one write may have; transactions that do: [`commit`].
//!
//! Such a statement has its table filled under another id (see [`crate::refill`]): it is held, the rows that
//! the statement makes and those that it leaves are written there, and one entry gives that the name. So
//! nobody sees a part of it, and whatever fails leaves the table as it was. The statement is evaluated once
//! more while the table is held: nobody changes what it has read of it.
//!
//! It reads in a transaction of its own, and rows pass by in pieces. What is kept of all of them is the keys
//! of those that are changed or removed.

mod choice;
pub mod commit;
mod merge;

use crate::altering::rewrite;
use crate::bind::{Change, Conflict, Insertion, Rows as Source};
use crate::catalog::Catalog;
use crate::constraints::violation::{self, Refused};
use crate::constraints::{check, children, define};
use crate::edits;
use crate::evaluate::{Evaluator, size};
use crate::fault;
use crate::plan::{StatementPlan, Work, plan};
use crate::read::{self, Values};
use crate::refill::{Convert, FoundRow, Refusal, Target};
use crate::settings::Settings;
use crate::statements::{Statement, canceled};
use crate::truncate;
use crate::txn::{Modes, Open, Turns};
use crate::write;
use bytes::Bytes;
use client::Table;
use pg::{Failure, Outcome, Row as PgRow, Rows, code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime;
use types::data::constraint::Demand;
use types::data::{Row, Schema};
use types::{TableId, TableRecord};

/// Rows that are written at once.
const ROWS: usize = 2_000;
/// Bytes of rows behind which no more are written at once.
const BYTES: usize = 4 << 20;
/// The most bytes of keys of rows that a statement changes or removes.
const MAX_KEY_BYTES: usize = 256 << 20;
/// What a key takes beside its own bytes.
const OVERHEAD: usize = 48;

/// Does a statement that was refused as too large, if it can be done so. `why` is what is said otherwise.
pub async fn carry_out(
    evaluator: &Evaluator,
    (known, statement): (&Arc<StatementPlan>, Statement<'_>),
    values: &Values,
    (settings, turns): (&Settings, &Arc<Turns>),
    why: Failure,
) -> Result<Outcome, Failure> {
    let handle = &evaluator.handle;
    let apart = statement.table().database().is_none();
    if apart || handle.spread().is_some() || !is_plain(statement) {
        return Err(why);
    }
    let count = Arc::new(AtomicU64::new(0));
    rewrite::refilled(evaluator, (&statement.table().name, 0), |catalog, table, _| {
        // Columns are named by their places: they must be those of the plan.
        let planned = statement.table();
        if (table.id, table.schema.version()) != (planned.id, planned.schema.version()) {
            return Err(fault::stale());
        }
        may(catalog, table, statement, &why)?;
        let target = like(catalog, table, &BTreeMap::new())?;
        count.store(0, Ordering::Relaxed);
        let context = (settings, turns, &evaluator.memory);
        let open = Open::begin(values.now, true, Modes::default(), context);
        let filling = Filling {
            evaluator: evaluator.clone(),
            runtime: runtime::Handle::current(),
            known: known.clone(),
            values: values.clone(),
            reading: Reading { open, patience: settings.patience(), rows: None },
            touched: Touched::default(),
            count: count.clone(),
        };
        Ok((target, filling))
    })
    .await?;
    Ok(statement.outcome(count.load(Ordering::Relaxed), None))
}

/// True if it computes its rows, is told nothing of them, and needs no look at rows that are there.
fn is_plain(statement: Statement<'_>) -> bool {
    match statement {
        Statement::Insert(insertion) => {
            let computed = matches!(insertion.rows, Source::Query(_));
            computed && insertion.returning.is_none() && matches!(insertion.conflict, Conflict::Fail)
        }
        Statement::Change(change) => change.returning.is_none(),
        Statement::Parts(_) | Statement::Merge(_) => false,
    }
}

/// The same table, whose rows get another id. Numbers go on, those of a key that nobody sees as well. Foreign
/// keys refer to the other ids that tables get with it. A check is as valid as it was, since rows that stay
/// are not looked at.
pub(crate) fn like(
    catalog: &Catalog,
    table: &TableRecord,
    renamed: &BTreeMap<TableId, TableId>,
) -> Result<Target, Failure> {
    let mut parts = truncate::emptied(table, (TableId(0), renamed), false).schema.into_parts();
    for (at, column) in parts.columns.iter_mut().enumerate().filter(|(_, column)| column.rules.hidden) {
        let numbered = column.rules.identity.is_some();
        let counter = table.schema.columns()[at].rules.counter;
        column.rules.counter = counter.or(numbered.then_some((table.id.0, at as u32)));
    }
    for constraint in parts.constraints.iter_mut().filter(|one| matches!(one.demand, Demand::Check(_))) {
        let mut before = table.schema.constraints().iter();
        if let Some(known) = before.find(|known| known.number == constraint.number) {
            *constraint = known.clone();
        }
    }
    let schema = Schema::from_parts(parts).map_err(define::invalid)?;
    let places = (0..schema.columns().len()).map(Some).collect();
    let (children, definitions) = (rewrite::referring(catalog, table), Vec::new());
    Ok(Target { name: table.name.clone(), schema, places, children, definitions })
}

/// What other rows refer to is looked at where they are written: so it must stay.
fn may(
    catalog: &Catalog,
    table: &TableRecord,
    statement: Statement<'_>,
    why: &Failure,
) -> Result<(), Failure> {
    for (child, foreign, reference) in children(catalog, table.id) {
        let stays = match statement {
            _ if child.id == table.id => false,
            Statement::Insert(_) => true,
            Statement::Change(change) => {
                !change.removes && !reference.parent_columns.iter().any(|at| change.set.contains(at))
            }
            Statement::Parts(_) | Statement::Merge(_) => false,
        };
        if !stays {
            let hint =
                format!("\"{}\" of \"{}\" refers to its rows: write fewer at once", foreign.name, child.name);
            return Err(why.clone().hint(hint));
        }
    }
    Ok(())
}

/// Where the statement's rows come from.
struct Reading {
    /// The transaction that it reads in.
    open: Open,
    /// How long that may be silent.
    patience: Duration,
    rows: Option<Rows>,
}

/// The rows of the table that are changed or removed.
#[derive(Default)]
struct Touched {
    keys: BTreeSet<Bytes>,
    bytes: usize,
}

impl Touched {
    fn add(&mut self, key: Bytes) -> Result<(), Failure> {
        self.bytes += key.len() + OVERHEAD;
        self.keys.insert(key);
        if self.bytes > MAX_KEY_BYTES {
            let message =
                format!("a statement changes or removes rows with at most {MAX_KEY_BYTES} bytes of keys");
            return Err(Failure::new(code::LIMIT, message).hint("write fewer rows at once"));
        }
        Ok(())
    }
}

/// A statement that fills its table under another id.
struct Filling {
    evaluator: Evaluator,
    runtime: runtime::Handle,
    /// The statement, as it was planned before the table was held.
    known: Arc<StatementPlan>,
    values: Values,
    reading: Reading,
    touched: Touched,
    /// Rows that it counts.
    count: Arc<AtomicU64>,
}

impl Filling {
    /// Plans it again, for the table that is held, and begins to read.
    async fn start(&mut self) -> Result<(), Failure> {
        let handle = &self.evaluator.handle;
        handle.look_again().await;
        let catalog = handle.current().await?;
        let known = &self.known;
        self.known = plan(&catalog, &known.path, &known.parsed, &known.given)?;
        let bound = match &self.known.work {
            Work::Insert(Insertion { rows: Source::Query(bound), .. }) => bound,
            Work::Change(change) => &change.read,
            _ => return Err(fault::stale()),
        };
        let Reading { open, patience, rows } = &mut self.reading;
        let view = open.statement(handle, *patience).await?;
        read::pin(handle, read::partitions(&bound.sources, &self.values), &view).await.map_err(lost)?;
        *rows = Some(self.evaluator.start(bound.clone(), self.values.clone(), view)?);
        Ok(())
    }

    /// Some rows of what the statement reads. None: there are no more.
    async fn next(&mut self) -> Result<Vec<PgRow>, Failure> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let Some(rows) = &mut self.reading.rows else { return Ok(found) };
        while found.len() < ROWS && bytes < BYTES {
            let next = tokio::select! {
                next = rows.next() => next,
                () = self.evaluator.cancel.wait() => return Err(canceled()),
            };
            let Some(row) = next.transpose().map_err(lost)? else { break };
            bytes += row.iter().map(size).sum::<usize>();
            found.push(row);
        }
        Ok(found)
    }

    async fn made(&mut self) -> Result<Option<Vec<Row>>, Failure> {
        let read = self.next().await?;
        if read.is_empty() {
            return Ok(None);
        }
        self.count.fetch_add(read.len() as u64, Ordering::Relaxed);
        let known = self.known.clone();
        let (table, rows) = match &known.work {
            Work::Insert(insertion) => {
                let table = Table::new(insertion.table.clone());
                let rows =
                    edits::filled(&self.evaluator, (&table, &insertion.columns), read, &self.values).await?;
                (table, rows)
            }
            Work::Change(change) => {
                let table = Table::new(change.table.clone());
                let rows = self.changed(&table, change, read)?;
                (table, rows)
            }
            _ => return Err(fault::stale()),
        };
        check::rows(&self.evaluator, &table, &rows, &self.values).await?;
        Ok(Some(rows))
    }

    /// What an UPDATE makes of rows; nothing of those that a DELETE removes.
    fn changed(&mut self, table: &Table, change: &Change, read: Vec<PgRow>) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::with_capacity(read.len());
        for row in read {
            let (key, stored, new) = edits::split(row)?;
            if !change.removes {
                let mut row = table.decode(&key, &stored).map_err(fault::of_client)?;
                edits::set(table, &mut row, &change.set, new)?;
                rows.push(row);
            }
            self.touched.add(key)?;
        }
        Ok(rows)
    }
}

/// What it read is lost with a primary, and nothing is done: it may begin again, as a conflict has it.
fn lost(failure: Failure) -> Failure {
    let of_states = failure.code == fault::SERIALIZATION && !fault::is_stale(&failure);
    if of_states { fault::conflict() } else { failure }
}

impl Convert for Filling {
    fn begin(&mut self) -> Result<(), Failure> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.start())
    }

    fn more(&mut self) -> Result<Option<Vec<Row>>, Failure> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.made())
    }

    fn rows(&mut self, found: Vec<FoundRow>) -> Result<Vec<Row>, Failure> {
        if self.evaluator.cancel.asked() {
            return Err(canceled());
        }
        let left = found.into_iter().filter(|one| !self.touched.keys.contains(&one.key));
        Ok(left.map(|one| one.row).collect())
    }

    fn refused(&self, why: Refusal<'_>) -> Failure {
        match why {
            Refusal::Key(table, key) => write::duplicate(table, key.map(|key| &key[..])),
            Refusal::Constraint(table, number, ops) => {
                let refused = Refused::new([(table, ops)]);
                self.runtime.block_on(violation::told(&self.evaluator.handle, number, &refused))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_up_to_a_limit() {
        let mut touched = Touched::default();
        touched.add(Bytes::from_static(b"a")).expect("room");
        touched.bytes = MAX_KEY_BYTES;
        assert_eq!(touched.add(Bytes::from_static(b"b")).expect_err("no room").code, code::LIMIT);
    }
}
