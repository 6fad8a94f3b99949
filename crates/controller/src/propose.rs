//! A primary proposes a change of the set it leads (R1, PR-16).

use crate::api::ConnId;
use crate::controller::Controller;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::txn::Txn;
use types::config::{Cause, PartitionRecord, PreviousTerm};
use types::{Epoch, Member, Now, Rules};
use wire::RecordText;
use wire::control::{Propose, Proposed};

/// A proposal under way.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ProposeJob {
    /// Who waits.
    conn: ConnId,
    /// The epoch to be replaced.
    expected: Epoch,
    /// The record to be written.
    record: PartitionRecord,
    /// How often the metastore was asked.
    attempts: u32,
}

/// A cluster map that is behind is brought up to date this often for one proposal.
const ATTEMPTS: u32 = 3;

impl Controller {
    pub(crate) fn on_propose(&mut self, now: Now, conn: ConnId, propose: Propose) {
        let Ok(record) = propose.record.read::<PartitionRecord>() else { return self.close(conn) };
        for purpose in self.ledger.purposes_mut() {
            if let Purpose::Propose(job) = purpose
                && job.record.proposal == record.proposal
            {
                // Asked again while the first is under way: the answer goes where it was asked last.
                job.conn = conn;
                return;
            }
        }
        self.consider(now, ProposeJob { conn, expected: propose.expected, record, attempts: 0 });
    }

    fn consider(&mut self, now: Now, mut job: ProposeJob) {
        let Some(current) = self.records.partition(job.record.id).cloned() else { return };
        if current.proposal == job.record.proposal || job.expected < current.epoch {
            return self.answer_proposal(&job);
        }
        let key = Key::Partition(current.id);
        job.attempts += 1;
        if job.expected > current.epoch {
            // The primary knows more than this controller. That is learnt from the metastore, never believed
            // (N2).
            if job.attempts > ATTEMPTS {
                return self.answer_proposal(&job);
            }
            let txn = Txn { also_read: vec![key.to_string()], ..Txn::default() };
            return self.submit(Purpose::Propose(job), txn);
        }
        let may = self.failure_detector.member(job.conn) == Some(current.primary)
            && admissible(self.settings.rules, &current, &job.record).is_ok()
            && self.present(&current, &job.record)
            && self.grants_eviction(now, &current, &job.record.in_sync);
        if !may || job.attempts > ATTEMPTS {
            return self.answer_proposal(&job);
        }
        assert_eq!(job.record.epoch, current.epoch.next(), "N2: a record follows the one that it replaces");
        let revision = self.records.compare_with(&key);
        assert!(revision > 0, "R1: the record of {} would be written over unseen", current.id);
        let txn = Txn::default().compare(&key, revision).put(&key, &job.record);
        let txn = self.taking_in(txn, &current, &job.record);
        self.submit(Purpose::Propose(job), txn);
    }

    /// True if every member that is taken in is its node's present life, on its present disk (PR-17).
    fn present(&self, old: &PartitionRecord, new: &PartitionRecord) -> bool {
        let stays = |member: &Member| old.in_sync.contains(member);
        let present =
            |member: &Member| self.records.node(member.node).is_some_and(|node| node.member() == *member);
        let added = new.in_sync.iter().filter(|member| !stays(member));
        let caught = new.catching_up.iter().filter(|member| !old.holds(member));
        added.chain(caught).all(present)
    }

    /// The metastore has answered: the record that it holds now decides (PR-16).
    pub(crate) fn proposed(&mut self, now: Now, job: ProposeJob) {
        let current = self.records.partition(job.record.id);
        let open = current
            .is_some_and(|current| current.proposal != job.record.proposal && current.epoch == job.expected);
        match open {
            true => self.consider(now, job),
            false => self.answer_proposal(&job),
        }
    }

    /// Tells the primary which record is in force, and whether it is the one it proposed.
    pub(crate) fn answer_proposal(&mut self, job: &ProposeJob) {
        let Some(current) = self.records.partition(job.record.id) else { return };
        let answer = Proposed {
            proposal: job.record.proposal,
            partition: current.id,
            accepted: current.proposal == job.record.proposal,
            record: RecordText::new(current),
        };
        self.send(job.conn, answer);
    }
}

/// Checks that a primary may turn `old` into `new` at all. The error is a sentence.
pub(crate) fn admissible(rules: Rules, old: &PartitionRecord, new: &PartitionRecord) -> Result<(), String> {
    new.validate()?;
    if (new.id, new.table, new.epoch) != (old.id, old.table, old.epoch.next()) {
        return Err(format!("partition {}: {} does not follow {}", old.id, new.epoch, old.epoch));
    }
    if let Some(stranger) = new.in_sync.iter().find(|member| !old.holds(member)) {
        return Err(format!("partition {}: {stranger} would count without having caught up", old.id));
    }
    if rules.policies_change_in_three_steps() {
        policy_step(old, new)?;
    }
    match new.primary == old.primary {
        true => same_term(old, new),
        false => handed_over(old, new),
    }
}

/// The same primary goes on.
fn same_term(old: &PartitionRecord, new: &PartitionRecord) -> Result<(), String> {
    if matches!(
        new.cause,
        Cause::Switchover
            | Cause::Suspected
            | Cause::Restarted
            | Cause::Forced
            | Cause::Created
            | Cause::Rebuilt
    ) {
        return Err(format!(
            "partition {}: a primary that stays cannot give {:?} as its cause",
            old.id, new.cause
        ));
    }
    if new.term != old.term || new.failover != old.failover {
        return Err(format!("partition {}: the term cannot be rewritten", old.id));
    }
    if new.before.is_some() && new.before != old.before {
        return Err(format!("partition {}: the term before cannot be rewritten", old.id));
    }
    if new.lossy && !old.lossy {
        return Err(format!("partition {}: only a promotion may lose commits", old.id));
    }
    Ok(())
}

/// The primary hands over to an in-sync member.
fn handed_over(old: &PartitionRecord, new: &PartitionRecord) -> Result<(), String> {
    if new.cause != Cause::Switchover || !old.in_sync.contains(&new.primary) {
        return Err(format!("partition {}: {} cannot be handed the lead", old.id, new.primary));
    }
    let term = PreviousTerm {
        epoch: old.epoch,
        term: old.term,
        primary: old.primary,
        handed_over: true,
        in_sync: old.in_sync.clone(),
    };
    if new.term.began() != new.epoch || new.before != Some(term) || new.failover.is_some() || new.lossy {
        return Err(format!("partition {}: the record of the hand-over is not what happened", old.id));
    }
    Ok(())
}

/// Policies change in two records: "old and new", then "new" (PR-24). Giving the new one up is allowed.
fn policy_step(old: &PartitionRecord, new: &PartitionRecord) -> Result<(), String> {
    let same = new.policy == old.policy && new.next_policy == old.next_policy;
    let begins = new.policy == old.policy && new.cause == Cause::Policy;
    let ends = old.next_policy.as_ref() == Some(&new.policy)
        && new.next_policy.is_none()
        && new.cause == Cause::Policy;
    match same || begins || ends {
        true => Ok(()),
        false => Err(format!("partition {}: the policy changes in two steps", old.id)),
    }
}
