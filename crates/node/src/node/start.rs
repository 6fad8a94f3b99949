//! From a configuration to a running node: the directory, the log, the engines, the doors, the threads.

use super::Node;
use super::checkpoints::Checkpoints;
use super::connections::{Connections, Who};
use super::data_dirs::Metas;
use super::ending::Ending;
use super::faults::Faults;
use super::links::{Links, Listeners, WAKER};
use super::mailbox::Others;
use super::peers::Controllers;
use super::records::Records;
use super::replicas::Replicas;
use super::reports::{Reports, ThisNode};
use super::room::Room;
use super::storage::Storage;
use super::tails::Tails;
use super::timer::Timer;
use super::view::View;
use crate::clock;
use crate::config::Config;
use crate::datadir::{DataDir, Kind, Ports};
use crate::descriptors;
use crate::failure::Failure;
use crate::http::HttpThread;
use crate::journal::Journal;
use crate::lease_manager::{HeartbeatThread, SharedLeases};
use crate::metrics::Metrics;
use crate::net::{FaultInjection, listen};
use crate::shared_status::SharedStatus;
use crate::sql::SqlThread;
use crate::stop::{Stop, Stopper, Watched};
use crate::stores;
use crate::tails;
use crate::timed_files::TimedFiles;
use crate::web::Web;
use ::sql::Programs;
use ::sql::txn::SpillSettings;
use client::LocalNode;
use mio::{Poll, Waker};
use replica::{Budgets, Host, Replica};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use types::config::{Addresses, TailReport};
use types::engine::Wake;
use types::{Executors, Member, Now, PartitionId};
use wal::{Files, Log, LogError, Owner, RealFiles, VolatileFiles};

/// A node that runs on threads of this process.
pub struct Running {
    shared_status: Arc<SharedStatus>,
    ports: Ports,
    local: LocalNode,
    thread: Option<JoinHandle<Result<(), Failure>>>,
    _http: HttpThread,
    /// Its clients are told when the executor has ended.
    _sql: Option<SqlThread>,
}

impl Running {
    /// Where it listens.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Its board.
    pub fn shared_status(&self) -> &Arc<SharedStatus> {
        &self.shared_status
    }

    /// It, for clients in this process: they reach it without a socket ([`client::Options::local`]).
    pub fn local(&self) -> LocalNode {
        self.local.clone()
    }

    /// Asks it to end.
    pub fn stopper(&self) -> &Stopper {
        &self.shared_status.stop
    }

