//! The records are made anew after the metastore was lost (PR-107): controllers that were replaced are not
//! listened to, and an operator is told what is kept here.

use super::Node;
use super::mailbox::Handed;
use super::records::AwaitingRecords;
use crate::clock;
use crate::failure::{Failure, status};
use driver::kept::listens_to;
use std::collections::BTreeMap;
use types::{Epoch, Generation, PartitionId, Rules};
use wire::control::{Admin, AdminAnswer, AdminCommand};
use wire::{KeptRecords, Message, RecordText};

impl Node {
    /// Acts on the records that are kept by now.
    pub(super) fn act_on_kept(&mut self) -> Result<(), Failure> {
        while let Some(held) = self.records.next() {
            match held {
                AwaitingRecords::Controller(key, message) => self.on_controller(key, message)?,
                AwaitingRecords::Peer(message) => self.give_kept(message),
            }
        }
        Ok(())
    }

    /// A controller of this generation lets us in. False if it was replaced: it is not listened to.
    pub(super) fn listens_to(
        &mut self,
        key: u64,
        index: usize,
        generation: Generation,
    ) -> Result<bool, Failure> {
        let known = self.storage.generation();
        if !listens_to(Rules::ALL, known, generation) {
            if self.connections.is_first_refusal(index, generation) {
                eprintln!(
                    "node {} does not listen to the controller {}: it is of {generation}, and its records were made anew \
                     since ({known}); stop it, and name the new one in node.controllers",
                    self.replicas.me().node.0,
                    self.connections.controller_address(index)
                );
            }
            self.connections.links().close(key);
            return Ok(false);
        }
        // One that has nothing yet has nothing that only it knows of.
        let nothing = self.storage.is_empty();
        self.hear_only(generation, nothing)?;
        Ok(true)
    }

    /// From now on no lower generation is listened to. What one has said that waits to be kept would be acted
    /// on as if this node had been asked for its records.
    fn hear_only(&mut self, generation: Generation, asked: bool) -> Result<(), Failure> {
        if generation > self.storage.generation() {
            self.records.forget_controllers();
        }
        self.storage.hear_only(generation, asked)?;
        for key in self.connections.controllers_below(generation) {
            self.connections.links().close(key);
        }
        self.note_closed(self.timer.now());
        Ok(())
    }

    /// What an operator asks of this very node.
    pub(super) fn on_operator(&mut self, key: u64, admin: &Admin) -> Result<(), Failure> {
        let result = match &admin.command {
            // The same one is somebody else's, whose records are others.
            AdminCommand::Records(Some(generation)) if *generation <= self.storage.generation() => {
                let known = self.storage.generation();
                let why = format!(
                    "{} listens to {known} already: another rebuild is under way or has ended; if it has not, run this again",
                    self.replicas.me().node
                );
                Err((status::REFUSED, why))
            }
            AdminCommand::Records(Some(generation)) if !generation.is_plausible(clock::now().wall_ms) => {
                Err((status::USAGE, format!("{generation} is far in the future of this node's clock")))
            }
            AdminCommand::Records(Some(_)) if self.connections.has_controller() => {
                let at = self.connections.connected_controllers().join(", ");
                let why = format!("{} is connected to the controller {at}", self.replicas.me().node);
                Err((status::REFUSED, why))
            }
            AdminCommand::Records(generation) => {
                if let Some(generation) = generation {
                    self.hear_only(*generation, true)?;
                }
                // What the other executors know is asked for first.
                self.ask_seen(key, admin.id);
                return Ok(());
            }
            _ => Err((status::USAGE, "controllers are asked that, and this is a node".into())),
        };
        self.connections.push(key, &Message::AdminAnswer(AdminAnswer { id: admin.id, result }));
        Ok(())
    }

    fn ask_seen(&mut self, key: u64, id: u64) {
        match self.connections.others().is_alone() {
            true => self.on_seen(key, id, Vec::new()),
            false => {
                let others = self.connections.others();
                others.give(others.next(), Handed::Seen { key, id, seen: Vec::new() });
            }
        }
    }

    /// What those before this executor know of epochs. It adds what it knows; the coordinator answers.
    pub(super) fn on_seen(&mut self, key: u64, id: u64, mut seen: Vec<(PartitionId, Epoch)>) {
        for replica in self.replicas.host().replicas() {
            let known = replica.record().map_or(Epoch::ZERO, |record| record.epoch);
            seen.push((replica.id(), replica.log().end().term.began().max(known)));
        }
        let others = self.connections.others();
        if !others.me().is_coordinator() {
            return others.give(others.next(), Handed::Seen { key, id, seen });
        }
        let result = Ok(RecordText::new(&self.kept_records(seen)).0);
        self.connections.push(key, &Message::AdminAnswer(AdminAnswer { id, result }));
    }

    fn kept_records(&self, of_replicas: Vec<(PartitionId, Epoch)>) -> KeptRecords {
        let kept = self.records.report();
        let mut seen: BTreeMap<PartitionId, Epoch> = kept.seen.iter().copied().collect();
        for (id, epoch) in of_replicas {
            let entry = seen.entry(id).or_insert(epoch);
            *entry = epoch.max(*entry);
        }
        KeptRecords {
            member: self.replicas.me(),
            cluster: self.storage.cluster(),
            generation: self.storage.generation(),
            asked: self.storage.asked(),
            askings: self.storage.askings(),
            seen: seen.into_iter().collect(),
            controllers: self.connections.connected_controllers(),
            ..kept
        }
    }
}
