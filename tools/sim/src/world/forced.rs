//! An operator who goes on without the node that has everything (PR-08, R9): a primary is left alone in its
//! set, acknowledges what nobody else has, and is cut off from everybody. Another node is forced to lead.
//! When the old primary is back, without having been started again, all of it must be in its tails.
//!
//! In some worlds with global transactions another copy stands still before: until what the others have
//! secured is kept nowhere else. That one is made to lead, and its partition lacks what an operator then
//! gives up. In some of these that happens once more; in others the lead is handed to a third copy before
//! the old primary, which is started again, hears of any of it (PR-418). In yet others the partition is that
//! of the transaction manager, and partitions have commits that it lacks then (PR-293, PR-415).
//!
//! Its clients reach it again only when it has heard of the other term: until then it would serve them, alone
//! as it is in its set, as the operator was told.

use super::machines::End;
use super::workload::Workload;
use super::{Event, Phase, World};
use crate::event::{Cure, ForceStep};
use crate::faults::Fault;
use crate::network::Endpoint;
use crate::plan::transactions::Sequel;
use types::config::Cause;
use types::policy::Below;
use types::{LogKind, NodeId, PartitionId, PartitionRecord};
use wire::control::AdminCommand;

/// The others do nothing for so long.
const PAUSES: u64 = 4_000_000;
/// When it should be alone, and has had a while to acknowledge something.
const ALONE: u64 = 3_500_000;
/// For so long one copy stands still before the others do, where it is to lack what these have secured.
const BEHIND: u64 = 3_000_000;
/// Those who have it stand still for so much longer.
const LATE: u64 = 2_000_000;
/// Between two attempts of the operator, and to look whether the old primary knows.
const OPERATOR_POLL_US: u64 = 400_000;
/// How long it is cut off from the others.
const AWAY: u64 = 2_500_000;
/// The same where the lead is handed over meanwhile.
const AWAY_LONG: u64 = 6_000_000;
/// What comes of it is waited for so long before the faults end, where it must come to it.
const SETTLES: u64 = 4_000_000;
/// But no longer than this from their begin on.
const LATEST: u64 = 36_000_000;

impl World {
    /// The first step, some time after the faults have begun.
    pub(super) fn plan_force(&mut self) {
        let wait = self.faults.forced.random().between(200_000, 4_000_000);
        self.after(wait, Event::Force(ForceStep::Begin));
    }

    /// The next step.
    pub(super) fn force(&mut self, step: ForceStep) {
        match step {
            ForceStep::Begin if self.stage.phase() == Phase::Faults => self.begin_force(),
            ForceStep::Behind(partition, node) if self.stage.phase() == Phase::Faults => {
                self.go_on_without(partition, node)
            }
            ForceStep::Behind(..) => self.faults.forced.give_up(),
            ForceStep::Cut(partition, node) if self.stage.phase() == Phase::Faults => {
                self.cut_alone(partition, node)
            }
            ForceStep::Force(partition, node) if self.stage.phase() == Phase::Faults => {
                self.ask_force(partition, node)
            }
            ForceStep::Return(partition, node) => self.let_clients(partition, node),
            ForceStep::HandOver(partition) if self.stage.phase() == Phase::Faults => {
                self.hand_over(partition)
            }
            ForceStep::Forget(node) if self.stage.phase() == Phase::Faults => {
                self.befall(Fault::Crash, node);
            }
            _ => {}
        }
    }

    fn begin_force(&mut self) {
        if self.faults.forced.is_under_way() {
            return self.after(OPERATOR_POLL_US, Event::Force(ForceStep::Begin));
        }
        match self.plan.workload.transactions.skips {
            true => self.leave_behind(),
            false => self.leave_alone(),
        }
    }

    /// True if nothing is wrong with a node and its disk.
    fn runs(&self, node: u32) -> bool {
        let machine = self.machine(node);
        machine.process.is_some() && machine.standing.goes_on() && !machine.health.is_impaired()
    }

    /// True if the primary of a partition goes on when nobody else does.
    fn may_be_alone(&self, record: &PartitionRecord) -> bool {
        let policy = &record.policy;
        let alone = policy.below == Below::Available || policy.min_in_sync == 1;
        alone
            && policy.log == LogKind::Disk
            && record.next_policy.is_none()
            && record.before.as_ref().is_none_or(|_| self.is_serving(record))
            && record.in_sync.len() > 1
            && record.members().all(|member| self.runs(member.node.0))
    }

