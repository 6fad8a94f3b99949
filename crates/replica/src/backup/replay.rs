//! Engines that follow their log later: a cold standby keeps the log and installs the primary's files, and executes nothing
//! until it is promoted or made hot (design section 7, PR-44).
//!
//! Between the engine's applied position and the log's end lies what is to be executed. It is executed in slices, in log order,
//! from memory or read back from the disk: what was trimmed from memory is durable here and never cut.

use crate::output::{Output, ReadFor};
use crate::primary::change::HandOver;
use crate::replica::state::Unfit;
use crate::replica::{Ctx, Phase, Replica, Role};
use types::policy::Standby;
use types::{LogKind, Lsn, Member, Micros};
use wire::Entry;
use wire::peer::Report;

/// Entries executed in one go, in bytes: a few milliseconds.
const SLICE: usize = 512 << 10;
/// A hand-over to a cold standby waits so long for its files; then it replays what it lacks.
const PREPARES: Micros = Micros::from_millis(30_000);
/// It is looked again for a flush after so long.
const FLUSHES: Micros = Micros::from_millis(1_000);

/// A hand-over to a cold standby that is to have files first.
#[derive(Debug)]
pub(crate) struct Preparing {
    to: Member,
    /// What its files are to hold.
    upto: Lsn,
    since: Micros,
    asked_at: Micros,
}

impl Replica {
    /// True if this replica keeps the log and files only. While the policy changes it does what the warmer one asks for: commits may
    /// wait for what it has applied.
    pub(crate) fn is_cold(&self) -> bool {
        let cold = self.config.record().is_some_and(|record| {
            let mut policies = record.next_policy.iter().chain([&record.policy]);
            policies.all(|policy| policy.standby == Standby::Cold)
        });
        let files = self.engine.capabilities().ships_files && self.config.log_kind() == LogKind::Disk;
        cold && files && matches!(self.role, Role::Follower(_))
    }

    /// True if the log has entries that the engine has not executed.
    pub(crate) fn lags(&self) -> bool {
        self.engine.applied().lsn < self.log.end().lsn && !self.is_damaged() && !self.copying()
    }

    /// True if [`Replica::replay_slice`] has something to do.
    pub(crate) fn has_replay(&self) -> bool {
        let takes_part = matches!(self.role, Role::Leader(_) | Role::Follower(_));
        // What is being set aside is not executed any more.
        let goes_on = self.lags() && takes_part && !self.is_cold() && !self.replay_reads;
        self.asides() || goes_on && self.aside.is_none()
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
        if let Phase::Replaying { reports } = &mut leader.phase {
            let reports = std::mem::take(reports);
            self.mark(ctx, reports);
        }
    }

    /// The log of this term is complete; its first entry waits until the engine has all of it.
    pub(crate) fn replay_before_mark(&mut self, reports: Vec<Report>) {
        if let Some(leader) = self.leader() {
            leader.phase = Phase::Replaying { reports };
        }
    }

    /// Begins a hand-over; a cold standby gets files first, so that little is left to be replayed while nobody serves (PR-44).
    pub(crate) fn prepare_hand_over(&mut self, ctx: &mut Ctx, to: Member) {
        let (now, cold) = (ctx.now.mono, self.hands_to_cold());
        let upto = self.engine.published().lsn;
        let Some(leader) = self.leader() else { return };
        if leader.preparing.as_ref().is_some_and(|preparing| preparing.to == to) {
            return;
        }
        if !cold || leader.members.get(&to).is_some_and(|progress| progress.marks.persisted >= upto) {
            leader.handing = Some(HandOver::begin(to, now));
            return self.hand_over_step(ctx);
        }
        leader.preparing = Some(Preparing { to, upto, since: now, asked_at: Micros::ZERO });
        self.prepare_tick(ctx);
    }

    fn hands_to_cold(&self) -> bool {
        self.config.record().is_some_and(|record| record.policy.standby == Standby::Cold)
    }

    /// Looks whether the standby has its files.
    pub(crate) fn prepare_tick(&mut self, ctx: &mut Ctx) {
        let (now, partition, persisted) = (ctx.now.mono, self.id, self.engine.persisted().lsn);
        let Some(leader) = self.leader() else { return };
        let Some(preparing) = &mut leader.preparing else { return };
        let to = preparing.to;
        let there = leader.members.get(&to).map(|progress| progress.marks.persisted);
        let ready = there.is_some_and(|theirs| theirs >= preparing.upto);
        if ready || now.since(preparing.since) >= PREPARES {
            leader.preparing = None;
            leader.handing = Some(HandOver::begin(to, now));
            return self.hand_over_step(ctx);
        }
        if there.is_none() {
            leader.preparing = None;
        } else if persisted < preparing.upto && now.since(preparing.asked_at) >= FLUSHES {
            preparing.asked_at = now;
            ctx.out.push(Output::Checkpoint { partition });
        }
    }
}
