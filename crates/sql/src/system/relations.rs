//! The relations that there are: the cluster's tables, the indexes of their keys, and system tables; with
//! numbers that stay.
//!
//! A table's number is made from its id in the cluster, so all nodes give the same one, and it never changes:
//! 16384 and four times the id. The index of its key is the next number, the constraint the one after that.
//! Other indexes have numbers of their own, from 2^30 on.

use super::attributes::Attribute;
use super::{SystemTable, all, constraints};
use crate::catalog::Catalog;
use ::types::data::kind::{Kind, Sequence};
use ::types::{EngineKind, IndexRecord, TableId, TableRecord, system};
use std::sync::Arc;

/// The schema `pg_catalog`.
pub const PG_CATALOG: u32 = 11;
/// The schema `public`.
pub const PUBLIC: u32 = 2200;
/// The schema `information_schema`.
pub const INFORMATION_SCHEMA: u32 = 13_000;
/// The schema `understudy`.
pub const UNDERSTUDY: u32 = 12_999;
/// The one role.
pub const OWNER: u32 = 10;
/// The database that is always there.
pub const DATABASE: u32 = 5;
/// Indexes are called so: keys are in order.
pub const BTREE: u32 = 403;
/// The access method of `lsm` tables.
pub const LSM: u32 = 12_900;
/// The access method of `memory` tables.
pub const MEMORY: u32 = 12_901;

/// What a relation is.
#[derive(Clone, Debug)]
pub enum Of {
    /// A table of the cluster.
    Table(Arc<TableRecord>),
    /// The index of its key.
    Key(Arc<TableRecord>),
    /// Another index of it.
    Index(Arc<TableRecord>, IndexRecord),
    /// A sequence or a view.
    Other(Arc<TableRecord>),
    /// A system table.
    System(&'static SystemTable),
}

/// A relation.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Its number.
    pub oid: u32,
    /// Its name.
    pub name: String,
    /// Its schema's number.
    pub schema: u32,
    /// Its schema's name.
    pub schema_name: String,
    /// What it is.
    pub of: Of,
}

/// A table's number.
pub fn table_oid(table: &TableRecord) -> u32 {
    oid_of(table.id)
}

/// The lowest number of what has an id in the cluster.
const FIRST: u32 = 16_384;

/// The number of a table, a sequence or a view with this id.
pub fn oid_of(id: TableId) -> u32 {
    id.0.saturating_mul(4).saturating_add(FIRST)
}

/// The id of the table or the database with this number; none: it has no id in the cluster.
pub fn id_of(oid: u32) -> Option<TableId> {
    oid.checked_sub(FIRST).map(|above| TableId(above / 4))
}

/// A database's number: that of a table with its id, which there is none of.
pub fn database_oid(record: &TableRecord) -> u32 {
    table_oid(record)
}

/// The number of the index of a table's key.
pub fn key_oid(table: &TableRecord) -> u32 {
    table_oid(table).saturating_add(1)
}

/// The number of the constraint of a table's key.
pub fn constraint_oid(table: &TableRecord) -> u32 {
    table_oid(table).saturating_add(2)
}

/// The number of a column's default, among defaults.
pub fn default_oid(table: &TableRecord, column: usize) -> u32 {
    let column = u32::try_from(column).unwrap_or(u32::MAX);
    table.id.0.saturating_mul(4_096).saturating_add(16_384).saturating_add(column)
}

/// The number of another index: made of the table's id and its own number, which in a database no other index
/// has.
pub fn index_oid(table: &TableRecord, index: &IndexRecord) -> u32 {
    if table.database().is_some() {
        return 0x4000_0000 | index.number & 0x3fff_ffff;
    }
    0x4000_0000 | (table.id.0 & 0x3_ffff) << 12 | index.number & 0xfff
}

/// All relations.
pub fn relations(catalog: &Catalog) -> Vec<Relation> {
    let mut found = Vec::new();
    let mut add = |oid: u32, name: &str, (schema, schema_name): (u32, &str), of: Of| {
        let (name, schema_name) = (name.into(), schema_name.into());
        found.push(Relation { oid, name, schema, schema_name, of });
    };
    for table in catalog.all() {
        let (schema, own) = place(catalog, &table.name);
        add(table_oid(table), own, schema, Of::Table(table.clone()));
        if !table.schema.has_hidden_key() {
            add(key_oid(table), &format!("{own}_pkey"), schema, Of::Key(table.clone()));
        }
        for index in constraints::indexes(table) {
            let (oid, name) = (index_oid(table, &index), index.name.clone());
            add(oid, &name, schema, Of::Index(table.clone(), index));
        }
    }
    for other in catalog.others().filter(|other| other.schema.procedure().is_none()) {
        let (schema, own) = place(catalog, &other.name);
        add(table_oid(other), own, schema, Of::Other(other.clone()));
    }
    for table in all() {
        let schema = match table.schema {
            "pg_catalog" => PG_CATALOG,
            "information_schema" => INFORMATION_SCHEMA,
            _ => UNDERSTUDY,
        };
        add(table.oid, table.name, (schema, table.schema), Of::System(table));
    }
    found
}

