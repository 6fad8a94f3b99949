//! What a call of a global transaction takes, as a machine without IO: a step at a time, so that the
//! simulator makes the same ones.
//!
//! A partition that lacks a commit says so. Its flush is on its way most of the time, so the same is asked
//! again soon. Then whoever asks fetches the missing commits from the transaction manager and flushes them:
//! so nobody waits for a client that has died.

use crate::call::{Call, FailKind, Outcome};
use std::collections::{BTreeMap, VecDeque};
use types::{Micros, PartitionId, Position, TableId, TableRecord};
use wire::commit::PartitionWrites;
use wire::request::ReadSnapshot;
use wire::{Body, CommitAnswer, CommitRequest, Flush, ManagerOp, Op, ReadLevel};

/// A partition is asked again after so long, and given so many times that before somebody else brings it a
/// commit: its flush is on its way most of the time.
const PAUSE: Micros = Micros::from_millis(1);
const PAUSES: u32 = 5;
/// How often a partition may lack commits that it was just brought.
const MAX_ROUNDS: u32 = 64;
/// A read that any replica may answer is tried so often, each time at another one: what is secured is in the
/// log of each, and shown once it hears that it is committed. Then the primary is asked, as for any other.
const TRIES_ANYWHERE: u32 = 50;

/// The transaction manager's partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manager {
    table: TableId,
    partition: PartitionId,
}

impl Manager {
    /// From the record of [`types::system::COMMITS`].
    pub fn of(record: &TableRecord) -> Manager {
        Manager { table: record.id, partition: record.first_partition }
    }

    /// A call to it.
    pub fn call(self, op: ManagerOp) -> Call {
        Call::new(self.table, 0, self.partition, Op::Manager(op))
    }

    /// Its partition.
    pub fn partition(self) -> PartitionId {
        self.partition
    }
}

/// How a snapshot is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SnapshotAsk {
    /// It comes with the partitions that have a commit above this one; zero: with all that have any.
    since: Position,
    /// The newest snapshot that the client was given before.
    seen: Position,
    /// The newest commit that it knew.
    newest: Position,
}

impl SnapshotAsk {
    /// [`ManagerOp::Snapshot`] has this.
    pub fn since(self) -> Position {
        self.since
    }

    /// The call.
    pub fn call(self, manager: Manager) -> Call {
        manager.call(ManagerOp::Snapshot { since: self.since })
    }
}

/// What a client knows of commits: its snapshots must show them. A promotion of the manager that an operator
/// has forced may have lost some of them; a partition that never had those would be waited for without end
/// (PR-416). So where another term of the manager has committed, or the newest snapshot is older than what
/// the client knew when it asked, the next one comes with all partitions, and what is missing there is
/// forgotten.
#[derive(Clone, Debug, Default)]
pub struct KnownCommits {
    /// The newest snapshot it was given.
    seen: Position,
    /// The newest one that came with all partitions; zero: the next one is to.
    whole: Position,
    /// The newest commit that it has heard of, its own among them.
    newest: Position,
    /// The newest commit of each partition that it has heard of.
    heads: BTreeMap<PartitionId, Position>,
}

impl KnownCommits {
    /// How a snapshot is asked for now.
    pub fn asks(&self) -> SnapshotAsk {
        let same_term = self.whole.term == self.seen.term;
        let since = if same_term { self.seen } else { Position::ZERO };
        SnapshotAsk { since, seen: self.seen, newest: self.newest }
    }

