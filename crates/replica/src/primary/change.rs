//! Changes of the set that a primary leads (R1): evictions, joins, hand-overs, policies. One proposal at a
//! time; until its outcome is known both sets count (N3, PR-16).

use crate::context::Ctx;
use crate::output::Output;
use crate::primary::hops::next_hops;
use crate::primary::membership::{HandOver, Undecided};
use crate::primary::{Primary, View};
use std::cmp::Ordering;
use types::config::{Cause, PreviousTerm};
use types::policy::Standby;
use types::{Lsn, Member, Micros, PartitionRecord, Policy};
use wire::control::{Advice, Propose};

/// A catching-up member that was not heard, or did not get on, for so long is given up.
const GIVE_UP: Micros = Micros::from_millis(5_000);
/// The same of one whose log is full, where nothing can be acknowledged without another copy. Meanwhile files
/// may have made room (PR-119).
const GIVE_UP_FULL: Micros = Micros::from_millis(2_000);
/// A joining member that is not level within this time goes back to catching up.
const JOIN_PATIENCE: Micros = Micros::from_millis(500);
/// A hand-over to a cold standby waits so long for its files; then it replays what it lacks.
const PREPARE_TIMEOUT: Micros = Micros::from_millis(30_000);
/// Meanwhile the primary asks for a flush of its own engine again after so long.
const FLUSH_RETRY_DELAY: Micros = Micros::from_millis(1_000);

/// What a primary found to be changed next.
pub(crate) enum Next {
    /// Nothing, or it was proposed.
    Done,
    /// A member joins. From now on an entry that nobody can have published yet is secured only once this
    /// member has it, too.
    Joins,
    /// The second step of a change of policy: an entry commits under both.
    PolicyEntry(Policy),
}

impl Primary {
    /// A controller asks for something. Advice counts in its epoch alone (F16): that of an older one is
    /// ignored, that of one to come waits for its record.
    pub fn on_advice(&mut self, view: &View, epoch: types::Epoch, advice: Advice) {
        match epoch.cmp(&view.record.epoch) {
            Ordering::Less => {}
            Ordering::Equal => self.membership.advise(advice),
            Ordering::Greater => self.membership.advise_early(epoch, advice),
        }
    }

    /// What is to be changed next in the set. What can be proposed at once is.
    pub fn next_change(&mut self, view: &View, ctx: &mut Ctx) -> Next {
        match self.membership.repeat(ctx.now.mono, ctx.settings.resend, view.record) {
            Undecided::Nothing => {}
            Undecided::Waits => return Next::Done,
            Undecided::Again(propose) => {
                ctx.out.push(Output::Propose(propose));
                return Next::Done;
            }
        }
        self.tainted_from_scratch(view, ctx.now.mono);
        let marked = self.promotion.marker().is_some();
        let lossy_promotion = !marked && view.record.lossy;
        // Whoever is silent while the reports do not fence may have what nobody else has (PR-101).
        let reports = self.promotion.reports();
        let must_hear_all =
            reports.is_some_and(|reports| !reports.fence(view.record, &view.own(), view.rules));
        if lossy_promotion || must_hear_all || self.evict(view, ctx) || !marked {
            return Next::Done;
        }
        if self.membership.holds_writes() {
            self.hand_over_step(view, ctx);
            return Next::Done;
        }
        match self.membership.joining_since() {
            Some((member, since)) if self.join(view, ctx, member, since) => Next::Done,
            None if self.begin_join(view, ctx) => Next::Joins,
            _ => self.next_beside_joins(view, ctx),
        }
    }

    /// The same once who joins has begun to.
    pub fn next_beside_joins(&mut self, view: &View, ctx: &mut Ctx) -> Next {
        if let Some(next) = &view.record.next_policy {
            // Where only how few copies are allowed changes, nothing that was committed means something else
            // afterwards, and an entry would wait for the very bound that an operator lowers.
            let bound_only = next.same_demands(&view.record.policy);
            match self.membership.policy_entry(next) {
                None if !bound_only => return Next::PolicyEntry(next.clone()),
                Some(lsn) if !bound_only && view.committed < lsn => {}
                _ => {
                    self.propose(view, ctx, Cause::Policy, |record| {
                        record.policy = next.clone();
                        record.next_policy = None;
                    });
                    return Next::Done;
                }
            }
        }
        if !self.give_up(view, ctx) {
            self.take_advice(view, ctx);
        }
        Next::Done
    }

