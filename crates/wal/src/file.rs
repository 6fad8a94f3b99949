//! The file layer: the few things the log asks of a disk, as traits, and the real disk.
//!
//! A simulator implements the traits with a disk that loses, tears and damages. [`RealFiles`] is the
//! machine's own, [`crate::VolatileFiles`] plays a power loss for a real process, [`crate::faulty::MemFiles`]
//! serves tests.
//!
//! What the log relies on: written bytes may reach the disk in any order and in part until
//! [`File::sync_data`] returns `Ok`; names may be lost until [`Files::sync_dir`] returns `Ok`; a rename is
//! all or nothing; a removed file stays readable through handles that are open.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One open file. Handles are shared between threads; reads and writes name their offset.
pub trait File: Send + Sync {
    /// Writes all of `bytes` at `offset`. After an error any part of them may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reads until `buffer` is full or the file ends; says how many bytes it read.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Returns once all that was written is on the disk, with the length needed to read it.
    fn sync_data(&self) -> io::Result<()>;
    /// The file's length.
    fn size(&self) -> io::Result<u64>;
}

/// One flat directory of files.
pub trait Files: Send + Sync {
    /// Makes an empty file, or empties the one of this name, and writes `preallocate` zero bytes into it. The
    /// zeros are on the disk when this returns, so that syncing what later overwrites them needs no change of
    /// metadata.
    fn create(&self, name: &str, preallocate: u64) -> io::Result<Arc<dyn File>>;
    /// Opens a file that exists, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Removes a name. Open handles go on.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// All names, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Returns once all creations, removals and renames are on the disk.
    fn sync_dir(&self) -> io::Result<()>;
}

/// How much one write of zeros carries.
const ZEROS: usize = 1 << 20;

/// Overwrites the first `length` bytes with zeros and syncs them.
pub(crate) fn fill_with_zeros(file: &dyn File, length: u64) -> io::Result<()> {
    let zeros = vec![0u8; ZEROS.min(length as usize)];
    let mut at = 0;
    while at < length {
        let step = (length - at).min(ZEROS as u64);
        file.write_at(at, &zeros[..step as usize])?;
        at += step;
    }
    file.sync_data()
}

/// Files of a directory of this machine.
#[derive(Debug)]
pub struct RealFiles {
    root: PathBuf,
    /// The directory itself, so that it can be synced when the system has no more open files to give.
    dir: fs::File,
}

impl RealFiles {
    /// The files of `root`, which is created if it is missing.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<RealFiles> {
        let root = root.into();
        fs::create_dir_all(&root)?;
        let dir = fs::File::open(&root)?;
        Ok(RealFiles { root, dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Files for RealFiles {
    fn create(&self, name: &str, preallocate: u64) -> io::Result<Arc<dyn File>> {
        let path = self.path(name);
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let file = RealFile { file };
        fill_with_zeros(&file, preallocate)?;
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(self.path(name))?;
        Ok(Arc::new(RealFile { file }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        names(&self.root)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.dir.sync_all()
    }
}

/// The names of the plain files in `root`; others than UTF-8 are not ours.
pub(crate) fn names(root: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for item in fs::read_dir(root)? {
        let item = item?;
        if item.file_type()?.is_file()
            && let Ok(name) = item.file_name().into_string()
        {
            names.push(name);
        }
    }
    Ok(names)
}

/// Reads at `offset` until `buffer` is full or the file ends.
pub(crate) fn read_fully(file: &fs::File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
}

impl File for RealFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        read_fully(&self.file, offset, buffer)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
