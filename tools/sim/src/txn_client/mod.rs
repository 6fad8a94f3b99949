//! Clients of global transactions: the native client's core, and the machines of `client::txn`, over the
//! simulated network. Each runs one transaction after the other; now and then one dies behind a commit, with
//! the flushes that it has not made, in some worlds between begin and commit, and in some anywhere. One
//! client is the recovery manager, and in some worlds an operator, and nothing else.

pub mod claims;
mod copier;
mod doubts;
mod operator;
mod recovery;
pub mod spread;
mod stale;

use crate::check::commits::{TxnEnd, TxnOperation};
use crate::client::shell::Shell;
use crate::client::{ClientEffect, LinkNews};
use crate::network::{Conn, Endpoint};
use crate::plan::RunPlan;
use crate::plan::transactions::LEDGER;
use crate::random::Stream;
use crate::rows::{self, TABLE, table_of};
use ::client::txn::{ANYWHERE, Doing, KnownCommits, Manager, Secured, SnapshotAsk, Step};
use ::client::{Call, Completed, CoreConfig, FailKind, LaneId, Outcome, Ticket};
use claims::{Claims, Look};
use doubts::Doubts;
pub use recovery::RecoveryClient;
use spread::Spread;
use std::collections::BTreeMap;
use types::data::constraint::{Constraint, Demand};
use types::{CatalogTable, Micros, PartitionId, Position, Rules, TableId};
use wire::commit::PartitionWrites;
use wire::request::TablePart;
use wire::{
    Body, CommitAnswer, CommitRequest, ManagerOp, Message, Op, ReadLevel, RecordText, RowOp, TableChange,
};

/// The number of its index.
const INDEX: u32 = 900_001;
/// Every call waits so long.
const CALL_TIMEOUT: Micros = Micros::from_millis(1_500);
/// Keys of the table.
const KEYS: u64 = 8;

/// The table as it is made.
fn accounts() -> CatalogTable {
    let index = Constraint::new(INDEX, "by_mark", Demand::Index(vec![rows::MARK]));
    let schema = rows::table_schema(1, 0).with_constraints(vec![index]).expect("valid");
    CatalogTable::new(TABLE, "accounts", schema, 1)
}

/// Settings of a core here.
fn config(random: &mut Stream) -> CoreConfig {
    CoreConfig {
        window: 1,
        attempt_timeout: Micros::from_millis(400),
        patience: CALL_TIMEOUT,
        idle: Micros::from_millis(5_000),
        seed: random.next(),
        rules: Rules::ALL,
    }
}

/// A partition with a part in a commit, and the commit before it there.
type Previous = (PartitionId, Position);

/// What becomes of rows, and the snapshot that each of these operations rests on.
type Rests = (Vec<RowOp>, Vec<Position>);

/// A transaction under way.
#[derive(Debug)]
struct Open {
    operation: TxnOperation,
    /// The snapshot that is read: a later one than the first, if each statement has its own.
    current: Option<Position>,
    /// What is still to be read.
    to_read: Vec<String>,
    /// What it commits.
    asked: Option<CommitRequest>,
    /// It has made the table once: a snapshot from before that does not show it.
    defined: bool,
    /// It writes rows that demand something of others, and looks at these before.
    look: Option<Look>,
    /// It reads this, which all copies have.
    secured: Option<Secured>,
}

impl Open {
    /// One that begins, and reads these keys.
    fn new(operation: TxnOperation, to_read: Vec<String>) -> Open {
        let (current, asked, look, secured) = (None, None, None, None);
        Open { operation, current, to_read, asked, defined: false, look, secured }
    }
}

