//! Identifiers. Each is a newtype; none is ever reused for another thing.

use crate::position::Position;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A cluster, chosen at random when it is created. Written into every data directory and every handshake.
    ClusterId(u64), "c"
);
id!(
    /// A node as the operator names it. Survives restarts and even a new disk.
    NodeId(u32), "n"
);
id!(
    /// One data directory, chosen at random when it is initialised. A new disk under an old node id has
    /// another store id (PR-17 b).
    StoreId(u64), "s"
);
id!(
    /// One life of a process. Grows at every start, also after a clean end: a process that starts is always
    /// another member (N1, PR-17). What a clean-shutdown mark allows is decided by comparing stores, not
    /// lives.
    Incarnation(u64), "i"
);
id!(
    /// A table.
    TableId(u32), "t"
);
id!(
    /// A partition. Ids below [`PartitionId::FIRST_USER`] are reserved for system tables.
    PartitionId(u32), "p"
);
id!(
    /// How often a cluster's records were made anew from its nodes. Whoever was told of one takes no word
    /// of a controller of a lower one any more (PR-107).
    Generation(u64), "generation "
);
id!(
    /// Names one proposal of a configuration change, so that its outcome can be recognised after a lost reply
    /// (PR-16).
    ProposalId(u64), "proposal "
);
id!(
    /// Names an ingestion feed whose position is kept inside the partitions it writes.
    FeedId(u64), "feed "
);

impl Generation {
    /// True if nobody ever made the records anew.
    pub fn is_first(&self) -> bool {
        self.0 == 0
    }

    /// The next one.
    pub fn next(self) -> Generation {
        Generation(self.0 + 1)
    }
}

impl PartitionId {
    /// The lowest partition id of a user's table.
    pub const FIRST_USER: u32 = 64;
}

/// One replica's owner: a node, the store it had and the life it was in (R1, N1).
///
/// A member that restarted, or whose disk was replaced, is another member under the same node id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Its data directory.
    pub store: StoreId,
    /// Its life.
    pub incarnation: Incarnation,
}

impl Member {
    /// True if `other` is the same node with the same disk, in whatever life.
    pub fn same_store(&self, other: &Member) -> bool {
        self.node == other.node && self.store == other.store
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.node, self.incarnation)
    }
}

/// A client's session with one partition: the position of the entry that opened it (N13, PR-46).
///
/// An unknown session below the partition's horizon is "outcome unknown", never a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct SessionId(pub Position);

impl SessionId {
    /// "No session": the request is applied at least once, and its outcome is not kept.
    pub const NONE: SessionId = SessionId(Position::ZERO);

    /// True unless this is [`SessionId::NONE`].
    pub fn is_some(&self) -> bool {
        *self != SessionId::NONE
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}
