//! Between the replicas' [`LogOp`]s and the node's log: one submission per turn, group commit on the log's thread, and what
//! to do while the disk is full (F20).
//!
//! What the log refuses for want of room is kept here, in order, and tried again; until all of it is in, clients' writes are
//! refused at the door.

use crate::failure::Failure;
use crate::stop::{Stopper, Watched};
use replica::LogOp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use types::{Durable, Lsn, Micros, PartitionId, Position};
use wal::writer::Ticket;
use wal::{Log, MemoryLog, ReadLog, Reader, Record, Stats, SyncedBatch, Writer};
use wire::Entry;

const _: () = assert!(replica::Note::Torn as u16 == wal::TORN, "what the log sets, the replica takes away");

/// Refused records are tried again this often.
const RETRY: Micros = Micros::from_millis(100);
/// They are tried again in submissions of about so many bytes: what is refused is refused as a whole, and all that waits may be
/// more than the log can ever take at once.
const PIECE: usize = 256 << 10;

/// What the log's thread leaves for the executor.
#[derive(Default)]
struct Done {
    batches: Mutex<Vec<SyncedBatch>>,
    /// The executor has been woken and has not looked yet.
    signalled: AtomicBool,
}

/// A submission that is not known to be durable.
struct Flight {
    ticket: Ticket,
    at: Micros,
    records: Vec<Record>,
}

/// Refused records of one partition, by the submission they were in and a number within it.
type Backlog = BTreeMap<(Ticket, u64), Vec<Record>>;

/// The log as the executor sees it.
pub struct Journal {
    writer: Writer,
    reader: Reader,
    memory: MemoryLog,
    /// Partitions whose log is in memory.
    in_memory: BTreeSet<PartitionId>,
    /// This turn's records.
    batch: Vec<Record>,
    in_flight: VecDeque<Flight>,
    backlog: BTreeMap<PartitionId, Backlog>,
    last_ticket: Ticket,
    next_in_backlog: u64,
    retried_at: Micros,
    /// Submissions up to this one may be of what was refused.
    retried: Ticket,
    done: Arc<Done>,
    stats: Stats,
}

impl Journal {
    /// Puts a log on a thread of its own, which wakes the executor when something became durable and may not end before
    /// it.
    pub fn start(log: Log, stopper: &Stopper) -> Journal {
        let done = Arc::new(Done::default());
        let (waker, watched) = (stopper.waker().clone(), Watched::new(stopper, "log"));
        let leave = done.clone();
        let reader = log.reader();
        let on_synced = Box::new(move |batch: SyncedBatch| {
            let _ends_with_the_thread = &watched;
            leave.batches.lock().expect("a thread panicked while it held the batches").push(batch);
            if !leave.signalled.swap(true, Ordering::AcqRel) {
                // Fails only when the executor is gone.
                let _ = waker.wake();
            }
        });
        Journal {
            writer: Writer::start(log, on_synced),
            reader,
            memory: MemoryLog::new(),
            in_memory: BTreeSet::new(),
            batch: Vec::new(),
            in_flight: VecDeque::new(),
            backlog: BTreeMap::new(),
            last_ticket: 0,
            next_in_backlog: 1,
            retried_at: Micros::ZERO,
            retried: 0,
            done,
            stats: Stats::default(),
        }
    }

    /// From now on this partition's log is in memory.
    pub fn keep_in_memory(&mut self, partition: PartitionId) {
        self.in_memory.insert(partition);
    }

    /// Takes a change of a partition's log; it is written with the rest of this turn.
    pub fn push(&mut self, op: LogOp) {
        let record = match op {
            LogOp::Entry(entry) => Record::Entry(entry),
            LogOp::Truncate { partition, to } => Record::Truncate { partition, to },
            LogOp::Base { partition, at, crc } => Record::Base { partition, at, crc },
            LogOp::Trim { partition, below } => Record::Trim { partition, below },
            LogOp::Promise { partition, epoch } => Record::Promise { partition, epoch },
            LogOp::Note { partition, note, value } => Record::Custom { partition, key: note as u16, value },
        };
        match record {
            // It makes room, and names only what the log has: it need not wait behind what finds none.
            Record::Trim { partition, below } if self.has_durably(partition, below.prev()) => {
                self.batch.push(record);
            }
            record => self.add(record),
        }
    }

