//! Records: what a frame's body is made of.
//!
//! [`Record`](wire::log::Record) is what callers append. What lies in the file is a little different:
//! positions that the log looked up are written along, so that a replay needs no look-up, and there are
//! records that only the log itself makes.
//!
//! A record on disk is `kind u8 | three zero bytes | length u32 | content`. Kinds, with `P` for a partition
//! id (u32) and `@` for a position and the checksum of the entry there (epoch u64, LSN u64, checksum u32):
//!
//! ```text
//!  1 entry          the bytes of `wire::entry`
//!  2 cut            P @       the partition's log ends at @
//!  3 base           P @       the partition's log is empty and continues above @
//!  4 truncate       P @       entries up to and including @ are no longer needed
//!  5 promise        P epoch u64
//!  6 custom         P key u16, value: the rest. An empty value removes the key. Key 65535 is the log's own: see `TORN`
//!  7 forget         P         nothing of the partition is needed any more
//!  8 repaired       P         the owner has compared a damaged partition with a good copy
//!  9 clean shutdown
//! 10 segment        length u64, position where the segment before ended u64
//! 11 snapshot       number of states u32: that many states follow in the same frame, and are all there is
//! 12 state          P @base @end promise u64, damaged u8, number of custom values u16, each key u16 length u32 value
//! ```

use crate::frame::{LogOffset, read_u32, read_u64};
use bytes::Bytes;
use types::{Epoch, Lsn, PartitionId, Position, Term};
use wire::entry::Entry;

/// The key of the custom value with which an opening says that it cut a torn end off (PR-18). Its owner takes
/// it away with an empty value once it has again what may have been lost.
pub const TORN: u16 = u16::MAX;

/// A position and the checksum of the entry there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EntryRef {
    pub at: Position,
    pub crc: u32,
}

impl EntryRef {
    pub fn new(at: Position, crc: u32) -> EntryRef {
        EntryRef { at, crc }
    }

    pub fn lsn(&self) -> Lsn {
        self.at.lsn
    }
}

/// All that a partition has besides its entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PartitionState {
    pub partition: PartitionId,
    pub base: EntryRef,
    pub end: EntryRef,
    pub promised: Epoch,
    pub damaged: bool,
    pub custom: Vec<(u16, Bytes)>,
}

/// A record as it lies in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stored {
    Entry(Entry),
    Truncate(PartitionId, EntryRef),
    Base(PartitionId, EntryRef),
    Trim(PartitionId, EntryRef),
    Promise(PartitionId, Epoch),
    Custom(PartitionId, u16, Bytes),
    Forget(PartitionId),
    Repaired(PartitionId),
    CleanShutdown,
    Segment { length: u64, before: LogOffset },
    Snapshot(u32),
    PartitionState(PartitionState),
}

/// Length of a record's header.
pub(crate) const RECORD_HEADER: usize = 8;
/// The kind of [`Stored::Entry`]: readers look for it without decoding the rest.
pub(crate) const KIND_ENTRY: u8 = 1;

const POINT: usize = 20;

impl Stored {
    fn kind(&self) -> u8 {
        match self {
            Stored::Entry(_) => KIND_ENTRY,
            Stored::Truncate(..) => 2,
            Stored::Base(..) => 3,
            Stored::Trim(..) => 4,
            Stored::Promise(..) => 5,
            Stored::Custom(..) => 6,
            Stored::Forget(_) => 7,
            Stored::Repaired(_) => 8,
            Stored::CleanShutdown => 9,
            Stored::Segment { .. } => 10,
            Stored::Snapshot(_) => 11,
            Stored::PartitionState(_) => 12,
        }
    }

    /// The partition it is about, if it is about one.
    pub fn partition(&self) -> Option<PartitionId> {
        match self {
            Stored::Entry(entry) => Some(entry.header().partition),
            Stored::Truncate(p, _) | Stored::Base(p, _) | Stored::Trim(p, _) => Some(*p),
            Stored::Promise(p, _) | Stored::Custom(p, ..) | Stored::Forget(p) | Stored::Repaired(p) => {
                Some(*p)
            }
            Stored::PartitionState(state) => Some(state.partition),
            Stored::CleanShutdown | Stored::Segment { .. } | Stored::Snapshot(_) => None,
        }
    }

