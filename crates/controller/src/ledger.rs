//! Transactions under way: what each is for, and what to do about an unknown outcome (F17).

use crate::admin::Job;
use crate::api::{ConnId, Output, Tag};
use crate::controller::Controller;
use crate::propose::ProposeJob;
use crate::register::RegisterJob;
use crate::report::ReportJob;
use crate::txn::{Txn, TxnError, TxnOutcome};
use std::collections::BTreeMap;
use types::{Micros, Now, PartitionId};

/// What a transaction is for: decides what its outcome leads to.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Purpose {
    /// The cluster's first record.
    Bootstrap,
    /// A node's record.
    Register(RegisterJob),
    /// A primary's proposal.
    Propose(ProposeJob),
    /// Failovers of these partitions.
    Seal(Vec<PartitionId>),
    /// A failover's report.
    Report(ReportJob),
    /// An operator's wish.
    Admin(ConnId, u64, Job),
    /// Nodes that join and leave: done again later if it failed.
    Place,
    /// Tidying up; done again later if it failed.
    Sweep,
}

impl Purpose {
    /// True if the records show whether this transaction was applied: nobody writes the same for another
    /// reason.
    fn shows_in_records(&self) -> bool {
        !matches!(self, Purpose::Admin(_, _, Job::Numbers { .. }))
    }

    /// True if it writes the cluster's record: the next number of a table, partition or failover.
    pub(crate) fn takes_numbers(&self) -> bool {
        match self {
            Purpose::Bootstrap | Purpose::Seal(_) => true,
            Purpose::Admin(_, _, job) => job.takes_numbers(),
            Purpose::Register(_)
            | Purpose::Propose(_)
            | Purpose::Report(_)
            | Purpose::Place
            | Purpose::Sweep => false,
        }
    }
}

/// A transaction that was handed out or waits to be repeated.
#[derive(Clone, PartialEq, Debug)]
struct Pending {
    purpose: Purpose,
    txn: Txn,
    /// The outcome of an earlier attempt is unknown. If that one was applied, this one finds its comparisons
    /// broken, and fails because of it.
    unknown: bool,
}

/// All transactions under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    last: u64,
    running: BTreeMap<Tag, Pending>,
    /// To be repeated at this time.
    unknown: Vec<(Micros, Pending)>,
}

impl Ledger {
    /// True if a transaction for such a purpose is under way.
    pub(crate) fn any(&self, wanted: impl Fn(&Purpose) -> bool) -> bool {
        self.purposes().any(wanted)
    }

    /// What is under way.
    pub(crate) fn purposes(&self) -> impl Iterator<Item = &Purpose> {
        self.running
            .values()
            .chain(self.unknown.iter().map(|(_, pending)| pending))
            .map(|pending| &pending.purpose)
    }

    /// The purposes, to change whom an outcome is told to.
    pub(crate) fn purposes_mut(&mut self) -> impl Iterator<Item = &mut Purpose> {
        let unknown = self.unknown.iter_mut().map(|(_, pending)| pending);
        self.running.values_mut().chain(unknown).map(|pending| &mut pending.purpose)
    }

    /// Checks the ledger. The error is a sentence.
    pub(crate) fn validate(&self) -> Result<(), String> {
        match self.running.keys().next_back() {
            Some(tag) if tag.0 > self.last => Err(format!("tag {} was never given", tag.0)),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, pending: Pending) -> Tag {
        self.last += 1;
        let tag = Tag(self.last);
        let before = self.running.insert(tag, pending);
        assert!(before.is_none(), "tag {} is used twice", self.last);
        tag
    }

    /// Takes out what a transaction is for, as its outcome is here; none if it was told before.
    fn take(&mut self, tag: Tag) -> Option<Pending> {
        assert!(tag.0 <= self.last, "F17: an outcome of transaction {}, which was never handed out", tag.0);
        self.running.remove(&tag)
    }
}

impl Controller {
    /// Hands out a transaction.
    pub(crate) fn submit(&mut self, purpose: Purpose, txn: Txn) {
        self.hand_out(Pending { purpose, txn, unknown: false });
    }

