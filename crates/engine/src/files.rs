//! The few steps on a directory that must be durable before the next one.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use types::EngineError;

/// Makes what was created, renamed or removed in `dir` durable. A failure is never want of room: what the
/// disk has of it is unknown then, and trying again would not tell (F08).
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all().map_err(io::Error::other)
}

/// Makes `dir` where missing. Its entry is durable afterwards: a directory that is there may have been made
/// by a process that was killed before it synced that (PR-94). Its parent has to be there: where a disk is
/// gone, its directories are not made on the disk below (PR-359).
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    ensure_dir(dir)?;
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_dir(parent)
}

/// The same without making it durable.
pub(crate) fn ensure_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        outcome => outcome,
    }
}

/// Makes `path` a file of these bytes, durably, or leaves what was there: certainly so if there is no room.
/// `path` with `.new` behind it is used meanwhile.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = unfinished(path);
    let mut file = File::create(&unfinished)?;
    if let Err(error) = file.write_all(bytes).and_then(|()| file.sync_all()) {
        // It takes room for nothing. If that fails too, it is written over the next time.
        let _ = file.set_len(0);
        return Err(error);
    }
    // Opened before anything is replaced: who hears that there was no descriptor left takes it that nothing
    // was (PR-95).
    let dir = File::open(path.parent().expect("a file is in a directory"))?;
    fs::rename(&unfinished, path)?;
    dir.sync_all().map_err(io::Error::other)
}

/// Makes `path` a file of `value`, durably, or leaves what was there: its CRC-32C, then the value as
/// postcard.
pub(crate) fn replace_value<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, &checked(value))
}

/// The same for a note that may be lost: after a crash there is what was there, `value`, or nothing that can
/// be read.
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
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// True if the system has no memory for a call (ENOMEM), or gives no file to write into, because so many are
/// open (ENFILE, EMFILE): the disk has nothing to do with it (PR-96, PR-459).
fn is_out_of_resources(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(12 | 23 | 24))
}

/// The failure of a read. That the system has no more files or memory to give (EINTR, EAGAIN, ENOMEM, ENFILE,
/// EMFILE) says nothing of what is on the disk.
pub(crate) fn not_read(error: io::Error) -> EngineError {
    match error.raw_os_error() {
        Some(4 | 11 | 12 | 23 | 24) => EngineError::Later(error),
        _ => EngineError::Io(error),
    }
}

/// An open file that nobody needs, for [`patiently`].
static SPARE: Mutex<Option<File>> = Mutex::new(None);

/// Sees to it that there is a spare file to be closed. Where none can be opened there is none.
pub(crate) fn keep_spare() {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    if spare.is_none() {
        *spare = File::open("/dev/null").ok();
    }
}

/// Does what must be known after a failed write, and needs one open file: the spare one's place, if there is
/// no other. Others may take it first, so it is tried for a second.
pub(crate) fn patiently<T>(work: impl Fn() -> Result<T, EngineError>) -> Result<T, EngineError> {
    const PAUSE: Duration = Duration::from_millis(20);
    let mut outcome = work();
    for _ in 0..50 {
        let Err(EngineError::Later(_)) = &outcome else { break };
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).take();
        if spare.is_none() {
            std::thread::sleep(PAUSE);
        }
        drop(spare);
        outcome = work();
    }
    keep_spare();
    // It was a write that failed: what the disk has of it is not known.
    outcome.map_err(|error| match error {
        EngineError::Later(error) => EngineError::Io(error),
        error => error,
    })
}

/// True if what could not be written can be tried again later.
pub(crate) fn is_for_now(error: &io::Error) -> bool {
    is_full(error) || is_out_of_resources(error)
}

/// The failure of a write that counts only as a whole.
pub fn not_written(error: io::Error) -> EngineError {
    if is_for_now(&error) { EngineError::Full(error) } else { EngineError::Io(error) }
}

/// The failure of several such writes: what they left is removed, or begun anew the next time.
pub(crate) fn not_made(error: EngineError) -> EngineError {
    match error {
        EngineError::Io(error) | EngineError::Later(error) => not_written(error),
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pr459_what_the_system_lacks_says_nothing_of_the_disk() {
        for (number, passes) in [(12, true), (23, true), (24, true), (28, true), (5, false)] {
            let outcome = not_written(io::Error::from_raw_os_error(number));
            assert_eq!(matches!(outcome, EngineError::Full(_)), passes, "{outcome}");
        }
    }
}
