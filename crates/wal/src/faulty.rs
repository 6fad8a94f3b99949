//! A file layer in memory that fails, fills up, tears and forgets, for tests.
//!
//! What is written is in the *cache*; [`File::sync_data`] and [`Files::sync_dir`] bring it to the *disk*.
//! [`MemFiles::crash`] is a power loss: of what was not synced, a part chosen by a seed survives, in units of
//! [`SECTOR`] bytes.

use crate::file::{File, Files};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// The unit in which an unsynced write can survive or not.
pub const SECTOR: u64 = 64;

/// What is to go wrong. Counts are of calls from now on: 0 is the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// This write, and it alone, fails after having written a part.
    pub fail_write: Option<u64>,
    /// This sync, and it alone, fails: what it should have synced is forgotten as if it had been, as real systems do.
    pub fail_sync: Option<u64>,
    /// All files together may take so many bytes.
    pub capacity: Option<u64>,
    /// No file can be created or opened (EMFILE).
    pub no_files: bool,
}

#[derive(Clone, Default)]
struct Contents {
    cache: Vec<u8>,
    disk: Vec<u8>,
    /// Ranges of the cache that the disk does not have, in the order they were written.
    unsynced: Vec<(u64, u64)>,
}

#[derive(Clone)]
enum NameChange {
    Link(String, u64),
    Unlink(String),
    Rename(String, String),
}

#[derive(Clone, Default)]
struct Disk {
    files: BTreeMap<u64, Contents>,
    names: BTreeMap<String, u64>,
    disk_names: BTreeMap<String, u64>,
    changes: Vec<NameChange>,
    next: u64,
    faults: Faults,
    writes: u64,
    syncs: u64,
}

/// Files in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemFiles {
    disk: Arc<Mutex<Disk>>,
}

/// A small generator of numbers, so that a seed says everything about a crash.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

impl MemFiles {
    /// An empty disk.
    pub fn new() -> MemFiles {
        MemFiles::default()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("a test panicked while it held the disk")
    }

    /// Sets what is to go wrong.
    pub fn set_faults(&self, faults: Faults) {
        let mut disk = self.disk();
        disk.faults = faults;
        disk.writes = 0;
        disk.syncs = 0;
    }

    /// The disk after a power loss. `None`: nothing that was not synced survives. Open handles go on with the old disk.
    pub fn crash(&self, seed: Option<u64>) -> MemFiles {
        let mut disk = self.disk().clone();
        let mut random = Random(seed.unwrap_or_default());
        let kept = seed.map_or(0, |_| random.below(disk.changes.len() as u64 + 1) as usize);
        let changes = std::mem::take(&mut disk.changes);
        changes[..kept].iter().for_each(|change| change.apply(&mut disk.disk_names));
        for contents in disk.files.values_mut() {
            if seed.is_some() {
                contents.survive(&mut random);
            }
            contents.unsynced.clear();
            contents.cache = contents.disk.clone();
        }
        disk.names = disk.disk_names.clone();
        disk.faults = Faults::default();
        MemFiles { disk: Arc::new(Mutex::new(disk)) }
    }

    /// A copy of the disk, cache and all.
    pub fn copy(&self) -> MemFiles {
        MemFiles { disk: Arc::new(Mutex::new(self.disk().clone())) }
    }

    /// Changes bits of one byte, in the cache and on the disk.
    pub fn flip(&self, name: &str, at: u64, bits: u8) {
        self.edit(name, |bytes| {
            if let Some(byte) = bytes.get_mut(at as usize) {
                *byte ^= bits;
            }
        });
    }

    /// Makes a file shorter, in the cache and on the disk.
    pub fn shorten(&self, name: &str, length: u64) {
        self.edit(name, |bytes| bytes.truncate(length as usize));
    }

    fn edit(&self, name: &str, change: impl Fn(&mut Vec<u8>)) {
        let mut disk = self.disk();
        let id = disk.names[name];
        let contents = disk.files.get_mut(&id).expect("names have files");
        change(&mut contents.cache);
        change(&mut contents.disk);
        let length = contents.cache.len() as u64;
        contents.unsynced.retain_mut(|(start, end)| {
            *end = (*end).min(length);
            start < end
        });
    }

