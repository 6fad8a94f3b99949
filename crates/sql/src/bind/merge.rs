//! MERGE: pairs of a row that comes and the table's row that it matches, and what is done for each.
//!
//! One query gives all pairs. What is done for a pair is one value of it: the number of the first WHEN clause
//! whose condition holds, and the values that this clause computes. So nothing is computed for other clauses,
//! and nothing twice.

use super::modify::Settings;
use super::write::{given_value, numbered, other_width, target_columns};
use super::{Binder, Bound, KEY, Last, Output, Parts, Relation, STORED, Scope, Typed, Writing};
use super::{all_decided, parts};
use crate::catalog::Catalog;
use crate::engine::MOST_COLUMNS;
use crate::plain::{NOTHING, OVERRIDING};
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{
    AssignmentTarget, Expr, Merge as Said, MergeAction, MergeClause, MergeClauseKind, MergeInsertExpr,
    MergeInsertKind, MergeUpdateExpr, ObjectName, TableWithJoins,
};
use std::sync::Arc;
use types::TableRecord;

/// A MERGE.
pub struct Merge {
    /// Into this table.
    pub table: Arc<TableRecord>,
    /// The pairs: the key of the table's row and that row as it is stored, null where none matches; and what
    /// is done, null for nothing: a row that `pack_row_` has made of a branch's number and its values.
    pub read: Arc<Bound>,
    /// What may be done.
    pub branches: Vec<Branch>,
}

/// What a WHEN clause does, if it does something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Branch {
    /// These columns of the table's row get new values, in this order.
    Update(Vec<usize>),
    /// The table's row is removed.
    Delete,
    /// A row is inserted that gives these columns, in this order.
    Insert(Vec<usize>),
}

impl Branch {
    /// The columns of its values.
    pub fn columns(&self) -> &[usize] {
        match self {
            Branch::Update(columns) | Branch::Insert(columns) => columns,
            Branch::Delete => &[],
        }
    }
}

/// A MERGE by itself, and the types of its parameters.
pub fn merge(catalog: &Catalog, given: &[Option<Ty>], said: &Said) -> Result<(Parts, Vec<Ty>), Failure> {
    let (merge, params) = Binder::new(catalog, given).merge_part(said)?;
    let params = all_decided(&params)?;
    Ok((merge_alone(merge, params.len()), params))
}

/// A MERGE by itself, as a statement of one part. It has so many parameters.
pub fn merge_alone(merge: Merge, first: usize) -> Parts {
    Parts { once: Vec::new(), last: Last::Writes(Writing::Merge(merge)), first }
}

/// The conditions and results of a CASE: of the pairs that match, and of the others.
#[derive(Default)]
struct Cases {
    matched: String,
    others: String,
}

/// The engine's CASE of these.
fn case(whens: &str) -> String {
    if whens.is_empty() { "NULL".into() } else { format!("CASE{whens} END") }
}

