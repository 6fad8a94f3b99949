//! Calls that are shipped, on whole clusters: replicas make them.

use crate::common::talk::{Talk, service};
use crate::common::{Cluster, in_sync, wait_for};
use client::{Client, Database, LaneId, Procedure, Table};
use types::data::kind::{Language, Procedure as Definition};
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::{NodeId, Ship};
use wire::control::CreateTable;
use wire::{Body, Op, ReadLevel};

const TRANSFER: &str = include_str!("../../../../docs/examples/transfer.wat");

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

/// Two hundred clients call, and the primary is gone before it has come to most of the calls: what it had
/// received is carried out by the next one, each call once.
#[test]
fn calls_received_and_not_executed_before_a_crash_are_carried_out() {
    const CALLS: u32 = 200;
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let create = CreateTable { ship: Ship::Calls, ..CreateTable::database("bank", "sync") };
    let database = client.create_database(&create).expect("creates");
    let schema = Schema::new(vec![int("id"), int("n")], &["id"], 1, false).expect("valid");
    client.create_table_in(&database, "counters", schema).expect("creates");
    let made = |language, source: &str, results: &[Column]| Definition {
        language,
        source: source.into(),
        results: results.to_vec(),
        read_only: false,
        checked: false,
    };
    let count = made(Language::Builtin, "count", &[int("n")]);
    let count = client.create_procedure(&database, "count", &["id", "n"].map(int), count).expect("made");
    let spin = r#"(module (func (export "run") (loop $on (br $on))))"#;
    let spin = client.create_procedure(&database, "spin", &[], made(Language::Wasm, spin, &[]));
    let spin = spin.expect("made");
    let status = wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let record = status.partitions.iter().find(|record| record.id == database.partition());
    let leader = record.expect("known").primary.node.0;
    // Sessions are open before anything waits.
    let called = |client: &mut Client, lanes: std::ops::Range<u32>, by: i64| {
        for lane in lanes {
            client.submit(LaneId(lane), count.call(ints(&[1, by])).expect("a call"));
        }
    };
    let finished = |client: &mut Client, mut open: u32| {
        let deadline = std::time::Instant::now() + crate::common::LONG;
        while open > 0 {
            assert!(std::time::Instant::now() < deadline, "{open} calls have not ended");
            for completed in client.poll(std::time::Duration::from_millis(50)).expect("polls") {
                // Only the calls that never end may fail.
                assert!(completed.outcome.is_ok() || completed.lane.0 >= CALLS, "{:?}", completed.outcome);
                open -= 1;
            }
        }
    };
    called(&mut client, 0..CALLS + 3, 0);
    finished(&mut client, CALLS + 3);
    // These keep the partition busy for some 30 ms, and the others wait behind them, received.
    for lane in CALLS..CALLS + 3 {
        client.submit(LaneId(lane), spin.call(Vec::new()).expect("a call"));
    }
    called(&mut client, 0..CALLS, 1);
    // Some may have ended before the primary does.
    let early = client.poll(std::time::Duration::from_millis(5)).expect("sends").len();
    cluster.kill(leader);
    finished(&mut client, CALLS + 3 - u32::try_from(early).expect("few"));
    let after = client.call_procedure(&count, ints(&[1, 0])).expect("it is done");
    assert_eq!(after, [ints(&[i64::from(CALLS)])], "each call was made, and once");
}
