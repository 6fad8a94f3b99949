//! What a tail has, to be brought elsewhere: entries and rows with their bytes, and as people write rows
//! where their tables are known.
//!
//! In a partition of a database a stored key begins with its table's id ([`types::keyspace`]), and
//! definitions of tables are rows as well: those that a tail has are heeded from there on, so a table that
//! only the tail knows is shown by its columns, too.

use crate::logview::describe;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::config::TailReport;
use types::data::{Schema, decode_key, decode_known, row_to_json};
use types::engine::{Version, space};
use types::{CatalogTable, KeySpace, PartitionId, TableId, TableRecord, TableState};
use wire::effects::Effects;
use wire::entry::{Entry, Kind};

/// The tables that are known, for their names and columns.
#[derive(Default)]
pub struct Tables {
    /// Everything that partitions belong to.
    owners: Vec<Arc<TableRecord>>,
    /// Tables of databases.
    within: BTreeMap<TableId, TableRecord>,
}

/// A row of a table, or what is left of one.
struct Changed<'a> {
    /// Of a database.
    table: Option<TableId>,
    /// Without what says whose it is.
    key: &'a [u8],
    row: Option<&'a [u8]>,
}

impl Tables {
    /// Of these owners of partitions.
    pub fn new(owners: Vec<Arc<TableRecord>>) -> Tables {
        Tables { owners, within: BTreeMap::new() }
    }

    /// A table of a database.
    pub fn add(&mut self, table: TableRecord) {
        self.within.insert(table.id, table);
    }

    fn owner(&self, partition: PartitionId) -> Option<Arc<TableRecord>> {
        self.owners.iter().find(|record| record.partition_ids().any(|own| own == partition)).cloned()
    }

    /// A row's table, and its columns. Without an owner that is known every key is taken for one of a bare
    /// table.
    fn changed<'a>(
        &self,
        owner: Option<&TableRecord>,
        stored: &'a Bytes,
        row: Option<&'a [u8]>,
    ) -> (Changed<'a>, Option<&TableRecord>) {
        let whole = &stored[1..];
        match owner.filter(|owner| owner.is_database()).and_then(|_| KeySpace::table_of(stored)) {
            Some(table) => (Changed { table: Some(table), key: &whole[4..], row }, self.within.get(&table)),
            None => {
                let bare = owner.and_then(|owner| self.owners.iter().find(|one| one.id == owner.id));
                (Changed { table: None, key: whole, row }, bare.map(|one| &**one))
            }
        }
    }

    /// What a row of a catalog says from here on; as people are shown it.
    fn define(&mut self, database: &TableRecord, stored: &Bytes, value: Option<&[u8]>) -> Option<Value> {
        let key = KeySpace::Catalog.key_of(stored);
        let Some(value) = value else {
            let id = u32::from_be_bytes(key[..].try_into().ok()?);
            return Some(json!({ "table": id, "state": "gone" }));
        };
        let (state, table) = CatalogTable::decode(&key, value).ok()?;
        let shown = json!({
            "table": table.id.0,
            "table_name": format!("{}.{}", database.name, table.name),
            "state": match state {
                TableState::Live => "live",
                TableState::Dropping => "dropping",
                TableState::Held => "held",
                TableState::Filling => "filling",
            },
            "version": table.schema.version(),
        });
        self.add(database.with_table(table));
        Some(shown)
    }
}

/// An entry with all that is in it: [`describe`], and its bytes in hexadecimal digits. Where its tables are
/// known, what it changed also as people write rows.
pub fn entry(entry: &Entry, tables: &mut Tables) -> Value {
    let mut value = serde_json::to_value(describe(entry)).expect("a line has only text keys");
    let header = entry.header();
    let owner = tables.owner(header.partition);
    let schema = || (header.kind == Kind::Schema).then(|| entry.payload());
    let effects = entry.effects().or_else(schema).and_then(|effects| Effects::decode(effects).ok());
    let (mut rows, mut definitions) = (Vec::new(), Vec::new());
    for mutation in effects.into_iter().flat_map(|effects| effects.mutations) {
        let stored = mutation.value.as_deref();
        if let Some(database) = owner.as_deref().filter(|owner| owner.is_database())
            && KeySpace::Catalog.has(&mutation.key)
        {
            definitions.extend(tables.define(database, &mutation.key, stored));
        }
        // Sessions and marks lie beside users' rows, in spaces of their own.
        if mutation.key.first() == Some(&space::ROW) && header.kind != Kind::Schema {
            let (changed, table) = tables.changed(owner.as_deref(), &mutation.key, stored);
            let mut change = json!({ "key": hex(changed.key), "row": changed.row.map(hex) });
            if let Some(values) = table.and_then(|table| typed(&table.schema, changed.key, changed.row)) {
                change["change"] = if changed.row.is_some() { "put" } else { "delete" }.into();
                change["values"] = values;
            }
            name(&mut change, owner.as_deref(), changed.table, table);
            rows.push(change);
        }
    }
    value["changes"] = rows.into();
    if !definitions.is_empty() {
        value["definitions"] = definitions.into();
    }
    value["entry"] = hex(entry.bytes()).into();
    match owner {
        Some(owner) if owner.is_database() => value["database"] = owner.name.clone().into(),
        Some(owner) => value["table_name"] = owner.name.clone().into(),
        None => {}
    }
    value
}

