//! Constraints that come to tables of a database whose transactions are global: transactions that have begun
//! do not know them, and rows that are there were looked at by nobody.

use crate::catalog::{Catalog, as_of};
use crate::ddl::on_a_client;
use crate::driver::Handle;
use crate::fault;
use pg::{Failure, code};
use std::collections::BTreeSet;
use std::sync::Arc;
use types::data::Schema;
use types::data::constraint::Constraint;
use types::{CatalogTable, TableId};
use wire::{RecordText, TableChange};

/// Tables as they are, and as they are to be.
struct Change {
    catalog: Arc<Catalog>,
    tables: Vec<CatalogTable>,
}

/// Changes of tables as such a database takes them. A constraint that comes to a table which is there is
/// unchecked until somebody has looked at the rows of all partitions ([`crate::there`]). A table whose rows
/// are referred to from now on gets another version: a transaction that does not know by whom removes none of
/// them (PR-346).
pub async fn prepared(handle: &Handle, changes: Vec<TableChange>) -> Result<Vec<TableChange>, Failure> {
    let catalog = handle.catalog().ok_or_else(fault::not_ready)?;
    let texts = changes.iter().filter_map(|change| match change {
        TableChange::Create(text) | TableChange::Alter { to: text, .. } => Some(text),
        TableChange::Drop { .. } => None,
    });
    let tables = texts.map(RecordText::read).collect::<Result<_, _>>().map_err(internal)?;
    let change = Change { catalog, tables };
    let parents = change.new_parents();
    let mut all = changes.into_iter().map(|one| change.unchecked(one)).collect::<Result<Vec<_>, _>>()?;
    if !parents.is_empty() {
        let count = parents.len() as u32;
        let first = on_a_client(handle, move |client| client.numbers(count)).await?;
        for (id, version) in parents.into_iter().zip(first..) {
            let Some(parent) = change.catalog.all().find(|known| known.id == id) else { continue };
            let to = RecordText::new(&as_of(parent, version));
            all.push(TableChange::Alter { from: parent.schema.version(), to });
        }
    }
    Ok(all)
}

/// The numbers of the indexes of tables that these changes make, each with its table.
pub fn new_indexes(changes: &[TableChange]) -> Result<Vec<(TableId, u32)>, Failure> {
    let mut found = Vec::new();
    for change in changes {
        let TableChange::Create(text) = change else { continue };
        let table: CatalogTable = text.read().map_err(internal)?;
        for one in table.schema.constraints() {
            found.extend(one.indexed().map(|_| (table.id, one.number)));
        }
    }
    Ok(found)
}

fn internal(why: String) -> Failure {
    Failure::new(code::INTERNAL, why)
}

impl Change {
    fn before(&self, table: TableId) -> Option<&Schema> {
        self.catalog.all().find(|known| known.id == table).map(|known| &known.schema)
    }

    fn is_new(&self, table: TableId, one: &Constraint) -> bool {
        let all = self.before(table).map(Schema::constraints).unwrap_or_default();
        one.is_enforced() && !all.iter().any(|known| known.number == one.number)
    }

    /// Tables that rows of others refer to from now on, and that are not changed themselves.
    fn new_parents(&self) -> BTreeSet<TableId> {
        let mut parents = BTreeSet::new();
        for table in &self.tables {
            let new = table.schema.constraints().iter().filter(|one| self.is_new(table.id, one));
            parents.extend(new.filter_map(|one| Some(one.reference()?.parent)));
        }
        parents.retain(|id| !self.tables.iter().any(|table| table.id == *id));
        parents
    }

    /// The same change; what it adds to a table that is there was looked at by nobody.
    fn unchecked(&self, change: TableChange) -> Result<TableChange, Failure> {
        let TableChange::Alter { from, to } = change else { return Ok(change) };
        let table: CatalogTable = to.read().map_err(internal)?;
        let mut all = table.schema.constraints().to_vec();
        let late = |one: &&mut Constraint| self.is_new(table.id, one) && !one.forbids_nothing();
        all.iter_mut().filter(late).for_each(|one| one.unchecked = true);
        let to = RecordText::new(&table.constrained(all).map_err(internal)?);
        Ok(TableChange::Alter { from, to })
    }
}
