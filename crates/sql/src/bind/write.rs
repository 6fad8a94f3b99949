//! INSERT: which rows, and what is done with those that are there.

use super::conflict::conflict;
use super::{
    Binder, Bound, Form, NUMBER, Quick, Relation, Returning, Scope, Slot, Source, Typed, Use, Visible, What,
    all_decided, folded, no_table, parts, table_name, target_column,
};
use crate::catalog::Catalog;
use crate::columns::{default_slot, is_numbered, numbering};
use crate::system::relations;
use crate::ty::Ty;
use pg::Failure;
use sqlparser::ast::{
    DoUpdate, Expr, Ident, Insert, ObjectName, Parens, Query, SelectItem, SetExpr, TableObject,
    visit_expressions,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::ops::ControlFlow;
use std::sync::Arc;
use types::TableId;
use types::TableRecord;
use types::data::kind::Kind;
use types::data::{Identity, Value};

/// What becomes of a row whose key is there already.
pub enum Conflict {
    /// The statement fails.
    Fail,
    /// The row stays, and the new one is skipped.
    Keep,
    /// The new row takes its place, as a whole.
    Replace,
    /// Columns of the row get new values.
    Update(Box<Upsert>),
}

/// By what ON CONFLICT finds a row that is there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arbiters {
    /// By the key.
    pub key: bool,
    /// By unique constraints, by their numbers.
    pub unique: Vec<u32>,
}

/// ON CONFLICT DO UPDATE: of a row that is there and the one that was to be inserted, side by side. The
/// columns of the second follow those of the first.
pub struct Upsert {
    /// The numbers of the rows that are changed, and their new values.
    pub read: Arc<Bound>,
    /// The columns that are set, in the order of their values.
    pub set: Vec<usize>,
    /// The new values, if no engine is needed for them and there is no condition.
    pub quick: Option<Vec<Quick>>,
}

/// Where the rows of an INSERT come from.
pub enum Rows {
    /// They are written in the statement.
    Slots(Vec<Vec<Slot>>),
    /// They are computed.
    Query(Arc<Bound>),
}

/// An INSERT.
pub struct Insertion {
    /// Into this table.
    pub table: Arc<TableRecord>,
    /// The columns that are given; the others are null.
    pub columns: Vec<usize>,
    /// The rows.
    pub rows: Rows,
    /// If a key is there already.
    pub conflict: Conflict,
    /// By what it may be there.
    pub arbiters: Arbiters,
    /// What the client is told of each row.
    pub returning: Option<Returning>,
}

/// A table that may be written.
pub fn writable(catalog: &Catalog, name: &str) -> Result<Arc<TableRecord>, Failure> {
    let missing = || match catalog.other(name).map(|other| other.schema.kind()) {
        None | Some(Some(Kind::Procedure(_))) => no_table(name),
        Some(Some(Kind::View(_))) => {
            let hint = "write to the tables that the view shows";
            Failure::unsupported(format!("writing to the view \"{name}\""), hint)
        }
        Some(_) => Failure::new("42809", format!("cannot change sequence \"{name}\"")),
    };
    let table = catalog.table(name).cloned().ok_or_else(missing)?;
    match types::system::is_reserved(name) {
        true => Err(Failure::new("42501", format!("permission denied for table {name}"))
            .hint("it is written by the cluster alone; it can be read")),
        false => Ok(table),
    }
}

