//! Opening: scanning the segments in order, telling a torn end from damage, and making the log ready to go
//! on.
//!
//! The rule (F10): every frame says up to where the log was synced when it was written. The highest such mark
//! of all whole frames, also of those behind a broken place, is what was synced for certain. Where the chain
//! breaks at or above it, the end is torn: it is cut off, and what lies behind was never synced either. Where
//! it breaks below, it is damage: it is reported, nothing is cut, and replay goes on at the next whole frame.
//! Damage, too, is an end behind which a frame lies in another place than its own: a torn write leaves a part
//! of itself where it belongs.

use crate::apart::ApartFiles;
use crate::error::{LogError, is_unreadable};
use crate::file::Files;
use crate::frame::{FrameHeader, HEADER, LogOffset};
use crate::index::{Segment, SegmentUse};
use crate::log::{Log, Options, Stats, Tail};
use crate::record::{Stored, TORN};
use crate::recovered::{DamageKind, Recovered};
use crate::replay::Replay;
use crate::scan::{Found, Loaded, pages};
use crate::segments::{
    MIN_SEGMENT, create_segment, is_unfinished, remove_from_the_back, snapshot, spare_number,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::PartitionId;

const EVERYONE: u64 = u64::MAX;
/// The first frame of a new log, which knows no partition, takes no more than this.
const FIRST_FRAME: usize = 256;

/// Where a scan stands.
struct Scan<'a> {
    files: &'a dyn Files,
    numbers: Vec<u32>,
    replay: Replay,
    segment_bytes: u64,
    /// Damage is reported; else everything is taken for a torn end.
    told_apart: bool,
    /// The checksum that the next frame must name; `None` behind damage and at the start.
    chain: Option<u32>,
    last_chain: u32,
    generation: u32,
    /// The highest mark in the frames replayed so far, or, once a break was met, in all there are.
    synced_to: LogOffset,
    looked_ahead: bool,
    /// The last segment that holds a frame, and where its frames end.
    end: Option<(Arc<Segment>, u64)>,
    /// Number of the segment in which damage was last found.
    damaged_segment: Option<u32>,
    /// The segment being replayed is shorter than its head says.
    short: bool,
    torn_bytes: u64,
    torn_partitions: u64,
}

/// Where the first frame of a life goes. Nothing that shows damage or a torn end may go before that frame is
/// durable: a start that fails in between leaves it to the next one to find it (PR-473).
enum FirstFrame {
    /// In the last segment.
    Here,
    /// In a new one: a damaged segment stays as it is, for those who want to look. It replaces these, which
    /// lie behind the end of the log: what is in them was never synced, or cannot be read.
    NextSegment(Vec<u32>),
}

/// What the owner of a log knows about it before it is opened.
pub struct Owner<'a> {
    /// It was begun before: if it is gone, that is told ([`LogError::Missing`]).
    pub begun: bool,
    /// The partitions of which something should be there, given what was found. Called once, before anything
    /// is written. Those that the log knows nothing of any more, and of which it may have lost all, are
    /// noted as damaged, or as torn, in the first frame that is written.
    pub partitions: &'a dyn Fn(&Recovered) -> Vec<PartitionId>,
}

/// What follows a place where the chain breaks.
enum Next {
    Frame(FrameHeader),
    Segment,
    Stop,
}

