//! Divergent tails (R9): what only a deposed primary had is set aside before anything takes its place.

use crate::common::{Cluster, LONG, create, in_sync, leads, of_node, put_all, row, wait_for};
use client::{Client, Table};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use types::data::Value;
use types::{EngineKind, Incarnation, LogKind, NodeId, PartitionId, Position};
use understudy_node::net::Cut;
use understudy_node::tails::{self, Content};
use wire::control::{AdminCommand, ClusterStatus, NodeStatus, Role};

/// A cluster whose node 1 is cut off and acknowledged a commit alone, in a partition that another node leads
/// now.
struct Parted {
    cluster: Cluster,
    client: Client,
    table: Table,
    lost: PartitionId,
    key: i64,
}

fn parted() -> Parted {
    // A long lease, so that the primary still acknowledges when this test gets round to writing.
    let lease = [("timing.lease_ms", "3000"), ("timing.grace_ms", "3500")];
    let faults = [("node.harm", "true"), ("controller.failover_wait_ms", "200")];
    let cluster = Cluster::with(3, &[lease, faults].concat());
    let mut client = cluster.ready();
    let table = client.create_table(&create("t", "async", EngineKind::Lsm, LogKind::Disk)).expect("creates");
    put_all(&mut client, &table, 0, 10, "kept");
    let status = wait_for(&mut client, "primaries", |status| (1..=3).all(|node| leads(status, node) > 0));
    let lost = status.partitions.iter().find(|record| record.primary.node == NodeId(1)).expect("it leads").id;
    let key = (100..)
        .find(|id| table.partition_of(&table.key(&[Value::Int(*id)]).expect("a key")).ok() == Some(lost));
    let key = key.expect("numbers do not end");
    client.put(&table, &row(key, "kept")).expect("a session is open");
    let faults = cluster.node(1).shared_status().faults.as_ref().expect("allowed");
    faults.set(Cut::parse("2,3,controllers").expect("a cut"));
    // Its lease has not run out yet: this is acknowledged, and nobody else has it.
    client.put(&table, &row(key, "lost")).expect("acknowledged by the primary alone");
    // A new primary that does not serve yet would still ask the old one for it (PR-19).
    wait_for(&mut client, "another primary that serves", |status| {
        let mut others = status.nodes.iter().filter(|(node, _)| node.member.node != NodeId(1));
        others.any(|(node, _)| {
            node.replicas.iter().any(|replica| replica.partition == lost && replica.role == Role::Primary)
        })
    });
    Parted { cluster, client, table, lost, key }
}

impl Parted {
    fn heal(&self) {
        self.cluster.node(1).shared_status().faults.as_ref().expect("allowed").set(Cut::default());
    }

    /// Node 1 comes back, and its tail is where it belongs.
    fn comes_back(mut self) {
        wait_for(&mut self.client, "the return of the node", |status| in_sync(status, 3));
        let read = self.client.get(&self.table, &[Value::Int(self.key)]).expect("reads");
        assert_eq!(read, Some(row(self.key, "kept")));
        let dir = self.cluster.node_dir(1);
        let tails = tails::list(&dir).expect("lists");
        let tail = tails.iter().find(|tail| tail.partition == self.lost).expect("it was set aside");
        assert_eq!((tail.commits, tail.sessions), (1, 1));
        let (_, content) = tails::read(&dir, &tail.file).expect("reads");
        let Content::Entries(entries) = content else { panic!("the log has it all: {content:?}") };
        assert!(entries.iter().any(|entry| entry.payload().windows(4).any(|bytes| bytes == b"lost")));
        let told = self.client.admin(AdminCommand::Failovers).expect("answers");
        assert!(told.contains(&tail.file), "{told}");
    }

    /// The end of node 1's log.
    fn end(&self) -> Position {
        let status = self.cluster.node(1).shared_status().status();
        status.replicas.iter().find(|replica| replica.partition == self.lost).expect("it has one").end
    }

    /// Whether node 1 found its log cleanly shut down at the start of this life.
    fn starts_clean(&mut self, incarnation: u64) -> bool {
        let deadline = Instant::now() + LONG;
        loop {
            let record = self.client.cluster_map().node(NodeId(1)).expect("known");
            if record.member().incarnation == Incarnation(incarnation) {
                return record.clean_start;
            }
            assert!(Instant::now() < deadline, "the record of life {incarnation} does not come");
            self.client.poll(Duration::from_millis(5)).expect("polls");
        }
    }

    /// Waits until node 1, in this life, waits for room with this partition, and with no other.
    fn is_blocked(&mut self, incarnation: u64) {
        let lost = self.lost;
        let waits = |status: &ClusterStatus| {
            let this_incarnation = |node: &&NodeStatus| node.member.incarnation == Incarnation(incarnation);
            let node = of_node(status, 1).filter(|node| node.full).filter(this_incarnation)?;
            Some(node.replicas.iter().find(|replica| replica.partition == lost)?.waits.contains("no room"))
        };
        wait_for(&mut self.client, "the want of room to be told, and the others in sync", |status| {
            let mut others = status.partitions.iter().filter(|record| record.id != lost);
            waits(status) == Some(true) && others.all(|record| record.in_sync.len() == 3)
        });
    }
}

#[test]
fn r9_what_only_a_cut_primary_had_is_set_aside_and_told() {
    let parted = parted();
    parted.heal();
    parted.comes_back();
}

#[test]
fn r9_a_primary_whose_files_are_damaged_has_its_log_set_aside_all_the_same() {
    let mut parted = parted();
    parted.cluster.kill(1);
    let engine = parted.cluster.node_dir(1).join(format!("partitions/{}/engine", parted.lost.0));
    fs::write(engine.join("CURRENT"), "nonsense").expect("writes");
    parted.cluster.start_node(1);
    parted.comes_back();
}

#[test]
fn f20_a_tail_that_finds_no_room_holds_up_its_own_partition_alone() {
    let mut parted = parted();
    let (end, dir) = (parted.end(), parted.cluster.node_dir(1).join("tails"));
    // Whatever is written to these has no room, as the system says it of a full disk.
    let names = (0..3).map(|less| (end.lsn.0 - less, end.lsn.0));
    let full: Vec<PathBuf> = names
        .map(|(from, to)| dir.join(format!(".{}-{}-{from}-{to}.tail.new", parted.lost.0, end.term.0)))
        .collect();
    full.iter().for_each(|name| symlink("/dev/full", name).expect("links"));
    parted.heal();
    parted.is_blocked(1);
    // It ends gently, but a log that lacks something has no mark that it is whole; and it starts again.
    parted.cluster.stop(1);
    parted.cluster.start_node(1);
    parted.is_blocked(2);
    assert!(!parted.starts_clean(2));
    assert_eq!(tails::list(&parted.cluster.node_dir(1)).expect("lists"), []);
    full.iter().for_each(|name| fs::remove_file(name).expect("removes"));
    wait_for(&mut parted.client, "room", |status| of_node(status, 1).is_some_and(|node| !node.full));
    parted.comes_back();
}
