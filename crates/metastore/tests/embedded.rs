//! The embedded metastore: what a crash, a torn end, damage and a failing disk do to it.

use std::io;
use understudy_metastore::{Changes, Compare, Embedded, FileStore, MetaError, Metastore, Store, Txn};

/// A disk in memory that can fail and that knows what was synced.
#[derive(Clone, Debug, Default)]
struct Disk {
    bytes: Option<Vec<u8>>,
    synced: usize,
    fail_append: bool,
    /// After so many replacements the next ones fail.
    replaces_left: Option<usize>,
    replaced: usize,
}

impl Disk {
    /// As the disk is after a power failure that keeps `extra` unsynced bytes.
    fn crash(&self, extra: usize) -> Disk {
        let bytes = self
            .bytes
            .as_ref()
            .map(|bytes| bytes[..self.synced.saturating_add(extra).min(bytes.len())].to_vec());
        Disk { bytes, synced: self.synced, ..Disk::default() }
    }
}

impl Store for Disk {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.bytes.clone())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let all = self.bytes.get_or_insert_default();
        all.extend_from_slice(bytes);
        if self.fail_append {
            return Err(io::Error::other("the disk failed"));
        }
        self.synced = all.len();
        Ok(())
    }

    fn hint(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.get_or_insert_default().extend_from_slice(bytes);
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.replaces_left {
            Some(0) => return Err(io::Error::other("the disk failed")),
            Some(left) => *left -= 1,
            None => {}
        }
        self.replaced += 1;
        self.synced = bytes.len();
        self.bytes = Some(bytes.to_vec());
        Ok(())
    }
}

fn cas(key: &str, revision: u64, value: &str) -> Txn {
    Txn {
        compares: vec![Compare { key: key.into(), revision }],
        puts: vec![(key.into(), value.into())],
        ..Txn::default()
    }
}

fn values<M: Metastore>(store: &mut M) -> Vec<(String, String)> {
    let entries = store.range("").unwrap().entries;
    entries.into_iter().map(|entry| (entry.key, String::from_utf8(entry.value).unwrap())).collect()
}

#[test]
fn the_loser_of_a_race_reads_the_winner_in_the_same_transaction() {
    let mut store = Embedded::open(Disk::default()).unwrap();
    assert!(store.txn(cas("a", 0, "1")).unwrap().succeeded);
    let lost = store.txn(cas("a", 0, "2")).unwrap();
    assert!(!lost.succeeded);
    assert_eq!(lost.current, [("a".to_string(), Some((1, b"1".to_vec())))]);
    let won = store.txn(cas("a", 1, "3")).unwrap();
    assert_eq!((won.succeeded, won.revision), (true, 2));
    assert_eq!(won.current, [("a".to_string(), Some((2, b"3".to_vec())))]);
}

#[test]
fn what_was_answered_is_there_after_a_crash() {
    let mut store = Embedded::open(Disk::default()).unwrap();
    for number in 0..20 {
        store.txn(cas(&format!("k{number:02}"), 0, "x")).unwrap();
        let mut again = Embedded::open(store.store().crash(0)).unwrap();
        assert_eq!(values(&mut again).len(), number + 1);
        assert_eq!(again.range("").unwrap().revision, number as u64 + 1);
    }
}

#[test]
fn a_torn_end_is_cut_at_every_byte() {
    let mut store = Embedded::open(Disk::default()).unwrap();
    store.txn(cas("a", 0, "1")).unwrap();
    let before = store.store().crash(usize::MAX);
    let kept = before.bytes.as_ref().unwrap().len();
    store.txn(cas("b", 0, "2")).unwrap();
    let whole = store.store().bytes.clone().unwrap();
    let answered = store.store().synced;
    for cut in kept..whole.len() {
        let disk = Disk { bytes: Some(whole[..cut].to_vec()), ..Disk::default() };
        let mut again = Embedded::open(disk).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        assert_eq!(values(&mut again).len(), if cut < answered { 1 } else { 2 }, "cut at {cut}");
        // The cut end is gone for good: what is written next is found again.
        again.txn(cas("c", 0, "3")).unwrap();
        let mut third = Embedded::open(again.store().crash(0)).unwrap();
        assert!(values(&mut third).contains(&("c".into(), "3".into())));
    }
}

