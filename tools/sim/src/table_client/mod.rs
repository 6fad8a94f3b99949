//! A client of a database: several tables in one partition, made, changed, dropped, written and read while
//! others do the same. It asks one thing after the other, and each again until it is decided. Where a
//! database has several partitions, each client is one of one of them. Those of the first one change tables
//! there; the others bring the same to theirs.

mod choices;
mod large;
mod level;
mod numbers;

use crate::check::catalog::{Table, is_reserved};
use crate::check::history::RowChange;
use crate::check::tables::{
    Asked, Part, Refused, Shown, TableAnswer, TableChange, TableOperation, Transaction, What,
};
use crate::client::{ClientEffect, LinkNews};
use crate::network::{Conn, Endpoint};
use crate::plan::RunPlan;
use crate::random::Stream;
use crate::rows;
use bytes::Bytes;
use choices::Choices;
use level::{Level, Step};
use numbers::Numbers;
use std::collections::BTreeMap;
use types::{CatalogTable, FeedId, JobId, PartitionId, Rules, SessionId, TableId};
use wire::job::JobRecord;
use wire::request::{FeedMark, ReadSnapshot};
use wire::{Body, Message, Op, Outcome, ReadLevel, RecordText, Reply, Request, RowOp, Status, TablePart};

/// An attempt without an answer is given up after this.
const ATTEMPT: u64 = 400_000;
/// What is not decided by then is given up.
const OPERATION_TIMEOUT_US: u64 = 4_000_000;

/// What is being asked.
#[derive(Debug)]
struct Open {
    operation: TableOperation,
    /// What it changes of tables, as it is sent.
    changes: Vec<wire::TableChange>,
    deadline: u64,
    /// The attempt on its way: request, since when.
    flight: Option<(u64, u64)>,
    retry_at: u64,
    sent: bool,
}

/// A session with the partition, and the number of the next write in it.
#[derive(Debug)]
struct Session {
    id: Option<SessionId>,
    next: u64,
}

/// The partition, and the ways to it.
#[derive(Debug)]
struct Route {
    partition: PartitionId,
    database: TableId,
    nodes: u32,
    links: BTreeMap<u32, Option<Conn>>,
    turn: u32,
}

/// A client of the plan's database. Has one connection per node, and one to a controller.
#[derive(Debug)]
pub struct TableClient {
    id: u32,
    route: Route,
    session: Session,
    choices: Choices,
    numbers: Numbers,
    /// How its partition is brought to the tables of the first one, if it is another one.
    level: Option<Level>,
    open: Option<Open>,
    history: Vec<TableOperation>,
    last_number: u64,
    next_at: u64,
    fault: Option<String>,
}

impl TableClient {
    /// A client of a plan that has a database, with the name of a client; `at` is its number among them. Of
    /// its streams the second is for bringing its partition level.
    pub fn new(
        (id, at): (u32, u32),
        (random, levels): (Stream, Stream),
        (plan, rules): (&RunPlan, Rules),
    ) -> Option<TableClient> {
        let places = plan.database_partitions();
        let (first, _) = *places.first()?;
        let (partition, database) = places[at as usize % places.len()];
        let level = (partition != first).then(|| Level::new(first, rules, levels));
        // A node that comes later may lead one of several.
        let nodes = if places.len() > 1 { plan.all_nodes() } else { plan.nodes };
        Some(TableClient {
            id,
            route: Route { partition, database, nodes, links: BTreeMap::new(), turn: id },
            session: Session { id: None, next: 1 },
            choices: Choices::new(random, (level.is_none(), plan.workload.large_writes)),
            numbers: Numbers::new(plan.controllers, id),
            level,
            open: None,
            history: Vec::new(),
            last_number: 0,
            next_at: 0,
            fault: None,
        })
    }

    /// What it asked and was told.
    pub fn history(&self) -> &[TableOperation] {
        &self.history
    }

    /// Numbers that it was given: the first of each lot, and how many that has.
    pub fn numbers(&self) -> impl Iterator<Item = (u32, u32)> {
        self.numbers.given()
    }

    /// What a reply said that it must never say.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Its partition, while it waits for it. That it brings the partition level has no end.
    pub fn waits_for(&self) -> Option<PartitionId> {
        self.open.as_ref().filter(|open| !open.operation.levels).map(|_| self.route.partition)
    }

    /// There is news of a connection.
    pub fn linked(&mut self, to: Endpoint, news: LinkNews) {
        let Endpoint::Node(node) = to else { return self.numbers.linked(news) };
        if let Some(conn) = news.up() {
            self.route.links.insert(node, Some(conn));
            return;
        }
        self.route.links.remove(&node);
        self.route.turn += 1;
        if let Some(open) = &mut self.open {
            open.flight = None;
        }
    }

