//! What the transaction manager knows of databases that were dropped: nothing, once nothing refers to it
//! (PR-390).

use super::{Books, newest_of};
use types::commits::{Head, KnownTable, head_key};
use types::{Mutation, PartitionId, TableId};

impl Books {
    /// [`wire::ManagerOp::Forget`]: what is removed, and of how many of these partitions. Each was dropped
    /// with its database, so nothing more comes there, and tables of that database go with the first of its
    /// partitions. It must have secured all of its commits, and none of them be kept, since claims and chains
    /// are made of these. The newest commit of all partitions goes on being known: it is the next snapshot.
    pub fn forget_dropped(&mut self, partitions: &[PartitionId]) -> (Vec<Mutation>, u32) {
        let newest = newest_of(&self.heads);
        let truncated = self.truncated;
        let over = |head: &Head| !head.lags() && head.newest <= truncated && head.newest < newest;
        let (mut mutations, mut removed) = (Vec::new(), 0);
        for partition in partitions {
            if !self.heads.get(partition).is_some_and(over) {
                continue;
            }
            self.heads.remove(partition);
            self.backlogs.remove(partition);
            mutations.push(Mutation { key: head_key(*partition), value: None });
            removed += 1;
            let own = self.tables.iter().filter(|(_, known)| known.is_in(*partition));
            let own: Vec<TableId> = own.map(|(table, _)| *table).collect();
            for table in own {
                self.tables.remove(&table);
                mutations.push(Mutation { key: KnownTable::key(table), value: None });
            }
        }
        if removed > 0 {
            self.claims.follow(&self.tables);
        }
        (mutations, removed)
    }
}
