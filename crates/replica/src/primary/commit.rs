//! How far a primary's `committed` and `secured` may go (R4, R7), and on whose promises its lease rests (R5).

use crate::context::Ctx;
use crate::primary::{Primary, View};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use types::{Lsn, Member, Micros, Policy, Watermarks};

impl Primary {
    /// The sets, each with its policy, that commits must satisfy now (N3, PR-16).
    fn demands<'a>(&'a self, view: &View<'a>) -> impl Iterator<Item = (&'a [Member], &'a Policy)> + use<'a> {
        let every = view.rules.every_possible_set_counts();
        let records = [view.record].into_iter().chain(self.membership.possible().filter(move |_| every));
        records.flat_map(|record| {
            let policies = [&record.policy].into_iter().chain(&record.next_policy);
            policies.map(|policy| (&record.in_sync[..], policy))
        })
    }

    /// Every other member that must have promised before this replica serves reads (PR-04, PR-06).
    pub fn lease_members(&self, view: &View) -> BTreeSet<Member> {
        self.promising(view).collect()
    }

    /// The same, some of them more than once.
    fn promising<'a>(&'a self, view: &View<'a>) -> impl Iterator<Item = Member> + use<'a> {
        let (me, all) = (view.me, view.rules.promises_are_waited_for());
        let current = view.record.in_sync.iter().copied().filter(move |_| !all);
        let counted = self.membership.counted(view.record).filter(move |_| all);
        current.chain(counted).filter(move |member| *member != me)
    }

    /// Until when this primary's lease runs; `None`: nobody else could be promoted, so no end (PR-08).
    pub fn lease_until(&self, view: &View, ctx: &Ctx) -> Option<Micros> {
        if !view.rules.leases_bound_replies() {
            return None;
        }
        self.promising(view).map(|member| ctx.leases.held_until(view.id, self.term, member)).min()
    }

    /// The first member above one, in their order.
    pub fn member_above(&self, member: Option<Member>) -> Option<Member> {
        let from = member.map_or(Unbounded, Excluded);
        self.members.range((from, Unbounded)).next().map(|(member, _)| *member)
    }

    /// How far this member has got, as is known here.
    pub fn marks_of(&self, view: &View, member: &Member) -> Watermarks {
        if *member == view.me {
            return view.marks;
        }
        self.members.get(member).map(|progress| progress.marks).unwrap_or_default()
    }

    /// How far a member holds the log so that nothing takes it away.
    pub fn met(&self, view: &View, member: &Member) -> Lsn {
        view.record.policy.kept(&self.marks_of(view, member))
    }

    /// A set that counts now has fewer members than its policy allows (PR-21).
    fn is_short(&self, view: &View) -> bool {
        self.demands(view).any(|(set, policy)| !policy.allows(set.len()))
    }

    /// Where `committed` may go now (design section 2).
    pub fn commit_point(&self, view: &View, ctx: &Ctx) -> Lsn {
        let policy = &view.record.policy;
        let mut point = view.marks.received;
        for (set, policy) in self.demands(view) {
            if !policy.allows(set.len()) && view.rules.strict_stops_below_min() {
                return view.committed;
            }
            let counted =
                |member: &&Member| view.rules.silent_members_count() || !self.is_silent(view, ctx, **member);
            let marks = set.iter().filter(counted).map(|member| self.marks_of(view, member));
            point = point.min(policy.commit(marks));
        }
        if let (Some(member), true) = (self.membership.joining(), view.rules.joiners_have_what_is_committed())
        {
            point = point.min(policy.commit_with(&self.marks_of(view, &member)).max(view.committed));
        }
        // Acknowledgements that rest on the primary alone need its lease (PR-04).
        if policy.rests_on().is_primary()
            && self.lease_until(view, ctx).is_some_and(|until| ctx.now.mono >= until)
        {
            return view.committed;
        }
        point
    }

    /// What is secured (R7), and what the log must keep for members (R8), over every member that is or may
    /// become one. The log is kept for nobody who catches up and is `gone`: that one is given files.
    pub fn bounds(&self, view: &View, is_gone: impl Fn(&Member) -> bool) -> (Lsn, Lsn) {
        // It never falls, so it waits for who joins: else that one would never reach it under load.
        let members = self.membership.counted(view.record);
        let met = |member: &Member| self.met(view, member);
        let secured = members.map(|member| met(&member)).min().unwrap_or(Lsn::ZERO);
        let behind = |member: &Member| match self.members.get(member) {
            Some(progress) if progress.is_given_state() => progress.needs,
            _ => met(member),
        };
        let there = view.record.catching_up.iter().filter(|member| !is_gone(member));
        let catching_up = there.map(behind).min().unwrap_or(Lsn::MAX);
        (secured, secured.min(catching_up))
    }

    /// Up to where replies go that wait for `secured` (PR-82).
    pub fn told_secured(&self, view: &View) -> Lsn {
        match view.rules.aborts_wait_until_secured() {
            true if self.is_short(view) => Lsn::ZERO,
            true => view.committed.min(view.secured),
            false => view.committed,
        }
    }

    /// How many members of the set have what the policy demands at `lsn`; where it demands nothing, in
    /// memory.
    pub fn copies(&self, view: &View, lsn: Lsn) -> u8 {
        let has = |(rank, member): &(usize, &Member)| {
            view.record.policy.reached(*rank, &self.marks_of(view, member)) >= lsn
        };
        view.record.in_sync.iter().enumerate().filter(has).count() as u8
    }
}
