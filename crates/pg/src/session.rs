//! One connection after its login: messages in, answers out, in PostgreSQL's order.
//!
//! After an error in the extended protocol everything up to Sync is skipped. Portals live until the next Sync
//! outside of a transaction. Answers are written when no whole message waits any more, so a pipeline costs
//! one write.

use crate::failure::{Failure, code};
use crate::kind::Kind;
use crate::service::{Cancel, Column, Outcome, Row, Rows, Service, Session, Shape, Transaction};
use crate::values::{self, Formats};
use crate::wire::{Bind, End, Front, Link, Parse, Target};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use tokio::task::JoinHandle;
use types::data::Value;

/// Prepared statements and portals that one connection may hold.
const MAX_KEPT: usize = 10_000;

type PlanOf<S> = <<S as Service>::Session as Session>::StatementPlan;

/// How often a statement that has no name is planned again because its columns have changed.
const REPLANS: usize = 3;

struct Prepared<P> {
    /// `None`: an empty text.
    plan: Option<Arc<P>>,
    shape: Shape,
}

enum Portal<P> {
    Fresh { prepared: Arc<Prepared<P>>, values: Vec<Value>, formats: Formats },
    Running { prepared: Arc<Prepared<P>>, rows: Rows, tag: &'static str, formats: Formats },
    Over,
}

/// A connection that has logged in.
pub(crate) struct Conversation<S: Service> {
    pub(crate) link: Link,
    pub(crate) session: S::Session,
    pub(crate) cancel: Cancel,
    statements: HashMap<String, Arc<Prepared<PlanOf<S>>>>,
    portals: HashMap<String, Portal<PlanOf<S>>>,
    /// An error came up: pass over everything until Sync.
    skipping: bool,
    /// The statements up to the next Sync are one transaction.
    grouped: bool,
    /// Cancels the statement that runs when its time is over.
    timer: Option<Timer>,
}

struct Timer(JoinHandle<()>);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<S: Service> Conversation<S> {
    pub fn new(link: Link, session: S::Session, cancel: Cancel) -> Conversation<S> {
        let (statements, portals) = (HashMap::new(), HashMap::new());
        Conversation {
            link,
            session,
            cancel,
            statements,
            portals,
            skipping: false,
            grouped: false,
            timer: None,
        }
    }

    /// Talks until the client hangs up, the protocol is broken or the server stops.
    pub async fn run(&mut self) -> Result<(), End> {
        self.warn();
        self.link.ready(self.session.transaction());
        loop {
            if !self.link.has_message() {
                self.link.flush().await?;
            }
            let Some(message) = self.next_message().await? else { return Ok(()) };
            match message {
                Front::Terminate => return Ok(()),
                Front::Query(text) => self.simple(&text).await?,
                Front::Sync => self.sync().await?,
                Front::Flush => self.link.flush().await?,
                // Left over from a COPY that has failed: PostgreSQL passes over it, too.
                Front::CopyData(_) | Front::CopyDone | Front::CopyFail(_) => {}
                _ if self.skipping => {}
                message => {
                    if let Err(failure) = self.extended(message).await? {
                        self.report(&failure)?;
                        self.skipping = true;
                    }
                }
            }
            self.timer = None;
        }
    }

    /// The next message; `None` if the client hung up. One that is silent in a transaction for too long is
    /// hung up on: whatever the transaction has is given back with the session.
    async fn next_message(&mut self) -> Result<Option<Front>, End> {
        match self.session.overdue() {
            Some(overdue) if !self.link.has_message() => tokio::select! {
                biased;
                message = self.link.message() => message,
                failure = overdue => Err(End::Failed(failure)),
            },
            _ => self.link.message().await,
        }
    }

