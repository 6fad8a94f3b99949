//! Every byte of a small log is damaged, and every length is cut: what was synced is there or reported,
//! nothing is invented.

mod common;
use bytes::Bytes;
use common::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Epoch, Lsn, PartitionId};
use understudy_wal::faulty::MemFiles;
use understudy_wal::{Files, Log, LogError, Options, Owner, Record, Recovered, RecoveredPartition};
use wire::entry::Entry;

/// A log and what its owner knows of it.
struct Sample {
    files: MemFiles,
    options: Options,
    /// As an undisturbed opening finds it.
    truth: BTreeMap<PartitionId, RecoveredPartition>,
    entries: BTreeMap<PartitionId, Vec<Entry>>,
    /// Every entry ever written, also those that were cut.
    written: Vec<Entry>,
    /// Synced ends, if they are not the whole truth.
    synced: BTreeMap<PartitionId, Lsn>,
}

/// Two partitions with a cut, a base, promises and values, in several lives.
fn sample(segment_bytes: u64, marked: bool, unsynced: bool) -> Sample {
    let options = Options { segment_bytes, ..small() };
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, options.clone());
    let mut written = Vec::new();
    for i in 0..6u8 {
        written.push(add(&mut log, P, 1, &[i; 20]));
        written.push(add(&mut log, Q, 1, &[i; 30]));
    }
    log.append(&[Record::Promise { partition: P, epoch: Epoch(2) }]).expect("appends");
    log.sync().expect("syncs");
    log.append(&[Record::Truncate { partition: P, to: at(1, 4) }]).expect("appends");
    written.push(add(&mut log, P, 2, b"after the cut"));
    log.append(&[Record::Custom { partition: Q, key: 3, value: Bytes::from_static(b"three") }])
        .expect("appends");
    log.sync().expect("syncs");
    drop(log);
    let (mut log, _) = open_with(&files, options.clone());
    written.push(add(&mut log, P, 3, b"second life"));
    log.append(&[Record::Trim { partition: Q, below: Lsn(3) }]).expect("appends");
    written.push(add(&mut log, Q, 3, b"last"));
    log.sync().expect("syncs");
    let synced = [P, Q].map(|id| (id, log.end(id).expect("known").0.lsn)).into();
    if marked {
        log.mark().expect("marks");
    }
    if unsynced {
        written.push(add(&mut log, Q, 3, b"not synced"));
    }
    drop(log);
    let (log, recovered) = open_with(&files.copy(), options.clone());
    assert!(recovered.damage.is_empty());
    let entries = [P, Q].map(|id| (id, all(&log, id))).into();
    Sample { files, options, truth: recovered.partitions, entries, written, synced }
}

/// One partition of which so many entries were given back with their segments, just before the end.
fn given_back(count: u8) -> Sample {
    let options = Options { segment_bytes: 1024, ..small() };
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, options.clone());
    let mut written: Vec<Entry> = (0..count).map(|i| add(&mut log, P, 1, &[i; 20])).collect();
    written.push(add(&mut log, P, 1, b"kept"));
    log.sync().expect("syncs");
    log.trim(P, Lsn(u64::from(count))).expect("trims");
    log.sync().expect("syncs");
    log.reclaim().expect("gives back");
    log.mark().expect("marks");
    drop(log);
    let (log, recovered) = open_with(&files.copy(), options.clone());
    assert!(recovered.damage.is_empty());
    let entries = [(P, all(&log, P))].into();
    let synced = [(P, recovered.partitions[&P].end.lsn)].into();
    Sample { files, options, truth: recovered.partitions, entries, written, synced }
}