    fn propose(
        &mut self,
        view: &View,
        ctx: &mut Ctx,
        cause: Cause,
        alter: impl FnOnce(&mut PartitionRecord),
    ) {
        // What was to be given up was given up when this term came to serve, and its failover's report says
        // so: whoever follows it has no doubt about what is acknowledged since (PR-232).
        let serves = self.promotion.serves();
        let alter = |record: &mut PartitionRecord| {
            record.lossy &= !serves;
            alter(record);
        };
        let propose: Propose = self.membership.propose(ctx.now.mono, view.record, cause, alter);
        ctx.out.push(Output::Propose(propose));
    }

    /// How long a member has not answered a heartbeat, although this node listened.
    fn silence(&self, ctx: &Ctx, member: Member) -> Micros {
        let since = self.members.get(&member).map_or(Micros::ZERO, |progress| progress.health.since());
        let listening = ctx.leases.listening_since(ctx.now.mono);
        ctx.now.mono.since(ctx.leases.answered_at(member).max(since).max(listening))
    }

    /// True if a member has not answered for longer than a living one takes.
    pub fn is_silent(&self, view: &View, ctx: &Ctx, member: Member) -> bool {
        member != view.me && self.silence(ctx, member) >= ctx.settings.suspect
    }

    /// Removes members that are gone, changed, tainted, silent or too slow. True if something was proposed.
    fn evict(&mut self, view: &View, ctx: &mut Ctx) -> bool {
        let others: Vec<Member> =
            view.record.in_sync.iter().filter(|member| **member != view.me).copied().collect();
        let changed = |old: &Member| Some((*old, self.membership.later_incarnation(old)?));
        if let Some((old, new)) = others.iter().find_map(changed) {
            let admit = !view.record.holds(&new) && self.membership.may_admit(&new);
            self.propose(view, ctx, Cause::EvictedChanged, |record| {
                record.in_sync.retain(|member| *member != old);
                record.catching_up.retain(|member| member.node != new.node);
                if admit {
                    record.catching_up.push(new);
                }
            });
            return true;
        }
        let tainted =
            |member: &&Member| self.members.get(member).is_some_and(|progress| progress.health.is_tainted());
        if let Some(member) = others.iter().find(tainted).copied() {
            return self.demote(view, ctx, Cause::EvictedChanged, member);
        }
        let silent: Vec<Member> =
            others.iter().filter(|member| self.is_silent(view, ctx, **member)).copied().collect();
        if !silent.is_empty() {
            return self.evict_silent(view, ctx, &silent, others.len() + 1);
        }
        if !view.rules.slow_members_leave() {
            return false;
        }
        // Who stood still itself does not know what was not answered.
        let awake = ctx.now.mono.since(ctx.leases.listening_since(ctx.now.mono));
        let slow = |member: &&Member| {
            (awake >= ctx.settings.evict_slow && self.hangs(ctx.now.mono, member, ctx.settings.evict_slow))
                || (awake >= GIVE_UP && self.disk_hangs(ctx.now.mono, member, GIVE_UP))
        };
        match others.iter().find(slow).copied() {
            Some(member) => self.demote(view, ctx, Cause::EvictedSlow, member),
            None => false,
        }
    }

    /// From the in-sync set back to catching up.
    fn demote(&mut self, view: &View, ctx: &mut Ctx, cause: Cause, member: Member) -> bool {
        self.propose(view, ctx, cause, |record| {
            record.in_sync.retain(|other| *other != member);
            record.catching_up.push(member);
        });
        true
    }

    /// Who was found changed and counts in no set has none that it could leave: it is asked what it has at
    /// once. Otherwise nothing would ever make it anew, and it would neither join nor make room (PR-348).
    fn tainted_from_scratch(&mut self, view: &View, now: Micros) {
        let tainted = self.members.iter_mut().filter(|(_, progress)| progress.health.is_tainted());
        for (member, progress) in tainted {
            if !self.membership.counted(view.record).any(|counted| counted == *member) {
                progress.begin_from_scratch(now);
            }
        }
    }

    /// A member cannot take what comes. True if a set has it, so that it must leave that; who only is about
    /// to join goes back to catching up (PR-348).
    pub fn cannot_go_on(&mut self, view: &View, member: &Member) -> bool {
        let counts = self.membership.has(view.record, member);
        if !counts && self.membership.joining() == Some(*member) {
            self.end_join(member);
        }
        counts
    }

