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

    /// Where its rows lie.
    pub(crate) fn keys(&self) -> KeySpace {
        KeySpace::Table(self.id)
    }
}
