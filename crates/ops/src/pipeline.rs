//! Rows in batches on their way to their partitions: one batch is one write, applied exactly once, all or
//! none of it.
//!
//! With a feed each batch carries how far the feed has come (its mark), in the same entry as the rows. A feed
//! has one batch per partition on its way: were there two, the second could be committed after the first was
//! given up, and its mark would hide the gap.

use crate::failure::Failure;
use crate::port::Port;
use bytes::Bytes;
use client::table::Table;
use client::{Answer, Call, ClientError, LaneId, Outcome, Ticket};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{FeedId, Micros, PartitionId, Position};
use wire::message::MAX_OPS;
use wire::request::FeedMark;
use wire::{Body, Op, Outcome as Refusal, RowOp};

/// How rows are cut into batches.
#[derive(Clone, Debug)]
pub struct Limits {
    /// A batch is sent when it has so many rows.
    pub rows: usize,
    /// A batch is sent when it has so many bytes of keys and rows.
    pub bytes: usize,
    /// Batches of one partition on their way at once.
    pub in_flight: usize,
    /// How long one batch may take.
    pub deadline: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { rows: 500, bytes: 256 * 1024, in_flight: 4, deadline: Duration::from_secs(60) }
    }
}

/// What was acknowledged so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Rows.
    pub rows: u64,
    /// Bytes of keys and rows.
    pub bytes: u64,
    /// Batches.
    pub batches: u64,
    /// The fewest copies that any acknowledgement counted; `None` before the first.
    pub copies: Option<u8>,
    /// The last acknowledgement of each partition.
    pub last: BTreeMap<PartitionId, Position>,
}

/// What went wrong with batches. The first failure is the one to report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// Why.
    pub failure: Failure,
    /// Rows whose outcome is not known.
    pub unknown_rows: u64,
    /// Acknowledged batches that a failover lost.
    pub lost_batches: u64,
    /// True if trying again can help.
    pub passing: bool,
    /// True if the table is not as it was, or is being copied: it is to be looked at again.
    pub stale: bool,
    /// From which record on partitions must be fed again, whatever their marks say.
    pub rewind: BTreeMap<PartitionId, u64>,
}

/// A row for its partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// How many records come before it in its source.
    pub index: u64,
    /// Where it belongs.
    pub partition: PartitionId,
    /// Its encoded key.
    pub key: Bytes,
    /// The stored row.
    pub row: Bytes,
}

#[derive(Debug, Default)]
struct Batch {
    ops: Vec<RowOp>,
    bytes: usize,
    /// The first record in it.
    first: u64,
    /// Above the last record in it.
    mark: u64,
}

#[derive(Debug)]
struct Flying {
    partition: PartitionId,
    rows: u64,
    bytes: u64,
    first: u64,
}

/// How many acknowledged batches are remembered, to know what a loss took.
const REMEMBERED: usize = 8 * client::Loss::TICKETS;
/// How long a wait for acknowledgements sleeps before it looks again.
const WAIT: Duration = Duration::from_millis(500);

/// Batches that form, and those on their way.
pub struct Pipeline<'a, P: Port> {
    port: &'a mut P,
    table: Table,
    lane: LaneId,
    limits: Limits,
    feed: Option<FeedId>,
    forming: BTreeMap<PartitionId, Batch>,
    flying: BTreeMap<Ticket, Flying>,
    remembered: VecDeque<(Ticket, u64)>,
    done: Done,
    trouble: Option<Trouble>,
}

