//! What was seen of databases' tables.
//!
//! Several sessions look at once, and their looks do not end in the order in which they began. What the
//! latest state shows counts. A look that began before a primary has said that tables are otherwise is no
//! answer to that.

use crate::catalog::{Catalog, UnderWay};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use types::{Position, TableId, TableRecord};

/// A database's catalog as it was when somebody looked.
struct Looked {
    catalog: Arc<Catalog>,
    /// The database as it was then.
    record: Arc<TableRecord>,
    /// The state that was read.
    at: Position,
    /// Tables are said to be otherwise now.
    outdated: bool,
}

#[derive(Default)]
struct Known {
    databases: BTreeMap<TableId, Looked>,
    /// How often tables of a database were said to be otherwise.
    outdated: BTreeMap<TableId, u64>,
}

/// The catalogs of databases that somebody has looked at.
#[derive(Default)]
pub(super) struct Looks(RwLock<Known>);

/// A look that has begun.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// How often the tables were said to be otherwise before.
    outdated: u64,
}

/// What a look has shown: tables by their names, and what is under way.
pub(super) type Seen = (BTreeMap<String, Arc<TableRecord>>, UnderWay);

impl Looks {
    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A look at a database's tables begins.
    pub fn begin(&self, database: TableId) -> Look {
        Look { outdated: self.read().outdated.get(&database).copied().unwrap_or_default() }
    }

    /// It has read this state. The tables of the latest state that anybody has seen.
    pub fn end(
        &self,
        begun: Look,
        (record, at): (Arc<TableRecord>, Position),
        (tables, under_way): Seen,
    ) -> Arc<Catalog> {
        let mut all = self.write();
        let outdated = all.outdated.get(&record.id).is_some_and(|times| *times != begun.outdated);
        let known = all.databases.get(&record.id);
        if let Some(later) = known.filter(|looked| looked.at > at) {
            return later.catalog.clone();
        }
        // The database may have got another name.
        let is_like = |known: &Catalog| known.database() == record.name && known.is_like(&tables);
        let catalog = match known.map(|looked| looked.catalog.clone()) {
            Some(known) if is_like(&known) && known.under_way == under_way => known,
            Some(known) if is_like(&known) => Arc::new(Catalog::clone(&known).with(under_way)),
            known => {
                let revision = known.map_or(1, |known| known.revision + 1);
                let catalog = Catalog::of_database(&record.name, revision, tables).with(under_way);
                Arc::new(catalog.spread_by(record.partition_key().len()))
            }
        };
        all.databases.insert(record.id, Looked { catalog: catalog.clone(), record, at, outdated });
        catalog
    }

    /// The tables are said to be otherwise, by a primary or by who has perhaps changed them.
    pub fn outdate(&self, database: TableId) {
        let mut all = self.write();
        *all.outdated.entry(database).or_default() += 1;
        if let Some(looked) = all.databases.get_mut(&database) {
            looked.outdated = true;
        }
    }

    /// The tables of a database, if nothing is said against what was seen last, and the database is as it was
    /// then.
    pub fn current(
        &self,
        database: TableId,
        is_same: impl Fn(&Arc<TableRecord>) -> bool,
    ) -> Option<Arc<Catalog>> {
        let all = self.read();
        let looked = all.databases.get(&database)?;
        (!looked.outdated && is_same(&looked.record)).then(|| looked.catalog.clone())
    }

    /// The tables of a database as they were seen last.
    pub fn last(&self, database: TableId) -> Option<Arc<Catalog>> {
        self.read().databases.get(&database).map(|looked| looked.catalog.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::example;
    use types::data::{Column, ColumnType};
    use types::{Lsn, Term};

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    /// A table with so many columns.
    fn table(columns: usize) -> Arc<TableRecord> {
        let more = (1..columns).map(|number| Column::new(format!("v{number}"), ColumnType::Int));
        Arc::new(example([Column::new("id", ColumnType::Int)].into_iter().chain(more).collect()))
    }

    fn seen(columns: usize) -> Seen {
        (BTreeMap::from([("t".to_string(), table(columns))]), UnderWay::default())
    }

    fn columns(catalog: &Catalog) -> usize {
        catalog.table("t").expect("it is there").schema.columns().len()
    }

    #[test]
    fn what_the_latest_state_shows_counts_in_whatever_order_looks_end() {
        let (looks, database) = (Looks::default(), table(1));
        let (slow, fast) = (looks.begin(database.id), looks.begin(database.id));
        assert_eq!(columns(&looks.end(fast, (database.clone(), at(7)), seen(2))), 2);
        assert_eq!(columns(&looks.end(slow, (database.clone(), at(6)), seen(1))), 2, "an older state");
        let current = looks.current(database.id, |_| true).expect("nothing is said against it");
        assert_eq!((columns(&current), current.revision), (2, 1));
        let next = looks.begin(database.id);
        assert_eq!(columns(&looks.end(next, (database.clone(), at(8)), seen(3))), 3);
        assert!(looks.current(database.id, |_| false).is_none(), "the database is another one");
    }

    #[test]
    fn a_look_that_began_before_is_no_answer_to_tables_that_are_said_to_be_otherwise() {
        let (looks, database) = (Looks::default(), table(1));
        for lsn in [1, 2] {
            let begun = looks.begin(database.id);
            looks.outdate(database.id);
            looks.end(begun, (database.clone(), at(lsn)), seen(1));
            assert!(looks.current(database.id, |_| true).is_none());
            assert!(looks.last(database.id).is_some());
        }
        let begun = looks.begin(database.id);
        looks.end(begun, (database.clone(), at(2)), seen(1));
        assert!(looks.current(database.id, |_| true).is_some());
    }
}
