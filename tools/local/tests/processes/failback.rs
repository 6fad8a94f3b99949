//! A killed primary comes back and takes its lead again, and at each stage of its way one of those who take
//! part is killed.
//!
//! The node that comes back freezes itself at the stage (`node.freeze_at`), so that whoever is killed dies
//! just there. Another client writes all the while.

use super::faults::{alike, connect, in_sync, wait};
use client::Client;
use client::table::Table;
use node::tails;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::{EngineKind, FailoverRecord, Lsn, NodeId, PartitionId};
use understudy_local::process::is_stopped;
use understudy_local::{Cluster, ClusterOptions};
use wire::control::{AdminCommand, CreateTable, NodeStatus, ReplicaStatus};

/// Rows of this client; those of the other one are above.
const ROWS: i64 = 300;
/// Rows that are written while a node is away: more than a checkpoint's log.
const MISSED: i64 = 90;
/// Rows of the client that writes all the while.
const OTHERS: i64 = 40;
/// Between two writes of that client.
const WRITE_INTERVAL: Duration = Duration::from_millis(5);

/// How long a write is asked again.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// What each row was last acknowledged to hold.
type Written = BTreeMap<i64, u64>;

/// Who is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Returning,
    Primary,
    /// The third copy: in sync, so that commits wait for it.
    Backup,
    Controller,
}

struct World {
    cluster: Cluster,
    client: Client,
    table: Table,
    partition: PartitionId,
    /// The node that is placed first.
    home: NodeId,
    written: Written,
    writes: u64,
}

fn create(client: &mut Client, engine: EngineKind) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("text", ColumnType::Text)];
    let table = CreateTable {
        engine,
        factor: Some(3),
        ..CreateTable::new("notes", Schema::new(columns, &["id"], 1, false).expect("valid"), "durable")
    };
    client.create_table(&table).expect("created")
}

fn row(id: i64, version: u64) -> Row {
    let text = format!("version {version} of note {id}; ").repeat(40);
    Row::new(vec![Value::Int(id), Value::Text(text)])
}

/// A client that writes until it is ended.
struct Writer {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Written>,
}

impl Writer {
    fn start(controllers: Vec<String>, table: &str) -> Writer {
        let ends = Arc::new(AtomicBool::new(false));
        let (seen, name) = (ends.clone(), table.to_string());
        let thread = std::thread::spawn(move || {
            let mut client = connect(controllers);
            let table = client.wait_table(&name).expect("it is there");
            let mut written = Written::new();
            for version in 1.. {
                let id = ROWS + version as i64 % OTHERS;
                // A copy that dies while another one is frozen can be one too many: what it was told then, it
                // asks again.
                let deadline = Instant::now() + WAIT_LIMIT;
                while let Err(error) = client.put(&table, &row(id, version)) {
                    assert!(Instant::now() < deadline, "note {id}: {error}");
                }
                written.insert(id, version);
                if seen.load(Ordering::Acquire) {
                    break;
                }
                std::thread::sleep(WRITE_INTERVAL);
            }
            written
        });
        Writer { ends, thread }
    }

    /// What it wrote.
    fn end(self) -> Written {
        self.ends.store(true, Ordering::Release);
        self.thread.join().expect("every write is acknowledged")
    }
}

impl World {
    fn new(dir: &Path, engine: EngineKind) -> World {
        let mut options = ClusterOptions::new(dir);
        for (name, value) in [
            ("log.checkpoint_bytes", "65536"),
            ("log.segment_bytes", "1048576"),
            ("controller.balance_after_ms", "300"),
        ] {
            options.settings.push((name.into(), value.into()));
        }
        let cluster = Cluster::start(options).expect("starts");
        let mut client = connect(cluster.controllers());
        let table = create(&mut client, engine);
        let partition = table.partitions().next().expect("one");
        let home = client.cluster_map().partition(partition).expect("known").primary.node;
        let written = Written::new();
        let mut world = World { cluster, client, table, partition, home, written, writes: 0 };
        world.write(ROWS);
        wait("three copies in sync", || in_sync(&mut world.client));
        world
    }

    /// Writes the next rows, each with a new version; behind the last one it goes on with the first.
    fn write(&mut self, count: i64) {
        for _ in 0..count {
            self.writes += 1;
            let (id, version) = (self.writes as i64 % ROWS, self.writes);
            self.client.put(&self.table, &row(id, version)).expect("written");
            self.written.insert(id, version);
        }
    }

    fn primary(&mut self) -> NodeId {
        // Without a controller the cluster map stays as it is.
        let _ = self.client.poll(Duration::from_millis(10));
        self.client.cluster_map().partition(self.partition).expect("known").primary.node
    }

    /// True if there are two copies in sync, and none of them is on this node.
    fn in_sync_without(&mut self, node: NodeId) -> bool {
        let _ = self.client.poll(Duration::from_millis(10));
        let record = self.client.cluster_map().partition(self.partition).expect("known");
        record.in_sync.len() == 2 && record.in_sync.iter().all(|member| member.node != node)
    }

