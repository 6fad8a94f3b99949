//! Tables: from rows and keys to calls, and the blocking conveniences.

use crate::call::{Answer, Call, Completed, Fate, LaneId};
use crate::client::Client;
use crate::error::ClientError;
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::data::{self, Row, Schema, Value};
use types::database::SHARED;
use types::{Lsn, Micros, NodeId, PartitionId, Position, TableId, TableRecord};
use wire::control::AdminCommand;
use wire::request::ReadSnapshot;
use wire::{Body, Op, ReadLevel, RowOp, TablePart};

/// A table as its record says: makes calls from rows and keys. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Table {
    record: Arc<TableRecord>,
}

impl Table {
    /// From its record.
    pub fn new(record: Arc<TableRecord>) -> Table {
        Table { record }
    }

    /// Its record.
    pub fn record(&self) -> &TableRecord {
        &self.record
    }

    /// Its id.
    pub fn id(&self) -> TableId {
        self.record.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Its columns and key.
    pub fn schema(&self) -> &Schema {
        &self.record.schema
    }

    /// Its partitions, in order.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        self.record.partition_ids()
    }

    /// The partition of an encoded key.
    pub fn partition_of(&self, key: &[u8]) -> Result<PartitionId, ClientError> {
        let place = self.record.place_of(self.schema(), key);
        Ok(PartitionId(self.record.first_partition.0 + place.map_err(|error| self.data(error))?))
    }

    /// The partitions, in order, that can have keys with `from <= key`, and `key < to` where that is not
    /// empty.
    pub fn partitions_between(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = PartitionId> + use<> {
        let first = self.record.first_partition.0;
        self.record.places_between(from, to).map(move |place| PartitionId(first + place))
    }

    /// The encoded key of these values, in the order of the key's columns.
    pub fn key(&self, values: &[Value]) -> Result<Bytes, ClientError> {
        Ok(data::encode_key(self.schema(), values).map_err(|error| self.data(error))?.into())
    }

    /// A row as it is stored: key and value.
    pub fn encode(&self, row: &Row) -> Result<(Bytes, Bytes), ClientError> {
        let key = data::key::encode_row_key(self.schema(), row).map_err(|error| self.data(error))?;
        let stored = data::encode_row(self.schema(), row).map_err(|error| self.data(error))?;
        Ok((key.into(), stored.into()))
    }

    /// A stored row.
    pub fn decode(&self, key: &[u8], stored: &[u8]) -> Result<Row, ClientError> {
        data::decode_row(self.schema(), key, stored).map_err(|error| match error {
            data::RowError::NewerSchema { .. } => ClientError::NewerSchema { table: self.name().to_string() },
            error => self.data(error),
        })
    }

    /// What a write to several tables of a database does to this one's rows.
    pub fn part(&self, ops: Vec<RowOp>) -> TablePart {
        TablePart { table: self.id(), schema: self.schema().version(), ops, seen: Vec::new() }
    }

    /// A call to one partition of this table.
    pub fn call(&self, partition: PartitionId, op: Op) -> Call {
        Call::new(self.id(), self.schema().version(), partition, op)
    }

    /// A write of these operations, all or none. All keys must belong to this partition.
    pub fn write(&self, partition: PartitionId, ops: Vec<RowOp>) -> Call {
        self.call(partition, Op::write(ops))
    }

    /// A write of these operations, all or none, and only if none of their rows has changed since a snapshot
    /// ([`crate::Answer::snapshot`] of a read of this partition at its primary): the first committer wins.
    /// Refused with [`wire::Outcome::Changed`] if one has.
    pub fn write_since(&self, partition: PartitionId, ops: Vec<RowOp>, since: Position) -> Call {
        self.call(partition, Op::Write { ops, mark: None, since: Some(since) })
    }

    /// Whether rows can be written by others than SQL. What is a sequence or a view has none, a replicated
    /// table gets other rows as a whole, and conditions of SQL are looked at by SQL alone.
    pub fn takes_rows(&self) -> Result<(), ClientError> {
        match self.schema().of_sql_alone() {
            None => Ok(()),
            Some(why) => Err(ClientError::Data { table: self.name().to_string(), why }),
        }
    }

    /// What a refusal by the constraint with this number says, as a sentence.
    pub fn violation(&self, number: u32) -> String {
        let name = self.name();
        match self.schema().constraints().iter().find(|one| one.number == number) {
            Some(one) => format!("the constraint `{}` of table `{name}` forbids it", one.name),
            None => format!("a constraint of a table that refers to `{name}` forbids it"),
        }
    }

    /// Writes a row, whatever was there. The error: it is none of the table, or the table takes none so.
    pub fn put(&self, row: &Row) -> Result<Call, ClientError> {
        self.takes_rows()?;
        let (key, row) = self.encode(row)?;
        Ok(self.write(self.partition_of(&key)?, vec![RowOp::Put { key, row }]))
    }

    /// Writes a row if there is none with its key. The error is as with [`Table::put`].
    pub fn insert(&self, row: &Row) -> Result<Call, ClientError> {
        self.takes_rows()?;
        let (key, row) = self.encode(row)?;
        Ok(self.write(self.partition_of(&key)?, vec![RowOp::Insert { key, row }]))
    }

    /// Removes the row with this key, if there is one. The error is as with [`Table::put`], but for
    /// conditions.
    pub fn delete(&self, key: &[Value]) -> Result<Call, ClientError> {
        if self.schema().is_replicated() {
            self.takes_rows()?;
        }
        let key = self.key(key)?;
        Ok(self.write(self.partition_of(&key)?, vec![RowOp::Delete { key }]))
    }

    /// Reads the row with this key.
    pub fn get(&self, key: &[Value]) -> Result<Call, ClientError> {
        let key = self.key(key)?;
        Ok(self.call(self.partition_of(&key)?, Op::Get { key, at: ReadSnapshot::Newest }))
    }

    /// A row as it is if the table has got columns since it was made: they are null in it.
    pub(crate) fn widened(&self, row: &Row) -> Row {
        let mut row = row.clone();
        let columns = self.schema().columns().len();
        if self.record.database().is_some() && row.values.len() < columns {
            row.values.resize(columns, Value::Null);
        }
        row
    }

    fn data(&self, error: impl std::fmt::Display) -> ClientError {
        ClientError::Data { table: self.name().to_string(), why: error.to_string() }
    }
}

/// One partition's digest and the position it was taken at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionDigest {
    /// The partition.
    pub partition: PartitionId,
    /// The hash of all its rows.
    pub digest: u64,
    /// At which LSN.
    pub lsn: Lsn,
}

