//! Messages in: each by the role of the connection it came on.

use super::Node;
use super::links::{Listener, Role};
use crate::failure::Failure;
use crate::metrics::Outcome;
use replica::ClientRef;
use std::sync::atomic::Ordering;
use types::{Lsn, Member, PartitionId};
use wire::hello::{Hello, HelloRole, PROTOCOL, Secret, Welcome};
use wire::peer::{AppendRefused, Refusal};
use wire::request::Hint;
use wire::{Body, Message, PeerMessage, Reply, Request, Status};

impl Node {
    pub(super) fn on_message(&mut self, key: u64, role: Role, message: Message) -> Result<(), Failure> {
        match (role, message) {
            (Role::Client, Message::Request(request)) => self.on_request(key, request),
            (Role::PeerIn(member), message) => match message.into_peer() {
                Some(message) => self.on_peer(key, member, message),
                None => self.links.close_bad(key),
            },
            (Role::New(listener), Message::Hello(hello)) => self.on_hello(key, listener, &hello),
            (Role::Dialing(node), Message::Welcome(welcome)) => match welcome {
                Welcome::Accepted { member: Some(member), .. } if member.node == node => {
                    self.links.set_role(key, Role::PeerOut(member), self.now.mono);
                    self.peers.welcomed(key, member);
                    self.host.connected(self.now, member, &mut self.out);
                }
                _ => self.links.close(key),
            },
            (Role::DialingController(index), Message::Welcome(welcome)) => {
                self.on_controllers_welcome(key, index, welcome)?;
            }
            (Role::Controller(_), message) => self.on_controller(key, message)?,
            (Role::Refused, _) => {}
            _ => self.links.close_bad(key),
        }
        Ok(())
    }

    /// Who is there? Clients and nodes of this cluster are let in.
    fn on_hello(&mut self, key: u64, listener: Listener, hello: &Hello) {
        let now = self.now.mono;
        if hello.protocol != PROTOCOL {
            let sentence = format!(
                "this node speaks protocol {PROTOCOL}, not {}: use the same version on both sides",
                hello.protocol
            );
            return self.links.refuse(key, sentence, now);
        }
        if !self.config.secret.admits(hello.secret.as_deref()) {
            return self.links.refuse(key, Secret::REFUSAL.into(), now);
        }
        // Not part of a cluster yet: come again.
        let Some(cluster) = self.dir.identity().cluster else { return self.links.close(key) };
        if hello.cluster.is_some_and(|wanted| wanted != cluster) {
            let sentence = format!("node {} belongs to cluster {cluster}", self.host.me().node.0);
            return self.links.refuse(key, sentence, now);
        }
        let role = match (hello.role, listener, hello.member) {
            (HelloRole::Client, Listener::Client, _) => Role::Client,
            (HelloRole::Peer, Listener::Peer, Some(member)) if member.node != self.host.me().node => {
                Role::PeerIn(member)
            }
            _ => return self.links.refuse(key, "this door is for others: look at the ports".into(), now),
        };
        self.links.set_role(key, role, now);
        let welcome = Welcome::Accepted { cluster, member: Some(self.host.me()) };
        self.links.push(key, &Message::Welcome(welcome));
    }

    fn on_request(&mut self, key: u64, request: Request) {
        self.metrics.requests.fetch_add(1, Ordering::Relaxed);
        let to = ClientRef { connection: key, request: request.id };
        if !self.host.has(request.partition) {
            // No replica here, but the controllers have told who has one.
            return self.turn_away(key, &request, Status::NotPrimary);
        }
        if self.holds(request.partition) {
            return self.turn_away_blocked(key, &request);
        }
        if request.op.writes()
            && let Some(place) = self.without_room(request.partition)
        {
            // Reads, flushes and truncation go on (F20).
            let status = Status::Full(format!(
                "the disk of node {} is full: free space in {place}, or hand its partitions over",
                self.host.me().node.0,
            ));
            self.metrics.answered(Outcome::NotDone);
            return self.turn_away(key, &request, status);
        }
        if let Some(status) = self.refuses_staging(&request) {
            return self.turn_away(key, &request, status);
        }
        self.host.request(self.now, to, request, &mut self.out);
    }

    /// The directory whose disk has no room for more of this partition.
    pub(super) fn without_room(&self, id: PartitionId) -> Option<String> {
        match self.timer.full {
            true => Some(self.dir.root().display().to_string()),
            false => self.full_directory(id),
        }
    }

    /// Its partition waits for room; if another node leads, that one is named.
    fn turn_away_blocked(&mut self, key: u64, request: &Request) {
        let record = self.view.partitions.get(&request.partition);
        let leads = record.is_some_and(|record| record.primary == self.host.me());
        let why = format!("node {} waits for room to set a divergent tail aside", self.host.me().node.0);
        self.turn_away(key, request, if leads { Status::NotYet(why) } else { Status::NotPrimary });
    }

    /// Answers without asking a replica; nothing was done.
    fn turn_away(&mut self, key: u64, request: &Request, status: Status) {
        let record = self.view.partitions.get(&request.partition);
        let elsewhere = status == Status::NotPrimary;
        let reply = Reply {
            id: request.id,
            status,
            lsn: Lsn::ZERO,
            epoch: record.map(|record| record.epoch).unwrap_or_default(),
            policy: record.map_or(0, |record| record.policy.version),
            copies: 0,
            hint: record.filter(|_| elsewhere).map(|record| Box::new(Hint::new(record))),
            body: Body::None,
        };
        self.links.reply(key, reply, None);
    }

    /// A message between replicas must come from whom it names.
    fn on_peer(&mut self, key: u64, member: Member, message: PeerMessage) {
        if message.sender().is_some_and(|from| from != member) {
            return self.links.close_bad(key);
        }
        if let PeerMessage::Chunk(chunk) = &message {
            self.metrics.ship_received.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
        }
        let blocked = self.holds(message.partition());
        if let PeerMessage::Append(append) = &message
            && !append.entries.is_empty()
            && (blocked || self.without_room(append.partition).is_some())
        {
            // The primary goes on without this copy until there is room again.
            let refused = AppendRefused {
                partition: append.partition,
                epoch: append.epoch,
                from: self.host.me(),
                number: append.number,
                why: Refusal::Busy,
            };
            return self.send(append.from, PeerMessage::AppendRefused(refused));
        }
        if blocked && !matches!(message, PeerMessage::Inform(_)) || self.refuses_to_stage(&message) {
            return;
        }
        self.host.peer(self.now, message, &mut self.out);
    }
}
