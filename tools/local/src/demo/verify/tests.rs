//! Known-bad histories: each must be found, and a good one must not be accused.

use super::*;
use types::{Epoch, Lsn, Position, Term};

const PARTITION: PartitionId = PartitionId(64);
const OWNER: u32 = 3;

fn acknowledged(key: u32, sequence: u64, epoch: u64, lsn: u64) -> Attempt {
    let at = Position::new(Term(epoch), Lsn(lsn));
    Attempt { key: KeyId(key), client: OWNER, sequence, end: End::Acknowledged { at, ms: 0 } }
}

fn ended(key: u32, sequence: u64, end: End) -> Attempt {
    Attempt { key: KeyId(key), client: OWNER, sequence, end }
}

fn row(sequence: u64) -> Found {
    Found::Row { client: OWNER, sequence }
}

fn replica(node: u32, rows: &[(u32, Found)]) -> Replica {
    let rows = rows.iter().map(|(key, found)| (KeyId(*key), *found)).collect();
    Replica { partition: PARTITION, node: NodeId(node), rows, strays: 0 }
}

/// Three replicas that hold the same.
fn alike(rows: &[(u32, Found)]) -> Vec<Replica> {
    (1..=3).map(|node| replica(node, rows)).collect()
}

fn verdict(attempts: &[Attempt], replicas: &[Replica], reports: &Reports, promised: bool) -> Verification {
    let places = vec![PARTITION; 10];
    verify(&Evidence { attempts, places: &places, replicas, reports, promised })
}

/// Key 0 was loaded and written twice, key 1 only loaded.
fn history() -> Vec<Attempt> {
    vec![
        acknowledged(0, 2, 1, 12),
        acknowledged(0, 0, 1, 1),
        acknowledged(1, 0, 1, 1),
        acknowledged(0, 1, 1, 11),
    ]
}

/// The epoch 1 ended before the last write.
fn lost_last() -> Reports {
    let mut reports = Reports::default();
    reports.ended(PARTITION, Term(1), Lsn(11));
    reports.failover(PARTITION, Epoch(2), Position::new(Term(1), Lsn(11)));
    reports
}

#[test]
fn a_good_history_is_not_accused() {
    let verdict = verdict(&history(), &alike(&[(0, row(2)), (1, row(0))]), &Reports::default(), true);
    assert!(verdict.counts.is_good(), "{verdict:?}");
    assert_eq!((verdict.counts.compared, verdict.counts.reported_lost), (2, 0));
    assert!(verdict.lost.is_empty() && verdict.findings.is_empty());
}

#[test]
fn an_acknowledged_value_that_is_missing_is_found() {
    let older = verdict(&history(), &alike(&[(0, row(0)), (1, row(0))]), &Reports::default(), true);
    assert_eq!((older.counts.missing, older.counts.unreported_lost, older.counts.different), (2, 2, 0));
    let none = verdict(&history(), &alike(&[(0, row(2))]), &Reports::default(), true);
    assert_eq!((none.counts.missing, none.counts.unreported_lost), (1, 1));
    assert_eq!(
        none.findings,
        [
            "key 1 in partition p64: write 0 of client 3 at (1,1) was acknowledged, is gone and was not reported"
        ]
    );
    // On one replica of three it is as missing as on all.
    let mut replicas = alike(&[(0, row(2)), (1, row(0))]);
    replicas[2].rows.remove(&KeyId(1));
    let one = verdict(&history(), &replicas, &Reports::default(), true);
    assert_eq!((one.counts.missing, one.counts.different), (1, 1));
    assert!(!older.counts.is_good() && !none.counts.is_good() && !one.counts.is_good());
}

#[test]
fn a_wrong_value_is_found() {
    let foreign = verdict(&history(), &alike(&[(0, row(2)), (1, Found::Foreign)]), &Reports::default(), true);
    let invented = verdict(&history(), &alike(&[(0, row(7)), (1, row(0))]), &Reports::default(), true);
    let other = Found::Row { client: 4, sequence: 2 };
    let of_another = verdict(&history(), &alike(&[(0, other), (1, row(0))]), &Reports::default(), true);
    for wrong in [foreign, invented, of_another] {
        assert_eq!((wrong.counts.different, wrong.counts.is_good()), (1, false), "{wrong:?}");
    }
    let mut attempts = history();
    attempts.push(ended(0, 3, End::NotDone));
    let refused = verdict(&attempts, &alike(&[(0, row(3)), (1, row(0))]), &Reports::default(), true);
    assert_eq!((refused.counts.different, refused.counts.missing), (1, 0));
}

