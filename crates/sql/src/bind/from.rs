//! FROM: tables, subqueries, joins.

use super::{
    Binder, Comparison, Relation, Source, Typed, Use, Visible, What, folded, no_table, parts, table_name,
};
use crate::engine::{MOST_COLUMNS, packed_width};
use crate::system;
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Join, JoinConstraint, JoinOperator, ObjectName, Query, TableAlias,
    TableFactor, TableFunctionArgs, TableWithJoins,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::sync::Arc;
use types::TableRecord;
use types::data::kind::Kind;

/// The query of a view.
pub fn query_of(text: &str) -> Result<Query, Failure> {
    let dialect = PostgreSqlDialect {};
    let read = Parser::new(&dialect).try_with_sql(text).and_then(|mut parser| parser.parse_query());
    read.map(|query| *query)
        .map_err(|error| Failure::new(code::INTERNAL, format!("a view cannot be read: {error}")))
}

/// Marks in the engine's text where a table stands, until it is known how it is read.
pub(super) fn mark(source: usize) -> String {
    format!("@{source}@")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Inner,
    Left,
    Right,
    Full,
}

impl Side {
    /// True if every row of the left side stays with what it is joined to.
    fn keeps_left(self) -> bool {
        matches!(self, Side::Inner | Side::Left)
    }
}

/// Which rows stay, and the condition.
fn side(join: &Join) -> Result<(Side, &JoinConstraint), Failure> {
    use JoinOperator as Op;
    Ok(match &join.join_operator {
        Op::Join(constraint) | Op::Inner(constraint) => (Side::Inner, constraint),
        Op::Left(constraint) | Op::LeftOuter(constraint) => (Side::Left, constraint),
        Op::Right(constraint) | Op::RightOuter(constraint) => (Side::Right, constraint),
        Op::FullOuter(constraint) => (Side::Full, constraint),
        Op::CrossJoin(constraint) => (Side::Inner, constraint),
        _ => {
            return Err(Failure::unsupported(
                "this kind of join",
                "use JOIN, LEFT JOIN, RIGHT JOIN or FULL JOIN",
            ));
        }
    })
}

/// True for what may see what stands beside it.
fn sees_others(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Derived { lateral, .. } => *lateral,
        TableFactor::Table { args, .. } => args.is_some(),
        TableFactor::Function { .. } | TableFactor::UNNEST { .. } => true,
        _ => false,
    }
}

