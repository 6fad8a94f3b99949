//! A call that has not ended.

use crate::backoff::Backoff;
use crate::call::{Call, FailKind, LaneId, Ticket};
use types::{Micros, NodeId, SessionId};
use wire::commit::ParentRow;
use wire::{Message, Op, Request, RowOp, TableChange, TurnOp};

/// What kind of call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Opens a session; asked by the core itself.
    Open,
    /// Has a number in a session, or waits for one.
    Write,
    /// Has none.
    Read,
}

/// An attempt that was sent and not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Flight {
    pub node: NodeId,
    pub since: Micros,
}

/// How many times as long as for other calls the answer to a count or a digest is waited for.
const AGGREGATE_PATIENCE: u64 = 30;

/// A call with everything its retries need. The message is kept as it is sent, so that no attempt copies it.
#[derive(Debug)]
pub(super) struct Pending {
    pub lane: LaneId,
    pub kind: Kind,
    /// Only this node may answer.
    pub node: Option<NodeId>,
    /// Always a request.
    pub message: Message,
    pub submitted: Micros,
    pub deadline: Option<Micros>,
    pub attempts: u32,
    /// The newest attempt, unless it was answered.
    pub flight: Option<Flight>,
    /// To be sent at the next occasion. Of writes their session knows.
    pub to_send: bool,
    /// It is in its session's limbo.
    pub in_limbo: bool,
    /// Attempts up to this request id were made under a number that the call has lost.
    pub stale_id: u64,
    /// An attempt before the newest was never answered, or a primary that had one stepped down: so the write
    /// may have been done.
    pub maybe_done: bool,
    /// Since when refusals that may pass were the only answers, and of which kind the last was.
    pub soft: Option<(Micros, FailKind)>,
    /// The last refusal or failure, for the sentence about a missed deadline.
    pub last_word: String,
    /// For reads, which have no session to keep these.
    pub backoff: Backoff,
    pub turn: u32,
    pub retry_at: Option<Micros>,
}

impl Pending {
    pub fn new(now: Micros, lane: LaneId, kind: Kind, call: Call) -> Pending {
        let deadline = (call.deadline > Micros::ZERO).then(|| now + call.deadline);
        let request = Request {
            read: call.read,
            trace: call.trace,
            ..Request::new(call.table, call.schema, call.partition, call.op)
        };
        Pending {
            lane,
            kind,
            node: call.node,
            message: Message::Request(request),
            submitted: now,
            deadline,
            attempts: 0,
            flight: None,
            to_send: true,
            in_limbo: false,
            stale_id: 0,
            maybe_done: false,
            soft: None,
            last_word: String::new(),
            backoff: Backoff::default(),
            turn: 0,
            retry_at: None,
        }
    }

    /// True if its newest attempt has had no answer for too long. A count or a digest of many rows may take
    /// its time, and would begin anew each time: it is sent again when its connection ends or another node
    /// leads, which is heard of all the same. A turn is waited for as long as was asked.
    pub fn is_silent(&self, now: Micros, timeout: Micros) -> bool {
        let patience = match &self.request().op {
            Op::Count { .. } | Op::Digest | Op::DigestAt { .. } => Micros(timeout.0 * AGGREGATE_PATIENCE),
            Op::Turn(TurnOp::Ask { wait_ms, .. }) => timeout + Micros::from_millis(u64::from(*wait_ms)),
            _ => timeout,
        };
        self.flight.is_some_and(|flight| flight.since + patience <= now)
    }

    pub fn request(&self) -> &Request {
        let Message::Request(request) = &self.message else { unreachable!("a pending call is a request") };
        request
    }

    pub fn request_mut(&mut self) -> &mut Request {
        let Message::Request(request) = &mut self.message else {
            unreachable!("a pending call is a request")
        };
        request
    }

    /// What is wrong with the call, before it gets a number: a refusal after that would leave a hole.
    pub fn check(&self) -> Option<String> {
        let request = self.request();
        if self.kind == Kind::Write && matches!(request.op, Op::OpenSession) {
            return Some("sessions are opened by the client itself".into());
        }
        if self.kind == Kind::Write && self.node.is_some() {
            return Some("a write goes to the primary, not to a chosen node".into());
        }
        if let Some(bytes) = written(&request.op) {
            // The cap of a request's frame, less room for its envelope.
            let cap = Message::cap(self.message.number()).unwrap_or(0).saturating_sub(4096);
            if bytes > cap {
                return Some(format!("a write of {bytes} bytes is over the limit of {cap}"));
            }
        }
        self.message.validate().err()
    }

