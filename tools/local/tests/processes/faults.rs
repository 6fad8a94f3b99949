//! Clusters that are harmed, and what is left of them.

use bytes::Bytes;
use client::table::Table;
use client::{Client, ClientError, Options};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testing::missing;
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::{FailoverRecord, NodeId, PartitionId, system};
use understudy_local::http;
use understudy_local::process::{Signal, is_ours, is_stopped, signal_ours};
use understudy_local::{
    Cluster, ClusterFile, ClusterOptions, DevCommand, LocalError, Metastore, Running, dev_command,
};
use wire::control::{AdminCommand, CreateTable};
use wire::{Op, ReadLevel};

/// Long enough for any step on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits for something to become true.
pub fn wait(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + STEP_TIMEOUT;
    while !is_true() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn connect(controllers: Vec<String>) -> Client {
    let mut options = Options { controllers, timeout: STEP_TIMEOUT, wait: true, ..Options::default() };
    // Copies that were not run for a moment are let in again while a write waits.
    options.core.patience = types::Micros::from_millis(60_000);
    Client::connect(options).expect("a controller answers")
}

fn create(client: &mut Client, policy: &str) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("text", ColumnType::Text)];
    let table = CreateTable {
        factor: Some(3),
        partitions: 3,
        ..CreateTable::new("notes", Schema::new(columns, &["id"], 1, false).expect("valid"), policy)
    };
    // A controller that has just started may not have heard all nodes.
    let deadline = Instant::now() + STEP_TIMEOUT;
    loop {
        match client.create_table(&table) {
            Ok(table) => return table,
            Err(ClientError::Admin { sentence, .. }) if sentence.contains("live: ") => {
                assert!(Instant::now() < deadline, "{sentence}");
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("not created: {error:?}"),
        }
    }
}

fn put(client: &mut Client, table: &Table, ids: std::ops::Range<i64>) {
    for id in ids {
        let row = Row::new(vec![Value::Int(id), Value::Text(format!("note {id}"))]);
        client.put(table, &row).expect("written");
    }
}

fn check(client: &mut Client, table: &Table, count: i64) {
    assert_eq!(client.count(table).expect("counted"), count as u64);
    for id in 0..count {
        let row = client.get(table, &[Value::Int(id)]).expect("read").expect("there");
        assert_eq!(row.values[1], Value::Text(format!("note {id}")));
    }
}

/// Every partition has all three copies in sync, in their present lives.
pub fn in_sync(client: &mut Client) -> bool {
    client.poll(Duration::from_millis(10)).expect("polls");
    let map = client.cluster_map();
    map.partitions().all(|record| {
        let present =
            |member: &types::Member| map.node(member.node).map(|node| node.member()) == Some(*member);
        record.in_sync.len() == 3 && record.in_sync.iter().all(present)
    })
}

/// The replicas of every partition hold the same.
pub fn alike(client: &mut Client, table: &Table) {
    let partitions: Vec<PartitionId> = table.partitions().collect();
    for partition in partitions {
        let nothing = Op::Count {
            from: Bytes::from_static(&[0]),
            to: Bytes::from_static(&[0]),
            at: Default::default(),
        };
        let min_lsn = client.call(table.call(partition, nothing)).expect("the primary answers").lsn;
        let read = ReadLevel::Any { max_lag_ms: 5000, min_lsn };
        let nodes: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let digests: Vec<_> = nodes
            .iter()
            .map(|node| client.replica_read(table, *node, partition, Op::Digest, read).expect("answers").body)
            .collect();
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{partition}: {digests:?}");
    }
}

/// The system table gets every failover; it is the cluster's own.
fn archived(client: &mut Client) {
    let known = client.admin(AdminCommand::Failovers).expect("answered");
    let known: Vec<FailoverRecord> = serde_json::from_str(&known).expect("records");
    assert!(!known.is_empty());
    wait("all failovers archived", || {
        client.poll(Duration::from_millis(10)).expect("polls");
        let table = client.table(system::FAILOVERS).ok();
        table.is_some_and(|table| client.count(&table).expect("counted") >= known.len() as u64)
    });
    let table = client.table(system::FAILOVERS).expect("there");
    assert!(table.partitions().all(PartitionId::is_system) && table.record().policy.factor == 3);
    let row = client.get(&table, &[Value::Int(known[0].id as i64)]).expect("read").expect("there");
    assert_eq!(row.values[1], Value::Int(i64::from(known[0].partition.0)));
    assert_eq!(row.values[2], Value::Text("notes".into()));
    let dropped = client.admin(AdminCommand::DropTable(system::FAILOVERS.into()));
    assert!(matches!(dropped, Err(client::ClientError::Admin { status: 5, .. })), "{dropped:?}");
}