impl Binder<'_> {
    /// An INSERT, and the types of its parameters.
    pub fn insert(self, insert: &Insert) -> Result<(Insertion, Vec<Ty>), Failure> {
        let (insertion, params) = self.insert_part(insert)?;
        Ok((insertion, all_decided(&params)?))
    }

    /// The same of a part of a statement: the types of parameters as far as it decides them.
    pub(super) fn insert_part(self, insert: &Insert) -> Result<(Insertion, Vec<Option<Ty>>), Failure> {
        refuse_rest(insert)?;
        let TableObject::TableName(name) = &insert.table else {
            return Err(Failure::unsupported("INSERT into something else than a table", "name a table"));
        };
        let table = writable(self.catalog, &table_name(name)?)?;
        let given = match &insert.source {
            Some(query) => target_columns(&table, &insert.columns, width(&query.body))?,
            // DEFAULT VALUES
            None => Vec::new(),
        };
        let rows = match insert.source.as_deref().map(|query| query.body.as_ref()) {
            Some(SetExpr::Values(values)) => &values.rows[..],
            _ => &[],
        };
        let (columns, defaults) = numbered(&table, given, (rows, insert.overwrite))?;
        let wanted: Vec<(String, Ty)> = columns
            .iter()
            .map(|at| &table.schema.columns()[*at])
            .map(|column| (column.name.clone(), Ty::of_column(column)))
            .collect();
        let catalog = self.catalog;
        let (columns, (rows, params)) = match &insert.source {
            None => (Vec::new(), (Rows::Slots(vec![Vec::new()]), self.params)),
            Some(query) => (columns, self.new_rows(query, &wanted, &defaults)?),
        };
        let own = || catalog.placed(&table.name).1.to_string();
        let name = insert.table_alias.as_ref().map_or_else(own, |name| folded(&name.alias));
        let (conflict, arbiters, params) =
            conflict(catalog, &table, &name, &columns, insert.on.as_ref(), params)?;
        let told = Binder::new(catalog, &params);
        let (returning, params) = told.returning(insert.returning.as_deref(), |binder| {
            binder.given(&table, &name, &[]);
            Ok(())
        })?;
        Ok((Insertion { table, columns, rows, conflict, arbiters, returning }, params))
    }

    /// The rows of an INSERT, and the types of parameters as far as they are decided.
    fn new_rows(
        mut self,
        query: &Query,
        wanted: &[(String, Ty)],
        defaults: &[Meaning],
    ) -> Result<(Rows, Vec<Option<Ty>>), Failure> {
        self.see_around()?;
        if let Some(slots) = self.plain_rows(query, wanted, defaults)? {
            return Ok((Rows::Slots(slots), self.params));
        }
        let query = without_defaults(query, defaults)?;
        let again = Binder::new(self.catalog, &self.params).around(self.around);
        let (bound, params) = again.whole_as(&query, wanted)?;
        Ok((Rows::Query(Arc::new(bound)), params))
    }

    /// Makes a table visible whose rows are given, and rows beside it whose columns follow the table's.
    fn given(&mut self, table: &Arc<TableRecord>, name: &str, beside: &[&str]) {
        self.sources.push(Source {
            table: table.clone(),
            columns: Vec::new(),
            conditions: Vec::new(),
            uses: 1,
        });
        let alias = self.alias();
        let width = table.schema.columns().len();
        let mut scope = Scope::default();
        for (number, name) in [name].iter().chain(beside).enumerate() {
            let columns = table.schema.visible().map(|at| {
                let column = &table.schema.columns()[at];
                let what = What::Column(number * width + at);
                Visible { name: column.name.clone(), ty: Ty::of_column(column), what }
            });
            scope.relations.push(Relation {
                schema: "".into(),
                name: (*name).to_string(),
                alias: alias.clone(),
                columns: columns.collect(),
                number: None,
                of: Some(Use { source: 0, number: 0 }),
            });
        }
        self.scopes.push(scope);
        self.relations += 1;
    }

    /// ON CONFLICT DO UPDATE, and the types of parameters as far as they are decided.
    pub(super) fn upsert(
        mut self,
        table: &Arc<TableRecord>,
        name: &str,
        update: &DoUpdate,
    ) -> Result<(Upsert, Vec<Option<Ty>>), Failure> {
        self.given(table, name, &["excluded"]);
        let (set, values) = self.settings(table, &update.assignments, "ON CONFLICT DO UPDATE")?;
        let quick = values.iter().map(Typed::quick).collect();
        let mut tail = String::new();
        if let Some(selection) = &update.selection {
            self.scope().no_aggregates = Some("WHERE");
            let condition = self.condition(selection, "WHERE")?;
            tail = format!(" WHERE {}", self.text(&condition));
        }
        if self.relations > 1 {
            return Err(Failure::unsupported(
                "a subquery in ON CONFLICT DO UPDATE",
                "compute the value in the SELECT that gives the rows: EXCLUDED has it",
            ));
        }
        let number = Typed { ty: Some(Ty::Int8), ..self.hidden(NUMBER)? };
        let mut items = vec![("number", number)];
        items.extend(values.into_iter().map(|typed| ("new", typed)));
        let (items, columns) = self.list(items);
        let text = format!("SELECT {items} FROM {}{tail}", self.first_table());
        let quick = if tail.is_empty() { quick } else { None };
        let (read, params) = self.part(text, columns);
        Ok((Upsert { read: Arc::new(read), set, quick }, params))
    }

    /// The number of a table's row and these conditions on it, for rows that are given.
    pub fn checks(mut self, table: &Arc<TableRecord>, exprs: &[Expr]) -> Result<Bound, Failure> {
        self.given(table, &table.name, &[]);
        self.scope().no_aggregates = Some("check constraints");
        let mut items = vec![("number", Typed { ty: Some(Ty::Int8), ..self.hidden(NUMBER)? })];
        for expr in exprs {
            items.push(("check", self.condition(expr, "CHECK")?));
        }
        if self.relations > 1 {
            let hint = "a check looks at one row of one table";
            return Err(Failure::unsupported("a subquery in a check constraint", hint));
        }
        if !self.params.is_empty() {
            return Err(Failure::new("42P02", "there is no parameter in a check constraint"));
        }
        let (items, columns) = self.list(items);
        let text = format!("SELECT {items} FROM {}", self.first_table());
        Ok(self.part(text, columns).0)
    }

    /// The number of a table's row and what columns of it become, for rows that are given. Each column is
    /// given by its name, with an expression, its type, and whether the statement has said the expression.
    pub fn transforms(
        mut self,
        table: &Arc<TableRecord>,
        all: &[(&str, &Expr, Ty, bool)],
    ) -> Result<Bound, Failure> {
        let no_subquery = || Failure::new("0A000", "cannot use subquery in transform expression");
        // In a schema expressions name the table without it.
        self.given(table, table.name.rsplit('.').next().unwrap_or(&table.name), &[]);
        self.scope().no_aggregates = Some("transform expressions");
        let mut items = vec![("number", Typed { ty: Some(Ty::Int8), ..self.hidden(NUMBER)? })];
        for (name, expr, ty, says) in all {
            if has_subquery(expr) {
                return Err(no_subquery());
            }
            let typed = self.expr(expr)?;
            let assigned = self.assigned(typed, *ty, name).map_err(|failure| match (failure.code, says) {
                ("42804", false) => {
                    let ty = ty.name();
                    let message = format!("column \"{name}\" cannot be cast automatically to type {ty}");
                    let hint = format!("You might need to specify \"USING {name}::{ty}\".");
                    Failure::new("42804", message).hint(hint)
                }
                ("42804", true) => {
                    let what = format!("result of USING clause for column \"{name}\"");
                    let message = format!("{what} cannot be cast automatically to type {}", ty.name());
                    Failure::new("42804", message).hint("You might need to add an explicit cast.")
                }
                _ => failure,
            })?;
            items.push(("new", assigned));
        }
        if !self.params.is_empty() {
            return Err(Failure::new("42P02", "there is no parameter in a transform expression"));
        }
        let (items, columns) = self.list(items);
        let text = format!("SELECT {items} FROM {}", self.first_table());
        Ok(self.part(text, columns).0)
    }

    /// Rows of nothing but constants and parameters. `None`: something must be computed.
    fn plain_rows(
        &mut self,
        query: &Query,
        wanted: &[(String, Ty)],
        defaults: &[Meaning],
    ) -> Result<Option<Vec<Vec<Slot>>>, Failure> {
        let plain = query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none();
        let SetExpr::Values(values) = query.body.as_ref() else { return Ok(None) };
        if !plain || query.fetch.is_some() {
            return Ok(None);
        }
        self.scopes.push(Scope::default());
        let mut rows = Vec::new();
        for row in &values.rows {
            let row: &Vec<Expr> = row;
            if row.len() != defaults.len() {
                return Err(other_width(row.len(), defaults.len()));
            }
            let mut slots = Vec::new();
            let said = row.iter().zip(defaults).filter(|(_, default)| !matches!(default, Meaning::Number));
            for ((expr, default), (name, ty)) in said.zip(wanted) {
                if let (true, Meaning::Slot(slot)) = (is_default(expr), default) {
                    slots.push(slot.clone());
                    continue;
                }
                if is_default(expr) {
                    self.scopes.pop();
                    return Ok(None);
                }
                let typed = self.expr(expr)?;
                match self.assigned(typed, *ty, name)?.form {
                    Form::Slot(slot) => slots.push(slot),
                    Form::Engine(_) => return Ok(None),
                }
            }
            rows.push(slots);
        }
        self.scopes.pop();
        Ok(Some(rows))
    }
}

