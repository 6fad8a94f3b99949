//! PR-301: entries that keep the log from being given back lie in files of their own.

mod common;
use common::*;
use std::collections::BTreeSet;
use types::{Finding, Lsn, PartitionId, Rules};
use understudy_wal::faulty::MemFiles;
use understudy_wal::{Files, Log, Options, ReadError, Record};
use wire::entry::Entry;

fn options() -> Options {
    Options { segment_bytes: 4096, max_bytes: 32 << 10, keep_bytes: 0, spares: 0, ..small() }
}

/// A log that is as long as it may be, in whose first segment P has three entries, and what P has there.
fn full(files: &MemFiles) -> (Log, Vec<Entry>) {
    let (mut log, _) = open_with(files, options());
    let entries = (0..3u8).map(|i| add(&mut log, P, 1, &[i; 100])).collect();
    while add_or_not(&mut log, &[2; 1000]) {}
    log.sync().expect("syncs");
    let (end, _) = log.end(Q).expect("known");
    log.trim(Q, end.lsn).expect("shortens");
    log.sync().expect("syncs");
    assert_eq!((log.reclaim().expect("gives back"), log.holding_back()), (0, vec![P]));
    (log, entries)
}

fn add_or_not(log: &mut Log, payload: &[u8]) -> bool {
    let entry = next(log, Q, 1, payload);
    log.append(&[Record::Entry(entry)]).is_ok()
}

fn put_apart(log: &mut Log, partitions: &[PartitionId]) -> usize {
    let orders = log.orders_apart(&partitions.iter().copied().collect());
    let count = orders.len();
    for order in orders {
        log.take_apart(order.make()).expect("is taken");
        log.validate();
    }
    count
}

/// The files that are there beside segments.
fn apart(files: &MemFiles) -> usize {
    files.list().expect("lists").iter().filter(|name| name.contains("apart")).count()
}

#[test]
fn pr301_what_holds_a_full_log_back_is_put_apart_and_stays_readable() {
    let files = MemFiles::new();
    let (mut log, mut entries) = full(&files);
    let before = log.disk_bytes();
    assert!(!add_or_not(&mut log, &[2; 3000]), "it is full");
    assert_eq!(put_apart(&mut log, &[P]), 1);
    assert!(log.disk_bytes() < before / 2 && log.holding_back().is_empty());
    assert!(add_or_not(&mut log, &[2; 3000]), "there is room");
    assert_eq!((all(&log, P), log.base(P)), (entries.clone(), Some((at(0, 0), 0))));
    entries.push(add(&mut log, P, 2, b"goes on"));
    log.sync().expect("syncs");
    for files in [files.crash(None), files.clone()] {
        let (log, recovered) = open_with(&files, options());
        assert!(recovered.damage.is_empty() && recovered.partitions[&P].damaged.is_none());
        assert_eq!((recovered.partitions[&P].base, recovered.partitions[&P].end), (at(0, 0), at(2, 4)));
        assert_eq!(all(&log, P), entries);
        assert_eq!(log.read(P, Lsn(2), 1).expect("reads"), entries[1..2]);
        assert_eq!(log.position_of(P, Lsn(2)).expect("is there").0, at(1, 2));
    }
}

#[test]
fn pr301_without_the_rule_the_log_stays_full() {
    let rules = Rules::without(Finding::Pr301).expect("this build has mutants");
    let files = MemFiles::new();
    drop(full(&files));
    let (mut log, _) = open_with(&files, Options { rules, ..options() });
    assert_eq!(put_apart(&mut log, &[P]), 0);
    assert!(log.holding_back() == [P] && !add_or_not(&mut log, &[2; 3000]));
}

#[test]
fn pr301_what_gives_nothing_back_stays_where_it_is() {
    let files = MemFiles::new();
    let (mut log, _) = full(&files);
    assert_eq!(put_apart(&mut log, &[Q]), 0, "another one holds the log back");
    let (mut log, _) = open_with(&MemFiles::new(), options());
    (0..12).for_each(|_| drop(add(&mut log, P, 1, &[1; 1000])));
    log.sync().expect("syncs");
    assert_eq!(put_apart(&mut log, &[P]), 0, "it would take as much again");
}

