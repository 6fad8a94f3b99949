//! R6: how a replica that was named primary comes to serve. Reports are gathered until they fence the policy, what another
//! member has more is fetched, a marker of the new term is committed, and the old promises run out meanwhile (PR-74).

use crate::output::Output;
use crate::primary::progress::Mode;
use crate::replica::state::Unfit;
use crate::replica::{Ctx, Phase, Replica, Role};
use std::collections::BTreeMap;
use types::{Lsn, Member, PartitionRecord, Position};
use wire::control::Served;
use wire::entry::Kind;
use wire::peer::{Fetch, Fetched, Report};
use wire::{Entry, Header, PeerMessage};

/// So many requests for entries go unanswered before a member that is heard is skipped.
const FETCHES: u32 = 20;

impl Replica {
    /// Asks for reports, and goes on as soon as they suffice.
    pub(crate) fn collect_reports(&mut self, ctx: &mut Ctx) {
        let (now, settings) = (ctx.now.mono, ctx.settings);
        let others = self.asked();
        let Some(leader) = self.leader() else { return };
        leader.skipped.retain(|_, since| now.since(*since) < settings.pass_over);
        let skipped = leader.skipped.clone();
        let Phase::Reconciling { reports, asked_at, .. } = &mut leader.phase else { return };
        if now.since(*asked_at) >= settings.resend || *asked_at == types::Micros::ZERO {
            *asked_at = now;
            let missing: Vec<Member> = others
                .into_iter()
                .filter(|other| !reports.contains_key(other) && !skipped.contains_key(other))
                .collect();
            for member in missing {
                self.ask_report(ctx, member);
            }
        }
        self.decide(ctx);
    }

    /// Whom a report is asked of: every member of the set, and the old primary where commits rested on it alone (PR-19).
    fn asked(&self) -> Vec<Member> {
        let Some(record) = self.config.record() else { return Vec::new() };
        let mut asked: Vec<Member> = record.in_sync.clone();
        if let Some(term) = &record.before
            && record.policy.rests_on_primary()
            && !asked.contains(&term.primary)
        {
            asked.push(term.primary);
        }
        asked.retain(|member| !member.same_store(&self.me));
        asked
    }

    /// A member's report.
    pub(crate) fn on_report(&mut self, ctx: &mut Ctx, report: Report) {
        let epoch = self.config.record().map(|record| record.epoch);
        let own_end = self.log.end();
        let asked = self.asked();
        let Some(leader) = self.leader() else { return self.take_leave(ctx, &report) };
        if Some(report.epoch) != epoch {
            return;
        }
        match &mut leader.phase {
            Phase::Reconciling { reports, .. } => {
                leader.last_heard = leader.last_heard.max(report.log.end.lsn).max(own_end.lsn);
                // Who is recorded counts, and nobody else: another one may have what no set ever had (N4, PR-99).
                if leader.skipped.contains_key(&report.from) || !asked.contains(&report.from) {
                    return;
                }
                reports.insert(report.from, report);
                self.decide(ctx);
            }
            Phase::Marking | Phase::Serving => {
                let probed =
                    leader.members.get(&report.from).is_some_and(|p| matches!(p.mode, Mode::Probe { .. }));
                if probed {
                    self.align(ctx, report.from, &report.log);
                }
            }
            Phase::Fetching { .. } | Phase::Replaying { .. } => {}
        }
    }

    /// Looks whether the reports suffice, and whose log is the one to go on with (N4).
    fn decide(&mut self, ctx: &mut Ctx) {
        let Some(record) = self.config.record().cloned() else { return };
        let asked = self.asked();
        let (now, settings, me) = (ctx.now.mono, ctx.settings, self.me);
        // Where commits rested on the primary, who is not heard is not waited for: what it has more may be lost anyway.
        let spared: Vec<Member> = match record.policy.rests_on_primary() {
            true => asked.iter().filter(|member| self.is_silent(ctx, **member)).copied().collect(),
            false => Vec::new(),
        };
        let Role::Leader(leader) = &self.role else { return };
        let skipped = leader.skipped.clone();
        let Phase::Reconciling { reports, since, .. } = &leader.phase else { return };
        let all = asked.iter().all(|member| reports.contains_key(member));
        let tried = asked.iter().all(|member| reports.contains_key(member) || skipped.contains_key(member));
        let there =
            |member: &Member| *member == me || reports.contains_key(member) || spared.contains(member);
        let members_all = record.in_sync.iter().all(there);
        let members_tried = record.in_sync.iter().all(|member| there(member) || skipped.contains_key(member));
        let waited = now.since(*since);
        let bound =
            if record.policy.rests_on_primary() { settings.ask_old } else { settings.collect_reports };
        let fenced = self.is_fenced(&record, reports);
        let enough = match (record.lossy, fenced) {
            // Members that forgot, all of them: the greatest of all their logs is the best there is (PR-17).
            (true, _) => members_tried && (tried || waited >= bound),
            (false, true) => tried || waited >= bound,
            // Who was skipped may have been acknowledged what it has: without a fence it is waited for.
            (false, false) => members_all && all,
        };
        if !enough {
            return;
        }
        let best = self.best_report();
        self.reconcile(ctx, best);
    }

