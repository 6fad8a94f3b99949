//! Sequences and views: made, changed and dropped, at once or with the transaction.

use super::{SqlSession, later};
use crate::altering::{self, Altering, Step, carry};
use crate::bind::{folded, new_name, table_name};
use crate::catalog::{Catalog, as_of};
use crate::constraints::violation;
use crate::database;
use crate::ddl;
use crate::fault;
use crate::numbering::{self, Counting, SequenceStatement, defined};
use crate::plan::Work;
use crate::read::Values;
use crate::views::{self, ViewStatement};
use pg::{Failure, Outcome};
use sqlparser::ast::ObjectName;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::data::kind::{Kind, Sequence};
use types::{CatalogTable, TableId};
use wire::{RecordText, TableChange};

impl SqlSession {
    /// Makes, changes or drops sequences.
    pub(super) async fn sequence(&mut self, statement: &SequenceStatement) -> Result<Outcome, Failure> {
        match statement {
            SequenceStatement::Create { name, if_not_exists, options } => {
                self.create_sequence(name, *if_not_exists, options).await?;
            }
            SequenceStatement::Alter { name, if_exists, options, rename } => {
                let catalog = self.tables().await?;
                let found = match numbering::find(&catalog, name) {
                    Err(failure) if *if_exists && failure.code == "42P01" => {
                        self.note(format!("relation \"{}\" does not exist, skipping", table_name(name)?));
                        return Ok(Outcome::Done(statement.tag().into()));
                    }
                    found => found?,
                };
                // It stays in its schema.
                let place = table_name(name)?;
                let place = catalog.placed(&place).0.map_or(String::new(), |schema| format!("{schema}."));
                let rename = rename.as_ref().map(|to| format!("{place}{}", folded(to)));
                self.alter_sequence(&catalog, found, (options, rename)).await?;
            }
            SequenceStatement::Drop { names, if_exists, cascade } => {
                for name in names {
                    let catalog = self.tables().await?;
                    match numbering::find(&catalog, name) {
                        Err(failure) if *if_exists && failure.code == "42P01" => {
                            let name = table_name(name)?;
                            self.note(format!("sequence \"{name}\" does not exist, skipping"));
                        }
                        Err(failure) if failure.code == "42P01" => {
                            let message = format!("sequence \"{}\" does not exist", table_name(name)?);
                            return Err(Failure::new("42P01", message));
                        }
                        found => self.drop_sequence(&catalog, found?.0, *cascade).await?,
                    }
                }
            }
        }
        Ok(Outcome::Done(statement.tag().into()))
    }

    /// True if what is made becomes part of the transaction that is open.
    fn is_later(&self) -> bool {
        self.open.is_some() && self.evaluator.handle.spread().is_none()
    }

    /// The tables as this session sees them now.
    pub(super) async fn tables(&mut self) -> Result<Arc<Catalog>, Failure> {
        self.see_own_tables();
        match self.is_later() {
            true => self.evaluator.handle.current().await,
            false => self.evaluator.handle.look().await,
        }
    }

    /// Adds a definition, at once or with the transaction.
    pub(super) async fn add_definition(&mut self, table: CatalogTable) -> Result<(), Failure> {
        if self.is_later() {
            let catalog = self.evaluator.handle.current().await?;
            return self.make(&catalog, table);
        }
        let make = |catalog: &Catalog| match catalog.has_relation(&table.name) {
            true => Err(database::taken(&table.name)),
            false => Ok(vec![client::created(&table)]),
        };
        database::change(&self.evaluator.handle, make).await
    }

