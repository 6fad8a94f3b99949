//! A small world around controllers: one metastore in memory, nodes that answer nothing, time by hand.
//!
//! Used by the scripts and by the tests in Rust. Every effect that a person would look at is written down as
//! a line.
#![allow(dead_code, reason = "each test file uses its part of it")]

pub mod cluster;
pub mod lines;

use metastore as meta;
use std::collections::{BTreeMap, BTreeSet};
use types::config::Addresses;
use types::{
    ClusterId, Epoch, Incarnation, Lsn, Member, NodeId, Now, PartitionId, PartitionRecord, Position,
};
use types::{Micros, StoreId, Watermarks};
use understudy_controller as ctl;
use understudy_controller::{ConnId, Controller, Identity, Input, Output, Settings};
use wire::Message;
use wire::control::{
    Admin, AdminAnswer, AdminCommand, ExecutorStatus, NodeStatus, Propose, Register, ReplicaStatus, Role,
    Suspect,
};

/// The connection of an operator.
pub const OPERATOR: ConnId = ConnId(1);

/// What becomes of the next transactions' answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Applied, answered.
    Answered,
    /// Applied, the answer is lost.
    AnswerLost,
    /// Never applied, no answer.
    RequestLost,
    /// Held back until [`World::release`].
    Held,
}

/// A node as far as controllers see it.
#[derive(Clone, Debug)]
pub struct Node {
    pub member: Member,
    pub clean: bool,
    pub zone: String,
    pub damaged: Vec<PartitionId>,
    /// Of its directory: a number for each life.
    pub starts: Vec<u64>,
    /// Sends nothing while false.
    pub running: bool,
    /// What it leads does not come to serve.
    pub promoting: bool,
    /// Who should lead in its place, as it says of what does not come to serve.
    pub yields_to: Option<Member>,
    /// Nodes it does not hear.
    pub deaf_to: BTreeSet<NodeId>,
    /// What its status says of its logs.
    pub ends: BTreeMap<PartitionId, Position>,
    /// How far it has executed all of them.
    pub applied: Lsn,
    /// How far they are on its disk.
    pub durable: Lsn,
    /// How far it says that all of them are committed.
    pub committed: Lsn,
    /// Its log has no room.
    pub full: bool,
    /// How long its disk has not answered a write, in milliseconds.
    pub log_waits_ms: u64,
    /// What it says of its executors.
    pub executors: Vec<ExecutorStatus>,
}

/// Controllers, their metastore and the nodes.
pub struct World {
    pub controllers: Vec<Controller>,
    /// Controllers that nodes cannot reach.
    pub cut_off: BTreeSet<usize>,
    pub table: meta::table::Table,
    history: meta::history::History,
    pub nodes: BTreeMap<NodeId, Node>,
    pub now: Now,
    pub fates: Vec<Fate>,
    held: Vec<(usize, ctl::Tag, ctl::Txn)>,
    next_conn: u64,
    conns: BTreeMap<ConnId, NodeId>,
    /// Everything worth a look since it was taken last.
    pub lines: Vec<String>,
    /// Messages to nodes and operators, cluster maps too.
    pub sent: Vec<(usize, ConnId, Message)>,
    pub txns: usize,
    next_admin: u64,
}

impl World {
    /// One controller that plans.
    pub fn new() -> World {
        World::with(1, Settings::default())
    }
}

impl World {
    /// So many controllers over one metastore; the first one plans.
    pub fn with(count: usize, settings: Settings) -> World {
        let identity = |seed| Identity { cluster: ClusterId(7), seed };
        let controllers =
            (0..count as u64).map(|seed| Controller::new(identity(seed * 1000), settings.clone())).collect();
        let mut world = World {
            controllers,
            cut_off: BTreeSet::new(),
            table: meta::table::Table::new(),
            history: meta::history::History::starting_at(0),
            nodes: BTreeMap::new(),
            now: Now { mono: Micros::from_millis(1_000_000), wall_ms: 1_700_000_000_000 },
            fates: Vec::new(),
            held: Vec::new(),
            next_conn: 100,
            conns: BTreeMap::new(),
            lines: Vec::new(),
            sent: Vec::new(),
            txns: 0,
            next_admin: 1,
        };
        for index in 0..count {
            world.load(index);
        }
        world.input(0, Input::Lead(true));
        world.lines.clear();
        world
    }

