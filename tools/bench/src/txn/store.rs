//! Databases of global transactions, with rows in them.

use super::TxnOptions;
use super::ledger::{Ledger, TAG_BYTES};
use crate::cluster::{Ours, Shared, Target, WAIT_LIMIT, fresh_status, row};
use crate::error::BenchError;
use crate::generate::key;
use client::txn::Manager;
use client::{Client, Database, Table};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use types::data::{Column, ColumnType, Schema, Value};
use types::system::COMMITS;
use types::{NodeId, PartitionId};
use wire::control::CreateTable;
use wire::request::ReadSnapshot;
use wire::{Body, Op};

/// Rows that are loaded by one transaction, unless their bytes are too many.
const LOADED: u64 = 2_000;
/// Bytes of them.
const LOADED_BYTES: u64 = 2 << 20;
/// Rows in a page of a scan.
const PAGE: u32 = 2_000;

/// A database of global transactions with one table, and what is known of it.
pub(super) struct Store {
    pub database: Database,
    pub table: Table,
    pub manager: Manager,
    pub policy: String,
    pub factor: u8,
    pub ledger: Ledger,
    rows: u64,
    value_bytes: usize,
}

/// A cluster of so many servers, with these settings beside those of the options.
pub(super) fn start(
    options: &TxnOptions,
    servers: u32,
    settings: &[(&str, &str)],
) -> Result<Shared, BenchError> {
    let mut target = Target { nodes: servers, ..options.target.clone() };
    let own = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    target.settings = own.chain(target.settings).collect();
    Ours::start(&options.common, &target)
}

impl Store {
    /// Makes it, and loads the rows.
    pub fn create(
        options: &TxnOptions,
        shared: &Shared,
        servers: u32,
        policy: &str,
    ) -> Result<Store, BenchError> {
        let mut ours = shared.borrow_mut();
        let factor = options.factor.unwrap_or(servers.clamp(1, 3) as u8);
        let client = ours.client();
        let request = CreateTable {
            partitions: options.partitions,
            factor: Some(factor),
            ..CreateTable::database(&format!("bench_{policy}"), policy)
        };
        let database = client.create_global_database(&request)?;
        let columns = vec![
            Column::new("k", ColumnType::Text).not_null(),
            Column::new("v", ColumnType::Bytes).not_null(),
        ];
        let schema = Schema::new(columns, &["k"], 1, false).expect("the key is one of the columns");
        let table = client.create_table_in(&database, "rows", schema)?;
        let manager = client.transaction_manager()?;
        let store = Store {
            database,
            table,
            manager,
            policy: policy.into(),
            factor,
            ledger: Ledger::default(),
            rows: options.rows(),
            value_bytes: options.value_bytes,
        };
        store.load(client)?;
        ours.look()?;
        Ok(store)
    }

    fn load(&self, client: &mut Client) -> Result<(), BenchError> {
        let at_once = (LOADED_BYTES / (self.value_bytes as u64 + 64)).clamp(1, LOADED);
        for first in (0..self.rows).step_by(at_once as usize) {
            let last = (first + at_once).min(self.rows);
            client.transact(&self.database, |_, transaction| {
                (first..last).try_for_each(|id| transaction.put(&self.table, &self.row(id, 0)))
            })?;
        }
        Ok(client.flush_commits()?)
    }

    /// A row as the write with this tag leaves it.
    pub fn row(&self, id: u64, tag: u64) -> types::data::Row {
        let mut value = vec![b'x'; self.value_bytes];
        value[..TAG_BYTES].copy_from_slice(&tag.to_be_bytes());
        row(id, &value)
    }

    /// In a few words.
    pub fn in_words(&self) -> String {
        format!("{} factor {}", self.policy, self.factor)
    }

    /// Compares the rows with what was acknowledged, and the replicas with each other.
    pub fn check(&self, shared: &Shared) -> Result<(), BenchError> {
        let mut ours = shared.borrow_mut();
        let found = self.read(ours.client())?;
        self.ledger.check(self.rows, found.into_iter())?;
        ours.check_replicas(&format!("{}.{}", self.database.name(), self.table.name()))
    }

