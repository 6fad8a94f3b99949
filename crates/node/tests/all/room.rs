//! F20: a node whose disk has no room goes on with what it has, and makes good what it could not do when
//! there is room again.
//!
//! Node 1 has a small disk in memory, which only the process of the test sees: each test is run again in a
//! process of its own. Where the system does not let it have such a disk, that is said.

use crate::common::{Cluster, create, in_sync, of_node, put_all, row, wait_for};
use client::{Client, ClientError, FailKind, Table};
use std::fs;
use testing::SmallDisk;
use types::data::Value;
use types::{Component, EngineKind, LoadId, LogKind, NodeId, PartitionId, Staging};
use wire::bulk::LoadStatus;
use wire::control::{ClusterStatus, Role};
use wire::{Body, Op};

const PARTITIONS: u32 = 4;
const RESERVE: u64 = 4_000_000;

/// A small disk for the test of this name.
fn on_a_small_disk(name: &str) -> Option<SmallDisk> {
    SmallDisk::of_test(name, 64, 2000)
}

/// Three nodes, the first of which has this disk.
fn cluster(disk: &SmallDisk, second: bool) -> Cluster {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(disk.place("node")).expect("makes");
    std::os::unix::fs::symlink(disk.place("node"), dir.path().join("node-1")).expect("links");
    let reserve = RESERVE.to_string();
    let settings = [("log.reserve_bytes", reserve.as_str()), ("log.checkpoint_bytes", "65536")];
    match second {
        true => Cluster::with_second_within(dir, 3, &settings),
        false => Cluster::within(dir, 3, &settings),
    }
}

fn table(client: &mut Client, name: &str) -> Table {
    let mut wanted = create(name, "durable", EngineKind::Lsm, LogKind::Disk);
    (wanted.factor, wanted.partitions) = (Some(3), PARTITIONS);
    client.create_table(&wanted).expect("creates")
}

fn is_whole(client: &mut Client, table: &Table, rows: i64) {
    for id in 0..rows {
        let found = client.get(table, &[Value::Int(id)]).expect("reads");
        assert_eq!(found, Some(row(id, "x")), "row {id} of {}", table.name());
    }
}

/// Every partition is led by another node than the first, which says that it is full.
fn goes_on_without_the_first(status: &ClusterStatus) -> bool {
    let leads = |id| {
        let there = status.nodes.iter().filter(|(node, _)| node.member.node != NodeId(1));
        let mut replicas = there.flat_map(|(node, _)| &node.replicas);
        replicas.any(|replica| replica.partition == id && replica.role == Role::Primary)
    };
    of_node(status, 1).is_some_and(|node| node.full)
        && status.partitions.iter().all(|record| record.primary.node != NodeId(1) && leads(record.id))
}

/// How many replicas of the first node wait for room.
fn waiting(status: &ClusterStatus) -> u32 {
    let replicas = of_node(status, 1).into_iter().flat_map(|node| &node.replicas);
    replicas.filter(|replica| replica.waits.contains("no room for its files")).count() as u32
}

fn is_level_again(status: &ClusterStatus) -> bool {
    in_sync(status, 3) && of_node(status, 1).is_some_and(|node| !node.full)
}

#[test]
fn f20_a_replica_that_finds_no_room_is_made_when_there_is_some() {
    let Some(disk) = on_a_small_disk("f20_a_replica_that_finds_no_room_is_made_when_there_is_some") else {
        return;
    };
    let cluster = cluster(&disk, false);
    let mut client = cluster.ready();
    disk.fill();
    let table = table(&mut client, "t");
    put_all(&mut client, &table, 0, 300, "x");
    wait_for(&mut client, "the others to lead", goes_on_without_the_first);
    is_whole(&mut client, &table, 300);
    disk.make_room();
    wait_for(&mut client, "all copies", is_level_again);
    is_whole(&mut client, &table, 300);
}

#[test]
fn f20_a_replica_that_lost_its_directory_waits_for_room_in_another() {
    let Some(disk) = on_a_small_disk("f20_a_replica_that_lost_its_directory_waits_for_room_in_another")
    else {
        return;
    };
    let cluster = cluster(&disk, true);
    let mut client = cluster.ready();
    let table = table(&mut client, "t");
    put_all(&mut client, &table, 0, 300, "x");
    let whole = wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let in_second = of_node(&whole, 1).and_then(|node| node.directories.get(1)).map(|second| second.replicas);
    let in_second = in_second.filter(|replicas| *replicas > 0).expect("replicas in the second directory");
    disk.fill();
    fs::rename(cluster.second_dir(1), cluster.dir.path().join("away")).expect("renames");
    // They are taken in again, and find no place, be it for their description or for their files; the node's
    // other replicas are there.
    wait_for(&mut client, "the want of room to be told", |status| {
        let lost = of_node(status, 1).and_then(|node| node.directories.get(1));
        lost.is_some_and(|lost| !lost.lost.is_empty()) && waiting(status) == in_second
    });
    disk.make_room();
    wait_for(&mut client, "all copies", is_level_again);
    is_whole(&mut client, &table, 300);
}

