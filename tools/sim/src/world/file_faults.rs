//! Faults of files with a rhythm of their own: writes of a log that fail, and files of engines and of kept
//! records that lose their end.

use super::machines::End;
use super::{Event, Phase, World};
use crate::event::Cure;
use crate::faults::Fault;
use crate::node::{KeptJournal, SECOND};
use types::{Epoch, PartitionId};

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
