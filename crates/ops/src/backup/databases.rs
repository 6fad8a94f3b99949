//! What a database has at a point: its catalog is rows of its partitions, so it is read at the same positions
//! as the rows that it describes.

use super::pages::{Stop, Stream};
use bytes::Bytes;
use client::database::Database;
use client::{Client, ClientError, Table};
use std::collections::BTreeMap;
use types::{CatalogTable, PartitionId, Position, TableId, TableState};
use wire::request::ReadSnapshot;
use wire::{Body, Op};

/// Definitions of a page: each has up to 128 KiB.
const PAGE: u32 = 64;

/// A table as the point has it.
pub struct Found {
    /// As its newest definition says.
    pub table: Table,
    /// Under which definition each partition has its rows.
    within: Vec<(PartitionId, Table)>,
}

impl Found {
    /// Its rows, where it has any: those of a replicated table are read in its first partition alone.
    pub fn streams(&self) -> Vec<Stream> {
        let own = self.within.iter().filter(|_| self.table.schema().kind().is_none());
        let own = own.filter(|(partition, _)| self.table.partitions().any(|one| one == *partition));
        own.map(|(partition, table)| Stream { partition: *partition, table: table.clone() }).collect()
    }
}

/// What has a name in a database, by its id. Tables that are being removed or filled are left out, and one
/// that is only read at the point, because its rows are being copied, is written again where it is restored.
pub fn tables_at(
    client: &mut Client,
    database: &Database,
    at: &BTreeMap<PartitionId, Position>,
) -> Result<Vec<Found>, Stop> {
    let mut all: BTreeMap<TableId, Vec<(PartitionId, CatalogTable)>> = BTreeMap::new();
    let partitions: Vec<PartitionId> = database.record().partition_ids().collect();
    for partition in &partitions {
        for (key, stored) in catalog_rows(client, database, *partition, at[partition])? {
            let (state, table) = database.read_row(&key, &stored)?;
            if table.has_moved() && state == TableState::Filling {
                let why = format!("table `{}` was getting partitions of its own", table.name);
                return Err(Stop::Gone(why));
            }
            if table.follows().is_some() && state == TableState::Held {
                let why = format!("table `{}` was giving up partitions of its own", table.name);
                return Err(Stop::Gone(why));
            }
            if state.is_named() {
                let table = CatalogTable { held_ms: None, ..table };
                all.entry(table.id).or_default().push((*partition, table));
            }
        }
    }
    let mut found = Vec::new();
    for within in all.into_values() {
        if within.len() != partitions.len() {
            return Err(Stop::Gone(format!("the tables of `{}` were being changed", database.name())));
        }
        let newest = within.iter().map(|(_, table)| table).max_by_key(|table| table.schema.version());
        let table = database.table(newest.expect("as many as partitions").clone());
        let within = within.into_iter().map(|(partition, own)| (partition, database.table(own))).collect();
        found.push(Found { table, within });
    }
    Ok(found)
}

/// The rows of a catalog in one partition at a position.
fn catalog_rows(
    client: &mut Client,
    database: &Database,
    partition: PartitionId,
    at: Position,
) -> Result<Vec<(Bytes, Bytes)>, Stop> {
    let (catalog, mut from, mut found) = (database.catalog_in(partition), Bytes::new(), Vec::new());
    loop {
        let op = Op::Scan { from, to: Bytes::new(), limit: PAGE, at: ReadSnapshot::At(at) };
        let answer = client.call(catalog.call(partition, op))?;
        let Body::Rows { rows, more } = answer.body else {
            return Err(ClientError::Protocol(format!("{:?}", answer.body)).into());
        };
        // The smallest key above the last one.
        let next = rows.last().filter(|_| more).map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
        found.extend(rows.into_iter().map(|(key, _, stored)| (key, stored)));
        match next {
            Some(next) => from = next,
            None => return Ok(found),
        }
    }
}
