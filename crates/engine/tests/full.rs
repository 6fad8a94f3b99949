//! F20: a checkpoint that finds no room has changed nothing, and succeeds when there is room again.
//!
//! The system refuses files beyond a limit of the process's own, so the work is done by a process of its own.
//! It would be ended by a signal, which only a shell can have it ignore.

mod common;

use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use types::engine::Checkpoint;
use types::{Engine, EngineError, Lsn, ReadAt};

const LIMITED: &str = "UNDERSTUDY_TEST_LIMITED";

/// Runs a test of this name again, in a process that ignores the signal. False: this is that process.
fn elsewhere(name: &str) -> bool {
    if std::env::var_os(LIMITED).is_some() {
        return false;
    }
    let test = std::env::current_exe().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(test).args(["--exact", name]);
    let output = shell.env(LIMITED, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    true
}

fn room(bytes: Option<u64>) {
    let limits = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum: limits.maximum }).unwrap();
}

fn fill(engine: &mut dyn Engine, lsns: std::ops::RangeInclusive<u64>) {
    for lsn in lsns {
        engine.execute(at(lsn), &[put(&lsn.to_string(), &format!("{:x}", crc(lsn)).repeat(100))]);
        engine.publish(Lsn(lsn)).unwrap();
    }
}

/// Numbers that do not compress well.
fn crc(lsn: u64) -> u64 {
    lsn.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17).wrapping_mul(0x85eb_ca6b_27d4_eb4f)
}

/// As a node does it: none is begun while a merge runs, so it is tried again.
fn beside(engine: &mut dyn Engine) -> Result<(), EngineError> {
    while engine.persisted() < engine.published() {
        let mut stands = engine.begin_checkpoint(&(Arc::new(|| {}) as _))?;
        while stands != Checkpoint::Idle {
            std::thread::yield_now();
            stands = engine.go_on_checkpoint()?;
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn files_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(
            |entry| {
                if entry.path().is_dir() { files_of(&entry.path()) } else { entry.metadata().unwrap().len() }
            },
        )
        .sum()
}

fn a_full_disk_is_got_over<S: Subject>(checkpoint: impl Fn(&mut dyn Engine) -> Result<(), EngineError>) {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("engine");
    let mut engine = S::open(&place);
    fill(&mut engine, 1..=20);
    checkpoint(&mut engine).unwrap();
    fill(&mut engine, 21..=2000);
    let before = files_of(&place);
    room(Some(64 << 10));
    for _ in 0..3 {
        let error = checkpoint(&mut engine).unwrap_err();
        assert!(matches!(error, EngineError::Full(_)), "{error:?}");
    }
    assert_eq!(engine.persisted(), at(20));
    assert!(files_of(&place) < before + 1000, "nothing of the attempts is left");
    // It goes on meanwhile, and reads what it could not write.
    fill(&mut engine, 2001..=2100);
    let digest = engine.digest(ReadAt::Applied).unwrap();
    room(None);
    checkpoint(&mut engine).unwrap();
    checkpoint(&mut engine).unwrap();
    assert_eq!(engine.persisted(), at(2100));
    drop(engine);
    assert_eq!(S::open(&place).digest(ReadAt::Applied).unwrap(), digest);
}

#[test]
fn f20_a_full_disk_is_got_over_by_every_engine() {
    if elsewhere("f20_a_full_disk_is_got_over_by_every_engine") {
        return;
    }
    a_full_disk_is_got_over::<Lsm>(beside);
    a_full_disk_is_got_over::<Persistent>(beside);
    a_full_disk_is_got_over::<Lsm>(|engine| engine.checkpoint().map(drop));
    a_full_disk_is_got_over::<Persistent>(|engine| engine.checkpoint().map(drop));
}
