//! Somebody who makes backups of the database of global transactions and restores them into another one, step
//! by step as `understudy backup` does: a snapshot, the position that each partition has there, and its rows
//! page by page at that position; then a table without a name that is filled beside all transactions, and
//! named once all of it is there. Behind that a transaction is committed in it, and what is there is read
//! before that one and with it: the new database has chains of its own.

use super::{CALL_TIMEOUT, KEYS, LEDGER};
use crate::check::backups::Restored;
use crate::check::commits::{TxnEnd, TxnOperation};
use crate::plan::transactions::COPY;
use crate::rows::{self, TABLE};
use ::client::txn::{Doing, KnownCommits, Manager, SnapshotAsk, Step};
use ::client::{Answer, Call, Map, Outcome};
use replica::SnapshotPages;
use std::collections::{BTreeMap, VecDeque};
use types::{CatalogTable, PartitionId, Position, Rules, TableId};
use wire::commit::PartitionWrites;
use wire::request::TablePart;
use wire::{Body, CommitAnswer, CommitRequest, ManagerOp, Op, RecordText, RowOp, TableChange};

/// Between two backups, microseconds.
const REST: u64 = 600_000;
/// Rows of a page, and of a batch.
const ROWS: u32 = 3;
/// The most rows of a restored table.
const MOST_ROWS: u32 = 1_000;
/// The first of the tables that backups are restored into: each into one of its own.
const FIRST: TableId = TableId(920_000);
/// The versions of their columns, while they are filled and from then on.
const FILLING: u32 = 1;
const NAMED: u32 = 2;

/// What the call under way is for.
#[derive(Debug)]
enum Asked {
    Snapshot(SnapshotAsk),
    /// A state of a partition is to be kept, or is read.
    Doing(Box<Doing>),
    /// The next page of a stream.
    Page(usize),
    /// A table, or rows of it.
    Restore,
    /// A transaction in the restored table, which writes this.
    Commit(Vec<(String, Option<u64>)>),
}

/// A backup under way.
#[derive(Debug)]
struct Backup {
    /// As a transaction that reads all rows.
    operation: TxnOperation,
    /// Partitions of which no position is known yet, the next one first.
    to_find: VecDeque<PartitionId>,
    streams: Vec<(PartitionId, Position)>,
    pages: Option<SnapshotPages>,
    rows: BTreeMap<String, u64>,
}

/// A restoration under way.
#[derive(Debug)]
struct Target {
    partitions: Vec<PartitionId>,
    table: TableId,
    calls: VecDeque<Call>,
    wanted: BTreeMap<String, u64>,
    /// A transaction was committed in it.
    committed: bool,
    /// What is read back of it: at which snapshot, when that was asked for, virtual microseconds, of which
    /// partitions still, and what is there.
    snapshot: Option<Position>,
    asked_at: u64,
    to_read: VecDeque<PartitionId>,
    found: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
enum Work {
    #[default]
    None,
    Backup(Box<Backup>),
    Restoration(Box<Target>),
}

/// One backup after the other.
#[derive(Debug)]
pub struct Copier {
    id: u32,
    rules: Rules,
    known: KnownCommits,
    work: Work,
    asked: Option<Asked>,
    /// What goes on then.
    paused: Option<(u64, Box<Doing>)>,
    next_at: u64,
    tables: u32,
    history: Vec<TxnOperation>,
    restored: Vec<Restored>,
    fault: Option<String>,
}

/// The partition of a table's row, by its key's name: any will do.
fn place(partitions: &[PartitionId], name: &str) -> PartitionId {
    let sum: usize = name.bytes().map(usize::from).sum();
    partitions[sum % partitions.len()]
}

fn put((name, value): (&String, &u64), version: u32) -> RowOp {
    RowOp::Put { key: rows::key(name, true), row: rows::table_row(name, *value, (version, 0)) }
}

/// The partitions of a database.
fn partitions(map: &Map, name: &str) -> Option<(TableId, Vec<PartitionId>)> {
    let record = map.database(name)?;
    let all = (0..record.partitions).map(|at| PartitionId(record.first_partition.0 + at));
    Some((record.id, all.collect()))
}

impl Target {
    /// Another database, and what it takes to have these rows there in a table of this number.
    fn new(
        (database, partitions): (TableId, Vec<PartitionId>),
        number: u32,
        backup: &BTreeMap<String, u64>,
    ) -> Target {
        let table = TableId(FIRST.0 + number);
        let own_name = |(name, value): (&String, &u64)| (format!("r{number}-{name}"), *value);
        let wanted: BTreeMap<String, u64> = backup.iter().map(own_name).collect();
        let made = |version| {
            let schema = rows::table_schema(version, 0);
            CatalogTable::new(table, &format!("r{number}"), schema, 1)
        };
        let change = |partition: &PartitionId, change: TableChange| {
            let op = Op::Transact { changes: vec![change], parts: Vec::new(), since: None };
            Call::new(database, 0, *partition, op)
        };
        let filling = RecordText::new(&CatalogTable { fills: Some(table), ..made(FILLING) });
        let named = RecordText::new(&made(NAMED));
        let mut calls: VecDeque<Call> =
            partitions.iter().map(|of| change(of, TableChange::Create(filling.clone()))).collect();
        for partition in &partitions {
            let own: Vec<RowOp> = wanted
                .iter()
                .filter(|(name, _)| place(&partitions, name) == *partition)
                .map(|row| put(row, FILLING))
                .collect();
            let batches = own.chunks(ROWS as usize).map(|ops| Op::write(ops.to_vec()));
            calls.extend(batches.map(|op| Call::new(table, FILLING, *partition, op)));
        }
        let naming = || TableChange::Alter { from: FILLING, to: named.clone() };
        calls.extend(partitions.iter().map(|of| change(of, naming())));
        Target {
            partitions,
            table,
            calls,
            wanted,
            committed: false,
            snapshot: None,
            asked_at: 0,
            to_read: VecDeque::new(),
            found: BTreeMap::new(),
        }
    }

