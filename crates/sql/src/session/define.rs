//! Statements that make, alter or drop something, and plans of statements on what was made meanwhile.

use super::SqlSession;
use super::cursors::Resolved;
use crate::alter::{self, Rekey};
use crate::alter_database::{self, Change};
use crate::altering::apply::{self, SequenceChanges};
use crate::altering::rewrite::{self, Rewrite};
use crate::altering::{Altering, carry};
use crate::catalog::Catalog;
use crate::constraining::{self, Constraining, Step};
use crate::constraints::define::{self, Declared, Place, What};
use crate::database;
use crate::ddl;
use crate::driver::Place as Where;
use crate::fault;
use crate::held;
use crate::indexes;
use crate::moved;
use crate::moving::{self, Move};
use crate::numbering;
use crate::plan::{Parsed, StatementPlan, Work, plan};
use crate::read::Values;
use crate::several;
use crate::truncate;
use crate::txn::Open;
use crate::views;
use pg::{Failure, Kind, Outcome};
use std::collections::BTreeSet;
use std::sync::Arc;
use types::{CatalogTable, TableId, TableRecord};

impl SqlSession {
    /// The plan of a statement. What is wrong with it may be right since somebody looked at the database's
    /// tables.
    pub(super) async fn planned(
        &mut self,
        parsed: &Parsed,
        given: &[Option<Kind>],
    ) -> Result<Arc<StatementPlan>, Failure> {
        self.see_own_tables();
        match self.named_plan(parsed)? {
            Some(Resolved::Plan(plan)) => return Ok(plan),
            Some(Resolved::Statement(parsed)) => return Box::pin(self.planned(&parsed, given)).await,
            None => {}
        }
        let (handle, path) = (&self.evaluator.handle, self.settings.search_path());
        // Tables that have partitions for themselves are there whether others can be looked at or not.
        let known = handle.catalog().filter(|_| handle.place() == Where::Shared && handle.must_look());
        let known = known.and_then(|catalog| plan(&catalog, &path, parsed, given).ok());
        if let Some(plan) = known.filter(|plan| plan.work.is_bare()) {
            return Ok(plan);
        }
        let catalog = match handle.current().await {
            Ok(catalog) => catalog,
            // A transaction can always be ended, also where its database is gone.
            Err(failure) => {
                let apart = plan(&Catalog::default(), &path, parsed, given).ok();
                return apart.filter(|plan| plan.work.names_no_table()).ok_or(failure);
            }
        };
        let planned = plan(&catalog, &path, parsed, given);
        if handle.database().is_none() || planned.is_ok() {
            return planned;
        }
        // What has moved out meanwhile gets its name.
        let newer: Arc<Catalog> = moved::settled(handle).await?;
        if newer.revision == catalog.revision { planned } else { plan(&newer, &path, parsed, given) }
    }

    /// A partition has other tables than were thought. It may be behind: somebody has changed tables, and
    /// stopped before all partitions had the change, or holds one, and is gone. Where that cannot be helped
    /// now, the statement says so.
    pub(super) async fn bring_level(&self) {
        drop(several::level(&self.evaluator.handle).await);
        drop(database::lift_abandoned(&self.evaluator.handle).await);
    }

    /// The plan as the tables are now. One that it names may just have moved out: then it gets its name.
    pub(super) async fn fresh_or_moved(
        &self,
        known: Arc<StatementPlan>,
    ) -> Result<Arc<StatementPlan>, Failure> {
        let handle = &self.evaluator.handle;
        // Of a table that was bare nobody may have looked yet for what has taken its place.
        let bare = known.work.is_bare() && handle.database().is_some();
        let moved = || handle.catalog().is_some_and(|catalog| !catalog.under_way.moved.is_empty());
        match self.fresh(known.clone()) {
            Err(failure) if failure.code == "42P01" && (bare || moved()) => {
                moved::settled(handle).await?;
                self.fresh(known)
            }
            planned => planned,
        }
    }

