//! Brings copies to where they are wanted: admits what is missing, removes what is too many (R1: the primary does it).

use crate::controller::Controller;
use crate::placement;
use std::collections::BTreeMap;
use types::config::PartitionRecord;
use types::policy::Below;
use types::{Member, NodeId, Now, PartitionId, Remedy};
use wire::control::Advice;

/// True if nothing commits in this configuration, however long it is waited for.
pub(super) fn starves(record: &PartitionRecord) -> bool {
    let mut policies = std::iter::once(&record.policy).chain(&record.next_policy);
    policies
        .any(|policy| policy.below == Below::Strict && record.in_sync.len() < usize::from(policy.min_in_sync))
}

impl<R: Remedy> Controller<R> {
    /// Looks at the copies of every partition.
    pub(super) fn plan_copies(&mut self, now: Now) {
        let all: Vec<PartitionId> = self.records.partitions().map(|record| record.id).collect();
        let mut copies = self.copies_per_node();
        for partition in all {
            let Some(record) = self.records.partition(partition).cloned() else { continue };
            self.note_short(now, &record);
            // A primary that still takes over, or has advice to follow, is left alone; one that cannot commit its first
            // entry before it has more copies is given them (PR-21).
            if !(self.serves(&record) || starves(&record)) || self.advised(partition) {
                continue;
            }
            if let Some(member) = self.useless(now, &record) {
                self.advise(now, &record, Advice::Remove(member));
            } else if let Some(member) = self.missing(now, &record, &copies)
                && self.advise(now, &record, Advice::Admit(member))
            {
                *copies.entry(member.node).or_insert(0) += 1;
            }
        }
    }

    fn copies_per_node(&self) -> BTreeMap<NodeId, usize> {
        let mut copies = BTreeMap::new();
        for member in self.records.partitions().flat_map(|record| record.members()) {
            *copies.entry(member.node).or_insert(0) += 1;
        }
        copies
    }

    /// A copy that catches up is still lacking: one that never gets there must not keep a spare from standing in.
    fn note_short(&mut self, now: Now, record: &PartitionRecord) {
        if record.in_sync.len() >= usize::from(record.policy.factor) {
            self.planner.short.remove(&record.id);
        } else {
            self.planner.short.entry(record.id).or_insert(now.mono);
        }
    }

    /// A member that only stands in the way: one that catches up in a life that has ended, or one that stood in while every
    /// node of the placement is in-sync again.
    fn useless(&self, now: Now, record: &PartitionRecord) -> Option<Member> {
        let ended =
            |member: &&Member| self.records.node(member.node).is_some_and(|node| node.member() != **member);
        if let Some(member) = record.catching_up.iter().find(ended) {
            return Some(*member);
        }
        let placement = self.records.placement(record);
        let level = |node: &NodeId| {
            record.in_sync.iter().any(|member| {
                member.node == *node && self.hearing.hears(member, now.mono, self.settings.alive)
            })
        };
        if placement.is_empty() || !placement.iter().all(level) {
            return None;
        }
        let stands_in = |member: &&Member| !placement.contains(&member.node) && **member != record.primary;
        record.members().find(stands_in).copied()
    }

    /// The node that should be admitted next, in its present life. One at a time per partition.
    fn missing(
        &self,
        now: Now,
        record: &PartitionRecord,
        copies: &BTreeMap<NodeId, usize>,
    ) -> Option<Member> {
        if !record.catching_up.is_empty() {
            return None;
        }
        let placement = self.records.placement(record);
        let ready = |node: &NodeId| {
            self.is_live(now, *node)
                && record.member_on(*node).is_none()
                && self.planner.forgiven(record.id, *node, now.mono)
        };
        let short = record.members().count() < usize::from(record.policy.factor);
        let substituted = record.members().any(|member| !placement.contains(&member.node));
        if let Some(node) = placement.iter().find(|node| ready(node)).filter(|_| short || substituted) {
            return self.records.node(*node).map(|node| node.member());
        }
        let since = self.planner.short.get(&record.id)?;
        if !short || now.mono.since(*since) < self.settings.spare_after {
            return None;
        }
        let spares = self.records.nodes().filter(|node| ready(&node.id) && !self.is_draining(node.id));
        let best = spares.min_by_key(|node| {
            let copies = copies.get(&node.id).copied().unwrap_or(0);
            placement::order_of_home(self.shares_zone(record, &node.zone), copies, node.id)
        });
        best.map(|node| node.member())
    }

    /// True if a member of the partition is in this zone.
    fn shares_zone(&self, record: &PartitionRecord, zone: &str) -> bool {
        let in_zone = |member: &Member| self.records.node(member.node).is_some_and(|node| node.zone == zone);
        !zone.is_empty() && record.members().any(in_zone)
    }
}
