//! Writes of so many rows that to look all of them up would take longer than a node may be silent. Their
//! rows are read ahead ([`Engine::read_ahead`]), a bounded number per turn, with what constraints look up for
//! them, and other clients are served in between; then they are done in one piece, like all writes.

use crate::answer::Answer;
use crate::features::Features;
use crate::output::ClientRef;
use crate::settings::Settings;
use bytes::Bytes;
use std::collections::VecDeque;
use types::{Engine, EngineError, KeySpace, Micros, Mutation, PartitionRecord, Term};
use wire::{Op, Request, RowOp, Status};

/// So many rows of a scan take as long as one that is looked up by itself.
const SCANNED_PER_LOOKUP: usize = 4;

/// More at a time are not taken in by one replica.
const MAX_WAITING: usize = 16;

/// What it takes to look up the rows of a write.
pub(crate) struct LookUps<'a> {
    features: &'a mut Features,
    engine: &'a mut dyn Engine,
    record: &'a PartitionRecord,
    leading: Option<Term>,
    /// So many rows may be looked up in a turn.
    per_turn: usize,
}

impl<'a> LookUps<'a> {
    /// Of a partition with this record. `leading`: the term that the replica leads in.
    pub fn new(
        features: &'a mut Features,
        engine: &'a mut dyn Engine,
        (record, leading): (&'a PartitionRecord, Option<Term>),
        settings: &Settings,
    ) -> LookUps<'a> {
        let per_turn = (settings.slice_rows / SCANNED_PER_LOOKUP).max(1);
        LookUps { features, engine, record, leading, per_turn }
    }

    /// True if what a row was before counts, for its indexes or constraints.
    fn old(&mut self) -> Result<bool, EngineError> {
        self.features.look_up_what_changes(self.engine, (self.record, self.leading))
    }

    /// Reads these rows, and what is looked up for constraints when they are written.
    fn read(&mut self, rows: &[(Bytes, &RowOp)]) -> Result<(), EngineError> {
        let keys: Vec<Bytes> = rows.iter().map(|(key, _)| key.clone()).collect();
        self.engine.read_ahead(&keys)?;
        let written = rows.iter().filter(|(_, op)| !matches!(op, RowOp::Keep { .. }));
        let mutation = |(key, op): &(Bytes, &RowOp)| Mutation { key: key.clone(), value: op.row().cloned() };
        let mutations: Vec<Mutation> = written.map(mutation).collect();
        self.features.look_ahead(self.engine, (self.record, self.leading), &mutations)
    }
}

/// A write whose rows are read ahead, or one that follows it in its session.
#[derive(Debug)]
pub(crate) struct LargeWrite {
    to: ClientRef,
    request: Request,
    /// So many of its rows have been read.
    read: usize,
    /// When it came.
    since: Micros,
}

/// What becomes of a large write in a turn.
#[derive(Debug)]
pub(crate) enum Step {
    /// There are more rows to be read.
    More,
    /// It can be done.
    Ready,
}

/// How many rows a request names.
fn rows_of(op: &Op) -> usize {
    match op {
        Op::Write { ops, .. } => ops.len(),
        Op::Transact { parts, .. } => parts.iter().map(|part| part.ops.len()).sum(),
        Op::Job { records, .. } => records.len(),
        _ => 0,
    }
}

