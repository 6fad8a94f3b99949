//! A client of the past: it knows the old primary, and writes to it and reads from it whatever anybody says.
//! From the moment at which somebody else leads, a primary that was stopped or cut off must acknowledge
//! nothing and answer no read with something older than what the new primary has acknowledged, neither while
//! it is away nor once it goes on.

use super::dataset::Dataset;
use super::history::{Attempt, End, KeyId};
use super::told::Answered;
use super::verify::Found;
use super::workload::Shared;
use bytes::Bytes;
use client::table::Table;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use types::{Epoch, PartitionId};
use wire::hello::{Hello, HelloRole, PROTOCOL, Welcome};
use wire::{Body, Message, Op, Reply, Request, RowOp, Status, frame};

/// How long any one answer is waited for before the fault.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long a welcome is waited for after it.
const WELCOME_WITHIN: Duration = Duration::from_millis(500);
/// Between two writes, and between two reads.
const EVERY: Duration = Duration::from_millis(10);
/// How long the socket is waited for when it takes no more: a stopped process reads nothing.
const SEND_WITHIN: Duration = Duration::from_millis(1);

/// What the old primary said.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct StaleReport {
    /// Writes sent to it after the fault.
    pub sent: u64,
    /// Writes that it acknowledged in the term that was over, sent after the new primary had acknowledged
    /// something. Must be 0.
    pub acknowledged: u64,
    /// Writes that it did not acknowledge.
    pub refused: u64,
    /// Reads sent to it after the fault.
    pub reads: u64,
    /// Reads that showed something older than what the new primary had acknowledged before they were sent.
    /// Must be 0.
    pub stale_reads: u64,
    /// Reads that it refused.
    pub reads_refused: u64,
    /// Answers to what was sent after the new primary had acknowledged something: without any, nothing was
    /// tested.
    pub answered: u64,
}

/// A read that was answered with something older than what was known to be done. If that was lost and is
/// reported, the answer is right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Suspect {
    pub partition: PartitionId,
    pub told: Answered,
    pub found: Option<Found>,
}

/// Everything that a client of the past did and saw.
#[derive(Clone, Debug, Default)]
pub(super) struct StaleOutcome {
    pub report: StaleReport,
    /// Every write, and the key it was to.
    pub attempts: Vec<Attempt>,
    /// Reads that look stale.
    pub suspects: Vec<Suspect>,
}

/// What a client of the past knows.
pub(super) struct Past<'a> {
    /// Where the old primary is.
    pub address: String,
    pub table: &'a Table,
    pub data: &'a Dataset,
    /// What the node leads.
    pub partition: PartitionId,
    /// In an epoch not above this.
    pub epoch: Epoch,
    /// The client's number.
    pub number: u32,
    /// The keys that it writes.
    pub keys: &'a [KeyId],
    /// What the prober was told by the new primary, and when to stop.
    pub shared: &'a Shared,
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The newest that was known to be done elsewhere when it was sent.
    told: Option<Answered>,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// The write with this place in the list of attempts.
    Write(usize),
    Read(KeyId),
}

/// A connection to one node that led a partition.
pub(super) struct Stale<'a> {
    past: Past<'a>,
    stream: TcpStream,
    inbox: Vec<u8>,
    /// What the socket has not taken yet.
    outbox: Vec<u8>,
    sequence: u64,
    /// The last request's number, and all that are not answered.
    id: u64,
    asked: HashMap<u64, Asked>,
    outcome: StaleOutcome,
}

