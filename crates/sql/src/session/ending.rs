//! How transactions end.

use super::SqlSession;
use crate::altering::holding;
use crate::early;
use crate::fault;
use crate::large;
use crate::txn::Open;
use pg::{Failure, Outcome, Overdue};
use std::sync::atomic::Ordering;
use types::TableRecord;
use types::system::COMMITS;

impl SqlSession {
    /// A write to this table is secured at least as far as the client has said.
    pub(super) fn check_secured(&self, table: &TableRecord) -> Result<(), Failure> {
        let map = self.evaluator.handle.map();
        let manager = map.table(COMMITS).filter(|_| table.is_global());
        self.settings.check_secured(table, manager.map(AsRef::as_ref))
    }

    /// What ends the connection while the client is silent: the end of its database, and a transaction that
    /// it leaves open for too long.
    pub(super) fn ended_by(&self) -> Option<Overdue> {
        let silent = self.open.as_ref().and_then(Open::overdue);
        match (self.evaluator.handle.dropped(), silent) {
            (Some(dropped), Some(silent)) => Some(Box::pin(async move {
                tokio::select! {
                    failure = dropped => failure,
                    failure = silent => failure,
                }
            })),
            (dropped, silent) => dropped.or(silent),
        }
    }

    /// The transaction that COMMIT or ROLLBACK ends.
    pub(super) fn end(&mut self) -> Option<Open> {
        let open = self.open.take();
        if open.as_ref().is_none_or(|open| open.implicit) {
            self.warn("25P01", "there is no transaction in progress");
        }
        open
    }

    pub(super) async fn commit(&mut self, open: Open) -> Result<Outcome, Failure> {
        let (before, wanted) = (open.before.clone(), open.wanted_rows());
        match self.commit_checked(open).await {
            Ok(()) => Ok(Outcome::Set("COMMIT".into(), self.settings.end(None))),
            Err(failure) => {
                if fault::is_conflict(&failure) {
                    self.turns.note_conflict(&wanted);
                }
                self.settings.end(Some(before));
                Err(failure)
            }
        }
    }

    async fn commit_checked(&self, mut open: Open) -> Result<(), Failure> {
        let securing = self.evaluator.securing(self.settings.waits_until_secured());
        let handle = securing.as_ref().unwrap_or(&self.evaluator.handle);
        if !handle.is_global() && !open.fits_a_write() {
            return large::commit::carry_out(&self.evaluator, open, false).await;
        }
        if holding::is_needed(open.definitions())? {
            return holding::carry_out(&self.evaluator, open).await;
        }
        let checked = match handle.is_global() {
            true => {
                let (parts, tables) = open.written()?;
                match early::before_commit(handle, tables, &parts).await {
                    Ok(checked) => checked,
                    // What it took of a row may be another's by now, and ON CONFLICT may meet one.
                    Err(failure) if failure.code.starts_with("23") => {
                        let overtaken = matches!(open.is_overtaken(handle).await, Ok(true));
                        let met = failure.code == "23505" && !overtaken && open.is_met(handle).await;
                        return Err(if overtaken || met { fault::conflict() } else { failure });
                    }
                    Err(failure) => return Err(failure),
                }
            }
            false => None,
        };
        let may_be_large = !handle.is_global() && open.may_be_large();
        match open.commit(handle, checked).await {
            // One entry does not have all of it with what it changes in indexes. Nothing was done.
            Err(failure) if may_be_large && fault::is_too_much(&failure) => {
                large::commit::carry_out(&self.evaluator, open, true).await
            }
            done => done,
        }
    }

    /// A commit was not secured in time. It was committed, and that is what the client was told (PR-370).
    pub(super) fn note_late(&mut self) {
        if self.evaluator.asker.late.swap(false, Ordering::AcqRel) {
            let message =
                "the transaction is committed, but not all of its partitions have secured it in time";
            self.warn("01000", message);
        }
    }

    pub(super) fn roll_back(&mut self, open: Open) -> Outcome {
        if open.defined {
            self.warn("01000", "tables that the transaction has created or dropped stay as they are");
        }
        Outcome::Set("ROLLBACK".into(), self.settings.end(Some(open.before)))
    }
}
