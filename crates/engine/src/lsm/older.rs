//! States that received files have taken the place of, for reads at positions below those files (PR-469).
//!
//! A set has the rows of its own position, and may lack what lies below: its sender has merged that away.
//! What was here before has it. So whoever reads below the set goes on with the old tree, and with the rows
//! that were in memory above it, until no read looks there any more.

use super::memtable::Frozen;
use super::pointer::tree_number;
use super::tree::Tree;
use crate::scan;
use bytes::Bytes;
use std::collections::VecDeque;
use types::engine::Row;
use types::{EngineError, Lsn};

/// What the engine had before a set took its place.
pub(super) struct OlderState {
    tree: Tree,
    /// What was published above its files.
    rows: Option<Frozen>,
    /// The position of the set: reads below it are of this state, if they are of no older one.
    below: Lsn,
}

impl OlderState {
    /// The version of `key` at `at`.
    pub(super) fn get(&self, key: &[u8], at: Lsn) -> Result<Option<(Lsn, Bytes)>, EngineError> {
        match self.rows.as_ref().and_then(|rows| rows.version(key, at)) {
            Some((lsn, value)) => Ok(value.map(|value| (lsn, value.clone()))),
            None => self.tree.get(key, at),
        }
    }

    /// The rows at `at` with `from <= key < to` (`to` empty: no end), as [`scan::merge`].
    pub(super) fn scan(
        &self,
        (from, to): (&[u8], &[u8]),
        at: Lsn,
        (limit, max_bytes): (usize, usize),
    ) -> Result<Vec<Row>, EngineError> {
        let rows = self.rows.as_ref().map(|rows| rows.range(from, to, at));
        scan::merge(rows.into_iter().flatten(), self.tree.range(from, to, at), limit, max_bytes)
    }
}

/// Those that somebody may still read, oldest first.
#[derive(Default)]
pub(super) struct OlderStates {
    states: VecDeque<OlderState>,
    /// Directories of others that are read no more may be there.
    leftovers: bool,
}

impl OlderStates {
    /// A set at `below` takes the place of this tree, and of these rows above it.
    pub(super) fn keep(&mut self, tree: Tree, rows: Option<Frozen>, below: Lsn) {
        let ordered = self.states.back().is_none_or(|last| last.below <= below);
        assert!(ordered, "PR-469: a set at {below} follows newer ones");
        self.states.push_back(OlderState { tree, rows, below });
    }

    /// The state that has what a read at `at` sees; none: the present one has it.
    pub(super) fn at(&self, at: Lsn) -> Option<&OlderState> {
        self.states.iter().find(|state| at < state.below)
    }

    /// No read looks below `read_floor` any more. Gives back what was in memory for those that did.
    pub(super) fn forget_below(&mut self, read_floor: Lsn) -> Vec<Frozen> {
        let gone = self.states.partition_point(|state| state.below <= read_floor);
        self.leftovers |= gone > 0;
        self.states.drain(..gone).filter_map(|state| state.rows).collect()
    }

    /// The numbers of their trees.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.states.iter().filter_map(|state| tree_number(state.tree.dir())).collect()
    }

    /// True if directories of trees may be there that nobody reads. They are removed next.
    pub(super) fn take_leftovers(&mut self) -> bool {
        std::mem::take(&mut self.leftovers)
    }
}
