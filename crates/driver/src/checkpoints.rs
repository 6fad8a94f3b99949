//! Which engines are to be written to disk: those whose log has grown too long, those that keep much of
//! others' log on the disk, and whatever somebody asked for. One at a time, in the order in which they were
//! asked for.

use replica::{Host, Leases, Replica};
use std::collections::{BTreeSet, VecDeque};
use types::{Lsn, PartitionId};

/// What a component takes on the disk beside its rows, at most, in bytes.
const COMPONENT_BYTES: u64 = 1 << 20;

/// Bytes that a checkpoint of an engine needs that has so many bytes in memory.
pub fn bytes_needed(memory_bytes: u64) -> u64 {
    memory_bytes.saturating_add(memory_bytes / 4).saturating_add(COMPONENT_BYTES)
}

/// How long a log may become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogBudget {
    /// Bytes of one partition's log above its engine's files; beyond that a checkpoint is due.
    pub partition_bytes: u64,
    /// The longest that the log of all of them may become on the disk, in bytes.
    pub log_bytes: u64,
}

/// The log on the disk, as it is asked for its length.
pub trait LogLengths {
    /// Bytes of the partition's entries from this one on. 0 if its log is in memory.
    fn bytes_since(&self, partition: PartitionId, from: Lsn) -> u64;
    /// Bytes of the disk that the log takes.
    fn disk_bytes(&self) -> u64;
    /// The partitions because of which its oldest segment cannot be given back.
    fn holding_back(&self) -> Vec<PartitionId>;
}

/// Engines that are to be written to disk, and the one that is being written.
///
/// Invariants (asserted by `begin` and `validate`): one at a time, and what is being written is not due.
#[derive(Debug)]
pub struct CheckpointQueue {
    budget: LogBudget,
    due: VecDeque<PartitionId>,
    under_way: Option<PartitionId>,
}

impl CheckpointQueue {
    /// None is due.
    pub fn new(budget: LogBudget) -> CheckpointQueue {
        CheckpointQueue { budget, due: VecDeque::new(), under_way: None }
    }

    /// A checkpoint of this partition is due, however long its log is: a member, a target or the engine asks
    /// for it.
    pub fn soon(&mut self, partition: PartitionId) {
        if self.under_way != Some(partition) && !self.due.contains(&partition) {
            self.due.push_back(partition);
        }
    }

    /// Finds the logs that are too long. `count`: how many replicas there are. `short`: there is no room, and
    /// every checkpoint may free some of the log.
    pub fn look<'a>(
        &mut self,
        replicas: impl Iterator<Item = &'a Replica>,
        log: &dyn LogLengths,
        (count, short): (usize, bool),
    ) {
        let can: Vec<&Replica> = replicas.filter(|replica| can_shorten(replica)).collect();
        let budget = if short { 0 } else { self.budget.partition_bytes };
        let long = can.iter().filter(|replica| {
            let from = replica.engine().persisted().lsn.next();
            log.bytes_since(replica.id(), from) > budget
        });
        let mut found: BTreeSet<PartitionId> = long.map(|replica| replica.id()).collect();
        if self.is_long(log.disk_bytes(), count) {
            let holding = log.holding_back();
            found.extend(can.iter().map(|replica| replica.id()).filter(|id| holding.contains(id)));
        }
        found.into_iter().for_each(|id| self.soon(id));
    }

    /// True if the log takes more than all partitions may have together, each below its own budget: those
    /// with little in it may keep much of others in it, since segments are given back from the oldest on.
    fn is_long(&self, disk_bytes: u64, count: usize) -> bool {
        let together = self.budget.partition_bytes.saturating_mul(count as u64 + 1);
        disk_bytes > together.min(self.budget.log_bytes / 2)
    }

    /// The engine that is being written.
    pub fn under_way(&self) -> Option<PartitionId> {
        self.under_way
    }

    /// True if another could begin.
    pub fn has_next(&self) -> bool {
        self.under_way.is_none() && !self.due.is_empty()
    }

    /// The next one to be written, unless one is: whoever takes it says what becomes of it, by
    /// [`CheckpointQueue::begin`] or not at all.
    pub fn take_next(&mut self) -> Option<PartitionId> {
        if self.under_way.is_some() { None } else { self.due.pop_front() }
    }

    /// It is being written from here on.
    ///
    /// # Panics
    ///
    /// If another one is.
    pub fn begin(&mut self, partition: PartitionId) {
        assert!(self.under_way.is_none(), "two engines are written at a time: {partition}, {self:?}");
        self.due.retain(|id| *id != partition);
        self.under_way = Some(partition);
    }

    /// It was written, or failed, or is gone.
    pub fn ended(&mut self, partition: PartitionId) {
        if self.under_way == Some(partition) {
            self.under_way = None;
        }
    }

    /// What must hold after every change.
    pub fn validate(&self) -> Result<(), String> {
        match self.under_way.filter(|id| self.due.contains(id)) {
            Some(id) => Err(format!("partition {id} is being written, and is to be written")),
            None => Ok(()),
        }
    }
}

