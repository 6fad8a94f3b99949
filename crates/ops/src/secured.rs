//! Waiting until what was committed is also secured: durable on every in-sync copy, or in the memory of each
//! where the log lives in memory.
//!
//! A policy that counts a fsynced copy on every member says so with its acknowledgement. Under the others the
//! copies follow, and their watermarks tell when they have.

use crate::failure::Failure;
use client::Client;
use client::table::Table;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use types::{Lsn, PartitionId, PartitionRecord, Policy, Position};
use wire::control::{AdminCommand, ClusterStatus};

/// True if an acknowledgement under this policy already says that every in-sync copy has it as secure as can
/// be.
pub fn by_acknowledgement(policy: &Policy) -> bool {
    policy.acknowledges_secured()
}

/// Partitions of which some in-sync copy has not reached the position yet.
pub fn behind(
    status: &ClusterStatus,
    records: &BTreeMap<PartitionId, PartitionRecord>,
    upto: &BTreeMap<PartitionId, Position>,
) -> Vec<PartitionId> {
    let reached = |partition: &PartitionId, position: &Position| {
        let Some(record) = records.get(partition) else { return false };
        record.in_sync.iter().all(|member| {
            let node = status.nodes.iter().find(|(node, _)| node.member == *member);
            let replica = node.and_then(|(node, _)| node.replicas.iter().find(|r| r.partition == *partition));
            let mark = replica.map_or(Lsn::ZERO, |replica| record.policy.kept(&replica.marks));
            mark >= position.lsn
        })
    };
    upto.iter().filter(|(partition, position)| !reached(partition, position)).map(|(p, _)| *p).collect()
}

/// Waits until every in-sync copy has everything up to these positions.
pub fn wait(
    client: &mut Client,
    table: &Table,
    upto: &BTreeMap<PartitionId, Position>,
    limit: Duration,
) -> Result<(), Failure> {
    if upto.is_empty() || by_acknowledgement(&table.record().policy) {
        return Ok(());
    }
    let deadline = Instant::now() + limit;
    loop {
        let status: ClusterStatus = read(&client.admin(AdminCommand::Status)?)?;
        let records = client.cluster_map().partitions().map(|record| (record.id, record.clone())).collect();
        let behind = behind(&status, &records, upto);
        if behind.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::new(
                crate::Status::Unreachable,
                format!(
                    "everything is acknowledged under policy {}, but the copies of {} partitions have not followed \
                     within {} s; `understudy status` says who is behind",
                    table.record().policy.name,
                    behind.len(),
                    limit.as_secs()
                ),
            ));
        }
        // Nodes report a few times a second: asking more often would show nothing new.
        let _ = client.poll(Duration::from_millis(100))?;
    }
}

/// Reads a controller's JSON.
pub fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::failed(format!("the controller's answer cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::LogKind;

    #[test]
    fn policies_whose_acknowledgement_says_it_all() {
        let says =
            |name, factor, log| by_acknowledgement(&Policy::preset(name, factor, log).expect("a preset"));
        assert!(says("durable", 3, LogKind::Disk));
        assert!(says("local", 1, LogKind::Disk));
        assert!(says("semi", 3, LogKind::Memory));
        assert!(!says("semi", 3, LogKind::Disk));
        assert!(!says("async", 3, LogKind::Disk));
        assert!(!says("local", 3, LogKind::Disk));
    }
}
