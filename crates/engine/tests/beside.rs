//! Checkpoints beside an engine's other work: nothing counts as persisted before it is, and what is written
//! meanwhile is in no checkpoint that began before it.

mod common;

use common::*;
use std::io::{self, Cursor, Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::engine::BackgroundCheckpoints;
use types::engine::Checkpoint;
use types::{Engine, Lsn, Position, ReadAt};
use understudy_engine::MemoryEngine;
use understudy_engine::memory::{SnapshotStore, SnapshotWriter};

const ROWS: u64 = 9000;
const WAIT_LIMIT: Duration = Duration::from_secs(60);

fn fill(engine: &mut dyn Engine, lsns: std::ops::RangeInclusive<u64>) {
    for lsn in lsns {
        engine.raise_read_floor(Lsn(lsn - 1));
        let old = (lsn % ROWS + 1).to_string();
        engine.execute(
            at(lsn),
            &[put(&lsn.to_string(), &format!("{lsn:500}")), delete(&format!("gone {old}"))],
        );
        engine.publish(Lsn(lsn)).unwrap();
    }
}

/// Goes on until nothing more can be done at once.
fn until_it_waits(engine: &mut dyn Engine, mut stands: Checkpoint) -> Checkpoint {
    while stands == Checkpoint::Ready {
        stands = engine.go_on_checkpoint().unwrap();
    }
    stands
}

fn until_it_ends(engine: &mut dyn Engine, woken: &Receiver<()>) {
    while until_it_waits(engine, Checkpoint::Ready) != Checkpoint::Idle {
        woken.recv_timeout(WAIT_LIMIT).expect("it is woken while it waits");
    }
}

fn a_restart_finds_the_state_at_the_beginning<S: Subject>() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = S::open(&dir.path().join("engine"));
    fill(&mut engine, 1..=ROWS);
    let digest = engine.digest(ReadAt::Applied).unwrap();
    let (wake, woken) = waker();
    let stands = engine.begin_checkpoint(&wake).unwrap();
    assert_ne!(stands, Checkpoint::Idle);
    // Every row changes while it is written, some go, and some are new.
    for lsn in ROWS + 1..=ROWS + 300 {
        let mutations: Vec<_> = (1..=30).map(|n| ((lsn - ROWS) * 30 + n - 30).to_string()).collect();
        let mutations: Vec<_> =
            mutations.iter().map(|row| if lsn % 3 == 0 { delete(row) } else { put(row, "new") }).collect();
        engine.execute(at(lsn), &mutations);
        engine.raise_read_floor(Lsn(lsn - 1));
        engine.publish(Lsn(lsn)).unwrap();
        engine.go_on_checkpoint().unwrap();
    }
    until_it_ends(&mut engine, &woken);
    assert_eq!(engine.persisted(), at(ROWS));
    assert_eq!(engine.published(), at(ROWS + 300));
    let engine = S::open(&{
        drop(engine);
        dir.path().join("engine")
    });
    assert_eq!([engine.applied(), engine.persisted()], [at(ROWS); 2]);
    assert_eq!(engine.digest(ReadAt::Applied).unwrap(), digest);
}

#[test]
fn memory_restarts_at_the_beginning_of_the_checkpoint() {
    a_restart_finds_the_state_at_the_beginning::<Persistent>();
}

#[test]
fn lsm_restarts_at_the_beginning_of_the_checkpoint() {
    a_restart_finds_the_state_at_the_beginning::<Lsm>();
}

fn other_calls_find_their_way<S: Subject>() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = S::open(&dir.path().join("engine"));
    let (wake, woken) = waker();
    assert_eq!(engine.begin_checkpoint(&wake).unwrap(), Checkpoint::Idle, "there is nothing to write");
    fill(&mut engine, 1..=ROWS);
    engine.begin_checkpoint(&wake).unwrap();
    fill(&mut engine, ROWS + 1..=ROWS + 10);
    assert_eq!(engine.checkpoint().unwrap(), at(ROWS + 10), "a checkpoint at once takes everything in");
    fill(&mut engine, ROWS + 11..=ROWS + 20);
    engine.begin_checkpoint(&wake).unwrap();
    engine.reset(at(7)).unwrap();
    assert_eq!(engine.begin_checkpoint(&wake).unwrap(), Checkpoint::Idle, "half a state is not written");
    engine.finish_install().unwrap();
    assert_eq!([engine.published(), engine.persisted()], [at(7); 2]);
    engine.execute(at(8), &[put("a", "8")]);
    engine.publish(Lsn(8)).unwrap();
    engine.begin_checkpoint(&wake).unwrap();
    until_it_ends(&mut engine, &woken);
    assert_eq!(engine.persisted(), at(8));
    fill(&mut engine, 9..=ROWS);
    engine.begin_checkpoint(&wake).unwrap();
    drop(engine);
    let engine = S::open(&dir.path().join("engine"));
    assert!(engine.persisted() == at(8) || engine.persisted() == at(ROWS), "{}", engine.persisted());
    assert_eq!(all(&engine, ReadAt::Applied, 20_000).len() as u64, engine.persisted().lsn.0 - 7);
}

