//! Reads of many rows, counts and digests: at one position, a bounded number of rows per turn, so that
//! neither other clients nor the node's signs of life wait for them.

use crate::answer::Answer;
use crate::output::ClientRef;
use crate::scope::Scope;
use crate::settings::Settings;
use std::collections::VecDeque;
use types::engine::{Engine, EngineError, Row, row_hash, space};
use types::{Lsn, Micros, ReadAt, Term};
use wire::{Body, Op, ReadLevel, Request, Status};

/// More at a time are not taken in by one replica.
const MAX_AGGREGATES: usize = 256;

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
pub(crate) struct AggregateScan {
    kind: Kind,
    to: ClientRef,
    request: Request,
    /// Where every slice of it reads.
    at: ReadAt,
    /// What `committed` was, or the snapshot: the position of the answer.
    lsn: Lsn,
    /// The term whose lease the answer rests on: the lease at the end vouches for the position at the
    /// beginning only if nobody else led in between. None for reads that any replica may answer.
    term: Option<Term>,
    /// The first key that is not looked at yet, and where the range ends.
    from: Vec<u8>,
    end: Vec<u8>,
    sum: u64,
    /// When the client stops waiting; zero: never.
    deadline: Micros,
}

/// An aggregate scan that is over, and what its client is told.
#[derive(Debug)]
pub(crate) struct Ended {
    pub to: ClientRef,
    pub request: Request,
    pub answer: Answer,
    /// What was found to be damaged.
    pub damage: Option<EngineError>,
}

impl AggregateScan {
    /// A scan of these rows that has read nothing yet; a digest is of the whole partition. `leading` is the
    /// term that this replica leads in.
    pub fn new(
        to: ClientRef,
        (request, scope): (Request, Scope),
        (at, lsn): (ReadAt, Lsn),
        leading: Option<Term>,
        now: Micros,
    ) -> AggregateScan {
        let (kind, from, end) = match &request.op {
            Op::Count { from, to, .. } => {
                let (from, end) = scope.range(from, to);
                (Kind::Count, from, end)
            }
            _ => (Kind::Digest, vec![space::SESSION], Vec::new()),
        };
        let deadline = match request.deadline_ms {
            0 => Micros::ZERO,
            ms => now + Micros::from_millis(ms),
        };
        let term = match request.read {
            ReadLevel::Primary => leading,
            ReadLevel::Any { .. } => None,
        };
        AggregateScan { kind, to, request, at, lsn, term, from, end, sum: 0, deadline }
    }

    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Why there will be no answer, if so: what was true of the replica when it was asked may have passed.
    fn void(&self, leading: Option<Term>, committed: Lsn, now: Micros) -> Option<Status> {
        if self.term.is_some() && self.term != leading {
            return Some(Status::NotYet("another primary led the partition while the rows were read".into()));
        }
        if committed < self.lsn {
            return Some(Status::NotYet(format!("this replica went back below LSN {}", self.lsn)));
        }
        let late = self.deadline > Micros::ZERO && now >= self.deadline;
        late.then(|| Status::NotYet("so many rows could not be read in time".into()))
    }

    fn ended(self, status: Status, body: Body) -> Ended {
        let answer = Answer::new(status, body).read_at(self.lsn);
        let answer = if self.term.is_some() { answer.leased() } else { answer };
        Ended { to: self.to, request: self.request, answer, damage: None }
    }

    /// It is over without an answer of its own.
    pub fn into_request(self) -> (ClientRef, Request) {
        (self.to, self.request)
    }
}

/// The aggregate scans of one replica. Their versions are kept for them.
///
/// Invariants (`validate`): no more than [`MAX_AGGREGATES`].
#[derive(Debug, Default)]
pub(crate) struct AggregateScans {
    /// The one that has waited longest is the first.
    waiting: VecDeque<AggregateScan>,
}

impl AggregateScans {
    /// True if none waits for its next turn.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The lowest position that one of them reads at.
    pub fn lowest(&self) -> Option<Lsn> {
        self.waiting.iter().map(|scan| scan.lsn).min()
    }

