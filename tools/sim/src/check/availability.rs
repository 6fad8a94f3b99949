//! I13: what could be served is served soon.

use std::collections::BTreeMap;
use types::PartitionId;

/// A partition that could be served is closed for so long at most. Microseconds.
pub const CLOSED_US: u64 = 2_000_000;

/// Partitions that nobody serves although somebody could.
#[derive(Debug, Default)]
pub struct Availability {
    /// Since when, in microseconds; none: that was told.
    closed: BTreeMap<PartitionId, Option<u64>>,
}

impl Availability {
    /// A partition was looked at, at the time `now` in microseconds. The error comes once per interruption.
    pub fn look(&mut self, id: PartitionId, now: u64, closed: bool) -> Result<(), String> {
        if !closed {
            self.closed.remove(&id);
            return Ok(());
        }
        let since = self.closed.entry(id).or_insert(Some(now));
        match *since {
            Some(began) if now - began > CLOSED_US => {
                *since = None;
                Err(format!("{id} has not been served for {} ms, and could be", (now - began) / 1000))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::lineage::tests::P;

    #[test]
    fn a_partition_that_stays_closed_is_rejected_once_and_one_that_opens_in_between_is_not() {
        let mut availability = Availability::default();
        for now in [0, CLOSED_US] {
            availability.look(P, now, true).expect("not long");
        }
        availability.look(P, CLOSED_US + 1, true).expect_err("too long");
        availability.look(P, CLOSED_US + 2, true).expect("told already");
        availability.look(P, CLOSED_US + 3, false).expect("open");
        for now in [2 * CLOSED_US, 3 * CLOSED_US] {
            availability.look(P, now, true).expect("not long");
        }
        availability.look(P, 3 * CLOSED_US + 1, true).expect_err("again");
    }
}