    /// The snapshot that an answer to this gives; none: it gives none.
    pub fn begun(&mut self, asked: SnapshotAsk, body: &Body) -> Option<Position> {
        let Body::Commit(CommitAnswer::Snapshot { at, heads }) = body else { return None };
        let in_turn = self.seen == asked.seen;
        if *at < self.seen && !in_turn {
            // What this one has, and was not lost since, has come with the later one.
            return Some(*at);
        }
        let whole = asked.since == Position::ZERO;
        if whole {
            self.forget_lost(asked.newest.max(*at), heads);
            self.whole = *at;
        } else if *at < asked.newest {
            self.whole = Position::ZERO;
        }
        for (partition, newest) in heads {
            self.note(*partition, *newest);
        }
        self.seen = if whole && in_turn { *at } else { self.seen.max(*at) };
        self.newest = self.newest.max(*at);
        Some(*at)
    }

    /// These are the newest commits of all partitions, among those up to one that this client knew when it
    /// asked, or that the answer shows. What is above them and not above that one is lost.
    fn forget_lost(&mut self, upto: Position, heads: &[(PartitionId, Position)]) {
        let newest: BTreeMap<PartitionId, Position> = heads.iter().copied().collect();
        for (partition, known) in self.heads.iter_mut().filter(|(_, known)| **known <= upto) {
            *known = newest.get(partition).copied().unwrap_or_default();
        }
        self.newest = self.heads.values().copied().max().unwrap_or_default();
    }

    /// A partition has this commit, or will.
    pub fn note(&mut self, partition: PartitionId, commit: Position) {
        let newest = self.heads.entry(partition).or_default();
        *newest = commit.max(*newest);
        self.newest = commit.max(self.newest);
    }

    /// Where a read of a partition looks to see a snapshot. It waits for commits that are newer than the
    /// snapshot, too, if the client knows of such.
    pub fn at(&self, snapshot: Position, partition: PartitionId) -> ReadSnapshot {
        ReadSnapshot::Commit { at: snapshot, after: self.newest(partition) }
    }

    /// The newest commit of a partition that it has heard of; zero: of none.
    pub fn newest(&self, partition: PartitionId) -> Position {
        self.heads.get(&partition).copied().unwrap_or_default()
    }

    /// A transaction that was committed at `commit`: its part in each partition, to be flushed. `previous`
    /// comes from the manager's answer.
    pub fn committed(
        &mut self,
        commit: Position,
        previous: &[(PartitionId, Position)],
        asked: CommitRequest,
    ) -> Vec<(PartitionId, Flush)> {
        let previous: BTreeMap<PartitionId, Position> = previous.iter().copied().collect();
        let mut flushes = Vec::with_capacity(asked.writes.len());
        for PartitionWrites { partition, mut parts } in asked.writes {
            self.note(partition, commit);
            // What rows rest on was the manager's business.
            parts.iter_mut().for_each(|part| part.seen.clear());
            // Of a commit that is not kept any more the answer has none: it is everywhere.
            let Some(previous) = previous.get(&partition).copied() else { continue };
            flushes.push((partition, Flush { commit, previous, parts }));
        }
        flushes
    }
}

/// What is to be done next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Make this call, and say how it ended.
    Call(Box<Call>),
    /// Wait so long.
    Wait(Micros),
    /// It has ended so.
    Done(Box<Outcome>),
}

#[derive(Debug)]
enum DoingStep {
    /// The goal was asked for.
    Asked,
    /// It is asked for again after a pause.
    Paused,
    /// The manager was asked for commits.
    Fetching,
    /// A flush was sent; these follow, and then the commits from there on.
    Flushing(VecDeque<Flush>, Option<Position>),
}

/// A call to one partition, with what it takes that its commits are there.
#[derive(Debug)]
pub struct Doing {
    manager: Manager,
    goal: Call,
    state: DoingStep,
    rounds: u32,
    /// What the partition is known to have.
    newest: Position,
}

impl Doing {
    /// Begins with the goal: a read of a snapshot, or a flush.
    pub fn new(manager: Manager, goal: Call) -> (Doing, Call) {
        let first = goal.clone();
        let newest = Position::ZERO;
        (Doing { manager, goal, state: DoingStep::Asked, rounds: 0, newest }, first)
    }

