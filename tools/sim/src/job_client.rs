//! A client that runs jobs (PR-47, PR-82): records in pieces to several partitions, sent again after every
//! failure, and an end that says what is committed.

use crate::check::jobs::JobAnswer;
use crate::client::ClientEffect;
use crate::network::Conn;
use crate::plan::RunPlan;
use crate::random::Stream;
use crate::rows;
use std::collections::BTreeMap;
use types::{JobId, PartitionId, Position, SessionId, TableId};
use wire::job::{JobRecord, JobState, JobStatus};
use wire::{Body, Op, Reply, Request, RowOp, Status};

/// An attempt without an answer is given up after this.
const ATTEMPT: u64 = 400_000;
/// A job that is not through by then is aborted, and forgotten after as long again.
const WAIT_LIMIT_US: u64 = 4_000_000;
/// Keys that only jobs write.
const KEYS: u64 = 24;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Send,
    Commit,
    Abort,
    Rest,
}

/// A job in one partition.
struct Part {
    partition: PartitionId,
    table: TableId,
    session: Option<SessionId>,
    seq: u64,
    pieces: Vec<Vec<JobRecord>>,
    /// The piece that is sent next.
    next: usize,
    step: Step,
    /// What it said of its end.
    told: Option<(JobStatus, Position)>,
    touched: bool,
    flight: Option<(u64, u64)>,
    retry_at: u64,
    turn: u32,
}

impl Part {
    fn op(&self, job: JobId) -> Op {
        let last = |piece: &Vec<JobRecord>| piece.last().map_or(0, |record| record.number);
        match self.step {
            _ if self.session.is_none() => Op::OpenSession,
            Step::Send => {
                let after = self.next.checked_sub(1).map_or(0, |before| last(&self.pieces[before]));
                Op::Job { job, after, records: self.pieces[self.next].clone() }
            }
            step => {
                let through = self.pieces.last().map_or(0, last);
                Op::EndJob { job, through, abort: step == Step::Abort }
            }
        }
    }

    fn lose_session(&mut self) {
        (self.session, self.seq) = (None, 1);
    }
}

struct Job {
    id: JobId,
    parts: Vec<Part>,
    aborting: bool,
    /// It is aborted without a reason when so many pieces are done.
    stops_after: Option<usize>,
    deadline: u64,
}

/// The jobber. Has one connection per node.
pub struct JobClient {
    id: u32,
    nodes: u32,
    random: Stream,
    typed: bool,
    partitions: Vec<(PartitionId, TableId)>,
    links: BTreeMap<u32, Option<Conn>>,
    next_number: u64,
    next_at: u64,
    open: Option<Job>,
    told: Vec<JobAnswer>,
    committed: u64,
    aborted: u64,
}

impl JobClient {
    /// A jobber of the plan's partitions.
    pub fn new(id: u32, random: Stream, plan: &RunPlan) -> JobClient {
        JobClient {
            id,
            nodes: plan.nodes,
            random,
            typed: plan.workload.indexes,
            partitions: plan.bare_partitions().collect(),
            links: BTreeMap::new(),
            next_number: 0,
            next_at: 0,
            open: None,
            told: Vec::new(),
            committed: 0,
            aborted: 0,
        }
    }

    /// What jobs were told.
    pub fn told(&self) -> &[JobAnswer] {
        &self.told
    }

    /// Jobs that were committed, and those that were aborted.
    pub fn ended(&self) -> (u64, u64) {
        (self.committed, self.aborted)
    }

    /// A connection was made, or not, or broke.
    pub fn linked(&mut self, node: u32, conn: Option<Conn>) {
        if conn.is_some() {
            self.links.insert(node, conn);
            return;
        }
        self.links.remove(&node);
        for part in self.open.iter_mut().flat_map(|open| &mut open.parts) {
            (part.flight, part.turn) = (None, part.turn + 1);
        }
    }

    /// Does what is due. Nothing new is begun unless `goes_on`.
    pub fn step(&mut self, now: u64, goes_on: bool) -> Vec<ClientEffect> {
        if self.open.is_none() && goes_on && now >= self.next_at && !self.partitions.is_empty() {
            self.invent(now);
        }
        let Some(open) = &mut self.open else { return Vec::new() };
        if now >= open.deadline + WAIT_LIMIT_US {
            // Nobody knows; the next job begins.
            self.open = None;
            self.next_at = now;
            return Vec::new();
        }
        if now >= open.deadline {
            open.abort();
        }
        (0..open.parts.len()).filter_map(|index| self.step_part(now, index)).collect()
    }

    fn step_part(&mut self, now: u64, index: usize) -> Option<ClientEffect> {
        let open = self.open.as_mut()?;
        let part = &mut open.parts[index];
        if part.flight.is_some_and(|(_, since)| now >= since + ATTEMPT) {
            (part.flight, part.turn) = (None, part.turn + 1);
        }
        if part.step == Step::Rest || part.flight.is_some() || now < part.retry_at {
            return None;
        }
        let node = 1 + (part.partition.0 + part.turn) % self.nodes;
        match self.links.get(&node) {
            Some(Some(conn)) => {
                self.next_number += 1;
                let request = u64::from(self.id) << 32 | self.next_number;
                part.flight = Some((request, now));
                part.touched |= part.session.is_some();
                let (session, seq) = (part.session.unwrap_or(SessionId::NONE), part.seq);
                let request = Request {
                    id: request,
                    session,
                    seq: if session.is_some() { seq } else { 0 },
                    confirmed: if session.is_some() { seq - 1 } else { 0 },
                    ..Request::new(part.table, 1, part.partition, part.op(open.id))
                };
                Some(ClientEffect::Send(*conn, Box::new(request)))
            }
            Some(None) => None,
            None => {
                self.links.insert(node, None);
                Some(ClientEffect::Dial(node, 0))
            }
        }
    }

