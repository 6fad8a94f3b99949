//! Constraints over several rows, looked at by a session.
//!
//! Where a partition keeps them it looks at them with the write, which is at COMMIT. What is seen to be wrong
//! at the end of a statement within a transaction is told at once, so that a client learns of it where
//! PostgreSQL's would. Nothing rests on that: under REPEATABLE READ and in large transactions COMMIT alone
//! says so.
//!
//! Where transactions are global, rows of all partitions matter, and the session looks before it commits: at
//! one snapshot, at everything. What is committed behind that snapshot the transaction manager sees (PR-324,
//! PR-325). Of rows that are referred to by values it is told which ones were found ([`by_value`], PR-369).

mod by_value;

use crate::catalog::Catalog;
use crate::constraints::unique::{Finder, Found};
use crate::constraints::{children, violation};
use crate::deferring::Timing;
use crate::driver::Handle;
use crate::edits::Edits;
use crate::fault;
use crate::follow;
use crate::read;
use crate::txn::buffer::{Written, aside};
use crate::txn::{After, Buffer, Edit, Limit, View, global};
use bytes::Bytes;
use client::Table;
use pg::{Failure, code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use types::data::constraint::{Constraint, Reference, Standing, Target};
use types::data::{Row, Value, decode_key};
use types::index::entry_prefix;
use types::{PartitionId, Position, TableId};
use wire::RowOp;
use wire::commit::ParentRow;
use wire::message::MAX_OPS;

/// Statements of more rows, and transactions that have written more, are told at COMMIT.
const MAX_EARLY_ROWS: usize = 1_000;

/// How long a commit waits for an index that is being built.
const WAIT_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks for it.
const PAUSE: Duration = Duration::from_millis(10);

/// What the transaction manager is told of what was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// The snapshot at which it was.
    pub at: Position,
    /// What rows refer to by values that are unique, and no keys.
    pub parents: Vec<ParentRow>,
}

/// What is done to one table.
struct Part<'a> {
    table: &'a Table,
    partition: PartitionId,
    rows: Vec<(Bytes, Row)>,
    /// Keys of rows that go.
    gone: Vec<Bytes>,
}

impl<'a> Part<'a> {
    fn of<'b>(
        table: &'a Table,
        partition: PartitionId,
        ops: impl Iterator<Item = (&'b Bytes, Option<&'b Bytes>)>,
    ) -> Result<Part<'a>, Failure> {
        let mut part = Part { table, partition, rows: Vec::new(), gone: Vec::new() };
        for (key, row) in ops {
            match row {
                Some(row) => {
                    let row = table.decode(key, row).map_err(fault::of_client)?;
                    part.rows.push((key.clone(), row));
                }
                None => part.gone.push(key.clone()),
            }
        }
        Ok(part)
    }
}

fn is_constrained(catalog: &Catalog, table: &Table) -> bool {
    let demands = |one: &Constraint| one.is_enforced() && !one.forbids_nothing();
    table.schema().constraints().iter().any(demands) || !children(catalog, table.id()).is_empty()
}

/// Looks at what a statement writes, with all that follows from it, by what is not deferred.
pub async fn look(handle: &Handle, all: &[Edits], (view, timing): (&View, &Timing)) -> Result<(), Failure> {
    let catalog = handle.catalog().ok_or_else(fault::not_ready)?;
    let count: usize = all.iter().map(|edits| edits.edits.len()).sum();
    let constrained = |edits: &&Edits| is_constrained(&catalog, &edits.table);
    if count > MAX_EARLY_ROWS || !all.iter().any(|edits| constrained(&edits)) {
        return Ok(());
    }
    let (without, mut view) = (Some(view), view.clone());
    for edits in all {
        follow::see(&mut view, edits)?;
    }
    let (before, since, which) = (None, None, Which::Immediate(timing));
    let looking = Looking { handle, catalog: &catalog, view: &view, without, before, since, which };
    for edits in all.iter().filter(constrained) {
        let Some(partition) = edits.partition else { continue };
        // What becomes of a row behind that is looked at there.
        let keys: Vec<Bytes> = edits.edits.iter().map(|edit| edit.key.clone()).collect();
        let last = Buffer::rows(&view.buffer, (edits.table.id(), partition), &keys).await?;
        let done = edits.edits.iter().zip(&last).filter_map(|(edit, last)| match &edit.after {
            After::Row(row) if last.as_ref() == Some(&Some(row.clone())) => Some((&edit.key, Some(row))),
            After::Gone if *last == Some(None) => Some((&edit.key, None)),
            After::Row(_) | After::Gone | After::Same => None,
        });
        looking.at(&Part::of(&edits.table, partition, done)?).await?;
    }
    Ok(())
}

