//! `backup verify`: reads every byte, and compares blocks, counts and digests with what was written down.

use super::create::{DatabaseReport, TableReport};
use super::file::{Reader, Whole};
use super::manifest::{Manifest, NAME, PartitionEntry, path_of};
use super::{Fault, damage};
use crate::failure::Failure;
use crate::load::Watcher;
use bytes::Bytes;
use input::Progress;
use serde::Serialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use types::ClusterId;

/// A file that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Damaged {
    /// Its name.
    pub file: String,
    /// What is wrong with it.
    pub what: String,
}

/// What a backup has, and whether it is sound.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VerifyReport {
    /// Where it is.
    pub dir: PathBuf,
    /// Of which cluster; none if the manifest is damaged.
    pub cluster: Option<ClusterId>,
    /// When its point was, milliseconds since 1970.
    pub taken_ms: Option<u64>,
    /// The users' tables in it, by the manifest; those of databases as DATABASE.TABLE.
    pub tables: Vec<TableReport>,
    /// The databases in it, by the manifest.
    pub databases: Vec<DatabaseReport>,
    /// Rows that were read and are sound.
    pub rows: u64,
    /// Files that are damaged or missing.
    pub damaged: Vec<Damaged>,
}

/// The manifest of a backup. A failure if the directory is none, or the manifest is damaged.
pub fn manifest(dir: &Path) -> Result<Manifest, Failure> {
    Manifest::read(dir).map_err(|fault| match fault {
        Fault::Io(error) if error.kind() == ErrorKind::NotFound => Failure::not_found(format!(
            "{} is no complete backup: it has no file {NAME}, which is written last",
            dir.display()
        )),
        fault => fault.of(dir.join(NAME).display()),
    })
}

/// What a backup has, by its manifest.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ListReport {
    /// Where it is.
    pub dir: PathBuf,
    /// Of which cluster.
    pub cluster: ClusterId,
    /// When its point was, milliseconds since 1970.
    pub taken_ms: u64,
    /// The users' tables in it; those of databases as DATABASE.TABLE.
    pub tables: Vec<TableReport>,
    /// The databases in it.
    pub databases: Vec<DatabaseReport>,
    /// Rows of all tables.
    pub rows: u64,
    /// Bytes of its files.
    pub file_bytes: u64,
}

/// Reads the manifest and nothing else.
pub fn list(dir: &Path) -> Result<ListReport, Failure> {
    let found = manifest(dir)?;
    Ok(ListReport {
        dir: dir.to_path_buf(),
        cluster: found.cluster,
        taken_ms: found.taken_ms,
        tables: TableReport::all(&found),
        databases: DatabaseReport::all(&found),
        rows: found.rows(),
        file_bytes: found.file_bytes(),
    })
}

/// Verifies a backup. A failure only if there is none, or a file cannot be read; damage is in the report.
pub fn verify(dir: &Path, watcher: &mut dyn Watcher) -> Result<VerifyReport, Failure> {
    let found = match Manifest::read(dir) {
        Err(Fault::Damage(what)) => {
            let damaged = vec![Damaged { file: NAME.into(), what }];
            let (cluster, taken_ms, dir) = (None, None, dir.to_path_buf());
            let (tables, databases) = (Vec::new(), Vec::new());
            return Ok(VerifyReport { dir, cluster, taken_ms, tables, databases, rows: 0, damaged });
        }
        _ => manifest(dir)?,
    };
    let progress = Progress::new(Some(found.file_bytes()));
    watcher.phase("checking", Some(progress.clone()));
    let (mut rows, mut damaged) = (0, Vec::new());
    for entry in found.all().flat_map(|table| &table.partitions) {
        let before = rows;
        let read = read(dir, entry, &mut |block, _| {
            rows += block.len() as u64;
            progress.add(block.iter().map(|(key, value)| 8 + (key.len() + value.len()) as u64).sum());
            watcher.rows(rows);
            if watcher.stopped() { Err(Failure::failed("stopped")) } else { Ok(()) }
        });
        match read {
            Ok(()) => {}
            Err(Broken::Fault(Fault::Damage(what))) => {
                rows = before;
                damaged.push(Damaged { file: entry.file(), what });
            }
            Err(broken) => return Err(broken.failure(dir, entry)),
        }
    }
    Ok(VerifyReport {
        dir: dir.to_path_buf(),
        cluster: Some(found.cluster),
        taken_ms: Some(found.taken_ms),
        tables: TableReport::all(&found),
        databases: DatabaseReport::all(&found),
        rows,
        damaged,
    })
}

/// Why the rows of a file did not all go where they were to go.
pub(super) enum Broken {
    /// The file's fault.
    Fault(Fault),
    /// Of whoever takes them.
    Taker(Failure),
}

impl Broken {
    pub(super) fn failure(self, dir: &Path, entry: &PartitionEntry) -> Failure {
        match self {
            Broken::Fault(fault) => fault.of(path_of(dir, entry).display()),
            Broken::Taker(failure) => failure,
        }
    }
}

/// What takes the rows of a block; the number of the first of them in its file comes with them.
pub(super) type Take<'a> = dyn FnMut(Vec<(Bytes, Bytes)>, u64) -> Result<(), Failure> + 'a;

/// Gives all rows of a file to `take`, block by block. Damage may show only at the end.
pub(super) fn read(dir: &Path, entry: &PartitionEntry, take: &mut Take<'_>) -> Result<(), Broken> {
    let mut reader = open(dir, entry).map_err(Broken::Fault)?;
    let mut first = 0;
    while let Some(block) = reader.block().map_err(Broken::Fault)? {
        let rows = block.len() as u64;
        take(block, first).map_err(Broken::Taker)?;
        first += rows;
    }
    let Whole { file_bytes, file_hash, .. } = reader.whole();
    let whole = PartitionEntry::new(entry.partition, entry.at, &reader.whole());
    let same = whole.of_table(entry.table) == *entry;
    let what = match (file_bytes == entry.file_bytes, file_hash == entry.file_xxh3.0) {
        _ if same => return Ok(()),
        (true, true) => "its rows do not come to what the manifest says",
        _ => "it is not the file that the manifest names",
    };
    Err(Broken::Fault(Fault::Damage(what.into())))
}

fn open(dir: &Path, entry: &PartitionEntry) -> Result<Reader, Fault> {
    let path = path_of(dir, entry);
    let bytes = match std::fs::metadata(&path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == ErrorKind::NotFound => return damage("it is missing"),
        Err(error) => return Err(error.into()),
    };
    if bytes != entry.file_bytes {
        return damage(format!("it has {bytes} bytes instead of {}", entry.file_bytes));
    }
    let reader = Reader::open(&path)?;
    if reader.is() != (entry.partition, entry.at) {
        return damage("it is the file of another partition or another point");
    }
    Ok(reader)
}
