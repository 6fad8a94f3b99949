//! Engines that follow their log later: a cold standby keeps the log and installs the primary's files, and executes nothing
//! until it is promoted or made hot (design section 7, PR-44).
//!
//! Between the engine's applied position and the log's end lies what is to be executed. It is executed in slices, in log order,
//! from memory or read back from the disk: what was trimmed from memory is durable here and never cut.

use crate::output::{Output, ReadFor};
use crate::primary::promotion::Phase;
use crate::replica::state::Unfit;
use crate::replica::{Ctx, Replica, Role};
use types::policy::Standby;
use types::{LogKind, Lsn};
use wire::Entry;

/// Entries executed in one go, in bytes: a few milliseconds.
const SLICE: usize = 512 << 10;
impl Replica {
    /// True if this replica keeps the log and files only. While the policy changes it does what the warmer one asks for: commits may
    /// wait for what it has applied.
    pub(crate) fn is_cold(&self) -> bool {
        let cold = self.config.record().is_some_and(|record| {
            let mut policies = record.next_policy.iter().chain([&record.policy]);
            policies.all(|policy| policy.standby == Standby::Cold)
        });
        let files = self.engine.ships_files() && self.config.log_kind() == LogKind::Disk;
        cold && files && self.role.backup().is_some()
    }

    /// True if the log has entries that the engine has not executed.
    pub(crate) fn lags(&self) -> bool {
        self.engine.applied().lsn < self.log.end().lsn && !self.is_damaged() && !self.copying()
    }

    /// True if [`Replica::replay_slice`] has something to do.
    pub(crate) fn has_replay(&self) -> bool {
        let takes_part = matches!(self.role, Role::Leader(_) | Role::Backup(_));
        // What is being set aside is not executed any more.
        let goes_on = self.lags() && takes_part && !self.is_cold() && !self.replay_reads;
        self.asides() || goes_on && self.log.aside().is_none()
    }

    /// Executes the next slice of the log.
    pub(crate) fn replay_slice(&mut self, ctx: &mut Ctx) {
        if self.asides() {
            return self.aside_rows(ctx);
        }
        let next = self.engine.applied().lsn.next();
        if next > self.log.tail().base().lsn {
            let entries: Vec<Entry> = self.log.tail().run(next, SLICE).cloned().collect();
            return self.replay_entries(ctx, &entries);
        }
        self.replay_reads = true;
        let (partition, purpose) = (self.id, ReadFor::Replay { from: next });
        ctx.out.push(Output::ReadLog { partition, from: next, max_bytes: SLICE, purpose });
    }

    /// A slice was read back.
    pub(crate) fn replay_read(&mut self, ctx: &mut Ctx, from: Lsn, entries: Result<Vec<Entry>, String>) {
        self.replay_reads = false;
        let (next, base) = (self.engine.applied().lsn.next(), self.log.tail().base().lsn);
        // Files may have been installed meanwhile, or another log begun: then it is asked again.
        if !self.lags() || next != from || next > base {
            return;
        }
        match entries {
            // What is in memory too may have been cut and written anew since it was read.
            Ok(mut entries) if !entries.is_empty() => {
                entries.retain(|entry| entry.lsn() <= base);
                self.replay_entries(ctx, &entries);
            }
            Ok(_) => self.fail_with_log(ctx, format!("R10: the log has nothing from {next} on")),
            Err(reason) => {
                self.fail_with_log(ctx, format!("R10: the log cannot be read from {next} on: {reason}"))
            }
        }
    }

    fn replay_entries(&mut self, ctx: &mut Ctx, entries: &[Entry]) {
        for entry in entries {
            if entry.lsn() != self.engine.applied().lsn.next() {
                let applied = self.engine.applied();
                return self
                    .fail_with_log(ctx, format!("R3: {} does not follow {applied} in the log", entry.at()));
            }
            match self.execute(entry) {
                Ok(()) => {}
                // The next slice begins with it.
                Err(Unfit::Later(_)) => return self.publish(ctx),
                Err(unfit) => return self.fail(ctx, unfit.reason()),
            }
        }
        self.publish(ctx);
        if !self.lags() {
            self.replayed_all(ctx);
        }
    }

    /// Everything is executed: a term that waited for it goes on.
    fn replayed_all(&mut self, ctx: &mut Ctx) {
        let Some(leader) = self.leader() else { return };
        if matches!(leader.promotion.phase(), Phase::Replaying) {
            self.mark(ctx);
        }
    }
}
