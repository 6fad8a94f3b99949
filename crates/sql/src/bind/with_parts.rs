//! Statements with WITH that write: `WITH moved AS (DELETE ... RETURNING *) INSERT ... SELECT ...`.
//!
//! Each part is bound by itself. What stands before it in WITH it can name: queries are written into its
//! text, and the rows that another part has written are a parameter of it, behind those of the client.

use super::{Binder, Bound, Change, Common, Insertion, Output, Returning, Slot, Typed, all_decided, folded};
use crate::catalog::Catalog;
use crate::engine::{MOST_COLUMNS, packed_width};
use crate::ty::Ty;
use pg::Failure;
use sqlparser::ast::{Cte, Expr, Query, SetExpr, Statement, Value as Literal, With, visit_expressions};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use types::TableRecord;

/// A statement whose WITH has parts that write.
pub struct Parts {
    /// These parts, in order: there is one.
    pub writing: Vec<Writing>,
    /// What stands behind WITH.
    pub last: Last,
    /// The number of the parameter that has the rows of the first of the parts, packed; those of the others
    /// follow it.
    pub first: usize,
}

/// A statement that writes.
pub enum Writing {
    /// INSERT.
    Insert(Insertion),
    /// UPDATE or DELETE.
    Change(Change),
}

/// What stands behind WITH.
pub enum Last {
    /// A query.
    Rows(Arc<Bound>),
    /// A statement that writes.
    Writes(Writing),
}

/// What a statement comes to whose WITH may have parts that write.
pub enum Planned {
    /// It has such parts.
    Parts(Parts),
    /// It has queries alone there.
    Alone(Writing),
}

impl Writing {
    /// The table whose rows it writes.
    pub fn table(&self) -> &Arc<TableRecord> {
        match self {
            Writing::Insert(insertion) => &insertion.table,
            Writing::Change(change) => &change.table,
        }
    }

    fn returning(&self) -> Option<&Returning> {
        match self {
            Writing::Insert(insertion) => insertion.returning.as_ref(),
            Writing::Change(change) => change.returning.as_ref(),
        }
    }
}

impl Parts {
    /// What gives the rows that the client is told; `None`: there are none.
    pub fn told(&self) -> Option<&Bound> {
        match &self.last {
            Last::Rows(bound) => Some(bound.as_ref()),
            Last::Writes(writing) => writing.returning().map(|returning| returning.bound.as_ref()),
        }
    }

    /// All that write, in order.
    pub fn all(&self) -> impl Iterator<Item = &Writing> {
        let last = match &self.last {
            Last::Rows(_) => None,
            Last::Writes(writing) => Some(writing),
        };
        self.writing.iter().chain(last)
    }
}

/// What stands in WITH before a part of a statement.
#[derive(Clone, Debug, Default)]
pub(super) struct Around(Vec<Prior>);

#[derive(Clone, Debug)]
enum Prior {
    /// A query.
    Query(With),
    /// Rows that a part has written, as a parameter, by its number from 0.
    Rows(String, Output, usize),
    /// A part that tells nothing of its rows.
    Nothing(String),
}

/// True for a query that writes, or has a part in its WITH that does.
pub fn writes(query: &Query) -> bool {
    let mut parts = query.with.iter().flat_map(|with| &with.cte_tables);
    is_writing(&query.body) || parts.any(|part| is_writing(&part.query.body))
}

pub(super) fn is_writing(body: &SetExpr) -> bool {
    matches!(body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_))
}

/// The error of a part that writes where none may.
pub(super) fn not_at_the_top() -> Failure {
    let message = "WITH clause containing a data-modifying statement must be at the top level";
    Failure::new(pg::code::UNSUPPORTED, message).hint("write it in the WITH that the statement begins with")
}

/// The error of a part that is named where rows are read.
pub(super) fn gives_no_rows(name: &str) -> Failure {
    Failure::new(pg::code::UNSUPPORTED, format!("WITH query \"{name}\" does not have a RETURNING clause"))
}

/// A statement whose WITH may have parts that write, and the types of its parameters.
pub fn of_parts(
    catalog: &Catalog,
    given: &[Option<Ty>],
    query: &Query,
) -> Result<(Planned, Vec<Ty>), Failure> {
    let first = parameters(query).max(given.len());
    let mut binding =
        Binding { catalog, params: given.to_vec(), around: Around::default(), writing: Vec::new(), first };
    if let Some(with) = &query.with {
        for part in &with.cte_tables {
            binding.part(with, part)?;
        }
    }
    let (last, params) = binding.last(query)?;
    let Binding { writing, .. } = binding;
    let parts = match (last, writing.is_empty()) {
        (Last::Writes(alone), true) => return Ok((Planned::Alone(alone), params)),
        (last, _) => Parts { writing, last, first },
    };
    if let Some(bare) = parts.all().map(Writing::table).find(|table| table.database().is_none()) {
        let what = format!("a WITH that writes beside \"{}\", which has partitions for itself", bare.name);
        return Err(Failure::unsupported(what, "write each table by a statement of its own"));
    }
    Ok((Planned::Parts(parts), params))
}