/// Which table of a database a change is of.
fn name(change: &mut Value, owner: Option<&TableRecord>, id: Option<TableId>, table: Option<&TableRecord>) {
    let (Some(owner), Some(id)) = (owner, id) else { return };
    change["table"] = id.0.into();
    if let Some(table) = table {
        change["table_name"] = format!("{}.{}", owner.name, table.name).into();
    }
}

/// What the engine had left of an entry that its log did not have any more, in the same form as far as it is
/// known. Keys of other rows than users' are given with the space that they are in.
pub fn row(version: &Version, report: &TailReport, tables: &mut Tables) -> Value {
    let owner = tables.owner(report.partition);
    let users = version.key.first() == Some(&space::ROW);
    let stored = version.value.as_deref();
    let mut value = json!({
        "partition": report.partition.0,
        "lsn": version.lsn.0,
        "change": if stored.is_some() { "put" } else { "delete" },
    });
    let database = owner.as_deref().filter(|owner| owner.is_database());
    if let Some(database) = database.filter(|_| KeySpace::Catalog.has(&version.key))
        && let Some(defined) = tables.define(database, &version.key, stored)
    {
        value["definition"] = defined;
    }
    if users {
        let (changed, table) = tables.changed(owner.as_deref(), &version.key, stored);
        value["key"] = hex(changed.key).into();
        if let Some(values) = table.and_then(|table| typed(&table.schema, changed.key, stored)) {
            value["values"] = values;
        }
        name(&mut value, owner.as_deref(), changed.table, table);
    } else {
        let (space, key) = version.key.split_first().map_or((0, &[][..]), |(space, key)| (*space, key));
        (value["key"], value["space"]) = (hex(key).into(), space.into());
    }
    value["row"] = stored.map(hex).into();
    match (database, owner.as_deref()) {
        (Some(database), _) => value["database"] = database.name.clone().into(),
        (None, Some(owner)) => value["table_name"] = owner.name.clone().into(),
        (None, None) => {}
    }
    value
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The row, or the key's columns if it was deleted. `None` if they are not of this schema.
fn typed(schema: &Schema, key: &[u8], row: Option<&[u8]>) -> Option<Value> {
    match row {
        Some(row) => Some(row_to_json(schema, &decode_known(schema, key, row).ok()?)),
        None => {
            let values = decode_key(schema, key).ok()?;
            let named = schema.key_columns().zip(&values);
            Some(named.map(|(column, value)| (column.name.clone(), value.to_json())).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::table;
    use types::config::Holds;
    use types::data::Row;
    use types::{Lsn, Mutation, Position, Term};
    use wire::entry::Header;

    /// A database whose catalog nobody has read, and a table of it.
    fn bank() -> (Tables, CatalogTable) {
        let mut record = table(1).record().clone();
        (record.id, record.name, record.holds) = (TableId(70), "bank".into(), Holds::Database);
        let pets = CatalogTable::new(TableId(71), "pets", table(1).schema().clone(), 0);
        (Tables::new(vec![Arc::new(record)]), pets)
    }

    fn of(kind: Kind, mutations: Vec<Mutation>) -> Entry {
        let effects = Effects { request_hash: 0, confirmed: 0, outcome: 0, affected: 1, mutations };
        let at = Position::new(Term(1), Lsn(1));
        Entry::encode(Header::new(kind, PartitionId(64), at, 0), &effects.encode())
    }

    #[test]
    fn rows_of_a_database_are_shown_by_table_and_columns_as_the_tail_defines_them() {
        let (mut tables, pets) = bank();
        let row = Row::new(vec![7.into(), "tom".into()]);
        let (key, stored) = table(1).encode(&row).expect("fits");
        let space = KeySpace::Table(pets.id);
        let put = Mutation { key: space.row_key(&key), value: Some(stored) };
        let unknown = entry(&of(Kind::Rows, vec![put.clone()]), &mut tables);
        let change = &unknown["changes"][0];
        assert_eq!((&change["table"], &change["values"]), (&71.into(), &Value::Null), "{unknown}");
        assert_eq!((&unknown["database"], &change["key"]), (&"bank".into(), &hex(&key).into()));
        let defines = Mutation { key: pets.stored_key(), value: Some(pets.encode(TableState::Live)) };
        let gone = Mutation { key: space.row_key(&key), value: None };
        let shown = entry(&of(Kind::Rows, vec![defines, put, gone]), &mut tables);
        assert_eq!(shown["definitions"][0]["table_name"], "bank.pets", "{shown}");
        assert_eq!(shown["definitions"][0]["state"], "live");
        let changes = &shown["changes"];
        assert_eq!(changes[0]["values"], json!({ "id": 7, "name": "tom" }));
        assert_eq!((&changes[0]["table_name"], &changes[0]["change"]), (&"bank.pets".into(), &"put".into()));
        assert_eq!((&changes[1]["change"], &changes[1]["values"]), (&"delete".into(), &json!({ "id": 7 })));
    }
}
