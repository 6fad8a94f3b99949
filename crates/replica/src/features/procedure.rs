//! Calls of procedures at a primary: what is known of the procedures, the call that is under way, and who
//! waits behind it.
//!
//! A call sees what has been executed and nothing that comes while it runs: whatever else would write a
//! row of a table waits until it has ended (PR-190). Reads of what is committed do not wait, and neither
//! do other partitions: a call goes on in slices.

use crate::features::catalog::{shape_of, tables_at};
use crate::features::constraint::{ConstraintCheck, Guards, Tables};
use crate::output::ClientRef;
use bytes::Bytes;
use procedure::{Prepared, Rows, Running, Runtime};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use types::{
    CatalogTable, Engine, EngineError, Lsn, Micros, Mutation, ReadAt, Rules, TableId, TableState, Term,
};
use wire::{CallMark, Op, Request, Status};

/// So many steps a call takes before others have their turn: about a tenth of a millisecond.
pub(crate) const SLICE_STEPS: u64 = 300_000;
/// More requests do not wait behind a call.
const MAX_WAITING: usize = 4_096;
/// So many of those that have waited are served in a turn.
pub(crate) const SERVED_PER_TURN: usize = 64;

/// The rows of a partition as executed so far.
pub(crate) struct Executed<'a>(pub &'a dyn Engine);

impl Rows for Executed<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Ok(self.0.get(key, ReadAt::Applied)?.map(|(_, value)| value))
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        rows: usize,
        bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        let found = self.0.scan(from, to, ReadAt::Applied, rows, bytes)?;
        Ok(found.into_iter().map(|row| (row.key, row.value)).collect())
    }
}

/// A request that waits, or is under way.
#[derive(Debug)]
pub(crate) struct Waits {
    pub to: ClientRef,
    pub request: Request,
    /// When it came.
    since: Micros,
}

impl Waits {
    pub fn new(to: ClientRef, request: &Request, since: Micros) -> Waits {
        Waits { to, request: request.clone().detached(), since }
    }

    /// Why it is not done any more, if so.
    pub fn is_late(&self, now: Micros) -> Option<Status> {
        let ms = self.request.deadline_ms;
        let late = ms > 0 && now >= self.since + Micros::from_millis(ms);
        late.then(|| Status::NotYet("it waited for a call of a procedure until its time was over".into()))
    }

    /// With what is left of its time.
    pub fn into_request(mut self, now: Micros) -> (ClientRef, Request) {
        if self.request.deadline_ms > 0 {
            let waited = now.since(self.since).as_millis();
            self.request.deadline_ms = self.request.deadline_ms.saturating_sub(waited).max(1);
        }
        (self.to, self.request)
    }
}

/// The call that is under way.
pub(crate) struct UnderWay {
    pub asked: Waits,
    /// The term in which it has read what it has read.
    pub term: Term,
    pub running: Running,
    /// How it is shipped as a call, if it is: as long as it is in its first slice. What takes longer is
    /// shipped by what it came to, since a replica would do nothing else meanwhile.
    pub mark: Option<CallMark>,
}

/// The procedures of a partition as they were last looked up.
struct Known {
    /// The last change of tables that they show.
    edition: (Term, Lsn),
    tables: Tables,
    /// What the tables demand, where calls are made again.
    guards: Option<Guards>,
    /// Those that were called.
    prepared: BTreeMap<TableId, Result<Arc<Prepared>, String>>,
}

/// Calls of one partition.
///
/// Invariants (`validate`): nobody waits behind nothing for longer than a turn; no more than [`MAX_WAITING`].
#[derive(Default)]
pub(crate) struct Calls {
    known: Option<Known>,
    under_way: Option<Box<UnderWay>>,
    waiting: VecDeque<Waits>,
    /// The last turn was theirs: the next one is that of others, if there are such.
    had_turn: bool,
}

impl Calls {
    /// True if something is to be gone on with.
    pub fn are_pending(&self) -> bool {
        self.under_way.is_some() || !self.waiting.is_empty()
    }

