//! What comes in at one executor and belongs to another one.
//!
//! A connection goes where the first partition lies that something on it is for (PR-398), and one that two
//! nodes share to the executor that its greeting names. Who knows the map has a connection for each executor,
//! and nothing that it asks is handed over. What comes for other partitions is handed over by itself, and
//! answered by the way that it came.

use super::Node;
use super::mailbox::Handed;
use crate::failure::Failure;
use driver::kept::brings_records;
use replica::ClientRef;
use types::{Member, Micros};
use wire::{Message, PeerMessage, Request, Status};

/// Stands for the connection of what came by another executor.
const NO_CONNECTION: u64 = u64::MAX;

impl Node {
    /// Handles what other executors have handed over.
    pub(super) fn take_handed(&mut self) -> Result<(), Failure> {
        self.connections.others().take().into_iter().try_for_each(|handed| self.on_handed(handed))
    }

    fn on_handed(&mut self, handed: Handed) -> Result<(), Failure> {
        let now = self.timer.mono();
        match handed {
            Handed::Connection(guest, message) => {
                let role = guest.role();
                if let Some(key) = self.connections.links().adopt(*guest, now) {
                    self.on_message(key, role, *message)?;
                }
            }
            Handed::Request { to, request } => self.on_request(to, *request),
            Handed::Reply { to, reply, valid_until } => self.connections.reply(to, *reply, valid_until),
            Handed::ClientGone(key) => {
                self.replicas.input(self.timer.now(), |host, now, out| host.client_gone(now, key, out));
            }
            Handed::Peer(message) => self.take_peer(*message),
            Handed::Kept(message) => self.give_peer(*message),
            Handed::ClusterMap { cluster_map, unasked } => self.on_cluster_map(&cluster_map, unasked)?,
            Handed::Controller(message) => self.on_controller(NO_CONNECTION, *message)?,
            Handed::Tell(message) => self.connections.tell(&message),
            Handed::TellAll(message) => self.connections.tell_all(&message),
            Handed::Propose(propose) => self.connections.propose(*propose, now),
            Handed::Status { number, status, news } => self.reports.note_part(number, *status, news),
            Handed::Seen { key, id, seen } => self.on_seen(key, id, seen),
            Handed::End => self.ending.end(),
            Handed::Ended { number, whole } => self.ending.other_ended(number, whole),
            Handed::Failed(failure) => return Err(failure),
        }
        Ok(())
    }

    /// A request has come on a connection of this executor.
    pub(super) fn route_request(&mut self, key: u64, request: Request) {
        let to = ClientRef { connection: key, request: request.id };
        if self.connections.others().is_alone() {
            return self.on_request(to, request);
        }
        let is_first = self.connections.links().is_first_message(key);
        let Some(owner) = self.connections.others().elsewhere(request.partition) else {
            return self.on_request(to, request);
        };
        if is_first {
            return self.hand_connection_over(key, owner, Message::Request(request));
        }
        if self.hangs(owner) {
            return self.turn_away_from_hung(to, &request);
        }
        self.connections.links().note_handed(key);
        let handed = Handed::Request { to, request: Box::new(request.detached()) };
        if let Err(Handed::Request { request, .. }) = self.connections.others().offer(owner, handed) {
            let why = "the executor of this partition has too much to do".into();
            self.turn_away(to, &request, Status::NotYet(why));
        }
    }

    /// True if another executor hangs: nothing more is piled up for it than what it has by then.
    pub(super) fn hangs(&self, executor: usize) -> bool {
        self.connections.hangs(executor, self.timer.mono()) > Micros::ZERO
    }

    /// A request is for an executor that hangs. Another node may lead its partition by now: that one is
    /// named.
    fn turn_away_from_hung(&mut self, to: ClientRef, request: &Request) {
        let (me, record) = (self.replicas.me(), self.view.partition(request.partition));
        let status = match record.is_some_and(|record| record.primary != me) {
            true => Status::NotPrimary,
            false => Status::NotYet("the executor of this partition hangs".into()),
        };
        self.turn_away(to, request, status);
    }

    /// A message between replicas must come from whom it names.
    pub(super) fn route_peer(&mut self, key: u64, member: Member, message: PeerMessage) {
        if message.sender().is_some_and(|from| from != member) {
            return self.connections.links().close_bad(key);
        }
        if self.connections.others().is_alone() {
            return self.take_peer(message);
        }
        let is_first = self.connections.links().is_first_message(key);
        match self.connections.others().elsewhere(message.partition()) {
            None => self.take_peer(message),
            Some(owner) if is_first => self.hand_connection_over(key, owner, Message::from(message)),
            // What finds no room is lost, and so is what comes for one that hangs: the protocol sends it
            // again.
            Some(owner) if self.hangs(owner) => {}
            Some(owner) => drop(self.connections.others().offer(owner, Handed::Peer(Box::new(message)))),
        }
    }

    /// A connection goes where its first message belongs. What has come behind it goes with it.
    pub(super) fn hand_connection_over(&mut self, key: u64, owner: usize, message: Message) {
        if let Some(guest) = self.connections.links().release(key) {
            let handed = Handed::Connection(Box::new(guest), Box::new(message));
            self.connections.others().give(owner, handed);
        }
    }

    /// Has the records in a message of another replica kept, and then gives it to the replica that it is for.
    pub(super) fn take_peer(&mut self, message: PeerMessage) {
        if brings_records(&message) && !self.connections.others().me().is_coordinator() {
            return drop(self.connections.others().offer_coordinator(Handed::Peer(Box::new(message))));
        }
        let Some(message) = self.records.of_peer(message) else { return };
        self.give_kept(message);
    }

    /// The records in a message of another replica are kept: it goes to the replica that it is for.
    pub(super) fn give_kept(&mut self, message: PeerMessage) {
        match self.connections.others().elsewhere(message.partition()) {
            Some(owner) => self.connections.others().give(owner, Handed::Kept(Box::new(message))),
            None => self.give_peer(message),
        }
    }
}
