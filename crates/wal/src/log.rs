//! The log's owner: appends, syncs, marks.
//!
//! An append is one frame and one write. Order in the file is what makes a cut safe without a sync of its own
//! (PR-42): the frames form a chain that recovery replays from the front, so an entry behind a cut is only
//! ever believed if the cut before it was read as well. If the cut is lost in a torn end, so is everything
//! behind it.
//!
//! The segment before is synced before a new one begins. So only the last segment can have a torn end.

use crate::apart::{Apart, ApartFiles};
use crate::error::{LogError, is_for_now, is_full, patiently};
use crate::file::Files;
use crate::frame::{FORMAT, FrameHeader, HEADER, LogOffset, MAX_BODY, align, partition_bit};
use crate::index::{Index, Segment};
use crate::reader::{ReadError, Reader};
use crate::record::Stored;
use crate::resolve::{Refusal, resolve};
use std::sync::Arc;
use types::{Durable, Lsn, PartitionId, Position, Rules};
use wire::entry::Entry;
use wire::log::{Record, need_room};

/// How a log is laid out.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of a segment file.
    pub segment_bytes: u64,
    /// High-water mark: entries are refused if the log would take more than this on the disk (F20). A part of
    /// every segment, see [`Options::reserve`], stays free for cuts, truncations, promises and the markers of
    /// terms with what goes before them, which also may go beyond.
    pub max_bytes: u64,
    /// How many bytes of the newest entries are kept in memory.
    pub keep_bytes: usize,
    /// How many segments that are no longer needed are kept to be used again.
    pub spares: usize,
    /// Which rules are in force.
    pub rules: Rules,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            max_bytes: 16 << 30,
            keep_bytes: 16 << 20,
            spares: 2,
            rules: Rules::ALL,
        }
    }
}

impl Options {
    /// The part of each segment that entries leave free.
    pub fn reserve(&self) -> u64 {
        (self.segment_bytes / 16).min(4 << 20)
    }
}

/// What the log has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Syncs of a segment.
    pub fsyncs: u64,
    /// Frames written, all kinds.
    pub frames: u64,
    /// Entries written.
    pub entries: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Entries that the last sync covered.
    pub last_batch: u64,
    /// Segments begun.
    pub segments: u64,
    /// Of these, how many in a file that had been made ready before.
    pub ready_segments: u64,
}

/// Where the next frame goes, and what it follows.
pub(crate) struct Tail {
    pub segment: Arc<Segment>,
    pub offset: u64,
    /// The checksum of the last frame.
    pub chain: u32,
}

impl Tail {
    pub fn at(&self) -> LogOffset {
        LogOffset::new(self.segment.number, self.offset)
    }
}

/// The node's log. One owner appends; any number of [`Reader`]s read.
pub struct Log {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) options: Options,
    pub(crate) reader: Reader,
    pub(crate) tail: Tail,
    pub(crate) generation: u32,
    /// All frames below are on the disk.
    pub(crate) synced_to: LogOffset,
    /// Nothing was written behind the last mark.
    pub(crate) marked: bool,
    /// A failed append may have left something behind the tail that looks like a frame.
    pub(crate) litter: bool,
    /// The failure after which nothing more is taken.
    pub(crate) poisoned: Option<String>,
    pub(crate) touched: Vec<PartitionId>,
    /// Files that are ready to become segments.
    pub(crate) spares: Vec<String>,
    pub(crate) next_spare: u32,
    /// True while a spare asked for is being made elsewhere.
    pub(crate) spare_underway: bool,
    /// Entries that lie in files of their own.
    pub(crate) apart: ApartFiles,
    pub(crate) unsynced_entries: u64,
    pub(crate) stats: Stats,
    pub(crate) buffer: Vec<u8>,
}

impl Log {
    /// Appends records as one frame: after a crash all of them are there or none. An error leaves the log as
    /// it was, and the next append overwrites what was written of this one (F20).
    ///
    /// Panics if the records do not continue what the log holds: entries are checked before they come here.
    pub fn append(&mut self, records: &[Record]) -> Result<(), LogError> {
        self.check_sound()?;
        if records.is_empty() {
            return Ok(());
        }
        let stored = match resolve(&self.reader, records) {
            Ok(stored) => stored,
            Err(Refusal::Read(error)) => return Err(error.into()),
            Err(Refusal::Misuse(what)) => panic!("{what}"),
        };
        let control = !need_room(records);
        let at = self.write(&stored, control)?;
        let aparts: Vec<Option<Apart>> = stored.iter().map(|stored| self.apart_before(stored)).collect();
        let mut place = at.0.offset() + HEADER as u64;
        let reader = self.reader.clone();
        let mut index = reader.shared.change();
        for ((stored, length), apart) in stored.iter().zip(at.1.lengths).zip(aparts) {
            self.apply(&mut index, stored, LogOffset::new(at.0.segment(), place), at.1.body_end);
            if let (Some(apart), Some(id)) = (apart, stored.partition()) {
                index.partition(id).apart = Some(apart);
            }
            place += length as u64;
        }
        Ok(())
    }