/// The partitions whose entries are to lie in files of their own, so that a full log can be given back:
/// damaged replicas make no checkpoint, and may wait for an operator (PR-301), and so may those that hold the
/// log back where no checkpoint can: because nobody says what is committed (PR-342), or because the promotion
/// or the commit of what they have waits for a member that is gone for good (PR-440).
pub fn to_put_apart<L: Leases>(host: &Host<L>, log: &dyn LogLengths) -> BTreeSet<PartitionId> {
    let holding = log.holding_back();
    let stands =
        |replica: &&Replica| replica.is_damaged() || !can_shorten(replica) && holding.contains(&replica.id());
    match holding.is_empty() {
        true => BTreeSet::new(),
        false => host.replicas().filter(stands).map(Replica::id).collect(),
    }
}

/// True if a checkpoint of this replica lets the log become shorter.
fn can_shorten(replica: &Replica) -> bool {
    let engine = replica.engine();
    engine.is_persistent() && engine.published().lsn > engine.persisted().lsn
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(64);
    const Q: PartitionId = PartitionId(65);

    fn queue() -> CheckpointQueue {
        CheckpointQueue::new(LogBudget { partition_bytes: 100, log_bytes: 10_000 })
    }

    #[test]
    fn engines_are_written_one_at_a_time_in_the_order_in_which_they_were_asked_for() {
        let mut queue = queue();
        assert!(!queue.has_next() && queue.take_next().is_none());
        for id in [Q, P, Q] {
            queue.soon(id);
        }
        assert_eq!(queue.take_next(), Some(Q));
        queue.begin(Q);
        queue.soon(Q);
        assert!(!queue.has_next() && queue.take_next().is_none(), "one at a time");
        assert_eq!((queue.under_way(), queue.validate()), (Some(Q), Ok(())));
        queue.ended(P);
        assert_eq!(queue.under_way(), Some(Q), "another one's end is not its own");
        queue.ended(Q);
        assert_eq!((queue.take_next(), queue.take_next()), (Some(P), None));
    }

    #[test]
    #[should_panic(expected = "two engines are written at a time")]
    fn a_second_one_does_not_begin() {
        let mut queue = queue();
        queue.begin(P);
        queue.begin(Q);
    }

    #[test]
    fn a_log_is_long_when_all_partitions_together_could_not_have_made_it_so() {
        let queue = queue();
        assert_eq!([300, 301].map(|bytes| queue.is_long(bytes, 2)), [false, true]);
        assert_eq!([5_000, 5_001].map(|bytes| queue.is_long(bytes, 1_000)), [false, true], "half of all");
    }

    #[test]
    fn a_checkpoint_needs_a_quarter_more_than_its_rows_and_a_component() {
        assert_eq!(bytes_needed(0), COMPONENT_BYTES);
        assert_eq!(bytes_needed(4_000), 5_000 + COMPONENT_BYTES);
        assert_eq!(bytes_needed(u64::MAX), u64::MAX);
    }
}
