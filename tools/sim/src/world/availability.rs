//! I13: a partition that has somebody to serve it is served, also while faults go on, and whoever takes a
//! primary's place does so quickly.

use super::{Phase, World};
use crate::check::availability::Look;
use crate::faults::Fault;
use crate::network::{Endpoint, Lane};
use types::policy::Below;
use types::{Member, PartitionId, PartitionRecord};

impl World {
    /// Looks at who is served.
    pub(super) fn look_at_availability(&mut self) {
        self.look_for_trouble();
        let look = |record: &PartitionRecord| (record.id, self.look_at_partition(record));
        let looks: Vec<(PartitionId, Look)> = self.checks.epochs.records().map(look).collect();
        let now = self.now();
        for (id, look) in looks {
            let verdict = self.checks.availability.look(id, now, look);
            self.checks.expect("I13", now, verdict);
        }
        self.look_at_blocked();
        self.look_at_failovers();
    }

    /// Partitions that acknowledge nothing for want of a copy, although there are sound nodes enough.
    fn look_at_blocked(&mut self) {
        let now = self.now();
        let hit = self.faults.soundness.last_hit(1..=self.plan.nodes);
        let look = |record: &PartitionRecord| {
            let blocked = self.waits_for_copy(record);
            (record.id, blocked, blocked && !self.installs_load(record) && self.reaches_all(record))
        };
        let looks: Vec<(PartitionId, bool, bool)> = self.checks.epochs.records().map(look).collect();
        for (id, blocked, reached) in looks {
            let verdict = self.checks.availability.look_blocked(id, now, blocked, hit);
            self.checks.expect("I13", now, verdict);
            let verdict = self.checks.availability.look_reached(id, now, reached, hit);
            self.checks.expect("I13", now, verdict);
        }
    }

    fn look_at_partition(&self, record: &PartitionRecord) -> Look {
        let healed = self.stage.phase() == Phase::Healed && self.plan.recoverable;
        let could = healed && self.could_be_served(record) || self.should_be_served(record);
        let hit = self.faults.soundness.last_hit(record.members().map(|member| member.node.0));
        // That a disk does nothing shows only once it has something to do, perhaps the marker of a term that
        // was just handed over; and a young term has the benefit of the doubt (F19).
        let machine = self.machine(record.primary.node.0);
        // An executor that hangs is given up after half a second, and missed behind that (N18).
        let hung = machine.standing.hangs(self.plan.executors.of(record.id));
        let inside = machine.second.holds_up(record.id, self.now());
        let hangs = machine.health.is_stuck(self.now()) || hung || inside;
        let waits = hangs || self.waits_for_primary(record) || self.installs_load(record);
        // Its heartbeats do not name the partition, and others can take over without waiting (PR-456).
        let unvouched = inside && self.unvouched(record.primary.node.0).contains(&record.id);
        let serves = self.is_serving(record) && (!unvouched || self.waits_for_primary(record));
        Look { closed: could && !serves, hit, waits, serves }
    }

    /// True if every member that is in sync runs or never will, and they are enough. Where a copy is lacking,
    /// that is another matter ([`World::look_at_blocked`]).
    fn could_be_served(&self, record: &PartitionRecord) -> bool {
        let comes = |member: &Member| {
            let machine = self.machine(member.node.0);
            machine.process.is_none() && !machine.starts.is_dead()
        };
        let strict = record.policy.below == Below::Strict;
        let short = strict && record.in_sync.len() < usize::from(record.policy.min_in_sync);
        !self.is_closed_for_good(record) && !record.in_sync.iter().any(comes) && !short
    }

    /// The partitions that this node leads and serves.
    pub(super) fn served_by(&self, node: u32) -> Vec<PartitionRecord> {
        let led = |record: &&PartitionRecord| record.primary.node.0 == node && self.is_serving(record);
        self.checks.epochs.records().filter(led).cloned().collect()
    }

    /// A fault has befallen a node, or all, and taken the primary of these partitions: if the others can do
    /// without, another is to serve them soon.
    pub(super) fn note_fault(&mut self, fault: Fault, node: u32, led: &[PartitionRecord]) {
        self.disturbs(fault.is_of_one().then_some(node));
        if !fault.takes_primary() {
            return;
        }
        self.look_for_trouble();
        let now = self.now();
        for record in led {
            let others_do = self.should_be_served(record) && !self.faults.soundness.is_sound(node);
            if others_do && !self.waits_for_primary(record) {
                self.checks.availability.takes(record.id, now, record.term);
            }
        }
    }

