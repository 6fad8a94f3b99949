//! ALTER TABLE ... SET (partitions = n): a table that lies together with others gets partitions of its own
//! ([`filling`]), and one that has such gets another number of them ([`respread`]). SET (database =
//! name): one that has such comes to lie together with others ([`back`]). One that lies in another database
//! gets partitions of its own for that before.
//!
//! Its rows are copied into a table that the cluster keeps for that, while nobody writes them, and in one
//! place it is decided that they are there. Of a table that lies together with others that is an entry of
//! the partition's log (PR-124): it drops the table there, and leaves what says where the rows are
//! ([`crate::catalog::Moved`]). Only behind that the other table gets the name. So there is one table of the
//! name or none for a moment, never two, and whoever looks for it finishes what another one has begun
//! ([`crate::moved`], PR-378). Of a bare table that gets other partitions it is a transaction of the
//! metastore, and of one that comes to lie with others an entry of the log again ([`crate::held`], PR-400,
//! PR-404).

pub mod back;
mod copying;
pub mod filling;
pub mod respread;

use crate::altering::rewrite;
use crate::bind::{folded, table_name};
use crate::catalog::Catalog;
use crate::columns;
use crate::constraints::children;
use crate::constraints::define::invalid;
use crate::database;
use crate::ddl::{self, on_a_client};
use crate::driver::{Handle, Place};
use crate::evaluate::Evaluator;
use crate::fault;
use crate::held::bare;
use crate::moved;
use crate::numbering;
use crate::views;
use client::{Client, Database, Table};
use pg::Failure;
use sqlparser::ast::{AlterTable, AlterTableOperation, SqlOption};
use std::collections::BTreeSet;
use std::sync::Arc;
use types::data::constraint::{Constraint, Demand, Standing};
use types::data::kind::Sequence;
use types::data::{Column, Identity, Schema};
use types::policy::Below;
use types::{Policy, TableId, TableRecord, system};
use wire::TableChange;
use wire::control::{AddIndex, CreateTable as Request};

/// How often rows are copied again because somebody has changed the table meanwhile.
const MAX_CHANGES: usize = 16;

/// A table that is to have partitions of its own.
#[derive(Clone, PartialEq, Debug)]
pub struct Move {
    /// Its name.
    pub table: String,
    /// How it is to be kept, as it is written.
    pub options: Vec<SqlOption>,
}

/// What becomes of the table.
#[derive(Clone, PartialEq, Debug)]
pub struct MovePlan {
    /// The table that gets the rows, but for its name.
    pub request: Request,
    /// Which columns of the table it has, in order.
    pub columns: Vec<usize>,
    /// Its indexes.
    pub indexes: Vec<AddIndex>,
    /// What goes with it: the sequences that number its rows, whose counters go on.
    pub gone: Vec<TableChange>,
}

/// The move that an ALTER TABLE is, if it is one. What the table has is looked at.
pub fn read(catalog: &Catalog, alter: &AlterTable) -> Result<Option<Move>, Failure> {
    let [AlterTableOperation::SetOptionsParens { options }] = alter.operations.as_slice() else {
        return Ok(None);
    };
    let table = table_name(&alter.name)?;
    let Some(known) = catalog.table(&table) else { return Ok(None) };
    match (known.database(), says(options, "partitions"), says(options, "database")) {
        (None, _, true) => {
            refuse_bare(known)?;
            destination(options)?;
        }
        (None, true, false) => {
            refuse_bare(known)?;
            MovePlan::of(known, options)?;
        }
        (Some(_), true, _) => {
            refuse(catalog, known)?;
            MovePlan::of(known, options)?;
        }
        (Some(_), false, true) if destination(options)?.as_deref() != Some(catalog.database()) => {
            refuse(catalog, known)?;
        }
        _ => return Ok(None),
    }
    Ok(Some(Move { table, options: options.clone() }))
}

/// The database that a table is to come into, if it is to come into one.
fn destination(options: &[SqlOption]) -> Result<Option<String>, Failure> {
    match options {
        [SqlOption::KeyValue { value, .. }] if says(options, "database") => ddl::option_text(value).map(Some),
        _ if says(options, "database") => {
            let message = "a table that comes into a database is kept as that is";
            Err(Failure::new("22023", message).hint("say database = name, and nothing else"))
        }
        _ => Ok(None),
    }
}

