//! Files of which a part is in the system's cache only: what every disk in memory that can lose power is made
//! of.
//!
//! What is written is in the *cache*; a sync brings it to the *disk*. A power loss keeps the disk, and a part
//! of what was not synced, in units of [`SECTOR`] bytes.

use std::collections::BTreeMap;
use std::io;

/// The unit in which an unsynced write can survive or not.
pub const SECTOR: u64 = 64;

/// A file's bytes.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    cache: Vec<u8>,
    disk: Vec<u8>,
    /// Ranges of the cache that the disk does not have, in the order they were written.
    unsynced: Vec<(u64, u64)>,
}

impl Contents {
    /// So many zeros, on the disk.
    pub fn zeros(length: u64) -> Contents {
        let zeros = vec![0; length as usize];
        Contents { cache: zeros.clone(), disk: zeros, unsynced: Vec::new() }
    }

    /// What processes see of it.
    pub fn cache(&self) -> &[u8] {
        &self.cache
    }

    /// What is on the disk of it.
    pub fn disk(&self) -> &[u8] {
        &self.disk
    }

    /// Writes into the cache.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        if self.cache.len() < end {
            self.cache.resize(end, 0);
        }
        self.cache[offset as usize..end].copy_from_slice(bytes);
        if !bytes.is_empty() {
            self.unsynced.push((offset, end as u64));
        }
    }

    /// Reads from the cache; gives how much there was.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let start = (offset as usize).min(self.cache.len());
        let length = buffer.len().min(self.cache.len() - start);
        buffer[..length].copy_from_slice(&self.cache[start..start + length]);
        length
    }

    /// Brings everything to the disk.
    pub fn sync(&mut self) {
        for (start, end) in std::mem::take(&mut self.unsynced) {
            self.bring(start, end);
        }
    }

    /// A sync that fails: what it should have brought to the disk counts as synced from now on, as in real
    /// systems, and is not there. True if there was something.
    pub fn forget(&mut self) -> bool {
        !std::mem::take(&mut self.unsynced).is_empty()
    }

    /// Changes the bytes behind everybody's back, in the cache and on the disk.
    pub fn damage(&mut self, change: impl Fn(&mut Vec<u8>)) {
        change(&mut self.cache);
        change(&mut self.disk);
        let length = self.cache.len() as u64;
        self.unsynced.retain_mut(|(start, end)| {
            *end = (*end).min(length);
            start < end
        });
    }

    /// Loses what was not synced, but for what `below`, which draws numbers below a bound, lets survive.
    pub fn lose_power(&mut self, below: Option<&mut dyn FnMut(u64) -> u64>) {
        if let Some(below) = below {
            self.survive(below);
        }
        self.unsynced.clear();
        self.cache = self.disk.clone();
    }

    /// Brings some sectors of what was not synced to the disk.
    fn survive(&mut self, below: &mut dyn FnMut(u64) -> u64) {
        for (start, end) in std::mem::take(&mut self.unsynced) {
            let mode = below(4);
            let until = start + below(end - start + 1);
            let mut at = start;
            while at < end {
                let next = ((at / SECTOR + 1) * SECTOR).min(end);
                let survives = match mode {
                    0 => false,
                    1 => true,
                    2 => at < until,
                    _ => below(1000) < 500,
                };
                if survives {
                    self.bring(at, next);
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

#[derive(Clone, Debug)]
enum NameChange {
    Link(String, u64),
    Unlink(String),
    Rename(String, String),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Link(name, id) => drop(names.insert(name.clone(), *id)),
            NameChange::Unlink(name) => drop(names.remove(name)),
            NameChange::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
        }
    }

    fn is_in(&self, prefix: &str) -> bool {
        let (NameChange::Link(name, _) | NameChange::Unlink(name) | NameChange::Rename(name, _)) = self;
        name.starts_with(prefix)
    }
}

/// The names of files, which are synced for themselves.
#[derive(Clone, Debug, Default)]
pub struct Names {
    cache: BTreeMap<String, u64>,
    disk: BTreeMap<String, u64>,
    /// What the disk does not have yet, in order.
    changes: Vec<NameChange>,
}

impl Names {
    /// Gives a file a name.
    pub fn link(&mut self, name: &str, id: u64) {
        self.change(NameChange::Link(name.to_string(), id));
    }

    /// Takes a name away.
    pub fn unlink(&mut self, name: &str) -> io::Result<()> {
        self.find(name)?;
        self.change(NameChange::Unlink(name.to_string()));
        Ok(())
    }

    /// Gives a file another name, which whoever had it loses.
    pub fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.find(from)?;
        self.change(NameChange::Rename(from.to_string(), to.to_string()));
        Ok(())
    }

    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.cache);
        self.changes.push(change);
    }

    /// The file of this name.
    pub fn find(&self, name: &str) -> io::Result<u64> {
        self.cache.get(name).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// All names, in order, with their files.
    pub fn all(&self) -> impl Iterator<Item = (&str, u64)> {
        self.cache.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Syncs the names that begin so.
    pub fn sync(&mut self, prefix: &str) {
        let changes = std::mem::take(&mut self.changes);
        let (now, later): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| change.is_in(prefix));
        now.iter().for_each(|change| change.apply(&mut self.disk));
        self.changes = later;
    }

    /// Loses what was not synced, but for as many of the first changes as `below`, which draws numbers below
    /// a bound, lets survive.
    pub fn lose_power(&mut self, below: Option<&mut dyn FnMut(u64) -> u64>) {
        let kept = below.map_or(0, |below| below(self.changes.len() as u64 + 1));
        for change in std::mem::take(&mut self.changes).iter().take(kept as usize) {
            change.apply(&mut self.disk);
        }
        self.cache = self.disk.clone();
    }
}