impl Sample {
    /// Opens a damaged copy and checks the promises.
    fn check(&self, files: &MemFiles, what: &str) -> Recovered {
        let opened = Log::open(Arc::new(files.clone()), self.options.clone());
        if let Err(LogError::Missing { .. }) = &opened {
            let names = self.files.list().expect("lists");
            assert_eq!(files.list().expect("lists"), names, "{what}: what is refused is left as it is");
            return Recovered { unknown_damaged: true, ..Recovered::default() };
        }
        let (log, recovered) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        log.validate();
        for (id, truth) in &self.truth {
            let Some(found) = recovered.partitions.get(id) else {
                assert!(recovered.unknown_damaged || recovered.fresh, "{what}: {id} is gone: {recovered:?}");
                continue;
            };
            let entries = all(&log, *id);
            for entry in &entries {
                assert!(self.written.contains(entry), "{what}: invented {}", entry.at());
            }
            if found.damaged.is_some() {
                assert!(!recovered.damage.is_empty(), "{what}");
                continue;
            }
            let truth_entries = &self.entries[id];
            if found.torn_end {
                let kept = entries.last().map_or(found.base.lsn, Entry::lsn);
                assert!(kept >= self.synced[id], "{what}: {id} cut to {kept}");
                assert_eq!(entries[..], truth_entries[..entries.len()], "{what}: {id}");
            } else {
                assert_eq!(found, truth, "{what}: {id}");
                assert_eq!(&entries, truth_entries, "{what}: {id}");
            }
        }
        recovered
    }

    fn used(&self, name: &str) -> u64 {
        let contents = self.files.contents(name);
        contents.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
    }
}

#[test]
fn every_flipped_byte_is_reported_or_harmless() {
    for segment_bytes in [1024, 16 * 1024] {
        let sample = sample(segment_bytes, true, true);
        let mut reported = 0;
        for name in sample.files.list().expect("lists") {
            let contents = sample.files.contents(&name);
            for at in 0..sample.used(&name) + 16 {
                // The large segments differ in the padding before marks; a part of it will do.
                if segment_bytes > 1024 && contents[at as usize] == 0 && at % 32 != 0 {
                    continue;
                }
                let files = sample.files.copy();
                files.flip(&name, at, 1 << (at % 8));
                let recovered = sample.check(&files, &format!("{name} byte {at}"));
                reported += usize::from(!recovered.damage.is_empty());
                // What was found is said again by the next opening, or was settled by the snapshot of this
                // one.
                let (_, again) = open_with(&files, sample.options.clone());
                assert_eq!(again.partitions.len(), recovered.partitions.len(), "{name} {at}");
                for (id, partition) in &recovered.partitions {
                    assert_eq!(
                        again.partitions[id].damaged.is_some(),
                        partition.damaged.is_some(),
                        "{name} {at}"
                    );
                    assert_eq!(again.partitions[id].end, partition.end, "{name} {at}");
                }
            }
        }
        assert!(reported > 500, "{reported} of the damages were reported");
    }
}

#[test]
fn pr164_damage_behind_a_gap_of_what_was_given_back_is_reported() {
    let mut reported = 0;
    for count in 6..18 {
        let sample = given_back(count);
        for name in sample.files.list().expect("lists") {
            for at in 0..sample.used(&name) {
                let files = sample.files.copy();
                files.flip(&name, at, 1 << (at % 8));
                let recovered = sample.check(&files, &format!("{count} given back, {name} byte {at}"));
                reported += usize::from(!recovered.damage.is_empty());
            }
        }
    }
    assert!(reported > 500, "{reported} of the damages were reported");
}

#[test]
fn every_cut_file_is_reported_or_harmless() {
    for segment_bytes in [1024, 16 * 1024] {
        let sample = sample(segment_bytes, true, true);
        for name in sample.files.list().expect("lists") {
            let used = sample.used(&name);
            let contents = sample.files.contents(&name);
            // In the padding before marks every length is like the next.
            let telling =
                |at: &u64| segment_bytes == 1024 || contents[*at as usize - 1] != 0 || at.is_multiple_of(64);
            let lengths = (1..used).filter(telling).chain((used..segment_bytes).step_by(512));
            for length in lengths {
                let files = sample.files.copy();
                files.shorten(&name, length);
                sample.check(&files, &format!("{name} cut to {length}"));
            }
        }
    }
}

#[test]
fn every_lost_block_of_a_marked_log_is_reported() {
    let sample = sample(16 * 1024, true, false);
    for name in sample.files.list().expect("lists") {
        for block in 0..sample.used(&name) / 512 + 1 {
            let files = sample.files.copy();
            let contents = files.contents(&name);
            for at in block * 512..(block + 1) * 512 {
                files.flip(&name, at, contents[at as usize]);
            }
            sample.check(&files, &format!("{name} block {block}"));
        }
    }
}

