//! What the LSM engine takes for granted about the crate `lsm-tree` in exactly this version, traps included.
//! A new version of the crate is taken in only when this file has been read against it.

use lsm_tree::compaction::{Leveled, MoveDown};
use lsm_tree::{AbstractTree, AnyTree, Config, Guard, SequenceNumberCounter};
use std::path::Path;
use std::sync::Arc;

const BASE: u64 = 1 << 40;
const PRUNE_BELOW: u64 = 1 << 39;

fn open(dir: &Path, stamps: SequenceNumberCounter) -> AnyTree {
    Config::new(dir, stamps, SequenceNumberCounter::default()).open().unwrap()
}

fn fresh() -> (tempfile::TempDir, AnyTree) {
    let dir = tempfile::tempdir().unwrap();
    let tree = open(dir.path(), SequenceNumberCounter::default());
    (dir, tree)
}

fn flush(tree: &AnyTree) {
    flush_and_prune(tree, PRUNE_BELOW);
}

fn flush_and_prune(tree: &AnyTree, below: u64) {
    let memtable = tree.rotate_memtable().unwrap();
    let (tables, _) = tree.flush_to_tables(memtable.iter().map(Ok)).unwrap().unwrap();
    tree.register_tables(&tables, None, None, &[memtable.id()], below).unwrap();
}

fn merge(tree: &AnyTree, threshold: u64) {
    for _ in 0..4 {
        tree.compact(Arc::new(Leveled::default()), threshold).unwrap();
    }
}

fn value(tree: &AnyTree, key: &str, sequence: u64) -> Option<String> {
    tree.get(key, sequence).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

/// Writes `versions` of one key, each into a file of its own, with a second key around so that files overlap.
fn in_files(tree: &AnyTree, versions: &[u64]) {
    for lsn in versions {
        tree.insert("k", lsn.to_string(), BASE + lsn);
        tree.insert("a", "around", BASE + lsn);
        tree.insert("z", "around", BASE + lsn);
        flush(tree);
    }
}

#[test]
fn reads_are_exclusive_and_zero_sees_nothing() {
    let (_dir, tree) = fresh();
    tree.insert("k", "seven", BASE + 7);
    for _ in 0..2 {
        assert_eq!(value(&tree, "k", BASE + 7), None);
        assert_eq!(value(&tree, "k", BASE + 8), Some("seven".into()));
        assert_eq!(value(&tree, "k", (1 << 63) - 1), Some("seven".into()));
        assert_eq!(value(&tree, "k", 0), None);
        assert_eq!(tree.range::<&str, _>(.., BASE + 7, None).count(), 0);
        let (key, _) = tree.range::<&str, _>(.., BASE + 8, None).next().unwrap().into_inner().unwrap();
        assert_eq!(&key[..], b"k");
        if tree.table_count() == 0 {
            flush(&tree);
        }
    }
    assert_eq!(tree.get_highest_persisted_seqno(), Some(BASE + 7));
}

#[test]
fn a_rotation_of_nothing_gives_nothing() {
    let (_dir, tree) = fresh();
    assert!(tree.rotate_memtable().is_none());
    tree.insert("k", "v", BASE + 1);
    assert_eq!(tree.rotate_memtable().unwrap().get_highest_seqno(), Some(BASE + 1));
    assert_eq!(tree.sealed_memtable_count(), 1);
}

#[test]
fn a_flush_keeps_every_version_and_tombstone() {
    let (_dir, tree) = fresh();
    tree.insert("k", "one", BASE + 1);
    tree.remove("k", BASE + 2);
    tree.insert("k", "three", BASE + 3);
    flush(&tree);
    let seen = [1, 2, 3].map(|lsn| value(&tree, "k", BASE + lsn + 1));
    assert_eq!(seen, [Some("one".into()), None, Some("three".into())]);
}

#[test]
fn every_file_operation_draws_a_stamp_and_prunes_the_list() {
    let stamps = SequenceNumberCounter::default();
    let dir = tempfile::tempdir().unwrap();
    let tree = open(dir.path(), stamps.clone());
    in_files(&tree, &[1, 2, 3, 4, 5]);
    assert_eq!(stamps.get(), 5);
    assert_eq!(tree.version_free_list_len(), 0);
    merge(&tree, 0);
    assert!(stamps.get() > 5 && stamps.get() < PRUNE_BELOW);
    assert!(tree.version_free_list_len() > 0, "a threshold of 0 prunes nothing");
    in_files(&tree, &[6]);
    assert_eq!(tree.version_free_list_len(), 0);
}

/// PR-68: with a counter that stands at the LSNs, flushes and merges hide rows that are written afterwards.
#[test]
fn a_stamp_above_a_read_hides_newer_rows_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let tree = open(dir.path(), SequenceNumberCounter::new(10));
    for lsn in 1..=5 {
        tree.insert("k", lsn.to_string(), lsn);
        // Nothing is pruned here: without the older versions the read below panics instead.
        flush_and_prune(&tree, 0);
    }
    tree.insert("n", "twelve", 12);
    tree.rotate_memtable();
    tree.insert("n", "thirteen", 13);
    assert_eq!(value(&tree, "n", 14), Some("twelve".into()), "the newest version is stamped 14");
    assert_eq!(value(&tree, "n", 15), Some("thirteen".into()));
}

