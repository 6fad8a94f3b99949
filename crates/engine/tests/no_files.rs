//! Want of open files: the limit is the whole process's, so this test has one of its own.

mod common;

use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use types::engine::ShipsFiles;
use types::{Engine, EngineError, Lsn, ReadAt};
use understudy_engine::LsmEngine;

/// Does something while nothing can be opened.
fn without_files<T>(act: impl FnOnce() -> T) -> T {
    let limits = getrlimit(Resource::Nofile);
    // It takes the lowest number that is free.
    let last = File::open("/dev/null").unwrap();
    let next = std::os::fd::AsRawFd::as_raw_fd(&last) as u64 + 1;
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), maximum: limits.maximum }).unwrap();
    let done = act();
    setrlimit(Resource::Nofile, limits).unwrap();
    done
}

#[test]
fn an_engine_without_open_files_goes_on_when_it_has_some() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = LsmEngine::open(&dir.path().join("engine")).unwrap();
    let mut model = Model::default();
    for lsn in 1..=20 {
        model.execute(&mut engine, at(lsn), vec![put(&format!("row {lsn}"), "value")]);
    }
    engine.publish(Lsn(10)).unwrap();
    engine.checkpoint().unwrap();
    without_files(|| {
        assert!(matches!(engine.get(&key("row 3"), ReadAt::Applied), Err(EngineError::Later(_))));
        let scanned = engine.scan(&key("a"), &[], ReadAt::Applied, 99, usize::MAX);
        assert!(matches!(scanned, Err(EngineError::Later(_))));
        assert!(matches!(engine.pin(), Err(EngineError::Later(_))));
        // What is in memory needs none.
        assert_eq!(read(&engine, "row 13", ReadAt::Applied), "value@13");
    });
    assert_eq!(read(&engine, "row 3", ReadAt::Applied), "value@3");
    engine.publish(Lsn(20)).unwrap();
    let flushed = without_files(|| engine.checkpoint());
    assert!(matches!(flushed, Err(EngineError::Full(_))), "{flushed:?}");
    assert_eq!((engine.persisted().lsn, engine.failed_write()), (Lsn(10), None));
    assert_eq!(engine.checkpoint().unwrap().lsn, Lsn(20));
    drop(engine);
    let engine = LsmEngine::open(&dir.path().join("engine")).unwrap();
    assert_eq!(all(&engine, ReadAt::Applied, 7), model.rows(Lsn(20)));
}
