//! A table's rows under another key: ALTER TABLE ... ADD PRIMARY KEY.
//!
//! One entry holds the table and makes another one, which nobody sees by its name. From there on nobody
//! writes the rows (PR-124), and they are copied in slices, each a write like any other. One last entry
//! drops the table and gives its name to the other one. It names the version under which the table is
//! held, and so it is refused if anybody has lifted the hold meanwhile. Each entry rests on the
//! one before it: if that is lost with a primary, all rows are copied again, under another id. Whoever
//! copies says again and again that it does.

use crate::alter::AddKey;
use crate::catalog::as_of;
use crate::fault;
use bytes::Bytes;
use client::{Client, ClientError, Database, Table, created, wall_ms};
use pg::Failure;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::data::{Constraint, Demand, Row, Schema, SchemaError, Standing};
use types::{CatalogTable, Position, TableId};
use wire::request::ReadSnapshot;
use wire::{Body, Op, RecordText, RowOp, TableChange};

/// Rows that are copied at once.
const ROWS: u32 = 2_000;
/// How often a hold is renewed.
const RENEW: Duration = Duration::from_secs(10);

/// The columns of a table with another key, for another id. Numbers go on.
pub fn keyed(table: &Table, key: &[String]) -> Result<Schema, Failure> {
    let (schema, name) = (table.schema(), table.name());
    if !schema.has_hidden_key() {
        let message = format!("multiple primary keys for table \"{name}\" are not allowed");
        return Err(Failure::new("42P16", message));
    }
    let (mut columns, mut places) = (Vec::new(), vec![0; schema.columns().len()]);
    for at in schema.visible() {
        places[at] = columns.len();
        let mut column = schema.columns()[at].clone();
        column.rules.missing = None;
        if column.rules.identity.is_some() && column.rules.sequence.is_none() {
            column.rules.counter = column.rules.counter.or(Some((table.id().0, at as u32)));
        }
        column.nullable &= !key.contains(&column.name);
        columns.push(column);
    }
    let keyed = Schema::new(columns, key, key.len(), false);
    let constraints = schema.constraints().iter().filter(|one| one.is_enforced());
    let moved = constraints.map(|one| moved(one.clone(), &places)).collect();
    keyed.and_then(|keyed| keyed.with_constraints(moved)).map_err(|error| match error {
        SchemaError::UnknownKeyColumn(column) => {
            Failure::new("42703", format!("column \"{column}\" of relation \"{name}\" does not exist"))
        }
        other => Failure::new("42P16", other.to_string()),
    })
}

/// A constraint of the same columns, which are in other places. Each row is looked at as it is copied.
fn moved(mut constraint: Constraint, places: &[usize]) -> Constraint {
    let columns = match &mut constraint.demand {
        Demand::Check(_) => return constraint,
        Demand::Unique(columns) | Demand::Index(columns) => columns,
        Demand::Foreign(reference) => &mut reference.columns,
    };
    columns.iter_mut().for_each(|at| *at = places[*at]);
    constraint.turned(Standing::Valid)
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

/// Gives a table a key. `Stale`: it has changed meanwhile, and nothing was done. `Changed`: rows that were
/// copied are lost, and nothing was done.
pub fn add_key(client: &mut Client, database: &Database, table: &Table, key: &AddKey) -> Result<(), Failure> {
    let schema = keyed(table, &key.columns)?;
    let numbers = client.numbers(2).map_err(fault::of_client)?;
    let held = CatalogTable { held_ms: Some(wall_ms()), ..as_of(table.record(), numbers + 1) };
    let new = CatalogTable::new(TableId(numbers), table.name(), schema, table.record().created_ms);
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
    let done = refill.copy().and_then(|()| refill.switch(new));
    if done.is_err() {
        refill.give_up();
    }
    done
}

impl Refill<'_> {
    fn copy(&mut self) -> Result<(), Failure> {
        let mut next = Some(Bytes::new());
        while let Some(from) = next {
            if self.renewed.elapsed() >= RENEW {
                self.renew()?;
            }
            let op = Op::Scan { from, to: Bytes::new(), limit: ROWS, at: ReadSnapshot::Newest };
            let answer = self.client.call(self.from.call(self.database.partition(), op));
            let Body::Rows { rows, more } = answer.map_err(fault::of_client)?.body else {
                return Err(Failure::new(pg::code::INTERNAL, "a table without rows"));
            };
            let last = rows.last().map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
            let ops = rows.iter().map(|(key, _, stored)| self.moved(key, stored));
            let ops = ops.collect::<Result<Vec<_>, _>>()?;
            self.write(ops)?;
            next = last.filter(|_| more);
        }
        Ok(())
    }

    /// A row as the other table has it.
    fn moved(&self, key: &Bytes, stored: &Bytes) -> Result<RowOp, Failure> {
        let row = self.from.decode(key, stored).map_err(fault::of_client)?;
        let values = self.from.schema().visible().map(|at| row.values[at].clone()).collect();
        let row = Row::new(values);
        let lacks = self.to.schema().key().iter().find(|at| row.values[**at].is_null());
        if let Some(at) = lacks {
            let (column, table) = (&self.to.schema().columns()[*at].name, self.to.name());
            let message = format!("column \"{column}\" of relation \"{table}\" contains null values");
            return Err(Failure::new("23502", message));
        }
        let (key, row) = self.to.encode(&row).map_err(fault::of_client)?;
        Ok(RowOp::Insert { key, row })
    }

    fn write(&mut self, ops: Vec<RowOp>) -> Result<(), Failure> {
        if ops.is_empty() {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = ops.iter().find(|op| !seen.insert(op.key().clone())) {
            return Err(self.duplicate(Some(twice.key())));
        }
        match self.client.call(self.to.write_since(self.database.partition(), ops, self.last)) {
            Ok(answer) => {
                self.last = answer.position();
                Ok(())
            }
            Err(ClientError::Exists) => Err(self.duplicate(None)),
            Err(error) => Err(fault::of_client(error)),
        }
    }

    fn duplicate(&self, key: Option<&Bytes>) -> Failure {
        let table = self.to.name();
        let message = format!("could not create unique index \"{table}_pkey\"");
        let failure = Failure::new("23505", message);
        match key.and_then(|key| crate::write::shown(&self.to, key)) {
            Some(key) => failure.detail(format!("Key {key} is duplicated.")),
            None => failure,
        }
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
    fn switch(&mut self, new: CatalogTable) -> Result<(), Failure> {
        let version = self.client.numbers(1).map_err(fault::of_client)?;
        let to = as_of(&Arc::new(self.database.table(new).record().clone()), version);
        let changes = vec![
            TableChange::Drop { table: self.from.id(), schema: self.from.schema().version() },
            TableChange::Alter { from: self.to.schema().version(), to: RecordText::new(&to) },
        ];
        self.transact(changes)
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
