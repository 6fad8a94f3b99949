//! I10, R1, R6, F05: epochs grow by one, sets change only as they may, and whoever leads was counted before.

use std::collections::{BTreeMap, BTreeSet};
use types::config::Cause;
use types::{Epoch, Lsn, Member, NodeId, PartitionId, PartitionRecord, Term};

/// A suspicion is a reason to seal for so long, microseconds.
const FRESH: u64 = 3_000_000;

/// Every configuration that was written.
#[derive(Debug, Default)]
pub struct Epochs {
    all: BTreeMap<(PartitionId, Epoch), PartitionRecord>,
    newest: BTreeMap<PartitionId, PartitionRecord>,
    suspected: BTreeMap<(PartitionId, Member), u64>,
    changes: BTreeMap<PartitionId, u64>,
    doubled: u64,
    /// The newest epoch of each partition that a node ever kept, and so may have acted in.
    heard: BTreeMap<(PartitionId, NodeId), Epoch>,
    /// Who was not asked when the records were last made anew.
    without: BTreeSet<NodeId>,
    /// What the primary of each configuration knew to be committed when that was written.
    committed: BTreeMap<(PartitionId, Epoch), Lsn>,
    /// The first configuration that may lack what was acknowledged, and when it was written, microseconds.
    first_lossy: BTreeMap<PartitionId, (u64, Epoch)>,
}

impl Epochs {
    /// The newest configuration of every partition.
    pub fn records(&self) -> impl Iterator<Item = &PartitionRecord> {
        self.newest.values()
    }

    /// The newest configuration of a partition.
    pub fn newest(&self, partition: PartitionId) -> Option<&PartitionRecord> {
        self.newest.get(&partition)
    }

    /// The configuration with this epoch.
    pub fn get(&self, partition: PartitionId, epoch: Epoch) -> Option<&PartitionRecord> {
        self.all.get(&(partition, epoch))
    }

    /// True if an operator ever had a copy of this partition lead that may lack what was acknowledged.
    pub fn was_forced(&self, partition: PartitionId) -> bool {
        let mut all = self.all.range((partition, Epoch::ZERO)..=(partition, Epoch(u64::MAX)));
        all.any(|(_, record)| record.cause == Cause::Forced)
    }

    /// True if the records of this partition were ever made of what nodes keep.
    pub fn was_rebuilt(&self, partition: PartitionId) -> bool {
        let mut all = self.all.range((partition, Epoch::ZERO)..=(partition, Epoch(u64::MAX)));
        all.any(|(_, record)| record.cause == Cause::Rebuilt)
    }

    /// The last term of a partition, of those that this node has heard of, in which an operator had a copy
    /// lead that did not count in the term before: it may lack what all had that counted there.
    pub fn last_uncounted(&self, partition: PartitionId, node: NodeId) -> Option<Term> {
        let heard = self.heard.get(&(partition, node)).copied()?;
        let all = self.all.range((partition, Epoch::ZERO)..=(partition, heard));
        let uncounted = |record: &&PartitionRecord| {
            let forced = record.cause == Cause::Forced && record.term.began() == record.epoch;
            let counted = |member: &Member| member.same_store(&record.primary);
            let before = record.before.as_ref().filter(|_| forced);
            before.is_some_and(|before| !before.in_sync.iter().any(counted))
        };
        all.rev().map(|(_, record)| record).find(uncounted).map(|record| record.term)
    }

    /// The first configuration that may lack what was acknowledged before it, and says so; and when it was
    /// written, virtual microseconds.
    pub fn first_lossy(&self, partition: PartitionId) -> Option<(u64, Epoch)> {
        self.first_lossy.get(&partition).copied()
    }

    /// The term of each configuration of a partition.
    pub fn terms(&self, partition: PartitionId) -> BTreeMap<Epoch, Term> {
        let all = self.all.range((partition, Epoch::ZERO)..=(partition, Epoch(u64::MAX)));
        all.map(|((_, epoch), record)| (*epoch, record.term)).collect()
    }

    /// Changes of primaries so far.
    pub fn primary_changes(&self) -> u64 {
        self.changes.values().sum()
    }

    /// The most changes of one partition's primary.
    pub fn most_changes(&self) -> u64 {
        self.changes.values().copied().max().unwrap_or(0)
    }

    /// Reigns that ended before they served.
    pub fn doubled(&self) -> u64 {
        self.doubled
    }

