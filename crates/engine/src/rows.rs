//! Published rows in memory: an ordered map, with old versions only where a read may still need them. They
//! are all that a memory engine has, and what an LSM engine has written to no file yet.
//!
//! A version written at LSN 9 hides the one below it from reads at 9 and above. The hidden version is needed
//! until the collection floor reaches 9. If the floor is there already when the version is written, which is
//! the normal case, the hidden one is dropped at once. Otherwise it is kept, and the key goes into a queue
//! ordered by LSN that is worked off in small portions as the floor rises, so that no single call pays for a
//! long-lived snapshot.

mod key;

use crate::overlay::{InMemory, key_bounds};
use bytes::Bytes;
use key::CompactKey;
use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, VecDeque};
use types::Lsn;
use types::engine::{LARGE_VALUE_BYTES, most_held};

/// Memory that a row costs beside its key and value: its place in the map and the allocation of the value.
const ROW_OVERHEAD: u64 = 112;
/// Memory that an old version costs beside its value and its key: itself, and its place in the queue.
const OLD_OVERHEAD: u64 = 96;

/// A version that newer ones hide.
#[derive(Debug)]
struct Old {
    lsn: Lsn,
    value: Option<Bytes>,
}

/// One key: the newest version in place, those it hides behind a pointer that is usually null.
#[derive(Debug)]
struct Cell {
    lsn: Lsn,
    /// None is a tombstone.
    value: Option<Bytes>,
    /// Oldest first.
    #[expect(
        clippy::box_collection,
        reason = "8 bytes in each of millions of rows instead of 24; few rows have any"
    )]
    older: Option<Box<Vec<Old>>>,
}

/// An ordered multi-version map.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    map: BTreeMap<CompactKey, Cell>,
    /// Files below may have versions of any key, which its tombstones hide: they all stay. Without files one
    /// stays only while a read below it needs an older version.
    over_files: bool,
    /// Keys with a version that is no longer needed once the floor reaches the LSN.
    hidden: VecDeque<(Lsn, CompactKey)>,
    bytes: u64,
}

impl Rows {
    /// No rows yet, above files that may have some.
    pub(crate) fn over_files() -> Rows {
        Rows { over_files: true, ..Rows::default() }
    }