    fn end_join(&mut self, member: &Member) {
        self.membership.end_join();
        if let Some(progress) = self.members.get_mut(member) {
            progress.health.forget_level();
        }
    }

    /// A minority may go at once; a set that would shrink to a minority waits, so that the other side can win
    /// (PR-09).
    fn evict_silent(&mut self, view: &View, ctx: &mut Ctx, silent: &[Member], members: usize) -> bool {
        let left = members - silent.len();
        let shortest = silent.iter().map(|member| self.silence(ctx, *member)).min().unwrap_or(Micros::ZERO);
        // Where backups ask for a seal later, the primary waits longer too.
        let alone = view.record.rests_alone();
        let later = if alone { ctx.settings.suspect_alone } else { Micros::ZERO };
        if 2 * left <= members && shortest < ctx.settings.evict_lone + later {
            return false;
        }
        self.propose(view, ctx, Cause::EvictedSilent, |record| {
            record.in_sync.retain(|member| !silent.contains(member))
        });
        true
    }

    /// Takes a level replica into the set: first commits and `secured` count it, then it is proposed (PR-15,
    /// PR-06). It has what others may have published by then, so whoever leads next does (R7, PR-31). Until
    /// the first entry of a term is committed, all that it follows may have been committed and published in
    /// an older term, whatever is known of that here: who joins has all of it (PR-143). True if it was
    /// proposed.
    fn join(&mut self, view: &View, ctx: &mut Ctx, member: Member, since: Micros) -> bool {
        let reached = view.record.policy.reached(view.record.in_sync.len(), &self.marks_of(view, &member));
        let marker = self.promotion.marker().unwrap_or(Lsn::MAX);
        let covered = reached >= view.committed.max(marker) || !view.rules.joiners_have_what_is_committed();
        let has_published = self.met(view, &member) >= view.secured.max(marker);
        let impatient = ctx.now.mono.since(since) > JOIN_PATIENCE;
        // Who answered and promised nothing was asked for no promise: this node's disk or executor hangs, and
        // its heartbeats name no partition. Somebody is to have what it has, and to take over (PR-344).
        let not_asked = impatient && ctx.leases.answered_at(member) > since;
        let held = ctx.leases.held_until(view.id, self.term, member) > ctx.now.mono
            || not_asked
            || !view.rules.promises_are_waited_for();
        if covered && has_published && held && view.record.catching_up.contains(&member) {
            self.propose(view, ctx, Cause::InSync, |record| {
                record.catching_up.retain(|other| *other != member);
                record.in_sync.push(member);
            });
            return true;
        }
        if impatient {
            self.end_join(&member);
        }
        false
    }

    /// Lets the next level replica join, if there is one. Where nothing can be acknowledged without another
    /// copy, it need not have been level for a while (PR-460).
    fn begin_join(&mut self, view: &View, ctx: &Ctx) -> bool {
        let now = ctx.now.mono;
        let closed = !view.record.policy.allows(view.record.in_sync.len());
        let time = if closed { Micros::ZERO } else { ctx.settings.level };
        let level = |member: &&Member| {
            self.members
                .get(member)
                .is_some_and(|progress| progress.streams() && progress.health.may_join(now, time))
                && !self.disk_hangs(now, member, ctx.settings.evict_slow)
                && !self.is_silent(view, ctx, **member)
        };
        let next = view.record.catching_up.iter().find(level).copied();
        if let Some(member) = next {
            self.membership.begin_join(now, member);
        }
        next.is_some()
    }

    /// Drops catching-up members that are gone, so that others can be taken. Where nothing can be
    /// acknowledged without another copy, that is soon so for one whose log is full (PR-302).
    fn give_up(&mut self, view: &View, ctx: &mut Ctx) -> bool {
        let now = ctx.now.mono;
        let closed = !view.record.policy.allows(view.record.in_sync.len());
        let gone = |member: &&Member| {
            let stuck = self.hangs(now, member, GIVE_UP)
                || self.disk_hangs(now, member, GIVE_UP)
                || self
                    .members
                    .get(*member)
                    .is_some_and(|progress| progress.health.is_stuck() || closed && is_full(progress, now));
            stuck
                || self.membership.later_incarnation(member).is_some()
                || self.silence(ctx, **member) > GIVE_UP
        };
        let Some(old) = view.record.catching_up.iter().find(gone).copied() else { return false };
        let new = self.membership.later_incarnation(&old).filter(|new| self.membership.may_admit(new));
        self.propose(view, ctx, Cause::CatchingUp, |record| {
            record.catching_up.retain(|member| *member != old);
            record.catching_up.extend(new);
        });
        true
    }

