//! Outputs out: carried out in the order in which the host gave them.

use super::links::Role;
use super::{LogRead, Node};
use crate::clock;
use crate::failure::Failure;
use crate::metrics::Outcome;
use replica::{ClientRef, Leases, Output};
use std::sync::atomic::Ordering;
use types::{Member, Micros};
use wire::control::{Propose, Served};
use wire::{Body, Message, PeerMessage, Reply, Status};

/// So many of the newest failovers are told again: controllers keep no more of them either.
const MOST_SERVED: usize = 1000;

impl Node {
    pub(super) fn carry_out(&mut self) -> Result<(), Failure> {
        let mut outputs = std::mem::take(&mut self.out);
        for output in outputs.drain(..) {
            self.carry(output)?;
        }
        // Its memory is used again.
        self.out = outputs;
        Ok(())
    }

    pub(super) fn carry(&mut self, output: Output) -> Result<(), Failure> {
        let Some(output) = self.hold(output) else { return Ok(()) };
        match output {
            Output::Log(op) => self.journal.push(op),
            Output::Send { to, message } => self.send(to, message),
            Output::Reply { to, reply, valid_until, .. } => self.reply(to, *reply, valid_until),
            Output::Propose(propose) => self.propose(propose),
            Output::Suspect(suspect) => {
                // A node that the machine did not let listen knows nothing of the others; it is asked again soon.
                let now = clock::mono();
                if now.since(self.leases.listening_since(now)) >= self.config.timing.suspect {
                    self.tell_all(&Message::Suspect(suspect));
                }
            }
            Output::Served(served) => self.served(served),
            Output::SetAside { report, entries, rows } => self.set_aside(report, entries, rows)?,
            Output::ReadLog { partition, from, max_bytes, purpose } => {
                self.log_reads.push_back(LogRead { partition, from, max_bytes, purpose });
            }
            Output::Install { partition } => {
                self.installing.insert(partition);
                (self.wake)();
            }
            Output::Checkpoint { partition } => self.timer.checkpoint_soon(partition),
            Output::Notice { partition, what } => {
                eprintln!("partition {partition} on node {}: {what}", self.host.me().node.0);
            }
            Output::Damaged { partition, reason } => {
                eprintln!("partition {partition} on node {}: {reason}", self.host.me().node.0);
                self.suspect_directory(partition);
                self.timer.status_soon();
            }
        }
        Ok(())
    }

    /// To another replica. Lost if that life of that node is not connected.
    pub(super) fn send(&mut self, to: Member, message: PeerMessage) {
        if let Some(key) = self.peers.to(to) {
            if let PeerMessage::Chunk(chunk) = &message {
                self.metrics.ship_sent.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
            }
            self.links.push(key, &Message::from(message));
        }
    }

    fn reply(&mut self, to: ClientRef, reply: Reply, valid_until: Option<Micros>) {
        if let Some(outcome) = outcome(&reply) {
            self.metrics.answered(outcome);
        }
        self.links.reply(to.connection, reply, valid_until);
    }

    /// To one controller; to another one if the same is proposed again without an answer.
    fn propose(&mut self, propose: Propose) {
        if self.timer.proposed_before(self.now.mono, &propose.record.0) {
            self.controllers.another();
        }
        if let Some(key) = self.controllers.one() {
            self.links.push(key, &Message::Propose(propose));
        }
    }

    /// To every controller that is there; suspicions are repeated anyway.
    fn tell_all(&mut self, message: &Message) {
        for key in self.controllers.all() {
            self.links.push(key, message);
        }
    }

    fn served(&mut self, served: Served) {
        if self.served.len() >= MOST_SERVED {
            self.served.pop_front();
        }
        self.served.push_back(served.clone());
        self.tell(&Message::Served(served));
    }

    /// To one controller. Who is not heard, because none is there or because it dies with the message, says it again when the node
    /// registers: [`Node::tell_again`].
    pub(super) fn tell(&mut self, message: &Message) {
        if let Some(key) = self.controllers.one() {
            self.links.push(key, message);
        }
    }

    /// Tells how failovers to this node went, and every tail on its disk: of these, too, a life before may not have been heard.
    pub(super) fn tell_again(&mut self) {
        let served = self.served.iter().cloned().map(Message::Served);
        let tails = self.tails.iter().cloned().map(Message::TailSetAside);
        let all: Vec<Message> = served.chain(tails).collect();
        all.iter().for_each(|message| self.tell(message));
    }

    /// Notes which connections are gone, so that they are made again.
    pub(super) fn note_closed(&mut self) {
        for (key, role) in self.links.take_closed() {
            match role {
                Role::Dialing(node) | Role::PeerOut(Member { node, .. }) => {
                    self.peers.lost(node, key, self.now.mono);
                }
                Role::Controller(index) | Role::DialingController(index) => {
                    self.controllers.lost(index, key, self.now.mono);
                }
                Role::New(_) | Role::Client | Role::PeerIn(_) | Role::Refused => {}
            }
        }
    }
}

/// How a write was answered; `None` for a read.
fn outcome(reply: &Reply) -> Option<Outcome> {
    match (&reply.status, &reply.body) {
        (Status::Ok, Body::Affected(_)) => Some(Outcome::Ok),
        (Status::Refused(_), _) => Some(Outcome::Refused),
        (Status::Unknown(_), _) => Some(Outcome::Unknown),
        (Status::Ok, _) => None,
        _ => Some(Outcome::NotDone),
    }
}
