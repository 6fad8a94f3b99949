//! The shell around the core: one thread, one poll, a connection for each executor of each node and one to a
//! controller.

mod nodes;

use crate::call::{Call, Completed, LaneId, Loss, Ticket};
use crate::conn::{Amount, Broken, Conn, Expected, Identity, Incoming, NodeConns, Traffic};
use crate::control::{self, Control, Ended};
use crate::core::{Core, CoreConfig, Effect};
use crate::error::ClientError;
use crate::local::LocalNode;
use crate::route::Map;
use crate::txn::Background;
use mio::{Events, Poll, Token, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::random::Random;
use types::{ClusterId, Executors, Lsn, Micros, NodeId, PartitionId};
use wire::control::AdminCommand;
use wire::hello::HelloRole;
use wire::{Message, ReadLevel};

/// The controller's connection; those of nodes follow by their numbers.
const CONTROL: Token = Token(0);
/// The node of this process has written something, or has room again.
const LOCAL: Token = Token(usize::MAX);

/// The token of one connection of a node.
fn token_of(node: NodeId, number: usize) -> Token {
    Token(1 + node.0 as usize * Executors::MAX_COUNT as usize + number)
}

/// Which node's connection has this token, and which of its connections it is.
fn node_of(token: Token) -> (NodeId, usize) {
    let (each, at) = (Executors::MAX_COUNT as usize, token.0 - 1);
    (NodeId((at / each) as u32), at % each)
}

/// Lanes from here on are the client's own.
const OWN_LANES: u32 = 1 << 31;

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// Controllers' addresses, `host:port`; any one that answers will do.
    pub controllers: Vec<String>,
    /// The cluster meant; `None`: whichever is there.
    pub cluster: Option<ClusterId>,
    /// What this client is, for the other side's logs.
    pub agent: String,
    /// The cluster's shared secret, where one is set.
    pub secret: Option<String>,
    /// For connecting, and for every blocking call that is not given a deadline of its own.
    pub timeout: Duration,
    /// Keep trying until the timeout even if every controller refuses outright: for a cluster that is just
    /// starting.
    pub wait: bool,
    /// Settings of the core. The seed is replaced by a random one if it is 0.
    pub core: CoreConfig,
    /// The node of this process, if the client is a part of it: reached without a socket.
    pub local: Option<LocalNode>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            controllers: Vec::new(),
            cluster: None,
            agent: concat!("understudy ", env!("CARGO_PKG_VERSION")).into(),
            secret: None,
            timeout: Duration::from_secs(10),
            wait: false,
            core: CoreConfig { seed: 0, ..CoreConfig::default() },
            local: None,
        }
    }
}

/// What the poll said of a socket.
#[derive(Clone, Copy, Debug)]
struct Ready {
    readable: bool,
    writable: bool,
    closed: bool,
}

/// A connected client. Belongs to one thread.
pub struct Client {
    poll: Poll,
    events: Option<Events>,
    clock: Instant,
    core: Core,
    control: Control,
    nodes: BTreeMap<NodeId, NodeConns>,
    /// Nodes for which something is queued, or whose sockets take more.
    dirty: Vec<NodeId>,
    done: VecDeque<Completed>,
    identity: Identity,
    timeout: Duration,
    handshake: Micros,
    jitter: Random,
    traffic: Traffic,
    next_own_lane: u32,
    /// What reads from any replica must show at least.
    after: BTreeMap<PartitionId, Lsn>,
    /// A controller said why we may not come in.
    unwelcome: Option<ClientError>,
    /// Of global transactions.
    pub(crate) background: Background,
}

impl Client {
    /// Connects to a controller and waits for the first cluster map.
    pub fn connect(options: Options) -> Result<Client, ClientError> {
        let poll = Poll::new().map_err(system)?;
        let same = options.clone();
        let local = match options.local {
            Some(node) => Some((node, Arc::new(Waker::new(poll.registry(), LOCAL).map_err(system)?))),
            None => None,
        };
        let mut config = options.core;
        if config.seed == 0 {
            config.seed = std::hash::RandomState::new().build_hasher().finish();
        }
        let mut client = Client {
            poll,
            events: Some(Events::with_capacity(256)),
            clock: Instant::now(),
            jitter: Random::new(!config.seed),
            handshake: config.attempt_timeout,
            core: Core::new(config),
            control: Control::new(options.controllers),
            nodes: BTreeMap::new(),
            dirty: Vec::new(),
            done: VecDeque::new(),
            identity: Identity {
                cluster: options.cluster,
                secret: options.secret,
                agent: options.agent,
                local,
            },
            timeout: options.timeout,
            after: BTreeMap::new(),
            traffic: Traffic::default(),
            next_own_lane: OWN_LANES,
            unwelcome: None,
            background: Background::new(std::hash::RandomState::new().build_hasher().finish(), same),
        };
        let deadline = Instant::now() + options.timeout;
        while client.core.map().cluster().is_none() {
            let refused = client.control.refused_in_a_row >= client.control.addresses.len();
            if (refused && !options.wait) || Instant::now() >= deadline {
                return Err(client.no_controller());
            }
            client.turn(deadline)?;
            if let Some(unwelcome) = client.unwelcome.take() {
                return Err(unwelcome);
            }
        }
        Ok(client)
    }

