//! The stages of a run: setting up, faults, healing, converging.

use super::workload::Workload;
use super::{Event, Phase, World};
use crate::check::wanted::rests_on_primary;
use types::policy::Below;
use types::{LogKind, PartitionId};

/// Between two looks at everything.
const POLL_INTERVAL_US: u64 = 100_000;
/// Setting up takes no longer.
const SETUP: u64 = 20_000_000;
/// The faults end after this even if clients are not through.
const FAULTS: u64 = 16_000_000;
/// A healed world converges within this (I13).
pub const CONVERGES: u64 = 45_000_000;
/// Who is sent files under a limit gets the next piece within this.
const PIECE_INTERVAL_US: u64 = 1_000_000;
/// Operations of each client after the healing.
const AFTERWARDS: u64 = 2;

impl World {
    /// Puts the first events into the queue.
    pub(super) fn begin(&mut self) {
        for id in 0..self.plan.controllers {
            self.after(1_000, Event::ControllerStart { id });
        }
        for node in 1..=self.plan.nodes {
            self.start_later(node, 2_000 + u64::from(node) * 100);
        }
        self.after(60_000, Event::Operator);
        self.after(POLL_INTERVAL_US, Event::Inspect);
    }

    /// A look at everything; and on to the next stage if it is time.
    pub(super) fn inspect(&mut self) {
        self.look_at_all(false);
        self.look_at_availability();
        match self.stage.phase() {
            Phase::Setup => self.set_up(),
            Phase::Faults => {
                let through = self.clients.are_done();
                let late = self.now() > self.stage.began() + FAULTS;
                if (through || late) && !self.waits_for_force() {
                    self.heal();
                }
            }
            Phase::Healed => self.converge(),
            Phase::Done => {}
        }
        if self.stage.phase() != Phase::Done {
            self.after(POLL_INTERVAL_US, Event::Inspect);
        }
    }

    fn set_up(&mut self) {
        let all = self.plan.tables.iter().map(|table| table.partitions as usize).sum::<usize>();
        let serving = self.checks.epochs.records().filter(|record| self.is_serving(record)).count();
        if self.control.operator.created() == self.plan.tables.len() && serving == all {
            self.stage.begin(Phase::Faults, self.now());
            self.trace.note(self.now(), format_args!("phase: faults {:?}", self.plan.faults));
            for (id, wait) in Workload::beginnings(&self.plan) {
                self.after(wait, Event::Client { id });
            }
            let wait = self.plan.think_us / 2;
            self.after(wait, Event::InjectFault);
            if !self.plan.own.faults.is_empty() {
                self.after(self.plan.own.think_us / 2, Event::InjectOwn);
            }
            if !self.plan.files.faults.is_empty() {
                self.after(self.plan.files.think_us / 2, Event::InjectFileFault);
            }
            if self.plan.workload.factors {
                self.after(40_000, Event::Factor);
            }
            if self.plan.joins > 0 {
                self.after(100_000, Event::Nodes);
            }
            if self.plan.workload.indexes {
                self.after(20_000, Event::Index);
            }
            if self.plan.workload.forces {
                self.plan_force();
            }
            if self.plan.scrubs {
                self.plan_scrub();
            }
        } else if self.now() > SETUP {
            let created = self.control.operator.created();
            self.checks.fault(
                "I13",
                self.now(),
                format!("after {SETUP} us {created} tables and {serving} partitions serve"),
            );
        }
    }