impl Scan<'_> {
    /// Replays all segments.
    fn run(&mut self) -> Result<(), LogError> {
        for turn in 0..self.numbers.len() {
            let number = self.numbers[turn];
            if turn > 0 && number != self.numbers[turn - 1] + 1 {
                self.damage(
                    LogOffset::new(self.numbers[turn - 1] + 1, 0),
                    DamageKind::MissingSegment,
                    EVERYONE,
                );
                self.chain = None;
            }
            let loaded = Loaded::read(self.files, number)?;
            if !self.segment(turn, &loaded)? {
                break;
            }
        }
        Ok(())
    }

    /// Replays one segment. False if the log ends in it.
    fn segment(&mut self, turn: usize, loaded: &Loaded) -> Result<bool, LogError> {
        let mut offset = 0;
        let mut segment = None;
        loop {
            let whole = match loaded.find(offset, self.generation) {
                Found::Whole(header) if self.chain.is_none_or(|chain| chain == header.previous) => {
                    Some(header)
                }
                _ => None,
            };
            let header = match whole {
                Some(header) => header,
                None => match self.at_break(turn, loaded, offset)? {
                    Next::Frame(header) => header,
                    Next::Segment => return Ok(true),
                    Next::Stop => return Ok(false),
                },
            };
            if !header.is_known() {
                return Err(LogError::Format(header.format));
            }
            let segment = segment.get_or_insert_with(|| self.begin(loaded, &header)).clone();
            self.replay.frame(loaded, &header)?;
            offset = header.end();
            self.chain = Some(header.crc);
            self.last_chain = header.crc;
            self.generation = header.generation;
            self.synced_to = self.synced_to.max(header.synced_to);
            self.end = Some((segment, offset));
        }
    }

    /// The first frame of a segment: it should say how long the file was made.
    fn begin(&mut self, loaded: &Loaded, header: &FrameHeader) -> Arc<Segment> {
        let length = loaded.bytes.len() as u64;
        // Without its head it should be as long as new ones are (PR-474).
        let stated = head(loaded, header).map_or(self.segment_bytes, |(length, _)| length);
        let number = loaded.number;
        let sound = loaded.is_readable();
        let segment = Arc::new(Segment { number, length, file: loaded.file.clone(), sound });
        self.replay.segment(SegmentUse { segment: segment.clone(), last: BTreeMap::new(), used: 0 });
        self.short = length < stated;
        segment
    }

    /// The chain breaks at `offset`: an end, a torn end, or damage?
    fn at_break(&mut self, turn: usize, loaded: &Loaded, offset: u64) -> Result<Next, LogError> {
        let at = LogOffset::new(loaded.number, offset);
        let resume = loaded.next(offset, self.generation);
        let following = match self.numbers.get(turn + 1) {
            Some(number) if self.told_apart => Some(Loaded::read(self.files, *number)?),
            _ => None,
        };
        let first = following.as_ref().and_then(|following| match following.find(0, self.generation) {
            Found::Whole(header) => head(following, &header).map(|(_, before)| before),
            _ => None,
        });
        if first == Some(at) {
            return Ok(Next::Segment);
        }
        self.look_ahead(turn, loaded, offset)?;
        if at >= self.synced_to || !self.told_apart {
            self.stop(loaded, offset, following.as_ref());
            return Ok(Next::Stop);
        }
        let found = loaded.find(offset, self.generation);
        if let (Found::Nothing, None, Some(following)) = (&found, &resume, &following)
            && first.is_none()
            && self.synced_to > LogOffset::new(following.number, 0)
        {
            // Nothing is missing here for all that can be seen; the head of the next segment is, and is
            // reported.
            self.chain = None;
            return Ok(Next::Segment);
        }
        let (what, filter) = match &found {
            Found::HeaderOnly(header) if self.chain.is_none_or(|chain| chain == header.previous) => {
                let adjoins = resume.as_ref().is_none_or(|resume| resume.at.offset() == header.end());
                (DamageKind::Frame, if adjoins && resume.is_some() { header.partitions } else { EVERYONE })
            }
            Found::Whole(_) => (DamageKind::Chain, EVERYONE),
            _ => (DamageKind::Frame, EVERYONE),
        };
        let until = resume.as_ref().map_or(u64::MAX, |resume| resume.at.offset());
        let unread = loaded.unread_behind(offset, self.generation).is_some_and(|unread| unread < until);
        self.damage(at, if unread { DamageKind::NotReadable } else { what }, filter);
        self.chain = None;
        Ok(resume.map_or(Next::Segment, Next::Frame))
    }

    /// The log ends at `offset`. It is a torn end only if nothing shows that more was there.
    fn stop(&mut self, loaded: &Loaded, offset: u64, following: Option<&Loaded>) {
        // Only what is damaged can have a frame over it.
        let over_older =
            self.damaged_segment == Some(loaded.number) && loaded.has_astray_from(offset, self.generation);
        let astray = over_older
            || loaded.has_astray(offset, self.generation)
            || following.is_some_and(|following| following.has_astray(0, self.generation));
        if astray && self.told_apart {
            return self.damage(LogOffset::new(loaded.number, offset), DamageKind::Astray, EVERYONE);
        }
        // Nobody knows whether what cannot be read was synced.
        let unread = loaded.unread_behind(offset, self.generation).map(|at| (loaded.number, at));
        let unread = unread.or_else(|| {
            let following = following?;
            Some((following.number, following.unread_behind(0, self.generation)?))
        });
        if let Some((number, at)) = unread.filter(|_| self.told_apart) {
            return self.damage(LogOffset::new(number, at), DamageKind::NotReadable, EVERYONE);
        }
        // A segment that shows no frame may never have had one, but then its file is whole.
        let empty = if offset == 0 { Some(loaded) } else { following };
        let short = empty.filter(|empty| (empty.bytes.len() as u64) < self.segment_bytes);
        let short = short.or(Some(loaded).filter(|_| self.short && offset > 0));
        match short {
            Some(short) if self.told_apart => {
                let end = LogOffset::new(short.number, short.bytes.len() as u64);
                self.damage(end, DamageKind::ShortFile, EVERYONE);
            }
            _ => self.torn(loaded, offset, following),
        }
    }

    fn damage(&mut self, at: LogOffset, what: DamageKind, filter: u64) {
        self.damaged_segment = Some(at.segment());
        self.replay.damaged(at, what, filter);
    }

    /// Finds the highest mark of all frames that are still to come. Once is enough: it finds all of them.
    fn look_ahead(&mut self, turn: usize, loaded: &Loaded, offset: u64) -> Result<(), LogError> {
        if std::mem::replace(&mut self.looked_ahead, true) {
            return Ok(());
        }
        let highest =
            |loaded: &Loaded, from| loaded.frames(from, self.generation).map(|frame| frame.synced_to).max();
        let mut synced_to = self.synced_to.max(highest(loaded, offset).unwrap_or_default());
        for number in &self.numbers[turn + 1..] {
            let later = Loaded::read(self.files, *number)?;
            synced_to = synced_to.max(highest(&later, 0).unwrap_or_default());
        }
        self.synced_to = synced_to;
        Ok(())
    }

    /// Notes what is cut off at `offset`, if anything is.
    fn torn(&mut self, loaded: &Loaded, offset: u64, following: Option<&Loaded>) {
        let (mut end, mut at, mut partitions) = (offset, offset, 0);
        loop {
            // Frames that cannot be read may lie behind any that can be: whose they were nobody knows.
            let hole = match loaded.find(at, self.generation) {
                Found::HeaderOnly(header) if header.partitions == 0 => {
                    // Filling, and something else was written over it: perhaps what belongs behind it.
                    partitions = EVERYONE;
                    (end, at) = (header.end(), header.end());
                    continue;
                }
                Found::HeaderOnly(header) | Found::Whole(header) => {
                    partitions |= header.partitions;
                    (end, at) = (header.end(), header.end());
                    continue;
                }
                Found::Garbage => {
                    end = at + HEADER as u64;
                    true
                }
                Found::Nothing => false,
            };
            let next = loaded.next(at, self.generation);
            if hole || next.is_some() {
                partitions = EVERYONE;
            }
            match next {
                Some(header) => at = header.at.offset(),
                None => break,
            }
        }
        // A segment was begun behind this one, and its head cannot be read: it goes, and nobody knows what it
        // held.
        let begun = following.is_some_and(|next| !matches!(next.find(0, self.generation), Found::Nothing));
        if begun {
            end = end.max(offset + HEADER as u64);
            partitions = EVERYONE;
        }
        self.torn_bytes = end - offset;
        self.torn_partitions = partitions;
    }
}

