//! Rows that transactions have written and that memory has no room for: in a file of the gateway's node that
//! has no name, so that nothing is left of it however the process ends.
//!
//! The file is one of SQLite's, without a journal: a record by table and key. Each record has a checksum
//! (CRC-32C, of table, key and content), and how many records a table has, with the sum of their checksums,
//! is kept in memory. So what is read back whole is what was written, or the transaction fails (PR-495).
//!
//! All functions that touch the file block. On the gateway's thread they are called by way of
//! `aside` of the buffer.

use super::{After, Arbiter, Edit};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use pg::Failure;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::{Lsn, Position, TableId, Term};

/// What a transaction keeps in memory before it spills, in bytes, if nothing else is set.
pub const SPILL_FROM: usize = 32 << 20;
/// What all transactions of a node have spilled at most, in bytes, if nothing else is set.
pub const NODE_SPILL_BYTES: u64 = 16 << 30;
/// A transaction alone has at most this part of it.
const SHARE: u64 = 4;
/// What the names of the files begin with, as long as they have one.
const PREFIX: &str = "sql-spill-";
/// What a record takes in the file beside its key and content, in bytes, about.
const RECORD_BYTES: u64 = 24;
/// Memory for pages of one file, in KiB.
const CACHE_KIB: i64 = 4 * 1024;
/// Records that are read at once.
const PAGE_ROWS: usize = 512;
/// Bytes of them behind which no more are read at once.
const PAGE_BYTES: usize = 1 << 20;

/// Where transactions of a node spill, and how much.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpillSettings {
    /// The directory of the files. It must be there.
    pub directory: PathBuf,
    /// What a transaction keeps in memory before it spills, in bytes.
    pub threshold: usize,
    /// What all transactions of the node have in files at most, in bytes.
    pub limit: u64,
}

impl SpillSettings {
    /// The defaults, in this directory.
    pub fn within(directory: PathBuf) -> SpillSettings {
        SpillSettings { directory, threshold: SPILL_FROM, limit: NODE_SPILL_BYTES }
    }

    /// Removes files that have their names still: of a process that ended right after it had made them. Only
    /// whoever has the directory for itself may call it, before anything is spilled. It blocks.
    pub fn remove_files(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// What one transaction has in its file at most, in bytes.
    pub fn share(&self) -> u64 {
        self.limit / SHARE
    }
}

/// What transactions of a node have spilled.
#[derive(Debug, Default)]
pub struct Spilling {
    settings: Option<SpillSettings>,
    used: Mutex<u64>,
    /// How often rows were moved into a file.
    times: AtomicU64,
    /// The most bytes that one transaction has kept in memory.
    most_kept: AtomicUsize,
}

/// What is known of the node's spilling, for tests and whoever looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpillCounters {
    /// Bytes in files now.
    pub used: u64,
    /// How often rows were moved into a file.
    pub times: u64,
    /// The most bytes that one transaction has kept in memory.
    pub most_kept: usize,
}

impl Spilling {
    /// With these settings; `None`: nothing is ever spilled.
    pub fn new(settings: Option<SpillSettings>) -> Spilling {
        Spilling { settings, ..Spilling::default() }
    }

    /// The settings, if there is somewhere to spill to.
    pub fn settings(&self) -> Option<&SpillSettings> {
        self.settings.as_ref()
    }

    /// A transaction keeps so many bytes in memory.
    pub fn note_kept(&self, bytes: usize) {
        self.most_kept.fetch_max(bytes, Ordering::Relaxed);
    }

    /// What was counted until now.
    pub fn counters(&self) -> SpillCounters {
        SpillCounters {
            used: *locked(&self.used),
            times: self.times.load(Ordering::Relaxed),
            most_kept: self.most_kept.load(Ordering::Relaxed),
        }
    }

    /// A transaction that has `own` bytes in its file has so many more. The error: that is more than it may
    /// have, or than there are for all.
    fn reserve(&self, own: u64, bytes: u64) -> Result<(), Failure> {
        let Some(settings) = &self.settings else { return Err(full("this node has no file for it")) };
        if own + bytes > settings.share() {
            return Err(full("the transaction has all that one may have in files of its node"));
        }
        let mut used = locked(&self.used);
        if *used + bytes > settings.limit {
            return Err(full("large transactions of this node have all that they may have in files"));
        }
        *used += bytes;
        Ok(())
    }

    fn release(&self, bytes: u64) {
        *locked(&self.used) -= bytes;
    }
}

