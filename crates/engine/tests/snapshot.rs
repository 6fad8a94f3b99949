//! The memory engine's snapshots: damage is told, defects can be planted, and a store other than a directory
//! will do.

use bytes::Bytes;
use std::io::{self, Cursor, Read, Write};
use std::sync::{Arc, Mutex};
use types::engine::space;
use types::{Engine, EngineError, Finding, Lsn, Mutation, Position, ReadAt, Rules, Term};
use understudy_engine::MemoryEngine;
use understudy_engine::memory::{SnapshotStore, SnapshotWriter};

fn at(lsn: u64) -> Position {
    Position::new(Term(3), Lsn(lsn))
}

fn put(space: u8, name: &str, value: &str) -> Mutation {
    let key = [&[space], name.as_bytes()].concat();
    Mutation { key: key.into(), value: Some(Bytes::from(value.to_owned())) }
}

fn fill(engine: &mut MemoryEngine, lsns: std::ops::RangeInclusive<u64>) {
    for lsn in lsns {
        let row = put(space::ROW, &format!("row {}", lsn % 3), &lsn.to_string());
        engine.execute(at(lsn), &[row, put(space::SESSION, "s", &lsn.to_string())]);
        engine.publish(Lsn(lsn)).unwrap();
    }
}

fn small_snapshot() -> Vec<u8> {
    let mut engine = MemoryEngine::volatile();
    fill(&mut engine, 1..=4);
    engine.snapshot_bytes()
}

/// Refused as damaged, and by nothing else.
fn is_corrupt(bytes: &[u8]) -> bool {
    matches!(MemoryEngine::from_snapshot(bytes).map(|_| ()), Err(EngineError::Corrupt(_)))
}

#[test]
fn a_snapshot_is_read_back() {
    let mut engine = MemoryEngine::volatile();
    fill(&mut engine, 1..=4);
    engine.execute(at(5), &[put(space::ROW, "tentative", "5")]);
    let copy = MemoryEngine::from_snapshot(&engine.snapshot_bytes()).unwrap();
    assert_eq!([copy.applied(), copy.persisted()], [at(4); 2]);
    assert_eq!(copy.digest(ReadAt::Applied).unwrap(), engine.digest(ReadAt::Lsn(Lsn(4))).unwrap());
    assert_eq!(engine.persisted(), at(4));
}

#[test]
fn the_file_holds_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = MemoryEngine::open(dir.path()).unwrap();
    fill(&mut engine, 1..=4);
    engine.checkpoint().unwrap();
    assert_eq!(std::fs::read(dir.path().join("snapshot")).unwrap(), small_snapshot());
}

#[test]
fn every_flipped_bit_is_noticed() {
    let good = small_snapshot();
    for index in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[index] ^= 1 << bit;
            assert!(is_corrupt(&bad), "bit {bit} of byte {index}");
        }
    }
}

#[test]
fn every_cut_and_every_addition_is_noticed() {
    let good = small_snapshot();
    for length in 0..good.len() {
        assert!(is_corrupt(&good[..length]), "cut to {length} bytes");
    }
    assert!(is_corrupt(&[&good[..], &[0]].concat()));
}

#[test]
fn a_snapshot_of_many_blocks_is_read_back() {
    let mut engine = MemoryEngine::volatile();
    let big = "x".repeat(200_000);
    for lsn in 1..=20 {
        let rows: Vec<_> =
            (0..100).map(|n| put(space::ROW, &format!("{lsn} {n}"), &"y".repeat(n * 10))).collect();
        engine.execute(at(2 * lsn - 1), &rows);
        engine.execute(at(2 * lsn), &[put(space::ROW, &format!("{lsn}"), &big)]);
    }
    engine.publish(Lsn::MAX).unwrap();
    let copy = MemoryEngine::from_snapshot(&engine.snapshot_bytes()).unwrap();
    assert_eq!(copy.rows(), 20 * 101);
    assert_eq!(copy.digest(ReadAt::Applied).unwrap(), engine.digest(ReadAt::Applied).unwrap());
}

#[test]
fn a_save_that_was_cut_off_leaves_the_old_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = MemoryEngine::open(dir.path()).unwrap();
    fill(&mut engine, 1..=4);
    engine.checkpoint().unwrap();
    drop(engine);
    std::fs::write(dir.path().join("snapshot.new"), b"half a snap").unwrap();
    let engine = MemoryEngine::open(dir.path()).unwrap();
    assert_eq!(engine.persisted(), at(4));
    assert!(!dir.path().join("snapshot.new").exists());
}

fn without(finding: Finding) -> Rules {
    Rules::without(finding).expect("tests are built with mutants")
}

#[test]
fn without_the_rule_the_position_lags_behind_the_data() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = MemoryEngine::open_with(dir.path(), without(Finding::Pr40)).unwrap();
    fill(&mut engine, 1..=4);
    assert_eq!(engine.checkpoint().unwrap(), Position::ZERO);
    fill(&mut engine, 5..=9);
    assert_eq!(engine.checkpoint().unwrap(), at(4));
    let data = engine.digest(ReadAt::Applied).unwrap();
    let mut engine = MemoryEngine::open_with(dir.path(), without(Finding::Pr40)).unwrap();
    assert_eq!((engine.applied(), engine.digest(ReadAt::Applied).unwrap()), (at(4), data));
    fill(&mut engine, 5..=9);
    assert_eq!(engine.digest(ReadAt::Applied).unwrap(), data);
    let sound = MemoryEngine::open(dir.path());
    assert!(
        matches!(sound.map(|_| ()), Err(EngineError::Corrupt(_))),
        "a sound engine sees the disagreement"
    );
}

#[test]
fn without_the_rule_sessions_are_not_in_the_component() {
    let mut engine = MemoryEngine::volatile_with(without(Finding::Pr45));
    fill(&mut engine, 1..=4);
    let copy = MemoryEngine::from_snapshot(&engine.snapshot_bytes()).unwrap();
    assert_eq!((engine.rows(), copy.rows()), (4, 3));
    assert_eq!(copy.applied(), at(4));
}

/// A store as a simulator has one: in memory, shared with what survives the crash.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Option<Vec<u8>>>>);

impl SnapshotStore for Shelf {
    fn save(&mut self, write: SnapshotWriter<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes as &mut dyn Write)?;
        *self.0.lock().unwrap() = Some(bytes);
        Ok(())
    }

    fn load(&mut self) -> io::Result<Option<Box<dyn Read>>> {
        let bytes = self.0.lock().unwrap().clone();
        Ok(bytes.map(|bytes| Box::new(Cursor::new(bytes)) as Box<dyn Read>))
    }

    fn clear(&mut self) -> io::Result<()> {
        *self.0.lock().unwrap() = None;
        Ok(())
    }
}

#[test]
fn any_store_will_do() {
    let shelf = Shelf::default();
    let mut engine = MemoryEngine::with_store(Box::new(shelf.clone())).unwrap();
    fill(&mut engine, 1..=4);
    assert_eq!(engine.checkpoint().unwrap(), at(4));
    assert_eq!(shelf.0.lock().unwrap().as_ref().unwrap(), &small_snapshot());
    let mut engine = MemoryEngine::with_store(Box::new(shelf.clone())).unwrap();
    assert_eq!(engine.applied(), at(4));
    engine.reset(at(9)).unwrap();
    assert!(shelf.0.lock().unwrap().is_none());
}
