//! A node's connections: accepted and made, read, written and closed. What the messages mean is not known
//! here.

use crate::metrics::Metrics;
use crate::net::conn::Got;
use crate::net::listen::{self, Accepted};
use crate::net::outbox::MAX_BYTES;
use crate::net::{Conn, Cut, Slab, note_dirty};
use crate::system_calls::TurnCalls;
use client::LocalListener;
use mio::event::Event;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use types::engine::Wake;
use types::{Member, Micros, NodeId};
use wire::{Message, Reply};

/// Who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Accepted at a door; its hello is awaited.
    New(Listener),
    /// A client.
    Client,
    /// An operator who asks this very node.
    Operator,
    /// A node that sends to us.
    PeerIn(Member),
    /// A node that we connect to.
    Dialing(NodeId),
    /// A node that we send to, in this very life.
    PeerOut(Member),
    /// A node with which we send to each other.
    Pair(Member),
    /// A controller that we connect to, by its place in the configuration.
    DialingController(usize),
    /// A controller.
    Controller(usize),
    /// Refused: closed once the refusal is written.
    Refused,
}

/// Where a connection came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listener {
    /// For clients.
    Client,
    /// For nodes.
    Peer,
}

/// One connection.
#[derive(Debug)]
pub struct Link {
    conn: Conn,
    /// Who is there.
    role: Role,
    /// Since when this role lasts.
    since: Micros,
    /// Something waits to be written.
    dirty: bool,
    /// A message vanished here in a cut.
    lossy: bool,
    /// It has brought something that is for a partition.
    settled: bool,
    /// Requests of it were handed over to other executors.
    handed: bool,
}

/// A connection that is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed {
    /// Its key.
    pub key: u64,
    /// Who was there.
    pub role: Role,
    /// Requests of it were handed over to other executors.
    pub handed: bool,
}

/// A connection on its way from one executor to another.
#[derive(Debug)]
pub struct Guest {
    conn: Conn,
    role: Role,
}

impl Guest {
    /// Who is there.
    pub fn role(&self) -> Role {
        self.role
    }
}

/// A handshake that takes longer closes the connection.
const GREETING: Micros = Micros::from_millis(5000);
/// The same for connections that we made: the other side may be stopped.
const DIALING: Micros = Micros::from_millis(1000);
/// What came on a bad connection is said no more often.
const TELLS_BAD: Micros = Micros::from_millis(1000);
/// So many reads of one connection before others have their turn.
const READS: usize = 16;

pub const WAKER: Token = Token(usize::MAX);
const CLIENTS: Token = Token(usize::MAX - 1);
const PEERS: Token = Token(usize::MAX - 2);

/// Where connections come in.
pub struct Listeners {
    clients: TcpListener,
    peers: TcpListener,
    local: LocalListener,
}

impl Listeners {
    /// For clients, for nodes, and for clients of this process.
    pub fn new(
        clients: std::net::TcpListener,
        peers: std::net::TcpListener,
        local: LocalListener,
    ) -> Listeners {
        Listeners { clients: TcpListener::from_std(clients), peers: TcpListener::from_std(peers), local }
    }
}

/// All connections of an executor.
pub struct Links {
    /// Where events come from.
    poll: Poll,
    /// Wakes this executor for what the poll does not tell of.
    wake: Wake,
    slab: Slab<Link>,
    /// None where connections come from another executor.
    listeners: Option<Listeners>,
    /// Connections of clients of this process, and perhaps some that are gone.
    local: Vec<u64>,
    /// The most connections of the node.
    max: usize,
    /// Connections with something to write.
    dirty: Vec<u64>,
    /// Connections that were not read to the end, and whether their end was told.
    unread: Vec<(u64, bool)>,
    /// Doors at which somebody waits whom the system did not let us accept.
    to_accept: Vec<Listener>,
    /// Connections that are gone, for the owner to note.
    closed: Vec<Closed>,
    /// Who cannot be reached, if anybody.
    cut: Option<Cut>,
    /// When it was last said why a connection was closed.
    told_bad: Micros,
    /// System calls that the metrics do not have yet.
    calls: TurnCalls,
    metrics: Arc<Metrics>,
}

