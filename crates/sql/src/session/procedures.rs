//! Procedures are made and dropped like tables. Outside of transactions a call is one operation where the
//! rows are; within one it is a statement like others, and the program runs here (`calls`).

use super::SqlSession;
use crate::calls::Calling;
use crate::database;
use crate::fault::{self, Decided};
use crate::procedures::{self, Call, ProcedureStatement};
use crate::read::{CALL, Values};
use crate::statements::{Retry, canceled};
use crate::txn::{Modes, turns};
use bytes::Bytes;
use client::Procedure;
use pg::{Failure, Outcome, Rows, code};
use std::collections::BTreeSet;
use types::{TableId, TableRecord};

impl SqlSession {
    /// Makes or drops procedures.
    pub(super) async fn define_procedure(
        &mut self,
        statement: &ProcedureStatement,
    ) -> Result<Outcome, Failure> {
        let catalog = self.tables().await?;
        match statement {
            ProcedureStatement::Create(created) => {
                let name = created.name()?;
                let id = TableId(database::numbers(&self.evaluator.handle, 1).await?);
                let made = created.defined(id)?;
                if catalog.has_relation(&name) {
                    let other = catalog.other(&name).filter(|other| other.schema.procedure().is_some());
                    let before = other.filter(|_| created.replaces()).map(|other| other.id);
                    let before = before.ok_or_else(|| database::taken(&name))?;
                    self.remove_definitions(&[before].into()).await?;
                }
                self.add_definition(made).await.map_err(procedures::refused)?;
            }
            ProcedureStatement::Drop { names, if_exists } => {
                let mut ids = BTreeSet::new();
                for name in names {
                    match procedures::find(&catalog, name)? {
                        Some(procedure) => drop(ids.insert(procedure.id)),
                        None if *if_exists => {
                            self.note(format!("procedure {name} does not exist, skipping"));
                        }
                        None => return Err(procedures::missing(name)),
                    }
                }
                self.remove_definitions(&ids).await?;
            }
            ProcedureStatement::Call { .. } => return Err(Failure::new(code::INTERNAL, "nothing is made")),
        }
        Ok(Outcome::Done(statement.tag().into()))
    }

    /// CALL. What it gives, a client reads like the rows of a query.
    pub(super) async fn call(&mut self, call: &Call, values: Values) -> Result<Outcome, Failure> {
        let handle = self.evaluator.handle.clone();
        let mut arguments = Vec::new();
        if let Some(bound) = &call.arguments
            && let Outcome::Rows(_, mut rows) = self.query(bound, values).await?
        {
            arguments = rows.next().await.transpose()?.unwrap_or_default();
        }
        let internal = |why: String| Failure::new("22023", why);
        let procedure = Procedure::of_record(&handle.database_record()?, call.procedure.clone());
        let procedure = procedure.map_err(|error| internal(error.to_string()))?;
        let asked = procedure.call(arguments).map_err(|error| internal(error.to_string()))?;
        if self.open.is_some() || handle.is_global() {
            let rows = match self.open.is_some() {
                true => self.call_within(&call.procedure, asked).await?,
                false => self.call_as_transaction(&call.procedure, &asked).await?,
            };
            let rows = procedure.decoded(&rows).map_err(|error| internal(error.to_string()))?;
            return Ok(called(&call.procedure, rows));
        }
        match fault::decided(handle.call(asked.within(CALL)).await)? {
            Decided::Done(answer) => {
                let rows = procedure.rows(&answer).map_err(|error| internal(error.to_string()))?;
                Ok(called(&call.procedure, rows))
            }
            Decided::Violates(number) => {
                let message = "a constraint of a table that the procedure writes forbids it";
                Err(Failure::new("23000", message)
                    .hint(format!("it is the constraint with the number {number}")))
            }
            other => Err(Failure::new(code::INTERNAL, format!("a call was refused: {other:?}"))),
        }
    }

    /// Makes a call as a transaction of its own, again if others were faster: where transactions are global
    /// no primary has all that a call may need.
    async fn call_as_transaction(
        &mut self,
        record: &TableRecord,
        call: &client::Call,
    ) -> Result<Vec<Bytes>, Failure> {
        let mut retry = Retry::begin();
        loop {
            self.open = Some(self.begun(true, Modes::default()));
            let called = self.call_within(record, call.clone()).await;
            let open = self.open.take();
            let done = match (called, open) {
                (Ok(rows), Some(open)) => self.commit(open).await.map(|_| rows),
                (Ok(_), None) => Err(Failure::new(code::INTERNAL, "a call has ended its transaction")),
                (Err(failure), open) => {
                    drop(open.map(|open| self.roll_back(open)));
                    Err(failure)
                }
            };
            let overtaken =
                |failure: &Failure| failure.code == fault::SERIALIZATION && !fault::is_stale(failure);
            if !done.as_ref().is_err_and(overtaken) || !retry.may() {
                return done;
            }
            retry.pause(&self.evaluator).await?;
        }
    }

    /// Makes a call as a statement of the transaction: what it writes is written when that commits. Gives the
    /// rows that it gives.
    async fn call_within(&mut self, record: &TableRecord, call: client::Call) -> Result<Vec<Bytes>, Failure> {
        let until = turns::deadline();
        let catalog = self.evaluator.handle.catalog().ok_or_else(fault::not_ready)?;
        let prepared = self.procedures.prepared(&catalog, record)?;
        let calling = Calling::new(&self.evaluator.handle, call, (prepared, self.procedures.limits()))?;
        let (mut all, rows) = loop {
            let view = self.view().await?;
            let done = tokio::select! {
                done = calling.run(&self.evaluator, &view) => done,
                () = self.evaluator.cancel.wait() => return Err(canceled()),
            };
            let (all, rows) = done?;
            let mut waited = false;
            for edits in &all {
                self.check_secured(edits.table.record())?;
                waited |= self.all_in_turn(edits, until).await?;
            }
            if !waited {
                if let Err(failure) = self.keeps_constraints(&all, &view).await {
                    return Err(self.unless_overtaken(failure).await);
                }
                break (all, rows);
            }
        };
        let handle = self.evaluator.handle.clone();
        if let Some(open) = &mut self.open {
            for edits in &mut all {
                match open.definitions().has_loaded(edits.table.id()) {
                    true => open.write_loaded(&handle, edits).await?,
                    false => open.take_called(edits).await?,
                }
            }
        }
        Ok(rows)
    }
}

/// What a client is told of a call that is done.
fn called(procedure: &TableRecord, rows: Vec<pg::Row>) -> Outcome {
    match procedures::told_columns(procedure) {
        None => Outcome::Done("CALL".into()),
        Some(_) => Outcome::Rows("CALL", Rows::of(rows)),
    }
}
