//! The recovery manager: it brings commits to the partitions that lack them, whoever committed them and has
//! died since, and tells the transaction manager what the partitions have secured, so that its log can be
//! truncated.
//!
//! It keeps nothing: the thresholds are in the transaction manager's log. So another one goes on where one
//! has ended, and two at once do the same twice. A pass is a machine without IO; the controller that plans
//! makes one after the other.

use super::steps::{Doing, Manager, Step};
use crate::call::{Call, FailKind, Outcome};
use crate::route::Map;
use std::collections::BTreeMap;
use types::{Micros, PartitionId, Position, TableId};
use wire::commit::Threshold;
use wire::request::ReadSnapshot;
use wire::{Body, CommitAnswer, FlushState, ManagerOp, Op};

/// A partition that does not answer is left for the next pass after this.
const CALL_TIMEOUT: Micros = Micros::from_millis(1_000);

/// So many partitions at most are said to have been dropped in one pass.
const MOST_DROPPED: usize = 1_000;

/// Whom a call of a pass is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The transaction manager.
    Manager,
    /// This partition.
    Partition(PartitionId),
}

/// Whose a partition is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// This database's.
    Database(TableId),
    /// It was dropped: nobody reads it any more.
    Dropped,
    /// Nobody knows: the cluster map may be older than the partition.
    Unknown,
}

impl Owner {
    /// As a cluster map has it. That it has no such partition proves nothing unless it is newer than the
    /// partition's number.
    pub fn of(map: &Map, partition: PartitionId) -> Owner {
        let given_out = || map.cluster().is_some_and(|cluster| cluster.has_given_out(partition));
        match map.partition(partition) {
            Some(record) => Owner::Database(record.table),
            None if given_out() => Owner::Dropped,
            None => Owner::Unknown,
        }
    }
}

/// What becomes of a partition in a pass.
#[derive(Debug)]
enum Work {
    /// Its commits are brought.
    Bringing(Box<Doing>),
    /// It is asked how far it is.
    Asking,
    /// It is asked to keep what all have secured. Whether it does is no matter of this pass.
    Keeping,
}

/// A pass over all partitions.
#[derive(Debug)]
pub struct Pass {
    manager: Manager,
    /// How many copies are to have durable what is secured.
    copies: u8,
    works: BTreeMap<PartitionId, Work>,
    secured: Vec<(PartitionId, Position)>,
    /// Of each database of which a partition lags, what all of its partitions have secured (T_P*): readers of
    /// that go on, whatever others commit meanwhile (PR-467).
    kept: BTreeMap<TableId, Position>,
    /// Partitions that were dropped, and of which the manager keeps nothing but that they were there.
    dropped: Vec<PartitionId>,
    /// The manager is to be told something, or keeps something that may be old by now.
    tells: bool,
}

/// What a pass does next: steps, each for its part. It has ended if there are none, and none is under way.
pub type Steps = Vec<(Part, Step)>;

impl Pass {
    /// Begins one, with its first call, for [`Part::Manager`].
    pub fn begin(manager: Manager, copies: u8) -> (Pass, Call) {
        let (works, secured, dropped) = (BTreeMap::new(), Vec::new(), Vec::new());
        let pass = Pass { manager, copies, works, secured, kept: BTreeMap::new(), dropped, tells: false };
        (pass, manager.call(ManagerOp::Thresholds).within(CALL_TIMEOUT))
    }

    /// Goes on with one part, as [`Doing::next`]. `owner` says whose a partition is.
    pub fn next(
        &mut self,
        part: Part,
        outcome: Option<Outcome>,
        owner: impl Fn(PartitionId) -> Owner,
    ) -> Steps {
        match (part, outcome) {
            (Part::Manager, Some(Outcome::Ok(answer))) => match answer.body {
                Body::Commit(CommitAnswer::Thresholds { partitions, truncated }) => {
                    let newest = partitions.iter().map(|threshold| threshold.newest).max();
                    self.tells = newest.is_some_and(|newest| newest > truncated);
                    // The newest of all stays known.
                    let over = partitions.iter().filter(|one| {
                        let gone = one.secured >= one.newest && one.newest <= truncated;
                        gone && Some(one.newest) < newest && owner(one.partition) == Owner::Dropped
                    });
                    self.dropped = over.map(|one| one.partition).take(MOST_DROPPED).collect();
                    self.go_over(&partitions, owner)
                }
                // It has removed some write-sets, and may have more of them (PR-290).
                Body::Affected(1..) => {
                    self.tells = true;
                    self.ended_by(Steps::new())
                }
                // What was secured is in the books.
                _ => self.forget(),
            },
            (Part::Manager, _) => Steps::new(),
            (Part::Partition(partition), outcome) => self.go_on(partition, outcome, owner),
        }
    }