    /// One copy of a partition that global transactions write stands still until what the others have secured
    /// is kept nowhere else.
    fn leave_behind(&mut self) {
        let written = &self.checks.lineage.transactional().written;
        let before = self.faults.forced.last_partition();
        let fits = |record: &&PartitionRecord| {
            let again = before.is_none_or(|before| before == record.id);
            again && written.contains(&record.id) && record.in_sync.len() > 2 && self.may_be_alone(record)
        };
        let records: Vec<PartitionRecord> = self.checks.epochs.records().filter(fits).cloned().collect();
        let Some(record) = self.faults.forced.random().pick(&records).cloned() else {
            return self.after(OPERATOR_POLL_US, Event::Force(ForceStep::Begin));
        };
        let others = record.in_sync.iter().filter(|member| **member != record.primary);
        let others: Vec<u32> = others.map(|member| member.node.0).collect();
        let Some(behind) = self.faults.forced.random().pick(&others).copied() else { return };
        self.faults.forced.begin();
        self.faults.forced.choose(behind);
        self.trace.note(self.now(), format_args!("force: n{behind} is left behind with p{}", record.id.0));
        self.machine_mut(behind).standing.pause();
        self.after(BEHIND + PAUSES, Event::Cure(Cure::Resume(behind)));
        self.after(BEHIND, Event::Force(ForceStep::Behind(record.id, behind)));
    }

    /// Those who are not behind stand still, but for the primary, and for longer than who is.
    fn go_on_without(&mut self, partition: PartitionId, behind: u32) {
        let is_behind = |record: &&PartitionRecord| {
            let mut others = record.members().filter(|member| member.node.0 != behind);
            !record.in_sync.iter().any(|member| member.node.0 == behind)
                && record.next_policy.is_none()
                && record.in_sync.len() > 1
                && self.is_serving(record)
                && self.machine(behind).standing.is_paused()
                && others.all(|member| self.runs(member.node.0))
        };
        let Some(record) = self.checks.epochs.newest(partition).filter(is_behind).cloned() else {
            // Another fault came between.
            self.faults.forced.give_up();
            return self.after(OPERATOR_POLL_US, Event::Force(ForceStep::Begin));
        };
        self.goes_on_alone(&record, Some(behind));
    }

    /// Everybody else who has a copy stands still: the primary goes on without them.
    fn leave_alone(&mut self) {
        let recovers = self.plan.workload.transactions.recovers;
        let manager = self.checks.lineage.transactional().manager.filter(|_| recovers);
        let fits = |record: &&PartitionRecord| {
            manager.is_none_or(|manager| manager == record.id) && self.may_be_alone(record)
        };
        let records: Vec<PartitionRecord> = self.checks.epochs.records().filter(fits).cloned().collect();
        let Some(record) = self.faults.forced.random().pick(&records).cloned() else {
            return self.after(OPERATOR_POLL_US, Event::Force(ForceStep::Begin));
        };
        self.goes_on_alone(&record, None);
    }

    /// Everybody else stands still, but who stands still already because it is to be `behind`.
    fn goes_on_alone(&mut self, record: &PartitionRecord, behind: Option<u32>) {
        let primary = record.primary.node.0;
        self.faults.forced.begin();
        self.trace.note(self.now(), format_args!("force: n{primary} is left alone with p{}", record.id.0));
        let pauses = if behind.is_some() { PAUSES + LATE } else { PAUSES };
        let others = record.members().filter(|member| **member != record.primary);
        for node in others.map(|member| member.node.0).filter(|node| Some(*node) != behind) {
            self.machine_mut(node).standing.pause();
            self.after(pauses, Event::Cure(Cure::Resume(node)));
        }
        // What is in files then may not be in the log any more.
        if self.faults.forced.random().chance(650) {
            let incarnation = self.machine(primary).incarnation().unwrap_or_default();
            let flush = Event::Component { node: primary, incarnation, partition: record.id };
            self.after(ALONE - OPERATOR_POLL_US, flush);
        }
        self.after(ALONE, Event::Force(ForceStep::Cut(record.id, primary)));
    }

    /// It is cut off, if it is alone.
    fn cut_alone(&mut self, partition: PartitionId, node: u32) {
        self.faults.forced.give_up();
        let Some(record) = self.checks.epochs.newest(partition) else { return };
        let alone = record.primary.node.0 == node && record.in_sync.len() == 1;
        if !alone || self.machine(node).process.is_none() || !self.is_serving(&record.clone()) {
            return;
        }
        self.trace.note(self.now(), format_args!("force: n{node} is cut off"));
        self.injected("left-alone");
        let away = match self.plan.workload.transactions.sequel {
            Sequel::HandOver => AWAY_LONG,
            Sequel::None | Sequel::Again => AWAY,
        };
        let here = Endpoint::Node(node);
        for other in self.others_of(node).into_iter().chain(self.clients_of()) {
            for (from, to) in [(here, other), (other, here)] {
                self.network.cut(from, to);
                if !matches!(other, Endpoint::Client(_)) {
                    self.after(away, Event::Cure(Cure::Link(from, to)));
                }
            }
        }
        self.faults.forced.cut_off(node);
        self.after(PAUSES - ALONE + OPERATOR_POLL_US, Event::Force(ForceStep::Force(partition, node)));
        self.after(away + OPERATOR_POLL_US, Event::Force(ForceStep::Return(partition, node)));
    }

    fn others_of(&self, node: u32) -> Vec<Endpoint> {
        let nodes = (1..=self.plan.nodes).filter(|other| *other != node).map(Endpoint::Node);
        nodes.chain((0..self.plan.controllers).map(Endpoint::Controller)).collect()
    }

