//! A client's session: its transaction, its parameters, and the carrying out of plans.

use crate::bind::{Bound, Insertion, Rows as Source};
use crate::copy::{self, Intake};
use crate::ddl;
use crate::driver::{Driver, Handle};
use crate::engine::Engine;
use crate::fault;
use crate::plan::{Cache, Parsed, Plan, Work, plan};
use crate::range::range;
use crate::read::{self, Tables, Values};
use crate::settings::Settings;
use crate::write;
use bytes::Bytes;
use client::{Options, Table};
use pg::{Cancel, Failure, Kind, Login, Outcome, Row, Rows, Shape, Transaction, code};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use types::data::Value;

/// The user that everybody is.
pub const USER: &str = "understudy";
/// The database that there is.
pub const DATABASE: &str = "understudy";
/// Batches of rows that wait for a client.
const WAITING: usize = 4;
/// Engines that are kept for the next statement.
const ENGINES: usize = 8;

/// SQL on a cluster: what stands behind the door of one node.
pub struct Sql {
    handle: Handle,
    shared: Arc<Shared>,
    /// Ends with the service.
    _driver: Driver,
}

#[derive(Default)]
struct Shared {
    cache: Cache,
    engines: Mutex<Vec<Engine>>,
}

impl Sql {
    /// Starts to look for the cluster.
    pub fn start(options: Options) -> io::Result<Sql> {
        let driver = Driver::start(options)?;
        Ok(Sql { handle: driver.handle().clone(), shared: Arc::default(), _driver: driver })
    }
}

impl pg::Service for Sql {
    type Session = SqlSession;

    fn open(&self, login: &Login, cancel: Cancel) -> Result<SqlSession, Failure> {
        if login.database != DATABASE {
            let message = format!("database \"{}\" does not exist", login.database);
            return Err(Failure::new("3D000", message)
                .hint(format!("the database is \"{DATABASE}\""))
                .fatal());
        }
        let mut settings = Settings::default();
        for (name, value) in login.parameters.iter().filter(|(name, _)| *name != "options") {
            settings.change(name, value).map_err(Failure::fatal)?;
        }
        Ok(SqlSession {
            handle: self.handle.clone(),
            shared: self.shared.clone(),
            cancel,
            settings,
            transaction: Transaction::Idle,
            copying: None,
        })
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        Settings::told()
    }
}

/// One client's session.
pub struct SqlSession {
    handle: Handle,
    shared: Arc<Shared>,
    cancel: Cancel,
    settings: Settings,
    transaction: Transaction,
    /// The COPY whose rows the client sends.
    copying: Option<Intake>,
}

impl pg::Session for SqlSession {
    type Parsed = Parsed;
    type Plan = Plan;

    fn split(&mut self, text: &str) -> Result<Vec<Parsed>, Failure> {
        self.shared.cache.parse(text)
    }

    fn prepare(&mut self, parsed: &Parsed, given: &[Option<Kind>]) -> Result<(Arc<Plan>, Shape), Failure> {
        let catalog = self.handle.catalog().ok_or_else(fault::not_ready)?;
        let plan = plan(&catalog, parsed, given)?;
        self.check_transaction(&plan.work)?;
        if parsed.followed && plan.work.writes() {
            let what = "a statement that writes, followed by others in one message,";
            return Err(Failure::unsupported(
                what,
                "the message would be one transaction: send the statements one by one",
            ));
        }
        let shape = plan.shape.clone();
        Ok((plan, shape))
    }

    fn commits(&self, plan: &Plan) -> bool {
        plan.work.writes()
    }

    fn copies_in(&self, plan: &Plan) -> bool {
        matches!(plan.work, Work::CopyIn(_))
    }

