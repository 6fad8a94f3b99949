//! Our side: a cluster of our own or one that runs already, tables in it, and ten closed-loop lanes of one
//! client.

use crate::closed::{self, Asking};
use crate::costs::{self, CallCounts};
use crate::error::BenchError;
use crate::generate::{Step, Steps, Values, Workload, key};
use crate::options::Common;
use crate::quota::Quota;
use crate::subject::{Counters, Load, Sources, Subject, Way};
use client::{Call, Client, Database, LoadOptions, Options, Outcome, Table};
use local::{Cluster, ClusterOptions};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::random::Random;
use types::{EngineKind, LogKind, NodeId, Ship};
use wire::control::{AdminCommand, ClusterStatus, CreateTable};
use wire::{Body, Op, ReadLevel};

/// How long the cluster may take for anything that is not under load.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// How long a node may take to tell its counters.
const ASK_LIMIT: Duration = Duration::from_secs(2);

/// Which cluster is used.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Target {
    /// `--connect HOST:PORT`: controllers of a cluster that runs. Empty: one is started for the bench and
    /// stopped after it.
    pub connect: Vec<String>,
    /// The program with the subcommands `node` and `controller`. `None`: the one that runs now.
    pub binary: Option<PathBuf>,
    /// `--nodes N`: nodes of a started cluster. 0 stands for 3.
    pub nodes: u32,
    /// Nodes of a started cluster can be cut off.
    pub faults: bool,
    /// `--set SECTION.KEY=VALUE`: settings of a started cluster's processes over the defaults.
    pub settings: Vec<(String, String)>,
}

/// A table as a bench wants it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableKind {
    /// The policy's name.
    pub policy: String,
    /// Copies.
    pub factor: u8,
    /// Engine.
    pub engine: EngineKind,
    /// Where its log lies.
    pub log: LogKind,
    /// Partitions.
    pub partitions: u32,
    /// What backups are sent of calls.
    pub ship: Ship,
}

impl TableKind {
    /// A main-memory table: engine and log in memory.
    pub fn main_memory(policy: &str, factor: u8, partitions: u32) -> TableKind {
        let (engine, log) = (EngineKind::Memory, LogKind::Memory);
        TableKind { policy: policy.into(), factor, engine, log, partitions, ship: Ship::Effects }
    }

    /// A `durable` table with three copies.
    pub fn durable(engine: EngineKind, partitions: u32) -> TableKind {
        let (policy, log, ship) = ("durable".into(), LogKind::Disk, Ship::Effects);
        TableKind { policy, factor: 3, engine, log, partitions, ship }
    }

    /// In a few words.
    pub fn in_words(&self) -> String {
        let log = match self.log {
            LogKind::Disk => "disk",
            LogKind::Memory => "memory",
        };
        let engine = self.engine.name();
        let ship = if self.ship.is_effects() { "" } else { ", calls shipped" };
        format!("{} factor {}, engine {engine}, log {log}{ship}", self.policy, self.factor)
    }
}

/// A cluster and a client of it. Its subjects share both.
pub struct Ours {
    client: Client,
    controllers: Vec<String>,
    /// Stopped when dropped. None for a cluster that others run.
    cluster: Option<Cluster>,
    // Behind the cluster, whose processes it limits.
    quota: Option<Quota>,
    tables: u32,
    /// Whether nodes count what they send.
    counts_bytes: bool,
    /// How many nodes it has.
    nodes: u32,
    // Behind the cluster: removed after it was stopped.
    folder: Option<TempDir>,
}

/// A cluster that several subjects use in turn.
pub type Shared = Rc<RefCell<Ours>>;

impl Ours {
    /// Connects, starting a cluster first unless there is one.
    pub fn start(common: &Common, target: &Target) -> Result<Shared, BenchError> {
        let (mut cluster, mut folder) = (None, None);
        let mut controllers = target.connect.clone();
        if controllers.is_empty() {
            let own = common.folder("cluster")?;
            let mut options = ClusterOptions::new(own.path().join("cluster"));
            options.faults = target.faults;
            options.nodes = if target.nodes == 0 { 3 } else { target.nodes };
            options.settings = target.settings.clone();
            options.binary = target.binary.clone().unwrap_or(options.binary);
            let started = Cluster::start(options)?;
            controllers = started.controllers();
            (cluster, folder) = (Some(started), Some(own));
        }
        let client = connect(&controllers)?;
        let quota = None;
        let ours =
            Ours { client, controllers, cluster, quota, tables: 0, counts_bytes: false, nodes: 0, folder };
        Ok(Rc::new(RefCell::new(ours)))
    }