    /// What a transaction writes in it.
    fn addition(&self, id: u32) -> Vec<(String, Option<u64>)> {
        let number = self.table.0 - FIRST.0;
        vec![(format!("r{number}-new"), Some(u64::from(id) << 32 | u64::from(number)))]
    }
}

impl Copier {
    /// With the name of a client.
    pub fn new(id: u32, rules: Rules) -> Copier {
        Copier {
            id,
            rules,
            known: KnownCommits::default(),
            work: Work::None,
            asked: None,
            paused: None,
            next_at: 0,
            tables: 0,
            history: Vec::new(),
            restored: Vec::new(),
            fault: None,
        }
    }

    /// Backups, each as a transaction that has read all rows, and transactions in restored tables.
    pub fn history(&self) -> &[TxnOperation] {
        &self.history
    }

    /// What came of backups that were restored.
    pub fn restored(&self) -> &[Restored] {
        &self.restored
    }

    /// What an answer said that it must never say.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// When it goes on, if it pauses.
    pub fn wakes_at(&self) -> Option<u64> {
        self.paused.as_ref().map(|(until, _)| *until)
    }

    /// Goes on behind a pause, or begins, if it is time: the next call. Nothing new is begun unless
    /// `goes_on`.
    pub fn step(&mut self, now: u64, goes_on: bool, (manager, map): (Manager, &Map)) -> Option<Call> {
        if let Some((_, doing)) = self.paused.take_if(|(until, _)| *until <= now) {
            return self.go_on(now, (doing, None), (manager, map));
        }
        let waits = self.asked.is_some() || self.paused.is_some() || now < self.next_at;
        if waits || !goes_on || map.database(COPY).is_none() {
            return None;
        }
        let (_, to_find) = partitions(map, LEDGER)?;
        let operation = TxnOperation { backup: true, ..TxnOperation::new(self.id, now) };
        let backup = Backup {
            operation,
            to_find: to_find.into(),
            streams: Vec::new(),
            pages: None,
            rows: BTreeMap::new(),
        };
        self.work = Work::Backup(Box::new(backup));
        Some(self.ask_snapshot(manager))
    }

    /// A call has ended: the next one. None: it pauses, or begins again later.
    pub fn next(&mut self, now: u64, outcome: Outcome, (manager, map): (Manager, &Map)) -> Option<Call> {
        let asked = self.asked.take()?;
        let answer = match (asked, outcome) {
            (Asked::Doing(doing), outcome) => {
                return self.go_on(now, (doing, Some(outcome)), (manager, map));
            }
            (Asked::Commit(writes), outcome) => self.committed(now, (writes, outcome)),
            (asked, Outcome::Ok(answer)) => self.heard((asked, answer)),
            _ => Err(String::new()),
        };
        self.proceed(now, answer, (manager, map))
    }