    /// Faults end; a part of the world that has what is needed is healed, the rest is dead for good.
    fn heal(&mut self) {
        self.stage.begin(Phase::Healed, self.now());
        self.disturbs(None);
        // An operator who makes the records anew waits for all.
        let dead = self.left_dead().filter(|_| !self.control.rebuilding.is_under_way());
        let stuck = self.faults.random().chance(350) || self.plan.hangs_alone;
        self.trace.note(self.now(), format_args!("phase: healed, dead {dead:?}, stuck {stuck}"));
        self.plan.faults.clear();
        self.end_force();
        let deliveries = self.network.heal_all(self.schedule.now());
        self.deliver(deliveries);
        self.heal_control();
        let now = self.now();
        for node in 1..=self.plan.nodes {
            let machine = self.machine_mut(node);
            let stood = machine.health.is_stuck(now);
            machine.health.heal(now);
            machine.clock.set_rate(now, 0);
            machine.second.answers();
            machine.disk.set_trouble(|trouble| *trouble = Default::default());
            let (paused, stalled) = (machine.standing.is_paused(), machine.standing.is_stalled());
            let hung = machine.standing.has_hung();
            self.machines.files_mut().trouble(node).end();
            let other_build = self.machine(node).starts.are_of_other_build();
            if dead == Some(node) && stuck && !other_build {
                // Its heartbeats go on and its disk does nothing, for ever (F19).
                self.machine_mut(node).health.hang();
            } else if dead == Some(node) {
                self.end(node, super::machines::End::Power);
                self.machine_mut(node).starts.dies();
                continue;
            }
            self.end_other_build(node);
            if stood {
                self.end_sync(node);
            }
            if paused {
                self.cure(crate::event::Cure::Resume(node));
            }
            if stalled {
                self.cure(crate::event::Cure::Unstall(node));
            }
            if hung {
                self.cure(crate::event::Cure::Executor(node));
            }
            if self.machine(node).process.is_none() && !self.machine(node).starts.is_removed() {
                self.start_later(node, 1_000);
            }
        }
        self.clients.go_on(AFTERWARDS);
    }

    /// A disk that did nothing goes on: what it was to sync is synced now, and not when it would have been.
    fn end_sync(&mut self, node: u32) {
        let machine = self.machine(node);
        let process = machine.process.as_ref().filter(|_| !machine.health.hangs());
        if let Some(process) = process.filter(|process| process.logs.is_syncing()) {
            let incarnation = process.incarnation;
            self.after(1_000, Event::Synced { node, incarnation });
        }
    }

    /// A node that the others can do without, or none.
    fn left_dead(&mut self) -> Option<u32> {
        let node = 1 + self.faults.random().below(u64::from(self.plan.nodes)) as u32;
        let spare = self.faults.random().chance(400) && self.plan.nodes > 2;
        let alone = |record: &&types::PartitionRecord| {
            self.plan.hangs_alone && rests_on_primary(&record.policy) && record.in_sync.len() > 1
        };
        let led = self.checks.epochs.records().find(alone).map(|record| record.primary.node.0);
        let (node, spare) = led.map_or((node, spare), |led| (led, self.plan.nodes > 2));
        let now = self.now();
        let needless = |record: &types::PartitionRecord| {
            // One that is being removed gives its copies away.
            let stays = |other: &u32| !self.is_removed(*other) && !self.is_decommissioning(*other);
            let others = (1..=self.plan.nodes).filter(|other| *other != node && stays(other));
            // A drained node is given no copy in the place of one that is dead or hangs, unless it has a
            // place there itself.
            let table = self.control.records.table(record.table);
            let row = table.map(|table| &table.placement[(record.id.0 - table.first_partition.0) as usize]);
            let placed = |node: &types::NodeId| row.is_some_and(|row| row.contains(node));
            let takes = |other: &u32| {
                let node = types::NodeId(*other);
                !self.control.records.is_drained(node) || !self.plan.loses_later && placed(&node)
            };
            let others = others.filter(takes).count() as u32;
            let holds = record.in_sync.iter().any(|member| member.node.0 == node);
            // What a backup asked for may be recorded once it is dead: whom it misses counts no more (N6).
            let sealed = record.primary.node.0 != node
                && self.checks.epochs.may_be_sealed(now, record.id, record.primary);
            let rest_is_sound = self.needs_nobody_before(record)
                && record.next_policy.is_none()
                && !sealed
                && record.in_sync.iter().any(|member| {
                    let machine = self.machine(member.node.0);
                    machine.id != node && machine.member() == Some(*member) && !machine.health.is_impaired()
                });
            let alone = rests_on_primary(&record.policy) && record.primary.node.0 == node;
            // Its disk hangs, and others take over what is there (PR-300).
            let alone = alone && !(self.plan.hangs_alone && record.in_sync.len() > 1);
            // What the table is to be comes to the record later, and must be met without this node too.
            let wanted = self.control.records.table(record.table).map(|table| &table.policy);
            let mut policies = std::iter::once(&record.policy).chain(&record.next_policy).chain(wanted);
            let enough = policies
                .all(|policy| policy.below == Below::Available || others >= u32::from(policy.min_in_sync));
            enough && !alone && (!holds || rest_is_sound) && record.policy.log == LogKind::Disk
        };
        // What a primary has asked for may be recorded once it is dead, and counts until then (N3).
        let follows = |next: &&types::PartitionRecord| {
            let newest = self.checks.epochs.newest(next.id);
            newest.is_some_and(|record| record.epoch.next() == next.epoch)
        };
        let asked = self.control.proposed.values().flatten().filter(follows);
        (spare && self.checks.epochs.records().chain(asked).all(needless)).then_some(node)
    }

