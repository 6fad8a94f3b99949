//! Gives the lead back to where it is wanted, by switchover: one at a time per node.

use crate::controller::Controller;
use std::collections::BTreeSet;
use types::config::PartitionRecord;
use types::{Member, NodeId, Now, PartitionId};
use wire::control::Advice;

impl Controller {
    /// Looks at who leads every partition.
    pub(super) fn plan_balance(&mut self, now: Now) {
        let mut busy = self.handing_over();
        let all: Vec<PartitionId> = self.records.partitions().map(|record| record.id).collect();
        for partition in all {
            let Some(record) = self.records.partition(partition) else { continue };
            if self.advised(partition) || busy.contains(&record.primary.node) || !self.is_quiet(now, record) {
                continue;
            }
            let Some(to) = self.better_primary(now, record).filter(|to| !busy.contains(&to.node)) else {
                continue;
            };
            let record = record.clone();
            if self.advise(now, &record, Advice::HandOver(to)) {
                busy.extend([record.primary.node, to.node]);
            }
        }
    }

    /// Nodes that give or take a lead at present.
    fn handing_over(&self) -> BTreeSet<NodeId> {
        let mut busy = BTreeSet::new();
        for (partition, given) in &self.planner.advised {
            if let (Advice::HandOver(to), Some(record)) = (&given.advice, self.records.partition(*partition))
            {
                busy.extend([to.node, record.primary.node]);
            }
        }
        busy
    }

    /// Who should lead instead, if somebody should.
    fn better_primary(&self, now: Now, record: &PartitionRecord) -> Option<Member> {
        let placement = self.records.placement(record);
        let wanted = |node: &&NodeId| !self.is_draining(**node);
        if self.is_draining(record.primary.node) {
            return self.takes_over(now, record);
        }
        // A node that is away for a while keeps its claim: nobody else is moved for it.
        let first = *placement.iter().find(wanted)?;
        let long = |since: Option<&types::Micros>| {
            since.is_some_and(|since| now.mono.since(*since) >= self.settings.balance_after)
        };
        let settled =
            long(self.planner.level.get(&(record.id, first))) && long(self.planner.led.get(&record.id));
        (settled && first != record.primary.node).then(|| self.can_lead(now, record, first)).flatten()
    }

    /// The in-sync member to take over from a node that is to lead nothing: by placement, then by rank.
    pub(crate) fn takes_over(&self, now: Now, record: &PartitionRecord) -> Option<Member> {
        let placed = self.records.placement(record).iter().copied();
        let ranked = record.in_sync.iter().map(|member| member.node);
        let others =
            placed.chain(ranked).filter(|node| *node != record.primary.node && !self.is_draining(*node));
        others.filter_map(|node| self.can_lead(now, record, node)).next()
    }

    /// The in-sync member on this node, if it could lead at once.
    pub(crate) fn can_lead(&self, now: Now, record: &PartitionRecord, node: NodeId) -> Option<Member> {
        let member = record.in_sync.iter().find(|member| member.node == node).copied()?;
        self.fit(now, record, &member).then_some(member)
    }
}
