//! The metastore's keys: one per record.
//!
//! | key | record |
//! | --- | --- |
//! | `cluster` | `ClusterRecord` |
//! | `node/7` | `NodeRecord` |
//! | `table/3` | `TableRecord`: of a table, or of a database |
//! | `name/orders` | the id of the table with this name: names are unique because this key is |
//! | `database/bank` | the id of the database with this name, likewise |
//! | `creating/3` | present while table 3 is being created; taken away together with the writing of its record |
//! | `partition/64` | `PartitionRecord` |
//! | `failover/12` | `FailoverRecord` |
//! | `removed/7` | the directories of the nodes 7 that were removed: none of them ever takes part again |

use std::fmt;
use types::{NodeId, PartitionId, TableId};

/// A key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// The cluster's record.
    Cluster,
    /// A node's record.
    Node(NodeId),
    /// A table's record.
    Table(TableId),
    /// A table's name.
    Name(String),
    /// A database's name.
    Database(String),
    /// A table being created.
    Creating(TableId),
    /// A partition's record.
    Partition(PartitionId),
    /// A failover's record.
    Failover(u64),
    /// The directories of a node that was removed.
    Removed(NodeId),
}

impl Key {
    /// What the keys of failovers begin with.
    pub const FAILOVERS: &str = "failover/";

    /// The key with this text; none for what another version may have written.
    pub fn parse(text: &str) -> Option<Key> {
        if text == "cluster" {
            return Some(Key::Cluster);
        }
        let (kind, name) = text.split_once('/')?;
        Some(match kind {
            "node" => Key::Node(NodeId(name.parse().ok()?)),
            "table" => Key::Table(TableId(name.parse().ok()?)),
            "name" => Key::Name(name.into()),
            "database" => Key::Database(name.into()),
            "creating" => Key::Creating(TableId(name.parse().ok()?)),
            "partition" => Key::Partition(PartitionId(name.parse().ok()?)),
            "failover" => Key::Failover(name.parse().ok()?),
            "removed" => Key::Removed(NodeId(name.parse().ok()?)),
            _ => return None,
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Cluster => f.write_str("cluster"),
            Key::Node(id) => write!(f, "node/{}", id.0),
            Key::Table(id) => write!(f, "table/{}", id.0),
            Key::Name(name) => write!(f, "name/{name}"),
            Key::Database(name) => write!(f, "database/{name}"),
            Key::Creating(id) => write!(f, "creating/{}", id.0),
            Key::Partition(id) => write!(f, "partition/{}", id.0),
            Key::Failover(id) => write!(f, "failover/{id}"),
            Key::Removed(id) => write!(f, "removed/{}", id.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let keys = [
            Key::Cluster,
            Key::Node(NodeId(1)),
            Key::Table(TableId(2)),
            Key::Name("orders/2".into()),
            Key::Database("bank".into()),
            Key::Creating(TableId(3)),
            Key::Partition(PartitionId(64)),
            Key::Failover(12),
            Key::Removed(NodeId(7)),
        ];
        for key in keys {
            assert_eq!(Key::parse(&key.to_string()), Some(key));
        }
        for text in ["", "clusters", "node/", "node/x", "other/1"] {
            assert_eq!(Key::parse(text), None);
        }
    }
}
