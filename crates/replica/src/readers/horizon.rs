//! States that are kept for snapshots of transactions over partitions: at a primary those that clients hold,
//! elsewhere what the primary keeps ([`types::commits`]).

use super::{RECENT, SCAN_HOLD};
use std::collections::BTreeMap;
use types::{Lsn, Micros};

/// A state is held no longer than this once a newer one is there, however often somebody asks for it.
const MAX_HELD: Micros = Micros::from_millis(3_600_000);
/// Nor once so many bytes of entries were written behind it: as much memory, about, its old rows may take.
const MAX_HELD_BYTES: u64 = 256 << 20;

/// What a look at the flushes of a primary adds at most to the time in which they do not say what it keeps.
const MAX_SILENCE: Micros = Micros::from_millis(1_000);

/// States that clients hold, and the recovery manager. So a snapshot lasts as long as the transaction that
/// reads it, within limits (PR-466). A state goes when others were held for ten seconds and it was not: what
/// was held last stays, also where nobody is there to hold anything (PR-467).
#[derive(Debug, Default)]
pub(crate) struct HeldStates {
    states: BTreeMap<Lsn, HeldState>,
    /// When something was held last.
    heard: Micros,
    /// The highest one that was held for too long: it is not held again, nor is a lower one.
    over: Lsn,
}

#[derive(Clone, Copy, Debug)]
struct HeldState {
    /// When it was the newest state last, as far as is known.
    since: Micros,
    /// [`crate::data::Data::written`] then.
    written: u64,
    used: Micros,
}

impl HeldStates {
    /// Somebody holds the state at `lsn`. `written` counts the bytes of all entries.
    pub fn hold(&mut self, (lsn, committed): (Lsn, Lsn), (now, written): (Micros, u64)) {
        let newest = lsn >= committed;
        self.heard = now;
        if lsn <= self.over && !newest {
            return;
        }
        let new = HeldState { since: now, written, used: now };
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
        *self = HeldStates::default();
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
    /// When it was looked for last.
    looked: Micros,
    lowest: Option<Lsn>,
}

impl Followed {
    /// True if it is to be looked for again.
    pub fn is_due(&self, now: Micros) -> bool {
        self.looked == Micros::ZERO || now.since(self.looked) >= RECENT
    }

    /// What the newest state has: at which LSN it was said, and what; and the LSN of the newest flush.
    pub fn note(&mut self, now: Micros, told: Option<(Lsn, Lsn)>, newest_flush: Lsn) {
        if told != self.told || told.is_some_and(|(at, _)| at >= newest_flush) {
            self.silent = Micros::ZERO;
        } else if newest_flush > self.flushed {
            // However long nobody led before.
            self.silent = self.silent + now.since(self.looked).min(MAX_SILENCE);
        }
        (self.told, self.flushed, self.looked) = (told, newest_flush, now);
        self.lowest = told.filter(|_| self.silent < SCAN_HOLD).map(|(_, lowest)| lowest);
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
        let mut held = HeldStates::default();
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
        let mut held = HeldStates::default();
        held.hold((Lsn(5), Lsn(9)), (after(1), 0));
        held.close_idle(after(3_000), 1 << 20);
        assert_eq!(held.lowest(), Some(Lsn(5)));
        held.hold((Lsn(20), Lsn(20)), (after(3_000), 1 << 20));
        held.close_idle(after(3_000), 1 << 20);
        assert_eq!(held.lowest(), Some(Lsn(20)), "who holds something again holds another one");
    }

    #[test]
    fn pr466_a_state_is_not_held_for_more_than_there_is_room_for() {
        let mut held = HeldStates::default();
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

    #[test]
    fn pr465_what_a_primary_keeps_is_kept_until_it_says_so_no_more() {
        let mut followed = Followed::default();
        assert!(followed.is_due(after(1)));
        followed.note(after(1), None, Lsn(3));
        assert_eq!((followed.is_due(after(1)), followed.lowest()), (false, None));
        followed.note(after(2), Some((Lsn(9), Lsn(4))), Lsn(9));
        followed.note(after(3), Some((Lsn(9), Lsn(4))), Lsn(12));
        assert_eq!(followed.lowest(), Some(Lsn(4)), "it is said again now and then");
        followed.note(after(11), Some((Lsn(13), Lsn(4))), Lsn(15));
        for second in 20..=28 {
            followed.note(after(second), Some((Lsn(13), Lsn(4))), Lsn(80 + second));
            assert_eq!(followed.lowest(), Some(Lsn(4)), "after {second} s");
        }
        followed.note(after(29), Some((Lsn(13), Lsn(4))), Lsn(109));
        assert_eq!(followed.lowest(), None, "a primary of an older version says nothing");
        followed.note(after(30), Some((Lsn(200), Lsn(50))), Lsn(200));
        followed.note(after(800), Some((Lsn(200), Lsn(50))), Lsn(200));
        followed.note(after(900), Some((Lsn(200), Lsn(50))), Lsn(207));
        assert_eq!(followed.end(), Some(Lsn(50)), "it is kept while none leads");
        assert_eq!((followed.lowest(), followed.is_due(after(900))), (None, true));
    }
}