    /// Of partitions whose primary was taken: whether another serves in time, if nothing else befalls them.
    fn look_at_failovers(&mut self) {
        let taken: Vec<_> = self.checks.availability.taken().collect();
        let now = self.now();
        for (id, term) in taken {
            let Some(newest) = self.checks.epochs.newest(id).cloned() else { continue };
            let old = self.checks.epochs.get(id, term.began()).map(|record| record.primary);
            let ended =
                newest.term > term || old.is_none_or(|old| !self.faults.soundness.is_sound(old.node.0));
            let back = newest.term == term && self.goes_on_serving(&newest);
            let takes_longer = self.installs_load(&newest) || self.waits_for_slow(&newest);
            if ended && !back && self.should_be_served(&newest) && !takes_longer {
                let verdict = self.checks.availability.waits(id, now);
                self.checks.expect("I13", now, verdict);
            } else {
                self.checks.availability.forget(id);
            }
        }
    }

    /// True if a member of the set stands still although it is heard, is heard late, or is reached by nothing
    /// but heartbeats: it takes longer to give that up than one that is silent.
    fn waits_for_slow(&self, record: &PartitionRecord) -> bool {
        let counts = |end: Endpoint| record.in_sync.iter().any(|member| Endpoint::Node(member.node.0) == end);
        let concerns = |(from, to)| counts(from) && counts(to);
        let late = self.network.clogged().any(concerns) || self.network.half_cut().any(concerns);
        late || record.in_sync.iter().any(|member| {
            let machine = self.machine(member.node.0);
            machine.process.is_some()
                && (machine.standing.is_stalled()
                    || machine.standing.has_hung()
                    || machine.second.holds_up(record.id, self.now())
                    || machine.health.is_stuck(self.now()))
        })
    }

    /// True if the primary has a bulk load in its log whose files are not part of its engine's yet: what
    /// comes behind it is not committed before they are (PR-39), which takes two of the engine's jobs.
    fn installs_load(&self, record: &PartitionRecord) -> bool {
        let process = self.machine(record.primary.node.0).process.as_ref();
        let replica = process.and_then(|process| process.host.replica(record.id));
        replica.is_some_and(|replica| replica.engine().pending_load().is_some())
    }

    /// True if the primary is there again, reaches all members that count, and serves: whatever else is wrong
    /// with it, and although a copy that does not count is cut off.
    /// One whose heartbeats alone reach them is missed by nobody, and must tell a controller that it cannot
    /// go on: if it reaches none, it leads on.
    fn goes_on_serving(&self, record: &PartitionRecord) -> bool {
        let node = Endpoint::Node(record.primary.node.0);
        let counts = |end: Endpoint| record.in_sync.iter().any(|member| Endpoint::Node(member.node.0) == end);
        let concerns = |(from, to)| from == node && counts(to) || to == node && counts(from);
        let reaches = !self.network.troubled().any(concerns);
        let is_heard = !self.network.troubled_on(Lane::Heartbeat).any(concerns);
        let mut controllers = (0..self.plan.controllers).map(Endpoint::Controller);
        let is_alone = !controllers.any(|other| self.network.reachable(node, other, Lane::Control));
        let goes_on = self.machine(record.primary.node.0).standing.goes_on();
        goes_on && (reaches || is_heard && is_alone) && self.is_serving(record)
    }

    /// A fault befalls a node, or everything: how long failovers under way take says nothing any more.
    pub(super) fn disturbs(&mut self, node: Option<u32>) {
        let now = self.now();
        match node {
            Some(node) => self.faults.soundness.hits(node, now),
            None => self.faults.soundness.hits_all(now),
        }
        let taken: Vec<_> = self.checks.availability.taken().collect();
        for (id, _) in taken {
            let record = self.checks.epochs.newest(id);
            let concerns =
                |node| record.is_some_and(|record| record.members().any(|member| member.node.0 == node));
            if node.is_none_or(concerns) {
                self.checks.availability.forget(id);
            }
        }
    }
}
