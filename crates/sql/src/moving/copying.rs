//! Rows that are copied into another table: in each partition by entries that rest on each other, so that
//! what a failover loses of one is lost of those behind it, and is noticed at the end.

use super::MovePlan;
use crate::fault;
use crate::held::bare::BareHold;
use crate::indexes;
use crate::statements::canceled;
use bytes::Bytes;
use client::{Client, Fate, Table};
use pg::{Cancel, Failure, code};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use types::data::Row;
use types::{Lsn, PartitionId, Position, TableId, system};
use wire::control::{AlterTable, CreateTable};
use wire::request::ReadSnapshot;
use wire::{Body, Op, RowOp};

/// Rows that are read at once.
const ROWS: u32 = 2_000;
/// Bytes of keys and rows behind which no more are written at once in a partition.
const BYTES: usize = 4 << 20;

/// Between two reads of a partition that does not show all yet what clients have written.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A row as a scan gives it: its key, the entry that has written it, and its value.
pub type FoundRow = (Bytes, Lsn, Bytes);

/// Some rows of a partition, in the order of their keys.
pub struct Page {
    /// They.
    pub rows: Vec<FoundRow>,
    /// Where to go on; `None`: there are no more.
    pub next: Option<Bytes>,
    /// The state that they are of.
    pub at: Lsn,
}

/// The rows of a table in one of its partitions, from this key on, as they are now.
pub fn read(
    client: &mut Client,
    (from, partition): (&Table, PartitionId),
    first: Bytes,
) -> Result<Page, Failure> {
    let op = Op::Scan { from: first, to: Bytes::new(), limit: ROWS, at: ReadSnapshot::Newest };
    let answer = client.call(from.call(partition, op)).map_err(fault::of_client)?;
    let at = answer.lsn;
    let Body::Rows { rows, more } = answer.body else {
        return Err(Failure::new(code::INTERNAL, "a table without rows"));
    };
    let last = rows.last().map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
    Ok(Page { next: last.filter(|_| more), rows, at })
}

/// Rows of a partition of a table that is held, from this key on: all that clients have written is in them. A
/// bulk load that was asked for before the hold is waited for.
pub fn read_held(
    client: &mut Client,
    hold: &mut BareHold,
    (partition, first): (PartitionId, &Bytes),
) -> Result<Page, Failure> {
    let since = hold.since().get(&partition).map_or(Lsn::MAX, |at| at.lsn);
    let deadline = Instant::now() + client.timeout();
    loop {
        hold.renew(client)?;
        let page = read(client, (hold.table(), partition), first.clone())?;
        if page.at >= since {
            return Ok(page);
        }
        if Instant::now() >= deadline {
            let message = format!("partition {partition} does not show all of its rows yet");
            return Err(Failure::new("57P03", message).hint("nothing was changed; try again"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Copies all rows of a table that is held. They, and what they rest on, are there still at the end.
pub fn copy_held(
    client: &mut Client,
    hold: &mut BareHold,
    copied: &mut CopiedRows,
    cancel: &Cancel,
) -> Result<(), Failure> {
    let from = hold.table().clone();
    for partition in from.partitions() {
        let mut next = Some(Bytes::new());
        while let Some(first) = next {
            if cancel.asked() {
                return Err(canceled());
            }
            let page = read_held(client, hold, (partition, &first))?;
            copied.put(client, &from, &page.rows)?;
            next = page.next;
        }
    }
    copied.are_kept(client)?;
    hold.since().iter().try_for_each(|(partition, at)| kept(client, (&from, *partition), *at))
}

/// How many of these operations are written at once: one at least.
fn piece(ops: &[RowOp]) -> usize {
    let mut bytes = 0;
    let fitting = ops.iter().take_while(|op| {
        bytes += op.key().len() + op.row().map_or(0, Bytes::len);
        bytes <= BYTES
    });
    fitting.count().max(1)
}

/// A table that gets rows.
pub struct CopiedRows {
    to: Table,
    /// Which columns of the rows it has, in order.
    columns: Vec<usize>,
    /// The newest entry of each of its partitions.
    last: BTreeMap<PartitionId, Position>,
    /// How many there are.
    pub count: u64,
}

impl CopiedRows {
    /// Makes the table that gets the rows of the move with this number, with its indexes.
    pub fn begin(client: &mut Client, number: TableId, plan: &MovePlan) -> Result<CopiedRows, Failure> {
        let name = system::moving(number);
        let request = CreateTable { name: name.clone(), ..plan.request.clone() };
        let to = client.create_table(&request).map_err(fault::of_client)?;
        for index in &plan.indexes {
            let (name, add_index) = (name.clone(), Some(index.clone()));
            let request = AlterTable { name, add_index, ..AlterTable::default() };
            if let Some(why) = indexes::change(client, &request).map_err(fault::of_client)? {
                return Err(Failure::new("54000", why));
            }
        }
        Ok(CopiedRows::of(to, plan.columns.clone()))
    }

    /// Into this table, which has these columns of the rows.
    pub fn of(to: Table, columns: Vec<usize>) -> CopiedRows {
        CopiedRows { to, columns, last: BTreeMap::new(), count: 0 }
    }

    /// Copies these rows of another table.
    pub fn put(&mut self, client: &mut Client, from: &Table, rows: &[FoundRow]) -> Result<(), Failure> {
        self.count += rows.len() as u64;
        let mut parts: BTreeMap<PartitionId, Vec<RowOp>> = BTreeMap::new();
        for (key, _, stored) in rows {
            let row = from.decode(key, stored).map_err(fault::of_client)?;
            let values = self.columns.iter().map(|at| row.values[*at].clone()).collect();
            let moved = Row { values, open: row.open };
            let (key, row) = self.to.encode(&moved).map_err(fault::of_client)?;
            let partition = self.to.partition_of(&key).map_err(fault::of_client)?;
            parts.entry(partition).or_default().push(RowOp::Insert { key, row });
        }
        self.write(client, parts)
    }

    /// Writes rows in several partitions at once. Each entry of one rests on the one before it there.
    fn write(
        &mut self,
        client: &mut Client,
        mut parts: BTreeMap<PartitionId, Vec<RowOp>>,
    ) -> Result<(), Failure> {
        while !parts.is_empty() {
            let (mut asked, mut calls) = (Vec::new(), Vec::new());
            for (partition, ops) in &mut parts {
                let count = piece(ops);
                let rest = ops.split_off(count);
                let now = std::mem::replace(ops, rest);
                calls.push(match self.last.get(partition) {
                    Some(last) => self.to.write_since(*partition, now, *last),
                    None => self.to.write(*partition, now),
                });
                asked.push(*partition);
            }
            parts.retain(|_, ops| !ops.is_empty());
            let answers = client.all(calls).map_err(fault::of_client)?;
            let positions = answers.iter().map(client::Answer::position);
            self.last.extend(asked.into_iter().zip(positions));
        }
        Ok(())
    }

    /// The error that a failover has lost some of them, if so: what it has lost of an entry is lost of those
    /// behind it.
    pub fn are_kept(&self, client: &mut Client) -> Result<(), Failure> {
        self.last.iter().try_for_each(|(partition, at)| kept(client, (&self.to, *partition), *at))
    }
}

/// The error that this entry of a partition is lost, if so.
pub fn kept(
    client: &mut Client,
    (table, partition): (&Table, PartitionId),
    at: Position,
) -> Result<(), Failure> {
    match client.fate(table, partition, at).map_err(fault::of_client)? {
        Fate::Kept => Ok(()),
        Fate::Lost { .. } => Err(fault::conflict()),
    }
}