    /// True if [`Log::append`] would not panic.
    pub fn accepts(&self, records: &[Record]) -> bool {
        !matches!(resolve(&self.reader, records), Err(Refusal::Misuse(_)))
    }

    /// What stays of entries in a file of their own where the log begins anew.
    fn apart_before(&self, stored: &Stored) -> Option<Apart> {
        let Stored::Base(id, base) = stored else { return None };
        let apart = self.reader.shared.look().partitions.get(id)?.apart.clone()?;
        let has = base.lsn() <= apart.upto().lsn() && self.reader.point_of(*id, base.lsn()) == Ok(*base);
        if has { apart.until(*base) } else { None }
    }

    fn apply(&mut self, index: &mut Index, stored: &Stored, at: LogOffset, body_end: u64) {
        match stored {
            Stored::Entry(entry) => {
                index.push(entry, at, body_end, true);
                self.stats.entries += 1;
                self.unsynced_entries += 1;
            }
            Stored::Truncate(id, to) => index.truncate(*id, *to),
            Stored::Base(id, base) => {
                index.rebase(*id, *base);
                index.partition(*id).damaged = false;
            }
            Stored::Trim(id, base) => index.raise_base(*id, *base),
            Stored::Promise(id, epoch) => {
                let known = index.partition(*id);
                known.promised = known.promised.max(*epoch);
            }
            Stored::Custom(id, key, value) => index.set_custom(*id, *key, value.clone()),
            Stored::Forget(id) => return index.forget(*id),
            Stored::Repaired(id) => index.partition(*id).damaged = false,
            Stored::CleanShutdown
            | Stored::Segment { .. }
            | Stored::Snapshot(_)
            | Stored::PartitionState(_) => return,
        }
        let id = stored.partition().expect("the rest was sorted out above");
        let known = index.partition(id);
        if !known.touched {
            known.touched = true;
            self.touched.push(id);
        }
    }

    /// Makes all that was appended durable. Returns every partition whose durable end changed, with the
    /// proof.
    ///
    /// A failure poisons the log: what the disk did with the bytes is unknown, and trying again would not
    /// tell (F08).
    pub fn sync(&mut self) -> Result<Vec<(PartitionId, Durable<Position>)>, LogError> {
        self.check_sound()?;
        self.flush()?;
        self.stats.last_batch = std::mem::take(&mut self.unsynced_entries);
        let mut tokens = Vec::new();
        let mut index = self.reader.shared.change();
        for id in self.touched.drain(..) {
            let Some(known) = index.partitions.get_mut(&id) else { continue };
            known.touched = false;
            if known.told != known.durable {
                known.told = known.durable;
                tokens.push((id, Durable::by_storage(known.durable)));
            }
        }
        Ok(tokens)
    }

    /// Syncs the current segment if something in it is not synced yet.
    pub(crate) fn flush(&mut self) -> Result<(), LogError> {
        if self.synced_to == self.tail.at() && !self.litter {
            return Ok(());
        }
        if self.options.rules.durable_is_after_fsync() {
            self.clear_litter()?;
            let result = self.tail.segment.file.sync_data();
            self.stats.fsyncs += 1;
            if let Err(error) = result
                && self.options.rules.failed_fsyncs_poison()
            {
                return Err(self.poison(format!("a sync failed: {error}")));
            }
        }
        self.synced_to = self.tail.at();
        let mut index = self.reader.shared.change();
        for id in &self.touched {
            if let Some(known) = index.partitions.get_mut(id) {
                known.durable = known.end.at;
            }
        }
        Ok(())
    }

    /// Removes what a failed append left, so that a sync does not make it last.
    fn clear_litter(&mut self) -> Result<(), LogError> {
        if !self.litter {
            return Ok(());
        }
        let room = (self.tail.segment.length - self.tail.offset).min(HEADER as u64) as usize;
        let (file, offset) = (&self.tail.segment.file, self.tail.offset);
        match patiently(|| file.write_at(offset, &[0; HEADER][..room])) {
            Ok(()) => self.litter = false,
            Err(error) => {
                return Err(self.poison(format!("the rest of a failed append cannot be cleared: {error}")));
            }
        }
        Ok(())
    }

