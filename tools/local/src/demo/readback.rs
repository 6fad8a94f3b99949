//! Reads everything back: every row from every replica, and from each primary where the epochs ended.

use super::dataset::Dataset;
use super::history::{Attempt, Reports};
use super::verify::Replica;
use crate::error::LocalError;
use client::scan::ScanOptions;
use client::table::Table;
use client::{Client, ClientError};
use std::collections::{BTreeSet, HashMap};
use types::{FailoverRecord, Lsn, NodeId, PartitionId, Term};
use wire::{Body, Op, ReadLevel};

/// Rows in one page.
const PAGE: u32 = 2000;
/// News of `committed` older than this, in milliseconds, will not do: everything stands still by now.
const MAX_LAG_MS: u64 = 5000;

/// Every row of every in-sync replica. The replica is asked for a state at or above what its primary has now.
pub(super) fn replicas(
    client: &mut Client,
    table: &Table,
    data: &Dataset,
) -> Result<Vec<Replica>, LocalError> {
    let mut replicas = Vec::new();
    for partition in table.partitions() {
        let nothing = Op::Count { from: vec![0].into(), to: vec![0].into(), at: Default::default() };
        let newest = client.call(table.call(partition, nothing))?.lsn;
        let members: Vec<NodeId> = match client.cluster_map().partition(partition) {
            Some(record) => record.in_sync.iter().map(|member| member.node).collect(),
            None => Vec::new(),
        };
        for node in members {
            replicas.push(replica(client, table, data, partition, node, newest)?);
        }
    }
    Ok(replicas)
}

fn replica(
    client: &mut Client,
    table: &Table,
    data: &Dataset,
    partition: PartitionId,
    node: NodeId,
    newest: Lsn,
) -> Result<Replica, LocalError> {
    let read = ReadLevel::Any { max_lag_ms: MAX_LAG_MS, min_lsn: newest };
    let options =
        ScanOptions { page: PAGE, ordered: false, read, node: Some(node), ..ScanOptions::default() };
    let mut replica = Replica { partition, node, rows: HashMap::new(), strays: 0 };
    for found in client.scan_partitions(table, vec![partition], options) {
        let found = found?;
        match data.number(&found.key) {
            Some(id) => {
                replica.rows.insert(id, data.recognise(id, &found.stored));
            }
            None => replica.strays += 1,
        }
    }
    Ok(replica)
}

/// What the cluster says it lost: asked of every partition for every epoch in which something was
/// acknowledged, and taken from the records of failovers.
pub(super) fn reports(
    client: &mut Client,
    table: &Table,
    places: &[PartitionId],
    attempts: &[Attempt],
    failovers: &[FailoverRecord],
) -> Result<Reports, LocalError> {
    let mut terms: BTreeSet<(PartitionId, Term)> = BTreeSet::new();
    for attempt in attempts {
        terms.extend(attempt.position().map(|at| (places[attempt.key.0 as usize], at.term)));
    }
    let mut reports = Reports::default();
    for (partition, term) in terms {
        match client.call(table.call(partition, Op::TermEnd { term }))?.body {
            Body::TermEnd(Some(end)) => reports.ended(partition, term, end),
            Body::TermEnd(None) => {}
            other => return Err(ClientError::Protocol(format!("{other:?}")).into()),
        }
    }
    for failover in failovers {
        if let Some(kept) = failover.loss.kept_position() {
            reports.failover(failover.partition, failover.new_epoch, kept);
        }
    }
    Ok(reports)
}
