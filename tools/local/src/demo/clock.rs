//! The machine's clocks, as the demo reads them. Every process is on this machine, so wall clocks can be
//! compared.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub(super) fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub at: Instant,
    pub wall_ms: u64,
}

impl Moment {
    /// Right now.
    pub fn now() -> Moment {
        Moment { at: Instant::now(), wall_ms: wall_ms() }
    }

    /// Seconds from `start` to this moment.
    pub fn seconds_since(&self, start: &Moment) -> f64 {
        self.at.saturating_duration_since(start.at).as_secs_f64()
    }
}

/// Milliseconds between two moments, with fractions.
pub(super) fn ms_between(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1000.0
}
