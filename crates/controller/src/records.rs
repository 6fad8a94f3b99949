//! The cluster map: every record of the metastore with the revision that wrote it.
//!
//! Values arrive from outcomes of transactions, from the stream of changes and from whole snapshots, in any
//! order. The newer revision of a key always wins, so what is known of a key never goes back.

use crate::keys::Key;
use crate::txn::{Entry, Reading};
use std::collections::{BTreeMap, BTreeSet};
use types::config::{ClusterRecord, FailoverRecord, NodeRecord, PartitionRecord, TableRecord};
use types::{Holds, NodeId, PartitionId, RemovedDirectories, StoreId, TableId};
use wire::RecordText;
use wire::control::ClusterMap;

/// All records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    /// The highest revision of anything that arrived.
    revision: u64,
    /// Everything up to this revision has arrived. A transaction's reading of a few keys does not raise it.
    complete: u64,
    /// The revision of every key, of removed ones too.
    revisions: BTreeMap<Key, Stamp>,
    cluster: Option<ClusterRecord>,
    nodes: BTreeMap<NodeId, NodeRecord>,
    tables: BTreeMap<TableId, TableRecord>,
    partitions: BTreeMap<PartitionId, PartitionRecord>,
    failovers: BTreeMap<u64, FailoverRecord>,
    names: BTreeMap<String, TableId>,
    databases: BTreeMap<String, TableId>,
    creating: BTreeSet<TableId>,
    /// Directories of nodes that were removed.
    removed: BTreeMap<NodeId, RemovedDirectories>,
    /// Keys whose value cannot be read, with the reason: another version's, or damaged. Left alone.
    unreadable: BTreeMap<Key, String>,
    /// What changed since the last delta.
    dirty: BTreeSet<Key>,
}

/// When a key was written, and whether it is there.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    revision: u64,
    present: bool,
}

/// A partition's record that was replaced.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Replaced {
    /// Before; none if it was not known.
    pub(crate) old: Option<PartitionRecord>,
    /// After; none if it was removed.
    pub(crate) new: Option<PartitionRecord>,
}

impl Records {
    /// Everything up to this revision has arrived.
    pub(crate) fn complete(&self) -> u64 {
        self.complete
    }

    /// The highest revision of anything that arrived.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Raises the revision: everything up to it has arrived.
    pub(crate) fn caught_up(&mut self, revision: u64) {
        self.complete = self.complete.max(revision);
        self.revision = self.revision.max(revision);
    }

    /// This controller made this revision, and its transaction's reading has all of it. If nothing is missing
    /// below it, nothing is missing up to it.
    pub(crate) fn wrote(&mut self, revision: u64) {
        if revision == self.complete + 1 {
            self.complete = revision;
        }
    }

    /// The revision to compare with before writing a key; 0: it is absent.
    pub(crate) fn compare_with(&self, key: &Key) -> u64 {
        self.revisions.get(key).filter(|stamp| stamp.present).map_or(0, |stamp| stamp.revision)
    }

    /// Takes in a whole snapshot: what it lacks is gone. Returns the partitions that changed.
    pub(crate) fn load(&mut self, revision: u64, entries: Vec<Entry>) -> Vec<Replaced> {
        let listed: BTreeSet<Key> = entries.iter().filter_map(|entry| Key::parse(&entry.key)).collect();
        let known = self.revisions.iter().filter(|(_, stamp)| stamp.present && stamp.revision <= revision);
        let gone: Vec<Key> = known.map(|(key, _)| key).filter(|key| !listed.contains(key)).cloned().collect();
        let mut replaced: Vec<Replaced> =
            gone.into_iter().filter_map(|key| self.set(key, revision, None)).collect();
        for entry in entries {
            replaced.extend(self.apply(&entry.key, entry.revision, Some(&entry.value)));
        }
        self.caught_up(revision);
        replaced
    }

    /// Takes in what a transaction at `revision` read. Returns the partitions that changed.
    pub(crate) fn read(&mut self, revision: u64, readings: &[Reading]) -> Vec<Replaced> {
        let apply = |(key, value): &Reading| match value {
            Some((written, bytes)) => self.apply(key, *written, Some(bytes)),
            None => self.apply(key, revision, None),
        };
        readings.iter().filter_map(apply).collect()
    }

