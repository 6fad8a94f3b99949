//! Between the [`Record`]s of replicas and the log on the disk: one submission per turn, and what to do while
//! the disk is full (F20).
//!
//! What the log refuses for want of room is kept here, in order, and tried again; until all of it is in,
//! clients' writes are refused at the door. Logs of tables whose log is in memory are kept here too.

mod backlog;
#[cfg(test)]
mod tests;

use backlog::Backlog;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::{Lsn, Micros, PartitionId};
use wal::{MemoryLog, Record, Submission, Ticket};

const _: () = assert!(replica::Note::Torn as u16 == wal::TORN, "what the log sets, the replica takes away");

/// Refused records are tried again this often.
pub const RETRY: Micros = Micros::from_millis(100);

/// A submission of which it is not known what became of it.
#[derive(Debug)]
struct Flight {
    ticket: Ticket,
    at: Micros,
    records: Vec<Record>,
}

/// What is on its way to the log. `durable`, where it is asked for, says up to which entry the log on the
/// disk has a partition, as far as that is known.
#[derive(Debug, Default)]
pub struct LogQueue {
    memory: MemoryLog,
    /// Partitions whose log is in memory.
    in_memory: BTreeSet<PartitionId>,
    /// This turn's records.
    batch: Vec<Record>,
    /// By ticket, oldest first.
    in_flight: VecDeque<Flight>,
    /// What was refused, and what came after it; none of them is empty.
    backlog: BTreeMap<PartitionId, Backlog>,
    last_ticket: Ticket,
    retried_at: Micros,
    /// Submissions up to this one may be of what was refused.
    retried: Ticket,
}

impl LogQueue {
    /// From now on this partition's log is in memory.
    pub fn keep_in_memory(&mut self, partition: PartitionId) {
        self.in_memory.insert(partition);
    }

    /// The log of this partition, if it is in memory.
    pub fn memory(&self, partition: PartitionId) -> Option<&MemoryLog> {
        self.in_memory.contains(&partition).then_some(&self.memory)
    }

    /// Bytes of logs in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Takes a change of a partition's log; it is written with the rest of this turn.
    pub fn push(&mut self, record: Record, durable: impl Fn(PartitionId) -> Option<Lsn>) {
        match record {
            // It makes room, and names only what the log has: it need not wait behind what finds none.
            record @ Record::Trim { partition, below }
                if self.backlog.get(&partition).is_some_and(|backlog| !backlog.moves_the_end())
                    && durable(partition) >= Some(below.prev()) =>
            {
                self.batch.push(record);
            }
            record => self.add(record),
        }
    }

    /// Nothing of this partition is needed any more, so what of it waits for room need not be written (F20).
    pub fn forget(&mut self, partition: PartitionId) {
        let of_others = |record: &Record| record.partition() != partition;
        self.backlog.remove(&partition);
        self.batch.retain(of_others);
        for flight in &mut self.in_flight {
            flight.records.retain(of_others);
        }
        self.add(Record::Forget { partition });
        self.in_memory.remove(&partition);
    }

    fn add(&mut self, record: Record) {
        let partition = record.partition();
        if !self.in_memory.is_empty() && self.in_memory.contains(&partition) {
            return self.memory.append(&[record]);
        }
        match self.backlog.get_mut(&partition) {
            Some(backlog) => backlog.follow(self.last_ticket, record),
            None => self.batch.push(record),
        }
    }

    /// What is to be handed to the log now, in this order: this turn's records, and now and then what was
    /// refused.
    pub fn submit(&mut self, now: Micros, durable: impl Fn(PartitionId) -> Option<Lsn>) -> Vec<Submission> {
        let mut out = Vec::new();
        if !self.backlog.is_empty() && now.since(self.retried_at) >= RETRY {
            if !self.in_flight.is_empty() {
                // What else was refused must be known first, or it would come behind what follows it.
                return out;
            }
            self.retried_at = now;
            self.retry(now, durable, &mut out);
        }
        self.send_batch(now, &mut out);
        self.validate();
        out
    }

