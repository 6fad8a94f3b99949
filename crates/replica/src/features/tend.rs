//! What a primary does for a database's tables: it keeps their constraints with every write, looks at rows
//! that were there before a constraint, and removes the rows of what was dropped.
//!
//! Only the primary thinks. What it finds out is in its entries. A step at a time is made beside requests,
//! each when the one before is committed. The next primary begins with a table at its start again: where a
//! step was made already there is nothing left to do, or the same is done again.

use crate::features::catalog::tables_at;
use crate::features::constraint::{Building, ConstraintCheck, Guards, Looked, Tables, unsettled};
use crate::features::index::fit_an_entry;
use crate::rows::Evaluated;
use crate::scope::range;
use crate::settings::Settings;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::data::constraint::{Constraint, Standing};
use types::database::catalog_key;
use types::engine::{Engine, EngineError};
use types::{CatalogTable, KeySpace, Lsn, Mutation, Position, ReadAt, Rules, TableId, TableState, Term};
use wire::Outcome;

/// Every table of the state as these changes leave it.
fn with_changes<'a>(
    engine: &dyn Engine,
    changes: impl Iterator<Item = &'a Mutation>,
) -> Result<Tables, EngineError> {
    let mut tables = tables_at(engine, ReadAt::Applied)?;
    for (key, value) in changes.filter_map(|change| Some((&change.key, change.value.as_ref()?))) {
        let read = CatalogTable::decode(&KeySpace::Catalog.key_of(key), value);
        let (state, table) = read.map_err(EngineError::Corrupt)?;
        tables.insert(table.id, (state, table));
    }
    Ok(tables)
}

/// What is to be done for a table.
fn chore((state, table): &(TableState, CatalogTable)) -> Option<Chore> {
    if *state == TableState::Dropping {
        return Some(Chore::Remove(table.id));
    }
    unsettled(table).map(|constraint| match constraint.standing {
        Standing::Dropping => Chore::Unindex(table.id, constraint.number),
        _ => Chore::Build(table.id, constraint.number),
    })
}

/// What stores a table's definition with its constraints changed.
fn redefined(
    engine: &dyn Engine,
    table: TableId,
    change: impl FnOnce(&mut Vec<Constraint>),
) -> Result<Mutation, EngineError> {
    let key = catalog_key(table);
    let value = engine.get(&key, ReadAt::Applied)?.map(|(_, value)| value).unwrap_or_default();
    let read = CatalogTable::decode(&KeySpace::Catalog.key_of(&key), &value);
    let (state, table) = read.map_err(EngineError::Corrupt)?;
    let mut constraints = table.schema.constraints().to_vec();
    change(&mut constraints);
    let table = table.constrained(constraints).map_err(EngineError::Corrupt)?;
    Ok(Mutation { key, value: Some(table.encode(state)) })
}

/// What stores how far a constraint is.
fn settle(
    engine: &dyn Engine,
    (table, number): (TableId, u32),
    turn: impl FnOnce(&mut Constraint),
) -> Result<Mutation, EngineError> {
    redefined(engine, table, |all| {
        if let Some(constraint) = all.iter_mut().find(|one| one.number == number) {
            turn(constraint);
        }
    })
}

/// What stores that a constraint has failed, and why.
fn failed(engine: &dyn Engine, of: (TableId, u32), why: String) -> Result<Mutation, EngineError> {
    settle(engine, of, |one| (one.standing, one.note) = (Standing::Failed, why))
}

/// Something that is to be done for a table beside requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Chore {
    /// Its rows are removed, those of its indexes, and where its feeds are; it was dropped.
    Remove(TableId),
    /// The rows of an index are removed; its constraint was dropped.
    Unindex(TableId, u32),
    /// Rows that were there before a constraint are looked at.
    Build(TableId, u32),
}

/// What a leader knows of a database's tables. Good for one term: in it nobody else changes the state.
///
/// Invariants (`validate`): the last entry about tables is not behind the log's end.
#[derive(Debug, Default)]
pub(crate) struct KnownCatalog {
    /// The term that all of this is of; zero: none.
    term: Term,
    /// The last entry about tables that was made in it.
    last: Lsn,
    /// What is to be done for tables, if that was looked up since.
    chores: Option<Vec<Chore>>,
    /// Where the first of them goes on: a stored key. Empty: at its beginning.
    next: Bytes,
    /// The stored key of a row that is against the constraint whose rows are being looked at.
    breach: Option<Bytes>,
    /// The constraints of the tables, if they were looked up since.
    guards: Option<Arc<Guards>>,
}

impl KnownCatalog {
    /// An entry at `at` has changed tables, or will have when it is executed.
    pub fn changed_at(&mut self, at: Position) {
        assert!(at.term >= self.term, "tables of term {} change in the older {}", self.term, at.term);
        *self = KnownCatalog { term: at.term, last: at.lsn, ..KnownCatalog::default() };
    }

