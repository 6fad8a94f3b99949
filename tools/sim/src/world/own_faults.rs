//! Faults with a rhythm of their own: files that cannot be read or opened, or were cut, and the metastore's
//! disk.

use super::machines::End;
use super::{Event, Phase, World};
use crate::event::Cure;
use crate::faults::Fault;

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