/// Length of the segment and end of the one before, if this is a segment's first frame.
fn head(loaded: &Loaded, header: &FrameHeader) -> Option<(u64, LogOffset)> {
    match Stored::take(&mut loaded.body(header)) {
        Some(Stored::Segment { length, before }) if header.at.offset() == 0 => Some((length, before)),
        _ => None,
    }
}

impl Log {
    /// Opens the log in `files`, or begins one. When this returns, everything that it reports is on the disk.
    pub fn open(files: Arc<dyn Files>, options: Options) -> Result<(Log, Recovered), LogError> {
        Log::open_for(files, options, &Owner { begun: false, partitions: &|_| Vec::new() })
    }

    /// As [`Log::open`], for an owner that knows what should be there.
    pub fn open_for(
        files: Arc<dyn Files>,
        options: Options,
        owner: &Owner<'_>,
    ) -> Result<(Log, Recovered), LogError> {
        assert!(options.segment_bytes >= MIN_SEGMENT, "segments of {} bytes", options.segment_bytes);
        let listing = Listing::read(&*files)?;
        let mut scan = Scan {
            files: &*files,
            numbers: listing.segments.clone(),
            replay: Replay::new(options.keep_bytes),
            segment_bytes: options.segment_bytes,
            told_apart: options.rules.damage_is_no_torn_end(),
            chain: None,
            last_chain: 0,
            generation: 0,
            synced_to: LogOffset::default(),
            looked_ahead: false,
            end: None,
            damaged_segment: None,
            short: false,
            torn_bytes: 0,
            torn_partitions: 0,
        };
        scan.run()?;
        if scan.end.is_none() && scan.told_apart && (owner.begun || !listing.never_used(&*files)?) {
            return Err(LogError::Missing { segments: listing.segments.len() });
        }
        let mut partitions = scan.replay.finish(scan.torn_partitions);
        let apart = {
            let reader = scan.replay.reader.clone();
            let mut index = reader.shared.change();
            let apart = ApartFiles::attach(&*files, &mut index)?;
            for (id, found) in &mut partitions {
                let first = index.partitions[id].first();
                (found.base, found.base_crc) = (first.at, first.crc);
            }
            apart
        };
        let mut recovered = Recovered {
            partitions,
            fresh: scan.end.is_none(),
            clean_shutdown: scan.replay.clean && scan.torn_bytes == 0,
            torn_bytes: scan.torn_bytes,
            end: LogOffset::default(),
            generation: scan.generation + 1,
            damage: scan.replay.damage.clone(),
            unknown_damaged: scan.replay.has_open_damage(),
            torn_partitions: scan.torn_partitions,
        };
        let (mut log, next) = Log::assemble(files.clone(), options, scan, listing)?;
        log.apart = apart;
        log.note_missing(&recovered, &(owner.partitions)(&recovered));
        log.go_on(next)?;
        recovered.end = log.tail.at();
        Ok((log, recovered))
    }