/// Looks at all that a transaction has written by the constraints with these numbers, which were deferred
/// until now. Of tables of which it has written more rows than one write has COMMIT alone says so.
pub async fn look_back(handle: &Handle, view: &View, numbers: &BTreeSet<u32>) -> Result<(), Failure> {
    let catalog = handle.catalog().ok_or_else(fault::not_ready)?;
    let mut before = view.clone();
    before.buffer = Arc::default();
    let (before, since, which) = (Some(&before), None, Which::These(numbers));
    let looking = Looking { handle, catalog: &catalog, view, without: before, before, since, which };
    for id in view.buffer.tables() {
        let record = catalog.all().find(|table| table.id == id);
        let few = !view.buffer.has_more(id, MAX_OPS);
        let Some(table) = record.cloned().map(Table::new).filter(|_| few) else {
            continue;
        };
        let own = move |buffer: &Buffer| buffer.all(id).map(|edit| Ok(edit?.into_owned())).collect();
        let edits: Vec<Edit> = aside(&view.buffer, own).await?;
        let done = edits.iter().filter_map(|edit| match &edit.after {
            After::Row(row) => Some((&edit.key, Some(row))),
            After::Gone => Some((&edit.key, None)),
            After::Same => None,
        });
        let part = Part::of(&table, view.buffer.partition(), done)?;
        looking.at(&part).await?;
        looking.values_are_left(&part).await?;
    }
    Ok(())
}

/// Looks at all that a global transaction is about to commit, at a snapshot of now. What the transaction
/// manager is told of it; none: its tables demand nothing of that kind.
pub async fn before_commit(
    handle: &Handle,
    tables: &BTreeMap<TableId, Table>,
    parts: &[Written],
) -> Result<Option<Checked>, Failure> {
    let catalog = handle.catalog().ok_or_else(fault::not_ready)?;
    let known = parts.iter().filter_map(|part| Some((tables.get(&part.table)?, part)));
    let all: Parts<'_> = known.collect();
    let constrained: Parts<'_> =
        all.iter().filter(|(table, _)| is_constrained(&catalog, table)).copied().collect();
    if constrained.is_empty() {
        return Ok(None);
    }
    let began = Instant::now();
    loop {
        let looked = look_at_all(handle, &catalog, (&all, &constrained)).await;
        let passes = |failure: &Failure| {
            let again = failure.code == fault::SERIALIZATION;
            // A row that came meanwhile stays: only who computes the writes again gets further.
            again && !fault::is_stale(failure) && !fault::is_conflict(failure)
        };
        if !looked.as_ref().is_err_and(passes) || began.elapsed() > WAIT_LIMIT {
            return looked.map(Some);
        }
        // An index of a table that was just made is being built, or a state is gone.
        tokio::time::sleep(PAUSE).await;
    }
}

/// Tables with what is written of them.
type Parts<'a> = Vec<(&'a Table, &'a Written)>;

