//! Faults with a rhythm of their own: files that cannot be read or opened, or were cut, the metastore's disk,
//! and replicas that an operator gives up.

use super::machines::End;
use super::{Event, Phase, World};
use crate::event::Cure;
use crate::faults::Fault;
use crate::network::Conn;
use types::{Lsn, PartitionRecord};
use wire::{Op, ReadLevel, Request};

/// Where nobody listens.
const NOBODY: Conn = Conn::MAX;

impl World {
    /// The next of them, if the seed has some.
    pub(super) fn inject_own(&mut self) {
        if self.stage.phase() != Phase::Faults {
            return;
        }
        let think = self.plan.own.think_us;
        let wait = think / 4 + self.faults.own().below(think * 3 / 2);
        self.after(wait, Event::InjectOwn);
        let classes: Vec<Fault> = self.plan.own.faults.iter().copied().collect();
        let Some(fault) = self.faults.own().pick(&classes).copied() else { return };
        let node = 1 + self.faults.own().below(u64::from(self.plan.nodes)) as u32;
        let led = self.served_by(node);
        if self.inflict_own(fault, node) {
            self.note_fault(fault, node, &led);
            self.injected(fault.name());
            self.trace.note(self.now(), format_args!("fault: {fault}, n{node}"));
        }
    }

    /// Lets a fault happen, if it may. False if not.
    fn inflict_own(&mut self, fault: Fault, node: u32) -> bool {
        if fault.forgets() && !self.may_forget(node, fault)
            || fault.faults_disk() && !self.may_lose_disk(node)
        {
            return false;
        }
        let us = self.faults.own().between(100_000, 2_500_000);
        match fault {
            Fault::ReadFails => self.fail_reads(node, us),
            Fault::FewLogFiles => self.take_log_files(node, us),
            Fault::LogCut => self.cut_log(node, us),
            Fault::GiveUp => self.give_up(node),
            Fault::GoBack => self.go_back(node, us),
            Fault::RecordsLost => self.lose_records(node),
            Fault::Rivals => self.ask_twice(),
            Fault::Strand => self.strand(),
            Fault::OtherBuild => self.begin_other_build(node, us),
            Fault::ExecutorHangs => self.hang_executor(node, us + 400_000),
            Fault::Cloned => self.copy_disk(node, us),
            Fault::OldController => self.bring_back_old_controller(),
            Fault::MetaFull => {
                self.control.meta.fill(true);
                self.after(us, Event::Cure(Cure::MetaRoom));
                true
            }
            _ => {
                self.control.meta.fail_sync();
                true
            }
        }
    }

    /// Some reads of the log fail, at a start or while the process runs. What is on the disk stays right.
    fn fail_reads(&mut self, node: u32, us: u64) -> bool {
        let reads = 1 + self.faults.own().below(6) as u32;
        let at_start = self.faults.own().chance(500);
        if at_start {
            self.end(node, End::Crash);
        }
        self.faults_soundly(node);
        self.machine(node).disk.set_trouble(|trouble| trouble.fail_reads = reads);
        self.after(us, Event::Cure(Cure::Reads(node)));
        if at_start {
            self.start_later(node, us / 10);
        }
        true
    }

    /// The process is given no file for some of what its log asks for, perhaps at a start.
    fn take_log_files(&mut self, node: u32, us: u64) -> bool {
        let all = self.faults.own().chance(500);
        let refused = if all { u64::MAX } else { self.faults.own().next() };
        let at_start = self.faults.own().chance(400) && self.may_forget(node, Fault::Crash);
        if at_start {
            self.end(node, End::Crash);
            self.start_later(node, us / 10);
        }
        self.machine(node).disk.set_trouble(|trouble| trouble.no_files = refused);
        self.after(us, Event::Cure(Cure::LogFiles(node)));
        true
    }

