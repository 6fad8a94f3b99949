//! What a driver found of a replica when its node started, and whether its log and its engine files fit
//! together.

use crate::history::History;
use types::{Lsn, Position, Term};

/// What a driver found when a node started.
pub struct Recovered {
    /// The position before the first entry of the log on disk.
    pub base: Position,
    /// The checksum of the entry at the base.
    pub base_crc: u32,
    /// The last entry of the log on disk; all of it is durable.
    pub end: Position,
    /// Its checksum.
    pub end_crc: u32,
    /// The epochs in it.
    pub history: History,
    /// What may be published without asking: the newest [`crate::Note::Secured`].
    pub secured: Lsn,
    /// True if a torn end was cut off, or damage was found: then the sentence says what (PR-18).
    pub torn: bool,
    /// Damage that keeps this replica from being used.
    pub damaged: Option<String>,
    /// Every entry from the base to the end is there as it was written, whatever else is damaged: what the
    /// primary never had of them can be set aside before a copy takes their place (R9).
    pub whole: bool,
    /// The place of its engine's files cannot be used: the engine is an empty one that keeps nothing, until
    /// the driver gives another ([`crate::Host::relocate`]). It is damaged too then.
    pub storage_lost: bool,
}

impl Recovered {
    /// A replica that never was.
    pub fn nothing() -> Recovered {
        Recovered {
            base: Position::ZERO,
            base_crc: 0,
            end: Position::ZERO,
            end_crc: 0,
            history: History::default(),
            secured: Lsn::ZERO,
            torn: false,
            damaged: None,
            whole: true,
            storage_lost: false,
        }
    }

    /// Why this replica cannot be used, if so.
    pub(crate) fn damage(&self, persisted: Position, kept_for_files: bool) -> Option<String> {
        self.damaged.clone().or_else(|| self.misfit(persisted, kept_for_files))
    }

    /// Why this log and engine files that end at `persisted` cannot be used together.
    pub(crate) fn misfit(&self, persisted: Position, kept_for_files: bool) -> Option<String> {
        if persisted.lsn < self.base.lsn && kept_for_files {
            let base = self.base;
            return Some(format!(
                "F13: the log begins behind {base} but the engine's files end at {persisted}"
            ));
        }
        if persisted.lsn > self.end.lsn {
            // Nothing says what the entry before the next one was: a copy is needed (PR-35).
            let end = self.end;
            return Some(format!("PR-35: the log ends at {end} below the engine's files at {persisted}"));
        }
        // The files are of a copy, or of entries, that the log on the disk has not got: it is of what was
        // before (F15).
        let other = self.term_at(persisted.lsn).is_some_and(|epoch| epoch != persisted.term);
        other.then(|| {
            let end = self.end;
            format!(
                "F15: the engine's files end at {persisted}, and the log to {end} has another entry there"
            )
        })
    }

    /// True if the log of a damaged replica may have what is nowhere else.
    pub(crate) fn may_diverge(&self, persisted: Position) -> bool {
        let in_files = persisted.term == self.end.term && persisted.lsn >= self.end.lsn;
        self.whole && self.end.lsn > self.base.lsn && !in_files
    }

    /// True if the log is remembered although the replica is damaged.
    pub(crate) fn keeps_tail(&self, persisted: Position, damaged: bool) -> bool {
        damaged && self.may_diverge(persisted)
    }

    /// The epoch of the log's entry at `lsn`, where the log has one and it is known.
    fn term_at(&self, lsn: Lsn) -> Option<Term> {
        match lsn {
            _ if lsn == self.base.lsn => Some(self.base.term),
            _ if lsn == self.end.lsn => Some(self.end.term),
            _ if lsn < self.base.lsn || lsn > self.end.lsn => None,
            _ => self.history.term_at(lsn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use types::Term;

    pub(crate) fn at(epoch: u64, lsn: u64) -> Position {
        Position::new(Term(epoch), Lsn(lsn))
    }

    /// A log from (1,10) to (2,20), whose second epoch begins at 15.
    pub(crate) fn log() -> Recovered {
        let history = History::new(vec![(Term(1), Lsn(1)), (Term(2), Lsn(15))]).expect("ascends");
        Recovered { base: at(1, 10), end: at(2, 20), history, ..Recovered::nothing() }
    }

    #[test]
    pub(crate) fn f15_files_that_are_not_of_this_log_are_damage() {
        let why = |persisted: Position| log().misfit(persisted, true).unwrap_or_default();
        for sound in [at(1, 10), at(1, 14), at(2, 15), at(2, 20)] {
            assert_eq!(why(sound), "", "{sound}");
        }
        assert!(why(at(1, 9)).starts_with("F13: "), "{}", why(at(1, 9)));
        assert!(why(at(2, 21)).starts_with("PR-35: "), "{}", why(at(2, 21)));
        // A copy of a newer term was installed, and the log still has what it replaced; and the other way
        // round.
        for other in [at(2, 10), at(2, 14), at(3, 15), at(1, 20), at(3, 20)] {
            assert!(why(other).starts_with("F15: "), "{other}: {}", why(other));
        }
    }

    #[test]
    pub(crate) fn r9_a_log_may_diverge_unless_the_files_have_all_of_it() {
        for persisted in [Position::ZERO, at(1, 14), at(2, 19), at(3, 25)] {
            assert!(log().may_diverge(persisted), "{persisted}");
        }
        assert!(!log().may_diverge(at(2, 20)) && !log().may_diverge(at(2, 21)));
        assert!(!Recovered { whole: false, ..log() }.may_diverge(Position::ZERO));
        assert!(!Recovered { base: at(2, 20), ..log() }.may_diverge(Position::ZERO), "it has no entry");
    }
}
