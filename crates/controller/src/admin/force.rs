//! An operator promotes a replica although acknowledged commits may be lost (PR-08).

use super::{Answer, Job, NOT_FOUND, REFUSED};
use crate::api::ConnId;
use crate::candidate::Candidate;
use crate::controller::Controller;
use crate::ledger::Purpose;
use crate::seal::SealPlan;
use std::cmp::Reverse;
use types::config::{Cause, PartitionRecord};
use types::{Member, NodeId, Now, PartitionId, Position};
use wire::control::Role;

impl Controller {
    /// Promotes the node, or the living replica with the longest log, whether it counted or not.
    pub(super) fn force(
        &mut self,
        now: Now,
        conn: ConnId,
        id: u64,
        partition: PartitionId,
        node: Option<NodeId>,
    ) -> Option<Answer> {
        let Some(record) = self.records.partition(partition).cloned() else {
            return Some(Err((NOT_FOUND, format!("there is no partition {partition}"))));
        };
        match self.forced_candidate(now, &record, node) {
            Ok(candidate) => {
                let plan = self.forced_plan(now, &record, candidate);
                let txn = self.seal_txn(now, &[plan]);
                self.submit(Purpose::Admin(conn, id, Job::Force(partition, node)), txn);
                None
            }
            Err(refusal) => Some(Err(refusal)),
        }
    }

    fn forced_candidate(
        &self,
        now: Now,
        record: &PartitionRecord,
        node: Option<NodeId>,
    ) -> Result<Member, (u8, String)> {
        let missed = self.failure_detector.suspicion(record.id).is_some();
        if self.serves(record) && !missed && self.fit(now, record, &record.primary) {
            let why = format!(
                "partition {} is led by {}, which is alive: use switchover",
                record.id, record.primary.node
            );
            return Err((REFUSED, why));
        }
        let living = self.living_copies(now, record);
        if let Some(node) = node {
            let found = living.iter().find(|member| member.node == node).copied();
            return found.ok_or_else(|| {
                (REFUSED, format!("{node} has no sound copy of partition {}, or is not live", record.id))
            });
        }
        let counted = |member: &Member| record.in_sync.iter().any(|other| other.same_store(member));
        let order = |member: &&Member| {
            (Reverse(self.failure_detector.end_of(member, record.id)), !counted(member), member.node)
        };
        let best = living.iter().min_by_key(order).copied();
        best.ok_or_else(|| (REFUSED, format!("no living node has a sound copy of partition {}", record.id)))
    }

    /// The nodes, in their present lives, that hold something of this partition. Who is being given its state
    /// has half of it at most: its log is empty as long as that lasts (PR-231).
    fn living_copies(&self, now: Now, record: &PartitionRecord) -> Vec<Member> {
        let holds = |present: &Member| {
            let counts = record.in_sync.iter().any(|member| member.same_store(present));
            let status = self.failure_detector.node(present.node).and_then(|heard| heard.status.as_ref());
            let says = status.is_some_and(|(status, _)| {
                let mut replicas = status.replicas.iter().filter(|replica| replica.partition == record.id);
                replicas.any(|replica| replica.role != Role::Damaged && replica.end > Position::ZERO)
            });
            counts || says
        };
        let present = self.records.nodes().map(|node| node.member());
        present.filter(|present| self.fit(now, record, present) && holds(present)).collect()
    }

    /// The promoted replica leads those of the old set that live: whatever they have more is fetched from
    /// them.
    fn forced_plan(&self, now: Now, record: &PartitionRecord, present: Member) -> SealPlan {
        let mut in_sync = vec![present];
        for member in record.in_sync.iter().filter(|member| member.node != present.node) {
            let incarnation = self.records.node(member.node).map(|node| node.member());
            in_sync.extend(
                incarnation.filter(|incarnation| {
                    incarnation.same_store(member) && self.fit(now, record, incarnation)
                }),
            );
        }
        let recorded = record.member_on(present.node).copied().unwrap_or(present);
        let suspicion = self.failure_detector.suspicion(record.id);
        SealPlan {
            old: record.clone(),
            candidate: Candidate { recorded, present },
            in_sync,
            cause: Cause::Forced,
            lossy: self.settings.rules.forced_terms_name_their_loss(),
            suspected_ms: suspicion.map_or(now.wall_ms, |suspicion| suspicion.asked_ms),
            last_heard_ms: suspicion.map_or(now.wall_ms, |suspicion| suspicion.last_heard_ms),
        }
    }

    /// What an operator must know about it (PR-08).
    pub(super) fn forced(&self, partition: PartitionId) -> Answer {
        let gone = || (NOT_FOUND, format!("there is no partition {partition}"));
        let record = self.records.partition(partition).ok_or_else(gone)?;
        let (new, old) = (record.primary.node, record.before.as_ref().map(|term| term.primary.node));
        let mut says = format!(
            "partition {partition}: {new} leads in {}. Acknowledged commits that {new} lacks are lost, and what it has \
             that was reported as lost before is there again.",
            record.epoch
        );
        if let Some(old) = old.filter(|old| *old != new) {
            says += &format!(
                " Commits that {old} acknowledges until it hears of this will be set aside and counted; if {old} is alone in \
                 its set it goes on serving until then."
            );
        }
        Ok(serde_json::json!({ "partition": partition, "epoch": record.epoch, "primary": new, "warning": says }).to_string())
    }
}
