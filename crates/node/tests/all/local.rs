//! Clients in a node's own process, as its SQL gateway is one: what they ask goes without a socket, and is
//! answered as over one.

use crate::common::psql::Psql;
use crate::common::raw::{Raw, request};
use crate::common::{Cluster, LONG, create, put_all, row, wait_for};
use bytes::Bytes;
use client::{Client, LaneId, Options, PipeEnd};
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::data::Value;
use types::{EngineKind, Executors, LogKind};
use wire::control::CreateTable;
use wire::{Body, Op, TurnAnswer, TurnHolder, TurnOp};

/// One copy on one node: all partitions are led there.
fn table(engine: EngineKind) -> CreateTable {
    CreateTable { factor: Some(1), partitions: 8, ..create("t", "durable", engine, LogKind::Disk) }
}

/// A client that is a part of this node.
fn near(cluster: &Cluster, number: u32) -> Client {
    let (controllers, local) = (vec![cluster.controller_address()], Some(cluster.node(number).local()));
    let options = Options { controllers, wait: true, timeout: LONG, local, ..Options::default() };
    Client::connect(options).expect("connects")
}

/// Requests that this node has got without a socket.
fn without_socket(cluster: &Cluster, number: u32) -> u64 {
    cluster.node(number).shared_status().metrics.local_requests.load(Ordering::Relaxed)
}

/// Bytes that this node has sent over sockets to anybody.
fn sent(cluster: &Cluster, number: u32) -> u64 {
    cluster.node(number).shared_status().metrics.sent.load(Ordering::Relaxed)
}

/// Waits for the other side to hang up. What it says before is not looked at.
fn hangs_up(end: &mut PipeEnd) {
    let (deadline, mut room) = (Instant::now() + LONG, [0; 512]);
    loop {
        match end.read(&mut room) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(Instant::now() < deadline, "it stays");
        std::thread::yield_now();
    }
}

#[test]
fn pr430_a_gateway_reaches_what_its_node_leads_without_a_socket() {
    let cluster = Cluster::with(1, &[("sql.listen", "127.0.0.1:0")]);
    let mut client = cluster.ready();
    let table = client.create_table(&table(EngineKind::Lsm)).expect("creates");
    put_all(&mut client, &table, 0, 20, "x");
    let mut psql = Psql::connect(&cluster, 1, understudy_node::SQL_DATABASE);
    let deadline = Instant::now() + LONG;
    while let Err(why) = psql.say("SELECT value FROM t WHERE id = 1") {
        assert!(Instant::now() < deadline, "{why}");
        std::thread::yield_now();
    }
    let before = without_socket(&cluster, 1);
    for id in 0..20 {
        let read = psql.say(&format!("SELECT value FROM t WHERE id = {id}")).expect("reads");
        assert_eq!(read, ["x"]);
    }
    let read = without_socket(&cluster, 1);
    assert!(read >= before + 20, "{read} requests, {before} of them before");
    for id in 0..20 {
        psql.say(&format!("UPDATE t SET value = value || 'y' WHERE id = {id}")).expect("writes");
    }
    let written = without_socket(&cluster, 1);
    assert!(written >= read + 40, "{written} requests, {read} of them before: a read and a write each");
    assert_eq!(client.get(&table, &[Value::Int(19)]).expect("reads"), Some(row(19, "xy")));
}

