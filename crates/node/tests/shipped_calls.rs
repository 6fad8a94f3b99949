//! Calls that are shipped, on whole clusters: replicas make them.

mod common;

use client::{Client, Database, Procedure, Table};
use common::talk::{Talk, service};
use common::{Cluster, in_sync, wait_for};
use types::data::kind::{Language, Procedure as Definition};
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::{NodeId, Ship};
use wire::control::CreateTable;
use wire::{Body, Op, ReadLevel};

const TRANSFER: &str = include_str!("../../../docs/examples/transfer.wat");

fn int(name: &str) -> Column {
    Column::new(name, ColumnType::Int)
}

fn ints(numbers: &[i64]) -> Vec<Value> {
    numbers.iter().copied().map(Value::Int).collect()
}

/// Twenty accounts, and `transfer`, in a database that ships calls.
fn bank(client: &mut Client) -> (Database, Table, Procedure) {
    let create = CreateTable { ship: Ship::Calls, ..CreateTable::database("bank", "sync") };
    let database = client.create_database(&create).expect("creates");
    let schema = Schema::new(vec![int("id"), int("balance")], &["id"], 1, false).expect("valid");
    let accounts = client.create_table_in(&database, "accounts", schema).expect("creates");
    for id in 1..=20 {
        let row = Row::new(ints(&[id, 100]));
        client.call(accounts.put(&row).expect("a row")).expect("writes");
    }
    let (language, results) = (Language::Wasm, vec![int("left")]);
    let definition =
        Definition { language, source: TRANSFER.into(), results, read_only: false, checked: false };
    let parameters = ["source", "target", "amount"].map(int);
    let transfer = client.create_procedure(&database, "transfer", &parameters, definition).expect("made");
    (database, accounts, transfer)
}

/// Replicas have the same rows, also one that was away, and one that leads next.
#[test]
fn pr240_replicas_that_are_sent_calls_have_the_same_rows() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, accounts, transfer) = bank(&mut client);
    let status = wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let record = status.partitions.iter().find(|record| record.id == database.partition());
    let leader = record.expect("known").primary.node.0;
    let call_some = |client: &mut Client| {
        for at in 0..60 {
            let (source, target) = (1 + at % 20, 1 + (at * 7 + 3) % 20);
            client.call_procedure(&transfer, ints(&[source, target, 1])).expect("it is done");
        }
    };
    let same = |client: &mut Client, nodes: &[u32]| {
        let there = client.digest(&accounts).expect("reads")[0];
        let level = ReadLevel::Any { max_lag_ms: 10_000, min_lsn: there.lsn };
        for node in nodes {
            let read = client.replica_read(&accounts, NodeId(*node), there.partition, Op::Digest, level);
            assert_eq!(read.expect("it has it").body, Body::Number(there.digest), "node {node}");
        }
    };
    call_some(&mut client);
    same(&mut client, &[1, 2, 3]);
    let backup = 1 + leader % 3;
    cluster.kill(backup);
    call_some(&mut client);
    cluster.start_node(backup);
    wait_for(&mut client, "all copies again", |status| in_sync(status, 3));
    call_some(&mut client);
    same(&mut client, &[1, 2, 3]);
    cluster.kill(leader);
    call_some(&mut client);
    let others: Vec<u32> = (1..=3).filter(|node| *node != leader).collect();
    same(&mut client, &others);
}

#[test]
fn a_database_says_in_sql_what_it_ships() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let service = service(&cluster);
    let mut main = Talk::new(&service);
    main.good("CREATE DATABASE bank WITH (ship = calls, policy = sync)");
    main.good("CREATE DATABASE shop WITH (ship = effects)");
    assert!(main.say("CREATE DATABASE other WITH (ship = rows)").starts_with("22023"));
    let cold = main.say("CREATE DATABASE other WITH (ship = calls, standby = cold)");
    assert!(cold.contains("does not go with cold standbys"), "{cold}");
    for (name, ship) in [("bank", Ship::Calls), ("shop", Ship::Effects)] {
        assert_eq!(client.database(name).expect("it is there").record().ship, ship);
    }
}
