//! The node's log as the executor sees it: what the replicas ask for goes through a [`LogQueue`] to the log's
//! thread, one submission per turn.

use crate::failure::Failure;
use crate::stop::{Stopper, Watched};
use driver::LogQueue;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use types::{Durable, Lsn, Micros, PartitionId, Position};
use wal::{Log, ReadLog, Reader, Stats, Submission, SyncedBatch, Ticket, Writer};
use wire::Entry;
use wire::log::Record;

/// What the log's thread leaves for the executor.
#[derive(Default)]
struct Done {
    batches: Mutex<Vec<SyncedBatch>>,
    /// The executor has been woken and has not looked yet.
    signalled: AtomicBool,
}

/// The log as the executor sees it.
pub struct Journal {
    queue: LogQueue,
    writer: Writer,
    reader: Reader,
    done: Arc<Done>,
    stats: Stats,
}

impl Journal {
    /// Puts a log on a thread of its own, which wakes the executor when something became durable and may not
    /// end before it.
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
        let writer = Writer::start(log, on_synced);
        Journal { queue: LogQueue::default(), writer, reader, done, stats: Stats::default() }
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
    }

    /// Hands this turn's records to the log's thread.
    pub fn submit(&mut self, now: Micros) {
        let submissions = self.queue.submit(now, durable(&self.reader));
        self.hand_over(submissions);
    }

    fn hand_over(&self, submissions: Vec<Submission>) {
        for Submission { ticket, records, again } in submissions {
            let given = if again { self.writer.submit_again(records) } else { self.writer.submit(records) };
            assert_eq!(ticket, given, "this is the only one who submits");
        }
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
            if let Some(other) = batch.refused.iter().find(|refused| !refused.error.is_passing()) {
                return Err(Failure::new(
                    7,
                    format!("the log cannot be written, this node stops: {}", other.error),
                ));
            }
            let refused: BTreeSet<Ticket> = batch.refused.iter().map(|refused| refused.ticket).collect();
            self.queue.settle(batch.through, &refused);
            tokens.extend(batch.durable);
            self.stats = batch.stats;
        }
        Ok(tokens)
    }

    /// True while something waits for room on the disk, or it is not known yet whether there is room for it.
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
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

    /// Bytes of log in use, on the disk and in memory.
    pub fn bytes(&self) -> u64 {
        self.reader.bytes() + self.queue.memory_bytes()
    }

    /// The log's counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Writes what waits and the clean-shutdown mark (F06). Without the mark if something found no room, or
    /// was not `all`.
    pub fn shutdown(mut self, now: Micros, all: bool) -> Result<(), Failure> {
        let (submissions, whole) = self.queue.close(now, durable(&self.reader));
        self.hand_over(submissions);
        let closed = match all && whole {
            true => self.writer.shutdown(),
            false => self.writer.shutdown_unmarked(),
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