    /// True if no more are taken in.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_AGGREGATES
    }

    /// Takes a scan in, to be the next one.
    pub fn begin(&mut self, scan: AggregateScan) {
        assert!(!self.is_full(), "{MAX_AGGREGATES} aggregate scans are as many as there may be");
        self.waiting.push_front(scan);
    }

    /// The scan whose turn it is. Whoever takes it ends it or goes on with it ([`AggregateScans::go_on`]).
    pub fn next(&mut self) -> Option<AggregateScan> {
        self.waiting.pop_front()
    }

    /// Reads the scan's next slice, and keeps it unless it is over then.
    pub fn go_on(
        &mut self,
        engine: &dyn Engine,
        settings: &Settings,
        mut scan: AggregateScan,
        (leading, committed, now): (Option<Term>, Lsn, Micros),
    ) -> Result<(), Box<Ended>> {
        if let Some(status) = scan.void(leading, committed, now) {
            let (to, request) = scan.into_request();
            let answer = Answer::only(status).read_at(committed);
            return Err(Box::new(Ended { to, request, answer, damage: None }));
        }
        let (limit, bytes) = (settings.slice_rows, settings.slice_bytes);
        let rows = match engine.scan(&scan.from, &scan.end, scan.at, limit, bytes) {
            Ok(rows) => rows,
            // Its state was replaced by a copy meanwhile, or it cannot be read just now.
            Err(error @ (EngineError::SnapshotTooOld { .. } | EngineError::Later(_))) => {
                return Err(Box::new(scan.ended(Status::NotYet(error.to_string()), Body::None)));
            }
            Err(error) => {
                let reason = error.to_string();
                // Who only compares copies changes nothing: that one is damaged is for an operator to act on.
                let compares = matches!(scan.request.op, Op::DigestAt { .. });
                let ended = scan.ended(Status::Corrupt(reason), Body::None);
                return Err(Box::new(Ended { damage: (!compares).then_some(error), ..ended }));
            }
        };
        scan.sum = scan.sum.wrapping_add(scan.kind.of(&rows));
        let read: usize = rows.iter().map(|row| row.key.len() + row.value.len()).sum();
        match rows.last() {
            Some(last) if rows.len() >= limit || read >= bytes => {
                scan.from = [&last.key[..], &[0]].concat();
                self.waiting.push_back(scan);
                Ok(())
            }
            _ => {
                let sum = scan.sum;
                Err(Box::new(scan.ended(Status::Ok, Body::Number(sum))))
            }
        }
    }

    /// What must hold of them.
    pub fn validate(&self) -> Result<(), String> {
        if self.waiting.len() > MAX_AGGREGATES {
            return Err(format!("{} aggregate scans are more than {MAX_AGGREGATES}", self.waiting.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::When;
    use crate::fake::{FakeEngine, at};
    use bytes::Bytes;
    use types::Mutation;
    use wire::request::ReadSnapshot;

    fn count() -> Request {
        let op = Op::Count { from: Bytes::new(), to: Bytes::new(), at: ReadSnapshot::Newest };
        crate::fake::request(op)
    }

    fn scan(term: u64) -> AggregateScan {
        let to = ClientRef { connection: 1, request: 1 };
        AggregateScan::new(
            to,
            (count(), Scope::BARE),
            (ReadAt::Lsn(Lsn(3)), Lsn(3)),
            Some(Term(term)),
            Micros::ZERO,
        )
    }

    fn engine() -> FakeEngine {
        let mut engine = FakeEngine::new();
        for lsn in 1..=3u64 {
            let key = Scope::BARE.keys().row_key(&lsn.to_be_bytes());
            engine.execute(at(lsn), &[Mutation { key, value: Some(Bytes::from_static(b"row")) }]);
        }
        engine.publish(Lsn(3)).expect("in memory");
        engine
    }

    fn settings() -> Settings {
        Settings { slice_rows: 2, ..Settings::default() }
    }

    #[test]
    fn a_scan_takes_its_turns_and_ends_with_the_sum() {
        let (engine, settings) = (engine(), settings());
        let (mut scans, here) = (AggregateScans::default(), (Some(Term(1)), Lsn(3), Micros::ZERO));
        scans.begin(scan(1));
        assert_eq!(scans.lowest(), Some(Lsn(3)));
        let first = scans.next().expect("just begun");
        assert!(scans.go_on(&engine, &settings, first, here).is_ok(), "two of three rows are read");
        scans.validate().expect("valid");
        let second = scans.next().expect("it goes on");
        let ended = scans.go_on(&engine, &settings, second, here).expect_err("all rows are read");
        assert_eq!(ended.answer, Answer::new(Status::Ok, Body::Number(3)).read_at(Lsn(3)).leased());
        assert!(scans.is_empty());
    }

    #[test]
    fn f01_a_scan_of_another_term_a_lost_position_or_too_late_has_no_answer() {
        let (engine, settings) = (engine(), settings());
        let mut scans = AggregateScans::default();
        let late = Micros::from_millis(10);
        for here in [
            (Some(Term(2)), Lsn(3), Micros::ZERO),
            (None, Lsn(3), Micros::ZERO),
            (Some(Term(1)), Lsn(2), Micros::ZERO),
            (Some(Term(1)), Lsn(3), late),
        ] {
            let ended = scans.go_on(&engine, &settings, scan(1), here).expect_err("it is over");
            let answer = ended.answer;
            assert!(matches!(answer.status, Status::NotYet(_)) && answer.when == When::Now, "{here:?}");
        }
    }

    #[test]
    fn there_are_never_too_many() {
        let mut scans = AggregateScans::default();
        (0..MAX_AGGREGATES).for_each(|_| scans.begin(scan(1)));
        assert!(scans.is_full());
        scans.validate().expect("valid");
    }
}
