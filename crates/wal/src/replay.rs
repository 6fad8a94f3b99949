//! Replaying records onto the index while the log is opened, with doubts where damage was found.
//!
//! Damage puts the partitions that it may have hit in *doubt*. What follows can settle a doubt: every segment
//! begins, and every opening goes on, with a snapshot of all partitions. If the entries that a snapshot says
//! exist are all here, with the checksum it names at their end, nothing that is still needed was lost. Else
//! there is a *hole*, and what lies in front of it is all that can be used.

use crate::error::LogError;
use crate::frame::{FrameHeader, HEADER, LogOffset, partition_bit};
use crate::index::{Index, PartitionIndex, SegmentUse};
use crate::reader::{Reader, Shared};
use crate::record::{EntryRef, PartitionState, RECORD_HEADER, Stored, TORN};
use crate::recovered::{Damage, DamageKind, RecoveredPartition};
use crate::scan::Loaded;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{Lsn, PartitionId};
use wire::entry::Entry;

/// Entries that should be here and are not.
struct Hole {
    /// The partition as it was before the first missing entry.
    prefix: PartitionIndex,
    /// Entries up to here are not needed.
    base: EntryRef,
    /// Entries above here are known again.
    missing_to: Lsn,
}

/// What is doubtful about a partition.
struct Doubt {
    /// The damage that raised it.
    damage: usize,
    hole: Option<Hole>,
}

/// The index being rebuilt.
pub(crate) struct Replay {
    pub reader: Reader,
    pub damage: Vec<Damage>,
    /// The last frame was the mark of a clean shutdown.
    pub clean: bool,
    doubts: BTreeMap<PartitionId, Doubt>,
    /// Damage since the last snapshot, with the partitions it may have hit: those first seen later may be
    /// among them.
    open: Vec<(u64, usize)>,
}

impl Replay {
    pub fn new(keep_bytes: usize) -> Replay {
        let reader = Reader { shared: Arc::new(Shared::new(Index::new(keep_bytes))) };
        Replay { reader, damage: Vec::new(), clean: false, doubts: BTreeMap::new(), open: Vec::new() }
    }

    /// True if damage was found behind the last snapshot.
    pub fn has_open_damage(&self) -> bool {
        !self.open.is_empty()
    }

    /// Makes a segment known before its frames are applied.
    pub fn segment(&mut self, used: SegmentUse) {
        self.reader.shared.change().segments.insert(used.segment.number, used);
    }

    /// Notes damage that may have hit the partitions of `filter`.
    pub fn damaged(&mut self, at: LogOffset, what: DamageKind, filter: u64) {
        let number = self.damage.len();
        self.damage.push(Damage { at, what, partitions: Vec::new() });
        self.open.push((filter, number));
        let known: Vec<_> = self.reader.shared.look().partitions.keys().copied().collect();
        // Readers cannot scan across the broken place: what lies behind it gets spots of its own.
        self.reader.shared.change().partitions.values_mut().for_each(|known| known.spot_next = true);
        for id in known.into_iter().filter(|id| filter & partition_bit(*id) != 0) {
            let doubt = self.doubts.entry(id).or_insert(Doubt { damage: number, hole: None });
            // A gap that is settled later was none; this damage is one all the same (PR-164).
            if self.damage[doubt.damage].what == DamageKind::Gap {
                doubt.damage = number;
            }
        }
    }

