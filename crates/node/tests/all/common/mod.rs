//! A small cluster on threads of the test's process: every node with its own directory, real sockets, real
//! files.

#![allow(dead_code, reason = "each test uses its own part")]

pub mod psql;
pub mod raw;
pub mod talk;

use client::{Client, ClientError, FailKind, Options, Table};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::{EngineKind, LogKind, NodeId, PartitionId};
use understudy_node::config::Config;
use understudy_node::failure::Failure;
use understudy_node::stop::Stop;
use understudy_node::{controller_process, datadir};
use wire::control::{AdminCommand, ClusterStatus, CreateTable, NodeStatus, Role};

/// Longer than anything here should take on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

/// A process with ports of the system's choice and no SQL, with these settings besides.
pub fn config(settings: &[(&str, &str)]) -> Config {
    let mut all = vec![
        ("controller.listen", "127.0.0.1:0"),
        ("node.listen_client", "127.0.0.1:0"),
        ("node.listen_peer", "127.0.0.1:0"),
        ("node.listen_heartbeat", "127.0.0.1:0"),
        ("node.listen_http", "127.0.0.1:0"),
        ("sql.listen", "off"),
        // The same on every machine, whatever its cores allow.
        ("node.executors", "1"),
        ("log.segment_bytes", "4194304"),
    ];
    all.extend(settings);
    Config::with(&all).expect("a good configuration")
}

pub struct Cluster {
    pub dir: tempfile::TempDir,
    pub controller: Option<controller_process::Running>,
    pub nodes: Vec<Option<understudy_node::node::Running>>,
    pub settings: Vec<(String, String)>,
    /// Nodes have a second directory for replicas.
    second: bool,
}

impl Cluster {
    /// Three nodes and a controller.
    pub fn start() -> Cluster {
        Cluster::with(3, &[])
    }

    /// So many nodes, with these settings.
    pub fn with(nodes: u32, settings: &[(&str, &str)]) -> Cluster {
        Cluster::within(tempfile::tempdir().expect("a directory"), nodes, settings)
    }

    /// The same in a directory of one's choice.
    pub fn within(dir: tempfile::TempDir, nodes: u32, settings: &[(&str, &str)]) -> Cluster {
        Cluster::begin(dir, nodes, settings, false)
    }

    /// So many nodes, each with a second directory for replicas.
    pub fn with_second(nodes: u32, settings: &[(&str, &str)]) -> Cluster {
        Cluster::begin(tempfile::tempdir().expect("a directory"), nodes, settings, true)
    }

    /// The same in a directory of one's choice.
    pub fn with_second_within(dir: tempfile::TempDir, nodes: u32, settings: &[(&str, &str)]) -> Cluster {
        Cluster::begin(dir, nodes, settings, true)
    }

    fn begin(dir: tempfile::TempDir, nodes: u32, settings: &[(&str, &str)], second: bool) -> Cluster {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let mut cluster = Cluster { dir, controller: None, nodes: Vec::new(), settings, second };
        understudy_node::init_controller(&cluster.dir.path().join("controller")).expect("initialises");
        cluster.start_controller();
        for number in 1..=nodes {
            understudy_node::init_node(&cluster.node_dir(number), NodeId(number)).expect("initialises");
            if second {
                std::fs::create_dir(cluster.second_dir(number)).expect("makes");
            }
            cluster.nodes.push(None);
            cluster.start_node(number);
        }
        cluster
    }

    pub fn node_dir(&self, number: u32) -> PathBuf {
        self.dir.path().join(format!("node-{number}"))
    }

    pub fn second_dir(&self, number: u32) -> PathBuf {
        self.dir.path().join(format!("disk-{number}"))
    }

    pub fn start_controller(&mut self) {
        let dir = self.dir.path().join("controller");
        let config = self.config(&[("controller.data_dir", dir.to_str().expect("a name"))]);
        self.controller = Some(controller_process::start(config).expect("the controller starts"));
    }

    fn config(&self, own: &[(&str, &str)]) -> Config {
        let settings = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        config(&settings.chain(own.iter().copied()).collect::<Vec<_>>())
    }

    pub fn node_config(&self, number: u32) -> Config {
        let dir = self.node_dir(number);
        let (controller, second) = (self.controller_address(), self.second_dir(number));
        let mut own =
            vec![("node.data_dir", dir.to_str().expect("a name")), ("node.controllers", &controller)];
        if self.second {
            own.push(("node.data_dirs", second.to_str().expect("a name")));
        }
        self.config(&own)
    }

    pub fn start_node(&mut self, number: u32) {
        let running = understudy_node::node::start(self.node_config(number)).expect("the node starts");
        self.nodes[number as usize - 1] = Some(running);
    }

    pub fn controller_address(&self) -> String {
        let ports = datadir::Ports::read(&self.dir.path().join("controller")).expect("it has ports");
        ports.address("controller").expect("it listens").to_string()
    }

    /// A node that runs.
    pub fn node(&self, number: u32) -> &understudy_node::node::Running {
        self.nodes[number as usize - 1].as_ref().expect("it runs")
    }

