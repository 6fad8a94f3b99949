//! The node's log as an executor sees it: what its replicas ask for goes through a [`LogQueue`] to the log's
//! thread, one submission per turn.
//!
//! A node has one log. Where it has several executors each has a [`Journal`] on it: one fsync is for all that
//! they submitted meanwhile, and each is told what became of its own (PR-396).

use crate::failure::Failure;
use crate::metrics::Metrics;
use crate::stop::{Stopper, Watched};
use driver::LogQueue;
use mio::Waker;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use types::{Durable, Executors, Lsn, Micros, PartitionId, Position};
use wal::{Log, ReadLog, Reader, Refused, Stats, Submission, SyncedBatch, Ticket, Writer};
use wire::Entry;
use wire::log::Record;

/// What the log's thread leaves for one executor.
struct Done {
    batches: Mutex<Vec<SyncedBatch>>,
    /// There are batches that the executor has not seen.
    left: AtomicBool,
    /// The executor has been woken and has not looked yet.
    signalled: AtomicBool,
    waker: Arc<Waker>,
    /// Wake-ups are counted here.
    metrics: Arc<Metrics>,
}

impl Done {
    fn new(waker: Arc<Waker>, metrics: Arc<Metrics>) -> Done {
        let (left, signalled) = (AtomicBool::new(false), AtomicBool::new(false));
        Done { batches: Mutex::default(), left, signalled, waker, metrics }
    }

    /// Leaves a batch, in the order of batches. One that brings the executor nothing but the news that time
    /// has passed does not wake it: it looks once in every heartbeat interval. Of such ones that it has not
    /// looked at the newest says all, so they do not pile up for an executor that hangs.
    fn leave(&self, batch: SyncedBatch, wakes: bool) {
        let mut batches = self.batches.lock().expect("a thread panicked while it held the batches");
        match batches.last_mut() {
            Some(last) if !wakes => (last.through, last.stats) = (batch.through, batch.stats),
            _ => batches.push(batch),
        }
        drop(batches);
        self.left.store(true, Ordering::Release);
        if wakes && !self.signalled.swap(true, Ordering::AcqRel) {
            self.metrics.system_calls.count_wake();
            // Fails only when the executor is gone.
            let _ = self.waker.wake();
        }
    }

    /// What was left since the last call.
    fn take(&self) -> Vec<SyncedBatch> {
        // In this order: whoever leaves something in between wakes the executor once more.
        self.signalled.store(false, Ordering::Release);
        if !self.left.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.batches.lock().expect("a thread panicked while it held the batches"))
    }
}

/// Tells each executor what became of its own submissions (PR-396). `all`: in the order of their numbers.
fn deliver(executors: Executors, all: &[Arc<Done>], batch: SyncedBatch) {
    if let [only] = all {
        return only.leave(batch, true);
    }
    for (number, done) in all.iter().enumerate() {
        let is_its_own = |partition: PartitionId| executors.of(partition) == number;
        let part = SyncedBatch {
            durable: batch.durable.iter().filter(|(id, _)| is_its_own(*id)).copied().collect(),
            // A submission is of one executor, so one of its partitions says of which.
            refused: batch
                .refused
                .iter()
                .filter(|refused| refused.partitions.iter().any(|id| is_its_own(*id)))
                .cloned()
                .collect(),
            fatal: batch.fatal.clone(),
            ..batch
        };
        let wakes = part.fatal.is_some() || !part.durable.is_empty() || !part.refused.is_empty();
        done.leave(part, wakes);
    }
}

/// Whether something of an executor waits for room in the log, or may: a bit for each of a node's.
#[derive(Default)]
struct Full(AtomicU64);

const _: () =
    assert!(Executors::MAX_COUNT < u64::BITS, "each executor has a bit, and so has the coordinator");

impl Full {
    /// Says it of the executor with this bit.
    fn say(&self, bit: u64, is_full: bool) {
        match is_full {
            true => self.0.fetch_or(bit, Ordering::AcqRel),
            false => self.0.fetch_and(!bit, Ordering::AcqRel),
        };
    }

    /// True if an executor said so that has none of these bits.
    fn is_of_others(&self, bits: u64) -> bool {
        self.0.load(Ordering::Acquire) & !bits != 0
    }
}

