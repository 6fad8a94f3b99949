//! Group commit, without the thread: submissions that waited together become one frame and one sync, and what
//! is refused for want of room holds back what follows it.

use crate::error::LogError;
use crate::log::Log;
use std::collections::{BTreeMap, BTreeSet};
use types::PartitionId;
use wire::log::Record;

/// A batch is closed once it has this many bytes of entries, so that no reply waits for a very long write.
const BATCH_BYTES: usize = 4 << 20;

/// Names one submission; they count up from 1.
pub type Ticket = u64;

/// Records that are written together or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Submission {
    /// Its name, greater than those of all that were submitted before.
    pub ticket: Ticket,
    /// What to write, in order.
    pub records: Vec<Record>,
    /// Its owner knows of all that was refused before for these partitions, and begins again where their log
    /// ends.
    pub again: bool,
}

/// A submission that the log did not take.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Which.
    pub ticket: Ticket,
    /// The partitions it was about. Their log ends where it did before; later submissions for them are
    /// refused as well, but for truncations, until one that comes [`Submission::again`].
    pub partitions: Vec<PartitionId>,
    /// Why.
    pub error: LogError,
}

/// What became of a batch: durable with the next sync, but for what was refused.
#[derive(Clone, Debug)]
pub struct Appended {
    /// The last submission of the batch.
    pub through: Ticket,
    /// Submissions that were not taken.
    pub refused: Vec<Refused>,
}

/// A log to which batches of submissions are written.
pub struct GroupCommit {
    log: Log,
    /// Partitions of which a submission was refused, and why: what follows must not be taken before it, even
    /// if it would fit.
    behind: BTreeMap<PartitionId, LogError>,
}

impl GroupCommit {
    /// For a log of which nothing was refused.
    pub fn new(log: Log) -> GroupCommit {
        GroupCommit { log, behind: BTreeMap::new() }
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The log, for all but appending.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Ends the log's life with the clean-shutdown mark: not if something was refused and did not come again,
    /// as the mark would say that nothing is missing (F06).
    pub fn shutdown(self) -> Result<(), LogError> {
        if self.behind.is_empty() { self.log.shutdown() } else { Ok(()) }
    }

    /// Divides what waits into batches of a bounded size. None of them is empty.
    pub fn batches(waiting: Vec<Submission>) -> Vec<Vec<Submission>> {
        let mut batches: Vec<Vec<Submission>> = Vec::new();
        let mut bytes = BATCH_BYTES;
        for submission in waiting {
            if bytes >= BATCH_BYTES {
                batches.push(Vec::new());
                bytes = 0;
            }
            bytes += submission.records.iter().map(length).sum::<usize>();
            batches.last_mut().expect("one was begun").push(submission);
        }
        batches
    }

    /// Appends a batch, which is not empty: all of it as one frame if the log takes it. If not, one by one,
    /// since the small ones and those that make room may still pass. An error is the end of the log.
    pub fn append(&mut self, batch: Vec<Submission>) -> Result<Appended, LogError> {
        let through = batch.last().expect("a batch is not empty").ticket;
        let mut refused = Vec::new();
        if !self.together(&batch)? {
            for Submission { ticket, records, again } in batch {
                let Err(error) = self.alone(&records, again) else { continue };
                if matches!(error, LogError::Poisoned { .. }) {
                    return Err(error);
                }
                let partitions: BTreeSet<_> = records.iter().map(Record::partition).collect();
                self.behind.extend(partitions.iter().map(|partition| (*partition, error.clone())));
                refused.push(Refused { ticket, partitions: partitions.into_iter().collect(), error });
            }
        }
        Ok(Appended { through, refused })
    }

    /// False if the log refuses, or something was refused before.
    fn together(&mut self, batch: &[Submission]) -> Result<bool, LogError> {
        if !self.behind.is_empty() {
            return Ok(false);
        }
        let all: Vec<Record> =
            batch.iter().flat_map(|submission| submission.records.iter().cloned()).collect();
        match self.log.append(&all) {
            Ok(()) => Ok(true),
            Err(error @ LogError::Poisoned { .. }) => Err(error),
            Err(_) => Ok(false),
        }
    }

    fn alone(&mut self, records: &[Record], again: bool) -> Result<(), LogError> {
        let passes = |record: &Record| again || matches!(record, Record::Trim { .. });
        for record in records {
            let Some(error) = self.behind.get(&record.partition()) else { continue };
            if !passes(record) || !self.log.accepts(records) {
                return Err(error.clone());
            }
        }
        self.log.append(records)?;
        if again {
            for record in records {
                self.behind.remove(&record.partition());
            }
        }
        Ok(())
    }
}

/// About how many bytes a record takes.
fn length(record: &Record) -> usize {
    match record {
        Record::Entry(entry) => entry.bytes().len(),
        Record::Custom { value, .. } => value.len(),
        _ => 0,
    }
}
