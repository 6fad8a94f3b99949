//! A client of the past: it knows the old primary, has a session with it and writes to it whatever anybody says. A primary
//! that was stopped or cut off must acknowledge none of that once it goes on.

use super::dataset::Dataset;
use super::history::{Attempt, End, KeyId};
use bytes::Bytes;
use client::table::Table;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use types::{Epoch, PartitionId, Position, SessionId};
use wire::hello::{Hello, HelloRole, PROTOCOL, Welcome};
use wire::{Message, Op, ReadLevel, Reply, Request, RowOp, Status, frame};

/// How long any one answer is waited for before the fault.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Writes that wait in the socket of a stopped process.
const WAITING: u64 = 50;

/// What the old primary said.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct StaleReport {
    /// Writes sent to it after the fault.
    pub sent: u64,
    /// Writes that it acknowledged in the reign that was over. Must be 0.
    pub acknowledged: u64,
    /// Writes that it refused.
    pub refused: u64,
}

/// A connection to one node, with a session in one partition that it led.
pub(super) struct Stale<'a> {
    address: String,
    stream: TcpStream,
    inbox: Vec<u8>,
    table: &'a Table,
    data: &'a Dataset,
    partition: PartitionId,
    number: u32,
    keys: &'a [KeyId],
    session: Position,
    /// The last sequence number in the session; writes before the fault are 1.
    sequence: u64,
    /// Every write after the fault, and the key it was to.
    pub attempts: Vec<Attempt>,
    pub report: StaleReport,
    /// A reply in this epoch or later is of a reign that was given to the node again.
    new_epoch: Option<Epoch>,
}

impl<'a> Stale<'a> {
    /// Connects to a node that leads `partition` now, and writes once to see that it can.
    pub fn connect(
        address: &str,
        table: &'a Table,
        data: &'a Dataset,
        partition: PartitionId,
        number: u32,
        keys: &'a [KeyId],
    ) -> Result<Stale<'a>, String> {
        let stream = TcpStream::connect(address).map_err(|error| format!("{address}: {error}"))?;
        let mut stale = Stale {
            address: address.to_string(),
            stream,
            inbox: Vec::new(),
            table,
            data,
            partition,
            number,
            keys,
            session: Position::ZERO,
            sequence: 0,
            attempts: Vec::new(),
            report: StaleReport::default(),
            new_epoch: None,
        };
        stale.greet()?;
        let opened = stale.ask(Op::OpenSession)?;
        stale.session = Position::new(opened.epoch, opened.lsn);
        let row = stale.next_row();
        stale.ask(row)?;
        Ok(stale)
    }

    fn greet(&mut self) -> Result<(), String> {
        self.stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let hello = Hello {
            role: HelloRole::Client,
            protocol: PROTOCOL,
            cluster: None,
            member: None,
            secret: crate::secret(),
            agent: "understudy demo, stale client".into(),
        };
        self.send(&hello.into())?;
        match self.receive(ANSWER_WITHIN)? {
            Some(Message::Welcome(Welcome::Accepted { .. })) => Ok(()),
            other => Err(format!("{} did not welcome a client: {other:?}", self.address)),
        }
    }

    /// Puts writes into the socket without waiting for answers.
    pub fn write_ahead(&mut self) {
        for _ in 0..WAITING {
            self.write();
        }
    }

    /// Goes on writing for some time and hears what the node says.
    pub fn insist(&mut self, long: Duration, new_epoch: Option<Epoch>) {
        self.new_epoch = new_epoch;
        let end = Instant::now() + long;
        while Instant::now() < end {
            self.write();
            match self.receive(Duration::from_millis(10)) {
                Ok(Some(Message::Reply(reply))) => self.heard(&reply),
                Ok(_) => {}
                // The node closed the connection: it is asked on another one.
                Err(_) => self.come_back(),
            }
            while let Ok(Some(Message::Reply(reply))) = self.receive(Duration::from_millis(1)) {
                self.heard(&reply);
            }
        }
    }

    /// One attempt at being let in again, not sooner than a little later.
    fn come_back(&mut self) {
        std::thread::sleep(Duration::from_millis(10));
        self.inbox.clear();
        let Ok(stream) = TcpStream::connect(&self.address) else { return };
        self.stream = stream;
        // If that fails, the next write fails too and leads back here.
        let _ = self.greet();
    }

    fn heard(&mut self, reply: &Reply) {
        let lawful = self.new_epoch.is_some_and(|new_epoch| reply.epoch >= new_epoch);
        match reply.status {
            Status::Ok if !lawful => {
                self.report.acknowledged += 1;
            }
            Status::Ok => {}
            _ => self.report.refused += 1,
        }
    }

    fn write(&mut self) {
        let row = self.next_row();
        let request = self.request(row);
        self.report.sent += 1;
        let key = self.keys[self.sequence as usize % self.keys.len()];
        let (client, sequence) = (self.number, self.sequence);
        self.attempts.push(Attempt { key, client, sequence, end: End::Unknown });
        // A full or broken socket takes no more; what was sent is what matters.
        let _ = self.send(&request.into());
    }

    fn next_row(&mut self) -> Op {
        self.sequence += 1;
        let key = self.keys[self.sequence as usize % self.keys.len()];
        let row: Bytes = self.data.written(key, self.number, self.sequence);
        Op::Write { ops: vec![RowOp::Put { key: self.data.key(key).clone(), row }], mark: None }
    }

    fn request(&self, op: Op) -> Request {
        let writes_rows = matches!(op, Op::Write { .. });
        Request {
            id: self.sequence + 1,
            session: if writes_rows { SessionId(self.session) } else { SessionId::NONE },
            seq: if writes_rows { self.sequence } else { 0 },
            confirmed: 0,
            deadline_ms: 0,
            table: self.table.id(),
            schema: self.table.schema().version(),
            partition: self.partition,
            read: ReadLevel::Primary,
            trace: 0,
            op,
        }
    }

    /// Asks before the fault: the answer must be good. What is written then is part of the record too.
    fn ask(&mut self, op: Op) -> Result<Reply, String> {
        let writes_rows = matches!(op, Op::Write { .. });
        let request = self.request(op);
        self.send(&request.into())?;
        let reply = match self.receive(ANSWER_WITHIN)? {
            Some(Message::Reply(reply)) if reply.status == Status::Ok => reply,
            other => {
                return Err(format!("the stale client's first request was not answered well: {other:?}"));
            }
        };
        if writes_rows {
            let key = self.keys[self.sequence as usize % self.keys.len()];
            let at = Position::new(reply.epoch, reply.lsn);
            let end = End::Acknowledged { at, ms: super::clock::wall_ms() };
            let (client, sequence) = (self.number, self.sequence);
            self.attempts.push(Attempt { key, client, sequence, end });
        }
        Ok(reply)
    }

    fn send(&mut self, message: &Message) -> Result<(), String> {
        let mut bytes = Vec::new();
        frame::encode(message, &mut bytes)?;
        self.stream.set_write_timeout(Some(Duration::from_millis(200))).map_err(|error| error.to_string())?;
        self.stream.write_all(&bytes).map_err(|error| error.to_string())
    }

    /// The next message, `None` if none came in time.
    fn receive(&mut self, within: Duration) -> Result<Option<Message>, String> {
        let deadline = Instant::now() + within;
        loop {
            if let Some((message, taken)) = frame::decode(&self.inbox).map_err(|error| error.to_string())? {
                self.inbox.drain(..taken);
                return Ok(Some(message));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
            let mut bytes = [0; 16 * 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err("the connection was closed".into()),
                Ok(read) => self.inbox.extend_from_slice(&bytes[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}