impl Client {
    /// The lane of blocking calls.
    pub const BLOCKING: LaneId = LaneId(u32::MAX);

    /// A table that exists. `bank.accounts` is one of the database `bank`. A name by itself is that of a
    /// table with partitions of its own, or else of one that lies together with others where SQL makes them.
    pub fn table(&mut self, name: &str) -> Result<Table, ClientError> {
        // A cluster map that is on its way may have it.
        self.turn(Instant::now())?;
        let (database, table) = name.split_once('.').unwrap_or((SHARED, name));
        let own = self.cluster_map().table(table).filter(|_| database == SHARED && table == name);
        if let Some(own) = own.cloned() {
            return Ok(Table::new(own));
        }
        let missing = || ClientError::NoTable(name.to_string());
        let database = match self.database(database) {
            Err(ClientError::NoDatabase(_)) if database == SHARED => return Err(missing()),
            found => found?,
        };
        if types::system::is_reserved(table) {
            return Err(missing());
        }
        let found = self.tables_of(&database)?.into_iter().find(|known| known.name() == table);
        found.ok_or_else(missing)
    }

    /// Waits until a table is in the cluster map and every partition of it answers. If it gets others
    /// meanwhile, it waits for those.
    pub fn wait_table(&mut self, name: &str) -> Result<Table, ClientError> {
        let deadline = Instant::now() + self.timeout();
        // A read of nothing: only a primary that serves answers it.
        let empty = Op::Count {
            from: Bytes::from_static(&[0]),
            to: Bytes::from_static(&[0]),
            at: ReadSnapshot::Newest,
        };
        loop {
            let table = self.wait_record(name, deadline)?;
            let calls = table.partitions().map(|partition| table.call(partition, empty.clone())).collect();
            let Err(error) = self.all(calls) else { return Ok(table) };
            let other = self.cluster_map().table(name).is_some_and(|record| record.id != table.id());
            if !other || Instant::now() >= deadline {
                return Err(ClientError::NotReady { table: name.to_string(), why: error.to_string() });
            }
        }
    }

