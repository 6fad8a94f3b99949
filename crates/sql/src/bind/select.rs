//! One SELECT, without its order and limit.

use super::aggregate::item_aggregates;
use super::{Binder, Scope, Typed, folded, parts};
use pg::{Failure, code};
use sqlparser::ast::{
    AccessExpr, Distinct, Expr, GroupByExpr, Select, SelectItem, SelectItemQualifiedWildcardKind,
    Value as Literal, WildcardAdditionalOptions,
};
use types::TableId;

/// What a SELECT gives, before it is written.
pub(super) struct Selected {
    /// Its columns, with their names.
    pub items: Vec<(String, Typed)>,
    pub distinct: bool,
    /// What DISTINCT ON names: of the rows that are alike in it the first is given.
    pub on: Vec<Expr>,
    /// From FROM to HAVING.
    pub tail: String,
    /// Its rows are groups.
    pub grouped: bool,
    /// It has neither GROUP BY nor HAVING.
    pub plain: bool,
    /// Its WHERE.
    pub filter: Option<Typed>,
}

impl Binder<'_> {
    /// Has a SELECT leave rows out that another session has, before any are counted for its LIMIT.
    pub(super) fn skip(
        &mut self,
        selected: &mut Selected,
        key: &Typed,
        table: TableId,
    ) -> Result<(), Failure> {
        let free = format!("free_({}, {})", self.text(key), table.0);
        // It is no read by a whole key any more.
        match selected.filter.take() {
            None => selected.tail.push_str(&format!(" WHERE {free}")),
            Some(filter) => {
                let text = self.text(&filter);
                let before = selected.tail.strip_suffix(&text);
                let before = before.ok_or_else(|| unlockable("SKIP LOCKED with such conditions"))?;
                selected.tail = format!("{before}({text}) AND {free}");
            }
        }
        Ok(())
    }

    /// Binds a SELECT. Its scope is on top afterwards, for its order; the caller removes it.
    pub(super) fn select(&mut self, select: &Select) -> Result<Selected, Failure> {
        refuse_rest(select)?;
        self.scopes.push(Scope::default());
        let from = self.from(&select.from)?;
        let mut tail = String::new();
        let mut filter = None;
        if let Some(selection) = &select.selection {
            self.scope().no_aggregates = Some("WHERE");
            let condition = self.condition(selection, "WHERE");
            self.scope().no_aggregates = None;
            let condition = condition?;
            self.push_down(&condition);
            tail.push_str(&format!(" WHERE {}", self.text(&condition)));
            filter = Some(condition);
        }
        let keys = group_keys(&select.group_by)?;
        let grouped =
            !keys.is_empty() || select.having.is_some() || select.projection.iter().any(item_aggregates);
        if grouped {
            let groups = self.groups(keys, &select.projection)?;
            if !groups.is_empty() {
                tail.push_str(&format!(" GROUP BY {}", groups.join(", ")));
            }
            self.scope().groups = Some(groups);
        }
        self.name_windows(&select.named_window)?;
        (self.scope().sets_allowed, self.scope().windows_allowed) = (true, true);
        let items = self.items(&select.projection);
        (self.scope().sets_allowed, self.scope().windows_allowed) = (false, false);
        let items = items?;
        let sets = self.scope().sets.as_ref().map(super::sets::Sets::text);
        let from = match (from.is_empty(), sets) {
            (true, None) => String::new(),
            (true, Some(sets)) => format!(" FROM {sets}"),
            (false, None) => format!(" FROM {from}"),
            (false, Some(sets)) => format!(" FROM ({from}) JOIN {sets}"),
        };
        tail.insert_str(0, &from);
        if let Some(having) = &select.having {
            let condition = self.condition(having, "HAVING")?;
            let text = self.text(&condition);
            // Without GROUP BY there is one group: the engine knows HAVING only if it sees an aggregate.
            tail.push_str(&format!(" HAVING {text} AND count(*) IS NOT NULL"));
        }
        // ORDER BY comes.
        self.scope().windows_allowed = true;
        if self.scope().windows_used && self.scope().sets.is_some() {
            let what = "window functions beside functions that give several rows";
            return Err(Failure::unsupported(what, "use a subquery"));
        }
        let distinct = match &select.distinct {
            None | Some(Distinct::All) => false,
            Some(Distinct::Distinct) => true,
            Some(Distinct::On(_)) => false,
        };
        let on = match &select.distinct {
            Some(Distinct::On(exprs)) => exprs.clone(),
            _ => Vec::new(),
        };
        if !on.is_empty() && self.scope().sets.is_some() {
            let what = "DISTINCT ON beside functions that give several rows";
            return Err(Failure::unsupported(what, "use a subquery"));
        }
        let plain = select.having.is_none() && group_keys(&select.group_by)?.is_empty();
        Ok(Selected { items, distinct, on, tail, grouped, plain, filter })
    }

    /// Conditions on tables of this very SELECT narrow what is read.
    pub(super) fn push_down(&mut self, condition: &Typed) {
        let own: Vec<_> = self.scope().relations.iter().filter_map(|relation| relation.of).collect();
        let mine = condition.conditions.iter().filter(|(of, _)| own.contains(of)).cloned();
        let mine: Vec<_> = mine.collect();
        self.pushed.extend(mine);
    }

    /// The engine's texts of what is grouped by. A number means a column of the list, a name one of the
    /// tables first.
    fn groups(&mut self, keys: &[Expr], items: &[SelectItem]) -> Result<Vec<String>, Failure> {
        let mut groups = Vec::new();
        for key in keys {
            self.scope().no_aggregates = Some("GROUP BY");
            let typed = match position(key) {
                Some(position) => match items.get(position.wrapping_sub(1)) {
                    Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => {
                        self.expr(expr)
                    }
                    _ => Err(Failure::new(
                        "42P10",
                        format!("GROUP BY position {position} is not in select list"),
                    )),
                },
                None => self.group_key(key, items),
            };
            self.scope().no_aggregates = None;
            let typed = self.decided(typed?)?;
            self.comparable(typed.ty.expect("decided"), "=")?;
            groups.push(self.text(&typed));
        }
        Ok(groups)
    }

    fn group_key(&mut self, key: &Expr, items: &[SelectItem]) -> Result<Typed, Failure> {
        let plain = self.expr(key);
        match (&plain, key) {
            (Err(failure), Expr::Identifier(name)) if failure.code == "42703" => {
                let name = folded(name);
                let named = items.iter().find_map(|item| match item {
                    SelectItem::ExprWithAlias { expr, alias } if folded(alias) == name => Some(expr),
                    _ => None,
                });
                match named {
                    Some(expr) => self.expr(expr),
                    None => plain,
                }
            }
            _ => plain,
        }
    }

    pub(super) fn items(&mut self, projection: &[SelectItem]) -> Result<Vec<(String, Typed)>, Failure> {
        let mut items = Vec::new();
        for item in projection {
            match item {
                SelectItem::UnnamedExpr(expr) => items.push((name_of(expr), self.expr(expr)?)),
                SelectItem::ExprWithAlias { expr, alias } => items.push((folded(alias), self.expr(expr)?)),
                SelectItem::Wildcard(options) => {
                    plain_star(options)?;
                    self.star(&[], &mut items)?;
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                    plain_star(options)?;
                    self.star(&parts(name)?, &mut items)?;
                }
                other => return Err(Failure::unsupported(format!("{other} in a SELECT"), "name columns")),
            }
        }
        Ok(items)
    }

    fn star(&mut self, table: &[String], items: &mut Vec<(String, Typed)>) -> Result<(), Failure> {
        let level = self.scopes.len() - 1;
        let mut merged = Vec::new();
        if table.is_empty() {
            merged = self.scopes[level].merged.clone();
            for column in &merged {
                items.push((column.name.clone(), self.visible(level, None, column)?));
            }
        }
        let relations: Vec<usize> = (0..self.scopes[level].relations.len())
            .filter(|at| self.scopes[level].relations[*at].is_called(table))
            .collect();
        match (relations.is_empty(), table.last()) {
            (true, Some(table)) => {
                let message = format!("missing FROM-clause entry for table \"{table}\"");
                return Err(Failure::new("42P01", message));
            }
            (true, None) => {
                return Err(Failure::new(code::SYNTAX, "SELECT * with no tables specified is not valid"));
            }
            _ => {}
        }
        for at in relations {
            for column in self.scopes[level].relations[at].columns.clone() {
                if merged.iter().any(|merged| merged.name == column.name) {
                    continue;
                }
                items.push((column.name.clone(), self.visible(level, Some(at), &column)?));
            }
        }
        Ok(())
    }
}

