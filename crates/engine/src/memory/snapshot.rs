//! The snapshot of a memory engine, byte by byte. All integers are little-endian; `crc` is CRC-32C.
//!
//! ```text
//! header    magic "USTSNAP1" (8) | format 1 (4) | epoch (8) | lsn (8) | floor (8) | crc of the header so far (4)
//! block     length of the payload, at least 1 (4) | crc of the length and the payload (4) | payload
//! payload   rows in key order: key length (4) | value length (4) | lsn (8) | key | value
//! trailer   0 (4) | rows (8) | digest (8) | crc of the trailer so far (4) | end of the file
//! ```
//!
//! The rows are the newest versions at the position, which is in the same file as the data and so cannot
//! disagree with it (PR-40). The digest is the sum of [`types::engine::row_hash`] over the rows, so equal to
//! [`types::Engine::digest`] there.

use std::borrow::Borrow;
use std::io::{self, Read, Write};
use types::engine::{MAX_KEY_BYTES, MAX_VALUE_BYTES, Row, row_hash, space};
use types::{EngineError, Lsn, Position, Term};

const MAGIC: &[u8; 8] = b"USTSNAP1";
const FORMAT: u32 = 1;
/// The length of the header.
pub const HEADER_BYTES: usize = 40;
const TRAILER_BYTES: usize = 24;
const ROW_HEADER_BYTES: usize = 16;
/// A block is closed when it has grown to this size.
const BLOCK_BYTES: usize = 64 * 1024;
/// No block is longer: one row of the largest size on top of a block that was about to be closed.
const MAX_BLOCK_BYTES: usize = BLOCK_BYTES + ROW_HEADER_BYTES + MAX_KEY_BYTES + MAX_VALUE_BYTES;

/// What a snapshot says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The state that the rows are.
    pub position: Position,
    /// The lowest LSN that can be read from it.
    pub read_floor: Lsn,
}

/// Writes a snapshot of `rows`, which come in key order.
pub fn write<K: AsRef<[u8]>, V: Borrow<bytes::Bytes>>(
    out: &mut dyn Write,
    header: Header,
    rows: impl Iterator<Item = (K, Lsn, V)>,
) -> io::Result<()> {
    out.write_all(&encode_header(header))?;
    let (mut count, mut digest) = (0u64, 0u64);
    let mut block = Vec::with_capacity(BLOCK_BYTES + 4096);
    for (key, lsn, value) in rows {
        let (key, value) = (key.as_ref(), value.borrow());
        block.extend_from_slice(&(key.len() as u32).to_le_bytes());
        block.extend_from_slice(&(value.len() as u32).to_le_bytes());
        block.extend_from_slice(&lsn.0.to_le_bytes());
        block.extend_from_slice(key);
        block.extend_from_slice(value);
        count += 1;
        digest = digest.wrapping_add(hash(key, lsn, value));
        if block.len() >= BLOCK_BYTES {
            write_block(out, &block)?;
            block.clear();
        }
    }
    if !block.is_empty() {
        write_block(out, &block)?;
    }
    let mut trailer = [0; TRAILER_BYTES];
    trailer[4..12].copy_from_slice(&count.to_le_bytes());
    trailer[12..20].copy_from_slice(&digest.to_le_bytes());
    add_checksum(&mut trailer);
    out.write_all(&trailer)
}

fn encode_header(header: Header) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[12..20].copy_from_slice(&header.position.term.0.to_le_bytes());
    bytes[20..28].copy_from_slice(&header.position.lsn.0.to_le_bytes());
    bytes[28..36].copy_from_slice(&header.read_floor.0.to_le_bytes());
    add_checksum(&mut bytes);
    bytes
}

fn write_block(out: &mut dyn Write, payload: &[u8]) -> io::Result<()> {
    assert!((1..=MAX_BLOCK_BYTES).contains(&payload.len()), "a block of {} bytes", payload.len());
    let length = (payload.len() as u32).to_le_bytes();
    out.write_all(&length)?;
    out.write_all(&block_crc(length, payload).to_le_bytes())?;
    out.write_all(payload)
}

/// The length is part of the sum, or a flipped bit in it would only be noticed by what is read in its place.
fn block_crc(length: [u8; 4], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length), payload)
}

/// Reads a snapshot, handing every row to `take`. Nothing of it counts unless the whole succeeds.
pub fn read(input: &mut dyn Read, mut take: impl FnMut(Row)) -> Result<Header, EngineError> {
    let mut bytes = [0; HEADER_BYTES];
    read_exact(input, &mut bytes, "the header")?;
    let header = decode_header(&bytes)?;
    let (mut count, mut digest) = (0u64, 0u64);
    let mut last_key: Option<bytes::Bytes> = None;
    loop {
        let mut length = [0; 4];
        read_exact(input, &mut length, "a block's length")?;
        if length == [0; 4] {
            break;
        }
        let payload = read_block(input, length)?;
        let mut rest = &payload[..];
        while !rest.is_empty() {
            let row = take_row(&mut rest)?;
            if last_key.as_ref().is_some_and(|last| *last >= row.key) {
                return Err(corrupt("rows out of order"));
            }
            last_key = Some(row.key.clone());
            count += 1;
            digest = digest.wrapping_add(row_hash(&row));
            take(row);
        }
    }
    check_trailer(input, count, digest)?;
    Ok(header)
}

