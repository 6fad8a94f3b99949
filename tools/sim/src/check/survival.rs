//! I1: an acknowledged commit survives what its policy promises, and what may be lost is lost only where it
//! was said.

use crate::check::epochs::Epochs;
use crate::check::lineage::Lineage;
use crate::check::wanted::{rests_on_primary, survives_restart, wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use types::{Epoch, Member, NodeId, PartitionId, PartitionRecord, Position, Term};

/// A primary that commits rest on is not given up while nothing has been wrong with it for so long. It is the
/// time for which nodes and controllers would have had to miss it, microseconds.
const WAITED_US: u64 = 1_000_000;

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

/// An acknowledged commit that is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missed {
    /// The configuration in which a primary without it was first seen to serve.
    pub epoch: Epoch,
    /// True if it changed rows.
    pub changes_rows: bool,
    /// True if it is of global transactions, and is brought again from their manager's log.
    pub brought_again: bool,
}

/// A term took the lead from a primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// The primary.
    pub from: Member,
    /// For how long nothing had been wrong with it; zero if something was. Microseconds.
    pub sound_us: u64,
    /// For how long it could have been missed, in the incarnation that led. Microseconds.
    pub missed_us: u64,
}

/// An operator had another lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Forced {
    /// When, virtual microseconds.
    time: u64,
    term: Term,
    /// Where the log ended with which somebody first came to serve in that term or a later one.
    served: Option<Position>,
}

/// What was acknowledged, and what became of it.
#[derive(Debug, Default)]
pub struct Survival {
    acknowledged: BTreeMap<PartitionId, Vec<Acknowledged>>,
    /// Acknowledged commits that are lost, and since when.
    lost: BTreeMap<(PartitionId, Position), u64>,
    /// The same, and where a primary without them was first seen to serve.
    missed: BTreeMap<(PartitionId, Position), Missed>,
    /// When a process of this node last ended.
    ended: BTreeMap<NodeId, u64>,
    /// When this node's disk was last harmed.
    faulted: BTreeMap<NodeId, u64>,
    /// Until when what this node's disk has was in doubt: from a harm until that is made good.
    doubtful: BTreeMap<NodeId, u64>,
    /// Up to where this node's disk had a partition's log when its last process ended.
    durable: BTreeMap<(NodeId, PartitionId), Position>,
    /// Terms that took the lead from a primary.
    sealed: BTreeMap<(PartitionId, Term), Sealed>,
    /// Partitions that had a failover which may have lost something: the last of them.
    lossy: BTreeMap<PartitionId, LossyFailover>,
    /// The last promotion that an operator forced.
    forced: BTreeMap<PartitionId, Forced>,
    /// When the records were last made anew without who led, and the term that follows.
    went_back: BTreeMap<PartitionId, (u64, Term)>,
    /// When the records were made anew without a node, and without which.
    left_out: BTreeMap<PartitionId, Vec<(u64, NodeId)>>,
}

impl Survival {
    /// A write was acknowledged under this configuration.
    pub fn acknowledged(&mut self, time: u64, at: Position, record: &PartitionRecord) {
        let all = self.acknowledged.entry(record.id).or_default();
        all.push(Acknowledged { at, time, record: record.clone() });
    }

    /// A process ended: what was in its memory is gone, and of each partition's log the disk has this.
    pub fn ended(&mut self, time: u64, node: NodeId, durable: impl Iterator<Item = (PartitionId, Position)>) {
        self.ended.insert(node, time);
        self.durable.extend(durable.map(|(partition, at)| ((node, partition), at)));
    }

    /// A term takes the lead from a primary.
    pub fn sealed(&mut self, partition: PartitionId, term: Term, sealed: Sealed) {
        self.sealed.insert((partition, term), sealed);
    }

    /// A disk lost or changed what it held.
    pub fn faulted(&mut self, time: u64, node: NodeId) {
        self.faulted.insert(node, time);
        self.doubtful.insert(node, u64::MAX);
    }

