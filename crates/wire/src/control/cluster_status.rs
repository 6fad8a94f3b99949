//! What controllers say of all nodes and partitions.

use super::NodeStatus;
use serde::{Deserialize, Serialize};
use types::{Member, NodeId, PartitionId, PartitionRecord};

/// The last status of every node, with its age.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Each node's last status and the milliseconds since.
    pub nodes: Vec<(NodeStatus, u64)>,
    /// The records of all partitions.
    pub partitions: Vec<PartitionRecord>,
    /// Primaries on whose disk acknowledgements rest, and whose log's disk has hung for a second or more.
    #[serde(default)]
    pub hung: Vec<HungDisk>,
    /// Nodes that are to have a copy, failed as members of its partition, and are let in again later.
    #[serde(default)]
    pub back_offs: Vec<BackOff>,
}

/// A node that is let in again as a member of a partition only after a while, since it failed as one (PR-67).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BackOff {
    /// The partition.
    pub partition: PartitionId,
    /// The node.
    pub node: NodeId,
    /// How often it failed in a row.
    pub times: u32,
    /// For how long it is not let in yet, milliseconds.
    pub ms: u64,
}

/// A primary whose log's disk hangs (PR-300, PR-341).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HungDisk {
    /// The partition that it leads.
    pub partition: PartitionId,
    /// Who leads.
    pub primary: Member,
    /// For how long there has been something to write, and nothing was written: milliseconds.
    pub ms: u64,
}
