//! What constraints over several rows say to a transaction that is about to be committed.
//!
//! It is looked at one snapshot of now, over all partitions, that values are unique and that what is referred
//! to is there. What is committed behind that snapshot the transaction manager sees (PR-324, PR-325, PR-369).
//! Conditions of SQL, and what follows for rows that refer to one that goes, SQL alone sees to.

use super::{Transaction, Write};
use crate::call::{Answer, Call, Completed, FailKind, Ticket};
use crate::client::Client;
use crate::error::ClientError;
use crate::table::{Table, micros, unexpected};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use types::data::constraint::{Action, Constraint, Reference, Target};
use types::data::{Row, Value, decode_key, prefix_end};
use types::index::entry_prefix;
use types::{PartitionId, Position, TableId};
use wire::commit::{ParentRow, parents_fault};
use wire::{Body, Op};

/// Before it is looked again where an index is being built.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// Reads that are on their way at once.
const MAX_KEYS_AT_ONCE: usize = 500;
/// Rows in one answer of an index: the first may be one that the transaction writes.
const FOUND: u32 = 16;
/// Rows of a table that are read again to find out whether others have changed them.
const MAX_READ_AGAIN: usize = 200;

/// What the transaction manager is told of what was looked at.
#[derive(Debug)]
pub(super) struct Checked {
    /// The snapshot at which it was.
    pub at: Position,
    /// What rows refer to by values that are unique, and no keys.
    pub parents: Vec<ParentRow>,
}

/// A foreign key, and the table that it is of.
#[derive(Debug)]
struct Child {
    table: Table,
    number: u32,
    reference: Reference,
}

/// The tables of a database, and by whom each is referred to.
#[derive(Debug)]
struct Demands {
    tables: BTreeMap<TableId, Table>,
    children: BTreeMap<TableId, Vec<Child>>,
}

/// What a transaction does to one table.
struct Part<'a> {
    table: &'a Table,
    rows: Vec<(&'a Bytes, Row)>,
    /// Keys of rows that go.
    gone: Vec<&'a Bytes>,
}

fn parts(transaction: &Transaction) -> Result<BTreeMap<TableId, Part<'_>>, ClientError> {
    let mut parts: BTreeMap<TableId, Part<'_>> = BTreeMap::new();
    for ((id, key), write) in &transaction.writes {
        let Some(table) = transaction.tables.get(id) else { continue };
        let new = || Part { table, rows: Vec::new(), gone: Vec::new() };
        let part = parts.entry(*id).or_insert_with(new);
        match &write.row {
            Some(stored) => part.rows.push((key, table.decode(key, stored)?)),
            None => part.gone.push(key),
        }
    }
    Ok(parts)
}

/// True if the table's own constraints are to be looked at.
fn demands_something(table: &Table) -> bool {
    let demands = |one: &Constraint| one.is_enforced() && !one.forbids_nothing();
    table.schema().constraints().iter().any(demands)
}

/// What a row has in these columns; none: one is null.
fn values(row: &Row, columns: &[usize]) -> Option<Vec<Value>> {
    let values: Vec<Value> = columns.iter().map(|at| row.values[*at].clone()).collect();
    (!values.iter().any(Value::is_null)).then_some(values)
}

/// As entries of an index begin.
fn encoded(values: &[Value]) -> Result<Vec<u8>, ClientError> {
    entry_prefix(values).map_err(|_| ClientError::Unindexable)
}

/// The constraint by which values in these columns are unique, wherever its index is built: its number, and
/// the places of its columns among those.
fn unique_in(parent: &Table, columns: &[usize]) -> Option<(u32, Vec<usize>)> {
    if let Some(Target::Unique(number, places)) = parent.schema().target(columns) {
        return Some((number, places));
    }
    let all = parent.schema().constraints().iter().filter(|one| one.is_enforced());
    let mut unique = all.filter_map(|one| Some((one.number, one.unique()?)));
    unique.find_map(|(number, of)| {
        let place = |at: &usize| columns.iter().position(|column| column == at);
        let places: Option<Vec<usize>> = of.iter().map(place).collect();
        places.filter(|_| of.len() == columns.len()).map(|places| (number, places))
    })
}