    fn go_over(&mut self, partitions: &[Threshold], owner: impl Fn(PartitionId) -> Owner) -> Steps {
        let mut steps = self.keep_secured(partitions, &owner);
        for threshold in partitions.iter().filter(|threshold| threshold.secured < threshold.newest) {
            let (partition, newest) = (threshold.partition, threshold.newest);
            let table = match owner(partition) {
                Owner::Database(table) => table,
                Owner::Dropped => {
                    self.secured.push((partition, newest));
                    continue;
                }
                Owner::Unknown => continue,
            };
            // A look at a snapshot that shows the newest commit: whoever makes it brings what is missing.
            let op = Op::Hold { at: ReadSnapshot::Commit { at: newest, after: newest } };
            let goal = Call::new(table, 0, partition, op).within(CALL_TIMEOUT);
            let (doing, call) = Doing::new(self.manager, goal);
            self.works.insert(partition, Work::Bringing(Box::new(doing)));
            steps.push((Part::Partition(partition), Step::Call(Box::new(call))));
        }
        self.ended_by(steps)
    }

    /// Partitions that lag by nothing keep what their database has secured, if another one of it lags. Those
    /// that lag are asked for that once they have said how far they are.
    fn keep_secured(&mut self, partitions: &[Threshold], owner: impl Fn(PartitionId) -> Owner) -> Steps {
        let lags = |threshold: &&Threshold| threshold.secured < threshold.newest;
        let database = |threshold: &Threshold| match owner(threshold.partition) {
            Owner::Database(table) => Some(table),
            Owner::Dropped | Owner::Unknown => None,
        };
        for threshold in partitions.iter().filter(lags) {
            let Some(table) = database(threshold) else { continue };
            let kept = self.kept.entry(table).or_insert(threshold.secured);
            *kept = threshold.secured.min(*kept);
        }
        let mut steps = Steps::new();
        for threshold in partitions.iter().filter(|threshold| !lags(threshold)) {
            let table = database(threshold);
            steps.extend(table.and_then(|table| self.keep(threshold.partition, table)));
        }
        steps
    }

    /// Asks a partition of this database to keep it; none: there is nothing to keep.
    fn keep(&mut self, partition: PartitionId, table: TableId) -> Option<(Part, Step)> {
        let at = self.kept.get(&table).copied().filter(|at| *at > Position::ZERO)?;
        let op = Op::Hold { at: ReadSnapshot::Commit { at, after: Position::ZERO } };
        let call = Call::new(table, 0, partition, op).within(CALL_TIMEOUT);
        self.works.insert(partition, Work::Keeping);
        Some((Part::Partition(partition), Step::Call(Box::new(call))))
    }

    fn go_on(
        &mut self,
        partition: PartitionId,
        outcome: Option<Outcome>,
        owner: impl Fn(PartitionId) -> Owner,
    ) -> Steps {
        let part = Part::Partition(partition);
        let step = match (self.works.remove(&partition), outcome) {
            (Some(Work::Bringing(mut doing)), outcome) => match doing.next(outcome) {
                Step::Done(outcome) => self.brought(partition, *outcome, owner),
                step => {
                    self.works.insert(partition, Work::Bringing(doing));
                    Some(step)
                }
            },
            (Some(Work::Asking), Some(Outcome::Ok(answer))) => {
                if let Body::Commit(CommitAnswer::State(FlushState { secured, .. })) = answer.body {
                    self.secured.push((partition, secured));
                }
                match owner(partition) {
                    Owner::Database(table) => self.keep(partition, table).map(|(_, step)| step),
                    Owner::Dropped | Owner::Unknown => None,
                }
            }
            _ => None,
        };
        self.ended_by(step.map(|step| (part, step)).into_iter().collect())
    }

    /// A partition has its commits, or is left for the next pass.
    fn brought(
        &mut self,
        partition: PartitionId,
        outcome: Outcome,
        owner: impl Fn(PartitionId) -> Owner,
    ) -> Option<Step> {
        // What is old was here, too.
        let here = outcome.is_ok() || matches!(outcome, Outcome::Failed(FailKind::TooOld, _));
        let Owner::Database(table) = owner(partition) else { return None };
        if !here {
            return None;
        }
        self.works.insert(partition, Work::Asking);
        let op = Op::FlushState { copies: self.copies };
        Some(Step::Call(Box::new(Call::new(table, 0, partition, op).within(CALL_TIMEOUT))))
    }

