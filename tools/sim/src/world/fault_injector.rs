//! When which fault strikes, whom, and when it is over.

use super::machines::End;
use super::{Event, Phase, World};
use crate::event::Cure;
use crate::faults::Fault;
use crate::network::{Endpoint, Lane};
use crate::plan::Part;
use types::{LogKind, NodeId, PartitionId, PartitionRecord};
use wire::control::{AdminCommand, AlterTable};

impl World {
    /// The next fault, of a class that is switched on, on whom it may befall.
    pub(super) fn inject(&mut self) {
        if self.stage.phase() != Phase::Faults {
            return;
        }
        let think = self.plan.think_us;
        let wait = think / 4 + self.faults.random().below(think * 3 / 2);
        self.after(wait, Event::InjectFault);
        let classes: Vec<Fault> = self.plan.faults.iter().copied().collect();
        let Some(fault) = self.faults.random().pick(&classes).copied() else { return };
        let node = match (self.victim(), fault) {
            (node, Fault::DirectoryLoss) => {
                if self.faults.random().chance(600) && self.inject_alone() {
                    return;
                }
                self.next_with_second(node)
            }
            (node, _) => node,
        };
        self.befall(fault, node);
    }

    /// A fault befalls a node, if it may. False if not.
    pub(super) fn befall(&mut self, fault: Fault, node: u32) -> bool {
        let led = self.served_by(node);
        let happens = self.inflict(fault, node);
        if happens {
            self.note_fault(fault, node, &led);
            self.injected(fault.name());
            self.trace.note(self.now(), format_args!("fault: {fault}, n{node}"));
            self.scrub_after(fault);
        }
        happens
    }

    /// Whom the next fault concerns: a primary more often than not.
    fn victim(&mut self) -> u32 {
        let leading: Vec<u32> = self.checks.epochs.records().map(|record| record.primary.node.0).collect();
        let random = self.faults.random();
        match random.chance(650) {
            true => random.pick(&leading).copied().unwrap_or(1),
            false => 1 + random.below(u64::from(self.plan.nodes)) as u32,
        }
    }

    /// Lets a fault happen, if it may. False if not.
    fn inflict(&mut self, fault: Fault, node: u32) -> bool {
        if fault.forgets() && !self.may_forget(node, fault)
            || fault.faults_disk() && !self.may_lose_disk(node)
        {
            return false;
        }
        match fault {
            Fault::Crash | Fault::Power | Fault::PowerAll | Fault::Restart => self.kill(fault, node),
            Fault::Pause | Fault::Stall => self.stop_for_a_while(fault, node),
            Fault::DirectoryLoss => self.lose_second(node),
            Fault::DiskLoss
            | Fault::SyncFails
            | Fault::Rot
            | Fault::QuietRot
            | Fault::ReadFlip
            | Fault::Misdirect
            | Fault::Full
            | Fault::SlowDisk
            | Fault::StuckDisk => self.trouble_disk(fault, node),
            Fault::LsmFull | Fault::LsmSyncFails | Fault::FewFiles => self.trouble_trees(fault, node),
            Fault::ClockRate | Fault::ClockJump => self.trouble_clock(fault, node),
            Fault::Cut | Fault::CutOneWay | Fault::Isolate | Fault::Clog => self.trouble_links(fault, node),
            Fault::CutLane | Fault::HalfHealed => self.trouble_lanes(fault, node),
            Fault::Loss | Fault::Duplication | Fault::Delay | Fault::Reorder | Fault::Break => {
                self.change_weather(fault)
            }
            Fault::ControllerCrash
            | Fault::MetaDown
            | Fault::MetaSlow
            | Fault::MetaLost
            | Fault::MetaStale
            | Fault::TwoLead => self.trouble_control(fault),
            Fault::Switchover | Fault::Drain | Fault::Alter => self.cut_or_isolate(fault, node),
            Fault::ReadFails
            | Fault::FewLogFiles
            | Fault::LogCut
            | Fault::GiveUp
            | Fault::GoBack
            | Fault::OldController
            | Fault::Cloned
            | Fault::OtherBuild
            | Fault::ExecutorHangs
            | Fault::RecordsLost
            | Fault::Rivals
            | Fault::Strand
            | Fault::MetaFull
            | Fault::MetaSyncFails
            | Fault::LogWriteFails
            | Fault::EngineCut
            | Fault::RecordsCut
            | Fault::SecondHangs => unreachable!("{fault} has a rhythm of its own"),
        }
    }