/// True if it may be otherwise soon: an index is being built, or a state is gone.
fn passes(kind: &FailKind) -> bool {
    matches!(kind, FailKind::NoIndex | FailKind::TooOld | FailKind::Behind(_))
}

impl Client {
    /// Looks at what a transaction is about to commit. None: its tables demand nothing of that kind.
    /// [`ClientError::Violates`]: a constraint forbids it.
    pub(super) fn checked(&mut self, transaction: &Transaction) -> Result<Option<Checked>, ClientError> {
        let Some(demands) = self.demands(transaction)? else { return Ok(None) };
        let deadline = Instant::now() + self.timeout();
        loop {
            match self.look(transaction, &demands) {
                Err(ClientError::Failed { kind, .. }) if passes(&kind) && Instant::now() < deadline => {
                    self.turn(Instant::now() + LOOK_PAUSE)?;
                }
                // What it has from a row may be another's by now.
                Err(ClientError::Violates(number)) => {
                    return match self.is_overtaken(transaction) {
                        Ok(true) => Err(ClientError::Changed),
                        _ => Err(ClientError::Violates(number)),
                    };
                }
                looked => return looked.map(Some),
            }
        }
    }

    /// What the tables of a transaction demand. A table to which nobody refers gets another version when
    /// somebody does (PR-346): so the catalog is read once for each version of it.
    fn demands(&mut self, transaction: &Transaction) -> Result<Option<Demands>, ClientError> {
        let unreferred = &self.background.unreferred;
        let is_plain = |table: &Table| {
            let version = table.schema().version();
            !demands_something(table) && unreferred.get(&table.id()) == Some(&version)
        };
        if transaction.tables.values().all(is_plain) {
            return Ok(None);
        }
        let tables = self.tables_of(&transaction.database)?.into_iter();
        let tables: BTreeMap<TableId, Table> = tables.map(|table| (table.id(), table)).collect();
        let mut children: BTreeMap<TableId, Vec<Child>> = BTreeMap::new();
        for table in tables.values() {
            for one in table.schema().constraints().iter().filter(|one| one.is_enforced()) {
                let Some(reference) = one.reference().cloned() else { continue };
                let child = Child { table: table.clone(), number: one.number, reference };
                children.entry(child.reference.parent).or_default().push(child);
            }
        }
        let mut demand = false;
        for table in transaction.tables.values() {
            let version = table.schema().version();
            if tables.get(&table.id()).map(|now| now.schema().version()) != Some(version) {
                return Err(ClientError::Stale);
            }
            if !children.contains_key(&table.id()) {
                self.background.unreferred.insert(table.id(), version);
            }
            demand |= demands_something(table) || children.contains_key(&table.id());
        }
        Ok(demand.then_some(Demands { tables, children }))
    }

    /// Looks at one snapshot of now.
    fn look(&mut self, transaction: &Transaction, demands: &Demands) -> Result<Checked, ClientError> {
        let manager = self.transaction_manager()?;
        let at = self.snapshot_now(manager)?;
        let parts = parts(transaction)?;
        let mut parents = Vec::new();
        let mut looking = Looking { client: self, transaction, demands, parts: &parts, at };
        for part in parts.values() {
            looking.are_unique(part)?;
            parents.extend(looking.parents_of(part)?);
            looking.are_left(part)?;
        }
        match parents_fault(&parents) {
            Some(why) => {
                Err(ClientError::Data { table: transaction.database.name().into(), why: why.into() })
            }
            None => Ok(Checked { at, parents }),
        }
    }

