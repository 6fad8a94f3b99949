//! What tables that stay lose with something that is dropped: foreign keys, and defaults that are numbers of
//! sequences.

use crate::catalog::{Catalog, as_of};
use crate::constraints::lacking;
use crate::numbering;
use pg::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::data::constraint::Constraint;
use types::{CatalogTable, TableId, TableRecord};
use wire::{RecordText, TableChange};

/// Tables that stay, and what they lose.
pub struct Losses {
    tables: Vec<Arc<TableRecord>>,
    /// The constraints of those that lose some: what they have then.
    constraints: BTreeMap<TableId, Vec<Constraint>>,
    /// Sequences that go.
    sequences: BTreeSet<TableId>,
}

impl Losses {
    /// With these foreign keys, by their numbers, and these sequences; of all tables but some.
    pub fn new(
        catalog: &Catalog,
        foreign: &BTreeSet<u32>,
        sequences: BTreeSet<TableId>,
        but: &BTreeSet<TableId>,
    ) -> Losses {
        let constraints = lacking(catalog, foreign);
        let loses = |table: &&Arc<TableRecord>| {
            constraints.contains_key(&table.id) || numbering::is_numbered_by(table, &sequences)
        };
        let tables = catalog.all().filter(|table| !but.contains(&table.id)).filter(loses);
        Losses { tables: tables.cloned().collect(), constraints, sequences }
    }

    /// How many tables lose something.
    pub fn count(&self) -> usize {
        self.tables.len()
    }

    /// What they are without it, under versions from this one on.
    pub fn changes(self, first: u32) -> Result<Vec<TableChange>, Failure> {
        let change = |(table, to): (Arc<TableRecord>, CatalogTable)| TableChange::Alter {
            from: table.schema.version(),
            to: RecordText::new(&to),
        };
        Ok(self.amended(first)?.into_iter().map(change).collect())
    }

    /// The same as definitions, each behind how the table is.
    pub fn amended(mut self, first: u32) -> Result<Vec<(Arc<TableRecord>, CatalogTable)>, Failure> {
        let mut amended = Vec::with_capacity(self.tables.len());
        for (table, version) in self.tables.into_iter().zip(first..) {
            let mut to = as_of(&table, version);
            if let Some(constraints) = self.constraints.remove(&table.id) {
                to = to.constrained(constraints).map_err(|why| Failure::new("42P16", why))?;
            }
            numbering::forget(&mut to, &self.sequences);
            amended.push((table, to));
        }
        Ok(amended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::example;
    use types::data::{Column, ColumnType, Fallback, Rules};

    #[test]
    fn defaults_go_with_the_sequences_that_they_name() {
        let numbered = |id: u32, sequence: u32| {
            let rules = Rules { default: Some(Fallback::Next(sequence)), ..Rules::default() };
            let columns = vec![
                Column::new("id", ColumnType::Int).not_null(),
                Column::new("n", ColumnType::Int).with(rules).not_null(),
            ];
            TableRecord { id: TableId(id), name: format!("t{id}"), ..example(columns) }
        };
        let tables = [numbered(1, 50), numbered(2, 50), numbered(3, 51)];
        let tables = tables.map(|table| (table.name.clone(), Arc::new(table)));
        let catalog = Catalog::from_map(1, BTreeMap::from(tables));
        let (gone, but) = ([TableId(50)].into(), [TableId(1)].into());
        let losses = Losses::new(&catalog, &BTreeSet::new(), gone, &but);
        assert_eq!(losses.count(), 1);
        let changes = losses.changes(7).expect("valid");
        let [TableChange::Alter { to, .. }] = changes.as_slice() else { panic!("{changes:?}") };
        let to: CatalogTable = to.read().expect("readable");
        let column = &to.schema.columns()[1];
        assert_eq!((to.id, to.schema.version(), column.nullable), (TableId(2), 7, false));
        assert_eq!(column.rules.default, None);
    }
}