    fn kill(&mut self, fault: Fault, node: u32) -> bool {
        let quick = self.faults.random().chance(400);
        let wait = if quick { 20_000 } else { 150_000 };
        let wait = wait + self.faults.random().below(if quick { 100_000 } else { 2_500_000 });
        match fault {
            Fault::PowerAll => {
                for node in 1..=self.plan.nodes {
                    self.end(node, End::Power);
                    let later = wait + self.faults.random().below(1_500_000);
                    self.start_later(node, later);
                }
                if self.faults.random().chance(500) {
                    self.meta_down(wait, true);
                }
                return true;
            }
            Fault::Power => self.end(node, End::Power),
            Fault::Restart => self.end(node, End::Clean),
            _ => self.end(node, End::Crash),
        }
        self.start_later(node, wait);
        true
    }

    fn stop_for_a_while(&mut self, fault: Fault, node: u32) -> bool {
        let long = self.faults.random().chance(600);
        let us = if long {
            self.faults.random().between(200_000, 2_500_000)
        } else {
            self.faults.random().between(10_000, 200_000)
        };
        let machine = self.machine_mut(node);
        if machine.process.is_none() || !machine.standing.goes_on() {
            return false;
        }
        match fault {
            Fault::Pause => {
                machine.standing.pause();
                self.after(us, Event::Cure(Cure::Resume(node)));
            }
            _ => {
                machine.standing.stall();
                self.after(us, Event::Cure(Cure::Unstall(node)));
            }
        }
        true
    }

    fn trouble_disk(&mut self, fault: Fault, node: u32) -> bool {
        let now = self.now();
        let us = self.faults.random().between(100_000, 3_000_000);
        let wait = self.faults.random().between(50_000, 1_500_000);
        let disk = self.machine(node).disk.clone();
        match fault {
            Fault::DiskLoss => {
                self.replace_disk(node);
                self.start_later(node, wait);
            }
            Fault::SyncFails => {
                disk.set_trouble(|trouble| trouble.fail_sync = true);
            }
            Fault::Rot => {
                let what = if self.faults.random().chance(700) { "log/" } else { "snapshot/" };
                let rots = (what == "snapshot/" && self.machines.files_mut().rot(node)) || disk.rot(what);
                if !rots {
                    return false;
                }
                self.faults(node);
                // Rot is found when the disk is read: at the next start.
                self.end(node, End::Crash);
                self.start_later(node, wait);
            }
            Fault::QuietRot => {
                if !self.machines.files_mut().rot(node) && !disk.rot("snapshot/") {
                    return false;
                }
                self.faults(node);
            }
            Fault::ReadFlip => {
                self.end(node, End::Crash);
                disk.set_trouble(|trouble| trouble.flip_read = true);
                self.faults(node);
                self.start_later(node, wait);
            }
            Fault::Misdirect => {
                disk.set_trouble(|trouble| trouble.misdirect = true);
                self.faults(node);
            }
            Fault::Full => {
                disk.set_trouble(|trouble| trouble.full = true);
                self.after(us, Event::Cure(Cure::Room(node)));
            }
            Fault::SlowDisk => {
                let slow = self.faults.random().between(20_000, 400_000);
                self.machine_mut(node).health.slow_down(slow);
                self.after(us, Event::Cure(Cure::Fast(node)));
            }
            _ => self.machine_mut(node).health.stick_until(now + us),
        }
        true
    }