    /// Appends the record to a frame's body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[self.kind(), 0, 0, 0, 0, 0, 0, 0]);
        match self {
            Stored::Entry(entry) => out.extend_from_slice(entry.bytes()),
            Stored::Truncate(p, point) | Stored::Base(p, point) | Stored::Trim(p, point) => {
                put_u32(out, p.0);
                put_point(out, point);
            }
            Stored::Promise(p, epoch) => {
                put_u32(out, p.0);
                put_u64(out, epoch.0);
            }
            Stored::Custom(p, key, value) => {
                put_u32(out, p.0);
                out.extend_from_slice(&key.to_le_bytes());
                out.extend_from_slice(value);
            }
            Stored::Forget(p) | Stored::Repaired(p) => put_u32(out, p.0),
            Stored::CleanShutdown => {}
            Stored::Segment { length, before } => {
                put_u64(out, *length);
                put_u64(out, before.0);
            }
            Stored::Snapshot(count) => put_u32(out, *count),
            Stored::PartitionState(state) => state.encode(out),
        }
        let length = (out.len() - start - RECORD_HEADER) as u32;
        out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    }

    /// Takes the first record off `body`. `None` if it is none that this version can read.
    pub fn take(body: &mut Bytes) -> Option<Stored> {
        if body.len() < RECORD_HEADER {
            return None;
        }
        let (kind, length) = (body[0], read_u32(body, 4) as usize);
        if body.len() - RECORD_HEADER < length {
            return None;
        }
        let content = body.slice(RECORD_HEADER..RECORD_HEADER + length);
        let stored = Stored::decode(kind, content)?;
        let _ = body.split_to(RECORD_HEADER + length);
        Some(stored)
    }

    fn decode(kind: u8, content: Bytes) -> Option<Stored> {
        if kind == KIND_ENTRY {
            return Some(Stored::Entry(Entry::decode(content).ok()?));
        }
        let mut from = Fields { bytes: content };
        let stored = match kind {
            2 => Stored::Truncate(from.partition()?, from.point()?),
            3 => Stored::Base(from.partition()?, from.point()?),
            4 => Stored::Trim(from.partition()?, from.point()?),
            5 => Stored::Promise(from.partition()?, Epoch(from.u64()?)),
            6 => Stored::Custom(from.partition()?, from.u16()?, from.rest()),
            7 => Stored::Forget(from.partition()?),
            8 => Stored::Repaired(from.partition()?),
            9 => Stored::CleanShutdown,
            10 => Stored::Segment { length: from.u64()?, before: LogOffset(from.u64()?) },
            11 => Stored::Snapshot(from.u32()?),
            12 => Stored::PartitionState(PartitionState::decode(&mut from)?),
            _ => return None,
        };
        from.bytes.is_empty().then_some(stored)
    }
}

impl PartitionState {
    fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.partition.0);
        put_point(out, &self.base);
        put_point(out, &self.end);
        put_u64(out, self.promised.0);
        out.push(u8::from(self.damaged));
        out.extend_from_slice(&(self.custom.len() as u16).to_le_bytes());
        for (key, value) in &self.custom {
            out.extend_from_slice(&key.to_le_bytes());
            put_u32(out, value.len() as u32);
            out.extend_from_slice(value);
        }
    }

    fn decode(from: &mut Fields) -> Option<PartitionState> {
        let partition = from.partition()?;
        let (base, end) = (from.point()?, from.point()?);
        let promised = Epoch(from.u64()?);
        let damaged = from.take(1)?[0] != 0;
        let count = from.u16()?;
        let mut custom = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let key = from.u16()?;
            let length = from.u32()? as usize;
            // The value outlives the segment's buffer, so it gets memory of its own.
            custom.push((key, Bytes::copy_from_slice(&from.take(length)?)));
        }
        Some(PartitionState { partition, base, end, promised, damaged, custom })
    }
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_point(out: &mut Vec<u8>, point: &EntryRef) {
    put_u64(out, point.at.term.0);
    put_u64(out, point.at.lsn.0);
    put_u32(out, point.crc);
}

/// Takes fields off the front of a record's content.
struct Fields {
    bytes: Bytes,
}

impl Fields {
    fn take(&mut self, count: usize) -> Option<Bytes> {
        (self.bytes.len() >= count).then(|| self.bytes.split_to(count))
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| read_u32(&bytes, 0))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|bytes| read_u64(&bytes, 0))
    }

    fn partition(&mut self) -> Option<PartitionId> {
        self.u32().map(PartitionId)
    }

    fn point(&mut self) -> Option<EntryRef> {
        let bytes = self.take(POINT)?;
        let at = Position::new(Term(read_u64(&bytes, 0)), Lsn(read_u64(&bytes, 8)));
        Some(EntryRef::new(at, read_u32(&bytes, 16)))
    }

    fn rest(&mut self) -> Bytes {
        Bytes::copy_from_slice(&std::mem::take(&mut self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::entry::{Header, Kind};

    #[test]
    fn every_kind_reads_back() {
        let p = PartitionId(70);
        let at = Position::new(Term(2), Lsn(9));
        let point = EntryRef::new(at, 0xabcd);
        let state = PartitionState {
            partition: p,
            base: point,
            end: point,
            promised: Epoch(4),
            damaged: true,
            custom: vec![(1, Bytes::from_static(b"one")), (2, Bytes::new())],
        };
        let all = vec![
            Stored::Entry(Entry::encode(Header::new(Kind::Rows, p, at, 5), b"payload")),
            Stored::Truncate(p, point),
            Stored::Base(p, point),
            Stored::Trim(p, point),
            Stored::Promise(p, Epoch(8)),
            Stored::Custom(p, 3, Bytes::from_static(b"value")),
            Stored::Forget(p),
            Stored::Repaired(p),
            Stored::CleanShutdown,
            Stored::Segment { length: 77, before: LogOffset::new(1, 8) },
            Stored::Snapshot(1),
            Stored::PartitionState(state),
        ];
        let mut body = Vec::new();
        all.iter().for_each(|stored| stored.encode(&mut body));
        let mut bytes = Bytes::from(body.clone());
        let again: Vec<_> = std::iter::from_fn(|| Stored::take(&mut bytes)).collect();
        assert_eq!(again, all);
        assert!(bytes.is_empty());
        for length in 0..body.len() {
            let mut bytes = Bytes::copy_from_slice(&body[..length]);
            assert!(std::iter::from_fn(|| Stored::take(&mut bytes)).count() < all.len());
        }
    }
}
