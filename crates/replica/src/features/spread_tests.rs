//! Random changes of tables in the first partition of a database, and clients that bring the others to the
//! same: with what they have read long ago, over each other, and stopping in the middle (PR-170, PR-171).
//! Now and then the first partition loses its last entries, as by a promotion that an operator forced
//! (PR-172).

use crate::fake::{FakeEngine, at, member};
use crate::features::catalog::{Refused, evaluate_parts, read_changes, tables_at};
use crate::history::History;
use procedure::Runtime;
use std::collections::BTreeSet;
use types::data::constraint::{Demand, Standing};
use types::data::{Column, ColumnType, Constraint, Schema};
use types::engine::{Engine, ReadAt};
use types::{
    CatalogTable, Epoch, LogKind, Lsn, Mutation, PartitionId, PartitionRecord, Policy, Position, Rules,
    TableId, TableState, Term,
};
use wire::spread::{self, Tables};
use wire::{Outcome, RecordText, TableChange};

const PARTITIONS: usize = 3;
const CLIENTS: usize = 3;
const STEPS: usize = 300;
/// One of so many changes of tables is a loss.
const LOSSES: usize = 8;

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

struct Partition {
    engine: FakeEngine,
    log: Vec<Vec<Mutation>>,
    term: u64,
    history: History,
    record: PartitionRecord,
    /// Constraints whose rows it has looked at, or that its table was made with.
    looked: BTreeSet<u32>,
}

impl Partition {
    fn new() -> Partition {
        let policy = Policy::preset("sync", 1, LogKind::Disk).expect("a preset");
        let record = PartitionRecord::new(PartitionId(64), TableId(5), Epoch(1), vec![member()], policy);
        let (engine, record) = (FakeEngine::new(), record.of_database());
        let (log, history, looked) = (Vec::new(), History::default(), BTreeSet::new());
        Partition { engine, log, term: 1, history, record, looked }
    }

    fn end(&self) -> Lsn {
        Lsn(self.log.len() as u64)
    }

    /// Its catalog, with where each definition is in its log.
    fn read(&self) -> Tables {
        let mut tables = self.tables();
        for (_, table) in tables.values_mut() {
            let (lsn, _) =
                self.engine.get(&table.stored_key(), ReadAt::Applied).expect("readable").expect("there");
            table.seen = Some(Position::new(Term(self.term), lsn));
        }
        tables
    }

    /// Its last entries are lost, and another primary begins.
    fn lose(&mut self, entries: usize) {
        self.log.truncate(self.log.len().saturating_sub(entries));
        self.engine = FakeEngine::new();
        for (n, mutations) in self.log.iter().enumerate() {
            self.engine.execute(at(n as u64 + 1), mutations);
        }
        self.history.truncate(self.end());
        self.term += 1;
    }

    fn tables(&self) -> Tables {
        tables_at(&self.engine, ReadAt::Applied).expect("readable")
    }

    fn execute(&mut self, mutations: &[Mutation]) {
        self.log.push(mutations.to_vec());
        self.history.append(Position::new(Term(self.term), self.end()));
        self.engine.execute(at(self.log.len() as u64), mutations);
    }

    /// One entry, or nothing.
    fn change(&mut self, changes: &[TableChange]) -> Result<(), Refused> {
        let changes = read_changes(changes).map_err(Refused::Bad)?;
        let before = self.tables();
        let evaluated = evaluate_parts(
            &self.engine,
            &self.record,
            (Rules::ALL, &Runtime::default()),
            (&changes, &[]),
            None,
        )
        .expect("no error")?;
        self.execute(&evaluated.2);
        for (id, (_, table)) in &self.tables() {
            if !before.contains_key(id) {
                self.looked.extend(table.schema.constraints().iter().map(|one| one.number));
            }
        }
        Ok(())
    }

    /// What the partition does by itself, for one table: it removes it, or has looked at its rows.
    fn tend(&mut self, random: &mut Random) {
        let tables = self.tables();
        if tables.is_empty() {
            return;
        }
        let (state, table) = tables.values().nth(random.below(tables.len())).expect("one of them");
        if *state == TableState::Dropping {
            self.execute(&[Mutation { key: table.stored_key(), value: None }]);
            return;
        }
        let mut constraints = table.schema.constraints().to_vec();
        constraints.retain(|one| one.standing != Standing::Dropping);
        for one in constraints.iter_mut().filter(|one| one.standing == Standing::Building) {
            self.looked.insert(one.number);
            *one = one.clone().turned(Standing::Valid);
        }
        let table = table.clone().constrained(constraints).expect("valid");
        self.execute(&[Mutation { key: table.stored_key(), value: Some(table.encode(*state)) }]);
    }

