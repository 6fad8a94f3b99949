//! The few steps on a directory that must be durable before the next one.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use types::EngineError;

/// Makes what was created, renamed or removed in `dir` durable. A failure is never want of room: what the disk has of it is
/// unknown then, and trying again would not tell (F08).
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all().map_err(io::Error::other)
}

/// Makes `dir` and its parents where missing. Their entries are durable afterwards.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_dir(parent)?;
    fs::create_dir(dir)?;
    sync_dir(parent)
}

/// Makes `path` a file of these bytes, durably, or leaves what was there: certainly so if there is no room. `path` with `.new`
/// behind it is used meanwhile.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = unfinished(path);
    let mut file = File::create(&unfinished)?;
    if let Err(error) = file.write_all(bytes).and_then(|()| file.sync_all()) {
        // It takes room for nothing. If that fails too, it is written over the next time.
        let _ = file.set_len(0);
        return Err(error);
    }
    fs::rename(&unfinished, path)?;
    sync_dir(path.parent().expect("a file is in a directory"))
}

/// Makes `path` a file of `value`, durably, or leaves what was there: its CRC-32C, then the value as postcard.
pub(crate) fn replace_value<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, &checked(value))
}

/// The same for a note that may be lost: after a crash there is what was there, `value`, or nothing that can be read.
pub(crate) fn note_value<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let unfinished = unfinished(path);
    fs::write(&unfinished, checked(value))?;
    fs::rename(&unfinished, path)
}

fn checked<T: Serialize>(value: &T) -> Vec<u8> {
    let body = postcard::to_stdvec(value).expect("numbers and bytes can be encoded");
    let mut bytes = crc32c::crc32c(&body).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    bytes
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// What [`replace_value`] or [`note_value`] left in `path`; none if it cannot be read, or is not whole.
pub(crate) fn read_value<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = fs::read(path).ok()?;
    let (crc, body) = bytes.split_first_chunk::<4>()?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    postcard::from_bytes(body).ok()
}

/// Removes a file that may be missing.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// True if the disk said that it has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// True if the system gives no file to write into, because so many are open (ENFILE, EMFILE): the disk has nothing to do with it.
fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

/// The failure of a write that counts only as a whole.
pub(crate) fn not_written(error: io::Error) -> EngineError {
    if is_full(&error) || is_out_of_files(&error) { EngineError::Full(error) } else { EngineError::Io(error) }
}

/// The failure of several such writes: what they left is removed, or begun anew the next time.
pub(crate) fn not_made(error: EngineError) -> EngineError {
    match error {
        EngineError::Io(error) => not_written(error),
        error => error,
    }
}