/// The largest number of a parameter.
fn parameters(query: &Query) -> usize {
    let mut most = 0;
    let _ = visit_expressions(query, |expr| {
        if let Expr::Value(value) = expr
            && let Literal::Placeholder(name) = &value.value
        {
            let number = name.strip_prefix('$').and_then(|digits| digits.parse().ok());
            most = most.max(number.unwrap_or(0));
        }
        ControlFlow::<()>::Continue(())
    });
    most
}

/// A statement that is being bound, part by part.
struct Binding<'a> {
    catalog: &'a Catalog,
    /// The types of parameters, as far as they are decided.
    params: Vec<Option<Ty>>,
    around: Around,
    writing: Vec<Writing>,
    first: usize,
}

impl<'a> Binding<'a> {
    fn binder(&self) -> Binder<'a> {
        Binder::new(self.catalog, &self.params).around(Some(Arc::new(self.around.clone())))
    }

    fn part(&mut self, with: &With, part: &Cte) -> Result<(), Failure> {
        if !is_writing(&part.query.body) {
            let alone = With { cte_tables: vec![part.clone()], ..with.clone() };
            self.around.0.push(Prior::Query(alone));
            return Ok(());
        }
        if part.query.with.is_some() {
            return Err(not_at_the_top());
        }
        let (writing, params) = bound(self.binder(), &part.query.body)?;
        let name = folded(&part.alias.name);
        let prior = match writing.returning() {
            None => Prior::Nothing(name),
            Some(returning) => {
                let mut columns = returning.bound.columns.clone();
                if columns.len() > MOST_COLUMNS || columns.iter().any(|(_, ty)| ty.is_reg()) {
                    let what =
                        format!("RETURNING of \"{name}\" with so many columns, or with an oid as a name");
                    return Err(Failure::unsupported(what, "name the columns that are used"));
                }
                for (column, alias) in columns.iter_mut().zip(&part.alias.columns) {
                    column.0 = folded(&alias.name);
                }
                Prior::Rows(name, columns, self.first + self.writing.len())
            }
        };
        self.around.0.push(prior);
        self.writing.push(writing);
        self.params = params;
        Ok(())
    }

    /// What stands behind WITH, and the types of all parameters.
    fn last(&self, query: &Query) -> Result<(Last, Vec<Ty>), Failure> {
        if is_writing(&query.body) {
            let (writing, params) = bound(self.binder(), &query.body)?;
            return Ok((Last::Writes(writing), all_decided(&params)?));
        }
        let (bound, params) = self.binder().whole(&Query { with: None, ..query.clone() })?;
        if bound.locks.is_some() {
            let hint = "lock the rows by a SELECT of its own";
            return Err(Failure::unsupported("FOR UPDATE behind a WITH that writes", hint));
        }
        Ok((Last::Rows(Arc::new(bound)), params))
    }
}

/// A statement that writes, and the types of parameters as far as they are decided.
fn bound(binder: Binder<'_>, body: &SetExpr) -> Result<(Writing, Vec<Option<Ty>>), Failure> {
    Ok(match body {
        SetExpr::Insert(Statement::Insert(insert)) => {
            let (insertion, params) = binder.insert_part(insert)?;
            (Writing::Insert(insertion), params)
        }
        SetExpr::Update(Statement::Update(update)) => {
            let (change, params) = binder.update_part(update)?;
            (Writing::Change(change), params)
        }
        SetExpr::Delete(Statement::Delete(delete)) => {
            let (change, params) = binder.delete_part(delete)?;
            (Writing::Change(change), params)
        }
        _ => return Err(Failure::unsupported("MERGE", "use INSERT ... ON CONFLICT, UPDATE or DELETE")),
    })
}

