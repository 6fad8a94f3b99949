//! Finding frames in the bytes of a segment, also behind damage.

use crate::error::LogError;
use crate::file::Files;
use crate::frame::{FrameHeader, HEADER, LogOffset, align};
use crate::index::Segment;
use bytes::Bytes;
use std::sync::Arc;

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
        while at + (HEADER as u64) <= self.bytes.len() as u64 {
            if let Found::Whole(header) = self.find(at, oldest) {
                return Some(header);
            }
            at = align(at + 1);
        }
        None
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

    /// The body of a whole frame.
    pub fn body(&self, header: &FrameHeader) -> Bytes {
        let start = header.at.offset() as usize + HEADER;
        self.bytes.slice(start..header.body_end() as usize)
    }
}
