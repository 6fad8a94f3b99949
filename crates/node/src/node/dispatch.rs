//! Messages in: each by the role of the connection it came on. To which executor they go is in `handover`.

use super::Node;
use super::links::{Listener, Role};
use super::staging::{Refused, refuses_client, refuses_peer};
use crate::failure::Failure;
use crate::metrics::Outcome;
use driver::admission::{self, Admission};
use replica::ClientRef;
use std::sync::atomic::Ordering;
use types::{Member, NodeId};
use wire::hello::{Hello, HelloRole, PROTOCOL, Secret, Welcome};
use wire::{Message, PeerMessage, Request, Status};

impl Node {
    pub(super) fn on_message(&mut self, key: u64, role: Role, message: Message) -> Result<(), Failure> {
        match (role, message) {
            (Role::Client, Message::Request(request)) => self.route_request(key, request),
            (Role::PeerIn(member) | Role::Pair(member), message) => match message.into_peer() {
                Some(message) => self.route_peer(key, member, message),
                None => self.connections.links().close_bad(key),
            },
            (Role::New(listener), Message::Hello(hello)) => self.on_hello(key, listener, hello),
            (Role::Dialing(node), Message::Welcome(welcome)) => self.on_peers_welcome(key, node, welcome),
            (Role::DialingController(index), Message::Welcome(welcome)) => {
                self.on_controllers_welcome(key, index, welcome)?;
            }
            (Role::Controller(_), message) => {
                if let Some(message) = self.records.of_controller(key, message) {
                    self.on_controller(key, message)?;
                }
            }
            (Role::Operator, Message::Admin(admin)) => self.on_operator(key, &admin)?,
            (Role::Refused, _) => {}
            _ => self.connections.links().close_bad(key),
        }
        Ok(())
    }

    /// A node answered our hello. It may send on this connection as well, so it must be whom we meant to
    /// reach (PR-515).
    fn on_peers_welcome(&mut self, key: u64, node: NodeId, welcome: Welcome) {
        match welcome {
            Welcome::Accepted { cluster, member: Some(member) }
                if member.node == node && Some(cluster) == self.storage.cluster() =>
            {
                if self.connections.peer_welcomes(key, member, self.timer.mono()) {
                    self.connected(member);
                }
            }
            Welcome::Refused(why) => self.connections.peer_refuses(key, node, &why),
            _ => self.connections.links().close(key),
        }
    }

    /// There is a connection to this member: what is not acknowledged is sent to it again.
    pub(super) fn connected(&mut self, member: Member) {
        self.replicas.input(self.timer.now(), |host, now, out| host.connected(now, member, out));
    }

    /// Who is there? Clients and nodes of this cluster are let in.
    fn on_hello(&mut self, key: u64, listener: Listener, hello: Hello) {
        let (now, me) = (self.timer.mono(), self.replicas.me());
        if hello.protocol != PROTOCOL {
            let sentence = format!(
                "this node speaks protocol {PROTOCOL}, not {}: use the same version on both sides",
                hello.protocol
            );
            return self.connections.links().refuse(key, sentence, now);
        }
        if !self.connections.admits(hello.secret.as_deref()) {
            return self.connections.links().refuse(key, Secret::REFUSAL.into(), now);
        }
        // Not part of a cluster yet: come again.
        let Some(cluster) = self.storage.cluster() else { return self.connections.links().close(key) };
        if hello.cluster.is_some_and(|wanted| wanted != cluster) {
            let sentence = format!("node {} belongs to cluster {cluster}", me.node.0);
            return self.connections.links().refuse(key, sentence, now);
        }
        let role = match (hello.role, listener, hello.member) {
            (HelloRole::Client, Listener::Client, _) => Role::Client,
            (HelloRole::Operator, Listener::Client, _) => Role::Operator,
            // No controller has let this life in: it may not be the member that it takes itself for
            // (PR-157). Come again.
            (HelloRole::Peer | HelloRole::Pair { .. }, Listener::Peer, _)
                if !self.reports.is_registered() =>
            {
                return self.connections.links().close(key);
            }
            (HelloRole::Peer, Listener::Peer, Some(member)) if member.node != me.node => Role::PeerIn(member),
            (HelloRole::Pair { executor, executors }, Listener::Peer, Some(member))
                if member.node != me.node =>
            {
                let owner = usize::from(executor);
                match self.connections.others().me() {
                    mine if mine.all != executors => Role::PeerIn(member),
                    mine if mine.number == owner => Role::Pair(member),
                    // Come again: nothing more is piled up for an executor that hangs.
                    _ if self.hangs(owner) => return self.connections.links().close(key),
                    _ => return self.hand_connection_over(key, owner, Message::Hello(hello)),
                }
            }
            _ => {
                let sentence = "this door is for others: look at the ports".into();
                return self.connections.links().refuse(key, sentence, now);
            }
        };
        if let Role::Pair(member) = role
            && !self.connections.pairs_with(key, member, now)
        {
            return;
        }
        self.connections.links().set_role(key, role, now);
        let welcome = Welcome::Accepted { cluster, member: Some(me) };
        self.connections.push(key, &Message::Welcome(welcome));
        // Who is not known yet is noted with the cluster map that names it: strangers fill no memory.
        if let Role::Pair(member) = role
            && self.connections.knows(member.node)
        {
            self.connected(member);
        }
    }