    /// Goes on with what takes several steps.
    fn go_on(
        &mut self,
        now: u64,
        (mut doing, outcome): (Box<Doing>, Option<Outcome>),
        (manager, map): (Manager, &Map),
    ) -> Option<Call> {
        let done = match doing.next(outcome) {
            Step::Call(call) => {
                self.asked = Some(Asked::Doing(doing));
                return Some(*call);
            }
            Step::Wait(time) => {
                self.paused = Some((now + time.0, doing));
                return None;
            }
            Step::Done(outcome) => *outcome,
        };
        let answer = match done {
            Outcome::Ok(answer) => self.known_of(doing.partition(), &answer),
            _ => Err(String::new()),
        };
        self.proceed(now, answer, (manager, map))
    }

    fn ask_snapshot(&mut self, manager: Manager) -> Call {
        let asked = self.known.asks();
        self.asked = Some(Asked::Snapshot(asked));
        asked.call(manager).within(CALL_TIMEOUT)
    }

    /// A partition keeps the state of the snapshot, or has shown it. The error is a sentence, if nobody may
    /// answer so; else it is empty.
    fn known_of(&mut self, partition: PartitionId, answer: &Answer) -> Result<(), String> {
        match (&mut self.work, &answer.body) {
            (Work::Backup(backup), _) => backup.streams.push((partition, answer.snapshot())),
            (Work::Restoration(target), Body::Rows { rows, more: false }) => {
                let row = rows.iter();
                let row = row.map(|(key, _, stored)| (rows::name_of(key), rows::table_value(stored)));
                target.found.extend(row);
            }
            (_, other) => return Err(format!("a scan of what was restored was answered with {other:?}")),
        }
        Ok(())
    }

    /// Something else was answered. The error is as above.
    fn heard(&mut self, (asked, answer): (Asked, Answer)) -> Result<(), String> {
        match (asked, &mut self.work) {
            (Asked::Snapshot(asked), work) => {
                let snapshot = self.known.begun(asked, &answer.body);
                let snapshot = snapshot.ok_or_else(|| format!("a snapshot was answered with {answer:?}"))?;
                match work {
                    Work::Backup(backup) => backup.operation.snapshot = Some(snapshot),
                    Work::Restoration(target) => {
                        target.snapshot = Some(snapshot);
                        target.to_read = target.partitions.clone().into();
                        target.found.clear();
                    }
                    Work::None => {}
                }
            }
            (Asked::Page(stream), Work::Backup(backup)) => {
                let (Body::Rows { rows, more }, Some(pages)) = (answer.body, &mut backup.pages) else {
                    return Err("a page of a backup was answered with something else".into());
                };
                pages.heard(stream, &rows, more)?;
                let row = rows.iter();
                let row = row.map(|(key, _, stored)| (rows::name_of(key), rows::table_value(stored)));
                backup.rows.extend(row);
            }
            _ => {}
        }
        Ok(())
    }

    /// A transaction in the restored table has ended.
    fn committed(
        &mut self,
        now: u64,
        (writes, outcome): (Vec<(String, Option<u64>)>, Outcome),
    ) -> Result<(), String> {
        let Work::Restoration(target) = &mut self.work else { return Ok(()) };
        let told = match &outcome {
            Outcome::Ok(answer) if matches!(answer.body, Body::Commit(CommitAnswer::Committed(_))) => {
                TxnEnd::Committed(answer.position())
            }
            Outcome::Ok(answer) => return Err(format!("a commit was answered with {:?}", answer.body)),
            Outcome::Refused(..) => TxnEnd::Refused,
            Outcome::Failed(..) => TxnEnd::NotDone,
            Outcome::Unknown(_) => TxnEnd::Unknown,
        };
        // What is read behind it is read at another snapshot.
        let (snapshot, invoked) = (target.snapshot.take(), target.asked_at);
        if let TxnEnd::Committed(_) = told {
            target.wanted.extend(writes.iter().filter_map(|(name, value)| Some((name.clone(), (*value)?))));
            target.committed = true;
        }
        let operation = TxnOperation { snapshot, invoked, writes, told, ..TxnOperation::new(self.id, now) };
        self.history.push(operation);
        match told {
            TxnEnd::Committed(_) => Ok(()),
            _ => Err(String::new()),
        }
    }

    /// What is asked next. Behind an error it begins again later.
    fn proceed(
        &mut self,
        now: u64,
        before: Result<(), String>,
        (manager, map): (Manager, &Map),
    ) -> Option<Call> {
        if let Err(why) = before {
            self.fault = self.fault.take().or((!why.is_empty()).then_some(why));
            return self.rest(now);
        }
        match std::mem::take(&mut self.work) {
            Work::Backup(backup) => self.backs_up(now, backup, (manager, map)),
            Work::Restoration(target) => self.restores(now, target, manager),
            Work::None => self.rest(now),
        }
    }

