//! I14, R9: what a failover's report says of its losses is what was lost.

use super::aside::covers;
use super::survival::Missed;
use std::collections::{BTreeMap, BTreeSet};
use types::config::FailoverRecord;
use types::{PartitionId, Position, Term};

/// Checks the reports of all failovers. `acknowledged` and `lost` are positions of commits that clients were
/// told of; `lost` says in which configuration each was first missed, and `had` whether the log of a term has
/// an entry: what a term kept stands there, whoever led later.
pub fn check(
    failovers: &[FailoverRecord],
    acknowledged: &BTreeSet<(PartitionId, Position)>,
    lost: &BTreeMap<(PartitionId, Position), Missed>,
    had: impl Fn(PartitionId, Term, Position) -> bool,
) -> Result<(), String> {
    for ((id, at), missed) in lost {
        let tells = |failover: &&FailoverRecord| {
            failover.partition == *id
                && (at.term.began()..=missed.epoch).contains(&failover.new_epoch)
                && failover.new_epoch != at.term.began()
                && (failover.loss.possible || missed.brought_again && failover.loss.brought_again)
                && names(failover, *at)
        };
        if failovers.iter().find(tells).is_none() {
            let of_here = failovers.iter().filter(|failover| failover.partition == *id);
            let said = of_here.map(|one| (one.new_epoch, one.loss.possible, one.loss.kept_position()));
            let said: Vec<_> = said.collect();
            let sentence = format!("{id} {at} was acknowledged and is lost in {}", missed.epoch);
            return Err(format!("{sentence}, and no failover's report says so: {said:?}"));
        }
    }
    for failover in failovers {
        let Some(kept) = failover.loss.kept_position() else { continue };
        let wrong = acknowledged.iter().find(|(id, at)| {
            *id == failover.partition
                && at.term.began() < failover.new_epoch
                && *at > kept
                && !lost.contains_key(&(*id, *at))
                && at.term.began() <= failover.old_epoch
                // An operator may have had another one lead since, with what this term gave up (PR-08).
                && had(*id, Term(failover.new_epoch.0), *at)
        });
        if let Some((id, at)) = wrong {
            return Err(format!(
                "failover {} says that {id} kept up to {kept}, and {at} is there",
                failover.id
            ));
        }
        for tail in &failover.loss.tails {
            if tail.surely_acknowledged > tail.commits || tail.from > tail.to {
                return Err(format!("failover {}: a tail cannot be {tail:?}", failover.id));
            }
            // Of rows in several files the last one counts.
            let whole = tail.rows.is_none() || tail.commits > 0;
            let of_tail = |id, at: Position| covers(tail, tail.node, id, at) && at.term == tail.term;
            let within = lost.iter().filter(|((id, at), missed)| missed.changes_rows && of_tail(*id, *at));
            let within = within.count() as u64;
            if whole && tail.commits < within {
                let sentence =
                    format!("{within} acknowledged commits are in a tail that counts fewer: {tail:?}");
                return Err(format!("failover {}: {sentence}", failover.id));
            }
        }
    }
    Ok(())
}