impl<'a> Stale<'a> {
    /// Connects to a node that leads a partition now, and writes and reads once to see that it can.
    pub fn connect(past: Past<'a>) -> Result<Stale<'a>, String> {
        let stream =
            TcpStream::connect(&past.address).map_err(|error| format!("{}: {error}", past.address))?;
        let mut stale = Stale {
            past,
            stream,
            inbox: Vec::new(),
            outbox: Vec::new(),
            sequence: 0,
            id: 0,
            asked: HashMap::new(),
            outcome: StaleOutcome::default(),
        };
        stale.greet(ANSWER_WITHIN)?;
        stale.until_answered(Stale::write)?;
        stale.until_answered(Stale::read)?;
        // What was before the fault counts for nothing.
        stale.outcome.report = StaleReport::default();
        Ok(stale)
    }

    /// Goes on asking until the load ends, and hears what the node says.
    pub fn insist(mut self) -> StaleOutcome {
        while !self.past.shared.stopping() {
            let next = Instant::now() + EVERY;
            self.write();
            self.read();
            loop {
                let left = next.saturating_duration_since(Instant::now());
                match self.receive(left) {
                    Ok(Some(Message::Reply(reply))) => self.heard(&reply),
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    // The node closed the connection: it is asked on another one.
                    Err(_) => {
                        self.come_back();
                        break;
                    }
                }
            }
        }
        self.outcome
    }

    fn greet(&mut self, within: Duration) -> Result<(), String> {
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
        match self.receive(within)? {
            Some(Message::Welcome(Welcome::Accepted { .. })) => Ok(()),
            other => Err(format!("{} did not welcome a client: {other:?}", self.past.address)),
        }
    }

    /// Before the fault an answer must be good.
    /// Asks again for a while: a node that was not run for a moment refuses until it is sure that it leads.
    fn until_answered(&mut self, ask: fn(&mut Self)) -> Result<(), String> {
        let deadline = Instant::now() + ANSWER_WITHIN;
        loop {
            ask(self);
            match self.good_answer() {
                Err(_) if Instant::now() < deadline => std::thread::sleep(EVERY),
                outcome => return outcome,
            }
        }
    }

    fn good_answer(&mut self) -> Result<(), String> {
        match self.receive(ANSWER_WITHIN)? {
            Some(Message::Reply(reply)) if reply.status == Status::Ok => {
                self.heard(&reply);
                Ok(())
            }
            Some(Message::Reply(reply)) => {
                self.heard(&reply);
                Err(format!("the stale client's first request was refused: {:?}", reply.status))
            }
            other => Err(format!("the stale client's first request was not answered well: {other:?}")),
        }
    }

    /// One attempt at being let in again, not sooner than a little later.
    fn come_back(&mut self) {
        std::thread::sleep(EVERY);
        self.inbox.clear();
        self.outbox.clear();
        self.asked.clear();
        let Ok(stream) = TcpStream::connect(&self.past.address) else { return };
        self.stream = stream;
        // If that fails, the next request fails too and leads back here.
        let _ = self.greet(WELCOME_WITHIN);
    }

    /// Writes one of its keys. There is no session: a number that was refused would hold up all that follow
    /// it.
    fn write(&mut self) {
        let (number, sequence) = (self.past.number, self.sequence + 1);
        let key = self.past.keys[sequence as usize % self.past.keys.len()];
        let row: Bytes = self.past.data.written(key, number, sequence);
        let put = RowOp::Put { key: self.past.data.key(key).clone(), row };
        let what = What::Write(self.outcome.attempts.len());
        let told = self.told();
        if self.ask(Op::write(vec![put]), Asked { told, what }) {
            self.sequence = sequence;
            self.outcome.report.sent += 1;
            self.outcome.attempts.push(Attempt { key, client: number, sequence, end: End::Unknown });
        }
    }

    /// Reads the newest that the new primary has acknowledged; as long as there is none, a key of its own.
    fn read(&mut self) {
        let told = self.told();
        let key = told.map_or(self.past.keys[0], |told| told.key);
        let get = Op::Get { key: self.past.data.key(key).clone(), at: Default::default() };
        if self.ask(get, Asked { told, what: What::Read(key) }) {
            self.outcome.report.reads += 1;
        }
    }

    fn told(&self) -> Option<Answered> {
        self.past.shared.told.after(self.past.partition, self.past.epoch)
    }

    /// Sends a request without waiting for its answer. False if nothing of it was sent: the socket takes no
    /// more.
    fn ask(&mut self, op: Op, asked: Asked) -> bool {
        if !self.outbox.is_empty() && !matches!(self.flush(), Ok(true)) {
            return false;
        }
        self.id += 1;
        self.asked.insert(self.id, asked);
        let request = Request {
            id: self.id,
            ..Request::new(self.past.table.id(), self.past.table.schema().version(), self.past.partition, op)
        };
        // What a broken socket does not take, the next look at it finds out.
        let _ = self.send(&request.into());
        true
    }

    fn heard(&mut self, reply: &Reply) {
        let Some(asked) = self.asked.remove(&reply.id) else { return };
        let report = &mut self.outcome.report;
        report.answered += u64::from(asked.told.is_some());
        match (asked.what, &reply.status) {
            (What::Write(place), Status::Ok) => {
                // An entry of a later term is of one that was given to the node again.
                let over = asked.told.is_some() && reply.epoch <= self.past.epoch;
                report.acknowledged += u64::from(over);
                // Whoever acknowledged it: it is judged with everything else.
                let at = reply.position();
                let end = End::Acknowledged { at, ms: super::clock::wall_ms() };
                self.outcome.attempts[place].end = end;
            }
            (What::Write(_), _) => report.refused += 1,
            (What::Read(key), Status::Ok) => {
                let found = match &reply.body {
                    Body::Row(Some((_, stored))) => Some(self.past.data.recognise(key, stored)),
                    _ => None,
                };
                let partition = self.past.partition;
                let suspect = asked.told.filter(|told| !told.is_shown_by(found));
                self.outcome.suspects.extend(suspect.map(|told| Suspect { partition, told, found }));
            }
            (What::Read(_), _) => report.reads_refused += 1,
        }
    }

    fn send(&mut self, message: &Message) -> Result<(), String> {
        frame::encode(message, &mut self.outbox)?;
        self.stream.set_write_timeout(Some(SEND_WITHIN)).map_err(|error| error.to_string())?;
        self.flush().map(|_| ()).map_err(|error| error.to_string())
    }

    /// Hands over what the socket takes. True if nothing is left.
    fn flush(&mut self) -> std::io::Result<bool> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(written) => drop(self.outbox.drain(..written)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(false);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
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