/// PR-69: the version at 5 is needed by a reader at 50, and is dropped under a threshold of 49.
#[test]
fn the_collector_drops_what_a_reader_between_two_versions_needs() {
    let (_dir, tree) = fresh();
    in_files(&tree, &[5, 60, 61, 62]);
    assert_eq!(value(&tree, "k", BASE + 51), Some("5".into()));
    merge(&tree, BASE + 49);
    assert_eq!(value(&tree, "k", BASE + 51), None);
}

#[test]
fn a_threshold_of_zero_keeps_every_version() {
    let (_dir, tree) = fresh();
    in_files(&tree, &[5, 60, 61, 62]);
    merge(&tree, 0);
    assert_eq!(tree.level_table_count(0), Some(0));
    for lsn in [5, 60, 61, 62] {
        assert_eq!(value(&tree, "k", BASE + lsn + 1), Some(lsn.to_string()));
    }
}

#[test]
fn a_merge_does_not_change_sequence_numbers() {
    let (_dir, tree) = fresh();
    in_files(&tree, &[5, 60, 61, 62]);
    merge(&tree, BASE + 62);
    assert_eq!(value(&tree, "k", BASE + 62), None);
    assert_eq!(value(&tree, "k", BASE + 63), Some("62".into()));
}

/// PR-72: why `Tree::open` looks before the crate does.
#[test]
fn opening_deletes_what_is_not_named_and_makes_what_is_missing() {
    let (dir, tree) = fresh();
    in_files(&tree, &[1]);
    drop(tree);
    std::fs::write(dir.path().join("tables/77"), b"staged").unwrap();
    drop(open(dir.path(), SequenceNumberCounter::default()));
    assert!(!dir.path().join("tables/77").exists());
    std::fs::remove_file(dir.path().join("current")).unwrap();
    let tree = open(dir.path(), SequenceNumberCounter::default());
    assert_eq!(tree.table_count(), 0, "an empty tree without a word");
}

/// A level above an empty one goes down whole, in its order. Left to the crate's own strategy, a debug build
/// panics.
#[test]
fn a_level_moves_down_into_an_empty_one_as_it_is() {
    let (_dir, tree) = fresh();
    for from in [5, 1, 3] {
        tree.insert(format!("k{from}"), "v", BASE + from);
        tree.insert(format!("k{}", from + 1), "v", BASE + from);
        flush(&tree);
    }
    let files = |level: usize| tree.level_table_count(level).unwrap();
    assert_eq!(
        (files(0), tree.current_version().level(0).unwrap().run_count()),
        (3, 1),
        "they do not overlap"
    );
    for (from, to) in [(0, 4), (4, 5), (5, 6)] {
        tree.compact(Arc::new(MoveDown(from, to)), 0).unwrap();
        assert_eq!((files(from.into()), files(to.into())), (0, 3));
        for key in 1..=6 {
            assert_eq!(value(&tree, &format!("k{key}"), BASE + 9), Some("v".into()));
        }
    }
}