    /// What a file holds.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        let disk = self.disk();
        disk.files[&disk.names[name]].cache.clone()
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Link(name, id) => {
                names.insert(name.clone(), *id);
            }
            NameChange::Unlink(name) => {
                names.remove(name);
            }
            NameChange::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
        }
    }
}

impl Contents {
    /// Brings some sectors of what was not synced to the disk.
    fn survive(&mut self, random: &mut Random) {
        for (start, end) in std::mem::take(&mut self.unsynced) {
            let mode = random.below(4);
            let until = random.below(end - start + 1) + start;
            let mut at = start;
            while at < end {
                let next = (at / SECTOR + 1) * SECTOR;
                let survives = match mode {
                    0 => false,
                    1 => true,
                    2 => at < until,
                    _ => random.below(2) == 0,
                };
                if survives {
                    self.bring(at, next.min(end));
                }
                at = next;
            }
        }
    }

    fn bring(&mut self, start: u64, end: u64) {
        let (start, end) = (start as usize, end as usize);
        if self.disk.len() < end {
            self.disk.resize(end, 0);
        }
        self.disk[start..end].copy_from_slice(&self.cache[start..end]);
    }
}

impl Disk {
    fn may_open(&self) -> io::Result<()> {
        if self.faults.no_files { Err(io::Error::from_raw_os_error(24)) } else { Ok(()) }
    }

    fn used(&self) -> u64 {
        self.names.values().map(|id| self.files[id].cache.len() as u64).sum()
    }

    fn write(&mut self, id: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let count = self.writes;
        self.writes += 1;
        let used = self.used();
        let contents = self.files.get(&id).expect("handles have files");
        let grown = (offset + bytes.len() as u64).saturating_sub(contents.cache.len() as u64);
        let (length, error) = if self.faults.fail_write == Some(count) {
            (bytes.len() / 2, Some(io::Error::other("a planted failure to write")))
        } else if self.faults.capacity.is_some_and(|capacity| used + grown > capacity) {
            (bytes.len() / 2, Some(io::Error::from(io::ErrorKind::StorageFull)))
        } else {
            (bytes.len(), None)
        };
        let end = offset as usize + length;
        let contents = self.files.get_mut(&id).expect("handles have files");
        if contents.cache.len() < end {
            contents.cache.resize(end, 0);
        }
        contents.cache[offset as usize..end].copy_from_slice(&bytes[..length]);
        contents.unsynced.push((offset, end as u64));
        error.map_or(Ok(()), Err)
    }

    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    fn find(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl Files for MemFiles {
    fn create(&self, name: &str, preallocate: u64) -> io::Result<Arc<dyn File>> {
        let id = {
            let mut disk = self.disk();
            disk.may_open()?;
            let id = disk.next;
            disk.next += 1;
            disk.files.insert(id, Contents::default());
            disk.change(NameChange::Link(name.to_owned(), id));
            id
        };
        let file = MemFile { files: self.clone(), id };
        crate::file::fill_with_zeros(&file, preallocate)?;
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let disk = self.disk();
        disk.may_open()?;
        let id = disk.find(name)?;
        Ok(Arc::new(MemFile { files: self.clone(), id }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.find(name)?;
        disk.change(NameChange::Unlink(name.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.find(from)?;
        disk.change(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.disk().names.keys().cloned().collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut disk = self.disk();
        disk.changes.clear();
        disk.disk_names = disk.names.clone();
        Ok(())
    }
}

struct MemFile {
    files: MemFiles,
    id: u64,
}

impl File for MemFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.files.disk().write(self.id, offset, bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let disk = self.files.disk();
        let cache = &disk.files[&self.id].cache;
        let start = (offset as usize).min(cache.len());
        let length = buffer.len().min(cache.len() - start);
        buffer[..length].copy_from_slice(&cache[start..start + length]);
        Ok(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.files.disk();
        let count = disk.syncs;
        disk.syncs += 1;
        let failing = disk.faults.fail_sync == Some(count);
        let contents = disk.files.get_mut(&self.id).expect("handles have files");
        let unsynced = std::mem::take(&mut contents.unsynced);
        if failing {
            return Err(io::Error::other("a planted failure to sync"));
        }
        unsynced.into_iter().for_each(|(start, end)| contents.bring(start, end));
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.files.disk().files[&self.id].cache.len() as u64)
    }
}