    /// Which state of the tables is in force in this term: it is another one behind each change of them.
    pub fn edition(&mut self, term: Term) -> (Term, Lsn) {
        self.turn_to(term);
        (self.term, self.last)
    }

    /// True if the last entry about tables of this term is not committed yet.
    pub fn is_pending(&self, term: Term, committed: Lsn) -> bool {
        self.term == term && self.last > committed
    }

    /// All of it is of this term from here on.
    fn turn_to(&mut self, term: Term) {
        if self.term != term {
            *self = KnownCatalog { term, ..KnownCatalog::default() };
        }
    }

    /// The constraints of the tables as executed so far.
    fn guards(&mut self, engine: &dyn Engine, term: Term) -> Result<Arc<Guards>, EngineError> {
        self.turn_to(term);
        if let Some(guards) = &self.guards {
            return Ok(guards.clone());
        }
        let guards = Arc::new(Guards::of(&tables_at(engine, ReadAt::Applied)?));
        self.guards = Some(guards.clone());
        Ok(guards)
    }

    /// True if writes look up the rows that they change, for constraints.
    pub fn are_looked_up(&mut self, engine: &dyn Engine, term: Term) -> Result<bool, EngineError> {
        Ok(!self.guards(engine, term)?.is_empty())
    }

    /// Reads what a write of these rows has to look up for constraints.
    pub fn look_ahead(
        &mut self,
        engine: &dyn Engine,
        term: Term,
        mutations: &[Mutation],
    ) -> Result<(), EngineError> {
        self.guards(engine, term)?.look_ahead(engine, mutations)
    }

    /// Adds to what a write changes what it changes in the indexes of constraints, or refuses it, if it is
    /// against one. Tables are as the write leaves them.
    pub fn with_constraints(
        &mut self,
        engine: &dyn Engine,
        (term, rules): (Term, Rules),
        evaluated: Evaluated,
    ) -> Result<Evaluated, EngineError> {
        let (outcome, affected, mut mutations) = evaluated;
        if outcome != Outcome::Done {
            return Ok((outcome, affected, mutations));
        }
        let own = |mutation: &&Mutation| KeySpace::Catalog.has(&mutation.key);
        let guards = match mutations.iter().any(|mutation| own(&mutation)) {
            true => Arc::new(Guards::of(&with_changes(engine, mutations.iter().filter(own))?)),
            false => self.guards(engine, term)?,
        };
        if guards.is_empty() {
            return Ok((outcome, affected, mutations));
        }
        Ok(match guards.check(engine, rules, &mutations)? {
            ConstraintCheck::Fits(changes) => {
                mutations.extend(changes);
                (outcome, affected, mutations)
            }
            ConstraintCheck::Unindexable => (Outcome::Unindexable, 0, Vec::new()),
            ConstraintCheck::Violates(number) => (Outcome::Violates, number, Vec::new()),
        })
    }

    /// Rows that global transactions have committed, with what they change in indexes. An index that has no
    /// place for one fails, the row does not; so do all indexes of the rows' tables where one entry cannot
    /// have that much. With whether a definition changes by that.
    pub fn followed(
        &mut self,
        engine: &dyn Engine,
        term: Term,
        mut mutations: Vec<Mutation>,
    ) -> Result<(Vec<Mutation>, bool), EngineError> {
        let guards = self.guards(engine, term)?;
        if guards.is_empty() {
            return Ok((mutations, false));
        }
        let rows = mutations.len();
        let (changes, mut broken) = guards.follow(engine, &mutations)?;
        mutations.extend(changes);
        if !fit_an_entry(&mutations) {
            mutations.truncate(rows);
            broken = guards.indexes_of(&mutations);
        }
        let mut fails = BTreeMap::<TableId, BTreeSet<u32>>::new();
        for (table, number) in broken {
            if guards.standing(table, number).is_some_and(|standing| standing != Standing::Failed) {
                fails.entry(table).or_default().insert(number);
            }
        }
        for (table, numbers) in &fails {
            mutations.push(redefined(engine, *table, |all| {
                for one in all.iter_mut().filter(|one| numbers.contains(&one.number)) {
                    (one.standing, one.note) =
                        (Standing::Failed, "a commit has no place in its index".into());
                }
            })?);
        }
        Ok((mutations, !fails.is_empty()))
    }

