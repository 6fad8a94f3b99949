//! The LSM engine alone: rotation and merges under readers, damage, and crashes between its files and its
//! pointer.

mod common;

use bytes::Bytes;
use common::*;
use std::fs;
use std::path::{Path, PathBuf};
use types::engine::Row;
use types::{Engine, EngineError, Lsn, Position, ReadAt};
use understudy_engine::LsmEngine;

/// Executes and publishes the entries `lsns`, which overwrite and delete among ten keys.
fn run(engine: &mut LsmEngine, model: &mut Model, lsns: std::ops::RangeInclusive<u64>) {
    for lsn in lsns {
        let (name, other) = (format!("row {}", lsn % 10), format!("row {}", lsn % 7));
        let change = if lsn % 6 == 0 { delete(&other) } else { put(&other, "other") };
        model.execute(engine, at(lsn), vec![change, put(&name, &format!("value {lsn}"))]);
        engine.publish(Lsn(lsn)).unwrap();
    }
}

fn check(engine: &LsmEngine, model: &Model) {
    for lsn in engine.read_floor().0..=engine.applied().lsn.0 {
        assert_eq!(all(engine, ReadAt::Lsn(Lsn(lsn)), 100), model.rows(Lsn(lsn)), "at {lsn}");
        let name = format!("row {}", lsn % 10);
        let row = model.rows(Lsn(lsn)).into_iter().find(|row| row.key == key(&name));
        let found = engine.get(&key(&name), ReadAt::Lsn(Lsn(lsn))).unwrap();
        assert_eq!(found, row.map(|row| (row.lsn, row.value)));
    }
}

/// PR-68: flushes and merges draw stamps of their own; what is written after them stays visible.
#[test]
fn rotation_and_merges_hide_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = LsmEngine::open(dir.path()).unwrap();
    let mut model = Model::default();
    for round in 0..25 {
        run(&mut engine, &mut model, round * 4 + 1..=round * 4 + 4);
        engine.checkpoint().unwrap();
        check(&engine, &model);
        model.execute(&mut engine, at(round * 4 + 5), vec![put("row 1", "tentative")]);
        check(&engine, &model);
        engine.discard_above(at(round * 4 + 4));
        model.log.pop();
        engine.wait_for_merge().unwrap();
        check(&engine, &model);
    }
    assert!(engine.files() < 10, "merges have run");
    engine.verify().unwrap();
}

/// PR-69: a reader between the versions keeps them; without one they are collected.
#[test]
fn merges_keep_what_readers_above_the_floor_need() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = LsmEngine::open(dir.path()).unwrap();
    let mut model = Model::default();
    for round in 0..12 {
        run(&mut engine, &mut model, round * 5 + 1..=round * 5 + 5);
        engine.raise_read_floor(Lsn(round * 5 / 2));
        engine.checkpoint().unwrap();
        engine.wait_for_merge().unwrap();
        check(&engine, &model);
    }
}

/// Bytes of all files under `dir`.
fn size(dir: &Path) -> u64 {
    files(dir).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

#[test]
fn versions_that_no_reader_needs_leave_the_disk() {
    let size_with = |read_floor: fn(Lsn) -> Lsn| {
        let dir = tempfile::tempdir().unwrap();
        let mut engine = LsmEngine::open(dir.path()).unwrap();
        for lsn in 1..=24 {
            engine.execute(at(lsn), &[put("row", &"x".repeat(10_000))]);
            engine.publish(Lsn(lsn)).unwrap();
            engine.raise_read_floor(read_floor(Lsn(lsn)));
            engine.checkpoint().unwrap();
            engine.wait_for_merge().unwrap();
        }
        drop(engine);
        size(dir.path())
    };
    let (kept, collected) = (size_with(|_| Lsn::ZERO), size_with(|lsn| lsn));
    assert!(kept > 24 * 10_000 && collected < 8 * 10_000, "{kept} and {collected} bytes");
}

/// Every file under `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// A small engine on disk with several files, and its digest.
fn small(dir: &Path) -> u64 {
    let mut engine = LsmEngine::open(dir).unwrap();
    let mut model = Model::default();
    for round in 0..2 {
        run(&mut engine, &mut model, round * 3 + 1..=round * 3 + 3);
        engine.checkpoint().unwrap();
    }
    engine.digest(ReadAt::Applied).unwrap()
}

/// Opens, reads and verifies; what counts is that nothing wrong is taken for right.
fn examine(dir: &Path) -> Result<u64, EngineError> {
    let mut engine = LsmEngine::open(dir)?;
    let digest = engine.digest(ReadAt::Applied)?;
    engine.get(&key("row 1"), ReadAt::Applied)?;
    engine.verify()?;
    assert_eq!(engine.applied(), at(6));
    Ok(digest)
}

#[test]
fn every_damaged_byte_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    small(&good);
    let mut examined = 0;
    for file in files(&good) {
        let name = file.strip_prefix(&good).unwrap();
        let bytes = fs::read(&file).unwrap();
        for index in 0..bytes.len() {
            let bad = dir.path().join("bad");
            copy(&good, &bad);
            let mut damaged = bytes.clone();
            damaged[index] ^= 1 << (index % 8);
            fs::write(bad.join(name), damaged).unwrap();
            let outcome = std::panic::catch_unwind(|| examine(&bad));
            let refused = matches!(outcome, Ok(Err(EngineError::Corrupt(_) | EngineError::Io(_))));
            assert!(refused, "byte {index} of {}: {outcome:?}", name.display());
            fs::remove_dir_all(&bad).unwrap();
            examined += 1;
        }
    }
    assert!(examined > 1000);
}