/// The schema of a relation, by number and name, and the relation's name there.
pub fn place<'a>(catalog: &'a Catalog, name: &'a str) -> ((u32, &'a str), &'a str) {
    if system::is_reserved(name) {
        return ((UNDERSTUDY, "understudy"), name);
    }
    let (schema, own) = catalog.placed(name);
    let found = schema.and_then(|schema| Some((table_oid(catalog.schema(schema)?), schema)));
    (found.unwrap_or((PUBLIC, "public")), own)
}

/// All schemas, with their numbers: those that are always there first.
pub fn schemas(catalog: &Catalog) -> Vec<(u32, String)> {
    let always = [PG_CATALOG, PUBLIC, INFORMATION_SCHEMA, UNDERSTUDY];
    let always = always.iter().filter_map(|oid| Some((*oid, fixed_schema(*oid)?.to_string())));
    always.chain(catalog.schemas().map(|(name, schema)| (table_oid(schema), name.into()))).collect()
}

/// A schema's name.
pub fn schema_name(catalog: &Catalog, oid: u32) -> Option<String> {
    schemas(catalog).into_iter().find(|(known, _)| *known == oid).map(|(_, name)| name)
}

fn fixed_schema(oid: u32) -> Option<&'static str> {
    Some(match oid {
        PG_CATALOG => "pg_catalog",
        PUBLIC => "public",
        INFORMATION_SCHEMA => "information_schema",
        UNDERSTUDY => "understudy",
        _ => return None,
    })
}

/// A schema's number.
pub fn schema_oid(catalog: &Catalog, name: &str) -> Option<u32> {
    schemas(catalog).into_iter().find(|(_, known)| known == name).map(|(oid, _)| oid)
}

impl Relation {
    /// `r`, `v` or `i`, as `pg_class` has it.
    pub fn kind(&self) -> &'static str {
        match &self.of {
            Of::Table(_) => "r",
            Of::Key(_) | Of::Index(..) => "i",
            Of::Other(other) => match other.schema.kind() {
                Some(Kind::View(_)) => "v",
                _ => "S",
            },
            Of::System(table) => table.kind,
        }
    }

    /// The table that it is, or whose key's index it is.
    pub fn table(&self) -> Option<&Arc<TableRecord>> {
        match &self.of {
            Of::Table(table) | Of::Key(table) | Of::Index(table, _) => Some(table),
            Of::System(_) | Of::Other(_) => None,
        }
    }

    /// The sequence that it is.
    pub fn sequence(&self) -> Option<(TableId, Sequence)> {
        match &self.of {
            Of::Other(other) => match other.schema.kind() {
                Some(Kind::Sequence(sequence)) => Some((other.id, *sequence)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Its access method; 0: none.
    pub fn access(&self) -> u32 {
        match &self.of {
            Of::Table(table) if table.engine == EngineKind::Memory => MEMORY,
            Of::Table(_) => LSM,
            Of::Key(_) | Of::Index(..) => BTREE,
            Of::System(_) | Of::Other(_) => 0,
        }
    }

    /// Its columns.
    pub fn attributes(&self) -> Vec<Attribute> {
        let of = |table: &TableRecord, at: usize| {
            let column = &table.schema.columns()[at];
            let not_null = !column.nullable || table.schema.key().contains(&at);
            Attribute::of(column, not_null)
        };
        let all: Vec<Attribute> = match &self.of {
            Of::Table(table) | Of::Other(table) => {
                return table.schema.visible().map(|at| of(table, at).at(at + 1)).collect();
            }
            Of::Key(table) => table.schema.key().iter().map(|at| of(table, *at)).collect(),
            Of::Index(table, index) => index.columns.iter().map(|at| of(table, *at)).collect(),
            Of::System(table) => {
                table.columns.iter().map(|(name, ty)| Attribute::of_system(name, *ty)).collect()
            }
        };
        all.into_iter().enumerate().map(|(at, attribute)| attribute.at(at + 1)).collect()
    }
}
