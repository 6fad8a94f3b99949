//! The thread that a node wraps around its log: group commit.
//!
//! While one fsync runs, everything that is submitted queues up; then all of it, and what is expected to come
//! at once ([`GroupWait`]), is one frame, one write and one fsync. After [`IDLE`] without work the thread
//! writes the sync mark (PR-18), which nobody waits for.

use crate::apart::ApartMade;
use crate::error::LogError;
use crate::group::{Appended, GroupCommit, Refused, Submission, Ticket};
use crate::group_wait::GroupWait;
use crate::log::{Log, Stats};
use crate::reader::Reader;
use crate::segments::Spare;
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use types::{Durable, PartitionId, Position};
use wire::log::Record;

/// How long the log is idle before its mark is written.
pub const IDLE: Duration = Duration::from_millis(5);
/// So much is written without waiting for more: writing it takes longer than its fsync.
const ENOUGH_BYTES: usize = 256 << 10;

/// What one sync made durable.
#[derive(Clone, Debug, Default)]
pub struct SyncedBatch {
    /// Every submission up to this ticket is durable, or is named in a `refused`.
    pub through: Ticket,
    /// Every partition whose durable end changed.
    pub durable: Vec<(PartitionId, Durable<Position>)>,
    /// Submissions that were not taken.
    pub refused: Vec<Refused>,
    /// The log has failed: nothing after `through` of the batch before is durable, nothing more will be, and
    /// the process must stop (R10).
    pub fatal: Option<LogError>,
    /// The log's counters.
    pub stats: Stats,
    /// How long the fsync took.
    pub sync_took: Duration,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Submission>,
    /// Entries in what waits, and their bytes.
    entries: usize,
    bytes: usize,
    /// Something among it is not to wait for entries to come.
    urgent: bool,
    /// The thread sleeps until so many entries wait.
    wanted: Option<usize>,
    last: Ticket,
    /// Partitions whose entries are to be put apart.
    to_put_apart: BTreeSet<PartitionId>,
    /// Such as were written to files.
    apart: Vec<ApartMade>,
    stop: Option<Stop>,
}

impl Queue {
    fn add(&mut self, submission: Submission) {
        for record in &submission.records {
            match record {
                Record::Entry(entry) => {
                    self.entries += 1;
                    self.bytes += entry.bytes().len();
                }
                // It does not hurry, but is not to wait for others for ever.
                Record::Trim { .. } => self.entries = self.entries.max(1),
                _ => self.urgent = true,
            }
        }
        self.urgent |= self.bytes >= ENOUGH_BYTES || submission.records.is_empty();
        self.waiting.push(submission);
    }

    /// True if the thread should write what waits.
    fn is_enough(&self, entries: usize) -> bool {
        self.urgent || self.entries >= entries
    }

    fn take(&mut self) -> Vec<Submission> {
        (self.entries, self.bytes, self.urgent) = (0, 0, false);
        std::mem::take(&mut self.waiting)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// With a clean-shutdown mark, after everything that waits was written.
    Clean,
    /// Without the mark, after everything that waits was written.
    Unmarked,
    /// As it is.
    Now,
}

#[derive(Default)]
struct Inbox {
    queue: Mutex<Queue>,
    filled: Condvar,
}

impl Inbox {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("a thread panicked while it held the log's queue")
    }
}

/// The log on a thread of its own.
pub struct Writer {
    inbox: Arc<Inbox>,
    reader: Reader,
    thread: Option<JoinHandle<Result<(), LogError>>>,
}

impl Writer {
    /// Starts the thread. `on_synced` is called on it after every sync, in order.
    pub fn start(log: Log, on_synced: Box<dyn FnMut(SyncedBatch) + Send>) -> Writer {
        let inbox = Arc::new(Inbox::default());
        let reader = log.reader();
        let (made, spares) = mpsc::channel();
        let log = GroupCommit::new(log);
        let group_wait = GroupWait::default();
        let thread = Thread { log, inbox: inbox.clone(), on_synced, made, spares, group_wait };
        let spawned = std::thread::Builder::new().name("log".to_owned()).spawn(move || thread.run());
        Writer { inbox, reader, thread: Some(spawned.expect("the system starts threads")) }
    }

