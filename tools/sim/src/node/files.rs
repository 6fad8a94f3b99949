//! Where simulated engines keep what they write: names on a machine's disk.

use crate::disk::Disk;
use std::io::{self, Read};
use types::PartitionId;

/// What names in the first directory of replicas begin with.
pub const FIRST: &str = "";
/// The same for the second one.
pub const SECOND: &str = "second/";

/// Where a simulated memory engine keeps its snapshot.
pub struct SnapshotFile {
    disk: Disk,
    name: String,
}

impl SnapshotFile {
    /// The place for this partition's.
    pub fn new(disk: &Disk, directory_of: &str, partition: PartitionId) -> SnapshotFile {
        SnapshotFile { disk: disk.clone(), name: SnapshotFile::name(directory_of, partition) }
    }

    /// Its file.
    pub fn name(directory_of: &str, partition: PartitionId) -> String {
        format!("{directory_of}snapshot/{}", partition.0)
    }
}

impl engine::memory::SnapshotStore for SnapshotFile {
    fn save(&mut self, write: engine::memory::SnapshotWriter<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes)?;
        self.disk.replace(&self.name, &bytes)
    }

    fn load(&mut self) -> io::Result<Option<Box<dyn Read>>> {
        match self.disk.read(&self.name) {
            Ok(bytes) => Ok(Some(Box::new(io::Cursor::new(bytes)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn clear(&mut self) -> io::Result<()> {
        self.disk.remove(&self.name)
    }
}

/// Where a simulated engine keeps the files that it ships and receives.
pub struct PartFiles {
    disk: Disk,
    dir: String,
}

impl PartFiles {
    /// The place for this partition's.
    pub fn new(disk: &Disk, directory_of: &str, partition: PartitionId) -> PartFiles {
        PartFiles { disk: disk.clone(), dir: PartFiles::dir(directory_of, partition) }
    }

    /// What their names begin with.
    pub fn dir(directory_of: &str, partition: PartitionId) -> String {
        format!("{directory_of}parts/{}/", partition.0)
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.dir)
    }
}

impl test_engines::Parts for PartFiles {
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.disk.read(&self.path(name))
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        self.disk.create(&self.path(name))
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.disk.append(&self.path(name), bytes, false)
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.disk.replace(&self.path(name), bytes)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.disk.remove(&self.path(name))
    }

    fn names(&self) -> Vec<String> {
        let names = self.disk.names(&self.dir);
        names.into_iter().filter_map(|name| name.strip_prefix(&self.dir).map(str::to_string)).collect()
    }
}
