//! Whole clusters: they serve, lose nodes, and lose nothing that was acknowledged.

mod common;

use client::Client;
use common::{Cluster, LONG, create, in_sync, leads, put_all, row, wait_for};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::data::Value;
use types::{EngineKind, Incarnation, LogKind, Member, NodeId};
use understudy_node::metrics::Outcome;
use understudy_node::net::Cut;
use understudy_node::tails;
use wire::control::{AdminCommand, ClusterStatus, Role};

#[test]
fn three_nodes_serve_a_table_and_survive_one_of_them() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let table =
        client.create_table(&create("t", "durable", EngineKind::Lsm, LogKind::Disk)).expect("creates");
    // On a busy machine a copy may be put out for a moment: how many secured a write is told by its answer.
    let deadline = Instant::now() + LONG;
    while client.put(&table, &row(1, "one")).expect("writes").copies < 3 {
        let status = wait_for(&mut client, "all copies", |status| in_sync(status, 3));
        assert!(Instant::now() < deadline, "no write is secured by three copies: {:#?}", status.partitions);
    }
    put_all(&mut client, &table, 0, 500, "before");
    let status = wait_for(&mut client, "a primary on each", |status| (1..=3).all(|n| leads(status, n) > 0));
    let victim = status.partitions[0].primary.node.0;
    cluster.kill(victim);
    put_all(&mut client, &table, 250, 750, "during");
    assert_eq!(client.count(&table).expect("counts"), 750);
    assert_eq!(client.get(&table, &[Value::Int(3)]).expect("reads"), Some(row(3, "before")));
    assert_eq!(client.get(&table, &[Value::Int(300)]).expect("reads"), Some(row(300, "during")));
    cluster.start_node(victim);
    wait_for(&mut client, "the return of the node", |status| in_sync(status, 3));
    put_all(&mut client, &table, 0, 10, "after");
    assert_eq!(client.count(&table).expect("counts"), 750);
}

#[test]
fn a_gentle_end_hands_over_first_and_leaves_a_mark() {
    // Patient, so that nobody is suspected because other tests keep the machine busy.
    let mut cluster = Cluster::with(3, &[("timing.suspect_ms", "3000")]);
    let mut client = cluster.ready();
    let table =
        client.create_table(&create("t", "durable", EngineKind::Memory, LogKind::Disk)).expect("creates");
    put_all(&mut client, &table, 0, 100, "x");
    cluster.stop(1);
    let status = wait_for(&mut client, "primaries elsewhere", |status| {
        status.partitions.iter().all(|record| record.primary.node != NodeId(1))
    });
    assert!(
        status.partitions.iter().all(|record| record.failover.is_none()),
        "nobody had to fail over: {status:#?}"
    );
    cluster.start_node(1);
    wait_for(&mut client, "the return of the node in its second life", |status| {
        let second = |member: &Member| member.node == NodeId(1) && member.incarnation == Incarnation(2);
        in_sync(status, 3) && status.partitions.iter().all(|record| record.in_sync.iter().any(second))
    });
    assert!(client.picture().node(NodeId(1)).expect("known").clean_start);
    assert_eq!(client.count(&table).expect("counts"), 100);
}

#[test]
fn a_cut_primary_is_replaced_and_comes_back() {
    let cluster = Cluster::with(3, &[("node.harm", "true")]);
    let mut client = cluster.ready();
    let table =
        client.create_table(&create("t", "durable", EngineKind::Memory, LogKind::Disk)).expect("creates");
    put_all(&mut client, &table, 0, 100, "before");
    let harm = cluster.node(1).board().harm.as_ref().expect("allowed");
    harm.set(Cut::parse("2,3,controllers,clients").expect("a cut"));
    put_all(&mut client, &table, 50, 150, "during");
    assert_eq!(client.count(&table).expect("counts"), 150);
    wait_for(&mut client, "two copies", |status| in_sync(status, 2));
    harm.set(Cut::default());
    wait_for(&mut client, "the return of the node", |status| in_sync(status, 3));
    assert_eq!(client.get(&table, &[Value::Int(60)]).expect("reads"), Some(row(60, "during")));
}