    /// Takes definitions away, at once or with the transaction.
    pub(super) async fn remove_definitions(&mut self, ids: &BTreeSet<TableId>) -> Result<(), Failure> {
        let catalog = self.tables().await?;
        if self.is_later() {
            for other in catalog.definitions().filter(|other| ids.contains(&other.id)) {
                self.unmake(&catalog, other)?;
            }
            return Ok(());
        }
        let make = |catalog: &Catalog| {
            let found = catalog.definitions().filter(|other| ids.contains(&other.id));
            let drop =
                found.map(|other| TableChange::Drop { table: other.id, schema: other.schema.version() });
            Ok(drop.collect())
        };
        database::change(&self.evaluator.handle, make).await
    }

    async fn create_sequence(
        &mut self,
        name: &ObjectName,
        if_not_exists: bool,
        options: &Counting,
    ) -> Result<(), Failure> {
        let catalog = self.tables().await?;
        let name = new_name(&catalog, name)?;
        if catalog.has_relation(&name) {
            if if_not_exists {
                self.note(format!("relation \"{name}\" already exists, skipping"));
                return Ok(());
            }
            return Err(database::taken(&name));
        }
        let sequence = options.sequence(64, None)?;
        database::counters(&self.evaluator.handle).await?;
        let id = TableId(database::numbers(&self.evaluator.handle, 1).await?);
        self.add_definition(defined(id, &name, sequence)).await?;
        if let Some(Some((table, column))) = &options.owner {
            self.change_columns(table, vec![Step::Own(column.clone(), Some(id.0))]).await?;
        }
        Ok(())
    }

    /// Changes a table's columns, at once or with the transaction.
    async fn change_columns(&mut self, table: &str, steps: Vec<Step>) -> Result<(), Failure> {
        let altering = Altering { table: table.into(), if_exists: false, steps };
        if self.is_later() {
            let catalog = self.evaluator.handle.current().await?;
            if self.alter_later(&catalog, &altering).await? {
                return Ok(());
            }
        }
        let values = Values { parameters: Vec::new(), now: super::now() };
        carry::carry_out(&self.evaluator, &altering, &values).await.map(drop)
    }

    async fn alter_sequence(
        &mut self,
        catalog: &Arc<Catalog>,
        (id, before): (TableId, Sequence),
        (options, rename): (&Counting, Option<String>),
    ) -> Result<(), Failure> {
        let sequence = options.sequence(before.bits, Some(&before))?;
        let handle = self.evaluator.handle.clone();
        if sequence != before || rename.is_some() {
            if let Some(name) = rename.as_ref().filter(|name| catalog.has_relation(name)) {
                return Err(database::taken(name));
            }
            let (last, called) = self.evaluator.sequences.standing(&handle, id).await?;
            let version = database::numbers(&handle, 1).await?;
            let changed = |catalog: &Catalog| {
                let other = catalog.others().find(|other| other.id == id)?;
                let mut to = as_of(other, version);
                to.schema = to.schema.of_kind(Kind::Sequence(sequence)).ok()?;
                if let Some(name) = &rename {
                    to.name.clone_from(name);
                }
                Some((other.schema.version(), to))
            };
            let made = self.open.as_ref().is_some_and(|open| open.definitions().has_made(id));
            match changed(catalog).filter(|_| made) {
                Some((_, to)) => self.make(catalog, to)?,
                None => {
                    let make = |catalog: &Catalog| {
                        let (from, to) = changed(catalog).ok_or_else(crate::fault::stale)?;
                        Ok(vec![TableChange::Alter { from, to: RecordText::new(&to) }])
                    };
                    database::change(&handle.seeing(None), make).await?;
                }
            }
            if called && sequence.step != before.step {
                let next = last.saturating_add(sequence.step);
                self.evaluator.sequences.set(&handle, id, next).await?;
            }
        }
        if let Some(restart) = options.restart {
            let next = restart.unwrap_or(sequence.start);
            let (least, most) = (sequence.least, sequence.most);
            if next < least {
                let message = format!("RESTART value ({next}) cannot be less than MINVALUE ({least})");
                return Err(Failure::new("22023", message));
            }
            if next > most {
                let message = format!("RESTART value ({next}) cannot be greater than MAXVALUE ({most})");
                return Err(Failure::new("22023", message));
            }
            self.evaluator.sequences.set(&handle, id, next).await?;
        }
        match &options.owner {
            None => Ok(()),
            Some(owner) => self.own(catalog, id, owner.as_ref()).await,
        }
    }

