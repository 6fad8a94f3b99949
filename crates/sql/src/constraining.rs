//! ALTER TABLE ... ADD, DROP and VALIDATE CONSTRAINT; CREATE INDEX and DROP INDEX in a database.
//!
//! From the entry that adds it on, whatever is written keeps a constraint. Then rows that were there are
//! looked at: by the partition's primary, or, for a CHECK, here. If one of them does not keep it, it is
//! dropped again, and the statement fails.

use crate::bind::{folded, index_name, table_name};
use crate::catalog::{Catalog, as_of};
use crate::constraints::define::{self, Declared, Place, What};
use crate::constraints::{check, children, lacking, violation};
use crate::database;
use crate::evaluate::Evaluator;
use crate::fault;
use crate::read::{CALL, Values};
use crate::several;
use crate::statements::canceled;
use crate::there;
use bytes::Bytes;
use client::Table;
use pg::{Failure, code};
use sqlparser::ast::{AlterTable, AlterTableOperation, CreateIndex, DropBehavior, ObjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use types::data::constraint::{Constraint, Demand, Standing};
use types::{TableId, TableRecord};
use wire::request::ReadSnapshot;
use wire::{Body, Op, RecordText, TableChange};

/// Between two looks how far a constraint is.
const CONSTRAINT_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often a change is made again because somebody else was faster.
const MAX_ATTEMPTS: usize = 8;
/// Rows that are looked at together.
const ROWS: u32 = 2_000;

/// A change of constraints.
#[derive(Clone, PartialEq, Debug)]
pub struct Constraining {
    /// What the client is told at its end.
    pub tag: &'static str,
    /// The table's name.
    pub table: String,
    /// A table that there is not is skipped.
    pub if_exists: bool,
    /// What is done, one after the other.
    pub steps: Vec<Step>,
}

/// One step of it.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Adds one.
    Add {
        /// As it is written.
        declared: Declared,
        /// Rows that are there may be against it.
        not_valid: bool,
        /// One of this name may be there.
        if_not_exists: bool,
    },
    /// Drops one.
    Drop {
        /// Its name.
        name: String,
        /// One that there is not is skipped.
        if_exists: bool,
        /// With the foreign keys that need it.
        cascade: bool,
    },
    /// Looks at rows that were there before it.
    Validate(String),
}

/// The change of constraints that an ALTER TABLE is, if it is one.
pub fn read(alter: &AlterTable) -> Result<Option<Constraining>, Failure> {
    let mut steps = Vec::new();
    for operation in &alter.operations {
        match operation {
            AlterTableOperation::AddConstraint { constraint, not_valid } => {
                let (not_valid, if_not_exists) = (*not_valid, false);
                let declared = define::of_table(constraint)?;
                steps.extend(declared.map(|declared| Step::Add { declared, not_valid, if_not_exists }));
            }
            AlterTableOperation::DropConstraint { if_exists, name, drop_behavior } => {
                let cascade = *drop_behavior == Some(DropBehavior::Cascade);
                steps.push(Step::Drop { name: folded(name), if_exists: *if_exists, cascade });
            }
            AlterTableOperation::ValidateConstraint { name } => steps.push(Step::Validate(folded(name))),
            _ => {}
        }
    }
    if steps.is_empty() {
        return Ok(None);
    }
    if steps.len() < alter.operations.len() {
        let hint = "write an ALTER TABLE of its own for each constraint";
        return Err(Failure::unsupported("constraints beside other changes of a table", hint));
    }
    let table = table_name(&alter.name)?;
    Ok(Some(Constraining { tag: "ALTER TABLE", table, if_exists: alter.if_exists, steps }))
}

/// An index to be, of a table in a database.
pub fn index(catalog: &Catalog, create: &CreateIndex, columns: Vec<String>) -> Result<Constraining, Failure> {
    let table = table_name(&create.table_name)?;
    let name = create.name.as_ref().map(|name| index_name(catalog, name)).transpose()?;
    let what = if create.unique { What::UniqueIndex(columns) } else { What::Index(columns) };
    let declared = Declared { name, what };
    let step = Step::Add { declared, not_valid: false, if_not_exists: create.if_not_exists };
    Ok(Constraining { tag: "CREATE INDEX", table, if_exists: false, steps: vec![step] })
}

