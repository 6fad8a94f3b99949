//! Snapshots of what all partitions have secured (T_P*): every in-sync replica has it, so any may be asked,
//! and whichever of them fails, others answer (PR-322).

use super::Manager;
use crate::call::{Answer, Call};
use crate::error::ClientError;
use crate::table::unexpected;
use std::collections::BTreeMap;
use types::{Lsn, Micros, PartitionId, Position};
use wire::commit::Threshold;
use wire::request::ReadSnapshot;
use wire::{Body, CommitAnswer, ManagerOp, ReadLevel};

/// The manager's copies answer, too, if they are no older than this, in milliseconds.
const MAX_LAG_MS: u64 = 10_000;

/// How long the manager's primary is asked before its copies are.
const PRIMARY_LIMIT: Micros = Micros::from_millis(250);

/// Whoever has it shows it, however long ago it has heard of its primary.
pub const ANYWHERE: ReadLevel = ReadLevel::Any { max_lag_ms: u64::MAX, min_lsn: Lsn::ZERO };

/// A snapshot that every in-sync replica can show.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Secured {
    at: Position,
    /// For each partition a commit that all its copies have durable, and with which they have all that the
    /// snapshot shows.
    partitions: BTreeMap<PartitionId, Position>,
}

impl Secured {
    /// Asks the manager's primary for it, which knows the most. Who gets no answer in time asks any copy.
    pub fn call_of_primary(manager: Manager) -> Call {
        manager.call(ManagerOp::Thresholds).within(PRIMARY_LIMIT)
    }

    /// Asks for it. Any copy of the manager's partition may answer: thresholds only rise.
    pub fn call(manager: Manager) -> Call {
        let read = ReadLevel::Any { max_lag_ms: MAX_LAG_MS, min_lsn: Lsn::ZERO };
        manager.call(ManagerOp::Thresholds).at_level(read)
    }

    /// What an answer says of these partitions, which are all of a database's. The error: it is none.
    pub fn of(answer: &Answer, database: impl Fn(PartitionId) -> bool) -> Result<Secured, ClientError> {
        let Body::Commit(CommitAnswer::Thresholds { partitions, .. }) = &answer.body else {
            return Err(unexpected(&answer.body));
        };
        let own = || partitions.iter().filter(|threshold| database(threshold.partition));
        let lagging = own().filter(|threshold| threshold.secured < threshold.newest);
        let newest = own().map(|threshold| threshold.newest).max().unwrap_or_default();
        let at = lagging.map(|threshold| threshold.secured).min().unwrap_or(newest);
        let secured = |threshold: &Threshold| (threshold.partition, threshold.secured);
        Ok(Secured { at, partitions: own().map(secured).collect() })
    }

    /// Its timestamp.
    pub fn at(&self) -> Position {
        self.at
    }

    /// Where a partition shows it.
    pub fn snapshot(&self, partition: PartitionId) -> ReadSnapshot {
        let after = self.partitions.get(&partition).copied().unwrap_or_default();
        ReadSnapshot::Commit { at: self.at, after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, Term};

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    fn secured(thresholds: &[(u32, u64, u64)]) -> Secured {
        let threshold = |(partition, newest, secured): &(u32, u64, u64)| Threshold {
            partition: PartitionId(*partition),
            newest: at(*newest),
            secured: at(*secured),
        };
        let partitions = thresholds.iter().map(threshold).collect();
        let body = Body::Commit(CommitAnswer::Thresholds { partitions, truncated: Position::ZERO });
        let answer = Answer { lsn: Lsn(1), epoch: Epoch(1), policy: 1, copies: 1, body };
        Secured::of(&answer, |partition| partition.0 < 70).expect("thresholds")
    }

    #[test]
    fn pr322_a_snapshot_of_what_is_secured_is_the_least_of_those_that_lag() {
        let after = |secured: &Secured, partition| match secured.snapshot(PartitionId(partition)) {
            ReadSnapshot::Commit { at, after } => (at.lsn.0, after.lsn.0),
            other => panic!("{other:?}"),
        };
        let some = secured(&[(64, 9, 6), (65, 8, 8), (66, 3, 3), (70, 20, 1)]);
        assert_eq!(some.at(), at(6));
        assert_eq!(
            [64, 65, 66, 67].map(|partition| after(&some, partition)),
            [(6, 6), (6, 8), (6, 3), (6, 0)]
        );
        assert_eq!(secured(&[(64, 9, 9), (65, 8, 8)]).at(), at(9), "all is");
        assert_eq!(secured(&[]).at(), Position::ZERO);
    }
}
