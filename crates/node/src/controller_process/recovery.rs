//! The recovery manager of global transactions, beside the controller that plans: one pass of
//! [`client::txn::Pass`] after the other, for as long as there is a transaction manager.

use client::txn::{Owner, Part, Pass, Step, Steps};
use client::{Client, ClientError, Completed, Options, Ticket};
use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use types::system::COMMITS;

/// After something went wrong.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How long the cluster may take for one thing.
const WAIT_LIMIT: Duration = Duration::from_secs(2);

/// The thread. Dropping it ends it.
pub struct Recovery {
    turn: Option<Sender<bool>>,
    thread: Option<JoinHandle<()>>,
}

impl Recovery {
    /// Starts the thread, beside the controller that listens there. It does nothing until it is told to; then
    /// it rests so long between two passes.
    pub fn start(controller: String, secret: Option<String>, rest: Duration) -> std::io::Result<Recovery> {
        let (turn, turned) = mpsc::channel();
        let work = Work { controller, secret, rest, client: None };
        let thread = std::thread::Builder::new().name("recovery".into()).spawn(move || work.run(&turned))?;
        Ok(Recovery { turn: Some(turn), thread: Some(thread) })
    }

    /// It is this one's turn, or another's.
    pub fn turn(&self, ours: bool) {
        if let Some(turn) = &self.turn {
            // The thread ends before this does only if it panicked, which was reported then.
            let _ = turn.send(ours);
        }
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        drop(self.turn.take());
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

struct Work {
    controller: String,
    secret: Option<String>,
    /// Between two passes.
    rest: Duration,
    client: Option<Client>,
}

impl Work {
    fn run(mut self, turned: &Receiver<bool>) {
        let (mut ours, mut rest) = (false, self.rest);
        loop {
            let news = match ours {
                true => turned.recv_timeout(rest),
                false => turned.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match news {
                Ok(turn) => ours = turn,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let passed = self.pass();
                    rest = if passed.is_ok() { self.rest } else { RETRY_DELAY };
                    if passed.is_err() {
                        self.client = None;
                    }
                }
            }
        }
    }

    fn pass(&mut self) -> Result<(), ClientError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.connect()?,
        };
        // News of tables come with the cluster map.
        client.poll(Duration::ZERO)?;
        if let Some(record) = client.cluster_map().table(COMMITS).cloned() {
            let copies = record.policy.min_in_sync;
            let (pass, call) = Pass::begin(client.transaction_manager()?, copies);
            let begun = vec![(Part::Manager, Step::Call(Box::new(call)))];
            Running { pass, calls: BTreeMap::new(), pauses: Vec::new() }.run(&mut client, begun)?;
        }
        self.client = Some(client);
        Ok(())
    }

    fn connect(&self) -> Result<Client, ClientError> {
        Client::connect(Options {
            controllers: vec![self.controller.clone()],
            agent: "recovery manager".into(),
            secret: self.secret.clone(),
            timeout: WAIT_LIMIT,
            ..Options::default()
        })
    }
}

/// A pass that is being made.
struct Running {
    pass: Pass,
    calls: BTreeMap<Ticket, Part>,
    pauses: Vec<(Instant, Part)>,
}

impl Running {
    fn run(mut self, client: &mut Client, begun: Steps) -> Result<(), ClientError> {
        self.take_steps(client, begun);
        while !self.calls.is_empty() || !self.pauses.is_empty() {
            let due = self.pauses.iter().map(|(until, _)| *until).min();
            let wait = due.map_or(WAIT_LIMIT, |due| due.saturating_duration_since(Instant::now()));
            for Completed { ticket, outcome, .. } in client.poll(wait)? {
                let Some(part) = self.calls.remove(&ticket) else { continue };
                let steps = self
                    .pass
                    .next(part, Some(outcome), |partition| Owner::of(client.cluster_map(), partition));
                self.take_steps(client, steps);
            }
            let now = Instant::now();
            let over: Vec<_> = self.pauses.extract_if(.., |(until, _)| *until <= now).collect();
            for (_, part) in over {
                let steps =
                    self.pass.next(part, None, |partition| Owner::of(client.cluster_map(), partition));
                self.take_steps(client, steps);
            }
        }
        Ok(())
    }

    fn take_steps(&mut self, client: &mut Client, steps: Steps) {
        for (part, step) in steps {
            match step {
                Step::Call(call) => drop(self.calls.insert(client.submit(Client::BLOCKING, *call), part)),
                Step::Wait(time) => {
                    self.pauses.push((Instant::now() + Duration::from_micros(time.0), part));
                }
                Step::Done(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_controller_that_stands_still_is_asked_again_and_holds_nobody_up() {
        let stands_still = TcpListener::bind("127.0.0.1:0").expect("binds");
        stands_still.set_nonblocking(true).expect("does not block");
        let address = stands_still.local_addr().expect("has one").to_string();
        let recovery = Recovery::start(address, None, Duration::from_millis(10)).expect("starts");
        recovery.turn(true);
        // Connections are kept, and nothing is said on them.
        let (begun, mut kept) = (Instant::now(), Vec::new());
        let last = 4 * (WAIT_LIMIT + RETRY_DELAY);
        while begun.elapsed() < last && kept.len() < 2 {
            kept.extend(stands_still.accept().ok());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(kept.len(), 2, "it is given up and asked again");
        let begun = Instant::now();
        drop(recovery);
        assert!(begun.elapsed() < 2 * WAIT_LIMIT, "{:?}", begun.elapsed());
    }
}
