//! Whole clusters: they serve, lose nodes, and lose nothing that was acknowledged.

use crate::common::{Cluster, LONG, create, in_sync, leads, put_all, row, wait_for};
use client::Client;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use types::data::Value;
use types::{EngineKind, Incarnation, LogKind, Member, NodeId};
use understudy_node::metrics::Outcome;
use understudy_node::net::Cut;
use understudy_node::tails;
use wire::control::{AdminCommand, ClusterStatus};

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
    assert!(client.cluster_map().node(NodeId(1)).expect("known").clean_start);
    assert_eq!(client.count(&table).expect("counts"), 100);
}

#[test]
fn a_cut_primary_is_replaced_and_comes_back() {
    let cluster = Cluster::with(3, &[("node.harm", "true")]);
    let mut client = cluster.ready();
    let table =
        client.create_table(&create("t", "durable", EngineKind::Memory, LogKind::Disk)).expect("creates");
    put_all(&mut client, &table, 0, 100, "before");
    let faults = cluster.node(1).shared_status().faults.as_ref().expect("allowed");
    faults.set(Cut::parse("2,3,controllers,clients").expect("a cut"));
    put_all(&mut client, &table, 50, 150, "during");
    assert_eq!(client.count(&table).expect("counts"), 150);
    wait_for(&mut client, "two copies", |status| in_sync(status, 2));
    faults.set(Cut::default());
    wait_for(&mut client, "the return of the node", |status| in_sync(status, 3));
    assert_eq!(client.get(&table, &[Value::Int(60)]).expect("reads"), Some(row(60, "during")));
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
fn a_partition_that_moved_away_leaves_nothing_behind_even_on_a_node_that_was_away() {
    let mut cluster = Cluster::with(4, &[("timing.suspect_ms", "500")]);
    let mut client = cluster.ready();
    let mut wanted = create("t", "durable", EngineKind::Lsm, LogKind::Disk);
    wanted.placement = [[1, 2, 3], [2, 3, 1]].map(|row| row.map(NodeId).to_vec()).to_vec();
    (wanted.factor, wanted.partitions) = (Some(3), 2);
    let table = client.create_table(&wanted).expect("creates");
    put_all(&mut client, &table, 0, 200, "x");
    let here = |cluster: &Cluster, node| {
        std::fs::read_dir(cluster.node_dir(node).join("partitions")).expect("a directory").count()
    };
    let status = wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let moved = status.partitions[0].id;
    cluster.kill(1);
    client.admin(AdminCommand::Move { partition: moved, from: NodeId(1), to: NodeId(4) }).expect("moves");
    wait_for(&mut client, "the copy on node 4", |status| {
        let mut of = status.partitions.iter().filter(|record| record.id == moved);
        of.all(|record| record.in_sync.len() == 3 && record.member_on(NodeId(1)).is_none())
    });
    assert_eq!(here(&cluster, 1), 2, "it is away and knows nothing of it");
    cluster.start_node(1);
    wait_for(&mut client, "the end of the replica that moved, and of no other", |status| {
        let replicas =
            crate::common::of_node(status, 1).map(|node| node.replicas.as_slice()).unwrap_or_default();
        replicas.len() == 1 && replicas[0].partition != moved && in_sync(status, 3)
    });
    let left = cluster.node_dir(1).join(format!("partitions/{}", moved.0));
    assert!(!left.exists() && here(&cluster, 1) == 1);
    assert_eq!(tails::list(&cluster.node_dir(1)).expect("lists"), [], "all of it is elsewhere");
    // Nor does the log have anything of it that would bring it back.
    cluster.kill(1);
    cluster.start_node(1);
    let status = cluster.node(1).shared_status().status();
    assert!(status.replicas.iter().all(|replica| replica.partition != moved));
    wait_for(&mut client, "the return of the node", |status| in_sync(status, 3));
    assert_eq!(client.count(&table).expect("counts"), 200);
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
    assert!(cluster.node(2).shared_status().metrics.checkpoints.load(Ordering::Relaxed) > 0);
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
    let told = |status: &ClusterStatus| {
        let mut replicas = status.nodes.iter().flat_map(|(node, _)| &node.replicas);
        full(status) && replicas.any(|replica| replica.waits.starts_with("room in "))
    };
    go_on_until(&mut client, &told);
    let turned_away = || cluster.node(1).shared_status().metrics.answers(Outcome::NotDone);
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
