//! A controller's connections. All of them are accepted; what the messages mean is not known here.

use crate::clock;
use crate::net::conn::Got;
use crate::net::listen::{self, Accepted};
use crate::net::outbox::MAX_BYTES;
use crate::net::{Conn, Slab, note_dirty};
use controller::ConnId;
use mio::event::Event;
use mio::net::TcpListener;
use mio::{Interest, Poll, Token};
use std::time::Duration;
use types::{ClusterId, Generation, Micros};
use wire::Message;
use wire::hello::Welcome;

pub const WAKER: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);

/// So many reads of one connection before others have their turn.
pub const READS: usize = 16;
/// A handshake that takes longer closes the connection.
const GREETING: Micros = Micros::from_millis(5000);
/// The most connections.
const MAX_CONNECTIONS: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnState {
    New,
    In,
    Refused,
}

struct Link {
    conn: Conn,
    state: ConnState,
    since: Micros,
    dirty: bool,
}

/// All connections of a controller.
pub struct Links {
    /// Where events come from.
    pub poll: Poll,
    listener: TcpListener,
    slab: Slab<Link>,
    dirty: Vec<u64>,
    /// Connections that were not read to the end, and whether their end was told.
    unread: Vec<(u64, bool)>,
    /// The system did not let us accept; no event will tell when it does.
    more_to_accept: bool,
}

