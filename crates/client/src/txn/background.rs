//! Flushes behind a commit, and calls that take several steps, while the caller does something else.

use super::open::{OpenTransaction, OpenTransactions, Reports};
use super::steps::{Doing, KnownCommits, Manager, SnapshotAsk, Step};
use super::unknown::UnknownCommits;
use crate::call::{Answer, Call, Completed, LaneId, Outcome, Ticket};
use crate::client::{Client, Options};
use crate::database::Database;
use crate::error::ClientError;
use crate::table::micros;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;
use types::system::COMMITS;
use types::{Micros, PartitionId, Position, TableId};
use wire::{Body, CommitAnswer, CommitRequest, Flush, ManagerOp, Op, ReadLevel};

/// The most flushes on their way: a commit waits until there are fewer.
const MAX_FLUSHES: usize = 256;
/// Who does not wait sends no flush while so many are on their way: whoever reads the partition, or the
/// recovery manager, brings it.
const MOST_FLUSHES: usize = 4_096;

/// A call that completes for its caller, or for nobody.
#[derive(Debug)]
struct Goal {
    doing: Doing,
    /// Who is told; none: it is a flush.
    caller: Option<(Ticket, LaneId)>,
}

/// What is done with the answer to a call of the transaction manager that somebody waits for.
#[derive(Debug)]
pub(super) enum Asked {
    Snapshot(SnapshotAsk),
    Commit { manager: Manager, database: TableId, asked: CommitRequest },
}

/// What a client does beside its calls for global transactions.
#[derive(Debug)]
pub(crate) struct Background {
    pub known: KnownCommits,
    /// The transactions that are open.
    pub open: OpenTransactions,
    /// What the transaction manager is told of them.
    reports: Reports,
    /// A commit returns once the partitions have secured it, too.
    pub synchronous: bool,
    /// Tables to which no other one refers, each by the version of its columns of which that is so.
    pub unreferred: BTreeMap<TableId, u32>,
    /// By the call that is under way.
    doing: BTreeMap<Ticket, Goal>,
    /// By the call: what the transaction manager was asked.
    asked: BTreeMap<Ticket, Asked>,
    /// Commits of which no acknowledgement came.
    pub(super) unknown: UnknownCommits,
    /// Those that pause, until when.
    paused: Vec<(Micros, Goal)>,
    /// What is to be gone on with: a call ended, and how.
    ended: Vec<(Goal, Completed)>,
    /// Flushes that are to be sent.
    flushes: Vec<(Doing, Call)>,
    /// Calls that have ended, for their callers.
    done: VecDeque<Completed>,
}

impl Background {
    /// Of a client with this number, which no other one has, and that reaches the cluster in this way.
    pub fn new(who: u64, options: Options) -> Background {
        Background {
            known: KnownCommits::default(),
            open: OpenTransactions::default(),
            reports: Reports::new(who, options),
            synchronous: false,
            unreferred: BTreeMap::new(),
            doing: BTreeMap::new(),
            asked: BTreeMap::new(),
            unknown: UnknownCommits::default(),
            paused: Vec::new(),
            ended: Vec::new(),
            flushes: Vec::new(),
            done: VecDeque::new(),
        }
    }

    /// A transaction of this client begins that reads this snapshot of a database. It is open, and the
    /// snapshot is kept, until what is given back is dropped.
    pub fn begun(&mut self, database: &Database, snapshot: Position) -> OpenTransaction {
        self.reports.keep_snapshots(&self.open);
        self.open.begun_at(database, snapshot)
    }

    /// A call that has ended, unless it is one of these.
    pub fn take(&mut self, completed: Completed) -> Option<Completed> {
        if self.reports.ended(completed.ticket, matches!(completed.outcome, Outcome::Ok(_))) {
            return None;
        }
        if let Some(goal) = self.doing.remove(&completed.ticket) {
            self.ended.push((goal, completed));
            return None;
        }
        if let Some(doubt) = self.unknown.answered(completed.ticket) {
            let (asked, completed) = self.unknown.settle(doubt, completed.outcome);
            if let Outcome::Ok(answer) = &completed.outcome {
                self.learn(asked, answer);
            }
            return Some(completed);
        }
        let Some(asked) = self.asked.remove(&completed.ticket) else { return Some(completed) };
        match &completed.outcome {
            Outcome::Ok(answer) => self.learn(asked, answer),
            Outcome::Unknown(_) => return self.unknown.take(asked, completed),
            Outcome::Refused(..) | Outcome::Failed(..) => {}
        }
        Some(completed)
    }