    /// True if nobody else can have committed more than these reports and this replica's own log show (R6).
    fn is_fenced(&self, record: &PartitionRecord, reports: &BTreeMap<Member, Report>) -> bool {
        // A member whose torn end was cut may lack what it had acknowledged (PR-18), the old primary too where its policy rests
        // on disks (PR-100).
        let whole = |torn: bool| !torn || !record.policy.survives_restart();
        // A hand-over is the old primary's report: it was recorded only when this replica had all there was, and nothing
        // came after it. Whoever was handed the lead need not find the other one alive.
        let old_reports = record.before.as_ref().is_none_or(|before| {
            let old = before.primary;
            before.handed_over
                || reports.values().any(|report| report.from.same_store(&old) && whole(report.torn))
                || (old.same_store(&self.me) && whole(self.log.is_torn()))
        });
        let reporters =
            reports.values().filter(|report| !report.torn).count() + usize::from(!self.log.is_torn());
        record.policy.fenced_by(reporters, old_reports)
    }

    /// True while reports are gathered that do not fence yet: whoever is silent may have what nobody else has (PR-101).
    pub(crate) fn must_hear_all(&self) -> bool {
        let (Some(record), Role::Leader(leader)) = (self.config.record(), &self.role) else { return false };
        match &leader.phase {
            Phase::Reconciling { reports, .. } => !self.is_fenced(record, reports),
            _ => false,
        }
    }

    /// The member with the greatest (epoch, LSN), if that is more than this replica has.
    fn best_report(&self) -> Option<(Member, Position)> {
        let Role::Leader(leader) = &self.role else { return None };
        let Phase::Reconciling { reports, .. } = &leader.phase else { return None };
        let best = reports.values().max_by_key(|report| report.log.end)?;
        (best.log.end > self.log.end()).then_some((best.from, best.log.end))
    }

    fn reconcile(&mut self, ctx: &mut Ctx, best: Option<(Member, Position)>) {
        let Some(leader) = self.leader() else { return };
        let phase = std::mem::replace(&mut leader.phase, Phase::Marking);
        let Phase::Reconciling { reports, .. } = phase else { return };
        match best {
            None => self.mark(ctx, reports.into_values().collect()),
            Some((from, to)) => {
                let theirs = reports[&from].log.clone();
                let common = self.log.history().common(self.log.end().lsn, &theirs);
                let usable = common.lsn >= theirs.base.lsn && self.truncate(ctx, common.lsn);
                let Some(leader) = self.leader() else { return };
                if usable {
                    leader.phase =
                        Phase::Fetching { from, to, asked_at: ctx.now.mono, unanswered: 0, reports };
                    self.fetch(ctx);
                } else {
                    // Its log begins above ours: it must lead itself, or an operator must decide. Ask again later.
                    let since = ctx.now.mono;
                    leader.phase = Phase::Reconciling { reports: Default::default(), since, asked_at: since };
                }
            }
        }
    }

    /// Asks for the next entries that another member has more.
    fn fetch(&mut self, ctx: &mut Ctx) {
        let after = self.log.end();
        let (Some(record), Role::Leader(leader)) = (self.config.record(), &self.role) else { return };
        let Phase::Fetching { from, to, .. } = &leader.phase else { return };
        let fetch = Fetch { partition: self.id, epoch: record.epoch, from: self.me, after, to: to.lsn };
        ctx.out.push(Output::Send { to: *from, message: PeerMessage::Fetch(fetch) });
    }

    /// Who has more does not give it: the other reports decide anew, and after a pause it is asked again.
    fn pass_over(&mut self, ctx: &mut Ctx, member: Member) {
        let now = ctx.now.mono;
        let Some(leader) = self.leader() else { return };
        let phase = std::mem::replace(&mut leader.phase, Phase::Marking);
        let Phase::Fetching { mut reports, .. } = phase else { unreachable!("R6: only fetching ends so") };
        reports.remove(&member);
        leader.skipped.insert(member, now);
        leader.phase = Phase::Reconciling { reports, since: now, asked_at: types::Micros::ZERO };
        self.collect_reports(ctx);
    }

