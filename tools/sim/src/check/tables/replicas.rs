//! What a replica of a database has: every row is one of a table that its own catalog has, and can be read by
//! that table's columns; and in the end tables and rows are those of the model.

use super::model::{Model, split};
use super::row_name;
use crate::check::catalog::{Standing, Table};
use crate::rows;
use std::collections::BTreeMap;
use types::data::decode_row;
use types::engine::{Engine, Row};
use types::{EngineError, KeySpace, Lsn, ReadAt, TableId};

/// What a replica has at one position.
pub struct Found {
    tables: BTreeMap<TableId, Table>,
    rows: BTreeMap<String, (Lsn, u64)>,
}

impl Found {
    /// Reads, and compares rows with the catalog beside them. None: this state cannot be read now. The error
    /// is an id, and a sentence.
    pub fn read(engine: &dyn Engine, at: ReadAt) -> Option<Result<Found, (&'static str, String)>> {
        let scan = |space: KeySpace| -> Result<Vec<Row>, EngineError> {
            let (from, to) = space.range(&[], &[]);
            engine.scan(&from, &to, at, 1 << 20, 1 << 30)
        };
        let (catalog, rows) = (scan(KeySpace::Catalog).ok()?, scan(KeySpace::Bare).ok()?);
        Some(Found::of(&catalog, &rows))
    }

    pub(super) fn of(catalog: &[Row], stored: &[Row]) -> Result<Found, (&'static str, String)> {
        let table = |row: &Row| Table::read(&KeySpace::Catalog.key_of(&row.key), &row.value);
        let read: Result<Vec<Table>, String> = catalog.iter().map(table).collect();
        let tables: BTreeMap<TableId, Table> =
            read.map_err(|why| ("PR-120", why))?.into_iter().map(|table| (table.id, table)).collect();
        let mut names: Vec<&str> = tables
            .values()
            .filter(|table| table.standing.has_name())
            .map(|table| table.name.as_str())
            .collect();
        names.sort_unstable();
        if let Some(two) = names.windows(2).find(|two| two[0] == two[1]) {
            return Err(("PR-123", format!("two tables are called {}", two[0])));
        }
        let mut rows = BTreeMap::new();
        for row in stored {
            let (name, value) = rows::stored(true, &row.key, Some(&row.value));
            let table = split(&name).and_then(|(id, _)| tables.get(&id));
            let Some(table) = table else {
                return Err(("PR-121", format!("{name} of {} is a row of no table", row.lsn)));
            };
            let schema = rows::table_schema(table.version, table.more);
            let key = KeySpace::Table(table.id).key_of(&row.key);
            let read = decode_row(&schema, &key, &row.value);
            if let Some(error) = read.err().filter(|_| table.standing != Standing::Dropped) {
                return Err(("PR-122", format!("{name} of {} is none of {table:?}: {error}", row.lsn)));
            }
            rows.insert(name, (row.lsn, value.unwrap_or(u64::MAX)));
        }
        Ok(Found { tables, rows })
    }

    /// Compares with the model at an LSN. The error is a sentence.
    pub fn compare(&self, model: &Model<'_>, at: Lsn) -> Result<(), String> {
        let tables: Vec<&Table> = model.tables(at).collect();
        if !self.tables.values().eq(tables.iter().copied()) {
            return Err(format!("it has {:?}, and not {tables:?}", self.tables));
        }
        let of_table = |id: TableId| {
            let named = move |(key, lsn, value)| (row_name(id, key), (lsn, value));
            model.rows(id, at).map(named)
        };
        let rows: BTreeMap<String, (Lsn, u64)> = model.with_rows().flat_map(of_table).collect();
        match rows == self.rows {
            true => Ok(()),
            false => Err(format!("it has {:?}, and not {rows:?}", self.rows)),
        }
    }

    /// A table whose rows are still to be removed.
    pub fn dropped(&self) -> Option<TableId> {
        self.tables.values().find(|table| table.standing == Standing::Dropped).map(|table| table.id)
    }
}
