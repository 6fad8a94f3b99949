//! Histories each of which breaks one promise: the checker of that one rejects it, and no other does.

use super::backups::{Backup, Restored};
use super::cluster_snapshots::CompleteSnapshot;
use super::effects::ReportedLoss;
use super::epochs::tests::{member, record};
use super::history::{Action, Answer, Operation};
use super::jobs::JobAnswer;
use super::lineage::tests::{P, at, entry};
use super::{Checks, ClientAnswers};
use std::collections::BTreeSet;
use types::{Epoch, JobId, Lsn, PartitionRecord, Position};
use wire::Entry;

/// Checkers that have seen a log of term 1 that writes 1, 2 and so on, each to the key of its place.
fn of_log(keys: &[&str]) -> (Checks, Vec<Entry>) {
    let (mut checks, mut log) = (Checks::default(), Vec::<Entry>::new());
    for (lsn, key) in (1..).zip(keys) {
        let crc = log.last().map_or(0, Entry::crc);
        log.push(entry(at(1, lsn), crc, key, lsn));
        checks.entry(lsn, &log[log.len() - 1]);
    }
    checks.tip(P, at(1, keys.len() as u64));
    (checks, log)
}

fn operation(key: &str, action: Action, told: Answer, (invoked, completed): (u64, u64)) -> Operation {
    let (session, number, key) = (None, invoked, key.into());
    Operation { number, client: 0, partition: P, key, action, session, invoked, completed, told }
}

fn put(key: &str, lsn: u64, when: (u64, u64)) -> Operation {
    operation(key, Action::Put(lsn), Answer::Done { at: at(1, lsn), copies: 1 }, when)
}

fn found(lsn: u64, value: u64, read_at: u64) -> Answer {
    Answer::Found { row: Some((Lsn(lsn), value)), at: Lsn(read_at), epoch: Epoch(1) }
}

fn broken(
    mut checks: Checks,
    operations: &[Operation],
    jobs: &[JobAnswer],
    lost: &[Position],
) -> Vec<String> {
    let lost: Vec<_> = lost.iter().map(|at| ReportedLoss { partition: P, at: *at, time: 50 }).collect();
    checks.finish(100, ClientAnswers { operations, jobs, lost: &lost, tables: &[], transactions: &[] });
    let ids: BTreeSet<String> = checks.violations().iter().map(|violation| violation.id.clone()).collect();
    ids.into_iter().collect()
}

#[test]
fn a_history_that_keeps_every_promise_is_accepted() {
    let (checks, _) = of_log(&["r0", "r0"]);
    let read = operation("r0", Action::Get(false), found(2, 2, 2), (40, 50));
    let all = [put("r0", 1, (1, 10)), put("r0", 2, (20, 30)), read];
    assert_eq!(broken(checks, &all, &[], &[]), [""; 0]);
}

#[test]
fn r5_a_read_of_what_was_replaced_before_it_began() {
    let (checks, _) = of_log(&["r0", "r0"]);
    let read = operation("r0", Action::Get(false), found(1, 1, 1), (40, 50));
    let all = [put("r0", 1, (1, 10)), put("r0", 2, (20, 30)), read];
    assert_eq!(broken(checks, &all, &[], &[]), ["R5"]);
}

#[test]
fn i5_a_read_of_another_state_than_that_of_its_position() {
    let (checks, _) = of_log(&["a", "a"]);
    let read = operation("a", Action::Get(false), found(1, 1, 2), (40, 50));
    assert_eq!(broken(checks, &[put("a", 1, (1, 10)), read], &[], &[]), ["I5"]);
}

#[test]
fn i4_a_read_of_what_never_was() {
    let (checks, _) = of_log(&["a"]);
    let read = operation("a", Action::Get(false), found(1, 9, 1), (40, 50));
    assert_eq!(broken(checks, &[read], &[], &[]), ["I4"]);
}

#[test]
fn i9_an_effect_of_what_was_not_done() {
    let (checks, _) = of_log(&["a"]);
    let not_done = operation("a", Action::Put(1), Answer::NotDone, (1, 10));
    assert_eq!(broken(checks, &[not_done], &[], &[]), ["I9"]);
}

#[test]
fn i14_a_wrong_word_about_where_a_term_ended() {
    let (checks, _) = of_log(&["a", "a"]);
    let asked = operation("", Action::TermEnd(at(1, 2)), Answer::Ended(Some(Lsn(1))), (40, 50));
    assert_eq!(broken(checks, &[asked], &[], &[]), ["I14"]);
}

