//! How often a backup that misses its primary says so.

use types::Micros;

/// The longest time between two such words.
const LONGEST_BACKOFF: Micros = Micros::from_millis(1_000);

/// When it said so last, and how long it waits before it does again.
#[derive(Debug)]
pub(crate) struct Patience {
    said_at: Micros,
    waits: Micros,
}

impl Patience {
    /// `waits`: how long at first.
    pub fn new(waits: Micros) -> Patience {
        Patience { said_at: Micros::ZERO, waits }
    }

    /// The primary was heard.
    pub fn heard(&mut self, waits: Micros) {
        self.waits = waits;
    }

    /// True if it is to be said now. The loser of a race must not ask again at once: it waits twice as long
    /// each time, if it `backs_off` (F18).
    pub fn runs_out(&mut self, now: Micros, backs_off: bool) -> bool {
        if now.since(self.said_at) < self.waits {
            return false;
        }
        self.said_at = now;
        if backs_off {
            self.waits = Micros(self.waits.0 * 2).min(LONGEST_BACKOFF);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f18_a_loser_asks_less_and_less_often_until_the_primary_is_heard() {
        let mut patience = Patience::new(Micros(100_000));
        assert!(patience.runs_out(Micros(200_000), true));
        assert!(!patience.runs_out(Micros(399_999), true));
        assert!(patience.runs_out(Micros(400_000), true));
        assert!(!patience.runs_out(Micros(799_999), true));
        for seconds in 2..6 {
            assert!(patience.runs_out(Micros(seconds * 1_000_000), true));
        }
        assert_eq!(patience.waits, LONGEST_BACKOFF);
        patience.heard(Micros(100_000));
        assert!(patience.runs_out(Micros(5_100_000), false) && patience.runs_out(Micros(5_200_000), false));
    }
}
