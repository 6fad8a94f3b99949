//! The commits that the transaction manager keeps, in few bytes each, and which of them may go (PR-394).
//!
//! One goes once all of its own partitions have secured it and it is old, whatever lies before it: a
//! partition that secures nothing holds back its own commits alone.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use types::Position;

/// A commit that is kept, in few bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub at: Position,
    /// When it was made, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The bytes of its rows, about.
    pub bytes: u32,
    /// In so many of its partitions it is not secured.
    pub unsecured: u32,
}

impl Stamp {
    /// Of a commit that takes about so many bytes of memory.
    pub fn of((at, wall_ms): (Position, u64), bytes: usize, unsecured: u32) -> Stamp {
        Stamp { at, wall_ms, bytes: u32::try_from(bytes).unwrap_or(u32::MAX), unsecured }
    }
}

/// How much goes at once, and how much stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    /// At most so many commits go.
    pub commits: usize,
    /// Of about so many bytes.
    pub bytes: usize,
    /// So many bytes of what is secured stay, if it is not old.
    pub keep: usize,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    /// In the order of timestamps; those that are old were not looked at since they are.
    young: VecDeque<Stamp>,
    /// Old ones that some partition has not secured.
    held: BTreeMap<Position, Stamp>,
    /// Old ones that were held, and are not any more.
    due: BTreeMap<Position, Stamp>,
    /// Bytes of all.
    bytes: usize,
    /// Bytes of those that all of their partitions have secured.
    secured_bytes: usize,
}

impl Stamps {
    /// One that is later than all before.
    pub fn push(&mut self, stamp: Stamp) {
        self.bytes += stamp.bytes as usize;
        if stamp.unsecured == 0 {
            self.secured_bytes += stamp.bytes as usize;
        }
        self.young.push_back(stamp);
    }

    /// One more of its partitions has secured this one.
    pub fn secure(&mut self, at: Position) {
        let young = self.young.binary_search_by_key(&at, |stamp| stamp.at).ok();
        let stamp = match young {
            Some(index) => self.young.get_mut(index),
            None => self.held.get_mut(&at),
        };
        let Some(stamp) = stamp else { return };
        stamp.unsecured = stamp.unsecured.saturating_sub(1);
        if stamp.unsecured > 0 {
            return;
        }
        self.secured_bytes += stamp.bytes as usize;
        if let Some(stamp) = self.held.remove(&at) {
            self.due.insert(at, stamp);
        }
    }

    /// Removes a page of those that may go now. `is_old` says of which it is time; of what is secured beyond
    /// the bytes that stay it is, too. With `all` it does not matter what partitions have secured.
    pub fn remove_old(&mut self, page: Page, all: bool, is_old: impl Fn(&Stamp) -> bool) -> Vec<Stamp> {
        let (mut gone, mut bytes) = (Vec::new(), 0);
        while gone.len() < page.commits && bytes < page.bytes {
            let due = self.due.pop_first().map(|(_, stamp)| stamp);
            let beyond = self.secured_bytes > page.keep;
            let next = due.or_else(|| self.young.pop_front_if(|stamp| beyond || is_old(stamp)));
            let Some(stamp) = next else { break };
            if stamp.unsecured > 0 && !all {
                self.held.insert(stamp.at, stamp);
                continue;
            }
            if stamp.unsecured == 0 {
                self.secured_bytes -= stamp.bytes as usize;
            }
            self.bytes -= stamp.bytes as usize;
            bytes += stamp.bytes as usize;
            gone.push(stamp);
        }
        gone
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.young.len() + self.held.len() + self.due.len()
    }

    /// Their bytes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many there are up to this timestamp.
    pub fn count(&self, upto: Position) -> usize {
        let old = |of: &BTreeMap<Position, Stamp>| of.range(..=upto).count();
        self.young.partition_point(|stamp| stamp.at <= upto) + old(&self.held) + old(&self.due)
    }

    /// The oldest one.
    pub fn oldest(&self) -> Option<Stamp> {
        self.first_above(Position::ZERO)
    }

    /// The oldest one above this timestamp.
    pub fn first_above(&self, at: Position) -> Option<Stamp> {
        let young = self.young.get(self.young.partition_point(|stamp| stamp.at <= at)).copied();
        let old = |of: &BTreeMap<Position, Stamp>| {
            of.range((Bound::Excluded(at), Bound::Unbounded)).next().map(|(_, stamp)| *stamp)
        };
        [young, old(&self.held), old(&self.due)].into_iter().flatten().min_by_key(|stamp| stamp.at)
    }
}
