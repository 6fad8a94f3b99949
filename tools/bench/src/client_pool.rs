//! Our side as a peer's clients are: each closed-loop client has connections and sessions of its own, and all
//! are served by one thread that waits for all of them at once.

use crate::closed::Asking;
use crate::cluster::{TableUnderLoad, WAIT_LIMIT};
use crate::costs::CallCounts;
use crate::error::{BenchError, During};
use crate::subject::{Counters, Load, Sources, Subject, Way, note};
use client::{Client, LaneId};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// How long it waits before it lets every client look at its clock: a poll that tells of sockets does not
/// tell of timers.
const TIMERS: Duration = Duration::from_millis(100);
/// Each client has one call on its way.
const LANE: LaneId = LaneId(0);

/// Clients of a table that is under load, each on its own.
pub struct ClientPool<'a> {
    table: &'a mut TableUnderLoad,
    // In front of the clients: it lets go of them before they are gone.
    poll: Poll,
    clients: Vec<Client>,
    /// How often it has waited for all of them.
    polls: u64,
}

impl<'a> ClientPool<'a> {
    /// Connects as many clients as the table has.
    pub fn connect(table: &'a mut TableUnderLoad) -> Result<ClientPool<'a>, BenchError> {
        let poll = Poll::new().during("the load generator cannot be set up")?;
        let mut clients = Vec::new();
        for at in 0..table.clients() as usize {
            let client = table.another_client()?;
            // A client's poll shows as readable in this one as soon as any of its sockets has something.
            let registered =
                poll.registry().register(&mut SourceFd(&client.readiness()), Token(at), Interest::READABLE);
            registered.during("the load generator cannot be set up")?;
            clients.push(client);
        }
        Ok(ClientPool { table, poll, clients, polls: 0 })
    }

    /// Takes in what this client was told, and sends its next call unless the time is over. Says how many
    /// calls ended.
    fn serve(&mut self, at: usize, load: &mut Load, over: bool) -> Result<u32, BenchError> {
        let client = &mut self.clients[at];
        let mut ended = 0;
        // What is submitted is sent by the next poll, which may find an answer already.
        loop {
            let completed = client.poll(Duration::ZERO)?;
            if completed.is_empty() {
                return Ok(ended);
            }
            for completed in completed {
                self.table.check(&completed.outcome)?;
                note(&mut load.latencies, Duration::from_micros(completed.latency_us));
                load.ops += 1;
                if over {
                    ended += 1;
                } else {
                    client.submit(LANE, self.table.call()?);
                }
            }
        }
    }
}

impl Subject for ClientPool<'_> {
    fn label(&self) -> String {
        format!("{}, own connections", self.table.label())
    }

    fn settings(&self) -> String {
        format!(
            "{}; each of {} clients has one connection of its own to each node, and sessions of its own; all are on one thread",
            self.table.about(),
            self.clients.len()
        )
    }

    fn processes(&self) -> Vec<u32> {
        self.table.processes()
    }

    fn sources(&self) -> Sources {
        self.table.sources()
    }

    fn way(&self) -> Way {
        self.table.way()
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        let mut counters = self.table.counters()?;
        let sent: u64 = self.clients.iter().map(|client| client.traffic().sent).sum();
        counters.wire_bytes = counters.wire_bytes.map(|others| others + sent);
        let calls = self.clients.iter().map(|client| CallCounts::of_client(client.traffic()));
        let own = CallCounts { polls: self.polls, ..CallCounts::default() };
        counters.generator_calls = Some(calls.fold(own, CallCounts::plus));
        Ok(counters)
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        let mut load = Load::empty();
        let mut events = Events::with_capacity(self.clients.len());
        let mut open = 0;
        let begun = Instant::now();
        for at in 0..self.clients.len() {
            let call = self.table.call()?;
            self.clients[at].submit(LANE, call);
            open += 1;
            open -= self.serve(at, &mut load, false)?;
        }
        let mut heard = Instant::now();
        let mut timers = Instant::now();
        while open > 0 {
            self.polls += 1;
            match self.poll.poll(&mut events, Some(TIMERS)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other.during("the load generator cannot wait")?,
            }
            let before = load.ops;
            let mut ready: Vec<usize> = events.iter().map(|event| event.token().0).collect();
            if timers.elapsed() >= TIMERS {
                timers = Instant::now();
                ready = (0..self.clients.len()).collect();
            }
            for at in ready {
                open -= self.serve(at, &mut load, begun.elapsed() >= time)?;
            }
            if load.ops > before {
                heard = Instant::now();
            } else if heard.elapsed() >= WAIT_LIMIT {
                return Err(BenchError::Wrong("no answer within thirty seconds under load".into()));
            }
        }
        load.elapsed = begun.elapsed();
        Ok(load)
    }
}
