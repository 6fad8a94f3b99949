//! What is seen of a process that is followed.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use understudy_crash::Errno;
use understudy_crash::fault::{Fault, Strike};
use understudy_crash::follow::{Ended, FollowError, NOT_FOLLOWED, follow, let_oneself_be_followed};
use understudy_crash::record::{Change, Recorder, Recording};
use understudy_crash::run::scratch;

/// Set for the process that is followed: its directory.
const DIR: &str = "UNDERSTUDY_FOLLOW_DIR";

/// If this process is the one that is followed, it does its work and ends; it succeeds if that is true in the
/// end.
fn work_if_asked(work: impl FnOnce(&Path) -> bool) {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let code = match let_oneself_be_followed() {
        Ok(()) => i32::from(!work(&dir)),
        Err(_) => NOT_FOLLOWED,
    };
    std::process::exit(code);
}

/// Records this test's work in a directory of its own; none if the system does not permit that.
fn recorded(test: &str, fault: Option<Fault>) -> Option<Result<(Ended, Recording), String>> {
    let dir = scratch();
    let path = dir.path().canonicalize().unwrap();
    let mut recorder = Recorder::new(&path, Path::new("/nowhere"), fault).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(DIR, &path);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    match follow(&mut command, &mut recorder) {
        Ok(ended) => Some(Ok((ended, recorder.into_recording()))),
        Err(FollowError::Refused(why)) => Some(Err(why)),
        Err(FollowError::NotPermitted(why)) => {
            eprintln!("{test} is skipped: {why}");
            None
        }
    }
}

#[test]
fn a_call_that_nobody_knows_is_refused() {
    // The engine makes no symbolic links.
    work_if_asked(|dir| std::os::unix::fs::symlink("elsewhere", dir.join("link")).is_ok());
    let Some(outcome) = recorded("a_call_that_nobody_knows_is_refused", None) else { return };
    let why = outcome.expect_err("nobody knows it");
    assert!(why.contains("nobody knows what it does to files"), "{why}");
}

#[test]
fn what_threads_do_is_seen_in_the_order_in_which_it_takes_effect() {
    work_if_asked(|dir| {
        let make = |thread: usize| {
            let dir = dir.to_owned();
            std::thread::spawn(move || {
                for file in 0..50 {
                    // The other thread does so, too: whoever comes first makes it.
                    let path = dir.join(format!("file {file}"));
                    fs::write(&path, format!("{thread}")).unwrap();
                    fs::rename(&path, dir.join(format!("last of {thread}"))).unwrap_or_default();
                }
            })
        };
        let threads = [make(0), make(1)];
        threads.into_iter().all(|thread| thread.join().is_ok())
    });
    let test = "what_threads_do_is_seen_in_the_order_in_which_it_takes_effect";
    let Some(outcome) = recorded(test, None) else { return };
    let (ended, recording) = outcome.unwrap();
    assert_eq!(ended, Ended::Code(0));
    let mut names = std::collections::BTreeSet::new();
    for (number, step) in recording.steps.iter().enumerate() {
        match &step.change {
            Change::Name(entry, _) => assert!(names.insert(entry.name.clone()), "{number}: {step}"),
            Change::Rename(from, to, _) => {
                assert!(names.remove(&from.name), "{number}: {step}");
                names.insert(to.name.clone());
            }
            _ => {}
        }
    }
    assert!(!names.is_empty() && names.iter().all(|name| name.starts_with("last of")), "{names:?}");
}

#[test]
fn a_call_fails_that_is_to_fail() {
    work_if_asked(|dir| {
        let full = fs::write(dir.join("a"), "text").unwrap_err();
        full.raw_os_error() == Some(28) && fs::write(dir.join("a"), "text").is_ok()
    });
    let fault = Fault { from: 0, strike: Strike::Fail(Errno::ENOSPC) };
    let Some(outcome) = recorded("a_call_fails_that_is_to_fail", Some(fault)) else { return };
    let (ended, recording) = outcome.unwrap();
    assert_eq!(ended, Ended::Code(0));
    let made = |step: &&understudy_crash::record::Step| matches!(step.change, Change::Name(..));
    assert_eq!(recording.steps.iter().filter(made).count(), 1, "{:?}", recording.steps);
    assert_eq!(recording.injected.map(|injected| injected.at.call), Some("open"));
}

#[test]
fn a_process_is_killed_before_a_call() {
    work_if_asked(|dir| fs::write(dir.join("a"), "text").is_ok() && fs::write(dir.join("b"), "text").is_ok());
    let fault = Fault { from: 2, strike: Strike::Kill };
    let Some(outcome) = recorded("a_process_is_killed_before_a_call", Some(fault)) else { return };
    let (ended, recording) = outcome.unwrap();
    assert_eq!(ended, Ended::Signal(9));
    let paths: Vec<_> = recording.steps.iter().map(|step| &step.path[..]).collect();
    assert_eq!(paths, ["a", "a"], "made and written");
}
