//! What the steps of an ALTER TABLE make of a table's definition.

use super::{Added, Altering, Retyped, Step, is_plain};
use crate::alter;
use crate::bind::folded;
use crate::catalog::Catalog;
use crate::columns;
use crate::constraints::define::{Place, ident, invalid};
use crate::constraints::{check, children, violation};
use crate::eval::cast;
use crate::numbering;
use crate::ty::Ty;
use crate::views;
use pg::{Failure, code};
use sqlparser::ast::{Expr, visit_expressions_mut};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use types::data::constraint::Demand;
use types::data::{Column, ColumnType, Fallback, Rules, Schema, SchemaParts, Value};
use types::{CatalogTable, TableId, TableRecord};

/// What becomes of sequences with a table.
#[derive(Clone, Default)]
pub struct SequenceChanges {
    /// Those that come with new columns.
    pub made: Vec<CatalogTable>,
    /// Those that go with columns.
    pub gone: BTreeSet<TableId>,
}

/// A table as it is to be.
pub struct Applied {
    /// Its name.
    pub name: String,
    /// Its columns and constraints.
    pub schema: Schema,
    /// Constraints of other tables that go with it, by their numbers.
    pub gone: BTreeSet<u32>,
    /// Constraints that came with new columns, by their numbers.
    pub added: Vec<u32>,
    /// New columns that are to be never null, once rows have been looked at.
    pub never_null: BTreeSet<String>,
    /// Columns of which rows that are there get other values, by their places, with these.
    pub values: BTreeMap<usize, RowValue>,
    /// Sequences that come and go with it.
    pub sequences: SequenceChanges,
    /// What the client may want to know.
    pub notes: Vec<String>,
}

/// What rows that are there get.
#[derive(Clone, PartialEq, Debug)]
pub enum RowValue {
    /// What is computed of the row as it was, for this type, and whether the statement says how.
    Computed(Box<Expr>, Ty, bool),
    /// Something random.
    Random,
    /// The next number of this sequence, in the order of keys.
    Next(TableId),
}

impl Applied {
    /// There is no row of the table: columns that are to be never null are it at once.
    pub fn fill(&mut self) {
        let mut parts = self.schema.clone().into_parts();
        parts
            .columns
            .iter_mut()
            .for_each(|column| column.nullable &= !self.never_null.contains(&column.name));
        self.schema = Schema::from_parts(parts).expect("columns that are good, and never null");
    }

    /// True if the table gets another primary key.
    pub fn rekeys(&self, before: &Schema) -> bool {
        self.schema.key() != before.key()
    }
}

/// Where steps are applied.
pub struct Bench<'a> {
    catalog: &'a Catalog,
    table: &'a TableRecord,
    name: String,
    parts: SchemaParts,
    gone: BTreeSet<u32>,
    added: Vec<u32>,
    never_null: BTreeSet<String>,
    values: BTreeMap<usize, RowValue>,
    sequences: SequenceChanges,
    notes: Vec<String>,
    /// Numbers for constraints: the next one.
    next: u32,
    /// The moment of the statement, microseconds since 1970.
    now: i64,
}

/// How many constraints come with new columns.
pub fn constraints(altering: &Altering) -> u32 {
    let of = |step: &Step| match step {
        Step::Add(added) => added.declared.len() as u32,
        _ => 0,
    };
    altering.steps.iter().map(of).sum()
}

/// Applies steps to a table. New constraints get numbers from `first` on.
pub fn apply(
    catalog: &Catalog,
    table: &TableRecord,
    altering: &Altering,
    (first, now): (u32, i64),
) -> Result<Applied, Failure> {
    let mut bench = Bench {
        catalog,
        table,
        name: table.name.clone(),
        parts: table.schema.clone().into_parts(),
        gone: BTreeSet::new(),
        added: Vec::new(),
        never_null: BTreeSet::new(),
        values: BTreeMap::new(),
        sequences: SequenceChanges::default(),
        notes: Vec::new(),
        next: first,
        now,
    };
    for step in &altering.steps {
        bench.step(step)?;
    }
    let Bench { name, parts, gone, added, never_null, values, sequences, notes, .. } = bench;
    let schema = Schema::from_parts(parts).map_err(invalid)?;
    Ok(Applied { name, schema, gone, added, never_null, values, sequences, notes })
}