    /// Memory held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keys held, tombstones included.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Old versions and tombstones that wait for the floor to rise.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden.len()
    }

    /// Writes a version, copying key and value: what arrives may be a small part of a large network buffer,
    /// which would otherwise stay in memory as long as the row does.
    ///
    /// False if the row had this version or a newer one, which it has then replaced. That only happens to an
    /// engine whose position lags behind its data (PR-40).
    pub(crate) fn write(&mut self, key: &[u8], lsn: Lsn, value: Option<&[u8]>, read_floor: Lsn) -> bool {
        self.put(key, lsn, value.map(Bytes::copy_from_slice), read_floor)
    }

    /// The same of a value that was executed: a large one is kept as it came, since it holds little more than
    /// itself ([`types::Engine::execute`]).
    pub(crate) fn keep(&mut self, key: &[u8], lsn: Lsn, value: Option<&Bytes>, read_floor: Lsn) -> bool {
        let own = |value: &Bytes| match value.len() < LARGE_VALUE_BYTES {
            true => Bytes::copy_from_slice(value),
            false => value.clone(),
        };
        self.put(key, lsn, value.map(own), read_floor)
    }

    fn put(&mut self, key: &[u8], lsn: Lsn, value: Option<Bytes>, read_floor: Lsn) -> bool {
        let mut slot = match self.map.entry(CompactKey::new(key)) {
            Slot::Occupied(slot) => slot,
            Slot::Vacant(slot) => {
                // Deleting what is not there changes no read.
                if value.is_some() || self.over_files {
                    self.bytes += key.len() as u64 + length(&value) + ROW_OVERHEAD;
                    slot.insert(Cell { lsn, value, older: None });
                }
                return true;
            }
        };
        let cell = slot.get_mut();
        let grows = cell.lsn < lsn;
        self.bytes += length(&value);
        let hidden = Old { lsn: cell.lsn, value: std::mem::replace(&mut cell.value, value) };
        cell.lsn = lsn;
        if grows && read_floor < lsn {
            self.bytes += OLD_OVERHEAD + key.len() as u64;
            cell.older.get_or_insert_default().push(hidden);
            self.hidden.push_back((lsn, slot.key().clone()));
            return true;
        }
        self.bytes -= length(&hidden.value);
        for old in cell.older.take().into_iter().flat_map(|older| *older) {
            self.bytes -= length(&old.value) + OLD_OVERHEAD + key.len() as u64;
        }
        if cell.value.is_none() && !self.over_files {
            self.bytes -= key.len() as u64 + ROW_OVERHEAD;
            slot.remove();
        }
        grows
    }

    /// Drops versions that no read at or above `read_floor` needs, of at most `portion` keys.
    pub(crate) fn collect(&mut self, read_floor: Lsn, portion: usize) {
        for _ in 0..portion {
            match self.hidden.front() {
                Some((lsn, _)) if *lsn <= read_floor => {}
                _ => return,
            }
            let (_, key) = self.hidden.pop_front().expect("the queue was not empty a moment ago");
            self.collect_key(key, read_floor);
        }
    }

    /// Drops the versions of one key that no read at or above `read_floor` needs.
    fn collect_key(&mut self, key: CompactKey, read_floor: Lsn) {
        // The row may be gone: a later deletion that was collected at once took it along.
        let Slot::Occupied(mut slot) = self.map.entry(key) else { return };
        let key_bytes = slot.key().as_slice().len() as u64;
        let cell = slot.get_mut();
        if let Some(older) = &mut cell.older {
            let readable = if cell.lsn <= read_floor {
                older.len()
            } else {
                let below = older.partition_point(|old| old.lsn <= read_floor);
                let mut keep = below.saturating_sub(1);
                // Without files a tombstone at the bottom says no more than its absence.
                while !self.over_files && older.get(keep).is_some_and(|old| old.value.is_none()) {
                    keep += 1;
                }
                keep
            };
            for old in older.drain(..readable) {
                self.bytes -= length(&old.value) + OLD_OVERHEAD + key_bytes;
            }
            if older.is_empty() {
                cell.older = None;
            }
        }
        if cell.value.is_none() && cell.lsn <= read_floor && !self.over_files {
            self.bytes -= key_bytes + ROW_OVERHEAD;
            slot.remove();
        }
    }

    /// The value of `key` at `at`, and which LSN wrote it.
    pub(crate) fn get(&self, key: &[u8], at: Lsn) -> Option<(Lsn, &Bytes)> {
        let (lsn, value) = self.version(key, at)?;
        value.map(|value| (lsn, value))
    }

    /// The newest version of `key` at or below `at`, which may be a deletion.
    pub(crate) fn version(&self, key: &[u8], at: Lsn) -> Option<(Lsn, Option<&Bytes>)> {
        self.map.get(key)?.at(at)
    }

    /// The rows at `at` with `from <= key < to` (`to` empty: no end).
    pub(crate) fn range<'a>(
        &'a self,
        from: &[u8],
        to: &[u8],
        at: Lsn,
    ) -> impl Iterator<Item = (&'a [u8], Lsn, &'a Bytes)> + use<'a> {
        self.versions_at(from, to, at).filter_map(|row| Some((row.key, row.lsn, row.value?)))
    }

    /// The same with deletions.
    pub(crate) fn versions_at<'a>(
        &'a self,
        from: &[u8],
        to: &[u8],
        at: Lsn,
    ) -> impl Iterator<Item = InMemory<'a>> + use<'a> {
        self.map.range::<[u8], _>(key_bounds(from, to)).filter_map(move |(key, cell)| {
            let (lsn, value) = cell.at(at)?;
            Some(InMemory { key: key.as_slice(), lsn, value })
        })
    }

    /// Every version of every key that is held, in the order of keys, of each the newest first.
    pub(crate) fn versions(&self) -> impl Iterator<Item = InMemory<'_>> {
        self.map.iter().flat_map(|(key, cell)| {
            let older = cell.older.iter().flat_map(|older| older.iter().rev());
            let older = older.map(|old| (old.lsn, old.value.as_ref()));
            let versions = [(cell.lsn, cell.value.as_ref())].into_iter().chain(older);
            versions.map(|(lsn, value)| InMemory { key: key.as_slice(), lsn, value })
        })
    }

    /// Keys with `from <= key < to` (`to` empty: no end) that are deleted, where that is still remembered,
    /// and by which LSN.
    pub(crate) fn deleted<'a>(
        &'a self,
        from: &[u8],
        to: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], Lsn)> + use<'a> {
        let cells = self.map.range::<[u8], _>(key_bounds(from, to));
        cells.filter(|(_, cell)| cell.value.is_none()).map(|(key, cell)| (key.as_slice(), cell.lsn))
    }
}

impl Cell {
    /// The newest version at or below `at`.
    fn at(&self, at: Lsn) -> Option<(Lsn, Option<&Bytes>)> {
        if self.lsn <= at {
            return Some((self.lsn, self.value.as_ref()));
        }
        let older = self.older.as_ref()?;
        let below = older.partition_point(|old| old.lsn <= at);
        let old = &older[below.checked_sub(1)?];
        Some((old.lsn, old.value.as_ref()))
    }
}