#[test]
fn r10_every_page_that_cannot_be_read_is_reported_or_harmless() {
    // Entries that begin and end in all parts of a page.
    let options = Options { segment_bytes: 64 * 1024, max_bytes: 4 << 20, ..small() };
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, options.clone());
    let mut written = Vec::new();
    for i in 0..90u64 {
        let id = if i % 3 == 0 { Q } else { P };
        written.push(add(&mut log, id, 1, &vec![i as u8; 700 + 97 * (i as usize % 9)]));
        log.sync().expect("syncs");
    }
    log.mark().expect("marks");
    let synced: BTreeMap<_, _> = [P, Q].map(|id| (id, log.end(id).expect("known").0.lsn)).into();
    drop(log);
    let (log, recovered) = open_with(&files.copy(), options.clone());
    let entries = [P, Q].map(|id| (id, all(&log, id))).into();
    let sample = Sample { files, options, truth: recovered.partitions, entries, written, synced };
    let (mut pages, mut harmless) = (0, 0);
    for name in sample.files.list().expect("lists") {
        let length = sample.files.contents(&name).len() as u64;
        for page in 0..length.div_ceil(4096) {
            let files = sample.files.copy();
            files.ruin(&name, page);
            let what = format!("{name} page {page}");
            let recovered = sample.check(&files, &what);
            pages += 1;
            if recovered.unknown_damaged && recovered.partitions.is_empty() {
                continue;
            }
            let damaged = recovered.partitions.values().any(|found| found.damaged.is_some());
            harmless += usize::from(!damaged);
            assert!(
                damaged || page * 4096 >= sample.used(&name) || name == "00000001.log",
                "{what}: {recovered:?}"
            );
            assert!(recovered.partitions.values().all(|found| !found.torn_end), "{what} was synced");
            // The log goes on, and never writes where it cannot read.
            let (mut log, again) = open_with(&files, sample.options.clone());
            let is_damaged = |found: &RecoveredPartition| found.damaged.is_some();
            assert_eq!(again.partitions.values().any(is_damaged), damaged, "{what}");
            for i in 0..80 {
                add(&mut log, P, 2, &[i; 900]);
                log.sync().unwrap_or_else(|error| panic!("{what}: {error}"));
            }
        }
    }
    assert!(pages > 30 && harmless > 1 && harmless < pages / 2, "{harmless} of {pages} did no harm");
}

#[test]
fn r10_a_disk_that_reads_nothing_any_more_is_not_tried_for_ever() {
    let sample = sample(16 * 1024, true, false);
    let files = sample.files.copy();
    for name in files.list().expect("lists") {
        (0..4).for_each(|page| files.ruin(&name, page));
    }
    let opened = Log::open(Arc::new(files), sample.options.clone());
    assert!(matches!(opened, Err(LogError::Missing { .. })), "nothing is begun over what was there");
}

#[test]
fn a_lost_segment_is_reported() {
    let sample = sample(1024, true, false);
    let names = sample.files.list().expect("lists");
    assert!(names.len() > 3, "{names:?}");
    for name in &names[..names.len() - 1] {
        let files = sample.files.copy();
        files.remove(name).expect("removes");
        let recovered = sample.check(&files, &format!("without {name}"));
        assert!(recovered.damage.iter().any(|damage| !damage.partitions.is_empty()), "without {name}");
    }
}

#[test]
fn damage_in_a_body_hits_only_the_partitions_of_its_frame() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    add(&mut log, P, 1, b"one");
    add(&mut log, Q, 1, b"one");
    add(&mut log, Q, 1, b"find me here");
    add(&mut log, P, 1, b"two");
    log.sync().expect("syncs");
    log.mark().expect("marks");
    let name = "00000001.log";
    let contents = files.contents(name);
    let at = contents.windows(12).position(|window| window == b"find me here").expect("is there");
    files.flip(name, at as u64, 1);
    let (mut log, recovered) = open(&files);
    assert_eq!(recovered.damage.len(), 1);
    assert_eq!(recovered.damage[0].partitions, vec![Q]);
    assert!(recovered.partitions[&P].damaged.is_none() && recovered.partitions[&P].end == at_lsn(2));
    // A good copy ends the damage for good.
    log.append(&[Record::Base { partition: Q, at: at_lsn(1), crc: 9 }]).expect("appends");
    log.sync().expect("syncs");
    let (_, recovered) = open(&files);
    assert!(recovered.partitions[&Q].damaged.is_none());
    assert_eq!((recovered.partitions[&Q].base, recovered.partitions[&Q].base_crc), (at_lsn(1), 9));
}

