//! Seals: the one compare-and-set that ends a term and names the next (R6, PR-10, PR-64).

use crate::candidate::Candidate;
use crate::controller::Controller;
use crate::failover_decision::FailoverDecision;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::txn::Txn;
use types::config::{Cause, FORMAT, FailoverRecord, LossReport, PartitionRecord, PreviousTerm};
use types::{Member, Now, PartitionId, Rules, Term};

/// The most partitions in one seal: each writes its own record and its failover's, and all share the
/// cluster's.
pub(crate) const PER_TXN: usize = (Txn::MAX_KEYS - 1) / 2;

/// A partition's next term, as decided.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SealPlan {
    /// The record that is replaced.
    pub(crate) old: PartitionRecord,
    /// Who leads.
    pub(crate) candidate: Candidate,
    /// The next in-sync set, the candidate first.
    pub(crate) in_sync: Vec<Member>,
    /// Why.
    pub(crate) cause: Cause,
    /// True if acknowledged commits may be lost.
    pub(crate) lossy: bool,
    /// When it was asked for, milliseconds since 1970.
    pub(crate) suspected_ms: u64,
    /// When the old primary was last heard, milliseconds since 1970.
    pub(crate) last_heard_ms: u64,
}

impl Controller {
    /// What the next record of this partition will say.
    pub(crate) fn plan_of(
        &self,
        now: Now,
        record: &PartitionRecord,
        candidate: Candidate,
        decision: &FailoverDecision,
    ) -> SealPlan {
        let ago = |span: types::Micros| now.wall_ms.saturating_sub(span.as_millis());
        let restarted_ms = self.sealing.restarted_at(record.id).map(|at| ago(now.mono.since(at)));
        let suspicion = self.failure_detector.suspicion(record.id);
        let asked_ms = suspicion.map(|suspicion| suspicion.asked_ms);
        let suspected_ms = asked_ms.or(restarted_ms).unwrap_or(now.wall_ms);
        SealPlan {
            old: record.clone(),
            candidate,
            in_sync: self.next_set(now, record, candidate, decision),
            cause: decision.cause,
            // A promotion that never came to serve hands its doubts on.
            lossy: decision.lossy || record.lossy && !self.serves(record),
            suspected_ms,
            last_heard_ms: suspicion.map_or(suspected_ms, |suspicion| suspicion.last_heard_ms),
        }
    }

    /// The candidate, then everyone of the old set in order. Who is absent stays: it may hold what the
    /// candidate must not be alone with (F07, PR-15). Only the primary that is missed leaves, and one whose
    /// data are not what the record says.
    fn next_set(
        &self,
        now: Now,
        record: &PartitionRecord,
        candidate: Candidate,
        decision: &FailoverDecision,
    ) -> Vec<Member> {
        let mut set = vec![candidate.present];
        if !self.settings.rules.markers_commit_first() {
            // The planted bug: whoever is not the candidate is dropped at once.
            return set;
        }
        for member in record.in_sync.iter().filter(|member| **member != candidate.recorded) {
            let present = self.next_incarnation(record, member, decision);
            if decision.lossy && !present.is_some_and(|present| self.fit(now, record, &present)) {
                // Everyone in the set is asked before anything is given up: who cannot answer would be waited
                // for in vain.
                continue;
            }
            if *member != record.primary {
                set.push(present.unwrap_or(*member));
            } else if decision.cause != Cause::Suspected || decision.compared {
                set.extend(present);
            }
        }
        set
    }

    /// The life in which a member counts from now on, if it is sound and has forgotten nothing.
    fn next_incarnation(
        &self,
        record: &PartitionRecord,
        member: &Member,
        decision: &FailoverDecision,
    ) -> Option<Member> {
        let node = self.records.node(member.node).filter(|node| !node.damaged.contains(&record.id))?;
        let present = node.member();
        match decision.compared && present.same_store(member) {
            true => Some(present),
            false => self.unforgetful(self.requirements(record), member),
        }
    }

    /// Seals: all these partitions in one transaction, each with its failover's record.
    pub(crate) fn seal(&mut self, now: Now, plans: Vec<SealPlan>) {
        let partitions: Vec<PartitionId> = plans.iter().map(|plan| plan.old.id).collect();
        assert!(!self.takes_numbers(), "R1: two transactions would take the same numbers");
        let txn = self.seal_txn(now, &plans);
        self.submit(Purpose::Seal(partitions), txn);
    }