    /// True if others have changed a row since that the transaction writes.
    fn is_overtaken(&mut self, transaction: &Transaction) -> Result<bool, ClientError> {
        let manager = self.transaction_manager()?;
        let now = self.snapshot_now(manager)?;
        for (id, table) in &transaction.tables {
            let own = transaction.writes.keys().filter(|(of, _)| of == id);
            let keys: Vec<Bytes> = own.map(|(_, key)| key.clone()).take(MAX_READ_AGAIN).collect();
            let then = self.rows_at(table, transaction.snapshot, &keys)?;
            if then != self.rows_at(table, now, &keys)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Rows of a table by their keys, in their order, as a snapshot has them.
    fn rows_at(
        &mut self,
        table: &Table,
        at: Position,
        keys: &[Bytes],
    ) -> Result<Vec<Option<Bytes>>, ClientError> {
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(MAX_KEYS_AT_ONCE) {
            let mut calls = Vec::with_capacity(keys.len());
            for key in keys {
                let partition = table.partition_of(key)?;
                let at = self.background.known.at(at, partition);
                calls.push(table.call(partition, Op::Get { key: key.clone(), at }));
            }
            for answer in self.all_in_transaction(calls)? {
                match answer.body {
                    Body::Row(row) => found.push(row.map(|(_, stored)| stored)),
                    other => return Err(unexpected(&other)),
                }
            }
        }
        Ok(found)
    }

    /// Makes calls of a transaction at once and waits for all: their answers in order, or the first error.
    fn all_in_transaction(&mut self, calls: Vec<Call>) -> Result<Vec<Answer>, ClientError> {
        let limit = micros(self.timeout());
        let mut tickets: Vec<Ticket> = Vec::with_capacity(calls.len());
        for call in calls {
            tickets.push(self.submit_in_transaction(Client::BLOCKING, call.within(limit)));
        }
        let ends: Result<Vec<Completed>, ClientError> =
            tickets.into_iter().map(|ticket| self.wait_for(ticket)).collect();
        ends?.into_iter().map(|completed| completed.outcome.into_result()).collect()
    }
}

/// Where it is looked.
struct Looking<'a> {
    client: &'a mut Client,
    transaction: &'a Transaction,
    demands: &'a Demands,
    parts: &'a BTreeMap<TableId, Part<'a>>,
    at: Position,
}

impl<'a> Looking<'a> {
    /// What the transaction does to a row; none: nothing.
    fn own(&self, table: &Table, key: &Bytes) -> Option<&'a Write> {
        self.transaction.writes.get(&(table.id(), key.clone()))
    }

    /// For each of these values the key of a row that has them in the columns of an index, without those that
    /// the transaction writes.
    fn find_all(
        &mut self,
        (table, number): (&Table, u32),
        all: &[Vec<Value>],
    ) -> Result<Vec<Option<Bytes>>, ClientError> {
        let mut found: Vec<Option<Bytes>> = vec![None; all.len()];
        let mut ends: Vec<Bytes> = Vec::with_capacity(all.len());
        let mut asked: Vec<(usize, PartitionId, Bytes)> = Vec::new();
        for (place, values) in all.iter().enumerate() {
            let from = encoded(values)?;
            ends.push(prefix_end(&from).into());
            let from = Bytes::from(from);
            asked.extend(table.partitions().map(|partition| (place, partition, from.clone())));
        }
        while !asked.is_empty() {
            let now = asked.split_off(asked.len().saturating_sub(MAX_KEYS_AT_ONCE));
            let mut calls = Vec::with_capacity(now.len());
            for (place, partition, from) in &now {
                let at = self.client.background.known.at(self.at, *partition);
                let (from, to) = (from.clone(), ends[*place].clone());
                let find = Op::Find { index: number, from, to, limit: FOUND, at };
                calls.push(table.call(*partition, find));
            }
            let answers = self.client.all_in_transaction(calls)?;
            for ((place, partition, _), answer) in now.into_iter().zip(answers) {
                let Body::Found { rows, next } = answer.body else { return Err(unexpected(&answer.body)) };
                let mut keys = rows.into_iter().map(|(key, ..)| key);
                match keys.find(|key| self.own(table, key).is_none()) {
                    Some(key) => found[place] = Some(key),
                    None if !next.is_empty() => asked.push((place, partition, next)),
                    None => {}
                }
            }
        }
        Ok(found)
    }

