//! The second directory of a node's replicas: lost while node and log go on, back at a later start or not at
//! all.

use super::lsm::place;
use super::machines::last;
use super::{Event, Phase, World};
use crate::check::nodes::{self, At};
use crate::check::wanted::rests_on_primary;
use crate::event::Cure;
use crate::network::{Endpoint, Lane};
use crate::node::{FIRST, PartFiles, SECOND, Second, SnapshotFile};
use engine::MemoryEngine;
use types::{Engine, NodeId, PartitionId, PartitionRecord};
use wire::peer::Fetched;

/// What replicas say that lost their directory.
const REASON: &str = "its directory is gone";

impl World {
    /// The first node from this one on that has something in its second directory; this one, if none has.
    pub(super) fn next_with_second(&self, node: u32) -> u32 {
        let nodes = self.plan.nodes;
        let mut all = (0..nodes).map(|further| 1 + (node - 1 + further) % nodes);
        let has = |node: &u32| {
            let machine = self.machine(*node);
            !machine.second.replicas().is_empty() && machine.second.is_there()
        };
        all.find(has).unwrap_or(node)
    }

    /// A primary on which commits rest does not reach its backups for a moment, and then loses its second
    /// directory: what it has acknowledged meanwhile is in its log, and nowhere else. False if there is none.
    pub(super) fn inject_alone(&mut self) -> bool {
        let leads_alone = |record: &&PartitionRecord| {
            let machine = self.machine(record.primary.node.0);
            let there = machine.second.replicas().contains(&record.id) && machine.second.is_there();
            rests_on_primary(&record.policy) && there && machine.member() == Some(record.primary)
        };
        let Some(node) = self.checks.epochs.records().find(leads_alone).map(|record| record.primary.node.0)
        else {
            return false;
        };
        let us = self.faults.random().between(30_000, 250_000);
        let heals = us + self.faults.random().below(60_000);
        let here = Endpoint::Node(node);
        for other in (1..=self.plan.nodes).filter(|other| *other != node).map(Endpoint::Node) {
            for (from, to) in [(here, other), (other, here)] {
                self.network.cut_lane(from, to, Lane::Peer);
                self.after(heals, Event::Cure(Cure::LaneLink(from, to, Lane::Peer)));
            }
        }
        self.after(us, Event::Cure(Cure::Directory(node)));
        self.trace.note(self.now(), format_args!("n{node} ships nothing, and is about to lose a directory"));
        true
    }

    /// The second directory of a node is lost, if it still may be, and what its connections to others still
    /// carried.
    pub(super) fn lose_second_now(&mut self, node: u32) {
        for conn in self.network.of(Endpoint::Node(node)) {
            if self.network.get(conn).is_some_and(|open| open.lane == Lane::Peer) {
                self.break_conn(conn, false);
            }
        }
        if self.stage.phase() == Phase::Faults && self.may_lose_disk(node) && self.lose_second(node) {
            self.injected("directory-loss-alone");
            self.trace.note(self.now(), format_args!("fault: the second directory of n{node} is lost"));
        }
    }

    /// The second directory of a node is lost, for a while or for good, and so is what its engines have in
    /// it. False if nothing is there.
    pub(super) fn lose_second(&mut self, node: u32) -> bool {
        let gone = self.faults.random().chance(500);
        self.lose_second_so(node, gone)
    }

    /// The same; it is `gone` for good, or not.
    pub(super) fn lose_second_so(&mut self, node: u32, gone: bool) -> bool {
        let rules = self.settings.rules;
        let machine = self.machine(node);
        if machine.second.replicas().is_empty() || !machine.second.is_there() {
            return false;
        }
        let lost: Vec<PartitionId> = machine.second.replicas().iter().copied().collect();
        let before = machine.health.has_restarted();
        self.faults(node);
        let machine = self.machine_mut(node);
        // What is lost is known at once.
        if before || machine.process.is_some() {
            machine.health.restarted();
        }
        machine.second.lose(gone);
        if gone {
            let disk = machine.disk.clone();
            let removed = disk.names(SECOND).iter().try_for_each(|name| disk.remove(name));
            assert!(removed.is_ok(), "names are taken away, whatever the disk has");
        }
        for id in &lost {
            self.machines.files_mut().abandon(place(node, SECOND, *id));
        }
        if gone {
            self.machines.files_mut().wipe(node, true);
        }
        for id in lost {
            if let Some(process) = self.machines.get_mut(node).process.as_mut()
                && let Some(replica) = process.host.replica(id)
            {
                let sound = !replica.is_damaged();
                // What it said before is on its way, also where a write of its engine has just failed.
                if sound || replica.engine().failed_write().is_some() {
                    self.checks.ends.ended(process.member, std::iter::once(last(replica)));
                }
                if sound {
                    process.watched.keeps_only_log(id);
                }
            }
            self.input(node, |host, now, out| {
                let empty = Box::new(MemoryEngine::volatile_with(rules));
                drop(host.lose(now, id, empty, REASON.into(), out));
            });
            // The log alone does not bring it back any more.
            if let Some(member) = self.machine(node).member() {
                self.machines.processes_mut().for_each(|other| other.watched.gives_up_log(id, member));
            }
        }
        self.note_damage(node);
        true
    }

