//! `load --job`: a file into a table as one job ([`client::job`]). Each row is committed for itself and read
//! from then on; whoever loads is answered once, at the end: all of it is committed, or the job was aborted
//! and these rows are.

use crate::failure::Failure;
use crate::global_load::no_job;
use crate::load::{LoadPlan, Watcher};
use crate::port::Port;
use crate::reading::{LoadReport, Reading, Rows};
use client::LaneId;
use client::job::{Job, JobOptions, JobPart, JobReport, PartState, new_id};
use client::table::Table;
use input::Record;
use serde::Serialize;
use std::time::Duration;
use wire::RowOp;

/// A wait for answers sleeps no longer.
const WAIT: Duration = Duration::from_millis(200);

/// How a job ended. Records are counted from 1, malformed ones included.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct JobLoadReport {
    /// What is said of every load. Of an aborted job every copy that may come to lead has its rows.
    #[serde(flatten)]
    pub load: LoadReport,
    /// The job's name.
    pub job: String,
    /// True if every row is committed.
    pub committed: bool,
    /// Why it was aborted.
    pub why: Option<String>,
    /// The first record that was refused.
    pub refused: Option<Refused>,
    /// Rows that were given to the job.
    pub rows_given: u64,
    /// Rows that may be committed or not, as their partition does not answer.
    pub rows_unknown: u64,
    /// Every row up to this record is committed.
    pub all_through: u64,
    /// The records whose rows are committed: first and last of each range.
    pub ranges: Vec<(u64, u64)>,
    /// The records of which nobody knows.
    pub unknown_ranges: Vec<(u64, u64)>,
    /// False if the ranges leave some out: the partitions say it then.
    pub ranges_whole: bool,
    /// The partitions that have rows of it.
    pub partitions: Vec<Part>,
}

/// A record that was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Refused {
    /// Which.
    pub record: u64,
    /// Where it belongs.
    pub partition: u32,
    /// Why, in a word.
    pub reason: &'static str,
    /// The constraint of its table that forbids it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraint: Option<String>,
}

/// A partition's part of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Part {
    /// Its number.
    pub partition: u32,
    /// `committed`, `aborted`, `untouched` or `unknown`.
    pub state: &'static str,
    /// Why it is not known.
    pub why: Option<String>,
    /// Rows that belong there.
    pub rows: u64,
    /// Of those, how many are committed.
    pub committed: u64,
    /// The record of the last of them: the partition's rows up to it are committed.
    pub through: u64,
    /// How many rows after that may be committed or not.
    pub unknown: u64,
}

/// Loads the rows. The file was checked before if the rule is `abort`. A job that was aborted is no failure
/// here: the report says what became of it.
pub fn load<P: Port>(
    port: &mut P,
    table: &Table,
    plan: &LoadPlan,
    insert: bool,
    watcher: &mut dyn Watcher,
) -> Result<JobLoadReport, Failure> {
    if table.is_global() {
        return Err(no_job(table.name()));
    }
    let mut reading = Reading::begin(plan, table, "loading", watcher)?;
    let mut run = Run::new(port, table, plan, insert);
    let read = reading.read(&mut run, watcher);
    match read {
        Err(failure) => run.job.abort(&failure.sentence),
        Ok(()) if run.job.trouble().is_none() => run.job.commit(),
        Ok(()) => {}
    }
    run.drive(Job::is_over)?;
    let told = run.job.report();
    watcher.rows(told.records_committed);
    reading.close_bad_rows(watcher)?;
    let load = reading.report(table, told.records_committed, told.bytes, told.copies)?;
    Ok(report(table, load, told))
}

struct Run<'a, P: Port> {
    port: &'a mut P,
    lane: LaneId,
    job: Job,
    /// Rows must not be there yet.
    insert: bool,
}

impl<'a, P: Port> Run<'a, P> {
    fn new(port: &'a mut P, table: &Table, plan: &LoadPlan, insert: bool) -> Run<'a, P> {
        let options = JobOptions {
            max_rows: plan.limits.rows,
            max_bytes: plan.limits.bytes,
            deadline: plan.limits.deadline,
            ..JobOptions::default()
        };
        let lane = port.open_lane(options.in_flight + 1);
        Run { port, lane, job: Job::new(table.clone(), new_id(), options), insert }
    }

    /// Sends what can be sent and takes answers in, until the job is as it should be.
    fn drive(&mut self, done: impl Fn(&Job) -> bool) -> Result<(), Failure> {
        loop {
            let (port, lane) = (&mut *self.port, self.lane);
            self.job.pump(&mut |call| port.submit(lane, call));
            let done = done(&self.job);
            for completed in self.port.poll(if done { Duration::ZERO } else { WAIT })? {
                self.job.completed(completed);
            }
            if done {
                return Ok(());
            }
        }
    }
}

impl<P: Port> Rows for Run<'_, P> {
    fn take(&mut self, record: Record) -> Result<(), Failure> {
        let (key, row) = (record.key.into(), record.value.into());
        let op = if self.insert { RowOp::Insert { key, row } } else { RowOp::Put { key, row } };
        Ok(self.job.add(record.index + 1, op)?)
    }

    fn look(&mut self, _: u64) -> Result<u64, Failure> {
        self.drive(|job| !job.is_full())?;
        Ok(self.job.acknowledged())
    }