impl Binder<'_> {
    /// The same for a part of a statement, with what stands in WITH before it.
    pub(super) fn around(self, around: Option<Arc<Around>>) -> Self {
        Binder { around, ..self }
    }

    /// Makes visible what stands in WITH before it. A table that it writes is visible before that: it is the
    /// first source, and none of these.
    pub(super) fn see_around(&mut self) -> Result<(), Failure> {
        let Some(around) = self.around.clone() else { return Ok(()) };
        let scopes = std::mem::take(&mut self.scopes);
        self.commons.push(BTreeMap::new());
        for prior in &around.0 {
            let texts = match prior {
                Prior::Query(with) => self.with(with)?,
                Prior::Rows(name, columns, slot) => vec![self.given_rows(name, columns, *slot)?],
                Prior::Nothing(name) => {
                    self.name_part(name, Common { alias: String::new(), columns: Vec::new() })?;
                    Vec::new()
                }
            };
            self.outer.extend(texts);
        }
        self.scopes = scopes;
        Ok(())
    }

    /// Rows that another part has written: the engine's text.
    fn given_rows(&mut self, name: &str, columns: &Output, slot: usize) -> Result<String, Failure> {
        let engine = self.alias();
        let packed = self.text(&Typed::slot(Slot::Param(slot), Some(Ty::Bytea)));
        let own: Vec<String> = (0..columns.len()).map(|at| format!("o{at}")).collect();
        let width = packed_width(columns.len());
        self.name_part(name, Common { alias: engine.clone(), columns: columns.clone() })?;
        Ok(format!("{engine} AS MATERIALIZED (SELECT {} FROM unpack{width}_({packed}))", own.join(", ")))
    }

    fn name_part(&mut self, name: &str, common: Common) -> Result<(), Failure> {
        let level = self.commons.last_mut().expect("just pushed");
        match level.insert(name.to_string(), common) {
            None => Ok(()),
            Some(_) => {
                let message = format!("WITH query name \"{name}\" specified more than once");
                Err(Failure::new("42712", message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::Rows;
    use crate::catalog::example;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::parser::Parser;
    use types::data::{Column, ColumnType};

    fn planned(text: &str) -> Result<(Planned, Vec<Ty>), &'static str> {
        let columns =
            vec![Column::new("id", ColumnType::Int).not_null(), Column::new("name", ColumnType::Text)];
        let tables = BTreeMap::from([("t".to_string(), Arc::new(example(columns)))]);
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, text).expect(text);
        let [Statement::Query(query)] = parsed.as_slice() else { panic!("{text}") };
        assert!(writes(query), "{text}");
        of_parts(&Catalog::from_map(1, tables), &[], query).map_err(|failure| failure.code)
    }

    #[test]
    fn queries_before_a_statement_that_writes_are_part_of_its_text() {
        for text in [
            "WITH n AS (SELECT $1::bigint AS id) DELETE FROM t WHERE id IN (SELECT id FROM n)",
            "WITH n AS (SELECT $1::bigint AS id) UPDATE t SET name = 'x' FROM n WHERE t.id = n.id",
            "WITH n AS (SELECT $1::bigint AS id) INSERT INTO t SELECT id, 'x' FROM n RETURNING id",
            "WITH t AS (SELECT $1::bigint AS id) DELETE FROM t WHERE id IN (SELECT id FROM t)",
        ] {
            let (planned, params) = planned(text).expect(text);
            let read = match &planned {
                Planned::Alone(Writing::Change(change)) => &change.read,
                Planned::Alone(Writing::Insert(Insertion { rows: Rows::Query(rows), .. })) => rows,
                _ => panic!("{text}"),
            };
            assert!(read.text.starts_with("WITH "), "{text}: {}", read.text);
            assert_eq!(params, [Ty::Int8], "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_postgresql_does() {
        for (text, code) in [
            ("WITH d AS (DELETE FROM t) SELECT * FROM d", "0A000"),
            ("WITH d AS (DELETE FROM t), d AS (DELETE FROM t) SELECT 1", "42712"),
            ("WITH d AS (DELETE FROM t RETURNING id) SELECT name FROM d", "42703"),
            ("WITH d AS (DELETE FROM nothing) SELECT 1", "42P01"),
            ("WITH d AS (WITH e AS (DELETE FROM t) DELETE FROM t) SELECT 1", "0A000"),
            ("WITH d AS (DELETE FROM t RETURNING id) SELECT id FROM t FOR UPDATE", "0A000"),
            ("WITH d AS (DELETE FROM t WHERE id = $1 RETURNING id) SELECT $2 FROM d", "0A000"),
            // Its partitions are no others'.
            ("WITH d AS (DELETE FROM t RETURNING *) INSERT INTO t SELECT * FROM d", "0A000"),
        ] {
            assert_eq!(planned(text).map(drop), Err(code), "{text}");
        }
    }
}