    /// Queues records to be written together, after all that were submitted before.
    pub fn submit(&self, records: Vec<Record>) -> Ticket {
        self.queue(records, false)
    }

    /// The same by an owner who knows of all that was refused for these partitions, and begins again where
    /// their log ends.
    pub fn submit_again(&self, records: Vec<Record>) -> Ticket {
        self.queue(records, true)
    }

    fn queue(&self, records: Vec<Record>, again: bool) -> Ticket {
        let mut queue = self.inbox.queue();
        queue.last += 1;
        let ticket = queue.last;
        queue.add(Submission { ticket, records, again });
        let wakes = queue.wanted.is_some_and(|wanted| queue.is_enough(wanted));
        if wakes {
            queue.wanted = None;
        }
        drop(queue);
        if wakes {
            self.inbox.filled.notify_one();
        }
        ticket
    }

    /// Has the entries of these partitions put apart, and of those that were named before and are not yet, if
    /// that gives more of the log back than it takes ([`Log::orders_apart`]).
    pub fn put_apart(&self, partitions: BTreeSet<PartitionId>) {
        self.inbox.queue().to_put_apart.extend(partitions);
        self.inbox.filled.notify_one();
    }

    /// How many submissions wait for the thread.
    pub fn waiting(&self) -> usize {
        self.inbox.queue().waiting.len()
    }

    /// A handle for reading from any thread.
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// Writes what waits and the clean-shutdown mark, and ends the thread. Without the mark if something was
    /// refused and did not come again.
    pub fn shutdown(mut self) -> Result<(), LogError> {
        self.stop(Stop::Clean)
    }

    /// The same without the mark: its owner knows of something that is missing.
    pub fn shutdown_unmarked(mut self) -> Result<(), LogError> {
        self.stop(Stop::Unmarked)
    }

    fn stop(&mut self, how: Stop) -> Result<(), LogError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.inbox.queue().stop = Some(how);
        self.inbox.filled.notify_one();
        thread.join().expect("the log's thread panicked")
    }
}

impl Drop for Writer {
    /// Ends the thread without a clean-shutdown mark; what waits is not written.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.inbox.queue().stop = Some(Stop::Now);
            self.inbox.filled.notify_one();
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Thread {
    log: GroupCommit,
    inbox: Arc<Inbox>,
    on_synced: Box<dyn FnMut(SyncedBatch) + Send>,
    made: mpsc::Sender<Spare>,
    spares: mpsc::Receiver<Spare>,
    group_wait: GroupWait,
}

/// What the thread finds to do.
enum Work {
    Write(Vec<Submission>),
    PutApart(BTreeSet<PartitionId>),
    TakeApart(Vec<ApartMade>),
    Mark,
    Stop(Stop),
}

impl Thread {
    fn run(mut self) -> Result<(), LogError> {
        loop {
            let done = match self.wait() {
                Work::Write(waiting) => self.write(waiting),
                Work::PutApart(partitions) => {
                    self.put_apart(&partitions);
                    Ok(())
                }
                Work::TakeApart(made) => {
                    made.into_iter().try_for_each(|made| self.log.log_mut().take_apart(made))
                }
                // A mark that found no room or was not taken is no loss yet: the next frame carries it as
                // well.
                Work::Mark => match self.log.log_mut().mark() {
                    Err(error @ LogError::Poisoned { .. }) => Err(error),
                    Err(_) | Ok(()) => Ok(()),
                },
                Work::Stop(Stop::Clean) => return self.log.shutdown(),
                Work::Stop(Stop::Unmarked | Stop::Now) => return Ok(()),
            };
            if let Err(error) = done {
                let fatal = Some(error.clone());
                let stats = self.log.log().stats();
                (self.on_synced)(SyncedBatch { fatal, stats, ..SyncedBatch::default() });
                return Err(error);
            }
        }
    }

