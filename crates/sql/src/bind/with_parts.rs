//! Statements with WITH that write: `WITH moved AS (DELETE ... RETURNING *) INSERT ... SELECT ...`.
//!
//! Each part is bound by itself. What stands before it in WITH it can name: queries are written into its
//! text, and the rows that another part has written are a parameter of it, behind those of the client. So are
//! the rows of a query that gives others each time, which is computed once for all that name it.

use super::reads;
use super::recursive::{names, renamed};
use super::{Binder, Bound, Change, Common, Insertion, Merge, Output, Returning, Slot, Typed};
use super::{all_decided, folded, query_of};
use crate::catalog::Catalog;
use crate::engine::{MOST_COLUMNS, packed_width};
use crate::ty::Ty;
use pg::Failure;
use sqlparser::ast::{Cte, Expr, Query, SetExpr, Statement, Value as Literal, With, visit_expressions};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use types::TableRecord;

/// So many parts a WITH has in which one writes: each is bound with all those before it.
const MAX_PARTS: usize = 100;
/// Calls that give something else each time.
const CHANGING_CALLS: [&str; 7] =
    ["nextval(", "setval(", "currval(", "lastval(", "random(", "gen_random_uuid(", "uuid_generate_v4("];

/// A statement whose WITH has parts that write.
pub struct Parts {
    /// What is computed once, in order. One of these parts writes.
    pub once: Vec<Part>,
    /// What stands behind WITH.
    pub last: Last,
    /// The number of the parameter that has the rows of the first of the parts, packed; those of the others
    /// follow it.
    pub first: usize,
}

/// A part of WITH that is computed by itself.
pub enum Part {
    /// It writes.
    Writes(Writing),
    /// A query that gives other rows each time.
    Reads(Arc<Bound>),
}

/// A statement that writes.
pub enum Writing {
    /// INSERT.
    Insert(Insertion),
    /// UPDATE or DELETE.
    Change(Change),
    /// MERGE.
    Merge(Merge),
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

impl Planned {
    /// What gives the rows that the client is told; `None`: there are none.
    pub fn told(&self) -> Option<&Bound> {
        match self {
            Planned::Parts(parts) => parts.told(),
            Planned::Alone(writing) => writing.returning().map(|returning| returning.bound.as_ref()),
        }
    }

    /// What PostgreSQL calls it where it is not allowed.
    pub fn name(&self) -> &'static str {
        match self {
            Planned::Parts(parts) => parts.name(),
            Planned::Alone(writing) => writing.name(),
        }
    }
}

impl Writing {
    /// The table whose rows it writes.
    pub fn table(&self) -> &Arc<TableRecord> {
        match self {
            Writing::Insert(insertion) => &insertion.table,
            Writing::Change(change) => &change.table,
            Writing::Merge(merge) => &merge.table,
        }
    }

    fn returning(&self) -> Option<&Returning> {
        match self {
            Writing::Insert(insertion) => insertion.returning.as_ref(),
            Writing::Change(change) => change.returning.as_ref(),
            Writing::Merge(_) => None,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Writing::Insert(_) => "INSERT",
            Writing::Change(change) if change.removes => "DELETE",
            Writing::Change(_) => "UPDATE",
            Writing::Merge(_) => "MERGE",
        }
    }
}

impl Parts {
    /// What PostgreSQL calls it where it is not allowed.
    pub fn name(&self) -> &'static str {
        match &self.last {
            Last::Rows(_) => "SELECT",
            Last::Writes(writing) => writing.name(),
        }
    }

    /// The first table whose rows it writes.
    pub fn table(&self) -> &Arc<TableRecord> {
        self.all().next().expect("one of the parts writes").table()
    }

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
        let once = self.once.iter().filter_map(|part| match part {
            Part::Writes(writing) => Some(writing),
            Part::Reads(_) => None,
        });
        once.chain(last)
    }
}

/// What stands in WITH before a part of a statement.
#[derive(Clone, Debug, Default)]
pub(super) struct Around(Vec<Prior>);

#[derive(Clone, Debug)]
enum Prior {
    /// A query.
    Query(With),
    /// The queries in the WITH of the part itself, which hide others of their names.
    Inner(With),
    /// Rows of a part that is computed once, as a parameter, by its number from 0.
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
    if query.with.as_ref().is_some_and(|with| with.cte_tables.len() > MAX_PARTS) {
        let message = format!("a WITH of a statement that writes has at most {MAX_PARTS} parts");
        return Err(Failure::new(pg::code::LIMIT, message).hint("write several statements"));
    }
    let first = parameters(query).max(given.len());
    let mut binding =
        Binding { catalog, params: given.to_vec(), around: Around::default(), once: Vec::new(), first };
    if let Some(with) = &query.with {
        let several = with.cte_tables.iter().any(|part| is_writing(&part.query.body));
        let body = Query { with: None, ..query.clone() };
        for (at, part) in with.cte_tables.iter().enumerate() {
            let name = folded(&part.alias.name);
            let behind = || with.cte_tables[at + 1..].iter().map(|part| &*part.query).chain([&body]);
            if is_writing(&part.query.body) {
                binding.writes(part)?;
            } else if several && changes(catalog, &part.query) && behind().any(|one| names(one, &name)) {
                binding.reads(with, part)?;
            } else {
                binding.around.0.push(Prior::Query(alone(with, part)));
            }
        }
    }
    let (last, params) = binding.last(query)?;
    let Binding { once, .. } = binding;
    let parts = match (last, once.is_empty()) {
        (Last::Writes(alone), true) => return Ok((Planned::Alone(alone), params)),
        (last, _) => Parts { once, last, first },
    };
    if let Some(bare) = parts.all().map(Writing::table).find(|table| table.database().is_none()) {
        let what = format!("a WITH that writes beside \"{}\", which has partitions for itself", bare.name);
        return Err(Failure::unsupported(what, "write each table by a statement of its own"));
    }
    Ok((Planned::Parts(parts), params))
}

