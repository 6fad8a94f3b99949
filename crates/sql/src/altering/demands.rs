//! What another definition of a table demands of rows that are there, and whether they keep it.
//!
//! It is asked by queries over the tables as a transaction sees them: at its statement, so that a client is
//! told there as PostgreSQL would tell it, and again at COMMIT ([`super::holding`]).

use super::carry::{Condition, narrower, never_null};
use crate::bind::{Binder, Bound};
use crate::catalog::Catalog;
use crate::constraints::define::{ident, invalid};
use crate::constraints::{check, names, unreadable, violation};
use crate::evaluate::Evaluator;
use crate::fault;
use crate::read::{self, Values};
use crate::txn::{Limit, View};
use pg::Failure;
use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::data::constraint::{Constraint, Demand};
use types::data::{Column, Row, Schema, Value};
use types::{CatalogTable, TableId, TableRecord};

/// Something that rows must be which need not be so until now.
pub enum Demanded {
    /// A condition on each of them.
    Each(Box<Condition>),
    /// What is unique among them, or what they refer to.
    Among(Constraint),
}

/// What a table demands of its rows beside what it has demanded with these columns. `spared` are constraints
/// that rows which are there may be against, by their numbers.
pub fn of(before: &Schema, after: &TableRecord, spared: &BTreeSet<u32>) -> Result<Vec<Demanded>, Failure> {
    let columns = after.schema.columns();
    let mut found = Vec::new();
    for (at, column) in columns.iter().enumerate().filter(|(_, column)| !column.rules.hidden) {
        let known = before.columns().get(at);
        let may_be_null = known.map_or(column.rules.missing.is_none(), |known| known.nullable);
        if !column.nullable && may_be_null {
            found.push(Demanded::Each(Box::new(never_null(&column.name, &after.name))));
        }
        // By the name that it has now.
        let known = known.map(|known| Column { name: column.name.clone(), ..known.clone() });
        let narrower = known.and_then(|known| narrower(&known, &column.rules));
        found.extend(narrower.map(|condition| Demanded::Each(Box::new(condition))));
    }
    let comes = |one: &&Constraint| {
        let known = before.constraints().iter().any(|known| known.number == one.number);
        one.is_enforced() && !one.is_index() && !known && !spared.contains(&one.number)
    };
    for constraint in after.schema.constraints().iter().filter(comes) {
        match &constraint.demand {
            Demand::Check(text) => {
                let failure = violation::check_not_kept(after, &constraint.name);
                found.push(Demanded::Each(Box::new(Condition { expr: check::read(text)?, failure })));
            }
            // Rows that were there are all null in a new column, and null is like nothing.
            _ if has_only_null(before, &after.schema, constraint) => {}
            _ => found.push(Demanded::Among(constraint.clone())),
        }
    }
    Ok(found)
}

/// True if rows which are there have nothing in one of the constraint's columns.
fn has_only_null(before: &Schema, after: &Schema, constraint: &Constraint) -> bool {
    let is_bare = |at: &usize| is_new(before, *at) && after.columns()[*at].rules.missing.is_none();
    constraint.indexed().is_some_and(|columns| columns.iter().any(is_bare))
}

/// True if a column is none of these.
fn is_new(before: &Schema, at: usize) -> bool {
    at >= before.columns().len()
}

/// A definition that may take the place of one with these columns, before `to` takes its place: in it columns
/// may be null that are new, and of which rows that are there have nothing (PR-122). `None`: `to` may do so
/// itself.
pub fn opened(before: &Schema, to: &TableRecord, version: u32) -> Result<Option<CatalogTable>, Failure> {
    let mut parts = to.schema.clone().into_parts();
    let mut found = false;
    for column in parts.columns.iter_mut().skip(before.columns().len()) {
        if !column.nullable && column.rules.missing.is_none() {
            (column.nullable, found) = (true, true);
        }
    }
    if !found {
        return Ok(None);
    }
    parts.version = version;
    let schema = Schema::from_parts(parts).map_err(invalid)?;
    Ok(Some(CatalogTable::new(to.id, &to.name, schema, to.created_ms)))
}

impl Demanded {
    /// The constraint over several rows that it is.
    pub fn constraint(&self) -> Option<&Constraint> {
        match self {
            Demanded::Each(_) => None,
            Demanded::Among(constraint) => Some(constraint),
        }
    }

