//! Clients' requests at a replica: who does them, and how their answers go. A reply waits for what it did and
//! saw (N7, R12).

use super::status::before_serving;
use crate::answer::{Answer, When};
use crate::context::Ctx;
use crate::features::aggregate::AggregateScan;
use crate::features::procedure::Waits;
use crate::features::{catalog, scrub};
use crate::output::{ClientRef, Output};
use crate::primary::reply_queue::Waiting;
use crate::replica::{Replica, Role, call, row_turns};
use crate::scope::Scope;
use crate::serve::read::Reading;
use crate::serve::stage::{self, Stager};
use crate::serve::too_few;
use crate::serve::write::Writing;
use crate::unfit::Unfit;
use types::{EngineError, LoadId, Lsn, Micros};
use wire::request::Hint;
use wire::{Op, ReadLevel, Reply, Request, Status};

impl Replica {
    /// A client's request. Every path ends in exactly one reply, now or later.
    pub(crate) fn on_request(&mut self, ctx: &mut Ctx, to: ClientRef, request: &Request) {
        let any = matches!(request.read, ReadLevel::Any { .. }) && !request.op.needs_primary();
        // Connections check this too; an engine has only assertions left (PR-72).
        let refused = request.validate().err().map(Status::Bad).or_else(|| self.not_here(request, any));
        let answer = match refused {
            Some(status) => Ok(Some(Answer::only(status))),
            None if self.features.calls.hold(request) => {
                let asked = Waits::new(to, request, ctx.now.mono);
                Ok(self.features.calls.push(asked).map(Answer::only))
            }
            None => call::admit(self, ctx, to, request, any),
        };
        self.answer(ctx, to, request, answer);
    }

    /// Gives what came of a request, unless it is answered later.
    pub(crate) fn answer(
        &mut self,
        ctx: &mut Ctx,
        to: ClientRef,
        request: &Request,
        answer: Result<Option<Answer>, EngineError>,
    ) {
        match answer {
            Ok(Some(answer)) => {
                let done = answer.entry.filter(|_| answer.status == Status::Ok);
                self.give(ctx, to, request, answer);
                if let Some(at) = done {
                    row_turns::pass(self, ctx, request, at.lsn);
                }
            }
            Ok(None) => {}
            // Nothing was done. What is damaged ends the replica, and with it what waits is answered.
            Err(error) => {
                let answer = Answer::only(engine_failed(&error));
                if matches!(answer.status, Status::Corrupt(_)) {
                    self.fail(ctx, error);
                }
                self.give(ctx, to, request, answer);
            }
        }
    }

    /// None: it is answered later.
    pub(crate) fn handle(
        &mut self,
        ctx: &mut Ctx,
        to: ClientRef,
        request: &Request,
        any: bool,
    ) -> Result<Option<Answer>, EngineError> {
        let answer = match &request.op {
            Op::Write { ops, mark, since } => {
                let write = |mut writing: Writing| writing.write(request, ops, (*mark, *since));
                return self.writing(ctx).map(write).transpose();
            }
            Op::Transact { changes, parts, since } => {
                let write = |mut writing: Writing| writing.transact(request, (changes, parts), *since);
                return self.writing(ctx).map(write).transpose();
            }
            Op::Call(call) => {
                let Some(mut writing) = self.writing(ctx) else { return Ok(None) };
                return writing.call(to, request, call);
            }
            Op::Manager(asked) if !asked.only_looks() => {
                return self.writing(ctx).map(|mut writing| writing.manage(request, asked)).transpose();
            }
            Op::Flush(flush) => {
                return self.writing(ctx).map(|mut writing| writing.flush(request, flush)).transpose();
            }
            Op::OpenSession => {
                return self.writing(ctx).map(|mut writing| writing.open_session()).transpose();
            }
            Op::Held { number, closed } => {
                let confirm = |mut writing: Writing| writing.confirm_hold(*number, *closed);
                return self.writing(ctx).map(confirm).transpose();
            }
            Op::Job { .. } | Op::EndJob { .. } => {
                return self.writing(ctx).map(|mut writing| writing.job(request)).transpose();
            }
            Op::Stage { .. } | Op::StagePiece { .. } | Op::Unstage { .. } | Op::Load { .. } => {
                return self.on_load(ctx, to, request);
            }
            op @ (Op::Pause { .. } | Op::Resume { .. }) => {
                let (identity, data, readers) = (self.identity, &self.data, &mut self.readers);
                let Some(leader) = self.role.leader_mut() else { return Ok(None) };
                Reading::new(identity, data, readers, ctx.now.mono).pause(&mut leader.pause, op)
            }
            Op::Turn(asked) => return Ok(row_turns::ask(self, ctx, (to, request), asked)),
            Op::Scrub { start } => self.features.scrub.ask(*start),
            Op::GiveUp { source, why } => {
                match scrub::keeps(self.role.term(), self.config.record(), self.identity.me, *source) {
                    Some(refusal) => Answer::only(Status::Bad(refusal.into())),
                    None => {
                        self.fail(ctx, scrub::given_up(why));
                        Answer::only(Status::Ok)
                    }
                }
            }
            _ => return self.read(ctx, to, request, any),
        };
        Ok(Some(answer))
    }