    /// What a disk lost or changed has been made good.
    pub fn made_good(&mut self, time: u64, node: NodeId) {
        self.doubtful.insert(node, time);
    }

    /// An operator had another lead, and was told what that may lose.
    pub fn forced(&mut self, time: u64, partition: PartitionId, term: Term) {
        self.forced.insert(partition, Forced { time, term, served: None });
    }

    /// The records were made anew without the primary of the term before this one, as an operator wanted. Who
    /// leads now may have what that one had given up (PR-283).
    pub fn goes_back(&mut self, time: u64, partition: PartitionId, term: Term) {
        self.went_back.insert(partition, (time, term));
    }

    /// When an operator last had another lead, or went on without who led, and the term of who leads then.
    pub fn last_forced(&self, partition: PartitionId) -> Option<(u64, Term)> {
        let forced = self.forced.get(&partition).map(|forced| (forced.time, forced.term));
        forced.max(self.went_back.get(&partition).copied())
    }

    /// The records were made anew without this node, as an operator wanted.
    pub fn left_out(&mut self, time: u64, partition: PartitionId, node: NodeId) {
        self.left_out.entry(partition).or_default().push((time, node));
    }

    /// True if it was acknowledged by nobody but a node that an operator then went on without.
    fn was_left_out(&self, one: &Acknowledged) -> bool {
        let policies = || std::iter::once(&one.record.policy).chain(&one.record.next_policy);
        let all = || one.record.in_sync.iter().chain([&one.record.primary]);
        let alone = |node: NodeId| match policies().any(rests_on_primary) {
            true => one.record.primary.node == node,
            false => all().all(|member| member.node == node),
        };
        let left_out = self.left_out.get(&one.record.id).into_iter().flatten();
        left_out.into_iter().any(|(at, node)| one.time <= *at && alone(*node))
    }

    /// True if it was acknowledged after an operator had another lead, by an old primary that was alone in
    /// its set: the operator was told that it goes on until it hears of the new term, and that this is lost.
    fn acknowledged_in_vain(&self, one: &Acknowledged) -> bool {
        let after = self.forced.get(&one.record.id).is_some_and(|forced| forced.time < one.time);
        after && self.is_forced_over(&one.record, one.at.term)
    }

    /// True if it was acknowledged before an operator had another lead, and whoever served then had it no
    /// more.
    fn was_forced_away(&self, one: &Acknowledged, lineage: &Lineage) -> bool {
        let id = one.record.id;
        let Some(forced) = self.forced.get(&id) else { return false };
        one.time <= forced.time && !forced.served.is_some_and(|tip| lineage.has(id, tip, one.at))
    }

    /// True if an operator had another lead than the primary of this term, which was alone in its set: nobody
    /// can tell it.
    pub fn is_forced_over(&self, record: &PartitionRecord, term: Term) -> bool {
        record.in_sync.len() == 1 && self.forced.get(&record.id).is_some_and(|forced| term < forced.term)
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

    /// Acknowledged commits that are lost, and where they were first seen to be.
    pub fn missed(&self) -> &BTreeMap<(PartitionId, Position), Missed> {
        &self.missed
    }

    /// The last failover that may have lost something of this partition, and said so.
    pub fn lossy(&self, partition: PartitionId) -> Option<LossyFailover> {
        self.lossy.get(&partition).copied()
    }

    /// A new primary serves, in this configuration, with a log that ends at `tip`; `last` is the one before
    /// its term. What others have lost before it, in terms of which nobody served, the epochs tell.
    pub fn serves(
        &mut self,
        time: u64,
        (lineage, epochs): (&Lineage, Option<&Epochs>),
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
            // The log goes on without it in the term that lost it.
            let without = kept.range((Bound::Excluded(one.at), Bound::Unbounded)).next();
            let first = without.and_then(|next| epochs?.get(id, next.term.began()));
            let (first, last) = match (first, epochs) {
                (Some(first), Some(epochs)) if first.term < record.term => (first, epochs.before(first)),
                _ => (record, last),
            };
            self.may_be_lost(one, last, first, lineage)?;
        }
        let gone: Vec<Position> = gone.iter().map(|one| one.at).collect();
        let missed = |at: &Position| {
            let changes_rows = lineage.get(id, *at).is_some_and(|known| !known.changes.is_empty());
            ((id, *at), Missed { epoch: record.epoch, changes_rows, brought_again: record.is_global() })
        };
        self.missed.extend(gone.iter().map(missed));
        self.lost.extend(gone.into_iter().map(|at| ((id, at), time)));
        if let Some(forced) = self.forced.get_mut(&id).filter(|forced| forced.term <= record.term) {
            forced.served.get_or_insert(tip);
        }
        Ok(())
    }

