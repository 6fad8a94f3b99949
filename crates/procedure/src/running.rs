//! A call under way, in slices.

use crate::builtin::BuiltinCall;
use crate::limits::Limits;
use crate::rows::{Found, Look, Rows};
use crate::wasm::WasmCall;
use crate::work::Effects;
use types::procedure::{Failure, FailureKind};
use types::{EngineError, Micros};

/// A look takes as long as so many steps.
const LOOK_STEPS: u64 = 1_500;
/// Each row of a range as many.
const ROW_STEPS: u64 = 500;

/// What a call does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Its slice is over: it goes on with the next.
    More,
    /// It needs this, and goes on when it is given it.
    Look(Look),
    /// It has ended.
    Ended(Result<Effects, Failure>),
}

/// How far a call is behind a slice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It goes on with the next slice.
    More,
    /// It has ended.
    Ended(Result<Effects, Failure>),
}

/// In which language it is.
pub(crate) enum Inner {
    Wasm(Box<WasmCall>),
    Builtin(Box<BuiltinCall>),
}

/// A call under way. Between two slices nobody may change the rows that it sees.
pub struct Running {
    inner: Inner,
    /// Steps that it may still take.
    left: u64,
    /// How long it may run, and how long it has.
    time: Micros,
    ran: Micros,
}

impl Running {
    pub(crate) fn new(inner: Inner, limits: &Limits) -> Running {
        Running { inner, left: limits.steps, time: limits.time, ran: Micros::ZERO }
    }

    /// Whoever runs it has measured that it ran for so long since it said so last. A call that has run for
    /// too long ends where it would go on.
    pub fn ran(&mut self, time: Micros) {
        self.ran = self.ran + time;
    }

    fn overdue(&self) -> Option<Failure> {
        let (most, late) = (self.time, self.time > Micros::ZERO && self.ran > self.time);
        let why = format!(
            "the call runs for longer than {} ms: let it do less at once, or raise procedures.time_ms",
            most.as_millis()
        );
        late.then(|| Failure::new(FailureKind::Time, why))
    }

    /// Goes on for so many steps at most. `found` is what was looked for, if the last step was to look.
    /// Only a call of a program in a language for users is made so ([`Running::is_stepped`]); what is
    /// compiled in is called by [`Running::go_on`].
    pub fn step(&mut self, steps: u64, found: Option<Found>) -> Step {
        let overdue = self.overdue();
        let Inner::Wasm(call) = &mut self.inner else {
            let why = "a program that is compiled in runs at a partition alone";
            return Step::Ended(Err(Failure::new(FailureKind::Tables, why)));
        };
        if let Some(failure) = overdue {
            return Step::Ended(Err(failure));
        }
        if let Some(found) = &found {
            let rows = if let Found::Rows(rows) = found { rows.len() as u64 } else { 0 };
            self.left = self.left.saturating_sub(LOOK_STEPS + rows * ROW_STEPS);
        }
        let slice = steps.min(self.left);
        let (used, step) = call.step(slice, self.left, found);
        self.left = self.left.saturating_sub(used);
        match step {
            Step::More if self.left == 0 => Step::Ended(Err(too_long())),
            step => step,
        }
    }

    /// True if it goes on by [`Running::step`].
    pub fn is_stepped(&self) -> bool {
        matches!(self.inner, Inner::Wasm(_))
    }

    /// Goes on for about so many steps, with rows at hand. An error of theirs ends it.
    pub fn go_on(&mut self, rows: &dyn Rows, steps: u64) -> Result<Progress, EngineError> {
        if let Inner::Builtin(call) = &mut self.inner {
            return call.run(rows).map(Progress::Ended);
        }
        let end = self.left.saturating_sub(steps);
        let mut found = None;
        loop {
            // A look that ends a slice is part of it: what it has found cannot wait.
            match self.step(self.left.saturating_sub(end).max(1), found.take()) {
                Step::More => return Ok(Progress::More),
                Step::Ended(ended) => return Ok(Progress::Ended(ended)),
                Step::Look(look) => found = Some(look.find(rows)?),
            }
        }
    }
}

pub(crate) fn too_long() -> Failure {
    Failure::new(FailureKind::Steps, "the call takes more steps than a call may")
}
