//! A set of components that is being received: its files grow in a directory of their own until the set is
//! whole.
//!
//! ```text
//! dir/incoming/set            which set, with its CRC-32C
//! dir/incoming/tree/          becomes the tree's directory by one rename
//! dir/incoming/tree/tables/N  a component; one that the current tree has as well is linked
//! ```
//!
//! Nothing here counts before [`Sealing`] has read every file back, compared it with its digest and synced
//! it, so a restart may find any of it torn. A file that is linked is read too: it was sound when it was
//! linked first, and may have rotted (F11).

use super::background::{FileCall, NoOutcome, Task};
use super::digest::{Watch, has_digest, order_files};
use super::environment::Environment;
use super::memtable::{Frozen, Memtable};
use super::tree::Tree;
use crate::files::{self, not_written, remove_if_there, sync_dir};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::engine::Wake;
use types::{Component, ComponentSet, EngineError, Missing};

const DIR: &str = "incoming";
/// Memtable before any file of it, so that no file is taken for one of another set.
const SET: &str = "set";

/// A set on its way.
pub(super) struct Incoming {
    dir: PathBuf,
    set: ComponentSet,
    /// How many bytes of each file are here.
    have: Vec<u64>,
    /// Files that the current tree has: they are durable.
    linked: BTreeSet<usize>,
    /// Nothing of the current tree is used.
    whole: bool,
    environment: Environment,
}

impl Incoming {
    /// Begins with `set` below the engine's directory `dir`, or goes on with it. `here` are the current
    /// tree's files.
    pub(super) fn begin(
        dir: &Path,
        set: ComponentSet,
        here: &BTreeMap<Component, PathBuf>,
        whole: bool,
        environment: &Environment,
    ) -> Result<Incoming, EngineError> {
        // Where it ends for want of room, the next one goes on from what there is.
        Incoming::make(dir, set, here, whole, environment).map_err(not_written)
    }

    fn make(
        dir: &Path,
        set: ComponentSet,
        here: &BTreeMap<Component, PathBuf>,
        whole: bool,
        environment: &Environment,
    ) -> io::Result<Incoming> {
        let dir = dir.join(DIR);
        environment.before(FileCall::Write, &dir)?;
        let tables = dir.join("tree").join("tables");
        // Never the engine's own directory, which may be gone with its disk (PR-359).
        [dir.as_path(), &dir.join("tree"), &tables].into_iter().try_for_each(files::ensure_dir)?;
        // The set that was being received before a restart. If that cannot be told, none was.
        let before = files::read_value(&dir.join(SET)).map(|set: ComponentSet| set.files).unwrap_or_default();
        keep_only(&tables, &before, &set.files)?;
        // Not synced: a file of another set that is taken for one of this has another digest.
        files::note_value(&dir.join(SET), &set)?;
        let have = vec![0; set.files.len()];
        let (linked, environment) = (BTreeSet::new(), environment.clone());
        let mut incoming = Incoming { dir, have, set, linked, whole, environment };
        for (index, file) in incoming.set.files.iter().enumerate() {
            let path = incoming.path(file);
            if let Some(source) = here.get(file) {
                remove_if_there(&path)?;
                fs::hard_link(source, &path)?;
                incoming.linked.insert(index);
                incoming.have[index] = file.bytes;
            } else if let Ok(found) = fs::metadata(&path) {
                incoming.have[index] = found.len();
            } else {
                File::create(&path)?;
            }
        }
        Ok(incoming)
    }

