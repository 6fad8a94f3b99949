//! Disks that are not there, full, or not what they were.

use crate::common::{Cluster, create, in_sync, put_all, row, wait_for};
use client::{Client, Table};
use std::fs;
use std::path::{Path, PathBuf};
use types::data::Value;
use types::{EngineKind, LogKind};
use understudy_node::node;
use understudy_node::stop::Watched;
use wire::control::Role;

/// A node with a table of one partition, which has `rows` rows.
fn one_node(engine: EngineKind, rows: i64) -> (Cluster, Client, Table) {
    let cluster = Cluster::with(1, &[("log.checkpoint_bytes", "200000")]);
    let mut client = cluster.ready();
    let mut wanted = create("t", "durable", engine, LogKind::Disk);
    (wanted.factor, wanted.partitions) = (Some(1), 1);
    let table = client.create_table(&wanted).expect("creates");
    put_all(&mut client, &table, 0, rows, "x");
    (cluster, client, table)
}

/// The number of the only replica's directory.
fn partition(cluster: &Cluster) -> String {
    let mut entries = fs::read_dir(cluster.node_dir(1).join("partitions")).expect("lists");
    let name = entries.next().expect("one").expect("readable").file_name();
    name.into_string().expect("a number")
}

fn is_damaged(cluster: &Cluster, number: u32) {
    let mut client = cluster.client();
    wait_for(&mut client, "the damage to be told", |status| {
        let node = crate::common::of_node(status, number);
        node.is_some_and(|node| node.replicas.iter().any(|replica| replica.role == Role::Damaged))
    });
}

#[test]
fn a_node_whose_log_is_not_there_does_not_start() {
    let (mut cluster, mut client, table) = one_node(EngineKind::Memory, 10);
    cluster.kill(1);
    let (log, aside) = (cluster.node_dir(1).join("log"), cluster.node_dir(1).join("log.unmounted"));
    fs::rename(&log, &aside).expect("renames");
    for empty in [false, true, true] {
        if empty && !log.exists() {
            fs::create_dir(&log).expect("makes the place where it would be mounted");
        }
        let failure = node::start(cluster.node_config(1)).err().expect("refused");
        assert!(failure.status == 6 && failure.sentence.contains("is its disk mounted?"), "{failure}");
        assert_eq!(log.exists(), empty, "nothing is made");
    }
    assert_eq!(fs::read_dir(&log).expect("lists").count(), 0, "nothing is begun");
    fs::remove_dir(&log).expect("removes");
    fs::rename(&aside, &log).expect("mounts");
    cluster.start_node(1);
    assert_eq!(client.get(&table, &[Value::Int(9)]).expect("reads"), Some(row(9, "x")));
}

#[test]
fn a_node_that_never_had_a_replica_begins_a_log() {
    let mut cluster = Cluster::with(1, &[]);
    drop(cluster.ready());
    cluster.kill(1);
    fs::remove_dir_all(cluster.node_dir(1).join("log")).expect("removes");
    cluster.start_node(1);
    drop(cluster.ready());
}

/// Blanks everything in the log's only segment but its first frame and its last mark, which begins a disk
/// block.
fn blank_what_is_between(log: &Path) {
    let names = fs::read_dir(log).expect("lists").map(|entry| entry.expect("readable").path());
    let mut segments: Vec<PathBuf> = names.filter(|path| !path.to_string_lossy().contains("spare")).collect();
    let (path, None) = (segments.remove(0), segments.pop()) else { panic!("one segment") };
    let mut bytes = fs::read(&path).expect("reads");
    let starts = (4096..bytes.len()).step_by(4096);
    let last = starts.rev().find(|start| bytes[*start..start + 64].iter().any(|byte| *byte != 0));
    bytes[256..last.expect("a mark")].fill(0);
    fs::write(&path, bytes).expect("writes");
}

