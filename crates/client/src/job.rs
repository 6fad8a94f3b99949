//! Jobs ([`wire::job`]): many records over many partitions, each committed for itself, with one answer at the
//! end.
//!
//! [`Job`] decides what is sent and what the answers mean; it does no IO, and a driver hands it the ends of
//! its calls. [`RunningJob`] drives one with a [`Client`]. Records go out in pieces, several of each
//! partition on their way at once. The answers to pieces say what need not be kept for sending it again; to
//! whoever runs the job nothing is acknowledged before its end.

mod report;

pub use report::{JobPart, JobRefused, JobReport, PartState};

use crate::call::{Call, Completed, LaneId, Outcome, Ticket};
use crate::client::Client;
use crate::error::ClientError;
use crate::table::{Table, micros};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, SystemTime};
use types::data::{Row, Value};
use types::{JobId, PartitionId};
use wire::job::{JobRecord, JobRefusal, JobState, JobStatus};
use wire::message::MAX_OPS;
use wire::{Body, Op, Outcome as Refusal, RowOp};

/// An end or a piece whose outcome is not known is asked again so often in a row.
const TRIES: u32 = 8;
/// Between two looks at which records are long done.
const TRIM_EVERY: u64 = 1024;

/// How a job's records are sent.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// A piece is sent when it has so many records.
    pub max_rows: usize,
    /// A piece is sent when it has so many bytes of keys and rows.
    pub max_bytes: usize,
    /// Pieces of one partition on their way at once.
    pub in_flight: usize,
    /// How long a partition may take to answer for a piece, or for the end, before the job is given up.
    pub deadline: Duration,
}