/// What DEFAULT means in a column.
pub(super) enum Meaning {
    /// Its default, or null.
    Slot(Slot),
    /// A number from the cluster: every row has DEFAULT here, and the column is left out.
    Number,
    /// The next number of a sequence, in the rows that say DEFAULT.
    Next(TableId),
}

/// The columns that an INSERT gives without those that it leaves to the cluster to number, and what DEFAULT
/// means in each that it names. `rows` are those that are written in it. `overriding`: it may give numbers
/// that are the cluster's to give.
pub(super) fn numbered(
    table: &TableRecord,
    given: Vec<usize>,
    (rows, overriding): (&[Parens<Vec<Expr>>], bool),
) -> Result<(Vec<usize>, Vec<Meaning>), Failure> {
    let (mut columns, mut defaults) = (Vec::new(), Vec::new());
    for (place, at) in given.into_iter().enumerate() {
        let column = &table.schema.columns()[at];
        let says_default = |row: &&Parens<Vec<Expr>>| row.get(place).is_some_and(is_default);
        let count = rows.iter().filter(says_default).count();
        if !is_numbered(column) {
            let slot = default_slot(column)?.unwrap_or(Slot::Const(Value::Null));
            columns.push(at);
            defaults.push(Meaning::Slot(slot));
            continue;
        }
        let name = &column.name;
        if count > 0 && count == rows.len() {
            defaults.push(Meaning::Number);
            continue;
        }
        if column.rules.identity == Some(Identity::Always) && !overriding {
            let message = format!("cannot insert a non-DEFAULT value into column \"{name}\"");
            return Err(
                Failure::new("428C9", message).hint("leave the column out, or write OVERRIDING SYSTEM VALUE")
            );
        }
        if let Some(sequence) = numbering(column).filter(|_| count > 0) {
            columns.push(at);
            defaults.push(Meaning::Next(sequence));
            continue;
        }
        if count > 0 {
            let hint = "give a number in every row, or in none";
            return Err(Failure::unsupported(format!("DEFAULT in some rows of column \"{name}\""), hint));
        }
        columns.push(at);
        defaults.push(Meaning::Slot(Slot::Const(Value::Null)));
    }
    Ok((columns, defaults))
}

