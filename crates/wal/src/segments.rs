//! The row of segment files: beginning a new one, and giving back what nothing needs any more.
//!
//! Every segment begins with a frame that holds the whole state of all partitions: so an older segment is
//! needed only for the entries in it. Its file is used again under a new name, which saves writing zeros; the
//! old frames in it name their old position and are worth nothing.

use crate::error::{LogError, is_for_now, is_full, patiently};
use crate::file::Files;
use crate::frame::{FrameHeader, HEADER, LogOffset, align};
use crate::index::{Index, Segment, SegmentUse};
use crate::log::{Log, Tail, encode, pad};
use crate::record::Stored;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

const SPARE: &str = "spare-";
const UNFINISHED: &str = ".new";

/// An order to make a spare segment, to be carried out on any thread: writing its zeros takes a while.
pub struct SpareOrder {
    files: Arc<dyn Files>,
    name: String,
    length: u64,
}

/// The outcome of a [`SpareOrder`].
pub struct Spare {
    name: Option<String>,
}

impl SpareOrder {
    /// Makes the file. To be handed to [`Log::add_spare`], also if it failed.
    pub fn make(self) -> Spare {
        let unfinished = format!("{}{UNFINISHED}", self.name);
        let made = self
            .files
            .create(&unfinished, self.length)
            .and_then(|_| self.files.rename(&unfinished, &self.name));
        if made.is_err() {
            // A failure to make room in advance is found again, and reported, when the room is needed.
            let _ = self.files.remove(&unfinished);
        }
        Spare { name: made.is_ok().then_some(self.name) }
    }
}

/// True for the name of a file that an interrupted order left.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.starts_with(SPARE) && name.ends_with(UNFINISHED)
}

/// The number of the spare of this name.
pub(crate) fn spare_number(name: &str) -> Option<u32> {
    u32::from_str_radix(name.strip_prefix(SPARE)?, 16).ok()
}

fn spare_name(number: u32) -> String {
    format!("{SPARE}{number:08x}")
}

impl Log {
    /// Bytes that the log's files take.
    pub fn disk_bytes(&self) -> u64 {
        let index = self.reader.shared.look();
        let segments: u64 = index.segments.values().map(|used| used.segment.length).sum();
        segments + self.spares.len() as u64 * self.options.segment_bytes + self.apart.bytes()
    }

    /// Begins a new segment that has room for a frame of `need` bytes.
    pub(crate) fn roll(&mut self, need: u64, control: bool) -> Result<(), LogError> {
        self.flush()?;
        self.reclaim()?;
        let number = self.next_number();
        let (stored, least) = self.head(need);
        let segment = self.obtain(number, self.options.segment_bytes.max(least), control)?;
        let (buffer, header) = self.head_frame(stored, number, segment.length);
        if let Err(error) = segment.file.write_at(0, &buffer) {
            // It holds nothing yet; the next attempt begins anew. Half a head that stayed would look like a
            // segment that was begun and cannot be read, so its name goes durably; if that fails, so it does
            // look, and that is no loss.
            let _ = self.files.remove(&Segment::name(number)).and_then(|()| self.files.sync_dir());
            return Err(self.refused(error));
        }
        self.begun(segment, &header);
        Ok(())
    }

    /// Begins the segment behind the last one with the first frame of this life. Segments `behind` the end of
    /// the log, in order, are not part of it, and may be all that shows that something is missing. So they go
    /// only once the head of the new one, which has the states of all partitions, is durable under its name
    /// (PR-473).
    pub(crate) fn begin_next(&mut self, behind: &[u32]) -> Result<(), LogError> {
        self.flush()?;
        let number = self.next_number();
        let (stored, least) = self.head(HEADER as u64);
        let name = format!("{}{UNFINISHED}", spare_name(self.next_spare));
        let usual = self.options.segment_bytes.max(least);
        let (segment, header) = match self.write_head(&name, stored.clone(), (number, usual)) {
            Err(LogError::Full { .. }) => {
                // The log goes on if there is room for the head alone.
                self.spares.drain(..).for_each(|spare| drop(self.files.remove(&spare)));
                self.write_head(&name, stored, (number, least))?
            }
            written => written?,
        };
        let renamed = self.files.rename(&name, &Segment::name(number)).and_then(|()| self.files.sync_dir());
        renamed.map_err(|error| LogError::io("the next segment cannot be begun", error))?;
        self.begun(segment, &header);
        let others: Vec<u32> = behind.iter().copied().filter(|other| *other != number).collect();
        remove_from_the_back(&*self.files, &others)
    }

