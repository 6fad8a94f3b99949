//! Entries of a partition that lie in a file of their own, so that the segments which held them can be given
//! back (PR-301): a replica that is damaged and can be given no copy does not keep the log full for others.
//!
//! The segments' row knows such entries as dropped: their file says that they are there. It counts as far as
//! the log itself begins, and only if it has the very entry behind which that is: so it needs no record, and
//! a crash leaves the one or the other. A file `PARTITION-NUMBER.apart` is `UAPART01 | partition u32 |
//! position and checksum before the first entry | those of the last | bytes of the entries u64 | CRC-32C of
//! all that u32`, integers little-endian, a position being term u64 and LSN u64, and then the entries as they
//! were, each with its own checksum.

use crate::error::{LogError, is_for_now, is_full, is_unreadable};
use crate::file::{File, Files};
use crate::index::{Index, SPOT_EVERY};
use crate::log::Log;
use crate::reader::{ReadError, Reader};
use crate::record::{EntryRef, Stored};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use types::{Lsn, PartitionId, Position, Term};
use wire::entry::Entry;

const MAGIC: &[u8; 8] = b"UAPART01";
/// Length of what stands before the entries.
const HEAD: usize = 64;
const SUFFIX: &str = ".apart";
const UNFINISHED: &str = ".apart.new";
/// So many bytes are read from the log, or from a file that is opened, at a time.
const STEP: usize = 1 << 20;

/// A file with entries of one partition, all of which were sound when it was made or opened.
pub(crate) struct ApartFile {
    name: String,
    partition: PartitionId,
    /// Before the first entry.
    base: EntryRef,
    /// The last entry.
    end: EntryRef,
    file: Arc<dyn File>,
    length: u64,
    /// Where some entries begin: the first, and one in every [`SPOT_EVERY`] bytes.
    places: Vec<(Lsn, u64)>,
}

impl fmt::Debug for ApartFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {}", self.name, self.base.at, self.end.at)
    }
}

/// What a partition has in a file of its own.
#[derive(Clone, Debug)]
pub(crate) struct Apart {
    file: Arc<ApartFile>,
    /// The last entry that counts.
    upto: EntryRef,
}

impl Apart {
    /// Before its first entry.
    pub fn base(&self) -> EntryRef {
        self.file.base
    }

    /// The last entry that counts.
    pub fn upto(&self) -> EntryRef {
        self.upto
    }

    /// The same up to this entry, which it has; none if nothing is left.
    pub fn until(self, upto: EntryRef) -> Option<Apart> {
        (upto.lsn() > self.base().lsn()).then_some(Apart { upto, ..self })
    }

    /// Entries from `from` on, as [`Reader::read`] gives them.
    pub fn read(&self, from: Lsn, max_bytes: usize) -> Result<Vec<Entry>, ReadError> {
        let places = &self.file.places;
        let mut at = places.partition_point(|(lsn, _)| *lsn <= from).saturating_sub(1);
        let (mut bytes, mut taken) = (0, Vec::new());
        while let Some((_, begin)) = places.get(at) {
            let end = places.get(at + 1).map_or(self.file.length, |(_, next)| *next);
            let content = read(&*self.file.file, *begin, (end - begin) as usize)
                .map_err(|error| ReadError::Io(error.to_string()))?;
            let entries =
                Entry::all(content).map_err(|error| self.file.corrupt(*begin, &error.to_string()))?;
            for entry in entries.into_iter().filter(|entry| entry.lsn() >= from) {
                bytes += entry.bytes().len();
                if entry.lsn() > self.upto.lsn() || bytes > max_bytes && !taken.is_empty() {
                    return Ok(taken);
                }
                taken.push(entry);
            }
            at += 1;
        }
        Ok(taken)
    }
}

impl ApartFile {
    fn corrupt(&self, offset: u64, what: &str) -> ReadError {
        ReadError::Corrupt { segment: 0, offset, what: format!("{}: {what}", self.name) }
    }

