//! COMMIT of a transaction whose tables demand of rows that are there what they have not demanded before.
//!
//! Rows were looked at when the transaction said so, and others may have written since. So COMMIT holds the
//! tables, with those that new foreign keys refer to, as for copying rows (PR-124), and looks again.
//!
//! 1. One entry holds the tables. For each new constraint over several rows it has an index that demands
//!    nothing. Interrupted behind it: the hold goes when it is old, and these indexes with it.
//! 2. The primary builds the indexes, and rows are looked at as the transaction leaves them.
//! 3. One entry has all that the transaction does: the indexes become constraints, and nothing is held.
//!
//! The last entry names the versions under which tables are held, so it is refused if anybody has lifted a
//! hold meanwhile, and what it makes valid is so (PR-452). A constraint of a column that has come with a
//! default in the same transaction has no index before that entry: it is built behind it, like any other.

use super::demands::{self, Demanded};
use super::rewrite;
use crate::ahead::{ahead, freed, is_ahead};
use crate::catalog::{Catalog, as_of};
use crate::constraining;
use crate::database;
use crate::evaluate::Evaluator;
use crate::fault;
use crate::several;
use crate::txn::{Definitions, Open};
use client::{Database, wall_ms};
use pg::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::data::constraint::{Constraint, Standing};
use types::{CatalogTable, TableId, TableRecord};
use wire::{RecordText, TableChange};

/// How often a hold is renewed.
const RENEW: Duration = Duration::from_secs(10);

