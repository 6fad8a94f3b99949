//! Commits of which no acknowledgement came (PR-361). The session that numbered one is asked: it knows what
//! became of it, or sees to it that it is never made, however late a copy of it arrives.

use super::background::Asked;
use super::steps::Manager;
use crate::call::{Call, Completed, FailKind, Outcome, Ticket};
use crate::client::Client;
use crate::error::ClientError;
use crate::table::micros;
use std::collections::{BTreeMap, VecDeque};
use types::{Micros, Position, SessionId};
use wire::ManagerOp;

/// For so long the session is asked before the caller is told that it is not known.
const SESSION_WAIT: Micros = Micros::from_millis(5_000);
/// The most ends that are kept for [`Client::resolved_commits`]; of more the oldest go.
const MAX_RESOLVED: usize = 1_000;

/// The number that a commit has in a session with the transaction manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Numbered {
    manager: Manager,
    session: SessionId,
    seq: u64,
}

impl Numbered {
    fn asks(self, limit: Micros) -> Call {
        let Numbered { manager, session, seq } = self;
        manager.call(ManagerOp::Outcome { session, seq }).within(limit)
    }
}

/// A commit whose caller waits until its session has answered.
#[derive(Debug)]
pub(super) struct InDoubt {
    numbered: Numbered,
    asked: Asked,
    /// As it ended.
    completed: Completed,
}

/// What a client does not know the end of.
#[derive(Debug, Default)]
pub(super) struct UnknownCommits {
    /// The session is to be asked.
    fresh: Vec<InDoubt>,
    /// By the call that asks it.
    asking: BTreeMap<Ticket, InDoubt>,
    /// Blocking commits that ended as unknown: asked about when the next transaction begins.
    open: VecDeque<Numbered>,
    /// What came of these, for [`Client::resolved_commits`].
    resolved: VecDeque<Outcome>,
}

impl UnknownCommits {
    /// Takes in what ended as unknown. It is given back if no session can say more.
    pub fn take(&mut self, asked: Asked, completed: Completed) -> Option<Completed> {
        let (Asked::Commit { manager, .. }, Some((session, seq))) = (&asked, completed.number) else {
            return Some(completed);
        };
        let numbered = Numbered { manager: *manager, session, seq };
        self.fresh.push(InDoubt { numbered, asked, completed });
        None
    }

    /// The commit that this call has asked about; none: it is another call.
    pub fn answered(&mut self, ticket: Ticket) -> Option<InDoubt> {
        self.asking.remove(&ticket)
    }

    /// The end of a commit once its session was asked, with `outcome`. Of one that is still unknown the
    /// session is asked again before the next transaction begins.
    pub fn settle(&mut self, doubt: InDoubt, outcome: Outcome) -> (Asked, Completed) {
        let InDoubt { numbered, asked, completed } = doubt;
        if matches!(outcome, Outcome::Ok(_) | Outcome::Refused(..)) {
            return (asked, Completed { outcome, ..completed });
        }
        if !is_last_word(&outcome) && completed.lane == Client::BLOCKING {
            self.open.push_back(numbered);
        }
        (asked, completed)
    }

    /// How many sessions are to be asked.
    pub fn waiting(&self) -> usize {
        self.fresh.len()
    }

    /// True if the end of this commit was not handed out yet.
    pub fn waits_for(&self, ticket: Ticket) -> bool {
        self.fresh.iter().chain(self.asking.values()).any(|doubt| doubt.completed.ticket == ticket)
    }

    fn resolve(&mut self, outcome: Outcome) {
        self.open.pop_front();
        if self.resolved.len() == MAX_RESOLVED {
            self.resolved.pop_front();
        }
        self.resolved.push_back(outcome);
    }
}

impl Client {
    /// What became of commits that ended as [`ClientError::OutcomeUnknown`], in their order, as far as
    /// [`Client::begin`] has found out since the last call: its timestamp; [`ClientError::Changed`]: it was
    /// not made, and never will be; [`ClientError::OutcomeUnknown`]: nobody knows it any more. At most
    /// 1,000 of them are kept.
    pub fn resolved_commits(&mut self) -> Vec<Result<Position, ClientError>> {
        let ends = std::mem::take(&mut self.background.unknown.resolved);
        let end = |outcome: Outcome| match outcome {
            Outcome::Failed(_, why) => Err(ClientError::OutcomeUnknown(why)),
            outcome => outcome.into_result().map(|answer| answer.position()),
        };
        ends.into_iter().map(end).collect()
    }