    /// What a node says of its replica now.
    fn replica(&self, node: NodeId) -> Option<ReplicaStatus> {
        let address = &self.cluster.addresses(node).http;
        let mut stream = TcpStream::connect(address).ok()?;
        write!(stream, "GET /status.json HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let body = answer.split_once("\r\n\r\n")?.1;
        let json = &body[body.find('{')?..=body.rfind('}')?];
        let status: NodeStatus = serde_json::from_str(json).ok()?;
        status.replicas.into_iter().find(|replica| replica.partition == self.partition)
    }

    /// The lead of a node is lost while it is away, and what it missed is not in the others' logs any more.
    fn miss(&mut self, leaves_tail: bool) -> NodeId {
        let home = self.home;
        let end = self.replica(home).expect("it runs").end.lsn;
        if leaves_tail {
            // Clients still reach it: what they write gets into its log, and nowhere else.
            self.cluster.cut_from_cluster(home).expect("cut");
            self.write(1);
        }
        self.cluster.kill(home).expect("killed");
        wait("another primary", || self.primary() != home);
        self.write(MISSED);
        let lead = self.primary();
        let persisted =
            |world: &World| world.replica(lead).map_or(Lsn::ZERO, |replica| replica.marks.persisted);
        let deadline = Instant::now() + Duration::from_secs(60);
        while persisted(self) <= end {
            assert!(Instant::now() < deadline, "nothing is flushed");
            self.write(5);
        }
        lead
    }

    /// The node comes back, and at this stage the victim is killed. Then everything is whole again.
    fn round(&mut self, stage: &str, victim: Victim) {
        let home = self.home;
        let writer = Writer::start(self.cluster.controllers(), self.table.name());
        let lead = self.miss(stage == "tail");
        self.cluster.restart_with(home, &[("node.freeze_at", stage)]).expect("restarted");
        let frozen = self.cluster.file().node(home).expect("it runs").process.pid;
        wait("the stage", || is_stopped(frozen));
        match victim {
            Victim::Returning => self.cluster.restart(home).expect("killed and restarted"),
            Victim::Primary => {
                self.cluster.kill(lead).expect("killed");
                self.cluster.cont(home).expect("goes on");
                wait("another primary", || self.primary() != lead);
                self.cluster.restart(lead).expect("restarted");
            }
            Victim::Backup => {
                let third = (1..=3).map(NodeId).find(|node| ![home, lead].contains(node)).expect("three");
                self.cluster.kill(third).expect("killed");
                // Fewer than two copies are too few: the writer goes on with the one that comes back.
                self.cluster.cont(home).expect("goes on");
                wait("the third missed", || self.in_sync_without(third));
                self.cluster.restart(third).expect("restarted");
            }
            Victim::Controller => {
                self.cluster.kill_controller(1).expect("killed");
                self.cluster.cont(home).expect("goes on");
                self.cluster.restart_controller(1).expect("restarted");
            }
        }
        wait("three copies in sync", || in_sync(&mut self.client));
        wait("the lead at home", || self.primary() == home);
        self.written.extend(writer.end());
    }

    /// Every acknowledged write is there, and all copies are alike.
    fn check(&mut self) {
        wait("three copies in sync", || in_sync(&mut self.client));
        let mut found = BTreeMap::new();
        for row in self.client.scan_all(&self.table) {
            let row = row.expect("read");
            let row = self.table.decode(&row.key, &row.stored).expect("a row");
            found.insert(row.values[0].clone(), row);
        }
        let expected = self.written.iter().map(|(id, version)| (Value::Int(*id), row(*id, *version)));
        assert_eq!(found, expected.collect());
        alike(&mut self.client, &self.table);
    }

    /// Every tail that is on a disk is told in a failover's report, and none is there twice.
    fn check_tails(&mut self) -> usize {
        let nodes = (1..=3).map(NodeId);
        let all: Vec<_> =
            nodes.flat_map(|node| tails::list(&self.cluster.node_dir(node)).expect("lists")).collect();
        let places: BTreeSet<_> =
            all.iter().map(|tail| (tail.node, tail.partition, tail.term, tail.from)).collect();
        assert_eq!(places.len(), all.len(), "{all:?}");
        wait("every tail told", || {
            let told = self.client.admin(AdminCommand::Failovers).expect("answered");
            let told: Vec<FailoverRecord> = serde_json::from_str(&told).expect("records");
            let told: Vec<_> = told.iter().flat_map(|record| &record.loss.tails).collect();
            all.iter().all(|tail| told.contains(&tail))
        });
        all.iter().filter(|tail| tail.node == self.home).count()
    }
}

fn kill_each_at(engine: EngineKind, stages: &[&str]) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut world = World::new(dir.path(), engine);
    let mut tails = 0;
    for stage in stages {
        for victim in [Victim::Returning, Victim::Primary, Victim::Backup, Victim::Controller] {
            let started = Instant::now();
            world.round(stage, victim);
            world.check();
            let before = std::mem::replace(&mut tails, world.check_tails());
            assert!(*stage != "tail" || tails > before, "the tail is there: {before} before, {tails} now");
            println!("{victim:?} killed at {stage}: whole after {:.1} s", started.elapsed().as_secs_f64());
        }
    }
}

/// Each participant is killed in each stage of coming back by files and the log above them, up to the lead.
pub fn by_files() {
    let stages = ["tail", "admitted", "offered", "files", "installing", "log", "in_sync", "promoting"];
    kill_each_at(EngineKind::Lsm, &stages);
}

/// The same where the state comes as rows.
pub fn by_rows() {
    kill_each_at(EngineKind::Memory, &["rows"]);
}