    /// Why this replica does not handle the request, if so.
    pub(crate) fn not_here(&self, request: &Request, any: bool) -> Option<Status> {
        let Some(record) = self.config.record() else {
            return Some(Status::NotFound("no such partition here".into()));
        };
        if let Some(fault) = catalog::fault(record, request) {
            return Some(Status::Bad(fault));
        }
        if record.table != request.table && !record.is_of_database() {
            return Some(Status::NotFound(format!(
                "partition {} is not of table {}",
                self.identity.id, request.table
            )));
        }
        // What is said of its files does not rest on its state.
        let files = matches!(request.op, Op::Scrub { .. } | Op::GiveUp { .. });
        if any && self.role.lags(&self.data) && !files {
            return Some(Status::NotYet("this replica keeps the log only: it is a cold standby".into()));
        }
        match &self.role {
            Role::Leader(leader) => match leader.promotion.serves() {
                true if leader.membership.holds_writes() && !any => {
                    Some(Status::NotYet("the partition is being handed over".into()))
                }
                true => None,
                false if any => None,
                false => Some(too_few(record).unwrap_or_else(|| {
                    let waits = before_serving(leader, &self.data).unwrap_or_default();
                    Status::NotYet(format!("the new primary is not ready yet ({waits})"))
                })),
            },
            Role::Backup(backup) if any && !backup.copy.is_open() => None,
            Role::Damaged(damage) if any => Some(Status::Corrupt(damage.reason().into())),
            _ => Some(Status::NotPrimary),
        }
    }

    /// Gives an answer, or has it wait (N7).
    pub(crate) fn give(&mut self, ctx: &mut Ctx, to: ClientRef, request: &Request, answer: Answer) {
        let record = self.config.record();
        let lsn = answer.entry.map(|at| at.lsn).or(answer.lsn).unwrap_or(self.data.marks.committed());
        let epoch = record.map_or(types::Epoch::ZERO, |record| record.epoch);
        let hint = record.filter(|_| answer.status == Status::NotPrimary);
        let mut reply = Reply {
            id: request.id,
            status: answer.status,
            lsn,
            epoch: answer.entry.map_or(epoch, |at| at.term.began()),
            policy: record.map_or(0, |record| record.policy.version),
            copies: 0,
            hint: hint.map(|record| Box::new(Hint::new(record))),
            body: answer.body,
        };
        let valid_until = match answer.when {
            When::Now => None,
            // The data were read first; the clock is compared when the bytes leave (F01, PR-03).
            When::Leased => {
                self.leading().map_or(Some(Micros::ZERO), |(primary, view)| primary.lease_until(&view, ctx))
            }
            When::Covered(at, condition) => {
                if reply.lsn == Lsn::ZERO {
                    reply.lsn = at;
                }
                let deadline = match request.deadline_ms {
                    0 => Micros::ZERO,
                    ms => ctx.now.mono + Micros::from_millis(ms),
                };
                if let Some(leader) = self.role.leader_mut() {
                    return leader.replies.push(Waiting { lsn: at, to, reply, condition, deadline });
                }
                // As of a primary that steps down: the hint says that others can tell (PR-372).
                reply.status = Status::Unknown("the primary changed: it may have been done".into());
                reply.hint = record.map(|record| Box::new(Hint::new(record)));
                None
            }
        };
        ctx.out.push(Output::Reply { partition: self.identity.id, to, reply: Box::new(reply), valid_until });
    }