#[test]
fn pr47_a_loss_that_is_none() {
    let (checks, _) = of_log(&["a"]);
    assert_eq!(broken(checks, &[], &[], &[at(1, 1)]), ["PR-47"]);
}

#[test]
fn pr82_a_record_of_a_job_that_is_gone() {
    let (checks, _) = of_log(&["a"]);
    let records = vec![(1, 1), (2, 77)];
    let job = JobAnswer { job: JobId::new(1, 1), partition: P, through: 2, at: Some(at(1, 1)), records };
    assert_eq!(broken(checks, &[], &[job], &[]), ["PR-82"]);
}

#[test]
fn pr80_a_cluster_snapshot_without_what_was_acknowledged_before_it() {
    let (mut checks, _) = of_log(&["a", "a"]);
    let taken = CompleteSnapshot { began: 50, at: [(P, at(1, 1))].into() };
    let all = [put("a", 1, (1, 10)), put("a", 2, (20, 30))];
    checks.cluster_snapshots(100, &[taken], &all);
    assert_eq!(checks.violations().len(), 1);
    assert_eq!(checks.violations()[0].id, "PR-80");
}

/// What checkers of backups say that have seen a log of two puts to `a`, of one that took a backup at the
/// first with these rows, and of what came of its restoration.
fn backed_up(rows: &[(&str, u64, u64)], restored: &[(&str, u64)]) -> Vec<String> {
    let (mut checks, _) = of_log(&["a", "a"]);
    let rows = rows.iter().map(|(key, lsn, value)| (key.to_string(), Lsn(*lsn), *value)).collect();
    let made = Backup { rows: [(P, rows)].into(), ..Backup::new(5, [(P, at(1, 1))].into()) };
    let found = restored.iter().map(|(key, value)| (key.to_string(), *value)).collect();
    let restored = Restored { into: vec![P], wanted: [("b".to_string(), 1)].into(), found };
    let all = [put("a", 1, (1, 10)), put("a", 2, (20, 30))];
    checks.cluster_snapshots(100, &[made.cluster_snapshot()], &all);
    checks.backups(100, &[made], &[restored]);
    broken(checks, &all, &[], &[])
}

#[test]
fn pr330_a_backup_of_another_state_than_it_names_and_a_restoration_of_another_one() {
    assert_eq!(backed_up(&[("a", 1, 1)], &[("b", 1)]), [""; 0]);
    assert_eq!(backed_up(&[("a", 2, 2)], &[("b", 1)]), ["PR-330"], "a row of a later page");
    assert_eq!(backed_up(&[], &[("b", 1)]), ["PR-330"], "a row is missing");
    assert_eq!(backed_up(&[("a", 1, 1)], &[("b", 2)]), ["PR-330"], "another row was put");
    assert_eq!(backed_up(&[("a", 1, 1)], &[]), ["PR-330"], "an acknowledged row is gone");
}

#[test]
fn i3_two_contents_of_one_position() {
    let (mut checks, _) = of_log(&["a"]);
    checks.entry(5, &entry(at(1, 1), 0, "a", 9));
    assert_eq!(broken(checks, &[], &[], &[]), ["I3"]);
}

#[test]
fn i1_an_acknowledged_write_that_is_gone_without_a_word() {
    let (mut checks, log) = of_log(&["a", "a"]);
    let second = entry(at(2, 2), log[0].crc(), "a", 9);
    checks.entry(20, &second);
    checks.survival.acknowledged(10, at(1, 2), &record(1, 1, &[1, 2]));
    let next = PartitionRecord { lossy: false, ..record(2, 2, &[2]) };
    let verdict = checks.survival.serves(30, &checks.lineage, None, &next, at(2, 2));
    checks.expect("I1", 30, verdict);
    checks.tip(P, at(2, 2));
    assert_eq!(broken(checks, &[], &[], &[]), ["I1"]);
}

#[test]
fn r9_what_is_given_up_and_in_no_tail() {
    let (mut checks, log) = of_log(&["a", "a"]);
    checks.entry(20, &entry(at(2, 2), log[0].crc(), "a", 9));
    checks.tip(P, at(2, 2));
    checks.given_up(30, member(1).node, P, (Lsn(1), at(1, 2)), &[]);
    assert_eq!(broken(checks, &[], &[], &[]), ["R9"]);
}