    /// Puts the log together. Also says where its first frame can go.
    fn assemble(
        files: Arc<dyn Files>,
        options: Options,
        scan: Scan<'_>,
        listing: Listing,
    ) -> Result<(Log, FirstFrame), LogError> {
        // An earlier opening may have begun the last segment, and failed to make its name durable.
        files.sync_dir().map_err(|error| LogError::io("the log's directory cannot be synced", error))?;
        let last = scan.end.as_ref().map(|(segment, _)| segment.number);
        let highest = listing.segments.last().copied().unwrap_or(0);
        let behind = |number: &u32| last.is_none_or(|last| *number > last);
        let behind: Vec<u32> = listing.segments.iter().copied().filter(behind).collect();
        // Writing near what cannot be read may fail as well.
        let sound = scan.end.as_ref().is_none_or(|(segment, _)| segment.sound);
        let next = match scan.end {
            None => {
                remove_from_the_back(&*files, &behind)?;
                FirstFrame::Here
            }
            Some(_) if behind.is_empty() && sound && scan.damaged_segment != last => FirstFrame::Here,
            Some(_) => FirstFrame::NextSegment(behind),
        };
        let (segment, offset) = match scan.end {
            Some(end) => end,
            None => {
                let created = create_segment(&*files, highest + 1, options.segment_bytes);
                let segment =
                    created.map_err(|error| LogError::io("the first segment cannot be created", error))?;
                let segment = Arc::new(segment);
                let used = SegmentUse { segment: segment.clone(), last: BTreeMap::new(), used: 0 };
                scan.replay.reader.shared.change().segments.insert(segment.number, used);
                (segment, 0)
            }
        };
        let mut log = Log {
            files,
            reader: scan.replay.reader.clone(),
            tail: Tail { segment, offset, chain: scan.last_chain },
            generation: scan.generation + 1,
            synced_to: scan.synced_to,
            marked: false,
            litter: false,
            poisoned: None,
            touched: Vec::new(),
            spares: Vec::new(),
            next_spare: listing.spares.iter().map(|(_, number)| number + 1).max().unwrap_or(0),
            spare_underway: false,
            apart: ApartFiles::default(),
            unsynced_entries: 0,
            stats: Stats::default(),
            buffer: Vec::new(),
            options,
        };
        log.keep_spares(listing.spares);
        Ok((log, next))
    }

