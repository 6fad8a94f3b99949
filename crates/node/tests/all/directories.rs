//! Several directories for a node's replicas: losing one fails over what is in it, and nothing else.

use crate::common::{Cluster, create, in_sync, of_node, put_all, row, wait_for};
use client::{Client, ClientError, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use types::data::Value;
use types::{EngineKind, LogKind, NodeId, PartitionId, Term};
use wire::control::{ClusterStatus, Role};

/// Tables of this test have so many partitions.
const PARTITIONS: u32 = 6;
/// What `put_until_told` writes: so long that each partition is written to disk meanwhile, however many rows
/// share an entry of the log.
const WRITTEN: &str =
    "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy";

fn cluster(nodes: u32) -> Cluster {
    // Who was not run for a moment is not suspected: the tests say whose terms stay as they are.
    Cluster::with_second(nodes, &[("log.checkpoint_bytes", "65536"), ("timing.suspect_ms", "1000")])
}

fn table(client: &mut Client, name: &str, engine: EngineKind, factor: u8) -> Table {
    let mut wanted = create(name, "durable", engine, LogKind::Disk);
    (wanted.factor, wanted.partitions) = (Some(factor), PARTITIONS);
    client.create_table(&wanted).expect("creates")
}

/// The replicas whose files are in a node's second directory.
fn in_second(dir: &Path) -> BTreeSet<PartitionId> {
    let entries = fs::read_dir(dir.join("partitions")).expect("lists");
    let number =
        |name: std::ffi::OsString| name.to_str().and_then(|name| name.parse().ok()).expect("a number");
    entries.map(|entry| PartitionId(number(entry.expect("readable").file_name()))).collect()
}

fn terms(status: &ClusterStatus) -> BTreeMap<PartitionId, (Term, NodeId)> {
    status.partitions.iter().map(|record| (record.id, (record.term, record.primary.node))).collect()
}

fn lost(status: &ClusterStatus, number: u32) -> String {
    let directories = of_node(status, number).map(|node| node.directories.as_slice()).unwrap_or_default();
    directories.get(1).map(|directory| directory.lost.clone()).unwrap_or_default()
}

fn away(cluster: &Cluster, number: u32) -> PathBuf {
    cluster.dir.path().join(format!("away-{number}"))
}

fn take_away(cluster: &Cluster, number: u32) {
    fs::rename(cluster.second_dir(number), away(cluster, number)).expect("renames");
}

fn bring_back(cluster: &Cluster, number: u32) {
    fs::rename(away(cluster, number), cluster.second_dir(number)).expect("renames");
}

fn is_whole(client: &mut Client, table: &Table, rows: i64, value: &str) {
    holds(client, table, 0..rows, value);
}

fn holds(client: &mut Client, table: &Table, ids: Range<i64>, value: &str) {
    for id in ids {
        let found = client.get(table, &[Value::Int(id)]).expect("reads");
        assert_eq!(found, Some(row(id, value)), "row {id} of {}", table.name());
    }
}

/// Ends the writer, whatever ends the test.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Writes rows again for as long as it is not known what became of them.
fn put_until_told(client: &mut Client, table: &Table, from: i64, to: i64) {
    loop {
        let calls = (from..to).map(|id| table.put(&row(id, WRITTEN)).expect("encodes")).collect();
        match client.all(calls) {
            Ok(_) => return,
            Err(ClientError::OutcomeUnknown(_)) => {}
            Err(error) => panic!("rows {from} to {to}: {error}"),
        }
    }
}

#[test]
fn losing_a_directory_fails_over_only_what_is_in_it() {
    let mut cluster = cluster(3);
    let mut client = cluster.ready();
    let tables =
        [table(&mut client, "a", EngineKind::Lsm, 3), table(&mut client, "b", EngineKind::Memory, 3)];
    tables.iter().for_each(|table| put_all(&mut client, table, 0, 600, &"x".repeat(300)));
    let before = wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let there = in_second(&cluster.second_dir(1));
    assert_eq!(there.len(), PARTITIONS as usize, "half of twelve replicas");
    let led = |id: &PartitionId| terms(&before)[id].1 == NodeId(1);
    assert!(there.iter().any(led) && !there.iter().all(led), "it leads some of them");

    let (stop, started) = (AtomicBool::new(false), AtomicBool::new(false));
    let (lossless, after) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut client, mut at) = (cluster.client(), 1000);
            while !stop.load(Ordering::Acquire) {
                tables.iter().for_each(|table| put_until_told(&mut client, table, at, at + 10));
                at += 10;
                started.store(true, Ordering::Release);
            }
            at
        });
        while !started.load(Ordering::Acquire) {
            client.poll(std::time::Duration::from_millis(5)).expect("polls");
        }
        let stops = Stops(&stop);
        take_away(&cluster, 1);
        let told = wait_for(&mut client, "the loss to be told", |status| !lost(status, 1).is_empty());
        assert!(lost(&told, 1).contains("gone"), "{told:#?}");
        let after = wait_for(&mut client, "copies anew", |status| {
            let elsewhere = of_node(status, 1).is_some_and(|node| {
                node.directories[1].replicas == 0
                    && node.replicas.iter().all(|replica| replica.role != Role::Damaged)
            });
            elsewhere && in_sync(status, 3)
        });
        assert!(!cluster.second_dir(1).exists(), "nobody makes it on the disk below (PR-359)");
        drop(stops);
        (writer.join().expect("writes"), after)
    });
    for (id, (term, primary)) in terms(&before) {
        let now = terms(&after)[&id].0;
        match there.contains(&id) && primary == NodeId(1) {
            true => assert!(now > term, "{id} was led from the directory that is gone"),
            false => assert_eq!(now, term, "{id} has nothing to do with it"),
        }
        if there.contains(&id) {
            let engine_dir = cluster.node_dir(1).join(format!("partitions/{}/engine", id.0));
            assert!(engine_dir.is_dir(), "{} is where the copy is", engine_dir.display());
        }
    }
    for table in &tables {
        is_whole(&mut client, table, 600, &"x".repeat(300));
        holds(&mut client, table, 1000..lossless, WRITTEN);
    }
    // It starts without it, and says so; back again, what is left in it is removed.
    cluster.stop(1);
    cluster.start_node(1);
    wait_for(&mut client, "node 1 without it", |status| in_sync(status, 3) && !lost(status, 1).is_empty());
    cluster.stop(1);
    bring_back(&cluster, 1);
    cluster.start_node(1);
    wait_for(&mut client, "node 1 with it", |status| in_sync(status, 3) && lost(status, 1).is_empty());
    assert_eq!(in_second(&cluster.second_dir(1)), BTreeSet::new());
    tables.iter().for_each(|table| is_whole(&mut client, table, 600, &"x".repeat(300)));
}

