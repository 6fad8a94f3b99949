//! A stopped node's log, looked at without changing it.
//!
//! Opening a log writes: it cuts a torn end off and begins a new frame. So it is opened over a layer of files
//! that keeps what is written in memory, above what is on the disk.

use crate::failure::{Failure, Status};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::{Lsn, PartitionId};
use wal::{File, Files, Log, LogError, Options, ReadError, Recovered};
use wire::effects::Effects;
use wire::entry::Entry;

/// What verifying a log found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verified {
    /// Bytes of log in use.
    pub bytes: u64,
    /// How often the log was opened, this time not counted.
    pub openings: u32,
    /// Whether its last owner shut it down properly.
    pub clean_shutdown: bool,
    /// Bytes of a torn end, which the next start will cut off. They were never claimed durable.
    pub torn_bytes: u64,
    /// Entries read, each checked.
    pub entries: u64,
    /// One per partition.
    pub partitions: Vec<VerifiedPartition>,
    /// What is damaged, one sentence each.
    pub damage: Vec<String>,
}

/// One partition's part of a log.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VerifiedPartition {
    /// The partition.
    pub partition: u32,
    /// The first LSN that is here.
    pub from: u64,
    /// The last LSN that is here.
    pub to: u64,
    /// The term of the last entry.
    pub term: u64,
    /// Entries that were read and are whole.
    pub entries: u64,
    /// Set if something may be missing.
    pub damaged: Option<String>,
}

/// An entry in one line.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct EntryLine {
    /// Its partition.
    pub partition: u32,
    /// The term in which it was made.
    pub term: u64,
    /// Its LSN.
    pub lsn: u64,
    /// What it is: `rows`, `configuration`.
    pub kind: String,
    /// Its table.
    pub table: u32,
    /// When it was made, milliseconds since 1970.
    pub wall_ms: u64,
    /// The session that asked for it: term and LSN of its opening.
    pub session: Option<(u64, u64)>,
    /// Its number within that session.
    pub seq: u64,
    /// Its length in bytes.
    pub bytes: usize,
    /// Rows that it changed, sessions and marks not counted.
    pub rows: Option<u32>,
}

/// How many bytes of entries are read at once.
const CHUNK: usize = 4 << 20;

/// A log that is only looked at.
pub struct LogView {
    log: Log,
    recovered: Recovered,
}

impl LogView {
    /// Opens the log of a data directory. `log_dir` says where it is if the configuration put it elsewhere.
    pub fn open(data_dir: &Path, log_dir: Option<&Path>) -> Result<LogView, Failure> {
        if !data_dir.is_dir() {
            return Err(Failure::not_found(format!("there is no directory {}", data_dir.display())));
        }
        if in_use(data_dir)? {
            return Err(Failure::refused(format!(
                "{} is in use by a running node; stop it first",
                data_dir.display()
            )));
        }
        let dir = log_dir.map_or_else(|| data_dir.join("log"), Path::to_path_buf);
        if !dir.is_dir() {
            return Err(Failure::not_found(format!(
                "there is no log in {}; if log.dir is set in the node's configuration, name it with --log-dir",
                dir.display()
            )));
        }
        let files = Shadows::of(&dir).map_err(|error| Failure::io(dir.display(), &error))?;
        let opened = Log::open(Arc::new(files), Options::default());
        let (log, recovered) = opened.map_err(|error| match error {
            LogError::Io { .. } => Failure::new(Status::Io, error.to_string()),
            error => Failure::new(Status::Corrupt, format!("{}: {error}", dir.display())),
        })?;
        Ok(LogView { log, recovered })
    }

    /// Reads everything and says what it found.
    pub fn verify(&self) -> Verified {
        let mut damage: Vec<String> = self.recovered.damage.iter().map(|damage| damage.to_string()).collect();
        let mut partitions = Vec::new();
        for (id, found) in &self.recovered.partitions {
            let mut entries = 0;
            let read = self.each(*id, found.base.lsn.next(), found.end.lsn, |entry| {
                entries += 1;
                check_payload(entry)
            });
            let damaged = match (&found.damaged, read) {
                (Some(known), _) => Some(known.to_string()),
                (None, Err(why)) => {
                    damage.push(format!("partition {}: {why}", id.0));
                    Some(why)
                }
                (None, Ok(())) => None,
            };
            partitions.push(VerifiedPartition {
                partition: id.0,
                from: found.base.lsn.0 + 1,
                to: found.end.lsn.0,
                term: found.end.term.0,
                entries,
                damaged,
            });
        }
        if self.recovered.unknown_damaged {
            damage.push("all that the log knew of some partition may be gone".into());
        }
        Verified {
            bytes: self.log.reader().bytes(),
            openings: self.recovered.generation.saturating_sub(1),
            clean_shutdown: self.recovered.clean_shutdown,
            torn_bytes: self.recovered.torn_bytes,
            entries: partitions.iter().map(|partition| partition.entries).sum(),
            partitions,
            damage,
        }
    }

