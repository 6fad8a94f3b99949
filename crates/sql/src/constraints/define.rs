//! Constraints as CREATE TABLE and ALTER TABLE write them, and as a table keeps them.

use super::check;
use crate::bind::{folded, table_name};
use crate::catalog::Catalog;
use crate::ty::Ty;
use pg::Failure;
use sqlparser::ast::{
    CheckConstraint, ColumnDef, ColumnOption, ConstraintCharacteristics, ConstraintReferenceMatchKind,
    DeferrableInitial, Expr, ForeignKeyConstraint, Ident, IndexColumn, NullsDistinctOption,
    ReferentialAction, TableConstraint, UniqueConstraint,
};
use types::TableId;
use types::data::constraint::{Action, Constraint, Demand, Reference};
use types::data::{Column, Schema};

/// A constraint as it is written.
#[derive(Clone, PartialEq, Debug)]
pub struct Declared {
    /// Its name, if it is given one.
    pub name: Option<String>,
    /// What it demands.
    pub what: What,
}

/// What a constraint demands, by names.
#[derive(Clone, PartialEq, Debug)]
pub enum What {
    /// This is not false.
    Check(Box<Expr>),
    /// No two rows have the same here.
    Unique(Vec<String>),
    /// The same, named as an index.
    UniqueIndex(Vec<String>),
    /// Another table has a row for it.
    Foreign(Foreign),
    /// Nothing: rows are found by these columns.
    Index(Vec<String>),
}

/// A foreign key as it is written.
#[derive(Clone, PartialEq, Debug)]
pub struct Foreign {
    columns: Vec<String>,
    parent: String,
    /// Empty: those of the other table's key.
    parent_columns: Vec<String>,
    on_delete: Action,
    on_update: Action,
    deferred: Option<bool>,
}

/// The constraints that a column's definition has.
pub fn of_column(column: &ColumnDef) -> Result<Vec<Declared>, Failure> {
    let own = vec![folded(&column.name)];
    let mut declared = Vec::new();
    for option in &column.options {
        let what = match &option.option {
            ColumnOption::Check(check) => Some(checked(check)?),
            ColumnOption::Unique(unique) => Some(only(unique, own.clone())?),
            ColumnOption::ForeignKey(foreign) => referring(foreign, own.clone())?,
            _ => None,
        };
        let name = option.name.as_ref().map(folded);
        declared.extend(what.map(|what| Declared { name, what }));
    }
    Ok(declared)
}

/// A table's constraint; `None`: it is its key, or nobody is to keep it.
pub fn of_table(constraint: &TableConstraint) -> Result<Option<Declared>, Failure> {
    let (name, what) = match constraint {
        TableConstraint::PrimaryKey(_) => return Ok(None),
        TableConstraint::Check(check) => (&check.name, Some(checked(check)?)),
        TableConstraint::Unique(unique) => {
            let columns = unique.columns.iter().map(column_name).collect::<Result<_, _>>()?;
            (&unique.name, Some(only(unique, columns)?))
        }
        TableConstraint::ForeignKey(foreign) => {
            (&foreign.name, referring(foreign, foreign.columns.iter().map(folded).collect())?)
        }
        other => {
            let hint = "a table has PRIMARY KEY, UNIQUE, CHECK and FOREIGN KEY";
            return Err(Failure::unsupported(format!("{other}"), hint));
        }
    };
    Ok(what.map(|what| Declared { name: name.as_ref().map(folded), what }))
}

fn checked(check: &CheckConstraint) -> Result<What, Failure> {
    match check.enforced {
        Some(false) => Err(Failure::unsupported("NOT ENFORCED of a CHECK", "leave the constraint out")),
        _ => {
            let mut expr = check.expr.clone();
            // As it is shown again it stands in parentheses anyhow.
            while let Expr::Nested(inner) = *expr {
                expr = inner;
            }
            Ok(What::Check(expr))
        }
    }
}

fn only(unique: &UniqueConstraint, columns: Vec<String>) -> Result<What, Failure> {
    if unique.nulls_distinct == NullsDistinctOption::NotDistinct {
        let hint = "null is like nothing here, not even like null";
        return Err(Failure::unsupported("NULLS NOT DISTINCT", hint));
    }
    if unique.index_type.is_some() || !unique.index_options.is_empty() {
        return Err(Failure::unsupported("options of UNIQUE", "write UNIQUE (columns)"));
    }
    // Whether it is deferrable says nothing: it is looked at where it is committed.
    Ok(What::Unique(columns))
}