/// The query of an INSERT with a value wherever it says DEFAULT, and without the columns that are numbered.
fn without_defaults(query: &Query, defaults: &[Meaning]) -> Result<Query, Failure> {
    let mut query = query.clone();
    let SetExpr::Values(values) = query.body.as_mut() else { return Ok(query) };
    for row in &mut values.rows {
        let exprs = std::mem::take(&mut **row);
        for (place, expr) in exprs.into_iter().enumerate() {
            row.extend(given_value(expr, defaults.get(place))?);
        }
    }
    Ok(query)
}

/// What a column is given that says this, which may be DEFAULT; `None`: the cluster numbers it.
pub(super) fn given_value(expr: Expr, default: Option<&Meaning>) -> Result<Option<Expr>, Failure> {
    Ok(Some(match default {
        Some(Meaning::Number) => return Ok(None),
        Some(Meaning::Slot(slot)) if is_default(&expr) => written(slot)?,
        Some(Meaning::Next(sequence)) if is_default(&expr) => {
            parsed(&format!("nextval('{}'::regclass)", relations::oid_of(*sequence)))?
        }
        _ => expr,
    }))
}

/// A default as it could have been written.
fn written(slot: &Slot) -> Result<Expr, Failure> {
    let text = match slot {
        Slot::Const(Value::Null) => "NULL".to_string(),
        Slot::Const(value) => format!("'{}'", pg::text::to_text(value).replace('\'', "''")),
        Slot::Now => "now()".to_string(),
        Slot::Today => "current_date".to_string(),
        Slot::Random => "gen_random_uuid()".to_string(),
        Slot::Param(_) => return Err(Failure::new(pg::code::INTERNAL, "a default with a parameter")),
    };
    parsed(&text)
}

