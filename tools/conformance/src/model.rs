//! The reference that engines are compared with, and short ways to write entries and to read rows.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use types::engine::{Row, Wake, space};
use types::{Engine, Lsn, Mutation, Position, ReadAt, Term};

/// The position of `lsn` in term 1.
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

/// The value of `name` at `at` with the LSN that wrote it, as `value@lsn`, or `-`.
pub fn read(engine: &dyn Engine, name: &str, at: ReadAt) -> String {
    match engine.get(&key(name), at).expect("reads") {
        Some((lsn, value)) => format!("{}@{lsn}", String::from_utf8_lossy(&value)),
        None => "-".to_owned(),
    }
}

/// Every row at `at`, read in pages of `page` rows.
pub fn all(engine: &dyn Engine, at: ReadAt, page: usize) -> Vec<Row> {
    let (mut rows, mut from) = (Vec::new(), Vec::new());
    loop {
        let more = engine.scan(&from, &[], at, page, usize::MAX).expect("reads");
        assert!(more.len() <= page.max(1), "a page of {page} rows has {}", more.len());
        let Some(last) = more.last() else { return rows };
        assert!(last.key[..] >= from[..], "a scan goes back");
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
    pub fn execute(&mut self, engine: &mut dyn Engine, at: Position, mutations: Vec<Mutation>) {
        engine.execute(at, &mutations);
        self.log.push((at, mutations));
    }

    /// Executes the entries above the engine's applied position, up to `upto`.
    pub fn replay(&self, engine: &mut dyn Engine, upto: Lsn) {
        let from = engine.applied().lsn;
        for (at, entry) in self.log.iter().filter(|(at, _)| at.lsn > from && at.lsn <= upto) {
            engine.execute(*at, entry);
        }
    }

    /// The rows at `lsn`, from the log alone.
    pub fn rows(&self, lsn: Lsn) -> Vec<Row> {
        let mut map = BTreeMap::new();
        for (at, mutations) in self.log.iter().filter(|(at, _)| at.lsn <= lsn) {
            for mutation in mutations {
                map.insert(mutation.key.clone(), (at.lsn, mutation.value.clone()));
            }
        }
        let live = map.into_iter().filter_map(|(key, (lsn, value))| Some(Row { key, lsn, value: value? }));
        live.collect()
    }

    /// The engine reads the same at its floor, at its newest entry and between.
    pub fn same(&self, engine: &dyn Engine) {
        assert_eq!(engine.applied(), self.applied(), "the applied position");
        let (floor, applied) = (engine.read_floor(), engine.applied().lsn);
        // What was discarded may have been above the floor.
        for lsn in [floor, Lsn(floor.0.midpoint(applied.0)).max(floor), applied.max(floor)] {
            assert_eq!(all(engine, ReadAt::Lsn(lsn), 7), self.rows(lsn), "the rows at {lsn}");
        }
        assert_eq!(all(engine, ReadAt::Applied, 100), self.rows(Lsn::MAX), "the newest rows");
    }
}

/// Sixty entries of three terms that overwrite, delete and skip, in two spaces.
pub fn history() -> Model {
    let mut log = Vec::new();
    for n in 1..=60u64 {
        let term = Term(1 + n / 25);
        let mut entry = Vec::new();
        if n % 10 != 0 {
            entry.push(put(&format!("row {}", n % 7), &format!("value {n}")));
            entry.push(Mutation { key: keyed(space::SESSION, "s"), value: Some(Bytes::from(n.to_string())) });
        }
        if n % 5 == 0 {
            entry.push(delete(&format!("row {}", n % 6)));
        }
        log.push((Position::new(term, Lsn(n)), entry));
    }
    Model { log }
}

/// A waker, and what it wakes.
pub fn waker() -> (Wake, Receiver<()>) {
    let (wake, woken) = channel();
    let wake = Mutex::new(wake);
    let wake = move || {
        // Nobody may be there to be woken any more.
        let _ = wake.lock().expect("nobody panics with it").send(());
    };
    (Arc::new(wake), woken)
}
