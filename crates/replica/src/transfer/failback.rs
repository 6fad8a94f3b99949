//! How a replica comes back into its set: stages and bytes, for people and for measuring, and the setting by which it ignores what
//! it has. Nothing here decides what is safe.

use crate::output::Output;
use crate::replica::{Ctx, Replica};
use types::{Lsn, Micros, PartitionRecord};
use wire::control::{Failback, Stage, Way};

/// A failback into the set.
#[derive(Debug, Default)]
pub(crate) struct FailbackState {
    told: Failback,
    /// Since when.
    since: Micros,
    /// The whole state came in on this way, however much was here before.
    given: bool,
}

impl Replica {
    /// In another configuration: a failback begins, goes on or ends.
    pub(crate) fn reconsider_return(&mut self, now: Micros, record: &PartitionRecord) {
        let back = &mut self.failback;
        let on_its_way = !matches!(back.told.stage, Stage::Idle | Stage::InSync);
        if record.catching_up.contains(&self.me) {
            if !on_its_way {
                *back = FailbackState { since: now, ..FailbackState::default() };
                back.told.stage = Stage::Admitted;
            }
        } else if record.in_sync.contains(&self.me) && on_its_way {
            back.told.stage = Stage::InSync;
            back.told.took_us = now.since(back.since).0;
        }
    }

    /// True if everything is to be sent, whatever is here.
    pub(crate) fn wants_all(&self, ctx: &Ctx) -> bool {
        let catching_up = self.config.is_catching_up(&self.me);
        ctx.settings.failback_full && catching_up && !self.failback.given
    }

    /// It is given files, with so many bytes in all.
    pub(crate) fn returns_by_files(&mut self, set_bytes: u64) {
        if self.is_offered_state() {
            let told = &mut self.failback.told;
            (told.way, told.set_bytes) = (Way::Files, set_bytes);
        }
    }

    /// True if the log alone would bring it level too.
    pub(crate) fn may_choose_log(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.logs().0.is_some())
    }

    /// Compares what is lacking of the files that are offered, and the log above them, with the log alone, if that would do too. What
    /// is cheaper is chosen, and said.
    pub(crate) fn chooses_log(&mut self, ctx: &mut Ctx) -> bool {
        if !self.is_offered_state() {
            return false;
        }
        let Some(incoming) = &self.incoming else { return false };
        let (log_alone, log_above) = incoming.logs();
        let files = incoming.lacking(&self.engine.missing());
        let lacking = files.saturating_add(log_above);
        let log = log_alone.is_some_and(|log_alone| log_alone <= lacking);
        let told = &mut self.failback.told;
        (told.lacking_bytes, told.log_alone_bytes) = (lacking, log_alone);
        told.way = if log { Way::Log } else { Way::Files };
        let set = told.set_bytes;
        let why = match log_alone {
            None => "the log does not reach back so far".to_string(),
            Some(bytes) => format!("the log alone would be {bytes}"),
        };
        let what = match log {
            true => format!(
                "comes back by the log: {} bytes; it lacks {files} of {set} bytes of files, and {log_above} of log above them",
                log_alone.unwrap_or(0)
            ),
            false => format!(
                "comes back by files: it lacks {files} of {set} bytes, and {log_above} of log above them; {why}"
            ),
        };
        ctx.out.push(Output::Notice { partition: self.id, what });
        log
    }

    /// Bytes of files came in, or of what describes them.
    pub(crate) fn count_files(&mut self, bytes: u64) {
        if self.is_offered_state() {
            self.failback.told.file_bytes += bytes;
        }
    }

    /// What goes beside the log to one that follows it is no part of its failback.
    fn is_offered_state(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| !incoming.is_beside())
    }

    /// Bytes of rows came in.
    pub(crate) fn count_rows(&mut self, bytes: u64) {
        let told = &mut self.failback.told;
        (told.way, told.stage) = (Way::Rows, told.stage.max(Stage::Rows));
        told.row_bytes += bytes;
    }

    /// Bytes of the log came in.
    pub(crate) fn count_log(&mut self, bytes: u64) {
        let told = &mut self.failback.told;
        if !matches!(told.stage, Stage::Idle | Stage::InSync) {
            told.log_bytes += bytes;
            told.stage = Stage::Log;
        }
    }

    /// The state is here, and the log goes on above it.
    pub(crate) fn given(&mut self, full: bool) {
        self.failback.given = true;
        self.failback.told.full = full;
    }

    /// What lies above here is kept for copies that are missing and may come back, unless room is short.
    pub(crate) fn kept_for_absent(&self, keep_bytes: u64) -> Lsn {
        let end = self.log.end().lsn;
        // Until it has said what it has, a copy that comes back counts as missing.
        let absent = self
            .config
            .record()
            .is_some_and(|record| record.in_sync.len() < usize::from(record.policy.factor));
        if keep_bytes == 0 || !absent || self.config.no_room() {
            return Lsn::MAX;
        }
        // As many entries as have these bytes, by the mean of those in memory.
        let mean = self.log.bytes_above(Lsn(end.0.saturating_sub(1))).max(1);
        Lsn(end.0.saturating_sub(keep_bytes / mean))
    }

    /// As it is told.
    pub(crate) fn failback(&self, now: Micros) -> Failback {
        let mut told = self.failback.told;
        if matches!(told.stage, Stage::Idle | Stage::InSync) {
            return told;
        }
        if let Some(incoming) = self.incoming.as_ref().filter(|incoming| !incoming.is_beside()) {
            told.stage = incoming.stage();
        } else if self.copying() {
            told.stage = Stage::Rows;
        }
        told.took_us = now.since(self.failback.since).0;
        told
    }
}
