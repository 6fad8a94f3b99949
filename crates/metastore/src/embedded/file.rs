//! The journal in a real file.

use super::Store;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A journal at a path. A second process that opens the same one is refused.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    /// Open for appending, once there is a journal.
    journal: Option<File>,
    /// Held as long as this store lives. The journal itself cannot be the lock: it is replaced.
    _lock: File,
}

impl FileStore {
    /// The journal at `path`, whether it exists or not. Its directory must exist.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<FileStore> {
        let path = path.into();
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(beside(&path, "lock"))?;
        if let Err(error) = lock.try_lock() {
            return Err(match error {
                fs::TryLockError::WouldBlock => io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    format!("{} is in use by another process", path.display()),
                ),
                fs::TryLockError::Error(error) => error,
            });
        }
        Ok(FileStore { path, journal: None, _lock: lock })
    }

    fn journal(&mut self) -> io::Result<&mut File> {
        if self.journal.is_none() {
            self.journal = Some(OpenOptions::new().append(true).open(&self.path)?);
        }
        self.journal.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// A file beside the journal: `journal.lock`, `journal.new`.
fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

impl Store for FileStore {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match File::open(&self.path) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // What is acted upon must be durable, also if the process before this one died between its write and
        // its fsync.
        self.journal()?.sync_all()?;
        self.sync_directory()?;
        Ok(Some(bytes))
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let journal = self.journal()?;
        journal.write_all(bytes)?;
        journal.sync_data()
    }

    fn hint(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.journal()?.write_all(bytes)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let new = beside(&self.path, "new");
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        self.sync_directory()?;
        self.journal = None;
        Ok(())
    }
}