    /// Takes in one key. Older news than what is known is skipped.
    pub(crate) fn apply(&mut self, key: &str, revision: u64, value: Option<&[u8]>) -> Option<Replaced> {
        let key = Key::parse(key)?;
        let stamp = self.revisions.get(&key);
        if stamp.is_some_and(|stamp| {
            stamp.revision >= revision && (stamp.revision > revision || value.is_some() || !stamp.present)
        }) {
            return None;
        }
        self.revision = self.revision.max(revision);
        self.set(key, revision, value)
    }

    fn set(&mut self, key: Key, revision: u64, value: Option<&[u8]>) -> Option<Replaced> {
        let known = self.compare_with(&key) > 0;
        self.revisions.insert(key.clone(), Stamp { revision, present: value.is_some() });
        self.unreadable.remove(&key);
        if known || value.is_some() {
            self.dirty.insert(key.clone());
        }
        let text = value.map(|bytes| RecordText(String::from_utf8_lossy(bytes).into_owned()));
        match self.keep(&key, text) {
            Ok(replaced) => replaced,
            Err(why) => {
                // Its old value must not be used with its new revision: that would overwrite what nobody here
                // understood.
                let replaced = self.keep(&key, None).unwrap_or_default();
                self.unreadable.insert(key, why);
                replaced
            }
        }
    }

    fn keep(&mut self, key: &Key, text: Option<RecordText>) -> Result<Option<Replaced>, String> {
        match key {
            Key::Cluster => self.cluster = read(text)?,
            Key::Node(id) => put(&mut self.nodes, *id, read(text)?),
            Key::Table(id) => put(&mut self.tables, *id, read(text)?),
            Key::Failover(id) => put(&mut self.failovers, *id, read(text)?),
            Key::Name(name) => put(&mut self.names, name.clone(), read(text)?),
            Key::Database(name) => put(&mut self.databases, name.clone(), read(text)?),
            Key::Removed(id) => put(&mut self.removed, *id, read(text)?),
            Key::Creating(id) => {
                self.creating.remove(id);
                self.creating.extend(text.map(|_| *id));
            }
            Key::Partition(id) => {
                let new: Option<PartitionRecord> = read(text)?;
                let old = self.partitions.get(id).cloned();
                put(&mut self.partitions, *id, new.clone());
                return Ok(Some(Replaced { old, new }));
            }
        }
        Ok(None)
    }

    /// The cluster.
    pub(crate) fn cluster(&self) -> Option<&ClusterRecord> {
        self.cluster.as_ref()
    }

    /// A node.
    pub(crate) fn node(&self, id: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(&id)
    }

    /// True if this store was a node's that was removed, at the end or before (PR-280).
    pub(crate) fn was_removed(&self, node: NodeId, store: StoreId) -> bool {
        self.removed.get(&node).is_some_and(|removed| removed.has(store))
    }

    /// The directories of the nodes of this number that were removed.
    pub(crate) fn removed(&self, node: NodeId) -> RemovedDirectories {
        self.removed.get(&node).cloned().unwrap_or_default()
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeRecord> {
        self.nodes.values()
    }

    /// A table, or a database.
    pub(crate) fn table(&self, id: TableId) -> Option<&TableRecord> {
        self.tables.get(&id)
    }

    /// A table by its name, or a database, which may have the same.
    pub(crate) fn named(&self, name: &str, holds: Holds) -> Option<&TableRecord> {
        self.tables.values().find(|table| table.name == name && table.holds == holds)
    }

    /// The table that has this name, whether its record is known or not.
    pub(crate) fn holder(&self, name: &str, holds: Holds) -> Option<TableId> {
        let names = if holds == Holds::Database { &self.databases } else { &self.names };
        names.get(name).copied()
    }

    /// A partition, also of a table that is being created.
    pub(crate) fn partition(&self, id: PartitionId) -> Option<&PartitionRecord> {
        self.partitions.get(&id)
    }

    /// The partitions of tables that exist.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = &PartitionRecord> {
        self.partitions.values().filter(|partition| self.tables.contains_key(&partition.table))
    }

    /// Partitions of tables that neither exist nor are being created. A record that cannot be read is there
    /// all the same.
    pub(crate) fn orphans(&self) -> impl Iterator<Item = &PartitionRecord> {
        let wanted = |id: TableId| self.compare_with(&Key::Table(id)) > 0 || self.creating.contains(&id);
        self.partitions.values().filter(move |partition| !wanted(partition.table))
    }

    /// Tables being created, by this controller or another.
    pub(crate) fn creating(&self) -> &BTreeSet<TableId> {
        &self.creating
    }