fn column_name(column: &IndexColumn) -> Result<String, Failure> {
    match &column.column.expr {
        Expr::Identifier(name) => Ok(folded(name)),
        other => Err(Failure::unsupported(format!("UNIQUE of {other}"), "name columns only")),
    }
}

/// A foreign key; `None`: nobody is to keep it.
fn referring(foreign: &ForeignKeyConstraint, columns: Vec<String>) -> Result<Option<What>, Failure> {
    let characteristics = foreign.characteristics.as_ref();
    if characteristics.is_some_and(|characteristics| characteristics.enforced == Some(false)) {
        return Ok(None);
    }
    let whole = matches!(
        foreign.match_kind,
        Some(ConstraintReferenceMatchKind::Full | ConstraintReferenceMatchKind::Partial)
    );
    if whole && columns.len() > 1 {
        return Err(Failure::unsupported("MATCH FULL and MATCH PARTIAL", "MATCH SIMPLE is understood"));
    }
    Ok(Some(What::Foreign(Foreign {
        columns,
        parent: table_name(&foreign.foreign_table)?,
        parent_columns: foreign.referred_columns.iter().map(folded).collect(),
        on_delete: action(foreign.on_delete.as_ref()),
        on_update: action(foreign.on_update.as_ref()),
        deferred: deferred(characteristics),
    })))
}

fn action(action: Option<&ReferentialAction>) -> Action {
    match action {
        None | Some(ReferentialAction::NoAction) => Action::None,
        Some(ReferentialAction::Restrict) => Action::Restrict,
        Some(ReferentialAction::Cascade) => Action::Cascade,
        Some(ReferentialAction::SetNull) => Action::SetNull,
        Some(ReferentialAction::SetDefault) => Action::SetDefault,
    }
}

fn deferred(characteristics: Option<&ConstraintCharacteristics>) -> Option<bool> {
    let characteristics = characteristics?;
    let initially = matches!(characteristics.initially, Some(DeferrableInitial::Deferred));
    (characteristics.deferrable == Some(true) || initially).then_some(initially)
}

/// A table that has partitions for itself keeps none of these.
pub fn refuse_bare(declared: &[Declared]) -> Result<(), Failure> {
    let Some(first) = declared.first() else { return Ok(()) };
    let what = match &first.what {
        What::Check(_) => "CHECK of a table with partitions for itself",
        What::Unique(_) | What::UniqueIndex(_) => "UNIQUE of a table with partitions for itself",
        What::Foreign(_) => "a foreign key of a table with partitions for itself",
        What::Index(_) => "an index of a table with partitions for itself among its constraints",
    };
    let hint = "its partitions do not see each other's rows: make the table without options (partitions, policy, engine, log, \
                factor), or in a database (CREATE DATABASE), or, of a foreign key, write REFERENCES ... NOT ENFORCED if that is meant";
    Err(Failure::unsupported(what, hint))
}

/// Where constraints are resolved: the table that they are of, and all others.
pub struct Place<'a> {
    /// The tables that there are.
    pub catalog: &'a Catalog,
    /// The table's name.
    pub name: &'a str,
    /// The table's id.
    pub id: TableId,
    /// Its columns.
    pub schema: &'a Schema,
}

