//! What an operator changes while everything works: how many copies there are, and which nodes there are
//! (I16).

use super::{Event, Phase, World};
use crate::network::{Endpoint, Lane};
use crate::plan::Part;
use crate::world::machines::End;
use std::collections::BTreeSet;
use types::config::NodeRecord;
use types::{LogKind, NodeId};
use wire::RecordText;
use wire::control::{AdminCommand, AlterTable, ClusterMap};

/// Copies that a table is given at most.
const MAX_CHANGES: u64 = 5;

impl World {
    /// The operator wants another number of copies of a table.
    pub(super) fn want_factor(&mut self) {
        if self.stage.phase() != Phase::Faults {
            return;
        }
        let there = u64::from(self.plan.nodes).min(MAX_CHANGES);
        let random = self.faults.online();
        let wait = random.between(300_000, 3_000_000);
        let factor = random.between(1, there);
        let min = random.between(1, factor.min(2)) as u8;
        let (bound, table) = (random.chance(500), random.pick(&self.plan.tables));
        let table = table.cloned();
        self.after(wait, Event::Factor);
        let Some(table) = table.filter(|table| table.part != Part::Manager) else { return };
        if table.log == LogKind::Memory && factor < 2 && self.plan.recoverable {
            // One copy in one memory is lost with the first process that ends.
            return;
        }
        let alter = AlterTable {
            name: table.name.clone(),
            factor: Some(factor as u8),
            min_in_sync: (bound || factor < 2).then_some(min),
            ..AlterTable::default()
        };
        self.ask(table.to_be_altered(&alter));
    }

    /// A node comes, or one is asked to go; what the last one needs may still be under way.
    pub(super) fn want_nodes(&mut self) {
        if self.stage.phase() != Phase::Faults {
            return;
        }
        let random = self.faults.online();
        let wait = random.between(300_000, 2_500_000);
        let (join, some) = (random.chance(600), random.below(u64::from(self.plan.nodes)) as u32);
        self.after(wait, Event::Nodes);
        let started = self.plan.nodes as usize;
        if join && started < self.machines.len() {
            return self.join_node();
        }
        if let Some(node) = self.control.records.waits_for_copies() {
            return self.ask(AdminCommand::Add(node));
        }
        if self.control.records.may_remove(started) {
            self.ask(AdminCommand::Remove { node: NodeId(some + 1), losing: true });
        }
    }

    /// A machine that was not there starts its first process, and meets the others.
    fn join_node(&mut self) {
        self.plan.nodes += 1;
        let node = self.plan.nodes;
        self.trace.note(self.now(), format_args!("n{node} comes"));
        self.injected("node-comes");
        self.start_later(node, 1_000);
        for peer in 1..node {
            let Some(incarnation) = self.machine(peer).incarnation() else { continue };
            for lane in [Lane::Heartbeat, Lane::Peer] {
                let from = (Endpoint::Node(peer), incarnation);
                self.after(60_000, Event::Dial { from, to: Endpoint::Node(node), lane });
            }
        }
    }

    /// A node's record was written or removed.
    pub(super) fn note_node(&mut self, node: u32, text: Option<&RecordText>) {
        let id = NodeId(node);
        let Some(text) = text else {
            let Some(store) = self.control.records.remove_node(id) else { return };
            self.trace.note(self.now(), format_args!("n{node} is removed"));
            self.injected("node-removed");
            let now = self.now();
            let verdict = self.checks.removed.leaves(id, store, self.checks.epochs.records());
            return self.checks.expect("I16", now, verdict);
        };
        let record = match text.read::<NodeRecord>() {
            Ok(record) => record,
            Err(reason) => return self.checks.fault("I10", self.now(), reason),
        };
        let (now, verdict) = (self.now(), self.checks.removed.is_written(id, record.store));
        self.checks.expect("I16", now, verdict);
        self.check_is_no_clone(&record);
        for what in self.control.records.write_node(id, record) {
            self.trace.note(now, format_args!("n{node} {what}"));
        }
    }

    /// A node that does not find itself in a whole cluster map was removed: its process ends. Now and then
    /// somebody starts it again.
    pub(super) fn learn_nodes(&mut self, node: u32, cluster_map: &ClusterMap) -> bool {
        let Some(process) = self.machine(node).process.as_ref() else { return false };
        let newer = cluster_map.whole && !process.heard.is_ahead_of(cluster_map);
        let named = |text: &RecordText| text.read::<NodeRecord>().is_ok_and(|record| record.id.0 == node);
        if !newer || cluster_map.nodes.iter().any(named) {
            return false;
        }
        self.trace.note(self.now(), format_args!("n{node} finds that it was removed"));
        self.end(node, End::Crash);
        self.machine_mut(node).starts.remove();
        if self.faults.online().chance(500) {
            let wait = self.faults.online().between(50_000, 1_500_000);
            self.start_later(node, wait);
        } else {
            self.machine_mut(node).starts.dies();
        }
        true
    }

