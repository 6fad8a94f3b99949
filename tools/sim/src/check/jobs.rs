//! PR-47, PR-82: what a job's end called committed is there, and what it did not is not.

use crate::check::final_log::Final;
use std::collections::BTreeMap;
use types::{JobId, PartitionId, Position};

/// What a job was told of a partition at its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobAnswer {
    /// The job.
    pub job: JobId,
    /// Where.
    pub partition: PartitionId,
    /// Of the records that belong there those up to this number are committed, and no others.
    pub through: u64,
    /// The entry of the job's end; none where nothing was ever sent.
    pub at: Option<Position>,
    /// The records that belong there: number, and the value that nobody else writes.
    pub records: Vec<(u64, u64)>,
}

/// Checks what jobs were told of one partition against its final log. The error is a sentence.
pub fn check(last: &Final<'_>, told: &[&JobAnswer]) -> Result<(), String> {
    let mut places: BTreeMap<u64, usize> = BTreeMap::new();
    for value in last.line.iter().flat_map(|known| known.changes.iter().filter_map(|(_, value)| *value)) {
        *places.entry(value).or_default() += 1;
    }
    for told in told {
        // An end that was lost, rightly, took with it what it had told of: records that it had committed, and
        // that it had aborted others, which are there again with the log that is left.
        let lost = told.at.is_some_and(|at| last.lost.contains_key(&at));
        for (number, value) in &told.records {
            let times = places.get(value).copied().unwrap_or(0);
            let (job, partition) = (told.job, told.partition);
            let what = format!("record {number} of job {job} in {partition}, told through {}", told.through);
            match (*number <= told.through, times) {
                (_, 2..) => return Err(format!("{what}, is there {times} times")),
                (true, 0) if !lost => return Err(format!("{what}, is lost")),
                (false, 1) if !lost => return Err(format!("{what}, is there")),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::lineage::Known;
    use crate::check::lineage::tests::{P, at};

    fn verdict(values: &[u64], through: u64, lost: bool) -> Result<(), String> {
        let known = |(lsn, value): (u64, &u64)| Known {
            at: at(1, lsn),
            crc: 0,
            prev_crc: 0,
            is_write: true,
            session: None,
            changes: vec![("j1".into(), Some(*value))],
            marks: Vec::new(),
            tables: Vec::new(),
            commits: Vec::new(),
            counters: Vec::new(),
        };
        let line: Vec<Known> = (2..).zip(values).map(known).collect();
        let records = vec![(1, 11), (4, 14), (5, 15)];
        let told = JobAnswer { job: JobId::new(1, 1), partition: P, through, at: Some(at(1, 9)), records };
        let lost = lost.then(|| (at(1, 9), 30)).into_iter().collect();
        check(&Final::new(line.iter().collect(), lost, None), &[&told])
    }

    #[test]
    fn records_that_are_lost_doubled_or_unwanted_are_rejected() {
        assert_eq!(verdict(&[11, 14], 4, false), Ok(()));
        assert_eq!(verdict(&[11, 14, 15], 5, false), Ok(()));
        assert_eq!(verdict(&[], 0, false), Ok(()));
        assert!(verdict(&[11], 4, false).is_err(), "14 is lost");
        assert_eq!(verdict(&[11], 4, true), Ok(()), "and its end with it");
        assert!(verdict(&[11, 14, 15], 4, false).is_err(), "15 is there");
        assert_eq!(verdict(&[11, 14, 15], 4, true), Ok(()), "and that it was aborted is lost");
        assert!(verdict(&[11, 14, 14], 4, false).is_err(), "14 is there twice");
    }
}
