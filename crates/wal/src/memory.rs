//! The log of tables with `log = memory`: the same surface, nothing on the disk.
//!
//! Nothing here is ever durable: there is no `sync` and there are no tokens, so a policy that wants `durable`
//! cannot be served by it by mistake.

use crate::reader::{ReadError, up_to};
use crate::record::EntryRef;
use std::collections::{BTreeMap, VecDeque};
use types::{Epoch, Lsn, PartitionId, Position};
use wire::entry::Entry;
use wire::log::Record;

/// Reading a log, whether it lies on the disk or in memory.
pub trait ReadLog {
    /// The partition's last position and the checksum of the entry there.
    fn end(&self, partition: PartitionId) -> Option<(Position, u32)>;
    /// The position before the first entry that is here, and the checksum of the entry there.
    fn base(&self, partition: PartitionId) -> Option<(Position, u32)>;
    /// The position and checksum of the entry `lsn`, or of the base.
    fn position_of(&self, partition: PartitionId, lsn: Lsn) -> Result<(Position, u32), ReadError>;
    /// Entries from `from` on: as many as fit into `max_bytes`, but at least one if there is one.
    fn read(&self, partition: PartitionId, from: Lsn, max_bytes: usize) -> Result<Vec<Entry>, ReadError>;
    /// Bytes of entries at and above `lsn`, estimated.
    fn bytes_since(&self, partition: PartitionId, lsn: Lsn) -> u64;
}

impl ReadLog for crate::Reader {
    fn end(&self, partition: PartitionId) -> Option<(Position, u32)> {
        crate::Reader::end(self, partition)
    }

    fn base(&self, partition: PartitionId) -> Option<(Position, u32)> {
        crate::Reader::base(self, partition)
    }

    fn position_of(&self, partition: PartitionId, lsn: Lsn) -> Result<(Position, u32), ReadError> {
        crate::Reader::position_of(self, partition, lsn)
    }

    fn read(&self, partition: PartitionId, from: Lsn, max_bytes: usize) -> Result<Vec<Entry>, ReadError> {
        crate::Reader::read(self, partition, from, max_bytes)
    }

    fn bytes_since(&self, partition: PartitionId, lsn: Lsn) -> u64 {
        crate::Reader::bytes_since(self, partition, lsn)
    }
}

#[derive(Clone, Debug, Default)]
struct Partition {
    base: EntryRef,
    entries: VecDeque<Entry>,
    bytes: u64,
    promised: Epoch,
    custom: BTreeMap<u16, bytes::Bytes>,
}

impl Partition {
    fn end(&self) -> EntryRef {
        self.entries.back().map_or(self.base, |entry| EntryRef::new(entry.at(), entry.crc()))
    }

    fn point(&self, lsn: Lsn) -> Option<EntryRef> {
        if lsn == self.base.lsn() {
            return Some(self.base);
        }
        let index = lsn.0.checked_sub(self.base.lsn().0 + 1)?;
        self.entries.get(index as usize).map(|entry| EntryRef::new(entry.at(), entry.crc()))
    }

    fn push(&mut self, entry: &Entry) {
        let end = self.end();
        let follows = entry.lsn() == end.lsn().next() && entry.header().prev_crc == end.crc;
        assert!(
            follows && entry.at().term >= end.at.term,
            "entry {} does not continue {}",
            entry.at(),
            end.at
        );
        self.bytes += entry.bytes().len() as u64;
        self.entries.push_back(entry.clone());
    }

    fn truncate(&mut self, to: Position) {
        assert_eq!(self.point(to.lsn).map(|point| point.at), Some(to), "a cut to what is not there");
        while self.entries.back().is_some_and(|entry| entry.lsn() > to.lsn) {
            let entry = self.entries.pop_back().expect("just seen");
            self.bytes -= entry.bytes().len() as u64;
        }
    }

    fn trim(&mut self, below: Lsn) {
        assert!(below <= self.end().lsn().next(), "truncated below {below}, above the end");
        while self.entries.front().is_some_and(|entry| entry.lsn() < below) {
            let entry = self.entries.pop_front().expect("just seen");
            self.base = EntryRef::new(entry.at(), entry.crc());
            self.bytes -= entry.bytes().len() as u64;
        }
    }
}

/// A log in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog {
    partitions: BTreeMap<PartitionId, Partition>,
}

impl MemoryLog {
    /// An empty one.
    pub fn new() -> MemoryLog {
        MemoryLog::default()
    }

    /// Takes records as the log on the disk does. Panics if they do not continue what is here.
    pub fn append(&mut self, records: &[Record]) {
        for record in records {
            let id = record.partition();
            let partition = self.partitions.entry(id).or_default();
            match record {
                Record::Entry(entry) => partition.push(entry),
                Record::Truncate { to, .. } => partition.truncate(*to),
                Record::Base { at, crc, .. } => {
                    partition.base = EntryRef::new(*at, *crc);
                    partition.entries.clear();
                    partition.bytes = 0;
                }
                Record::Trim { below, .. } => partition.trim(*below),
                Record::Promise { epoch, .. } => partition.promised = partition.promised.max(*epoch),
                Record::Custom { key, value, .. } if value.is_empty() => {
                    partition.custom.remove(key);
                }
                Record::Custom { key, value, .. } => {
                    partition.custom.insert(*key, value.clone());
                }
                Record::Forget { .. } => {
                    self.partitions.remove(&id);
                }
                Record::Repaired { .. } => {}
            }
        }
    }

