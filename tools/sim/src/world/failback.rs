//! R8: a member that chose the log, since it is less, is not sent the state itself after all, unless the log is short of room.

use super::World;
use types::{Member, PartitionId, PartitionRecord};
use wire::PeerMessage;
use wire::peer::Refusal;
use wire::ship::Outcome;

impl World {
    /// A member says how it comes back, or that it is not what it was.
    pub(super) fn note_failback(&mut self, node: u32, message: &PeerMessage) {
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        match message {
            PeerMessage::Installed(taken) if taken.outcome == Outcome::LogIsLess => {
                process.by_log.insert((taken.partition, taken.from));
            }
            PeerMessage::AppendRefused(refused)
                if matches!(refused.why, Refusal::Mismatch(_) | Refusal::Unstaged(_)) =>
            {
                process.by_log.remove(&(refused.partition, refused.from));
            }
            PeerMessage::Report(report) => {
                process.by_log.remove(&(report.partition, report.from));
            }
            _ => {}
        }
    }

    /// A member catches up no more, or another term has begun.
    pub(super) fn note_members(&mut self, record: &PartitionRecord) {
        let begins = record.term.began() == record.epoch;
        for process in self.machines.iter_mut().filter_map(|machine| machine.process.as_mut()) {
            process
                .by_log
                .retain(|(id, member)| *id != record.id || !begins && record.catching_up.contains(member));
        }
    }

    /// What was chosen need not hold any more: of one partition, or of all.
    pub(super) fn promises_no_log(&mut self, node: u32, partition: Option<PartitionId>) {
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        process.by_log.retain(|(id, _)| partition.is_some_and(|partition| partition != *id));
    }

    /// A primary sends a member the state itself.
    pub(super) fn sends_state(&mut self, node: u32, to: Member, partition: PartitionId) {
        let Some(process) = &self.machine(node).process else { return };
        if process.by_log.contains(&(partition, to)) {
            let sentence =
                format!("n{node} {partition}: {to} chose the log, and is sent the state after all");
            self.checks.fault("R8", self.now, sentence);
        }
    }
}
