//! Full disks, failed syncs, failed writes; and each rule taken out.

mod common;
use bytes::Bytes;
use common::*;
use std::sync::Arc;
use types::{Epoch, Finding, Lsn, Rules};
use understudy_wal::faulty::{Faults, MemFiles};
use understudy_wal::{Files, Log, LogError, Options, Record, TORN};
use wire::entry::{Entry, Header, Kind};

/// Small logs without the rule against a finding.
fn without(finding: Finding) -> Options {
    Options { rules: Rules::without(finding).expect("tests are built with mutants"), ..small() }
}

fn fill(log: &mut Log) -> usize {
    for count in 0..10_000 {
        let entry = next(log, P, 1, &[1; 500]);
        match log.append(&[Record::Entry(entry)]) {
            Ok(()) => {}
            Err(LogError::Full { .. }) => return count,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it never gets full");
}

fn a_full_log_goes_on(log: &mut Log, files: &MemFiles) {
    let end = log.end(P).expect("known");
    for _ in 0..3 {
        let refused = log.append(&[Record::Entry(next(log, P, 1, &[1; 500]))]);
        assert!(matches!(refused, Err(LogError::Full { .. })));
        assert_eq!(log.end(P), Some(end));
    }
    // Reads, promises, values, cuts and truncation go on.
    assert_eq!(all(log, P).len() as u64, end.0.lsn.0);
    let cut = at(1, end.0.lsn.0 - 1);
    log.append(&[Record::Promise { partition: P, epoch: Epoch(9) }]).expect("promises");
    log.append(&[Record::Custom { partition: P, key: 1, value: Bytes::from_static(b"v") }]).expect("keeps");
    log.append(&[Record::Truncate { partition: P, to: cut }]).expect("cuts");
    log.sync().expect("syncs");
    log.trim(P, cut.lsn).expect("truncates");
    log.sync().expect("syncs");
    assert!(log.reclaim().expect("reclaims") > 0);
    let kept = add(log, P, 9, &[2; 500]);
    log.sync().expect("syncs");
    let (log, recovered) = open(&files.crash(None));
    assert!(recovered.damage.is_empty());
    assert_eq!(recovered.partitions[&P].promised, Epoch(9));
    assert_eq!(log.end(P), Some((kept.at(), kept.crc())));
}

#[test]
fn a_log_at_its_high_water_mark_refuses_entries_only() {
    let files = MemFiles::new();
    let options = Options { max_bytes: 64 * 1024, ..small() };
    let (mut log, _) = open_with(&files, options);
    let count = fill(&mut log);
    assert!((80..128).contains(&count), "{count} entries of 600 bytes");
    assert!(log.disk_bytes() <= 64 * 1024);
    a_full_log_goes_on(&mut log, &files);
}

#[test]
fn pr126_a_full_log_takes_what_goes_before_a_terms_marker() {
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, Options { max_bytes: 64 * 1024, ..small() });
    fill(&mut log);
    let fetched = next(&log, P, 1, &[1; 500]);
    let term = at(2, fetched.lsn().0 + 1);
    let marker = Entry::encode(Header::new(Kind::Configuration, P, term, fetched.crc()), b"");
    let refused = log.append(&[Record::Entry(fetched.clone())]);
    assert!(matches!(refused, Err(LogError::Full { .. })));
    log.append(&[Record::Entry(fetched), Record::Entry(marker)]).expect("takes both");
    log.sync().expect("syncs");
    assert_eq!(log.end(P).map(|(at, _)| at), Some(term));
}

#[test]
fn a_segment_that_cannot_be_opened_just_now_is_begun_later() {
    for spare in [false, true] {
        let files = MemFiles::new();
        let (mut log, _) = open_with(&files, small());
        // A spare is ordered when the segment is half full.
        while log
            .wants_spare()
            .map(|order| {
                if spare {
                    log.add_spare(order.make())
                }
            })
            .is_none()
        {
            add(&mut log, P, 1, &[1; 500]);
        }
        log.sync().expect("syncs");
        files.set_faults(Faults { no_files: true, ..Faults::default() });
        let refused = loop {
            match log.append(&[Record::Entry(next(&log, P, 1, &[1; 500]))]) {
                Ok(()) => assert!(log.end(P).is_some_and(|(end, _)| end.lsn < Lsn(10_000)), "it never rolls"),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, LogError::ForNow(_)) && refused.is_passing(), "{refused}");
        log.sync().expect("what there is is synced");
        let end = log.end(P).expect("known");
        assert!(
            log.append(&[Record::Entry(next(&log, P, 1, &[1; 500]))]).is_err_and(|error| error.is_passing())
        );
        assert_eq!(log.end(P), Some(end));
        files.set_faults(Faults::default());
        let kept = add(&mut log, P, 1, &[2; 500]);
        log.sync().expect("syncs");
        assert_eq!(kept.lsn(), end.0.lsn.next());
        let (log, recovered) = open(&files.crash(None));
        assert!(recovered.damage.is_empty());
        assert_eq!(log.end(P), Some((kept.at(), kept.crc())));
    }
}

#[test]
fn a_full_disk_is_an_ordinary_refusal() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    files.set_faults(Faults { capacity: Some(100_000), ..Faults::default() });
    fill(&mut log);
    a_full_log_goes_on(&mut log, &files);
}