impl Links {
    /// Those of the executor with this number, and what wakes it. It listens if it has where.
    pub fn new(
        (poll, wake): (Poll, Wake),
        number: u8,
        mut listeners: Option<Listeners>,
        max: usize,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Links> {
        if let Some(Listeners { clients, peers, .. }) = &mut listeners {
            poll.registry().register(clients, CLIENTS, Interest::READABLE)?;
            poll.registry().register(peers, PEERS, Interest::READABLE)?;
        }
        Ok(Links {
            poll,
            wake,
            slab: Slab::of(number),
            listeners,
            local: Vec::new(),
            max,
            dirty: Vec::new(),
            unread: Vec::new(),
            to_accept: Vec::new(),
            closed: Vec::new(),
            cut: None,
            told_bad: Micros::ZERO,
            calls: TurnCalls::default(),
            metrics,
        })
    }

    /// Waits for events, for so long at most; not at all while a connection was not read to the end.
    pub fn wait(&mut self, events: &mut Events, most: Duration) -> std::io::Result<()> {
        let wait = if self.unread.is_empty() { most } else { Duration::ZERO };
        self.calls.polls += 1;
        self.poll.poll(events, Some(wait))
    }

    /// Looks at an event; gives the connection to be read, if it is one.
    pub fn on_event(&mut self, event: &Event, now: Micros) -> Option<(u64, bool)> {
        let key = match event.token() {
            WAKER => return None,
            CLIENTS => {
                self.accept(Listener::Client, now);
                return None;
            }
            PEERS => {
                self.accept(Listener::Peer, now);
                return None;
            }
            Token(key) => key as u64,
        };
        let link = self.slab.get_mut(key)?;
        if event.is_writable() {
            if !link.conn.writable() {
                self.close(key);
                return None;
            }
            if !link.conn.out.is_empty() {
                self.mark(key);
            }
        }
        let ended = event.is_read_closed() || event.is_error();
        (event.is_readable() || ended).then_some((key, ended))
    }

    fn accept(&mut self, listener: Listener, now: Micros) {
        loop {
            let Some(Listeners { clients, peers, .. }) = &self.listeners else { return };
            let socket = match listener {
                Listener::Client => clients,
                Listener::Peer => peers,
            };
            match listen::accept(socket) {
                Accepted::One(stream) if self.has_room(listener) => {
                    self.add(Conn::accepted(stream), Role::New(listener), now);
                }
                Accepted::One(_) => {}
                Accepted::All => return,
                Accepted::NotNow => return self.to_accept.push(listener),
            }
        }
    }

    /// True if one more may come in. Clients do not take the places of nodes, without which no write is
    /// acknowledged.
    fn has_room(&self, listener: Listener) -> bool {
        let max = match listener {
            Listener::Client => self.max - self.max / 4,
            Listener::Peer => self.max,
        };
        self.metrics.connections.load(Ordering::Relaxed) < max as u64
    }

    /// Lets in who connects within this process. Gives the connections of this kind that have something to be
    /// read, and whether they have ended; those that have room again for what waits are written to with this
    /// turn. What comes behind this call wakes the executor once more (PR-432).
    pub fn on_local(&mut self, now: Micros) -> Vec<(u64, bool)> {
        while let Some(end) = self.listeners.as_ref().and_then(|listeners| listeners.local.accept()) {
            if self.has_room(Listener::Client) {
                self.add(Conn::local(end), Role::New(Listener::Client), now);
            }
        }
        let mut readable = Vec::new();
        let Links { local, slab, dirty, unread, .. } = self;
        local.retain(|key| {
            let Some(link) = slab.get_mut(*key) else { return false };
            let Some(events) = link.conn.local_events() else { return false };
            if events.writable && link.conn.out.is_blocked() {
                link.conn.out.unblock();
                note_dirty(dirty, *key, Some(&mut link.dirty));
            }
            // What is read on in the next turn has had its reads in this one.
            let is_next = unread.iter().any(|(other, _)| other == key);
            if (events.readable || events.ended) && !is_next {
                readable.push((*key, events.ended));
            }
            true
        });
        readable
    }

    /// Takes a connection in; `None` if the system does not let us.
    pub fn add(&mut self, conn: Conn, role: Role, now: Micros) -> Option<u64> {
        let (dirty, lossy, settled, handed) = (false, false, false, false);
        let link = Link { conn, role, since: now, dirty, lossy, settled, handed };
        let key = self.slab.insert(link);
        let link = self.slab.get_mut(key).expect("just put in");
        if link.conn.register(self.poll.registry(), Token(key as usize)).is_err() {
            self.slab.remove(key);
            return None;
        }
        if link.conn.is_local() {
            link.conn.wake_by(&self.wake);
            self.local.push(key);
        }
        self.metrics.connections.fetch_add(1, Ordering::Relaxed);
        Some(key)
    }

    /// True once for each connection: something on it is for a partition for the first time.
    pub fn is_first_message(&mut self, key: u64) -> bool {
        self.slab.get_mut(key).is_some_and(|link| !std::mem::replace(&mut link.settled, true))
    }

    /// A request of this connection is handed over to another executor.
    pub fn note_handed(&mut self, key: u64) {
        if let Some(link) = self.slab.get_mut(key) {
            link.handed = true;
        }
    }

    /// How many connections there are here.
    pub fn count(&self) -> usize {
        self.slab.len()
    }

    /// Gives a connection away, with what it has brought and what waits to be written. None if it is gone. It
    /// is counted until it is taken in: an executor that hangs lets no more pile up than there may be.
    pub fn release(&mut self, key: u64) -> Option<Guest> {
        let Link { mut conn, role, .. } = self.slab.remove(key)?;
        if conn.release(self.poll.registry()).is_err() {
            self.metrics.connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Guest { conn, role })
    }

    /// Takes in a connection that another executor gave away, and reads it from this turn on: its key. `None`
    /// if the system does not let us.
    pub fn adopt(&mut self, guest: Guest, now: Micros) -> Option<u64> {
        let writes = !guest.conn.out.is_empty();
        self.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        let key = self.add(guest.conn, guest.role, now)?;
        self.is_first_message(key);
        if writes {
            self.mark(key);
        }
        self.read_on(key, true);
        Some(key)
    }

    /// Reads once. `None`: the connection is gone.
    pub fn read(&mut self, key: u64, to_the_end: bool) -> Option<Got> {
        let link = self.slab.get_mut(key)?;
        self.calls.reads += u64::from(!link.conn.is_local());
        Some(link.conn.read(to_the_end))
    }

    /// How often a connection may be read in one turn.
    pub fn reads(&self) -> usize {
        READS
    }

    /// It was not read to the end: it is read on in the next turn. That its end has come is told only once.
    pub fn read_on(&mut self, key: u64, to_the_end: bool) {
        self.unread.push((key, to_the_end));
    }

    /// Connections that were not read to the end, and whether their end was told.
    pub fn take_unread(&mut self) -> Vec<(u64, bool)> {
        std::mem::take(&mut self.unread)
    }

    /// The next message of a connection and who sent it. `Err`: close it. Messages vanish in a cut.
    pub fn next(&mut self, key: u64) -> Result<Option<(Role, Message)>, String> {
        loop {
            let Some(link) = self.slab.get_mut(key) else { return Ok(None) };
            let greeting = matches!(link.role, Role::New(_) | Role::Refused);
            if greeting && link.conn.next_number().is_some_and(|number| number != 1) {
                return Err("the first message is not a hello".into());
            }
            let Some(message) = link.conn.next_message()? else { return Ok(None) };
            let role = link.role;
            if link.conn.is_local() && matches!(message, Message::Request(_)) {
                self.metrics.local_requests.fetch_add(1, Ordering::Relaxed);
            }
            if self.is_cut(role, Some(&message)) {
                self.slab.get_mut(key).expect("just seen").lossy = true;
                continue;
            }
            return Ok(Some((role, message)));
        }
    }

    fn is_cut(&self, role: Role, message: Option<&Message>) -> bool {
        let Some(cut) = &self.cut else { return false };
        let node = match role {
            Role::Client | Role::Operator | Role::New(Listener::Client) => return cut.clients,
            Role::Controller(_) | Role::DialingController(_) => return cut.controllers,
            Role::PeerIn(member) | Role::PeerOut(member) | Role::Pair(member) => member.node,
            Role::Dialing(node) => node,
            Role::New(Listener::Peer) | Role::Refused => match message {
                Some(Message::Hello(hello)) => hello.member.unwrap_or_default().node,
                _ => return false,
            },
        };
        cut.nodes.contains(&node)
    }

    /// True if nothing gets through to this node now.
    pub fn cut_from(&self, node: NodeId) -> bool {
        self.cut.as_ref().is_some_and(|cut| cut.nodes.contains(&node))
    }

    /// True if nothing gets through to controllers now.
    pub fn cut_from_controllers(&self) -> bool {
        self.cut.as_ref().is_some_and(|cut| cut.controllers)
    }

    /// A new cut. Connections that lost something and are not cut any more are closed.
    pub fn set_cut(&mut self, cut: Cut) {
        self.cut = (cut != Cut::default()).then_some(cut);
        let healed = self.slab.iter().filter(|(_, link)| link.lossy && !self.is_cut(link.role, None));
        for key in healed.map(|(key, _)| key).collect::<Vec<_>>() {
            self.close(key);
        }
    }

    /// Queues a message. It is written at the end of the turn.
    pub fn push(&mut self, key: u64, message: &Message) {
        self.put(key, |link| link.conn.out.push(message));
    }

    /// Queues a reply, which is given only before `until` (F01).
    pub fn reply(&mut self, key: u64, reply: Reply, until: Option<Micros>) {
        self.put(key, |link| match until {
            None => link.conn.out.push(&Message::Reply(reply)),
            Some(until) => link.conn.out.push_timed(reply, until),
        });
    }

    fn put(&mut self, key: u64, put: impl FnOnce(&mut Link) -> Result<(), String>) {
        let Some(link) = self.slab.get(key) else { return };
        let cut = self.is_cut(link.role, None);
        let link = self.slab.get_mut(key).expect("just seen");
        if cut {
            link.lossy = true;
            return;
        }
        if let Err(error) = put(link) {
            eprintln!("a message is not sent: {error}");
            return self.close(key);
        }
        if link.conn.out.len() > MAX_BYTES {
            return self.close(key);
        }
        self.mark(key);
    }

    fn mark(&mut self, key: u64) {
        note_dirty(&mut self.dirty, key, self.slab.get_mut(key).map(|link| &mut link.dirty));
    }

    /// Another role begins for this connection. One of two nodes stays where it is: its greeting said whose
    /// it is.
    pub fn set_role(&mut self, key: u64, role: Role, now: Micros) {
        if let Some(link) = self.slab.get_mut(key) {
            (link.role, link.since) = (role, now);
            link.settled |= matches!(role, Role::Pair(_));
        }
    }

    /// Refuses a connection with one sentence; what else comes is not looked at.
    pub fn refuse(&mut self, key: u64, sentence: String, now: Micros) {
        self.push(key, &Message::Welcome(wire::hello::Welcome::Refused(sentence)));
        self.set_role(key, Role::Refused, now);
    }

    /// Closes a connection because of a frame that is not sound, and says why if it had been let in: once a
    /// second at most.
    pub fn close_unsound(&mut self, key: u64, why: &str, now: Micros) {
        let role = self.slab.get_mut(key).map(|link| link.role);
        let known = role.filter(|role| !matches!(role, Role::New(_) | Role::Refused));
        if let Some(role) = known.filter(|_| now >= self.told_bad + TELLS_BAD) {
            self.told_bad = now;
            eprintln!("a connection is closed for what came on it: {why} ({role:?})");
        }
        self.close_bad(key);
    }

    /// Closes a connection because of what came on it.
    pub fn close_bad(&mut self, key: u64) {
        self.metrics.bad_connections.fetch_add(1, Ordering::Relaxed);
        self.close(key);
    }

    /// Closes a connection.
    pub fn close(&mut self, key: u64) {
        let Some(link) = self.slab.remove(key) else { return };
        self.closed.push(Closed { key, role: link.role, handed: link.handed });
        link.conn.close(self.poll.registry());
        self.metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Who is gone since the last call.
    pub fn take_closed(&mut self) -> Vec<Closed> {
        std::mem::take(&mut self.closed)
    }

    /// Writes every connection's buffer, once. What the turn took of system calls is counted with that.
    pub fn flush(&mut self) {
        let mut sent = 0;
        let mut dirty = std::mem::take(&mut self.dirty);
        for key in dirty.drain(..) {
            let Some(link) = self.slab.get_mut(key) else { continue };
            link.dirty = false;
            let over_network = !link.conn.is_local();
            let flushed = link.conn.flush();
            let writes = link.conn.out.take_writes();
            self.calls.writes += if over_network { writes } else { 0 };
            match flushed {
                Ok(written) => sent += if over_network { written } else { 0 },
                Err(_) => self.close(key),
            }
        }
        self.dirty = dirty;
        self.metrics.sent.fetch_add(sent, Ordering::Relaxed);
        self.metrics.system_calls.add(std::mem::take(&mut self.calls));
    }

    /// Closes connections whose handshake takes too long, and refused ones that have been told. Lets in who
    /// could not be accepted before.
    pub fn tidy(&mut self, now: Micros) {
        for listener in std::mem::take(&mut self.to_accept) {
            self.accept(listener, now);
        }
        let late = |link: &Link| {
            let age = now.since(link.since);
            match link.role {
                Role::New(_) => age > GREETING,
                Role::Dialing(_) | Role::DialingController(_) => age > DIALING,
                Role::Refused => link.conn.out.is_empty() || age > DIALING,
                _ => false,
            }
        };
        let late: Vec<u64> = self.slab.iter().filter(|(_, link)| late(link)).map(|(key, _)| key).collect();
        for key in late {
            self.close(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f18_whoever_says_nothing_is_let_go_and_sooner_where_we_connected() {
        // The system lets connections in, and nobody answers on them: a process that stands still.
        let stands_still = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = stands_still.local_addr().expect("has one");
        let wake: Wake = Arc::new(|| {});
        let poll = Poll::new().expect("a poll");
        let mut links = Links::new((poll, wake), 0, None, 8, Arc::default()).expect("links");
        let began = Micros(7);
        let roles = [Role::Dialing(NodeId(2)), Role::DialingController(0), Role::New(Listener::Peer)];
        for role in roles {
            links.add(Conn::dial(address).expect("dials"), role, began).expect("there is room");
        }
        let mut gone_at = |now: Micros| {
            links.tidy(now);
            links.take_closed().into_iter().map(|closed| closed.role).collect::<Vec<_>>()
        };
        assert!(gone_at(began + DIALING).is_empty());
        assert_eq!(gone_at(began + DIALING + Micros(1)), roles[..2]);
        assert!(gone_at(began + GREETING).is_empty());
        assert_eq!(gone_at(began + GREETING + Micros(1)), roles[2..]);
        assert_eq!(links.count(), 0);
    }
}
