//! A divergent tail that finds no room (R9, F20): its partition waits until it can be set aside.
//!
//! Nothing of such a partition leaves this node, since all of it would come after the tail. What changes its log and what
//! clients are told is kept in order; messages to others are lost as on a network, which asks again. And nothing reaches
//! it, so little is asked for: configurations, and what its own clock brings.

use super::Node;
use crate::failure::Failure;
use crate::tails;
use replica::{Leases, LogOp, Output};
use std::collections::VecDeque;
use types::config::TailReport;
use types::engine::Version;
use types::{Micros, PartitionId};
use wire::Entry;

/// A tail that found no room is tried again this often.
const RETRY: Micros = Micros::from_millis(500);

/// What a partition waits with: first the tail, then what came after it.
#[derive(Debug)]
pub struct BlockedOutputs {
    queue: VecDeque<Output>,
    tried_at: Micros,
}

impl BlockedOutputs {
    fn push(&mut self, output: Output) {
        // Others give it up and take it in again for as long as it waits: the last promise says what all have said.
        let promise = |output: &Output| matches!(output, Output::Log(LogOp::Promise { .. }));
        if promise(&output) && self.queue.back().is_some_and(promise) {
            self.queue.pop_back();
        }
        self.queue.push_back(output);
    }
}

impl Node {
    /// True if this partition waits for room.
    pub(super) fn holds(&self, partition: PartitionId) -> bool {
        !self.blocked.is_empty() && self.blocked.contains_key(&partition)
    }

    /// Gives back what is to be carried out now.
    pub(super) fn hold(&mut self, mut output: Output) -> Option<Output> {
        if self.blocked.is_empty() {
            return Some(output);
        }
        if let Output::Suspect(suspect) = &mut output {
            suspect.partitions.retain(|(id, ..)| !self.blocked.contains_key(id));
            return (!suspect.partitions.is_empty()).then_some(output);
        }
        let partition = output.partition();
        let Some(blocked) = partition.and_then(|id| self.blocked.get_mut(&id)) else { return Some(output) };
        match output {
            Output::Send { .. } | Output::Propose(_) | Output::ReadLog { .. } => {}
            output => blocked.push(output),
        }
        None
    }

    /// A divergent tail: on disk before anything that follows.
    pub(super) fn set_aside(
        &mut self,
        report: TailReport,
        entries: Vec<Entry>,
        rows: Vec<Version>,
    ) -> Result<(), Failure> {
        let partition = report.partition;
        let Some(error) = self.write_tail(&report, &entries, &rows)? else { return Ok(()) };
        eprintln!(
            "partition {partition}: {} of an older term find no room in {} ({error}): this replica waits until they can \
             be set aside",
            what(&report),
            self.dir.tails().display()
        );
        let queue = VecDeque::from([Output::SetAside { report, entries, rows }]);
        self.blocked.insert(partition, BlockedOutputs { queue, tried_at: self.now.mono });
        self.timer.status_soon();
        Ok(())
    }

    /// Writes a tail. Gives the reason if there is no room for it; whatever else fails is the end.
    fn write_tail(
        &mut self,
        report: &TailReport,
        entries: &[Entry],
        rows: &[Version],
    ) -> Result<Option<std::io::Error>, Failure> {
        let dir = self.dir.tails();
        let written = match tails::write(&dir, report.clone(), entries, rows) {
            Ok(written) => written,
            Err(error) if wal::is_full(&error) => return Ok(Some(error)),
            Err(error) => return Err(Failure::io(&dir, &error)),
        };
        eprintln!(
            "partition {}: {} of an older term are set aside in tails/{}",
            written.partition,
            what(&written),
            written.file
        );
        if !self.tails.contains(&written) {
            self.tails.push(written.clone());
        }
        let partition = written.partition;
        self.tell(&wire::Message::TailSetAside(written));
        self.freeze_by_tail(partition);
        Ok(None)
    }

    /// Forgets the tails whose files are gone: an operator's command discards them while this process runs.
    pub(super) fn forget_discarded(&mut self) {
        let (dir, before) = (self.dir.tails(), self.tails.len());
        // What cannot be told is still there.
        self.tails.retain(|tail| dir.join(&tail.file).try_exists().unwrap_or(true));
        if self.tails.len() < before {
            self.timer.status_soon();
        }
    }

    /// Tries again what found no room, and goes on with what came after it.
    pub(super) fn retry_blocked(&mut self) -> Result<(), Failure> {
        let now = self.now.mono;
        let due = self.blocked.iter().filter(|(_, blocked)| now.since(blocked.tried_at) >= RETRY);
        let due: Vec<PartitionId> = due.map(|(id, _)| *id).collect();
        for id in due {
            let Some(mut blocked) = self.blocked.remove(&id) else { continue };
            blocked.tried_at = now;
            while let Some(output) = blocked.queue.pop_front() {
                match output {
                    Output::SetAside { report, entries, rows } => {
                        if self.write_tail(&report, &entries, &rows)?.is_some() {
                            blocked.queue.push_front(Output::SetAside { report, entries, rows });
                            break;
                        }
                    }
                    output => self.carry(output)?,
                }
            }
            match blocked.queue.is_empty() {
                true => self.go_on(id),
                false => drop(self.blocked.insert(id, blocked)),
            }
        }
        // Who waits cannot lead: whoever can is to miss this node's heartbeats.
        for id in self.blocked.keys() {
            self.leases.lead(*id, None);
        }
        Ok(())
    }

    fn go_on(&mut self, id: PartitionId) {
        self.timer.status_soon();
        let me = self.host.me();
        let Some(replica) = self.host.replica(id).filter(|replica| !replica.is_damaged()) else { return };
        if let Some(record) = replica.record().filter(|record| record.primary == me) {
            self.leases.lead(id, Some(record.term));
        }
    }

    /// Nobody needs this partition any more: its clients are answered, and that is all.
    pub(super) fn give_up_blocked(&mut self, id: PartitionId) -> Result<(), Failure> {
        let blocked = self.blocked.remove(&id).map(|blocked| blocked.queue).unwrap_or_default();
        blocked
            .into_iter()
            .filter(|output| matches!(output, Output::Reply { .. }))
            .try_for_each(|output| self.carry(output))
    }
}

/// What a tail has, for people.
fn what(report: &TailReport) -> String {
    match report.rows {
        None => format!("{} commits", report.commits),
        Some(rows) => format!("{rows} rows of LSN {} to {}", report.from, report.to),
    }
}