    /// Waits until it has ended.
    pub fn wait(mut self) -> Result<(), Failure> {
        self.thread.take().expect("waited for once").join().expect("the executor panicked")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared_status.stop.ask(Stop::Now);
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// The sockets at which a node listens.
struct Sockets {
    client: TcpListener,
    peer: TcpListener,
    heartbeat: TcpListener,
    http: TcpListener,
    /// `None`: off.
    sql: Option<TcpListener>,
    addresses: Addresses,
}

/// Starts a node. It has recovered and listens when this returns; it looks for its controllers from then on.
pub fn start(config: Config) -> Result<Running, Failure> {
    let system = |error: std::io::Error| Failure::new(1, format!("the node cannot start: {error}"));
    if config.node.controllers.is_empty() {
        return Err(Failure::usage("node.controllers names no controller"));
    }
    let connections = descriptors::connections(&config, descriptors::raise_limit());
    let mut dir = DataDir::open(&config.node.data_dir, Kind::Node)?;
    let me = dir.identity().member();
    if let Some(wanted) = config.node.id.filter(|wanted| *wanted != me.node) {
        return Err(Failure::refused(format!(
            "{} is the directory of node {}, not of node {}",
            dir.root().display(),
            me.node.0,
            wanted.0
        )));
    }
    let metas = stores::load(&dir)?.into_iter().map(|meta| (meta.partition, meta)).collect();
    dir.open_data_dirs(&config.node.data_dirs, &metas)?;
    let (sockets, ports) = open_sockets(&config, &dir)?;
    let metrics = Arc::new(Metrics::default());
    let faults = Arc::new(FaultInjection::default());
    let executors = config.node.executors;
    let come_in = (me, sockets.client, sockets.peer);
    let (links, wakers, local) = event_loops(executors, come_in, connections, &metrics).map_err(system)?;
    let played = config.node.faults.then(|| faults.clone());
    let stopper = Stopper::new(wakers[executors.coordinator()].clone());
    let shared_status = Arc::new(SharedStatus::new(me, metrics, played, stopper.clone()));
    let lease_manager = HeartbeatThread::start(me, executors, &config, sockets.heartbeat, faults, &stopper)?;
    let sql = sql_thread(&config, sockets.sql, &local, &shared_status).map_err(system)?;
    let web = Web::new(shared_status.clone(), cluster(&config, "web"), config.node.operator_token.clone());
    let root = dir.root().to_owned();
    let heartbeats = (lease_manager, sockets.addresses);
    let nodes = recover(config, (dir, metas), shared_status.clone(), (links, wakers), heartbeats)?;
    let http = HttpThread::start(sockets.http, shared_status.clone(), web).map_err(system)?;
    ports.write(&root).map_err(|error| Failure::io(&root, &error))?;
    let name = format!("node-{}", me.node.0);
    let run = {
        let name = name.clone();
        move || run_all(nodes, &name, &stopper)
    };
    let spawned = std::thread::Builder::new().name(name).spawn(run);
    let thread = Some(spawned.map_err(system)?);
    Ok(Running { shared_status, ports, local, thread, _http: http, _sql: sql })
}

/// The connections of each executor, and what wakes it. The coordinator, which is the last one, listens, for
/// clients of this process as well: those connect by the last part.
fn event_loops(
    executors: Executors,
    (me, clients, peers): (Member, TcpListener, TcpListener),
    connections: usize,
    metrics: &Arc<Metrics>,
) -> std::io::Result<(Vec<Links>, Vec<Arc<Waker>>, LocalNode)> {
    let polls = (0..executors.threads()).map(|_| Poll::new()).collect::<std::io::Result<Vec<Poll>>>()?;
    let waker = |poll: &Poll| Waker::new(poll.registry(), WAKER).map(Arc::new);
    let wakers = polls.iter().map(waker).collect::<std::io::Result<Vec<Arc<Waker>>>>()?;
    let coordinator = executors.coordinator();
    let (listener, local) = client::local::listen(me, wake_by(wakers[coordinator].clone(), metrics));
    let mut listeners = Some(Listeners::new(clients, peers, listener));
    let mut links = Vec::new();
    for (number, (poll, waker)) in polls.into_iter().zip(&wakers).enumerate() {
        let listeners = if number == coordinator { listeners.take() } else { None };
        let event_loop = (poll, wake_by(waker.clone(), metrics));
        links.push(Links::new(event_loop, number as u8, listeners, connections, metrics.clone())?);
    }
    Ok((links, wakers, local))
}

/// When the coordinator has ended, the others have so long to end before nobody waits for them.
const OTHERS_END: Duration = Duration::from_secs(2);

/// Runs a node's executors: the coordinator, which is the last one, on this thread, the others beside it.
fn run_all(mut nodes: Vec<Node>, name: &str, stopper: &Stopper) -> Result<(), Failure> {
    let coordinator = nodes.pop().expect("a node has a coordinator");
    let mut threads = Vec::new();
    for (number, node) in nodes.into_iter().enumerate() {
        let watched = Watched::new(stopper, "executor");
        let thread = std::thread::Builder::new().name(format!("{name}.{number}"));
        match thread.spawn(move || node.run_beside(watched)) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                stopper.ask(Stop::Now);
                return Err(Failure::new(1, format!("the node cannot start: {error}")));
            }
        }
    }
    let outcome = coordinator.run();
    if !threads.is_empty() {
        stopper.ask(Stop::Now);
    }
    let deadline = Instant::now() + OTHERS_END;
    for thread in threads {
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
    outcome
}

/// The SQL gateway, which is a client of the cluster like any other, but that it reaches this node without a
/// socket.
fn sql_thread(
    config: &Config,
    listener: Option<TcpListener>,
    local: &LocalNode,
    shared_status: &SharedStatus,
) -> std::io::Result<Option<SqlThread>> {
    let programs = Programs { runtime: config.timing.programs.clone(), limits: config.timing.call.clone() };
    let options = client::Options { local: Some(local.clone()), ..cluster(config, "sql") };
    let sessions = shared_status.sessions.clone();
    let Some(listener) = listener else { return Ok(None) };
    let spill = (config.sql.spill_limit > 0).then(|| SpillSettings {
        directory: config.node.data_dir.clone(),
        threshold: config.sql.spill_from,
        limit: config.sql.spill_limit,
    });
    if let Some(spill) = &spill {
        spill.remove_files()?;
    }
    SqlThread::start(listener, &config.sql, (options, programs), (sessions, spill)).map(Some)
}

/// How a part of this node reaches the cluster as a client.
fn cluster(config: &Config, part: &str) -> client::Options {
    client::Options {
        controllers: config.node.controllers.clone(),
        secret: config.secret.said(),
        agent: format!("{} {part}", crate::AGENT),
        ..client::Options::default()
    }
}

fn open_sockets(config: &Config, dir: &DataDir) -> Result<(Sockets, Ports), Failure> {
    let node = &config.node;
    let before = Ports::read(dir.root()).unwrap_or_default();
    let identity = dir.identity();
    let mut ports = Ports {
        role: "node".into(),
        node: identity.node.0,
        pid: std::process::id(),
        incarnation: identity.incarnation.0,
        listen: BTreeMap::new(),
    };
    let bind = |name: &str, address| {
        listen::bind(&format!("node.listen_{name}"), address, node.insecure, before.address(name))
    };
    let client = bind("client", node.listen_client)?;
    let peer = bind("peer", node.listen_peer)?;
    let heartbeat = bind("heartbeat", node.listen_heartbeat)?;
    let http = bind("http", node.listen_http)?;
    let sql = match config.sql.listen {
        Some(address) => {
            config.sql.allowed(address, node.insecure)?;
            let listener = listen::bind("sql.listen", address, true, before.address("sql"))?;
            listen::note(&mut ports, "sql", &listener);
            Some(listener)
        }
        None => None,
    };
    let addresses = Addresses {
        client: listen::note(&mut ports, "client", &client),
        peer: listen::note(&mut ports, "peer", &peer),
        heartbeat: listen::note(&mut ports, "heartbeat", &heartbeat),
        http: listen::note(&mut ports, "http", &http),
    };
    Ok((Sockets { client, peer, heartbeat, http, sql, addresses }, ports))
}

/// Opens the log and every replica on the disk. Nothing is led before a controller says so (N1). Gives the
/// executors in the order of their numbers.
fn recover(
    config: Config,
    (dir, metas): (DataDir, Metas),
    shared_status: Arc<SharedStatus>,
    (links, wakers): (Vec<Links>, Vec<Arc<Waker>>),
    (lease_manager, addresses): (HeartbeatThread, Addresses),
) -> Result<Vec<Node>, Failure> {
    let metrics = shared_status.metrics.clone();
    let me = dir.identity().member();
    let started = Instant::now();
    let (log, recovered) = open_log(&config, &dir, &metas, &metrics)?;
    metrics.recovery_log_us.store(started.elapsed().as_micros() as u64, Ordering::Relaxed);
    for damage in &recovered.damage {
        eprintln!("the log of node {}: {damage}", me.node.0);
    }
    let reader = log.reader();
    let torn: Vec<PartitionId> = metas.keys().copied().filter(|id| recovered.may_have_torn(*id)).collect();
    let mut found = recovered.partitions;
    let promised = found.iter().map(|(id, found)| (*id, found.promised)).collect();
    let doubtful = recovered.unknown_damaged;
    let replicas = stores::open_all(&dir, &metas, (&mut found, (doubtful, &torn)), &reader, &metrics)?;
    let stopper = shared_status.stop.clone();
    let tails = tails::list(dir.root())?;
    let records = Records::open(dir.root(), promised, &stopper);
    let records = records.map_err(|error| Failure::io(&dir.root().join("records"), &error))?;
    let room = Room::new(config.log.reserve_bytes, config.log.place(dir.root()));
    let executors = config.node.executors;
    let journals = Journal::start(log, &stopper, executors, &wakers, &metrics);
    let parts = NodeParts {
        now: clock::now(),
        this: ThisNode {
            addresses,
            zone: config.node.zone.clone(),
            clean_start: recovered.clean_shutdown,
            executors,
        },
        tails_dir: dir.tails(),
        storage: Storage::new(executors, dir, (metas, found), room, config.log.dir.is_some())?,
        shared_status,
        config,
    };
    Ok(parts.executors((links, wakers), journals, (replicas, tails, records), lease_manager))
}

/// What all executors of a node begin with.
struct NodeParts {
    now: Now,
    this: ThisNode,
    tails_dir: PathBuf,
    /// Of which each has its part.
    storage: Storage,
    shared_status: Arc<SharedStatus>,
    config: Config,
}

impl NodeParts {
    /// The executors, each with its part of what there is.
    fn executors(
        self,
        (links, wakers): (Vec<Links>, Vec<Arc<Waker>>),
        journals: Vec<Journal>,
        (mut replicas, mut tails, records): (Vec<Replica>, Vec<TailReport>, Records),
        lease_manager: HeartbeatThread,
    ) -> Vec<Node> {
        let (leases, budgets) = (lease_manager.leases(), Budgets::default());
        let (mut heartbeats, mut records) = (Some(lease_manager), Some(records));
        let metrics = &self.shared_status.metrics;
        let others = Others::of_all(self.config.node.executors, &wakers, metrics);
        let mut nodes = Vec::new();
        for (((links, waker), journal), others) in links.into_iter().zip(wakers).zip(journals).zip(others) {
            let is_own = |id: PartitionId| others.me().has(id);
            let host = Host::new(self.shared_status.me, self.config.timing.clone(), leases.clone());
            let mut host = host.sharing(budgets.clone());
            replicas.extract_if(.., |replica| is_own(replica.id())).for_each(|replica| host.add(replica));
            let tails = tails.extract_if(.., |tail| is_own(tail.partition)).collect();
            let is_coordinator = others.me().is_coordinator();
            let records = if is_coordinator { records.take() } else { None };
            let records = records.unwrap_or_else(Records::elsewhere);
            let heartbeats = (if is_coordinator { heartbeats.take() } else { None }, leases.clone());
            nodes.push(self.executor((links, waker, others, heartbeats), journal, (host, tails), records));
        }
        // The coordinator registers with all that is damaged, whoever has begun by then (PR-18).
        if let Some((coordinator, others)) = nodes.split_last_mut() {
            for (number, other) in others.iter().enumerate() {
                coordinator.reports.note_part(number, other.status(), false);
            }
        }
        nodes
    }

