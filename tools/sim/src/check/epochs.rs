//! I10, R1, R6, F05: epochs grow by one, sets change only as they may, and whoever leads was counted before.

use std::collections::BTreeMap;
use types::config::Cause;
use types::{Epoch, Member, PartitionId, PartitionRecord, Term};

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

    /// A configuration was written.
    pub fn written(&mut self, now: u64, record: PartitionRecord) -> Result<(), String> {
        let id = record.id;
        let verdict = match self.newest.get(&id) {
            None => Ok(()),
            Some(old) => check(old, &record).and_then(|()| self.check_seal(now, old, &record)),
        };
        if let Some(old) = self.newest.get(&id).filter(|old| old.term != record.term) {
            *self.changes.entry(id).or_insert(0) += 1;
            self.doubled += u64::from(old.before.is_some());
        }
        self.all.insert((id, record.epoch), record.clone());
        self.newest.insert(id, record);
        verdict
    }

    /// N6: the controller's own silence is no reason to seal.
    fn check_seal(&self, now: u64, old: &PartitionRecord, new: &PartitionRecord) -> Result<(), String> {
        if new.cause != Cause::Suspected || new.term == old.term {
            return Ok(());
        }
        let asked = self.suspected.get(&(old.id, old.primary));
        if asked.is_some_and(|at| now <= at + FRESH) {
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
    use types::{Incarnation, LogKind, NodeId, Policy, ProposalId, StoreId, TableId, Term};

    pub(crate) fn member(node: u32) -> Member {
        Member { node: NodeId(node), store: StoreId(u64::from(node)), incarnation: Incarnation(1) }
    }

    pub(crate) fn record(epoch: u64, term: u64, in_sync: &[u32]) -> PartitionRecord {
        PartitionRecord {
            format: 1,
            id: PartitionId(64),
            table: TableId(1),
            epoch: Epoch(epoch),
            primary: member(in_sync[0]),
            term: Term(term),
            in_sync: in_sync.iter().map(|node| member(*node)).collect(),
            catching_up: Vec::new(),
            policy: Policy::preset("durable", 3, LogKind::Disk).expect("a preset"),
            next_policy: None,
            proposal: ProposalId(epoch),
            cause: Cause::Restarted,
            before: None,
            failover: None,
            lossy: false,
            unknown: Default::default(),
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
        epochs.written(10, seal()).expect("somebody asked for it");
        let mut epochs = begin();
        epochs.suspected(5, PartitionId(64), member(1));
        assert!(epochs.written(FRESH + 6, seal()).is_err(), "long ago");
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