    /// A sequence goes with another column, or with none.
    async fn own(
        &mut self,
        catalog: &Catalog,
        id: TableId,
        owner: Option<&(String, String)>,
    ) -> Result<(), Failure> {
        for table in catalog.all() {
            for column in table.schema.columns().iter().filter(|one| one.rules.sequence == Some(id.0)) {
                if owner.is_some_and(|owner| *owner == (table.name.clone(), column.name.clone())) {
                    return Ok(());
                }
                self.change_columns(&table.name, vec![Step::Own(column.name.clone(), None)]).await?;
            }
        }
        match owner {
            None => Ok(()),
            Some((table, column)) => {
                self.change_columns(table, vec![Step::Own(column.clone(), Some(id.0))]).await
            }
        }
    }

    async fn drop_sequence(
        &mut self,
        catalog: &Arc<Catalog>,
        id: TableId,
        cascade: bool,
    ) -> Result<(), Failure> {
        let name = catalog.sequence_by_id(id).map(|(name, _)| name.to_string()).unwrap_or_default();
        for (table, column, identity) in numbering::users(catalog, id) {
            if identity {
                let of = format!("column {column} of table {table}");
                let message = format!("cannot drop sequence {name} because {of} requires it");
                return Err(Failure::new("2BP01", message).hint(format!("You can drop {of} instead.")));
            }
            let what = format!("default value for column {column} of table {table}");
            if !cascade {
                let message = format!("cannot drop sequence {name} because other objects depend on it");
                return Err(violation::depended_on(message, format!("{what} depends on sequence {name}")));
            }
            self.note(format!("drop cascades to {what}"));
            let steps = vec![Step::Default(column.clone(), None), Step::Own(column, None)];
            self.change_columns(&table, steps).await?;
        }
        self.own(catalog, id, None).await?;
        self.remove_definitions(&[id].into()).await
    }

    /// `ALTER COLUMN ... ADD GENERATED AS IDENTITY`.
    pub(super) async fn add_identity(
        &mut self,
        altering: &Altering,
        counting: &Counting,
    ) -> Result<Outcome, Failure> {
        let catalog = self.tables().await?;
        let [Step::Number(column, ..)] = altering.steps.as_slice() else {
            unreachable!("it is read so");
        };
        let missing = || Failure::new("42P01", format!("relation \"{}\" does not exist", altering.table));
        let table = catalog.table(&altering.table).ok_or_else(missing)?;
        fault::together(table, "numbering of rows that are there")?;
        let bits = table.schema.column_index(column).and_then(|at| table.schema.columns()[at].rules.bits);
        let sequence = counting.sequence(bits.unwrap_or(64), None)?;
        let free = || numbering::free_name(&catalog, &altering.table, column, &[]);
        let name = counting.name.clone().unwrap_or_else(free);
        if catalog.has_relation(&name) {
            return Err(database::taken(&name));
        }
        database::counters(&self.evaluator.handle).await?;
        let id = TableId(database::numbers(&self.evaluator.handle, 1).await?);
        let steps = [altering.steps.clone(), vec![Step::Own(column.clone(), Some(id.0))]].concat();
        self.add_definition(defined(id, &name, sequence)).await?;
        if let Err(failure) = self.change_columns(&altering.table, steps).await {
            // The error that led here is told. A sequence that is left can be dropped.
            drop(self.remove_definitions(&[id].into()).await);
            return Err(failure);
        }
        Ok(Outcome::Done("ALTER TABLE".into()))
    }

