//! What an LSM engine has in no file yet: read together with files and tentative entries while flushes wait,
//! find no room and come through, and carried along wherever it must not be lost.

mod common;

use bytes::Bytes;
use common::*;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use types::bulk::load_key;
use types::engine::{BackgroundCheckpoints, Checkpoint, ReadAt, Row, ShipsFiles, StagesLoads};
use types::random::Random;
use types::{Engine, EngineError, Installation, LoadId, Lsn, Mutation, Staging};
use understudy_engine::LsmEngine;
use understudy_engine::lsm::{
    Background, Environment, FileCall, Job, Running, SharedFiles, Threads, write_load,
};

const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A disk on which there is no room for a while, and jobs that wait until they are run, or threads.
#[derive(Clone, Default)]
struct Disk {
    is_full: Arc<AtomicBool>,
    holds: bool,
    job: Arc<Mutex<Option<Job>>>,
}

impl Disk {
    fn fill(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    fn run(&self) {
        let job = self.job.lock().unwrap().take();
        job.into_iter().for_each(|job| job());
    }

    fn open(&self, dir: &Path) -> LsmEngine {
        let environment = Environment::simulated(Arc::new(self.clone()), &SharedFiles::new(64));
        LsmEngine::open_in(dir, environment).unwrap()
    }
}

impl Background for Disk {
    fn start(&self, name: &'static str, job: Job) -> io::Result<Box<dyn Running>> {
        if !self.holds {
            return Threads.start(name, job);
        }
        let before = self.job.lock().unwrap().replace(job);
        assert!(before.is_none(), "PR-69: one after the other");
        Ok(Box::new(self.clone()))
    }

