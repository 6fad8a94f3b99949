//! Tables that a transaction has made and dropped. Nobody else knows of it before COMMIT.
//!
//! A table that it has made has its rows in the transaction's buffer, like those of any other. COPY
//! loads them into the partition itself, under an id that nobody else sees: there may be any number of
//! them. COMMIT gives the id its name, in the entry that writes all the rest.

use super::acknowledged::Acknowledged;
use crate::catalog::Catalog;
use crate::catalog::as_of;
use crate::driver::Handle;
use crate::read::CALL;
use client::{Table, created};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{CatalogTable, Position, TableId, TableRecord};
use wire::{RecordText, TableChange};

/// Begins the revisions of catalogs that a transaction sees: no other catalog has one of these.
const OVERLAID: u64 = 1 << 63;

/// A table that the transaction has made.
#[derive(Clone, Debug)]
struct Made {
    record: Arc<TableRecord>,
    /// Rows of it are in the partition; the version that it gets with its name.
    loaded: Option<u32>,
}

/// What a transaction has done to tables.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    /// The tables as they were when it began with it.
    before: Option<Arc<Catalog>>,
    /// As it sees them.
    now: Option<Arc<Catalog>>,
    /// With the versions that they had.
    dropped: BTreeMap<TableId, u32>,
    made: BTreeMap<TableId, Made>,
    /// Made and dropped again.
    unmade: BTreeSet<TableId>,
}

impl Definitions {
    /// The tables as the transaction sees them; `None`: as everybody does.
    pub fn catalog(&self) -> Option<&Arc<Catalog>> {
        self.now.as_ref()
    }

    /// True if nothing is to be done to tables.
    pub fn is_empty(&self) -> bool {
        self.dropped.is_empty() && self.made.is_empty()
    }

    /// True if the transaction has made it.
    pub fn has_made(&self, table: TableId) -> bool {
        self.made.contains_key(&table)
    }

    /// True if it has dropped it.
    pub fn has_dropped(&self, table: TableId) -> bool {
        self.dropped.contains_key(&table) || self.unmade.contains(&table)
    }

    /// True if rows of it are in the partition already.
    pub fn has_loaded(&self, table: TableId) -> bool {
        self.made.get(&table).is_some_and(|made| made.loaded.is_some())
    }

    /// The tables that it has made; with whether rows of them are in the partition.
    pub fn made(&self) -> BTreeMap<TableId, bool> {
        self.made.iter().map(|(id, made)| (*id, made.loaded.is_some())).collect()
    }

    /// Makes a table, or gives one that it has made other columns.
    pub fn make(&mut self, catalog: &Arc<Catalog>, record: TableRecord) {
        let loaded = self.made.get(&record.id).and_then(|made| made.loaded);
        self.made.insert(record.id, Made { record: Arc::new(record), loaded });
        self.see(catalog);
    }

    /// Drops a table.
    pub fn unmake(&mut self, catalog: &Arc<Catalog>, table: &TableRecord) {
        match self.made.remove(&table.id) {
            Some(_) => drop(self.unmade.insert(table.id)),
            None => drop(self.dropped.insert(table.id, table.schema.version())),
        }
        self.see(catalog);
    }

    /// Rows of a table are in the partition, from now on. It gets this version with its name.
    pub fn load(&mut self, table: TableId, version: u32) {
        let made = self.made.get_mut(&table).expect("the transaction has made it");
        made.loaded = Some(version);
    }

    fn see(&mut self, catalog: &Arc<Catalog>) {
        static REVISIONS: AtomicU64 = AtomicU64::new(OVERLAID);
        let before = self.before.get_or_insert_with(|| catalog.clone());
        let gone = |id| self.dropped.contains_key(&id);
        let more = self.made.values().map(|made| &made.record);
        let revision = REVISIONS.fetch_add(1, Ordering::Relaxed);
        self.now = Some(Arc::new(before.overlaid(revision, gone, more)));
    }

    /// What COMMIT does to tables. Names are free before they are given.
    pub fn changes(&self) -> Vec<TableChange> {
        let dropped =
            self.dropped.iter().map(|(table, schema)| TableChange::Drop { table: *table, schema: *schema });
        let made = self.made.values().map(|made| {
            let from = made.record.schema.version();
            match made.loaded {
                None => created(&as_of(&made.record, from)),
                Some(version) => {
                    TableChange::Alter { from, to: RecordText::new(&as_of(&made.record, version)) }
                }
            }
        });
        dropped.chain(made).collect()
    }
}

/// What makes the table in the partition that a transaction fills.
pub fn filling(record: &TableRecord) -> TableChange {
    let table = as_of(record, record.schema.version());
    created(&CatalogTable { fills: Some(record.id), created_ms: client::wall_ms(), ..table })
}

/// Tables that a transaction has loaded. They are removed when it is dropped: after COMMIT they have another
/// version, and stay.
#[derive(Default)]
pub struct Loads {
    tables: Vec<(Handle, Table)>,
    /// What COMMIT rests on.
    acknowledged: Acknowledged,
}

impl Loads {
    /// Rows of this one are in the partition.
    pub fn add(&mut self, handle: &Handle, table: Table) {
        self.tables.push((handle.seeing(None), table));
    }

    /// Something of them was stored by this entry.
    pub fn stored(&mut self, at: Position) {
        self.acknowledged.add(at);
    }

    /// The same of a COPY.
    pub fn copied(&mut self, acknowledged: &Acknowledged) {
        self.acknowledged.join(acknowledged);
    }

    /// All that was stored of them.
    pub fn acknowledged(&self) -> Acknowledged {
        self.acknowledged.clone()
    }

    /// The transaction has committed: those that it still has have their names.
    pub fn committed(&mut self, definitions: &Definitions) {
        self.tables.retain(|(_, table)| !definitions.has_made(table.id()));
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        for (handle, table) in self.tables.drain(..) {
            let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
            runtime.spawn(async move {
                let Ok(database) = handle.database_record() else { return };
                let changes = vec![TableChange::Drop { table: table.id(), schema: table.schema().version() }];
                // What cannot be removed now is removed by a later change of tables.
                drop(handle.call(database.transact(changes, Vec::new(), None).within(CALL)).await);
            });
        }
    }
}
