//! `pg_catalog`: what PostgreSQL's catalogs say of the cluster's tables.

use super::attributes::Attribute;
use super::facts::Facts;
use super::relations::{
    BTREE, DATABASE, LSM, MEMORY, OWNER, Of, PG_CATALOG, Relation, constraint_oid, database_oid, default_oid,
    key_oid, place, schemas, table_oid,
};
use super::{Filling, array, dependencies, int, routines, text, truth, types};
use crate::settings;
use crate::ty::Ty;
use ::types::data::{Identity, Value};

/// Fills one of them. What there are no objects of has no rows.
pub fn fill(name: &str, facts: &Facts, filling: &mut Filling) {
    match name {
        "pg_namespace" => namespaces(facts, filling),
        "pg_class" => classes(facts, filling),
        "pg_attribute" => attributes(facts, filling),
        "pg_attrdef" => defaults(facts, filling),
        "pg_type" => types::fill_types(filling),
        "pg_proc" => {
            types::fill_functions(filling);
            routines::fill_procedures(facts, filling);
        }
        "pg_language" => routines::fill_languages(filling),
        "pg_index" => indexes(facts, filling),
        "pg_constraint" => constraints(facts, filling),
        "pg_database" => databases(facts, filling),
        "pg_roles" | "pg_user" => role(name, filling),
        "pg_am" => access_methods(filling),
        "pg_opclass" => operator_classes(filling),
        "pg_collation" => collations(filling),
        "pg_tablespace" => {
            filling.row(&[("oid", int(1663)), ("spcname", text("pg_default")), ("spcowner", int(OWNER))])
        }
        "pg_settings" => parameters(facts, filling),
        "pg_tables" => tables(facts, filling),
        "pg_indexes" => index_lines(facts, filling),
        "pg_views" => views(facts, filling),
        "pg_depend" => dependencies::fill(facts, filling),
        "pg_description" => dependencies::fill_descriptions(filling),
        "pg_extension" => dependencies::fill_extensions(filling),
        "pg_rewrite" => dependencies::fill_rules(facts, filling),
        "pg_sequence" => sequence_rows(facts, filling),
        "pg_sequences" => sequences(facts, filling),
        "pg_stat_activity" => sessions(facts, filling),
        _ => {}
    }
}

fn namespaces(facts: &Facts, filling: &mut Filling) {
    for (oid, name) in schemas(&facts.catalog) {
        let rights = match name.as_str() {
            // Everybody may use it.
            "public" => {
                array(Ty::AclArray, [format!("{0}=UC/{0}", crate::USER), format!("=U/{}", crate::USER)])
            }
            _ => Value::Null,
        };
        let row = [("oid", int(oid)), ("nspname", text(name)), ("nspowner", int(OWNER)), ("nspacl", rights)];
        filling.row(&row);
    }
}

fn classes(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values() {
        let table = if let Of::Table(table) = &relation.of { Some(table) } else { None };
        let keyed = table.is_some_and(|table| {
            !table.schema.has_hidden_key() || !super::constraints::indexes(table).is_empty()
        });
        let checks = table.map_or(0, |table| super::constraints::checks(table));
        let foreign = table.is_some_and(|table| super::constraints::has_foreign(&facts.catalog, table));
        let storage = if relation.kind() == "v" { 0 } else { relation.oid };
        filling.row(&[
            ("oid", int(relation.oid)),
            ("relname", text(&*relation.name)),
            ("relnamespace", int(relation.schema)),
            ("relowner", int(OWNER)),
            ("relam", int(relation.access())),
            ("relfilenode", int(storage)),
            // Nobody counts rows for this; PostgreSQL says so in the same way.
            ("reltuples", Value::Float(-1.0)),
            ("relhasindex", truth(keyed)),
            ("relpersistence", text("p")),
            ("relkind", text(relation.kind())),
            ("relnatts", int(relation.attributes().len())),
            ("relchecks", int(checks)),
            ("relhastriggers", truth(foreign)),
            ("relispopulated", truth(true)),
            ("relreplident", text(if relation.kind() == "r" { "d" } else { "n" })),
            ("reloptions", options(relation)),
        ]);
    }
}

