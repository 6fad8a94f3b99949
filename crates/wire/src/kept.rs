//! What a node keeps of its cluster's records, so that they can be made anew if the metastore is lost
//! (PR-107).

use crate::control::RecordText;
use serde::{Deserialize, Serialize};
use types::{ClusterId, Epoch, Generation, Member, NodeId, PartitionId, StoreId, TableId};

/// The records that controllers told a node, durably kept there before it acted on them. The answer to
/// [`crate::control::AdminCommand::Records`], as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KeptRecords {
    /// The node in its present incarnation.
    pub member: Member,
    /// Its cluster; none if it was never part of one.
    pub cluster: Option<ClusterId>,
    /// It takes no word of a controller of a lower one any more.
    pub generation: Generation,
    /// How often it has been asked by somebody who made the records anew, this time among them (PR-160).
    #[serde(default)]
    pub asked: u32,
    /// For which generations, the newest ones, this one among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub askings: Vec<Generation>,
    /// Up to when it was told, in the generation that the cluster's record names.
    pub revision: u64,
    /// The revision of the newest cluster map that was whole: what it does not name, and is not newer, is
    /// gone. None: what the node kept once was lost, or never was, so it may have acted on records that
    /// are not here.
    pub whole: Option<u64>,
    /// Tables that it was told are gone.
    pub dropped: Vec<TableId>,
    /// Nodes that it was told are gone, each with every disk that it had, the last one last (PR-159, PR-280).
    #[serde(default)]
    pub removed: Vec<(NodeId, StoreId)>,
    /// Each key as the metastore has it, with its record.
    pub records: Vec<(String, RecordText)>,
    /// The highest epoch that anything of a replica here names: its configuration or its log.
    pub seen: Vec<(PartitionId, Epoch)>,
    /// The controllers that it is connected to.
    pub controllers: Vec<String>,
}
