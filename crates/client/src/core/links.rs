//! Connections that come and go, and configurations that change.

use super::pending::Kind;
use super::{Core, Effect, Key, Link, Waiter};
use crate::call::{LaneId, Outcome, Ticket};
use types::{Micros, NodeId, PartitionId};
use wire::ReadLevel;

impl Core {
    /// A connection asked for by [`Effect::Connect`] is there and welcomed.
    pub fn connected(&mut self, now: Micros, node: NodeId) {
        self.links.insert(node, Link::Up(now));
        for waiter in self.parked.remove(&node).unwrap_or_default() {
            self.resume(now, waiter);
        }
    }

    /// A connection broke or could not be made. What it carried may have been done; it is sent again, perhaps
    /// elsewhere.
    pub fn disconnected(&mut self, now: Micros, node: NodeId, why: &str) {
        self.links.remove(&node);
        let mut waiters = self.parked.remove(&node).unwrap_or_default();
        for (ticket, pending) in &mut self.pending {
            if pending.flight.is_none_or(|flight| flight.node != node) {
                continue;
            }
            pending.flight_lost();
            pending.to_send = true;
            waiters.push(match pending.kind {
                Kind::Read => Waiter::Read(*ticket),
                Kind::Open | Kind::Write => Waiter::Session((pending.request().partition, pending.lane)),
            });
        }
        waiters.sort();
        waiters.dedup();
        for waiter in waiters {
            self.end_limbo(now, waiter);
            self.note(waiter, why);
            self.back_off(now, waiter, true);
        }
    }

    /// Keeps why a waiter waits, for the sentence about a missed deadline.
    fn note(&mut self, waiter: Waiter, why: &str) {
        let first = match waiter {
            Waiter::Read(ticket) => Some(ticket),
            Waiter::Session(key) => self.first_of(key),
        };
        if let Some(pending) = first.and_then(|ticket| self.pending.get_mut(&ticket)) {
            pending.last_word = why.to_string();
        }
    }

    /// Calls in limbo whose last attempt will not be answered any more are unknown.
    fn end_limbo(&mut self, now: Micros, waiter: Waiter) {
        let Waiter::Session(key) = waiter else { return };
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let pending = &self.pending;
        let (lost, kept) = session.limbo.drain(..).partition(|ticket| pending[ticket].flight.is_none());
        session.limbo = kept;
        let lost: Vec<Ticket> = lost;
        for ticket in lost {
            let why = self.pending[&ticket].last_word.clone();
            self.finish(now, ticket, Outcome::Unknown(why));
        }
    }

    /// Something was heard from a node.
    pub(super) fn heard(&mut self, now: Micros, node: NodeId) {
        if let Some(Link::Up(at)) = self.links.get_mut(&node) {
            *at = now;
        }
    }

    /// An attempt was not answered in time: if its node has been silent all that while its connection is
    /// given up.
    pub(super) fn silent(&mut self, now: Micros, ticket: Ticket) {
        let Some(pending) = self.pending.get(&ticket) else { return };
        let Some(flight) = pending.flight else { return };
        let quiet = matches!(self.links.get(&flight.node), Some(Link::Up(heard)) if *heard <= flight.since);
        if quiet {
            self.effects.push_back(Effect::Close(flight.node));
            self.disconnected(now, flight.node, "the node did not answer");
            return;
        }
        let waiter = match pending.kind {
            Kind::Read => Waiter::Read(ticket),
            Kind::Open | Kind::Write => Waiter::Session((pending.request().partition, pending.lane)),
        };
        if self.leave_limbo(ticket) {
            self.finish(now, ticket, Outcome::Unknown("the node did not answer".into()));
        }
        self.back_off(now, waiter, false);
    }

    /// Goes on with what waited.
    pub(super) fn resume(&mut self, now: Micros, waiter: Waiter) {
        match waiter {
            Waiter::Session(key) => self.pump(now, key),
            Waiter::Read(ticket) => self.pump_read(now, ticket),
        }
    }

    /// A partition has a newer configuration: what waits for it tries at once, and what is on its way to a
    /// deposed primary is sent to the new one.
    pub(super) fn configuration_changed(&mut self, now: Micros, partition: PartitionId) {
        let Some(primary) = self.map.primary(partition) else { return };
        let keys: Vec<Key> = self.sessions_of(partition).collect();
        for key in keys {
            let session = self.sessions.get_mut(&key).expect("listed above");
            session.retry_at = None;
            session.turn = 0;
            if session.sent_to.is_some_and(|node| node != primary) {
                self.rewind(key);
            }
            self.pump(now, key);
        }
        let reads: Vec<Ticket> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.kind == Kind::Read && pending.request().partition == partition)
            .filter(|(_, pending)| pending.node.is_none() && pending.request().read == ReadLevel::Primary)
            .filter(|(_, pending)| {
                pending.to_send || pending.flight.is_some_and(|flight| flight.node != primary)
            })
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in reads {
            let pending = self.pending.get_mut(&ticket).expect("listed above");
            (pending.to_send, pending.retry_at, pending.turn) = (true, None, 0);
            self.pump_read(now, ticket);
        }
    }

    fn sessions_of(&self, partition: PartitionId) -> impl Iterator<Item = Key> + '_ {
        let all = (partition, LaneId(0))..=(partition, LaneId(u32::MAX));
        self.sessions.range(all).map(|(key, _)| *key)
    }
}
