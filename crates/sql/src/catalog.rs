//! The tables that there are, as new as the driver's last look at the cluster.

use crate::search_path::SearchPath;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::data::Schema;
use types::data::kind::{Kind, Sequence};
use types::{CatalogTable, TableId, TableRecord, system};

/// Schemas that are always there.
pub const SCHEMAS: [&str; 4] = ["pg_catalog", "public", "information_schema", "understudy"];

/// The definitions of all tables, as the cluster map has them.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Grows with every change of any table.
    pub revision: u64,
    /// The database that they are in.
    database: String,
    tables: BTreeMap<String, Arc<TableRecord>>,
    /// Sequences and views.
    others: BTreeMap<String, Arc<TableRecord>>,
    /// Schemas besides `public`, by their names in the catalog, which end with a point.
    schemas: BTreeMap<String, Arc<TableRecord>>,
    /// What of a database's tables is under way.
    pub under_way: UnderWay,
    /// How many leading columns of primary keys choose the partition; 0: all tables lie in one.
    pub spread_by: usize,
    /// Where names without a schema are looked for.
    pub path: SearchPath,
    /// The versions under which partitions know tables that the transaction has altered which sees these.
    known: BTreeMap<TableId, u32>,
}

/// Tables of a database whose rows are being copied, and those that get them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnderWay {
    /// Tables that nobody writes, with the moment at which somebody has said so last, in milliseconds since
    /// 1970.
    pub held: BTreeMap<TableId, u64>,
    /// Tables that are being filled.
    pub fills: Vec<Fill>,
    /// Tables that have moved out, and have not got their names yet.
    pub moved: Vec<Moved>,
    /// Tables that take the place of bare ones, which are not dropped yet.
    pub following: Vec<Following>,
    /// What has a name of its own: that of a table that gets rows ([`as_filled`]) is none.
    pub named: BTreeSet<TableId>,
}

impl UnderWay {
    /// A table that is filled and takes the place of `of`, or what stands for one that has moved out.
    pub fn note(&mut self, table: &CatalogTable, of: TableId) {
        let (id, version) = (table.id, table.schema.version());
        match table.has_moved() {
            true => {
                let (name, since_ms) = (table.name.clone(), table.created_ms);
                self.moved.push(Moved { id, version, name, since_ms });
            }
            false => self.fills.push(Fill { id, version, of, since_ms: table.created_ms }),
        }
    }

    /// True while there are tables that nobody writes.
    pub fn is_waited_for(&self) -> bool {
        !(self.held.is_empty() && self.following.is_empty())
    }

    /// Something that has a name: it may be held.
    pub fn note_named(&mut self, table: &CatalogTable) {
        if system::moves(&table.name).is_none() {
            self.named.insert(table.id);
        }
        match (table.held_ms, table.follows()) {
            (Some(since_ms), Some(of)) => self.following.push(Following { id: table.id, of, since_ms }),
            (Some(since_ms), None) => drop(self.held.insert(table.id, since_ms)),
            (None, _) => {}
        }
    }
}

/// A table that has all rows of a bare one, under its name, and is written once that one is dropped (PR-404).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Following {
    /// Its id.
    pub id: TableId,
    /// The bare table.
    pub of: TableId,
    /// Since when it has been so, in milliseconds since 1970.
    pub since_ms: u64,
}

/// What stands for a table whose rows are in partitions of their own, as long as these have not got its name
/// (PR-378).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The number of the move: [`types::system::moving`] says where the rows are.
    pub id: TableId,
    /// Its version.
    pub version: u32,
    /// The table's name.
    pub name: String,
    /// Since when it has been so, in milliseconds since 1970.
    pub since_ms: u64,
}

/// A table that is being filled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fill {
    /// Its id.
    pub id: TableId,
    /// The version of its columns.
    pub version: u32,
    /// Whose place it takes; its own id: of none.
    pub of: TableId,
    /// When it was made, in milliseconds since 1970.
    pub since_ms: u64,
}

impl Catalog {
    /// A table by its name.
    pub fn table(&self, name: &str) -> Option<&Arc<TableRecord>> {
        self.tables.get(name)
    }

    /// A sequence or a view by its name.
    pub fn other(&self, name: &str) -> Option<&Arc<TableRecord>> {
        self.others.get(name)
    }

    /// A schema besides `public` by its name.
    pub fn schema(&self, name: &str) -> Option<&Arc<TableRecord>> {
        self.schemas.get(&format!("{name}."))
    }