    /// A tail is to be set aside: where disks fill up, this one does so now and then just before.
    pub(super) fn fill_for_tail(&mut self, node: u32) {
        let may = self.stage.phase() == Phase::Faults && self.plan.faults.contains(&Fault::Full);
        if may && self.faults.random().chance(300) {
            let us = self.faults.random().between(100_000, 3_000_000);
            self.machine(node).disk.set_trouble(|trouble| trouble.full = true);
            self.after(us, Event::Cure(Cure::Room(node)));
            self.disturbs(Some(node));
            self.injected("full-for-tail");
        }
    }

    fn trouble_clock(&mut self, fault: Fault, node: u32) -> bool {
        let now = self.now();
        let random = self.faults.random();
        if fault == Fault::ClockJump {
            let ms = random.between(0, 600_000) as i64 - 300_000;
            self.machine_mut(node).clock.jump(ms);
            return true;
        }
        let most = self.settings.drift_permille * 1000 - 1000;
        let rate = self.faults.random().between(0, 2 * most) as i64 - most as i64;
        let us = self.faults.random().between(500_000, 8_000_000);
        self.machine_mut(node).clock.set_rate(now, rate);
        self.after(us, Event::Cure(Cure::Rate(node)));
        true
    }

    fn everybody(&self) -> Vec<Endpoint> {
        let nodes = (1..=self.plan.nodes).map(Endpoint::Node);
        let controllers = (0..self.plan.controllers).map(Endpoint::Controller);
        nodes.chain(controllers).chain((0..self.plan.workload.clients).map(Endpoint::Client)).collect()
    }

    fn trouble_links(&mut self, fault: Fault, node: u32) -> bool {
        let us = self.faults.random().between(50_000, 3_000_000);
        let here = Endpoint::Node(node);
        let mut others: Vec<Endpoint> = self.everybody().into_iter().filter(|other| *other != here).collect();
        let clients_too = self.faults.random().chance(500);
        match fault {
            Fault::Isolate => others.retain(|other| clients_too || !matches!(other, Endpoint::Client(_))),
            Fault::Clog => others.retain(|_| self.faults.random().chance(500)),
            _ => {
                others.retain(|other| !matches!(other, Endpoint::Client(_)));
                let kept = 1 + self.faults.random().below(others.len() as u64) as usize;
                while others.len() > kept {
                    let at = self.faults.random().below(others.len() as u64) as usize;
                    others.remove(at);
                }
            }
        }
        let outwards = self.faults.random().chance(500);
        for other in others {
            for (from, to) in [(here, other), (other, here)] {
                match fault {
                    Fault::Clog => self.network.clog(from, to, us / 8),
                    Fault::CutOneWay if (from == here) != outwards => continue,
                    _ => self.network.cut(from, to),
                }
                self.after(us, Event::Cure(Cure::Link(from, to)));
            }
        }
        true
    }

    /// Some kinds of connections carry nothing, others do.
    fn trouble_lanes(&mut self, fault: Fault, node: u32) -> bool {
        let here = Endpoint::Node(node);
        let us = self.faults.random().between(300_000, 3_000_000);
        let soon = self.faults.random().between(140_000, 500_000);
        let lane =
            *self.faults.random().pick(&[Lane::Peer, Lane::Heartbeat, Lane::Control]).expect("not empty");
        for other in self.everybody() {
            let lanes: &[(Lane, u64)] = match (other, fault) {
                (Endpoint::Node(id), Fault::HalfHealed) if id != node => {
                    &[(Lane::Peer, us), (Lane::Heartbeat, soon)]
                }
                (Endpoint::Node(id), _) if id != node && lane != Lane::Control => &[(lane, us)],
                (Endpoint::Controller(_), Fault::HalfHealed) => &[(Lane::Control, us)],
                (Endpoint::Controller(_), _) if lane == Lane::Control => &[(lane, us)],
                _ => continue,
            };
            if fault == Fault::CutLane && self.faults.random().chance(400) {
                continue;
            }
            for (lane, us) in lanes {
                for (from, to) in [(here, other), (other, here)] {
                    self.network.cut_lane(from, to, *lane);
                    self.after(*us, Event::Cure(Cure::LaneLink(from, to, *lane)));
                }
            }
        }
        true
    }

