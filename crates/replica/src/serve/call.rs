//! [`Op::Call`](wire::Op::Call): a procedure is run against what has been executed, and what it comes to
//! is one entry: the rows that it writes, the session's row, and its result as a row of its own (PR-190,
//! PR-192).

use crate::answer::{AckCondition, Answer};
use crate::features::procedure::{Executed, SLICE_STEPS, UnderWay, Waits};
use crate::output::ClientRef;
use crate::serve::write::{Writing, refused};
use crate::session;
use bytes::Bytes;
use procedure::{Given, Limits, Progress};
use types::keyspace::result_key;
use types::procedure::{Failure, FailureKind};
use types::{EngineError, Mutation};
use wire::procedure::MAX_SESSION_RESULT_BYTES;
use wire::{Body, CallRequest, CallResult, Effects, Outcome, Request, Status};
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
        let limits = self.settings.call.clone();
        if let Some(status) = self.keeps_too_much(request, &limits)? {
            return Ok(Some(Answer::only(status)));
        }
        let edition = (self.catalog.edition(self.term), &self.settings.programs);
        let engine = self.data.engine.as_ref();
        let wanted = (call.procedure, call.version);
        let prepared = match self.calls.prepared(engine, edition, wanted)? {
            None => return self.log_write(request, hash, refused(Outcome::Stale)).map(Some),
            Some(Ok(prepared)) if call.read_only && !prepared.is_read_only() => {
                return self.log_write(request, hash, refused(Outcome::Stale)).map(Some);
            }
            Some(Ok(prepared)) => prepared,
            Some(Err(why)) => {
                let failure = Failure::new(FailureKind::Tables, why);
                return self.log_call(request, hash, Err(failure)).map(Some);
            }
        };
        match prepared.begin(&call.arguments, self.given(call), limits) {
            Err(failure) => self.log_call(request, hash, Err(failure)).map(Some),
            Ok(running) => {
                let asked = Waits::new(to, request, self.now.mono);
                self.go_on(Box::new(UnderWay { asked, term: self.term, running }))
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
        self.log_call(request, hash, ended).map(Some)
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
    fn keeps_too_much(&self, request: &Request, limits: &Limits) -> Result<Option<Status>, EngineError> {
        if !request.session.is_some() {
            return Ok(None);
        }
        let session = session::read(self.data.engine.as_ref(), request.session)?.unwrap_or_default();
        let kept = session.result_bytes(request.confirmed);
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
        ended: Result<procedure::Effects, Failure>,
    ) -> Result<Answer, EngineError> {
        let (result, affected, mutations) = match ended {
            Err(failure) if failure.kind == FailureKind::Later => return Ok(Answer::not_yet(failure.why)),
            Err(failure) => (CallResult::Failed(failure), 0, Vec::new()),
            Ok(effects) => (CallResult::Rows(effects.rows), effects.affected, effects.mutations),
        };
        let evaluated = self.with_derived((Outcome::Done, affected, mutations))?;
        if evaluated.0 != Outcome::Done {
            return self.log_evaluated(request, hash, evaluated);
        }
        let (_, _, mut mutations) = evaluated;
        let (outcome, status) = match &result {
            CallResult::Rows(_) => (Outcome::Returned, Status::Ok),
            CallResult::Failed(_) => (Outcome::CallFailed, Status::Refused(Outcome::CallFailed)),
        };
        if !request.session.is_some() && mutations.is_empty() {
            let end = self.data.log.end().lsn;
            let answer = Answer::new(status, Body::Called(result)).read_at(end);
            return Ok(answer.covered(end, AckCondition::Seen));
        }
        let mut kept = Bytes::new();
        if request.session.is_some() {
            kept = result.encode();
            let key = result_key(request.session, request.seq);
            mutations.push(Mutation { key, value: Some(kept.clone()) });
        }
        let effects = Effects {
            request_hash: hash,
            confirmed: request.confirmed,
            outcome: outcome as u8,
            affected: u32::try_from(kept.len()).expect("a result is short"),
            mutations,
        };
        let at = self.log_effects(request, effects)?;
        let answer = Answer::new(status, Body::Called(result)).of_entry(at);
        Ok(answer.covered(at.lsn, AckCondition::Entry))
    }
}

#[cfg(test)]
mod tests;