    fn take_advice(&mut self, view: &View, ctx: &mut Ctx) {
        let record = view.record;
        match self.membership.take_advice() {
            Some(Advice::Admit(member)) if record.member_on(member.node).is_none() => {
                self.propose(view, ctx, Cause::CatchingUp, |record| record.catching_up.push(member));
            }
            Some(Advice::Admit(_)) => {}
            Some(Advice::Remove(member)) => {
                let last = record.in_sync.len() == 1 && record.in_sync.contains(&member);
                if record.holds(&member) && member != view.me && !last {
                    self.propose(view, ctx, Cause::EvictedChanged, |record| {
                        record.in_sync.retain(|other| *other != member);
                        record.catching_up.retain(|other| *other != member);
                    });
                }
            }
            Some(Advice::HandOver(member)) => {
                let ready = !self.disk_hangs(ctx.now.mono, &member, ctx.settings.level);
                if record.in_sync.contains(&member) && member != view.me && self.promotion.serves() && ready {
                    self.begin_hand_over(view, ctx, member);
                }
            }
            Some(Advice::Policy(text)) => {
                let Ok(policy) = text.read::<Policy>() else { return };
                if record.is_before_hold(&policy) {
                    // A controller that has not heard of the hold does not end it (PR-401).
                    return;
                }
                // A change under way may be given another aim: what is in force stays so until the entry of
                // that one.
                let aim = first_aim(&record.policy, policy);
                if !view.rules.policies_change_in_three_steps() {
                    // The planted bug: the record names the new policy alone, at once.
                    return self.propose(view, ctx, Cause::Policy, |record| record.policy = aim);
                }
                if aim != *record.next_policy.as_ref().unwrap_or(&record.policy) {
                    self.propose(view, ctx, Cause::Policy, |record| record.next_policy = Some(aim));
                }
            }
            None => {}
        }
    }

    /// Begins a hand-over; a cold standby gets files first, so that little is left to be replayed while
    /// nobody serves (PR-44).
    fn begin_hand_over(&mut self, view: &View, ctx: &mut Ctx, to: Member) {
        if matches!(self.membership.hand_over(), HandOver::Preparing { to: already, .. } if *already == to) {
            return;
        }
        let cold = view.record.policy.standby == Standby::Cold;
        let upto = view.published;
        if !cold || self.members.get(&to).is_some_and(|progress| has_executed(progress, upto)) {
            self.membership.hold(ctx.now.mono, to);
            return self.hand_over_step(view, ctx);
        }
        self.membership.prepare(ctx.now.mono, to, upto);
        self.prepare_tick(view, ctx);
    }

    /// Looks whether the standby has its files.
    pub fn prepare_tick(&mut self, view: &View, ctx: &mut Ctx) {
        let now = ctx.now.mono;
        let HandOver::Preparing { to, upto, since, .. } = *self.membership.hand_over() else { return };
        let there = self.members.get(&to).map(|progress| has_executed(progress, upto));
        if there == Some(true) || now.since(since) >= PREPARE_TIMEOUT {
            self.membership.hold(now, to);
            return self.hand_over_step(view, ctx);
        }
        if there.is_none() {
            self.membership.give_up_hand_over();
        } else if self.membership.asks_for_flush(now, view.marks.persisted, FLUSH_RETRY_DELAY) {
            ctx.out.push(Output::Checkpoint { partition: view.id });
        }
    }

    /// Hands over once the target has everything. Nothing is served from the proposal on (PR-02).
    pub fn hand_over_step(&mut self, view: &View, ctx: &mut Ctx) {
        let HandOver::Holding { to, since, .. } = *self.membership.hand_over() else { return };
        if self.membership.is_changing() {
            // One change at a time: an eviction came before it.
            return;
        }
        let (record, end) = (view.record, view.marks.received);
        // It has everything, and as a primary must have it: else its marker would wait for its own disk.
        let marks = self.marks_of(view, &to);
        let level = view.committed == end && marks.received == end && record.policy.reached(0, &marks) == end;
        if !level {
            let late = ctx.now.mono.since(since) > ctx.settings.hand_over;
            if !record.in_sync.contains(&to) || self.is_silent(view, ctx, to) || late {
                self.membership.give_up_hand_over();
            }
            return;
        }
        let me = view.me;
        let propose = self.membership.hand_over_to(ctx.now.mono, record, |record| {
            record.before = Some(PreviousTerm {
                epoch: types::Epoch(record.epoch.0 - 1),
                term: record.term,
                primary: me,
                handed_over: true,
                in_sync: record.in_sync.clone(),
            });
            record.in_sync.retain(|member| *member != to);
            record.in_sync.insert(0, to);
            record.primary = to;
            record.term = types::Term::of(record.epoch);
            record.failover = None;
            record.lossy = false;
        });
        ctx.out.push(Output::Propose(propose));
    }