/// Indexes to be dropped; `None`: there is nothing to do.
pub fn drop_indexes(
    catalog: &Catalog,
    indexes: &[ObjectName],
    if_exists: bool,
) -> Result<Option<Constraining>, Failure> {
    let mut found: Option<Constraining> = None;
    for name in indexes {
        let name = index_name(catalog, name)?;
        let index = |table: &&Arc<TableRecord>| {
            table.schema.constraint_named(&name).is_some_and(|one| one.named_index().is_some())
        };
        let Some(table) = catalog.all().find(index) else {
            if if_exists {
                continue;
            }
            if name.strip_suffix("_pkey").is_some_and(|of| catalog.table(of).is_some()) {
                let message = format!("cannot drop index {name}: it is the primary key's");
                return Err(Failure::new("2BP01", message));
            }
            return Err(Failure::new("42704", format!("index \"{name}\" does not exist")));
        };
        if found.is_some() {
            return Err(Failure::unsupported("DROP INDEX of several in a database", "drop one at a time"));
        }
        let step = Step::Drop { name, if_exists: false, cascade: false };
        let table = table.name.clone();
        found = Some(Constraining { tag: "DROP INDEX", table, if_exists: false, steps: vec![step] });
    }
    Ok(found)
}

/// Carries it out. What the client may want to know.
pub async fn carry_out(
    evaluator: &Evaluator,
    change: &Constraining,
    values: &Values,
) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    let there = evaluator.handle.look().await?.table(&change.table).is_some();
    if !there && change.if_exists {
        return Ok(vec![format!("relation \"{}\" does not exist, skipping", change.table)]);
    }
    for step in &change.steps {
        match step {
            Step::Add { declared, not_valid, if_not_exists } => {
                let name = declared.name.as_deref().filter(|_| *if_not_exists);
                let catalog = evaluator.handle.catalog();
                let known = name.filter(|name| catalog.as_ref().is_some_and(|all| has_index(all, name)));
                if let Some(name) = known {
                    let left = match unchecked(&evaluator.handle.catalog(), &change.table, name) {
                        None => unsettled(evaluator, &change.table, name).await?,
                        known => known,
                    };
                    if let Some(number) = left {
                        validate(evaluator, (&change.table, number), false, values).await?;
                    }
                    notes.push(format!("relation \"{name}\" already exists, skipping"));
                    continue;
                }
                if let Some(name) = declared.name.as_deref().filter(|_| !not_valid) {
                    // What an earlier try has left is valid by the time that it is said to be there.
                    let left = unsettled(evaluator, &change.table, name).await?;
                    if let Some(number) = left {
                        validate(evaluator, (&change.table, number), false, values).await?;
                    }
                }
                let number = add(evaluator, &change.table, declared).await?;
                if !not_valid {
                    validate(evaluator, (&change.table, number), true, values).await?;
                }
            }
            Step::Drop { name, if_exists, cascade } => {
                let indexes = change.tag == "DROP INDEX";
                let how = (*if_exists, *cascade, indexes);
                let dropped = drop_one(evaluator, &change.table, name, how).await?;
                notes.extend(dropped);
            }
            Step::Validate(name) => {
                let catalog = evaluator.handle.look().await?;
                let table = table_of(&catalog, &change.table)?;
                let constraint = table.schema.constraint_named(name);
                let known = constraint.ok_or_else(|| define::missing(name, &change.table))?.number;
                let number = unsettled(evaluator, &change.table, name).await?.unwrap_or(known);
                validate(evaluator, (&change.table, number), false, values).await?;
            }
        }
    }
    Ok(notes)
}

/// True if a table or an index has this name.
pub fn has_index(catalog: &Catalog, name: &str) -> bool {
    let named = |table: &Arc<TableRecord>| table.schema.constraint_named(name).is_some();
    catalog.table(name).is_some() || catalog.all().any(named)
}

