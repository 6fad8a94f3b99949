//! Who is sound: since when nothing has been wrong with a node, and with what all nodes share.

use super::{Phase, World};
use crate::check::wanted::rests_on_primary;
use crate::network::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use types::policy::Below;
use types::{Member, PartitionRecord};

/// Who can be reached again is heard within this: it is dialled again, its heartbeats come, and whoever hears
/// them tells the controllers. Microseconds.
const HEARD_US: u64 = 250_000;

/// What is wrong with something, as far as anybody was told.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// When a fault last befell it, or something was last seen to be wrong with it. Microseconds.
    unsound: u64,
    /// When a fault last befell it. Microseconds.
    hit: u64,
    /// When it was last seen to be sound, and had been for as long as it takes to be heard. Microseconds.
    sound: u64,
}

impl Seen {
    /// It is sound, or was until now.
    fn is_sound(&mut self, now: u64) {
        if now - self.unsound >= HEARD_US {
            self.sound = now;
        }
    }
}

/// When what last was in trouble.
#[derive(Debug, Default)]
pub(super) struct Soundness {
    nodes: BTreeMap<u32, Seen>,
    /// The network's weather, the controllers and the metastore: what all share.
    shared: u64,
    sound: BTreeSet<u32>,
}

impl Soundness {
    /// A fault strikes a node.
    pub fn hits(&mut self, node: u32, now: u64) {
        let was_sound = self.sound.remove(&node);
        let seen = self.nodes.entry(node).or_default();
        if was_sound {
            seen.is_sound(now);
        }
        (seen.unsound, seen.hit) = (now, now);
    }

    /// A fault strikes what all nodes share.
    pub fn hits_all(&mut self, now: u64) {
        self.shared = now;
    }

    /// These of `nodes` are sound, and what all share is, or not.
    fn look(&mut self, now: u64, nodes: u32, sound: BTreeSet<u32>, shared: bool) {
        for node in (1..=nodes).filter(|node| !sound.contains(node)) {
            self.nodes.entry(node).or_default().unsound = now;
        }
        for node in &sound {
            self.nodes.entry(*node).or_default().is_sound(now);
        }
        if !shared {
            self.shared = now;
        }
        self.sound = sound;
    }

    /// True if nothing is wrong with this node.
    pub fn is_sound(&self, node: u32) -> bool {
        self.sound.contains(&node)
    }

    /// For how long nothing has been wrong with this node, nor with what all share. Microseconds.
    pub fn sound_for(&self, node: u32, now: u64) -> u64 {
        let seen = self.nodes.get(&node).copied().unwrap_or_default();
        now - seen.unsound.max(self.shared)
    }

    /// When this node was last seen to be sound, so that it was heard. Microseconds.
    pub fn last_sound(&self, node: u32) -> u64 {
        self.nodes.get(&node).map_or(0, |seen| seen.sound)
    }

    /// When a fault last concerned one of these nodes, or all.
    pub fn last_hit(&self, nodes: impl Iterator<Item = u32>) -> u64 {
        let hit = nodes.filter_map(|node| self.nodes.get(&node)).map(|seen| seen.hit);
        hit.max().unwrap_or(0).max(self.shared)
    }
}

impl World {
    /// Looks at every machine, and at what all share.
    pub(super) fn look_for_trouble(&mut self) {
        let well = (1..=self.plan.nodes).filter(|node| self.is_well(*node)).collect();
        let sound = self.reach_each_other(well);
        let shared = self.is_shared_sound();
        let (now, nodes) = (self.now(), self.plan.nodes);
        self.faults.soundness.look(now, nodes, sound, shared);
    }

    /// True if nothing is wrong with a machine and its process.
    fn is_well(&self, node: u32) -> bool {
        let machine = self.machine(node);
        let Some(process) = &machine.process else { return false };
        let health = &machine.health;
        let is_quick = !health.is_impaired() && !health.is_stuck(self.now()) && health.is_quick();
        let has_room = machine.disk.trouble() == Default::default() && !process.logs.is_full();
        let second = machine.second.is_there() && machine.second.hangs_until(self.now()).is_none();
        let in_place = second && process.storage.held.is_empty() && !machine.starts.is_removed();
        let of_now = !machine.starts.are_of_other_build();
        let trees = !self.machines.files().is_troubled(node);
        machine.standing.goes_on()
            && machine.clock.is_even()
            && is_quick
            && has_room
            && in_place
            && trees
            && of_now
    }