    /// What the next step of what is to be done for tables changes. Behind the last step a definition is
    /// changed. None: there is nothing to be done. Where transactions are `global`, rows are no one
    /// partition's to judge: those that are there are put into indexes.
    pub fn next_step(
        &mut self,
        engine: &dyn Engine,
        (term, global): (Term, bool),
        settings: &Settings,
    ) -> Result<Option<Vec<Mutation>>, EngineError> {
        self.turn_to(term);
        if self.chores.is_none() {
            let tables = tables_at(engine, ReadAt::Applied)?;
            (self.chores, self.next) = (Some(tables.values().filter_map(chore).collect()), Bytes::new());
        }
        let Some(chore) = self.chores.as_ref().and_then(|chores| chores.first()).copied() else {
            return Ok(None);
        };
        let (Chore::Remove(id) | Chore::Unindex(id, _) | Chore::Build(id, _)) = chore;
        let table = KeySpace::Table(id);
        match chore {
            Chore::Remove(_) => {
                let rows = range(settings.rules, table, &[], &[]);
                // In the order of their keys.
                let ranges = [table.feed_range(), rows, table.index_range(None)];
                let gone = Mutation { key: catalog_key(id), value: None };
                self.remove(engine, settings, &ranges, || Ok(gone)).map(Some)
            }
            Chore::Unindex(_, number) => {
                let without = || redefined(engine, id, |all| all.retain(|one| one.number != number));
                self.remove(engine, settings, &[table.index_range(Some(number))], without).map(Some)
            }
            Chore::Build(_, number) => self.build((engine, global), settings, (id, number)).map(Some),
        }
    }

    /// What removes the next rows of these ranges; behind the last one the definition's change.
    fn remove(
        &mut self,
        engine: &dyn Engine,
        settings: &Settings,
        ranges: &[(Vec<u8>, Vec<u8>)],
        last: impl FnOnce() -> Result<Mutation, EngineError>,
    ) -> Result<Vec<Mutation>, EngineError> {
        for (from, to) in ranges {
            let from = (&from[..]).max(&self.next[..]);
            if from >= &to[..] {
                continue;
            }
            let rows = engine.scan(from, to, ReadAt::Applied, settings.slice_rows, settings.slice_bytes)?;
            if let Some(last) = rows.last() {
                self.next = [&last.key[..], &[0]].concat().into();
                return Ok(rows.into_iter().map(|row| Mutation { key: row.key, value: None }).collect());
            }
        }
        last().map(|change| vec![change])
    }

    /// Index rows for the next rows that were there before a constraint. Behind the last row its definition's
    /// change (PR-152). If a row does not keep it, the others come into its index all the same: as long as
    /// it is there, what it forbids is looked up in that (PR-490).
    fn build(
        &mut self,
        (engine, global): (&dyn Engine, bool),
        settings: &Settings,
        of: (TableId, u32),
    ) -> Result<Vec<Mutation>, EngineError> {
        let (space, (limit, bytes)) = (KeySpace::Table(of.0), (settings.slice_rows, settings.slice_bytes));
        let guards = self.guards(engine, self.term)?;
        let (from, to) = space.range(&[], &[]);
        let from = (&from[..]).max(&self.next[..]);
        let rows = engine.scan(from, &to, ReadAt::Applied, limit, bytes)?;
        let building = Building::new(engine);
        let mut mutations = Vec::with_capacity(rows.len() + 1);
        for row in &rows {
            match guards.index_row((&building, global), of, (&space.key_of(&row.key), &row.value))? {
                Looked::Keeps(mutation) => mutations.push(mutation),
                Looked::Against(mutation, _) => {
                    mutations.push(mutation);
                    let _ = self.breach.get_or_insert_with(|| row.key.clone());
                }
                Looked::Unplaced(why) => return failed(engine, of, why).map(|change| vec![change]),
            }
        }
        if let Some(last) = rows.last() {
            self.next = [&last.key[..], &[0]].concat().into();
            return Ok(mutations);
        }
        let Some(breach) = self.breach.take() else {
            return settle(engine, of, |one| one.standing = Standing::Valid).map(|change| vec![change]);
        };
        if let Some((_, value)) = engine.get(&breach, ReadAt::Applied)? {
            let row = (&space.key_of(&breach)[..], &value[..]);
            match guards.index_row((&Building::new(engine), global), of, row)? {
                Looked::Against(_, why) | Looked::Unplaced(why) => {
                    return failed(engine, of, why).map(|change| vec![change]);
                }
                Looked::Keeps(_) => {}
            }
        }
        // That row was mended meanwhile. Whether others are against it is seen from the start.
        self.next = Bytes::new();
        self.build((engine, global), settings, of)
    }

    /// An entry at `at` makes a step that [`KnownCatalog::next_step`] gave; with whether it changes a
    /// definition.
    pub fn stepped_at(&mut self, at: Position, defines: bool) {
        assert!(at.term == self.term, "rows are removed in term {} by what {} knew", at.term, self.term);
        self.last = at.lsn;
        if defines {
            (self.chores, self.next, self.guards, self.breach) = (None, Bytes::new(), None, None);
        }
    }

    /// What must hold of it in a log that ends at `end`.
    pub fn validate(&self, leading: Option<Term>, end: Lsn) -> Result<(), String> {
        match leading == Some(self.term) && self.last > end {
            true => Err(format!("the last entry about tables, {}, is behind the log's end {end}", self.last)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
