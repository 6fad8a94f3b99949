//! Functions that look at the catalog, the session or the cluster, not only at their arguments.

use super::attributes;
use super::facts::Facts;
use super::names::{find, is_visible, must_find, quoted, relation, shown};
use super::relations::{OWNER, Of, Relation, constraint_oid, schema_name, schema_oid};
use super::{routines, types};
use crate::ty::Ty::{self, *};
use ::types::data::{Decimal, Value};
use ::types::{TableRecord, system};
use pg::{Failure, code};
use std::sync::OnceLock;

/// What computes one.
pub type Eval = fn(&Facts, &[Value]) -> Result<Value, Failure>;

/// A function for one list of types.
pub struct Asking {
    /// Its name.
    pub name: &'static str,
    /// The types of its arguments.
    pub arguments: &'static [Ty],
    /// The type of what it gives.
    pub result: Ty,
    /// With a null among its arguments it gives null without being called.
    pub strict: bool,
    /// How.
    pub eval: Eval,
}

/// All of them.
pub fn all() -> &'static [Asking] {
    static ALL: OnceLock<Vec<Asking>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = Vec::new();
        named(&mut all);
        described(&mut all);
        session(&mut all);
        rights(&mut all);
        super::counting::sequences(&mut all);
        all
    })
}

/// The one of this name that takes such arguments, by its number; the error tells whether the name is known.
pub fn position(name: &str, given: &[Option<Ty>]) -> Result<usize, bool> {
    let known = || all().iter().enumerate().filter(|(_, function)| function.name == name);
    let candidates = known().map(|(id, function)| (id, function.arguments));
    crate::eval::best(candidates, given).ok_or_else(|| known().next().is_some())
}

pub(super) fn oid(value: &Value) -> u32 {
    match value {
        Value::Int(number) => u32::try_from(*number).unwrap_or(0),
        _ => 0,
    }
}

pub(super) fn words(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        _ => "",
    }
}

fn text(text: impl Into<String>) -> Result<Value, Failure> {
    Ok(Value::Text(text.into()))
}

pub(super) fn maybe(text: Option<String>) -> Result<Value, Failure> {
    Ok(text.map_or(Value::Null, Value::Text))
}

pub(super) fn add(
    all: &mut Vec<Asking>,
    name: &'static str,
    arguments: &'static [Ty],
    result: Ty,
    eval: Eval,
) {
    all.push(Asking { name, arguments, result, strict: true, eval });
}

/// Names and numbers.
fn named(all: &mut Vec<Asking>) {
    add(all, "regclassin", &[Text], Regclass, |facts, a| {
        must_find(facts, Regclass, words(&a[0])).map(Value::Int)
    });
    add(all, "regtypein", &[Text], Regtype, |facts, a| {
        must_find(facts, Regtype, words(&a[0])).map(Value::Int)
    });
    add(all, "regprocin", &[Text], Regproc, |facts, a| {
        must_find(facts, Regproc, words(&a[0])).map(Value::Int)
    });
    add(all, "regnamespacein", &[Text], Regnamespace, |facts, a| {
        must_find(facts, Regnamespace, words(&a[0])).map(Value::Int)
    });
    add(all, "regclassout", &[Oid], Text, |facts, a| text(shown(facts, Regclass, oid(&a[0]).into())));
    add(all, "regtypeout", &[Oid], Text, |facts, a| text(shown(facts, Regtype, oid(&a[0]).into())));
    add(all, "regprocout", &[Oid], Text, |facts, a| text(shown(facts, Regproc, oid(&a[0]).into())));
    add(all, "regnamespaceout", &[Oid], Text, |facts, a| text(shown(facts, Regnamespace, oid(&a[0]).into())));
    add(all, "to_regclass", &[Text], Regclass, |facts, a| searched(facts, Regclass, &a[0]));
    add(all, "to_regtype", &[Text], Regtype, |facts, a| searched(facts, Regtype, &a[0]));
    add(all, "to_regproc", &[Text], Regproc, |facts, a| searched(facts, Regproc, &a[0]));
    add(all, "to_regnamespace", &[Text], Regnamespace, |facts, a| searched(facts, Regnamespace, &a[0]));
    add(all, "pg_get_userbyid", &[Oid], Name, |_, a| match oid(&a[0]) {
        OWNER => text(crate::USER),
        other => text(format!("unknown (OID={other})")),
    });
    add(all, "pg_table_is_visible", &[Oid], Bool, |facts, a| {
        let shown = |relation| Value::Bool(is_visible(facts, &relation));
        Ok(relation(facts, oid(&a[0])).map_or(Value::Null, shown))
    });
    add(all, "pg_type_is_visible", &[Oid], Bool, |_, a| {
        Ok(types::by_oid(oid(&a[0])).map_or(Value::Null, |_| Value::Bool(true)))
    });
    for name in [
        "pg_function_is_visible",
        "pg_collation_is_visible",
        "pg_opclass_is_visible",
        "pg_operator_is_visible",
    ] {
        // All that there are, are in pg_catalog.
        add(all, name, &[Oid], Bool, |_, _| Ok(Value::Bool(true)));
    }
    all.push(Asking {
        name: "format_type",
        arguments: &[Oid, Int4],
        result: Text,
        strict: false,
        eval: |_, a| match (&a[0], oid(&a[0]), &a[1]) {
            (Value::Null, ..) => Ok(Value::Null),
            (_, 0, _) => text("-"),
            (_, oid, Value::Int(modifier)) => {
                text(types::format(oid, *modifier).unwrap_or_else(|| "???".into()))
            }
            (_, oid, _) => text(types::format(oid, -1).unwrap_or_else(|| "???".into())),
        },
    });
    add(all, "quote_ident", &[Text], Text, |_, a| text(quoted(words(&a[0]))));
    add(all, "quote_literal", &[Text], Text, |_, a| text(attributes::literal(words(&a[0]))));
}

