//! Adding and removing nodes. Both only mark the node's record; the planner does the rest, and goes on after
//! any interruption.

use super::{Answer, Job, NOT_FOUND, REFUSED};
use crate::api::ConnId;
use crate::controller::Controller;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::txn::Txn;
use std::collections::BTreeMap;
use types::config::{FailoverRecord, NodeRecord, PartitionRecord};
use types::{Member, NodeId, Now, PartitionId, TableId};

impl Controller {
    /// Marks a node that is to have as many copies as the others.
    pub(super) fn add_node(&mut self, conn: ConnId, id: u64, node: NodeId) -> Option<Answer> {
        let Some(record) = self.records.node(node) else { return Some(Err(no_node(node))) };
        let mut record: NodeRecord = record.clone();
        record.mark(NodeRecord::DRAINING, false);
        record.mark(NodeRecord::DECOMMISSIONING, false);
        record.mark(NodeRecord::JOINING, true);
        self.mark(conn, id, Job::Add(node), &record);
        None
    }

    /// Marks a node that is to hold nothing, if nothing is lost with it and others can take what it holds.
    pub(super) fn remove_node(
        &mut self,
        now: Now,
        conn: ConnId,
        id: u64,
        node: NodeId,
        losing: bool,
    ) -> Option<Answer> {
        let Some(record) = self.records.node(node) else { return Some(Err(no_node(node))) };
        if self.is_decommissioning(node) {
            return Some(Ok(self.holds(node)));
        }
        let mut record: NodeRecord = record.clone();
        if let Err(refusal) = self.can_do_without(now, node) {
            return Some(Err(refusal));
        }
        if let Some(which) = self.led_alone(now, &record).filter(|_| !losing) {
            let why = "when it failed, and has not been back: what it acknowledged alone is lost with it; start it again, \
                       or say `--yes` if it is gone for good";
            return Some(Err((REFUSED, format!("{node} led {which} {why}"))));
        }
        record.mark(NodeRecord::JOINING, false);
        record.mark(NodeRecord::DECOMMISSIONING, true);
        self.mark(conn, id, Job::Remove { node, losing }, &record);
        None
    }

    fn mark(&mut self, conn: ConnId, id: u64, job: Job, record: &NodeRecord) {
        let key = Key::Node(record.id);
        let txn = Txn::default().compare(&key, self.records.compare_with(&key)).put(&key, record);
        self.submit(Purpose::Admin(conn, id, job), txn);
    }

    /// The node has its mark.
    pub(super) fn added(&self, node: NodeId) -> Answer {
        Ok(self.holds(node))
    }

    fn holds(&self, node: NodeId) -> String {
        let copies = self.records.partitions().filter(|record| record.member_on(node).is_some()).count();
        serde_json::json!({ "node": node, "copies": copies }).to_string()
    }

    fn can_do_without(&self, now: Now, node: NodeId) -> Result<(), (u8, String)> {
        let mut lost = self.last_copies(now, node);
        lost.extend(self.tails_on(node));
        if !lost.is_empty() {
            return Err((
                REFUSED,
                format!(
                    "{node} holds the last copy of {}: with it that would be lost; make other copies first \
                     (`understudy partition move`, `understudy partition tails export`), or start the nodes that have them",
                    lost.join("; ")
                ),
            ));
        }
        let rest = self
            .records
            .nodes()
            .filter(|other| other.id != node && !self.is_decommissioning(other.id))
            .count();
        let wide = self.records.tables().max_by_key(|table| table.policy.factor);
        match wide.filter(|table| usize::from(table.policy.factor) > rest) {
            Some(table) => Err((
                REFUSED,
                format!(
                    "table '{}' has {} copies, and without {node} there would be {rest} nodes: add a node first",
                    table.name, table.policy.factor
                ),
            )),
            None => Ok(()),
        }
    }

    /// What no living node but this one has in sync, by table.
    fn last_copies(&self, now: Now, node: NodeId) -> Vec<String> {
        let here = |record: &&PartitionRecord| record.member_on(node).is_some();
        let elsewhere = |record: &PartitionRecord| {
            let mut others = record.in_sync.iter().filter(|member| member.node != node);
            others.any(|member| self.failure_detector.hears(member, now.mono, self.settings.alive))
        };
        let mut alone: BTreeMap<TableId, Vec<PartitionId>> = BTreeMap::new();
        for record in self.records.partitions().filter(here).filter(|record| !elsewhere(record)) {
            alone.entry(record.table).or_default().push(record.id);
        }
        self.listed(alone)
    }

    /// What the node led, under a policy that rests on the primary, when it was last heard: it may have
    /// commits that nobody else has, and has told no tail of them (R9). None if it is there, or has been
    /// since: then what only it had was set aside.
    fn led_alone(&self, now: Now, node: &NodeRecord) -> Option<String> {
        let present = Member { node: node.id, store: node.store, incarnation: node.incarnation };
        if self.failure_detector.hears(&present, now.mono, self.settings.alive) {
            return None;
        }
        let untold = |failover: &&FailoverRecord| {
            let told = failover.loss.tails.iter().any(|tail| tail.node == node.id);
            failover.old_primary == present && failover.loss.possible && !told
        };
        let mut led: BTreeMap<TableId, Vec<PartitionId>> = BTreeMap::new();
        for failover in self.records.failovers().filter(untold) {
            // A table that was dropped since has nothing to lose.
            let Some(record) = self.records.partition(failover.partition) else { continue };
            let partitions = led.entry(record.table).or_default();
            if !partitions.contains(&record.id) {
                partitions.push(record.id);
            }
        }
        led.values_mut().for_each(|partitions| partitions.sort());
        (!led.is_empty()).then(|| self.listed(led).join("; "))
    }

    /// `table 'a' partitions 64-66`, by table.
    fn listed(&self, partitions: BTreeMap<TableId, Vec<PartitionId>>) -> Vec<String> {
        let words = |(table, partitions): (TableId, Vec<PartitionId>)| {
            let name = self.records.table(table).map_or("", |table| &table.name);
            let which = if partitions.len() == 1 { "partition" } else { "partitions" };
            format!("table '{name}' {which} {}", ranges(&partitions))
        };
        partitions.into_iter().map(words).collect()
    }

    /// Divergent tails that lie on the node's disk, as it says itself (R9).
    fn tails_on(&self, node: NodeId) -> Option<String> {
        let (status, _) = self.failure_detector.node(node)?.status.as_ref()?;
        let files: Vec<&str> = status.tails.iter().map(|tail| tail.file.as_str()).collect();
        let which = if files.len() == 1 { "tail" } else { "tails" };
        (!files.is_empty()).then(|| format!("{which} {}", files.join(", ")))
    }
}

/// `64-66, 70`.
fn ranges(partitions: &[PartitionId]) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for PartitionId(id) in partitions {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == *id => *last = *id,
            _ => spans.push((*id, *id)),
        }
    }
    let words = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    spans.iter().map(words).collect::<Vec<_>>().join(", ")
}

fn no_node(node: NodeId) -> (u8, String) {
    (NOT_FOUND, format!("there is no node {node}"))
}