/// The log as one executor sees it.
pub struct Journal {
    queue: LogQueue,
    /// Of the log, which all executors share.
    full: Arc<Full>,
    /// This executor's in that.
    bit: u64,
    /// What was said there last.
    said_full: bool,
    /// The bits of executors that hang.
    hung: u64,
    writer: Arc<Writer>,
    reader: Reader,
    done: Arc<Done>,
    /// Submissions without an outcome, oldest first: the log's ticket, and the queue's.
    given: VecDeque<(Ticket, Ticket)>,
    stats: Stats,
}

impl Journal {
    /// Puts a log on a thread of its own. Gives a journal for each executor, in the order of their numbers,
    /// as are the wakers: the thread wakes an executor when something of its partitions became durable. It
    /// may not end before the node.
    pub fn start(
        log: Log,
        stopper: &Stopper,
        executors: Executors,
        wakers: &[Arc<Waker>],
        metrics: &Arc<Metrics>,
    ) -> Vec<Journal> {
        assert_eq!(executors.threads(), wakers.len(), "each executor is woken by itself");
        let done = |waker: &Arc<Waker>| Arc::new(Done::new(waker.clone(), metrics.clone()));
        let all: Vec<Arc<Done>> = wakers.iter().map(done).collect();
        let (told, watched) = (all.clone(), Watched::new(stopper, "log"));
        let reader = log.reader();
        let on_synced = Box::new(move |batch: SyncedBatch| {
            let _ends_with_the_thread = &watched;
            deliver(executors, &told, batch);
        });
        let (writer, full) = (Arc::new(Writer::start(log, on_synced)), Arc::<Full>::default());
        let journal = |(number, done): (u32, Arc<Done>)| Journal {
            queue: LogQueue::default(),
            full: full.clone(),
            bit: 1_u64 << number,
            said_full: false,
            hung: 0,
            writer: writer.clone(),
            reader: reader.clone(),
            done,
            given: VecDeque::new(),
            stats: Stats::default(),
        };
        (0..).zip(all).map(journal).collect()
    }

    /// From now on this partition's log is in memory.
    pub fn keep_in_memory(&mut self, partition: PartitionId) {
        self.queue.keep_in_memory(partition);
    }

    /// Takes a change of a partition's log; it is written with the rest of this turn.
    pub fn push(&mut self, record: Record) {
        self.queue.push(record, durable(&self.reader));
    }

    /// True if a write of this partition is on its way to the disk.
    pub fn is_writing(&self, partition: PartitionId) -> bool {
        self.queue.is_writing(partition)
    }

    /// Nothing of this partition is needed any more, so what of it waits for room need not be written (F20).
    pub fn forget(&mut self, partition: PartitionId) {
        self.queue.forget(partition);
        self.say_full();
    }

    /// Hands this turn's records to the log's thread.
    pub fn submit(&mut self, now: Micros) {
        let submissions = self.queue.submit(now, durable(&self.reader));
        self.hand_over(submissions);
        self.say_full();
    }

    /// Says to the other executors whether something of this one waits for room.
    fn say_full(&mut self) {
        let is_full = self.queue.is_full();
        if std::mem::replace(&mut self.said_full, is_full) != is_full {
            self.full.say(self.bit, is_full);
        }
    }

    fn hand_over(&mut self, submissions: Vec<Submission>) {
        for Submission { ticket, records, again } in submissions {
            let given = if again { self.writer.submit_again(records) } else { self.writer.submit(records) };
            let (given_before, before) = self.given.back().copied().unwrap_or_default();
            assert!(given_before < given && before < ticket, "the log's tickets go up like the queue's");
            self.given.push_back((given, ticket));
        }
    }

    /// The log has an outcome for all submissions up to `through`, other executors' among them: tells the
    /// queue which of its own that are, and which of them were refused.
    fn settle(&mut self, through: Ticket, refused: &[Refused]) {
        let (mut settled, mut own) = (None, BTreeSet::new());
        while let Some((given, ticket)) = self.given.front().copied().filter(|(given, _)| *given <= through) {
            self.given.pop_front();
            settled = Some(ticket);
            if refused.iter().any(|refused| refused.ticket == given) {
                own.insert(ticket);
            }
        }
        if let Some(settled) = settled {
            self.queue.settle(settled, &own);
        }
    }

