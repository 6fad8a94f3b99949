//! So many bytes in a second, whoever sends them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::Micros;

/// A tenth of a second's bytes may be sent at once after a time of rest.
const BURST: u64 = 10;

/// What a node may send and read back in a second, all its hosts together. A clone is the same budgets.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    /// For files that are sent to other nodes.
    pub(crate) ship: SharedBudget,
    /// For files and log that are read back.
    pub(crate) scrub: SharedBudget,
}

/// A budget of several hosts. It has a lock, and none on data: it is held for a sum.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedBudget(Arc<Mutex<Budget>>);

impl SharedBudget {
    /// As [`Budget::pass`]. Hosts read the clock one after the other: an earlier time gives nothing.
    pub fn pass(&self, now: Micros, per_second: u64) {
        self.lock().pass(now, per_second);
    }

    /// As [`Budget::is_left`].
    pub fn is_left(&self) -> bool {
        self.lock().is_left()
    }

    /// As [`Budget::spend`].
    pub fn spend(&self, bytes: usize) {
        self.lock().spend(bytes);
    }

    /// A sum is whole whoever panicked.
    fn lock(&self) -> MutexGuard<'_, Budget> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What may be sent now. A piece that is sent may be longer: then the next one waits for longer.
#[derive(Debug, Default)]
struct Budget {
    left: i64,
    at: Micros,
    limited: bool,
}

impl Budget {
    /// Time has passed, with this many bytes in a second; 0: no limit.
    pub fn pass(&mut self, now: Micros, per_second: u64) {
        self.limited = per_second > 0;
        let most = (per_second / BURST).clamp(1, i64::MAX as u64) as i64;
        let more = u128::from(per_second) * u128::from(now.since(self.at).0) / 1_000_000;
        // Less than a byte is not lost: the time counts until it makes one.
        if more > 0 || self.at == Micros::ZERO {
            self.left = self.left.saturating_add(i64::try_from(more).unwrap_or(i64::MAX)).min(most);
            self.at = self.at.max(now);
        }
    }

    /// True if something may be sent.
    pub fn is_left(&self) -> bool {
        !self.limited || self.left > 0
    }

    /// So many bytes were sent.
    pub fn spend(&mut self, bytes: usize) {
        if self.limited {
            self.left = self.left.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes sent in so many ticks of 20 ms, in pieces of 700.
    fn sent(per_second: u64, ticks: u64) -> u64 {
        let mut budget = Budget::default();
        let mut sent = 0;
        for tick in 1..=ticks {
            budget.pass(Micros::from_millis(1_000 + tick * 20), per_second);
            while budget.is_left() && sent < 10_000_000 {
                budget.spend(700);
                sent += 700;
            }
        }
        sent
    }

    #[test]
    fn the_hosts_of_a_node_have_one_limit() {
        let (one, ms) = (Budgets::default(), Micros::from_millis);
        let other = one.clone();
        one.ship.pass(ms(1_000), 10_000);
        one.ship.spend(1_000);
        other.ship.pass(ms(1_000), 10_000);
        assert!(!other.ship.is_left(), "the other one has sent what there was");
        assert!(other.scrub.is_left(), "nobody has read anything");
        // A clock that is read a little earlier gives nothing twice.
        one.ship.pass(ms(1_020), 10_000);
        other.ship.pass(ms(1_010), 10_000);
        other.ship.spend(200);
        assert!(!one.ship.is_left() && !other.ship.is_left());
    }

    #[test]
    fn the_limit_is_kept_and_used() {
        for rate in [1_000, 50_000, 1_000_000] {
            let ten_seconds = sent(rate, 500);
            let expected = rate * 10;
            assert!(ten_seconds <= expected + rate / BURST + 700, "{rate}: {ten_seconds}");
            assert!(ten_seconds >= expected * 95 / 100, "{rate}: {ten_seconds}");
        }
        assert!(sent(0, 1) >= 10_000_000, "no limit");
    }
}