/// True if one of the options is this one.
fn says(options: &[SqlOption], name: &str) -> bool {
    options.iter().any(|option| matches!(option, SqlOption::KeyValue { key, .. } if folded(key) == name))
}

/// Refuses a table that is the cluster's own, or that gets the rows of another one.
fn refuse_own(table: &TableRecord) -> Result<(), Failure> {
    match system::is_reserved(&table.name) {
        false => Ok(()),
        true => Err(Failure::new("42501", format!("permission denied for table {}", table.name))
            .hint("it is the cluster's own")),
    }
}

/// Refuses a bare table that cannot be held, or whose rows a failover may lose while they are copied.
fn refuse_bare(table: &TableRecord) -> Result<(), Failure> {
    refuse_own(table)?;
    match is_lazy(&table.policy) {
        false => Ok(()),
        true => {
            let what = format!("moving rows out of partitions whose policy is {}", table.policy.name);
            let hint = "a failover could lose some that have been copied: ALTER TABLE ... SET (policy = \
                        durable) first";
            Err(Failure::unsupported(what, hint))
        }
    }
}

/// True if a failover may lose what was acknowledged.
fn is_lazy(policy: &Policy) -> bool {
    policy.factor > 1 && policy.rests_on().is_primary()
}

/// Refuses a table that has what tables with partitions of their own cannot have.
fn refuse(catalog: &Catalog, table: &TableRecord) -> Result<(), Failure> {
    let name = &table.name;
    let refused = |what: &str, hint: &str| {
        Err(Failure::unsupported(format!("moving \"{name}\", {what}, into partitions of its own"), hint))
    };
    refuse_own(table)?;
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !letters || !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return refused(
            "whose name is not letters, digits and _ in the schema public",
            "give it another name",
        );
    }
    if table.schema.has_hidden_key() {
        let hint = "its rows would be spread by nothing: ALTER TABLE ... ADD PRIMARY KEY";
        return refused("which has no primary key", hint);
    }
    let referring = children(catalog, table.id).into_iter().find(|one| one.0.id != table.id);
    if let Some((child, foreign, _)) = referring {
        let hint = format!("drop the constraint \"{}\" of \"{}\" first", foreign.name, child.name);
        return refused("to which others refer", &hint);
    }
    for at in table.schema.visible() {
        let column = &table.schema.columns()[at];
        if let Some(how) = numbered_otherwise(catalog, table, column) {
            let hint =
                "ALTER TABLE ... ALTER COLUMN ... DROP DEFAULT or DROP IDENTITY, and no sequence is its";
            return refused(&format!("whose column \"{}\" is numbered {how}", column.name), hint);
        }
    }
    for one in table.schema.constraints() {
        let what = match (&one.demand, one.standing) {
            (_, Standing::Dropping) => continue,
            (Demand::Index(_) | Demand::Check(_), Standing::Valid) if !one.unchecked => continue,
            (Demand::Index(_), _) => "an index that is not ready",
            (Demand::Check(_), _) => "a CHECK that is not valid",
            (Demand::Unique(_), _) => "UNIQUE",
            (Demand::Foreign(_), _) => "a foreign key",
        };
        let hint =
            format!("partitions do not see each other's rows: drop the constraint \"{}\" first", one.name);
        return refused(&format!("which has {what}"), &hint);
    }
    Ok(())
}

/// How a column is numbered, if not as partitions of a table's own number rows: from 1 on in steps of 1, by a
/// counter that nothing else has.
fn numbered_otherwise(catalog: &Catalog, table: &TableRecord, column: &Column) -> Option<&'static str> {
    let own = column.rules.sequence.map(TableId);
    let Some(sequence) = columns::numbering(column) else {
        return own.map(|_| "by nothing, and has a sequence");
    };
    if own != Some(sequence) {
        return Some("by a sequence that does not go with it");
    }
    let is_own = |(of, name, _): &(String, String, bool)| *of == table.name && *name == column.name;
    if !numbering::users(catalog, sequence).iter().all(is_own) {
        return Some("by a sequence that other columns have, too");
    }
    let known = catalog.sequence_by_id(sequence).map(|(_, known)| known);
    let is_plain = |known: Sequence| {
        let most = i64::MAX >> (64 - u32::from(known.bits));
        known == Sequence { start: 1, step: 1, least: 1, most, cycle: false, ..known }
    };
    (!known.is_some_and(is_plain)).then_some("otherwise than from 1 on in steps of 1")
}