fn searched(facts: &Facts, ty: Ty, name: &Value) -> Result<Value, Failure> {
    Ok(find(facts, ty, words(name))?.map_or(Value::Null, Value::Int))
}

/// Definitions and descriptions.
fn described(all: &mut Vec<Asking>) {
    for arguments in [&[NodeTree, Oid][..], &[NodeTree, Oid, Bool], &[Text, Oid], &[Text, Oid, Bool]] {
        add(all, "pg_get_expr", arguments, Text, |_, a| Ok(a[0].clone()));
    }
    for arguments in [&[Oid][..], &[Oid, Bool]] {
        add(all, "pg_get_constraintdef", arguments, Text, |facts, a| maybe(constraint(facts, oid(&a[0]))));
        // There are no objects of which these would tell.
        add(all, "pg_get_viewdef", arguments, Text, |facts, a| {
            let shown = relation(facts, oid(&a[0])).and_then(|relation| match relation.of {
                Of::Other(other) => crate::views::text(&other).map(|text| format!(" {text};")),
                _ => None,
            });
            maybe(shown)
        });
        for name in ["pg_get_ruledef", "pg_get_triggerdef", "pg_get_partkeydef"] {
            add(all, name, arguments, Text, |_, _| Ok(Value::Null));
        }
    }
    add(all, "pg_get_indexdef", &[Oid], Text, |facts, a| maybe(index(facts, oid(&a[0]), 0)));
    add(all, "pg_get_indexdef", &[Oid, Int4, Bool], Text, |facts, a| match a[1] {
        Value::Int(column) => maybe(index(facts, oid(&a[0]), column)),
        _ => Ok(Value::Null),
    });
    for name in ["pg_get_function_arguments", "pg_get_function_identity_arguments"] {
        add(all, name, &[Oid], Text, |facts, a| maybe(routines::arguments(facts, oid(&a[0]))));
    }
    add(all, "pg_get_function_result", &[Oid], Text, |facts, a| maybe(routines::result(facts, oid(&a[0]))));
    add(all, "pg_get_functiondef", &[Oid], Text, |facts, a| maybe(routines::definition(facts, oid(&a[0]))));
    for name in ["pg_get_statisticsobjdef_columns", "obj_description"] {
        add(all, name, &[Oid], Text, |_, _| Ok(Value::Null));
    }
    for name in ["obj_description", "shobj_description"] {
        add(all, name, &[Oid, Name], Text, |_, _| Ok(Value::Null));
        add(all, name, &[Oid, Text], Text, |_, _| Ok(Value::Null));
    }
    add(all, "col_description", &[Oid, Int4], Text, |_, _| Ok(Value::Null));
    add(all, "pg_relation_is_publishable", &[Oid], Bool, |_, _| Ok(Value::Bool(false)));
    add(all, "pg_tablespace_location", &[Oid], Text, |_, _| text(""));
    // A table's size lies spread over the nodes; nobody has added it up.
    for name in
        ["pg_table_size", "pg_total_relation_size", "pg_relation_size", "pg_indexes_size", "pg_database_size"]
    {
        add(all, name, &[Oid], Int8, |_, _| Ok(Value::Null));
    }
    add(all, "pg_database_size", &[Text], Int8, |_, _| Ok(Value::Null));
    add(all, "pg_size_pretty", &[Int8], Text, |_, a| text(pretty(&a[0])));
    add(all, "pg_encoding_to_char", &[Int4], Name, |_, a| {
        text(if a[0] == Value::Int(6) { "UTF8" } else { "" })
    });
    add(all, "pg_wal_lsn_diff", &[PgLsn, PgLsn], Numeric, |_, a| {
        let (one, two) = (position_of(&a[0])?, position_of(&a[1])?);
        Ok(Value::Decimal(Decimal::from(one.saturating_sub(two))))
    });
}

