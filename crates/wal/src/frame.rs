//! The frame: what one append writes, byte by byte.
//!
//! A frame belongs to the file of one node; the entries inside it are the same bytes on every replica. A log
//! is a row of segment files; a segment is a row of frames, each starting at a multiple of 8. All integers
//! are little-endian.
//!
//! ```text
//!  0 magic "USLG" u32 | 4 format u16 | 6 reserved u16, zero
//!  8 position u64: segment number << 32 | offset in the segment
//! 16 generation u32: the how-manieth opening of this log wrote it
//! 20 body length u32, without the padding to a multiple of 8
//! 24 synced-up-to u64: all frames below this position were fsynced when this one was written
//! 32 partitions u64: bit (partition id mod 64) is set for every partition that the body names
//! 40 checksum of the frame before u32 | 44 number of records u32
//! 48 checksum of the body u32, see below | 52 checksum of bytes 0..52 u32, "the frame's checksum"
//! 56 body: the records, see `record.rs`
//! ```
//!
//! - The *position* makes a frame that a recycled file still holds from its earlier use worthless: segment
//!   numbers are never used twice while a frame of them could be believed.
//! - The *generation* does the same for frames behind a torn end that was cut: what is written there later
//!   has a higher one, and along the chain it never falls.
//! - The *checksum of the frame before* chains all frames; as the frame's checksum covers the body's, so does
//!   the chain.
//! - The *checksum of the body* is the lower half of its XXH3-64. A CRC-32C, which format 1 has there, does
//!   not depend on what an entry without a payload says: that ends with its own CRC-32C, and what a CRC makes
//!   of bytes with their own CRC behind them is always the same. So the header of a write that was cut short
//!   would vouch for the entry that a recycled file held there before (PR-144).
//! - The *synced-up-to* mark tells a torn end from damage (F10): nothing below the highest mark found may be
//!   missing.
//! - The *partitions* field says who is hit when the body is damaged but the header is not.
//!
//! Behind the newest frame lies a header's length of zeros, unless the segment is full: so the end of the log
//! looks the same in a recycled file as in a fresh one.

use types::PartitionId;

/// "USLG" as it lies in the file.
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"USLG");
/// The format that this version writes. It reads [`FORMAT_1`] as well.
pub(crate) const FORMAT: u16 = 2;
/// The first format: its bodies have another checksum.
pub(crate) const FORMAT_1: u16 = 1;
/// Length of a frame's header.
pub(crate) const HEADER: usize = 56;
/// The longest body. A batch beyond it is a mistake of the caller.
pub(crate) const MAX_BODY: usize = 1 << 30;
/// Frames start at multiples of this.
pub(crate) const ALIGN: u64 = 8;

/// A place in the log: segment number and offset as one ordered number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogOffset(pub u64);

impl LogOffset {
    /// This offset of this segment.
    pub fn new(segment: u32, offset: u64) -> LogOffset {
        assert!(offset <= u64::from(u32::MAX), "offset {offset} in a segment");
        LogOffset(u64::from(segment) << 32 | offset)
    }

    /// The segment's number.
    pub fn segment(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The offset within the segment.
    pub fn offset(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }
}

impl std::fmt::Display for LogOffset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.segment(), self.offset())
    }
}

/// `offset` rounded up to where a frame may start.
pub(crate) fn align(offset: u64) -> u64 {
    offset.next_multiple_of(ALIGN)
}

/// The bit of `partition` in a frame's partitions field.
pub(crate) fn partition_bit(partition: PartitionId) -> u64 {
    1 << (partition.0 % 64)
}

/// A frame's header, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FrameHeader {
    pub format: u16,
    pub at: LogOffset,
    pub generation: u32,
    pub body: u32,
    pub synced_to: LogOffset,
    pub partitions: u64,
    pub previous: u32,
    pub records: u32,
    pub body_crc: u32,
    /// The frame's checksum. Computed by [`FrameHeader::write`].
    pub crc: u32,
}