impl MovePlan {
    /// For a table, and how it is to be kept. What is not said is as it is in its database, or, of a bare
    /// table, as it is.
    pub fn of(table: &TableRecord, options: &[SqlOption]) -> Result<MovePlan, Failure> {
        let (schema, columns) = match table.database() {
            Some(_) => spread(table)?,
            None => as_it_is(table)?,
        };
        let policy = &table.policy;
        let as_before = !says(options, "policy") && !says(options, "factor");
        let mut request = Request {
            engine: table.engine,
            log: table.log,
            factor: Some(policy.factor),
            min_in_sync: as_before.then_some(policy.min_in_sync),
            available: policy.below == Below::Available,
            standby: Some(policy.standby),
            failover_target_ms: table.failover_target_ms,
            scheme: table.scheme(),
            ..Request::new(&table.name, schema, &policy.name)
        };
        options.iter().try_for_each(|option| ddl::apply(option, &mut request))?;
        let factor = request.factor.unwrap_or(policy.factor);
        let kept = Policy::preset(&request.policy, factor, request.log);
        let kept = kept.map_err(|error| Failure::new("22023", error.to_string()))?;
        if is_lazy(&kept) {
            let what = format!("moving rows into partitions whose policy is {}", kept.name);
            let hint = "a failover could lose some of them: say policy = durable, and ALTER TABLE ... SET \
                        (policy = ...) behind it";
            return Err(Failure::unsupported(what, hint));
        }
        Ok(MovePlan { request, columns, indexes: indexes_of(table), gone: Vec::new() })
    }
}

/// The indexes of a table, as another one gets them.
fn indexes_of(table: &TableRecord) -> Vec<AddIndex> {
    let named = |at: &usize| table.schema.columns()[*at].name.clone();
    let index = |name: &str, columns: &[usize]| AddIndex {
        name: name.to_string(),
        columns: columns.iter().map(named).collect(),
    };
    let of_constraint = |one: &Constraint| match (&one.demand, one.standing) {
        (Demand::Index(of), Standing::Valid) => Some(index(&one.name, of)),
        _ => None,
    };
    match table.database() {
        Some(_) => table.schema.constraints().iter().filter_map(of_constraint).collect(),
        None => table.indexes.wanted.iter().map(|one| index(&one.name, &one.columns)).collect(),
    }
}

/// The columns of a bare table, for another one that gets its rows; numbers go on.
fn as_it_is(table: &TableRecord) -> Result<(Schema, Vec<usize>), Failure> {
    let mut parts = table.schema.clone().into_parts();
    parts.version = 1;
    for (at, column) in parts.columns.iter_mut().enumerate() {
        let numbered = column.rules.identity.is_some();
        let own = numbered.then_some((table.id.0, at as u32));
        column.rules.counter = column.rules.counter.or(own);
        column.rules.missing = None;
    }
    let columns = (0..parts.columns.len()).collect();
    Ok((Schema::from_parts(parts).map_err(invalid)?, columns))
}

/// The columns that are seen of a table, spread by the whole key, and their places in it; with its checks,
/// which are of one row each. Numbers go on: those of a sequence are counted under its id.
fn spread(table: &TableRecord) -> Result<(Schema, Vec<usize>), Failure> {
    let schema = &table.schema;
    let kept: Vec<usize> = schema.visible().collect();
    let column = |at: &usize| {
        let mut column = schema.columns()[*at].clone();
        let (sequence, rules) = (columns::numbering(&column), &mut column.rules);
        rules.missing = None;
        if let Some(TableId(sequence)) = sequence {
            rules.identity = rules.identity.or(Some(Identity::ByDefault));
            (rules.default, rules.sequence, rules.counter) = (None, None, Some((sequence, 0)));
        } else if rules.identity.is_some() {
            rules.counter = rules.counter.or(Some((table.id.0, *at as u32)));
        }
        column
    };
    let key: Vec<&str> = schema.key_columns().map(|column| column.name.as_str()).collect();
    let columns = kept.iter().map(column).collect();
    let is_check = |one: &&Constraint| one.is_enforced() && matches!(one.demand, Demand::Check(_));
    let checks = schema.constraints().iter().filter(is_check).cloned().collect();
    let spread = Schema::new(columns, &key, key.len(), schema.is_open());
    let spread = spread.and_then(|spread| spread.with_constraints(checks)).map_err(invalid)?;
    Ok((spread, kept))
}