    /// Behind the last partition the manager is told.
    fn ended_by(&mut self, mut steps: Steps) -> Steps {
        if !self.works.is_empty() {
            return steps;
        }
        if !std::mem::take(&mut self.tells) {
            steps.extend(self.forget());
            return steps;
        }
        let partitions = std::mem::take(&mut self.secured);
        let call = self.manager.call(ManagerOp::Secured { partitions }).within(CALL_TIMEOUT);
        steps.push((Part::Manager, Step::Call(Box::new(call))));
        steps
    }

    /// At last it is told what was dropped: an older one does not know that, and ends the pass (PR-390).
    fn forget(&mut self) -> Steps {
        let partitions = std::mem::take(&mut self.dropped);
        if partitions.is_empty() {
            return Steps::new();
        }
        let call = self.manager.call(ManagerOp::Forget { partitions }).within(CALL_TIMEOUT);
        vec![(Part::Manager, Step::Call(Box::new(call)))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Answer;
    use types::{Epoch, Lsn, TableRecord, Term};

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    fn pass() -> Pass {
        let schema = types::system::schema(types::system::COMMITS).expect("a system table");
        let policy = types::Policy::preset("durable", 1, types::LogKind::Disk).expect("a preset");
        let record = TableRecord::new(TableId(3), types::system::COMMITS, schema, policy);
        Pass::begin(Manager::of(&record), 1).0
    }

    fn answer(body: CommitAnswer) -> Option<Outcome> {
        let body = Body::Commit(body);
        Some(Outcome::Ok(Answer { lsn: Lsn(1), epoch: Epoch(1), policy: 1, copies: 1, body }))
    }

    /// A call has ended well.
    fn here() -> Option<Outcome> {
        let body = Body::None;
        Some(Outcome::Ok(Answer { lsn: Lsn(1), epoch: Epoch(1), policy: 1, copies: 1, body }))
    }

    /// A partition is asked to keep the snapshot of this commit.
    fn kept(lsn: u64) -> Op {
        Op::Hold { at: ReadSnapshot::Commit { at: at(lsn), after: Position::ZERO } }
    }

    /// What the manager is told of a partition that lags, whose owner is this.
    fn told(owner: Owner) -> Option<Vec<(PartitionId, Position)>> {
        let lags = Threshold { partition: PartitionId(64), newest: at(9), secured: at(4) };
        let thresholds = CommitAnswer::Thresholds { partitions: vec![lags], truncated: at(2) };
        let steps = pass().next(Part::Manager, answer(thresholds), |_| owner);
        steps.into_iter().find_map(|(part, step)| match (part, step) {
            (Part::Manager, Step::Call(call)) => match call.op {
                Op::Manager(ManagerOp::Secured { partitions }) => Some(partitions),
                _ => None,
            },
            _ => None,
        })
    }

    #[test]
    fn pr255_a_partition_that_an_old_map_lacks_is_not_taken_for_dropped() {
        assert_eq!(told(Owner::Dropped), Some(vec![(PartitionId(64), at(9))]));
        assert_eq!(told(Owner::Unknown), Some(Vec::new()));
        assert_eq!(told(Owner::Database(TableId(7))), None, "it is asked first");
        assert_eq!(Owner::of(&Map::default(), PartitionId(64)), Owner::Unknown);
    }

    #[test]
    fn what_a_partition_says_is_secured_is_passed_on() {
        let mut pass = pass();
        let owner = |_| Owner::Database(TableId(7));
        let lags = Threshold { partition: PartitionId(64), newest: at(9), secured: at(4) };
        let thresholds = CommitAnswer::Thresholds { partitions: vec![lags], truncated: at(2) };
        let part = Part::Partition(PartitionId(64));
        let op = |steps: Steps| match steps.into_iter().next() {
            Some((_, Step::Call(call))) => call.op,
            other => panic!("{other:?}"),
        };
        let held = op(pass.next(Part::Manager, answer(thresholds), owner));
        assert_eq!(held, Op::Hold { at: ReadSnapshot::Commit { at: at(9), after: at(9) } });
        assert_eq!(op(pass.next(part, here(), owner)), Op::FlushState { copies: 1 });
        let state = CommitAnswer::State(FlushState { newest: at(9), secured: at(7) });
        assert_eq!(op(pass.next(part, answer(state), owner)), kept(4));
        let secured = op(pass.next(part, here(), owner));
        assert_eq!(secured, Op::Manager(ManagerOp::Secured { partitions: vec![(PartitionId(64), at(7))] }));
    }

    #[test]
    fn pr467_all_partitions_of_a_database_keep_what_all_have_secured_while_one_lags() {
        let mut pass = pass();
        let owner = |partition: PartitionId| Owner::Database(TableId(7 + partition.0 / 70));
        let threshold = |partition: u32, newest: u64, secured: u64| Threshold {
            partition: PartitionId(partition),
            newest: at(newest),
            secured: at(secured),
        };
        let partitions = vec![
            threshold(64, 9, 4),
            threshold(65, 8, 8),
            threshold(66, 7, 3),
            threshold(67, 6, 6),
            threshold(70, 5, 5),
        ];
        let thresholds = CommitAnswer::Thresholds { partitions, truncated: at(2) };
        let mut asked = BTreeMap::new();
        for (part, step) in pass.next(Part::Manager, answer(thresholds), owner) {
            match step {
                Step::Call(call) => drop(asked.insert(part, call.op)),
                other => panic!("{other:?}"),
            }
        }
        let of = |partition| asked.get(&Part::Partition(PartitionId(partition))).cloned();
        assert_eq!((of(65), of(67)), (Some(kept(3)), Some(kept(3))), "the least of those that lag");
        assert_eq!(of(70), None, "nobody lags in the other database");
        let brings = |newest| Op::Hold { at: ReadSnapshot::Commit { at: at(newest), after: at(newest) } };
        assert_eq!((of(64), of(66)), (Some(brings(9)), Some(brings(7))), "they bring what they lack first");
        assert_eq!(asked.len(), 4);
        // Whether it can be kept is no matter of the pass.
        let failed = || Some(Outcome::Failed(FailKind::TooOld, String::new()));
        for partition in [65, 67] {
            assert_eq!(pass.next(Part::Partition(PartitionId(partition)), failed(), owner), Steps::new());
        }
    }

    #[test]
    fn pr390_of_what_was_dropped_the_manager_is_told_at_last() {
        let dropped = |partition: PartitionId| match partition.0 {
            65 => Owner::Database(TableId(7)),
            66 => Owner::Unknown,
            _ => Owner::Dropped,
        };
        let threshold = |partition: u32, newest: u64| Threshold {
            partition: PartitionId(partition),
            newest: at(newest),
            secured: at(newest),
        };
        let asked = |steps: Steps| match &steps[..] {
            [(Part::Manager, Step::Call(call))] => call.op.clone(),
            other => panic!("{other:?}"),
        };
        let forget = Op::Manager(ManagerOp::Forget { partitions: vec![PartitionId(64)] });
        let four = || vec![threshold(64, 3), threshold(65, 4), threshold(66, 3), threshold(67, 8)];
        let mut busy = pass();
        let thresholds = CommitAnswer::Thresholds { partitions: four(), truncated: at(5) };
        let tells = Op::Manager(ManagerOp::Secured { partitions: Vec::new() });
        assert_eq!(asked(busy.next(Part::Manager, answer(thresholds), dropped)), tells);
        let none = || {
            let body = Body::None;
            Some(Outcome::Ok(Answer { lsn: Lsn(1), epoch: Epoch(1), policy: 1, copies: 1, body }))
        };
        assert_eq!(asked(busy.next(Part::Manager, none(), dropped)), forget, "of 67 a write-set is kept");
        assert_eq!(busy.next(Part::Manager, none(), dropped), Steps::new());
        let mut idle = pass();
        let partitions = four().into_iter().filter(|threshold| threshold.partition.0 < 67).collect();
        let thresholds = CommitAnswer::Thresholds { partitions, truncated: at(5) };
        assert_eq!(asked(idle.next(Part::Manager, answer(thresholds), dropped)), forget);
        assert_eq!(idle.next(Part::Manager, none(), dropped), Steps::new());
    }

    #[test]
    fn pr290_a_pass_ends_when_nothing_old_is_kept_any_more() {
        let mut pass = pass();
        let owner = |_| Owner::Database(TableId(7));
        let level = Threshold { partition: PartitionId(64), newest: at(9), secured: at(9) };
        let kept = CommitAnswer::Thresholds { partitions: vec![level], truncated: at(2) };
        let asked = |steps: Steps| match &steps[..] {
            [(Part::Manager, Step::Call(call))] => call.op.clone(),
            other => panic!("{other:?}"),
        };
        let removed = |count| {
            Some(Outcome::Ok(Answer {
                lsn: Lsn(1),
                epoch: Epoch(1),
                policy: 1,
                copies: 1,
                body: Body::Affected(count),
            }))
        };
        let tells = Op::Manager(ManagerOp::Secured { partitions: Vec::new() });
        assert_eq!(asked(pass.next(Part::Manager, answer(kept), owner)), tells);
        assert_eq!(asked(pass.next(Part::Manager, removed(1024), owner)), tells);
        assert_eq!(pass.next(Part::Manager, removed(0), owner), Steps::new());
        let nothing = CommitAnswer::Thresholds { partitions: vec![level], truncated: at(9) };
        let mut pass = Pass::begin(pass.manager, 1).0;
        assert_eq!(pass.next(Part::Manager, answer(nothing), owner), Steps::new());
    }
}