    /// True if the turn is theirs: every other one, if there are `others` to be gone on with.
    pub fn take_turn(&mut self, others: bool) -> bool {
        self.had_turn = self.are_pending() && !(others && self.had_turn);
        self.had_turn
    }

    /// The call that is under way has run for so long.
    pub fn ran(&mut self, time: Micros) {
        if let Some(call) = &mut self.under_way {
            call.running.ran(time);
        }
    }

    /// True for a request that waits until the call that is under way has ended.
    pub fn hold(&self, request: &Request) -> bool {
        self.are_pending() && (request.op.makes_entries() || matches!(request.op, Op::Call(_)))
    }

    /// Takes a request in behind the call, or says why not.
    pub fn push(&mut self, asked: Waits) -> Option<Status> {
        assert!(self.are_pending(), "PR-190: a request waits for a call that there is not");
        if self.waiting.len() >= MAX_WAITING {
            return Some(Status::NotYet("too many requests wait for a call of a procedure".into()));
        }
        self.waiting.push_back(asked);
        None
    }

    /// The call that is under way. Whoever takes it ends it or puts it back.
    pub fn take(&mut self) -> Option<Box<UnderWay>> {
        self.under_way.take()
    }

    /// It goes on in the next turn.
    pub fn put(&mut self, call: Box<UnderWay>) {
        assert!(self.under_way.is_none(), "PR-190: two calls of one partition are under way");
        self.under_way = Some(call);
    }

    /// The request that has waited longest, unless a call is under way.
    pub fn next_waiting(&mut self) -> Option<Waits> {
        if self.under_way.is_some() { None } else { self.waiting.pop_front() }
    }

    /// Whoever waits, the call that is under way among them: the replica is about to go.
    pub fn dismiss(&mut self) -> Vec<Waits> {
        let under_way = self.under_way.take().map(|call| call.asked);
        under_way.into_iter().chain(std::mem::take(&mut self.waiting)).collect()
    }

    /// The procedure with this id, as the catalog of this edition has it; it is made ready when it is called
    /// first. None: there is none of this version. The inner error says why it cannot be called, as a
    /// sentence.
    pub fn prepared(
        &mut self,
        engine: &dyn Engine,
        (edition, runtime): ((Term, Lsn), &Runtime),
        (id, version): (TableId, u32),
    ) -> Result<Option<Result<Arc<Prepared>, String>>, EngineError> {
        if self.known.as_ref().is_none_or(|known| known.edition != edition) {
            let tables = tables_at(engine, ReadAt::Applied)?;
            self.known = Some(Known { edition, tables, guards: None, prepared: BTreeMap::new() });
        }
        let Some(Known { tables, prepared, .. }) = &mut self.known else { return Ok(None) };
        let is_callable = |(state, table): &&(TableState, CatalogTable)| {
            state.is_named() && table.schema.procedure().is_some() && table.schema.version() == version
        };
        let Some((_, table)) = tables.get(&id).filter(is_callable) else { return Ok(None) };
        let prepare = || runtime.prepare(table, &|name| shape_of(tables, name)).map(Arc::new);
        Ok(Some(prepared.entry(id).or_insert_with(prepare).clone()))
    }

    /// What a call of the procedure that was last looked up changes in the indexes of the tables'
    /// constraints. None: it is against one.
    pub fn derived(
        &mut self,
        engine: &dyn Engine,
        rules: Rules,
        mutations: &[Mutation],
    ) -> Result<Option<Vec<Mutation>>, EngineError> {
        let Some(Known { tables, guards, .. }) = &mut self.known else { return Ok(None) };
        let guards = guards.get_or_insert_with(|| Guards::of(tables));
        if guards.is_empty() {
            return Ok(Some(Vec::new()));
        }
        Ok(match guards.check(engine, rules, mutations)? {
            ConstraintCheck::Fits(changes) => Some(changes),
            ConstraintCheck::Unindexable | ConstraintCheck::Violates(_) => None,
        })
    }

    /// What must hold of them.
    pub fn validate(&self) -> Result<(), String> {
        match self.waiting.len() > MAX_WAITING {
            true => Err(format!("{} requests behind a call are more than {MAX_WAITING}", self.waiting.len())),
            false => Ok(()),
        }
    }
}
