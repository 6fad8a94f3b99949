//! States that are kept for snapshots of transactions over partitions: at a primary those that clients hold,
//! elsewhere what the primary keeps ([`types::commits`]).

use super::{RECENT, SCAN_HOLD};
use std::collections::BTreeMap;
use types::{Lsn, Micros};

/// A state is held no longer than this once a newer one is there, however often somebody asks for it.
const MAX_HELD: Micros = Micros::from_millis(3_600_000);
/// Nor once so many bytes of entries were written behind it: as much memory, about, its old rows may take.
const MAX_HELD_BYTES: u64 = 256 << 20;

/// What a look at the flushes of a primary adds at most to the time in which they do not say what it keeps,
/// or in which there are none.
const MAX_SILENCE: Micros = Micros::from_millis(1_000);
/// Where a primary leads for so long and nothing is flushed, what it said last is not kept any more: it may
/// hold files and rows in memory for nobody.
const MAX_QUIET: Micros = Micros::from_millis(300_000);

/// States that clients hold, and the recovery manager. So a snapshot lasts as long as the transaction that
/// reads it, within limits (PR-466). A state goes when others were held for ten seconds and it was not: what
/// was held last stays, also where nobody is there to hold anything (PR-467).
#[derive(Debug, Default)]
pub(crate) struct KeptStates {
    states: BTreeMap<Lsn, KeptState>,
    /// When something was held last.
    heard: Micros,
    /// The highest one that was held for too long: it is not held again, nor is a lower one.
    over: Lsn,
}

#[derive(Clone, Copy, Debug)]
struct KeptState {
    /// When it was the newest state last, as far as is known.
    since: Micros,
    /// [`crate::data::Data::written`] then.
    written: u64,
    used: Micros,
}

impl KeptStates {
    /// Somebody holds the state at `lsn`. `written` counts the bytes of all entries.
    pub fn hold(&mut self, (lsn, committed): (Lsn, Lsn), (now, written): (Micros, u64)) {
        let newest = lsn >= committed;
        self.heard = now;
        if lsn <= self.over && !newest {
            return;
        }
        let new = KeptState { since: now, written, used: now };
        let state = self.states.entry(lsn).or_insert(new);
        if newest {
            *state = new;
        }
        state.used = now;
    }

    /// Forgets those that were not held again, and those that were held for too long.
    pub fn close_idle(&mut self, now: Micros, written: u64) {
        let mut over = self.over;
        self.states.retain(|lsn, state| {
            let bytes = written.saturating_sub(state.written);
            let too_long = now.since(state.since) >= MAX_HELD || bytes > MAX_HELD_BYTES;
            if too_long {
                over = over.max(*lsn);
            }
            !too_long && self.heard.since(state.used) < SCAN_HOLD
        });
        self.over = over;
    }

    /// The engine that has them is gone.
    pub fn close_all(&mut self) {
        *self = KeptStates::default();
    }

    /// The lowest.
    pub fn lowest(&self) -> Option<Lsn> {
        self.states.keys().next().copied()
    }
}

/// What the primary keeps, as its flushes have said to a replica that follows it. Nothing of it is forgotten
/// while no primary leads: what comes with the next one finds it here (PR-465).
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// At which LSN it was said last, and what.
    told: Option<(Lsn, Lsn)>,
    /// The newest flush when it was looked for last.
    flushed: Lsn,
    /// For so long flushes have come and did not say it: those of a primary of an older version do not.
    silent: Micros,
    /// For so long a primary was heard and has flushed nothing.
    quiet: Micros,
    /// What was known of the primary when it was looked for last: the time up to which it surely led.
    led: Micros,
    /// When it was looked for last.
    looked: Micros,
    lowest: Option<Lsn>,
}

impl Followed {
    /// True if it is to be looked for again.
    pub fn is_due(&self, now: Micros) -> bool {
        self.looked == Micros::ZERO || now.since(self.looked) >= RECENT
    }

    /// What the newest state has: at which LSN it was said, and what; and the LSN of the newest flush. The
    /// primary surely led at `led_at`.
    pub fn note(&mut self, (now, led_at): (Micros, Micros), told: Option<(Lsn, Lsn)>, newest_flush: Lsn) {
        let since = now.since(self.looked).min(MAX_SILENCE);
        if told != self.told || told.is_some_and(|(at, _)| at >= newest_flush) {
            self.silent = Micros::ZERO;
        } else if newest_flush > self.flushed {
            // However long nobody led before.
            self.silent = self.silent + since;
        }
        match newest_flush == self.flushed {
            true if led_at > self.led => self.quiet = self.quiet + since,
            true => {}
            false => self.quiet = Micros::ZERO,
        }
        (self.told, self.flushed, self.led, self.looked) = (told, newest_flush, led_at, now);
        let counts = self.silent < SCAN_HOLD && self.quiet < MAX_QUIET;
        self.lowest = told.filter(|_| counts).map(|(_, lowest)| lowest);
    }

    /// The replica leads now: what was kept, which it keeps for a while from here on, so that who reads it
    /// can ask for it.
    pub fn end(&mut self) -> Option<Lsn> {
        std::mem::take(self).lowest
    }

