//! Tables as a procedure sees them.

use types::data::Schema;
use types::{CatalogTable, KeySpace, TableId, TableState};

/// A table of the database, as the catalog has it when a procedure is made or called.
#[derive(Clone, PartialEq, Debug)]
pub struct Shape {
    /// Its id.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// Its columns and key.
    pub schema: Schema,
    /// Whether it is written just now.
    pub state: TableState,
}

impl Shape {
    /// Of a table.
    pub fn of(state: TableState, table: &CatalogTable) -> Shape {
        Shape { id: table.id, name: table.name.clone(), schema: table.schema.clone(), state }
    }

    /// Why programs write no rows of it, as a sentence, if so.
    pub(crate) fn unwritable(&self) -> Option<String> {
        let keyless =
            || Some("it has no key of its own".to_string()).filter(|_| self.schema.has_hidden_key());
        let why = self.schema.of_sql_alone().or_else(keyless)?;
        Some(format!("table `{}`: {why}", self.name))
    }

    /// Where its rows lie.
    pub(crate) fn keys(&self) -> KeySpace {
        KeySpace::Table(self.id)
    }
}
