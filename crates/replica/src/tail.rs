//! The newest entries of a log, in memory: what is sent to members and compared with what they have.

use std::collections::VecDeque;
use types::{Lsn, Position};
use wire::Entry;

/// A run of entries without a gap, behind a known position.
#[derive(Clone, Debug)]
pub struct Tail {
    base: Position,
    base_crc: u32,
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Tail {
    /// An empty tail behind the entry at `base` with this checksum.
    pub fn new(base: Position, base_crc: u32) -> Tail {
        Tail { base, base_crc, entries: VecDeque::new(), bytes: 0 }
    }

    /// The last entry's position.
    pub fn end(&self) -> Position {
        self.entries.back().map_or(self.base, Entry::at)
    }

    /// The last entry's checksum.
    pub fn end_crc(&self) -> u32 {
        self.entries.back().map_or(self.base_crc, Entry::crc)
    }

    /// The position just before the first entry in memory.
    pub fn base(&self) -> Position {
        self.base
    }

    /// Bytes of the entries in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the next entry. Panics if it does not follow: its LSN, its epoch and its chain (R3).
    pub fn push(&mut self, entry: Entry) {
        let end = self.end();
        assert!(entry.lsn() == end.lsn.next(), "R3: {} follows {end}", entry.at());
        assert!(entry.at().term >= end.term, "R3: {} follows {end}", entry.at());
        assert!(entry.header().prev_crc == self.end_crc(), "R3: {} does not chain to {end}", entry.at());
        self.bytes += entry.bytes().len();
        self.entries.push_back(entry);
    }

    /// Position and checksum at `lsn`, if it is the base or in memory.
    pub fn at(&self, lsn: Lsn) -> Option<(Position, u32)> {
        if lsn == self.base.lsn {
            return Some((self.base, self.base_crc));
        }
        self.get(lsn).map(|entry| (entry.at(), entry.crc()))
    }

    /// The entry at `lsn`, if it is in memory.
    pub fn get(&self, lsn: Lsn) -> Option<&Entry> {
        let index = lsn.0.checked_sub(self.base.lsn.0 + 1)?;
        self.entries.get(usize::try_from(index).ok()?)
    }

    /// Entries from `from` on, as many as fit into `max_bytes`, at least one if there is one. `from` must be
    /// in memory.
    pub fn run(&self, from: Lsn, max_bytes: usize) -> impl Iterator<Item = &Entry> {
        let skip = from.0.saturating_sub(self.base.lsn.0 + 1) as usize;
        let mut taken = 0usize;
        self.entries.iter().skip(skip).take_while(move |entry| {
            let first = taken == 0;
            taken += entry.bytes().len();
            first || taken <= max_bytes
        })
    }

    /// Removes every entry above `to` and gives them, oldest first. `to` must not lie below the base.
    pub fn truncate(&mut self, to: Lsn) -> Vec<Entry> {
        assert!(to >= self.base.lsn, "cut to {to} below the base {}", self.base);
        let keep = (to.0 - self.base.lsn.0) as usize;
        let dropped: Vec<Entry> = self.entries.split_off(keep.min(self.entries.len())).into();
        self.bytes -= dropped.iter().map(|entry| entry.bytes().len()).sum::<usize>();
        dropped
    }

    /// Forgets entries at or below `upto` while more than `keep_bytes` are in memory.
    pub fn trim(&mut self, upto: Lsn, keep_bytes: usize) {
        while self.bytes > keep_bytes && self.entries.front().is_some_and(|entry| entry.lsn() <= upto) {
            let entry = self.entries.pop_front().expect("a front");
            self.bytes -= entry.bytes().len();
            self.base = entry.at();
            self.base_crc = entry.crc();
        }
    }
}
