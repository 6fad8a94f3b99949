//! Closed-loop clients on a mixed load: each reads or updates one of its own rows, waits for the end, and
//! goes on. All are lanes of one client on one thread.

use super::clock::wall_ms;
use super::dataset::Dataset;
use super::history::{Attempt, End, KeyId};
use super::told::Answers;
use super::verify::Found;
use crate::error::LocalError;
use client::table::Table;
use client::{Client, Completed, FailKind, LaneId, Outcome};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use types::random::Random;
use types::{Epoch, Micros, PartitionId};
use wire::{Op, RowOp};

/// The length of a slice of time in which operations are counted.
pub(super) const SLICE: Duration = Duration::from_millis(100);
/// How long one operation may take.
const OPERATION_TIMEOUT: Micros = Micros(30_000_000);
/// What was acknowledged so long before the fault is not written again after it, so that a loss stays
/// visible.
const FREEZE_MS: u64 = 1000;

/// What the threads of an act share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// No new operations.
    pub stop: AtomicBool,
    /// Operations done.
    pub done: AtomicU64,
    /// Updates acknowledged.
    pub acknowledged: AtomicU64,
    /// When the fault happened, milliseconds since 1970; 0: not yet.
    pub fault_ms: AtomicU64,
    /// What the prober was told last.
    pub told: Answers,
}

impl Shared {
    /// True once no new operations are wanted.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// When the fault happened, if it has.
    pub fn fault_ms(&self) -> Option<u64> {
        Some(self.fault_ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0)
    }
}

/// What the clients did and saw.
#[derive(Debug, Default)]
pub(super) struct LoadReport {
    /// Every update.
    pub attempts: Vec<Attempt>,
    /// Operations done in each [`SLICE`].
    pub slices: Vec<u32>,
    /// Reads done.
    pub reads: u64,
    /// Updates that surely were not done: the cluster had no answer in time, or too few copies.
    pub not_done: u64,
    /// Reads that showed something older than what the same client had been told, or something foreign.
    pub wrong_reads: u64,
    /// The first of them, in words.
    pub findings: Vec<String>,
    /// Acknowledged writes that the client library itself found out to be lost.
    pub noticed: u64,
}

/// The last that a client knows of one of its rows.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    sequence: u64,
    epoch: Epoch,
    ms: u64,
    /// Its last write ended unknown: it is not written again.
    retired: bool,
}

#[derive(Clone, Copy, Debug)]
struct Lane {
    client: u32,
    sequence: u64,
    key: KeyId,
    /// The number of the update on its way; 0: a read.
    writing: u64,
}

/// The clients.
pub(super) struct Workload<'a> {
    pub client: Client,
    pub table: &'a Table,
    pub data: &'a Dataset,
    pub places: &'a [PartitionId],
    pub shared: &'a Shared,
    /// The policy promises that nothing read is ever taken back.
    pub promised: bool,
    pub seed: u64,
}

/// A workload at work.
struct Work<'a> {
    load: Workload<'a>,
    known: Vec<Known>,
    lanes: Vec<Lane>,
    random: Random,
    report: LoadReport,
    started: Instant,
}

impl Workload<'_> {
    /// Runs until asked to stop, and then until every operation has ended.
    pub fn run(self) -> Result<LoadReport, LocalError> {
        let clients = self.data.clients();
        let lane = |client| Lane { client, sequence: 0, key: KeyId(client), writing: 0 };
        let mut work = Work {
            known: vec![Known::default(); self.data.loaded()],
            lanes: (0..clients).map(lane).collect(),
            random: Random::new(self.seed),
            report: LoadReport::default(),
            started: Instant::now(),
            load: self,
        };
        for client in 0..clients {
            work.next(client);
        }
        loop {
            let completed = work.load.client.poll(SLICE)?;
            for completed in completed {
                let client = completed.lane.0;
                work.take_in(completed)?;
                if !work.load.shared.stopping() {
                    work.next(client);
                }
            }
            work.report.noticed += work
                .load
                .client
                .take_losses()
                .iter()
                .map(|loss| loss.to_seq + 1 - loss.from_seq)
                .sum::<u64>();
            // The internal calls that open sessions end with the calls that wait for them.
            if work.load.shared.stopping() && work.load.client.open_calls() == 0 {
                return Ok(work.report);
            }
        }
    }
}

