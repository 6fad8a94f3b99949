//! Requests that make an entry: writes, sessions, records of jobs, bulk loads; and the steps of indexes.

use crate::answer::AckCondition;
use crate::answer::Answer;
use crate::data::Data;
use crate::features::bulk::{NotStaged, is_of_table, loaded_at, loading};
use crate::features::catalog::{self, Refused};
use crate::features::commits::KnownCommits;
use crate::features::index::{KnownIndexes, definitions_at};
use crate::features::job::{self, JobWork};
use crate::features::procedure::Calls;
use crate::features::tend::KnownCatalog;
use crate::output::Output;
use crate::rows::{Evaluated, Since, evaluate, parts_hash, request_hash};
use crate::scope::{Scope, held};
use crate::serve::too_few;
use crate::session::{self, Seen};
use crate::settings::Settings;
use crate::unfit::Unfit;
use bytes::Bytes;
use std::collections::BTreeSet;
use types::bulk::load_key;
use types::index::{Definition, IndexState, Wanted};
use types::{
    CatalogTable, EngineError, JobId, KeySpace, LoadId, Lsn, Member, Mutation, Now, PartitionRecord, Policy,
    Position, ReadAt, Rules, TableId, Term,
};
use wire::bulk::LoadMark;
use wire::entry::Kind;
use wire::request::FeedMark;
use wire::{Body, Effects, Entry, Op, Outcome, Request, RowOp, Status, TableChange, TablePart};

/// What the entries of a serving primary are made with.
pub(crate) struct Writing<'a> {
    pub record: &'a PartitionRecord,
    pub term: Term,
    pub rules: Rules,
    pub data: &'a mut Data,
    pub indexes: &'a mut KnownIndexes,
    pub catalog: &'a mut KnownCatalog,
    pub commits: &'a mut KnownCommits,
    pub calls: &'a mut Calls,
    /// Calls are shipped as such, as far as they can be.
    pub ships_calls: bool,
    /// How many replies wait.
    pub waiting: usize,
    pub now: Now,
    pub settings: &'a Settings,
    pub out: &'a mut Vec<Output>,
}

