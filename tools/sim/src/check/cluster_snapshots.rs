//! PR-80: a point over all partitions has what was acknowledged before it was asked for, and nothing without
//! everything that was acknowledged before it was sent.

use crate::check::history::Operation;
use std::collections::BTreeMap;
use types::{PartitionId, Position};

/// Positions that are said to belong together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompleteSnapshot {
    /// When the first partition was asked, virtual microseconds.
    pub began: u64,
    /// Where each stood.
    pub at: BTreeMap<PartitionId, Position>,
}

/// Checks one point. `counts` says of a partition, its position in the point and that of an acknowledged
/// write whether both are of one log in which nothing was lost: other writes are skipped.
pub fn check(
    taken: &CompleteSnapshot,
    operations: &[Operation],
    counts: &dyn Fn(PartitionId, Position, Position) -> bool,
) -> Result<(), String> {
    let acknowledged = operations.iter().filter_map(|op| {
        let at = op.acknowledged()?;
        let cluster_snapshot = taken.at.get(&op.partition).filter(|of| counts(op.partition, **of, at))?;
        Some((op, at, at.lsn <= cluster_snapshot.lsn))
    });
    let (inside, outside): (Vec<_>, Vec<_>) = acknowledged.partition(|(_, _, inside)| *inside);
    // The write that was acknowledged first of all that are not in it.
    let Some((first, at, _)) = outside.into_iter().min_by_key(|(op, ..)| op.completed) else { return Ok(()) };
    let first_at =
        format!("the write at {at} of {}, acknowledged at {} us", first.partition, first.completed);
    if first.completed <= taken.began {
        return Err(format!("the point of {} us does not have {first_at}", taken.began));
    }
    match inside.into_iter().find(|(op, ..)| op.invoked > first.completed) {
        Some((later, at, _)) => Err(format!(
            "the point of {} us has the write at {at} of {}, sent at {} us, without {first_at}",
            taken.began, later.partition, later.invoked
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::history::{Action, Answer};
    use types::{Lsn, Position, Term};

    const A: PartitionId = PartitionId(64);
    const B: PartitionId = PartitionId(65);

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    fn write(partition: PartitionId, lsn: u64, invoked: u64, completed: u64) -> Operation {
        let told = Answer::Done { at: at(lsn), copies: 3 };
        let (key, action) = ("r0".into(), Action::Put(lsn));
        Operation { number: lsn, client: 0, partition, key, action, session: None, invoked, completed, told }
    }

    #[test]
    fn a_write_without_one_that_was_told_before_is_rejected() {
        let taken = CompleteSnapshot { began: 100, at: [(A, at(5)), (B, at(9))].into() };
        let all = |_: PartitionId, _: Position, _: Position| true;
        let x = write(A, 6, 150, 200);
        assert!(check(&taken, &[x.clone(), write(B, 9, 210, 220)], &all).is_err());
        assert_eq!(check(&taken, &[x.clone(), write(B, 10, 210, 220)], &all), Ok(()));
        assert_eq!(check(&taken, &[x.clone(), write(B, 9, 190, 220)], &all), Ok(()), "they overlap");
        assert_eq!(check(&taken, &[x, write(B, 9, 210, 220)], &|of, _, _| of == B), Ok(()));
    }

    #[test]
    fn a_write_that_was_told_before_all_is_missed() {
        let taken = CompleteSnapshot { began: 100, at: [(A, at(5))].into() };
        assert!(check(&taken, &[write(A, 6, 10, 90)], &|_, _, _| true).is_err());
    }
}
