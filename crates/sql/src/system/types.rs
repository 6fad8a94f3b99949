//! `pg_type` and `pg_proc`: the types that are known here, and the functions that read and write them.

use super::{Filling, attributes, int, text, truth};
use crate::system::relations::{OWNER, PG_CATALOG};
use ::types::data::Value;
use pg::Kind;
use std::sync::OnceLock;

/// A row of `pg_type`, in the words of `data/types.txt`.
pub struct TypeRow {
    /// Its number.
    pub oid: u32,
    /// Its name.
    pub name: &'static str,
    words: Vec<&'static str>,
}

struct FunctionRow {
    oid: u32,
    name: &'static str,
    result: u32,
    arguments: &'static str,
    volatility: &'static str,
}

fn lines(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_ascii_whitespace().collect())
}

/// All types.
pub fn types() -> &'static [TypeRow] {
    static ALL: OnceLock<Vec<TypeRow>> = OnceLock::new();
    ALL.get_or_init(|| {
        let row = |words: Vec<&'static str>| TypeRow {
            oid: words[0].parse().expect("an oid"),
            name: words[1],
            words,
        };
        lines(include_str!("data/types.txt")).map(row).collect()
    })
}

fn functions() -> &'static [FunctionRow] {
    static ALL: OnceLock<Vec<FunctionRow>> = OnceLock::new();
    ALL.get_or_init(|| {
        let row = |words: Vec<&'static str>| FunctionRow {
            oid: words[0].parse().expect("an oid"),
            name: words[1],
            result: words[2].parse().expect("an oid"),
            arguments: if words.len() == 5 { words[3] } else { "" },
            volatility: words[words.len() - 1],
        };
        lines(include_str!("data/functions.txt")).map(row).collect()
    })
}

impl TypeRow {
    /// A word as a number.
    pub fn number(&self, at: usize) -> i64 {
        self.words[at].parse().unwrap_or(0)
    }

    /// Its length in bytes; -1: it varies.
    pub fn length(&self) -> i64 {
        self.number(2)
    }

    /// True if it is passed by value.
    pub fn by_value(&self) -> bool {
        self.words[3] == "t"
    }

    /// Its alignment.
    pub fn alignment(&self) -> &'static str {
        self.words[13]
    }

    /// How it is stored.
    pub fn storage(&self) -> &'static str {
        self.words[14]
    }

    /// Its collation; 0: none.
    pub fn collation(&self) -> i64 {
        self.number(15)
    }
}

/// A type by its number.
pub fn by_oid(oid: u32) -> Option<&'static TypeRow> {
    types().iter().find(|row| row.oid == oid)
}

/// A type's name as SQL writes it, with the bounds in its modifier; -1: none.
pub fn format(oid: u32, modifier: i64) -> Option<String> {
    if let Some(kind) = Kind::from_oid(oid).filter(|kind| *kind != Kind::Unknown) {
        return Some(kind.name().to_string() + &attributes::bounds(kind, modifier));
    }
    let row = by_oid(oid)?;
    match row.name.strip_prefix('_').and_then(|_| u32::try_from(row.number(7)).ok()) {
        Some(element) if element != 0 => Some(format!("{}[]", format(element, -1)?)),
        _ => Some(row.name.into()),
    }
}

/// A type by a name of it.
pub fn find(name: &str) -> Option<u32> {
    let name = name.trim();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(name);
    let plain = match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.to_string(),
        None => name.to_ascii_lowercase(),
    };
    if let Some(element) = plain.strip_suffix("[]") {
        let element = find(element)?;
        return types()
            .iter()
            .find(|row| row.oid == element)
            .and_then(|row| u32::try_from(row.number(8)).ok());
    }
    let alias = match plain.as_str() {
        "int" | "integer" => "int4",
        "bigint" => "int8",
        "smallint" => "int2",
        "boolean" => "bool",
        "real" => "float4",
        "double precision" | "float" => "float8",
        "decimal" | "dec" => "numeric",
        "character varying" => "varchar",
        "timestamp with time zone" => "timestamptz",
        "timestamp without time zone" => "timestamp",
        // Without quotes it is another type, which there is not.
        "char" if !name.starts_with('"') => return None,
        other => other,
    };
    types().iter().find(|row| row.name == alias).map(|row| row.oid)
}

/// A function's name.
pub fn function_name(oid: u32) -> Option<&'static str> {
    functions().iter().find(|row| row.oid == oid).map(|row| row.name)
}

/// A function by its name.
pub fn function(name: &str) -> Option<u32> {
    functions().iter().find(|row| row.name == name).map(|row| row.oid)
}

/// Fills `pg_type`.
pub fn fill_types(filling: &mut Filling) {
    for row in types() {
        let word = |at: usize| text(row.words[at]);
        let of = |at: usize| function(row.words[at]).map_or(Value::Int(0), int);
        filling.row(&[
            ("oid", int(row.oid)),
            ("typname", text(row.name)),
            ("typnamespace", int(PG_CATALOG)),
            ("typowner", int(OWNER)),
            ("typlen", int(row.length())),
            ("typbyval", truth(row.by_value())),
            ("typtype", word(4)),
            ("typcategory", word(5)),
            ("typispreferred", truth(row.words[6] == "t")),
            ("typisdefined", truth(true)),
            ("typdelim", text(",")),
            ("typelem", int(row.number(7))),
            ("typarray", int(row.number(8))),
            ("typinput", of(9)),
            ("typoutput", of(10)),
            ("typreceive", of(11)),
            ("typsend", of(12)),
            ("typalign", text(row.alignment())),
            ("typstorage", text(row.storage())),
            ("typtypmod", int(-1)),
            ("typcollation", int(row.collation())),
        ]);
    }
}

/// Fills `pg_proc`.
pub fn fill_functions(filling: &mut Filling) {
    for row in functions() {
        let arguments: Vec<&str> = row.arguments.split(',').filter(|argument| !argument.is_empty()).collect();
        filling.row(&[
            ("oid", int(row.oid)),
            ("proname", text(row.name)),
            ("pronamespace", int(PG_CATALOG)),
            ("proowner", int(OWNER)),
            ("prolang", int(12)),
            ("procost", Value::Float(1.0)),
            ("prokind", text("f")),
            ("proisstrict", truth(true)),
            ("provolatile", text(row.volatility)),
            ("proparallel", text("s")),
            ("pronargs", int(arguments.len())),
            ("prorettype", int(row.result)),
            ("proargtypes", text(arguments.join(" "))),
            ("prosrc", text(row.name)),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_every_name_and_shown_by_one() {
        for (name, oid, shown) in [
            ("int8", 20, "bigint"),
            ("bigint", 20, "bigint"),
            ("pg_catalog.text", 25, "text"),
            ("text[]", 1009, "text[]"),
            ("_text", 1009, "text[]"),
            ("\"char\"", 18, "\"char\""),
            ("character varying", 1043, "character varying"),
            ("regclass", 2205, "regclass"),
        ] {
            assert_eq!((find(name), format(oid, -1).as_deref()), (Some(oid), Some(shown)), "{name}");
        }
        assert_eq!((find("hstore"), find("char"), format(1, -1)), (None, None, None));
        assert!(types().iter().all(|row| row.words.len() == 17), "every line has every word");
        assert!(types().iter().all(|row| function(row.words[9]).is_some()), "every type can be read");
    }
}