    fn check(&self) {
        for (state, table) in self.tables().values() {
            let valid = |one: &&Constraint| one.standing == Standing::Valid && one.indexed().is_some();
            for one in table.schema.constraints().iter().filter(valid) {
                let known = self.looked.contains(&one.number);
                assert!(known, "PR-171: {} is valid in {state:?} `{}` unseen", one.name, table.name);
            }
        }
    }
}

fn drops(changes: &[TableChange]) -> impl Iterator<Item = TableId> {
    changes.iter().filter_map(|change| match change {
        TableChange::Drop { table, .. } => Some(*table),
        TableChange::Create(_) | TableChange::Alter { .. } => None,
    })
}

struct World {
    partitions: Vec<Partition>,
    random: Random,
    next: u32,
    /// What clients have read: the catalogs of partitions one after the other, and the first one's at last.
    reads: Vec<Vec<Tables>>,
    /// Tables that somebody has dropped.
    dropped: BTreeSet<TableId>,
    /// A table has two definitions, neither of which can follow the other.
    parted: bool,
    /// Tables that the first partition was given back.
    returned: BTreeSet<TableId>,
}

impl World {
    fn new(seed: u64) -> World {
        let partitions = (0..PARTITIONS).map(|_| Partition::new()).collect();
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let reads = vec![Vec::new(); CLIENTS];
        World {
            partitions,
            random,
            next: 100,
            reads,
            dropped: BTreeSet::new(),
            parted: false,
            returned: BTreeSet::new(),
        }
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn made(&mut self) -> CatalogTable {
        let columns = vec![Column::new("w", ColumnType::Int), Column::new("v", ColumnType::Int)];
        let id = self.number();
        let schema = Schema::new(columns, &["w"], 1, false).expect("valid");
        let name = ["a", "b", "c", "d"][self.random.below(4)];
        CatalogTable::new(TableId(id), name, schema, u64::from(id))
    }

    /// Another definition of a table.
    fn altered(&mut self, table: &CatalogTable, name: &str) -> TableChange {
        let from = table.schema.version();
        let mut parts = table.schema.clone().into_parts();
        parts.version = self.number();
        match self.random.below(4) {
            0 => parts.columns.push(Column::new(format!("c{}", parts.version), ColumnType::Text)),
            1 => drop(parts.constraints.pop()),
            _ => {
                let number = self.number();
                let unique = Demand::Unique(vec![0, 1]);
                let one = Constraint::new(number, &format!("u{number}"), unique);
                parts.constraints.push(one.turned(Standing::Building));
            }
        }
        parts.constraints.retain(Constraint::is_enforced);
        let schema = Schema::from_parts(parts).expect("valid");
        let to = CatalogTable::new(table.id, name, schema, table.created_ms);
        TableChange::Alter { from, to: RecordText::new(&to) }
    }

    /// What the first partition is given back by the others, and the tables that it has lost.
    fn lost(&mut self, others: &[&Tables], first: &Tables) -> (Vec<TableChange>, BTreeSet<TableId>) {
        let history = (self.partitions[0].history.clone(), self.partitions[0].end());
        let goes_on = |seen: Position| history.0.holds(seen, history.1);
        let unsure = spread::unknown(others, first).into_iter();
        let lost = unsure.filter(|table| !table.seen.is_some_and(goes_on)).map(|table| table.id).collect();
        let back =
            spread::given_back(others, first, (&lost, &BTreeSet::new()), || Ok::<u32, ()>(self.number()));
        (back.expect("numbers"), lost)
    }

    /// True if others have what the first one has lost. Whoever changes tables gives it back first.
    fn is_behind(&mut self) -> bool {
        let all: Vec<Tables> = self.partitions.iter().map(Partition::tables).collect();
        !self.lost(&all[1..].iter().collect::<Vec<_>>(), &all[0]).0.is_empty()
    }

    /// Somebody changes tables: in the first partition.
    fn define(&mut self) {
        if self.is_behind() {
            return;
        }
        let first = self.partitions[0].tables();
        let live: Vec<CatalogTable> = first
            .values()
            .filter(|(state, _)| *state != TableState::Dropping)
            .map(|(_, table)| table.clone())
            .collect();
        let changes = match (self.random.below(5), live.as_slice()) {
            (0, [one, two, ..]) => {
                vec![self.altered(one, &two.name.clone()), self.altered(two, &one.name.clone())]
            }
            (1, [one, ..]) => vec![TableChange::Drop { table: one.id, schema: one.schema.version() }],
            (2 | 3, [_, ..]) => {
                let one = live[self.random.below(live.len())].clone();
                vec![self.altered(&one, &one.name)]
            }
            _ => vec![TableChange::Create(RecordText::new(&self.made()))],
        };
        match self.partitions[0].change(&changes) {
            Ok(()) => self.dropped.extend(drops(&changes)),
            Err(Refused::Outcome(Outcome::NameTaken)) => {}
            Err(other) => panic!("{other:?}: {changes:?}"),
        }
    }

    /// A client goes one step on: it reads a partition, the first one behind all others, and then sends what
    /// is to be done.
    fn bring(&mut self) {
        let client = self.random.below(CLIENTS);
        let read = self.reads[client].len();
        if read < PARTITIONS {
            let next = match (read + 1) % PARTITIONS {
                0 => self.partitions[0].read(),
                other => self.partitions[other].tables(),
            };
            self.reads[client].push(next);
        } else {
            let mut others = std::mem::take(&mut self.reads[client]);
            let first = others.pop().expect("it was read");
            self.send(&others, &first);
        }
        if self.random.below(8) == 0 {
            self.reads[client].clear();
        }
    }

    /// What follows from what a client has read, which may stop in the middle.
    fn send(&mut self, others: &[Tables], first: &Tables) {
        let (back, lost) = self.lost(&others.iter().collect::<Vec<_>>(), first);
        if !back.is_empty() {
            self.returned.extend(lost);
            return self.change(0, &back, first);
        }
        for (to, own) in others.iter().enumerate().take(self.random.below(PARTITIONS)) {
            let changes = spread::changes(own, first, &lost);
            self.change(to + 1, &changes, own);
        }
    }

    fn change(&mut self, to: usize, changes: &[TableChange], own: &Tables) {
        for table in drops(changes) {
            assert!(self.dropped.contains(&table), "PR-172: nobody has dropped table {table}");
        }
        match self.partitions[to].change(changes) {
            Ok(()) | Err(Refused::Outcome(Outcome::NameTaken | Outcome::Stale)) => {}
            Err(Refused::Bad(_)) if self.parted(changes, own) => self.parted = true,
            Err(other) => panic!("{other:?}: {changes:?}"),
        }
    }

    /// True if a table was changed in two ways: once before the first partition lost that, and somebody who
    /// was slow brought it to this partition behind the loss, and once more in the first one meanwhile. Or
    /// somebody who was slow has given it back as it was long before.
    fn parted(&self, changes: &[TableChange], own: &Tables) -> bool {
        let (history, end) = (&self.partitions[0].history, self.partitions[0].end());
        changes.iter().any(|change| match change {
            TableChange::Alter { to, .. } => {
                let to: CatalogTable = to.read().expect("a table");
                let lost = own[&to.id].1.seen.is_some_and(|seen| !history.holds(seen, end));
                lost || self.returned.contains(&to.id)
            }
            TableChange::Create(_) | TableChange::Drop { .. } => false,
        })
    }

    fn is_level(&mut self) -> bool {
        let first = self.partitions[0].read();
        let none = BTreeSet::new();
        !self.is_behind()
            && self.partitions.iter().all(|one| spread::changes(&one.tables(), &first, &none).is_empty())
    }

    /// False: it ended early, with a table of two definitions.
    fn run(&mut self) -> bool {
        for _ in 0..STEPS {
            if self.parted {
                return false;
            }
            match self.random.below(6) {
                0 => match self.random.below(LOSSES) {
                    0 => {
                        let entries = 1 + self.random.below(4);
                        self.partitions[0].lose(entries);
                    }
                    _ => self.define(),
                },
                1 | 2 => {
                    let one = self.random.below(PARTITIONS);
                    self.partitions[one].tend(&mut self.random);
                }
                _ => self.bring(),
            }
            self.partitions.iter().for_each(Partition::check);
        }
        let mut rounds = 0;
        while !self.is_level() {
            if self.parted {
                return false;
            }
            rounds += 1;
            assert!(rounds < 10 * STEPS, "PR-170: the partitions do not come to the same");
            self.bring();
        }
        let kept = |table: &CatalogTable| -> Vec<u32> {
            let enforced = table.schema.constraints().iter().filter(|one| one.is_enforced());
            enforced.map(|one| one.number).collect()
        };
        let named = |partition: &Partition| -> BTreeSet<_> {
            let tables = partition.tables();
            let live = tables.values().filter(|(state, _)| *state != TableState::Dropping);
            let of =
                |table: &CatalogTable| (table.name.clone(), table.id.0, table.schema.version(), kept(table));
            live.map(|(_, table)| of(table)).collect()
        };
        let all: Vec<_> = self.partitions.iter().map(named).collect();
        assert!(all.iter().all(|one| *one == all[0]), "PR-170: {all:?}");
        true
    }
}

#[test]
fn pr170_pr171_and_pr172_partitions_come_to_what_the_first_one_has() {
    let ended = (1..=400).filter(|seed| World::new(*seed).run()).count();
    assert!(ended >= 380, "{ended} of 400 runs came to their end");
}