fn pretty(bytes: &Value) -> String {
    let Value::Int(bytes) = bytes else { return String::new() };
    let (mut size, mut unit) = (*bytes, 0);
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    while size.unsigned_abs() >= 10_240 && unit + 1 < UNITS.len() {
        size = (size + 512 * size.signum()) / 1024;
        unit += 1;
    }
    format!("{size} {}", UNITS[unit])
}

fn position_of(lsn: &Value) -> Result<i64, Failure> {
    let wrong =
        || Failure::new(code::BAD_TEXT, format!("invalid input syntax for type pg_lsn: \"{}\"", words(lsn)));
    let (high, low) = words(lsn).split_once('/').ok_or_else(wrong)?;
    let half = |digits| i64::from_str_radix(digits, 16).ok().filter(|half| (0..1 << 32).contains(half));
    let (high, low) = (half(high).ok_or_else(wrong)?, half(low).ok_or_else(wrong)?);
    high.checked_mul(1 << 32).map(|high| high + low).ok_or_else(wrong)
}

fn key_columns(table: &TableRecord) -> String {
    let names: Vec<String> = table.schema.key_columns().map(|column| quoted(&column.name)).collect();
    names.join(", ")
}

fn constraint(facts: &Facts, oid: u32) -> Option<String> {
    match facts.catalog.all().find(|table| constraint_oid(table) == oid) {
        Some(table) => Some(format!("PRIMARY KEY ({})", key_columns(table))),
        None => super::constraints::definition(&facts.catalog, oid),
    }
}

/// The statement that would make an index.
pub fn index_definition(relation: &Relation, table: &TableRecord) -> String {
    let schema = quoted(&relation.schema_name);
    // Without its schema, which the index is in as well.
    let own = table.name.strip_prefix(&format!("{}.", relation.schema_name)).unwrap_or(&table.name);
    let (index, name) = (quoted(&relation.name), quoted(own));
    let names: Vec<String> = relation.attributes().iter().map(|column| quoted(&column.name)).collect();
    let unique = match &relation.of {
        Of::Key(_) => true,
        Of::Index(table, index) => super::constraints::is_unique(table, index),
        Of::Table(_) | Of::Other(_) | Of::System(_) => false,
    };
    let kind = if unique { "UNIQUE INDEX" } else { "INDEX" };
    format!("CREATE {kind} {index} ON {schema}.{name} USING btree ({})", names.join(", "))
}

/// An index's definition, or one column of it.
fn index(facts: &Facts, oid: u32, column: i64) -> Option<String> {
    let relation = relation(facts, oid)?;
    let (Of::Key(table) | Of::Index(table, _)) = &relation.of else { return None };
    if column == 0 {
        return Some(index_definition(&relation, table));
    }
    let columns = relation.attributes();
    let column = usize::try_from(column - 1).ok().and_then(|at| columns.get(at));
    Some(column.map_or_else(String::new, |column| quoted(&column.name)))
}

/// The session and the server.
fn session(all: &mut Vec<Asking>) {
    add(all, "pg_backend_pid", &[], Int4, |facts, _| Ok(Value::Int(facts.asker.pid.into())));
    add(all, "pg_is_in_recovery", &[], Bool, |_, _| Ok(Value::Bool(false)));
    add(all, "pg_my_temp_schema", &[], Oid, |_, _| Ok(Value::Int(0)));
    add(all, "pg_is_other_temp_schema", &[Oid], Bool, |_, _| Ok(Value::Bool(false)));
    add(all, "current_schemas", &[Bool], NameArray, |facts, a| {
        let path = facts.asker.settings.search_path();
        let own = (a[0] == Value::Bool(true)).then_some("pg_catalog").into_iter();
        let there = path.schemas().filter(|schema| facts.catalog.has_schema(schema));
        Ok(super::array(NameArray, own.chain(there)))
    });
    // What pg_dump writes names every schema, so the path says nothing there.
    add(all, "set_config", &[Text, Text, Bool], Text, |_, a| match (words(&a[0]), words(&a[1])) {
        ("search_path", "" | "public") => Ok(a[1].clone()),
        (name, _) => Err(Failure::unsupported(format!("set_config of \"{name}\""), "use SET")),
    });
    add(all, "current_setting", &[Text], Text, |facts, a| {
        facts.asker.settings.get(words(&a[0])).map(Value::Text)
    });
    add(all, "current_setting", &[Text, Bool], Text, |facts, a| {
        match (facts.asker.settings.get(words(&a[0])), &a[1]) {
            (Err(_), Value::Bool(true)) => Ok(Value::Null),
            (found, _) => found.map(Value::Text),
        }
    });
}