    /// Makes, alters or drops something, once none of the bare tables that it alters or drops is held
    /// (PR-402).
    pub(super) async fn define_once_free(&mut self, work: &Work) -> Result<Outcome, Failure> {
        let concerns = |table: &TableRecord| match work {
            Work::DropTables { names, .. } => names.contains(&table.name),
            Work::AlterTable(Some(request)) => request.name == table.name,
            Work::Indexes(change) => change.requests.iter().any(|request| request.name == table.name),
            _ => false,
        };
        match work {
            Work::DropTables { names, .. } | Work::Truncate { names, .. } => ddl::not_moving(names)?,
            Work::Alter(altering) | Work::AddIdentity(altering, _) => ddl::not_moving([&altering.table])?,
            Work::Rekey(key) => ddl::not_moving([&key.table])?,
            Work::Constrain(Some(change), _) => ddl::not_moving([&change.table])?,
            _ => {}
        }
        // Of several things some may be done.
        let may_repeat = match work {
            Work::DropTables { names, .. } => names.len() == 1,
            Work::Indexes(change) => change.requests.len() == 1,
            Work::AlterTable(_) => true,
            _ => false,
        };
        loop {
            while held::any(&self.evaluator.handle, concerns) {
                database::lift_abandoned(&self.evaluator.handle).await?;
                self.pause().await?;
            }
            match self.define(work).await {
                // The controllers know of a hold of which this node has not heard yet.
                Err(failure) if may_repeat && fault::is_being_moved(&failure) => self.pause().await?,
                done => {
                    if done.is_ok() && matches!(work, Work::CreateTable(create, _) if ddl::is_filled(create))
                    {
                        self.note(ddl::NO_FILL.into());
                    }
                    self.note_cascaded(work, done.is_ok());
                    return done;
                }
            }
        }
    }

    /// Says which tables a TRUNCATE that was done has emptied beside those that it names.
    fn note_cascaded(&mut self, work: &Work, done: bool) {
        let Work::Truncate { names, named, .. } = work else { return };
        for name in names.iter().skip(*named).filter(|_| done) {
            self.note(format!("truncate cascades to table \"{name}\""));
        }
    }

    /// Makes, alters or drops tables, indexes or databases.
    pub(super) async fn define(&mut self, work: &Work) -> Result<Outcome, Failure> {
        let handle = self.evaluator.handle.clone();
        if work.shares() {
            database::share(&handle).await?;
        }
        if handle.spread().is_some() && !matches!(work, Work::AlterDatabase(_)) {
            // A transaction is one entry, and each partition makes its own.
            self.defining(work)?;
        }
        match work {
            Work::Sequence(statement) => return self.sequence(statement).await,
            Work::View(statement) => return self.define_view(statement).await,
            Work::Schema(statement) => return self.define_schema(statement).await,
            Work::Procedure(statement) => return self.define_procedure(statement).await,
            Work::AddIdentity(altering, counting) => return self.add_identity(altering, counting).await,
            Work::Move(change) => return self.move_out(change).await,
            Work::CreateDatabase(_) | Work::AlterDatabase(_) | Work::DropDatabase { .. } => {
                return self.define_database(work).await;
            }
            _ => {}
        }
        if self.open.is_some() && handle.spread().is_none() && self.define_later(work).await? {
            return Ok(Outcome::Done(work.name().into()));
        }
        self.defining(work)?;
        let apart = handle.place() == Where::Shared;
        match work {
            Work::CreateTable(create, indexes) if !(apart && ddl::is_apart(create)) => {
                let asked = ddl::in_database(create, indexes)?;
                let name = asked.0.clone();
                match database::create_table(&handle, asked, create.if_not_exists).await? {
                    true => self.empty(&[name]).await?,
                    false => self.note(format!("relation \"{name}\" already exists, skipping")),
                }
            }
            Work::Truncate { names, restart, .. } => {
                truncate::truncate(&handle, names, *restart).await?;
                self.empty(names).await?;
            }
            Work::Rekey(key) => self.rekey(key).await?,
            Work::CreateTable(create, _) => {
                ddl::create(&handle, ddl::request(create)?, create.if_not_exists).await?;
            }
            Work::Constrain(Some(change), _) => {
                let values = Values { parameters: Vec::new(), now: super::now() };
                let notes = constraining::carry_out(&self.evaluator, change, &values).await?;
                notes.into_iter().for_each(|note| self.note(note));
            }
            Work::Alter(altering) => {
                let values = Values { parameters: Vec::new(), now: super::now() };
                let notes = carry::carry_out(&self.evaluator, altering, &values).await?;
                notes.into_iter().for_each(|note| self.note(note));
            }
            Work::AlterTable(Some(request)) => alter::alter(&handle, request.clone()).await?,
            Work::Indexes(change) => {
                indexes::carry_out(&handle, &change.requests).await?;
                return Ok(Outcome::Done(change.tag.into()));
            }
            Work::DropTables { names, if_exists, cascade } => {
                let how = (*if_exists, *cascade);
                for note in database::drop_tables(&handle, names.clone(), how).await? {
                    self.note(note);
                }
            }
            _ => {}
        }
        Ok(Outcome::Done(work.name().into()))
    }

