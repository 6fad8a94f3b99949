//! How a replica comes back into its set: stages and bytes, for people and for measuring, and the setting by
//! which it ignores what it has. Nothing here decides what is safe.

use crate::output::Notice;
use crate::settings::Settings;
use types::{Lsn, Micros, PartitionRecord};
use wire::control::{Failback, FailbackStage, Way};

/// A failback into the set.
///
/// | from | to | by |
/// | --- | --- | --- |
/// | Idle, InSync | Admitted | [`FailbackState::reconsider`] |
/// | Admitted | Rows | [`FailbackState::count_rows`] |
/// | Admitted, Rows | Log | [`FailbackState::count_log`] |
/// | any but Idle | InSync | [`FailbackState::reconsider`] |
///
/// Between Admitted and Log, the stages of files on their way are those of the files
/// ([`FailbackState::told`]).
#[derive(Debug, Default)]
pub(crate) struct FailbackState {
    told: Failback,
    /// Since when.
    since: Micros,
    /// The whole state came in on this way, however much was here before.
    given: bool,
}

impl FailbackState {
    fn is_under_way(&self) -> bool {
        !matches!(self.told.stage, FailbackStage::Idle | FailbackStage::InSync)
    }

    /// In another configuration: a failback begins, goes on or ends.
    pub fn reconsider(&mut self, now: Micros, catching_up: bool, in_sync: bool) {
        if catching_up {
            if !self.is_under_way() {
                *self = FailbackState { since: now, ..FailbackState::default() };
                self.told.stage = FailbackStage::Admitted;
            }
        } else if in_sync && self.is_under_way() {
            self.told.stage = FailbackStage::InSync;
            self.told.took_us = now.since(self.since).0;
        }
    }

    /// True if everything is to be sent, whatever is here.
    pub fn wants_all(&self, settings: &Settings, catching_up: bool) -> bool {
        settings.failback_full && catching_up && !self.given
    }

    /// It is given files, with so many bytes in all.
    pub fn is_offered_files(&mut self, set_bytes: u64) {
        (self.told.way, self.told.set_bytes) = (Way::Files, set_bytes);
    }

    /// Chooses between `lacking`, the bytes that it lacks of a set, with the log above them, and the log
    /// alone, if that would do too. True if that is the log; and what is said of it.
    pub fn choose(&mut self, lacking: u64, log_alone: Option<u64>, log_above: u64) -> (bool, Notice) {
        let by_files = lacking.saturating_add(log_above);
        let log = log_alone.is_some_and(|log_alone| log_alone <= by_files);
        (self.told.lacking_bytes, self.told.log_alone_bytes) = (by_files, log_alone);
        self.told.way = if log { Way::Log } else { Way::Files };
        let set = self.told.set_bytes;
        let what = match log_alone {
            Some(log_alone) if log => Notice::BackByLog { log_alone, lacking, set, log_above },
            Some(log_alone) => Notice::BackByFiles { log_alone, lacking, set, log_above },
            None => Notice::Other(format!(
                "comes back by files: it lacks {lacking} of {set} bytes, and {log_above} of log above them; the log does \
                 not reach back so far"
            )),
        };
        (log, what)
    }

    /// Bytes of files came in, or of what describes them.
    pub fn count_files(&mut self, bytes: u64) {
        self.told.file_bytes += bytes;
    }

    /// Bytes of rows came in.
    pub fn count_rows(&mut self, bytes: u64) {
        (self.told.way, self.told.stage) = (Way::Rows, self.told.stage.max(FailbackStage::Rows));
        self.told.row_bytes += bytes;
    }

    /// Bytes of the log came in.
    pub fn count_log(&mut self, bytes: u64) {
        if self.is_under_way() {
            self.told.log_bytes += bytes;
            self.told.stage = FailbackStage::Log;
        }
    }

    /// The state is here, and the log goes on above it.
    pub fn given(&mut self, full: bool) {
        self.given = true;
        self.told.full = full;
    }

    /// As it is told. `files`: how far files are that are to be the state. `rows`: they come in now.
    pub fn told(&self, now: Micros, files: Option<FailbackStage>, rows: bool) -> Failback {
        let mut told = self.told;
        if !self.is_under_way() {
            return told;
        }
        if let Some(stage) = files {
            told.stage = stage;
        } else if rows {
            told.stage = FailbackStage::Rows;
        }
        told.took_us = now.since(self.since).0;
        told
    }
}

/// What lies above here is kept for copies that are missing and may come back, unless room is short: so many
/// bytes, of entries that have `mean` bytes each.
pub(crate) fn kept_for_absent(record: &PartitionRecord, end: Lsn, mean: u64, keep_bytes: u64) -> Lsn {
    // Until it has said what it has, a copy that comes back counts as missing.
    let absent = record.in_sync.len() < usize::from(record.policy.factor);
    match keep_bytes > 0 && absent {
        true => Lsn(end.0.saturating_sub(keep_bytes / mean.max(1))),
        false => Lsn::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted() -> FailbackState {
        let mut back = FailbackState::default();
        back.reconsider(Micros(10), true, false);
        back
    }

    #[test]
    fn a_failback_begins_goes_on_and_ends_with_the_configuration() {
        let mut back = admitted();
        back.reconsider(Micros(20), true, false);
        assert_eq!(back.told(Micros(30), None, false).stage, FailbackStage::Admitted);
        assert_eq!(back.told(Micros(30), None, false).took_us, 20, "the same one goes on");
        assert_eq!(
            back.told(Micros(30), Some(FailbackStage::Installing), false).stage,
            FailbackStage::Installing
        );
        assert_eq!(back.told(Micros(30), None, true).stage, FailbackStage::Rows);
        back.count_log(7);
        back.reconsider(Micros(40), false, true);
        let told = back.told(Micros(99), Some(FailbackStage::Files), true);
        assert_eq!((told.stage, told.took_us, told.log_bytes), (FailbackStage::InSync, 30, 7));
        back.count_log(7);
        assert_eq!(back.told(Micros(99), None, false).log_bytes, 7, "it is over");
    }

    #[test]
    fn what_is_less_is_chosen() {
        let mut back = admitted();
        back.is_offered_files(100);
        for (files, alone, above, log) in
            [(50, Some(60), 10, true), (50, Some(61), 10, false), (0, None, 0, false)]
        {
            assert_eq!(back.choose(files, alone, above).0, log, "{files} {alone:?} {above}");
        }
    }

    #[test]
    fn the_whole_state_is_wanted_once() {
        let settings = Settings { failback_full: true, ..Settings::default() };
        let mut back = admitted();
        assert!(back.wants_all(&settings, true) && !back.wants_all(&settings, false));
        back.given(true);
        assert!(!back.wants_all(&settings, true));
    }
}
