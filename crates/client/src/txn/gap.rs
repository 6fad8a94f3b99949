//! What comes behind the newest commit that a partition has, for an operator who gives commits up or lets the
//! manager go on (`txn skip`, `txn recover`): a machine without IO, so that the simulator asks the same.

use super::steps::Manager;
use crate::call::Call;
use types::{Position, TableId};
use wire::commit::Threshold;
use wire::{Body, CommitAnswer, ManagerOp, Op};

/// What comes behind the newest commit of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It is kept, and brought by whoever looks, or there is none.
    Kept,
    /// Commits up to this one are kept nowhere.
    Gone(Position),
    /// It names an older one: the manager does not know what the partition has.
    Unknown,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GapStep {
    /// Make this call.
    Call(Box<Call>),
    /// That is it.
    Found(Next),
}

/// A search for it.
#[derive(Clone, Debug)]
pub struct Gap {
    manager: Manager,
    /// The database of the partition.
    table: TableId,
    threshold: Threshold,
    truncated: Position,
    has: Position,
    /// Commits above this one are asked for.
    from: Position,
    state: GapState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GapState {
    /// The manager was asked for what comes next.
    Asked,
    /// That is not kept. The partition was asked whether it still lacks it.
    Doubted,
    /// It does, and the manager was asked where the partition's commits go on.
    Gone,
}

impl Gap {
    /// Of a partition of this database that has commits up to `has`. The manager said `threshold` of it
    /// before it was asked for that, and up to where nothing is kept.
    pub fn begin(
        manager: Manager,
        table: TableId,
        (threshold, truncated): (Threshold, Position),
        has: Position,
    ) -> (Gap, GapStep) {
        let gap = Gap { manager, table, threshold, truncated, has, from: has, state: GapState::Asked };
        let step = match threshold.newest > has {
            true => gap.chain(),
            false if threshold.newest == has => GapStep::Found(Next::Kept),
            // Nobody commits behind what the manager does not know.
            false => GapStep::Found(Next::Unknown),
        };
        (gap, step)
    }

    /// The newest commit that it has.
    pub fn has(&self) -> Position {
        self.has
    }

    fn chain(&self) -> GapStep {
        let (partition, after, from) = (self.threshold.partition, self.has, self.from);
        GapStep::Call(Box::new(self.manager.call(ManagerOp::Chain { partition, after, from })))
    }

    /// Asks the partition whether it still lacks what is not kept.
    fn doubt(&mut self) -> GapStep {
        self.state = GapState::Doubted;
        let (table, partition) = (self.table, self.threshold.partition);
        GapStep::Call(Box::new(Call::new(table, 0, partition, Op::FlushState { copies: 1 })))
    }