    /// The transaction that writes these plans.
    pub(crate) fn seal_txn(&mut self, now: Now, plans: &[SealPlan]) -> Txn {
        assert!(plans.len() <= PER_TXN, "{} partitions are too many for one seal", plans.len());
        let mut cluster =
            self.records.cluster().expect("seals begin after the cluster's record is known").clone();
        let mut txn = Txn::default().compare(Key::Cluster, self.records.compare_with(&Key::Cluster));
        let first = cluster.next_failover;
        cluster.next_failover += plans.len() as u64;
        txn = txn.put(Key::Cluster, &cluster);
        for (failover, plan) in (first..).zip(plans) {
            let record = self.sealed_record(plan, failover);
            assert_eq!(record.validate(), Ok(()), "R1: a seal must be a sound record");
            assert!(
                record.primary.same_store(&plan.candidate.recorded)
                    || plan.cause == Cause::Forced
                    || !self.settings.rules.new_disks_do_not_count(),
                "PR-17: {} is promoted for the disk of {}",
                record.primary,
                plan.candidate.recorded
            );
            let counted = plan.old.in_sync.contains(&plan.candidate.recorded) || plan.cause == Cause::Forced;
            assert!(
                counted || !self.settings.rules.only_members_are_promoted(),
                "R6: {} never counted",
                plan.candidate.recorded
            );
            let key = Key::Partition(record.id);
            txn = txn.compare(&key, self.records.compare_with(&key));
            let loss = self.loss_of(plan);
            txn = txn.put(Key::Failover(failover), &failover_record(now, plan, &record, (failover, loss)));
            txn = self.taking_in(txn.put(&key, &record), &plan.old, &record);
        }
        txn
    }

    /// What may be lost by this seal, as far as it is known. A partition of global transactions is told again
    /// what it has lost of them, from the log of their manager (PR-368). What the database's tables are like
    /// is said by its first partition alone, so that one may lose changes of them; the others are told of
    /// these as well. An operator may give up what the manager has removed already, and so may a promotion
    /// that goes on with such a doubt.
    fn loss_of(&self, plan: &SealPlan) -> LossReport {
        let old = &plan.old;
        let before = old.failover.and_then(|failover| self.records.failover(failover));
        let doubted = before.is_none_or(|before| before.loss.possible && !before.loss.brought_again);
        let given_up = old.lossy && !self.serves(old) && doubted;
        let brought_again = plan.lossy && old.is_global() && plan.cause != Cause::Forced && !given_up;
        let table = self.records.table(old.table);
        let has_tables = table.is_none_or(|table| table.first_partition == old.id);
        LossReport {
            possible: plan.lossy && (!brought_again || has_tables),
            brought_again,
            ..LossReport::default()
        }
    }

    fn sealed_record(&mut self, plan: &SealPlan, failover: u64) -> PartitionRecord {
        let old = &plan.old;
        let counts = |member: &Member| plan.in_sync.iter().any(|other| other.node == member.node);
        let record = PartitionRecord {
            epoch: old.epoch.next(),
            primary: plan.candidate.present,
            term: Term::of(old.epoch.next()),
            in_sync: plan.in_sync.clone(),
            catching_up: old.catching_up.iter().filter(|member| !counts(member)).copied().collect(),
            proposal: self.proposal(),
            cause: plan.cause,
            before: Some(PreviousTerm {
                epoch: old.epoch,
                term: fencing_term(old, self.settings.rules),
                primary: old.primary,
                handed_over: false,
                in_sync: old.in_sync.clone(),
            }),
            failover: Some(failover),
            lossy: plan.lossy,
            ..old.clone()
        };
        noted(record, old)
    }

    /// A seal was answered. If another controller was faster, the cluster map has its record by now, and what
    /// follows goes by that one.
    pub(crate) fn sealed(&mut self, now: Now, partitions: &[PartitionId]) {
        for partition in partitions {
            let Some(record) = self.records.partition(*partition) else { continue };
            let open =
                |id: &u64| self.records.failover(*id).is_some_and(|failover| failover.serving_ms.is_none());
            if let Some(failover) = record.failover.filter(open) {
                self.sealing.answered_ms.entry(failover).or_insert(now.wall_ms);
            }
        }
        while self.sealing.answered_ms.len() > self.settings.failovers_kept {
            self.sealing.answered_ms.pop_first();
        }
    }
}

/// The record, with its term noted where an operator has a copy of a partition of global transactions lead
/// that did not count before: what all had secured, and the manager has removed, may be gone (PR-418).
fn noted(record: PartitionRecord, old: &PartitionRecord) -> PartitionRecord {
    let counted = old.in_sync.iter().any(|member| member.same_store(&record.primary));
    match record.cause == Cause::Forced && record.is_global() && !counted {
        true => record.led_by_uncounted(),
        false => record,
    }
}

fn failover_record(
    now: Now,
    plan: &SealPlan,
    record: &PartitionRecord,
    (id, loss): (u64, LossReport),
) -> FailoverRecord {
    FailoverRecord {
        format: FORMAT,
        id,
        partition: record.id,
        cause: plan.cause,
        old_epoch: plan.old.epoch,
        old_primary: plan.old.primary,
        old_term: plan.old.term,
        new_epoch: record.epoch,
        new_primary: record.primary,
        last_heard_ms: plan.last_heard_ms,
        suspected_ms: plan.suspected_ms,
        // The time of asking; replaced by that of the answer when the new primary reports.
        sealed_ms: now.wall_ms,
        reconciled_ms: None,
        serving_ms: None,
        loss,
        unknown: Default::default(),
    }
}

