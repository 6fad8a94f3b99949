//! Rows by what is unique in their table, or refers to another one, as a statement sees them.

use crate::driver::Handle;
use crate::fault;
use crate::read;
use crate::txn::buffer::{Seen, aside};
use crate::txn::{Buffer, View};
use bytes::Bytes;
use client::{Outcome, Table};
use pg::{Failure, code};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::oneshot;
use types::PartitionId;
use types::data::constraint::Constraint;
use types::data::{Row, prefix_end};
use types::index::entry_prefix;
use wire::{Body, Op};

/// The unique constraints of a table by which rows are found.
pub fn all(table: &Table) -> impl Iterator<Item = &Constraint> {
    let valid = |one: &&Constraint| one.unique().is_some() && one.is_kept();
    table.schema().constraints().iter().filter(valid)
}

/// Finds rows of a table by one constraint.
pub struct Finder<'a> {
    handle: &'a Handle,
    table: &'a Table,
    partition: PartitionId,
    view: &'a View,
    number: u32,
    columns: Vec<usize>,
    /// Rows that the transaction has written, by their values.
    own: BTreeMap<Vec<u8>, Vec<Found>>,
    /// Values of rows that the statement itself has.
    taken: BTreeSet<Vec<u8>>,
}

/// Rows that are asked for at once, in each partition.
const MAX_ASKED_AT_ONCE: usize = 500;
/// Rows of the same values in one answer: the first may be the transaction's own.
const FOUND: u32 = 2;
/// Rows in each answer behind the first.
const MORE_FOUND: u32 = 1_000;

/// Partitions that were asked, each with the end of the range.
type Asked = Vec<(PartitionId, Bytes, oneshot::Receiver<Outcome>)>;

/// What is known of a row's values.
enum Looked {
    /// This.
    At(Option<Found>),
    /// What partitions say.
    Asked(Asked),
}

/// A row's key, and itself as it is stored.
pub type Found = (Bytes, Bytes);

impl<'a> Finder<'a> {
    /// By the index of this constraint.
    pub async fn new(
        handle: &'a Handle,
        (table, partition): (&'a Table, PartitionId),
        view: &'a View,
        constraint: &Constraint,
    ) -> Result<Finder<'a>, Failure> {
        read::pin(handle, vec![(table.clone(), partition)], view).await?;
        let columns = constraint.indexed().unwrap_or_default().to_vec();
        let (number, taken) = (constraint.number, BTreeSet::new());
        let mut finder =
            Finder { handle, table, partition, view, number, columns, own: BTreeMap::new(), taken };
        let id = table.id();
        for (key, stored) in aside(&view.buffer, move |buffer| buffer.whole(id)).await? {
            let row = table.decode(&key, &stored).map_err(fault::of_client)?;
            if let Some(entry) = finder.entry(&row) {
                finder.own.entry(entry).or_default().push((key, stored));
            }
        }
        Ok(finder)
    }

    /// What the row has in the columns; `None`: it is like no other, as there is a null among it.
    fn entry(&self, row: &Row) -> Option<Vec<u8>> {
        let values: Vec<_> = self.columns.iter().map(|at| row.values[*at].clone()).collect();
        if values.iter().any(types::data::Value::is_null) {
            return None;
        }
        entry_prefix(&values).ok()
    }

    /// The row that has the same values.
    pub async fn find(&self, row: &Row) -> Result<Option<Found>, Failure> {
        self.find_but(row, None).await
    }

    /// Another row than that of this key which has the same values.
    pub async fn find_other(&self, row: &Row, key: &Bytes) -> Result<Option<Found>, Failure> {
        self.find_but(row, Some(key)).await
    }

    async fn find_but(&self, row: &Row, but: Option<&Bytes>) -> Result<Option<Found>, Failure> {
        Ok(self.find_all([(row, but)].into_iter()).await?.pop().flatten())
    }

    /// The same of many rows, each without the one of this key, in their order.
    pub async fn find_all<'r>(
        &self,
        rows: impl Iterator<Item = (&'r Row, Option<&'r Bytes>)>,
    ) -> Result<Vec<Option<Found>>, Failure> {
        let rows: Vec<_> = rows.collect();
        let mut all = Vec::with_capacity(rows.len());
        for rows in rows.chunks(MAX_ASKED_AT_ONCE) {
            let begun: Vec<_> = rows.iter().map(|(row, but)| (self.begin(row, *but), *but)).collect();
            for (looked, but) in begun {
                all.push(match looked {
                    Looked::At(found) => found,
                    Looked::Asked(asked) => self.first_of(asked, but).await?,
                });
            }
        }
        Ok(all)
    }

    fn begin(&self, row: &Row, but: Option<&Bytes>) -> Looked {
        let Some(from) = self.entry(row) else { return Looked::At(None) };
        let mut own = self.own.get(&from).into_iter().flatten();
        if let Some(own) = own.find(|(key, _)| Some(key) != but) {
            return Looked::At(Some(own.clone()));
        }
        if self.view.is_empty(self.table) {
            return Looked::At(None);
        }
        let (from, to) = (Bytes::from(from.clone()), Bytes::from(prefix_end(&from)));
        let ask = |partition| (partition, to.clone(), self.ask(partition, (from.clone(), to.clone()), FOUND));
        Looked::Asked(self.partitions().into_iter().map(ask).collect())
    }

    fn ask(
        &self,
        partition: PartitionId,
        (from, to): (Bytes, Bytes),
        limit: u32,
    ) -> oneshot::Receiver<Outcome> {
        let at = self.view.at(self.table, partition);
        let op = Op::Find { index: self.number, from, to, limit, at };
        read::ask(self.handle, self.view.asks(self.table.call(partition, op)))
    }

    /// Where rows are: in one partition; where transactions are global, in any.
    fn partitions(&self) -> Vec<PartitionId> {
        match self.view.is_global() {
            true => self.table.partitions().collect(),
            false => vec![self.partition],
        }
    }

    async fn first_of(&self, asked: Asked, but: Option<&Bytes>) -> Result<Option<Found>, Failure> {
        let mut first = None;
        for (partition, to, mut answered) in asked {
            loop {
                let answer = fault::answer(answered.await.unwrap_or_else(|_| read::gone()))?;
                self.view.saw(self.table, partition, answer.snapshot());
                let Body::Found { rows, next } = answer.body else {
                    return Err(Failure::new(code::INTERNAL, "an index gave no rows"));
                };
                // What the transaction has made of a row is among its own.
                let place = (self.table.id(), partition);
                let keys: Vec<Bytes> = rows.iter().map(|(key, ..)| key.clone()).collect();
                let own = Buffer::rows(&self.view.buffer, place, &keys).await?;
                let is_own = |key: &Bytes, seen: &Seen| seen.is_some() || Some(key) == but;
                let mut found = rows.into_iter().zip(own);
                let there = found.find(|((key, ..), seen)| !is_own(key, seen)).map(|(row, _)| row);
                first = first.or(there.map(|(key, _, stored)| (key, stored)));
                if first.is_some() || next.is_empty() {
                    break;
                }
                answered = self.ask(partition, (next, to.clone()), MORE_FOUND);
            }
        }
        Ok(first)
    }

    /// Notes that the statement writes a row with these values. False: it has one already.
    pub fn take(&mut self, row: &Row) -> bool {
        self.entry(row).is_none_or(|entry| self.taken.insert(entry))
    }
}