#[test]
fn r10_what_a_damaged_log_may_have_lost_is_damaged_until_there_is_a_copy() {
    let (mut cluster, ..) = one_node(EngineKind::Memory, 10);
    cluster.stop(1);
    blank_what_is_between(&cluster.node_dir(1).join("log"));
    // The second life finds the damage, the third what the second has noted of it.
    for _ in 0..2 {
        cluster.start_node(1);
        is_damaged(&cluster, 1);
        cluster.kill(1);
    }
}

#[test]
fn damaged_files_are_set_aside_and_stay_there() {
    let (mut cluster, ..) = one_node(EngineKind::Lsm, 10);
    let name = partition(&cluster);
    cluster.kill(1);
    let replica = cluster.node_dir(1).join("partitions").join(&name);
    fs::write(replica.join("engine/CURRENT"), "nonsense").expect("writes");
    cluster.start_node(1);
    is_damaged(&cluster, 1);
    cluster.kill(1);
    fs::write(replica.join("partition.json"), "{").expect("writes");
    fs::create_dir(cluster.node_dir(1).join("partitions/.99.new")).expect("a start of something");
    for _ in 0..2 {
        cluster.start_node(1);
        cluster.kill(1);
    }
    let damaged = cluster.node_dir(1).join("damaged");
    let kept = fs::read_to_string(damaged.join(format!("{name}-0/CURRENT"))).expect("the engine");
    assert_eq!(kept, "nonsense");
    let kept = fs::read_to_string(damaged.join(format!("{name}-1/partition.json"))).expect("the replica");
    assert_eq!(kept, "{");
    assert_eq!(fs::read_dir(&damaged).expect("lists").count(), 2);
    assert!(!cluster.node_dir(1).join("partitions/.99.new").exists(), "it never was a replica");
}

/// From now on reading this file fails (EIO): the memory of a process can be opened, and its first page not
/// read.
fn make_unreadable(path: &Path) {
    fs::remove_file(path).expect("it is there");
    std::os::unix::fs::symlink("/proc/self/mem", path).expect("makes a link");
    let error = fs::read(path).expect_err("nothing lies at address zero");
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
}

#[test]
fn r10_what_the_disk_cannot_read_damages_a_replica_and_stops_no_node() {
    let (mut cluster, ..) = one_node(EngineKind::Lsm, 10);
    let name = partition(&cluster);
    let replica = cluster.node_dir(1).join("partitions").join(&name);
    cluster.kill(1);
    make_unreadable(&replica.join("engine/CURRENT"));
    cluster.start_node(1);
    is_damaged(&cluster, 1);
    cluster.kill(1);
    make_unreadable(&replica.join("partition.json"));
    for _ in 0..2 {
        cluster.start_node(1);
        cluster.kill(1);
    }
    let damaged = cluster.node_dir(1).join("damaged");
    assert!(damaged.join(format!("{name}-0/CURRENT")).is_symlink(), "the engine is kept");
    assert!(damaged.join(format!("{name}-1/partition.json")).is_symlink(), "the replica is kept");
}

/// The directory of the only replica's tables.
fn tables(cluster: &Cluster) -> PathBuf {
    let replica = cluster.node_dir(1).join("partitions").join(partition(cluster));
    replica.join("engine/tree-000001/tables")
}

/// A node that writes its LSM engine to disk after some rows more, and then cannot: `instead` takes the
/// tables' place.
fn with_failing_checkpoint(instead: Option<&str>) -> (Cluster, Client) {
    let (cluster, mut client, table) = one_node(EngineKind::Lsm, 10);
    fs::remove_dir_all(tables(&cluster)).expect("removes");
    if let Some(text) = instead {
        fs::write(tables(&cluster), text).expect("writes");
    }
    client.put(&table, &row(11, &"x".repeat(400_000))).expect("writes");
    (cluster, client)
}

#[test]
fn r10_a_disk_that_fails_under_an_engine_stops_the_node() {
    let (mut cluster, _client) = with_failing_checkpoint(Some("not a directory"));
    let failure = cluster.nodes[0].take().expect("it runs").wait().unwrap_err();
    assert!(failure.status == 7 && failure.sentence.contains("cannot be written to disk"), "{failure}");
}