fn at_lsn(lsn: u64) -> types::Position {
    at(1, lsn)
}

#[test]
fn a_mark_makes_a_damaged_last_batch_damage() {
    for marked in [false, true] {
        let files = MemFiles::new();
        let (mut log, _) = open(&files);
        add(&mut log, P, 1, b"first");
        log.sync().expect("syncs");
        add(&mut log, P, 1, b"the last batch");
        log.sync().expect("syncs");
        if marked {
            assert!(log.wants_mark());
            log.mark().expect("marks");
            assert!(!log.wants_mark());
        }
        let name = "00000001.log";
        let contents = files.contents(name);
        let at = contents.windows(14).position(|window| window == b"the last batch").expect("is there");
        files.flip(name, at as u64, 1);
        let (_, recovered) = open(&files);
        let p = &recovered.partitions[&P];
        assert_eq!(p.end, at_lsn(1));
        // Without the mark it cannot be told from a torn end; but that one was cut is said.
        assert_eq!((p.damaged.is_some(), p.torn_end), (marked, !marked));
    }
}

#[test]
fn a_last_segment_whose_head_cannot_be_read_is_noticed() {
    let files = MemFiles::new();
    let (mut log, _) = open(&files);
    let names = || files.list().expect("lists").into_iter().filter(|name| name.ends_with(".log")).count();
    while names() < 2 {
        add(&mut log, P, 1, &[7; 500]);
        log.sync().expect("syncs");
    }
    let end = log.end(P).expect("known").0;
    drop(log);
    for at in [0, 20, 40, 60] {
        let damaged = files.copy();
        damaged.flip("00000002.log", at, 1);
        let (log, recovered) = open(&damaged);
        let lost = log.end(P).expect("known").0 < end;
        let told = recovered.partitions[&P].torn_end || recovered.partitions[&P].damaged.is_some();
        assert!(!lost || told, "byte {at}: {recovered:?}");
        assert!(lost, "byte {at}: the segment holds an entry");
    }
}

#[test]
fn pr104_a_write_that_went_astray_is_damage_and_no_torn_end() {
    let options = Options { segment_bytes: 16 * 1024, ..small() };
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, options.clone());
    for i in 0..4 {
        add(&mut log, P, 1, &[i; 40]);
        log.sync().expect("syncs");
    }
    let name = "00000001.log";
    let before = files.contents(name);
    // So large that it covers all batches when it is written to the beginning.
    add(&mut log, P, 1, &[9; 900]);
    log.sync().expect("syncs");
    let (end, after) = (log.end(P).expect("known").0, files.contents(name));
    drop(log);
    let meant = before.iter().zip(&after).position(|(old, new)| old != new).expect("written");
    let behind = after.iter().rposition(|byte| *byte != 0).expect("written") + 1;
    for went in (0..meant).chain([behind + 8, behind + 4096]) {
        let astray = files.copy();
        let file = astray.open(name).expect("opens");
        file.write_at(meant as u64, &vec![0; behind - meant]).expect("writes");
        file.write_at(went as u64, &after[meant..behind]).expect("writes");
        for opening in 0..2 {
            let owner = Owner { begun: true, partitions: &|_| vec![P] };
            let opened = Log::open_for(Arc::new(astray.clone()), options.clone(), &owner);
            if let Err(LogError::Missing { .. }) = opened {
                continue;
            }
            let (log, recovered) = opened.expect("opens");
            assert!(log.end(P).is_none_or(|found| found.0 < end), "it is gone");
            let told =
                recovered.partitions.get(&P).map_or(recovered.unknown_damaged, |p| p.damaged.is_some());
            assert!(told, "written to {went} instead of {meant}, opening {opening}: {recovered:?}");
        }
    }
}

