//! One connection: a nonblocking socket, or a pipe within this process; the handshake, frames in and out.

use crate::local::LocalNode;
use crate::pipe::PipeEvents;
use crate::stream::Stream;
use mio::net::TcpStream;
use mio::{Registry, Token, Waker};
use std::io::{self, ErrorKind, Read, Write};
use std::net::ToSocketAddrs;
use std::sync::Arc;
use types::engine::Wake;
use types::{ClusterId, Executors, Micros, NodeId, NodeRecord, PartitionId};
use wire::frame;
use wire::hello::{Hello, HelloRole, PROTOCOL, Welcome};
use wire::{Inbox, Message};

/// A buffer that grew beyond this for one large frame is given back once empty.
const KEEP_BYTES: usize = 1024 * 1024;

/// What went through sockets, and the system calls that it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Bytes written to sockets.
    pub sent: u64,
    /// Bytes read from sockets.
    pub received: u64,
    /// Writes to sockets.
    pub writes: u64,
    /// Reads of sockets.
    pub reads: u64,
    /// Waits for what comes, and looks for it without waiting.
    pub polls: u64,
}

/// Who connects, and to which cluster.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub cluster: Option<ClusterId>,
    pub secret: Option<String>,
    pub agent: String,
    /// The node of this process, if it has one, and what wakes the client for it.
    pub local: Option<(LocalNode, Arc<Waker>)>,
}

impl Identity {
    /// The node of this process, if that is the member that this record names. Any other incarnation of it is
    /// reached by its address (PR-431).
    fn local(&self, record: &NodeRecord) -> Option<&(LocalNode, Arc<Waker>)> {
        self.local.as_ref().filter(|(node, _)| node.is(record.member()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnState {
    /// The handshake is not through.
    Greeting,
    Ready,
}

pub(crate) struct Conn {
    stream: Stream,
    pub address: String,
    state: ConnState,
    /// When it was begun.
    pub since: Micros,
    out: Vec<u8>,
    out_from: usize,
    /// The socket took no more; it will say when it does.
    blocked: bool,
    inbox: Inbox,
}

/// How a read went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Amount {
    /// As much as there was room for: there may be more.
    Full,
    /// Less: the poll speaks up when more comes, but not a second time for an end that it has told of.
    Short,
    /// Nothing was there.
    Nothing,
}

/// What [`Conn::next`] found.
#[expect(
    clippy::large_enum_variant,
    reason = "it is looked at once, and a box would be one for each message"
)]
pub(crate) enum Incoming {
    /// The handshake is through: messages may be pushed.
    Welcome,
    Message(Message),
    /// More bytes are needed.
    Nothing,
}

impl Conn {
    /// Begins to connect; the greeting is on its way as soon as the socket is.
    pub fn open(
        address: &str,
        registry: &Registry,
        token: Token,
        role: HelloRole,
        identity: &Identity,
        now: Micros,
    ) -> Result<Conn, Broken> {
        let resolved = address.to_socket_addrs().map_err(|error| format!("{address}: {error}"))?.next();
        let resolved = resolved.ok_or_else(|| format!("{address}: no such address"))?;
        let stream = TcpStream::connect(resolved).map_err(|error| format!("{address}: {error}"))?;
        let mut stream = Stream::Tcp(stream);
        stream.register(registry, token).map_err(|error| format!("{address}: {error}"))?;
        Conn::greet(stream, address, role, identity, now)
    }

    /// The same to the node of this process, as a client. `waker` wakes the poll, which does not know of it:
    /// look at [`Conn::local_events`] then. The greeting is on its way with the next [`Conn::flush`].
    fn open_local(
        (node, waker): &(LocalNode, Arc<Waker>),
        address: &str,
        identity: &Identity,
        now: Micros,
    ) -> Result<Conn, Broken> {
        let end = node.connect().map_err(|error| format!("{address}, in this process: {error}"))?;
        let stream = Stream::Local(end);
        let waker = waker.clone();
        let wake: Wake = Arc::new(move || {
            // Fails only when the client is gone.
            let _ = waker.wake();
        });
        stream.wake_by(&wake);
        Conn::greet(stream, address, HelloRole::Client, identity, now)
    }