    fn are_unique(&mut self, part: &Part<'_>) -> Result<(), ClientError> {
        for one in part.table.schema().constraints().iter().filter(|one| one.is_enforced()) {
            let Some(columns) = one.unique() else { continue };
            let all: Vec<Vec<Value>> = part.rows.iter().filter_map(|(_, row)| values(row, columns)).collect();
            let mut own = BTreeSet::new();
            for values in &all {
                if !own.insert(encoded(values)?) {
                    return Err(ClientError::Violates(one.number));
                }
            }
            if self.find_all((part.table, one.number), &all)?.iter().any(Option::is_some) {
                return Err(ClientError::Violates(one.number));
            }
        }
        Ok(())
    }

    /// What its rows refer to must be there. Gives back what they refer to by values.
    fn parents_of(&mut self, part: &Part<'_>) -> Result<Vec<ParentRow>, ClientError> {
        let (demands, mut parents) = (self.demands, Vec::new());
        for one in part.table.schema().constraints().iter().filter(|one| one.is_enforced()) {
            let Some(reference) = one.reference() else { continue };
            let mut all: BTreeMap<Vec<u8>, Vec<Value>> = BTreeMap::new();
            for values in part.rows.iter().filter_map(|(_, row)| values(row, &reference.columns)) {
                all.insert(encoded(&values)?, values);
            }
            let (entries, all): (Vec<Vec<u8>>, Vec<Vec<Value>>) = all.into_iter().unzip();
            if all.is_empty() {
                continue;
            }
            let parent = demands.tables.get(&reference.parent).ok_or(ClientError::Stale)?;
            if let Some(Target::Key(places)) = parent.schema().target(&reference.parent_columns) {
                if !self.have_rows(parent, &places, &all)? {
                    return Err(ClientError::Violates(one.number));
                }
                continue;
            }
            for (value, key) in entries.into_iter().zip(self.by_value(parent, reference, &all)?) {
                let key = key.ok_or(ClientError::Violates(one.number))?;
                let (value, table) = (value.into(), parent.id());
                parents.push(ParentRow { constraint: one.number, value, table, key });
            }
        }
        Ok(parents)
    }

    /// True if there are rows with all of these keys, behind what the transaction does.
    fn have_rows(
        &mut self,
        table: &Table,
        places: &[usize],
        all: &[Vec<Value>],
    ) -> Result<bool, ClientError> {
        let mut others = Vec::new();
        for values in all {
            let key: Vec<Value> = places.iter().map(|at| values[*at].clone()).collect();
            // One that cannot be encoded has no row.
            let Ok(key) = table.key(&key) else { return Ok(false) };
            match self.own(table, &key) {
                Some(write) if write.row.is_none() => return Ok(false),
                Some(_) => {}
                None => others.push(key),
            }
        }
        Ok(self.client.rows_at(table, self.at, &others)?.iter().all(Option::is_some))
    }

    /// For each of these values the key of the row that has them where it is referred to, behind what the
    /// transaction does.
    fn by_value(
        &mut self,
        parent: &Table,
        reference: &Reference,
        all: &[Vec<Value>],
    ) -> Result<Vec<Option<Bytes>>, ClientError> {
        let mut own: BTreeMap<Vec<u8>, Bytes> = BTreeMap::new();
        for (key, row) in self.parts.get(&parent.id()).into_iter().flat_map(|part| &part.rows) {
            if let Some(values) = values(row, &reference.parent_columns) {
                own.insert(encoded(&values)?, Bytes::clone(key));
            }
        }
        let unique = unique_in(parent, &reference.parent_columns);
        let (number, places) = unique.ok_or(ClientError::Stale)?;
        let (mut found, mut others) = (Vec::with_capacity(all.len()), Vec::<Vec<Value>>::new());
        for values in all {
            let key = own.get(&encoded(values)?).cloned();
            if key.is_none() {
                others.push(places.iter().map(|at| values[*at].clone()).collect());
            }
            found.push(key);
        }
        let mut there = self.find_all((parent, number), &others)?.into_iter();
        for key in found.iter_mut().filter(|key| key.is_none()) {
            *key = there.next().flatten();
        }
        Ok(found)
    }

