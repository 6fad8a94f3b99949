//! Tables that a transaction has made, altered and dropped. Nobody else knows of it before COMMIT.
//!
//! One that was there is known to its partition as it was until then: it is read under that version, and
//! what is read is understood by the new definition (PR-122).
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
use types::data::constraint::{Constraint, Standing};
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

/// A table that was there, and gets another definition.
#[derive(Clone, Debug)]
pub struct Altered {
    /// As it is until COMMIT.
    pub from: Arc<TableRecord>,
    /// As it is from then on.
    pub to: Arc<TableRecord>,
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
    altered: BTreeMap<TableId, Altered>,
    /// Made and dropped again.
    unmade: BTreeSet<TableId>,
    /// Constraints that rows which are there may be against, by their numbers.
    not_valid: BTreeSet<u32>,
}

impl Definitions {
    /// The tables as the transaction sees them; `None`: as everybody does.
    pub fn catalog(&self) -> Option<&Arc<Catalog>> {
        self.now.as_ref()
    }

    /// True if nothing is to be done to tables.
    pub fn is_empty(&self) -> bool {
        self.dropped.is_empty() && self.made.is_empty() && self.altered.is_empty()
    }

    /// True if the transaction has made it.
    pub fn has_made(&self, table: TableId) -> bool {
        self.made.contains_key(&table)
    }

    /// True if it has dropped it.
    pub fn has_dropped(&self, table: TableId) -> bool {
        self.dropped.contains_key(&table) || self.unmade.contains(&table)
    }

    /// The tables that were there and get other definitions, by their ids.
    pub fn altered(&self) -> &BTreeMap<TableId, Altered> {
        &self.altered
    }

    /// Constraints that rows which are there may be against, by their numbers.
    pub fn not_valid(&self) -> &BTreeSet<u32> {
        &self.not_valid
    }

    /// Rows that are there may be against the constraint with this number, or not any more.
    pub fn set_not_valid(&mut self, number: u32, not_valid: bool) {
        match not_valid {
            true => drop(self.not_valid.insert(number)),
            false => drop(self.not_valid.remove(&number)),
        }
    }

    /// New indexes and constraints of tables that were there, which are built behind COMMIT.
    pub fn to_build(&self) -> BTreeSet<u32> {
        let all = self.altered.values().flat_map(|altered| altered.to.schema.constraints());
        let builds = |one: &&Constraint| one.standing == Standing::Building && one.indexed().is_some();
        all.filter(builds).map(|one| one.number).collect()
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

    /// Gives a table another definition, whoever has made it. `before` is how the transaction sees it.
    pub fn alter(&mut self, catalog: &Arc<Catalog>, before: &Arc<TableRecord>, to: TableRecord) {
        if self.made.contains_key(&to.id) {
            self.make(catalog, to);
            return;
        }
        let from = self.altered.get(&to.id).map_or(before, |known| &known.from).clone();
        self.altered.insert(to.id, Altered { from, to: Arc::new(to) });
        self.see(catalog);
    }

    /// Drops a table.
    pub fn unmake(&mut self, catalog: &Arc<Catalog>, table: &TableRecord) {
        match self.made.remove(&table.id) {
            Some(_) => drop(self.unmade.insert(table.id)),
            None => {
                let altered = self.altered.remove(&table.id);
                let version = altered.map_or(table.schema.version(), |altered| altered.from.schema.version());
                self.dropped.insert(table.id, version);
            }
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
        let gone = |id: TableId| self.dropped.contains_key(&id) || self.altered.contains_key(&id);
        let made = self.made.values().map(|made| &made.record);
        let more = made.chain(self.altered.values().map(|altered| &altered.to));
        let known = self.altered.iter().map(|(id, altered)| (*id, altered.from.schema.version()));
        let revision = REVISIONS.fetch_add(1, Ordering::Relaxed);
        self.now = Some(Arc::new(before.overlaid(revision, gone, more).known_as(known)));
    }

    /// What COMMIT does to tables. Whether names are free is asked behind all of it.
    pub fn changes(&self) -> Vec<TableChange> {
        self.changes_but(&BTreeSet::new())
    }

    /// The same without what becomes of these tables, which were there.
    pub fn changes_but(&self, others: &BTreeSet<TableId>) -> Vec<TableChange> {
        let dropped =
            self.dropped.iter().map(|(table, schema)| TableChange::Drop { table: *table, schema: *schema });
        let altered = self.altered.iter().filter(|(id, _)| !others.contains(id));
        let altered = altered.map(|(_, Altered { from, to })| TableChange::Alter {
            from: from.schema.version(),
            to: RecordText::new(&as_of(to, to.schema.version())),
        });
        let made = self.made.values().map(|made| {
            let from = made.record.schema.version();
            match made.loaded {
                None => created(&as_of(&made.record, from)),
                Some(version) => {
                    TableChange::Alter { from, to: RecordText::new(&as_of(&made.record, version)) }
                }
            }
        });
        dropped.chain(altered).chain(made).collect()
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
