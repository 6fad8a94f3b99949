//! A controller as a process: sockets and a metastore around [`controller::Controller`].
//!
//! A turn: wait for events, hand what came to the controller, carry out its outputs until there are no more,
//! write each connection's buffer once. Transactions of the embedded metastore run at once; those of etcd run
//! on threads of their own ([`store`]) and their outcomes come back as events.

mod archive;
mod links;
mod recovery;
mod store;

use crate::clock;
use crate::config::Config;
use crate::datadir::{self, DataDir, Kind, Ports};
use crate::failure::Failure;
use crate::net::conn::Got;
use crate::net::listen;
use crate::stop::{Stop, Stopper};
use archive::Archive;
use controller::{Controller, Identity, Input, Key, Output};
use links::{Links, WAKER};
use mio::{Events, Poll, Waker};
use recovery::Recovery;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use store::{News, Store};
use types::system::COMMITS;
use types::{ClusterId, ClusterRecord, Generation, Micros};
use wire::Message;
use wire::hello::{Hello, HelloRole, PROTOCOL, Secret};

/// A controller that runs on a thread of this process.
pub struct Running {
    stopper: Stopper,
    ports: Ports,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Running {
    /// Where it listens.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Asks it to end.
    pub fn stopper(&self) -> &Stopper {
        &self.stopper
    }

    /// Waits until it has ended.
    pub fn wait(mut self) -> Result<(), Failure> {
        self.thread.take().expect("waited for once").join().expect("the controller panicked")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stopper.ask(Stop::Now);
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Starts a controller. It listens when this returns.
pub fn start(config: Config) -> Result<Running, Failure> {
    let system = |error: std::io::Error| Failure::new(1, format!("the controller cannot start: {error}"));
    let settings = &config.controller;
    let dir = DataDir::open(&settings.data_dir, Kind::Controller)?;
    let before = Ports::read(dir.root()).and_then(|ports| ports.address("controller"));
    let listener = listen::bind("controller.listen", settings.listen, settings.insecure, before)?;
    let mut ports = Ports {
        role: "controller".into(),
        node: 0,
        pid: std::process::id(),
        incarnation: dir.identity().incarnation.0,
        listen: BTreeMap::new(),
    };
    listen::note(&mut ports, "controller", &listener);
    let poll = Poll::new().map_err(system)?;
    let stopper = Stopper::new(Arc::new(Waker::new(poll.registry(), WAKER).map_err(system)?));
    let name = listener.local_addr().map_err(system)?.to_string();
    let store = Store::open(&settings.metastore, dir.root(), &name, &stopper)?;
    let cluster = dir.identity().cluster.unwrap_or(ClusterId(datadir::random()));
    let identity = Identity { cluster, seed: datadir::random() };
    let process = Process {
        links: Links::new(poll, listener).map_err(system)?,
        controller: Controller::new(identity, settings.settings.clone()),
        store,
        cluster: None,
        secret: config.secret.clone(),
        tick: settings.settings.tick,
        next_tick: Micros::ZERO,
        outputs: VecDeque::new(),
        stopper: stopper.clone(),
        archive: Archive::start(name.clone(), config.secret.said()).map_err(system)?,
        recovery: Recovery::start(name, config.secret.said(), settings.recovery).map_err(system)?,
        plans: false,
        commits: false,
        dir,
    };
    ports.write(process.dir.root()).map_err(|error| Failure::io(process.dir.root(), &error))?;
    let spawned = std::thread::Builder::new().name("controller".into()).spawn(move || process.run());
    Ok(Running { stopper, ports, thread: Some(spawned.map_err(system)?) })
}

/// The loop's state.
struct Process {
    dir: DataDir,
    links: Links,
    controller: Controller,
    store: Store,
    /// The cluster, and how often its records were made anew, once the metastore has said it.
    cluster: Option<(ClusterId, Generation)>,
    secret: Secret,
    tick: Micros,
    next_tick: Micros,
    outputs: VecDeque<Output>,
    stopper: Stopper,
    archive: Archive,
    recovery: Recovery,
    /// There is a transaction manager.
    commits: bool,
    /// This controller is the one that plans, as far as it knows.
    plans: bool,
}

impl Process {
    fn run(mut self) -> Result<(), Failure> {
        let mut events = Events::with_capacity(1024);
        loop {
            let wait = Duration::from_millis(self.next_tick.since(clock::mono()).0.div_ceil(1000));
            let wait = self.links.patience(wait);
            if let Err(error) = self.links.poll.poll(&mut events, Some(wait))
                && error.kind() != std::io::ErrorKind::Interrupted
            {
                return Err(Failure::new(1, format!("the system's poll failed: {error}")));
            }
            match self.stopper.asked() {
                Stop::No => {}
                // There is nothing to hand over: what was answered is in the metastore.
                Stop::Gently => return Ok(()),
                Stop::Now => return Err(Failure::new(1, "stopped at once")),
            }
            if let Some(why) = self.stopper.broken() {
                return Err(Failure::new(1, format!("this controller stops: {why}")));
            }
            for (key, to_the_end) in self.links.take_unread() {
                self.read(key, to_the_end);
            }
            for event in &events {
                if let Some((key, ended)) = self.links.on_event(event) {
                    self.read(key, ended);
                }
            }
            self.turn()?;
        }
    }

    fn turn(&mut self) -> Result<(), Failure> {
        for news in self.store.news() {
            self.on_news(news)?;
        }
        let now = clock::mono();
        if now >= self.next_tick {
            self.next_tick = now + self.tick;
            self.tell(Input::Tick);
            self.links.tidy(now);
        }
        self.carry_out()?;
        for conn in self.links.flush() {
            self.tell(Input::Disconnected { conn });
        }
        self.carry_out()
    }

    fn tell(&mut self, input: Input) {
        self.outputs.extend(self.controller.handle(clock::now(), input));
    }

    fn on_news(&mut self, news: News) -> Result<(), Failure> {
        match news {
            News::Input(input) => {
                self.learn_cluster(&input);
                self.note_failovers(&input);
                self.note_commits(&input);
                self.tell(input);
                Ok(())
            }
            News::Failed(failure) => Err(failure),
        }
    }

    /// Handshakes name the cluster, which the metastore knows first.
    fn learn_cluster(&mut self, input: &Input) {
        if self.cluster.is_some() {
            return;
        }
        let text = match input {
            Input::Loaded { entries, .. } => {
                entries.iter().find(|entry| entry.key == "cluster").map(|entry| &entry.value)
            }
            Input::TxnDone { outcome: Ok(outcome), .. } => outcome
                .current
                .iter()
                .find(|(key, _)| key == "cluster")
                .and_then(|(_, value)| value.as_ref())
                .map(|(_, value)| value),
            Input::Changed { changes, .. } => {
                changes.iter().find(|change| change.key == "cluster").and_then(|change| change.value.as_ref())
            }
            _ => None,
        };
        let record = text.and_then(|text| serde_json::from_slice::<ClusterRecord>(text).ok());
        self.cluster = record.map(|record| (record.id, record.generation));
    }

    /// The planning controller recovers global transactions, if there are any.
    fn note_commits(&mut self, input: &Input) {
        match input {
            Input::Lead(_) => self.recovery.turn(self.plans && self.commits),
            Input::Loaded { entries, .. } => self.found_keys(entries.iter().map(|entry| &entry.key)),
            Input::Changed { changes, .. } => self.found_keys(changes.iter().map(|change| &change.key)),
            _ => {}
        }
    }

    /// Keys that there are, or will be: the transaction manager's table may be among them.
    fn found_keys<'a>(&mut self, mut keys: impl Iterator<Item = &'a String>) {
        if !self.commits && keys.any(|key| Key::parse(key) == Some(Key::Name(COMMITS.into()))) {
            self.commits = true;
            self.recovery.turn(self.plans);
        }
    }

    /// The planning controller archives failovers, its own and those that others sealed.
    fn note_failovers(&mut self, input: &Input) {
        let of_failover = |key: &str| key.starts_with(Key::FAILOVERS);
        let news = match input {
            Input::Lead(plans) => {
                self.plans = *plans;
                true
            }
            Input::Loaded { entries, .. } => entries.iter().any(|entry| of_failover(&entry.key)),
            Input::Changed { changes, .. } => changes.iter().any(|change| of_failover(&change.key)),
            _ => false,
        };
        if news && self.plans {
            self.archive.changed();
        }
    }

    fn carry_out(&mut self) -> Result<(), Failure> {
        loop {
            while let Some(output) = self.outputs.pop_front() {
                match output {
                    Output::Txn { tag, txn } => {
                        if self.plans && txn.puts.iter().any(|(key, _)| key.starts_with(Key::FAILOVERS)) {
                            self.archive.changed();
                        }
                        self.found_keys(txn.puts.iter().map(|(key, _)| key));
                        self.store.submit(tag, txn);
                    }
                    Output::Send { conn, message } => self.links.push(conn.0, &message),
                    Output::Close { conn } => self.links.close(conn.0),
                }
            }
            let news = self.store.done_at_once();
            if news.is_empty() {
                return Ok(());
            }
            for news in news {
                self.on_news(news)?;
            }
        }
    }

    fn read(&mut self, key: u64, to_the_end: bool) {
        for _ in 0..links::READS {
            let Some(got) = self.links.read(key, to_the_end) else { return };
            let good = self.handle_all(key);
            if !good || got == Got::Closed {
                self.links.close(key);
                return self.tell(Input::Disconnected { conn: controller::ConnId(key) });
            }
            if got == Got::All {
                return;
            }
        }
        self.links.read_on(key, to_the_end);
    }

    /// Handles what a connection has brought. False: close it.
    fn handle_all(&mut self, key: u64) -> bool {
        loop {
            match self.links.next(key) {
                Ok(Some((true, message))) => {
                    self.tell(Input::Received { conn: controller::ConnId(key), message });
                }
                Ok(Some((false, Message::Hello(hello)))) => {
                    if !self.greet(key, &hello) {
                        return false;
                    }
                }
                Ok(Some((false, _))) | Err(_) => return false,
                Ok(None) => return true,
            }
        }
    }

    /// Lets in who belongs here. False: come again later.
    fn greet(&mut self, key: u64, hello: &Hello) -> bool {
        let Some((cluster, generation)) = self.cluster else { return false };
        if hello.protocol != PROTOCOL {
            let why = format!("this controller speaks protocol {PROTOCOL}, not {}", hello.protocol);
            self.links.refuse(key, why);
        } else if !self.secret.admits(hello.secret.as_deref()) {
            self.links.refuse(key, Secret::REFUSAL.into());
        } else if hello.cluster.is_some_and(|wanted| wanted != cluster) {
            let wanted = hello.cluster.unwrap_or_default();
            let why = format!(
                "it belongs to cluster {cluster}, not to {wanted}: another cluster's data directory?"
            );
            self.links.refuse(key, why);
        } else if !matches!(hello.role, HelloRole::Client | HelloRole::Node | HelloRole::Operator) {
            self.links.refuse(key, "this is a controller, not a node".into());
        } else {
            self.links.welcome(key, cluster, generation);
        }
        true
    }
}
