//! Statements that make, alter or drop something, and plans of statements on what was made meanwhile.

use super::SqlSession;
use crate::alter;
use crate::catalog::Catalog;
use crate::database;
use crate::ddl;
use crate::indexes;
use crate::plan::{Parsed, Plan, Work, plan};
use pg::{Failure, Kind, Outcome};
use std::sync::Arc;

impl SqlSession {
    /// The plan of a statement. What is wrong with it may be right since somebody looked at the database's
    /// tables.
    pub(super) async fn planned(
        &mut self,
        parsed: &Parsed,
        given: &[Option<Kind>],
    ) -> Result<Arc<Plan>, Failure> {
        let handle = &self.evaluator.handle;
        let catalog = match handle.current().await {
            Ok(catalog) => catalog,
            // A transaction can always be ended, also where its database is gone.
            Err(failure) => {
                let apart = plan(&Catalog::default(), parsed, given).ok();
                return apart.filter(|plan| plan.work.names_no_table()).ok_or(failure);
            }
        };
        let planned = plan(&catalog, parsed, given);
        if handle.database().is_none() || planned.is_ok() {
            return planned;
        }
        let newer: Arc<Catalog> = handle.look().await?;
        if newer.revision == catalog.revision { planned } else { plan(&newer, parsed, given) }
    }

    /// Makes, alters or drops tables, indexes or databases.
    pub(super) async fn define(&mut self, work: &Work) -> Result<Outcome, Failure> {
        self.defining(work)?;
        let handle = self.evaluator.handle.clone();
        let within = handle.database().is_some();
        match work {
            Work::CreateTable(create) if within => {
                database::create_table(&handle, ddl::in_database(create)?, create.if_not_exists).await?;
            }
            Work::CreateTable(create) => {
                ddl::create(&handle, ddl::request(create)?, create.if_not_exists).await?;
            }
            Work::AlterTable(Some(request)) if within => {
                database::alter_table(&handle, request.clone()).await?;
            }
            Work::AlterTable(Some(request)) => alter::alter(&handle, request.clone()).await?,
            Work::Indexes(change) if within => {
                let hint = "only tables of the database \"understudy\" have indexes besides their keys";
                return Err(Failure::unsupported(format!("{} in a database", change.tag), hint));
            }
            Work::Indexes(change) => {
                indexes::carry_out(&handle, &change.requests).await?;
                return Ok(Outcome::Done(change.tag.into()));
            }
            Work::DropTables { names, if_exists } if within => {
                database::drop_tables(&handle, names.clone(), *if_exists).await?;
            }
            Work::DropTables { names, if_exists } => {
                ddl::drop_tables(&handle, names.clone(), *if_exists).await?;
            }
            Work::CreateDatabase(request) => database::create(&handle, (**request).clone()).await?,
            Work::DropDatabase { name, if_exists, force } => {
                let used = self.listed.all().all().iter().any(|session| session.database.1 == *name);
                database::drop_one(&handle, name, (*if_exists, *force, used)).await?;
            }
            _ => {}
        }
        Ok(Outcome::Done(work.name().into()))
    }

    /// Tables are made and dropped at once, whatever becomes of the transaction.
    fn defining(&mut self, work: &Work) -> Result<(), Failure> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if work.is_about_databases() {
            let message = format!("{} cannot run inside a transaction block", work.name());
            return Err(Failure::new("25001", message));
        }
        if !open.is_unwritten() {
            let message = format!("{} cannot run in a transaction that has written rows", work.name());
            return Err(
                Failure::new("25001", message).hint("commit first: tables are made and dropped at once")
            );
        }
        open.defined = true;
        Ok(())
    }
}