    /// Whether an acknowledged commit may be lost by what has happened since.
    fn may_be_lost(
        &self,
        one: &Acknowledged,
        last: Option<&PartitionRecord>,
        record: &PartitionRecord,
        lineage: &Lineage,
    ) -> Result<(), String> {
        let what = format!("{} {} was acknowledged under '{}'", record.id, one.at, one.record.policy);
        if self.acknowledged_in_vain(one) {
            return Ok(());
        }
        if !record.lossy {
            return Err(format!("{what} and is not in the log of {}, which names no loss", record.epoch));
        }
        if self.was_forced_away(one, lineage) || self.was_left_out(one) {
            return Ok(());
        }
        let policies = || std::iter::once(&one.record.policy).chain(&one.record.next_policy);
        if policies().any(rests_on_primary) {
            let kept = self.still_has(one, record, lineage);
            return kept
                .map_or(Ok(()), |why| Err(format!("{what}, {why}, and it is lost in {}", record.epoch)));
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

impl Survival {
    /// Why a commit that rested on its primary alone had to be kept; none: it may be lost. Where that
    /// primary's disk leads, what was durable there is kept. Nobody else leads while nothing is wrong with
    /// the primary (PR-19, PR-85).
    fn still_has(&self, one: &Acknowledged, record: &PartitionRecord, lineage: &Lineage) -> Option<String> {
        // What global transactions have committed is in their manager's log, and is brought again; what is
        // said of tables in one partition the others give back (PR-291, PR-172).
        if one.record.is_global() {
            return None;
        }
        let holder = &one.record.primary;
        let since = |times: &BTreeMap<NodeId, u64>| times.get(&holder.node).is_some_and(|at| *at >= one.time);
        if since(&self.doubtful) {
            return None;
        }
        let policies = || std::iter::once(&one.record.policy).chain(&one.record.next_policy);
        let promised = policies().all(|policy| wanted(policy, 0).durable);
        let durable = self.durable.get(&(holder.node, record.id));
        let was_durable = durable.is_some_and(|tip| lineage.has(record.id, *tip, one.at));
        if !record.primary.same_store(holder) {
            let remembers = !since(&self.ended) || promised || was_durable;
            let sealed = self.sealed.get(&(record.id, record.term));
            let sealed = sealed.filter(|sealed| sealed.from == *holder && remembers)?;
            let (sound, missed) = (sealed.sound_us / 1000, sealed.missed_us / 1000);
            return match sealed {
                _ if sealed.sound_us >= WAITED_US => {
                    Some(format!("nothing had been wrong with {holder} for {sound} ms"))
                }
                _ if sealed.sound_us == 0 && sealed.missed_us < WAITED_US => {
                    Some(format!("{holder} had been missed for {missed} ms"))
                }
                _ => None,
            };
        }
        (promised || was_durable).then(|| format!("the disk of {holder} had it and leads"))
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
        survival.serves(30, (&lineage(), None), None, &after(false), at(2, 2)).expect("it is there");
        survival.acknowledged(10, at(1, 2), &under("durable", LogKind::Disk));
        for node in 1..=3 {
            survival.ended(20, NodeId(node), std::iter::empty());
        }
        assert!(survival.serves(30, (&lineage(), None), None, &after(true), at(2, 2)).is_err());
        for node in 1..=3 {
            survival.faulted(20, NodeId(node));
        }
        survival
            .serves(30, (&lineage(), None), None, &after(true), at(2, 2))
            .expect("all three disks were harmed");
    }

    #[test]
    fn a_commit_in_memory_may_go_only_with_all_memories() {
        let mut survival = Survival::default();
        survival.acknowledged(10, at(1, 2), &under("semi", LogKind::Disk));
        survival.ended(20, NodeId(1), std::iter::empty());
        survival.ended(20, NodeId(2), std::iter::empty());
        assert!(survival.serves(30, (&lineage(), None), None, &after(true), at(2, 2)).is_err());
        survival.ended(20, NodeId(3), std::iter::empty());
        survival.serves(30, (&lineage(), None), None, &after(true), at(2, 2)).expect("nobody remembers");
        assert_eq!(survival.lost().len(), 1);
    }

    #[test]
    fn what_a_term_lost_in_which_nobody_served_is_checked_by_the_set_before_it() {
        let mut lineage = lineage();
        let second = lineage.get(under("semi", LogKind::Disk).id, at(2, 2)).expect("it was added").crc;
        lineage.add(&entry(at(4, 3), second, "a", 4)).expect("adds");
        let alone = PartitionRecord { in_sync: record(1, 1, &[2]).in_sync, ..under("semi", LogKind::Disk) };
        let restarted = PartitionRecord { lossy: true, ..record(2, 2, &[2]) };
        let joined = PartitionRecord { lossy: true, ..record(3, 2, &[2, 4]) };
        let new = PartitionRecord { lossy: true, ..record(4, 4, &[4]) };
        let mut epochs = Epochs::default();
        for record in [&alone, &restarted, &joined, &new] {
            // Whether they may follow each other is another checker's question.
            drop(epochs.written(0, record.clone()));
        }
        let mut survival = Survival::default();
        survival.acknowledged(10, at(1, 2), &alone);
        let serves = |survival: &mut Survival| {
            survival.serves(30, (&lineage, Some(&epochs)), Some(&joined), &new, at(4, 3))
        };
        assert!(serves(&mut survival).is_err(), "nobody forgot it");
        survival.ended(20, NodeId(2), std::iter::empty());
        serves(&mut survival).expect("the one that had it forgot it, before another joined");
    }

    #[test]
    fn who_left_the_set_is_not_waited_for_and_who_joined_it_is() {
        let under = under("semi", LogKind::Disk);
        let (left, joined) = (record(1, 1, &[2]), record(1, 1, &[2, 4]));
        let mut survival = Survival::default();
        survival.acknowledged(10, at(1, 2), &under);
        (2..=3).for_each(|node| survival.ended(20, NodeId(node), std::iter::empty()));
        assert!(survival.serves(30, (&lineage(), None), Some(&under), &after(true), at(2, 2)).is_err());
        assert!(survival.serves(30, (&lineage(), None), Some(&joined), &after(true), at(2, 2)).is_err());
        survival
            .serves(30, (&lineage(), None), Some(&left), &after(true), at(2, 2))
            .expect("the last of the set forgot it");
    }

    #[test]
    fn what_a_node_acknowledged_alone_may_go_when_an_operator_goes_on_without_it() {
        let alone = |name: &str, nodes: &[u32]| {
            let record = record(1, 1, nodes);
            let policy = Policy::preset(name, 3, LogKind::Disk).expect("a preset");
            PartitionRecord { policy, ..record }
        };
        let lost = |node: u32, record: &PartitionRecord, lossy: bool| {
            let mut survival = Survival::default();
            survival.acknowledged(10, at(1, 2), record);
            survival.left_out(20, record.id, NodeId(node));
            survival
                .serves(30, (&lineage(), None), None, &after(lossy), at(2, 2))
                .map(|()| survival.lost().len())
        };
        assert_eq!(lost(1, &alone("durable", &[1]), true), Ok(1));
        assert!(lost(1, &alone("durable", &[1]), false).is_err(), "the record names no loss");
        assert!(lost(2, &alone("durable", &[1]), true).is_err(), "another one was left out");
        assert!(lost(1, &alone("durable", &[1, 2]), true).is_err(), "a member that was there had it");
        assert_eq!(lost(1, &alone("async", &[1, 2]), true), Ok(1), "it rested on the one alone");
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
            survival
                .serves(30, (&lineage(), None), None, &after(false), at(2, 2))
                .map(|()| survival.lost().len())
        };
        assert_eq!(lost(30, &alone, at(1, 2)), Ok(1), "the operator was told so");
        assert!(lost(10, &alone, at(1, 2)).is_err(), "what was there before is named by the forced term");
        assert!(lost(30, &under("sync", LogKind::Disk), at(1, 2)).is_err(), "others had to acknowledge it");
        let later = lineage_with_third();
        let mut survival = Survival::default();
        survival.forced(20, id, Term(2));
        survival.acknowledged(30, at(2, 2), &alone);
        assert!(
            survival.serves(30, (&later, None), None, &after(false), at(3, 2)).is_err(),
            "of the forced term itself"
        );
    }

    #[test]
    fn what_its_primarys_disk_had_is_not_lost_where_that_disk_leads() {
        let lost = |policy: &str, durable: Option<Position>, leader: &[u32], faulted: bool| {
            let mut survival = Survival::default();
            survival.acknowledged(10, at(1, 2), &under(policy, LogKind::Disk));
            let id = record(1, 1, &[1]).id;
            survival.ended(20, NodeId(1), durable.map(|at| (id, at)).into_iter());
            if faulted {
                survival.faulted(25, NodeId(1));
            }
            let after = PartitionRecord { lossy: true, ..record(2, 2, leader) };
            survival.serves(30, (&lineage(), None), None, &after, at(2, 2))
        };
        lost("local", None, &[2, 3], false).expect("another leads");
        lost("local", None, &[1, 2], false).expect_err("its policy promises that");
        lost("local", None, &[1, 2], true).expect("its disk was harmed");
        lost("async", Some(at(1, 1)), &[1, 2], false).expect("it was not on the disk");
        lost("async", Some(at(1, 2)), &[1, 2], false).expect_err("it was on the disk");
    }

    #[test]
    fn a_primary_with_which_nothing_is_wrong_is_not_given_up() {
        let lost = |sound_us: u64, missed_us: u64, ended: bool| {
            let mut survival = Survival::default();
            survival.acknowledged(10, at(1, 2), &under("async", LogKind::Disk));
            let sealed = Sealed { from: record(1, 1, &[1]).primary, sound_us, missed_us };
            survival.sealed(after(true).id, after(true).term, sealed);
            if ended {
                survival.ended(20, NodeId(1), std::iter::empty());
            }
            survival.serves(30, (&lineage(), None), None, &after(true), at(2, 2))
        };
        lost(0, WAITED_US, false).expect("it was missed");
        lost(0, WAITED_US - 1, false).expect_err("it was not waited for");
        lost(0, WAITED_US - 1, true).expect("what it had in memory is gone");
        lost(WAITED_US - 1, 0, false).expect("it has just come back");
        lost(WAITED_US, 0, false).expect_err("nobody can have missed it");
    }

    #[test]
    fn a_loss_that_is_not_named_is_rejected() {
        let mut survival = Survival::default();
        survival.acknowledged(10, at(1, 2), &under("async", LogKind::Disk));
        assert!(survival.serves(30, (&lineage(), None), None, &after(false), at(2, 2)).is_err());
        survival.serves(30, (&lineage(), None), None, &after(true), at(2, 2)).expect("it said so");
        let lossy = LossyFailover { epoch: after(true).epoch, served: 30 };
        assert_eq!(survival.lossy(record(1, 1, &[1]).id), Some(lossy));
    }
}