    /// No row refers to one that goes, or to values that one has no more.
    fn are_left(&mut self, part: &Part<'_>) -> Result<(), ClientError> {
        let demands = self.demands;
        for child in demands.children.get(&part.table.id()).into_iter().flatten() {
            let reference = &child.reference;
            let target = part.table.schema().target(&reference.parent_columns);
            let by_key = matches!(target, Some(Target::Key(_)));
            let lost = match by_key {
                true => lost_keys(part, reference)?,
                false => self.lost_values(part, reference)?,
            };
            let (all, actions): (Vec<Vec<Value>>, Vec<Action>) = lost.into_iter().unzip();
            let found = self.find_all((&child.table, child.number), &all)?;
            let referred = all.into_iter().zip(actions).zip(found);
            let referred = referred.filter(|(_, found)| found.is_some()).map(|(lost, _)| lost);
            let (all, actions): (Vec<Vec<Value>>, Vec<Action>) = referred.unzip();
            // Another row may have the values now.
            let there = match by_key || all.is_empty() {
                true => vec![None; all.len()],
                false => self.by_value(part.table, reference, &all)?,
            };
            let left = actions.iter().zip(there).find(|(_, there)| there.is_none());
            match left {
                None => {}
                Some((action, _)) if action.changes_rows() => {
                    let name = child.table.name();
                    let why = format!(
                        "what follows for rows of `{name}` that refer to it SQL does: write it by SQL"
                    );
                    return Err(ClientError::Data { table: part.table.name().into(), why });
                }
                Some(_) => return Err(ClientError::Violates(child.number)),
            }
        }
        Ok(())
    }

    /// Values that rows had which are referred to, and have no more, each with what is to become of rows that
    /// refer to it.
    fn lost_values(&mut self, part: &Part<'_>, reference: &Reference) -> Result<Lost, ClientError> {
        let written = part.rows.iter().map(|(key, row)| (Bytes::clone(key), Some(row)));
        let gone = part.gone.iter().map(|key| (Bytes::clone(key), None));
        let (keys, new): (Vec<Bytes>, Vec<Option<&Row>>) = written.chain(gone).unzip();
        let stored = self.client.rows_at(part.table, self.at, &keys)?;
        let mut lost = Lost::new();
        for ((key, stored), new) in keys.iter().zip(stored).zip(new) {
            let Some(stored) = stored else { continue };
            let old = part.table.decode(key, &stored)?;
            let Some(old) = values(&old, &reference.parent_columns) else { continue };
            match new {
                None => lost.push((old, reference.on_delete)),
                Some(row) if values(row, &reference.parent_columns).as_ref() == Some(&old) => {}
                Some(_) => lost.push((old, reference.on_update)),
            }
        }
        Ok(lost)
    }
}

/// Values that nobody may refer to any more, and what is to become of rows that do.
type Lost = Vec<(Vec<Value>, Action)>;

/// The same of keys of rows that go.
fn lost_keys(part: &Part<'_>, reference: &Reference) -> Result<Lost, ClientError> {
    let schema = part.table.schema();
    let mut lost = Lost::new();
    for key in &part.gone {
        let decoded = decode_key(schema, key)
            .map_err(|error| ClientError::Data { table: part.table.name().into(), why: error.to_string() })?;
        let mut row = Row::new(vec![Value::Null; schema.columns().len()]);
        schema.key().iter().zip(decoded).for_each(|(at, value)| row.values[*at] = value);
        lost.extend(values(&row, &reference.parent_columns).map(|values| (values, reference.on_delete)));
    }
    Ok(lost)
}
