//! The cluster's records as this node knows them: the newest that controllers have told.

use std::collections::{BTreeMap, BTreeSet};
use types::index::Wanted;
use types::{
    ClusterRecord, Member, NodeId, NodeRecord, PartitionId, PartitionRecord, Ship, TableId, TableRecord,
};
use wire::control::ClusterMap;

/// The records as this node knows them.
#[derive(Debug, Default)]
pub struct View {
    /// Grows with every change of what is below.
    version: u64,
    /// The newest revision of the metastore that was told.
    revision: u64,
    cluster: Option<ClusterRecord>,
    nodes: BTreeMap<NodeId, NodeRecord>,
    tables: BTreeMap<TableId, TableRecord>,
    /// The newest configuration of every partition.
    partitions: BTreeMap<PartitionId, PartitionRecord>,
}

/// What was in a cluster map beside partitions.
pub struct MapChanges {
    /// It was whole and newer than any before, and all of it could be read: what it does not name is gone.
    pub whole: bool,
    /// The indexes of tables that were named.
    pub indexes: Vec<(TableId, Option<Wanted>)>,
    /// What members are sent of calls, of those among them that are databases.
    pub ships: Vec<(TableId, Ship)>,
}

impl View {
    /// Grows with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The nodes.
    pub fn nodes(&self) -> &BTreeMap<NodeId, NodeRecord> {
        &self.nodes
    }

    /// The tables.
    pub fn tables(&self) -> impl Iterator<Item = &TableRecord> {
        self.tables.values()
    }

    /// A table, if it is known.
    pub fn table(&self, id: TableId) -> Option<&TableRecord> {
        self.tables.get(&id)
    }

    /// The newest configurations, in the order of partitions.
    pub fn partitions(&self) -> impl Iterator<Item = &PartitionRecord> {
        self.partitions.values()
    }

    /// The newest configuration of a partition, if it is known.
    pub fn partition(&self, id: PartitionId) -> Option<&PartitionRecord> {
        self.partitions.get(&id)
    }

    /// True if this member leads a partition that another one could lead.
    pub fn lead_for_others(&self, me: Member) -> bool {
        self.partitions.values().any(|record| record.primary == me && record.in_sync.len() > 1)
    }

