//! One connection: a nonblocking socket with a buffer on either side.

use super::outbox::Outbox;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use wire::Message;
use wire::frame::{self, FRAME_HEADER_BYTES};

/// The least room that a read is offered.
const READ_BYTES: usize = 64 * 1024;
/// A buffer that grew beyond this for one large frame is given back once it is empty.
const KEEP_BYTES: usize = 1 << 20;

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
    stream: TcpStream,
    inbox: Vec<u8>,
    in_from: usize,
    in_to: usize,
    /// What is to be written.
    pub out: Outbox,
}

impl Conn {
    /// Begins to connect. It can be written to once the poll says so.
    pub fn dial(address: SocketAddr) -> io::Result<Conn> {
        Ok(Conn::new(TcpStream::connect(address)?, Outbox::blocked()))
    }

    /// One that was accepted.
    pub fn accepted(stream: TcpStream) -> Conn {
        // Fails only where the option does not exist; then answers are a little late.
        let _ = stream.set_nodelay(true);
        Conn::new(stream, Outbox::default())
    }

    fn new(stream: TcpStream, out: Outbox) -> Conn {
        Conn { stream, inbox: Vec::new(), in_from: 0, in_to: 0, out }
    }

    /// Has the poll tell of this connection under `token`.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.stream, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Takes it out of the poll; dropping it closes it.
    pub fn close(mut self, registry: &Registry) {
        let _ = registry.deregister(&mut self.stream);
    }

    /// The socket can be written to. False if it could not connect.
    pub fn writable(&mut self) -> bool {
        // The poll says it with everything that can be read, too. What breaks later is told by reading and writing.
        if !self.out.is_blocked() {
            return true;
        }
        if self.stream.take_error().map_or(true, |error| error.is_some()) {
            return false;
        }
        if self.stream.peer_addr().is_ok() {
            let _ = self.stream.set_nodelay(true);
            self.out.unblock();
        }
        true
    }

    /// Writes what waits, as far as the socket takes it; says how many bytes it took.
    pub fn flush(&mut self) -> io::Result<u64> {
        self.out.flush(&mut self.stream, crate::clock::mono)
    }

    /// Reads once. A short read empties the socket, so the poll will tell of what comes after it; but the end of the
    /// stream is told only once, so `to_the_end` reads on.
    pub fn read(&mut self, to_the_end: bool) -> Got {
        self.make_room();
        loop {
            match self.stream.read(&mut self.inbox[self.in_to..]) {
                Ok(0) => return Got::Closed,
                Ok(read) => {
                    self.in_to += read;
                    let more = to_the_end || self.in_to == self.inbox.len();
                    return if more { Got::More } else { Got::All };
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
        let bytes = &self.inbox[self.in_from..self.in_to];
        (bytes.len() >= FRAME_HEADER_BYTES).then(|| u16::from_le_bytes([bytes[4], bytes[5]]))
    }

    /// The next message among the bytes read. Any error closes the connection.
    pub fn next_message(&mut self) -> Result<Option<Message>, String> {
        let decoded =
            frame::decode(&self.inbox[self.in_from..self.in_to]).map_err(|error| error.to_string())?;
        let Some((message, taken)) = decoded else { return Ok(None) };
        self.in_from += taken;
        Ok(Some(message))
    }

    /// Moves what is unread to the front if the room behind it is short.
    fn make_room(&mut self) {
        if self.in_from == self.in_to {
            self.in_from = 0;
            self.in_to = 0;
            if self.inbox.len() > KEEP_BYTES {
                self.inbox = Vec::new();
            }
        }
        if self.inbox.len() - self.in_to >= READ_BYTES / 2 {
            return;
        }
        self.inbox.copy_within(self.in_from..self.in_to, 0);
        self.in_to -= self.in_from;
        self.in_from = 0;
        let wanted = (self.in_to * 2).max(self.in_to + READ_BYTES);
        self.inbox.resize(wanted, 0);
    }
}