#[test]
fn a_node_starts_without_a_directory_and_its_replicas_are_copied_again() {
    let mut cluster = cluster(3);
    let mut client = cluster.ready();
    let table = table(&mut client, "a", EngineKind::Lsm, 3);
    put_all(&mut client, &table, 0, 600, &"x".repeat(300));
    wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    cluster.kill(2);
    take_away(&cluster, 2);
    // An empty place where its disk would be mounted is no new directory.
    fs::create_dir(cluster.second_dir(2)).expect("makes");
    put_all(&mut client, &table, 600, 700, "y");
    cluster.start_node(2);
    wait_for(&mut client, "copies elsewhere", |status| {
        let node = of_node(status, 2).filter(|node| node.directories.len() == 2);
        let elsewhere = node.is_some_and(|node| node.directories[1].replicas == 0);
        elsewhere && lost(status, 2).contains("mounted") && in_sync(status, 3)
    });
    assert_eq!(fs::read_dir(cluster.second_dir(2)).expect("lists").count(), 0, "nothing is written to it");
    // With nothing in it any more, it is made a directory of the node at the next start.
    cluster.stop(2);
    cluster.start_node(2);
    wait_for(&mut client, "a new directory", |status| in_sync(status, 3) && lost(status, 2).is_empty());
    is_whole(&mut client, &table, 600, &"x".repeat(300));
}