    /// Goes on with what a call was answered with; none: what was asked for is not kept any more
    /// ([`crate::FailKind::TooOld`]). The error is a sentence: that is no answer to it.
    pub fn next(&mut self, body: Option<Body>) -> Result<GapStep, String> {
        match (self.state, body) {
            // What is missing is newer than some that are kept for other partitions, perhaps (PR-394), or in
            // no log of the manager (PR-417). It may also have been brought since, and removed.
            (GapState::Asked, None) => Ok(self.doubt()),
            (GapState::Doubted, Some(Body::Commit(CommitAnswer::State(state)))) => {
                if state.newest != self.has {
                    return Ok(GapStep::Found(Next::Kept));
                }
                self.state = GapState::Gone;
                let behind = Position::new(self.has.term, self.has.lsn.next());
                self.from = behind.max(self.truncated);
                Ok(self.chain())
            }
            (GapState::Asked | GapState::Gone, Some(Body::Commit(CommitAnswer::Chain { flushes, next }))) => {
                let first = flushes.first().map(|flush| flush.previous);
                let paged = self.state == GapState::Asked && self.from > self.has;
                Ok(match (first, next) {
                    // Only of its first page the manager says that what comes next is gone.
                    (Some(previous), _) if paged && previous > self.has => self.doubt(),
                    (None, None) if paged => self.doubt(),
                    (Some(previous), _) if previous > self.has => GapStep::Found(Next::Gone(previous)),
                    (Some(previous), _) if previous < self.has => GapStep::Found(Next::Unknown),
                    (None, Some(next)) => {
                        self.from = next;
                        self.chain()
                    }
                    (None, None) if self.state == GapState::Gone => {
                        GapStep::Found(Next::Gone(self.threshold.newest))
                    }
                    _ => GapStep::Found(Next::Kept),
                })
            }
            (_, other) => Err(format!("the next commit of a partition was asked for, and {other:?} came")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Lsn, PartitionId, Policy, TableRecord, Term};
    use wire::Flush;
    use wire::commit::FlushState;

    const PARTITION: PartitionId = PartitionId(64);

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    fn begin(newest: u64, has: u64) -> (Gap, GapStep) {
        let schema = types::system::schema(types::system::COMMITS).expect("a system table");
        let policy = Policy::preset("durable", 1, types::LogKind::Disk).expect("a preset");
        let record = TableRecord::new(TableId(3), types::system::COMMITS, schema, policy);
        let threshold = Threshold { partition: PARTITION, newest: at(newest), secured: at(2) };
        Gap::begin(Manager::of(&record), TableId(7), (threshold, at(2)), at(has))
    }

    fn chain(flushes: &[(u64, u64)], next: Option<u64>) -> Option<Body> {
        let flush = |(commit, previous): &(u64, u64)| Flush {
            commit: at(*commit),
            previous: at(*previous),
            parts: Vec::new(),
        };
        let flushes = flushes.iter().map(flush).collect();
        Some(Body::Commit(CommitAnswer::Chain { flushes, next: next.map(at) }))
    }

    fn has(lsn: u64) -> Option<Body> {
        Some(Body::Commit(CommitAnswer::State(FlushState { newest: at(lsn), secured: at(2) })))
    }

    /// What is found by these answers in turn.
    fn found((mut gap, mut step): (Gap, GapStep), answers: Vec<Option<Body>>) -> Next {
        for body in answers {
            assert!(matches!(step, GapStep::Call(_)), "{step:?}");
            step = gap.next(body).expect("an answer to that");
        }
        match step {
            GapStep::Found(next) => next,
            GapStep::Call(call) => panic!("{:?} is asked", call.op),
        }
    }

    #[test]
    fn what_is_kept_is_not_given_up() {
        assert_eq!(found(begin(9, 9), Vec::new()), Next::Kept);
        assert_eq!(found(begin(9, 5), vec![chain(&[], Some(7)), chain(&[(9, 5)], None)]), Next::Kept);
        assert_eq!(found(begin(9, 5), vec![None, has(9)]), Next::Kept, "it was brought meanwhile");
        for second in [chain(&[(9, 8)], None), chain(&[], None)] {
            let pages = vec![chain(&[], Some(7)), second, has(9)];
            assert_eq!(found(begin(9, 5), pages), Next::Kept, "and removed between two pages");
        }
    }

    #[test]
    fn what_is_gone_is_found_behind_the_first_page_too() {
        let pages = |second| vec![chain(&[], Some(7)), second, has(5), chain(&[(9, 8)], None)];
        for second in [chain(&[(9, 8)], None), chain(&[], None)] {
            assert_eq!(found(begin(9, 5), pages(second)), Next::Gone(at(8)));
        }
    }

    #[test]
    fn what_the_manager_does_not_know_is_found_by_the_next_commit() {
        assert_eq!(found(begin(4, 5), Vec::new()), Next::Unknown);
        assert_eq!(found(begin(9, 5), vec![chain(&[(9, 4)], None)]), Next::Unknown);
    }

    /// The manager has removed nothing behind what the partition has, and names a commit that it never had.
    #[test]
    fn pr417_what_is_kept_nowhere_is_given_up_whatever_the_manager_has_removed() {
        let asked = |answer| vec![None, has(5), answer];
        assert_eq!(found(begin(9, 5), asked(chain(&[(9, 8)], None))), Next::Gone(at(8)));
        assert_eq!(found(begin(9, 5), asked(chain(&[], None))), Next::Gone(at(9)));
        let (mut gap, _) = begin(9, 5);
        assert!(gap.next(None).is_ok() && gap.next(has(5)).is_ok());
        assert_eq!(gap.from, at(6), "the manager says where the commits go on");
        assert!(gap.next(None).is_err());
    }
}
