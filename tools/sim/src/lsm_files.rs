//! The real files under a world's LSM engines, and what becomes of them when processes die and machines lose
//! power.
//!
//! Each engine has a directory of its own, on a file system in memory where there is one. Whenever the engine
//! says that it has made something durable, the directory is noted: as hard links, since a file that counts
//! is written once and then replaced by rename. A process that dies leaves the directory as it is. After a
//! loss of power there is either that too, as all of it may have reached the disk, or what was noted last.
//!
//! What an engine does beside its calls waits here as jobs. The world gives each a time; who waits for one
//! has it run at once; a crash drops it, or cuts it off where it had just made something durable.

mod engine_dir;
mod trouble;

pub use trouble::Trouble;

use crate::random::Stream;
use engine::lsm::{Environment, LsmEngine, SharedFiles};
use engine_dir::{Beside, EngineDir, removed};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use types::{EngineError, PartitionId, Rules};

/// Component files that the engines of one world keep open.
const OPEN_FILES: usize = 48;

/// Bytes that the worlds of a process that run at the same time need at most, by far.
const ROOM: usize = 16 << 20;

/// Where an engine's files are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Whose disk.
    pub node: u32,
    /// In the second directory.
    pub second: bool,
    /// Of which partition.
    pub partition: PartitionId,
}

/// A job that has no time yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewJob {
    /// The engine's.
    pub place: Place,
    /// Its number.
    pub job: u64,
}

/// The directories of all LSM engines of a world.
pub struct LsmFiles {
    root: Option<PathBuf>,
    shared: SharedFiles,
    rules: Rules,
    /// Decides when jobs run and what crashes leave.
    pub random: Stream,
    dirs: BTreeMap<Place, Arc<EngineDir>>,
    /// What is wrong at each node.
    troubles: BTreeMap<u32, Arc<Trouble>>,
    /// A job was begun that has no time yet.
    begun: Arc<AtomicBool>,
    /// Files that were damaged: whose, and which.
    damaged: Vec<(u32, u64)>,
}

impl LsmFiles {
    /// None yet; engines follow these rules.
    pub fn new(random: Stream, rules: Rules) -> LsmFiles {
        LsmFiles {
            root: None,
            shared: SharedFiles::new(OPEN_FILES),
            rules,
            random,
            dirs: BTreeMap::new(),
            troubles: BTreeMap::new(),
            begun: Arc::default(),
            damaged: Vec::new(),
        }
    }

    /// The directory of this world, if there is one.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// The directory of this world, made if it is not there.
    pub fn make_root(&mut self) -> io::Result<&Path> {
        if self.root.is_none() {
            self.root = Some(new_root()?);
        }
        Ok(self.root.as_deref().expect("just made"))
    }

