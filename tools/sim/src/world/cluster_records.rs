//! What the metastore's records say of tables and nodes, as the checkers remember them.

use std::collections::{BTreeMap, BTreeSet};
use types::config::NodeRecord;
use types::{NodeId, StoreId, TableId, TableRecord};

/// Tables and nodes as the metastore has them, and what is remembered of those that it had.
#[derive(Debug)]
pub(super) struct ClusterRecords {
    tables: BTreeMap<TableId, TableRecord>,
    nodes: BTreeMap<NodeId, NodeRecord>,
    /// Disks of nodes that were removed.
    removed: BTreeSet<StoreId>,
    /// Nodes that an operator has brought copies to.
    added: BTreeSet<NodeId>,
    /// Nodes that were there from the beginning.
    founders: u32,
}

impl ClusterRecords {
    /// None yet; these many nodes are there from the beginning.
    pub fn new(founders: u32) -> ClusterRecords {
        ClusterRecords {
            tables: BTreeMap::new(),
            nodes: BTreeMap::new(),
            removed: BTreeSet::new(),
            added: BTreeSet::new(),
            founders,
        }
    }

    /// What a table is to be.
    pub fn table(&self, id: TableId) -> Option<&TableRecord> {
        self.tables.get(&id)
    }

    /// What all tables are to be.
    pub fn tables(&self) -> impl Iterator<Item = &TableRecord> {
        self.tables.values()
    }

    /// The nodes, by their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRecord> {
        self.nodes.values()
    }

    /// A table's record was written. True if another number of copies is wanted than before.
    pub fn write_table(&mut self, table: TableRecord) -> bool {
        let factor = table.policy.factor;
        let before = self.tables.insert(table.id, table);
        before.is_some_and(|before| before.policy.factor != factor)
    }

    /// A node's record was written. Gives what it begins to be marked as, in words.
    pub fn write_node(&mut self, id: NodeId, record: NodeRecord) -> Vec<&'static str> {
        let known = self.nodes.get(&id);
        let begins = |mark| record.is_marked(mark) && !known.is_some_and(|known| known.is_marked(mark));
        let marks = [(NodeRecord::JOINING, "joins"), (NodeRecord::DECOMMISSIONING, "leaves")];
        let words = marks.into_iter().filter(|(mark, _)| begins(mark)).map(|(_, words)| words).collect();
        if record.is_marked(NodeRecord::JOINING) {
            self.added.insert(id);
        }
        self.nodes.insert(id, record);
        words
    }

    /// A node's record is gone. Gives its disk; none if there was no record.
    pub fn remove_node(&mut self, id: NodeId) -> Option<StoreId> {
        let gone = self.nodes.remove(&id)?;
        self.removed.insert(gone.store);
        Some(gone.store)
    }

    /// Its record is gone with all others, and nobody who was asked knew of it: nobody removed it.
    pub fn forget_node(&mut self, id: NodeId) {
        self.nodes.remove(&id);
        self.added.remove(&id);
    }

    /// True if the node with this disk was removed.
    pub fn is_removed(&self, store: StoreId) -> bool {
        self.removed.contains(&store)
    }

    /// True if everything is to be moved away from the node: it is given no copies any more.
    pub fn is_decommissioning(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|record| record.is_marked(NodeRecord::DECOMMISSIONING))
    }

    /// True if the node is to lead nothing for a while, or is unknown.
    pub fn is_drained(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_none_or(|record| record.is_marked(NodeRecord::DRAINING))
    }

    /// A node that came later, and that nobody has brought copies to.
    pub fn waits_for_copies(&self) -> Option<NodeId> {
        let waits = |node: &&NodeRecord| {
            node.id.0 > self.founders
                && !node.is_marked(NodeRecord::JOINING)
                && !self.added.contains(&node.id)
        };
        self.nodes.values().find(waits).map(|node| node.id)
    }

    /// True if one of `started` nodes may go: others came before, and enough stay.
    pub fn may_remove(&self, started: usize) -> bool {
        let taken = self.nodes.values().filter(|node| node.is_marked(NodeRecord::DECOMMISSIONING)).count();
        let (left, founders) = (self.nodes.len() - taken, self.founders as usize);
        started > founders && left > founders - 1 && left > 2
    }
}
