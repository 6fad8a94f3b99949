//! Reads and writes outside of transactions, of tables that only transactions write: each is a transaction of
//! its own.

use super::Transaction;
use crate::call::Answer;
use crate::client::Client;
use crate::database::Database;
use crate::error::ClientError;
use crate::table::Table;
use std::collections::BTreeMap;
use types::{Epoch, PartitionId, Position};
use wire::request::ReadSnapshot;
use wire::{Body, Op};

impl Table {
    /// True if only transactions write its rows.
    pub fn is_global(&self) -> bool {
        self.record().database().is_some() && self.record().is_global()
    }

    /// Whether loads and jobs of this client may write its rows, each in its partition. The error is
    /// [`ClientError::Data`].
    pub(crate) fn takes_batches(&self) -> Result<(), ClientError> {
        match self.is_global() {
            false => Ok(()),
            true => Err(ClientError::Data {
                table: self.name().into(),
                why: "its rows are written by global transactions: use `transact`, `understudy load`, COPY or SQL"
                    .into(),
            }),
        }
    }

    /// Whether a load may write its rows, some in each transaction. Where values are unique, or refer to
    /// other rows, `COPY` does that. The error is [`ClientError::Data`].
    pub fn takes_transactions(&self) -> Result<(), ClientError> {
        let mut constraints = self.schema().constraints().iter();
        if constraints.any(|one| one.is_enforced() && !one.forbids_nothing()) {
            let why = "it has unique values or foreign keys, which a load does not look at: use COPY".into();
            return Err(ClientError::Data { table: self.name().into(), why });
        }
        Ok(())
    }
}

impl Client {
    /// A transaction of the table's database.
    pub(crate) fn begin_for(&mut self, table: &Table) -> Result<Transaction, ClientError> {
        let database = self.database_of(table)?;
        self.begin(&database)
    }

    /// Runs a transaction that writes one table; again, with the table as it is now, as long as it has
    /// another schema than was thought.
    pub(crate) fn write_alone<T>(
        &mut self,
        table: &Table,
        act: impl Fn(&mut Client, &mut Transaction, &Table) -> Result<T, ClientError>,
    ) -> Result<(T, Answer), ClientError> {
        self.looking_again(table, |client, table| {
            client.write_once(table, |client, transaction| act(client, transaction, table))
        })
    }

    fn write_once<T>(
        &mut self,
        table: &Table,
        act: impl Fn(&mut Client, &mut Transaction) -> Result<T, ClientError>,
    ) -> Result<(T, Answer), ClientError> {
        let database = self.database_of(table)?;
        let mut written = 0;
        let (value, at) = self.transact_at(&database, |client, transaction| {
            let value = act(client, transaction)?;
            written = transaction.written() as u32;
            Ok(value)
        })?;
        let answer = Answer {
            lsn: at.lsn,
            epoch: Epoch(at.term.0),
            policy: database.record().policy.version,
            copies: database.record().policy.min_in_sync,
            body: Body::Affected(written),
        };
        Ok((value, answer))
    }

    /// Where these partitions are to be read so that together they show one snapshot, of now. Each has what
    /// it is to show when this returns.
    pub(crate) fn snapshot_of(
        &mut self,
        table: &Table,
        partitions: &[PartitionId],
    ) -> Result<Vec<ReadSnapshot>, ClientError> {
        let snapshot: Position = self.begin_for(table)?.snapshot();
        let mut all = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let at = self.background.known.at(snapshot, *partition);
            self.complete(table.call(*partition, Op::Hold { at }))?;
            all.push(at);
        }
        Ok(all)
    }

    /// One snapshot of a database whose transactions are global, of now: its timestamp, and for each
    /// partition the position whose state it is there. Primaries keep these states for ten seconds, and
    /// longer for who asks them to.
    pub fn positions_of_snapshot(
        &mut self,
        database: &Database,
    ) -> Result<(Position, BTreeMap<PartitionId, Position>), ClientError> {
        let snapshot = self.begin(database)?.snapshot();
        let mut all = BTreeMap::new();
        for partition in database.partitions() {
            let at = self.background.known.at(snapshot, partition);
            let answer = self.answer_to(database.catalog_in(partition).call(partition, Op::Hold { at }))?;
            all.insert(partition, answer.snapshot());
        }
        Ok((snapshot, all))
    }
}
