//! What an engine must be that is opened on files which a power loss, or a failing system call, has left.

use crate::promise::Promise;
use crate::scenario::{LOAD, LOAD_AT, Scenario, at};
use engine::LsmEngine;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use types::engine::Row;
use types::engine::StagesLoads;
use types::{Engine, Lsn, ReadAt};

/// What was found in files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// An engine that can be used, and whose content is the one of its position.
    Engine {
        /// Its position.
        persisted: Lsn,
        /// It has all files of the load.
        staged: bool,
    },
    /// Something else, in words.
    Wrong(String),
}

impl Found {
    /// What is wrong with it, if that was promised.
    pub fn fault(&self, promise: &Promise) -> Option<String> {
        match self {
            Found::Wrong(what) => Some(what.clone()),
            Found::Engine { persisted, .. } if !promise.positions.contains(persisted) => {
                Some(format!("it opens at LSN {persisted}, but must at one of {:?}", promise.positions))
            }
            Found::Engine { persisted, staged: false } if promise.staged && *persisted < LOAD_AT => {
                Some("the files of the load are gone, which were staged".into())
            }
            Found::Engine { .. } => None,
        }
    }
}

/// Opens the engine in `dir`, looks at everything it has, and goes on with it.
pub fn examine(scenario: Scenario, dir: &Path) -> Found {
    let looked = catch_unwind(AssertUnwindSafe(|| {
        let found = look(scenario, dir)?;
        go_on(scenario, dir, found.0)?;
        Ok(found)
    }));
    match looked {
        Ok(Ok((persisted, staged))) => Found::Engine { persisted, staged },
        Ok(Err(what)) => Found::Wrong(what),
        Err(_) => Found::Wrong("it panics".into()),
    }
}

fn look(scenario: Scenario, dir: &Path) -> Result<(Lsn, bool), String> {
    let mut engine = LsmEngine::open(dir).map_err(|error| error.to_string())?;
    content(scenario, &engine)?;
    engine.verify().map_err(|error| error.to_string())?;
    Ok((engine.persisted().lsn, staged(&engine)?))
}

/// It takes more entries, keeps them, and has them after another start.
fn go_on(scenario: Scenario, dir: &Path, from: Lsn) -> Result<(), String> {
    let text = |error: types::EngineError| format!("going on after the start: {error}");
    let mut engine = LsmEngine::open(dir).map_err(text)?;
    let next = from.next();
    // A load's entry needs its files, which is another matter.
    if scenario.loads_at(next) {
        return Ok(());
    }
    engine.execute(at(next), &scenario.entry(next));
    engine.publish(next).map_err(text)?;
    let persisted = engine.checkpoint().map_err(text)?;
    drop(engine);
    let engine = LsmEngine::open(dir).map_err(text)?;
    if (persisted.lsn, engine.persisted().lsn) != (next, next) {
        return Err(format!("it kept LSN {next}, and opens at {} then", engine.persisted().lsn));
    }
    content(scenario, &engine).map_err(|what| format!("after another start: {what}"))
}

/// How an answer of [`content`] begins where rows could not be read.
pub const UNREADABLE: &str = "reading it";

/// The engine has the rows of its position, those of sessions among them, and no others.
pub fn content(scenario: Scenario, engine: &LsmEngine) -> Result<(), String> {
    if engine.applied() != at(engine.applied().lsn) {
        return Err(format!("it is at {}, an epoch that never was", engine.applied()));
    }
    let found = rows(engine)?;
    let expected = scenario.rows(engine.applied().lsn);
    if let Some(index) = (0..found.len().max(expected.len())).find(|n| found.get(*n) != expected.get(*n)) {
        let (found, expected) = (found.get(index), expected.get(index));
        let name = |row: Option<&Row>| {
            row.map(|row| format!("{} of LSN {}", row.key.escape_ascii(), row.lsn)).unwrap_or("none".into())
        };
        let at = engine.applied().lsn;
        return Err(format!("at LSN {at} row {index} is {}, not {}", name(found), name(expected)));
    }
    let digest = expected.iter().map(types::engine::row_hash).fold(0, u64::wrapping_add);
    match engine.digest(ReadAt::Applied) {
        Ok(found) if found == digest => Ok(()),
        other => Err(format!("the digest is {other:?}, not {digest}")),
    }
}

fn rows(engine: &LsmEngine) -> Result<Vec<Row>, String> {
    let (mut rows, mut from) = (Vec::new(), Vec::new());
    loop {
        let more = engine.scan(&from, &[], ReadAt::Applied, 100, usize::MAX);
        let more = more.map_err(|error| format!("{UNREADABLE}: {error}"))?;
        let Some(last) = more.last() else { return Ok(rows) };
        from = last.key.to_vec();
        from.push(0);
        rows.extend(more);
    }
}

/// True if the load is staged. What the engine says it has of it must be right.
fn staged(engine: &LsmEngine) -> Result<bool, String> {
    if engine.staged(LOAD).is_none() {
        return Ok(false);
    }
    for (index, file) in engine.staged_files(LOAD).iter().enumerate() {
        let bytes = engine.read_staged(LOAD, index, 0, file.bytes as usize + 1);
        let digest = bytes.map(|bytes| bytes.map(|bytes| xxhash_rust::xxh3::xxh3_128(&bytes)));
        if !matches!(digest, Ok(Some(digest)) if digest == file.digest) {
            return Err(format!("file {index} of a load that is said to be staged: {digest:?}"));
        }
    }
    Ok(true)
}
