//! What the tests of all engines share: the engines under test, short ways to write entries, and a model to compare with.
#![allow(dead_code, reason = "each test binary uses its part")]

use bytes::Bytes;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use types::engine::{BackgroundCheckpoints, Row, Wake, space};
use types::{Engine, Lsn, Mutation, Position, ReadAt, Term};
use understudy_engine::{LsmEngine, MemoryEngine};

/// An engine that the suites are run on.
pub trait Subject {
    /// The engine.
    type Engine: Engine + BackgroundCheckpoints;
    /// Keeps its state between two calls of `open`.
    const PERSISTENT: bool;
    /// Opens what is in `dir`.
    fn open(dir: &Path) -> Self::Engine;
}

/// The memory engine without a directory.
pub struct Volatile;
impl Subject for Volatile {
    type Engine = MemoryEngine;
    const PERSISTENT: bool = false;
    fn open(_: &Path) -> MemoryEngine {
        MemoryEngine::volatile()
    }
}

/// The memory engine with snapshots.
pub struct Persistent;
impl Subject for Persistent {
    type Engine = MemoryEngine;
    const PERSISTENT: bool = true;
    fn open(dir: &Path) -> MemoryEngine {
        MemoryEngine::open(dir).unwrap()
    }
}

/// The LSM engine.
pub struct Lsm;
impl Subject for Lsm {
    type Engine = LsmEngine;
    const PERSISTENT: bool = true;
    fn open(dir: &Path) -> LsmEngine {
        LsmEngine::open(dir).unwrap()
    }
}

/// The position of `lsn` in epoch 1.
pub fn at(lsn: u64) -> Position {
    Position::new(Term(1), Lsn(lsn))
}

/// The stored key of a user's row.
pub fn key(name: &str) -> Bytes {
    keyed(space::ROW, name)
}

/// A stored key in the space `space`.
pub fn keyed(space: u8, name: &str) -> Bytes {
    let mut key = vec![space];
    key.extend_from_slice(name.as_bytes());
    key.into()
}

/// `name` becomes `value`.
pub fn put(name: &str, value: &str) -> Mutation {
    Mutation { key: key(name), value: Some(Bytes::from(value.to_owned())) }
}

/// `name` is deleted.
pub fn delete(name: &str) -> Mutation {
    Mutation { key: key(name), value: None }
}

/// The value of `name` at `lsn` with the LSN that wrote it, as `value@lsn`, or `-`.
pub fn read(engine: &impl Engine, name: &str, at: ReadAt) -> String {
    match engine.get(&key(name), at).unwrap() {
        Some((lsn, value)) => format!("{}@{lsn}", String::from_utf8_lossy(&value)),
        None => "-".to_owned(),
    }
}

/// Every row at `at`, read in pages of `page` rows.
pub fn all(engine: &impl Engine, at: ReadAt, page: usize) -> Vec<Row> {
    let (mut rows, mut from) = (Vec::new(), Vec::new());
    loop {
        let more = engine.scan(&from, &[], at, page, usize::MAX).unwrap();
        assert!(more.len() <= page.max(1));
        let Some(last) = more.last() else { return rows };
        from = last.key.to_vec();
        from.push(0);
        rows.extend(more);
    }
}

/// The reference: the log itself, read from its end.
#[derive(Default)]
pub struct Model {
    /// Every executed entry.
    pub log: Vec<(Position, Vec<Mutation>)>,
}

impl Model {
    /// The newest entry.
    pub fn applied(&self) -> Position {
        self.log.last().map_or(Position::ZERO, |(at, _)| *at)
    }

    /// Adds an entry to the log and to the engine.
    pub fn execute(&mut self, engine: &mut impl Engine, at: Position, mutations: Vec<Mutation>) {
        engine.execute(at, &mutations);
        self.log.push((at, mutations));
    }

    /// The rows at `lsn`, from the log alone.
    pub fn rows(&self, lsn: Lsn) -> Vec<Row> {
        let mut map = std::collections::BTreeMap::new();
        for (at, mutations) in self.log.iter().filter(|(at, _)| at.lsn <= lsn) {
            for mutation in mutations {
                map.insert(mutation.key.clone(), (at.lsn, mutation.value.clone()));
            }
        }
        let live = map.into_iter().filter_map(|(key, (lsn, value))| Some(Row { key, lsn, value: value? }));
        live.collect()
    }
}

/// Copies a directory with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// A waker, and what it wakes.
pub fn waker() -> (Wake, Receiver<()>) {
    let (wake, woken) = channel();
    let wake = Mutex::new(wake);
    let wake = move || {
        // Nobody may be there to be woken any more.
        let _ = wake.lock().unwrap().send(());
    };
    (Arc::new(wake), woken)
}