    /// True if any partition that is known has a member on this node, also one of a table that is being
    /// created or dropped.
    pub(crate) fn is_member(&self, node: NodeId) -> bool {
        self.partitions.values().any(|partition| partition.member_on(node).is_some())
    }

    /// All tables and databases.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableRecord> {
        self.tables.values()
    }

    /// A failover.
    pub(crate) fn failover(&self, id: u64) -> Option<&FailoverRecord> {
        self.failovers.get(&id)
    }

    /// All failovers, oldest first.
    pub(crate) fn failovers(&self) -> impl DoubleEndedIterator<Item = &FailoverRecord> {
        self.failovers.values()
    }

    /// How many failovers are recorded.
    pub(crate) fn failover_count(&self) -> usize {
        self.failovers.len()
    }

    /// Where this partition's nodes are wanted, the one to lead first. Empty if the table is unknown.
    pub(crate) fn placement(&self, partition: &PartitionRecord) -> &[NodeId] {
        let Some(table) = self.tables.get(&partition.table) else { return &[] };
        let index = partition.id.0.saturating_sub(table.first_partition.0) as usize;
        table.placement.get(index).map_or(&[], Vec::as_slice)
    }

    /// The whole cluster map, for a new subscriber.
    pub(crate) fn whole(&self) -> ClusterMap {
        ClusterMap {
            revision: self.revision,
            cluster: self.cluster.as_ref().map(RecordText::new),
            nodes: self.nodes.values().map(RecordText::new).collect(),
            tables: self.tables.values().map(RecordText::new).collect(),
            partitions: self.partitions().map(RecordText::new).collect(),
            dropped: Vec::new(),
            whole: self.is_whole(),
        }
    }

    /// What changed since the last call; none if nothing that subscribers see.
    pub(crate) fn delta(&mut self) -> Option<ClusterMap> {
        let dirty = std::mem::take(&mut self.dirty);
        let mut cluster_map = ClusterMap { revision: self.revision, ..empty() };
        let mut partitions: BTreeSet<PartitionId> = BTreeSet::new();
        for key in &dirty {
            match key {
                Key::Cluster => cluster_map.cluster = self.cluster.as_ref().map(RecordText::new),
                Key::Node(id) => cluster_map.nodes.extend(self.nodes.get(id).map(RecordText::new)),
                Key::Partition(id) => partitions.extend([*id]),
                Key::Table(id) => match self.tables.get(id) {
                    // A table becomes visible with everything in it, also what was written long before it.
                    Some(table) => {
                        cluster_map.tables.push(RecordText::new(table));
                        partitions.extend(table.partition_ids());
                    }
                    None if self.unreadable.contains_key(key) => {}
                    None => cluster_map.dropped.push(id.0),
                },
                Key::Name(_) | Key::Database(_) | Key::Creating(_) | Key::Failover(_) | Key::Removed(_) => {}
            }
        }
        let records = partitions.iter().filter_map(|id| self.partitions.get(id));
        let visible = records.filter(|record| self.tables.contains_key(&record.table));
        cluster_map.partitions = visible.map(RecordText::new).collect();
        // There is no message that a node is gone: the whole cluster map is sent, which lacks it. So that
        // waits until everything is known here.
        let gone: Vec<Key> = dirty.into_iter().filter(|key| self.is_gone_node(key)).collect();
        if !gone.is_empty() && self.is_whole() {
            return Some(ClusterMap { dropped: cluster_map.dropped, ..self.whole() });
        }
        self.dirty.extend(gone);
        let nothing = ClusterMap { revision: self.revision, ..empty() };
        (cluster_map != nothing).then_some(cluster_map)
    }

    /// True if what is not here does not exist.
    pub(crate) fn is_whole(&self) -> bool {
        self.complete == self.revision && self.unreadable.is_empty()
    }

    fn is_gone_node(&self, key: &Key) -> bool {
        matches!(key, Key::Node(_)) && self.compare_with(key) == 0
    }
}

fn empty() -> ClusterMap {
    ClusterMap {
        revision: 0,
        cluster: None,
        nodes: vec![],
        tables: vec![],
        partitions: vec![],
        dropped: vec![],
        whole: false,
    }
}

fn read<T: serde::de::DeserializeOwned>(text: Option<RecordText>) -> Result<Option<T>, String> {
    text.map(|text| text.read()).transpose()
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}
