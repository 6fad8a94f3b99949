//! What the tests of the log share.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;
use types::{Lsn, PartitionId, Position, Term};
use understudy_wal::faulty::MemFiles;
use understudy_wal::{Log, Options, Owner, Record, Recovered};
use wire::entry::{Entry, Header, Kind};

pub const P: PartitionId = PartitionId(64);
pub const Q: PartitionId = PartitionId(65);

/// The position of `lsn` in epoch `epoch`.
pub fn at(epoch: u64, lsn: u64) -> Position {
    Position::new(Term(epoch), Lsn(lsn))
}

/// Small segments, so that tests see many of them.
pub fn small() -> Options {
    Options { segment_bytes: 16 * 1024, max_bytes: 1 << 20, keep_bytes: 2048, ..Options::default() }
}

/// Opens a log whose every rule is in force.
pub fn open(files: &MemFiles) -> (Log, Recovered) {
    open_with(files, small())
}

pub fn open_with(files: &MemFiles, options: Options) -> (Log, Recovered) {
    let (log, recovered) = Log::open(Arc::new(files.clone()), options).expect("opens");
    log.validate();
    (log, recovered)
}

/// Opens a log that should know these partitions.
pub fn open_for(files: &MemFiles, partitions: &[PartitionId]) -> (Log, Recovered) {
    let owner = Owner { begun: true, partitions: &|_| partitions.to_vec() };
    let (log, recovered) = Log::open_for(Arc::new(files.clone()), small(), &owner).expect("opens");
    log.validate();
    (log, recovered)
}

/// The entry that follows what `log` holds of `partition`.
pub fn next(log: &Log, partition: PartitionId, epoch: u64, payload: &[u8]) -> Entry {
    let (end, crc) = log.end(partition).unwrap_or((Position::ZERO, 0));
    entry(partition, at(epoch, end.lsn.0 + 1), crc, payload)
}

pub fn entry(partition: PartitionId, at: Position, prev_crc: u32, payload: &[u8]) -> Entry {
    Entry::encode(Header::new(Kind::Rows, partition, at, prev_crc), payload)
}

/// Appends one entry in a frame of its own.
pub fn add(log: &mut Log, partition: PartitionId, epoch: u64, payload: &[u8]) -> Entry {
    let entry = next(log, partition, epoch, payload);
    log.append(&[Record::Entry(entry.clone())]).expect("appends");
    log.validate();
    entry
}

/// Every entry that is there, read in small steps.
pub fn all(log: &Log, partition: PartitionId) -> Vec<Entry> {
    let Some((base, _)) = log.base(partition) else { return Vec::new() };
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let from = entries.last().map_or(base.lsn.next(), |entry| entry.lsn().next());
        let more = log.read(partition, from, 700).expect("reads");
        if more.is_empty() {
            return entries;
        }
        entries.extend(more);
    }
}
