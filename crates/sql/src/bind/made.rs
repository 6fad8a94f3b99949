//! The columns of a table that gets the rows of a query.

use super::{Binder, Bound, Typed};
use crate::catalog::Catalog;
use crate::ty::Ty;
use pg::Failure;
use sqlparser::ast::{Query, SetExpr};
use std::collections::BTreeMap;
use types::data::{Column, Rules};

/// The columns of a table that gets what a query gives, under the query's own names. Without the query's text
/// they have no bounds.
pub fn columns_of(
    catalog: &Catalog,
    given: &[Option<Ty>],
    (query, bound): (Option<&Query>, &Bound),
) -> Result<Vec<Column>, Failure> {
    let rules = match query {
        Some(query) => Binder::new(catalog, given).rules_of(query)?,
        None => Vec::new(),
    };
    let rules = rules.into_iter().chain(std::iter::repeat(None));
    bound.columns.iter().zip(rules).map(|((name, ty), rules)| column(name, *ty, rules)).collect()
}

impl Binder<'_> {
    /// The rules of the columns that a SELECT gives as tables have them; `None`: of what it computes.
    fn rules_of(mut self, query: &Query) -> Result<Vec<Option<Rules>>, Failure> {
        let SetExpr::Select(select) = query.body.as_ref() else { return Ok(Vec::new()) };
        self.commons.push(BTreeMap::new());
        if let Some(with) = &query.with {
            self.with(with)?;
        }
        let selected = self.select(select)?;
        let rules = |typed: &Typed| {
            let (of, at) = typed.column?;
            Some(self.sources[of.source].table.schema.columns().get(at)?.rules.clone())
        };
        Ok(selected.items.iter().map(|(_, typed)| rules(typed)).collect())
    }
}

/// One of them. `of` are the rules of the column that it is, of which the bounds are kept.
fn column(name: &str, ty: Ty, of: Option<Rules>) -> Result<Column, Failure> {
    if !is_kept(ty) {
        let hint = "docs/sql.md lists the types that columns have: cast it to one of these";
        return Err(Failure::unsupported(format!("a column \"{name}\" of type {}", ty.name()), hint));
    }
    let rules = match of {
        Some(Rules { bits, max_chars, digits, padded, local, shown, .. }) => {
            Rules { bits, max_chars, digits, padded, local, shown, ..Rules::default() }
        }
        None => ty.rules(),
    };
    Ok(Column::new(name, ty.column()).with(rules))
}

/// True for the types that columns have. A text of no length whose blanks do not count is a text.
fn is_kept(ty: Ty) -> bool {
    match ty.element() {
        Some(element) => element.array() == Some(ty) && element != Ty::Json && is_kept(element),
        None => !matches!(
            ty,
            Ty::Char
                | Ty::Xid
                | Ty::Regproc
                | Ty::Regclass
                | Ty::Regtype
                | Ty::Regnamespace
                | Ty::PgLsn
                | Ty::Inet
                | Ty::NodeTree
                | Ty::Member
                | Ty::Int2Vector
                | Ty::OidVector
                | Ty::AclArray
        ),
    }
}
