//! How long to wait before the next attempt: growing, bounded, and spread by a generator whose seed is handed
//! in.

use types::Micros;
use types::random::Random;

/// Consecutive attempts without success.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The first wait, before jitter.
    pub const FIRST: Micros = Micros(1_000);
    /// The longest wait.
    pub const LONGEST_WAIT: Micros = Micros(50_000);

    /// The next wait: doubles from [`Backoff::FIRST`] to [`Backoff::LONGEST_WAIT`]; the upper half of it is
    /// random, so that clients that failed together do not come back together.
    pub fn wait(&mut self, jitter: &mut Random) -> Micros {
        let full = (Backoff::FIRST.0 << self.failures.min(10)).min(Backoff::LONGEST_WAIT.0);
        self.failures = self.failures.saturating_add(1);
        Micros((full - jitter.draw() % (full / 2)).max(Backoff::FIRST.0 / 2))
    }

    /// Something succeeded.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_are_bounded_and_repeat_with_the_seed() {
        let waits = |seed| {
            let (mut backoff, mut jitter) = (Backoff::default(), Random::new(seed));
            (0..12).map(|_| backoff.wait(&mut jitter)).collect::<Vec<_>>()
        };
        let first = waits(1);
        assert_eq!(first, waits(1));
        assert_ne!(first, waits(2));
        for (at, wait) in first.iter().enumerate() {
            let full = (1_000u64 << at).min(50_000);
            assert!(wait.0 <= full && wait.0 > full / 2 - 1, "attempt {at}: {wait:?}");
        }
    }
}