    /// The highest epoch promised.
    pub fn promised(&self, partition: PartitionId) -> Epoch {
        self.partitions.get(&partition).map_or(Epoch::ZERO, |known| known.promised)
    }

    /// A custom value.
    pub fn custom(&self, partition: PartitionId, key: u16) -> Option<bytes::Bytes> {
        self.partitions.get(&partition)?.custom.get(&key).cloned()
    }

    /// Bytes of all entries.
    pub fn bytes(&self) -> u64 {
        self.partitions.values().map(|partition| partition.bytes).sum()
    }
}

impl ReadLog for MemoryLog {
    fn end(&self, partition: PartitionId) -> Option<(Position, u32)> {
        self.partitions.get(&partition).map(|known| (known.end().at, known.end().crc))
    }

    fn base(&self, partition: PartitionId) -> Option<(Position, u32)> {
        self.partitions.get(&partition).map(|known| (known.base.at, known.base.crc))
    }

    fn position_of(&self, partition: PartitionId, lsn: Lsn) -> Result<(Position, u32), ReadError> {
        let known = self.partitions.get(&partition).ok_or(ReadError::Unknown(partition))?;
        match known.point(lsn) {
            Some(point) => Ok((point.at, point.crc)),
            None if lsn < known.base.lsn() => Err(ReadError::TooOld { base: known.base.at }),
            None => Err(ReadError::Beyond { end: known.end().at }),
        }
    }

    fn read(&self, partition: PartitionId, from: Lsn, max_bytes: usize) -> Result<Vec<Entry>, ReadError> {
        let known = self.partitions.get(&partition).ok_or(ReadError::Unknown(partition))?;
        if from <= known.base.lsn() {
            return Err(ReadError::TooOld { base: known.base.at });
        }
        if from > known.end().lsn().next() {
            return Err(ReadError::Beyond { end: known.end().at });
        }
        let skip = (from.0 - known.base.lsn().0 - 1) as usize;
        Ok(up_to(known.entries.range(skip..), max_bytes))
    }

    fn bytes_since(&self, partition: PartitionId, lsn: Lsn) -> u64 {
        let Some(known) = self.partitions.get(&partition) else { return 0 };
        let count = known.entries.len() as u64;
        let skip = lsn.0.saturating_sub(known.base.lsn().0 + 1).min(count);
        // Exact at both ends, the mean in between.
        let mean = known.bytes.checked_div(count).unwrap_or(0);
        if skip == 0 { known.bytes } else { mean * (count - skip) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use types::Term;
    use wire::entry::{Header, Kind};

    const P: PartitionId = PartitionId(64);

    fn at(epoch: u64, lsn: u64) -> Position {
        Position::new(Term(epoch), Lsn(lsn))
    }

    fn add(log: &mut MemoryLog, epoch: u64) -> Entry {
        let (end, crc) = log.end(P).unwrap_or_default();
        let entry = Entry::encode(Header::new(Kind::Noop, P, at(epoch, end.lsn.0 + 1), crc), b"1234");
        log.append(&[Record::Entry(entry.clone())]);
        entry
    }

    #[test]
    fn it_answers_like_the_log_on_the_disk() {
        let mut log = MemoryLog::new();
        assert_eq!(log.read(P, Lsn(1), 10), Err(ReadError::Unknown(P)));
        let entries: Vec<_> = (0..5).map(|_| add(&mut log, 1)).collect();
        assert_eq!(log.read(P, Lsn(1), 1 << 20), Ok(entries.clone()));
        assert_eq!(log.bytes_since(P, Lsn(4)), 2 * 96);
        assert_eq!(log.bytes_since(P, Lsn(1)), log.bytes());
        log.append(&[
            Record::Truncate { partition: P, to: at(1, 3) },
            Record::Trim { partition: P, below: Lsn(3) },
        ]);
        assert_eq!(log.read(P, Lsn(2), 10), Err(ReadError::TooOld { base: at(1, 2) }));
        assert_eq!(log.read(P, Lsn(5), 10), Err(ReadError::Beyond { end: at(1, 3) }));
        assert_eq!(log.read(P, Lsn(4), 10), Ok(vec![]));
        assert_eq!(log.position_of(P, Lsn(2)), Ok((at(1, 2), entries[1].crc())));
        assert_eq!(log.read(P, Lsn(3), 1), Ok(vec![entries[2].clone()]));
        assert_eq!(add(&mut log, 2).at(), at(2, 4));
        log.append(&[Record::Base { partition: P, at: at(3, 90), crc: 5 }]);
        assert_eq!((log.end(P), log.bytes()), (Some((at(3, 90), 5)), 0));
    }

    #[test]
    fn promises_do_not_fall_and_empty_values_go() {
        let mut log = MemoryLog::new();
        let value = Bytes::from_static(b"v");
        log.append(&[
            Record::Promise { partition: P, epoch: Epoch(5) },
            Record::Promise { partition: P, epoch: Epoch(4) },
            Record::Custom { partition: P, key: 1, value: value.clone() },
        ]);
        assert_eq!((log.promised(P), log.custom(P, 1)), (Epoch(5), Some(value)));
        log.append(&[Record::Custom { partition: P, key: 1, value: Bytes::new() }]);
        assert_eq!(log.custom(P, 1), None);
        log.append(&[Record::Forget { partition: P }]);
        assert_eq!(log.base(P), None);
    }
}
