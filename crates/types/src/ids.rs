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

    /// The last one that may be: epochs begin with their generation, and have room for no more.
    pub const LAST: Generation = Generation((1 << 28) - 1);

    /// The one that follows all that were seen, `seen` being the highest, at this time in milliseconds since
    /// 1970: at least the minutes since then, so that nodes that were not asked have hardly seen it either
    /// (PR-107).
    pub fn beyond(seen: Generation, wall_ms: u64) -> Generation {
        Generation(seen.0.saturating_add(1).max(wall_ms / 60_000)).min(Generation::LAST)
    }

    /// True if somebody may make the records anew with this one at this time, in milliseconds since 1970: it
    /// is not so far ahead that it leaves no room for the next ones.
    pub fn is_plausible(self, wall_ms: u64) -> bool {
        self <= Generation::LAST && self.0 <= (wall_ms / 60_000).saturating_add(24 * 60)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_follow_the_clock_and_leave_room_for_the_next_ones() {
        let (minute, day) = (60_000, 24 * 60);
        assert_eq!(Generation::beyond(Generation(0), 500 * minute), Generation(500));
        assert_eq!(Generation::beyond(Generation(500), 500 * minute), Generation(501), "twice in a minute");
        assert_eq!(Generation::beyond(Generation(u64::MAX), 0), Generation::LAST);
        assert!(Generation(500 + day).is_plausible(500 * minute));
        assert!(!Generation(501 + day).is_plausible(500 * minute));
        assert!(!Generation(u64::MAX).is_plausible(u64::MAX));
    }
}
