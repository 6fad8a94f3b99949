//! A client that sends what no client would, and keeps to the rules only as far as is needed for its answers
//! to mean something: requests of one session overtake each other on several connections, some are sent twice
//! at once, some again after they were answered, writes go without a session, and some ask a partition that
//! does not exist.

use crate::check::effects::ReportedLoss;
use crate::check::history::{Action, Answer, Operation};
use crate::client::operations::{Decided, Operations};
use crate::client::{ClientEffect, LinkNews, RowClient};
use crate::network::{Conn, Endpoint};
use crate::plan::RunPlan;
use crate::random::Stream;
use std::collections::{BTreeMap, VecDeque};
use types::{PartitionId, PartitionRecord, Position, SessionId, TableId};
use wire::{Message, Op, Reply, Request, Status};

/// An attempt without an answer is given up after this.
const ATTEMPT: u64 = 400_000;
/// An operation that is not decided by then is unknown.
const DEADLINE: u64 = 4_000_000;
/// Of a thousand requests so many are sent a second time at once, on another connection.
const TWICE: u64 = 120;
/// Of a thousand steps so many send something again that was answered.
const RESENDS_PER_THOUSAND: u64 = 40;
/// Of a thousand steps so many ask a partition that does not exist.
const NOWHERE: u64 = 10;
/// Answered writes that are remembered, to be sent again.
const REMEMBERED: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Dialling,
    Up(Conn),
}

/// A session with one partition.
#[derive(Clone, Debug, Default)]
struct Session {
    id: Option<SessionId>,
    opening: Option<u64>,
    next: u64,
    /// Numbers that are not decided, and whose.
    open: BTreeMap<u64, u64>,
    /// The highest number acknowledged.
    acknowledged: u64,
}

impl Session {
    fn confirmed(&self) -> u64 {
        self.open.keys().next().map_or(self.next, |first| first - 1)
    }
}

#[derive(Clone, Debug)]
struct Pending {
    /// `None` opens a session.
    operation: Option<Operation>,
    partition: PartitionId,
    numbered: bool,
    seq: Option<u64>,
    /// The attempt on its way: request, since when, on which connection.
    flight: Option<(u64, u64, Conn)>,
    /// The connection that it waits for.
    awaits: Option<(u32, u16)>,
    /// A write without a session is sent once.
    sent: bool,
    retry_at: u64,
    turn: u32,
    deadline_at: u64,
    deadline_ms: u64,
}

impl Pending {
    fn new(operation: Option<Operation>, partition: PartitionId, numbered: bool, now: u64) -> Pending {
        Pending {
            operation,
            partition,
            numbered,
            seq: None,
            flight: None,
            awaits: None,
            sent: false,
            retry_at: now,
            turn: 0,
            deadline_at: now + DEADLINE,
            deadline_ms: 0,
        }
    }

    fn action(&self) -> Option<&Action> {
        self.operation.as_ref().map(|operation| &operation.action)
    }

    fn writes(&self) -> bool {
        self.action().is_some_and(Action::writes)
    }
}

/// Who is asked about a partition: the primary first, then its other members, then everybody else.
#[derive(Clone, Debug)]
struct Route {
    epoch: u64,
    nodes: Vec<u32>,
}

/// What a request was sent for.
#[derive(Clone, Debug)]
enum Why {
    Pending(u64),
    /// It was answered before, like this.
    Again(Position),
    /// Nobody may do it.
    Nowhere,
}

/// The adversary.
pub struct Adversary {
    operations: Operations,
    /// Operations at once, connections to each node, and nodes.
    sizes: (usize, u16, u32),
    /// A partition that nobody has, and the last table.
    nowhere: Option<(PartitionId, TableId)>,
    routes: BTreeMap<PartitionId, Route>,
    sessions: BTreeMap<PartitionId, Session>,
    pending: BTreeMap<u64, Pending>,
    requests: BTreeMap<u64, Why>,
    links: BTreeMap<(u32, u16), Link>,
    /// Writes that were answered, as they were sent, and where they are.
    answered: VecDeque<(Request, Position)>,
    effects: Vec<ClientEffect>,
    fault: Option<String>,
}

impl Adversary {
    /// A client of the plan's tables.
    pub fn new(id: u32, mut random: Stream, plan: &RunPlan) -> Adversary {
        let sizes = (2 + random.below(3) as usize, 2 + random.below(2) as u16, plan.all_nodes());
        let operations = Operations::new(id, random, plan);
        let last = plan.partitions().last();
        let nowhere = last.map(|(partition, table, _)| (PartitionId(partition.0 + 1), table));
        let route = || Route { epoch: 0, nodes: (1..=plan.all_nodes()).collect() };
        Adversary {
            routes: operations.tables().keys().map(|partition| (*partition, route())).collect(),
            operations,
            sizes,
            nowhere,
            sessions: BTreeMap::new(),
            pending: BTreeMap::new(),
            requests: BTreeMap::new(),
            links: BTreeMap::new(),
            answered: VecDeque::new(),
            effects: Vec::new(),
            fault: None,
        }
    }

