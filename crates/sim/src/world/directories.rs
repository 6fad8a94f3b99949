//! The second directory of a node's replicas: lost while node and log go on, back at a later start or not at all.

use super::World;
use super::machines::{End, open_engine};
use crate::node::{FIRST, PartFiles, SECOND, Second, SnapshotFile};
use engine::MemoryEngine;
use types::{Engine, PartitionId};

/// What replicas say that lost their directory.
const REASON: &str = "its directory is gone";

impl World {
    /// The first node from this one on that has something in its second directory; this one, if none has.
    pub(super) fn next_with_second(&self, node: u32) -> u32 {
        let nodes = self.plan.nodes;
        let mut all = (0..nodes).map(|further| 1 + (node - 1 + further) % nodes);
        let has = |node: &u32| {
            let machine = self.machine(*node);
            !machine.second.is_empty() && machine.second_is == Second::There
        };
        all.find(has).unwrap_or(node)
    }

    /// The second directory of a node is lost, and so is what its engines have in it. False if nothing is there.
    pub(super) fn lose_second(&mut self, node: u32) -> bool {
        let remedy = self.remedy;
        let gone = self.strikes.random.chance(500);
        let machine = self.machine(node);
        if machine.second.is_empty() || machine.second_is != Second::There {
            return false;
        }
        let lost: Vec<PartitionId> = machine.second.iter().copied().collect();
        let before = machine.restarted_since_harm;
        self.harm(node);
        let machine = self.machine_mut(node);
        // What is lost is known at once.
        machine.restarted_since_harm = before || machine.process.is_some();
        machine.second_is = if gone { Second::Gone } else { Second::Away };
        if gone {
            let disk = machine.disk.clone();
            let removed = disk.names(SECOND).iter().try_for_each(|name| disk.remove(name));
            assert!(removed.is_ok(), "names are taken away, whatever the disk has");
        }
        for id in lost {
            self.input(node, |host, now, out| {
                let empty = Box::new(MemoryEngine::volatile_with(remedy));
                drop(host.lose(now, id, empty, REASON.into(), out));
            });
        }
        self.note_damage(node);
        true
    }

    /// A node starts: the directory may be there again. What lies in it of replicas that have another place by now is removed.
    pub(super) fn look_for_second(&mut self, node: u32) {
        if self.machine(node).second_is != Second::Away || !self.timing.chance(500) {
            return;
        }
        let machine = self.machine_mut(node);
        machine.second_is = Second::There;
        let disk = machine.disk.clone();
        let ours = |name: &str| {
            machine.second.iter().any(|id| {
                name == SnapshotFile::name(SECOND, *id) || name.starts_with(&PartFiles::dir(SECOND, *id))
            })
        };
        let leftovers: Vec<String> = disk.names(SECOND).into_iter().filter(|name| !ours(name)).collect();
        leftovers.iter().for_each(|name| drop(disk.remove(name)));
        self.trace.note(self.now, format_args!("n{node} finds its second directory again"));
        self.struck("directory-is-back");
    }

    /// The engine of a replica that a starting node has; with the reason if its files, or the place for any, cannot be used.
    pub(super) fn engine_found(
        &self,
        node: u32,
        id: PartitionId,
    ) -> Result<(Box<dyn Engine>, Option<String>), String> {
        let (machine, remedy) = (self.machine(node), self.remedy);
        match machine.home(id) {
            Some(home) => open_engine(&machine.disk, (home, id), (remedy, self.ships(id))),
            None => Ok((Box::new(MemoryEngine::volatile_with(remedy)), Some(REASON.into()))),
        }
    }

    /// Replicas that are to be given a copy and have no place for it get one in the first directory.
    pub(super) fn rehouse(&mut self, node: u32) {
        let remedy = self.remedy;
        let Some(process) = self.machine(node).process.as_ref().filter(|_| self.plan.directories) else {
            return;
        };
        for id in process.host.homeless() {
            let ships = self.ships(id);
            let machine = self.machine_mut(node);
            let disk = machine.disk.clone();
            // What an earlier copy left there is gone before the place is this replica's.
            let left =
                disk.names(&PartFiles::dir(FIRST, id)).into_iter().chain([SnapshotFile::name(FIRST, id)]);
            left.for_each(|name| drop(disk.remove(&name)));
            machine.second.remove(&id);
            let Ok((engine, _)) = open_engine(&disk, (FIRST, id), (remedy, ships)) else {
                return self.end(node, End::Crash);
            };
            self.trace.note(self.now, format_args!("n{node} has another place for p{}", id.0));
            self.input(node, |host, now, out| host.rehouse(now, id, engine, out));
            self.struck("rehoused");
        }
    }
}