    /// The table that its rows refer to by it.
    pub fn parent(&self) -> Option<TableId> {
        Some(self.constraint()?.reference()?.parent)
    }

    /// True if it is of columns that the table had before.
    pub fn is_of(&self, before: &Schema) -> bool {
        let columns = self.constraint().and_then(Constraint::indexed);
        columns.is_some_and(|columns| !columns.iter().any(|at| is_new(before, *at)))
    }

    /// What rows of the table have against it, as the view shows them; `None`: all keep it. `now` is the
    /// moment of the statement, in microseconds since 1970.
    pub async fn against(
        &self,
        evaluator: &Evaluator,
        view: &View,
        table: &TableRecord,
        now: i64,
    ) -> Result<Option<Failure>, Failure> {
        let catalog = evaluator.handle.catalog().ok_or_else(fault::not_ready)?;
        let (bound, values) = (self.bound(&catalog, table)?, Values { parameters: Vec::new(), now });
        read::pin(&evaluator.handle, read::partitions(&bound.sources, &values), view).await?;
        let (rows, _) = evaluator.all(Arc::new(bound), values, view.clone(), Limit::WRITE).await?;
        Ok(rows.first().map(|row| self.failure(&catalog, table, row)))
    }

    fn bound(&self, catalog: &Catalog, table: &TableRecord) -> Result<Bound, Failure> {
        let text = self.query(catalog, table);
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &text);
        let parsed = parsed.map_err(|error| unreadable(&error.to_string()))?;
        let [Statement::Query(query)] = parsed.as_slice() else { return Err(unreadable(&text)) };
        Ok(Binder::new(catalog, &[]).whole(query)?.0)
    }

    /// A query that gives a row that does not keep it, or the values of such.
    fn query(&self, catalog: &Catalog, table: &TableRecord) -> String {
        let of = ident(&table.name);
        let constraint = match self {
            Demanded::Each(condition) => {
                return format!("SELECT 1 FROM {of} WHERE NOT ({}) LIMIT 1", condition.expr);
            }
            Demanded::Among(constraint) => constraint,
        };
        let quoted = |table: &TableRecord, columns: &[usize]| -> Vec<String> {
            names(table, columns).iter().map(|name| ident(name).to_string()).collect()
        };
        let own = quoted(table, constraint.indexed().unwrap_or_default());
        let there: Vec<String> = own.iter().map(|name| format!("{name} IS NOT NULL")).collect();
        let (own, there) = (own.join(", "), there.join(" AND "));
        let found = format!("SELECT {own} FROM {of} WHERE {there}");
        let reference = constraint.reference();
        let parent = reference.and_then(|reference| {
            let parent = catalog.all().find(|known| known.id == reference.parent)?;
            Some((ident(&parent.name), quoted(parent, &reference.parent_columns).join(", ")))
        });
        match parent {
            Some((parent, columns)) => format!("{found} EXCEPT SELECT {columns} FROM {parent} LIMIT 1"),
            None => format!("{found} GROUP BY {own} HAVING count(*) > 1 LIMIT 1"),
        }
    }

    fn failure(&self, catalog: &Catalog, table: &TableRecord, row: &[Value]) -> Failure {
        let constraint = match self {
            Demanded::Each(condition) => return condition.failure.clone(),
            Demanded::Among(constraint) => constraint,
        };
        let columns = constraint.indexed().unwrap_or_default();
        let mut whole = Row::new(vec![Value::Null; table.schema.columns().len()]);
        columns.iter().zip(row).for_each(|(at, value)| whole.values[*at] = value.clone());
        let note = violation::key(table, columns, &whole);
        let noted = Constraint { note, ..constraint.clone() };
        violation::not_kept(table, &noted, |id| catalog.all().find(|known| known.id == id).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::example;
    use std::collections::BTreeMap;
    use types::data::constraint::{Action, Reference};
    use types::data::{ColumnType, Rules};

    fn table(columns: Vec<Column>, constraints: Vec<Constraint>) -> TableRecord {
        let mut table = example(columns);
        table.schema = table.schema.with_constraints(constraints).expect("valid");
        table
    }

    fn columns() -> Vec<Column> {
        let short = Rules { max_chars: Some(5), ..Rules::default() };
        vec![Column::new("id", ColumnType::Int).not_null(), Column::new("v", ColumnType::Text).with(short)]
    }

    #[test]
    fn only_what_is_new_is_asked_of_rows() {
        let before = table(columns(), vec![Constraint::new(1, "known", Demand::Unique(vec![1]))]);
        let mut after = columns();
        after[1].nullable = false;
        after[1].name = "w".into();
        after[1].rules.max_chars = Some(3);
        let given = Rules { missing: Some("7".into()), ..Rules::default() };
        after.push(Column::new("n", ColumnType::Int));
        after.push(Column::new("m", ColumnType::Int).with(given).not_null());
        let reference = Reference {
            columns: vec![2],
            parent: TableId(1),
            parent_columns: vec![0],
            on_delete: Action::None,
            on_update: Action::None,
            deferred: None,
        };
        let constraints = vec![
            Constraint::new(1, "known", Demand::Unique(vec![1])),
            Constraint::new(2, "positive", Demand::Check("m > 0".into())),
            Constraint::new(3, "of_null", Demand::Foreign(reference)),
            Constraint::new(4, "spared", Demand::Check("m > 1".into())),
            Constraint::new(5, "once", Demand::Unique(vec![1, 3])),
            Constraint::new(6, "by_n", Demand::Index(vec![2])),
        ];
        let after = Arc::new(table(after, constraints));
        let catalog = Catalog::from_map(1, BTreeMap::from([("t".to_string(), after.clone())]));
        let found = of(&before.schema, &after, &[4].into()).expect("readable");
        let asked: Vec<String> = found.iter().map(|one| one.query(&catalog, &after)).collect();
        let twice = r#"SELECT "w", "m" FROM "t" WHERE "w" IS NOT NULL AND "m" IS NOT NULL "#;
        let twice = format!(r#"{twice}GROUP BY "w", "m" HAVING count(*) > 1 LIMIT 1"#);
        let expected = [
            r#"SELECT 1 FROM "t" WHERE NOT ("w" IS NOT NULL) LIMIT 1"#,
            r#"SELECT 1 FROM "t" WHERE NOT ("length"("w") <= 3) LIMIT 1"#,
            r#"SELECT 1 FROM "t" WHERE NOT (m > 0) LIMIT 1"#,
            &twice,
        ];
        assert_eq!(asked, expected);
        for one in &found {
            one.bound(&catalog, &after).expect("it can be asked");
        }
        assert!(found.iter().all(|one| !one.is_of(&before.schema)), "an index of it cannot be built before");
        assert!(of(&after.schema, &after, &BTreeSet::new()).expect("readable").is_empty());
    }

    #[test]
    fn what_refers_is_looked_for_among_what_is_referred_to() {
        let reference = Reference {
            columns: vec![1],
            parent: TableId(1),
            parent_columns: vec![0],
            on_delete: Action::None,
            on_update: Action::None,
            deferred: None,
        };
        let own = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("parent", ColumnType::Int)];
        let before = table(own.clone(), Vec::new());
        let foreign = Constraint::new(7, "f", Demand::Foreign(reference));
        let after = Arc::new(table(own, vec![foreign]));
        let catalog = Catalog::from_map(1, BTreeMap::from([("t".to_string(), after.clone())]));
        let found = of(&before.schema, &after, &BTreeSet::new()).expect("readable");
        let [one] = found.as_slice() else { panic!("one constraint") };
        let expected =
            r#"SELECT "parent" FROM "t" WHERE "parent" IS NOT NULL EXCEPT SELECT "id" FROM "t" LIMIT 1"#;
        assert_eq!(one.query(&catalog, &after), expected);
        one.bound(&catalog, &after).expect("it can be asked");
        assert_eq!((one.parent(), one.is_of(&before.schema)), (Some(TableId(1)), true));
        let failure = one.failure(&catalog, &after, &[Value::Int(9)]);
        assert_eq!(failure.code, "23503");
        assert_eq!(failure.detail.as_deref(), Some("Key (parent)=(9) is not present in table \"t\"."));
    }

    #[test]
    fn a_new_column_that_is_never_null_comes_in_two_steps() {
        let before = table(columns(), Vec::new());
        let mut after = columns();
        after.push(Column::new("n", ColumnType::Int).not_null());
        let after = table(after, Vec::new());
        let first = opened(&before.schema, &after, 9).expect("valid").expect("it must be");
        assert_eq!((first.schema.version(), first.schema.columns()[2].nullable), (9, true));
        assert!(opened(&after.schema, &after, 9).expect("valid").is_none());
    }
}
