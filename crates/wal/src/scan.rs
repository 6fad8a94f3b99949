//! Finding frames in the bytes of a segment, also behind damage.

use crate::error::LogError;
use crate::file::Files;
use crate::frame::{ALIGN, FrameHeader, HEADER, LogOffset, MAGIC, align};
use crate::index::Segment;
use bytes::Bytes;
use std::sync::Arc;

/// Zeros are skipped in steps of this, a multiple of the distance between places where frames may start.
const CHUNK: usize = 4096;
const ZEROS: [u8; CHUNK] = [0; CHUNK];

/// A segment's file, read into memory.
pub(crate) struct Loaded {
    pub number: u32,
    pub file: Arc<dyn crate::file::File>,
    pub bytes: Bytes,
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
        let read = file.read_at(0, &mut bytes).map_err(failed)?;
        bytes.truncate(read);
        Ok(Loaded { number, file, bytes: Bytes::from(bytes) })
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
                let whole = end <= length
                    && crc32c::crc32c(&self.bytes[start + HEADER..end as usize]) == header.body_crc;
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
        // It may begin in the padding of the frame before.
        let from = (offset.saturating_sub(ALIGN) as usize).min(self.bytes.len());
        // Nothing lies over a whole frame. What looks like a header in its body is what somebody stored.
        let whole: Vec<(u64, u64)> =
            self.frames(offset, oldest).map(|frame| (frame.at.offset(), frame.end())).collect();
        let stored = |at: u64| {
            let before = whole.partition_point(|(start, _)| *start < at);
            before > 0 && at < whole[before - 1].1
        };
        memchr::memmem::find_iter(&self.bytes[from..], &MAGIC.to_le_bytes()).any(|found| {
            let at = from + found;
            let header = FrameHeader::of_segment(&self.bytes[at..], self.number);
            header.is_some_and(|header| {
                // The newest opening may have written its first frame, and no further one.
                let of_this_log = (oldest..=oldest + 1).contains(&header.generation);
                of_this_log && header.at.offset() != at as u64 && !stored(at as u64)
            })
        })
    }

    /// The body of a whole frame.
    pub fn body(&self, header: &FrameHeader) -> Bytes {
        let start = header.at.offset() as usize + HEADER;
        self.bytes.slice(start..header.body_end() as usize)
    }
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