/// True if a report says that this position was not kept. A promotion that never came to serve cannot say
/// what it kept: then it says that anything may be lost.
fn names(failover: &FailoverRecord, at: Position) -> bool {
    match failover.loss.kept_position() {
        Some(kept) => kept < at,
        None => failover.serving_ms.is_none(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The log of each term has everything.
    const THERE: fn(PartitionId, Term, Position) -> bool = |_, _, _| true;
    use crate::check::epochs::tests::member;
    use crate::check::lineage::tests::{P, at};
    use types::Term;
    use types::config::{Cause, LossReport, TailReport};
    use types::{Epoch, Lsn, NodeId};

    /// The second configuration takes the place of the first: what its report says of losses.
    pub(crate) fn failover(possible: bool, term: u64, kept: u64) -> FailoverRecord {
        FailoverRecord {
            format: 1,
            id: 1,
            partition: P,
            cause: Cause::Suspected,
            old_epoch: Epoch(1),
            old_primary: member(1),
            old_term: Term(1),
            new_epoch: Epoch(2),
            new_primary: member(2),
            last_heard_ms: 0,
            suspected_ms: 0,
            sealed_ms: 0,
            reconciled_ms: None,
            serving_ms: None,
            loss: LossReport {
                possible,
                kept: Some(Lsn(kept)),
                kept_term: Some(Term(term)),
                ..LossReport::default()
            },
            unknown: Default::default(),
        }
    }

    fn missed(epoch: u64) -> Missed {
        Missed { epoch: Epoch(epoch), changes_rows: true, brought_again: false }
    }

    #[test]
    fn a_report_must_say_what_was_lost_and_nothing_else() {
        let all: BTreeSet<_> = [(P, at(1, 5)), (P, at(1, 6))].into();
        let lost: BTreeMap<_, _> = [((P, at(1, 6)), missed(2))].into();
        check(&[failover(true, 1, 5)], &all, &lost, THERE).expect("as it was");
        assert!(check(&[], &all, &lost, THERE).is_err(), "nobody says it");
        assert!(check(&[failover(false, 1, 5)], &all, &lost, THERE).is_err(), "it denies it");
        let again = Missed { brought_again: true, ..missed(2) };
        let again: BTreeMap<_, _> = [((P, at(1, 6)), again)].into();
        assert!(check(&[failover(false, 1, 5)], &all, &again, THERE).is_err(), "it says nothing of that");
        let mut says = failover(false, 1, 5);
        says.loss.brought_again = true;
        check(&[says], &all, &again, THERE).expect("it says so");
        assert!(check(&[failover(true, 1, 6)], &all, &lost, THERE).is_err(), "it says that it is there");
        assert!(check(&[failover(true, 1, 4)], &all, &lost, THERE).is_err(), "it says that more is lost");
        let later = FailoverRecord { new_epoch: Epoch(3), ..failover(true, 1, 5) };
        assert!(check(&[later], &all, &lost, THERE).is_err(), "only a later one says it");
        let mut silent = failover(true, 1, 5);
        (silent.loss.kept, silent.loss.kept_term) = (None, None);
        check(&[silent.clone()], &all, &lost, THERE).expect("it never came to serve");
        silent.serving_ms = Some(7);
        assert!(check(&[silent], &all, &lost, THERE).is_err(), "it does not say from where on");
    }

    #[test]
    fn a_tail_counts_no_fewer_commits_than_are_known_to_be_in_it() {
        let all: BTreeSet<_> = [(P, at(1, 5)), (P, at(1, 6)), (P, at(1, 7))].into();
        let lost: BTreeMap<_, _> = [((P, at(1, 6)), missed(2)), ((P, at(1, 7)), missed(2))].into();
        let with = |commits| {
            let tail = TailReport {
                partition: P,
                node: NodeId(1),
                file: "x".into(),
                term: Term(1),
                from: Lsn(6),
                to: Lsn(7),
                commits,
                surely_acknowledged: 0,
                sessions: 1,
                rows: None,
            };
            let mut failover = failover(true, 1, 5);
            failover.loss.tails.push(tail);
            check(&[failover], &all, &lost, THERE)
        };
        with(2).expect("as many as were acknowledged");
        with(1).expect_err("too few");
    }

    #[test]
    fn pr98_what_a_later_term_made_at_the_same_lsn_is_not_kept() {
        let all: BTreeSet<_> = [(P, at(1, 5)), (P, at(2, 5))].into();
        let lost: BTreeMap<_, _> = [((P, at(2, 5)), missed(3))].into();
        let kept = |term| FailoverRecord { new_epoch: Epoch(3), ..failover(true, term, 5) };
        check(&[kept(1)], &all, &lost, THERE).expect("it kept the entry of the first term");
        assert!(check(&[kept(2)], &all, &lost, THERE).is_err(), "it says that it is there");
        let all = all.iter().map(|(id, at)| (*id, Position::new(at.term, at.lsn.next()))).collect();
        assert!(check(&[kept(1)], &all, &BTreeMap::new(), THERE).is_err(), "it says that less is there");
        check(&[kept(1)], &all, &BTreeMap::new(), |_, _, _| false).expect("an operator had it come back");
    }
}
