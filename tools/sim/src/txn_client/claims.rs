//! Rows that demand something of others over all partitions: people have a unique value, and letters refer to
//! people (PR-324, PR-325). Who writes such rows looks at all of them before, at one snapshot, and commits
//! nothing that does not fit what it sees there.

use super::{LEDGER, Open, Purpose, TxnClient, accounts};
use crate::check::claims::{Rows, fault};
use crate::check::commits::TxnEnd;
use crate::random::Stream;
use crate::rows::{self, LETTERS, PEOPLE, table_of};
use ::client::txn::{Doing, Manager, Step};
use ::client::{Call, FailKind, Outcome};
use std::collections::BTreeMap;
use types::data::constraint::{Action, Constraint, Demand, Reference};
use types::{CatalogTable, PartitionId, TableId};
use wire::{Body, ManagerOp, Op, RecordText};

/// The numbers of their constraints.
const UNIQUE: u32 = 900_003;
const REFERS: u32 = 900_005;

/// Rows of the one, and of the other, and unique values.
const MOST_PEOPLE: u64 = 5;
const MOST_LETTERS: u64 = 6;
const VALUES: i64 = 5;

/// Both tables as they are made.
pub fn tables() -> Vec<CatalogTable> {
    let reference = Reference {
        columns: vec![rows::REFERS],
        parent: PEOPLE,
        parent_columns: vec![0],
        on_delete: Action::default(),
        on_update: Action::default(),
        deferred: None,
    };
    let table = |id, name, constraint| {
        let schema = rows::table_schema(1, 0).with_constraints(vec![constraint]).expect("valid");
        CatalogTable::new(id, name, schema, 1)
    };
    vec![
        table(PEOPLE, "people", Constraint::new(UNIQUE, "one_mark", Demand::Unique(vec![rows::MARK]))),
        table(LETTERS, "letters", Constraint::new(REFERS, "of_whom", Demand::Foreign(reference))),
    ]
}

/// What a client does with such rows.
#[derive(Debug)]
pub struct Claims {
    random: Stream,
    /// The transaction manager knows the tables.
    announced: bool,
}

/// What a transaction looks at before it commits.
#[derive(Debug, Default)]
pub struct Look {
    /// It has a snapshot for it.
    begun: bool,
    /// Tables of partitions that are still to be read.
    to_scan: Vec<(TableId, PartitionId)>,
    seen: Rows,
    /// It writes rows of the plain table, too.
    and_accounts: bool,
}

impl Claims {
    /// By this stream.
    pub fn new(random: Stream) -> Claims {
        Claims { random, announced: false }
    }

    /// It does not know any more what the transaction manager was told.
    pub fn forget(&mut self) {
        self.announced = false;
    }

    /// What the next transaction looks at; none: it writes the plain table alone.
    pub fn begin(&mut self) -> Option<Look> {
        let looks = self.random.chance(750);
        looks.then(|| Look { and_accounts: self.random.chance(250), ..Look::default() })
    }

    /// Changes of rows that fit what was seen. `next` gives a value that nobody else writes.
    fn changes(&mut self, seen: &Rows, mut next: impl FnMut() -> u64) -> BTreeMap<String, Option<u64>> {
        let (mut after, mut changes) = (seen.clone(), BTreeMap::new());
        for _ in 0..=self.random.below(3) {
            let (person, letter) = (self.random.below(MOST_PEOPLE), self.random.below(MOST_LETTERS));
            let (name, goes) = match self.random.below(10) {
                0..4 => (format!("m{person}"), false),
                4..6 => (format!("m{person}"), true),
                6..9 => (format!("l{letter}"), false),
                _ => (format!("l{letter}"), true),
            };
            let value = (!goes).then(|| {
                loop {
                    let value = next();
                    // Few values are unique together, and few rows are referred to that cannot be there.
                    let parent = |parent: String| parent[1..].parse::<u64>().is_ok_and(|at| at < MOST_PEOPLE);
                    let fits = match table_of(&name) == PEOPLE {
                        true => rows::mark(&name, value).is_none_or(|mark| mark <= VALUES),
                        false => rows::refers(&name, value).is_some_and(parent) || value.is_multiple_of(8),
                    };
                    if fits {
                        break value;
                    }
                }
            });
            let mut then = after.clone();
            match value {
                Some(value) => then.insert(name.clone(), value),
                None => then.remove(&name),
            };
            if fault(&then).is_none() {
                after = then;
                changes.insert(name, value);
            }
        }
        changes
    }
}

