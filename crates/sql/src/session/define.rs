//! Statements that make, alter or drop something, and plans of statements on what was made meanwhile.

use super::SqlSession;
use super::cursors::Resolved;
use crate::alter::{self, Rekey};
use crate::alter_database::{self, Change};
use crate::altering::carry;
use crate::altering::rewrite::{self, Rewrite};
use crate::catalog::Catalog;
use crate::constraining;
use crate::database;
use crate::ddl;
use crate::driver::Place as Where;
use crate::fault;
use crate::held;
use crate::indexes;
use crate::moved;
use crate::moving::{self, Move};
use crate::plan::{Parsed, StatementPlan, Work, plan};
use crate::read::Values;
use crate::several;
use crate::truncate;
use pg::{Failure, Kind, Outcome};
use std::sync::Arc;
use types::TableRecord;

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
