//! Our side: a log's writer thread, and threads that append entries to it and wait until they are durable.

use crate::error::BenchError;
use crate::generate::Values;
use crate::subject::{Counters, Load, Sources, Subject, Way, note};
use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use types::random::Random;
use types::{Lsn, PartitionId, Position, Term};
use wal::{Log, Options, RealFiles, Record, SyncedBatch, Writer};
use wire::entry::{Entry, HEADER_BYTES, Header, Kind};

/// A partition's log is truncated each time it has grown by so much, as its owner does once components hold
/// it.
const KEEP_BYTES: u64 = 8 << 20;

/// How appends are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// One thread keeps so many appends on their way, over so many partitions.
    Outstanding {
        /// Appends on their way.
        appends: usize,
        /// Partitions they go to, in turn.
        partitions: u32,
    },
    /// Each of so many threads appends to a partition of its own and waits until that is durable.
    Waiting {
        /// How many.
        threads: u32,
    },
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Manner::Outstanding { appends, partitions } => {
                write!(f, "one thread with {appends} appends outstanding over {partitions} partitions")
            }
            Manner::Waiting { threads } => write!(f, "{threads} threads that wait for each append"),
        }
    }
}

/// How many entries each sync of the last round covered.
#[derive(Clone, Debug, Default)]
pub struct Batches(Arc<Mutex<Vec<u32>>>);

impl Batches {
    /// A copy of what was recorded.
    pub fn recorded(&self) -> Vec<u32> {
        self.list().clone()
    }

    fn list(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.lock().expect("a thread panicked while it held the batch sizes")
    }
}

/// What the writer's thread tells those that wait.
#[derive(Default)]
struct Durability {
    /// Every submission up to this one is durable.
    through: AtomicU64,
    fsyncs: AtomicU64,
    waiters: Mutex<Vec<Arc<Waiter>>>,
    batches: Batches,
    failure: Mutex<Option<String>>,
}

/// A thread that waits for a submission.
struct Waiter {
    wanted: AtomicU64,
    thread: Thread,
}

impl Durability {
    fn synced(&self, batch: &SyncedBatch) {
        let refused = batch.refused.first().map(|refused| refused.error.to_string());
        if let Some(failure) = refused.or(batch.fatal.as_ref().map(ToString::to_string)) {
            self.failure.lock().expect("nobody panics with it").get_or_insert(failure);
        }
        if batch.stats.last_batch > 0 {
            self.batches.list().push(batch.stats.last_batch as u32);
        }
        self.fsyncs.store(batch.stats.fsyncs, Ordering::Relaxed);
        self.through.store(batch.through, Ordering::SeqCst);
        let failed = batch.fatal.is_some();
        for waiter in self.waiters.lock().expect("nobody panics with it").iter() {
            if failed || waiter.wanted.load(Ordering::SeqCst) <= batch.through {
                waiter.thread.unpark();
            }
        }
    }

    /// Makes this thread one that is woken.
    fn join(&self) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter { wanted: AtomicU64::new(u64::MAX), thread: thread::current() });
        self.waiters.lock().expect("nobody panics with it").push(waiter.clone());
        waiter
    }

    /// Waits until this submission is durable; says how far durability has got.
    fn wait(&self, waiter: &Waiter, wanted: u64) -> Result<u64, BenchError> {
        // Told first and looked afterwards: a sync in between either sees the wish or is seen.
        waiter.wanted.store(wanted, Ordering::SeqCst);
        loop {
            let through = self.through.load(Ordering::SeqCst);
            // Before anything counts as durable: what was refused is also behind the writer.
            if let Some(failure) = &*self.failure.lock().expect("nobody panics with it") {
                return Err(BenchError::Wrong(format!("the log under test refused an append: {failure}")));
            }
            if through >= wanted {
                return Ok(through);
            }
            thread::park_timeout(Duration::from_secs(1));
        }
    }
}

/// One partition's end: makes its entries.
struct Lane {
    partition: PartitionId,
    lsn: Lsn,
    crc: u32,
    random: Random,
    values: Values,
    kept: u64,
}

impl Lane {
    fn entry(&mut self) -> Entry {
        self.lsn = Lsn(self.lsn.0 + 1);
        let mut header = Header::new(Kind::Rows, self.partition, Position::new(Term(1), self.lsn), self.crc);
        header.seq = self.lsn.0;
        let entry = Entry::encode(header, &self.values.draw(&mut self.random));
        self.crc = entry.crc();
        self.kept += entry.bytes().len() as u64;
        entry
    }

    /// The record that lets go of what is old, if there is much of it.
    fn truncation(&mut self) -> Option<Record> {
        if self.kept < KEEP_BYTES {
            return None;
        }
        self.kept = 0;
        Some(Record::Trim { partition: self.partition, below: self.lsn })
    }
}

/// A log with its writer thread, and the entries that are appended to it.
pub struct LogUnderLoad {
    writer: Writer,
    manner: Manner,
    lanes: Vec<Lane>,
    durability: Arc<Durability>,
    entry_bytes: usize,
}

