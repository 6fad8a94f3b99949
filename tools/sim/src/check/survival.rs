//! I1: an acknowledged commit survives what its policy promises, and what may be lost is lost only where it
//! was said.

use crate::check::lineage::Lineage;
use crate::check::wanted::{rests_on_primary, survives_restart};
use std::collections::{BTreeMap, BTreeSet};
use types::{Epoch, Member, NodeId, PartitionId, PartitionRecord, Position, Term};

/// An acknowledged commit.
#[derive(Clone, Debug)]
struct Acknowledged {
    at: Position,
    /// When.
    time: u64,
    /// The configuration that was recorded then.
    record: PartitionRecord,
}

/// A failover that may have lost something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossyFailover {
    /// The configuration that names the loss.
    pub epoch: Epoch,
    /// When its primary was first seen to serve, virtual microseconds.
    pub served: u64,
}

/// What was acknowledged, and what became of it.
#[derive(Debug, Default)]
pub struct Survival {
    acknowledged: BTreeMap<PartitionId, Vec<Acknowledged>>,
    /// Acknowledged commits that are lost, and since when.
    lost: BTreeMap<(PartitionId, Position), u64>,
    /// When a process of this node last ended.
    ended: BTreeMap<NodeId, u64>,
    /// When this node's disk was last harmed.
    faulted: BTreeMap<NodeId, u64>,
    /// Partitions that had a failover which may have lost something: the last of them.
    lossy: BTreeMap<PartitionId, LossyFailover>,
    /// When an operator last forced a promotion, and its term.
    forced: BTreeMap<PartitionId, (u64, Term)>,
}

impl Survival {
    /// A write was acknowledged under this configuration.
    pub fn acknowledged(&mut self, time: u64, at: Position, record: &PartitionRecord) {
        let all = self.acknowledged.entry(record.id).or_default();
        all.push(Acknowledged { at, time, record: record.clone() });
    }

    /// A process ended: what was in its memory is gone.
    pub fn ended(&mut self, time: u64, node: NodeId) {
        self.ended.insert(node, time);
    }

    /// A disk lost or changed what it held.
    pub fn faulted(&mut self, time: u64, node: NodeId) {
        self.faulted.insert(node, time);
    }

    /// An operator had another lead, and was told what that may lose.
    pub fn forced(&mut self, time: u64, partition: PartitionId, term: Term) {
        self.forced.insert(partition, (time, term));
    }

    /// True if it was acknowledged after an operator had another lead, by an old primary that was alone in
    /// its set: the operator was told that it goes on until it hears of the new term, and that this is lost.
    fn acknowledged_in_vain(&self, one: &Acknowledged) -> bool {
        let after = self.forced.get(&one.record.id).is_some_and(|(at, _)| *at < one.time);
        after && self.is_forced_over(&one.record, one.at.term)
    }

    /// True if an operator had another lead than the primary of this term, which was alone in its set: nobody
    /// can tell it.
    pub fn is_forced_over(&self, record: &PartitionRecord, term: Term) -> bool {
        record.in_sync.len() == 1 && self.forced.get(&record.id).is_some_and(|(_, forced)| term < *forced)
    }

    /// Commits of a partition that are lost, and that this node acknowledged alone in its set, in the process
    /// that it has now.
    pub fn lost_with(&self, partition: PartitionId, node: NodeId) -> Vec<Position> {
        let remembers = |time: u64| {
            let before = |at: Option<&u64>| at.is_none_or(|at| *at < time);
            before(self.ended.get(&node)) && before(self.faulted.get(&node))
        };
        let alone = |one: &&Acknowledged| {
            one.record.primary.node == node
                && one.record.in_sync.len() == 1
                && remembers(one.time)
                && self.lost.contains_key(&(partition, one.at))
        };
        self.acknowledged.get(&partition).into_iter().flatten().filter(alone).map(|one| one.at).collect()
    }

    /// Acknowledged commits that are lost, and when a primary without them was first seen to serve.
    pub fn lost(&self) -> &BTreeMap<(PartitionId, Position), u64> {
        &self.lost
    }

