//! What the log knows in memory: for each partition where it begins and ends and, sparsely, where its entries
//! lie.
//!
//! A *spot* points at one entry's record. Between a spot and the next one of the same partition lie at most
//! [`SPOT_EVERY`] bytes of log before the last entry that belongs to the first spot, so a read scans no more
//! than that to find its place, however many partitions share the log.

use crate::apart::Apart;
use crate::file::File;
use crate::frame::LogOffset;
use crate::record::{EntryRef, PartitionState};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use types::{Epoch, Lsn, PartitionId, Position};
use wire::entry::Entry;

/// A new spot is made when this many bytes of log lie between an entry and its partition's last spot.
pub(crate) const SPOT_EVERY: u64 = 16 * 1024;

/// Where an entry lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    /// The entry's LSN.
    pub lsn: Lsn,
    /// Its record's header.
    pub at: LogOffset,
    /// Where the body of its frame ends, as an offset in the segment.
    pub frame_end: u64,
    /// How many bytes of entries the partition had logged before it.
    pub bytes_before: u64,
}

/// One segment file, open.
pub(crate) struct Segment {
    pub number: u32,
    pub length: u64,
    pub file: Arc<dyn File>,
    /// No part of it was found that the disk cannot read. Such a file is written no more.
    pub sound: bool,
}

impl Segment {
    /// The file name of segment `number`.
    pub fn name(number: u32) -> String {
        format!("{number:08x}.log")
    }

    /// The number of the segment file of this name.
    pub fn number(name: &str) -> Option<u32> {
        let digits = name.strip_suffix(".log")?;
        let number = u32::from_str_radix(digits, 16).ok()?;
        (Segment::name(number) == name).then_some(number)
    }
}

/// A segment and what in it is still needed.
pub(crate) struct SegmentUse {
    pub segment: Arc<Segment>,
    /// The highest LSN of each partition that has an entry in it.
    pub last: BTreeMap<PartitionId, Lsn>,
    /// Bytes written.
    pub used: u64,
}

/// What is known of one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartitionIndex {
    /// Before the first entry that is kept.
    pub base: EntryRef,
    /// The last entry, or `base`.
    pub end: EntryRef,
    /// The last entry known to be on the disk.
    pub durable: Position,
    /// What the owner was last told of `durable`.
    pub told: Position,
    pub promised: Epoch,
    pub custom: BTreeMap<u16, Bytes>,
    pub damaged: bool,
    pub spots: VecDeque<Spot>,
    /// The next entry gets a spot: what lies behind the last spot is not all valid any more.
    pub spot_next: bool,
    /// The newest entries, without a gap up to `end`.
    pub recent: VecDeque<Entry>,
    /// Bytes of entries logged so far.
    pub bytes: u64,
    /// Entries up to `base` that lie in a file of their own.
    pub apart: Option<Apart>,
    /// True while it is in the owner's list of partitions whose durable end may have changed.
    pub touched: bool,
}

impl PartitionIndex {
    /// A partition without entries that continues above `base`.
    pub fn at(base: EntryRef) -> PartitionIndex {
        PartitionIndex { base, end: base, ..PartitionIndex::default() }
    }

    /// Before the first entry that is here, in whatever file.
    pub fn first(&self) -> EntryRef {
        self.apart.as_ref().map_or(self.base, Apart::base)
    }

    /// The state that a snapshot keeps of it.
    pub fn state(&self, partition: PartitionId) -> PartitionState {
        PartitionState {
            partition,
            base: self.base,
            end: self.end,
            promised: self.promised,
            damaged: self.damaged,
            custom: self.custom.iter().map(|(key, value)| (*key, value.clone())).collect(),
        }
    }

    /// The spot at or before `lsn`, as an index.
    pub fn spot_for(&self, lsn: Lsn) -> Option<usize> {
        self.spots.partition_point(|spot| spot.lsn <= lsn).checked_sub(1)
    }