fn group_keys(group_by: &GroupByExpr) -> Result<&[Expr], Failure> {
    match group_by {
        GroupByExpr::Expressions(keys, modifiers) if modifiers.is_empty() => Ok(keys),
        _ => Err(Failure::unsupported("this form of GROUP BY", "name the expressions to group by")),
    }
}

/// A whole number that stands for a column of the list.
pub(super) fn position(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(value) => match &value.value {
            Literal::Number(digits, false) => digits.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

fn plain_star(options: &WildcardAdditionalOptions) -> Result<(), Failure> {
    let plain = options.opt_ilike.is_none()
        && options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
        && options.opt_alias.is_none();
    if plain { Ok(()) } else { Err(Failure::unsupported("a star with options", "name the columns")) }
}

/// Clauses that are not understood, or that PostgreSQL does not have.
fn refuse_rest(select: &Select) -> Result<(), Failure> {
    let found = [
        (select.into.is_some(), "SELECT INTO"),
        (select.top.is_some(), "TOP"),
        (!select.lateral_views.is_empty(), "LATERAL VIEW"),
        (select.prewhere.is_some(), "PREWHERE"),
        (!select.connect_by.is_empty(), "CONNECT BY"),
        (!select.cluster_by.is_empty(), "CLUSTER BY"),
        (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!select.sort_by.is_empty(), "SORT BY"),
        (select.qualify.is_some(), "QUALIFY"),
        (select.value_table_mode.is_some(), "SELECT AS"),
        (select.exclude.is_some(), "EXCLUDE"),
        (select.select_modifiers.is_some(), "a modifier of SELECT"),
    ];
    match found.iter().find(|(there, _)| *there) {
        Some((_, what)) => Err(Failure::unsupported(*what, "docs/sql.md lists what is understood")),
        None => Ok(()),
    }
}

/// The name that PostgreSQL gives to a column without an alias.
fn name_of(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => folded(name),
        Expr::CompoundIdentifier(names) => names.last().map(folded).unwrap_or_default(),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => name_of(inner),
        Expr::Cast { expr: inner, data_type, .. } => match (name_of(inner), inner.as_ref()) {
            // The last cast gives the name, unless there is one from a column or a function.
            (name, Expr::Cast { .. } | Expr::TypedString(_)) if !named_below(inner) => {
                super::operators::data_type(data_type, false).map_or(name, |ty| short(ty).into())
            }
            (name, _) if name == NO_NAME => {
                super::operators::data_type(data_type, false).map_or(name, |ty| short(ty).into())
            }
            (name, _) => name,
        },
        Expr::TypedString(typed) => {
            super::operators::data_type(&typed.data_type, false).map_or(NO_NAME.into(), |ty| short(ty).into())
        }
        Expr::Function(function) => {
            parts(&function.name).ok().and_then(|parts| parts.last().cloned()).unwrap_or_default()
        }
        Expr::Case { else_result, .. } => match else_result.as_deref().map(name_of) {
            Some(name) if name != NO_NAME => name,
            _ => "case".into(),
        },
        Expr::Exists { negated: false, .. } => "exists".into(),
        Expr::Array(_) => "array".into(),
        Expr::CompoundFieldAccess { root, access_chain } => accessed(root, access_chain),
        Expr::Extract { .. } => "extract".into(),
        Expr::Ceil { .. } => "ceil".into(),
        Expr::Floor { .. } => "floor".into(),
        Expr::Position { .. } => "position".into(),
        Expr::Substring { shorthand: true, .. } => "substr".into(),
        Expr::Substring { .. } => "substring".into(),
        Expr::Trim { trim_where, .. } => match trim_where {
            Some(sqlparser::ast::TrimWhereField::Leading) => "ltrim".into(),
            Some(sqlparser::ast::TrimWhereField::Trailing) => "rtrim".into(),
            _ => "btrim".into(),
        },
        Expr::Subquery(query) => match query.body.as_ref() {
            sqlparser::ast::SetExpr::Select(select) => match select.projection.first() {
                Some(SelectItem::UnnamedExpr(expr)) => name_of(expr),
                Some(SelectItem::ExprWithAlias { alias, .. }) => folded(alias),
                _ => NO_NAME.into(),
            },
            _ => NO_NAME.into(),
        },
        _ => NO_NAME.into(),
    }
}

fn accessed(root: &Expr, chain: &[AccessExpr]) -> String {
    let field = chain.iter().rev().find_map(|step| match step {
        AccessExpr::Dot(Expr::Identifier(name)) => Some(folded(name)),
        _ => None,
    });
    field.unwrap_or_else(|| name_of(root))
}

/// True if the name of what is cast comes from a column or a function, not from a type.
fn named_below(expr: &Expr) -> bool {
    match expr {
        Expr::Cast { expr: inner, .. } => named_below(inner),
        Expr::Nested(inner) => named_below(inner),
        Expr::TypedString(_) => false,
        other => name_of(other) != NO_NAME,
    }
}

const NO_NAME: &str = "?column?";

/// PostgreSQL's own name of a type.
fn short(ty: crate::ty::Ty) -> &'static str {
    use crate::ty::Ty;
    match ty {
        Ty::Bool => "bool",
        Ty::Int4 => "int4",
        Ty::Int8 => "int8",
        Ty::Float8 => "float8",
        Ty::Timestamp => "timestamp",
        Ty::Timestamptz => "timestamptz",
        Ty::Bpchar => "bpchar",
        Ty::Int2 => "int2",
        Ty::Float4 => "float4",
        Ty::Char => "char",
        other => other.name(),
    }
}

pub(super) fn unlockable(what: &str) -> Failure {
    Failure::unsupported(what, "lock the rows of one table: FOR UPDATE OF table")
}
