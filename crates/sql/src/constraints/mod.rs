//! Constraints of a database's tables: how they are declared, and what is done for them here.
//!
//! | what | where |
//! | --- | --- |
//! | as they are written, and as a table keeps them | [`define`] |
//! | CHECK: evaluated here, for every row that is written | [`check`] |
//! | rows by what is unique, for ON CONFLICT | [`unique`] |
//! | what is said where a constraint forbids a write | [`violation`] |
//! | ALTER TABLE ... ADD, DROP and VALIDATE CONSTRAINT | [`crate::constraining`] |
//! | what follows for rows that refer to one that goes | [`crate::follow`] |
//! | what a transaction is told before its COMMIT | [`crate::early`] |
//! | SET CONSTRAINTS: from when on it is told so | [`crate::deferring`] |
//!
//! That values are unique, and that what is referred to is there, a partition's primary sees to itself, for
//! every request as a whole. Nothing here has to be right for that.

pub mod check;
pub mod define;
pub mod unique;
pub mod violation;

use crate::catalog::Catalog;
use pg::{Failure, code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::data::Row;
use types::data::constraint::{Constraint, Reference};
use types::{TableId, TableRecord};

/// A row as it was, and as it is; `None`: it is gone.
pub type Replaced = (Row, Option<Row>);

/// The foreign keys that refer to a table, with the tables that they are of.
pub fn children(catalog: &Catalog, parent: TableId) -> Vec<(Arc<TableRecord>, Constraint, Reference)> {
    let mut found = Vec::new();
    for table in catalog.all() {
        for constraint in table.schema.constraints().iter().filter(|one| one.is_enforced()) {
            if let Some(reference) = constraint.reference().filter(|reference| reference.parent == parent) {
                found.push((table.clone(), constraint.clone(), reference.clone()));
            }
        }
    }
    found
}

/// The names of some columns of a table.
pub fn names(table: &TableRecord, columns: &[usize]) -> Vec<String> {
    columns.iter().map(|at| table.schema.columns()[*at].name.clone()).collect()
}

/// The tables that have some of these, without them.
pub fn lacking(catalog: &Catalog, gone: &BTreeSet<u32>) -> BTreeMap<TableId, Vec<Constraint>> {
    let of = |table: &Arc<TableRecord>| {
        let all = table.schema.constraints();
        let kept: Vec<_> = all.iter().filter(|one| !gone.contains(&one.number)).cloned().collect();
        (kept.len() < all.len()).then_some((table.id, kept))
    };
    catalog.all().filter_map(of).collect()
}

/// True if something follows from changes of the table's rows, or RESTRICT looks at them.
pub fn follows(catalog: &Catalog, table: TableId) -> bool {
    let at_once =
        |reference: &Reference| reference.on_delete.is_at_once() || reference.on_update.is_at_once();
    children(catalog, table).iter().any(|(.., reference)| at_once(reference))
}

/// The error of something that could not be written again.
pub fn unreadable(what: &str) -> Failure {
    Failure::new(code::INTERNAL, format!("a constraint cannot be read again: {what}"))
}
