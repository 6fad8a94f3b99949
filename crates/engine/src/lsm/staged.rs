//! Files of bulk loads that are no part of the state yet (PR-39): they grow in directories of their own, are
//! checked and made durable there, and wait for the entry that makes them part of it.
//!
//! ```text
//! dir/staged/LOAD/N     a file of the load
//! dir/staged/LOAD/set   which files, with its CRC-32C; written when all of them are checked and durable
//! ```
//!
//! A directory without `set` is of no use after a restart: its files may be torn.

use super::background::{FileCall, NoOutcome, Task};
use super::digest::{Watch, has_digest};
use super::environment::Environment;
use super::tree::{LoadKeys, check_load};
use crate::files::{self, create_dir, is_for_now, not_written, remove_if_there};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::{Component, EngineError, LoadId, Staged, Staging};

const DIR: &str = "staged";
const SET: &str = "set";

/// Everything that is staged.
pub(super) struct StagedLoad {
    dir: PathBuf,
    environment: Environment,
    loads: BTreeMap<LoadId, Load>,
}

struct Load {
    files: Vec<Component>,
    /// How many bytes of each file are here.
    have: Vec<u64>,
    checking: Option<Check>,
    ready: Option<Staged>,
    /// Its lowest and its highest key, if this process has checked it.
    keys: Option<LoadKeys>,
}

/// What came of a check.
enum Checked {
    Ready(Staged, LoadKeys),
    /// These files are not what they should be.
    Tainted(Vec<usize>),
    Refused(String),
}

struct Check {
    task: Task<Result<Checked, EngineError>>,
    watch: Arc<Watch>,
}

impl Drop for Check {
    /// Nothing may happen to the directory while the job works in it: the task is waited for when it is
    /// dropped.
    fn drop(&mut self) {
        self.watch.given_up.store(true, Ordering::Relaxed);
    }
}

impl StagedLoad {
    /// What is staged below the engine's directory `dir`.
    pub(super) fn open(dir: &Path, environment: &Environment) -> Result<StagedLoad, EngineError> {
        let environment = environment.clone();
        let mut stage = StagedLoad { dir: dir.join(DIR), environment, loads: BTreeMap::new() };
        let entries = match fs::read_dir(&stage.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(stage),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let load = name.and_then(|name| u64::from_str_radix(name, 16).ok()).map(LoadId);
            let set: Option<(Vec<Component>, Staged)> = files::read_value(&path.join(SET));
            // Who finds a set relies on it, and who finds none removes the files: neither must be taken
            // back (PR-93).
            files::sync_dir(&path)?;
            match load.zip(set) {
                Some((load, (files, ready))) => {
                    let have = files.iter().map(|file| file.bytes).collect();
                    stage
                        .loads
                        .insert(load, Load { files, have, checking: None, ready: Some(ready), keys: None });
                }
                None => fs::remove_dir_all(&path)?,
            }
        }
        Ok(stage)
    }