    fn greet(
        stream: Stream,
        address: &str,
        role: HelloRole,
        identity: &Identity,
        now: Micros,
    ) -> Result<Conn, Broken> {
        let mut conn = Conn {
            blocked: !stream.is_local(),
            stream,
            address: address.to_string(),
            state: ConnState::Greeting,
            since: now,
            out: Vec::new(),
            out_from: 0,
            inbox: Inbox::default(),
        };
        let hello = Hello {
            role,
            protocol: PROTOCOL,
            cluster: identity.cluster,
            member: None,
            secret: identity.secret.clone(),
            agent: identity.agent.clone(),
        };
        conn.push(&hello.into())?;
        Ok(conn)
    }

    /// True once the other side has let us in.
    pub fn is_ready(&self) -> bool {
        self.state == ConnState::Ready
    }

    /// Queues a message. Nothing is written before [`Conn::flush`], so that what is queued together goes out
    /// together.
    pub fn push(&mut self, message: &Message) -> Result<(), Broken> {
        Ok(frame::encode(message, &mut self.out)?)
    }

    /// The socket can be written to: it connected, or took what it had. The error says why it did not
    /// connect.
    pub fn writable(&mut self) -> Result<(), Broken> {
        // The poll says it with everything that can be read, too. What breaks later is told by reading and
        // writing.
        if self.blocked {
            self.blocked = !self.stream.is_connected().map_err(|error| self.broken(&error))?;
        }
        Ok(())
    }

    /// What a poll would say of a pipe; `None` for a socket, of which it says it.
    fn local_events(&self) -> Option<PipeEvents> {
        let events = self.stream.local_events()?;
        Some(PipeEvents { writable: events.writable && self.blocked, ..events })
    }

    /// Writes what is queued, as far as the socket takes it.
    pub fn flush(&mut self, traffic: &mut Traffic) -> Result<(), Broken> {
        while !self.blocked && self.out_from < self.out.len() {
            traffic.writes += self.counted(1);
            match self.stream.write(&self.out[self.out_from..]) {
                Ok(0) => return Err(self.closed()),
                Ok(written) => {
                    self.out_from += written;
                    traffic.sent += self.counted(written);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(&error)),
            }
        }
        if self.out_from == self.out.len() {
            self.out_from = 0;
            self.out.clear();
            if self.out.capacity() > KEEP_BYTES {
                self.out = Vec::new();
            }
        }
        Ok(())
    }

    /// Reads once.
    pub fn read(&mut self, traffic: &mut Traffic) -> Result<Amount, Broken> {
        loop {
            traffic.reads += self.counted(1);
            match self.stream.read(self.inbox.room()) {
                Ok(0) => return Err(self.closed()),
                Ok(read) => {
                    traffic.received += self.counted(read);
                    return Ok(if self.inbox.took(read) { Amount::Full } else { Amount::Short });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Ok(Amount::Nothing);
                }
                Err(error) => return Err(self.broken(&error)),
            }
        }
    }

    /// The next message among the bytes read. Any error closes the connection.
    pub fn next(&mut self, expected: &Expected) -> Result<Incoming, Broken> {
        let next = self.inbox.next_message().map_err(|error| format!("{}: {error}", self.address))?;
        let Some(message) = next else { return Ok(Incoming::Nothing) };
        match (self.state, message) {
            (ConnState::Greeting, Message::Welcome(welcome)) => {
                expected.check(&self.address, welcome)?;
                self.state = ConnState::Ready;
                Ok(Incoming::Welcome)
            }
            (ConnState::Ready, message) => Ok(Incoming::Message(message)),
            (ConnState::Greeting, message) => {
                Err(format!("{}: a {} came before the welcome", self.address, message.name()).into())
            }
        }
    }

    /// So many bytes or calls, if this is a socket.
    fn counted(&self, count: usize) -> u64 {
        if self.stream.is_local() { 0 } else { count as u64 }
    }

    /// Takes the socket out of the poll.
    pub fn close(mut self, registry: &Registry) {
        // It is dropped right after this, which closes it whether or not the poll knew it.
        let _ = self.stream.deregister(registry);
    }

