//! What is under way at the set of members that a primary leads (R1): one change at a time, who is about to
//! join, a hand-over, the entry of a new policy, and what controllers advise.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::config::Cause;
use types::{Epoch, Lsn, Member, Micros, NodeId, PartitionRecord, Policy, ProposalId};
use wire::control::{Advice, Propose, RecordText};

/// A refused proposal waits for so many repetitions before another record takes its place.
const REFUSED_PATIENCE: u64 = 4;
/// Advice beyond this is given again.
const MAX_ADVICE: usize = 16;

/// A proposal on its way.
#[derive(Debug)]
pub(crate) struct Change {
    record: PartitionRecord,
    /// Refused before it, without a new epoch: an earlier copy of these may still win, so they count too.
    withdrawn: Vec<PartitionRecord>,
    sent_at: Micros,
    refused_at: Option<Micros>,
}

impl Change {
    /// Every record that may yet be the next one.
    pub fn possible(&self) -> impl Iterator<Item = &PartitionRecord> {
        self.withdrawn.iter().chain([&self.record])
    }

    fn proposal(&self) -> Propose {
        Propose { expected: Epoch(self.record.epoch.0 - 1), record: RecordText::new(&self.record) }
    }
}

/// A hand-over of the lead.
///
/// | from | by | to |
/// | --- | --- | --- |
/// | none, preparing | `prepare`: a cold standby is to have files first (PR-44) | preparing |
/// | none, preparing | `hold`: writes wait until the target has everything | holding |
/// | holding | `hand_over`: it has | proposed |
/// | preparing, holding | `give_up` | none |
/// | holding, proposed | `settle`: a new record of this term | none |
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum HandOver {
    #[default]
    None,
    Preparing {
        to: Member,
        /// What its files are to hold.
        upto: Lsn,
        since: Micros,
        asked_at: Micros,
    },
    Holding {
        to: Member,
        since: Micros,
        /// It was asked what it has.
        asked: bool,
    },
    Proposed,
}

/// What becomes of an undecided proposal now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Undecided {
    /// There is none.
    Nothing,
    /// It is waited for.
    Waits,
    /// It is sent again, or another record in its place.
    Again(Propose),
}

/// What is under way at the set.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    /// The change that was proposed and not decided yet (PR-16).
    change: Option<Change>,
    /// Proposals made in this term.
    proposals: u64,
    /// A catching-up member that commits already count, and since when, before it is proposed (PR-15).
    joining: Option<(Member, Micros)>,
    hand_over: HandOver,
    /// The LSN of the policy entry of a change under way, and the policy in it (PR-24).
    policy_entry: Option<(Lsn, Policy)>,
    /// Incarnations of nodes seen on connections.
    incarnations: BTreeMap<NodeId, Member>,
    /// Those that were proposed as members, and refused: no controller may have let them in (PR-163).
    not_admitted: BTreeSet<Member>,
    advice: VecDeque<Advice>,
    /// Advice in epochs of which this primary has not heard yet (PR-460).
    early: Vec<(Epoch, Advice)>,
}

impl Membership {
    /// A connection to this incarnation of a node was made.
    pub fn saw(&mut self, member: Member) {
        self.incarnations.insert(member.node, member);
    }

    /// The present incarnation of this member's node, if it is a later one. Incarnations of two disks say
    /// nothing of each other (PR-162).
    pub fn later_incarnation(&self, of: &Member) -> Option<Member> {
        let later = |other: &&Member| other.same_store(of) && other.incarnation > of.incarnation;
        self.incarnations.get(&of.node).filter(later).copied()
    }

    /// True if this one can be proposed as a member that catches up: it was not refused before.
    pub fn may_admit(&self, member: &Member) -> bool {
        !self.not_admitted.contains(member)
    }

    /// A controller asks for something.
    pub fn advise(&mut self, advice: Advice) {
        if self.advice.len() < MAX_ADVICE && !self.advice.contains(&advice) {
            self.advice.push_back(advice);
        }
    }

