//! Rows that demand something of others over all partitions: people have a unique value, and letters refer to
//! people (PR-324, PR-325); in some worlds notes refer to people by that value (PR-369). Who writes such rows
//! looks at all of them before, at one snapshot, and commits nothing that does not fit what it sees there.

use super::{LEDGER, Open, Purpose, TxnClient, accounts};
use crate::check::claims::{Rows, fault};
use crate::check::commits::TxnEnd;
use crate::random::Stream;
use crate::rows::{self, LETTERS, NOTES, PEOPLE, table_of};
use ::client::txn::{Doing, Manager, Step};
use ::client::{Call, FailKind, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use types::data::Value;
use types::data::constraint::{Action, Constraint, Demand, Reference};
use types::index::entry_prefix;
use types::{CatalogTable, PartitionId, Position, TableId};
use wire::commit::ParentRow;
use wire::{Body, CommitRequest, ManagerOp, Op, RecordText};

/// The numbers of their constraints.
const UNIQUE: u32 = 900_003;
const REFERS: u32 = 900_005;
const REFERS_BY_VALUE: u32 = 900_007;

/// Rows of each table, and unique values.
const MOST_PEOPLE: u64 = 5;
const MOST_LETTERS: u64 = 6;
const MOST_NOTES: u64 = 4;
const VALUES: i64 = 5;

/// The tables as they are made, that of notes among them or not.
fn tables(by_value: bool) -> Vec<CatalogTable> {
    let to_people = |columns: usize, parent_columns: usize| Reference {
        columns: vec![columns],
        parent: PEOPLE,
        parent_columns: vec![parent_columns],
        on_delete: Action::default(),
        on_update: Action::default(),
        deferred: None,
    };
    let table = |id, name, constraint| {
        let schema = rows::table_schema(1, 0).with_constraints(vec![constraint]).expect("valid");
        CatalogTable::new(id, name, schema, 1)
    };
    let by_key = Demand::Foreign(to_people(rows::REFERS, 0));
    let mut all = vec![
        table(PEOPLE, "people", Constraint::new(UNIQUE, "one_mark", Demand::Unique(vec![rows::MARK]))),
        table(LETTERS, "letters", Constraint::new(REFERS, "of_whom", by_key)),
    ];
    if by_value {
        let by_value = Demand::Foreign(to_people(rows::MARK, rows::MARK));
        all.push(table(NOTES, "notes", Constraint::new(REFERS_BY_VALUE, "of_which", by_value)));
    }
    all
}

/// What a client does with such rows.
#[derive(Debug)]
pub struct Claims {
    random: Stream,
    /// Some rows refer to others by their unique values.
    by_value: bool,
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
    /// What the rows that it writes refer to by unique values.
    parents: Vec<ParentRow>,
}

impl Look {
    /// Commits what fits what was seen at this snapshot.
    pub(super) fn commits(&self, asked: CommitRequest, checked: Position) -> ManagerOp {
        match self.parents.is_empty() {
            true => ManagerOp::CommitChecked(asked, checked),
            false => ManagerOp::CommitLooked { asked, checked, parents: self.parents.clone() },
        }
    }
}

/// What rows among these changes refer to by unique values, behind the changes of what was seen.
fn parents(seen: &Rows, changes: &BTreeMap<String, Option<u64>>) -> Vec<ParentRow> {
    let mut after = seen.clone();
    for (name, value) in changes {
        match value {
            Some(value) => after.insert(name.clone(), *value),
            None => after.remove(name),
        };
    }
    let people = after.iter().filter(|(name, _)| table_of(name) == PEOPLE);
    let owners: BTreeMap<i64, &String> =
        people.filter_map(|(name, value)| Some((rows::mark(name, *value)?, name))).collect();
    let notes = changes.iter().filter(|(name, _)| table_of(name) == NOTES);
    let marks: BTreeSet<i64> = notes.filter_map(|(name, value)| rows::mark(name, (*value)?)).collect();
    let parent = |mark: i64| {
        let key = rows::key(owners.get(&mark)?, true);
        let value = entry_prefix(&[Value::Int(mark)]).expect("a number").into();
        Some(ParentRow { constraint: REFERS_BY_VALUE, value, table: PEOPLE, key })
    };
    marks.into_iter().filter_map(parent).collect()
}

impl Claims {
    /// By this stream; `by_value`: some rows refer to others by their unique values.
    pub fn new(random: Stream, by_value: bool) -> Claims {
        Claims { random, by_value, announced: false }
    }

    /// The tables as they are made.
    pub fn tables(&self) -> Vec<CatalogTable> {
        tables(self.by_value)
    }

    /// Their ids.
    fn ids(&self) -> impl Iterator<Item = TableId> + use<> {
        [PEOPLE, LETTERS].into_iter().chain(self.by_value.then_some(NOTES))
    }

    /// The next row that is changed, and whether it goes.
    fn row(&mut self) -> (String, bool) {
        let (person, letter) = (self.random.below(MOST_PEOPLE), self.random.below(MOST_LETTERS));
        let kinds = if self.by_value { 14 } else { 10 };
        match self.random.below(kinds) {
            0..4 => (format!("m{person}"), false),
            4..6 => (format!("m{person}"), true),
            6..9 => (format!("l{letter}"), false),
            9 => (format!("l{letter}"), true),
            10..13 => (format!("n{}", self.random.below(MOST_NOTES)), false),
            _ => (format!("n{}", self.random.below(MOST_NOTES)), true),
        }
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
            let (name, goes) = self.row();
            let value = (!goes).then(|| {
                loop {
                    let value = next();
                    // Few values are unique together, and few rows are referred to that cannot be there.
                    let parent = |parent: String| parent[1..].parse::<u64>().is_ok_and(|at| at < MOST_PEOPLE);
                    let fits = match table_of(&name) == LETTERS {
                        true => rows::refers(&name, value).is_some_and(parent) || value.is_multiple_of(8),
                        false => rows::mark(&name, value).is_none_or(|mark| mark <= VALUES),
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
        let claims = self.claims.as_ref().filter(|claims| !claims.announced)?;
        let record = self.shell.core().map().database(LEDGER)?;
        let partitions = (0..record.partitions).map(|at| PartitionId(record.first_partition.0 + at));
        let tables = [accounts()].into_iter().chain(claims.tables());
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
            Some(manager) => self.ask_snapshot(now, manager),
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
            let tables: Vec<TableId> = self.claims.iter().flat_map(Claims::ids).collect();
            let of = |partition| tables.iter().map(move |table| (*table, partition));
            look.to_scan = all.flat_map(of).collect();
            self.ask_snapshot(now, manager);
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

    /// All rows of these tables were read: those that are there, and those that are not.
    fn has_seen_all(&mut self) {
        let Some(Open { look: Some(look), current: Some(at), operation, .. }) = &mut self.open else {
            return;
        };
        let people = (0..MOST_PEOPLE).map(|number| format!("m{number}"));
        let letters = (0..MOST_LETTERS).map(|number| format!("l{number}"));
        let notes = self.claims.as_ref().map_or(0, |claims| if claims.by_value { MOST_NOTES } else { 0 });
        let notes = (0..notes).map(|number| format!("n{number}"));
        for name in people.chain(letters).chain(notes) {
            let value = look.seen.get(&name).copied();
            operation.reads.push((name, value, *at));
        }
    }

    /// Adds rows of these tables to what is written. False: nothing is.
    pub(super) fn claims_too(&mut self, writes: &mut BTreeMap<String, Option<u64>>) -> bool {
        let Some(Open { look: Some(look), .. }) = &mut self.open else { return true };
        let Some(claims) = &mut self.claims else { return true };
        if !look.and_accounts {
            writes.clear();
        }
        let next = || {
            self.reported.last_value += 1;
            u64::from(self.id) << 32 | self.reported.last_value
        };
        let changes = claims.changes(&look.seen, next);
        look.parents = parents(&look.seen, &changes);
        writes.extend(changes);
        !writes.is_empty()
    }
}