    /// The first schema of the path that is there: what is made without a schema is made in it.
    pub fn current_schema(&self) -> Option<&str> {
        self.path.schemas().find(|schema| self.has_schema(schema))
    }

    /// The name in the catalog of what is there and has this name in a schema.
    pub fn named_in(&self, schema: &str, own: &str) -> Option<String> {
        let name = if schema == "public" { own.to_string() } else { format!("{schema}.{own}") };
        (self.tables.contains_key(&name) || self.others.contains_key(&name)).then_some(name)
    }

    /// The same with another path.
    pub fn on_path(&self, path: &SearchPath) -> Catalog {
        Catalog { path: path.clone(), ..self.clone() }
    }

    /// True if there is a schema of this name.
    pub fn has_schema(&self, name: &str) -> bool {
        SCHEMAS.contains(&name) || self.schema(name).is_some()
    }

    /// All schemas besides `public`, with their names.
    pub fn schemas(&self) -> impl Iterator<Item = (&str, &Arc<TableRecord>)> {
        self.schemas.iter().map(|(name, schema)| (name.strip_suffix('.').unwrap_or(name), schema))
    }

    /// The schema that a relation of this name lies in, and its name there; without a schema: `public`.
    pub fn placed<'a>(&self, name: &'a str) -> (Option<&'a str>, &'a str) {
        match name.split_once('.') {
            Some((schema, own)) if !own.is_empty() && self.schema(schema).is_some() => (Some(schema), own),
            _ => (None, name),
        }
    }

    /// The relations and procedures of a schema, with their names in the catalog.
    pub fn in_schema(&self, name: &str) -> impl Iterator<Item = &Arc<TableRecord>> {
        let begin = format!("{name}.");
        self.tables.values().chain(self.others.values()).filter(move |one| one.name.starts_with(&begin))
    }

    /// All sequences and views, by their names.
    pub fn others(&self) -> impl Iterator<Item = &Arc<TableRecord>> {
        self.others.values()
    }

    /// All that is no table: sequences, views, procedures and schemas.
    pub fn definitions(&self) -> impl Iterator<Item = &Arc<TableRecord>> {
        self.others.values().chain(self.schemas.values())
    }

    /// A sequence by its id.
    pub fn sequence_by_id(&self, id: TableId) -> Option<(&str, Sequence)> {
        let found = self.others.values().find(|other| other.id == id)?;
        match found.schema.kind() {
            Some(Kind::Sequence(sequence)) => Some((&found.name, *sequence)),
            _ => None,
        }
    }

    /// True if a table, a sequence, a view or an index has this name.
    pub fn has_relation(&self, name: &str) -> bool {
        let index = |table: &Arc<TableRecord>| {
            let named = table.schema.constraint_named(name).is_some_and(|one| one.named_index().is_some());
            named || table.indexes.named(name).is_some()
        };
        let moved = self.under_way.moved.iter().any(|moved| moved.name == name);
        let known = self.tables.contains_key(name) || self.others.contains_key(name) || moved;
        known || self.tables.values().any(index)
    }

    /// All tables, by their names.
    pub fn all(&self) -> impl Iterator<Item = &Arc<TableRecord>> {
        self.tables.values()
    }

    /// True if both have the same tables with the same columns.
    pub fn is_like(&self, tables: &BTreeMap<String, Arc<TableRecord>>) -> bool {
        let known = |(name, table): (&String, &Arc<TableRecord>)| {
            let own = self.tables.get(name).or_else(|| self.others.get(name));
            let own = own.or_else(|| self.schemas.get(name));
            own.is_some_and(|own| Arc::ptr_eq(own, table) || own == table)
        };
        let count = self.tables.len() + self.others.len() + self.schemas.len();
        count == tables.len() && tables.iter().all(known)
    }

    /// From the records themselves, of tables that have partitions for themselves.
    pub fn from_map(revision: u64, tables: BTreeMap<String, Arc<TableRecord>>) -> Catalog {
        Catalog::of_database(crate::DATABASE, revision, tables)
    }

    /// The tables of a database.
    pub fn of_database(name: &str, revision: u64, tables: BTreeMap<String, Arc<TableRecord>>) -> Catalog {
        let (others, tables): (BTreeMap<_, _>, _) =
            tables.into_iter().partition(|(_, table)| table.schema.kind().is_some());
        let is_schema = |table: &TableRecord| table.schema.kind() == Some(&Kind::Schema);
        let (schemas, others) = others.into_iter().partition(|(_, other)| is_schema(other));
        let under_way = UnderWay::default();
        let path = SearchPath::default();
        let (database, spread_by, known) = (name.into(), 0, BTreeMap::new());
        Catalog { revision, database, tables, others, schemas, under_way, spread_by, path, known }
    }

    /// The same of a database that is spread by so many columns.
    pub fn spread_by(self, spread_by: usize) -> Catalog {
        Catalog { spread_by, ..self }
    }

    /// The same with what is under way.
    pub fn with(self, under_way: UnderWay) -> Catalog {
        Catalog { under_way, ..self }
    }

    /// The same tables without some, and with others: as a transaction sees them that has changed them.
    pub fn overlaid<'a>(
        &self,
        revision: u64,
        gone: impl Fn(TableId) -> bool,
        more: impl Iterator<Item = &'a Arc<TableRecord>>,
    ) -> Catalog {
        let kept = self.tables.iter().chain(&self.others).chain(&self.schemas);
        let kept = kept.filter(|(_, table)| !gone(table.id));
        let mut tables: BTreeMap<_, _> = kept.map(|(name, table)| (name.clone(), table.clone())).collect();
        tables.extend(more.map(|table| (table.name.clone(), table.clone())));
        let seen = Catalog::of_database(&self.database, revision, tables).with(self.under_way.clone());
        seen.spread_by(self.spread_by)
    }

    /// The same where partitions know some tables under these versions.
    pub fn known_as(mut self, versions: impl IntoIterator<Item = (TableId, u32)>) -> Catalog {
        self.known.extend(versions);
        self
    }

    /// The version under which partitions know a table that has this one here.
    pub fn known_version(&self, table: TableId, version: u32) -> u32 {
        self.known.get(&table).copied().unwrap_or(version)
    }

    /// True if a table that is made here lies in the database's partition, unless it says otherwise.
    pub fn is_of_database(&self) -> bool {
        !self.database.is_empty()
    }

    /// True if the database has tables with partitions for themselves beside those that lie together.
    pub fn has_both(&self) -> bool {
        self.database == crate::DATABASE
    }

    /// True if what is done to a table of this name is done in the catalog of the database's partition.
    pub fn is_within(&self, name: &str) -> bool {
        match self.tables.get(name) {
            Some(table) => table.database().is_some(),
            None => self.is_of_database(),
        }
    }

    /// These tables and those of another catalog. Of two with one name these have it.
    pub fn beside(&self, revision: u64, other: &Catalog) -> Catalog {
        let all = other.tables.iter().chain(&other.others).chain(&other.schemas);
        let all = all.chain(&self.tables).chain(&self.others).chain(&self.schemas);
        let tables = all.map(|(name, table)| (name.clone(), table.clone())).collect();
        Catalog::of_database(&self.database, revision, tables).with(other.under_way.clone())
    }

    /// True if both have the same tables with the same columns, under the same names.
    pub fn is_same(&self, other: &Catalog) -> bool {
        let known = |name: &str, table: &Arc<TableRecord>| {
            let own = other.tables.get(name).or_else(|| other.others.get(name));
            let own = own.or_else(|| other.schemas.get(name));
            own.is_some_and(|own| Arc::ptr_eq(own, table) || own == table)
        };
        let mut all = self.tables.iter().chain(&self.others).chain(&self.schemas);
        let count = |catalog: &Catalog| (catalog.tables.len(), catalog.others.len(), catalog.schemas.len());
        count(self) == count(other) && all.all(|(name, table)| known(name, table))
    }

    /// The name of the database that they are in.
    pub fn database(&self) -> &str {
        &self.database
    }
}

/// A table that gets the rows of a bare one, which has no name yet, as it is shown meanwhile: they can be
/// counted. `None`: it is none of these.
pub fn as_filled(table: CatalogTable) -> Option<CatalogTable> {
    table.follows()?;
    Some(CatalogTable { name: system::moving(table.id), ..table })
}

/// A table's definition under another version.
pub fn as_of(table: &TableRecord, version: u32) -> CatalogTable {
    let mut parts = table.schema.clone().into_parts();
    parts.version = version;
    let schema = Schema::from_parts(parts).expect("a version that was given out");
    CatalogTable::new(table.id, &table.name, schema, table.created_ms)
}

/// A table for tests: `t`, with these columns, of which `id` is the key.
#[cfg(test)]
pub(crate) fn example(columns: Vec<types::data::Column>) -> TableRecord {
    use types::{LogKind, Policy, TableId};
    TableRecord::new(
        TableId(1),
        "t",
        types::data::Schema::new(columns, &["id"], 1, false).expect("valid"),
        Policy::preset("durable", 1, LogKind::Disk).expect("valid"),
    )
}
