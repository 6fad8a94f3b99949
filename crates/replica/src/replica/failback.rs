//! How a replica comes back into its set: stages and bytes, for people and for measuring, and the setting by which it ignores what
//! it has. Nothing here decides what is safe.

use super::{Ctx, Replica, Role};
use types::{Micros, PartitionRecord, Remedy};
use wire::control::{Failback, Stage, Way};

/// A way back into the set.
#[derive(Debug, Default)]
pub(super) struct Return {
    told: Failback,
    /// Since when.
    since: Micros,
    /// The whole state came in on this way, however much was here before.
    given: bool,
}

impl<R: Remedy> Replica<R> {
    /// In another configuration: a way back begins, goes on or ends.
    pub(super) fn reconsider_return(&mut self, now: Micros, record: &PartitionRecord) {
        let back = &mut self.way_back;
        let on_its_way = !matches!(back.told.stage, Stage::Idle | Stage::InSync);
        if record.catching_up.contains(&self.me) {
            if !on_its_way {
                *back = Return { since: now, ..Return::default() };
                back.told.stage = Stage::Admitted;
            }
        } else if record.in_sync.contains(&self.me) && on_its_way {
            back.told.stage = Stage::InSync;
            back.told.took_us = now.since(back.since).0;
        }
    }

    /// True if everything is to be sent, whatever is here.
    pub(super) fn wants_all(&self, ctx: &Ctx) -> bool {
        let catching_up = self.record.as_ref().is_some_and(|record| record.catching_up.contains(&self.me));
        ctx.settings.failback_full && catching_up && !self.way_back.given
    }

    /// It is given files, with so many bytes in all.
    pub(super) fn returns_by_files(&mut self, set_bytes: u64) {
        if self.is_offered_state() {
            let told = &mut self.way_back.told;
            (told.way, told.set_bytes) = (Way::Files, set_bytes);
        }
    }

    /// Bytes of files came in, or of what describes them.
    pub(super) fn count_files(&mut self, bytes: u64) {
        if self.is_offered_state() {
            self.way_back.told.file_bytes += bytes;
        }
    }

    /// What goes beside the log to one that follows it is no part of its way back.
    fn is_offered_state(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| !incoming.is_beside())
    }

    /// Bytes of rows came in.
    pub(super) fn count_rows(&mut self, bytes: u64) {
        let told = &mut self.way_back.told;
        (told.way, told.stage) = (Way::Rows, told.stage.max(Stage::Rows));
        told.row_bytes += bytes;
    }

    /// Bytes of the log came in.
    pub(super) fn count_log(&mut self, bytes: u64) {
        let told = &mut self.way_back.told;
        if !matches!(told.stage, Stage::Idle | Stage::InSync) {
            told.log_bytes += bytes;
            told.stage = Stage::Log;
        }
    }

    /// The state is here, and the log goes on above it.
    pub(super) fn given(&mut self, full: bool) {
        self.way_back.given = true;
        self.way_back.told.full = full;
    }

    /// As it is told.
    pub(super) fn failback(&self, now: Micros) -> Failback {
        let mut told = self.way_back.told;
        if matches!(told.stage, Stage::Idle | Stage::InSync) {
            return told;
        }
        if let Some(incoming) = self.incoming.as_ref().filter(|incoming| !incoming.is_beside()) {
            told.stage = incoming.stage();
        } else if matches!(&self.role, Role::Follower(follower) if follower.copy.is_some()) {
            told.stage = Stage::Rows;
        }
        told.took_us = now.since(self.way_back.since).0;
        told
    }
}