    /// Every row of one snapshot: its number and tag.
    fn read(&self, client: &mut Client) -> Result<BTreeMap<u64, u64>, BenchError> {
        client.flush_commits()?;
        let snapshot = client.begin(&self.database)?.snapshot();
        let numbers: BTreeMap<String, u64> = (0..self.rows).map(|id| (key(id), id)).collect();
        let mut found = BTreeMap::new();
        for partition in self.table.partitions() {
            let mut from = bytes::Bytes::new();
            loop {
                let at = ReadSnapshot::Commit { at: snapshot, after: types::Position::ZERO };
                let op = Op::Scan { from: from.clone(), to: bytes::Bytes::new(), limit: PAGE, at };
                let body = client.complete(self.table.call(partition, op))?;
                let Body::Rows { rows, more } = body else {
                    return Err(BenchError::Wrong(format!("a scan was answered with {body:?}")));
                };
                for (key, _, stored) in &rows {
                    let (id, tag) = tag_of(&self.table.decode(key, stored)?.values, &numbers)?;
                    found.insert(id, tag);
                }
                let Some((last, ..)) = rows.last().filter(|_| more) else { break };
                from = [&last[..], &[0]].concat().into();
            }
        }
        Ok(found)
    }

    /// How many partitions each node leads, and who leads the transaction manager.
    pub fn leaders(&self, client: &mut Client) -> Result<Leaders, BenchError> {
        let status = fresh_status(client)?;
        let mut led: BTreeMap<NodeId, Vec<PartitionId>> = BTreeMap::new();
        for record in status.partitions.iter().filter(|record| record.table == self.database.id()) {
            led.entry(record.primary.node).or_default().push(record.id);
        }
        let manager = status.partitions.iter().find(|record| record.id == self.manager.partition());
        let manager = manager.map(|record| record.primary.node);
        let manager =
            manager.ok_or_else(|| BenchError::Wrong(format!("nobody leads the table `{COMMITS}`")))?;
        Ok(Leaders { led, manager })
    }

    /// Waits until every copy of this database, and of the manager's table, is in sync.
    pub fn wait_for_copies(&self, client: &mut Client) -> Result<(), BenchError> {
        let deadline = Instant::now() + 2 * WAIT_LIMIT;
        loop {
            let status = fresh_status(client)?;
            let is_level = |record: &types::PartitionRecord| {
                let of_database = record.table == self.database.id();
                let wanted = if of_database { self.factor as usize } else { usize::from(self.factor.min(3)) };
                let ours = of_database || record.id == self.manager.partition();
                !ours || record.in_sync.len() >= wanted
            };
            if status.partitions.iter().all(is_level) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(BenchError::Wrong("copies are not in sync a minute after a fault".into()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Who leads what.
pub(super) struct Leaders {
    pub led: BTreeMap<NodeId, Vec<PartitionId>>,
    pub manager: NodeId,
}

impl Leaders {
    /// Who is to fail: who leads the manager, or who leads most partitions of those that do not.
    pub fn victim(&self, with_manager: bool) -> Option<NodeId> {
        if with_manager {
            return Some(self.manager);
        }
        let others = self.led.iter().filter(|(node, _)| **node != self.manager);
        others.max_by_key(|(_, partitions)| partitions.len()).map(|(node, _)| *node)
    }
}

fn tag_of(values: &[Value], numbers: &BTreeMap<String, u64>) -> Result<(u64, u64), BenchError> {
    let wrong = || BenchError::Wrong(format!("a row is none of the bench's: {values:?}"));
    let [Value::Text(key), Value::Bytes(value)] = values else { return Err(wrong()) };
    let id = numbers.get(key).copied().ok_or_else(wrong)?;
    let tag = value.first_chunk::<TAG_BYTES>().ok_or_else(wrong)?;
    Ok((id, u64::from_be_bytes(*tag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_leads_most_and_the_manager_only_if_that_is_wanted() {
        let partitions = |ids: &[u32]| ids.iter().map(|id| PartitionId(*id)).collect::<Vec<_>>();
        let led = [(NodeId(1), partitions(&[64, 65, 66])), (NodeId(2), partitions(&[67]))];
        let more = [(NodeId(3), partitions(&[68, 69]))];
        let leaders = Leaders { led: led.into_iter().chain(more).collect(), manager: NodeId(1) };
        assert_eq!((leaders.victim(true), leaders.victim(false)), (Some(NodeId(1)), Some(NodeId(3))));
        let alone = Leaders { led: BTreeMap::new(), manager: NodeId(1) };
        assert_eq!(alone.victim(false), None);
    }
}