    fn before(&self, call: FileCall, _: &Path) -> io::Result<()> {
        match call == FileCall::Write && self.is_full.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

impl Running for Disk {
    fn is_over(&self) -> bool {
        self.job.lock().unwrap().is_none()
    }

    fn hurry(&mut self) {
        self.run();
    }

    fn wait(&mut self) {}
}

fn run(engine: &mut LsmEngine, model: &mut Model, lsns: std::ops::RangeInclusive<u64>) {
    for lsn in lsns {
        model.execute(engine, at(lsn), vec![put(&format!("row {:03}", lsn % 70), &format!("value {lsn}"))]);
        engine.publish(Lsn(lsn)).unwrap();
    }
}

/// Writes, deletes, publishes, raises the floor and flushes as drawn; every read that is allowed sees what
/// the log says.
fn a_history(seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk { holds: true, ..Disk::default() };
    let (mut engine, mut model) = (disk.open(dir.path()), Model::default());
    let mut random = Random::new(seed);
    let wake: types::engine::Wake = Arc::new(|| {});
    for _ in 0..120 {
        let applied = model.applied().lsn;
        match random.below(10) {
            0..=4 => {
                let name = format!("row {}", random.below(8));
                let change = if random.below(3) == 0 { delete(&name) } else { put(&name, "v") };
                let other = put(&format!("row {}", random.below(8)), "w");
                model.execute(&mut engine, at(applied.0 + 1), vec![change, other]);
            }
            5..=6 => {
                let upto = engine.published().lsn.0 + random.below(4);
                engine.publish(Lsn(upto.min(applied.0))).unwrap();
            }
            7 => {
                let floor = engine.read_floor().0 + random.below(5);
                engine.raise_read_floor(Lsn(floor.min(engine.published().lsn.0)));
            }
            8 => {
                // It may find no room: then it is kept, and what follows is above it.
                disk.fill(random.below(3) == 0);
                let begun = engine.begin_checkpoint(&wake);
                assert!(matches!(begun, Ok(_) | Err(EngineError::Full(_))), "seed {seed}: {begun:?}");
            }
            _ => {
                disk.run();
                disk.fill(false);
                let ended = engine.go_on_checkpoint();
                assert!(matches!(ended, Ok(_) | Err(EngineError::Full(_))), "seed {seed}: {ended:?}");
            }
        }
        let (floor, applied) = (engine.read_floor().0, model.applied().lsn.0);
        let lsn = floor + random.below(applied - floor + 1);
        assert_eq!(all(&engine, ReadAt::Lsn(Lsn(lsn)), 3), model.rows(Lsn(lsn)), "seed {seed}, at {lsn}");
        for n in 0..8 {
            let name = format!("row {n}");
            let row = model.rows(Lsn(lsn)).into_iter().find(|row| row.key == key(&name));
            let known = row.map(|row| (row.lsn, row.value));
            assert_eq!(
                engine.get(&key(&name), ReadAt::Lsn(Lsn(lsn))).unwrap(),
                known,
                "seed {seed}, at {lsn}"
            );
        }
    }
    disk.fill(false);
    engine.publish(Lsn::MAX).unwrap();
    engine.checkpoint().unwrap();
    drop(engine);
    let engine = disk.open(dir.path());
    assert_eq!(all(&engine, ReadAt::Applied, 5), model.rows(Lsn::MAX), "seed {seed}, after a restart");
}

#[test]
fn reads_see_files_memory_and_what_is_being_flushed_as_one() {
    (0..150).for_each(a_history);
}

#[test]
fn a_copy_by_rows_ends_with_an_empty_piece_however_much_is_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = LsmEngine::open(dir.path()).unwrap();
    engine.reset(at(1000)).unwrap();
    let value = Bytes::from(vec![1; 1 << 20]);
    let row = |n: u64| Row { key: key(&format!("row {n:03}")), lsn: Lsn(n), value: value.clone() };
    // One piece is as much as would be waited for.
    engine.install(&(1..=66).map(row).collect::<Vec<_>>()).unwrap();
    engine.install(&[]).unwrap();
    engine.install(&[row(67)]).unwrap();
    engine.install(&[]).unwrap();
    engine.finish_install().unwrap();
    assert_eq!(all(&engine, ReadAt::Applied, 50).len(), 67);
}

#[test]
fn pr347_rows_that_a_flush_found_no_room_for_are_part_of_what_takes_the_trees_place() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::default();
    let place = dir.path().join("target");
    let (mut source, mut model) = (LsmEngine::open(&dir.path().join("source")).unwrap(), Model::default());
    run(&mut source, &mut model, 1..=100);
    source.checkpoint().unwrap();
    let (mut target, mut model) = (disk.open(&place), Model::default());
    run(&mut target, &mut model, 1..=90);
    let (pin, set) = source.pin().unwrap().unwrap();
    assert!(target.receive(set).unwrap());
    while let Some(missing) = target.missing().first().copied() {
        let bytes = source.read_component(pin, missing.file, missing.from, 4096).unwrap().unwrap();
        assert!(target.receive_piece(missing.file, missing.from, &bytes).unwrap());
    }
    let (wake, woken) = waker();
    assert_eq!(target.begin_installation(&wake).unwrap(), Installation::Waiting);
    woken.recv_timeout(WAIT_LIMIT).expect("it is woken when the set is checked");
    // What was there when the check began is flushed, and what came since finds no room.
    target.checkpoint().unwrap();
    run(&mut target, &mut model, 91..=120);
    disk.fill(true);
    assert!(matches!(target.checkpoint(), Err(EngineError::Full(_))));
    disk.fill(false);
    run(&mut target, &mut model, 121..=125);
    assert_eq!(target.go_on_installation().unwrap(), Installation::Done);
    assert_eq!((target.persisted(), target.published()), (at(100), at(125)));
    assert_eq!(all(&target, ReadAt::Applied, 50), model.rows(Lsn(125)));
    target.checkpoint().unwrap();
    drop(target);
    let target = disk.open(&place);
    assert_eq!((target.persisted(), all(&target, ReadAt::Applied, 50)), (at(125), model.rows(Lsn(125))));
}

#[test]
fn what_the_entry_of_a_load_changes_is_not_published_where_its_files_are_damaged() {
    const LOAD: LoadId = LoadId(LoadId::LEAST + 5);
    let dir = tempfile::tempdir().unwrap();
    let (disk, place) = (Disk::default(), dir.path().join("engine"));
    let row = |n: u64| (key(&format!("row {n:03}")).to_vec(), format!("loaded {n}").into_bytes());
    let files = write_load(&dir.path().join("scratch"), LOAD, (0..50).map(row)).unwrap();
    let (mut engine, mut model) = (disk.open(&place), Model::default());
    run(&mut engine, &mut model, 1..=10);
    let named: Vec<_> = files.iter().map(|(file, _)| *file).collect();
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < WAIT_LIMIT, "it is not staged in time");
        match engine.stage(LOAD, &named).unwrap() {
            Staging::Wants { file, from } => {
                let content = fs::read(&files[file as usize].1).unwrap();
                engine.stage_piece(LOAD, file as usize, from, &content[from as usize..]).unwrap();
            }
            Staging::Checking => std::thread::yield_now(),
            Staging::Ready(_) => break,
            other => panic!("{other:?}"),
        }
    }
    engine.checkpoint().unwrap();
    engine.execute_load(at(11), LOAD, &[Mutation { key: load_key(LOAD), value: Some("done".into()) }]);
    for entry in fs::read_dir(place.join("staged")).unwrap().flatten() {
        damage(&entry.path());
    }
    engine.allow_load(Lsn(11));
    let outcome = engine.checkpoint();
    assert!(matches!(outcome, Err(EngineError::Corrupt(_))), "{outcome:?}");
    assert_eq!(engine.published(), at(10));
    assert_eq!(all(&engine, ReadAt::Lsn(Lsn(10)), 50), model.rows(Lsn(10)));
    engine.discard_above(at(10));
    assert_eq!(engine.get(&load_key(LOAD), ReadAt::Applied).unwrap(), None);
}

/// Cuts every file in a directory, or the file itself.
fn damage(path: &Path) {
    match path.is_dir() {
        true => fs::read_dir(path).unwrap().flatten().for_each(|entry| damage(&entry.path())),
        false => fs::OpenOptions::new().write(true).open(path).unwrap().set_len(20).unwrap(),
    }
}

#[test]
fn a_checkpoint_beside_gives_the_memory_back() {
    let dir = tempfile::tempdir().unwrap();
    let (mut engine, mut model) = (LsmEngine::open(dir.path()).unwrap(), Model::default());
    let value = "x".repeat(100_000);
    for lsn in 1..=60 {
        model.execute(&mut engine, at(lsn), vec![put(&format!("row {:02}", lsn % 30), &value)]);
        engine.raise_read_floor(Lsn(lsn));
        engine.publish(Lsn(lsn)).unwrap();
    }
    // Of each row only the newest version is there.
    assert!((3_000_000..3_200_000).contains(&engine.memory_bytes()), "{}", engine.memory_bytes());
    let (wake, woken) = waker();
    assert_eq!(engine.begin_checkpoint(&wake).unwrap(), Checkpoint::Waiting);
    woken.recv_timeout(WAIT_LIMIT).expect("it is woken");
    assert_eq!(engine.go_on_checkpoint().unwrap(), Checkpoint::Idle);
    assert_eq!((engine.memory_bytes(), engine.persisted()), (0, at(60)));
    assert_eq!(all(&engine, ReadAt::Applied, 7), model.rows(Lsn(60)));
}