/// Gives a table partitions of its own, or another number of them, or takes them away. What the client may
/// want to know.
pub async fn carry_out(evaluator: &Evaluator, asked: &Move) -> Result<String, Failure> {
    let (handle, mut changes) = (&evaluator.handle, 0);
    let into = destination(&asked.options)?;
    loop {
        database::lift_abandoned(handle).await?;
        let catalog = handle.look().await?;
        let Some(table) = catalog.table(&asked.table).cloned() else {
            return Err(Failure::new("42P01", format!("relation \"{}\" does not exist", asked.table)));
        };
        let within = table.database().is_some();
        let leaves = within && !catalog.has_both();
        if leaves || into.as_ref().is_some_and(|name| name != catalog.database()) {
            views::not_shown(&catalog, &asked.table, "table", &BTreeSet::new())?;
        }
        let done = match &into {
            Some(name) if within && name == catalog.database() => {
                return Ok(format!("table \"{}\" lies together with others already", asked.table));
            }
            Some(name) if within => {
                named(handle, name).await?.has_room_for(&asked.table).await?;
                move_out(evaluator, &catalog, (table, asked)).await?
            }
            Some(name) => come_back(evaluator, (table, name)).await?,
            None if within => move_out(evaluator, &catalog, (table, asked)).await?,
            None => spread_again(evaluator, (table, asked)).await?,
        };
        match done {
            Some(Err(failure)) if is_overtaken(&failure) && changes < MAX_CHANGES => changes += 1,
            Some(Err(failure)) => return Err(failure),
            Some(Ok(_)) if within && into.is_some() => return go_on(evaluator, asked).await,
            Some(Ok(filling::Filled { rows, took })) => {
                let seconds = took.as_secs_f64();
                let place = if leaves { "; it is in the database \"understudy\" now" } else { "" };
                return Ok(format!("{rows} rows were copied; writes waited {seconds:.1} s for it{place}"));
            }
            // Somebody else copies its rows.
            None => {}
        }
        rewrite::pause(evaluator).await?;
    }
}

/// The second half of a move from one database into another: the table has a partition of its own by now, in
/// the database that is always there.
async fn go_on(evaluator: &Evaluator, asked: &Move) -> Result<String, Failure> {
    let there = Evaluator { handle: evaluator.handle.within(Place::Shared), ..evaluator.clone() };
    let done = Box::pin(carry_out(&there, asked)).await;
    done.map_err(|failure| {
        failure.hint(format!(
            "\"{}\" has a partition of its own in the database \"{}\" by now: say it again there",
            asked.table,
            crate::DATABASE
        ))
    })
}

/// A database that a table is to come into, and the way to it.
struct Destination {
    handle: Handle,
    database: Database,
}

/// The database of this name. The error: there is none, or tables cannot come into it.
async fn named(handle: &Handle, name: &str) -> Result<Destination, Failure> {
    let handle = match name == crate::DATABASE {
        true => {
            let there = handle.within(Place::Shared);
            database::share(&there).await?;
            there
        }
        false => {
            let map = handle.map();
            let record = map.database(name).ok_or_else(|| database::missing_database(name))?;
            handle.within(Place::In(record.id))
        }
    };
    let database = handle.database_record()?;
    let record = database.record();
    if database.is_spread() || record.is_global() {
        let what = format!("moving a table into the database \"{name}\", which is not one partition alone");
        return Err(Failure::unsupported(what, "make another table there, and load what is here"));
    }
    if is_lazy(&record.policy) {
        let what = format!("moving rows into a database whose policy is {}", record.policy.name);
        let hint = format!(
            "a failover could lose some of them: `understudy database alter {name} --policy durable`"
        );
        return Err(Failure::unsupported(what, hint));
    }
    Ok(Destination { handle, database })
}

