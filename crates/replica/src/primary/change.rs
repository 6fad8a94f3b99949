//! Changes of the set that a primary leads (R1): evictions, joins, hand-overs, policies. One proposal at a time; until its
//! outcome is known both sets count (N3, PR-16).

use crate::output::Output;
use crate::primary::progress::Mode;
use crate::replica::{Ctx, Leader, Phase, Replica, Role};
use types::config::{Cause, PreviousTerm};
use types::{Lsn, Member, Micros, PartitionRecord, Policy, ProposalId};
use wire::Entry;
use wire::control::{Advice, Propose, Proposed, RecordText};
use wire::entry::Kind;

/// A proposal on its way.
#[derive(Debug)]
pub(crate) struct Change {
    pub record: PartitionRecord,
    /// Refused before it, without a new epoch: an earlier copy of these may still win, so they count too.
    pub withdrawn: Vec<PartitionRecord>,
    sent_at: Micros,
    refused_at: Option<Micros>,
}

impl Change {
    /// Every record that may yet be the next one.
    pub fn possible(&self) -> impl Iterator<Item = &PartitionRecord> {
        self.withdrawn.iter().chain([&self.record])
    }
}

/// A hand-over under way: writes wait until the target has everything.
#[derive(Debug)]
pub(crate) struct HandOver {
    to: Member,
    since: Micros,
    proposed: bool,
}

impl HandOver {
    /// To this member, from now on.
    pub(crate) fn begin(to: Member, since: Micros) -> HandOver {
        HandOver { to, since, proposed: false }
    }
}

/// A catching-up member that was not heard, or did not get on, for so long is given up.
const GIVE_UP: Micros = Micros::from_millis(5_000);
/// A joining member that is not level within this time goes back to catching up.
const JOIN_PATIENCE: Micros = Micros::from_millis(500);

impl Replica {
    /// A controller asks for something. Advice that was thought of in another epoch is ignored (F16).
    pub(crate) fn on_advice(&mut self, epoch: types::Epoch, advice: Advice) {
        let current = self.config.record().is_some_and(|record| record.epoch == epoch);
        if let (true, Some(leader)) = (current, self.leader())
            && leader.advice.len() < 16
            && !leader.advice.contains(&advice)
        {
            leader.advice.push_back(advice);
        }
    }

    /// What became of a proposal.
    pub(crate) fn on_proposed(&mut self, ctx: &mut Ctx, proposed: &Proposed) {
        let Ok(record) = proposed.record.read::<PartitionRecord>() else { return };
        let known = self.config.record().map(|known| known.epoch);
        if Some(record.epoch) > known {
            return self.configure(ctx, record);
        }
        let now = ctx.now.mono;
        if let Some(change) = self.leader().and_then(|leader| leader.change.as_mut())
            && change.record.proposal == proposed.proposal
            && !proposed.accepted
        {
            change.refused_at.get_or_insert(now);
        }
    }

    /// A new record of the same term came: the proposal is decided, one way or the other.
    pub(crate) fn settle_change(&mut self, ctx: &mut Ctx, record: &PartitionRecord) {
        let now = ctx.now.mono;
        let me = self.me;
        let Some(leader) = self.leader() else { return };
        leader.change = None;
        leader.handing = None;
        if leader.joining.is_some_and(|(member, _)| !record.catching_up.contains(&member)) {
            leader.joining = None;
        }
        if record.next_policy.is_none() {
            leader.policy_entry = None;
        }
        for (member, progress) in &mut leader.members {
            if *member != me && !record.in_sync.contains(member) {
                progress.level_since = progress.level_since.map(|_| now);
            }
        }
    }