fn pids(file: &ClusterFile) -> Vec<(i32, std::path::PathBuf)> {
    file.processes().map(|process| (process.pid, process.mark.clone())).collect()
}

fn gone(pids: &[(i32, std::path::PathBuf)]) -> bool {
    pids.iter().all(|(pid, mark)| !is_ours(*pid, mark))
}

/// A killed primary is replaced, returns, and everything ends with the cluster.
pub fn survives() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(ClusterOptions::new(dir.path())).expect("starts");
    let running = Cluster::find(dir.path()).expect("found");
    assert_eq!(running.file(), &cluster.file());
    let pids = pids(running.file());
    assert!(pids.len() == 4 && pids.iter().all(|(pid, mark)| is_ours(*pid, mark)));
    let mut client = connect(cluster.controllers());
    let table = create(&mut client, "durable");
    put(&mut client, &table, 0..50);
    cluster.kill(NodeId(1)).expect("killed");
    put(&mut client, &table, 50..100);
    check(&mut client, &table, 100);
    cluster.restart(NodeId(1)).expect("restarted");
    wait("all in sync", || in_sync(&mut client));
    alike(&mut client, &table);
    archived(&mut client);
    cluster.cut(NodeId(2)).expect("cut");
    put(&mut client, &table, 100..150);
    cluster.heal(NodeId(2)).expect("healed");
    wait("all in sync", || in_sync(&mut client));
    check(&mut client, &table, 150);
    alike(&mut client, &table);
    assert!(matches!(cluster.kill(NodeId(4)), Err(LocalError::NoNode { .. })));
    cluster.shutdown();
    assert!(gone(&pids));
    assert!(matches!(Cluster::find(dir.path()), Err(LocalError::NoCluster(_))));
}

/// A frozen primary loses its lead, and is a backup once it goes on.
pub fn frozen() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(ClusterOptions::new(dir.path())).expect("starts");
    let mut client = connect(cluster.controllers());
    let table = create(&mut client, "durable");
    put(&mut client, &table, 0..50);
    cluster.stop(NodeId(1)).expect("stopped");
    put(&mut client, &table, 50..100);
    let leads =
        |client: &Client| client.cluster_map().partitions().any(|record| record.primary.node == NodeId(1));
    assert!(!leads(&client));
    cluster.cont(NodeId(1)).expect("continued");
    wait("all in sync", || in_sync(&mut client));
    check(&mut client, &table, 100);
    alike(&mut client, &table);
}

/// Everything loses power at once, with what was not synced: `durable` has all of it.
pub fn power_loss() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = ClusterOptions::new(dir.path());
    options.volatile = true;
    let mut cluster = Cluster::start(options).expect("starts");
    let mut client = connect(cluster.controllers());
    let table = create(&mut client, "durable");
    put(&mut client, &table, 0..100);
    cluster.power_loss();
    cluster.restart_all().expect("restarted");
    let mut client = connect(cluster.controllers());
    let table = client.wait_table(table.name()).expect("serves again");
    check(&mut client, &table, 100);
    wait("all in sync", || in_sync(&mut client));
    alike(&mut client, &table);
}

/// Three controllers on a three-member etcd; one of each is lost with a node.
pub fn etcd() {
    if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
        return missing("etcd", "etcd is not installed");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = ClusterOptions::new(dir.path());
    (options.metastore, options.controllers) = (Metastore::Etcd, 3);
    let mut cluster = Cluster::start(options).expect("starts");
    let mut client = connect(cluster.controllers());
    let table = create(&mut client, "durable");
    put(&mut client, &table, 0..50);
    let file = cluster.file();
    file.etcd[0].signal(Signal::Kill).expect("killed");
    file.controllers[0].process.signal(Signal::Kill).expect("killed");
    cluster.kill(NodeId(1)).expect("killed");
    put(&mut client, &table, 50..100);
    check(&mut client, &table, 100);
    let pids = pids(&file);
    drop(cluster);
    assert!(gone(&pids));
}

