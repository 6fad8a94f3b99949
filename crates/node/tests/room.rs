//! F20: a node whose disk has no room goes on with what it has, and makes good what it could not do when there is room again.
//!
//! Node 1 has a small disk in memory, which only the process of the test sees: each test is run again in a process of its own. Where
//! the system does not let it have such a disk, that is said.

mod common;

use client::{Client, Table};
use common::{Cluster, create, in_sync, of_node, put_all, row, wait_for};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use types::data::Value;
use types::{EngineKind, LogKind, NodeId};
use wire::control::{ClusterStatus, Role};

const DISK: &str = "UNDERSTUDY_TEST_DISK";
const PARTITIONS: u32 = 4;

/// A disk of 64 MiB.
struct Disk(PathBuf);

impl Disk {
    /// Leaves no room for a byte, nor for a name.
    fn fill(&self) {
        let mut file = File::create(self.0.join("filler")).expect("begins");
        for piece in [vec![7; 4096], vec![7; 1]] {
            while file.write_all(&piece).is_ok() {}
        }
        let mut names = 0;
        while File::create(self.0.join(format!("filler-{names}"))).is_ok() {
            names += 1;
            assert!(names < 100_000, "names never end");
        }
    }

    fn make_room(&self) {
        for entry in fs::read_dir(&self.0).expect("lists") {
            let entry = entry.expect("readable");
            if entry.file_name().to_string_lossy().starts_with("filler") {
                fs::remove_file(entry.path()).expect("removes");
            }
        }
    }

    /// Three nodes, the first of which has this disk.
    fn cluster(&self, second: bool) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(self.0.join("node")).expect("makes");
        std::os::unix::fs::symlink(self.0.join("node"), dir.path().join("node-1")).expect("links");
        let settings = [("log.reserve_bytes", "1000000"), ("log.checkpoint_bytes", "65536")];
        match second {
            true => Cluster::with_second_within(dir, 3, &settings),
            false => Cluster::within(dir, 3, &settings),
        }
    }
}

/// Runs a test of this name again where it has such a disk; gives that, if this is where.
fn on_a_small_disk(name: &str) -> Option<Disk> {
    if let Some(place) = std::env::var_os(DISK) {
        return Some(Disk(place.into()));
    }
    let place = tempfile::tempdir().expect("a directory");
    let with_disk = |then: &str| {
        let script = format!("mount -t tmpfs -o size=64m,nr_inodes=2000 tmpfs \"$0\" && {then}");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).arg(place.path());
        command
    };
    if !with_disk("true").output().is_ok_and(|output| output.status.success()) {
        eprintln!("{name}: this system gives no disk of one's own");
        return None;
    }
    let mut command = with_disk("exec \"$@\"");
    command.arg(std::env::current_exe().expect("this")).args(["--exact", name, "--nocapture"]);
    let output = command.env(DISK, place.path()).output().expect("runs");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{}", said.concat());
    None
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
    let cluster = disk.cluster(false);
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
    let cluster = disk.cluster(true);
    let mut client = cluster.ready();
    let table = table(&mut client, "t");
    put_all(&mut client, &table, 0, 300, "x");
    wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    disk.fill();
    fs::rename(cluster.second_dir(1), cluster.dir.path().join("away")).expect("renames");
    // It is taken in again, and has no place to offer; its other replicas are there.
    let waits = wait_for(&mut client, "the want of room to be told", |status| {
        let lost = of_node(status, 1).and_then(|node| node.directories.get(1));
        lost.is_some_and(|lost| !lost.lost.is_empty() && waiting(status) == lost.replicas)
    });
    assert_eq!(waiting(&waits), PARTITIONS / 2, "{waits:#?}");
    disk.make_room();
    wait_for(&mut client, "all copies", is_level_again);
    is_whole(&mut client, &table, 300);
}