    fn executor(
        &self,
        (links, waker, others, heartbeats): Reached,
        journal: Journal,
        (host, tails): (Host<SharedLeases>, Vec<TailReport>),
        records: Records,
    ) -> Node {
        let (config, metrics) = (&self.config, self.shared_status.metrics.clone());
        let (wake, me) = (wake_by(waker, &metrics), others.me());
        let who =
            Who { me: self.shared_status.me, secret: config.secret.clone(), suspect: config.timing.suspect };
        let known = if me.is_coordinator() { config.node.controllers.as_slice() } else { &[] };
        let room = Room::new(config.log.reserve_bytes, config.log.place(self.storage.root()));
        Node {
            records,
            timer: Timer::new(&config.timing, self.now),
            view: View::default(),
            replicas: Replicas::new(host, wake.clone()),
            connections: Connections::new(who, links, Controllers::new(known), heartbeats, metrics, others),
            journal,
            storage: self.storage.beside(me, room),
            tails: Tails::new(self.tails_dir.clone(), tails),
            checkpoints: Checkpoints::new(config, wake),
            faults: Faults::new(self.shared_status.faults.clone(), config.node.freeze_at),
            reports: Reports::new(self.this.clone(), self.shared_status.clone()),
            ending: Ending::new(self.shared_status.stop.clone()),
        }
    }
}

/// How an executor is reached, and reaches others.
type Reached = (Links, Arc<Waker>, Others, (Option<HeartbeatThread>, SharedLeases));

/// What wakes an executor, and counts that.
fn wake_by(waker: Arc<Waker>, metrics: &Arc<Metrics>) -> Wake {
    let metrics = metrics.clone();
    Arc::new(move || {
        metrics.system_calls.count_wake();
        // Fails only when the executor is gone.
        let _ = waker.wake();
    })
}

fn open_log(
    config: &Config,
    dir: &DataDir,
    metas: &Metas,
    metrics: &Arc<Metrics>,
) -> Result<(Log, wal::Recovered), Failure> {
    let place = config.log.place(dir.root());
    let io = |error: std::io::Error| Failure::io(&place, &error);
    // Where there are replicas there is a log; a place without one is the wrong place, or an empty one.
    let begun = stores::any(dir)?;
    if begun && !place.is_dir() {
        return Err(log_is_gone(&place, dir, &LogError::Missing { segments: 0 }));
    }
    crate::datadir::files::ensure_dir(&place).map_err(io)?;
    let files: Arc<dyn Files> = match config.node.volatile {
        true => Arc::new(TimedFiles::new(VolatileFiles::open(&place).map_err(io)?, metrics.clone())),
        false => Arc::new(TimedFiles::new(RealFiles::open(&place).map_err(io)?, metrics.clone())),
    };
    let owner = Owner { begun, partitions: &|_| metas.keys().copied().collect() };
    Log::open_for(files, config.log.options.clone(), &owner).map_err(|error| {
        let status = match &error {
            LogError::Missing { .. } if begun => return log_is_gone(&place, dir, &error),
            LogError::Missing { .. } => 6,
            LogError::Format(_) => 5,
            LogError::Unreadable(_) | LogError::Read(_) => 6,
            _ => 7,
        };
        Failure::new(status, format!("the log in {}: {error}", place.display()))
    })
}

/// Without its log a store has forgotten what it acknowledged, and may not count as what it was (R1).
fn log_is_gone(place: &Path, dir: &DataDir, why: &LogError) -> Failure {
    Failure::corrupt(format!(
        "the log in {} is gone ({why}), but {} has replicas: is its disk mounted? \
         If it is lost for good, start this node on an empty data directory: its copies are then made anew",
        place.display(),
        dir.root().display()
    ))
}
