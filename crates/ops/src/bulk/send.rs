//! Files of a load on their way to all copies of their partitions: staged everywhere first, in all
//! partitions; only then is each partition told to make them part of its state.

use super::Part;
use crate::failure::Failure;
use crate::load::Watcher;
use crate::port::Port;
use bytes::Bytes;
use client::table::Table;
use client::{Answer, Completed, LaneId, Outcome, Ticket};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use types::bulk::files_digest;
use types::{Component, LoadId, Lsn, Micros, Position, Staging};
use wire::bulk::LoadStatus;
use wire::{Body, Op};

/// A piece of a file, in bytes.
const PIECE: usize = 256 << 10;
/// Pieces of one partition on their way.
const MAX_PIECES_IN_FLIGHT: usize = 16;
/// Partitions whose files are on their way.
const PARTITIONS: usize = 4;
/// How far a partition is, is asked again after so long.
const STATUS_POLL_INTERVAL: Duration = Duration::from_millis(30);
/// The same while it is being loaded.
const LOADING: Duration = Duration::from_millis(300);
/// A piece, a question, or the load itself may take so long.
const DEADLINE: Duration = Duration::from_secs(60);
/// A wait for answers sleeps no longer.
const WAIT: Duration = Duration::from_millis(200);

/// What a ticket is for.
enum Asked {
    Status,
    Piece(u64),
    Load,
}

/// How far a partition is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendState {
    /// Its files are on their way.
    Staging,
    /// They are at all copies that count, and no part of the state.
    Staged,
    /// The load is part of the state, at this position, with so many copies.
    Loaded(Position, u8),
    /// Nobody knows whether it is.
    Unknown,
    /// It surely is not.
    Failed,
}

struct Partition<'p> {
    part: &'p Part,
    files: Vec<Component>,
    state: SendState,
    /// Calls on their way.
    open: usize,
    ask_at: Instant,
    begun: bool,
    loading: bool,
    /// How long it took to make the load part of its state.
    waited: Duration,
    installed: bool,
}

/// The whole of it.
pub struct Sending<'a, 'p, P: Port> {
    port: &'a mut P,
    table: &'a Table,
    lane: LaneId,
    load: LoadId,
    partitions: Vec<Partition<'p>>,
    tickets: BTreeMap<Ticket, (usize, Asked)>,
    failure: Option<Failure>,
    /// When the partitions were asked to make the load part of their states.
    load_began: Instant,
    /// Bytes of files that were sent, those sent again included.
    pub sent: u64,
}