#[test]
fn damage_before_the_synced_mark_is_reported_never_cut() {
    let mut store = Embedded::open(Disk::default()).unwrap();
    for key in ["a", "b", "c"] {
        store.txn(cas(key, 0, "value")).unwrap();
    }
    let sound = store.into_store().bytes.unwrap();
    let mark = sound.len() - 16;
    for at in 0..mark {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x20;
        let disk = Disk { bytes: Some(bytes), ..Disk::default() };
        match Embedded::open(disk) {
            Err(MetaError::Damaged(_)) => {}
            // A flipped bit inside the last mark leaves everything readable.
            Ok(mut store) => assert_eq!(values(&mut store).len(), 3, "byte {at}"),
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
}

#[test]
fn f08_a_failed_fsync_poisons_and_its_outcome_is_unknown() {
    let mut store = Embedded::open(Disk { fail_append: false, ..Disk::default() }).unwrap();
    store.txn(cas("a", 0, "1")).unwrap();
    let mut disk = store.into_store();
    disk.fail_append = true;
    let mut store = Embedded::open(disk).unwrap();
    assert!(matches!(store.txn(cas("b", 0, "2")), Err(MetaError::Unknown(_))));
    assert!(matches!(store.txn(cas("b", 0, "2")), Err(MetaError::Poisoned(_))));
    assert!(matches!(store.range(""), Err(MetaError::Poisoned(_))));
    assert!(matches!(store.changes_since(0), Err(MetaError::Poisoned(_))));
}

#[test]
fn f08_what_is_read_after_a_failed_fsync_is_made_durable_before_it_is_told() {
    let mut store = Embedded::open(Disk::default()).unwrap();
    store.txn(cas("a", 0, "1")).unwrap();
    let mut disk = store.into_store();
    disk.fail_append = true;
    let mut store = Embedded::open(disk).unwrap();
    assert!(matches!(store.txn(cas("b", 0, "2")), Err(MetaError::Unknown(_))));
    // The next process reads what the failed write left in the system's memory.
    let mut again = Embedded::open(store.into_store()).unwrap();
    assert_eq!(values(&mut again).len(), 2);
    let mut after = Embedded::open(again.into_store().crash(0)).unwrap();
    assert_eq!(values(&mut after).len(), 2, "told, and then lost with the power");
}

#[test]
fn the_journal_is_compacted_and_keeps_its_revisions() {
    let mut store = Embedded::open(Disk::default()).unwrap();
    let value = "x".repeat(10_000);
    let mut revision = 0;
    for _ in 0..400 {
        revision = store.txn(cas("a", revision, &value)).unwrap().revision;
    }
    assert!(store.store().replaced > 2, "never compacted");
    assert!(store.store().bytes.as_ref().unwrap().len() < 2 << 20);
    let mut again = Embedded::open(store.store().crash(0)).unwrap();
    assert_eq!(again.range("a").unwrap().entries[0].revision, 400);
}

#[test]
fn a_compaction_that_fails_stops_the_store_after_the_answer() {
    let mut store = Embedded::open(Disk::default()).unwrap();
    let value = "x".repeat(600_000);
    store.txn(cas("a", 0, &value)).unwrap();
    let mut disk = store.into_store();
    // One when it is opened.
    disk.replaces_left = Some(1);
    let mut store = Embedded::open(disk).unwrap();
    let mut revision = 1;
    let stopped = (0..10).any(|_| match store.txn(cas("a", revision, &value)) {
        Ok(outcome) => {
            revision = outcome.revision;
            false
        }
        Err(MetaError::Poisoned(_)) => true,
        Err(error) => panic!("{error}"),
    });
    assert!(stopped);
    let mut again = Embedded::open(store.store().crash(0)).unwrap();
    assert_eq!(again.range("").unwrap().revision, revision);
}

#[test]
fn changes_are_told_in_order_and_reloaded_after_a_restart() {
    let mut store = Embedded::open(Disk::default()).unwrap();
    store.txn(cas("a", 0, "1")).unwrap();
    store.txn(Txn { deletes: vec!["a".into()], ..cas("b", 0, "2") }).unwrap();
    let Changes::Since { revision, changes } = store.changes_since(1).unwrap() else {
        panic!("history is there")
    };
    assert_eq!(revision, 2);
    assert_eq!(changes.len(), 2);
    assert!(changes.iter().any(|change| change.key == "a" && change.value.is_none()));
    let mut again = Embedded::open(store.into_store()).unwrap();
    assert_eq!(again.changes_since(1).unwrap(), Changes::Reload);
    assert_eq!(again.changes_since(2).unwrap(), Changes::Since { revision: 2, changes: vec![] });
}

#[test]
fn a_real_file_survives_being_reopened_and_is_locked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metastore");
    let mut store = Embedded::open(FileStore::open(&path).unwrap()).unwrap();
    store.txn(cas("a", 0, "1")).unwrap();
    assert_eq!(FileStore::open(&path).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    drop(store);
    let mut store = Embedded::open(FileStore::open(&path).unwrap()).unwrap();
    assert_eq!(values(&mut store), [("a".to_string(), "1".to_string())]);
    store.txn(cas("a", 1, "2")).unwrap();
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"\xb5rec half a record");
    std::fs::write(&path, bytes).unwrap();
    let mut store = Embedded::open(FileStore::open(&path).unwrap()).unwrap();
    assert_eq!(values(&mut store), [("a".to_string(), "2".to_string())]);
    drop(store);
    std::fs::write(&path, b"something else").unwrap();
    assert!(matches!(Embedded::open(FileStore::open(&path).unwrap()), Err(MetaError::Damaged(_))));
}

#[test]
fn a_transaction_that_writes_a_key_twice_is_refused() {
    let mut store = Embedded::open(Disk::default()).unwrap();
    let txn = Txn { deletes: vec!["a".into()], ..cas("a", 0, "1") };
    assert!(matches!(store.txn(txn), Err(MetaError::Invalid(_))));
    assert!(store.txn(cas("a", 0, "1")).unwrap().succeeded);
}
