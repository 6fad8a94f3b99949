//! Scans over all partitions of a table, page by page, each partition at one LSN.

use crate::call::{Outcome, Ticket};
use crate::client::Client;
use crate::error::ClientError;
use crate::table::{Table, micros, unexpected};
use bytes::Bytes;
use std::collections::VecDeque;
use types::{Lsn, NodeId, PartitionId, Position};
use wire::request::ReadSnapshot;
use wire::{Body, Op, ReadLevel};

/// What to scan and how.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// First encoded key.
    pub from: Bytes,
    /// End, not included; empty: none.
    pub to: Bytes,
    /// Rows per page.
    pub page: u32,
    /// In key order over all partitions; else as pages come.
    pub ordered: bool,
    /// Who may answer. With [`ReadLevel::Any`] every page of a partition still is at that partition's LSN.
    pub read: ReadLevel,
    /// Only this node may answer.
    pub node: Option<NodeId>,
    /// By the index of this number: `from` and `to` are entries of it, and the rows of a partition come in
    /// their order. Over several partitions there is none, so `ordered` must not be asked for.
    pub index: Option<u32>,
}

impl Default for ScanOptions {
    fn default() -> ScanOptions {
        let (from, to) = (Bytes::new(), Bytes::new());
        ScanOptions { from, to, page: 1000, ordered: true, read: ReadLevel::Primary, node: None, index: None }
    }
}

/// A row that a scan found, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where.
    pub partition: PartitionId,
    /// The encoded key.
    pub key: Bytes,
    /// The LSN that wrote it.
    pub lsn: Lsn,
    /// The stored row; [`Table::decode`] reads it.
    pub stored: Bytes,
}

#[derive(Debug)]
struct Lane {
    partition: PartitionId,
    rows: VecDeque<(Bytes, Lsn, Bytes)>,
    /// The page that is on its way.
    ticket: Option<Ticket>,
    /// Where the next page begins, and at which state; `None`: there is none.
    next: Option<(Bytes, ReadSnapshot)>,
    /// The state that its pages are of, once the first one has come.
    state: Option<Position>,
}

/// An iterator over a table's rows. One page per partition is read ahead. It ends after the first error.
pub struct Scan<'a> {
    client: &'a mut Client,
    table: Table,
    options: ScanOptions,
    lanes: Vec<Lane>,
    /// The last row came from here: others take their turn first if no order is asked for.
    turn: usize,
    /// Why there is nothing to scan.
    refused: Option<ClientError>,
    failed: bool,
}

impl Client {
    /// Scans a table.
    pub fn scan(&mut self, table: &Table, options: ScanOptions) -> Scan<'_> {
        self.scan_partitions(table, table.partitions().collect(), options)
    }

    /// Scans every row of a table in key order.
    pub fn scan_all(&mut self, table: &Table) -> Scan<'_> {
        self.scan(table, ScanOptions::default())
    }

    /// Scans some partitions of a table.
    pub fn scan_partitions(
        &mut self,
        table: &Table,
        partitions: Vec<PartitionId>,
        options: ScanOptions,
    ) -> Scan<'_> {
        let states = match table.is_global() && options.read == ReadLevel::Primary {
            true => self.snapshot_of(table, &partitions),
            false => Ok(vec![ReadSnapshot::Newest; partitions.len()]),
        };
        let (states, refused) = match states {
            Ok(states) => (states, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let lanes = partitions.into_iter().zip(states).map(|(partition, at)| Lane {
            partition,
            rows: VecDeque::new(),
            ticket: None,
            next: Some((options.from.clone(), at)),
            state: None,
        });
        let lanes = lanes.collect();
        let table = table.clone();
        let mut scan = Scan { client: self, table, options, lanes, turn: 0, refused, failed: false };
        for at in 0..scan.lanes.len() {
            scan.ask(at);
        }
        scan
    }
}