/// What WITH said when the table was created.
fn options(relation: &Relation) -> Value {
    let Of::Table(table) = &relation.of else { return Value::Null };
    if table.database().is_some() {
        // All others are the database's.
        let replicated = table.schema.is_replicated();
        return if replicated { array(Ty::TextArray, ["replicated=true".to_string()]) } else { Value::Null };
    }
    let engine = format!("{:?}", table.engine).to_lowercase();
    let log = format!("{:?}", table.log).to_lowercase();
    let options = [
        format!("engine={engine}"),
        format!("log={log}"),
        format!("policy={}", table.policy.name),
        format!("partitions={}", table.partitions),
        format!("partition_by={}", table.schema.partition_by()),
        format!("factor={}", table.policy.factor),
        format!("min_in_sync={}", table.policy.min_in_sync),
    ];
    array(Ty::TextArray, options)
}

fn attributes(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values() {
        for attribute in relation.attributes() {
            let at = attribute.number - 1;
            let oid = attribute.kind.oid();
            let Some(of) = types::by_oid(oid) else { continue };
            let of_table = relation.kind() == "r";
            filling.row(&[
                ("attrelid", int(relation.oid)),
                ("attname", text(&*attribute.name)),
                ("atttypid", int(oid)),
                ("attstattarget", int(-1)),
                ("attlen", int(of.length())),
                ("attnum", int(at + 1)),
                ("attcacheoff", int(-1)),
                ("atttypmod", int(attribute.modifier)),
                ("attbyval", truth(of.by_value())),
                ("attalign", text(of.alignment())),
                ("attstorage", text(of.storage())),
                ("attnotnull", truth(attribute.not_null && of_table)),
                ("atthasdef", truth(facts.default_of(&attribute).is_some() && of_table)),
                ("attidentity", text(if of_table { identity(&attribute) } else { "" })),
                ("attislocal", truth(true)),
                ("attcollation", int(of.collation())),
            ]);
        }
    }
}

/// By whom its rows are numbered, in the catalog's letter.
fn identity(attribute: &Attribute) -> &'static str {
    match attribute.identity {
        None => "",
        Some(Identity::Always) => "a",
        Some(Identity::ByDefault) => "d",
    }
}

/// Defaults. Their number is the table's and the column's: it stays, too.
fn defaults(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values() {
        let Of::Table(table) = &relation.of else { continue };
        for attribute in relation.attributes() {
            let at = attribute.number - 1;
            let Some(default) = facts.default_of(&attribute) else { continue };
            filling.row(&[
                ("oid", int(default_oid(table, at))),
                ("adrelid", int(relation.oid)),
                ("adnum", int(at + 1)),
                ("adbin", text(default)),
            ]);
        }
    }
}

fn indexes(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values() {
        let (table, columns, index) = match &relation.of {
            Of::Key(table) => (table, table.schema.key(), None),
            Of::Index(table, index) => (table, &index.columns[..], Some(index)),
            Of::Table(_) | Of::Other(_) | Of::System(_) => continue,
        };
        let each = |of: &dyn Fn(usize) -> i64| {
            let numbers: Vec<String> = columns.iter().map(|at| of(*at).to_string()).collect();
            text(numbers.join(" "))
        };
        let ty = |at: usize| Ty::of_column(&table.schema.columns()[at]);
        let unique = index.is_none_or(|index| super::constraints::is_unique(table, index));
        let whole = index.is_none_or(|index| super::constraints::is_whole(table, index));
        filling.row(&[
            ("indexrelid", int(relation.oid)),
            ("indrelid", int(table_oid(table))),
            ("indnatts", int(columns.len())),
            ("indnkeyatts", int(columns.len())),
            ("indisunique", truth(unique)),
            ("indisprimary", truth(index.is_none())),
            ("indimmediate", truth(true)),
            ("indisvalid", truth(whole)),
            ("indisready", truth(true)),
            ("indislive", truth(true)),
            ("indkey", each(&|at| at as i64 + 1)),
            ("indcollation", each(&|at| types::by_oid(ty(at).kind().oid()).map_or(0, |of| of.collation()))),
            ("indclass", each(&|at| operator_class(ty(at)))),
            ("indoption", each(&|_| 0)),
        ]);
    }
}

fn constraints(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values() {
        let Of::Table(table) = &relation.of else { continue };
        super::constraints::fill(facts, relation, table, filling);
        if table.schema.has_hidden_key() {
            continue;
        }
        filling.row(&[
            ("oid", int(constraint_oid(table))),
            ("conname", text(format!("{}_pkey", relation.name))),
            ("connamespace", int(relation.schema)),
            ("contype", text("p")),
            ("convalidated", truth(true)),
            ("conrelid", int(relation.oid)),
            ("conindid", int(key_oid(table))),
            ("confupdtype", text(" ")),
            ("confdeltype", text(" ")),
            ("confmatchtype", text(" ")),
            ("conislocal", truth(true)),
            ("connoinherit", truth(true)),
            ("conkey", array(Ty::Int2Array, table.schema.key().iter().map(|at| at + 1))),
        ]);
    }
}