    /// Of these nodes those all of which reach each other and the controllers: who reaches the fewest is left
    /// out first.
    fn reach_each_other(&self, mut well: BTreeSet<u32>) -> BTreeSet<u32> {
        let node_of = |end: Endpoint| match end {
            Endpoint::Node(id) => Some(id),
            _ => None,
        };
        let counts = |end: Endpoint| !matches!(end, Endpoint::Client(_) | Endpoint::Operator);
        loop {
            let mut misses: BTreeMap<u32, u32> = BTreeMap::new();
            for (from, to) in self.network.troubled().filter(|(from, to)| counts(*from) && counts(*to)) {
                let here: Vec<u32> = [from, to].into_iter().filter_map(node_of).collect();
                if here.iter().all(|id| well.contains(id)) {
                    here.into_iter().for_each(|id| *misses.entry(id).or_default() += 1);
                }
            }
            let Some((worst, _)) = misses.into_iter().max_by_key(|(_, count)| *count) else { return well };
            well.remove(&worst);
        }
    }

    /// True if the weather is fair, and controllers and the metastore are at work.
    fn is_shared_sound(&self) -> bool {
        let (meta, controllers, now) = (&self.control.meta, &self.control.controllers, self.now());
        let forced = self.faults.forced.is_under_way();
        self.network.is_fair() && meta.is_well(now) && controllers.are_well(now) && !forced
    }

    /// The members of the set that are sound and may lead, and as many others as the policy needs. None: too
    /// few, and nothing is expected of them.
    fn able(&self, record: &PartitionRecord) -> Option<Vec<Member>> {
        let survives = self.survives_restart(record);
        let is_able = |member: &&Member| {
            let machine = self.machine(member.node.0);
            let Some(process) = &machine.process else { return false };
            let here = process.member;
            let counts = here == **member || survives && here.same_store(member);
            counts
                && self.faults.soundness.is_sound(member.node.0)
                && !process.reports.damaged().contains(&record.id)
        };
        let able: Vec<Member> = record.in_sync.iter().filter(is_able).copied().collect();
        let policies = std::iter::once(&record.policy).chain(&record.next_policy);
        let strict = policies.filter(|policy| policy.below == Below::Strict);
        let most = strict.map(|policy| usize::from(policy.min_in_sync)).max().unwrap_or(1);
        (able.len() >= most.max(1)).then_some(able)
    }

    /// True if a partition could be served by what is sound, whatever became of the others.
    pub(super) fn should_be_served(&self, record: &PartitionRecord) -> bool {
        self.stage.phase() != Phase::Setup
            && !self.is_stranded(record.id)
            && self.is_shared_sound()
            && !self.is_split(record)
            && !self.waits_for_lost_disk(record)
            && !self.waits_to_compare(record)
            && !self.waits_for_whole_log(record)
            && !self.is_heard_too_early(record)
            && self.able(record).is_some()
    }

    /// True if nobody serves, and nobody has a whole log any more, so that an operator has to recover the
    /// partition; or nobody who is sound has one, so that others are waited for (PR-100).
    fn waits_for_whole_log(&self, record: &PartitionRecord) -> bool {
        let torn = |member: &Member| {
            let process = self.machine(member.node.0).process.as_ref();
            let replica = process.and_then(|process| process.host.replica(record.id));
            replica.is_some_and(|replica| replica.log().is_torn())
        };
        let others_have_it = || {
            let able = self.able(record).unwrap_or_default();
            !rests_on_primary(&record.policy) && able.len() < record.in_sync.len() && able.iter().all(torn)
        };
        !self.is_serving(record) && (self.has_no_whole_log(record) || others_have_it())
    }

    /// True if the primary's node runs in a later life that no controller has let in yet: on a real machine
    /// nobody would hear it (PR-157), and the primary would be missed. Here its heartbeats are taken for
    /// those of the life before.
    fn is_heard_too_early(&self, record: &PartitionRecord) -> bool {
        let process = self.machine(record.primary.node.0).process.as_ref();
        process.is_some_and(|process| process.member != record.primary && !process.admitted)
    }

    /// True if a term that compares what all members kept, since each of them forgot something, names one
    /// whose disk was replaced before it was asked: an operator has to say that it is gone (PR-17).
    fn waits_for_lost_disk(&self, record: &PartitionRecord) -> bool {
        let replaced = |member: &Member| {
            let now = self.machine(member.node.0).member();
            now.is_some_and(|now| !now.same_store(member))
        };
        let compares = record.lossy && record.term.began() == record.epoch && !self.survives_restart(record);
        let forgets = compares && !self.waits_for_primary(record) && !self.is_serving(record);
        forgets && record.in_sync.iter().any(replaced)
    }

