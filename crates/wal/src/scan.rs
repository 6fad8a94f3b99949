//! Finding frames in the bytes of a segment, also behind damage.

use crate::error::{EIO, LogError, is_unreadable};
use crate::file::{File, Files};
use crate::frame::{ALIGN, FrameHeader, HEADER, LogOffset, MAGIC, align};
use crate::index::Segment;
use bytes::Bytes;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Zeros are skipped in steps of this, a multiple of the distance between places where frames may start.
const CHUNK: usize = 4096;
const ZEROS: [u8; CHUNK] = [0; CHUNK];

/// Stands where bytes could not be read: no header begins like that, and nothing that was never written is
/// like that.
const UNREAD: u8 = 0x5A;
/// Bytes that are read at a time where a file cannot be read as a whole: in most systems they fail together.
const PAGE: u64 = 4096;
/// So many pages of a segment are tried in vain. A disk may take seconds for each; what is left is then not
/// read at all.
const PAGES_IN_VAIN: usize = 64;

/// A segment's file, read into memory.
pub(crate) struct Loaded {
    pub number: u32,
    pub file: Arc<dyn File>,
    pub bytes: Bytes,
    /// Where the disk refused to read it, in order.
    unread: Vec<Range<u64>>,
}

/// What lies where a frame could start.
pub(crate) enum Found {
    /// A whole frame.
    Whole(FrameHeader),
    /// A header whose body is not as it was written.
    HeaderOnly(FrameHeader),
    /// Zeros, or too little room for a header: nothing was ever written here.
    Nothing,
    /// Something else.
    Garbage,
}

impl Loaded {
    /// Reads segment `number`.
    pub fn read(files: &dyn Files, number: u32) -> Result<Loaded, LogError> {
        let name = Segment::name(number);
        let failed = |error| LogError::io(format!("{name} cannot be read"), error);
        let file = files.open(&name).map_err(failed)?;
        let size = file.size().map_err(failed)?.min(u64::from(u32::MAX));
        let mut bytes = vec![0; size as usize];
        let (read, unread) = match file.read_at(0, &mut bytes) {
            Ok(read) => (read, Vec::new()),
            Err(error) if is_unreadable(&error) => read_in_pages(&*file, &mut bytes).map_err(failed)?,
            Err(error) => return Err(failed(error)),
        };
        bytes.truncate(read);
        Ok(Loaded { number, file, bytes: Bytes::from(bytes), unread })
    }

    /// True if every byte could be read.
    pub fn is_readable(&self) -> bool {
        self.unread.is_empty()
    }

    /// The first place at or behind `offset` that could not be read, unless nothing at all was written at
    /// `offset`: what is written in order then has nothing behind it either.
    pub fn unread_behind(&self, offset: u64, oldest: u32) -> Option<u64> {
        let behind = self.unread.iter().find(|unread| unread.end > offset)?;
        let written = !matches!(self.find(offset, oldest), Found::Nothing);
        written.then_some(behind.start.max(offset))
    }

    /// What lies at `offset`. Frames of a generation before `oldest` are left over from a tail that was cut.
    pub fn find(&self, offset: u64, oldest: u32) -> Found {
        let length = self.bytes.len() as u64;
        if offset + HEADER as u64 > length {
            return Found::Nothing;
        }
        let start = offset as usize;
        let bytes = &self.bytes[start..start + HEADER];
        match FrameHeader::read(bytes, LogOffset::new(self.number, offset)) {
            Some(header) if header.generation >= oldest => {
                let end = header.body_end();
                let whole = end <= length && header.vouches_for(&self.bytes[start + HEADER..end as usize]);
                if whole { Found::Whole(header) } else { Found::HeaderOnly(header) }
            }
            _ if bytes.iter().all(|byte| *byte == 0) => Found::Nothing,
            _ => Found::Garbage,
        }
    }

    /// The first whole frame at or behind `offset`.
    pub fn next(&self, offset: u64, oldest: u32) -> Option<FrameHeader> {
        let mut at = align(offset);
        loop {
            at = self.behind_zeros(at);
            if at + HEADER as u64 > self.bytes.len() as u64 {
                return None;
            }
            if let Found::Whole(header) = self.find(at, oldest) {
                return Some(header);
            }
            at = align(at + 1);
        }
    }

    /// Passes over whole chunks of zeros: a frame begins with something else.
    fn behind_zeros(&self, mut at: u64) -> u64 {
        while self.bytes.get(at as usize..at as usize + CHUNK) == Some(&ZEROS) {
            at += CHUNK as u64;
        }
        at
    }

    /// All whole frames at or behind `offset`, whether they chain or not.
    pub fn frames(&self, offset: u64, oldest: u32) -> impl Iterator<Item = FrameHeader> {
        let mut at = offset;
        std::iter::from_fn(move || {
            let header = self.next(at, oldest)?;
            at = header.end();
            Some(header)
        })
    }

    /// True if a frame at or behind `offset` says that it belongs to another place of this segment. No write
    /// that was cut short looks like that: the disk wrote it over something else, and it may have been
    /// acknowledged there (F10, PR-104).
    pub fn has_astray(&self, offset: u64, oldest: u32) -> bool {
        self.astray(offset, (oldest, oldest)).next().is_some()
    }

