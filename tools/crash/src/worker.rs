//! The process that is followed: it works with an engine and says what it was told.
//!
//! Where a system call is made to fail, it does what a node would: it tries again what found no room, and
//! opens the engine anew after any other error.

use crate::check;
use crate::follow::{NOT_FOLLOWED, let_oneself_be_followed};
use crate::promise::Note;
use crate::scenario::{LOAD, LOAD_AT, Scenario, at, load_rows};
use engine::LsmEngine;
use engine::lsm::{Environment, write_load};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::engine::BackgroundCheckpoints;
use types::engine::ShipsFiles;
use types::engine::StagesLoads;
use types::engine::{Checkpoint, Wake};
use types::{Component, Engine, EngineError, Installation, Lsn, Rules, Staging};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Whoever works longer has come to a standstill.
const STANDSTILL_TIMEOUT: Duration = Duration::from_secs(300);
/// Bytes of a piece of a file that is received or staged.
const PIECE: usize = 9000;
/// So often is tried what fails.
const TRIES: usize = 4;
/// In so many turns a checkpoint has come to its end.
const TURNS: usize = 100;

/// The directories and files of a worker, below one directory.
#[derive(Clone, Debug)]
pub struct WorkerDirs {
    /// What is recorded.
    pub disk: PathBuf,
    /// Where the worker says things.
    pub notes: PathBuf,
    /// What is not recorded.
    pub elsewhere: PathBuf,
}

impl WorkerDirs {
    /// Below `base`.
    pub fn below(base: &Path) -> WorkerDirs {
        WorkerDirs { disk: base.join("disk"), notes: base.join("notes"), elsewhere: base.join("elsewhere") }
    }

    /// The engine's directory.
    pub fn engine(&self) -> PathBuf {
        self.disk.join("engine")
    }
}

/// Lets itself be followed, does all of the scenario, and ends the process. If it is `from_scratch`, it goes
/// on with what another one left. Its engine follows these rules.
pub fn run(scenario: Scenario, base: &Path, from_scratch: bool, rules: Rules) -> ! {
    std::thread::spawn(|| {
        std::thread::sleep(STANDSTILL_TIMEOUT);
        eprintln!("it has not come to its end in {STANDSTILL_TIMEOUT:?}");
        std::process::exit(1);
    });
    if let Err(why) = let_oneself_be_followed() {
        eprintln!("this process cannot let itself be followed: {why}");
        std::process::exit(NOT_FOLLOWED);
    }
    let mut worker = Worker::begin(scenario, WorkerDirs::below(base), rules);
    match scenario {
        _ if from_scratch => worker.goes_on(),
        Scenario::Flush => worker.flushes(),
        Scenario::Merge => worker.merges(),
        Scenario::Install => worker.installs(),
        Scenario::Load => worker.loads(),
        Scenario::Refill => worker.refills(),
    }
    drop(worker);
    std::process::exit(0);
}

/// The engine in a directory, with these rules.
fn open(dir: &Path, rules: Rules) -> Result<LsmEngine, EngineError> {
    LsmEngine::open_in(dir, Environment::of_process().with_rules(rules))
}

struct Worker {
    scenario: Scenario,
    rules: Rules,
    places: WorkerDirs,
    notes: File,
    /// None while it is opened.
    engine: Option<LsmEngine>,
    /// The newest entry.
    last: Lsn,
    /// The files of the load, once they are made: made again they would have other digests.
    load: Option<Vec<(Component, PathBuf)>>,
    wake: Wake,
    woken: Receiver<()>,
}

impl Worker {
    fn begin(scenario: Scenario, places: WorkerDirs, rules: Rules) -> Worker {
        let notes = OpenOptions::new().append(true).open(&places.notes).expect("the notes are there");
        let (sender, woken) = channel();
        let sender = Mutex::new(sender);
        let wake: Wake = Arc::new(move || {
            // Nobody may be there to be woken any more.
            let _ = sender.lock().expect("nobody panics with it").send(());
        });
        let (last, load) = (Lsn::ZERO, None);
        let mut worker = Worker { scenario, rules, places, notes, engine: None, last, load, wake, woken };
        worker.open();
        worker
    }

    fn note(&mut self, note: Note) {
        self.notes.write_all(note.line().as_bytes()).expect("the notes can be written");
    }

    fn engine(&mut self) -> &mut LsmEngine {
        self.engine.as_mut().expect("it is open")
    }

