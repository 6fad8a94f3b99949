//! The planner: what one controller does so that every partition comes to be as its table wants it.
//!
//! It looks at the cluster map and at who is heard, and gives advice to primaries ([`copies`], [`balance`],
//! [`policies`]); it changes placements for nodes that join and leave ([`nodes`]), and tidies up ([`sweep`]).
//! It keeps no plan: what an interrupted move still lacks is seen in the records. All of it is lost with the
//! controller, and begins again elsewhere.

mod balance;
mod copies;
mod nodes;
mod policies;
mod sweep;

use crate::controller::Controller;
use crate::records::Replaced;
use crate::settings::{Settings, doubled};
use std::collections::BTreeMap;
use types::config::{Cause, NodeRecord, PartitionRecord};
use types::{Epoch, Member, Micros, NodeId, Now, PartitionId, TableId};
use wire::control::{Advice, Advise, BackOff};

/// What the planner remembers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Planner {
    /// When it looked last.
    looked: Option<Micros>,
    /// Since when a node is in-sync in a partition.
    level: BTreeMap<(PartitionId, NodeId), Micros>,
    /// Since when a partition's primary leads.
    led: BTreeMap<PartitionId, Micros>,
    /// Since when a partition lacks a copy.
    short: BTreeMap<PartitionId, Micros>,
    /// How a node failed as a member of a partition.
    failures: BTreeMap<(PartitionId, NodeId), Failures>,
    /// Advice given, in which epoch and when.
    advised: BTreeMap<PartitionId, Given>,
    /// Creations of tables that somebody began, and when they were first seen.
    creating: BTreeMap<TableId, Micros>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    times: u32,
    not_before: Micros,
}

/// A piece of advice that was given.
#[derive(Clone, PartialEq, Debug)]
struct Given {
    epoch: Epoch,
    at: Micros,
    advice: Advice,
}

impl Planner {
    /// Another controller plans now.
    pub(crate) fn stop(&mut self) {
        self.looked = None;
        self.short.clear();
        self.advised.clear();
        self.creating.clear();
    }

    /// Follows a partition's record.
    pub(crate) fn noticed(&mut self, now: Micros, settings: &Settings, change: &Replaced) {
        let Some(new) = &change.new else {
            if let Some(old) = &change.old {
                self.forget(old.id);
            }
            return;
        };
        if change.old.as_ref().is_none_or(|old| old.term != new.term) {
            self.led.insert(new.id, now);
        }
        let counts = |node: NodeId| new.in_sync.iter().any(|member| member.node == node);
        let was = |node: NodeId| {
            change.old.as_ref().is_some_and(|old| old.in_sync.iter().any(|member| member.node == node))
        };
        for member in new.in_sync.iter().filter(|member| !was(member.node)) {
            self.level.insert((new.id, member.node), now);
        }
        let Some(old) = &change.old else { return };
        for member in old.members().filter(|member| new.member_on(member.node).is_none()) {
            self.left(now, settings, new, member.node);
        }
        for member in old.in_sync.iter().filter(|member| !counts(member.node)) {
            self.level.remove(&(new.id, member.node));
        }
    }

    /// A node is no longer a member: unless that was wanted, or its life had changed, it failed (PR-67).
    fn left(&mut self, now: Micros, settings: &Settings, record: &PartitionRecord, node: NodeId) {
        if !matches!(
            record.cause,
            Cause::EvictedSilent | Cause::EvictedSlow | Cause::Suspected | Cause::Damaged | Cause::CatchingUp
        ) {
            return;
        }
        let pair = (record.id, node);
        let long = self.level.get(&pair).is_some_and(|since| now.since(*since) >= settings.forgive_after);
        let times = match self.failures.get(&pair) {
            Some(failures) if !long => failures.times + 1,
            _ => 1,
        };
        let repeats = if settings.rules.who_fails_again_waits_longer() { times - 1 } else { 0 };
        let not_before = now + doubled(settings.admit_again, repeats);
        self.failures.insert(pair, Failures { times, not_before });
    }

    fn forget(&mut self, partition: PartitionId) {
        self.level.retain(|(id, _), _| *id != partition);
        self.failures.retain(|(id, _), _| *id != partition);
        self.led.remove(&partition);
        self.short.remove(&partition);
        self.advised.remove(&partition);
    }

    /// True if this node has failed in a row as a member of a partition, which no copy that comes waits for.
    fn fails(&self, partition: PartitionId, node: NodeId) -> bool {
        self.failures.get(&(partition, node)).is_some_and(|failures| failures.times > 1)
    }

    /// How often this node has failed in a row as a member of a partition: who has not comes first (PR-282).
    fn failed(&self, partition: PartitionId, node: NodeId) -> u32 {
        self.failures.get(&(partition, node)).map_or(0, |failures| failures.times)
    }

