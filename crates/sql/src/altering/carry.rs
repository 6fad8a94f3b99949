//! ALTER TABLE carried out: which rows must be looked at first, and the entries.

use super::apply::{self, Applied};
use super::rewrite::{self, Rewrite};
use super::{Altering, Step};
use crate::catalog::Catalog;
use crate::constraining;
use crate::constraints::define::{Declared, What, ident, invalid};
use crate::database;
use crate::evaluate::Evaluator;
use crate::fault;
use crate::losses::Losses;
use crate::read::Values;
use crate::several;
use pg::Failure;
use sqlparser::ast::{BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr};
use std::collections::BTreeSet;
use types::data::{Column, Rules, Schema};
use types::{CatalogTable, TableRecord};
use wire::{RecordText, TableChange};

/// How often a change is made again because somebody else was faster.
const MAX_ATTEMPTS: usize = 8;

/// What rows must keep, and the error if one does not.
pub struct Condition {
    /// It is not false.
    pub expr: Expr,
    /// The error.
    pub failure: Failure,
}

/// Carries it out. What the client may want to know.
pub async fn carry_out(
    evaluator: &Evaluator,
    altering: &Altering,
    values: &Values,
) -> Result<Vec<String>, Failure> {
    let handle = &evaluator.handle;
    database::lift_abandoned(handle).await?;
    let catalog = handle.look().await?;
    let Some(table) = catalog.table(&altering.table) else {
        return missing(altering);
    };
    fault::together(table, "other columns")?;
    // What cannot be done is said before any row is looked at.
    let applied = apply::apply(&catalog, table, altering, (1, values.now))?;
    if !applied.values.is_empty() || applied.rekeys(&table.schema) {
        let count = apply::constraints(altering);
        rewrite::carry_out(evaluator, (&altering.table, count), values, |catalog, table, first| {
            let applied = apply::apply(catalog, table, altering, (first, values.now))?;
            Rewrite::of(catalog, table, &applied)
        })
        .await?;
        return Ok(applied.notes);
    }
    let guards = guard(evaluator, table, altering, values).await?;
    let done = enter(evaluator, altering, &guards, values).await;
    if done.is_err() {
        drop(constraining::without(evaluator, &guards).await);
    }
    let done = done?;
    let name = done.name.clone();
    let behind = behind(evaluator, altering, &done, values).await;
    if let Err(failure) = behind {
        take_back(evaluator, &name, altering, values).await;
        return Err(failure);
    }
    Ok(applied.notes)
}

fn missing(altering: &Altering) -> Result<Vec<String>, Failure> {
    let message = format!("relation \"{}\" does not exist", altering.table);
    match altering.if_exists {
        true => Ok(vec![format!("{message}, skipping")]),
        false => Err(Failure::new("42P01", message)),
    }
}

/// What rows that are there must keep from now on, of columns that there are.
fn conditions(table: &TableRecord, altering: &Altering) -> Vec<Condition> {
    let schema = &table.schema;
    let column = |name: &str| schema.column_index(name).map(|at| &schema.columns()[at]);
    let mut found = Vec::new();
    for step in &altering.steps {
        match step {
            Step::NotNull(name, true) if column(name).is_some_and(|column| column.nullable) => {
                found.push(never_null(name, &table.name));
            }
            Step::Type(name, to) => {
                found.extend(column(name).and_then(|column| narrower(column, &to.rules)));
            }
            _ => {}
        }
    }
    found
}

/// The condition of a column of this table that is never null.
pub fn never_null(column: &str, table: &str) -> Condition {
    let message = format!("column \"{column}\" of relation \"{table}\" contains null values");
    let expr = Expr::IsNotNull(Box::new(Expr::Identifier(ident(column))));
    Condition { expr, failure: Failure::new("23502", message) }
}

/// The condition of a type that holds less than before.
pub fn narrower(column: &Column, to: &Rules) -> Option<Condition> {
    let number = |number: i64| Expr::value(sqlparser::ast::Value::Number(number.to_string(), false));
    let of = || Box::new(Expr::Identifier(ident(&column.name)));
    match (to.bits, to.max_chars) {
        (Some(bits), _) if column.rules.bits.is_none_or(|known| bits < known) => {
            let most = (1_i64 << (bits - 1)) - 1;
            let expr = Expr::Between {
                expr: of(),
                negated: false,
                low: Box::new(number(-most - 1)),
                high: Box::new(number(most)),
            };
            let name = if bits == 16 { "smallint" } else { "integer" };
            Some(Condition { expr, failure: Failure::new("22003", format!("{name} out of range")) })
        }
        (_, Some(most)) if column.rules.max_chars.is_none_or(|known| most < known) => {
            let length = Function {
                name: vec![ident("length")].into(),
                uses_odbc_syntax: false,
                parameters: sqlparser::ast::FunctionArguments::None,
                args: sqlparser::ast::FunctionArguments::List(sqlparser::ast::FunctionArgumentList {
                    duplicate_treatment: None,
                    args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(*of()))],
                    clauses: Vec::new(),
                }),
                filter: None,
                null_treatment: None,
                over: None,
                within_group: Vec::new(),
            };
            let expr = Expr::BinaryOp {
                left: Box::new(Expr::Function(length)),
                op: BinaryOperator::LtEq,
                right: Box::new(number(most.into())),
            };
            let ty = if to.padded { "character" } else { "character varying" };
            let message = format!("value too long for type {ty}({most})");
            Some(Condition { expr, failure: Failure::new("22001", message) })
        }
        _ => None,
    }
}