impl Binder<'_> {
    /// A MERGE as a part of a statement, and the types of parameters as far as it decides them.
    pub(super) fn merge_part(mut self, said: &Said) -> Result<(Merge, Vec<Option<Ty>>), Failure> {
        refuse_rest(said)?;
        let table = self.target(&alone_in_from(said.table.clone()))?;
        self.see_around()?;
        let (source, both, coming) = self.sides(said)?;
        self.scopes.push(both.clone());
        let inner = said.clauses.iter().all(|one| one.clause_kind == MergeClauseKind::Matched);
        let on = self.on(&said.on, inner)?;
        let (key, row) = (self.hidden(KEY)?, self.hidden(STORED)?);
        let target = self.first_table();
        self.scopes.pop();
        let (mut branches, mut cases) = (Vec::new(), Cases::default());
        for clause in &said.clauses {
            let matched = clause.clause_kind == MergeClauseKind::Matched;
            self.scopes.push(if matched { both.clone() } else { coming.clone() });
            let (when, branch, values) = self.clause(&table, clause)?;
            self.scopes.pop();
            let then = match branch {
                None => "NULL".to_string(),
                Some(branch) => {
                    let mut row = vec![branches.len().to_string()];
                    row.extend(values.iter().map(|typed| self.text(typed)));
                    branches.push(branch);
                    format!("pack_row_({})", row.join(", "))
                }
            };
            let cases = if matched { &mut cases.matched } else { &mut cases.others };
            cases.push_str(&format!(" WHEN {when} THEN {then}"));
        }
        let (key, row) = (self.text(&key), self.text(&row));
        let (matched, others) = (case(&cases.matched), case(&cases.others));
        let does = format!("CASE WHEN {key} IS NOT NULL THEN {matched} ELSE {others} END");
        let join = if inner { "JOIN" } else { "LEFT JOIN" };
        let from = format!("{source} {join} {target} ON {on}");
        let text = format!("SELECT {key} AS o0, {row} AS o1, {does} AS o2 FROM {from}");
        let columns: Output = ["key", "row", "does"].map(|name| (name.to_string(), Ty::Bytea)).into();
        self.widths.clear();
        let (read, params) = self.part(text, columns);
        Ok((Merge { table, read: Arc::new(read), branches }, params))
    }

    /// The engine's text of what comes, what expressions see of both sides, and what they see of that alone.
    /// The table's scope is there and goes.
    fn sides(&mut self, said: &Said) -> Result<(String, Scope, Scope), Failure> {
        let mut both = self.scopes.pop().expect("the table's");
        self.scopes.push(Scope::default());
        let source = self.from(&[alone_in_from(said.source.clone())])?;
        let mut coming = self.scopes.pop().expect("just pushed");
        let is_other = |one: &Relation| both.relations.iter().any(|other| other.is_taken_for(one));
        if let Some(twice) = coming.relations.iter().find(|one| !one.name.is_empty() && is_other(one)) {
            let message = format!("name \"{}\" specified more than once", twice.name);
            return Err(Failure::new("42712", message));
        }
        both.relations.extend(coming.relations.iter().cloned());
        both.merged.clone_from(&coming.merged);
        (both.no_aggregates, coming.no_aggregates) = (Some("MERGE"), Some("MERGE"));
        Ok((source, both, coming))
    }

    /// The engine's text of ON. What it says of the table narrows what is read of it: other rows match
    /// nothing.
    fn on(&mut self, said: &Expr, inner: bool) -> Result<String, Failure> {
        self.scope().no_aggregates = Some("JOIN conditions");
        let condition = self.condition(said, "JOIN/ON")?;
        let of = self.scope().relations[0].of;
        let mut narrows = condition.clone();
        narrows.conditions.retain(|(one, _)| inner || Some(*one) == of);
        self.push_down(&narrows);
        Ok(self.text(&condition))
    }

    /// The engine's text of a clause's condition, what it does, and its values.
    fn clause(
        &mut self,
        table: &Arc<TableRecord>,
        clause: &MergeClause,
    ) -> Result<(String, Option<Branch>, Vec<Typed>), Failure> {
        let when = match &clause.predicate {
            None => "true".to_string(),
            Some(predicate) => {
                self.scope().no_aggregates = Some("MERGE WHEN conditions");
                let condition = self.condition(predicate, "WHEN")?;
                self.text(&condition)
            }
        };
        let (branch, values) = match &clause.action {
            MergeAction::Update(update) if is_nothing(update) => return Ok((when, None, Vec::new())),
            MergeAction::Update(update) => {
                let (set, values): Settings = self.settings(table, &update.assignments, "UPDATE")?;
                (Branch::Update(set), values)
            }
            MergeAction::Delete { .. } => (Branch::Delete, Vec::new()),
            MergeAction::Insert(insert) if insert.columns.first().is_some_and(|name| is(name, NOTHING)) => {
                return Ok((when, None, Vec::new()));
            }
            MergeAction::Insert(insert) => {
                let (columns, values) = self.inserted(table, insert)?;
                (Branch::Insert(columns), values)
            }
        };
        if values.len() >= MOST_COLUMNS {
            let message = format!("a clause of MERGE sets less than {MOST_COLUMNS} columns");
            return Err(Failure::new("54011", message));
        }
        Ok((when, Some(branch), values))
    }

    /// The columns that a row is inserted with, and their values.
    fn inserted(
        &mut self,
        table: &Arc<TableRecord>,
        insert: &MergeInsertExpr,
    ) -> Result<(Vec<usize>, Vec<Typed>), Failure> {
        let MergeInsertKind::Values(values) = &insert.kind else {
            return Err(syntax("ROW"));
        };
        let [row] = values.rows.as_slice() else { return Err(syntax(",")) };
        let overriding = insert.columns.first().is_some_and(|name| is(name, OVERRIDING));
        let names = &insert.columns[usize::from(overriding)..];
        let given = target_columns(table, names, Some(row.len()))?;
        let (columns, defaults) = numbered(table, given, (&values.rows[..], overriding))?;
        if row.len() != defaults.len() {
            return Err(other_width(row.len(), defaults.len()));
        }
        self.scope().no_aggregates = Some("VALUES");
        let mut typed = Vec::with_capacity(columns.len());
        for (expr, default) in row.iter().zip(&defaults) {
            let Some(expr) = given_value(expr.clone(), Some(default))? else { continue };
            // The columns without those that are numbered.
            let column = &table.schema.columns()[columns[typed.len()]];
            let value = self.expr(&expr)?;
            typed.push(self.assigned(value, Ty::of_column(column), &column.name)?);
        }
        Ok((columns, typed))
    }
}

