//! A client with the rules of the native one: sessions, numbers without gaps, retries of what is not decided. It pipelines
//! over several connections, so that its requests overtake each other.

use crate::check::history::{Action, Answer, Operation};
use crate::network::Conn;
use crate::plan::RunPlan;
use crate::random::Stream;
use crate::rows;
use std::collections::{BTreeMap, BTreeSet};
use types::{Lsn, PartitionId, PartitionRecord, Position, SessionId, TableId, Term};
use wire::request::Snapshot;
use wire::{Body, Op, Outcome, ReadLevel, Reply, Request, RowOp, Status};

/// An attempt without an answer is given up after this.
const ATTEMPT: u64 = 400_000;
/// An operation that is not decided by then is unknown.
const DEADLINE: u64 = 4_000_000;

/// What a client wants done.
#[derive(Debug)]
pub enum ClientEffect {
    /// Connect to a node.
    Dial(u32, u16),
    /// Send a request.
    Send(Conn, Box<Request>),
}

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
    in_session: bool,
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

/// What a read found, and the snapshot that it was made at.
type Seen = (Option<(Lsn, u64)>, Position);

/// What is known of a partition.
#[derive(Clone, Debug)]
struct View {
    table: TableId,
    epoch: u64,
    members: Vec<u32>,
}

/// A client.
pub struct Client {
    id: u32,
    random: Stream,
    width: usize,
    slots: u16,
    nodes: u32,
    /// Keys and rows are those of the schema.
    typed: bool,
    left: u64,
    next_at: u64,
    next_number: u64,
    views: BTreeMap<PartitionId, View>,
    sessions: BTreeMap<PartitionId, Session>,
    pending: BTreeMap<u64, Pending>,
    requests: BTreeMap<u64, u64>,
    links: BTreeMap<(u32, u16), Link>,
    history: Vec<Operation>,
    /// The newest acknowledgement per partition.
    newest: BTreeMap<PartitionId, Position>,
    /// What the newest read of a register found: the LSN that wrote it and the value, and the snapshot.
    seen: BTreeMap<(PartitionId, String), Seen>,
    /// Losses that a session was told of.
    losses: u64,
    /// What a reply must never say.
    fault: Option<String>,
}

impl Client {
    /// A client of the plan's tables.
    pub fn new(id: u32, mut random: Stream, plan: &RunPlan) -> Client {
        let mut views = BTreeMap::new();
        let mut next = PartitionId::FIRST_USER;
        for (number, table) in plan.tables.iter().enumerate() {
            for _ in 0..table.partitions {
                let table = TableId(number as u32 + 1);
                let members = (1..=plan.all_nodes()).collect();
                views.insert(PartitionId(next), View { table, epoch: 0, members });
                next += 1;
            }
        }
        let share = plan.operations / u64::from(plan.clients);
        let rest = plan.operations % u64::from(plan.clients);
        Client {
            id,
            width: 1 + random.below(4) as usize,
            slots: 1 + random.below(3) as u16,
            nodes: plan.all_nodes(),
            typed: plan.indexes,
            left: share + u64::from(u64::from(id) < rest),
            random,
            next_at: 0,
            next_number: 0,
            views,
            sessions: BTreeMap::new(),
            pending: BTreeMap::new(),
            requests: BTreeMap::new(),
            links: BTreeMap::new(),
            history: Vec::new(),
            newest: BTreeMap::new(),
            seen: BTreeMap::new(),
            losses: 0,
            fault: None,
        }
    }

    /// Operations that ended.
    pub fn history(&self) -> &[Operation] {
        &self.history
    }