    /// The transaction manager has answered.
    fn learn(&mut self, asked: Asked, answer: &Answer) {
        match (asked, &answer.body) {
            (Asked::Snapshot(asked), body) => drop(self.known.begun(asked, body)),
            (Asked::Commit { manager, database, asked }, Body::Commit(CommitAnswer::Committed(previous))) => {
                let flushes = self.known.committed(answer.position(), previous, asked);
                let room = MOST_FLUSHES.saturating_sub(self.len());
                let flushes = flushes.into_iter().take(room);
                let doing =
                    flushes.map(|(partition, flush)| Doing::flush(manager, (database, partition), flush));
                self.flushes.extend(doing);
            }
            (Asked::Commit { .. }, _) => {}
        }
    }

    /// True if the end of a call of several steps was not handed out yet.
    pub fn waits_for(&self, ticket: Ticket) -> bool {
        let goals = self.doing.values().chain(self.paused.iter().map(|(_, goal)| goal));
        let mut goals = goals.chain(self.ended.iter().map(|(goal, _)| goal));
        goals.any(|goal| goal.caller.is_some_and(|(of, _)| of == ticket)) || self.unknown.waits_for(ticket)
    }

    /// A call that has ended for its caller.
    pub fn next_done(&mut self) -> Option<Completed> {
        self.done.pop_front()
    }

    /// When something is to be done next, if that is known.
    pub fn due(&self) -> Option<Micros> {
        let pauses = self.paused.iter().map(|(until, _)| *until);
        let ready = !self.ended.is_empty() || !self.flushes.is_empty() || self.unknown.waiting() > 0;
        pauses.chain(ready.then_some(Micros::ZERO)).chain(self.reports.due(&self.open)).min()
    }

    /// How many flushes, and calls of several steps, have not ended.
    pub fn len(&self) -> usize {
        self.doing.len() + self.pausing() + self.flushes.len()
    }

    /// How many of them have no call under way.
    pub fn pausing(&self) -> usize {
        self.paused.len() + self.ended.len() + self.unknown.waiting()
    }

    /// What goes on now: calls that are to be made.
    fn next_calls(&mut self, now: Micros) -> Vec<(Goal, Call)> {
        let ended = std::mem::take(&mut self.ended).into_iter().map(|(goal, ended)| (goal, Some(ended)));
        let due = self.paused.extract_if(.., |(until, _)| *until <= now);
        let all: Vec<_> = ended.chain(due.map(|(_, goal)| (goal, None))).collect();
        let mut calls = Vec::new();
        for (mut goal, mut completed) in all {
            let taken = |completed: &mut Completed| {
                std::mem::replace(&mut completed.outcome, Outcome::Unknown(String::new()))
            };
            match goal.doing.next(completed.as_mut().map(taken)) {
                Step::Call(call) => calls.push((goal, *call)),
                Step::Wait(time) => self.paused.push((now + time, goal)),
                Step::Done(outcome) => {
                    let caller = goal.caller.zip(completed);
                    self.done.extend(caller.map(|((ticket, lane), completed)| Completed {
                        ticket,
                        lane,
                        outcome: *outcome,
                        ..completed
                    }));
                }
            }
        }
        calls
    }
}

