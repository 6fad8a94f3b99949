//! R8: a member that chose the log, since it is less, is not sent the state itself after all, unless the log
//! is short of room.

use super::World;
use crate::check::nodes::{self, At};
use types::{Member, NodeId, PartitionId, PartitionRecord};
use wire::PeerMessage;
use wire::peer::Refusal;
use wire::ship::Outcome;

impl World {
    /// A member says how it comes back, or that it is not what it was.
    pub(super) fn note_failback(&mut self, node: u32, message: &PeerMessage) {
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        match message {
            PeerMessage::Installed(taken) if taken.outcome == Outcome::LogIsLess => {
                process.watched.chooses_log(taken.partition, taken.from, taken.number);
            }
            PeerMessage::TransferRequest(request) => {
                process.watched.looks_at_offer(request.partition, request.from, request.number);
            }
            PeerMessage::AppendRefused(refused)
                if matches!(refused.why, Refusal::Mismatch(_) | Refusal::Unstaged(_)) =>
            {
                process.watched.gives_up_log(refused.partition, refused.from);
            }
            PeerMessage::LogReport(report) => {
                process.watched.gives_up_log(report.partition, report.from);
            }
            _ => {}
        }
    }

    /// A member catches up no more, or another term has begun.
    pub(super) fn note_members(&mut self, record: &PartitionRecord) {
        let begins = record.term.began() == record.epoch;
        for process in self.machines.processes_mut() {
            let holds =
                |id, member: &Member| id != record.id || !begins && record.catching_up.contains(member);
            process.watched.keep_choices(holds);
        }
    }

    /// What was chosen need not hold any more: of one partition, or of all.
    pub(super) fn promises_no_log(&mut self, node: u32, partition: Option<PartitionId>) {
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        process.watched.keep_choices(|id, _| partition.is_some_and(|partition| partition != id));
    }

    /// A primary sends a member the state itself.
    pub(super) fn sends_state(&mut self, node: u32, to: Member, partition: PartitionId) {
        let Some(process) = &self.machine(node).process else { return };
        let chose_log = process.watched.has_chosen_log(partition, to);
        let verdict = nodes::check_sends_state(At(NodeId(node), partition), to, chose_log);
        self.checks.expect("R8", self.now(), verdict);
    }
}