    /// The entry or the base at `lsn`, if it is here.
    fn point(self: &Arc<ApartFile>, lsn: Lsn) -> Option<EntryRef> {
        if let Some(point) = [self.base, self.end].into_iter().find(|point| point.lsn() == lsn) {
            return Some(point);
        }
        let inside = self.base.lsn() < lsn && lsn < self.end.lsn();
        let all = Apart { file: self.clone(), upto: self.end };
        let entry = all.read(lsn, 1).ok().filter(|_| inside)?.into_iter().next()?;
        (entry.lsn() == lsn).then(|| EntryRef::new(entry.at(), entry.crc()))
    }

    /// Reads a file through. None if it is not whole.
    fn open(files: &dyn Files, name: &str) -> io::Result<Option<ApartFile>> {
        let file = files.open(name)?;
        let length = file.size()?;
        let Some((partition, base, end, bytes)) = head(&read(&*file, 0, HEAD)?) else { return Ok(None) };
        if HEAD as u64 + bytes > length {
            return Ok(None);
        }
        let length = HEAD as u64 + bytes;
        let mut found =
            ApartFile { name: name.to_owned(), partition, base, end: base, file, length, places: Vec::new() };
        let mut at = HEAD as u64;
        while at < length {
            let window = (length - at).min(STEP as u64) as usize;
            let mut content = read(&*found.file, at, window)?;
            let needed = Entry::length(&content).unwrap_or(0);
            if needed > content.len() {
                content = read(&*found.file, at, needed.min((length - at) as usize))?;
            }
            let before = content.len();
            while !content.is_empty() {
                let place = at + (before - content.len()) as u64;
                let Ok(entry) = Entry::take(&mut content) else { break };
                if !found.note(&entry, place) {
                    return Ok(None);
                }
            }
            if content.len() == before {
                return Ok(None);
            }
            at += (before - content.len()) as u64;
        }
        Ok((found.end == end).then_some(found))
    }

    /// The next entry lies at `place`. False if it does not follow.
    fn note(&mut self, entry: &Entry, place: u64) -> bool {
        let follows = entry.header().partition == self.partition
            && entry.lsn() == self.end.lsn().next()
            && entry.header().prev_crc == self.end.crc;
        self.end = EntryRef::new(entry.at(), entry.crc());
        if self.places.last().is_none_or(|(_, last)| place - last >= SPOT_EVERY) {
            self.places.push((entry.lsn(), place));
        }
        follows
    }
}

fn name_of(partition: PartitionId, number: u32) -> String {
    format!("{:08x}-{number:08x}", partition.0)
}

/// The number of the file of this name, if it has one.
fn number_of(name: &str) -> Option<u32> {
    let (_, number) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    u32::from_str_radix(number, 16).ok()
}

fn read(file: &dyn File, at: u64, length: usize) -> io::Result<Bytes> {
    let mut buffer = vec![0; length];
    let read = file.read_at(at, &mut buffer)?;
    buffer.truncate(read);
    Ok(buffer.into())
}

fn encode_head(partition: PartitionId, base: EntryRef, end: EntryRef, bytes: u64) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&partition.0.to_le_bytes());
    for point in [base, end] {
        out.extend_from_slice(&point.at.term.0.to_le_bytes());
        out.extend_from_slice(&point.at.lsn.0.to_le_bytes());
        out.extend_from_slice(&point.crc.to_le_bytes());
    }
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    assert_eq!(out.len(), HEAD, "a head has one length");
    out
}

/// Partition, base, end and bytes of entries. None if it is no head.
fn head(bytes: &[u8]) -> Option<(PartitionId, EntryRef, EntryRef, u64)> {
    let bytes: &[u8; HEAD] = bytes.try_into().ok()?;
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let point =
        |at: usize| EntryRef::new(Position::new(Term(u64_at(at)), Lsn(u64_at(at + 8))), u32_at(at + 16));
    let whole = bytes.starts_with(MAGIC) && u32_at(HEAD - 4) == crc32c::crc32c(&bytes[..HEAD - 4]);
    whole.then(|| (PartitionId(u32_at(8)), point(12), point(32), u64_at(52)))
}

/// An order to write a partition's entries to a file of their own, to be carried out on any thread.
pub struct ApartOrder {
    reader: Reader,
    files: Arc<dyn Files>,
    partition: PartitionId,
    number: u32,
    base: EntryRef,
    end: EntryRef,
}

