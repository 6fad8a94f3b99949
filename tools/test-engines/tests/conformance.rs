//! The suite that every engine passes (`tools/conformance`), on the parts engine.

mod common;

use bytes::Bytes;
use conformance::Subject;
use std::path::Path;
use types::{Component, Engine, EngineError, LoadId};

struct Parts;

impl Subject for Parts {
    fn open(&self, dir: &Path) -> Result<Box<dyn Engine>, EngineError> {
        common::open(dir)
    }

    fn load_files(&self, _: &Path, load: LoadId, rows: &[(Bytes, Bytes)]) -> Vec<(Component, Bytes)> {
        understudy_test_engines::load_files(load, rows)
    }
}

#[test]
fn the_parts_engine_conforms() {
    conformance::check(&Parts);
}