/// What a call is for.
#[derive(Debug)]
enum Purpose {
    Begin(SnapshotAsk),
    /// Asks what all copies have secured.
    Secured {
        /// It asks the manager's primary, and not any of its copies.
        of_primary: bool,
    },
    /// Reads the key that is to be read next.
    Read(Doing),
    /// Tells the transaction manager what tables are like, and begins.
    Announce,
    /// Reads all rows of a table in a partition that are to be looked at next.
    Scan(Doing),
    /// Makes the table in a partition, and reads again.
    Define,
    /// Waits before it commits.
    Think,
    Commit,
    /// Asks the session of a commit what became of it.
    Resolve,
    Flush(Doing),
    /// Of a change of the database's tables.
    Spread(spread::Purpose),
}

/// The client.
pub struct TxnClient {
    id: u32,
    random: Stream,
    shell: Shell,
    known: KnownCommits,
    /// Its part in changes of the database's tables.
    spread: Option<Spread>,
    /// What it writes of tables with unique values and references.
    claims: Option<Claims>,
    /// By which it reads what all copies have secured, if it does.
    stale: Option<Stream>,
    open: Option<Open>,
    calls: BTreeMap<Ticket, Purpose>,
    /// Those that pause, until when.
    paused: Vec<(u64, Purpose)>,
    reported: ClientHistory,
    incarnation: Incarnation,
}

/// Which of those that follow each other in a client's place it is.
struct Incarnation {
    /// The lanes of its calls are its own: it does not wait for those of one that is dead.
    number: u32,
    /// By which it dies in the middle of transactions, if it does.
    deaths: Option<Stream>,
    /// Commits that it does not know the end of, where it dies anywhere.
    doubts: Option<Doubts>,
    /// When it begins the next transaction.
    next_at: u64,
}

/// What the client asked and was told.
#[derive(Debug, Default)]
struct ClientHistory {
    history: Vec<TxnOperation>,
    /// What a reply said that it must never say.
    fault: Option<String>,
    /// The last value that it wanted to write.
    last_value: u64,
}

/// Streams of a client, one for each kind of thing that it does.
pub struct Draws {
    /// For what it does.
    pub own: Stream,
    /// For changes of the database's tables.
    pub changes: Stream,
    /// For rows that demand something of others.
    pub claims: Stream,
    /// For when it dies in the middle of a transaction.
    pub deaths: Stream,
    /// For when it dies anywhere else, and does not wait for the end of a commit.
    pub doubts: Stream,
    /// For reads of what all copies have secured.
    pub stale: Stream,
}

impl TxnClient {
    /// A client of a plan with global transactions, with the name of a client.
    pub fn new(id: u32, draws: Draws, (plan, rules): (&RunPlan, Rules)) -> TxnClient {
        let Draws { own: mut random, changes, claims, deaths, doubts, stale } = draws;
        let shell = Shell::new(id, config(&mut random), plan.controllers);
        let planned = plan.workload.transactions;
        let spread = planned.spread.then(|| Spread::new(id, changes, (rules, planned.lazy)));
        let claims = planned.claims.then(|| Claims::new(claims, planned.by_value));
        let deaths = planned.deaths.are_any().then_some(deaths);
        let doubts = planned.deaths.are_anywhere().then(|| Doubts::new(doubts, plan.controllers));
        TxnClient {
            id,
            random,
            shell,
            known: KnownCommits::default(),
            spread,
            claims,
            stale: planned.stale.then_some(stale),
            open: None,
            calls: BTreeMap::new(),
            paused: Vec::new(),
            reported: ClientHistory::default(),
            incarnation: Incarnation { number: 0, deaths, doubts, next_at: 0 },
        }
    }

    /// What it asked and was told.
    pub fn history(&self) -> &[TxnOperation] {
        &self.reported.history
    }

    /// What a reply said that it must never say.
    pub fn fault(&self) -> Option<&str> {
        self.reported.fault.as_deref()
    }

    /// When it has something to do next, if nothing happens before.
    pub fn wakes_at(&self) -> Option<u64> {
        let paused = self.paused.iter().map(|(until, _)| *until);
        let doubts = self.incarnation.doubts.as_ref().and_then(Doubts::wakes_at);
        paused.chain(doubts).chain(self.shell.core().next_timer().map(|at| at.0)).min()
    }