    /// Decides what should change next, and proposes it.
    pub(crate) fn reconsider(&mut self, ctx: &mut Ctx) {
        if self.repeat_proposal(ctx) {
            return;
        }
        let Role::Leader(leader) = &self.role else { return };
        let marked = matches!(leader.phase, Phase::Marking | Phase::Serving);
        let lossy_reconcile = !marked && self.config.record().is_some_and(|record| record.lossy);
        if lossy_reconcile {
            return;
        }
        if self.must_hear_all() || self.evict(ctx) || !marked {
            return;
        }
        let Role::Leader(leader) = &self.role else { return };
        if leader.handing.is_some() {
            return self.hand_over_step(ctx);
        }
        if self.join_step(ctx) || self.policy_step(ctx) || self.give_up(ctx) {
            return;
        }
        self.take_advice(ctx);
    }

    /// Sends an undecided proposal again. True if there is one.
    fn repeat_proposal(&mut self, ctx: &mut Ctx) -> bool {
        let (now, resend) = (ctx.now.mono, ctx.settings.resend);
        let Some(current) = self.config.record().cloned() else { return false };
        let id = self.proposal_id(&current);
        let Some(leader) = self.leader() else { return false };
        let Some(change) = &mut leader.change else { return false };
        if now.since(change.sent_at) < resend {
            return true;
        }
        if change.refused_at.is_some_and(|at| now.since(at) >= Micros(resend.0 * 4)) {
            // Only another record can show that the refused one did not win: the same set under the next epoch.
            leader.next_proposal += 1;
            let mut again = current;
            again.epoch = again.epoch.next();
            again.proposal = id;
            again.cause = Cause::InSync;
            let refused = std::mem::replace(&mut change.record, again);
            change.withdrawn.push(refused);
            change.refused_at = None;
        }
        change.sent_at = now;
        let expected = types::Epoch(change.record.epoch.0 - 1);
        ctx.out.push(Output::Propose(Propose { expected, record: RecordText::new(&change.record) }));
        true
    }

    /// A number that no other proposal for this partition has.
    fn proposal_id(&self, current: &PartitionRecord) -> ProposalId {
        let Role::Leader(leader) = &self.role else { return ProposalId(0) };
        let term = (u64::from(self.me.node.0) << 48) ^ (self.me.incarnation.0 << 24) ^ (current.epoch.0 << 8);
        ProposalId(term ^ (leader.next_proposal + 1))
    }

    fn propose(&mut self, ctx: &mut Ctx, cause: Cause, alter: impl FnOnce(&mut PartitionRecord)) {
        let Some(current) = self.config.record().cloned() else { return };
        let id = self.proposal_id(&current);
        let Some(leader) = self.leader() else { return };
        assert!(leader.change.is_none(), "N3: one change at a time");
        leader.next_proposal += 1;
        let mut record = current.clone();
        record.epoch = current.epoch.next();
        record.proposal = id;
        record.cause = cause;
        alter(&mut record);
        let propose = Propose { expected: current.epoch, record: RecordText::new(&record) };
        ctx.out.push(Output::Propose(propose));
        leader.change =
            Some(Change { record, withdrawn: Vec::new(), sent_at: ctx.now.mono, refused_at: None });
    }

    /// How long a member has not answered a heartbeat, although this node listened.
    fn silence(&self, ctx: &Ctx, member: Member) -> Micros {
        let since = match &self.role {
            Role::Leader(leader) => {
                leader.members.get(&member).map_or(Micros::ZERO, |progress| progress.since)
            }
            _ => Micros::ZERO,
        };
        let listening = ctx.leases.listening_since(ctx.now.mono);
        ctx.now.mono.since(ctx.leases.answered_at(member).max(since).max(listening))
    }

    pub(crate) fn is_silent(&self, ctx: &Ctx, member: Member) -> bool {
        member != self.me && self.silence(ctx, member) >= ctx.settings.suspect
    }

