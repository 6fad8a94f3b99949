//! Databases: partitions that hold several tables, and the catalog, which is rows of the partition.
//!
//! A database's record in the metastore is a [`TableRecord`] that [`Holds::Database`]: partitions, policy,
//! engine, log and placement. Which tables it has is not there. Each table is a row of the partition, in
//! [`KeySpace::Catalog`], changed by entries of its log: at every LSN the catalog is what rows of that LSN
//! were written by.
//!
//! The key of such a row is the table's id (u32, big-endian). Ids come from the cluster's record and are
//! never given out again; so are versions of schemas behind the first. The value:
//!
//! ```text
//! 0 format u8 (1) | 1 state u8 | 2 version of the schema u32
//! 6 JSON: the table, its schema among it
//! ```

use crate::config::{Holds, TableRecord, Unknown};
use crate::data::constraint::settled;
use crate::data::{Column, ColumnType, Constraint, Schema, Standing};
use crate::ids::TableId;
use crate::index::{IndexRecord, Indexes};
use crate::keyspace::KeySpace;
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// The most tables of a database.
pub const MAX_TABLES: usize = 2_000;
/// The longest definition of a table, in bytes.
pub const MAX_TABLE_BYTES: usize = 128 << 10;

const FORMAT: u8 = 1;
/// What stands before the definition.
const HEAD_BYTES: usize = 6;

/// A table of a database.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CatalogTable {
    /// Never used again in the cluster.
    pub id: TableId,
    /// Its name, unique in its database. Any that a column may have.
    pub name: String,
    /// Columns and key. Its version is never used again for this table, whatever becomes of the entry that
    /// brought it (PR-120).
    pub schema: Schema,
    /// When it was created, milliseconds since 1970.
    pub created_ms: u64,
    /// Since when nobody writes it, because its rows are being copied into another id, milliseconds since
    /// 1970. Whoever copies says so again and again; a hold that nobody has renewed is lifted by anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
    /// It is being filled, and takes the place of this table when that is done; its own id if of none. Until
    /// then nobody sees it by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fills: Option<TableId>,
    /// What this version does not know.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// How far a table of a database is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TableState {
    /// It is read and written.
    Live = 1,
    /// It was dropped: nobody reads or writes it, and its rows are being removed.
    Dropping = 2,
    /// It is read, and written by nobody (PR-124).
    Held = 3,
    /// It is read and written by whoever knows its id, and has no name yet.
    Filling = 4,
}

impl TableState {
    fn from_number(number: u8) -> Option<TableState> {
        use TableState::*;
        [Live, Dropping, Held, Filling].into_iter().find(|state| *state as u8 == number)
    }

    /// True if tables of the database are known by its name.
    pub fn is_named(self) -> bool {
        matches!(self, TableState::Live | TableState::Held)
    }
}

impl CatalogTable {
    /// A table of these columns. Whether it may be made is another question ([`CatalogTable::fault`]).
    pub fn new(id: TableId, name: &str, schema: Schema, created_ms: u64) -> CatalogTable {
        CatalogTable {
            id,
            name: name.into(),
            schema,
            created_ms,
            held_ms: None,
            fills: None,
            unknown: Unknown::default(),
        }
    }

    /// How far it is, unless it is being removed.
    pub fn state(&self) -> TableState {
        match (self.fills, self.held_ms) {
            (Some(_), _) => TableState::Filling,
            (None, Some(_)) => TableState::Held,
            (None, None) => TableState::Live,
        }
    }

    /// What is wrong with it by itself, as a sentence.
    pub fn fault(&self) -> Option<String> {
        let good = (1..=63).contains(&self.name.len()) && !self.name.contains(char::is_control);
        if !good {
            return Some(format!("`{}` is no name of a table: 1 to 63 bytes, all printable", self.name));
        }
        if self.id == TableId(0) {
            return Some("a table's id was not given out".into());
        }
        if self.fills.is_some() && self.held_ms.is_some() {
            return Some(format!("table `{}` is filled and held", self.name));
        }
        if self.schema.version() == u32::MAX {
            return Some(format!("table `{}` could never be changed after such a version", self.name));
        }
        (self.encode(TableState::Live).len() > MAX_TABLE_BYTES).then(|| {
            format!("the definition of table `{}` is longer than {MAX_TABLE_BYTES} bytes", self.name)
        })
    }