    /// The engine in a place, as its files have it, or empty. With the reason if those cannot be used, and
    /// then empty.
    pub fn open(&mut self, place: Place) -> Result<(LsmEngine, Option<String>), String> {
        match self.open_files(place) {
            Ok(engine) => Ok((engine, None)),
            Err(EngineError::Corrupt(reason)) => {
                self.remove(place);
                let engine = self.open_files(place).map_err(|error| error.to_string())?;
                Ok((engine, Some(reason)))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn open_files(&mut self, place: Place) -> Result<LsmEngine, EngineError> {
        let dir = self.dir(place)?;
        let environment = Environment::simulated(Arc::new(Beside(dir.clone())), &self.shared);
        let environment = environment.with_rules(self.rules);
        let path = dir.engine();
        LsmEngine::open_in(&path, environment)
    }

    fn dir(&mut self, place: Place) -> io::Result<Arc<EngineDir>> {
        if let Some(dir) = self.dirs.get(&place) {
            return Ok(dir.clone());
        }
        let name = if place.second { "second" } else { "first" };
        let path = self.make_root()?.join(format!("n{}-{name}-p{}", place.node, place.partition.0));
        fs::create_dir(&path)?;
        let dir = Arc::new(EngineDir::new(path, self.begun.clone(), self.trouble(place.node)));
        self.dirs.insert(place, dir.clone());
        Ok(dir)
    }

    /// What is wrong under the engines of a node.
    pub fn trouble(&mut self, node: u32) -> Arc<Trouble> {
        self.troubles.entry(node).or_default().clone()
    }

    /// True while something is wrong, or will soon be, under the engines of a node.
    pub fn is_troubled(&self, node: u32) -> bool {
        self.troubles.get(&node).is_some_and(|trouble| trouble.is_there())
    }

    /// What engines' calls were made to fail with since the last look, by name.
    pub fn take_injected(&self) -> Vec<&'static str> {
        self.troubles.values().flat_map(|trouble| trouble.take_injected()).collect()
    }

    /// Places on a node's disk in which there are files.
    pub fn places(&self, node: u32) -> Vec<Place> {
        let ours = self.dirs.iter().filter(|(place, _)| place.node == node);
        ours.filter(|(_, dir)| dir.engine().exists()).map(|(place, _)| *place).collect()
    }

    /// Jobs that were begun since the last call, in order.
    pub fn new_jobs(&mut self) -> Vec<NewJob> {
        if !self.begun.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        let new = |(place, dir): (&Place, &Arc<EngineDir>)| {
            let jobs = dir.take_new();
            jobs.into_iter().map(|job| NewJob { place: *place, job }).collect::<Vec<_>>()
        };
        self.dirs.iter().flat_map(new).collect()
    }

    /// Runs a job. False if that was done already, or it was dropped.
    pub fn run(&self, NewJob { place, job }: NewJob) -> bool {
        self.dirs.get(&place).is_some_and(|dir| dir.run(job))
    }

    /// The process of a node dies: what it had begun is not done any more, or not to the end. True if
    /// something was cut off.
    pub fn stop(&mut self, node: u32) -> bool {
        let mut cut = false;
        for (_, dir) in self.dirs.iter().filter(|(place, _)| place.node == node) {
            cut |= dir.stop(&mut self.random);
        }
        cut
    }

    /// A place is out of reach: nothing more is done there.
    pub fn abandon(&mut self, place: Place) {
        if let Some(dir) = self.dirs.get(&place) {
            dir.drop_jobs();
        }
    }

    /// The process of a node is gone, and its engines with it; of what its machine had not synced, if it
    /// `lost_power`, all may be gone too. True if it is.
    pub fn stopped(&mut self, node: u32, lost_power: bool) -> bool {
        self.trouble(node).process_ended();
        let mut any = false;
        for (_, dir) in self.dirs.iter().filter(|(place, _)| place.node == node) {
            let back = lost_power && self.random.chance(600);
            dir.stopped(back);
            any |= back;
        }
        any
    }

    /// Removes an engine's files.
    pub fn remove(&mut self, place: Place) {
        if let Some(dir) = self.dirs.remove(&place) {
            dir.drop_jobs();
            removed(dir.path());
        }
    }

    /// Removes all of a node's, or all that are in its second directory.
    pub fn wipe(&mut self, node: u32, only_second: bool) {
        let ours = |place: &&Place| place.node == node && (place.second || !only_second);
        let gone: Vec<Place> = self.dirs.keys().filter(ours).copied().collect();
        gone.into_iter().for_each(|place| self.remove(place));
    }

    /// True if a node has trees in files.
    pub fn has_trees(&self, node: u32) -> bool {
        !self.places(node).is_empty()
    }

    /// Changes a bit of a component file. False if there is none.
    pub fn rot(&mut self, node: u32) -> bool {
        let mut files = Vec::new();
        for place in self.places(node) {
            let current = self.dirs[&place].engine();
            tables_in(&current, &mut files);
        }
        let Some(path) = self.random.pick(&files).cloned() else { return false };
        let done = (|| {
            let file = fs::OpenOptions::new().read(true).write(true).open(&path)?;
            let found = file.metadata()?;
            let (at, mut byte) = (self.random.below(found.len().max(1)), [0]);
            file.read_exact_at(&mut byte, at)?;
            file.write_all_at(&[byte[0] ^ 1 << self.random.below(8)], at)
        })();
        done.is_ok() && self.note_damaged(node, &path).is_ok()
    }

    /// A file of an engine loses its end, at any byte. False if there is none with something in it.
    pub fn cut(&mut self, node: u32) -> bool {
        let mut files = Vec::new();
        for place in self.places(node) {
            all_files(&self.dirs[&place].engine(), &mut files);
        }
        let length = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        files.retain(|path| length(path) > 0);
        let Some(path) = self.random.pick(&files).cloned() else { return false };
        let at = self.random.below(length(&path));
        let cut = fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(at));
        cut.is_ok() && self.note_damaged(node, &path).is_ok()
    }

    /// A file was damaged. It is kept, so that no other one is given its number.
    fn note_damaged(&mut self, node: u32, path: &Path) -> io::Result<()> {
        let number = fs::metadata(path)?.ino();
        let root = self.root.as_ref().expect("there is a file in it");
        fs::hard_link(path, root.join(format!("damaged-{number}")))
            .or_else(|error| if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })?;
        self.damaged.push((node, number));
        Ok(())
    }