    /// Does what is due. Nothing new is begun unless `goes_on`.
    pub fn step(&mut self, now: u64, goes_on: bool) -> Vec<ClientEffect> {
        self.doubts_step(now);
        self.shell.tick(now);
        let in_doubt = self.incarnation.doubts.as_ref().is_some_and(Doubts::is_open);
        if self.open.is_none() && goes_on && !in_doubt && now >= self.incarnation.next_at {
            self.begin(now);
        }
        let map = self.shell.core().map();
        let change = self.spread.as_mut().and_then(|spread| spread.step(now, goes_on, map));
        self.spread_on(now, change);
        let due: Vec<_> = self.paused.extract_if(.., |(until, _)| *until <= now).collect();
        let incarnation = self.incarnation.number;
        for (_, purpose) in due {
            // What was waiting goes with whoever dies.
            if self.incarnation.number == incarnation {
                self.go_on(now, purpose, None);
            }
        }
        self.turn(now);
        self.shell.take_effects()
    }

    /// There is news of a connection.
    pub fn linked(&mut self, now: u64, to: Endpoint, news: LinkNews) {
        let random = &mut self.random;
        self.shell.linked(now, to, news, || random.between(1_000, 50_000));
        self.turn(now);
    }

    /// A message came.
    pub fn hear(&mut self, now: u64, from: (Endpoint, Conn), message: Message) {
        let random = &mut self.random;
        self.shell.hear(now, from, message, || random.between(1_000, 50_000));
        self.reported.fault = self.reported.fault.take().or(self.shell.take_fault());
        self.turn(now);
    }

    /// The run is over: what is not decided stays unknown.
    pub fn abandon(&mut self, now: u64) {
        self.give_doubts_up(now);
        self.end(now, TxnEnd::Unknown);
    }

    fn turn(&mut self, now: u64) {
        self.shell.carry_out(now);
        self.shell.take_sent();
        while let Some(Completed { ticket, outcome, .. }) = self.shell.next_completed() {
            if let Some(purpose) = self.calls.remove(&ticket) {
                self.go_on(now, purpose, Some(outcome));
                self.shell.carry_out(now);
            }
        }
    }

    fn submit(&mut self, now: u64, call: Call, purpose: Purpose) {
        self.submit_for(now, CALL_TIMEOUT, (call, purpose));
    }

    fn submit_for(&mut self, now: u64, limit: Micros, (call, purpose): (Call, Purpose)) {
        let ticket = self.shell.submit(now, LaneId(2 * self.incarnation.number), call.within(limit));
        self.calls.insert(ticket, purpose);
    }

    fn spread_on(&mut self, now: u64, next: Option<(spread::Purpose, Call)>) {
        let Some((purpose, call)) = next else { return };
        let ticket =
            self.shell.submit(now, LaneId(2 * self.incarnation.number + 1), call.within(CALL_TIMEOUT));
        self.calls.insert(ticket, Purpose::Spread(purpose));
    }

    fn manager(&self) -> Option<Manager> {
        self.shell.core().map().table(types::system::COMMITS).map(|record| Manager::of(record))
    }

    /// The database, and the partition of a key.
    fn place(&self, name: &str) -> Option<(TableId, PartitionId)> {
        let record = self.shell.core().map().database(LEDGER)?;
        let number = match self.claims {
            None => name.bytes().map(u32::from).sum::<u32>() % record.partitions,
            Some(_) => record.place_of(&rows::table_schema(1, 0), &rows::key(name, true)).ok()?,
        };
        Some((record.id, PartitionId(record.first_partition.0 + number)))
    }

    fn name(&mut self) -> String {
        format!("a{}", self.random.below(KEYS))
    }

