//! `information_schema`: the same as the standard words it.

use super::attributes::Attribute;
use super::facts::Facts;
use super::relations::{Of, Relation, place, schemas};
use super::{Filling, all, int, text};
use crate::ty::Ty;
use ::types::TableRecord;
use ::types::data::{Demand, Identity, Value};
use pg::Kind;
use std::sync::Arc;

/// Fills one of its tables. What there are no objects of has no rows.
pub fn fill(name: &str, facts: &Facts, filling: &mut Filling) {
    match name {
        "schemata" => schemata(facts, filling),
        "tables" => tables(facts, filling),
        "columns" => columns(facts, filling),
        "table_constraints" => constraints(facts, filling),
        "key_column_usage" => key_columns(facts, filling, true),
        "constraint_column_usage" => key_columns(facts, filling, false),
        "referential_constraints" => super::constraints::referential(facts, filling),
        "routines" => super::routines::fill_routines(facts, filling),
        "views" => views(facts, filling),
        "sequences" => sequences(facts, filling),
        _ => {}
    }
}

fn database(facts: &Facts) -> Value {
    text(facts.catalog.database())
}

fn schema(relation: &Relation) -> Value {
    text(&*relation.schema_name)
}

fn yes(truth: bool) -> Value {
    text(if truth { "YES" } else { "NO" })
}

fn schemata(facts: &Facts, filling: &mut Filling) {
    for (_, name) in schemas(&facts.catalog) {
        filling.row(&[
            ("catalog_name", database(facts)),
            ("schema_name", text(name)),
            ("schema_owner", text(crate::USER)),
        ]);
    }
}

fn tables(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values().filter(|relation| !["i", "S"].contains(&relation.kind())) {
        let insertable = relation.table().is_some_and(|table| !::types::system::is_reserved(&table.name));
        filling.row(&[
            ("table_catalog", database(facts)),
            ("table_schema", schema(relation)),
            ("table_name", text(&*relation.name)),
            ("table_type", text(if relation.kind() == "v" { "VIEW" } else { "BASE TABLE" })),
            ("is_insertable_into", yes(insertable)),
            ("is_typed", yes(false)),
        ]);
    }
}

fn columns(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values().filter(|relation| !["i", "S"].contains(&relation.kind())) {
        let updatable = relation.table().is_some_and(|table| !::types::system::is_reserved(&table.name));
        for attribute in relation.attributes() {
            let at = attribute.number - 1;
            let row = super::types::by_oid(attribute.kind.oid());
            let shown = match attribute.ty.element() {
                Some(_) if !matches!(attribute.ty, Ty::Int2Vector | Ty::OidVector) => "ARRAY",
                _ => attribute.kind.name(),
            };
            let (most, default) = (attribute.most_characters(), facts.default_of(&attribute));
            let octets = if attribute.ty == Ty::Text { int(octets(most)) } else { Value::Null };
            let (precision, radix, scale) = digits(&attribute);
            let of_time = match attribute.ty {
                Ty::Timestamp | Ty::Timestamptz => int(6),
                Ty::Date => int(0),
                _ => Value::Null,
            };
            filling.row(&[
                ("table_catalog", database(facts)),
                ("table_schema", schema(relation)),
                ("table_name", text(&*relation.name)),
                ("column_name", text(attribute.name)),
                ("ordinal_position", int(at + 1)),
                ("column_default", default.map_or(Value::Null, text)),
                ("is_nullable", yes(!attribute.not_null)),
                ("data_type", text(shown)),
                ("character_maximum_length", most.map_or(Value::Null, int)),
                ("character_octet_length", octets),
                ("numeric_precision", precision),
                ("numeric_precision_radix", radix),
                ("numeric_scale", scale),
                ("datetime_precision", of_time),
                ("udt_catalog", database(facts)),
                ("udt_schema", text("pg_catalog")),
                ("udt_name", row.map_or(Value::Null, |row| text(row.name))),
                ("dtd_identifier", text((at + 1).to_string())),
                ("is_self_referencing", yes(false)),
                ("is_identity", yes(attribute.identity.is_some())),
                ("identity_generation", attribute.identity.map_or(Value::Null, generation)),
                ("identity_cycle", yes(false)),
                ("is_generated", text("NEVER")),
                ("is_updatable", yes(updatable)),
            ]);
        }
    }
}

/// The most bytes of a text, in PostgreSQL's reckoning.
fn octets(most_characters: Option<i64>) -> i64 {
    most_characters.map_or(1_073_741_824, |most| most * 4)
}

/// A number's precision, in which radix, and its scale.
fn digits(attribute: &Attribute) -> (Value, Value, Value) {
    match (attribute.kind, attribute.digits()) {
        (Kind::Int2, _) => (int(16), int(2), int(0)),
        (Kind::Int4, _) => (int(32), int(2), int(0)),
        (Kind::Int8, _) => (int(64), int(2), int(0)),
        (Kind::Float4, _) => (int(24), int(2), Value::Null),
        (Kind::Float8, _) => (int(53), int(2), Value::Null),
        (Kind::Numeric, Some((precision, scale))) => (int(precision), int(10), int(scale)),
        (Kind::Numeric, None) => (Value::Null, int(10), Value::Null),
        _ => (Value::Null, Value::Null, Value::Null),
    }
}

fn generation(identity: Identity) -> Value {
    text(match identity {
        Identity::Always => "ALWAYS",
        Identity::ByDefault => "BY DEFAULT",
    })
}

