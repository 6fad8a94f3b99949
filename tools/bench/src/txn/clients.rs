//! Clients that make transactions of row operations: lanes of one client on one thread.

use super::ledger::Ledger;
use super::store::Store;
use super::watch::Watch;
use crate::closed;
use crate::cluster::{Ours, Shared, WAIT_LIMIT};
use crate::error::BenchError;
use crate::subject::{Counters, Load, Sources, Subject, Way, note};
use crate::ycsb::arrivals::{Arrivals, Offered};
use client::txn::{Doing, KnownCommits, Step};
use client::{Call, Client, Completed, FailKind, LaneId, Outcome, Ticket};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use types::data::Value;
use types::random::Random;
use types::{Micros, PartitionId, Position};
use wire::commit::PartitionWrites;
use wire::request::ReadSnapshot;
use wire::{Body, CommitAnswer, CommitRequest, ManagerOp, Op, Outcome as Refusal, RowOp};

/// How long a call may take.
const LIMIT: Micros = Micros::from_millis(20_000);
/// Nothing else is waited for longer than this at a time, so that what is due is done.
const TURN: Duration = Duration::from_millis(20);

/// A database that several subjects use in turn.
pub(super) type SharedStore = Rc<RefCell<Store>>;

/// What transactions do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    /// Row operations of each.
    pub operations: u32,
    /// How many of a hundred of them write; the others read.
    pub updates: u8,
    /// Rows to choose from, all equally often.
    pub rows: u64,
}

/// What became of transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ends {
    pub done: u64,
    /// Times that a transaction began again, since another one was faster or its snapshot was gone.
    pub again: u64,
    /// Transactions of which nobody knows whether they were committed.
    pub unknown: u64,
    /// Times that a call failed because of a fault, and the transaction began again.
    pub failed: u64,
}

/// A transaction that ended: when, from the round's beginning, and how long it took.
pub(super) type Event = (Duration, Duration);

/// Something that happens while transactions are made.
pub(super) trait Beside {
    /// Does what is due; called again and again.
    fn turn(&mut self, ours: &mut Ours, elapsed: Duration) -> Result<(), BenchError>;
    /// True once it has done all that it does: the round goes on until then.
    fn is_over(&self) -> bool;
}

/// Transactions under load.
pub(super) struct Transactions {
    shared: Shared,
    store: SharedStore,
    mix: Mix,
    clients: u32,
    arrivals: Arrivals,
    /// A transaction ends when its partitions have acknowledged it, and not when it is committed.
    waits: bool,
    random: Random,
    tag: u64,
    pub ends: Ends,
    /// Every transaction of the last round.
    pub events: Vec<Event>,
    pub beside: Option<Box<dyn Beside>>,
    pub watch: Option<Watch>,
}

/// What a client's transaction waits for.
enum TxnStage {
    Beginning,
    Reading,
    /// With what was asked for, where the flushes are waited for.
    Committing(Option<CommitRequest>),
    /// So many flushes.
    Flushing(usize),
}

/// A transaction that is being made.
struct Open {
    due: Instant,
    begun: Instant,
    /// Rows in order, and what is written there; none: it is read.
    operations: Vec<(u64, Option<u64>)>,
    next: usize,
    snapshot: Position,
    writes: BTreeMap<u64, u64>,
    stage: TxnStage,
}

/// A round that goes on.
struct Round {
    open: Vec<Option<Open>>,
    idle: Vec<usize>,
    flushes: BTreeMap<Ticket, (usize, Doing)>,
    pauses: Vec<(Instant, usize, Doing)>,
    offered: Offered,
    begun: Instant,
    load: Load,
}

impl Transactions {
    /// `number` tells its writes from those of other subjects on the same rows.
    pub fn new(
        shared: &Shared,
        store: &SharedStore,
        mix: Mix,
        (clients, arrivals): (u32, Arrivals),
        number: u64,
    ) -> Transactions {
        Transactions {
            shared: shared.clone(),
            store: store.clone(),
            mix,
            clients,
            arrivals,
            waits: false,
            random: Random::new(number),
            tag: number << 40,
            ends: Ends::default(),
            events: Vec::new(),
            beside: None,
            watch: None,
        }
    }

    /// The same, with the flushes waited for.
    pub fn waiting(self) -> Transactions {
        Transactions { waits: true, ..self }
    }

