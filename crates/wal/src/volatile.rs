//! Files that forget what was not synced, for real processes.
//!
//! Killing a process does not test durability: what it wrote is in the system's memory and stays. Here
//! unsynced bytes are kept in the memory of the process itself and reach the system only on
//! [`File::sync_data`]; names change on the disk only on [`Files::sync_dir`]. So `kill -9` is a power loss.
//!
//! Syncs do not call the system's: only the death of the process is played, not that of the machine.

use crate::file::{File, Files, fill_with_zeros, names, read_fully};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// Unsynced bytes are kept in blocks of this length.
const BLOCK: u64 = 4096;
/// Files whose name was never synced lie under such names; the next process sweeps them away.
const HIDDEN: &str = ".volatile-";

/// The files of a directory, without what was not synced once the process is gone.
pub struct VolatileFiles {
    root: PathBuf,
    directory: Mutex<Directory>,
}

#[derive(Default)]
struct Directory {
    names: BTreeMap<String, Arc<VolatileFile>>,
    /// Changes that the disk does not have yet.
    changes: VecDeque<Change>,
    hidden: u64,
}

enum Change {
    /// The first name, on the disk, becomes the second.
    Rename(String, String),
    Remove(String),
}

impl VolatileFiles {
    /// The files of `root`, which is created if it is missing.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<VolatileFiles> {
        let root = root.into();
        fs::create_dir_all(&root)?;
        let mut directory = Directory::default();
        for name in names(&root)? {
            if name.starts_with(HIDDEN) {
                fs::remove_file(root.join(&name))?;
                continue;
            }
            let file = fs::OpenOptions::new().read(true).write(true).open(root.join(&name))?;
            directory.names.insert(name, Arc::new(VolatileFile::new(file)?));
        }
        Ok(VolatileFiles { root, directory: Mutex::new(directory) })
    }

    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().expect("a thread panicked while it held the directory")
    }
}

impl Files for VolatileFiles {
    fn create(&self, name: &str, preallocate: u64) -> io::Result<Arc<dyn File>> {
        let file = {
            let mut directory = self.directory();
            let hidden = format!("{HIDDEN}{}", directory.hidden);
            directory.hidden += 1;
            let path = self.root.join(&hidden);
            let file =
                fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
            let file = Arc::new(VolatileFile::new(file)?);
            directory.names.insert(name.to_owned(), file.clone());
            directory.changes.push_back(Change::Rename(hidden, name.to_owned()));
            file
        };
        fill_with_zeros(&*file, preallocate)?;
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let directory = self.directory();
        let file = directory.names.get(name).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(file.clone())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut directory = self.directory();
        directory.names.remove(name).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        directory.changes.push_back(Change::Remove(name.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut directory = self.directory();
        let file = directory.names.remove(from).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        directory.names.insert(to.to_owned(), file);
        directory.changes.push_back(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.directory().names.keys().cloned().collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut directory = self.directory();
        // One that fails stays, and all behind it: the next sync begins with it.
        while let Some(change) = directory.changes.front() {
            match change {
                Change::Rename(from, to) => fs::rename(self.root.join(from), self.root.join(to))?,
                Change::Remove(name) => fs::remove_file(self.root.join(name))?,
            }
            directory.changes.pop_front();
        }
        Ok(())
    }
}

/// One file: what the system has, and over it the blocks that were written since the last sync.
struct VolatileFile {
    file: fs::File,
    over: Mutex<Over>,
}

struct Over {
    length: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl VolatileFile {
    fn new(file: fs::File) -> io::Result<VolatileFile> {
        let length = file.metadata()?.len();
        Ok(VolatileFile { file, over: Mutex::new(Over { length, blocks: BTreeMap::new() }) })
    }

    fn over(&self) -> MutexGuard<'_, Over> {
        self.over.lock().expect("a thread panicked while it held a file")
    }

    /// A block as the system has it, zeros where it has nothing.
    fn below(&self, block: u64) -> io::Result<Box<[u8]>> {
        let mut bytes = vec![0; BLOCK as usize].into_boxed_slice();
        read_fully(&self.file, block * BLOCK, &mut bytes)?;
        Ok(bytes)
    }
}

/// The pieces of `offset..offset + length` by block: number, start in the block, start in the range, length.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let inside = (at % BLOCK) as usize;
        let step = (BLOCK as usize - inside).min(length - done);
        let piece = (at / BLOCK, inside, done, step);
        done += step;
        Some(piece)
    })
}

impl File for VolatileFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut over = self.over();
        for (block, inside, done, step) in pieces(offset, bytes.len()) {
            let target = match over.blocks.entry(block) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(free) => free.insert(self.below(block)?),
            };
            target[inside..inside + step].copy_from_slice(&bytes[done..done + step]);
        }
        over.length = over.length.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let over = self.over();
        let length = buffer.len().min(over.length.saturating_sub(offset) as usize);
        let buffer = &mut buffer[..length];
        buffer.fill(0);
        read_fully(&self.file, offset, buffer)?;
        for (block, inside, done, step) in pieces(offset, length) {
            if let Some(bytes) = over.blocks.get(&block) {
                buffer[done..done + step].copy_from_slice(&bytes[inside..inside + step]);
            }
        }
        Ok(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut over = self.over();
        let length = over.length;
        for (block, bytes) in &over.blocks {
            let start = block * BLOCK;
            let end = (length - start).min(BLOCK) as usize;
            self.file.write_all_at(&bytes[..end], start)?;
        }
        over.blocks.clear();
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.over().length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_failed_is_made_by_the_next_sync() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = VolatileFiles::open(dir.path()).expect("opened");
        files.create("one", 0).expect("created");
        files.create("two", 0).expect("created");
        // A directory stands where the first is to go.
        fs::create_dir(dir.path().join("one")).expect("made");
        files.sync_dir().expect_err("a file does not replace a directory");
        fs::remove_dir(dir.path().join("one")).expect("removed");
        files.sync_dir().expect("nothing stands in the way");
        let again = VolatileFiles::open(dir.path()).expect("opened");
        assert_eq!(again.list().expect("listed"), ["one", "two"]);
    }
}