impl Work<'_> {
    /// Sends a client's next operation: a read or an update, evenly.
    fn next(&mut self, client: u32) {
        let wants_update = self.random.below(2) == 0;
        let mut key = self.pick(client);
        let mut update = wants_update && self.may_write(key);
        // A row that may not be written is read; with few rows left to write there are more reads.
        for _ in 0..8 {
            if update || !wants_update {
                break;
            }
            key = self.pick(client);
            update = self.may_write(key);
        }
        let lane = &mut self.lanes[client as usize];
        lane.key = key;
        lane.sequence += u64::from(update);
        lane.writing = if update { lane.sequence } else { 0 };
        let (data, table) = (self.load.data, self.load.table);
        let (name, partition) = (data.key(key).clone(), self.load.places[key.0 as usize]);
        let call = match update {
            true => {
                let row = data.written(key, client, lane.sequence);
                table.write(partition, vec![RowOp::Put { key: name, row }])
            }
            false => table.call(partition, Op::Get { key: name, at: Default::default() }),
        };
        self.load.client.submit(LaneId(client), call.within(OPERATION_TIMEOUT));
    }

    /// One of the client's own rows.
    fn pick(&mut self, client: u32) -> KeyId {
        let clients = self.load.data.clients();
        let own = (self.load.data.loaded() as u32 - client).div_ceil(clients);
        KeyId(client + clients * self.random.below(own.into()) as u32)
    }

    fn may_write(&self, key: KeyId) -> bool {
        let known = &self.known[key.0 as usize];
        let Some(fault_ms) = self.load.shared.fault_ms() else { return !known.retired };
        let partition = self.load.places[key.0 as usize];
        let term = self
            .load
            .client
            .cluster_map()
            .partition(partition)
            .map_or(Epoch::ZERO, |record| record.term.began());
        let frozen = known.ms + FREEZE_MS >= fault_ms && known.epoch < term;
        !known.retired && !frozen
    }

    fn take_in(&mut self, completed: Completed) -> Result<(), LocalError> {
        let lane = self.lanes[completed.lane.0 as usize];
        match completed.outcome {
            Outcome::Failed(FailKind::Bad | FailKind::NotFound | FailKind::Corrupt, why) => {
                return Err(LocalError::Failed(format!("an operation was refused: {why}")));
            }
            outcome if lane.writing > 0 => self.wrote(lane, outcome),
            Outcome::Ok(answer) => {
                self.report.reads += 1;
                self.done();
                self.check_read(lane, answer.row().map(|(_, stored)| stored.as_ref()));
            }
            // A read without an answer says nothing.
            _ => {}
        }
        Ok(())
    }

    fn wrote(&mut self, lane: Lane, outcome: Outcome) {
        let known = &mut self.known[lane.key.0 as usize];
        let end = match outcome {
            Outcome::Ok(answer) => {
                let ms = wall_ms();
                known.sequence = lane.writing;
                (known.epoch, known.ms) = (answer.epoch, ms);
                End::Acknowledged { at: answer.position(), ms }
            }
            Outcome::Unknown(_) => {
                known.retired = true;
                End::Unknown
            }
            Outcome::Refused(..) | Outcome::Failed(..) => {
                self.report.not_done += 1;
                End::NotDone
            }
        };
        if matches!(end, End::Acknowledged { .. }) {
            self.load.shared.acknowledged.fetch_add(1, Ordering::Relaxed);
            self.done();
        }
        self.report.attempts.push(Attempt {
            key: lane.key,
            client: lane.client,
            sequence: lane.writing,
            end,
        });
    }

    fn done(&mut self) {
        let slice = (self.started.elapsed().as_micros() / SLICE.as_micros()) as usize;
        if self.report.slices.len() <= slice {
            self.report.slices.resize(slice + 1, 0);
        }
        self.report.slices[slice] += 1;
        self.load.shared.done.fetch_add(1, Ordering::Relaxed);
    }

    /// A client that reads its own row sees its last acknowledged write, or a later one that it does not know
    /// the end of.
    fn check_read(&mut self, lane: Lane, stored: Option<&[u8]>) {
        let known = &self.known[lane.key.0 as usize];
        let found = stored.map(|stored| self.load.data.recognise(lane.key, stored));
        let right = match found {
            Some(Found::Row { client, sequence }) => client == lane.client && sequence >= known.sequence,
            Some(Found::Foreign) => false,
            None => false,
        };
        let older = !matches!(found, Some(Found::Foreign));
        // What a weaker policy lost, and reports, may be seen to be gone.
        if right || (older && !self.load.promised) {
            return;
        }
        self.report.wrong_reads += 1;
        if self.report.findings.len() < 5 {
            let (client, key, told) = (lane.client, lane.key.0, known.sequence);
            self.report
                .findings
                .push(format!("client {client} read {found:?} under key {key} after write {told}"));
        }
    }
}
