//! Jobs ([`wire::job`]): pieces of records, each record done for itself up to the first that is refused, and
//! the job's end.
//!
//! What a job has done is a row of the partition, in the entry of what it did. So whoever leads next answers
//! for it, and a piece that does not follow what was done is refused (PR-47). That a piece is in the log is
//! told when it is committed, as of any write; what an aborted job has done is told when it is secured, since
//! nobody is asked again afterwards (PR-82).
//!
//! Rows of jobs that ended are forgotten when there are many, oldest first. The horizon then says up to which
//! name a job that has no row may have had one.

use crate::answer::AckCondition;
use crate::features::index::{BESIDE, KnownIndexes};
use crate::features::tend::KnownCatalog;
use crate::rows::{self, hash_row};
use crate::scope::Scope;
use crate::session::SCAN_BYTES;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use types::job::{MOST_AHEAD_MS, horizon_key, job_key, job_of, job_range};
use types::{Engine, EngineError, JobId, Mutation, ReadAt, Rules, TableId, Term};
use wire::job::{JobRecord, JobRefusal, JobState, JobStatus};
use wire::{Effects, Op, Outcome, RowOp, Status};

/// Rows of jobs that a partition keeps, before it forgets some.
const MAX_JOB_ROWS: usize = 1024;
/// A job that ended is remembered so long at least, unless there are more than ever: its client may ask
/// again.
const KEPT_MS: u64 = 60_000;
/// So many are forgotten at once.
const MAX_FORGOTTEN_AT_ONCE: usize = 256;
/// With the job's own row, and the horizon's, they have room in an entry beside the rows of records.
const _: () = assert!(MAX_FORGOTTEN_AT_ONCE + 2 <= BESIDE);
/// The form of a job's row.
const FORMAT: u8 = 2;
const ROW_BYTES: usize = 39;
/// The form of those that did not say which constraint a record was against.
const FORMER: (u8, usize) = (1, 35);

/// A job's row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Row {
    status: JobStatus,
    /// Wall-clock stamp of its newest entry, milliseconds since 1970.
    touched_ms: u64,
}

impl Row {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(ROW_BYTES);
        let none = JobRefusal { number: 0, outcome: Outcome::Done, constraint: 0 };
        let refused = self.status.refused.unwrap_or(none);
        out.put_u8(FORMAT);
        out.put_u8(self.status.state as u8);
        out.put_u8(refused.outcome as u8);
        out.put_u64_le(self.status.records);
        out.put_u64_le(self.status.through);
        out.put_u64_le(refused.number);
        out.put_u64_le(self.touched_ms);
        out.put_u32_le(refused.constraint);
        out.freeze()
    }

    /// The error is a sentence.
    fn decode(mut bytes: &[u8]) -> Result<Row, String> {
        let form = (bytes.first().copied().unwrap_or(0), bytes.len());
        if form != (FORMAT, ROW_BYTES) && form != FORMER {
            return Err(format!("the row of a job has {} bytes of an unknown form", bytes.len()));
        }
        bytes.advance(1);
        let state = match bytes.get_u8() {
            1 => JobState::Open,
            2 => JobState::Committed,
            3 => JobState::Aborted,
            other => return Err(format!("the row of a job has the unknown state {other}")),
        };
        let outcome =
            Outcome::from_number(bytes.get_u8()).ok_or("the row of a job has an unknown outcome")?;
        let (records, through, number) = (bytes.get_u64_le(), bytes.get_u64_le(), bytes.get_u64_le());
        let touched_ms = bytes.get_u64_le();
        let constraint = if bytes.is_empty() { 0 } else { bytes.get_u32_le() };
        let refused = (number > 0).then_some(JobRefusal { number, outcome, constraint });
        Ok(Row { status: JobStatus { state, records, through, refused }, touched_ms })
    }

    /// May be forgotten at this time.
    fn is_over(&self, wall_ms: u64, idle_ms: u64) -> bool {
        let kept = if self.status.state == JobState::Open { idle_ms } else { KEPT_MS };
        self.touched_ms + kept < wall_ms
    }
}