    /// Waits for work. While there is any, no clock is read.
    fn wait(&mut self) -> Work {
        let inbox = self.inbox.clone();
        let mut queue = inbox.queue();
        loop {
            queue.wanted = None;
            if queue.stop == Some(Stop::Now) {
                return Work::Stop(Stop::Now);
            }
            if !queue.waiting.is_empty() {
                queue = self.wait_for_more(&inbox, queue);
                if queue.stop == Some(Stop::Now) {
                    continue;
                }
                self.group_wait.begins(queue.is_enough(self.group_wait.target()));
                return Work::Write(queue.take());
            }
            if let Some(stop) = queue.stop {
                return Work::Stop(stop);
            }
            if !queue.apart.is_empty() {
                return Work::TakeApart(std::mem::take(&mut queue.apart));
            }
            if !queue.to_put_apart.is_empty() {
                return Work::PutApart(std::mem::take(&mut queue.to_put_apart));
            }
            queue.wanted = Some(1);
            if !self.log.log().wants_mark() {
                queue = inbox.filled.wait(queue).expect("a thread panicked while it held the log's queue");
                continue;
            }
            let (again, timeout) = inbox
                .filled
                .wait_timeout(queue, IDLE)
                .expect("a thread panicked while it held the log's queue");
            queue = again;
            if timeout.timed_out() && queue.waiting.is_empty() && queue.stop.is_none() {
                return Work::Mark;
            }
        }
    }

    /// Waits until as many entries are there as are expected.
    fn wait_for_more<'q>(&self, inbox: &'q Inbox, mut queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        let (target, window) = (self.group_wait.target(), self.group_wait.window());
        let is_done = |queue: &Queue| queue.is_enough(target) || queue.stop.is_some();
        if is_done(&queue) || window.is_zero() {
            return queue;
        }
        let begun = Instant::now();
        while let Some(rest) = window.checked_sub(begun.elapsed()).filter(|_| !is_done(&queue)) {
            queue.wanted = Some(target);
            let waited = inbox.filled.wait_timeout(queue, rest);
            (queue, _) = waited.expect("a thread panicked while it held the log's queue");
        }
        queue.wanted = None;
        queue
    }

    /// Writes all that waited, in as few batches as its size allows.
    fn write(&mut self, waiting: Vec<Submission>) -> Result<(), LogError> {
        GroupCommit::batches(waiting).into_iter().try_for_each(|batch| self.batch(batch))
    }

    fn batch(&mut self, batch: Vec<Submission>) -> Result<(), LogError> {
        let entries = batch.iter().flat_map(|submission| &submission.records);
        let entries = entries.filter(|record| matches!(record, Record::Entry(_))).count();
        let Appended { through, refused } = self.log.append(batch)?;
        let start = Instant::now();
        let durable = self.log.log_mut().sync()?;
        let (sync_took, stats) = (start.elapsed(), self.log.log().stats());
        self.group_wait.synced(entries, sync_took, self.inbox.queue().entries);
        (self.on_synced)(SyncedBatch { through, durable, refused, fatal: None, stats, sync_took });
        self.housekeeping()
    }

    /// Another thread writes the files: reading entries back takes as long as many batches.
    fn put_apart(&mut self, partitions: &BTreeSet<PartitionId>) {
        let orders = self.log.log_mut().orders_apart(partitions);
        if orders.is_empty() {
            return;
        }
        let inbox = self.inbox.clone();
        let spawned = std::thread::Builder::new().name("log-apart".to_owned()).spawn(move || {
            for order in orders {
                let made = order.make();
                inbox.queue().apart.push(made);
                inbox.filled.notify_one();
            }
        });
        drop(spawned.expect("the system starts threads"));
    }

    /// What can be done after the replies went out.
    fn housekeeping(&mut self) -> Result<(), LogError> {
        let log = self.log.log_mut();
        log.reclaim()?;
        while let Ok(spare) = self.spares.try_recv() {
            log.add_spare(spare);
        }
        if let Some(order) = log.wants_spare() {
            let made = self.made.clone();
            // Writing a segment's zeros takes as long as many batches, so another thread does it. If the log
            // is gone when it is done, the file is found at the next opening.
            let spawned = std::thread::Builder::new().name("log-spare".to_owned()).spawn(move || {
                let _ = made.send(order.make());
            });
            drop(spawned.expect("the system starts threads"));
        }
        Ok(())
    }
}