#[test]
fn a_missing_or_foreign_file_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    small(&good);
    let damage = |what: &dyn Fn(&Path)| {
        let bad = dir.path().join("bad");
        copy(&good, &bad);
        what(&bad);
        let outcome = examine(&bad);
        fs::remove_dir_all(&bad).unwrap();
        outcome
    };
    let corrupt = |outcome: Result<u64, EngineError>| matches!(outcome, Err(EngineError::Corrupt(_)));
    for file in files(&good) {
        let name = file.strip_prefix(&good).unwrap();
        assert!(corrupt(damage(&|bad| fs::remove_file(bad.join(name)).unwrap())), "{}", name.display());
        assert!(corrupt(damage(&|bad| fs::write(bad.join(name), b"").unwrap())), "{}", name.display());
    }
    let tables = "tree-000001/tables";
    assert!(corrupt(damage(&|bad| fs::write(bad.join(tables).join("name"), b"").unwrap())));
    assert!(corrupt(damage(&|bad| fs::create_dir(bad.join(tables).join("9")).unwrap())));
    assert!(damage(&|_| {}).is_ok());
}

/// Killed after the tables were written and before the version named them: the files cover what they did
/// before.
#[test]
fn tables_without_a_version_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (dir.path().join("before"), dir.path().join("after"));
    let digest = small(&before);
    copy(&before, &after);
    let mut engine = LsmEngine::open(&after).unwrap();
    run(&mut engine, &mut Model::default(), 7..=9);
    engine.checkpoint().unwrap();
    drop(engine);
    let tables = "tree-000001/tables";
    for file in files(&after.join(tables)) {
        fs::copy(&file, before.join(tables).join(file.file_name().unwrap())).unwrap();
    }
    assert_eq!(examine(&before).unwrap(), digest);
}

/// PR-37: the same installation, killed between its steps on the directory, put together from copies.
#[test]
fn a_kill_between_files_and_pointer_leaves_the_old_state_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let [old, half, new, crashed] = ["old", "half", "new", "crashed"].map(|name| dir.path().join(name));
    let digest = small(&old);
    copy(&old, &new);
    let mut engine = LsmEngine::open(&new).unwrap();
    engine.reset(at(9)).unwrap();
    engine.install(&[Row { key: key("a"), lsn: Lsn(8), value: Bytes::from_static(b"v") }]).unwrap();
    copy(&new, &half);
    engine.finish_install().unwrap();
    drop(engine);
    let (old_tree, new_tree) = ("tree-000001", "tree-000002");

    // The new tree is there, CURRENT still names the old one.
    copy(&old, &crashed);
    copy(&new.join(new_tree), &crashed.join(new_tree));
    assert_eq!(examine(&crashed).unwrap(), digest);
    assert!(!crashed.join(new_tree).exists());

    // CURRENT says incomplete; the old tree is still there, and the new one is filled.
    copy(&old.join(old_tree), &half.join(old_tree));
    copy(&new.join(new_tree), &half.join(new_tree));
    let engine = LsmEngine::open(&half).unwrap();
    assert_eq!((engine.applied(), engine.digest(ReadAt::Applied).unwrap()), (Position::ZERO, 0));
    drop(engine);
    assert_eq!(fs::read_dir(&half).unwrap().count(), 2, "CURRENT and one tree");
    drop(LsmEngine::open(&half).unwrap());

    // CURRENT names the new tree; the old one has not been removed yet.
    copy(&old.join(old_tree), &new.join(old_tree));
    let engine = LsmEngine::open(&new).unwrap();
    assert_eq!((engine.applied(), read(&engine, "a", ReadAt::Applied)), (at(9), "v@8".to_owned()));
    assert!(!new.join(old_tree).exists());
}

/// A large installation is flushed and merged on its way, beside it.
#[test]
fn a_large_installation_is_bounded_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = LsmEngine::open(dir.path()).unwrap();
    engine.reset(at(1000)).unwrap();
    let value = Bytes::from(vec![1; 1 << 20]);
    for lsn in 1..=180 {
        let row = Row { key: key(&format!("row {}", lsn * 7919 % 180)), lsn: Lsn(lsn), value: value.clone() };
        engine.install(&[row]).unwrap();
        assert!(engine.memory_bytes() < 72 << 20);
    }
    engine.finish_install().unwrap();
    drop(engine);
    let engine = LsmEngine::open(dir.path()).unwrap();
    assert_eq!((engine.applied(), all(&engine, ReadAt::Applied, 50).len()), (at(1000), 180));
}
