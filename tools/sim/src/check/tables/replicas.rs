//! What a replica of a database has: every row is one of a table that its own catalog has, and can be read by
//! that table's columns; no constraint that is valid has an orphan or a duplicate, and its index, as that of
//! one that has failed, has exactly these rows; and in the end tables and rows are those of the model.

use super::keeps::CatalogState;
use super::model::{Model, split};
use super::row_name;
use crate::check::catalog::{Standing, Table, is_reserved};
use crate::programs;
use crate::rows;
use std::collections::{BTreeMap, BTreeSet};
use types::data::{self, decode_row};
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
        let (from, to) = KeySpace::Bare.index_range(None);
        let entries = engine.scan(&from, &to, at, 1 << 20, 1 << 30).ok()?;
        let of_procedures = KeySpace::Table(programs::COUNTERS).index_prefix(None);
        let entries = entries.iter().map(|row| row.key.to_vec());
        let entries: BTreeSet<Vec<u8>> = entries.filter(|key| !key.starts_with(&of_procedures)).collect();
        let (from, to) = KeySpace::Bare.feed_range();
        let feeds = engine.scan(&from, &to, at, 1 << 20, 1 << 30).ok()?;
        let read = |found: Found| found.keeps(entries).and_then(|()| found.has_fed(&feeds)).map(|()| found);
        Some(Found::of(&catalog, &rows).and_then(read))
    }

    /// Each position of a feed is one of a table that there is (PR-180). The error is an id, and a sentence.
    pub(super) fn has_fed(&self, feeds: &[Row]) -> Result<(), (&'static str, String)> {
        let table = |row: &Row| {
            let id = row.key.get(1..5).filter(|_| row.key.len() == 13)?.try_into().ok()?;
            self.tables.get(&TableId(u32::from_be_bytes(id)))
        };
        match feeds.iter().find(|row| table(row).is_none()) {
            Some(row) => Err(("PR-180", format!("{:?} is the position of a feed into no table", row.key))),
            None => Ok(()),
        }
    }

    /// Compares rows with the constraints of their tables, and with what lies in the indexes of those. The
    /// error is an id, and a sentence.
    pub(super) fn keeps(&self, mut entries: BTreeSet<Vec<u8>>) -> Result<(), (&'static str, String)> {
        let mut state = CatalogState { tables: BTreeMap::new(), rows: BTreeMap::new() };
        state.tables.extend(self.tables.iter().map(|(id, table)| (*id, table)));
        for (name, (_, value)) in &self.rows {
            let (table, key) = split(name).expect("a name of a row");
            state.rows.entry(table).or_default().insert(key, *value);
        }
        if let Some(breach) = state.first_breach() {
            return Err(breach);
        }
        for table in self.tables.values() {
            let space = KeySpace::Table(table.id);
            let all_of = |prefix: Vec<u8>| move |entry: &Vec<u8>| entry.starts_with(&prefix);
            if table.standing == Standing::Dropped {
                entries.extract_if(.., all_of(space.index_prefix(None))).for_each(drop);
                continue;
            }
            for kept in &table.keeps {
                let prefix = space.index_prefix(Some(kept.number));
                let there: BTreeSet<_> = entries.extract_if(.., all_of(prefix.clone())).collect();
                let rows = state.rows.get(&table.id).into_iter().flatten();
                let entry = |(key, value): (&&str, &u64)| {
                    [&prefix[..], &rows::table_entry(kept.demands.column(), key, *value)].concat()
                };
                let wanted: BTreeSet<_> = rows.map(entry).collect();
                let id = match kept.standing {
                    data::Standing::Valid => "PR-150",
                    data::Standing::Failed => "PR-490",
                    data::Standing::Building | data::Standing::Dropping => continue,
                };
                if there != wanted {
                    let (there, wanted) = (there.len(), wanted.len());
                    let what = format!("{kept:?} of {} has {there} entries and not {wanted}", table.id);
                    return Err((id, format!("{what}, or others")));
                }
            }
        }
        match entries.first() {
            Some(entry) => Err(("PR-121", format!("an entry {entry:?} is of no index"))),
            None => Ok(()),
        }
    }

    pub(super) fn of(catalog: &[Row], stored: &[Row]) -> Result<Found, (&'static str, String)> {
        let ours = |row: &&Row| !is_reserved(&KeySpace::Catalog.key_of(&row.key));
        let table = |row: &Row| Table::read(&KeySpace::Catalog.key_of(&row.key), &row.value);
        let read: Result<Vec<Table>, String> = catalog.iter().filter(ours).map(table).collect();
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
        let ours = |row: &&Row| !KeySpace::table_of(&row.key).is_some_and(programs::is_reserved);
        for row in stored.iter().filter(ours) {
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