/// What a request comes to.
pub(crate) struct Step {
    pub outcome: Outcome,
    affected: u32,
    mutations: Vec<Mutation>,
    /// What the job has done after it.
    pub status: JobStatus,
}

impl Step {
    /// As they are logged, for a request with this hash.
    pub fn effects(self, request_hash: u64, confirmed: u64) -> Effects {
        let Step { outcome, affected, mutations, .. } = self;
        Effects { request_hash, confirmed, outcome: outcome as u8, affected, mutations }
    }
}

/// Records that were evaluated: how many are done, what they change, and why the next one is not done, with
/// the number of the constraint that forbids it.
struct Evaluated {
    done: usize,
    affected: u32,
    mutations: Vec<Mutation>,
    refused: Option<(Outcome, u32)>,
}

/// What a primary does for one request of a job: it reads the job's row, and evaluates records on the newest
/// state.
pub(crate) struct JobWork<'a> {
    pub engine: &'a dyn Engine,
    pub indexes: &'a mut KnownIndexes,
    /// The rows that records may touch.
    pub scope: Scope,
    /// What is known of the tables, in a database.
    pub catalog: Option<&'a mut KnownCatalog>,
    /// The term that this replica leads in.
    pub leading: Option<Term>,
    pub rules: Rules,
    pub wall_ms: u64,
    /// An open job that nobody goes on with is forgotten after so long.
    pub idle_ms: u64,
}