fn locked<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error where there is no room for what a transaction writes (SQLSTATE 53100).
fn full(why: &str) -> Failure {
    let message = format!("a large transaction has no room on the disk: {why}");
    Failure::new("53100", message).hint("nothing was changed; commit more often")
}

/// The error where a file cannot be written, or does not give back what was written (SQLSTATE 58030).
pub fn unreadable(why: &str) -> Failure {
    let message = format!("rows that a large transaction has set aside in a file are lost: {why}");
    Failure::new("58030", message).hint("nothing was changed; do the transaction again")
}

pub(super) fn of_io(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => full("the disk is full"),
        _ => unreadable(&error.to_string()),
    }
}

pub(super) fn of_sqlite(error: &rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => full("the disk is full"),
        _ => unreadable(&error.to_string()),
    }
}

/// How many records there are, and the sum of their checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Totals {
    rows: usize,
    sum: u64,
}

impl Totals {
    fn add(&mut self, checksum: u32) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(u64::from(checksum));
    }

    fn remove(&mut self, checksum: u32) {
        self.rows -= 1;
        self.sum = self.sum.wrapping_sub(u64::from(checksum));
    }
}

/// The file.
#[derive(Debug)]
struct File {
    /// There is one until the file is dropped.
    connection: Option<Connection>,
    totals: BTreeMap<TableId, Totals>,
    /// What it takes, as it is counted.
    bytes: u64,
    /// A write has failed: nothing of it counts any more.
    broken: bool,
}

/// What one transaction has spilled. Dropped, it gives its room back, and the file is gone.
#[derive(Debug)]
pub struct Store {
    spilling: Arc<Spilling>,
    file: Mutex<File>,
}

impl Store {
    /// An empty one. It blocks.
    pub fn open(spilling: &Arc<Spilling>) -> Result<Store, Failure> {
        let settings = spilling.settings().ok_or_else(|| full("this node has no file for it"))?;
        let named = tempfile::Builder::new().prefix(PREFIX).tempfile_in(&settings.directory);
        let named = named.map_err(|error| of_io(&error))?;
        let connection = opened(&named).map_err(|error| of_sqlite(&error))?;
        // It is used without a name from here on.
        named.close().map_err(|error| of_io(&error))?;
        let file = File { connection: Some(connection), totals: BTreeMap::new(), bytes: 0, broken: false };
        Ok(Store { spilling: spilling.clone(), file: Mutex::new(file) })
    }

    /// Takes edits in, in place of those with the same keys. It blocks. After an error nothing can be read.
    pub fn put(&mut self, edits: &BTreeMap<TableId, BTreeMap<Bytes, Edit>>) -> Result<(), Failure> {
        let spilling = &self.spilling;
        let file = self.file.get_mut().unwrap_or_else(PoisonError::into_inner);
        let all = edits.values().flat_map(BTreeMap::values);
        let more = all.map(|edit| room_of(edit.key.len(), encode(edit).len())).sum();
        spilling.reserve(file.bytes, more)?;
        file.bytes += more;
        let replaced = file.put(edits).inspect_err(|_| file.broken = true)?;
        file.bytes -= replaced;
        spilling.release(replaced);
        spilling.times.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The edits with these keys that are there. It blocks.
    pub fn get(&self, table: TableId, keys: &[Bytes]) -> Result<Vec<Option<Edit>>, Failure> {
        let file = locked(&self.file);
        keys.iter().map(|key| file.get(table, key)).collect()
    }

    /// How many there are of each table.
    pub fn rows(&self) -> BTreeMap<TableId, usize> {
        locked(&self.file).totals.iter().map(|(table, totals)| (*table, totals.rows)).collect()
    }

    /// What SQLite does with the file besides, for tests of damage: the rows changed.
    #[cfg(test)]
    pub(super) fn execute(&self, statement: &str) -> usize {
        locked(&self.file).connection().execute(statement, []).expect("a good statement")
    }

    /// The edits of a range of a table, in the order of keys, read page by page. An empty `to`: to the
    /// table's end. One that goes from end to end fails if an edit is missing. It blocks.
    pub fn range(&self, table: TableId, (from, to): (Bytes, Bytes)) -> StoreIter<'_> {
        let all = (from.is_empty() && to.is_empty()).then(Totals::default);
        StoreIter { store: self, table, from: Some(from), to, page: Vec::new().into_iter(), all }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let file = self.file.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.spilling.release(file.bytes);
        let connection = file.connection.take();
        // To close it is to give back all of its blocks, which takes a while.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || drop(connection));
        }
    }
}

