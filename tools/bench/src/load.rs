//! The load generator for peers: closed-loop clients, each on a connection of its own, all served by one
//! thread with one poll, as our own client serves its lanes.

use crate::costs::CallCounts;
use crate::error::{BenchError, During};
use crate::generate::{Step, Steps};
use crate::subject::{Load, note};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// A peer's protocol, seen from one connection with one request on its way.
pub trait Speak {
    /// Appends the request for this step to what is to be sent.
    fn ask(&mut self, step: &Step, out: &mut Vec<u8>);

    /// How long the answer at the start of `input` is; `None` if it is not complete. An error if it is not
    /// the answer that the request should have.
    fn answer(&mut self, input: &[u8]) -> Result<Option<usize>, String>;
}

/// Sends what is to be sent and waits for its answer: for what comes before the load.
pub fn blocking(
    stream: &mut std::net::TcpStream,
    request: &[u8],
    mut complete: impl FnMut(&[u8]) -> Result<Option<usize>, String>,
) -> Result<Vec<u8>, String> {
    let cut = |error: std::io::Error| format!("the connection broke: {error}");
    stream.write_all(request).map_err(cut)?;
    let mut input = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        if let Some(length) = complete(&input)? {
            input.truncate(length);
            return Ok(input);
        }
        match stream.read(&mut chunk).map_err(cut)? {
            0 => return Err("the connection was closed".into()),
            count => input.extend_from_slice(&chunk[..count]),
        }
    }
}

struct Client<S> {
    stream: TcpStream,
    speaks: S,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    filled: usize,
    asked: Option<Instant>,
}

/// What a generator has done since it began. It only grows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Bytes written to all sockets.
    pub sent: u64,
    /// System calls.
    pub calls: CallCounts,
}

/// Clients of a peer.
pub struct Generator<S> {
    poll: Poll,
    clients: Vec<Client<S>>,
    /// What it has done.
    pub done: Done,
}

impl<S: Speak> Generator<S> {
    /// Takes connections over that are ready to be asked.
    pub fn new(connections: Vec<(std::net::TcpStream, S)>) -> Result<Generator<S>, BenchError> {
        let what = "the load generator cannot be set up";
        let poll = Poll::new().during(what)?;
        let mut clients = Vec::new();
        for (at, (stream, speaks)) in connections.into_iter().enumerate() {
            stream.set_nonblocking(true).during(what)?;
            stream.set_nodelay(true).during(what)?;
            let mut stream = TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(at), interest).during(what)?;
            let (out, input) = (Vec::new(), vec![0; 16 * 1024]);
            clients.push(Client { stream, speaks, out, sent: 0, input, filled: 0, asked: None });
        }
        Ok(Generator { poll, clients, done: Done::default() })
    }

    /// Lets every client ask, wait and ask again until the time is over and the last answer is there.
    pub fn run(&mut self, steps: &mut Steps, time: Duration) -> Result<Load, BenchError> {
        let mut load = Load::empty();
        let mut events = Events::with_capacity(64);
        let begun = Instant::now();
        for client in &mut self.clients {
            client.ask(steps, &mut self.done)?;
        }
        while self.clients.iter().any(|client| client.asked.is_some()) {
            self.done.calls.polls += 1;
            let polled = self.poll.poll(&mut events, Some(Duration::from_secs(10)));
            match polled {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other.during("the load generator cannot wait")?,
            }
            if events.is_empty() {
                return Err(BenchError::Wrong("no answer within ten seconds under load".into()));
            }
            for event in &events {
                let client = &mut self.clients[event.token().0];
                if event.is_writable() {
                    client.flush(&mut self.done)?;
                }
                if !event.is_readable() && !event.is_read_closed() {
                    continue;
                }
                while let Some(asked) = client.receive(&mut self.done)? {
                    note(&mut load.latencies, asked.elapsed());
                    load.ops += 1;
                    if begun.elapsed() >= time {
                        break;
                    }
                    client.ask(steps, &mut self.done)?;
                }
            }
        }
        load.elapsed = begun.elapsed();
        Ok(load)
    }
}

impl<S: Speak> Client<S> {
    fn ask(&mut self, steps: &mut Steps, done: &mut Done) -> Result<(), BenchError> {
        let asked = Instant::now();
        self.out.clear();
        self.sent = 0;
        self.speaks.ask(&steps.step(), &mut self.out);
        self.asked = Some(asked);
        self.flush(done)
    }

    fn flush(&mut self, done: &mut Done) -> Result<(), BenchError> {
        while self.sent < self.out.len() {
            done.calls.writes += 1;
            match self.stream.write(&self.out[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    done.sent += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(BenchError::io("a request cannot be sent", error)),
            }
        }
        Ok(())
    }

    /// Reads what is there. Gives the time of the request if its answer is complete.
    fn receive(&mut self, done: &mut Done) -> Result<Option<Instant>, BenchError> {
        loop {
            if self.filled > 0
                && let Some(length) =
                    self.speaks.answer(&self.input[..self.filled]).map_err(BenchError::Wrong)?
            {
                if length < self.filled {
                    return Err(BenchError::Wrong("more came back than was asked for".into()));
                }
                self.filled = 0;
                return Ok(self.asked.take());
            }
            if self.filled == self.input.len() {
                self.input.resize(self.input.len() * 2, 0);
            }
            done.calls.reads += 1;
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(BenchError::Wrong("the server closed a connection under load".into())),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(BenchError::io("an answer cannot be read", error)),
            }
        }
    }
}
