//! The suite that every engine passes (`tools/conformance`), on the engines of this crate.

use bytes::Bytes;
use conformance::Subject;
use std::path::Path;
use types::{Component, Engine, EngineError, Finding, LoadId, Rules};
use understudy_engine::lsm::{Environment, write_load};
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

/// The LSM engine, with these rules.
struct Lsm(Rules);

impl Subject for Lsm {
    fn open(&self, dir: &Path) -> Result<Box<dyn Engine>, EngineError> {
        let environment = Environment::of_process().with_rules(self.0);
        Ok(Box::new(LsmEngine::open_in(dir, environment)?))
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
    conformance::check(&Lsm(Rules::ALL));
}

/// Bugs of the LSM engine (`docs/rules.md`), and a case that finds each. The others show when a disk fails or
/// loses power.
const FOUND: [(Finding, &str); 11] = [
    (Finding::Le01, "a_restart_finds_the_checkpoint_and_replays"),
    (Finding::Le02, "a_background_checkpoint_is_of_one_position"),
    (Finding::Le03, "digests_do_not_depend_on_the_rhythm"),
    (Finding::Le04, "a_range_can_be_deleted_and_written_again"),
    (Finding::Le05, "what_is_published_during_an_installation_stays"),
    (Finding::Le06, "an_installed_state_is_the_senders"),
    (Finding::Le07, "a_load_is_visible_all_at_once"),
    (Finding::Le08, "tentative_entries_are_read_at_their_lsn_and_dropped"),
    (Finding::Le09, "publishing_changes_no_read"),
    (Finding::Le11, "pinned_files_outlive_what_takes_their_place"),
    (Finding::Le13, "what_is_read_ahead_changes_no_answer"),
];

#[test]
fn mutants_of_the_lsm_engine_are_found() {
    let survives = |(finding, case): &&(Finding, &str)| {
        let mutant = Lsm(Rules::without(*finding).expect("tests are built with mutants"));
        conformance::fault_of(&mutant, case).is_none()
    };
    let survived: Vec<_> = FOUND.iter().filter(survives).collect();
    assert!(survived.is_empty(), "not found: {survived:?}");
}
