//! I12, R10, F08 to F10: what was proven durable is there at the next start, or its absence is said.

use std::collections::{BTreeMap, BTreeSet};
use types::{Lsn, NodeId, PartitionId, Position};

/// What each disk was proven to hold.
#[derive(Debug, Default)]
pub struct Storage {
    proven: BTreeMap<(NodeId, PartitionId), Position>,
    /// Of these, what a later mark or frame in the log vouches for: no damage to one place can hide its loss.
    settled: BTreeMap<(NodeId, PartitionId), Position>,
    /// Entries that are given to a log and were not proven yet.
    given: BTreeSet<(NodeId, PartitionId, Position)>,
    /// Of these, what the replica has taken back since: a proof of it comes too late to bind.
    taken_back: BTreeSet<(NodeId, PartitionId, Position)>,
    /// What each engine last said a restart finds in its files.
    files: BTreeMap<(NodeId, PartitionId), Lsn>,
}

/// What a start found of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The end of the log, or of the components if that is higher.
    pub end: Lsn,
    /// The replica knows that it is damaged.
    pub damaged: bool,
    /// A torn end was cut off.
    pub torn: bool,
    /// The disk was made to fail in this life or the one before.
    pub faulted: bool,
}

impl Storage {
    /// A replica gives an entry to its log, or has it begin there.
    pub fn given(&mut self, node: NodeId, id: PartitionId, at: Position) {
        self.taken_back.remove(&(node, id, at));
        self.given.insert((node, id, at));
    }

    /// Storage handed out a token.
    pub fn proven(&mut self, node: NodeId, id: PartitionId, at: Position) {
        if self.taken_back.remove(&(node, id, at)) {
            return;
        }
        self.given.retain(|(of, other, entry)| (*of, *other) != (node, id) || entry.lsn > at.lsn);
        self.proven.insert((node, id), at);
    }

    /// What was proven so far is also vouched for by what lies behind it.
    pub fn settle(&mut self, node: NodeId) {
        let proven = self.proven.iter().filter(|((of, _), _)| *of == node);
        self.settled.extend(proven.map(|(key, at)| (*key, *at)));
    }

    /// The replica itself took back what is above `to`.
    pub fn truncate(&mut self, node: NodeId, id: PartitionId, to: Position) {
        for kept in [&mut self.proven, &mut self.settled] {
            if let Some(proven) = kept.get_mut(&(node, id)).filter(|proven| proven.lsn > to.lsn) {
                *proven = to;
            }
        }
        let back = |(of, other, entry): &(NodeId, PartitionId, Position)| {
            (*of, *other) == (node, id) && entry.lsn > to.lsn
        };
        self.taken_back.extend(self.given.extract_if(.., back));
    }

    /// The replica was removed from the node.
    pub fn removed(&mut self, node: NodeId, id: PartitionId) {
        self.proven.remove(&(node, id));
        self.settled.remove(&(node, id));
        self.files.remove(&(node, id));
        self.forget_given(|of, other| (of, other) == (node, id));
    }

    /// The disk was replaced.
    pub fn wiped(&mut self, node: NodeId) {
        self.proven.retain(|(of, _), _| *of != node);
        self.settled.retain(|(of, _), _| *of != node);
        self.files.retain(|(of, _), _| *of != node);
        self.forget_given(|of, _| of == node);
    }

    fn forget_given(&mut self, which: impl Fn(NodeId, PartitionId) -> bool) {
        for entries in [&mut self.given, &mut self.taken_back] {
            entries.retain(|(of, id, _)| !which(*of, *id));
        }
    }

    /// An engine says what a restart finds in its files.
    pub fn says_persisted(&mut self, node: NodeId, id: PartitionId, persisted: Lsn) {
        self.files.insert((node, id), persisted);
    }

    /// What an engine said last; zero if it never did.
    pub fn said_persisted(&self, node: NodeId, id: PartitionId) -> Lsn {
        self.files.get(&(node, id)).copied().unwrap_or(Lsn::ZERO)
    }

    /// An engine is opened and finds so much in its files, or less because the disk was `faulted`.
    pub fn opens(&mut self, node: NodeId, id: PartitionId, found: Lsn, faulted: bool) -> Result<(), String> {
        let said = self.said_persisted(node, id);
        self.files.insert((node, id), found);
        match found >= said || faulted {
            true => Ok(()),
            false => Err(format!("{node} {id}: files held the state at {said}, a start finds {found}")),
        }
    }