    fn wait_record(&mut self, name: &str, deadline: Instant) -> Result<Table, ClientError> {
        loop {
            if let Some(record) = self.cluster_map().table(name) {
                return Ok(Table::new(record.clone()));
            }
            if Instant::now() >= deadline {
                return Err(ClientError::NoTable(name.to_string()));
            }
            self.turn(deadline)?;
        }
    }

    /// Makes one call and waits for its end, at most [`Client::timeout`] unless it has a deadline.
    pub fn call(&mut self, call: Call) -> Result<Answer, ClientError> {
        let lane = Client::BLOCKING;
        let ticket = self.submit_bounded(lane, call);
        self.wait_for(ticket)?.outcome.into_result()
    }

    /// Makes calls at once and waits for all; answers in their order, or the first error.
    pub fn all(&mut self, calls: Vec<Call>) -> Result<Vec<Answer>, ClientError> {
        let tickets: Vec<_> =
            calls.into_iter().map(|call| self.submit_bounded(Client::BLOCKING, call)).collect();
        let ends: Result<Vec<Completed>, ClientError> =
            tickets.into_iter().map(|ticket| self.wait_for(ticket)).collect();
        ends?.into_iter().map(|completed| completed.outcome.into_result()).collect()
    }

    /// Writes a row, whatever was there. Of a table that has got columns meanwhile these are null.
    pub fn put(&mut self, table: &Table, row: &Row) -> Result<Answer, ClientError> {
        if table.is_global() {
            let put = |_: &mut Client, transaction: &mut crate::Transaction, table: &Table| {
                transaction.put(table, row)
            };
            return self.write_alone(table, put).map(|(_, answer)| answer);
        }
        self.looking_again(table, |client, table| client.call(table.put(&table.widened(row))?))
    }

    /// Writes a row; [`ClientError::Exists`] if there is one with its key. As [`Client::put`] otherwise.
    pub fn insert(&mut self, table: &Table, row: &Row) -> Result<Answer, ClientError> {
        if table.is_global() {
            let key: Vec<Value> = table.schema().key().iter().map(|at| row.values[*at].clone()).collect();
            let insert = |client: &mut Client, transaction: &mut crate::Transaction, table: &Table| {
                if client.get_in(transaction, table, &key)?.is_some() {
                    return Err(ClientError::Exists);
                }
                transaction.put(table, row)
            };
            return self.write_alone(table, insert).map(|(_, answer)| answer);
        }
        self.looking_again(table, |client, table| client.call(table.insert(&table.widened(row))?))
    }

    /// Removes a row. True if there was one.
    pub fn delete(&mut self, table: &Table, key: &[Value]) -> Result<bool, ClientError> {
        if table.is_global() {
            let delete = |client: &mut Client, transaction: &mut crate::Transaction, table: &Table| {
                let found = client.get_in(transaction, table, key)?.is_some();
                if found {
                    transaction.delete(table, key)?;
                }
                Ok(found)
            };
            return self.write_alone(table, delete).map(|(found, _)| found);
        }
        match self.looking_again(table, |client, table| client.call(table.delete(key)?))?.body {
            Body::Affected(rows) => Ok(rows > 0),
            other => Err(unexpected(&other)),
        }
    }

    /// Reads a row from its primary.
    pub fn get(&mut self, table: &Table, key: &[Value]) -> Result<Option<Row>, ClientError> {
        self.get_at(table, key, ReadLevel::Primary)
    }

