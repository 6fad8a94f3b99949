//! What clients were told, each time with one promise broken.

use super::run::{Run, found, put_row};
use super::{Accepted, KnownBad, bad, ids};
use crate::check::backups::{Backup, Restored};
use crate::check::cluster_snapshots::CompleteSnapshot;
use crate::check::effects::ReportedLoss;
use crate::check::history::{Action, Answer, Batch, IndexRange, KeyRange, RowChange};
use crate::check::jobs::JobAnswer;
use crate::check::lineage::tests::{P, at};
use crate::check::turns::Turn;
use bytes::Bytes;
use types::{Epoch, JobId, Lsn};
use wire::Op;
use wire::request::ReadSnapshot;

pub(super) const CASES: &[KnownBad] = &[
    bad("linear", "a replaced value is read", &[("R5", "is not linearizable")], || got("r0", (1, 1), 1)),
    bad("registers", "a replaced value is scanned", &[("R5", "is not linearizable")], an_old_scan),
    bad("effects", "a read of another state", &[("I5", "should have found")], || got("a", (1, 1), 2)),
    bad("effects", "a row that never was", &[("I4", "a row that never was")], refused_by_nothing),
    // A value that no log has is in no state, either.
    bad(
        "effects",
        "a value that nobody wrote",
        &[("I4", "was shown what is lost"), ("I5", "should have found")],
        || got("a", (2, 9), 2),
    ),
    bad("effects", "an effect of nothing", &[("I9", "was not done, and is at")], not_done),
    bad("effects", "a term ended earlier", &[("I14", "(1,2) is there")], || ended_at(1)),
    bad("effects", "a loss that is none", &[("PR-47", "and is there")], a_loss_of_nothing),
    bad("batches", "half a write", &[("I9", "should come to")], || of_two_rows(1)),
    bad("ranges", "a scan without a row", &[("I5", "should have found")], || scanned(&[], 1)),
    bad("ranges", "a wrong count", &[("I5", "should have counted 1")], || scanned(&[("a", 2, 2)], 2)),
    bad("ranges", "a find that goes on", &[("I5", "goes on in another place")], || found_by_index(b"x")),
    bad("jobs", "a record of a job is gone", &[("PR-82", "is lost")], || of_a_job(77)),
    bad("cluster_snapshots", "a write is missing", &[("PR-80", "does not have")], || snapshot_at(1)),
    bad("backups", "a row of a later state", &[("PR-330", "not of that state")], || {
        backed_up(&[("a", 2, 2)], &[("b", 1)])
    }),
    bad("backups", "a restored row is another", &[("PR-330", "where the backup has 1")], || {
        backed_up(&[("a", 1, 1)], &[("b", 2)])
    }),
    bad("turns", "two have the turn at a row", &[("PR-410", "are at one row at once")], || {
        with_turns(&[(1, 2, None, None), (2, 2, None, None)])
    }),
    bad("turns", "a read of what was before", &[("PR-377", "a read behind")], || {
        with_turns(&[(1, 2, None, Some(1))])
    }),
];

pub(super) const ACCEPTED: &[Accepted] = &[
    ("a read of the newest value", || got("r0", (2, 2), 2)),
    ("the end of a term", || ended_at(2)),
    ("a write of two rows", || of_two_rows(2)),
    ("a scan and a count", || scanned(&[("a", 2, 2)], 1)),
    ("a find", || found_by_index(b"")),
    ("a job", || of_a_job(2)),
    ("a point over all partitions", || snapshot_at(2)),
    ("a backup", || backed_up(&[("a", 1, 1)], &[("b", 1)])),
    ("turns that a write and an end pass on", || {
        with_turns(&[(1, 1, None, Some(1)), (2, 2, Some(25), Some(2)), (3, 2, None, Some(2))])
    }),
];

/// The turn of a transaction: its number, where the log ended, when it was over, and where it has read.
type TurnAt = (u64, u64, Option<u64>, Option<u64>);

/// A client has put 1 and 2 to a key, and transactions have had the turn at it.
fn with_turns(turns: &[TurnAt]) -> Run {
    let mut run = Run::of(&["r8", "r8"]);
    run.turns = turns
        .iter()
        .map(|(number, lsn, ended, read)| Turn {
            who: (1, *number),
            partition: P,
            key: "r8".into(),
            asked: 10 * number,
            answered: 10 * number + 1,
            at: Lsn(*lsn),
            epoch: Epoch(1),
            ended: *ended,
            read: read.map(|at| (Lsn(at), Epoch(1))),
        })
        .collect();
    run
}

/// A client has put 1 and 2 to a key, and reads it.
fn got(key: &str, (lsn, value): (u64, u64), read_at: u64) -> Run {
    let mut run = Run::of(&[key, key]);
    run.reads(key, Action::Get(false), found(lsn, value, read_at));
    run
}

/// All keys.
fn everything() -> KeyRange {
    KeyRange { from: String::new(), behind: false, to: String::new() }
}

/// A scan finds these rows in the state at an LSN.
fn scans(run: &mut Run, rows: &[(&str, u64, u64)], lsn: u64) {
    let (limit, at, any) = (9, ReadSnapshot::Newest, None);
    let rows = rows.iter().map(|(key, lsn, value)| (key.to_string(), Lsn(*lsn), *value)).collect();
    let told = Answer::Rows { rows, more: false, at: Lsn(lsn), epoch: Epoch(1) };
    run.reads("", Action::Scan { range: everything(), limit, at, any }, told);
}

