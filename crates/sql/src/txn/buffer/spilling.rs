//! How what a transaction has written goes into a file, and how rows of it come back to be written once more.

use super::{Buffer, Edit, Limit, memory};
use crate::txn::NodeMemory;
use crate::txn::spill::{SpillSettings, Store};
use bytes::Bytes;
use pg::{Failure, code};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{TableId, TableRecord};

/// More rows no transaction writes, wherever they are kept.
const MAX_SPILLED_ROWS: usize = 1_000_000_000;

/// What of a buffer is in a file. Nobody writes the file while another buffer reads it.
#[derive(Clone, Debug)]
pub(super) struct Spilled {
    pub store: Arc<Store>,
    /// So many edits are in it.
    pub rows: usize,
    /// They were at most so many bytes of keys and rows.
    pub bytes: usize,
    of_tables: BTreeMap<TableId, usize>,
}

impl Spilled {
    pub fn tables(&self) -> impl Iterator<Item = TableId> {
        self.of_tables.iter().filter(|(_, rows)| **rows > 0).map(|(table, _)| *table)
    }

    pub fn rows_of(&self, table: TableId) -> usize {
        self.of_tables.get(&table).copied().unwrap_or(0)
    }
}

impl Buffer {
    fn node(&self) -> Option<&Arc<NodeMemory>> {
        self.room.as_ref().map(|room| room.memory()).filter(|_| self.large)
    }

    /// Where it spills to, if rows of this table may.
    pub fn spills(&self, table: &TableRecord) -> Option<&SpillSettings> {
        let settings = self.node()?.spilling().settings()?;
        (self.limit(table) == Limit::LARGE).then_some(settings)
    }

    /// How much may be written of this table, with what is in a file.
    pub fn whole_limit(&self, table: &TableRecord) -> Limit {
        match self.spills(table) {
            Some(settings) => Limit {
                rows: MAX_SPILLED_ROWS,
                bytes: usize::try_from(settings.share()).unwrap_or(usize::MAX),
            },
            None => self.limit(table),
        }
    }

    /// What it keeps in memory is counted.
    pub(super) fn note_kept(&self) {
        if let Some(node) = self.node() {
            node.spilling().note_kept(memory((self.rows, self.bytes)));
        }
    }

    /// Brings what the file has of rows that are to be written back into memory, where it counts first.
    pub async fn bring(&mut self, table: TableId, edits: &[Edit]) -> Result<(), Failure> {
        let Some(spilled) = self.spilled.as_ref().filter(|spilled| spilled.rows_of(table) > 0) else {
            return Ok(());
        };
        let here = self.tables.get(&table);
        let is_here = |edit: &&Edit| here.is_some_and(|rows| rows.contains_key(&edit.key));
        let keys: Vec<Bytes> =
            edits.iter().filter(|edit| !is_here(edit)).map(|edit| edit.key.clone()).collect();
        let store = spilled.store.clone();
        let found = tokio::task::spawn_blocking(move || store.get(table, &keys)).await.map_err(down)??;
        for edit in found.into_iter().flatten() {
            self.bytes += edit.bytes();
            self.rows += 1;
            self.tables.entry(table).or_default().insert(edit.key.clone(), edit);
        }
        Ok(())
    }

    /// Moves what is in memory into the file, if it is more than is kept there and nobody else reads by this
    /// buffer. Where it is not done to the end, nothing can be read of it any more.
    pub async fn spill(this: &mut Arc<Buffer>) -> Result<(), Failure> {
        let Some(buffer) = Arc::get_mut(this) else { return Ok(()) };
        let Some(node) = buffer.node().cloned() else { return Ok(()) };
        let Some(settings) = node.spilling().settings() else { return Ok(()) };
        let is_read = buffer.spilled.as_mut().is_some_and(|known| Arc::get_mut(&mut known.store).is_none());
        if memory((buffer.rows, buffer.bytes)) <= settings.threshold || is_read {
            return Ok(());
        }
        let known = buffer.spilled.take();
        let bytes = buffer.bytes + known.as_ref().map_or(0, |spilled| spilled.bytes);
        let tables = std::mem::take(&mut buffer.tables);
        (buffer.rows, buffer.bytes, buffer.lost) = (0, 0, true);
        let write = move || {
            let mut store = match known.and_then(|spilled| Arc::into_inner(spilled.store)) {
                Some(store) => store,
                None => Store::open(node.spilling())?,
            };
            store.put(&tables)?;
            let of_tables = store.rows();
            let rows = of_tables.values().sum();
            Ok::<_, Failure>(Spilled { store: Arc::new(store), rows, bytes, of_tables })
        };
        buffer.spilled = Some(tokio::task::spawn_blocking(write).await.map_err(down)??);
        buffer.lost = false;
        buffer.settle(None);
        Ok(())
    }

    /// The same with all of it in memory, for what one write has. It blocks.
    pub fn brought_back(&self) -> Result<Buffer, Failure> {
        self.is_there()?;
        let mut buffer = Buffer { spilled: None, tables: BTreeMap::new(), rows: 0, bytes: 0, ..self.clone() };
        for table in self.tables() {
            for edit in self.all(table) {
                let edit = edit?.into_owned();
                buffer.put(table, edit);
            }
        }
        Ok(buffer)
    }
}

fn down(_: tokio::task::JoinError) -> Failure {
    Failure::new(code::SHUTDOWN, "this node is going down")
}