/// The only file of a load, of which nothing but its length matters here.
fn file(load: LoadId, bytes: u64) -> Component {
    Component { number: load.first_file(), bytes, digest: 7 }
}

fn stage(
    client: &mut Client,
    table: &Table,
    id: PartitionId,
    (load, bytes): (LoadId, u64),
) -> Result<Staging, ClientError> {
    let call = table.call(id, Op::Stage { load, files: vec![file(load, bytes)] });
    match client.call(call)?.body {
        Body::Load(LoadStatus { staging, .. }) => Ok(staging),
        body => panic!("another answer: {body:?}"),
    }
}

fn is_full<T: std::fmt::Debug>(outcome: Result<T, ClientError>, why: &str) {
    let full = |error: &ClientError| matches!(error, ClientError::Failed { kind: FailKind::Full, sentence } if sentence.contains(why));
    assert!(outcome.as_ref().is_err_and(full), "{outcome:?}");
}

#[test]
fn f20_a_load_leaves_what_is_kept_free() {
    let Some(disk) = on_a_small_disk("f20_a_load_leaves_what_is_kept_free") else { return };
    let cluster = cluster(&disk, false);
    let mut client = cluster.ready();
    let table = table(&mut client, "t");
    put_all(&mut client, &table, 0, 30, "x");
    let status = wait_for(&mut client, "all copies", |status| {
        let leads = |record: &types::PartitionRecord| {
            let there = of_node(status, record.primary.node.0).into_iter().flat_map(|node| &node.replicas);
            there
                .filter(|replica| replica.role == Role::Primary)
                .any(|replica| replica.partition == record.id)
        };
        in_sync(status, 3) && status.partitions.iter().all(leads)
    });
    let of_table = status.partitions.iter().filter(|record| record.table == table.id());
    let (led, backed): (Vec<_>, Vec<_>) =
        of_table.map(|record| (record.id, record.primary.node)).partition(|(_, node)| *node == NodeId(1));
    let (led, backed) = (led[0].0, [backed[0].0, backed[1].0]);
    disk.leave(RESERVE + 12_000_000);
    let wants = Staging::Wants { file: 0, from: 0 };
    let load = |number| LoadId(LoadId::LEAST + number);
    // What is too much is refused by a primary and by a member, before anything comes.
    is_full(stage(&mut client, &table, led, (load(1), 13_000_000)), "node 1 has room for");
    for id in backed {
        let staging = stage(&mut client, &table, id, (load(1), 13_000_000)).expect("an answer");
        assert!(
            matches!(&staging, Staging::Refused(why) if why.contains("node 1 has room for")),
            "{staging:?}"
        );
        client.call(table.call(id, Op::Unstage { load: load(1) })).expect("unstages");
    }
    // Of two that fit one after the other, one.
    assert_eq!(stage(&mut client, &table, led, (load(2), 7_000_000)).expect("an answer"), wants);
    assert_eq!(stage(&mut client, &table, led, (load(2), 7_000_000)).expect("an answer"), wants);
    let staging = stage(&mut client, &table, backed[0], (load(2), 7_000_000)).expect("an answer");
    assert!(matches!(&staging, Staging::Refused(_)), "{staging:?}");
    let piece = |from| {
        let bytes = vec![7; 100_000].into();
        Op::StagePiece { load: load(2), file: 0, from, bytes }
    };
    client.call(table.call(led, piece(0))).expect("is taken");
    // What others write meanwhile leaves less: no more comes of it.
    disk.leave(RESERVE - 100_000);
    wait_for(&mut client, "its word", |status| of_node(status, 1).is_some_and(|node| node.full));
    is_full(client.call(table.call(led, piece(100_000))), "for the load's files");
    is_full(stage(&mut client, &table, led, (load(2), 7_000_000)), "for the load's files");
    client.call(table.call(led, Op::Unstage { load: load(2) })).expect("unstages");
    disk.make_room();
    wait_for(&mut client, "room", is_level_again);
    assert_eq!(stage(&mut client, &table, led, (load(3), 13_000_000)).expect("an answer"), wants);
}