    /// Removes members that are gone, changed, tainted, silent or too slow. True if something was proposed.
    fn evict(&mut self, ctx: &mut Ctx) -> bool {
        let (Some(record), Role::Leader(leader)) = (self.config.record(), &self.role) else { return false };
        let others: Vec<Member> =
            record.in_sync.iter().filter(|member| **member != self.me).copied().collect();
        let changed = others.iter().find(|member| {
            leader.incarnations.get(&member.node).is_some_and(|incarnation| {
                incarnation != *member && incarnation.incarnation > member.incarnation
            })
        });
        if let Some(old) = changed.copied() {
            let new = leader.incarnations[&old.node];
            let admit = !record.holds(&new);
            self.propose(ctx, Cause::EvictedChanged, |record| {
                record.in_sync.retain(|member| *member != old);
                record.catching_up.retain(|member| member.node != new.node);
                if admit {
                    record.catching_up.push(new);
                }
            });
            return true;
        }
        let tainted = |member: &&Member| leader.members.get(member).is_some_and(|progress| progress.tainted);
        if let Some(member) = others.iter().find(tainted).copied() {
            return self.demote(ctx, Cause::EvictedChanged, member);
        }
        let silent: Vec<Member> =
            others.iter().filter(|member| self.is_silent(ctx, **member)).copied().collect();
        if !silent.is_empty() {
            return self.evict_silent(ctx, &silent, others.len() + 1);
        }
        if !self.rules.slow_members_leave() {
            return false;
        }
        // Who stood still itself does not know what was not answered.
        let awake = ctx.now.mono.since(ctx.leases.listening_since(ctx.now.mono));
        let slow = |member: &&Member| {
            (awake >= ctx.settings.evict_slow && leader.hangs(ctx.now.mono, member, ctx.settings.evict_slow))
                || (awake >= GIVE_UP && leader.disk_hangs(ctx.now.mono, member, GIVE_UP))
        };
        match others.iter().find(slow).copied() {
            Some(member) => self.demote(ctx, Cause::EvictedSlow, member),
            None => false,
        }
    }

    /// From the in-sync set back to catching up.
    fn demote(&mut self, ctx: &mut Ctx, cause: Cause, member: Member) -> bool {
        self.propose(ctx, cause, |record| {
            record.in_sync.retain(|other| *other != member);
            record.catching_up.push(member);
        });
        true
    }

    /// A minority may go at once; a set that would shrink to a minority waits, so that the other side can win (PR-09).
    fn evict_silent(&mut self, ctx: &mut Ctx, silent: &[Member], members: usize) -> bool {
        let left = members - silent.len();
        let shortest = silent.iter().map(|member| self.silence(ctx, *member)).min().unwrap_or(Micros::ZERO);
        // Where backups ask for a seal later, the primary waits longer too.
        let alone = self.config.record().is_some_and(|record| record.policy.rests_on_primary());
        let later = if alone { ctx.settings.suspect_alone } else { Micros::ZERO };
        if 2 * left <= members && shortest < ctx.settings.evict_lone + later {
            return false;
        }
        let silent = silent.to_vec();
        self.propose(ctx, Cause::EvictedSilent, |record| {
            record.in_sync.retain(|member| !silent.contains(member))
        });
        true
    }

    /// Takes a level replica into the set: first commits and `secured` count it, then it is proposed (PR-15, PR-06). It has what
    /// others may have published by then, so whoever leads next does (R7, PR-31).
    fn join_step(&mut self, ctx: &mut Ctx) -> bool {
        let (Some(record), Role::Leader(leader)) = (self.config.record(), &self.role) else { return false };
        let now = ctx.now.mono;
        let need = record.policy.need(1);
        let need = if need.counts() { need } else { types::policy::Need { received: true, ..need } };
        if let Some((member, since)) = leader.joining {
            let marks = self.marks_of(leader, &member);
            let covered =
                need.met(&marks) >= self.marks.committed() || !self.rules.joiners_have_what_is_committed();
            let has_published = self.met(leader, &member) >= self.marks.secured();
            let held = ctx.leases.held_until(self.id, leader.term, member) > now
                || !self.rules.promises_are_waited_for();
            if covered && has_published && held && record.catching_up.contains(&member) {
                self.propose(ctx, Cause::InSync, |record| {
                    record.catching_up.retain(|other| *other != member);
                    record.in_sync.push(member);
                });
                return true;
            }
            if now.since(since) > JOIN_PATIENCE {
                let leader = self.leader().expect("a leader");
                leader.joining = None;
                if let Some(progress) = leader.members.get_mut(&member) {
                    progress.level_since = None;
                }
            }
            return false;
        }
        let level = |member: &&Member| {
            let progress = leader.members.get(member);
            progress.is_some_and(|progress| {
                matches!(progress.mode, Mode::Stream)
                    && !progress.tainted
                    && progress.level_since.is_some_and(|since| now.since(since) >= ctx.settings.level)
            }) && !leader.disk_hangs(now, member, ctx.settings.evict_slow)
                && !self.is_silent(ctx, **member)
        };
        let next = record.catching_up.iter().find(level).copied();
        if let (Some(member), Some(leader)) = (next, self.leader()) {
            leader.joining = Some((member, now));
            self.secure_with_joiner();
        }
        false
    }

