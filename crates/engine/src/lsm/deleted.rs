//! Deletions that the files still have: merges drop them once nothing older lies below.

use super::memtable::Memtable;
use super::tree::{SEQUENCE_BASE, Tree, error, read_sequence};
use bytes::Bytes;
use lsm_tree::{AbstractTree, UserKey};
use std::ops::Bound;
use types::{EngineError, Lsn};

impl Tree {
    /// Keys with `from <= key < to` (`to` empty: no end) that are deleted by an entry above `above`, and
    /// which: as far as the files know. `memtable` is what is above them.
    pub(super) fn deletions(
        &self,
        from: &[u8],
        to: &[u8],
        above: Lsn,
        memtable: &Memtable,
    ) -> Result<Vec<(Bytes, Lsn)>, EngineError> {
        let first = read_sequence(above);
        let end = if to.is_empty() { Bound::Unbounded } else { Bound::Excluded(UserKey::from(to)) };
        let mut deleted = Vec::new();
        if !to.is_empty() && from >= to {
            return Ok(deleted);
        }
        for table in self.tree.current_version().iter_tables() {
            if table.tombstone_count() == 0 || table.get_highest_seqno() < first {
                continue;
            }
            for row in table.range((Bound::Included(UserKey::from(from)), end.clone())) {
                let row = row.map_err(error)?;
                let (key, seqno) = (&row.key.user_key, row.key.seqno);
                if !row.is_tombstone() || seqno < first {
                    continue;
                }
                let is_there = match memtable.version(key, Lsn::MAX) {
                    Some((_, value)) => value.is_some(),
                    None => self.get(key, Lsn::MAX)?.is_some(),
                };
                if !is_there {
                    deleted.push((Bytes::copy_from_slice(key), Lsn(seqno - SEQUENCE_BASE)));
                }
            }
        }
        Ok(deleted)
    }
}
