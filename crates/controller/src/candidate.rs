//! Whom to promote: never anyone outside the recorded in-sync set (F05), never a life that may have forgotten
//! (F06).

use crate::controller::Controller;
use crate::placement;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use types::config::PartitionRecord;
use types::{LogKind, Member, NodeId, Now};

/// What the policy of a partition means for a failover: while it changes, the weaker of the two (PR-24).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Requirements {
    /// An acknowledgement may rest on the primary alone.
    pub(crate) rests: bool,
    /// And nobody brings it again: that of global transactions is in their manager's log (PR-291).
    pub(crate) alone: bool,
    /// What was acknowledged is on the disk of whoever counted, in whatever life.
    pub(crate) survives: bool,
    /// The log is on disk at all.
    pub(crate) disk: bool,
}

/// A member as the record names it, and in the life in which it would lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    /// In the record.
    pub(crate) recorded: Member,
    /// Now.
    pub(crate) present: Member,
}

impl Controller {
    /// What a partition asks of a candidate.
    pub(crate) fn requirements(&self, record: &PartitionRecord) -> Requirements {
        let policies = || std::iter::once(&record.policy).chain(&record.next_policy);
        let rests = policies().any(|policy| policy.rests_on().is_primary());
        Requirements {
            rests,
            alone: rests && !record.is_global(),
            // Without the rule a member counts whatever it may have forgotten.
            survives: policies().all(|policy| policy.survives_restart())
                || !self.settings.rules.who_forgot_does_not_count(),
            disk: policies().all(|policy| policy.log == LogKind::Disk),
        }
    }

    /// The present life of a recorded member, if nothing it acknowledged can have been forgotten since
    /// (PR-17).
    pub(crate) fn unforgetful(&self, required: Requirements, recorded: &Member) -> Option<Member> {
        let node = self.records.node(recorded.node)?;
        let present = node.member();
        if present == *recorded {
            return Some(present);
        }
        let next_clean =
            required.disk && node.clean_start && present.incarnation.0 == recorded.incarnation.0 + 1;
        let same_store = present.same_store(recorded) || !self.settings.rules.new_disks_do_not_count();
        (same_store && (required.survives || next_clean)).then_some(present)
    }

    /// True if this partition's data on the node are sound and the node is connected and alive, as is the
    /// executor that has them.
    pub(crate) fn fit(&self, now: Now, record: &PartitionRecord, present: &Member) -> bool {
        let damaged = self.records.node(present.node).is_none_or(|node| node.damaged.contains(&record.id));
        !damaged && self.failure_detector.hears_in(record.id, present, now.mono, self.settings.alive)
    }

    /// The members that may be promoted, the present primary's node left out unless `itself`.
    pub(crate) fn candidates(&self, now: Now, record: &PartitionRecord, itself: bool) -> Vec<Candidate> {
        let required = self.requirements(record);
        let asked = |member: &&Member| itself || member.node != record.primary.node;
        let intact = |member: &Member| {
            let present = self.unforgetful(required, member)?;
            self.fit(now, record, &present).then_some(Candidate { recorded: *member, present })
        };
        if !self.settings.rules.only_members_are_promoted() {
            // The planted bug: anyone who is heard will do, counted or not.
            return record.members().filter(asked).filter_map(intact).collect();
        }
        record.in_sync.iter().filter(asked).filter_map(intact).collect()
    }

    /// The best of them: one on a node that may lead, if there is any; with the longest log, so that the
    /// least must be fetched; then who leads least, then by placement.
    pub(crate) fn best(
        &self,
        record: &PartitionRecord,
        candidates: &[Candidate],
        led: &BTreeMap<NodeId, usize>,
    ) -> Option<Candidate> {
        let placement = self.records.placement(record);
        let rank =
            |node: NodeId| placement.iter().position(|placed| *placed == node).unwrap_or(placement.len());
        let order = |candidate: &&Candidate| {
            let node = candidate.present.node;
            let end = self.failure_detector.end_of(&candidate.present, record.id);
            let led = led.get(&node).copied().unwrap_or(0);
            (self.is_draining(node), Reverse(end), placement::order_of_lead(led, rank(node), node))
        };
        candidates.iter().min_by_key(order).copied()
    }

    /// True if the present term has come to serve, as far as is known here.
    pub(crate) fn serves(&self, record: &PartitionRecord) -> bool {
        let reported = |id| self.records.failover(id).is_some_and(|failover| failover.serving_ms.is_some());
        let said = self.failure_detector.says_it_serves(record);
        said.unwrap_or_else(|| record.failover.is_none_or(reported))
    }

    /// How many partitions each node leads.
    pub(crate) fn leads(&self) -> BTreeMap<NodeId, usize> {
        let mut led = BTreeMap::new();
        for record in self.records.partitions() {
            *led.entry(record.primary.node).or_insert(0) += 1;
        }
        led
    }
}