    /// True if the node was removed from the cluster.
    pub(super) fn is_removed(&self, node: u32) -> bool {
        self.machine(node).starts.is_removed()
            || self.machine(node).member().is_some_and(|me| self.control.records.is_removed(me.store))
    }

    /// True if everything is to be moved away from the node: it is given no copies any more.
    pub(super) fn is_decommissioning(&self, node: u32) -> bool {
        self.control.records.is_decommissioning(NodeId(node))
    }

    /// What a healed world still lacks of what the tables' and nodes' records want.
    pub(super) fn what_is_wanted(&self) -> Option<String> {
        let able: BTreeSet<NodeId> = self
            .machines
            .iter()
            .filter(|machine| {
                machine.process.is_some() && !machine.health.hangs() && !self.is_removed(machine.id)
            })
            .map(|machine| NodeId(machine.id))
            .collect();
        let closed = self.closed_for_good();
        for record in self.checks.epochs.records().filter(|record| !closed.contains(&record.id)) {
            let Some(table) = self.control.records.table(record.table) else { continue };
            let row = &table.placement[(record.id.0 - table.first_partition.0) as usize];
            let members: BTreeSet<NodeId> = record.members().map(|member| member.node).collect();
            // Where all are to lead nothing, be it for a while, whoever leads goes on, wanted or not.
            let drained = |node: &NodeId| {
                self.control.records.is_drained(*node) || self.control.records.is_decommissioning(*node)
            };
            if row.iter().all(|node| able.contains(node)) && !row.iter().all(drained) {
                let level =
                    record.in_sync.len() == row.len() && row.iter().all(|node| members.contains(node));
                if !level || members.len() != row.len() || record.policy != table.policy {
                    return Some(format!(
                        "{} is wanted on {row:?} with '{}': {}",
                        record.id,
                        table.policy,
                        self.state_of(record)
                    ));
                }
            }
        }
        if !closed.is_empty() {
            return None;
        }
        // What lies on a node whose disk hangs for good, or that is dead, does not move, and whoever is to
        // have it waits for that.
        let dead = |node: &NodeId| self.machine(node.0).starts.is_dead();
        let wanted = || self.control.records.tables().flat_map(|table| table.placement.iter().flatten());
        let hangs = self.machines.iter().any(|machine| machine.health.hangs()) || wanted().any(dead);
        // A node that is to lead nothing for a while is given nothing meanwhile.
        let takes = |node: &&NodeRecord| able.contains(&node.id) && !node.is_marked(NodeRecord::DRAINING);
        let joining = |node: &&NodeRecord| takes(node) && node.is_marked(NodeRecord::JOINING);
        if let Some(node) = self.control.records.nodes().find(joining).filter(|_| !hangs) {
            return Some(format!("{} has not joined", node.id));
        }
        let decommission = |node: &&NodeRecord| node.is_marked(NodeRecord::DECOMMISSIONING);
        let most =
            self.control.records.tables().map(|table| usize::from(table.policy.factor)).max().unwrap_or(0);
        let rest = self.control.records.nodes().filter(takes).filter(|node| !decommission(node)).count();
        let leaves = |node: &&NodeRecord| {
            decommission(node) && !self.waits_for_hung(node.id) && !self.must_lead_on(node.id)
        };
        let node = self.control.records.nodes().find(leaves).filter(|_| rest >= most)?;
        Some(format!("{} has not left: {}", node.id, self.held_by(node.id)))
    }

    /// True if this node leads a partition, and each node on which that is wanted is to lead nothing, be it
    /// for a while: it leads on, and leaves when one of them may lead again.
    fn must_lead_on(&self, node: NodeId) -> bool {
        let leads_nothing = |other: &NodeId| {
            self.control.records.is_drained(*other) || self.control.records.is_decommissioning(*other)
        };
        self.checks.epochs.records().filter(|record| record.primary.node == node).any(|record| {
            let Some(table) = self.control.records.table(record.table) else { return false };
            let row = &table.placement[(record.id.0 - table.first_partition.0) as usize];
            row.iter().all(leads_nothing)
        })
    }

    /// True if a partition of this node is wanted on another one too, that stays and whose disk hangs for
    /// good. A primary gives such a copy up after fifteen seconds, again and again, and brings no other one
    /// level meanwhile (F19): until spares are there takes longer than anybody waits here (PR-158).
    fn waits_for_hung(&self, node: NodeId) -> bool {
        let hangs =
            |other: &NodeId| self.machine(other.0).health.hangs() && !self.is_decommissioning(other.0);
        self.checks.epochs.records().filter(|record| record.member_on(node).is_some()).any(|record| {
            let Some(table) = self.control.records.table(record.table) else { return false };
            table.placement[(record.id.0 - table.first_partition.0) as usize].iter().any(hangs)
        })
    }

    fn held_by(&self, node: NodeId) -> String {
        let held = self.checks.epochs.records().filter(|record| record.member_on(node).is_some());
        held.map(|record| format!("{}: {}; ", record.id, self.state_of(record))).collect()
    }
}
