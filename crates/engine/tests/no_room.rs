//! F20: whatever an engine does with its files while the disk has no room, it is as it was, and does it when
//! there is room again.
//!
//! The disk is a small one in memory, which only the process of the test sees: each test is run again in a
//! process of its own. Where the system does not let it have such a disk, that is said.

mod common;

use common::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testing::SmallDisk;
use types::bulk::load_key;
use types::engine::Row;
use types::engine::ShipsFiles;
use types::engine::StagesLoads;
use types::{Component, Engine, EngineError, Installation, LoadId, Lsn, Mutation, PinId, ReadAt, Staging};
use understudy_engine::LsmEngine;
use understudy_engine::lsm::write_load;

const LOAD: LoadId = LoadId(LoadId::LEAST + 5);
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A small disk for the test of this name.
fn on_a_small_disk(name: &str) -> Option<SmallDisk> {
    SmallDisk::of_test(name, 16, 300)
}

fn has_no_room<T: std::fmt::Debug>(outcome: Result<T, EngineError>) {
    assert!(matches!(outcome, Err(EngineError::Full(_))), "{outcome:?}");
}

fn run(engine: &mut LsmEngine, lsns: std::ops::RangeInclusive<u64>) {
    for lsn in lsns {
        engine.execute(at(lsn), &[put(&format!("row {lsn:06}"), &format!("value {lsn} ").repeat(30))]);
        engine.publish(Lsn(lsn)).unwrap();
    }
}

/// A primary elsewhere with two flushes, the second of which the engine on the disk lacks.
struct Pair {
    source: LsmEngine,
    target: LsmEngine,
    _elsewhere: tempfile::TempDir,
}

impl Pair {
    fn new(disk: &SmallDisk) -> Pair {
        let elsewhere = tempfile::tempdir().unwrap();
        let mut source = LsmEngine::open(&elsewhere.path().join("source")).unwrap();
        let target = LsmEngine::open(&disk.place("target")).unwrap();
        run(&mut source, 1..=200);
        source.checkpoint().unwrap();
        let mut pair = Pair { source, target, _elsewhere: elsewhere };
        pair.ship();
        assert_eq!(pair.install(|| {}).unwrap(), Installation::Done);
        run(&mut pair.target, 201..=220);
        run(&mut pair.source, 201..=400);
        pair.source.checkpoint().unwrap();
        pair
    }

    fn offer(&mut self) -> (PinId, Result<bool, EngineError>) {
        let (pin, set) = self.source.pin().unwrap().unwrap();
        (pin, self.target.receive(set))
    }

    /// Ships what is missing. Gives how many bytes those are.
    fn ship(&mut self) -> u64 {
        let (pin, useful) = self.offer();
        assert!(useful.unwrap());
        let mut shipped = 0;
        while let Some(missing) = self.target.missing().first().copied() {
            let bytes = self.source.read_component(pin, missing.file, missing.from, 1000).unwrap().unwrap();
            assert!(self.target.receive_piece(missing.file, missing.from, &bytes).unwrap());
            shipped += bytes.len() as u64;
        }
        shipped
    }

    /// `meanwhile` is called when the set is checked, and is not the state yet.
    fn install(&mut self, meanwhile: impl FnOnce()) -> Result<Installation, EngineError> {
        let (wake, woken) = waker();
        let mut meanwhile = Some(meanwhile);
        let mut stands = self.target.begin_installation(&wake)?;
        while stands == Installation::Waiting {
            woken.recv_timeout(WAIT_LIMIT).expect("it is woken while it waits");
            meanwhile.take().into_iter().for_each(|meanwhile| meanwhile());
            stands = self.target.go_on_installation()?;
        }
        Ok(stands)
    }

    /// The engine is at the second flush of the primary, now and after a restart.
    fn ends_level(self, disk: &SmallDisk) {
        let digest = self.source.digest(ReadAt::Applied).unwrap();
        assert_eq!(self.target.persisted(), at(400));
        assert_eq!(self.target.digest(ReadAt::Applied).unwrap(), digest);
        drop(self.target);
        let mut again = LsmEngine::open(&disk.place("target")).unwrap();
        assert_eq!((again.persisted(), again.digest(ReadAt::Applied).unwrap()), (at(400), digest));
        again.verify().unwrap();
    }

    /// The engine is where it was before the second flush of the primary came, goes on from there and reads
    /// it all.
    fn is_as_it_was(&mut self, upto: u64) {
        run(&mut self.target, upto..=upto);
        assert_eq!((self.target.persisted(), self.target.published()), (at(200), at(upto)));
        assert_eq!(all(&self.target, ReadAt::Applied, 50).len() as u64, upto);
    }
}

#[test]
fn f20_a_set_that_finds_no_room_is_received_when_there_is_some() {
    let Some(disk) = on_a_small_disk("f20_a_set_that_finds_no_room_is_received_when_there_is_some") else {
        return;
    };
    let mut pair = Pair::new(&disk);
    disk.fill();
    for lsn in 221..=223 {
        has_no_room(pair.offer().1);
        pair.is_as_it_was(lsn);
    }
    disk.make_room();
    assert!(pair.ship() > 0);
    assert_eq!(pair.install(|| {}).unwrap(), Installation::Done);
    pair.ends_level(&disk);
}