#[test]
fn r9_what_only_a_cut_primary_had_is_set_aside_and_told() {
    // A long lease, so that the primary still acknowledges when this test gets round to writing.
    let lease = [("timing.lease_ms", "3000"), ("timing.grace_ms", "3500")];
    let harm = [("node.harm", "true"), ("controller.failover_wait_ms", "200")];
    let cluster = Cluster::with(3, &[lease, harm].concat());
    let mut client = cluster.ready();
    let table =
        client.create_table(&create("t", "async", EngineKind::Memory, LogKind::Disk)).expect("creates");
    put_all(&mut client, &table, 0, 10, "kept");
    let status = wait_for(&mut client, "primaries", |status| (1..=3).all(|node| leads(status, node) > 0));
    let lost = status.partitions.iter().find(|record| record.primary.node == NodeId(1)).expect("it leads").id;
    let key = (100..)
        .find(|id| table.partition_of(&table.key(&[Value::Int(*id)]).expect("a key")).ok() == Some(lost));
    let key = key.expect("numbers do not end");
    client.put(&table, &row(key, "kept")).expect("a session is open");
    let harm = cluster.node(1).board().harm.as_ref().expect("allowed");
    harm.set(Cut::parse("2,3,controllers").expect("a cut"));
    // Its lease has not run out yet: this is acknowledged, and nobody else has it.
    client.put(&table, &row(key, "lost")).expect("acknowledged by the primary alone");
    // A new primary that does not serve yet would still ask the old one for it (PR-19).
    wait_for(&mut client, "another primary that serves", |status| {
        let mut others = status.nodes.iter().filter(|(node, _)| node.member.node != NodeId(1));
        others.any(|(node, _)| {
            node.replicas.iter().any(|replica| replica.partition == lost && replica.role == Role::Primary)
        })
    });
    harm.set(Cut::default());
    wait_for(&mut client, "the return of the node", |status| in_sync(status, 3));
    assert_eq!(client.get(&table, &[Value::Int(key)]).expect("reads"), Some(row(key, "kept")));
    let tails = tails::list(&cluster.node_dir(1)).expect("lists");
    let tail = tails.iter().find(|tail| tail.partition == lost).expect("it was set aside");
    assert_eq!((tail.commits, tail.sessions), (1, 1));
    let (_, entries) = tails::read(&cluster.node_dir(1), &tail.file).expect("reads");
    assert!(entries.iter().any(|entry| entry.payload().windows(4).any(|bytes| bytes == b"lost")));
    let told = client.admin(AdminCommand::Failovers).expect("answers");
    assert!(told.contains(&tail.file), "{told}");
}

#[test]
fn f09_durable_survives_the_power_failure_of_everything() {
    let mut cluster = Cluster::with(3, &[("node.volatile", "true")]);
    let mut client = cluster.ready();
    let table =
        client.create_table(&create("t", "durable", EngineKind::Lsm, LogKind::Disk)).expect("creates");
    put_all(&mut client, &table, 0, 300, "x");
    drop(client);
    (1..=3).for_each(|node| cluster.kill(node));
    drop(cluster.controller.take());
    cluster.start_controller();
    (1..=3).for_each(|node| cluster.start_node(node));
    let mut client = cluster.client();
    let table = client.wait_table("t").expect("it is there");
    assert_eq!(client.count(&table).expect("counts"), 300);
    wait_for(&mut client, "all copies", |status| in_sync(status, 3));
}

#[test]
fn a_main_memory_table_lives_as_long_as_one_of_its_copies() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let table =
        client.create_table(&create("m", "semi", EngineKind::Memory, LogKind::Memory)).expect("creates");
    for node in [1, 2, 3] {
        put_all(&mut client, &table, 0, 50, &format!("before {node} was killed"));
        cluster.kill(node);
        put_all(&mut client, &table, 25, 75, &format!("while {node} was away"));
        cluster.start_node(node);
        wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    }
    assert_eq!(client.count(&table).expect("counts"), 75);
    assert_eq!(client.get(&table, &[Value::Int(70)]).expect("reads"), Some(row(70, "while 3 was away")));
}

#[test]
fn a_dropped_table_leaves_nothing_behind_even_on_a_node_that_was_away() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let table =
        client.create_table(&create("t", "durable", EngineKind::Lsm, LogKind::Disk)).expect("creates");
    put_all(&mut client, &table, 0, 10, "x");
    let here = |cluster: &Cluster, node| {
        std::fs::read_dir(cluster.node_dir(node).join("partitions")).expect("a directory").count()
    };
    assert_eq!((1..=3).map(|node| here(&cluster, node)).sum::<usize>(), 12);
    cluster.kill(3);
    client.admin(AdminCommand::DropTable("t".into())).expect("drops");
    cluster.start_node(3);
    wait_for(&mut client, "the end of the replicas", |status| {
        let empty = status.nodes.iter().all(|(node, _)| node.replicas.is_empty());
        empty && (1..=3).all(|node| here(&cluster, node) == 0)
    });
    let again =
        client.create_table(&create("t", "durable", EngineKind::Lsm, LogKind::Disk)).expect("creates");
    assert_eq!(client.count(&again).expect("counts"), 0);
}