    /// Opens the engine, which must be right, and brings it to the newest entry.
    fn open(&mut self) {
        self.engine = None;
        let dir = self.places.engine();
        let mut tries = 0;
        let engine = loop {
            match open(&dir, self.rules) {
                Ok(engine) => match check::content(self.scenario, &engine) {
                    Ok(()) => break engine,
                    Err(why) if why.starts_with(check::UNREADABLE) && tries < TRIES => {
                        self.note(Note::Failed);
                    }
                    Err(why) => panic!("right after it was opened: {why}"),
                },
                Err(error) if tries < TRIES => self.note_error(&error),
                Err(error) => panic!("it does not open any more: {error}"),
            }
            tries += 1;
        };
        let persisted = engine.persisted().lsn;
        self.engine = Some(engine);
        self.note(Note::Opened(persisted));
        let last = self.last;
        self.last = persisted;
        while self.last < last {
            self.execute();
        }
    }

    fn note_error(&mut self, error: &EngineError) {
        eprintln!("the engine answers: {error}");
        self.note(if matches!(error, EngineError::Full(_)) { Note::Full } else { Note::Failed });
    }

    /// One more entry.
    fn execute(&mut self) {
        let lsn = self.last.next();
        let entry = self.scenario.entry(lsn);
        if self.scenario.loads_at(lsn) {
            self.stage();
            self.engine().execute_load(at(lsn), LOAD, &entry);
        } else {
            self.engine().execute(at(lsn), &entry);
        }
        self.last = lsn;
    }

    /// So many more entries, published.
    fn run(&mut self, entries: u64) {
        for _ in 0..entries {
            self.execute();
        }
        let last = self.last;
        self.engine().publish(last).expect("it is done in memory");
    }

    /// Does it until it succeeds.
    fn until_done(&mut self, what: &str, mut act: impl FnMut(&mut Worker) -> Result<(), EngineError>) {
        for _ in 0..TRIES {
            let Err(error) = act(self) else { return };
            eprintln!("{what}:");
            self.note_error(&error);
            if matches!(error, EngineError::Full(_)) {
                continue;
            }
            // It is damaged and says so, or what it says holds.
            match self.engine().checkpoint() {
                Ok(persisted) => self.note(Note::Persisted(persisted.lsn)),
                Err(error) => self.note_error(&error),
            }
            self.open();
        }
        panic!("{what} fails again and again");
    }

    /// Keeps everything, a load among it, and waits for it if it is not done `beside` other work.
    fn checkpoint(&mut self, beside: bool) {
        self.until_done("a checkpoint", |worker| {
            let last = worker.last;
            worker.aim(last);
            for _ in 0..TURNS {
                worker.engine().publish(last)?;
                if worker.engine().persisted().lsn == last {
                    worker.note(Note::Persisted(last));
                    return Ok(());
                }
                if beside {
                    worker.checkpoint_beside()?;
                } else {
                    worker.engine().checkpoint()?;
                }
            }
            panic!("a checkpoint makes no progress");
        });
    }

    /// Says what is about to be kept. A load is kept for itself.
    fn aim(&mut self, last: Lsn) {
        let loads = self.engine().pending_load().is_some();
        if loads {
            self.note(Note::Unstaged);
            self.note(Note::Aim(LOAD_AT.prev()));
            self.note(Note::Aim(LOAD_AT));
            self.engine().allow_load(LOAD_AT);
        }
        self.note(Note::Aim(last));
    }

    fn checkpoint_beside(&mut self) -> Result<(), EngineError> {
        let wake = self.wake.clone();
        let mut stands = self.engine().begin_checkpoint(&wake)?;
        if stands == Checkpoint::Idle {
            self.engine().wait_for_merge()?;
        }
        while stands != Checkpoint::Idle {
            self.woken.recv_timeout(ANSWER_TIMEOUT).expect("it is woken while it waits");
            stands = self.engine().go_on_checkpoint()?;
        }
        Ok(())
    }

    fn goes_on(&mut self) {
        self.run(3);
        self.checkpoint(false);
    }

    fn flushes(&mut self) {
        for round in 0..4 {
            self.run(12);
            self.checkpoint(round % 2 == 1);
            if round == 2 {
                self.open();
            }
        }
    }

    fn merges(&mut self) {
        for round in 0..9 {
            self.run(8);
            self.checkpoint(round % 2 == 1);
            let last = self.last;
            self.engine().raise_read_floor(last);
            self.until_done("a merge", |worker| worker.engine().wait_for_merge());
        }
    }