    /// The last failover that may have lost something of this partition, and said so.
    pub fn lossy(&self, partition: PartitionId) -> Option<LossyFailover> {
        self.lossy.get(&partition).copied()
    }

    /// A new primary serves, in this configuration, with a log that ends at `tip`; `last` is the one before
    /// its term.
    pub fn serves(
        &mut self,
        time: u64,
        lineage: &Lineage,
        last: Option<&PartitionRecord>,
        record: &PartitionRecord,
        tip: Position,
    ) -> Result<(), String> {
        let id = record.id;
        if record.lossy {
            self.lossy.insert(id, LossyFailover { epoch: record.epoch, served: time });
        }
        let kept: BTreeSet<Position> = lineage.line(id, tip).map(|known| known.at).collect();
        let all = self.acknowledged.get(&id).map(Vec::as_slice).unwrap_or_default();
        let known = |one: &&Acknowledged| self.lost.contains_key(&(id, one.at));
        let gone: Vec<&Acknowledged> =
            all.iter().filter(|one| !kept.contains(&one.at) && !known(one)).collect();
        for one in &gone {
            self.may_be_lost(one, last, record)?;
        }
        let gone: Vec<Position> = gone.iter().map(|one| one.at).collect();
        self.lost.extend(gone.into_iter().map(|at| ((id, at), time)));
        Ok(())
    }