/// Of which term a log must have something so that the report of the old primary fences (PR-103): of the one
/// that is sealed. Whoever led on, or had the lead handed to it, has all of the term before as well, whether
/// it came to serve again or not.
///
/// Who that is: the same disk where acknowledgements are on disks, else the same life alone, since a later
/// one may have forgotten. With the same life nothing can have been lost in between: what the term before
/// acknowledged it has in memory, and nobody else led since who could have acknowledged more (PR-230). Else
/// terms that follow each other unserved, as when records are made anew again and again, would each ask for
/// something of the last one, which nobody's log has; and where the set names a life that has ended, its
/// report would be waited for for ever. Should the life end before its own report is taken, the next term
/// under such a policy is sealed as lossy, and its reports fence nothing.
pub(crate) fn fencing_term(old: &PartitionRecord, rules: Rules) -> Term {
    let survives = old.policy.survives_restart();
    let led_on = |before: &PreviousTerm| match survives {
        true => before.primary.same_store(&old.primary),
        false => before.primary == old.primary && rules.same_lives_lead_on(),
    };
    let handed = |before: &PreviousTerm| before.handed_over && (survives || rules.same_lives_lead_on());
    let before = old.before.as_ref().filter(|before| handed(before) || led_on(before));
    before.map_or(old.term, |before| before.term)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, Finding, Incarnation, LogKind, NodeId, Policy, StoreId, TableId};

    fn member(node: u32, incarnation: u64) -> Member {
        let incarnation = Incarnation(incarnation);
        Member { node: NodeId(node), store: StoreId(node.into()), incarnation }
    }

    /// A term 7 of node 1, after term 4 of `before`.
    fn sealed(policy: &str, before: Member, handed_over: bool) -> PartitionRecord {
        let policy = Policy::preset(policy, 3, LogKind::Disk).expect("a policy");
        let in_sync = vec![member(1, 2), member(2, 1), member(3, 1)];
        let term = PreviousTerm {
            epoch: Epoch(6),
            term: Term(4),
            primary: before,
            handed_over,
            in_sync: in_sync.clone(),
        };
        let id = PartitionId(64);
        PartitionRecord {
            before: Some(term),
            ..PartitionRecord::new(id, TableId(1), Epoch(7), in_sync, policy)
        }
    }

    #[test]
    fn pr103_a_disk_that_led_before_has_what_was_acknowledged_there() {
        let (same, other) = (member(1, 1), member(2, 1));
        let term =
            |policy, before, handed_over| fencing_term(&sealed(policy, before, handed_over), Rules::ALL);
        assert_eq!(term("local", same, false), Term(4), "started twice, and never served between");
        assert_eq!(term("local", other, true), Term(4), "the lead was handed to it");
        assert_eq!(term("local", other, false), Term(7), "it waited for the other's report itself");
        assert_eq!(term("semi", same, false), Term(7), "it forgot");
    }

    #[test]
    fn pr230_the_same_incarnation_has_what_was_acknowledged_before_whatever_is_on_disks() {
        let (same, former, other) = (member(1, 2), member(1, 1), member(2, 1));
        let term = |before, handed_over| fencing_term(&sealed("async", before, handed_over), Rules::ALL);
        assert_eq!(term(same, false), Term(4), "it led on, and forgot nothing");
        assert_eq!(term(other, true), Term(4), "the lead was handed to this life");
        assert_eq!(term(former, false), Term(7), "a later life may have forgotten");
        assert_eq!(term(other, false), Term(7), "it waited for the other's report itself");
        let without = Rules::without(Finding::Pr230).expect("tests have mutants");
        assert_eq!(fencing_term(&sealed("async", same, false), without), Term(7), "nobody's log has that");
    }

    #[test]
    fn pr418_terms_that_follow_a_copy_that_was_forced_to_lead_say_which_term_that_was() {
        let mut old = sealed("async", member(2, 1), false);
        old.unknown.insert(PartitionRecord::TRANSACTIONS.into(), types::config::GLOBAL.into());
        let next = |old: &PartitionRecord, cause, primary| {
            let term = Term(old.term.0 + 1);
            noted(PartitionRecord { cause, primary, term, ..old.clone() }, old)
        };
        let forced = next(&old, Cause::Forced, member(4, 1));
        assert_eq!(forced.last_uncounted(), Some(Term(8)));
        let later = next(&forced, Cause::Suspected, member(2, 1));
        assert_eq!((later.term, later.last_uncounted()), (Term(9), Some(Term(8))));
        let counted = next(&old, Cause::Forced, member(2, 7));
        assert_eq!(counted.last_uncounted(), None, "it has what all had");
        let plain = next(&sealed("async", member(2, 1), false), Cause::Forced, member(4, 1));
        assert_eq!(plain.last_uncounted(), None, "nothing is brought again there");
    }
}