    /// True if everything was asked and decided.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.pending.is_empty()
    }

    /// True if everything that it waits for, now, is in these partitions.
    pub fn waits_only_for(&self, partitions: &BTreeSet<PartitionId>) -> bool {
        !self.pending.is_empty() && self.pending.values().all(|op| partitions.contains(&op.partition))
    }

    /// More to do: `operations` more.
    pub fn go_on(&mut self, operations: u64) {
        self.left += operations;
    }

    /// What a reply said that it must never say.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Losses of acknowledged writes that this client was told of.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// Ends everything that is not decided: the run is over.
    pub fn abandon(&mut self, now: u64) {
        self.left = 0;
        let all: Vec<u64> = self.pending.keys().copied().collect();
        all.into_iter().for_each(|number| self.end(now, number, Answer::Unknown));
    }

    /// A connection was made, or not, or broke.
    pub fn linked(&mut self, node: u32, slot: u16, conn: Option<Conn>) {
        match conn {
            Some(conn) => drop(self.links.insert((node, slot), Link::Up(conn))),
            None => {
                let lost = match self.links.remove(&(node, slot)) {
                    Some(Link::Up(lost)) => Some(lost),
                    _ => None,
                };
                for op in self.pending.values_mut() {
                    let carried = op.flight.is_some_and(|(_, _, on)| Some(on) == lost);
                    if carried || op.awaits == Some((node, slot)) {
                        (op.flight, op.awaits) = (None, None);
                        op.turn += 1;
                    }
                }
            }
        }
    }

    /// Does what is due.
    pub fn step(&mut self, now: u64) -> Vec<ClientEffect> {
        let overdue: Vec<u64> =
            self.pending.iter().filter(|(_, op)| now >= op.deadline_at).map(|(number, _)| *number).collect();
        for number in overdue {
            self.give_up(now, number);
        }
        for op in self.pending.values_mut() {
            if op.flight.is_some_and(|(_, since, _)| now >= since + ATTEMPT) {
                op.flight = None;
                op.turn += 1;
                op.retry_at = now;
            }
        }
        while self.left > 0 && self.pending.len() < self.width && now >= self.next_at {
            self.invent(now);
        }
        self.number_writes(now);
        let mut wants = Vec::new();
        let ready: Vec<u64> = self.pending.keys().copied().collect();
        for number in ready {
            self.try_send(now, number, &mut wants);
        }
        wants
    }

    /// Thinks of another operation.
    fn invent(&mut self, now: u64) {
        let pause = if self.random.chance(250) { 0 } else { self.random.between(40_000, 420_000) };
        self.next_at = now + pause;
        self.left -= 1;
        self.next_number += 1;
        let number = u64::from(self.id) << 32 | self.next_number;
        let partitions: Vec<PartitionId> = self.views.keys().copied().collect();
        let partition = *self.random.pick(&partitions).expect("there is a partition");
        let (key, action, in_session) = self.choose(number, partition);
        let operation = Operation {
            number,
            client: self.id,
            partition,
            key,
            action,
            session: None,
            invoked: now,
            completed: 0,
            told: Answer::Unknown,
        };
        let raw = operation.action.writes() && !in_session;
        let deadline_ms = if self.random.chance(250) { self.random.between(150, 900) } else { 0 };
        self.pending.insert(
            number,
            Pending {
                operation: Some(operation),
                partition,
                in_session,
                seq: None,
                flight: None,
                awaits: None,
                sent: false,
                retry_at: now,
                turn: 0,
                deadline_at: now + if raw { DEADLINE / 4 } else { DEADLINE },
                deadline_ms,
            },
        );
    }

    fn choose(&mut self, number: u64, partition: PartitionId) -> (String, Action, bool) {
        let register = format!("r{}", self.random.below(4));
        let newest = self.newest.get(&partition).copied();
        match self.random.below(100) {
            0..28 => (register, Action::Put(number), true),
            28..40 => match self.seen.get(&(partition, register.clone())) {
                Some((read, since)) => {
                    let action = Action::Swap { value: number, read: *read, since: *since };
                    (register, action, self.random.chance(750))
                }
                None => (register, Action::Put(number), true),
            },
            40..58 => (register, Action::Get(self.random.chance(300)), false),
            58..64 => match self.seen.get(&(partition, register.clone())) {
                Some((_, at)) => (register, Action::GetAt(*at), false),
                None => (register, Action::Get(true), false),
            },
            64..72 => {
                let token =
                    if self.random.chance(500) { newest.map_or(Lsn::ZERO, |at| at.lsn) } else { Lsn::ZERO };
                (register, Action::GetAny(token), false)
            }
            72..80 => (format!("i{}", self.random.below(12)), Action::Insert(number), true),
            80..88 => (format!("i{}", self.random.below(12)), Action::Insert(number), false),
            88..94 => (format!("d{}", self.random.below(2)), Action::Delete, true),
            94..98 => (format!("d{}", self.random.below(2)), Action::Put(number), true),
            _ => match newest {
                Some(at) => (String::new(), Action::TermEnd(at), false),
                None => (register, Action::Get(false), false),
            },
        }
    }

    /// Opens sessions where they are needed, and numbers writes in them.
    fn number_writes(&mut self, now: u64) {
        let waiting: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, op)| op.in_session && op.seq.is_none() && op.operation.is_some())
            .map(|(number, _)| *number)
            .collect();
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
                self.next_number += 1;
                let opening = u64::from(self.id) << 32 | self.next_number;
                session.opening = Some(opening);
                let deadline_at = now + DEADLINE;
                self.pending.insert(
                    opening,
                    Pending {
                        operation: None,
                        partition,
                        in_session: true,
                        seq: None,
                        flight: None,
                        awaits: None,
                        sent: false,
                        retry_at: now,
                        turn: 0,
                        deadline_at,
                        deadline_ms: 0,
                    },
                );
            }
        }
    }

    fn try_send(&mut self, now: u64, number: u64, wants: &mut Vec<ClientEffect>) {
        let op = &self.pending[&number];
        let writes = op.operation.as_ref().is_some_and(|operation| operation.action.writes());
        let waits = writes && if op.in_session { op.seq.is_none() } else { op.sent };
        if op.flight.is_some() || now < op.retry_at || waits {
            return;
        }
        let view = &self.views[&op.partition];
        let any = matches!(op.operation, Some(Operation { action: Action::GetAny(_), .. }));
        let turn = op.turn as usize + if any { number as usize } else { 0 };
        let node = view.members[turn % view.members.len()];
        let slot = (number % u64::from(self.slots)) as u16;
        match self.links.get(&(node, slot)) {
            Some(Link::Up(conn)) => {
                let conn = *conn;
                let request = self.request(number);
                self.requests.insert(request.id, number);
                let op = self.pending.get_mut(&number).expect("looked at above");
                op.awaits = None;
                op.flight = Some((request.id, now, conn));
                op.sent = true;
                wants.push(ClientEffect::Send(conn, Box::new(request)));
            }
            Some(Link::Dialling) => {
                self.pending.get_mut(&number).expect("looked at above").awaits = Some((node, slot))
            }
            None => {
                self.pending.get_mut(&number).expect("looked at above").awaits = Some((node, slot));
                self.links.insert((node, slot), Link::Dialling);
                wants.push(ClientEffect::Dial(node, slot));
            }
        }
    }

    fn request(&mut self, number: u64) -> Request {
        self.next_number += 1;
        let id = u64::from(self.id) << 32 | self.next_number;
        let op = &self.pending[&number];
        let session = self.sessions.get(&op.partition);
        let (in_session, seq) = (op.seq.is_some(), op.seq.unwrap_or(0));
        let key = |operation: &Operation| rows::key(&operation.key, self.typed);
        let row = |operation: &Operation, value: u64| rows::row(&operation.key, value, self.typed);
        let write = |op: RowOp| Op::write(vec![op]);
        let mut read = ReadLevel::Primary;
        let asked = match &op.operation {
            None => Op::OpenSession,
            Some(operation) => match &operation.action {
                Action::Put(value) => write(RowOp::Put { key: key(operation), row: row(operation, *value) }),
                Action::Insert(value) => {
                    write(RowOp::Insert { key: key(operation), row: row(operation, *value) })
                }
                Action::Delete => write(RowOp::Delete { key: key(operation) }),
                Action::Swap { value, read, since } => {
                    let (key, row) = (key(operation), row(operation, *value));
                    let op = match read {
                        Some(_) => RowOp::Update { key, row },
                        None => RowOp::Insert { key, row },
                    };
                    Op::Write { ops: vec![op], mark: None, since: Some(*since) }
                }
                Action::Get(kept) => {
                    let at = if *kept { Snapshot::Begin } else { Snapshot::Newest };
                    Op::Get { key: key(operation), at }
                }
                Action::GetAt(at) => Op::Get { key: key(operation), at: Snapshot::At(*at) },
                Action::GetAny(min_lsn) => {
                    read = ReadLevel::Any { max_lag_ms: 400, min_lsn: *min_lsn };
                    Op::Get { key: key(operation), at: Snapshot::Newest }
                }
                Action::TermEnd(at) => Op::TermEnd { term: at.term },
            },
        };
        let id_of = session.and_then(|session| session.id).unwrap_or(SessionId::NONE);
        Request {
            id,
            session: if in_session { id_of } else { SessionId::NONE },
            seq,
            confirmed: session.filter(|_| in_session).map_or(0, Session::confirmed),
            deadline_ms: op.deadline_ms,
            table: self.views[&op.partition].table,
            schema: 1,
            partition: op.partition,
            read,
            trace: number,
            op: asked,
        }
    }

    /// A reply came.
    pub fn hear(&mut self, now: u64, reply: Reply) {
        let Some(number) = self.requests.get(&reply.id).copied() else { return };
        if let Some(record) = reply.hint.as_ref().and_then(|hint| hint.record()) {
            self.adopt(&record);
        }
        let Some(op) = self.pending.get_mut(&number) else { return };
        let newest = op.flight.is_some_and(|(request, ..)| request == reply.id);
        if newest {
            op.flight = None;
        }
        match &reply.status {
            Status::Ok | Status::Refused(_) => self.decided(now, number, reply),
            _ if !newest => {}
            Status::Bad(why) => {
                if op.in_session {
                    let name = op.operation.as_ref().map(|operation| format!("{operation:?}"));
                    self.fault = Some(format!("I9: an undecided write was told '{why}': {name:?}"));
                }
                self.end(now, number, Answer::NotDone);
            }
            Status::Unknown(_)
                if op.operation.as_ref().is_some_and(|operation| operation.action.writes()) =>
            {
                self.give_up(now, number);
            }
            Status::Expected(next) => self.expected(now, number, *next),
            Status::TooOld(_) => self.end(now, number, Answer::NotDone),
            status => self.not_done(now, number, &status.clone()),
        }
    }

    fn not_done(&mut self, now: u64, number: u64, status: &Status) {
        let wait = self.random.between(5_000, 60_000);
        let op = self.pending.get_mut(&number).expect("looked at by the caller");
        let once = op.operation.as_ref().is_some_and(|operation| operation.action.writes()) && !op.in_session;
        if once {
            return self.end(now, number, Answer::NotDone);
        }
        op.retry_at = now + wait;
        if matches!(status, Status::NotPrimary | Status::NotFound(_) | Status::Corrupt(_)) {
            op.turn += 1;
        }
        if matches!(status, Status::NotYet(_))
            && matches!(&op.operation, Some(Operation { action: Action::GetAny(_), .. }))
        {
            op.turn += 1;
        }
    }

    fn adopt(&mut self, record: &PartitionRecord) {
        let all = self.nodes;
        let Some(view) = self.views.get_mut(&record.id).filter(|view| view.epoch < record.epoch.0) else {
            return;
        };
        view.epoch = record.epoch.0;
        view.members = record.members().map(|member| member.node.0).collect();
        // Whoever is left out may have become a member since.
        let rest: Vec<u32> = (1..=all).filter(|node| !view.members.contains(node)).collect();
        view.members.extend(rest);
        for op in self.pending.values_mut().filter(|op| op.partition == record.id) {
            op.turn = 0;
        }
    }

    fn decided(&mut self, now: u64, number: u64, reply: Reply) {
        let at = reply.position();
        let op = &self.pending[&number];
        let Some(operation) = &op.operation else {
            let session = self.sessions.entry(op.partition).or_default();
            *session = Session { id: Some(SessionId(at)), ..Session::default() };
            self.pending.remove(&number);
            return;
        };
        let told = match (&reply.status, &operation.action, &reply.body) {
            (Status::Refused(Outcome::Exists), ..) => Answer::Exists(reply.lsn),
            (Status::Refused(_), ..) => Answer::Changed,
            (_, action, _) if action.writes() => Answer::Done { at, copies: reply.copies },
            (_, Action::TermEnd(_), Body::TermEnd(end)) => Answer::Ended(*end),
            (_, _, Body::Row(row)) => {
                let row = row.as_ref().map(|(lsn, bytes)| (*lsn, rows::value_of(bytes)));
                Answer::Found { row, at: reply.lsn, epoch: reply.epoch }
            }
            _ => {
                self.fault = Some(format!("I9: {operation:?} was answered with {reply:?}"));
                Answer::Unknown
            }
        };
        if let (Answer::Found { row, at, epoch }, Action::Get(_)) = (&told, &operation.action) {
            let register = (operation.partition, operation.key.clone());
            self.seen.insert(register, (*row, Position::new(Term::of(*epoch), *at)));
        }
        if matches!(told, Answer::Done { .. }) {
            let newest = self.newest.entry(op.partition).or_default();
            *newest = (*newest).max(at);
        }
        self.end(now, number, told);
    }

    /// "Not done: your next number is `next`."
    fn expected(&mut self, now: u64, number: u64, next: u64) {
        let partition = self.pending[&number].partition;
        let session = self.sessions.entry(partition).or_default();
        if next <= session.acknowledged {
            // Acknowledged writes are gone; everything that follows in this session is unknown.
            self.losses += 1;
            return self.retire(now, partition);
        }
        if !session.open.contains_key(&next) && next <= session.next {
            return self.retire(now, partition);
        }
        let wait = self.random.between(5_000, 40_000);
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
            Some(operation) => {
                // A write that was never sent was not done.
                let told =
                    if operation.action.writes() && op.sent { Answer::Unknown } else { Answer::NotDone };
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
        if let Some(mut operation) = op.operation {
            operation.completed = now;
            operation.told = told;
            self.history.push(operation);
        }
    }
}