    /// What a node was proven to hold.
    pub fn holds(&self, node: NodeId, id: PartitionId) -> Option<Position> {
        self.proven.get(&(node, id)).copied()
    }

    /// What a node was proven to hold of every partition.
    pub fn of_node(&self, node: NodeId) -> impl Iterator<Item = (PartitionId, Position)> {
        let all = (node, PartitionId(0))..=(node, PartitionId(u32::MAX));
        self.proven.range(all).map(|((_, id), at)| (*id, *at))
    }

    /// A process starts on what the disk has.
    pub fn starts(&mut self, node: NodeId, id: PartitionId, start: Start) -> Result<(), String> {
        self.forget_given(|of, other| (of, other) == (node, id));
        let Some(proven) = self.proven.get(&(node, id)).copied() else { return Ok(()) };
        if start.end >= proven.lsn {
            return Ok(());
        }
        self.proven.remove(&(node, id));
        let settled = self.settled.remove(&(node, id)).unwrap_or_default();
        let last_batch_only = start.end >= settled.lsn;
        if start.damaged || start.faulted && start.torn && last_batch_only {
            return Ok(());
        }
        Err(format!("{node} {id}: {proven} was durable, the start finds {start:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_was_taken_back_is_proven_again_as_a_begin() {
        let mut storage = Storage::default();
        let (node, id, at) = (NodeId(1), PartitionId(64), Position::new(types::Term(8), Lsn(162)));
        storage.given(node, id, at);
        storage.truncate(node, id, Position::ZERO);
        storage.given(node, id, at);
        storage.proven(node, id, at);
        assert_eq!(storage.holds(node, id), Some(at));
    }

    #[test]
    fn what_an_engine_said_to_be_in_its_files_is_there() {
        let mut storage = Storage::default();
        let (node, id) = (NodeId(1), PartitionId(64));
        assert!(storage.opens(node, id, Lsn(0), false).is_ok());
        storage.says_persisted(node, id, Lsn(7));
        assert!(storage.opens(node, id, Lsn(8), false).is_ok());
        assert!(storage.opens(node, id, Lsn(3), false).is_err());
        storage.says_persisted(node, id, Lsn(7));
        assert!(storage.opens(node, id, Lsn(3), true).is_ok());
        storage.says_persisted(node, id, Lsn(7));
        storage.removed(node, id);
        assert!(storage.opens(node, id, Lsn(0), false).is_ok());
    }
    use crate::check::lineage::tests::{P, at};

    const N: NodeId = NodeId(1);

    fn start(end: u64) -> Start {
        Start { end: Lsn(end), damaged: false, torn: false, faulted: false }
    }

    fn storage() -> Storage {
        let mut storage = Storage::default();
        storage.proven(N, P, at(1, 9));
        storage
    }

    #[test]
    fn a_proof_of_what_was_taken_back_meanwhile_binds_nobody() {
        let mut storage = storage();
        storage.given(N, P, at(1, 10));
        storage.truncate(N, P, at(1, 9));
        storage.proven(N, P, at(1, 10));
        assert!(storage.starts(N, P, start(9)).is_ok());
        storage.given(N, P, at(1, 10));
        storage.proven(N, P, at(1, 10));
        assert!(storage.starts(N, P, start(9)).is_err());
    }

    #[test]
    fn what_was_durable_must_be_there() {
        storage().starts(N, P, start(9)).expect("all there");
        assert!(storage().starts(N, P, start(8)).is_err());
        assert!(
            storage().starts(N, P, Start { torn: true, ..start(8) }).is_err(),
            "a sound disk tears no synced end"
        );
        assert!(storage().starts(N, P, Start { faulted: true, ..start(8) }).is_err(), "guessed away");
    }

    #[test]
    fn what_is_said_to_be_missing_may_be_missing() {
        storage().starts(N, P, Start { damaged: true, ..start(2) }).expect("it says so");
        storage().starts(N, P, Start { faulted: true, torn: true, ..start(8) }).expect("it says so");
        let mut settled = storage();
        settled.settle(N);
        assert!(
            settled.starts(N, P, Start { faulted: true, torn: true, ..start(8) }).is_err(),
            "PR-18: it was marked"
        );
        let mut cut = storage();
        cut.truncate(N, P, at(1, 5));
        cut.starts(N, P, start(5)).expect("taken back by the replica");
        let mut wiped = storage();
        wiped.wiped(N);
        wiped.starts(N, P, start(0)).expect("another disk");
    }
}