    fn begin(&mut self, now: u64) {
        let (Some(manager), Some(_)) = (self.manager(), self.place("")) else { return };
        if self.begins_stale(now, manager) {
            return;
        }
        let to_read = (0..self.random.below(4)).map(|_| self.name()).collect();
        let look = self.claims.as_mut().and_then(Claims::begin);
        // What it looks at before it commits it sees at another snapshot, too.
        let statements = self.id.is_multiple_of(3) || look.is_some();
        let operation = TxnOperation { statements, ..TxnOperation::new(self.id, now) };
        self.open = Some(Open { look, ..Open::new(operation, to_read) });
        if let Some(announced) = self.announces() {
            return self.submit(now, manager.call(announced), Purpose::Announce);
        }
        self.ask_snapshot(now, manager);
    }

    /// Asks for a snapshot.
    fn ask_snapshot(&mut self, now: u64, manager: Manager) {
        let asked = self.known.asks();
        self.submit(now, asked.call(manager), Purpose::Begin(asked));
    }

    fn end(&mut self, now: u64, told: TxnEnd) {
        let Some(open) = self.open.take() else { return };
        self.incarnation.next_at = now + self.random.between(10_000, 120_000);
        self.reported.history.push(TxnOperation { completed: now, told, ..open.operation });
    }

    /// True if it dies now: in the middle of a transaction that it has not tried to commit.
    fn dies(&mut self) -> bool {
        let between = self.open.as_ref().is_some_and(|open| open.asked.is_none());
        between && self.incarnation.deaths.as_mut().is_some_and(|random| random.chance(20))
    }

    /// Another one takes its place, who knows nothing of what it did. Its transaction has never been.
    fn die(&mut self, now: u64) {
        self.end(now, TxnEnd::NotDone);
        self.incarnation.number += 1;
        self.known = KnownCommits::default();
        self.calls.clear();
        self.paused.clear();
        if let Some(claims) = &mut self.claims {
            claims.forget();
        }
        if let Some(spread) = &mut self.spread {
            spread.die(now);
        }
    }

    /// A call has ended, or a pause is over.
    fn go_on(&mut self, now: u64, purpose: Purpose, outcome: Option<Outcome>) {
        if self.dies() {
            return self.die(now);
        }
        match (purpose, outcome) {
            (Purpose::Read(doing), outcome) => self.read_goes_on(now, doing, outcome),
            (Purpose::Flush(doing), outcome) => self.flush_goes_on(now, doing, outcome),
            (Purpose::Scan(doing), outcome) => self.scan_goes_on(now, doing, outcome),
            (Purpose::Announce, Some(Outcome::Ok(_))) => self.announced(now),
            (Purpose::Begin(asked), Some(Outcome::Ok(answer))) => {
                let snapshot = self.known.begun(asked, &answer.body);
                let Some(open) = &mut self.open else { return };
                open.operation.snapshot = open.operation.snapshot.or(snapshot);
                open.current = snapshot;
                self.next_read(now);
            }
            (Purpose::Secured { of_primary }, Some(outcome)) => self.secured_known(now, of_primary, outcome),
            (Purpose::Define, Some(_)) => self.next_read(now),
            (Purpose::Think, _) => self.commit(now),
            (Purpose::Commit, Some(outcome)) => self.commit_ended(now, outcome),
            (Purpose::Resolve, Some(outcome)) => self.session_answered(now, outcome),
            (Purpose::Begin(_) | Purpose::Announce, _) => self.end(now, TxnEnd::NotDone),
            (Purpose::Spread(purpose), Some(outcome)) => {
                let (map, spread) = (self.shell.core().map(), &mut self.spread);
                let next = spread.as_mut().and_then(|spread| spread.go_on(now, (purpose, outcome), map));
                self.spread_on(now, next);
            }
            (Purpose::Secured { .. } | Purpose::Define | Purpose::Spread(_), None) => {}
            (Purpose::Commit | Purpose::Resolve, None) => {}
        }
    }