    /// What entries are made with, if this replica leads.
    pub(crate) fn writing<'a>(&'a mut self, ctx: &'a mut Ctx) -> Option<Writing<'a>> {
        let (Role::Leader(leader), Some(record)) = (&self.role, self.config.record()) else { return None };
        Some(Writing {
            record,
            term: leader.term,
            rules: self.identity.rules,
            data: &mut self.data,
            indexes: &mut self.features.indexes,
            catalog: &mut self.features.catalog,
            commits: &mut self.features.commits,
            calls: &mut self.features.calls,
            ships_calls: leader.ships_calls(record, ctx),
            waiting: leader.replies.len(),
            now: ctx.now,
            settings: ctx.settings,
            out: ctx.out,
        })
    }

    /// Makes an entry of its own, if it leads; what the engine cannot do with it ends this replica.
    pub(crate) fn write_own<T>(
        &mut self,
        ctx: &mut Ctx,
        make: impl FnOnce(&mut Writing) -> Result<T, Unfit>,
    ) -> Option<T> {
        let made = self.writing(ctx).map(|mut writing| make(&mut writing))?;
        made.map_err(|unfit| self.fail(ctx, unfit)).ok()
    }

    /// Reads at `committed`: at the primary within its lease, elsewhere within the staleness that was asked
    /// for (PR-27).
    fn read(
        &mut self,
        ctx: &mut Ctx,
        to: ClientRef,
        request: &Request,
        any: bool,
    ) -> Result<Option<Answer>, EngineError> {
        let (leading, now) = (self.role.term(), ctx.now.mono);
        let leads = self.leading().filter(|_| any);
        let led_at = leads.map_or(Micros::ZERO, |(primary, view)| primary.led_at(&view, ctx));
        let mut reading = Reading::new(self.identity, &self.data, &mut self.readers, now);
        if let (true, ReadLevel::Any { max_lag_ms, min_lsn }) = (any, request.read)
            && let Some(status) = reading.too_stale(self.role.fresh_at(led_at), max_lag_ms, min_lsn)
        {
            return Ok(Some(Answer::only(status)));
        }
        let whole = matches!(request.op, Op::Count { .. } | Op::Digest | Op::DigestAt { .. });
        // What is counted later, or held for that, is to stay.
        let holds = matches!(request.op, Op::Hold { .. });
        let executed = leading.is_some() && !any && !whole && !holds;
        let at = match reading.position_of(request.op.snapshot(), executed, holds)? {
            Ok(position) => position,
            Err(status) => return Ok(Some(Answer::only(status))),
        };
        let Some(record) = self.config.record() else { return Ok(None) };
        if let Op::FlushState { copies } = request.op {
            let set = (record.in_sync.len(), record.policy.factor);
            return Ok(Some(reading.flush_state(set, copies)?.leased()));
        }
        let engine = self.data.engine.as_ref();
        let scope = match request.op.reads_rows() {
            true => {
                let rules = self.identity.rules;
                Scope::of(engine, (record, rules), (request.table, request.schema), at.0)?
            }
            false => Ok(Scope::BARE),
        };
        let leased = |answer: Answer| if any || leading.is_none() { answer } else { answer.leased() };
        let scope = match scope {
            Ok(scope) => scope,
            Err(why) => return Ok(Some(leased(Answer::only(Status::Stale(why))))),
        };
        if whole {
            let scans = &mut self.readers.aggregates;
            if scans.is_full() {
                return Ok(Some(Answer::not_yet("too many counts of this partition are under way")));
            }
            scans.begin(AggregateScan::new(to, (request.clone(), scope), at, leading, now));
            self.aggregate(ctx);
            return Ok(None);
        }
        Ok(Some(leased(reading.read(&request.op, &scope, at)?)))
    }

