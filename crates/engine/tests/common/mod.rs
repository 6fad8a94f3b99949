//! What the tests of all engines share: the engines under test; the model and short ways to write entries are
//! the suite's.
#![allow(dead_code, reason = "each test binary uses its part")]

#[allow(unused_imports, reason = "each test binary uses its part")]
pub use conformance::{Model, all, at, delete, key, keyed, put, read, waker};

use std::fs;
use std::path::Path;
use types::Engine;
use types::engine::BackgroundCheckpoints;
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