    /// Applies a whole frame.
    pub fn frame(&mut self, loaded: &Loaded, header: &FrameHeader) -> Result<(), LogError> {
        let mut body = loaded.body(header);
        let mut place = header.at.offset() + HEADER as u64;
        let mut states = None;
        self.clean = false;
        for _ in 0..header.records {
            let before = body.len();
            let stored = Stored::take(&mut body).ok_or(LogError::Unreadable(header.at))?;
            let at = LogOffset::new(header.at.segment(), place);
            place += (before - body.len()) as u64;
            assert!(before - body.len() >= RECORD_HEADER, "records have headers");
            match stored {
                Stored::Snapshot(count) => states = Some(Vec::with_capacity(count.min(1 << 20) as usize)),
                Stored::PartitionState(state) => match &mut states {
                    Some(states) => states.push(state),
                    None => return Err(LogError::Unreadable(header.at)),
                },
                Stored::CleanShutdown => self.clean = true,
                other => self.record(other, at, header.body_end()),
            }
        }
        if let Some(states) = states {
            self.snapshot(states, header.at);
        }
        let mut index = self.reader.shared.change();
        index.segments.get_mut(&header.at.segment()).expect("made known before").used = header.end();
        Ok(())
    }

    fn record(&mut self, stored: Stored, at: LogOffset, frame_end: u64) {
        if let Some(id) = stored.partition() {
            self.meet(id);
        }
        let reader = self.reader.clone();
        match stored {
            Stored::Entry(entry) => self.entry(&entry, at, frame_end),
            Stored::Truncate(id, to) => self.truncate(id, to, at),
            Stored::Base(id, base) => {
                self.doubts.remove(&id);
                let mut index = reader.shared.change();
                index.rebase(id, base);
                index.partition(id).damaged = false;
            }
            Stored::Trim(id, base) => self.trim(id, base),
            Stored::Promise(id, epoch) => {
                let mut index = reader.shared.change();
                let known = index.partition(id);
                known.promised = known.promised.max(epoch);
            }
            Stored::Custom(id, key, value) => reader.shared.change().set_custom(id, key, value),
            Stored::Forget(id) => {
                self.doubts.remove(&id);
                reader.shared.change().forget(id);
            }
            Stored::Repaired(id) => {
                reader.shared.change().partition(id).damaged = false;
                if self.doubts.get(&id).is_some_and(|doubt| doubt.hole.is_none()) {
                    self.doubts.remove(&id);
                }
            }
            Stored::Segment { .. }
            | Stored::Snapshot(_)
            | Stored::PartitionState(_)
            | Stored::CleanShutdown => {}
        }
    }

    /// A partition that is first seen behind damage may have been hit by it.
    fn meet(&mut self, id: PartitionId) {
        if self.reader.shared.look().partitions.contains_key(&id) {
            return;
        }
        self.reader.shared.change().partition(id);
        if let Some((_, damage)) = self.open.iter().find(|(filter, _)| filter & partition_bit(id) != 0) {
            self.doubts.entry(id).or_insert(Doubt { damage: *damage, hole: None });
        }
    }

    fn known(&self, id: PartitionId) -> PartitionIndex {
        let index = self.reader.shared.look();
        let known = &index.partitions[&id];
        PartitionIndex { base: known.base, end: known.end, ..PartitionIndex::default() }
    }

    fn entry(&mut self, entry: &Entry, at: LogOffset, frame_end: u64) {
        let id = entry.header().partition;
        let known = self.known(id);
        let before = entry.lsn().prev();
        let follows = |point: EntryRef| point.lsn() == before && point.crc == entry.header().prev_crc;
        if !follows(known.end) {
            // Perhaps a cut was lost; then what it left over tells.
            match self.reader.point_of(id, before) {
                Ok(point) if follows(point) => {
                    self.doubt(id, at);
                    self.reader.shared.change().truncate(id, point);
                }
                _ => {
                    let point = EntryRef {
                        at: types::Position::new(entry.at().term, before),
                        crc: entry.header().prev_crc,
                    };
                    self.hole(id, point, known.base, at);
                }
            }
        }
        self.reader.shared.change().push(entry, at, frame_end, false);
    }