/// The number of a constraint that rows may be against which were there before it.
fn unchecked(catalog: &Option<Arc<Catalog>>, table: &str, name: &str) -> Option<u32> {
    let table = catalog.as_ref()?.table(table)?;
    table.schema.constraint_named(name).filter(|one| one.unchecked).map(|one| one.number)
}

fn table_of(catalog: &Catalog, name: &str) -> Result<Arc<TableRecord>, Failure> {
    let missing = || Failure::new("42P01", format!("relation \"{name}\" does not exist"));
    catalog.table(name).cloned().ok_or_else(missing)
}

/// The constraints that tables have from then on.
type Constrained = BTreeMap<TableId, Vec<Constraint>>;

/// Changes the constraints of tables, all or none. `make` says which ones tables have from then on, from how
/// they are; it is asked again where somebody else was faster. It is given numbers that nothing has: as many
/// as `count`.
async fn change<T>(
    evaluator: &Evaluator,
    count: u32,
    make: impl Fn(&Catalog, u32) -> Result<(Constrained, T), Failure>,
) -> Result<T, Failure> {
    let handle = &evaluator.handle;
    let mut looks = 0;
    loop {
        let catalog = handle.look().await?;
        let first = database::numbers(handle, count).await?;
        let (wanted, made) = make(&catalog, first)?;
        if wanted.is_empty() {
            return Ok(made);
        }
        let versions = database::numbers(handle, wanted.len() as u32).await?;
        let mut changes = Vec::new();
        for ((id, constraints), version) in wanted.into_iter().zip(versions..) {
            let Some(table) = catalog.all().find(|table| table.id == id) else { continue };
            let to = as_of(table, version).constrained(constraints);
            let to = to.map_err(|why| Failure::new("42P16", why))?;
            changes.push(TableChange::Alter { from: table.schema.version(), to: RecordText::new(&to) });
        }
        match several::enter(handle, changes).await {
            Err(failure) if fault::is_stale(&failure) && looks < MAX_ATTEMPTS => looks += 1,
            done => {
                handle.look_again().await;
                return done.map(|()| made);
            }
        }
    }
}

/// Adds one. Its number.
pub async fn add(evaluator: &Evaluator, table: &str, declared: &Declared) -> Result<u32, Failure> {
    change(evaluator, 1, |catalog, number| {
        let table = table_of(catalog, table)?;
        let place = Place { catalog, name: &table.name, id: table.id, schema: &table.schema };
        let mut all = place.resolve(std::slice::from_ref(declared), number)?;
        if let Some(last) = all.pop() {
            all.push(last.turned(Standing::Building));
        }
        Ok(([(table.id, all)].into(), number))
    })
    .await
}

/// The number of a constraint for which rows that were there are being looked at. One that has failed gets
/// another number: its rows are looked at again, for an index of its own (PR-490). None: no constraint of
/// the name is so.
async fn unsettled(evaluator: &Evaluator, table: &str, name: &str) -> Result<Option<u32>, Failure> {
    let handle = &evaluator.handle;
    let catalog = handle.look().await?;
    let Some(record) = catalog.table(table) else { return Ok(None) };
    let Some(found) = record.schema.constraint_named(name) else { return Ok(None) };
    let standing = match (found.standing, found.indexed()) {
        (Standing::Valid, Some(_)) => several::standing(handle, record.id, found.number).await?,
        (standing, _) => standing,
    };
    match standing {
        Standing::Valid | Standing::Dropping => Ok(None),
        Standing::Building => Ok(Some(found.number)),
        Standing::Failed => again(evaluator, table, found.number).await.map(Some),
    }
}

/// Gives a constraint another number, under which its rows are looked at from the start.
async fn again(evaluator: &Evaluator, table: &str, failed: u32) -> Result<u32, Failure> {
    change(evaluator, 1, |catalog, number| {
        let table = table_of(catalog, table)?;
        let mut all = table.schema.constraints().to_vec();
        let one = all.iter_mut().find(|one| one.number == failed && one.is_enforced()).ok_or_else(dropped)?;
        let fresh = Constraint::new(number, &one.name, one.demand.clone());
        *one = Constraint { unchecked: one.unchecked, ..fresh.turned(Standing::Building) };
        Ok(([(table.id, all)].into(), number))
    })
    .await
}

