//! Partitions whose divergent tail finds no room (R9, F20): what they ask for is held back until it can be
//! set aside.
//!
//! Nothing of such a partition leaves its node, since all of it would come after the tail. What changes its
//! log and what clients are told is kept in order; messages to others are lost as on a network, which asks
//! again. So is what is read back of its log, where it is asked for again; else it is read later. And nothing
//! reaches it, so little is asked for: configurations, and what its own clock brings.

use replica::Output;
use replica::output::ReadFor;
use std::collections::{BTreeMap, VecDeque};
use types::config::TailReport;
use types::engine::Version;
use types::{Micros, PartitionId};
use wire::Entry;
use wire::log::Record;

/// A tail that found no room is tried again this often.
pub const RETRY: Micros = Micros::from_millis(500);

/// What comes next of a partition that waited.
#[derive(Debug)]
pub enum Next {
    /// A tail is on the disk now, under this report: its entries and rows.
    SetAside(TailReport, Vec<Entry>, Vec<Version>),
    /// This came after it, and is to be carried out.
    Carry(Output),
    /// There is no room yet.
    Waits,
    /// That was all: the partition goes on.
    Free,
}

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
pub struct BlockedOutputs {
    partitions: BTreeMap<PartitionId, Queue>,
}

impl BlockedOutputs {
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
            // Nobody asks for these a second time (PR-355).
            Output::ReadLog { purpose: ReadFor::Replay { .. } | ReadFor::Scrub { .. }, .. } => {
                queue.push(output)
            }
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

    /// Goes on with a partition that is tried again, until it waits or is free. `write` sets a tail aside and
    /// gives the report under which it is on the disk; none if it finds no room. Its error is the end.
    pub fn go_on<E>(
        &mut self,
        partition: PartitionId,
        now: Micros,
        write: impl FnOnce(&TailReport, &[Entry], &[Version]) -> Result<Option<TailReport>, E>,
    ) -> Result<Next, E> {
        let Some(queue) = self.partitions.get_mut(&partition) else { return Ok(Next::Free) };
        match queue.outputs.pop_front() {
            None => {
                self.partitions.remove(&partition);
                Ok(Next::Free)
            }
            Some(Output::SetAside { report, entries, rows }) => match write(&report, &entries, &rows)? {
                Some(written) => Ok(Next::SetAside(written, entries, rows)),
                None => {
                    queue.outputs.push_front(Output::SetAside { report, entries, rows });
                    queue.tried_at = now;
                    Ok(Next::Waits)
                }
            },
            Some(output) => Ok(Next::Carry(output)),
        }
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
        Output::Notice { partition, what: String::from("it is so").into() }
    }

    fn trim(partition: PartitionId) -> Output {
        Output::Log(Record::Trim { partition, below: Lsn(1) })
    }

    #[test]
    fn f20_what_comes_after_a_tail_waits_with_it_and_in_order() {
        let mut held = BlockedOutputs::default();
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
        let mut next = |room: bool| {
            let write =
                |report: &TailReport, _: &[Entry], _: &[Version]| Ok::<_, ()>(room.then(|| report.clone()));
            held.go_on(P, later, write).expect("no error")
        };
        assert!(matches!(next(false), Next::Waits));
        assert!(matches!(next(true), Next::SetAside(report, ..) if report.partition == P), "it comes again");
        for after in [trim(P), promise(P, 2), notice(P), promise(P, 3)] {
            assert!(matches!(next(false), Next::Carry(output) if output == after));
        }
        assert!(matches!(next(false), Next::Free));
        assert!(held.is_empty(), "the partition goes on");
    }

    #[test]
    fn pr355_what_is_asked_for_once_is_read_later() {
        let read = |purpose| Output::ReadLog { partition: P, from: Lsn(3), max_bytes: 10, purpose };
        let (replay, scrub) = (ReadFor::Replay { from: Lsn(3) }, ReadFor::Scrub { from: Lsn(3) });
        let mut held = BlockedOutputs::default();
        held.begin(P, tail(P), Micros(5));
        for purpose in [replay, ReadFor::Aside { from: Lsn(3) }, scrub] {
            assert_eq!(held.hold(read(purpose)), None);
        }
        let mut next = || held.go_on(P, Micros(6), |report, _, _| Ok::<_, ()>(Some(report.clone())));
        assert!(matches!(next(), Ok(Next::SetAside(..))));
        for purpose in [replay, scrub] {
            assert!(matches!(next(), Ok(Next::Carry(output)) if output == read(purpose)));
        }
        assert!(matches!(next(), Ok(Next::Free)));
    }

    #[test]
    fn who_waits_suspects_nobody() {
        let mut held = BlockedOutputs::default();
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
        let mut held = BlockedOutputs::default();
        held.begin(P, tail(P), Micros(5));
        held.hold(trim(P));
        assert!(held.give_up(P).is_empty() && !held.holds(P));
        assert!(held.give_up(P).is_empty(), "it is known no more");
    }
}
