//! Files read back whole, and their digests.

use super::tree::corrupt;
use crate::files::{not_made, not_read};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use types::EngineError;
use xxhash_rust::xxh3::Xxh3;

/// The contents of a small file; a missing one is damage.
pub(super) fn read_whole(path: &Path) -> Result<Vec<u8>, EngineError> {
    fs::read(path).map_err(|error| missing_is_damage(error, path))
}

/// The XXH3 of a file, read in pieces.
pub(super) fn digest_file(path: &Path) -> Result<u128, EngineError> {
    let digest = digest_unless(path, &Watch::default())?;
    Ok(digest.expect("nobody gives it up"))
}

/// What others see of a check, and how they end it.
#[derive(Default)]
pub(super) struct Watch {
    /// Nobody waits for it any more.
    pub(super) given_up: AtomicBool,
    /// Bytes that were read.
    pub(super) checked: AtomicU64,
}

/// The same, or none if that is given up meanwhile.
fn digest_unless(path: &Path, watch: &Watch) -> Result<Option<u128>, EngineError> {
    let mut file = File::open(path).map_err(|error| missing_is_damage(error, path))?;
    let (mut hash, mut piece) = (Xxh3::new(), vec![0; 128 * 1024]);
    while !watch.given_up.load(Ordering::Relaxed) {
        match file.read(&mut piece)? {
            0 => return Ok(Some(hash.digest128())),
            bytes => {
                hash.update(&piece[..bytes]);
                watch.checked.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        }
    }
    Ok(None)
}

/// True if a file has this digest: one that cannot be read has not, and has to come again. None if that is
/// given up meanwhile.
pub(super) fn has_digest(path: &Path, digest: u128, watch: &Watch) -> Result<Option<bool>, EngineError> {
    match digest_unless(path, watch).map_err(not_made) {
        Ok(found) => Ok(found.map(|found| found == digest)),
        Err(EngineError::Io(_)) => Ok(Some(false)),
        Err(error) => Err(error),
    }
}

/// Compares the version that `current` names with the checksum that `current` has for it; the crate does not
/// (PR-72).
///
/// A missing one is damage too, or the crate would make an empty tree of it.
pub(super) fn verify_version(dir: &Path) -> Result<(), EngineError> {
    let current = read_whole(&dir.join("current"))?;
    let Ok(current) = <[u8; 25]>::try_from(&current[..]) else {
        return Err(corrupt("`current` has another length"));
    };
    let number = u64::from_le_bytes(current[..8].try_into().expect("eight bytes"));
    let expected = u128::from_le_bytes(current[8..24].try_into().expect("sixteen bytes"));
    if current[24] != 0 {
        return Err(corrupt("`current` names an unknown kind of checksum"));
    }
    if digest_file(&dir.join(format!("v{number}")))? != expected {
        return Err(corrupt(&format!("version {number} does not match its checksum")));
    }
    Ok(())
}

/// The files that put a set's components in order, as names and contents: first the version, then `current`,
/// which names it with its checksum. None if they do not agree.
pub(super) fn order_files(order: &[u8]) -> Option<[(String, &[u8]); 2]> {
    let (current, version) = order.split_at_checked(25)?;
    let number = u64::from_le_bytes(current[..8].try_into().expect("eight bytes"));
    let expected = u128::from_le_bytes(current[8..24].try_into().expect("sixteen bytes"));
    let agree = current[24] == 0 && xxhash_rust::xxh3::xxh3_128(version) == expected;
    agree.then(|| [(format!("v{number}"), version), ("current".into(), current)])
}

pub(super) fn missing_is_damage(error: std::io::Error, path: &Path) -> EngineError {
    match error.kind() {
        ErrorKind::NotFound => corrupt(&format!("{} is missing", path.display())),
        _ => not_read(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_not_what_it_should_be() {
        let dir = tempfile::tempdir().unwrap();
        let (path, watch) = (dir.path().join("file"), Watch::default());
        fs::write(&path, "content").unwrap();
        let digest = digest_file(&path).unwrap();
        assert_eq!(has_digest(&path, digest, &watch).unwrap(), Some(true));
        assert_eq!(has_digest(&path, digest + 1, &watch).unwrap(), Some(false));
        // A directory can be opened, and not be read.
        assert_eq!(has_digest(dir.path(), digest, &watch).unwrap(), Some(false));
        watch.given_up.store(true, Ordering::Relaxed);
        assert_eq!(has_digest(&path, digest, &watch).unwrap(), None);
    }
}
