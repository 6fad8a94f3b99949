//! What a query reads from.

use super::{query_of, table_name};
use crate::catalog::Catalog;
use sqlparser::ast::{Query, visit_relations};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use types::TableRecord;
use types::data::kind::Kind;

/// The text of a view; `None`: it is none.
pub fn text(other: &TableRecord) -> Option<&str> {
    match other.schema.kind() {
        Some(Kind::View(text)) => Some(text),
        _ => None,
    }
}

/// The names that a query reads from, those of its own parts among them.
pub fn named(query: &Query) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let _ = visit_relations(query, |name| {
        found.extend(table_name(name));
        ControlFlow::<()>::Continue(())
    });
    found
}

/// The queries of the views that a query reads from.
pub(super) fn views(catalog: &Catalog, query: &Query) -> Vec<Query> {
    let read = named(query).into_iter();
    read.filter_map(|name| query_of(text(catalog.other(&name)?)?).ok()).collect()
}
