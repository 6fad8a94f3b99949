//! `load --bulk --create` into a database whose transactions are global.
//!
//! Rows are written into a table that has no name yet ([`types::TableState::Filling`]), in batches of their
//! partitions and not by transactions. When all of them are secured the table gets its name, in one entry.
//! So whoever sees the table sees all of the file, and no commit has these rows.

use crate::failure::Failure;
use crate::load::{LoadPlan, Placing, Watcher};
use crate::pipeline::Pipeline;
use crate::reading::{LoadReport, Reading};
use crate::secured;
use client::database::Database;
use client::table::Table;
use client::{Client, ClientError, Fate, created, wall_ms};
use std::time::Duration;
use types::data::{Schema, SchemaParts};
use types::{CatalogTable, TableId};
use wire::{RecordText, TableChange};

/// How long copies may take to follow at the end.
const FOLLOW: Duration = Duration::from_secs(120);

/// Makes the table of the file's rows. The file was checked before if the rule is `abort`. If it fails, there
/// is no table, unless the failure says that this is not known.
pub fn load(
    client: &mut Client,
    (database, name): (&Database, &str),
    schema: Schema,
    plan: &LoadPlan,
    watcher: &mut dyn Watcher,
) -> Result<LoadReport, Failure> {
    let (filling, named) = definitions(client, (database, name), schema)?;
    client.call(database.transact(vec![created(&filling)], Vec::new(), None))?;
    let from = filling.schema.version();
    let filled = client
        .level(database)
        .map_err(Failure::from)
        .and_then(|()| fill(client, &database.table(filling.clone()), plan, watcher));
    let report = match filled {
        Ok(report) => report,
        Err(failure) => {
            drop_again(client, database, &filling);
            return Err(failure.and("nothing was loaded, and no table was made"));
        }
    };
    let naming = TableChange::Alter { from, to: RecordText::new(&named) };
    match client.call(database.transact(vec![naming], Vec::new(), None)) {
        Ok(_) => {}
        Err(error @ ClientError::OutcomeUnknown(_)) => {
            let more = format!("if there is a table `{name}` now, it has all of the rows");
            return Err(Failure::from(error).and(more));
        }
        Err(error) => {
            drop_again(client, database, &filling);
            return Err(Failure::from(error).and("no table was made"));
        }
    }
    // What is done in the first partition comes to the others (PR-170).
    let told = client.level(database).map_err(Failure::from);
    told.map_err(|failure| failure.and("the table is there, with all of the rows"))?;
    Ok(LoadReport { table: name.into(), created: true, ..report })
}

/// The table as it is filled, and as it is named: with numbers that no other one had (PR-120).
fn definitions(
    client: &mut Client,
    (database, name): (&Database, &str),
    schema: Schema,
) -> Result<(CatalogTable, CatalogTable), Failure> {
    let bad = |why: String| Failure::failed(format!("table `{name}`: {why}"));
    let parts = database.record().placed(schema).map_err(bad)?.into_parts();
    let first = client.numbers(3)?;
    let (id, made) = (TableId(first), wall_ms());
    let of_version = |version: u32| {
        let schema = Schema::from_parts(SchemaParts { version, ..parts.clone() });
        let made = schema.map(|schema| CatalogTable::new(id, name, schema, made));
        made.map_err(|error| bad(error.to_string()))
    };
    let filling = CatalogTable { fills: Some(id), ..of_version(first + 1)? };
    Ok((filling, of_version(first + 2)?))
}

/// Writes all rows, and waits until they are secured.
fn fill(
    client: &mut Client,
    table: &Table,
    plan: &LoadPlan,
    watcher: &mut dyn Watcher,
) -> Result<LoadReport, Failure> {
    let mut reading = Reading::begin(plan, table, "loading", watcher)?;
    let mut pipeline = Pipeline::new(client, table.clone(), plan.limits.clone(), None);
    let read = reading.read(&mut Placing { table, pipeline: &mut pipeline }, watcher);
    let drained = pipeline.drain();
    let (done, trouble) = pipeline.finish();
    watcher.rows(done.rows);
    reading.close_bad_rows(watcher)?;
    read?;
    drained?;
    if let Some(trouble) = trouble {
        return Err(trouble.failure);
    }
    secured::wait(client, table, &done.last, FOLLOW)?;
    // A failover may have lost what only its primary had, and nothing was written since that would tell.
    for (partition, last) in &done.last {
        if client.fate(table, *partition, *last)? != Fate::Kept {
            return Err(Failure::failed(format!("a failover of {partition} has lost some of the rows")));
        }
    }
    reading.report(table, done.rows, done.bytes, done.copies)
}

/// Drops a table that got no name. If that fails, a gateway does it some hours later.
fn drop_again(client: &mut Client, database: &Database, filling: &CatalogTable) {
    let change = TableChange::Drop { table: filling.id, schema: filling.schema.version() };
    let dropped = client.call(database.transact(vec![change], Vec::new(), None));
    // What it failed for is said already.
    let _ = dropped.and_then(|_| client.level(database));
}