    async fn execute(&mut self, plan: Arc<Plan>, parameters: Vec<Value>) -> Result<Outcome, Failure> {
        let plan = self.fresh(plan)?;
        self.check_transaction(&plan.work)?;
        if self.transaction == Transaction::Open && plan.work.writes() {
            let hint = "writes commit by themselves: run the statement outside of BEGIN (drivers call it autocommit)";
            return Err(Failure::unsupported("a write inside of a transaction", hint));
        }
        // PostgreSQL checks parameters against the type that it has inferred.
        for (value, ty) in parameters.iter().zip(&plan.params) {
            if !ty.has(value) {
                return Err(Failure::new(
                    code::INTERNAL,
                    format!("a parameter is not of type {}", ty.name()),
                ));
            }
        }
        let values = Values { parameters, now: now() };
        match &plan.work {
            Work::Query(bound) => self.query(bound, values).await,
            Work::Insert(insertion) => self.insert(insertion, &values).await,
            Work::Delete(deletion) => {
                let key: Vec<Value> = deletion.key.iter().map(|slot| values.of(slot)).collect();
                let table = Table::new(deletion.table.clone());
                let count = write::delete(&self.handle, &table, &key).await?;
                Ok(Outcome::Done(format!("DELETE {count}")))
            }
            Work::CopyIn(_) if self.transaction != Transaction::Idle => {
                let hint = "its rows are committed as they come: run it outside of BEGIN (drivers call it autocommit)";
                Err(Failure::unsupported("COPY FROM inside of a transaction", hint))
            }
            Work::CopyIn(copy) => {
                self.copying = Some(Intake::new(self.handle.clone(), copy));
                Ok(Outcome::CopyIn(copy.columns.len()))
            }
            Work::CopyOut(copy) => {
                let Outcome::Rows(_, rows) = self.query(&copy.bound, values).await? else {
                    unreachable!("a query gives rows");
                };
                let names = copy.bound.columns.iter().map(|(name, _)| name.clone()).collect();
                Ok(Outcome::CopyOut(pg::CopyOut { format: copy.format.clone(), names, rows }))
            }
            Work::CreateTable(create) => {
                let request = ddl::request(create)?;
                ddl::create(&self.handle, request, create.if_not_exists).await?;
                Ok(Outcome::Done("CREATE TABLE".into()))
            }
            Work::DropTables { names, if_exists } => {
                ddl::drop_tables(&self.handle, names.clone(), *if_exists).await?;
                Ok(Outcome::Done("DROP TABLE".into()))
            }
            work => self.utility(work),
        }
    }

    async fn copy_data(&mut self, piece: Bytes) -> Result<(), Failure> {
        self.copying.as_mut().ok_or_else(copy::intake::not_begun)?.data(&piece).await
    }

    async fn copy_done(&mut self) -> Result<String, Failure> {
        let tag = self.copying.as_mut().ok_or_else(copy::intake::not_begun)?.finish().await?;
        self.copying = None;
        Ok(tag)
    }

    async fn copy_ended(&mut self, why: Failure) -> Failure {
        match self.copying.take() {
            Some(mut intake) => intake.give_up(why).await,
            None => why,
        }
    }

    fn transaction(&self) -> Transaction {
        self.transaction
    }

    fn failed(&mut self) {
        if self.transaction == Transaction::Open {
            self.transaction = Transaction::Failed;
        }
    }
}

impl SqlSession {
    /// In a transaction that has failed only its end is accepted.
    fn check_transaction(&self, work: &Work) -> Result<(), Failure> {
        match (self.transaction, work) {
            (Transaction::Failed, Work::Commit | Work::Rollback) => Ok(()),
            (Transaction::Failed, _) => {
                let message =
                    "current transaction is aborted, commands ignored until end of transaction block";
                Err(Failure::new(code::FAILED_TRANSACTION, message))
            }
            _ => Ok(()),
        }
    }

    /// The plan, made anew if tables have changed since. The client was told of its columns: they must be the same.
    fn fresh(&self, known: Arc<Plan>) -> Result<Arc<Plan>, Failure> {
        let catalog = self.handle.catalog().ok_or_else(fault::not_ready)?;
        if known.revision == catalog.revision {
            return Ok(known);
        }
        let fresh = plan(&catalog, &known.parsed, &known.given)?;
        match fresh.shape == known.shape {
            true => Ok(fresh),
            false => Err(Failure::new(code::UNSUPPORTED, "cached plan must not change result type")
                .hint("a table has changed: prepare the statement again")),
        }
    }

    fn utility(&mut self, work: &Work) -> Result<Outcome, Failure> {
        let done = |tag: &str| Ok(Outcome::Done(tag.into()));
        match work {
            Work::Begin => {
                if self.transaction == Transaction::Idle {
                    self.transaction = Transaction::Open;
                }
                done("BEGIN")
            }
            Work::Commit => match std::mem::take(&mut self.transaction) {
                Transaction::Failed => done("ROLLBACK"),
                _ => done("COMMIT"),
            },
            Work::Rollback => {
                self.transaction = Transaction::Idle;
                done("ROLLBACK")
            }
            Work::Set(assignments) => {
                let mut told = Vec::new();
                for (name, value) in assignments {
                    told.extend(match value {
                        Some(value) => self.settings.change(name, value)?,
                        None => self.settings.reset(name)?,
                    });
                }
                Ok(Outcome::Set("SET".into(), told))
            }
            Work::Reset(None, tag) => {
                self.settings.reset_all();
                done(tag)
            }
            Work::Reset(Some(name), tag) => Ok(Outcome::Set((*tag).into(), self.settings.reset(name)?)),
            Work::Show(name) => {
                let value = self.settings.get(name)?;
                Ok(Outcome::Rows("SHOW", Rows::of(vec![vec![Value::Text(value)]])))
            }
            _ => unreachable!("handled by the caller"),
        }
    }

