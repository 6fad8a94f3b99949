//! The few steps on a directory that must be durable before the next one.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use types::EngineError;

/// Makes what was created, renamed or removed in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
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

/// The failure of a write that counts only as a whole.
pub(crate) fn not_written(error: io::Error) -> EngineError {
    if is_full(&error) { EngineError::Full(error) } else { EngineError::Io(error) }
}
