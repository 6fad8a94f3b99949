//! Transactions that begin, and statements on the transaction itself that do not end it.

use super::{SqlSession, now};
use crate::plan::Work;
use crate::txn::{Modes, Open};
use pg::{Failure, Outcome};

impl SqlSession {
    /// A transaction that begins now.
    pub(super) fn begun(&self, implicit: bool, modes: Modes) -> Open {
        let context = (&self.settings, &self.turns, &self.evaluator.memory);
        Open::begin(now(), implicit, modes, context)
    }

    /// Statements on the transaction itself that do not end it.
    pub(super) fn within(&mut self, work: &Work) -> Result<Outcome, Failure> {
        let done = |tag: &str| Ok(Outcome::Done(tag.into()));
        if let Work::Begin(modes, tag) = work {
            self.drop_cursors();
            match &mut self.open {
                None => self.open = Some(self.begun(false, *modes)),
                Some(open) => {
                    let known = !std::mem::take(&mut open.implicit);
                    open.set(*modes)?;
                    if known {
                        self.warn("25001", "there is already a transaction in progress");
                    }
                }
            }
            return done(tag);
        }
        let Some(open) = self.open.as_mut().filter(|open| !open.implicit) else {
            if matches!(work, Work::SetTransaction(_)) {
                self.warn("25P01", "SET TRANSACTION can only be used in transaction blocks");
                return done("SET");
            }
            let word = match work {
                Work::Savepoint(_) => "SAVEPOINT",
                Work::Release(_) => "RELEASE SAVEPOINT",
                _ => "ROLLBACK TO SAVEPOINT",
            };
            return Err(Failure::new("25P01", format!("{word} can only be used in transaction blocks")));
        };
        match work {
            Work::SetTransaction(modes) => {
                open.set(*modes)?;
                done("SET")
            }
            Work::Savepoint(name) => {
                open.save(name, &self.settings);
                done("SAVEPOINT")
            }
            Work::Release(name) => {
                open.release(name)?;
                done("RELEASE")
            }
            Work::BackTo(name) => {
                self.settings = open.back_to(name)?;
                done("ROLLBACK")
            }
            _ => unreachable!("handled by the caller"),
        }
    }
}
