//! What stands behind the door: whoever answers statements. Nothing here knows a byte of the protocol.

use crate::copy::Format;
use crate::failure::Failure;
use crate::kind::Kind;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use types::data::Value;

/// A row of a result: a value for each column.
pub type Row = Vec<Value>;

/// Ends when a client was silent for too long, with what it is told.
pub type Overdue = Pin<Box<dyn Future<Output = Failure> + Send>>;

/// Who wants to come in. The password has been checked when a service sees this.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The database; the user's name if none was given.
    pub database: String,
    /// Other parameters of the connection, as `application_name`.
    pub parameters: BTreeMap<String, String>,
    /// The number by which clients know the connection, as they know a process of PostgreSQL.
    pub pid: i32,
    /// Where the client is; `None`: the operating system does not say.
    pub address: Option<std::net::SocketAddr>,
}

/// A column of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Texts are filled up with blanks to so many characters.
    pub width: Option<u32>,
}

impl Column {
    /// A column whose values are written as they are.
    pub fn new(name: impl Into<String>, kind: Kind) -> Column {
        Column { name: name.into(), kind, width: None }
    }

    /// The value as clients get it, if that is not as it is kept.
    pub(crate) fn filled(&self, value: &Value) -> Option<Value> {
        let (Some(width), Value::Text(text)) = (self.width, value) else { return None };
        let lacks = (width as usize).saturating_sub(text.chars().count());
        (lacks > 0).then(|| Value::Text(format!("{text}{}", " ".repeat(lacks))))
    }
}

/// What is known of a statement before it is executed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// The types of its parameters.
    pub parameters: Vec<Kind>,
    /// Its result's columns; `None`: it gives no rows.
    pub columns: Option<Vec<Column>>,
}

/// Where a session is with its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transaction {
    /// In none.
    #[default]
    Idle,
    /// In one.
    Open,
    /// In one that has failed: only its end is accepted.
    Failed,
}

/// What came of a statement.
#[derive(Debug)]
pub enum Outcome {
    /// There was nothing in the text.
    Empty,
    /// Done, with the tag that says what: `CREATE TABLE`.
    Done(String),
    /// Rows. The tag lacks the number of rows: `SELECT`.
    Rows(&'static str, Rows),
    /// Done, and the client is told about a parameter that has changed.
    Set(String, Vec<(&'static str, String)>),
    /// Done, with this tag: the prepared statement of this name is forgotten; without a name, all are.
    Forget(Option<String>, String),
    /// The client sends rows of so many columns now: [`Session::copy_data`] takes them.
    CopyIn(usize),
    /// Rows that are sent as the data of a COPY.
    CopyOut(CopyOut),
}

/// The rows of a COPY TO STDOUT.
#[derive(Debug)]
pub struct CopyOut {
    /// How they are written.
    pub format: Format,
    /// Their columns.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Rows,
}

/// Rows, all there or as they come.
#[derive(Debug)]
pub struct Rows {
    ready: VecDeque<Row>,
    more: Option<mpsc::Receiver<Result<Vec<Row>, Failure>>>,
}

impl Rows {
    /// All of them.
    pub fn of(rows: Vec<Row>) -> Rows {
        Rows { ready: rows.into(), more: None }
    }

    /// As a worker sends them. Its end is the result's end; a worker that is gone without a word is a failure
    /// that the worker must send itself.
    pub fn stream(more: mpsc::Receiver<Result<Vec<Row>, Failure>>) -> Rows {
        Rows { ready: VecDeque::new(), more: Some(more) }
    }

    /// Waits for the first rows, or for the end. The error: there will be none.
    pub async fn begun(&mut self) -> Result<(), Failure> {
        match self.next().await {
            None => Ok(()),
            Some(Ok(row)) => {
                self.ready.push_front(row);
                Ok(())
            }
            Some(Err(failure)) => Err(failure),
        }
    }

    /// The next row. `None`: there are no more.
    pub async fn next(&mut self) -> Option<Result<Row, Failure>> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Some(Ok(row));
            }
            match self.more.as_mut()?.recv().await {
                None => self.more = None,
                Some(Ok(rows)) => self.ready.extend(rows),
                Some(Err(failure)) => {
                    self.more = None;
                    return Some(Err(failure));
                }
            }
        }
    }
}