    fn installs(&mut self) {
        let mut source = open(&self.places.elsewhere.join("source"), self.rules).expect("it opens");
        for round in 0..4u64 {
            let behind = self.last;
            self.run(15);
            for lsn in (behind.0 + 1..=self.last.0).map(Lsn) {
                source.execute(at(lsn), &self.scenario.entry(lsn));
            }
            // What the set lacks stays in the memory of who installs it.
            let upto = Lsn(self.last.0 - round % 2 * 3);
            source.publish(upto).expect("it is done in memory");
            source.checkpoint().expect("nothing of it fails");
            source.wait_for_merge().expect("nothing of it fails");
            // The second set is given up for the third half-way.
            let pieces = if round == 1 { 2 } else { usize::MAX };
            self.until_done("an installation", |worker| worker.install(&mut source, pieces));
        }
    }

    fn install(&mut self, source: &mut LsmEngine, pieces: usize) -> Result<(), EngineError> {
        let (pin, set) = source.pin()?.expect("it has files");
        self.note(Note::Aim(set.at.lsn));
        if !self.engine().receive(set.clone())? {
            assert_eq!(self.engine().persisted(), set.at, "it refuses only what it has");
            return Ok(());
        }
        let wake = self.wake.clone();
        let mut sent = 0;
        loop {
            while let Some(missing) = self.engine().missing().first().copied() {
                if sent == pieces {
                    return Ok(());
                }
                let piece =
                    source.read_component(pin, missing.file, missing.from, PIECE)?.expect("it is pinned");
                assert!(self.engine().receive_piece(missing.file, missing.from, &piece)?);
                sent += 1;
            }
            let mut stands = self.engine().begin_installation(&wake)?;
            while stands == Installation::Waiting {
                self.woken.recv_timeout(ANSWER_TIMEOUT).expect("it is woken while it waits");
                stands = self.engine().go_on_installation()?;
            }
            match stands {
                Installation::Done => break,
                Installation::Tainted(_) => {}
                other => panic!("the installation ends with {other:?}"),
            }
        }
        source.unpin(pin);
        self.note(Note::Persisted(set.at.lsn));
        Ok(())
    }

    fn loads(&mut self) {
        self.run(20);
        self.checkpoint(false);
        // One that nobody wants in the end.
        self.stage();
        self.note(Note::Unstaged);
        self.until_done("giving a load up", |worker| worker.engine().unstage(LOAD));
        self.run(10);
        self.stage();
        self.run(1);
        self.checkpoint(true);
        self.run(9);
        self.checkpoint(true);
    }

    /// Stages the load's files.
    fn stage(&mut self) {
        if self.engine().staged(LOAD).is_some() {
            return;
        }
        let files = self.load.get_or_insert_with(|| {
            let scratch = self.places.elsewhere.join(format!("load of {}", std::process::id()));
            write_load(&scratch, LOAD, load_rows()).expect("nothing of it fails")
        });
        let files = files.clone();
        let named: Vec<Component> = files.iter().map(|(file, _)| *file).collect();
        self.until_done("staging", |worker| {
            loop {
                match worker.engine().stage(LOAD, &named)? {
                    Staging::Wants { file, from } => {
                        let content = std::fs::read(&files[file as usize].1)?;
                        let end = content.len().min(from as usize + PIECE);
                        let piece = &content[from as usize..end];
                        assert!(worker.engine().stage_piece(LOAD, file as usize, from, piece)?);
                    }
                    Staging::Checking => std::thread::yield_now(),
                    Staging::Ready(_) => break,
                    Staging::Refused(why) => panic!("the load is refused: {why}"),
                }
            }
            worker.note(Note::Staged);
            Ok(())
        });
    }

    fn refills(&mut self) {
        self.run(20);
        self.checkpoint(false);
        for base in [Lsn(40), Lsn(70)] {
            self.until_done("a refill", |worker| {
                worker.note(Note::Reset);
                worker.note(Note::Aim(base));
                worker.engine().reset(at(base))?;
                for rows in worker.scenario.rows(base).chunks(20) {
                    worker.engine().install(rows)?;
                }
                worker.engine().finish_install()?;
                worker.note(Note::Persisted(base));
                Ok(())
            });
            self.last = self.engine().applied().lsn;
            self.run(5);
            self.checkpoint(false);
        }
    }
}
