//! Loads: many rows, grouped by partition into batches, several batches on their way, each applied exactly
//! once.

use crate::call::{LaneId, Outcome, Ticket};
use crate::client::Client;
use crate::error::ClientError;
use crate::table::{Table, micros};
use std::collections::BTreeMap;
use std::time::Duration;
use types::PartitionId;
use types::data::Row;
use wire::RowOp;
use wire::message::MAX_OPS;

/// How a load is cut into writes.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// A batch is sent when it has so many rows.
    pub max_rows: usize,
    /// A batch is sent when it has so many bytes of keys and rows.
    pub max_bytes: usize,
    /// Batches of one partition on their way at once.
    pub in_flight: usize,
    /// Insert instead of put: a row that exists refuses its batch.
    pub insert: bool,
    /// How long one batch may take.
    pub deadline: Duration,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions {
            max_rows: 500,
            max_bytes: 256 * 1024,
            in_flight: 4,
            insert: false,
            deadline: Duration::from_secs(60),
        }
    }
}

/// What a load has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadReport {
    /// Rows in batches that were acknowledged.
    pub rows: u64,
    /// Batches that were acknowledged.
    pub batches: u64,
    /// Rows in batches whose outcome is not known.
    pub unknown_rows: u64,
    /// Rows in batches that were refused because an inserted row existed.
    pub refused_rows: u64,
    /// Bytes of keys and rows acknowledged.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Batch {
    ops: Vec<RowOp>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Flying {
    partition: PartitionId,
    rows: u64,
    bytes: u64,
}

/// A load in progress. Rows of one partition are applied in the order in which they were added.
#[derive(Debug)]
pub struct Loader {
    table: Table,
    lane: LaneId,
    options: LoadOptions,
    batches: BTreeMap<PartitionId, Batch>,
    flying: BTreeMap<Ticket, Flying>,
    report: LoadReport,
}

impl Client {
    /// Begins a load.
    pub fn load(&mut self, table: &Table, options: LoadOptions) -> Loader {
        let lane = self.new_lane();
        self.set_window(lane, options.in_flight);
        let options = LoadOptions { max_rows: options.max_rows.clamp(1, MAX_OPS), ..options };
        Loader {
            table: table.clone(),
            lane,
            options,
            batches: BTreeMap::new(),
            flying: BTreeMap::new(),
            report: LoadReport::default(),
        }
    }
}

impl Loader {
    /// Adds a row. Waits while its partition has as many batches on their way as allowed.
    pub fn add(&mut self, client: &mut Client, row: &Row) -> Result<(), ClientError> {
        self.table.takes_rows()?;
        let (key, row) = self.table.encode(row)?;
        let op = if self.options.insert { RowOp::Insert { key, row } } else { RowOp::Put { key, row } };
        self.add_op(client, op)
    }

    /// Adds any row operation with an encoded key. A table that global transactions write takes none.
    pub fn add_op(&mut self, client: &mut Client, op: RowOp) -> Result<(), ClientError> {
        self.table.takes_batches()?;
        let partition = self.table.partition_of(op.key())?;
        let batch = self.batches.entry(partition).or_default();
        batch.bytes += op.key().len() + op.row().map_or(0, |row| row.len());
        batch.ops.push(op);
        if batch.ops.len() >= self.options.max_rows || batch.bytes >= self.options.max_bytes {
            self.send(client, partition)?;
        }
        Ok(())
    }

    /// Sends what is not full and waits for everything.
    pub fn finish(&mut self, client: &mut Client) -> Result<LoadReport, ClientError> {
        let partitions: Vec<PartitionId> = self.batches.keys().copied().collect();
        for partition in partitions {
            self.send(client, partition)?;
        }
        while !self.flying.is_empty() {
            self.harvest(client, true)?;
        }
        Ok(self.report)
    }

    /// What was done so far. After an error it says what is sure and what is not.
    pub fn report(&self) -> LoadReport {
        self.report
    }

    fn send(&mut self, client: &mut Client, partition: PartitionId) -> Result<(), ClientError> {
        let Some(batch) = self.batches.remove(&partition) else { return Ok(()) };
        let flying = Flying { partition, rows: batch.ops.len() as u64, bytes: batch.bytes as u64 };
        let call = self.table.write(partition, batch.ops).within(micros(self.options.deadline));
        let ticket = client.submit(self.lane, call);
        self.flying.insert(ticket, flying);
        // Out at once: the partition works while the next batch is gathered.
        client.turn(std::time::Instant::now())?;
        self.harvest(client, false)?;
        while self.flying.values().filter(|other| other.partition == partition).count()
            >= self.options.in_flight.max(1)
        {
            self.harvest(client, true)?;
        }
        Ok(())
    }

    /// Takes ended batches in. The first that did not succeed is the load's error.
    fn harvest(&mut self, client: &mut Client, wait: bool) -> Result<(), ClientError> {
        let mut error = None;
        for completed in client.completed_of(self.lane, wait)? {
            let Some(flying) = self.flying.remove(&completed.ticket) else { continue };
            match &completed.outcome {
                Outcome::Ok(_) => {
                    self.report.rows += flying.rows;
                    self.report.bytes += flying.bytes;
                    self.report.batches += 1;
                }
                Outcome::Unknown(_) => self.report.unknown_rows += flying.rows,
                Outcome::Refused(..) => self.report.refused_rows += flying.rows,
                Outcome::Failed(..) => {}
            }
            if let Err(first) = completed.outcome.into_result() {
                error.get_or_insert(first);
            }
        }
        error.map_or(Ok(()), Err)
    }
}