/// The outcome of an [`ApartOrder`].
pub struct ApartMade {
    partition: PartitionId,
    base: EntryRef,
    end: EntryRef,
    made: Result<ApartFile, LogError>,
}

impl ApartOrder {
    /// Writes the file. To be handed to [`Log::take_apart`], also if it failed.
    pub fn make(self) -> ApartMade {
        let stem = name_of(self.partition, self.number);
        let unfinished = format!("{stem}{UNFINISHED}");
        let made = self.write(&unfinished, &format!("{stem}{SUFFIX}"));
        if made.is_err() {
            // The room that it took is worth more than a complaint about its removal.
            let _ = self.files.remove(&unfinished);
        }
        ApartMade { partition: self.partition, base: self.base, end: self.end, made }
    }

    fn write(&self, unfinished: &str, name: &str) -> Result<ApartFile, LogError> {
        let failed = |error: io::Error| match error {
            error if is_full(&error) => LogError::Full { used: 0, limit: 0 },
            error if is_for_now(&error) => LogError::ForNow(Arc::new(error)),
            error => LogError::io("entries cannot be put apart", error),
        };
        let file = self.files.create(unfinished, HEAD as u64).map_err(failed)?;
        let mut made = ApartFile {
            name: name.to_owned(),
            partition: self.partition,
            base: self.base,
            end: self.base,
            file,
            length: HEAD as u64,
            places: Vec::new(),
        };
        while made.end.lsn() < self.end.lsn() {
            let mut content = Vec::new();
            for entry in self.reader.read(self.partition, made.end.lsn().next(), STEP)? {
                if entry.lsn() > self.end.lsn() || !made.note(&entry, made.length + content.len() as u64) {
                    break;
                }
                content.extend_from_slice(entry.bytes());
            }
            made.file.write_at(made.length, &content).map_err(failed)?;
            made.length += content.len() as u64;
            if content.is_empty() {
                break;
            }
        }
        if made.end != self.end {
            return Err(LogError::io("the log changed", io::ErrorKind::Interrupted.into()));
        }
        let head = encode_head(self.partition, self.base, self.end, made.length - HEAD as u64);
        let written = made.file.write_at(0, &head).and_then(|()| made.file.sync_data());
        let written = written.and_then(|()| self.files.rename(unfinished, name));
        written.and_then(|()| self.files.sync_dir()).map_err(failed)?;
        Ok(made)
    }
}

/// The files of this kind that a log has.
#[derive(Default)]
pub(crate) struct ApartFiles {
    /// The names of those that were in use, with what says whether they still are.
    known: Vec<(String, Weak<ApartFile>)>,
    /// Of a partition of which the log has lost more: they stay for those who want to look.
    unused: Vec<ApartFile>,
    next: u32,
    /// Some are being made.
    underway: BTreeSet<PartitionId>,
}

impl ApartFiles {
    /// Bytes that they take.
    pub fn bytes(&self) -> u64 {
        let used = self.known.iter().filter_map(|(_, file)| file.upgrade()).map(|file| file.length);
        used.chain(self.unused.iter().map(|file| file.length)).sum()
    }

    /// Removes the files that nobody needs any more. What was done instead is synced.
    pub fn sweep(&mut self, files: &dyn Files) -> io::Result<()> {
        let gone: Vec<String> =
            self.known.extract_if(.., |(_, file)| file.strong_count() == 0).map(|(name, _)| name).collect();
        for name in &gone {
            files.remove(name)?;
        }
        if gone.is_empty() { Ok(()) } else { files.sync_dir() }
    }

    /// Finds the files that go on before what the log has, once that is known.
    pub fn attach(files: &dyn Files, index: &mut Index) -> Result<ApartFiles, LogError> {
        let failed = |error| LogError::io("the log's directory cannot be read", error);
        let mut all = ApartFiles::default();
        let mut found = Vec::new();
        for name in files.list().map_err(failed)? {
            if name.ends_with(UNFINISHED) {
                files.remove(&name).map_err(failed)?;
            } else if let Some(number) = number_of(&name) {
                all.next = all.next.max(number + 1);
                found.push((number, name));
            }
        }
        found.sort();
        for (_, name) in found.into_iter().rev() {
            match ApartFile::open(files, &name) {
                Ok(Some(file)) => all.attach_one(files, index, file).map_err(failed)?,
                // What it had is lost, and it stays for those who want to look.
                Ok(None) => {}
                Err(error) if is_unreadable(&error) => {}
                Err(error) => return Err(LogError::io("entries that were put apart cannot be read", error)),
            }
        }
        Ok(all)
    }