impl FrameHeader {
    /// Writes the header in front of `frame`, whose body begins at [`HEADER`]; sets both checksums.
    pub fn write(&mut self, frame: &mut [u8]) {
        assert!(frame.len() >= HEADER + self.body as usize, "a frame of {} bytes", frame.len());
        self.body_crc = body_checksum(self.format, &frame[HEADER..HEADER + self.body as usize]);
        frame[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        frame[4..6].copy_from_slice(&self.format.to_le_bytes());
        frame[6..8].fill(0);
        frame[8..16].copy_from_slice(&self.at.0.to_le_bytes());
        frame[16..20].copy_from_slice(&self.generation.to_le_bytes());
        frame[20..24].copy_from_slice(&self.body.to_le_bytes());
        frame[24..32].copy_from_slice(&self.synced_to.0.to_le_bytes());
        frame[32..40].copy_from_slice(&self.partitions.to_le_bytes());
        frame[40..44].copy_from_slice(&self.previous.to_le_bytes());
        frame[44..48].copy_from_slice(&self.records.to_le_bytes());
        frame[48..52].copy_from_slice(&self.body_crc.to_le_bytes());
        self.crc = crc32c::crc32c(&frame[..52]);
        frame[52..56].copy_from_slice(&self.crc.to_le_bytes());
    }

    /// Reads a header that lies at `at`. `None` if these bytes are not the header of a frame of that place.
    pub fn read(bytes: &[u8], at: LogOffset) -> Option<FrameHeader> {
        if bytes.len() < HEADER || read_u32(bytes, 0) != MAGIC || read_u64(bytes, 8) != at.0 {
            return None;
        }
        let crc = read_u32(bytes, 52);
        if crc32c::crc32c(&bytes[..52]) != crc {
            return None;
        }
        Some(FrameHeader {
            format: u16::from_le_bytes([bytes[4], bytes[5]]),
            at,
            generation: read_u32(bytes, 16),
            body: read_u32(bytes, 20),
            synced_to: LogOffset(read_u64(bytes, 24)),
            partitions: read_u64(bytes, 32),
            previous: read_u32(bytes, 40),
            records: read_u32(bytes, 44),
            body_crc: read_u32(bytes, 48),
            crc,
        })
    }

    /// Reads a header that says that it lies in this segment, wherever it was found.
    pub fn of_segment(bytes: &[u8], segment: u32) -> Option<FrameHeader> {
        let stated = LogOffset(read_u64(bytes.get(8..16)?, 0));
        if stated.segment() == segment { FrameHeader::read(bytes, stated) } else { None }
    }

    /// True if this is the body that the header was written for. Of a format that is not known nobody can
    /// tell here, and the log is not opened ([`FrameHeader::is_known`]).
    pub fn vouches_for(&self, body: &[u8]) -> bool {
        !self.is_known() || body_checksum(self.format, body) == self.body_crc
    }

    /// True if this version reads frames of this format.
    pub fn is_known(&self) -> bool {
        self.format == FORMAT || self.format == FORMAT_1
    }

    /// Where the body ends, as an offset in the segment.
    pub fn body_end(&self) -> u64 {
        self.at.offset() + HEADER as u64 + u64::from(self.body)
    }

    /// Where the next frame starts, as an offset in the segment.
    pub fn end(&self) -> u64 {
        align(self.body_end())
    }
}

fn body_checksum(format: u16, body: &[u8]) -> u32 {
    match format {
        FORMAT_1 => crc32c::crc32c(body),
        _ => xxhash_rust::xxh3::xxh3_64(body) as u32,
    }
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Lsn, Position, Term};
    use wire::entry::{Entry, Header, Kind};

    fn sample() -> (FrameHeader, Vec<u8>) {
        let mut header = FrameHeader {
            format: FORMAT,
            at: LogOffset::new(3, 128),
            generation: 2,
            body: 5,
            synced_to: LogOffset::new(3, 64),
            partitions: partition_bit(PartitionId(65)),
            previous: 7,
            records: 1,
            body_crc: 0,
            crc: 0,
        };
        let mut frame = vec![0; HEADER];
        frame.extend_from_slice(b"abcde");
        header.write(&mut frame);
        (header, frame)
    }

    #[test]
    fn a_header_reads_back() {
        let (header, frame) = sample();
        assert_eq!(FrameHeader::read(&frame, header.at), Some(header.clone()));
        assert_eq!((header.body_end(), header.end()), (189, 192));
        assert_eq!(header.partitions, 2);
    }

    #[test]
    fn pr144_a_body_of_one_entry_has_a_checksum_of_its_own() {
        let body = |lsn| {
            let at = Position::new(Term(1), Lsn(lsn));
            Entry::encode(Header::new(Kind::SessionOpen, PartitionId(64), at, 9), b"").bytes().to_vec()
        };
        let (mine, other) = (body(8), body(3));
        assert_eq!(body_checksum(FORMAT_1, &mine), body_checksum(FORMAT_1, &other), "why the format changed");
        assert_ne!(body_checksum(FORMAT, &mine), body_checksum(FORMAT, &other));
    }

    #[test]
    fn frames_of_the_first_format_are_read() {
        for format in [FORMAT_1, FORMAT] {
            let (mut header, mut frame) = sample();
            header.format = format;
            header.write(&mut frame);
            let read = FrameHeader::read(&frame, header.at).expect("a header");
            assert!(read.is_known() && read.vouches_for(b"abcde") && !read.vouches_for(b"abcdf"), "{format}");
        }
    }

    #[test]
    fn a_header_of_another_place_or_with_a_flipped_bit_is_none() {
        let (header, frame) = sample();
        assert_eq!(FrameHeader::read(&frame, LogOffset::new(4, 128)), None);
        for at in 0..HEADER {
            let mut bad = frame.clone();
            bad[at] ^= 0x10;
            assert!(FrameHeader::read(&bad, header.at).is_none(), "byte {at}");
        }
    }
}