fn opened(named: &tempfile::NamedTempFile) -> rusqlite::Result<Connection> {
    let connection = Connection::open(named.path())?;
    for (name, value) in [("journal_mode", "OFF"), ("synchronous", "OFF"), ("locking_mode", "EXCLUSIVE")] {
        connection.pragma_update(None, name, value)?;
    }
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.execute_batch(
        "CREATE TABLE edits (of INTEGER, key BLOB, edit BLOB, crc INTEGER, PRIMARY KEY (of, key)) WITHOUT ROWID",
    )?;
    Ok(connection)
}

impl File {
    fn whole(&self) -> Result<(), Failure> {
        if self.broken { Err(unreadable("a write has failed")) } else { Ok(()) }
    }

    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("it is there until the file is dropped")
    }

    /// The room that is free again.
    fn put(&mut self, edits: &BTreeMap<TableId, BTreeMap<Bytes, Edit>>) -> Result<u64, Failure> {
        self.whole()?;
        let done = self.write(edits);
        done.map_err(|error| of_sqlite(&error))
    }

    fn write(&mut self, edits: &BTreeMap<TableId, BTreeMap<Bytes, Edit>>) -> rusqlite::Result<u64> {
        let connection = self.connection.as_ref().expect("it is there until the file is dropped");
        let transaction = connection.unchecked_transaction()?;
        let mut replaced = 0;
        {
            let mut find =
                transaction.prepare_cached("SELECT crc, length(edit) FROM edits WHERE of = ? AND key = ?")?;
            let mut drop = transaction.prepare_cached("DELETE FROM edits WHERE of = ? AND key = ?")?;
            let mut write = transaction.prepare_cached("REPLACE INTO edits VALUES (?, ?, ?, ?)")?;
            for (table, edit) in edits.iter().flat_map(|(id, all)| all.values().map(move |one| (*id, one))) {
                let (key, totals) = (&edit.key[..], self.totals.entry(table).or_default());
                let found = find.query_row(params![table.0, key], |row| Ok((row.get(0)?, row.get(1)?)));
                let found: Option<(u32, u32)> = found.optional()?;
                if let Some((checksum, length)) = found {
                    totals.remove(checksum);
                    replaced += room_of(key.len(), length as usize);
                }
                let encoded = encode(edit);
                if edit.is_nothing() {
                    // Inserted and removed: nothing is left of it.
                    replaced += room_of(key.len(), encoded.len());
                    if found.is_some() {
                        drop.execute(params![table.0, key])?;
                    }
                    continue;
                }
                let checksum = checksum(table, key, &encoded);
                totals.add(checksum);
                write.execute(params![table.0, key, &encoded[..], checksum])?;
            }
        }
        transaction.commit()?;
        Ok(replaced)
    }

    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Edit>, Failure> {
        self.whole()?;
        let one = || {
            let mut found =
                self.connection().prepare_cached("SELECT edit, crc FROM edits WHERE of = ? AND key = ?")?;
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            found.query_row(params![table.0, key], row).optional()
        };
        let found: Option<(Vec<u8>, u32)> = one().map_err(|error| of_sqlite(&error))?;
        let edit = found.map(|(edit, checksum)| decode(table, key.to_vec(), edit, checksum));
        Ok(edit.transpose()?.map(|(edit, _)| edit))
    }

    /// Some edits with their checksums from this key on. True: there may be more.
    fn page(&self, table: TableId, from: &[u8], to: &[u8]) -> Result<(Vec<(Edit, u32)>, bool), Failure> {
        self.whole()?;
        let read = || {
            let mut edits = Vec::new();
            let mut select = self.connection().prepare_cached(match to.is_empty() {
                true => "SELECT key, edit, crc FROM edits WHERE of = ? AND key >= ? AND ? = x'' ORDER BY key LIMIT ?",
                false => "SELECT key, edit, crc FROM edits WHERE of = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?",
            })?;
            let mut rows = select.query(params![table.0, from, to, PAGE_ROWS as i64])?;
            let (mut count, mut bytes) = (0, 0);
            while let Some(row) = rows.next()? {
                let (key, edit, checksum): (Vec<u8>, Vec<u8>, u32) = (row.get(0)?, row.get(1)?, row.get(2)?);
                (count, bytes) = (count + 1, bytes + key.len() + edit.len());
                edits.push(decode(table, key, edit, checksum));
                if bytes >= PAGE_BYTES {
                    return Ok((edits, true));
                }
            }
            Ok((edits, count == PAGE_ROWS))
        };
        let (edits, more) = read().map_err(|error: rusqlite::Error| of_sqlite(&error))?;
        Ok((edits.into_iter().collect::<Result<_, _>>()?, more))
    }
}