impl JobWork<'_> {
    /// What the request comes to; or why nothing comes of it.
    pub fn step(&mut self, op: &Op, job: JobId) -> Result<Result<Step, Status>, EngineError> {
        let found = row_of(self.engine, job, ReadAt::Applied)?;
        let mut forgotten = Vec::new();
        if found.is_none() {
            if job.wall_ms() > self.wall_ms.saturating_add(MOST_AHEAD_MS) {
                let why = format!("job {job} is of a time more than a day ahead: are the clocks right?");
                return Ok(Err(Status::Bad(why)));
            }
            if job <= horizon(self.engine)? {
                let why = "the job is not known here: it ended and was forgotten, or its name is too old";
                return Ok(Err(Status::Unknown(why.into())));
            }
            match forget_jobs(self.engine, self.wall_ms, self.idle_ms)? {
                Some(mutations) => forgotten = mutations,
                None => {
                    let why = "the partition has as many jobs as it may".into();
                    return Ok(Err(Status::NotYet(why)));
                }
            }
        }
        let row = found.unwrap_or_default();
        let mut step = match op {
            Op::Job { after, records, .. } => self.do_records(row.status, *after, records)?,
            Op::EndJob { through, abort, .. } => end(row.status, *through, *abort),
            _ => unreachable!("other requests are no job's"),
        };
        if step.status != row.status || found.is_some() {
            let row = Row { status: step.status, touched_ms: self.wall_ms.max(row.touched_ms) };
            step.mutations.push(Mutation { key: job_key(job), value: Some(row.encode()) });
            step.mutations.extend(forgotten);
        }
        Ok(Ok(step))
    }

    fn do_records(
        &mut self,
        mut status: JobStatus,
        after: u64,
        records: &[JobRecord],
    ) -> Result<Step, EngineError> {
        let nothing = |outcome| Step { outcome, affected: 0, mutations: Vec::new(), status };
        let last = records.last().map_or(0, |record| record.number);
        if last <= status.through && self.rules.sessions_have_no_gaps() {
            return Ok(nothing(Outcome::Done));
        }
        let open = matches!(status.state, JobState::Absent | JobState::Open) && status.refused.is_none();
        let follows = after == status.through || !self.rules.sessions_have_no_gaps();
        if !open || !follows {
            return Ok(nothing(Outcome::Stopped));
        }
        let Evaluated { done, affected, mutations, refused } = self.evaluate_records(records)?;
        assert!(
            done + usize::from(refused.is_some()) <= records.len(),
            "PR-47: {done} of {} records are done, and one more is refused",
            records.len()
        );
        let through = status.through;
        status.state = JobState::Open;
        status.records += done as u64;
        if let Some(last) = records[..done].last() {
            status.through = last.number;
        }
        let on = status.through > through || done == 0 || !self.rules.sessions_have_no_gaps();
        assert!(on, "PR-47: a job goes back from record {through} to {}", status.through);
        let number = || records[done].number;
        status.refused =
            refused.map(|(outcome, constraint)| JobRefusal { number: number(), outcome, constraint });
        let outcome = if refused.is_some() { Outcome::Stopped } else { Outcome::Done };
        Ok(Step { outcome, affected, mutations, status })
    }

    /// As many of the records as can be done, with what they change in indexes. In a database the records of
    /// a piece are looked at together: so many are done that what they leave keeps all constraints, and one
    /// more would not (PR-181).
    fn evaluate_records(&mut self, records: &[JobRecord]) -> Result<Evaluated, EngineError> {
        let rows = evaluate_rows(self.engine, &self.scope, records)?;
        let (done, refused) = (rows.done, rows.refused);
        let (whole, affected, mutations) = self.with_index_rows(rows)?;
        if whole == Outcome::Done {
            return Ok(Evaluated { done, affected, mutations, refused });
        }
        // A record among them has no place in an index, or is against a constraint: so many that do fit, and
        // why one more does not.
        let (mut fits, mut over) = (0, done);
        while fits + 1 < over {
            let middle = fits + (over - fits) / 2;
            match self.indexed_rows(&records[..middle])?.0 {
                Outcome::Done => fits = middle,
                _ => over = middle,
            }
        }
        let (why, constraint, _) = self.indexed_rows(&records[..over])?;
        let constraint = if why == Outcome::Violates { constraint } else { 0 };
        let (kept, affected, mutations) = self.indexed_rows(&records[..fits])?;
        assert!(
            why != Outcome::Done && kept == Outcome::Done,
            "PR-181: {fits} records of a job are {kept:?}, and one more is {why:?}"
        );
        Ok(Evaluated { done: fits, affected, mutations, refused: Some((why, constraint)) })
    }

    fn indexed_rows(&mut self, records: &[JobRecord]) -> Result<rows::Evaluated, EngineError> {
        let rows = evaluate_rows(self.engine, &self.scope, records)?;
        self.with_index_rows(rows)
    }

    fn with_index_rows(&mut self, rows: Evaluated) -> Result<rows::Evaluated, EngineError> {
        let mut changes = (Outcome::Done, rows.affected, rows.mutations);
        if let (Some(catalog), Some(term)) = (&mut self.catalog, self.leading) {
            changes = catalog.with_constraints(self.engine, (term, self.rules), changes)?;
        }
        self.indexes.with_index_rows(self.engine, self.leading, self.rules, changes)
    }
}

/// What a job has done, as of a state.
pub(crate) fn status_of(engine: &dyn Engine, job: JobId, at: ReadAt) -> Result<JobStatus, EngineError> {
    Ok(row_of(engine, job, at)?.map(|row| row.status).unwrap_or_default())
}

fn row_of(engine: &dyn Engine, job: JobId, at: ReadAt) -> Result<Option<Row>, EngineError> {
    let row = engine.get(&job_key(job), at)?;
    row.map(|(_, value)| Row::decode(&value).map_err(EngineError::Corrupt)).transpose()
}

/// What the records change, up to the first that is refused for a row that is there.
fn evaluate_rows(
    engine: &dyn Engine,
    scope: &Scope,
    records: &[JobRecord],
) -> Result<Evaluated, EngineError> {
    let mut mutations = Vec::with_capacity(records.len());
    // Each record sees those before it.
    let mut own: BTreeMap<Bytes, bool> = BTreeMap::new();
    let looks = records.iter().any(|record| !matches!(record.op, RowOp::Put { .. }));
    let mut affected = 0;
    for (done, JobRecord { op, .. }) in records.iter().enumerate() {
        let key = scope.keys().row_key(op.key());
        let exists = match (op, own.get(&key)) {
            (RowOp::Put { .. }, _) => true,
            (_, Some(exists)) => *exists,
            _ => engine.get(&key, ReadAt::Applied)?.is_some(),
        };
        match op {
            RowOp::Insert { .. } if exists => {
                return Ok(Evaluated { done, affected, mutations, refused: Some((Outcome::Exists, 0)) });
            }
            RowOp::Delete { .. } | RowOp::Update { .. } if !exists => continue,
            RowOp::Keep { .. } => continue,
            _ => {}
        }
        if looks {
            own.insert(key.clone(), op.row().is_some());
        }
        affected += 1;
        mutations.push(Mutation { key, value: op.row().cloned() });
    }
    Ok(Evaluated { done: records.len(), affected, mutations, refused: None })
}

