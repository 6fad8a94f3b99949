//! What the checkers remember of a process.

use std::collections::{BTreeMap, BTreeSet};
use types::{Lsn, Member, PartitionId};

/// Nothing of this is known to the process itself.
#[derive(Debug, Default)]
pub struct Watched {
    /// What was last seen of each replica: serving, committed.
    seen: BTreeMap<PartitionId, (bool, Lsn)>,
    /// Partitions whose replica was sound until its directory was lost in this life: its log is as whole as
    /// it was.
    only_log: BTreeSet<PartitionId>,
    /// Members that chose the log, of partitions that this node leads, and may still rely on it.
    by_log: BTreeSet<(PartitionId, Member)>,
}

impl Watched {
    /// What was last seen of a replica: serving, committed.
    pub fn seen(&self, id: PartitionId) -> (bool, Lsn) {
        self.seen.get(&id).copied().unwrap_or_default()
    }

    /// A replica was looked at.
    pub fn see(&mut self, id: PartitionId, serves: bool, committed: Lsn) {
        self.seen.insert(id, (serves, committed));
    }

    /// A replica was removed: one that is made here again was never seen.
    pub fn removed(&mut self, id: PartitionId) {
        self.seen.remove(&id);
    }

    /// A sound replica lost its directory, and nothing else.
    pub fn keeps_only_log(&mut self, id: PartitionId) {
        self.only_log.insert(id);
    }

    /// True if all that this replica lacks is its directory.
    pub fn has_only_log(&self, id: PartitionId) -> bool {
        self.only_log.contains(&id)
    }

    /// A member chose the log.
    pub fn chooses_log(&mut self, id: PartitionId, member: Member) {
        self.by_log.insert((id, member));
    }

    /// A member cannot rely on the log any more.
    pub fn gives_up_log(&mut self, id: PartitionId, member: Member) {
        self.by_log.remove(&(id, member));
    }

    /// Who chose the log may go on relying on it only if this holds.
    pub fn keep_choices(&mut self, holds: impl Fn(PartitionId, &Member) -> bool) {
        self.by_log.retain(|(id, member)| holds(*id, member));
    }

    /// True if this member chose the log, and may still rely on it.
    pub fn has_chosen_log(&self, id: PartitionId, member: Member) -> bool {
        self.by_log.contains(&(id, member))
    }
}