    /// True if a frame anywhere in this segment says that it belongs at or behind `end`, where the log is
    /// over: it lies over what was there before it, which nobody may need any more (PR-104).
    pub fn has_astray_from(&self, end: u64, newest: u32) -> bool {
        self.astray(0, (0, newest)).any(|header| header.at.offset() >= end)
    }

    /// Frames at or behind `offset` that belong to other places of this segment, and are of the generation
    /// `newest` or the one behind it. None of them lies in a whole frame of generation `oldest` or newer.
    fn astray(
        &self,
        offset: u64,
        (oldest, newest): (u32, u32),
    ) -> impl Iterator<Item = FrameHeader> + use<'_> {
        // It may begin in the padding of the frame before.
        let from = (offset.saturating_sub(ALIGN) as usize).min(self.bytes.len());
        // Nothing lies over a whole frame. What looks like a header in its body is what somebody stored.
        let whole: Vec<(u64, u64)> =
            self.frames(offset, oldest).map(|frame| (frame.at.offset(), frame.body_end())).collect();
        let stored = move |at: u64| {
            let before = whole.partition_point(|(start, _)| *start < at);
            before > 0 && at < whole[before - 1].1
        };
        let marks = memchr::memmem::find_iter(&self.bytes[from..], &MAGIC.to_le_bytes()).collect::<Vec<_>>();
        marks.into_iter().filter_map(move |found| {
            let at = from + found;
            let header = FrameHeader::of_segment(&self.bytes[at..], self.number)?;
            // The newest opening may have written its first frame, and no further one.
            let of_this_log = (newest..=newest + 1).contains(&header.generation);
            (of_this_log && header.at.offset() != at as u64 && !stored(at as u64)).then_some(header)
        })
    }

    /// The body of a whole frame.
    pub fn body(&self, header: &FrameHeader) -> Bytes {
        let start = header.at.offset() as usize + HEADER;
        self.bytes.slice(start..header.body_end() as usize)
    }
}

/// Reads page by page what cannot be read at once (R10: what a disk has lost is damage, not the end of the
/// node). Returns how much there is, and what could not be read.
fn read_in_pages(file: &dyn File, bytes: &mut [u8]) -> io::Result<(usize, Vec<Range<u64>>)> {
    let (mut unread, mut in_vain) = (Vec::<Range<u64>>::new(), 0);
    for range in pages(0..bytes.len() as u64) {
        let page = &mut bytes[range.start as usize..range.end as usize];
        let read = match in_vain < PAGES_IN_VAIN {
            true => file.read_at(range.start, page),
            false => Err(io::Error::from_raw_os_error(EIO)),
        };
        match read {
            Ok(read) if read < page.len() => return Ok((range.start as usize + read, unread)),
            Ok(_) => {}
            Err(error) if is_unreadable(&error) => {
                page.fill(UNREAD);
                in_vain += 1;
                match unread.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => unread.push(range),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok((bytes.len(), unread))
}

/// The pages, or parts of pages, that a range of a file has.
pub(crate) fn pages(range: Range<u64>) -> Vec<Range<u64>> {
    let firsts = (range.start / PAGE..range.end.div_ceil(PAGE)).map(|page| page * PAGE);
    firsts.map(|first| first.max(range.start)..(first + PAGE).min(range.end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::RealFiles;
    use crate::frame::FORMAT;

    const LENGTH: usize = 1 << 20;

    /// A segment of zeros with one frame in it.
    fn with_frame_at(dir: &std::path::Path, offset: u64) -> Loaded {
        let mut frame = vec![0; HEADER];
        frame.extend_from_slice(b"body");
        FrameHeader {
            format: FORMAT,
            at: LogOffset::new(1, offset),
            generation: 1,
            body: 4,
            synced_to: LogOffset::default(),
            partitions: 0,
            previous: 0,
            records: 1,
            body_crc: 0,
            crc: 0,
        }
        .write(&mut frame);
        let mut bytes = vec![0; LENGTH];
        bytes[offset as usize..offset as usize + frame.len()].copy_from_slice(&frame);
        std::fs::write(dir.join(Segment::name(1)), bytes).expect("writes");
        Loaded::read(&RealFiles::open(dir).expect("opens"), 1).expect("reads")
    }

    #[test]
    fn a_run_of_zeros_is_skipped_in_large_steps_and_no_frame_with_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let chunk = CHUNK as u64;
        for from in [0, 8, chunk - 8, chunk] {
            for at in [0, 8, 48, chunk - 64, chunk - 8, chunk, chunk + 8, LENGTH as u64 - 64] {
                let loaded = with_frame_at(dir.path(), at);
                let found = loaded.next(from, 1).map(|header| header.at.offset());
                assert_eq!(found, (at >= from).then_some(at), "from {from}");
                let passed = loaded.behind_zeros(from);
                assert!(at < from || (passed <= at && at - passed < chunk), "{passed} of {at}, from {from}");
            }
        }
    }
}
