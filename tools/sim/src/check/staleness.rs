//! I5, PR-27: what any replica shows has everything that was acknowledged longer ago than the reader allows.

use std::collections::BTreeMap;
use types::{Lsn, PartitionId, Position};

/// A clock counts whole milliseconds, so that an age may be this much more, microseconds.
const ROUNDED_US: u64 = 1_000;

/// A request that any replica may answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnyRead {
    /// When it came to whoever answers, virtual microseconds.
    pub received: u64,
    /// How old the answer may be, milliseconds. A state that is asked for by name may have any age.
    pub max_lag_ms: u64,
}

impl AnyRead {
    /// What was acknowledged at this time or before must be shown. The replica's clock may be slow by so many
    /// in a thousand.
    pub fn must_have(&self, drift_permille: u64) -> u64 {
        let lag = self.max_lag_ms.saturating_mul(1_000_000) / (1_000 - drift_permille);
        self.received.saturating_sub(lag + ROUNDED_US)
    }
}

/// What was acknowledged, and when.
#[derive(Debug, Default)]
pub struct Staleness {
    /// Oldest first.
    acknowledged: BTreeMap<PartitionId, Vec<(u64, Position)>>,
}

impl Staleness {
    /// The acknowledgement of a write leaves at this time, virtual microseconds. Times only grow.
    pub fn acknowledged(&mut self, time: u64, partition: PartitionId, at: Position) {
        self.acknowledged.entry(partition).or_default().push((time, at));
    }

    /// Looks at an answer that shows the state at `shown`. `counts` says whether an acknowledged write must
    /// be there at all. The error is a sentence.
    pub fn answered(
        &self,
        partition: PartitionId,
        must_have: u64,
        shown: Lsn,
        counts: impl Fn(Position) -> bool,
    ) -> Result<(), String> {
        let all = self.acknowledged.get(&partition).map(Vec::as_slice).unwrap_or_default();
        let old = all.partition_point(|(time, _)| *time <= must_have);
        let lacks = |(_, at): &&(u64, Position)| at.lsn > shown && counts(*at);
        match all[..old].iter().find(lacks) {
            None => Ok(()),
            Some((time, at)) => Err(format!(
                "{partition}: {shown} is shown to who wants all that was acknowledged at {must_have} us, and \
                 {at} was at {time} us"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::lineage::tests::{P, at};

    #[test]
    fn an_answer_that_is_older_than_allowed_is_rejected() {
        let mut staleness = Staleness::default();
        staleness.acknowledged(10_000, P, at(1, 4));
        staleness.acknowledged(50_000, P, at(1, 5));
        let verdict = |must_have, shown, counts| staleness.answered(P, must_have, Lsn(shown), |_| counts);
        assert_eq!(verdict(49_999, 4, true), Ok(()));
        assert_eq!(verdict(50_000, 5, true), Ok(()));
        assert!(verdict(50_000, 4, true).is_err());
        assert!(verdict(10_000, 3, true).is_err());
        assert_eq!(verdict(50_000, 4, false), Ok(()), "it is lost");
        assert_eq!(staleness.answered(PartitionId(65), 50_000, Lsn(0), |_| true), Ok(()));
    }

    #[test]
    fn a_slow_clock_takes_what_is_older_for_fresh() {
        let read = AnyRead { received: 1_000_000, max_lag_ms: 95 };
        assert_eq!(read.must_have(0), 1_000_000 - 96_000);
        assert_eq!(read.must_have(50), 1_000_000 - 101_000);
        assert_eq!(AnyRead { max_lag_ms: u64::MAX, ..read }.must_have(50), 0);
    }
}
