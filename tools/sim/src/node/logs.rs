//! The logs of a process's replicas: the queue and the group commit of a real node, on a simulated disk.

use driver::LogQueue;
use std::collections::BTreeSet;
use types::{Durable, Lsn, Micros, PartitionId, Position};
use wal::{Appended, GroupCommit, Log, LogError, ReadLog, Record, Submission, Ticket};
use wire::Entry;

/// The log on the disk, logs in memory, and what is on its way to the disk.
pub struct Logs {
    queue: LogQueue,
    log: GroupCommit,
    /// What was submitted and waits for the disk.
    waiting: Vec<Submission>,
    /// What was written and is not synced yet.
    writing: Option<Appended>,
    /// How many frames there were at the last sync.
    synced_frames: u64,
}

/// A write that began.
pub struct Begun {
    /// What the log refused of it, and why.
    pub refused: Option<LogError>,
}

impl Logs {
    /// On what was found on the disk.
    pub fn new(log: Log) -> Logs {
        let (queue, waiting) = (LogQueue::default(), Vec::new());
        let synced_frames = log.stats().frames;
        Logs { queue, log: GroupCommit::new(log), waiting, writing: None, synced_frames }
    }

    /// The log on the disk.
    pub fn log(&self) -> &Log {
        self.log.log()
    }

    /// From now on this partition's log is in memory.
    pub fn keep_in_memory(&mut self, partition: PartitionId) {
        self.queue.keep_in_memory(partition);
    }

    /// True if this partition's log is in memory.
    pub fn is_in_memory(&self, partition: PartitionId) -> bool {
        self.queue.memory(partition).is_some()
    }

    /// Takes a change of a partition's log.
    pub fn push(&mut self, record: Record) {
        self.queue.push(record, durable(self.log.log()));
    }

    /// Nothing of this partition is needed any more.
    pub fn forget(&mut self, partition: PartitionId) {
        self.queue.forget(partition);
    }

    /// A turn ends: what came in it is submitted.
    pub fn submit(&mut self, now: u64) {
        let more = self.queue.submit(Micros(now), durable(self.log.log()));
        self.waiting.extend(more);
    }

    /// Writes what waits, if the disk is idle: nothing if it is not, or nothing waits. The rest is done by
    /// [`Logs::sync`]. An error is the end of the process.
    pub fn write(&mut self) -> Result<Option<Begun>, LogError> {
        if self.writing.is_some() || self.waiting.is_empty() {
            return Ok(None);
        }
        let mut batches = GroupCommit::batches(std::mem::take(&mut self.waiting)).into_iter();
        let batch = batches.next().expect("something waits");
        self.waiting = batches.flatten().collect();
        let appended = self.log.append(batch)?;
        if let Some(other) = appended.refused.iter().find(|refused| !refused.error.is_passing()) {
            return Err(other.error.clone());
        }
        let refused = appended.refused.first().map(|refused| refused.error.clone());
        self.writing = Some(appended);
        Ok(Some(Begun { refused }))
    }

    /// True if the disk is to sync what was written.
    pub fn is_syncing(&self) -> bool {
        self.writing.is_some()
    }

    /// True if a frame was written since the last sync: all that was refused leaves none.
    pub fn has_new_frames(&self) -> bool {
        self.log().stats().frames > self.synced_frames
    }

    /// Makes durable what was written, and does what can be done behind it. An error is the end of the
    /// process.
    pub fn sync(&mut self) -> Result<Vec<(PartitionId, Durable<Position>)>, LogError> {
        let log = self.log.log_mut();
        let tokens = log.sync()?;
        self.synced_frames = log.stats().frames;
        log.reclaim()?;
        if let Some(order) = log.wants_spare() {
            log.add_spare(order.make());
        }
        if let Some(Appended { through, refused }) = self.writing.take() {
            let refused: BTreeSet<Ticket> = refused.into_iter().map(|refused| refused.ticket).collect();
            self.queue.settle(through, &refused);
        }
        Ok(tokens)
    }

    /// Has the entries of these partitions written to files of their own, if that makes room and the disk is
    /// idle. An error is the end of the process.
    pub fn put_apart(&mut self, partitions: &BTreeSet<PartitionId>) -> Result<usize, LogError> {
        if self.writing.is_some() || partitions.is_empty() {
            return Ok(0);
        }
        let log = self.log.log_mut();
        let orders = log.orders_apart(partitions);
        let count = orders.len();
        orders.into_iter().try_for_each(|order| log.take_apart(order.make()))?;
        Ok(count)
    }

    /// Writes the mark of an idle log, if it is idle and wants one. True if it was written.
    pub fn mark(&mut self) -> Result<bool, LogError> {
        let idle = self.writing.is_none() && self.waiting.is_empty();
        if !idle || !self.log.log().wants_mark() {
            return Ok(false);
        }
        match self.log.log_mut().mark() {
            Ok(()) => Ok(true),
            Err(error @ LogError::Poisoned { .. }) => Err(error),
            // It found no room: the next frame carries it as well.
            Err(_) => Ok(false),
        }
    }

    /// Reads entries back.
    pub fn read(&self, partition: PartitionId, from: Lsn, max_bytes: usize) -> Result<Vec<Entry>, String> {
        let read = match self.queue.memory(partition) {
            Some(memory) => memory.read(partition, from, max_bytes),
            None => self.log.log().read(partition, from, max_bytes),
        };
        read.map_err(|error| error.to_string())
    }

    /// True while something waits for room, or it is not known yet whether there is room for it.
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// True if a write of this partition is on its way to the disk.
    pub fn is_writing(&self, partition: PartitionId) -> bool {
        self.queue.is_writing(partition)
    }

    /// When the oldest write that is pending was submitted.
    pub fn oldest_pending(&self) -> Option<Micros> {
        self.queue.oldest_pending()
    }

    /// True if the log of this partition is about to begin again: it does so before anything that follows.
    pub fn begins_again(&self, partition: PartitionId) -> bool {
        self.queue.unwritten(partition).any(|record| matches!(record, Record::Base { .. }))
    }

    /// The process ends properly: what waits is written first. The log gets its mark unless something found
    /// no room, or was not `all`. One that has failed cannot be shut down.
    pub fn shutdown(mut self, now: u64, all: bool) -> Result<(), LogError> {
        let (more, whole) = self.queue.close(Micros(now), durable(self.log.log()));
        self.waiting.extend(more);
        for batch in GroupCommit::batches(std::mem::take(&mut self.waiting)) {
            self.log.append(batch)?;
        }
        match all && whole {
            true => self.log.shutdown(),
            false => self.log.log_mut().sync().map(drop),
        }
    }
}

/// Up to which entry the disk has a partition's log.
fn durable(log: &Log) -> impl Fn(PartitionId) -> Option<Lsn> {
    |partition| log.durable(partition).map(|durable| durable.get().lsn)
}