    /// Goes on with the count or digest that has waited longest, for one slice.
    pub(crate) fn aggregate(&mut self, ctx: &mut Ctx) {
        let Some(scan) = self.readers.aggregates.next() else { return };
        let any = matches!(scan.request().read, ReadLevel::Any { .. });
        if let Some(status) = self.not_here(scan.request(), any) {
            let (to, request) = scan.into_request();
            return self.give(ctx, to, &request, Answer::only(status));
        }
        let here = (self.role.term(), self.data.marks.committed(), ctx.now.mono);
        let aggregates = &mut self.readers.aggregates;
        let Err(ended) = aggregates.go_on(self.data.engine.as_ref(), ctx.settings, scan, here) else {
            return;
        };
        if let Some(error) = ended.damage {
            self.fail(ctx, error);
        }
        self.give(ctx, ended.to, &ended.request, ended.answer);
    }

    /// The replica is about to go: whoever waits here for a large write or a count asks somebody else.
    pub(crate) fn dismiss(&mut self, ctx: &mut Ctx) {
        self.step_down(ctx, "the partition is not on this node any more");
        while let Some(large) = self.large.next() {
            let (to, request) = large.into_request(ctx.now.mono);
            self.give(ctx, to, &request, Answer::only(Status::NotPrimary));
        }
        self.data.engine.end_read_ahead();
        for asked in self.features.calls.dismiss() {
            let (to, request) = asked.into_request(ctx.now.mono);
            self.give(ctx, to, &request, Answer::only(Status::NotPrimary));
        }
        while let Some(scan) = self.readers.aggregates.next() {
            let (to, request) = scan.into_request();
            self.give(ctx, to, &request, Answer::only(Status::NotPrimary));
        }
    }

    /// [`Op::Stage`], [`Op::StagePiece`], [`Op::Unstage`] and [`Op::Load`].
    fn on_load(
        &mut self,
        ctx: &mut Ctx,
        to: ClientRef,
        request: &Request,
    ) -> Result<Option<Answer>, EngineError> {
        if !self.data.ships_files() {
            let why = "bulk loads need an engine with files and a log on disk".into();
            return Ok(Some(Answer::only(Status::Bad(why))));
        }
        let Some((primary, view)) = self.leading() else { return Ok(None) };
        match &request.op {
            Op::Load { load, digest } => {
                let members = primary.lease_members(&view);
                let write = |mut writing: Writing| writing.load(request, (*load, *digest), &members);
                self.writing(ctx).map(write).transpose()
            }
            Op::Stage { load, .. } => {
                if let Some(answer) = stage::loaded(primary, &view, &self.data, *load)? {
                    return Ok(Some(answer));
                }
                let Some(mut stager) = self.stager(ctx) else { return Ok(None) };
                let answer = stager.stage((to, request.clone()), *load)?;
                if answer.is_none() {
                    self.answer_staged(ctx, *load);
                }
                Ok(answer)
            }
            op => self.stager(ctx).map(|mut stager| stager.pass_on(op)).transpose(),
        }
    }

    pub(crate) fn stager<'a>(&'a mut self, ctx: &'a mut Ctx) -> Option<Stager<'a>> {
        let (primary, view) = self.leading()?;
        let (members, origin) = (primary.lease_members(&view), self.config.origin(self.identity)?);
        Some(Stager { data: &mut self.data, members, origin, now: ctx.now.mono, out: ctx.out })
    }

    /// Answers those who asked for a load, once all members that count have said how far they are.
    pub(crate) fn answer_staged(&mut self, ctx: &mut Ctx, load: LoadId) {
        let answers = self.stager(ctx).map(|mut stager| stager.answers(load));
        match answers.transpose() {
            Ok(answers) => {
                for (to, request, answer) in answers.unwrap_or_default() {
                    self.give(ctx, to, &request, answer);
                }
            }
            Err(error) => self.fail(ctx, error),
        }
    }
}

/// What an engine's failure is told as.
fn engine_failed(error: &EngineError) -> Status {
    let reason = error.to_string();
    match error {
        EngineError::SnapshotTooOld { .. } => Status::TooOld(reason),
        EngineError::Later(_) => Status::NotYet(reason),
        _ => Status::Corrupt(reason),
    }
}
