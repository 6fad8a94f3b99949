//! How long an entry takes to be executed and published: from it the time of a replay is estimated before
//! there is one.

use std::time::{Duration, Instant};

/// One call of `execute` in so many is timed.
const SAMPLED: u32 = 16;
/// What was seen before so many samples counts half.
const HALVED: u64 = 1 << 12;

/// Means over lately executed and published entries.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReplayRate {
    calls: u32,
    executed: Mean,
    published: Mean,
}

#[derive(Clone, Copy, Default, Debug)]
struct Mean {
    nanos: u64,
    entries: u64,
}

impl Mean {
    fn add(&mut self, took: Duration, entries: u64) {
        if self.entries > HALVED {
            (self.nanos, self.entries) = (self.nanos / 2, self.entries / 2);
        }
        self.nanos += took.as_nanos() as u64;
        self.entries += entries;
    }

    fn value(&self) -> Option<u64> {
        self.nanos.checked_div(self.entries)
    }
}

impl ReplayRate {
    /// Begins to time the execution of an entry, if it is one of the sample and there is a clock.
    pub fn begin(&mut self, now: impl FnOnce() -> Option<Instant>) -> Option<Instant> {
        self.calls = self.calls.wrapping_add(1);
        if self.calls % SAMPLED == 1 { now() } else { None }
    }

    /// An entry was executed.
    pub fn executed(&mut self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.executed.add(begun.elapsed(), 1);
        }
    }

    /// So many entries were published.
    pub fn published(&mut self, begun: Option<Instant>, entries: u64) {
        if let Some(begun) = begun.filter(|_| entries > 0) {
            self.published.add(begun.elapsed(), entries);
        }
    }

    /// Nanoseconds for one entry; 0 before anything was seen.
    pub fn nanos(&self) -> u64 {
        match (self.executed.value(), self.published.value()) {
            (Some(executed), Some(published)) => executed + published,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_both_parts_and_follows_what_was_seen_last() {
        let mut replay_rate = ReplayRate::default();
        assert_eq!(replay_rate.nanos(), 0);
        replay_rate.executed.add(Duration::from_nanos(3000), 3);
        assert_eq!(replay_rate.nanos(), 0, "nothing was published yet");
        replay_rate.published.add(Duration::from_nanos(4000), 2);
        assert_eq!(replay_rate.nanos(), 3000);
        for _ in 0..20 {
            replay_rate.published.add(Duration::from_nanos(100 * HALVED), HALVED);
        }
        assert!((1100..1110).contains(&replay_rate.nanos()), "{}", replay_rate.nanos());
    }

    #[test]
    fn one_call_in_sixteen_is_timed() {
        let mut replay_rate = ReplayRate::default();
        let timed = (0..160).filter(|_| replay_rate.begin(|| Some(Instant::now())).is_some()).count();
        assert_eq!(timed, 10);
    }
}
