//! Addresses that are names: the system is asked on a thread of its own, since it may take seconds to answer
//! and the executor's replicas count as dead when it stands still for half a second.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};

/// What is known of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// It is this one, for one attempt to connect: the next one asks again, as a name may come to mean
    /// another host.
    Found(SocketAddr),
    /// The system has not answered yet.
    NotYet,
    /// The system knows no such name.
    Unknown,
}

/// A name that the system was asked for.
#[derive(Clone, Copy, Debug)]
enum Name {
    Asked,
    Answered(Option<SocketAddr>),
}

/// The thread that waits for the system. It ends when its owner is gone.
#[derive(Debug)]
struct Thread {
    asks: Sender<String>,
    answers: Receiver<(String, Option<SocketAddr>)>,
}

impl Thread {
    fn start() -> Option<Thread> {
        let (asks, asked) = channel::<String>();
        let (answer, answers) = channel();
        let work = move || {
            for name in asked {
                let found = name.to_socket_addrs().ok().and_then(|mut found| found.next());
                if answer.send((name, found)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("resolver".into()).spawn(work).ok()?;
        Some(Thread { asks, answers })
    }
}

/// Finds addresses without ever waiting. The thread is started for the first name: where all addresses are
/// numbers there is none.
#[derive(Debug, Default)]
pub struct Resolver {
    names: BTreeMap<String, Name>,
    thread: Option<Thread>,
}

impl Resolver {
    /// What is known of an address `host:port`. Whoever is told [`Lookup::NotYet`] asks again later.
    pub fn look_up(&mut self, address: &str) -> Lookup {
        if let Ok(address) = address.parse() {
            return Lookup::Found(address);
        }
        self.take_answers();
        match self.names.remove(address) {
            Some(Name::Answered(Some(found))) => Lookup::Found(found),
            Some(Name::Answered(None)) => Lookup::Unknown,
            Some(Name::Asked) => self.note_asked(address),
            None => self.ask(address),
        }
    }

    fn ask(&mut self, address: &str) -> Lookup {
        if self.thread.is_none() {
            self.thread = Thread::start();
        }
        match &self.thread {
            Some(thread) if thread.asks.send(address.into()).is_ok() => self.note_asked(address),
            _ => {
                self.thread = None;
                Lookup::Unknown
            }
        }
    }

    fn note_asked(&mut self, address: &str) -> Lookup {
        self.names.insert(address.into(), Name::Asked);
        Lookup::NotYet
    }

    fn take_answers(&mut self) {
        let answers = self.thread.iter().flat_map(|thread| thread.answers.try_iter());
        for (name, found) in answers.collect::<Vec<_>>() {
            self.names.insert(name, Name::Answered(found));
        }
    }

    /// Waits for one answer.
    #[cfg(test)]
    fn wait(&mut self) {
        let thread = self.thread.as_ref().expect("something was asked");
        let (name, found) = thread.answers.recv().expect("the thread lives");
        self.names.insert(name, Name::Answered(found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_no_thread_and_names_are_asked_for_beside_other_work() {
        let mut resolver = Resolver::default();
        assert_eq!(resolver.look_up("127.0.0.1:9"), Lookup::Found(([127, 0, 0, 1], 9).into()));
        assert!(resolver.thread.is_none());
        assert_eq!(resolver.look_up("localhost:9"), Lookup::NotYet);
        resolver.wait();
        let found = resolver.look_up("localhost:9");
        assert!(matches!(found, Lookup::Found(address) if address.ip().is_loopback()), "{found:?}");
        assert_eq!(resolver.look_up("localhost:9"), Lookup::NotYet, "each attempt asks anew");
    }

    #[test]
    fn what_is_no_address_is_unknown() {
        let mut resolver = Resolver::default();
        for wrong in ["", "nowhere", "127.0.0.1:x", "127.0.0.1:70000"] {
            assert_eq!(resolver.look_up(wrong), Lookup::NotYet, "{wrong}");
            resolver.wait();
            assert_eq!(resolver.look_up(wrong), Lookup::Unknown, "{wrong}");
        }
    }
}