fn decode_header(bytes: &[u8; HEADER_BYTES]) -> Result<Header, EngineError> {
    if &bytes[..8] != MAGIC {
        return Err(corrupt("not a snapshot"));
    }
    if !is_frozen(bytes) {
        return Err(corrupt("the header's checksum does not match"));
    }
    let format = u32::from_le_bytes(array(&bytes[8..12]));
    if format != FORMAT {
        return Err(corrupt(&format!("format {format} is unknown, {FORMAT} was expected")));
    }
    let word = |at: usize| u64::from_le_bytes(array(&bytes[at..at + 8]));
    Ok(Header { position: Position::new(Term(word(12)), Lsn(word(20))), read_floor: Lsn(word(28)) })
}

fn read_block(input: &mut dyn Read, length: [u8; 4]) -> Result<Vec<u8>, EngineError> {
    let bytes = u32::from_le_bytes(length) as usize;
    // Before the memory is asked for: a damaged length must not ask for four gigabytes.
    if bytes > MAX_BLOCK_BYTES {
        return Err(corrupt("a block is longer than any block"));
    }
    let mut crc = [0; 4];
    read_exact(input, &mut crc, "a block's checksum")?;
    let mut payload = vec![0; bytes];
    read_exact(input, &mut payload, "a block")?;
    if block_crc(length, &payload) != u32::from_le_bytes(crc) {
        return Err(corrupt("a block's checksum does not match"));
    }
    Ok(payload)
}

/// Takes one row from the front of a block.
fn take_row(rest: &mut &[u8]) -> Result<Row, EngineError> {
    let Some((head, tail)) = rest.split_at_checked(ROW_HEADER_BYTES) else {
        return Err(corrupt("a row is cut off"));
    };
    let key_length = u32::from_le_bytes(array(&head[..4])) as usize;
    let value_length = u32::from_le_bytes(array(&head[4..8])) as usize;
    let lsn = Lsn(u64::from_le_bytes(array(&head[8..16])));
    if !(1..=MAX_KEY_BYTES).contains(&key_length) || value_length > MAX_VALUE_BYTES {
        return Err(corrupt("a row has a length that no row has"));
    }
    let Some((row, after)) = tail.split_at_checked(key_length + value_length) else {
        return Err(corrupt("a row is cut off"));
    };
    *rest = after;
    let (key, value) = row.split_at(key_length);
    if key[0] == space::POSITION {
        return Err(corrupt("a row lies in the space of the applied position"));
    }
    Ok(Row { key: bytes::Bytes::copy_from_slice(key), lsn, value: bytes::Bytes::copy_from_slice(value) })
}

/// Reads the trailer, of which the leading zero has been read, and the end of the file.
fn check_trailer(input: &mut dyn Read, count: u64, digest: u64) -> Result<(), EngineError> {
    let mut trailer = [0; TRAILER_BYTES];
    read_exact(input, &mut trailer[4..], "the trailer")?;
    if !is_frozen(&trailer) {
        return Err(corrupt("the trailer's checksum does not match"));
    }
    if u64::from_le_bytes(array(&trailer[4..12])) != count {
        return Err(corrupt("rows are missing"));
    }
    if u64::from_le_bytes(array(&trailer[12..20])) != digest {
        return Err(corrupt("the digest of the rows does not match"));
    }
    if input.read(&mut [0; 1])? != 0 {
        return Err(corrupt("something follows the trailer"));
    }
    Ok(())
}

/// Writes the checksum of what is before them into the last four bytes.
fn add_checksum(bytes: &mut [u8]) {
    let at = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..at]);
    bytes[at..].copy_from_slice(&crc.to_le_bytes());
}

/// True if the last four bytes are the checksum of those before.
fn is_frozen(bytes: &[u8]) -> bool {
    let (body, crc) = bytes.split_at(bytes.len() - 4);
    crc32c::crc32c(body).to_le_bytes() == crc
}

fn hash(key: &[u8], lsn: Lsn, value: &bytes::Bytes) -> u64 {
    row_hash(&Row { key: bytes::Bytes::copy_from_slice(key), lsn, value: value.clone() })
}

/// Fills `bytes`; the end of the file is damage, not a failure of the disk.
fn read_exact(input: &mut dyn Read, bytes: &mut [u8], what: &str) -> Result<(), EngineError> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => corrupt(&format!("{what} is cut off")),
        _ => EngineError::Io(error),
    })
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the caller cuts out exactly as many bytes")
}

fn corrupt(what: &str) -> EngineError {
    EngineError::Corrupt(format!("snapshot: {what}"))
}
