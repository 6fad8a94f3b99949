//! Brings copies to where they are wanted: admits what is missing, removes what is too many (R1: the primary
//! does it).

use crate::controller::Controller;
use crate::placement;
use std::collections::BTreeMap;
use types::config::PartitionRecord;
use types::{Member, NodeId, Now, PartitionId};
use wire::control::Advice;

impl Controller {
    /// Looks at the copies of every partition.
    pub(super) fn plan_copies(&mut self, now: Now) {
        let all = self.records.partitions().map(|record| record.id).collect();
        self.plan_copies_of(now, all);
    }

    /// The same of partitions that acknowledge nothing before they have another copy: they do not wait for
    /// the next look at everything (PR-460).
    pub(super) fn plan_starving(&mut self, now: Now) {
        let starving = self.records.partitions().filter(|record| record.starves());
        let starving: Vec<PartitionId> = starving.map(|record| record.id).collect();
        if !starving.is_empty() {
            self.forget_old_advice(now.mono);
            self.plan_copies_of(now, starving);
        }
    }

    fn plan_copies_of(&mut self, now: Now, partitions: Vec<PartitionId>) {
        let mut copies = self.copies_per_node();
        for partition in partitions {
            let Some(record) = self.records.partition(partition).cloned() else { continue };
            self.note_short(now, &record);
            // A primary that still takes over, or has advice to follow, is left alone; one that cannot commit
            // its first entry before it has more copies is given them (PR-21).
            if !(self.serves(&record) || record.starves()) || self.advised(partition) {
                continue;
            }
            let gone = self.useless(now, &record).or_else(|| self.in_the_way(now, &record, &copies));
            if let Some(member) = gone {
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

    /// How many copies there are to be: as many as have a place, which is what an operator asked for last.
    fn wanted(&self, record: &PartitionRecord) -> usize {
        match self.records.placement(record).len() {
            0 => record.policy.factor.into(),
            places => places,
        }
    }

    /// False for a member without a place on a node that leaves: it is only waited for until enough others
    /// are there.
    fn stays(&self, record: &PartitionRecord, member: &Member) -> bool {
        !self.is_decommissioning(member.node) || self.records.placement(record).contains(&member.node)
    }

    /// A copy that catches up is still lacking: one that never gets there must not keep a spare from standing
    /// in.
    fn note_short(&mut self, now: Now, record: &PartitionRecord) {
        let stay = record.in_sync.iter().filter(|member| self.stays(record, member)).count();
        if stay >= self.wanted(record) {
            self.planner.short.remove(&record.id);
        } else {
            self.planner.short.entry(record.id).or_insert(now.mono);
        }
    }

    /// A member that can go. Either it catches up in an incarnation that has ended; or it has no place in the
    /// placement (it stood in for another, was moved, or fewer copies are wanted), and every node of the
    /// placement is in sync; or its node is being decommissioned, and as many others are in sync.
    fn useless(&self, now: Now, record: &PartitionRecord) -> Option<Member> {
        let ended =
            |member: &&Member| self.records.node(member.node).is_some_and(|node| node.member() != **member);
        if let Some(member) = record.catching_up.iter().find(ended) {
            return Some(*member);
        }
        let placement = self.records.placement(record);
        let alive = self.settings.alive;
        let heard = |member: &Member| self.failure_detector.hears_in(record.id, member, now.mono, alive);
        let level = |node: &NodeId| record.in_sync.iter().any(|member| member.node == *node && heard(member));
        // Fewer copies are wanted, and the policy in force still says more: first it is changed (N3).
        let agreed = usize::from(record.policy.factor) <= placement.len() && record.next_policy.is_none();
        if placement.is_empty() || !agreed {
            return None;
        }
        let all = placement.iter().all(level);
        let stay = record.in_sync.iter().filter(|member| heard(member) && self.stays(record, member));
        let enough = stay.count() >= placement.len();
        let goes = |member: &&Member| {
            let placeless = !placement.contains(&member.node) && **member != record.primary;
            placeless && (all || enough && !self.stays(record, member))
        };
        record.members().find(goes).copied()
    }

    /// A member that catches up and makes way for another. It is away, nothing can be acknowledged without
    /// another copy, and another node could have it (PR-110). Or it has failed before, its node leaves, and a
    /// node that stays and has a place waits for its turn (PR-353).
    fn in_the_way(
        &self,
        now: Now,
        record: &PartitionRecord,
        copies: &BTreeMap<NodeId, usize>,
    ) -> Option<Member> {
        let without = PartitionRecord { catching_up: Vec::new(), ..record.clone() };
        if record.starves() {
            let here = |member: &Member| self.is_live_in(now, record.id, member.node);
            let away = record.catching_up.iter().find(|member| !here(member))?;
            let makes_room = self.settings.rules.who_is_away_makes_room();
            return self.missing(now, &without, copies).filter(|_| makes_room).map(|_| *away);
        }
        let hopeless = record.catching_up.iter().find(|member| self.is_given_up(record, member.node))?;
        let next = self.missing(now, &without, copies)?.node;
        let placed = self.records.placement(record).contains(&next) && record.member_on(next).is_none();
        (placed && !self.is_decommissioning(next)).then_some(*hopeless)
    }

    /// True for a node that leaves and has failed as a member: what is there goes elsewhere anyhow.
    fn is_given_up(&self, record: &PartitionRecord, node: NodeId) -> bool {
        self.is_decommissioning(node) && self.planner.failed(record.id, node) > 0
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
        let live = |node: &NodeId| self.is_live_in(now, record.id, *node);
        let here = |node: &NodeId| live(node) && record.member_on(*node).is_none();
        let ready = |node: &NodeId| here(node) && self.planner.forgiven(record.id, *node, now.mono);
        let stay = record.members().filter(|member| self.stays(record, member)).count();
        let short = stay < self.wanted(record);
        let substituted = record.members().any(|member| !placement.contains(&member.node));
        // Who failed in a row keeps nobody waiting who did not (PR-282): one that hangs is waited for so long
        // that a row of attempts is longer than the time after which it is forgiven.
        let last = self.settings.rules.who_failed_comes_last();
        let failed = |node: NodeId| if last { self.planner.failed(record.id, node) } else { 0 };
        let order = |node: &&NodeId| (last && self.is_given_up(record, **node), failed(**node));
        let placed = placement.iter().filter(|node| ready(node)).min_by_key(order);
        if let Some(node) = placed.filter(|_| short || substituted) {
            return self.records.node(*node).map(|node| node.member());
        }
        let waited = self.planner.short.get(&record.id).map(|since| now.mono.since(*since));
        if short && waited.is_some_and(|waited| waited >= self.settings.spare_after) {
            let spares = self.records.nodes().filter(|node| ready(&node.id) && !self.is_draining(node.id));
            let best = spares.min_by_key(|node| {
                let copies = copies.get(&node.id).copied().unwrap_or(0);
                let order = placement::order_of_spare(self.shares_zone(record, &node.zone), copies, node.id);
                (failed(node.id), order)
            });
            if let Some(best) = best {
                return Some(best.member());
            }
        }
        // Whoever failed often is better than nobody: without another copy nothing is acknowledged (PR-106).
        let starves = record.starves() && self.settings.rules.who_failed_is_admitted_where_all_waits();
        let again = placement.iter().find(|node| here(node)).filter(|_| starves)?;
        self.records.node(*again).map(|node| node.member())
    }

    /// True if a member of the partition is in this zone.
    fn shares_zone(&self, record: &PartitionRecord, zone: &str) -> bool {
        let in_zone = |member: &Member| self.records.node(member.node).is_some_and(|node| node.zone == zone);
        !zone.is_empty() && record.members().any(in_zone)
    }
}
