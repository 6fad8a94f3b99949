//! A cluster whose primaries follow advice.

use super::World;
use super::lines::table;
use std::collections::{BTreeMap, BTreeSet};
use types::config::{Cause, PreviousTerm};
use types::{
    Epoch, LogKind, Member, NodeId, NodeRecord, PartitionId, PartitionRecord, Policy, Scheme, TableRecord,
};
use wire::control::{AdminCommand, Advice, Advise};
use wire::{Message, RecordText};

/// A cluster whose primaries do at once what they are advised to.
pub struct Cluster {
    /// The controller's world.
    pub world: World,
    /// The fewest copies in sync that each partition ever had since it was looked at last.
    pub fewest: BTreeMap<PartitionId, usize>,
    /// Copies on this node never catch up: its disk hangs.
    pub hung: Option<NodeId>,
    /// For how long primaries have waited for a copy there, milliseconds.
    waited_ms: BTreeMap<PartitionId, u64>,
}

/// A primary gives up a copy that does nothing for so long, milliseconds.
const GIVES_UP_MS: u64 = 15_000;

impl Cluster {
    /// So many nodes with these tables: name, factor, partitions, scheme.
    pub fn new(nodes: u32, tables: &[(&str, u8, u32, Scheme)]) -> Cluster {
        let (fewest, waited_ms) = (BTreeMap::new(), BTreeMap::new());
        let mut cluster = Cluster { world: World::new(), fewest, hung: None, waited_ms };
        for node in 1..=nodes {
            cluster.world.start(node, 1, u64::from(node) * 10);
        }
        cluster.world.pass(100);
        for (name, factor, partitions, scheme) in tables {
            cluster.create(name, "durable", (*factor, *partitions), *scheme);
        }
        cluster
    }

    /// One more table, with so many copies and partitions.
    pub fn create(&mut self, name: &str, policy: &str, (factor, partitions): (u8, u32), scheme: Scheme) {
        let mut request = table(name, policy, LogKind::Disk, Some(factor), partitions);
        request.scheme = scheme;
        self.ask(AdminCommand::CreateTable(RecordText::new(&request))).expect("created");
    }

    /// A node dies: what it led is sealed, and it is put out of all sets.
    pub fn bury(&mut self, node: u32) {
        self.world.kill(node);
        let members = |world: &World| -> BTreeSet<NodeId> {
            world.partitions().iter().flat_map(PartitionRecord::members).map(|member| member.node).collect()
        };
        let leads = |world: &World| world.partitions().iter().any(|record| record.primary.node.0 == node);
        let mut looks = 0;
        while leads(&self.world) {
            assert!(looks < 100, "node {node} is never sealed");
            looks += 1;
            self.world.pass(500);
            for by in members(&self.world).into_iter().filter(|by| by.0 != node) {
                self.world.suspect(by.0, node, 100);
            }
        }
        for record in self.world.partitions() {
            if record.member_on(NodeId(node)).is_some() {
                self.propose(&record, |record| {
                    record.in_sync.retain(|member| member.node != NodeId(node));
                    record.cause = Cause::EvictedSilent;
                });
            }
        }
    }

    /// A node's disk does nothing any more: others lead what it led, and it leaves all sets.
    pub fn hang(&mut self, node: u32) {
        self.hung = Some(NodeId(node));
        for record in self.world.partitions() {
            let Some(member) = record.member_on(NodeId(node)).copied() else { continue };
            let other = record.in_sync.iter().copied().find(|other| *other != member).expect("a second copy");
            if record.primary == member {
                self.propose(&record, |record| hand_over(record, other));
            }
            let record = self.world.partition(record.id.0);
            self.propose(&record, |record| {
                record.in_sync.retain(|other| *other != member);
                record.cause = Cause::EvictedSlow;
            });
        }
    }

    /// The answer to an operator.
    pub fn ask(&mut self, command: AdminCommand) -> Result<String, (u8, String)> {
        let id = self.world.admin(command);
        self.world.answered(id).expect("answered").clone()
    }

