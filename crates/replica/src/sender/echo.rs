//! How old what a replica reads may be (PR-27): reads at any replica name a bound.
//!
//! What a primary has committed is all that was ever acknowledged as long as nobody else leads, and that was
//! so when the oldest of the heartbeats on which its lease rests was sent. Once it is cut off, its freshness
//! ends with that, though it goes on reading. A backup is as fresh as an acknowledgement of its own that the
//! primary had before that moment: so one that follows a primary which leads no more gets older too.

use types::Micros;

/// Which moment of a member's own clock its primary can vouch for: what is committed now is not older.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    /// Of the member's clock, microseconds.
    vouched_us: u64,
    /// An acknowledgement that is not vouched for yet: when it came, and the member's clock in it.
    next: Option<(Micros, u64)>,
}

impl Echo {
    /// An acknowledgement came, sent at `member_us` of the member's clock.
    pub fn note(&mut self, now: Micros, member_us: u64) {
        self.next.get_or_insert((now, member_us));
    }

    /// The time of the member's own clock that an append sends back to it: the last one that came before
    /// `led_at`, when this primary surely led. Nothing was acknowledged until then but what it had committed.
    pub fn tell(&mut self, led_at: Micros) -> u64 {
        if let Some((_, member_us)) = self.next.take_if(|(came, _)| *came <= led_at) {
            self.vouched_us = self.vouched_us.max(member_us);
        }
        self.vouched_us
    }
}
