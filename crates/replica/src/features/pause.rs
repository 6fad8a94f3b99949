//! `committed` held back for a moment, so that all partitions can be looked at as of one ([`crate::point`]):
//! writes go on, what they and reads would tell of waits.
//!
//! Safety does not rest on the pause. Who asked for it is told at its end where `committed` stands, and knows
//! from that whether it held: in one term `committed` never goes back, and the answer rests on the lease.

use types::{Lsn, Micros};

/// The longest that one request holds `committed` back.
const MAX_PAUSE: Micros = Micros::from_millis(2_000);
/// Between the end of a pause and the next one: nobody can hold a partition up for good.
const REST: Micros = Micros::from_millis(500);

/// A hold of `committed`, or none. One that is over is kept for the rest after it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause {
    /// Where `committed` is held, and until when.
    held: Option<(Lsn, Micros)>,
}

impl Pause {
    /// Holds `committed` where it is. Whoever asks while it is held gets no more time. False during the rest
    /// after a hold.
    pub fn hold(&mut self, now: Micros, committed: Lsn, for_ms: u32) -> bool {
        if let Some((at, _)) = self.held {
            assert!(committed >= at, "R4: committed was held at {at} in this term, and is {committed}");
        }
        match self.held {
            Some((at, until)) if now < until && at == committed => return true,
            Some((_, until)) if now < until + REST => return false,
            _ => {}
        }
        let time = Micros::from_millis(for_ms.into()).min(MAX_PAUSE);
        self.held = Some((committed, now + time));
        true
    }

    /// Lets `committed` go on.
    pub fn release(&mut self, now: Micros) {
        if let Some((_, until)) = &mut self.held {
            *until = (*until).min(now);
        }
    }

    /// How far `committed` may go of what the policy allows.
    pub fn bound(&self, now: Micros, committed: Lsn, point: Lsn) -> Lsn {
        match self.held {
            Some((at, until)) if now < until => point.min(at.max(committed)),
            _ => point,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Micros {
        Micros::from_millis(ms)
    }

    #[test]
    fn committed_is_held_for_a_while_and_rests_between_two_holds() {
        let mut pause = Pause::default();
        assert_eq!(pause.bound(ms(0), Lsn(3), Lsn(9)), Lsn(9), "nothing is held");
        assert!(pause.hold(ms(0), Lsn(5), 100));
        assert_eq!(pause.bound(ms(99), Lsn(5), Lsn(9)), Lsn(5));
        assert!(
            pause.hold(ms(50), Lsn(5), 100),
            "who asks meanwhile is told the same, and gets no more time"
        );
        assert_eq!(pause.bound(ms(100), Lsn(5), Lsn(9)), Lsn(9));
        assert!(!pause.hold(ms(100), Lsn(9), 100), "the partition rests");
        assert!(pause.hold(ms(600), Lsn(9), 1_000_000));
        assert_eq!(pause.bound(ms(2_600), Lsn(9), Lsn(12)), Lsn(12), "nobody holds it longer than that");
    }

    #[test]
    fn what_is_released_goes_on_at_once_and_what_is_committed_stays_so() {
        let mut pause = Pause::default();
        pause.release(ms(1));
        assert!(pause.hold(ms(1), Lsn(5), 100));
        assert_eq!(pause.bound(ms(2), Lsn(7), Lsn(9)), Lsn(7), "it never goes back");
        pause.release(ms(2));
        assert_eq!(pause.bound(ms(2), Lsn(5), Lsn(9)), Lsn(9));
    }
}