/// The reason is that of the process, with its status.
pub fn does_not_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = ClusterOptions::new(dir.path());
    options.settings.push(("timing.grace_ms".into(), "10".into()));
    let error = Cluster::start(options).expect_err("the settings do not fit together");
    assert!(matches!(error, LocalError::NotStarted { .. }), "{error}");
    assert!(error.to_string().contains("grace"), "{error}");
    assert_eq!(error.exit_status(), 5);
}

fn start_dev(dir: &Path) -> (Child, Running) {
    let me = std::env::current_exe().expect("a path");
    let child = Command::new(me).arg("dev").arg(dir).stdout(Stdio::null()).spawn().expect("starts");
    wait("dev runs", || dir.join("dev.sock").exists());
    let running = Cluster::find(dir).expect("found");
    (child, running)
}

/// A restart returns when the node answers. Without a controller none does: then it says so, and whoever does
/// not wait is not kept. Leaves the cluster without its controller.
fn restarts(dir: &Path) {
    let restart = |wait| dev_command(dir, &DevCommand::Restart { node: "2".into(), full: false, wait });
    let running = || Running::find(dir).expect("found");
    let let_in = || {
        let address = running().file().nodes[1].addresses.http.clone();
        let answer = http::request("GET", &address, "/readyz?verbose", STEP_TIMEOUT);
        answer.expect("it listens").1.contains("[+]controllers")
    };
    assert_eq!(restart(true).expect("restarted"), "node 2 answers again");
    assert!(let_in());
    running().file().controllers[0].process.signal(Signal::Kill).expect("killed");
    assert_eq!(restart(false).expect("started"), "node 2 is started again");
    assert!(!let_in());
    let error = running().settle(NodeId(2), Duration::from_millis(300)).expect_err("no controller runs");
    assert_eq!(error.exit_status(), 4);
    assert!(error.to_string().contains("no controller has let it in yet"), "{error}");
}

/// Healing says what it has ended, and that it has ended nothing. Node 3 is the process of this id.
fn heals(dir: &Path, pid: i32) {
    let run = |command: DevCommand| dev_command(dir, &command).expect("done");
    let stop = || {
        run(DevCommand::Stop("3".into()));
        wait("it stands still", || is_stopped(pid));
    };
    let heal = || run(DevCommand::Heal("3".into()));
    stop();
    assert_eq!(heal(), "node 3 goes on; it was not cut off");
    assert_eq!(heal(), "node 3 was neither frozen nor cut off: nothing is changed");
    run(DevCommand::Cut("3".into()));
    assert_eq!(heal(), "node 3 reaches nodes 1, 2, controllers, clients again");
    run(DevCommand::Cut("3".into()));
    stop();
    assert_eq!(heal(), "node 3 goes on, and reaches nodes 1, 2, controllers, clients again");
}

/// `dev` is found and harmed from outside, restarts what it is asked to, and keeps data between runs.
pub fn dev() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path().join("dev");
    let (mut child, running) = start_dev(&dir);
    let mut client = connect(running.file().controller_addresses());
    let table = create(&mut client, "durable");
    put(&mut client, &table, 0..20);
    let run = |command: DevCommand| dev_command(&dir, &command);
    run(DevCommand::Kill("2".into())).expect("killed");
    assert_eq!(run(DevCommand::Stop("9".into())).expect_err("none").exit_status(), 3);
    put(&mut client, &table, 20..40);
    run(DevCommand::Restart { node: "n2".into(), full: false, wait: true }).expect("restarted");
    heals(&dir, running.file().nodes[2].process.pid);
    wait("all in sync", || in_sync(&mut client));
    restarts(&dir);
    run(DevCommand::PowerLoss).expect("all started again");
    let mut client = connect(Running::find(&dir).expect("found").file().controller_addresses());
    let table = client.wait_table(table.name()).expect("serves again");
    check(&mut client, &table, 40);
    let pids = pids(Running::find(&dir).expect("found").file());
    let me = std::env::current_exe().expect("a path");
    assert!(signal_ours(child.id() as i32, &me, Signal::Terminate));
    assert!(child.wait().expect("waited for").success());
    assert!(gone(&pids));
    assert!(matches!(run(DevCommand::Kill("1".into())), Err(LocalError::NoCluster(_))));
    let (mut child, running) = start_dev(&dir);
    let mut client = connect(running.file().controller_addresses());
    let table = client.wait_table("notes").expect("kept");
    check(&mut client, &table, 40);
    child.kill().expect("killed");
    child.wait().expect("waited for");
}