    fn next_number(&self) -> u32 {
        self.tail.segment.number.checked_add(1).expect("segment numbers last for ages")
    }

    /// The records of the first frame of the next segment, and the least length of a segment with room for a
    /// frame of `need` bytes behind it.
    fn head(&self, need: u64) -> (Vec<Stored>, u64) {
        let mut stored = vec![Stored::Segment { length: 0, before: self.tail.at() }];
        stored.extend(snapshot(&self.reader.shared.look()));
        let mut buffer = Vec::new();
        encode(&stored, &mut buffer);
        (stored, align(buffer.len() as u64) + need + self.options.reserve())
    }

    /// The first frame of segment `number`, which has this length, with the zeros behind it.
    fn head_frame(&self, mut stored: Vec<Stored>, number: u32, length: u64) -> (Vec<u8>, FrameHeader) {
        stored[0] = Stored::Segment { length, before: self.tail.at() };
        let mut buffer = Vec::new();
        encode(&stored, &mut buffer);
        let header = self.finish(&mut buffer, &stored, LogOffset::new(number, 0), self.tail.chain);
        pad(&mut buffer, length);
        (buffer, header)
    }

    /// Makes a file of this name that is to be segment `number`, and has its first frame durably.
    fn write_head(
        &self,
        name: &str,
        stored: Vec<Stored>,
        (number, length): (u32, u64),
    ) -> Result<(Segment, FrameHeader), LogError> {
        let (buffer, header) = self.head_frame(stored, number, length);
        let written = self.files.create(name, length).and_then(|file| {
            file.write_at(0, &buffer)?;
            file.sync_data()?;
            Ok(file)
        });
        match written {
            Ok(file) => Ok((Segment { number, length, file, sound: true }, header)),
            Err(error) => {
                // It has no name of a segment, and goes when the log is opened, if it cannot go now.
                let _ = self.files.remove(name);
                Err(self.refused(error))
            }
        }
    }

    /// The log goes on behind the first frame of this segment.
    fn begun(&mut self, segment: Segment, header: &FrameHeader) {
        let segment = Arc::new(segment);
        let used = SegmentUse { segment: segment.clone(), last: BTreeMap::new(), used: header.end() };
        self.reader.shared.change().segments.insert(segment.number, used);
        self.tail = Tail { segment, offset: header.end(), chain: header.crc };
        self.litter = false;
        self.stats.segments += 1;
        self.advanced(header.end());
    }

    /// A file for segment `number`, from the spares or new.
    fn obtain(&mut self, number: u32, length: u64, control: bool) -> Result<Segment, LogError> {
        let name = Segment::name(number);
        if length == self.options.segment_bytes
            && let Some(spare) = self.spares.pop()
        {
            let file = match self.files.open(&spare) {
                Ok(file) => file,
                Err(error) if is_for_now(&error) => {
                    self.spares.push(spare);
                    return Err(LogError::ForNow(Arc::new(error)));
                }
                Err(error) => return Err(LogError::io("a spare segment cannot be opened", error)),
            };
            let renamed = patiently(|| self.files.rename(&spare, &name));
            let taken = renamed.and_then(|()| self.files.sync_dir());
            taken.map_err(|error| LogError::io("a spare segment cannot be used", error))?;
            self.stats.ready_segments += 1;
            return Ok(Segment { number, length, file, sound: true });
        }
        let used = self.disk_bytes();
        if !control && used + length > self.options.max_bytes {
            return Err(LogError::Full { used, limit: self.options.max_bytes });
        }
        match create_segment(&*self.files, number, length) {
            Ok(segment) => Ok(segment),
            Err(error) => {
                let _ = self.files.remove(&name);
                if is_full(&error) {
                    return Err(LogError::Full { used, limit: used });
                }
                if is_for_now(&error) {
                    return Err(LogError::ForNow(Arc::new(error)));
                }
                Err(LogError::io("a segment cannot be created", error))
            }
        }
    }

