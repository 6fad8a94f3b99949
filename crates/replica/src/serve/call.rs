//! [`Op::Call`](wire::Op::Call): a procedure is run against what has been executed, and what it comes to
//! is one entry: the rows that it writes, the session's row, and its result as a row of its own (PR-190,
//! PR-192).

use crate::answer::{AckCondition, Answer};
use crate::data::Data;
use crate::features::bulk::loading;
use crate::features::procedure::{Executed, SLICE_STEPS, UnderWay, Waits};
use crate::output::ClientRef;
use crate::serve::write::{Writing, refused};
use crate::session;
use procedure::{Given, Limits, Progress};
use types::keyspace::result_key;
use types::procedure::{Failure, FailureKind};
use types::{EngineError, Mutation};
use wire::procedure::MAX_SESSION_RESULT_BYTES;
use wire::{Body, CallMark, CallRequest, CallResult, Effects, Kind, Outcome, Request, Status};
use xxhash_rust::xxh3::Xxh3;

/// A hash of what is asked (PR-47).
fn request_hash(call: &CallRequest) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(b"call");
    hash.update(&call.procedure.0.to_le_bytes());
    hash.update(&call.version.to_le_bytes());
    hash.update(&(call.arguments.len() as u64).to_le_bytes());
    hash.update(&call.arguments);
    hash.update(&call.route);
    hash.digest()
}