fn databases(facts: &Facts, filling: &mut Filling) {
    database((DATABASE, crate::DATABASE), filling);
    for record in facts.seen().map.databases().filter(|record| record.name != crate::DATABASE) {
        database((database_oid(record), &record.name), filling);
    }
}

fn database((oid, name): (u32, &str), filling: &mut Filling) {
    filling.row(&[
        ("oid", int(oid)),
        ("datname", text(name)),
        ("datdba", int(OWNER)),
        ("encoding", int(6)),
        ("datlocprovider", text("c")),
        ("datallowconn", truth(true)),
        ("datconnlimit", int(-1)),
        ("dattablespace", int(1663)),
        ("datcollate", text("C")),
        ("datctype", text("C")),
    ]);
}

fn role(name: &str, filling: &mut Filling) {
    match name {
        "pg_user" => filling.row(&[
            ("usename", text(crate::USER)),
            ("usesysid", int(OWNER)),
            ("usecreatedb", truth(false)),
            ("usesuper", truth(false)),
            ("userepl", truth(false)),
            ("usebypassrls", truth(false)),
            ("passwd", text("********")),
        ]),
        _ => filling.row(&[
            ("rolname", text(crate::USER)),
            ("rolsuper", truth(false)),
            ("rolinherit", truth(true)),
            ("rolcreaterole", truth(false)),
            ("rolcreatedb", truth(false)),
            ("rolcanlogin", truth(true)),
            ("rolreplication", truth(false)),
            ("rolconnlimit", int(-1)),
            ("rolpassword", text("********")),
            ("rolbypassrls", truth(false)),
            ("oid", int(OWNER)),
        ]),
    }
}

fn access_methods(filling: &mut Filling) {
    for (oid, name, kind) in [(LSM, "lsm", "t"), (MEMORY, "memory", "t"), (BTREE, "btree", "i")] {
        filling.row(&[("oid", int(oid)), ("amname", text(name)), ("amtype", text(kind))]);
    }
}

/// PostgreSQL's classes of operators for `btree`, by the type that they are for.
const OPERATOR_CLASSES: [(Ty, i64, &str); 9] = [
    (Ty::Bool, 10_003, "bool_ops"),
    (Ty::Bytea, 10_006, "bytea_ops"),
    (Ty::Date, 3122, "date_ops"),
    (Ty::Float8, 3123, "float8_ops"),
    (Ty::Int4, 1978, "int4_ops"),
    (Ty::Int8, 3124, "int8_ops"),
    (Ty::Numeric, 3125, "numeric_ops"),
    (Ty::Text, 3126, "text_ops"),
    (Ty::Timestamptz, 3127, "timestamptz_ops"),
];

fn operator_class(ty: Ty) -> i64 {
    OPERATOR_CLASSES.iter().find(|(of, ..)| *of == ty).map_or(0, |(_, oid, _)| *oid)
}

fn operator_classes(filling: &mut Filling) {
    for (ty, oid, name) in OPERATOR_CLASSES {
        filling.row(&[
            ("oid", int(oid)),
            ("opcmethod", int(BTREE)),
            ("opcname", text(name)),
            ("opcnamespace", int(PG_CATALOG)),
            ("opcowner", int(OWNER)),
            ("opcintype", int(ty.kind().oid())),
            ("opcdefault", truth(true)),
        ]);
    }
}

fn collations(filling: &mut Filling) {
    for (oid, name, provider) in [(100, "default", "d"), (950, "C", "c"), (951, "POSIX", "c")] {
        let locale = if provider == "d" { Value::Null } else { text(name) };
        filling.row(&[
            ("oid", int(oid)),
            ("collname", text(name)),
            ("collnamespace", int(PG_CATALOG)),
            ("collowner", int(OWNER)),
            ("collprovider", text(provider)),
            ("collisdeterministic", truth(true)),
            ("collencoding", int(-1)),
            ("collcollate", locale.clone()),
            ("collctype", locale),
        ]);
    }
}