impl<'a, 'p, P: Port> Sending<'a, 'p, P> {
    /// Nothing is sent yet.
    pub fn new(port: &'a mut P, table: &'a Table, load: LoadId, parts: &'p [Part]) -> Self {
        let lane = port.open_lane(1);
        let partition = |part: &'p Part| Partition {
            files: part.files.iter().map(|(file, _)| *file).collect(),
            part,
            state: SendState::Staging,
            open: 0,
            ask_at: Instant::now(),
            begun: false,
            loading: false,
            waited: Duration::ZERO,
            installed: false,
        };
        let partitions = parts.iter().map(partition).collect();
        let (tickets, load_began) = (BTreeMap::new(), Instant::now());
        Sending { port, table, lane, load, partitions, tickets, failure: None, load_began, sent: 0 }
    }

    /// What became of each partition, in the order of the parts.
    pub fn states(&self) -> Vec<SendState> {
        self.partitions.iter().map(|partition| partition.state).collect()
    }

    /// The longest time for which the writes of a partition have waited for the load, or a little more.
    pub fn waited(&self) -> Duration {
        self.partitions.iter().map(|partition| partition.waited).max().unwrap_or_default()
    }

    /// Has everything staged everywhere. A failure leaves nothing of the load in any partition.
    pub fn stage(&mut self, watcher: &mut dyn Watcher) -> Result<(), Failure> {
        while self.partitions.iter().any(|partition| partition.state != SendState::Staged) {
            if watcher.stopped() {
                return Err(Failure::failed("stopped"));
            }
            let active = self.partitions.iter().filter(|p| p.begun && p.state == SendState::Staging).count();
            let mut room = PARTITIONS.saturating_sub(active);
            for index in 0..self.partitions.len() {
                let partition = &mut self.partitions[index];
                let waits = partition.state == SendState::Staging && partition.open == 0;
                if waits && partition.ask_at <= Instant::now() && (partition.begun || room > 0) {
                    room -= usize::from(!partition.begun);
                    partition.begun = true;
                    self.ask(index);
                }
            }
            self.turn()?;
            watcher.rows(self.sent);
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Makes the load part of the state of all partitions. A failure of one does not hold up the others.
    pub fn load(&mut self) -> Result<(), Failure> {
        self.load_began = Instant::now();
        for index in 0..self.partitions.len() {
            let digest = files_digest(&self.partitions[index].files);
            self.partitions[index].loading = true;
            self.submit(index, Op::Load { load: self.load, digest }, Asked::Load);
        }
        // What is lost meanwhile, by a failover for instance, is staged again.
        while self.partitions.iter().any(|partition| partition.loading) {
            for index in 0..self.partitions.len() {
                let partition = &self.partitions[index];
                if partition.loading && partition.open == 1 && partition.ask_at <= Instant::now() {
                    self.ask(index);
                }
            }
            self.turn()?;
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Waits until every copy that counts has the load in its own files. False if that is not so in time.
    pub fn installed(&mut self, limit: Duration) -> Result<bool, Failure> {
        let deadline = Instant::now() + limit;
        let loaded = |partition: &Partition<'_>| matches!(partition.state, SendState::Loaded(..));
        while self.partitions.iter().any(|partition| loaded(partition) && !partition.installed) {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            for index in 0..self.partitions.len() {
                let partition = &self.partitions[index];
                let asks = loaded(partition) && !partition.installed && partition.open == 0;
                if asks && partition.ask_at <= Instant::now() {
                    self.ask(index);
                }
            }
            self.turn()?;
            self.failure = None;
        }
        Ok(true)
    }

    /// Has what is staged and not loaded removed, as far as that can be done at once. What stays is removed
    /// by the nodes after a while.
    pub fn give_up(&mut self) {
        self.tickets.clear();
        for index in 0..self.partitions.len() {
            if matches!(self.partitions[index].state, SendState::Staging | SendState::Staged) {
                let partition = self.partitions[index].part.partition;
                let call = self.table.call(partition, Op::Unstage { load: self.load });
                let _ = self.port.submit(self.lane, call.within(Micros::from_millis(1_000)));
            }
        }
        let until = Instant::now() + Duration::from_millis(1_500);
        while Instant::now() < until && self.port.poll(WAIT).is_ok_and(|completed| completed.is_empty()) {}
    }

    fn ask(&mut self, index: usize) {
        let files = self.partitions[index].files.clone();
        self.submit(index, Op::Stage { load: self.load, files }, Asked::Status);
    }

    fn submit(&mut self, index: usize, op: Op, asked: Asked) {
        let partition = &mut self.partitions[index];
        partition.open += 1;
        let call = self.table.call(partition.part.partition, op);
        let call = call.within(Micros(DEADLINE.as_micros() as u64));
        self.tickets.insert(self.port.submit(self.lane, call), (index, asked));
    }

    /// Waits for answers, a while.
    fn turn(&mut self) -> Result<(), Failure> {
        let idle = self.tickets.is_empty();
        let wait = if idle { STATUS_POLL_INTERVAL } else { WAIT.min(STATUS_POLL_INTERVAL * 2) };
        for completed in self.port.poll(wait)? {
            self.completed(completed)?;
        }
        Ok(())
    }

    fn completed(&mut self, completed: Completed) -> Result<(), Failure> {
        let Some((index, asked)) = self.tickets.remove(&completed.ticket) else { return Ok(()) };
        self.partitions[index].open -= 1;
        match (asked, completed.outcome) {
            (Asked::Load, outcome) => self.loaded(index, outcome),
            (Asked::Status, Outcome::Ok(Answer { body: Body::Load(status), .. })) => {
                return self.told(index, status);
            }
            (Asked::Piece(bytes), Outcome::Ok(_)) => self.sent += bytes,
            // While the load itself is under way its own answer decides.
            _ if self.partitions[index].loading => {
                self.partitions[index].ask_at = Instant::now() + LOADING;
            }
            (_, outcome) => self.failed(outcome),
        }
        Ok(())
    }

    fn failed(&mut self, outcome: Outcome) {
        let failure = match outcome.into_result() {
            Err(error) => error.into(),
            Ok(_) => Failure::failed("a node answered in an unexpected way"),
        };
        self.failure.get_or_insert(failure);
    }

    fn loaded(&mut self, index: usize, outcome: Outcome) {
        let partition = &mut self.partitions[index];
        (partition.loading, partition.ask_at) = (false, Instant::now());
        partition.waited = self.load_began.elapsed();
        partition.state = match &outcome {
            Outcome::Ok(answer) => SendState::Loaded(answer.position(), answer.copies),
            Outcome::Unknown(_) => SendState::Unknown,
            Outcome::Refused(..) | Outcome::Failed(..) => SendState::Failed,
        };
        if !matches!(outcome, Outcome::Ok(_)) {
            self.failed(outcome);
        }
    }

    /// How far the copies of a partition are.
    fn told(&mut self, index: usize, status: LoadStatus) -> Result<(), Failure> {
        let partition = &mut self.partitions[index];
        partition.installed |= status.installed && status.loaded > Some(Lsn::ZERO);
        partition.ask_at = Instant::now() + if partition.loading { LOADING } else { STATUS_POLL_INTERVAL };
        match status.staging {
            _ if status.loaded.is_some() || matches!(partition.state, SendState::Loaded(..)) => {}
            Staging::Wants { file, from } => return self.send(index, file as usize, from),
            Staging::Checking => {}
            Staging::Ready(_) if partition.state == SendState::Staging => partition.state = SendState::Staged,
            Staging::Ready(_) => {}
            Staging::Refused(why) => {
                let partition = partition.part.partition;
                let failure = Failure::failed(format!("{partition} cannot take the load: {why}"));
                self.failure.get_or_insert(failure);
            }
        }
        Ok(())
    }

    /// Sends the next pieces from there on.
    fn send(&mut self, index: usize, mut file: usize, mut from: u64) -> Result<(), Failure> {
        self.partitions[index].ask_at = Instant::now();
        for _ in 0..MAX_PIECES_IN_FLIGHT {
            let Some((component, path)) = self.partitions[index].part.files.get(file) else { return Ok(()) };
            let length = (component.bytes.saturating_sub(from)).min(PIECE as u64) as usize;
            let mut bytes = vec![0; length];
            let read = File::open(path).and_then(|open| open.read_exact_at(&mut bytes, from));
            read.map_err(|error| Failure::io(format!("cannot read {}", path.display()), &error))?;
            let ends = from + length as u64 >= component.bytes;
            let op = Op::StagePiece { load: self.load, file: file as u32, from, bytes: Bytes::from(bytes) };
            self.submit(index, op, Asked::Piece(length as u64));
            (file, from) = if ends { (file + 1, 0) } else { (file, from + length as u64) };
        }
        Ok(())
    }
}
