//! The manifest: what a backup consists of. It is written last, under another name first, so that a directory
//! has one if and only if the backup is complete.

use super::file::Whole;
use super::{Fault, Hex, Sum, damage};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use types::{ClusterId, PartitionId, Position, TableRecord};
use xxhash_rust::xxh3::xxh3_64;

/// The manifest's name.
pub const NAME: &str = "MANIFEST";
/// The format of all files of a backup.
const FORMAT: u32 = 1;
/// A longer manifest is damage.
const MOST_BYTES: u64 = 64 << 20;
/// The first line: this, the format's number, the checksum of the rest.
const TITLE: &str = "understudy-backup";

/// What a backup consists of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Who wrote it.
    pub version: String,
    /// The cluster it is of.
    pub cluster: ClusterId,
    /// When its point was, milliseconds since 1970 by the clock of who made it.
    pub taken_ms: u64,
    /// Its tables, in the order of their names.
    pub tables: Vec<TableEntry>,
}

/// A table of a backup.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TableEntry {
    /// Its record: columns, key, policy, engine.
    pub record: TableRecord,
    /// All its rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The digest of all its rows.
    pub digest: Hex,
    /// Its partitions, in order.
    pub partitions: Vec<PartitionEntry>,
}

/// A partition of a backup.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PartitionEntry {
    /// Which.
    pub partition: PartitionId,
    /// The position that it was read at.
    pub at: Position,
    /// Its rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The digest of its rows.
    pub digest: Hex,
    /// The length of its file in bytes.
    pub file_bytes: u64,
    /// XXH3-64 of its file.
    pub file_xxh3: Hex,
}

impl PartitionEntry {
    /// Of a file that was written.
    pub fn new(partition: PartitionId, at: Position, whole: &Whole) -> PartitionEntry {
        let Whole { sum, file_bytes, file_hash } = *whole;
        let Sum { rows, bytes, digest } = sum;
        PartitionEntry {
            partition,
            at,
            rows,
            bytes,
            digest: Hex(digest),
            file_bytes,
            file_xxh3: Hex(file_hash),
        }
    }

    /// The name of its file: made of its number alone, whatever a manifest says.
    pub fn file(&self) -> String {
        file_name(self.partition)
    }
}

impl TableEntry {
    /// Of these partitions.
    pub fn new(record: TableRecord, partitions: Vec<PartitionEntry>) -> TableEntry {
        let mut sum = Sum::default();
        for part in &partitions {
            sum.join(&Sum { rows: part.rows, bytes: part.bytes, digest: part.digest.0 });
        }
        let Sum { rows, bytes, digest } = sum;
        TableEntry { record, rows, bytes, digest: Hex(digest), partitions }
    }

    /// What all its rows come to.
    pub fn sum(&self) -> Sum {
        Sum { rows: self.rows, bytes: self.bytes, digest: self.digest.0 }
    }

    /// True for a table of the cluster's own.
    pub fn is_system(&self) -> bool {
        types::system::is_reserved(&self.record.name)
    }
}

/// The name of a partition's file.
pub fn file_name(partition: PartitionId) -> String {
    format!("p{:05}.rows", partition.0)
}

impl Manifest {
    /// All rows.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// Bytes of all files but the manifest.
    pub fn file_bytes(&self) -> u64 {
        self.tables.iter().flat_map(|table| &table.partitions).map(|part| part.file_bytes).sum()
    }

