//! System tables: what the cluster and PostgreSQL's catalogs say, as tables that statements read like any
//! other.
//!
//! | what | where |
//! | --- | --- |
//! | what a statement knows of the cluster, its session and the catalog | [`facts`] |
//! | the cluster's own views, and `pg_stat_replication` | [`cluster`]; `transactions` |
//! | what relations there are, their numbers, names and columns; what belongs to what | [`relations`], [`names`], [`attributes`]; `dependencies` |
//! | PostgreSQL's catalogs and types; `information_schema`; procedures in both | [`catalogs`], [`types`], [`standard`], `routines` |
//! | functions that look at all that | [`functions`] |
//! | the sessions of this node | [`sessions`] |
//!
//! Their columns are listed in files (`data/columns.txt`, `data/cluster.txt`). Rows are made when a statement
//! names the table, once for the statement. What a node or a controller does not say within
//! [`facts::STATUS_TIMEOUT`] is null.

pub mod attributes;
pub mod catalogs;
pub mod cluster;
pub mod constraints;
mod counting;
mod dependencies;
pub mod facts;
pub mod functions;
pub mod names;
pub mod relations;
mod routines;
pub mod sessions;
pub mod standard;
mod transactions;
pub mod types;

use crate::engine::encode::encode;
use crate::ty::Ty;
use ::types::data::Value;
use facts::Facts;
use pg::{Failure, code};
use rusqlite::types::Value as Kept;
use std::sync::OnceLock;

/// Sources of a statement from this number on are system tables.
pub const FIRST: usize = 1 << 16;

/// One of them.
#[derive(Debug)]
pub struct SystemTable {
    /// `pg_catalog`, `information_schema` or `understudy`.
    pub schema: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its number among the catalogs.
    pub oid: u32,
    /// `r` or `v`, as `pg_class` has it.
    pub kind: &'static str,
    /// Its columns.
    pub columns: Vec<(&'static str, Ty)>,
}

/// All of them.
pub fn all() -> &'static [SystemTable] {
    static ALL: OnceLock<Vec<SystemTable>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut tables = Vec::new();
        read(include_str!("data/columns.txt"), &mut tables);
        read(include_str!("data/cluster.txt"), &mut tables);
        tables
    })
}

fn read(text: &'static str, tables: &mut Vec<SystemTable>) {
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_ascii_whitespace();
        if line.starts_with(' ') {
            let table = tables.last_mut().expect("columns come after their table");
            table.columns.extend(words.map(|word| {
                let (name, of) = word.split_once(':').expect("name:type");
                (name, named_type(of).unwrap_or_else(|| panic!("{name} has the unknown type {of}")))
            }));
            continue;
        }
        let (schema, name) = words.next().and_then(|name| name.split_once('.')).expect("schema.name");
        let oid = words.next().and_then(|oid| oid.parse().ok()).expect("an oid");
        tables.push(SystemTable {
            schema,
            name,
            oid,
            kind: words.next().expect("a kind"),
            columns: Vec::new(),
        });
    }
}

/// A type by the name that PostgreSQL's catalog has for it.
pub fn named_type(name: &str) -> Option<Ty> {
    if let Some(element) = name.strip_prefix('_') {
        return match element {
            "aclitem" => Some(Ty::AclArray),
            element => named_type(element)?.array(),
        };
    }
    Some(match name {
        "bool" => Ty::Bool,
        "char" => Ty::Char,
        "int2" => Ty::Int2,
        "int4" => Ty::Int4,
        "int8" => Ty::Int8,
        "float4" => Ty::Float4,
        "float8" => Ty::Float8,
        "varchar" => Ty::Text,
        "timestamptz" => Ty::Timestamptz,
        "timestamp" => Ty::Timestamp,
        "bpchar" => Ty::Bpchar,
        name => {
            Ty::ALL.into_iter().find(|ty| ty.element().is_none() && ty.name() == name).or(match name {
                "int2vector" => Some(Ty::Int2Vector),
                "oidvector" => Some(Ty::OidVector),
                _ => None,
            })?
        }
    })
}

