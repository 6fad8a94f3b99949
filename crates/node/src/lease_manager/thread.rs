//! What the beating thread does: connects to every other node, sends a heartbeat to each at every interval,
//! answers theirs.
//!
//! Heartbeats go out on the connection that this node made and are answered on it.

use super::Shared;
use crate::clock;
use crate::net::conn::Got;
use crate::net::listen::{self, Accepted};
use crate::net::{Conn, Cut, FaultInjection, Slab};
use mio::{Events, Interest, Poll, Token};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use types::{ClusterId, Member, Micros, NodeId};
use wire::Message;
use wire::hello::{Hello, HelloRole, PROTOCOL, Secret, Welcome};

pub const WAKER: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);

/// Between two attempts to reach a node.
const RETRY: Micros = Micros::from_millis(50);
/// A handshake that takes longer is given up.
const GREETING: Micros = Micros::from_millis(1000);
/// The most connections: two per node of a large cluster.
const MAX_CONNECTIONS: usize = 512;
/// More than this unread by the other side, and its connection is made anew.
const MOST_BYTES: usize = 1 << 20;

/// Where one connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnState {
    /// Accepted; its hello is awaited.
    Accepted,
    /// Accepted from this node: its heartbeats come here.
    From(Member),
    /// Made to this node; its welcome is awaited.
    Dialed(NodeId),
    /// Made to this node: our heartbeats go here.
    To(Member),
}

struct Link {
    conn: Conn,
    state: ConnState,
    since: Micros,
    /// A message vanished here in a cut.
    lossy: bool,
}

struct Target {
    address: SocketAddr,
    link: Option<u64>,
    retry_at: Micros,
}

pub(super) struct Beater {
    me: Member,
    secret: Secret,
    interval: Micros,
    lease: Micros,
    shared: Arc<Shared>,
    poll: Poll,
    listener: mio::net::TcpListener,
    /// The system did not let us accept; no event will tell when it does.
    more_to_accept: bool,
    links: Slab<Link>,
    targets: BTreeMap<NodeId, Target>,
    nodes_version: u64,
    faults: Arc<FaultInjection>,
    faults_version: u64,
    cut: Cut,
    next_heartbeat: Micros,
    /// When the last turn ended: what was sent during a long absence is not answered.
    turned_at: Micros,
}

impl Beater {
    pub fn new(
        me: Member,
        settings: &replica::Settings,
        secret: Secret,
        shared: Arc<Shared>,
        poll: Poll,
        listener: std::net::TcpListener,
        faults: Arc<FaultInjection>,
    ) -> std::io::Result<Beater> {
        let mut listener = mio::net::TcpListener::from_std(listener);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let now = clock::mono();
        Ok(Beater {
            me,
            secret,
            interval: settings.heartbeat,
            lease: settings.lease,
            shared,
            poll,
            listener,
            more_to_accept: false,
            links: Slab::default(),
            targets: BTreeMap::new(),
            nodes_version: 0,
            faults,
            faults_version: 0,
            cut: Cut::default(),
            next_heartbeat: now,
            turned_at: now,
        })
    }

    /// Beats until it is asked to stop.
    pub fn run(mut self) -> std::io::Result<()> {
        // Not permitted everywhere; without it heartbeats may come late on a busy machine.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -10);
        let mut events = Events::with_capacity(256);
        while !self.shared.stop.load(Ordering::Acquire) {
            let wait = Duration::from_micros(self.next_heartbeat.since(clock::mono()).0);
            if let Err(error) = self.poll.poll(&mut events, Some(wait))
                && error.kind() != std::io::ErrorKind::Interrupted
            {
                return Err(error);
            }
            let woken = clock::mono();
            let stale = woken.since(self.turned_at) > self.lease;
            self.shared.lease_manager().turn(woken);
            for event in &events {
                match event.token() {
                    WAKER => {}
                    LISTENER => self.accept(),
                    Token(key) => self.on_event(key as u64, event, stale),
                }
            }
            self.look_around();
            let now = clock::mono();
            if now >= self.next_heartbeat {
                self.lease_manager();
                // Beats that were missed are not made up for.
                self.next_heartbeat = (self.next_heartbeat + self.interval).max(now);
            }
            self.turned_at = clock::mono();
        }
        Ok(())
    }

