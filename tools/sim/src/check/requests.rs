//! R12: every request is answered at most once, and by whom.

use crate::check::staleness::AnyRead;
use crate::network::Conn;
use std::collections::BTreeMap;
use types::{PartitionId, PartitionRecord, Term};
use wire::job::JobState;
use wire::request::ReadSnapshot;
use wire::{Body, ManagerOp, Op, ReadLevel, Reply, Request, Status};

/// A request that a node has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Of this partition.
    pub partition: PartitionId,
    /// It may change something.
    pub writes: bool,
    /// What was asked makes an entry: its epoch fences the answer.
    pub fenced: bool,
    /// It is about turns at rows: nothing rests on the answer, whoever gives it.
    pub turn: bool,
    /// It is numbered in a session, or asks about what is: whatever is decided about it is an entry, as a
    /// refusal is that uses up the number of a commit (PR-361).
    pub numbered: bool,
    /// It ends a job: true, if that is aborted.
    pub ends_job: Option<bool>,
    /// It changes what tables a database has.
    pub changes_tables: bool,
    /// Any replica may answer, if it is fresh enough.
    pub any: Option<AnyRead>,
    /// The term of the replica that answered, once it has.
    pub term: Term,
}

impl Asked {
    /// True if the answer, of a partition with this record, is told when it is secured: what an aborted job
    /// has done (PR-82), and a change of tables under global transactions (PR-362). It must not be lost where
    /// acknowledgements may be.
    pub fn is_told_when_secured(&self, reply: &Reply, record: &PartitionRecord) -> bool {
        match (self.ends_job, &reply.body) {
            (Some(aborts), Body::Job(status)) => aborts || status.state != JobState::Committed,
            _ => self.changes_tables && record.is_global() && reply.status == Status::Ok,
        }
    }
}

/// Requests that are not answered yet.
#[derive(Debug, Default)]
pub struct Requests {
    open: BTreeMap<(Conn, u64), Asked>,
}

impl Requests {
    /// A node received a request at this time, virtual microseconds.
    pub fn received(&mut self, now: u64, conn: Conn, request: &Request) {
        let asked = Asked {
            partition: request.partition,
            writes: request.op.writes(),
            fenced: request.op.makes_entries(),
            turn: matches!(request.op, Op::Turn(_)),
            numbered: request.session.is_some()
                || matches!(request.op, Op::Manager(ManagerOp::Outcome { .. })),
            ends_job: match &request.op {
                Op::EndJob { abort, .. } => Some(*abort),
                _ => None,
            },
            changes_tables: matches!(request.op, Op::Transact { .. }),
            any: match request.read {
                ReadLevel::Any { max_lag_ms, .. } => {
                    let named = matches!(request.op.snapshot(), ReadSnapshot::At(_));
                    Some(AnyRead { received: now, max_lag_ms: if named { u64::MAX } else { max_lag_ms } })
                }
                ReadLevel::Primary => None,
            },
            term: Term::ZERO,
        };
        self.open.insert((conn, request.id), asked);
    }

    /// A request that is not answered yet.
    pub fn get(&self, conn: Conn, id: u64) -> Option<Asked> {
        self.open.get(&(conn, id)).copied()
    }

    /// A replica of this term has an answer.
    pub fn answered(&mut self, conn: Conn, id: u64, term: Term) {
        if let Some(asked) = self.open.get_mut(&(conn, id)) {
            asked.term = term;
        }
    }

    /// The answer leaves.
    pub fn take(&mut self, conn: Conn, id: u64) -> Option<Asked> {
        self.open.remove(&(conn, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{SessionId, TableId};
    use wire::Op;

    #[test]
    fn pr361_whatever_is_said_of_a_numbered_commit_is_an_entry() {
        let session = SessionId(types::Position::new(Term(1), types::Lsn(1)));
        let asked = |op| {
            let mut requests = Requests::default();
            requests.received(5, 1, &Request { id: 4, ..Request::new(TableId(1), 1, PartitionId(1), op) });
            let asked = requests.get(1, 4).expect("it is open");
            (asked.fenced, asked.numbered)
        };
        assert_eq!(asked(Op::Manager(ManagerOp::Outcome { session, seq: 3 })), (true, true));
        assert_eq!(asked(Op::Manager(ManagerOp::Thresholds)), (false, false), "it shows how things are");
    }

    #[test]
    fn pr362_a_change_of_tables_is_told_when_it_is_secured_under_global_transactions_alone() {
        let plain = crate::check::epochs::tests::record(1, 1, &[1, 2]);
        let mut global = plain.clone();
        global.unknown.insert(PartitionRecord::TRANSACTIONS.into(), types::config::GLOBAL.into());
        let op = Op::Transact { changes: Vec::new(), parts: Vec::new(), since: None };
        let mut requests = Requests::default();
        requests.received(5, 1, &Request { id: 4, ..Request::new(TableId(1), 1, PartitionId(64), op) });
        let asked = requests.get(1, 4).expect("it is open");
        let answer = |status: Status| Reply {
            id: 4,
            status,
            lsn: Default::default(),
            epoch: Default::default(),
            policy: 0,
            copies: 1,
            hint: None,
            body: Body::Affected(0),
        };
        assert!(asked.is_told_when_secured(&answer(Status::Ok), &global));
        assert!(!asked.is_told_when_secured(&answer(Status::Ok), &plain), "as its policy has it");
        assert!(!asked.is_told_when_secured(&answer(Status::NotPrimary), &global));
    }

    #[test]
    fn a_second_answer_finds_no_request() {
        let mut requests = Requests::default();
        let request = Request {
            id: 4,
            session: SessionId::NONE,
            seq: 0,
            confirmed: 0,
            deadline_ms: 0,
            table: TableId(1),
            schema: 1,
            partition: PartitionId(64),
            read: ReadLevel::Primary,
            trace: 0,
            op: Op::Digest,
        };
        requests.received(5, 1, &request);
        requests.answered(1, 4, Term(2));
        assert!(requests.get(1, 4).is_some());
        assert_eq!(requests.take(1, 4).map(|asked| asked.term), Some(Term(2)));
        assert_eq!(requests.take(1, 4), None);
    }
}
