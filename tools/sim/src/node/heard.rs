//! What a process has heard of the cluster map.

use driver::Moved;
use std::collections::BTreeMap;
use types::{Micros, PartitionId, TableId, TableRecord};
use wire::control::ClusterMap;

/// The newest of what it was told, and replicas that have no place here by it.
#[derive(Debug, Default)]
pub struct Heard {
    /// The newest record of each table.
    tables: BTreeMap<TableId, TableRecord>,
    /// The newest revision of the metastore.
    revision: u64,
    /// Replicas that have no place here.
    moved: Moved,
}

impl Heard {
    /// The newest revision of the metastore that it was told of.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The newest record of a table.
    pub fn table(&self, id: TableId) -> Option<&TableRecord> {
        self.tables.get(&id)
    }

    /// Takes in a cluster map, and gives back its tables; a map that is older than one before says nothing
    /// new of them.
    pub fn learn(&mut self, cluster_map: &ClusterMap) -> Vec<TableRecord> {
        if cluster_map.revision < self.revision {
            return Vec::new();
        }
        self.revision = cluster_map.revision;
        let read = cluster_map.tables.iter().filter_map(|text| text.read::<TableRecord>().ok());
        let tables: Vec<TableRecord> = read.collect();
        self.tables.extend(tables.iter().map(|table| (table.id, table.clone())));
        tables
    }

    /// These replicas have no place here, and no others. Gives those that have had none for long enough.
    pub fn without_place(&mut self, moved: &[PartitionId], now: u64) -> Vec<PartitionId> {
        self.moved.look(moved, Micros(now))
    }

    /// The replica was removed.
    pub fn removed(&mut self, id: PartitionId) {
        self.moved.remove(id);
    }
}
