//! Reading the log back: by its owner, and by any thread that holds a [`Reader`] while the owner appends.

use crate::error::is_unreadable;
use crate::frame::{FrameHeader, HEADER, LogOffset, align, read_u32, read_u64};
use crate::index::{Index, Segment};
use crate::record::{EntryRef, KIND_ENTRY, RECORD_HEADER};
use bytes::Bytes;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use types::{Durable, Lsn, PartitionId, Position};
use wire::entry::{Entry, HEADER_BYTES};

/// Why entries cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// The log knows nothing of the partition.
    #[error("the log has no partition {0}")]
    Unknown(PartitionId),
    /// The entries asked for were truncated: what is here starts above `base`.
    #[error("the log of the partition starts above {base}")]
    TooOld {
        /// The position before the first entry that is here.
        base: Position,
    },
    /// The entries asked for do not exist yet.
    #[error("the log of the partition ends at {end}")]
    Beyond {
        /// The last position.
        end: Position,
    },
    /// An entry is not on the disk as it was written.
    #[error("the log is damaged in segment {segment} near offset {offset}: {what}")]
    Corrupt {
        /// The segment's number.
        segment: u32,
        /// Where in it the search began.
        offset: u64,
        /// What was found.
        what: String,
    },
    /// The disk refused to read.
    #[error("the log cannot be read: {0}")]
    Io(String),
}

/// What the owner and the readers share.
pub(crate) struct Shared {
    index: RwLock<Index>,
}

impl Shared {
    pub fn new(index: Index) -> Shared {
        Shared { index: RwLock::new(index) }
    }

    /// The index, for looking. No IO happens under this lock.
    pub fn look(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().expect("a thread panicked while it changed the index")
    }

    /// The index, for changing. Only the log's owner does so.
    pub fn change(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().expect("a thread panicked while it changed the index")
    }
}

/// Reads a log while its owner, perhaps on another thread, appends. Cheap to clone.
#[derive(Clone)]
pub struct Reader {
    pub(crate) shared: Arc<Shared>,
}

/// A stretch of log that holds entries `first..=last` of one partition.
struct Stretch {
    segment: Arc<Segment>,
    at: LogOffset,
    frame_end: u64,
    first: Lsn,
    last: Lsn,
}

impl Reader {
    /// The partition's last position and the checksum of the entry there.
    pub fn end(&self, partition: PartitionId) -> Option<(Position, u32)> {
        self.shared.look().partitions.get(&partition).map(|known| (known.end.at, known.end.crc))
    }

    /// The position before the first entry that is here, and the checksum of the entry there.
    pub fn base(&self, partition: PartitionId) -> Option<(Position, u32)> {
        self.shared.look().partitions.get(&partition).map(|known| (known.first().at, known.first().crc))
    }

    /// The last position that is known to be on the disk.
    pub fn durable(&self, partition: PartitionId) -> Option<Durable<Position>> {
        self.shared.look().partitions.get(&partition).map(|known| Durable::by_storage(known.durable))
    }

    /// Bytes of log in use.
    pub fn bytes(&self) -> u64 {
        self.shared.look().segments.values().map(|used| used.used).sum()
    }

    /// The partitions that need an entry in the oldest segment: because of them no segment can be given back.
    /// None while that is the segment that is written, which stays whatever is needed of it.
    pub fn holding_back(&self) -> Vec<PartitionId> {
        let index = self.shared.look();
        let Some((_, oldest)) = index.segments.first_key_value().filter(|_| index.segments.len() > 1) else {
            return Vec::new();
        };
        let needed = oldest.last.iter().filter(|(id, last)| index.needs(**id, **last));
        needed.map(|(id, _)| *id).collect()
    }

    /// Bytes of the partition's entries at and above `lsn`, estimated from the index.
    pub fn bytes_since(&self, partition: PartitionId, lsn: Lsn) -> u64 {
        self.shared.look().bytes_since(partition, lsn)
    }