#[test]
fn rows_under_keys_that_nobody_wrote_are_found() {
    let mut replicas = alike(&[(0, row(2)), (1, row(0)), (5, row(0))]);
    replicas[0].strays = 2;
    let verdict = verdict(&history(), &replicas, &Reports::default(), true);
    assert_eq!(verdict.counts.different, 5);
}

#[test]
fn a_replica_that_lags_is_found() {
    let mut replicas = alike(&[(0, row(2)), (1, row(0))]);
    replicas[1].rows.insert(KeyId(0), row(1));
    let verdict = verdict(&history(), &replicas, &Reports::default(), true);
    assert_eq!((verdict.counts.different, verdict.counts.missing, verdict.counts.unreported_lost), (1, 1, 1));
}

#[test]
fn an_unknown_outcome_may_be_there_or_not() {
    let mut attempts = history();
    attempts.push(ended(0, 3, End::Unknown));
    for sequence in [2, 3] {
        let rows = [(0, row(sequence)), (1, row(0))];
        let verdict = verdict(&attempts, &alike(&rows), &Reports::default(), true);
        assert!(verdict.counts.is_good(), "{verdict:?}");
    }
    let before = verdict(&attempts, &alike(&[(0, row(1)), (1, row(0))]), &Reports::default(), true);
    assert_eq!(before.counts.missing, 1);
}

#[test]
fn a_loss_that_was_reported_is_counted_and_excused_where_the_policy_allows_it() {
    let replicas = alike(&[(0, row(1)), (1, row(0))]);
    let allowed = verdict(&history(), &replicas, &lost_last(), false);
    assert!(allowed.counts.is_good(), "{allowed:?}");
    assert_eq!(
        (allowed.counts.reported_lost, allowed.counts.missing, allowed.counts.unreported_lost),
        (1, 0, 0)
    );
    assert_eq!(allowed.lost, [Lost { attempt: acknowledged(0, 2, 1, 12), reported: true, gone: true }]);
    let promised = verdict(&history(), &replicas, &lost_last(), true);
    assert_eq!(
        (promised.counts.missing, promised.counts.unreported_lost, promised.counts.is_good()),
        (1, 0, false)
    );
}

#[test]
fn a_loss_that_was_not_reported_is_found() {
    let replicas = alike(&[(0, row(1)), (1, row(0))]);
    let silent = verdict(&history(), &replicas, &Reports::default(), false);
    assert_eq!(
        (silent.counts.unreported_lost, silent.counts.missing, silent.counts.is_good()),
        (1, 1, false)
    );
    // Reporting one of two is not enough.
    let replicas = alike(&[(0, row(0)), (1, row(0))]);
    let half = verdict(&history(), &replicas, &lost_last(), false);
    assert_eq!(
        (half.counts.reported_lost, half.counts.unreported_lost, half.counts.is_good()),
        (1, 1, false)
    );
}

#[test]
fn a_report_of_something_that_is_not_lost_is_found() {
    let verdict = verdict(&history(), &alike(&[(0, row(2)), (1, row(0))]), &lost_last(), false);
    assert_eq!(
        (verdict.counts.reported_lost, verdict.counts.wrongly_reported, verdict.counts.is_good()),
        (1, 1, false)
    );
}

#[test]
fn a_lost_write_that_was_written_over_later_stays_a_reported_loss() {
    let mut attempts = history();
    attempts.push(acknowledged(0, 3, 2, 13));
    let verdict = verdict(&attempts, &alike(&[(0, row(3)), (1, row(0))]), &lost_last(), false);
    assert!(verdict.counts.is_good(), "{verdict:?}");
    assert_eq!(verdict.lost, [Lost { attempt: acknowledged(0, 2, 1, 12), reported: true, gone: false }]);
}

#[test]
fn two_reports_that_differ_are_found() {
    let mut reports = lost_last();
    reports.failover(PARTITION, Epoch(2), Position::new(Term(1), Lsn(10)));
    let verdict = verdict(&history(), &alike(&[(0, row(1)), (1, row(0))]), &reports, false);
    assert_eq!((verdict.counts.reports_differ, verdict.counts.is_good()), (1, false));
}

#[test]
fn a_partition_that_nobody_read_is_found() {
    let verdict = verdict(&history(), &[], &Reports::default(), true);
    assert_eq!((verdict.counts.different, verdict.counts.compared, verdict.counts.is_good()), (2, 0, false));
}