    /// Reads a row at a read level.
    pub fn get_at(
        &mut self,
        table: &Table,
        key: &[Value],
        read: ReadLevel,
    ) -> Result<Option<Row>, ClientError> {
        if table.is_global() && read == ReadLevel::Primary {
            let transaction = self.begin_for(table)?;
            return self.get_in(&transaction, table, key);
        }
        let encoded = table.key(key)?;
        self.looking_again(table, |client, table| match client.call(table.get(key)?.at_level(read))?.body {
            Body::Row(None) => Ok(None),
            Body::Row(Some((_, stored))) => Ok(Some(table.decode(&encoded, &stored)?)),
            other => Err(unexpected(&other)),
        })
    }

    /// How many rows a table has. Each partition is counted at its own moment.
    pub fn count(&mut self, table: &Table) -> Result<u64, ClientError> {
        let count = |at| Op::Count { from: Bytes::new(), to: Bytes::new(), at };
        let answers = self.looking_again(table, |client, table| {
            let partitions: Vec<PartitionId> = table.partitions().collect();
            let states = match table.is_global() {
                true => client.snapshot_of(table, &partitions)?,
                false => vec![ReadSnapshot::Newest; partitions.len()],
            };
            let calls = partitions.into_iter().zip(states);
            client.all(calls.map(|(partition, at)| table.call(partition, count(at))).collect())
        })?;
        answers.iter().map(number).sum()
    }

    /// The digest of every partition, as its primary has it.
    pub fn digest(&mut self, table: &Table) -> Result<Vec<PartitionDigest>, ClientError> {
        let answers =
            self.all(table.partitions().map(|partition| table.call(partition, Op::Digest)).collect())?;
        let pairs = table.partitions().zip(&answers);
        pairs
            .map(|(partition, answer)| {
                Ok(PartitionDigest { partition, digest: number(answer)?, lsn: answer.lsn })
            })
            .collect()
    }

    /// Asks one certain replica, to compare replicas. `read` should be a [`ReadLevel::Any`].
    pub fn replica_read(
        &mut self,
        table: &Table,
        node: NodeId,
        partition: PartitionId,
        op: Op,
        read: ReadLevel,
    ) -> Result<Answer, ClientError> {
        self.call(table.call(partition, op).at_node(node).at_level(read))
    }

    /// Whether an acknowledged commit is still there (PR-29). Exact for whoever asks about its own.
    pub fn fate(
        &mut self,
        table: &Table,
        partition: PartitionId,
        commit: Position,
    ) -> Result<Fate, ClientError> {
        match self.call(table.call(partition, Op::TermEnd { term: commit.term }))?.body {
            Body::TermEnd(end) => Ok(Fate::of(commit.lsn, end)),
            other => Err(unexpected(&other)),
        }
    }

    /// True if this client's newest acknowledged write in the partition is lost; `None` if it has none.
    pub fn newest_lost(
        &mut self,
        table: &Table,
        partition: PartitionId,
    ) -> Result<Option<bool>, ClientError> {
        let Some(newest) = self.cluster_map().newest(partition) else { return Ok(None) };
        Ok(Some(self.fate(table, partition, newest)? != Fate::Kept))
    }

    /// Creates a table and waits until it serves.
    pub fn create_table(&mut self, table: &wire::control::CreateTable) -> Result<Table, ClientError> {
        if !types::system::is_reserved(&table.name) && self.is_shared(&table.name)? {
            return Err(ClientError::NameTaken);
        }
        self.admin(AdminCommand::CreateTable(wire::RecordText::new(table)))?;
        self.wait_table(&table.name)
    }

    fn submit_bounded(&mut self, lane: LaneId, call: Call) -> crate::call::Ticket {
        let bounded = call.deadline > Micros::ZERO;
        let limit = micros(self.timeout());
        self.submit(lane, if bounded { call } else { call.within(limit) })
    }
}

/// A duration as the core counts.
pub(crate) fn micros(duration: Duration) -> Micros {
    Micros(duration.as_micros().try_into().unwrap_or(u64::MAX))
}

pub(crate) fn unexpected(body: &Body) -> ClientError {
    ClientError::Protocol(format!("{body:?}"))
}

fn number(answer: &Answer) -> Result<u64, ClientError> {
    answer.number().ok_or_else(|| unexpected(&answer.body))
}