    /// The folder whose disk the nodes use, where it is known.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(TempDir::path)
    }

    /// The processes of a started cluster, to do something to them.
    pub(crate) fn cluster(&mut self) -> Result<&mut Cluster, BenchError> {
        let none = || BenchError::Usage("nodes fail in a cluster of its own alone".into());
        self.cluster.as_mut().ok_or_else(none)
    }

    /// Where the nodes of a started cluster take SQL.
    pub(crate) fn sql_addresses(&self) -> Result<Vec<String>, BenchError> {
        let cluster = self.cluster.as_ref();
        let cluster =
            cluster.ok_or_else(|| BenchError::Usage("SQL is measured on a cluster of its own".into()))?;
        let url = cluster.sql_url()?;
        let (_, rest) = url.split_once('@').unwrap_or(("", &url));
        let (addresses, _) = rest.split_once('/').unwrap_or((rest, ""));
        Ok(addresses.split(',').map(str::to_string).collect())
    }

    /// Gives each node of a started cluster so many percent of a processor. The error says why it has not.
    pub(crate) fn limit(&mut self, percent: u32) -> Result<(), String> {
        let cluster = self.cluster.as_ref().ok_or("the cluster's processes are not ours")?;
        let file = cluster.file();
        let nodes: Vec<u32> = file.nodes.iter().map(|node| node.process.pid.unsigned_abs()).collect();
        self.quota = Some(Quota::of(&nodes, percent)?);
        Ok(())
    }

    /// The processes of a started cluster.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let file = self.cluster.as_ref().map(Cluster::file);
        file.iter().flat_map(|file| file.processes()).map(|process| process.pid.unsigned_abs()).collect()
    }

    /// The columns of a record.
    fn columns() -> Schema {
        let columns = vec![
            Column::new("k", ColumnType::Text).not_null(),
            Column::new("v", ColumnType::Bytes).not_null(),
        ];
        Schema::new(columns, &["k"], 1, false).expect("the key is one of the columns")
    }

    /// A name for what is made. Other runs may have left tables in a cluster that is not ours.
    pub(crate) fn fresh_name(&mut self) -> String {
        self.tables += 1;
        format!("bench_{}_{}", std::process::id(), self.tables)
    }

    /// What is to be made for a bench.
    fn request(&mut self, kind: &TableKind, request: impl Fn(&str, &str) -> CreateTable) -> CreateTable {
        let name = self.fresh_name();
        CreateTable {
            engine: kind.engine,
            log: kind.log,
            factor: Some(kind.factor),
            partitions: kind.partitions,
            ship: kind.ship,
            ..request(&name, &kind.policy)
        }
    }

    /// Creates a table with every record in it.
    pub(crate) fn table(&mut self, kind: &TableKind, workload: &Workload) -> Result<Table, BenchError> {
        let request = self.request(kind, |name, policy| CreateTable::new(name, Ours::columns(), policy));
        let table = self.client.create_table(&request)?;
        self.fill(&table, workload)?;
        Ok(table)
    }

    /// Creates a database of one partition, and a table `records` in it with every record.
    pub(crate) fn database(
        &mut self,
        kind: &TableKind,
        workload: &Workload,
    ) -> Result<(Database, Table), BenchError> {
        let (database, table) = self.empty_database(kind, "records", Ours::columns())?;
        self.fill(&table, workload)?;
        Ok((database, table))
    }

    /// Creates a database of one partition, and a table in it.
    pub(crate) fn empty_database(
        &mut self,
        kind: &TableKind,
        name: &str,
        columns: Schema,
    ) -> Result<(Database, Table), BenchError> {
        let request = self.request(kind, CreateTable::database);
        let database = self.client.create_database(&request)?;
        let table = self.client.create_table_in(&database, name, columns)?;
        Ok((database, table))
    }

    fn fill(&mut self, table: &Table, workload: &Workload) -> Result<(), BenchError> {
        let values = Values::new(workload.seed, workload.value_bytes);
        let mut random = Random::new(workload.seed);
        let mut loader = self.client.load(table, LoadOptions::default());
        for record in 0..workload.records {
            loader.add(&mut self.client, &row(record, &values.draw(&mut random)))?;
        }
        let loaded = loader.finish(&mut self.client)?;
        if loaded.rows != workload.records {
            return Err(BenchError::Wrong(format!(
                "{} of {} records were loaded",
                loaded.rows, workload.records
            )));
        }
        self.look()
    }

    /// Looks at how many nodes there are, and what they count.
    pub(crate) fn look(&mut self) -> Result<(), BenchError> {
        let status = self.status()?;
        self.counts_bytes = status.nodes.iter().any(|(node, _)| node.sent_bytes > 0);
        self.nodes = status.nodes.len() as u32;
        Ok(())
    }

    /// The one client that all subjects share.
    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// What the nodes and the client have counted.
    pub(crate) fn counters(&mut self) -> Result<Counters, BenchError> {
        let status = self.status()?;
        let sum = |figure: fn(&wire::control::NodeStatus) -> u64| {
            status.nodes.iter().map(|(node, _)| figure(node)).sum()
        };
        let sent: u64 = sum(|node| node.sent_bytes);
        let sent = self.counts_bytes.then_some(sent + self.client.traffic().sent);
        let remote_cpu_us = if self.cluster.is_none() { sum(|node| node.cpu_us) } else { 0 };
        let calls = self.server_calls();
        Ok(Counters {
            wire_bytes: sent,
            fsyncs: Some(sum(|node| node.fsyncs)),
            remote_cpu_us,
            fsync_us: calls.map(|(_, fsync_us)| fsync_us),
            server_calls: calls.map(|(calls, _)| calls),
            generator_calls: Some(CallCounts::of_client(self.client.traffic())),
        })
    }

    /// The system calls that all nodes have counted, and the microseconds that their fsyncs took. `None` if
    /// one of them does not tell.
    fn server_calls(&self) -> Option<(CallCounts, u64)> {
        let mut all = (CallCounts::default(), 0);
        for node in self.client.cluster_map().nodes() {
            let asked = local::http::request("GET", &node.addresses.http, "/metrics", ASK_LIMIT);
            let (calls, fsync_us) = costs::parse_metrics(&asked.ok()?.1)?;
            all = (all.0.plus(calls), all.1 + fsync_us);
        }
        Some(all)
    }

    /// Who counts what [`Ours::counters`] says.
    pub(crate) fn sources(&self) -> Sources {
        let wire = match self.counts_bytes {
            true => "the client's count of what it sent, and NodeStatus.sent_bytes",
            false => "",
        };
        Sources { wire, fsyncs: "NodeStatus.fsyncs of all nodes" }
    }

    /// How an operation goes through a table of this kind.
    pub(crate) fn way(&self, kind: &TableKind, write_percent: u8) -> Way {
        // The others answer as soon as the primary has done its part.
        let acknowledged = ["semi", "durable", "sync"].contains(&kind.policy.as_str());
        Way::of_copies(kind.factor.into(), self.nodes, acknowledged, write_percent)
    }

    /// Fsyncs of all nodes.
    pub(crate) fn fsyncs(&mut self) -> Result<u64, BenchError> {
        Ok(self.status()?.nodes.iter().map(|(node, _)| node.fsyncs).sum())
    }

    /// Refuses a table of which a replica has other rows than the primary. Nobody may write meanwhile.
    pub(crate) fn check_replicas(&mut self, name: &str) -> Result<(), BenchError> {
        let table = self.client.table(name)?;
        for partition in table.partitions() {
            let primary = self.client.call(table.call(partition, Op::Digest))?;
            let nodes: Vec<NodeId> = match self.client.cluster_map().partition(partition) {
                Some(record) => record.in_sync.iter().map(|member| member.node).collect(),
                None => Vec::new(),
            };
            let read = ReadLevel::Any { max_lag_ms: 5_000, min_lsn: primary.lsn };
            for node in nodes {
                let digest = self.client.replica_read(&table, node, partition, Op::Digest, read)?.body;
                if digest != primary.body {
                    return Err(BenchError::Wrong(format!("{name}: {node} has other rows of {partition}")));
                }
            }
        }
        Ok(())
    }

    /// Every node's status, made after this was asked.
    fn status(&mut self) -> Result<ClusterStatus, BenchError> {
        fresh_status(&mut self.client)
    }
}