/// The highest job whose row may have been forgotten: without a row nobody can say whether a job up to this
/// one was ever here.
fn horizon(engine: &dyn Engine) -> Result<JobId, EngineError> {
    let row = engine.get(&horizon_key(), ReadAt::Applied)?;
    let number = row.and_then(|(_, value)| value[..].try_into().ok().map(u64::from_le_bytes));
    Ok(JobId(number.unwrap_or(0)))
}

/// What makes room for another job's row. None: there is no room.
fn forget_jobs(
    engine: &dyn Engine,
    wall_ms: u64,
    idle_ms: u64,
) -> Result<Option<Vec<Mutation>>, EngineError> {
    let (from, to) = job_range();
    let rows = engine.scan(&from, &to, ReadAt::Applied, 4 * MAX_JOB_ROWS, SCAN_BYTES)?;
    if rows.len() < MAX_JOB_ROWS {
        return Ok(Some(Vec::new()));
    }
    let full = rows.len() >= 4 * MAX_JOB_ROWS;
    let may_go = |row: &&types::engine::Row| {
        let decoded = Row::decode(&row.value).unwrap_or_default();
        decoded.is_over(wall_ms, idle_ms) || full && decoded.status.state != JobState::Open
    };
    let gone: Vec<JobId> =
        rows.iter().filter(may_go).filter_map(|row| job_of(&row.key)).take(MAX_FORGOTTEN_AT_ONCE).collect();
    let Some(last) = gone.last() else { return Ok((!full).then(Vec::new)) };
    let horizon = horizon(engine)?.max(*last);
    let mut mutations: Vec<Mutation> =
        gone.iter().map(|job| Mutation { key: job_key(*job), value: None }).collect();
    let value = Some(Bytes::copy_from_slice(&horizon.0.to_le_bytes()));
    mutations.push(Mutation { key: horizon_key(), value });
    Ok(Some(mutations))
}

/// The end of a job. One that has ended stays as it is.
fn end(mut status: JobStatus, through: u64, abort: bool) -> Step {
    let whole = status.refused.is_none() && status.through == through && !abort;
    let ended = matches!(status.state, JobState::Committed | JobState::Aborted);
    if !ended {
        status.state = if whole { JobState::Committed } else { JobState::Aborted };
    }
    assert!(
        ended || status.state == JobState::Aborted || status.refused.is_none(),
        "PR-82: a job of which a record is refused is not committed"
    );
    let done = abort || status.state == JobState::Committed && status.through == through;
    let outcome = if done { Outcome::Done } else { Outcome::Stopped };
    Step { outcome, affected: 0, mutations: Vec::new(), status }
}

/// What was done by a job that does not go on is told when it is secured.
pub(crate) fn how_told(op: &Op, done: &JobStatus) -> AckCondition {
    match op {
        Op::EndJob { abort, .. } if *abort || done.state != JobState::Committed => AckCondition::Secured,
        _ => AckCondition::Entry,
    }
}