    /// Takes a call in; it is sent by the next [`Client::poll`]. Lanes from 2^31 on are the client's own.
    pub fn submit(&mut self, lane: LaneId, call: Call) -> Ticket {
        let now = self.now();
        self.core.submit(now, lane, self.not_before(call))
    }

    /// From now on reads of this partition that any replica may answer ([`ReadLevel::Any`]) show at least
    /// this write: a replica that does not have it yet refuses, and another one is asked, or the same one
    /// later.
    pub fn read_after(&mut self, token: crate::Token) {
        let least = self.after.entry(token.partition).or_default();
        *least = (*least).max(token.at.lsn);
    }

    fn not_before(&self, mut call: Call) -> Call {
        if let (ReadLevel::Any { min_lsn, .. }, Some(least)) =
            (&mut call.read, self.after.get(&call.partition))
        {
            *min_lsn = (*min_lsn).max(*least);
        }
        call
    }

    /// Sends what was submitted, waits until something completes, at most `timeout`, and returns what did.
    pub fn poll(&mut self, timeout: Duration) -> Result<Vec<Completed>, ClientError> {
        let deadline = Instant::now() + timeout;
        loop {
            self.turn(if self.done.is_empty() { deadline } else { Instant::now() })?;
            if !self.done.is_empty() || Instant::now() >= deadline {
                return Ok(self.take_done());
            }
        }
    }

    /// Sends what was submitted and what is due, and returns what has completed, without a look at what has
    /// come: for who polls when [`Client::readiness`] says that something has, and saves the system call
    /// otherwise.
    pub fn push(&mut self) -> Vec<Completed> {
        self.go_on();
        self.take_done()
    }

    fn take_done(&mut self) -> Vec<Completed> {
        self.submit_flushes();
        self.done.drain(..).collect()
    }

    /// How many writes of each session of this lane may be on their way at once: 1 at first, at most 64.
    pub fn set_window(&mut self, lane: LaneId, window: usize) {
        self.core.set_window(lane, window);
    }

    /// A lane that nobody else uses.
    pub fn new_lane(&mut self) -> LaneId {
        self.next_own_lane += 1;
        LaneId(self.next_own_lane)
    }

    /// The cluster map, as new as the last poll.
    pub fn cluster_map(&self) -> &Map {
        self.core.map()
    }

    /// Readable when [`Client::poll`] has something to take in: for one thread that waits for several
    /// clients. What is due by the clock does not show here, so each of them is polled now and then all the
    /// same.
    pub fn readiness(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Calls that have not completed.
    pub fn open_calls(&self) -> usize {
        self.core.open_calls() + self.background.pausing()
    }

    /// Losses of acknowledged writes noticed since the last call.
    pub fn take_losses(&mut self) -> Vec<Loss> {
        self.core.take_losses()
    }

    /// What went through this client's sockets so far, and the system calls that it took.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// The time that blocking calls are given.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Asks a controller for something, on behalf of an operator, and waits for the answer: JSON, or what it
    /// is for that command. A controller that does not lead is left for another one.
    pub fn admin(&mut self, command: AdminCommand) -> Result<String, ClientError> {
        self.admin_within(command, self.timeout)
    }

    /// [`Client::admin`] with a time of its own.
    pub fn admin_within(&mut self, command: AdminCommand, timeout: Duration) -> Result<String, ClientError> {
        let request = control::name(&command);
        let deadline = Instant::now() + timeout;
        self.control.ask(command);
        loop {
            if let Some(answer) = self.control.answer.take() {
                return match answer {
                    Ended::Done(text) => Ok(text),
                    Ended::Refused(status, sentence) => Err(ClientError::Admin { status, sentence }),
                    Ended::Unheard(why) => Err(ClientError::AdminUnknown { request, why }),
                };
            }
            if Instant::now() >= deadline {
                let Some(command) = self.control.command.take() else { return Err(self.no_controller()) };
                return Err(match command {
                    command if command.sent => {
                        ClientError::AdminUnknown { request, why: "it did not answer in time".into() }
                    }
                    command if command.last_word.is_empty() => self.no_controller(),
                    command => ClientError::Admin { status: 4, sentence: command.last_word },
                });
            }
            self.turn(deadline)?;
        }
    }

    /// Waits for one call; what else completes meanwhile is kept for [`Client::poll`].
    pub fn wait_for(&mut self, ticket: Ticket) -> Result<Completed, ClientError> {
        loop {
            self.collect();
            if let Some(at) = self.done.iter().position(|completed| completed.ticket == ticket) {
                return Ok(self.done.remove(at).expect("found above"));
            }
            if !self.core.is_open(ticket) && !self.background.waits_for(ticket) {
                return Err(ClientError::Protocol(format!(
                    "call {ticket} is not open: poll has handed out its end"
                )));
            }
            self.turn(Instant::now() + self.timeout)?;
        }
    }

    /// Nobody waits for this call any more: its end is not handed out.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.core.forget(ticket);
        self.done.retain(|completed| completed.ticket != ticket);
    }