    /// Why this definition cannot take the place of `before`, if so: rows that were written under any older
    /// one must stay readable (PR-122). A table may get another name, and nullable columns at the end.
    pub fn change_fault(&self, before: &CatalogTable) -> Option<String> {
        let (old, new) = (&before.schema, &self.schema);
        let name = &before.name;
        if self.fills.is_some() && before.fills.is_none() {
            return Some(format!("table `{name}` is seen by others and cannot be filled anew"));
        }
        if self.id != before.id {
            return Some(format!("table `{name}` has another id"));
        }
        if new.version() <= old.version() {
            return Some(format!(
                "version {} of table `{name}` does not follow version {} (PR-120)",
                new.version(),
                old.version()
            ));
        }
        let grown = new.columns().strip_prefix(old.columns());
        let same_key =
            (new.key(), new.partition_by(), new.is_open()) == (old.key(), old.partition_by(), old.is_open());
        match grown {
            Some(added) if same_key && added.iter().all(|column| column.nullable) => None,
            _ => Some(format!("rows of table `{name}` that are there could not be read by the new columns")),
        }
    }

    /// This definition in the place of `before`: how far constraints are says that one ([`settled`]). The
    /// error is a sentence.
    pub fn behind(self, before: &CatalogTable) -> Result<CatalogTable, String> {
        let all = settled(before.schema.constraints(), self.schema.constraints());
        self.constrained(all)
    }

    /// The same with these constraints. The error is a sentence.
    pub fn constrained(self, constraints: Vec<Constraint>) -> Result<CatalogTable, String> {
        let schema = self.schema.with_constraints(constraints).map_err(|error| error.to_string())?;
        Ok(CatalogTable { schema, ..self })
    }

    /// The stored key of its row.
    pub fn stored_key(&self) -> Bytes {
        catalog_key(self.id)
    }

    /// Its row's value.
    pub fn encode(&self, state: TableState) -> Bytes {
        let json = serde_json::to_vec(self).expect("names and numbers");
        let mut out = BytesMut::with_capacity(HEAD_BYTES + json.len());
        out.put_u8(FORMAT);
        out.put_u8(state as u8);
        out.put_u32_le(self.schema.version());
        out.put_slice(&json);
        out.freeze()
    }

    /// From a catalog's row: its key, without space, and its value. The error is a sentence.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<(TableState, CatalogTable), String> {
        let id = key.try_into().map(|bytes| TableId(u32::from_be_bytes(bytes)));
        let id = id.map_err(|_| "the key of a table's definition is damaged".to_string())?;
        let (state, version) = standing_of(value)?;
        let table: CatalogTable = serde_json::from_slice(&value[HEAD_BYTES..])
            .map_err(|error| format!("the definition of table {id} cannot be read: {error}"))?;
        match table.id == id && table.schema.version() == version {
            true => Ok((state, table)),
            false => Err(format!("the definition of table {id} is one of {}", table.id)),
        }
    }
}

/// State and version of a definition, without reading all of it. The error is a sentence.
pub fn standing_of(value: &[u8]) -> Result<(TableState, u32), String> {
    match value {
        [FORMAT, state, a, b, c, d, ..] => {
            let known = TableState::from_number(*state);
            let known = known.ok_or_else(|| format!("a table is in the unknown state {state}"))?;
            Ok((known, u32::from_le_bytes([*a, *b, *c, *d])))
        }
        _ => Err("the definition of a table is in a format that this release does not know".into()),
    }
}

/// The stored key of a table's definition.
pub fn catalog_key(table: TableId) -> Bytes {
    KeySpace::Catalog.row_key(&table.0.to_be_bytes())
}

/// The columns that a database's own record has: those of its catalog.
pub fn catalog_schema() -> Schema {
    let columns = vec![Column::new("table", ColumnType::Int), Column::new("definition", ColumnType::Json)];
    Schema::new(columns, &["table"], 1, false).expect("a catalog's columns are valid")
}

impl TableRecord {
    /// True if it is a database's.
    pub fn is_database(&self) -> bool {
        self.holds == Holds::Database
    }

    /// The database that this table is in, if it is in one.
    pub fn database(&self) -> Option<TableId> {
        match self.holds {
            Holds::TableOf(database) => Some(database),
            Holds::Table | Holds::Database => None,
        }
    }

    /// A table of this database as a record: its own name and columns, and the database's partitions. Clients
    /// have such records; the metastore has none.
    pub fn with_table(&self, table: CatalogTable) -> TableRecord {
        assert!(self.is_database(), "{} is no database", self.name);
        TableRecord {
            id: table.id,
            name: table.name,
            indexes: indexes_of(&table.schema),
            schema: table.schema,
            created_ms: table.created_ms,
            holds: Holds::TableOf(self.id),
            ..self.clone()
        }
    }
}