    /// Gives the entries of one partition, or of all, from an LSN on. `line` says whether it wants more. The
    /// error says what is damaged.
    pub fn dump(
        &self,
        only: Option<PartitionId>,
        from: Lsn,
        mut line: impl FnMut(EntryLine) -> bool,
    ) -> Result<(), Failure> {
        if let Some(only) = only.filter(|only| !self.recovered.partitions.contains_key(only)) {
            return Err(Failure::not_found(format!("the log has nothing of partition {}", only.0)));
        }
        for (id, found) in &self.recovered.partitions {
            if only.is_some_and(|only| only != *id) {
                continue;
            }
            let first = from.max(found.base.lsn.next());
            let mut wanted = true;
            let read = self.each(*id, first, found.end.lsn, |entry| {
                wanted = line(describe(entry));
                if wanted { Ok(()) } else { Err(String::new()) }
            });
            if !wanted {
                return Ok(());
            }
            let damaged = |why: String| Failure::new(Status::Corrupt, format!("partition {}: {why}", id.0));
            read.map_err(damaged)?;
        }
        Ok(())
    }

    fn each(
        &self,
        id: PartitionId,
        mut from: Lsn,
        to: Lsn,
        mut take: impl FnMut(&Entry) -> Result<(), String>,
    ) -> Result<(), String> {
        while from <= to {
            let entries = self.log.read(id, from, CHUNK).map_err(|error: ReadError| error.to_string())?;
            let Some(last) = entries.last() else {
                return Err(format!("entries from LSN {from} on are missing"));
            };
            let next = last.lsn().next();
            entries.iter().try_for_each(&mut take)?;
            from = next;
        }
        Ok(())
    }
}

/// True if a process holds the directory's lock.
fn in_use(data_dir: &Path) -> Result<bool, Failure> {
    let path = data_dir.join("LOCK");
    match fs::File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::io(path.display(), &error)),
        Ok(file) => Ok(matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock))),
    }
}

fn check_payload(entry: &Entry) -> Result<(), String> {
    let Some(effects) = entry.effects() else { return Ok(()) };
    let decoded = Effects::decode(effects);
    decoded.map(|_| ()).map_err(|why| format!("the rows of LSN {} cannot be read: {why}", entry.lsn()))
}

/// An entry as people look at it.
pub fn describe(entry: &Entry) -> EntryLine {
    let header = entry.header();
    let effects = entry.effects().and_then(|effects| Effects::decode(effects).ok());
    let session = header.session.0;
    EntryLine {
        partition: header.partition.0,
        term: header.at.term.0,
        lsn: header.at.lsn.0,
        kind: format!("{:?}", header.kind).to_lowercase(),
        table: header.table.0,
        wall_ms: header.wall_ms,
        session: header.session.is_some().then_some((session.term.0, session.lsn.0)),
        seq: header.seq,
        bytes: entry.bytes().len(),
        rows: effects.map(|effects| effects.affected),
    }
}

/// Files of a directory, and above them what was written since, in memory.
struct Shadows {
    files: Mutex<BTreeMap<String, Arc<Shadow>>>,
}

#[derive(Default)]
struct Shadow {
    base: Option<fs::File>,
    above: Mutex<Above>,
}