    /// Panics unless everything is in order.
    fn validate(&self) {
        assert!(self.base.lsn() <= self.end.lsn(), "base {} above end {}", self.base.at, self.end.at);
        assert!(self.base.lsn() < self.end.lsn() || self.base == self.end, "two points at {}", self.end.at);
        let apart = self.apart.as_ref().map_or(self.base, Apart::upto);
        assert_eq!(apart, self.base, "what was put apart goes on behind another entry");
        assert!(self.durable.lsn <= self.end.lsn(), "durable {} above end {}", self.durable, self.end.at);
        let mut last: Option<&Spot> = None;
        for spot in &self.spots {
            assert!(last.is_none_or(|last| last.lsn < spot.lsn && last.at < spot.at), "spots out of order");
            assert!(spot.lsn <= self.end.lsn(), "a spot above the end");
            last = Some(spot);
        }
        if let Some(entry) = self.recent.back() {
            assert_eq!(
                EntryRef::new(entry.at(), entry.crc()),
                self.end,
                "the newest entry kept is not the end"
            );
            let first = self.recent.front().expect("not empty").lsn();
            assert_eq!(entry.lsn().0 - first.0 + 1, self.recent.len() as u64, "a gap in the entries kept");
        }
    }
}

/// Everything that readers share with the owner.
#[derive(Default)]
pub(crate) struct Index {
    pub partitions: BTreeMap<PartitionId, PartitionIndex>,
    pub segments: BTreeMap<u32, SegmentUse>,
    /// The kept entries, oldest first. A name whose entry was cut meanwhile is skipped.
    kept: VecDeque<(PartitionId, Lsn)>,
    kept_bytes: usize,
    keep_bytes: usize,
}

impl Index {
    /// An empty one that keeps the newest entries up to so many bytes.
    pub fn new(keep_bytes: usize) -> Index {
        Index { keep_bytes, ..Index::default() }
    }

    pub fn partition(&mut self, partition: PartitionId) -> &mut PartitionIndex {
        self.partitions.entry(partition).or_default()
    }

    /// The next entry of its partition lies at `at`, in a frame whose body ends at `frame_end`.
    pub fn push(&mut self, entry: &Entry, at: LogOffset, frame_end: u64, keep: bool) {
        let id = entry.header().partition;
        let used = self.segments.get_mut(&at.segment()).expect("entries lie in known segments");
        used.last.insert(id, entry.lsn());
        let partition = self.partitions.entry(id).or_default();
        assert_eq!(entry.lsn(), partition.end.lsn().next(), "an entry of {id} out of order");
        let far = partition.spots.back().is_none_or(|spot| {
            spot.at.segment() != at.segment() || at.offset() - spot.at.offset() >= SPOT_EVERY
        });
        if far || partition.spot_next {
            let bytes_before = partition.bytes;
            partition.spots.push_back(Spot { lsn: entry.lsn(), at, frame_end, bytes_before });
            partition.spot_next = false;
        }
        partition.end = EntryRef::new(entry.at(), entry.crc());
        partition.bytes += entry.bytes().len() as u64;
        if keep {
            partition.recent.push_back(entry.clone());
            self.kept.push_back((id, entry.lsn()));
            self.kept_bytes += entry.bytes().len();
            self.let_go();
        } else {
            self.drop_recent(id);
        }
    }

    /// Lets go of the oldest kept entries until the rest is small enough.
    fn let_go(&mut self) {
        while self.kept_bytes > self.keep_bytes {
            let Some((id, lsn)) = self.kept.pop_front() else { return };
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            if partition.recent.front().is_some_and(|entry| entry.lsn() <= lsn) {
                let entry = partition.recent.pop_front().expect("just seen");
                self.kept_bytes -= entry.bytes().len();
            }
        }
    }

    fn drop_recent(&mut self, id: PartitionId) {
        if let Some(partition) = self.partitions.get_mut(&id) {
            let bytes: usize = partition.recent.drain(..).map(|entry| entry.bytes().len()).sum();
            self.kept_bytes -= bytes;
        }
    }

    /// The partition's log now ends at `to`, which is one of its entries or its base.
    pub fn truncate(&mut self, id: PartitionId, to: EntryRef) {
        let partition = self.partitions.entry(id).or_default();
        assert!(
            to.lsn() >= partition.base.lsn() && to.lsn() <= partition.end.lsn(),
            "a cut of {id} to {}",
            to.at
        );
        partition.end = to;
        partition.durable = partition.durable.min(to.at);
        while let Some(spot) = partition.spots.pop_back_if(|spot| spot.lsn > to.lsn()) {
            partition.bytes = spot.bytes_before;
        }
        partition.spot_next = true;
        while let Some(entry) = partition.recent.pop_back_if(|entry| entry.lsn() > to.lsn()) {
            self.kept_bytes -= entry.bytes().len();
        }
        for used in self.segments.values_mut() {
            if let Some(last) = used.last.get_mut(&id) {
                *last = (*last).min(to.lsn());
            }
        }
    }