/// What it covers is needed by nobody, as a state that was written behind it shows; and where it should be
/// nothing is.
#[test]
fn pr104_a_write_that_went_astray_over_what_nobody_needs_is_damage_too() {
    let options = Options { segment_bytes: 16 * 1024, ..small() };
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, options.clone());
    for i in 0..4 {
        add(&mut log, P, 1, &[i; 400]);
    }
    log.sync().expect("syncs");
    log.trim(P, log.end(P).expect("known").0.lsn).expect("trims");
    log.sync().expect("syncs");
    drop(log);
    let name = "00000001.log";
    let written = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte != 0).expect("written") + 1;
    let older = written(&files.contents(name));
    // The opening writes a state of all partitions.
    let (mut log, _) = open_with(&files, options.clone());
    log.sync().expect("syncs");
    let before = files.contents(name);
    add(&mut log, P, 1, &[9; 100]);
    log.sync().expect("syncs");
    let (end, after) = (log.end(P).expect("known").0, files.contents(name));
    drop(log);
    let meant = before.iter().zip(&after).position(|(old, new)| old != new).expect("written");
    let behind = written(&after);
    for went in 0..older - (behind - meant) {
        let astray = files.copy();
        let file = astray.open(name).expect("opens");
        file.write_at(meant as u64, &vec![0; behind - meant]).expect("writes");
        file.write_at(went as u64, &after[meant..behind]).expect("writes");
        let (mut log, recovered) = open_with(&astray, options.clone());
        assert!(log.end(P).is_none_or(|found| found.0 < end), "it is gone");
        assert!(recovered.partitions[&P].damaged.is_some(), "written to {went}: {recovered:?}");
        // It is told once: what is written from then on takes its place.
        log.append(&[Record::Repaired { partition: P }]).expect("writes");
        log.sync().expect("syncs");
        drop(log);
        let (_, again) = open_with(&astray, options.clone());
        assert!(again.partitions[&P].damaged.is_none(), "written to {went}, once more: {again:?}");
    }
}

#[test]
fn pr104_frames_that_somebody_stored_in_a_value_are_no_damage() {
    let options = Options { segment_bytes: 64 * 1024, ..small() };
    let files = MemFiles::new();
    let (mut log, _) = open_with(&files, options.clone());
    add(&mut log, P, 1, &[1; 40]);
    log.sync().expect("syncs");
    let name = "00000001.log";
    // A copy of the log itself, one byte off, so that no frame in it lies in its own place.
    let before = files.contents(name);
    let stored = [&[0; 1][..], &before[..400]].concat();
    let kept = log.end(P).expect("known").0;
    // Neither of these was synced: the first is torn, the second is whole and holds the stored frames.
    add(&mut log, P, 1, &[2; 40]);
    add(&mut log, P, 1, &stored);
    drop(log);
    let after = files.contents(name);
    let torn = before.iter().zip(&after).position(|(old, new)| old != new).expect("written");
    files.flip(name, torn as u64 + 60, 1);
    let (log, recovered) = open_with(&files, options);
    assert!(recovered.damage.is_empty() && recovered.torn_bytes > 0, "{recovered:?}");
    assert_eq!(log.end(P).expect("known").0, kept, "a torn end, cut off");
}

/// A file that is used again still has its old frames. A power loss may leave of a new one the header, and
/// behind that what lay there before: another entry of the same length.
#[test]
fn pr144_a_torn_write_does_not_vouch_for_what_lay_there_before() {
    for payload in [&b""[..], b"value"] {
        let files = MemFiles::new();
        let (mut log, _) = open(&files);
        let old = add(&mut log, P, 1, payload);
        add(&mut log, P, 1, payload);
        log.sync().expect("syncs");
        let new = add(&mut log, P, 1, payload);
        drop(log);
        let name = "00000001.log";
        let contents = files.contents(name);
        let written = contents.windows(new.bytes().len()).position(|bytes| bytes == new.bytes());
        let at = written.expect("is there") as u64;
        for (place, (new, old)) in (at..).zip(new.bytes().iter().zip(old.bytes())) {
            files.flip(name, place, new ^ old);
        }
        let (log, recovered) = open(&files);
        let p = &recovered.partitions[&P];
        assert_eq!((p.end, p.torn_end, p.damaged.is_some()), (at_lsn(2), true, false), "{payload:?}");
        assert_eq!(all(&log, P).len(), 2);
    }
}