#[derive(Default)]
struct Above {
    length: u64,
    /// In the order in which they were written.
    writes: Vec<(u64, Vec<u8>)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shadows {
    fn of(dir: &Path) -> io::Result<Shadows> {
        let mut files = BTreeMap::new();
        for item in fs::read_dir(dir)? {
            let item = item?;
            let Ok(name) = item.file_name().into_string() else { continue };
            if item.file_type()?.is_file() {
                let base = fs::File::open(item.path())?;
                let above = Above { length: base.metadata()?.len(), writes: Vec::new() };
                files.insert(name, Arc::new(Shadow { base: Some(base), above: Mutex::new(above) }));
            }
        }
        Ok(Shadows { files: Mutex::new(files) })
    }
}

impl Files for Shadows {
    fn create(&self, name: &str, preallocate: u64) -> io::Result<Arc<dyn File>> {
        let above = Above { length: preallocate, writes: Vec::new() };
        let shadow = Arc::new(Shadow { base: None, above: Mutex::new(above) });
        locked(&self.files).insert(name.to_string(), shadow.clone());
        Ok(shadow)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let found = locked(&self.files).get(name).cloned();
        found.map(|shadow| shadow as Arc<dyn File>).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = locked(&self.files).remove(name);
        removed.map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = locked(&self.files);
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_string(), file);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(locked(&self.files).keys().cloned().collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
}

impl File for Shadow {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut above = locked(&self.above);
        above.length = above.length.max(offset + bytes.len() as u64);
        above.writes.push((offset, bytes.to_vec()));
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let above = locked(&self.above);
        let count = above.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..count];
        buffer.fill(0);
        if let Some(base) = &self.base {
            let mut done = 0;
            while done < count {
                match base.read_at(&mut buffer[done..], offset + done as u64)? {
                    0 => break,
                    more => done += more,
                }
            }
        }
        for (at, bytes) in &above.writes {
            let from = (*at).max(offset);
            let to = (at + bytes.len() as u64).min(offset + count as u64);
            if from < to {
                let source = &bytes[(from - at) as usize..(to - at) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(locked(&self.above).length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Position;
    use types::Term;
    use wal::{RealFiles, Record};
    use wire::entry::{Header, Kind};

    fn write_log(dir: &Path, entries: u64) {
        let files = Arc::new(RealFiles::open(dir.join("log")).expect("makes"));
        let options = Options { segment_bytes: 1 << 20, ..Options::default() };
        let (mut log, _) = Log::open(files, options).expect("opens");
        let mut crc = 0;
        for lsn in 1..=entries {
            let at = Position::new(Term(1), Lsn(lsn));
            let entry = Entry::encode(Header::new(Kind::Noop, PartitionId(64), at, crc), &[7; 100]);
            crc = entry.crc();
            log.append(&[Record::Entry(entry)]).expect("room");
        }
        log.sync().expect("syncs");
        log.shutdown().expect("shuts down");
    }

    fn bytes_of(dir: &Path) -> BTreeMap<String, Vec<u8>> {
        let files = fs::read_dir(dir.join("log")).expect("readable").map(|item| item.expect("readable"));
        files
            .map(|file| {
                (file.file_name().into_string().expect("UTF-8"), fs::read(file.path()).expect("readable"))
            })
            .collect()
    }

    #[test]
    fn looking_changes_nothing_and_sees_everything() {
        let dir = tempfile::tempdir().expect("a directory");
        write_log(dir.path(), 50);
        let before = bytes_of(dir.path());
        let view = LogView::open(dir.path(), None).expect("opens");
        let verified = view.verify();
        assert_eq!((verified.entries, verified.clean_shutdown), (50, true));
        assert_eq!(verified.damage, Vec::<String>::new());
        assert_eq!((verified.partitions[0].from, verified.partitions[0].to), (1, 50));
        let mut lsns = Vec::new();
        let take = |line: EntryLine| {
            lsns.push(line.lsn);
            lsns.len() < 3
        };
        view.dump(Some(PartitionId(64)), Lsn(10), take).expect("reads");
        assert_eq!(lsns, [10, 11, 12]);
        assert_eq!(view.dump(Some(PartitionId(65)), Lsn(1), |_| true).expect_err("none").status, 3);
        assert!(bytes_of(dir.path()) == before, "the log was changed");
    }

    #[test]
    fn damage_in_the_middle_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        write_log(dir.path(), 50);
        let (name, mut bytes) = bytes_of(dir.path()).into_iter().next().expect("a segment");
        let middle = bytes.windows(100).position(|window| window == [7; 100]).expect("an entry") + 50;
        bytes[middle] ^= 1;
        fs::write(dir.path().join("log").join(name), bytes).expect("writable");
        let verified = LogView::open(dir.path(), None).expect("opens").verify();
        assert!(!verified.damage.is_empty());
        assert!(verified.partitions.iter().all(|partition| partition.damaged.is_some()));
    }

    #[test]
    fn a_directory_in_use_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        write_log(dir.path(), 1);
        let lock = fs::File::create(dir.path().join("LOCK")).expect("makes");
        lock.lock().expect("free");
        assert_eq!(LogView::open(dir.path(), None).err().map(|failure| failure.status), Some(5));
        drop(lock);
        assert!(LogView::open(dir.path(), None).is_ok());
        assert_eq!(LogView::open(&dir.path().join("no"), None).err().map(|f| f.status), Some(3));
    }
}