    /// A controller asks for something in an epoch whose record it knows before this primary does: that
    /// counts once the record is here, and not before (F16).
    pub fn advise_early(&mut self, epoch: Epoch, advice: Advice) {
        let early = (epoch, advice);
        if self.early.len() < MAX_ADVICE && !self.early.contains(&early) {
            self.early.push(early);
        }
    }

    /// What is to be looked at next of what controllers asked for.
    pub fn take_advice(&mut self) -> Option<Advice> {
        self.advice.pop_front()
    }

    /// True if a proposal is undecided.
    pub fn is_changing(&self) -> bool {
        self.change.is_some()
    }

    /// Every record that may be the next one.
    pub fn possible(&self) -> impl Iterator<Item = &PartitionRecord> {
        self.change.iter().flat_map(Change::possible)
    }

    /// True if a set that is in force or may be next has this member.
    pub fn has(&self, current: &PartitionRecord, member: &Member) -> bool {
        let mut sets = [current].into_iter().chain(self.possible());
        sets.any(|record| record.in_sync.contains(member))
    }

    /// Everybody who counts now: the members of every set that is in force or may be next, and who is about
    /// to join; some of them more than once.
    pub fn counted<'a>(&'a self, current: &'a PartitionRecord) -> impl Iterator<Item = Member> + use<'a> {
        let sets = [current].into_iter().chain(self.possible());
        sets.flat_map(|record| record.in_sync.iter().copied()).chain(self.joining())
    }

    /// Proposes `current` with what `alter` changes of it.
    pub fn propose(
        &mut self,
        now: Micros,
        current: &PartitionRecord,
        cause: Cause,
        alter: impl FnOnce(&mut PartitionRecord),
    ) -> Propose {
        assert!(self.change.is_none(), "N3: one change at a time");
        let mut record = current.clone();
        record.epoch = current.epoch.next();
        record.proposal = self.next_proposal(current);
        record.cause = cause;
        alter(&mut record);
        let change = Change { record, withdrawn: Vec::new(), sent_at: now, refused_at: None };
        let proposal = change.proposal();
        self.change = Some(change);
        proposal
    }

    /// A number that no other proposal for this partition has.
    fn next_proposal(&mut self, current: &PartitionRecord) -> ProposalId {
        self.proposals += 1;
        let me = &current.primary;
        let term = (u64::from(me.node.0) << 48) ^ (me.incarnation.0 << 24) ^ (current.epoch.0 << 8);
        ProposalId(term ^ self.proposals)
    }

    /// What is to be done about an undecided proposal.
    pub fn repeat(&mut self, now: Micros, resend: Micros, current: &PartitionRecord) -> Undecided {
        let Some(change) = &self.change else { return Undecided::Nothing };
        if now.since(change.sent_at) < resend {
            return Undecided::Waits;
        }
        let patience = Micros(resend.0 * REFUSED_PATIENCE);
        if change.refused_at.is_some_and(|at| now.since(at) >= patience) {
            self.withdraw(current);
        }
        let change = self.change.as_mut().expect("it is undecided");
        change.sent_at = now;
        Undecided::Again(change.proposal())
    }

    /// Only another record can show that a refused one did not win: the same set under the next epoch.
    fn withdraw(&mut self, current: &PartitionRecord) {
        let mut again = current.clone();
        again.epoch = current.epoch.next();
        again.proposal = self.next_proposal(current);
        again.cause = Cause::InSync;
        let change = self.change.as_mut().expect("N3: only what was proposed is withdrawn");
        let refused = std::mem::replace(&mut change.record, again);
        self.not_admitted.extend(refused.catching_up.iter().filter(|member| !current.holds(member)));
        change.withdrawn.push(refused);
        change.refused_at = None;
    }

    /// A proposal was refused, and no newer record is known.
    pub fn refused(&mut self, now: Micros, proposal: ProposalId) {
        if let Some(change) = self.change.as_mut().filter(|change| change.record.proposal == proposal) {
            change.refused_at.get_or_insert(now);
        }
    }