    /// Ends a node as a kill would.
    pub fn kill(&mut self, number: u32) {
        let node = self.nodes[number as usize - 1].take().expect("it runs");
        node.stopper().ask(Stop::Now);
        node.wait().unwrap_err();
    }

    /// Waits for a node to end by itself.
    pub fn ends(&mut self, number: u32) -> Result<(), Failure> {
        let node = self.nodes[number as usize - 1].take().expect("it runs");
        let (to, ended) = std::sync::mpsc::channel();
        let stopper = node.stopper().clone();
        let waits = std::thread::spawn(move || to.send(node.wait()).expect("somebody waits"));
        let outcome = ended.recv_timeout(LONG).or_else(|_| {
            stopper.ask(Stop::Now);
            ended.recv().map(|ended| panic!("it did not end by itself: {ended:?}"))
        });
        waits.join().expect("it waited");
        outcome.expect("it told how it ended")
    }

    /// Blocks what a node receives of a replica in `dir` that is not primary: the place of its files is no
    /// directory. Gives whose.
    pub fn block_receiving(&self, client: &mut Client, number: u32, dir: &Path) -> PartitionId {
        let engine = |id: PartitionId| dir.join("partitions").join(id.0.to_string()).join("engine");
        let backed_up = |status: &ClusterStatus| {
            let mut replicas = of_node(status, number).into_iter().flat_map(|node| &node.replicas);
            let backup = replicas
                .find(|replica| replica.role == Role::Backup && engine(replica.partition).is_dir())?;
            Some(backup.partition)
        };
        let status = wait_for(client, "a backup's files", |status| backed_up(status).is_some());
        let id = backed_up(&status).expect("just seen");
        // Something may be on its way just now.
        let deadline = Instant::now() + LONG;
        while std::fs::write(engine(id).join("incoming"), "no directory").is_err() {
            assert!(Instant::now() < deadline, "something is on its way all the time");
            std::thread::yield_now();
        }
        id
    }

    /// Ends a node gently.
    pub fn stop(&mut self, number: u32) {
        let node = self.nodes[number as usize - 1].take().expect("it runs");
        node.stopper().ask(Stop::Gently);
        node.wait().expect("it ends well");
    }

    pub fn client(&self) -> Client {
        let controllers = vec![self.controller_address()];
        let options = Options { controllers, wait: true, timeout: LONG, ..Options::default() };
        Client::connect(options).expect("connects")
    }

    /// A client that sees all nodes registered.
    pub fn ready(&self) -> Client {
        let mut client = self.client();
        let wanted = self.nodes.iter().flatten().count();
        wait_for(&mut client, "every node to register", |status| status.nodes.len() == wanted);
        client
    }
}

/// Asks for the cluster's status until it is as wanted.
pub fn wait_for(
    client: &mut Client,
    what: &str,
    mut wanted: impl FnMut(&ClusterStatus) -> bool,
) -> ClusterStatus {
    let deadline = Instant::now() + LONG;
    loop {
        let text = client.admin(AdminCommand::Status).expect("the controller answers");
        let status: ClusterStatus = serde_json::from_str(&text).expect("a status");
        if wanted(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "waited for {what} in vain: {status:#?}");
        client.poll(Duration::from_millis(5)).expect("polls");
    }
}

/// True if every partition has so many copies in sync.
pub fn in_sync(status: &ClusterStatus, copies: usize) -> bool {
    !status.partitions.is_empty() && status.partitions.iter().all(|record| record.in_sync.len() == copies)
}

/// The newest status of a node.
pub fn of_node(status: &ClusterStatus, number: u32) -> Option<&NodeStatus> {
    status.nodes.iter().map(|(node, _)| node).find(|node| node.member.node == NodeId(number))
}

/// How many partitions this node leads.
pub fn leads(status: &ClusterStatus, number: u32) -> usize {
    let replicas = of_node(status, number).map(|node| node.replicas.as_slice()).unwrap_or_default();
    replicas.iter().filter(|replica| replica.role == Role::Primary).count()
}

pub fn create(name: &str, policy: &str, engine: EngineKind, log: LogKind) -> CreateTable {
    let columns = vec![Column::new("id", ColumnType::Int), Column::new("value", ColumnType::Text)];
    CreateTable {
        engine,
        log,
        partitions: 4,
        ..CreateTable::new(name, Schema::new(columns, &["id"], 1, false).expect("a schema"), policy)
    }
}

pub fn row(id: i64, value: &str) -> Row {
    Row::new(vec![Value::Int(id), Value::Text(value.into())])
}

/// Writes rows `from..to`, all at once, and waits for every acknowledgement.
pub fn put_all(client: &mut Client, table: &Table, from: i64, to: i64, value: &str) {
    let deadline = Instant::now() + LONG;
    loop {
        let calls = (from..to).map(|id| table.put(&row(id, value)).expect("encodes")).collect();
        match client.all(calls) {
            // Copies that were not run for a moment are let in again. What was refused so was not done.
            Err(ClientError::Failed { kind: FailKind::TooFewCopies, .. }) if Instant::now() < deadline => {}
            outcome => return drop(outcome.expect("every write is acknowledged")),
        }
    }
}