    /// Asks the sessions of blocking commits that ended as unknown. The error: one could not be asked in
    /// time, and is asked again the next time.
    pub(super) fn resolve_commits(&mut self) -> Result<(), ClientError> {
        while let Some(numbered) = self.background.unknown.open.front().copied() {
            let ticket = self.submit(Client::BLOCKING, numbered.asks(micros(self.timeout())));
            let outcome = self.wait_for(ticket)?.outcome;
            if !is_last_word(&outcome) {
                return outcome.into_result().map(drop);
            }
            self.background.unknown.resolve(outcome);
        }
        Ok(())
    }

    /// Asks the sessions of commits whose callers wait for that.
    pub(super) fn ask_sessions(&mut self) {
        for doubt in std::mem::take(&mut self.background.unknown.fresh) {
            let ticket = self.submit(Client::BLOCKING, doubt.numbered.asks(SESSION_WAIT));
            self.background.unknown.asking.insert(ticket, doubt);
        }
    }
}

/// True if nothing more can be heard of a commit than this.
fn is_last_word(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Ok(_) | Outcome::Refused(..) => true,
        Outcome::Failed(kind, _) => matches!(kind, FailKind::TooOld | FailKind::Bad),
        Outcome::Unknown(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Answer, LaneId};
    use types::data::{Column, ColumnType, Schema};
    use types::{Epoch, LogKind, Lsn, PartitionId, Policy, TableId, TableRecord, Term};
    use wire::request::Outcome as Refusal;
    use wire::{Body, CommitRequest};

    const TICKET: Ticket = Ticket(7);

    fn manager() -> Manager {
        let schema = Schema::new(vec![Column::new("k", ColumnType::Int)], &["k"], 1, false).expect("valid");
        let policy = Policy::preset("durable", 1, LogKind::Disk).expect("a preset");
        Manager::of(&TableRecord::new(TableId(3), "sys_commits", schema, policy))
    }

    fn commit() -> Asked {
        let asked = CommitRequest { snapshot: Position::ZERO, writes: Vec::new() };
        Asked::Commit { manager: manager(), database: TableId(9), asked }
    }

    fn unknown(lane: LaneId, number: Option<(SessionId, u64)>) -> Completed {
        let outcome = Outcome::Unknown("the primary changed".into());
        let partition = PartitionId(2);
        Completed { ticket: TICKET, lane, partition, outcome, latency_us: 1, attempts: 1, number }
    }

    fn answer() -> Answer {
        Answer { lsn: Lsn(8), epoch: Epoch(2), policy: 1, copies: 1, body: Body::None }
    }

    /// The end of a commit as its caller has it, after its session was asked with this outcome.
    fn end(commits: &mut UnknownCommits, lane: LaneId, outcome: Outcome) -> Outcome {
        let number = (SessionId(Position::new(Term(1), Lsn(5))), 4);
        assert_eq!(commits.take(commit(), unknown(lane, Some(number))), None, "its session is asked first");
        assert!(commits.waits_for(TICKET) && commits.waiting() == 1);
        let doubt = commits.fresh.pop().expect("kept above");
        let (session, seq) = number;
        assert_eq!(doubt.numbered, Numbered { manager: manager(), session, seq });
        commits.asking.insert(Ticket(9), doubt);
        assert!(commits.waits_for(TICKET) && commits.answered(TICKET).is_none());
        let doubt = commits.answered(Ticket(9)).expect("asked above");
        commits.settle(doubt, outcome).1.outcome
    }

    #[test]
    fn pr361_a_session_is_asked_before_a_commit_is_unknown_and_again_before_the_next_transaction() {
        let mut commits = UnknownCommits::default();
        let alone = unknown(Client::BLOCKING, None);
        assert_eq!(commits.take(commit(), alone.clone()), Some(alone), "nobody could be asked");
        let own = Client::BLOCKING;
        let done = Outcome::Ok(answer());
        assert_eq!(end(&mut commits, own, done.clone()), done);
        let never = Outcome::Refused(Refusal::Changed, answer());
        assert_eq!(end(&mut commits, own, never.clone()), never);
        let late = Outcome::Failed(FailKind::TimedOut, "no answer".into());
        let unknown = unknown(own, None).outcome;
        let forgotten = Outcome::Failed(FailKind::TooOld, "the session is not known".into());
        assert_eq!(end(&mut commits, own, forgotten), unknown, "nobody will ever know");
        assert_eq!(end(&mut commits, LaneId(1), late.clone()), unknown, "nobody begins on that lane");
        assert!(commits.open.is_empty());
        assert_eq!(end(&mut commits, own, late), unknown);
        assert_eq!(commits.open.len(), 1);
        commits.resolve(never.clone());
        assert_eq!((commits.open.len(), commits.resolved.pop_front()), (0, Some(never)));
    }
}
