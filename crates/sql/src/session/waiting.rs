//! What a statement sees, and waiting for rows that other sessions have written and not committed, as
//! PostgreSQL does.

use super::SqlSession;
use crate::deferring::Setting;
use crate::early;
use crate::edits::Edits;
use crate::fault;
use crate::read::{self, Values};
use crate::statements::{Statement, canceled};
use crate::txn::turns::{Leaver, Row, deadline};
use crate::txn::{Isolation, Modes, TurnGuard, View, global};
use bytes::Bytes;
use client::Table;
use pg::{Failure, Outcome};
use std::collections::BTreeSet;
use tokio::time::Instant;
use types::TableRecord;
use types::data::Value;

/// A statement that writes more rows waits for none of them.
const MAX_AWAITED_ROWS: usize = 1_000;

impl SqlSession {
    /// What a statement sees.
    pub(super) async fn view(&mut self) -> Result<View, Failure> {
        let handle = &self.evaluator.handle;
        let begun = async {
            match &mut self.open {
                None if handle.is_global() => global::begin(handle, &View::default()).await,
                None => Ok(View::default()),
                Some(open) => open.statement(handle, self.settings.patience()).await,
            }
        };
        tokio::select! {
            view = begun => view,
            () = self.evaluator.cancel.wait() => Err(canceled()),
        }
    }

    /// What a statement of the transaction is refused for. If rows that it has changed are others by now, or
    /// ON CONFLICT would meet one, it is to begin again, whatever it has met since.
    pub(super) async fn unless_overtaken(&self, failure: Failure) -> Failure {
        let Some(open) = self.open.as_ref().filter(|_| failure.code.starts_with("23")) else {
            return failure;
        };
        let handle = &self.evaluator.handle;
        let overtaken = matches!(open.is_overtaken(handle).await, Ok(true));
        if overtaken || failure.code == "23505" && open.is_met(handle).await {
            open.note_conflict();
            return fault::conflict();
        }
        failure
    }

    /// True if the transaction's statements see what others have committed of this table until then: only
    /// there it helps to wait for these.
    fn takes_turns(&self, table: &TableRecord) -> bool {
        let committed = self.open.as_ref().is_some_and(|open| open.isolation == Isolation::Committed);
        committed && table.database().is_some()
    }

    /// Waits for the one row that a statement changes, before it is read.
    pub(super) async fn first_in_turn(
        &mut self,
        statement: &Statement<'_>,
        values: &Values,
        until: Instant,
    ) -> Result<(), Failure> {
        let row = only_row(statement, values).filter(|_| self.takes_turns(statement.table()));
        let Some((table, key)) = row else { return Ok(()) };
        if let Some(open) = &mut self.open {
            let place = (&self.evaluator.handle, &table);
            open.take_turns(place, vec![key], (until, &self.evaluator.cancel)).await?;
        }
        Ok(())
    }

    /// The same for a statement by itself, which has the row until it is done.
    pub(super) async fn alone_in_turn(
        &self,
        statement: &Statement<'_>,
        values: &Values,
    ) -> Result<Option<TurnGuard>, Failure> {
        let row = only_row(statement, values).filter(|_| statement.table().database().is_some());
        let Some((table, key)) = row else { return Ok(None) };
        let mut held = TurnGuard::new(&self.turns);
        let place = (&self.evaluator.handle, &table);
        held.take_among_all(place, key, (deadline(), &self.evaluator.cancel)).await?;
        Ok(Some(held))
    }

    /// Tells a client at once what COMMIT would tell it, where its statements see what others have committed.
    pub(super) async fn keeps_constraints(&self, all: &[Edits], view: &View) -> Result<(), Failure> {
        let told = all.first().is_some_and(|edits| self.takes_turns(edits.table.record()));
        match self.open.as_ref().filter(|_| told) {
            Some(open) => early::look(&self.evaluator.handle, all, (view, open.timing())).await,
            None => Ok(()),
        }
    }

