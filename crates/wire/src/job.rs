//! Jobs (`types::job`): records in pieces from a client to the primaries of their partitions, and the end of
//! the job.
//!
//! ```text
//! client                                  primary of each partition
//!   Op::Job: records, after number N      one entry: what the records change, and the job's row
//!   Op::Job: the next records             ...
//!   Op::EndJob: commit, or abort          one entry: the job's row; its commitment covers everything before it
//! ```
//!
//! Records have numbers that grow within the job; a partition sees those of its own keys. So that none is
//! left out, a piece names the number of the record before it in this partition, 0 before the first (PR-47).
//! A record that is refused stops the job in its partition: those before it stay, it and those after it are
//! not done. A piece that was done changes nothing when it comes again.

use crate::request::{Outcome, RowOp};
use serde::{Deserialize, Serialize};

/// One record of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobRecord {
    /// Its number in the job, from 1 on; grows from record to record.
    pub number: u64,
    /// What it does, for itself: it neither needs the others nor takes them with it.
    pub op: RowOp,
}

/// Where a job stands in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum JobState {
    /// The partition knows nothing of it: it was never there, or is forgotten.
    #[default]
    Absent,
    /// It may have more records.
    Open,
    /// It ended with all of its records done.
    Committed,
    /// It ended otherwise. What was done stays; nothing more will be.
    Aborted,
}

/// A record that was refused, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobRefusal {
    /// Its number in the job.
    pub number: u64,
    /// Why.
    pub outcome: Outcome,
    /// The number of the constraint that forbids it; 0: none does.
    pub constraint: u32,
}

/// What a job has done in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobStatus {
    /// Where it stands.
    pub state: JobState,
    /// How many of its records were done.
    pub records: u64,
    /// The number of the last of them: of the records that belong to this partition those up to this one were
    /// done, and no others. 0: none.
    pub through: u64,
    /// The record after it, if it was refused.
    pub refused: Option<JobRefusal>,
}

/// Why these are not the records of a piece, or none.
pub fn records_fault(after: u64, records: &[JobRecord]) -> Option<&'static str> {
    if records.is_empty() {
        return Some("a piece of a job has no records");
    }
    let mut last = after;
    for record in records {
        if record.number <= last {
            return Some("the records of a job's piece do not ascend");
        }
        last = record.number;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn pieces_whose_records_do_not_ascend_are_refused() {
        let piece = |numbers: &[u64]| -> Vec<JobRecord> {
            let op = RowOp::Delete { key: Bytes::from_static(b"k") };
            numbers.iter().map(|number| JobRecord { number: *number, op: op.clone() }).collect()
        };
        assert_eq!(records_fault(0, &piece(&[1, 2, 9])), None);
        assert_eq!(records_fault(4, &piece(&[5])), None);
        for (after, numbers) in [(0, &[][..]), (0, &[0]), (5, &[5]), (0, &[2, 2]), (0, &[3, 1])] {
            assert!(records_fault(after, &piece(numbers)).is_some(), "{after} {numbers:?}");
        }
    }
}
