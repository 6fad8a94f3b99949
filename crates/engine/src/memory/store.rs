//! Where a memory engine keeps its snapshot: a directory, or whatever a simulator puts in its place.

use crate::files::{self, sync_dir};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Writes a snapshot's bytes into what it is given.
pub type SnapshotWriter<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// A place for one snapshot.
pub trait SnapshotStore: Send {
    /// Replaces the snapshot by what `write` writes, atomically and durably: after a crash there is the old
    /// one or the new one, and after a return the new one.
    fn save(&mut self, write: SnapshotWriter<'_>) -> io::Result<()>;

    /// The snapshot, if there is one.
    fn load(&mut self) -> io::Result<Option<Box<dyn Read>>>;

    /// Removes the snapshot, durably.
    fn clear(&mut self) -> io::Result<()>;
}

/// A snapshot in a directory of its own.
#[derive(Debug)]
pub(super) struct DirStore {
    dir: PathBuf,
}

impl DirStore {
    /// The store in `dir`, which is made if it is missing. What an interrupted save left there is removed.
    pub(super) fn open(dir: &Path) -> io::Result<DirStore> {
        files::create_dir(dir)?;
        let store = DirStore { dir: dir.to_owned() };
        files::remove_if_there(&store.unfinished())?;
        Ok(store)
    }

    fn finished(&self) -> PathBuf {
        self.dir.join("snapshot")
    }

    fn unfinished(&self) -> PathBuf {
        self.dir.join("snapshot.new")
    }

    fn write_unfinished(&self, write: SnapshotWriter<'_>) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(256 * 1024, File::create(self.unfinished())?);
        write(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

impl SnapshotStore for DirStore {
    fn save(&mut self, write: SnapshotWriter<'_>) -> io::Result<()> {
        if let Err(error) = self.write_unfinished(write) {
            if files::is_for_now(&error) {
                files::remove_if_there(&self.unfinished())?;
            }
            return Err(error);
        }
        fs::rename(self.unfinished(), self.finished())?;
        sync_dir(&self.dir)
    }

    fn load(&mut self) -> io::Result<Option<Box<dyn Read>>> {
        match File::open(self.finished()) {
            Ok(file) => Ok(Some(Box::new(BufReader::with_capacity(256 * 1024, file)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn clear(&mut self) -> io::Result<()> {
        files::remove_if_there(&self.finished())?;
        sync_dir(&self.dir)
    }
}
