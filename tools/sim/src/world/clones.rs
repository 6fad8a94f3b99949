//! A node's disk is copied while nobody uses it, and the copy is started beside the node again and again,
//! whether that runs or not (PR-145). Once the node has run since, no controller may let the copy in: it
//! lacks what the node has acknowledged. Until one does, it talks to no other node and to no client
//! (PR-157), so it is no more here than who it says it is.

use super::machines::End;
use super::{Event, Phase, World};
use crate::check::nodes;
use crate::network::Conn;
use controller::{ConnId, Input};
use std::ops::Range;
use types::{Incarnation, Member, NodeRecord};
use wire::control::Register;
use wire::{Message, RecordText};

/// Connections of copies to controllers.
const CLONES: Range<Conn> = Conn::MAX - 200_000..Conn::MAX - 100_000;

/// Numbers of lives on copies are of these, and no others are.
const LIVES_OF_CLONES: u64 = 1 << 63;

/// True if that is a copy's connection.
pub(super) fn is_clone(conn: ConnId) -> bool {
    CLONES.contains(&conn.0)
}

/// The copy of a node's disk: who it says that it is.
#[derive(Debug)]
pub(super) struct ClonedDisk {
    member: Member,
    starts: Vec<u64>,
    /// The newest life of the node on this very disk that the controllers know of, once there is one after
    /// the copying. Lives on another disk make no copy of this one old.
    newest: Option<u64>,
    /// How often it was started.
    times: u64,
}

impl ClonedDisk {
    /// True if the node has run since on the disk that was copied.
    fn is_older(&self) -> bool {
        self.newest.is_some_and(|newest| !self.starts.contains(&newest))
    }
}

impl World {
    /// A node's disk is copied while nobody uses it; the node goes on, and the copy is started later. False
    /// if there is a copy already, or nothing to copy.
    pub(super) fn copy_disk(&mut self, node: u32, us: u64) -> bool {
        if self.faults.cloned().is_some() {
            return false;
        }
        let Some(member) = self.machine(node).member() else { return false };
        self.end(node, End::Crash);
        let starts = self.machine(node).disk.starts();
        *self.faults.cloned() = Some(ClonedDisk { member, starts, newest: None, times: 0 });
        self.start_later(node, us / 10);
        let wait = self.faults.returns().between(100_000, 2_000_000);
        self.after(wait, Event::Cloned);
        true
    }

    /// Somebody starts the copy, which asks one of the controllers to be let in.
    pub(super) fn start_clone(&mut self) {
        if self.stage.phase() != Phase::Faults {
            return;
        }
        let wait = self.faults.returns().between(20_000, 500_000);
        self.after(wait, Event::Cloned);
        let id = self.faults.returns().below(u64::from(self.plan.controllers)) as u32;
        let hurt = self.faults.returns().chance(300);
        // Until a life that came after the copying was let in, the copy has all that the controllers know of.
        let Some(copied) = self.faults.cloned().as_mut().filter(|copied| copied.is_older()) else { return };
        copied.times += 1;
        let node = copied.member.node;
        let incarnation = Incarnation(copied.member.incarnation.0 + copied.times);
        copied.starts.push(LIVES_OF_CLONES | copied.times);
        let (conn, starts) = (ConnId(CLONES.start + copied.times), copied.starts.clone().into());
        let damaged = self.checks.epochs.records().map(|record| record.id).filter(|_| hurt).collect();
        let register = Register {
            member: Member { incarnation, ..copied.member },
            clean_start: false,
            addresses: types::config::Addresses { client: format!("copy-of-{node}:1"), ..Default::default() },
            zone: String::new(),
            damaged,
            starts,
            executors: self.plan.executors,
        };
        self.injected("clone-asks");
        self.trace.note(self.now(), format_args!("a copy of {node} asks c{id} to be let in"));
        self.think(id, Input::Received { conn, message: Message::Register(register) });
    }

    /// What a controller tells a copy: nothing but that it is none of the nodes.
    pub(super) fn clone_hears(&mut self, message: &Message) {
        let Some(copied) = self.faults.cloned() else { return };
        let (node, store) = (copied.member.node, copied.member.store);
        let read = |record: &RecordText| record.read::<NodeRecord>().ok();
        let told = match message {
            Message::ClusterMap(map) => {
                let nodes = map.nodes.iter().filter_map(read);
                Some(nodes.map(|record| (record.id, record.store)).collect::<Vec<_>>())
            }
            _ => None,
        };
        let refused = matches!(message, Message::RegisterRefused(_));
        // The node was removed when it had that disk: the map says so, because it does not have it.
        let verdict = nodes::check_clone((node, store), told.as_deref(), refused);
        match verdict.is_ok() {
            true if refused => self.injected("clone-refused"),
            true => self.injected("clone-is-gone"),
            false => self.checks.expect("PR-145", self.now(), verdict),
        }
    }

    /// PR-145: no copy of a disk is recorded as the node.
    pub(super) fn check_is_no_clone(&mut self, record: &NodeRecord) {
        let verdict = nodes::check_recorded(record.id, record.start & LIVES_OF_CLONES != 0);
        if verdict.is_err() {
            return self.checks.expect("PR-145", self.now(), verdict);
        }
        if let Some(copied) = self.faults.cloned() {
            let same = (record.id, record.store) == (copied.member.node, copied.member.store);
            copied.newest = Some(record.start).filter(|_| same).or(copied.newest);
        }
    }
}
