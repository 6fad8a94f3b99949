//! A small server that speaks the real frames over real sockets: a controller and nodes, all in one process,
//! with one shared state and a few ways to misbehave.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use types::config::{Addresses, FORMAT};
use types::data::{Column, ColumnType, Row, Schema};
use types::{
    ClusterId, ClusterRecord, Epoch, Incarnation, LogKind, Lsn, Member, NodeId, NodeRecord, PartitionId,
    PartitionRecord, Policy, Position, ProposalId, SessionId, StoreId, TableId, TableRecord,
};
use wire::control::{AdminAnswer, AdminCommand, ClusterMap};
use wire::hello::{HelloRole, Welcome};
use wire::request::{Hint, Outcome};
use wire::{Body, Message, Op, RecordText, Reply, Request, RowOp, Status, frame};

pub const CLUSTER: ClusterId = ClusterId(7);

/// How a node misbehaves, each for so many occasions.
#[derive(Default, Debug)]
pub struct Mischief {
    /// Do the request, then close in the middle of the reply.
    pub cut_reply: u32,
    /// Do the request, send bytes that are no frame.
    pub garbage: u32,
    /// Write replies in pieces of so many bytes; 0: whole.
    pub piece: usize,
    /// Take requests and say nothing.
    pub silent: bool,
    /// Refuse everybody at the door.
    pub unwelcome: bool,
}

#[derive(Default)]
struct Partition {
    rows: BTreeMap<Vec<u8>, (Lsn, bytes::Bytes)>,
    lsn: u64,
    /// Per session the outcomes, by number.
    sessions: BTreeMap<SessionId, Vec<(Lsn, Outcome)>>,
}

pub struct FakeState {
    pub mischief: BTreeMap<NodeId, Mischief>,
    /// Controllers that answer commands with "not here", and whom they name.
    pub led_by: BTreeMap<usize, String>,
    pub nodes: BTreeMap<NodeId, NodeRecord>,
    pub records: BTreeMap<PartitionId, PartitionRecord>,
    /// Writes that were executed, duplicates not counted.
    pub executed: u64,
    /// Connections that nodes accepted.
    pub accepted: u64,
    /// Commands that controllers got, watches not counted.
    pub commands: u64,
    table: TableRecord,
    revision: u64,
    data: BTreeMap<PartitionId, Partition>,
    watchers: Vec<TcpStream>,
}

#[derive(Clone)]
pub struct Fake {
    state: Arc<Mutex<FakeState>>,
    pub controllers: Vec<String>,
}

pub fn schema() -> Schema {
    let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("name", ColumnType::Text)];
    Schema::new(columns, &["id"], 1, false).expect("valid")
}

pub fn row(id: i64, name: &str) -> Row {
    Row::new(vec![id.into(), name.into()])
}

fn member(node: NodeId) -> Member {
    Member { node, store: StoreId(u64::from(node.0)), incarnation: Incarnation(1) }
}

impl Fake {
    /// Starts nodes and controllers, and one table `t`.
    pub fn start(nodes: u32, controllers: usize, partitions: u32) -> Fake {
        let ids: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        let policy = Policy::preset("async", 1, LogKind::Disk).expect("a preset");
        let first = PartitionId(PartitionId::FIRST_USER);
        let table = TableRecord {
            first_partition: first,
            partitions,
            seed: 11,
            ..TableRecord::new(TableId(1), "t", schema(), policy.clone())
        };
        let records = table
            .partition_ids()
            .map(|id| (id, record(id, 1, ids[(id.0 - first.0) as usize % ids.len()], &ids)));
        let state = FakeState {
            mischief: ids.iter().map(|id| (*id, Mischief::default())).collect(),
            led_by: BTreeMap::new(),
            nodes: BTreeMap::new(),
            records: records.collect(),
            executed: 0,
            accepted: 0,
            commands: 0,
            table,
            revision: 1,
            data: BTreeMap::new(),
            watchers: Vec::new(),
        };
        let mut fake = Fake { state: Arc::new(Mutex::new(state)), controllers: Vec::new() };
        for id in ids {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            fake.add_node(id, listener.local_addr().expect("bound").to_string());
            fake.serve(listener, Some(id), 0);
        }
        for place in 0..controllers {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            fake.controllers.push(listener.local_addr().expect("bound").to_string());
            fake.serve(listener, None, place);
        }
        fake
    }