    /// Does what is due. Nothing new is begun unless `goes_on`, but for what brings its partition level.
    pub fn step(&mut self, now: u64, goes_on: bool) -> Vec<ClientEffect> {
        if self.open.is_none() && self.level.as_ref().is_some_and(|level| level.due(now).is_some()) {
            self.bring_level(now);
        }
        if self.open.is_none() && goes_on && now >= self.next_at {
            self.invent(now);
        }
        if self.open.as_ref().is_some_and(|open| now >= open.deadline) {
            self.give_up(now);
        }
        let numbers = goes_on.then(|| self.numbers.step(now)).flatten();
        self.try_send(now).into_iter().chain(numbers).collect()
    }

    /// A number that no other operation or request of any client has.
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        u64::from(self.id) << 32 | self.last_number
    }

    fn invent(&mut self, now: u64) {
        let value = self.number();
        let asked = self.choices.next(value, &mut self.numbers);
        self.next_at = now + self.choices.random().between(15_000, 200_000);
        let changes = match &asked {
            Asked::Write(write) => write.changes.iter().map(sent_change).collect(),
            _ => Vec::new(),
        };
        self.ask(now, (self.route.partition, false), asked, changes);
    }

    /// The next step of bringing its partition to the tables of the first one.
    fn bring_level(&mut self, now: u64) {
        let (value, own) = (self.number(), self.route.partition);
        let Some(level) = &self.level else { return };
        let first = level.first();
        let (partition, changes) = match level.due(now) {
            Some(Step::Own) => (own, Vec::new()),
            Some(Step::First(_)) => (first, Vec::new()),
            Some(Step::Change(changes)) => (own, changes.clone()),
            None => return,
        };
        let asked = match changes.is_empty() {
            true => Asked::Catalog(ReadSnapshot::Newest),
            false => Choices::write(value, changes.iter().map(read_change).collect(), Vec::new()),
        };
        self.ask(now, (partition, true), asked, changes);
    }

    fn ask(
        &mut self,
        now: u64,
        (partition, levels): (PartitionId, bool),
        asked: Asked,
        changes: Vec<wire::TableChange>,
    ) {
        let (session, told) = (None, TableAnswer::Unknown);
        let operation =
            TableOperation { partition, levels, asked, session, invoked: now, completed: 0, told };
        let deadline = now + OPERATION_TIMEOUT_US;
        self.open = Some(Open { operation, changes, deadline, flight: None, retry_at: now, sent: false });
    }

    /// The run is over, or it has waited long enough: what was sent may have been done.
    pub fn give_up(&mut self, now: u64) {
        let Some(open) = &self.open else { return };
        let writes = matches!(open.operation.asked, Asked::Write(_));
        let told = if writes && open.sent { TableAnswer::Unknown } else { TableAnswer::NotDone };
        if writes {
            self.session = Session { id: None, next: 1 };
        }
        self.end(now, told);
    }

    fn end(&mut self, now: u64, told: TableAnswer) {
        let Some(open) = self.open.take() else { return };
        if let Some(level) = self.level.as_mut().filter(|_| open.operation.levels) {
            level.ended(now, &told);
        }
        if !open.operation.levels || matches!(open.operation.asked, Asked::Write(_)) {
            self.choices.heard(&open.operation.asked, &told);
        }
        self.history.push(TableOperation { completed: now, told, ..open.operation });
    }

    fn try_send(&mut self, now: u64) -> Option<ClientEffect> {
        let number = self.number();
        let open = self.open.as_mut()?;
        if open.flight.is_some_and(|(_, since)| now >= since + ATTEMPT) {
            open.flight = None;
            self.route.turn += 1;
        }
        if open.flight.is_some() || now < open.retry_at {
            return None;
        }
        let node = 1 + self.route.turn % self.route.nodes;
        match self.route.links.get(&node) {
            Some(Some(conn)) => {
                open.flight = Some((number, now));
                let request = request(number, &self.route, &self.session, open);
                Some(ClientEffect::Send(*conn, Box::new(request)))
            }
            Some(None) => None,
            None => {
                self.route.links.insert(node, None);
                Some(ClientEffect::Dial(node, 0))
            }
        }
    }

    /// A message came.
    pub fn hear(&mut self, now: u64, conn: Conn, message: &Message) {
        match message {
            Message::Reply(reply) => self.reply_came(now, reply),
            Message::AdminAnswer(answer) => self.numbers.hear(now, conn, answer),
            _ => {}
        }
    }

    fn reply_came(&mut self, now: u64, reply: &Reply) {
        let wait = self.choices.random().between(5_000, 40_000);
        let ours = |open: &&mut Open| open.flight.is_some_and(|(request, _)| request == reply.id);
        let Some(open) = self.open.as_mut().filter(ours) else { return };
        (open.flight, open.retry_at) = (None, now);
        let writes = matches!(open.operation.asked, Asked::Write(_));
        let told = match (&reply.status, writes) {
            (Status::Ok, true) if self.session.id.is_none() => {
                self.session = Session { id: Some(SessionId(reply.position())), next: 1 };
                return;
            }
            (Status::Ok, true) => TableAnswer::Done(reply.position()),
            (Status::Refused(outcome), true) => match refused(outcome_of(*outcome, &reply.body)) {
                Some(why) => TableAnswer::Refused(why, reply.lsn),
                None => return self.lies(now, reply),
            },
            (Status::Ok, false) => match shown(&open.operation.asked, &reply.body) {
                Ok(shown) => {
                    let level = self.level.as_mut().filter(|_| open.operation.levels);
                    if let (Some(level), Body::Rows { rows, .. }) = (level, &reply.body) {
                        level.read(rows, reply.position());
                    }
                    TableAnswer::Shown(shown, reply.lsn, reply.epoch)
                }
                Err(_) => return self.lies(now, reply),
            },
            (Status::Stale(_), false) => TableAnswer::Shown(Shown::Stale, reply.lsn, reply.epoch),
            (Status::Bad(_) | Status::Expected(_) | Status::Unknown(_), true) => {
                let sent = open.sent && !matches!(reply.status, Status::Bad(_));
                self.session = Session { id: None, next: 1 };
                match sent {
                    true => TableAnswer::Unknown,
                    false => TableAnswer::NotDone,
                }
            }
            (Status::Bad(_) | Status::TooOld(_), false) => TableAnswer::NotDone,
            (status, _) => {
                self.route.turn += u32::from(!matches!(status, Status::NotYet(_)));
                open.retry_at = now + wait;
                return;
            }
        };
        if matches!(told, TableAnswer::Done(_) | TableAnswer::Refused(..)) {
            self.session.next += 1;
        }
        self.end(now, told);
    }

    fn lies(&mut self, now: u64, reply: &Reply) {
        let asked = self.open.as_ref().map(|open| &open.operation.asked);
        self.fault = Some(format!("{asked:?} was answered with {reply:?}"));
        self.end(now, TableAnswer::Unknown);
    }
}