/// Edits of a range: see [`Store::range`].
pub struct StoreIter<'a> {
    store: &'a Store,
    table: TableId,
    /// Where the next page begins.
    from: Option<Bytes>,
    to: Bytes,
    page: std::vec::IntoIter<Edit>,
    /// What was read, if all is.
    all: Option<Totals>,
}

impl StoreIter<'_> {
    fn turn(&mut self, from: &[u8]) -> Result<(), Failure> {
        let file = locked(&self.store.file);
        let (edits, more) = file.page(self.table, from, &self.to)?;
        if let Some(all) = &mut self.all {
            edits.iter().for_each(|(_, checksum)| all.add(*checksum));
            let expected = file.totals.get(&self.table).copied().unwrap_or_default();
            if !more && *all != expected {
                return Err(unreadable(&format!("{} of {} records are there", all.rows, expected.rows)));
            }
        }
        let next = edits.last().map(|(last, _)| Bytes::from([&last.key, &[0u8][..]].concat()));
        self.from = next.filter(|_| more);
        self.page = edits.into_iter().map(|(edit, _)| edit).collect::<Vec<_>>().into_iter();
        Ok(())
    }
}

impl Iterator for StoreIter<'_> {
    type Item = Result<Edit, Failure>;

    fn next(&mut self) -> Option<Result<Edit, Failure>> {
        loop {
            if let Some(edit) = self.page.next() {
                return Some(Ok(edit));
            }
            let from = self.from.take()?;
            if let Err(why) = self.turn(&from) {
                return Some(Err(why));
            }
        }
    }
}

fn room_of(key: usize, content: usize) -> u64 {
    (key + content) as u64 + RECORD_BYTES
}

fn checksum(table: TableId, key: &[u8], content: &[u8]) -> u32 {
    let of_table = crc32c::crc32c(&table.0.to_le_bytes());
    let of_key = crc32c::crc32c_append(crc32c::crc32c_append(of_table, &key.len().to_le_bytes()), key);
    crc32c::crc32c_append(of_key, content)
}

/// An edit without its key, little-endian: existed u8 | after u8 | arbiter u8 | its number u32 | has a state
/// u8 | term u64 | LSN u64 | row.
fn encode(edit: &Edit) -> BytesMut {
    let (after, row) = match &edit.after {
        After::Row(row) => (0, &row[..]),
        After::Gone => (1, &[][..]),
        After::Same => (2, &[][..]),
    };
    let (arbiter, number) = match edit.arbiter {
        Arbiter::None => (0, 0),
        Arbiter::Key => (1, 0),
        Arbiter::Unique(number) => (2, number),
        Arbiter::Any => (3, 0),
    };
    let since = edit.since.unwrap_or(Position::ZERO);
    let mut out = BytesMut::with_capacity(FIXED_BYTES + row.len());
    out.put_u8(u8::from(edit.existed));
    out.put_u8(after);
    out.put_u8(arbiter);
    out.put_u32_le(number);
    out.put_u8(u8::from(edit.since.is_some()));
    out.put_u64_le(since.term.0);
    out.put_u64_le(since.lsn.0);
    out.put_slice(row);
    out
}

/// What stands before the row.
const FIXED_BYTES: usize = 24;

/// The edit and its checksum, which must be that of what was read.
fn decode(table: TableId, key: Vec<u8>, content: Vec<u8>, known: u32) -> Result<(Edit, u32), Failure> {
    if checksum(table, &key, &content) != known {
        return Err(unreadable("the checksum of a record is wrong"));
    }
    let mut content = Bytes::from(content);
    if content.len() < FIXED_BYTES {
        return Err(unreadable("a record is too short"));
    }
    let (existed, after, arbiter) = (content.get_u8() == 1, content.get_u8(), content.get_u8());
    let (number, seen) = (content.get_u32_le(), content.get_u8() == 1);
    let since = Position::new(Term(content.get_u64_le()), Lsn(content.get_u64_le()));
    let edit = Edit {
        key: Bytes::from(key),
        existed,
        after: match after {
            0 => After::Row(content),
            1 => After::Gone,
            _ => After::Same,
        },
        since: seen.then_some(since),
        arbiter: match arbiter {
            1 => Arbiter::Key,
            2 => Arbiter::Unique(number),
            3 => Arbiter::Any,
            _ => Arbiter::None,
        },
    };
    Ok((edit, known))
}
