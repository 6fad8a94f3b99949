//! The bulk load: all rows in batches, several on their way to every partition.

use super::clock::wall_ms;
use super::dataset::Dataset;
use super::history::{Attempt, End, KeyId};
use crate::error::LocalError;
use crate::terminal::Progress;
use client::{Client, Completed, LaneId, Outcome, Ticket};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use types::{Micros, PartitionId};
use wire::RowOp;

/// A batch is full with so many bytes.
const BATCH_BYTES: usize = 256 * 1024;
/// Batches of one partition on their way at once.
const WINDOW: usize = 4;
/// The lane of the load.
const LANE: LaneId = LaneId(1_000_000);
/// How long one batch may take.
const BATCH_WITHIN: Micros = Micros(60_000_000);

/// How often a batch is sent again whose outcome is not known. Its rows are what they were, so twice is as
/// good as once.
const ATTEMPTS: u32 = 10;

/// A load in progress.
struct Bulk<'a> {
    client: &'a mut Client,
    table: &'a client::table::Table,
    data: &'a Dataset,
    on_their_way: HashMap<Ticket, (PartitionId, Vec<KeyId>)>,
    attempts: Vec<Attempt>,
    /// How often a batch may still be sent again.
    again: u32,
}

/// Loads every row; each is an acknowledged write with the number 0. `places` has the partition of every key.
pub(super) fn load(
    client: &mut Client,
    table: &client::table::Table,
    data: &Dataset,
    places: &[PartitionId],
    out: &mut dyn Progress,
) -> Result<Vec<Attempt>, LocalError> {
    client.set_window(LANE, WINDOW);
    let mut bulk =
        Bulk { client, table, data, on_their_way: HashMap::new(), attempts: Vec::new(), again: ATTEMPTS };
    let mut open: HashMap<PartitionId, (usize, Vec<KeyId>)> = HashMap::new();
    let mut shown = Instant::now();
    for number in 0..data.loaded() as u32 {
        let id = KeyId(number);
        let partition = places[number as usize];
        let (bytes, batch) = open.entry(partition).or_default();
        *bytes += data.key(id).len() + data.row(id).len();
        batch.push(id);
        if *bytes >= BATCH_BYTES {
            let batch = std::mem::take(batch);
            *bytes = 0;
            bulk.send(partition, batch)?;
        }
        if shown.elapsed() >= Duration::from_millis(500) {
            shown = Instant::now();
            out.live(&format!("{} of {} rows", bulk.attempts.len(), data.loaded()));
        }
    }
    for (partition, (_, batch)) in open.into_iter().filter(|(_, (_, batch))| !batch.is_empty()) {
        bulk.send(partition, batch)?;
    }
    while !bulk.on_their_way.is_empty() {
        bulk.take_in()?;
    }
    Ok(bulk.attempts)
}

impl Bulk<'_> {
    fn send(&mut self, partition: PartitionId, batch: Vec<KeyId>) -> Result<(), LocalError> {
        let of_this =
            |bulk: &Self| bulk.on_their_way.values().filter(|(place, _)| *place == partition).count();
        while of_this(self) >= WINDOW {
            self.take_in()?;
        }
        self.submit(partition, batch);
        Ok(())
    }

    fn submit(&mut self, partition: PartitionId, batch: Vec<KeyId>) {
        let put =
            |id: &KeyId| RowOp::Put { key: self.data.key(*id).clone(), row: self.data.row(*id).clone() };
        let call = self.table.write(partition, batch.iter().map(put).collect()).within(BATCH_WITHIN);
        let ticket = self.client.submit(LANE, call);
        self.on_their_way.insert(ticket, (partition, batch));
    }

    fn take_in(&mut self) -> Result<(), LocalError> {
        for Completed { ticket, outcome, .. } in self.client.poll(Duration::from_secs(1))? {
            let Some((partition, batch)) = self.on_their_way.remove(&ticket) else { continue };
            if matches!(outcome, Outcome::Unknown(_)) && self.again > 0 {
                self.again -= 1;
                self.submit(partition, batch);
                continue;
            }
            let end = End::Acknowledged { at: outcome.into_result()?.position(), ms: wall_ms() };
            let clients = self.data.clients();
            let attempt = |key: KeyId| Attempt { key, client: key.0 % clients, sequence: 0, end };
            self.attempts.extend(batch.into_iter().map(attempt));
        }
        Ok(())
    }
}