    fn keep_spares(&mut self, found: Vec<(String, u32)>) {
        for (name, _) in found {
            let size = self.files.open(&name).and_then(|file| file.size());
            let fits = size.is_ok_and(|size| size == self.options.segment_bytes);
            if fits && self.spares.len() < self.options.spares {
                self.spares.push(name);
            } else {
                // It is only a file that could have saved work.
                let _ = self.files.remove(&name);
            }
        }
    }

    /// Writes the first frame of this life and makes everything durable. The frame uses up a clean-shutdown
    /// mark, raises the generation and states what was found.
    fn go_on(&mut self, next: FirstFrame) -> Result<(), LogError> {
        self.rewrite_unsynced()?;
        let mut states = snapshot(&self.reader.shared.look());
        if self.tail.offset == 0 {
            states.insert(
                0,
                Stored::Segment { length: self.tail.segment.length, before: LogOffset::default() },
            );
        }
        match next {
            FirstFrame::Here => drop(self.write(&states, true)?),
            FirstFrame::NextSegment(behind) => self.begin_next(&behind)?,
        }
        self.flush()?;
        let mut index = self.reader.shared.change();
        for known in index.partitions.values_mut() {
            known.durable = known.end.at;
            known.told = known.durable;
        }
        Ok(())
    }

    /// The state of all partitions is to say from now on what the log may have lost as a whole: later
    /// openings could not tell (R10, PR-18).
    fn note_missing(&self, recovered: &Recovered, partitions: &[PartitionId]) {
        let mut index = self.reader.shared.change();
        for id in partitions {
            if recovered.may_have_lost(*id) {
                index.partition(*id).damaged = true;
            } else if recovered.may_have_torn(*id) {
                index.set_custom(*id, TORN, Bytes::from_static(&[1]));
            }
        }
    }

    /// Writes what may not be synced once more. After a failed sync a system can hold in memory what is not
    /// on the disk and believe that it is: the process that failed is gone, and this one would be deceived
    /// (F08).
    fn rewrite_unsynced(&mut self) -> Result<(), LogError> {
        let at = self.tail.at();
        let from = self.synced_to.max(LogOffset::new(at.segment(), 0)).min(at);
        let file = &self.tail.segment.file;
        let failed = |error| LogError::io("the end of the log cannot be written again", error);
        let whole = from.offset()..at.offset();
        let parts = if self.tail.segment.sound { vec![whole] } else { pages(whole) };
        for part in parts {
            let mut bytes = vec![0; (part.end - part.start) as usize];
            match file.read_at(part.start, &mut bytes) {
                Ok(read) => file.write_at(part.start, &bytes[..read]).map_err(failed)?,
                // Its damage was found before.
                Err(error) if is_unreadable(&error) && !self.tail.segment.sound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        // Not synced in this life, whatever the marks say.
        self.synced_to = from;
        Ok(())
    }
}

/// The files of a log's directory.
struct Listing {
    segments: Vec<u32>,
    spares: Vec<(String, u32)>,
}

impl Listing {
    fn read(files: &dyn Files) -> Result<Listing, LogError> {
        let failed = |error| LogError::io("the log's directory cannot be read", error);
        let mut listing = Listing { segments: Vec::new(), spares: Vec::new() };
        for name in files.list().map_err(failed)? {
            if is_unfinished(&name) {
                files.remove(&name).map_err(failed)?;
            } else if let Some(number) = Segment::number(&name) {
                listing.segments.push(number);
            } else if let Some(number) = spare_number(&name) {
                listing.spares.push((name, number));
            }
        }
        listing.segments.sort_unstable();
        listing.spares.sort();
        Ok(listing)
    }

    /// True if no log was ever begun here. Its first frame may be torn, and is short: what follows it is
    /// zeros.
    fn never_used(&self, files: &dyn Files) -> Result<bool, LogError> {
        match self.segments[..] {
            [] => Ok(true),
            [only] => {
                let loaded = Loaded::read(files, only)?;
                Ok(loaded.bytes.iter().skip(FIRST_FRAME).all(|byte| *byte == 0))
            }
            _ => Ok(false),
        }
    }
}
