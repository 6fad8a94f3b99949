//! Tables read at the positions of their partitions, a few at a time, beside the load.

use super::cluster_snapshot::{Parts, hold};
use super::rate::Rate;
use crate::failure::Failure;
use bytes::Bytes;
use client::{Client, ClientError, FailKind, LaneId, Table, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use types::{Micros, PartitionId, Position};
use wire::request::ReadSnapshot;
use wire::{Body, Op};

/// Streams that are read at once.
const MAX_STREAMS_READ: usize = 4;
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

/// The rows of a table in one partition: of a bare table all that the partition has.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The partition.
    pub partition: PartitionId,
    /// The table, as the state that is read has it.
    pub table: Table,
}

/// Takes what was read in. Streams are named by their place in what is read.
pub trait Sink {
    /// The next rows of a stream, in key order. An error ends the reading.
    fn rows(&mut self, stream: usize, rows: Vec<(Bytes, Bytes)>) -> Result<(), Failure>;
    /// That was all of a stream.
    fn end(&mut self, stream: usize) -> Result<(), Failure>;
}

/// A reading under way.
pub struct Pages<'a> {
    client: &'a mut Client,
    parts: &'a Parts,
    streams: &'a [Stream],
    at: &'a BTreeMap<PartitionId, Position>,
    lane: LaneId,
    keeping: LaneId,
    /// Streams that are not begun.
    left: VecDeque<usize>,
    /// Where streams go on.
    ready: VecDeque<(usize, Bytes)>,
    flying: BTreeMap<Ticket, usize>,
    kept_at: Instant,
    rate: Rate,
}

impl<'a> Pages<'a> {
    /// Over all these streams of these partitions, at `bytes_per_second` at most (0: no limit).
    pub fn new(
        client: &'a mut Client,
        (parts, streams): (&'a Parts, &'a [Stream]),
        at: &'a BTreeMap<PartitionId, Position>,
        bytes_per_second: u64,
    ) -> Pages<'a> {
        let (lane, keeping) = (client.new_lane(), client.new_lane());
        Pages {
            client,
            parts,
            streams,
            at,
            lane,
            keeping,
            left: (0..streams.len()).collect(),
            ready: VecDeque::new(),
            flying: BTreeMap::new(),
            kept_at: Instant::now(),
            rate: Rate::new(bytes_per_second),
        }
    }

    /// Reads everything into `sink`.
    pub fn read(&mut self, sink: &mut dyn Sink) -> Result<(), Stop> {
        loop {
            while self.flying.len() + self.ready.len() < MAX_STREAMS_READ
                && let Some(stream) = self.left.pop_front()
            {
                self.ready.push_back((stream, Bytes::new()));
            }
            if self.flying.is_empty() && self.ready.is_empty() {
                return Ok(());
            }
            self.keep();
            let wait = self.rate.wait();
            while wait.is_zero()
                && let Some((stream, from)) = self.ready.pop_front()
            {
                self.ask(stream, from);
            }
            let wait = if self.flying.is_empty() { wait.min(KEEP_EVERY) } else { KEEP_EVERY };
            for completed in self.client.poll(wait.min(Duration::from_millis(200)))? {
                let Some(stream) = self.flying.remove(&completed.ticket) else { continue };
                let answer = completed.outcome.into_result()?;
                let Body::Rows { rows, more } = answer.body else {
                    return Err(ClientError::Protocol(format!("{:?}", answer.body)).into());
                };
                self.take(stream, rows, more, sink)?;
            }
        }
    }

    fn ask(&mut self, stream: usize, from: Bytes) {
        let Stream { partition, table } = &self.streams[stream];
        let at = ReadSnapshot::At(self.at[partition]);
        let op = Op::Scan { from, to: Bytes::new(), limit: ROWS, at };
        let deadline = Micros(self.client.timeout().as_micros() as u64);
        let call = table.call(*partition, op).within(deadline);
        self.flying.insert(self.client.submit(self.lane, call), stream);
    }

    fn take(
        &mut self,
        stream: usize,
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
        sink.rows(stream, rows.into_iter().map(|(key, _, value)| (key, value)).collect())?;
        match next {
            Some(next) => self.ready.push_back((stream, next)),
            None => sink.end(stream)?,
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
        let ready = self.ready.iter().map(|(stream, _)| *stream);
        let streams = self.left.iter().copied().chain(ready).chain(self.flying.values().copied());
        let unread: BTreeSet<PartitionId> = streams.map(|stream| self.streams[stream].partition).collect();
        for partition in unread {
            hold(self.client, self.keeping, self.parts, partition, self.at[&partition], KEEP_EVERY);
        }
    }
}