    /// True if a file that was damaged is still one of this node's.
    pub fn is_damaged(&self, node: u32) -> bool {
        let ours = |(of, _): &&(u32, u64)| *of == node;
        if !self.damaged.iter().any(|damaged| ours(&damaged)) {
            return false;
        }
        let mut files = Vec::new();
        for place in self.places(node) {
            all_files(&self.dirs[&place].engine(), &mut files);
        }
        let numbers: Vec<u64> =
            files.iter().filter_map(|path| Some(fs::metadata(path).ok()?.ino())).collect();
        self.damaged.iter().filter(ours).any(|(_, number)| numbers.contains(number))
    }

    /// What an engine that is at rest has no use for.
    pub fn left_over(&self, place: Place) -> Vec<String> {
        let Some(dir) = self.dirs.get(&place) else { return Vec::new() };
        let names = names_in(&dir.engine());
        let trees = names.iter().filter(|name| name.starts_with("tree-")).count();
        let mut left: Vec<String> = names.into_iter().filter(|name| name == "incoming").collect();
        if trees > 1 {
            left.push(format!("{trees} trees"));
        }
        left
    }
}

impl Drop for LsmFiles {
    fn drop(&mut self) {
        if let Some(root) = &self.root {
            // Nobody uses it any more; what cannot be removed is the system's to clean.
            let _ = fs::remove_dir_all(root);
        }
    }
}

/// Where worlds have their directories: on a file system in memory if there is one with room, else where
/// temporary files are. The error is one line.
pub fn scratch() -> Result<PathBuf, String> {
    static BASE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BASE.get_or_init(|| first_with_room(&[PathBuf::from("/dev/shm"), std::env::temp_dir()])).clone()
}

/// The first of these directories that takes what worlds write.
fn first_with_room(bases: &[PathBuf]) -> Result<PathBuf, String> {
    let mut faults = Vec::new();
    for base in bases {
        let probe = base.join(format!("understudy-sim-{}-probe", std::process::id()));
        let written = fs::write(&probe, vec![1; ROOM]);
        let _ = fs::remove_file(&probe);
        match written {
            Ok(()) => return Ok(base.clone()),
            Err(error) => faults.push(format!("{}: {error}", base.display())),
        }
    }
    Err(format!("there is no place for the simulator's {ROOM} bytes of files: {}", faults.join("; ")))
}

/// A directory that no other world uses.
fn new_root() -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let base = scratch().map_err(io::Error::other)?;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = base.join(format!("understudy-sim-{}-{number}", std::process::id()));
        match fs::create_dir(&root) {
            // One that a process of this number left behind.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| root),
        }
    }
}

/// Names in a directory, in order.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The component files of an engine's trees, in the order of their numbers.
fn tables_in(engine: &Path, found: &mut Vec<PathBuf>) {
    for tree in names_in(engine).into_iter().filter(|name| name.starts_with("tree-")) {
        let tables = engine.join(tree).join("tables");
        found.extend(names_in(&tables).into_iter().map(|name| tables.join(name)));
    }
}