    /// Attempts and operations that took too long.
    fn expire(&mut self, now: u64) {
        let overdue = self.pending.iter().filter(|(_, op)| now >= op.deadline_at);
        for number in overdue.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.give_up(now, number);
        }
        for op in self.pending.values_mut() {
            if op.flight.is_some_and(|(_, since, _)| now >= since + ATTEMPT) {
                (op.flight, op.retry_at) = (None, now);
                op.turn += 1;
            }
        }
    }

    fn ask(&mut self, now: u64) {
        while self.pending.len() < self.sizes.0 {
            let Some((operation, numbered)) = self.operations.next(now) else { return };
            let raw = operation.action.writes() && !numbered;
            let (number, partition) = (operation.number, operation.partition);
            let mut op = Pending::new(Some(operation), partition, numbered, now);
            let random = self.operations.random();
            op.deadline_ms = if random.chance(250) { random.between(150, 900) } else { 0 };
            op.deadline_at = now + if raw { DEADLINE / 4 } else { DEADLINE };
            self.pending.insert(number, op);
        }
    }

    /// Opens sessions where they are needed, and numbers writes in them.
    fn number_writes(&mut self, now: u64) {
        let waits = |op: &Pending| op.numbered && op.seq.is_none() && op.operation.is_some();
        let waiting: Vec<u64> =
            self.pending.iter().filter(|(_, op)| waits(op)).map(|(number, _)| *number).collect();
        for number in waiting {
            let partition = self.pending[&number].partition;
            let session = self.sessions.entry(partition).or_default();
            if let Some(id) = session.id {
                session.next += 1;
                session.open.insert(session.next, number);
                let seq = session.next;
                let op = self.pending.get_mut(&number).expect("listed above");
                op.seq = Some(seq);
                if let Some(operation) = &mut op.operation {
                    operation.session = Some((id, seq));
                }
            } else if session.opening.is_none() {
                let opening = self.operations.number();
                session.opening = Some(opening);
                self.pending.insert(opening, Pending::new(None, partition, true, now));
            }
        }
    }

    fn try_send(&mut self, now: u64, number: u64) {
        let op = &self.pending[&number];
        let waits = op.writes() && if op.numbered { op.seq.is_none() } else { op.sent };
        if op.flight.is_some() || now < op.retry_at || waits {
            return;
        }
        let nodes = &self.routes[&op.partition].nodes;
        let any = op.action().is_some_and(|action| action.bound().is_some());
        let turn = op.turn as usize + if any { number as usize } else { 0 };
        let node = nodes[turn % nodes.len()];
        let slot = (number % u64::from(self.sizes.1)) as u16;
        let Some(conn) = self.link(node, slot) else {
            self.pending.get_mut(&number).expect("looked at above").awaits = Some((node, slot));
            return;
        };
        let request = self.request(number);
        let op = self.pending.get_mut(&number).expect("looked at above");
        op.awaits = None;
        op.flight = Some((request.id, now, conn));
        op.sent = true;
        let numbered = request.seq > 0;
        self.send(conn, Why::Pending(number), request);
        if numbered && self.operations.random().chance(TWICE) {
            let other = (slot + 1) % self.sizes.1;
            if let Some(conn) = self.link(node, other) {
                let request = self.request(number);
                self.send(conn, Why::Pending(number), request);
            }
        }
    }

    /// The connection to a node, if it is up; if there is none, it is dialled.
    fn link(&mut self, node: u32, slot: u16) -> Option<Conn> {
        match self.links.get(&(node, slot)) {
            Some(Link::Up(conn)) => Some(*conn),
            Some(Link::Dialling) => None,
            None => {
                self.links.insert((node, slot), Link::Dialling);
                self.effects.push(ClientEffect::Dial(node, slot));
                None
            }
        }
    }

    fn send(&mut self, conn: Conn, why: Why, request: Request) {
        self.requests.insert(request.id, why);
        self.effects.push(ClientEffect::Send(conn, Box::new(request)));
    }

    fn request(&mut self, number: u64) -> Request {
        let id = self.operations.number();
        let op = &self.pending[&number];
        let session = self.sessions.get(&op.partition).filter(|_| op.numbered);
        let (asked, read) = match &op.operation {
            None => (Op::OpenSession, Default::default()),
            Some(operation) => self.operations.asks(operation),
        };
        let table = self.operations.tables()[&op.partition];
        Request {
            id,
            session: session.and_then(|session| session.id).unwrap_or(SessionId::NONE),
            seq: op.seq.unwrap_or(0),
            confirmed: session.map_or(0, Session::confirmed),
            deadline_ms: op.deadline_ms,
            read,
            trace: number,
            ..Request::new(table, 1, op.partition, asked)
        }
    }

    /// Sends what was answered once more, in whatever session that was, and asks a partition that does not
    /// exist.
    fn provoke(&mut self) {
        let again = self.operations.random().chance(RESENDS_PER_THOUSAND);
        let nowhere = self.operations.random().chance(NOWHERE);
        let up: Vec<Conn> = self
            .links
            .values()
            .filter_map(|link| match link {
                Link::Up(conn) => Some(*conn),
                Link::Dialling => None,
            })
            .collect();
        let Some(conn) = self.operations.random().pick(&up).copied() else { return };
        if again && let Some((request, at)) = self.answered.pop_front() {
            let request = Request { id: self.operations.number(), ..request };
            self.send(conn, Why::Again(at), request);
        }
        if nowhere && let Some((partition, table)) = self.nowhere {
            let request = Request::new(table, 1, partition, Op::OpenSession);
            let id = self.operations.number();
            self.send(conn, Why::Nowhere, Request { id, ..request });
        }
    }

    fn reply_came(&mut self, now: u64, reply: Reply) {
        let decided = matches!(reply.status, Status::Ok | Status::Refused(_));
        let number = match self.requests.get(&reply.id) {
            None => return,
            Some(Why::Pending(number)) => *number,
            Some(Why::Again(at)) => {
                // After a loss its number may have been free again, in a later term.
                if decided && reply.position().term == at.term && reply.position() != *at {
                    let sentence = format!("what is at {at} was sent again, and answered with {reply:?}");
                    self.fault.get_or_insert(sentence);
                }
                return;
            }
            Some(Why::Nowhere) if decided => {
                self.fault.get_or_insert(format!("nobody has this partition, and yet: {reply:?}"));
                return;
            }
            Some(Why::Nowhere) => return,
        };
        if let Some(record) = reply.hint.as_ref().and_then(|hint| hint.record()) {
            self.adopt(&record);
        }
        let Some(op) = self.pending.get_mut(&number) else { return };
        let newest = op.flight.is_some_and(|(request, ..)| request == reply.id);
        if newest {
            op.flight = None;
        }
        match &reply.status {
            Status::Ok | Status::Refused(_) => self.decided(now, number, &reply),
            _ if !newest => {}
            Status::Bad(why) => {
                if op.numbered {
                    let sentence = format!("an undecided write was told '{why}': {:?}", op.operation);
                    self.fault.get_or_insert(sentence);
                }
                self.end(now, number, Answer::NotDone);
            }
            Status::Unknown(_) if op.writes() => self.give_up(now, number),
            Status::Expected(next) => self.expected(now, number, *next),
            Status::TooOld(_) | Status::NoIndex(_) => self.end(now, number, Answer::NotDone),
            status => self.not_done(now, number, &status.clone()),
        }
    }

    fn not_done(&mut self, now: u64, number: u64, status: &Status) {
        let wait = self.operations.random().between(5_000, 60_000);
        let op = self.pending.get_mut(&number).expect("looked at by the caller");
        if op.writes() && !op.numbered {
            return self.end(now, number, Answer::NotDone);
        }
        op.retry_at = now + wait;
        let any = op.action().is_some_and(|action| action.bound().is_some());
        let elsewhere = matches!(status, Status::NotPrimary | Status::NotFound(_) | Status::Corrupt(_));
        op.turn += u32::from(elsewhere || any && matches!(status, Status::NotYet(_)));
    }

    fn adopt(&mut self, record: &PartitionRecord) {
        let Some(route) = self.routes.get_mut(&record.id).filter(|route| route.epoch < record.epoch.0) else {
            return;
        };
        route.epoch = record.epoch.0;
        route.nodes = record.members().map(|member| member.node.0).collect();
        // Whoever is left out may have become a member since.
        let rest: Vec<u32> = (1..=self.sizes.2).filter(|node| !route.nodes.contains(node)).collect();
        route.nodes.extend(rest);
        for op in self.pending.values_mut().filter(|op| op.partition == record.id) {
            op.turn = 0;
        }
    }

    fn decided(&mut self, now: u64, number: u64, reply: &Reply) {
        let op = &self.pending[&number];
        let Some(operation) = &op.operation else {
            let id = Some(SessionId(reply.position()));
            self.sessions.insert(op.partition, Session { id, ..Session::default() });
            self.pending.remove(&number);
            return;
        };
        let refused = match &reply.status {
            Status::Refused(why) => Some(why),
            _ => None,
        };
        let (lsn, epoch, copies, body) = (reply.lsn, reply.epoch, reply.copies, &reply.body);
        let told = self.operations.told(operation, Decided { refused, lsn, epoch, copies, body });
        // Registers are left alone: what a loss took may be written once more, long after its write ended.
        let again = op.seq.is_some() && !operation.writes_register();
        if again {
            let request = self.request(number);
            self.answered.push_back((request, reply.position()));
            self.answered.truncate(REMEMBERED);
        }
        let told = told.unwrap_or_else(|sentence| {
            self.fault.get_or_insert(sentence);
            Answer::Unknown
        });
        self.end(now, number, told);
    }

    /// "Not done: your next number is `next`."
    fn expected(&mut self, now: u64, number: u64, next: u64) {
        let partition = self.pending[&number].partition;
        let session = self.sessions.entry(partition).or_default();
        // If acknowledged writes are gone, or nobody will fill the gap, everything that follows is unknown.
        if next <= session.acknowledged || !session.open.contains_key(&next) && next <= session.next {
            return self.retire(now, partition);
        }
        let wait = self.operations.random().between(5_000, 40_000);
        self.pending.get_mut(&number).expect("looked at by the caller").retry_at = now + wait;
    }

    /// Nobody waits for this any more.
    fn give_up(&mut self, now: u64, number: u64) {
        let Some(op) = self.pending.get(&number) else { return };
        let (partition, numbered) = (op.partition, op.seq.is_some());
        match &op.operation {
            None => {
                self.pending.remove(&number);
                self.sessions.entry(partition).or_default().opening = None;
            }
            Some(_) if numbered => self.retire(now, partition),
            Some(_) => {
                // A write that was never sent was not done.
                let told = if op.writes() && op.sent { Answer::Unknown } else { Answer::NotDone };
                self.end(now, number, told);
            }
        }
    }

    /// A number is given up: the session ends, and with it everything in it that is not decided.
    fn retire(&mut self, now: u64, partition: PartitionId) {
        let session = std::mem::take(self.sessions.entry(partition).or_default());
        for number in session.open.into_values() {
            let sent = self.pending[&number].sent;
            self.end(now, number, if sent { Answer::Unknown } else { Answer::NotDone });
        }
    }

    fn end(&mut self, now: u64, number: u64, told: Answer) {
        let Some(op) = self.pending.remove(&number) else { return };
        if let (Some(seq), Some(session)) = (op.seq, self.sessions.get_mut(&op.partition)) {
            session.open.remove(&seq);
            if !matches!(told, Answer::Unknown | Answer::NotDone) {
                session.acknowledged = session.acknowledged.max(seq);
            }
        }
        if let Some(operation) = op.operation {
            self.operations.ended(now, operation, told);
        }
    }
}