/// A WITH of one of its parts.
fn alone(with: &With, part: &Cte) -> With {
    With { cte_tables: vec![part.clone()], ..with.clone() }
}

/// True for a query that may give other rows whenever it is computed, though tables are as they were.
fn changes(catalog: &Catalog, query: &Query) -> bool {
    let text = query.to_string().to_ascii_lowercase();
    let calls = CHANGING_CALLS.iter().any(|call| text.contains(call));
    calls || reads::views(catalog, query).iter().any(|view| changes(catalog, view))
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
    once: Vec<Part>,
    first: usize,
}

impl<'a> Binding<'a> {
    fn binder(&self) -> Binder<'a> {
        Binder::new(self.catalog, &self.params).around(Some(Arc::new(self.around.clone())))
    }

    /// A part that writes.
    fn writes(&mut self, part: &Cte) -> Result<(), Failure> {
        if matches!(part.query.body.as_ref(), SetExpr::Merge(_)) {
            let failure = Failure::new(pg::code::UNSUPPORTED, "MERGE not supported in WITH query");
            return Err(failure.hint("write it behind the WITH"));
        }
        let mut around = self.around.clone();
        if let Some(inner) = &part.query.with {
            if inner.cte_tables.iter().any(|one| is_writing(&one.query.body)) {
                return Err(not_at_the_top());
            }
            around.0.push(Prior::Inner(inner.clone()));
        }
        let binder = Binder::new(self.catalog, &self.params).around(Some(Arc::new(around)));
        let (writing, params) = bound(binder, &part.query.body)?;
        let prior = match writing.returning() {
            None => Prior::Nothing(folded(&part.alias.name)),
            Some(returning) => self.given(part, returning.bound.columns.clone())?,
        };
        self.around.0.push(prior);
        self.once.push(Part::Writes(writing));
        self.params = params;
        Ok(())
    }

    /// A query whose rows are computed once.
    fn reads(&mut self, with: &With, part: &Cte) -> Result<(), Failure> {
        let query = query_of(&format!("{} SELECT * FROM {}", alone(with, part), part.alias.name))?;
        let (bound, params) = self.binder().whole_as(&query, &[])?;
        let prior = self.given(part, bound.columns.clone())?;
        self.around.0.push(prior);
        self.once.push(Part::Reads(Arc::new(bound)));
        self.params = params;
        Ok(())
    }

    /// The rows of the next part that is computed once, as those behind it see them.
    fn given(&self, part: &Cte, mut columns: Output) -> Result<Prior, Failure> {
        let name = folded(&part.alias.name);
        if columns.len() > MOST_COLUMNS || columns.iter().any(|(_, ty)| ty.is_reg()) {
            let what = format!("the part \"{name}\" of WITH with so many columns, or with an oid as a name");
            return Err(Failure::unsupported(what, "name the columns that are used"));
        }
        renamed(&mut columns, &part.alias)?;
        Ok(Prior::Rows(name, columns, self.first + self.once.len()))
    }

    /// What stands behind WITH, and the types of all parameters.
    fn last(&self, query: &Query) -> Result<(Last, Vec<Ty>), Failure> {
        let recursive = query.with.as_ref().is_some_and(|with| with.recursive);
        if recursive && matches!(query.body.as_ref(), SetExpr::Merge(_)) {
            let message = "WITH RECURSIVE is not supported for MERGE statement";
            return Err(Failure::new(pg::code::SYNTAX, message));
        }
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
        SetExpr::Merge(Statement::Merge(merge)) => {
            let (merge, params) = binder.merge_part(merge)?;
            (Writing::Merge(merge), params)
        }
        _ => return Err(Failure::new(pg::code::INTERNAL, "a part of WITH that writes nothing")),
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
                Prior::Inner(with) => {
                    self.commons.push(BTreeMap::new());
                    self.with(with)?
                }
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

    /// Rows of a part that was computed before: the engine's text.
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

    fn planned_for(table: TableRecord, text: &str) -> Result<(Planned, Vec<Ty>), &'static str> {
        let tables = BTreeMap::from([("t".to_string(), Arc::new(table))]);
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, text).expect(text);
        let [Statement::Query(query)] = parsed.as_slice() else { panic!("{text}") };
        assert!(writes(query), "{text}");
        of_parts(&Catalog::from_map(1, tables), &[], query).map_err(|failure| failure.code)
    }

    fn table() -> TableRecord {
        example(vec![Column::new("id", ColumnType::Int).not_null(), Column::new("name", ColumnType::Text)])
    }

    fn planned(text: &str) -> Result<(Planned, Vec<Ty>), &'static str> {
        planned_for(table(), text)
    }

    #[test]
    fn queries_before_a_statement_that_writes_are_part_of_its_text() {
        for text in [
            "WITH n AS (SELECT $1::bigint AS id) DELETE FROM t WHERE id IN (SELECT id FROM n)",
            "WITH n AS (SELECT $1::bigint AS id) UPDATE t SET name = 'x' FROM n WHERE t.id = n.id",
            "WITH n AS (SELECT $1::bigint AS id) INSERT INTO t SELECT id, 'x' FROM n RETURNING id",
            "WITH t AS (SELECT $1::bigint AS id) DELETE FROM t WHERE id IN (SELECT id FROM t)",
            "WITH t AS (SELECT $1::bigint AS id) MERGE INTO t USING t AS n ON t.id = n.id \
             WHEN MATCHED THEN DELETE",
        ] {
            let (planned, params) = planned(text).expect(text);
            let read = match &planned {
                Planned::Alone(Writing::Change(change)) => &change.read,
                Planned::Alone(Writing::Insert(Insertion { rows: Rows::Query(rows), .. })) => rows,
                Planned::Alone(Writing::Merge(merge)) => &merge.read,
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
            (
                "WITH d AS (WITH e AS (SELECT 1) DELETE FROM t WHERE id IN (SELECT y FROM e)) SELECT 1",
                "42703",
            ),
            ("WITH d (x, y) AS (DELETE FROM t RETURNING id) SELECT 1", "42P10"),
            ("WITH n (x, y) AS (SELECT 1), d AS (DELETE FROM t) SELECT 1", "42P10"),
            ("WITH d AS (DELETE FROM t RETURNING id) SELECT id FROM t FOR UPDATE", "0A000"),
            ("WITH d AS (DELETE FROM t WHERE id = $1 RETURNING id) SELECT $2 FROM d", "0A000"),
            ("WITH m AS (MERGE INTO t USING t AS s ON true WHEN MATCHED THEN DELETE) SELECT 1", "0A000"),
            ("WITH RECURSIVE n AS (SELECT 1) MERGE INTO t USING n ON true WHEN MATCHED THEN DELETE", "42601"),
            // Its partitions are no others'.
            ("WITH d AS (DELETE FROM t RETURNING *) INSERT INTO t SELECT * FROM d", "0A000"),
        ] {
            assert_eq!(planned(text).map(drop), Err(code), "{text}");
        }
    }

    /// What differs whenever it is computed must be the same for all that name it.
    #[test]
    fn queries_that_give_other_rows_each_time_are_computed_once() {
        let within = || TableRecord { holds: types::Holds::TableOf(types::TableId(9)), ..table() };
        for (text, expected) in [
            ("WITH n AS (SELECT random() AS r), d AS (DELETE FROM t) SELECT r FROM n", "reads, writes"),
            ("WITH n AS (SELECT 1 AS r), d AS (DELETE FROM t) SELECT r FROM n", "writes"),
            ("WITH n AS (SELECT random() AS r), d AS (DELETE FROM t) SELECT 1", "writes"),
            (
                "WITH RECURSIVE n (i, r) AS (SELECT 1, random() UNION ALL SELECT i + 1, r FROM n), \
                 d AS (DELETE FROM t WHERE id IN (SELECT i FROM n) RETURNING id) \
                 INSERT INTO t SELECT i, r::text FROM n WHERE i NOT IN (SELECT id FROM d)",
                "reads, writes",
            ),
            (
                "WITH b AS (WITH n AS (SELECT gen_random_uuid() AS u) INSERT INTO t SELECT 1, u::text FROM n \
                 RETURNING id) DELETE FROM t USING b WHERE t.id = b.id",
                "writes",
            ),
        ] {
            let Ok((Planned::Parts(parts), _)) = planned_for(within(), text) else { panic!("{text}") };
            let kind = |part: &Part| if matches!(part, Part::Reads(_)) { "reads" } else { "writes" };
            let found: Vec<&str> = parts.once.iter().map(kind).collect();
            assert_eq!(found.join(", "), expected, "{text}");
        }
        let many: Vec<String> = (0..=MAX_PARTS).map(|at| format!("d{at} AS (DELETE FROM t)")).collect();
        let many = format!("WITH {} SELECT 1", many.join(", "));
        assert_eq!(planned_for(within(), &many).map(drop), Err("54000"));
        let locks = "WITH d AS (DELETE FROM t), n AS (SELECT id FROM t FOR UPDATE) SELECT id FROM n";
        assert_eq!(planned_for(within(), locks).map(drop), Err("0A000"));
    }
}
