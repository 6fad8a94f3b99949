//! The tentative entries above an engine: executed, readable, and droppable at any moment (PR-41).
//!
//! Two structures hold them. `order` is the queue of changed keys in LSN order, so that publishing takes from
//! its front and discarding from its back; `rows` is the ordered map that reads use. A key usually has one
//! tentative version, which is stored in place; only a key written again before its first version is
//! published needs the queue beside it.

use bytes::Bytes;
use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use types::engine::{Mutation, mutation_fault};
use types::{Lsn, Position};

/// Memory that a tentative version costs beside its key and value.
const VERSION_OVERHEAD: u64 = 160;

/// One tentative version of a key.
#[derive(Debug)]
struct Version {
    lsn: Lsn,
    value: Option<Bytes>,
}

/// The tentative versions of one key, never empty.
#[derive(Debug)]
struct Versions {
    newest: Version,
    /// The versions below the newest, oldest first. Allocates only when there is one.
    older: VecDeque<Version>,
}

impl Versions {
    /// The newest version at or below `at`.
    fn at(&self, at: Lsn) -> Option<&Version> {
        if self.newest.lsn <= at {
            return Some(&self.newest);
        }
        let below = self.older.partition_point(|version| version.lsn <= at);
        below.checked_sub(1).map(|index| &self.older[index])
    }
}

/// A version in memory as a read sees it; the value of a deletion is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InMemory<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The entry that wrote this version.
    pub lsn: Lsn,
    /// The value, or none if the entry deleted the key.
    pub value: Option<&'a Bytes>,
}

/// An ordered map of tentative versions, with the published and the applied position.
#[derive(Debug)]
pub struct Overlay {
    /// The newest entry that has left for the engine proper.
    published: Position,
    /// The newest entry executed. Never below `published`.
    applied: Position,
    /// The entries between the two, in LSN order, with how many keys of `order` each has.
    entries: VecDeque<(Position, u32)>,
    /// The keys changed by `entries`, in the same order.
    order: VecDeque<Bytes>,
    /// Every version named by `order`.
    rows: BTreeMap<Bytes, Versions>,
    /// What all this costs.
    bytes: u64,
}

