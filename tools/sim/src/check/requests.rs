//! R12: every request is answered at most once, and by whom.

use crate::check::staleness::AnyRead;
use crate::network::Conn;
use std::collections::BTreeMap;
use types::{PartitionId, Term};
use wire::request::ReadSnapshot;
use wire::{Op, ReadLevel, Request};

/// A request that a node has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Of this partition.
    pub partition: PartitionId,
    /// It may change something.
    pub writes: bool,
    /// What was asked makes an entry: its epoch fences the answer.
    pub fenced: bool,
    /// It is numbered in a session: whatever is decided about it is an entry.
    pub numbered: bool,
    /// It ends a job: true, if that is aborted.
    pub ends_job: Option<bool>,
    /// Any replica may answer, if it is fresh enough.
    pub any: Option<AnyRead>,
    /// The term of the replica that answered, once it has.
    pub term: Term,
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
            numbered: request.session.is_some(),
            ends_job: match &request.op {
                Op::EndJob { abort, .. } => Some(*abort),
                _ => None,
            },
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