    /// Goes on with so many clients.
    pub fn set_clients(&mut self, clients: u32, arrivals: Arrivals) {
        (self.clients, self.arrivals) = (clients, arrivals);
    }

    fn drawn(&mut self, due: Instant) -> Open {
        let mut operations = Vec::with_capacity(self.mix.operations as usize);
        for _ in 0..self.mix.operations {
            let row = self.random.below(self.mix.rows);
            let writes = self.random.below(100) < u64::from(self.mix.updates);
            self.tag += u64::from(writes);
            operations.push((row, writes.then_some(self.tag)));
        }
        let (begun, snapshot) = (Instant::now(), Position::ZERO);
        Open {
            due,
            begun,
            operations,
            next: 0,
            snapshot,
            writes: BTreeMap::new(),
            stage: TxnStage::Beginning,
        }
    }

    fn begin(&mut self, client: &mut Client, round: &mut Round) {
        let now = Instant::now();
        while let Some(at) = round.idle.last().copied() {
            let Some(due) = round.offered.take(now) else { return };
            round.idle.pop();
            round.open[at] = Some(self.drawn(due));
            self.ask(client, at, ManagerOp::Snapshot { since: Position::ZERO });
        }
    }

    fn ask(&self, client: &mut Client, at: usize, op: ManagerOp) {
        let call = self.store.borrow().manager.call(op).within(LIMIT);
        let lane = LaneId(at as u32);
        // Who waits for the flushes makes them.
        match &call.op {
            Op::Manager(ManagerOp::Commit(_)) if self.waits => client.submit(lane, call),
            _ => client.submit_in_transaction(lane, call),
        };
    }

    fn begin_again(&self, client: &mut Client, round: &mut Round, at: usize) {
        if let Some(open) = &mut round.open[at] {
            (open.next, open.stage) = (0, TxnStage::Beginning);
            open.writes.clear();
            self.ask(client, at, ManagerOp::Snapshot { since: Position::ZERO });
        }
    }

    /// Goes on with a transaction's next operation, or commits it.
    fn go_on(&mut self, client: &mut Client, round: &mut Round, at: usize) -> Result<(), BenchError> {
        let Some(open) = &mut round.open[at] else { return Ok(()) };
        while let Some((row, written)) = open.operations.get(open.next).copied() {
            open.next += 1;
            match written {
                Some(tag) => drop(open.writes.insert(row, tag)),
                // Its own write is at hand.
                None if open.writes.contains_key(&row) => {}
                None => {
                    open.stage = TxnStage::Reading;
                    let call = get(&self.store.borrow(), row, open.snapshot)?;
                    client.submit_in_transaction(LaneId(at as u32), call);
                    return Ok(());
                }
            }
        }
        if open.writes.is_empty() {
            self.end(round, at);
            return Ok(());
        }
        let asked = commit(&self.store.borrow(), open)?;
        open.stage = TxnStage::Committing(self.waits.then(|| asked.clone()));
        self.ask(client, at, ManagerOp::Commit(asked));
        Ok(())
    }

    fn end(&mut self, round: &mut Round, at: usize) {
        let Some(open) = round.open[at].take() else { return };
        note(&mut round.load.latencies, open.due.elapsed());
        if self.arrivals != Arrivals::Closed {
            note(round.load.service.get_or_insert_with(crate::subject::latencies), open.begun.elapsed());
        }
        self.events.push((round.begun.elapsed(), open.due.elapsed()));
        round.load.ops += 1;
        self.ends.done += 1;
        round.idle.push(at);
    }

    fn answered(
        &mut self,
        client: &mut Client,
        round: &mut Round,
        completed: Completed,
    ) -> Result<(), BenchError> {
        if let Some((at, doing)) = round.flushes.remove(&completed.ticket) {
            return self.flush(client, round, (at, doing), Some(completed.outcome));
        }
        let at = completed.lane.0 as usize;
        let Some(open) = round.open.get_mut(at).and_then(Option::as_mut) else {
            return Err(BenchError::Wrong("an answer came that nobody waits for".into()));
        };
        match (std::mem::replace(&mut open.stage, TxnStage::Beginning), completed.outcome) {
            (TxnStage::Beginning, Outcome::Ok(answer)) => match answer.body {
                Body::Commit(CommitAnswer::Snapshot { at: snapshot, .. }) => {
                    open.snapshot = snapshot;
                    self.go_on(client, round, at)
                }
                other => Err(unfit(&other)),
            },
            (TxnStage::Reading, Outcome::Ok(answer)) => match answer.body {
                Body::Row(Some(_)) => self.go_on(client, round, at),
                other => Err(unfit(&other)),
            },
            (TxnStage::Committing(asked), Outcome::Ok(answer)) => match &answer.body {
                Body::Commit(CommitAnswer::Committed(previous)) => {
                    self.ledger(|ledger| ledger.committed(answer.position(), &open.writes));
                    self.committed(client, round, at, asked, (answer.position(), previous))
                }
                other => Err(unfit(other)),
            },
            (TxnStage::Committing(_), Outcome::Refused(Refusal::Changed, _)) => {
                self.ends.again += 1;
                self.begin_again(client, round, at);
                Ok(())
            }
            (stage, outcome) => self.failed(client, round, at, (stage, outcome)),
        }
    }

