//! Partitions that global transactions write do what a store under a transaction manager must
//! ([`stores::Store`]), on a cluster of this process, and while nodes die.

use crate::common::Cluster;
use bytes::Bytes;
use client::{Call, Client, ClientError, Database, FailKind, Table};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use stores::suite::Subject;
use stores::{Refused, Reopening, Sender, Store, Tenure};
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::{PartitionId, Position, TableId};
use wire::control::CreateTable;
use wire::request::ReadSnapshot;
use wire::{Body, CommitAnswer, Flush, Op};

/// A database of its own, of which one partition is looked at.
struct Partitions {
    cluster: Rc<RefCell<Cluster>>,
    client: Client,
    database: Database,
    table: Table,
    region: PartitionId,
    /// The table's first keys that lie there.
    keys: Vec<i64>,
    /// As the transaction manager's books have it.
    threshold: Position,
    /// The newest commit that is there: the table was made by one.
    before: Position,
}

fn refused(error: ClientError) -> Refused {
    match error {
        ClientError::Failed { kind: FailKind::Behind(newest), .. } => Refused::Behind(newest),
        ClientError::Failed { kind: FailKind::TooOld, .. } => Refused::TooOld,
        other => Refused::Unavailable(other.to_string()),
    }
}

impl Partitions {
    fn new(cluster: &Rc<RefCell<Cluster>>, number: usize) -> Partitions {
        let mut client = cluster.borrow().ready();
        let request = CreateTable {
            partitions: 2,
            factor: Some(3),
            ..CreateTable::database(&format!("store{number}"), "async")
        };
        let database = client.create_global_database(&request).expect("made");
        let columns = vec![Column::new("id", ColumnType::Int), Column::new("value", ColumnType::Int)];
        let schema = Schema::new(columns, &["id"], 1, false).expect("valid");
        let table = client.create_table_in(&database, "rows", schema).expect("made");
        let region = PartitionId(database.partition().0 + 1);
        let is_there = |id: &i64| {
            let key = table.key(&[Value::Int(*id)]).expect("a key");
            table.partition_of(&key).expect("a partition") == region
        };
        let keys = (0..).filter(is_there).take(100).collect();
        let (cluster, before) = (cluster.clone(), client.begin(&database).expect("begun").snapshot());
        // What the manager has committed is brought there.
        let hold = Op::Hold { at: ReadSnapshot::Commit { at: before, after: Position::ZERO } };
        client.complete(Call::new(database.id(), 0, region, hold)).expect("brought");
        let mut store =
            Partitions { cluster, client, database, table, region, keys, threshold: Position::ZERO, before };
        if let Body::Commit(CommitAnswer::State(state)) =
            store.call(Op::FlushState { copies: 1 }).expect("it answers").body
        {
            store.before = state.newest;
        }
        store
    }

    fn call(&mut self, op: Op) -> Result<client::Answer, Refused> {
        self.client.call(Call::new(self.database.id(), 0, self.region, op)).map_err(refused)
    }
}

impl Store for Partitions {
    fn put(&mut self, region: PartitionId, flush: &Flush, _: Sender) -> Result<Tenure, Refused> {
        assert_eq!(region, self.region);
        self.call(Op::Flush(flush.clone())).map(|answer| Tenure(answer.epoch.0))
    }

    fn read(
        &mut self,
        region: PartitionId,
        (_, key): (TableId, &Bytes),
        at: Position,
    ) -> Result<Option<Bytes>, Refused> {
        let at = ReadSnapshot::Commit { at, after: Position::ZERO };
        let call = self.table.call(region, Op::Get { key: key.clone(), at });
        let answer = self.client.call(call).map_err(refused)?;
        Ok(answer.row().map(|(_, stored)| stored.clone()))
    }

    fn persist(&mut self, region: PartitionId, _: Position) -> Result<Position, Refused> {
        // Primaries and copies do it by themselves.
        self.persisted(region)
    }

    fn persisted(&mut self, _: PartitionId) -> Result<Position, Refused> {
        let answer = self.call(Op::FlushState { copies: 2 })?;
        match answer.body {
            Body::Commit(CommitAnswer::State(state)) => {
                self.threshold = self.threshold.max(state.secured);
                Ok(self.threshold)
            }
            other => Err(Refused::Unavailable(format!("answered with {other:?}"))),
        }
    }

    /// They open by themselves: a reader notices what is missing, and brings it.
    fn reopening(&mut self) -> Vec<Reopening> {
        Vec::new()
    }

    fn open(&mut self, reopening: &Reopening) -> Result<(), Refused> {
        panic!("{reopening:?} was never named")
    }
}

impl Subject for Partitions {
    fn region(&self) -> PartitionId {
        self.region
    }

    fn table(&self) -> TableId {
        self.table.id()
    }

    fn before(&self) -> Position {
        // The first of them names it as the one before.
        self.before
    }

    fn encoded(&self, row: u64, value: u64) -> (Bytes, Bytes) {
        let id = self.keys[row as usize];
        self.table.encode(&Row::new(vec![Value::Int(id), Value::Int(value as i64)])).expect("a row")
    }

    fn fail(&mut self) -> bool {
        let record = self.client.cluster_map().partition(self.region).expect("there");
        let leads = record.primary.node.0;
        self.cluster.borrow_mut().kill(leads);
        self.cluster.borrow_mut().start_node(leads);
        self.client = self.cluster.borrow().ready();
        true
    }

    fn wait(&mut self) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn partitions_of_global_transactions_do_what_a_store_must() {
    let cluster = Rc::new(RefCell::new(Cluster::start()));
    let mut number = 0;
    let mut fresh = || -> Box<dyn Subject> {
        number += 1;
        Box::new(Partitions::new(&cluster, number))
    };
    assert_eq!(stores::check(&mut fresh), 7);
}
