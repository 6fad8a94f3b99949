//! How transactions end.

use super::SqlSession;
use crate::early;
use crate::fault;
use crate::txn::Open;
use pg::{Failure, Outcome};
use types::TableRecord;
use types::system::COMMITS;

impl SqlSession {
    /// A write to this table is secured at least as far as the client has said.
    pub(super) fn check_secured(&self, table: &TableRecord) -> Result<(), Failure> {
        let map = self.evaluator.handle.map();
        let manager = map.table(COMMITS).filter(|_| table.is_global());
        self.settings.check_secured(table, manager)
    }

    pub(super) async fn commit(&mut self, open: Open) -> Result<Outcome, Failure> {
        let before = open.before.clone();
        match self.commit_checked(open).await {
            Ok(()) => Ok(Outcome::Set("COMMIT".into(), self.settings.end(None))),
            Err(failure) => {
                self.settings.end(Some(before));
                Err(failure)
            }
        }
    }

    async fn commit_checked(&self, open: Open) -> Result<(), Failure> {
        let handle = &self.evaluator.handle;
        let checked = match handle.is_global() {
            true => {
                let (parts, tables) = open.written();
                match early::before_commit(handle, tables, &parts).await {
                    Ok(checked) => checked,
                    // What it took of a row may be another's by now.
                    Err(failure) if failure.code.starts_with("23") => {
                        let overtaken = open.is_overtaken(handle).await;
                        return Err(if matches!(overtaken, Ok(true)) { fault::conflict() } else { failure });
                    }
                    Err(failure) => return Err(failure),
                }
            }
            false => None,
        };
        open.commit(handle, checked).await
    }

    pub(super) fn roll_back(&mut self, open: Open) -> Outcome {
        if open.defined {
            self.warn("01000", "tables that the transaction has created or dropped stay as they are");
        }
        Outcome::Set("ROLLBACK".into(), self.settings.end(Some(open.before)))
    }
}