/// Why a write is refused; the record of a job says it itself.
fn outcome_of(outcome: Outcome, body: &Body) -> Outcome {
    match (outcome, body) {
        (Outcome::Stopped, Body::Job(done)) => done.refused.map_or(outcome, |refused| refused.outcome),
        _ => outcome,
    }
}

fn refused(outcome: Outcome) -> Option<Refused> {
    match outcome {
        Outcome::Exists => Some(Refused::Exists),
        Outcome::Changed => Some(Refused::Changed),
        Outcome::Stale => Some(Refused::Stale),
        Outcome::NameTaken => Some(Refused::NameTaken),
        Outcome::Violates => Some(Refused::Violates),
        _ => None,
    }
}

/// What a node is sent for an operation. A write without a session opens one first.
fn request(id: u64, route: &Route, session: &Session, open: &mut Open) -> Request {
    let (operation, changes, database) = (&mut open.operation, &open.changes, route.database);
    let partition = operation.partition;
    let of_database = |op| Request { id, trace: id, ..Request::new(database, 0, partition, op) };
    match &operation.asked {
        Asked::Write(write) => {
            let Some(of) = session.id else { return of_database(Op::OpenSession) };
            operation.session = Some((of, session.next));
            open.sent = true;
            let own = write.parts.first().filter(|_| write.alone);
            let request = match own {
                Some(part) => {
                    Request { table: part.table, schema: part.version, ..of_database(alone(write, part)) }
                }
                None => of_database(transact(write, changes)),
            };
            Request { session: of, seq: session.next, confirmed: session.next - 1, ..request }
        }
        Asked::Catalog(at) => {
            let (from, to) = (Bytes::new(), Bytes::new());
            of_database(Op::Scan { from, to, limit: 1_000, at: *at })
        }
        Asked::Read { table, version, what, at, any } => {
            let key = |name: &str| if name.is_empty() { Bytes::new() } else { rows::key(name, true) };
            let op = match what {
                What::Row(name) => Op::Get { key: key(name), at: *at },
                What::Rows(range, limit) => {
                    Op::Scan { from: key(&range.from), to: key(&range.to), limit: *limit, at: *at }
                }
                What::Count(range) => Op::Count { from: key(&range.from), to: key(&range.to), at: *at },
            };
            let any = any.map(|bound| ReadLevel::Any { max_lag_ms: bound.max_lag_ms, min_lsn: bound.token });
            Request { table: *table, schema: *version, read: any.unwrap_or_default(), ..of_database(op) }
        }
    }
}