    /// What became durable since the last call. A failure of the log is the end of the process (F08, R10).
    pub fn synced(&mut self) -> Result<Vec<(PartitionId, Durable<Position>)>, Failure> {
        let mut tokens = Vec::new();
        for batch in self.done.take() {
            if let Some(error) = batch.fatal {
                return Err(Failure::new(7, format!("the log failed, this node stops: {error}")));
            }
            if let Some(other) = batch.refused.iter().find(|refused| !refused.error.is_passing()) {
                return Err(Failure::new(
                    7,
                    format!("the log cannot be written, this node stops: {}", other.error),
                ));
            }
            self.settle(batch.through, &batch.refused);
            tokens.extend(batch.durable);
            self.stats = batch.stats;
        }
        self.say_full();
        Ok(tokens)
    }

    /// True while something of any executor waits for room on the disk, or it is not known yet whether there
    /// is room for it (F20): the log is one, so each makes room in it, and lets nothing new in meanwhile. Not
    /// of one that hangs: there may be room by now, and it does not look (PR-422).
    pub fn is_full(&self) -> bool {
        self.queue.is_full() || self.full.is_of_others(self.bit | self.hung)
    }

    /// These executors hang, by their numbers, and no others.
    pub fn note_hung(&mut self, executors: impl Iterator<Item = usize>) {
        self.hung = executors.fold(0, |bits, number| bits | 1 << number);
    }

    /// When the oldest write that is pending was submitted. One that waits for room is not pending: the disk
    /// answered.
    pub fn oldest_pending(&self) -> Option<Micros> {
        self.queue.oldest_pending()
    }

    /// For reading what is on the disk.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Reads entries back.
    pub fn read(&self, partition: PartitionId, from: Lsn, max_bytes: usize) -> Result<Vec<Entry>, String> {
        let read = match self.queue.memory(partition) {
            Some(memory) => memory.read(partition, from, max_bytes),
            None => self.reader.read(partition, from, max_bytes),
        };
        read.map_err(|error| error.to_string())
    }

    /// Bytes of a partition's entries at and above `lsn` on the disk.
    pub fn bytes_since(&self, partition: PartitionId, lsn: Lsn) -> u64 {
        if self.queue.memory(partition).is_some() { 0 } else { self.reader.bytes_since(partition, lsn) }
    }

    /// The partitions for whose sake the oldest part of the log on the disk is kept.
    pub fn holding_back(&self) -> Vec<PartitionId> {
        self.reader.holding_back()
    }

    /// Has the entries of these partitions written to files of their own, if that makes room (PR-301).
    pub fn put_apart(&self, partitions: BTreeSet<PartitionId>) {
        if !partitions.is_empty() {
            self.writer.put_apart(partitions);
        }
    }

    /// Bytes of log in use, on the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.reader.bytes()
    }

    /// Bytes of this executor's logs in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.queue.memory_bytes()
    }

    /// Bytes of log in use, on the disk and in memory.
    pub fn bytes(&self) -> u64 {
        self.reader.bytes() + self.memory_bytes()
    }

    /// The log's counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Hands what waits to the log's thread: this executor ends, and the log goes on. True if all of it found
    /// room.
    pub fn close(mut self, now: Micros) -> bool {
        let (submissions, whole) = self.queue.close(now, durable(&self.reader));
        self.hand_over(submissions);
        whole
    }

    /// Writes what waits and the clean-shutdown mark (F06). Without the mark if something found no room, or
    /// was not `all`. To be called for the last journal of a log: an error if another one still writes to it.
    pub fn shutdown(mut self, now: Micros, all: bool) -> Result<(), Failure> {
        let (submissions, whole) = self.queue.close(now, durable(&self.reader));
        self.hand_over(submissions);
        let Some(writer) = Arc::into_inner(self.writer) else {
            return Err(Failure::new(7, "the log could not be closed: another executor has not ended"));
        };
        let closed = match all && whole {
            true => writer.shutdown(),
            false => writer.shutdown_unmarked(),
        };
        closed.map_err(|error| Failure::new(7, format!("the log could not be closed: {error}")))
    }
}

/// Up to which entry the disk has a partition's log.
fn durable(reader: &Reader) -> impl Fn(PartitionId) -> Option<Lsn> {
    |partition| reader.durable(partition).map(|durable| durable.get().lsn)
}

#[cfg(test)]
mod tests;
