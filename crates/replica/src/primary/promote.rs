//! R6: how a replica that was named primary comes to serve. Reports are gathered until they fence the policy, what another
//! member has more is fetched, a marker of the new term is committed, and the old promises run out meanwhile (PR-74).

use crate::output::Output;
use crate::primary::progress::Mode;
use crate::primary::promotion::{AsksAgain, Own, Phase, Question};
use crate::replica::state::Unfit;
use crate::replica::{Ctx, Replica, Role};
use types::{Member, Position};
use wire::control::Served;
use wire::entry::Kind;
use wire::peer::{Fetch, Fetched, LogSummary, Report};
use wire::{Entry, Header, PeerMessage};

impl Replica {
    /// Asks for reports, and goes on as soon as they suffice.
    pub(crate) fn collect_reports(&mut self, ctx: &mut Ctx) {
        let (now, resend, pass_over) = (ctx.now.mono, ctx.settings.resend, ctx.settings.pass_over);
        let others = self.asked();
        let Some(leader) = self.leader() else { return };
        for member in leader.promotion.unheard(now, resend, pass_over, others) {
            self.ask_report(ctx, member);
        }
        self.decide(ctx);
    }

    /// Whom a report is asked of: every member of the set, and the old primary where commits rested on it alone (PR-19).
    fn asked(&self) -> Vec<Member> {
        let Some(record) = self.config.record() else { return Vec::new() };
        let mut asked: Vec<Member> = record.in_sync.clone();
        if let Some(term) = &record.before
            && record.policy.rests_on().is_primary()
            && !asked.contains(&term.primary)
        {
            asked.push(term.primary);
        }
        asked.retain(|member| !member.same_store(&self.me));
        asked
    }

    /// True if this one's report counts: it is recorded, or another life of a recorded store whose disk has what counts. That is so
    /// for the old primary where commits rested on it alone, and for every member where commits were on their disks.
    fn counts_report(&self, from: &Member) -> bool {
        let Some(record) = self.config.record() else { return false };
        let lives = record.policy.survives_restart();
        let member = record.in_sync.iter().any(|member| member == from || lives && member.same_store(from));
        let alone = record.policy.rests_on().is_primary();
        member || alone && record.before.as_ref().is_some_and(|before| before.primary.same_store(from))
    }

    /// A member's report.
    pub(crate) fn on_report(&mut self, ctx: &mut Ctx, report: Report) {
        let epoch = self.config.record().map(|record| record.epoch);
        let own_end = self.log.end();
        let counts = self.counts_report(&report.from);
        let Some(leader) = self.leader() else { return self.take_leave(ctx, &report) };
        if Some(report.epoch) != epoch {
            return;
        }
        match leader.promotion.phase() {
            Phase::Reconciling { .. } => {
                if leader.promotion.report(own_end.lsn, report, counts) {
                    self.decide(ctx);
                }
            }
            Phase::Marking(_) | Phase::Serving(_) => {
                let probed =
                    leader.members.get(&report.from).is_some_and(|p| matches!(p.mode, Mode::Probe { .. }));
                if probed {
                    self.align(ctx, report.from, &report.log);
                }
            }
            Phase::Fetching { .. } | Phase::Replaying => {}
        }
    }

    /// Looks whether the reports suffice, and whose log is the one to go on with (N4).
    fn decide(&mut self, ctx: &mut Ctx) {
        let Some((primary, view)) = self.leading() else { return };
        let record = view.record;
        let Some(reports) = primary.promotion.reports() else { return };
        let asked = self.asked();
        // Where commits rested on the primary, who is not heard is not waited for: what it has more may be lost anyway.
        let spares = record.policy.rests_on().is_primary();
        let question = Question {
            record,
            own: Own { me: self.me, end: self.log.end(), torn: self.log.is_torn() },
            spared: asked
                .iter()
                .filter(|member| spares && primary.is_silent(&view, ctx, **member))
                .copied()
                .collect(),
            asked,
            waited: ctx.now.mono.since(reports.since),
        };
        if !reports.suffice(&question, ctx.settings) {
            return;
        }
        let best = reports.best(self.log.end()).map(|best| (best.from, best.log.clone()));
        match best {
            None => self.mark(ctx),
            Some((from, theirs)) => self.go_on_with(ctx, from, &theirs),
        }
    }

    /// Another member has more than this replica.
    fn go_on_with(&mut self, ctx: &mut Ctx, from: Member, theirs: &LogSummary) {
        let common = self.log.history().common(self.log.end().lsn, theirs);
        let usable = common.lsn >= theirs.base.lsn && self.truncate(ctx, common.lsn);
        let Some(leader) = self.leader() else { return };
        if usable {
            leader.promotion.fetch_from(ctx.now.mono, from, theirs.end);
            self.fetch(ctx);
        } else {
            // Its log begins above ours: it must lead itself, or an operator must decide. Ask again later.
            leader.promotion.reconcile_later(ctx.now.mono);
        }
    }