    /// True if this entry is in the log on the disk, and no record that waits for room takes it out.
    fn has_durably(&self, partition: PartitionId, lsn: Lsn) -> bool {
        let waiting = self.backlog.get(&partition);
        waiting.is_some_and(|backlog| !backlog.values().flatten().any(moves_the_end))
            && self.is_durable(partition, lsn)
    }

    fn is_durable(&self, partition: PartitionId, lsn: Lsn) -> bool {
        self.reader.durable(partition).is_some_and(|durable| lsn <= durable.get().lsn)
    }

    /// True if a write of this partition is on its way to the disk.
    pub fn is_writing(&self, partition: PartitionId) -> bool {
        let here = |record: &Record| record.partition() == partition;
        self.in_flight.iter().any(|flight| flight.records.iter().any(here)) || self.batch.iter().any(here)
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
        if let Some(backlog) = self.backlog.get_mut(&partition) {
            let key = (self.last_ticket, self.next_in_backlog);
            self.next_in_backlog += 1;
            backlog.insert(key, vec![record]);
            return;
        }
        self.batch.push(record);
    }

    /// Hands this turn's records to the log's thread.
    pub fn submit(&mut self, now: Micros) {
        if !self.backlog.is_empty() && now.since(self.retried_at) >= RETRY {
            if !self.in_flight.is_empty() {
                // What else was refused must be known first, or it would come behind what follows it.
                return;
            }
            self.retried_at = now;
            self.retry(now);
        }
        self.send_batch(now);
    }

    fn send_batch(&mut self, now: Micros) {
        if !self.batch.is_empty() {
            let records = std::mem::take(&mut self.batch);
            self.send(now, records, false);
        }
    }

    /// Tries again what was refused. Truncations that may go first do: they can have been in one submission with entries that
    /// find no room without them.
    fn retry(&mut self, now: Micros) {
        let mut all = Vec::new();
        for (partition, backlog) in std::mem::take(&mut self.backlog) {
            let records = without_replaced(backlog.into_values().flatten().collect());
            let (first, rest): (Vec<_>, Vec<_>) = match records.iter().any(moves_the_end) {
                true => (Vec::new(), records),
                false => records.into_iter().partition(|record| {
                    matches!(record, Record::Trim { below, .. } if self.is_durable(partition, below.prev()))
                }),
            };
            if !first.is_empty() {
                self.send(now, first, rest.is_empty());
            }
            all.push(rest);
        }
        for records in all {
            for (i, piece) in pieces(records).into_iter().enumerate() {
                self.send(now, piece, i == 0);
            }
        }
        self.retried = self.last_ticket;
    }

    fn send(&mut self, now: Micros, records: Vec<Record>, again: bool) {
        let copy = records.clone();
        self.last_ticket = if again { self.writer.submit_again(copy) } else { self.writer.submit(copy) };
        self.in_flight.push_back(Flight { ticket: self.last_ticket, at: now, records });
    }

    /// What became durable since the last call. A failure of the log is the end of the process (F08, R10).
    pub fn synced(&mut self) -> Result<Vec<(PartitionId, Durable<Position>)>, Failure> {
        if !self.done.signalled.swap(false, Ordering::AcqRel) {
            return Ok(Vec::new());
        }
        let batches = {
            let mut batches = self.done.batches.lock().expect("a thread panicked while it held the batches");
            std::mem::take(&mut *batches)
        };
        let mut tokens = Vec::new();
        for batch in batches {
            if let Some(error) = batch.fatal {
                return Err(Failure::new(7, format!("the log failed, this node stops: {error}")));
            }
            let refused: BTreeSet<Ticket> = batch.refused.iter().map(|refused| refused.ticket).collect();
            if let Some(other) = batch.refused.iter().find(|r| !r.error.is_passing()) {
                return Err(Failure::new(
                    7,
                    format!("the log cannot be written, this node stops: {}", other.error),
                ));
            }
            while self.in_flight.front().is_some_and(|flight| flight.ticket <= batch.through) {
                let flight = self.in_flight.pop_front().expect("a front");
                if refused.contains(&flight.ticket) {
                    self.keep(flight);
                }
            }
            tokens.extend(batch.durable);
            self.stats = batch.stats;
        }
        Ok(tokens)
    }

