//! The tables that there are, as new as the driver's last look at the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use types::{TableId, TableRecord};

/// The definitions of all tables, as the cluster map has them.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Grows with every change of any table.
    pub revision: u64,
    /// The database that they are in.
    database: String,
    tables: BTreeMap<String, Arc<TableRecord>>,
    /// What of a database's tables is under way.
    pub under_way: UnderWay,
}

/// Tables of a database whose rows are being copied, and those that get them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnderWay {
    /// Tables that nobody writes, with the moment at which somebody has said so last, in milliseconds since
    /// 1970.
    pub held: BTreeMap<TableId, u64>,
    /// Tables that are being filled.
    pub fills: Vec<Fill>,
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
        Catalog { revision, database: name.into(), tables, under_way: UnderWay::default() }
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
        let kept = self.tables.iter().filter(|(_, table)| !gone(table.id));
        let mut tables: BTreeMap<_, _> = kept.map(|(name, table)| (name.clone(), table.clone())).collect();
        tables.extend(more.map(|table| (table.name.clone(), table.clone())));
        Catalog { revision, tables, ..self.clone() }
    }

    /// True if they are in a database, and not with partitions for themselves.
    pub fn is_of_database(&self) -> bool {
        !matches!(self.database.as_str(), "" | crate::DATABASE)
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