    /// The last submissions of a node that ends. True if nothing is left to be tried again.
    pub fn close(
        &mut self,
        now: Micros,
        durable: impl Fn(PartitionId) -> Option<Lsn>,
    ) -> (Vec<Submission>, bool) {
        let mut out = self.submit(now, durable);
        self.send_batch(now, &mut out);
        (out, self.backlog.is_empty())
    }

    fn send_batch(&mut self, now: Micros, out: &mut Vec<Submission>) {
        if !self.batch.is_empty() {
            let records = std::mem::take(&mut self.batch);
            self.send(now, records, false, out);
        }
    }

    /// Tries again what was refused. Truncations that may go first do: they can have been in one submission
    /// with entries that find no room without them.
    fn retry(
        &mut self,
        now: Micros,
        durable: impl Fn(PartitionId) -> Option<Lsn>,
        out: &mut Vec<Submission>,
    ) {
        let mut all = Vec::new();
        for (partition, backlog) in std::mem::take(&mut self.backlog) {
            let (first, rest) = backlog.split(durable(partition));
            if !first.is_empty() {
                self.send(now, first, rest.is_empty(), out);
            }
            all.push(rest);
        }
        for records in all {
            for (i, piece) in backlog::pieces(records).into_iter().enumerate() {
                self.send(now, piece, i == 0, out);
            }
        }
        self.retried = self.last_ticket;
    }

    fn send(&mut self, now: Micros, records: Vec<Record>, again: bool, out: &mut Vec<Submission>) {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        out.push(Submission { ticket, records: records.clone(), again });
        self.in_flight.push_back(Flight { ticket, at: now, records });
    }

    /// What became of all submissions up to `through`: they are durable, but for those that were refused for
    /// want of room.
    pub fn settle(&mut self, through: Ticket, refused: &BTreeSet<Ticket>) {
        while self.in_flight.front().is_some_and(|flight| flight.ticket <= through) {
            let flight = self.in_flight.pop_front().expect("a front");
            if !refused.contains(&flight.ticket) {
                continue;
            }
            for record in flight.records {
                let backlog = self.backlog.entry(record.partition()).or_default();
                backlog.refused(flight.ticket, record);
            }
        }
        self.validate();
    }

    /// True while something waits for room on the disk, or it is not known yet whether there is room for it.
    pub fn is_full(&self) -> bool {
        !self.backlog.is_empty() || self.in_flight.front().is_some_and(|flight| flight.ticket <= self.retried)
    }

    /// True if a write of this partition is on its way to the disk.
    pub fn is_writing(&self, partition: PartitionId) -> bool {
        let here = |record: &Record| record.partition() == partition;
        self.in_flight.iter().any(|flight| flight.records.iter().any(here)) || self.batch.iter().any(here)
    }

    /// When the oldest write that is pending was submitted. One that waits for room is not pending: the disk
    /// answered.
    pub fn oldest_pending(&self) -> Option<Micros> {
        self.in_flight.front().map(|flight| flight.at)
    }

    /// What of this partition is on its way to the disk or waits for room, in no particular order.
    pub fn unwritten(&self, partition: PartitionId) -> impl Iterator<Item = &Record> {
        let flights = self.in_flight.iter().flat_map(|flight| &flight.records);
        let waiting = self.backlog.get(&partition).into_iter().flat_map(Backlog::records);
        let all = flights.chain(&self.batch).chain(waiting);
        all.filter(move |record| record.partition() == partition)
    }

    /// What must hold: tickets go up, what is tried again was submitted, and no partition waits for nothing.
    fn validate(&self) {
        debug_assert!(self.in_flight.iter().is_sorted_by(|a, b| a.ticket < b.ticket), "tickets go up");
        debug_assert!(self.retried <= self.last_ticket, "what was tried again was submitted");
        debug_assert!(self.backlog.values().all(|backlog| backlog.records().next().is_some()));
        let on_disk = |record: &Record| !self.in_memory.contains(&record.partition());
        debug_assert!(self.batch.iter().all(on_disk), "a log in memory is not written to the disk");
    }
}