    /// The partition's log is empty and continues above `base`.
    pub fn rebase(&mut self, id: PartitionId, base: EntryRef) {
        self.drop_recent(id);
        let partition = self.partitions.entry(id).or_default();
        let kept = std::mem::take(partition);
        *partition = PartitionIndex {
            promised: kept.promised,
            damaged: kept.damaged,
            custom: kept.custom,
            touched: kept.touched,
            // Also where the log began, or ended, just there before: what was told of that log says nothing
            // of this one.
            told: Position::ZERO,
            bytes: kept.bytes,
            ..PartitionIndex::at(base)
        };
        for used in self.segments.values_mut() {
            used.last.remove(&id);
        }
    }

    /// Entries up to `base` are no longer needed.
    pub fn raise_base(&mut self, id: PartitionId, base: EntryRef) {
        let partition = self.partitions.entry(id).or_default();
        assert!(base.lsn() <= partition.end.lsn(), "{id} truncated to {} above its end", base.at);
        if base.lsn() >= partition.base.lsn() {
            partition.apart = None;
        }
        if base.lsn() <= partition.base.lsn() {
            return;
        }
        partition.base = base;
        if base.lsn() == partition.end.lsn() {
            partition.spots.clear();
        }
        while partition.spots.get(1).is_some_and(|second| second.lsn <= base.lsn().next()) {
            partition.spots.pop_front();
        }
        while partition.recent.front().is_some_and(|entry| entry.lsn() <= base.lsn()) {
            let entry = partition.recent.pop_front().expect("just seen");
            self.kept_bytes -= entry.bytes().len();
        }
    }

    /// Nothing of the partition is known any more.
    pub fn forget(&mut self, id: PartitionId) {
        self.drop_recent(id);
        self.partitions.remove(&id);
        for used in self.segments.values_mut() {
            used.last.remove(&id);
        }
    }

    /// Keeps a custom value, or removes its key if it is empty.
    pub fn set_custom(&mut self, id: PartitionId, key: u16, value: Bytes) {
        let partition = self.partition(id);
        if value.is_empty() {
            partition.custom.remove(&key);
        } else {
            partition.custom.insert(key, value);
        }
    }

    /// True if no partition needs anything that lies in this segment.
    pub fn is_dead(&self, used: &SegmentUse) -> bool {
        !used.last.iter().any(|(id, last)| self.needs(*id, *last))
    }

    /// True if the partition still needs its entry `lsn`.
    pub fn needs(&self, id: PartitionId, lsn: Lsn) -> bool {
        self.partitions.get(&id).is_some_and(|partition| lsn > partition.base.lsn())
    }

    /// Bytes of the partition's entries at and above `lsn`, estimated.
    pub fn bytes_since(&self, id: PartitionId, lsn: Lsn) -> u64 {
        let Some(partition) = self.partitions.get(&id) else { return 0 };
        let lsn = lsn.max(partition.base.lsn().next());
        if lsn > partition.end.lsn() {
            return 0;
        }
        let Some(at) = partition.spot_for(lsn) else { return 0 };
        let spot = partition.spots[at];
        let (next_lsn, next_bytes) = match partition.spots.get(at + 1) {
            Some(next) => (next.lsn.0, next.bytes_before),
            None => (partition.end.lsn().0 + 1, partition.bytes),
        };
        let share =
            (next_bytes.saturating_sub(spot.bytes_before)) * (lsn.0 - spot.lsn.0) / (next_lsn - spot.lsn.0);
        partition.bytes.saturating_sub(spot.bytes_before + share)
    }

    /// Panics unless everything is in order. Tests call it after every step.
    pub fn validate(&self) {
        self.partitions.values().for_each(PartitionIndex::validate);
        let kept = self.partitions.values().flat_map(|partition| &partition.recent);
        assert_eq!(kept.map(|entry| entry.bytes().len()).sum::<usize>(), self.kept_bytes, "bytes kept");
        for partition in self.partitions.values() {
            for spot in partition.spots.iter().filter(|spot| spot.lsn > partition.base.lsn()) {
                assert!(self.segments.contains_key(&spot.at.segment()), "a spot in a segment that is gone");
            }
        }
    }
}