    /// Who may not be admitted again yet: the partition, the node, how often it failed in a row, and for how
    /// long it waits.
    pub(crate) fn back_offs(&self, now: Micros) -> impl Iterator<Item = BackOff> {
        let waits = self.failures.iter().filter(move |(_, failures)| failures.not_before > now);
        waits.map(move |((partition, node), failures)| BackOff {
            partition: *partition,
            node: *node,
            times: failures.times,
            ms: failures.not_before.since(now).as_millis(),
        })
    }

    /// True if this node may be admitted again.
    fn forgiven(&self, partition: PartitionId, node: NodeId, now: Micros) -> bool {
        self.failures.get(&(partition, node)).is_none_or(|failures| now >= failures.not_before)
    }
}

impl Controller {
    /// Looks at everything, not more often than is useful; each time at partitions that acknowledge nothing
    /// for want of a copy (PR-460).
    pub(crate) fn plan(&mut self, now: Now) {
        if self.planner.looked.is_some_and(|at| now.mono.since(at) < self.settings.plan) {
            return self.plan_starving(now);
        }
        self.planner.looked = Some(now.mono);
        self.forget_old_advice(now.mono);
        self.plan_policies(now);
        self.plan_nodes(now);
        self.plan_copies(now);
        self.plan_balance(now);
        self.sweep(now);
    }

    /// Advice that was taken has raised the epoch; advice that was not is given again in a while.
    fn forget_old_advice(&mut self, now: Micros) {
        let records = &self.records;
        let again = self.settings.advise_again;
        self.planner.advised.retain(|partition, given| {
            let same = records.partition(*partition).is_some_and(|record| record.epoch == given.epoch);
            same && now.since(given.at) < again
        });
    }

    /// A node has connected: which copies it was to admit may have been said into a connection that broke.
    /// Where nothing is acknowledged without one it is said again at once (PR-460).
    pub(crate) fn repeat_advice(&mut self, member: &Member) {
        let records = &self.records;
        self.planner.advised.retain(|partition, given| {
            let lost = |record: &PartitionRecord| record.primary == *member && record.starves();
            !matches!(given.advice, Advice::Admit(_)) || !records.partition(*partition).is_some_and(lost)
        });
    }

    /// True if this partition's primary has something to do already.
    fn advised(&self, partition: PartitionId) -> bool {
        self.planner.advised.contains_key(&partition)
    }

    /// Gives advice to a partition's primary, if it is connected here. It counts in the record's epoch only
    /// (F16).
    pub(crate) fn advise(&mut self, now: Now, record: &PartitionRecord, advice: Advice) -> bool {
        let Some(conn) = self.failure_detector.conn_of(&record.primary) else { return false };
        let given = Given { epoch: record.epoch, at: now.mono, advice: advice.clone() };
        self.planner.advised.insert(record.id, given);
        self.send(conn, Advise { partition: record.id, epoch: record.epoch, advice });
        true
    }

    /// True if the node's present life is connected and alive.
    pub(crate) fn is_live(&self, now: Now, node: NodeId) -> bool {
        let record = self.records.node(node);
        record.is_some_and(|record| {
            self.failure_detector.hears(&record.member(), now.mono, self.settings.alive)
        })
    }

    /// True if the node's present life is connected and alive, as is its executor of this partition: a copy
    /// there comes to be level.
    pub(crate) fn is_live_in(&self, now: Now, partition: PartitionId, node: NodeId) -> bool {
        let record = self.records.node(node);
        record.is_some_and(|record| {
            let (member, alive) = (record.member(), self.settings.alive);
            self.failure_detector.hears_in(partition, &member, now.mono, alive)
        })
    }

    /// True if the node is to lead nothing.
    pub(crate) fn is_draining(&self, node: NodeId) -> bool {
        let leads_nothing = |record: &NodeRecord| {
            record.is_marked(NodeRecord::DRAINING) || record.is_marked(NodeRecord::DECOMMISSIONING)
        };
        self.records.node(node).is_some_and(leads_nothing)
    }

    /// True if everything is to be moved away from the node.
    pub(crate) fn is_decommissioning(&self, node: NodeId) -> bool {
        self.records.node(node).is_some_and(|record| record.is_marked(NodeRecord::DECOMMISSIONING))
    }

    /// True if the partition is in nobody's hands but its primary's: no term being taken over, no policy
    /// changing.
    fn is_quiet(&self, now: Now, record: &PartitionRecord) -> bool {
        self.serves(record)
            && record.next_policy.is_none()
            && self.failure_detector.hears_in(record.id, &record.primary, now.mono, self.settings.alive)
    }
}
