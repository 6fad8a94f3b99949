//! The manifest: what a backup consists of. It is written last, under another name first, so that a directory
//! has one if and only if the backup is complete.

use super::file::Whole;
use super::{Fault, Hex, Sum, damage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use types::{ClusterId, PartitionId, Position, TableId, TableRecord};
use xxhash_rust::xxh3::xxh3_64;

/// The manifest's name.
pub const NAME: &str = "MANIFEST";
/// The format of a backup of tables alone.
const FORMAT: u32 = 1;
/// The format of one with databases: who reads format 1 alone would leave them out.
const FORMAT_DATABASES: u32 = 2;
/// A longer manifest is damage: one of 2,000 tables whose definitions are as long as they may be is shorter.
const MOST_BYTES: u64 = 512 << 20;
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
    /// Its tables that have partitions of their own, in the order of their names.
    pub tables: Vec<TableEntry>,
    /// Its databases, in the order of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<DatabaseEntry>,
}

/// A database of a backup: all that it has, as of one position of each of its partitions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DatabaseEntry {
    /// Its record: partitions, policy, engine.
    pub record: TableRecord,
    /// What has a name in it, in the order of the ids. Sequences and views have no file.
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
    /// Of a database's partition: the table whose rows these are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableId>,
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
            table: None,
        }
    }

    /// The same, of a table of a database.
    pub fn of_table(self, table: Option<TableId>) -> PartitionEntry {
        PartitionEntry { table, ..self }
    }

    /// The name of its file: made of its numbers alone, whatever a manifest says.
    pub fn file(&self) -> String {
        file_name(self.partition, self.table)
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
        self.record.database().is_none() && types::system::is_reserved(&self.record.name)
    }

    /// True if it has rows: it is a table, and neither a sequence nor a view.
    pub fn has_rows(&self) -> bool {
        self.record.schema.kind().is_none()
    }

    /// What is wrong with it by itself, as a sentence.
    fn fault(&self) -> Option<String> {
        let name = &self.record.name;
        let of = self.record.database().map(|_| self.record.id);
        let wanted: Vec<PartitionId> =
            if self.has_rows() { self.record.partition_ids().collect() } else { Vec::new() };
        let count = self.partitions.len() == wanted.len();
        let listed =
            |(part, wanted): (&PartitionEntry, &PartitionId)| part.partition == *wanted && part.table == of;
        if !count || !self.partitions.iter().zip(&wanted).all(listed) {
            return Some(format!("it does not have the partitions of table `{name}`"));
        }
        let sum = TableEntry::new(self.record.clone(), self.partitions.clone()).sum();
        (sum != self.sum()).then(|| format!("the partitions of table `{name}` do not add up"))
    }
}

impl DatabaseEntry {
    /// What is wrong with it by itself, as a sentence.
    fn fault(&self) -> Option<String> {
        let name = &self.record.name;
        if !self.record.is_database() {
            return Some(format!("`{name}` is no database"));
        }
        let own = |table: &TableEntry| {
            let of = &table.record;
            // Rows of a replicated table are those of the first partition ([`TableRecord::with_table`]).
            let count = if of.schema.is_replicated() { 1 } else { self.record.partitions };
            let wanted = self.record.partition_ids().take(count as usize);
            of.database() == Some(self.record.id) && of.partition_ids().eq(wanted)
        };
        if !self.tables.iter().all(own) {
            return Some(format!("a table of the database `{name}` is none of it"));
        }
        let ids: BTreeSet<TableId> = self.tables.iter().map(|table| table.record.id).collect();
        let names: BTreeSet<&str> = self.tables.iter().map(|table| table.record.name.as_str()).collect();
        if ids.len() != self.tables.len() || names.len() != self.tables.len() {
            return Some(format!("the database `{name}` has a table twice"));
        }
        self.tables.iter().find_map(TableEntry::fault)
    }
}

/// The name of a partition's file, or of one of the tables of a database in it.
pub fn file_name(partition: PartitionId, table: Option<TableId>) -> String {
    match table {
        None => format!("p{:05}.rows", partition.0),
        Some(table) => format!("p{:05}-t{:05}.rows", partition.0, table.0),
    }
}

impl Manifest {
    /// All tables, those of databases among them.
    pub fn all(&self) -> impl Iterator<Item = &TableEntry> {
        self.tables.iter().chain(self.databases.iter().flat_map(|database| &database.tables))
    }

    /// All rows of the users' tables, as whoever restores it counts them.
    pub fn rows(&self) -> u64 {
        self.all().filter(|table| !table.is_system()).map(|table| table.rows).sum()
    }

    /// Bytes of all files but the manifest.
    pub fn file_bytes(&self) -> u64 {
        self.all().flat_map(|table| &table.partitions).map(|part| part.file_bytes).sum()
    }