    fn accept(&mut self) {
        self.more_to_accept = false;
        loop {
            match listen::accept(&self.listener) {
                Accepted::One(stream) if self.links.len() < MAX_CONNECTIONS => {
                    self.add(Conn::accepted(stream), ConnState::Accepted);
                }
                Accepted::One(_) => {}
                Accepted::All => return,
                Accepted::NotNow => {
                    self.more_to_accept = true;
                    return;
                }
            }
        }
    }

    fn add(&mut self, conn: Conn, state: ConnState) -> Option<u64> {
        let key = self.links.insert(Link { conn, state, since: clock::mono(), lossy: false });
        let link = self.links.get_mut(key)?;
        if link.conn.register(self.poll.registry(), Token(key as usize)).is_ok() {
            return Some(key);
        }
        self.links.remove(key);
        None
    }

    fn drop_link(&mut self, key: u64) {
        let Some(link) = self.links.remove(key) else { return };
        if let ConnState::Dialed(node) | ConnState::To(Member { node, .. }) = link.state
            && let Some(target) = self.targets.get_mut(&node)
            && target.link == Some(key)
        {
            target.link = None;
            target.retry_at = clock::mono() + RETRY;
        }
        link.conn.close(self.poll.registry());
    }

    fn is_cut(&self, state: ConnState) -> bool {
        match state {
            ConnState::Accepted => false,
            ConnState::Dialed(node)
            | ConnState::From(Member { node, .. })
            | ConnState::To(Member { node, .. }) => self.cut.nodes.contains(&node),
        }
    }

    fn on_event(&mut self, key: u64, event: &mio::event::Event, stale: bool) {
        let Some(link) = self.links.get_mut(key) else { return };
        if event.is_writable() && !link.conn.writable() {
            return self.drop_link(key);
        }
        if event.is_writable() {
            self.flush(key);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.read(key, event.is_read_closed() || event.is_error(), stale);
        }
    }

    fn read(&mut self, key: u64, to_the_end: bool, stale: bool) {
        loop {
            let Some(link) = self.links.get_mut(key) else { return };
            let got = link.conn.read(to_the_end);
            if !self.handle_all(key, stale) || got == Got::Closed {
                return self.drop_link(key);
            }
            if got == Got::All {
                return;
            }
        }
    }

