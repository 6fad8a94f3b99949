//! What the transaction manager knows of tables (PR-323): a commit is refused that rests on what a table was
//! like before, or that puts a row into another partition than its own. What is committed is never refused
//! afterwards.

use super::{Books, Looked, damaged};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::commits::KnownTable;
use types::data::Schema;
use types::engine::{Engine, EngineError};
use types::{Mutation, PartitionId, Position, ReadAt, TableId, TableRecord};
use wire::RecordText;
use wire::commit::{CommitRequest, PartitionWrites, TooLarge, WriteSetSize};
use wire::request::TablePart;

/// Why a transaction does not fit the tables that it writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unfit {
    /// A table is otherwise, or is not there.
    Stale,
    /// A table became what it is behind the transaction's snapshot.
    Changed,
    /// A key lies in another partition, or is none.
    Place(String),
    /// An index would not take it.
    TooLarge(TooLarge),
    /// Its rows claim what they cannot (PR-324, PR-325), or nobody has looked what stands against them.
    Claims(String),
}

/// Tables are to be like this.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    pub partitions: Vec<PartitionId>,
    pub tables: Vec<TableRecord>,
    pub gone: Vec<TableId>,
}

impl Definitions {
    /// As they are asked for. The error is a sentence.
    pub fn read(
        partitions: &[PartitionId],
        tables: &[RecordText],
        gone: &[TableId],
    ) -> Result<Definitions, String> {
        let tables = tables.iter().map(RecordText::read).collect::<Result<_, String>>()?;
        Ok(Definitions { partitions: partitions.to_vec(), tables, gone: gone.to_vec() })
    }

    /// Without what is known already. An older version is no news.
    pub fn news(self, books: &Books) -> Definitions {
        let version = |record: &TableRecord| record.schema.version();
        let is_new = |record: &TableRecord| {
            books.tables.get(&record.id).is_none_or(|known| version(&known.record) < version(record))
        };
        Definitions {
            tables: self.tables.into_iter().filter(is_new).collect(),
            gone: self.gone.into_iter().filter(|table| books.knows(*table)).collect(),
            ..self
        }
    }

    /// True if nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.gone.is_empty()
    }

    /// A commit with a part in every partition, and without rows.
    fn request(&self, snapshot: Position) -> CommitRequest {
        let part =
            |table: TableId, schema: u32| TablePart { table, schema, ops: Vec::new(), seen: Vec::new() };
        let made = self.tables.iter().map(|record| part(record.id, record.schema.version()));
        let parts: Vec<TablePart> = made.chain(self.gone.iter().map(|table| part(*table, 0))).collect();
        let writes =
            |partition: &PartitionId| PartitionWrites { partition: *partition, parts: parts.clone() };
        CommitRequest { snapshot, writes: self.partitions.iter().map(writes).collect() }
    }
}

/// The version of a table that is gone, the last one of its database: every other is older.
const GONE: u32 = u32::MAX;

fn versioned(schema: Schema, version: u32) -> Schema {
    let mut parts = schema.into_parts();
    parts.version = version;
    Schema::from_parts(parts).expect("only its version is another one")
}

/// All tables, as of a state.
pub(super) fn tables_at(
    engine: &dyn Engine,
    at: ReadAt,
) -> Result<BTreeMap<TableId, KnownTable>, EngineError> {
    let (from, to) = KnownTable::range();
    let rows = engine.scan(&from, &to, at, usize::MAX, usize::MAX)?;
    let read = |row: &types::engine::Row| {
        let known = KnownTable::decode(&row.value).ok_or_else(|| damaged("a table"))?;
        Ok((known.record.id, known))
    };
    rows.iter().map(read).collect()
}

/// Tables of the database with this first partition, and their versions.
pub(super) fn known_tables(
    engine: &dyn Engine,
    first: PartitionId,
    at: ReadAt,
) -> Result<Vec<(TableId, u32)>, EngineError> {
    let tables = tables_at(engine, at)?;
    let own = tables.values().filter(|known| known.record.first_partition == first);
    let versions = own.map(|known| (known.record.id, known.record.schema.version()));
    Ok(versions.filter(|(_, version)| *version != GONE).collect())
}

impl Books {
    fn knows(&self, table: TableId) -> bool {
        self.tables.get(&table).is_some_and(|known| known.record.schema.version() != GONE)
    }

