//! The file of one partition: a head, blocks of rows in key order, an end that says what came before it.
//! Every part has a checksum, and a reader believes no length beyond a limit.

use super::{Fault, Sum, damage};
use bytes::{BufMut, Bytes};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::Path;
use types::engine::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use types::{Lsn, PartitionId, Position, Term};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// What a file begins with. The last digit is the format's number.
const MAGIC: &[u8; 8] = b"USTDROW1";
/// Magic, partition, epoch, LSN, checksum.
const HEAD_BYTES: usize = 8 + 4 + 8 + 8 + 8;
/// Length, rows, checksum.
const BLOCK_HEAD_BYTES: usize = 4 + 4 + 8;
/// Blocks, rows, bytes, digest, checksum; behind a length of 0.
const END_BYTES: usize = 5 * 8;
/// A block is written when it has so many bytes.
const BLOCK_BYTES: usize = 256 * 1024;
/// The longest row of a block, with its two lengths.
const ROW_BYTES: usize = 8 + MAX_KEY_BYTES + MAX_VALUE_BYTES;
/// A block of more bytes is damage.
const MOST_BLOCK_BYTES: usize = BLOCK_BYTES + ROW_BYTES;

/// What was written, or read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whole {
    /// The rows.
    pub sum: Sum,
    /// The file's length in bytes.
    pub file_bytes: u64,
    /// XXH3-64 of all its bytes.
    pub file_hash: u64,
}

/// Writes a partition's file. It is worth nothing before [`Writer::finish`].
pub struct Writer {
    file: BufWriter<File>,
    hash: Box<Xxh3>,
    bytes: u64,
    block: Vec<u8>,
    block_rows: u32,
    blocks: u64,
    sum: Sum,
}

impl Writer {
    /// Makes the file, which must not be there.
    pub fn create(path: &Path, partition: PartitionId, at: Position) -> Result<Writer, Fault> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let mut writer = Writer {
            file: BufWriter::with_capacity(BLOCK_BYTES, file),
            hash: Box::new(Xxh3::new()),
            bytes: 0,
            block: Vec::new(),
            block_rows: 0,
            blocks: 0,
            sum: Sum::default(),
        };
        writer.put(&head(partition, at))?;
        Ok(writer)
    }

    /// Adds a row. Keys must ascend.
    pub fn add(&mut self, key: &Bytes, value: &Bytes) -> Result<(), Fault> {
        self.sum.add(key, value);
        self.block.put_u32_le(key.len() as u32);
        self.block.put_u32_le(value.len() as u32);
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(value);
        self.block_rows += 1;
        if self.block.len() >= BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    /// Ends the file and makes it durable.
    pub fn finish(mut self) -> Result<Whole, Fault> {
        self.end_block()?;
        let end = end(self.blocks, &self.sum);
        self.put(&[0; 4])?;
        self.put(&end)?;
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        Ok(Whole { sum: self.sum, file_bytes: self.bytes, file_hash: self.hash.digest() })
    }

    fn end_block(&mut self) -> Result<(), Fault> {
        if self.block_rows == 0 {
            return Ok(());
        }
        let block = std::mem::take(&mut self.block);
        let mut head = Vec::with_capacity(BLOCK_HEAD_BYTES);
        head.put_u32_le(block.len() as u32);
        head.put_u32_le(self.block_rows);
        head.put_u64_le(block_hash(self.blocks, self.block_rows, &block));
        self.put(&head)?;
        self.put(&block)?;
        (self.block, self.block_rows) = (block, 0);
        self.block.clear();
        self.blocks += 1;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(self.file.write_all(bytes)?)
    }
}

/// Reads a partition's file block by block. What it has given is sound as far as it goes; the file is whole
/// when [`Reader::block`] has given `None`.
pub struct Reader {
    file: BufReader<File>,
    partition: PartitionId,
    at: Position,
    hash: Box<Xxh3>,
    bytes: u64,
    blocks: u64,
    last: Option<Bytes>,
    sum: Sum,
}

