//! The tables that there are, as new as the driver's last look at the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use types::TableRecord;

/// The definitions of all tables, as the cluster map has them.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Grows with every change of any table.
    pub revision: u64,
    /// The database that they are in.
    database: String,
    tables: BTreeMap<String, Arc<TableRecord>>,
}

impl Catalog {
    /// A table by its name.
    pub fn table(&self, name: &str) -> Option<&Arc<TableRecord>> {
        self.tables.get(name)
    }

    /// All tables, by their names.
    pub fn all(&self) -> impl Iterator<Item = &Arc<TableRecord>> {
        self.tables.values()
    }

    /// True if both have the same tables with the same columns.
    pub fn is_like(&self, tables: &BTreeMap<String, Arc<TableRecord>>) -> bool {
        self.tables.len() == tables.len()
            && self.tables.values().zip(tables.values()).all(|(one, two)| Arc::ptr_eq(one, two) || one == two)
    }

    /// From the records themselves, of tables that have partitions for themselves.
    pub fn from_map(revision: u64, tables: BTreeMap<String, Arc<TableRecord>>) -> Catalog {
        Catalog::of_database(crate::DATABASE, revision, tables)
    }

    /// The tables of a database.
    pub fn of_database(name: &str, revision: u64, tables: BTreeMap<String, Arc<TableRecord>>) -> Catalog {
        Catalog { revision, database: name.into(), tables }
    }

    /// The name of the database that they are in.
    pub fn database(&self) -> &str {
        &self.database
    }
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
