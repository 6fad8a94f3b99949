//! Histories of a database each of which breaks one promise: the checker of that one rejects it.

use super::replicas::Found;
use super::told::check_numbers;
use super::{Asked, Part, Refused, Shown, TableChange, TableOperation, Told, Transaction, What};
use crate::check::catalog::{Standing, Table};
use crate::check::history::{KeyRange, RowChange};
use crate::check::lineage::tests::{P, at};
use crate::check::tables::model::Model;
use crate::check::{Checks, Told as AllTold};
use crate::rows;
use std::collections::BTreeSet;
use types::engine::Row;
use types::{Epoch, KeySpace, Lsn, Mutation, SessionId, TableId, TableState};
use wire::entry::Kind;
use wire::request::Snapshot;
use wire::{Effects, Entry, Header};

const ONE: TableId = TableId(7);
const TWO: TableId = TableId(8);

fn table(id: TableId, name: &str, version: u32, standing: Standing) -> Table {
    Table { id, name: name.into(), version, more: 0, standing }
}

fn live(id: TableId) -> Table {
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
struct Log {
    checks: Checks,
    crc: u32,
    end: u64,
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
        self.checks.finish(100, AllTold { operations: &[], jobs: &[], lost: &[], tables });
        let violations = self.checks.violations().iter();
        violations.map(|broken| broken.id.clone()).collect::<BTreeSet<_>>().into_iter().collect()
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

fn told(lsn: u64, asked: Asked, told: Told) -> TableOperation {
    let session = matches!(asked, Asked::Write(_)).then_some((SessionId(at(1, 1)), lsn));
    TableOperation { asked, session, invoked: 10 * lsn, completed: 10 * lsn + 1, told }
}

fn done(lsn: u64, asked: Asked) -> TableOperation {
    told(lsn, asked, Told::Done(at(1, lsn)))
}

fn read(table: TableId, version: u32, what: What, shown: Shown, lsn: u64) -> TableOperation {
    let asked = Asked::Read { table, version, what, at: Snapshot::Newest, any: None };
    told(lsn, asked, Told::Shown(shown, Lsn(lsn), Epoch(1)))
}

fn all() -> KeyRange {
    KeyRange { from: String::new(), behind: false, to: String::new() }
}

fn scan(table: TableId, rows: &[(&str, u64, u64)], lsn: u64) -> TableOperation {
    let rows = rows.iter().map(|(key, lsn, value)| (key.to_string(), Lsn(*lsn), *value)).collect();
    read(table, 1, What::Rows(all(), 9), Shown::Rows(rows, false), lsn)
}

/// Both tables have a row since the second entry.
fn both() -> (Log, Vec<TableOperation>) {
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
    let unknown = told(2, write(2, Vec::new(), parts()), Told::Unknown);
    assert_eq!(log.broken(&[made, unknown]), ["I9"]);
}

#[test]
fn i9_a_refused_change_of_tables_that_leaves_one() {
    let (log, made) = Log::of_two();
    let taken = table(TableId(9), "t7", 1, Standing::Live);
    let log = log.rows(vec![defined(&taken)]);
    let asked = write(2, vec![TableChange::Create(taken)], Vec::new());
    let refused = told(2, asked, Told::Refused(Refused::NameTaken, Lsn(2)));
    assert_eq!(log.broken(&[made, refused]), ["I9"]);
}

#[test]
fn i9_what_was_acknowledged_and_is_not_there() {
    let (log, mut operations) = both();
    operations.push(done(3, write(3, Vec::new(), vec![put(ONE, 1, &["m3"])])));
    assert_eq!(log.broken(&operations), ["I9"]);
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
    let shown = |tables| Told::Shown(Shown::Tables(tables), Lsn(2), Epoch(1));
    operations.push(told(2, Asked::Catalog(Snapshot::Newest), shown(vec![live(ONE)])));
    assert_eq!(log.broken(&operations), ["I5"]);
    let (log, mut operations) = both();
    operations.push(told(2, Asked::Catalog(Snapshot::Newest), shown(vec![live(ONE), live(TWO)])));
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