    /// True if this partition's number was given out: if it is not known here, it was dropped.
    pub fn has_given_out(&self, id: PartitionId) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.has_given_out(id))
    }

    /// The records as clients have them.
    pub fn map(&self) -> client::Map {
        client::Map::of(
            self.nodes.values().cloned(),
            self.tables.values().cloned(),
            self.partitions.values().cloned(),
        )
    }

    /// Takes what a cluster map says of all but partitions. What cannot be read is said, and left as it was.
    pub fn take(&mut self, cluster_map: &ClusterMap) -> MapChanges {
        self.version += 1;
        // A controller that is behind says nothing new of nodes and tables; partitions carry epochs of their
        // own.
        let generation = |record: &ClusterRecord| record.generation;
        let theirs = cluster_map.cluster.as_ref().and_then(|text| text.read().ok());
        let known = self.cluster.as_ref().map(generation).unwrap_or_default();
        let theirs = theirs.as_ref().map_or(known, generation);
        // Another metastore counts from somewhere else.
        let behind = theirs == known && cluster_map.revision < self.revision;
        if theirs < known || behind {
            return MapChanges { whole: false, indexes: Vec::new(), ships: Vec::new() };
        }
        self.revision = cluster_map.revision;
        // Nothing may be taken for gone because a line of what is there could not be read.
        let mut taken = MapChanges { whole: cluster_map.whole, indexes: Vec::new(), ships: Vec::new() };
        let mut note = |error: String| {
            eprintln!("{error}");
            taken.whole = false;
        };
        match cluster_map.cluster.as_ref().map(|text| text.read()) {
            Some(Ok(record)) => self.cluster = Some(record),
            Some(Err(error)) => note(error),
            None => {}
        }
        for text in &cluster_map.nodes {
            match text.read::<NodeRecord>() {
                Ok(record) => drop(self.nodes.insert(record.id, record)),
                Err(error) => note(error),
            }
        }
        for text in &cluster_map.tables {
            match text.read::<TableRecord>() {
                Ok(record) => {
                    let wanted = (!record.indexes.is_empty()).then(|| Wanted::of(&record));
                    taken.indexes.push((record.id, wanted));
                    if record.is_database() {
                        taken.ships.push((record.id, record.ship));
                    }
                    self.tables.insert(record.id, record);
                }
                Err(error) => note(error),
            }
        }
        taken
    }

    /// Keeps the newest configuration. True if this one is.
    pub fn remember(&mut self, record: &PartitionRecord) -> bool {
        let known = self.partitions.get(&record.id);
        if known.is_some_and(|known| known.epoch > record.epoch) {
            return false;
        }
        self.partitions.insert(record.id, record.clone());
        self.version += 1;
        true
    }

    /// A table is gone, with its partitions.
    pub fn drop_table(&mut self, table: TableId) {
        self.tables.remove(&table);
        self.partitions.retain(|_, record| record.table != table);
    }

    /// Forgets the nodes that a whole map does not name. True if it names this one.
    pub fn forget_nodes(&mut self, cluster_map: &ClusterMap, me: NodeId) -> bool {
        let there = cluster_map.nodes.iter().filter_map(|text| text.read::<NodeRecord>().ok());
        let there: BTreeSet<NodeId> = there.map(|record| record.id).collect();
        self.nodes.retain(|node, _| there.contains(node));
        there.contains(&me)
    }

    /// Those of these partitions that are gone: a cluster map that is older than a partition does not prove
    /// that it is, as numbers are given out in order and never again.
    pub fn gone(&self, known: impl IntoIterator<Item = PartitionId>) -> Vec<PartitionId> {
        let Some(cluster) = &self.cluster else { return Vec::new() };
        let gone = |id: &PartitionId| cluster.has_given_out(*id) && !self.partitions.contains_key(id);
        known.into_iter().filter(gone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Incarnation, StoreId};
    use wire::control::RecordText;

    const P: PartitionId = PartitionId(64);
    const Q: PartitionId = PartitionId(65);

    fn node(id: u32) -> RecordText {
        RecordText::new(&NodeRecord {
            format: types::config::FORMAT,
            id: NodeId(id),
            store: StoreId(1),
            incarnation: Incarnation(1),
            clean_start: false,
            addresses: Default::default(),
            zone: String::new(),
            damaged: Vec::new(),
            start: 0,
            executors: Default::default(),
            unknown: Default::default(),
        })
    }

    /// A whole map in which partitions below [`Q`] have been given out.
    fn map(revision: u64, nodes: Vec<RecordText>) -> ClusterMap {
        let cluster = ClusterRecord {
            format: types::config::FORMAT,
            id: types::ClusterId(1),
            created_ms: 0,
            next_table: 2,
            next_partition: Q.0,
            next_system: PartitionId::FIRST_SYSTEM,
            next_failover: 0,
            generation: Default::default(),
            asked: 0,
            unknown: Default::default(),
        };
        ClusterMap {
            revision,
            cluster: Some(RecordText::new(&cluster)),
            nodes,
            tables: Vec::new(),
            partitions: Vec::new(),
            dropped: Vec::new(),
            whole: true,
        }
    }

    fn nodes(view: &View) -> Vec<u32> {
        view.nodes().keys().map(|node| node.0).collect()
    }

    #[test]
    fn a_map_that_is_behind_says_nothing_of_nodes() {
        let mut view = View::default();
        assert!(view.take(&map(5, vec![node(1)])).whole);
        assert!(!view.take(&map(4, vec![node(2)])).whole);
        assert_eq!(nodes(&view), [1]);
        let before = view.version();
        assert!(view.take(&map(5, vec![node(1), node(2)])).whole && view.version() > before);
        assert_eq!(nodes(&view), [1, 2]);
    }

    #[test]
    fn nothing_is_taken_for_gone_by_a_map_that_cannot_be_read() {
        let mut view = View::default();
        let unreadable = map(5, vec![node(1), RecordText("nonsense".into())]);
        assert!(!view.take(&unreadable).whole);
        assert_eq!(nodes(&view), [1], "what can be read counts");
    }

    #[test]
    fn what_a_whole_map_does_not_name_is_gone_if_it_had_been_given_out() {
        let mut view = View::default();
        assert!(view.gone([P, Q]).is_empty(), "nothing is known yet");
        let later = map(6, vec![node(2)]);
        view.take(&map(5, vec![node(1), node(2)]));
        view.take(&later);
        assert!(view.forget_nodes(&later, NodeId(2)) && !view.forget_nodes(&later, NodeId(1)));
        assert_eq!(nodes(&view), [2]);
        assert_eq!(view.gone([P, Q]), [P]);
    }
}
