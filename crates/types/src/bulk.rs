//! Bulk loads: files of rows that are built once, staged on every replica that counts, and become part of the
//! state at one entry of the log (design section 7, PR-39).
//!
//! A load of one partition is known by a number that its client draws. Its files are [`Component`]s; the
//! entry names the [`files_digest`] of all of them. What was loaded is noted in a row of the partition,
//! [`load_key`], at the same LSN.

use crate::component::Component;
use crate::engine::{PartitionRows, space};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// The most files of one load of one partition.
pub const MAX_LOAD_FILES: usize = 4096;
/// Begins the keys of rows about loads within [`space::PARTITION`].
const LOAD: u8 = PartitionRows::Loads as u8;

/// Names a load in all its partitions: drawn at random, from [`LoadId::LEAST`] on and below [`LoadId::END`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LoadId(pub u64);

impl LoadId {
    /// The lowest number.
    pub const LEAST: u64 = 1 << 20;
    /// Above the highest.
    pub const END: u64 = 1 << 40;

    /// A load's name from any number.
    pub fn from_random(random: u64) -> LoadId {
        LoadId(LoadId::LEAST + random % (LoadId::END - LoadId::LEAST))
    }

    /// True if a client may have drawn it.
    pub fn is_valid(self) -> bool {
        (LoadId::LEAST..LoadId::END).contains(&self.0)
    }

    /// The number of the load's first file: no file of anything else has it, or one of the next
    /// [`MAX_LOAD_FILES`].
    pub fn first_file(self) -> u64 {
        self.0 * (2 * MAX_LOAD_FILES as u64)
    }
}

impl std::fmt::Display for LoadId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:010x}", self.0)
    }
}

/// How far an engine is with the files of a load.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Staging {
    /// The next bytes that are wanted: of which file, and from where on.
    Wants {
        /// An index into the load's files.
        file: u32,
        /// The first byte that is not here.
        from: u64,
    },
    /// Everything is here, and is being checked and made durable.
    Checking,
    /// The files are as they should be and durable; they outlive a restart.
    Ready(Staged),
    /// They cannot be part of any state here, for this reason. Nothing of them is kept.
    Refused(String),
}

/// Files of a load that are ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Staged {
    /// [`files_digest`] of all of them.
    pub digest: [u8; 16],
    /// Rows in them.
    pub rows: u64,
}

/// Why no client can have named these files, or none. Whoever takes them from a peer asks this first.
pub fn files_fault(load: LoadId, files: &[Component]) -> Option<&'static str> {
    if !load.is_valid() {
        return Some("no load has this number");
    }
    if files.is_empty() || files.len() > MAX_LOAD_FILES {
        return Some("a load has at least one file, and not more than 4096");
    }
    let first = load.first_file();
    let numbered = |(index, file): (usize, &Component)| file.number == first + index as u64;
    if !files.iter().enumerate().all(numbered) {
        return Some("a load's files have other numbers than its own");
    }
    let total = files.iter().try_fold(0u64, |sum, file| sum.checked_add(file.bytes));
    match (files.iter().any(|file| file.bytes == 0), total) {
        (true, _) => Some("a load has an empty file"),
        (_, None) => Some("a load's files are longer than any disk"),
        _ => None,
    }
}

/// One digest for all files of a load.
pub fn files_digest(files: &[Component]) -> [u8; 16] {
    let mut hash = Xxh3::new();
    for file in files {
        hash.update(&file.number.to_le_bytes());
        hash.update(&file.bytes.to_le_bytes());
        hash.update(&file.digest.to_le_bytes());
    }
    hash.digest128().to_le_bytes()
}

/// The stored key of the row that says that a load is part of the state: at the LSN of the entry that made it
/// so.
pub fn load_key(load: LoadId) -> Bytes {
    let mut key = BytesMut::with_capacity(10);
    key.put_slice(&[space::PARTITION, LOAD]);
    key.put_u64(load.0);
    key.freeze()
}

/// Every such row's key is from the first on and below the second.
pub fn load_range() -> ([u8; 2], [u8; 2]) {
    ([space::PARTITION, LOAD], [space::PARTITION, LOAD + 1])
}

/// The load of such a row.
pub fn load_of(key: &[u8]) -> Option<LoadId> {
    let rest = key.strip_prefix(&[space::PARTITION, LOAD])?;
    rest.try_into().ok().map(|bytes| LoadId(u64::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_no_client_names_are_refused() {
        let load = LoadId::from_random(77);
        let file = |index, bytes| Component { number: load.first_file() + index, bytes, digest: 7 };
        assert_eq!(files_fault(load, &[file(0, 5), file(1, 5)]), None);
        assert!(files_fault(load, &[]).is_some());
        assert!(files_fault(load, &[file(1, 5)]).is_some());
        assert!(files_fault(load, &[file(0, 5), file(1, 0)]).is_some());
        assert!(files_fault(load, &[file(0, u64::MAX), file(1, 1)]).is_some());
        assert!(files_fault(LoadId(3), &[file(0, 5)]).is_some());
        assert!(LoadId::from_random(u64::MAX).is_valid() && LoadId::from_random(0).is_valid());
        let one = files_digest(&[file(0, 5), file(1, 5)]);
        assert_ne!(one, files_digest(&[file(0, 5)]));
        assert_eq!(load_of(&load_key(load)), Some(load));
        assert_eq!(load_of(&[space::PARTITION, LOAD]), None);
    }
}
