//! Objects by their names and names by their numbers: what `regclass` and its like show and read.

use super::facts::Facts;
use super::relations::{Relation, schema_name, schema_oid, table_oid};
use super::types;
use crate::catalog::Catalog;
use crate::ty::Ty;
use ::types::TableRecord;
use pg::{Failure, code};

/// The name that is shown for a number; without one it is the number itself, and `-` for 0.
pub fn shown(facts: &Facts, ty: Ty, oid: i64) -> String {
    if oid == 0 {
        return "-".into();
    }
    let known = u32::try_from(oid).ok().and_then(|oid| match ty {
        Ty::Regclass => relation(facts, oid).map(|relation| match is_visible(facts, &relation) {
            true => quoted(&relation.name),
            false => {
                format!("{}.{}", quoted(&relation.schema_name), quoted(&relation.name))
            }
        }),
        Ty::Regtype => types::format(oid, -1),
        Ty::Regnamespace => schema_name(&facts.catalog, oid).map(|name| quoted(&name)),
        Ty::Regproc => types::function_name(oid)
            .map(Into::into)
            .or_else(|| procedure(facts, |other| table_oid(other) == oid).map(|other| quoted(&other.name))),
        _ => None,
    });
    known.unwrap_or_else(|| oid.to_string())
}

/// The procedure of which this is true.
fn procedure(facts: &Facts, which: impl Fn(&TableRecord) -> bool) -> Option<&TableRecord> {
    let mut others = facts.catalog.others().filter(|other| other.schema.procedure().is_some());
    others.find(|other| which(other)).map(|other| &**other)
}

/// A relation by its number.
pub fn relation(facts: &Facts, oid: u32) -> Option<Relation> {
    facts.relations().get(&oid).cloned()
}

/// Where in the session's path a relation's schema stands: PostgreSQL's own comes first. `None`: nowhere.
fn place_of(facts: &Facts, relation: &Relation) -> Option<usize> {
    if relation.schema_name == "pg_catalog" {
        return Some(0);
    }
    let path = facts.asker.settings.search_path();
    path.schemas().position(|schema| schema == relation.schema_name).map(|at| at + 1)
}

/// True if its name finds it without its schema.
pub fn is_visible(facts: &Facts, relation: &Relation) -> bool {
    let Some(place) = place_of(facts, relation) else { return false };
    let path = facts.asker.settings.search_path();
    let mut before = path.schemas().take(place.saturating_sub(1));
    !before.any(|schema| facts.catalog.named_in(schema, &relation.name).is_some())
}

/// A name in quotes if it needs them.
pub fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let reserved = include_str!("data/keywords.txt").split_ascii_whitespace().any(|word| word == name);
    match plain && !reserved {
        true => name.into(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// A relation's name as a statement names it: with its schema, unless that is `public`.
pub fn written(catalog: &Catalog, name: &str) -> String {
    match catalog.placed(name) {
        (Some(schema), own) => format!("{}.{}", quoted(schema), quoted(own)),
        (None, own) => quoted(own),
    }
}

/// The parts of a name as it is written: folded, unless they are quoted.
fn parts(text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut chars = text.trim().chars().peekable();
    loop {
        let mut part = String::new();
        if chars.next_if_eq(&'"').is_some() {
            loop {
                match chars.next()? {
                    '"' if chars.next_if_eq(&'"').is_some() => part.push('"'),
                    '"' => break,
                    c => part.push(c),
                }
            }
        } else {
            while let Some(c) = chars.next_if(|c| *c != '.') {
                part.extend(c.to_lowercase());
            }
        }
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        match chars.next() {
            None => return Some(parts),
            Some('.') => {}
            Some(_) => return None,
        }
    }
}

/// The number that a text names; `None`: there is no such object.
pub fn find(facts: &Facts, ty: Ty, text: &str) -> Result<Option<i64>, Failure> {
    let text = text.trim();
    if text == "-" {
        return Ok(Some(0));
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text.parse::<u32>().ok().map(i64::from));
    }
    let parts = parts(text).ok_or_else(|| Failure::new("42602", "invalid name syntax"))?;
    let (schema, name) = match parts.as_slice() {
        [name] => (None, name),
        [schema, name] => (Some(schema.as_str()), name),
        _ => return Err(Failure::new("42601", format!("improper relation name: {text}"))),
    };
    Ok(match ty {
        Ty::Regclass => {
            let named = facts.relations().values().filter(|relation| relation.name == *name);
            let placed = named.filter_map(|relation| match schema {
                None => Some((place_of(facts, relation)?, relation)),
                Some(schema) => (relation.schema_name == schema).then_some((0, relation)),
            });
            placed.min_by_key(|(place, _)| *place).map(|(_, relation)| relation.oid.into())
        }
        Ty::Regtype => types::find(text).map(i64::from),
        Ty::Regnamespace => schema_oid(&facts.catalog, name).map(i64::from),
        Ty::Regproc => types::function(name)
            .or_else(|| procedure(facts, |other| other.name == *name).map(table_oid))
            .map(i64::from),
        _ => None,
    })
}

/// The number that a text names, or the error that there is none.
pub fn must_find(facts: &Facts, ty: Ty, text: &str) -> Result<i64, Failure> {
    let missing = |schema: &String| schema_oid(&facts.catalog, schema).is_none();
    find(facts, ty, text)?.ok_or_else(|| match ty {
        Ty::Regclass if parts(text).is_some_and(|parts| parts.len() == 2 && missing(&parts[0])) => {
            crate::bind::no_schema(parts(text).iter().flatten().next().map_or("", String::as_str))
        }
        Ty::Regclass => Failure::new("42P01", format!("relation \"{text}\" does not exist")),
        Ty::Regtype => Failure::new("42704", format!("type \"{text}\" does not exist")),
        Ty::Regnamespace => Failure::new("3F000", format!("schema \"{text}\" does not exist")),
        Ty::Regproc => Failure::new("42883", format!("function \"{text}\" does not exist")),
        _ => Failure::new(code::INTERNAL, format!("{} has no names", ty.name())),
    })
}