/// Asks a statement to stop. A write that is on its way is not stopped: its outcome would be unknown.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    inner: Arc<CancelState>,
}

#[derive(Debug, Default)]
struct CancelState {
    asked: AtomicBool,
    changed: Notify,
}

impl Cancel {
    /// Asks.
    pub fn ask(&self) {
        self.inner.asked.store(true, Ordering::Release);
        self.inner.changed.notify_waiters();
    }

    /// True if somebody asked since the statement began.
    pub fn asked(&self) -> bool {
        self.inner.asked.load(Ordering::Acquire)
    }

    /// A statement begins: what was asked before was meant for another.
    pub fn reset(&self) {
        self.inner.asked.store(false, Ordering::Release);
    }

    /// Waits until somebody asks.
    pub async fn wait(&self) {
        loop {
            let changed = self.inner.changed.notified();
            if self.asked() {
                return;
            }
            changed.await;
        }
    }
}

/// Gives sessions to whoever has logged in.
pub trait Service: Send + Sync + 'static {
    /// One client's.
    type Session: Session;

    /// A session for this login, and the parameters that the client is told beside the fixed ones.
    fn open(&self, login: &Login, cancel: Cancel) -> Result<Self::Session, Failure>;

    /// Parameters that every client is told after its login, as `server_version`.
    fn parameters(&self) -> Vec<(&'static str, String)>;
}

/// One client's conversation.
pub trait Session: Send + 'static {
    /// A statement that was read, not yet planned.
    type Parsed: Clone + Send + Sync + 'static;
    /// A statement that can be executed.
    type StatementPlan: Send + Sync + 'static;

    /// The statements of a text, in order.
    fn split(&mut self, text: &str) -> Result<Vec<Self::Parsed>, Failure>;

    /// Plans a statement. `given` are types that the client has decided, by the number of the parameter.
    fn prepare(
        &mut self,
        parsed: &Self::Parsed,
        given: &[Option<Kind>],
    ) -> impl Future<Output = Result<(Arc<Self::StatementPlan>, Shape), Failure>> + Send;

    /// True if a planned statement changes something, for good as soon as it is executed if it is in no
    /// transaction and in no group.
    fn commits(&self, plan: &Self::StatementPlan) -> bool;

    /// True if executing the statement asks the client for rows.
    fn copies_in(&self, plan: &Self::StatementPlan) -> bool;
    /// The statements from here on, up to the end of the message or to the next Sync, are one transaction.
    fn begin_group(&mut self);

    /// The message has ended, or a Sync has come: what the group has done is committed, or rolled back if it
    /// has failed.
    fn end_group(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The columns of a cursor that SQL has declared: to clients it is a portal.
    fn cursor(&self, _name: &str) -> Option<Vec<Column>> {
        None
    }

    /// How long a statement may take from now on; `None`: as long as it takes. What a statement has not
    /// written by then it does not write.
    fn limit(&self) -> Option<Duration>;

    /// Warnings that came up since the last call.
    fn notices(&mut self) -> Vec<Failure>;

    /// Executes a planned statement.
    fn execute(
        &mut self,
        plan: Arc<Self::StatementPlan>,
        parameters: Vec<Value>,
    ) -> impl Future<Output = Result<Outcome, Failure>> + Send;

    /// A piece of what the client sends after [`Outcome::CopyIn`]. May be given up while it waits.
    fn copy_data(&mut self, piece: Bytes) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The client has sent everything. The tag of what was done.
    fn copy_done(&mut self) -> impl Future<Output = Result<String, Failure>> + Send;

    /// A COPY ends early, for this reason. The reason with what became of the rows that had come.
    fn copy_ended(&mut self, why: Failure) -> impl Future<Output = Failure> + Send;

    /// Where the session is with its transaction.
    fn transaction(&self) -> Transaction;

    /// What ends, with what the client is told before its connection does, once the client of an open
    /// transaction has been silent for longer than it may be. `None`: it may be as long as it likes.
    fn overdue(&self) -> Option<Overdue> {
        None
    }

    /// A statement has failed, here or while its rows were sent.
    fn failed(&mut self);
}