    fn hand_out(&mut self, mut pending: Pending) {
        if !self.settings.rules.decisions_are_recorded_first() {
            // The planted bug: what this controller believes is written whatever the metastore holds.
            pending.txn.compares.clear();
        }
        assert!(
            pending.txn.puts.len() + pending.txn.deletes.len() <= Txn::MAX_KEYS,
            "a transaction is too large"
        );
        let txn = pending.txn.clone();
        let tag = self.ledger.enter(pending);
        self.emit(Output::Txn { tag, txn });
    }

    /// Repeats what has an unknown outcome. Its comparisons make that harmless: it is applied at most once. A
    /// seal is decided again instead: by now the primary that was missed may have been heard, and another
    /// member than the one that was to lead may have the most (PR-19, PR-471).
    pub(crate) fn repeat_unknown(&mut self, now: Now) {
        let waiting = std::mem::take(&mut self.ledger.unknown);
        let (due, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(at, _)| *at <= now.mono);
        self.ledger.unknown = later;
        let thinks_over = self.settings.rules.who_is_missed_may_be_well();
        for (_, pending) in due {
            assert!(pending.unknown, "F17: only what has no outcome is asked again");
            match &pending.purpose {
                Purpose::Seal(partitions) if thinks_over => self.sealed(now, partitions),
                _ => self.hand_out(pending),
            }
        }
    }

    pub(crate) fn on_txn_done(&mut self, now: Now, tag: Tag, outcome: Result<TxnOutcome, TxnError>) {
        let Some(mut pending) = self.ledger.take(tag) else { return };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(TxnError::Refused(why)) => return self.on_refused(now, pending.purpose, why),
            Err(TxnError::Unknown) if self.settings.rules.unknown_outcomes_are_asked_again() => {
                pending.unknown = true;
                self.ledger.unknown.push((now.mono + self.settings.retry, pending));
                return;
            }
            // The planted bug: no answer is taken for a good answer.
            Err(TxnError::Unknown) => self.believed(&pending.txn),
        };
        if outcome.succeeded && !pending.unknown && !pending.txn.puts.is_empty() {
            self.records.wrote(outcome.revision);
        }
        self.learn(now, outcome.revision, &outcome.current);
        // Numbers that were taken look the same whoever took them: then others are taken (PR-125).
        let shown = pending.purpose.shows_in_records() && pending.txn.is_in(&outcome.current);
        let applied = outcome.succeeded || pending.unknown && shown;
        match pending.purpose {
            Purpose::Bootstrap | Purpose::Place | Purpose::Sweep => {}
            Purpose::Register(job) => self.registered(now, job, applied),
            Purpose::Propose(job) => self.proposed(now, job),
            Purpose::Seal(partitions) => self.sealed(now, &partitions),
            Purpose::Report(job) => self.reported(job, applied),
            Purpose::Admin(conn, id, job) => self.job_done(now, conn, id, job, applied),
        }
        self.decide_all(now);
        self.go_on_waiting(now);
    }

    /// A transaction that can never succeed. Whoever waits for it is told.
    fn on_refused(&mut self, now: Now, purpose: Purpose, why: String) {
        match purpose {
            Purpose::Register(job) => self.close(job.conn),
            Purpose::Propose(job) => self.answer_proposal(&job),
            Purpose::Seal(partitions) => self.sealed(now, &partitions),
            Purpose::Admin(conn, id, _) => self.answer(conn, id, Err((1, why))),
            Purpose::Bootstrap | Purpose::Report(_) | Purpose::Place | Purpose::Sweep => {}
        }
    }

    fn believed(&self, txn: &Txn) -> TxnOutcome {
        let revision = self.records.revision() + 1;
        let puts = txn.puts.iter().map(|(key, bytes)| (key.clone(), Some((revision, bytes.clone()))));
        let current = puts.chain(txn.deletes.iter().map(|key| (key.clone(), None))).collect();
        TxnOutcome { succeeded: true, revision, current }
    }
}
