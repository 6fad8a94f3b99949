//! A machine's clocks: a monotonic one that runs a little fast or slow, and a wall clock that may jump.

use types::{Micros, Now};

/// When virtual time begins, as people count: milliseconds since 1970.
const EPOCH_MS: u64 = 1_700_000_000_000;

/// The clocks of one machine.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Virtual time at which the present rate began.
    since: u64,
    /// What the monotonic clock showed then.
    shown: u64,
    /// How fast it runs: parts in a million, within the drift that the settings allow.
    rate: i64,
    /// By how much the wall clock is off, in milliseconds.
    wall_off: i64,
}

impl Clock {
    /// A clock that shows `shown` at virtual time `now`.
    pub fn new(now: u64, shown: u64) -> Clock {
        Clock { since: now, shown, rate: 0, wall_off: 0 }
    }

    /// What the machine reads at virtual time `now`.
    pub fn read(&self, now: u64) -> Now {
        let wall = EPOCH_MS as i64 + (now / 1000) as i64 + self.wall_off;
        Now { mono: Micros(self.mono(now)), wall_ms: wall.max(0) as u64 }
    }

    fn mono(&self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.since) as i64;
        self.shown + (passed + passed * self.rate / 1_000_000) as u64
    }

    /// From now on the monotonic clock runs at this rate.
    pub fn set_rate(&mut self, now: u64, parts_in_a_million: i64) {
        self.shown = self.mono(now);
        self.since = now;
        self.rate = parts_in_a_million;
    }

    /// True if it runs neither fast nor slow.
    pub fn is_even(&self) -> bool {
        self.rate == 0
    }

    /// The wall clock jumps.
    pub fn jump(&mut self, ms: i64) {
        self.wall_off += ms;
    }

    /// How much virtual time passes while the monotonic clock goes on by `span`.
    pub fn real(&self, span: Micros) -> u64 {
        (span.0 as i64 * 1_000_000 / (1_000_000 + self.rate)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_never_goes_back_when_its_rate_changes() {
        let mut clock = Clock::new(0, 5_000);
        clock.set_rate(1_000_000, 50_000);
        assert_eq!(clock.read(1_000_000).mono, Micros(1_005_000));
        assert_eq!(clock.read(2_000_000).mono, Micros(2_055_000));
        clock.set_rate(2_000_000, -50_000);
        assert_eq!(clock.read(3_000_000).mono, Micros(3_005_000));
    }

    #[test]
    fn jumps_move_the_wall_clock_alone() {
        let mut clock = Clock::new(0, 0);
        let before = clock.read(10_000_000);
        clock.jump(-5_000);
        let after = clock.read(10_000_000);
        assert_eq!(before.mono, after.mono);
        assert_eq!(before.wall_ms - 5_000, after.wall_ms);
    }
}