    /// Reads the next key, or commits.
    fn next_read(&mut self, now: u64) {
        let Some(open) = &self.open else { return };
        let (Some(name), Some(snapshot)) = (open.to_read.last().cloned(), open.current) else {
            if open.operation.stale {
                return self.end(now, TxnEnd::ReadOnly);
            }
            if self.looks_on(now) {
                return;
            }
            // Some take so long that what came after their snapshot may be forgotten.
            if self.random.chance(100) {
                let until = now + self.random.between(500_000, 4_000_000);
                return self.paused.push((until, Purpose::Think));
            }
            return self.commit(now);
        };
        let (Some(manager), Some((_, partition))) = (self.manager(), self.place(&name)) else { return };
        let (at, level) = match &open.secured {
            Some(secured) => (secured.snapshot(partition), ANYWHERE),
            None => (self.known.at(snapshot, partition), ReadLevel::Primary),
        };
        let goal = Call::new(TABLE, 1, partition, Op::Get { key: rows::key(&name, true), at });
        let goal = goal.at_level(level);
        let (doing, call) = Doing::new(manager, goal.within(CALL_TIMEOUT));
        self.submit(now, call, Purpose::Read(doing));
    }

    fn read_goes_on(&mut self, now: u64, mut doing: Doing, outcome: Option<Outcome>) {
        match doing.next(outcome) {
            Step::Call(call) => self.submit(now, *call, Purpose::Read(doing)),
            Step::Wait(time) => self.paused.push((now + time.0, Purpose::Read(doing))),
            Step::Done(outcome) => match *outcome {
                Outcome::Ok(answer) => {
                    let Some(open) = &mut self.open else { return };
                    let Some(name) = open.to_read.pop() else { return };
                    let value = answer.row().map(|(_, row)| rows::table_value(row));
                    open.operation.reads.push((name, value, open.current.unwrap_or_default()));
                    let again = self.id.is_multiple_of(3) && !open.operation.stale;
                    match (again && !open.to_read.is_empty(), self.manager()) {
                        // Each statement sees what is committed when it begins.
                        (true, Some(manager)) => self.ask_snapshot(now, manager),
                        _ => self.next_read(now),
                    }
                }
                Outcome::Failed(FailKind::Stale, _) => self.define(now, doing.partition()),
                _ => self.end(now, TxnEnd::NotDone),
            },
        }
    }

    fn define(&mut self, now: u64, partition: PartitionId) {
        let Some((database, _)) = self.place("") else { return };
        if self.open.as_mut().is_none_or(|open| std::mem::replace(&mut open.defined, true)) {
            return self.end(now, TxnEnd::NotDone);
        }
        let others = self.claims.as_ref().map_or(Vec::new(), Claims::tables);
        let tables = [accounts()].into_iter().chain(others);
        let changes = tables.map(|table| TableChange::Create(RecordText::new(&table))).collect();
        let op = Op::Transact { changes, parts: Vec::new(), since: None };
        self.submit(now, Call::new(database, 0, partition, op), Purpose::Define);
    }

    fn commit(&mut self, now: u64) {
        let read: Vec<String> = match &self.open {
            Some(open) => {
                let names = open.operation.reads.iter().map(|(name, ..)| name);
                names.filter(|name| table_of(name) == TABLE).cloned().collect()
            }
            None => return,
        };
        if self.random.chance(150) {
            return self.end(now, TxnEnd::ReadOnly);
        }
        let blind = (0..1 + self.random.below(2)).map(|_| self.name()).collect::<Vec<_>>();
        let mut writes: BTreeMap<String, Option<u64>> =
            read.into_iter().chain(blind).map(|name| (name, self.value())).collect();
        if !self.claims_too(&mut writes) {
            return self.end(now, TxnEnd::ReadOnly);
        }
        let (Some(manager), Some(open)) = (self.manager(), self.open.take()) else { return };
        let asked = self.asks(&writes, &open.operation);
        let operation = TxnOperation { writes: writes.into_iter().collect(), ..open.operation };
        let op = match (&open.look, open.current) {
            (Some(look), Some(looked_at)) => look.commits(asked.clone(), looked_at),
            _ => ManagerOp::Commit(asked.clone()),
        };
        self.open = Some(Open { operation, asked: Some(asked), ..open });
        self.shell.take_commit_sent();
        let limit = self.incarnation.doubts.as_mut().map_or(CALL_TIMEOUT, |doubts| doubts.begins(now));
        self.submit_for(now, limit, (manager.call(op), Purpose::Commit));
    }