    fn ledger(&self, act: impl FnOnce(&mut Ledger)) {
        act(&mut self.store.borrow_mut().ledger);
    }

    /// A call did not end well.
    fn failed(
        &mut self,
        client: &mut Client,
        round: &mut Round,
        at: usize,
        (stage, outcome): (TxnStage, Outcome),
    ) -> Result<(), BenchError> {
        let old = matches!(outcome, Outcome::Failed(FailKind::TooOld | FailKind::Behind(_), _));
        if self.beside.is_none() && !old {
            return Err(BenchError::Wrong(format!("a transaction under load ended with {outcome:?}")));
        }
        if let (TxnStage::Committing(_), Outcome::Unknown(_)) = (&stage, &outcome) {
            self.ends.unknown += 1;
            if let Some(open) = round.open[at].take() {
                self.ledger(|ledger| ledger.unknown(&open.writes));
            }
            round.idle.push(at);
            return Ok(());
        }
        match old {
            true => self.ends.again += 1,
            false => self.ends.failed += 1,
        }
        self.begin_again(client, round, at);
        Ok(())
    }

    fn committed(
        &mut self,
        client: &mut Client,
        round: &mut Round,
        at: usize,
        asked: Option<CommitRequest>,
        (commit, previous): (Position, &[(PartitionId, Position)]),
    ) -> Result<(), BenchError> {
        let Some(asked) = asked else {
            self.end(round, at);
            return Ok(());
        };
        let flushes = KnownCommits::default().committed(commit, previous, asked);
        if let Some(open) = &mut round.open[at] {
            open.stage = TxnStage::Flushing(flushes.len());
        }
        for (partition, flush) in flushes {
            let (doing, call) = {
                let store = self.store.borrow();
                Doing::flush(store.manager, (store.database.id(), partition), flush)
            };
            self.send(client, round, (at, doing), call);
        }
        Ok(())
    }

    fn send(&self, client: &mut Client, round: &mut Round, (at, doing): (usize, Doing), call: Call) {
        let ticket = client.submit(LaneId(at as u32), call.within(LIMIT));
        round.flushes.insert(ticket, (at, doing));
    }

    /// Goes on with a flush.
    fn flush(
        &mut self,
        client: &mut Client,
        round: &mut Round,
        (at, mut doing): (usize, Doing),
        outcome: Option<Outcome>,
    ) -> Result<(), BenchError> {
        match doing.next(outcome) {
            Step::Call(call) => self.send(client, round, (at, doing), *call),
            Step::Wait(time) => {
                round.pauses.push((Instant::now() + Duration::from_micros(time.0), at, doing));
            }
            Step::Done(outcome) if outcome.is_ok() || self.beside.is_some() => {
                let Some(Open { stage: TxnStage::Flushing(left), .. }) = &mut round.open[at] else {
                    return Err(BenchError::Wrong("a flush ended that nobody waits for".into()));
                };
                *left -= 1;
                if *left == 0 {
                    self.end(round, at);
                }
            }
            Step::Done(outcome) => {
                return Err(BenchError::Wrong(format!("a flush under load ended with {outcome:?}")));
            }
        }
        Ok(())
    }