    fn attach_one(&mut self, files: &dyn Files, index: &mut Index, file: ApartFile) -> io::Result<()> {
        let file = Arc::new(file);
        let Some(known) = index.partitions.get_mut(&file.partition).filter(|known| known.apart.is_none())
        else {
            return files.remove(&file.name);
        };
        let at = known.base;
        if known.damaged && at.lsn() < file.end.lsn() {
            self.unused.extend(Arc::into_inner(file));
        } else if at.lsn() > file.base.lsn() && file.point(at.lsn()) == Some(at) {
            self.known.push((file.name.clone(), Arc::downgrade(&file)));
            known.apart = Some(Apart { file, upto: at });
        } else {
            files.remove(&file.name)?;
        }
        Ok(())
    }
}

impl Log {
    /// Orders that put the entries of these partitions apart, if that gives more of the log back than it
    /// takes. None while such orders are carried out.
    pub fn orders_apart(&mut self, partitions: &BTreeSet<PartitionId>) -> Vec<ApartOrder> {
        let rules = self.options.rules;
        if !self.apart.underway.is_empty() || self.poisoned.is_some() || !rules.what_is_held_back_is_moved() {
            return Vec::new();
        }
        let index = self.reader.shared.look();
        let current = self.tail.segment.number;
        let needed = |id: &PartitionId, last: &Lsn| !partitions.contains(id) && index.needs(*id, *last);
        let freed = index
            .segments
            .iter()
            .take_while(|(number, used)| {
                **number != current && !used.last.iter().any(|(id, last)| needed(id, last))
            })
            .map(|(_, used)| used.segment.length);
        let freed: u64 = freed.sum();
        let held = |id: &&PartitionId| {
            index.partitions.get(id).is_some_and(|known| known.base.lsn() < known.end.lsn())
        };
        let held: Vec<PartitionId> = partitions.iter().filter(held).copied().collect();
        let cost: u64 = held.iter().map(|id| index.bytes_since(*id, Lsn::ZERO) + HEAD as u64).sum();
        if freed <= cost {
            return Vec::new();
        }
        let mut orders = Vec::new();
        for partition in held {
            let known = &index.partitions[&partition];
            let (reader, files) = (self.reader.clone(), self.files.clone());
            let (base, end) = (known.first(), known.end);
            orders.push(ApartOrder { reader, files, partition, number: self.apart.next, base, end });
            self.apart.next += 1;
            self.apart.underway.insert(partition);
        }
        orders
    }

    /// Takes the outcome of an order: from here on the segments need not have those entries. An error is the
    /// end of the log; a failure to make the file changes nothing.
    pub fn take_apart(&mut self, outcome: ApartMade) -> Result<(), LogError> {
        let ApartMade { partition, base, end, made } = outcome;
        self.apart.underway.remove(&partition);
        let Ok(file) = made else { return Ok(()) };
        let file = Arc::new(file);
        self.apart.known.push((file.name.clone(), Arc::downgrade(&file)));
        let same = {
            let index = self.reader.shared.look();
            let known = index.partitions.get(&partition);
            known.is_some_and(|known| known.first() == base && known.end == end)
        };
        if !same {
            return Ok(());
        }
        // What is to be dropped is on the disk as the file says it.
        self.flush()?;
        match self.write(&[Stored::Trim(partition, end)], true) {
            Ok(_) => {}
            Err(error @ LogError::Poisoned { .. }) => return Err(error),
            Err(_) => return Ok(()),
        }
        {
            let mut index = self.reader.shared.change();
            index.raise_base(partition, end);
            index.partition(partition).apart = Some(Apart { file, upto: end });
        }
        self.flush()?;
        self.reclaim().map(drop)
    }
}
