//! A table with partitions of its own comes into the one in which tables lie together.
//!
//! | step | where | interrupted behind it |
//! | --- | --- | --- |
//! | 1. a table for the rows is made, without a name | the partition | it goes when it is old |
//! | 2. the bare table is held, with the number of that one | its record, then its partitions | both go, that one first |
//! | 3. rows are copied | the partition | as above |
//! | 4. the table with the rows gets the name, is held, and says whose place it takes | the partition | whoever needs it goes on |
//! | 5. the hold is closed: the rows are read no more where they were | as 2 | as above |
//! | 6. the bare table is dropped | its record | as above |
//! | 7. the other one is written | the partition | |
//!
//! The fourth step decides, in one entry: it names the version under which the table is filled, so it is
//! refused if anybody has dropped that one. Nobody ends the hold before (PR-404). Until the sixth there are
//! two tables of the name with the same rows, which nobody writes; sessions see the bare one.

use super::copying::{CopiedRows, copy_held};
use super::filling::Filled;
use super::{as_it_is, refuse_bare};
use crate::catalog::as_of;
use crate::constraints::define::invalid;
use crate::fault;
use crate::held::bare::BareHold;
use crate::held::{be_written, definition, give_way};
use client::{Client, Database, Table, created, wall_ms};
use pg::{Cancel, Failure, Reason};
use std::time::Instant;
use types::data::Schema;
use types::data::constraint::{Constraint, Demand};
use types::{CatalogTable, IndexRecord, TableId, TableRecord, system};
use wire::{RecordText, TableChange};

/// The table that gets the rows.
struct Coming<'a> {
    database: &'a Database,
    /// As it is filled.
    to: Table,
    /// Its version once it has the name.
    version: u32,
    /// The bare table.
    of: TableId,
}

/// Brings a bare table into this database. [`crate::held::bare::IN_USE`], or `Stale`: somebody else has
/// something to do with it, or has changed it meanwhile, and nothing was done. An error behind the decision
/// says that nobody writes the table yet: whoever needs it next sees to that.
pub fn bring(
    client: &mut Client,
    (database, table): (&Database, &TableRecord),
    cancel: &Cancel,
) -> Result<Filled, Failure> {
    let began = Instant::now();
    let coming = Coming::begin(client, database, table)?;
    let into = (coming.to.id(), Some(database.id()));
    let mut hold = match BareHold::begin(client, table.id, into) {
        Ok(hold) => hold,
        Err(why) => {
            // It may be held all the same: then whoever waits for it ends that.
            drop(coming.forget(client));
            return Err(why);
        }
    };
    let mut copied = CopiedRows::of(coming.to.clone(), (0..table.schema.columns().len()).collect());
    let done = coming.fill(client, &mut hold, (table, &mut copied), cancel);
    if let Err(why) = done.and_then(|()| coming.decide(client))
        && !coming.is_decided(client, &hold)
    {
        return Err(why);
    }
    give_way(client, &mut hold)?;
    be_written(client, database, coming.to.id())?;
    Ok(Filled { rows: copied.count, took: began.elapsed() })
}

impl<'a> Coming<'a> {
    /// The first step.
    fn begin(
        client: &mut Client,
        database: &'a Database,
        table: &TableRecord,
    ) -> Result<Coming<'a>, Failure> {
        let count = 2 + table.indexes.wanted.len() as u32;
        let first = client.numbers(count).map_err(fault::of_client)?;
        let id = TableId(first);
        let own = CatalogTable::new(id, &table.name, together(table, first + 2)?, wall_ms());
        let mut filled = CatalogTable { fills: Some(id), ..own };
        filled.unknown.insert(CatalogTable::FOLLOWS.into(), table.id.0.into());
        let call = database.transact(vec![created(&filled)], Vec::new(), None);
        client.call(call).map_err(fault::of_client)?;
        Ok(Coming { database, to: database.table(filled), version: first + 1, of: table.id })
    }

    /// Copies the rows, once nobody writes them.
    fn fill(
        &self,
        client: &mut Client,
        hold: &mut BareHold,
        (table, copied): (&TableRecord, &mut CopiedRows),
        cancel: &Cancel,
    ) -> Result<(), Failure> {
        hold.confirm(client)?;
        let now = hold.table().record();
        refuse_bare(now)?;
        if now.schema != table.schema || now.indexes != table.indexes {
            return Err(fault::stale());
        }
        copy_held(client, hold, copied, cancel)?;
        hold.say(client)
    }

    /// The fourth step: from here on the rows are here.
    fn decide(&self, client: &mut Client) -> Result<(), Failure> {
        let own = as_of(self.to.record(), self.version);
        let mut follows = CatalogTable { held_ms: Some(wall_ms()), ..own };
        follows.unknown.insert(CatalogTable::FOLLOWS.into(), self.of.0.into());
        let from = self.to.schema().version();
        let change = TableChange::Alter { from, to: RecordText::new(&follows) };
        let decided = client.call(self.database.transact(vec![change], Vec::new(), None));
        match decided.map_err(fault::of_client) {
            Err(failure) if failure.reason == Reason::NameTaken => {
                let message = format!(
                    "relation \"{}\" already exists among the tables that lie together",
                    self.to.name()
                );
                Err(Failure::new("42P07", message).hint("drop one of them, or give it another name"))
            }
            decided => decided.map(drop),
        }
    }

    /// Gives up, unless it turns out that it was decided: then true. First the table with the rows goes, so
    /// that nothing can be decided any more; only then the hold ends (PR-404). If that fails, somebody else
    /// does it.
    fn is_decided(&self, client: &mut Client, hold: &BareHold) -> bool {
        match self.forget(client) {
            Ok(()) => {}
            // It has another version, or is gone.
            Err(failure) if fault::is_stale(&failure) => {
                match definition(client, self.database, self.to.id()) {
                    // Another name says that somebody has altered it: that was not decided here.
                    Ok(Some(now)) if now.fills.is_none() && system::moves(&now.name).is_none() => {
                        return true;
                    }
                    Ok(None) => {}
                    _ => return false,
                }
            }
            Err(_) => return false,
        }
        // Who waits for it finds it free, or frees it.
        drop(hold.free(client));
        false
    }

    /// The table with the rows goes, as long as it has no name.
    fn forget(&self, client: &mut Client) -> Result<(), Failure> {
        let (table, schema) = (self.to.id(), self.to.schema().version());
        let gone = vec![TableChange::Drop { table, schema }];
        let call = self.database.transact(gone, Vec::new(), None);
        client.call(call).map(drop).map_err(fault::of_client)
    }
}

/// The columns of a bare table, with its indexes and checks, as those of one that lies together with others.
/// Indexes get numbers from this one on.
fn together(table: &TableRecord, first: u32) -> Result<Schema, Failure> {
    let (schema, _) = as_it_is(table)?;
    let mut parts = schema.into_parts();
    parts.partition_by = parts.key.len();
    let index = |(one, number): (&IndexRecord, u32)| {
        Constraint::new(number, &one.name, Demand::Index(one.columns.clone()))
    };
    // What it has already is checks.
    parts.constraints.extend(table.indexes.wanted.iter().zip(first..).map(index));
    Schema::from_parts(parts).map_err(invalid)
}