fn parsed(text: &str) -> Result<Expr, Failure> {
    let dialect = PostgreSqlDialect {};
    let parsed = Parser::new(&dialect).try_with_sql(text).and_then(|mut parser| parser.parse_expr());
    parsed.map_err(|error| Failure::new(pg::code::INTERNAL, error.to_string()))
}

/// The value of an expression without columns that is a constant or the moment of the statement; `None`:
/// something else.
pub fn constant(catalog: &Catalog, expr: &Expr, name: &str, ty: Ty) -> Result<Option<Slot>, Failure> {
    let mut binder = Binder::new(catalog, &[]);
    binder.scopes.push(Scope::default());
    let typed = binder.expr(expr)?;
    if let (Form::Slot(slot @ (Slot::Now | Slot::Today)), Ty::Date) = (&typed.form, ty) {
        return Ok(Some(slot.clone()));
    }
    if let (Form::Slot(Slot::Now), Ty::Timestamp) = (&typed.form, ty) {
        return Ok(Some(Slot::Now));
    }
    match binder.assigned(typed, ty, name)?.form {
        Form::Slot(slot) => Ok(Some(slot)),
        Form::Engine(_) => Ok(None),
    }
}

/// The word DEFAULT.
pub(super) fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(Ident { value, quote_style: None, .. }) if value.eq_ignore_ascii_case("default"))
}

/// How many columns a query gives, where that is written down.
fn width(body: &SetExpr) -> Option<usize> {
    let counted =
        |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    match body {
        SetExpr::Values(values) => values.rows.first().map(|row| row.len()),
        SetExpr::Select(select) => select.projection.iter().all(counted).then_some(select.projection.len()),
        SetExpr::Query(query) => width(&query.body),
        SetExpr::SetOperation { left, .. } => width(left),
        _ => None,
    }
}

/// The error of an INSERT that gives so many values to so many columns.
pub(super) fn other_width(values: usize, columns: usize) -> Failure {
    let (more, less) = match values > columns {
        true => ("expressions", "target columns"),
        false => ("target columns", "expressions"),
    };
    Failure::new(pg::code::SYNTAX, format!("INSERT has more {more} than {less}"))
}

/// The columns that an INSERT gives; if it names none the first ones, as many as there are values.
pub(super) fn target_columns(
    table: &TableRecord,
    names: &[ObjectName],
    values: Option<usize>,
) -> Result<Vec<usize>, Failure> {
    if names.is_empty() {
        // Without names, values are for the first columns.
        return Ok(table.schema.visible().take(values.unwrap_or(usize::MAX)).collect());
    }
    let mut found = Vec::new();
    for name in names {
        let name = parts(name)?.concat();
        let at = target_column(table, &name)?;
        if found.contains(&at) {
            return Err(Failure::new("42701", format!("column \"{name}\" specified more than once")));
        }
        found.push(at);
    }
    Ok(found)
}

fn refuse_rest(insert: &Insert) -> Result<(), Failure> {
    let found = [
        (insert.or.is_some() || insert.ignore || insert.replace_into, "this form of INSERT"),
        (insert.partitioned.is_some() || !insert.assignments.is_empty(), "this form of INSERT"),
        (insert.output.is_some() || insert.multi_table_insert_type.is_some(), "this form of INSERT"),
    ];
    match found.iter().find(|(there, _)| *there) {
        Some((_, what)) => Err(Failure::unsupported(*what, "write INSERT INTO table (columns) VALUES (...)")),
        None => Ok(()),
    }
}

/// True if an expression asks for rows of tables.
fn has_subquery(expr: &Expr) -> bool {
    let asks = |one: &Expr| {
        let asks = matches!(one, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. });
        if asks { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    visit_expressions(expr, asks).is_break()
}