    fn truncate(&mut self, id: PartitionId, to: EntryRef, at: LogOffset) {
        if self.reader.point_of(id, to.lsn()) == Ok(to) {
            self.reader.shared.change().truncate(id, to);
            return;
        }
        // The cut may lead back to what lies in front of a hole.
        let hole = self.doubts.get_mut(&id).and_then(|doubt| doubt.hole.take());
        let Some(hole) = hole else {
            let base = self.known(id).base;
            return self.hole(id, to, base, at);
        };
        let base = hole.base;
        self.restore(id, hole);
        if self.reader.point_of(id, to.lsn()) == Ok(to) {
            self.reader.shared.change().truncate(id, to);
            self.settle(id);
        } else {
            self.hole(id, to, base, at);
        }
    }

    fn trim(&mut self, id: PartitionId, base: EntryRef) {
        let reader = self.reader.clone();
        let mut index = reader.shared.change();
        if let Some(doubt) = self.doubts.get_mut(&id)
            && let Some(hole) = &mut doubt.hole
        {
            if base.lsn() >= hole.missing_to {
                doubt.hole = None;
                self.settle(id);
            } else if base.lsn() > hole.base.lsn() {
                hole.base = base;
            }
        }
        let (end, start) = (index.partition(id).end.lsn(), index.partition(id).base.lsn());
        if base.lsn() >= end {
            index.rebase(id, base);
        } else if base.lsn() > start {
            index.raise_base(id, base);
        }
    }

    /// Drops a doubt that was raised by nothing but a hole, once that is gone.
    fn settle(&mut self, id: PartitionId) {
        let gap = |doubt: &Doubt| doubt.hole.is_none() && self.damage[doubt.damage].what == DamageKind::Gap;
        if self.doubts.get(&id).is_some_and(gap) {
            self.doubts.remove(&id);
        }
    }

    /// Notes that something is wrong with a partition at `at`, unless that is known already.
    fn doubt(&mut self, id: PartitionId, at: LogOffset) -> &mut Doubt {
        if !self.doubts.contains_key(&id) {
            let damage = self.damage.len();
            self.damage.push(Damage { at, what: DamageKind::Gap, partitions: Vec::new() });
            self.doubts.insert(id, Doubt { damage, hole: None });
        }
        self.doubts.get_mut(&id).expect("just seen to be there")
    }

    /// Entries up to `point` are missing, of which those above `base` are needed; the log goes on behind it.
    fn hole(&mut self, id: PartitionId, point: EntryRef, base: EntryRef, at: LogOffset) {
        let reader = self.reader.clone();
        let mut index = reader.shared.change();
        let doubt = self.doubt(id, at);
        let (prefix, base) = match doubt.hole.take() {
            Some(hole) => (hole.prefix, if hole.base.lsn() > base.lsn() { hole.base } else { base }),
            None => (index.partition(id).clone(), base),
        };
        if point.lsn() > base.lsn() {
            doubt.hole = Some(Hole { prefix, base, missing_to: point.lsn() });
        }
        index.rebase(id, point);
        self.settle(id);
    }

    /// Goes back to what lies in front of a hole.
    fn restore(&mut self, id: PartitionId, hole: Hole) {
        let mut index = self.reader.shared.change();
        let now = index.partition(id).clone();
        let prefix = PartitionIndex {
            promised: now.promised,
            custom: now.custom,
            damaged: now.damaged,
            ..hole.prefix
        };
        index.rebase(id, prefix.base);
        let (first, last) = (prefix.spots.front(), prefix.spots.back());
        if let (Some(first), Some(last)) = (first, last) {
            for (_, used) in index.segments.range_mut(first.at.segment()..=last.at.segment()) {
                used.last.insert(id, prefix.end.lsn());
            }
        }
        let end = prefix.end.lsn();
        *index.partition(id) = prefix;
        if hole.base.lsn() > end {
            index.rebase(id, hole.base);
        } else if hole.base.lsn() > index.partition(id).base.lsn() {
            index.raise_base(id, hole.base);
        }
    }

