//! Rows of tables under other ids, where no definition alone can say what becomes of them: another primary
//! key, or columns of other types ([`crate::altering::rewrite`] says which); or a statement or a transaction
//! that writes more rows than one write may have ([`crate::large`]).
//!
//! One entry holds the tables and makes other ones, which nobody sees by their names. From there on nobody
//! writes the rows (PR-124), and they are copied in slices, each a write like any other. One last entry
//! drops the tables, gives their names to the other ones, and has foreign keys refer to these. It names the
//! versions under which the tables are held, and so it is refused if anybody has lifted a hold meanwhile.
//! Each entry rests on the one before it: if that is lost with a primary, all rows are copied again, under
//! other ids. Whoever copies says again and again that it does.

pub mod whole;

use crate::catalog::as_of;
use crate::fault;
use crate::several;
use bytes::Bytes;
use client::{Client, ClientError, Database, Table, Ticket, created, wall_ms};
use pg::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::data::constraint::{Constraint, Demand, Reference};
use types::data::{Row, Schema};
use types::{CatalogTable, Lsn, Micros, Position, TableId, TableRecord};
use wire::request::ReadSnapshot;
use wire::{Body, Op, RecordText, RowOp, TableChange, TablePart};

/// Rows that are copied at once.
const ROWS: u32 = 2_000;
/// Bytes of keys and rows behind which no more are written at once.
const BYTES: usize = 4 << 20;
/// How often a hold is renewed.
const RENEW: Duration = Duration::from_secs(10);
/// How long a read of some rows may take, a failover in between included.
const READ: Micros = Micros::from_millis(20_000);

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
    /// Sequences that come and go with it: the last entry has these changes, too.
    pub definitions: Vec<TableChange>,
}

/// A row of a table that is held.
#[derive(Clone, PartialEq, Debug)]
pub struct FoundRow {
    /// Its key, encoded.
    pub key: Bytes,
    /// The entry that has written it.
    pub version: Lsn,
    /// Itself.
    pub row: Row,
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
    fn rows(&mut self, found: Vec<FoundRow>) -> Result<Vec<Row>, Failure>;

    /// Some of the rows that come behind those of the table; `None`: there are no more.
    fn rest(&mut self) -> Result<Option<Vec<Row>>, Failure> {
        Ok(None)
    }

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

/// One of the tables that are filled together.
pub struct Filling<'c> {
    /// As it is before.
    pub table: Table,
    /// The id that it gets.
    pub id: TableId,
    /// What it becomes.
    pub target: Target,
    /// Who makes its rows.
    pub convert: &'c mut dyn Convert,
}

/// What is done beside filling tables.
#[derive(Default)]
pub struct Beside {
    /// Nothing is done where this state is no part of the primary's history.
    pub since: Option<Position>,
    /// Rows of other tables, which the last entry writes. If it gives one of these another version, it is
    /// written under that.
    pub parts: Vec<TablePart>,
}

/// Why tables are not filled.
pub enum Broken {
    /// The last entry was not asked for: nothing was done.
    Before(Failure),
    /// It was, and was refused, or it is not known whether it was made.
    AtTheEnd(ClientError),
}

impl Broken {
    fn failure(self) -> Failure {
        match self {
            // Whatever became of an entry, the last one was not asked for.
            Broken::Before(why) if fault::is_unknown(&why) => fault::conflict(),
            Broken::Before(why) => why,
            Broken::AtTheEnd(why) => fault::of_client(why),
        }
    }
}

/// A table that is held, and the one that gets its rows.
struct Pair {
    /// As it is held.
    from: Table,
    to: Table,
}

/// Tables that are held, and those that get their rows.
struct Refill<'a> {
    client: &'a mut Client,
    database: Database,
    pairs: Vec<Pair>,
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
    let filling = Filling { table: table.clone(), id: TableId(numbers), target: target.clone(), convert };
    refill_all(client, database, (vec![filling], numbers + 1), Beside::default()).map_err(Broken::failure)
}

