//! I11: what the transaction manager has removed from its log, every partition with a part in it has on the
//! disk of every copy that counts (T_P\*). Of the commits of a partition it is enough to look at the newest
//! one that an entry removes: a partition's log has them in the order of their timestamps (PR-251). It is
//! looked at as soon as its row goes, whatever is kept from before it (PR-394), and no later than when the
//! manager says that nothing up to it is kept.

use super::lineage::{Lineage, Transactional};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use types::commits::{decode_timestamp, newest_flush_key, truncated_key};
use types::system::read_commit;
use types::{KeySpace, Member, PartitionId, PartitionRecord, Position};
use wire::commit::decode_write_set;
use wire::{Effects, Entry};

/// What was seen of commits, in the manager's log and in those of partitions.
#[derive(Debug, Default)]
pub struct Truncation {
    /// The partitions in which each commit has a part.
    named: BTreeMap<Position, Vec<PartitionId>>,
    /// The same commits, by the keys under which the manager has them.
    keys: BTreeMap<Bytes, Position>,
    /// The entries with which a partition's log has a commit: a failover may have lost one of them.
    flushes: BTreeMap<(PartitionId, Position), BTreeSet<Position>>,
    /// Commits whose rows have gone and that were not looked at yet: of each entry that removes some, the
    /// newest one of each partition.
    gone: Vec<(PartitionId, Position)>,
    /// All commits whose rows have gone.
    removed: BTreeSet<Position>,
    /// Entries of the manager's log after which nothing is kept, up to which, and that were not looked at
    /// yet.
    due: Vec<(Position, Position)>,
    /// Commits up to here were looked at.
    looked_at: Position,
}

/// The newest commit with a part in a partition that the manager's log has no more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removed {
    /// Its timestamp.
    pub commit: Position,
    /// The partition.
    pub partition: PartitionId,
    /// Entries of the partition's log that have it.
    flushes: Vec<Position>,
}

impl Truncation {
    /// Takes note of an entry of any log, once.
    pub fn add(&mut self, transactional: &Transactional, entry: &Entry) {
        let partition = entry.header().partition;
        if !transactional.has(partition) {
            return;
        }
        let effects = entry.effects().and_then(|effects| Effects::decode(effects).ok());
        let mutations = effects.map_or(Vec::new(), |effects| effects.mutations);
        let of_manager = transactional.manager == Some(partition);
        let mut gone = BTreeMap::new();
        for one in &mutations {
            match &one.value {
                Some(value) if of_manager => self.add_of_manager(entry.at(), &one.key, value),
                Some(value) if one.key == newest_flush_key() => {
                    if let Some(commit) = decode_timestamp(value) {
                        self.flushes.entry((partition, commit)).or_default().insert(entry.at());
                    }
                }
                None if of_manager => self.remove(&one.key, &mut gone),
                _ => {}
            }
        }
        self.gone.extend(gone);
    }

    /// A row of the manager's goes. Of each partition with a part in a commit the newest one is noted.
    fn remove(&mut self, key: &Bytes, gone: &mut BTreeMap<PartitionId, Position>) {
        let Some(commit) = self.keys.remove(key) else { return };
        self.removed.insert(commit);
        for partition in self.named.remove(&commit).into_iter().flatten() {
            let newest = gone.entry(partition).or_default();
            *newest = commit.max(*newest);
        }
    }

    fn add_of_manager(&mut self, at: Position, key: &Bytes, value: &Bytes) {
        if *key == truncated_key() {
            self.due.extend(decode_timestamp(value).map(|upto| (at, upto)));
            return;
        }
        if !KeySpace::Bare.has(key) {
            return;
        }
        let read = read_commit(&KeySpace::Bare.key_of(key), value).ok();
        let kept = read.and_then(|(commit, _, writes)| Some((commit, decode_write_set(&writes).ok()?)));
        if let Some((commit, kept)) = kept {
            self.keys.insert(key.clone(), commit);
            self.named.insert(commit, kept.iter().map(|writes| writes.partition).collect());
        }
    }

    /// Entries of a partition's logs with which these have a commit.
    fn with(&self, partition: PartitionId, commit: Position) -> impl Iterator<Item = Position> {
        self.flushes.get(&(partition, commit)).into_iter().flatten().copied()
    }

    /// Whether a partition's log up to `tip` has a commit; none: no log of it ever had it.
    pub fn has(
        &self,
        lineage: &Lineage,
        (partition, commit): (PartitionId, Position),
        tip: Option<Position>,
    ) -> Option<bool> {
        let known = self.flushes.contains_key(&(partition, commit));
        let has = |at: Position| tip.is_some_and(|tip| lineage.has(partition, tip, at));
        known.then(|| self.with(partition, commit).any(has))
    }

    /// How many of these entries, which a replica gives up, are parts of commits that their manager keeps no
    /// more, and that the partition's log up to `tip` does not have: these are lost (PR-393, PR-418).
    pub fn lost_with<'a>(
        &self,
        lineage: &Lineage,
        entries: impl Iterator<Item = &'a Entry>,
        tip: Option<Position>,
    ) -> u64 {
        let lost = |entry: &&Entry| {
            let partition = entry.header().partition;
            let commit = commit_of(entry).filter(|commit| self.removed.contains(commit));
            commit.is_some_and(|commit| self.has(lineage, (partition, commit), tip) == Some(false))
        };
        entries.filter(lost).count() as u64
    }

    /// What was removed since the last time, of each partition the newest commit of each entry.
    pub fn removed(&mut self, lineage: &Lineage) -> Vec<Removed> {
        let Some(manager) = lineage.transactional().manager else { return Vec::new() };
        let mut removed = std::mem::take(&mut self.gone);
        for (at, upto) in std::mem::take(&mut self.due) {
            let floor = self.looked_at;
            let line = lineage.line(manager, at).map(|known| known.at);
            let mut newest = BTreeMap::new();
            for commit in line.skip_while(|at| *at > upto).take_while(|at| *at > floor) {
                for partition in self.named.get(&commit).into_iter().flatten() {
                    newest.entry(*partition).or_insert(commit);
                }
            }
            self.looked_at = floor.max(upto);
            removed.extend(newest);
        }
        let with_flushes = |(partition, commit): (PartitionId, Position)| {
            let flushes = self.with(partition, commit).collect();
            Removed { commit, partition, flushes }
        };
        removed.into_iter().map(with_flushes).collect()
    }
}

/// The commit of which an entry of a partition's log is a part; none: it is of none.
fn commit_of(entry: &Entry) -> Option<Position> {
    let effects = entry.effects().and_then(|effects| Effects::decode(effects).ok())?;
    let newest = effects.mutations.iter().find(|one| one.key == newest_flush_key())?;
    decode_timestamp(newest.value.as_ref()?)
}

impl Removed {
    /// Who counts in the partition and lacks the commit, in a sentence. `has`: a member has this entry of the
    /// partition's log, or files with what it says, on its disk.
    pub fn fault(&self, record: &PartitionRecord, has: impl Fn(&Member, Position) -> bool) -> Option<String> {
        let lacks = |member: &&Member| !self.flushes.iter().any(|at| has(member, *at));
        let member = record.in_sync.iter().find(lacks)?;
        let (commit, partition) = (self.commit, self.partition);
        Some(format!(
            "{commit} is kept no more, and {member}, which counts in {partition}, does not have it on its disk"
        ))
    }
}
