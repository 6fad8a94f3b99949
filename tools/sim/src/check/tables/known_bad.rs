//! Histories of a database each of which breaks one promise: the checker of that one rejects it, and no other
//! does.

use super::replicas::Found;
use super::told::check_numbers;
use super::{Asked, Part, Refused, Shown, TableAnswer, TableChange, TableOperation, Transaction, What};
use crate::check::catalog::{Demands, Kept, Standing, Table};
use crate::check::epochs::tests::record;
use crate::check::history::{KeyRange, RowChange};
use crate::check::lineage::tests::{P, at};
use crate::check::tables::model::Model;
use crate::check::{Checks, ClientAnswers};
use crate::rows;
use std::collections::BTreeSet;
use types::data::Standing as How;
use types::engine::Row;
use types::{Epoch, KeySpace, Lsn, Mutation, PartitionId, PartitionRecord, SessionId, TableId, TableState};
use wire::entry::Kind;
use wire::request::ReadSnapshot;
use wire::{Effects, Entry, Header};

pub(in crate::check) const ONE: TableId = TableId(7);
pub(in crate::check) const TWO: TableId = TableId(8);

pub(in crate::check) fn table(id: TableId, name: &str, version: u32, standing: Standing) -> Table {
    Table { id, name: name.into(), version, more: 0, standing, keeps: Vec::new() }
}

pub(in crate::check) fn live(id: TableId) -> Table {
    table(id, &format!("t{}", id.0), 1, Standing::Live)
}

fn state_of(table: &Table) -> TableState {
    match table.standing {
        Standing::Dropped => TableState::Dropping,
        _ => table.definition().state(),
    }
}

fn defined(table: &Table) -> Mutation {
    let (key, value) = (table.definition().stored_key(), table.definition().encode(state_of(table)));
    Mutation { key, value: Some(value) }
}

fn row(table: TableId, key: &str, value: Option<u64>) -> Mutation {
    let value = value.map(|value| rows::table_row(key, value, (1, 0)));
    Mutation { key: KeySpace::Table(table).row_key(&rows::key(key, true)), value }
}

/// A log of term 1: what the entries change. Each but an empty one is of the session, by its place.
#[derive(Default)]
pub(in crate::check) struct Log {
    pub checks: Checks,
    crc: u32,
    pub end: u64,
}

impl Log {
    fn new() -> Log {
        let mut log = Log::default();
        log.checks.lineage.will_have_tables(P);
        log
    }

    fn entry(mut self, kind: Kind, mutations: Vec<Mutation>) -> Log {
        self.end += 1;
        let mut header = Header::new(kind, P, at(1, self.end), self.crc);
        if kind == Kind::Rows {
            (header.session, header.seq) = (SessionId(at(1, 1)), self.end);
        }
        let effects = Effects { request_hash: 0, confirmed: 0, outcome: 0, affected: 1, mutations };
        let entry = Entry::encode(header, &effects.encode());
        self.crc = entry.crc();
        self.checks.entry(self.end, &entry);
        self
    }

    fn rows(self, mutations: Vec<Mutation>) -> Log {
        self.entry(Kind::Rows, mutations)
    }

