//! Whole queries: common table expressions, set operations, and how tables are read.

use super::from::mark;
use super::select::{Selected, unlockable};
use super::{
    Binder, Common, Comparison, Condition, Form, KEY, Relation, Scope, Slot, Source, Typed, Visible, What,
    folded, parts,
};
use crate::ty::{Ty, common};
use pg::{Failure, code};
use sqlparser::ast::{
    Cte, LockClause, LockType, NonBlock, Query, SetExpr, SetOperator, SetQuantifier, Values, With,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::TableRecord;

/// A query's columns, with their names.
pub type Output = Vec<(String, Ty)>;

/// A query, bound.
#[derive(Clone)]
pub struct Bound {
    /// The engine's text.
    pub text: String,
    /// Its columns.
    pub columns: Output,
    /// To how many characters its columns are filled up with blanks, if they are; those at the end may lack.
    pub widths: Vec<Option<u32>>,
    /// The tables it reads.
    pub sources: Vec<Source>,
    /// The system tables it reads, by their number among all of them.
    pub systems: Vec<usize>,
    /// The engine's names of relations, with the statement's.
    pub names: Vec<(String, String)>,
    /// The values of the text's slots.
    pub slots: Vec<(Slot, Ty)>,
    /// It is a read of one row by its key, if it is.
    pub point: Option<Point>,
    /// It is a count of the rows of one table, with no conditions but those of its source.
    pub counts: bool,
    /// Its last column is the key of the row that it locks. The client is not told of it.
    pub locks: Option<Locks>,
}

/// Rows that a query locks.
#[derive(Clone)]
pub struct Locks {
    /// Their table.
    pub table: Arc<TableRecord>,
    /// It gives no row that another session of this node has.
    pub skips: bool,
}

/// A read of one row by its key, of nothing but columns.
#[derive(Clone)]
pub struct Point {
    /// Values of the key's columns, in the order of the key.
    pub key: Vec<Slot>,
    /// The columns that are wanted.
    pub columns: Vec<usize>,
}

/// What a query turned out to be besides a text.
#[derive(Default)]
struct Special {
    point: Option<Point>,
    counts: bool,
    locks: Option<Locks>,
}

/// A part of a query whose types may still change.
enum Body {
    Select(Box<Selected>),
    Rows(Vec<Vec<Typed>>),
    Done { text: String, columns: Output },
}

impl<'a> Binder<'a> {
    /// A whole statement that gives rows.
    pub fn whole(mut self, query: &Query) -> Result<(Bound, Vec<Ty>), Failure> {
        self.see_around()?;
        self.may_lock = true;
        let (commons, text, columns, special) = self.query(query, &[])?;
        self.finish(commons, text, columns, special)
    }

    /// The same, with rows that are to become these types: those of an INSERT.
    pub fn whole_as(
        mut self,
        query: &Query,
        wanted: &[(String, Ty)],
    ) -> Result<(Bound, Vec<Option<Ty>>), Failure> {
        self.see_around()?;
        let (commons, text, columns, _) = self.query(query, wanted)?;
        let params = self.params.clone();
        Ok((self.assembled(commons, text, columns, Special::default()), params))
    }

    fn finish(
        self,
        commons: Vec<String>,
        text: String,
        columns: Output,
        special: Special,
    ) -> Result<(Bound, Vec<Ty>), Failure> {
        let params = self.parameter_types()?;
        Ok((self.assembled(commons, text, columns, special), params))
    }

    /// A statement of the engine that is not the client's own, and the types of parameters as far as they are
    /// decided.
    pub(super) fn part(self, text: String, columns: Output) -> (Bound, Vec<Option<Ty>>) {
        let params = self.params.clone();
        (self.assembled(Vec::new(), text, columns, Special::default()), params)
    }

    fn assembled(mut self, commons: Vec<String>, text: String, columns: Output, special: Special) -> Bound {
        let uses: usize = self.sources.iter().map(|source| source.uses).sum();
        let direct = uses == 1 && self.relations == 1 && !self.repeated;
        for (at, source) in self.sources.iter_mut().enumerate() {
            if source.uses == 1 {
                let mine = self.pushed.iter().filter(|(of, _)| of.source == at);
                source.conditions = mine.map(|(_, condition)| condition.clone()).collect();
            }
        }
        let mut all = Vec::new();
        let commons = [std::mem::take(&mut self.outer), commons].concat();
        let (mut body, mut with) = (text, commons.join(", "));
        for (at, source) in self.sources.iter().enumerate() {
            let scan = scan(at, source);
            let name = if direct { scan } else { format!("m{at}") };
            body = body.replace(&mark(at), &name);
            with = with.replace(&mark(at), &name);
            if !direct {
                let columns: Vec<String> =
                    (0..source.columns.len().max(1)).map(|at| format!("c{at}")).collect();
                let scan = self::scan(at, source);
                all.push(format!("m{at} AS MATERIALIZED (SELECT {} FROM {scan})", columns.join(", ")));
            }
        }
        for at in self.systems.iter().map(|system| crate::system::FIRST + system) {
            let name = format!("m{at}");
            body = body.replace(&mark(at), &name);
            with = with.replace(&mark(at), &name);
            let width = crate::system::all()[at - crate::system::FIRST].columns.len();
            let columns: Vec<String> = (0..width).map(|column| format!("c{column}")).collect();
            let scan = format!("scan{}_({at})", crate::engine::scan_width(width));
            all.push(format!("{name} AS MATERIALIZED (SELECT {} FROM {scan})", columns.join(", ")));
        }
        all.extend(Some(with).filter(|with| !with.is_empty()));
        let text = if all.is_empty() { body } else { format!("WITH {} {body}", all.join(", ")) };
        let Binder { sources, systems, names, slots, widths, .. } = self;
        let Special { point, counts, locks } = special;
        Bound { text, columns, widths, sources, systems, names, slots, point, counts, locks }
    }

    /// A query in an expression or in FROM.
    pub(super) fn subquery(&mut self, query: &Query) -> Result<(String, Output), Failure> {
        let in_expression = !self.scopes.is_empty();
        self.inside += usize::from(in_expression);
        let bound = self.query(query, &[]);
        self.inside -= usize::from(in_expression);
        let (commons, text, columns, _) = bound?;
        let text = if commons.is_empty() { text } else { format!("WITH {} {text}", commons.join(", ")) };
        Ok((text, columns))
    }

    fn query(
        &mut self,
        query: &Query,
        wanted: &[(String, Ty)],
    ) -> Result<(Vec<String>, String, Output, Special), Failure> {
        refuse_rest(query)?;
        let locks = match std::mem::take(&mut self.may_lock) {
            true => query.locks.as_slice(),
            false if query.locks.is_empty() => &[],
            false => return Err(unlockable("FOR UPDATE in a subquery")),
        };
        self.commons.push(BTreeMap::new());
        let commons = match &query.with {
            Some(with) => self.with(with)?,
            None => Vec::new(),
        };
        let depth = self.scopes.len();
        let mut body = self.body(&query.body)?;
        let locked = if locks.is_empty() { None } else { Some(self.lock(locks, &mut body)?) };
        let mut widths = Vec::new();
        let order = query.order_by.as_ref();
        let ((mut text, order), columns, selected) = match body {
            Body::Select(mut selected) => {
                let columns = self.settle(&mut selected.items, wanted)?;
                widths = self.widths_of(&selected.items);
                let texts = match selected.on.is_empty() {
                    true => (self.written(&selected), self.order(order, &columns, Some(&selected))?),
                    false => self.distinct_on(order, &columns, &selected)?,
                };
                (texts, columns, Some(selected))
            }
            other => {
                let (text, columns) = self.done(other, wanted)?;
                ((text, self.order(order, &columns, None)?), columns, None)
            }
        };
        self.scopes.truncate(depth);
        let limit = self.limit(query)?;
        let plain = query.with.is_none() && query.order_by.is_none() && limit.is_empty();
        let special = match selected.filter(|_| plain) {
            Some(selected) => {
                Special { counts: self.counts(&selected), point: self.point(&selected), locks: locked }
            }
            None => Special { locks: locked, ..Special::default() },
        };
        text.push_str(&order);
        text.push_str(&limit);
        self.commons.pop();
        // Queries within this one were there before.
        self.widths = widths;
        Ok((commons, text, columns, special))
    }

    /// Adds the key of the row that is to be locked to what a SELECT gives.
    fn lock(&mut self, locks: &[LockClause], body: &mut Body) -> Result<Locks, Failure> {
        let [LockClause { of, nonblock, lock_type }] = locks else {
            return Err(unlockable("FOR UPDATE of several tables"));
        };
        let forbidden = match body {
            Body::Select(selected) if selected.distinct || !selected.on.is_empty() => Some("DISTINCT clause"),
            Body::Select(selected) if selected.grouped && selected.plain => Some("aggregate functions"),
            Body::Select(selected) if selected.grouped => Some("GROUP BY clause"),
            Body::Select(_) => None,
            _ => Some("UNION/INTERSECT/EXCEPT"),
        };
        let selected = match (body, forbidden) {
            (Body::Select(selected), None) => selected,
            (_, forbidden) => {
                let message =
                    format!("FOR {lock_type} is not allowed with {}", forbidden.unwrap_or_default());
                return Err(Failure::new(code::UNSUPPORTED, message));
            }
        };
        let name = of.as_ref().map(parts).transpose()?.map(|parts| parts.concat());
        let relations = &self.scope().relations;
        let named = |relation: &&Relation| name.as_ref().is_none_or(|name| relation.name == *name);
        let mut found = relations.iter().enumerate().filter(|(_, relation)| named(relation));
        let (first, second) = (found.next().map(|(at, relation)| (at, relation.of)), found.next());
        let source = match (first, second) {
            (Some((at, Some(of))), None) => (at, of.source),
            (None, _) if name.is_some() => {
                let name = name.unwrap_or_default();
                let message =
                    format!("relation \"{name}\" in FOR {lock_type} clause not found in FROM clause");
                return Err(Failure::new("42P01", message));
            }
            _ => return Err(unlockable("FOR UPDATE of anything but one table")),
        };
        let column = Visible { name: String::new(), ty: Ty::Bytea, what: What::Column(KEY) };
        let key = self.visible(self.scopes.len() - 1, Some(source.0), &column)?;
        let table = self.sources[source.1].table.clone();
        let skips = *nonblock == Some(NonBlock::SkipLocked);
        if skips && *lock_type == LockType::Share {
            let hint = "it would leave out what others have FOR SHARE, too: write FOR UPDATE SKIP LOCKED";
            return Err(Failure::unsupported("FOR SHARE SKIP LOCKED", hint));
        }
        if skips {
            self.skip(selected, &key, table.id)?;
        }
        selected.items.push((String::new(), key));
        Ok(Locks { table, skips })
    }

    pub(super) fn with(&mut self, with: &With) -> Result<Vec<String>, Failure> {
        let mut texts = Vec::new();
        for Cte { alias, query, from, .. } in &with.cte_tables {
            if from.is_some() {
                return Err(Failure::unsupported("this form of WITH", "write WITH name AS (SELECT ...)"));
            }
            if with.recursive
                && let Some(text) = self.recursive(alias, query)?
            {
                texts.push(text);
                continue;
            }
            let (text, mut columns) = self.subquery(query)?;
            super::recursive::renamed(&mut columns, alias)?;
            let name = folded(&alias.name);
            let engine = self.alias();
            texts.push(format!("{engine} AS ({text})"));
            let level = self.commons.last_mut().expect("just pushed");
            if level.insert(name.clone(), Common { alias: engine, columns }).is_some() {
                let message = format!("WITH query name \"{name}\" specified more than once");
                return Err(Failure::new("42712", message));
            }
        }
        Ok(texts)
    }

    /// A body. If it is a SELECT, its scope stays on top.
    fn body(&mut self, body: &SetExpr) -> Result<Body, Failure> {
        match body {
            SetExpr::Select(select) => Ok(Body::Select(Box::new(self.select(select)?))),
            SetExpr::Values(values) => self.values(values),
            SetExpr::Query(query) => {
                let (commons, text, columns, _) = self.query(query, &[])?;
                let text =
                    if commons.is_empty() { text } else { format!("WITH {} {text}", commons.join(", ")) };
                Ok(Body::Done { text: format!("SELECT * FROM ({text})"), columns })
            }
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                self.set_operation(left, *op, *set_quantifier, right)
            }
            other if super::with_parts::is_writing(other) => Err(super::with_parts::not_at_the_top()),
            other => {
                let text: String = other.to_string().chars().take(40).collect();
                Err(Failure::unsupported(format!("{text} in a query"), "write SELECT or VALUES"))
            }
        }
    }

    fn values(&mut self, values: &Values) -> Result<Body, Failure> {
        self.scopes.push(Scope::default());
        let mut rows = Vec::new();
        for row in &values.rows {
            let row: &Vec<_> = row;
            rows.push(row.iter().map(|expr| self.expr(expr)).collect::<Result<Vec<_>, _>>()?);
        }
        self.scopes.pop();
        if rows.windows(2).any(|pair| pair[0].len() != pair[1].len()) {
            return Err(Failure::new(code::SYNTAX, "VALUES lists must all be the same length"));
        }
        Ok(Body::Rows(rows))
    }

    fn set_operation(
        &mut self,
        left: &SetExpr,
        op: SetOperator,
        quantifier: SetQuantifier,
        right: &SetExpr,
    ) -> Result<Body, Failure> {
        let word = match (op, quantifier) {
            (SetOperator::Union, SetQuantifier::All) => "UNION ALL",
            (SetOperator::Union, SetQuantifier::None | SetQuantifier::Distinct) => "UNION",
            (SetOperator::Intersect, SetQuantifier::None | SetQuantifier::Distinct) => "INTERSECT",
            (SetOperator::Except, SetQuantifier::None | SetQuantifier::Distinct) => "EXCEPT",
            _ => {
                return Err(Failure::unsupported(
                    format!("{op} {quantifier}"),
                    "use UNION ALL, UNION, INTERSECT or EXCEPT",
                ));
            }
        };
        let depth = self.scopes.len();
        let mut left = self.body(left)?;
        self.scopes.truncate(depth);
        let mut right = self.body(right)?;
        self.scopes.truncate(depth);
        let (one, two) = (types(&left), types(&right));
        if one.len() != two.len() {
            let message = format!("each {op} query must have the same number of columns");
            return Err(Failure::new(code::SYNTAX, message));
        }
        let mut wanted = Vec::new();
        for ((name, one), (_, two)) in one.into_iter().zip(two) {
            let ty = match (one, two) {
                (Some(one), Some(two)) => common(one, two).ok_or_else(|| {
                    let message = format!("{op} types {} and {} cannot be matched", one.name(), two.name());
                    Failure::new("42804", message)
                })?,
                (one, two) => one.or(two).unwrap_or(Ty::Text),
            };
            if word != "UNION ALL" {
                self.comparable(ty, "=")?;
            }
            wanted.push((name, ty));
        }
        let (left, columns) = self.done_becoming(&mut left, &wanted)?;
        let (right, _) = self.done_becoming(&mut right, &wanted)?;
        // In parentheses of its own each side keeps its precedence.
        Ok(Body::Done { text: format!("SELECT * FROM ({left}) {word} SELECT * FROM ({right})"), columns })
    }

    fn done_becoming(
        &mut self,
        body: &mut Body,
        wanted: &[(String, Ty)],
    ) -> Result<(String, Output), Failure> {
        let body = std::mem::replace(body, Body::Rows(Vec::new()));
        match body {
            Body::Select(selected) if !selected.on.is_empty() => {
                Err(Failure::unsupported("DISTINCT ON in a part of a UNION", "use a subquery"))
            }
            Body::Select(mut selected) => {
                for ((_, typed), (_, ty)) in selected.items.iter_mut().zip(wanted) {
                    *typed = self.becoming(typed.clone(), *ty)?;
                }
                Ok((self.written(&selected), wanted.to_vec()))
            }
            Body::Rows(mut rows) => {
                for row in &mut rows {
                    for (typed, (_, ty)) in row.iter_mut().zip(wanted) {
                        *typed = self.becoming(typed.clone(), *ty)?;
                    }
                }
                self.done(Body::Rows(rows), &[])
            }
            Body::Done { text, columns } => {
                let mut items = Vec::new();
                for (at, ((_, from), (_, to))) in columns.iter().zip(wanted).enumerate() {
                    let typed = self.becoming(Typed::engine(format!("o{at}"), *from), *to)?;
                    items.push(format!("{} AS o{at}", self.text(&typed)));
                }
                Ok((format!("SELECT {} FROM ({text})", items.join(", ")), wanted.to_vec()))
            }
        }
    }

    /// Decides the types of a SELECT's columns, as they are to be stored if `wanted` says so.
    fn settle(&mut self, items: &mut [(String, Typed)], wanted: &[(String, Ty)]) -> Result<Output, Failure> {
        check_width(items.len(), wanted)?;
        let mut columns = Vec::new();
        for (at, (name, typed)) in items.iter_mut().enumerate() {
            *typed = match wanted.get(at) {
                Some((column, ty)) => self.assigned(typed.clone(), *ty, column)?,
                None => self.decided(typed.clone())?,
            };
            columns.push((name.clone(), typed.ty.expect("decided")));
        }
        Ok(columns)
    }

    /// To how many characters values of each of these are filled up with blanks.
    pub(super) fn widths_of<Name>(&self, items: &[(Name, Typed)]) -> Vec<Option<u32>> {
        let width = |typed: &Typed| {
            let (of, at) = typed.column?;
            let rules = &self.sources[of.source].table.schema.columns().get(at)?.rules;
            rules.max_chars.filter(|_| rules.padded)
        };
        items.iter().map(|(_, typed)| width(typed)).collect()
    }

    fn written(&mut self, selected: &Selected) -> String {
        let items = selected.items.iter().enumerate();
        let items: Vec<String> =
            items.map(|(at, (_, typed))| format!("{} AS o{at}", self.text(typed))).collect();
        let distinct = if selected.distinct { "DISTINCT " } else { "" };
        // PostgreSQL allows a SELECT of nothing; the engine does not.
        let items = if items.is_empty() { "NULL".to_string() } else { items.join(", ") };
        format!("SELECT {distinct}{items}{}", selected.tail)
    }

    fn done(&mut self, body: Body, wanted: &[(String, Ty)]) -> Result<(String, Output), Failure> {
        match body {
            Body::Done { text, columns } => {
                check_width(columns.len(), wanted)?;
                let mut items = Vec::new();
                for (at, (column, ty)) in wanted.iter().enumerate() {
                    let typed = Typed::engine(format!("o{at}"), columns[at].1);
                    let typed = self.assigned(typed, *ty, column)?;
                    items.push(format!("{} AS o{at}", self.text(&typed)));
                }
                match items.is_empty() {
                    true => Ok((text, columns)),
                    false => Ok((format!("SELECT {} FROM ({text})", items.join(", ")), wanted.to_vec())),
                }
            }
            Body::Rows(rows) => self.rows(rows, wanted),
            Body::Select(mut selected) => {
                let columns = self.settle(&mut selected.items, wanted)?;
                Ok((self.written(&selected), columns))
            }
        }
    }

    fn rows(
        &mut self,
        mut rows: Vec<Vec<Typed>>,
        wanted: &[(String, Ty)],
    ) -> Result<(String, Output), Failure> {
        let width = rows.first().map_or(0, Vec::len);
        check_width(width, wanted)?;
        let mut columns = Vec::new();
        for at in 0..width {
            let column: Vec<Typed> = rows.iter().map(|row| row[at].clone()).collect();
            let (name, column) = match wanted.get(at) {
                Some((name, ty)) => {
                    let each = column.into_iter().map(|typed| self.assigned(typed, *ty, name));
                    (name.clone(), each.collect::<Result<Vec<_>, _>>()?)
                }
                None => (format!("column{}", at + 1), self.unified(column, "VALUES")?),
            };
            columns.push((name, column[0].ty.expect("one type")));
            rows.iter_mut().zip(column).for_each(|(row, typed)| row[at] = typed);
        }
        let mut texts = Vec::new();
        for row in &rows {
            let row: Vec<String> = row.iter().map(|typed| self.text(typed)).collect();
            texts.push(format!("({})", row.join(", ")));
        }
        let items: Vec<String> = (0..width).map(|at| format!("column{} AS o{at}", at + 1)).collect();
        Ok((format!("SELECT {} FROM (VALUES {})", items.join(", "), texts.join(", ")), columns))
    }

    /// A SELECT of nothing but `count(*)`, with conditions that a scan's range may express.
    fn counts(&self, selected: &Selected) -> bool {
        let star = |typed: &Typed| matches!(&typed.form, Form::Engine(text) if text == "count(*)");
        let exact = selected.filter.as_ref().is_none_or(|filter| filter.exact);
        let single =
            self.relations == 1 && self.sources.len() == 1 && self.inside == 0 && self.scopes.is_empty();
        let plain = selected.plain && !selected.distinct && selected.on.is_empty();
        single && exact && plain && matches!(selected.items.as_slice(), [(_, typed)] if star(typed))
    }

    /// A SELECT of columns from one table, where its whole key is given.
    fn point(&self, selected: &Selected) -> Option<Point> {
        let filter = selected.filter.as_ref().filter(|filter| filter.exact)?;
        let single =
            self.relations == 1 && self.sources.len() == 1 && !selected.grouped && !selected.distinct;
        if !single || self.inside > 0 || !selected.on.is_empty() {
            return None;
        }
        let conditions: Vec<&Condition> = filter.conditions.iter().map(|(_, condition)| condition).collect();
        let key = whole_key(&self.sources[0], &conditions)?;
        let columns = selected.items.iter().map(|(_, typed)| Some(typed.column?.1));
        // The key that is locked is known.
        let columns = columns.filter(|column| *column != Some(KEY)).collect::<Option<_>>()?;
        Some(Point { key, columns })
    }
}

