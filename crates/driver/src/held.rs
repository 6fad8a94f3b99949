//! Partitions whose divergent tail finds no room (R9, F20): what they ask for is held back until it can be
//! set aside.
//!
//! Nothing of such a partition leaves its node, since all of it would come after the tail. What changes its
//! log and what clients are told is kept in order; messages to others are lost as on a network, which asks
//! again. And nothing reaches it, so little is asked for: configurations, and what its own clock brings.

use replica::Output;
use std::collections::{BTreeMap, VecDeque};
use types::{Micros, PartitionId};
use wire::log::Record;

/// A tail that found no room is tried again this often.
pub const RETRY: Micros = Micros::from_millis(500);

/// What a partition waits with: first the tail, then what came after it.
#[derive(Debug)]
struct Queue {
    outputs: VecDeque<Output>,
    tried_at: Micros,
}

impl Queue {
    fn push(&mut self, output: Output) {
        // Others give it up and take it in again for as long as it waits: the last promise says what all have
        // said.
        let promise = |output: &Output| matches!(output, Output::Log(Record::Promise { .. }));
        if promise(&output) && self.outputs.back().is_some_and(promise) {
            self.outputs.pop_back();
        }
        self.outputs.push_back(output);
    }
}

/// What is held back, by partition. The first of each partition is the tail that finds no room.
#[derive(Debug, Default)]
pub struct HeldOutputs {
    partitions: BTreeMap<PartitionId, Queue>,
}

impl HeldOutputs {
    /// True if this partition waits for room.
    pub fn holds(&self, partition: PartitionId) -> bool {
        !self.partitions.is_empty() && self.partitions.contains_key(&partition)
    }

    /// The partitions that wait.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> {
        self.partitions.keys().copied()
    }

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Gives back what is to be carried out now.
    pub fn hold(&mut self, mut output: Output) -> Option<Output> {
        if self.partitions.is_empty() {
            return Some(output);
        }
        if let Output::Suspect(suspect) = &mut output {
            suspect.partitions.retain(|(id, ..)| !self.partitions.contains_key(id));
            return (!suspect.partitions.is_empty()).then_some(output);
        }
        let partition = output.partition();
        let Some(queue) = partition.and_then(|id| self.partitions.get_mut(&id)) else { return Some(output) };
        match output {
            Output::Send { .. } | Output::Propose(_) | Output::ReadLog { .. } => {}
            output => queue.push(output),
        }
        None
    }

    /// A tail finds no room: its partition waits from now on. Panics if it waits already, since its outputs
    /// are held then.
    pub fn begin(&mut self, partition: PartitionId, tail: Output, now: Micros) {
        assert!(matches!(tail, Output::SetAside { .. }), "a partition waits because of a tail");
        let queue = Queue { outputs: VecDeque::from([tail]), tried_at: now };
        let before = self.partitions.insert(partition, queue);
        assert!(before.is_none(), "partition {partition} waits for room already, and its outputs are held");
    }

    /// The partitions whose tail is to be tried again.
    pub fn due(&self, now: Micros) -> Vec<PartitionId> {
        let due = self.partitions.iter().filter(|(_, queue)| now.since(queue.tried_at) >= RETRY);
        due.map(|(id, _)| *id).collect()
    }

    /// What comes next of a partition that is tried again: a tail is to be set aside, anything else carried
    /// out. None: that was all, and the partition waits no more.
    pub fn take_next(&mut self, partition: PartitionId) -> Option<Output> {
        let next = self.partitions.get_mut(&partition).and_then(|queue| queue.outputs.pop_front());
        if next.is_none() {
            self.partitions.remove(&partition);
        }
        next
    }

    /// The tail that [`HeldOutputs::take_next`] gave finds no room.
    pub fn put_back(&mut self, partition: PartitionId, tail: Output, now: Micros) {
        let queue = self.partitions.get_mut(&partition).expect("its tail was just taken");
        queue.outputs.push_front(tail);
        queue.tried_at = now;
    }

    /// Nobody needs this partition any more. What is still to be carried out: its clients are answered, and
    /// that is all.
    pub fn give_up(&mut self, partition: PartitionId) -> Vec<Output> {
        let queue = self.partitions.remove(&partition).map(|queue| queue.outputs).unwrap_or_default();
        queue.into_iter().filter(|output| matches!(output, Output::Reply { .. })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::config::TailReport;
    use types::{Epoch, Lsn, Member, NodeId, Term};
    use wire::control::Suspect;

    const P: PartitionId = PartitionId(64);
    const Q: PartitionId = PartitionId(65);

    fn tail(partition: PartitionId) -> Output {
        let report = TailReport {
            partition,
            node: NodeId(1),
            file: String::new(),
            term: Term(2),
            from: Lsn(11),
            to: Lsn(12),
            commits: 2,
            surely_acknowledged: 1,
            sessions: 1,
            rows: None,
        };
        Output::SetAside { report, entries: Vec::new(), rows: Vec::new() }
    }

    fn promise(partition: PartitionId, epoch: u64) -> Output {
        Output::Log(Record::Promise { partition, epoch: Epoch(epoch) })
    }

    fn notice(partition: PartitionId) -> Output {
        Output::Notice { partition, what: "it is so".into() }
    }

    fn trim(partition: PartitionId) -> Output {
        Output::Log(Record::Trim { partition, below: Lsn(1) })
    }

    #[test]
    fn f20_what_comes_after_a_tail_waits_with_it_and_in_order() {
        let mut held = HeldOutputs::default();
        assert_eq!(held.hold(notice(P)), Some(notice(P)));
        held.begin(P, tail(P), Micros(5));
        assert!(held.holds(P) && !held.holds(Q));
        assert_eq!(held.hold(notice(Q)), Some(notice(Q)));
        for output in [trim(P), promise(P, 1), promise(P, 2), notice(P), promise(P, 3)] {
            assert_eq!(held.hold(output), None);
        }
        assert!(held.due(Micros(5)).is_empty());
        let later = Micros(5) + RETRY;
        assert_eq!(held.due(later), [P]);
        let first = held.take_next(P).expect("the tail");
        assert_eq!(first, tail(P));
        held.put_back(P, first, later);
        assert!(held.due(later).is_empty() && held.holds(P));
        let order: Vec<Output> = std::iter::from_fn(|| held.take_next(P)).collect();
        assert_eq!(order, [tail(P), trim(P), promise(P, 2), notice(P), promise(P, 3)]);
        assert!(held.is_empty(), "the partition goes on");
    }

    #[test]
    fn who_waits_suspects_nobody() {
        let mut held = HeldOutputs::default();
        held.begin(P, tail(P), Micros(5));
        let suspect = |ids: &[PartitionId]| {
            let named = ids.iter().map(|id| (*id, Epoch(1), Default::default()));
            let (by, primary) = (Member::default(), Member::default());
            Output::Suspect(Suspect { by, primary, silent_us: 1, partitions: named.collect() })
        };
        assert_eq!(held.hold(suspect(&[P, Q])), Some(suspect(&[Q])));
        assert_eq!(held.hold(suspect(&[P])), None);
    }

    #[test]
    fn who_is_needed_no_more_has_its_clients_answered() {
        let mut held = HeldOutputs::default();
        held.begin(P, tail(P), Micros(5));
        held.hold(trim(P));
        assert!(held.give_up(P).is_empty() && !held.holds(P));
        assert!(held.give_up(P).is_empty(), "it is known no more");
    }
}