    /// Time passes, and what is advised is done.
    pub fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(100) {
            self.world.pass(100);
            let sent = std::mem::take(&mut self.world.sent);
            for (_, _, message) in sent {
                if let Message::Advise(advise) = message {
                    self.follow(&advise);
                }
            }
            for record in self.world.partitions() {
                let fewest = self.fewest.entry(record.id).or_insert(usize::MAX);
                *fewest = (*fewest).min(record.in_sync.len());
                self.give_up(&record);
            }
        }
    }

    /// A primary waits for a copy on a disk that hangs, and gives it up in the end.
    fn give_up(&mut self, record: &PartitionRecord) {
        let hangs = |member: &&Member| self.hung == Some(member.node);
        let Some(member) = record.catching_up.iter().find(hangs).copied() else { return };
        let waited = self.waited_ms.entry(record.id).or_insert(0);
        *waited += 100;
        if *waited >= GIVES_UP_MS {
            *waited = 0;
            self.propose(record, |record| {
                record.catching_up.retain(|other| *other != member);
                record.cause = Cause::CatchingUp;
            });
        }
    }

    /// Does what is advised.
    pub fn follow(&mut self, advise: &Advise) {
        let record = self.world.partition(advise.partition.0);
        if record.epoch != advise.epoch {
            return;
        }
        match &advise.advice {
            Advice::Admit(member) => {
                let member = *member;
                self.propose(&record, |record| {
                    record.catching_up.push(member);
                    record.cause = Cause::CatchingUp;
                });
                if self.hung == Some(member.node) {
                    return;
                }
                self.propose(&record, |record| {
                    record.catching_up.retain(|other| *other != member);
                    record.in_sync.push(member);
                    record.cause = Cause::InSync;
                });
            }
            Advice::Remove(member) => self.propose(&record, |record| {
                record.in_sync.retain(|other| other != member);
                record.catching_up.retain(|other| other != member);
                record.cause = Cause::EvictedSilent;
            }),
            Advice::HandOver(member) => self.propose(&record, |record| hand_over(record, *member)),
            Advice::Policy(text) => self.change_policy(&record, text.read().expect("a policy")),
        }
    }

    /// The three steps of a change of policy; a bound that changes beside other things changes first, by
    /// itself.
    fn change_policy(&mut self, record: &PartitionRecord, wanted: Policy) {
        let (min_in_sync, below) = (wanted.min_in_sync, wanted.below);
        let same_bound = (min_in_sync, below) == (record.policy.min_in_sync, record.policy.below);
        let aim = match same_bound || wanted.same_demands(&record.policy) {
            true => wanted,
            false => Policy { min_in_sync, below, ..record.policy.clone() },
        };
        let next = aim.clone();
        self.propose(record, |record| (record.next_policy, record.cause) = (Some(next), Cause::Policy));
        self.propose(record, |record| {
            (record.policy, record.next_policy, record.cause) = (aim, None, Cause::Policy);
        });
    }

    /// A primary's proposal.
    pub fn propose(&mut self, record: &PartitionRecord, change: impl FnOnce(&mut PartitionRecord)) {
        self.world.propose(0, record.id.0, change);
    }

    /// The tables' records.
    pub fn tables(&self) -> Vec<TableRecord> {
        let entries = self.world.table.snapshot("table/").entries;
        entries.iter().map(|entry| serde_json::from_slice(&entry.value).expect("a table")).collect()
    }

    /// A node's record.
    pub fn node(&self, node: u32) -> Option<NodeRecord> {
        let entries = self.world.table.snapshot(&format!("node/{node}")).entries;
        entries.first().map(|entry| serde_json::from_slice(&entry.value).expect("a node"))
    }

    /// How many copies each node is to have; every one of them is in sync, and there are no others.
    pub fn settled(&self) -> BTreeMap<u32, usize> {
        let mut copies = BTreeMap::new();
        for table in self.tables() {
            for (partition, row) in table.partition_ids().zip(&table.placement) {
                let record = self.world.partition(partition.0);
                let nodes: BTreeSet<NodeId> = record.members().map(|member| member.node).collect();
                assert_eq!(nodes, row.iter().copied().collect(), "{partition}");
                assert_eq!(record.in_sync.len(), row.len(), "{partition}");
                assert_eq!(record.primary.node, row[0], "{partition}");
                row.iter().for_each(|node| *copies.entry(node.0).or_insert(0) += 1);
            }
        }
        copies
    }
}

/// What a primary proposes that hands its partition over.
pub fn hand_over(record: &mut PartitionRecord, to: Member) {
    let epoch = Epoch(record.epoch.0 - 1);
    record.before = Some(PreviousTerm {
        epoch,
        term: record.term,
        primary: record.primary,
        handed_over: true,
        in_sync: record.in_sync.clone(),
    });
    record.in_sync.retain(|member| *member != to);
    record.in_sync.insert(0, to);
    record.primary = to;
    record.term = types::Term::of(record.epoch);
    record.failover = None;
    record.lossy = false;
    record.cause = Cause::Switchover;
}
