//! WITH RECURSIVE: a query that reads its own rows.

use super::{Binder, Common, folded};
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{Query, SetExpr, SetOperator, SetQuantifier, TableAlias, Visit, visit_relations};
use std::ops::ControlFlow;

/// A part of a query as a query by itself.
fn alone(query: &Query, body: &SetExpr) -> Query {
    Query { body: Box::new(body.clone()), with: None, order_by: None, limit_clause: None, ..query.clone() }
}

/// True if a query, or a part of one, reads from what is called so.
pub(super) fn names(body: &impl Visit, name: &str) -> bool {
    let named = |of: &sqlparser::ast::ObjectName| {
        of.0.len() == 1 && of.0[0].as_ident().is_some_and(|ident| folded(ident) == name)
    };
    visit_relations(body, |of| if named(of) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        .is_break()
}

/// Gives columns of a part of WITH the names that stand behind its own.
pub(super) fn renamed(columns: &mut [(String, Ty)], alias: &TableAlias) -> Result<(), Failure> {
    if alias.columns.len() > columns.len() {
        let (name, given, there) = (folded(&alias.name), alias.columns.len(), columns.len());
        let message =
            format!("WITH query \"{name}\" has {there} columns available but {given} columns specified");
        return Err(Failure::new("42P10", message));
    }
    for (column, name) in columns.iter_mut().zip(&alias.columns) {
        column.0 = folded(&name.name);
    }
    Ok(())
}

impl Binder<'_> {
    /// One of a WITH RECURSIVE, as the engine reads it; `None`: it does not read itself.
    pub(super) fn recursive(&mut self, alias: &TableAlias, query: &Query) -> Result<Option<String>, Failure> {
        let name = folded(&alias.name);
        if !names(&query.body, &name) {
            return Ok(None);
        }
        let hint = "write SELECT ... UNION ALL SELECT ... FROM itself";
        let plain = query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none();
        let (left, right, all) = match query.body.as_ref() {
            SetExpr::SetOperation { left, op: SetOperator::Union, set_quantifier, right } if plain => {
                (left, right, *set_quantifier == SetQuantifier::All)
            }
            _ => return Err(Failure::unsupported("this form of WITH RECURSIVE", hint)),
        };
        if names(left, &name) {
            let message = format!(
                "recursive reference to query \"{name}\" must not appear within its non-recursive term"
            );
            return Err(Failure::new("42P19", message));
        }
        let (first, mut columns) = self.subquery(&alone(query, left))?;
        renamed(&mut columns, alias)?;
        let engine = self.alias();
        let level = self.commons.last_mut().expect("just pushed");
        let common = Common { alias: engine.clone(), columns: columns.clone() };
        if level.insert(name.clone(), common).is_some() {
            let message = format!("WITH query name \"{name}\" specified more than once");
            return Err(Failure::new("42712", message));
        }
        let (next, found) = self.subquery(&alone(query, right))?;
        if found.len() != columns.len() {
            let message = "each UNION query must have the same number of columns";
            return Err(Failure::new(code::SYNTAX, message));
        }
        for (at, (one, other)) in columns.iter().zip(&found).enumerate() {
            if one.1 != other.1 {
                let message = format!(
                    "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
                    at + 1,
                    one.1.name(),
                    other.1.name()
                );
                let hint = "Cast the output of the non-recursive term to the correct type.";
                return Err(Failure::new("42804", message).hint(hint));
            }
        }
        let own: Vec<String> = (0..columns.len()).map(|at| format!("o{at}")).collect();
        let word = if all { "UNION ALL" } else { "UNION" };
        Ok(Some(format!("{engine}({}) AS ({first} {word} {next})", own.join(", "))))
    }
}