    /// New columns in which rows are numbered, those that are there in the order of their keys; with the
    /// sequences that number them.
    pub(super) async fn add_numbered(
        &mut self,
        work: &Work,
        altering: &Altering,
    ) -> Result<Outcome, Failure> {
        let done = || Ok(Outcome::Done(work.name().into()));
        ddl::not_moving([&altering.table])?;
        let catalog = self.tables().await?;
        let Some(table) = catalog.table(&altering.table) else {
            let message = format!("relation \"{}\" does not exist", altering.table);
            if !altering.if_exists {
                return Err(Failure::new("42P01", message));
            }
            self.note(format!("{message}, skipping"));
            return done();
        };
        let what = "numbering of rows that are there";
        fault::together(table, what)?;
        let handle = self.evaluator.handle.clone();
        if handle.spread().is_some() && !table.schema.is_replicated() {
            let hint = "make another table, and INSERT ... SELECT what is there";
            return Err(Failure::unsupported(format!("{what} in several partitions"), hint));
        }
        let own = self.open.as_ref().is_some_and(|open| open.definitions().has_made(table.id));
        if !own && self.is_later() {
            return Err(later::writes_rows(&table.name));
        }
        if !own {
            self.defining(work)?;
        }
        database::counters(&handle).await?;
        let first = database::numbers(&handle, altering.steps.len() as u32).await?;
        let altering = altering::numbered(&catalog, table, altering, first)?;
        if !own {
            let values = Values { parameters: Vec::new(), now: super::now() };
            let notes = carry::carry_out(&self.evaluator, &altering, &values).await?;
            notes.into_iter().for_each(|note| self.note(note));
            return done();
        }
        match self.alter_later(&catalog, &altering).await? {
            true => done(),
            false => Err(Failure::unsupported(format!("{what}, and stored already"), "COMMIT first")),
        }
    }

    /// Makes or drops views.
    pub(super) async fn define_view(&mut self, statement: &ViewStatement) -> Result<Outcome, Failure> {
        match statement {
            ViewStatement::Create { name, or_replace, query, .. } => {
                let (name, catalog) = (table_name(name)?, self.tables().await?);
                let id = TableId(database::numbers(&self.evaluator.handle, 1).await?);
                let made = statement.defined(&catalog, id)?;
                if catalog.has_relation(&name) {
                    let view = catalog.other(&name).filter(|other| views::text(other).is_some());
                    let Some(before) = view.filter(|_| *or_replace) else {
                        return Err(match *or_replace {
                            true => Failure::new("42809", format!("\"{name}\" is not a view")),
                            false => database::taken(&name),
                        });
                    };
                    if views::reaches(&catalog, query, &name) {
                        let hint = "a view does not show itself";
                        return Err(Failure::unsupported(format!("the view \"{name}\" in itself"), hint));
                    }
                    views::may_replace(before, &made)?;
                    self.remove_definitions(&[before.id].into()).await?;
                }
                self.add_definition(made).await?;
            }
            ViewStatement::Drop { names, if_exists } => {
                let mut ids = BTreeSet::new();
                for name in names {
                    let (name, catalog) = (table_name(name)?, self.tables().await?);
                    match catalog.other(&name).filter(|other| views::text(other).is_some()) {
                        Some(view) => drop(ids.insert(view.id)),
                        None if catalog.has_relation(&name) => {
                            return Err(Failure::new("42809", format!("\"{name}\" is not a view")));
                        }
                        None if *if_exists => {
                            self.note(format!("view \"{name}\" does not exist, skipping"));
                        }
                        None => {
                            let message = format!("view \"{name}\" does not exist");
                            return Err(Failure::new("42P01", message));
                        }
                    }
                }
                let catalog = self.tables().await?;
                for view in catalog.others().filter(|other| ids.contains(&other.id)) {
                    views::not_shown(&catalog, &view.name, "view", &ids)?;
                }
                self.remove_definitions(&ids).await?;
            }
        }
        Ok(Outcome::Done(statement.tag().into()))
    }
}
