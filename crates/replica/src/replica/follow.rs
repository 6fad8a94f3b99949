//! A replica that follows a primary: appends, and reports and entries for a new one.

use crate::backup::fetch;
use crate::backup::follow::AppendOutcome;
use crate::context::Ctx;
use crate::damage::Fault;
use crate::features::call_maker::CallMaker;
use crate::output::{Notice, Output};
use crate::replica::{Replica, Role};
use types::{Lsn, Position, Term};
use wire::PeerMessage;
use wire::entry::EntryError;
use wire::peer::{Append, AppendRefused, Fetch, LogSummary, Refusal, ReportRequest};

/// The log of a replica that only a copy helps: nothing in common with any, and it does not reach back.
fn unusable() -> LogSummary {
    let first = Position::new(Term::ZERO, Lsn(1));
    LogSummary { base: first, end: first, history: Vec::new() }
}

/// A frame's checksum leaves out the entries, so nobody else has noticed: an operator is told.
fn note_garbled(role: &mut Role, ctx: &mut Ctx, append: &Append, why: &EntryError) {
    let tells = role.backup_mut().is_some_and(|backup| backup.tells_garbled(ctx.now.mono));
    if tells {
        let from = append.from.node.0;
        let what = Notice::Other(format!("what node {from} has sent is garbled, and comes again: {why}"));
        ctx.out.push(Output::Notice { partition: append.partition, what });
    }
}

/// What becomes of an append that this replica does not even look at.
fn refuses_append(replica: &Replica, ctx: &Ctx, append: &Append) -> Option<AppendOutcome> {
    let me = &replica.identity.me;
    let Some(record) = replica.config.record() else {
        return Some(AppendOutcome::Refused(Refusal::NotMine));
    };
    if append.epoch < record.epoch {
        let text = serde_json::to_string(record).expect("a record has only text keys");
        return Some(AppendOutcome::Refused(Refusal::OldEpoch(text)));
    }
    if append.epoch > record.epoch || append.from != record.primary || !record.holds(me) {
        return Some(AppendOutcome::Refused(Refusal::NotMine));
    }
    let catching_up = replica.config.is_catching_up(me);
    let nothing = || Some(AppendOutcome::Refused(Refusal::Mismatch(unusable())));
    match &replica.role {
        Role::Damaged(_) if replica.role.awaits_copy(catching_up, ctx.now.mono) => nothing(),
        Role::Damaged(_) => Some(AppendOutcome::Refused(Refusal::Busy)),
        _ if replica.transfer.failback.wants_all(ctx.settings, catching_up) => nothing(),
        role if role.is_whole_backup() => None,
        _ => Some(AppendOutcome::Ignored),
    }
}

impl Replica {
    /// Entries from a primary.
    pub(crate) fn on_append(&mut self, ctx: &mut Ctx, append: &Append) {
        let outcome = match refuses_append(self, ctx, append) {
            Some(outcome) => outcome,
            None => {
                let cold = self.role.is_cold(&self.config, &self.data);
                let mut maker = CallMaker { calls: &mut self.features.calls, settings: ctx.settings };
                self.data.take_append(append, cold, &mut maker, ctx.out)
            }
        };
        let why = match outcome {
            // This log is the primary's up to `last`.
            AppendOutcome::Yes(last) => {
                self.transfer.failback.count_log(append.entries.len() as u64);
                if let Some(backup) = self.role.backup_mut() {
                    backup.heard(append, last, ctx.settings.resend);
                    backup.take_positions(append, &mut self.data);
                    self.publish(ctx);
                }
                return;
            }
            AppendOutcome::Ignored => return,
            AppendOutcome::Garbled(why) => {
                return note_garbled(&mut self.role, ctx, append, &why);
            }
            AppendOutcome::Broken(reason) => return self.fail(ctx, Fault::Log(reason)),
            AppendOutcome::Differs(reason) => return self.fail(ctx, Fault::Engine(reason)),
            AppendOutcome::Other(common) if self.start_over(ctx, common) => {
                Refusal::Mismatch(self.data.log.summary())
            }
            // The same append comes again.
            AppendOutcome::Other(_) => return,
            AppendOutcome::Refused(why) => why,
        };
        let refused = AppendRefused {
            partition: self.identity.id,
            epoch: append.epoch,
            from: self.identity.me,
            number: append.number,
            why,
        };
        ctx.out.push(Output::Send { to: append.from, message: PeerMessage::AppendRefused(refused) });
    }

    /// An append finds no room for its entries, and its sender is told so elsewhere. What it says beside them
    /// counts where this log is the primary's up to them: a log that does not learn what nobody needs any
    /// more keeps it, and would stay full for ever (PR-115).
    pub(crate) fn hear_positions(&mut self, ctx: &mut Ctx, append: &Append) {
        if refuses_append(self, ctx, append).is_some() || !self.data.follows(append) {
            return;
        }
        if let Some(backup) = self.role.backup_mut() {
            backup.acks.agrees(append.prev.lsn);
            backup.take_positions(append, &mut self.data);
            self.publish(ctx);
        }
    }

    /// A primary of a newer term asks for this replica's log (R6). Whoever knows of the seal has stopped
    /// answering the old primary already: the configuration came before the request (PR-74). One that is
    /// about to go asks for the primary's.
    pub(crate) fn on_report_request(&mut self, ctx: &mut Ctx, request: &ReportRequest) {
        let me = &self.identity.me;
        let Some(record) = self.config.record().filter(|record| record.epoch == request.epoch) else {
            return;
        };
        let mut report = self.data.report(record.epoch);
        let makes_calls = self.role.is_whole_backup() && !self.role.is_cold(&self.config, &self.data);
        report.code = if makes_calls { ctx.settings.programs.code() } else { 0 };
        if record.primary == *me {
            let departing = record.member_on(request.from.node).is_none();
            if !departing || !self.serves() {
                return;
            }
        } else if request.from != record.primary {
            return;
        } else {
            let catching_up = record.catching_up.contains(me);
            let awaits_copy = self.role.awaits_copy(catching_up, ctx.now.mono);
            if self.is_damaged() && !awaits_copy && catching_up {
                // The primary asks as long as it gets no answer.
                return;
            }
            if awaits_copy || self.transfer.failback.wants_all(ctx.settings, catching_up) {
                report.log = unusable();
            }
            report.torn |= self.is_damaged();
            if report.log.end.lsn < report.log.base.lsn {
                // Nobody takes a report of a log that ends before it begins. The old primary is asked after a
                // restart as well, and its disk may have lost what it had (PR-471).
                return;
            }
        }
        ctx.out.push(Output::Send { to: request.from, message: PeerMessage::LogReport(report) });
    }

    /// A new primary fetches what it lacks.
    pub(crate) fn on_fetch(&mut self, ctx: &mut Ctx, fetch: &Fetch) {
        let (Some(record), Some(origin)) = (self.config.record(), self.config.origin(self.identity)) else {
            return;
        };
        if fetch.epoch == record.epoch && fetch.from == record.primary {
            let most = ctx.settings.append_bytes;
            fetch::answer(&self.data, origin, self.is_damaged(), fetch, most, ctx.out);
        }
    }
}
