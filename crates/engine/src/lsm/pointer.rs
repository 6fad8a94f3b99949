//! The file `CURRENT`: which directory holds the engine's tree, and whether the tree is complete.
//!
//! One line of text: `understudy-lsm 1 complete 7 1a2b3c4d`, the last word being the CRC-32C of what is
//! before it. It is replaced by rename, and the directory is synced before anything that relies on it is done
//! (PR-37).

use super::background::FileCall;
use super::environment::Environment;
use crate::files::{self, sync_dir};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use types::EngineError;

/// What `CURRENT` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pointer {
    /// The number of the tree's directory.
    pub(super) number: u64,
    /// False while the tree is being installed: a restart then begins with an empty one.
    pub(super) complete: bool,
}

impl Pointer {
    /// Reads `CURRENT` in `dir`; none if there is no such file.
    pub(super) fn read(dir: &Path) -> Result<Option<Pointer>, EngineError> {
        match fs::read(dir.join("CURRENT")) {
            Ok(bytes) => match Pointer::decode(&bytes) {
                Some(pointer) => Ok(Some(pointer)),
                None => Err(EngineError::Corrupt("lsm: CURRENT cannot be understood".into())),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces `CURRENT` in `dir`, durably.
    pub(super) fn write(self, dir: &Path, environment: &Environment) -> io::Result<()> {
        let new = dir.join("CURRENT.new");
        environment.before(FileCall::Write, &new)?;
        environment.before(FileCall::Sync, &new)?;
        files::replace(&dir.join("CURRENT"), self.encode().as_bytes())
    }

    fn encode(self) -> String {
        let state = if self.complete { "complete" } else { "incomplete" };
        let text = format!("understudy-lsm 1 {state} {}", self.number);
        let crc = crc32c::crc32c(text.as_bytes());
        format!("{text} {crc:08x}\n")
    }

    /// Only what `encode` writes is understood, to the byte.
    fn decode(bytes: &[u8]) -> Option<Pointer> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.split_ascii_whitespace().skip(2);
        let complete = words.next()? == "complete";
        let number = words.next()?.parse().ok()?;
        let pointer = Pointer { number, complete };
        (pointer.encode() == text).then_some(pointer)
    }
}

/// The directory of the tree with this number.
pub(super) fn tree_dir(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("tree-{number:06}"))
}

/// The numbers of the trees that have a directory in `dir`.
pub(super) fn tree_numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        numbers.extend(tree_number(&entry?.path()));
    }
    Ok(numbers)
}

/// The number of the tree whose directory this is.
pub(super) fn tree_number(dir: &Path) -> Option<u64> {
    dir.file_name()?.to_str()?.strip_prefix("tree-")?.parse().ok()
}

/// True if a tree in `dir` has rows on disk.
pub(super) fn has_tables(dir: &Path) -> io::Result<bool> {
    for number in tree_numbers(dir)? {
        let tables = tree_dir(dir, number).join("tables");
        if tables.is_dir() && fs::read_dir(tables)?.next().is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes every tree but the one with the number `keep`.
pub(super) fn remove_others(dir: &Path, keep: Option<u64>) -> io::Result<()> {
    for number in tree_numbers(dir)? {
        if Some(number) != keep {
            fs::remove_dir_all(tree_dir(dir, number))?;
        }
    }
    sync_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_text_is_understood() {
        for pointer in [Pointer { number: 7, complete: true }, Pointer { number: u64::MAX, complete: false }]
        {
            let text = pointer.encode().into_bytes();
            assert_eq!(Pointer::decode(&text), Some(pointer));
            for index in 0..text.len() {
                for bit in 0..8 {
                    let mut bad = text.clone();
                    bad[index] ^= 1 << bit;
                    assert_eq!(Pointer::decode(&bad), None);
                }
                assert_eq!(Pointer::decode(&text[..index]), None);
            }
        }
    }
}
