//! The directory of one engine: its files, what was durable of them, and the jobs that wait.

use super::trouble::Trouble;
use crate::random::Stream;
use engine::lsm::{Background, FileCall, Job, Running};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One engine's directory: its files in `engine`, and what was durable in `durable-N`.
pub(super) struct EngineDir {
    path: PathBuf,
    begun: Arc<AtomicBool>,
    trouble: Arc<Trouble>,
    state: Mutex<DirState>,
}

struct DirState {
    jobs: BTreeMap<u64, Job>,
    next: u64,
    /// Jobs that have no time yet.
    new: Vec<u64>,
    /// What was durable, oldest first: the last one counts.
    durable: Vec<PathBuf>,
    noted: u64,
    /// Earlier ones are kept too, while a job runs that is to be cut off.
    keeps: bool,
    /// A job was cut off: what it did after that it did not do.
    cut: bool,
    /// Files whose sync failed: of these nothing is on the disk, whatever a later sync says.
    lost: BTreeSet<u64>,
}

impl DirState {
    /// Forgets what was durable before.
    fn keep_last(&mut self) {
        let Some(last) = self.durable.pop() else { return };
        self.durable.drain(..).for_each(|earlier| removed(&earlier));
        self.durable.push(last);
    }

    /// The directory is again what was durable.
    fn go_back(&mut self, engine: &Path) {
        removed(engine);
        if let Some(last) = self.durable.last() {
            linked(last, engine, &BTreeSet::new());
        }
    }
}

impl EngineDir {
    /// An empty one, in `path`. `begun` becomes true when a job was begun.
    pub(super) fn new(path: PathBuf, begun: Arc<AtomicBool>, trouble: Arc<Trouble>) -> EngineDir {
        let state = DirState {
            jobs: BTreeMap::new(),
            next: 0,
            new: Vec::new(),
            durable: Vec::new(),
            noted: 0,
            keeps: false,
            cut: false,
            lost: BTreeSet::new(),
        };
        EngineDir { path, begun, trouble, state: Mutex::new(state) }
    }

    /// All of it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the engine is.
    pub(super) fn engine(&self) -> PathBuf {
        self.path.join("engine")
    }

    /// Jobs that have no time yet, once.
    pub(super) fn take_new(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().new)
    }

    /// What waits is not done any more.
    pub(super) fn drop_jobs(&self) {
        self.state().jobs.clear();
    }

    fn state(&self) -> MutexGuard<'_, DirState> {
        // A panic of a state machine is caught by the world, which is then over.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a job. False if that was done already, or it was dropped.
    pub(super) fn run(&self, job: u64) -> bool {
        let found = self.state().jobs.remove(&job);
        let is_there = found.is_some();
        found.into_iter().for_each(|job| job());
        is_there
    }

    /// What waits is dropped, or cut off in the middle: true then.
    pub(super) fn stop(&self, random: &mut Stream) -> bool {
        let mut is_cut = false;
        let waiting: Vec<u64> = self.state().jobs.keys().copied().collect();
        if let Some(job) = waiting.first().filter(|_| random.chance(600)) {
            self.state().keeps = true;
            self.run(*job);
            let mut state = self.state();
            state.keeps = false;
            let kept = state.durable.len() as u64;
            if kept > 1 {
                let last = random.below(kept) as usize + 1;
                let cut: Vec<PathBuf> = state.durable.drain(last..).collect();
                cut.iter().for_each(|later| removed(later));
                state.keep_last();
                is_cut = last < kept as usize;
                state.cut = is_cut;
            }
        }
        self.state().jobs.clear();
        is_cut
    }

    /// The engine is gone; `back`: its files are what was durable.
    pub(super) fn stopped(&self, back: bool) {
        let mut state = self.state();
        state.new.clear();
        // Not before the engine is gone: it removes files that it has no use for.
        if std::mem::take(&mut state.cut) || back {
            state.go_back(&self.engine());
        }
    }

    /// What a file has is on no disk, and will not be (F08). It is kept, so that no other file is given its
    /// number.
    fn never_durable(&self, path: &Path) {
        let Ok(found) = fs::metadata(path) else { return };
        if found.is_file() && self.state().lost.insert(found.ino()) {
            let kept = self.path.join(format!("lost-{}", found.ino()));
            fs::hard_link(path, kept).expect("there is room for a name");
        }
    }

    fn note_durable(&self) {
        let mut state = self.state();
        let noted = self.path.join(format!("durable-{}", state.noted));
        state.noted += 1;
        linked(&self.engine(), &noted, &state.lost);
        state.durable.push(noted);
        if !state.keeps {
            state.keep_last();
        }
    }
}

/// What an engine's jobs are begun by.
pub(super) struct Beside(pub(super) Arc<EngineDir>);

impl Background for Beside {
    fn start(&self, _: &'static str, job: Job) -> io::Result<Box<dyn Running>> {
        let mut state = self.0.state();
        let number = state.next;
        state.next += 1;
        state.jobs.insert(number, job);
        state.new.push(number);
        self.0.begun.store(true, Ordering::Relaxed);
        Ok(Box::new(Queued { dir: self.0.clone(), number }))
    }

    fn made_durable(&self) {
        self.0.note_durable();
    }

    fn before(&self, call: FileCall, path: &Path) -> io::Result<()> {
        let allowed = self.0.trouble.before(call);
        if allowed.is_err() && call == FileCall::Sync {
            self.0.never_durable(path);
        }
        allowed
    }
}

/// A job that waits for its time.
struct Queued {
    dir: Arc<EngineDir>,
    number: u64,
}

impl Running for Queued {
    fn is_over(&self) -> bool {
        !self.dir.state().jobs.contains_key(&self.number)
    }

    fn hurry(&mut self) {
        self.dir.run(self.number);
    }

    fn wait(&mut self) {}
}

/// Removes a directory that may be missing.
pub(super) fn removed(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => panic!("{}: {error}", path.display()),
        _ => {}
    }
}

/// Makes a directory of links to what another one has; of files that are `lost` there is the name alone.
fn linked(from: &Path, to: &Path, lost: &BTreeSet<u64>) {
    let done = (|| {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let name = to.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => linked(&entry.path(), &name, lost),
                false if lost.contains(&entry.ino()) => drop(fs::File::create(name)?),
                false => fs::hard_link(entry.path(), name)?,
            }
        }
        io::Result::Ok(())
    })();
    done.unwrap_or_else(|error| panic!("{} as {}: {error}", from.display(), to.display()));
}
