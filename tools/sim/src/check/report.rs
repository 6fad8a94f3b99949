//! I14, R9: what a failover's report says of its losses is what was lost.

use std::collections::{BTreeMap, BTreeSet};
use types::config::FailoverRecord;
use types::{PartitionId, Position};

/// Checks the reports of all failovers. `acknowledged` and `lost` are positions of commits that clients were
/// told of.
pub fn check(
    failovers: &[FailoverRecord],
    acknowledged: &BTreeSet<(PartitionId, Position)>,
    lost: &BTreeMap<(PartitionId, Position), u64>,
) -> Result<(), String> {
    for (id, at) in lost.keys() {
        let tells = |failover: &&FailoverRecord| {
            failover.partition == *id
                && failover.new_epoch > at.term.began()
                && failover.loss.possible
                && failover.loss.kept_position().is_none_or(|kept| kept < *at)
        };
        if failovers.iter().find(tells).is_none() {
            return Err(format!("{id} {at} was acknowledged and is lost, and no failover's report says so"));
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
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::epochs::tests::member;
    use crate::check::lineage::tests::{P, at};
    use types::Term;
    use types::config::{Cause, LossReport};
    use types::{Epoch, Lsn};

    fn failover(possible: bool, term: u64, kept: u64) -> FailoverRecord {
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

    #[test]
    fn a_report_must_say_what_was_lost_and_nothing_else() {
        let all: BTreeSet<_> = [(P, at(1, 5)), (P, at(1, 6))].into();
        let lost: BTreeMap<_, _> = [((P, at(1, 6)), 30)].into();
        check(&[failover(true, 1, 5)], &all, &lost).expect("as it was");
        assert!(check(&[], &all, &lost).is_err(), "nobody says it");
        assert!(check(&[failover(false, 1, 5)], &all, &lost).is_err(), "it denies it");
        assert!(check(&[failover(true, 1, 6)], &all, &lost).is_err(), "it says that it is there");
        assert!(check(&[failover(true, 1, 4)], &all, &lost).is_err(), "it says that more is lost");
    }
    #[test]
    fn pr98_what_a_later_term_made_at_the_same_lsn_is_not_kept() {
        let all: BTreeSet<_> = [(P, at(1, 5)), (P, at(2, 5))].into();
        let lost: BTreeMap<_, _> = [((P, at(2, 5)), 30)].into();
        let kept = |term| FailoverRecord { new_epoch: Epoch(3), ..failover(true, term, 5) };
        check(&[kept(1)], &all, &lost).expect("it kept the entry of the first term");
        assert!(check(&[kept(2)], &all, &lost).is_err(), "it says that it is there");
    }
}