    /// Keeps what was refused, partition by partition.
    fn keep(&mut self, flight: Flight) {
        for record in flight.records {
            let backlog = self.backlog.entry(record.partition()).or_default();
            backlog.entry((flight.ticket, 0)).or_default().push(record);
        }
    }

    /// True while something waits for room on the disk, or it is not known yet whether there is room for it.
    pub fn is_full(&self) -> bool {
        !self.backlog.is_empty() || self.in_flight.front().is_some_and(|flight| flight.ticket <= self.retried)
    }

    /// When the oldest write that is pending was submitted. One that waits for room is not pending: the disk answered.
    pub fn oldest_pending(&self) -> Option<Micros> {
        self.in_flight.front().map(|flight| flight.at)
    }

    /// For reading what is on the disk.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Reads entries back.
    pub fn read(&self, partition: PartitionId, from: Lsn, max_bytes: usize) -> Result<Vec<Entry>, String> {
        let read = match self.in_memory.contains(&partition) {
            true => self.memory.read(partition, from, max_bytes),
            false => self.reader.read(partition, from, max_bytes),
        };
        read.map_err(|error| error.to_string())
    }

    /// Bytes of a partition's entries at and above `lsn` on the disk.
    pub fn bytes_since(&self, partition: PartitionId, lsn: Lsn) -> u64 {
        if self.in_memory.contains(&partition) { 0 } else { self.reader.bytes_since(partition, lsn) }
    }

    /// The partitions for whose sake the oldest part of the log on the disk is kept.
    pub fn holding_back(&self) -> Vec<PartitionId> {
        self.reader.holding_back()
    }

    /// Bytes of log in use, on the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.reader.bytes()
    }

    /// Bytes of log in use, on the disk and in memory.
    pub fn bytes(&self) -> u64 {
        self.reader.bytes() + self.memory.bytes()
    }

    /// The log's counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Writes what waits and the clean-shutdown mark (F06). Without the mark if something found no room, or was not `all`.
    pub fn shutdown(mut self, now: Micros, all: bool) -> Result<(), Failure> {
        self.submit(now);
        self.send_batch(now);
        let closed = match all && self.backlog.is_empty() {
            true => self.writer.shutdown(),
            false => self.writer.shutdown_unmarked(),
        };
        closed.map_err(|error| Failure::new(7, format!("the log could not be closed: {error}")))
    }
}

/// True if what is durable of a partition may not be part of its log behind this record.
fn moves_the_end(record: &Record) -> bool {
    matches!(record, Record::Truncate { .. } | Record::Base { .. } | Record::Forget { .. })
}

/// One partition's records without those of a log that a later one of them begins anew, or ends: nobody waits for these.
fn without_replaced(mut records: Vec<Record>) -> Vec<Record> {
    let begins = |record: &Record| matches!(record, Record::Base { .. } | Record::Forget { .. });
    let Some(begins) = records.iter().rposition(begins) else { return records };
    let mut at = 0;
    records.retain(|record| {
        at += 1;
        // Promises and notes are not the log's; what forgets them is needed.
        let of_the_log = matches!(record, Record::Entry(_) | Record::Trim { .. })
            || matches!(record, Record::Truncate { .. } | Record::Base { .. });
        at > begins || !of_the_log
    });
    records
}

/// The same records in the same order, in pieces of at least [`PIECE`] bytes but for the last. An entry and the notes behind it
/// stay together; what comes before the first one that needs room is a piece for itself, which a full log takes, as it may make room.
fn pieces(mut records: Vec<Record>) -> Vec<Vec<Record>> {
    let entries = records.iter().position(Record::needs_room);
    let entries = records.split_off(entries.unwrap_or(records.len()));
    let mut pieces: Vec<Vec<Record>> = Vec::new();
    if !records.is_empty() {
        pieces.push(records);
    }
    let mut bytes = PIECE;
    for record in entries {
        let length = if let Record::Entry(entry) = &record { entry.bytes().len() } else { 0 };
        match pieces.last_mut().filter(|_| length == 0 || bytes < PIECE) {
            Some(piece) => piece.push(record),
            None => {
                pieces.push(vec![record]);
                bytes = 0;
            }
        }
        bytes += length;
    }
    pieces
}

#[cfg(test)]
mod tests;