#[test]
fn a_failed_sync_poisons() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"kept");
    log.sync().expect("syncs");
    add(&mut log, P, 1, b"lost");
    files.set_faults(Faults { fail_sync: Some(0), ..Faults::default() });
    assert!(matches!(log.sync(), Err(LogError::Poisoned { .. })));
    assert!(matches!(log.sync(), Err(LogError::Poisoned { .. })));
    assert!(matches!(log.append(&[Record::Entry(next(&log, P, 1, b""))]), Err(LogError::Poisoned { .. })));
    assert!(matches!(log.mark(), Err(LogError::Poisoned { .. })));
    assert_eq!(log.durable(P).expect("known").get(), at(1, 1));
    assert!(matches!(log.shutdown(), Err(LogError::Poisoned { .. })));
    let (_, recovered) = open(&files.crash(None));
    assert_eq!(recovered.partitions[&P].end, at(1, 1));
}

#[test]
fn what_an_opening_reports_is_on_the_disk_even_if_an_earlier_sync_failed() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"in the cache only");
    files.set_faults(Faults { fail_sync: Some(0), ..Faults::default() });
    assert!(log.sync().is_err());
    // The process restarts; the cache still shows the entry, and the disk believes it is clean.
    let (log, recovered) = open(&files);
    assert_eq!(recovered.partitions[&P].end, at(1, 1));
    assert_eq!(log.durable(P).expect("known").get(), at(1, 1));
    let (_, recovered) = open(&files.crash(None));
    assert_eq!(recovered.partitions[&P].end, at(1, 1));
}

#[test]
fn a_failed_append_leaves_the_log_as_it_was() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"before");
    files.set_faults(Faults { fail_write: Some(0), ..Faults::default() });
    let entry = next(&log, P, 1, &[3; 200]);
    assert!(matches!(log.append(&[Record::Entry(entry.clone())]), Err(LogError::Io { .. })));
    assert_eq!(log.end(P).expect("known").0, at(1, 1));
    log.sync().expect("syncs");
    let (_, recovered) = open(&files.crash(None));
    assert_eq!((recovered.partitions[&P].end, recovered.torn_bytes), (at(1, 1), 0));
    log.append(&[Record::Entry(entry)]).expect("appends");
    add(&mut log, P, 1, b"after");
    log.sync().expect("syncs");
    let (log, recovered) = open(&files.crash(None));
    assert!(recovered.damage.is_empty());
    assert_eq!(all(&log, P).len(), 3);
}

#[test]
fn pr459_want_of_memory_is_refused_for_now_and_stops_nothing() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"before");
    // The write, the zeros over what it left, and those again before the sync.
    files.set_faults(Faults { no_memory: 3, ..Faults::default() });
    let entry = next(&log, P, 1, &[3; 200]);
    let refused = log.append(&[Record::Entry(entry.clone())]);
    assert!(matches!(&refused, Err(error @ LogError::ForNow(_)) if error.is_passing()), "{refused:?}");
    assert_eq!(log.end(P).expect("known").0, at(1, 1));
    log.sync().expect("syncs when there is memory again");
    let (_, recovered) = open(&files.crash(None));
    assert_eq!((recovered.partitions[&P].end, recovered.torn_bytes), (at(1, 1), 0));
    log.append(&[Record::Entry(entry)]).expect("appends");
    log.sync().expect("syncs");
    let (log, recovered) = open(&files.crash(None));
    assert!(recovered.damage.is_empty());
    assert_eq!(all(&log, P).len(), 2);
}

#[test]
fn without_f08_a_failed_sync_is_believed() {
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, without(Finding::F08));
    add(&mut log, P, 1, b"lost");
    files.set_faults(Faults { fail_sync: Some(0), ..Faults::default() });
    assert_eq!(log.sync().expect("claims to sync")[0].1.get(), at(1, 1));
    let (log, _) = open(&files.crash(None));
    assert_eq!(log.end(P), None);
}