    /// Writes a mark behind the last synced batch and syncs it, so that a damaged last batch is never taken
    /// for a torn end (PR-18). For when there is nothing else to do. The mark is written twice, the second
    /// time in a disk block of its own: one bad block cannot take the batch and both marks.
    pub fn mark(&mut self) -> Result<(), LogError> {
        self.check_sound()?;
        if !self.options.rules.torn_ends_are_reported() || self.marked || self.synced_to != self.tail.at() {
            return Ok(());
        }
        let written = self.write_mark(&[]);
        // If there was no room for it, there will be none until the next append has been tried.
        self.marked = true;
        written?;
        self.flush()?;
        self.marked = true;
        Ok(())
    }

    /// Ends the log's life: with this mark at its end, the next opening knows that nothing is missing (F06).
    pub fn shutdown(mut self) -> Result<(), LogError> {
        self.check_sound()?;
        self.flush()?;
        self.write_mark(&[Stored::CleanShutdown])?;
        self.flush()
    }

    /// True if a mark has something to say: the last sync is not covered by one.
    pub fn wants_mark(&self) -> bool {
        !self.marked && self.synced_to == self.tail.at()
    }

    pub(crate) fn poison(&mut self, cause: String) -> LogError {
        self.poisoned = Some(cause.clone());
        LogError::Poisoned { cause }
    }