impl Writing<'_> {
    /// Begins a call. None: it is answered later.
    pub fn call(
        &mut self,
        to: ClientRef,
        request: &Request,
        call: &CallRequest,
    ) -> Result<Option<Answer>, EngineError> {
        if let Some(status) = self.refuses() {
            return Ok(Some(Answer::only(status)));
        }
        let hash = request_hash(call);
        if let Some(answer) = self.check_session(request, hash)? {
            return Ok(Some(self.seen(answer)));
        }
        if let Some(status) = loading(self.data.engine.as_ref()) {
            return Ok(Some(Answer::only(status)));
        }
        let limits = self.settings.call.clone();
        if let Some(status) = self.keeps_too_much(request, &limits)? {
            return Ok(Some(Answer::only(status)));
        }
        let edition = self.catalog.edition(self.term);
        let (engine, programs) = (self.data.engine.as_ref(), &self.settings.programs);
        let wanted = (call.procedure, call.version);
        let prepared = match self.calls.prepared(engine, (edition, programs), wanted)? {
            None => return self.log_write(request, hash, refused(Outcome::Stale)).map(Some),
            Some(Ok(prepared)) if call.read_only && !prepared.is_read_only() => {
                return self.log_write(request, hash, refused(Outcome::Stale)).map(Some);
            }
            Some(Ok(prepared)) => prepared,
            Some(Err(why)) => {
                let failure = Failure::new(FailureKind::Tables, why);
                return self.log_call(request, hash, (Err(failure), None)).map(Some);
            }
        };
        let given = self.given(call);
        let mark = self.ships_calls.then(|| {
            let code = programs.code();
            CallMark { read_bytes: limits.read_bytes as u64, edition, code, ..mark_of(call, &given) }
        });
        match prepared.begin(&call.arguments, given, limits) {
            Err(failure) => self.log_call(request, hash, (Err(failure), None)).map(Some),
            Ok(running) => {
                let asked = Waits::new(to, request, self.now.mono);
                self.go_on(Box::new(UnderWay { asked, term: self.term, running, mark }))
            }
        }
    }

    /// Goes on with a call for a slice. None: there is more to be done.
    pub fn go_on(&mut self, mut call: Box<UnderWay>) -> Result<Option<Answer>, EngineError> {
        assert!(call.term == self.term, "PR-190: a call of term {} goes on in {}", call.term, self.term);
        let rows = Executed(self.data.engine.as_ref());
        let ended = match call.running.go_on(&rows, SLICE_STEPS)? {
            Progress::Ended(ended) => ended,
            Progress::More => {
                call.mark = None;
                self.calls.put(call);
                return Ok(None);
            }
        };
        let request = &call.asked.request;
        let wire::Op::Call(asked) = &request.op else { panic!("PR-190: a call is under way that is none") };
        let hash = request_hash(asked);
        // Slices ago all was well; it may be otherwise now.
        if let Some(status) = self.refuses() {
            return Ok(Some(Answer::only(status)));
        }
        if let Some(answer) = self.check_session(request, hash)? {
            return Ok(Some(self.seen(answer)));
        }
        self.log_call(request, hash, (ended, call.mark.as_ref())).map(Some)
    }

    /// What a call is given beside its arguments. Only the primary thinks of it: what comes of it is in the
    /// entry.
    fn given(&self, call: &CallRequest) -> Given {
        let next = self.data.log.end().lsn.next();
        let mut seed = Xxh3::new();
        for part in [self.record.id.0.into(), self.term.0, next.0, self.now.wall_ms] {
            seed.update(&u64::to_le_bytes(part));
        }
        Given {
            now_ms: self.now.wall_ms,
            seed: seed.digest(),
            policy: self.record.policy.name.clone(),
            copies: u8::try_from(self.record.in_sync.len()).unwrap_or(u8::MAX),
            route: call.route.clone(),
        }
    }

    /// Why a session makes no call now: it keeps so many results that one more may be too many.
    fn keeps_too_much(&mut self, request: &Request, limits: &Limits) -> Result<Option<Status>, EngineError> {
        if !request.session.is_some() {
            return Ok(None);
        }
        let Data { engine, sessions, .. } = &mut *self.data;
        let session = sessions.look(engine.as_ref(), request.session)?;
        let kept = session.map_or(0, |session| session.result_bytes(request.confirmed));
        let most = MAX_SESSION_RESULT_BYTES;
        Ok((kept + limits.result_bytes > most).then(|| {
            Status::NotYet(format!("confirm first: {kept} bytes of results are kept, {most} may be"))
        }))
    }

    /// Logs what a call came to, and answers it when that is committed: whatever it saw is committed
    /// then, too. Outside of a session what changes nothing makes no entry.
    fn log_call(
        &mut self,
        request: &Request,
        hash: u64,
        (ended, mark): (Result<procedure::Effects, Failure>, Option<&CallMark>),
    ) -> Result<Answer, EngineError> {
        let done = match ended {
            Err(failure) if failure.kind == FailureKind::Later => return Ok(Answer::not_yet(failure.why)),
            Err(failure) => return self.log_failure(request, hash, failure),
            Ok(done) => done,
        };
        let evaluated = self.with_derived((Outcome::Done, done.affected, done.mutations))?;
        if evaluated.0 != Outcome::Done {
            return self.log_evaluated(request, hash, evaluated);
        }
        let (_, affected, mutations) = evaluated;
        let body = Body::Called(CallResult::Rows(done.rows.clone()));
        if !request.session.is_some() && mutations.is_empty() {
            return Ok(self.seen_so_far(Status::Ok, body));
        }
        let mark = mark.filter(|_| !mutations.is_empty());
        let done = procedure::Effects { affected, mutations, rows: done.rows };
        let effects = session::result_of((request.session, request.seq), (hash, request.confirmed), done);
        let at = match mark {
            Some(mark) if Effects::encoded_len(&effects.mutations) <= MOST_BESIDE => {
                let mark = CallMark { request_hash: hash, confirmed: request.confirmed, ..mark.clone() };
                let header = self.data.next_header(self.term, Kind::Call, self.now.wall_ms);
                self.data.log_effects(header, request, (effects, Some(&mark)), self.out)?
            }
            _ => self.log_effects(request, effects)?,
        };
        let answer = Answer::new(Status::Ok, body).of_entry(at);
        Ok(answer.covered(at.lsn, AckCondition::Entry))
    }

    /// The same of a call that failed: in a session that is kept like a result. It is shipped by what it came
    /// to, whatever is shipped of others: no replica finds out anew what a call may not (PR-220).
    fn log_failure(&mut self, request: &Request, hash: u64, failure: Failure) -> Result<Answer, EngineError> {
        let (status, result) = (Status::Refused(Outcome::CallFailed), CallResult::Failed(failure));
        if !request.session.is_some() {
            return Ok(self.seen_so_far(status, Body::Called(result)));
        }
        let kept = result.encode();
        let affected = u32::try_from(kept.len()).expect("a result is short");
        let key = result_key(request.session, request.seq);
        let effects = Effects {
            request_hash: hash,
            confirmed: request.confirmed,
            outcome: Outcome::CallFailed as u8,
            affected,
            mutations: vec![Mutation { key, value: Some(kept) }],
        };
        let at = self.log_effects(request, effects)?;
        let answer = Answer::new(status, Body::Called(result)).of_entry(at);
        Ok(answer.covered(at.lsn, AckCondition::Entry))
    }

    /// An answer without an entry: it waits for all that the call may have seen.
    fn seen_so_far(&self, status: Status, body: Body) -> Answer {
        let end = self.data.log.end().lsn;
        Answer::new(status, body).read_at(end).covered(end, AckCondition::Seen)
    }
}

/// A call with effects of more bytes is shipped by them: both are in one entry of the log.
const MOST_BESIDE: usize = 8 << 20;

/// A call as it is shipped, but for what it rests on.
fn mark_of(call: &CallRequest, given: &Given) -> CallMark {
    CallMark {
        procedure: call.procedure,
        version: call.version,
        arguments: call.arguments.clone(),
        route: given.route.clone(),
        now_ms: given.now_ms,
        seed: given.seed,
        policy: given.policy.clone(),
        copies: given.copies,
        ..CallMark::default()
    }
}

#[cfg(test)]
mod tests;