    /// An in-sync backup said that it misses its primary.
    pub fn suspected(&mut self, now: u64, partition: PartitionId, primary: Member) {
        self.suspected.insert((partition, primary), now);
    }

    /// A configuration is being written whose primary knows so much to be committed.
    pub fn note_committed(&mut self, (partition, epoch): (PartitionId, Epoch), committed: Lsn) {
        self.committed.insert((partition, epoch), committed);
    }

    /// True if this was committed before `holds` became true of the partition's configurations, of the newest
    /// of which it is: it may still be told.
    pub fn was_committed(
        &self,
        (partition, lsn): (PartitionId, Lsn),
        holds: impl Fn(&PartitionRecord) -> bool,
    ) -> bool {
        let all = self.all.range((partition, Epoch::ZERO)..=(partition, Epoch(u64::MAX)));
        let first = all.rev().take_while(|(_, record)| holds(record)).last();
        let committed = first.and_then(|(epoch, _)| self.committed.get(epoch));
        committed.is_some_and(|committed| lsn <= *committed)
    }

    /// A configuration was written.
    pub fn written(&mut self, now: u64, record: PartitionRecord) -> Result<(), String> {
        let id = record.id;
        let verdict = match self.newest.get(&id) {
            None => Ok(()),
            Some(old) if record.cause == Cause::Rebuilt && record.term.began() == record.epoch => {
                self.check_rebuilt(old, &record)
            }
            Some(old) => check(old, &record).and_then(|()| self.check_seal(now, old, &record)),
        };
        if let Some(old) = self.newest.get(&id).filter(|old| old.term != record.term) {
            *self.changes.entry(id).or_insert(0) += 1;
            self.doubled += u64::from(old.before.is_some());
        }
        if record.lossy {
            self.first_lossy.entry(id).or_insert((now, record.epoch));
        }
        self.all.insert((id, record.epoch), record.clone());
        self.newest.insert(id, record);
        verdict
    }

    /// A node keeps the record of this epoch, before it acts in it.
    pub fn heard(&mut self, node: NodeId, partition: PartitionId, epoch: Epoch) {
        let heard = self.heard.entry((partition, node)).or_insert(epoch);
        *heard = epoch.max(*heard);
    }

    /// The newest configuration of each partition that any node keeps, where it is not the newest one: who
    /// proposed that has not heard yet that it was written.
    pub fn newest_heard(&self) -> impl Iterator<Item = &PartitionRecord> {
        let heard = |id: PartitionId| {
            let of_nodes = (id, NodeId(0))..=(id, NodeId(u32::MAX));
            self.heard.range(of_nodes).map(|(_, epoch)| *epoch).max()
        };
        self.records().filter_map(move |record| self.get(record.id, heard(record.id)?))
    }

    /// The records are made anew, and these nodes are not asked.
    pub fn go_without(&mut self, nodes: BTreeSet<NodeId>) {
        self.without = nodes;
    }

    /// The configuration that this one follows, if it was written.
    pub fn before(&self, record: &PartitionRecord) -> Option<&PartitionRecord> {
        let follows = record.before.as_ref().filter(|_| record.cause == Cause::Rebuilt);
        let epoch = follows.map_or(Epoch(record.epoch.0.saturating_sub(1)), |before| before.epoch);
        self.get(record.id, epoch)
    }

    /// PR-107: a record that was made anew follows the newest that anybody who was there may have acted in,
    /// counts the same members but for who was not, unless nobody would be left, and lies beyond all epochs.
    fn check_rebuilt(&self, newest: &PartitionRecord, new: &PartitionRecord) -> Result<(), String> {
        let id = new.id;
        new.validate()?;
        let Some(old) = self.before(new) else {
            return Err(format!("{id}: {} was made anew of a record that was never written", new.epoch));
        };
        let of_node = (id, NodeId(0))..=(id, NodeId(u32::MAX));
        let heard = self.heard.range(of_node).filter(|((_, node), _)| !self.without.contains(node));
        let heard = heard.map(|(_, epoch)| *epoch).max().unwrap_or(Epoch::ZERO);
        if old.epoch < heard {
            return Err(format!("{id}: {} follows {}, and {heard} was acted in", new.epoch, old.epoch));
        }
        if new.epoch <= newest.epoch {
            return Err(format!("{id}: {} is no later than {}", new.epoch, newest.epoch));
        }
        let (mut now, mut then) = (new.in_sync.clone(), old.in_sync.clone());
        if then.iter().any(|member| !self.without.contains(&member.node)) {
            then.retain(|member| !self.without.contains(&member.node));
        }
        now.sort();
        then.sort();
        match now == then && then.contains(&new.primary) {
            true => Ok(()),
            false => Err(format!("{id}: {} counts others than {}", new.epoch, old.epoch)),
        }
    }

