//! R6: how a replica that was named primary comes to serve, as far as its members are concerned: who is
//! asked, whose log is the one to go on with, and when it serves.

use crate::context::Ctx;
use crate::log_state::LogState;
use crate::output::Output;
use crate::primary::promotion::{Phase, Question, asked, counts_report};
use crate::primary::{Primary, View};
use crate::sender::log::ask_report;
use crate::sender::progress::Mode;
use types::{Lsn, Member, Position};
use wire::PeerMessage;
use wire::control::Served;
use wire::peer::{Fetch, Fetched, LogReport, LogSummary};

/// What the reports say.
pub(crate) enum Decision {
    /// More are waited for.
    Wait,
    /// This log is complete.
    Mark,
    /// That of this member has more, from behind here on.
    Fetch { from: Member, theirs: LogSummary },
}

/// What a report is good for.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    Nothing,
    /// The reports are to be looked at again.
    Decides,
    /// The member's log was asked for, to go on from where it agrees.
    Aligns,
}

impl Primary {
    /// Whose report would help.
    fn asked(&self, view: &View) -> Vec<Member> {
        asked(view.record, &view.me, view.rules, |member| self.membership.later_incarnation(member))
    }

    /// Asks those for reports who have not given any.
    pub fn ask_reports(&mut self, view: &View, ctx: &mut Ctx) {
        let (now, resend, pass_over) = (ctx.now.mono, ctx.settings.resend, ctx.settings.pass_over);
        let others = self.asked(view);
        for member in self.promotion.unheard(now, resend, pass_over, others) {
            ask_report(view.record, view.me, member, ctx.out);
        }
    }

    /// A member's report.
    pub fn on_report(&mut self, view: &View, report: &LogReport) -> Heard {
        if report.epoch != view.record.epoch {
            return Heard::Nothing;
        }
        match self.promotion.phase() {
            Phase::Reconciling { .. } => {
                let counts = counts_report(view.record, &report.from);
                match self.promotion.report(view.marks.received, report.clone(), counts) {
                    true => Heard::Decides,
                    false => Heard::Nothing,
                }
            }
            Phase::Marking(_) | Phase::Serving(_) => {
                let progress = self.members.get(&report.from);
                match progress.is_some_and(|progress| matches!(progress.mode(), Mode::Probe { .. })) {
                    true => Heard::Aligns,
                    false => Heard::Nothing,
                }
            }
            Phase::Fetching { .. } | Phase::Replaying => Heard::Nothing,
        }
    }

    /// Looks whether the reports suffice, and whose log is the one to go on with (N4).
    pub fn decide(&self, view: &View, ctx: &Ctx, log: &LogState) -> Decision {
        let Some(reports) = self.promotion.reports() else { return Decision::Wait };
        let asked = self.asked(view);
        // Where commits rested on the primary, who is not heard is not waited for: what it has more may be
        // lost anyway.
        let spares = view.record.policy.rests_on().is_primary();
        let silent = |member: &&Member| spares && self.is_silent(view, ctx, **member);
        let question = Question {
            record: view.record,
            own: view.own(),
            spared: asked.iter().filter(silent).copied().collect(),
            asked,
            waited: ctx.now.mono.since(reports.since),
        };
        if !reports.suffice(&question, ctx.settings) {
            return Decision::Wait;
        }
        match reports.best(log.end(), view.rules) {
            None => Decision::Mark,
            Some(best) => Decision::Fetch { from: best.from, theirs: best.log.clone() },
        }
    }

    /// Asks for the next entries that another member has more than this log, which ends at `after`.
    pub fn fetch(&self, view: &View, after: Position, out: &mut Vec<Output>) {
        let Some((from, to)) = self.promotion.fetches() else { return };
        let fetch = Fetch { partition: view.id, epoch: view.record.epoch, from: view.me, after, to: to.lsn };
        out.push(Output::Send { to: from, message: PeerMessage::Fetch(fetch) });
    }

    /// True if this is what was asked for last, behind a log that ends at `end`.
    pub fn takes_fetched(&self, view: &View, end: Position, fetched: &Fetched) -> bool {
        let asked = self.promotion.fetches().is_some_and(|(from, _)| from == fetched.from);
        asked && fetched.epoch == view.record.epoch && fetched.after == end
    }

    /// Serves once the marker is committed and no promise to an older term binds (PR-02, PR-14).
    pub fn serve_if_ready(&mut self, view: &View, ctx: &mut Ctx) {
        let early = !view.rules.markers_commit_first();
        let covered = |marker: Lsn| view.committed >= marker || early;
        let Some(marker) = self.promotion.serve(ctx.now.mono, covered) else { return };
        if let Some(failover) = view.record.failover {
            let served = Served {
                failover,
                partition: view.id,
                reconciled_ms: marker.wall_ms,
                serving_ms: ctx.now.wall_ms,
                kept: marker.kept,
                last_heard: self.promotion.last_heard(),
            };
            ctx.out.push(Output::Served(served));
        }
    }
}