/// True if COMMIT must look at rows that are there.
pub fn is_needed(definitions: &Definitions) -> Result<bool, Failure> {
    for altered in definitions.altered().values() {
        if !demands::of(&altered.from.schema, &altered.to, definitions.not_valid())?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Commits it. The handle is one that sees what the transaction has done to tables.
pub async fn carry_out(evaluator: &Evaluator, mut open: Open) -> Result<(), Failure> {
    open.busy()?;
    let built = open.definitions().to_build();
    let mut hold = Hold::begin(evaluator, &open).await?;
    let last = match hold.look(&open).await {
        Ok(()) => hold.last(&open).await,
        Err(why) => Err(why),
    };
    let done = match last {
        Ok((changes, records)) => open.commit_by(&evaluator.handle, (changes, &records)).await,
        Err(why) => Err(why),
    };
    match done {
        Ok(()) => {
            several::built_soon(&evaluator.handle, &built).await;
            Ok(())
        }
        Err(why) => Err(hold.give_up(why).await),
    }
}

/// Tables that are to be held, as they are, with the indexes that are built ahead.
type Wanted = BTreeMap<TableId, (Arc<TableRecord>, Vec<Constraint>)>;

/// The error: somebody has changed one of the tables since the transaction has altered it.
fn wanted(definitions: &Definitions, catalog: &Catalog) -> Result<Wanted, Failure> {
    let known = |id: TableId| catalog.all().find(|table| table.id == id);
    let mut found = Wanted::new();
    for (id, altered) in definitions.altered() {
        let demanded = demands::of(&altered.from.schema, &altered.to, definitions.not_valid())?;
        if demanded.is_empty() {
            continue;
        }
        let is_same = |now: &&Arc<TableRecord>| now.schema.version() == altered.from.schema.version();
        let now = known(*id).filter(is_same).ok_or_else(fault::stale)?;
        let first = demanded.iter().filter(|one| one.is_of(&altered.from.schema));
        let indexes = first.filter_map(Demanded::constraint).map(ahead).collect();
        found.insert(*id, (now.clone(), indexes));
        for parent in demanded.iter().filter_map(Demanded::parent).filter_map(known) {
            found.entry(parent.id).or_insert_with(|| (parent.clone(), Vec::new()));
        }
    }
    Ok(found)
}

/// Tables that nobody writes.
struct Hold {
    /// It sees the tables as everybody does.
    evaluator: Evaluator,
    database: Database,
    /// As they are held.
    tables: Vec<Arc<TableRecord>>,
    /// The indexes that are built ahead, by their numbers.
    ahead: BTreeSet<u32>,
    renewed: Instant,
}

impl Hold {
    /// The first step, once nobody else copies rows of the tables.
    async fn begin(evaluator: &Evaluator, open: &Open) -> Result<Hold, Failure> {
        let evaluator = Evaluator { handle: evaluator.handle.seeing(None), ..evaluator.clone() };
        loop {
            database::lift_abandoned(&evaluator.handle).await?;
            let catalog = evaluator.handle.look().await?;
            let wanted = wanted(open.definitions(), &catalog)?;
            if !wanted.keys().any(|id| rewrite::under_way(&catalog, *id)) {
                match Hold::of(&evaluator, wanted).await {
                    Err(failure) if fault::is_stale(&failure) => {}
                    // Whatever became of it, nothing was done of what the transaction does.
                    Err(failure) if fault::is_unknown(&failure) => return Err(fault::conflict()),
                    done => return done,
                }
            }
            rewrite::pause(&evaluator).await?;
        }
    }

    async fn of(evaluator: &Evaluator, wanted: Wanted) -> Result<Hold, Failure> {
        let database = evaluator.handle.database_record()?;
        let versions = database::numbers(&evaluator.handle, wanted.len() as u32).await?;
        let (mut changes, mut tables, mut ahead) = (Vec::new(), Vec::new(), BTreeSet::new());
        for ((table, indexes), version) in wanted.into_values().zip(versions..) {
            ahead.extend(indexes.iter().map(|one| one.number));
            let all = [table.schema.constraints(), &indexes].concat();
            let held = as_of(&table, version).constrained(all);
            let held = held.map_err(|why| Failure::new("42P16", why))?;
            let held = CatalogTable { held_ms: Some(wall_ms()), ..held };
            let from = table.schema.version();
            changes.push(TableChange::Alter { from, to: RecordText::new(&held) });
            tables.push(Arc::new(database.record().with_table(held)));
        }
        several::enter(&evaluator.handle, changes).await?;
        evaluator.handle.outdate();
        Ok(Hold { evaluator: evaluator.clone(), database, tables, ahead, renewed: Instant::now() })
    }

    /// The second step.
    async fn look(&mut self, open: &Open) -> Result<(), Failure> {
        self.are_built().await?;
        let definitions = open.definitions();
        for altered in definitions.altered().values() {
            for one in demands::of(&altered.from.schema, &altered.to, definitions.not_valid())? {
                self.renew_in_time().await?;
                let evaluator = self.seeing(open);
                let view = open.view_of_now(&evaluator.handle);
                if let Some(failure) = one.against(&evaluator, &view, &altered.to, open.now).await? {
                    return Err(failure);
                }
            }
        }
        self.renew_in_time().await
    }

    /// Waits until the indexes have all rows.
    async fn are_built(&mut self) -> Result<(), Failure> {
        loop {
            let catalog = self.evaluator.handle.look().await?;
            let mut building = false;
            for table in catalog.all() {
                for one in table.schema.constraints().iter().filter(|one| self.ahead.contains(&one.number)) {
                    if one.standing == Standing::Failed {
                        let message = format!("a new constraint of \"{}\": {}", table.name, one.note);
                        return Err(Failure::new("54000", message));
                    }
                    building |= one.standing == Standing::Building;
                }
            }
            if !building {
                return Ok(());
            }
            self.renew_in_time().await?;
            rewrite::pause(&self.evaluator).await?;
        }
    }

    /// Where tables are seen as the transaction has altered them, and asked for as they are held.
    fn seeing(&self, open: &Open) -> Evaluator {
        let held = self.tables.iter().map(|table| (table.id, table.schema.version()));
        let seen = open.definitions().catalog().map(|seen| Arc::new(Catalog::clone(seen).known_as(held)));
        Evaluator { handle: self.evaluator.handle.seeing(seen), ..self.evaluator.clone() }
    }

    async fn renew_in_time(&mut self) -> Result<(), Failure> {
        if self.renewed.elapsed() < RENEW {
            return Ok(());
        }
        let first = database::numbers(&self.evaluator.handle, self.tables.len() as u32).await?;
        let (mut changes, mut tables) = (Vec::new(), Vec::new());
        for (table, version) in self.tables.iter().zip(first..) {
            let held = CatalogTable { held_ms: Some(wall_ms()), ..as_of(table, version) };
            let from = table.schema.version();
            changes.push(TableChange::Alter { from, to: RecordText::new(&held) });
            tables.push(Arc::new(self.database.record().with_table(held)));
        }
        several::enter(&self.evaluator.handle, changes).await?;
        (self.tables, self.renewed) = (tables, Instant::now());
        Ok(())
    }

    /// What the last entry does to tables, with what those are then that were held.
    async fn last(&self, open: &Open) -> Result<(Vec<TableChange>, Vec<Arc<TableRecord>>), Failure> {
        let count = 2 * self.tables.len() as u32;
        let first = database::numbers(&self.evaluator.handle, count).await?;
        let ids = self.tables.iter().map(|table| table.id).collect();
        let (mut changes, mut records) = (open.definitions().changes_but(&ids), Vec::new());
        for (held, version) in self.tables.iter().zip((first..).step_by(2)) {
            let mut from = held.schema.version();
            let altered = open.definitions().altered().get(&held.id);
            if let Some(altered) = altered
                && let Some(opened) = demands::opened(&altered.from.schema, &altered.to, version)?
            {
                changes.push(TableChange::Alter { from, to: RecordText::new(&opened) });
                from = version;
            }
            let to = as_of(altered.map_or(held, |altered| &altered.to), version + 1);
            changes.push(TableChange::Alter { from, to: RecordText::new(&to) });
            records.push(Arc::new(self.database.record().with_table(to)));
        }
        Ok((changes, records))
    }

    /// The tables are written again, as they were. What the client is told. If it fails, somebody else does
    /// it a minute later.
    async fn give_up(&self, why: Failure) -> Failure {
        match self.free().await {
            // The last entry names other versions: it was not made, and never will be.
            Ok(()) if fault::is_unknown(&why) => fault::conflict(),
            Ok(()) => why,
            Err(_) => {
                drop(self.clear_away().await);
                why
            }
        }
    }

    async fn free(&self) -> Result<(), Failure> {
        let first = database::numbers(&self.evaluator.handle, self.tables.len() as u32).await?;
        let mut changes = Vec::new();
        for (table, version) in self.tables.iter().zip(first..) {
            let to = RecordText::new(&freed(table, version)?);
            changes.push(TableChange::Alter { from: table.schema.version(), to });
        }
        let freed = several::enter(&self.evaluator.handle, changes).await;
        self.evaluator.handle.look_again().await;
        freed
    }

    /// Somebody has altered one of the tables, so that it is not held any more: what was built ahead goes.
    async fn clear_away(&self) -> Result<(), Failure> {
        let catalog = self.evaluator.handle.look().await?;
        let held = &catalog.under_way.held;
        let free = catalog.all().filter(|table| !held.contains_key(&table.id));
        let left = free.flat_map(|table| table.schema.constraints());
        let left = left.filter(|one| is_ahead(one) && self.ahead.contains(&one.number));
        let left: BTreeSet<u32> = left.map(|one| one.number).collect();
        match left.is_empty() {
            true => Ok(()),
            false => constraining::without(&self.evaluator, &left).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::example;
    use types::data::constraint::Demand;
    use types::data::{Column, ColumnType};

    #[test]
    fn what_is_built_ahead_goes_with_a_hold_that_is_lifted() {
        let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("v", ColumnType::Int)];
        let mut table = example(columns);
        let unique = Constraint::new(7, "t_v_key", Demand::Unique(vec![1]));
        let own = Constraint::new(8, "by_v", Demand::Index(vec![1]));
        table.schema = table.schema.with_constraints(vec![own.clone(), ahead(&unique)]).expect("valid");
        let built = &table.schema.constraints()[1];
        assert_eq!((built.standing, built.unique()), (Standing::Building, None));
        assert_eq!(built.indexed(), Some(&[1][..]));
        let freed = freed(&table, 9).expect("valid");
        assert_eq!((freed.schema.constraints(), freed.held_ms), (&[own][..], None));
    }
}
