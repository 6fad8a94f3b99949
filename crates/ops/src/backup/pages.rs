//! Tables read at the positions of their partitions, a few at a time, beside the load.

use super::cluster_snapshot::{Parts, hold};
use super::rate::Rate;
use crate::failure::Failure;
use bytes::Bytes;
use client::{Client, ClientError, FailKind, LaneId, Table, Ticket};
use replica::SnapshotPages;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use types::{Micros, PartitionId, Position, Rules};
use wire::{Body, Op};

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
    pages: SnapshotPages,
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
        let wanted = streams.iter().map(|stream| (stream.partition, at[&stream.partition])).collect();
        Pages {
            client,
            parts,
            streams,
            at,
            lane,
            keeping,
            pages: SnapshotPages::new(wanted, ROWS, Rules::ALL),
            flying: BTreeMap::new(),
            kept_at: Instant::now(),
            rate: Rate::new(bytes_per_second),
        }
    }

    /// Reads everything into `sink`.
    pub fn read(&mut self, sink: &mut dyn Sink) -> Result<(), Stop> {
        loop {
            if self.pages.is_done() {
                return Ok(());
            }
            self.keep();
            let wait = self.rate.wait();
            while wait.is_zero()
                && let Some((stream, op)) = self.pages.next_ask()
            {
                self.ask(stream, op);
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

    fn ask(&mut self, stream: usize, op: Op) {
        let Stream { partition, table } = &self.streams[stream];
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
        let all = self.pages.heard(stream, &rows, more).map_err(|why| ClientError::Protocol(why.into()))?;
        self.rate.add(rows.iter().map(|(key, _, value)| (key.len() + value.len()) as u64).sum());
        sink.rows(stream, rows.into_iter().map(|(key, _, value)| (key, value)).collect())?;
        if all {
            sink.end(stream)?;
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
        for partition in self.pages.unread() {
            hold(self.client, self.keeping, self.parts, partition, self.at[&partition], KEEP_EVERY);
        }
    }
}
