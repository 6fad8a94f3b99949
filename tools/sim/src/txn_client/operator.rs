//! An operator who looks at all partitions, has the manager go on behind what one has and the manager has
//! lost (`txn recover`), and gives up what one lacks and nobody keeps any more (`txn skip`): step by step, as
//! these commands do (PR-293, PR-417).

use crate::check::commits::GivenUp;
use ::client::txn::{Gap, GapStep, Manager, Next, Owner};
use ::client::{Call, FailKind, Map, Outcome};
use std::collections::VecDeque;
use types::{Position, TableId};
use wire::commit::Threshold;
use wire::{Body, CommitAnswer, Flush, ManagerOp, Op};

/// Between two looks, microseconds.
const REST: u64 = 400_000;

/// A partition, and what the manager says of its commits.
#[derive(Clone, Copy, Debug)]
struct Looked {
    table: TableId,
    threshold: Threshold,
    truncated: Position,
}

/// What was asked for.
#[derive(Clone, Debug)]
enum Asked {
    Thresholds,
    State(Looked),
    Gap(Looked, Gap),
    /// The partition is to go on behind the second one, and has the first.
    Mend(Looked, Position, Position),
    Flush,
}

/// The operator.
#[derive(Debug, Default)]
pub struct Operator {
    asked: Option<Asked>,
    to_look: VecDeque<Looked>,
    next_at: u64,
    given_up: Vec<GivenUp>,
}

impl Operator {
    /// What was given up, or is kept by a partition alone.
    pub fn given_up(&self) -> &[GivenUp] {
        &self.given_up
    }

    /// Looks, if it is time and nothing is asked: the first call.
    pub fn begin(&mut self, now: u64, manager: Manager) -> Option<Call> {
        if self.asked.is_some() || now < self.next_at {
            return None;
        }
        self.asked = Some(Asked::Thresholds);
        Some(manager.call(ManagerOp::Thresholds))
    }

    /// A call has ended: the next one. None: it looks again later.
    pub fn next(&mut self, now: u64, outcome: Outcome, (manager, map): (Manager, &Map)) -> Option<Call> {
        let call = match (self.asked.take(), outcome) {
            (Some(Asked::Gap(looked, gap)), Outcome::Ok(answer)) => {
                self.search(manager, (looked, gap), Some(answer.body))
            }
            (Some(Asked::Gap(looked, gap)), Outcome::Failed(FailKind::TooOld, _)) => {
                self.search(manager, (looked, gap), None)
            }
            (Some(asked), Outcome::Ok(answer)) => self.go_on(now, (asked, answer.body), (manager, map)),
            _ => None,
        };
        let call = call.or_else(|| self.look());
        if call.is_none() {
            self.next_at = now + REST;
        }
        call
    }

    /// Asks the next partition how far it is.
    fn look(&mut self) -> Option<Call> {
        let looked = self.to_look.pop_front()?;
        self.asked = Some(Asked::State(looked));
        Some(Call::new(looked.table, 0, looked.threshold.partition, Op::FlushState { copies: 1 }))
    }

    fn go_on(
        &mut self,
        now: u64,
        (asked, body): (Asked, Body),
        (manager, map): (Manager, &Map),
    ) -> Option<Call> {
        match (asked, body) {
            (Asked::Thresholds, Body::Commit(CommitAnswer::Thresholds { partitions, truncated })) => {
                let looked = |threshold: Threshold| match Owner::of(map, threshold.partition) {
                    Owner::Database(table) => Some(Looked { table, threshold, truncated }),
                    Owner::Dropped | Owner::Unknown => None,
                };
                self.to_look = partitions.into_iter().filter_map(looked).collect();
                None
            }
            (Asked::State(looked), Body::Commit(CommitAnswer::State(state))) => {
                let said = (looked.threshold, looked.truncated);
                let (gap, step) = Gap::begin(manager, looked.table, said, state.newest);
                self.take(manager, (looked, gap), step)
            }
            (Asked::Mend(looked, has, upto), body) => {
                let (partition, since) = (looked.threshold.partition, now);
                // It may have caught up with the manager meanwhile.
                if has < upto || body == Body::Affected(1) {
                    self.given_up.push(GivenUp { partition, from: has, upto, since });
                }
                if has == upto {
                    return None;
                }
                self.asked = Some(Asked::Flush);
                let flush = Flush { commit: upto, previous: has, parts: Vec::new() };
                Some(Call::new(looked.table, 0, partition, Op::Flush(flush)))
            }
            _ => None,
        }
    }

    /// Goes on looking for what comes behind what a partition has.
    fn search(
        &mut self,
        manager: Manager,
        (looked, mut gap): (Looked, Gap),
        body: Option<Body>,
    ) -> Option<Call> {
        let step = gap.next(body).ok()?;
        self.take(manager, (looked, gap), step)
    }

    fn take(&mut self, manager: Manager, (looked, gap): (Looked, Gap), step: GapStep) -> Option<Call> {
        let has = gap.has();
        let upto = match step {
            GapStep::Call(call) => {
                self.asked = Some(Asked::Gap(looked, gap));
                return Some(*call);
            }
            GapStep::Found(Next::Kept) => return None,
            GapStep::Found(Next::Gone(upto)) => upto,
            GapStep::Found(Next::Unknown) => has,
        };
        let partition = looked.threshold.partition;
        self.asked = Some(Asked::Mend(looked, has, upto));
        Some(manager.call(ManagerOp::Mend { partition, has, upto }))
    }
}
