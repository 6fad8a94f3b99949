//! Changes of the tables of a database of several partitions (PR-170): a change goes into the first
//! partition, and from there into the others. Now and then whoever makes one stops in the middle, as if it
//! had died; whoever comes next reads all catalogs and finishes what is left, by the code that clients use
//! ([`wire::spread`]).

use super::LEDGER;
use crate::random::Stream;
use crate::rows;
use ::client::{Call, Map, Outcome};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::data::Schema;
use types::{CatalogTable, PartitionId, Position, Rules, TableId, TableRecord, TableState};
use wire::request::ReadSnapshot;
use wire::spread::{self, Tables};
use wire::{Body, Op, RecordText, TableChange};

/// The first of the tables that are changed; none of them ever has a row.
pub const FIRST: TableId = TableId(910_000);
/// So many there are.
const TABLES: u64 = 3;

/// What a call is for.
#[derive(Debug)]
pub enum Purpose {
    /// Reads a partition's catalog.
    Read(PartitionId),
    /// Makes a change of one's own in the first partition.
    Change,
    /// Brings another partition to what the first one has.
    Level,
}

/// What is being done.
#[derive(Debug)]
struct Round {
    /// The partitions that are still to be read: the first one last.
    to_read: VecDeque<PartitionId>,
    read: BTreeMap<PartitionId, Tables>,
    /// Something is changed first, and the others are told of it or not.
    changes: bool,
    /// What others are to be told.
    calls: VecDeque<Call>,
}

/// One client's part in it.
pub struct Spread {
    id: u32,
    random: Stream,
    rules: Rules,
    round: Option<Round>,
    next_at: u64,
}

impl Spread {
    /// Of the client with this name.
    pub fn new(id: u32, random: Stream, rules: Rules) -> Spread {
        Spread { id, random, rules, round: None, next_at: 0 }
    }

    /// Begins what is due. Nothing new is changed unless `goes_on`: all are brought to the same.
    pub fn step(&mut self, now: u64, goes_on: bool, map: &Map) -> Option<(Purpose, Call)> {
        let record = map.database(LEDGER).filter(|_| self.round.is_none() && now >= self.next_at)?;
        let all = (0..record.partitions).map(|at| PartitionId(record.first_partition.0 + at));
        let mut to_read: VecDeque<PartitionId> = all.collect();
        // What the first one has was there when the others had less.
        to_read.rotate_left(1);
        let changes = goes_on && self.random.chance(500);
        self.round = Some(Round { to_read, read: BTreeMap::new(), changes, calls: VecDeque::new() });
        self.read_next(record)
    }

    fn read_next(&mut self, record: &TableRecord) -> Option<(Purpose, Call)> {
        let partition = *self.round.as_ref()?.to_read.front()?;
        let op = Op::Scan { from: "".into(), to: "".into(), limit: 1_000, at: ReadSnapshot::Newest };
        Some((Purpose::Read(partition), Call::new(record.id, 0, partition, op)))
    }

    /// A call has ended: the next one.
    pub fn go_on(
        &mut self,
        now: u64,
        (purpose, outcome): (Purpose, Outcome),
        map: &Map,
    ) -> Option<(Purpose, Call)> {
        let next = map.database(LEDGER).and_then(|record| self.next(now, purpose, outcome, record));
        if next.is_none() {
            self.round = None;
            self.next_at = now + self.random.between(50_000, 600_000);
        }
        next
    }

    fn next(
        &mut self,
        now: u64,
        purpose: Purpose,
        outcome: Outcome,
        record: &TableRecord,
    ) -> Option<(Purpose, Call)> {
        let Outcome::Ok(answer) = outcome else { return None };
        let first = record.first_partition;
        match purpose {
            Purpose::Read(partition) => {
                let Body::Rows { rows, .. } = &answer.body else { return None };
                let rows = rows.iter().map(|(key, lsn, row)| (&key[..], *lsn, &row[..]));
                let tables = tables_of(rows, (partition == first).then_some(answer.position()));
                let round = self.round.as_mut()?;
                round.read.insert(partition, tables);
                round.to_read.pop_front();
                if !round.to_read.is_empty() {
                    return self.read_next(record);
                }
                self.compare(now, record)
            }
            // It dies, as far as anybody can tell, or tells the others.
            Purpose::Change if self.random.chance(500) => None,
            Purpose::Change => {
                let mut all: VecDeque<PartitionId> = self.round.as_ref()?.read.keys().copied().collect();
                all.rotate_left(1);
                let round = self.round.as_mut()?;
                (round.to_read, round.changes) = (all, false);
                self.read_next(record)
            }
            Purpose::Level if self.random.chance(150) => None,
            Purpose::Level => Some((Purpose::Level, self.round.as_mut()?.calls.pop_front()?)),
        }
    }

    /// All catalogs were read.
    fn compare(&mut self, now: u64, record: &TableRecord) -> Option<(Purpose, Call)> {
        let first = record.first_partition;
        let call = |partition, changes: Vec<TableChange>| {
            Call::new(record.id, 0, partition, Op::Transact { changes, parts: Vec::new(), since: None })
        };
        let round = self.round.as_ref()?;
        let known = round.read.get(&first)?;
        if round.changes {
            let version = ((now / 1_000) << 3 | u64::from(self.id & 7)) as u32;
            let change = invent(&mut self.random, known, version)?;
            return Some((Purpose::Change, call(first, vec![change])));
        }
        let none = BTreeSet::new();
        let others = round.read.iter().filter(|(partition, _)| **partition != first);
        let calls = others.filter_map(|(partition, own)| {
            let changes = spread::changes_by(own, known, &none, self.rules);
            (!changes.is_empty()).then(|| call(*partition, changes))
        });
        let mut calls: VecDeque<Call> = calls.collect();
        let next = calls.pop_front()?;
        self.round.as_mut()?.calls = calls;
        Some((Purpose::Level, next))
    }
}

/// The tables of rows of a catalog. Those of the first partition, read `at`, say where in its log they are.
fn tables_of<'a>(
    rows: impl Iterator<Item = (&'a [u8], types::Lsn, &'a [u8])>,
    at: Option<Position>,
) -> Tables {
    let mut tables = Tables::new();
    for (key, lsn, row) in rows {
        let Ok((state, mut table)) = CatalogTable::decode(key, row) else { continue };
        // The table that transactions write is made in each partition by whoever needs it.
        if table.id < FIRST {
            continue;
        }
        table.seen = at.map(|at| Position::new(at.term, lsn));
        tables.insert(table.id, (state, table));
    }
    tables
}

/// A table is made, gets another name, or is dropped.
fn invent(random: &mut Stream, known: &Tables, version: u32) -> Option<TableChange> {
    let id = TableId(FIRST.0 + random.below(TABLES) as u32);
    let name = format!("t{}_{version}", id.0);
    let of_version = |schema: Schema| {
        let mut parts = schema.into_parts();
        parts.version = version;
        Schema::from_parts(parts).expect("the same columns")
    };
    match known.get(&id) {
        Some((TableState::Dropping, _)) => None,
        Some((_, table)) if random.chance(300) => {
            Some(TableChange::Drop { table: id, schema: table.schema.version() })
        }
        Some((_, table)) => {
            let schema = of_version(table.schema.clone());
            let to = CatalogTable { name, schema, seen: None, ..table.clone() };
            Some(TableChange::Alter { from: table.schema.version(), to: RecordText::new(&to) })
        }
        None => {
            let schema = of_version(rows::table_schema(1, 0));
            Some(TableChange::Create(RecordText::new(&CatalogTable::new(id, &name, schema, 1))))
        }
    }
}