    /// A part of a commit, to be brought to its partition.
    pub fn flush(
        manager: Manager,
        (database, partition): (TableId, PartitionId),
        flush: Flush,
    ) -> (Doing, Call) {
        Doing::new(manager, Call::new(database, 0, partition, Op::Flush(flush)))
    }

    /// Goes on behind the last step: with how the call ended, or with none behind a pause.
    pub fn next(&mut self, outcome: Option<Outcome>) -> Step {
        let Some(outcome) = outcome else {
            self.state = DoingStep::Asked;
            return Step::Call(Box::new(self.goal.clone()));
        };
        if let (Outcome::Failed(FailKind::Behind(_) | FailKind::TooOld, _), ReadLevel::Any { .. }) =
            (&outcome, self.goal.read)
        {
            return self.elsewhere();
        }
        if let Outcome::Failed(FailKind::Behind(newest), _) = outcome {
            return self.behind(newest, outcome);
        }
        let state = std::mem::replace(&mut self.state, DoingStep::Asked);
        match (state, outcome) {
            (DoingStep::Asked | DoingStep::Paused, outcome) => Step::Done(Box::new(outcome)),
            (DoingStep::Fetching, Outcome::Ok(answer)) => match answer.body {
                Body::Commit(CommitAnswer::Chain { flushes, next }) => self.go_on(flushes.into(), next),
                other => {
                    let why = format!("the transaction manager answered with {other:?}");
                    Step::Done(Box::new(Outcome::Failed(FailKind::Bad, why)))
                }
            },
            (DoingStep::Flushing(left, next), Outcome::Ok(_)) => self.go_on(left, next),
            (_, outcome) => Step::Done(Box::new(outcome)),
        }
    }

    fn elsewhere(&mut self) -> Step {
        self.rounds += 1;
        if self.rounds > TRIES_ANYWHERE {
            (self.goal.read, self.rounds) = (ReadLevel::Primary, 0);
        }
        self.state = DoingStep::Paused;
        Step::Wait(PAUSE)
    }

    fn behind(&mut self, newest: Position, outcome: Outcome) -> Step {
        self.rounds += 1;
        self.newest = newest;
        match self.rounds {
            1..=PAUSES => {
                self.state = DoingStep::Paused;
                Step::Wait(PAUSE)
            }
            ..=MAX_ROUNDS => self.fetch(Position::ZERO),
            _ => Step::Done(Box::new(outcome)),
        }
    }

    fn fetch(&mut self, from: Position) -> Step {
        self.state = DoingStep::Fetching;
        let chain = ManagerOp::Chain { partition: self.goal.partition, after: self.newest, from };
        Step::Call(Box::new(Call { deadline: self.goal.deadline, ..self.manager.call(chain) }))
    }

    fn go_on(&mut self, mut flushes: VecDeque<Flush>, next: Option<Position>) -> Step {
        if let Some(flush) = flushes.pop_front() {
            let op = Op::Flush(flush);
            self.state = DoingStep::Flushing(flushes, next);
            // A request to a database as a whole, whichever of its tables is read.
            let call = Call { deadline: self.goal.deadline, ..self.to_partition(op) };
            return Step::Call(Box::new(call));
        }
        match next {
            Some(from) => self.fetch(from),
            None => {
                self.state = DoingStep::Asked;
                Step::Call(Box::new(self.goal.clone()))
            }
        }
    }

    fn to_partition(&self, op: Op) -> Call {
        Call::new(self.goal.table, self.goal.schema, self.goal.partition, op)
    }