    pub fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().expect("no test thread failed")
    }

    /// Makes another node lead, and tells the watchers if asked to.
    pub fn fail_over(&self, partition: PartitionId, to: NodeId, tell: bool) {
        let mut state = self.state();
        let old = state.records[&partition].clone();
        let nodes: Vec<NodeId> = old.in_sync.iter().map(|member| member.node).collect();
        state.records.insert(partition, record(partition, old.epoch.0 + 1, to, &nodes));
        state.revision += 1;
        if tell {
            let cluster_map = state.cluster_map();
            for mut watcher in std::mem::take(&mut state.watchers) {
                if send(&mut watcher, &cluster_map.clone().into(), 0).is_ok() {
                    state.watchers.push(watcher);
                }
            }
        }
    }

    fn add_node(&self, id: NodeId, client: String) {
        let Member { store, incarnation, .. } = member(id);
        let node = NodeRecord {
            format: FORMAT,
            id,
            store,
            incarnation,
            clean_start: true,
            addresses: Addresses { client, ..Addresses::default() },
            zone: String::new(),
            damaged: Vec::new(),
            start: 0,
            executors: Default::default(),
            unknown: BTreeMap::new(),
        };
        self.state().nodes.insert(id, node);
    }

    fn serve(&self, listener: TcpListener, node: Option<NodeId>, place: usize) {
        let fake = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (fake, stream) = (fake.clone(), stream.expect("accepted"));
                // A thread ends with its connection, whatever ended that.
                std::thread::spawn(move || fake.converse(stream, node, place));
            }
        });
    }

    fn converse(&self, mut stream: TcpStream, node: Option<NodeId>, place: usize) -> Option<()> {
        let mut inbox = Inbox::default();
        let Message::Hello(hello) = inbox.next(&mut stream)? else { return None };
        assert_eq!(hello.role, if node.is_some() { HelloRole::Client } else { HelloRole::Operator });
        if node.is_some_and(|node| self.state().mischief[&node].unwelcome) {
            return send(&mut stream, &Welcome::Refused("go away".into()).into(), 0).ok();
        }
        let welcome = match hello.cluster {
            Some(cluster) if cluster != CLUSTER => Welcome::Refused("this is another cluster".into()),
            _ => Welcome::Accepted { cluster: CLUSTER, member: node.map(member) },
        };
        send(&mut stream, &welcome.into(), 1).ok()?;
        self.state().accepted += u64::from(node.is_some());
        loop {
            match (inbox.next(&mut stream)?, node) {
                (Message::Request(request), Some(node)) => self.answer(&mut stream, node, request)?,
                (Message::Admin(admin), None) => {
                    let result = self.command(&stream, place, admin.command);
                    if let Some(result) = result {
                        send(&mut stream, &AdminAnswer { id: admin.id, result }.into(), 0).ok()?;
                    }
                }
                (other, _) => panic!("the client sent a {}", other.name()),
            }
        }
    }

    fn command(
        &self,
        stream: &TcpStream,
        place: usize,
        command: AdminCommand,
    ) -> Option<Result<String, (u8, String)>> {
        let mut state = self.state();
        if command == AdminCommand::Watch {
            let mut watcher = stream.try_clone().expect("a socket");
            send(&mut watcher, &state.cluster_map().into(), 5).expect("a fresh connection");
            state.watchers.push(watcher);
            return None;
        }
        if let Some(leader) = state.led_by.get(&place) {
            return Some(Err((4, format!("this controller does not lead; ask {leader}"))));
        }
        state.commands += 1;
        match command {
            AdminCommand::Status => Some(Ok(format!("controller {place}"))),
            AdminCommand::DropTable(name) => Some(Err((3, format!("there is no table `{name}`")))),
            _ => {
                // Closes without an answer.
                stream.shutdown(std::net::Shutdown::Both).expect("open");
                None
            }
        }
    }

    fn answer(&self, stream: &mut TcpStream, node: NodeId, request: Request) -> Option<()> {
        let mut state = self.state();
        if state.mischief[&node].silent {
            return Some(());
        }
        let reply = state.execute(node, request);
        let mischief = state.mischief.get_mut(&node).expect("a node");
        if mischief.garbage > 0 {
            mischief.garbage -= 1;
            stream.write_all(b"this is not a frame, and long enough to be taken for one").ok()?;
            return None;
        }
        if mischief.cut_reply > 0 {
            mischief.cut_reply -= 1;
            let mut bytes = Vec::new();
            frame::encode(&reply.into(), &mut bytes).expect("fits");
            stream.write_all(&bytes[..bytes.len() / 2]).ok()?;
            return None;
        }
        let piece = mischief.piece;
        drop(state);
        send(stream, &reply.into(), piece).ok()
    }
}