    /// Writes it, durably: after a crash it is there as a whole, or not at all.
    pub fn write(&self, dir: &Path) -> Result<(), Fault> {
        let mut body = serde_json::to_vec_pretty(self).expect("a manifest has only text keys");
        body.push(b'\n');
        if body.len() as u64 >= MOST_BYTES {
            return damage(format!(
                "it would be longer than {MOST_BYTES} bytes: back up fewer tables at once"
            ));
        }
        let format = if self.databases.is_empty() { FORMAT } else { FORMAT_DATABASES };
        let title = format!("{TITLE} {format} {}\n", String::from(Hex(xxh3_64(&body))));
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
        if ![FORMAT, FORMAT_DATABASES].iter().any(|known| format == known.to_string()) {
            let known = format!("this version reads formats {FORMAT} and {FORMAT_DATABASES}");
            return damage(format!("it is of format {format}; {known}"));
        }
        let manifest: Manifest = match serde_json::from_slice(body) {
            Ok(manifest) => manifest,
            Err(error) => return damage(format!("it cannot be read: {error}")),
        };
        manifest.check().map(|()| manifest).or_else(damage)
    }

    /// What the types cannot say. Whoever writes a wrong manifest can write its checksum as well.
    fn check(&self) -> Result<(), String> {
        let mut faults = self.tables.iter().filter_map(TableEntry::fault);
        if let Some(fault) = faults.next().or(self.databases.iter().find_map(DatabaseEntry::fault)) {
            return Err(fault);
        }
        let twice = |names: Vec<&str>| names.len() != names.iter().collect::<BTreeSet<_>>().len();
        if twice(self.tables.iter().map(|table| table.record.name.as_str()).collect()) {
            return Err("it has a table twice".into());
        }
        match twice(self.databases.iter().map(|database| database.record.name.as_str()).collect()) {
            true => Err("it has a database twice".into()),
            false => Ok(()),
        }
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
    use types::config::Holds;
    use types::data::Schema;
    use types::data::kind::{Kind, Sequence};
    use types::{CatalogTable, Lsn, Term};

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
            databases: Vec::new(),
        }
    }

    /// The same with a database of one table and one sequence.
    fn with_database() -> Manifest {
        let mut record = table(1).record().clone();
        (record.id, record.name, record.holds) = (TableId(70), "bank".into(), Holds::Database);
        let schema = table(1).schema().clone();
        let numbers = Sequence { bits: 64, start: 1, step: 1, least: 1, most: 9, cycle: false };
        let counted = schema.clone().of_kind(Kind::Sequence(numbers)).expect("valid");
        let own = |id: u32, name: &str, schema: Schema| {
            record.with_table(CatalogTable::new(TableId(id), name, schema, 0))
        };
        let at = Position::new(Term(1), Lsn(5));
        let whole = Whole { sum: Sum { rows: 1, bytes: 2, digest: 3 }, file_bytes: 9, file_hash: 8 };
        let part = PartitionEntry::new(record.first_partition, at, &whole).of_table(Some(TableId(71)));
        let tables = vec![
            TableEntry::new(own(71, "pets", schema), vec![part]),
            TableEntry::new(own(72, "pets_id_seq", counted), Vec::new()),
        ];
        Manifest { databases: vec![DatabaseEntry { record, tables }], ..manifest() }
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

    #[test]
    fn a_replicated_table_of_several_partitions_has_the_rows_of_the_first_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut good = with_database();
        let database = &mut good.databases[0];
        database.record.partitions = 3;
        database.tables.truncate(1);
        let partitions = database.tables[0].partitions.clone();
        let mut parts = table(1).schema().clone().into_parts();
        (parts.replicated, parts.version) = (true, 2);
        let schema = Schema::from_parts(parts).expect("valid");
        let record = database.record.with_table(CatalogTable::new(TableId(71), "pets", schema, 0));
        database.tables[0] = TableEntry::new(record, partitions);
        good.write(dir.path()).expect("writes");
        assert_eq!(Manifest::read(dir.path()).expect("reads"), good);
        // Any other table has rows in all of them.
        let mut parts = good.databases[0].tables[0].record.schema.clone().into_parts();
        parts.replicated = false;
        good.databases[0].tables[0].record.schema = Schema::from_parts(parts).expect("valid");
        good.write(dir.path()).expect("writes");
        assert!(matches!(Manifest::read(dir.path()), Err(Fault::Damage(_))));
    }

    #[test]
    fn one_with_a_database_is_of_a_format_of_its_own_and_is_checked_as_well() {
        let dir = tempfile::tempdir().expect("a directory");
        let good = with_database();
        good.write(dir.path()).expect("writes");
        assert_eq!(Manifest::read(dir.path()).expect("reads"), good);
        assert_eq!((good.rows(), good.file_bytes(), good.all().count()), (5, 409, 3));
        assert_eq!(good.databases[0].tables[0].partitions[0].file(), "p00064-t00071.rows");
        let text = std::fs::read_to_string(dir.path().join(NAME)).expect("there");
        assert!(text.starts_with("understudy-backup 2 "), "{}", &text[..40]);
        let wrong: [fn(&mut DatabaseEntry); 5] = [
            |one| one.tables[0].rows += 1,
            |one| one.tables[0].partitions[0].table = None,
            |one| one.tables[1].partitions = one.tables[0].partitions.clone(),
            |one| one.tables[1].record.name = "pets".into(),
            |one| one.record.holds = Holds::Table,
        ];
        for change in wrong {
            let mut bad = good.clone();
            change(&mut bad.databases[0]);
            bad.write(dir.path()).expect("writes");
            assert!(matches!(Manifest::read(dir.path()), Err(Fault::Damage(_))), "{bad:?}");
        }
    }
}