    fn change_weather(&mut self, fault: Fault) -> bool {
        let random = self.faults.random();
        let weather = self.network.weather_mut();
        match fault {
            Fault::Loss => weather.loss = random.between(5, 150),
            Fault::Duplication => weather.duplication = random.between(5, 150),
            Fault::Delay => {
                weather.delay = random.between(5, 200);
                weather.late_us = random.between(2_000, 300_000);
            }
            Fault::Reorder => {
                weather.reorder = true;
                weather.breaks = weather.breaks.max(random.between(1, 6));
            }
            _ => weather.breaks = random.between(1, 12),
        }
        let us = random.between(200_000, 4_000_000);
        self.after(us, Event::Cure(Cure::Weather));
        true
    }

    fn trouble_control(&mut self, fault: Fault) -> bool {
        let us = self.faults.random().between(100_000, 2_500_000);
        let id = self.faults.random().below(u64::from(self.plan.controllers)) as u32;
        match fault {
            Fault::ControllerCrash => {
                self.controller_process_dies(id);
                self.after(us, Event::ControllerStart { id });
            }
            Fault::MetaDown => {
                let power = self.faults.random().chance(500);
                self.meta_down(us, power);
            }
            Fault::MetaSlow => {
                let slow = self.faults.random().between(5_000, 300_000);
                self.control.meta.weather(Some(slow), None);
                self.after(us, Event::Cure(Cure::Meta));
            }
            Fault::MetaLost => {
                let lost = self.faults.random().between(50, 600);
                self.control.meta.weather(None, Some(lost));
                self.after(us, Event::Cure(Cure::Meta));
            }
            Fault::MetaStale => self.control.controllers.stale(id, self.schedule.now() + us),
            _ => {
                self.control.controllers.plans(id, true);
                self.after(us, Event::Cure(Cure::OneLead(id)));
            }
        }
        true
    }

    fn cut_or_isolate(&mut self, fault: Fault, node: u32) -> bool {
        let partitions: Vec<PartitionId> = self.checks.epochs.records().map(|record| record.id).collect();
        let Some(partition) = self.faults.random().pick(&partitions).copied() else { return false };
        let to = self.faults.random().chance(700).then_some(NodeId(node));
        let command = match fault {
            Fault::Switchover => AdminCommand::Switchover { partition: Some(partition), to },
            Fault::Drain => AdminCommand::Drain(NodeId(node)),
            _ => match self.alteration() {
                Some(command) => command,
                None => return false,
            },
        };
        self.ask(command);
        true
    }

    /// Another policy for a table, of those that its log allows.
    pub(super) fn alteration(&mut self) -> Option<AdminCommand> {
        let random = self.faults.random();
        let table = random.pick(&self.plan.tables).filter(|table| table.part != Part::Manager)?;
        let names: &[&str] = match table.log {
            LogKind::Disk => &["async", "semi", "local", "durable", "sync"],
            LogKind::Memory => &["async", "semi", "sync"],
        };
        let policy = random.pick(names)?.to_string();
        let most = u64::from(table.factor.min(2));
        let standby = table.cold.map(|_| super::operator::standby(policy != "sync" && random.chance(500)));
        Some(table.to_be_altered(&AlterTable {
            standby,
            name: table.name.clone(),
            policy: Some(policy),
            min_in_sync: random.chance(300).then(|| random.between(1, most) as u8),
            available: random.chance(300).then(|| random.chance(500)),
            ..AlterTable::default()
        }))
    }