    /// What of this lane has completed; waits for something if nothing has and `wait` says so.
    pub(crate) fn completed_of(&mut self, lane: LaneId, wait: bool) -> Result<Vec<Completed>, ClientError> {
        loop {
            let (ours, others) =
                self.done.drain(..).partition(|completed: &Completed| completed.lane == lane);
            self.done = others;
            let ours: VecDeque<Completed> = ours;
            if !ours.is_empty() || !wait {
                return Ok(ours.into());
            }
            self.turn(Instant::now() + self.timeout)?;
        }
    }

    /// One round: what is due, what is to be sent, what has come. Returns at `until`, or earlier when
    /// anything happened.
    pub(crate) fn turn(&mut self, until: Instant) -> Result<(), ClientError> {
        self.go_on();
        let wait = self.wait_until(until);
        let mut events = self.events.take().expect("turns do not nest");
        self.traffic.polls += 1;
        let polled = self.poll.poll(&mut events, Some(wait));
        if let Err(error) = polled
            && error.kind() != std::io::ErrorKind::Interrupted
        {
            return Err(system(error));
        }
        for event in &events {
            if event.token() == LOCAL {
                self.on_local();
                continue;
            }
            let closed = event.is_read_closed() || event.is_error();
            let ready =
                Ready { readable: event.is_readable() || closed, writable: event.is_writable(), closed };
            self.on_event(event.token(), ready);
        }
        self.events = Some(events);
        self.go_on();
        Ok(())
    }

    /// What can be done without waiting.
    pub(crate) fn go_on(&mut self) {
        self.send();
        self.collect();
    }

    fn now(&self) -> Micros {
        Micros(self.clock.elapsed().as_micros() as u64 + 1)
    }

    fn collect(&mut self) {
        while let Some(completed) = self.core.next_completed() {
            self.done.extend(self.background.take(completed));
        }
        while let Some(completed) = self.background.next_done() {
            self.done.push_back(completed);
        }
    }

    /// How long the poll may sleep.
    fn wait_until(&self, until: Instant) -> Duration {
        let now = self.now();
        let until = until.saturating_duration_since(Instant::now());
        if !self.done.is_empty() {
            return Duration::ZERO;
        }
        let nodes = self.nodes.values().filter(|conns| !conns.is_ready()).map(NodeConns::since);
        let control = self.control.conn.iter().filter(|conn| !conn.is_ready()).map(|conn| conn.since);
        let greeting = nodes.chain(control).map(|since| since + self.handshake).min();
        let reconnect = self.control.conn.is_none().then_some(self.control.retry_at);
        let due =
            [self.core.next_timer(), greeting, reconnect, self.background.due()].into_iter().flatten().min();
        due.map_or(until, |due| until.min(Duration::from_micros(due.since(now).0)))
    }

