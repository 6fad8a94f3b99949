//! Procedures are made and dropped like tables, and called outside of transactions: a call is one operation
//! where the rows are, and shares no transaction with anything else.

use super::SqlSession;
use crate::database;
use crate::fault::{self, Decided};
use crate::procedures::{self, Call, ProcedureStatement};
use crate::read::{CALL, Values};
use client::Procedure;
use pg::{Failure, Outcome, Rows, code};
use std::collections::BTreeSet;
use types::TableId;

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
        if self.open.is_some() {
            let hint = "end the transaction first: a call is one operation by itself, all of it or nothing";
            return Err(Failure::unsupported("CALL in a transaction block", hint));
        }
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
        match fault::decided(handle.call(asked.within(CALL)).await)? {
            Decided::Done(answer) => {
                let rows = procedure.rows(&answer).map_err(|error| internal(error.to_string()))?;
                match procedures::told_columns(&call.procedure) {
                    None => Ok(Outcome::Done("CALL".into())),
                    Some(_) => Ok(Outcome::Rows("CALL", Rows::of(rows))),
                }
            }
            Decided::Violates(number) => {
                let message = "a constraint of a table that the procedure writes forbids it";
                Err(Failure::new("23000", message)
                    .hint(format!("it is the constraint with the number {number}")))
            }
            other => Err(Failure::new(code::INTERNAL, format!("a call was refused: {other:?}"))),
        }
    }
}