    /// Until when it must have converged. Files are sent no faster than the budget lets them: what that took
    /// the busiest sender counts beside, up to three times as much: replicas may have to move one by one. All
    /// of that is there while pieces come.
    fn converges_until(&self) -> u64 {
        let rate = self.plan.copies.ship_bytes_per_second;
        let took = (self.stage.most_files() * 1_000_000).checked_div(rate).unwrap_or(0);
        let comes = |piece: u64| rate > 0 && self.now() < piece + PIECE_INTERVAL_US;
        let extra = match self.checks.availability.last_piece().is_some_and(comes) {
            true => 3 * CONVERGES,
            false => took.min(3 * CONVERGES),
        };
        self.stage.began() + CONVERGES + extra
    }

    fn converge(&mut self) {
        let missing = self.what_is_missing().or_else(|| self.what_is_wanted()).or_else(|| self.ask_again());
        let missing = missing.map(|missing| ("I13", missing));
        let missing = missing.or_else(|| Some(("I8", self.left_of_ships()?)));
        let missing = missing.or_else(|| Some(("PR-253", self.missing_commits()?)));
        let missing = missing.or_else(|| Some(("PR-290", self.kept_commits()?)));
        let missing = missing.or_else(|| Some(("I13", self.uneven_catalogs()?)));
        let missing = missing.or_else(|| Some(("I13", self.uneven_tables()?)));
        let missing = missing.or_else(|| Some(("PR-374", self.missing_turns()?)));
        if missing.is_none() {
            self.look_at_all(true);
            self.check_tables();
            self.check_indexes_of_commits();
            self.check_claims_of_states();
            self.check_calls();
            self.stage.begin(Phase::Done, self.now());
            self.trace.note(self.now(), format_args!("phase: converged"));
            self.clients.abandon(self.schedule.now());
            let mut failovers = self.records("failover/");
            failovers.extend(self.control.rebuilding.failovers().iter().cloned());
            self.checks.failovers(&failovers);
            self.check_forced();
            return;
        }
        if self.now() < self.converges_until() {
            return;
        }
        let Some((invariant, missing)) = missing else { return };
        self.stage.begin(Phase::Done, self.now());
        if self.plan.recoverable {
            self.checks.fault(invariant, self.now(), missing);
        } else {
            self.trace.note(self.now(), format_args!("does not converge, as it need not: {missing}"));
            self.clients.abandon(self.schedule.now());
        }
    }

    /// In a healed world every turn at a row ends, also that of who has died: each client gets its own in the
    /// end.
    fn missing_turns(&self) -> Option<String> {
        let waits = self.clients.wait_for_turns();
        let (partition, clients) =
            waits.filter(|(partition, _)| !self.closed_for_good().contains(partition))?;
        Some(format!("{clients} clients get no turn in {partition}"))
    }

    /// In a healed world every client can write in the end: whose last write was given up asks once more.
    fn ask_again(&mut self) -> Option<String> {
        let closed: Vec<PartitionId> = self.closed_for_good();
        let unanswered = self.clients.ask_again(&closed);
        (unanswered > 0).then(|| format!("{unanswered} clients cannot write"))
    }
}