    /// Begins with a load, or says how far it is.
    pub(super) fn stage(&mut self, load: LoadId, files: &[Component]) -> Result<Staging, EngineError> {
        let dir = self.load_dir(load);
        let known = match self.loads.entry(load) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let allowed = self.environment.before(FileCall::Write, &dir);
                if let Err(error) = allowed.and_then(|()| begin(&dir, files)) {
                    // It takes room for nothing. If that fails too, it is begun anew the next time.
                    let _ = fs::remove_dir_all(&dir);
                    return Err(not_written(error));
                }
                let have = vec![0; files.len()];
                place.insert(Load { files: files.to_vec(), have, checking: None, ready: None, keys: None })
            }
        };
        if known.files != files {
            return Ok(Staging::Refused(format!("load {load} has other files")));
        }
        let outcome = match &known.checking {
            None => None,
            Some(check) => match check.task.outcome() {
                Some(Ok(outcome)) => Some(outcome),
                None => return Ok(Staging::Checking),
                Some(Err(NoOutcome)) => {
                    return Err(EngineError::Library("lsm: the check of a load panicked".into()));
                }
            },
        };
        if let Some(outcome) = outcome {
            known.checking = None;
            match outcome? {
                Checked::Ready(staged, keys) => (known.ready, known.keys) = (Some(staged), Some(keys)),
                Checked::Tainted(tainted) => {
                    for file in tainted {
                        let name = dir.join(known.files[file].number.to_string());
                        File::create(name).map_err(not_written)?;
                        known.have[file] = 0;
                    }
                }
                Checked::Refused(why) => {
                    self.remove(load)?;
                    return Ok(Staging::Refused(why));
                }
            }
        }
        let known = self.loads.get_mut(&load).expect("it is still there");
        if let Some(staged) = known.ready {
            return Ok(Staging::Ready(staged));
        }
        let lacks = known.have.iter().zip(&known.files).position(|(have, file)| *have < file.bytes);
        if let Some(file) = lacks {
            return Ok(Staging::Wants { file: file as u32, from: known.have[file] });
        }
        known.checking = Some(begin_check(load, dir, known.files.clone(), &self.environment)?);
        Ok(Staging::Checking)
    }

    /// Takes a piece, if it is the next one of its file.
    pub(super) fn write(
        &mut self,
        load: LoadId,
        file: usize,
        from: u64,
        bytes: &[u8],
    ) -> Result<bool, EngineError> {
        let dir = self.load_dir(load);
        let Some(known) = self.loads.get_mut(&load) else { return Ok(false) };
        let Some(component) = known.files.get(file) else { return Ok(false) };
        let fits = from.checked_add(bytes.len() as u64).is_some_and(|end| end <= component.bytes);
        let idle = known.checking.is_none() && known.ready.is_none();
        if !idle || from != known.have[file] || !fits || bytes.is_empty() {
            return Ok(false);
        }
        let path = dir.join(component.number.to_string());
        self.environment.before(FileCall::Write, &path).map_err(not_written)?;
        let open = OpenOptions::new().write(true).open(path).map_err(not_written)?;
        if let Err(error) = open.write_all_at(bytes, from) {
            open.set_len(from)?;
            return Err(not_written(error));
        }
        known.have[file] = from + bytes.len() as u64;
        Ok(true)
    }

    /// What is ready of a load.
    pub(super) fn ready(&self, load: LoadId) -> Option<Staged> {
        self.loads.get(&load)?.ready
    }

    /// The lowest and the highest key of a load that is ready. Of one that an earlier process has checked the
    /// files say it.
    pub(super) fn keys(&self, load: LoadId) -> Result<Option<LoadKeys>, EngineError> {
        let (Some(known), Some(files)) = (self.loads.get(&load), self.files(load)) else { return Ok(None) };
        if known.keys.is_some() {
            return Ok(known.keys.clone());
        }
        let checked = check_load(load, &files)?.map_err(EngineError::Corrupt)?;
        Ok(Some(checked.1))
    }

    /// All loads of which something is here.
    pub(super) fn loads(&self) -> Vec<LoadId> {
        self.loads.keys().copied().collect()
    }

    /// Bytes that are to come.
    pub(super) fn lacking(&self) -> u64 {
        let files = self.loads.values().flat_map(|load| load.files.iter().zip(&load.have));
        files.map(|(file, have)| file.bytes.saturating_sub(*have)).fold(0, u64::saturating_add)
    }

    /// The files of a load, if they are ready.
    pub(super) fn files(&self, load: LoadId) -> Option<Vec<(Component, PathBuf)>> {
        let known = self.loads.get(&load).filter(|known| known.ready.is_some())?;
        let dir = self.load_dir(load);
        Some(known.files.iter().map(|file| (*file, dir.join(file.number.to_string()))).collect())
    }

    /// All files that are ready.
    pub(super) fn all_files(&self) -> Vec<(Component, PathBuf)> {
        self.loads.keys().filter_map(|load| self.files(*load)).flatten().collect()
    }

    /// Removes what there is of a load.
    pub(super) fn remove(&mut self, load: LoadId) -> io::Result<()> {
        if self.loads.remove(&load).is_none() {
            return Ok(());
        }
        let dir = self.load_dir(load);
        // First, and durably, so that a restart never finds half of it.
        forget(&dir)?;
        self.environment.made_durable();
        fs::remove_dir_all(dir)
    }

    fn load_dir(&self, load: LoadId) -> PathBuf {
        self.dir.join(load.to_string())
    }
}

