//! Procedures in the catalogs: `pg_proc`, `information_schema.routines`, and how a definition is written.

use super::facts::Facts;
use super::names::quoted;
use super::relations::{OWNER, PUBLIC, table_oid};
use super::{Filling, array, int, text, truth};
use crate::ty::Ty;
use ::types::TableRecord;
use ::types::data::kind::{Language, Procedure};
use ::types::data::{Column, Value};
use std::sync::Arc;

/// PostgreSQL's type of what gives nothing, and of what gives rows.
const VOID: i64 = 2278;
const RECORD: i64 = 2249;

/// Languages of procedures, and that of the functions that are there.
const LANGUAGES: [(i64, &str); 3] = [(13_001, "wasm"), (13_002, "builtin"), (12, "internal")];

/// Fills `pg_language`.
pub fn fill_languages(filling: &mut Filling) {
    for (oid, name) in LANGUAGES {
        filling.row(&[
            ("oid", int(oid)),
            ("lanname", text(name)),
            ("lanowner", int(OWNER)),
            ("lanispl", truth(name == "wasm")),
            ("lanpltrusted", truth(name == "wasm")),
        ]);
    }
}

fn all(facts: &Facts) -> impl Iterator<Item = (&Arc<TableRecord>, &[Column], &Procedure)> {
    facts.catalog.others().filter_map(|other| {
        let (parameters, procedure) = other.schema.procedure()?;
        Some((other, parameters, procedure))
    })
}

/// Adds them to `pg_proc`.
pub fn fill_procedures(facts: &Facts, filling: &mut Filling) {
    for (record, parameters, procedure) in all(facts) {
        let types: Vec<String> =
            parameters.iter().map(|column| Ty::of_column(column).kind().oid().to_string()).collect();
        let result = if procedure.results.is_empty() { VOID } else { RECORD };
        filling.row(&[
            ("oid", int(table_oid(record))),
            ("proname", text(&*record.name)),
            ("pronamespace", int(PUBLIC)),
            ("proowner", int(OWNER)),
            ("prolang", int(LANGUAGES[usize::from(procedure.language == Language::Builtin)].0)),
            ("procost", Value::Float(1.0)),
            ("prokind", text("p")),
            ("proretset", truth(!procedure.results.is_empty())),
            ("provolatile", text(if procedure.read_only { "s" } else { "v" })),
            ("proparallel", text("u")),
            ("pronargs", int(parameters.len())),
            ("prorettype", int(result)),
            ("proargtypes", text(types.join(" "))),
            ("proargnames", array(Ty::TextArray, parameters.iter().map(|column| &column.name))),
            ("prosrc", text(&*procedure.source)),
        ]);
    }
}

/// Fills `information_schema.routines`.
pub fn fill_routines(facts: &Facts, filling: &mut Filling) {
    let database = || text(facts.catalog.database());
    for (record, _, procedure) in all(facts) {
        filling.row(&[
            ("specific_catalog", database()),
            ("specific_schema", text("public")),
            ("specific_name", text(format!("{}_{}", record.name, table_oid(record)))),
            ("routine_catalog", database()),
            ("routine_schema", text("public")),
            ("routine_name", text(&*record.name)),
            ("routine_type", text("PROCEDURE")),
            ("routine_body", text("EXTERNAL")),
            ("routine_definition", text(&*procedure.source)),
            ("external_language", text(language(procedure).to_uppercase())),
            ("parameter_style", text("GENERAL")),
            ("is_deterministic", text("NO")),
            ("sql_data_access", text(if procedure.read_only { "READS" } else { "MODIFIES" })),
            ("schema_level_routine", text("YES")),
            ("max_dynamic_result_sets", int(0)),
            ("security_type", text("INVOKER")),
        ]);
    }
}

fn language(procedure: &Procedure) -> &'static str {
    match procedure.language {
        Language::Wasm => "wasm",
        Language::Builtin => "builtin",
    }
}

fn found(facts: &Facts, oid: u32) -> Option<(&Arc<TableRecord>, &[Column], &Procedure)> {
    all(facts).find(|(record, ..)| table_oid(record) == oid)
}

fn listed(columns: &[Column], before: &str) -> String {
    let one = |column: &Column| format!("{before}{} {}", quoted(&column.name), Ty::of_column(column).name());
    columns.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// `pg_get_function_arguments` of one; none: there is no such procedure.
pub fn arguments(facts: &Facts, oid: u32) -> Option<String> {
    found(facts, oid).map(|(_, parameters, _)| listed(parameters, "IN "))
}

/// `pg_get_function_result`. PostgreSQL's procedures give no rows and have none.
pub fn result(facts: &Facts, oid: u32) -> Option<String> {
    let (.., procedure) = found(facts, oid)?;
    (!procedure.results.is_empty()).then(|| format!("TABLE({})", listed(&procedure.results, "")))
}

/// `pg_get_functiondef`: the statement that makes it.
pub fn definition(facts: &Facts, oid: u32) -> Option<String> {
    let (record, parameters, procedure) = found(facts, oid)?;
    let mut tag = "$procedure$".to_string();
    while procedure.source.contains(&tag) {
        tag.insert(1, '_');
    }
    let returns = match procedure.results.is_empty() {
        true => String::new(),
        false => format!("\n RETURNS TABLE({})", listed(&procedure.results, "")),
    };
    let read_only = if procedure.read_only { " READ ONLY" } else { "" };
    Some(format!(
        "CREATE OR REPLACE PROCEDURE public.{}({}){returns}\n LANGUAGE {}{read_only}\nAS {tag}{}{tag}\n",
        quoted(&record.name),
        listed(parameters, ""),
        language(procedure),
        procedure.source,
    ))
}