    /// A new record of this term came: the proposal is decided, one way or the other.
    pub fn settle(&mut self, record: &PartitionRecord) {
        self.change = None;
        if self.holds_writes() {
            self.hand_over = HandOver::None;
        }
        if self.joining.is_some_and(|(member, _)| !record.catching_up.contains(&member)) {
            self.joining = None;
        }
        if record.next_policy.is_none() {
            self.policy_entry = None;
        }
        for (epoch, advice) in std::mem::take(&mut self.early) {
            match epoch.cmp(&record.epoch) {
                Ordering::Less => {}
                Ordering::Equal => self.advise(advice),
                Ordering::Greater => self.early.push((epoch, advice)),
            }
        }
    }

    /// Who is about to join.
    pub fn joining(&self) -> Option<Member> {
        self.joining.map(|(member, _)| member)
    }

    /// Who is about to join, and since when.
    pub fn joining_since(&self) -> Option<(Member, Micros)> {
        self.joining
    }

    /// From now on commits count this member, too.
    pub fn begin_join(&mut self, now: Micros, member: Member) {
        assert!(self.joining.is_none(), "PR-15: one member joins at a time");
        self.joining = Some((member, now));
    }

    /// Who was about to join goes back to catching up.
    pub fn end_join(&mut self) {
        self.joining = None;
    }

    /// Where the entry of this policy is in the log, if it is.
    pub fn policy_entry(&self, policy: &Policy) -> Option<Lsn> {
        self.policy_entry.as_ref().filter(|(_, of)| of == policy).map(|(lsn, _)| *lsn)
    }

    /// The entry of a policy is in the log.
    pub fn note_policy_entry(&mut self, lsn: Lsn, policy: Policy) {
        self.policy_entry = Some((lsn, policy));
    }

    pub fn hand_over(&self) -> &HandOver {
        &self.hand_over
    }

    /// True while writes wait for a hand-over.
    pub fn holds_writes(&self) -> bool {
        matches!(self.hand_over, HandOver::Holding { .. } | HandOver::Proposed)
    }

    /// A hand-over waits for the files of its target, which are to hold all up to here.
    pub fn prepare(&mut self, now: Micros, to: Member, upto: Lsn) {
        assert!(!self.holds_writes(), "PR-44: files come before writes wait");
        self.hand_over = HandOver::Preparing { to, upto, since: now, asked_at: Micros::ZERO };
    }

    /// True, every so often, if the primary's own files are to be made while a target is prepared.
    pub fn asks_for_flush(&mut self, now: Micros, persisted: Lsn, every: Micros) -> bool {
        let HandOver::Preparing { upto, asked_at, .. } = &mut self.hand_over else { return false };
        let asks = persisted < *upto && now.since(*asked_at) >= every;
        if asks {
            *asked_at = now;
        }
        asks
    }

    /// Writes wait from now on.
    pub fn hold(&mut self, now: Micros, to: Member) {
        assert!(!self.holds_writes(), "PR-02: one hand-over at a time");
        self.hand_over = HandOver::Holding { to, since: now, asked: false };
    }

    /// The target was asked what it has.
    pub fn note_asked(&mut self) {
        if let HandOver::Holding { asked, .. } = &mut self.hand_over {
            *asked = true;
        }
    }

    /// The target has everything: the hand-over is proposed.
    pub fn hand_over_to(
        &mut self,
        now: Micros,
        current: &PartitionRecord,
        alter: impl FnOnce(&mut PartitionRecord),
    ) -> Propose {
        assert!(matches!(self.hand_over, HandOver::Holding { .. }), "PR-02: writes wait for a hand-over");
        self.hand_over = HandOver::Proposed;
        self.propose(now, current, Cause::Switchover, alter)
    }

    /// A hand-over that was not proposed does not take place.
    pub fn give_up_hand_over(&mut self) {
        assert!(self.hand_over != HandOver::Proposed, "PR-02: what was proposed may win");
        self.hand_over = HandOver::None;
    }