/// What everybody may do with an object of this kind of which nobody has said anything, as PostgreSQL's
/// documentation has it (table 5.2).
fn default_rights(kind: &str) -> Option<Vec<String>> {
    let (all, owner) = match kind {
        "r" => ("", "arwdDxt"),
        "s" => ("", "rwU"),
        "n" => ("", "UC"),
        "d" => ("Tc", "CTc"),
        "f" => ("X", "X"),
        "T" | "l" => ("U", "U"),
        "L" => ("", "rw"),
        "t" => ("", "C"),
        "F" | "S" => ("", "U"),
        "p" => ("", "sA"),
        "c" => return Some(Vec::new()),
        _ => return None,
    };
    let user = crate::USER;
    let mut rights = Vec::new();
    if !all.is_empty() {
        rights.push(format!("={all}/{user}"));
    }
    rights.push(format!("{user}={owner}/{user}"));
    Some(rights)
}

/// What the one user may do: everything with tables, but not write those of the cluster.
fn rights(all: &mut Vec<Asking>) {
    add(all, "acldefault", &[Char, Oid], AclArray, |_, a| match default_rights(words(&a[0])) {
        Some(rights) => Ok(super::array(AclArray, rights)),
        None => {
            let message = format!("unrecognized objtype abbreviation: {}", words(&a[0]));
            Err(Failure::new("XX000", message))
        }
    });
    for (name, arguments) in [
        ("has_table_privilege", &[Oid, Text][..]),
        ("has_any_column_privilege", &[Oid, Text]),
        ("has_column_privilege", &[Oid, Int4, Text]),
        ("has_column_privilege", &[Oid, Text, Text]),
    ] {
        add(all, name, arguments, Bool, |facts, a| Ok(allowed(relation(facts, oid(&a[0])), &a[a.len() - 1])));
    }
    for (name, arguments) in [
        ("has_table_privilege", &[Text, Text][..]),
        ("has_any_column_privilege", &[Text, Text]),
        ("has_column_privilege", &[Text, Text, Text]),
    ] {
        add(all, name, arguments, Bool, |facts, a| {
            let oid = must_find(facts, Regclass, words(&a[0]))?;
            Ok(allowed(relation(facts, oid as u32), &a[a.len() - 1]))
        });
    }
    add(all, "has_table_privilege", &[Text, Oid, Text], Bool, |facts, a| {
        Ok(allowed(relation(facts, oid(&a[1])), &a[2]))
    });
    add(all, "has_schema_privilege", &[Text, Text], Bool, |facts, a| {
        match schema_oid(&facts.catalog, words(&a[0])) {
            Some(_) => Ok(Value::Bool(true)),
            None => Err(crate::bind::no_schema(words(&a[0]))),
        }
    });
    add(all, "has_schema_privilege", &[Oid, Text], Bool, |facts, a| {
        Ok(schema_name(&facts.catalog, oid(&a[0])).map_or(Value::Null, |_| Value::Bool(true)))
    });
    for arguments in [&[Text, Text][..], &[Oid, Text]] {
        for name in
            ["has_database_privilege", "has_tablespace_privilege", "pg_has_role", "has_type_privilege"]
        {
            add(all, name, arguments, Bool, |_, _| Ok(Value::Bool(true)));
        }
    }
}

fn allowed(relation: Option<Relation>, privilege: &Value) -> Value {
    let Some(relation) = relation else { return Value::Null };
    let own = relation.table().is_some_and(|table| !system::is_reserved(&table.name));
    let reads = words(privilege).split(',').any(|one| one.trim().eq_ignore_ascii_case("select"));
    Value::Bool(own || reads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_with_lists_of_types_that_differ() {
        for (at, one) in all().iter().enumerate() {
            let same = |two: &&Asking| two.name == one.name && two.arguments == one.arguments;
            assert!(!all()[at + 1..].iter().any(|two| same(&two)), "{} {:?}", one.name, one.arguments);
        }
        assert_eq!(position("nonsense", &[]), Err(false));
        assert_eq!(position("format_type", &[Some(Bool)]), Err(true));
        assert_eq!(pretty(&Value::Int(1 << 30)), "1024 MB");
    }
}
