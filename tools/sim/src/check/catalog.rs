//! A database's tables, as far as clients and checkers speak of them.

use crate::rows;
use types::{CatalogTable, TableId, TableState};

/// What an entry does to the catalog: the table, or that its definition goes.
pub type CatalogChange = (TableId, Option<Table>);

/// How far a table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is read and written.
    Live,
    /// It is read, and written by nobody.
    Held,
    /// It has no name yet, and takes the place of that table.
    Filling(TableId),
    /// It was dropped, and its rows are being removed.
    Dropped,
}

impl Standing {
    /// True if its name is its own.
    pub fn has_name(self) -> bool {
        matches!(self, Standing::Live | Standing::Held)
    }
}

/// A table's definition, as far as it matters here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its id.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// The version of its columns.
    pub version: u32,
    /// Columns behind those that every table here has.
    pub more: u32,
    /// How far it is.
    pub standing: Standing,
}

impl Table {
    /// From a row of the catalog: its key without the space, and its value. The error is a sentence.
    pub fn read(key: &[u8], value: &[u8]) -> Result<Table, String> {
        let (state, table) = CatalogTable::decode(key, value)?;
        let columns = (table.schema.columns().len(), rows::schema().columns().len());
        let more = columns.0.saturating_sub(columns.1) as u32;
        let standing = match (state, table.fills) {
            (TableState::Live, None) => Standing::Live,
            (TableState::Held, None) => Standing::Held,
            (TableState::Filling, Some(of)) => Standing::Filling(of),
            (TableState::Dropping, _) => Standing::Dropped,
            (state, fills) => return Err(format!("table {} is {state:?} and fills {fills:?}", table.id)),
        };
        Ok(Table { id: table.id, name: table.name, version: table.schema.version(), more, standing })
    }

    /// True if nobody writes it.
    pub fn is_held(&self) -> bool {
        self.standing == Standing::Held
    }

    /// As clients send it. One that was dropped is sent by nobody.
    pub fn definition(&self) -> CatalogTable {
        let schema = rows::table_schema(self.version, self.more);
        let mut table = CatalogTable::new(self.id, &self.name, schema, 0);
        match self.standing {
            Standing::Live | Standing::Dropped => {}
            Standing::Held => table.held_ms = Some(1),
            Standing::Filling(of) => table.fills = Some(of),
        }
        table
    }
}
