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
use crate::data::kind::{Kind, Procedure};
use crate::data::signature::{Signature, keyless};
use crate::data::{Column, ColumnType, Constraint, Schema, SchemaError, Standing};
use crate::ids::TableId;
use crate::index::{IndexRecord, Indexes};
use crate::keyspace::KeySpace;
use crate::position::Position;
use crate::ranges::Ranges;
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// The database that is always there. Its tables have partitions of their own, or lie together in one, which
/// is kept like any other database's and has a record of this name from its first table on.
pub const SHARED: &str = "understudy";
/// The most tables of a database.
pub const MAX_TABLES: usize = 2_000;
/// The longest definition of a table, in bytes.
pub const MAX_TABLE_BYTES: usize = 128 << 10;

/// The longest name of a table, in bytes.
pub const MAX_NAME_BYTES: usize = 63;

/// The first version of a replicated table that has a name.
pub const FIRST_REPLICATED: u32 = 2;

/// The columns of a catalog.
const CATALOG_COLUMNS: usize = 2;
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
    /// In other partitions than the first one of its database: the entry of that one's log that has this
    /// definition, under the term in which it was read there. If that log has the entry still, and the table
    /// is there no more, then it was dropped (PR-172).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Position>,
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
    /// It is read, and written by nobody: its rows are being copied (PR-124), or it is replicated (PR-406).
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
            seen: None,
            unknown: Unknown::default(),
        }
    }

    /// A procedure with these parameters. The error is a sentence.
    pub fn procedure(
        id: TableId,
        name: &str,
        parameters: &[Column],
        procedure: Procedure,
        created_ms: u64,
    ) -> Result<CatalogTable, String> {
        Signature::new(&procedure.results).map_err(|error| error.to_string())?;
        let schema = keyless(parameters).and_then(|schema| schema.of_kind(Kind::Procedure(procedure)));
        let table = CatalogTable::new(id, name, schema.map_err(|error| error.to_string())?, created_ms);
        table.fault().map_or(Ok(table), Err)
    }

    /// A field among those that older versions do not know, of a table that is filled: the table that it was
    /// made for is dropped, and has all rows in partitions of its own, under the name of
    /// [`crate::system::moving`]. What is left to do is to give these the name, and to drop this one
    /// (PR-378).
    pub const MOVED: &str = "moved";

    /// True if it stands for a table that has moved out.
    pub fn has_moved(&self) -> bool {
        self.unknown.get(CatalogTable::MOVED) == Some(&serde_json::Value::Bool(true))
    }

    /// How far it is, unless it is being removed.
    pub fn state(&self) -> TableState {
        match (self.fills, self.held_ms) {
            (Some(_), _) => TableState::Filling,
            (None, Some(_)) => TableState::Held,
            (None, None) if self.schema.is_replicated() => TableState::Held,
            (None, None) => TableState::Live,
        }
    }

    /// What is wrong with it by itself, as a sentence.
    pub fn fault(&self) -> Option<String> {
        let good = (1..=MAX_NAME_BYTES).contains(&self.name.len()) && !self.name.contains(char::is_control);
        if !good {
            return Some(format!(
                "`{}` is no name of a table: 1 to {MAX_NAME_BYTES} bytes, all printable",
                self.name
            ));
        }
        if self.id == TableId(0) {
            return Some("a table's id was not given out".into());
        }
        if let Some(fault) = self.fault_of_replicated() {
            return Some(fault);
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

    /// The same of a table that is replicated: other partitions have it under the version before, as long as
    /// they are being filled ([`CatalogTable::to_fill`]), and a partition knows rows of itself alone.
    fn fault_of_replicated(&self) -> Option<String> {
        if !self.schema.is_replicated() {
            return None;
        }
        let name = &self.name;
        if self.fills.is_none() && self.schema.version() < FIRST_REPLICATED {
            return Some(format!(
                "the versions of the replicated table `{name}` begin with {FIRST_REPLICATED}"
            ));
        }
        let refers = self.schema.constraints().iter().any(|one| one.reference().is_some());
        refers.then(|| format!("the replicated table `{name}` refers to another one"))
    }

    /// This definition of a replicated table for a partition that has not got all of its rows yet: without a
    /// name, under the version before. The error is a sentence.
    pub fn to_fill(&self) -> Result<CatalogTable, String> {
        let mut parts = self.schema.clone().into_parts();
        parts.version = parts.version.saturating_sub(1);
        parts.constraints.retain(Constraint::is_enforced);
        let schema = Schema::from_parts(parts).map_err(|error| error.to_string())?;
        Ok(CatalogTable { schema, fills: Some(self.id), held_ms: None, ..self.clone() })
    }

    /// Why this definition cannot take the place of `before`, if so: rows that were written under any older
    /// one must stay readable (PR-122). A table may get another name, and columns at the end that are
    /// nullable or say what older rows have. Columns may get other names and rules: SQL sees to it that rows
    /// keep them.
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
        let alike = match (old.kind(), new.kind()) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is_like(other),
            _ => false,
        };
        if !alike {
            return Some(format!("`{name}` cannot become something else"));
        }
        let (before, after) = (old.columns(), new.columns());
        let added = after.get(before.len()..);
        let pairs = before.iter().zip(after).enumerate();
        let kept = |(at, (one, other)): (usize, (&Column, &Column))| {
            let nulls = one.nullable == other.nullable || !old.key().contains(&at);
            nulls && one.column_type == other.column_type && one.rules.missing == other.rules.missing
        };
        let place = |of: &Schema| (of.partition_by(), of.is_open(), of.is_replicated());
        let same_key = new.key() == old.key() && place(new) == place(old);
        let filled = |column: &Column| column.nullable || column.rules.missing.is_some();
        match added {
            Some(added) if same_key && pairs.into_iter().all(kept) && added.iter().all(filled) => None,
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

/// True if a definition is one of a table: sequences, views and procedures have no rows. The error is a
/// sentence. Most definitions are told apart by their bytes; only one that names a kind, be it a column's
/// name, is read.
pub fn has_rows(table: TableId, value: &[u8]) -> Result<bool, String> {
    if memchr::memmem::find(value, br#""kind":"#).is_none() {
        return Ok(true);
    }
    let (_, table) = CatalogTable::decode(&table.0.to_be_bytes(), value)?;
    Ok(table.schema.kind().is_none())
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

/// The same of a database of several partitions: behind the catalog's columns stand those that choose the
/// partition, of which each row of its tables has the values.
pub fn catalog_schema_by(partition_key: &[Column]) -> Result<Schema, SchemaError> {
    let mut parts = catalog_schema().into_parts();
    parts.columns.extend(partition_key.iter().cloned());
    Schema::from_parts(parts)
}

impl TableRecord {
    /// The columns that choose the partition of a row, whichever table of this database it is of. None: it
    /// has one partition.
    pub fn partition_key(&self) -> &[Column] {
        let own = if self.is_database() { self.schema.columns() } else { &[] };
        own.get(CATALOG_COLUMNS..).unwrap_or_default()
    }

    /// The columns of a table as one of this database: its key must begin with those that choose the
    /// partition, unless it is replicated. Where one transaction reaches all rows in any case no table is.
    /// The error is a sentence.
    pub fn placed(&self, schema: Schema) -> Result<Schema, String> {
        let wanted = self.partition_key();
        if self.is_global() && schema.kind().is_none() {
            return self.placed_by_itself(schema);
        }
        if schema.kind().is_some() {
            return Ok(schema);
        }
        if schema.is_replicated() {
            return whole(schema, !wanted.is_empty()).map_err(|error| error.to_string());
        }
        if wanted.is_empty() {
            return Ok(schema);
        }
        let is =
            |(one, other): (&Column, &Column)| one.name == other.name && one.column_type == other.column_type;
        let key: Vec<&Column> = schema.key_columns().collect();
        if key.len() < wanted.len() || !wanted.iter().zip(key).all(is) {
            let columns = wanted.iter().map(|column| format!("{} {}", column.name, column.column_type));
            return Err(format!(
                "the primary key must begin with {}: rows of database `{}` are spread by that",
                columns.collect::<Vec<_>>().join(", "),
                self.name
            ));
        }
        let mut parts = schema.into_parts();
        parts.partition_by = wanted.len();
        Schema::from_parts(parts).map_err(|error| error.to_string())
    }

    /// The columns of a table as one of this database, whose transactions reach over all partitions: it is
    /// spread by its own key. The error is a sentence.
    fn placed_by_itself(&self, schema: Schema) -> Result<Schema, String> {
        if let Some(constraint) = schema.constraints().iter().find(|one| !one.forbids_nothing()) {
            return Err(format!(
                "the constraint `{}` cannot be kept: transactions of database `{}` are global, and check keys alone",
                constraint.name, self.name
            ));
        }
        whole(schema, false).map_err(|error| error.to_string())
    }

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

    /// A table of this database as a record: its own name and columns, and the database's partitions; of a
    /// replicated one the first of these, so that its rows are read and counted once. Clients have such
    /// records; the metastore has none.
    pub fn with_table(&self, table: CatalogTable) -> TableRecord {
        assert!(self.is_database(), "{} is no database", self.name);
        let (partitions, ranges) = match table.schema.is_replicated() {
            true => (1, Ranges::default()),
            false => (self.partitions, self.ranges.clone()),
        };
        TableRecord {
            partitions,
            ranges,
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

/// The columns of a table that is replicated, or not.
fn whole(schema: Schema, replicated: bool) -> Result<Schema, SchemaError> {
    if !replicated && !schema.is_replicated() {
        return Ok(schema);
    }
    let mut parts = schema.into_parts();
    parts.replicated = replicated;
    if replicated {
        parts.version = parts.version.max(FIRST_REPLICATED);
    }
    Schema::from_parts(parts)
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
            for length in 0..value.len() {
                assert!(CatalogTable::decode(&key[2..], &value[..length]).is_err(), "cut at {length}");
            }
        }
        assert!(CatalogTable::decode(&[0, 0, 0, 8], &one.encode(TableState::Live)).is_err());
        let mut moved = CatalogTable { fills: Some(one.id), ..one.clone() };
        moved.unknown.insert(CatalogTable::MOVED.into(), true.into());
        let read = CatalogTable::decode(&key[2..], &moved.encode(moved.state())).map(|(_, table)| table);
        assert!(read == Ok(moved.clone()) && moved.has_moved() && !one.has_moved());
        assert!(standing_of(&[1, 9, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn pr122_only_what_leaves_rows_readable_takes_the_place_of_a_definition() {
        let old = table(&[("id", Int), ("name", Text)], 3);
        let fits = |new: &CatalogTable| new.change_fault(&old).is_none();
        assert!(fits(&table(&[("id", Int), ("name", Text), ("age", Int)], 9)));
        assert!(fits(&CatalogTable { name: "animals".into(), ..table(&[("id", Int), ("name", Text)], 4) }));
        assert!(fits(&table(&[("id", Int), ("names", Text)], 4)));
        for (columns, version) in [
            (&[("id", Int), ("name", Text)][..], 3),
            (&[("id", Int), ("name", Text), ("age", Int)], 2),
            (&[("id", Int)], 4),
            (&[("id", Int), ("name", Int)], 4),
            (&[("id", Int), ("age", Int), ("name", Text)], 4),
        ] {
            assert!(!fits(&table(columns, version)), "{columns:?} {version}");
        }
        assert!(!fits(&CatalogTable { id: TableId(8), ..table(&[("id", Int), ("name", Text)], 4) }));
        let mut strict = table(&[("id", Int), ("name", Text), ("age", Int)], 4).schema.into_parts();
        strict.columns[2].nullable = false;
        let with = |parts| CatalogTable { schema: Schema::from_parts(parts).expect("valid"), ..old.clone() };
        assert!(!fits(&with(strict.clone())));
        strict.columns[2].rules.missing = Some("7".into());
        assert!(fits(&with(strict.clone())));
        strict.columns[1].rules.missing = Some("x".into());
        assert!(!fits(&with(strict)), "older rows would have something else");
        let mut key = table(&[("id", Int), ("name", Text)], 4).schema.into_parts();
        key.columns[0].nullable = !key.columns[0].nullable;
        assert!(!fits(&with(key)));
    }

    #[test]
    fn tables_of_several_partitions_begin_with_what_spreads_them() {
        let by = [Column::new("w", Int), Column::new("d", Text)];
        let policy = crate::Policy::preset("durable", 1, crate::LogKind::Disk).expect("a preset");
        let schema = catalog_schema_by(&by).expect("valid");
        let mut database = TableRecord::new(TableId(5), "bank", schema, policy);
        database.holds = Holds::Database;
        assert_eq!(database.partition_key(), by);
        let of = |columns: &[(&str, ColumnType)], key: &[&str]| {
            let columns = columns.iter().map(|(name, of)| Column::new(*name, *of)).collect();
            Schema::new(columns, key, key.len(), false).expect("valid")
        };
        let good = of(&[("id", Int), ("d", Text), ("w", Int)], &["w", "d", "id"]);
        assert_eq!(database.placed(good).map(|schema| schema.partition_by()), Ok(2));
        for (columns, key) in [
            (&[("id", Int), ("d", Text), ("w", Int)][..], &["d", "w"][..]),
            (&[("d", Text), ("w", Int)], &["w"]),
            (&[("d", Int), ("w", Int)], &["w", "d"]),
        ] {
            let why = database.placed(of(columns, key)).expect_err("refused");
            assert!(why.starts_with("the primary key must begin with w int, d text"), "{why}");
        }
        assert!(catalog_schema_by(&[Column::new("table", Int)]).is_err());
        database.schema = catalog_schema();
        let plain = of(&[("id", Int), ("d", Text)], &["d"]);
        assert_eq!(database.placed(plain.clone()), Ok(plain));
    }

    /// A database that is spread over so many partitions by `w`.
    fn spread(partitions: u32) -> TableRecord {
        let by = [Column::new("w", Int)];
        let policy = crate::Policy::preset("durable", 1, crate::LogKind::Disk).expect("a preset");
        let by = if partitions > 1 { &by[..] } else { &[][..] };
        let record = TableRecord::new(TableId(5), "bank", catalog_schema_by(by).expect("valid"), policy);
        TableRecord { holds: Holds::Database, partitions, ..record }
    }

    #[test]
    fn pr406_a_replicated_table_is_written_by_nobody_while_it_has_a_name() {
        let mut parts = schema(&[("id", Int)], 1).into_parts();
        parts.replicated = true;
        let asked = Schema::from_parts(parts).expect("valid");
        assert!(!spread(1).placed(asked.clone()).expect("placed").is_replicated(), "all rows are there");
        let placed = spread(4).placed(asked).expect("its key may begin with anything");
        assert_eq!((placed.is_replicated(), placed.version()), (true, FIRST_REPLICATED));
        let named = CatalogTable::new(TableId(7), "item", placed, 5);
        assert_eq!((named.state(), named.fault()), (TableState::Held, None));
        let filling = named.to_fill().expect("the version before");
        assert_eq!((filling.state(), filling.fault()), (TableState::Filling, None));
        assert_eq!((filling.schema.version(), named.change_fault(&filling)), (1, None));
        assert!(CatalogTable { fills: None, ..filling }.fault().is_some(), "nothing comes before version 1");
        let record = spread(4).with_table(named.clone());
        assert_eq!((record.partitions, record.schema.is_replicated()), (1, true), "its rows count once");
        let mut parts = named.schema.clone().into_parts();
        (parts.replicated, parts.version) = (false, 9);
        let plain = CatalogTable { schema: Schema::from_parts(parts).expect("valid"), ..named.clone() };
        assert!(plain.change_fault(&named).is_some(), "it stays what it is");
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
