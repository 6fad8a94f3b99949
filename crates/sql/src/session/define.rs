//! Statements that make, alter or drop something, and plans of statements on what was made meanwhile.

use super::SqlSession;
use crate::alter::{self, AddKey};
use crate::catalog::Catalog;
use crate::constraining::{self, Constraining, Step};
use crate::constraints;
use crate::constraints::define::{self, Place};
use crate::database;
use crate::ddl;
use crate::fault;
use crate::indexes;
use crate::plan::{Parsed, Plan, Work, plan};
use crate::read::Values;
use crate::refill;
use crate::statements::canceled;
use client::{Client, Table};
use pg::{Failure, Kind, Outcome};
use std::sync::Arc;
use std::time::Duration;
use types::data::Schema;
use types::{CatalogTable, TableId, TableRecord};
use wire::control::AlterTable as AlterRequest;

/// Between two looks whether a table can be written again.
const PAUSE: Duration = Duration::from_millis(50);
/// How often the rows of a table are copied again because some were lost with a primary.
const LOSSES: usize = 3;

impl SqlSession {
    /// The plan of a statement. What is wrong with it may be right since somebody looked at the database's
    /// tables.
    pub(super) async fn planned(
        &mut self,
        parsed: &Parsed,
        given: &[Option<Kind>],
    ) -> Result<Arc<Plan>, Failure> {
        self.see_own_tables();
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
        let handle = self.evaluator.handle.clone();
        let within = handle.database().is_some();
        if within && self.open.is_some() && self.define_later(work).await? {
            return Ok(Outcome::Done(work.name().into()));
        }
        self.defining(work)?;
        match work {
            Work::CreateTable(create) if within => {
                let asked = ddl::in_database(create)?;
                let name = asked.0.clone();
                if !database::create_table(&handle, asked, create.if_not_exists).await? {
                    self.note(format!("relation \"{name}\" already exists, skipping"));
                }
            }
            Work::Truncate { names, restart } => database::truncate(&handle, names, *restart).await?,
            Work::AddKey(key) if within => self.add_key(key).await?,
            Work::AddKey(key) => {
                let hint = "a table with partitions for itself gets its key when it is created";
                return Err(Failure::unsupported(format!("a primary key for \"{}\"", key.table), hint));
            }
            Work::CreateTable(create) => {
                ddl::create(&handle, ddl::request(create)?, create.if_not_exists).await?;
            }
            Work::Constrain(None, _) => {}
            Work::Constrain(Some(change), _) => {
                let values = Values { parameters: Vec::new(), now: super::now() };
                let notes = constraining::carry_out(&self.evaluator, change, &values).await?;
                notes.into_iter().for_each(|note| self.note(note));
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
            Work::DropTables { names, if_exists, cascade } if within => {
                let how = (*if_exists, *cascade);
                for note in database::drop_tables(&handle, names.clone(), how).await? {
                    self.note(note);
                }
            }
            Work::DropTables { names, if_exists, .. } => {
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

    /// Something that the client may want to know.
    fn note(&mut self, message: String) {
        self.notices.push(Failure::new("00000", message));
    }

    /// The session sees tables as its transaction has made them.
    pub(super) fn see_own_tables(&mut self) {
        let own = self.open.as_ref().and_then(|open| open.definitions().catalog().cloned());
        if own.is_some() || self.evaluator.handle.is_overlaid() {
            self.evaluator.handle = self.evaluator.handle.seeing(own);
        }
    }

    /// Makes, alters or drops tables when the transaction commits. False: it cannot wait for that.
    async fn define_later(&mut self, work: &Work) -> Result<bool, Failure> {
        let handle = self.evaluator.handle.clone();
        let catalog = handle.current().await?;
        match work {
            Work::CreateTable(create) => {
                let (name, schema, declared) = ddl::in_database(create)?;
                match (catalog.table(&name).is_some(), create.if_not_exists) {
                    (true, true) => self.note(format!("relation \"{name}\" already exists, skipping")),
                    (true, false) => return Err(database::taken(&name)),
                    (false, _) => {
                        database::counted(&handle, &schema).await?;
                        let first = database::numbers(&handle, 1 + declared.len() as u32).await?;
                        let now = self.catalog_now(&catalog);
                        let asked = (&name[..], &schema, &declared[..]);
                        self.make(&catalog, database::constrained(&now, asked, first)?)?;
                    }
                }
            }
            Work::DropTables { names, if_exists, .. } => {
                let now = self.catalog_now(&catalog);
                let ids = names.iter().filter_map(|name| now.table(name)).map(|table| table.id).collect();
                // A table that the transaction has not made is altered by itself alone.
                database::not_referred(&now, &database::referring(&now, &ids))?;
                for name in names {
                    match self.catalog_now(&catalog).table(name).cloned() {
                        Some(table) => self.unmake(&catalog, &table),
                        None if *if_exists => {
                            self.note(format!("table \"{name}\" does not exist, skipping"));
                        }
                        None => return Err(database::missing(name)),
                    }
                }
            }
            Work::Truncate { names, restart } => {
                let first = database::numbers(&handle, names.len() as u32).await?;
                let renamed = database::renamed(&self.catalog_now(&catalog), names, first)?;
                for (name, id) in names.iter().zip(first..) {
                    let missing = || Failure::new("42P01", format!("relation \"{name}\" does not exist"));
                    let table = self.catalog_now(&catalog).table(name).cloned().ok_or_else(missing)?;
                    self.unmake(&catalog, &table);
                    self.make(&catalog, database::emptied(&table, (TableId(id), &renamed), *restart))?;
                }
            }
            Work::AlterTable(Some(request)) => return self.alter_later(&catalog, request).await,
            Work::AddKey(key) => return self.add_key_later(&catalog, key),
            Work::Constrain(Some(change), _) => return self.constrain_later(&catalog, change).await,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The tables as they are after what was done until now.
    fn catalog_now(&self, catalog: &Arc<Catalog>) -> Arc<Catalog> {
        let own = self.open.as_ref().and_then(|open| open.definitions().catalog().cloned());
        own.unwrap_or_else(|| catalog.clone())
    }

    fn make(&mut self, catalog: &Arc<Catalog>, table: CatalogTable) -> Result<(), Failure> {
        let record = self.evaluator.handle.database_record()?.record().with_table(table);
        if let Some(open) = &mut self.open {
            open.define(|definitions| definitions.make(catalog, record));
        }
        Ok(())
    }

    fn unmake(&mut self, catalog: &Arc<Catalog>, table: &TableRecord) {
        if let Some(open) = &mut self.open {
            open.define(|definitions| definitions.unmake(catalog, table));
        }
    }

    /// True if the transaction has made the table, and may still make it otherwise: no row of it is written.
    fn may_remake(&self, id: TableId, rows: bool) -> bool {
        let Some(open) = &self.open else { return false };
        let definitions = open.definitions();
        definitions.has_made(id) && !definitions.has_loaded(id) && (!rows || !open.has_written(id))
    }

    /// New columns of a table that the transaction has made.
    async fn alter_later(&mut self, catalog: &Arc<Catalog>, request: &AlterRequest) -> Result<bool, Failure> {
        let Some(table) = catalog.table(&request.name).cloned() else { return Ok(false) };
        if !self.may_remake(table.id, false) {
            return Ok(false);
        }
        database::refuse_storage(request)?;
        // Rows that it has written say by which columns.
        let version = database::numbers(&self.evaluator.handle, 1).await?;
        let mut schema = table.schema.clone();
        for column in &request.add_columns {
            schema = schema
                .with_column(column.clone())
                .map_err(|error| Failure::new("42P16", error.to_string()))?;
        }
        let mut parts = schema.into_parts();
        parts.version = version;
        let schema = Schema::from_parts(parts).map_err(|error| Failure::new("42P16", error.to_string()))?;
        self.make(catalog, CatalogTable::new(table.id, &table.name, schema, table.created_ms))?;
        Ok(true)
    }

    /// A key of a table that the transaction has made.
    fn add_key_later(&mut self, catalog: &Arc<Catalog>, key: &AddKey) -> Result<bool, Failure> {
        let Some(table) = catalog.table(&key.table).cloned() else { return Ok(false) };
        if !self.may_remake(table.id, true) {
            let hint = "COMMIT first, or name the key in CREATE TABLE";
            return Err(Failure::unsupported("a primary key for a table with rows in a transaction", hint));
        }
        let schema = refill::keyed(&Table::new(table.clone()), &key.columns)?;
        self.make(catalog, CatalogTable::new(table.id, &table.name, schema, table.created_ms))?;
        Ok(true)
    }

    /// Constraints for a table that the transaction has made, as long as there is no row of it.
    async fn constrain_later(
        &mut self,
        catalog: &Arc<Catalog>,
        change: &Constraining,
    ) -> Result<bool, Failure> {
        let Some(table) = catalog.table(&change.table).cloned() else { return Ok(false) };
        if !self.open.as_ref().is_some_and(|open| open.definitions().has_made(table.id)) {
            return Ok(false);
        }
        let added = change.steps.iter().map(|step| match step {
            Step::Add { declared, .. } => Some(declared.clone()),
            Step::Drop { .. } | Step::Validate(_) => None,
        });
        let Some(declared) = added.collect::<Option<Vec<_>>>().filter(|_| self.may_remake(table.id, true))
        else {
            let hint = "COMMIT first, or name the constraint in CREATE TABLE";
            let what = "changing constraints of a table that the transaction has made and written";
            return Err(Failure::unsupported(what, hint));
        };
        let numbers = database::numbers(&self.evaluator.handle, declared.len() as u32).await?;
        let now = self.catalog_now(catalog);
        let place = Place { catalog: &now, name: &table.name, id: table.id, schema: &table.schema };
        let constraints = place.resolve(&declared, numbers)?;
        let schema = table.schema.clone().with_constraints(constraints).map_err(define::invalid)?;
        self.make(catalog, CatalogTable::new(table.id, &table.name, schema, table.created_ms))?;
        Ok(true)
    }

    /// Gives a table a key, with its rows.
    async fn add_key(&mut self, key: &AddKey) -> Result<(), Failure> {
        let handle = self.evaluator.handle.clone();
        let mut losses = 0;
        loop {
            database::lift_abandoned(&handle).await?;
            let catalog = handle.look().await?;
            let Some(table) = catalog.table(&key.table).cloned() else {
                if key.if_exists {
                    self.note(format!("relation \"{}\" does not exist, skipping", key.table));
                    return Ok(());
                }
                return Err(Failure::new("42P01", format!("relation \"{}\" does not exist", key.table)));
            };
            if let Some((child, foreign, _)) = constraints::children(&catalog, table.id).first() {
                let what = format!("a primary key for \"{}\", which others refer to", key.table);
                let hint = format!("drop the constraint \"{}\" of \"{}\" first", foreign.name, child.name);
                return Err(Failure::unsupported(what, hint));
            }
            if !catalog.under_way.held.contains_key(&table.id) {
                let (database, asked) = (handle.database_record()?, key.clone());
                let work = move |client: &mut Client| {
                    Ok(refill::add_key(client, &database, &Table::new(table), &asked))
                };
                match ddl::on_a_client(&handle, work).await? {
                    Err(failure) if fault::is_stale(&failure) => {}
                    Err(failure) if fault::is_conflict(&failure) => {
                        losses += 1;
                        if losses > LOSSES {
                            let message = format!(
                                "rows of \"{}\" that were copied were lost with a primary",
                                key.table
                            );
                            return Err(Failure::new(fault::SERIALIZATION, message)
                                .hint("nothing was changed; try again when the cluster is calm"));
                        }
                    }
                    done => {
                        handle.look_again().await;
                        return done;
                    }
                }
            }
            self.pause().await?;
        }
    }

    /// Waits a moment, while somebody copies the rows of a table.
    pub(super) async fn pause(&self) -> Result<(), Failure> {
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => Ok(()),
            () = self.evaluator.cancel.wait() => Err(canceled()),
        }
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