impl Writing<'_> {
    /// Why no entry is made now, if so: too few copies, or too much waits for slow backups: new writes wait
    /// at the client (F19). Replies are counted beside the bytes: those to repeated requests and refusals
    /// wait without an entry of their own.
    pub(super) fn refuses(&self) -> Option<Status> {
        if let Some(status) = too_few(self.record) {
            return Some(status);
        }
        if self.waiting >= self.settings.waiting_replies {
            let why = "as many replies wait for the backups as this partition may keep";
            return Some(Status::NotYet(why.into()));
        }
        let end = self.data.log.end().lsn;
        let waiting = end.0 - self.data.marks.committed().0.min(end.0);
        if waiting == 0 || self.data.log.tail().bytes() < self.settings.uncommitted_bytes {
            return None;
        }
        let why = "the backups are behind by more than this partition may hold back";
        Some(Status::NotYet(why.into()))
    }

    /// Where the request stands in its session: `None` to go on; else what was seen of it.
    pub(super) fn check_session(
        &mut self,
        request: &Request,
        hash: u64,
    ) -> Result<Option<Answer>, EngineError> {
        let Data { engine, sessions, .. } = &mut *self.data;
        let seen = session::check(engine.as_ref(), sessions, self.rules, request, hash)?;
        Ok(seen.map(|Seen { status, body, at }| Answer { entry: at, ..Answer::new(status, body) }))
    }

    /// An answer that was read from a session's row leaves when every entry that the row shows is committed
    /// (PR-22).
    pub(super) fn seen(&self, answer: Answer) -> Answer {
        if !self.rules.duplicates_wait() {
            return answer;
        }
        let repeated = matches!(answer.status, Status::Ok | Status::Refused(_));
        let told = if repeated { self.told() } else { AckCondition::Seen };
        answer.covered(self.data.log.end().lsn, told)
    }

    /// What the answer of an entry waits for. What is changed of tables in a partition of global transactions
    /// is in no log of the manager, and a failover does not wait for a primary that alone has it (PR-291): it
    /// is told when it is secured (PR-362).
    fn told(&self) -> AckCondition {
        if self.record.is_global() { AckCondition::Secured } else { AckCondition::Entry }
    }

    pub(super) fn log_effects(
        &mut self,
        request: &Request,
        effects: Effects,
    ) -> Result<Position, EngineError> {
        let header = self.data.next_header(self.term, Kind::Rows, self.now.wall_ms);
        self.data.log_effects(header, request, (effects, None), self.out)
    }

    /// [`Op::Write`].
    pub fn write(
        &mut self,
        request: &Request,
        ops: &[RowOp],
        (mark, since): (Option<FeedMark>, Option<Position>),
    ) -> Result<Answer, EngineError> {
        if let Some(status) = self.refuses() {
            return Ok(Answer::only(status));
        }
        let table = self.record.is_of_database().then_some(request.table);
        let hash = request_hash(table, ops, mark, since);
        if let Some(answer) = self.check_session(request, hash)? {
            return Ok(self.seen(answer));
        }
        if let Some(status) = loading(self.data.engine.as_ref()) {
            return Ok(Answer::only(status));
        }
        let engine = self.data.engine.as_ref();
        if let Some(why) = catalog::names_a_table(self.record, engine, request.table)? {
            return Ok(Answer::only(Status::Bad(why)));
        }
        let scope = Scope::of_writes(engine, (self.record, self.rules), (request.table, request.schema))?;
        let Ok(scope) = scope else { return self.log_write(request, hash, refused(Outcome::Stale)) };
        if let Some(fault) = scope.fault(ops) {
            return Ok(Answer::only(Status::Bad(fault)));
        }
        let evaluated = match since.is_some_and(|since| !self.data.on_history(since)) {
            true => refused(Outcome::Changed),
            false => evaluate(engine, self.rules, &scope, ops, (mark, Since::All(since)))?,
        };
        self.log_write(request, hash, evaluated)
    }

    /// [`Op::Transact`].
    pub fn transact(
        &mut self,
        request: &Request,
        (changes, parts): (&[TableChange], &[TablePart]),
        since: Option<Position>,
    ) -> Result<Answer, EngineError> {
        if let Some(status) = self.refuses() {
            return Ok(Answer::only(status));
        }
        let hash = parts_hash(changes, parts, since);
        if let Some(answer) = self.check_session(request, hash)? {
            return Ok(self.seen(answer));
        }
        if let Some(status) = loading(self.data.engine.as_ref()) {
            return Ok(Answer::only(status));
        }
        let read =
            catalog::read_changes(changes).and_then(|read| catalog::with_indexes_to_build(self.record, read));
        let read = match read {
            Ok(read) => read,
            Err(fault) => return Ok(Answer::only(Status::Bad(fault))),
        };
        if let Some(fault) = catalog::fault_of_global(self.record, &read) {
            return Ok(Answer::only(Status::Bad(fault)));
        }
        let engine = self.data.engine.as_ref();
        let seen: BTreeSet<Position> =
            parts.iter().flat_map(|part| &part.seen).copied().chain(since).collect();
        let evaluated = match seen.into_iter().any(|since| !self.data.on_history(since)) {
            true => Err(Refused::Outcome(Outcome::Changed)),
            false => {
                let rules = (self.rules, &self.settings.programs);
                catalog::evaluate_parts(engine, self.record, rules, (&read, parts), since)?
            }
        };
        let evaluated = match evaluated {
            Ok(evaluated) => evaluated,
            Err(Refused::Outcome(outcome)) => refused(outcome),
            Err(Refused::Bad(fault)) => return Ok(Answer::only(Status::Bad(fault))),
        };
        let answer = self.log_write(request, hash, evaluated)?;
        if let Some(at) = answer.entry.filter(|_| !changes.is_empty()) {
            self.catalog.changed_at(at);
        }
        Ok(answer)
    }

    /// Logs what a write comes to, and answers it when that is committed. What is refused outside of a
    /// session makes no entry.
    pub(super) fn log_write(
        &mut self,
        request: &Request,
        hash: u64,
        evaluated: Evaluated,
    ) -> Result<Answer, EngineError> {
        let evaluated = self.with_derived(evaluated)?;
        self.log_evaluated(request, hash, evaluated)
    }

    /// With what changes in indexes, or refused by what the tables demand.
    pub(super) fn with_derived(&mut self, evaluated: Evaluated) -> Result<Evaluated, EngineError> {
        let (engine, leading) = (self.data.engine.as_ref(), Some(self.term));
        let evaluated = match self.record.is_of_database() {
            true => self.catalog.with_constraints(engine, (self.term, self.rules), evaluated)?,
            false => evaluated,
        };
        self.indexes.with_index_rows(engine, leading, self.rules, evaluated)
    }

    pub(super) fn log_evaluated(
        &mut self,
        request: &Request,
        hash: u64,
        (outcome, affected, mutations): Evaluated,
    ) -> Result<Answer, EngineError> {
        let status = if outcome == Outcome::Done { Status::Ok } else { Status::Refused(outcome) };
        if outcome != Outcome::Done && !request.session.is_some() {
            // Nothing is logged, but what was seen may not be committed yet (PR-23).
            let end = self.data.log.end().lsn;
            let answer = Answer::new(status, Body::Affected(affected)).read_at(end);
            return Ok(match self.rules.refusals_wait() {
                true => answer.covered(end, AckCondition::Seen),
                false => answer,
            });
        }
        let effects = Effects {
            request_hash: hash,
            confirmed: request.confirmed,
            outcome: outcome as u8,
            affected,
            mutations,
        };
        let at = self.log_effects(request, effects)?;
        let answer = Answer::new(status, Body::Affected(affected)).of_entry(at);
        Ok(answer.covered(at.lsn, self.told()))
    }

    /// [`Op::OpenSession`].
    pub fn open_session(&mut self) -> Result<Answer, EngineError> {
        if let Some(status) = self.refuses() {
            return Ok(Answer::only(status));
        }
        let header = self.data.next_header(self.term, Kind::SessionOpen, self.now.wall_ms);
        let at = header.at;
        self.append(Entry::encode(header, &[])).map_err(|unfit| EngineError::Library(unfit.reason()))?;
        Ok(Answer::only(Status::Ok).of_entry(at).covered(at.lsn, AckCondition::Entry))
    }

    /// [`Op::Held`]: opens a session once the policy in force has the hold. Behind that entry there is no row
    /// of a client in any log that has it, as long as nobody ends the hold: whoever leads next finds it in
    /// the record. A policy on its way may still be given up (PR-400).
    pub fn confirm_hold(&mut self, number: TableId, closed: bool) -> Result<Answer, EngineError> {
        match self.record.policy.moves {
            Some(known) if known.number == number && (known.closed || !closed) => self.open_session(),
            _ => Ok(Answer::not_yet("the partition has not heard yet that its table moves")),
        }
    }

    fn append(&mut self, entry: Entry) -> Result<(), Unfit> {
        self.data.append(entry, self.data.lags(), self.out)
    }

    /// [`Op::Job`] and [`Op::EndJob`].
    pub fn job(&mut self, request: &Request) -> Result<Answer, EngineError> {
        let Some(job) = request.op.job().filter(|_| request.session.is_some()) else {
            return Ok(Answer::only(Status::Bad("a job's records need a session".into())));
        };
        if let Some(status) = self.refuses() {
            return Ok(Answer::only(status));
        }
        let of_database = self.record.is_of_database();
        let hash = job::request_hash(of_database.then_some(request.table), &request.op);
        if let Some(answer) = self.check_session(request, hash)? {
            return self.repeat_job(&request.op, job, answer);
        }
        if let Some(status) = loading(self.data.engine.as_ref()) {
            return Ok(Answer::only(status));
        }
        let engine = self.data.engine.as_ref();
        let scope = match request.op {
            Op::Job { .. } => {
                Scope::of_writes(engine, (self.record, self.rules), (request.table, request.schema))?
            }
            // Its end changes no row, and a table that is gone does not keep a job from ending.
            _ => Ok(Scope::BARE),
        };
        let Ok(scope) = scope else { return self.stale_piece(request, (job, hash)) };
        if let Op::Job { records, .. } = &request.op
            && let Some(fault) =
                records.iter().find_map(|record| scope.fault(std::slice::from_ref(&record.op)))
        {
            return Ok(Answer::only(Status::Bad(fault)));
        }
        let mut work = JobWork {
            engine,
            indexes: self.indexes,
            scope,
            catalog: of_database.then_some(&mut *self.catalog),
            leading: Some(self.term),
            rules: self.rules,
            wall_ms: self.now.wall_ms,
            idle_ms: self.settings.session_ttl.as_millis(),
        };
        let step = match work.step(&request.op, job)? {
            Ok(step) => step,
            Err(status) => return Ok(self.seen(Answer::only(status))),
        };
        let (done, outcome) = (step.status, step.outcome);
        let at = self.log_effects(request, step.effects(hash, request.confirmed))?;
        let status = if outcome == Outcome::Done { Status::Ok } else { Status::Refused(outcome) };
        let answer = Answer::new(status, Body::Job(done)).of_entry(at);
        Ok(answer.covered(at.lsn, job::how_told(&request.op, &done)))
    }

    /// A piece whose table is not as its client knows it, in its number of the session.
    fn stale_piece(&mut self, request: &Request, (job, hash): (JobId, u64)) -> Result<Answer, EngineError> {
        let done = job::status_of(self.data.engine.as_ref(), job, ReadAt::Applied)?;
        let (outcome, confirmed) = (Outcome::Stale as u8, request.confirmed);
        let mutations = Vec::new();
        let effects = Effects { request_hash: hash, confirmed, outcome, affected: 0, mutations };
        let at = self.log_effects(request, effects)?;
        let answer = Answer::new(Status::Refused(Outcome::Stale), Body::Job(done)).of_entry(at);
        Ok(answer.covered(at.lsn, AckCondition::Entry))
    }

    /// A request that was answered before, or out of its turn: what its job has done is said as it is now.
    fn repeat_job(&self, op: &Op, job: JobId, mut answer: Answer) -> Result<Answer, EngineError> {
        if !matches!(answer.status, Status::Ok | Status::Refused(_)) {
            return Ok(self.seen(answer));
        }
        let done = job::status_of(self.data.engine.as_ref(), job, ReadAt::Applied)?;
        answer.body = Body::Job(done);
        Ok(match job::how_told(op, &done) {
            AckCondition::Secured => answer.covered(self.data.log.end().lsn, AckCondition::Secured),
            _ => self.seen(answer),
        })
    }

    /// [`Op::Load`]: makes the entry, if the load is staged on all of `members`.
    pub fn load(
        &mut self,
        request: &Request,
        load: (LoadId, [u8; 16]),
        members: &BTreeSet<Member>,
    ) -> Result<Answer, EngineError> {
        if let Some(status) = self.refuses() {
            return Ok(Answer::only(status));
        }
        if let Some(answer) = self.check_session(request, hash_of(load))? {
            return Ok(self.seen(answer));
        }
        if let Some(why) = held(self.record, true) {
            return Ok(Answer::not_yet(why));
        }
        let (at, affected) = match loaded_at(self.data.engine.as_ref(), load.0)?.is_some() {
            // It was loaded in another session: the answer is that there was nothing left to do.
            true => (self.log_effects(request, effects(request, load, 0, Vec::new()))?, 0),
            false => {
                let (loads, engine) = (&mut self.data.loads, self.data.engine.as_ref());
                let first = self.rules.loads_are_staged_first();
                if let Some(why) = loads.not_staged(engine, self.now.mono, load, (members, first)) {
                    if why == NotStaged::Unsettled {
                        self.out.push(Output::Checkpoint { partition: self.record.id });
                    }
                    return Ok(Answer::not_yet(why.words(load.0)));
                }
                if let Some(answer) = self.refuses_load(request, load)? {
                    return Ok(answer);
                }
                self.log_load(request, load)?
            }
        };
        let answer = Answer::new(Status::Ok, Body::Affected(affected)).of_entry(at);
        Ok(answer.covered(at.lsn, AckCondition::Entry))
    }

    /// The answer to a load into a table of a database, if that cannot be done: another schema was meant, the
    /// table takes none, or there are rows of another one (PR-449).
    fn refuses_load(
        &mut self,
        request: &Request,
        load: (LoadId, [u8; 16]),
    ) -> Result<Option<Answer>, EngineError> {
        if !self.record.is_of_database() {
            return Ok(None);
        }
        let (table, engine) = (request.table, self.data.engine.as_ref());
        let scope = Scope::of_writes(engine, (self.record, self.rules), (table, request.schema))?;
        let Ok(scope) = scope else {
            return self.log_write(request, hash_of(load), refused(Outcome::Stale)).map(Some);
        };
        let stored = engine.get(&types::database::catalog_key(table), ReadAt::Applied)?;
        let known = stored.map(|(_, value)| CatalogTable::decode(&table.0.to_be_bytes(), &value)).transpose();
        let fault = match known.map_err(EngineError::Corrupt)? {
            Some((_, known)) => catalog::fault_of_load(&known),
            None => None,
        };
        let elsewhere = || format!("load {} has rows of other tables than {table}", load.0);
        let fault = match is_of_table(engine, load.0, scope.keys())? {
            true => fault,
            false => Some(elsewhere()),
        };
        Ok(fault.map(|fault| Answer::only(Status::Bad(fault))))
    }

    fn log_load(
        &mut self,
        request: &Request,
        (load, digest): (LoadId, [u8; 16]),
    ) -> Result<(Position, u32), EngineError> {
        let engine = self.data.engine.as_ref();
        let rows = engine.staged(load).map_or(0, |staged| staged.rows);
        let affected = u32::try_from(rows).unwrap_or(u32::MAX);
        let value = Bytes::copy_from_slice(&rows.to_le_bytes());
        let mut mutations = vec![Mutation { key: load_key(load), value: Some(value) }];
        // What indexes have of the rows that are replaced is not known here: they are built anew.
        let definitions = definitions_at(engine, ReadAt::Applied)?;
        let turned = |definition: &Definition| definition.turned(IndexState::Dropping).mutation();
        mutations.extend(definitions.iter().map(turned));
        let effects = effects(request, (load, digest), affected, mutations);
        let mut header = self.data.next_header(self.term, Kind::Bulk, self.now.wall_ms);
        session::fill(&mut header, request);
        let at = header.at;
        let entry = Entry::encode(header, &LoadMark { load, digest, effects }.encode());
        self.append(entry).map_err(|unfit| EngineError::Library(unfit.reason()))?;
        self.indexes.changed_at(at);
        Ok((at, affected))
    }

    /// Expires sessions that nobody used for long, by an entry that every replica applies (PR-46).
    pub fn expire_sessions(&mut self) -> Result<(), Unfit> {
        let (wall_ms, ttl_ms) = (self.now.wall_ms, self.settings.session_ttl.as_millis());
        match session::idle(self.data.engine.as_ref(), wall_ms, ttl_ms) {
            Ok(expired) if !expired.is_empty() => {
                let header = self.data.next_header(self.term, Kind::SessionExpire, wall_ms);
                self.append(Entry::encode(header, &session::encode_expired(&expired)))
            }
            _ => Ok(()),
        }
    }

    /// The second step of a change of policy: an entry commits under both. Gives where it is.
    pub fn log_policy(&mut self, policy: &Policy) -> Result<Lsn, Unfit> {
        let recorded = self.record.next_policy.as_ref() == Some(policy);
        assert!(recorded, "PR-24: the entry of a policy follows the record that names both");
        let header = self.data.next_header(self.term, Kind::Policy, self.now.wall_ms);
        let lsn = header.at.lsn;
        let payload = serde_json::to_vec(policy).expect("a policy has only text keys");
        self.append(Entry::encode(header, &payload)).map(|()| lsn)
    }

    /// One step towards the indexes that the table's record wants, if the one before is committed and nothing
    /// else is in the way.
    pub fn keep_indexes(&mut self, wanted: &Wanted) -> Result<(), Unfit> {
        let engine = self.data.engine.as_ref();
        let pending = self.indexes.is_pending(self.term, self.data.marks.committed());
        if pending || loading(engine).is_some() || self.refuses().is_some() {
            return Ok(());
        }
        let mutations = match self.indexes.next_mutations(engine, self.term, self.settings, wanted) {
            Ok(Some(mutations)) => mutations,
            // What cannot be read just now can be at a later tick.
            Ok(None) | Err(EngineError::Later(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut header = self.data.next_header(self.term, Kind::Schema, self.now.wall_ms);
        header.table = self.record.table;
        header.schema = wanted.schema.version();
        self.indexes.changed_at(header.at);
        self.append(Entry::encode_effects(header, &own(mutations)))
    }

    /// A step of what is to be done for tables of a database, if the one before is committed: rows of what
    /// was dropped go, and rows that were there before a constraint are looked at.
    pub fn tend_tables(&mut self) -> Result<(), Unfit> {
        let pending = self.catalog.is_pending(self.term, self.data.marks.committed());
        let engine = self.data.engine.as_ref();
        if pending || loading(engine).is_some() || self.refuses().is_some() {
            return Ok(());
        }
        let mutations =
            match self.catalog.next_step(engine, (self.term, self.record.is_global()), self.settings) {
                Ok(Some(mutations)) => mutations,
                // What cannot be read just now can be at a later tick.
                Ok(None) | Err(EngineError::Later(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
        let defines = mutations.iter().any(|mutation| KeySpace::Catalog.has(&mutation.key));
        let mut header = self.data.next_header(self.term, Kind::Schema, self.now.wall_ms);
        header.table = self.record.table;
        self.catalog.stepped_at(header.at, defines);
        self.append(Entry::encode_effects(header, &own(mutations)))
    }
}

/// Effects that nobody has asked for.
fn own(mutations: Vec<Mutation>) -> Effects {
    Effects { request_hash: 0, confirmed: 0, outcome: Outcome::Done as u8, affected: 0, mutations }
}

/// What a write comes to that changes nothing.
pub(super) fn refused(outcome: Outcome) -> Evaluated {
    (outcome, 0, Vec::new())
}

/// A hash of what is asked (PR-47).
fn hash_of((load, digest): (LoadId, [u8; 16])) -> u64 {
    let (one, other) = digest.split_at(8);
    let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("a half of sixteen bytes"));
    word(one) ^ word(other) ^ load.0
}

fn effects(request: &Request, load: (LoadId, [u8; 16]), affected: u32, mutations: Vec<Mutation>) -> Effects {
    let (request_hash, confirmed) = (hash_of(load), request.confirmed);
    Effects { request_hash, confirmed, outcome: Outcome::Done as u8, affected, mutations }
}

#[cfg(test)]
mod tests;
