//! The time of a turn, and when what is due.

use std::time::Duration;
use types::{Micros, Now};

/// How often the disk's room and the logs' lengths are looked at.
const POLL_INTERVAL: Micros = Micros::from_millis(500);
/// The same while a checkpoint could make room for what waits.
const LOOK_WHEN_FULL: Micros = Micros::from_millis(50);
/// How often what a failover would replay is compared with the tables' targets.
const LOOK_AT_TARGETS: Micros = Micros::from_millis(100);

/// Controllers hold a node that was silent for half a second for dead, however long `suspect` is: they hear
/// it well before.
const LONGEST_SILENCE: Micros = Micros::from_millis(125);

/// The time, and when what is due.
#[derive(Debug)]
pub struct Timer {
    /// When this turn began.
    now: Now,
    interval: Micros,
    next_tick: Micros,
    /// Controllers must hear something at least so often.
    status_every: Micros,
    next_status: Micros,
    next_look: Micros,
    next_targets: Micros,
}

impl Timer {
    /// All is due now.
    pub fn new(settings: &replica::Settings, now: Now) -> Timer {
        let at = now.mono;
        Timer {
            now,
            interval: settings.heartbeat,
            next_tick: at,
            status_every: Micros(settings.suspect.0 / 2).min(LONGEST_SILENCE),
            next_status: at,
            next_look: at,
            next_targets: at,
        }
    }

    /// A turn begins.
    pub fn begin(&mut self, now: Now) {
        // A clock that goes back a little, as some virtual machines' do, counts as one that stood still.
        self.now = Now { mono: now.mono.max(self.now.mono), ..now };
    }

    /// When this turn began.
    pub fn now(&self) -> Now {
        self.now
    }

    /// The same, by the monotonic clock.
    pub fn mono(&self) -> Micros {
        self.now.mono
    }

    /// How long from `now` until a tick is due.
    pub fn wait(&self, now: Micros) -> Duration {
        // Rounded up: the system would wake a little too early, for nothing.
        Duration::from_millis(self.next_tick.since(now).0.div_ceil(1000))
    }

    /// True if a tick is due: the next one is one interval later.
    pub fn tick_is_due(&mut self) -> bool {
        is_due(self.now.mono, &mut self.next_tick, self.interval)
    }

    /// True if the disk and the logs are to be looked at; sooner again while there is no room.
    pub fn look_is_due(&mut self, log_is_full: bool) -> bool {
        let every = if log_is_full { LOOK_WHEN_FULL } else { POLL_INTERVAL };
        is_due(self.now.mono, &mut self.next_look, every)
    }

    /// True if the tables' targets are to be looked at.
    pub fn targets_are_due(&mut self) -> bool {
        is_due(self.now.mono, &mut self.next_targets, LOOK_AT_TARGETS)
    }

    /// True if the status is to go out: when it is time to, and when there is news.
    pub fn status_is_due(&mut self, news: bool) -> bool {
        if news {
            self.next_status = Micros::ZERO;
        }
        is_due(self.now.mono, &mut self.next_status, self.status_every)
    }
}

fn is_due(now: Micros, next: &mut Micros, every: Micros) -> bool {
    let due = now >= *next;
    if due {
        *next = now + every;
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_go_out_with_the_next_tick_and_the_rest_when_it_is_time() {
        let at = |ms| Now { mono: Micros::from_millis(ms), wall_ms: 0 };
        let settings = replica::Settings::default();
        let mut timer = Timer::new(&settings, at(1_000));
        assert!(timer.tick_is_due() && timer.status_is_due(false) && timer.look_is_due(false));
        assert!(!timer.tick_is_due() && !timer.status_is_due(false) && !timer.look_is_due(false));
        assert_eq!(
            timer.wait(Micros::from_millis(1_001)),
            Duration::from_millis(settings.heartbeat.0 / 1_000 - 1)
        );
        timer.begin(at(1_001));
        assert!(timer.status_is_due(true) && !timer.status_is_due(false));
        timer.begin(at(1_500));
        assert!(timer.look_is_due(true) && timer.status_is_due(false) && timer.targets_are_due());
        timer.begin(at(1_550));
        assert!(timer.look_is_due(false), "it was looked at while there was no room");
    }
}