    /// Whether an acknowledged commit may be lost by what has happened since.
    fn may_be_lost(
        &self,
        one: &Acknowledged,
        last: Option<&PartitionRecord>,
        record: &PartitionRecord,
    ) -> Result<(), String> {
        let what = format!("{} {} was acknowledged under '{}'", record.id, one.at, one.record.policy);
        if self.acknowledged_in_vain(one) {
            return Ok(());
        }
        if !record.lossy {
            return Err(format!("{what} and is not in the log of {}, which names no loss", record.epoch));
        }
        if self.forced.get(&record.id).is_some_and(|(at, _)| one.time <= *at) {
            return Ok(());
        }
        let policies = || std::iter::once(&one.record.policy).chain(&one.record.next_policy);
        if policies().any(rests_on_primary) {
            return Ok(());
        }
        let survives = policies().any(survives_restart);
        let since = if survives { &self.faulted } else { &self.ended };
        let keeper = |set: &[Member]| {
            set.iter().find(|member| since.get(&member.node).is_none_or(|at| *at < one.time)).copied()
        };
        // PR-17: such a term waits for "all members of the last recorded set", who have all there is to have;
        // whoever left it before may have kept what is lost.
        match keeper(last.map_or(&one.record.in_sync, |last| &last.in_sync)) {
            None => Ok(()),
            Some(keeper) => {
                Err(format!("{what}, {keeper} has forgotten nothing, and it is lost in {}", record.epoch))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::epochs::tests::record;
    use crate::check::lineage::tests::{at, entry};
    use types::{LogKind, Policy};

    fn under(name: &str, log: LogKind) -> PartitionRecord {
        let policy = Policy::preset(name, 3, log).expect("a preset");
        PartitionRecord { policy, ..record(1, 1, &[1, 2, 3]) }
    }

    /// (1,1) is kept, (1,2) is replaced by (2,2).
    fn lineage() -> Lineage {
        let mut lineage = Lineage::default();
        let first = entry(at(1, 1), 0, "a", 1);
        lineage.add(&first).expect("adds");
        lineage.add(&entry(at(1, 2), first.crc(), "a", 2)).expect("adds");
        lineage.add(&entry(at(2, 2), first.crc(), "a", 3)).expect("adds");
        lineage
    }

    /// (2,2) is replaced by (3,2), too.
    fn lineage_with_third() -> Lineage {
        let mut lineage = lineage();
        let first = entry(at(1, 1), 0, "a", 1);
        lineage.add(&entry(at(3, 2), first.crc(), "a", 4)).expect("adds");
        lineage
    }

    fn after(lossy: bool) -> PartitionRecord {
        PartitionRecord { lossy, ..record(2, 2, &[2, 3]) }
    }

    #[test]
    fn a_durable_commit_that_vanishes_is_rejected() {
        let mut survival = Survival::default();
        survival.acknowledged(10, at(1, 1), &under("durable", LogKind::Disk));
        survival.serves(30, &lineage(), None, &after(false), at(2, 2)).expect("it is there");
        survival.acknowledged(10, at(1, 2), &under("durable", LogKind::Disk));
        for node in 1..=3 {
            survival.ended(20, NodeId(node));
        }
        assert!(survival.serves(30, &lineage(), None, &after(true), at(2, 2)).is_err());
        for node in 1..=3 {
            survival.faulted(20, NodeId(node));
        }
        survival.serves(30, &lineage(), None, &after(true), at(2, 2)).expect("all three disks were harmed");
    }

    #[test]
    fn a_commit_in_memory_may_go_only_with_all_memories() {
        let mut survival = Survival::default();
        survival.acknowledged(10, at(1, 2), &under("semi", LogKind::Disk));
        survival.ended(20, NodeId(1));
        survival.ended(20, NodeId(2));
        assert!(survival.serves(30, &lineage(), None, &after(true), at(2, 2)).is_err());
        survival.ended(20, NodeId(3));
        survival.serves(30, &lineage(), None, &after(true), at(2, 2)).expect("nobody remembers");
        assert_eq!(survival.lost().len(), 1);
    }

    #[test]
    fn who_left_the_set_is_not_waited_for_and_who_joined_it_is() {
        let under = under("semi", LogKind::Disk);
        let (left, joined) = (record(1, 1, &[2]), record(1, 1, &[2, 4]));
        let mut survival = Survival::default();
        survival.acknowledged(10, at(1, 2), &under);
        (2..=3).for_each(|node| survival.ended(20, NodeId(node)));
        assert!(survival.serves(30, &lineage(), Some(&under), &after(true), at(2, 2)).is_err());
        assert!(survival.serves(30, &lineage(), Some(&joined), &after(true), at(2, 2)).is_err());
        survival
            .serves(30, &lineage(), Some(&left), &after(true), at(2, 2))
            .expect("the last of the set forgot it");
    }

    #[test]
    fn who_was_left_alone_acknowledges_in_vain_once_another_was_forced_to_lead() {
        let alone =
            PartitionRecord { in_sync: vec![record(1, 1, &[1]).primary], ..under("sync", LogKind::Disk) };
        let id = alone.id;
        let lost = |time: u64, record: &PartitionRecord, of: Position| {
            let mut survival = Survival::default();
            survival.forced(20, id, Term(2));
            survival.acknowledged(time, of, record);
            survival.serves(30, &lineage(), None, &after(false), at(2, 2)).map(|()| survival.lost().len())
        };
        assert_eq!(lost(30, &alone, at(1, 2)), Ok(1), "the operator was told so");
        assert!(lost(10, &alone, at(1, 2)).is_err(), "what was there before is named by the forced term");
        assert!(lost(30, &under("sync", LogKind::Disk), at(1, 2)).is_err(), "others had to acknowledge it");
        let later = lineage_with_third();
        let mut survival = Survival::default();
        survival.forced(20, id, Term(2));
        survival.acknowledged(30, at(2, 2), &alone);
        assert!(
            survival.serves(30, &later, None, &after(false), at(3, 2)).is_err(),
            "of the forced term itself"
        );
    }

    #[test]
    fn a_loss_that_is_not_named_is_rejected() {
        let mut survival = Survival::default();
        survival.acknowledged(10, at(1, 2), &under("async", LogKind::Disk));
        assert!(survival.serves(30, &lineage(), None, &after(false), at(2, 2)).is_err());
        survival.serves(30, &lineage(), None, &after(true), at(2, 2)).expect("it said so");
        let lossy = LossyFailover { epoch: after(true).epoch, served: 30 };
        assert_eq!(survival.lossy(record(1, 1, &[1]).id), Some(lossy));
    }
}