    /// Asks for the next entries that another member has more.
    fn fetch(&mut self, ctx: &mut Ctx) {
        let after = self.log.end();
        let (Some(record), Role::Leader(leader)) = (self.config.record(), &self.role) else { return };
        let Some((from, to)) = leader.promotion.fetches() else { return };
        let fetch = Fetch { partition: self.id, epoch: record.epoch, from: self.me, after, to: to.lsn };
        ctx.out.push(Output::Send { to: from, message: PeerMessage::Fetch(fetch) });
    }

    /// Who has more does not give it: the other reports decide anew, and after a pause it is asked again.
    fn pass_over(&mut self, ctx: &mut Ctx) {
        let now = ctx.now.mono;
        let Some(leader) = self.leader() else { return };
        leader.promotion.pass_over(now);
        self.collect_reports(ctx);
    }

    /// What was fetched arrives.
    pub(crate) fn on_fetched(&mut self, ctx: &mut Ctx, fetched: Fetched) {
        let epoch = self.config.record().map(|record| record.epoch);
        let end = self.log.end();
        let Some(leader) = self.leader() else { return };
        let term = leader.term;
        let Some((from, to)) = leader.promotion.fetches() else { return };
        if Some(fetched.epoch) != epoch || fetched.from != from || fetched.after != end {
            return;
        }
        leader.promotion.fetched(ctx.now.mono);
        let entries = Entry::all(fetched.entries).unwrap_or_default();
        if entries.is_empty() {
            return self.pass_over(ctx);
        }
        for entry in entries {
            let end = self.log.end();
            let made = entry.at().term;
            let follows = entry.lsn() == end.lsn.next() && made >= end.term && made < term;
            if follows {
                self.name_base(ctx, &entry);
            }
            if entry.header().partition != self.id || !follows || !self.log.chains(&entry) {
                return self.pass_over(ctx);
            }
            match self.append(ctx, entry) {
                Ok(()) => {}
                Err(Unfit::Entry(_)) => return self.pass_over(ctx),
                // What follows is asked for again.
                Err(Unfit::Later(_)) => return,
                Err(Unfit::Unstaged(reason) | Unfit::Here(reason)) => return self.fail(ctx, reason),
            }
        }
        if self.log.end() >= to {
            self.mark(ctx);
        } else {
            self.fetch(ctx);
        }
    }

    /// The log is complete: this term's first entry goes into it, and the others are brought to it (F07).
    pub(crate) fn mark(&mut self, ctx: &mut Ctx) {
        let (lags, kept, wall_ms) = (self.lags(), self.log.end(), ctx.now.wall_ms);
        let Some(leader) = self.leader() else { return };
        if lags {
            return leader.promotion.replay();
        }
        let term = leader.term;
        assert!(kept.term < term, "R6: the log holds {kept} before the marker of {term}");
        let reports = leader.promotion.mark(kept, wall_ms);
        let mut header = Header::new(Kind::Configuration, self.id, Position::new(term, kept.lsn.next()), 0);
        header.prev_crc = self.log.end_crc();
        header.wall_ms = wall_ms;
        let entry = Entry::encode(header, &[]);
        self.append_known(ctx, entry, &[]);
        for report in reports {
            self.align(ctx, report.from, &report.log);
        }
        self.ship(ctx);
        self.advance(ctx);
    }

    /// Serves once the marker is committed and no promise to an older term binds (PR-02, PR-14).
    pub(crate) fn serve_if_ready(&mut self, ctx: &mut Ctx) {
        let (committed, now, id) = (self.marks.committed(), ctx.now, self.id);
        let early = !self.rules.markers_commit_first();
        let Some(record) = self.config.record() else { return };
        let failover = record.failover;
        let Role::Leader(leader) = &mut self.role else { return };
        let Some(marker) = leader.promotion.serve(now.mono, |marker| committed >= marker || early) else {
            return;
        };
        if let Some(failover) = failover {
            let served = Served {
                failover,
                partition: id,
                reconciled_ms: marker.wall_ms,
                serving_ms: now.wall_ms,
                kept: marker.kept,
                last_heard: leader.promotion.last_heard(),
            };
            ctx.out.push(Output::Served(served));
        }
    }

    /// Asks again what was not answered.
    pub(crate) fn promote_tick(&mut self, ctx: &mut Ctx) {
        let (now, settings) = (ctx.now.mono, ctx.settings);
        let Some(leader) = self.leader() else { return };
        match leader.promotion.phase() {
            Phase::Reconciling { .. } => self.collect_reports(ctx),
            Phase::Fetching { .. } => {
                let leases = &*ctx.leases;
                let gone = |from| now.since(leases.answered_at(from)) > settings.suspect;
                match leader.promotion.asks_again(now, settings.resend, gone) {
                    AsksAgain::No => {}
                    AsksAgain::Now => self.fetch(ctx),
                    AsksAgain::Never => self.pass_over(ctx),
                }
            }
            Phase::Marking(_) => self.serve_if_ready(ctx),
            Phase::Replaying | Phase::Serving(_) => {}
        }
    }
}