    fn rest(&mut self, now: u64) -> Option<Call> {
        self.work = Work::None;
        self.next_at = now + REST;
        None
    }

    /// The next call of a backup, or the first one of its restoration.
    fn backs_up(
        &mut self,
        now: u64,
        mut backup: Box<Backup>,
        (manager, map): (Manager, &Map),
    ) -> Option<Call> {
        let snapshot = backup.operation.snapshot.unwrap_or_default();
        if let Some(partition) = backup.to_find.pop_front() {
            let (database, _) = partitions(map, LEDGER)?;
            let op = Op::Hold { at: self.known.at(snapshot, partition) };
            let goal = Call::new(database, 0, partition, op).within(CALL_TIMEOUT);
            return self.do_next(manager, goal, Work::Backup(backup));
        }
        let pages = backup.pages.take();
        let mut pages = pages.unwrap_or_else(|| SnapshotPages::new(backup.streams.clone(), ROWS, self.rules));
        if let Some((stream, op)) = pages.next_ask() {
            let partition = backup.streams[stream].0;
            backup.pages = Some(pages);
            self.work = Work::Backup(backup);
            self.asked = Some(Asked::Page(stream));
            return Some(Call::new(TABLE, 1, partition, op).within(CALL_TIMEOUT));
        }
        let Backup { operation, rows, .. } = *backup;
        let read = |number: u64| {
            let name = format!("a{number}");
            let value = rows.get(&name).copied();
            (name, value, snapshot)
        };
        let (reads, told) = ((0..KEYS).map(read).collect(), TxnEnd::ReadOnly);
        self.history.push(TxnOperation { reads, told, completed: now, ..operation });
        let Some(into) = partitions(map, COPY) else { return self.rest(now) };
        let target = Target::new(into, self.tables, &rows);
        self.tables += 1;
        self.restores(now, Box::new(target), manager)
    }

    /// The next call of a restoration.
    fn restores(&mut self, now: u64, mut target: Box<Target>, manager: Manager) -> Option<Call> {
        if let Some(call) = target.calls.pop_front() {
            self.asked = Some(Asked::Restore);
            self.work = Work::Restoration(target);
            return Some(call.within(CALL_TIMEOUT));
        }
        let Some(snapshot) = target.snapshot else {
            target.asked_at = now;
            self.work = Work::Restoration(target);
            return Some(self.ask_snapshot(manager));
        };
        if let Some(partition) = target.to_read.pop_front() {
            let at = self.known.at(snapshot, partition);
            let op = Op::Scan { from: "".into(), to: "".into(), limit: MOST_ROWS, at };
            let goal = Call::new(target.table, NAMED, partition, op).within(CALL_TIMEOUT);
            return self.do_next(manager, goal, Work::Restoration(target));
        }
        let (into, found) = (target.partitions.clone(), target.found.clone());
        self.restored.push(Restored { into, wanted: target.wanted.clone(), found });
        if target.committed {
            return self.rest(now);
        }
        let writes = target.addition(self.id);
        let call = manager.call(ManagerOp::Commit(commit(&target, (snapshot, &writes))));
        self.asked = Some(Asked::Commit(writes));
        self.work = Work::Restoration(target);
        Some(call.within(CALL_TIMEOUT))
    }

    fn do_next(&mut self, manager: Manager, goal: Call, work: Work) -> Option<Call> {
        let (doing, call) = Doing::new(manager, goal);
        self.asked = Some(Asked::Doing(Box::new(doing)));
        self.work = work;
        Some(call)
    }
}

/// A transaction in the restored table, whose rows nobody has read at any other snapshot.
fn commit(target: &Target, (snapshot, writes): (Position, &[(String, Option<u64>)])) -> CommitRequest {
    let part = |(name, value): &(String, Option<u64>)| {
        let key = rows::key(name, true);
        let op = match value {
            Some(value) => RowOp::Put { key, row: rows::table_row(name, *value, (NAMED, 0)) },
            None => RowOp::Delete { key },
        };
        let parts = vec![TablePart { table: target.table, schema: NAMED, ops: vec![op], seen: Vec::new() }];
        PartitionWrites { partition: place(&target.partitions, name), parts }
    };
    CommitRequest { snapshot, writes: writes.iter().map(part).collect() }
}