impl RowClient for Adversary {
    fn operations(&self) -> &Operations {
        &self.operations
    }

    fn operations_mut(&mut self) -> &mut Operations {
        &mut self.operations
    }

    fn step(&mut self, now: u64) -> Vec<ClientEffect> {
        self.expire(now);
        self.ask(now);
        self.number_writes(now);
        for number in self.pending.keys().copied().collect::<Vec<_>>() {
            self.try_send(now, number);
        }
        self.provoke();
        std::mem::take(&mut self.effects)
    }

    fn wakes_at(&self) -> Option<u64> {
        None
    }

    fn linked(&mut self, _now: u64, to: Endpoint, slot: u16, news: LinkNews) {
        let Endpoint::Node(node) = to else { return };
        let lost = match news {
            LinkNews::Up(conn) => {
                self.links.insert((node, slot), Link::Up(conn));
                return;
            }
            LinkNews::Broken(conn) => {
                if self.links.get(&(node, slot)) == Some(&Link::Up(conn)) {
                    self.links.remove(&(node, slot));
                }
                Some(conn)
            }
            LinkNews::Failed => {
                self.links.remove(&(node, slot));
                None
            }
        };
        for op in self.pending.values_mut() {
            let carried = op.flight.is_some_and(|(_, _, on)| Some(on) == lost);
            if carried || op.awaits == Some((node, slot)) {
                (op.flight, op.awaits) = (None, None);
                op.turn += 1;
            }
        }
    }

    fn hear(&mut self, now: u64, _from: Endpoint, _conn: Conn, message: Message) {
        if let Message::Reply(reply) = message {
            self.reply_came(now, reply);
        }
    }

    fn waits_for(&self) -> Vec<PartitionId> {
        self.pending.values().map(|op| op.partition).collect()
    }

    fn abandon(&mut self, now: u64) {
        self.operations.stop();
        let all: Vec<u64> = self.pending.keys().copied().collect();
        all.into_iter().for_each(|number| self.end(now, number, Answer::Unknown));
    }

    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    fn told_lost(&self) -> &[ReportedLoss] {
        &[]
    }
}