    /// Makes, changes or drops a database. What changes nothing may be said in a transaction, too.
    async fn define_database(&mut self, work: &Work) -> Result<Outcome, Failure> {
        if work.is_about_databases() {
            self.defining(work)?;
        }
        let handle = self.evaluator.handle.clone();
        match work {
            Work::CreateDatabase(request) => database::create(&handle, (**request).clone()).await?,
            Work::AlterDatabase(alter) => {
                alter_database::carry_out(&handle, alter, self.listed.all()).await?;
                if let Change::Nothing(Some(told)) = alter.change {
                    self.note(told.into());
                }
            }
            Work::DropDatabase { name, if_exists, force } => {
                let how = (*if_exists, *force);
                database::drop_one(&handle, name, how, self.listed.all()).await?;
            }
            _ => {}
        }
        Ok(Outcome::Done(work.name().into()))
    }

    /// Gives a table partitions of its own.
    async fn move_out(&mut self, change: &Move) -> Result<Outcome, Failure> {
        if self.open.is_some() {
            let message = "ALTER TABLE ... SET (partitions) cannot run inside a transaction block";
            return Err(Failure::new("25001", message));
        }
        let note = moving::carry_out(&self.evaluator, change).await?;
        self.note(note);
        Ok(Outcome::Done("ALTER TABLE".into()))
    }