    async fn query(&mut self, bound: &Arc<Bound>, values: Values) -> Result<Outcome, Failure> {
        if let Some(point) = &bound.point {
            let table = Table::new(bound.sources[0].table.clone());
            let key: Vec<Value> = point.key.iter().map(|slot| values.of(slot)).collect();
            let row = tokio::select! {
                row = read::point(&self.handle, &table, &key, &point.columns) => row?,
                () = self.cancel.wait() => return Err(canceled()),
            };
            return Ok(Outcome::Rows("SELECT", Rows::of(row.into_iter().collect())));
        }
        if let Some(count) = self.count(bound, &values).await? {
            return Ok(Outcome::Rows("SELECT", Rows::of(vec![vec![Value::Int(count)]])));
        }
        let rows = self.start(bound.clone(), values)?;
        Ok(Outcome::Rows("SELECT", rows))
    }

    /// A count of a range of keys, which the partitions know themselves.
    async fn count(&self, bound: &Bound, values: &Values) -> Result<Option<i64>, Failure> {
        if !bound.counts {
            return Ok(None);
        }
        let source = &bound.sources[0];
        let table = Table::new(source.table.clone());
        let of: Vec<Value> = source.conditions.iter().map(|condition| values.of(&condition.slot)).collect();
        match range(&table, source, &of) {
            None => Ok(Some(0)),
            Some(range) if range.exact => tokio::select! {
                count = read::count(&self.handle, &table, &range) => count.map(Some),
                () = self.cancel.wait() => Err(canceled()),
            },
            Some(_) => Ok(None),
        }
    }

    /// Starts the evaluating engine on a thread of its own. Its rows come as they are made.
    fn start(&self, bound: Arc<Bound>, values: Values) -> Result<Rows, Failure> {
        let kept = self.shared.engines.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let engine = match kept {
            Some(engine) => engine,
            None => Engine::open()?,
        };
        let interrupt = engine.interrupt();
        let (send, receive) = mpsc::channel(WAITING);
        let (over, ended) = tokio::sync::oneshot::channel::<()>();
        let cancel = self.cancel.clone();
        // The engine is stopped as soon as it is asked for, also while it makes no rows.
        tokio::spawn(async move {
            tokio::select! {
                () = cancel.wait() => interrupt.interrupt(),
                _ = ended => {}
            }
        });
        let (handle, shared, cancel) = (self.handle.clone(), self.shared.clone(), self.cancel.clone());
        tokio::task::spawn_blocking(move || {
            let ran = evaluate(&engine, handle, &bound, values, cancel, &mut |rows| {
                send.blocking_send(Ok(rows)).is_ok()
            });
            drop(over);
            if let Err(failure) = ran {
                // The client may be gone.
                let _ = send.blocking_send(Err(failure));
            }
            let mut engines = shared.engines.lock().unwrap_or_else(PoisonError::into_inner);
            if engines.len() < ENGINES {
                engines.push(engine);
            }
        });
        Ok(Rows::stream(receive))
    }

    async fn insert(&self, insertion: &Insertion, values: &Values) -> Result<Outcome, Failure> {
        let rows: Vec<Row> = match &insertion.rows {
            Source::Slots(rows) => {
                rows.iter().map(|row| row.iter().map(|slot| values.of(slot)).collect()).collect()
            }
            Source::Query(bound) => {
                let bound = Bound { point: None, ..Bound::clone(bound) };
                let mut computed = self.start(Arc::new(bound), values.clone())?;
                let mut rows = Vec::new();
                while let Some(row) = computed.next().await {
                    rows.push(row?);
                    if rows.len() > wire::message::MAX_OPS {
                        let message = format!("a statement writes at most {} rows", wire::message::MAX_OPS);
                        return Err(Failure::new(code::LIMIT, message));
                    }
                }
                rows
            }
        };
        let table = Table::new(insertion.table.clone());
        let count = write::insert(&self.handle, &table, &insertion.columns, rows, insertion.conflict).await?;
        Ok(Outcome::Done(format!("INSERT 0 {count}")))
    }
}

fn evaluate(
    engine: &Engine,
    handle: Handle,
    bound: &Bound,
    values: Values,
    cancel: Cancel,
    emit: &mut dyn FnMut(Vec<Row>) -> bool,
) -> Result<(), Failure> {
    let slots: Vec<Value> = bound.slots.iter().map(|(slot, _)| values.of(slot)).collect();
    let tables = Tables::new(handle, bound.sources.clone(), values, cancel);
    engine.run(bound, &slots, Box::new(tables), emit)
}

fn canceled() -> Failure {
    Failure::new(code::CANCELED, "canceling statement due to user request")
}

/// Microseconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}