    /// True if a term that compares what all members kept has not served, and a member of it is not sound:
    /// what that one has may be nowhere else, so nobody leads without it (PR-17, PR-343). Where
    /// acknowledgements rest on the primary alone, nobody else is waited for.
    fn waits_to_compare(&self, record: &PartitionRecord) -> bool {
        let compares = record.lossy && !self.survives_restart(record) && !self.is_serving(record);
        let asked = |member: &&Member| **member == record.primary || !rests_on_primary(&record.policy);
        let sound = |member: &Member| self.faults.soundness.is_sound(member.node.0);
        compares && !record.in_sync.iter().filter(asked).all(sound)
    }

    /// True if members that are in sync do not reach each other, and all of them reach the controllers: who
    /// is to lead may have to wait for the others.
    fn is_split(&self, record: &PartitionRecord) -> bool {
        let counts =
            |end: &Endpoint| record.in_sync.iter().any(|member| Endpoint::Node(member.node.0) == *end);
        let is_controller = |end: &Endpoint| matches!(end, Endpoint::Controller(_));
        let cut_off: BTreeSet<Endpoint> = self
            .network
            .troubled()
            .flat_map(|(from, to)| [(from, to), (to, from)])
            .filter(|(_, other)| is_controller(other))
            .map(|(end, _)| end)
            .collect();
        let reaches = |end: &Endpoint| counts(end) && !cut_off.contains(end);
        self.network.troubled().any(|(from, to)| reaches(&from) && reaches(&to))
    }

    /// True if a partition may acknowledge nothing before it has another copy, and there are nodes enough for
    /// that.
    pub(super) fn waits_for_copy(&self, record: &PartitionRecord) -> bool {
        let least = usize::from(record.policy.min_in_sync);
        let short = record.policy.below == Below::Strict && record.in_sync.len() < least;
        let takes = |node: &u32| {
            let drained = self.control.records.is_drained(types::NodeId(*node));
            self.faults.soundness.is_sound(*node)
                && !drained
                && !self.is_removed(*node)
                && !self.is_decommissioning(*node)
        };
        // It takes a primary five seconds to give up a copy whose disk hangs (F19).
        let hangs = |member: &Member| {
            let machine = self.machine(member.node.0);
            machine.health.is_stuck(self.now()) || machine.second.holds_up(record.id, self.now())
        };
        short
            && !record.catching_up.iter().any(hangs)
            && self.is_shared_sound()
            && record.in_sync.iter().all(|member| takes(&member.node.0))
            && !self.is_closed_for_good(record)
            && (1..=self.plan.nodes).filter(takes).count() >= least
    }

    /// True if a partition is served, and every node that does not count has been sound for long enough to be
    /// heard, and has a whole log of which the primary's has all that it lacks: whoever of them is chosen
    /// counts soon (PR-460).
    pub(super) fn reaches_all(&self, record: &PartitionRecord) -> bool {
        let now = self.now();
        let heard = |node: u32| self.faults.soundness.sound_for(node, now) >= HEARD_US;
        let leads = self.machine(record.primary.node.0).process.as_ref();
        let Some(leads) = leads.and_then(|process| process.host.replica(record.id)) else { return false };
        let (log, copies) = (leads.log(), &self.plan.copies);
        let executor = self.plan.executors.of(record.id);
        let reaches = |node: u32| {
            let hangs = self.machine(node).standing.hangs(executor);
            let process = self.machine(node).process.as_ref().filter(|process| process.admitted);
            let Some(replica) = process.and_then(|process| process.host.replica(record.id)) else {
                return false;
            };
            let end = replica.log().end();
            let by_log = !copies.failback_full && log.bytes_above(end.lsn) <= copies.failback_log_bytes;
            let sound = !hangs && replica.is_whole() && !replica.log().is_torn() && !replica.is_shipping();
            sound && by_log && end.lsn >= log.base().lsn && log.holds(end)
        };
        let counts = |node: u32| record.in_sync.iter().any(|member| member.node.0 == node);
        let mut others = (1..=self.plan.nodes).filter(|node| !counts(*node));
        self.is_serving(record)
            && record.next_policy.is_none()
            && record.in_sync.iter().all(|member| heard(member.node.0))
            && others.all(|node| heard(node) && reaches(node))
    }

    /// True if a primary that is not sound must be waited for (PR-85).
    pub(super) fn waits_for_primary(&self, record: &PartitionRecord) -> bool {
        let policies = || std::iter::once(&record.policy).chain(&record.next_policy);
        policies().any(crate::check::wanted::rests_on_primary)
    }

    fn survives_restart(&self, record: &PartitionRecord) -> bool {
        let policies = || std::iter::once(&record.policy).chain(&record.next_policy);
        policies().all(crate::check::wanted::survives_restart)
    }
}