#[test]
fn long_logs_are_cut_after_checkpoints_and_restarts_replay_little() {
    let settings = [("log.checkpoint_bytes", "100000"), ("log.segment_bytes", "1048576")];
    let mut cluster = Cluster::with(3, &settings);
    let mut client = cluster.ready();
    let table =
        client.create_table(&create("t", "durable", EngineKind::Lsm, LogKind::Disk)).expect("creates");
    let long = "x".repeat(1000);
    for from in 0..8 {
        put_all(&mut client, &table, from * 500, from * 500 + 500, &long);
    }
    wait_for(&mut client, "short logs everywhere", |status| {
        status.nodes.iter().all(|(node, _)| node.log_bytes < 3 << 20)
    });
    assert!(cluster.node(2).board().metrics.checkpoints.load(Ordering::Relaxed) > 0);
    cluster.kill(2);
    cluster.start_node(2);
    wait_for(&mut client, "the return of the node", |status| in_sync(status, 3));
    assert_eq!(client.count(&table).expect("counts"), 4000);
}

#[test]
fn a_quiet_table_does_not_keep_the_log_of_a_busy_one() {
    let settings = [("log.checkpoint_bytes", "200000"), ("log.segment_bytes", "1048576")];
    let cluster = Cluster::with(3, &settings);
    let mut client = cluster.ready();
    let quiet =
        client.create_table(&create("quiet", "durable", EngineKind::Memory, LogKind::Disk)).expect("creates");
    // More than a replica leaves in its log anyway, and far less than its own budget.
    put_all(&mut client, &quiet, 0, 1600, "x");
    let busy =
        client.create_table(&create("busy", "durable", EngineKind::Lsm, LogKind::Disk)).expect("creates");
    let long = "x".repeat(1000);
    for from in 0..8 {
        put_all(&mut client, &busy, from * 500, from * 500 + 500, &long);
    }
    wait_for(&mut client, "short logs everywhere", |status| {
        status.nodes.iter().all(|(node, _)| node.log_bytes < 3 << 20)
    });
    assert_eq!(client.count(&quiet).expect("counts"), 1600);
    assert_eq!(client.count(&busy).expect("counts"), 4000);
}

#[test]
fn f20_a_full_disk_refuses_writes_and_serves_reads() {
    let settings = [("log.max_bytes", "3145728"), ("log.segment_bytes", "1048576")];
    let cluster = Cluster::with(1, &settings);
    let mut client = cluster.ready();
    let mut wanted = create("t", "durable", EngineKind::Memory, LogKind::Disk);
    wanted.factor = Some(1);
    let table = client.create_table(&wanted).expect("creates");
    let long = "x".repeat(200_000);
    client.put(&table, &row(0, &long)).expect("there is room");
    // Several times what the log can ever take: no checkpoint can be in time.
    let calls: Vec<_> = (1..60).map(|id| table.put(&row(id, &long)).expect("encodes")).collect();
    let lane = client.new_lane();
    client.set_window(lane, calls.len());
    let mut tickets: Vec<_> = calls.into_iter().map(|call| client.submit(lane, call)).collect();
    let (mut watcher, mut ends) = (cluster.client(), Vec::new());
    let mut go_on_until = |client: &mut Client, wanted: &dyn Fn(&ClusterStatus) -> bool| {
        wait_for(&mut watcher, "the node", |status| {
            ends.extend(client.poll(Duration::from_millis(5)).expect("polls"));
            wanted(status)
        });
    };
    let full = |status: &ClusterStatus| status.nodes.iter().all(|(node, _)| node.full);
    go_on_until(&mut client, &full);
    let turned_away = || cluster.node(1).board().metrics.answers(Outcome::NotDone);
    let before = turned_away();
    let late = client.new_lane();
    tickets.push(client.submit(late, table.put(&row(60, "short")).expect("encodes")));
    go_on_until(&mut client, &|_| turned_away() > before);
    let mut reader = cluster.client();
    assert_eq!(reader.get(&table, &[Value::Int(0)]).expect("reads"), Some(row(0, &long)));
    // Checkpoints make room for what waits, piece by piece, and then for everybody.
    go_on_until(&mut client, &|status| !full(status));
    let mut ends: BTreeMap<_, _> = ends.into_iter().map(|end| (end.ticket, end.outcome)).collect();
    for (id, ticket) in (1..).zip(tickets) {
        let end = match ends.remove(&ticket) {
            Some(end) => end,
            None => client.wait_for(ticket).expect("ends").outcome,
        };
        match end.into_result() {
            Ok(_) => assert!(client.get(&table, &[Value::Int(id)]).expect("reads").is_some(), "{id} is lost"),
            Err(error) => assert!(error.to_string().contains("full"), "{id}: {error}"),
        }
    }
    client.put(&table, &row(100, "short")).expect("writes go on");
}
