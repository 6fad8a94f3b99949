//! Faults of files with a rhythm of their own: writes of a log that fail, files of engines and of kept
//! records that lose their end, and a second directory whose disk does nothing beside a log whose disk is
//! well.

use super::machines::End;
use super::{Event, Phase, World};
use crate::event::Cure;
use crate::faults::Fault;
use crate::node::{KeptJournal, SECOND};
use driver::progress::{is_lost, is_vouched_for};
use std::collections::BTreeSet;
use types::{Epoch, Micros, PartitionId};

impl World {
    /// The next of them, if the seed has some.
    pub(super) fn inject_file_fault(&mut self) {
        if self.stage.phase() != Phase::Faults {
            return;
        }
        let think = self.plan.files.think_us;
        let wait = think / 4 + self.faults.files().below(think * 3 / 2);
        self.after(wait, Event::InjectFileFault);
        let classes: Vec<Fault> = self.plan.files.faults.iter().copied().collect();
        let Some(fault) = self.faults.files().pick(&classes).copied() else { return };
        let node = 1 + self.faults.files().below(u64::from(self.plan.nodes)) as u32;
        let node = if fault == Fault::SecondHangs { self.next_with_second(node) } else { node };
        let led = self.served_by(node);
        if self.inflict_on_files(fault, node) {
            self.note_fault(fault, node, &led);
            self.injected(fault.name());
            self.trace.note(self.now(), format_args!("fault: {fault}, n{node}"));
        }
    }

    /// Lets a fault happen, if it may. False if not.
    fn inflict_on_files(&mut self, fault: Fault, node: u32) -> bool {
        if fault.forgets() && !self.may_forget(node, fault)
            || fault.faults_disk() && !self.may_lose_disk(node)
        {
            return false;
        }
        let us = self.faults.files().between(100_000, 2_000_000);
        match fault {
            Fault::LogWriteFails => self.fail_writes(node, us),
            Fault::EngineCut => self.cut_engine(node, us),
            Fault::RecordsCut => self.cut_records(node, us),
            Fault::SecondHangs => self.hang_second(node, us),
            other => unreachable!("{other} has another rhythm"),
        }
    }

    /// Some writes of the log fail with EIO, at a start or while the process runs. Nothing is lost that was
    /// synced; a process whose log has failed ends.
    fn fail_writes(&mut self, node: u32, us: u64) -> bool {
        let writes = 1 + self.faults.files().below(5) as u32;
        self.machine(node).disk.set_trouble(|trouble| trouble.fail_writes = writes);
        self.after(us, Event::Cure(Cure::Writes(node)));
        true
    }

    /// A file of an engine loses its end while nobody uses it.
    fn cut_engine(&mut self, node: u32, us: u64) -> bool {
        self.end(node, End::Crash);
        let disk = self.machine(node).disk.clone();
        let second = format!("{SECOND}snapshot/");
        let cut = self.machines.files_mut().cut(node) || disk.cut("snapshot/") || disk.cut(&second);
        if cut {
            self.faults(node);
        }
        self.start_later(node, us / 2);
        cut
    }

    /// The file in which a node keeps the records loses its end, while others keep as much as it does.
    fn cut_records(&mut self, node: u32, us: u64) -> bool {
        let runs = self.machine(node).process.is_some() && !self.is_removed(node);
        if !runs || self.control.rebuilding.is_under_way() || !self.others_keep_as_much(node) {
            return false;
        }
        self.end(node, End::Crash);
        let verdict = self.machines.get_mut(node).kept.cut(self.faults.files());
        match verdict {
            Ok(readable) => self.injected(if readable { "records-go-back" } else { "records-damaged" }),
            Err(why) => self.checks.fault("I12", self.now(), format!("n{node}: {why}")),
        }
        self.start_later(node, us / 2);
        true
    }

    /// The disk of a second directory does nothing for a while, perhaps for so long that the directory is
    /// given up (PR-456).
    fn hang_second(&mut self, node: u32, us: u64) -> bool {
        let (now, longer) = (self.now(), self.faults.files().below(4));
        let us = us + [0, 3_000_000, 6_000_000, 12_000_000][longer as usize];
        let machine = self.machine_mut(node);
        let usable = !machine.second.replicas().is_empty() && machine.second.is_there();
        if machine.process.is_none() || !usable || machine.second.hangs_until(now).is_some() {
            return false;
        }
        machine.second.hang(now, now + us);
        true
    }

    /// A second directory whose disk has not answered for too long is lost until the node starts again
    /// (PR-456). Where that would be the last copy of something, it answers after all.
    pub(super) fn look_at_second(&mut self, node: u32) {
        if !is_lost(self.machine(node).second.silent(self.now())) {
            return;
        }
        let may = self.stage.phase() == Phase::Faults && self.may_lose_disk(node);
        if may && self.lose_second_so(node, false) {
            self.injected("directory-given-up");
            self.trace.note(self.now(), format_args!("n{node} gives its second directory up"));
        } else {
            self.machine_mut(node).second.answers();
        }
    }

    /// The replicas of a node that its heartbeats do not name: the disk with their files hangs, and others
    /// can lead them (PR-456).
    pub(super) fn unvouched(&self, node: u32) -> BTreeSet<PartitionId> {
        let machine = self.machine(node);
        let silent = machine.second.silent(self.now());
        let Some(process) = machine.process.as_ref().filter(|_| silent > Micros::ZERO) else {
            return BTreeSet::new();
        };
        let record = |id: PartitionId| process.host.replica(id).and_then(|replica| replica.record());
        let inside = machine.second.replicas().iter().copied();
        inside.filter(|id| !is_vouched_for(silent, record(*id))).collect()
    }

    /// True if whatever this node keeps of the records is kept by another one as well, or by two others where
    /// the records may be made anew without one.
    fn others_keep_as_much(&self, node: u32) -> bool {
        let least = 1 + usize::from(self.plan.own.leaves_out);
        let others = self.machines.iter().filter(|machine| machine.id != node);
        let others: Vec<&KeptJournal> =
            others.filter(|machine| !self.is_removed(machine.id)).map(|machine| &machine.kept).collect();
        let enough = |has: &dyn Fn(&KeptJournal) -> bool| {
            let have = others.iter().filter(|kept| has(kept));
            have.count() >= least
        };
        let (kept, report) = (&self.machine(node).kept, self.machine(node).kept.report());
        let knows = |kept: &KeptJournal, (id, epoch): (PartitionId, Epoch)| {
            kept.epochs().any(|(of, at)| of == id && at >= epoch)
        };
        kept.epochs().all(|known| enough(&|other| knows(other, known)))
            && enough(&|other| {
                let theirs = other.report();
                theirs.generation >= report.generation
                    && report.dropped.iter().all(|table| theirs.dropped.contains(table))
                    && report.removed.iter().all(|gone| theirs.removed.contains(gone))
            })
    }
}