/// A system table by its name. Without a schema only PostgreSQL's own are found, as there they always are.
pub fn find(parts: &[String]) -> Option<usize> {
    let (schema, name) = match parts {
        [name] => ("pg_catalog", name),
        [schema, name] => (schema.as_str(), name),
        _ => return None,
    };
    all().iter().position(|table| table.schema == schema && table.name == name)
}

/// True for the schemas that hold nothing but system tables.
pub fn is_schema(name: &str) -> bool {
    ["pg_catalog", "information_schema", "understudy"].contains(&name)
}

/// The rows of a table that is being filled.
pub struct Filling {
    table: &'static SystemTable,
    rows: Vec<Vec<Kept>>,
}

impl Filling {
    fn new(table: &'static SystemTable) -> Filling {
        Filling { table, rows: Vec::new() }
    }

    /// A row with these columns. The others have what says nothing: zero, false or no text in PostgreSQL's
    /// tables, null in views.
    pub fn row(&mut self, cells: &[(&str, Value)]) {
        let mut row: Vec<Kept> = self.table.columns.iter().map(|(_, ty)| self.nothing(*ty)).collect();
        for (name, value) in cells {
            let at = self.table.columns.iter().position(|(column, _)| column == name);
            let at = at.unwrap_or_else(|| panic!("{} has no column {name}", self.table.name));
            row[at] = encode(value);
        }
        self.rows.push(row);
    }

    fn nothing(&self, ty: Ty) -> Kept {
        if self.table.kind != "r" {
            return Kept::Null;
        }
        match ty {
            Ty::Bool | Ty::Int2 | Ty::Int4 | Ty::Int8 | Ty::Oid | Ty::Xid | Ty::Regproc => Kept::Integer(0),
            Ty::Float4 => encode(&Value::Float(0.0)),
            Ty::Name | Ty::Char | Ty::Int2Vector | Ty::OidVector => Kept::Text(String::new()),
            _ => Kept::Null,
        }
    }
}

/// A number.
pub(crate) fn int(number: impl TryInto<i64>) -> Value {
    number.try_into().map_or(Value::Null, Value::Int)
}

/// A text.
pub(crate) fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

/// A truth.
pub(crate) fn truth(truth: bool) -> Value {
    Value::Bool(truth)
}

/// An array of this type, of elements that have a text.
pub(crate) fn array<T: ToString>(ty: Ty, elements: impl IntoIterator<Item = T>) -> Value {
    let elements: Vec<_> = elements.into_iter().map(|element| Some(element.to_string())).collect();
    Value::Text(pg::arrays::render(ty.kind(), &elements))
}

/// The rows of a system table, as the engine keeps them.
pub fn rows(at: usize, facts: &Facts) -> Result<Vec<Vec<Kept>>, Failure> {
    let table = all().get(at).ok_or_else(|| Failure::new(code::INTERNAL, "no such system table"))?;
    let mut filling = Filling::new(table);
    match (table.schema, table.name) {
        ("understudy", name) => cluster::fill(name, facts, &mut filling)?,
        ("pg_catalog", "pg_stat_replication") => cluster::replication(facts, &mut filling)?,
        ("information_schema", name) => standard::fill(name, facts, &mut filling),
        (_, name) => catalogs::fill(name, facts, &mut filling),
    }
    Ok(filling.rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_tables_have_columns_with_types_and_one_number_each() {
        let class = &all()[find(&["pg_class".into()]).expect("there is one")];
        assert_eq!((class.oid, class.columns.len(), class.columns[1]), (1259, 33, ("relname", Ty::Name)));
        for table in all() {
            assert_eq!(all().iter().filter(|other| other.oid == table.oid).count(), 1, "{}", table.name);
            assert!(!table.columns.is_empty() && table.columns.len() <= 64, "{}", table.name);
        }
        assert_eq!(find(&["nodes".into()]), None);
        assert!(find(&["understudy".into(), "nodes".into()]).is_some());
    }
}