impl Overlay {
    /// An empty overlay above an engine that stands at `published`.
    pub fn new(published: Position) -> Overlay {
        Overlay {
            published,
            applied: published,
            entries: VecDeque::new(),
            order: VecDeque::new(),
            rows: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// The newest entry that has left for the engine proper.
    pub fn published(&self) -> Position {
        self.published
    }

    /// The newest entry executed.
    pub fn applied(&self) -> Position {
        self.applied
    }

    /// True if there is no tentative version. There may still be entries without changes.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Memory held by the tentative entries.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds an entry. If it changes a key twice, the later change counts.
    ///
    /// Panics if `at` is not above the applied position (PR-77) or if a mutation has a [`mutation_fault`].
    pub fn insert(&mut self, at: Position, mutations: &[Mutation]) {
        assert!(
            at.lsn > self.applied.lsn && at.term >= self.applied.term,
            "PR-77: entry {at} executed above {}",
            self.applied
        );
        let mut changed = 0;
        for mutation in mutations {
            if let Some(fault) = mutation_fault(mutation) {
                panic!("PR-72: entry {at} cannot be executed: {fault}");
            }
            changed += self.insert_one(at.lsn, mutation);
        }
        self.entries.push_back((at, changed));
        self.applied = at;
    }

    /// The engine proper holds everything up to `at` now, from elsewhere: entries up to there go. If the
    /// entry that was there is another one, those above it go too: they follow what is not part of the state
    /// (PR-35).
    pub fn rise(&mut self, at: Position) {
        if self.applied.lsn > at.lsn {
            self.drain(at.lsn, |_, _, _| {});
        }
        if self.applied.lsn <= at.lsn || self.published != at {
            *self = Overlay::new(at);
        }
    }

    /// Adds one version; 1 if it takes a place in the order, 0 if it replaced a version of the same entry.
    fn insert_one(&mut self, lsn: Lsn, mutation: &Mutation) -> u32 {
        let version = Version { lsn, value: mutation.value.clone() };
        let cost = version_cost(&mutation.key, &version);
        match self.rows.entry(mutation.key.clone()) {
            Slot::Vacant(slot) => {
                slot.insert(Versions { newest: version, older: VecDeque::new() });
            }
            Slot::Occupied(mut slot) => {
                let versions = slot.get_mut();
                let before = std::mem::replace(&mut versions.newest, version);
                if before.lsn == lsn {
                    self.bytes = self.bytes - version_cost(&mutation.key, &before) + cost;
                    return 0;
                }
                versions.older.push_back(before);
            }
        }
        self.bytes += cost;
        self.order.push_back(mutation.key.clone());
        1
    }

    /// Takes out every entry at or below `upto`, in LSN order, and hands its versions to `publish`, which
    /// cannot refuse. The last one taken becomes the published position.
    pub fn drain(&mut self, upto: Lsn, publish: impl FnMut(&Bytes, Lsn, Option<&Bytes>)) {
        self.drain_readable(upto, Lsn::ZERO, publish);
    }

    /// The same without versions that nobody can read any more: no read looks below `read_floor`, and what
    /// follows one is at or below it and is published with it. Gives how many there were, all in all.
    pub fn drain_readable(
        &mut self,
        upto: Lsn,
        read_floor: Lsn,
        mut publish: impl FnMut(&Bytes, Lsn, Option<&Bytes>),
    ) -> usize {
        let (hides, before) = (upto.min(read_floor), self.order.len());
        while let Some(&(at, changed)) = self.entries.front() {
            if at.lsn > upto {
                break;
            }
            self.entries.pop_front();
            for _ in 0..changed {
                let (key, version, next) = self.take_oldest();
                assert_eq!(version.lsn, at.lsn, "the overlay's order and its rows disagree");
                if next.is_none_or(|next| next > hides) {
                    publish(&key, version.lsn, version.value.as_ref());
                }
            }
            self.published = at;
        }
        before - self.order.len()
    }

    /// Takes the oldest version of the first key in order, and says which entry wrote the next one, if there
    /// is one.
    fn take_oldest(&mut self) -> (Bytes, Version, Option<Lsn>) {
        let key = self.order.pop_front().expect("every counted change has a key in the order");
        let Slot::Occupied(mut slot) = self.rows.entry(key) else {
            panic!("every key in the order has a row");
        };
        let versions = slot.get_mut();
        let (key, version, next) = match versions.older.pop_front() {
            Some(version) => {
                let next = versions.older.front().unwrap_or(&versions.newest).lsn;
                (slot.key().clone(), version, Some(next))
            }
            None => {
                let (key, versions) = slot.remove_entry();
                (key, versions.newest, None)
            }
        };
        self.bytes -= version_cost(&key, &version);
        (key, version, next)
    }

    /// Drops every entry above `to`, which becomes the applied position.
    ///
    /// Panics if `to` is below the published position (what is published is never taken back), above the
    /// applied one, or if it names another entry than the one published there.
    pub fn discard_above(&mut self, to: Position) {
        assert!(to.lsn >= self.published.lsn, "PR-41: {to} is below the published {}", self.published);
        assert!(to.lsn <= self.applied.lsn, "{to} has not been executed, only {} has", self.applied);
        while let Some(&(at, changed)) = self.entries.back() {
            if at.lsn <= to.lsn {
                break;
            }
            self.entries.pop_back();
            for _ in 0..changed {
                self.drop_newest(at.lsn);
            }
        }
        self.applied = to;
        if to.lsn == self.published.lsn {
            assert_eq!(to, self.published, "PR-12: another entry is published at this LSN");
        }
    }

    /// The same, and of the entry at `to` nothing is left but its position: a mutant (LE-08).
    pub(crate) fn discard_from(&mut self, to: Position) {
        self.discard_above(to);
        if let Some((_, changed)) = self.entries.back_mut().filter(|(at, _)| *at == to) {
            let changed = std::mem::take(changed);
            (0..changed).for_each(|_| self.drop_newest(to.lsn));
        }
    }

    /// Drops the newest version of the last key in order.
    fn drop_newest(&mut self, lsn: Lsn) {
        let key = self.order.pop_back().expect("every counted change has a key in the order");
        let versions = self.rows.get_mut(&key).expect("every key in the order has a row");
        assert_eq!(versions.newest.lsn, lsn, "the overlay's order and its rows disagree");
        self.bytes -= version_cost(&key, &versions.newest);
        match versions.older.pop_back() {
            Some(version) => versions.newest = version,
            None => {
                self.rows.remove(&key);
            }
        }
    }

    /// The newest tentative version of `key` at or below `at`: its LSN, and its value or none if it is a
    /// deletion.
    pub fn get(&self, key: &[u8], at: Lsn) -> Option<(Lsn, Option<&Bytes>)> {
        if self.rows.is_empty() {
            return None;
        }
        let version = self.rows.get(key)?.at(at)?;
        Some((version.lsn, version.value.as_ref()))
    }

    /// The tentative versions at or below `at` of keys in `from <= key < to` (`to` empty: no end), deletions
    /// included.
    pub fn range<'a>(
        &'a self,
        from: &[u8],
        to: &[u8],
        at: Lsn,
    ) -> impl Iterator<Item = InMemory<'a>> + use<'a> {
        let bounds = key_bounds(from, to);
        self.rows.range::<[u8], _>(bounds).filter_map(move |(key, versions)| {
            let version = versions.at(at)?;
            Some(InMemory { key: &key[..], lsn: version.lsn, value: version.value.as_ref() })
        })
    }
}

/// What one version adds to [`Overlay::bytes`].
fn version_cost(key: &Bytes, version: &Version) -> u64 {
    (key.len() + version.value.as_ref().map_or(0, Bytes::len)) as u64 + VERSION_OVERHEAD
}

/// `from <= key < to` as bounds, where an empty `to` means no end. Bounds in the wrong order give an empty
/// range instead of the map's panic.
pub(crate) fn key_bounds<'k>(from: &'k [u8], to: &'k [u8]) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
    match to {
        [] => (Bound::Included(from), Bound::Unbounded),
        _ if from >= to => (Bound::Included(to), Bound::Excluded(to)),
        _ => (Bound::Included(from), Bound::Excluded(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Term;

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    fn put(key: &str, value: &str) -> Mutation {
        Mutation { key: Bytes::from(format!("\x10{key}")), value: Some(Bytes::from(value.to_owned())) }
    }

    fn seen(overlay: &Overlay, key: &str, lsn: u64) -> Option<(u64, String)> {
        let (lsn, value) = overlay.get(format!("\x10{key}").as_bytes(), Lsn(lsn))?;
        Some((lsn.0, value.map_or("-".into(), |v| String::from_utf8_lossy(v).into_owned())))
    }

    fn filled() -> Overlay {
        let mut overlay = Overlay::new(Position::ZERO);
        overlay.insert(at(1), &[put("a", "1"), put("b", "1")]);
        overlay.insert(at(2), &[put("a", "2")]);
        overlay.insert(at(4), &[]);
        overlay.insert(at(5), &[put("a", "5"), put("a", "5 again"), put("c", "5")]);
        overlay
    }

    #[test]
    fn a_read_sees_the_newest_version_at_or_below_its_position() {
        let overlay = filled();
        assert_eq!(seen(&overlay, "a", 0), None);
        assert_eq!(seen(&overlay, "a", 1), Some((1, "1".into())));
        assert_eq!(seen(&overlay, "a", 4), Some((2, "2".into())));
        assert_eq!(seen(&overlay, "a", u64::MAX), Some((5, "5 again".into())));
        assert_eq!(seen(&overlay, "c", 4), None);
        let keys: Vec<_> = overlay.range(b"\x10b", b"", Lsn(9)).map(|row| row.lsn.0).collect();
        assert_eq!(keys, [1, 5]);
        assert_eq!(overlay.range(b"\x10b", b"\x10a", Lsn(9)).count(), 0);
    }

    #[test]
    fn draining_hands_out_versions_in_lsn_order() {
        let mut overlay = filled();
        let mut out = Vec::new();
        overlay.drain(Lsn(4), |key, lsn, _| out.push((key[1], lsn.0)));
        assert_eq!(out, [(b'a', 1), (b'b', 1), (b'a', 2)]);
        assert_eq!(overlay.published(), at(4));
        assert_eq!(seen(&overlay, "b", 9), None);
        overlay.drain(Lsn::MAX, |key, lsn, _| out.push((key[1], lsn.0)));
        assert_eq!(out[3..], [(b'a', 5), (b'c', 5)]);
        assert_eq!((overlay.published(), overlay.bytes()), (at(5), 0));
        assert!(overlay.is_empty());
    }

    #[test]
    fn what_is_overwritten_below_the_floor_is_not_handed_out() {
        let drained = |upto: u64, read_floor: u64| {
            let (mut overlay, mut out) = (filled(), Vec::new());
            overlay.drain_readable(Lsn(upto), Lsn(read_floor), |key, lsn, _| out.push((key[1], lsn.0)));
            (out, overlay.published().lsn.0)
        };
        let all = vec![(b'a', 1), (b'b', 1), (b'a', 2), (b'a', 5), (b'c', 5)];
        assert_eq!(drained(5, 1), (all.clone(), 5));
        assert_eq!(drained(5, 2), (all[1..].to_vec(), 5), "reads at 2 and above do not see the first");
        assert_eq!(drained(5, 5), ([&all[1..2], &all[3..]].concat(), 5));
        assert_eq!(drained(4, 5), (all[1..3].to_vec(), 4), "what hides the second is not published");
    }

    #[test]
    fn discarding_takes_back_exactly_what_is_above() {
        let mut overlay = filled();
        overlay.discard_above(at(4));
        assert_eq!(seen(&overlay, "a", 9), Some((2, "2".into())));
        assert_eq!(seen(&overlay, "c", 9), None);
        overlay.insert(at(5), &[put("c", "other")]);
        assert_eq!(seen(&overlay, "c", 9), Some((5, "other".into())));
        overlay.discard_above(Position::ZERO);
        assert_eq!((overlay.bytes(), overlay.applied()), (0, Position::ZERO));
    }

    #[test]
    fn pr35_what_follows_another_entry_goes_with_it() {
        let mut overlay = filled();
        overlay.rise(at(4));
        assert_eq!((overlay.published(), overlay.applied()), (at(4), filled().applied()));
        let mut overlay = filled();
        let other = Position::new(types::Term(9), Lsn(4));
        overlay.rise(other);
        assert_eq!((overlay.published(), overlay.applied(), overlay.bytes()), (other, other, 0));
    }

    #[test]
    #[should_panic(expected = "PR-77")]
    fn an_lsn_comes_only_once() {
        filled().insert(at(5), &[]);
    }

    #[test]
    #[should_panic(expected = "PR-41")]
    fn what_is_published_is_not_discarded() {
        let mut overlay = filled();
        overlay.drain(Lsn(2), |_, _, _| {});
        overlay.discard_above(at(1));
    }
}