    fn check_sound(&self) -> Result<(), LogError> {
        match &self.poisoned {
            Some(cause) => Err(LogError::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Takes a partition's log down to what is at and above `below`. Files are given back by
    /// [`Log::reclaim`].
    pub fn trim(&mut self, partition: PartitionId, below: Lsn) -> Result<(), LogError> {
        self.append(&[Record::Trim { partition, below }])
    }

    /// A handle for reading from any thread.
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// See [`Reader::end`].
    pub fn end(&self, partition: PartitionId) -> Option<(Position, u32)> {
        self.reader.end(partition)
    }

    /// See [`Reader::base`].
    pub fn base(&self, partition: PartitionId) -> Option<(Position, u32)> {
        self.reader.base(partition)
    }

    /// See [`Reader::durable`].
    pub fn durable(&self, partition: PartitionId) -> Option<Durable<Position>> {
        self.reader.durable(partition)
    }

    /// See [`Reader::read`].
    pub fn read(&self, partition: PartitionId, from: Lsn, max_bytes: usize) -> Result<Vec<Entry>, ReadError> {
        self.reader.read(partition, from, max_bytes)
    }

    /// See [`Reader::position_of`].
    pub fn position_of(&self, partition: PartitionId, lsn: Lsn) -> Result<(Position, u32), ReadError> {
        self.reader.position_of(partition, lsn)
    }

    /// See [`Reader::bytes`].
    pub fn bytes(&self) -> u64 {
        self.reader.bytes()
    }

    /// See [`Reader::bytes_since`].
    pub fn bytes_since(&self, partition: PartitionId, lsn: Lsn) -> u64 {
        self.reader.bytes_since(partition, lsn)
    }

    /// See [`Reader::holding_back`].
    pub fn holding_back(&self) -> Vec<PartitionId> {
        self.reader.holding_back()
    }

    /// What was done since the log was opened.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Panics unless everything in memory is in order.
    pub fn validate(&self) {
        self.reader.shared.look().validate();
        assert!(self.synced_to <= self.tail.at(), "synced to {} of {}", self.synced_to, self.tail.at());
        assert!(self.tail.offset <= self.tail.segment.length, "the tail is outside of its segment");
    }
}

/// What the writer of a frame tells about it.
pub(crate) struct Written {
    /// Length of each record.
    pub lengths: Vec<usize>,
    /// Where the body ends, as an offset in the segment.
    pub body_end: u64,
}

impl Log {
    /// Writes one frame with these records at the tail, in a new segment if need be.
    pub(crate) fn write(
        &mut self,
        stored: &[Stored],
        control: bool,
    ) -> Result<(LogOffset, Written), LogError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let lengths = encode(stored, &mut buffer);
        let result = self.write_encoded(&mut buffer, stored, control);
        buffer.truncate(0);
        buffer.shrink_to(1 << 20);
        self.buffer = buffer;
        result.map(|header| (header.at, Written { lengths, body_end: header.body_end() }))
    }

    fn write_encoded(
        &mut self,
        buffer: &mut Vec<u8>,
        stored: &[Stored],
        control: bool,
    ) -> Result<FrameHeader, LogError> {
        let need = align(buffer.len() as u64);
        let room = self.tail.segment.length - self.tail.offset;
        if room < need + if control { 0 } else { self.options.reserve() } {
            self.roll(need, control)?;
        }
        let tail = self.tail.at();
        let header = self.finish(buffer, stored, tail, self.tail.chain);
        self.put(buffer, tail)?;
        self.tail = Tail { segment: self.tail.segment.clone(), offset: header.end(), chain: header.crc };
        self.advanced(need);
        Ok(header)
    }

    /// Completes an encoded frame that is to lie at `at`.
    pub(crate) fn finish(
        &self,
        buffer: &mut [u8],
        stored: &[Stored],
        at: LogOffset,
        chain: u32,
    ) -> FrameHeader {
        let mut header = FrameHeader {
            format: FORMAT,
            at,
            generation: self.generation,
            body: (buffer.len() - HEADER) as u32,
            synced_to: self.synced_to,
            partitions: stored
                .iter()
                .filter_map(Stored::partition)
                .map(partition_bit)
                .fold(0, |all, bit| all | bit),
            previous: chain,
            records: stored.len() as u32,
            body_crc: 0,
            crc: 0,
        };
        header.write(buffer);
        header
    }

    /// Writes a finished frame, and zeros behind it, at the tail.
    fn put(&mut self, buffer: &mut Vec<u8>, at: LogOffset) -> Result<(), LogError> {
        let length = pad(buffer, self.tail.segment.length - at.offset());
        match self.tail.segment.file.write_at(at.offset(), buffer) {
            Ok(()) => {
                self.litter = false;
                Ok(())
            }
            Err(error) if self.options.rules.failed_appends_change_nothing() => {
                self.litter = true;
                let room = HEADER.min(buffer.len());
                // If this fails too, the next append overwrites the place, and no sync happens before.
                if self.tail.segment.file.write_at(at.offset(), &[0; HEADER][..room]).is_ok() {
                    self.litter = false;
                }
                Err(self.refused(error))
            }
            Err(error) => {
                self.tail.offset += length;
                Err(self.refused(error))
            }
        }
    }

    pub(crate) fn advanced(&mut self, bytes: u64) {
        self.marked = false;
        self.stats.frames += 1;
        self.stats.bytes += bytes;
        let (number, offset) = (self.tail.segment.number, self.tail.offset);
        let mut index = self.reader.shared.change();
        index.segments.get_mut(&number).expect("the tail's segment is known").used = offset;
    }

    pub(crate) fn refused(&self, error: std::io::Error) -> LogError {
        if is_full(&error) {
            let used = self.disk_bytes();
            return LogError::Full { used, limit: used };
        }
        if is_for_now(&error) {
            return LogError::ForNow(Arc::new(error));
        }
        LogError::io("the log cannot be written", error)
    }

    /// Writes two frames: one that fills up the disk block, and one with these records at the start of the
    /// next.
    pub(crate) fn write_mark(&mut self, stored: &[Stored]) -> Result<(), LogError> {
        const BLOCK: u64 = 4096;
        let start = self.tail.offset;
        let second = (start + HEADER as u64).next_multiple_of(BLOCK);
        let mut last = Vec::new();
        encode(stored, &mut last);
        if second + align(last.len() as u64) + self.options.reserve() / 2 > self.tail.segment.length {
            // No room to waste: a single frame will do.
            return self.write(stored, true).map(|_| ());
        }
        let mut buffer = vec![0; (second - start) as usize];
        let first = self.finish(&mut buffer, &[], self.tail.at(), self.tail.chain);
        let place = LogOffset::new(self.tail.segment.number, second);
        let header = self.finish(&mut last, stored, place, first.crc);
        buffer.extend_from_slice(&last);
        let length = buffer.len() as u64;
        self.put(&mut buffer, self.tail.at())?;
        self.tail = Tail { segment: self.tail.segment.clone(), offset: header.end(), chain: header.crc };
        self.advanced(length);
        Ok(())
    }
}

/// Encodes the records behind room for a header. Returns each one's length.
pub(crate) fn encode(stored: &[Stored], buffer: &mut Vec<u8>) -> Vec<usize> {
    buffer.clear();
    buffer.resize(HEADER, 0);
    let mut lengths = Vec::with_capacity(stored.len());
    for record in stored {
        let start = buffer.len();
        record.encode(buffer);
        lengths.push(buffer.len() - start);
    }
    assert!(buffer.len() <= MAX_BODY, "a batch of {} bytes", buffer.len());
    lengths
}

/// Pads a frame to where the next one starts and adds the zeros that end the log, as far as there is `room`.
/// Returns the length without the zeros.
pub(crate) fn pad(buffer: &mut Vec<u8>, room: u64) -> u64 {
    let length = align(buffer.len() as u64);
    assert!(length <= room, "a frame of {length} bytes in {room}");
    buffer.resize((length + HEADER as u64).min(room) as usize, 0);
    length
}