/// A hash of what is asked (PR-47). In a database it is of the table, too.
pub(crate) fn request_hash(table: Option<TableId>, op: &Op) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    if let Some(table) = table {
        hash.update(b"table");
        hash.update(&table.0.to_le_bytes());
    }
    match op {
        Op::Job { job, after, records } => {
            hash.update(&job.0.to_le_bytes());
            hash.update(&after.to_le_bytes());
            for record in records {
                hash.update(&record.number.to_le_bytes());
                hash_row(&mut hash, &record.op);
            }
        }
        Op::EndJob { job, through, abort } => {
            hash.update(&job.0.to_le_bytes());
            hash.update(&through.to_le_bytes());
            hash.update(&[u8::from(*abort)]);
        }
        _ => {}
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeEngine, at};

    fn status(state: JobState, through: u64) -> JobStatus {
        JobStatus { state, records: through, through, refused: None }
    }

    #[test]
    fn rows_read_back_and_cuts_are_noticed() {
        let one = JobRefusal { number: 9, outcome: Outcome::Violates, constraint: 77 };
        let refused = Some(one);
        let row = Row { status: JobStatus { refused, ..status(JobState::Aborted, 8) }, touched_ms: 77 };
        let bytes = row.encode();
        assert_eq!(Row::decode(&bytes), Ok(row));
        for length in 0..bytes.len() {
            assert!(Row::decode(&bytes[..length]).is_err());
        }
        let former = [&[FORMER.0], &bytes[1..FORMER.1]].concat();
        let refused = Some(JobRefusal { constraint: 0, ..one });
        let without = Row { status: JobStatus { refused, ..row.status }, ..row };
        assert_eq!(Row::decode(&former), Ok(without));
    }

    #[test]
    fn pr47_records_are_done_in_their_order_and_once() {
        let (mut engine, mut indexes, job) = (FakeEngine::new(), KnownIndexes::default(), JobId(7));
        let record = |number: u64| {
            let op = RowOp::Insert { key: Bytes::copy_from_slice(&[number as u8]), row: Bytes::new() };
            JobRecord { number, op }
        };
        let mut lsn = 0;
        let mut does = |after: u64, numbers: &[u64]| {
            let records = numbers.iter().map(|number| record(*number)).collect();
            let (leading, rules) = (Some(Term(1)), Rules::ALL);
            let (scope, catalog) = (Scope::BARE, None);
            let (engine_now, indexes) = (&engine, &mut indexes);
            let mut work = JobWork {
                engine: engine_now,
                indexes,
                scope,
                catalog,
                leading,
                rules,
                wall_ms: 9,
                idle_ms: 9,
            };
            let step = work.step(&Op::Job { job, after, records }, job).expect("reads").expect("is known");
            lsn += 1;
            engine.execute(at(lsn), &step.mutations);
            (step.outcome, step.affected, step.status.through)
        };
        assert_eq!(does(0, &[1, 3]), (Outcome::Done, 2, 3));
        assert_eq!(does(0, &[1, 3]), (Outcome::Done, 0, 3), "it was done before");
        assert_eq!(does(4, &[5]), (Outcome::Stopped, 0, 3), "record 4 is missing");
        assert_eq!(does(3, &[5]), (Outcome::Done, 1, 5));
    }

    #[test]
    fn a_job_commits_only_whole_and_its_end_stays_what_it_was() {
        let ended = |before: JobStatus, through, abort| {
            let step = end(before, through, abort);
            (step.outcome, step.status.state)
        };
        let open = status(JobState::Open, 5);
        assert_eq!(ended(open, 5, false), (Outcome::Done, JobState::Committed));
        assert_eq!(ended(open, 6, false), (Outcome::Stopped, JobState::Aborted), "a record is missing");
        assert_eq!(ended(open, 5, true), (Outcome::Done, JobState::Aborted));
        assert_eq!(ended(JobStatus::default(), 0, true), (Outcome::Done, JobState::Aborted));
        let refused = Some(JobRefusal { number: 6, outcome: Outcome::Exists, constraint: 0 });
        assert_eq!(ended(JobStatus { refused, ..open }, 5, false), (Outcome::Stopped, JobState::Aborted));
        assert_eq!(ended(status(JobState::Committed, 5), 5, true), (Outcome::Done, JobState::Committed));
        assert_eq!(ended(status(JobState::Aborted, 5), 5, false), (Outcome::Stopped, JobState::Aborted));
    }
}