impl Client {
    /// Takes in a call of a database with global transactions, which may take several calls: a read of a
    /// snapshot ([`wire::request::ReadSnapshot::Commit`], whose `after` is filled in here), or what the
    /// transaction manager is asked for, a snapshot or a commit. [`Client::poll`] hands out its end,
    /// under the ticket given back here, or [`Client::wait_for`]. Behind a commit its partitions are told,
    /// which nobody waits for. Of a commit that would end as unknown its session is asked before, for five
    /// seconds at most beside the call's own time (PR-361).
    pub fn submit_in_transaction(&mut self, lane: LaneId, mut call: Call) -> Ticket {
        let Some(manager) = self.cluster_map().table(COMMITS).map(|record| Manager::of(record)) else {
            // Nothing is known of commits.
            return self.submit(lane, call);
        };
        let asked = match &mut call.op {
            Op::Manager(ManagerOp::Snapshot { since }) => {
                let asked = self.background.known.asks();
                *since = asked.since();
                Some(Asked::Snapshot(asked))
            }
            Op::Manager(
                ManagerOp::Commit(asked)
                | ManagerOp::CommitChecked(asked, _)
                | ManagerOp::CommitLooked { asked, .. },
            ) => {
                let first = asked.writes.first().map(|writes| writes.partition);
                let owner = first.and_then(|partition| self.cluster_map().partition(partition));
                // Of a database that was dropped nobody is told.
                let database = owner.map_or_else(TableId::default, |record| record.table);
                Some(Asked::Commit { manager, database, asked: asked.clone() })
            }
            op => {
                // A read that any replica may answer says itself which commits it must see.
                if let (ReadLevel::Primary, Some((_, after))) = (call.read, op.commit_snapshot_mut()) {
                    *after = (*after).max(self.background.known.newest(call.partition));
                }
                None
            }
        };
        let Some(asked) = asked else {
            let (doing, first) = Doing::new(manager, call);
            let ticket = self.submit(lane, first);
            self.background.doing.insert(ticket, Goal { doing, caller: Some((ticket, lane)) });
            return ticket;
        };
        let ticket = self.submit(lane, call);
        self.background.asked.insert(ticket, asked);
        ticket
    }

    /// Goes on with a flush beside other work. If it fails, whoever reads the partition, or the recovery
    /// manager, brings it there.
    pub(super) fn begin_in_background(&mut self, doing: Doing, call: Call) {
        self.go_on_with(Goal { doing, caller: None }, call);
    }

    fn go_on_with(&mut self, goal: Goal, call: Call) {
        let lane = goal.caller.map_or(Client::BLOCKING, |(_, lane)| lane);
        let limit = micros(self.timeout());
        let limit = if call.deadline == Micros::ZERO { limit } else { call.deadline };
        let ticket = self.submit(lane, call.within(limit));
        self.background.doing.insert(ticket, goal);
    }

    /// Sends what is to be sent, and waits while too much is under way.
    pub(super) fn tend(&mut self) -> Result<(), ClientError> {
        loop {
            self.go_on();
            if self.background.len() <= MAX_FLUSHES {
                return Ok(());
            }
            self.turn(Instant::now() + self.timeout())?;
        }
    }

    /// Tells the partitions of a commit that has no rows, and waits until they know, or could not be told.
    pub(crate) fn bring(
        &mut self,
        (manager, database): (Manager, TableId),
        commit: Position,
        previous: &[(PartitionId, Position)],
    ) -> Result<(), ClientError> {
        for (partition, previous) in previous {
            self.background.known.note(*partition, commit);
            let flush = Flush { commit, previous: *previous, parts: Vec::new() };
            let (doing, call) = Doing::flush(manager, (database, *partition), flush);
            self.begin_in_background(doing, call);
        }
        self.flush_commits()
    }

    /// Waits until the partitions have been told of every commit of this client, or nobody could tell them.
    pub fn flush_commits(&mut self) -> Result<(), ClientError> {
        loop {
            // What has ended is done with before anything is waited for: nothing else may come.
            self.go_on();
            if self.background.len() == 0 {
                return Ok(());
            }
            self.turn(Instant::now() + self.timeout())?;
        }
    }

    /// Submits what partitions are to be told, ahead of what the caller submits next: reads of the commits
    /// that it is told of meanwhile.
    pub(crate) fn submit_flushes(&mut self) {
        for (doing, call) in std::mem::take(&mut self.background.flushes) {
            self.begin_in_background(doing, call);
        }
    }

    /// Goes on with flushes whose calls have ended, or that have paused.
    pub(crate) fn go_on_in_background(&mut self, now: Micros) {
        self.submit_flushes();
        self.ask_sessions();
        for (goal, call) in self.background.next_calls(now) {
            self.go_on_with(goal, call);
        }
        if let Some(op) = self.background.reports.next(now, &self.background.open)
            && let Some(record) = self.cluster_map().table(COMMITS)
        {
            let call = Reports::call(Manager::of(record), op);
            let ticket = self.submit(Client::BLOCKING, call);
            self.background.reports.sent(ticket);
        }
    }

    /// The transaction manager is told of these open transactions, too: they are of sessions that use this
    /// client.
    pub fn speak_for(&mut self, others: OpenTransactions) {
        self.background.reports.speak_for(others);
    }
}