    /// A snapshot says all there is: what does not agree with it was lost.
    fn snapshot(&mut self, states: Vec<PartitionState>, at: LogOffset) {
        let listed: BTreeSet<_> = states.iter().map(|state| state.partition).collect();
        let known: Vec<_> = self.reader.shared.look().partitions.keys().copied().collect();
        // Readers cannot scan across the broken place: what lies behind it gets spots of its own.
        self.reader.shared.change().partitions.values_mut().for_each(|known| known.spot_next = true);
        for id in known.into_iter().filter(|id| !listed.contains(id)) {
            self.doubts.remove(&id);
            self.reader.shared.change().forget(id);
        }
        for state in states {
            self.meet(state.partition);
            self.reconcile(state, at);
        }
        self.open.clear();
    }

    fn reconcile(&mut self, state: PartitionState, at: LogOffset) {
        let id = state.partition;
        let known = self.known(id);
        let doubt = self.doubts.remove(&id);
        let missing_to =
            doubt.as_ref().and_then(|doubt| doubt.hole.as_ref()).map_or(Lsn::ZERO, |hole| hole.missing_to);
        let complete = known.base.lsn() <= state.base.lsn() && missing_to <= state.base.lsn();
        if state.base == state.end {
            if known.base != state.base || known.end != state.end {
                self.reader.shared.change().rebase(id, state.base);
            }
        } else if complete && self.reader.point_of(id, state.end.lsn()) == Ok(state.end) {
            let mut index = self.reader.shared.change();
            if known.end != state.end {
                index.truncate(id, state.end);
            }
            index.raise_base(id, state.base);
        } else {
            self.doubts.extend(doubt.map(|doubt| (id, doubt)));
            if !complete && known.end == state.end {
                // The hole was there before, and what lies behind it is all here.
                self.trim(id, state.base);
            } else {
                self.hole(id, state.end, state.base, at);
            }
        }
        let mut index = self.reader.shared.change();
        let known = index.partition(id);
        known.promised = state.promised;
        known.damaged = state.damaged;
        known.custom = state.custom.into_iter().collect::<BTreeMap<u16, Bytes>>();
    }

    /// Settles what can be settled and reports every partition. `torn` are those that a cut torn end may have
    /// held.
    pub fn finish(&mut self, torn: u64) -> BTreeMap<PartitionId, RecoveredPartition> {
        let mut reasons = BTreeMap::new();
        for (id, doubt) in std::mem::take(&mut self.doubts) {
            if let Some(hole) = doubt.hole {
                self.restore(id, hole);
            }
            reasons.insert(id, doubt.damage);
        }
        let reader = self.reader.clone();
        let mut index = reader.shared.change();
        for (id, reason) in &reasons {
            if let Some(known) = index.partitions.get_mut(id) {
                known.damaged = true;
                self.damage[*reason].partitions.push(*id);
            }
        }
        let mut report = BTreeMap::new();
        for (id, known) in &index.partitions {
            let reason = reasons.get(id).copied();
            let damaged = known.damaged.then(|| match reason {
                Some(reason) => self.damage[reason].clone(),
                None => Damage { at: LogOffset::default(), what: DamageKind::Earlier, partitions: vec![*id] },
            });
            if let (Some(damaged), None) = (&damaged, reason) {
                self.damage.push(damaged.clone());
            }
            report.insert(*id, recovered(known, damaged, torn & partition_bit(*id) != 0));
        }
        for (id, _) in report.iter().filter(|(_, found)| found.torn_end) {
            index.set_custom(*id, TORN, Bytes::from_static(&[1]));
        }
        // A gap that was settled later was none: entries in segments that were given back look like one at
        // first.
        self.damage.retain(|damage| damage.what != DamageKind::Gap || !damage.partitions.is_empty());
        report
    }
}

fn recovered(known: &PartitionIndex, damaged: Option<Damage>, torn: bool) -> RecoveredPartition {
    let mut custom = known.custom.clone();
    let torn_before = custom.remove(&TORN).is_some();
    RecoveredPartition {
        base: known.base.at,
        base_crc: known.base.crc,
        end: known.end.at,
        end_crc: known.end.crc,
        promised: known.promised,
        custom,
        damaged,
        torn_end: torn || torn_before,
    }
}