#[test]
fn r10_a_disk_that_fails_under_what_is_received_stops_the_node() {
    let mut cluster = Cluster::with(2, &[("log.checkpoint_bytes", "20000")]);
    let mut client = cluster.ready();
    let mut wanted = create("t", "durable", EngineKind::Lsm, LogKind::Disk);
    (wanted.factor, wanted.partitions) = (Some(2), 2);
    let table = client.create_table(&wanted).expect("creates");
    put_all(&mut client, &table, 0, 10, "x");
    wait_for(&mut client, "both copies", |status| in_sync(status, 2));
    cluster.block_receiving(&mut client, 2, &cluster.node_dir(2));
    // Each flush of the primary is followed by its files.
    let rows = (10..300).map(|id| table.put(&row(id, &"x".repeat(1000))).expect("encodes"));
    // What becomes of those that are under way when it ends is nobody's matter here.
    drop(client.all(rows.collect()));
    let failure = cluster.ends(2).unwrap_err();
    assert!(failure.status == 7 && failure.sentence.contains("cannot be written to disk"), "{failure}");
}

#[test]
fn pr62_damage_that_a_checkpoint_finds_takes_the_replica_out() {
    let (cluster, _client) = with_failing_checkpoint(None);
    is_damaged(&cluster, 1);
}

#[test]
fn f20_checkpoints_go_on_while_little_room_is_left() {
    let (mut cluster, ..) = one_node(EngineKind::Lsm, 10);
    cluster.kill(1);
    // The disk has less than this left, but far more than a component takes.
    cluster.settings.push(("log.reserve_bytes".into(), (1u64 << 50).to_string()));
    cluster.start_node(1);
    let mut client = cluster.client();
    wait_for(&mut client, "a checkpoint", |status| {
        let node = crate::common::of_node(status, 1).filter(|node| node.full);
        node.is_some_and(|node| node.replicas.iter().any(|replica| replica.marks.persisted.0 > 10))
    });
}

/// Bytes that are free where this is.
fn free(place: &Path) -> u64 {
    let room = rustix::fs::statvfs(place).expect("it is there");
    room.f_bavail * room.f_frsize
}

#[test]
fn f20_the_room_of_a_log_on_a_disk_of_its_own_counts() {
    let disk = || tempfile::tempdir().expect("a directory");
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("there is no second disk here");
    };
    // The log goes where there is less room, the rest where there is more.
    let (log, data) = match free(memory.path()) < free(disk().path()) {
        true => (memory, disk()),
        false => (disk(), memory),
    };
    let enough_for_one = (free(log.path()) / 2 + free(data.path()) / 2).to_string();
    let place = log.path().join("log");
    let reserve = ("log.reserve_bytes", enough_for_one.as_str());
    let mut cluster = Cluster::within(data, 1, &[reserve]);
    let known = |cluster: &Cluster, full: bool| {
        wait_for(&mut cluster.client(), "the node's word about its room", |status| {
            crate::common::of_node(status, 1).is_some_and(|node| node.full == full)
        });
    };
    known(&cluster, false);
    cluster.stop(1);
    cluster.settings.push(("log.dir".into(), place.to_str().expect("a name").into()));
    cluster.start_node(1);
    known(&cluster, true);
}

#[test]
fn a_node_does_not_outlive_the_threads_it_relies_on() {
    let mut cluster = Cluster::with(1, &[]);
    let node = cluster.nodes[0].take().expect("it runs");
    let watched = Watched::new(node.stopper(), "beat");
    let thread = std::thread::spawn(move || {
        let _watched = watched;
        panic!("a thread that the node relies on");
    });
    thread.join().unwrap_err();
    let failure = node.wait().unwrap_err();
    assert!(failure.status == 1 && failure.sentence.contains("'beat'"), "{failure}");
}
