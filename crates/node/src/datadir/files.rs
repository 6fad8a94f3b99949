//! Metadata files: written aside, fsynced, renamed, and the directory fsynced (conventions).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Replaces a file: after a crash there is the old one or the new one.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().expect("a file lies in a directory");
    let name = path.file_name().expect("a file has a name").to_string_lossy();
    let aside = dir.join(format!(".{name}.new"));
    let mut file = File::create(&aside)?;
    if let Err(error) = file.write_all(bytes).and_then(|()| file.sync_all()) {
        // What was written of it takes room for nothing. If that fails too, it is written over the next time.
        let _ = file.set_len(0);
        return Err(error);
    }
    drop(file);
    fs::rename(&aside, path)?;
    sync_dir(dir)
}

/// Makes what was created, renamed or removed in a directory durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes a directory where it is missing; its name is durable afterwards.
pub fn ensure_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ensure_dir(parent)?;
    make(dir, parent)
}

/// The same within a directory of this node's, which has to be there: where a disk is gone, its directories
/// are not made on the disk below it (PR-359).
pub fn ensure_within(root: &Path, dir: &Path) -> io::Result<()> {
    let parent = match dir.parent() {
        Some(parent) if dir != root && dir.starts_with(root) && !dir.is_dir() => parent,
        _ => return fs::read_dir(dir).map(drop),
    };
    ensure_within(root, parent)?;
    make(dir, parent)
}

fn make(dir: &Path, parent: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_dir(parent),
    }
}

/// The whole file, or `None` if there is none.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
