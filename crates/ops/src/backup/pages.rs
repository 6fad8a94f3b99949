//! Partitions read at their positions, a few at a time, beside the load.

use super::cluster_snapshot::{Parts, hold};
use super::rate::Rate;
use crate::failure::Failure;
use bytes::Bytes;
use client::{Client, ClientError, FailKind, LaneId, Ticket};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use types::{Micros, PartitionId, Position};
use wire::request::Snapshot;
use wire::{Body, Op};

/// Partitions that are read at once.
const AT_ONCE: usize = 4;
/// Rows of a page.
const ROWS: u32 = 2_000;
/// How often the states are asked to be kept: replicas keep them for ten seconds.
const KEEP_EVERY: Duration = Duration::from_secs(3);

/// Why reading ended early.
pub enum Stop {
    /// A state is not kept any more: the backup can begin anew. One sentence why.
    Gone(String),
    /// It is no use to try again.
    Failed(Failure),
}

impl From<ClientError> for Stop {
    fn from(error: ClientError) -> Stop {
        match error {
            ClientError::Failed { kind: FailKind::TooOld, sentence } => Stop::Gone(sentence),
            error => Stop::Failed(error.into()),
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

/// Takes what was read in.
pub trait Sink {
    /// The next rows of a partition, in key order. An error ends the reading.
    fn rows(&mut self, partition: PartitionId, rows: Vec<(Bytes, Bytes)>) -> Result<(), Failure>;
    /// That was all of a partition.
    fn end(&mut self, partition: PartitionId) -> Result<(), Failure>;
}

/// A reading under way.
pub struct Pages<'a> {
    client: &'a mut Client,
    parts: &'a Parts,
    at: &'a BTreeMap<PartitionId, Position>,
    lane: LaneId,
    keeping: LaneId,
    /// Partitions that are not begun.
    left: VecDeque<PartitionId>,
    /// Where partitions go on.
    ready: VecDeque<(PartitionId, Bytes)>,
    flying: BTreeMap<Ticket, PartitionId>,
    kept_at: Instant,
    rate: Rate,
}

impl<'a> Pages<'a> {
    /// Over all these partitions, at `bytes_per_second` at most (0: no limit).
    pub fn new(
        client: &'a mut Client,
        parts: &'a Parts,
        at: &'a BTreeMap<PartitionId, Position>,
        bytes_per_second: u64,
    ) -> Pages<'a> {
        let (lane, keeping) = (client.new_lane(), client.new_lane());
        Pages {
            client,
            parts,
            at,
            lane,
            keeping,
            left: at.keys().copied().collect(),
            ready: VecDeque::new(),
            flying: BTreeMap::new(),
            kept_at: Instant::now(),
            rate: Rate::new(bytes_per_second),
        }
    }

    /// Reads everything into `sink`.
    pub fn read(&mut self, sink: &mut dyn Sink) -> Result<(), Stop> {
        loop {
            while self.flying.len() + self.ready.len() < AT_ONCE
                && let Some(partition) = self.left.pop_front()
            {
                self.ready.push_back((partition, Bytes::new()));
            }
            if self.flying.is_empty() && self.ready.is_empty() {
                return Ok(());
            }
            self.keep();
            let wait = self.rate.wait();
            while wait.is_zero()
                && let Some((partition, from)) = self.ready.pop_front()
            {
                self.ask(partition, from);
            }
            let wait = if self.flying.is_empty() { wait.min(KEEP_EVERY) } else { KEEP_EVERY };
            for completed in self.client.poll(wait.min(Duration::from_millis(200)))? {
                let Some(partition) = self.flying.remove(&completed.ticket) else { continue };
                let answer = completed.outcome.into_result()?;
                let Body::Rows { rows, more } = answer.body else {
                    return Err(ClientError::Protocol(format!("{:?}", answer.body)).into());
                };
                self.take(partition, rows, more, sink)?;
            }
        }
    }

    fn ask(&mut self, partition: PartitionId, from: Bytes) {
        let at = Snapshot::At(self.at[&partition]);
        let op = Op::Scan { from, to: Bytes::new(), limit: ROWS, at };
        let deadline = Micros(self.client.timeout().as_micros() as u64);
        let call = self.parts[&partition].call(partition, op).within(deadline);
        self.flying.insert(self.client.submit(self.lane, call), partition);
    }

    fn take(
        &mut self,
        partition: PartitionId,
        rows: Vec<(Bytes, types::Lsn, Bytes)>,
        more: bool,
        sink: &mut dyn Sink,
    ) -> Result<(), Stop> {
        // The smallest key above the last one.
        let next = rows.last().filter(|_| more).map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
        if next.is_none() && more {
            return Err(ClientError::Protocol("a page without rows says that there are more".into()).into());
        }
        self.rate.add(rows.iter().map(|(key, _, value)| (key.len() + value.len()) as u64).sum());
        sink.rows(partition, rows.into_iter().map(|(key, _, value)| (key, value)).collect())?;
        match next {
            Some(next) => self.ready.push_back((partition, next)),
            None => sink.end(partition)?,
        }
        Ok(())
    }

    /// What is not read yet is kept, at the primary and at those who would follow it. Whether it was shows
    /// when it is read.
    fn keep(&mut self) {
        if self.kept_at.elapsed() < KEEP_EVERY {
            return;
        }
        self.kept_at = Instant::now();
        let ready = self.ready.iter().map(|(partition, _)| *partition);
        let unread: Vec<PartitionId> =
            self.left.iter().copied().chain(ready).chain(self.flying.values().copied()).collect();
        for partition in unread {
            hold(self.client, self.keeping, self.parts, partition, self.at[&partition], KEEP_EVERY);
        }
    }
}