/// Looks at one snapshot of now.
async fn look_at_all(
    handle: &Handle,
    catalog: &Catalog,
    (all, constrained): (&Parts<'_>, &Parts<'_>),
) -> Result<Checked, Failure> {
    let before = global::begin(handle, &View::default()).await?;
    let mut view = before.clone();
    let partition = PartitionId::default();
    for (table, part) in all {
        let edits = part.ops.iter().map(edit).collect();
        Arc::make_mut(&mut view.buffer).take((table.id(), partition), edits, (Limit::WRITE, None))?;
    }
    let since = all.iter().flat_map(|(_, part)| &part.seen).min().copied();
    let (before, which) = (Some(&before), Which::All);
    let looking = Looking { handle, catalog, view: &view, without: before, before, since, which };
    let mut parents = Vec::new();
    for &(table, part) in constrained {
        let is_kept = |op: &&RowOp| matches!(op, RowOp::Keep { .. });
        let written = part.ops.iter().filter(|op| !is_kept(op));
        let written = Part::of(table, partition, written.map(|op| (op.key(), op.row())))?;
        parents.extend(looking.at(&written).await?);
        looking.values_are_left(&written).await?;
        let kept: Vec<Bytes> = part.ops.iter().filter(is_kept).map(|op| op.key().clone()).collect();
        parents.extend(looking.parents_of_kept((table, partition), &kept).await?);
    }
    let parents = by_value::each_once(parents)?;
    Ok(Checked { at: view.position(partition).unwrap_or_default(), parents })
}

/// What rows of a partition have against a constraint over several rows, as a view shows all partitions.
pub async fn against(
    handle: &Handle,
    view: &View,
    (table, partition, rows): (&Table, PartitionId, Vec<(Bytes, Row)>),
    constraint: &Constraint,
) -> Result<Option<Failure>, Failure> {
    let catalog = handle.catalog().ok_or_else(fault::not_ready)?;
    let (without, before, since, which) = (None, None, None, Which::All);
    let looking = Looking { handle, catalog: &catalog, view, without, before, since, which };
    let part = Part { table, partition, rows, gone: Vec::new() };
    match constraint.reference() {
        Some(reference) => match looking.has_parents(&part, (constraint, reference)).await {
            Err(failure) if failure.code == violation::NO_PARENT => Ok(Some(failure)),
            looked => looked.map(|_| None),
        },
        None => Ok(looking.duplicate(&part, constraint).await?.map(|shown| {
            let noted = Constraint { note: shown, ..constraint.clone() };
            violation::not_kept(table.record(), &noted, |_| None)
        })),
    }
}

/// What an operation makes of a row, for who reads behind it.
fn edit(op: &RowOp) -> Edit {
    let after = match op {
        RowOp::Put { row, .. } | RowOp::Insert { row, .. } | RowOp::Update { row, .. } => {
            After::Row(row.clone())
        }
        RowOp::Delete { .. } => After::Gone,
        RowOp::Keep { .. } => After::Same,
    };
    Edit::new(op.key().clone(), true, after)
}

/// Where it is looked.
struct Looking<'a> {
    handle: &'a Handle,
    catalog: &'a Catalog,
    view: &'a View,
    /// The same state without what is looked at, where rows may stay what they were.
    without: Option<&'a View>,
    /// The same state without what the transaction has written, where all that it commits is looked at.
    before: Option<&'a View>,
    /// The oldest of the snapshots that it rests on.
    since: Option<Position>,
    which: Which<'a>,
}