fn parameters(facts: &Facts, filling: &mut Filling) {
    for (name, default) in settings::all() {
        let now = facts.asker.settings.get(name).unwrap_or_default();
        let source = if now == default { "default" } else { "session" };
        filling.row(&[
            ("name", text(name)),
            ("setting", text(now)),
            ("category", text("Understudy")),
            ("context", text("user")),
            ("vartype", text("string")),
            ("source", text(source)),
            ("boot_val", text(default)),
            ("reset_val", text(default)),
            ("pending_restart", truth(false)),
        ]);
    }
}

fn tables(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values().filter(|relation| relation.kind() == "r") {
        filling.row(&[
            ("schemaname", text(&*relation.schema_name)),
            ("tablename", text(&*relation.name)),
            ("tableowner", text(crate::USER)),
            ("hasindexes", truth(matches!(relation.of, Of::Table(_)))),
            ("hasrules", truth(false)),
            ("hastriggers", truth(false)),
            ("rowsecurity", truth(false)),
        ]);
    }
}

fn index_lines(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values() {
        let (Of::Key(table) | Of::Index(table, _)) = &relation.of else { continue };
        filling.row(&[
            ("schemaname", text(&*relation.schema_name)),
            ("tablename", text(facts.catalog.placed(&table.name).1)),
            ("indexname", text(&*relation.name)),
            ("indexdef", text(super::functions::index_definition(relation, table))),
        ]);
    }
}

fn sequence_rows(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values() {
        let Some((_, sequence)) = relation.sequence() else { continue };
        filling.row(&[
            ("seqrelid", int(relation.oid)),
            ("seqtypid", int(number_type(sequence.bits).oid())),
            ("seqstart", Value::Int(sequence.start)),
            ("seqincrement", Value::Int(sequence.step)),
            ("seqmax", Value::Int(sequence.most)),
            ("seqmin", Value::Int(sequence.least)),
            ("seqcache", int(1)),
            ("seqcycle", truth(sequence.cycle)),
        ]);
    }
}

fn number_type(bits: u8) -> pg::Kind {
    match bits {
        16 => pg::Kind::Int2,
        32 => pg::Kind::Int4,
        _ => pg::Kind::Int8,
    }
}

fn sequences(facts: &Facts, filling: &mut Filling) {
    for relation in facts.relations().values() {
        let Some((id, sequence)) = relation.sequence() else { continue };
        let last = match super::counting::standing(facts, id) {
            Ok((last, true)) => Value::Int(last),
            // Nothing was given out, or nobody can say it now.
            _ => Value::Null,
        };
        filling.row(&[
            ("schemaname", text(&*relation.schema_name)),
            ("sequencename", text(&*relation.name)),
            ("sequenceowner", text(crate::USER)),
            ("data_type", int(number_type(sequence.bits).oid())),
            ("start_value", Value::Int(sequence.start)),
            ("min_value", Value::Int(sequence.least)),
            ("max_value", Value::Int(sequence.most)),
            ("increment_by", Value::Int(sequence.step)),
            ("cycle", truth(sequence.cycle)),
            ("cache_size", int(1)),
            ("last_value", last),
        ]);
    }
}

fn views(facts: &Facts, filling: &mut Filling) {
    for view in facts.catalog.others() {
        let Some(definition) = crate::views::text(view) else { continue };
        let ((_, schema), own) = place(&facts.catalog, &view.name);
        filling.row(&[
            ("schemaname", text(schema)),
            ("viewname", text(own)),
            ("viewowner", text(crate::USER)),
            ("definition", text(format!(" {definition};"))),
        ]);
    }
    for table in super::all().iter().filter(|table| table.kind == "v") {
        filling.row(&[
            ("schemaname", text(table.schema)),
            ("viewname", text(table.name)),
            ("viewowner", text(crate::USER)),
        ]);
    }
}

fn sessions(facts: &Facts, filling: &mut Filling) {
    for session in facts.asker.sessions.all() {
        let time = |micros: i64| Value::Timestamp(micros);
        filling.row(&[
            ("datid", int(session.database.0)),
            ("datname", text(session.database.1)),
            ("pid", int(session.pid)),
            ("usesysid", int(OWNER)),
            ("usename", text(crate::USER)),
            ("application_name", text(session.application)),
            ("client_addr", session.address.map_or(Value::Null, |address| text(address.ip().to_string()))),
            ("client_port", session.address.map_or(Value::Null, |address| int(address.port()))),
            ("backend_start", time(session.since)),
            ("backend_type", text("client backend")),
        ]);
    }
}
