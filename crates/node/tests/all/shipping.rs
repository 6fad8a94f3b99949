//! A node that missed more than the logs still have is sent files, and only those that it lacks.

use crate::common::{Cluster, LONG, create, in_sync, put_all, row, wait_for};
use client::{Client, Table};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::data::Value;
use types::policy::Standby;
use types::{EngineKind, LogKind, Lsn, NodeId, PartitionId};
use wire::control::{
    AdminCommand, AlterTable, ClusterStatus, Failback, FailbackStage, RecordText, ReplicaStatus, Role, Way,
};
use wire::{Op, ReadLevel};

fn table(client: &mut Client) -> Table {
    let mut wanted = create("t", "durable", EngineKind::Lsm, LogKind::Disk);
    (wanted.partitions, wanted.available, wanted.factor) = (1, true, Some(3));
    let deadline = Instant::now() + LONG;
    loop {
        match client.create_table(&wanted) {
            Ok(table) => return table,
            // On a busy machine a node may be taken for dead for a moment.
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

/// The user table's partition; system tables have others.
fn partition(table: &Table) -> PartitionId {
    table.partitions().next().expect("it has one")
}

/// Who leads it, and what it said last. The controller remembers what the dead have said.
fn primary(status: &ClusterStatus, id: PartitionId) -> Option<(u32, &ReplicaStatus)> {
    let record = status.partitions.iter().find(|record| record.id == id)?;
    let (node, _) = status.nodes.iter().find(|(node, _)| node.member == record.primary)?;
    let replica = node.replicas.iter().find(|replica| replica.partition == id)?;
    (replica.role == Role::Primary).then_some((record.primary.node.0, replica))
}

/// Writes these rows, and some more if need be, until the primary's files have more than there was before.
fn write_and_flush(client: &mut Client, table: &Table, from: i64, to: i64) {
    let id = partition(table);
    let long = "x".repeat(1000);
    let end = client.digest(table).expect("digests")[0].lsn;
    put_all(client, table, from, to, &long);
    let mut more = to;
    let deadline = Instant::now() + LONG;
    loop {
        let text = client.admin(AdminCommand::Status).expect("the controller answers");
        let status: ClusterStatus = serde_json::from_str(&text).expect("a status");
        if primary(&status, id).is_some_and(|(_, replica)| replica.marks.persisted > end) {
            return;
        }
        assert!(Instant::now() < deadline, "nothing is flushed: {status:#?}");
        // The log grows past its budget.
        put_all(client, table, more, more + 2, &long);
        more += 2;
        client.poll(Duration::from_millis(50)).expect("polls");
    }
}

fn received(cluster: &Cluster, node: u32) -> u64 {
    cluster.node(node).shared_status().metrics.ship_received.load(Ordering::Relaxed)
}

/// Every copy says the same of itself.
fn compare(client: &mut Client, table: &Table) {
    let id = partition(table);
    wait_for(client, "all copies", |status| in_sync(status, 3));
    let expected = client.digest(table).expect("digests")[0];
    for node in 1..=3 {
        let read = ReadLevel::Any { max_lag_ms: 60_000, min_lsn: expected.lsn };
        let deadline = Instant::now() + LONG;
        let digest = loop {
            match client.replica_read(table, NodeId(node), id, Op::Digest, read) {
                Ok(answer) => break answer,
                Err(error) => assert!(Instant::now() < deadline, "node {node}: {error}"),
            }
        };
        assert_eq!(digest.body, wire::Body::Number(expected.digest), "node {node}");
    }
}

#[test]
fn a_node_that_comes_back_is_sent_the_files_that_it_lacks() {
    // Patient: other primaries have other files, and a busy machine makes some. But who is silent leaves
    // before who is slow: that one would be a member still, for whom the log is kept.
    let settings =
        [("log.checkpoint_bytes", "65536"), ("log.segment_bytes", "1048576"), ("timing.suspect_ms", "1000")];
    let mut cluster = Cluster::with(3, &settings);
    let mut client = cluster.ready();
    let table = table(&mut client);
    put_all(&mut client, &table, 0, 1500, &"y".repeat(1000));
    wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let id = partition(&table);
    let status = wait_for(&mut client, "a primary", |status| primary(status, id).is_some());
    let victim = if primary(&status, id).expect("waited for").0 == 3 { 2 } else { 3 };
    let mut rounds = Vec::new();
    for round in 0..5 {
        cluster.kill(victim);
        write_and_flush(&mut client, &table, 1500 + round * 100, 1570 + round * 100);
        cluster.start_node(victim);
        let mut told = Failback::default();
        wait_for(&mut client, "the return of the node", |status| {
            let back = status.nodes.iter().filter(|(node, _)| node.member.node.0 == victim);
            let ours = back.flat_map(|(node, _)| &node.replicas).find(|replica| replica.partition == id);
            told = ours.map(|replica| replica.failback).unwrap_or_default();
            in_sync(status, 3) && told.stage == FailbackStage::InSync
        });
        assert!(told.way == Way::Files && !told.full && told.set_bytes > 1_500_000, "{told:?}");
        assert!(told.file_bytes > 0 && told.took_us > 0, "{told:?}");
        rounds.push(received(&cluster, victim));
    }
    println!("bytes of files received in each round: {rounds:?}");
    let whole = *rounds.iter().max().expect("there were rounds");
    assert!(whole > 1_500_000, "the first time it has no file of the others: {rounds:?}");
    // A merge may have made one of the rounds as long as the first.
    assert!(rounds[1..].iter().any(|bytes| (1..whole / 2).contains(bytes)), "{rounds:?}");
    assert_eq!(client.get(&table, &[Value::Int(7)]).expect("reads"), Some(row(7, &"y".repeat(1000))));
    compare(&mut client, &table);
}

#[test]
fn shipping_goes_on_whoever_dies_on_the_way() {
    let settings = [
        ("log.checkpoint_bytes", "65536"),
        ("log.segment_bytes", "1048576"),
        ("timing.suspect_ms", "1000"),
        ("ship.bytes_per_second", "600000"),
    ];
    let mut cluster = Cluster::with(3, &settings);
    let mut client = cluster.ready();
    let table = table(&mut client);
    put_all(&mut client, &table, 0, 1200, &"y".repeat(1000));
    wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let id = partition(&table);
    let status = wait_for(&mut client, "a primary", |status| primary(status, id).is_some());
    let victim = if primary(&status, id).expect("waited for").0 == 3 { 2 } else { 3 };
    cluster.kill(victim);
    write_and_flush(&mut client, &table, 1200, 1300);
    // The receiver dies when it has a part, and goes on with the rest.
    cluster.start_node(victim);
    wait_for(&mut client, "some files", |_| received(&cluster, victim) > 300_000);
    let first = received(&cluster, victim);
    cluster.kill(victim);
    cluster.start_node(victim);
    let mut all = 0;
    wait_for(&mut client, "some more", |status| {
        let shipping = primary(status, id).and_then(|(_, replica)| replica.shipping.first().copied());
        all = shipping.map_or(all, |(_, _, all)| all);
        received(&cluster, victim) > 100_000
    });
    assert!(all == 0 || received(&cluster, victim) + first <= all + 400_000, "nothing comes twice");
    // The sender dies: another one has other files, or the same, and goes on.
    let status = wait_for(&mut client, "a primary", |status| primary(status, id).is_some());
    let sender = primary(&status, id).expect("waited for").0;
    cluster.kill(sender);
    wait_for(&mut client, "another primary", |status| {
        primary(status, id).is_some_and(|(node, _)| node != sender)
    });
    cluster.start_node(sender);
    wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    put_all(&mut client, &table, 1300, 1310, "after");
    assert!(client.count(&table).expect("counts") >= 1310);
    assert!(client.digest(&table).expect("digests")[0].lsn > Lsn::ZERO);
    compare(&mut client, &table);
}

#[test]
fn a_cold_standby_replays_what_is_above_its_files_when_it_is_promoted() {
    let settings = [("log.checkpoint_bytes", "262144"), ("timing.suspect_ms", "1000")];
    let mut cluster = Cluster::with(3, &settings);
    let mut client = cluster.ready();
    let mut wanted = create("t", "durable", EngineKind::Lsm, LogKind::Disk);
    (wanted.partitions, wanted.factor, wanted.standby) = (1, Some(3), Some(Standby::Cold));
    let table = client.create_table(&wanted).expect("creates");
    let id = partition(&table);
    write_and_flush(&mut client, &table, 0, 1500);
    // Few rows at a time until a flush was among them: so little is above the files then that what
    // follows does not make another one due.
    let deadline = Instant::now() + LONG;
    let mut written = 10_000;
    loop {
        let status = wait_for(&mut client, "the same files everywhere", |status| {
            let replicas = status.nodes.iter().flat_map(|(node, _)| &node.replicas);
            let ours: Vec<&ReplicaStatus> = replicas.filter(|replica| replica.partition == id).collect();
            let same = ours.iter().all(|replica| replica.marks.persisted == ours[0].marks.persisted);
            ours.len() == 3 && same && ours.iter().all(|replica| replica.shipping.is_empty())
        });
        let (_, replica) = primary(&status, id).expect("it serves");
        if replica.end.lsn.0 - replica.marks.persisted.0 < 150 {
            break;
        }
        assert!(Instant::now() < deadline, "flushes leave too much in the log: {status:#?}");
        put_all(&mut client, &table, written, written + 20, &"x".repeat(1000));
        written += 20;
    }
    let status = wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let old = primary(&status, id).expect("it serves").0;
    // Something above the files, which backups have in the log alone: it is far less than what a flush waits
    // for.
    put_all(&mut client, &table, 50_000, 50_040, "above");
    let end = client.digest(&table).expect("digests")[0].lsn;
    let status = wait_for(&mut client, "what is above the files", |status| {
        let copies = status.nodes.iter().flat_map(|(node, _)| &node.replicas);
        let ours = copies.filter(|copy| copy.partition == id && copy.end.lsn >= end);
        in_sync(status, 3) && ours.count() == 3
    });
    let mut copies = status.nodes.iter().flat_map(|(node, _)| &node.replicas);
    assert!(copies.all(|copy| copy.partition != id || copy.marks.persisted < copy.end.lsn), "{status:#?}");
    let before = client.digest(&table).expect("digests")[0];
    cluster.kill(old);
    wait_for(&mut client, "another primary", |status| {
        primary(status, id).is_some_and(|(node, _)| node != old)
    });
    assert_eq!(client.get(&table, &[Value::Int(50_007)]).expect("reads"), Some(row(50_007, "above")));
    // The marker of the new term changes no row.
    assert_eq!(client.digest(&table).expect("digests")[0].digest, before.digest);
    cluster.start_node(old);
    wait_for(&mut client, "the return of the node", |status| in_sync(status, 3));
    // Made hot, they catch up with what they have.
    let hot = AlterTable { name: "t".into(), standby: Some(Standby::Hot), ..AlterTable::default() };
    client.admin(AdminCommand::AlterTable(RecordText::new(&hot))).expect("alters");
    compare(&mut client, &table);
}

#[test]
fn a_failover_target_has_the_primary_flush_before_the_log_takes_too_long() {
    let cluster = Cluster::with(3, &[("timing.suspect_ms", "1000")]);
    let mut client = cluster.ready();
    let cold = |name: &str, target| {
        let mut wanted = create(name, "durable", EngineKind::Lsm, LogKind::Disk);
        (wanted.partitions, wanted.factor, wanted.standby) = (1, Some(3), Some(Standby::Cold));
        wanted.failover_target_ms = target;
        wanted
    };
    let refused = client.create_table(&cold("t", Some(5))).expect_err("nobody can flush that often");
    assert!(refused.to_string().contains("a failover target of 5 ms is out of range"), "{refused}");
    let bounded = client.create_table(&cold("bounded", Some(20))).expect("creates");
    let free = client.create_table(&cold("free", None)).expect("creates");
    let (id, other) = (partition(&bounded), partition(&free));
    let deadline = Instant::now() + LONG;
    // The budget of the log is far away: what is flushed is flushed for the target.
    let mut written = 0;
    let status = loop {
        for table in [&bounded, &free] {
            put_all(&mut client, table, written, written + 1000, "a row");
        }
        written += 1000;
        let status = wait_for(&mut client, "a primary", |status| primary(status, id).is_some());
        if primary(&status, id).is_some_and(|(_, replica)| replica.marks.persisted > Lsn::ZERO) {
            break status;
        }
        assert!(Instant::now() < deadline, "nothing is flushed after {written} rows: {status:#?}");
    };
    let unbounded = primary(&status, other).expect("it serves").1;
    assert_eq!(unbounded.marks.persisted, Lsn::ZERO, "the table without a target is left alone");
    assert!(unbounded.replay_ns > 0, "its engine measures all the same");
    // Those who would take over get the files, and the estimate falls below the target.
    wait_for(&mut client, "the files at the backups", |status| {
        let Some((_, replica)) = primary(status, id) else { return false };
        let there = replica.members.iter().map(|(_, marks, ..)| marks.persisted).min();
        there.is_some_and(|there| (replica.end.lsn.0 - there.0) * replica.replay_ns < 20_000_000)
    });
}
