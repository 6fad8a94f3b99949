//! An operator who looks at all partitions, and gives up what one lacks and nobody keeps any more: step by
//! step, as `txn skip` does (PR-293).

use crate::check::commits::GivenUp;
use ::client::txn::{Manager, Owner};
use ::client::{Call, FailKind, Map, Outcome};
use std::collections::VecDeque;
use types::{Position, TableId};
use wire::commit::Threshold;
use wire::{Body, CommitAnswer, Flush, ManagerOp, Op};

/// Between two looks, microseconds.
const REST: u64 = 400_000;

/// A partition, and what the manager and it say of its commits.
#[derive(Clone, Copy, Debug)]
struct Looked {
    table: TableId,
    threshold: Threshold,
    truncated: Position,
    /// What it has, once it was asked.
    has: Position,
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Thresholds,
    State(Looked),
    Chain(Looked),
    /// It is to go on behind this one.
    Mend(Looked, Position),
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
    /// What was given up.
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
            (Some(asked), Outcome::Ok(answer)) => self.go_on(now, (asked, answer.body), (manager, map)),
            // The next commit is gone. Whoever asks from further on is told where they go on.
            (Some(Asked::Chain(looked)), Outcome::Failed(FailKind::TooOld, _)) => {
                let behind = Position::new(looked.has.term, looked.has.lsn.next());
                Some(self.ask_chain(manager, looked, behind))
            }
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

    /// Asks for the commits that are kept behind what a partition has.
    fn ask_chain(&mut self, manager: Manager, looked: Looked, from: Position) -> Call {
        self.asked = Some(Asked::Chain(looked));
        let (partition, after) = (looked.threshold.partition, looked.has);
        manager.call(ManagerOp::Chain { partition, after, from })
    }

    fn go_on(
        &mut self,
        now: u64,
        (asked, body): (Asked, Body),
        (manager, map): (Manager, &Map),
    ) -> Option<Call> {
        match (asked, body) {
            (Asked::Thresholds, Body::Commit(CommitAnswer::Thresholds { partitions, truncated })) => {
                let has = Position::ZERO;
                let looked = |threshold: Threshold| match Owner::of(map, threshold.partition) {
                    Owner::Database(table) => Some(Looked { table, threshold, truncated, has }),
                    Owner::Dropped | Owner::Unknown => None,
                };
                self.to_look = partitions.into_iter().filter_map(looked).collect();
                None
            }
            (Asked::State(looked), Body::Commit(CommitAnswer::State(state))) => {
                let looked = Looked { has: state.newest, ..looked };
                // What it was said to have secured may be gone (PR-394).
                let gone = looked.truncated.max(looked.threshold.secured);
                let lacks = looked.has < looked.threshold.newest && looked.has < gone;
                lacks.then(|| self.ask_chain(manager, looked, looked.truncated))
            }
            (Asked::Chain(looked), Body::Commit(CommitAnswer::Chain { flushes, next })) => {
                let upto = match (flushes.first(), next) {
                    (Some(first), _) => first.previous,
                    (None, Some(next)) => return Some(self.ask_chain(manager, looked, next)),
                    (None, None) => looked.threshold.newest,
                };
                let (partition, has) = (looked.threshold.partition, looked.has);
                (upto > has).then(|| {
                    self.asked = Some(Asked::Mend(looked, upto));
                    manager.call(ManagerOp::Mend { partition, has, upto })
                })
            }
            (Asked::Mend(looked, upto), _) => {
                let (partition, from) = (looked.threshold.partition, looked.has);
                self.given_up.push(GivenUp { partition, from, upto, since: now });
                self.asked = Some(Asked::Flush);
                let flush = Flush { commit: upto, previous: from, parts: Vec::new() };
                Some(Call::new(looked.table, 0, partition, Op::Flush(flush)))
            }
            _ => None,
        }
    }
}
