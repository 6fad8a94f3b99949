//! Sending: which calls go out now, and to whom.

use super::pending::{Kind, Pending};
use super::{Core, Effect, Key, Link, Waiter};
use crate::call::{Call, Ticket};
use crate::session::Phase;
use std::collections::btree_map::Entry;
use types::{Micros, NodeId, SessionId};
use wire::{Op, ReadLevel};

impl Core {
    /// Sends what this session may send now: its opening, what must be sent again, and new writes up to the
    /// window.
    pub(super) fn pump(&mut self, now: Micros, key: Key) {
        let Some(session) = self.sessions.get(&key) else { return };
        if session.is_settled() || session.retry_at.is_some_and(|at| at > now) {
            return;
        }
        if session.phase == Phase::Closed && !session.queue.is_empty() && session.limbo.is_empty() {
            self.begin_opening(now, key);
        }
        let (mut tickets, turn) = self.prepare(key);
        if !tickets.is_empty() {
            match self.map.target(key.0, ReadLevel::Primary, turn) {
                Some(node) if matches!(self.links.get(&node), Some(Link::Up(_))) => {
                    self.launch_all(now, key, node, &tickets);
                }
                Some(node) => self.park(node, Waiter::Session(key)),
                None => self.unknown_partition(now, Waiter::Session(key)),
            }
        }
        tickets.clear();
        self.unsent = tickets;
    }

    /// Sends a read, if it is due.
    pub(super) fn pump_read(&mut self, now: Micros, ticket: Ticket) {
        let Some(pending) = self.pending.get(&ticket) else { return };
        if !pending.to_send || pending.retry_at.is_some_and(|at| at > now) {
            return;
        }
        let request = pending.request();
        // Reads at any replica begin at different ones, to spread them.
        let spread = if matches!(request.read, ReadLevel::Any { .. }) { ticket.0 as u32 } else { 0 };
        let turn = pending.turn.wrapping_add(spread);
        let target = pending.node.or_else(|| self.map.target(request.partition, request.read, turn));
        match target {
            Some(node) if matches!(self.links.get(&node), Some(Link::Up(_))) => {
                let pending = self.pending.get_mut(&ticket).expect("looked up above");
                self.effects.push_back(launch(pending, now, node, ticket));
            }
            Some(node) => self.park(node, Waiter::Read(ticket)),
            None => self.unknown_partition(now, Waiter::Read(ticket)),
        }
    }

    fn begin_opening(&mut self, now: Micros, key: Key) {
        let first = self.sessions[&key].queue[0];
        let request = self.pending[&first].request();
        let call = Call::new(request.table, request.schema, key.0, Op::OpenSession);
        let ticket = self.admit(now, Pending::new(now, key.1, Kind::Open, call));
        self.sessions.get_mut(&key).expect("looked up above").phase = Phase::Opening(ticket);
    }

    /// Gives numbers to writes as far as the window goes. Everything of the session that waits to be sent
    /// then, in order, and whose turn it is to be asked. An opening that must be made again is not, if nobody
    /// waits for it any more.
    fn prepare(&mut self, key: Key) -> (Vec<Ticket>, u32) {
        let Core { sessions, pending, windows, config, unsent, .. } = self;
        let session = sessions.get_mut(&key).expect("the caller looked it up");
        if let Phase::Opening(ticket) = session.phase
            && session.queue.is_empty()
            && pending[&ticket].to_send
        {
            pending.remove(&ticket);
            session.close();
        }
        if let Phase::Open(id) = session.phase
            && session.limbo.is_empty()
        {
            let window = windows.get(&key.1).copied().unwrap_or(config.window);
            while session.on_their_way() < window {
                let Some(ticket) = session.queue.pop_front() else { break };
                let seq = session.assign(ticket);
                let request = pending.get_mut(&ticket).expect("queued calls are pending").request_mut();
                (request.session, request.seq) = (id, seq);
            }
        }
        let mut tickets = std::mem::take(unsent);
        match session.phase {
            Phase::Closed => {}
            Phase::Opening(ticket) => tickets.extend(Some(ticket).filter(|ticket| pending[ticket].to_send)),
            Phase::Open(_) | Phase::Retiring(_) => tickets.extend(session.unsent()),
        }
        (tickets, session.turn)
    }

    fn launch_all(&mut self, now: Micros, key: Key, node: NodeId, tickets: &[Ticket]) {
        let session = self.sessions.get_mut(&key).expect("the caller looked it up");
        let confirmed = session.confirmed();
        session.retry_at = None;
        session.used_at = now;
        session.sent_to = Some(node);
        session.sent();
        for ticket in tickets {
            let pending = self.pending.get_mut(ticket).expect("a session's calls are pending");
            if pending.kind == Kind::Write {
                pending.request_mut().confirmed = confirmed;
            }
            self.effects.push_back(launch(pending, now, node, *ticket));
        }
    }

    /// Waits for a connection, and asks for it unless somebody did.
    fn park(&mut self, node: NodeId, waiter: Waiter) {
        if let Entry::Vacant(link) = self.links.entry(node) {
            link.insert(Link::Connecting);
            self.effects.push_back(Effect::Connect(node));
        }
        let parked = self.parked.entry(node).or_default();
        if !parked.contains(&waiter) {
            parked.push(waiter);
        }
    }

    /// Everything unanswered of this session is to be sent again, in order.
    pub(super) fn rewind(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        session.rewind();
        if let Phase::Opening(ticket) = session.phase {
            self.pending.get_mut(&ticket).expect("an opening is pending").to_send = true;
        }
    }

    /// Tries again after a wait that grows; `turn` says whether another member is tried then.
    pub(super) fn back_off(&mut self, now: Micros, waiter: Waiter, other_member: bool) {
        let (backoff, turn, retry_at) = match waiter {
            Waiter::Session(key) => {
                let Some(session) = self.sessions.get_mut(&key) else { return };
                (&mut session.backoff, &mut session.turn, &mut session.retry_at)
            }
            Waiter::Read(ticket) => {
                let Some(pending) = self.pending.get_mut(&ticket) else { return };
                pending.to_send = true;
                (&mut pending.backoff, &mut pending.turn, &mut pending.retry_at)
            }
        };
        // Several answers to one window ask for one wait.
        if retry_at.is_some_and(|at| at > now) {
            return;
        }
        if other_member {
            *turn = turn.wrapping_add(1);
        }
        let at = now + backoff.wait(&mut self.jitter);
        *retry_at = Some(at);
        self.retries.insert((at, waiter));
        if let Waiter::Session(key) = waiter {
            self.rewind(key);
        }
    }
}

/// Makes the next attempt of a call: what is to be done for it.
fn launch(pending: &mut Pending, now: Micros, node: NodeId, ticket: Ticket) -> Effect {
    assert!(
        pending.kind != Kind::Write || pending.request().session != SessionId::NONE,
        "{ticket} has no session"
    );
    pending.launch(now, ticket, node);
    pending.retry_at = None;
    Effect::Send(node, pending.request().id)
}
