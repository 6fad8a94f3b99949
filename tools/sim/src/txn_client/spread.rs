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
use wire::{Body, Op, Outcome as Refusal, RecordText, TableChange};

/// The first of the tables that are changed; none of them ever has a row.
pub const FIRST: TableId = TableId(910_000);
/// So many there are.
const TABLES: u64 = 3;

/// What a call is for.
#[derive(Debug)]
pub enum Purpose {
    /// Reads a partition's catalog.
    Read(PartitionId),
    /// Asks the first partition whether it has lost this table, or had it and dropped it.
    Lost(TableId),
    /// Gives the first partition back what it has lost (PR-172).
    GiveBack,
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
    /// Tables of which the first partition says nothing, with where in its log others have seen them.
    unsure: VecDeque<(TableId, Position)>,
    /// Those that it has lost.
    lost: BTreeSet<TableId>,
    /// Something is changed first, and the others are told of it or not.
    changes: bool,
    /// What others are to be told.
    calls: VecDeque<Call>,
}

impl Round {
    /// The catalogs of the others, and the first partition's.
    fn catalogs(&self, first: PartitionId) -> Option<(Vec<&Tables>, &Tables)> {
        let others = self.read.iter().filter(|(partition, _)| **partition != first);
        Some((others.map(|(_, tables)| tables).collect(), self.read.get(&first)?))
    }
}

/// One client's part in it.
pub struct Spread {
    id: u32,
    random: Stream,
    rules: Rules,
    /// The first partition may lose what others have, and is given it back.
    lazy: bool,
    round: Option<Round>,
    next_at: u64,
}

impl Spread {
    /// Of the client with this name.
    pub fn new(id: u32, random: Stream, (rules, lazy): (Rules, bool)) -> Spread {
        Spread { id, random, rules, lazy, round: None, next_at: 0 }
    }

    /// Who was changing something is gone, and another one begins.
    pub fn die(&mut self, now: u64) {
        self.round = None;
        self.next_at = now + self.random.between(50_000, 600_000);
    }

    /// Begins what is due. Nothing new is changed unless `goes_on`: all are brought to the same.
    pub fn step(&mut self, now: u64, goes_on: bool, map: &Map) -> Option<(Purpose, Call)> {
        let record = map.database(LEDGER).filter(|_| self.round.is_none() && now >= self.next_at)?;
        let all = (0..record.partitions).map(|at| PartitionId(record.first_partition.0 + at));
        let mut to_read: VecDeque<PartitionId> = all.collect();
        // What the first one has was there when the others had less.
        to_read.rotate_left(1);
        let changes = goes_on && self.random.chance(500);
        self.round = Some(Round {
            to_read,
            read: BTreeMap::new(),
            unsure: VecDeque::new(),
            lost: BTreeSet::new(),
            changes,
            calls: VecDeque::new(),
        });
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
        let first = record.first_partition;
        let answer = match (outcome, &purpose) {
            (Outcome::Ok(answer), _) => answer,
            (Outcome::Refused(Refusal::Changed, _), Purpose::Lost(table)) => {
                self.round.as_mut()?.lost.insert(*table);
                return self.ask_next(now, record);
            }
            _ => return None,
        };
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
                self.read_all(now, record)
            }
            Purpose::Lost(_) => self.ask_next(now, record),
            Purpose::GiveBack => self.read_again(record),
            // It dies, as far as anybody can tell, or tells the others.
            Purpose::Change if self.random.chance(500) => None,
            Purpose::Change => self.read_again(record),
            Purpose::Level if self.random.chance(150) => None,
            Purpose::Level => Some((Purpose::Level, self.round.as_mut()?.calls.pop_front()?)),
        }
    }

    /// Reads all catalogs from the start, to bring them to the same.
    fn read_again(&mut self, record: &TableRecord) -> Option<(Purpose, Call)> {
        let round = self.round.as_mut()?;
        let mut all: VecDeque<PartitionId> = round.read.keys().copied().collect();
        all.rotate_left(1);
        (round.to_read, round.changes) = (all, false);
        self.read_next(record)
    }

    /// All catalogs were read. Of tables that the first partition does not know it is asked what became of
    /// them, where it may have lost them.
    fn read_all(&mut self, now: u64, record: &TableRecord) -> Option<(Purpose, Call)> {
        let lazy = self.lazy;
        let round = self.round.as_mut()?;
        round.lost.clear();
        let (others, known) = round.catalogs(record.first_partition)?;
        let unknown = spread::unknown(&others, known).into_iter().filter(|_| lazy);
        let unsure = unknown.map(|table| (table.id, table.seen.unwrap_or_default())).collect();
        round.unsure = unsure;
        self.ask_next(now, record)
    }

    /// Asks for the next table that may be lost; behind the last one the catalogs are compared.
    fn ask_next(&mut self, now: u64, record: &TableRecord) -> Option<(Purpose, Call)> {
        let Some((table, seen)) = self.round.as_mut()?.unsure.pop_front() else {
            return self.compare(now, record);
        };
        let op = Op::Transact { changes: Vec::new(), parts: Vec::new(), since: Some(seen) };
        Some((Purpose::Lost(table), Call::new(record.id, 0, record.first_partition, op)))
    }

    /// What is to be done is known.
    fn compare(&mut self, now: u64, record: &TableRecord) -> Option<(Purpose, Call)> {
        let first = record.first_partition;
        let call = |partition, changes: Vec<TableChange>| {
            Call::new(record.id, 0, partition, Op::Transact { changes, parts: Vec::new(), since: None })
        };
        let version = ((now / 1_000) << 3 | u64::from(self.id & 7)) as u32;
        let round = self.round.as_ref()?;
        let (others, known) = round.catalogs(first)?;
        if self.lazy {
            let lost = (&round.lost, &BTreeSet::new());
            let back = spread::given_back(&others, known, lost, || Ok::<u32, ()>(version)).ok()?;
            if !back.is_empty() {
                return Some((Purpose::GiveBack, call(first, back)));
            }
        }
        if round.changes {
            let change = invent(&mut self.random, known, version)?;
            return Some((Purpose::Change, call(first, vec![change])));
        }
        let others = round.read.iter().filter(|(partition, _)| **partition != first);
        let calls = others.filter_map(|(partition, own)| {
            let changes = spread::changes_by(own, known, &round.lost, self.rules);
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
        if let Some(at) = at {
            table.seen = Some(Position::new(at.term, lsn));
        }
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