    /// R6: what a sound replica had acknowledged is not lost with its directory as long as its log and its
    /// process live: who leads next is given what it lacks of it. What is not in memory is read from the
    /// disk, which may fail.
    pub(super) fn gives(&mut self, node: u32, fetched: &Fetched) {
        let Some(process) = &self.machine(node).process else { return };
        let (id, after) = (fetched.partition, fetched.after);
        let lost = process.host.replica(id).filter(|replica| replica.is_damaged());
        let Some(replica) = lost.filter(|_| process.watched.has_only_log(id)) else { return };
        let tail = replica.log().tail();
        let agrees = tail.at(after.lsn).is_some_and(|(here, _)| here == after);
        let has_more =
            agrees && after.lsn >= replica.log().base().lsn && tail.get(after.lsn.next()).is_some();
        let (end, gives) = (replica.log().end(), !fetched.entries.is_empty());
        let verdict = nodes::check_gives(At(NodeId(node), id), end, after, (has_more, gives));
        self.checks.expect("R6", self.now(), verdict);
        if gives {
            self.injected("log-outlives-directory");
        }
    }

    /// A node starts: the directory may be there again. What lies in it of replicas that have another place
    /// by now is removed.
    pub(super) fn look_for_second(&mut self, node: u32) {
        if self.machine(node).second.is() != Second::Away || !self.schedule.timing().chance(500) {
            return;
        }
        let machine = self.machine_mut(node);
        machine.second.comes_back();
        let disk = machine.disk.clone();
        let ours = |name: &str| {
            machine.second.replicas().iter().any(|id| {
                name == SnapshotFile::name(SECOND, *id) || name.starts_with(&PartFiles::dir(SECOND, *id))
            })
        };
        let leftovers: Vec<String> = disk.names(SECOND).into_iter().filter(|name| !ours(name)).collect();
        leftovers.iter().for_each(|name| drop(disk.remove(name)));
        let ours = machine.second.replicas().clone();
        for place in self.machines.files().places(node) {
            if place.second && !ours.contains(&place.partition) {
                self.machines.files_mut().remove(place);
            }
        }
        self.trace.note(self.now(), format_args!("n{node} finds its second directory again"));
        self.injected("directory-is-back");
    }

    /// The engine of a replica that a starting node has; with the reason if its files, or the place for any,
    /// cannot be used.
    pub(super) fn engine_found(
        &mut self,
        node: u32,
        id: PartitionId,
    ) -> Result<(Box<dyn Engine>, Option<String>), String> {
        let rules = self.settings.rules;
        match self.machine(node).second.directory_of(id) {
            Some(directory_of) => self.open_engine(node, directory_of, id),
            None => Ok((Box::new(MemoryEngine::volatile_with(rules)), Some(REASON.into()))),
        }
    }

    /// Replicas that are to be given a copy and have no place for it get one in the first directory.
    pub(super) fn relocate(&mut self, node: u32) {
        let Some(process) = self.machine(node).process.as_ref().filter(|_| self.plan.directories) else {
            return;
        };
        let clock = self.machine(node).clock.read(self.now()).mono;
        let mut lost = process.host.storage_lost();
        lost.retain(|id| !process.storage.waiting.rests(*id, clock));
        for id in lost {
            let machine = self.machine_mut(node);
            let disk = machine.disk.clone();
            // What an earlier copy left there is gone before the place is this replica's.
            let left =
                disk.names(&PartFiles::dir(FIRST, id)).into_iter().chain([SnapshotFile::name(FIRST, id)]);
            left.for_each(|name| drop(disk.remove(&name)));
            machine.second.leave(id);
            self.machines.files_mut().remove(place(node, FIRST, id));
            let engine = match self.open_engine(node, FIRST, id) {
                Ok((engine, _)) => engine,
                Err(why) => {
                    self.finds_no_room(node, id, None, &why);
                    continue;
                }
            };
            if let Some(process) = self.machine_mut(node).process.as_mut() {
                process.storage.found_room(id);
            }
            self.trace.note(self.now(), format_args!("n{node} has another place for p{}", id.0));
            self.input(node, |host, now, out| host.relocate(now, id, engine, out));
            self.injected("rehoused");
        }
    }
}