    /// Replaces a controller by one that remembers nothing.
    pub fn restart_controller(&mut self, index: usize, settings: Settings) {
        let identity = Identity { cluster: ClusterId(7), seed: 5_000 + index as u64 };
        self.controllers[index] = Controller::new(identity, settings);
        self.held.retain(|(owner, ..)| *owner != index);
        self.load(index);
        if index == 0 {
            self.input(0, Input::Lead(true));
        }
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            if self.nodes[&id].running {
                self.connect_to(id, index);
            }
        }
    }

    fn load(&mut self, index: usize) {
        let snapshot = self.table.snapshot("");
        self.input(index, Input::Loaded { revision: snapshot.revision, entries: snapshot.entries });
    }

    /// Hands one input to one controller and carries out what it wants.
    pub fn input(&mut self, index: usize, input: Input) {
        let outputs = self.controllers[index].handle(self.now, input);
        assert_eq!(self.controllers[index].validate(), Ok(()));
        for output in outputs {
            match output {
                Output::Txn { tag, txn } => self.run(index, tag, txn),
                Output::Send { conn, message } => {
                    self.note_message(index, conn, &message);
                    self.sent.push((index, conn, message));
                }
                Output::Close { conn } => {
                    let whom = self.whose(conn);
                    self.lines.push(format!("-> {whom} closed"));
                }
            }
        }
    }

    fn run(&mut self, index: usize, tag: ctl::Tag, txn: ctl::Txn) {
        self.txns += 1;
        let fate = if self.fates.is_empty() { Fate::Answered } else { self.fates.remove(0) };
        match fate {
            Fate::Held => self.held.push((index, tag, txn)),
            Fate::RequestLost => {
                self.input(index, Input::TxnDone { tag, outcome: Err(ctl::TxnError::Unknown) })
            }
            Fate::AnswerLost => {
                self.apply(&txn);
                self.input(index, Input::TxnDone { tag, outcome: Err(ctl::TxnError::Unknown) });
                self.tell_changes();
            }
            Fate::Answered => {
                let outcome = self.apply(&txn);
                self.input(index, Input::TxnDone { tag, outcome: Ok(outcome) });
                self.tell_changes();
            }
        }
    }

    /// Runs what was held back, in order.
    pub fn release(&mut self) {
        for (index, tag, txn) in std::mem::take(&mut self.held) {
            let outcome = self.apply(&txn);
            self.input(index, Input::TxnDone { tag, outcome: Ok(outcome) });
        }
        self.tell_changes();
    }

    fn apply(&mut self, txn: &ctl::Txn) -> ctl::TxnOutcome {
        assert_eq!(txn.validate(), Ok(()));
        assert!(txn.keys().len() <= 128 && txn.compares.len() <= 128, "etcd would refuse this");
        let succeeded = self.table.holds(txn);
        if succeeded && txn.writes() {
            let changes = self.table.write(&txn.puts, &txn.deletes);
            self.note_changes(&changes);
            self.history.push(self.table.revision(), changes);
        }
        self.table.outcome(txn, succeeded)
    }

    /// Every controller that can be reached hears of every change.
    pub fn tell_changes(&mut self) {
        for index in 0..self.controllers.len() {
            if self.cut_off.contains(&index) {
                continue;
            }
            let since = self.controllers[index].revision();
            let meta::Changes::Since { revision, changes } = self.history.since(since) else { continue };
            if !changes.is_empty() {
                self.input(index, Input::Changed { revision, changes });
            }
        }
    }

    /// A node that starts, in its life `incarnation` on its disk `store`.
    pub fn start(&mut self, node: u32, incarnation: u64, store: u64) {
        let id = NodeId(node);
        let member = Member { node: id, store: StoreId(store), incarnation: Incarnation(incarnation) };
        let fresh = Node {
            member,
            clean: false,
            zone: String::new(),
            damaged: vec![],
            starts: vec![],
            running: true,
            promoting: false,
            yields_to: None,
            deaf_to: BTreeSet::new(),
            ends: BTreeMap::new(),
            applied: Lsn(0),
            durable: Lsn(0),
            committed: Lsn(0),
            full: false,
            log_waits_ms: 0,
            executors: vec![],
        };
        let known = self.nodes.entry(id).or_insert(fresh);
        let mut starts = if known.member.store == member.store { known.starts.clone() } else { Vec::new() };
        starts.push(1_000 * store + incarnation);
        *known = Node { member, starts, running: true, ..known.clone() };
        self.connect(id);
    }

    /// Connects a node to every controller that can be reached.
    pub fn connect(&mut self, id: NodeId) {
        for index in 0..self.controllers.len() {
            if !self.cut_off.contains(&index) {
                self.connect_to(id, index);
            }
        }
    }

    fn connect_to(&mut self, id: NodeId, index: usize) {
        let old: Vec<ConnId> = self.conns_of(id, index);
        for conn in old {
            self.conns.remove(&conn);
            self.input(index, Input::Disconnected { conn });
        }
        self.next_conn += 1;
        let conn = ConnId(self.next_conn * 10 + index as u64);
        self.conns.insert(conn, id);
        let node = &self.nodes[&id];
        let register = Register {
            member: node.member,
            clean_start: node.clean,
            addresses: Addresses::default(),
            zone: node.zone.clone(),
            damaged: node.damaged.clone(),
            starts: node.starts.clone().into(),
            executors: Default::default(),
        };
        self.input(index, Input::Received { conn, message: register.into() });
    }

    /// A node connects once more. The controllers have not noticed yet that the connections before, which are
    /// given, are dead: nothing comes on them any more.
    pub fn connect_beside(&mut self, id: NodeId) -> Vec<ConnId> {
        let old: Vec<ConnId> =
            (0..self.controllers.len()).flat_map(|index| self.conns_of(id, index)).collect();
        self.conns.retain(|conn, _| !old.contains(conn));
        self.connect(id);
        old
    }

    fn conns_of(&self, id: NodeId, index: usize) -> Vec<ConnId> {
        let here = self.conns.iter().filter(|(conn, node)| **node == id && conn.0 % 10 == index as u64);
        here.map(|(conn, _)| *conn).collect()
    }

    /// A message from a node to one controller.
    pub fn node_says(&mut self, index: usize, id: NodeId, message: impl Into<Message>) {
        let message = message.into();
        for conn in self.conns_of(id, index) {
            self.input(index, Input::Received { conn, message: message.clone() });
        }
    }

    /// A node's process is gone, with its connections.
    pub fn kill(&mut self, node: u32) {
        let id = NodeId(node);
        self.nodes.get_mut(&id).unwrap().running = false;
        for index in 0..self.controllers.len() {
            for conn in self.conns_of(id, index) {
                self.conns.remove(&conn);
                self.input(index, Input::Disconnected { conn });
            }
        }
    }

    /// A node's process is paused: its connections stay.
    pub fn pause(&mut self, node: u32) {
        self.nodes.get_mut(&NodeId(node)).unwrap().running = false;
    }

    /// Time passes in steps of 20 ms; running nodes send their status, controllers tick.
    pub fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(20) {
            self.now.mono = self.now.mono + Micros::from_millis(20);
            self.now.wall_ms += 20;
            for index in 0..self.controllers.len() {
                if !self.cut_off.contains(&index) {
                    self.statuses(index);
                }
                self.input(index, Input::Tick);
            }
        }
    }

    fn statuses(&mut self, index: usize) {
        let running: Vec<Node> = self.nodes.values().filter(|node| node.running).cloned().collect();
        let records = self.partitions();
        for node in &running {
            let hears = running.iter().filter(|other| {
                let (a, b) = (node.member.node, other.member.node);
                a != b && !node.deaf_to.contains(&b) && !other.deaf_to.contains(&a)
            });
            let held =
                records.iter().filter(|record| record.member_on(node.member.node) == Some(&node.member));
            let replica = |record: &PartitionRecord| ReplicaStatus {
                partition: record.id,
                epoch: record.epoch,
                end: node.ends.get(&record.id).copied().unwrap_or_default(),
                marks: Watermarks { applied: node.applied, durable: node.durable, ..Watermarks::default() },
                role: match record.primary == node.member {
                    _ if node.damaged.contains(&record.id) => Role::Damaged,
                    true if node.promoting => Role::Promoting,
                    true => Role::Primary,
                    false => Role::Backup,
                },
                committed: node.committed,
                yields_to: node.yields_to.filter(|_| record.primary == node.member),
                ..ReplicaStatus::default()
            };
            let status = NodeStatus {
                member: node.member,
                hears: hears.map(|other| (other.member.node, 5_000)).collect(),
                replicas: held.map(replica).collect(),
                full: node.full,
                log_waits_us: node.log_waits_ms * 1_000,
                executors: node.executors.clone(),
                ..NodeStatus::default()
            };
            self.node_says(index, node.member.node, status);
        }
    }

    /// `by` misses `whom`, who leads all these partitions; said to one controller.
    pub fn suspect_at(&mut self, index: usize, by: u32, whom: u32, end: u64) {
        let id = NodeId(by);
        let records = self.partitions();
        let led: Vec<&PartitionRecord> =
            records.iter().filter(|record| record.primary.node == NodeId(whom)).collect();
        let Some(first) = led.first() else { return };
        let partitions = led
            .iter()
            .map(|record| (record.id, record.epoch, Position::new(record.term, Lsn(end))))
            .collect();
        let suspect =
            Suspect { by: self.nodes[&id].member, primary: first.primary, silent_us: 130_000, partitions };
        self.node_says(index, id, suspect);
    }

    /// `by` misses `whom`; said to every controller.
    pub fn suspect(&mut self, by: u32, whom: u32, end: u64) {
        for index in 0..self.controllers.len() {
            self.suspect_at(index, by, whom, end);
        }
    }

    /// A primary proposes the record that `change` makes of the present one.
    pub fn propose(
        &mut self,
        index: usize,
        partition: u32,
        change: impl FnOnce(&mut PartitionRecord),
    ) -> PartitionRecord {
        let old = self.partition(partition);
        let mut new = old.clone();
        new.epoch = Epoch(old.epoch.0 + 1);
        new.proposal = types::ProposalId(1_000_000 + self.table.revision());
        change(&mut new);
        self.propose_record(index, old.primary.node, old.epoch, &new);
        new
    }

    /// A node proposes a record.
    pub fn propose_record(&mut self, index: usize, by: NodeId, expected: Epoch, record: &PartitionRecord) {
        let propose = Propose { expected, record: wire::RecordText::new(record) };
        self.node_says(index, by, propose);
    }

    /// An operator asks controller 0.
    pub fn admin(&mut self, command: AdminCommand) -> u64 {
        self.admin_at(0, command)
    }

    /// The same of another controller.
    pub fn admin_at(&mut self, index: usize, command: AdminCommand) -> u64 {
        let id = self.next_admin;
        self.next_admin += 1;
        self.input(index, Input::Received { conn: OPERATOR, message: Admin { id, command }.into() });
        id
    }

    /// What an operator was answered.
    pub fn answered(&self, id: u64) -> Option<&Result<String, (u8, String)>> {
        self.sent.iter().find_map(|(_, _, message)| match message {
            Message::AdminAnswer(AdminAnswer { id: other, result }) if *other == id => Some(result),
            _ => None,
        })
    }

    /// A partition as the metastore has it.
    pub fn partition(&self, id: u32) -> PartitionRecord {
        self.record(&format!("partition/{id}")).expect("the partition exists")
    }

    /// All partitions as the metastore has them.
    pub fn partitions(&self) -> Vec<PartitionRecord> {
        let entries = self.table.snapshot("partition/").entries;
        let mut records: Vec<PartitionRecord> =
            entries.iter().filter_map(|entry| serde_json::from_slice(&entry.value).ok()).collect();
        records.sort_by_key(|record| record.id);
        records
    }

    /// Any record as the metastore has it.
    pub fn record<T: serde::de::DeserializeOwned>(&self, key: &str) -> Option<T> {
        let entries = self.table.snapshot(key).entries;
        let entry = entries.iter().find(|entry| entry.key == key)?;
        Some(serde_json::from_slice(&entry.value).unwrap())
    }

    /// The lines since the last call.
    pub fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// Who is at the other end of a connection.
    pub fn whose(&self, conn: ConnId) -> String {
        match self.conns.get(&conn) {
            Some(node) => node.to_string(),
            None if conn == OPERATOR => "operator".into(),
            None => "nobody".into(),
        }
    }
}
