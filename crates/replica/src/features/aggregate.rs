//! Reads of many rows, counts and digests: at one position, a bounded number of rows per turn, so that neither other clients
//! nor the node's signs of life wait for them.

use crate::output::ClientRef;
use crate::replica::{Ctx, Replica, Role};
use crate::session::row_key;
use std::collections::VecDeque;
use types::engine::{EngineError, Row, row_hash, space};
use types::{Lsn, Micros, ReadAt, Term};
use wire::{Body, Op, ReadLevel, Request, Status};

/// More at a time are not taken in by one replica.
const MOST: usize = 256;

/// What is found out of each row; the findings add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Count,
    Digest,
}

impl Kind {
    fn of(self, rows: &[Row]) -> u64 {
        match self {
            Kind::Count => rows.len() as u64,
            Kind::Digest => rows.iter().fold(0, |sum, row| sum.wrapping_add(row_hash(row))),
        }
    }
}

/// A read of many rows that is under way.
#[derive(Debug)]
struct AggregateScan {
    kind: Kind,
    to: ClientRef,
    request: Request,
    /// Where every slice of it reads.
    at: ReadAt,
    /// What `committed` was, or the snapshot: the position of the answer.
    lsn: Lsn,
    /// The term whose lease the answer rests on: the lease at the end vouches for the position at the beginning only if
    /// nobody else led in between. None for reads that any replica may answer.
    term: Option<Term>,
    /// The first key that is not looked at yet, and where the range ends.
    from: Vec<u8>,
    end: Vec<u8>,
    sum: u64,
    /// When the client stops waiting; zero: never.
    deadline: Micros,
}

/// The aggregate scans of one replica. Their versions are kept for them.
#[derive(Debug, Default)]
pub(crate) struct AggregateScans(VecDeque<AggregateScan>);

impl AggregateScans {
    /// The lowest position that one of them reads at.
    pub fn lowest(&self) -> Option<Lsn> {
        self.0.iter().map(|aggregate| aggregate.lsn).min()
    }
}

impl Replica {
    /// True if a read of many rows waits for its next turn.
    pub(crate) fn aggregates(&self) -> bool {
        !self.readers.aggregates.0.is_empty()
    }

    /// Takes a count or a digest in; few rows are answered at once. The request has passed the checks of every read.
    pub(crate) fn start_aggregate(
        &mut self,
        ctx: &mut Ctx,
        to: ClientRef,
        request: Request,
        (at, lsn): (ReadAt, Lsn),
    ) {
        let (kind, from, end) = match &request.op {
            Op::Count { from, to, .. } if to.is_empty() => {
                (Kind::Count, row_key(from).to_vec(), vec![space::ROW + 1])
            }
            Op::Count { from, to, .. } => (Kind::Count, row_key(from).to_vec(), row_key(to).to_vec()),
            _ => (Kind::Digest, vec![space::SESSION], Vec::new()),
        };
        if self.readers.aggregates.0.len() >= MOST {
            let status = Status::NotYet("too many counts of this partition are under way".into());
            return self.answer(ctx, to, &request, status, Body::None, None);
        }
        let deadline = match request.deadline_ms {
            0 => Micros::ZERO,
            ms => ctx.now.mono + Micros::from_millis(ms),
        };
        let term = match request.read {
            ReadLevel::Primary => self.term(),
            ReadLevel::Any { .. } => None,
        };
        self.slice(ctx, AggregateScan { kind, to, request, at, lsn, term, from, end, sum: 0, deadline });
    }

    /// Goes on with the one that has waited longest, for one slice.
    pub(crate) fn aggregate(&mut self, ctx: &mut Ctx) {
        let Some(aggregate) = self.readers.aggregates.0.pop_front() else { return };
        match self.tainted(ctx, &aggregate) {
            Some(status) => self.answer(ctx, aggregate.to, &aggregate.request, status, Body::None, None),
            None => self.slice(ctx, aggregate),
        }
    }

    /// The replica is about to go: whoever asked for a count here asks somebody else.
    pub(crate) fn dismiss(&mut self, ctx: &mut Ctx) {
        self.step_down(ctx, "the partition is not on this node any more");
        for aggregate in std::mem::take(&mut self.readers.aggregates.0) {
            self.answer(ctx, aggregate.to, &aggregate.request, Status::NotPrimary, Body::None, None);
        }
    }

    fn term(&self) -> Option<Term> {
        match &self.role {
            Role::Leader(leader) => Some(leader.term),
            _ => None,
        }
    }

    /// Why there will be no answer, if so: what was true of this replica when it was asked may have passed.
    fn tainted(&self, ctx: &Ctx, aggregate: &AggregateScan) -> Option<Status> {
        let any = matches!(aggregate.request.read, ReadLevel::Any { .. });
        if let Some(status) = self.not_here(&aggregate.request, any) {
            return Some(status);
        }
        if aggregate.term.is_some() && aggregate.term != self.term() {
            return Some(Status::NotYet("another primary led the partition while the rows were read".into()));
        }
        if self.marks.committed() < aggregate.lsn {
            return Some(Status::NotYet(format!("this replica went back below LSN {}", aggregate.lsn)));
        }
        let late = aggregate.deadline > Micros::ZERO && ctx.now.mono >= aggregate.deadline;
        late.then(|| Status::NotYet("so many rows could not be read in time".into()))
    }

    fn slice(&mut self, ctx: &mut Ctx, mut aggregate: AggregateScan) {
        let (limit, bytes) = (ctx.settings.slice_rows, ctx.settings.slice_bytes);
        let (status, body) =
            match self.engine.scan(&aggregate.from, &aggregate.end, aggregate.at, limit, bytes) {
                Ok(rows) => {
                    aggregate.sum = aggregate.sum.wrapping_add(aggregate.kind.of(&rows));
                    let read: usize = rows.iter().map(|row| row.key.len() + row.value.len()).sum();
                    if let Some(last) = rows.last()
                        && (rows.len() >= limit || read >= bytes)
                    {
                        aggregate.from = last.key.to_vec();
                        aggregate.from.push(0);
                        return self.readers.aggregates.0.push_back(aggregate);
                    }
                    (Status::Ok, Body::Number(aggregate.sum))
                }
                // Its state was replaced by a copy meanwhile, or it cannot be read just now.
                Err(error @ (EngineError::SnapshotTooOld { .. } | EngineError::Later(_))) => {
                    (Status::NotYet(error.to_string()), Body::None)
                }
                Err(error) => {
                    let reason = error.to_string();
                    // Who only compares copies changes nothing: that one is damaged is for an operator to act on.
                    if !matches!(aggregate.request.op, Op::DigestAt { .. }) {
                        self.fail(ctx, reason.clone());
                    }
                    (Status::Corrupt(reason), Body::None)
                }
            };
        // As with every read: the data were read first, the clock is compared when the bytes leave (F01, PR-03).
        let valid_until = aggregate.term.and_then(|_| self.lease_until(ctx));
        self.answer_as_of(ctx, aggregate.to, &aggregate.request, (status, body), aggregate.lsn, valid_until);
    }
}