    /// True if a backup has said of late that it misses this primary: its term may be sealed for that.
    pub fn may_be_sealed(&self, now: u64, partition: PartitionId, primary: Member) -> bool {
        self.suspected.get(&(partition, primary)).is_some_and(|at| now <= at + FRESH)
    }

    /// N6: the controller's own silence is no reason to seal.
    fn check_seal(&self, now: u64, old: &PartitionRecord, new: &PartitionRecord) -> Result<(), String> {
        if new.cause != Cause::Suspected || new.term == old.term {
            return Ok(());
        }
        if self.may_be_sealed(now, old.id, old.primary) {
            return Ok(());
        }
        Err(format!("{}: {} was sealed though no backup misses {}", old.id, old.epoch, old.primary))
    }

    /// A replica acts in this configuration: it must have been written as it is.
    pub fn acted_in(&self, record: &PartitionRecord) -> Result<(), String> {
        match self.get(record.id, record.epoch) {
            Some(written) if written == record => Ok(()),
            Some(_) => Err(format!("{}: {} is not what was written", record.id, record.epoch)),
            None => Err(format!("{}: {} was never written", record.id, record.epoch)),
        }
    }
}

fn check(old: &PartitionRecord, new: &PartitionRecord) -> Result<(), String> {
    let id = old.id;
    new.validate()?;
    if new.epoch != old.epoch.next() {
        return Err(format!("{id}: {} was written over {}", new.epoch, old.epoch));
    }
    let counted = |member: &Member| old.in_sync.iter().any(|known| known.same_store(member));
    let came = |member: &Member| old.catching_up.iter().any(|known| known.same_store(member));
    let new_term = new.term != old.term;
    if new_term && new.cause != Cause::Forced && !counted(&new.primary) {
        return Err(format!(
            "{id}: {} leads in {} and was not counted in {}",
            new.primary, new.epoch, old.epoch
        ));
    }
    if !new_term && new.primary != old.primary {
        return Err(format!("{id}: {} leads in {} without a term of its own", new.primary, new.epoch));
    }
    if new_term && new.term.began() != new.epoch {
        return Err(format!("{id}: {} names a term of {}", new.epoch, new.term));
    }
    let forced = |member: &Member| new.cause == Cause::Forced && *member == new.primary;
    let stranger = new.in_sync.iter().find(|member| !counted(member) && !came(member) && !forced(member));
    if let Some(stranger) = stranger {
        return Err(format!("{id}: {stranger} is counted in {} and was nobody in {}", new.epoch, old.epoch));
    }
    if new_term && new.in_sync.iter().any(|member| !counted(member)) && new.cause != Cause::Forced {
        return Err(format!("{id}: the seal {} counts who was not counted in {}", new.epoch, old.epoch));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use types::config::PreviousTerm;
    use types::{Incarnation, LogKind, NodeId, Policy, ProposalId, StoreId, TableId, Term};

    pub(crate) fn member(node: u32) -> Member {
        Member { node: NodeId(node), store: StoreId(u64::from(node)), incarnation: Incarnation(1) }
    }

    pub(crate) fn record(epoch: u64, term: u64, in_sync: &[u32]) -> PartitionRecord {
        PartitionRecord {
            term: Term(term),
            proposal: ProposalId(epoch),
            cause: Cause::Restarted,
            ..PartitionRecord::new(
                PartitionId(64),
                TableId(1),
                Epoch(epoch),
                in_sync.iter().map(|node| member(*node)).collect(),
                Policy::preset("durable", 3, LogKind::Disk).expect("a preset"),
            )
        }
    }

    #[test]
    fn good_histories_pass() {
        let mut epochs = Epochs::default();
        epochs.written(0, record(1, 1, &[1, 2, 3])).expect("the first");
        epochs.written(0, record(2, 1, &[1, 2])).expect("an eviction");
        epochs.written(0, record(3, 3, &[2])).expect("a failover");
        assert_eq!((epochs.primary_changes(), epochs.most_changes()), (1, 1));
    }

    #[test]
    fn bad_histories_are_rejected() {
        let bad: [(&str, PartitionRecord); 6] = [
            ("an epoch is left out", record(3, 1, &[1, 2, 3])),
            ("an epoch is written again", record(1, 1, &[1, 2])),
            ("a stranger leads", record(2, 2, &[4, 1])),
            ("a stranger is counted", record(2, 1, &[1, 4])),
            ("another leads in the same term", record(2, 1, &[2, 1])),
            ("a term that began before", record(3, 2, &[2, 1])),
        ];
        for (what, record_after) in bad {
            let mut epochs = Epochs::default();
            epochs.written(0, record(1, 1, &[1, 2, 3])).expect("the first");
            assert!(epochs.written(0, record_after).is_err(), "{what}");
        }
    }

    #[test]
    fn a_seal_needs_a_backup_that_misses_the_primary() {
        let seal = || PartitionRecord { cause: Cause::Suspected, ..record(2, 2, &[2, 3]) };
        let begin = || {
            let mut epochs = Epochs::default();
            epochs.written(0, record(1, 1, &[1, 2, 3])).expect("the first");
            epochs
        };
        assert!(begin().written(10, seal()).is_err());
        let mut epochs = begin();
        epochs.suspected(5, PartitionId(64), member(1));
        let may = |now, primary| epochs.may_be_sealed(now, PartitionId(64), member(primary));
        assert!(may(FRESH + 5, 1) && !may(FRESH + 6, 1) && !may(5, 2));
        epochs.written(10, seal()).expect("somebody asked for it");
        let mut epochs = begin();
        epochs.suspected(5, PartitionId(64), member(1));
        assert!(epochs.written(FRESH + 6, seal()).is_err(), "long ago");
    }

    #[test]
    fn pr107_records_that_are_remade_follow_the_newest_that_anybody_heard_of() {
        let remade = |before: u64, epoch: u64, in_sync: &[u32]| PartitionRecord {
            cause: Cause::Rebuilt,
            before: Some(PreviousTerm {
                epoch: Epoch(before),
                term: Term(1),
                primary: member(1),
                handed_over: false,
                in_sync: vec![member(1), member(2)],
            }),
            ..record(epoch, epoch, in_sync)
        };
        let without = |node: Option<u32>, heard: u64, record_after| {
            let mut epochs = Epochs::default();
            epochs.go_without(node.map(NodeId).into_iter().collect());
            epochs.written(0, record(1, 1, &[1, 2, 3])).expect("the first");
            epochs.written(0, record(2, 1, &[1, 2])).expect("an eviction");
            epochs.written(0, record(3, 1, &[1])).expect("another one");
            epochs.heard(NodeId(1), PartitionId(64), Epoch(heard));
            epochs.heard(NodeId(2), PartitionId(64), Epoch(2));
            epochs.written(1, record_after)
        };
        let written = |heard: u64, record_after| without(None, heard, record_after);
        let far = 1 << 32;
        written(2, remade(2, far, &[1, 2])).expect("nobody has heard of the last one");
        written(3, remade(2, far, &[1, 2])).expect_err("somebody acts in the last one");
        written(2, remade(2, far, &[1])).expect_err("a member is left out");
        written(2, remade(2, far, &[1, 2, 3])).expect_err("one counts that was evicted");
        written(2, remade(2, 3, &[1, 2])).expect_err("that epoch was there");
        written(2, remade(7, far, &[1, 2])).expect_err("nobody wrote that one");
        let of_two = PartitionRecord { primary: member(2), ..remade(2, far, &[2]) };
        without(Some(1), 3, of_two.clone()).expect("who acted in the last one is not there");
        without(Some(2), 3, of_two.clone()).expect_err("who acted in the last one is there");
        without(Some(1), 3, remade(2, far, &[1, 2])).expect_err("who is not there counts");
        without(Some(1), 3, remade(3, far, &[1])).expect("nobody else does");
    }

    #[test]
    fn an_epoch_that_was_never_written_is_rejected() {
        let mut epochs = Epochs::default();
        epochs.written(0, record(1, 1, &[1, 2])).expect("the first");
        epochs.acted_in(&record(1, 1, &[1, 2])).expect("as written");
        assert!(epochs.acted_in(&record(2, 1, &[1, 2])).is_err());
        assert!(epochs.acted_in(&record(1, 1, &[1])).is_err());
    }
}
