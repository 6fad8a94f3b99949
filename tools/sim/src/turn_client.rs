//! A client that asks for turns at rows, as gateways do for their transactions: it asks, waits, reads the row
//! behind it, writes it, and says that it is over. Some transactions ask for two rows, in any order; some
//! write without a turn; some die with one, and their connection with them or not. In a healed world each
//! client gets the turn at each row once more, whoever has died with it.

use crate::check::history::{Action, Answer, Operation};
use crate::check::turns::Turn;
use crate::client::{ClientEffect, LinkNews};
use crate::network::Conn;
use crate::plan::RunPlan;
use crate::plan::turns::TurnPlan;
use crate::random::Stream;
use crate::rows;
use std::collections::{BTreeMap, VecDeque};
use types::{Lsn, PartitionId, Position, SessionId, TableId};
use wire::request::ReadSnapshot;
use wire::row_turn::MAX_TURN_WAIT_MS;
use wire::{Body, Op, Outcome, Reply, Request, RowOp, Status, TurnAnswer, TurnHolder, TurnOp};

/// The rows, which these clients alone write.
const ROWS: [&str; 2] = ["r8", "r9"];
/// An attempt without an answer is given up after this, microseconds; of a turn, behind the time that it is
/// waited for.
const ATTEMPT: u64 = 400_000;
/// Of a thousand writes so many are sent twice, as if no answer had come.
const TWICE: u64 = 250;
/// A client begins so many transactions before the world is healed.
const MOST_TRANSACTIONS: u64 = 40;