    /// An operator has a replica here given up that does not lead: what the primary of its partition has is
    /// known to be good, or so the operator believes.
    fn give_up(&mut self, node: u32) -> bool {
        let has_one = |record: &&PartitionRecord| {
            let member = record.members().any(|member| member.node.0 == node);
            member && record.primary.node.0 != node && self.is_serving(record)
        };
        let records: Vec<PartitionRecord> = self.checks.epochs.records().filter(has_one).cloned().collect();
        let Some(record) = self.faults.own().pick(&records).cloned() else { return false };
        if self.machine(node).process.is_none() || self.machine(node).standing.has_hung() {
            return false;
        }
        self.faults_soundly(node);
        let why = "an operator does not trust it".to_string();
        let op = Op::GiveUp { source: record.primary.node, why };
        // A backup is asked: it does not send the question on.
        let read = ReadLevel::Any { max_lag_ms: 600_000, min_lsn: Lsn::ZERO };
        let request = Request { id: self.now(), read, ..Request::new(record.table, 0, record.id, op) };
        self.request(node, NOBODY, request);
        true
    }

    /// A node's disk is copied while nobody uses it. When it fails the next time, the node comes back on the
    /// copy; after a while somebody notices, and it gets an empty one (PR-145).
    fn go_back(&mut self, node: u32, us: u64) -> bool {
        if self.machines.files_mut().has_trees(node) {
            return false;
        }
        self.end(node, End::Power);
        let disk = self.machine(node).disk.clone();
        let goes_back = disk.go_back();
        if goes_back {
            self.faults(node);
            self.checks.storage.wiped(types::NodeId(node));
            self.after(us + 2_000_000, Event::Cure(Cure::OldDisk(node)));
        } else {
            disk.copy();
        }
        self.start_later(node, us / 10);
        if goes_back {
            self.injected("went-back");
        }
        true
    }

    /// A node is shut down, or ends, and is started as a build that speaks another version of the protocol:
    /// everybody refuses it, controllers, other nodes and clients, and it refuses them.
    fn begin_other_build(&mut self, node: u32, us: u64) -> bool {
        let machine = self.machine(node);
        if machine.process.is_none() || machine.starts.are_of_other_build() {
            return false;
        }
        let how = if self.faults.own().chance(700) { End::Clean } else { End::Crash };
        self.end(node, how);
        self.machine_mut(node).starts.set_other_build(true);
        self.start_later(node, us / 10);
        self.after(us, Event::Cure(Cure::Build(node)));
        true
    }

    /// A node gets the build that the others are.
    pub(super) fn end_other_build(&mut self, node: u32) {
        if self.machine(node).starts.are_of_other_build() {
            self.end(node, End::Clean);
            self.machine_mut(node).starts.set_other_build(false);
            self.start_later(node, 50_000);
        }
    }

    /// Somebody has noticed that a node runs on an older copy of its disk.
    pub(super) fn replace_old_disk(&mut self, node: u32) {
        self.replace_disk(node);
        self.start_later(node, 100_000);
    }

    /// One of several executors of a node does nothing for a while. The others go on, and so do heartbeats.
    fn hang_executor(&mut self, node: u32, us: u64) -> bool {
        let now = self.now();
        let executor = self.faults.own().below(self.plan.executors.count() as u64) as usize;
        let machine = self.machine_mut(node);
        let goes_on = machine.standing.goes_on();
        let Some(process) = machine.process.as_mut().filter(|_| goes_on) else { return false };
        process.host.hang(executor);
        machine.standing.hang(executor, now);
        self.after(us, Event::Cure(Cure::Executor(node)));
        true
    }

    /// The executor goes on that stood still by itself. Its process may have ended meanwhile, and another one
    /// may stand still for another reason.
    pub(super) fn unhang_executor(&mut self, node: u32) {
        if !self.machine(node).standing.has_hung() {
            return;
        }
        let (records, deferred) = self.machine_mut(node).standing.unhang();
        self.input(node, |host, now, out| host.unhang(now, out));
        records.into_iter().for_each(|record| self.adopt(node, record));
        self.go_on(deferred);
    }

    /// A file of the log loses its end.
    fn cut_log(&mut self, node: u32, us: u64) -> bool {
        self.end(node, End::Crash);
        let cut = self.machine(node).disk.cut("log/");
        if cut {
            self.faults_soundly(node);
        }
        self.start_later(node, us / 2);
        cut
    }

    /// The metastore's store failed, and takes nothing more: whoever has it ends, and opens it again (F08).
    pub(super) fn restart_metastore(&mut self) {
        self.injected("meta-stopped");
        self.disturbs(None);
        for id in 0..self.plan.controllers {
            self.controller_process_dies(id);
            let wait = 50_000 + self.faults.own().below(400_000);
            self.after(wait, Event::ControllerStart { id });
        }
    }
}
