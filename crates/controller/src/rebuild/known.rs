//! One node's report, read.

use super::Refusal;
use crate::keys::Key;
use std::collections::{BTreeMap, BTreeSet};
use types::config::{ClusterRecord, NodeRecord, PartitionRecord, TableRecord};
use types::{Epoch, Generation, NodeId, PartitionId, TableId};
use wire::KeptRecords;

/// When something was told: in which generation, and at which revision of its metastore.
pub(super) type When = (Generation, u64);

/// No controller gives out an epoch beyond this one.
const LAST_EPOCH: Epoch = Epoch(Generation::LAST.0 << 32 | u32::MAX as u64);

/// An epoch that a controller may have given out.
fn plausible(epoch: Epoch) -> Result<(), String> {
    match epoch < LAST_EPOCH {
        true => Ok(()),
        false => Err(format!("no controller gives out {epoch}")),
    }
}

/// What one node keeps.
pub(super) struct Known<'a> {
    pub report: &'a KeptRecords,
    pub cluster: Option<ClusterRecord>,
    pub nodes: BTreeMap<NodeId, NodeRecord>,
    pub tables: BTreeMap<TableId, TableRecord>,
    pub partitions: BTreeMap<PartitionId, PartitionRecord>,
    pub dropped: BTreeSet<TableId>,
}

impl<'a> Known<'a> {
    pub fn read(report: &'a KeptRecords) -> Result<Known<'a>, Refusal> {
        let dropped = report.dropped.iter().copied().collect();
        let mut known = Known {
            report,
            cluster: None,
            nodes: BTreeMap::new(),
            tables: BTreeMap::new(),
            partitions: BTreeMap::new(),
            dropped,
        };
        for (partition, epoch) in &report.seen {
            let wrong = |why| Refusal::Unreadable(report.member.node, format!("{partition}: {why}"));
            plausible(*epoch).map_err(wrong)?;
        }
        for (key, text) in &report.records {
            let wrong = |why| Refusal::Unreadable(report.member.node, format!("{key}: {why}"));
            match Key::parse(key) {
                Some(Key::Cluster) => known.cluster = Some(text.read().map_err(wrong)?),
                Some(Key::Node(id)) => drop(known.nodes.insert(id, text.read().map_err(wrong)?)),
                Some(Key::Table(id)) => drop(known.tables.insert(id, text.read().map_err(wrong)?)),
                Some(Key::Partition(id)) => {
                    let record: PartitionRecord = text.read().map_err(wrong)?;
                    record.validate().map_err(wrong)?;
                    plausible(record.epoch).map_err(wrong)?;
                    known.partitions.insert(id, record);
                }
                _ => return Err(wrong("nodes keep no such record".into())),
            }
        }
        Ok(known)
    }

    /// The generation in which it was told what it keeps.
    pub fn told(&self) -> Generation {
        self.cluster.as_ref().map_or(Generation(0), |cluster| cluster.generation)
    }

    /// Up to when it was told.
    pub fn when(&self) -> When {
        (self.told(), self.report.revision)
    }

    /// Everything that was there at that time is here: what is not is gone.
    pub fn whole(&self) -> Option<When> {
        Some((self.told(), self.report.whole?))
    }

    /// The disk that tells this, if it has lost nothing of what it kept.
    pub fn store(&self) -> Option<(NodeId, types::StoreId)> {
        self.report.whole.map(|_| (self.report.member.node, self.report.member.store))
    }
}
