//! The client's cluster map: which node leads which partition, and where nodes are reached.
//!
//! Records come from a controller and from hints in replies. A partition's record is replaced only by one of
//! a newer epoch, whichever way it came.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{
    ClusterRecord, Epoch, NodeId, NodeRecord, PartitionId, PartitionRecord, Position, TableId, TableRecord,
};
use wire::ReadLevel;
use wire::control::ClusterMap;

/// What is known of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Map {
    revision: u64,
    cluster: Option<ClusterRecord>,
    nodes: BTreeMap<NodeId, NodeRecord>,
    tables: BTreeMap<TableId, Arc<TableRecord>>,
    partitions: BTreeMap<PartitionId, PartitionRecord>,
    newest: BTreeMap<PartitionId, Position>,
}

/// What a cluster map changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Nodes that live at another address or in another life than before.
    pub nodes: Vec<NodeId>,
    /// Partitions with a newer configuration.
    pub partitions: Vec<PartitionId>,
}

impl Map {
    /// The cluster map that somebody else has, such as a node.
    pub fn of(
        nodes: impl IntoIterator<Item = NodeRecord>,
        tables: impl IntoIterator<Item = TableRecord>,
        partitions: impl IntoIterator<Item = PartitionRecord>,
    ) -> Map {
        Map {
            nodes: nodes.into_iter().map(|node| (node.id, node)).collect(),
            tables: tables.into_iter().map(|table| (table.id, Arc::new(table))).collect(),
            partitions: partitions.into_iter().map(|record| (record.id, record)).collect(),
            ..Map::default()
        }
    }

    /// Takes a controller's cluster map in. The error is a sentence; what was read before it stays.
    pub fn apply(&mut self, cluster_map: &ClusterMap) -> Result<Changes, String> {
        let mut changes = Changes::default();
        if let Some(text) = &cluster_map.cluster {
            let cluster: ClusterRecord = text.read()?;
            let known = self.cluster.as_ref().map(|cluster| cluster.generation).unwrap_or_default();
            if cluster.generation > known {
                // Another metastore counts from somewhere else.
                self.revision = 0;
            }
            self.cluster = Some(cluster);
        }
        for text in &cluster_map.nodes {
            let node: NodeRecord = text.read()?;
            let id = node.id;
            let before = self.nodes.insert(id, node);
            let now = &self.nodes[&id];
            if before.is_some_and(|old| old.member() != now.member() || old.addresses != now.addresses) {
                changes.nodes.push(id);
            }
        }
        if cluster_map.whole && cluster_map.revision >= self.revision {
            self.forget_nodes(cluster_map, &mut changes)?;
        }
        for text in &cluster_map.tables {
            let table: TableRecord = text.read()?;
            self.tables.insert(table.id, Arc::new(table));
        }
        for text in &cluster_map.partitions {
            let record: PartitionRecord = text.read()?;
            let id = record.id;
            if self.adopt(record) {
                changes.partitions.push(id);
            }
        }
        for dropped in &cluster_map.dropped {
            self.tables.remove(&TableId(*dropped));
            self.partitions.retain(|_, record| record.table.0 != *dropped);
        }
        self.revision = cluster_map.revision;
        Ok(changes)
    }

    /// Nodes that are not in a whole cluster map were removed.
    fn forget_nodes(&mut self, cluster_map: &ClusterMap, changes: &mut Changes) -> Result<(), String> {
        let there = cluster_map.nodes.iter().map(|text| text.read().map(|node: NodeRecord| node.id));
        let there: BTreeSet<NodeId> = there.collect::<Result<_, _>>()?;
        changes.nodes.extend(self.nodes.keys().filter(|node| !there.contains(node)));
        self.nodes.retain(|node, _| there.contains(node));
        Ok(())
    }

    /// Takes a partition's record in if its epoch is newer than the known one's. True if it was.
    pub fn adopt(&mut self, record: PartitionRecord) -> bool {
        let newer = self.partitions.get(&record.id).is_none_or(|known| known.epoch < record.epoch);
        if newer {
            self.partitions.insert(record.id, record);
        }
        newer
    }

    /// The metastore's revision that the newest cluster map had.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The cluster's record, once a cluster map came.
    pub fn cluster(&self) -> Option<&ClusterRecord> {
        self.cluster.as_ref()
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRecord> {
        self.nodes.values()
    }

    /// All tables that have partitions for themselves.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableRecord>> {
        self.owners().filter(|record| record.holds.is_table())
    }

    /// All databases.
    pub fn databases(&self) -> impl Iterator<Item = &Arc<TableRecord>> {
        self.owners().filter(|record| record.is_database())
    }

    /// Everything that partitions belong to: those tables, and databases.
    pub fn owners(&self) -> impl Iterator<Item = &Arc<TableRecord>> {
        self.tables.values()
    }

    /// All partitions.
    pub fn partitions(&self) -> impl Iterator<Item = &PartitionRecord> {
        self.partitions.values()
    }

    /// One node.
    pub fn node(&self, node: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(&node)
    }

    /// A table by its name, if it has partitions for itself.
    pub fn table(&self, name: &str) -> Option<&Arc<TableRecord>> {
        self.tables().find(|table| table.name == name)
    }

    /// A database by its name.
    pub fn database(&self, name: &str) -> Option<&Arc<TableRecord>> {
        self.databases().find(|record| record.name == name)
    }

    /// What partitions belong to, by its id.
    pub fn owner(&self, id: TableId) -> Option<&Arc<TableRecord>> {
        self.tables.get(&id)
    }

    /// One partition.
    pub fn partition(&self, partition: PartitionId) -> Option<&PartitionRecord> {
        self.partitions.get(&partition)
    }

    /// Who leads a partition, as far as known.
    pub fn primary(&self, partition: PartitionId) -> Option<NodeId> {
        Some(self.partitions.get(&partition)?.primary.node)
    }

    /// The known epoch of a partition.
    pub fn epoch(&self, partition: PartitionId) -> Epoch {
        self.partitions.get(&partition).map_or(Epoch::ZERO, |record| record.epoch)
    }

    /// Whom to ask. `turn` 0 is the primary; higher turns go round the members, for when the known primary
    /// does not answer. A read at any replica goes round the in-sync ones, which are the likeliest to be
    /// fresh.
    pub fn target(&self, partition: PartitionId, read: ReadLevel, turn: u32) -> Option<NodeId> {
        let record = self.partitions.get(&partition)?;
        let count = match read {
            ReadLevel::Primary => record.members().count(),
            ReadLevel::Any { .. } => record.in_sync.len(),
        };
        record.members().nth(turn as usize % count.max(1)).map(|member| member.node)
    }

    /// Keeps the newest acknowledgement of a partition: the token for [`wire::Op::TermEnd`] (PR-29).
    pub(crate) fn acknowledged(&mut self, partition: PartitionId, at: Position) {
        let newest = self.newest.entry(partition).or_default();
        *newest = (*newest).max(at);
    }

    /// The newest acknowledgement of a write in this partition.
    pub fn newest(&self, partition: PartitionId) -> Option<Position> {
        self.newest.get(&partition).copied()
    }
}