impl Links {
    pub fn new(poll: Poll, listener: std::net::TcpListener) -> std::io::Result<Links> {
        let mut listener = TcpListener::from_std(listener);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Links {
            poll,
            listener,
            slab: Slab::default(),
            dirty: Vec::new(),
            unread: Vec::new(),
            more_to_accept: false,
        })
    }

    /// How long the poll may sleep.
    pub fn patience(&self, until: Duration) -> Duration {
        if self.unread.is_empty() && self.dirty.is_empty() { until } else { Duration::ZERO }
    }

    /// Looks at an event; gives the connection to be read, if it is one.
    pub fn on_event(&mut self, event: &Event) -> Option<(u64, bool)> {
        let key = match event.token() {
            WAKER => return None,
            LISTENER => {
                self.accept();
                return None;
            }
            Token(key) => key as u64,
        };
        let ended = event.is_read_closed() || event.is_error();
        let link = self.slab.get_mut(key)?;
        if event.is_writable() && link.conn.writable() && !link.conn.out.is_empty() {
            self.mark(key);
        }
        (event.is_readable() || ended).then_some((key, ended))
    }

    fn accept(&mut self) {
        self.more_to_accept = false;
        loop {
            let stream = match listen::accept(&self.listener) {
                Accepted::One(stream) => stream,
                Accepted::All => return,
                Accepted::NotNow => {
                    self.more_to_accept = true;
                    return;
                }
            };
            if self.slab.len() >= MAX_CONNECTIONS {
                continue;
            }
            let link = Link {
                conn: Conn::accepted(stream),
                state: ConnState::New,
                since: clock::mono(),
                dirty: false,
            };
            let key = self.slab.insert(link);
            let link = self.slab.get_mut(key).expect("just put in");
            if link.conn.register(self.poll.registry(), Token(key as usize)).is_err() {
                self.slab.remove(key);
            }
        }
    }

    /// Reads once. `None`: the connection is gone.
    pub fn read(&mut self, key: u64, to_the_end: bool) -> Option<Got> {
        Some(self.slab.get_mut(key)?.conn.read(to_the_end))
    }

    /// It is read on in the next turn. That its end has come is told only once.
    pub fn read_on(&mut self, key: u64, to_the_end: bool) {
        self.unread.push((key, to_the_end));
    }

    /// Connections that were not read to the end, and whether their end was told.
    pub fn take_unread(&mut self) -> Vec<(u64, bool)> {
        std::mem::take(&mut self.unread)
    }

    /// The next message of a connection, and whether it has been let in. `Err`: close it.
    pub fn next(&mut self, key: u64) -> Result<Option<(bool, Message)>, String> {
        loop {
            let Some(link) = self.slab.get_mut(key) else { return Ok(None) };
            if link.state == ConnState::New && link.conn.next_number().is_some_and(|number| number != 1) {
                return Err("the first message is not a hello".into());
            }
            let Some(message) = link.conn.next_message()? else { return Ok(None) };
            if link.state != ConnState::Refused {
                return Ok(Some((link.state == ConnState::In, message)));
            }
        }
    }

    /// Queues a message. It is written at the end of the turn.
    pub fn push(&mut self, key: u64, message: &Message) {
        let Some(link) = self.slab.get_mut(key) else { return };
        if let Err(error) = link.conn.out.push(message) {
            eprintln!("a message is not sent: {error}");
            link.state = ConnState::Refused;
        } else if link.conn.out.len() > MAX_BYTES {
            // Whoever does not read is told nothing more, and comes again.
            link.state = ConnState::Refused;
        }
        self.mark(key);
    }

    fn mark(&mut self, key: u64) {
        note_dirty(&mut self.dirty, key, self.slab.get_mut(key).map(|link| &mut link.dirty));
    }

    /// Lets a connection in.
    pub fn welcome(&mut self, key: u64, cluster: ClusterId, generation: Generation) {
        let welcome = match generation.is_first() {
            true => Welcome::Accepted { cluster, member: None },
            false => Welcome::Rebuilt { cluster, generation },
        };
        self.push(key, &Message::Welcome(welcome));
        if let Some(link) = self.slab.get_mut(key) {
            link.state = ConnState::In;
        }
    }

    /// Refuses a connection with one sentence.
    pub fn refuse(&mut self, key: u64, sentence: String) {
        self.push(key, &Message::Welcome(Welcome::Refused(sentence)));
        if let Some(link) = self.slab.get_mut(key) {
            (link.state, link.since) = (ConnState::Refused, clock::mono());
        }
    }

    /// Closes a connection after what was sent on it.
    pub fn close(&mut self, key: u64) {
        let Some(mut link) = self.slab.remove(key) else { return };
        // What the socket does not take now is lost with it.
        let _ = link.conn.flush();
        link.conn.close(self.poll.registry());
    }

    /// Writes every connection's buffer, once. Gives those that broke.
    pub fn flush(&mut self) -> Vec<ConnId> {
        let mut broken = Vec::new();
        for key in std::mem::take(&mut self.dirty) {
            let Some(link) = self.slab.get_mut(key) else { continue };
            link.dirty = false;
            if link.conn.flush().is_err() {
                self.close(key);
                broken.push(ConnId(key));
            }
        }
        broken
    }

    /// Closes connections whose handshake takes too long, and refused ones that have been told.
    ///
    /// Lets in who could not be accepted before.
    pub fn tidy(&mut self, now: Micros) {
        if self.more_to_accept {
            self.accept();
        }
        let late = |link: &Link| {
            let age = now.since(link.since);
            match link.state {
                ConnState::New => age > GREETING,
                ConnState::Refused => link.conn.out.is_empty() || age > GREETING,
                ConnState::In => false,
            }
        };
        let late: Vec<u64> = self.slab.iter().filter(|(_, link)| late(link)).map(|(key, _)| key).collect();
        late.into_iter().for_each(|key| self.close(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f18_who_says_nothing_is_let_go() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("has one");
        listener.set_nonblocking(true).expect("does not block");
        let mut links = Links::new(Poll::new().expect("a poll"), listener).expect("links");
        let since = Micros(7);
        for state in [ConnState::New, ConnState::In] {
            let conn = Conn::dial(address).expect("dials");
            links.slab.insert(Link { conn, state, since, dirty: false });
        }
        links.tidy(since + GREETING);
        assert_eq!(links.slab.len(), 2);
        links.tidy(since + GREETING + Micros(1));
        assert_eq!(links.slab.len(), 1, "whoever was let in stays");
    }
}