/// The indexes of constraints by which rows can be found.
fn indexes_of(schema: &Schema) -> Indexes {
    let of = |constraint: &Constraint| {
        let columns = constraint.indexed().filter(|_| constraint.standing == Standing::Valid)?.to_vec();
        Some(IndexRecord { number: constraint.number, name: constraint.name.clone(), columns })
    };
    let wanted: Vec<IndexRecord> = schema.constraints().iter().filter_map(of).collect();
    Indexes { last: wanted.iter().map(|index| index.number).max().unwrap_or(0), wanted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ColumnType::{Int, Text};

    fn schema(columns: &[(&str, ColumnType)], version: u32) -> Schema {
        let columns = columns.iter().map(|(name, of)| Column::new(*name, *of)).collect();
        let mut parts = Schema::new(columns, &["id"], 1, false).expect("valid").into_parts();
        parts.version = version;
        Schema::from_parts(parts).expect("valid")
    }

    fn table(columns: &[(&str, ColumnType)], version: u32) -> CatalogTable {
        CatalogTable::new(TableId(7), "pets", schema(columns, version), 5)
    }

    #[test]
    fn a_definition_reads_back_and_cuts_are_noticed() {
        let one = table(&[("id", Int), ("name", Text)], 3);
        let key = one.stored_key();
        assert_eq!(key[..], [3, 0x63, 0, 0, 0, 7]);
        for state in [TableState::Live, TableState::Dropping, TableState::Held, TableState::Filling] {
            let value = one.encode(state);
            assert_eq!(CatalogTable::decode(&key[2..], &value), Ok((state, one.clone())));
            assert_eq!(standing_of(&value), Ok((state, 3)));
            for cut in 0..value.len() {
                assert!(CatalogTable::decode(&key[2..], &value[..cut]).is_err(), "cut at {cut}");
            }
        }
        assert!(CatalogTable::decode(&[0, 0, 0, 8], &one.encode(TableState::Live)).is_err());
        assert!(standing_of(&[1, 9, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn pr122_only_what_leaves_rows_readable_takes_the_place_of_a_definition() {
        let old = table(&[("id", Int), ("name", Text)], 3);
        let fits = |new: &CatalogTable| new.change_fault(&old).is_none();
        assert!(fits(&table(&[("id", Int), ("name", Text), ("age", Int)], 9)));
        assert!(fits(&CatalogTable { name: "animals".into(), ..table(&[("id", Int), ("name", Text)], 4) }));
        for (columns, version) in [
            (&[("id", Int), ("name", Text)][..], 3),
            (&[("id", Int), ("name", Text), ("age", Int)], 2),
            (&[("id", Int)], 4),
            (&[("id", Int), ("name", Int)], 4),
            (&[("id", Int), ("age", Int), ("name", Text)], 4),
            (&[("id", Int), ("names", Text)], 4),
        ] {
            assert!(!fits(&table(columns, version)), "{columns:?} {version}");
        }
        assert!(!fits(&CatalogTable { id: TableId(8), ..table(&[("id", Int), ("name", Text)], 4) }));
        let mut strict = table(&[("id", Int), ("name", Text), ("age", Int)], 4).schema.into_parts();
        strict.columns[2].nullable = false;
        let strict = Schema::from_parts(strict).expect("valid");
        assert!(!fits(&CatalogTable { schema: strict, ..old.clone() }));
    }

    #[test]
    fn names_are_checked_and_a_table_has_its_databases_partitions() {
        let one = table(&[("id", Int)], 1);
        assert_eq!(one.fault(), None);
        for wrong in ["", "a\nb", &"x".repeat(64)] {
            assert!(CatalogTable { name: wrong.into(), ..one.clone() }.fault().is_some(), "{wrong:?}");
        }
        let policy = crate::Policy::preset("durable", 1, crate::LogKind::Disk).expect("a preset");
        let mut database = TableRecord::new(TableId(5), "bank", catalog_schema(), policy);
        database.holds = Holds::Database;
        let record = database.with_table(one);
        assert_eq!(
            (record.id, record.name.as_str(), record.database()),
            (TableId(7), "pets", Some(TableId(5)))
        );
        assert!(record.partition_ids().eq(database.partition_ids()) && !record.is_database());
    }
}