fn record(id: PartitionId, epoch: u64, primary: NodeId, nodes: &[NodeId]) -> PartitionRecord {
    let mut in_sync = vec![member(primary)];
    in_sync.extend(nodes.iter().filter(|node| **node != primary).map(|node| member(*node)));
    PartitionRecord {
        proposal: ProposalId(epoch),
        ..PartitionRecord::new(
            id,
            TableId(1),
            Epoch(epoch),
            in_sync,
            Policy::preset("async", 1, LogKind::Disk).expect("a preset"),
        )
    }
}

impl FakeState {
    fn cluster_map(&self) -> ClusterMap {
        let cluster = ClusterRecord {
            format: FORMAT,
            id: CLUSTER,
            created_ms: 0,
            next_table: 2,
            next_partition: 100,
            next_system: PartitionId::FIRST_SYSTEM,
            next_failover: 1,
            generation: Default::default(),
            asked: 0,
            unknown: BTreeMap::new(),
        };
        ClusterMap {
            whole: true,
            revision: self.revision,
            cluster: Some(RecordText::new(&cluster)),
            nodes: self.nodes.values().map(RecordText::new).collect(),
            tables: vec![RecordText::new(&self.table)],
            partitions: self.records.values().map(RecordText::new).collect(),
            dropped: Vec::new(),
        }
    }

    fn execute(&mut self, node: NodeId, request: Request) -> Reply {
        let record = self.records[&request.partition].clone();
        let reply = |status, lsn, body, hint| {
            let (policy, copies) = (1, 1);
            Reply { id: request.id, status, lsn: Lsn(lsn), epoch: record.epoch, policy, copies, hint, body }
        };
        let anywhere = matches!(request.read, wire::ReadLevel::Any { .. }) && !request.op.writes();
        if record.primary.node != node && !anywhere {
            return reply(Status::NotPrimary, 0, Body::None, Some(Box::new(Hint::new(&record))));
        }
        let partition = self.data.entry(request.partition).or_default();
        match partition.execute(&request, record.epoch, &mut self.executed) {
            Ok((status, lsn, body)) => reply(status, lsn, body, None),
            Err(status) => reply(status, 0, Body::None, None),
        }
    }
}