impl Place<'_> {
    /// These constraints, under numbers that no other has, behind those that the table has.
    pub fn resolve(&self, declared: &[Declared], numbers: u32) -> Result<Vec<Constraint>, Failure> {
        let mut all: Vec<Constraint> = self.schema.constraints().to_vec();
        for (one, number) in declared.iter().zip(numbers..) {
            let (demand, wanted) = match &one.what {
                What::Check(expr) => self.check(expr)?,
                What::Unique(columns) => {
                    let wanted = format!("{}_{}_key", self.own(), columns.join("_"));
                    (Demand::Unique(self.within_partition("UNIQUE", self.columns(columns)?)?), wanted)
                }
                What::UniqueIndex(columns) => {
                    let wanted = format!("{}_{}_idx", self.own(), columns.join("_"));
                    (Demand::Unique(self.within_partition("UNIQUE", self.columns(columns)?)?), wanted)
                }
                What::Index(columns) => {
                    let wanted = format!("{}_{}_idx", self.own(), columns.join("_"));
                    (Demand::Index(self.columns(columns)?), wanted)
                }
                What::Foreign(foreign) => {
                    let wanted = format!("{}_{}_fkey", self.own(), foreign.columns.join("_"));
                    // Unique constraints of the same statement may be referred to.
                    let own = self.schema.clone().with_constraints(all.clone()).map_err(invalid)?;
                    let name = one.name.as_ref().unwrap_or(&wanted);
                    (Demand::Foreign(self.reference(name, foreign, &own)?), wanted)
                }
            };
            let known = |name: &str| {
                let own = all.iter().any(|known| known.is_enforced() && known.name == name);
                own || name == format!("{}_pkey", self.own())
            };
            let is_index = matches!(demand, Demand::Unique(_) | Demand::Index(_));
            let taken = |name: &str| known(name) || is_index && self.relation(name);
            let name = match &one.name {
                Some(name) if is_index && self.relation(name) => {
                    return Err(Failure::new("42P07", format!("relation \"{name}\" already exists")));
                }
                Some(name) if known(name) => {
                    let message =
                        format!("constraint \"{name}\" for relation \"{}\" already exists", self.name);
                    return Err(Failure::new("42710", message));
                }
                Some(name) => name.clone(),
                None => free(&wanted, taken),
            };
            all.push(Constraint::new(number, &name, demand));
        }
        Ok(all)
    }

    /// The table's name without its schema.
    fn own(&self) -> &str {
        self.catalog.placed(self.name).1
    }

    /// True if a table has this name, or an index of one.
    fn relation(&self, name: &str) -> bool {
        name == self.name || self.catalog.has_relation(name)
    }

    fn check(&self, expr: &Expr) -> Result<(Demand, String), Failure> {
        let used = check::columns(&check::as_record(self.name, self.schema), expr)?;
        let wanted = match used.as_slice() {
            [one] => format!("{}_{}_check", self.own(), self.schema.columns()[*one].name),
            _ => format!("{}_check", self.own()),
        };
        Ok((Demand::Check(expr.to_string()), wanted))
    }

    fn columns(&self, names: &[String]) -> Result<Vec<usize>, Failure> {
        let mut found = Vec::new();
        for name in names {
            let at = seen(self.schema, name).ok_or_else(|| {
                let message = format!("column \"{name}\" named in key does not exist");
                Failure::new("42703", message)
            })?;
            let column = &self.schema.columns()[at];
            if !column.column_type.may_be_key() {
                let what = format!("a constraint on column \"{name}\" of type {}", column.column_type);
                return Err(Failure::unsupported(what, "every other type has an order"));
            }
            if found.contains(&at) {
                let message = format!("column \"{name}\" appears twice in unique constraint");
                return Err(Failure::new("42701", message));
            }
            found.push(at);
        }
        Ok(found)
    }

    /// The columns of something that a partition keeps by itself: where there are several, the first ones say
    /// which.
    fn within_partition(&self, what: &str, columns: Vec<usize>) -> Result<Vec<usize>, Failure> {
        self.begins_with_place(what, &columns, self.schema, self.name).map(|()| columns)
    }

    fn begins_with_place(
        &self,
        what: &str,
        columns: &[usize],
        schema: &Schema,
        table: &str,
    ) -> Result<(), Failure> {
        let by = schema.key().get(..self.catalog.spread_by).unwrap_or_default();
        if schema.is_replicated() || columns.starts_with(by) {
            return Ok(());
        }
        let names: Vec<&str> = by.iter().map(|at| schema.columns()[*at].name.as_str()).collect();
        let hint = format!("its columns must begin with ({}) of \"{table}\"", names.join(", "));
        Err(Failure::unsupported(format!("{what} over several partitions"), hint))
    }

    fn reference(&self, name: &str, foreign: &Foreign, own: &Schema) -> Result<Reference, Failure> {
        let columns = foreign.columns.iter().map(|name| {
            seen(self.schema, name).ok_or_else(|| {
                let message =
                    format!("column \"{name}\" referenced in foreign key constraint does not exist");
                Failure::new("42703", message)
            })
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let (parent, schema) = match foreign.parent == self.name {
            true => (self.id, own.clone()),
            false => {
                let missing = || {
                    Failure::new("42P01", format!("relation \"{}\" does not exist", foreign.parent))
                        .hint("a foreign key refers to a table of the same database")
                };
                let table = self.catalog.table(&foreign.parent).ok_or_else(missing)?;
                crate::fault::together(table, "a foreign key to rows")?;
                (table.id, table.schema.clone())
            }
        };
        let parent_columns = referred(foreign, &schema)?;
        let what = "a foreign key";
        if self.schema.is_replicated() {
            let hint =
                "its rows are in all partitions, and a partition knows rows of itself alone: leave it out";
            return Err(Failure::unsupported(format!("{what} of a replicated table"), hint));
        }
        if !schema.is_replicated() {
            self.begins_with_place(what, &columns, self.schema, self.name)?;
            self.begins_with_place(what, &parent_columns, &schema, &foreign.parent)?;
        }
        if schema.target(&parent_columns).is_none() {
            let message = format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                foreign.parent
            );
            return Err(Failure::new("42830", message));
        }
        if parent_columns.len() != columns.len() {
            let message = "number of referencing and referenced columns for foreign key disagree";
            return Err(Failure::new("42830", message));
        }
        for (one, other) in columns.iter().zip(&parent_columns) {
            comparable(name, &self.schema.columns()[*one], &schema.columns()[*other])?;
        }
        let Foreign { on_delete, on_update, deferred, .. } = *foreign;
        let reference = Reference { columns, parent, parent_columns, on_delete, on_update, deferred };
        self.can_be_changed(&reference)?;
        Ok(reference)
    }

    /// What follows from a change must be possible for the columns that refer.
    fn can_be_changed(&self, reference: &Reference) -> Result<(), Failure> {
        let sets = |action| matches!(action, Action::SetNull | Action::SetDefault);
        let (delete, update) = (reference.on_delete, reference.on_update);
        let in_key = reference.columns.iter().find(|at| self.schema.key().contains(at));
        if let Some(at) = in_key.filter(|_| sets(delete) || update.changes_rows()) {
            let name = &self.schema.columns()[*at].name;
            return Err(Failure::unsupported(
                format!("a foreign key that changes the key's column \"{name}\""),
                "columns of a primary key are not updated: use ON DELETE CASCADE, or refer by another column",
            ));
        }
        Ok(())
    }
}