    fn report(&mut self, failure: &Failure) -> Result<(), End> {
        self.session.failed();
        if failure.fatal {
            return Err(End::Failed(failure.clone()));
        }
        let late = self.timer.take().is_some_and(|timer| timer.0.is_finished());
        if late && failure.code == code::CANCELED {
            let message = "canceling statement due to statement timeout".into();
            self.link.error(&Failure { message, ..failure.clone() });
        } else {
            self.link.error(failure);
        }
        Ok(())
    }

    async fn sync(&mut self) -> Result<(), End> {
        self.skipping = false;
        if std::mem::take(&mut self.grouped)
            && let Err(failure) = self.end_group().await
        {
            self.report(&failure)?;
        }
        if self.session.transaction() == Transaction::Idle {
            self.portals.clear();
        }
        self.link.ready(self.session.transaction());
        Ok(())
    }

    /// A text of any number of statements; the first error ends it.
    async fn simple(&mut self, text: &str) -> Result<(), End> {
        if self.skipping {
            return Ok(());
        }
        // PostgreSQL forgets the unnamed statement and portal here.
        self.statements.remove("");
        self.portals.remove("");
        let parsed = match self.session.split(text) {
            Ok(parsed) => parsed,
            Err(failure) => {
                self.report(&failure)?;
                self.link.ready(self.session.transaction());
                return Ok(());
            }
        };
        if parsed.is_empty() {
            self.link.empty();
        }
        let last = parsed.len().saturating_sub(1);
        if last > 0 {
            self.session.begin_group();
        }
        for (at, one) in parsed.iter().enumerate() {
            if let Err(failure) = self.simple_one(one, at == last).await? {
                self.report(&failure)?;
                break;
            }
        }
        // What is left of it after an error is rolled back.
        self.grouped = false;
        if let Err(failure) = self.end_group().await {
            self.report(&failure)?;
        }
        if self.session.transaction() == Transaction::Idle {
            self.portals.clear();
        }
        self.link.ready(self.session.transaction());
        Ok(())
    }

    async fn simple_one(
        &mut self,
        parsed: &<S::Session as Session>::Parsed,
        last: bool,
    ) -> Result<Result<(), Failure>, End> {
        self.cancel.reset();
        let (mut plan, mut shape) = match self.session.prepare(parsed, &[]).await {
            Ok(planned) => planned,
            Err(failure) => return Ok(Err(failure)),
        };
        if !shape.parameters.is_empty() {
            return Ok(Err(Failure::new("42P02", "there is no parameter $1")));
        }
        if last && self.session.transaction() == Transaction::Idle {
            // It stands alone: nothing before it has begun a transaction.
            if let Err(failure) = self.end_group().await {
                return Ok(Err(failure));
            }
        }
        let mut executed = self.carry_out(plan, Vec::new()).await;
        for _ in 0..REPLANS {
            if !executed.as_ref().is_err_and(Failure::is_of_another_shape) {
                break;
            }
            // The client was told nothing of its columns yet.
            (plan, shape) = match self.session.prepare(parsed, &[]).await {
                Ok(planned) => planned,
                Err(failure) => return Ok(Err(failure)),
            };
            executed = self.carry_out(plan, Vec::new()).await;
        }
        self.warn();
        let outcome = match executed {
            Ok(outcome) => outcome,
            Err(failure) => return Ok(Err(failure)),
        };
        match outcome {
            Outcome::Rows(tag, mut rows) => {
                let columns = shape.columns.unwrap_or_default();
                let formats = Formats::text();
                self.link.row_description(&columns, &formats);
                match self.send_rows(&mut rows, &columns, &formats, 0).await? {
                    Ok((count, _)) => {
                        if let Err(failure) = self.end_if(last).await {
                            return Ok(Err(failure));
                        }
                        self.link.complete(&format!("{tag} {count}"));
                    }
                    Err(failure) => return Ok(Err(failure)),
                }
            }
            other => return self.done_last(other, last).await,
        }
        Ok(Ok(()))
    }