    /// The second and third step of a change of policy (PR-24).
    fn policy_step(&mut self, ctx: &mut Ctx) -> bool {
        let committed = self.marks.committed();
        let (Some(record), Role::Leader(leader)) = (self.config.record(), &self.role) else { return false };
        let Some(next) = record.next_policy.clone() else { return false };
        if next.same_demands(&record.policy) {
            // Only how few copies are allowed changes: nothing that was committed means something else afterwards, and
            // an entry would wait for the very bound that an operator lowers.
            self.propose(ctx, Cause::Policy, |record| {
                record.policy = next;
                record.next_policy = None;
            });
            return true;
        }
        match leader.policy_entry.as_ref().filter(|(_, of)| *of == next).map(|(lsn, _)| *lsn) {
            None => {
                let header = self.next_header(ctx, Kind::Policy);
                let lsn = header.at.lsn;
                let payload = serde_json::to_vec(&next).expect("a policy has only text keys");
                if let Err(unfit) = self.append(ctx, Entry::encode(header, &payload)) {
                    self.fail(ctx, unfit.reason());
                    return true;
                }
                self.leader().expect("a leader").policy_entry = Some((lsn, next));
                true
            }
            Some(lsn) if committed >= lsn => {
                self.propose(ctx, Cause::Policy, |record| {
                    record.policy = next;
                    record.next_policy = None;
                });
                true
            }
            Some(_) => false,
        }
    }

    /// Drops catching-up members that are gone, so that others can be taken.
    fn give_up(&mut self, ctx: &mut Ctx) -> bool {
        let (Some(record), Role::Leader(leader)) = (self.config.record(), &self.role) else { return false };
        let gone = |member: &&Member| {
            let changed = leader
                .incarnations
                .get(&member.node)
                .is_some_and(|incarnation| incarnation.incarnation > member.incarnation);
            let now = ctx.now.mono;
            let stuck = leader.hangs(now, member, GIVE_UP)
                || leader.disk_hangs(now, member, GIVE_UP)
                || leader.members.get(*member).is_some_and(|progress| progress.stuck);
            changed || stuck || self.silence(ctx, **member) > GIVE_UP
        };
        let Some(old) = record.catching_up.iter().find(gone).copied() else { return false };
        let new = leader
            .incarnations
            .get(&old.node)
            .filter(|incarnation| incarnation.incarnation > old.incarnation)
            .copied();
        self.propose(ctx, Cause::CatchingUp, |record| {
            record.catching_up.retain(|member| *member != old);
            record.catching_up.extend(new);
        });
        true
    }

