//! The rows of a table that moves: copied into one with partitions of its own, which takes its name.
//!
//! | step | where | interrupted behind it |
//! | --- | --- | --- |
//! | 1. the table is held; a marker is made, without a name | the partition | both go when they are old |
//! | 2. a table for the rows is made, called by the marker's number | records | as above, and it is dropped |
//! | 3. rows are copied | its partitions | as above |
//! | 4. the table is dropped, with its sequences; the marker says that it has moved | the partition | whoever needs it goes on |
//! | 5. the table with the rows gets the name | records | as above |
//! | 6. a moment later the marker is dropped | the partition | |
//!
//! The steps in the partition are one entry each, and the fifth is one transaction of the metastore.
//! The fourth step names the versions under which the table is held and filled, so it is refused if anybody
//! has lifted the hold.

use super::MovePlan;
use super::copying::{self, CopiedRows};
use crate::catalog::{Moved, as_of};
use crate::fault;
use crate::held::bare::RENEW;
use crate::moved;
use crate::statements::canceled;
use bytes::Bytes;
use client::{Client, Database, Table, created, wall_ms};
use pg::{Cancel, Failure};
use std::time::{Duration, Instant};
use types::{CatalogTable, TableId, system};
use wire::control::AdminCommand;
use wire::{RecordText, TableChange};

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    /// Rows that were copied.
    pub rows: u64,
    /// How long the table was not written for that.
    pub took: Duration,
}

/// A table that is held, and the one that gets its rows.
struct Filling<'a> {
    client: &'a mut Client,
    database: Database,
    /// As it is held.
    from: Table,
    /// What says in the catalog that rows are being copied, or were.
    marker: Table,
    renewed: Instant,
}

/// Moves a table's rows into partitions of its own. `Stale`: somebody has changed the table meanwhile, and
/// nothing was done. An error behind the decision says that the table has no name yet: whoever names it next
/// sees to that.
pub fn fill(
    client: &mut Client,
    database: &Database,
    (table, plan): (&Table, &MovePlan),
    cancel: &Cancel,
) -> Result<Filled, Failure> {
    let began = Instant::now();
    let mut filling = Filling::begin(client, database, table, plan)?;
    let decided = match filling.copy_all(plan, cancel) {
        Ok(rows) => filling.decide(plan).map(|moved| (rows, moved)),
        Err(why) => Err(why),
    };
    match decided {
        Ok((rows, moved)) => {
            moved::name(filling.client, &moved)?;
            let took = began.elapsed();
            // Whoever has not heard of the name yet finds this one here.
            std::thread::sleep(moved::LINGER);
            moved::forget(filling.client, database, &moved)?;
            Ok(Filled { rows, took })
        }
        Err(why) => {
            filling.give_up();
            Err(why)
        }
    }
}

impl<'a> Filling<'a> {
    /// The first step.
    fn begin(
        client: &'a mut Client,
        database: &Database,
        table: &Table,
        plan: &MovePlan,
    ) -> Result<Filling<'a>, Failure> {
        let first = client.numbers(2).map_err(fault::of_client)?;
        let held = CatalogTable { held_ms: Some(wall_ms()), ..as_of(table.record(), first + 1) };
        let own = CatalogTable::new(TableId(first), table.name(), plan.request.schema.clone(), wall_ms());
        let marker = CatalogTable { fills: Some(table.id()), ..own };
        let from = table.schema().version();
        let changes = vec![TableChange::Alter { from, to: RecordText::new(&held) }, created(&marker)];
        client.call(database.transact(changes, Vec::new(), None)).map_err(fault::of_client)?;
        let (from, marker) = (database.table(held), database.table(marker));
        let database = database.clone();
        Ok(Filling { client, database, from, marker, renewed: Instant::now() })
    }

    /// The second and the third step. How many rows there are.
    fn copy_all(&mut self, plan: &MovePlan, cancel: &Cancel) -> Result<u64, Failure> {
        let mut copied = CopiedRows::begin(self.client, self.marker.id(), plan)?;
        self.renew()?;
        let mut next = Some(Bytes::new());
        while let Some(first) = next {
            if cancel.asked() {
                return Err(canceled());
            }
            if self.renewed.elapsed() >= RENEW {
                self.renew()?;
            }
            let page = copying::read(self.client, (&self.from, self.database.partition()), first)?;
            copied.put(self.client, &self.from, &page.rows)?;
            next = page.next;
        }
        copied.are_kept(self.client)?;
        Ok(copied.count)
    }

    /// Says that the rows are still being copied.
    fn renew(&mut self) -> Result<(), Failure> {
        let version = self.client.numbers(1).map_err(fault::of_client)?;
        let held = CatalogTable { held_ms: Some(wall_ms()), ..as_of(self.from.record(), version) };
        let from = self.from.schema().version();
        let change = TableChange::Alter { from, to: RecordText::new(&held) };
        let call = self.database.transact(vec![change], Vec::new(), None);
        self.client.call(call).map_err(fault::of_client)?;
        self.from = self.database.table(held);
        self.renewed = Instant::now();
        Ok(())
    }

    /// The fourth step: from here on the rows are where they were copied to. What goes with the table is of
    /// the version that somebody has seen before: if it is another one, nothing is decided.
    fn decide(&mut self, plan: &MovePlan) -> Result<Moved, Failure> {
        let version = self.client.numbers(1).map_err(fault::of_client)?;
        let (id, name) = (self.marker.id(), self.marker.name().to_string());
        let since_ms = wall_ms();
        let own = as_of(self.marker.record(), version);
        let mut moved = CatalogTable { fills: Some(id), created_ms: since_ms, ..own };
        moved.unknown.insert(CatalogTable::MOVED.into(), true.into());
        let from = self.marker.schema().version();
        let mut changes = vec![
            TableChange::Drop { table: self.from.id(), schema: self.from.schema().version() },
            TableChange::Alter { from, to: RecordText::new(&moved) },
        ];
        changes.extend(plan.gone.iter().cloned());
        let call = self.database.transact(changes, Vec::new(), None);
        self.client.call(call).map_err(fault::of_client)?;
        Ok(Moved { id, version, name, since_ms })
    }

    /// The table is written again, and what was copied goes: once it is sure that nothing was decided, and
    /// never will be (PR-379). If that fails, somebody else does it.
    fn give_up(&mut self) {
        let Ok(version) = self.client.numbers(1) else { return };
        let to = RecordText::new(&as_of(self.from.record(), version));
        let free = TableChange::Alter { from: self.from.schema().version(), to };
        let (table, schema) = (self.marker.id(), self.marker.schema().version());
        let gone = TableChange::Drop { table, schema };
        // If somebody has altered the table, it is not held any more.
        let is_gone = [vec![free, gone.clone()], vec![gone]].into_iter().any(|changes| {
            let call = self.database.transact(changes, Vec::new(), None);
            self.client.call(call).is_ok()
        });
        if is_gone {
            // It may not be there yet: then whoever finds it drops it.
            let _ = self.client.admin(AdminCommand::DropTable(system::moving(table)));
        }
    }
}