    /// A value that nobody else writes; none: the row goes.
    fn value(&mut self) -> Option<u64> {
        self.reported.last_value += 1;
        (!self.random.chance(100)).then_some(u64::from(self.id) << 32 | self.reported.last_value)
    }

    fn asks(&self, writes: &BTreeMap<String, Option<u64>>, operation: &TxnOperation) -> CommitRequest {
        let snapshot = operation.snapshot.unwrap_or_default();
        let mut parts: BTreeMap<PartitionId, BTreeMap<TableId, Rests>> = BTreeMap::new();
        for (name, value) in writes {
            let Some((_, partition)) = self.place(name) else { continue };
            let key = rows::key(name, true);
            let op = match value {
                Some(value) => RowOp::Put { key, row: rows::table_row(name, *value, (1, 0)) },
                None => RowOp::Delete { key },
            };
            let (ops, seen) = parts.entry(partition).or_default().entry(table_of(name)).or_default();
            ops.push(op);
            seen.push(operation.seen_at(name));
        }
        let part = |(table, (ops, seen)): (TableId, Rests)| {
            let alike = seen.iter().all(|seen| *seen == snapshot);
            TablePart { table, schema: 1, ops, seen: if alike { Vec::new() } else { seen } }
        };
        let writes = |(partition, tables): (PartitionId, BTreeMap<_, _>)| PartitionWrites {
            partition,
            parts: tables.into_iter().map(part).collect(),
        };
        CommitRequest { snapshot, writes: parts.into_iter().map(writes).collect() }
    }

    fn commit_ended(&mut self, now: u64, outcome: Outcome) {
        match outcome {
            Outcome::Ok(answer) => {
                let Body::Commit(CommitAnswer::Committed(previous)) = answer.body.clone() else {
                    self.reported.fault = Some(format!("a commit was answered with {:?}", answer.body));
                    return self.end(now, TxnEnd::Unknown);
                };
                let at = answer.position();
                let asked = self.open.as_mut().and_then(|open| open.asked.take());
                self.end(now, TxnEnd::Committed(at));
                if let Some(asked) = asked {
                    self.flush_all(now, at, (previous, asked));
                }
            }
            Outcome::Refused(..) => self.end(now, TxnEnd::Refused),
            Outcome::Failed(FailKind::Bad, why) => {
                self.reported.fault = Some(format!("a commit was told '{why}'"));
                self.end(now, TxnEnd::NotDone);
            }
            Outcome::Failed(kind, _) => {
                self.forget_announced(&kind);
                self.end(now, TxnEnd::NotDone);
            }
            Outcome::Unknown(_) => self.doubt(now, true),
        }
    }

    /// Tells the partitions of its commit.
    fn flush_all(&mut self, now: u64, at: Position, (previous, asked): (Vec<Previous>, CommitRequest)) {
        let Some(manager) = self.manager() else { return };
        let flushes = self.known.committed(at, &previous, asked);
        // It dies, as far as anybody can tell.
        if self.random.chance(200) {
            return;
        }
        let Some((database, _)) = self.place("") else { return };
        for (partition, flush) in flushes {
            let (doing, call) = Doing::flush(manager, (database, partition), flush);
            self.submit(now, call, Purpose::Flush(doing));
        }
        if let Some(doubts) = &mut self.incarnation.doubts {
            doubts.may_die(now, 100);
        }
    }

    fn flush_goes_on(&mut self, now: u64, mut doing: Doing, outcome: Option<Outcome>) {
        match doing.next(outcome) {
            Step::Call(call) => self.submit(now, *call, Purpose::Flush(doing)),
            Step::Wait(time) => self.paused.push((now + time.0, Purpose::Flush(doing))),
            // Whoever reads, or the recovery manager, does what is left.
            Step::Done(_) => {}
        }
    }
}
