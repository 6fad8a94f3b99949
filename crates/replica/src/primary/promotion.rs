//! How far a term is on its way to serving (R6).

use crate::settings::Settings;
use std::collections::BTreeMap;
use types::config::Cause;
use types::policy::RestsOn;
use types::{Lsn, Member, Micros, PartitionRecord, Position, Rules, Term};
use wire::peer::LogReport;

/// The phases of a term. Every one is entered by one method of [`Promotion`].
///
/// | from | by | to |
/// | --- | --- | --- |
/// | (a record names this replica) | `begin` | reconciling |
/// | reconciling | `fetch_from`: another member has more | fetching |
/// | reconciling | `reconcile_later`: what it has does not go with this log | reconciling |
/// | fetching | `pass_over`: it does not give what it has | reconciling |
/// | reconciling, fetching | `replay`: the log is complete, the engine lacks some of it | replaying |
/// | reconciling, fetching, replaying | `mark`: the first entry of the term goes into the log | marking |
/// | marking | `serve`: it has committed, and old promises have run out | serving |
#[derive(Debug)]
pub(crate) enum Phase {
    /// Reports are coming in.
    Reconciling { since: Micros, asked_at: Micros },
    /// Another member has more; it is being fetched.
    Fetching {
        from: Member,
        to: Position,
        asked_at: Micros,
        /// Requests since the last answer.
        unanswered: u32,
    },
    /// The log is complete, and the engine does not have all of it yet.
    Replaying,
    /// The first entry is in the log; it must commit, and old promises must run out.
    Marking(Marker),
    /// Clients are served.
    Serving(Marker),
}

/// The first entry of a term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marker {
    pub lsn: Lsn,
    /// The last entry of older terms, which it follows.
    pub kept: Position,
    /// When the log was complete, by the wall clock.
    pub wall_ms: u64,
}

/// So many requests for entries go unanswered before a member that is heard is skipped.
const MAX_UNANSWERED_FETCHES: u32 = 20;

/// A term's way from its record to serving.
#[derive(Debug)]
pub(crate) struct Promotion {
    phase: Phase,
    /// The reports that this term's log rests on; none any more once its marker is there.
    reports: BTreeMap<Member, LogReport>,
    /// Members that had more and did not give it, and since when the term goes on without them.
    skipped: BTreeMap<Member, Micros>,
    /// The highest LSN that anybody reported.
    last_heard: Lsn,
    /// Until when this node's own promises to older terms bind it (PR-02).
    wait_until: Micros,
    /// How fresh this replica was when it was named primary, for reads before it serves.
    fresh_at: Micros,
    /// The member that was found last to have more than this replica can get from its log.
    yields_to: Option<Member>,
}

/// Whom a report is asked of: every member of the set, and the old primary where commits rested on it alone
/// (PR-19). No later term names that one if it was started again: it is asked in the incarnation that is
/// connected (PR-471), which `later` gives.
pub(crate) fn asked(
    record: &PartitionRecord,
    me: &Member,
    rules: Rules,
    later: impl Fn(&Member) -> Option<Member>,
) -> Vec<Member> {
    let mut asked: Vec<Member> = record.in_sync.clone();
    if let Some(term) = &record.before
        && record.policy.rests_on().is_primary()
        && rules.who_is_missed_may_be_well()
        && !asked.contains(&term.primary)
    {
        let old = later(&term.primary).unwrap_or(term.primary);
        if !asked.contains(&old) {
            asked.push(old);
        }
    }
    asked.retain(|member| !member.same_store(me));
    asked
}

/// True if this one's report counts: it is recorded, or another life of a recorded store whose disk has what
/// counts. That is so for the old primary where commits rested on it alone, and for every member where
/// commits were on their disks.
pub(crate) fn counts_report(record: &PartitionRecord, from: &Member) -> bool {
    let lives = record.policy.survives_restart();
    let member = record.in_sync.iter().any(|member| member == from || lives && member.same_store(from));
    let alone = record.policy.rests_on().is_primary();
    member || alone && record.before.as_ref().is_some_and(|before| before.primary.same_store(from))
}

impl Promotion {
    /// A term begins: reports are waited for.
    pub fn begin(now: Micros, wait_until: Micros, fresh_at: Micros) -> Promotion {
        Promotion {
            phase: Phase::Reconciling { since: now, asked_at: Micros::ZERO },
            reports: BTreeMap::new(),
            skipped: BTreeMap::new(),
            last_heard: Lsn::ZERO,
            wait_until,
            fresh_at,
            yields_to: None,
        }
    }