    /// What came of a statement without rows, which is perhaps the last of its message.
    async fn done_last(&mut self, outcome: Outcome, last: bool) -> Result<Result<(), Failure>, End> {
        match self.end_if(last).await {
            Ok(()) => self.done(outcome).await,
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// A statement is told to be complete only when the message's transaction is, if it is the last one.
    async fn end_if(&mut self, last: bool) -> Result<(), Failure> {
        if last { self.end_group().await } else { Ok(()) }
    }

    /// Ends the transaction of several statements, with what there is to be said of its end.
    async fn end_group(&mut self) -> Result<(), Failure> {
        let ended = self.session.end_group().await;
        self.warn();
        ended
    }

    pub(super) fn warn(&mut self) {
        for notice in self.session.notices() {
            self.link.warning(&notice);
        }
    }

    /// Sends rows until there are no more, or `limit` were sent (0: no limit). How many, and whether that was
    /// all.
    async fn send_rows(
        &mut self,
        rows: &mut Rows,
        columns: &[Column],
        formats: &Formats,
        limit: usize,
    ) -> Result<Result<(u64, bool), Failure>, End> {
        let mut sent = 0;
        loop {
            if limit > 0 && sent == limit as u64 {
                return Ok(Ok((sent, false)));
            }
            let row = match self.next_row(rows).await {
                None => return Ok(Ok((sent, true))),
                Some(Err(failure)) => return Ok(Err(failure)),
                Some(Ok(row)) => row,
            };
            if let Err(failure) = self.link.data_row(&row, columns, formats) {
                return Ok(Err(failure));
            }
            sent += 1;
            self.link.flush_if_long().await?;
        }
    }

    /// The next row, or the error that the statement was cancelled. A client that hangs up cancels it.
    pub(crate) async fn next_row(&mut self, rows: &mut Rows) -> Option<Result<Row, Failure>> {
        tokio::select! {
            biased;
            next = rows.next() => next,
            () = self.cancel.wait() => Some(Err(canceled())),
            () = self.link.gone() => {
                self.cancel.ask();
                Some(Err(hung_up()))
            }
        }
    }

    /// Executes a statement. A client that hangs up cancels it; a write on its way goes on.
    async fn carry_out(&mut self, plan: Arc<PlanOf<S>>, values: Vec<Value>) -> Result<Outcome, Failure> {
        let cancel = self.cancel.clone();
        self.timer = self.session.limit().map(|limit| {
            Timer(tokio::spawn(async move {
                tokio::time::sleep(limit).await;
                cancel.ask();
            }))
        });
        let mut executing = pin!(self.session.execute(plan, values));
        tokio::select! {
            biased;
            executed = &mut executing => return executed,
            () = self.link.gone() => self.cancel.ask(),
        }
        // What comes of it is told to nobody.
        let _ = executing.await;
        Err(hung_up())
    }

    /// Tells the client what came of a statement without rows, or goes through its COPY.
    async fn done(&mut self, outcome: Outcome) -> Result<Result<(), Failure>, End> {
        match outcome {
            Outcome::Empty => self.link.empty(),
            Outcome::Done(tag) => self.link.complete(&tag),
            Outcome::Set(tag, changed) => {
                for (name, value) in changed {
                    self.link.parameter(name, &value);
                }
                self.link.complete(&tag);
            }
            Outcome::Forget(name, tag) => {
                match &name {
                    None => self.statements.clear(),
                    Some(name) => {
                        if let Err(failure) = self.statement(name) {
                            return Ok(Err(failure));
                        }
                        self.statements.remove(name);
                    }
                }
                self.link.complete(&tag);
            }
            Outcome::Rows(tag, _) => self.link.complete(&format!("{tag} 0")),
            Outcome::CopyIn(columns) => return self.copy_in(columns).await,
            Outcome::CopyOut(copy) => return self.copy_out(copy).await,
        }
        Ok(Ok(()))
    }

    /// One message of the extended protocol.
    async fn extended(&mut self, message: Front) -> Result<Result<(), Failure>, End> {
        Ok(match message {
            Front::Parse(parse) => self.parse(parse).await,
            Front::Bind(bind) => self.bind(bind),
            Front::Describe(Target::Statement(name)) => self.describe_statement(&name),
            Front::Describe(Target::Portal(name)) => self.describe_portal(&name),
            Front::Execute { portal, limit } => return self.execute(&portal, limit).await,
            Front::Close(target) => {
                match target {
                    Target::Statement(name) => drop(self.statements.remove(&name)),
                    Target::Portal(name) => drop(self.portals.remove(&name)),
                }
                self.link.close_complete();
                Ok(())
            }
            Front::Function => Err(Failure::unsupported("the function call message", "use SELECT")),
            Front::Password => Err(Failure::protocol("a password came after the login")),
            Front::Query(_)
            | Front::Sync
            | Front::Flush
            | Front::Terminate
            | Front::CopyData(_)
            | Front::CopyDone
            | Front::CopyFail(_) => unreachable!("handled by the caller"),
        })
    }

    async fn parse(&mut self, parse: Parse) -> Result<(), Failure> {
        if !parse.name.is_empty() && self.statements.contains_key(&parse.name) {
            let message = format!("prepared statement \"{}\" already exists", parse.name);
            return Err(Failure::new(code::DUPLICATE_STATEMENT, message));
        }
        if self.statements.len() >= MAX_KEPT {
            let message = format!("a connection keeps at most {MAX_KEPT} prepared statements");
            return Err(Failure::new(code::LIMIT, message).hint("close those that are not used any more"));
        }
        let given = parse.oids.iter().map(|oid| given(*oid)).collect::<Result<Vec<_>, _>>()?;
        let parsed = self.session.split(&parse.text)?;
        if parsed.len() > 1 {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(Failure::new(code::SYNTAX, message));
        }
        let prepared = match parsed.first() {
            None => Prepared { plan: None, shape: Shape::default() },
            Some(parsed) => {
                let (plan, shape) = self.session.prepare(parsed, &given).await?;
                Prepared { plan: Some(plan), shape }
            }
        };
        self.statements.insert(parse.name, Arc::new(prepared));
        self.link.parse_complete();
        Ok(())
    }

    fn statement(&self, name: &str) -> Result<Arc<Prepared<PlanOf<S>>>, Failure> {
        let found = self.statements.get(name).cloned();
        found.ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_string(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            Failure::new(code::NO_STATEMENT, message)
        })
    }

    fn bind(&mut self, bind: Bind) -> Result<(), Failure> {
        let prepared = self.statement(&bind.statement)?;
        if !bind.portal.is_empty() && self.portals.contains_key(&bind.portal) {
            let message = format!("portal \"{}\" already exists", bind.portal);
            return Err(Failure::new("42P03", message));
        }
        if self.portals.len() >= MAX_KEPT {
            let message = format!("a connection keeps at most {MAX_KEPT} portals");
            return Err(Failure::new(code::LIMIT, message));
        }
        let kinds = &prepared.shape.parameters;
        if bind.values.len() != kinds.len() {
            return Err(Failure::new(
                code::PROTOCOL,
                format!(
                    "bind message supplies {} parameters, but the prepared statement requires {}",
                    bind.values.len(),
                    kinds.len()
                ),
            ));
        }
        let values = values::read_all(kinds, &bind.formats, &bind.values)?;
        let columns = prepared.shape.columns.as_ref().map_or(0, Vec::len);
        let formats = Formats::of(&bind.results, columns)?;
        self.portals.insert(bind.portal, Portal::Fresh { prepared, values, formats });
        self.link.bind_complete();
        Ok(())
    }

    fn describe_statement(&mut self, name: &str) -> Result<(), Failure> {
        let prepared = self.statement(name)?;
        self.link.parameter_description(&prepared.shape.parameters);
        self.describe(&prepared.shape, &Formats::text());
        Ok(())
    }

    fn describe_portal(&mut self, name: &str) -> Result<(), Failure> {
        let (shape, formats) = match self.portals.get(name) {
            Some(Portal::Fresh { prepared, formats, .. } | Portal::Running { prepared, formats, .. }) => {
                (prepared.shape.clone(), formats.clone())
            }
            Some(Portal::Over) => (Shape::default(), Formats::text()),
            None => match self.session.cursor(name) {
                Some(columns) => (Shape { parameters: Vec::new(), columns: Some(columns) }, Formats::text()),
                None => return Err(no_portal(name)),
            },
        };
        self.describe(&shape, &formats);
        Ok(())
    }

    fn describe(&mut self, shape: &Shape, formats: &Formats) {
        match &shape.columns {
            Some(columns) => self.link.row_description(columns, formats),
            None => self.link.no_data(),
        }
    }

    async fn execute(&mut self, name: &str, limit: usize) -> Result<Result<(), Failure>, End> {
        let Some(portal) = self.portals.get_mut(name) else { return Ok(Err(no_portal(name))) };
        let (prepared, mut rows, tag, formats) = match std::mem::replace(portal, Portal::Over) {
            Portal::Running { prepared, rows, tag, formats } => (prepared, rows, tag, formats),
            Portal::Over => {
                let message = format!("portal \"{name}\" cannot be run");
                return Ok(Err(Failure::new("55000", message)));
            }
            Portal::Fresh { prepared, values, formats } => {
                let Some(plan) = prepared.plan.clone() else {
                    self.link.empty();
                    return Ok(Ok(()));
                };
                // The client of a COPY sends its rows next, once it is asked for them.
                let changes = self.session.commits(&plan) && !self.session.copies_in(&plan);
                if changes
                    && !self.grouped
                    && self.session.transaction() == Transaction::Idle
                    && !self.link.ends_group().await?
                {
                    self.session.begin_group();
                    self.grouped = true;
                }
                self.cancel.reset();
                let executed = self.carry_out(plan, values).await;
                self.warn();
                match executed {
                    Err(failure) => return Ok(Err(failure)),
                    Ok(Outcome::Rows(tag, rows)) => (prepared, rows, tag, formats),
                    Ok(other) => return self.done(other).await,
                }
            }
        };
        let columns = prepared.shape.columns.as_deref().unwrap_or_default();
        match self.send_rows(&mut rows, columns, &formats, limit).await? {
            Err(failure) => return Ok(Err(failure)),
            Ok((count, true)) => self.link.complete(&format!("{tag} {count}")),
            Ok((_, false)) => {
                let running = Portal::Running { prepared, rows, tag, formats };
                self.portals.insert(name.to_string(), running);
                self.link.portal_suspended();
            }
        }
        Ok(Ok(()))
    }

    /// The last word before the connection is closed.
    pub async fn say_goodbye(&mut self, failure: &Failure) {
        self.link.goodbye(failure).await;
    }
}

fn no_portal(name: &str) -> Failure {
    Failure::new(code::NO_PORTAL, format!("portal \"{name}\" does not exist"))
}

pub(crate) fn canceled() -> Failure {
    Failure::new(code::CANCELED, "canceling statement due to user request")
}

fn hung_up() -> Failure {
    Failure::new(code::GONE, "the client has hung up").fatal()
}

/// A parameter's type as the client gave it; 0 leaves it to the statement.
fn given(oid: u32) -> Result<Option<Kind>, Failure> {
    match (oid, Kind::from_oid(oid)) {
        (0, _) | (_, Some(Kind::Unknown)) => Ok(None),
        (_, Some(kind)) => Ok(Some(kind)),
        (_, None) => Err(Failure::unsupported(
            format!("a parameter of the type with OID {oid}"),
            "leave the type to the statement, or cast the parameter",
        )),
    }
}