    /// The position and checksum of the entry `lsn`, or of the base. Reads the file unless the entry is
    /// recent.
    pub fn position_of(&self, partition: PartitionId, lsn: Lsn) -> Result<(Position, u32), ReadError> {
        {
            let index = self.shared.look();
            let known = index.partitions.get(&partition).ok_or(ReadError::Unknown(partition))?;
            let points = [known.end, known.base, known.first()];
            if let Some(point) = points.into_iter().find(|point| point.lsn() == lsn) {
                return Ok((point.at, point.crc));
            }
            if lsn > known.end.lsn() {
                return Err(ReadError::Beyond { end: known.end.at });
            }
        }
        let entries = self.read(partition, lsn, 1)?;
        // The owner may have cut the log between the two looks.
        let entry = entries.first().ok_or(ReadError::Beyond { end: Position::ZERO })?;
        Ok((entry.at(), entry.crc()))
    }

    pub(crate) fn point_of(&self, partition: PartitionId, lsn: Lsn) -> Result<EntryRef, ReadError> {
        self.position_of(partition, lsn).map(|(at, crc)| EntryRef::new(at, crc))
    }

    /// Entries from `from` on: as many as fit into `max_bytes`, but at least one if there is one. Empty if
    /// `from` is the next LSN. Every entry's checksum is verified. Entries that were appended but not synced
    /// are among them.
    pub fn read(&self, partition: PartitionId, from: Lsn, max_bytes: usize) -> Result<Vec<Entry>, ReadError> {
        let stretches = {
            let index = self.shared.look();
            let known = index.partitions.get(&partition).ok_or(ReadError::Unknown(partition))?;
            if from <= known.base.lsn() {
                let base = known.first();
                let apart = known.apart.clone().filter(|_| from > base.lsn());
                drop(index);
                return apart
                    .map_or(Err(ReadError::TooOld { base: base.at }), |apart| apart.read(from, max_bytes));
            }
            if from > known.end.lsn().next() {
                return Err(ReadError::Beyond { end: known.end.at });
            }
            if from > known.end.lsn() {
                return Ok(Vec::new());
            }
            if let Some(first) = known.recent.front().filter(|entry| entry.lsn() <= from) {
                let skip = (from.0 - first.lsn().0) as usize;
                return Ok(up_to(known.recent.iter().skip(skip), max_bytes));
            }
            plan(&index, partition, from, max_bytes)?
        };
        let mut entries = Vec::new();
        let mut bytes = 0;
        for stretch in stretches {
            if !stretch.read(partition, max_bytes, &mut bytes, &mut entries)? {
                break;
            }
        }
        assert!(
            !entries.is_empty(),
            "an entry at or below the end of {partition} was neither read nor missed"
        );
        Ok(entries)
    }
}

/// The first of `entries` that fit, but at least one.
pub(crate) fn up_to<'a>(entries: impl Iterator<Item = &'a Entry>, max_bytes: usize) -> Vec<Entry> {
    let mut bytes = 0;
    let mut taken = Vec::new();
    for entry in entries {
        bytes += entry.bytes().len();
        if bytes > max_bytes && !taken.is_empty() {
            break;
        }
        taken.push(entry.clone());
    }
    taken
}

/// The stretches to be read, made under the lock so that the reading needs none. They hold their segments:
/// the owner does not recycle a file that someone reads.
fn plan(index: &Index, id: PartitionId, from: Lsn, max_bytes: usize) -> Result<Vec<Stretch>, ReadError> {
    let known = &index.partitions[&id];
    let lost = |what: &str| ReadError::Corrupt { segment: 0, offset: 0, what: what.to_owned() };
    let start = known.spot_for(from).ok_or_else(|| lost("entries are missing"))?;
    let mut stretches = Vec::new();
    let mut first = from;
    for (at, spot) in known.spots.iter().enumerate().skip(start) {
        let last = known.spots.get(at + 1).map_or(known.end.lsn(), |next| next.lsn.prev());
        let used = index.segments.get(&spot.at.segment()).ok_or_else(|| lost("a segment is missing"))?;
        let segment = used.segment.clone();
        stretches.push(Stretch { segment, at: spot.at, frame_end: spot.frame_end, first, last });
        first = last.next();
        let covered = spot.bytes_before.saturating_sub(known.spots[start].bytes_before);
        if covered > max_bytes as u64 + crate::index::SPOT_EVERY {
            break;
        }
    }
    Ok(stretches)
}

