//! Whether a member makes calls of procedures itself, or is sent what they came to (PR-240).

use crate::sender::Sender;
use crate::settings::Settings;
use types::{Lsn, Micros};

/// Who could not make a call itself is sent what calls came to for so long.
const EFFECTS: Micros = Micros::from_millis(1_000);

/// What is known of a member that may make calls itself.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// The code with which it does, as it has said; 0: it does not.
    code: u64,
    /// Until then it is sent what calls came to.
    effects_until: Micros,
}

impl Calls {
    /// The member has said with what code it makes calls itself.
    pub fn announced(&mut self, code: u64) {
        self.code = code;
    }

    /// True if it makes calls itself, with the same code as is here.
    pub fn are_made(&self, now: Micros, settings: &Settings) -> bool {
        let same = self.code == settings.programs.code() || !settings.rules.calls_need_the_same_code();
        self.code != 0 && same && now >= self.effects_until
    }
}

impl Sender<'_> {
    /// True if the member makes calls itself: it counts, and has the same code.
    pub(super) fn sends_calls(&self) -> bool {
        let counts = self.record.in_sync.contains(&self.to);
        counts && self.progress.flight.calls.are_made(self.now, self.settings)
    }

    /// The member could not make the call at `lsn`, in the append of this number: that is sent again, with
    /// what it came to.
    pub fn wants_effects(&mut self, number: u64, lsn: Lsn) {
        let flight = &mut self.progress.flight;
        flight.calls.effects_until = self.now + EFFECTS;
        if flight.is_current(number) && lsn < flight.next() && self.progress.streams() {
            self.progress.flight.rewind(lsn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pr240_calls_go_to_who_said_that_it_has_the_same_code() {
        let (settings, now) = (Settings::default(), Micros::from_millis(10));
        let mut calls = Calls::default();
        assert!(!calls.are_made(now, &settings), "it has said nothing");
        calls.announced(settings.programs.code() ^ 1);
        assert!(!calls.are_made(now, &settings), "it has other code");
        calls.announced(settings.programs.code());
        assert!(calls.are_made(now, &settings));
        calls.effects_until = now + Micros(1);
        assert!(!calls.are_made(now, &settings), "it could not make one just now");
        calls.announced(0);
        assert!(!calls.are_made(now + EFFECTS, &settings));
    }
}
