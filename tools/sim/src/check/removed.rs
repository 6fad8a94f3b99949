//! I16: a node that is removed is a member of nothing, and stays out on the disk that it had.

use std::collections::BTreeSet;
use types::{NodeId, PartitionRecord, StoreId};

/// Disks of nodes that were removed.
#[derive(Debug, Default)]
pub struct Removed(BTreeSet<StoreId>);

impl Removed {
    /// A node's record is gone, while the partitions' newest records are these.
    pub fn leaves<'a>(
        &mut self,
        node: NodeId,
        store: StoreId,
        mut records: impl Iterator<Item = &'a PartitionRecord>,
    ) -> Result<(), String> {
        self.0.insert(store);
        match records.find(|record| record.member_on(node).is_some()) {
            Some(record) => Err(format!("{node} is removed, and is a member of {}", record.id)),
            None => Ok(()),
        }
    }

    /// A node's record was written.
    pub fn is_written(&self, node: NodeId, store: StoreId) -> Result<(), String> {
        match self.0.contains(&store) {
            true => Err(format!("{node} was removed, and is let in again on its old disk")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::epochs::tests::record;

    #[test]
    fn who_is_a_member_is_not_removed_and_who_was_removed_stays_out() {
        let mut removed = Removed::default();
        let records = [record(1, 1, &[1, 2])];
        removed.is_written(NodeId(3), StoreId(30)).expect("it was never there");
        removed.leaves(NodeId(3), StoreId(30), records.iter()).expect("it is a member of nothing");
        removed.leaves(NodeId(2), StoreId(20), records.iter()).expect_err("it is a member");
        removed.is_written(NodeId(3), StoreId(30)).expect_err("on the disk that it had");
        removed.is_written(NodeId(3), StoreId(31)).expect("on another disk");
    }
}