    pub(super) fn cure(&mut self, cure: Cure) {
        match cure {
            Cure::Resume(node) => {
                let deferred = self.machine_mut(node).standing.resume();
                self.go_on(deferred);
            }
            Cure::Unstall(node) => {
                let deferred = self.machine_mut(node).standing.unstall();
                self.go_on(deferred);
            }
            Cure::Executor(node) => self.unhang_executor(node),
            Cure::Fast(node) => self.machine_mut(node).health.speed_up(),
            Cure::Room(node) => self.machine(node).disk.set_trouble(|trouble| trouble.full = false),
            Cure::Reads(node) => self.machine(node).disk.set_trouble(|trouble| trouble.fail_reads = 0),
            Cure::Writes(node) => self.machine(node).disk.set_trouble(|trouble| trouble.fail_writes = 0),
            Cure::Build(node) => self.end_other_build(node),
            Cure::OldDisk(node) => self.replace_old_disk(node),
            Cure::LogFiles(node) => self.machine(node).disk.set_trouble(|trouble| trouble.no_files = 0),
            Cure::OldController => self.stop_old_controller(),
            Cure::MetaRoom => self.control.meta.fill(false),
            Cure::Trees(node) => {
                let trouble = self.machines.files_mut().trouble(node);
                trouble.fill(None);
                trouble.take_files(None);
            }
            Cure::Rate(node) => {
                let now = self.now();
                self.machine_mut(node).clock.set_rate(now, 0);
            }
            // The end of another fault is not what brings an old primary's clients back.
            Cure::Link(from, to) if self.faults.forced.keeps_apart(from, to) => {}
            Cure::Link(from, to) => {
                let deliveries = self.network.heal(self.now(), from, to);
                self.deliver(deliveries);
            }
            Cure::LaneLink(from, to, lane) => {
                let deliveries = self.network.heal_lane(self.now(), from, to, lane);
                self.deliver(deliveries);
            }
            Cure::Weather => *self.network.weather_mut() = Default::default(),
            Cure::Meta => self.control.meta.clear(),
            Cure::OneLead(id) => self.control.controllers.plans(id, false),
            Cure::Directory(node) => self.lose_second_now(node),
        }
    }

    /// What happened to a node while it stood still happens to it now, in order, and before what comes to it
    /// now: connections keep their order.
    pub(super) fn go_on(&mut self, deferred: Vec<Event>) {
        deferred.into_iter().for_each(|event| self.schedule.first(event));
    }

    /// True if a node may forget what is in its memory: in recoverable seeds, what is nowhere else must stay
    /// somewhere.
    pub(super) fn may_forget(&self, node: u32, fault: Fault) -> bool {
        if !self.plan.recoverable {
            return true;
        }
        self.checks.epochs.records().all(|record| {
            let memory = record.policy.log == LogKind::Memory;
            let counts = record.in_sync.iter().any(|member| member.node.0 == node);
            !memory || fault != Fault::PowerAll && (!counts || self.another_has(record, node))
        })
    }

    /// True if a node's disk may go bad: another node must have everything that counts, and no other may be
    /// in doubt.
    pub(super) fn may_lose_disk(&self, node: u32) -> bool {
        if !self.plan.recoverable {
            return true;
        }
        if self.control.rebuilding.is_under_way() {
            return false;
        }
        let others_sound =
            self.machines.iter().all(|machine| machine.id == node || !machine.health.is_impaired());
        others_sound
            && !self.faults.forced.is_under_way()
            && self.checks.epochs.records().all(|record| {
                !record.in_sync.iter().any(|member| member.node.0 == node) || self.another_has(record, node)
            })
    }

    /// True if what the term before left is in the set: there was none, or, in some seeds, the term serves,
    /// so that its marker and all below it are where its policy wants them.
    pub(super) fn needs_nobody_before(&self, record: &PartitionRecord) -> bool {
        record.before.is_none() || self.plan.loses_later && self.is_serving(record)
    }

    /// True if another member of the recorded set is alive in the recorded life, sound and level.
    fn another_has(&self, record: &PartitionRecord, node: u32) -> bool {
        self.needs_nobody_before(record)
            && record.in_sync.iter().any(|member| {
                let machine = self.machine(member.node.0);
                let alive =
                    machine.id != node && machine.member() == Some(*member) && !machine.health.is_impaired();
                alive && machine.process.as_ref().is_some_and(|process| process.reports.damaged().is_empty())
            })
    }
}