    /// The partition that it is about.
    pub fn partition(&self) -> PartitionId {
        self.goal.partition
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Answer;
    use types::{Epoch, Lsn, Term};

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    fn ok(body: Body) -> Option<Outcome> {
        Some(Outcome::Ok(Answer { lsn: Lsn(1), epoch: Epoch(1), policy: 1, copies: 1, body }))
    }

    fn behind(lsn: u64) -> Option<Outcome> {
        Some(Outcome::Failed(FailKind::Behind(at(lsn)), String::new()))
    }

    fn flush(commit: u64, previous: u64) -> Flush {
        Flush { commit: at(commit), previous: at(previous), parts: Vec::new() }
    }

    fn called(step: Step) -> Op {
        match step {
            Step::Call(call) => call.op,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_meets_a_partition_that_lacks_commits_brings_them_in_order() {
        let manager = Manager { table: TableId(3), partition: PartitionId(2) };
        let (mut doing, first) = Doing::flush(manager, (TableId(9), PartitionId(64)), flush(9, 8));
        assert_eq!(first.op, Op::Flush(flush(9, 8)));
        for _ in 0..PAUSES {
            assert_eq!(doing.next(behind(4)), Step::Wait(PAUSE));
            assert_eq!(called(doing.next(None)), Op::Flush(flush(9, 8)));
        }
        let chain = |after, from| Op::Manager(ManagerOp::Chain { partition: PartitionId(64), after, from });
        assert_eq!(called(doing.next(behind(4))), chain(at(4), Position::ZERO));
        let page = |flushes: &[Flush], next| {
            ok(Body::Commit(CommitAnswer::Chain { flushes: flushes.to_vec(), next }))
        };
        assert_eq!(
            called(doing.next(page(&[flush(6, 4), flush(7, 6)], Some(at(7))))),
            Op::Flush(flush(6, 4))
        );
        assert_eq!(called(doing.next(ok(Body::Affected(1)))), Op::Flush(flush(7, 6)));
        assert_eq!(called(doing.next(ok(Body::Affected(0)))), chain(at(4), at(7)));
        assert_eq!(called(doing.next(page(&[flush(8, 7)], None))), Op::Flush(flush(8, 7)));
        assert_eq!(called(doing.next(ok(Body::Affected(1)))), Op::Flush(flush(9, 8)));
        let Step::Done(done) = doing.next(ok(Body::Affected(1))) else { panic!("it is done") };
        assert!(done.is_ok());
    }

    #[test]
    fn pr322_what_all_have_secured_is_asked_of_any_replica_and_of_the_primary_in_the_end() {
        let manager = Manager { table: TableId(3), partition: PartitionId(2) };
        let read = ReadSnapshot::Commit { at: at(7), after: at(5) };
        let goal = Call::new(TableId(9), 1, PartitionId(64), Op::Hold { at: read });
        let anywhere = ReadLevel::Any { max_lag_ms: u64::MAX, min_lsn: Lsn::ZERO };
        let (mut doing, first) = Doing::new(manager, goal.at_level(anywhere));
        assert_eq!(first.read, anywhere);
        let levels: Vec<ReadLevel> = (0..=TRIES_ANYWHERE)
            .map(|_| {
                assert_eq!(doing.next(behind(4)), Step::Wait(PAUSE), "no chain is fetched");
                match doing.next(None) {
                    Step::Call(call) => call.read,
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        let last = levels.len() - 1;
        assert!(levels[..last].iter().all(|level| *level == anywhere));
        assert_eq!(levels[last], ReadLevel::Primary);
        let Step::Done(done) = doing.next(ok(Body::None)) else { panic!("it is done") };
        assert!(done.is_ok());
    }

    #[test]
    fn a_snapshot_waits_for_what_the_client_knows() {
        let mut known = KnownCommits::default();
        let body = Body::Commit(CommitAnswer::Snapshot { at: at(7), heads: vec![(PartitionId(64), at(5))] });
        assert_eq!(known.begun(known.asks(), &body), Some(at(7)));
        let read = |known: &KnownCommits, partition| known.at(at(7), PartitionId(partition));
        assert_eq!(read(&known, 64), ReadSnapshot::Commit { at: at(7), after: at(5) });
        assert_eq!(read(&known, 65), ReadSnapshot::Commit { at: at(7), after: Position::ZERO });
        let writes = vec![PartitionWrites { partition: PartitionId(65), parts: Vec::new() }];
        let asked = CommitRequest { snapshot: at(7), writes };
        let flushes = known.committed(at(9), &[(PartitionId(65), at(2))], asked);
        assert_eq!(flushes, [(PartitionId(65), flush(9, 2))]);
        assert_eq!(read(&known, 65), ReadSnapshot::Commit { at: at(7), after: at(9) });
    }

    /// A position of the manager's next term.
    fn later(lsn: u64) -> Position {
        Position::new(Term(2), Lsn(lsn))
    }

    fn snapshot(at: Position, heads: &[(u32, Position)]) -> Body {
        let heads = heads.iter().map(|(partition, newest)| (PartitionId(*partition), *newest)).collect();
        Body::Commit(CommitAnswer::Snapshot { at, heads })
    }

    /// A client that knows commits of two partitions, the newest of which is lost.
    fn knows_what_is_lost() -> KnownCommits {
        let mut known = KnownCommits::default();
        known.begun(known.asks(), &snapshot(at(9), &[(64, at(5)), (65, at(9))]));
        assert_eq!(known.asks().since(), at(9), "what is known is not asked for");
        known
    }

    fn heads(known: &KnownCommits) -> [Position; 2] {
        [64, 65].map(|partition| known.newest(PartitionId(partition)))
    }

    #[test]
    fn pr416_commits_that_a_promotion_of_the_manager_has_lost_are_waited_for_no_longer() {
        let mut known = knows_what_is_lost();
        let all = [(64, later(10)), (65, at(4))];
        assert_eq!(known.begun(known.asks(), &snapshot(later(10), &all[..1])), Some(later(10)));
        assert_eq!(known.asks().since(), Position::ZERO, "another term has committed");
        let asked = known.asks();
        known.note(PartitionId(65), later(12));
        known.begun(asked, &snapshot(later(11), &all));
        assert_eq!(heads(&known), [later(10), later(12)], "its own is not in that answer yet");
        let mut known = knows_what_is_lost();
        known.begun(known.asks(), &snapshot(later(10), &all[..1]));
        known.begun(known.asks(), &snapshot(later(10), &all));
        assert_eq!((heads(&known), known.asks().since()), ([later(10), at(4)], later(10)));
    }

    #[test]
    fn pr416_the_same_where_nobody_has_committed_since() {
        let mut known = knows_what_is_lost();
        assert_eq!(known.begun(known.asks(), &snapshot(at(6), &[])), Some(at(6)));
        known.begun(known.asks(), &snapshot(at(6), &[(64, at(5)), (65, at(4))]));
        assert_eq!((heads(&known), known.asks().since()), ([at(5), at(4)], at(6)));
    }

    /// The newest commit that is left is the snapshot that the client had.
    #[test]
    fn pr416_the_same_where_its_own_commit_alone_is_lost() {
        let mut known = knows_what_is_lost();
        known.note(PartitionId(64), at(11));
        assert_eq!(known.begun(known.asks(), &snapshot(at(9), &[])), Some(at(9)));
        assert_eq!(known.asks().since(), Position::ZERO, "it has committed above that");
        known.begun(known.asks(), &snapshot(at(9), &[(64, at(5)), (65, at(9))]));
        assert_eq!((heads(&known), known.asks().since()), ([at(5), at(9)], at(9)));
    }

    #[test]
    fn pr416_an_answer_that_comes_late_takes_nothing_away() {
        let mut known = knows_what_is_lost();
        let first = known.asks();
        known.begun(known.asks(), &snapshot(at(12), &[(65, at(12))]));
        assert_eq!(known.begun(first, &snapshot(at(10), &[(65, at(10))])), Some(at(10)));
        assert_eq!((heads(&known), known.asks().since()), ([at(5), at(12)], at(12)));
    }
}