impl LogUnderLoad {
    /// Begins a log below `folder`, as a node opens its own; entries carry `payload` bytes.
    pub fn open(
        folder: &Path,
        manner: Manner,
        payload: usize,
        seed: u64,
    ) -> Result<LogUnderLoad, BenchError> {
        let files = RealFiles::open(folder.join("log"))
            .map_err(|error| BenchError::io("the log's folder cannot be made", error))?;
        let (log, _) = Log::open(Arc::new(files), Options::default())?;
        let durability = Arc::new(Durability::default());
        let told = durability.clone();
        let writer = Writer::start(log, Box::new(move |batch| told.synced(&batch)));
        let partitions = match manner {
            Manner::Outstanding { partitions, .. } => partitions,
            Manner::Waiting { threads } => threads,
        };
        let values = Values::new(seed, payload);
        let lane = |number: u32| Lane {
            partition: PartitionId(64 + number),
            lsn: Lsn::ZERO,
            crc: 0,
            random: Random::new(seed.wrapping_add(u64::from(number))),
            values: values.clone(),
            kept: 0,
        };
        let lanes = (0..partitions).map(lane).collect();
        Ok(LogUnderLoad { writer, manner, lanes, durability, entry_bytes: HEADER_BYTES + payload })
    }

    /// The batch sizes of its last round.
    pub fn batches(&self) -> Batches {
        self.durability.batches.clone()
    }

    /// Bytes of one entry.
    pub fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }
}

impl Subject for LogUnderLoad {
    fn label(&self) -> String {
        format!("log, {}", self.manner)
    }

    fn sources(&self) -> Sources {
        Sources { wire: "no network", fsyncs: "the log's own count" }
    }

    fn way(&self) -> Way {
        Way::ONE_LOG
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        let fsyncs = self.durability.fsyncs.load(Ordering::Relaxed);
        Ok(Counters { wire_bytes: Some(0), fsyncs: Some(fsyncs), ..Counters::default() })
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        self.durability.batches.list().clear();
        self.durability.waiters.lock().expect("nobody panics with it").clear();
        match self.manner {
            Manner::Outstanding { appends, .. } => {
                outstanding(&self.writer, &self.durability, &mut self.lanes, appends, time)
            }
            Manner::Waiting { .. } => waiting(&self.writer, &self.durability, &mut self.lanes, time),
        }
    }
}

fn outstanding(
    writer: &Writer,
    durability: &Durability,
    lanes: &mut [Lane],
    appends: usize,
    time: Duration,
) -> Result<Load, BenchError> {
    let waiter = durability.join();
    let mut load = Load::empty();
    let mut flying: VecDeque<(u64, Instant)> = VecDeque::with_capacity(appends);
    let mut turn = 0;
    let begun = Instant::now();
    loop {
        let open = begun.elapsed() < time;
        while open && flying.len() < appends {
            turn = (turn + 1) % lanes.len();
            let lane = &mut lanes[turn];
            let from = Instant::now();
            let ticket = append(writer, lane);
            flying.push_back((ticket, from));
        }
        let Some((oldest, _)) = flying.front() else { break };
        let through = durability.wait(&waiter, *oldest)?;
        let now = Instant::now();
        while let Some((_, from)) = flying.pop_front_if(|(ticket, _)| *ticket <= through) {
            note(&mut load.latencies, now.duration_since(from));
            load.ops += 1;
        }
    }
    load.elapsed = begun.elapsed();
    Ok(load)
}

fn waiting(
    writer: &Writer,
    durability: &Durability,
    lanes: &mut [Lane],
    time: Duration,
) -> Result<Load, BenchError> {
    let begun = Instant::now();
    let one = |lane: &mut Lane| -> Result<Load, BenchError> {
        let waiter = durability.join();
        let mut load = Load::empty();
        while begun.elapsed() < time {
            let from = Instant::now();
            let ticket = append(writer, lane);
            durability.wait(&waiter, ticket)?;
            note(&mut load.latencies, from.elapsed());
            load.ops += 1;
        }
        load.elapsed = begun.elapsed();
        Ok(load)
    };
    let loads: Vec<Result<Load, BenchError>> = thread::scope(|scope| {
        let threads: Vec<_> = lanes.iter_mut().map(|lane| scope.spawn(|| one(lane))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer panicked")).collect()
    });
    let mut all = Load::empty();
    for load in loads {
        all.join(&load?);
    }
    Ok(all)
}

/// Submits the lane's next entry, now and then with a truncation. The ticket covers the entry.
fn append(writer: &Writer, lane: &mut Lane) -> u64 {
    // Before the entry is made: all that the truncation names is durable or on its way in front of it.
    let truncation = lane.truncation();
    let mut records = vec![Record::Entry(lane.entry())];
    records.extend(truncation);
    writer.submit(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_that_was_refused_is_not_durable() {
        let durability = Durability::default();
        let waiter = durability.join();
        durability.through.store(7, Ordering::SeqCst);
        assert_eq!(durability.wait(&waiter, 7).ok(), Some(7));
        *durability.failure.lock().expect("nobody panics with it") = Some("the log is full".into());
        let refused = durability.wait(&waiter, 7).expect_err("refused");
        assert!(refused.to_string().contains("the log is full"), "{refused}");
    }
}