    /// Gives back the segments at the front that no partition needs. Returns how many.
    ///
    /// Only what is synced counts as not needed: a truncation that a crash could lose must not have lost its
    /// entries.
    pub fn reclaim(&mut self) -> Result<usize, LogError> {
        if self.synced_to != self.tail.at() || self.poisoned.is_some() {
            return Ok(0);
        }
        let mut given_back = 0;
        loop {
            let current = self.tail.segment.number;
            let first = {
                let mut index = self.reader.shared.change();
                let Some((&number, used)) = index.segments.first_key_value() else { break };
                if number == current || !index.is_dead(used) {
                    break;
                }
                index.segments.remove(&number).expect("just seen")
            };
            self.give_back(&first)
                .map_err(|error| LogError::io("an old segment cannot be given back", error))?;
            given_back += 1;
        }
        let swept = self.apart.sweep(&*self.files);
        swept.map_err(|error| LogError::io("entries that were put apart cannot be removed", error))?;
        Ok(given_back)
    }

    fn give_back(&mut self, used: &SegmentUse) -> io::Result<()> {
        let name = Segment::name(used.segment.number);
        // Readers get segments through the index only, and it has left that: nobody can begin to read it now.
        let unread = Arc::strong_count(&used.segment) == 1;
        if unread
            && used.segment.sound
            && used.segment.length == self.options.segment_bytes
            && self.spares.len() < self.options.spares
        {
            let spare = spare_name(self.next_spare);
            self.next_spare += 1;
            patiently(|| self.files.rename(&name, &spare))?;
            self.spares.push(spare);
        } else {
            patiently(|| self.files.remove(&name))?;
        }
        // One by one from the front, so that a crash leaves a row without a hole.
        self.files.sync_dir()
    }

    /// An order for a spare segment, if the current one is half full and none is ready.
    pub fn wants_spare(&mut self) -> Option<SpareOrder> {
        let length = self.options.segment_bytes;
        let early = self.tail.offset < self.tail.segment.length / 2;
        if early || self.spare_underway || !self.spares.is_empty() || self.poisoned.is_some() {
            return None;
        }
        if self.disk_bytes() + length > self.options.max_bytes {
            return None;
        }
        self.spare_underway = true;
        let name = spare_name(self.next_spare);
        self.next_spare += 1;
        Some(SpareOrder { files: self.files.clone(), name, length })
    }

    /// Takes the outcome of an order.
    pub fn add_spare(&mut self, spare: Spare) {
        self.spare_underway = false;
        self.spares.extend(spare.name);
    }
}

/// Creates the file of a segment. Its name and its zeros are on the disk when this returns.
pub(crate) fn create_segment(files: &dyn Files, number: u32, length: u64) -> io::Result<Segment> {
    // Under its own name a segment is never shorter than it was meant to be: so a short one is damage.
    let unfinished = format!("{}{UNFINISHED}", spare_name(number));
    let file = match files.create(&unfinished, length) {
        Ok(file) => file,
        Err(error) => {
            // The room that it took is worth more than a complaint about its removal.
            let _ = files.remove(&unfinished);
            return Err(error);
        }
    };
    files.rename(&unfinished, &Segment::name(number))?;
    files.sync_dir()?;
    Ok(Segment { number, length, file, sound: true })
}

/// Removes segments behind the end of the log, given in order. Those that a failure leaves have no gap before
/// them.
pub(crate) fn remove_from_the_back(files: &dyn Files, numbers: &[u32]) -> Result<(), LogError> {
    let removed = numbers.iter().rev().try_for_each(|number| {
        files.remove(&Segment::name(*number))?;
        files.sync_dir()
    });
    removed.map_err(|error| LogError::io("a segment behind the end cannot be removed", error))
}

/// The records that hold the state of all partitions.
pub(crate) fn snapshot(index: &Index) -> Vec<Stored> {
    let states = index.partitions.iter().map(|(id, known)| Stored::PartitionState(known.state(*id)));
    let mut stored = vec![Stored::Snapshot(index.partitions.len() as u32)];
    stored.extend(states);
    stored
}

/// The shortest segment that makes sense.
pub(crate) const MIN_SEGMENT: u64 = 4 * HEADER as u64;