impl TxnClient {
    /// What the transaction manager has to be told before anything is committed.
    pub(super) fn announces(&self) -> Option<ManagerOp> {
        self.claims.as_ref().filter(|claims| !claims.announced)?;
        let record = self.shell.core().map().database(LEDGER)?;
        let partitions = (0..record.partitions).map(|at| PartitionId(record.first_partition.0 + at));
        let tables = [accounts()].into_iter().chain(tables());
        let tables = tables.map(|table| RecordText::new(&record.with_table(table)));
        Some(ManagerOp::Define {
            partitions: partitions.collect(),
            tables: tables.collect(),
            gone: Vec::new(),
        })
    }

    /// It was told.
    pub(super) fn announced(&mut self, now: u64) {
        if let Some(claims) = &mut self.claims {
            claims.announced = true;
        }
        match self.manager() {
            Some(manager) => self.submit(now, self.known.begin(manager), Purpose::Begin),
            None => self.end(now, TxnEnd::NotDone),
        }
    }

    /// A commit failed like this: the manager may not know a table.
    pub(super) fn forget_announced(&mut self, kind: &FailKind) {
        if let (FailKind::Stale, Some(claims)) = (kind, &mut self.claims) {
            claims.announced = false;
        }
    }

    /// Looks at the next rows before a commit. False: all were seen, or none are looked at.
    pub(super) fn looks_on(&mut self, now: u64) -> bool {
        let Some(Open { look: Some(look), current: Some(snapshot), .. }) = &mut self.open else {
            return false;
        };
        let (Some(manager), Some(record)) = (
            self.shell.core().map().table(types::system::COMMITS).map(|record| Manager::of(record)),
            self.shell.core().map().database(LEDGER),
        ) else {
            self.end(now, TxnEnd::NotDone);
            return true;
        };
        if !look.begun {
            look.begun = true;
            let all = (0..record.partitions).map(|at| PartitionId(record.first_partition.0 + at));
            look.to_scan = all.flat_map(|partition| [(PEOPLE, partition), (LETTERS, partition)]).collect();
            self.submit(now, self.known.begin(manager), Purpose::Begin);
            return true;
        }
        let Some((table, partition)) = look.to_scan.last().copied() else { return false };
        let at = self.known.at(*snapshot, partition);
        let op = Op::Scan { from: "".into(), to: "".into(), limit: 1_000, at };
        let goal = Call::new(table, 1, partition, op).within(super::CALL_TIMEOUT);
        let (doing, call) = Doing::new(manager, goal);
        self.submit(now, call, Purpose::Scan(doing));
        true
    }

    pub(super) fn scan_goes_on(&mut self, now: u64, mut doing: Doing, outcome: Option<Outcome>) {
        let outcome = match doing.next(outcome) {
            Step::Call(call) => return self.submit(now, *call, Purpose::Scan(doing)),
            Step::Wait(time) => return self.paused.push((now + time.0, Purpose::Scan(doing))),
            Step::Done(outcome) => *outcome,
        };
        match outcome {
            Outcome::Ok(answer) => {
                let Body::Rows { rows, .. } = &answer.body else {
                    self.reported.fault = Some(format!("a scan was answered with {:?}", answer.body));
                    return self.end(now, TxnEnd::NotDone);
                };
                let Some(Open { look: Some(look), .. }) = &mut self.open else { return };
                let rows = rows.iter().map(|(key, _, row)| (rows::name_of(key), rows::table_value(row)));
                look.seen.extend(rows);
                look.to_scan.pop();
                if look.to_scan.is_empty() {
                    self.has_seen_all();
                }
                self.next_read(now);
            }
            Outcome::Failed(FailKind::Stale, _) => self.define(now, doing.partition()),
            _ => self.end(now, TxnEnd::NotDone),
        }
    }

    /// All rows of both tables were read: those that are there, and those that are not.
    fn has_seen_all(&mut self) {
        let Some(Open { look: Some(look), current: Some(at), operation, .. }) = &mut self.open else {
            return;
        };
        let people = (0..MOST_PEOPLE).map(|number| format!("m{number}"));
        let letters = (0..MOST_LETTERS).map(|number| format!("l{number}"));
        for name in people.chain(letters) {
            let value = look.seen.get(&name).copied();
            operation.reads.push((name, value, *at));
        }
    }

    /// Adds rows of these tables to what is written. False: nothing is.
    pub(super) fn claims_too(&mut self, writes: &mut BTreeMap<String, Option<u64>>) -> bool {
        let Some(Open { look: Some(look), .. }) = &self.open else { return true };
        let Some(claims) = &mut self.claims else { return true };
        if !look.and_accounts {
            writes.clear();
        }
        let next = || {
            self.last_value += 1;
            u64::from(self.id) << 32 | self.last_value
        };
        writes.extend(claims.changes(&look.seen, next));
        !writes.is_empty()
    }
}