/// What a transaction does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Asks for the turn at a row, and waits so long, milliseconds.
    Ask(&'static str, u32),
    /// Does nothing for so long, microseconds.
    Rest(u64),
    /// Reads a row.
    Read(&'static str),
    /// Writes it.
    Write(&'static str),
    /// Says that the transaction is over.
    Release,
    /// Dies. True: its connection ends with it.
    Die(bool),
}

impl Step {
    /// How long it lasts at most, microseconds.
    fn most_us(self) -> u64 {
        match self {
            Step::Ask(_, wait_ms) => u64::from(wait_ms) * 1_000 + 1_000_000,
            Step::Rest(us) => us,
            Step::Read(_) => 2_000_000,
            Step::Write(_) => 4_000_000,
            Step::Release | Step::Die(_) => 800_000,
        }
    }

    /// How long an attempt is waited for, microseconds.
    fn attempt_us(self) -> u64 {
        match self {
            Step::Ask(_, wait_ms) => u64::from(wait_ms) * 1_000 + ATTEMPT,
            _ => ATTEMPT,
        }
    }
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    request: u64,
    since: u64,
    conn: Conn,
}

/// What a transaction has read: of which row, what was there, and in which state.
type Seen = (&'static str, Option<(Lsn, u64)>, Position);

/// A transaction under way.
#[derive(Debug)]
struct Transaction {
    number: u64,
    /// What it does, from the present step on.
    steps: VecDeque<Step>,
    /// When the present step began.
    began: u64,
    flight: Option<Flight>,
    retry_at: u64,
    /// What the present step reads or writes, once that was sent.
    operation: Option<Operation>,
    /// What it has read.
    read: Option<Seen>,
}

/// What it does in a healed world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// The world is not healed yet.
    Ahead,
    /// A transaction gets a turn, and dies.
    Dies,
    /// One gets the turn at each row.
    Last,
    /// It did.
    Through,
}

/// A client of turns. Has one connection per node.
#[derive(Debug)]
pub struct TurnClient {
    id: u32,
    nodes: u32,
    place: (PartitionId, TableId),
    typed: bool,
    dies_last: bool,
    random: Stream,
    links: BTreeMap<u32, Option<Conn>>,
    next_node: u32,
    /// The session, and the number of the next write in it.
    session: (Option<SessionId>, u64),
    last_number: u64,
    last_transaction: u64,
    next_at: u64,
    open: Option<Transaction>,
    ending: Ending,
    operations: Vec<Operation>,
    /// Turns that it was told of, each with the connection over which it asked.
    turns: Vec<(Conn, Turn)>,
    seen: Vec<&'static str>,
    fault: Option<String>,
}

impl TurnClient {
    /// A client of this plan's turns: `at` tells it from the others. None without a table to ask about.
    pub fn new(id: u32, at: u32, plan: &RunPlan, turns: &TurnPlan) -> Option<TurnClient> {
        let all: Vec<_> = plan.bare_partitions().collect();
        let place = *all.get(turns.partition as usize % all.len().max(1))?;
        Some(TurnClient {
            id,
            nodes: plan.all_nodes(),
            place,
            typed: plan.workload.indexes,
            dies_last: turns.dies_last && at == 0,
            random: turns.stream(at),
            links: BTreeMap::new(),
            next_node: id,
            session: (None, 1),
            last_number: 0,
            last_transaction: 0,
            next_at: 0,
            open: None,
            ending: Ending::Ahead,
            operations: Vec::new(),
            turns: Vec::new(),
            seen: Vec::new(),
            fault: None,
        })
    }

    /// Its reads and writes of rows that ended.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Turns that it was told of.
    pub fn turns(&self) -> impl Iterator<Item = &Turn> {
        self.turns.iter().map(|(_, turn)| turn)
    }

    /// What is worth being counted since the last call.
    pub fn take_seen(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.seen)
    }

    /// What a reply said that it must never say.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// The partition in which it has not got its last turns yet.
    pub fn waits_for(&self) -> Option<PartitionId> {
        (self.ending != Ending::Through).then_some(self.place.0)
    }

    /// The run is over: what is not decided stays unknown.
    pub fn abandon(&mut self, now: u64) {
        self.give_up_operation(now);
        self.open = None;
    }

    /// There is news of a connection to a node.
    pub fn linked(&mut self, now: u64, node: u32, news: LinkNews) {
        match news {
            LinkNews::Up(conn) => {
                self.links.insert(node, Some(conn));
            }
            LinkNews::Failed => {
                self.links.remove(&node);
                self.next_node += 1;
            }
            LinkNews::Broken(conn) => {
                if self.links.get(&node) == Some(&Some(conn)) {
                    self.links.remove(&node);
                }
                let lost = self.turns.iter_mut().filter(|(over, turn)| *over == conn && turn.ended.is_none());
                lost.for_each(|(_, turn)| turn.ended = Some(now));
                let carried = |flight: &mut Flight| flight.conn == conn;
                let flight = self.open.as_mut().and_then(|open| open.flight.take_if(carried));
                self.next_node += u32::from(flight.is_some());
            }
        }
    }

    /// Does what is due. No transaction begins unless `goes_on`, but for the last ones.
    pub fn step(&mut self, now: u64, goes_on: bool) -> Vec<ClientEffect> {
        if self.open.is_none() && now >= self.next_at {
            self.begin(now, goes_on);
        }
        let mut effects: Vec<ClientEffect> = self.die(now).into_iter().collect();
        self.pass_time(now);
        effects.extend(self.try_send(now));
        effects
    }

    /// A number that no other operation or request of any client has.
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        u64::from(self.id) << 32 | self.last_number
    }

    fn begin(&mut self, now: u64, goes_on: bool) {
        if !goes_on && self.ending == Ending::Ahead {
            self.ending = if self.dies_last { Ending::Dies } else { Ending::Last };
        }
        let ask = |row: &'static str| Step::Ask(row, MAX_TURN_WAIT_MS);
        let steps = match self.ending {
            Ending::Ahead if self.last_transaction < MOST_TRANSACTIONS => self.invent(),
            Ending::Dies => vec![ask(ROWS[0]), Step::Die(false)],
            Ending::Last => vec![ask(ROWS[0]), ask(ROWS[1]), Step::Release],
            Ending::Ahead | Ending::Through => return,
        };
        self.last_transaction += 1;
        self.open = Some(Transaction {
            number: self.last_transaction,
            steps: steps.into(),
            began: now,
            flight: None,
            retry_at: now,
            operation: None,
            read: None,
        });
    }

    /// What the next transaction does.
    fn invent(&mut self) -> Vec<Step> {
        let at = usize::from(self.random.chance(300));
        let (first, second) = (ROWS[at], ROWS[1 - at]);
        // Who asks for no turn passes on those of others.
        if self.random.chance(120) {
            return vec![Step::Write(first)];
        }
        let wait_ms = *self.random.pick(&[0, 60, 400, 1_500, MAX_TURN_WAIT_MS]).expect("not empty");
        let mut steps = vec![Step::Ask(first, wait_ms)];
        if self.random.chance(250) {
            steps.push(Step::Ask(second, wait_ms));
        }
        steps.extend([Step::Read(first), Step::Rest(self.random.between(0, 120_000))]);
        if self.random.chance(80) {
            steps.push(Step::Die(self.random.chance(500)));
            return steps;
        }
        if self.random.chance(850) {
            steps.push(Step::Write(first));
        }
        if self.random.chance(900) {
            steps.push(Step::Release);
        }
        steps
    }

    /// The transaction dies, if that is what it does next.
    fn die(&mut self, now: u64) -> Option<ClientEffect> {
        let open = self.open.as_ref()?;
        let Some(Step::Die(closes)) = open.steps.front().copied() else { return None };
        let who = (self.id, open.number);
        if self.turns.iter().any(|(_, turn)| turn.who == who && turn.ended.is_none()) {
            self.seen.push("turn-holder-died");
        }
        self.close(now);
        let conn = self.links.get(&(1 + self.next_node % self.nodes)).copied().flatten();
        conn.filter(|_| closes).map(ClientEffect::Close)
    }

    /// What takes its time is over, or given up; and so is an attempt without an answer.
    fn pass_time(&mut self, now: u64) {
        let Some(open) = &mut self.open else { return };
        let Some(step) = open.steps.front().copied() else { return };
        if now >= open.began + step.most_us() {
            self.give_up_operation(now);
            self.go_on(now);
        } else if open.flight.take_if(|flight| now >= flight.since + step.attempt_us()).is_some() {
            self.next_node += 1;
        }
    }

    /// The next step begins, or the transaction ends.
    fn go_on(&mut self, now: u64) {
        let Some(open) = &mut self.open else { return };
        open.steps.pop_front();
        (open.began, open.retry_at, open.flight) = (now, now, None);
        if open.steps.is_empty() {
            self.close(now);
        }
    }

    fn close(&mut self, now: u64) {
        let Some(over) = self.open.take() else { return };
        self.next_at = now + if self.random.chance(400) { 0 } else { self.random.between(20_000, 300_000) };
        let who = (self.id, over.number);
        let granted = self.turns.iter().filter(|(_, turn)| turn.who == who).count();
        self.ending = match (self.ending, granted) {
            (Ending::Dies, 1..) => Ending::Last,
            (Ending::Last, 2..) => Ending::Through,
            (ending, _) => ending,
        };
    }

    fn end_operation(&mut self, now: u64, told: Answer) {
        let ended = self.open.as_mut().and_then(|open| open.operation.take());
        self.operations.extend(ended.map(|operation| Operation { completed: now, told, ..operation }));
    }

    /// Nobody waits any more for what was sent.
    fn give_up_operation(&mut self, now: u64) {
        let operation = self.open.as_ref().and_then(|open| open.operation.as_ref());
        match operation.is_some_and(|operation| operation.action.writes()) {
            true => {
                self.session = (None, 1);
                self.end_operation(now, Answer::Unknown);
            }
            false => self.end_operation(now, Answer::NotDone),
        }
    }

    fn try_send(&mut self, now: u64) -> Vec<ClientEffect> {
        let Some(open) = &self.open else { return Vec::new() };
        let asks = !matches!(open.steps.front(), None | Some(Step::Rest(_) | Step::Die(_)));
        if !asks || open.flight.is_some() || now < open.retry_at {
            return Vec::new();
        }
        let node = 1 + self.next_node % self.nodes;
        match self.links.get(&node).copied() {
            Some(Some(conn)) => self.send(now, conn),
            Some(None) => Vec::new(),
            None => {
                self.links.insert(node, None);
                vec![ClientEffect::Dial(node, 0)]
            }
        }
    }

    fn send(&mut self, now: u64, conn: Conn) -> Vec<ClientEffect> {
        let Some(request) = self.request(now) else { return Vec::new() };
        let twice = request.session.is_some() && self.random.chance(TWICE);
        let again = twice.then(|| Request { id: self.number(), ..request.clone() });
        if let Some(open) = &mut self.open {
            open.flight = Some(Flight { request: request.id, since: now, conn });
        }
        let all = std::iter::once(request).chain(again);
        all.map(|request| ClientEffect::Send(conn, Box::new(request))).collect()
    }

    /// What the present step asks of a node.
    fn request(&mut self, now: u64) -> Option<Request> {
        let id = self.number();
        let (partition, table) = self.place;
        let of = |op: Op| Request { id, trace: id, ..Request::new(table, 1, partition, op) };
        let open = self.open.as_ref()?;
        let (number, step) = (open.number, *open.steps.front()?);
        let who = TurnHolder { gateway: u64::from(self.id), transaction: number };
        match step {
            Step::Ask(row, wait_ms) => {
                let key = rows::key(row, self.typed);
                Some(of(Op::Turn(TurnOp::Ask { who, key, wait_ms })))
            }
            Step::Release => {
                // From now on others may have what it had.
                let who_ended = (self.id, number);
                for (_, turn) in self.turns.iter_mut().filter(|(_, turn)| turn.who == who_ended) {
                    turn.ended.get_or_insert(now);
                }
                Some(of(Op::Turn(TurnOp::Release { who })))
            }
            Step::Read(row) => {
                self.operate(now, row, None, |_, _| Action::Get(false));
                Some(of(Op::Get { key: rows::key(row, self.typed), at: ReadSnapshot::Newest }))
            }
            Step::Write(row) => {
                let (Some(session), seq) = self.session else { return Some(of(Op::OpenSession)) };
                self.operate(now, row, Some((session, seq)), TurnClient::change);
                let op = self.written(row)?;
                Some(Request { session, seq, confirmed: seq - 1, ..of(op) })
            }
            Step::Rest(_) | Step::Die(_) => None,
        }
    }

    /// Notes what the present step reads or writes when it is sent for the first time.
    fn operate(
        &mut self,
        now: u64,
        row: &'static str,
        session: Option<(SessionId, u64)>,
        action: impl FnOnce(&mut TurnClient, &'static str) -> Action,
    ) {
        if self.open.as_ref().is_none_or(|open| open.operation.is_some()) {
            return;
        }
        let action = action(self, row);
        let operation = Operation {
            number: action.value().unwrap_or_else(|| self.number()),
            client: self.id,
            partition: self.place.0,
            key: row.into(),
            action,
            session,
            invoked: now,
            completed: 0,
            told: Answer::Unknown,
        };
        if let Some(open) = &mut self.open {
            open.operation = Some(operation);
        }
    }

    /// A write of a row: one that rests on what the transaction has read, as a rule.
    fn change(&mut self, row: &'static str) -> Action {
        let (value, rests) = (self.number(), self.random.chance(800));
        let read = self.open.as_ref().and_then(|open| open.read);
        match read.filter(|(of, ..)| rests && *of == row) {
            Some((_, read, since)) => Action::Swap { value, read, since },
            None => Action::Put(value),
        }
    }

    /// The write under way.
    fn written(&self, row: &'static str) -> Option<Op> {
        let key = rows::key(row, self.typed);
        let row = |value: u64| rows::row(row, value, self.typed);
        match &self.open.as_ref()?.operation.as_ref()?.action {
            Action::Swap { value, read, since } => {
                let row = row(*value);
                let op = match read {
                    Some(_) => RowOp::Update { key, row },
                    None => RowOp::Insert { key, row },
                };
                Some(Op::Write { ops: vec![op], mark: None, since: Some(*since) })
            }
            action => Some(Op::write(vec![RowOp::Put { key, row: row(action.value()?) }])),
        }
    }

    /// A reply came.
    pub fn hear(&mut self, now: u64, conn: Conn, reply: &Reply) {
        let wait = self.random.between(5_000, 40_000);
        let ours = |flight: &mut Flight| flight.request == reply.id && flight.conn == conn;
        let Some(open) = &mut self.open else { return };
        if open.flight.take_if(ours).is_none() {
            return;
        }
        let Some(step) = open.steps.front().copied() else { return };
        let decided = match step {
            Step::Ask(row, _) => self.turn_came(now, conn, row, reply),
            Step::Read(row) => self.row_came(now, row, reply),
            Step::Write(_) => self.write_ended(now, reply),
            Step::Release => reply.status == Status::Ok,
            Step::Rest(_) | Step::Die(_) => false,
        };
        if decided {
            return self.go_on(now);
        }
        self.next_node += u32::from(!matches!(reply.status, Status::Ok | Status::NotYet(_)));
        if let Some(open) = &mut self.open {
            open.retry_at = if reply.status == Status::Ok { now } else { now + wait };
        }
    }

    /// An answer to the question for a turn. False: it is asked again.
    fn turn_came(&mut self, now: u64, conn: Conn, row: &'static str, reply: &Reply) -> bool {
        let Some(open) = &mut self.open else { return true };
        match (&reply.status, &reply.body) {
            (Status::Ok, Body::Turn(TurnAnswer::Granted { waited })) => {
                self.seen.push(if *waited { "turn-waited-for" } else { "turn-given" });
                let turn = Turn {
                    who: (self.id, open.number),
                    partition: self.place.0,
                    key: row.into(),
                    asked: open.began,
                    answered: now,
                    at: reply.lsn,
                    epoch: reply.epoch,
                    ended: None,
                    read: None,
                };
                self.turns.push((conn, turn));
            }
            (Status::Ok, Body::Turn(TurnAnswer::Without)) => self.seen.push("turn-without"),
            (Status::Ok, Body::Turn(TurnAnswer::Deadlock)) => {
                self.seen.push("turn-deadlock");
                open.steps.truncate(1);
                open.steps.push_back(Step::Release);
            }
            (Status::Ok | Status::Bad(_) | Status::Refused(_), _) => {
                self.fault = Some(format!("a question for a turn was answered with {reply:?}"));
            }
            _ => return false,
        }
        true
    }

    /// An answer to a read. False: it is asked again.
    fn row_came(&mut self, now: u64, row: &'static str, reply: &Reply) -> bool {
        let Some(open) = &mut self.open else { return true };
        let told = match (&reply.status, &reply.body) {
            (Status::Ok, Body::Row(found)) => {
                let found = found.as_ref().map(|(lsn, bytes)| (*lsn, rows::value_of(bytes)));
                open.read = Some((row, found, reply.position()));
                let who = (self.id, open.number);
                for (_, turn) in self.turns.iter_mut().filter(|(_, turn)| turn.who == who) {
                    turn.read.get_or_insert((reply.lsn, reply.epoch));
                }
                Answer::Found { row: found, at: reply.lsn, epoch: reply.epoch }
            }
            (Status::Ok, _) => {
                self.fault = Some(format!("a read was answered with {reply:?}"));
                Answer::NotDone
            }
            (Status::Bad(_) | Status::TooOld(_), _) => Answer::NotDone,
            _ => return false,
        };
        self.end_operation(now, told);
        true
    }

    /// An answer to a write, or to what opens a session for it. False: it is asked again.
    fn write_ended(&mut self, now: u64, reply: &Reply) -> bool {
        let (Some(_), seq) = self.session else {
            if reply.status == Status::Ok {
                self.session = (Some(SessionId(reply.position())), 1);
            }
            return false;
        };
        let operation = self.open.as_ref().and_then(|open| open.operation.as_ref());
        let rests = operation.is_some_and(|operation| matches!(operation.action, Action::Swap { .. }));
        let told = match &reply.status {
            Status::Ok => Answer::Done { at: reply.position(), copies: reply.copies },
            Status::Refused(why) => {
                // Whoever has the turn: what rests on nothing is written.
                if !rests && matches!(why, Outcome::Exists | Outcome::Changed) {
                    self.fault = Some(format!("{operation:?} was answered with {reply:?}"));
                }
                if *why == Outcome::Exists { Answer::Exists(reply.lsn) } else { Answer::Changed(reply.lsn) }
            }
            Status::Bad(_) | Status::Expected(_) | Status::Unknown(_) => Answer::Unknown,
            _ => return false,
        };
        self.session = if told == Answer::Unknown { (None, 1) } else { (self.session.0, seq + 1) };
        self.end_operation(now, told);
        true
    }
}
