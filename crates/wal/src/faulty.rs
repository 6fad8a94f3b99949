//! A file layer in memory that fails, fills up, tears and forgets, for tests.
//!
//! [`MemFiles::crash`] is a power loss: of what was not synced a part survives, chosen by a seed
//! ([`crate::cached`]).

use crate::cached::{Contents, Names};
use crate::error::ENOMEM;
use crate::file::{File, Files};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use types::random::Random;

/// What is to go wrong. Counts are of calls from now on: 0 is the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// This write, and it alone, fails after having written a part.
    pub fail_write: Option<u64>,
    /// This sync, and it alone, fails: what it should have synced is forgotten as if it had been, as real
    /// systems do.
    pub fail_sync: Option<u64>,
    /// All files together may take so many bytes.
    pub capacity: Option<u64>,
    /// No file can be created or opened (EMFILE).
    pub no_files: bool,
    /// So many writes fail after having written a part, as the system has no memory (ENOMEM).
    pub no_memory: u64,
}

/// The unit in which a file becomes unreadable, bytes.
const PAGE: u64 = 4096;

#[derive(Clone, Default)]
struct Disk {
    files: BTreeMap<u64, Contents>,
    names: Names,
    next: u64,
    faults: Faults,
    /// Pages of files that cannot be read, by file and number.
    ruined: BTreeSet<(u64, u64)>,
    writes: u64,
    syncs: u64,
}

/// Files in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemFiles {
    disk: Arc<Mutex<Disk>>,
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

    /// The disk after a power loss. `None`: nothing that was not synced survives. Open handles go on with the
    /// old disk.
    pub fn crash(&self, seed: Option<u64>) -> MemFiles {
        let mut disk = self.disk().clone();
        let mut random = seed.map(Random::new);
        let mut below = random.as_mut().map(|random| move |bound| random.draw() % bound);
        disk.names.lose_power(below.as_mut().map(|below| below as _));
        for contents in disk.files.values_mut() {
            contents.lose_power(below.as_mut().map(|below| below as _));
        }
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

    /// The page of a file, 4096 bytes, cannot be read any more (EIO), until it is written as a whole.
    pub fn ruin(&self, name: &str, page: u64) {
        let mut disk = self.disk();
        let id = disk.names.find(name).expect("it is there");
        disk.ruined.insert((id, page));
    }

    fn edit(&self, name: &str, change: impl Fn(&mut Vec<u8>)) {
        let mut disk = self.disk();
        let id = disk.names.find(name).expect("it is there");
        disk.files.get_mut(&id).expect("names have files").damage(change);
    }

    /// What a file holds.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        let disk = self.disk();
        disk.files[&disk.names.find(name).expect("it is there")].cache().to_vec()
    }
}

impl Disk {
    fn may_open(&self) -> io::Result<()> {
        if self.faults.no_files { Err(io::Error::from_raw_os_error(24)) } else { Ok(()) }
    }

    /// True if a page is ruined of which these bytes have a part, or, where `parts_only`, a part and not all.
    fn is_ruined(&self, id: u64, (from, length): (u64, usize), parts_only: bool) -> bool {
        let to = from + length as u64;
        let pages = self.ruined.range((id, from / PAGE)..(id, to.div_ceil(PAGE)));
        pages.into_iter().any(|(_, page)| !parts_only || page * PAGE < from || (page + 1) * PAGE > to)
    }

    fn used(&self) -> u64 {
        self.names.all().map(|(_, id)| self.files[&id].cache().len() as u64).sum()
    }

    fn write(&mut self, id: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let count = self.writes;
        self.writes += 1;
        let used = self.used();
        let contents = self.files.get(&id).expect("handles have files");
        let grown = (offset + bytes.len() as u64).saturating_sub(contents.cache().len() as u64);
        let (length, error) = if self.is_ruined(id, (offset, bytes.len()), true) {
            (0, Some(io::Error::from_raw_os_error(5)))
        } else if count < self.faults.no_memory {
            (bytes.len() / 2, Some(io::Error::from_raw_os_error(ENOMEM)))
        } else if self.faults.fail_write == Some(count) {
            (bytes.len() / 2, Some(io::Error::other("a planted failure to write")))
        } else if self.faults.capacity.is_some_and(|capacity| used + grown > capacity) {
            (bytes.len() / 2, Some(io::Error::from(io::ErrorKind::StorageFull)))
        } else {
            (bytes.len(), None)
        };
        self.files.get_mut(&id).expect("handles have files").put(offset, &bytes[..length]);
        let end = offset + length as u64;
        self.ruined.retain(|(file, page)| *file != id || page * PAGE < offset || (page + 1) * PAGE > end);
        error.map_or(Ok(()), Err)
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
            disk.names.link(name, id);
            id
        };
        let file = MemFile { files: self.clone(), id };
        crate::file::fill_with_zeros(&file, preallocate)?;
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let disk = self.disk();
        disk.may_open()?;
        let id = disk.names.find(name)?;
        Ok(Arc::new(MemFile { files: self.clone(), id }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk().names.unlink(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk().names.rename(from, to)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.disk().names.all().map(|(name, _)| name.to_string()).collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk().names.sync("");
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
        if disk.is_ruined(self.id, (offset, buffer.len()), false) {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(disk.files[&self.id].read_at(offset, buffer))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.files.disk();
        let count = disk.syncs;
        disk.syncs += 1;
        let failing = disk.faults.fail_sync == Some(count);
        let contents = disk.files.get_mut(&self.id).expect("handles have files");
        if failing {
            contents.forget();
            return Err(io::Error::other("a planted failure to sync"));
        }
        contents.sync();
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.files.disk().files[&self.id].cache().len() as u64)
    }
}