#[test]
fn directories_that_were_not_mounted_anywhere_lose_nothing() {
    let mut cluster = cluster(3);
    let mut client = cluster.ready();
    let table = table(&mut client, "a", EngineKind::Lsm, 3);
    put_all(&mut client, &table, 0, 600, &"x".repeat(300));
    wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let homes: Vec<BTreeSet<PartitionId>> =
        (1..=3).map(|node| in_second(&cluster.second_dir(node))).collect();
    drop(client);
    for node in 1..=3 {
        cluster.stop(node);
        take_away(&cluster, node);
    }
    (1..=3).for_each(|node| cluster.start_node(node));
    let mut client = cluster.ready();
    // Who has all three copies in these directories cannot be served; nothing is made up for it, and nothing
    // is given up.
    wait_for(&mut client, "what can be served", |status| {
        let leads = |id: PartitionId| {
            let replicas = status.nodes.iter().flat_map(|(node, _)| &node.replicas);
            replicas.filter(|replica| replica.partition == id).any(|replica| replica.role == Role::Primary)
        };
        let everywhere = |id: PartitionId| homes.iter().all(|engine_dir| engine_dir.contains(&id));
        status.partitions.iter().all(|record| leads(record.id) != everywhere(record.id))
    });
    drop(client);
    for node in 1..=3 {
        cluster.stop(node);
        bring_back(&cluster, node);
    }
    (1..=3).for_each(|node| cluster.start_node(node));
    let mut client = cluster.ready();
    wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    is_whole(&mut client, &table, 600, &"x".repeat(300));
}

#[test]
fn r10_a_disk_that_fails_under_what_is_received_loses_its_directory() {
    let cluster = Cluster::with_second(3, &[("log.checkpoint_bytes", "20000")]);
    let mut client = cluster.ready();
    let table = table(&mut client, "a", EngineKind::Lsm, 3);
    put_all(&mut client, &table, 0, 60, "x");
    wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let id = cluster.block_receiving(&mut client, 2, &cluster.second_dir(2));
    put_until_told(&mut client, &table, 100, 3000);
    let status = wait_for(&mut client, "the loss, and copies anew", |status| {
        let elsewhere = of_node(status, 2).is_some_and(|node| node.directories[1].replicas == 0);
        !lost(status, 2).is_empty() && elsewhere && in_sync(status, 3)
    });
    assert!(lost(&status, 2).contains(&format!("partition {id} cannot be written")), "{status:#?}");
    is_whole(&mut client, &table, 60, "x");
}

/// Whoever tries the disk of a node's second directory waits until somebody reads what it writes there.
fn hang(cluster: &Cluster, number: u32) -> PathBuf {
    let pipe = cluster.second_dir(number).join(".probe");
    for _ in 0..2_000 {
        // A file of this name may be there just now.
        let made = Command::new("mkfifo").arg(&pipe).stderr(Stdio::null()).status();
        if made.expect("runs").success() {
            return pipe;
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("no pipe can be made in {}", pipe.display());
}

#[test]
fn pr456_a_directory_whose_disk_hangs_is_led_elsewhere_and_then_given_up() {
    let cluster = cluster(3);
    let mut client = cluster.ready();
    let table = table(&mut client, "a", EngineKind::Lsm, 3);
    put_all(&mut client, &table, 0, 60, "x");
    let before = terms(&wait_for(&mut client, "all copies", |status| in_sync(status, 3)));
    let there = in_second(&cluster.second_dir(1));
    let led: Vec<PartitionId> = there.into_iter().filter(|id| before[id].1 == NodeId(1)).collect();
    assert!(!led.is_empty(), "{before:?}");
    let pipe = hang(&cluster, 1);
    let led_elsewhere = |status: &ClusterStatus| led.iter().all(|id| terms(status)[id].1 != NodeId(1));
    let after = wait_for(&mut client, "others to lead", led_elsewhere);
    assert_eq!(lost(&after, 1), "", "it may answer yet");
    put_all(&mut client, &table, 60, 120, "x");
    wait_for(&mut client, "the loss to be told", |status| lost(status, 1).contains("has not answered"));
    wait_for(&mut client, "copies elsewhere", |status| {
        let elsewhere = of_node(status, 1).is_some_and(|node| node.directories[1].replicas == 0);
        elsewhere && in_sync(status, 3)
    });
    is_whole(&mut client, &table, 120, "x");
    // Its thread goes on.
    drop(fs::File::open(&pipe).expect("opens"));
}