    /// Handles what has been read. False: close.
    fn handle_all(&mut self, key: u64, stale: bool) -> bool {
        let mut newest = None;
        loop {
            let Some(link) = self.links.get_mut(key) else { return true };
            let message = match link.conn.next_message() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(_) => return false,
            };
            let state = link.state;
            if self.is_cut(state) {
                self.links.get_mut(key).expect("just seen").lossy = true;
                continue;
            }
            match (state, message) {
                // Of heartbeats that queued up only the newest counts.
                (ConnState::From(member), Message::Heartbeat(heartbeat)) if heartbeat.from == member => {
                    newest = Some(heartbeat)
                }
                (ConnState::To(member), Message::HeartbeatAnswer(answer)) if answer.from == member => {
                    self.shared.lease_manager().on_answer(clock::mono(), &answer);
                }
                (ConnState::Accepted, Message::Hello(hello)) => {
                    if !self.greet(key, &hello) {
                        return false;
                    }
                }
                (
                    ConnState::Dialed(node),
                    Message::Welcome(Welcome::Accepted { member: Some(member), .. }),
                ) if member.node == node => {
                    self.links.get_mut(key).expect("just seen").state = ConnState::To(member);
                    // It need not wait for the next interval to be heard.
                    self.heartbeat_to(key, member);
                }
                _ => return false,
            }
        }
        if let (Some(heartbeat), false) = (newest, stale) {
            let answer = self.shared.lease_manager().on_heartbeat(clock::mono(), &heartbeat);
            self.send(key, &Message::HeartbeatAnswer(answer));
        }
        true
    }

    /// Answers a hello. False: not one of ours.
    fn greet(&mut self, key: u64, hello: &Hello) -> bool {
        let cluster = ClusterId(self.shared.cluster.load(Ordering::Acquire));
        let (HelloRole::Heartbeat, PROTOCOL, Some(member)) = (hello.role, hello.protocol, hello.member)
        else {
            return false;
        };
        if !self.secret.admits(hello.secret.as_deref()) {
            return false;
        }
        if cluster.0 == 0 || hello.cluster != Some(cluster) || member.node == self.me.node {
            return false;
        }
        let Some(link) = self.links.get_mut(key) else { return false };
        link.state = ConnState::From(member);
        if self.is_cut(ConnState::From(member)) {
            self.links.get_mut(key).expect("just seen").lossy = true;
            return true;
        }
        let welcome = Welcome::Accepted { cluster, member: Some(self.me) };
        self.send(key, &Message::Welcome(welcome));
        true
    }

    fn send(&mut self, key: u64, message: &Message) {
        let Some(link) = self.links.get_mut(key) else { return };
        if link.conn.out.push(message).is_err() || link.conn.out.len() > MOST_BYTES {
            return self.drop_link(key);
        }
        self.flush(key);
    }

    fn flush(&mut self, key: u64) {
        let Some(link) = self.links.get_mut(key) else { return };
        if link.conn.flush().is_err() {
            self.drop_link(key);
        }
    }

    /// A heartbeat to everyone.
    fn lease_manager(&mut self) {
        let ready: Vec<(u64, Member)> = self
            .links
            .iter()
            .filter_map(|(key, link)| match link.state {
                ConnState::To(member) => Some((key, member)),
                _ => None,
            })
            .collect();
        for (key, member) in ready {
            self.heartbeat_to(key, member);
        }
    }

    fn heartbeat_to(&mut self, key: u64, member: Member) {
        if self.is_cut(ConnState::To(member)) {
            if let Some(link) = self.links.get_mut(key) {
                link.lossy = true;
            }
            return;
        }
        let now = clock::mono();
        let vouches = self.shared.pulses.vouches(now);
        let heartbeat = self.shared.lease_manager().heartbeat(now, member, vouches);
        self.send(key, &Message::Heartbeat(heartbeat));
    }

    /// Takes in news of nodes and cuts, gives up slow handshakes, and connects to whom it is not connected.
    fn look_around(&mut self) {
        if self.more_to_accept {
            self.accept();
        }
        self.take_nodes();
        if let Some(cut) = self.faults.news(&mut self.faults_version) {
            self.cut = cut;
            let healed = self.links.iter().filter(|(_, link)| link.lossy && !self.is_cut(link.state));
            for key in healed.map(|(key, _)| key).collect::<Vec<_>>() {
                self.drop_link(key);
            }
        }
        let now = clock::mono();
        let slow = |link: &Link| {
            matches!(link.state, ConnState::Accepted | ConnState::Dialed(_))
                && now.since(link.since) > GREETING
        };
        let slow: Vec<u64> = self.links.iter().filter(|(_, link)| slow(link)).map(|(key, _)| key).collect();
        for key in slow {
            self.drop_link(key);
        }
        let due = |(node, target): &(&NodeId, &Target)| {
            target.link.is_none() && now >= target.retry_at && !self.cut.nodes.contains(node)
        };
        let due: Vec<(NodeId, SocketAddr)> =
            self.targets.iter().filter(due).map(|(node, target)| (*node, target.address)).collect();
        for (node, address) in due {
            self.dial(node, address);
        }
    }

    fn dial(&mut self, node: NodeId, address: SocketAddr) {
        let link = Conn::dial(address).ok().and_then(|conn| self.add(conn, ConnState::Dialed(node)));
        let target = self.targets.get_mut(&node).expect("a target that is due");
        target.link = link;
        target.retry_at = clock::mono() + RETRY;
        let Some(key) = link else { return };
        let hello = Hello {
            role: HelloRole::Heartbeat,
            protocol: PROTOCOL,
            cluster: Some(ClusterId(self.shared.cluster.load(Ordering::Acquire))),
            member: Some(self.me),
            secret: self.secret.said(),
            agent: crate::AGENT.into(),
        };
        self.send(key, &Message::Hello(hello));
    }

    fn take_nodes(&mut self) {
        let version = self.shared.nodes_version.load(Ordering::Acquire);
        if version == self.nodes_version {
            return;
        }
        self.nodes_version = version;
        let nodes = self.shared.nodes.lock().expect("a thread panicked while it held the nodes").clone();
        let gone = |(node, target): &(&NodeId, &Target)| nodes.get(node) != Some(&target.address);
        let gone: Vec<NodeId> = self.targets.iter().filter(gone).map(|(node, _)| *node).collect();
        for node in gone {
            if let Some(Target { link: Some(key), .. }) = self.targets.remove(&node) {
                self.drop_link(key);
            }
        }
        for (node, address) in nodes {
            let fresh = Target { address, link: None, retry_at: Micros::ZERO };
            self.targets.entry(node).or_insert(fresh);
        }
    }
}