#[test]
fn memory_knows_other_calls_beside_a_checkpoint() {
    other_calls_find_their_way::<Persistent>();
}

#[test]
fn lsm_knows_other_calls_beside_a_checkpoint() {
    other_calls_find_their_way::<Lsm>();
}

/// A disk that takes nothing until it is told to go on.
#[derive(Clone)]
struct Stuck {
    go_on: Arc<Mutex<Receiver<()>>>,
    kept: Arc<Mutex<Option<Vec<u8>>>>,
}

impl SnapshotStore for Stuck {
    fn save(&mut self, write: SnapshotWriter<'_>) -> io::Result<()> {
        self.go_on.lock().unwrap().recv().map_err(io::Error::other)?;
        let mut bytes = Vec::new();
        write(&mut bytes as &mut dyn Write)?;
        *self.kept.lock().unwrap() = Some(bytes);
        Ok(())
    }

    fn load(&mut self) -> io::Result<Option<Box<dyn Read>>> {
        let bytes = self.kept.lock().unwrap().clone();
        Ok(bytes.map(|bytes| Box::new(Cursor::new(bytes)) as Box<dyn Read>))
    }

    fn clear(&mut self) -> io::Result<()> {
        *self.kept.lock().unwrap() = None;
        Ok(())
    }
}

fn stuck() -> (Stuck, Sender<()>) {
    let (sender, receiver) = channel();
    (Stuck { go_on: Arc::new(Mutex::new(receiver)), kept: Arc::default() }, sender)
}

#[test]
fn an_engine_goes_on_while_the_disk_is_stuck() {
    let (store, go_on) = stuck();
    let mut engine = MemoryEngine::with_store(Box::new(store.clone())).unwrap();
    fill(&mut engine, 1..=ROWS * 2);
    let (wake, woken) = waker();
    let stands = engine.begin_checkpoint(&wake).unwrap();
    assert_eq!(until_it_waits(&mut engine, stands), Checkpoint::Waiting);
    fill(&mut engine, ROWS * 2 + 1..=ROWS * 2 + 500);
    assert_eq!(read(&engine, "17", ReadAt::Applied), format!("{:500}@17", 17));
    assert_eq!(engine.go_on_checkpoint().unwrap(), Checkpoint::Waiting);
    assert_eq!((engine.persisted(), engine.is_persistent()), (Position::ZERO, true));
    assert!(engine.read_floor() <= Lsn(ROWS * 2), "what is still to be written can be read");
    go_on.send(()).unwrap();
    until_it_ends(&mut engine, &woken);
    assert_eq!(engine.persisted(), at(ROWS * 2));
    engine.raise_read_floor(Lsn(ROWS * 2 + 500));
    assert_eq!(engine.read_floor(), Lsn(ROWS * 2 + 500));
    let copy = MemoryEngine::with_store(Box::new(store)).unwrap();
    let rows = all(&engine, ReadAt::Applied, 5000);
    let (old, new): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.lsn <= Lsn(ROWS * 2));
    assert_eq!(new.len(), 500);
    assert_eq!(all(&copy, ReadAt::Applied, 5000), old);
}

#[test]
fn a_disk_that_fails_leaves_the_old_checkpoint_and_may_be_tried_again() {
    let (store, go_on) = stuck();
    let mut engine = MemoryEngine::with_store(Box::new(store.clone())).unwrap();
    fill(&mut engine, 1..=20);
    let (wake, woken) = waker();
    engine.begin_checkpoint(&wake).unwrap();
    drop(go_on);
    let failed = loop {
        match engine.go_on_checkpoint() {
            Ok(Checkpoint::Ready) => {}
            Ok(_) => woken.recv_timeout(WAIT_LIMIT).expect("it is woken"),
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, types::EngineError::Io(_)), "{failed}");
    assert_eq!(engine.persisted(), Position::ZERO);
    assert!(engine.checkpoint().is_err() && store.kept.lock().unwrap().is_none());
}
