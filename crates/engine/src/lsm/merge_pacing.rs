//! How large files are, and how much is merged after a flush: so that a replica which comes back lacks few of
//! the primary's files.
//!
//! The crate merges the first level, whatever its keys, with all of the next one, and from there on a file at
//! a time with those that it overlaps. So the second level is kept small beside the whole, and files are a
//! small part of it. What a level has too much is not carried on at once but in step with what is flushed:
//! else the first merge after a long time would rewrite most of the files for a few new rows.

use lsm_tree::compaction::Leveled;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file is this part of all of them.
const PARTS: u64 = 256;
/// No file is meant to be smaller: each costs a sync, a descriptor and a place in every list.
const SMALLEST: u64 = 2 << 20;
/// Nor larger.
const LARGEST: u64 = 64 << 20;
/// Files on the first level that are merged into the next one: seldom, so that few files are made,
const MERGE_AT: usize = 4;
/// or often, so that little is rewritten at once, where there is more than this many bytes.
const LARGE: (u64, usize) = (32 << 20, 2);
/// So many files on the first level are merged however much that is: every read looks at each.
const URGENT: usize = 12;
/// Bytes that merges may write for each byte that was flushed.
const PER_FLUSHED: u64 = 5;
/// Bytes that they may write in any case.
const ANYWAY: u64 = 1 << 20;

/// A tree's files as the choice of merges sees them.
pub(super) struct Shape {
    first_level: usize,
    files: BTreeMap<u64, u64>,
}

impl Shape {
    /// With so many files on the first level, and the number and length of each of all.
    pub(super) fn new(first_level: usize, files: impl Iterator<Item = (u64, u64)>) -> Shape {
        Shape { first_level, files: files.collect() }
    }

    /// What is to be merged next.
    pub(super) fn strategy(&self) -> Leveled {
        let part = self.bytes() / PARTS;
        Leveled::default()
            .with_l0_threshold(self.merge_at() as u8)
            .with_table_target_size(part.clamp(SMALLEST, LARGEST))
    }

    fn bytes(&self) -> u64 {
        self.files.values().sum()
    }

    fn merge_at(&self) -> usize {
        if self.bytes() > LARGE.0 { LARGE.1 } else { MERGE_AT }
    }

    /// True if the first level is to be merged into the next one.
    fn is_due(&self) -> bool {
        self.first_level >= self.merge_at()
    }

    /// Bytes of files that `before` does not have.
    pub(super) fn bytes_beside(&self, before: &Shape) -> u64 {
        let new = self.files.iter().filter(|(number, _)| !before.files.contains_key(number));
        new.map(|(_, bytes)| bytes).sum()
    }
}

/// How far merges are behind.
#[derive(Default)]
pub(super) struct MergePacing(Mutex<PacingState>);

#[derive(Default)]
struct PacingState {
    /// Bytes flushed since the last merges.
    flushed: u64,
    /// Bytes that these merges may still write; below zero: they wrote more, and later ones write less.
    allowed: i64,
    /// Merges stopped before everything was as it should be.
    behind: bool,
}

impl MergePacing {
    fn state(&self) -> MutexGuard<'_, PacingState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes came into the tree.
    pub(super) fn flushed(&self, bytes: u64) {
        self.state().flushed += bytes;
    }

    /// True if there is something to merge, now that something was flushed.
    pub(super) fn wants_merge(&self, shape: &Shape) -> bool {
        self.state().behind || shape.is_due()
    }

    /// Merges begin.
    pub(super) fn begin(&self, shape: &Shape) {
        let mut state = self.state();
        let flushed = std::mem::take(&mut state.flushed);
        let most = (flushed * PER_FLUSHED + ANYWAY) as i64;
        // What was not needed is no reason for a larger merge later.
        state.allowed = (state.allowed + most).min(most);
        state.behind = shape.is_due();
    }

    /// True if another merge may follow.
    pub(super) fn goes_on(&self, shape: &Shape) -> bool {
        let mut state = self.state();
        let goes_on = state.allowed > 0 || shape.first_level >= URGENT;
        state.behind |= !goes_on;
        goes_on
    }

    /// A merge wrote so many bytes.
    pub(super) fn merged(&self, bytes: u64) {
        self.state().allowed -= bytes as i64;
    }

    /// There is nothing more to merge.
    pub(super) fn is_even(&self) {
        self.state().behind = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(first_level: usize, files: u64) -> Shape {
        Shape::new(first_level, (0..files).map(|number| (number, 1 << 20)))
    }

    #[test]
    fn merges_keep_step_with_what_is_flushed() {
        let pacing = MergePacing::default();
        assert!(!pacing.wants_merge(&shape(3, 9)) && pacing.wants_merge(&shape(4, 9)));
        assert!(!pacing.wants_merge(&shape(1, 50)) && pacing.wants_merge(&shape(2, 50)));
        pacing.flushed(1 << 20);
        pacing.begin(&shape(4, 9));
        assert!(pacing.goes_on(&shape(4, 9)));
        pacing.merged(15 << 20);
        assert!(!pacing.goes_on(&shape(0, 9)), "that was more than enough for this flush");
        assert!(pacing.wants_merge(&shape(1, 9)), "what is left over is taken up after the next flush");
        pacing.flushed(1 << 20);
        pacing.begin(&shape(1, 9));
        assert!(!pacing.goes_on(&shape(1, 9)), "it is paid off first");
        assert!(pacing.goes_on(&shape(URGENT, 9)), "but reads must not look at too many files");
        for _ in 0..9 {
            pacing.flushed(1 << 20);
            pacing.begin(&shape(1, 9));
        }
        assert!(pacing.goes_on(&shape(1, 9)));
        pacing.is_even();
        assert!(!pacing.wants_merge(&shape(1, 9)));
        pacing.merged(7 << 20);
        assert!(!pacing.goes_on(&shape(1, 9)), "what was not used before is not saved up");
    }

    #[test]
    fn new_files_are_told_from_old_ones() {
        let (before, after) = (shape(0, 9), shape(0, 12));
        assert_eq!((after.bytes_beside(&before), before.bytes_beside(&after)), (3 << 20, 0));
    }
}