/// Nothing in `dir` counts for staged any more, after a power loss either (PR-92): without the sync the names
/// of its files could go before the set does.
fn forget(dir: &Path) -> io::Result<()> {
    if !dir.join(SET).exists() {
        return Ok(());
    }
    remove_if_there(&dir.join(SET))?;
    files::sync_dir(dir)
}

/// Makes a place for the files of a load.
fn begin(dir: &Path, files: &[Component]) -> io::Result<()> {
    dir.parent().map_or(Ok(()), create_dir)?;
    create_dir(dir)?;
    // What an earlier one may have left here counts for nothing.
    forget(dir)?;
    files.iter().try_for_each(|file| File::create(dir.join(file.number.to_string())).map(drop))
}

/// Checks the files of a load and makes them durable, beside the engine's calls.
fn begin_check(
    load: LoadId,
    dir: PathBuf,
    files: Vec<Component>,
    environment: &Environment,
) -> io::Result<Check> {
    let watch = Arc::new(Watch::default());
    let (watched, beside) = (watch.clone(), environment.clone());
    let task = Task::start(&*environment.background, "lsm stage", move |sender| {
        let checked = check((load, &dir), &files, &watched, &beside);
        if matches!(checked, Ok(Checked::Ready(..))) {
            beside.made_durable();
        }
        // Fails only when the engine is gone.
        let _ = sender.send(checked);
    })?;
    Ok(Check { task, watch })
}

fn check(
    (load, dir): (LoadId, &Path),
    files: &[Component],
    watch: &Watch,
    environment: &Environment,
) -> Result<Checked, EngineError> {
    let mut tainted = Vec::new();
    let named: Vec<_> = files.iter().map(|file| (*file, dir.join(file.number.to_string()))).collect();
    for (index, (file, path)) in named.iter().enumerate() {
        environment.before(FileCall::Open, path).map_err(not_written)?;
        match has_digest(path, file.digest, watch)? {
            None => return Err(EngineError::Library("lsm: the check of a load was given up".into())),
            Some(false) => tainted.push(index),
            // Without room or memory for it, what the disk has of it is unknown (F08): it has to come again.
            Some(true) => match sync(path, environment)? {
                Err(error) if is_for_now(&error) => tainted.push(index),
                synced => synced?,
            },
        }
    }
    if !tainted.is_empty() {
        return Ok(Checked::Tainted(tainted));
    }
    let (rows, keys) = match check_load(load, &named)? {
        Ok(checked) => checked,
        Err(why) => return Ok(Checked::Refused(why)),
    };
    // The names of the files are durable before the set that vouches for them (PR-91).
    files::sync_dir(dir)?;
    let staged = Staged { digest: types::bulk::files_digest(files), rows };
    environment.before(FileCall::Write, &dir.join(SET)).map_err(not_written)?;
    files::replace_value(&dir.join(SET), &(files, staged)).map_err(not_written)?;
    Ok(Checked::Ready(staged, keys))
}

/// Syncs a file, if it can be opened: how that went.
fn sync(path: &Path, environment: &Environment) -> Result<io::Result<()>, EngineError> {
    let file = File::open(path).map_err(not_written)?;
    Ok(environment.before(FileCall::Sync, path).and_then(|()| file.sync_all()))
}