    /// Another refusal that may pass: since when there has been nothing else.
    pub fn soft_for(&mut self, now: Micros, kind: FailKind) -> Micros {
        let since = self.soft.map_or(now, |(since, _)| since);
        self.soft = Some((since, kind));
        now.since(since)
    }

    /// True if no attempt can have done anything.
    pub fn surely_not_done(&self) -> bool {
        !self.maybe_done && self.flight.is_none()
    }

    /// Waits for a number again.
    pub fn forget_number(&mut self) {
        self.stale_id = self.request().id;
        let request = self.request_mut();
        (request.session, request.seq, request.confirmed) = (SessionId::NONE, 0, 0);
    }

    /// The unanswered attempt, if any, will not be answered: its connection is gone.
    pub fn flight_lost(&mut self) {
        if self.flight.take().is_some() {
            self.maybe_done = true;
        }
    }

    /// Makes the next attempt.
    pub fn launch(&mut self, now: Micros, ticket: Ticket, node: NodeId) {
        self.flight_lost();
        self.attempts += 1;
        self.to_send = false;
        self.flight = Some(Flight { node, since: now });
        let id = request_id(ticket, self.attempts);
        let left = self.deadline.map_or(0, |deadline| deadline.since(now).as_millis().max(1));
        let request = self.request_mut();
        request.id = id;
        request.deadline_ms = left;
    }

    /// True if this request id is the newest attempt's.
    pub fn is_newest(&self, id: u64) -> bool {
        id == self.request().id
    }
}

/// Request ids name the call and the attempt, so that a late answer to an earlier attempt is known as such.
pub(super) fn request_id(ticket: Ticket, attempt: u32) -> u64 {
    ticket.0 << 16 | u64::from(attempt & 0xffff)
}

/// The call of a request id.
pub(super) fn ticket_of(id: u64) -> Ticket {
    Ticket(id >> 16)
}
/// About how many bytes a write sends.
fn written(op: &Op) -> Option<usize> {
    let row = |op: &RowOp| op.key().len() + op.row().map_or(0, |row| row.len()) + 16;
    let change = |change: &TableChange| match change {
        TableChange::Create(text) | TableChange::Alter { to: text, .. } => text.0.len() + 16,
        TableChange::Drop { .. } => 16,
    };
    match op {
        Op::Write { ops, .. } => Some(ops.iter().map(row).sum()),
        Op::Transact { changes, parts, .. } => {
            let rows: usize = parts.iter().flat_map(|part| &part.ops).map(row).sum();
            Some(rows + 16 * parts.len() + changes.iter().map(change).sum::<usize>())
        }
        Op::Manager(asked) => {
            let commit = asked.commit()?;
            let parts = commit.writes.iter().flat_map(|writes| &writes.parts);
            let rows: usize = parts.flat_map(|part| &part.ops).map(row).sum();
            let parents: usize = asked.parents().iter().map(ParentRow::bytes).sum();
            Some(rows + parents + 32 * commit.writes.len())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{PartitionId, TableId};
    use wire::TurnHolder;

    #[test]
    fn a_turn_is_waited_for_as_long_as_was_asked_and_then_as_long_as_anything_else() {
        let (timeout, who) = (Micros::from_millis(2_000), TurnHolder { gateway: 1, transaction: 1 });
        let is_silent = |ms: u64| {
            let op = Op::Turn(TurnOp::Ask { who, key: "k".into(), wait_ms: 3_000 });
            let call = Call::new(TableId(1), 1, PartitionId(64), op);
            let mut pending = Pending::new(Micros::ZERO, LaneId(0), Kind::Read, call);
            pending.launch(Micros::ZERO, Ticket(1), NodeId(1));
            pending.is_silent(Micros::from_millis(ms), timeout)
        };
        assert!(!is_silent(2_000) && !is_silent(4_999) && is_silent(5_000));
    }
}