    fn drive(&mut self, time: Duration) -> Result<Load, BenchError> {
        let shared = self.shared.clone();
        let mut ours = shared.borrow_mut();
        let begun = Instant::now();
        let clients = self.clients as usize;
        let mut round = Round {
            open: (0..clients).map(|_| None).collect(),
            idle: (0..clients).collect(),
            flushes: BTreeMap::new(),
            pauses: Vec::new(),
            offered: Offered::new(self.arrivals, begun, time),
            begun,
            load: Load::empty(),
        };
        self.events.clear();
        let mut heard = begun;
        loop {
            if let Some(beside) = &mut self.beside {
                beside.turn(&mut ours, begun.elapsed())?;
            }
            let client = ours.client();
            self.begin(client, &mut round);
            let now = Instant::now();
            if round.idle.len() == clients {
                let over = self.beside.as_ref().is_none_or(|beside| beside.is_over());
                if round.offered.is_over(now) && over {
                    break;
                }
                heard = now;
            }
            self.wait(client, &mut round, &mut heard)?;
            if heard.elapsed() >= 2 * WAIT_LIMIT {
                return Err(BenchError::Wrong("no answer within a minute under load".into()));
            }
        }
        round.load.elapsed = begun.elapsed();
        if let Some(watch) = &mut self.watch {
            watch.end(ours.client(), begun)?;
        }
        // What partitions are told is part of the cost.
        ours.client().flush_commits()?;
        Ok(round.load)
    }

    /// Takes in what comes, and goes on with it.
    fn wait(
        &mut self,
        client: &mut Client,
        round: &mut Round,
        heard: &mut Instant,
    ) -> Result<(), BenchError> {
        if let Some(watch) = &mut self.watch {
            watch.turn(client, &self.store.borrow())?;
        }
        let now = Instant::now();
        let next = round.offered.rest(now).filter(|_| !round.idle.is_empty());
        let paused = round.pauses.iter().map(|(until, ..)| until.saturating_duration_since(now)).min();
        let rest = next.into_iter().chain(paused).min().unwrap_or(TURN).min(TURN);
        for completed in closed::answers(client, rest)? {
            *heard = Instant::now();
            if let Some(watch) = &mut self.watch
                && watch.take(client, &self.store.borrow(), &completed, round.begun)?
            {
                continue;
            }
            self.answered(client, round, completed)?;
        }
        let now = Instant::now();
        let due: Vec<_> = round.pauses.extract_if(.., |(until, ..)| *until <= now).collect();
        for (_, at, doing) in due {
            self.flush(client, round, (at, doing), None)?;
        }
        Ok(())
    }
}

/// A read of a row as a snapshot has it.
pub(super) fn get(store: &Store, id: u64, snapshot: Position) -> Result<Call, BenchError> {
    let key = store.table.key(&[Value::Text(crate::generate::key(id))])?;
    let at = ReadSnapshot::Commit { at: snapshot, after: Position::ZERO };
    let partition = store.table.partition_of(&key)?;
    Ok(store.table.call(partition, Op::Get { key, at }).within(LIMIT))
}

/// What a transaction asks of the manager.
fn commit(store: &Store, open: &Open) -> Result<CommitRequest, BenchError> {
    let mut writes: BTreeMap<PartitionId, Vec<RowOp>> = BTreeMap::new();
    for (id, tag) in &open.writes {
        let (key, row) = store.table.encode(&store.row(*id, *tag))?;
        let partition = store.table.partition_of(&key)?;
        writes.entry(partition).or_default().push(RowOp::Put { key, row });
    }
    let named = |(partition, ops)| PartitionWrites { partition, parts: vec![store.table.part(ops)] };
    Ok(CommitRequest { snapshot: open.snapshot, writes: writes.into_iter().map(named).collect() })
}

fn unfit(body: &Body) -> BenchError {
    BenchError::Wrong(format!("a call of a transaction was answered with {body:?}"))
}

impl Subject for Transactions {
    fn label(&self) -> String {
        let ends = if self.waits { ", flushes waited for" } else { "" };
        format!("understudy transactions on {}{ends}", self.store.borrow().in_words())
    }

    fn settings(&self) -> String {
        format!("{} clients are lanes of one client on one thread", self.clients)
    }

    fn processes(&self) -> Vec<u32> {
        self.shared.borrow().processes()
    }

    fn sources(&self) -> Sources {
        self.shared.borrow().sources()
    }

    fn way(&self) -> Way {
        Way::ONE_LOG
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        self.shared.borrow_mut().counters()
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        self.drive(time)
    }
}

impl Transactions {
    /// Compares the rows with what was acknowledged, and the replicas with each other.
    pub fn check(&self, shared: &Shared) -> Result<(), BenchError> {
        self.store.borrow().check(shared)
    }
}
