//! A client's session: its transaction, its parameters, and the carrying out of plans.

mod copying;
mod counting;
mod cursors;
mod define;
mod ending;
mod later;
mod procedures;
mod reading;
mod schemas;
mod service;
mod table_as;
mod utility;
mod waiting;
mod within;

use crate::bind::{Bound, Locks};
use crate::calls::{Procedures, Programs};
use crate::copy::CopyInput;
use crate::database;
use crate::driver::{Driver, Handle, Place};
use crate::edits::{self, Effects};
use crate::evaluate::{Engines, Evaluator};
use crate::fault;
use crate::held;
use crate::large;
use crate::plan::{Cache, Parsed, StatementPlan, Work, plan};
use crate::read::{self, Values};
use crate::replicated;
use crate::resume::Resuming;
use crate::sequences::Sequences;
use crate::settings::{self, Settings};
use crate::statements::{self, Statement, canceled};
use crate::system::facts::Asker;
use crate::system::relations;
use crate::system::sessions::{self, Listed, Sessions};
use crate::txn::{Modes, NodeMemory, Open, Turns, View, turns};
use crate::write;
use bytes::Bytes;
use client::{Options, Table};
use pg::{Cancel, Failure, Kind, Login, Outcome, Rows, Session, Shape, Transaction, code};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use types::TableRecord;
use types::data::Value;

/// The user that everybody is.
pub const USER: &str = "understudy";
/// The database that is always there.
pub const DATABASE: &str = types::database::SHARED;
/// How often a statement is planned again because its tables are not as they were.
const MAX_PLANNINGS: usize = 8;

/// SQL on a cluster: what stands behind the door of one node.
pub struct Sql {
    handle: Handle,
    /// Plans, for each database by itself.
    caches: Mutex<BTreeMap<Place, Arc<Cache>>>,
    engines: Arc<Engines>,
    sessions: Arc<Sessions>,
    sequences: Arc<Sequences>,
    memory: Arc<NodeMemory>,
    turns: Arc<Turns>,
    programs: Programs,
    _resuming: Option<Resuming>,
    _driver: Driver,
}

impl Sql {
    /// Starts to look for the cluster, on the runtime that this is called in.
    pub fn start(options: Options, programs: Programs) -> Sql {
        let driver = Driver::start(options);
        let (engines, sequences, sessions, memory) = Default::default();
        let (turns, caches, handle) = (Arc::default(), Mutex::default(), driver.handle().clone());
        let (_resuming, _driver) = (None, driver);
        Sql { handle, caches, engines, sessions, sequences, memory, turns, programs, _resuming, _driver }
    }

    /// The way of a session in this database, and what the catalogs call it.
    fn enter(&self, name: &str) -> Result<(Handle, u32), Failure> {
        // Tools look there for what belongs to no database.
        let maintenance = name == "postgres" && self.handle.map().database(name).is_none();
        if name == DATABASE || maintenance {
            return Ok((self.handle.within(Place::Shared), relations::DATABASE));
        }
        self.handle.catalog().ok_or_else(fault::not_ready)?;
        let found = self.handle.map().database(name).cloned().ok_or_else(|| {
            Failure::new("3D000", format!("database \"{name}\" does not exist"))
                .hint(format!("\"{DATABASE}\" is always there, and CREATE DATABASE makes others"))
        })?;
        Ok((self.handle.within(Place::In(found.id)), relations::database_oid(&found)))
    }
}

impl pg::Service for Sql {
    type Session = SqlSession;

    fn open(&self, login: &Login, cancel: Cancel) -> Result<SqlSession, Failure> {
        let (handle, oid) = self.enter(&login.database).map_err(Failure::fatal)?;
        let mut settings = Settings::default();
        let mut notices = Vec::new();
        let options = login.parameters.get("options").map_or("", String::as_str);
        let given = login.parameters.iter().filter(|(name, _)| *name != "options");
        let given = given.map(|(name, value)| (name.clone(), value.clone()));
        for (name, value) in given.chain(settings::options(options).map_err(Failure::fatal)?) {
            notices.extend(settings.begin_with(&name, &value).map_err(Failure::fatal)?);
        }
        let (sequences, engines, memory) =
            (self.sequences.clone(), self.engines.clone(), self.memory.clone());
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = caches.entry(handle.place()).or_default().clone();
        Ok(SqlSession {
            evaluator: Evaluator { handle, engines, sequences, memory, cancel, asker: Asker::default() },
            cache,
            settings,
            open: None,
            grouped: false,
            notices,
            listed: self.sessions.list(sessions::Session {
                pid: login.pid,
                database: (oid, login.database.clone()),
                application: login.parameters.get("application_name").cloned().unwrap_or_default(),
                address: login.address,
                since: now(),
            }),
            copying: None,
            turns: self.turns.clone(),
            named: cursors::Named::default(),
            procedures: Procedures::new(self.programs.clone()),
        })
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        Settings::told()
    }
}

