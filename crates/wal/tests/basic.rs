//! Append, sync, read, open again.

mod common;
use common::*;
use std::sync::Arc;
use types::{Epoch, Lsn, Position, Term};
use understudy_wal::faulty::MemFiles;
use understudy_wal::{Files, Log, LogError, Owner, ReadError, Record};

#[test]
fn what_was_synced_is_there_again() {
    let files = MemFiles::new();
    let (mut log, recovered) = open(&files);
    assert!(recovered.fresh && !recovered.clean_shutdown);
    let written: Vec<_> =
        (0..100u8).map(|i| add(&mut log, if i % 3 == 0 { Q } else { P }, 1, &[i; 100])).collect();
    let tokens = log.sync().expect("syncs");
    let ends: Vec<_> = tokens.iter().map(|(id, durable)| (*id, durable.get())).collect();
    assert_eq!(ends, vec![(Q, at(1, 34)), (P, at(1, 66))]);
    assert_eq!(log.sync().expect("syncs"), vec![]);
    drop(log);
    let (log, recovered) = open(&files.crash(None));
    assert!(!recovered.fresh && !recovered.clean_shutdown && recovered.damage.is_empty());
    assert_eq!(recovered.torn_bytes, 0);
    assert_eq!(recovered.partitions[&P].end, at(1, 66));
    assert_eq!(log.durable(P).expect("known").get(), at(1, 66));
    for id in [P, Q] {
        let expected: Vec<_> =
            written.iter().filter(|entry| entry.header().partition == id).cloned().collect();
        assert_eq!(all(&log, id), expected);
    }
}

#[test]
fn what_was_not_synced_is_gone_and_the_log_goes_on() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"kept");
    log.sync().expect("syncs");
    add(&mut log, P, 1, b"lost");
    let files = files.crash(None);
    let (mut log, recovered) = open(&files);
    assert_eq!(recovered.partitions[&P].end, at(1, 1));
    assert_eq!((recovered.torn_bytes, recovered.partitions[&P].torn_end), (0, false));
    let other = add(&mut log, P, 2, b"other");
    log.sync().expect("syncs");
    let (log, _) = open(&files.crash(None));
    assert_eq!(all(&log, P)[1], other);
}

#[test]
fn a_clean_shutdown_is_used_up_by_one_opening() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"one");
    log.shutdown().expect("shuts down");
    let files = files.crash(None);
    let (log, recovered) = open(&files);
    assert!(recovered.clean_shutdown);
    assert_eq!(recovered.partitions[&P].end, at(1, 1));
    drop(log);
    let (_, recovered) = open(&files.crash(None));
    assert!(!recovered.clean_shutdown);
}

#[test]
fn reads_say_why_not() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    assert_eq!(log.read(P, Lsn(1), 100), Err(ReadError::Unknown(P)));
    for _ in 0..5 {
        add(&mut log, P, 1, b"x");
    }
    log.trim(P, Lsn(3)).expect("truncates");
    assert_eq!(log.base(P).expect("known").0, at(1, 2));
    assert_eq!(log.read(P, Lsn(2), 100), Err(ReadError::TooOld { base: at(1, 2) }));
    assert_eq!(log.read(P, Lsn(7), 100), Err(ReadError::Beyond { end: at(1, 5) }));
    assert_eq!(log.read(P, Lsn(6), 100), Ok(vec![]));
    assert_eq!(log.read(P, Lsn(3), 1).expect("reads").len(), 1);
    assert_eq!(log.read(P, Lsn(3), 1 << 20).expect("reads").len(), 3);
    assert!(log.position_of(P, Lsn(1)).is_err());
}

#[test]
fn two_partitions_are_cut_independently() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    for i in 0..20u8 {
        add(&mut log, P, 1, &[i; 300]);
        add(&mut log, Q, 1, &[i; 300]);
    }
    log.append(&[Record::Truncate { partition: P, to: at(1, 7) }]).expect("cuts");
    assert_eq!(log.end(Q).expect("known").0, at(1, 20));
    let again = add(&mut log, P, 2, b"again");
    assert_eq!(again.at(), at(2, 8));
    log.append(&[Record::Truncate { partition: Q, to: at(1, 19) }]).expect("cuts");
    log.sync().expect("syncs");
    let before = (all(&log, P), all(&log, Q));
    let (log, recovered) = open(&files.crash(None));
    assert_eq!(recovered.partitions[&P].end, at(2, 8));
    assert_eq!(recovered.partitions[&Q].end, at(1, 19));
    assert_eq!((all(&log, P), all(&log, Q)), before);
    assert_eq!(before.0.len(), 8);
    assert_eq!(before.0[7], again);
}

#[test]
fn a_base_starts_again_and_forgetting_forgets() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"old");
    add(&mut log, Q, 1, b"other");
    log.append(&[
        Record::Promise { partition: P, epoch: Epoch(4) },
        Record::Base { partition: P, at: at(3, 50), crc: 77 },
        Record::Forget { partition: Q },
    ])
    .expect("appends");
    let new = entry(P, at(4, 51), 77, b"new");
    log.append(&[Record::Entry(new.clone())]).expect("appends");
    log.sync().expect("syncs");
    let (log, recovered) = open(&files.crash(None));
    let p = &recovered.partitions[&P];
    assert_eq!((p.base, p.base_crc, p.end, p.promised), (at(3, 50), 77, at(4, 51), Epoch(4)));
    assert!(!recovered.partitions.contains_key(&Q));
    assert_eq!(all(&log, P), vec![new]);
    assert_eq!(log.end(Q), None);
}