#[test]
fn without_f09_nothing_is_synced() {
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, without(Finding::F09));
    add(&mut log, P, 1, b"lost");
    assert_eq!(log.sync().expect("claims to sync")[0].1.get(), at(1, 1));
    let (log, _) = open(&files.crash(None));
    assert_eq!(log.end(P), None);
}

/// Three synced entries, the second of them damaged.
fn damaged_in_the_middle() -> MemFiles {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    for payload in [b"the first", b"in middle", b"the third"] {
        add(&mut log, P, 1, payload);
        log.sync().expect("syncs");
    }
    let name = "00000001.log";
    let contents = files.contents(name);
    let at = contents.windows(9).position(|window| window == b"in middle").expect("is there");
    files.flip(name, at as u64, 1);
    files
}

#[test]
fn without_f10_damage_is_taken_for_a_torn_end() {
    let files = damaged_in_the_middle();
    let (_, recovered) = open_with(&files.copy(), without(Finding::F10));
    assert!(recovered.damage.is_empty() && recovered.torn_bytes > 0);
    assert_eq!(recovered.partitions[&P].end, at(1, 1));
    assert!(recovered.partitions[&P].damaged.is_none());
    let (_, recovered) = open(&files);
    assert_eq!(recovered.partitions[&P].end, at(1, 1));
    assert!(recovered.partitions[&P].damaged.is_some());
}

#[test]
fn without_f20_a_failed_append_leaves_a_hole() {
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, without(Finding::F20));
    add(&mut log, P, 1, b"before");
    files.set_faults(Faults { fail_write: Some(0), ..Faults::default() });
    let entry = next(&log, P, 1, b"fails");
    assert!(log.append(&[Record::Entry(entry)]).is_err());
    add(&mut log, P, 1, b"after");
    log.sync().expect("syncs");
    let (log, _) = open(&files.crash(None));
    assert_eq!(all(&log, P).len(), 1, "what was synced behind the hole is lost");
}

#[test]
fn without_pr18_no_mark_is_written() {
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, without(Finding::Pr18));
    add(&mut log, P, 1, b"one");
    log.sync().expect("syncs");
    let frames = log.stats().frames;
    log.mark().expect("does nothing");
    assert_eq!(log.stats().frames, frames);
}

#[test]
fn truncation_gives_segments_back_and_keeps_promises_and_values() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    log.append(&[
        Record::Promise { partition: P, epoch: Epoch(7) },
        Record::Custom { partition: P, key: 2, value: Bytes::from_static(b"kept") },
        Record::Promise { partition: Q, epoch: Epoch(5) },
    ])
    .expect("appends");
    for _ in 0..200 {
        add(&mut log, P, 1, &[1; 500]);
    }
    add(&mut log, Q, 1, b"q");
    log.sync().expect("syncs");
    let (segments, bytes) = (files.list().expect("lists").len(), log.bytes());
    assert!(segments > 6);
    log.trim(P, Lsn(190)).expect("truncates");
    assert_eq!(log.reclaim().expect("reclaims"), 0, "a truncation that is not synced gives nothing back");
    log.sync().expect("syncs");
    assert!(log.reclaim().expect("reclaims") >= 5);
    log.validate();
    assert!(log.bytes() < bytes / 4);
    assert!(files.list().expect("lists").len() <= 5);
    let (log, recovered) = open(&files.crash(None));
    assert!(recovered.damage.is_empty());
    let p = &recovered.partitions[&P];
    assert_eq!((p.base, p.end, p.promised), (at(1, 189), at(1, 200), Epoch(7)));
    assert_eq!(p.custom[&2], Bytes::from_static(b"kept"));
    assert_eq!(recovered.partitions[&Q].promised, Epoch(5));
    assert_eq!((all(&log, P).len(), all(&log, Q).len()), (11, 1));
}

#[test]
fn frames_of_a_recycled_file_are_never_believed() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    // The same sizes in every round put old frames exactly where new ones could be.
    for round in 0..12 {
        for _ in 0..30 {
            add(&mut log, P, 1, &[round; 400]);
        }
        log.sync().expect("syncs");
        let end = log.end(P).expect("known").0;
        log.trim(P, Lsn(end.lsn.0 - 5)).expect("truncates");
        log.sync().expect("syncs");
        log.reclaim().expect("reclaims");
        let (opened, recovered) = open(&files.crash(None));
        assert!(recovered.damage.is_empty() && recovered.torn_bytes == 0, "round {round}");
        assert_eq!(opened.end(P).expect("known").0, end);
        assert_eq!(all(&opened, P), all(&log, P));
    }
    assert!(log.stats().ready_segments >= 3, "{:?}", log.stats());
}

