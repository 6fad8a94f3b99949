//! TRUNCATE of a database's tables: each is another one, without rows, under the same name.

use crate::catalog::{Catalog, as_of};
use crate::constraints::children;
use crate::database::{change, dropped, fills_of, numbers, referring};
use crate::driver::Handle;
use crate::fault;
use crate::numbering;
use client::created;
use pg::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::data::Schema;
use types::data::constraint::{Constraint, Demand, Standing};
use types::database::FIRST_REPLICATED;
use types::{CatalogTable, TableId, TableRecord};
use wire::{RecordText, TableChange};

/// Tables without a row under the names of these, in one entry. Where sequences begin again that number rows
/// of other tables, too, these are numbered by what takes the place of those.
pub async fn truncate(handle: &Handle, names: &[String], restart: bool) -> Result<(), Failure> {
    let count = |catalog: &Catalog| match restart {
        true => owned(catalog, names).len() + sharing(catalog, names).len(),
        false => 0,
    };
    let more = if restart { count(&*handle.look().await?) } else { 0 };
    let first = numbers(handle, (names.len() + more) as u32).await?;
    change(handle, |catalog| {
        if count(catalog) > more {
            return Err(fault::stale());
        }
        let renamed = renamed(catalog, names, first)?;
        let (mut emptied, mut again, mut next) = (Vec::new(), Vec::new(), first + names.len() as u32);
        let (mut changes, mut ids) = (Vec::new(), BTreeSet::new());
        for (name, id) in names.iter().zip(first..) {
            let no = || Failure::new("42P01", format!("relation \"{name}\" does not exist"));
            let table = catalog.table(name).ok_or_else(no)?;
            fault::together(table, "TRUNCATE")?;
            if ids.insert(table.id) {
                changes.push(dropped(table));
                changes.extend(fills_of(catalog, table.id));
                emptied.push(self::emptied(table, (TableId(id), &renamed), restart));
                let sequences = numbering::again(catalog, table, restart, next);
                next += sequences.len() as u32;
                again.extend(sequences);
            }
        }
        changes.extend(again.iter().flat_map(|(old, new)| [dropped(old), created(new)]));
        for mut table in emptied {
            again.iter().for_each(|(old, new)| numbering::instead(&mut table, old.id, new.id));
            changes.push(created(&table));
        }
        let others = if restart { sharing(catalog, names) } else { Vec::new() };
        for (other, version) in others.iter().zip(next..) {
            let mut to = as_of(other, version);
            again.iter().for_each(|(old, new)| numbering::instead(&mut to, old.id, new.id));
            changes.push(TableChange::Alter { from: other.schema.version(), to: RecordText::new(&to) });
        }
        Ok(changes)
    })
    .await
}

/// These tables, and behind them all others that refer to one of them, or to one that does: what CASCADE
/// empties as well.
pub fn with_referring(catalog: &Catalog, mut names: Vec<String>) -> Vec<String> {
    let mut at = 0;
    while at < names.len() {
        let table = catalog.table(&names[at]);
        for (child, ..) in table.map(|table| children(catalog, table.id)).unwrap_or_default() {
            if !names.contains(&child.name) {
                names.push(child.name.clone());
            }
        }
        at += 1;
    }
    names
}

/// The sequences that go with columns of these tables.
pub fn owned(catalog: &Catalog, names: &[String]) -> Vec<Arc<TableRecord>> {
    let tables = names.iter().filter_map(|name| catalog.table(name));
    tables.flat_map(|table| numbering::owned(catalog, table)).collect()
}

/// Other tables whose rows are numbered by sequences that go with columns of these.
pub fn sharing(catalog: &Catalog, names: &[String]) -> Vec<Arc<TableRecord>> {
    let sequences: BTreeSet<TableId> = owned(catalog, names).iter().map(|sequence| sequence.id).collect();
    let others = catalog.all().filter(|table| !names.contains(&table.name));
    others.filter(|table| numbering::is_numbered_by(table, &sequences)).cloned().collect()
}

/// True if a sequence that goes with a column of one of these tables numbers rows of another table, too.
pub fn is_shared(catalog: &Catalog, names: &[String]) -> bool {
    names.iter().filter_map(|name| catalog.table(name)).any(|table| {
        let others = |sequence: &Arc<TableRecord>| {
            numbering::users(catalog, sequence.id).iter().any(|(user, ..)| *user != table.name)
        };
        numbering::owned(catalog, table).iter().any(others)
    })
}

/// The ids that tables get which are truncated. The error: another table refers to one of them.
pub fn renamed(
    catalog: &Catalog,
    names: &[String],
    first: u32,
) -> Result<BTreeMap<TableId, TableId>, Failure> {
    let mut renamed = BTreeMap::new();
    for (name, id) in names.iter().zip(first..) {
        if let Some(table) = catalog.table(name) {
            renamed.entry(table.id).or_insert(TableId(id));
        }
    }
    let ids = renamed.keys().copied().collect();
    let Some((child, _, id)) = referring(catalog, &ids).into_iter().next() else { return Ok(renamed) };
    let name = catalog.all().find(|table| table.id == id).map(|table| table.name.clone());
    let (name, child) = (name.unwrap_or_default(), &child.name);
    Err(Failure::new("0A000", "cannot truncate a table referenced in a foreign key constraint")
        .detail(format!("Table \"{child}\" references \"{name}\"."))
        .hint(format!("Truncate table \"{child}\" at the same time.")))
}

/// A table's definition for another id, which has none of its rows. Numbers go on, or begin again. Foreign
/// keys refer to the other ids that tables get with it.
pub fn emptied(
    table: &TableRecord,
    (id, renamed): (TableId, &BTreeMap<TableId, TableId>),
    restart: bool,
) -> CatalogTable {
    let mut parts = table.schema.clone().into_parts();
    parts.version = if parts.replicated { FIRST_REPLICATED } else { 1 };
    parts.constraints.retain(Constraint::is_enforced);
    for constraint in &mut parts.constraints {
        (constraint.standing, constraint.unchecked) = (Standing::Valid, false);
        if let Demand::Foreign(reference) = &mut constraint.demand {
            reference.parent = renamed.get(&reference.parent).copied().unwrap_or(reference.parent);
        }
    }
    for (at, column) in parts.columns.iter_mut().enumerate() {
        let rules = &mut column.rules;
        rules.missing = None;
        rules.counter =
            match rules.identity.is_some() && rules.sequence.is_none() && !rules.hidden && !restart {
                true => rules.counter.or(Some((table.id.0, at as u32))),
                false => None,
            };
    }
    let schema = Schema::from_parts(parts).expect("columns that a table has");
    CatalogTable::new(id, &table.name, schema, client::wall_ms())
}
