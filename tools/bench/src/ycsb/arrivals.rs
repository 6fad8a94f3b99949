//! When the next operation is to begin: as soon as a client is free, or at its own time whatever became of
//! those before it.

use std::time::{Duration, Instant};

/// How operations follow each other.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Arrivals {
    /// A client begins the next one when it has its answer: closed loop.
    #[default]
    Closed,
    /// So many begin in each second, equally far apart: open loop. One that finds no client free waits for
    /// one, and this waiting is part of its latency, since a user would have waited as well.
    Open(f64),
}

/// The operations of one round.
#[derive(Debug)]
pub struct Offered {
    arrivals: Arrivals,
    begun: Instant,
    end: Instant,
    /// How many have begun.
    taken: u64,
}

impl Offered {
    /// From now on, for so long.
    pub fn new(arrivals: Arrivals, begun: Instant, time: Duration) -> Offered {
        Offered { arrivals, begun, end: begun + time, taken: 0 }
    }

    /// When the next one is to begin. None: the round ends before that.
    fn due(&self, now: Instant) -> Option<Instant> {
        let due = match self.arrivals {
            Arrivals::Closed => now,
            Arrivals::Open(rate) => self.begun + Duration::from_secs_f64(self.taken as f64 / rate),
        };
        (due < self.end && now < self.end).then_some(due)
    }

    /// Takes one that is due, and says since when.
    pub fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due(now).filter(|due| *due <= now)?;
        self.taken += 1;
        Some(due)
    }

    /// True if none will begin any more.
    pub fn is_over(&self, now: Instant) -> bool {
        self.due(now).is_none()
    }

    /// How long until one is due; none: there will be none.
    pub fn rest(&self, now: Instant) -> Option<Duration> {
        self.due(now).map(|due| due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_closed_loop_always_has_one_until_its_time_is_over() {
        let begun = Instant::now();
        let mut offered = Offered::new(Arrivals::Closed, begun, 10 * MS);
        assert_eq!(offered.take(begun + 3 * MS), Some(begun + 3 * MS));
        assert_eq!(offered.rest(begun + 4 * MS), Some(Duration::ZERO));
        assert_eq!(offered.take(begun + 10 * MS), None);
        assert!(offered.is_over(begun + 10 * MS));
    }

    #[test]
    fn an_open_loop_counts_from_when_each_was_to_begin() {
        let begun = Instant::now();
        let mut offered = Offered::new(Arrivals::Open(1_000.0), begun, 5 * MS);
        assert_eq!(offered.take(begun), Some(begun));
        assert_eq!(offered.take(begun), None, "the second one is due after a millisecond");
        assert_eq!(offered.rest(begun), Some(MS));
        // The store stood still for three milliseconds: those that were due meanwhile have waited since then.
        let now = begun + 3 * MS;
        let waited: Vec<Duration> = std::iter::from_fn(|| offered.take(now)).map(|due| now - due).collect();
        assert_eq!(waited, [2 * MS, MS, Duration::ZERO]);
        assert_eq!(offered.rest(now), Some(MS));
        assert!(!offered.is_over(now));
        assert_eq!(offered.take(begun + 6 * MS), None, "the round is over");
        assert!(offered.is_over(begun + 6 * MS));
    }
}