    /// The target of a hand-over, and the last entry that it was sent, if it is to be asked what it has:
    /// nobody waits for what it acknowledges otherwise, so it would say that later (PR-510).
    pub fn asks_successor(&mut self, view: &View) -> Option<(Member, Lsn)> {
        let HandOver::Holding { to, asked: false, .. } = *self.membership.hand_over() else { return None };
        let (progress, end) = (self.members.get(&to)?, view.marks.received);
        let waited = view.record.rank(&to).is_none_or(|rank| view.record.policy.waits_for(rank));
        let sent = progress.streams() && progress.flight.next() > end;
        let asks = !waited && sent && progress.marks.received < end;
        if asks {
            self.membership.note_asked();
        }
        asks.then_some((to, end))
    }

    fn hangs(&self, now: Micros, member: &Member, patience: Micros) -> bool {
        self.members.get(member).is_some_and(|progress| progress.hangs(now, patience))
    }

    fn disk_hangs(&self, now: Micros, member: &Member, patience: Micros) -> bool {
        self.members.get(member).is_some_and(|progress| progress.health.disk_hangs(now, patience))
    }

    /// In another record of the same term: who is a member, and what was decided.
    pub fn go_on(&mut self, now: Micros, record: &PartitionRecord) {
        assert!(
            record.term == self.term,
            "R1: {} is led in {}, not in {}",
            record.id,
            self.term,
            record.term
        );
        let others: Vec<Member> = next_hops(record, &record.primary).copied().collect();
        let gone = self.members.extract_if(.., |member, _| !others.contains(member));
        self.numbered = gone.map(|(_, gone)| gone.flight.number()).fold(self.numbered, u64::max);
        for member in others {
            let numbered = self.numbered;
            let new = || crate::primary::Progress::new(now, numbered);
            let progress = self.members.entry(member).or_insert_with(new);
            if progress.health.is_tainted() && record.catching_up.contains(&member) {
                progress.begin_from_scratch(now);
            }
            if !record.in_sync.contains(&member) {
                progress.health.restart_level(now);
            }
        }
        self.membership.settle(record);
    }
}

/// True if a member has nothing of this to replay: a cold standby that has files up to there, or one that
/// executes its log all the same, as it was hot until now.
fn has_executed(progress: &crate::primary::Progress, upto: Lsn) -> bool {
    progress.marks.persisted.max(progress.marks.applied) >= upto
}

/// What to change first on the way to a policy: the bound alone, if it and more are to change, since the old
/// bound could keep the new policy's entry from committing for ever. The rest is advised again.
fn first_aim(now: &Policy, wanted: Policy) -> Policy {
    let same_bound = (now.min_in_sync, now.below) == (wanted.min_in_sync, wanted.below);
    if same_bound || wanted.same_demands(now) {
        return wanted;
    }
    Policy { min_in_sync: wanted.min_in_sync, below: wanted.below, ..now.clone() }
}

/// True if a member's log has had no room for as long as that is waited for, and nothing that is under way
/// could make some.
fn is_full(progress: &crate::primary::Progress, now: Micros) -> bool {
    let since = progress.health.no_room.filter(|_| !progress.is_given_state());
    since.is_some_and(|since| now.since(since) >= GIVE_UP_FULL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Watermarks;

    #[test]
    fn pr302_a_full_log_is_waited_for_until_files_could_have_made_room() {
        let mut progress = crate::primary::Progress::new(Micros::ZERO, 0);
        let ms = Micros::from_millis;
        assert!(!is_full(&progress, ms(9_000)), "it takes what it is sent");
        progress.finds_no_room(ms(1_000));
        progress.finds_no_room(ms(2_500));
        assert!(!is_full(&progress, ms(2_999)) && is_full(&progress, ms(3_000)));
        progress.raise(&Watermarks { received: Lsn(1), ..Watermarks::default() });
        assert!(!is_full(&progress, ms(9_000)), "it has got further");
    }
}
