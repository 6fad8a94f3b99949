//! Indexes that are built before the constraints are there that a transaction adds (PR-452): one of its own
//! name, which demands nothing.

use crate::catalog::as_of;
use pg::Failure;
use types::data::constraint::{Constraint, Demand, Standing};
use types::{CatalogTable, TableRecord};

/// What an index is called that is built before its constraint is there.
pub fn ahead_name(number: u32) -> String {
    format!("sys_ahead_{number}")
}

/// True if this is such an index.
pub fn is_ahead(constraint: &Constraint) -> bool {
    constraint.is_index() && constraint.is_enforced() && constraint.name == ahead_name(constraint.number)
}

/// An index for a constraint that is to come: it has its number and its columns.
pub fn ahead(constraint: &Constraint) -> Constraint {
    let demand = Demand::Index(constraint.indexed().unwrap_or_default().to_vec());
    Constraint::new(constraint.number, &ahead_name(constraint.number), demand).turned(Standing::Building)
}

/// A table that is held no more, without what was built ahead for a constraint that does not come.
pub fn freed(table: &TableRecord, version: u32) -> Result<CatalogTable, Failure> {
    let kept = table.schema.constraints().iter().filter(|one| !is_ahead(one)).cloned().collect();
    as_of(table, version).constrained(kept).map_err(|why| Failure::new("42P16", why))
}
