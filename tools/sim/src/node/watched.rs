//! What the checkers remember of a process.

use std::collections::{BTreeMap, BTreeSet};
use types::{Engine, Lsn, Member, PartitionId, Position, Term};

/// A state is read again at every look of so many, also where nothing seems to have changed: what an engine
/// does beside its calls may change it.
const READ_AGAIN: u64 = 8;

/// What a replica's engine has: published, applied, persisted; from where on it can be read; and whether a
/// load is on its way into it.
type Stamp = (Position, Position, Position, Lsn, bool);

/// Nothing of this is known to the process itself.
#[derive(Debug, Default)]
pub struct Watched {
    /// What was last seen of each replica: the term that it serves, committed. A term can end and the next
    /// one come to serve in one input.
    seen: BTreeMap<PartitionId, (Option<Term>, Lsn)>,
    /// Partitions whose replica was sound until its directory was lost in this life: its log is as whole as
    /// it was.
    only_log: BTreeSet<PartitionId>,
    /// Members that chose the log, of partitions that this node leads, and may still rely on it.
    by_log: BTreeSet<(PartitionId, Member)>,
    /// The newest offer of files of which each of them has said that it chose the log, or that a later one
    /// has come: what says so of an older one, or the same again, was late on its way.
    offers: BTreeMap<(PartitionId, Member), u64>,
    /// How often states were looked at, and what each engine had when its state was read last.
    looks: u64,
    read: BTreeMap<PartitionId, Stamp>,
}

impl Watched {
    /// What was last seen of a replica: the term that it serves, committed.
    pub fn seen(&self, id: PartitionId) -> (Option<Term>, Lsn) {
        self.seen.get(&id).copied().unwrap_or_default()
    }

    /// A replica was looked at.
    pub fn see(&mut self, id: PartitionId, serves: Option<Term>, committed: Lsn) {
        self.seen.insert(id, (serves, committed));
    }

    /// The states of a process are looked at. Gives the replicas whose states are to be read: all, or where
    /// something changed in their engines, or which were not read for a while.
    pub fn look<'a>(
        &mut self,
        engines: impl Iterator<Item = (PartitionId, &'a dyn Engine)>,
        all: bool,
    ) -> Vec<PartitionId> {
        self.looks += 1;
        let stamp = |engine: &dyn Engine| {
            let (published, applied) = (engine.published(), engine.applied());
            (published, applied, engine.persisted(), engine.read_floor(), engine.pending_load().is_some())
        };
        let stamps: BTreeMap<PartitionId, Stamp> = engines.map(|(id, engine)| (id, stamp(engine))).collect();
        let again = all || self.looks.is_multiple_of(READ_AGAIN);
        let due = |(id, stamp): &(&PartitionId, &Stamp)| again || self.read.get(id) != Some(stamp);
        let due = stamps.iter().filter(due).map(|(id, _)| *id).collect();
        self.read = stamps;
        due
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

    /// A member chose the log when it was made this offer.
    pub fn chooses_log(&mut self, id: PartitionId, member: Member, offer: u64) {
        let newest = self.offers.entry((id, member)).or_default();
        if offer > *newest {
            *newest = offer;
            self.by_log.insert((id, member));
        }
    }

    /// A member asks for something of this offer: what it said of those before it is over.
    pub fn looks_at_offer(&mut self, id: PartitionId, member: Member, offer: u64) {
        let newest = self.offers.entry((id, member)).or_default();
        *newest = (*newest).max(offer.saturating_sub(1));
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