    /// Removes what there is of any set.
    pub(super) fn remove(dir: &Path) -> io::Result<()> {
        match fs::remove_dir_all(dir.join(DIR)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The set.
    pub(super) fn set(&self) -> &ComponentSet {
        &self.set
    }

    /// True if nothing of the current tree is used for it.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The directory that becomes the tree's.
    pub(super) fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    fn path(&self, file: &Component) -> PathBuf {
        self.dir.join("tree").join("tables").join(file.number.to_string())
    }

    /// What is not here.
    pub(super) fn missing(&self) -> Vec<Missing> {
        let files = self.set.files.iter().zip(&self.have).enumerate();
        let lacking = files.filter(|(_, (file, have))| **have < file.bytes);
        lacking.map(|(file, (_, have))| Missing { file, from: *have }).collect()
    }

    /// Takes a piece, if it is the next one of its file.
    pub(super) fn write(&mut self, file: usize, from: u64, bytes: &[u8]) -> Result<bool, EngineError> {
        let Some(component) = self.set.files.get(file) else { return Ok(false) };
        let next = self.have[file];
        let fits = from.checked_add(bytes.len() as u64).is_some_and(|end| end <= component.bytes);
        if from != next || !fits || bytes.is_empty() {
            return Ok(false);
        }
        let path = self.path(component);
        self.environment.before(FileCall::Write, &path).map_err(not_written)?;
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(path);
        let open = open.map_err(not_written)?;
        if let Err(error) = open.write_all_at(bytes, from) {
            open.set_len(from)?;
            return Err(not_written(error));
        }
        self.have[file] = from + bytes.len() as u64;
        Ok(true)
    }

    /// Forgets files that are not what they should be. The first piece makes each anew: the old one may be
    /// linked.
    pub(super) fn tainted(&mut self, files: &[usize]) -> Result<(), EngineError> {
        for &file in files {
            remove_if_there(&self.path(&self.set.files[file]))?;
            self.have[file] = 0;
            self.linked.remove(&file);
        }
        Ok(())
    }

    /// Begins to make a tree of the whole set in `to`, beside the engine's calls: what came is checked and
    /// made durable, and what `above` has above the set's position is written into the tree's memory.
    pub(super) fn finish(&self, to: &Path, above: Option<Frozen>, wake: &Wake) -> io::Result<Sealing> {
        let files = self.set.files.iter().enumerate();
        let files: Vec<Arrived> = files
            .map(|(index, file)| Arrived {
                index,
                path: self.path(file),
                digest: file.digest,
                durable: self.linked.contains(&index),
            })
            .collect();
        let watch = Arc::new(Watch::default());
        let (watched, wake) = (watch.clone(), wake.clone());
        let (from, to, set) = (self.tree(), to.to_owned(), self.set.clone());
        let environment = self.environment.clone();
        let background = environment.background.clone();
        let work = Work { from, to, set, files, above, environment };
        let task = Task::start(&*background, "lsm install", move |sender| {
            // Fails only when the engine is gone.
            let _ = sender.send(work.run(&watched));
            drop((sender, work));
            wake();
        })?;
        Ok(Sealing { task, watch })
    }
}

/// A file that is being checked and made durable.
struct Arrived {
    /// Which of the set's.
    index: usize,
    path: PathBuf,
    digest: u128,
    /// It is durable already.
    durable: bool,
}

/// What came of a set that was received.
pub(super) enum Made {
    /// A tree, and what is above its files.
    Tree(Tree, Memtable),
    /// These files are tainted; the others stay.
    Tainted(Vec<usize>),
    /// It is not what it was said to be. Nothing is left of it.
    Refused(String),
}

/// A set that is being checked and made durable.
pub(super) struct Sealing {
    task: Task<Result<Made, EngineError>>,
    watch: Arc<Watch>,
}

impl Sealing {
    /// Bytes that were checked.
    pub(super) fn checked(&self) -> u64 {
        self.watch.checked.load(Ordering::Relaxed)
    }

    /// What came of it, once that is known.
    pub(super) fn outcome(&self) -> Option<Result<Made, EngineError>> {
        self.task.outcome().map(|outcome| match outcome {
            Ok(outcome) => outcome,
            Err(NoOutcome) => Err(EngineError::Library("lsm: the check of a received set panicked".into())),
        })
    }
}

impl Drop for Sealing {
    /// Nothing may happen to the directory while the job works in it: the task is waited for when it is
    /// dropped.
    fn drop(&mut self) {
        self.watch.given_up.store(true, Ordering::Relaxed);
    }
}

/// What the thread has to do.
struct Work {
    from: PathBuf,
    to: PathBuf,
    set: ComponentSet,
    files: Vec<Arrived>,
    above: Option<Frozen>,
    environment: Environment,
}

impl Work {
    fn run(&self, watch: &Watch) -> Result<Made, EngineError> {
        let tainted = self.make_durable(watch)?;
        if !tainted.is_empty() {
            return Ok(Made::Tainted(tainted));
        }
        fs::rename(&self.from, &self.to).map_err(not_written)?;
        if let Some(parent) = self.to.parent() {
            sync_dir(parent)?;
        }
        let tree = match Tree::open_set(&self.to, &self.set, &self.environment) {
            Ok(tree) => tree,
            Err(EngineError::Corrupt(why)) => {
                fs::remove_dir_all(&self.to)?;
                return Ok(Made::Refused(why));
            }
            Err(error) => return Err(error),
        };
        let mut memtable = Memtable::default();
        if let Some(above) = &self.above {
            memtable.take_above(&tree, above, self.set.at.lsn);
        }
        Ok(Made::Tree(tree, memtable))
    }

    /// Gives the tainted files.
    fn make_durable(&self, watch: &Watch) -> Result<Vec<usize>, EngineError> {
        let (rules, mut tainted) = (self.environment.rules, Vec::new());
        for file in &self.files {
            self.environment.before(FileCall::Open, &file.path).map_err(not_written)?;
            match has_digest(&file.path, file.digest, watch)? {
                None => return Err(EngineError::Library("lsm: an installation was given up".into())),
                Some(false) => tainted.push(file.index),
                Some(true) if file.durable || !rules.received_files_are_synced() => {}
                Some(true) => sync_or_remove(&file.path, &self.environment)?,
            }
        }
        if !tainted.is_empty() {
            return Ok(tainted);
        }
        for (name, content) in order_files(&self.set.order).expect("checked when the set came") {
            let path = self.from.join(name);
            self.environment.before(FileCall::Write, &path).map_err(not_written)?;
            let file = File::create(&path);
            file.and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
                .map_err(not_written)?;
        }
        self.environment.before(FileCall::Sync, &self.from)?;
        sync_dir(&self.from.join("tables"))?;
        sync_dir(&self.from)?;
        Ok(tainted)
    }
}

/// Makes a file that came durable. Where that fails, what the disk has of it is unknown, and no later sync
/// would tell (F08): it has to come again, to another start of the engine too (PR-97).
fn sync_or_remove(path: &Path, environment: &Environment) -> Result<(), EngineError> {
    let file = File::open(path).map_err(not_written)?;
    let synced = environment.before(FileCall::Sync, path).and_then(|()| file.sync_all());
    if synced.is_err() && environment.rules.unsynced_files_come_again() {
        fs::remove_file(path)?;
    }
    synced.map_err(not_written)
}

/// Removes every file but those that both sets have.
fn keep_only(tables: &Path, before: &[Component], wanted: &[Component]) -> io::Result<()> {
    let before: BTreeSet<&Component> = before.iter().collect();
    let both = wanted.iter().filter(|file| before.contains(file));
    let names: BTreeSet<String> = both.map(|file| file.number.to_string()).collect();
    for entry in fs::read_dir(tables)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(|name| names.contains(name)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