    fn invent(&mut self, now: u64) {
        let job = JobId::new(1 + now / 1_000, self.random.below(1 << 20));
        let mut parts: BTreeMap<PartitionId, Part> = BTreeMap::new();
        let records = self.random.between(3, 14);
        for number in 1..=records {
            let (partition, table) = *self.random.pick(&self.partitions).expect("not empty");
            self.next_number += 1;
            let value = u64::from(self.id) << 32 | self.next_number;
            let name = format!("j{}", self.random.below(KEYS));
            let (key, row) = (rows::key(&name, self.typed), rows::row(&name, value, self.typed));
            let op = match self.random.below(4) {
                0 => RowOp::Insert { key, row },
                _ => RowOp::Put { key, row },
            };
            let part = parts.entry(partition).or_insert_with(|| Part {
                partition,
                table,
                session: None,
                seq: 1,
                pieces: Vec::new(),
                next: 0,
                step: Step::Send,
                told: None,
                touched: false,
                flight: None,
                retry_at: now,
                turn: 0,
            });
            let record = JobRecord { number, op };
            match part.pieces.last_mut().filter(|piece| piece.len() < 2) {
                Some(piece) => piece.push(record),
                None => part.pieces.push(vec![record]),
            }
        }
        let stops_after = self.random.chance(300).then(|| self.random.below(records) as usize);
        let parts = parts.into_values().collect();
        self.open = Some(Job { id: job, parts, aborting: false, stops_after, deadline: now + WAIT_LIMIT_US });
    }

    /// A reply came.
    pub fn hear(&mut self, now: u64, reply: &Reply) {
        let wait = self.random.between(5_000, 40_000);
        let Some(open) = self.open.as_mut() else { return };
        let Some(part) =
            open.parts.iter_mut().find(|part| part.flight.is_some_and(|(request, _)| request == reply.id))
        else {
            return;
        };
        (part.flight, part.retry_at) = (None, now);
        let at = reply.position();
        let mut abort = false;
        match (&reply.status, &reply.body) {
            (Status::Ok, Body::None) if part.session.is_none() => part.session = Some(SessionId(at)),
            (Status::Ok | Status::Refused(_), Body::Job(status)) => {
                part.seq += 1;
                abort = part.heard(reply.status == Status::Ok, *status, at);
            }
            (Status::Unknown(_) | Status::Bad(_) | Status::Expected(_), _) => {
                part.lose_session();
                part.retry_at = now + wait;
            }
            (status, _) => {
                part.turn += u32::from(!matches!(status, Status::NotYet(_)));
                part.retry_at = now + wait;
            }
        }
        let done: usize = open.parts.iter().map(|part| part.next).sum();
        if abort || open.stops_after.is_some_and(|stops| done > stops) {
            open.abort();
        }
        self.conclude(now);
    }

    /// Notes what a job was told, once all partitions have said it.
    fn conclude(&mut self, now: u64) {
        let Some(open) = &mut self.open else { return };
        if open.parts.iter().any(|part| part.step != Step::Rest) {
            return;
        }
        let committed = |part: &Part| part.told.is_some_and(|(told, _)| told.state == JobState::Committed);
        if !open.aborting && !open.parts.iter().all(committed) {
            return open.abort();
        }
        match open.aborting {
            true => self.aborted += 1,
            false => self.committed += 1,
        }
        for part in &open.parts {
            let record = |record: &JobRecord| {
                let row = record.op.row().expect("all of them write rows");
                (record.number, rows::value_of(row))
            };
            self.told.push(JobAnswer {
                job: open.id,
                partition: part.partition,
                through: part.told.map_or(0, |(told, _)| told.through),
                at: part.told.map(|(_, at)| at),
                records: part.pieces.iter().flatten().map(record).collect(),
            });
        }
        self.open = None;
        self.next_at = now + self.random.between(10_000, 400_000);
    }
}

impl Job {
    /// It does not go on: every partition that was asked for anything is asked for what it has.
    fn abort(&mut self) {
        if std::mem::replace(&mut self.aborting, true) {
            return;
        }
        for part in &mut self.parts {
            (part.step, part.told) = (if part.touched { Step::Abort } else { Step::Rest }, None);
            // What was asked may still be done, before or after the end.
            if part.flight.take().is_some() {
                part.lose_session();
            }
        }
    }
}

impl Part {
    /// A piece or an end was decided. True: the job cannot be committed.
    fn heard(&mut self, done: bool, status: JobStatus, at: Position) -> bool {
        match self.step {
            Step::Send if done => {
                self.next += 1;
                if self.next == self.pieces.len() {
                    self.step = Step::Commit;
                }
                false
            }
            Step::Send => true,
            Step::Commit | Step::Abort if status.state == JobState::Open => false,
            Step::Commit | Step::Abort => {
                (self.step, self.told) = (Step::Rest, Some((status, at)));
                !done
            }
            Step::Rest => false,
        }
    }
}
