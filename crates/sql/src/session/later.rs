//! Changes of tables that are part of a transaction: they wait for its COMMIT, and its own statements see
//! them at once.

use super::SqlSession;
use crate::alter::Rekey;
use crate::altering::apply::{self, Applied, SequenceChanges};
use crate::altering::rewrite::{self, Rewrite};
use crate::altering::{Altering, carry, demands};
use crate::catalog::{Catalog, as_of};
use crate::constraining::{self, Constraining, Step};
use crate::constraints::define::{self, Declared, Place};
use crate::database;
use crate::ddl;
use crate::driver::Place as Where;
use crate::fault;
use crate::losses::Losses;
use crate::numbering;
use crate::plan::Work;
use crate::several;
use crate::truncate;
use crate::txn::Open;
use crate::views;
use pg::Failure;
use sqlparser::ast::CreateTable;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::data::constraint::{Demand, Standing};
use types::{CatalogTable, TableId, TableRecord};

/// The error of a change that writes all rows of a table again, which a transaction has not made.
pub(super) fn writes_rows(table: &str) -> Failure {
    let what = format!("a change in a transaction block that writes all rows of \"{table}\" again");
    Failure::unsupported(what, "send it by itself, outside of BEGIN, or make the table in the transaction")
}

/// The error of a table or a constraint that cannot be changed any more in this transaction.
fn is_stored(table: &str) -> Failure {
    let what = format!("changing \"{table}\", of which the transaction has stored rows already");
    Failure::unsupported(what, "COMMIT first, or change it before COPY")
}