impl Bench<'_> {
    fn step(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Add(added) => self.add(added),
            Step::Drop { name, if_exists, cascade } => self.drop(name, *if_exists, *cascade),
            Step::Rename(from, to) => self.rename(from, to),
            Step::RenameTable(to) => self.rename_table(to),
            Step::RenameConstraint(from, to) => self.rename_constraint(from, to),
            Step::NotNull(name, true) => {
                self.column(name)?.1.nullable = false;
                Ok(())
            }
            Step::NotNull(name, false) => self.nullable(name),
            Step::Own(name, sequence) => {
                self.column(name)?.1.rules.sequence = *sequence;
                Ok(())
            }
            Step::Default(name, value) => self.default(name, value.as_deref()),
            Step::Type(name, to) => self.retype(name, to),
            Step::Key(names) => self.key(names),
            Step::Number(name, identity, skip) => {
                let of = self.table.name.clone();
                let (_, column) = self.column(name)?;
                if column.rules.identity.is_some() == identity.is_some() {
                    if *skip {
                        return Ok(());
                    }
                    let is = if identity.is_some() { "is already" } else { "is not" };
                    let message = format!("column \"{name}\" of relation \"{of}\" {is} an identity column");
                    return Err(Failure::new("55000", message));
                }
                if identity.is_some() && column.nullable {
                    let message = format!(
                        "column \"{name}\" of relation \"{of}\" must be declared NOT NULL before identity can be added"
                    );
                    return Err(Failure::new("55000", message));
                }
                column.rules.identity = *identity;
                column.rules.counter = column.rules.counter.filter(|_| identity.is_some());
                Ok(())
            }
        }
    }

    /// A column that SQL shows.
    fn column(&mut self, name: &str) -> Result<(usize, &mut Column), Failure> {
        let of = &self.table.name;
        let mut all = self.parts.columns.iter_mut().enumerate();
        all.find(|(_, column)| column.name == name && !column.rules.hidden).ok_or_else(|| {
            let message = format!("column \"{name}\" of relation \"{of}\" does not exist");
            Failure::new("42703", message)
        })
    }

    fn schema(&self) -> Result<Schema, Failure> {
        Schema::from_parts(self.parts.clone()).map_err(invalid)
    }

    fn taken(&self, name: &str) -> Failure {
        let message = format!("column \"{name}\" of relation \"{}\" already exists", self.table.name);
        Failure::new("42701", message)
    }

    fn add(&mut self, added: &Added) -> Result<(), Failure> {
        let Added { column, declared, is_key, if_not_exists, sequence, .. } = added;
        if self.parts.columns.iter().any(|known| known.name == column.name) {
            if !if_not_exists {
                return Err(self.taken(&column.name));
            }
            let (name, of) = (&column.name, &self.table.name);
            self.notes.push(format!("column \"{name}\" of relation \"{of}\" already exists, skipping"));
            return Ok(());
        }
        let mut column = column.clone();
        if let Some(sequence) = columns::numbering(&column) {
            self.values.insert(self.parts.columns.len(), RowValue::Next(sequence));
        }
        column.rules.missing = match (&column.rules.default, column.column_type) {
            (None | Some(Fallback::Next(_)), _) => None,
            (Some(Fallback::Value(text)), _) => Some(text.clone()),
            (Some(Fallback::Now), ColumnType::Date) => {
                Some(Value::Date(self.now.div_euclid(86_400_000_000) as i32).to_string())
            }
            (Some(Fallback::Now), _) => Some(Value::Timestamp(self.now).to_string()),
            (Some(Fallback::Random), _) => {
                self.values.insert(self.parts.columns.len(), RowValue::Random);
                None
            }
        };
        // Rows that are there are looked at before it is never null.
        let is_filled = self.values.contains_key(&self.parts.columns.len());
        if !column.nullable && column.rules.missing.is_none() && !is_filled {
            column.nullable = true;
            self.never_null.insert(column.name.clone());
        }
        self.parts.columns.push(column);
        self.sequences.made.extend(sequence.clone());
        let schema = self.schema()?;
        let place = Place { catalog: self.catalog, name: &self.name, id: self.table.id, schema: &schema };
        self.parts.constraints = place.resolve(declared, self.next)?;
        self.added.extend((self.next..).take(declared.len()));
        self.next += declared.len() as u32;
        if *is_key { self.key(std::slice::from_ref(&added.column.name)) } else { Ok(()) }
    }

    /// A primary key in place of the one that nobody sees. Each row is looked at as it is copied.
    fn key(&mut self, names: &[String]) -> Result<(), Failure> {
        if !self.parts.key.iter().any(|at| self.parts.columns[*at].rules.hidden) {
            return Err(alter::several_keys(&self.table.name));
        }
        let mut key = Vec::with_capacity(names.len());
        for name in names {
            let (at, column) = self.column(name)?;
            column.nullable = false;
            key.push(at);
        }
        (self.parts.partition_by, self.parts.key) = (key.len(), key);
        Ok(())
    }

    fn drop(&mut self, name: &str, if_exists: bool, cascade: bool) -> Result<(), Failure> {
        let of = self.table.name.clone();
        let at = match self.column(name) {
            Ok((at, _)) => at,
            Err(_) if if_exists => {
                let note = format!("column \"{name}\" of relation \"{of}\" does not exist, skipping");
                self.notes.push(note);
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        if self.parts.key.contains(&at) {
            let hint = "rows are stored by it: make another table, and INSERT ... SELECT what is there";
            return Err(Failure::unsupported(format!("DROP COLUMN of \"{name}\" in the primary key"), hint));
        }
        let needing = children(self.catalog, self.table.id).into_iter();
        let needing = needing.filter(|(child, _, reference)| {
            child.id != self.table.id && reference.parent_columns.contains(&at)
        });
        for (child, foreign, _) in needing {
            let constraint = format!("constraint {} on table {}", foreign.name, child.name);
            if !cascade {
                let column = format!("column {name} of table {of}");
                let message = format!("cannot drop {column} because other objects depend on it");
                let detail = format!("{constraint} depends on {column}");
                return Err(violation::depended_on(message, detail));
            }
            self.notes.push(format!("drop cascades to {constraint}"));
            self.gone.insert(foreign.number);
        }
        self.sequence_goes(at, cascade)?;
        let record = check::as_record(&self.name, &self.schema()?);
        let mut kept = Vec::new();
        for constraint in std::mem::take(&mut self.parts.constraints) {
            let uses = match &constraint.demand {
                Demand::Check(text) => check::columns(&record, &check::read(text)?)?.contains(&at),
                Demand::Unique(columns) | Demand::Index(columns) => columns.contains(&at),
                Demand::Foreign(reference) => {
                    let own = reference.parent == self.table.id && reference.parent_columns.contains(&at);
                    own || reference.columns.contains(&at)
                }
            };
            // What is being removed is known by its place alone.
            if !uses || !constraint.is_enforced() {
                kept.push(constraint);
            }
        }
        self.parts.constraints = kept;
        let column = &mut self.parts.columns[at];
        // As PostgreSQL calls it. No column that is seen has such a name.
        column.name = format!("........pg.dropped.{}........", at + 1);
        column.nullable = true;
        column.rules = Rules { hidden: true, missing: column.rules.missing.take(), ..Rules::default() };
        Ok(())
    }

    /// The sequence that goes with a column goes, and other columns have its numbers no more.
    fn sequence_goes(&mut self, at: usize, cascade: bool) -> Result<(), Failure> {
        let (column, of, catalog) = (&self.parts.columns[at], &self.table.name, self.catalog);
        let Some(id) = column.rules.sequence.map(TableId) else { return Ok(()) };
        let Some((sequence, _)) = catalog.sequence_by_id(id) else { return Ok(()) };
        let own = column.name.clone();
        for (table, user, _) in numbering::users(catalog, id) {
            if table == *of && user == own {
                continue;
            }
            let what = numbering::default_of(&table, &user);
            if !cascade {
                let message =
                    format!("cannot drop column {own} of table {of} because other objects depend on it");
                return Err(violation::depended_on(
                    message,
                    format!("{what} depends on sequence {sequence}"),
                ));
            }
            self.notes.push(format!("drop cascades to {what}"));
        }
        let same = |column: &&mut Column| column.rules.default == Some(Fallback::Next(id.0));
        self.parts.columns.iter_mut().filter(same).for_each(|column| column.rules.default = None);
        self.sequences.gone.insert(id);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Failure> {
        let at = self.column(from)?.0;
        if to == columns::HIDDEN {
            let message = format!("column name \"{to}\" conflicts with a system column name");
            return Err(Failure::new("42701", message));
        }
        if self.parts.columns.iter().any(|known| known.name == to) {
            return Err(self.taken(to));
        }
        let record = check::as_record(&self.name, &self.schema()?);
        for constraint in &mut self.parts.constraints {
            let Demand::Check(text) = &mut constraint.demand else { continue };
            let mut expr = check::read(text)?;
            if check::columns(&record, &expr)?.contains(&at) {
                renamed(&mut expr, from, to);
                *text = expr.to_string();
            }
        }
        self.parts.columns[at].name = to.into();
        Ok(())
    }

    fn rename_table(&mut self, to: &str) -> Result<(), Failure> {
        if self.catalog.has_relation(to) {
            return Err(crate::database::taken(to));
        }
        self.name = to.into();
        Ok(())
    }

    fn rename_constraint(&mut self, from: &str, to: &str) -> Result<(), Failure> {
        let of = &self.table.name;
        let known = |name: &str| {
            let mut all = self.parts.constraints.iter();
            all.any(|one| one.is_enforced() && !one.is_index() && one.name == name)
        };
        if known(to) {
            let message = format!("constraint \"{to}\" for relation \"{of}\" already exists");
            return Err(Failure::new("42710", message));
        }
        if !known(from) {
            let message = format!("constraint \"{from}\" for table \"{of}\" does not exist");
            return Err(Failure::new("42704", message));
        }
        for one in &mut self.parts.constraints {
            if one.is_enforced() && one.name == from {
                one.name = to.into();
            }
        }
        Ok(())
    }

    fn nullable(&mut self, name: &str) -> Result<(), Failure> {
        let (key, of) = (self.parts.key.clone(), self.table.name.clone());
        let (at, column) = self.column(name)?;
        if key.contains(&at) {
            return Err(Failure::new("42P16", format!("column \"{name}\" is in a primary key")));
        }
        if column.rules.identity.is_some() {
            let message = format!("column \"{name}\" of relation \"{of}\" is an identity column");
            return Err(Failure::new("42601", message));
        }
        column.nullable = true;
        Ok(())
    }

    fn default(&mut self, name: &str, value: Option<&Expr>) -> Result<(), Failure> {
        let of = self.table.name.clone();
        let sequence = value.and_then(columns::next_of);
        let sequence = sequence.map(|name| numbering::by_text(self.catalog, &name)).transpose()?;
        let (_, column) = self.column(name)?;
        if column.rules.identity.is_some() {
            let message = format!("column \"{name}\" of relation \"{of}\" is an identity column");
            return Err(Failure::new("42601", message)
                .hint("Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead."));
        }
        column.rules.default = match value {
            None => None,
            Some(_) if sequence.is_some() => sequence.map(|id| Fallback::Next(id.0)),
            Some(expr) => columns::fallback(expr, column, Ty::of_column(column))?,
        };
        Ok(())
    }

    fn retype(&mut self, name: &str, Retyped { ty, rules, using }: &Retyped) -> Result<(), Failure> {
        let of = self.table.name.clone();
        let (at, column) = self.column(name)?;
        if rules.identity.is_some() {
            let hint = "int and bigint are numbered by ADD GENERATED ... AS IDENTITY";
            return Err(Failure::unsupported(format!("ALTER TYPE of \"{name}\" to a serial type"), hint));
        }
        if column.rules.identity.is_some() && ty.column() != ColumnType::Int {
            let message = "identity column type must be smallint, integer, or bigint";
            return Err(Failure::new("22023", message));
        }
        let before = Ty::of_column(column);
        let is_alike = is_kept_alike(column, (*ty, rules));
        let plain = using.as_ref().is_none_or(|using| is_plain(using, name, (*ty, rules)));
        let default = column.rules.default.take();
        let default =
            default.map(|default| default_of((column, before), default, (*ty, rules))).transpose()?;
        let Rules { identity, counter, sequence, missing, .. } = column.rules.clone();
        column.column_type = ty.column();
        column.rules = Rules { default, identity, counter, sequence, missing, ..rules.clone() };
        if is_alike && plain {
            return self.still_comparable(at, &of);
        }
        // Rows of before are read by the columns that they had.
        column.rules.missing = None;
        self.not_shown(name)?;
        let expr = using.clone().unwrap_or_else(|| Expr::Identifier(ident(name)));
        let value = RowValue::Computed(Box::new(expr), *ty, using.is_some());
        if self.values.insert(at, value).is_some() {
            let message = format!("cannot alter type of column \"{name}\" twice");
            return Err(Failure::new("0A000", message));
        }
        self.still_comparable(at, &of)?;
        self.checks_are_readable(at)
    }

    /// A view says of which types its columns are.
    fn not_shown(&self, column: &str) -> Result<(), Failure> {
        let Some(view) = views::showing(self.catalog, &self.table.name).into_iter().next() else {
            return Ok(());
        };
        let message = "cannot alter type of a column used by a view or rule";
        let of = &self.table.name;
        let detail = format!("view {} may depend on column \"{column}\" of \"{of}\"", view.name);
        Err(Failure::new(code::UNSUPPORTED, message).detail(detail).hint("drop the view, and make it again"))
    }

    /// Checks that name a column must mean something for its new type.
    fn checks_are_readable(&self, at: usize) -> Result<(), Failure> {
        let before = check::as_record(&self.name, &self.table.schema);
        let now = check::as_record(&self.name, &self.schema()?);
        for constraint in &self.parts.constraints {
            let Demand::Check(text) = &constraint.demand else { continue };
            let expr = check::read(text)?;
            let is_known = check::columns(&before, &expr).is_ok_and(|columns| !columns.contains(&at));
            if !is_known {
                check::columns(&now, &expr)?;
            }
        }
        Ok(())
    }

    /// What refers, and what is referred to, must be kept alike.
    fn still_comparable(&self, at: usize, of: &str) -> Result<(), Failure> {
        let (old, new) = (&self.table.schema.columns()[at], &self.parts.columns[at]);
        let kept = |column: &Column| (column.column_type, column.rules.padded, column.rules.local);
        let refers = self.parts.constraints.iter().filter_map(|one| one.reference());
        let refers = refers.into_iter().any(|reference| reference.columns.contains(&at));
        let referred = children(self.catalog, self.table.id);
        let referred = referred.iter().any(|(.., reference)| reference.parent_columns.contains(&at));
        let same = kept(old) == kept(new) && !self.values.contains_key(&at);
        if same || !(refers || referred) {
            return Ok(());
        }
        let what = format!("ALTER TYPE of \"{}\" of \"{of}\", which a foreign key names", new.name);
        Err(Failure::unsupported(what, "drop the foreign key first"))
    }
}

/// True if a column's rows say the same under another type.
fn is_kept_alike(column: &Column, (ty, rules): (Ty, &Rules)) -> bool {
    let single = column.column_type == ColumnType::Float && column.rules.bits < rules.bits;
    let same = column.column_type == ty.column() && column.rules.shown == rules.shown && !single;
    let pads = rules.padded && !column.rules.padded;
    let rounds = rules.digits.is_some_and(|(precision, scale)| {
        column.rules.digits.is_none_or(|(known, kept)| scale < kept || precision - scale < known - kept)
    });
    same && !pads && !rounds
}

/// The default of a column that gets another type.
fn default_of(
    (column, before): (&Column, Ty),
    default: Fallback,
    (ty, rules): (Ty, &Rules),
) -> Result<Fallback, Failure> {
    let fits = |from: Ty| from == ty || from.assigns(ty);
    let cast = match &default {
        Fallback::Value(text) => {
            let value = column.column_type.parse(text).ok().filter(|_| fits(before));
            let value = value.and_then(|value| cast::cast(value, before, ty).ok());
            value.and_then(|value| rules.fit(value).ok()).map(|value| Fallback::Value(value.to_string()))
        }
        Fallback::Now if matches!(ty, Ty::Timestamptz | Ty::Timestamp | Ty::Date) => Some(default),
        Fallback::Random if ty == Ty::Uuid => Some(default),
        Fallback::Next(_) if ty.column() == ColumnType::Int => Some(default),
        Fallback::Now | Fallback::Random | Fallback::Next(_) => {
            let what = format!("ALTER TYPE of \"{}\" to {} with its default", column.name, ty.name());
            return Err(Failure::unsupported(what, "DROP DEFAULT in the same statement"));
        }
    };
    cast.ok_or_else(|| {
        let (name, ty) = (&column.name, ty.name());
        let message = format!("default for column \"{name}\" cannot be cast automatically to type {ty}");
        Failure::new("42804", message)
    })
}

/// A condition with another name for a column.
fn renamed(expr: &mut Expr, from: &str, to: &str) {
    let _ = visit_expressions_mut(expr, |one| {
        let name = match one {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(names) => names.last_mut(),
            _ => None,
        };
        if let Some(name) = name.filter(|name| folded(name) == from) {
            *name = ident(to);
        }
        ControlFlow::<()>::Continue(())
    });
}
