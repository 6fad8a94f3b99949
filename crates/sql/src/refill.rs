//! A table's rows under another id, where no definition alone can say what becomes of them: another primary
//! key, or columns of other types ([`crate::altering::rewrite`] says which); or a statement that writes more
//! rows than one write may have ([`crate::large`]).
//!
//! One entry holds the table and makes another one, which nobody sees by its name. From there on nobody
//! writes the rows (PR-124), and they are copied in slices, each a write like any other. One last entry
//! drops the table, gives its name to the other one, and has foreign keys refer to that. It names the version
//! under which the table is held, and so it is refused if anybody has lifted the hold meanwhile. Each entry
//! rests on the one before it: if that is lost with a primary, all rows are copied again, under another id.
//! Whoever copies says again and again that it does.

use crate::catalog::as_of;
use crate::fault;
use bytes::Bytes;
use client::{Client, ClientError, Database, Table, created, wall_ms};
use pg::Failure;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::data::constraint::{Constraint, Demand, Reference};
use types::data::{Row, Schema};
use types::{CatalogTable, Position, TableId, TableRecord};
use wire::request::ReadSnapshot;
use wire::{Body, Op, RecordText, RowOp, TableChange};

/// Rows that are copied at once.
const ROWS: u32 = 2_000;
/// How often a hold is renewed.
const RENEW: Duration = Duration::from_secs(10);

/// What a table becomes.
#[derive(Clone)]
pub struct Target {
    /// Its name from then on.
    pub name: String,
    /// Its columns and constraints.
    pub schema: Schema,
    /// Where each column of the table is from then on; a column that goes is nowhere.
    pub places: Vec<Option<usize>>,
    /// Tables whose foreign keys refer to it.
    pub children: Vec<Arc<TableRecord>>,
}

/// Makes the rows of the other table, which fit its columns and keep its checks.
pub trait Convert {
    /// The table is held: from here on nobody else writes it.
    fn begin(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Some of the rows that are none of the table's own, or take their place. They are asked for before
    /// those are copied; `None`: there are no more.
    fn more(&mut self) -> Result<Option<Vec<Row>>, Failure> {
        Ok(None)
    }

    /// What becomes of some rows of the table, which come in the order of their keys.
    fn rows(&mut self, keys: Vec<Bytes>, rows: Vec<Row>) -> Result<Vec<Row>, Failure>;

    /// The error of rows that are not kept in the other table.
    fn refused(&self, why: Refusal<'_>) -> Failure;
}

/// Why rows are not kept.
pub enum Refusal<'a> {
    /// Several have a key; of the table, this one if it is known.
    Key(&'a Table, Option<&'a Bytes>),
    /// They are against a constraint, by its number, as rows of the table.
    Constraint(&'a Table, u32, &'a [RowOp]),
}

/// A table that is held, and the one that gets its rows.
struct Refill<'a> {
    client: &'a mut Client,
    database: Database,
    /// As it is held.
    from: Table,
    to: Table,
    renewed: Instant,
    /// The newest entry of it.
    last: Position,
}

/// Copies a table's rows into what it becomes, and has that take its place. `Stale`: it has changed
/// meanwhile, and nothing was done. `Changed`: rows that were copied are lost, and nothing was done.
pub fn refill(
    client: &mut Client,
    database: &Database,
    (table, target): (&Table, &Target),
    convert: &mut dyn Convert,
) -> Result<(), Failure> {
    let numbers = client.numbers(2).map_err(fault::of_client)?;
    let held = CatalogTable { held_ms: Some(wall_ms()), ..as_of(table.record(), numbers + 1) };
    let new =
        CatalogTable::new(TableId(numbers), &target.name, target.schema.clone(), table.record().created_ms);
    let filling = CatalogTable { fills: Some(table.id()), created_ms: wall_ms(), ..new.clone() };
    let from = table.schema().version();
    let changes = vec![TableChange::Alter { from, to: RecordText::new(&held) }, created(&filling)];
    let begun = client.call(database.transact(changes, Vec::new(), None)).map_err(fault::of_client)?;
    let mut refill = Refill {
        from: database.table(held),
        to: database.table(new.clone()),
        database: database.clone(),
        renewed: Instant::now(),
        last: begun.position(),
        client,
    };
    let done = convert.begin().and_then(|()| refill.add(convert)).and_then(|()| refill.copy(convert));
    let done = done.and_then(|()| refill.switch(new, target));
    if done.is_err() {
        refill.give_up();
    }
    done
}

