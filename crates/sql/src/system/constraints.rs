//! Constraints beside keys, as PostgreSQL's catalogs and the standard's have them.

use super::facts::Facts;
use super::names::{quoted, written};
use super::relations::{Relation, index_oid, key_oid, table_oid};
use super::{Filling, array, int, text, truth};
use crate::catalog::Catalog;
use crate::ty::Ty;
use ::types::data::Schema;
use ::types::data::constraint::{Action, Constraint, Demand, Reference, Standing, Target};
use ::types::{IndexRecord, TableId, TableRecord};
use std::sync::Arc;

/// Numbers of constraints begin here; the rest is the constraint's own.
const FIRST: u32 = 0x2000_0000;

/// The number of a constraint.
pub fn oid(constraint: &Constraint) -> u32 {
    FIRST | constraint.number & (FIRST - 1)
}

/// The constraints of a table that demand something.
pub fn of(table: &TableRecord) -> impl Iterator<Item = &Constraint> {
    table.schema.constraints().iter().filter(|constraint| constraint.is_enforced())
}

/// How many checks a table has.
pub fn checks(table: &TableRecord) -> usize {
    of(table).filter(|constraint| matches!(constraint.demand, Demand::Check(_))).count()
}

/// True if a table has foreign keys, or is referred to: PostgreSQL keeps them by triggers, and psql asks for
/// these first.
pub fn has_foreign(catalog: &Catalog, table: &TableRecord) -> bool {
    let refers = |one: &TableRecord| of(one).any(|constraint| constraint.reference().is_some());
    refers(table) || !crate::constraints::children(catalog, table.id).is_empty()
}

/// The indexes of a table that are seen: those of foreign keys are not, as PostgreSQL has none.
pub fn indexes(table: &TableRecord) -> Vec<IndexRecord> {
    if table.database().is_none() {
        return table.indexes.wanted.clone();
    }
    let index = |one: &Constraint| {
        let columns = one.named_index()?.to_vec();
        Some(IndexRecord { number: one.number, name: one.name.clone(), columns })
    };
    of(table).filter_map(index).collect()
}

/// True if the index is of what is unique.
pub fn is_unique(table: &TableRecord, index: &IndexRecord) -> bool {
    of(table).any(|one| one.number == index.number && one.unique().is_some())
}

/// True if the index has all rows, as far as this is known here.
pub fn is_whole(table: &TableRecord, index: &IndexRecord) -> bool {
    let found = of(table).find(|one| one.number == index.number);
    found.is_none_or(|one| one.standing == Standing::Valid)
}

fn parent(catalog: &Catalog, id: TableId) -> Option<Arc<TableRecord>> {
    catalog.all().find(|table| table.id == id).cloned()
}

/// The number of the index by which a foreign key finds rows.
fn index_of(parent: &TableRecord, reference: &Reference) -> u32 {
    match parent.schema.target(&reference.parent_columns) {
        Some(Target::Unique(number, _)) => {
            let index = indexes(parent).into_iter().find(|index| index.number == number);
            index.map_or(0, |index| index_oid(parent, &index))
        }
        Some(Target::Key(_)) => key_oid(parent),
        None => 0,
    }
}

fn letter(action: Action) -> &'static str {
    match action {
        Action::None => "a",
        Action::Restrict => "r",
        Action::Cascade => "c",
        Action::SetNull => "n",
        Action::SetDefault => "d",
    }
}

/// Rows of `pg_constraint`.
pub fn fill(facts: &Facts, relation: &Relation, table: &TableRecord, filling: &mut Filling) {
    for constraint in of(table).filter(|one| !one.is_index()) {
        let (kind, index, foreign) = match &constraint.demand {
            Demand::Check(_) | Demand::Index(_) => ("c", 0, None),
            Demand::Unique(_) => {
                let index = indexes(table).into_iter().find(|index| index.number == constraint.number);
                ("u", index.map_or(0, |index| index_oid(table, &index)), None)
            }
            Demand::Foreign(reference) => {
                let parent = parent(&facts.catalog, reference.parent);
                let index = parent.as_ref().map_or(0, |parent| index_of(parent, reference));
                ("f", index, parent.map(|parent| (parent, reference)))
            }
        };
        let actions = foreign.as_ref().map(|(_, reference)| (reference.on_update, reference.on_delete));
        let (update, delete) = actions.map_or((" ", " "), |(one, other)| (letter(one), letter(other)));
        let numbers =
            |columns: &[usize]| array(Ty::Int2Array, columns.iter().map(|at| at + 1).collect::<Vec<_>>());
        let columns = match &constraint.demand {
            Demand::Check(condition) => checked(table, condition),
            _ => constraint.indexed().unwrap_or_default().to_vec(),
        };
        let deferred = constraint.reference().and_then(|reference| reference.deferred);
        let mut cells = vec![
            ("oid", int(oid(constraint))),
            ("conname", text(&*constraint.name)),
            ("connamespace", int(relation.schema)),
            ("contype", text(kind)),
            ("condeferrable", truth(deferred.is_some())),
            ("condeferred", truth(deferred == Some(true))),
            ("convalidated", truth(constraint.is_kept())),
            ("conrelid", int(relation.oid)),
            ("conindid", int(index)),
            ("confupdtype", text(update)),
            ("confdeltype", text(delete)),
            ("confmatchtype", text(if kind == "f" { "s" } else { " " })),
            ("conislocal", truth(true)),
            ("connoinherit", truth(kind != "c")),
            ("conkey", numbers(&columns)),
        ];
        if let Some((parent, reference)) = &foreign {
            cells.push(("confrelid", int(table_oid(parent))));
            cells.push(("confkey", numbers(&reference.parent_columns)));
        }
        filling.row(&cells);
    }
}

