//! CHECK: conditions on one row, evaluated where the row is written.

use super::unreadable;
use crate::bind::Binder;
use crate::catalog::Catalog;
use crate::evaluate::{Evaluator, Given};
use crate::read::Values;
use client::Table;
use pg::{Failure, Object, code};
use sqlparser::ast::Expr;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::sync::Arc;
use types::data::constraint::{Constraint, Demand};
use types::data::{Row, Schema, Value};
use types::{LogKind, Policy, TableId, TableRecord};

/// The longest value that an error shows.
const SHOWN: usize = 64;

/// A table that is not there yet, for whoever only looks at its columns.
pub fn as_record(name: &str, schema: &Schema) -> Arc<TableRecord> {
    let policy = Policy::preset("durable", 1, LogKind::Disk).expect("a preset");
    Arc::new(TableRecord::new(TableId(0), name, schema.clone(), policy))
}

/// The columns that a condition names. The error: it is none that a table can keep.
pub fn columns(table: &Arc<TableRecord>, expr: &Expr) -> Result<Vec<usize>, Failure> {
    let bound = Binder::new(&Catalog::default(), &[]).checks(table, std::slice::from_ref(expr));
    let bound = bound.map_err(|failure| match failure.code {
        // It names a table.
        "42P01" => {
            Failure::unsupported("a subquery in a check constraint", "a check looks at one row of one table")
        }
        _ => failure,
    })?;
    let columns = bound.sources.first().map(|source| source.columns.clone()).unwrap_or_default();
    Ok(columns.into_iter().filter(|at| *at < table.schema.columns().len()).collect())
}

/// A table's checks, in the order in which PostgreSQL looks at them.
fn checks(schema: &Schema) -> Vec<(&Constraint, &str)> {
    let mut checks = Vec::new();
    for constraint in schema.constraints() {
        if let Demand::Check(text) = &constraint.demand {
            checks.push((constraint, text.as_str()));
        }
    }
    checks.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    checks
}

/// True if rows of the table are looked at before they are written.
pub fn has_any(schema: &Schema) -> bool {
    schema.constraints().iter().any(|one| matches!(one.demand, Demand::Check(_)))
}

/// The condition of a check.
pub fn read(text: &str) -> Result<Expr, Failure> {
    let dialect = PostgreSqlDialect {};
    let parsed = Parser::new(&dialect).try_with_sql(text).and_then(|mut parser| parser.parse_expr());
    parsed.map_err(|error| unreadable(&error.to_string()))
}

/// Looks at rows that are to be written. The error is of the first row that does not keep a check.
pub async fn rows(
    evaluator: &Evaluator,
    table: &Table,
    rows: &[Row],
    values: &Values,
) -> Result<(), Failure> {
    match first_against(evaluator, table, rows, values).await? {
        None => Ok(()),
        Some((at, name)) => Err(against(table, &rows[at], &name)),
    }
}

/// The first row that does not keep a check, and the check's name.
pub async fn first_against(
    evaluator: &Evaluator,
    table: &Table,
    rows: &[Row],
    values: &Values,
) -> Result<Option<(usize, String)>, Failure> {
    let checks = checks(table.schema());
    if checks.is_empty() || rows.is_empty() {
        return Ok(None);
    }
    let exprs = checks.iter().map(|(_, text)| read(text)).collect::<Result<Vec<_>, _>>()?;
    let record = Arc::new(table.record().clone());
    let bound = Arc::new(Binder::new(&Catalog::default(), &[]).checks(&record, &exprs)?);
    let given = rows.iter().map(|row| Given { values: row.values.clone(), ..Given::default() });
    let values = Values { parameters: Vec::new(), now: values.now };
    let mut first: Option<(usize, String)> = None;
    for row in evaluator.over(bound, &values, given.collect()).await? {
        let Some(Value::Int(at)) = row.first() else {
            return Err(Failure::new(code::INTERNAL, "a row without its number"));
        };
        let against = row[1..].iter().position(|truth| *truth == Value::Bool(false));
        if let Some(check) = against.filter(|_| first.as_ref().is_none_or(|(known, _)| *at < *known as i64)) {
            first = Some((*at as usize, checks[check].0.name.clone()));
        }
    }
    Ok(first)
}

/// The error of a row that does not keep a check.
pub fn against(table: &Table, row: &Row, check: &str) -> Failure {
    let name = table.name();
    let message = format!("new row for relation \"{name}\" violates check constraint \"{check}\"");
    let about = Object {
        schema: "public".into(),
        table: name.into(),
        constraint: Some(check.into()),
        ..Object::default()
    };
    Failure::new("23514", message).detail(failing(table, row)).about(about)
}

fn failing(table: &Table, row: &Row) -> String {
    let shown = |at: usize| match &row.values[at] {
        Value::Null => "null".to_string(),
        value => {
            let text = pg::text::to_text(value);
            match text.char_indices().nth(SHOWN) {
                Some((end, _)) => format!("{}...", &text[..end]),
                None => text,
            }
        }
    };
    let values: Vec<String> = table.schema().visible().map(shown).collect();
    format!("Failing row contains ({}).", values.join(", "))
}