#[test]
fn a_cut_tail_does_not_come_back_behind_what_replaced_it() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"kept");
    log.sync().expect("syncs");
    for _ in 0..4 {
        add(&mut log, P, 1, b"torn");
    }
    // The first of the four frames is lost, the others are whole.
    let contents = files.contents("00000001.log");
    let at_byte = contents.windows(4).position(|window| window == b"torn").expect("is there");
    files.flip("00000001.log", at_byte as u64, 1);
    let (mut log, recovered) = open(&files);
    assert!(recovered.torn_bytes > 0 && recovered.damage.is_empty());
    assert!(recovered.partitions[&P].torn_end);
    assert_eq!(log.end(P).expect("known").0, at(1, 1));
    add(&mut log, P, 1, b"torn");
    log.sync().expect("syncs");
    let (_, recovered) = open(&files);
    assert!(recovered.damage.is_empty());
    assert_eq!(recovered.partitions[&P].end, at(1, 2));
}

#[test]
fn pr18_a_torn_end_is_told_until_the_owner_has_what_it_may_have_lost() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"kept");
    log.sync().expect("syncs");
    add(&mut log, P, 1, b"torn");
    let contents = files.contents("00000001.log");
    let at_byte = contents.windows(4).position(|window| window == b"torn").expect("is there");
    files.flip("00000001.log", at_byte as u64, 1);
    // Lives that end before anybody heard of them.
    for incarnation in 0..3 {
        let (_, recovered) = open(&files);
        assert!(recovered.partitions[&P].torn_end, "life {incarnation}");
        assert_eq!((recovered.torn_bytes > 0, recovered.partitions[&P].custom.len()), (incarnation == 0, 0));
    }
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"sent again");
    log.append(&[Record::Custom { partition: P, key: TORN, value: Bytes::new() }]).expect("appends");
    log.sync().expect("syncs");
    let (_, recovered) = open(&files);
    assert!(!recovered.partitions[&P].torn_end);
}

/// All of a partition is in the last batch, which was synced, and rots before its mark is written.
#[test]
fn pr18_a_torn_end_is_told_of_a_partition_too_of_which_nothing_else_was_there() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"kept");
    log.sync().expect("syncs");
    add(&mut log, Q, 1, b"torn");
    log.sync().expect("syncs");
    let contents = files.contents("00000001.log");
    let at_byte = contents.windows(4).position(|window| window == b"torn").expect("is there");
    files.flip("00000001.log", at_byte as u64, 1);
    let (log, recovered) = open_for(&files, &[P, Q]);
    assert!(recovered.torn_bytes > 0 && !recovered.partitions.contains_key(&Q));
    assert!(recovered.may_have_torn(Q) && !recovered.may_have_torn(P), "P is known, and whole");
    drop(log);
    for incarnation in 0..2 {
        let (_, recovered) = open(&files);
        let found = &recovered.partitions[&Q];
        assert!(found.torn_end && found.damaged.is_none(), "life {incarnation}");
        assert!(!recovered.partitions[&P].torn_end && !recovered.may_have_torn(Q));
    }
    let (mut log, _) = open(&files);
    add(&mut log, Q, 1, b"sent again");
    log.append(&[Record::Custom { partition: Q, key: TORN, value: Bytes::new() }]).expect("appends");
    log.sync().expect("syncs");
    let (log, recovered) = open(&files);
    assert!(!recovered.partitions[&Q].torn_end);
    assert_eq!(log.end(Q).expect("known").0, at(1, 1));
}

#[test]
fn a_spare_made_ahead_is_used() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    assert!(log.wants_spare().is_none());
    while log.stats().segments == 0 {
        if let Some(order) = log.wants_spare() {
            assert!(log.wants_spare().is_none(), "one at a time");
            log.add_spare(order.make());
        }
        add(&mut log, P, 1, &[0; 300]);
    }
    assert_eq!(log.stats().ready_segments, 1);
    log.sync().expect("syncs");
    let (log, _) = open(&files.crash(None));
    assert!(all(&log, P).len() > 10);
    drop(log);
    let files: Arc<dyn Files> = Arc::new(files);
    assert!(files.list().expect("lists").iter().all(|name| !name.ends_with(".new")));
}