impl Default for JobOptions {
    fn default() -> JobOptions {
        JobOptions { max_rows: 500, max_bytes: 256 * 1024, in_flight: 16, deadline: Duration::from_secs(30) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum JobStage {
    Waiting,
    Flying,
    /// It may have been done: it is sent again when no other piece is on its way.
    Unsure,
}

#[derive(Clone, Debug)]
struct Piece {
    after: u64,
    records: Vec<JobRecord>,
    stage: JobStage,
}

impl Piece {
    fn last(&self) -> u64 {
        self.records.last().map_or(self.after, |record| record.number)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum End {
    #[default]
    NotAsked,
    Asked,
    Answered(JobStatus),
    Unknown(String),
}

/// What a job has for one partition.
#[derive(Debug, Default)]
struct Part {
    forming: Vec<JobRecord>,
    bytes: usize,
    /// Pieces that are not known to be committed, in order.
    pieces: VecDeque<Piece>,
    added: u64,
    /// Of the records that were sent at least once: how many, and the number of the last.
    sent: u64,
    sent_through: u64,
    /// The number of the last record in a piece.
    formed_through: u64,
    /// Of the records in pieces that were acknowledged: how many, and the number of the last.
    acknowledged: u64,
    acknowledged_through: u64,
    flying: usize,
    again: bool,
    tries: u32,
    end: End,
    copies: Option<u8>,
}

impl Part {
    /// The first record that is not known to be committed.
    fn first_open(&self) -> Option<u64> {
        let sent = self.pieces.front().and_then(|piece| piece.records.first());
        sent.or(self.forming.first()).map(|record| record.number)
    }

    fn form(&mut self) {
        if self.forming.is_empty() {
            return;
        }
        let records = std::mem::take(&mut self.forming);
        let piece = Piece { after: self.formed_through, records, stage: JobStage::Waiting };
        (self.formed_through, self.bytes) = (piece.last(), 0);
        self.pieces.push_back(piece);
    }

    /// It has said that all its records are committed.
    fn has_committed(&self) -> bool {
        matches!(&self.end, End::Answered(status) if status.state == JobState::Committed)
    }

    fn waiting(&self) -> usize {
        self.pieces.iter().filter(|piece| piece.stage != JobStage::Flying).count()
    }

    /// The next piece to be sent, if one may be.
    fn next_piece(&mut self, in_flight: usize) -> Option<&mut Piece> {
        if self.again && self.flying == 0 {
            self.again = false;
            self.pieces.iter_mut().for_each(|piece| piece.stage = JobStage::Waiting);
        }
        if self.again || self.flying >= in_flight {
            return None;
        }
        self.pieces.iter_mut().find(|piece| piece.stage == JobStage::Waiting)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Sending,
    Committing,
    Aborting,
    Over,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    /// The piece that ends with this number.
    Piece(u64),
    Commit,
    Abort,
}

/// A job: what is to be sent, what was sent, and what is known of it.
#[derive(Debug)]
pub struct Job {
    table: Table,
    id: JobId,
    options: JobOptions,
    parts: BTreeMap<PartitionId, Part>,
    tickets: BTreeMap<Ticket, (PartitionId, Asked)>,
    /// The number of the last record.
    last: u64,
    bytes: u64,
    /// Where records belong that are not all known to be committed: the numbers of all before these are at
    /// most `settled`.
    recent: VecDeque<(u64, PartitionId)>,
    settled: u64,
    phase: Phase,
    /// Why it does not go on.
    why: Option<String>,
}

impl Job {
    /// A job without records.
    pub fn new(table: Table, id: JobId, options: JobOptions) -> Job {
        let max_rows = options.max_rows.clamp(1, MAX_OPS);
        let in_flight = options.in_flight.clamp(1, crate::core::MAX_WINDOW - 1);
        Job {
            table,
            id,
            options: JobOptions { max_rows, in_flight, ..options },
            parts: BTreeMap::new(),
            tickets: BTreeMap::new(),
            last: 0,
            bytes: 0,
            recent: VecDeque::new(),
            settled: 0,
            phase: Phase::Sending,
            why: None,
        }
    }

    /// Its name in all partitions.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Its table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Adds a record under a number of its own, which must be above those of all before it. An error leaves
    /// the record out, and the job as it was.
    pub fn add(&mut self, number: u64, op: RowOp) -> Result<(), ClientError> {
        assert!(self.phase == Phase::Sending, "a job that ends takes no more records");
        assert!(number > self.last, "record {number} follows {}", self.last);
        let partition = self.table.partition_of(op.key())?;
        let bytes = op.key().len() + op.row().map_or(0, |row| row.len());
        let part = self.parts.entry(partition).or_default();
        part.added += 1;
        part.bytes += bytes;
        part.forming.push(JobRecord { number, op });
        if part.forming.len() >= self.options.max_rows || part.bytes >= self.options.max_bytes {
            part.form();
        }
        (self.last, self.bytes) = (number, self.bytes + bytes as u64);
        self.recent.push_back((number, partition));
        if number.is_multiple_of(TRIM_EVERY) {
            self.trim();
        }
        Ok(())
    }

    /// The number of the last record.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Records in pieces that were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.parts.values().map(|part| part.acknowledged).sum()
    }

    /// True while more records would only pile up here: the driver waits.
    pub fn is_full(&self) -> bool {
        self.why.is_none() && self.parts.values().any(|part| part.waiting() > self.options.in_flight)
    }

    /// True if a piece waits to be sent.
    fn has_waiting(&self) -> bool {
        let waits = |part: &Part| part.pieces.back().is_some_and(|piece| piece.stage != JobStage::Flying);
        self.parts.values().any(waits)
    }

    /// Why it cannot be committed, once that is known: it is to be ended.
    pub fn trouble(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// No more records come: commits what there is, unless there is trouble.
    pub fn commit(&mut self) {
        assert!(self.phase == Phase::Sending, "a job ends once");
        self.parts.values_mut().for_each(Part::form);
        self.phase = Phase::Committing;
    }

    /// It does not go on, for this reason. What is on its way may still be done; the report says what was.
    pub fn abort(&mut self, why: &str) {
        self.stop(why.to_string());
        self.turn_back();
    }

    /// True when all is said.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Hands out the calls that can be made now. Each is submitted in a lane that is the job's alone, in this
    /// order.
    pub fn pump(&mut self, submit: &mut dyn FnMut(Call) -> Ticket) {
        let committed = self.phase == Phase::Committing && self.parts.values().all(Part::has_committed);
        if self.why.is_some() && !committed {
            self.turn_back();
        }
        let deadline = micros(self.options.deadline);
        for (partition, part) in &mut self.parts {
            let mut send = |op: Op, asked: Asked| {
                let ticket = submit(self.table.call(*partition, op).within(deadline));
                self.tickets.insert(ticket, (*partition, asked));
            };
            if matches!(self.phase, Phase::Sending | Phase::Committing) && !part.has_committed() {
                while let Some(piece) = part.next_piece(self.options.in_flight) {
                    piece.stage = JobStage::Flying;
                    let (after, records, last) = (piece.after, piece.records.clone(), piece.last());
                    part.flying += 1;
                    if last > part.sent_through {
                        (part.sent, part.sent_through) = (part.sent + records.len() as u64, last);
                    }
                    send(Op::Job { job: self.id, after, records }, Asked::Piece(last));
                }
            }
            let asks = part.end == End::NotAsked && part.sent_through > 0;
            let abort = match self.phase {
                Phase::Committing if asks && part.waiting() == 0 => false,
                Phase::Aborting if asks => true,
                _ => continue,
            };
            part.end = End::Asked;
            let through = if abort { part.sent_through } else { part.formed_through };
            let asked = if abort { Asked::Abort } else { Asked::Commit };
            send(Op::EndJob { job: self.id, through, abort }, asked);
        }
        self.look();
    }

    /// One of its calls ended. False: it is not one of its calls.
    pub fn completed(&mut self, completed: Completed) -> bool {
        let Some((partition, asked)) = self.tickets.remove(&completed.ticket) else { return false };
        let late = completed.latency_us >= micros(self.options.deadline).0;
        match asked {
            Asked::Piece(last) => self.piece_ended(partition, last, completed.outcome, late),
            Asked::Commit | Asked::Abort => self.end_told(partition, completed.outcome, late),
        }
        if self.phase == Phase::Aborting && matches!(asked, Asked::Commit) {
            self.secure(partition);
        }
        self.look();
        true
    }

    fn piece_ended(&mut self, partition: PartitionId, last: u64, outcome: Outcome, late: bool) {
        let part = self.parts.get_mut(&partition).expect("tickets name parts");
        part.flying -= 1;
        let Some(at) = part.pieces.iter().position(|piece| piece.last() == last) else { return };
        // What a job's end says of its records counts.
        let ends = part.end != End::NotAsked;
        let status = match outcome.answer().map(|answer| &answer.body) {
            Some(Body::Job(status)) => *status,
            _ => JobStatus::default(),
        };
        let why = match outcome {
            Outcome::Ok(_) => {
                let piece = part.pieces.remove(at).expect("found above");
                part.acknowledged += piece.records.len() as u64;
                part.acknowledged_through = part.acknowledged_through.max(last);
                part.tries = 0;
                return;
            }
            Outcome::Refused(Refusal::Stopped, _) => match status.refused {
                Some(refused) => refusal(&self.table, refused),
                None if matches!(status.state, JobState::Committed | JobState::Aborted) && ends => return,
                None if matches!(status.state, JobState::Committed | JobState::Aborted) => {
                    format!("the job was ended in {partition} by somebody else")
                }
                None if status.through < part.acknowledged_through => {
                    format!("a failover of {partition} lost records that it had acknowledged")
                }
                // A piece before it got lost.
                None => return self.sure_of_nothing(partition, at, "a piece before it got lost", late),
            },
            Outcome::Unknown(why) => return self.sure_of_nothing(partition, at, &why, late),
            other => match other.into_result() {
                Err(error) => format!("{partition}: {error}"),
                Ok(_) => format!("{partition} answered in an unexpected way"),
            },
        };
        self.stop(why);
    }

    /// A piece may have been done or not. It is sent again, and changes nothing if it was.
    fn sure_of_nothing(&mut self, partition: PartitionId, at: usize, why: &str, late: bool) {
        let part = self.parts.get_mut(&partition).expect("tickets name parts");
        part.pieces[at].stage = JobStage::Unsure;
        part.again = true;
        part.tries += 1;
        if late || part.tries >= TRIES {
            self.stop(format!("{partition} does not answer: {why}"));
        }
    }

    fn end_told(&mut self, partition: PartitionId, outcome: Outcome, late: bool) {
        let part = self.parts.get_mut(&partition).expect("tickets name parts");
        part.tries += 1;
        part.copies = outcome.answer().map(|answer| answer.copies).or(part.copies);
        part.end = match outcome {
            Outcome::Ok(answer) | Outcome::Refused(_, answer) => match answer.body {
                Body::Job(status) if matches!(status.state, JobState::Committed | JobState::Aborted) => {
                    End::Answered(status)
                }
                _ => End::Unknown("the partition has forgotten the job".into()),
            },
            // The end of a job can be asked for any number of times.
            Outcome::Unknown(_) if !late && part.tries < TRIES => End::NotAsked,
            Outcome::Unknown(why) => End::Unknown(why),
            Outcome::Failed(_, why) => End::Unknown(why),
        };
    }

    fn stop(&mut self, why: String) {
        self.why.get_or_insert(why);
    }

    /// The job is not committed: every partition is told, and asked what it has.
    fn turn_back(&mut self) {
        if matches!(self.phase, Phase::Aborting | Phase::Over) {
            return;
        }
        self.phase = Phase::Aborting;
        let partitions: Vec<PartitionId> = self.parts.keys().copied().collect();
        for partition in partitions {
            let part = self.parts.get_mut(&partition).expect("one of them");
            part.pieces.retain(|piece| piece.stage != JobStage::Waiting);
            self.secure(partition);
        }
    }

    /// A partition that committed its part has secured it only if it was asked for that (PR-82).
    fn secure(&mut self, partition: PartitionId) {
        let part = self.parts.get_mut(&partition).expect("one of them");
        if part.has_committed() {
            (part.end, part.tries) = (End::NotAsked, 0);
        }
    }

    /// On to the next phase, if it is time.
    fn look(&mut self) {
        let untouched = |part: &Part| part.sent_through == 0;
        let told = |part: &Part| untouched(part) || matches!(part.end, End::Answered(_) | End::Unknown(_));
        match self.phase {
            Phase::Committing if self.parts.values().all(Part::has_committed) && self.tickets.is_empty() => {
                // Whatever was in doubt on the way is not any more.
                (self.why, self.phase) = (None, Phase::Over);
            }
            Phase::Committing => {
                let ended = self.parts.values().find_map(|part| match &part.end {
                    End::Answered(status) if status.state != JobState::Committed => {
                        Some(match status.refused {
                            Some(refused) => refusal(&self.table, refused),
                            None => "records of it are missing, and it was not committed".to_string(),
                        })
                    }
                    End::Unknown(why) => Some(why.clone()),
                    _ => None,
                });
                if let Some(why) = ended {
                    self.stop(why);
                    self.turn_back();
                }
            }
            Phase::Aborting if self.parts.values().all(told) && self.tickets.is_empty() => {
                self.phase = Phase::Over;
            }
            _ => {}
        }
    }

    /// Forgets where records belong that are known to be committed, with all before them.
    fn trim(&mut self) {
        let open = self.parts.values().filter_map(Part::first_open).min();
        while let Some((number, _)) = self.recent.front().copied() {
            if open.is_some_and(|open| number >= open) {
                return;
            }
            self.settled = number;
            self.recent.pop_front();
        }
    }
}

fn refusal(table: &Table, refused: JobRefusal) -> String {
    let why = match refused.outcome {
        Refusal::Exists => "a row with its key exists already".into(),
        Refusal::Changed => "its row has changed".into(),
        Refusal::Unindexable => "it has no place in one of the table's indexes".into(),
        Refusal::TooMuch => "with what it changes in indexes it is too large".into(),
        Refusal::Violates => table.violation(refused.constraint),
        Refusal::Stale | Refusal::NameTaken => "its table is not as it was".into(),
        Refusal::Done | Refusal::Stopped | Refusal::Returned | Refusal::CallFailed => {
            "the partition did not say why".to_string()
        }
    };
    format!("record {} was refused: {why}", refused.number)
}

/// A job that a [`Client`] runs.
#[derive(Debug)]
pub struct RunningJob {
    job: Job,
    lane: LaneId,
}

impl Client {
    /// Begins a job. Nothing is sent yet.
    pub fn job(&mut self, table: &Table, options: JobOptions) -> RunningJob {
        let job = Job::new(table.clone(), new_id(), options);
        let lane = self.new_lane();
        self.set_window(lane, job.options.in_flight + 1);
        RunningJob { job, lane }
    }

    /// What a job has done in a partition, as its primary has it.
    pub fn show_job(
        &mut self,
        table: &Table,
        partition: PartitionId,
        job: JobId,
    ) -> Result<JobStatus, ClientError> {
        match self.call(table.call(partition, Op::ShowJob { job }))?.body {
            Body::Job(status) => Ok(status),
            other => Err(crate::table::unexpected(&other)),
        }
    }
}

/// A name for a job that begins now.
pub fn new_id() -> JobId {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    JobId::new(wall.as_millis() as u64, std::hash::RandomState::new().build_hasher().finish())
}

impl RunningJob {
    /// Its name, and what is known of it.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Adds a record that writes a row, whatever was there. False: the job cannot be committed any more, and
    /// is to be ended.
    pub fn put(&mut self, client: &mut Client, row: &Row) -> Result<bool, ClientError> {
        self.job.table.takes_rows()?;
        let (key, row) = self.job.table.encode(row)?;
        self.add(client, RowOp::Put { key, row })
    }

    /// Adds a record that is refused if there is a row with its key, which ends the job.
    pub fn insert(&mut self, client: &mut Client, row: &Row) -> Result<bool, ClientError> {
        self.job.table.takes_rows()?;
        let (key, row) = self.job.table.encode(row)?;
        self.add(client, RowOp::Insert { key, row })
    }

    /// Adds a record that removes the row with this key, if there is one.
    pub fn delete(&mut self, client: &mut Client, key: &[Value]) -> Result<bool, ClientError> {
        let key = self.job.table.key(key)?;
        self.add(client, RowOp::Delete { key })
    }

    fn add(&mut self, client: &mut Client, op: RowOp) -> Result<bool, ClientError> {
        self.job.table.takes_batches()?;
        let number = self.job.last() + 1;
        self.job.add(number, op)?;
        // Between two pieces there is nothing to send.
        if self.job.has_waiting() || number.is_multiple_of(TRIM_EVERY) {
            self.drive(client, |job| !job.is_full())?;
        }
        Ok(self.job.trouble().is_none())
    }

    /// Ends the job: commits it if every record was done, and else says what was.
    pub fn end(mut self, client: &mut Client) -> Result<JobReport, ClientError> {
        self.job.commit();
        self.drive(client, Job::is_over)?;
        Ok(self.job.report())
    }

    /// Ends the job here, and says what of it was done.
    pub fn abort(mut self, client: &mut Client, why: &str) -> Result<JobReport, ClientError> {
        self.job.abort(why);
        self.drive(client, Job::is_over)?;
        Ok(self.job.report())
    }

    fn drive(&mut self, client: &mut Client, done: impl Fn(&Job) -> bool) -> Result<(), ClientError> {
        loop {
            let lane = self.lane;
            let before = self.job.tickets.len();
            self.job.pump(&mut |call| client.submit(lane, call));
            let done = done(&self.job);
            if self.job.tickets.len() > before {
                // Out at once: the partitions work while more is gathered.
                client.turn(std::time::Instant::now())?;
            }
            for completed in client.completed_of(lane, !done)? {
                self.job.completed(completed);
            }
            if done {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests;
