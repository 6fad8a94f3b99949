//! How long snapshots of transactions over several partitions can be read, and through what, on a cluster of
//! this process.

use crate::common::{Cluster, LONG};
use client::txn::{ANYWHERE, Secured};
use client::{Client, Database, Table, Transaction};
use std::time::{Duration, Instant};
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::{Micros, NodeId, PartitionId};
use wire::Op;
use wire::control::CreateTable;

const ACCOUNTS: i64 = 24;

fn row(id: i64, balance: i64) -> Row {
    Row::new(vec![Value::Int(id), Value::Int(balance)])
}

/// Every account has 100.
fn bank(client: &mut Client, policy: &str) -> (Database, Table) {
    let request = CreateTable { partitions: 4, factor: Some(3), ..CreateTable::database("bank", policy) };
    let database = client.create_global_database(&request).expect("made");
    let columns = vec![Column::new("id", ColumnType::Int), Column::new("balance", ColumnType::Int)];
    let schema = Schema::new(columns, &["id"], 1, false).expect("valid");
    let table = client.create_table_in(&database, "accounts", schema).expect("made");
    write_all(client, &database, &table, 100);
    (database, table)
}

fn write_all(client: &mut Client, database: &Database, table: &Table, balance: i64) {
    let write = |_: &mut Client, transaction: &mut Transaction| {
        (0..ACCOUNTS).try_for_each(|id| transaction.put(table, &row(id, balance)))
    };
    client.transact(database, write).expect("committed");
}

/// Commits one transaction after the other, each of which gives every account the same balance.
fn goes_on(client: &mut Client, database: &Database, table: &Table, time: Duration) {
    let begun = Instant::now();
    let mut round = 1_000;
    while begun.elapsed() < time {
        round += 1;
        write_all(client, database, table, round);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What every account has; it must be the same.
fn balance_of_all(client: &mut Client, transaction: &Transaction, table: &Table) -> i64 {
    let rows = client.scan_in(transaction, table, Default::default()).expect("read");
    assert_eq!(rows.len(), ACCOUNTS as usize);
    let balance = |row: &Row| match row.values[1] {
        Value::Int(balance) => balance,
        ref other => panic!("{other:?}"),
    };
    let first = balance(&rows[0]);
    assert!(rows.iter().all(|row| balance(row) == first), "{rows:?}");
    first
}

#[test]
fn pr466_a_transaction_reads_its_snapshot_as_long_as_it_lives_and_behind_a_failover() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, table) = bank(&mut client, "durable");
    let mut other = cluster.client();
    // It has not read anything yet, and its client is left alone.
    let transaction = client.begin(&database).expect("begun");
    goes_on(&mut other, &database, &table, Duration::from_secs(13));
    assert_eq!(balance_of_all(&mut client, &transaction, &table), 100);
    cluster.kill(1);
    goes_on(&mut other, &database, &table, Duration::from_secs(4));
    assert_eq!(balance_of_all(&mut client, &transaction, &table), 100, "who leads now has kept it, too");
}

#[test]
fn pr466_who_only_reads_goes_on_while_what_it_does_not_read_is_recovered() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, table) = bank(&mut client, "async");
    let place = |id: i64| {
        let key = table.key(&[Value::Int(id)]).expect("a key");
        table.partition_of(&key).expect("a partition")
    };
    let leader = |client: &Client, partition: PartitionId| {
        client.cluster_map().partition(partition).expect("known").primary.node
    };
    let elsewhere = |other: &PartitionId| leader(&client, *other) != leader(&client, place(1));
    let lost = (0..ACCOUNTS).map(place).find(elsewhere).expect("no node leads all of them");
    let failed = leader(&client, lost);
    let transaction = client.begin(&database).expect("begun");
    cluster.kill(failed.0);
    let (begun, mut meanwhile) = (Instant::now(), 0);
    while leader(&client, lost) == failed {
        let found = client.get_in(&transaction, &table, &[Value::Int(1)]).expect("read");
        assert_eq!(found, Some(row(1, 100)));
        meanwhile += 1;
        assert!(begun.elapsed() < LONG, "nobody leads {lost}");
    }
    assert!(meanwhile > 1, "it has waited for what it does not read");
    assert_eq!(balance_of_all(&mut client, &transaction, &table), 100, "and behind it all is there");
}

/// What all have secured falls behind what others commit without end, as nobody tells the manager.
#[test]
fn pr467_what_all_have_secured_is_read_at_every_copy_however_far_it_falls_behind() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, table) = bank(&mut client, "durable");
    goes_on(&mut client, &database, &table, Duration::from_secs(2));
    // The recovery manager is a part of it.
    drop(cluster.controller.take());
    goes_on(&mut client, &database, &table, Duration::from_secs(14));
    let stale = client.begin_stale(&database).expect("begun");
    assert!(balance_of_all(&mut client, &stale, &table) > 100, "what was secured before is in it");
    let manager = client.transaction_manager().expect("there");
    let asked = Secured::call_of_primary(manager).within(Micros::from_millis(5_000));
    let thresholds = client.call(asked).expect("answered");
    let own: Vec<PartitionId> = database.partitions().collect();
    let secured = Secured::of(&thresholds, |partition| own.contains(&partition)).expect("thresholds");
    assert_eq!(secured.at(), stale.snapshot(), "nothing was secured meanwhile");
    for (partition, node) in own.iter().flat_map(|partition| [1, 2, 3].map(|node| (*partition, node))) {
        let hold = Op::Hold { at: secured.snapshot(partition) };
        let call = table.call(partition, hold).at_node(NodeId(node)).at_level(ANYWHERE);
        client.call(call).unwrap_or_else(|error| panic!("{partition} at node {node}: {error}"));
    }
}