    /// Runs timers, carries out effects, writes what is queued: one write per connection.
    pub(crate) fn send(&mut self) {
        let now = self.now();
        self.go_on_in_background(now);
        self.core.tick(now);
        self.give_up_greetings(now);
        self.reconnect_control(now);
        while let Some(effect) = self.core.next_effect() {
            self.carry_out(now, effect);
        }
        if let Err(why) = self.control.push_command() {
            self.control_lost(now, why);
        }
        if let Some(conn) = &mut self.control.conn
            && let Err(why) = conn.flush(&mut self.traffic)
        {
            self.control_lost(now, why);
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        for node in dirty.drain(..) {
            let flushed = self.nodes.get_mut(&node).map(|conns| conns.flush(&mut self.traffic));
            if let Some(Err(why)) = flushed {
                self.node_lost(now, node, &why.to_string());
            }
        }
        // With what has come meanwhile, and the room for it.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    fn carry_out(&mut self, now: Micros, effect: Effect) {
        match effect {
            Effect::Connect(node) => self.connect_node(now, node),
            Effect::Close(node) => {
                if let Some(conns) = self.nodes.remove(&node) {
                    conns.close(self.poll.registry());
                }
            }
            Effect::Send(node, id) => {
                let (Some(conns), Some(message)) = (self.nodes.get_mut(&node), self.core.message(id)) else {
                    return;
                };
                match conns.push(message) {
                    Ok(()) => mark(&mut self.dirty, node),
                    Err(why) => self.node_lost(now, node, &why.to_string()),
                }
            }
        }
    }

    fn reconnect_control(&mut self, now: Micros) {
        if self.control.conn.is_some() || self.control.retry_at > now || self.control.addresses.is_empty() {
            return;
        }
        let address = self.control.address().to_string();
        let role = HelloRole::Operator;
        match Conn::open(&address, self.poll.registry(), CONTROL, role, &self.identity, now) {
            Ok(conn) => self.control.conn = Some(conn),
            Err(why) => self.control_lost(now, why),
        }
    }

    /// A connection that is not welcomed in time is as good as none: a stopped process still has an open
    /// port.
    fn give_up_greetings(&mut self, now: Micros) {
        let late = |conn: &Conn| !conn.is_ready() && conn.since + self.handshake <= now;
        let all_late = |conns: &NodeConns| !conns.is_ready() && conns.since() + self.handshake <= now;
        let nodes: Vec<NodeId> =
            self.nodes.iter().filter(|(_, conns)| all_late(conns)).map(|(node, _)| *node).collect();
        let control = self.control.conn.as_ref().is_some_and(late);
        for node in nodes {
            self.node_lost(now, node, "no welcome in time");
        }
        if control {
            let why = format!("{}: no welcome in time", self.control.address());
            self.control_lost(now, why.into());
        }
    }

    fn on_event(&mut self, token: Token, ready: Ready) {
        let now = self.now();
        if token == CONTROL {
            if let Err(why) = self.control_event(now, ready) {
                self.control_lost(now, why);
            }
            return;
        }
        let (node, number) = node_of(token);
        if let Err(why) = self.node_event(now, (node, number), ready) {
            self.node_lost(now, node, &why.to_string());
        }
    }

    fn control_event(&mut self, now: Micros, ready: Ready) -> Result<(), Broken> {
        let Some(conn) = &mut self.control.conn else { return Ok(()) };
        if ready.writable {
            conn.writable()?;
        }
        let expected = Expected { cluster: self.identity.cluster, node: None };
        let mut more = ready.readable;
        while more {
            let Some(conn) = &mut self.control.conn else { return Ok(()) };
            let read = conn.read(&mut self.traffic);
            loop {
                let Some(conn) = &mut self.control.conn else { return Ok(()) };
                match conn.next(&expected)? {
                    Incoming::Nothing => break,
                    Incoming::Welcome => self.control.welcomed()?,
                    Incoming::Message(message) => self.control_message(now, message)?,
                }
            }
            let amount = read?;
            more = amount == Amount::Full || (ready.closed && amount == Amount::Short);
        }
        Ok(())
    }

    fn control_message(&mut self, now: Micros, message: Message) -> Result<(), Broken> {
        match message {
            Message::ClusterMap(cluster_map) => {
                for node in self.core.cluster_map(now, &cluster_map)? {
                    self.moved(now, node);
                }
                // From now on no other cluster will do.
                if let Some(cluster) = self.core.map().cluster() {
                    self.identity.cluster = Some(cluster.id);
                }
                Ok(())
            }
            Message::AdminAnswer(answer) => self.control.answered(answer.id, answer.result),
            other => Err(format!("a controller sent a {}", other.name()).into()),
        }
    }

    fn control_lost(&mut self, now: Micros, broken: Broken) {
        let address = self.control.address().to_string();
        if let Some(conn) = self.control.conn.take() {
            conn.close(self.poll.registry());
        }
        self.control.lost(now, &mut self.jitter, &broken);
        if let Broken::NotWelcome(why) = broken {
            self.unwelcome = Some(ClientError::NotWelcome { address, why });
        }
    }

    fn no_controller(&self) -> ClientError {
        ClientError::NoController {
            controllers: self.control.addresses.clone(),
            why: self.control.why.clone(),
        }
    }
}

/// Notes once that something is to be written to a node.
fn mark(dirty: &mut Vec<NodeId>, node: NodeId) {
    if !dirty.contains(&node) {
        dirty.push(node);
    }
}

fn system(error: std::io::Error) -> ClientError {
    ClientError::System(error.to_string())
}