    /// What was fetched arrives.
    pub(crate) fn on_fetched(&mut self, ctx: &mut Ctx, fetched: Fetched) {
        let epoch = self.config.record().map(|record| record.epoch);
        let end = self.log.end();
        let Some(leader) = self.leader() else { return };
        let term = leader.term;
        let Phase::Fetching { from, to, asked_at, unanswered, .. } = &mut leader.phase else { return };
        if Some(fetched.epoch) != epoch || fetched.from != *from || fetched.after != end {
            return;
        }
        (*asked_at, *unanswered) = (ctx.now.mono, 0);
        let (from, to) = (*from, *to);
        let entries = Entry::all(fetched.entries).unwrap_or_default();
        if entries.is_empty() {
            return self.pass_over(ctx, from);
        }
        for entry in entries {
            let end = self.log.end();
            let made = entry.at().term;
            let follows = entry.lsn() == end.lsn.next() && made >= end.term && made < term;
            if follows {
                self.name_base(ctx, &entry);
            }
            if entry.header().partition != self.id || !follows || !self.log.chains(&entry) {
                return self.pass_over(ctx, from);
            }
            match self.append(ctx, entry) {
                Ok(()) => {}
                Err(Unfit::Entry(_)) => return self.pass_over(ctx, from),
                // What follows is asked for again.
                Err(Unfit::Later(_)) => return,
                Err(Unfit::Unstaged(reason) | Unfit::Here(reason)) => return self.fail(ctx, reason),
            }
        }
        if self.log.end() >= to {
            let Some(leader) = self.leader() else { return };
            let phase = std::mem::replace(&mut leader.phase, Phase::Marking);
            let Phase::Fetching { reports, .. } = phase else { return };
            self.mark(ctx, reports.into_values().collect());
        } else {
            self.fetch(ctx);
        }
    }

    /// The log is complete: this term's first entry goes into it, and the others are brought to it (F07).
    pub(crate) fn mark(&mut self, ctx: &mut Ctx, reports: Vec<Report>) {
        if self.lags() {
            return self.replay_before_mark(reports);
        }
        let kept = self.log.end();
        let wall = ctx.now.wall_ms;
        let Some(leader) = self.leader() else { return };
        let term = leader.term;
        leader.kept = kept;
        leader.last_heard = leader.last_heard.max(kept.lsn);
        leader.reconciled_ms = wall;
        leader.phase = Phase::Marking;
        assert!(kept.term < term, "R6: the log holds {kept} before the marker of {term}");
        let mut header = Header::new(Kind::Configuration, self.id, Position::new(term, kept.lsn.next()), 0);
        header.prev_crc = self.log.end_crc();
        header.wall_ms = wall;
        let entry = Entry::encode(header, &[]);
        self.append_known(ctx, entry, &[]);
        let leader = self.leader().expect("a leader");
        leader.marker = Some(kept.lsn.next());
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
        let marked = leader.marker.is_some_and(|marker| committed >= marker || early);
        if !matches!(leader.phase, Phase::Marking) || !marked || now.mono < leader.wait_until {
            return;
        }
        leader.phase = Phase::Serving;
        if let Some(failover) = failover {
            let served = Served {
                failover,
                partition: id,
                reconciled_ms: leader.reconciled_ms,
                serving_ms: now.wall_ms,
                kept: leader.kept,
                last_heard: leader.last_heard.max(Lsn::ZERO),
            };
            ctx.out.push(Output::Served(served));
        }
    }

    /// Asks again what was not answered.
    pub(crate) fn promote_tick(&mut self, ctx: &mut Ctx) {
        let now = ctx.now.mono;
        let Some(leader) = self.leader() else { return };
        match &mut leader.phase {
            Phase::Reconciling { .. } => self.collect_reports(ctx),
            Phase::Fetching { asked_at, from, unanswered, .. }
                if now.since(*asked_at) >= ctx.settings.resend =>
            {
                let from = *from;
                (*asked_at, *unanswered) = (now, *unanswered + 1);
                // The one that had more is gone, or does not say it.
                let gone = now.since(ctx.leases.answered_at(from)) > ctx.settings.suspect;
                match gone || *unanswered > FETCHES {
                    true => self.pass_over(ctx, from),
                    false => self.fetch(ctx),
                }
            }
            Phase::Marking => self.serve_if_ready(ctx),
            _ => {}
        }
    }
}
