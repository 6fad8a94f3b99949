//! Records workers: those that do their work, those in which a system call fails, and those that are killed
//! and started again.

use crate::check::examine;
use crate::fault::{Fault, Strike};
use crate::follow::{Ended, FollowError, follow};
use crate::promise::{Note, Promise};
use crate::record::{Change, Recorder, Recording, Step};
use crate::scenario::Scenario;
use crate::worker::{self, WorkerDirs};
use nix::libc;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use types::{Finding, Rules};

/// Set for the process that is followed: the directory of its places, what it does, and whether it only opens
/// what is there.
const WORKER: &str = "UNDERSTUDY_CRASH_WORKER";
const SCENARIO: &str = "UNDERSTUDY_CRASH_SCENARIO";
const FROM_SCRATCH: &str = "UNDERSTUDY_CRASH_ANEW";
/// The finding whose rule its engine lacks.
const MUTANT: &str = "UNDERSTUDY_CRASH_MUTANT";

/// A directory for files that nobody keeps, in main memory if there is some: nothing here rests on a disk.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).expect("a temporary directory")
}

/// If this process is a worker, it does its work and ends. Every test that records one begins with this.
pub fn work_if_asked() {
    let Some(base) = std::env::var_os(WORKER) else { return };
    let scenario = std::env::var(SCENARIO).ok().and_then(|name| Scenario::named(&name));
    let scenario = scenario.expect("a scenario is named beside the places");
    let mutant = std::env::var(MUTANT).ok().and_then(|id| Finding::parse(&id));
    let rules = mutant.map_or(Rules::ALL, |finding| Rules::without(finding).expect("a build with mutants"));
    worker::run(scenario, &PathBuf::from(base), std::env::var_os(FROM_SCRATCH).is_some(), rules);
}

/// What was recorded, and what is left.
pub struct Run {
    /// The scenario.
    pub scenario: Scenario,
    /// What was recorded.
    pub recording: Recording,
    /// The first step of the process that was started after another had been killed; 0 if none was.
    pub restarted: usize,
    base: TempDir,
}

impl Run {
    /// What the worker said.
    pub fn notes(&self) -> Vec<Note> {
        let note = |step: &Step| match &step.change {
            Change::Note(line) => Note::read(line),
            _ => None,
        };
        self.recording.steps.iter().filter_map(note).collect()
    }

    /// What is wrong with the files that the last process left, if something is. They are not the same
    /// afterwards.
    pub fn fault_of_what_is_left(&self) -> Option<String> {
        let mut promise = Promise::default();
        self.notes().into_iter().for_each(|note| promise.note(note));
        examine(self.scenario, &self.engine()).fault(&promise)
    }

    /// The directory in which the engine's files are, as the last process left them.
    fn engine(&self) -> PathBuf {
        WorkerDirs::below(self.base.path()).engine()
    }
}

/// What is recorded.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The test of this program that is a worker when it is started again.
    pub test: &'a str,
    /// What the worker does.
    pub scenario: Scenario,
    /// The finding whose rule its engine lacks.
    pub mutant: Option<Finding>,
}

/// Runs this program again for the test of this name, which is a worker there, and records it. If it is to be
/// killed, another one is started, which opens what it left.
pub fn record(test: &str, scenario: Scenario, fault: Option<Fault>) -> Result<Run, FollowError> {
    record_subject(Subject { test, scenario, mutant: None }, fault)
}

/// The same with an engine that may lack a rule.
pub fn record_subject(subject: Subject, fault: Option<Fault>) -> Result<Run, FollowError> {
    let scenario = subject.scenario;
    let base = scratch();
    let path = base.path().canonicalize().map_err(|error| FollowError::NotPermitted(error.to_string()))?;
    let places = WorkerDirs::below(&path);
    for dir in [&places.disk, &places.elsewhere] {
        fs::create_dir(dir).expect("a directory in an empty one");
    }
    File::create(&places.notes).expect("a file in an empty directory");
    let mut recorder = Recorder::new(&places.disk, &places.notes, fault).map_err(FollowError::Refused)?;
    let killed = fault.is_some_and(|fault| fault.strike == Strike::Kill);
    let mut ended = start(subject, &path, false, &mut recorder)?;
    let mut restarted = 0;
    if killed && ended == Ended::Signal(libc::SIGKILL) {
        recorder.ended();
        restarted = recorder.recording().steps.len();
        ended = start(subject, &path, true, &mut recorder)?;
    }
    let recording = recorder.into_recording();
    if ended == Ended::Code(0) {
        return Ok(Run { scenario, recording, restarted, base });
    }
    let said = fs::read_to_string(path.join("said")).unwrap_or_default();
    let injected = recording.injected.map(|injected| injected.to_string()).unwrap_or_default();
    Err(FollowError::Refused(format!(
        "{}: {injected}: the worker ended with {ended:?}\n{said}",
        scenario.name()
    )))
}

fn start(
    subject: Subject,
    base: &Path,
    from_scratch: bool,
    recorder: &mut Recorder,
) -> Result<Ended, FollowError> {
    let said = File::create(base.join("said")).expect("a file in a directory of ours");
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["--exact", subject.test, "--nocapture", "--test-threads=1"]);
    command.env(WORKER, base).env(SCENARIO, subject.scenario.name());
    if let Some(mutant) = subject.mutant {
        command.env(MUTANT, mutant.id());
    }
    if from_scratch {
        command.env(FROM_SCRATCH, "1");
    }
    command.stdin(Stdio::null()).stdout(said.try_clone().expect("a descriptor")).stderr(said);
    follow(&mut command, recorder)
}