    /// A request for a partition of this executor.
    pub(super) fn on_request(&mut self, to: ClientRef, request: Request) {
        self.reports.metrics().requests.fetch_add(1, Ordering::Relaxed);
        let (me, id) = (self.replicas.me(), request.partition);
        if !self.replicas.host().has(id) {
            // No replica here, but the controllers have told who has one.
            return self.turn_away(to, &request, Status::NotPrimary);
        }
        let held = self.tails.held().holds(id);
        let full = if request.op.makes_entries() { self.storage.without_room(id) } else { None };
        let record = self.view.partition(id);
        if let Some(status) = admission::of_client(&request, me, record, held, full.as_deref()) {
            if matches!(status, Status::Full(_)) {
                self.reports.metrics().answered(Outcome::NotDone);
            }
            return self.turn_away(to, &request, status);
        }
        if let Some(status) = refuses_client(self.replicas.host(), &self.storage, &self.view, &request) {
            return self.turn_away(to, &request, status);
        }
        self.replicas.input(self.timer.now(), |host, now, out| host.request(now, to, request, out));
    }

    /// Answers without asking a replica; nothing was done.
    pub(super) fn turn_away(&mut self, to: ClientRef, request: &Request, status: Status) {
        let reply = admission::turned_away(request, status, self.view.partition(request.partition));
        self.connections.reply(to, reply, None);
    }

    /// Gives a message to the replica that it is for.
    pub(super) fn give_peer(&mut self, message: PeerMessage) {
        if let PeerMessage::Chunk(chunk) = &message {
            let received = chunk.bytes.len() as u64;
            self.reports.metrics().ship_received.fetch_add(received, Ordering::Relaxed);
        }
        let id = message.partition();
        let held = self.tails.held().holds(id);
        let brings = matches!(&message, PeerMessage::Append(append) if !append.entries.is_empty());
        let full = brings && self.storage.without_room(id).is_some();
        match admission::of_peer(&message, self.replicas.me(), held, full) {
            Admission::Given => {}
            Admission::Lost => return,
            Admission::Refused(to, refused) => {
                return self.connections.send(to, PeerMessage::AppendRefused(refused));
            }
            Admission::Heard(to, refused) => {
                if let PeerMessage::Append(append) = &message {
                    let now = self.timer.now();
                    self.replicas.input(now, |host, now, out| host.hear_positions(now, append, out));
                }
                return self.connections.send(to, PeerMessage::AppendRefused(refused));
            }
        }
        match refuses_peer(self.replicas.host(), &self.storage, &message) {
            Some(Refused::Silently) => {}
            Some(Refused::Answered(to, answer)) => {
                self.connections.send(to, PeerMessage::StageAnswer(answer))
            }
            None => self.replicas.input(self.timer.now(), |host, now, out| host.peer(now, message, out)),
        }
    }
}