/// One client's session.
pub struct SqlSession {
    evaluator: Evaluator,
    cache: Arc<Cache>,
    settings: Settings,
    listed: Listed,
    open: Option<Open>,
    /// Statements up to the end of the message, or to the next Sync, are one transaction, once one of them
    /// writes.
    grouped: bool,
    notices: Vec<Failure>,
    /// The COPY whose rows the client sends.
    copying: Option<CopyInput>,
    /// Rows that sessions of this node want to write.
    turns: Arc<Turns>,
    /// Cursors and prepared statements that SQL has named.
    named: cursors::Named,
    procedures: Procedures,
}

impl pg::Session for SqlSession {
    type Parsed = Parsed;
    type StatementPlan = StatementPlan;

    fn split(&mut self, text: &str) -> Result<Vec<Parsed>, Failure> {
        self.cache.parse(text)
    }

    async fn prepare(
        &mut self,
        parsed: &Parsed,
        given: &[Option<Kind>],
    ) -> Result<(Arc<StatementPlan>, Shape), Failure> {
        let plan = match self.planned(parsed, given).await {
            // After an error nothing else is looked at.
            Err(_) if self.transaction() == Transaction::Failed => return Err(aborted()),
            planned => planned?,
        };
        self.check_transaction(&plan.work)?;
        let shape = plan.shape.clone();
        Ok((plan, shape))
    }

    fn commits(&self, plan: &StatementPlan) -> bool {
        plan.work.writes()
    }

    fn copies_in(&self, plan: &StatementPlan) -> bool {
        matches!(plan.work, Work::CopyIn(_))
    }

    async fn execute(
        &mut self,
        plan: Arc<StatementPlan>,
        parameters: Vec<Value>,
    ) -> Result<Outcome, Failure> {
        // What a transaction has read rests on the tables as they were. Its COMMIT ends it, done or not.
        if self.open.is_some() {
            let done = self.execute_once(plan, parameters).await;
            if done.as_ref().is_err_and(fault::is_stale) {
                self.bring_level().await;
            }
            return done;
        }
        let mut looks = 0;
        loop {
            match self.execute_once(plan.clone(), parameters.clone()).await {
                // Nothing was done: its tables are looked at again.
                Err(failure)
                    if (fault::is_stale(&failure) || fault::is_gone(&failure) && plan.work.is_bare())
                        && self.open.is_none()
                        && looks < MAX_PLANNINGS => {}
                done => return done,
            }
            self.bring_level().await;
            // A table whose rows are being copied is written when that is done (PR-124, PR-400).
            let handle = &self.evaluator.handle;
            let copied = handle.look().await?.under_way.is_waited_for() || held::any(handle, |_| true);
            looks += usize::from(!copied);
            if copied || plan.work.is_bare() {
                self.pause().await?;
            }
            if copied {
                database::lift_abandoned(&self.evaluator.handle).await?;
            }
        }
    }

    async fn copy_data(&mut self, piece: Bytes) -> Result<(), Failure> {
        self.take_copy_data(&piece).await
    }

    async fn copy_done(&mut self) -> Result<String, Failure> {
        let tag = self.finish_copy().await?;
        self.rest();
        Ok(tag)
    }

    async fn copy_ended(&mut self, why: Failure) -> Failure {
        let why = match self.copying.take() {
            Some(mut copy_input) => copy_input.give_up(why).await,
            None => why,
        };
        self.rest();
        why
    }

    fn transaction(&self) -> Transaction {
        match &self.open {
            None => Transaction::Idle,
            Some(open) if open.failed => Transaction::Failed,
            Some(_) => Transaction::Open,
        }
    }

