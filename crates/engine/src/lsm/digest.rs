//! Files read back whole, and their digests.

use super::tree::corrupt;
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
pub(super) fn digest_unless(path: &Path, watch: &Watch) -> Result<Option<u128>, EngineError> {
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

pub(super) fn missing_is_damage(error: std::io::Error, path: &Path) -> EngineError {
    match error.kind() {
        ErrorKind::NotFound => corrupt(&format!("{} is missing", path.display())),
        _ => EngineError::Io(error),
    }
}