    /// What is broken, if clients were told this.
    fn broken(mut self, tables: &[TableOperation]) -> Vec<String> {
        self.checks.tip(P, at(1, self.end));
        let told = ClientAnswers {
            operations: &[],
            jobs: &[],
            lost: &[],
            tables,
            transactions: &[],
            given_up: &[],
            turns: &[],
        };
        self.checks.finish_to_the_end(100, told);
        let violations = self.checks.violations().iter();
        violations.map(|broken| broken.id.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// A failover that may have lost something is over: who led then served at this time, and its log has
    /// all.
    fn behind_a_loss(mut self, served: u64) -> Log {
        let record = PartitionRecord { lossy: true, ..record(1, 1, &[1]) };
        let past = (&self.checks.lineage, None);
        let verdict = self.checks.survival.serves(served, past, None, &record, at(1, self.end));
        verdict.expect("nothing is lost");
        self
    }

    /// The two tables, made by the first entry.
    fn of_two() -> (Log, TableOperation) {
        let log = Log::new().rows(vec![defined(&live(ONE)), defined(&live(TWO))]);
        let changes = vec![TableChange::Create(live(ONE)), TableChange::Create(live(TWO))];
        (log, done(1, write(1, changes, Vec::new())))
    }
}

fn put(table: TableId, version: u32, keys: &[&str]) -> Part {
    let ops = keys.iter().map(|key| (RowChange::Put, key.to_string())).collect();
    Part { table, version, more: 0, ops, seen: Vec::new() }
}

fn write(value: u64, changes: Vec<TableChange>, parts: Vec<Part>) -> Asked {
    let (since, alone) = (None, false);
    Asked::Write(Box::new(Transaction { value, changes, parts, since, alone }))
}

fn told(lsn: u64, asked: Asked, told: TableAnswer) -> TableOperation {
    let session = matches!(asked, Asked::Write(_)).then_some((SessionId(at(1, 1)), lsn));
    let (partition, levels) = (P, false);
    TableOperation { partition, levels, asked, session, invoked: 10 * lsn, completed: 10 * lsn + 1, told }
}

fn done(lsn: u64, asked: Asked) -> TableOperation {
    told(lsn, asked, TableAnswer::Done(at(1, lsn)))
}

fn read(table: TableId, version: u32, what: What, shown: Shown, lsn: u64) -> TableOperation {
    let asked = Asked::Read { table, version, what, at: ReadSnapshot::Newest, any: None };
    told(lsn, asked, TableAnswer::Shown(shown, Lsn(lsn), Epoch(1)))
}

fn all() -> KeyRange {
    KeyRange { from: String::new(), behind: false, to: String::new() }
}

fn scan(table: TableId, rows: &[(&str, u64, u64)], lsn: u64) -> TableOperation {
    let rows = rows.iter().map(|(key, lsn, value)| (key.to_string(), Lsn(*lsn), *value)).collect();
    read(table, 1, What::Rows(all(), 9), Shown::Rows(rows, false), lsn)
}

/// Both tables have a row since the second entry.
pub(in crate::check) fn both() -> (Log, Vec<TableOperation>) {
    let (log, made) = Log::of_two();
    let log = log.rows(vec![row(ONE, "m1", Some(2)), row(TWO, "m2", Some(2))]);
    let parts = vec![put(ONE, 1, &["m1"]), put(TWO, 1, &["m2"])];
    (log, vec![made, done(2, write(2, Vec::new(), parts))])
}

#[test]
fn a_history_that_keeps_every_promise_is_accepted() {
    let (log, mut operations) = both();
    operations.push(scan(ONE, &[("m1", 2, 2)], 2));
    operations.push(read(TWO, 1, What::Count(all()), Shown::Number(1), 2));
    operations.push(read(ONE, 2, What::Count(all()), Shown::Stale, 2));
    let drop = TableChange::Drop(ONE, 1);
    let new = table(TableId(9), "t7", 1, Standing::Live);
    let log = log.rows(vec![defined(&Table { standing: Standing::Dropped, ..live(ONE) }), defined(&new)]);
    operations.push(done(3, write(3, vec![drop, TableChange::Create(new)], Vec::new())));
    let log = log.entry(Kind::Schema, vec![row(ONE, "m1", None)]);
    let gone = Mutation { key: live(ONE).definition().stored_key(), value: None };
    let log = log.entry(Kind::Schema, vec![gone]);
    assert_eq!(log.broken(&operations), [""; 0]);
}

#[test]
fn i9_a_transaction_that_is_there_in_one_of_its_tables() {
    let (log, made) = Log::of_two();
    let log = log.rows(vec![row(ONE, "m1", Some(2))]);
    let parts = || vec![put(ONE, 1, &["m1"]), put(TWO, 1, &["m2"])];
    let unknown = told(2, write(2, Vec::new(), parts()), TableAnswer::Unknown);
    assert_eq!(log.broken(&[made, unknown]), ["I9"]);
}

#[test]
fn i9_a_refused_change_of_tables_that_leaves_one() {
    let (log, made) = Log::of_two();
    let taken = table(TableId(9), "t7", 1, Standing::Live);
    let log = log.rows(vec![defined(&taken)]);
    let asked = write(2, vec![TableChange::Create(taken)], Vec::new());
    let refused = told(2, asked, TableAnswer::Refused(Refused::NameTaken, Lsn(2)));
    assert_eq!(log.broken(&[made, refused]), ["I9"]);
}

#[test]
fn i9_what_was_acknowledged_and_is_not_there() {
    let (log, mut operations) = both();
    operations.push(done(3, write(3, Vec::new(), vec![put(ONE, 1, &["m3"])])));
    assert_eq!(log.broken(&operations), ["I9"]);
}

#[test]
fn i9_a_refusal_behind_a_loss_that_left_no_entry() {
    let refused = || {
        let asked = write(3, vec![TableChange::Create(live(ONE))], Vec::new());
        told(3, asked, TableAnswer::Refused(Refused::NameTaken, Lsn(3)))
    };
    let broken = |served| {
        let (log, mut operations) = both();
        operations.push(refused());
        log.behind_a_loss(served).broken(&operations)
    };
    assert_eq!(broken(30), ["I9"]);
    assert_eq!(broken(31), [""; 0], "a log that is lost may have had it");
}

#[test]
fn r5_a_read_behind_a_loss_that_does_not_show_what_was_acknowledged() {
    let (log, mut operations) = both();
    let asked = read(ONE, 1, What::Count(all()), Shown::Number(0), 1);
    operations.push(TableOperation { invoked: 30, completed: 31, ..asked });
    assert_eq!(log.behind_a_loss(25).broken(&operations), ["R5"]);
}

#[test]
fn pr120_a_table_behind_a_loss_that_is_there_and_called_old() {
    let (log, mut operations) = both();
    operations.push(read(ONE, 1, What::Count(all()), Shown::Stale, 2));
    assert_eq!(log.behind_a_loss(5).broken(&operations), ["PR-120"]);
}

#[test]
fn i9_rows_that_nobody_removed() {
    let (log, operations) = both();
    let log = log.entry(Kind::Schema, vec![row(ONE, "m1", None)]);
    assert_eq!(log.broken(&operations), ["I9"], "the table is there");
    let (log, operations) = both();
    let gone = Mutation { key: live(ONE).definition().stored_key(), value: None };
    assert_eq!(log.entry(Kind::Schema, vec![gone]).broken(&operations), ["I9"], "its rows are there");
}

#[test]
fn i5_a_row_of_one_table_that_is_seen_through_another() {
    let (log, mut operations) = both();
    operations.push(scan(ONE, &[("m1", 2, 2), ("m2", 2, 2)], 2));
    assert_eq!(log.broken(&operations), ["I5"]);
    let (log, mut operations) = both();
    operations.push(read(ONE, 1, What::Count(all()), Shown::Number(2), 2));
    assert_eq!(log.broken(&operations), ["I5"]);
}

#[test]
fn i5_a_row_of_a_dropped_table_that_is_seen_through_the_one_of_its_name() {
    let (log, mut operations) = both();
    let new = table(TableId(9), "t7", 1, Standing::Live);
    let log = log.rows(vec![defined(&Table { standing: Standing::Dropped, ..live(ONE) }), defined(&new)]);
    let changes = vec![TableChange::Drop(ONE, 1), TableChange::Create(new)];
    operations.push(done(3, write(3, changes, Vec::new())));
    operations.push(scan(TableId(9), &[("m1", 2, 2)], 3));
    assert_eq!(log.broken(&operations), ["I5"]);
}

#[test]
fn i5_a_catalog_of_another_state() {
    let (log, mut operations) = both();
    let shown = |tables| TableAnswer::Shown(Shown::Tables(tables), Lsn(2), Epoch(1));
    operations.push(told(2, Asked::Catalog(ReadSnapshot::Newest), shown(vec![live(ONE)])));
    assert_eq!(log.broken(&operations), ["I5"]);
    let (log, mut operations) = both();
    operations.push(told(2, Asked::Catalog(ReadSnapshot::Newest), shown(vec![live(ONE), live(TWO)])));
    assert_eq!(log.broken(&operations), [""; 0]);
}

#[test]
fn r5_a_read_of_what_was_before_an_acknowledged_write() {
    let (log, mut operations) = both();
    let late = TableOperation { invoked: 30, completed: 31, ..scan(ONE, &[], 1) };
    operations.push(late);
    assert_eq!(log.broken(&operations), ["R5"]);
}

#[test]
fn pr120_a_version_that_the_table_does_not_have() {
    let (log, mut operations) = both();
    operations.push(read(ONE, 2, What::Count(all()), Shown::Number(1), 2));
    assert_eq!(log.broken(&operations), ["PR-120"], "it was read");
    let (log, mut operations) = both();
    operations.push(read(ONE, 1, What::Count(all()), Shown::Stale, 2));
    assert_eq!(log.broken(&operations), ["PR-120"], "it was refused");
    let (log, mut operations) = both();
    let log = log.rows(vec![row(ONE, "m3", Some(3))]);
    operations.push(done(3, write(3, Vec::new(), vec![put(ONE, 2, &["m3"])])));
    assert_eq!(log.broken(&operations), ["PR-120"], "it was written");
    assert!(check_numbers(vec![(7, 6), (20, 6), (12, 6)]).is_err(), "12 was given to two");
    assert_eq!(check_numbers(vec![(7, 6), (20, 6), (13, 6)]), Ok(()));
}

#[test]
fn pr122_a_change_after_which_rows_cannot_be_read() {
    let (log, mut operations) = both();
    let wide = Table { version: 20, more: 1, ..live(ONE) };
    let narrow = Table { version: 30, more: 0, ..live(ONE) };
    let log = log.rows(vec![defined(&wide)]).rows(vec![defined(&narrow)]);
    let alter = |from, to: Table| write(3, vec![TableChange::Alter(from, to)], Vec::new());
    operations.push(done(3, alter(1, wide)));
    operations.push(done(4, alter(20, narrow)));
    assert_eq!(log.broken(&operations), ["PR-122"]);
}

#[test]
fn pr124_a_write_of_a_table_that_is_held() {
    let (log, mut operations) = both();
    let held = Table { version: 20, standing: Standing::Held, ..live(ONE) };
    let log = log.rows(vec![defined(&held)]).rows(vec![row(ONE, "m3", Some(4))]);
    operations.push(done(3, write(3, vec![TableChange::Alter(1, held)], Vec::new())));
    operations.push(done(4, write(4, Vec::new(), vec![put(ONE, 20, &["m3"])])));
    assert_eq!(log.broken(&operations), ["PR-124"]);
}

/// What is found in a replica that has this.
fn found(tables: &[Table], stored: &[Mutation]) -> Result<Found, &'static str> {
    let row = |mutation: &Mutation| {
        let value = mutation.value.clone().expect("it is there");
        Row { key: mutation.key.clone(), lsn: Lsn(2), value }
    };
    let catalog: Vec<Row> = tables.iter().map(defined).map(|mutation| row(&mutation)).collect();
    let rows: Vec<Row> = stored.iter().map(row).collect();
    Found::of(&catalog, &rows).map_err(|(id, _)| id)
}

#[test]
fn a_replica_whose_rows_are_of_no_table_or_none_of_its_columns_is_rejected() {
    let one = row(ONE, "m1", Some(2));
    assert!(found(&[live(ONE)], std::slice::from_ref(&one)).is_ok());
    assert_eq!(found(&[live(TWO)], std::slice::from_ref(&one)).err(), Some("PR-121"));
    let value = Some(rows::table_row("m1", 2, (2, 0)));
    let newer = Mutation { value, ..one.clone() };
    assert_eq!(found(&[live(ONE)], &[newer]).err(), Some("PR-122"));
    let same = table(TWO, "t7", 1, Standing::Live);
    assert_eq!(found(&[live(ONE), same.clone()], &[]).err(), Some("PR-123"));
    assert!(found(&[live(ONE), Table { standing: Standing::Filling(ONE), ..same }], &[]).is_ok());
    let dropped = Table { standing: Standing::Dropped, ..live(ONE) };
    assert_eq!(found(&[dropped], &[one]).ok().and_then(|found| found.dropped()), Some(ONE));
}

#[test]
fn a_replica_that_has_something_else_than_its_log_says_is_rejected() {
    let (log, _) = both();
    let mut line: Vec<_> = log.checks.lineage.line(P, at(1, 2)).collect();
    line.reverse();
    let model = Model::of(line);
    let rows = [row(ONE, "m1", Some(2)), row(TWO, "m2", Some(2))];
    let compare = |tables: &[Table], rows: &[Mutation], lsn| {
        found(tables, rows).expect("sound by itself").compare(&model, Lsn(lsn))
    };
    assert_eq!(compare(&[live(ONE), live(TWO)], &rows, 2), Ok(()));
    assert!(compare(&[live(ONE), live(TWO)], &rows, 1).is_err(), "of another state");
    assert!(compare(&[live(ONE), live(TWO)], &rows[..1], 2).is_err(), "a row is missing");
    let other = table(TWO, "other", 1, Standing::Live);
    assert!(compare(&[live(ONE), other], &rows, 2).is_err(), "another table");
}

/// A value that two keys cannot both have in a table without duplicates.
fn same_mark(one: &str, two: &str) -> u64 {
    let same =
        |value: &u64| rows::mark(one, *value).is_some_and(|mark| Some(mark) == rows::mark(two, *value));
    (2..).find(same).expect("there are few marks")
}

/// A value with which a key's row refers to a row of another table, or to none.
fn refers(key: &str, to: Option<&str>) -> u64 {
    (2..).find(|value| rows::refers(key, *value).as_deref() == to).expect("some refer")
}

/// The first table with a constraint.
fn guarded(demands: Demands) -> Table {
    Table { keeps: vec![Kept::new(50, demands)], ..live(ONE) }
}

/// The two tables, of which the first has a constraint, and what was asked for.
fn with_constraint(demands: Demands) -> (Log, Vec<TableOperation>) {
    let log = Log::new().rows(vec![defined(&guarded(demands)), defined(&live(TWO))]);
    let changes = vec![TableChange::Create(guarded(demands)), TableChange::Create(live(TWO))];
    (log, vec![done(1, write(1, changes, Vec::new()))])
}

#[test]
fn pr150_a_write_that_a_constraint_forbids() {
    let marks = same_mark("m1", "m2");
    let (log, mut operations) = with_constraint(Demands::Marks);
    let log = log.rows(vec![row(ONE, "m1", Some(marks)), row(ONE, "m2", Some(marks))]);
    let asked = write(marks, Vec::new(), vec![put(ONE, 1, &["m1", "m2"])]);
    operations.push(done(2, asked.clone()));
    assert_eq!(log.broken(&operations), ["PR-150"]);
    let (log, mut operations) = with_constraint(Demands::Marks);
    operations.push(told(2, asked, TableAnswer::Refused(Refused::Violates, Lsn(2))));
    assert_eq!(log.rows(Vec::new()).broken(&operations), [""; 0], "it was refused");

    let orphan = refers("m1", Some("m4"));
    let (log, mut operations) = with_constraint(Demands::Parents(TWO));
    operations.push(done(2, write(orphan, Vec::new(), vec![put(ONE, 1, &["m1"])])));
    assert_eq!(log.rows(vec![row(ONE, "m1", Some(orphan))]).broken(&operations), ["PR-150"]);
    let (log, mut operations) = with_constraint(Demands::Parents(TWO));
    let rows = vec![row(ONE, "m1", Some(orphan)), row(TWO, "m4", Some(orphan))];
    let parts = vec![put(ONE, 1, &["m1"]), put(TWO, 1, &["m4"])];
    operations.push(done(2, write(orphan, Vec::new(), parts)));
    let gone = Part { ops: vec![(RowChange::Delete, "m4".into())], ..put(TWO, 1, &[]) };
    operations.push(done(3, write(3, Vec::new(), vec![gone])));
    let log = log.rows(rows).rows(vec![row(TWO, "m4", None)]);
    assert_eq!(log.broken(&operations), ["PR-150"], "what it refers to is gone");
}

#[test]
fn pr150_a_write_that_no_constraint_forbids_and_that_is_refused() {
    let (log, mut operations) = with_constraint(Demands::Parents(TWO));
    let asked = write(refers("m1", None), Vec::new(), vec![put(ONE, 1, &["m1"])]);
    operations.push(told(2, asked, TableAnswer::Refused(Refused::Violates, Lsn(2))));
    assert_eq!(log.rows(Vec::new()).broken(&operations), ["I9"]);
}

#[test]
fn pr152_a_constraint_that_is_valid_though_a_row_does_not_keep_it() {
    let orphan = refers("m1", Some("m4"));
    let settled = |standing| Kept { standing, ..Kept::new(50, Demands::Parents(TWO)) };
    let table = |standing| Table { version: 20, keeps: vec![settled(standing)], ..live(ONE) };
    for (how, broken) in [(How::Valid, vec!["PR-152"]), (How::Failed, vec![])] {
        let (log, made) = Log::of_two();
        let log = log.rows(vec![row(ONE, "m1", Some(orphan))]).rows(vec![defined(&table(How::Building))]);
        let log = log.entry(Kind::Schema, vec![defined(&table(how))]);
        let wrote = done(2, write(orphan, Vec::new(), vec![put(ONE, 1, &["m1"])]));
        let change = TableChange::Alter(1, table(How::Valid));
        let altered = done(3, write(3, vec![change], Vec::new()));
        assert_eq!(log.broken(&[made, wrote, altered]), broken);
    }
}

#[test]
fn pr170_a_table_that_two_bring_to_a_partition_is_made_once() {
    let (log, made) = Log::of_two();
    let asked = write(2, vec![TableChange::Create(live(ONE))], Vec::new());
    let refused = told(2, asked.clone(), TableAnswer::Refused(Refused::Stale, Lsn(2)));
    assert_eq!(log.rows(Vec::new()).broken(&[made, refused]), [""; 0], "one was faster");
    let (log, made) = Log::of_two();
    assert_eq!(log.rows(vec![defined(&live(ONE))]).broken(&[made, done(2, asked)]), ["PR-120"]);
}

#[test]
fn what_is_told_of_one_partition_is_looked_for_in_no_other_one() {
    let (log, mut operations) = both();
    let other = done(3, write(3, Vec::new(), vec![put(ONE, 1, &["m3"])]));
    operations.push(TableOperation { partition: PartitionId(P.0 + 1), ..other });
    assert_eq!(log.broken(&operations), [""; 0]);
}

#[test]
fn pr153_a_table_that_another_one_refers_to_is_dropped() {
    let (log, mut operations) = with_constraint(Demands::Parents(TWO));
    operations.push(done(2, write(2, vec![TableChange::Drop(TWO, 1)], Vec::new())));
    let log = log.rows(vec![defined(&Table { standing: Standing::Dropped, ..live(TWO) })]);
    assert_eq!(log.broken(&operations), ["PR-120"]);
}

#[test]
fn a_replica_with_a_duplicate_an_orphan_or_a_wrong_index_is_rejected() {
    let broken = |demands: Demands, rows: &[Mutation], entries: &[Vec<u8>]| {
        let found = found(&[guarded(demands), live(TWO)], rows).expect("rows of these tables");
        found.keeps(entries.iter().cloned().collect()).err().map(|(id, _)| id)
    };
    let entry = |number: u32, demands: Demands, key: &str, value| {
        let prefix = KeySpace::Table(ONE).index_prefix(Some(number));
        [prefix, rows::table_entry(demands.column(), key, value)].concat()
    };
    let (marks, parents) = (Demands::Marks, Demands::Parents(TWO));
    let (same, orphan) = (same_mark("m1", "m2"), refers("m1", Some("m4")));
    let one = || row(ONE, "m1", Some(same));
    let own = entry(50, marks, "m1", same);
    assert_eq!(broken(marks, &[one()], std::slice::from_ref(&own)), None);
    assert_eq!(broken(marks, &[one()], &[]), Some("PR-150"), "an entry is missing");
    assert_eq!(broken(marks, &[], std::slice::from_ref(&own)), Some("PR-150"), "an entry is of no row");
    let other = entry(51, marks, "m1", same);
    assert_eq!(broken(marks, &[one()], &[own.clone(), other]), Some("PR-121"), "an entry is of no index");
    let both = [own, entry(50, marks, "m2", same)];
    assert_eq!(broken(marks, &[one(), row(ONE, "m2", Some(same))], &both), Some("PR-150"));
    let child = || row(ONE, "m1", Some(orphan));
    let own = [entry(50, parents, "m1", orphan)];
    assert_eq!(broken(parents, &[child()], &own), Some("PR-151"));
    assert_eq!(broken(parents, &[child(), row(TWO, "m4", Some(2))], &own), None);
}

#[test]
fn pr490_a_replica_whose_constraint_has_failed_with_a_part_of_its_index_is_rejected() {
    let (marks, same) = (Demands::Marks, same_mark("m1", "m2"));
    let entry = |key: &str| {
        let prefix = KeySpace::Table(ONE).index_prefix(Some(50));
        [prefix, rows::table_entry(marks.column(), key, same)].concat()
    };
    let broken = |standing, entries: &[Vec<u8>]| {
        let keeps = vec![Kept { standing, ..Kept::new(50, marks) }];
        let rows = [row(ONE, "m1", Some(same)), row(ONE, "m2", Some(same))];
        let found = found(&[Table { keeps, ..live(ONE) }], &rows).expect("rows of this table");
        found.keeps(entries.iter().cloned().collect()).err().map(|(id, _)| id)
    };
    assert_eq!(broken(How::Failed, &[entry("m1"), entry("m2")]), None);
    assert_eq!(broken(How::Failed, &[entry("m1")]), Some("PR-490"), "of the row behind the first breach");
    assert_eq!(broken(How::Building, &[entry("m1")]), None, "rows are being looked at");
}

#[test]
fn pr180_a_replica_with_the_position_of_a_feed_into_no_table_is_rejected() {
    let found = found(&[live(TWO)], &[]).expect("rows of these tables");
    let fed = |table: TableId| {
        let key = KeySpace::Table(table).feed_key(types::FeedId(3));
        Row { key, lsn: Lsn(2), value: vec![0; 8].into() }
    };
    assert_eq!(found.has_fed(&[fed(TWO)]), Ok(()));
    let broken = |rows: &[Row]| found.has_fed(rows).err().map(|(id, _)| id);
    assert_eq!(broken(&[fed(TWO), fed(ONE)]), Some("PR-180"));
    let bare = Row { key: KeySpace::Bare.feed_key(types::FeedId(3)), ..fed(TWO) };
    assert_eq!(broken(&[bare]), Some("PR-180"), "without a table");
}