    /// Those that take points, load and run jobs among them.
    fn clients_of(&self) -> impl Iterator<Item = Endpoint> + use<> {
        Workload::ids(&self.plan).map(Endpoint::Client)
    }

    /// The operator has another node lead, and asks again until one does.
    fn ask_force(&mut self, partition: PartitionId, node: u32) {
        let Some(record) = self.checks.epochs.newest(partition) else { return };
        if record.primary.node.0 != node || !self.faults.forced.is_away(node) {
            return;
        }
        let others: Vec<u32> = (1..=self.plan.nodes).filter(|other| *other != node).collect();
        let named = self.faults.forced.random().chance(500);
        let named = self.faults.forced.random().pick(&others).copied().filter(|_| named);
        let named = self.faults.forced.chosen().or(named);
        self.ask(AdminCommand::Force { partition, node: named.map(NodeId) });
        self.after(OPERATOR_POLL_US, Event::Force(ForceStep::Force(partition, node)));
    }

    /// A record was written.
    pub(super) fn note_forced(&mut self, record: &PartitionRecord) {
        if record.cause != Cause::Forced || record.term.began() != record.epoch {
            return;
        }
        self.injected("forced");
        if self.checks.lineage.transactional().manager == Some(record.id) {
            self.injected("manager-forced");
        }
        self.checks.survival.forced(self.now(), record.id, record.term);
        let Some(old) = record.before.as_ref().map(|old| old.primary.node.0) else { return };
        let times = self.faults.forced.done(self.now(), record.id, old);
        match (self.plan.workload.transactions.sequel, times) {
            (Sequel::Again, 1) => self.after(OPERATOR_POLL_US, Event::Force(ForceStep::Begin)),
            (Sequel::Again, _) => self.injected("forced-again"),
            (Sequel::HandOver, 1) => {
                // It remembers no more then what all had secured.
                self.after(1_000, Event::Force(ForceStep::Forget(old)));
                self.after(OPERATOR_POLL_US, Event::Force(ForceStep::HandOver(record.id)));
            }
            _ => {}
        }
    }

    /// Who was made to lead hands the lead to another one that counts, once there is one.
    fn hand_over(&mut self, partition: PartitionId) {
        let Some(record) = self.checks.epochs.newest(partition) else { return };
        let forced = self.checks.survival.last_forced(partition);
        if forced.is_some_and(|(_, term)| term < record.term) {
            return self.injected("forced-and-followed");
        }
        if record.in_sync.len() > 1 {
            self.ask(AdminCommand::Switchover { partition: Some(partition), to: None });
        }
        self.after(OPERATOR_POLL_US, Event::Force(ForceStep::HandOver(partition)));
    }

    /// True while something is to come of an operator's promotions that the faults go on for, although
    /// clients are through.
    pub(super) fn waits_for_force(&self) -> bool {
        let planned = self.plan.workload.transactions;
        let times = match planned.sequel {
            Sequel::None if !planned.recovers => return false,
            Sequel::None | Sequel::HandOver => 1,
            Sequel::Again => 2,
        };
        let (now, latest) = (self.now(), self.stage.began() + LATEST);
        now < latest && self.faults.forced.is_to_come(now, times, SETTLES)
    }

    /// Whoever was cut off knows of what came after it, or is another by now: its clients may come.
    fn let_clients(&mut self, partition: PartitionId, node: u32) {
        let Some(newest) = self.checks.epochs.newest(partition) else { return };
        let knows = self.machine(node).process.as_ref().is_none_or(|process| {
            let record = process.host.replica(partition).and_then(|replica| replica.record());
            record.is_none_or(|record| record.term >= newest.term || record.primary.node.0 != node)
        });
        if !knows && self.stage.phase() == Phase::Faults {
            return self.after(OPERATOR_POLL_US, Event::Force(ForceStep::Return(partition, node)));
        }
        self.faults.forced.is_back(node);
        let here = Endpoint::Node(node);
        for client in self.clients_of() {
            for (from, to) in [(here, client), (client, here)] {
                let deliveries = self.network.heal(self.now(), from, to);
                self.deliver(deliveries);
            }
        }
    }

    /// The faults are over. Who does not know yet that another leads is started again, so that no client is
    /// served by both.
    pub(super) fn end_force(&mut self) {
        if let Some(node) = self.faults.forced.take_away() {
            self.end(node, End::Crash);
        }
    }

    /// R9: what was acknowledged by those who were put aside, and is lost, is in their tails, and failovers'
    /// reports name these.
    pub(super) fn check_forced(&mut self) {
        for (partition, node) in self.faults.forced.take_done() {
            let machine = self.machine(node);
            let member = machine.member().filter(|_| !machine.health.is_impaired());
            let newest = self.checks.epochs.newest(partition);
            let counts = newest.zip(member).is_some_and(|(record, member)| record.in_sync.contains(&member));
            if counts {
                self.checks.told_of_lost(self.now(), partition, NodeId(node));
            }
        }
    }
}