impl Partition {
    fn execute(
        &mut self,
        request: &Request,
        epoch: Epoch,
        executed: &mut u64,
    ) -> Result<(Status, u64, Body), Status> {
        match &request.op {
            Op::OpenSession => {
                self.lsn += 1;
                self.sessions
                    .insert(SessionId(Position::new(types::Term::of(epoch), Lsn(self.lsn))), Vec::new());
                Ok((Status::Ok, self.lsn, Body::None))
            }
            Op::Write { ops, .. } => {
                let Some(outcomes) = self.sessions.get(&request.session) else {
                    return Err(Status::Unknown("the session is not known".into()));
                };
                let next = outcomes.len() as u64 + 1;
                if request.seq > next {
                    return Err(Status::Expected(next));
                }
                if request.seq == next {
                    *executed += 1;
                    let outcome = self.write(ops);
                    self.sessions.get_mut(&request.session).expect("known").push((Lsn(self.lsn), outcome));
                }
                let (lsn, outcome) = self.sessions[&request.session][request.seq as usize - 1];
                let status = if outcome == Outcome::Done { Status::Ok } else { Status::Refused(outcome) };
                Ok((status, lsn.0, Body::Affected(ops.len() as u32)))
            }
            Op::Get { key, .. } => Ok((Status::Ok, self.lsn, Body::Row(self.rows.get(&key[..]).cloned()))),
            Op::Count { from, to, .. } => {
                Ok((Status::Ok, self.lsn, Body::Number(self.range(from, to).count() as u64)))
            }
            Op::Digest => Ok((Status::Ok, self.lsn, Body::Number(self.rows.len() as u64 * 31 + self.lsn))),
            Op::Scan { from, to, limit, .. } => {
                let mut rows: VecDeque<_> = self.range(from, to).take(*limit as usize + 1).collect();
                let more = rows.len() > *limit as usize;
                rows.truncate(*limit as usize);
                let rows = rows.into_iter().map(|(key, (lsn, row))| (key.clone().into(), *lsn, row.clone()));
                Ok((Status::Ok, self.lsn, Body::Rows { rows: rows.collect(), more }))
            }
            Op::TermEnd { term: asked } => {
                let end = (asked.began() < epoch).then_some(Lsn(2));
                Ok((Status::Ok, self.lsn, Body::TermEnd(end)))
            }
            Op::Hold { .. } | Op::Pause { .. } | Op::Resume { .. } => Ok((Status::Ok, self.lsn, Body::None)),
            Op::Find { .. } | Op::Indexes => Err(Status::NoIndex("no indexes here".into())),
            Op::DigestAt { .. } | Op::Scrub { .. } | Op::GiveUp { .. } => {
                Err(Status::Bad("no files here".into()))
            }
            Op::Stage { .. } | Op::StagePiece { .. } | Op::Unstage { .. } | Op::Load { .. } => {
                Err(Status::Bad("no files here".into()))
            }
            Op::Job { .. } | Op::EndJob { .. } | Op::ShowJob { .. } => {
                Err(Status::Bad("no jobs here".into()))
            }
            Op::Feed { .. } => Err(Status::Bad("no feeds here".into())),
            Op::Manager(_) | Op::Flush(_) | Op::FlushState { .. } => {
                Err(Status::Bad("no global transactions here".into()))
            }
            Op::Transact { .. } | Op::Call(_) => Err(Status::Bad("no databases here".into())),
            Op::Turn(_) => Err(Status::Bad("no turns here".into())),
            Op::Held { .. } => Err(Status::Bad("no tables that move here".into())),
        }
    }

    fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &(Lsn, bytes::Bytes))> {
        let to = to.to_vec();
        self.rows.range(from.to_vec()..).take_while(move |(key, _)| to.is_empty() || **key < to)
    }

    fn write(&mut self, ops: &[RowOp]) -> Outcome {
        self.lsn += 1;
        let taken = |op: &RowOp| matches!(op, RowOp::Insert { key, .. } if self.rows.contains_key(&key[..]));
        if ops.iter().any(taken) {
            return Outcome::Exists;
        }
        for op in ops {
            match op.row() {
                Some(row) => self.rows.insert(op.key().to_vec(), (Lsn(self.lsn), row.clone())),
                None => self.rows.remove(&op.key()[..]),
            };
        }
        Outcome::Done
    }
}

#[derive(Default)]
struct Inbox(Vec<u8>);

impl Inbox {
    fn next(&mut self, stream: &mut TcpStream) -> Option<Message> {
        loop {
            if let Some((message, taken)) = frame::decode(&self.0).expect("the client sends good frames") {
                self.0.drain(..taken);
                return Some(message);
            }
            let mut bytes = [0; 16 * 1024];
            match stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.0.extend_from_slice(&bytes[..read]),
            }
        }
    }
}

/// Sends a message, in pieces if asked to, each in a packet of its own.
fn send(stream: &mut TcpStream, message: &Message, piece: usize) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    frame::encode(message, &mut bytes).expect("fits");
    if piece == 0 {
        return stream.write_all(&bytes);
    }
    stream.set_nodelay(true)?;
    // Long messages in few pieces, so that tests stay short.
    for part in bytes.chunks(piece.max(bytes.len() / 20)) {
        stream.write_all(part)?;
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}
