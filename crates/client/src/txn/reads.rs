//! What a transaction sees: rows by their keys and by ranges, with what it has written itself.

use super::Transaction;
use crate::call::{Call, Completed, Ticket};
use crate::client::Client;
use crate::error::ClientError;
use crate::table::{Table, micros, unexpected};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::PartitionId;
use types::data::{Row, Value};
use wire::{Body, Op};

/// Rows in a page of a scan.
const PAGE: usize = 1000;
/// Rows asked for by their keys that are on their way at once.
const MAX_KEYS_AT_ONCE: usize = 256;

/// At most so many rows of a range, and no page more once so many bytes were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtMost {
    /// Rows.
    pub rows: usize,
    /// Bytes of keys and rows, in each partition.
    pub bytes: usize,
}

impl AtMost {
    /// All of them.
    pub const ALL: AtMost = AtMost { rows: usize::MAX, bytes: usize::MAX };
}

/// Keys and rows as they are stored, in the order of the keys.
pub type StoredRows = Vec<(Bytes, Bytes)>;

impl Client {
    /// Reads a row as the transaction sees it.
    pub fn get_in(
        &mut self,
        transaction: &Transaction,
        table: &Table,
        key: &[Value],
    ) -> Result<Option<Row>, ClientError> {
        transaction.of_database(table)?;
        let key = table.key(key)?;
        let stored = self.stored_in(transaction, table, &key)?;
        stored.map(|stored| table.decode(&key, &stored)).transpose()
    }

    /// The same as it is stored, by its encoded key.
    pub fn stored_in(
        &mut self,
        transaction: &Transaction,
        table: &Table,
        key: &Bytes,
    ) -> Result<Option<Bytes>, ClientError> {
        if let Some(write) = transaction.writes.get(&(table.id(), key.clone())) {
            return Ok(write.row.clone());
        }
        let partition = table.partition_of(key)?;
        let get = |at| Op::Get { key: key.clone(), at };
        let call = transaction.asks_for(&self.background.known, table, partition, get);
        match self.complete(call)? {
            Body::Row(row) => Ok(row.map(|(_, stored)| stored)),
            other => Err(unexpected(&other)),
        }
    }

    /// The rows under these encoded keys as the transaction sees them, in the order of the keys: like
    /// [`Client::stored_in`], several of them asked for at once.
    pub fn stored_all_in(
        &mut self,
        transaction: &Transaction,
        table: &Table,
        keys: &[Bytes],
    ) -> Result<Vec<Option<Bytes>>, ClientError> {
        self.transaction_manager()?;
        let limit = micros(self.timeout());
        let mut rows = Vec::with_capacity(keys.len());
        for keys in keys.chunks(MAX_KEYS_AT_ONCE) {
            let mut calls = Vec::with_capacity(keys.len());
            for key in keys {
                let partition = table.partition_of(key)?;
                let get = |at| Op::Get { key: key.clone(), at };
                let call = transaction.asks_for(&self.background.known, table, partition, get);
                calls.push(call.within(limit));
            }
            let submit = |call: Call| self.submit_in_transaction(Client::BLOCKING, call);
            let tickets: Vec<Ticket> = calls.into_iter().map(submit).collect();
            // All are waited for, whatever one of them says: nobody else asks for their ends.
            let ends: Result<Vec<Completed>, ClientError> =
                tickets.into_iter().map(|ticket| self.wait_for(ticket)).collect();
            for (key, end) in keys.iter().zip(ends?) {
                let stored = match end.outcome.into_result()?.body {
                    Body::Row(row) => row.map(|(_, stored)| stored),
                    other => return Err(unexpected(&other)),
                };
                let own = transaction.writes.get(&(table.id(), key.clone()));
                rows.push(own.map_or(stored, |write| write.row.clone()));
            }
        }
        Ok(rows)
    }

    /// Rows with `from <= encoded key < to` (empty: no end) as the transaction sees them, in key order.
    pub fn scan_in(
        &mut self,
        transaction: &Transaction,
        table: &Table,
        range: (Bytes, Bytes),
    ) -> Result<Vec<Row>, ClientError> {
        transaction.of_database(table)?;
        let found = self.stored_rows_in(transaction, table, range, AtMost::ALL)?;
        found.iter().map(|(key, stored)| table.decode(key, stored)).collect()
    }

    /// The same as they are stored, the first of them only. Who gets fewer rows than were asked for, and
    /// fewer bytes, has all.
    pub fn stored_rows_in(
        &mut self,
        transaction: &Transaction,
        table: &Table,
        (from, to): (Bytes, Bytes),
        most: AtMost,
    ) -> Result<StoredRows, ClientError> {
        let mut found: BTreeMap<Bytes, Bytes> = BTreeMap::new();
        let mut end: Option<Bytes> = None;
        for partition in table.partitions() {
            let range = (from.clone(), to.clone());
            let (rows, last) = self.stored_rows_of(transaction, table, partition, range, most)?;
            found.extend(rows);
            end = [end, last].into_iter().flatten().min();
        }
        let within = |key: &Bytes| to.is_empty() || *key < to;
        let own = transaction.writes.range((table.id(), from)..);
        for ((_, key), write) in own.take_while(|((id, key), _)| *id == table.id() && within(key)) {
            if let Some(row) = &write.row {
                found.insert(key.clone(), row.clone());
            }
        }
        // What a partition, or the transaction, has behind the last row that was asked for is not next to it.
        let near = |key: &Bytes| end.as_ref().is_none_or(|end| key <= end);
        Ok(found.into_iter().filter(|(key, _)| near(key)).take(most.rows).collect())
    }

    /// The same of one partition, without what the transaction has written. With the last key that was looked
    /// at, if there may be more behind it.
    fn stored_rows_of(
        &mut self,
        transaction: &Transaction,
        table: &Table,
        partition: PartitionId,
        (mut from, to): (Bytes, Bytes),
        most: AtMost,
    ) -> Result<(StoredRows, Option<Bytes>), ClientError> {
        let (mut found, mut read) = (Vec::new(), 0);
        loop {
            let limit = (most.rows - most.rows.min(found.len())).clamp(1, PAGE) as u32;
            let scan = |at| Op::Scan { from: from.clone(), to: to.clone(), limit, at };
            let call = transaction.asks_for(&self.background.known, table, partition, scan);
            let Body::Rows { rows, more } = self.complete(call)? else {
                return Err(ClientError::Protocol("a scan was not answered with rows".into()));
            };
            let last = rows.last().map(|(key, ..)| key.clone());
            for (key, _, stored) in rows {
                if !transaction.writes.contains_key(&(table.id(), key.clone())) {
                    read += key.len() + stored.len();
                    found.push((key, stored));
                }
            }
            let Some(last) = last.filter(|_| more) else { return Ok((found, None)) };
            if found.len() >= most.rows || read >= most.bytes {
                return Ok((found, Some(last)));
            }
            from = [&last[..], &[0]].concat().into();
        }
    }
}