/// The columns that a check names.
fn checked(table: &TableRecord, condition: &str) -> Vec<usize> {
    let record = Arc::new(table.clone());
    let read = crate::constraints::check::read(condition);
    read.and_then(|expr| crate::constraints::check::columns(&record, &expr)).unwrap_or_default()
}

/// A constraint as ALTER TABLE would add it.
pub fn definition(catalog: &Catalog, wanted: u32) -> Option<String> {
    let (table, constraint) = catalog.all().find_map(|table| {
        let found = of(table).find(|one| oid(one) == wanted && !one.is_index())?;
        Some((table, found))
    })?;
    let own = |schema: &Schema, columns: &[usize]| {
        let names: Vec<String> = columns.iter().map(|at| quoted(&schema.columns()[*at].name)).collect();
        names.join(", ")
    };
    let mut said = match &constraint.demand {
        Demand::Check(condition) => format!("CHECK (({condition}))"),
        Demand::Index(_) => return None,
        Demand::Unique(columns) => return Some(format!("UNIQUE ({})", own(&table.schema, columns))),
        Demand::Foreign(reference) => {
            let parent = parent(catalog, reference.parent)?;
            let mut said = format!(
                "FOREIGN KEY ({}) REFERENCES {}({})",
                own(&table.schema, &reference.columns),
                written(catalog, &parent.name),
                own(&parent.schema, &reference.parent_columns)
            );
            for (event, action) in [("UPDATE", reference.on_update), ("DELETE", reference.on_delete)] {
                if action != Action::None {
                    said.push_str(&format!(" ON {event} {}", words(action)));
                }
            }
            match reference.deferred {
                None => {}
                Some(false) => said.push_str(" DEFERRABLE"),
                Some(true) => said.push_str(" DEFERRABLE INITIALLY DEFERRED"),
            }
            said
        }
    };
    if !constraint.is_kept() {
        said.push_str(" NOT VALID");
    }
    Some(said)
}

/// What an action is called.
pub fn words(action: Action) -> &'static str {
    match action {
        Action::None => "NO ACTION",
        Action::Restrict => "RESTRICT",
        Action::Cascade => "CASCADE",
        Action::SetNull => "SET NULL",
        Action::SetDefault => "SET DEFAULT",
    }
}

/// `information_schema.referential_constraints`.
pub fn referential(facts: &Facts, filling: &mut Filling) {
    let all = facts.catalog.all().flat_map(|table| of(table));
    for (constraint, reference) in all.filter_map(|one| Some((one, one.reference()?))) {
        let Some(parent) = parent(&facts.catalog, reference.parent) else { continue };
        let unique = match parent.schema.target(&reference.parent_columns) {
            Some(Target::Unique(number, _)) => {
                let found = of(&parent).find(|one| one.number == number);
                found.map_or(String::new(), |one| one.name.clone())
            }
            _ => format!("{}_pkey", facts.catalog.placed(&parent.name).1),
        };
        let database = || text(facts.catalog.database());
        filling.row(&[
            ("constraint_catalog", database()),
            ("constraint_schema", text("public")),
            ("constraint_name", text(&*constraint.name)),
            ("unique_constraint_catalog", database()),
            ("unique_constraint_schema", text("public")),
            ("unique_constraint_name", text(unique)),
            ("match_option", text("NONE")),
            ("update_rule", text(words(reference.on_update))),
            ("delete_rule", text(words(reference.on_delete))),
        ]);
    }
}