    /// SET CONSTRAINTS. What was written until then and was deferred is looked at, if it is not any more.
    pub(super) async fn set_constraints(&mut self, setting: &Setting) -> Result<Outcome, Failure> {
        if self.grouped && self.open.is_none() {
            self.open = Some(self.begun(true, Modes::default()));
        }
        let catalog = self.evaluator.handle.catalog().ok_or_else(fault::not_ready)?;
        let Some(open) = &mut self.open else {
            self.warn("25P01", "SET CONSTRAINTS can only be used in transaction blocks");
            return Ok(Outcome::Done("SET CONSTRAINTS".into()));
        };
        let turned = open.set_timing(setting, &catalog);
        if !turned.is_empty() && !open.buffer().is_empty() {
            let view = self.view().await?;
            let looked = tokio::select! {
                looked = early::look_back(&self.evaluator.handle, &view, &turned) => looked,
                () = self.evaluator.cancel.wait() => return Err(canceled()),
            };
            if let Err(failure) = looked {
                return Err(self.unless_overtaken(failure).await);
            }
        }
        Ok(Outcome::Done("SET CONSTRAINTS".into()))
    }

    /// Waits for the rows that a statement changes or locks. True if it had to wait: they are to be
    /// read again.
    pub(super) async fn all_in_turn(&mut self, edits: &Edits, until: Instant) -> Result<bool, Failure> {
        if !self.takes_turns(edits.table.record()) || edits.edits.len() > MAX_AWAITED_ROWS {
            return Ok(false);
        }
        let there = edits.edits.iter().filter(|edit| edit.existed);
        let keys = there.map(|edit| edit.key.clone()).collect();
        let place = (&self.evaluator.handle, &edits.table);
        match &mut self.open {
            Some(open) => open.take_turns(place, keys, (until, &self.evaluator.cancel)).await,
            None => Ok(false),
        }
    }
}

/// How often rows that are free are looked for: others take and pass on some meanwhile.
const MAX_LOOKS: usize = 64;

/// SKIP LOCKED.
impl SqlSession {
    /// The rows that somebody has of this table, if sessions take turns at these, as the open transaction
    /// sees it, or nobody's.
    pub(super) fn held_rows(&self, table: &TableRecord) -> Option<Leaver> {
        match &self.open {
            None => table.database().is_some().then(|| TurnGuard::new(&self.turns).leaver()),
            Some(open) => self.takes_turns(table).then(|| open.held()),
        }
    }

    /// Takes the rows that a SELECT gives, none of which anybody had. True if it is to be done again: what
    /// has become of rows that were just taken is to be read, and some that another one was faster with are
    /// to be left out. `tried` are the rows that it took before.
    pub(super) fn those_that_are_free(
        &mut self,
        edits: &Edits,
        tried: &mut Vec<BTreeSet<Row>>,
    ) -> Result<bool, Failure> {
        if !self.takes_turns(edits.table.record()) {
            return Ok(false);
        }
        let Some(open) = &mut self.open else { return Ok(false) };
        let rows: BTreeSet<Row> =
            edits.edits.iter().map(|edit| (edits.table.id(), edit.key.clone())).collect();
        let (again, taken) = open.take_free(&rows, tried.last());
        tried.push(taken);
        match again && tried.len() >= MAX_LOOKS {
            true => Err(fault::conflict()),
            false => Ok(again),
        }
    }
}

/// The row that a statement changes, if its whole key is given: its table and its encoded key.
fn only_row(statement: &Statement<'_>, values: &Values) -> Option<(Table, Bytes)> {
    let Statement::Change(change) = statement else { return None };
    let key: Vec<Value> = change.point.as_ref()?.iter().map(|slot| values.of(slot)).collect();
    let table = Table::new(change.table.clone());
    let key = read::encoded_key(&table, &key)?;
    Some((table, key))
}