    /// PR-01 without its rule: a term that is taken up again as if nothing had been.
    pub fn resume(&mut self) {
        self.phase = Phase::Serving(Marker { lsn: Lsn::ZERO, kept: Position::ZERO, wall_ms: 0 });
    }

    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// True once clients are served.
    pub fn serves(&self) -> bool {
        matches!(self.phase, Phase::Serving(_))
    }

    /// True while the engine follows its log before the first entry of the term.
    pub fn is_replaying(&self) -> bool {
        matches!(self.phase, Phase::Replaying)
    }

    /// The first entry of this term, once it is in the log: from then on the log goes to the members.
    pub fn marker(&self) -> Option<Lsn> {
        match &self.phase {
            Phase::Marking(marker) | Phase::Serving(marker) => Some(marker.lsn),
            _ => None,
        }
    }

    pub fn fresh_at(&self) -> Micros {
        self.fresh_at
    }

    pub fn last_heard(&self) -> Lsn {
        self.last_heard
    }

    /// The member that should lead in the place of this replica, which cannot get what that one has more.
    pub fn yields_to(&self) -> Option<Member> {
        self.yields_to.filter(|_| matches!(self.phase, Phase::Reconciling { .. }))
    }

    /// How many have reported.
    pub fn report_count(&self) -> usize {
        self.reports.len()
    }

    /// Who is to be asked now, of those whose report would help. Nobody but while reports are gathered.
    pub fn unheard(
        &mut self,
        now: Micros,
        resend: Micros,
        pass_over: Micros,
        of: Vec<Member>,
    ) -> Vec<Member> {
        self.skipped.retain(|_, since| now.since(*since) < pass_over);
        let Phase::Reconciling { asked_at, .. } = &mut self.phase else { return Vec::new() };
        if now.since(*asked_at) < resend && *asked_at != Micros::ZERO {
            return Vec::new();
        }
        *asked_at = now;
        let lacks =
            |member: &Member| !self.reports.contains_key(member) && !self.skipped.contains_key(member);
        of.into_iter().filter(lacks).collect()
    }

    /// A member has reported, while reports are gathered. False if that helps nothing: it is skipped, or not
    /// asked. Who is recorded counts, and nobody else: another one may have what no set ever had (N4, PR-99).
    pub fn report(&mut self, own_end: Lsn, report: LogReport, asked: bool) -> bool {
        assert!(matches!(self.phase, Phase::Reconciling { .. }), "R6: only who gathers takes a report");
        self.last_heard = self.last_heard.max(report.log.end.lsn).max(own_end);
        if !asked || self.skipped.contains_key(&report.from) {
            return false;
        }
        self.reports.insert(report.from, report);
        true
    }