/// By which constraints it is looked.
#[derive(Clone, Copy)]
enum Which<'a> {
    /// A statement: by those that are not deferred.
    Immediate(&'a Timing),
    /// A transaction: by those with these numbers, which were deferred until now.
    These(&'a BTreeSet<u32>),
    /// By all, and nobody looks behind it: nothing is left out.
    All,
}

impl Looking<'_> {
    /// What its rows refer to by values.
    async fn at(&self, part: &Part<'_>) -> Result<Vec<ParentRow>, Failure> {
        self.are_unique(part).await?;
        let parents = self.have_parents(part).await?;
        self.are_left(part).await?;
        Ok(parents)
    }

    /// True if this constraint is looked at.
    fn looks_at(&self, constraint: &Constraint) -> bool {
        let is_valid = constraint.standing == Standing::Valid;
        match self.which {
            Which::Immediate(timing) => is_valid && !timing.defers(constraint),
            Which::These(numbers) => is_valid && numbers.contains(&constraint.number),
            // An index that is not ready yet says so.
            Which::All => constraint.is_enforced(),
        }
    }

    /// True if nobody looks behind it.
    fn is_last(&self) -> bool {
        matches!(self.which, Which::All)
    }

    /// True if the transaction has written so much of the table that it is not looked through.
    fn is_much(&self, table: &Table) -> bool {
        let most = match self.which {
            Which::Immediate(_) => MAX_EARLY_ROWS,
            Which::These(_) => MAX_OPS,
            Which::All => return false,
        };
        self.view.buffer.has_more(table.id(), most)
    }

    async fn finder<'a>(
        &'a self,
        (table, partition): (&'a Table, PartitionId),
        constraint: &Constraint,
    ) -> Result<Finder<'a>, Failure> {
        Finder::new(self.handle, (table, partition), self.view, constraint).await
    }

    /// No row refers to one that goes. Where they refer by something else than its key, COMMIT alone says so
    /// ([`Looking::values_are_left`]).
    async fn are_left(&self, part: &Part<'_>) -> Result<(), Failure> {
        let (parent, gone) = (part.table, &part.gone);
        for (child, constraint, reference) in children(self.catalog, parent.id()) {
            let key = parent.schema().key();
            let by_key = match self.before {
                Some(_) => by_value::is_by_key(parent.schema(), &reference),
                None => reference.parent_columns.iter().all(|at| key.contains(at)),
            };
            let child = Table::new(child);
            if gone.is_empty() || !by_key || !self.looks_at(&constraint) || self.is_much(&child) {
                continue;
            }
            let (mut old, mut referring) = (Vec::new(), Vec::new());
            for gone in gone {
                let values = decode_key(parent.schema(), gone);
                let values = values.map_err(|error| Failure::new(code::INTERNAL, error.to_string()))?;
                let mut row = Row::new(vec![Value::Null; parent.schema().columns().len()]);
                key.iter().zip(values).for_each(|(at, value)| row.values[*at] = value);
                let values = reference.parent_columns.iter().map(|at| row.values[*at].clone());
                referring.push(follow::row_with(&child, &reference.columns, values));
                old.push(row);
            }
            let finder = self.finder((&child, part.partition), &constraint).await?;
            let found = finder.find_all(referring.iter().map(|row| (row, None))).await?;
            if let Some((at, row)) = found.iter().enumerate().find_map(|(at, row)| Some((at, row.as_ref()?)))
            {
                let shown = violation::key(parent.record(), &reference.parent_columns, &old[at]);
                let failure =
                    violation::still_referred(child.record(), &constraint, parent.record(), Some(shown));
                return Err(self.unless_it_came((&child, &reference), row, failure).await);
            }
        }
        Ok(())
    }

    /// What is said of a row that still refers to one that goes, or gets other values. If something follows
    /// from that for rows that refer, and this one did not refer yet where the transaction has looked, it
    /// came meanwhile, and nothing is violated: had it been seen, it would have gone as well, or got other
    /// values. PostgreSQL waits for it. Here the transaction is to begin again.
    async fn unless_it_came(
        &self,
        (child, reference): (&Table, &Reference),
        (key, stored): &Found,
        failure: Failure,
    ) -> Failure {
        let follows = reference.on_delete.changes_rows() || reference.on_update.changes_rows();
        let (Some(since), Ok(partition)) = (self.since.filter(|_| follows), child.partition_of(key)) else {
            return failure;
        };
        match Buffer::seen(&self.view.buffer, (child.id(), partition), key).await {
            Ok(None) => {}
            // The transaction itself has written it.
            Ok(Some(_)) => return failure,
            Err(why) => return why,
        }
        let refers = |stored: &Bytes| {
            let row = child.decode(key, stored).ok()?;
            Some(reference.columns.iter().map(|at| row.values[*at].clone()).collect::<Vec<Value>>())
        };
        let then = View::default().at_commit(since, &[]);
        match read::get(self.handle, child, key, &then).await {
            Ok(Some(before)) if refers(&before) == refers(stored) => failure,
            // That state may be gone: who begins again is told what is so then.
            Ok(_) | Err(_) => fault::conflict(),
        }
    }

    async fn are_unique(&self, part: &Part<'_>) -> Result<(), Failure> {
        let table = part.table;
        if self.is_much(table) || part.rows.is_empty() {
            return Ok(());
        }
        for constraint in table.schema().constraints().iter().filter(|one| self.looks_at(one)) {
            if let Some(shown) = self.duplicate(part, constraint).await? {
                return Err(violation::duplicate(table.record(), constraint, Some(shown)));
            }
        }
        Ok(())
    }

    /// Values of a row that another one has as well, though they are unique by this constraint.
    async fn duplicate(&self, part: &Part<'_>, constraint: &Constraint) -> Result<Option<String>, Failure> {
        let Some(columns) = constraint.unique() else { return Ok(None) };
        let finder = self.finder((part.table, part.partition), constraint).await?;
        let rows = part.rows.iter().map(|(key, row)| (row, Some(key)));
        let found = finder.find_all(rows).await?;
        let first = found.iter().position(Option::is_some);
        Ok(first.map(|at| violation::key(part.table.record(), columns, &part.rows[at].1)))
    }

    async fn have_parents(&self, part: &Part<'_>) -> Result<Vec<ParentRow>, Failure> {
        let mut parents = Vec::new();
        for constraint in part.table.schema().constraints() {
            let Some(reference) = constraint.reference() else { continue };
            if !self.looks_at(constraint) {
                continue;
            }
            let Some(without) = self.without.filter(|_| !constraint.is_kept()) else {
                parents.extend(self.has_parents(part, (constraint, reference)).await?);
                continue;
            };
            let (others, same) = by_value::by_change(self.handle, part, reference, without).await?;
            parents.extend(self.has_parents(&others, (constraint, reference)).await?);
            parents.extend(self.parents_or_none(&same, (constraint, reference)).await?);
        }
        Ok(parents)
    }

    fn parent(&self, reference: &Reference) -> Option<Table> {
        self.catalog.all().find(|table| table.id == reference.parent).cloned().map(Table::new)
    }

    /// What its rows refer to by this foreign key, if by values.
    async fn has_parents(
        &self,
        part: &Part<'_>,
        (constraint, reference): (&Constraint, &Reference),
    ) -> Result<Vec<ParentRow>, Failure> {
        let Some(parent) = self.parent(reference) else { return Ok(Vec::new()) };
        let values = |row: &Row| {
            let values: Vec<Value> = reference.columns.iter().map(|at| row.values[*at].clone()).collect();
            (!values.iter().any(Value::is_null)).then_some(values)
        };
        let rows: Vec<_> = part.rows.iter().filter_map(|(_, row)| Some((row, values(row)?))).collect();
        let (mut lacks, mut found) = (None, Vec::new());
        if let Some(Target::Key(places)) = parent.schema().target(&reference.parent_columns) {
            let mut keys = Vec::new();
            for (row, values) in &rows {
                let key: Vec<Value> = places.iter().map(|at| values[*at].clone()).collect();
                match read::encoded_key(&parent, &key) {
                    Some(key) => keys.push(key),
                    None => lacks = Some(*row),
                }
            }
            let there = read::get_all(self.handle, &parent, part.partition, &keys, self.view).await?;
            let first = there.iter().position(Option::is_none);
            lacks = lacks.or(first.map(|at| rows[at].0));
        } else {
            // What many rows refer to is asked for once: the key that is found may be long.
            let mut asked = BTreeSet::new();
            let is_new = |(_, values): &&(&Row, Vec<Value>)| {
                entry_prefix(values).ok().is_none_or(|value| asked.insert(value))
            };
            let rows: Vec<_> = rows.iter().filter(is_new).collect();
            let all: Vec<&[Value]> = rows.iter().map(|(_, values)| values.as_slice()).collect();
            let there = self.found((&parent, part.partition), (constraint, reference), &all).await?;
            lacks = there.iter().position(Option::is_none).map(|at| rows[at].0);
            found.extend(there.into_iter().flatten());
        }
        let Some(row) = lacks else { return Ok(found) };
        let (table, parent) = (part.table.record(), parent.record());
        let shown = violation::key(table, &reference.columns, row);
        Err(violation::no_parent(table, constraint, parent, Some(shown)))
    }
}
