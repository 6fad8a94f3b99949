//! The cluster's table: shelves of rows, one shelf in each partition.

use crate::options::{CheckOptions, NODES};
use bytes::Bytes;
use client::{Client, ClientError, Options, Table};
use history::{Key, Read, Seen};
use local::{Cluster, ClusterOptions, LocalError};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::{Lsn, PartitionId};
use wire::control::CreateTable;

/// The table's name.
pub const TABLE: &str = "history";
/// Partitions of the table.
const PARTITIONS: u32 = 4;
/// How long blocking calls may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take until the controller has heard every node.
const HEARD_WITHIN: Duration = Duration::from_secs(10);
/// Between two attempts to make the table.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// The exit status of what a safety check refused.
const REFUSED: u8 = 5;
/// Where an acknowledgement rests on the primary alone, how long it is waited for before another takes over.
const FAILOVER_WAIT_MS: u64 = 500;

/// Starts the cluster below `dir`.
pub fn start(options: &CheckOptions, dir: &Path) -> Result<Cluster, LocalError> {
    let mut cluster = ClusterOptions::new(dir);
    cluster.binary = options.binary.clone();
    cluster.nodes = NODES;
    cluster.volatile = options.is_volatile();
    cluster.failover_wait_ms = options.policy()?.rests_on().is_primary().then_some(FAILOVER_WAIT_MS);
    cluster.settings = options.settings.clone();
    Cluster::start(cluster)
}

/// A client with sessions and connections of its own.
pub fn connect(cluster: &Cluster, seed: u64) -> Result<Client, LocalError> {
    connect_within(cluster, seed, CALL_TIMEOUT)
}

/// The same; blocking calls may take so long.
pub fn connect_within(cluster: &Cluster, seed: u64, timeout: Duration) -> Result<Client, LocalError> {
    let controllers = cluster.controllers();
    let mut options = Options { controllers, timeout, wait: true, ..Options::default() };
    options.agent = "understudy check".into();
    options.secret = local::secret();
    options.core.seed = seed;
    Ok(Client::connect(options)?)
}

/// Makes the table and waits until it serves.
pub fn create(client: &mut Client, options: &CheckOptions) -> Result<Table, LocalError> {
    let int = |name| Column::new(name, ColumnType::Int).not_null();
    let columns = ["shelf", "id", "tag", "prev", "n"].map(int).to_vec();
    let schema = Schema::new(columns, &["shelf", "id"], 1, false).expect("the key is among the columns");
    let policy = options.policy()?;
    let table = CreateTable {
        factor: Some(policy.factor),
        partitions: PARTITIONS,
        ..CreateTable::new(TABLE, schema, &policy.name)
    };
    once_heard(client, |client| client.create_table(&table))
}

/// Does what is refused until the controller has heard every node.
pub fn once_heard<T>(
    client: &mut Client,
    act: impl Fn(&mut Client) -> Result<T, ClientError>,
) -> Result<T, LocalError> {
    let deadline = Instant::now() + HEARD_WITHIN;
    loop {
        match act(client) {
            Err(ClientError::Admin { status: REFUSED, .. }) if Instant::now() < deadline => {
                client.poll(ASK_AGAIN)?;
            }
            other => return Ok(other?),
        }
    }
}

/// The lowest shelf of each partition, with the partition.
pub fn shelves(table: &Table) -> Result<Vec<(u32, u32)>, LocalError> {
    table
        .partitions()
        .map(|partition| {
            for number in 1..10_000 {
                if table.partition_of(&key(table, Key(number, 0))?)? == partition {
                    return Ok((number, partition.0));
                }
            }
            Err(LocalError::Failed(format!("no shelf lies in partition {partition}")))
        })
        .collect()
}

/// The partition of this number.
pub fn partition(place: u32) -> PartitionId {
    PartitionId(place)
}

/// A row's key as it is stored.
pub fn key(table: &Table, key: Key) -> Result<Bytes, LocalError> {
    Ok(table.key(&[Value::Int(key.0.into()), Value::Int(key.1.into())])?)
}

/// The keys from which and up to which a shelf has rows.
pub fn range(table: &Table, shelf: u32) -> Result<(Bytes, Bytes), LocalError> {
    Ok((key(table, Key(shelf, 0))?, key(table, Key(shelf, u32::MAX))?))
}

/// A write of a row.
pub fn put(table: &Table, at: Key, tag: u64, prev: u64, count: u64) -> Result<(Bytes, Bytes), LocalError> {
    let int = |number: u64| Value::Int(number as i64);
    let values = vec![int(at.0.into()), int(at.1.into()), int(tag), int(prev), int(count)];
    Ok(table.encode(&Row::new(values))?)
}

/// A stored row: where it is, and what it shows.
pub fn shown(table: &Table, key: &[u8], lsn: Lsn, stored: &[u8]) -> Result<(Key, Seen), LocalError> {
    let row = table.decode(key, stored)?;
    let numbers: Vec<u64> = row
        .values
        .iter()
        .filter_map(|value| match value {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        })
        .collect();
    match numbers[..] {
        [shelf, id, tag, prev, count] => {
            let seen = Seen { tag, prev, count, lsn: Some(lsn.0) };
            Ok((Key(shelf as u32, id as u32), seen))
        }
        _ => Err(LocalError::Failed(format!("a row is none of ours: {row:?}"))),
    }
}

/// What a scan says of rows: those that it found, and those of the known ones that it did not. No answer may
/// have a row twice.
pub fn scanned(found: Vec<(Key, Seen)>, known: &[Key]) -> Result<Vec<Read>, LocalError> {
    let mut rows: BTreeMap<Key, Seen> = BTreeMap::new();
    for (key, seen) in found {
        if let Some(other) = rows.insert(key, seen) {
            return Err(LocalError::Failed(format!(
                "one scan found row {key} twice: {other:?} and {seen:?}"
            )));
        }
    }
    let missing =
        known.iter().filter(|key| !rows.contains_key(key)).map(|key| Read { key: *key, seen: None });
    Ok(rows.iter().map(|(key, seen)| Read { key: *key, seen: Some(*seen) }).chain(missing).collect())
}
