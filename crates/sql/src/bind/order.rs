//! ORDER BY, LIMIT and OFFSET.

use super::select::{Selected, position};
use super::{Binder, Typed, folded};
use crate::ty::Ty;
use pg::Failure;
use sqlparser::ast::{Expr, LimitClause, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, Query};

/// What an order is by.
enum Place {
    /// A column of the list, by its place.
    Output(usize),
    /// Something else: the engine's text.
    Input(String),
}

impl Binder<'_> {
    /// The engine's text of an order. `selected` is `None` for a UNION, whose order knows its columns alone.
    pub(super) fn order(
        &mut self,
        order: Option<&OrderBy>,
        columns: &[(String, Ty)],
        selected: Option<&Selected>,
    ) -> Result<String, Failure> {
        let Some(order) = order else { return Ok(String::new()) };
        let OrderByKind::Expressions(keys) = &order.kind else {
            return Err(Failure::unsupported("ORDER BY ALL", "name what to order by"));
        };
        let mut texts = Vec::new();
        for key in keys {
            let (place, direction) = self.order_key(key, columns, selected)?;
            texts.push(match place {
                Place::Output(at) => format!("o{at} {direction}"),
                Place::Input(text) => format!("{text} {direction}"),
            });
        }
        Ok(format!(" ORDER BY {}", texts.join(", ")))
    }

    /// A SELECT DISTINCT ON, with its order: rows are numbered in that order within those that are alike, and
    /// the first of each are given.
    pub(super) fn distinct_on(
        &mut self,
        order: Option<&OrderBy>,
        columns: &[(String, Ty)],
        selected: &Selected,
    ) -> Result<(String, String), Failure> {
        let mut on = Vec::new();
        for expr in &selected.on {
            let key = OrderByExpr { expr: expr.clone(), options: OrderByOptions::default(), with_fill: None };
            let (place, _) = self.order_key(&key, columns, Some(selected))?;
            on.push(self.placed(&place, selected));
        }
        let keys = match order.map(|order| &order.kind) {
            None => &[][..],
            Some(OrderByKind::Expressions(keys)) => keys,
            Some(_) => return Err(Failure::unsupported("ORDER BY ALL", "name what to order by")),
        };
        let mut ordered = Vec::new();
        for key in keys {
            let (place, direction) = self.order_key(key, columns, Some(selected))?;
            ordered.push((self.placed(&place, selected), direction));
        }
        // Those that it names come first, in whatever order.
        let first = ordered.iter().take_while(|(text, _)| on.contains(text)).count();
        let missing = on.iter().any(|text| ordered[..first].iter().all(|(key, _)| key != text));
        if missing && first < ordered.len() {
            let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
            return Err(Failure::new("42P10", message));
        }
        let items = selected.items.iter().enumerate();
        let items: Vec<_> = items.map(|(at, (_, typed))| format!("{} AS o{at}", self.text(typed))).collect();
        let keys = ordered.iter().enumerate().map(|(at, (text, _))| format!("{text} AS k{at}"));
        let within: Vec<String> = ordered.iter().map(|(text, to)| format!("{text} {to}")).collect();
        let order =
            if within.is_empty() { String::new() } else { format!(" ORDER BY {}", within.join(", ")) };
        let number = format!("row_number() OVER (PARTITION BY {}{order}) AS n", on.join(", "));
        let inner: Vec<String> = items.into_iter().chain(keys).chain([number]).collect();
        let outer: Vec<String> = (0..selected.items.len()).map(|at| format!("o{at}")).collect();
        let outer = if outer.is_empty() { "NULL".to_string() } else { outer.join(", ") };
        let text = format!("SELECT {outer} FROM (SELECT {}{}) WHERE n = 1", inner.join(", "), selected.tail);
        let keys: Vec<String> =
            ordered.iter().enumerate().map(|(at, (_, direction))| format!("k{at} {direction}")).collect();
        let order = if keys.is_empty() { String::new() } else { format!(" ORDER BY {}", keys.join(", ")) };
        Ok((text, order))
    }

    /// The engine's text of a key, where columns have no names yet.
    fn placed(&mut self, place: &Place, selected: &Selected) -> String {
        match place {
            Place::Output(at) => self.text(&selected.items[*at].1),
            Place::Input(text) => text.clone(),
        }
    }

    fn order_key(
        &mut self,
        key: &OrderByExpr,
        columns: &[(String, Ty)],
        selected: Option<&Selected>,
    ) -> Result<(Place, String), Failure> {
        let same = |binder: &mut Self, one: usize, two: usize| {
            selected.is_some_and(|selected| {
                let (one, two) = (&selected.items[one].1, &selected.items[two].1);
                binder.text(one) == binder.text(two)
            })
        };
        let (place, ty) = match output(&key.expr, columns, |one, two| same(self, one, two))? {
            Some(at) => (Place::Output(at), columns[at].1),
            None => {
                let (text, ty) = self.input_key(&key.expr, selected)?;
                (Place::Input(text), ty)
            }
        };
        self.comparable(ty, "<")?;
        let ascending = key.options.asc.unwrap_or(true);
        // Null is larger than everything.
        let nulls_first = key.options.nulls_first.unwrap_or(!ascending);
        let direction = if ascending { "ASC" } else { "DESC" };
        let nulls = if nulls_first { "FIRST" } else { "LAST" };
        Ok((place, format!("{direction} NULLS {nulls}")))
    }

    /// A key of an order within an aggregate or a window: an expression, never a number of a column.
    pub(super) fn aggregate_key(&mut self, key: &OrderByExpr) -> Result<String, Failure> {
        let typed = self.expr(&key.expr)?;
        let typed = self.decided(typed)?;
        self.comparable(typed.ty.expect("decided"), "<")?;
        let ascending = key.options.asc.unwrap_or(true);
        let first = key.options.nulls_first.unwrap_or(!ascending);
        let (direction, nulls) =
            (if ascending { "ASC" } else { "DESC" }, if first { "FIRST" } else { "LAST" });
        Ok(format!("{} {direction} NULLS {nulls}", self.text(&typed)))
    }

    /// An order by something that is computed from the rows, not one of the columns.
    fn input_key(&mut self, expr: &Expr, selected: Option<&Selected>) -> Result<(String, Ty), Failure> {
        let Some(selected) = selected else {
            let message = "invalid UNION/INTERSECT/EXCEPT ORDER BY clause";
            return Err(Failure::new("0A000", message)
                .hint("Only result column names can be used, not expressions or functions."));
        };
        let typed = self.expr(expr)?;
        let typed = self.decided(typed)?;
        let text = self.text(&typed);
        if selected.distinct {
            let items: Vec<Typed> = selected.items.iter().map(|(_, typed)| typed.clone()).collect();
            if !items.iter().any(|item| item.ty.is_some() && self.text(item) == text) {
                let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                return Err(Failure::new("42P10", message));
            }
        }
        Ok((text, typed.ty.expect("decided")))
    }

    /// The engine's text of LIMIT and OFFSET.
    pub(super) fn limit(&mut self, query: &Query) -> Result<String, Failure> {
        let (mut limit, mut offset) = match &query.limit_clause {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(_) => {
                return Err(Failure::unsupported("this form of LIMIT", "write LIMIT count OFFSET start"));
            }
        };
        let one = Expr::value(sqlparser::ast::Value::Number("1".into(), false));
        if let Some(fetch) = &query.fetch {
            if fetch.with_ties || fetch.percent || limit.is_some() {
                return Err(Failure::unsupported("this form of FETCH", "write LIMIT count"));
            }
            limit = Some(fetch.quantity.as_ref().unwrap_or(&one));
        }
        let (limit, offset) = (limit.take(), offset.take());
        if limit.is_none() && offset.is_none() {
            return Ok(String::new());
        }
        let limit = match limit {
            None => "-1".to_string(),
            Some(expr) => format!("limit_({})", self.row_count(expr, "LIMIT")?),
        };
        let offset = match offset {
            None => String::new(),
            Some(expr) => format!(" OFFSET offset_({})", self.row_count(expr, "OFFSET")?),
        };
        Ok(format!(" LIMIT {limit}{offset}"))
    }

    fn row_count(&mut self, expr: &Expr, place: &str) -> Result<String, Failure> {
        // It sees no columns.
        self.scopes.push(super::Scope::default());
        let outer = std::mem::take(&mut self.scopes);
        self.scopes.push(super::Scope::default());
        let typed = self.expr(expr);
        self.scopes = outer;
        self.scopes.pop();
        let typed = typed.map_err(|failure| match failure.code {
            "42703" => Failure::new("42P10", format!("argument of {place} must not contain variables")),
            _ => failure,
        })?;
        let typed = match typed.ty {
            Some(from) if from.is_number() && from != Ty::Int8 => self.assigned(typed, Ty::Int8, place)?,
            _ => self.becoming(typed, Ty::Int8)?,
        };
        Ok(self.text(&typed))
    }
}

/// The column that an order names: by its number, or by a name that exactly one column has.
///
/// Several columns may have the name if they are the same.
fn output(
    expr: &Expr,
    columns: &[(String, Ty)],
    mut same: impl FnMut(usize, usize) -> bool,
) -> Result<Option<usize>, Failure> {
    if let Some(position) = position(expr) {
        if !(1..=columns.len()).contains(&position) {
            return Err(Failure::new("42P10", format!("ORDER BY position {position} is not in select list")));
        }
        return Ok(Some(position - 1));
    }
    let Expr::Identifier(name) = expr else { return Ok(None) };
    let name = folded(name);
    let mut found = columns.iter().enumerate().filter(|(_, (column, _))| *column == name).map(|(at, _)| at);
    match (found.next(), found.next()) {
        (Some(one), Some(two)) if !same(one, two) => {
            Err(Failure::new("42702", format!("ORDER BY \"{name}\" is ambiguous")))
        }
        (found, _) => Ok(found),
    }
}