/// Keys, and the columns that are never null, which the standard takes for checks.
fn constraints(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values() {
        let Of::Table(table) = &relation.of else { continue };
        let mut add = |name: String, kind: &str, deferred: Option<bool>| {
            filling.row(&[
                ("constraint_catalog", database(facts)),
                ("constraint_schema", schema(relation)),
                ("constraint_name", text(name)),
                ("table_catalog", database(facts)),
                ("table_schema", schema(relation)),
                ("table_name", text(&*relation.name)),
                ("constraint_type", text(kind)),
                ("is_deferrable", yes(deferred.is_some())),
                ("initially_deferred", yes(deferred == Some(true))),
                ("enforced", yes(true)),
            ]);
        };
        if !table.schema.has_hidden_key() {
            add(format!("{}_pkey", relation.name), "PRIMARY KEY", None);
        }
        for one in super::constraints::of(table) {
            match &one.demand {
                Demand::Check(_) => add(one.name.clone(), "CHECK", None),
                Demand::Unique(_) => add(one.name.clone(), "UNIQUE", None),
                Demand::Index(_) => {}
                Demand::Foreign(reference) => add(one.name.clone(), "FOREIGN KEY", reference.deferred),
            }
        }
        for attribute in relation.attributes() {
            let at = attribute.number - 1;
            if attribute.not_null {
                let name = format!("{}_{}_{}_not_null", relation.schema, relation.oid, at + 1);
                add(name, "CHECK", None);
            }
        }
    }
}

/// A constraint's name, the table that its columns are of, and these; with their places in what they refer
/// to.
type Used = (String, Arc<TableRecord>, Vec<usize>, Option<Vec<usize>>);

/// The constraints of a table that have columns: their own, or (`ordered` is false) those that they need.
fn used(facts: &Facts, table: &Arc<TableRecord>, ordered: bool) -> Vec<Used> {
    let mut all = Vec::new();
    if !table.schema.has_hidden_key() {
        let own = facts.catalog.placed(&table.name).1;
        all.push((format!("{own}_pkey"), table.clone(), table.schema.key().to_vec(), None));
    }
    for one in super::constraints::of(table) {
        let (of, columns, places) = match &one.demand {
            Demand::Check(_) | Demand::Index(_) => continue,
            Demand::Unique(columns) => (table.clone(), columns.clone(), None),
            Demand::Foreign(reference) if ordered => {
                let places = (1..=reference.columns.len()).collect();
                (table.clone(), reference.columns.clone(), Some(places))
            }
            Demand::Foreign(reference) => {
                let parent = facts.catalog.all().find(|parent| parent.id == reference.parent);
                let Some(parent) = parent else { continue };
                (parent.clone(), reference.parent_columns.clone(), None)
            }
        };
        all.push((one.name.clone(), of, columns, places));
    }
    all
}

fn key_columns(facts: &Facts, filling: &mut Filling, ordered: bool) {
    for relation in facts.relations().values() {
        let Of::Table(table) = &relation.of else { continue };
        for (name, of, columns, places) in used(facts, table, ordered) {
            for (at, column) in columns.iter().enumerate() {
                let mut cells = vec![
                    ("constraint_catalog", database(facts)),
                    ("constraint_schema", schema(relation)),
                    ("constraint_name", text(&*name)),
                    ("table_catalog", database(facts)),
                    ("table_schema", schema(relation)),
                    ("table_name", text(facts.catalog.placed(&of.name).1)),
                    ("column_name", text(&*of.schema.columns()[*column].name)),
                ];
                if ordered {
                    cells.push(("ordinal_position", int(at + 1)));
                    let place = places.as_ref().map_or(Value::Null, |places| int(places[at]));
                    cells.push(("position_in_unique_constraint", place));
                }
                filling.row(&cells);
            }
        }
    }
}

fn sequences(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values() {
        let Some((_, sequence)) = relation.sequence() else { continue };
        filling.row(&[
            ("sequence_catalog", database(facts)),
            ("sequence_schema", schema(relation)),
            ("sequence_name", text(&*relation.name)),
            ("data_type", text(crate::numbering::named(sequence.bits))),
            ("numeric_precision", int(sequence.bits)),
            ("numeric_precision_radix", int(2)),
            ("numeric_scale", int(0)),
            ("start_value", text(sequence.start.to_string())),
            ("minimum_value", text(sequence.least.to_string())),
            ("maximum_value", text(sequence.most.to_string())),
            ("increment", text(sequence.step.to_string())),
            ("cycle_option", yes(sequence.cycle)),
        ]);
    }
}

fn views(facts: &Facts, filling: &mut Filling) {
    for view in facts.catalog.others() {
        let Some(definition) = crate::views::text(view) else { continue };
        let ((_, schema), own) = place(&facts.catalog, &view.name);
        filling.row(&[
            ("table_catalog", database(facts)),
            ("table_schema", text(schema)),
            ("table_name", text(own)),
            ("view_definition", text(format!(" {definition};"))),
            ("check_option", text("NONE")),
            ("is_updatable", yes(false)),
            ("is_insertable_into", yes(false)),
            ("is_trigger_updatable", yes(false)),
            ("is_trigger_deletable", yes(false)),
            ("is_trigger_insertable_into", yes(false)),
        ]);
    }
    for table in all().iter().filter(|table| table.kind == "v") {
        filling.row(&[
            ("table_catalog", database(facts)),
            ("table_schema", text(table.schema)),
            ("table_name", text(table.name)),
            ("check_option", text("NONE")),
            ("is_updatable", yes(false)),
            ("is_insertable_into", yes(false)),
            ("is_trigger_updatable", yes(false)),
            ("is_trigger_deletable", yes(false)),
            ("is_trigger_insertable_into", yes(false)),
        ]);
    }
}
