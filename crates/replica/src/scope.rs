//! Which rows a request may touch: those of its table, if it names the schema that the table has.
//!
//! The catalog of a database ([`types::database`]) is rows of the partition, so it is at every position what
//! the rows of that position were written by. A request names the version of its table's schema. Where the
//! state that is looked at has another one, it is refused (PR-120).

use types::database::{catalog_key, has_rows, standing_of};
use types::engine::{Engine, EngineError};
use types::{CatalogTable, KeySpace, PartitionRecord, ReadAt, Rules, TableId, TableState};
use wire::RowOp;

/// The rows that a request may touch. It comes out of the check of the request's schema and out of nothing
/// else, so that whoever has one has asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scope {
    keys: KeySpace,
    rules: Rules,
}

impl Scope {
    /// The rows of a bare table, whose partition knows no schema. Of a client that names rows
    /// [`Scope::of`] and [`Scope::of_writes`] say whether it may.
    pub const BARE: Scope = Scope { keys: KeySpace::Bare, rules: Rules::ALL };

    /// Of a table in a state, under a version of its schema. The error says what that state has instead, as a
    /// sentence. The database's own id names its catalog.
    pub fn of(
        engine: &dyn Engine,
        (record, rules): (&PartitionRecord, Rules),
        (table, schema): (TableId, u32),
        at: ReadAt,
    ) -> Result<Result<Scope, String>, EngineError> {
        Scope::asked(engine, (record, rules), (table, schema), at, false)
    }

    /// The same for somebody who writes: not of a table that is held (PR-124, PR-400).
    pub fn of_writes(
        engine: &dyn Engine,
        (record, rules): (&PartitionRecord, Rules),
        (table, schema): (TableId, u32),
    ) -> Result<Result<Scope, String>, EngineError> {
        Scope::asked(engine, (record, rules), (table, schema), ReadAt::Applied, true)
    }

    fn asked(
        engine: &dyn Engine,
        (record, rules): (&PartitionRecord, Rules),
        (table, schema): (TableId, u32),
        at: ReadAt,
        writes: bool,
    ) -> Result<Result<Scope, String>, EngineError> {
        if !record.is_of_database() {
            return Ok(held(record, writes).map_or(Ok(Scope::BARE), Err));
        }
        if table == record.table {
            return Ok(Ok(Scope { keys: KeySpace::Catalog, rules }));
        }
        let value = engine.get(&catalog_key(table), at)?.map(|(_, value)| value);
        let standing = value.as_ref().map(|value| standing_of(value));
        let standing = standing.transpose().map_err(EngineError::Corrupt)?;
        let scope = Scope::checked(rules, (table, standing), schema, writes);
        match value.filter(|_| writes && scope.is_ok()) {
            Some(value) if !has_rows(table, &value).map_err(EngineError::Corrupt)? => Ok(Err(no_rows(table))),
            _ => Ok(scope),
        }
    }

    /// Of a table that the same write makes or changes, and writes.
    pub fn of_changed(
        rules: Rules,
        (state, table): (TableState, &CatalogTable),
        schema: u32,
    ) -> Result<Scope, String> {
        if table.schema.kind().is_some() {
            return Err(no_rows(table.id));
        }
        Scope::checked(rules, (table.id, Some((state, table.schema.version()))), schema, true)
    }

    fn checked(
        rules: Rules,
        (table, standing): (TableId, Option<(TableState, u32)>),
        schema: u32,
        writes: bool,
    ) -> Result<Scope, String> {
        match standing {
            None | Some((TableState::Dropping, _)) => {
                Err(format!("there is no table {table} in the database"))
            }
            Some((_, version)) if version != schema && rules.schemas_are_compared() => {
                Err(format!("table {table} has version {version} of its columns, not {schema}"))
            }
            Some((TableState::Held, _)) if writes && rules.held_tables_are_not_written() => {
                Err(format!("rows of table {table} are being copied: it is written when that is done"))
            }
            Some((TableState::Live | TableState::Held | TableState::Filling, _)) => {
                Ok(Scope { keys: KeySpace::Table(table), rules })
            }
        }
    }

    /// Where they are.
    pub fn keys(&self) -> KeySpace {
        self.keys
    }

    /// The stored keys of its rows with `from <= encoded key < to`. An empty `to`: up to the table's end, and
    /// no further (PR-121).
    pub fn range(&self, from: &[u8], to: &[u8]) -> (Vec<u8>, Vec<u8>) {
        range(self.rules, self.keys, from, to)
    }

    /// Why one of these operations can never be done, if so: its key has no room beside the table's id.
    pub fn fault(&self, ops: &[RowOp]) -> Option<String> {
        let longest = self.keys.longest_key();
        let over = ops.iter().map(|op| op.key().len()).find(|bytes| *bytes > longest)?;
        Some(format!("a key of {over} bytes is longer than {longest}"))
    }
}

/// Why clients do not write rows of a bare table now, or do not even read them, if so (PR-400, PR-403).
pub(crate) fn held(record: &PartitionRecord, writes: bool) -> Option<String> {
    let table = record.table;
    if record.is_closed() {
        return Some(format!("rows of table {table} have been copied: ask for them where they are then"));
    }
    let held = writes && record.moves().is_some();
    held.then(|| format!("rows of table {table} are being copied: it is written when that is done"))
}

/// Why nobody writes rows of a sequence, a view or a procedure.
fn no_rows(table: TableId) -> String {
    format!("what has the id {table} in the database is no table: it has no rows")
}

/// The stored keys of rows within a space, up to its end where `to` is empty.
pub(crate) fn range(rules: Rules, keys: KeySpace, from: &[u8], to: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (from, end) = keys.range(from, to);
    match keys {
        KeySpace::Table(_) if to.is_empty() && !rules.ranges_end_with_their_table() => {
            (from, KeySpace::Bare.range(&[], &[]).1)
        }
        _ => (from, end),
    }
}