/// A table, or what stands for one, as a FROM of its own.
fn alone_in_from(relation: sqlparser::ast::TableFactor) -> TableWithJoins {
    TableWithJoins { relation, joins: Vec::new() }
}

/// True if this is a column's whole name.
fn is(name: &ObjectName, wanted: &str) -> bool {
    parts(name).is_ok_and(|parts| matches!(parts.as_slice(), [own] if own == wanted))
}

/// True for DO NOTHING.
fn is_nothing(update: &MergeUpdateExpr) -> bool {
    let target = update.assignments.first().map(|assignment| &assignment.target);
    matches!(target, Some(AssignmentTarget::ColumnName(name)) if is(name, NOTHING))
}

fn syntax(near: &str) -> Failure {
    Failure::new(code::SYNTAX, format!("syntax error at or near \"{near}\""))
}

/// What PostgreSQL does not understand.
fn refuse_rest(said: &Said) -> Result<(), Failure> {
    if !said.into || said.clauses.is_empty() {
        return Err(syntax(if said.into { ";" } else { "MERGE" }));
    }
    if said.output.is_some() {
        return Err(syntax("RETURNING"));
    }
    let mut unconditional = Vec::new();
    for clause in &said.clauses {
        let strange = match &clause.action {
            MergeAction::Update(update) => {
                update.update_predicate.is_some() || update.delete_predicate.is_some()
            }
            MergeAction::Insert(insert) => insert.insert_predicate.is_some(),
            MergeAction::Delete { .. } => false,
        };
        if strange {
            return Err(syntax("WHERE"));
        }
        if !matches!(clause.clause_kind, MergeClauseKind::Matched | MergeClauseKind::NotMatched) {
            return Err(syntax("BY"));
        }
        if unconditional.contains(&clause.clause_kind) {
            let message = "unreachable WHEN clause specified after unconditional WHEN clause";
            return Err(Failure::new(code::SYNTAX, message));
        }
        if clause.predicate.is_none() {
            unconditional.push(clause.clause_kind);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::example;
    use crate::parse;
    use std::collections::BTreeMap;
    use types::data::{Column, ColumnType};

    fn bound(text: &str) -> Result<(Merge, Vec<Ty>), &'static str> {
        let columns = vec![
            Column::new("id", ColumnType::Int).not_null(),
            Column::new("name", ColumnType::Text),
            Column::new("n", ColumnType::Int),
        ];
        let tables = BTreeMap::from([("t".to_string(), Arc::new(example(columns)))]);
        let mut said = parse::parse(text).map_err(|failure| failure.code)?;
        let Some(parse::Said::Sql(statement)) = said.pop() else { panic!("{text}") };
        let sqlparser::ast::Statement::Merge(said) = *statement else { panic!("{text}") };
        let catalog = Catalog::from_map(1, tables);
        let (parts, params) = merge(&catalog, &[], &said).map_err(|failure| failure.code)?;
        let Last::Writes(Writing::Merge(merge)) = parts.last else { panic!("{text}") };
        assert_eq!(parts.first, params.len(), "{text}");
        Ok((merge, params))
    }

    #[test]
    fn each_clause_has_its_columns_and_values() {
        let (merge, params) = bound(
            "MERGE INTO t USING (SELECT $1::bigint AS id, $2::text AS name) AS s ON t.id = s.id \
             WHEN MATCHED AND t.n = 0 THEN DELETE WHEN MATCHED AND s.id > 9 THEN DO NOTHING \
             WHEN MATCHED THEN UPDATE SET n = t.n + 1, name = s.name \
             WHEN NOT MATCHED AND s.id = 5 THEN DO NOTHING \
             WHEN NOT MATCHED THEN INSERT (name, id) VALUES (s.name, DEFAULT)",
        )
        .expect("it is understood");
        assert_eq!(params, [Ty::Int8, Ty::Text]);
        let branches = [Branch::Delete, Branch::Update(vec![2, 1]), Branch::Insert(vec![1, 0])];
        assert_eq!(merge.branches, branches);
        let text = &merge.read.text;
        assert!(text.contains(" LEFT JOIN ") && text.contains("pack_row_(0)"), "{text}");
        assert!(text.contains("pack_row_(1, ") && text.contains("pack_row_(2, "), "{text}");
        assert_eq!(merge.read.columns.len(), 3);
    }

    #[test]
    fn what_on_says_of_the_table_narrows_what_is_read() {
        let conditions = |text: &str| bound(text).expect(text).0.read.sources[0].conditions.len();
        let of_table = "MERGE INTO t USING (SELECT 1::bigint AS id) AS s ON t.id = 1 AND s.id = 1 \
                        WHEN NOT MATCHED THEN DO NOTHING";
        assert_eq!(conditions(of_table), 1);
        let of_all = "MERGE INTO t USING (SELECT 1::bigint AS id) AS s ON t.id = s.id \
                      WHEN MATCHED THEN DELETE";
        assert_eq!(conditions(of_all), 0);
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_postgresql_does() {
        let source = "(SELECT 1::bigint AS id, 2::bigint AS n) AS s";
        for (rest, code) in [
            ("", "42601"),
            ("WHEN MATCHED THEN DELETE WHEN MATCHED THEN DO NOTHING", "42601"),
            ("WHEN NOT MATCHED THEN DO NOTHING WHEN NOT MATCHED AND s.id = 1 THEN DO NOTHING", "42601"),
            ("WHEN MATCHED THEN DELETE RETURNING t.id", "42601"),
            ("WHEN NOT MATCHED BY SOURCE THEN DELETE", "42601"),
            ("WHEN NOT MATCHED THEN INSERT (id) VALUES (1), (2)", "42601"),
            ("WHEN NOT MATCHED THEN INSERT (id) VALUES (1, 2)", "42601"),
            ("WHEN NOT MATCHED THEN INSERT (id, id) VALUES (1, 2)", "42701"),
            ("WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)", "42P01"),
            ("WHEN NOT MATCHED AND t.id = 1 THEN DO NOTHING", "42P01"),
            ("WHEN NOT MATCHED THEN INSERT (id) VALUES (true)", "42804"),
            ("WHEN MATCHED THEN UPDATE SET nothing = 1", "42703"),
            ("WHEN MATCHED THEN UPDATE SET n = count(*)", "42803"),
            ("WHEN MATCHED AND n = 1 THEN DELETE", "42702"),
            ("WHEN MATCHED AND 1 THEN DELETE", "42804"),
            // A row keeps its key.
            ("WHEN MATCHED THEN UPDATE SET id = 1", "0A000"),
        ] {
            let text = format!("MERGE INTO t USING {source} ON t.id = s.id {rest}");
            assert_eq!(bound(&text).map(drop), Err(code), "{text}");
        }
        for (text, code) in [
            ("MERGE INTO t USING t ON true WHEN MATCHED THEN DELETE", "42712"),
            ("MERGE INTO none USING t ON true WHEN MATCHED THEN DELETE", "42P01"),
            ("MERGE INTO t USING (SELECT t.id) AS s ON true WHEN MATCHED THEN DELETE", "42P01"),
        ] {
            assert_eq!(bound(text).map(drop), Err(code), "{text}");
        }
        let same = "MERGE INTO t USING t AS s ON t.id = s.id + 1 WHEN MATCHED THEN UPDATE SET n = s.n";
        assert_eq!(bound(same).map(drop), Ok(()));
    }
}
