//! Calls of procedures at a replica that is sent them and not what they came to (`ship = calls`): it makes
//! them itself, once, when it takes their entries in.
//!
//! What it comes to must be what the primary came to, byte by byte: else this replica is damaged before it
//! acknowledges anything (F21). Its log gets both, the call and what it came to, and whoever reads that log
//! makes no call again (PR-240). The limits of a call were the primary's to look at: its outcome says what
//! came of them, and a call that went beyond them is no call in the log any more (PR-220).

use crate::features::procedure::{Calls, Executed, SLICE_STEPS};
use crate::session;
use crate::settings::Settings;
use procedure::{Given, Limits, Progress};
use types::{Engine, EngineError};
use wire::{CallMark, Effects, Entry};

/// Why a replica has not made a call.
pub(crate) enum Unmade {
    /// It has other code, or cannot look at its state now, or has a bulk load to install: it is to be sent
    /// what the call came to.
    NotNow,
    /// It came to something else than at the primary.
    Differs(String),
    /// This replica cannot go on.
    Broken(String),
}

impl From<EngineError> for Unmade {
    fn from(error: EngineError) -> Unmade {
        match error {
            EngineError::Later(_) => Unmade::NotNow,
            _ => Unmade::Broken(error.to_string()),
        }
    }
}

/// What a replica makes calls with.
pub(crate) struct CallMaker<'a> {
    pub calls: &'a mut Calls,
    pub settings: &'a Settings,
}

impl CallMaker<'_> {
    /// Makes the call of an entry that follows what the engine has executed. Gives the entry with what it
    /// came to beside it.
    pub fn make(&mut self, engine: &dyn Engine, entry: &Entry) -> Result<Entry, Unmade> {
        // What it would find here lacks the rows of a bulk load (PR-448).
        if engine.pending_load().is_some() {
            return Err(Unmade::NotNow);
        }
        let mark = CallMark::decode(&entry.payload()).map_err(Unmade::Broken)?;
        if mark.code != self.settings.programs.code() && self.settings.rules.calls_need_the_same_code() {
            return Err(Unmade::NotNow);
        }
        let differs = |why: &str| Unmade::Differs(format!("F21: the call at {}: {why}", entry.at()));
        let effects = self.effects(engine, entry, &mark)?.map_err(|why| differs(&why))?.encode();
        if !entry.came_to(&effects) && self.settings.rules.calls_are_compared() {
            return Err(differs("it came to something else here than at the primary"));
        }
        Ok(entry.with_effects(&effects))
    }

    /// What the call comes to here. The inner error is a sentence.
    fn effects(
        &mut self,
        engine: &dyn Engine,
        entry: &Entry,
        mark: &CallMark,
    ) -> Result<Result<Effects, String>, EngineError> {
        let edition = (mark.edition, &self.settings.programs);
        let prepared = match self.calls.prepared(engine, edition, (mark.procedure, mark.version))? {
            Some(Ok(prepared)) => prepared,
            Some(Err(why)) => return Ok(Err(why)),
            None => return Ok(Err(format!("procedure {} is not here", mark.procedure.0))),
        };
        let mut running = match prepared.begin(&mark.arguments, given(mark), self.limits(mark)) {
            Ok(running) => running,
            Err(failure) => return Ok(Err(failure.why)),
        };
        let rows = Executed(engine);
        let ended = loop {
            match running.go_on(&rows, SLICE_STEPS)? {
                Progress::More => {}
                Progress::Ended(ended) => break ended,
            }
        };
        let mut done = match ended {
            Ok(done) => done,
            Err(failure) => return Ok(Err(failure.why)),
        };
        match self.calls.derived(engine, self.settings.rules, &done.mutations)? {
            Some(derived) => done.mutations.extend(derived),
            None => return Ok(Err("what it writes is against a constraint here".into())),
        }
        let header = entry.header();
        Ok(Ok(session::result_of((header.session, header.seq), (mark.request_hash, mark.confirmed), done)))
    }

    /// None but those that show in what a call finds. In a mutant it has its own.
    fn limits(&self, mark: &CallMark) -> Limits {
        match self.settings.rules.limits_are_the_primarys() {
            true => Limits::of_repeated(usize::try_from(mark.read_bytes).unwrap_or(usize::MAX >> 2)),
            false => self.settings.call.clone(),
        }
    }
}

/// What the primary gave it beside its arguments.
fn given(mark: &CallMark) -> Given {
    Given {
        now_ms: mark.now_ms,
        seed: mark.seed,
        policy: mark.policy.clone(),
        copies: mark.copies,
        route: mark.route.clone(),
    }
}
