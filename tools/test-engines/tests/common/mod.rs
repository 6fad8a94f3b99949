//! The parts engine on a directory.

use engine::memory::{SnapshotStore, SnapshotWriter};
use engine::{Engine, EngineError, MemoryEngine};
use std::fs::{self, OpenOptions};
use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use types::Rules;
use understudy_test_engines::{Parts, PartsEngine};

/// Files in a directory.
#[derive(Clone)]
struct Dir(PathBuf);

impl Parts for Dir {
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.0.join(name))
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        fs::write(self.0.join(name), [])
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(self.0.join(name))?.write_all(bytes)
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        fs::write(self.0.join(name), bytes)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name != SNAPSHOT).collect();
        names.sort();
        names
    }
}

const SNAPSHOT: &str = "snapshot";

impl SnapshotStore for Dir {
    fn save(&mut self, write: SnapshotWriter<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes)?;
        self.replace(SNAPSHOT, &bytes)
    }

    fn load(&mut self) -> io::Result<Option<Box<dyn Read>>> {
        match Parts::read(self, SNAPSHOT) {
            Ok(bytes) => Ok(Some(Box::new(Cursor::new(bytes)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn clear(&mut self) -> io::Result<()> {
        self.remove(SNAPSHOT)
    }
}

/// The parts engine in `dir`.
pub fn open(dir: &Path) -> Result<Box<dyn Engine>, EngineError> {
    fs::create_dir_all(dir)?;
    let dir = Dir(dir.to_owned());
    let engine = MemoryEngine::with_store(Box::new(dir.clone()))?;
    Ok(Box::new(PartsEngine::new(engine, Box::new(dir.clone()), Box::new(dir), Rules::ALL)?))
}
