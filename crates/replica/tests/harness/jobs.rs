//! Jobs in scripts.

use super::{World, indexes};
use bytes::Bytes;
use std::fmt::Write as _;
use types::JobId;
use wire::job::{JobRecord, JobState};
use wire::{Body, Op, Reply, RowOp, Status};

/// The job of a number.
fn job(word: &str) -> JobId {
    JobId::new(word.parse().expect("a job's number"), 0)
}

/// `NUMBER:put:KEY:VALUE`, `insert`, `update`; `NUMBER:remove:KEY`; `NUMBER:row:KEY:VALUE` of a table with
/// columns.
fn record(word: &str) -> JobRecord {
    let parts: Vec<&str> = word.split(':').collect();
    let text = |at: usize| Bytes::copy_from_slice(parts[at].as_bytes());
    let op = match parts[1] {
        "put" => RowOp::Put { key: text(2), row: text(3) },
        "insert" => RowOp::Insert { key: text(2), row: text(3) },
        "update" => RowOp::Update { key: text(2), row: text(3) },
        "row" => RowOp::Put { key: indexes::key(parts[2]), row: indexes::row(parts[2], parts[3]) },
        _ => RowOp::Delete { key: text(2) },
    };
    JobRecord { number: parts[0].parse().expect("a number"), op }
}

/// The same, or `FIRST..LAST:VALUE`: so many rows, each with its number as its key.
fn records(word: &str) -> Vec<JobRecord> {
    let Some((numbers, value)) = word.split_once(':').filter(|(numbers, _)| numbers.contains("..")) else {
        return vec![record(word)];
    };
    let (first, last) = numbers.split_once("..").expect("two numbers");
    let number = |word: &str| word.parse::<u64>().expect("a number");
    (number(first)..=number(last)).map(|number| record(&format!("{number}:row:{number}:{value}"))).collect()
}

impl World {
    /// `piece N JOB after=NUMBER RECORD.. [s=EPOCH,LSN seq=N]` · `end N JOB through=NUMBER [abort]
    /// [s=EPOCH,LSN seq=N]` · `job N JOB` · `heavy N ROWS BYTES`: one write · `many N RECORD.. [s=EPOCH,LSN
    /// seq=N] [deadline=MS]`: one write, the records' numbers mean nothing.
    pub fn run_jobs(&mut self, words: &[&str]) -> bool {
        let named = |name: &str| {
            let word = words.iter().find_map(|word| word.strip_prefix(name));
            word.map_or(0, |number| number.parse().expect("a number"))
        };
        let op = match words[0] {
            "piece" => {
                let records =
                    words[3..].iter().filter(|word| word.contains(':')).flat_map(|word| records(word));
                Op::Job { job: job(words[2]), after: named("after="), records: records.collect() }
            }
            "end" => {
                let abort = words.contains(&"abort");
                Op::EndJob { job: job(words[2]), through: named("through="), abort }
            }
            "job" => Op::ShowJob { job: job(words[2]) },
            "many" => {
                let records = words[2..].iter().filter(|word| word.contains(':'));
                Op::write(records.map(|word| record(word).op).collect())
            }
            "heavy" => {
                let (rows, bytes): (u32, usize) =
                    (words[2].parse().expect("a number"), words[3].parse().expect("a number"));
                let row = Bytes::from(vec![7; bytes]);
                let put =
                    |n: u32| RowOp::Put { key: Bytes::copy_from_slice(&n.to_be_bytes()), row: row.clone() };
                Op::write((0..rows).map(put).collect())
            }
            _ => return false,
        };
        self.ask(words[1].parse().expect("a node"), op, words);
        true
    }

    /// What a reply says of a job.
    pub(super) fn show_job(&mut self, reply: &Reply) {
        let Body::Job(done) = &reply.body else { return };
        let state = match done.state {
            JobState::Absent => "not known",
            JobState::Open => "open",
            JobState::Committed => "committed",
            JobState::Aborted => "aborted",
        };
        let at = reply.position();
        let _ = write!(self.trace, "  {state}, {} records through {}", done.records, done.through);
        if let Some(refused) = &done.refused {
            let _ = write!(self.trace, ", {} refused: {:?}", refused.number, refused.outcome);
        }
        let entry = reply.copies > 0 && matches!(reply.status, Status::Ok | Status::Refused(_));
        let place = if entry { format!("; at {at} with {} copies", reply.copies) } else { String::new() };
        let _ = writeln!(self.trace, "{place}");
    }
}