/// The key that these conditions name, if they name exactly one and say nothing else.
pub fn whole_key(source: &Source, conditions: &[&Condition]) -> Option<Vec<Slot>> {
    let key = source.table.schema.key();
    if conditions.len() != key.len() {
        return None;
    }
    let of = |column: &usize| {
        let found = conditions
            .iter()
            .find(|condition| condition.column == *column && condition.comparison == Comparison::Equal);
        found.map(|condition| condition.slot.clone())
    };
    key.iter().map(of).collect()
}

/// How a table is read: by the smallest of the engine's scans that has room for its columns.
fn scan(at: usize, source: &Source) -> String {
    let width = crate::engine::scan_width(source.columns.len());
    format!("scan{width}_({at})")
}

fn types(body: &Body) -> Vec<(String, Option<Ty>)> {
    match body {
        Body::Select(selected) => {
            selected.items.iter().map(|(name, typed)| (name.clone(), typed.ty)).collect()
        }
        Body::Done { columns, .. } => columns.iter().map(|(name, ty)| (name.clone(), Some(*ty))).collect(),
        Body::Rows(rows) => {
            let of = |at: usize| {
                let types = rows.iter().filter_map(|row| row[at].ty);
                types.reduce(|one, two| common(one, two).unwrap_or(one))
            };
            let width = rows.first().map_or(0, Vec::len);
            (0..width).map(|at| (format!("column{}", at + 1), of(at))).collect()
        }
    }
}

fn check_width(width: usize, wanted: &[(String, Ty)]) -> Result<(), Failure> {
    if wanted.is_empty() || width == wanted.len() {
        return Ok(());
    }
    let (more, less) = match width > wanted.len() {
        true => ("expressions", "target columns"),
        false => ("target columns", "expressions"),
    };
    Err(Failure::new(code::SYNTAX, format!("INSERT has more {more} than {less}")))
}

fn refuse_rest(query: &Query) -> Result<(), Failure> {
    let found = [
        (query.for_clause.is_some(), "FOR"),
        (query.settings.is_some(), "SETTINGS"),
        (query.format_clause.is_some(), "FORMAT"),
        (!query.pipe_operators.is_empty(), "a pipe"),
    ];
    match found.iter().find(|(there, _)| *there) {
        Some((_, what)) => Err(Failure::unsupported(*what, "docs/sql.md lists what is understood")),
        None => Ok(()),
    }
}
