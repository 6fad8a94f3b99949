//! The suite that every engine passes (`tools/conformance`), on the engines of this crate.

use bytes::Bytes;
use conformance::Subject;
use std::path::Path;
use types::{Component, Engine, EngineError, LoadId};
use understudy_engine::lsm::write_load;
use understudy_engine::{LsmEngine, MemoryEngine};

/// The memory engine without a directory.
struct Volatile;

impl Subject for Volatile {
    fn open(&self, _: &Path) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(MemoryEngine::volatile()))
    }
}

/// The memory engine with snapshots.
struct Persistent;

impl Subject for Persistent {
    fn open(&self, dir: &Path) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(MemoryEngine::open(dir)?))
    }
}

/// The LSM engine.
struct Lsm;

impl Subject for Lsm {
    fn open(&self, dir: &Path) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(LsmEngine::open(dir)?))
    }

    fn load_files(&self, scratch: &Path, load: LoadId, rows: &[(Bytes, Bytes)]) -> Vec<(Component, Bytes)> {
        let rows = rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
        let files = write_load(scratch, load, rows).expect("writes");
        files.into_iter().map(|(file, path)| (file, std::fs::read(path).expect("reads").into())).collect()
    }
}

#[test]
fn the_memory_engine_conforms_without_a_directory() {
    conformance::check(&Volatile);
}

#[test]
fn the_memory_engine_conforms() {
    conformance::check(&Persistent);
}

#[test]
fn the_lsm_engine_conforms() {
    conformance::check(&Lsm);
}
