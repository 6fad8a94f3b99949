//! From a configuration to a running node: the directory, the log, the engines, the doors, the threads.

use super::Node;
use super::checkpoints::Checkpoints;
use super::connections::{Connections, Who};
use super::data_dirs::Metas;
use super::ending::Ending;
use super::faults::Faults;
use super::links::{Links, WAKER};
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
use crate::lease_manager::HeartbeatThread;
use crate::metrics::Metrics;
use crate::net::{FaultInjection, listen};
use crate::shared_status::SharedStatus;
use crate::sql::SqlThread;
use crate::stop::{Stop, Stopper};
use crate::stores;
use crate::tails;
use crate::timed_files::TimedFiles;
use crate::web::Web;
use ::sql::Programs;
use driver::{Executor, Executors, recovery};
use mio::{Poll, Waker};
use replica::Host;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;
use types::PartitionId;
use types::config::Addresses;
use types::engine::Wake;
use wal::{Files, Log, LogError, RealFiles, VolatileFiles};

/// A node that runs on threads of this process.
pub struct Running {
    shared_status: Arc<SharedStatus>,
    ports: Ports,
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

/// The doors of a node.
struct Listeners {
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
    let (listeners, ports) = open_listeners(&config, &dir)?;
    let metrics = Arc::new(Metrics::default());
    let faults = Arc::new(FaultInjection::default());
    let poll = Poll::new().map_err(system)?;
    let stopper = Stopper::new(Arc::new(Waker::new(poll.registry(), WAKER).map_err(system)?));
    let played = config.node.faults.then(|| faults.clone());
    let shared_status = Arc::new(SharedStatus::new(me, metrics.clone(), played, stopper));
    let links = Links::new(poll, listeners.client, listeners.peer, connections, metrics.clone());
    let (executors, stop) = (Executors::ONE, &shared_status.stop);
    let lease_manager = HeartbeatThread::start(me, executors, &config, listeners.heartbeat, faults, stop)?;
    let sql = sql_thread(&config, listeners.sql).map_err(system)?;
    let web = Web::new(shared_status.clone(), cluster(&config, "web"), config.node.operator_token.clone());
    let links = (links.map_err(system)?, lease_manager, listeners.addresses);
    let node = recover(config, (dir, metas), shared_status.clone(), links)?;
    let http = HttpThread::start(listeners.http, shared_status.clone(), web).map_err(system)?;
    let root = node.storage.root();
    ports.write(root).map_err(|error| Failure::io(root, &error))?;
    let spawned = std::thread::Builder::new().name(format!("node-{}", me.node.0)).spawn(move || node.run());
    Ok(Running { shared_status, ports, thread: Some(spawned.map_err(system)?), _http: http, _sql: sql })
}

/// The SQL gateway, which is a client of the cluster like any other.
fn sql_thread(config: &Config, listener: Option<TcpListener>) -> std::io::Result<Option<SqlThread>> {
    let programs = Programs { runtime: config.timing.programs.clone(), limits: config.timing.call.clone() };
    let start = |listener| SqlThread::start(listener, &config.sql, (cluster(config, "sql"), programs));
    listener.map(start).transpose()
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

fn open_listeners(config: &Config, dir: &DataDir) -> Result<(Listeners, Ports), Failure> {
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
    Ok((Listeners { client, peer, heartbeat, http, sql, addresses }, ports))
}

/// Opens the log and every replica on the disk. Nothing is led before a controller says so (N1).
fn recover(
    config: Config,
    (mut dir, metas): (DataDir, Metas),
    shared_status: Arc<SharedStatus>,
    (links, lease_manager, addresses): (Links, HeartbeatThread, Addresses),
) -> Result<Node, Failure> {
    let metrics = shared_status.metrics.clone();
    let me = dir.identity().member();
    let started = Instant::now();
    let (mut log, recovered) = open_log(&config, &dir, &metrics)?;
    metrics.recovery_log_us.store(started.elapsed().as_micros() as u64, Ordering::Relaxed);
    for damage in &recovered.damage {
        eprintln!("the log of node {}: {damage}", me.node.0);
    }
    let reader = log.reader();
    let mut host = Host::new(me, config.timing.clone(), lease_manager.leases());
    let torn: Vec<PartitionId> = metas.keys().copied().filter(|id| recovered.may_have_torn(*id)).collect();
    let mut found = recovered.partitions;
    let promised = found.iter().map(|(id, found)| (*id, found.promised)).collect();
    let doubtful = recovered.unknown_damaged;
    let lost = recovery::distrusted(metas.keys().copied(), &found, doubtful);
    let noted = match (lost.is_empty(), torn.is_empty()) {
        (false, _) => log.distrust(&lost),
        (true, false) => log.note_torn(&torn),
        (true, true) => Ok(()),
    };
    noted.map_err(|error| Failure::new(7, format!("the log cannot be written: {error}")))?;
    let replicas = stores::open_all(&mut dir, &metas, (&mut found, (doubtful, &torn)), &reader, &metrics)?;
    replicas.into_iter().for_each(|replica| host.add(replica));
    let now = clock::now();
    let (stopper, settings) = (shared_status.stop.clone(), &config.node);
    let mut journals = Journal::start(log, &stopper, Executors::ONE, slice::from_ref(stopper.waker()));
    let wake = wake_by(stopper.waker().clone());
    let tails = Tails::new(dir.tails(), tails::list(dir.root())?);
    let room = Room::new(config.log.reserve_bytes, config.log.place(dir.root()));
    let (executor, secret) = (Executor::ALONE, config.secret.clone());
    let who = Who { me, executor, secret, suspect: config.timing.suspect };
    let controllers = Controllers::new(&settings.controllers);
    let zone = settings.zone.clone();
    let this = ThisNode { addresses, zone, clean_start: recovered.clean_shutdown };
    let records = Records::open(dir.root(), promised, &stopper);
    let records = records.map_err(|error| Failure::io(&dir.root().join("records"), &error))?;
    Ok(Node {
        records,
        timer: Timer::new(&config.timing, now),
        view: View::default(),
        replicas: Replicas::new(host, wake.clone()),
        connections: Connections::new(who, links, controllers, lease_manager, metrics),
        journal: journals.pop().expect("each executor has a journal"),
        storage: Storage::new(executor, dir, (metas, found), room)?,
        tails,
        checkpoints: Checkpoints::new(&config, wake),
        faults: Faults::new(shared_status.faults.clone(), settings.freeze_at),
        reports: Reports::new(this, shared_status),
        ending: Ending::new(stopper),
    })
}

fn wake_by(waker: Arc<Waker>) -> Wake {
    Arc::new(move || {
        // Fails only when the executor is gone.
        let _ = waker.wake();
    })
}

fn open_log(
    config: &Config,
    dir: &DataDir,
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
    let open = if begun { Log::reopen } else { Log::open };
    open(files, config.log.options.clone()).map_err(|error| {
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