impl Scan<'_> {
    /// The state of a partition that all of its rows are of, with the term in which it was read first. None
    /// before its first page has come, and for a partition that is not scanned.
    pub fn state_of(&self, partition: PartitionId) -> Option<Position> {
        self.lanes.iter().find(|lane| lane.partition == partition)?.state
    }

    /// Asks for a partition's next page, if there is one and it is not asked for yet.
    fn ask(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        if lane.ticket.is_some() {
            return;
        }
        let Some((from, at)) = lane.next.take() else { return };
        let (to, limit) = (self.options.to.clone(), self.options.page.max(1));
        let op = match self.options.index {
            Some(index) => Op::Find { index, from, to, limit, at },
            None => Op::Scan { from, to, limit, at },
        };
        let mut call = self.table.call(lane.partition, op).at_level(self.options.read);
        call.node = self.options.node;
        call.deadline = micros(self.client.timeout());
        lane.ticket = Some(self.client.submit(Client::BLOCKING, call));
    }

    /// Waits for a partition's page.
    fn fetch(&mut self, at: usize) -> Result<(), ClientError> {
        let Some(ticket) = self.lanes[at].ticket else { return Ok(()) };
        let outcome = self.client.wait_for(ticket)?.outcome;
        self.lanes[at].ticket = None;
        self.take(at, outcome)
    }

    fn take(&mut self, at: usize, outcome: Outcome) -> Result<(), ClientError> {
        let answer = outcome.into_result()?;
        let snapshot = answer.snapshot();
        let lane = &mut self.lanes[at];
        lane.state.get_or_insert(snapshot);
        let (rows, more) = match answer.body {
            Body::Rows { rows, more } => (rows, more),
            Body::Found { rows, next } if self.options.index.is_some() => {
                lane.next = (!next.is_empty()).then_some((next, ReadSnapshot::At(snapshot)));
                lane.rows.extend(rows);
                return Ok(());
            }
            other => return Err(unexpected(&other)),
        };
        if let Some((last, ..)) = rows.last().filter(|_| more) {
            // The smallest key above the last one.
            lane.next = Some(([last, &[0u8][..]].concat().into(), ReadSnapshot::At(snapshot)));
        } else if more {
            return Err(ClientError::Protocol("a page without rows says that there are more".into()));
        }
        lane.rows.extend(rows);
        Ok(())
    }

    /// The partition that has the next row, with every page fetched that could have it.
    fn choose(&mut self) -> Result<Option<usize>, ClientError> {
        let count = self.lanes.len();
        if !self.options.ordered {
            // Whoever has rows; pages on their way are waited for in turn.
            if let Some(at) =
                (0..count).map(|i| (self.turn + i) % count).find(|at| !self.lanes[*at].rows.is_empty())
            {
                return Ok(Some(at));
            }
        }
        for at in 0..count {
            if self.lanes[at].rows.is_empty() {
                self.fetch(at)?;
                if !self.options.ordered && !self.lanes[at].rows.is_empty() {
                    return Ok(Some(at));
                }
            }
        }
        let waiting = (0..count).filter(|at| !self.lanes[*at].rows.is_empty());
        Ok(waiting.min_by(|a, b| self.lanes[*a].rows[0].0.cmp(&self.lanes[*b].rows[0].0)))
    }

    fn step(&mut self) -> Result<Option<Found>, ClientError> {
        let Some(at) = self.choose()? else { return Ok(None) };
        self.turn = at;
        let lane = &mut self.lanes[at];
        let (key, lsn, stored) = lane.rows.pop_front().expect("a chosen partition has a row");
        let found = Found { partition: lane.partition, key, lsn, stored };
        // The next page is asked for when half of this one is gone.
        if self.lanes[at].rows.len() <= self.options.page as usize / 2 {
            self.ask(at);
        }
        Ok(Some(found))
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<Found, ClientError>;

    fn next(&mut self) -> Option<Result<Found, ClientError>> {
        if self.failed {
            return None;
        }
        let step = match self.refused.take() {
            Some(error) => Err(error),
            None => self.step(),
        };
        self.failed = step.is_err();
        step.transpose()
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        // Pages that nobody will fetch must not turn up in a later poll.
        for ticket in self.lanes.iter().filter_map(|lane| lane.ticket) {
            self.client.forget(ticket);
        }
    }
}