    fn take_advice(&mut self, ctx: &mut Ctx) {
        let Some(advice) = self.leader().and_then(|leader| leader.advice.pop_front()) else { return };
        let Some(record) = self.config.record() else { return };
        match advice {
            Advice::Admit(member) => {
                if record.member_on(member.node).is_none() {
                    self.propose(ctx, Cause::CatchingUp, |record| record.catching_up.push(member));
                }
            }
            Advice::Remove(member) => {
                let last = record.in_sync.len() == 1 && record.in_sync.contains(&member);
                if record.holds(&member) && member != self.me && !last {
                    self.propose(ctx, Cause::EvictedChanged, |record| {
                        record.in_sync.retain(|other| *other != member);
                        record.catching_up.retain(|other| *other != member);
                    });
                }
            }
            Advice::HandOver(member) => {
                let since = ctx.now.mono;
                let ready = matches!(&self.role, Role::Leader(leader)
                    if !leader.disk_hangs(since, &member, ctx.settings.level));
                if record.in_sync.contains(&member) && member != self.me && self.serves() && ready {
                    self.prepare_hand_over(ctx, member);
                }
            }
            Advice::Policy(text) => {
                let Ok(policy) = text.read::<Policy>() else { return };
                // A change under way may be given another aim: what is in force stays so until the entry of that one.
                let aim = first_aim(&record.policy, policy);
                if aim != *record.next_policy.as_ref().unwrap_or(&record.policy) {
                    self.propose(ctx, Cause::Policy, |record| record.next_policy = Some(aim));
                }
            }
        }
    }

    /// Hands over once the target has everything. Nothing is served from the proposal on (PR-02).
    pub(crate) fn hand_over_step(&mut self, ctx: &mut Ctx) {
        let (now, end, committed) = (ctx.now.mono, self.log.end().lsn, self.marks.committed());
        let patience = ctx.settings.hand_over;
        let (Some(record), Role::Leader(leader)) = (self.config.record(), &self.role) else { return };
        let Some(handing) = &leader.handing else { return };
        if leader.change.is_some() {
            // One change at a time: it is this one, or an eviction that came before it.
            return;
        }
        let to = handing.to;
        // It has everything, and as a primary must have it: else its marker would wait for its own disk.
        let marks = self.marks_of(leader, &to);
        let own = record.policy.need(0);
        let level = committed == end && marks.received == end && (!own.counts() || own.met(&marks) == end);
        let lost =
            !record.in_sync.contains(&to) || self.is_silent(ctx, to) || now.since(handing.since) > patience;
        if handing.proposed {
            return;
        }
        if !level {
            if lost {
                self.leader().expect("a leader").handing = None;
            }
            return;
        }
        let me = self.me;
        self.propose(ctx, Cause::Switchover, |record| {
            record.before = Some(PreviousTerm {
                epoch: types::Epoch(record.epoch.0 - 1),
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
        self.leader().expect("a leader").handing.as_mut().expect("handing").proposed = true;
    }

    /// Replies that wait for `committed` or `secured`.
    pub fn waiting(&self) -> usize {
        match &self.role {
            Role::Leader(leader) => leader.waiting.len() + leader.securing.len(),
            _ => 0,
        }
    }
}

/// What to change first on the way to a policy: the bound alone, if it and more are to change, since the old bound could
/// keep the new policy's entry from committing for ever. The rest is advised again.
fn first_aim(now: &Policy, wanted: Policy) -> Policy {
    let same_bound = (now.min_in_sync, now.below) == (wanted.min_in_sync, wanted.below);
    if same_bound || wanted.same_demands(now) {
        return wanted;
    }
    Policy { min_in_sync: wanted.min_in_sync, below: wanted.below, ..now.clone() }
}

impl Leader {
    /// True if an append to this member was not answered for so long, or what it was sent got no further: a disk that does
    /// nothing holds up what was received long ago (F19).
    fn hangs(&self, now: Micros, member: &Member, patience: Micros) -> bool {
        self.members.get(member).is_some_and(|progress| {
            let oldest = progress.in_flight.front().map(|(_, _, sent)| *sent);
            now.since(oldest.unwrap_or(now).min(progress.still.1)) >= patience
        })
    }

    /// True if this member's disk has had something to do for so long and did nothing.
    fn disk_hangs(&self, now: Micros, member: &Member, patience: Micros) -> bool {
        self.members.get(member).is_some_and(|progress| now.since(progress.disk.1) >= patience)
    }

    /// The marker's LSN, once it is in the log.
    pub(crate) fn marker(&self) -> Option<Lsn> {
        self.marker
    }
}