    /// Writes it, durably: after a crash it is there as a whole, or not at all.
    pub fn write(&self, dir: &Path) -> Result<(), Fault> {
        let mut body = serde_json::to_vec_pretty(self).expect("a manifest has only text keys");
        body.push(b'\n');
        let title = format!("{TITLE} {FORMAT} {}\n", String::from(Hex(xxh3_64(&body))));
        let aside = dir.join(format!(".{NAME}.new"));
        let mut file = File::create(&aside)?;
        file.write_all(title.as_bytes())?;
        file.write_all(&body)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&aside, dir.join(NAME))?;
        Ok(File::open(dir)?.sync_all()?)
    }

    /// Reads it. [`std::io::ErrorKind::NotFound`]: the directory is no complete backup.
    pub fn read(dir: &Path) -> Result<Manifest, Fault> {
        let path = dir.join(NAME);
        if fs::metadata(&path)?.len() > MOST_BYTES {
            return damage("it is longer than a manifest can be");
        }
        let text = fs::read(&path)?;
        let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
            return damage("it has no first line");
        };
        let (title, body) = (String::from_utf8_lossy(&text[..end]).into_owned(), &text[end + 1..]);
        let words: Vec<&str> = title.split(' ').collect();
        let [TITLE, format, hash] = words[..] else {
            return damage("its first line is not one of a manifest");
        };
        if hash != String::from(Hex(xxh3_64(body))) {
            return damage("its checksum is another one");
        }
        if format != FORMAT.to_string() {
            return damage(format!("it is of format {format}; this version reads format {FORMAT}"));
        }
        let manifest: Manifest = match serde_json::from_slice(body) {
            Ok(manifest) => manifest,
            Err(error) => return damage(format!("it cannot be read: {error}")),
        };
        manifest.check().map(|()| manifest).or_else(damage)
    }

    /// What the types cannot say. Whoever writes a wrong manifest can write its checksum as well.
    fn check(&self) -> Result<(), String> {
        for table in &self.tables {
            let name = &table.record.name;
            let listed = table.partitions.iter().map(|part| part.partition);
            let count = table.partitions.len() == table.record.partitions as usize;
            if !count || !listed.eq(table.record.partition_ids()) {
                return Err(format!("it does not have the partitions of table `{name}`"));
            }
            if TableEntry::new(table.record.clone(), table.partitions.clone()).sum() != table.sum() {
                return Err(format!("the partitions of table `{name}` do not add up"));
            }
        }
        let names: std::collections::BTreeSet<&str> =
            self.tables.iter().map(|table| table.record.name.as_str()).collect();
        if names.len() == self.tables.len() { Ok(()) } else { Err("it has a table twice".into()) }
    }
}

/// Where a partition's file is.
pub fn path_of(dir: &Path, entry: &PartitionEntry) -> PathBuf {
    dir.join(entry.file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::table;
    use types::Lsn;
    use types::Term;

    fn manifest() -> Manifest {
        let record = table(2).record().clone();
        let at = Position::new(Term(1), Lsn(5));
        let part = |partition: PartitionId| {
            let sum = Sum { rows: 2, bytes: 30, digest: u64::MAX / 2 + 7 };
            PartitionEntry::new(partition, at, &Whole { sum, file_bytes: 200, file_hash: 9 })
        };
        let partitions = record.partition_ids().map(part).collect();
        Manifest {
            version: "0".into(),
            cluster: ClusterId(4),
            taken_ms: 5,
            tables: vec![TableEntry::new(record, partitions)],
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(matches!(Manifest::read(dir.path()), Err(Fault::Io(_))));
        manifest().write(dir.path()).expect("writes");
        assert_eq!(Manifest::read(dir.path()).expect("reads"), manifest());
        assert_eq!((manifest().rows(), manifest().file_bytes()), (4, 400));
        assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 1);
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        manifest().write(dir.path()).expect("writes");
        let path = dir.path().join(NAME);
        let good = std::fs::read(&path).expect("there");
        for spot in 0..good.len() {
            let mut bad = good.clone();
            bad[spot] ^= 1;
            std::fs::write(&path, &bad).expect("writes");
            assert!(matches!(Manifest::read(dir.path()), Err(Fault::Damage(_))), "byte {spot}");
            std::fs::write(&path, &good[..spot]).expect("writes");
            assert!(matches!(Manifest::read(dir.path()), Err(Fault::Damage(_))), "cut at {spot}");
        }
    }

    #[test]
    fn one_that_does_not_add_up_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut wrong = manifest();
        wrong.tables[0].partitions.pop();
        wrong.write(dir.path()).expect("writes");
        assert!(matches!(Manifest::read(dir.path()), Err(Fault::Damage(_))));
        let mut wrong = manifest();
        wrong.tables[0].rows += 1;
        wrong.write(dir.path()).expect("writes");
        assert!(matches!(Manifest::read(dir.path()), Err(Fault::Damage(_))));
    }
}
