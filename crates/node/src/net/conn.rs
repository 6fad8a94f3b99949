//! One connection: a nonblocking socket, or a pipe within this process, with a buffer on either side.

use super::outbox::Outbox;
use client::{PipeEnd, PipeEvents, Stream};
use mio::net::TcpStream;
use mio::{Registry, Token};
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use types::engine::Wake;
use wire::{Inbox, Message};

/// What a read found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Got {
    /// All there was.
    All,
    /// There may be more: read again.
    More,
    /// The other side is gone.
    Closed,
}

/// A connection.
#[derive(Debug)]
pub struct Conn {
    stream: Stream,
    inbox: Inbox,
    /// What is to be written.
    pub out: Outbox,
}

impl Conn {
    /// Begins to connect. It can be written to once the poll says so.
    pub fn dial(address: SocketAddr) -> io::Result<Conn> {
        Ok(Conn::new(Stream::Tcp(TcpStream::connect(address)?), Outbox::blocked()))
    }

    /// One that was accepted.
    pub fn accepted(stream: TcpStream) -> Conn {
        // Fails only where the option does not exist; then answers are a little late.
        let _ = stream.set_nodelay(true);
        Conn::new(Stream::Tcp(stream), Outbox::default())
    }

    /// One of a client in this process.
    pub fn local(end: PipeEnd) -> Conn {
        Conn::new(Stream::Local(end), Outbox::default())
    }

    fn new(stream: Stream, out: Outbox) -> Conn {
        Conn { stream, inbox: Inbox::default(), out }
    }

    /// Has the poll tell of this connection under `token`. It tells of no pipe.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.stream.register(registry, token)
    }

    /// Has a pipe wake its owner by this. What was there before is not told: look at [`Conn::local_events`].
    pub fn wake_by(&self, wake: &Wake) {
        self.stream.wake_by(wake);
    }

    /// What a poll would say of a pipe; `None` for a socket.
    pub fn local_events(&self) -> Option<PipeEvents> {
        self.stream.local_events()
    }

    /// True for a pipe.
    pub fn is_local(&self) -> bool {
        self.stream.is_local()
    }

    /// Takes it out of the poll; dropping it closes it.
    pub fn close(mut self, registry: &Registry) {
        let _ = self.stream.deregister(registry);
    }

    /// Takes it out of the poll, for another one.
    pub fn release(&mut self, registry: &Registry) -> io::Result<()> {
        self.stream.deregister(registry)
    }

    /// The socket can be written to. False if it could not connect.
    pub fn writable(&mut self) -> bool {
        // The poll says it with everything that can be read, too. What breaks later is told by reading and
        // writing.
        if !self.out.is_blocked() {
            return true;
        }
        match self.stream.is_connected() {
            Ok(true) => self.out.unblock(),
            Ok(false) => {}
            Err(_) => return false,
        }
        true
    }

    /// Writes what waits, as far as the socket takes it; says how many bytes it took.
    pub fn flush(&mut self) -> io::Result<u64> {
        self.out.flush(&mut self.stream, crate::clock::mono)
    }

    /// Reads once. A short read empties the socket, so the poll will tell of what comes after it; but the end
    /// of the stream is told only once, so `to_the_end` reads on.
    pub fn read(&mut self, to_the_end: bool) -> Got {
        loop {
            match self.stream.read(self.inbox.room()) {
                Ok(0) => return Got::Closed,
                Ok(read) => {
                    let filled = self.inbox.took(read);
                    return if to_the_end || filled { Got::More } else { Got::All };
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Got::All;
                }
                Err(_) => return Got::Closed,
            }
        }
    }

    /// The number of the next message, once its header is there.
    pub fn next_number(&self) -> Option<u16> {
        self.inbox.next_number()
    }

    /// The next message among the bytes read. Any error closes the connection.
    pub fn next_message(&mut self) -> Result<Option<Message>, String> {
        self.inbox.next_message().map_err(|error| error.to_string())
    }
}
