//! Published rows that are in no file yet.
//!
//! The memtable of the crate `lsm-tree` searches a skip list for each version and keeps every one of them.
//! Here a version that no read can want any more makes room for the next one, and what is flushed is the
//! rest.

use super::tree::Tree;
use crate::overlay::InMemory;
use crate::rows::Rows;
use crate::scan::layered;
use bytes::Bytes;
use std::sync::Arc;
use types::engine::{MAX_KEY_BYTES, space};
use types::{Lsn, Position};

/// The row of the applied position (PR-40).
pub(super) const POSITION_KEY: &[u8] = &[space::POSITION];
/// Keys whose old versions are dropped with each publishing, beside twice as many as it wrote.
const COLLECT_ON_PUBLISH: usize = 4;

/// Rows that were set apart to be flushed.
#[derive(Clone)]
pub(super) struct Frozen(Arc<Rows>);

impl Frozen {
    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Every version, in the order of keys, of each key the newest first.
    pub(super) fn versions(&self) -> impl Iterator<Item = InMemory<'_>> {
        self.0.versions()
    }
}

/// A version of a row is about to be written. Panics if the key is none that the crate takes (PR-72).
fn note(tree: &Tree, key: &[u8], lsn: Lsn, is_there: bool) {
    assert!((1..=MAX_KEY_BYTES).contains(&key.len()), "PR-72: a key of {} bytes", key.len());
    if is_there {
        tree.note_row(key, lsn);
    }
}

/// The rows above a tree's files: what is written now, and below it what is being flushed.
pub(super) struct Memtable {
    rows: Rows,
    frozen: Option<Frozen>,
}

impl Default for Memtable {
    fn default() -> Memtable {
        Memtable { rows: Rows::over_files(), frozen: None }
    }
}

impl Memtable {
    /// Writes a version of a row, or a deletion. No read looks below `read_floor`.
    ///
    /// Panics if the key is none that the crate takes (PR-72).
    pub(super) fn write(
        &mut self,
        tree: &Tree,
        key: &[u8],
        (lsn, read_floor): (Lsn, Lsn),
        value: Option<&[u8]>,
    ) {
        note(tree, key, lsn, value.is_some());
        self.rows.write(key, lsn, value, read_floor);
    }

    /// The same of a value that was executed: a large one is kept as it came.
    pub(super) fn keep(
        &mut self,
        tree: &Tree,
        key: &[u8],
        (lsn, read_floor): (Lsn, Lsn),
        value: Option<&Bytes>,
    ) {
        note(tree, key, lsn, value.is_some());
        self.rows.keep(key, lsn, value, read_floor);
    }

    /// Drops versions that no read at or above `read_floor` wants, as many as `written` new ones pay for.
    pub(super) fn collect(&mut self, read_floor: Lsn, written: usize) {
        self.rows.collect(read_floor, COLLECT_ON_PUBLISH + 2 * written);
    }

    /// Writes the row of the applied position. It must be the last write before a flush (PR-40).
    pub(super) fn write_position(&mut self, tree: &Tree, at: Position) {
        let lsn = if tree.flushes_name_their_own_position() { at.lsn } else { at.lsn.next() };
        let mut value = [0; 16];
        value[..8].copy_from_slice(&at.term.0.to_le_bytes());
        value[8..].copy_from_slice(&lsn.0.to_le_bytes());
        self.write(tree, POSITION_KEY, (lsn, Lsn::MAX), Some(&value));
    }

    /// Sets what is here apart from what is written from now on; none if there is nothing. Reads see both,
    /// until [`Memtable::flushed`].
    pub(super) fn freeze(&mut self) -> Option<Frozen> {
        assert!(self.frozen.is_none(), "PR-69: flushes of one tree run one after the other");
        self.frozen = self.take_rows();
        self.frozen.clone()
    }

    /// Takes out all that is here, set apart or not (PR-347); only where this is given up.
    pub(super) fn take_all(&mut self, tree: &Tree) -> Option<Frozen> {
        self.not_flushed(tree);
        self.take_rows()
    }

    fn take_rows(&mut self) -> Option<Frozen> {
        let rows = std::mem::replace(&mut self.rows, Rows::over_files());
        (rows.len() > 0).then(|| Frozen(Arc::new(rows)))
    }

    /// What was set apart is in files.
    pub(super) fn flushed(&mut self) {
        self.frozen = None;
    }

    /// It will be in none: what was set apart is with the rest again.
    pub(super) fn not_flushed(&mut self, tree: &Tree) {
        let Some(frozen) = self.frozen.take() else { return };
        let since = self.take_rows();
        for rows in [Some(frozen), since].into_iter().flatten() {
            self.take_above(tree, &rows, Lsn::ZERO);
        }
    }

    /// Writes what `frozen` has from above `at`, the applied position excepted.
    pub(super) fn take_above(&mut self, tree: &Tree, frozen: &Frozen, at: Lsn) {
        let above = frozen.versions().filter(|row| row.lsn > at && row.key != POSITION_KEY);
        let mut rows: Vec<InMemory> = above.collect();
        rows.sort_unstable_by_key(|row| row.lsn);
        for row in rows {
            self.keep(tree, row.key, (row.lsn, Lsn::ZERO), row.value);
        }
    }

    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.rows.bytes() + self.frozen.as_ref().map_or(0, Frozen::bytes)
    }

    /// The same of what is not set apart.
    pub(super) fn bytes_to_freeze(&self) -> u64 {
        self.rows.bytes()
    }

    /// The newest version of `key` at or below `at`, which may be a deletion.
    pub(super) fn version(&self, key: &[u8], at: Lsn) -> Option<(Lsn, Option<&Bytes>)> {
        let frozen = || self.frozen.as_ref()?.0.version(key, at);
        self.rows.version(key, at).or_else(frozen)
    }

    /// The newest versions at or below `at` with `from <= key < to` (`to` empty: no end), deletions included.
    pub(super) fn range<'a>(
        &'a self,
        from: &[u8],
        to: &[u8],
        at: Lsn,
    ) -> impl Iterator<Item = InMemory<'a>> + use<'a> {
        let frozen = self.frozen.as_ref().map(|Frozen(rows)| rows.versions_at(from, to, at));
        layered(self.rows.versions_at(from, to, at), frozen.into_iter().flatten())
    }
}