    fn closed(&self) -> Broken {
        format!("{}: the connection was closed", self.address).into()
    }

    fn broken(&self, error: &io::Error) -> Broken {
        match error.kind() {
            ErrorKind::ConnectionRefused => Broken::Refused { address: self.address.clone() },
            _ => format!("{}: {error}", self.address).into(),
        }
    }
}

/// The connections to one node: one for each of its executors, by their numbers, and each is served by its
/// own. What becomes of one of them becomes of all.
pub(crate) struct NodeConns {
    executors: Executors,
    each: Vec<Conn>,
}

impl NodeConns {
    /// Begins to connect to a node, as clients do: to that of this process without a socket. `token`: of the
    /// connection with this number.
    pub fn open(
        record: &NodeRecord,
        registry: &Registry,
        token: impl Fn(usize) -> Token,
        identity: &Identity,
        now: Micros,
    ) -> Result<NodeConns, Broken> {
        let (address, executors) = (record.addresses.client.as_str(), record.executors);
        let mut conns = NodeConns { executors, each: Vec::new() };
        for number in 0..executors.count() {
            let opened = match identity.local(record) {
                Some(local) => Conn::open_local(local, address, identity, now),
                None => Conn::open(address, registry, token(number), HelloRole::Client, identity, now),
            };
            match opened {
                Ok(conn) => conns.each.push(conn),
                Err(why) => {
                    conns.close(registry);
                    return Err(why);
                }
            }
        }
        Ok(conns)
    }

    /// The connection with this number, if there is one.
    pub fn get(&mut self, number: usize) -> Option<&mut Conn> {
        self.each.get_mut(number)
    }

    /// What a poll would say of the connection with this number, if there is one and it is a pipe.
    pub fn local_events(&self, number: usize) -> Option<PipeEvents> {
        self.each.get(number)?.local_events()
    }

    /// Queues a message on the connection of the executor that it is for.
    pub fn push(&mut self, message: &Message) -> Result<(), Broken> {
        let partition = match message {
            Message::Request(request) => request.partition,
            _ => PartitionId::default(),
        };
        self.each[self.executors.of(partition)].push(message)
    }

    /// Writes what is queued on each, as far as the sockets take it.
    pub fn flush(&mut self, traffic: &mut Traffic) -> Result<(), Broken> {
        self.each.iter_mut().try_for_each(|conn| conn.flush(traffic))
    }

    /// True once the other side has let all of them in.
    pub fn is_ready(&self) -> bool {
        self.each.iter().all(Conn::is_ready)
    }

    /// When they were begun.
    pub fn since(&self) -> Micros {
        self.each.iter().map(|conn| conn.since).min().unwrap_or(Micros::ZERO)
    }

    /// Takes the sockets out of the poll.
    pub fn close(self, registry: &Registry) {
        self.each.into_iter().for_each(|conn| conn.close(registry));
    }
}

/// Whom a connection should reach.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected {
    pub cluster: Option<ClusterId>,
    pub node: Option<NodeId>,
}

/// Why a connection cannot be used, or not any more. One sentence each.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// Nobody listens there.
    #[error("{address}: connection refused")]
    Refused { address: String },
    /// The other side does not let us in, for this reason.
    #[error("refused the connection: {0}")]
    NotWelcome(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl From<String> for Broken {
    fn from(sentence: String) -> Broken {
        Broken::Other(sentence)
    }
}

impl Expected {
    fn check(&self, address: &str, welcome: Welcome) -> Result<(), Broken> {
        let (cluster, member) = match welcome {
            Welcome::Refused(why) => return Err(Broken::NotWelcome(why)),
            Welcome::Accepted { cluster, member } => (cluster, member),
            Welcome::Rebuilt { cluster, .. } => (cluster, None),
        };
        if self.cluster.is_some_and(|wanted| wanted != cluster) {
            return Err(Broken::NotWelcome(format!("it belongs to another cluster ({cluster})")));
        }
        match (self.node, member) {
            (Some(wanted), Some(member)) if wanted != member.node => {
                Err(format!("{address} is {}, not {wanted}", member.node).into())
            }
            _ => Ok(()),
        }
    }
}
