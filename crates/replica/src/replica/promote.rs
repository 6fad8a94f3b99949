//! R6: how a replica that was named primary comes to serve. Reports are gathered until they fence the policy,
//! what another member has more is fetched, a marker of the new term is committed, and the old promises run
//! out meanwhile (PR-74).

use crate::context::Ctx;
use crate::damage::Fault;
use crate::primary::promote::{Decision, Heard};
use crate::primary::promotion::{AsksAgain, Phase};
use crate::replica::Replica;
use crate::replica::decommission::take_leave;
use crate::unfit::Unfit;
use types::config::Cause;
use wire::Entry;
use wire::entry::Kind;
use wire::peer::{Fetched, LogReport};

impl Replica {
    /// A member's report.
    pub(crate) fn on_report(&mut self, ctx: &mut Ctx, report: LogReport) {
        let Some((primary, view)) = self.leading_mut() else {
            let damaged = self.is_damaged();
            return take_leave(self.identity, (&mut self.config, &mut self.data), (&report, damaged), ctx);
        };
        match primary.on_report(&view, &report) {
            Heard::Nothing => {}
            Heard::Decides => self.reconcile(ctx, false),
            Heard::Aligns => drop(self.send(ctx, report.from, |sender| sender.on_report(&report))),
        }
    }

    /// Goes on as soon as the reports suffice; `asks`: for more until then.
    pub(crate) fn reconcile(&mut self, ctx: &mut Ctx, asks: bool) {
        if let Some((primary, view)) = self.leading_mut().filter(|_| asks) {
            primary.ask_reports(&view, ctx);
        }
        let Some((primary, view)) = self.leading() else { return };
        match primary.decide(&view, ctx, &self.data.log) {
            Decision::Wait => {}
            Decision::Mark => self.mark(ctx),
            Decision::Fetch { from, theirs } => {
                let log = &self.data.log;
                let common = log.history().common(log.end().lsn, &theirs);
                let usable = common.lsn >= theirs.base.lsn && self.data.truncate(common.lsn, ctx.out);
                let end = self.data.log.end();
                let Some((primary, view)) = self.leading_mut() else { return };
                if usable {
                    primary.promotion.fetch_from(ctx.now.mono, from, theirs.end);
                    primary.fetch(&view, end, ctx.out);
                } else if view.record.cause == Cause::Forced {
                    // Its log begins above ours, and an operator has decided that this one leads (PR-118).
                    primary.promotion.decide_without(ctx.now.mono, from);
                    self.reconcile(ctx, false);
                } else {
                    // It must lead itself (PR-345), or an operator must decide. Ask again later.
                    primary.promotion.reconcile_later(ctx.now.mono, from);
                }
            }
        }
    }

    /// What was fetched arrives. Where who has more does not give it, the other reports decide anew, and
    /// after a pause it is asked again.
    pub(crate) fn on_fetched(&mut self, ctx: &mut Ctx, fetched: Fetched) {
        let end = self.data.log.end();
        let Some((primary, view)) = self.leading_mut() else { return };
        let term = primary.term;
        if !primary.takes_fetched(&view, end, &fetched) {
            return;
        }
        primary.promotion.fetched(ctx.now.mono);
        let entries = Entry::all(fetched.entries).unwrap_or_default();
        let mut useful = !entries.is_empty();
        for entry in entries {
            let end = self.data.log.end();
            let made = entry.at().term;
            let follows = entry.lsn() == end.lsn.next() && made >= end.term && made < term;
            if follows {
                self.data.name_base(&entry, ctx.out);
            }
            if entry.header().partition != self.identity.id || !follows || !self.data.log.chains(&entry) {
                useful = false;
                break;
            }
            match self.append(ctx, entry) {
                Ok(()) => {}
                Err(Unfit::Entry(_)) => {
                    useful = false;
                    break;
                }
                // What follows is asked for again.
                Err(Unfit::Later(_)) => return,
                Err(Unfit::Unstaged(reason) | Unfit::Here(reason)) => {
                    return self.fail(ctx, Fault::Engine(reason));
                }
            }
        }
        let end = self.data.log.end();
        let Some((primary, view)) = self.leading_mut() else { return };
        if !useful {
            primary.promotion.pass_over(ctx.now.mono);
            self.reconcile(ctx, true);
        } else if primary.promotion.fetches().is_some_and(|(_, to)| end >= to) {
            self.mark(ctx);
        } else {
            primary.fetch(&view, end, ctx.out);
        }
    }

    /// The log is complete: this term's first entry goes into it, and the others are brought to it (F07).
    pub(crate) fn mark(&mut self, ctx: &mut Ctx) {
        let (lags, kept, wall_ms) = (self.role.lags(&self.data), self.data.log.end(), ctx.now.wall_ms);
        let Some(leader) = self.role.leader_mut() else { return };
        if lags {
            return leader.promotion.replay();
        }
        let term = leader.term;
        assert!(kept.term < term, "R6: the log holds {kept} before the marker of {term}");
        let reports = leader.promotion.mark(kept, wall_ms);
        let header = self.data.next_header(term, Kind::Configuration, wall_ms);
        self.data.append_known(Entry::encode(header, &[]), &[], ctx.out);
        for report in reports {
            self.send(ctx, report.from, |sender| {
                sender.progress.flight.calls.announced(report.code);
                sender.align(&report.log)
            });
        }
        self.ship(ctx);
        self.advance(ctx);
    }

    /// Asks again what was not answered.
    pub(crate) fn promote_tick(&mut self, ctx: &mut Ctx) {
        let (now, settings, end) = (ctx.now.mono, ctx.settings, self.data.log.end());
        let Some((primary, view)) = self.leading_mut() else { return };
        match primary.promotion.phase() {
            Phase::Reconciling { .. } => self.reconcile(ctx, true),
            Phase::Fetching { .. } => {
                // A process that has just begun has heard nobody yet.
                let gone = primary.promotion.fetches();
                let gone = gone.is_some_and(|(from, _)| primary.is_silent(&view, ctx, from));
                match primary.promotion.asks_again(now, settings.resend, |_| gone) {
                    AsksAgain::No => {}
                    AsksAgain::Now => primary.fetch(&view, end, ctx.out),
                    AsksAgain::Never => {
                        primary.promotion.pass_over(now);
                        self.reconcile(ctx, true);
                    }
                }
            }
            Phase::Marking(_) => primary.serve_if_ready(&view, ctx),
            Phase::Replaying | Phase::Serving(_) => {}
        }
    }
}
