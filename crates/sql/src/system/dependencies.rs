//! What belongs to what: `pg_depend`, `pg_extension` and `pg_rewrite`.
//!
//! Tools that write a database out go by these: a sequence goes with its column, a view comes behind what it
//! shows, and what belongs to an extension is no part of the database. The views of the cluster are such an
//! extension's, which is called as they are.

use super::facts::Facts;
use super::relations::{OWNER, Of, PG_CATALOG, PUBLIC, UNDERSTUDY, default_oid, oid_of, table_oid};
use super::{Filling, int, text, truth};
use crate::views;
use ::types::data::Value;
use ::types::{TableId, TableRecord};

const PG_CLASS: i64 = 1259;
const PG_ATTRDEF: i64 = 2604;
const PG_NAMESPACE: i64 = 2615;
const PG_REWRITE: i64 = 2618;
const PG_EXTENSION: i64 = 3079;
/// The extension whose members the cluster's own views are.
const EXTENSION: u32 = 12_901;

/// One object of `pg_depend`: its catalog, its number, and the column or 0.
type Object = (i64, u32, usize);

fn depends(filling: &mut Filling, one: Object, on: Object, kind: &str) {
    filling.row(&[
        ("classid", Value::Int(one.0)),
        ("objid", int(one.1)),
        ("objsubid", int(one.2)),
        ("refclassid", Value::Int(on.0)),
        ("refobjid", int(on.1)),
        ("refobjsubid", int(on.2)),
        ("deptype", text(kind)),
    ]);
}

/// Fills `pg_extension`.
pub fn fill_extensions(filling: &mut Filling) {
    filling.row(&[
        ("oid", int(EXTENSION)),
        ("extname", text("understudy")),
        ("extowner", int(OWNER)),
        ("extnamespace", int(PG_CATALOG)),
        ("extversion", text(env!("CARGO_PKG_VERSION"))),
    ]);
}

/// Fills `pg_description`: what `public` is, as PostgreSQL says it.
pub fn fill_descriptions(filling: &mut Filling) {
    filling.row(&[
        ("objoid", int(PUBLIC)),
        ("classoid", Value::Int(PG_NAMESPACE)),
        ("description", text("standard public schema")),
    ]);
}

/// Fills `pg_depend`.
pub fn fill(facts: &Facts, filling: &mut Filling) {
    let extension = (PG_EXTENSION, EXTENSION, 0);
    depends(filling, (PG_NAMESPACE, UNDERSTUDY, 0), extension, "e");
    for relation in facts.relations().values() {
        let whole = matches!(relation.of, Of::Table(_) | Of::System(_));
        if whole && relation.schema == UNDERSTUDY {
            depends(filling, (PG_CLASS, relation.oid, 0), extension, "e");
        }
    }
    for table in facts.catalog.all() {
        for (at, column) in table.schema.columns().iter().enumerate() {
            let Some(sequence) = column.rules.sequence else { continue };
            let (sequence, owner) =
                ((PG_CLASS, oid_of(TableId(sequence)), 0), (PG_CLASS, table_oid(table), at + 1));
            if column.rules.identity.is_some() {
                depends(filling, sequence, owner, "i");
                continue;
            }
            depends(filling, sequence, owner, "a");
            let default = (PG_ATTRDEF, default_oid(table, at), 0);
            depends(filling, default, owner, "a");
            depends(filling, default, sequence, "n");
        }
    }
    for view in shown(facts) {
        let rule = (PG_REWRITE, rule_oid(view), 0);
        depends(filling, rule, (PG_CLASS, table_oid(view), 0), "i");
        for name in views::names(view) {
            let found = facts.catalog.table(&name).or_else(|| facts.catalog.other(&name));
            if let Some(found) = found {
                depends(filling, rule, (PG_CLASS, table_oid(found), 0), "n");
            }
        }
    }
}

/// Fills `pg_rewrite`: what makes a view one.
pub fn fill_rules(facts: &Facts, filling: &mut Filling) {
    for view in shown(facts) {
        filling.row(&[
            ("oid", int(rule_oid(view))),
            ("rulename", text("_RETURN")),
            ("ev_class", int(table_oid(view))),
            ("ev_type", text("1")),
            ("ev_enabled", text("O")),
            ("is_instead", truth(true)),
        ]);
    }
}

fn shown(facts: &Facts) -> impl Iterator<Item = &TableRecord> {
    facts.catalog.others().map(|other| &**other).filter(|other| views::text(other).is_some())
}

/// The number of a view's rule: no table, key or constraint has it.
fn rule_oid(view: &TableRecord) -> u32 {
    table_oid(view).saturating_add(3)
}