    /// The lowest state that is kept.
    pub fn lowest(&self) -> Option<Lsn> {
        self.lowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = Micros::from_millis(1_000);

    fn after(seconds: u64) -> Micros {
        Micros(SECOND.0 * seconds)
    }

    #[test]
    fn pr466_a_state_is_held_as_long_as_somebody_asks_for_it_and_not_for_ever() {
        let mut held = KeptStates::default();
        held.hold((Lsn(5), Lsn(9)), (after(1), 0));
        held.hold((Lsn(7), Lsn(9)), (after(1), 0));
        for second in (3..3_601).step_by(2) {
            held.hold((Lsn(7), Lsn(9)), (after(second), second));
            held.close_idle(after(second), second);
            let lowest = if second < 11 { Lsn(5) } else { Lsn(7) };
            assert_eq!(held.lowest(), Some(lowest), "after {second} s");
        }
        held.close_idle(after(3_601), 0);
        assert_eq!(held.lowest(), None, "it was held for an hour");
        held.hold((Lsn(7), Lsn(9)), (after(3_601), 0));
        assert_eq!(held.lowest(), None, "and is not held again");
        held.hold((Lsn(8), Lsn(9)), (after(3_601), 0));
        assert_eq!(held.lowest(), Some(Lsn(8)));
    }

    #[test]
    fn pr467_what_was_held_last_stays_while_nobody_holds_anything() {
        let mut held = KeptStates::default();
        held.hold((Lsn(5), Lsn(9)), (after(1), 0));
        held.close_idle(after(3_000), 1 << 20);
        assert_eq!(held.lowest(), Some(Lsn(5)));
        held.hold((Lsn(20), Lsn(20)), (after(3_000), 1 << 20));
        held.close_idle(after(3_000), 1 << 20);
        assert_eq!(held.lowest(), Some(Lsn(20)), "who holds something again holds another one");
    }

    #[test]
    fn pr466_a_state_is_not_held_for_more_than_there_is_room_for() {
        let mut held = KeptStates::default();
        held.hold((Lsn(5), Lsn(5)), (after(1), 100));
        held.hold((Lsn(5), Lsn(5)), (after(2), 200));
        held.close_idle(after(3), 200 + MAX_HELD_BYTES);
        assert_eq!(held.lowest(), Some(Lsn(5)), "it was the newest a second ago");
        held.close_idle(after(3), 201 + MAX_HELD_BYTES);
        assert_eq!(held.lowest(), None);
        held.hold((Lsn(5), Lsn(9)), (after(3), 201 + MAX_HELD_BYTES));
        assert_eq!(held.lowest(), None, "whoever asks for it comes too late");
        held.hold((Lsn(5), Lsn(5)), (after(3), 201 + MAX_HELD_BYTES));
        assert_eq!(held.lowest(), Some(Lsn(5)), "nothing else is there: it takes nothing");
    }

    /// A look at a replica that has heard its primary just now.
    fn look(
        followed: &mut Followed,
        second: u64,
        told: Option<(u64, u64)>,
        newest_flush: u64,
    ) -> Option<u64> {
        let told = told.map(|(at, lowest)| (Lsn(at), Lsn(lowest)));
        followed.note((after(second), after(second)), told, Lsn(newest_flush));
        followed.lowest().map(|lowest| lowest.0)
    }

    #[test]
    fn pr465_what_a_primary_keeps_is_kept_until_it_says_so_no_more() {
        let mut followed = Followed::default();
        assert!(followed.is_due(after(1)));
        assert_eq!(look(&mut followed, 1, None, 3), None);
        assert!(!followed.is_due(after(1)));
        look(&mut followed, 2, Some((9, 4)), 9);
        assert_eq!(look(&mut followed, 3, Some((9, 4)), 12), Some(4), "it is said again now and then");
        look(&mut followed, 11, Some((13, 4)), 15);
        for second in 20..=28 {
            assert_eq!(look(&mut followed, second, Some((13, 4)), 80 + second), Some(4), "after {second} s");
        }
        assert_eq!(look(&mut followed, 29, Some((13, 4)), 109), None, "an older version says nothing");
        look(&mut followed, 30, Some((200, 50)), 200);
        for second in 31..=329 {
            assert_eq!(look(&mut followed, second, Some((200, 50)), 200), Some(50), "after {second} s");
        }
        assert_eq!(look(&mut followed, 330, Some((200, 50)), 200), None, "nothing was done for long");
        assert_eq!(look(&mut followed, 331, Some((300, 60)), 300), Some(60));
    }

    #[test]
    fn pr465_what_a_primary_kept_stays_while_nobody_leads() {
        let mut followed = Followed::default();
        look(&mut followed, 1, Some((200, 50)), 200);
        for second in 2..2_000 {
            followed.note((after(second), after(1)), Some((Lsn(200), Lsn(50))), Lsn(200));
        }
        assert_eq!(look(&mut followed, 2_001, Some((200, 50)), 207), Some(50), "its tail is committed");
        assert_eq!(followed.end(), Some(Lsn(50)));
        assert_eq!((followed.lowest(), followed.is_due(after(2_001))), (None, true));
    }
}