fn all_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for path in names_in(dir).into_iter().map(|name| dir.join(name)) {
        match path.is_dir() {
            true => all_files(&path, found),
            false => found.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Concern;
    use types::engine::BackgroundCheckpoints;
    use types::engine::{Checkpoint, ReadAt};
    use types::{Engine, Lsn, Mutation, Position, Term};

    const PLACE: Place = Place { node: 1, second: false, partition: PartitionId(64) };

    fn files(seed: u64) -> LsmFiles {
        LsmFiles::new(Stream::new(seed, Concern::Engines, 1), Rules::ALL)
    }

    fn write(engine: &mut LsmEngine, lsn: u64) -> Checkpoint {
        let at = Position::new(Term(1), Lsn(lsn));
        let value = Some(lsn.to_string().into_bytes().into());
        engine.execute(at, &[Mutation { key: vec![types::engine::space::ROW, lsn as u8].into(), value }]);
        engine.publish(at.lsn).expect("takes it");
        engine.begin_checkpoint(&(Arc::new(|| {}) as types::engine::Wake)).expect("begins")
    }

    fn persisted(engine: &LsmEngine) -> u64 {
        engine.persisted().lsn.0
    }

    #[test]
    fn a_place_that_takes_nothing_is_skipped_and_none_is_one_line() {
        let none = PathBuf::from("/proc/none");
        assert_eq!(first_with_room(&[none.clone(), std::env::temp_dir()]), Ok(std::env::temp_dir()));
        let fault = first_with_room(&[none]).unwrap_err();
        assert!(fault.contains("/proc/none") && !fault.contains('\n'), "{fault}");
    }

    #[test]
    fn a_job_runs_when_it_is_told_to_or_waited_for() {
        let mut files = files(1);
        let (mut engine, trouble) = files.open(PLACE).expect("opens");
        assert_eq!((trouble, files.new_jobs()), (None, vec![]));
        assert_eq!(write(&mut engine, 1), Checkpoint::Waiting);
        let jobs = files.new_jobs();
        assert_eq!(jobs.len(), 1);
        assert_eq!(
            (engine.go_on_checkpoint().expect("goes on"), persisted(&engine)),
            (Checkpoint::Waiting, 0)
        );
        assert!(files.run(jobs[0]) && !files.run(jobs[0]));
        assert_eq!((engine.go_on_checkpoint().expect("goes on"), persisted(&engine)), (Checkpoint::Idle, 1));
        write(&mut engine, 2);
        assert_eq!(engine.checkpoint().expect("waits"), Position::new(Term(1), Lsn(2)));
        let jobs = files.new_jobs();
        assert!(!files.run(jobs[0]), "it was run for who waited");
    }

    #[test]
    fn a_crash_drops_a_job_or_cuts_it_off_and_what_was_durable_stays() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..60 {
            let mut files = files(seed);
            let (mut engine, _) = files.open(PLACE).expect("opens");
            write(&mut engine, 1);
            engine.checkpoint().expect("waits");
            write(&mut engine, 2);
            files.stop(1);
            drop(engine);
            files.stopped(1, seed % 2 == 0);
            let (engine, trouble) = files.open(PLACE).expect("opens");
            assert_eq!(trouble, None);
            let found = persisted(&engine);
            let rows = engine.scan(&[], &[], ReadAt::Applied, 9, 999).expect("reads").len() as u64;
            assert_eq!(rows, found, "seed {seed}");
            seen.insert(found);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_damaged_file_is_known_until_it_is_gone() {
        let mut files = files(3);
        let (mut engine, _) = files.open(PLACE).expect("opens");
        assert!(!files.rot(1), "there is none");
        write(&mut engine, 1);
        engine.checkpoint().expect("waits");
        assert!(!files.is_damaged(1) && files.rot(1) && files.is_damaged(1) && !files.is_damaged(2));
        assert!(engine.verify().is_err());
        drop(engine);
        files.wipe(1, false);
        assert!(!files.is_damaged(1) && files.places(1).is_empty());
        assert!(files.root().is_some_and(Path::is_dir));
    }

    #[test]
    fn a_file_that_is_cut_at_any_byte_is_damage_or_is_missed_by_nobody() {
        let mut damaged = 0;
        for seed in 0..40 {
            let mut files = files(seed);
            assert!(!files.cut(1), "there is none");
            let (mut engine, _) = files.open(PLACE).expect("opens");
            for lsn in 1..=3 {
                write(&mut engine, lsn);
                engine.checkpoint().expect("waits");
            }
            files.stop(1);
            drop(engine);
            files.stopped(1, false);
            assert!(files.cut(1) && files.is_damaged(1), "seed {seed}");
            let (mut engine, trouble) = files.open(PLACE).expect("opens, with what is there or empty");
            if trouble.is_some() || engine.verify().is_err() {
                damaged += 1;
                continue;
            }
            let rows = engine.scan(&[], &[], ReadAt::Applied, 9, 999).expect("reads");
            assert_eq!(rows.len(), 3, "seed {seed}: nobody needs what is gone");
        }
        assert!(damaged >= 10, "{damaged} of 40");
    }
}