impl Destination {
    /// The error of a name that something has there.
    async fn has_room_for(&self, name: &str) -> Result<(), Failure> {
        match self.handle.look().await?.has_relation(name) {
            true => Err(database::taken(name)),
            false => Ok(()),
        }
    }
}

/// True if somebody else was faster, and nothing was done.
fn is_overtaken(failure: &Failure) -> bool {
    fault::is_stale(failure) || failure.code == bare::IN_USE
}

/// What came of a move; `None`: somebody else copies the table's rows.
type Done = Option<Result<filling::Filled, Failure>>;

/// Out of the partition in which it lies together with others.
async fn move_out(
    evaluator: &Evaluator,
    catalog: &Catalog,
    (table, asked): (Arc<TableRecord>, &Move),
) -> Result<Done, Failure> {
    refuse(catalog, &table)?;
    let handle = &evaluator.handle;
    if handle.spread().is_some() {
        let hint = "its rows lie in several partitions, or in global transactions: make another table, and \
                    load what is there";
        let what = format!("moving \"{}\" out of the database \"{}\"", asked.table, catalog.database());
        return Err(Failure::unsupported(what, hint));
    }
    let into = says(&asked.options, "database");
    let options: &[SqlOption] = if into { &[] } else { &asked.options };
    let gone = numbering::owned(catalog, &table).iter().map(|sequence| database::dropped(sequence)).collect();
    let plan = MovePlan { gone, ..MovePlan::of(&table, options)? };
    if !catalog.has_both() {
        // There it gets the name that it has here.
        let there = handle.within(Place::Shared).look().await?;
        if there.has_relation(&asked.table) {
            let hint = format!("it comes into the database \"{}\": give it another name", crate::DATABASE);
            return Err(database::taken(&asked.table).hint(hint));
        }
    }
    if rewrite::under_way(catalog, table.id) {
        return Ok(None);
    }
    let (database, cancel) = (handle.database_record()?, evaluator.cancel.clone());
    let work =
        move |client: &mut Client| Ok(filling::fill(client, &database, (&Table::new(table), &plan), &cancel));
    let done = on_a_client(handle, work).await?;
    if done.is_ok() {
        moved::heard(handle, &asked.table).await;
    }
    Ok(Some(done))
}

/// Of a bare table: into another number of partitions.
async fn spread_again(
    evaluator: &Evaluator,
    (table, asked): (Arc<TableRecord>, &Move),
) -> Result<Done, Failure> {
    refuse_bare(&table)?;
    MovePlan::of(&table, &asked.options)?;
    if table.policy.moves.is_some() {
        return Ok(None);
    }
    let (handle, id) = (&evaluator.handle, table.id);
    let (options, cancel) = (asked.options.clone(), evaluator.cancel.clone());
    let work = move |client: &mut Client| Ok(respread::respread(client, (id, &options), &cancel));
    let done = on_a_client(handle, work).await?;
    if done.is_ok() {
        moved::heard_instead(handle, (&asked.table, id)).await;
    }
    Ok(Some(done))
}

/// Of a bare table: into the partition of this database, in which tables lie together.
async fn come_back(evaluator: &Evaluator, (table, name): (Arc<TableRecord>, &str)) -> Result<Done, Failure> {
    refuse_bare(&table)?;
    if table.policy.moves.is_some() {
        return Ok(None);
    }
    let (handle, id, own) = (&evaluator.handle, table.id, table.name.clone());
    let there = named(handle, name).await?;
    if name != crate::DATABASE {
        there.has_room_for(&own).await?;
    }
    let Destination { handle: there, database } = there;
    let cancel = evaluator.cancel.clone();
    let work = move |client: &mut Client| Ok(back::bring(client, (&database, table.as_ref()), &cancel));
    let done = on_a_client(handle, work).await?;
    there.outdate();
    if done.is_ok() {
        moved::heard_instead(handle, (&own, id)).await;
    }
    Ok(Some(done))
}

#[cfg(test)]
mod tests;