/// The most bytes that a value holds in memory; a deletion has none.
fn length(value: &Option<Bytes>) -> u64 {
    value.as_ref().map_or(0, |value| most_held(value.len()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: &[u8] = b"\x10k";

    fn value(rows: &Rows, at: u64) -> Option<&[u8]> {
        rows.get(K, Lsn(at)).map(|(_, value)| &value[..])
    }

    #[test]
    fn versions_stay_only_while_the_floor_is_below_their_successor() {
        let mut rows = Rows::default();
        for lsn in [10, 20, 30] {
            assert!(rows.write(K, Lsn(lsn), Some(lsn.to_string().as_bytes()), Lsn(5)));
        }
        assert_eq!([value(&rows, 9), value(&rows, 19)], [None, Some(&b"10"[..])]);
        rows.collect(Lsn(19), 100);
        assert_eq!(value(&rows, 19), Some(&b"10"[..]));
        rows.collect(Lsn(20), 100);
        assert_eq!([value(&rows, 20), value(&rows, 30)], [Some(&b"20"[..]), Some(&b"30"[..])]);
        rows.collect(Lsn(30), 100);
        assert_eq!((value(&rows, 29), rows.hidden()), (None, 0));
        assert_eq!(rows.bytes(), 2 + 2 + ROW_OVERHEAD);
    }

    #[test]
    fn a_version_at_or_below_the_floor_replaces_what_it_hides() {
        let mut rows = Rows::default();
        rows.write(K, Lsn(1), Some(b"old"), Lsn(0));
        rows.write(K, Lsn(2), Some(b"new"), Lsn(2));
        assert_eq!((value(&rows, 1), rows.hidden()), (None, 0));
        rows.write(K, Lsn(3), None, Lsn(3));
        assert_eq!((rows.len(), rows.bytes()), (0, 0));
    }

    #[test]
    fn a_large_value_is_kept_as_it_came_and_counted_with_what_it_may_hold() {
        let mut rows = Rows::default();
        let entry = Bytes::from(vec![7; 2 * LARGE_VALUE_BYTES]);
        let values = [entry.slice(500..), entry.slice(..LARGE_VALUE_BYTES - 1)];
        for (value, is_kept) in values.iter().zip([true, false]) {
            rows.keep(K, Lsn(1), Some(value), Lsn(9));
            let (_, kept) = rows.get(K, Lsn(1)).expect("it was written");
            assert_eq!((kept == value, kept.as_ptr() == value.as_ptr()), (true, is_kept));
            let held = if is_kept { entry.len() } else { value.len() } as u64;
            assert!(rows.bytes() >= held + 2 + ROW_OVERHEAD);
        }
    }

    #[test]
    fn a_tombstone_goes_with_the_last_version_below_it() {
        let mut rows = Rows::default();
        rows.write(K, Lsn(1), Some(b"v"), Lsn(0));
        rows.write(K, Lsn(2), None, Lsn(1));
        assert_eq!((value(&rows, 1), value(&rows, 2), rows.len()), (Some(&b"v"[..]), None, 1));
        rows.collect(Lsn(2), 100);
        assert_eq!((rows.len(), rows.bytes()), (0, 0));
    }

    #[test]
    fn collecting_in_portions_gets_there() {
        let mut rows = Rows::default();
        for lsn in 1..=100 {
            rows.write(&[0x10, lsn as u8 % 7], Lsn(lsn), Some(b"v"), Lsn(0));
        }
        let mut portions = 0;
        while rows.hidden() > 0 {
            rows.collect(Lsn(100), 10);
            portions += 1;
        }
        assert_eq!((portions, rows.len()), (10, 7));
        assert_eq!(rows.bytes(), 7 * (2 + 1 + ROW_OVERHEAD));
    }

    #[test]
    fn replaying_below_a_version_is_told() {
        let mut rows = Rows::default();
        rows.write(K, Lsn(5), Some(b"v"), Lsn(5));
        assert!(!rows.write(K, Lsn(4), Some(b"w"), Lsn(4)));
        assert_eq!(rows.get(K, Lsn(9)).unwrap().0, Lsn(4));
    }

    #[test]
    fn above_files_every_deletion_stays_and_hidden_versions_go() {
        let mut rows = Rows::over_files();
        assert!(rows.write(K, Lsn(1), None, Lsn(1)), "the files may have it");
        assert_eq!(rows.version(K, Lsn(9)), Some((Lsn(1), None)));
        assert_eq!(rows.version(K, Lsn(0)), None, "what the files have is not known here");
        rows.write(K, Lsn(2), Some(b"v"), Lsn(1));
        rows.write(K, Lsn(3), None, Lsn(1));
        let versions = |rows: &Rows| rows.versions().map(|row| row.lsn.0).collect::<Vec<_>>();
        assert_eq!(versions(&rows), [3, 2, 1]);
        rows.collect(Lsn(2), 100);
        assert_eq!(
            (versions(&rows), rows.version(K, Lsn(2))),
            (vec![3, 2], Some((Lsn(2), Some(&b"v"[..].into()))))
        );
        rows.collect(Lsn(3), 100);
        assert_eq!((versions(&rows), rows.len(), rows.bytes()), (vec![3], 1, 2 + ROW_OVERHEAD));
    }
}