    fn overdue(&self) -> Option<pg::Overdue> {
        self.ended_by()
    }

    fn failed(&mut self) {
        if let Some(open) = &mut self.open {
            open.fail();
        }
    }

    fn begin_group(&mut self) {
        self.grouped = true;
    }

    async fn end_group(&mut self) -> Result<(), Failure> {
        self.grouped = false;
        // The last statement may have made tables otherwise.
        self.see_own_tables();
        match self.open.take_if(|open| open.implicit) {
            None => Ok(()),
            Some(open) if open.failed => {
                self.settings.end(Some(open.before));
                Ok(())
            }
            Some(open) => self.commit(open).await.map(drop),
        }
    }

    fn cursor(&self, name: &str) -> Option<Vec<pg::Column>> {
        self.named.columns(name)
    }

    fn limit(&self) -> Option<Duration> {
        self.settings.statement_limit()
    }

    fn notices(&mut self) -> Vec<Failure> {
        self.note_late();
        std::mem::take(&mut self.notices)
    }
}

impl SqlSession {
    async fn execute_once(
        &mut self,
        plan: Arc<StatementPlan>,
        parameters: Vec<Value>,
    ) -> Result<Outcome, Failure> {
        let apart = plan.work.names_no_table();
        self.see_own_tables();
        if !apart && !self.is_bare(&plan) {
            self.evaluator.handle.current().await?;
        }
        // What PostgreSQL's catalogs say is what is there now.
        let looks = |work: &Work| matches!(work, Work::Query(bound) if !bound.systems.is_empty());
        if self.evaluator.handle.database().is_some() && looks(&plan.work) {
            self.evaluator.handle.look().await?;
        }
        let plan = if apart { plan } else { self.fresh_or_moved(plan).await? };
        self.check_transaction(&plan.work)?;
        // PostgreSQL checks parameters against the type that it has inferred.
        for (value, ty) in parameters.iter().zip(&plan.params) {
            if !ty.has(value) {
                return Err(Failure::new(
                    code::INTERNAL,
                    format!("a parameter is not of type {}", ty.name()),
                ));
            }
        }
        self.check_mode(&plan.work)?;
        let calls = matches!(plan.work, Work::Call(_));
        let at_once = plan.work.defines() || calls || self.copies_in(&plan);
        if self.grouped && self.open.is_none() && plan.work.writes() && !at_once {
            self.open = Some(self.begun(true, Modes::default()));
        }
        let now = self.open.as_ref().map_or_else(now, |open| open.now);
        self.evaluator.asker = self.asker();
        // Also while it makes tables, which reads at no state.
        if let Some(open) = &self.open {
            open.heard();
        }
        let done = self.carry_out(&plan, Values { parameters, now }).await;
        // The client is not silent while it sends rows.
        if self.copying.is_none() {
            self.rest();
        }
        done
    }

    /// A statement has ended, and the client may be silent.
    fn rest(&self) {
        if let Some(open) = &self.open {
            open.idle();
        }
    }

    async fn carry_out(&mut self, plan: &Arc<StatementPlan>, values: Values) -> Result<Outcome, Failure> {
        match &plan.work {
            Work::Query(bound) => self.query(bound, values).await,
            Work::Call(call) => self.call(call, values).await,
            Work::Insert(insertion) => self.write(Statement::Insert(insertion), plan, values).await,
            Work::Change(change) => self.write(Statement::Change(change), plan, values).await,
            Work::Parts(parts) => self.write(Statement::Parts(parts), plan, values).await,
            Work::CopyIn(copy) => self.copy_in(copy, &values).await,
            Work::Declare { name, hold, bound } => self.declare((name, *hold), bound, values).await,
            Work::Upkeep(upkeep) => self.upkeep(upkeep),
            Work::SetConstraints(setting) => self.set_constraints(setting).await,
            Work::CopyOut(copy) => self.copy_out(copy, plan, values).await,
            Work::CreateAs(create) => self.create_as(plan, create, values).await,
            Work::Alter(altering) if altering.numbers() => self.add_numbered(&plan.work, altering).await,
            work if work.defines() => self.define_once_free(work).await,
            Work::Commit => {
                let open = self.end();
                match open {
                    None => Ok(Outcome::Done("COMMIT".into())),
                    Some(open) if open.failed => Ok(self.roll_back(open)),
                    Some(open) => self.commit(open).await,
                }
            }
            Work::Rollback => match self.end() {
                None => Ok(Outcome::Done("ROLLBACK".into())),
                Some(open) => Ok(self.roll_back(open)),
            },
            work @ (Work::Begin(..) | Work::SetTransaction(_) | Work::Savepoint(_) | Work::Release(_)) => {
                self.within(work)
            }
            work @ Work::BackTo(_) => self.within(work),
            work => self.utility(work),
        }
    }