impl Reader {
    /// Opens a file and checks its head.
    pub fn open(path: &Path) -> Result<Reader, Fault> {
        let mut reader = Reader {
            file: BufReader::with_capacity(BLOCK_BYTES, File::open(path)?),
            partition: PartitionId(0),
            at: Position::ZERO,
            hash: Box::new(Xxh3::new()),
            bytes: 0,
            blocks: 0,
            last: None,
            sum: Sum::default(),
        };
        let mut found = [0; HEAD_BYTES];
        reader.take(&mut found, "its head")?;
        let number = |at: usize| u64::from_le_bytes(found[at..at + 8].try_into().expect("eight bytes"));
        reader.partition = PartitionId(u32::from_le_bytes(found[8..12].try_into().expect("four bytes")));
        reader.at = Position::new(Term(number(12)), Lsn(number(20)));
        if found[..] != head(reader.partition, reader.at)[..] {
            return damage("its head is damaged, or it is no file of a backup");
        }
        Ok(reader)
    }

    /// The partition, and the position that it is read at.
    pub fn is(&self) -> (PartitionId, Position) {
        (self.partition, self.at)
    }

    /// The rows of the next block: at least one. `None`: that was all, and the file is whole.
    pub fn block(&mut self) -> Result<Option<Vec<(Bytes, Bytes)>>, Fault> {
        let name = format!("its block {}", self.blocks + 1);
        let mut length = [0; 4];
        self.take(&mut length, &name)?;
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 {
            return self.end().map(|()| None);
        }
        if length > MOST_BLOCK_BYTES {
            return damage(format!("{name} is damaged: {length} bytes are more than a block has"));
        }
        let mut rest = [0; BLOCK_HEAD_BYTES - 4];
        self.take(&mut rest, &name)?;
        let rows = u32::from_le_bytes(rest[..4].try_into().expect("four bytes"));
        let hash = u64::from_le_bytes(rest[4..].try_into().expect("eight bytes"));
        let mut block = vec![0; length];
        self.take(&mut block, &name)?;
        if block_hash(self.blocks, rows, &block) != hash {
            return damage(format!("{name} is damaged: its checksum is another one"));
        }
        self.blocks += 1;
        self.rows(Bytes::from(block), rows).map(Some).or_else(|what| damage(format!("{name} {what}")))
    }

    /// What was read. To be asked for at the end.
    pub fn whole(&self) -> Whole {
        Whole { sum: self.sum, file_bytes: self.bytes, file_hash: self.hash.digest() }
    }

    fn rows(&mut self, mut block: Bytes, rows: u32) -> Result<Vec<(Bytes, Bytes)>, &'static str> {
        let mut found = Vec::new();
        while !block.is_empty() {
            let lengths: [u8; 8] = block.get(..8).and_then(|head| head.try_into().ok()).ok_or("is short")?;
            let key = u32::from_le_bytes(lengths[..4].try_into().expect("four bytes")) as usize;
            let value = u32::from_le_bytes(lengths[4..].try_into().expect("four bytes")) as usize;
            if key > MAX_KEY_BYTES || value > MAX_VALUE_BYTES || block.len() < 8 + key + value {
                return Err("has a row that is too long");
            }
            let mut row = block.split_to(8 + key + value).split_off(8);
            let value = row.split_off(key);
            if self.last.as_ref().is_some_and(|last| *last >= row) {
                return Err("has keys that do not ascend");
            }
            self.sum.add(&row, &value);
            self.last = Some(row.clone());
            found.push((row, value));
        }
        if found.len() != rows as usize || found.is_empty() {
            Err("has another number of rows")
        } else {
            Ok(found)
        }
    }

    fn end(&mut self) -> Result<(), Fault> {
        let mut found = [0; END_BYTES];
        self.take(&mut found, "its end")?;
        if found[..] != end(self.blocks, &self.sum)[..] {
            return damage("its end is damaged, or blocks are missing");
        }
        match self.file.read(&mut [0; 1])? {
            0 => Ok(()),
            _ => damage("there are bytes behind its end"),
        }
    }

    fn take(&mut self, into: &mut [u8], what: &str) -> Result<(), Fault> {
        match self.file.read_exact(into) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return damage(format!("it ends within {what}"));
            }
            Err(error) => return Err(error.into()),
        }
        self.hash.update(into);
        self.bytes += into.len() as u64;
        Ok(())
    }
}