    fn is_over(&self) -> bool {
        self.job.trouble().is_some()
    }
}

fn report(table: &Table, load: LoadReport, told: JobReport) -> JobLoadReport {
    let named = |number: u32| {
        let all = table.schema().constraints().iter();
        all.filter(|one| one.number == number).map(|one| one.name.clone()).next()
    };
    let refused = told.refused.map(|refused| Refused {
        record: refused.number,
        partition: refused.partition.0,
        reason: match refused.why {
            wire::Outcome::Exists => "exists",
            wire::Outcome::Unindexable => "unindexable",
            wire::Outcome::TooMuch => "too much",
            wire::Outcome::Violates => "violates",
            _ => "other",
        },
        constraint: named(refused.constraint),
    });
    JobLoadReport {
        load,
        job: told.job.to_string(),
        committed: told.committed,
        why: told.why,
        refused,
        rows_given: told.records,
        rows_unknown: told.records_unknown,
        all_through: told.all_through,
        ranges: told.ranges,
        unknown_ranges: told.unknown_ranges,
        ranges_whole: told.ranges_whole,
        partitions: told.parts.iter().map(part).collect(),
    }
}

fn part(part: &JobPart) -> Part {
    let (state, why) = match &part.state {
        PartState::Committed => ("committed", None),
        PartState::Aborted => ("aborted", None),
        PartState::Untouched => ("untouched", None),
        PartState::Unknown(why) => ("unknown", Some(why.clone())),
    };
    Part {
        partition: part.partition.0,
        state,
        why,
        rows: part.records,
        committed: part.committed,
        through: part.through,
        unknown: part.unknown,
    }
}

/// An aborted job in sentences: what is committed, and what is not known.
pub fn sentences(report: &JobLoadReport) -> Vec<String> {
    let mut lines = Vec::new();
    let answered = report.partitions.iter().all(|part| part.state != "unknown");
    let what = if answered { "committed, and secured" } else { "committed" };
    lines.push(match report.load.rows {
        0 => "committed: nothing".to_string(),
        rows => format!("{what}: {rows} rows, records {}", listed(&report.ranges)),
    });
    if !report.ranges_whole {
        let parts = report.partitions.iter().filter(|part| part.committed > 0);
        let one = |part: &Part| format!("p{} up to record {}", part.partition, part.through);
        let parts: Vec<String> = parts.map(one).collect();
        lines.push(format!("by partition, of the rows that belong there: {}", parts.join(", ")));
    }
    for part in report.partitions.iter().filter(|part| part.unknown > 0) {
        let why = part.why.as_deref().unwrap_or("it did not answer");
        lines.push(format!(
            "not known: {} rows of p{} after record {}: {why}",
            part.unknown, part.partition, part.through
        ));
    }
    lines.push("not committed: everything else of the file".to_string());
    lines
}

/// The most ranges that a sentence lists.
const LISTED: usize = 12;

fn listed(ranges: &[(u64, u64)]) -> String {
    let one = |(from, to): &(u64, u64)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    let mut text = ranges.iter().take(LISTED).map(one).collect::<Vec<_>>().join(", ");
    if ranges.len() > LISTED {
        text.push_str(&format!(" and {} more ranges (--json lists them)", ranges.len() - LISTED));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ranges: Vec<(u64, u64)>, unknown: u64) -> JobLoadReport {
        let part = |partition, unknown| Part {
            partition,
            state: if unknown > 0 { "unknown" } else { "aborted" },
            why: (unknown > 0).then(|| "no answer within 30000 ms".to_string()),
            rows: 10,
            committed: 5,
            through: 9,
            unknown,
        };
        JobLoadReport {
            load: LoadReport {
                table: "t".into(),
                created: false,
                rows: ranges.iter().map(|(from, to)| to - from + 1).sum(),
                bad_rows: 0,
                bad_rows_file: None,
                bytes: 1,
                seconds: 1.0,
                rows_per_second: 1.0,
                policy: "durable".into(),
                copies: Some(3),
            },
            job: "0000018bcfe56800".into(),
            committed: false,
            why: Some("record 6 was refused: a row with its key exists already".into()),
            refused: None,
            rows_given: 20,
            rows_unknown: unknown,
            all_through: 5,
            ranges,
            unknown_ranges: Vec::new(),
            ranges_whole: unknown == 0,
            partitions: vec![part(64, 0), part(65, unknown)],
        }
    }

    #[test]
    fn what_is_committed_is_said_by_ranges_and_what_is_not_known_by_partition() {
        let lines = sentences(&report(vec![(1, 5), (7, 7)], 0));
        assert_eq!(lines[0], "committed, and secured: 6 rows, records 1-5, 7");
        assert_eq!(lines.len(), 2);
        let lines = sentences(&report(vec![(1, 5)], 4));
        assert_eq!(lines[0], "committed: 5 rows, records 1-5");
        assert!(lines[1].contains("p64 up to record 9"), "{lines:?}");
        assert_eq!(lines[2], "not known: 4 rows of p65 after record 9: no answer within 30000 ms");
        let many = (0..30).map(|n| (2 * n + 1, 2 * n + 1)).collect();
        assert!(sentences(&report(many, 0))[0].ends_with("and 18 more ranges (--json lists them)"));
        assert_eq!(sentences(&report(Vec::new(), 0))[0], "committed: nothing");
    }
}