    /// The open transaction, if there is one, has made or emptied these tables, which was done at once.
    pub(super) async fn empty(&mut self, names: &[String]) -> Result<(), Failure> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let catalog = self.evaluator.handle.current().await?;
        open.emptied.extend(names.iter().filter_map(|name| Some(catalog.table(name)?.id)));
        Ok(())
    }

    /// Something that the client may want to know.
    pub(super) fn note(&mut self, message: String) {
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
        let apart = handle.place() == Where::Shared;
        match work {
            Work::CreateTable(create, _) if apart && ddl::is_apart(create) => return Ok(false),
            Work::DropTables { names, .. } if names.iter().any(|name| !catalog.is_within(name)) => {
                return Ok(false);
            }
            Work::CreateTable(create, indexes) => {
                let (name, schema, declared, numbered) = ddl::in_database(create, indexes)?;
                match (catalog.has_relation(&name), create.if_not_exists) {
                    (true, true) => self.note(format!("relation \"{name}\" already exists, skipping")),
                    (true, false) => return Err(database::taken(&name)),
                    (false, _) => {
                        let schema = several::placed(&handle, schema)?;
                        database::counted(&handle, &schema).await?;
                        let count = 1 + declared.len() + numbered.len();
                        let first = database::numbers(&handle, count as u32).await?;
                        let now = self.catalog_now(&catalog);
                        let sequences = first + 1 + declared.len() as u32;
                        let (schema, sequences) =
                            numbering::columns(&now, (&name, &schema), &numbered, sequences)?;
                        let asked = (&name[..], &schema, &declared[..]);
                        self.make(&catalog, database::constrained(&now, asked, first)?)?;
                        for sequence in sequences {
                            self.make(&catalog, sequence)?;
                        }
                    }
                }
            }
            Work::DropTables { names, if_exists, .. } => {
                let now = self.catalog_now(&catalog);
                let ids = names.iter().filter_map(|name| now.table(name)).map(|table| table.id).collect();
                // A table that the transaction has not made is altered by itself alone.
                database::not_referred(&now, &database::referring(&now, &ids))?;
                numbering::number_no_others(&now, &ids)?;
                for name in names {
                    match self.catalog_now(&catalog).table(name).cloned() {
                        Some(table) => {
                            views::not_shown(&now, name, "table", &BTreeSet::new())?;
                            self.unmake(&catalog, &table)?;
                            for sequence in numbering::owned(&now, &table) {
                                self.unmake(&catalog, &sequence)?;
                            }
                        }
                        None if *if_exists => {
                            self.note(format!("table \"{name}\" does not exist, skipping"));
                        }
                        None => return Err(database::missing(name)),
                    }
                }
            }
            Work::Truncate { names, restart, .. } => self.truncate_later(&catalog, names, *restart).await?,
            Work::Alter(altering) => return self.alter_later(&catalog, altering).await,
            Work::Rekey(key) => return self.rekey_later(&catalog, key),
            Work::Constrain(Some(change), _) => return self.constrain_later(&catalog, change).await,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Tables without a row under the names of these, when the transaction commits.
    async fn truncate_later(
        &mut self,
        catalog: &Arc<Catalog>,
        names: &[String],
        restart: bool,
    ) -> Result<(), Failure> {
        let handle = self.evaluator.handle.clone();
        let now = self.catalog_now(catalog);
        if restart && truncate::is_shared(&now, names) {
            let what = "RESTART IDENTITY in a transaction of numbers that other tables have, too";
            return Err(Failure::unsupported(what, "send it by itself"));
        }
        let owned = truncate::owned(&now, names).len();
        let first = database::numbers(&handle, (names.len() + owned) as u32).await?;
        let mut sequences = first + names.len() as u32;
        let renamed = truncate::renamed(&now, names, first)?;
        for (name, id) in names.iter().zip(first..) {
            let missing = || Failure::new("42P01", format!("relation \"{name}\" does not exist"));
            let table = self.catalog_now(catalog).table(name).cloned().ok_or_else(missing)?;
            let now = self.catalog_now(catalog);
            self.unmake(catalog, &table)?;
            let mut emptied = truncate::emptied(&table, (TableId(id), &renamed), restart);
            let again = numbering::again(&now, &table, restart, sequences);
            sequences += again.len() as u32;
            for (old, new) in again {
                numbering::instead(&mut emptied, old.id, new.id);
                self.unmake(catalog, &old)?;
                self.make(catalog, new)?;
            }
            self.make(catalog, emptied)?;
        }
        Ok(())
    }

    /// The tables as they are after what was done until now.
    fn catalog_now(&self, catalog: &Arc<Catalog>) -> Arc<Catalog> {
        let own = self.open.as_ref().and_then(|open| open.definitions().catalog().cloned());
        own.unwrap_or_else(|| catalog.clone())
    }

    pub(super) fn make(&mut self, catalog: &Arc<Catalog>, table: CatalogTable) -> Result<(), Failure> {
        let record = self.evaluator.handle.database_record()?.record().with_table(table);
        self.may_define()?;
        if let Some(open) = &mut self.open {
            open.define(|definitions| definitions.make(catalog, record));
        }
        Ok(())
    }

    pub(super) fn unmake(&mut self, catalog: &Arc<Catalog>, table: &TableRecord) -> Result<(), Failure> {
        self.may_define()?;
        if let Some(open) = &mut self.open {
            open.define(|definitions| definitions.unmake(catalog, table));
        }
        Ok(())
    }

    /// What a transaction writes lies in one partition, and tables that lie together are rows of theirs.
    fn may_define(&self) -> Result<(), Failure> {
        let Some(table) = self.open.as_ref().and_then(Open::has_written_apart) else { return Ok(()) };
        let what = "making or dropping tables in a transaction that has written in another partition";
        Err(Failure::unsupported(what, format!("rows of \"{}\" are written: COMMIT first", table.name())))
    }

    /// True if the transaction has made the table, and may still make it otherwise: no row of it is written.
    fn may_remake(&self, id: TableId, rows: bool) -> bool {
        let Some(open) = &self.open else { return false };
        let definitions = open.definitions();
        definitions.has_made(id) && !definitions.has_loaded(id) && (!rows || !open.has_written(id))
    }

    /// Another definition for a table that the transaction has made.
    pub(super) async fn alter_later(
        &mut self,
        catalog: &Arc<Catalog>,
        altering: &Altering,
    ) -> Result<bool, Failure> {
        let Some(table) = catalog.table(&altering.table).cloned() else { return Ok(false) };
        if !self.may_remake(table.id, false) {
            return Ok(false);
        }
        let handle = self.evaluator.handle.clone();
        let now = self.open.as_ref().map_or_else(super::now, |open| open.now);
        // Rows that it has written say by which columns.
        let version = database::numbers(&handle, 1 + apply::constraints(altering)).await?;
        let seen = self.catalog_now(catalog);
        let mut applied = apply::apply(&seen, &table, altering, (version + 1, now))?;
        let written = self.open.as_ref().is_some_and(|open| open.has_written(table.id));
        if !written {
            // What cannot become of rows is refused whether there are any or not.
            rewrite::transforms(&table, &applied)?;
            applied.fill();
        } else if applied.looks_at_rows(&table.schema) {
            let hint = "COMMIT first, or do it before rows are written";
            return Err(Failure::unsupported("a condition for rows that the transaction has written", hint));
        }
        if !applied.gone.is_empty() {
            let hint = "COMMIT first, or drop the foreign key by itself";
            return Err(Failure::unsupported("dropping foreign keys with a column in a transaction", hint));
        }
        let rekeyed = match applied.rekeys(&table.schema) {
            true => Some(Rewrite::of(&seen, &table, &applied)?.of_no_rows(&seen, &table)?),
            false => None,
        };
        let SequenceChanges { made, gone } = std::mem::take(&mut applied.sequences);
        if seen.all().any(|other| other.id != table.id && numbering::is_numbered_by(other, &gone)) {
            let hint = "COMMIT first, or drop the default by itself";
            return Err(Failure::unsupported("dropping defaults with a column in a transaction", hint));
        }
        applied.notes.iter().for_each(|note| self.note(note.clone()));
        for sequence in seen.others().filter(|other| gone.contains(&other.id)) {
            self.unmake(catalog, sequence)?;
        }
        for sequence in made {
            self.make(catalog, sequence)?;
        }
        let to = match rekeyed {
            Some(schema) => CatalogTable::new(table.id, &applied.name, schema, table.created_ms),
            None => carry::renewed(&table, &applied, version)?,
        };
        self.make(catalog, to)?;
        Ok(true)
    }

    /// Another key for a table that the transaction has made.
    fn rekey_later(&mut self, catalog: &Arc<Catalog>, key: &Rekey) -> Result<bool, Failure> {
        let Some(table) = catalog.table(&key.table).cloned() else { return Ok(false) };
        fault::together(&table, "another primary key")?;
        if !self.may_remake(table.id, true) {
            let hint = "COMMIT first, or name the key in CREATE TABLE";
            return Err(Failure::unsupported(
                "another primary key in a transaction for a table that it has not made, or has written",
                hint,
            ));
        }
        if let Some(fault) = key.fault(&table.schema) {
            return Err(fault);
        }
        let now = self.catalog_now(catalog);
        let schema = Rewrite::keyed(&now, &table, key.columns.as_deref())?.of_no_rows(&now, &table)?;
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
        let may = |declared: &Vec<Declared>| {
            let indexes = declared.iter().all(|one| matches!(one.what, What::Index(_)));
            self.may_remake(table.id, !indexes)
        };
        let Some(declared) = added.collect::<Option<Vec<_>>>().filter(may) else {
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

    /// Gives a table another key, with its rows.
    async fn rekey(&mut self, key: &Rekey) -> Result<(), Failure> {
        let catalog = self.evaluator.handle.look().await?;
        if catalog.table(&key.table).is_none() && key.if_exists {
            self.note(format!("relation \"{}\" does not exist, skipping", key.table));
            return Ok(());
        }
        let values = Values { parameters: Vec::new(), now: super::now() };
        rewrite::carry_out(&self.evaluator, (&key.table, 0), &values, |catalog, table, _| {
            match key.fault(&table.schema) {
                Some(fault) => Err(fault),
                None => Rewrite::keyed(catalog, table, key.columns.as_deref()),
            }
        })
        .await
    }

    /// Waits a moment, while somebody copies the rows of a table.
    pub(super) async fn pause(&self) -> Result<(), Failure> {
        rewrite::pause(&self.evaluator).await
    }

    /// Tables are made and dropped at once, whatever becomes of the transaction.
    pub(super) fn defining(&mut self, work: &Work) -> Result<(), Failure> {
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