#[test]
fn one_batch_can_hold_everything() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    let one = entry(P, at(1, 1), 0, b"1");
    let two = entry(P, at(1, 2), one.crc(), b"2");
    let other = entry(P, at(2, 2), one.crc(), b"other");
    log.append(&[
        Record::Entry(one.clone()),
        Record::Entry(two),
        Record::Truncate { partition: P, to: at(1, 1) },
        Record::Entry(other.clone()),
        Record::Trim { partition: P, below: Lsn(2) },
    ])
    .expect("appends");
    log.validate();
    assert_eq!(all(&log, P), vec![other.clone()]);
    assert_eq!(log.base(P), Some((at(1, 1), one.crc())));
    assert_eq!(log.stats().frames, 2);
    log.sync().expect("syncs");
    let (log, _) = open(&files.crash(None));
    assert_eq!(all(&log, P), vec![other]);
}

#[test]
#[should_panic(expected = "does not continue")]
fn an_entry_out_of_order_is_a_bug_of_the_caller() {
    let (mut log, _) = open(&MemFiles::new());
    let entry = entry(P, at(1, 2), 0, b"");
    assert!(!log.accepts(&[Record::Entry(entry.clone())]));
    let _ = log.append(&[Record::Entry(entry)]);
}

#[test]
fn an_entry_longer_than_a_segment_gets_one_of_its_own_length() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"small");
    let big = add(&mut log, P, 1, &[7; 100_000]);
    add(&mut log, P, 1, b"small");
    log.sync().expect("syncs");
    let (log, recovered) = open(&files.crash(None));
    assert_eq!(recovered.partitions[&P].end, at(1, 3));
    assert_eq!(all(&log, P)[1], big);
    assert_eq!(log.end(P).map(|(end, _)| end), Some(Position::new(Term(1), Lsn(3))));
}

#[test]
fn a_log_that_must_be_there_is_not_begun_again() {
    let files = MemFiles::new();
    let owner = Owner { begun: true, partitions: &|_| Vec::new() };
    let reopen = |files: &MemFiles| Log::open_for(Arc::new(files.clone()), small(), &owner);
    assert!(matches!(reopen(&files), Err(LogError::Missing { segments: 0 })));
    assert!(files.list().expect("lists").is_empty(), "nothing was begun");
    drop(open(&files));
    let (_, recovered) = reopen(&files.crash(None)).expect("it is there");
    assert!(!recovered.fresh);
}

#[test]
fn segments_without_a_frame_are_only_removed_if_no_log_was_ever_begun() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    (0..8u8).for_each(|i| drop(add(&mut log, P, 1, &[i; 100])));
    log.sync().expect("syncs");
    drop(log);
    let [name] = &files.list().expect("lists")[..] else { panic!("one segment") };
    let length = files.contents(name).len() as u64;
    // The first frame was torn when it was written: nothing was ever there.
    let torn = files.copy();
    for (at, byte) in (16..).zip(files.contents(name).into_iter().skip(16)) {
        torn.flip(name, at, byte);
    }
    assert!(torn.contents(name).iter().any(|byte| *byte != 0));
    assert!(open(&torn).1.fresh);
    // Every frame is damaged, but something was written.
    let wiped = files.copy();
    (0..length).step_by(8).for_each(|at| wiped.flip(name, at, 1));
    let before = wiped.contents(name);
    let opened = Log::open(Arc::new(wiped.clone()), small());
    assert!(matches!(opened, Err(LogError::Missing { segments: 1 })));
    assert!(wiped.contents(name) == before && before.len() as u64 == length, "it was left as it is");
}

#[test]
fn what_may_have_been_lost_as_a_whole_is_damaged_until_there_is_a_copy() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, Q, 1, b"sound");
    log.sync().expect("syncs");
    add(&mut log, P, 1, b"all there is");
    log.sync().expect("syncs");
    log.mark().expect("marks");
    let contents = files.contents("00000001.log");
    let at_byte = contents.windows(12).position(|window| window == b"all there is").expect("is there");
    files.flip("00000001.log", at_byte as u64, 1);
    let (mut log, recovered) = open_for(&files, &[P, Q]);
    assert!(recovered.may_have_lost(P) && !recovered.may_have_lost(Q), "{recovered:?}");
    assert_eq!(recovered.partitions.keys().collect::<Vec<_>>(), [&Q]);
    for _ in 0..2 {
        let (log, recovered) = open(&files.crash(None));
        assert!(recovered.partitions[&P].damaged.is_some() && recovered.partitions[&Q].damaged.is_none());
        assert_eq!(log.end(Q).map(|(end, _)| end), Some(at(1, 1)));
    }
    log.append(&[Record::Base { partition: P, at: at(1, 7), crc: 3 }]).expect("appends");
    log.sync().expect("syncs");
    assert_eq!(open(&files.crash(None)).1.partitions[&P].damaged, None);
}

#[test]
fn f20_the_segment_that_is_written_is_held_back_by_nobody() {
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, understudy_wal::Options { segment_bytes: 4096, ..small() });
    add(&mut log, P, 1, &[1; 1000]);
    log.sync().expect("syncs");
    assert_eq!(log.reader().holding_back(), vec![], "nothing of one segment can be given back");
    (0..4).for_each(|_| drop(add(&mut log, Q, 1, &[2; 1000])));
    log.sync().expect("syncs");
    assert_eq!(log.reader().holding_back(), vec![P, Q]);
    log.trim(Q, Lsn(2)).expect("shortens");
    log.sync().expect("syncs");
    assert_eq!(log.reader().holding_back(), vec![P, Q], "the oldest segment has its second, too");
    log.trim(Q, Lsn(5)).expect("shortens");
    log.sync().expect("syncs");
    assert_eq!(log.reader().holding_back(), vec![P]);
}