fn head(partition: PartitionId, at: Position) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend_from_slice(MAGIC);
    head.put_u32_le(partition.0);
    head.put_u64_le(at.term.0);
    head.put_u64_le(at.lsn.0);
    let hash = xxh3_64_with_seed(&head, 0);
    head.put_u64_le(hash);
    head
}

/// A block's number goes into its checksum, so that none can stand in another's place.
fn block_hash(number: u64, rows: u32, block: &[u8]) -> u64 {
    xxh3_64_with_seed(block, number << 32 ^ u64::from(rows))
}

fn end(blocks: u64, sum: &Sum) -> Vec<u8> {
    let mut end = Vec::with_capacity(END_BYTES);
    for number in [blocks, sum.rows, sum.bytes, sum.digest] {
        end.put_u64_le(number);
    }
    let hash = xxh3_64_with_seed(&end, 1);
    end.put_u64_le(hash);
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(64);

    fn at() -> Position {
        Position::new(Term(3), Lsn(77))
    }

    /// Enough rows for several blocks.
    fn written(path: &Path) -> Whole {
        let mut writer = Writer::create(path, P, at()).expect("makes");
        for number in 0..3_000u32 {
            let key = Bytes::copy_from_slice(&number.to_be_bytes());
            let value = Bytes::from(vec![number as u8; 300 + number as usize % 7]);
            writer.add(&key, &value).expect("writes");
        }
        writer.finish().expect("ends")
    }

    fn read(path: &Path) -> Result<Whole, Fault> {
        let mut reader = Reader::open(path)?;
        assert_eq!(reader.is(), (P, at()));
        while reader.block()?.is_some() {}
        Ok(reader.whole())
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f");
        let whole = written(&path);
        assert_eq!((whole.sum.rows, read(&path).expect("sound")), (3_000, whole));
        let empty = dir.path().join("e");
        let none = Writer::create(&empty, P, at()).and_then(Writer::finish).expect("ends");
        assert_eq!((none.sum, read(&empty).expect("sound")), (Sum::default(), none));
        assert!(Writer::create(&path, P, at()).is_err(), "nothing is written over");
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f");
        written(&path);
        let good = std::fs::read(&path).expect("there");
        let ends = [good.len() - 1, good.len() - 20, good.len() - END_BYTES - 1, good.len() - END_BYTES - 4];
        let spots = (0..64).chain((64..good.len()).step_by(49_999)).chain(ends);
        for spot in spots {
            let mut bad = good.clone();
            bad[spot] ^= 0x10;
            std::fs::write(&path, &bad).expect("writes");
            assert!(found(&path), "byte {spot} of {}", good.len());
            std::fs::write(&path, &good[..spot]).expect("writes");
            assert!(found(&path), "cut at {spot} of {}", good.len());
        }
        std::fs::write(&path, [&good[..], b"x"].concat()).expect("writes");
        assert!(found(&path), "a byte more");
    }

    fn found(path: &Path) -> bool {
        let mut reader = match Reader::open(path) {
            Ok(reader) => reader,
            Err(Fault::Damage(_)) => return true,
            Err(Fault::Io(error)) => panic!("{error}"),
        };
        loop {
            match reader.block() {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(Fault::Damage(_)) => return true,
                Err(Fault::Io(error)) => panic!("{error}"),
            }
        }
    }
}