    /// Commits a change of tables at this timestamp: what is stored, and for each partition the commit before
    /// it.
    pub fn define(
        &mut self,
        (at, wall_ms): (Position, u64),
        definitions: Definitions,
    ) -> (Vec<Mutation>, Vec<(PartitionId, Position)>) {
        let (mut mutations, previous) = self.commit((at, wall_ms), (&definitions.request(at), &[]));
        for record in definitions.tables {
            let known = KnownTable { at, record };
            mutations.push(Mutation { key: KnownTable::key(known.record.id), value: Some(known.encode()) });
            self.tables.insert(known.record.id, known);
        }
        for table in definitions.gone {
            let Some(mut known) = self.tables.remove(&table) else { continue };
            // Of a database without tables it stays known that there are none.
            let database = known.record.first_partition;
            let last = !self.tables.values().any(|other| other.record.first_partition == database);
            let value = last.then(|| {
                (known.at, known.record.schema) = (at, versioned(known.record.schema.clone(), GONE));
                known.encode()
            });
            mutations.push(Mutation { key: KnownTable::key(table), value });
            if last {
                self.tables.insert(table, known);
            }
        }
        self.claims.follow(&self.tables);
        (mutations, previous)
    }

    /// Why a transaction may not be committed as tables are now; none: it may. Databases of which no table is
    /// known are asked nothing: whoever changes their tables next says what they are.
    pub fn unfit(&self, (request, looked): (&CommitRequest, Option<Looked<'_>>)) -> Option<Unfit> {
        let checked = looked.map(|looked| looked.checked);
        let parents = looked.map_or(&[][..], |looked| looked.parents);
        if self.tables.is_empty() && checked.is_none() {
            return None;
        }
        if let Some(unfit) = self.unfit_of_tables((request, checked)) {
            return Some(unfit);
        }
        let parts = || request.writes.iter().flat_map(|writes| &writes.parts);
        // Whoever knows more of a table than the manager has it told before this is done.
        let is_newer = |known: &KnownTable, part: &TablePart| part.schema > known.record.schema.version();
        let newer =
            parts().any(|part| self.tables.get(&part.table).is_some_and(|known| is_newer(known, part)));
        match self.claimed(parts(), parents) {
            Err(_) if newer => Some(Unfit::Stale),
            Err(why) => Some(Unfit::Claims(why)),
            Ok(claims) if claims.is_empty() || checked.is_some() => None,
            Ok(_) if newer => Some(Unfit::Stale),
            Ok(_) => {
                let why = "unique values and foreign keys are looked at by SQL: write these rows by SQL";
                Some(Unfit::Claims(why.into()))
            }
        }
    }

    fn unfit_of_tables(&self, (request, checked): (&CommitRequest, Option<Position>)) -> Option<Unfit> {
        let mut size = WriteSetSize::default();
        for writes in &request.writes {
            for part in &writes.parts {
                let Some(known) = self.tables.get(&part.table) else {
                    // What rows of a table claim that nobody has told of would be noted by nobody.
                    let told = self.tables.values().any(|known| known.is_in(writes.partition));
                    match told || checked.is_some() {
                        true => return Some(Unfit::Stale),
                        false => continue,
                    }
                };
                let seen = part.seen.iter().min().copied().unwrap_or(request.snapshot);
                let oldest = checked.map_or(seen, |checked| checked.min(seen));
                if part.schema < known.record.schema.version() {
                    return Some(Unfit::Stale);
                }
                if oldest < known.at {
                    return Some(Unfit::Changed);
                }
                let place = |key: &Bytes| known.partition_of(key) == Some(writes.partition);
                if let Some(op) = part.ops.iter().find(|op| !place(op.key())) {
                    let why = match known.partition_of(op.key()) {
                        Some(other) => format!("a row of table {} lies in partition {other}", part.table),
                        None => format!("a key is none of table {}", part.table),
                    };
                    return Some(Unfit::Place(why));
                }
                let bytes = |op: &wire::RowOp| op.key().len() + op.row().map_or(0, Bytes::len);
                let mut ops = part.ops.iter();
                if let Err(why) =
                    ops.try_for_each(|op| size.add(writes.partition, bytes(op), known.indexes()))
                {
                    return Some(Unfit::TooLarge(why));
                }
            }
        }
        None
    }
}