/// Takes constraints away, by their numbers.
pub async fn without(evaluator: &Evaluator, gone: &BTreeSet<u32>) -> Result<(), Failure> {
    change(evaluator, 1, |catalog, _| Ok((lacking(catalog, gone), ()))).await
}

async fn drop_one(
    evaluator: &Evaluator,
    table: &str,
    name: &str,
    how: (bool, bool, bool),
) -> Result<Vec<String>, Failure> {
    let make = |catalog: &Catalog, _| {
        let table = table_of(catalog, table)?;
        dropping(catalog, &table, name, how)
    };
    change(evaluator, 1, make).await
}

/// Tables without a constraint of one of them, and, with `cascade`, without the foreign keys that need it:
/// the constraints that they have then. With what the client may want to know. `indexes`: it may be an index
/// that demands nothing.
pub fn dropping(
    catalog: &Catalog,
    table: &TableRecord,
    name: &str,
    (if_exists, cascade, indexes): (bool, bool, bool),
) -> Result<(Constrained, Vec<String>), Failure> {
    let key = format!("{}_pkey", catalog.placed(&table.name).1);
    if name == key && !table.schema.has_hidden_key() {
        let hint =
            "rows are copied for it: drop it alone, without CASCADE, or with ADD PRIMARY KEY beside it";
        return Err(Failure::unsupported("DROP CONSTRAINT of a primary key in this form", hint));
    }
    let found = table.schema.constraint_named(name).filter(|one| indexes || !one.is_index());
    let Some(constraint) = found else {
        let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name);
        return match if_exists {
            true => Ok((BTreeMap::new(), vec![format!("{message}, skipping")])),
            false => Err(define::missing(name, &table.name)),
        };
    };
    let needing = needing(catalog, table, constraint);
    if let Some((child, foreign)) = needing.first().filter(|_| !cascade) {
        let message = format!(
            "cannot drop constraint {name} on table {} because other objects depend on it",
            table.name
        );
        let detail = format!("constraint {} on table {} depends on index {name}", foreign.name, child.name);
        return Err(violation::depended_on(message, detail));
    }
    let mut gone = BTreeSet::from([constraint.number]);
    gone.extend(needing.iter().map(|(_, foreign)| foreign.number));
    let note = |(child, foreign): &(Arc<TableRecord>, Constraint)| {
        format!("drop cascades to constraint {} on table {}", foreign.name, child.name)
    };
    Ok((lacking(catalog, &gone), needing.iter().map(note).collect()))
}

/// The foreign keys that refer to a table by this constraint.
fn needing(
    catalog: &Catalog,
    table: &TableRecord,
    constraint: &Constraint,
) -> Vec<(Arc<TableRecord>, Constraint)> {
    let Some(columns) = constraint.unique() else { return Vec::new() };
    let own: BTreeSet<&usize> = columns.iter().collect();
    let by = children(catalog, table.id).into_iter();
    by.filter(|(.., reference)| reference.parent_columns.iter().collect::<BTreeSet<_>>() == own)
        .map(|(child, foreign, _)| (child, foreign))
        .collect()
}

/// Waits until a constraint is valid, or looks at rows for it. One that was `added` and is not kept is
/// dropped again.
pub async fn validate(
    evaluator: &Evaluator,
    (table, number): (&str, u32),
    added: bool,
    values: &Values,
) -> Result<(), Failure> {
    let failure = match look_at_rows(evaluator, (table, number), values).await {
        Ok(None) => return Ok(()),
        Ok(Some(against)) => against,
        Err(failure) => failure,
    };
    if added {
        // The error that led here is told. What is left is not valid, and can be dropped.
        drop(without(evaluator, &BTreeSet::from([number])).await);
    }
    Err(failure)
}

