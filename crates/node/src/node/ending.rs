//! How a node ends: at once, or gently. Then it hands over what it leads, writes what waits, and marks its
//! log (F06, conventions).

use super::Node;
use crate::failure::Failure;
use crate::stop::{Stop, Stopper};
use types::{Member, Micros};
use wire::Message;
use wire::control::{Admin, AdminCommand};

/// The controllers are asked this often.
const ASK: Micros = Micros::from_millis(250);
/// Longer than this it does not wait: kill -9 is safe as well.
const WAIT_LIMIT: Micros = Micros::from_millis(5000);

/// Where the ending stands.
#[derive(Debug)]
pub struct Ending {
    stopper: Stopper,
    since: Option<Micros>,
    asked_at: Option<Micros>,
    over: bool,
    asked: u64,
}

impl Ending {
    /// For a node that this stops.
    pub fn new(stopper: Stopper) -> Ending {
        Ending { stopper, since: None, asked_at: None, over: false, asked: 0 }
    }

    /// True if nothing more is waited for.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// True if the node is to end at once.
    pub fn is_at_once(&self) -> bool {
        self.stopper.asked() == Stop::Now
    }

    /// True if the node is to end, now or gently.
    pub fn has_begun(&self) -> bool {
        self.stopper.asked() != Stop::No
    }

    /// Why the node cannot go on.
    pub fn broken(&self) -> Option<String> {
        self.stopper.broken()
    }

    /// Goes on with the ending, if one was asked for. `leads`: there is something to hand over, and a
    /// controller to see to it. Gives what to ask a controller for.
    pub fn tick(&mut self, me: Member, leads: impl FnOnce() -> bool, now: Micros) -> Option<Message> {
        if self.stopper.asked() != Stop::Gently {
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if !leads() || now.since(since) > WAIT_LIMIT {
            self.over = true;
            return None;
        }
        if self.asked_at.is_some_and(|at| now.since(at) < ASK) {
            return None;
        }
        self.asked_at = Some(now);
        self.asked += 1;
        Some(Message::Admin(Admin { id: self.asked, command: AdminCommand::Drain(me.node) }))
    }
}

impl Node {
    /// The last steps.
    pub(super) fn end(self) -> Result<(), Failure> {
        self.connections.end();
        // What waits for room is not in the log: the next life must not be taken for whole.
        self.journal.shutdown(self.timer.mono(), self.tails.held().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_gentle_end_asks_now_and_then_and_does_not_wait_for_ever() {
        let poll = mio::Poll::new().expect("a poll");
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
        let mut ending = Ending::new(Stopper::new(Arc::new(waker)));
        let (me, at) = (Member::default(), |ms: u64| Micros::from_millis(1_000 + ms));
        assert!(ending.tick(me, || true, at(0)).is_none() && !ending.has_begun());
        ending.stopper.ask(Stop::Gently);
        assert!(ending.tick(me, || true, at(0)).is_some() && !ending.is_over());
        assert!(ending.tick(me, || true, at(249)).is_none());
        assert!(ending.tick(me, || true, at(250)).is_some());
        assert!(ending.tick(me, || true, at(5_001)).is_none() && ending.is_over());
        let mut next = Ending::new(ending.stopper.clone());
        assert!(next.tick(me, || false, at(0)).is_none() && next.is_over(), "nothing is to be handed over");
    }
}