fn an_old_scan() -> Run {
    let mut run = Run::of(&["r0", "r0"]);
    scans(&mut run, &[("r0", 1, 1)], 1);
    run
}

/// A scan finds these rows of `a`, to which 1 and 2 were put, and a count so many.
fn scanned(rows: &[(&str, u64, u64)], number: u64) -> Run {
    let mut run = Run::of(&["a", "a"]);
    scans(&mut run, rows, 2);
    let action = Action::Count { range: everything(), at: ReadSnapshot::Newest, any: None };
    run.reads("", action, Answer::Number { number, at: Lsn(2), epoch: Epoch(1) });
    run
}

/// A find by an index has the one row that there is, and says that it goes on there.
fn found_by_index(next: &'static [u8]) -> Run {
    let mut run = Run::of(&["a", "a"]);
    let (from, to) = (Bytes::new(), Bytes::new());
    let range = IndexRange { index: 1, name: "hues".into(), from, to };
    let (limit, at, any) = (9, ReadSnapshot::Newest, None);
    let (rows, next) = (vec![("a".to_string(), Lsn(2), 2)], Bytes::from_static(next));
    let told = Answer::FoundBy { rows, next, at: Lsn(2), epoch: Epoch(1) };
    run.reads("", Action::Find { range, limit, at, any }, told);
    run
}

/// An insert is refused by a row that nobody ever wrote.
fn refused_by_nothing() -> Run {
    let mut run = Run::of(&["a"]);
    run.asked("b", Action::Insert(9), |run| {
        run.primary_answers(Op::write(Vec::new()));
        Answer::Exists(Lsn(1))
    });
    run
}

fn not_done() -> Run {
    let mut run = Run::of(&["a"]);
    run.asked("a", Action::Put(2), |run| {
        run.changes(&[put_row("a", 2)]);
        Answer::NotDone
    });
    run
}

/// Who was told of the second entry asks where its term ended.
fn ended_at(end: u64) -> Run {
    let mut run = Run::of(&["a", "a"]);
    run.reads("", Action::TermEnd(at(1, 2)), Answer::Ended(Some(Lsn(end))));
    run
}

fn a_loss_of_nothing() -> Run {
    let mut run = Run::of(&["a"]);
    run.lost.push(ReportedLoss { partition: P, at: at(1, 1), time: run.now });
    run
}

/// A write of two rows, so many of which it makes.
fn of_two_rows(made: usize) -> Run {
    let mut run = Run::of(&["a"]);
    let keys = ["a", "b"];
    let ops = [RowChange::Put, RowChange::Insert].into_iter().zip(keys.map(String::from)).collect();
    let batch = Batch { value: 2, ops, since: None, mark: None };
    let rows: Vec<_> = keys.iter().take(made).map(|key| put_row(key, 2)).collect();
    run.writes("", Action::Batch(Box::new(batch)), &rows);
    run
}

/// A job is told that both of its records are there. The value of the second is this.
fn of_a_job(value: u64) -> Run {
    let mut run = Run::of(&["a", "a"]);
    let records = vec![(1, 1), (2, value)];
    let at = Some(at(1, 2));
    run.jobs.push(JobAnswer { job: JobId::new(1, 1), partition: P, through: 2, at, records });
    run
}

/// A point over all partitions, which was asked for when two writes were acknowledged.
fn snapshot_at(lsn: u64) -> Run {
    let mut run = Run::of(&["a", "a"]);
    run.snapshots.push(CompleteSnapshot { began: run.now, at: [(P, at(1, lsn))].into() });
    run
}

/// A log of two puts to `a`, a backup at the first of them with these rows, and what came of its restoration
/// with one row of `b`.
fn backed_up(rows: &[(&str, u64, u64)], restored: &[(&str, u64)]) -> Run {
    let mut run = Run::of(&["a", "a"]);
    let rows = rows.iter().map(|(key, lsn, value)| (key.to_string(), Lsn(*lsn), *value)).collect();
    run.backups.push(Backup { rows: [(P, rows)].into(), ..Backup::new(5, [(P, at(1, 1))].into()) });
    let found = restored.iter().map(|(key, value)| (key.to_string(), *value)).collect();
    run.restored.push(Restored { into: vec![P], wanted: [("b".to_string(), 1)].into(), found });
    run
}

#[test]
fn pr330_a_backup_of_another_state_than_it_names_and_a_restoration_of_another_one() {
    let broken = |rows: &[(&str, u64, u64)], restored: &[(&str, u64)]| ids(backed_up(rows, restored));
    assert_eq!(broken(&[("a", 1, 1)], &[("b", 1)]), [""; 0]);
    assert_eq!(broken(&[("a", 2, 2)], &[("b", 1)]), ["PR-330"], "a row of a later page");
    assert_eq!(broken(&[], &[("b", 1)]), ["PR-330"], "a row is missing");
    assert_eq!(broken(&[("a", 1, 1)], &[("b", 2)]), ["PR-330"], "another row was put");
    assert_eq!(broken(&[("a", 1, 1)], &[]), ["PR-330"], "an acknowledged row is gone");
}