/// What rows that were there have against a constraint; `None`: all keep it.
pub async fn look_at_rows(
    evaluator: &Evaluator,
    (name, number): (&str, u32),
    values: &Values,
) -> Result<Option<Failure>, Failure> {
    let mut looked = 0;
    loop {
        let catalog = evaluator.handle.look().await?;
        let table = table_of(&catalog, name)?;
        let found = table.schema.constraints().iter().find(|one| one.number == number);
        let Some(constraint) = found else {
            return Err(dropped());
        };
        let standing = match (constraint.standing, constraint.indexed()) {
            (Standing::Valid, Some(_)) => several::standing(&evaluator.handle, table.id, number).await?,
            (standing, _) => standing,
        };
        let is_check = matches!(constraint.demand, Demand::Check(_));
        let looks = match standing {
            Standing::Valid => constraint.unchecked,
            standing => standing == Standing::Building && is_check && evaluator.handle.is_global(),
        };
        if looks {
            // Only once the transaction manager knows of it, whatever is committed keeps it (PR-346).
            several::level(&evaluator.handle).await?;
            match there::against(evaluator, (&table, constraint), values).await {
                Ok(None) => set_valid(evaluator, number).await?,
                Ok(against) => return Ok(against),
                // The table has got other columns or constraints meanwhile.
                Err(failure) if fault::is_stale(&failure) && looked < MAX_ATTEMPTS => looked += 1,
                Err(failure) => return Err(failure),
            }
            continue;
        }
        match (standing, &constraint.demand) {
            (Standing::Valid, _) => return Ok(None),
            (Standing::Failed, _) => {
                let parent = |id: TableId| catalog.all().find(|table| table.id == id).cloned();
                return Ok(Some(violation::not_kept(&table, constraint, parent)));
            }
            (Standing::Building, Demand::Check(_)) => {
                let against = scan(evaluator, &table, values).await?;
                if against.as_ref() == Some(&constraint.name) {
                    return Ok(Some(violation::check_not_kept(&table, &constraint.name)));
                }
                set_valid(evaluator, number).await?;
            }
            _ => tokio::select! {
                () = tokio::time::sleep(CONSTRAINT_POLL_INTERVAL) => {}
                () = evaluator.cancel.wait() => return Err(canceled()),
            },
        }
    }
}

/// The first check that a row does not keep. Rows that are written from now on do.
async fn scan(
    evaluator: &Evaluator,
    record: &Arc<TableRecord>,
    values: &Values,
) -> Result<Option<String>, Failure> {
    let table = Table::new(record.clone());
    for partition in table.partitions() {
        let mut next = Some(Bytes::new());
        while let Some(from) = next {
            let op = Op::Scan { from, to: Bytes::new(), limit: ROWS, at: ReadSnapshot::Newest };
            let answer = fault::answer(evaluator.handle.call(table.call(partition, op).within(CALL)).await)?;
            let Body::Rows { rows, more } = answer.body else {
                return Err(Failure::new(code::INTERNAL, "a table without rows"));
            };
            let read = rows.iter().map(|(key, _, stored)| table.decode(key, stored));
            let read = read.collect::<Result<Vec<_>, _>>().map_err(fault::of_client)?;
            if let Some((_, name)) = check::first_against(evaluator, &table, &read, values).await? {
                return Ok(Some(name));
            }
            let last = rows.last().map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
            next = last.filter(|_| more);
            if evaluator.cancel.asked() {
                return Err(canceled());
            }
        }
    }
    Ok(None)
}

fn dropped() -> Failure {
    Failure::new(fault::SERIALIZATION, "the constraint was dropped meanwhile")
}

async fn set_valid(evaluator: &Evaluator, number: u32) -> Result<(), Failure> {
    change(evaluator, 1, |catalog, _| {
        let is = |one: &Constraint| one.number == number && one.is_enforced();
        let turned = |one: &Constraint| match is(one) {
            true => Constraint { unchecked: false, ..one.clone().turned(Standing::Valid) },
            false => one.clone(),
        };
        let has = |table: &&Arc<TableRecord>| table.schema.constraints().iter().any(is);
        let of =
            |table: &Arc<TableRecord>| (table.id, table.schema.constraints().iter().map(turned).collect());
        match catalog.all().find(has) {
            Some(table) => Ok(([of(table)].into(), ())),
            None => Err(dropped()),
        }
    })
    .await
}