    /// In a transaction that has failed only its end is accepted.
    fn check_transaction(&self, work: &Work) -> Result<(), Failure> {
        let ends = matches!(work, Work::Commit | Work::Rollback | Work::BackTo(_));
        if ends || self.transaction() != Transaction::Failed {
            return Ok(());
        }
        Err(aborted())
    }

    /// In a transaction that only reads nothing is written.
    fn check_mode(&self, work: &Work) -> Result<(), Failure> {
        let read_only = self.open.as_ref().map_or_else(|| self.settings.read_only(), |open| open.read_only);
        if !read_only || !work.writes() {
            return Ok(());
        }
        let message = format!("cannot execute {} in a read-only transaction", work.name());
        Err(Failure::new("25006", message))
    }

    fn warn(&mut self, code: &'static str, message: &str) {
        self.notices.push(Failure::new(code, message));
    }

    /// Writes rows: at once, or when the transaction commits.
    async fn write(
        &mut self,
        statement: Statement<'_>,
        plan: &Arc<StatementPlan>,
        values: Values,
    ) -> Result<Outcome, Failure> {
        self.check_secured(statement.table())?;
        if statement.replicated().is_some() {
            return replicated::write(&self.evaluator, statement, &values, self.open.is_some()).await;
        }
        if self.open.is_none() {
            let turn = self.alone_in_turn(&statement, &values).await?;
            let done = statements::alone(&self.evaluator, statement, &values, turn.as_ref()).await;
            drop(turn);
            return match done {
                Err(why) if write::is_too_much(&why) => {
                    let context = (&self.settings, &self.turns);
                    large::carry_out(&self.evaluator, (plan, statement), &values, context, why).await
                }
                done => done,
            };
        }
        let until = turns::deadline();
        self.first_in_turn(&statement, &values, until).await?;
        let Effects { edits: mut all, count, told } = loop {
            let view = self.view().await?;
            let effects = tokio::select! {
                effects = statement.edits(&self.evaluator, &values, &view) => effects,
                () = self.evaluator.cancel.wait() => return Err(canceled()),
            };
            let effects = match effects {
                Ok(effects) => effects,
                Err(failure) => return Err(self.unless_overtaken(failure).await),
            };
            let mut waited = false;
            for edits in &effects.edits {
                waited |= self.all_in_turn(edits, until).await?;
            }
            if !waited {
                if let Err(failure) = self.keeps_constraints(&effects.edits, &view).await {
                    return Err(self.unless_overtaken(failure).await);
                }
                break effects;
            }
        };
        let handle = self.evaluator.handle.clone();
        if let Some(open) = &mut self.open {
            for edits in &mut all {
                match open.definitions().has_loaded(edits.table.id()) {
                    true => open.write_loaded(&handle, edits).await?,
                    false => open.take(edits).await?,
                }
            }
        }
        Ok(statement.outcome(count, told))
    }

    /// The plan, made anew if tables have changed since. The client was told of its columns: they must be the
    /// same.
    fn fresh(&self, known: Arc<StatementPlan>) -> Result<Arc<StatementPlan>, Failure> {
        let catalog = self.evaluator.handle.catalog().ok_or_else(fault::not_ready)?;
        // Where a table has another id by now its reads would not show what the transaction has written.
        self.open.as_ref().map_or(Ok(()), |open| open.knows_its_tables(&catalog))?;
        let path = self.settings.search_path();
        if known.revision == catalog.revision && known.path == path {
            return Ok(known);
        }
        let fresh = plan(&catalog, &path, &known.parsed, &known.given)?;
        match fresh.shape == known.shape {
            true => Ok(fresh),
            false => Err(Failure::other_shape()),
        }
    }