/// The rows that a request looks up before it changes them, and what it does with them. A put looks nothing
/// up, unless what a row was before counts (`old`), for its indexes or constraints.
fn looked_up<'a>(
    request: &'a Request,
    record: &'a PartitionRecord,
    old: bool,
) -> impl Iterator<Item = (Bytes, &'a RowOp)> + use<'a> {
    let own = if record.is_of_database() { KeySpace::Table(request.table) } else { KeySpace::Bare };
    let (ops, parts, records) = match &request.op {
        Op::Write { ops, .. } => (&ops[..], &[][..], &[][..]),
        Op::Transact { parts, .. } => (&[][..], &parts[..], &[][..]),
        Op::Job { records, .. } => (&[][..], &[][..], &records[..]),
        _ => (&[][..], &[][..], &[][..]),
    };
    let of_parts = parts.iter().flat_map(|part| {
        let keys = KeySpace::Table(part.table);
        part.ops.iter().map(move |op| (keys, op))
    });
    let of_job = records.iter().map(move |record| (own, &record.op));
    let of_write = ops.iter().map(move |op| (own, op));
    let all = of_write.chain(of_parts).chain(of_job);
    let looks = move |op: &RowOp| old || !matches!(op, RowOp::Put { .. });
    all.filter(move |(_, op)| looks(op)).map(|(keys, op)| (keys.row_key(op.key()), op))
}

impl LargeWrite {
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Why it is not done any more, if so.
    pub fn is_late(&self, now: Micros) -> Option<Status> {
        let ms = self.request.deadline_ms;
        let late = ms > 0 && now >= self.since + Micros::from_millis(ms);
        late.then(|| Status::NotYet("so many rows could not be looked up in time".into()))
    }

    /// Reads as many of its rows ahead as may be looked up in a turn.
    pub fn go_on(&mut self, mut looks: LookUps) -> Result<Step, EngineError> {
        let old = looks.old()?;
        let rows = looked_up(&self.request, looks.record, old).skip(self.read);
        let rows: Vec<(Bytes, &RowOp)> = rows.take(looks.per_turn).collect();
        if rows.is_empty() {
            return Ok(Step::Ready);
        }
        self.read += rows.len();
        looks.read(&rows)?;
        Ok(Step::More)
    }

    /// It is over here, one way or the other. What is left of its time is in the request.
    pub fn into_request(mut self, now: Micros) -> (ClientRef, Request) {
        if self.request.deadline_ms > 0 {
            let waited = now.since(self.since).as_millis();
            self.request.deadline_ms = self.request.deadline_ms.saturating_sub(waited).max(1);
        }
        (self.to, self.request)
    }
}

/// The large writes of one replica, in the order in which they came.
///
/// Invariants (`validate`): no more than [`MAX_WAITING`].
#[derive(Debug, Default)]
pub(crate) struct LargeWrites {
    waiting: VecDeque<LargeWrite>,
}

impl LargeWrites {
    /// True if none is waiting.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True for a request that has to wait here: it looks up more rows than may be read in a turn, or follows
    /// such a one in its session.
    pub fn takes(&self, request: &Request, looks: Option<LookUps>) -> Result<bool, EngineError> {
        let Some(mut looks) = looks.filter(|looks| self.may_take(request, looks.per_turn)) else {
            return Ok(false);
        };
        let same = |large: &LargeWrite| large.request.session == request.session;
        let follows = request.session.is_some() && self.waiting.iter().any(same);
        let old = looks.old()?;
        Ok(follows || looked_up(request, looks.record, old).nth(looks.per_turn).is_some())
    }

    /// False if it is plain that such a request need not wait here: almost always.
    fn may_take(&self, request: &Request, rows: usize) -> bool {
        request.op.writes() && (!self.waiting.is_empty() || rows_of(&request.op) > rows)
    }

    /// Takes a request in, or says why not.
    pub fn push(&mut self, to: ClientRef, request: &Request, now: Micros) -> Option<Answer> {
        assert!(request.op.writes(), "LE-13: only writes wait for their turn");
        if self.waiting.len() >= MAX_WAITING {
            return Some(Answer::not_yet("too many large writes of this partition are under way"));
        }
        self.waiting.push_back(LargeWrite { to, request: request.clone().detached(), read: 0, since: now });
        None
    }

    /// The one that came first. Whoever takes it ends it or puts it back.
    pub fn next(&mut self) -> Option<LargeWrite> {
        self.waiting.pop_front()
    }

    /// It goes on in the next turn.
    pub fn put_back(&mut self, large: LargeWrite) {
        assert!(large.read > 0, "LE-13: a large write goes on of which no row was read");
        assert!(self.waiting.len() < MAX_WAITING, "LE-13: more large writes go on than were waiting");
        self.waiting.push_front(large);
    }

    /// What must hold of them.
    pub fn validate(&self) -> Result<(), String> {
        match self.waiting.len() > MAX_WAITING {
            true => Err(format!("{} large writes are more than {MAX_WAITING}", self.waiting.len())),
            false => Ok(()),
        }
    }
}