#[test]
fn pr430_who_hangs_up_within_the_process_has_turns_at_no_executor_any_more() {
    let cluster = Cluster::with(1, &[("node.executors", "4")]);
    let mut client = cluster.ready();
    let wanted = CreateTable { partitions: 24, ..table(EngineKind::Memory) };
    let table = client.create_table(&wanted).expect("creates");
    put_all(&mut client, &table, 0, 100, "x");
    let executors = Executors::new(4).expect("so many can be");
    let of = |number: usize| {
        let mut own = table.partitions().filter(|id| executors.of(*id) == number);
        own.next().expect("each has some")
    };
    let ask = |transaction: u64| {
        let who = TurnHolder { gateway: 7, transaction };
        Op::Turn(TurnOp::Ask { who, key: Bytes::from_static(b"a"), wait_ms: 5_000 })
    };
    let is_granted = |body: Body| matches!(body, Body::Turn(TurnAnswer::Granted { .. }));
    let mut holder = near(&cluster, 1);
    for (transaction, number) in [(1, 1), (2, 2)] {
        let answer = holder.call(table.call(of(number), ask(transaction))).expect("asks");
        assert!(is_granted(answer.body));
    }
    assert!(without_socket(&cluster, 1) >= 2);
    let mut next = Raw::connect(&cluster);
    next.send(&[request(&table, of(2), 3, ask(3))]);
    drop(holder);
    assert!(is_granted(next.reply().body), "a client that is gone is waited for");
}

#[test]
fn pr430_limits_are_those_of_sockets() {
    let cluster = Cluster::with(1, &[("node.max_connections", "8")]);
    drop(cluster.ready());
    let node = cluster.node(1).local();
    let bad = || cluster.node(1).shared_status().metrics.bad_connections.load(Ordering::Relaxed);
    let (before, mut garbage) = (bad(), node.connect().expect("connects"));
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("fits");
    hangs_up(&mut garbage);
    assert!(bad() > before, "for what came, and not because no greeting did");
    let mut ends: Vec<PipeEnd> = (0..12).map(|_| node.connect().expect("connects")).collect();
    hangs_up(ends.last_mut().expect("there are too many"));
    let first = ends[0].read(&mut [0; 8]);
    assert!(first.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "who fits is let in");
}

#[test]
fn pr431_a_node_that_comes_back_is_another_one_and_reached_by_its_socket() {
    let mut cluster = Cluster::with(1, &[]);
    let mut client = cluster.ready();
    let table = client.create_table(&table(EngineKind::Lsm)).expect("creates");
    let mut near = near(&cluster, 1);
    put_all(&mut near, &table, 0, 200, "before");
    assert!(without_socket(&cluster, 1) >= 200);
    for id in 200..400 {
        near.submit(LaneId(id), table.put(&row(i64::from(id), "under way")).expect("a call"));
    }
    // On their way, some of them done, when the node ends.
    let mut done = near.poll(Duration::ZERO).expect("polls").len();
    let gone = cluster.node(1).local();
    cluster.kill(1);
    assert!(gone.connect().is_err(), "nobody listens any more");
    done += near.poll(Duration::from_millis(20)).expect("polls").len();
    cluster.start_node(1);
    let deadline = Instant::now() + LONG;
    while done < 200 {
        for completed in near.poll(Duration::from_millis(50)).expect("polls") {
            assert!(completed.outcome.is_ok(), "{completed:?}");
            done += 1;
        }
        assert!(Instant::now() < deadline, "{done} of 200 are done");
    }
    assert_eq!(without_socket(&cluster, 1), 0);
    wait_for(&mut client, "the node", |status| crate::common::leads(status, 1) > 0);
    assert_eq!(client.count(&table).expect("counts"), 400, "each is done once");
}

#[test]
fn pr433_rows_larger_than_what_may_wait_pass() {
    let cluster = Cluster::with(1, &[]);
    let mut client = cluster.ready();
    let table = client.create_table(&table(EngineKind::Memory)).expect("creates");
    let mut near = near(&cluster, 1);
    let (value, before) = ("x".repeat(1_000_000), sent(&cluster, 1));
    put_all(&mut near, &table, 0, 8, &value);
    for id in 0..8 {
        assert_eq!(near.get(&table, &[Value::Int(id)]).expect("reads"), Some(row(id, &value)));
    }
    assert!(sent(&cluster, 1) - before < 8_000_000, "what stays in the process goes over no network");
}