#[test]
fn f20_an_installation_that_finds_no_room_is_made_when_there_is_some() {
    let Some(disk) = on_a_small_disk("f20_an_installation_that_finds_no_room_is_made_when_there_is_some")
    else {
        return;
    };
    let mut pair = Pair::new(&disk);
    assert!(pair.ship() > 0);
    // There is none for what puts the files in order.
    disk.fill();
    has_no_room(pair.install(|| {}));
    pair.is_as_it_was(221);
    disk.make_room();
    // And none for what names the new tree, when everything else is done.
    for lsn in 222..=223 {
        assert_eq!(pair.ship(), 0, "what came stays");
        has_no_room(pair.install(|| disk.fill()));
        pair.is_as_it_was(lsn);
        disk.make_room();
    }
    // What its memory has goes into files of its own, all of it, as if nothing had been tried.
    let digest = pair.target.digest(ReadAt::Applied).unwrap();
    pair.target.checkpoint().unwrap();
    drop(pair.target);
    pair.target = LsmEngine::open(&disk.place("target")).unwrap();
    assert_eq!((pair.target.persisted(), pair.target.digest(ReadAt::Applied).unwrap()), (at(223), digest));
    pair.ship();
    assert_eq!(pair.install(|| {}).unwrap(), Installation::Done);
    pair.ends_level(&disk);
}

#[test]
fn f20_a_copy_by_rows_that_finds_no_room_comes_when_there_is_some() {
    let Some(disk) = on_a_small_disk("f20_a_copy_by_rows_that_finds_no_room_comes_when_there_is_some") else {
        return;
    };
    let mut pair = Pair::new(&disk);
    let rows: Vec<Row> = all(&pair.source, ReadAt::Applied, 50);
    disk.fill();
    for lsn in 221..=223 {
        has_no_room(pair.target.reset(at(400)));
        pair.is_as_it_was(lsn);
    }
    disk.make_room();
    pair.target.reset(at(400)).unwrap();
    pair.target.install(&rows).unwrap();
    disk.fill();
    has_no_room(pair.target.finish_install());
    disk.make_room();
    pair.target.reset(at(400)).unwrap();
    pair.target.install(&rows).unwrap();
    pair.target.finish_install().unwrap();
    pair.ends_level(&disk);
}

fn built(dir: &Path) -> Vec<(Component, PathBuf)> {
    let row = |n: u64| (key(&format!("row {n:06}")).to_vec(), format!("loaded {n} ").repeat(20).into_bytes());
    write_load(&dir.join("scratch"), LOAD, (0..200).map(row)).unwrap()
}

/// How far a load is, when its check has ended.
fn staged(engine: &mut LsmEngine, files: &[Component]) -> Result<Staging, EngineError> {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < WAIT_LIMIT, "the check does not end");
        match engine.stage(LOAD, files)? {
            Staging::Checking => std::thread::yield_now(),
            staging => return Ok(staging),
        }
    }
}

#[test]
fn f20_a_load_that_finds_no_room_is_staged_when_there_is_some() {
    let Some(disk) = on_a_small_disk("f20_a_load_that_finds_no_room_is_staged_when_there_is_some") else {
        return;
    };
    let elsewhere = tempfile::tempdir().unwrap();
    let files = built(elsewhere.path());
    let named: Vec<Component> = files.iter().map(|(file, _)| *file).collect();
    let mut engine = LsmEngine::open(&disk.place("engine")).unwrap();
    run(&mut engine, 1..=10);
    disk.fill();
    for _ in 0..2 {
        has_no_room(engine.stage(LOAD, &named));
        assert_eq!(engine.loads(), []);
    }
    disk.make_room();
    for (index, (file, path)) in files.iter().enumerate() {
        let content = fs::read(path).unwrap();
        let wants = Staging::Wants { file: index as u32, from: 0 };
        assert_eq!(engine.stage(LOAD, &named).unwrap(), wants);
        disk.fill();
        has_no_room(engine.stage_piece(LOAD, index, 0, &content));
        assert_eq!(engine.stage(LOAD, &named).unwrap(), wants);
        disk.make_room();
        assert!(engine.stage_piece(LOAD, index, 0, &content).unwrap());
        assert_eq!(content.len() as u64, file.bytes);
    }
    // Everything is here, and there is no room for what says so.
    disk.fill();
    for _ in 0..2 {
        has_no_room(staged(&mut engine, &named));
        assert_eq!(engine.staged(LOAD), None);
    }
    disk.make_room();
    assert!(matches!(staged(&mut engine, &named), Ok(Staging::Ready(_))));
    // The files become part of the state, but not while there is no room for their names.
    engine.checkpoint().unwrap();
    engine.execute_load(at(11), LOAD, &[Mutation { key: load_key(LOAD), value: Some("done".into()) }]);
    engine.allow_load(Lsn(11));
    disk.fill();
    for _ in 0..2 {
        has_no_room(engine.checkpoint());
        assert_eq!((engine.persisted(), engine.published()), (at(10), at(10)));
    }
    disk.make_room();
    assert_eq!(engine.checkpoint().unwrap(), at(11));
    // Its rows, in place of those with the same names, and its own.
    assert_eq!(all(&engine, ReadAt::Applied, 50).len(), 201);
}