    /// A SELECT whose rows must not change until the transaction commits. Outside of one that is over at
    /// once.
    async fn lock(
        &mut self,
        bound: &Arc<Bound>,
        (table, skips): (&Arc<TableRecord>, bool),
        values: &Values,
    ) -> Result<Outcome, Failure> {
        let until = turns::deadline();
        self.evaluator.asker.held = self.held_rows(table).filter(|_| skips);
        let mut tried = Vec::new();
        let mut edits = loop {
            let view = self.view().await?;
            let edits = tokio::select! {
                edits = edits::of_locking(&self.evaluator, bound, table, values, &view) => edits?,
                () = self.evaluator.cancel.wait() => return Err(canceled()),
            };
            let again = match skips {
                true => self.those_that_are_free(&edits, &mut tried)?,
                false => self.all_in_turn(&edits, until).await?,
            };
            if !again {
                break edits;
            }
        };
        // Nobody else writes rows of a table that the transaction has made.
        if let Some(open) = self.open.as_mut().filter(|open| !open.definitions().has_made(table.id)) {
            open.take(&mut edits).await?;
        }
        Ok(Outcome::Rows("SELECT", Rows::of(edits.told.unwrap_or_default())))
    }

    async fn query(&mut self, bound: &Arc<Bound>, values: Values) -> Result<Outcome, Failure> {
        if let Some(Locks { table, skips }) = &bound.locks {
            return self.lock(bound, (table, *skips), &values).await;
        }
        let view = self.view().await?;
        let evaluator = &self.evaluator;
        if let Some(point) = &bound.point {
            let table = Table::new(bound.sources[0].table.clone());
            let key: Vec<Value> = point.key.iter().map(|slot| values.of(slot)).collect();
            let row = tokio::select! {
                row = read::point(&evaluator.handle, &table, &key, &point.columns, &view) => row?,
                () = evaluator.cancel.wait() => return Err(canceled()),
            };
            return Ok(Outcome::Rows("SELECT", Rows::of(row.into_iter().collect())));
        }
        if let Some(count) = self.count(bound, &values, &view).await? {
            return Ok(Outcome::Rows("SELECT", Rows::of(vec![vec![Value::Int(count)]])));
        }
        let within = bound.sources.iter().filter(|source| source.table.database().is_some()).count();
        let together = within > 0 && bound.sources.len() > 1;
        let global = view.is_global();
        if self.open.is_none() && (global || !together) {
            let mut rows = match global {
                true => evaluator.start(bound.clone(), values, view)?,
                false => evaluator.start_alone(bound.clone(), values)?,
            };
            if within > 0 {
                // What is stale is found at once, and planned again.
                tokio::select! {
                    begun = rows.begun() => begun?,
                    () = evaluator.cancel.wait() => return Err(canceled()),
                }
            }
            return Ok(Outcome::Rows("SELECT", rows));
        }
        let view = if self.open.is_some() { view } else { View::lasting() };
        let partitions = read::partitions(&bound.sources, &values);
        tokio::select! {
            pinned = read::pin(&evaluator.handle, partitions, &view) => pinned?,
            () = evaluator.cancel.wait() => return Err(canceled()),
        }
        let rows = evaluator.start(bound.clone(), values, view)?;
        Ok(Outcome::Rows("SELECT", rows))
    }

    /// True if it reads and writes only tables that have partitions for themselves, and others need not be
    /// known for it.
    pub(crate) fn is_bare(&self, plan: &StatementPlan) -> bool {
        self.evaluator.handle.place() == Place::Shared && plan.work.is_bare()
    }

    /// Who asks, for what is to be known of it.
    fn asker(&self) -> Asker {
        let sessions = self.listed.all().clone();
        let (pid, settings) = (self.listed.pid(), self.settings.clone());
        let runtime = tokio::runtime::Handle::try_current().ok();
        let numbers = runtime.map(|runtime| (self.evaluator.sequences.clone(), runtime));
        let (told, late) = (self.evaluator.asker.told.clone(), self.evaluator.asker.late.clone());
        Asker { pid, settings, sessions, told, numbers, held: None, late }
    }
}

fn aborted() -> Failure {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    Failure::new(code::FAILED_TRANSACTION, message)
}

/// Microseconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}