/// The columns that a foreign key refers to.
fn referred(foreign: &Foreign, parent: &Schema) -> Result<Vec<usize>, Failure> {
    if foreign.parent_columns.is_empty() {
        if parent.has_hidden_key() {
            let message = format!("there is no primary key for referenced table \"{}\"", foreign.parent);
            return Err(Failure::new("42704", message));
        }
        return Ok(parent.key().to_vec());
    }
    let column = |name: &String| {
        seen(parent, name).ok_or_else(|| {
            let message = format!("column \"{name}\" referenced in foreign key constraint does not exist");
            Failure::new("42703", message)
        })
    };
    foreign.parent_columns.iter().map(column).collect()
}

/// A column that SQL shows.
fn seen(schema: &Schema, name: &str) -> Option<usize> {
    schema.column_index(name).filter(|at| !schema.columns()[*at].rules.hidden)
}

/// A value of the one must be kept like the same value of the other.
fn comparable(name: &str, one: &Column, other: &Column) -> Result<(), Failure> {
    let kept = |column: &Column| (column.column_type, column.rules.padded, column.rules.local);
    if kept(one) == kept(other) {
        return Ok(());
    }
    let detail = format!(
        "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
        one.name,
        other.name,
        Ty::of_column(one).name(),
        Ty::of_column(other).name()
    );
    let message = format!("foreign key constraint \"{name}\" cannot be implemented");
    Err(Failure::new("42804", message).detail(detail))
}

/// A name that is free: this one, or one with a number behind it.
fn free(wanted: &str, taken: impl Fn(&str) -> bool) -> String {
    let cut = |room: usize| {
        let end = (0..=room.min(wanted.len())).rev().find(|at| wanted.is_char_boundary(*at));
        wanted[..end.unwrap_or(0)].to_string()
    };
    let numbered = (1..).map(|number: u32| {
        let number = number.to_string();
        format!("{}{number}", cut(63 - number.len()))
    });
    std::iter::once(cut(63)).chain(numbered).find(|name| !taken(name)).expect("numbers do not end")
}

/// What is wrong with a table's columns or constraints.
pub fn invalid(error: types::data::SchemaError) -> Failure {
    Failure::new("42P16", error.to_string())
}

/// The one column, as a name in a list.
pub fn ident(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// The error of a constraint that there is not.
pub fn missing(name: &str, table: &str) -> Failure {
    Failure::new("42704", format!("constraint \"{name}\" of relation \"{table}\" does not exist"))
}