/// Has rows keep what they must, and looks at those that are there. The numbers of the checks that see to it.
async fn guard(
    evaluator: &Evaluator,
    table: &TableRecord,
    altering: &Altering,
    values: &Values,
) -> Result<BTreeSet<u32>, Failure> {
    let mut guards = BTreeSet::new();
    for Condition { expr, failure } in conditions(table, altering) {
        let declared = Declared { name: None, what: What::Check(Box::new(expr)) };
        let kept = async {
            let number = constraining::add(evaluator, &table.name, &declared).await?;
            guards.insert(number);
            constraining::look_at_rows(evaluator, (&table.name, number), values).await
        };
        let failure = match kept.await {
            Ok(None) => continue,
            Ok(Some(_)) => failure,
            Err(other) => other,
        };
        // The error that led here is told.
        drop(constraining::without(evaluator, &guards).await);
        return Err(failure);
    }
    Ok(guards)
}

/// Changes the definition, without the checks that were there for it.
async fn enter(
    evaluator: &Evaluator,
    altering: &Altering,
    guards: &BTreeSet<u32>,
    values: &Values,
) -> Result<Applied, Failure> {
    let handle = &evaluator.handle;
    let mut looks = 0;
    loop {
        let catalog = handle.look().await?;
        let Some(table) = catalog.table(&altering.table) else {
            return Err(Failure::new("42P01", format!("relation \"{}\" does not exist", altering.table)));
        };
        let first = database::numbers(handle, apply::constraints(altering).max(1)).await?;
        let mut applied = apply::apply(&catalog, table, altering, (first, values.now))?;
        let mut parts = applied.schema.clone().into_parts();
        parts.constraints.retain(|one| !guards.contains(&one.number));
        applied.schema = Schema::from_parts(parts).map_err(invalid)?;
        let changes = changes(evaluator, &catalog, table, &applied).await?;
        match several::enter(handle, changes).await {
            Err(failure) if fault::is_stale(&failure) && looks < MAX_ATTEMPTS => looks += 1,
            Err(failure) => return Err(failure),
            Ok(()) => {
                handle.look_again().await;
                return Ok(applied);
            }
        }
    }
}

async fn changes(
    evaluator: &Evaluator,
    catalog: &Catalog,
    table: &TableRecord,
    applied: &Applied,
) -> Result<Vec<TableChange>, Failure> {
    let sequences = &applied.sequences.gone;
    let losses = Losses::new(catalog, &applied.gone, sequences.clone(), &[table.id].into());
    let version = database::numbers(&evaluator.handle, 1 + losses.count() as u32).await?;
    let to = renewed(table, applied, version)?;
    let mut changes = vec![TableChange::Alter { from: table.schema.version(), to: RecordText::new(&to) }];
    changes.extend(losses.changes(version + 1)?);
    let gone = catalog.others().filter(|other| sequences.contains(&other.id));
    changes.extend(gone.map(|sequence| database::dropped(sequence)));
    Ok(changes)
}

/// A table as it is to be, under a version that was given out.
pub fn renewed(table: &TableRecord, applied: &Applied, version: u32) -> Result<CatalogTable, Failure> {
    let mut parts = applied.schema.clone().into_parts();
    parts.version = version;
    let schema = Schema::from_parts(parts).map_err(invalid)?;
    Ok(CatalogTable::new(table.id, &applied.name, schema, table.created_ms))
}

/// What follows once the columns are there: their constraints are looked at, and they are never null.
async fn behind(
    evaluator: &Evaluator,
    altering: &Altering,
    applied: &Applied,
    values: &Values,
) -> Result<(), Failure> {
    for number in &applied.added {
        constraining::validate(evaluator, (&applied.name, *number), true, values).await?;
    }
    let lacks = |step: &Step| match step {
        Step::Add(added) if !added.column.nullable => {
            let at = applied.schema.column_index(&added.column.name)?;
            applied.schema.columns()[at].nullable.then(|| Step::NotNull(added.column.name.clone(), true))
        }
        _ => None,
    };
    let steps: Vec<Step> = altering.steps.iter().filter_map(lacks).collect();
    if steps.is_empty() {
        return Ok(());
    }
    let again = Altering { table: applied.name.clone(), if_exists: false, steps };
    Box::pin(carry_out(evaluator, &again, values)).await.map(drop)
}

/// Columns that could not be as they were asked for go again.
async fn take_back(evaluator: &Evaluator, name: &str, altering: &Altering, values: &Values) {
    let added = |step: &Step| match step {
        Step::Add(added) => {
            Some(Step::Drop { name: added.column.name.clone(), if_exists: true, cascade: true })
        }
        _ => None,
    };
    let steps: Vec<Step> = altering.steps.iter().filter_map(added).collect();
    if steps.is_empty() {
        return;
    }
    let back = Altering { table: name.into(), if_exists: true, steps };
    // The error that led here is told. Whatever is left can be dropped by hand.
    drop(enter(evaluator, &back, &BTreeSet::new(), values).await);
}
