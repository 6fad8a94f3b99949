//! Failover targets: primaries flush before the log that whoever takes over would have to replay takes too
//! long ([`types::TableRecord::failover_target_ms`]). Flushing more often also bounds the memory of what is
//! not in files.

use super::view::View;
use crate::lease_manager::SharedLeases;
use replica::Host;
use std::collections::BTreeMap;
use types::policy::Standby;
use types::{NodeId, PartitionId, PartitionRecord, TableRecord};

/// A flush begins when so much of the target is reached, in hundredths: writes go on while it is made and
/// shipped.
const SHARE: u64 = 50;

/// What one successor would replay for this node.
#[derive(Default)]
struct Burden {
    /// The least target of the tables it would take over, microseconds.
    target: Option<u64>,
    /// Microseconds of log above this node's own files, all partitions together.
    micros: u64,
    /// The partition with the most of it that has a target.
    worst: Option<(u64, PartitionId)>,
}

/// The partitions to be flushed so that no successor has more to replay than their tables' targets allow.
pub fn beyond_targets(view: &View, host: &Host<SharedLeases>) -> Vec<PartitionId> {
    if !view.tables().any(|table| table.failover_target_ms.is_some()) {
        return Vec::new();
    }
    let mut burdens: BTreeMap<NodeId, Burden> = BTreeMap::new();
    for record in view.partitions().filter(|record| record.primary == host.me()) {
        let Some(table) = view.table(record.table) else { continue };
        let Some(successor) = replays(record, table) else { continue };
        let micros = unflushed_micros(host, record.id);
        let burden = burdens.entry(successor).or_default();
        burden.micros += micros;
        if let Some(target) = table.failover_target_ms.map(|target| target.saturating_mul(1000)) {
            burden.target = Some(burden.target.map_or(target, |least| least.min(target)));
            burden.worst = burden.worst.max(Some((micros, record.id)));
        }
    }
    let beyond = burdens.into_values().filter(|burden| {
        burden.target.is_some_and(|target| burden.micros.saturating_mul(100) > target.saturating_mul(SHARE))
    });
    beyond.filter_map(|burden| burden.worst.filter(|(micros, _)| *micros > 0)).map(|(_, id)| id).collect()
}

/// Microseconds that executing what a flush here would put into files takes.
fn unflushed_micros(host: &Host<SharedLeases>, id: PartitionId) -> u64 {
    let Some(replica) = host.replica(id) else { return 0 };
    let engine = replica.engine();
    let entries = engine.published().lsn.0.saturating_sub(engine.persisted().lsn.0);
    if !engine.is_persistent() {
        return 0;
    }
    entries.saturating_mul(engine.replay_ns()) / 1000
}

/// The node that would replay this partition's log: a cold successor, or the primary's own where there is no
/// other copy.
fn replays(record: &PartitionRecord, table: &TableRecord) -> Option<NodeId> {
    let index = record.id.0.wrapping_sub(table.first_partition.0) as usize;
    let order = table.placement.get(index).map_or(&[][..], |row| row);
    match record.successor(order) {
        None => Some(record.primary.node),
        Some(successor) => (record.policy.standby == Standby::Cold).then_some(successor.node),
    }
}
