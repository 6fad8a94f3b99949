//! What a process has heard of the cluster map.

use driver::Moved;
use std::collections::BTreeMap;
use types::{ClusterRecord, Generation, Micros, PartitionId, TableId, TableRecord};
use wire::control::ClusterMap;

/// The newest of what it was told, and replicas that have no place here by it.
#[derive(Debug, Default)]
pub struct Heard {
    /// The newest record of each table.
    tables: BTreeMap<TableId, TableRecord>,
    /// The newest generation of the records, and the newest revision of its metastore.
    newest: (Generation, u64),
    /// Replicas that have no place here.
    moved: Moved,
}

impl Heard {
    /// True if a cluster map is older than one before. Another metastore counts from somewhere else.
    pub fn is_ahead_of(&self, map: &ClusterMap) -> bool {
        self.date_of(map) < self.newest
    }

    fn date_of(&self, map: &ClusterMap) -> (Generation, u64) {
        let record = map.cluster.as_ref().and_then(|text| text.read::<ClusterRecord>().ok());
        (record.map_or(self.newest.0, |record| record.generation), map.revision)
    }

    /// The newest record of a table.
    pub fn table(&self, id: TableId) -> Option<&TableRecord> {
        self.tables.get(&id)
    }

    /// Takes in a cluster map, and gives back its tables; a map that is older than one before says nothing
    /// new of them.
    pub fn learn(&mut self, cluster_map: &ClusterMap) -> Vec<TableRecord> {
        if self.is_ahead_of(cluster_map) {
            return Vec::new();
        }
        self.newest = self.date_of(cluster_map);
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