/// Every node's status, made after this was asked.
pub(crate) fn fresh_status(client: &mut Client) -> Result<ClusterStatus, BenchError> {
    let asked = Instant::now();
    loop {
        let text = client.admin(AdminCommand::Status)?;
        let status: ClusterStatus = serde_json::from_str(&text)
            .map_err(|error| BenchError::Wrong(format!("the cluster's status cannot be read: {error}")))?;
        let since = asked.elapsed();
        if status.nodes.iter().all(|(_, age)| u128::from(*age) < since.as_millis()) {
            return Ok(status);
        }
        if since > WAIT_LIMIT {
            return Err(BenchError::Wrong("a node's status has not come for 30 seconds".into()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A client of a cluster.
pub(crate) fn connect(controllers: &[String]) -> Result<Client, client::ClientError> {
    let controllers = controllers.to_vec();
    let secret = local::secret();
    Client::connect(Options { controllers, secret, timeout: WAIT_LIMIT, wait: true, ..Options::default() })
}

/// A record as a row.
pub(crate) fn row(record: u64, value: &[u8]) -> Row {
    Row::new(vec![Value::Text(key(record)), Value::Bytes(value.to_vec())])
}

/// A table under load.
pub struct TableUnderLoad {
    shared: Shared,
    table: Table,
    /// Where it lies, if it has no partition of its own.
    place: &'static str,
    kind: TableKind,
    steps: Steps,
    update_percent: u8,
    value_bytes: usize,
    clients: u32,
}

impl TableUnderLoad {
    /// Makes the table and loads it. `clients` closed-loop clients are as many lanes of the shared client.
    pub fn new(
        shared: &Shared,
        kind: &TableKind,
        workload: &Workload,
        clients: u32,
    ) -> Result<TableUnderLoad, BenchError> {
        let table = shared.borrow_mut().table(kind, workload)?;
        Ok(TableUnderLoad::of(shared, (table, ""), kind, workload, clients))
    }

    /// The same in a database of one partition, which has so many tables, all others empty.
    pub fn inside(
        shared: &Shared,
        kind: &TableKind,
        workload: &Workload,
        clients: u32,
        tables: u32,
    ) -> Result<TableUnderLoad, BenchError> {
        let mut ours = shared.borrow_mut();
        let (database, table) = ours.database(kind, workload)?;
        for number in 1..tables {
            ours.client.create_table_in(&database, &format!("other_{number}"), Ours::columns())?;
        }
        drop(ours);
        let place = if tables > 1 { ", among many tables of a database" } else { ", in a database" };
        Ok(TableUnderLoad::of(shared, (table, place), kind, workload, clients))
    }

    fn of(
        shared: &Shared,
        (table, place): (Table, &'static str),
        kind: &TableKind,
        workload: &Workload,
        clients: u32,
    ) -> TableUnderLoad {
        TableUnderLoad {
            shared: shared.clone(),
            table,
            place,
            kind: kind.clone(),
            steps: Steps::new(workload),
            update_percent: workload.update_percent,
            value_bytes: workload.value_bytes,
            clients,
        }
    }

    /// The same table once more, for clients that are connected in another way.
    pub(crate) fn again(&self, workload: &Workload) -> TableUnderLoad {
        let table = (self.table.clone(), self.place);
        TableUnderLoad::of(&self.shared, table, &self.kind, workload, self.clients)
    }

    /// The table's name.
    pub(crate) fn name(&self) -> &str {
        self.table.name()
    }

    /// What the table is, in a few words.
    pub(crate) fn kind(&self) -> String {
        self.kind.in_words()
    }

    /// Goes on with another mix over the same records.
    pub fn set_workload(&mut self, workload: &Workload) {
        self.steps = Steps::new(workload);
        self.update_percent = workload.update_percent;
    }

    /// How many closed-loop clients it has.
    pub(crate) fn clients(&self) -> u32 {
        self.clients
    }

    /// Settings that do not depend on how clients are connected.
    pub(crate) fn about(&self) -> String {
        format!("{} partitions; reads at committed, from the primary", self.kind.partitions)
    }

    /// A client with connections of its own to the same cluster.
    pub(crate) fn another_client(&self) -> Result<Client, BenchError> {
        Ok(connect(&self.shared.borrow().controllers)?)
    }
}

impl Asking for TableUnderLoad {
    fn call(&mut self) -> Result<Call, BenchError> {
        Ok(match self.steps.step() {
            Step::Read { record } => self.table.get(&[Value::Text(key(record))])?,
            Step::Update { record, value } => self.table.put(&row(record, &value))?,
        })
    }

    fn check(&mut self, outcome: &Outcome) -> Result<(), BenchError> {
        let wrong = |what: String| Err(BenchError::Wrong(format!("{}: {what}", self.kind.in_words())));
        match outcome {
            Outcome::Ok(answer) => match &answer.body {
                Body::Affected(1) => Ok(()),
                Body::Row(Some((_, row))) if row.len() >= self.value_bytes => Ok(()),
                other => wrong(format!("an operation was answered with {other:?}")),
            },
            other => wrong(format!("an operation under load ended with {other:?}")),
        }
    }
}

impl Subject for TableUnderLoad {
    fn label(&self) -> String {
        let what = match self.update_percent {
            0 => "get".into(),
            100 => "put".into(),
            percent => format!("{percent} % put, the rest get"),
        };
        format!("understudy {}{}, {what}", self.kind.in_words(), self.place)
    }

    fn settings(&self) -> String {
        format!(
            "{}; {} clients are lanes of one client on one thread: they share one connection to each node, and what they ask at \
             the same moment is one write",
            self.about(),
            self.clients
        )
    }

    fn processes(&self) -> Vec<u32> {
        self.shared.borrow().processes()
    }

    fn sources(&self) -> Sources {
        self.shared.borrow().sources()
    }

    fn way(&self) -> Way {
        self.shared.borrow().way(&self.kind, self.update_percent)
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        self.shared.borrow_mut().counters()
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        let shared = self.shared.clone();
        let mut ours = shared.borrow_mut();
        closed::drive(&mut ours.client, self.clients, time, self)
    }
}