/// The same of several tables, one after the other, which take their places together. They are held under
/// versions from this one on. Rows of one that refer to rows of another come behind these.
pub fn refill_all(
    client: &mut Client,
    database: &Database,
    (mut fillings, version): (Vec<Filling<'_>>, u32),
    beside: Beside,
) -> Result<(), Broken> {
    let begun = Refill::begin(client, database, (&fillings[..], version), beside.since);
    let mut refill = begun.map_err(Broken::Before)?;
    let filled = fillings.iter_mut().enumerate().try_for_each(|(at, one)| refill.fill(at, one.convert));
    let done = match filled {
        Ok(()) => refill.switch(&fillings, beside.parts),
        Err(why) => Err(Broken::Before(why)),
    };
    let Err(broken) = done else { return Ok(()) };
    let is_free = refill.give_up();
    Err(match broken {
        // The tables have other versions than the last entry names: it was not made, and never will be.
        Broken::AtTheEnd(ClientError::OutcomeUnknown(_)) if is_free => Broken::Before(fault::conflict()),
        broken => broken,
    })
}

/// A row of the other table. The error: it has no value where one must be.
pub fn inserted(to: &Table, row: &Row) -> Result<RowOp, Failure> {
    let schema = to.schema();
    let must = |at: &usize| !schema.columns()[*at].nullable || schema.key().contains(at);
    let lacks = (0..schema.columns().len()).find(|at| must(at) && row.values[*at].is_null());
    if let Some(at) = lacks {
        let (column, table) = (&schema.columns()[at].name, to.name());
        let message = format!("column \"{column}\" of relation \"{table}\" contains null values");
        return Err(Failure::new("23502", message));
    }
    let (key, row) = to.encode(row).map_err(fault::of_client)?;
    Ok(RowOp::Insert { key, row })
}

impl<'a> Refill<'a> {
    /// The first entry.
    fn begin(
        client: &'a mut Client,
        database: &Database,
        (fillings, version): (&[Filling<'_>], u32),
        since: Option<Position>,
    ) -> Result<Refill<'a>, Failure> {
        let (mut changes, mut pairs) = (Vec::new(), Vec::new());
        for (Filling { table, id, target, .. }, version) in fillings.iter().zip(version..) {
            let held = CatalogTable { held_ms: Some(wall_ms()), ..as_of(table.record(), version) };
            let new = CatalogTable::new(*id, &target.name, target.schema.clone(), table.record().created_ms);
            let filling = CatalogTable { fills: Some(table.id()), created_ms: wall_ms(), ..new.clone() };
            let from = table.schema().version();
            changes.push(TableChange::Alter { from, to: RecordText::new(&held) });
            changes.push(created(&filling));
            pairs.push(Pair { from: database.table(held), to: database.table(new) });
        }
        let begun = client.call(database.transact(changes, Vec::new(), since)).map_err(fault::of_client)?;
        let (last, renewed) = (begun.position(), Instant::now());
        Ok(Refill { client, database: database.clone(), pairs, renewed, last })
    }

    /// Fills one of the tables.
    fn fill(&mut self, at: usize, convert: &mut dyn Convert) -> Result<(), Failure> {
        convert.begin()?;
        while let Some(rows) = convert.more()? {
            self.insert(at, &rows, convert)?;
        }
        self.copy(at, convert)?;
        while let Some(rows) = convert.rest()? {
            self.insert(at, &rows, convert)?;
        }
        Ok(())
    }

    fn copy(&mut self, at: usize, convert: &mut dyn Convert) -> Result<(), Failure> {
        let mut asked = Some(self.ask(at, Bytes::new())?);
        while let Some(ticket) = asked {
            let answer = self.client.wait_for(ticket).and_then(|ended| ended.outcome.into_result());
            let Body::Rows { rows, more } = answer.map_err(fault::of_client)?.body else {
                return Err(Failure::new(pg::code::INTERNAL, "a table without rows"));
            };
            let last = rows.last().map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
            // The next rows come while these are written: nobody else writes the table.
            asked = last.filter(|_| more).map(|first| self.ask(at, first)).transpose()?;
            let from = &self.pairs[at].from;
            let found = rows.into_iter().map(|(key, version, stored)| {
                let row = from.decode(&key, &stored).map_err(fault::of_client)?;
                Ok(FoundRow { key, version, row })
            });
            let found = found.collect::<Result<Vec<_>, Failure>>()?;
            let rows = convert.rows(found)?;
            self.insert(at, &rows, convert)?;
        }
        Ok(())
    }

    /// Asks for some rows of a table, from this key on. The hold is renewed before, and not while they come:
    /// they are asked for by the version that the table has.
    fn ask(&mut self, at: usize, first: Bytes) -> Result<Ticket, Failure> {
        if self.renewed.elapsed() >= RENEW / 2 {
            self.renew()?;
        }
        let op = Op::Scan { from: first, to: Bytes::new(), limit: ROWS, at: ReadSnapshot::Newest };
        let call = self.pairs[at].from.call(self.database.partition(), op).within(READ);
        Ok(self.client.submit(Client::BLOCKING, call))
    }

    fn insert(&mut self, at: usize, rows: &[Row], convert: &dyn Convert) -> Result<(), Failure> {
        let (mut ops, mut bytes) = (Vec::new(), 0);
        for row in rows {
            let op = inserted(&self.pairs[at].to, row)?;
            bytes += op.key().len() + op.row().map_or(0, Bytes::len);
            ops.push(op);
            if ops.len() >= ROWS as usize || bytes >= BYTES {
                self.write(at, std::mem::take(&mut ops), convert)?;
                bytes = 0;
            }
        }
        self.write(at, ops, convert)
    }

    fn write(&mut self, at: usize, ops: Vec<RowOp>, convert: &dyn Convert) -> Result<(), Failure> {
        if ops.is_empty() {
            return Ok(());
        }
        self.renew_in_time()?;
        let Pair { from, to } = &self.pairs[at];
        match self.client.call(to.write_since(self.database.partition(), ops.clone(), self.last)) {
            Ok(answer) => {
                self.last = answer.position();
                Ok(())
            }
            Err(ClientError::Exists) => {
                let (to, mut seen) = (to.clone(), BTreeSet::new());
                let met = match ops.iter().map(RowOp::key).find(|key| !seen.insert(*key)) {
                    Some(twice) => Some(twice),
                    None => self.met(&to, &ops)?,
                };
                Err(convert.refused(Refusal::Key(&to, met)))
            }
            Err(ClientError::Violates(number)) => {
                Err(convert.refused(Refusal::Constraint(from, number, &ops)))
            }
            Err(error) => Err(fault::of_client(error)),
        }
    }

    /// The first of these keys that is there already.
    fn met<'k>(&mut self, to: &Table, ops: &'k [RowOp]) -> Result<Option<&'k Bytes>, Failure> {
        for op in ops {
            let get = Op::Get { key: op.key().clone(), at: ReadSnapshot::Newest };
            let answer = self.client.call(to.call(self.database.partition(), get));
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
        let first = self.client.numbers(self.pairs.len() as u32).map_err(fault::of_client)?;
        let hold = |(pair, version): (&Pair, u32)| CatalogTable {
            held_ms: Some(wall_ms()),
            ..as_of(pair.from.record(), version)
        };
        let held: Vec<CatalogTable> = self.pairs.iter().zip(first..).map(hold).collect();
        let change = |(pair, held): (&Pair, &CatalogTable)| TableChange::Alter {
            from: pair.from.schema().version(),
            to: RecordText::new(held),
        };
        let changes = self.pairs.iter().zip(&held).map(change).collect();
        self.transact(changes, Vec::new()).map_err(fault::of_client)?;
        for (pair, held) in self.pairs.iter_mut().zip(held) {
            pair.from = self.database.table(held);
        }
        self.renewed = Instant::now();
        Ok(())
    }

    /// All rows are there: the other tables get the names.
    fn switch(&mut self, fillings: &[Filling<'_>], parts: Vec<TablePart>) -> Result<(), Broken> {
        let (changes, versions) = self.changes(fillings).map_err(Broken::Before)?;
        let parts = parts.into_iter().map(|part| match versions.get(&part.table) {
            Some(schema) => TablePart { schema: *schema, ..part },
            None => part,
        });
        match self.transact(changes.clone(), parts.collect()) {
            Err(ClientError::OutcomeUnknown(_)) if self.is_switched(&changes) => Ok(()),
            done => done.map_err(Broken::AtTheEnd),
        }
    }

    /// True if it is sure that the last entry was made.
    fn is_switched(&mut self, changes: &[TableChange]) -> bool {
        let Ok(tables) = self.client.tables_of(&self.database) else { return false };
        let known = |id: TableId| tables.iter().find(|table| table.id() == id);
        several::are_shown(changes, |id| known(id).map(|table| table.schema().version()))
    }

    /// What that changes; with the versions of tables that refer to them.
    fn changes(
        &mut self,
        fillings: &[Filling<'_>],
    ) -> Result<(Vec<TableChange>, BTreeMap<TableId, u32>), Failure> {
        let children = fillings.iter().flat_map(|filling| &filling.target.children);
        let mut children: BTreeMap<TableId, &Arc<TableRecord>> =
            children.map(|child| (child.id, child)).collect();
        children.retain(|id, _| self.pairs.iter().all(|pair| pair.from.id() != *id));
        let count = (self.pairs.len() + children.len()) as u32;
        let first = self.client.numbers(count).map_err(fault::of_client)?;
        let mut next = first..;
        let (mut changes, mut versions) = (Vec::new(), BTreeMap::new());
        for (Pair { from, to }, version) in self.pairs.iter().zip(next.by_ref()) {
            let named = as_of(to.record(), version);
            changes.push(TableChange::Drop { table: from.id(), schema: from.schema().version() });
            changes.push(TableChange::Alter { from: to.schema().version(), to: RecordText::new(&named) });
        }
        changes.extend(fillings.iter().flat_map(|filling| filling.target.definitions.iter().cloned()));
        for ((id, child), version) in children.into_iter().zip(next) {
            let referring = child.schema.constraints().iter().cloned();
            let referring = referring.map(|one| self.redirected(one, fillings)).collect();
            let to = as_of(child, version).constrained(referring);
            let to = to.map_err(|why| Failure::new("42P16", why))?;
            changes.push(TableChange::Alter { from: child.schema.version(), to: RecordText::new(&to) });
            versions.insert(id, version);
        }
        Ok((changes, versions))
    }

    /// A constraint of another table, which refers to the table that gets the name.
    fn redirected(&self, mut constraint: Constraint, fillings: &[Filling<'_>]) -> Constraint {
        if let Demand::Foreign(Reference { parent, parent_columns, .. }) = &mut constraint.demand
            && let Some(at) = self.pairs.iter().position(|pair| pair.from.id() == *parent)
            && let Some(columns) = parent_columns.iter().map(|of| fillings[at].target.places[*of]).collect()
        {
            (*parent, *parent_columns) = (self.pairs[at].to.id(), columns);
        }
        constraint
    }

    /// Changes tables, and rows of others, where all that was copied until now is.
    fn transact(&mut self, changes: Vec<TableChange>, parts: Vec<TablePart>) -> Result<(), ClientError> {
        let call = self.database.transact(changes, parts, Some(self.last));
        self.last = self.client.call(call)?.position();
        Ok(())
    }

    /// The tables are written again, and what was copied goes. If that fails, somebody else does it. True if
    /// one entry has done it: no other one that names the versions of before can be made any more.
    fn give_up(&mut self) -> bool {
        let Ok(first) = self.client.numbers(self.pairs.len() as u32) else { return false };
        let (mut free, mut gone) = (Vec::new(), Vec::new());
        for (Pair { from, to }, version) in self.pairs.iter().zip(first..) {
            let to_be = RecordText::new(&as_of(from.record(), version));
            free.push(TableChange::Alter { from: from.schema().version(), to: to_be });
            gone.push(TableChange::Drop { table: to.id(), schema: to.schema().version() });
        }
        // The error that led here is told. A hold that nobody renews is lifted by whoever waits for it.
        let all = free.iter().chain(&gone).cloned().collect();
        if self.client.call(self.database.transact(all, Vec::new(), None)).is_ok() {
            return true;
        }
        // Somebody has altered one of them. The copies refer to each other, and go together.
        for changes in std::iter::once(gone).chain(free.into_iter().map(|one| vec![one])) {
            let _ = self.client.call(self.database.transact(changes, Vec::new(), None));
        }
        false
    }
}