    /// What holds of every change, beside the record in force.
    pub fn validate(&self, current: &PartitionRecord) -> Result<(), String> {
        if let Some(record) = self.possible().find(|record| record.epoch != current.epoch.next()) {
            return Err(format!("N3: {} is proposed after {}", record.epoch, current.epoch));
        }
        if self.hand_over == HandOver::Proposed && self.change.is_none() {
            return Err("PR-02: a hand-over was proposed, and no change is under way".into());
        }
        if self.joining().is_some_and(|member| !current.catching_up.contains(&member)) {
            return Err("PR-15: who joins does not catch up".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Incarnation, LogKind, PartitionId, StoreId, TableId, Term};

    const NOW: Micros = Micros(1_000_000);
    const RESEND: Micros = Micros(10_000);

    fn member(node: u32, incarnation: u64) -> Member {
        Member { node: NodeId(node), store: StoreId(node.into()), incarnation: Incarnation(incarnation) }
    }

    fn record() -> PartitionRecord {
        PartitionRecord {
            term: Term(3),
            catching_up: vec![member(3, 1)],
            cause: Cause::InSync,
            ..PartitionRecord::new(
                PartitionId(1),
                TableId(1),
                Epoch(5),
                vec![member(1, 1), member(2, 1)],
                Policy::preset("semi", 3, LogKind::Disk).expect("a preset"),
            )
        }
    }

    fn evict(membership: &mut Membership) -> ProposalId {
        membership.propose(NOW, &record(), Cause::EvictedSilent, |record| record.in_sync.truncate(1));
        membership.possible().last().expect("it was proposed").proposal
    }

    #[test]
    fn pr16_what_was_refused_counts_until_another_record_shows_that_it_did_not_win() {
        let mut membership = Membership::default();
        assert_eq!(membership.repeat(NOW, RESEND, &record()), Undecided::Nothing);
        let proposal = evict(&mut membership);
        assert_eq!(membership.repeat(NOW, RESEND, &record()), Undecided::Waits);
        membership.refused(NOW, ProposalId(77));
        membership.refused(NOW, proposal);
        let later = NOW + Micros(RESEND.0 * REFUSED_PATIENCE);
        let Undecided::Again(again) = membership.repeat(later, RESEND, &record()) else {
            panic!("undecided")
        };
        assert_eq!(again.expected, Epoch(5));
        let sets: Vec<usize> = membership.possible().map(|record| record.in_sync.len()).collect();
        assert_eq!(sets, [1, 2], "the refused set and the present one");
        let ids: BTreeSet<ProposalId> = membership.possible().map(|record| record.proposal).collect();
        assert_eq!(ids.len(), 2, "each proposal has a number of its own");
        membership.validate(&record()).expect("all follow the present record");
        membership.settle(&record());
        assert!(!membership.is_changing() && membership.possible().count() == 0);
    }

    #[test]
    fn pr15_who_joins_counts_before_it_is_proposed() {
        let mut membership = Membership::default();
        assert_eq!(membership.counted(&record()).collect::<BTreeSet<_>>().len(), 2);
        membership.begin_join(NOW, member(3, 1));
        assert!(membership.counted(&record()).any(|one| one == member(3, 1)));
        membership.settle(&record());
        assert_eq!(membership.joining(), Some(member(3, 1)), "it still catches up");
        let joined = PartitionRecord { catching_up: Vec::new(), ..record() };
        membership.settle(&joined);
        assert_eq!(membership.joining(), None);
    }

    #[test]
    #[should_panic(expected = "one change at a time")]
    fn n3_one_change_at_a_time() {
        let mut membership = Membership::default();
        evict(&mut membership);
        evict(&mut membership);
    }

    #[test]
    fn a_hand_over_ends_with_the_next_record_and_its_preparation_does_not() {
        let mut membership = Membership::default();
        membership.prepare(NOW, member(2, 1), Lsn(9));
        assert!(membership.asks_for_flush(NOW, Lsn(8), Micros(1_000)));
        assert!(!membership.asks_for_flush(NOW, Lsn(8), Micros(1_000)), "it has just asked");
        membership.settle(&record());
        assert!(!membership.holds_writes() && *membership.hand_over() != HandOver::None);
        membership.hold(NOW, member(2, 1));
        assert!(membership.holds_writes());
        membership.hand_over_to(NOW, &record(), |record| record.in_sync.reverse());
        membership.validate(&record()).expect("it was proposed");
        membership.settle(&record());
        assert_eq!(*membership.hand_over(), HandOver::None);
    }

    #[test]
    fn a_hand_over_that_begins_takes_the_place_of_one_that_is_prepared() {
        let mut membership = Membership::default();
        membership.prepare(NOW, member(2, 1), Lsn(9));
        membership.hold(NOW, member(3, 1));
        assert!(!membership.asks_for_flush(NOW, Lsn::ZERO, Micros::ZERO), "nothing is prepared any more");
        let holding = |asked: bool| HandOver::Holding { to: member(3, 1), since: NOW, asked };
        assert_eq!(*membership.hand_over(), holding(false));
        membership.note_asked();
        assert_eq!(*membership.hand_over(), holding(true));
    }

    #[test]
    fn advice_is_taken_in_its_order_once_and_not_without_end() {
        let mut membership = Membership::default();
        for node in 0..2 * MAX_ADVICE as u32 {
            membership.advise(Advice::Admit(member(node, 1)));
            membership.advise(Advice::Admit(member(node, 1)));
        }
        let taken = std::iter::from_fn(|| membership.take_advice()).count();
        assert_eq!(taken, MAX_ADVICE);
        membership.saw(member(2, 4));
        assert_eq!(membership.later_incarnation(&member(2, 3)), Some(member(2, 4)));
        assert_eq!(membership.later_incarnation(&member(2, 4)), None);
    }

    #[test]
    fn pr460_advice_that_comes_before_its_record_counts_in_its_epoch_alone() {
        let mut membership = Membership::default();
        let (next, admit) = (record().epoch.next(), |node| Advice::Admit(member(node, 1)));
        membership.advise_early(next, admit(4));
        membership.advise_early(next.next(), admit(5));
        membership.settle(&record());
        assert_eq!(membership.take_advice(), None, "its record is not here");
        membership.settle(&PartitionRecord { epoch: next, ..record() });
        assert_eq!(membership.take_advice(), Some(admit(4)));
        membership.settle(&PartitionRecord { epoch: Epoch(next.0 + 2), ..record() });
        assert_eq!(membership.take_advice(), None, "its epoch is over");
    }

    #[test]
    fn pr162_incarnations_of_two_disks_say_nothing_of_each_other() {
        let mut membership = Membership::default();
        membership.saw(member(2, 4));
        let other_disk = Member { store: StoreId(77), ..member(2, 1) };
        assert_eq!(membership.later_incarnation(&other_disk), None);
        assert_eq!(membership.later_incarnation(&member(2, 1)), Some(member(2, 4)));
    }

    #[test]
    fn pr163_who_was_refused_as_a_member_is_not_proposed_again() {
        let mut membership = Membership::default();
        assert!(membership.may_admit(&member(2, 2)));
        membership.propose(NOW, &record(), Cause::EvictedChanged, |record| {
            record.in_sync.truncate(1);
            record.catching_up.push(member(2, 2));
        });
        let proposal = membership.possible().last().expect("it was proposed").proposal;
        membership.refused(NOW, proposal);
        assert!(membership.may_admit(&member(2, 2)), "a copy of it may still be on its way");
        membership.repeat(NOW + Micros(RESEND.0 * REFUSED_PATIENCE), RESEND, &record());
        assert!(!membership.may_admit(&member(2, 2)));
        assert!(membership.may_admit(&member(3, 1)), "it is a member");
    }
}
