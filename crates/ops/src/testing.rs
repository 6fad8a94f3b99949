//! A store in memory that behaves as a client of a cluster does, for the tests of this crate.

use crate::port::Port;
use bytes::Bytes;
use client::table::Table;
use client::{Answer, Call, ClientError, Completed, FailKind, LaneId, Loss, Outcome, Ticket};
use std::collections::BTreeMap;
use std::time::Duration;
use types::data::{Column, ColumnType, Schema};
use types::{Epoch, FeedId, LogKind, Lsn, NodeId, PartitionId, Policy, SessionId, TableId, TableRecord};
use wire::{Body, Op, RowOp};

/// A table `t` with an int key `id` and a text `name`.
pub fn table(partitions: u32) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("name", ColumnType::Text)];
    let schema = Schema::new(columns, &["id"], 1, false).expect("valid");
    Table::new(std::sync::Arc::new(TableRecord {
        partitions,
        seed: 1,
        placement: vec![vec![NodeId(1)]; partitions as usize],
        ..TableRecord::new(
            TableId(1),
            "t",
            schema,
            Policy::preset("durable", 3, LogKind::Disk).expect("known"),
        )
    }))
}

/// Rows and feed positions, by partition.
pub struct FakeStore {
    rows: BTreeMap<Bytes, Bytes>,
    feeds: BTreeMap<(PartitionId, FeedId), u64>,
    lsns: BTreeMap<PartitionId, u64>,
    queue: Vec<(Ticket, LaneId, Call)>,
    tickets: u64,
    lanes: u32,
    writes: u64,
    failing: Option<u64>,
    losing: Option<(u64, usize)>,
    written: Vec<Ticket>,
    losses: Vec<Loss>,
    /// Copies that the first acknowledgements count; then 3.
    pub copies: Vec<u8>,
    /// How often each key was written.
    pub touched: BTreeMap<Bytes, u32>,
}

impl FakeStore {
    pub fn new(_: &Table) -> FakeStore {
        FakeStore {
            rows: BTreeMap::new(),
            feeds: BTreeMap::new(),
            lsns: BTreeMap::new(),
            queue: Vec::new(),
            tickets: 0,
            lanes: 0,
            writes: 0,
            failing: None,
            losing: None,
            written: Vec::new(),
            losses: Vec::new(),
            copies: Vec::new(),
            touched: BTreeMap::new(),
        }
    }

    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The write with this number, from 1, will surely not be done.
    pub fn fail_write(&mut self, number: u64) {
        self.failing = Some(number);
    }

    /// After this write the last `count` acknowledged ones are reported lost.
    pub fn lose_after_write(&mut self, number: u64, count: usize) {
        self.losing = Some((number, count));
    }

    fn answer(&mut self, ticket: Ticket, lane: LaneId, call: Call) -> Outcome {
        let partition = call.partition;
        let lsn = self.lsns.entry(partition).or_default();
        let body = match call.op {
            Op::Feed { feed } => Body::Number(self.feeds.get(&(partition, feed)).copied().unwrap_or(0)),
            Op::Write { ops, mark, .. } => {
                self.writes += 1;
                if self.failing == Some(self.writes) {
                    self.failing = None;
                    return Outcome::Failed(FailKind::TimedOut, "not in time".into());
                }
                *lsn += 1;
                let affected = ops.len() as u32;
                for op in ops {
                    let RowOp::Put { key, row } = op else { panic!("only puts are expected") };
                    *self.touched.entry(key.clone()).or_default() += 1;
                    self.rows.insert(key, row);
                }
                if let Some(mark) = mark {
                    self.feeds.insert((partition, mark.feed), mark.position);
                }
                self.written.push(ticket);
                if let Some((number, count)) = self.losing.filter(|(number, _)| *number == self.writes) {
                    self.losing = None;
                    let tickets = self.written[self.written.len() - count..].to_vec();
                    self.losses.push(Loss {
                        lane,
                        partition,
                        session: SessionId::NONE,
                        from_seq: number + 1 - count as u64,
                        to_seq: number,
                        tickets,
                        noticed_in: Epoch(2),
                    });
                }
                Body::Affected(affected)
            }
            other => panic!("not expected: {other:?}"),
        };
        let copies = if self.copies.is_empty() { 3 } else { self.copies.remove(0) };
        Outcome::Ok(Answer { lsn: Lsn(self.lsns[&partition]), epoch: Epoch(1), policy: 1, copies, body })
    }
}

impl Port for FakeStore {
    fn open_lane(&mut self, _: usize) -> LaneId {
        self.lanes += 1;
        LaneId(self.lanes)
    }

    fn submit(&mut self, lane: LaneId, call: Call) -> Ticket {
        self.tickets += 1;
        self.queue.push((Ticket(self.tickets), lane, call));
        Ticket(self.tickets)
    }

    fn poll(&mut self, _: Duration) -> Result<Vec<Completed>, ClientError> {
        let queue = std::mem::take(&mut self.queue);
        let completed = queue.into_iter().map(|(ticket, lane, call)| {
            let partition = call.partition;
            let outcome = self.answer(ticket, lane, call);
            Completed { ticket, lane, partition, outcome, latency_us: 1, attempts: 1, number: None }
        });
        Ok(completed.collect())
    }

    fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.losses)
    }
}
