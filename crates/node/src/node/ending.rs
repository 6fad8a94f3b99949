//! How a node ends: at once, or gently. Then it hands over what it leads, writes what waits, and marks its
//! log (F06, conventions).

use super::Node;
use super::mailbox::Handed;
use crate::failure::{Failure, status};
use crate::stop::{Stop, Stopper};
use std::collections::BTreeSet;
use types::{Member, Micros};
use wire::Message;
use wire::control::{Admin, AdminCommand};

/// The controllers are asked this often.
const ASK: Micros = Micros::from_millis(250);
/// Longer than this it does not wait: kill -9 is safe as well.
const WAIT_LIMIT: Micros = Micros::from_millis(5000);
/// The other executors may take so long to write what they have, if they do not hang.
const OTHERS_LIMIT: Micros = Micros::from_millis(5000);

/// Where the ending stands.
#[derive(Debug)]
pub struct Ending {
    stopper: Stopper,
    since: Option<Micros>,
    asked_at: Option<Micros>,
    over: bool,
    asked: u64,
    /// Other executors that were asked to end and have not yet, and until when they are waited for.
    awaited: Option<(BTreeSet<usize>, Micros)>,
    /// Something of another executor is not in the log.
    lacks: bool,
}

impl Ending {
    /// For a node that this stops.
    pub fn new(stopper: Stopper) -> Ending {
        let (since, asked_at, awaited) = (None, None, None);
        Ending { stopper, since, asked_at, over: false, asked: 0, awaited, lacks: false }
    }

    /// The node ends, and this is not its coordinator.
    pub fn end(&mut self) {
        self.over = true;
    }

    /// The one of the others with this number has ended. `whole`: nothing of it is missing in the log.
    pub fn other_ended(&mut self, number: usize, whole: bool) {
        self.lacks |= !whole;
        if let Some((awaited, _)) = &mut self.awaited {
            awaited.remove(&number);
        }
    }

    /// Begins to wait for these others. False if it has begun before.
    fn begins_to_wait(&mut self, others: impl Iterator<Item = usize>, now: Micros) -> bool {
        let begins = self.awaited.is_none();
        if begins {
            self.awaited = Some((others.collect(), now + OTHERS_LIMIT));
        }
        begins
    }

    /// True if the others have ended, or those that have not hang, or were waited for long enough.
    fn waits_no_more(&self, hangs: impl Fn(usize) -> bool, now: Micros) -> bool {
        let awaited = self.awaited.as_ref();
        awaited.is_some_and(|(awaited, until)| awaited.iter().all(|number| hangs(*number)) || now >= *until)
    }

    /// Those of the others that have not ended, by their numbers.
    fn unended(&self) -> Vec<usize> {
        self.awaited.iter().flat_map(|(awaited, _)| awaited).copied().collect()
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
    /// True once the other executors have written what they had, or hang, or were waited for long enough.
    /// They are asked to the first time. Only the coordinator waits.
    pub(super) fn others_have_ended(&mut self) -> bool {
        let others = self.connections.others();
        if others.is_alone() || !others.me().is_coordinator() {
            return true;
        }
        let now = self.timer.mono();
        if self.ending.begins_to_wait(0..others.me().all.count(), now) {
            others.give_all(|| Handed::End);
        }
        let connections = &self.connections;
        self.ending.waits_no_more(|number| connections.hangs(number, now) > Micros::ZERO, now)
    }

    /// The last steps.
    pub(super) fn end(self) -> Result<(), Failure> {
        let others = self.connections.others().clone();
        self.connections.end();
        // What waits for room is not in the log: the next life must not be taken for whole.
        let (now, all) = (self.timer.mono(), self.tails.held().is_empty());
        let me = others.me();
        if !me.is_coordinator() {
            let whole = self.journal.close(now) && all;
            others.give_coordinator(Handed::Ended { number: me.number, whole });
            return Ok(());
        }
        let hung = self.ending.unended();
        if !hung.is_empty() {
            // The log is theirs as well, and goes on until the process is gone.
            let why = format!("executors {hung:?} do not end: this node ends as if it had been killed");
            return Err(Failure::new(status::FAILED, why));
        }
        self.journal.shutdown(now, all && !self.ending.lacks)
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
        assert!(ending.begins_to_wait(0..2, at(0)) && !ending.begins_to_wait(0..2, at(500)));
        ending.other_ended(0, true);
        let over = |ending: &Ending, hung: usize, ms| ending.waits_no_more(|number| number == hung, at(ms));
        assert!(!over(&ending, 0, 4_999) && over(&ending, 0, 5_000), "it does not wait for ever");
        assert!(over(&ending, 1, 10), "who hangs is not waited for");
        assert_eq!(ending.unended(), [1]);
        ending.other_ended(1, false);
        assert!(over(&ending, 0, 10) && ending.lacks && ending.unended().is_empty());
        let mut next = Ending::new(ending.stopper.clone());
        assert!(next.tick(me, || false, at(0)).is_none() && next.is_over(), "nothing is to be handed over");
    }
}
