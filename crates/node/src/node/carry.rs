//! Outputs out: carried out in the order in which the host gave them.

use super::Node;
use super::tails::Next;
use crate::failure::Failure;
use crate::metrics::Outcome;
use replica::Output;
use types::PartitionId;
use types::config::TailReport;
use wire::{Body, Message, Reply, Status};

impl Node {
    pub(super) fn carry_out(&mut self) -> Result<(), Failure> {
        let mut outputs = self.replicas.take_outputs();
        for output in outputs.drain(..) {
            if let Some(output) = self.tails.hold(output) {
                self.carry(output)?;
            }
        }
        self.replicas.give_back(outputs);
        Ok(())
    }

    fn carry(&mut self, output: Output) -> Result<(), Failure> {
        match output {
            Output::Log(op) => self.journal.push(op),
            Output::Send { to, message } => self.connections.send(to, message),
            Output::Reply { to, reply, valid_until, .. } => {
                if let Some(outcome) = outcome(&reply) {
                    self.reports.metrics().answered(outcome);
                }
                self.connections.reply(to, *reply, valid_until);
            }
            Output::Propose(propose) => self.connections.propose(propose, self.timer.mono()),
            Output::Suspect(suspect) => self.connections.suspect(suspect),
            Output::Served(served) => {
                let message = self.reports.serves(served);
                self.connections.tell(&message);
            }
            Output::SetAside { report, entries, rows } => {
                let written = self.tails.set_aside(report, entries, rows, self.timer.mono())?;
                written.into_iter().for_each(|written| self.is_set_aside(written));
            }
            Output::ReadLog { partition, from, max_bytes, purpose } => {
                self.replicas.read_later(partition, from, max_bytes, purpose);
            }
            Output::Install { partition } => self.replicas.install_soon(partition),
            Output::Checkpoint { partition } => self.checkpoints.soon(partition),
            Output::Notice { partition, what } => {
                eprintln!("partition {partition} on node {}: {what}", self.replicas.me().node.0);
            }
            Output::Damaged { partition, reason } => {
                eprintln!("partition {partition} on node {}: {reason}", self.replicas.me().node.0);
                self.storage.suspect(partition);
            }
        }
        Ok(())
    }

    /// A tail is on the disk: controllers hear of it.
    fn is_set_aside(&mut self, report: TailReport) {
        let partition = report.partition;
        self.connections.tell(&Message::TailSetAside(report));
        self.faults.freeze_by_tail(partition);
    }

    /// Tries again what found no room, and goes on with what came after it.
    pub(super) fn retry_blocked(&mut self) -> Result<(), Failure> {
        let now = self.timer.mono();
        for id in self.tails.held().due(now) {
            loop {
                match self.tails.next(id, now)? {
                    Next::SetAside(report, ..) => self.is_set_aside(report),
                    Next::Carry(output) => self.carry(output)?,
                    Next::Waits => break,
                    Next::Free => {
                        self.lead_again(id);
                        break;
                    }
                }
            }
        }
        // Who waits cannot lead: whoever can is to miss this node's heartbeats.
        for id in self.tails.held().partitions() {
            self.connections.lead(id, None);
        }
        Ok(())
    }

    pub(super) fn lead_again(&mut self, id: PartitionId) {
        let replica = self.replicas.host().replica(id).filter(|replica| !replica.is_damaged());
        let record = replica.and_then(|replica| replica.record());
        if let Some(record) = record.filter(|record| record.primary == self.replicas.me()) {
            self.connections.lead(id, Some(record.term));
        }
    }

    /// Nobody needs this partition any more: its clients are answered, and that is all.
    pub(super) fn give_up_blocked(&mut self, id: PartitionId) -> Result<(), Failure> {
        let answers = self.tails.give_up(id);
        answers.into_iter().try_for_each(|output| self.carry(output))
    }
}

/// How a write was answered; `None` for a read.
fn outcome(reply: &Reply) -> Option<Outcome> {
    match (&reply.status, &reply.body) {
        (Status::Ok, Body::Affected(_)) => Some(Outcome::Ok),
        (Status::Refused(_), _) => Some(Outcome::Refused),
        (Status::Unknown(_), _) => Some(Outcome::Unknown),
        (Status::Ok, _) => None,
        _ => Some(Outcome::NotDone),
    }
}