/// Clusters that start at the same time have ports of their own, whichever looks first.
pub fn dev_twice() {
    let temporary = tempfile::tempdir().expect("a directory");
    let me = std::env::current_exe().expect("a path");
    let dirs = [1, 2, 3].map(|number| temporary.path().join(format!("dev-{number}")));
    let mut devs = dirs
        .each_ref()
        .map(|dir| Command::new(&me).arg("dev").arg(dir).stdout(Stdio::null()).spawn().expect("starts"));
    let mut addresses: Vec<String> = Vec::new();
    for (dir, dev) in dirs.iter().zip(&mut devs) {
        wait("dev runs", || {
            assert!(dev.try_wait().expect("a child").is_none(), "dev ended in {}", dir.display());
            dir.join("dev.sock").exists()
        });
        let file = Cluster::find(dir).expect("found").file().clone();
        addresses.extend(file.controller_addresses());
        addresses.extend(file.nodes.into_iter().map(|node| node.addresses.client));
    }
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 12, "{addresses:?}");
    for mut dev in devs {
        dev.kill().expect("killed");
        dev.wait().expect("waited for");
    }
}

/// A port that somebody else took meanwhile is given up, at a restart of one node and at a later start of
/// all.
pub fn ports_taken() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path().join("dev");
    let (mut child, running) = start_dev(&dir);
    let before = running.file().clone();
    dev_command(&dir, &DevCommand::Kill("2".into())).expect("killed");
    let of_node = before.nodes[1].addresses.client.clone();
    let taken = holds(&of_node);
    let restart = DevCommand::Restart { node: "2".into(), full: false, wait: true };
    let said = dev_command(&dir, &restart).expect("restarted");
    assert!(said.contains(&format!("node 2, client: another process has {of_node} now")), "{said}");
    let after = Running::find(&dir).expect("found").file().clone();
    assert_ne!(after.nodes[1].addresses.client, of_node);
    assert_eq!(after.nodes[1].addresses.http, before.nodes[1].addresses.http);
    let me = std::env::current_exe().expect("a path");
    assert!(signal_ours(child.id() as i32, &me, Signal::Terminate));
    assert!(child.wait().expect("waited for").success());
    let of_controller = before.controllers[0].address.clone();
    let taken = [taken, holds(&of_controller)];
    let (mut child, running) = start_dev(&dir);
    let last = running.file();
    assert_ne!(last.controllers[0].address, of_controller);
    assert_eq!(last.nodes[0].addresses, before.nodes[0].addresses);
    assert_eq!(last.nodes[1].addresses, after.nodes[1].addresses);
    let mut client = connect(last.controller_addresses());
    create(&mut client, "durable");
    drop(taken);
    child.kill().expect("killed");
    child.wait().expect("waited for");
}

/// Takes a port that was just given up: its last connections may not be gone yet.
fn holds(address: &str) -> TcpListener {
    let mut held = None;
    wait("the port is free", || {
        held = TcpListener::bind(address).ok();
        held.is_some()
    });
    held.expect("just bound")
}

/// The kernel ends what a killed `dev` had started.
pub fn dev_killed() {
    let temporary = tempfile::tempdir().expect("a directory");
    let (mut child, running) = start_dev(&temporary.path().join("dev"));
    let pids = pids(running.file());
    assert!(pids.iter().all(|(pid, mark)| is_ours(*pid, mark)));
    child.kill().expect("killed");
    child.wait().expect("waited for");
    wait("everything is gone", || gone(&pids));
}