impl SqlSession {
    /// Makes, alters or drops tables when the transaction commits. False: it cannot wait for that.
    pub(super) async fn define_later(&mut self, work: &Work) -> Result<bool, Failure> {
        let handle = self.evaluator.handle.clone();
        let catalog = handle.current().await?;
        let apart = handle.place() == Where::Shared;
        match work {
            Work::CreateTable(create, _) if apart && ddl::is_apart(create) => return Ok(false),
            Work::DropTables { names, .. } if names.iter().any(|name| !catalog.is_within(name)) => {
                return Ok(false);
            }
            Work::CreateTable(create, indexes) => self.create_later(&catalog, create, indexes).await?,
            Work::DropTables { names, if_exists, cascade } => {
                self.drop_later(&catalog, names, (*if_exists, *cascade)).await?;
            }
            Work::Truncate { names, restart, .. } => self.truncate_later(&catalog, names, *restart).await?,
            Work::Alter(altering) => return self.alter_later(&catalog, altering).await,
            Work::Rekey(key) => return self.rekey_later(&catalog, key),
            Work::Constrain(Some(change), _) => return self.constrain_later(&catalog, change).await,
            // Nothing is to be done.
            Work::Constrain(None, _) | Work::AlterTable(None) => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn create_later(
        &mut self,
        catalog: &Arc<Catalog>,
        create: &CreateTable,
        indexes: &[Declared],
    ) -> Result<(), Failure> {
        let handle = self.evaluator.handle.clone();
        let (name, schema, declared, numbered) = ddl::in_database(create, indexes)?;
        if catalog.has_relation(&name) {
            return match create.if_not_exists {
                true => {
                    self.note(format!("relation \"{name}\" already exists, skipping"));
                    Ok(())
                }
                false => Err(database::taken(&name)),
            };
        }
        let schema = several::placed(&handle, schema)?;
        database::counted(&handle, &schema).await?;
        let count = 1 + declared.len() + numbered.len();
        let first = database::numbers(&handle, count as u32).await?;
        let now = self.catalog_now(catalog);
        let sequences = first + 1 + declared.len() as u32;
        let (schema, sequences) = numbering::columns(&now, (&name, &schema), &numbered, sequences)?;
        let asked = (&name[..], &schema, &declared[..]);
        self.make(catalog, database::constrained(&now, asked, first)?)?;
        for sequence in sequences {
            self.make(catalog, sequence)?;
        }
        Ok(())
    }

    /// Drops tables; with `cascade` tables that stay lose foreign keys and defaults.
    async fn drop_later(
        &mut self,
        catalog: &Arc<Catalog>,
        names: &[String],
        (if_exists, cascade): (bool, bool),
    ) -> Result<(), Failure> {
        let now = self.catalog_now(catalog);
        let ids = names.iter().filter_map(|name| now.table(name)).map(|table| table.id).collect();
        let referring = database::referring(&now, &ids);
        if !cascade {
            database::not_referred(&now, &referring)?;
            numbering::number_no_others(&now, &ids)?;
        }
        for name in names {
            match now.table(name) {
                Some(_) => views::not_shown(&now, name, "table", &BTreeSet::new())?,
                None if if_exists => self.note(format!("table \"{name}\" does not exist, skipping")),
                None => return Err(database::missing(name)),
            }
        }
        let foreign = referring.iter().map(|(_, foreign, _)| foreign.number).collect();
        self.lose(catalog, Losses::new(&now, &foreign, numbering::owned_by(&now, &ids), &ids)).await?;
        for (child, foreign, _) in &referring {
            let note = format!("drop cascades to constraint {} on table {}", foreign.name, child.name);
            self.note(note);
        }
        for other in numbering::others_numbered(&now, &ids) {
            self.note(format!("drop cascades to {}", other.what));
        }
        for table in now.all().filter(|table| ids.contains(&table.id)) {
            self.unmake(catalog, table)?;
            for sequence in numbering::owned(&now, table) {
                self.unmake(catalog, &sequence)?;
            }
        }
        Ok(())
    }

    /// Tables without a row under the names of these, when the transaction commits.
    async fn truncate_later(
        &mut self,
        catalog: &Arc<Catalog>,
        names: &[String],
        restart: bool,
    ) -> Result<(), Failure> {
        let handle = self.evaluator.handle.clone();
        let now = self.catalog_now(catalog);
        if restart && truncate::is_shared(&now, names) {
            let what = "RESTART IDENTITY in a transaction of numbers that other tables have, too";
            return Err(Failure::unsupported(what, "send it by itself"));
        }
        let owned = truncate::owned(&now, names).len();
        let first = database::numbers(&handle, (names.len() + owned) as u32).await?;
        let mut sequences = first + names.len() as u32;
        let renamed = truncate::renamed(&now, names, first)?;
        for (name, id) in names.iter().zip(first..) {
            let missing = || Failure::new("42P01", format!("relation \"{name}\" does not exist"));
            let table = self.catalog_now(catalog).table(name).cloned().ok_or_else(missing)?;
            let now = self.catalog_now(catalog);
            self.unmake(catalog, &table)?;
            let mut emptied = truncate::emptied(&table, (TableId(id), &renamed), restart);
            let again = numbering::again(&now, &table, restart, sequences);
            sequences += again.len() as u32;
            for (old, new) in again {
                numbering::instead(&mut emptied, old.id, new.id);
                self.unmake(catalog, &old)?;
                self.make(catalog, new)?;
            }
            self.make(catalog, emptied)?;
        }
        Ok(())
    }

    /// The tables as they are after what was done until now.
    fn catalog_now(&self, catalog: &Arc<Catalog>) -> Arc<Catalog> {
        let own = self.open.as_ref().and_then(|open| open.definitions().catalog().cloned());
        own.unwrap_or_else(|| catalog.clone())
    }

    pub(super) fn make(&mut self, catalog: &Arc<Catalog>, table: CatalogTable) -> Result<(), Failure> {
        let record = self.evaluator.handle.database_record()?.record().with_table(table);
        self.may_define()?;
        if let Some(open) = &mut self.open {
            open.define(|definitions| definitions.make(catalog, record));
        }
        Ok(())
    }

    pub(super) fn unmake(&mut self, catalog: &Arc<Catalog>, table: &TableRecord) -> Result<(), Failure> {
        self.may_define()?;
        if let Some(open) = &mut self.open {
            open.define(|definitions| definitions.unmake(catalog, table));
        }
        Ok(())
    }

    /// Gives a table another definition, whoever has made it.
    fn amend(
        &mut self,
        catalog: &Arc<Catalog>,
        before: &Arc<TableRecord>,
        to: CatalogTable,
    ) -> Result<(), Failure> {
        self.is_made(before)?;
        let record = self.evaluator.handle.database_record()?.record().with_table(to);
        self.may_define()?;
        if let Some(open) = &mut self.open {
            open.define(|definitions| definitions.alter(catalog, before, record));
        }
        Ok(())
    }

    /// Tables that stay are without what goes.
    async fn lose(&mut self, catalog: &Arc<Catalog>, losses: Losses) -> Result<(), Failure> {
        if losses.count() == 0 {
            return Ok(());
        }
        let first = database::numbers(&self.evaluator.handle, losses.count() as u32).await?;
        for (table, to) in losses.amended(first)? {
            self.amend(catalog, &table, to)?;
        }
        Ok(())
    }

    /// What a transaction writes lies in one partition, and tables that lie together are rows of theirs.
    fn may_define(&self) -> Result<(), Failure> {
        let Some(table) = self.open.as_ref().and_then(Open::has_written_apart) else { return Ok(()) };
        let what = "making or dropping tables in a transaction that has written in another partition";
        Err(Failure::unsupported(what, format!("rows of \"{}\" are written: COMMIT first", table.name())))
    }

    /// True if the transaction has made the table. The error: it has stored rows of it, and cannot change it
    /// any more.
    fn is_made(&self, table: &TableRecord) -> Result<bool, Failure> {
        let Some(open) = &self.open else { return Ok(false) };
        match open.definitions().has_loaded(table.id) {
            true => Err(is_stored(&table.name)),
            false => Ok(open.definitions().has_made(table.id)),
        }
    }

    /// True if rows of the table are in the transaction's buffer.
    fn has_written(&self, table: TableId) -> bool {
        self.open.as_ref().is_some_and(|open| open.has_written(table))
    }

    /// The table of this name, to be altered with the transaction. `Err` inside: there is nothing to alter,
    /// as there is no such table and that is allowed (true), or it is done at once, as the table has
    /// partitions for itself (false).
    fn find_to_alter(
        &mut self,
        catalog: &Arc<Catalog>,
        (name, if_exists): (&str, bool),
    ) -> Result<Result<Arc<TableRecord>, bool>, Failure> {
        let message = format!("relation \"{name}\" does not exist");
        match self.catalog_now(catalog).table(name).cloned() {
            Some(table) if table.database().is_some() => Ok(Ok(table)),
            Some(_) => Ok(Err(false)),
            None if if_exists => {
                self.note(format!("{message}, skipping"));
                Ok(Err(true))
            }
            None => Err(Failure::new("42P01", message)),
        }
    }

    /// Another definition for a table. False: it is done at once.
    pub(super) async fn alter_later(
        &mut self,
        catalog: &Arc<Catalog>,
        altering: &Altering,
    ) -> Result<bool, Failure> {
        let asked = (&altering.table[..], altering.if_exists);
        let table = match self.find_to_alter(catalog, asked)? {
            Ok(table) => table,
            Err(done) => return Ok(done),
        };
        if altering.steps.is_empty() {
            // It gives the table to the one role.
            return Ok(true);
        }
        let (made, written) = (self.is_made(&table)?, self.has_written(table.id));
        let now = self.open.as_ref().map_or_else(super::now, |open| open.now);
        // Rows that it has written say by which columns.
        let count = 1 + apply::constraints(altering);
        let version = database::numbers(&self.evaluator.handle, count).await?;
        let seen = self.catalog_now(catalog);
        let mut applied = apply::apply(&seen, &table, altering, (version + 1, now))?;
        let rekeys = applied.rekeys(&table.schema);
        if (rekeys || !applied.values.is_empty()) && (written || !made) {
            return Err(writes_rows(&table.name));
        }
        // What cannot become of rows is refused whether there are any or not.
        rewrite::transforms(&table, &applied)?;
        applied.fill();
        let rekeyed = match rekeys {
            true => Some(Rewrite::of(&seen, &table, &applied)?.of_no_rows(&seen, &table)?),
            false => None,
        };
        let sequences = std::mem::take(&mut applied.sequences);
        applied.notes.iter().for_each(|note| self.note(note.clone()));
        self.alter_around(catalog, (&seen, &table), &applied, sequences).await?;
        let to = match rekeyed {
            Some(schema) => CatalogTable::new(table.id, &applied.name, schema, table.created_ms),
            None if made => carry::renewed(&table, &applied, version)?,
            None => to_build(carry::renewed(&table, &applied, version)?, &applied.added)?,
        };
        self.amend(catalog, &table, to)?;
        self.look_at_rows(&table).await?;
        Ok(true)
    }

    /// What becomes of sequences and of other tables where one is altered.
    async fn alter_around(
        &mut self,
        catalog: &Arc<Catalog>,
        (seen, table): (&Catalog, &TableRecord),
        applied: &Applied,
        SequenceChanges { made, gone }: SequenceChanges,
    ) -> Result<(), Failure> {
        self.lose(catalog, Losses::new(seen, &applied.gone, gone.clone(), &[table.id].into())).await?;
        for sequence in seen.others().filter(|other| gone.contains(&other.id)) {
            self.unmake(catalog, sequence)?;
        }
        for sequence in made {
            self.make(catalog, sequence)?;
        }
        Ok(())
    }

    /// Another key for a table that the transaction has made.
    fn rekey_later(&mut self, catalog: &Arc<Catalog>, key: &Rekey) -> Result<bool, Failure> {
        let Some(table) = catalog.table(&key.table).cloned() else { return Ok(false) };
        fault::together(&table, "another primary key")?;
        if !self.is_made(&table)? || self.has_written(table.id) {
            let hint = "COMMIT first, or name the key in CREATE TABLE";
            return Err(Failure::unsupported(
                "another primary key in a transaction for a table that it has not made, or has written",
                hint,
            ));
        }
        if let Some(fault) = key.fault(&table.schema) {
            return Err(fault);
        }
        let now = self.catalog_now(catalog);
        let schema = Rewrite::keyed(&now, &table, key.columns.as_deref())?.of_no_rows(&now, &table)?;
        self.make(catalog, CatalogTable::new(table.id, &table.name, schema, table.created_ms))?;
        Ok(true)
    }

    /// Other constraints and indexes for a table. False: it is done at once.
    async fn constrain_later(
        &mut self,
        catalog: &Arc<Catalog>,
        change: &Constraining,
    ) -> Result<bool, Failure> {
        let asked = (&change.table[..], change.if_exists);
        for step in &change.steps {
            // The steps before have changed it.
            let table = match self.find_to_alter(catalog, asked)? {
                Ok(table) => table,
                Err(done) => return Ok(done),
            };
            match step {
                Step::Add { declared, not_valid, if_not_exists } => {
                    let how = (*not_valid, *if_not_exists);
                    self.constrain(catalog, &table, declared, how).await?;
                }
                Step::Drop { name, if_exists, cascade } => {
                    let how = (*if_exists, *cascade, change.tag == "DROP INDEX");
                    let seen = self.catalog_now(catalog);
                    let (changed, notes) = constraining::dropping(&seen, &table, name, how)?;
                    notes.into_iter().for_each(|note| self.note(note));
                    let count = changed.len().max(1) as u32;
                    let first = database::numbers(&self.evaluator.handle, count).await?;
                    for ((id, constraints), version) in changed.into_iter().zip(first..) {
                        let Some(table) = seen.all().find(|table| table.id == id) else { continue };
                        let to = as_of(table, version).constrained(constraints);
                        self.amend(catalog, table, to.map_err(|why| Failure::new("42P16", why))?)?;
                    }
                }
                Step::Validate(name) => self.validate_later(catalog, &table, name).await?,
            }
        }
        Ok(true)
    }

    /// Adds a constraint or an index.
    async fn constrain(
        &mut self,
        catalog: &Arc<Catalog>,
        table: &Arc<TableRecord>,
        declared: &Declared,
        (not_valid, if_not_exists): (bool, bool),
    ) -> Result<(), Failure> {
        let seen = self.catalog_now(catalog);
        let known = declared.name.as_deref().filter(|_| if_not_exists);
        if let Some(name) = known.filter(|name| constraining::has_index(&seen, name)) {
            self.note(format!("relation \"{name}\" already exists, skipping"));
            return Ok(());
        }
        let made = self.is_made(table)?;
        let first = database::numbers(&self.evaluator.handle, 2).await?;
        let (version, number) = (first, first + 1);
        let place = Place { catalog: &seen, name: &table.name, id: table.id, schema: &table.schema };
        let mut all = place.resolve(std::slice::from_ref(declared), number)?;
        if let Some(last) = all.pop() {
            let is_check = matches!(last.demand, Demand::Check(_));
            // Whether rows keep a check that is valid somebody has looked at.
            let builds = if is_check { not_valid } else { !made };
            all.push(if builds { last.turned(Standing::Building) } else { last });
        }
        let to = as_of(table, version).constrained(all).map_err(|why| Failure::new("42P16", why))?;
        self.amend(catalog, table, to)?;
        if let Some(open) = self.open.as_mut().filter(|_| not_valid) {
            open.define(|definitions| definitions.set_not_valid(number, true));
        }
        self.look_at_rows(table).await
    }

    /// VALIDATE CONSTRAINT of what the transaction has added itself, or of what is valid.
    async fn validate_later(
        &mut self,
        catalog: &Arc<Catalog>,
        table: &Arc<TableRecord>,
        name: &str,
    ) -> Result<(), Failure> {
        let constraint = table.schema.constraint_named(name);
        let constraint = constraint.ok_or_else(|| define::missing(name, &table.name))?;
        let number = constraint.number;
        let own = |open: &Open| open.definitions().not_valid().contains(&number);
        if !self.open.as_ref().is_some_and(own) {
            return match constraint.is_kept() {
                true => Ok(()),
                false => {
                    let what = "VALIDATE CONSTRAINT in a transaction that has not added it";
                    Err(Failure::unsupported(what, "send it by itself, outside of BEGIN"))
                }
            };
        }
        let mut all = table.schema.constraints().to_vec();
        let is_own = |one: &&mut types::data::Constraint| one.number == number && one.indexed().is_none();
        all.iter_mut().filter(is_own).for_each(|one| one.standing = Standing::Valid);
        let version = database::numbers(&self.evaluator.handle, 1).await?;
        let to = as_of(table, version).constrained(all).map_err(|why| Failure::new("42P16", why))?;
        self.amend(catalog, table, to)?;
        if let Some(open) = &mut self.open {
            open.define(|definitions| definitions.set_not_valid(number, false));
        }
        // It is asked of rows from here on, so without it the table was another one.
        let others = table.schema.constraints().iter().filter(|one| one.number != number);
        let before = as_of(table, version).constrained(others.cloned().collect());
        let before = before.map_err(|why| Failure::new("42P16", why))?;
        let before = self.evaluator.handle.database_record()?.record().with_table(before);
        self.look_at_rows(&before).await
    }

    /// Looks at rows, those that the transaction has written among them, for what a table demands of them
    /// beside what it has demanded `before`. Those of others are looked at again by COMMIT.
    async fn look_at_rows(&mut self, before: &TableRecord) -> Result<(), Failure> {
        self.see_own_tables();
        let Some(open) = &self.open else { return Ok(()) };
        if open.definitions().has_made(before.id) && !open.has_written(before.id) {
            return Ok(());
        }
        let (now, not_valid) = (open.now, open.definitions().not_valid().clone());
        let catalog = self.evaluator.handle.current().await?;
        let Some(table) = catalog.all().find(|table| table.id == before.id).cloned() else { return Ok(()) };
        let demanded = demands::of(&before.schema, &table, &not_valid)?;
        if demanded.is_empty() {
            return Ok(());
        }
        let view = self.view().await?;
        for one in demanded {
            if let Some(failure) = one.against(&self.evaluator, &view, &table, now).await? {
                return Err(failure);
            }
        }
        Ok(())
    }
}

/// A definition of a table that was there: indexes of new constraints, by their numbers, are not built yet.
fn to_build(table: CatalogTable, new: &[u32]) -> Result<CatalogTable, Failure> {
    let mut all = table.schema.constraints().to_vec();
    for one in all.iter_mut().filter(|one| new.contains(&one.number) && one.indexed().is_some()) {
        one.standing = Standing::Building;
    }
    table.constrained(all).map_err(|why| Failure::new("42P16", why))
}