    /// What is known of whom, to judge whether it is enough. `None` but while reports are gathered.
    pub fn reports(&self) -> Option<Reports<'_>> {
        let Phase::Reconciling { since, .. } = self.phase else { return None };
        Some(Reports { reports: &self.reports, skipped: &self.skipped, since })
    }

    /// Another member has more: its entries are fetched.
    pub fn fetch_from(&mut self, now: Micros, from: Member, to: Position) {
        assert!(matches!(self.phase, Phase::Reconciling { .. }), "R6: who fetches has gathered");
        self.phase = Phase::Fetching { from, to, asked_at: now, unanswered: 0 };
    }

    /// What another member has more does not go with this log: whoever reports next time decides. It is asked
    /// after a pause. Meanwhile controllers are told that this one should lead (PR-345).
    pub fn reconcile_later(&mut self, now: Micros, from: Member) {
        assert!(matches!(self.phase, Phase::Reconciling { .. }), "R6: who cannot fetch has gathered");
        self.reports.clear();
        self.yields_to = Some(from);
        self.phase = Phase::Reconciling { since: now, asked_at: now };
    }

    /// What this member has more cannot be had, and the term goes on without it: the other reports decide.
    /// Panics if it has not reported.
    pub fn decide_without(&mut self, now: Micros, from: Member) {
        assert!(matches!(self.phase, Phase::Reconciling { .. }), "R6: who decides has gathered");
        let reported = self.reports.remove(&from);
        assert!(reported.is_some(), "R6: {from} has not reported");
        self.skipped.insert(from, now);
    }

    /// Who has more does not give it: the other reports decide anew, and after a pause it is asked again.
    pub fn pass_over(&mut self, now: Micros) {
        let Phase::Fetching { from, .. } = self.phase else { unreachable!("R6: only fetching ends so") };
        self.reports.remove(&from);
        self.skipped.insert(from, now);
        self.phase = Phase::Reconciling { since: now, asked_at: Micros::ZERO };
    }

    /// From whom entries are fetched, and up to where.
    pub fn fetches(&self) -> Option<(Member, Position)> {
        match self.phase {
            Phase::Fetching { from, to, .. } => Some((from, to)),
            _ => None,
        }
    }

    /// Entries have come.
    pub fn fetched(&mut self, now: Micros) {
        if let Phase::Fetching { asked_at, unanswered, .. } = &mut self.phase {
            (*asked_at, *unanswered) = (now, 0);
        }
    }

    /// Whether entries must be asked for again. `gone`: the member that has them is not heard.
    pub fn asks_again(&mut self, now: Micros, resend: Micros, gone: impl Fn(Member) -> bool) -> AsksAgain {
        let Phase::Fetching { from, asked_at, unanswered, .. } = &mut self.phase else {
            return AsksAgain::No;
        };
        if now.since(*asked_at) < resend {
            return AsksAgain::No;
        }
        (*asked_at, *unanswered) = (now, *unanswered + 1);
        // The member that had more is gone, or does not send it.
        match gone(*from) || *unanswered > MAX_UNANSWERED_FETCHES {
            true => AsksAgain::Never,
            false => AsksAgain::Now,
        }
    }

    /// The log of this term is complete; its first entry waits until the engine has all of it.
    pub fn replay(&mut self) {
        assert!(self.marker().is_none(), "R6: what is to be replayed is executed before the marker");
        self.phase = Phase::Replaying;
    }

    /// The first entry of the term goes into the log, behind `kept`. Gives the reports, by which members are
    /// brought to it.
    pub fn mark(&mut self, kept: Position, wall_ms: u64) -> Vec<LogReport> {
        assert!(self.marker().is_none(), "R6: one marker in a term");
        self.last_heard = self.last_heard.max(kept.lsn);
        self.phase = Phase::Marking(Marker { lsn: kept.lsn.next(), kept, wall_ms });
        std::mem::take(&mut self.reports).into_values().collect()
    }

    /// Serves, if the marker is covered and no promise to an older term binds (PR-02, PR-14). Gives the
    /// marker then.
    pub fn serve(&mut self, now: Micros, covered: impl Fn(Lsn) -> bool) -> Option<Marker> {
        let Phase::Marking(marker) = self.phase else { return None };
        if !covered(marker.lsn) || now < self.wait_until {
            return None;
        }
        self.phase = Phase::Serving(marker);
        Some(marker)
    }

    /// What holds of every promotion.
    pub fn validate(&self) -> Result<(), String> {
        if self.marker().is_some() && !self.reports.is_empty() {
            return Err("R6: reports were left when the marker was made".into());
        }
        let Phase::Fetching { from, to, .. } = self.phase else { return Ok(()) };
        match self.reports.get(&from) {
            Some(report) if report.log.end == to => Ok(()),
            _ => Err(format!("R6: {to} is fetched from {from}, which did not report it")),
        }
    }
}

/// Whether entries are asked for again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AsksAgain {
    /// It is too early, or nothing is fetched.
    No,
    Now,
    /// The member is to be passed over.
    Never,
}

/// What decides whether reports suffice.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    /// The newest record of this term.
    pub record: &'a PartitionRecord,
    pub own: Own,
    /// Whose report would help.
    pub asked: Vec<Member>,
    /// Those of them that are not waited for.
    pub spared: Vec<Member>,
    /// For how long reports have been waited for.
    pub waited: Micros,
}

/// What the new primary's own report would say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub me: Member,
    pub end: Position,
    /// The log's end was torn, and what that may have taken is not here again (PR-18).
    pub torn: bool,
}

/// What is known while reports are gathered.
#[derive(Debug)]
pub(crate) struct Reports<'a> {
    reports: &'a BTreeMap<Member, LogReport>,
    skipped: &'a BTreeMap<Member, Micros>,
    pub since: Micros,
}