impl Refill<'_> {
    /// Rows that are none of the table's own.
    fn add(&mut self, convert: &mut dyn Convert) -> Result<(), Failure> {
        while let Some(rows) = convert.more()? {
            self.renew_in_time()?;
            self.insert(&rows, convert)?;
        }
        Ok(())
    }

    fn copy(&mut self, convert: &mut dyn Convert) -> Result<(), Failure> {
        let mut next = Some(Bytes::new());
        while let Some(from) = next {
            self.renew_in_time()?;
            let op = Op::Scan { from, to: Bytes::new(), limit: ROWS, at: ReadSnapshot::Newest };
            let answer = self.client.call(self.from.call(self.database.partition(), op));
            let Body::Rows { rows, more } = answer.map_err(fault::of_client)?.body else {
                return Err(Failure::new(pg::code::INTERNAL, "a table without rows"));
            };
            let last = rows.last().map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
            let decoded = rows.iter().map(|(key, _, stored)| self.from.decode(key, stored));
            let decoded = decoded.collect::<Result<Vec<_>, _>>().map_err(fault::of_client)?;
            let keys = rows.into_iter().map(|(key, ..)| key).collect();
            self.insert(&convert.rows(keys, decoded)?, convert)?;
            next = last.filter(|_| more);
        }
        Ok(())
    }

    fn insert(&mut self, rows: &[Row], convert: &dyn Convert) -> Result<(), Failure> {
        let ops = rows.iter().map(|row| self.inserted(row)).collect::<Result<Vec<_>, _>>()?;
        self.write(ops, convert)
    }

    /// A row of the other table.
    fn inserted(&self, row: &Row) -> Result<RowOp, Failure> {
        let schema = self.to.schema();
        let must = |at: &usize| !schema.columns()[*at].nullable || schema.key().contains(at);
        let lacks = (0..schema.columns().len()).find(|at| must(at) && row.values[*at].is_null());
        if let Some(at) = lacks {
            let (column, table) = (&schema.columns()[at].name, self.to.name());
            let message = format!("column \"{column}\" of relation \"{table}\" contains null values");
            return Err(Failure::new("23502", message));
        }
        let (key, row) = self.to.encode(row).map_err(fault::of_client)?;
        Ok(RowOp::Insert { key, row })
    }

    fn write(&mut self, ops: Vec<RowOp>, convert: &dyn Convert) -> Result<(), Failure> {
        if ops.is_empty() {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = ops.iter().find(|op| !seen.insert(op.key().clone())) {
            return Err(convert.refused(Refusal::Key(&self.to, Some(twice.key()))));
        }
        match self.client.call(self.to.write_since(self.database.partition(), ops.clone(), self.last)) {
            Ok(answer) => {
                self.last = answer.position();
                Ok(())
            }
            Err(ClientError::Exists) => {
                let met = self.met(&ops)?;
                Err(convert.refused(Refusal::Key(&self.to, met)))
            }
            Err(ClientError::Violates(number)) => {
                Err(convert.refused(Refusal::Constraint(&self.from, number, &ops)))
            }
            Err(error) => Err(fault::of_client(error)),
        }
    }

    /// The first of these keys that is there already.
    fn met<'k>(&mut self, ops: &'k [RowOp]) -> Result<Option<&'k Bytes>, Failure> {
        for op in ops {
            let get = Op::Get { key: op.key().clone(), at: ReadSnapshot::Newest };
            let answer = self.client.call(self.to.call(self.database.partition(), get));
            if let Body::Row(Some(_)) = answer.map_err(fault::of_client)?.body {
                return Ok(Some(op.key()));
            }
        }
        Ok(None)
    }

    fn renew_in_time(&mut self) -> Result<(), Failure> {
        if self.renewed.elapsed() >= RENEW { self.renew() } else { Ok(()) }
    }

    /// Says that the rows are still being copied.
    fn renew(&mut self) -> Result<(), Failure> {
        let version = self.client.numbers(1).map_err(fault::of_client)?;
        let held = CatalogTable { held_ms: Some(wall_ms()), ..as_of(self.from.record(), version) };
        let from = self.from.schema().version();
        let changes = vec![TableChange::Alter { from, to: RecordText::new(&held) }];
        self.transact(changes)?;
        (self.from, self.renewed) = (self.database.table(held), Instant::now());
        Ok(())
    }

    /// All rows are there: they get the name.
    fn switch(&mut self, new: CatalogTable, target: &Target) -> Result<(), Failure> {
        let versions = self.client.numbers(1 + target.children.len() as u32).map_err(fault::of_client)?;
        let to = as_of(&Arc::new(self.database.table(new).record().clone()), versions);
        let mut changes = vec![
            TableChange::Drop { table: self.from.id(), schema: self.from.schema().version() },
            TableChange::Alter { from: self.to.schema().version(), to: RecordText::new(&to) },
        ];
        for (child, version) in target.children.iter().zip(versions + 1..) {
            let referring = child.schema.constraints().iter().cloned();
            let referring = referring.map(|one| self.redirected(one, target)).collect();
            let to = as_of(child, version).constrained(referring);
            let to = to.map_err(|why| Failure::new("42P16", why))?;
            changes.push(TableChange::Alter { from: child.schema.version(), to: RecordText::new(&to) });
        }
        self.transact(changes)
    }

    /// A constraint of another table, which refers to the table that gets the name.
    fn redirected(&self, mut constraint: Constraint, target: &Target) -> Constraint {
        let from = self.from.id();
        if let Demand::Foreign(Reference { parent, parent_columns, .. }) = &mut constraint.demand
            && *parent == from
            && let Some(columns) = parent_columns.iter().map(|at| target.places[*at]).collect()
        {
            (*parent, *parent_columns) = (self.to.id(), columns);
        }
        constraint
    }

    /// Changes tables, where all that was copied until now is.
    fn transact(&mut self, changes: Vec<TableChange>) -> Result<(), Failure> {
        let call = self.database.transact(changes, Vec::new(), Some(self.last));
        self.last = self.client.call(call).map_err(fault::of_client)?.position();
        Ok(())
    }

    /// The table is written again, and what was copied goes. If that fails, somebody else does it.
    fn give_up(&mut self) {
        let Ok(version) = self.client.numbers(1) else { return };
        let to = as_of(self.from.record(), version);
        let changes = vec![
            TableChange::Alter { from: self.from.schema().version(), to: RecordText::new(&to) },
            TableChange::Drop { table: self.to.id(), schema: self.to.schema().version() },
        ];
        // The error that led here is told. A hold that nobody renews is lifted by whoever waits for it.
        let _ = self.client.call(self.database.transact(changes, Vec::new(), None));
    }
}
