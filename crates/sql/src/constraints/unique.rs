//! Rows by what is unique in their table, or refers to another one, as a statement sees them.

use crate::driver::Handle;
use crate::fault;
use crate::read::{self, CALL};
use crate::txn::View;
use bytes::Bytes;
use client::Table;
use pg::{Failure, code};
use std::collections::{BTreeMap, BTreeSet};
use types::PartitionId;
use types::data::constraint::{Constraint, Standing};
use types::data::{Row, prefix_end};
use types::index::entry_prefix;
use wire::{Body, Op};

/// The unique constraints of a table by which rows are found.
pub fn all(table: &Table) -> impl Iterator<Item = &Constraint> {
    let valid = |one: &&Constraint| one.unique().is_some() && one.standing == Standing::Valid;
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
        let (from, to) = (Bytes::new(), Bytes::new());
        for (key, stored) in view.buffer.range(table.id(), (&from, &to)) {
            let row = table.decode(key, stored).map_err(fault::of_client)?;
            if let Some(entry) = finder.entry(&row) {
                finder.own.entry(entry).or_default().push((key.clone(), stored.clone()));
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
        let Some(from) = self.entry(row) else { return Ok(None) };
        let mut own = self.own.get(&from).into_iter().flatten();
        if let Some(own) = own.find(|(key, _)| Some(key) != but) {
            return Ok(Some(own.clone()));
        }
        if self.view.is_empty(self.table) {
            return Ok(None);
        }
        let (to, at) = (prefix_end(&from).into(), self.view.at(self.table, self.partition));
        let op = Op::Find { index: self.number, from: from.into(), to, limit: 2, at };
        let call = self.table.call(self.partition, op).within(CALL);
        let answer = fault::answer(self.handle.call(call).await)?;
        self.view.saw(self.table, self.partition, answer.snapshot());
        let Body::Found { rows, .. } = answer.body else {
            return Err(Failure::new(code::INTERNAL, "an index gave no rows"));
        };
        // What the transaction has made of a row is among its own.
        let place = (self.table.id(), self.partition);
        let untouched = |key: &Bytes| self.view.buffer.row(place, key).is_none() && Some(key) != but;
        let there = rows.into_iter().find(|(key, ..)| untouched(key));
        Ok(there.map(|(key, _, stored)| (key, stored)))
    }

    /// Notes that the statement writes a row with these values. False: it has one already.
    pub fn take(&mut self, row: &Row) -> bool {
        self.entry(row).is_none_or(|entry| self.taken.insert(entry))
    }
}