impl Binder<'_> {
    /// The engine's text of a FROM. Its relations are added to the scope.
    pub(super) fn from(&mut self, from: &[TableWithJoins]) -> Result<String, Failure> {
        let mut texts = Vec::new();
        for one in from {
            let text = self.joined_tables(one)?;
            // The engine would read a comma as a join like the others, from the left. That comes to the same
            // for inner and left joins, and without parentheses what is in them sees what stands before.
            let bare = one.joins.iter().all(|join| side(join).is_ok_and(|(side, _)| side.keeps_left()));
            let sees = std::iter::once(&one.relation).chain(one.joins.iter().map(|join| &join.relation));
            texts.push(match one.joins.is_empty() || bare && sees.into_iter().any(sees_others) {
                true => text,
                false => format!("({text})"),
            });
        }
        Ok(texts.join(" JOIN "))
    }

    fn joined_tables(&mut self, from: &TableWithJoins) -> Result<String, Failure> {
        let first = self.scope().relations.len();
        let mut text = self.factor(&from.relation)?;
        for join in &from.joins {
            text = self.join(first, &text, join)?;
        }
        Ok(text)
    }

    fn join(&mut self, first: usize, left: &str, join: &Join) -> Result<String, Failure> {
        let (side, constraint) = side(join)?;
        let asked = |factor: &TableFactor| {
            let (TableFactor::Derived { lateral, .. } | TableFactor::Function { lateral, .. }) = factor
            else {
                return false;
            };
            *lateral
        };
        if asked(&join.relation) && !side.keeps_left() {
            return Err(Failure::new("42P10", "invalid reference to FROM-clause entry")
                .detail("The combining JOIN type must be INNER or LEFT for a LATERAL reference."));
        }
        let middle = self.scope().relations.len();
        let right = self.factor(&join.relation)?;
        let on = match constraint {
            JoinConstraint::On(expr) => {
                self.scope().no_aggregates = Some("JOIN conditions");
                let condition = self.condition(expr, "JOIN/ON");
                self.scope().no_aggregates = None;
                let condition = condition?;
                if side == Side::Inner {
                    self.push_down(&condition);
                }
                self.text(&condition)
            }
            JoinConstraint::Using(columns) => {
                let names = columns.iter().map(parts).collect::<Result<Vec<_>, _>>()?;
                self.using(first, middle, side, &names.concat())?
            }
            JoinConstraint::None if matches!(join.join_operator, JoinOperator::CrossJoin(_)) => {
                // The engine's CROSS JOIN would fix the order in which tables are read.
                return Ok(format!("{left} JOIN {right}"));
            }
            JoinConstraint::None => {
                return Err(Failure::new(code::SYNTAX, "syntax error: a join needs ON or USING"));
            }
            JoinConstraint::Natural => match self.common_names(first, middle) {
                names if names.is_empty() => "true".into(),
                names => self.using(first, middle, side, &names)?,
            },
        };
        let word = match side {
            Side::Inner => "JOIN",
            Side::Left => "LEFT JOIN",
            Side::Right => "RIGHT JOIN",
            Side::Full => "FULL JOIN",
        };
        Ok(format!("{left} {word} {right} ON {on}"))
    }

    /// Names of columns that both sides of a join have, in the order of the left side.
    fn common_names(&mut self, first: usize, middle: usize) -> Vec<String> {
        let relations = &self.scope().relations;
        let names = |side: &[Relation]| -> Vec<String> {
            side.iter().flat_map(|relation| &relation.columns).map(|column| column.name.clone()).collect()
        };
        let (mut left, right) = (names(&relations[first..middle]), names(&relations[middle..]));
        let mut seen = std::collections::BTreeSet::new();
        left.retain(|name| right.contains(name) && seen.insert(name.clone()));
        left
    }

    /// The condition of a USING. Its columns are afterwards named without a table.
    fn using(
        &mut self,
        first: usize,
        middle: usize,
        side: Side,
        names: &[String],
    ) -> Result<String, Failure> {
        let mut texts = Vec::new();
        for name in names {
            let end = self.scope().relations.len();
            let one = match self.scope().merged.iter().position(|column| column.name == *name) {
                Some(at) => {
                    let merged = self.scope().merged.remove(at);
                    let level = self.scopes.len() - 1;
                    self.visible(level, None, &merged)?
                }
                None => self.named_in(first..middle, name, "left")?,
            };
            let two = self.named_in(middle..end, name, "right")?;
            let (same, same_ty) = {
                let (one, two, ty) = self.alike(one.clone(), two.clone())?;
                (self.compare(one, "=", Some(Comparison::Equal), two)?, ty)
            };
            texts.push(self.text(&same));
            let (left, right) = (self.becoming(one, same_ty)?, self.becoming(two, same_ty)?);
            let (left, right) = (self.text(&left), self.text(&right));
            let text = match side {
                Side::Inner | Side::Left => left,
                Side::Right => right,
                Side::Full => format!("coalesce({left}, {right})"),
            };
            let merged = Visible { name: name.clone(), ty: same_ty, what: What::Text(text) };
            self.scope().merged.push(merged);
        }
        Ok(texts.join(" AND "))
    }

    fn named_in(
        &mut self,
        relations: std::ops::Range<usize>,
        name: &str,
        side: &str,
    ) -> Result<Typed, Failure> {
        let level = self.scopes.len() - 1;
        let mut found = None;
        for at in relations {
            for column in self.scopes[level].relations[at].columns.iter().filter(|column| column.name == name)
            {
                if found.is_some() {
                    return Err(Failure::new(
                        "42702",
                        format!("common column name \"{name}\" appears more than once"),
                    ));
                }
                found = Some((at, column.clone()));
            }
        }
        let (at, column) = found.ok_or_else(|| {
            let message =
                format!("column \"{name}\" specified in USING clause does not exist in {side} table");
            Failure::new("42703", message)
        })?;
        self.visible(level, Some(at), &column)
    }

    fn factor(&mut self, factor: &TableFactor) -> Result<String, Failure> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                version: None,
                sample: None,
                with_ordinality: false,
                json_path: None,
                ..
            } => {
                let plain = parts(name)?;
                if let [name] = plain.as_slice()
                    && let Some(common) = self.commons.iter().rev().find_map(|level| level.get(name)).cloned()
                {
                    if common.alias.is_empty() {
                        return Err(super::with_parts::gives_no_rows(name));
                    }
                    let text = self.derived(name, alias.as_ref(), &common.columns)?;
                    return Ok(format!("{} AS {text}", common.alias));
                }
                if let Some(system) = system::find(&plain) {
                    return self.system_table(system, alias.as_ref());
                }
                self.relation(&table_name(name)?, alias.as_ref())
            }
            TableFactor::Table {
                name,
                alias,
                args: Some(TableFunctionArgs { args, settings: None }),
                with_ordinality,
                ..
            } => self.function_in_from(name, args, alias.as_ref(), *with_ordinality),
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality,
            } => {
                let plain = |expr: &Expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr.clone()));
                let arguments: Vec<FunctionArg> = array_exprs.iter().map(plain).collect();
                self.set_in_from("unnest", &arguments, alias.as_ref(), *with_ordinality)
            }
            TableFactor::Derived { lateral: false, subquery, alias, sample: None } => {
                let (text, columns) = self.isolated(|binder| binder.subquery(subquery))?;
                let name = alias.as_ref().map_or_else(String::new, |alias| folded(&alias.name));
                let engine = self.derived(&name, alias.as_ref(), &columns)?;
                Ok(format!("({text}) AS {engine}"))
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                Ok(format!("({})", self.joined_tables(table_with_joins)?))
            }
            TableFactor::Derived { lateral: true, subquery, alias, sample: None } => {
                self.lateral(subquery, alias.as_ref())
            }
            // A function in FROM sees what stands beside it, with LATERAL and without.
            TableFactor::Function { name, args, alias, with_ordinality, .. } => {
                self.function_in_from(name, args, alias.as_ref(), *with_ordinality)
            }
            other => {
                let text: String = other.to_string().chars().take(60).collect();
                Err(Failure::unsupported(format!("{text} in FROM"), "name a table or a subquery"))
            }
        }
    }

    /// A function that gives rows.
    fn function_in_from(
        &mut self,
        name: &ObjectName,
        arguments: &[FunctionArg],
        alias: Option<&TableAlias>,
        numbered: bool,
    ) -> Result<String, Failure> {
        let parts = parts(name)?;
        match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [name] | ["pg_catalog" | "information_schema", name] if super::sets::gives_rows(name) => {
                self.set_in_from(name, arguments, alias, numbered)
            }
            _ => Err(Failure::unsupported(
                format!("function {name} in FROM"),
                "docs/sql.md lists those that give rows",
            )),
        }
    }

    /// A subquery that sees what stands before it: all its rows for one row there are one value, and that is
    /// a table's argument.
    fn lateral(&mut self, subquery: &Query, alias: Option<&TableAlias>) -> Result<String, Failure> {
        let (text, columns) = self.subquery(subquery)?;
        if columns.len() > MOST_COLUMNS {
            let message = format!("a LATERAL subquery has at most {MOST_COLUMNS} columns");
            return Err(Failure::new("54011", message));
        }
        let width = packed_width(columns.len());
        let name = alias.map_or_else(String::new, |alias| folded(&alias.name));
        let engine = self.derived(&name, alias, &columns)?;
        // A SELECT of nothing gives rows all the same.
        let values = match columns.len() {
            0 => "NULL".into(),
            many => (0..many).map(|at| format!("o{at}")).collect::<Vec<_>>().join(", "),
        };
        Ok(format!("unpack{width}_((SELECT pack_({values}) FROM ({text}))) AS {engine}"))
    }

    /// A table, a view or a sequence.
    fn relation(&mut self, name: &str, alias: Option<&TableAlias>) -> Result<String, Failure> {
        let other = self.catalog.other(name).filter(|other| other.schema.procedure().is_none());
        if let Some(other) = other.cloned() {
            return self.other(&other, alias);
        }
        let table = self.catalog.table(name).cloned().ok_or_else(|| no_table(name))?;
        self.table(&table, alias)
    }

    /// A view, or a sequence as PostgreSQL shows it: a query that sees nothing of what stands around it.
    fn other(&mut self, other: &Arc<TableRecord>, alias: Option<&TableAlias>) -> Result<String, Failure> {
        let query = match other.schema.kind() {
            Some(Kind::View(text)) => query_of(text)?,
            _ => {
                let of = format!("'{}'::regclass", system::relations::table_oid(other));
                query_of(&format!(
                    "SELECT sequence_last({of}) AS a, 0::bigint AS b, sequence_called({of}) AS c"
                ))?
            }
        };
        let around = (std::mem::take(&mut self.scopes), std::mem::take(&mut self.commons));
        let bound = self.subquery(&query);
        (self.scopes, self.commons) = around;
        let (text, mut columns) = bound?;
        for ((name, _), at) in columns.iter_mut().zip(other.schema.visible()) {
            name.clone_from(&other.schema.columns()[at].name);
        }
        let engine = self.derived(self.catalog.placed(&other.name).1, alias, &columns)?;
        Ok(format!("({text}) AS {engine}"))
    }

    /// A subquery in FROM does not see what stands beside it.
    pub(super) fn isolated<T>(
        &mut self,
        bind: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let own = self.scopes.pop();
        let bound = bind(self);
        self.scopes.extend(own);
        bound
    }

    fn table(&mut self, table: &Arc<TableRecord>, alias: Option<&TableAlias>) -> Result<String, Failure> {
        let source = match self.sources.iter().position(|source| source.table.id == table.id) {
            Some(at) => at,
            None => {
                let (columns, conditions) = (Vec::new(), Vec::new());
                self.sources.push(Source { table: table.clone(), columns, conditions, uses: 0 });
                self.sources.len() - 1
            }
        };
        self.repeated |= self.inside > 0;
        let number = self.sources[source].uses;
        self.sources[source].uses += 1;
        let engine = self.alias();
        let columns = table.schema.visible().map(|at| {
            let column = &table.schema.columns()[at];
            Visible { name: column.name.clone(), ty: Ty::of_column(column), what: What::Column(at) }
        });
        let (schema, own) = self.catalog.placed(&table.name);
        let schema = if alias.is_none() { schema.unwrap_or("public") } else { "" };
        let relation = Relation {
            schema: schema.to_string().into(),
            name: alias.map_or_else(|| own.to_string(), |alias| folded(&alias.name)),
            alias: engine.clone(),
            columns: columns.collect(),
            number: None,
            of: Some(Use { source, number }),
        };
        self.add(relation, alias)?;
        Ok(format!("{} AS {engine}", mark(source)))
    }

    /// A system table is read once, with all its columns, however often the statement names it.
    fn system_table(&mut self, system: usize, alias: Option<&TableAlias>) -> Result<String, Failure> {
        if !self.systems.contains(&system) {
            self.systems.push(system);
        }
        let table = &system::all()[system];
        let engine = self.alias();
        let columns = table.columns.iter().enumerate().map(|(at, (name, ty))| Visible {
            name: (*name).into(),
            ty: *ty,
            what: What::Text(format!("{engine}.c{at}")),
        });
        let columns = columns.collect();
        let schema = if alias.is_none() { table.schema } else { "" };
        let name = alias.map_or_else(|| table.name.into(), |alias| folded(&alias.name));
        let number = (table.kind == "r").then_some(table.oid);
        let relation =
            Relation { schema: schema.into(), name, alias: engine.clone(), columns, number, of: None };
        self.add(relation, alias)?;
        Ok(format!("{} AS {engine}", mark(system::FIRST + system)))
    }

    /// A subquery's columns become visible; the engine's name of it.
    fn derived(
        &mut self,
        name: &str,
        alias: Option<&TableAlias>,
        columns: &[(String, Ty)],
    ) -> Result<String, Failure> {
        let engine = self.alias();
        let columns = columns.iter().enumerate().map(|(at, (name, ty))| Visible {
            name: name.clone(),
            ty: *ty,
            what: What::Text(format!("{engine}.o{at}")),
        });
        let name = alias.map_or_else(|| name.to_string(), |alias| folded(&alias.name));
        let columns = columns.collect();
        let (schema, number, of) = ("".into(), None, None);
        self.add(Relation { schema, name, alias: engine.clone(), columns, number, of }, alias)?;
        Ok(engine)
    }

    pub(super) fn add(&mut self, mut relation: Relation, alias: Option<&TableAlias>) -> Result<(), Failure> {
        if let Some(alias) = alias {
            if alias.columns.len() > relation.columns.len() {
                let message = format!(
                    "table \"{}\" has {} columns available but {} columns specified",
                    relation.name,
                    relation.columns.len(),
                    alias.columns.len()
                );
                return Err(Failure::new("42P10", message));
            }
            for (column, alias) in relation.columns.iter_mut().zip(&alias.columns) {
                column.name = folded(&alias.name);
            }
        }
        let taken = |other: &Relation| other.is_taken_for(&relation);
        if !relation.name.is_empty() && self.scope().relations.iter().any(taken) {
            let message = format!("table name \"{}\" specified more than once", relation.name);
            return Err(Failure::new("42712", message));
        }
        self.names.push((relation.alias.clone(), relation.name.clone()));
        self.scope().relations.push(relation);
        self.relations += 1;
        Ok(())
    }
}