/// A write of one table's rows: by itself, as what a feed brings (PR-180), or, where it is of one row, as a
/// record of a job (PR-181).
fn alone(write: &Transaction, part: &Part) -> Op {
    let (value, mut ops) = (write.value, ops(part, write.value));
    let rests = write.since.is_some() || !part.seen.is_empty();
    if let (1, false, 0) = (ops.len(), rests, value % 2) {
        let op = ops.pop().expect("one");
        let records = vec![JobRecord { number: 1, op }];
        // A name that no other has: of the client, and of its operation.
        return Op::Job { job: JobId::new(1 + (value >> 32), value), after: 0, records };
    }
    let mark = (value % 3 == 0).then_some(FeedMark { feed: FeedId(value % 5), position: value });
    Op::Write { ops, mark, since: write.since }
}

/// A change of a table as it is sent.
fn sent_change(change: &TableChange) -> wire::TableChange {
    let text = |table: &Table| RecordText::new(&table.definition());
    match change {
        TableChange::Create(table) => wire::TableChange::Create(text(table)),
        TableChange::Alter(from, to) => wire::TableChange::Alter { from: *from, to: text(to) },
        TableChange::Drop(table, schema) => wire::TableChange::Drop { table: *table, schema: *schema },
    }
}

/// A change of a table that is sent, as checkers speak of it.
fn read_change(change: &wire::TableChange) -> TableChange {
    let read = |text: &RecordText| {
        let table: CatalogTable = text.read().expect("what was read of a catalog");
        Table::of(table.state(), table).expect("a table that a client has made")
    };
    match change {
        wire::TableChange::Create(table) => TableChange::Create(read(table)),
        wire::TableChange::Alter { from, to } => TableChange::Alter(*from, read(to)),
        wire::TableChange::Drop { table, schema } => TableChange::Drop(*table, *schema),
    }
}

fn transact(write: &Transaction, changes: &[wire::TableChange]) -> Op {
    let part = |part: &Part| TablePart {
        table: part.table,
        schema: part.version,
        ops: ops(part, write.value),
        seen: part.seen.clone(),
    };
    Op::Transact {
        changes: changes.to_vec(),
        parts: write.parts.iter().map(part).collect(),
        since: write.since,
    }
}

fn ops(part: &Part, value: u64) -> Vec<RowOp> {
    let op = |(change, name): &(RowChange, String)| {
        let (key, row) = (rows::key(name, true), rows::table_row(name, value, (part.version, part.more)));
        match change {
            RowChange::Put => RowOp::Put { key, row },
            RowChange::Insert => RowOp::Insert { key, row },
            RowChange::Update => RowOp::Update { key, row },
            RowChange::Delete => RowOp::Delete { key },
            RowChange::Keep => RowOp::Keep { key },
        }
    };
    part.ops.iter().map(op).collect()
}

/// What a reply shows. The error is a sentence.
fn shown(asked: &Asked, body: &Body) -> Result<Shown, String> {
    let value = |row: &Bytes| rows::table_value(row);
    Ok(match (asked, body) {
        (Asked::Catalog(_), Body::Rows { rows, more: false }) => {
            let ours = rows.iter().filter(|(key, ..)| !is_reserved(key));
            let read = ours.map(|(key, _, value)| Table::read(key, value));
            Shown::Tables(read.collect::<Result<_, _>>()?)
        }
        (Asked::Read { .. }, Body::Row(row)) => Shown::Row(row.as_ref().map(|(lsn, row)| (*lsn, value(row)))),
        (Asked::Read { .. }, Body::Rows { rows, more }) => {
            let row = |(key, lsn, row): &(Bytes, _, Bytes)| (rows::name_of(key), *lsn, value(row));
            Shown::Rows(rows.iter().map(row).collect(), *more)
        }
        (Asked::Read { .. }, Body::Number(number)) => Shown::Number(*number),
        _ => return Err("it is no answer to what was asked".into()),
    })
}