impl Reports<'_> {
    pub fn has(&self, member: &Member) -> bool {
        self.reports.contains_key(member)
    }

    /// It has reported, or the term goes on without it for now.
    pub fn has_tried(&self, member: &Member) -> bool {
        self.has(member) || self.skipped.contains_key(member)
    }

    /// True if nobody else can have committed more than these reports and this replica's own log show (R6).
    pub fn fence(&self, record: &PartitionRecord, own: &Own, rules: Rules) -> bool {
        if !rules.reports_must_fence() {
            // The planted bug: whatever has come will do.
            return true;
        }
        let reporters = self.reports.values().filter(|report| !report.torn).count() + usize::from(!own.torn);
        record.policy.fenced_by(reporters, self.old_reports(record, own))
    }

    /// True if the log of the term before's primary is known: it has reported, it is this replica, or it had
    /// handed the lead over. It must have led that term, and be whole where the policy rests on disks.
    fn old_reports(&self, record: &PartitionRecord, own: &Own) -> bool {
        // A member whose torn end was cut may lack what it had acknowledged (PR-18), the old primary too
        // where its policy rests on disks (PR-100).
        let whole = |torn: bool| !torn || !record.policy.survives_restart();
        // A hand-over is the old primary's report: it was recorded only when this replica had all there was,
        // and nothing came after it. Whoever was handed the lead need not find the other one alive.
        record.before.as_ref().is_none_or(|before| {
            // A primary whose log has nothing of its term never came to serve: others may have what was
            // acknowledged in the term before, and it waited for their reports itself (PR-103).
            let is_old = |from: &Member, end: Position, torn: bool| {
                from.same_store(&before.primary) && whole(torn) && end.term >= before.term
            };
            before.handed_over
                || self.reports.values().any(|report| is_old(&report.from, report.log.end, report.torn))
                || is_old(&own.me, own.end, own.torn)
        })
    }

    /// Whether these reports are enough to go on with.
    pub fn suffice(&self, of: &Question, settings: &Settings) -> bool {
        let (record, policy) = (of.record, &of.record.policy);
        let all = of.asked.iter().all(|member| self.has(member));
        let tried = of.asked.iter().all(|member| self.has_tried(member));
        let there = |member: &Member| *member == of.own.me || self.has(member) || of.spared.contains(member);
        let members_all = record.in_sync.iter().all(there);
        let members_tried = record.in_sync.iter().all(|member| there(member) || self.has_tried(member));
        let bound = if policy.rests_on().is_primary() { settings.ask_old } else { settings.collect_reports };
        // One that is what it was has forgotten nothing of what was acknowledged by all (PR-256). What an
        // operator has decided stands.
        let rests_on_all =
            policy.rests_on() == RestsOn::All && !policy.survives_restart() && record.cause != Cause::Forced;
        let before = record.before.as_ref().filter(|_| rests_on_all);
        let unforgetful = |member: &&Member| before.is_some_and(|before| before.in_sync.contains(member));
        let kept_tell = record.in_sync.iter().filter(unforgetful).all(there);
        // Records that were made again name a loss that may have been on nodes that are missing. Where logs
        // survive restarts, a member has forgotten nothing, and the primary of the term before has all of
        // that term: with its log the new term goes on without a member that is damaged (PR-441). No
        // other log will do: an operator may have had a copy lead that did not count, and that lacks what
        // others have.
        let members_do = members_tried || policy.survives_restart() && self.old_reports(record, &of.own);
        match (record.lossy, self.fence(record, &of.own, settings.rules)) {
            // Members that forgot, all of them: the greatest of all their logs is the best there is (PR-17).
            (true, _) => kept_tell && members_do && (tried || of.waited >= bound),
            (false, true) => tried || of.waited >= bound,
            // What a skipped member has may have been acknowledged to clients: without a fence its report is
            // waited for.
            (false, false) => members_all && all,
        }
    }

    /// The report of the greatest log (N4), if it has more than `end`.
    pub fn best(&self, end: Position, rules: Rules) -> Option<&LogReport> {
        // PR-12 without its rule: the longer one is more, whoever led when it was written.
        let rank = |at: Position| match rules.newer_terms_are_more() {
            true => at,
            false => Position { term: Term::ZERO, ..at },
        };
        let best = self.reports.values().max_by_key(|report| rank(report.log.end))?;
        (rank(best.log.end) > rank(end)).then_some(best)
    }
}

#[cfg(test)]
mod tests;