impl Stretch {
    /// Adds the stretch's entries. False once `max_bytes` are reached.
    fn read(
        &self,
        partition: PartitionId,
        max_bytes: usize,
        bytes: &mut usize,
        entries: &mut Vec<Entry>,
    ) -> Result<bool, ReadError> {
        let mut window = Window { segment: &self.segment, start: 0, buffer: Vec::new() };
        let mut at = self.at.offset();
        let mut frame_end = self.frame_end;
        let mut expected = self.first;
        while expected <= self.last {
            if at >= frame_end {
                at = align(at);
                let place = LogOffset::new(self.segment.number, at);
                let header = FrameHeader::read(window.get(at, HEADER)?, place);
                let header = header.ok_or_else(|| self.corrupt("a frame's header is unreadable"))?;
                at += HEADER as u64;
                frame_end = header.body_end();
                continue;
            }
            let header = window.get(at, RECORD_HEADER)?;
            let (kind, length) = (header[0], read_u32(header, 4) as usize);
            let next = at + (RECORD_HEADER + length) as u64;
            if next > frame_end {
                return Err(self.corrupt("a record is longer than its frame"));
            }
            if kind == KIND_ENTRY && length >= HEADER_BYTES {
                let head = window.get(at, RECORD_HEADER + HEADER_BYTES)?;
                let id = PartitionId(read_u32(head, RECORD_HEADER + 8));
                let lsn = Lsn(read_u64(head, RECORD_HEADER + 24));
                if id == partition && lsn == expected {
                    *bytes += length;
                    if *bytes > max_bytes && !entries.is_empty() {
                        return Ok(false);
                    }
                    let record = window.get(at, RECORD_HEADER + length)?;
                    entries.push(self.decode(&record[RECORD_HEADER..], entries.last())?);
                    expected = expected.next();
                }
            }
            at = next;
        }
        Ok(true)
    }

    fn decode(&self, bytes: &[u8], before: Option<&Entry>) -> Result<Entry, ReadError> {
        let entry =
            Entry::decode(Bytes::copy_from_slice(bytes)).map_err(|error| self.corrupt(&error.to_string()))?;
        match before {
            Some(before) if before.crc() != entry.header().prev_crc => {
                Err(self.corrupt("an entry does not continue the one before it"))
            }
            _ => Ok(entry),
        }
    }

    fn corrupt(&self, what: &str) -> ReadError {
        ReadError::Corrupt { segment: self.segment.number, offset: self.at.offset(), what: what.to_owned() }
    }
}

/// How much a window reads at a time.
const WINDOW: usize = 32 * 1024;

/// A part of a segment in memory.
struct Window<'a> {
    segment: &'a Segment,
    start: u64,
    buffer: Vec<u8>,
}

impl Window<'_> {
    /// The `length` bytes at `at`.
    fn get(&mut self, at: u64, length: usize) -> Result<&[u8], ReadError> {
        let inside = at >= self.start && at + length as u64 <= self.start + self.buffer.len() as u64;
        if !inside {
            self.buffer.resize(length.max(WINDOW), 0);
            let mut read = self.segment.file.read_at(at, &mut self.buffer);
            if length < self.buffer.len() && read.as_ref().is_err_and(is_unreadable) {
                // The bad place may lie behind what is needed.
                self.buffer.truncate(length);
                read = self.segment.file.read_at(at, &mut self.buffer);
            }
            let read = read.map_err(|error| ReadError::Io(error.to_string()))?;
            self.buffer.truncate(read);
            self.start = at;
            if read < length {
                let segment = self.segment.number;
                return Err(ReadError::Corrupt {
                    segment,
                    offset: at,
                    what: "the file ends early".to_owned(),
                });
            }
        }
        let from = (at - self.start) as usize;
        Ok(&self.buffer[from..from + length])
    }
}