impl<'a, P: Port> Pipeline<'a, P> {
    /// An empty pipeline. With a feed, one batch per partition is on its way at most.
    pub fn new(port: &'a mut P, table: Table, limits: Limits, feed: Option<FeedId>) -> Pipeline<'a, P> {
        let in_flight = if feed.is_some() { 1 } else { limits.in_flight.max(1) };
        let limits = Limits { rows: limits.rows.clamp(1, MAX_OPS), in_flight, ..limits };
        let lane = port.open_lane(in_flight);
        Pipeline {
            port,
            table,
            lane,
            limits,
            feed,
            forming: BTreeMap::new(),
            flying: BTreeMap::new(),
            remembered: VecDeque::new(),
            done: Done::default(),
            trouble: None,
        }
    }

    /// Adds a row. Waits while its partition has a full batch and as many on their way as allowed.
    pub fn add(&mut self, row: Placed) -> Result<(), ClientError> {
        let Placed { index, partition, key, row } = row;
        let batch = self.forming.entry(partition).or_default();
        if batch.ops.is_empty() {
            batch.first = index;
        }
        batch.mark = index + 1;
        batch.bytes += key.len() + row.len();
        batch.ops.push(RowOp::Put { key, row });
        let full = batch.ops.len() >= self.limits.rows || batch.bytes >= self.limits.bytes;
        if full { self.send_when_free(partition) } else { Ok(()) }
    }

    /// Takes in what was acknowledged meanwhile.
    pub fn look(&mut self) -> Result<(), ClientError> {
        self.harvest(Duration::ZERO)
    }

    /// Takes acknowledgements in, and sends what partitions without a batch on its way have to get.
    pub fn pump(&mut self, wait: Duration) -> Result<(), ClientError> {
        self.harvest(wait)?;
        let idle: Vec<PartitionId> =
            self.forming.keys().copied().filter(|partition| self.on_their_way(*partition) == 0).collect();
        if !idle.is_empty() && self.trouble.is_none() {
            idle.into_iter().for_each(|partition| self.send(partition));
            self.harvest(Duration::ZERO)?;
        }
        Ok(())
    }

    /// Sends everything and waits for it. Without trouble, every row added is acknowledged afterwards.
    pub fn drain(&mut self) -> Result<(), ClientError> {
        for partition in self.forming.keys().copied().collect::<Vec<_>>() {
            self.send_when_free(partition)?;
        }
        self.forming.clear();
        while !self.flying.is_empty() {
            self.harvest(WAIT)?;
        }
        Ok(())
    }

    /// Says to these partitions that the feed has come so far, though it has nothing for them.
    pub fn mark(&mut self, partitions: &[PartitionId], position: u64) -> Result<(), ClientError> {
        for partition in partitions {
            let batch = Batch { first: position, mark: position, ..Batch::default() };
            self.forming.insert(*partition, batch);
        }
        self.drain()
    }

    /// What was acknowledged so far.
    pub fn done(&self) -> &Done {
        &self.done
    }

    /// What went wrong. After trouble nothing more is sent.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// What was acknowledged, and what went wrong.
    pub fn finish(self) -> (Done, Option<Trouble>) {
        (self.done, self.trouble)
    }

    fn on_their_way(&self, partition: PartitionId) -> usize {
        self.flying.values().filter(|flying| flying.partition == partition).count()
    }

    fn send_when_free(&mut self, partition: PartitionId) -> Result<(), ClientError> {
        while self.on_their_way(partition) >= self.limits.in_flight {
            self.harvest(WAIT)?;
        }
        self.send(partition);
        // Out at once: the partition works while the next batch is gathered.
        self.harvest(Duration::ZERO)
    }

    fn send(&mut self, partition: PartitionId) {
        let Some(batch) = self.forming.remove(&partition).filter(|_| self.trouble.is_none()) else { return };
        let flying =
            Flying { partition, rows: batch.ops.len() as u64, bytes: batch.bytes as u64, first: batch.first };
        let mark = self.feed.map(|feed| FeedMark { feed, position: batch.mark });
        let deadline = Micros(self.limits.deadline.as_micros() as u64);
        let call =
            self.table.call(partition, Op::Write { ops: batch.ops, mark, since: None }).within(deadline);
        let ticket = self.port.submit(self.lane, call);
        self.flying.insert(ticket, flying);
    }

    fn harvest(&mut self, wait: Duration) -> Result<(), ClientError> {
        let wait = if self.flying.is_empty() { Duration::ZERO } else { wait };
        for completed in self.port.poll(wait)? {
            let Some(flying) = self.flying.remove(&completed.ticket) else { continue };
            match completed.outcome {
                Outcome::Ok(answer) => self.acknowledged(completed.ticket, &flying, &answer),
                other => self.failed(&flying, other),
            }
        }
        for loss in self.port.take_losses() {
            if loss.lane != self.lane {
                continue;
            }
            let known: Vec<u64> = loss.tickets.iter().filter_map(|ticket| self.first_of(*ticket)).collect();
            let count = loss.to_seq + 1 - loss.from_seq;
            // What is not remembered by name lies further back: all of it is fed again.
            let from = if known.len() as u64 == count { known.into_iter().min().unwrap_or(0) } else { 0 };
            let failure = Failure::failed(format!(
                "a failover of {} lost {count} acknowledged batches; `understudy failover list` has the report",
                loss.partition
            ));
            let trouble = self.note(failure, true);
            trouble.lost_batches += count;
            rewind(trouble, loss.partition, from);
        }
        Ok(())
    }

    fn acknowledged(&mut self, ticket: Ticket, flying: &Flying, answer: &Answer) {
        self.done.rows += flying.rows;
        self.done.bytes += flying.bytes;
        self.done.batches += 1;
        let copies = self.done.copies.get_or_insert(answer.copies);
        *copies = answer.copies.min(*copies);
        self.done.last.insert(flying.partition, answer.position());
        if self.remembered.len() == REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back((ticket, flying.first));
    }

    fn failed(&mut self, flying: &Flying, outcome: Outcome) {
        let unknown = matches!(outcome, Outcome::Unknown(_));
        let stale = match &outcome {
            Outcome::Refused(why, _) => *why == Refusal::Stale,
            Outcome::Failed(kind, _) => *kind == client::FailKind::Stale,
            Outcome::Ok(_) | Outcome::Unknown(_) => false,
        };
        let passing = match &outcome {
            Outcome::Unknown(_) => true,
            Outcome::Failed(kind, _) => stale || *kind == client::FailKind::TimedOut,
            Outcome::Ok(_) | Outcome::Refused(..) => stale,
        };
        let failure = match outcome.into_result() {
            Err(ClientError::Violates(number)) => {
                let from = flying.first + 1;
                let what = format!("a row of the {} from record {from} on was refused", flying.rows);
                Failure::failed(format!("{what}: {}", self.table.violation(number)))
            }
            Err(error) => error.into(),
            Ok(_) => Failure::failed("a batch ended in an unexpected way"),
        };
        let (partition, first, rows) = (flying.partition, flying.first, flying.rows);
        let trouble = self.note(failure, passing);
        trouble.stale |= stale;
        trouble.unknown_rows += if unknown { rows } else { 0 };
        // One whose outcome is unknown may be in: there the partition's mark decides.
        if !unknown {
            rewind(trouble, partition, first);
        }
    }

    fn note(&mut self, failure: Failure, passing: bool) -> &mut Trouble {
        let trouble = self.trouble.get_or_insert_with(|| Trouble {
            failure,
            unknown_rows: 0,
            lost_batches: 0,
            passing: true,
            stale: false,
            rewind: BTreeMap::new(),
        });
        trouble.passing &= passing;
        trouble
    }

    fn first_of(&self, ticket: Ticket) -> Option<u64> {
        self.remembered.iter().rev().find(|(other, _)| *other == ticket).map(|(_, first)| *first)
    }
}

fn rewind(trouble: &mut Trouble, partition: PartitionId, to: u64) {
    let known = trouble.rewind.entry(partition).or_insert(to);
    *known = to.min(*known);
}

/// How far a feed has come in each partition of a table.
pub fn feed_positions(
    port: &mut impl Port,
    table: &Table,
    feed: FeedId,
    deadline: Duration,
) -> Result<BTreeMap<PartitionId, u64>, ClientError> {
    let lane = port.open_lane(1);
    let deadline = Micros(deadline.as_micros() as u64);
    let calls = table.partitions().map(|partition| {
        let call: Call = table.call(partition, Op::Feed { feed }).within(deadline);
        (partition, call)
    });
    let mut waiting: BTreeMap<Ticket, PartitionId> =
        calls.map(|(partition, call)| (port.submit(lane, call), partition)).collect();
    let mut positions = BTreeMap::new();
    while !waiting.is_empty() {
        for completed in port.poll(WAIT)? {
            let Some(partition) = waiting.remove(&completed.ticket) else { continue };
            match completed.outcome.into_result()?.body {
                Body::Number(position) => positions.insert(partition, position),
                other => return Err(ClientError::Protocol(format!("{other:?}"))),
            };
        }
    }
    Ok(positions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeStore, table};
    use types::Term;

    fn placed(table: &Table, index: u64) -> Placed {
        let row = types::data::Row::new(vec![(index as i64).into(), format!("name {index}").as_str().into()]);
        let (key, row) = table.encode(&row).expect("fits");
        let partition = table.partition_of(&key).expect("a whole key");
        Placed { index, partition, key, row }
    }

    #[test]
    fn every_row_arrives_and_copies_are_the_fewest_seen() {
        let table = table(3);
        let mut store = FakeStore::new(&table);
        store.copies = vec![3, 2, 3];
        let limits = Limits { rows: 7, ..Limits::default() };
        let mut pipeline = Pipeline::new(&mut store, table.clone(), limits, None);
        for index in 0..100 {
            pipeline.add(placed(&table, index)).expect("reachable");
        }
        pipeline.drain().expect("reachable");
        let (done, trouble) = pipeline.finish();
        assert_eq!((done.rows, done.copies, trouble), (100, Some(2), None));
        assert_eq!(store.rows(), 100);
        assert!(done.last.values().all(|position| position.term == Term(1)));
    }

    #[test]
    fn after_trouble_nothing_more_is_sent_and_the_gap_is_named() {
        let table = table(1);
        let mut store = FakeStore::new(&table);
        store.fail_write(2);
        let limits = Limits { rows: 5, ..Limits::default() };
        let mut pipeline = Pipeline::new(&mut store, table.clone(), limits, Some(FeedId(1)));
        for index in 0..30 {
            pipeline.add(placed(&table, index)).expect("reachable");
        }
        pipeline.drain().expect("reachable");
        let (done, trouble) = pipeline.finish();
        let trouble = trouble.expect("the second write failed");
        assert_eq!(done.rows, 5);
        assert_eq!(trouble.rewind.into_values().collect::<Vec<_>>(), [5]);
        assert_eq!(store.rows(), 5);
        let positions = feed_positions(&mut store, &table, FeedId(1), WAIT).expect("reachable");
        assert_eq!(positions.into_values().collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn a_loss_names_the_first_record_that_is_gone() {
        let table = table(1);
        let mut store = FakeStore::new(&table);
        store.lose_after_write(3, 2);
        let limits = Limits { rows: 5, ..Limits::default() };
        let mut pipeline = Pipeline::new(&mut store, table.clone(), limits, Some(FeedId(1)));
        for index in 0..20 {
            pipeline.add(placed(&table, index)).expect("reachable");
        }
        pipeline.drain().expect("reachable");
        let (_, trouble) = pipeline.finish();
        let trouble = trouble.expect("a loss");
        assert_eq!((trouble.lost_batches, trouble.passing), (2, true));
        assert_eq!(trouble.rewind.into_values().collect::<Vec<_>>(), [5]);
    }
}
