//! CREATE VIEW and DROP VIEW: a query under a name, in the catalog of a database.

pub use crate::bind::view_text as text;

use crate::bind::{Binder, folded, named, new_name, query_of};
use crate::catalog::Catalog;
use crate::constraints::violation;
use crate::numbering::kinded;
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{ObjectName, Query};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::data::Column;
use types::data::kind::Kind;
use types::{CatalogTable, TableId, TableRecord};

/// A statement on views.
#[derive(Clone, PartialEq, Debug)]
pub enum ViewStatement {
    /// Makes one.
    Create {
        /// Its name.
        name: ObjectName,
        /// One of this name may be there, and gives way.
        or_replace: bool,
        /// Names of its columns; those behind them are the query's own.
        columns: Vec<String>,
        /// What it shows.
        query: Box<Query>,
    },
    /// Drops some.
    Drop {
        /// Their names.
        names: Vec<ObjectName>,
        /// One that there is not is skipped.
        if_exists: bool,
    },
}

/// A statement on views, if this is one. Otherwise the parser stays where it was.
pub fn parse(parser: &mut Parser<'_>) -> Result<Option<ViewStatement>, ParserError> {
    let or_replace = parser.parse_keywords(&[Keyword::CREATE, Keyword::OR, Keyword::REPLACE, Keyword::VIEW]);
    if or_replace || parser.parse_keywords(&[Keyword::CREATE, Keyword::VIEW]) {
        let name = parser.parse_object_name(false)?;
        let columns = match parser.consume_token(&Token::LParen) {
            true => {
                let columns = parser.parse_comma_separated(Parser::parse_identifier)?;
                parser.expect_token(&Token::RParen)?;
                columns.iter().map(folded).collect()
            }
            false => Vec::new(),
        };
        parser.expect_keyword(Keyword::AS)?;
        let query = parser.parse_query()?;
        return Ok(Some(ViewStatement::Create { name, or_replace, columns, query }));
    }
    if parser.parse_keywords(&[Keyword::DROP, Keyword::VIEW]) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let names = parser.parse_comma_separated(|parser| parser.parse_object_name(false))?;
        let _ = parser.parse_keyword(Keyword::CASCADE) || parser.parse_keyword(Keyword::RESTRICT);
        return Ok(Some(ViewStatement::Drop { names, if_exists }));
    }
    Ok(None)
}

impl ViewStatement {
    /// What the client is told is done.
    pub fn tag(&self) -> &'static str {
        match self {
            ViewStatement::Create { .. } => "CREATE VIEW",
            ViewStatement::Drop { .. } => "DROP VIEW",
        }
    }

    /// What is wrong with it, as the tables are.
    pub fn check(&self, catalog: &Catalog) -> Result<(), Failure> {
        match self {
            ViewStatement::Create { .. } => self.defined(catalog, TableId(1)).map(drop),
            ViewStatement::Drop { .. } => Ok(()),
        }
    }

    /// The view as the catalog has it.
    pub fn defined(&self, catalog: &Catalog, id: TableId) -> Result<CatalogTable, Failure> {
        let ViewStatement::Create { name, columns, query, .. } = self else {
            return Err(Failure::new(code::INTERNAL, "no view is made"));
        };
        let (bound, params) = Binder::new(catalog, &[]).whole(query)?;
        if !params.is_empty() || bound.locks.is_some() {
            return Err(Failure::unsupported("parameters and locks in a view", "write constants"));
        }
        if columns.len() > bound.columns.len() {
            return Err(Failure::new(code::SYNTAX, "CREATE VIEW specifies more column names than columns"));
        }
        let mut shown: Vec<Column> = Vec::new();
        for (at, (own, ty)) in bound.columns.iter().enumerate() {
            let name = columns.get(at).unwrap_or(own);
            if shown.iter().any(|column| column.name == *name) {
                let message = format!("column \"{name}\" specified more than once");
                return Err(Failure::new("42701", message));
            }
            shown.push(kept(name, *ty));
        }
        let name = new_name(catalog, name)?;
        Ok(kinded(id, &name, shown, Kind::View(query.to_string())))
    }
}

/// A column of a view, as the catalogs tell of it.
fn kept(name: &str, ty: Ty) -> Column {
    Column::new(name, ty.column()).with(ty.rules())
}

/// The names of what a view reads from, those of its own parts among them.
pub fn names(view: &TableRecord) -> BTreeSet<String> {
    text(view).and_then(|text| query_of(text).ok()).map(|query| named(&query)).unwrap_or_default()
}

/// The views that show this relation.
pub fn showing<'a>(catalog: &'a Catalog, name: &str) -> Vec<&'a Arc<TableRecord>> {
    catalog.others().filter(|other| names(other).contains(name)).collect()
}

/// The error of a relation that is to go, and a view shows it that stays.
pub fn not_shown(catalog: &Catalog, name: &str, what: &str, gone: &BTreeSet<TableId>) -> Result<(), Failure> {
    let Some(view) = showing(catalog, name).into_iter().find(|view| !gone.contains(&view.id)) else {
        return Ok(());
    };
    let message = format!("cannot drop {what} {name} because other objects depend on it");
    Err(violation::depended_on(message, format!("view {} depends on {what} {name}", view.name)))
}

/// True if a query reads from this relation, or views do that it reads from.
pub fn reaches(catalog: &Catalog, query: &Query, name: &str) -> bool {
    let mut known = BTreeSet::new();
    let mut open: Vec<String> = named(query).into_iter().collect();
    while let Some(next) = open.pop() {
        if next == name {
            return true;
        }
        if known.insert(next.clone()) {
            let parsed = catalog.other(&next).and_then(|other| query_of(text(other)?).ok());
            open.extend(parsed.iter().flat_map(named));
        }
    }
    false
}

/// The error of a view that would show something else in the place of what it has shown.
pub fn may_replace(before: &TableRecord, after: &CatalogTable) -> Result<(), Failure> {
    let shown = |schema: &types::data::Schema| -> Vec<Column> {
        schema.visible().map(|at| schema.columns()[at].clone()).collect()
    };
    let (old, new) = (shown(&before.schema), shown(&after.schema));
    if new.len() < old.len() {
        return Err(Failure::new("42P16", "cannot drop columns from view"));
    }
    for (one, other) in old.iter().zip(&new) {
        if one.name != other.name {
            let message = format!("cannot change name of view column \"{}\" to \"{}\"", one.name, other.name);
            return Err(Failure::new("42P16", message));
        }
        if Ty::of_column(one) != Ty::of_column(other) {
            return Err(Failure::new(
                "42P16",
                format!("cannot change data type of view column \"{}\"", one.name),
            ));
        }
    }
    Ok(())
}