#[test]
fn pr301_a_log_that_is_truncated_shortened_or_begun_again_needs_no_more_of_the_file() {
    // What befalls P, whether the file stays, and what the log has of P then.
    let truncate = |lsn| Record::Truncate { partition: P, to: at(1, lsn) };
    let cases = [
        (truncate(2), 1, 0, 2),
        (truncate(0), 0, 0, 0),
        (Record::Trim { partition: P, below: Lsn(3) }, 1, 0, 3),
        (Record::Trim { partition: P, below: Lsn(4) }, 0, 3, 3),
        (Record::Base { partition: P, at: at(1, 9), crc: 7 }, 0, 9, 9),
        (Record::Forget { partition: P }, 0, 0, 0),
    ];
    for (record, stays, base, end) in cases {
        let record = match record {
            Record::Truncate { to, .. } if to.lsn == Lsn::ZERO => {
                Record::Truncate { partition: P, to: at(0, 0) }
            }
            record => record,
        };
        let files = MemFiles::new();
        let (mut log, _) = full(&files);
        put_apart(&mut log, &[P]);
        assert_eq!(apart(&files), 1);
        log.append(std::slice::from_ref(&record)).expect("appends");
        log.validate();
        log.sync().expect("syncs");
        log.reclaim().expect("gives back");
        assert_eq!(apart(&files), stays, "{record:?}");
        let here = |log: &Log| (log.base(P).map(|(at, _)| at.lsn.0), log.end(P).map(|(at, _)| at.lsn.0));
        if matches!(record, Record::Forget { .. }) {
            assert_eq!(here(&log), (None, None));
            continue;
        }
        assert_eq!(here(&log), (Some(base), Some(end)), "{record:?}");
        let next = add(&mut log, P, 2, b"another");
        log.sync().expect("syncs");
        let files = files.crash(None);
        let (log, recovered) = open_with(&files, options());
        assert!(recovered.damage.is_empty(), "{record:?}: {:?}", recovered.damage);
        assert_eq!((here(&log), apart(&files)), ((Some(base), Some(end + 1)), stays), "{record:?}");
        assert_eq!(all(&log, P).last(), Some(&next), "{record:?}");
    }
}

#[test]
fn pr301_a_crash_in_the_middle_leaves_the_log_or_the_file() {
    let files = MemFiles::new();
    let (mut log, entries) = full(&files);
    let made: Vec<_> = log.orders_apart(&BTreeSet::from([P])).into_iter().map(|order| order.make()).collect();
    assert_eq!((made.len(), apart(&files)), (1, 1));
    assert!(log.orders_apart(&BTreeSet::from([P])).is_empty(), "it is under way");
    let (log, _) = open_with(&files.crash(None), options());
    assert_eq!(all(&log, P), entries);
    let files = files.crash(None);
    drop(open_with(&files, options()));
    let (mut log, _) = open_with(&files, options());
    log.reclaim().expect("gives back");
    assert_eq!(apart(&files), 0, "the log has all of it");
}

#[test]
fn pr301_an_order_for_a_log_that_has_changed_since_changes_nothing() {
    let files = MemFiles::new();
    let (mut log, entries) = full(&files);
    let orders = log.orders_apart(&BTreeSet::from([P]));
    log.append(&[Record::Truncate { partition: P, to: at(1, 2) }]).expect("appends");
    for order in orders {
        log.take_apart(order.make()).expect("is taken");
    }
    log.validate();
    log.sync().expect("syncs");
    log.reclaim().expect("gives back");
    assert_eq!((apart(&files), log.holding_back()), (0, vec![P]));
    assert_eq!(all(&log, P), entries[..2]);
}

#[test]
fn pr301_a_damaged_partition_stays_damaged_and_a_file_that_rots_is_not_believed() {
    let files = MemFiles::new();
    let (mut log, entries) = full(&files);
    log.sync().expect("syncs");
    drop(log);
    // The last bytes of the last segment, which nothing was written into.
    let last = files.list().expect("lists").into_iter().rfind(|name| name.ends_with(".log")).expect("there");
    files.shorten(&last, files.contents(&last).len() as u64 - 1);
    let (mut log, recovered) = open_with(&files, options());
    assert!(recovered.partitions[&P].damaged.is_some());
    assert_eq!(put_apart(&mut log, &[P]), 1);
    let (log, recovered) = open_with(&files.crash(None), options());
    assert!(recovered.partitions[&P].damaged.is_some());
    assert_eq!(all(&log, P), entries);
    let files = files.crash(None);
    let name = files.list().expect("lists").into_iter().find(|name| name.ends_with(".apart")).expect("there");
    files.open(&name).expect("opens").write_at(150, &[9]).expect("writes");
    let (log, recovered) = open_with(&files, options());
    assert_eq!((recovered.partitions[&P].base, apart(&files)), (at(1, 3), 1));
    assert!(matches!(log.read(P, Lsn(1), 1), Err(ReadError::TooOld { .. })));
}
