//! Further directories for replicas' files (`node.data_dirs`), each on a disk of its own. Losing one loses
//! what is in it, and not the node: its log, its identity and the descriptions of all replicas are in the
//! data directory.
//!
//! ```text
//! directory.id       JSON: whose it is, and its own number
//! partitions/ID/     a replica's engine/
//! damaged/, trash/   as in the data directory
//! ```
//!
//! `directories.json` in the data directory lists those that were used once. So an empty directory where one
//! of them should be is a disk that is not mounted, and no new one. Where a replica's files are is said by
//! its description (`partition.json`) alone; what lies elsewhere under its number is left over.

use super::{DataDir, Identity, files, random};
use crate::failure::Failure;
use crate::stores::Meta;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use types::{NodeId, PartitionId, StoreId};

const IDENTITY: &str = "directory.id";
const LIST: &str = "directories.json";
/// The format of both files.
const FORMAT: u16 = 1;

/// Names a further directory: drawn when it is taken into use, and never again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct DirectoryId(pub u64);

/// A further directory of this node.
#[derive(Clone, Debug)]
pub struct DataDirectory {
    /// Its number.
    pub id: DirectoryId,
    /// Where it is, or should be.
    pub root: PathBuf,
    /// Why it cannot be used, once it cannot, until the node starts again.
    lost: OnceLock<String>,
}

impl DataDirectory {
    /// Why it cannot be used until the node starts again, if so.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }
}

/// The contents of `directory.id`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Whose {
    format: u16,
    node: NodeId,
    store: StoreId,
    directory: DirectoryId,
}

/// A line of `directories.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Known {
    directory: DirectoryId,
    path: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
struct List {
    format: u16,
    directories: Vec<Known>,
}

/// What is found where a directory should be.
enum Look {
    Ours(DirectoryId),
    /// Nothing is in it.
    Empty,
    /// It cannot be used as what it was; what to say of one that is new here.
    Unusable(String, Failure),
    /// It is not for this node.
    Others(Failure),
}

impl fmt::Display for DataDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.display().fmt(f)
    }
}

/// Reads whose directory this is. The error says why that cannot be told.
fn whose(root: &Path) -> io::Result<Option<Whose>> {
    let nonsense = |error| io::Error::new(io::ErrorKind::InvalidData, format!("its {IDENTITY}: {error}"));
    let bytes = files::read(&root.join(IDENTITY))?;
    bytes.map(|bytes| serde_json::from_slice(&bytes).map_err(nonsense)).transpose()
}

/// True if an error says something of this process or of the system, and nothing of the directory: too many
/// files are open, there is no memory, or it was interrupted.
pub fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR, Errno::AGAIN];
    Errno::from_io_error(error).is_some_and(|error| passing.contains(&error))
}

/// Why this is not the directory any more that it was; none if it is, or if that cannot be told just now.
pub fn trouble(root: &Path, store: StoreId, id: DirectoryId) -> Option<String> {
    match whose(root) {
        Ok(Some(found)) if (found.store, found.directory) == (store, id) => None,
        Ok(Some(_)) => Some("another directory is there".into()),
        Ok(None) if root.is_dir() => Some(format!("its {IDENTITY} is gone: is its disk mounted?")),
        Ok(None) => Some("it is gone".into()),
        Err(error) if is_passing(&error) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// Writes a little and has it synced: why that does not work, if so. A full disk works, and so does one that
/// cannot be tried just now.
pub fn probe(root: &Path) -> Option<String> {
    let path = root.join(".probe");
    let written = fs::File::create(&path).and_then(|mut file| {
        file.write_all(b"probe")?;
        file.sync_all()
    });
    let removed = written.and_then(|()| match fs::remove_file(&path) {
        // Another executor has tried the same at this time.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    });
    removed.err().filter(|error| !wal::is_full(error) && !is_passing(error)).map(|error| error.to_string())
}

/// True if the node of this data directory has taken a further directory at this path into use.
pub fn is_known(data_dir: &Path, path: &Path) -> bool {
    let list = files::read(&data_dir.join(LIST)).ok().flatten();
    let list = list.and_then(|bytes| serde_json::from_slice::<List>(&bytes).ok());
    list.is_some_and(|list| list.directories.iter().any(|known| known.path == path))
}

fn look(root: &Path, identity: &Identity) -> Look {
    let shown = root.display();
    let found = match whose(root) {
        Ok(found) => found,
        Err(error) => {
            let failure = Failure::new(7, format!("node.data_dirs: {shown}: {error}"));
            return Look::Unusable(error.to_string(), failure);
        }
    };
    if let Some(whose) = found {
        let ours = whose.store == identity.store;
        return match ours && whose.format <= FORMAT {
            true => Look::Ours(whose.directory),
            false if ours => Look::Others(Failure::refused(format!(
                "node.data_dirs: {shown} has format {}, written by a newer version",
                whose.format
            ))),
            false => Look::Others(Failure::refused(format!(
                "node.data_dirs: {shown} belongs to {} ({}), and this is {} ({}); nothing was changed",
                whose.node, whose.store, identity.node, identity.store
            ))),
        };
    }
    let unfinished = format!(".{IDENTITY}.new");
    let empty = fs::read_dir(root).and_then(|mut entries| {
        entries.try_fold(true, |empty, entry| Ok(empty && entry?.file_name().to_str() == Some(&unfinished)))
    });
    match empty {
        Ok(true) => Look::Empty,
        Ok(false) => Look::Unusable(
            format!("it has no {IDENTITY}"),
            Failure::refused(format!(
                "node.data_dirs: {shown} is not empty and not a directory of this node; nothing was changed"
            )),
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Look::Unusable(
            "it is not there".into(),
            Failure::new(
                3,
                format!("node.data_dirs: there is no directory {shown}: make an empty one, or leave it out"),
            ),
        ),
        Err(error) => Look::Unusable(error.to_string(), Failure::io(root, &error)),
    }
}

/// As absolute paths, none of which is or lies in another, or in the data directory.
fn apart(root: &Path, listed: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let real = |path: &Path| match fs::canonicalize(path) {
        Ok(path) => Ok(path),
        Err(_) => std::path::absolute(path).map_err(|error| Failure::io(path, &error)),
    };
    let mut apart = vec![real(root)?];
    for path in listed {
        let path = real(path)?;
        if let Some(other) = apart.iter().find(|other| path.starts_with(other) || other.starts_with(&path)) {
            let (path, other) = (path.display(), other.display());
            return Err(Failure::usage(format!(
                "node.data_dirs: {path} is or lies in {other}, or the other way round"
            )));
        }
        apart.push(path);
    }
    Ok(apart.split_off(1))
}

/// A listed directory, and how it begins.
struct Begins {
    /// None: it is to be made one.
    id: Option<DirectoryId>,
    root: PathBuf,
    lost: Option<String>,
}

/// What each listed directory is. `used`: replicas are in that one.
fn recognise(
    looks: Vec<(PathBuf, Look)>,
    known: &[Known],
    used: impl Fn(DirectoryId) -> bool,
) -> Result<Vec<Begins>, Failure> {
    let mut here: BTreeMap<DirectoryId, u32> = BTreeMap::new();
    for (_, look) in &looks {
        if let Look::Ours(id) = look {
            *here.entry(*id).or_default() += 1;
        }
    }
    let one = |(root, look): (PathBuf, Look)| {
        let was = known.iter().find(|known| known.path == root).map(|known| known.directory);
        let was = was.filter(|id| !here.contains_key(id));
        let (id, lost) = match (look, was) {
            (Look::Ours(id), _) if here[&id] > 1 => {
                let sentence =
                    format!("node.data_dirs: {} is a copy of another one of these", root.display());
                return Err(Failure::refused(sentence));
            }
            (Look::Ours(id), _) => (Some(id), None),
            (Look::Empty, Some(id)) if used(id) => {
                (Some(id), Some("it is empty: is its disk mounted?".into()))
            }
            // New, or in place of one that had nothing.
            (Look::Empty, _) => (None, None),
            (Look::Unusable(why, _), Some(id)) => (Some(id), Some(why)),
            (Look::Unusable(_, failure), None) | (Look::Others(failure), _) => return Err(failure),
        };
        Ok(Begins { id, root, lost })
    };
    let begins = looks.into_iter().map(one).collect::<Result<Vec<Begins>, Failure>>()?;
    let listed = |id: DirectoryId| begins.iter().any(|begins| begins.id == Some(id));
    match known.iter().find(|known| used(known.directory) && !listed(known.directory)) {
        Some(missing) => Err(Failure::refused(format!(
            "replicas of this node are in {}, which node.data_dirs does not list: list it; if it is lost, list it all the same, and \
             they are made anew elsewhere",
            missing.path.display()
        ))),
        None => Ok(begins),
    }
}

impl DataDir {
    /// Takes the further directories into use. One that is new here must be empty; one that was used and is
    /// not what it was is lost, unless nothing is in it and was. Nothing is changed if anything is refused.
    pub fn open_data_dirs(
        &mut self,
        listed: &[PathBuf],
        metas: &BTreeMap<PartitionId, Meta>,
    ) -> Result<(), Failure> {
        let known = self.known()?;
        let listed = apart(self.root(), listed)?;
        let looks = listed.into_iter().map(|root| (root.clone(), look(&root, &self.identity()))).collect();
        let used = |id: DirectoryId| metas.values().any(|meta| meta.directory == Some(id));
        for Begins { id, root, lost } in recognise(looks, &known, used)? {
            let id = id.map_or_else(|| self.format(&root), Ok)?;
            self.data_dirs.push(DataDirectory { id, root, lost: OnceLock::new() });
            match lost {
                Some(why) => drop(self.lose(id, why)),
                None => self.settle_in(id, metas),
            }
        }
        self.note_known(&known)
    }

    /// The further directories.
    pub fn data_dirs(&self) -> &[DataDirectory] {
        &self.data_dirs
    }

    /// Where the files of a replica are that has some; why there is no such place, if so.
    pub fn engine_dir(&self, meta: &Meta) -> Result<PathBuf, String> {
        let Some(id) = meta.directory else { return Ok(self.partition(meta.partition)) };
        let Some(place) = self.data_dirs.iter().find(|place| place.id == id) else {
            return Err("its directory is not known any more".into());
        };
        match place.lost() {
            Some(why) => Err(format!("the directory {place} is lost: {why}")),
            None => Ok(place.root.join("partitions").join(meta.partition.0.to_string())),
        }
    }

    /// A further directory is not used again before the node starts anew. True if that is news, which is told
    /// here.
    pub fn lose(&self, id: DirectoryId, why: String) -> bool {
        let node = self.identity().node;
        let Some(place) = self.data_dirs.iter().find(|place| place.id == id) else { return false };
        if place.lost.set(why).is_err() {
            return false;
        }
        let why = place.lost().unwrap_or_default();
        eprintln!(
            "the directory {place} of node {} is lost: {why}. Its replicas are made anew in other directories once their primaries \
             take them in; if only its disk was away, bring it back and start this node again",
            node.0
        );
        true
    }

    /// Makes the place for a replica that has no files yet: what lies there under its number is of an earlier
    /// copy.
    pub fn clear_engine_dir(&self, meta: &Meta) -> io::Result<()> {
        let engine_dir = self.engine_dir(meta).map_err(io::Error::other)?;
        match meta.directory {
            Some(_) => {
                self.discard_if_there(&engine_dir)?;
                self.ensure(&engine_dir)
            }
            None => self.discard_if_there(&engine_dir.join("engine")),
        }
    }

    /// Makes a directory in one of this node's, which has to be there.
    pub fn ensure(&self, path: &Path) -> io::Result<()> {
        files::ensure_within(self.root_of(path), path)
    }

    fn discard_if_there(&self, path: &Path) -> io::Result<()> {
        match path.try_exists()? {
            true => self.discard(path),
            false => Ok(()),
        }
    }

    /// The directory of this node in which a path lies.
    pub(super) fn root_of(&self, path: &Path) -> &Path {
        let place = self.data_dirs.iter().find(|place| path.starts_with(&place.root));
        place.map_or(self.root(), |place| &place.root)
    }

    /// Makes an empty directory one of this node's.
    fn format(&self, root: &Path) -> Result<DirectoryId, Failure> {
        let Identity { node, store, .. } = *self.identity();
        let whose = Whose { format: FORMAT, node, store, directory: DirectoryId(random()) };
        let text = serde_json::to_vec_pretty(&whose).expect("an identity has only text keys");
        files::replace(&root.join(IDENTITY), &text).map_err(|error| Failure::io(root, &error))?;
        Ok(whose.directory)
    }

    /// Removes what is left of replicas whose files are elsewhere by now.
    fn settle_in(&self, id: DirectoryId, metas: &BTreeMap<PartitionId, Meta>) {
        let Some(place) = self.data_dirs.iter().find(|place| place.id == id) else { return };
        let root = place.root.clone();
        if let Err(error) = self.sweep(&root, id, metas) {
            self.lose(id, error.to_string());
        }
    }

    fn sweep(&self, root: &Path, id: DirectoryId, metas: &BTreeMap<PartitionId, Meta>) -> io::Result<()> {
        let partitions = root.join("partitions");
        files::ensure_dir(&partitions)?;
        files::ensure_dir(&root.join("trash"))?;
        for entry in fs::read_dir(&partitions)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let meta = name.parse().ok().and_then(|number| metas.get(&PartitionId(number)));
            match meta {
                Some(meta) if meta.directory == Some(id) => {}
                Some(_) => self.discard(&path)?,
                // Nothing says that it is not wanted.
                None => {
                    let aside = self.set_aside(&path, &name)?;
                    eprintln!(
                        "{} is of no replica here: it is set aside in {}",
                        path.display(),
                        aside.display()
                    );
                }
            }
        }
        self.empty_trash(root);
        Ok(())
    }

    fn known(&self) -> Result<Vec<Known>, Failure> {
        let path = self.root().join(LIST);
        let bytes = files::read(&path).map_err(|error| Failure::io(&path, &error))?;
        let Some(bytes) = bytes else { return Ok(Vec::new()) };
        let list: List = serde_json::from_slice(&bytes)
            .map_err(|error| Failure::corrupt(format!("{} cannot be read: {error}", path.display())))?;
        match list.format <= FORMAT {
            true => Ok(list.directories),
            false => Err(Failure::refused(format!(
                "{} has format {}, written by a newer version",
                path.display(),
                list.format
            ))),
        }
    }

    fn note_known(&self, before: &[Known]) -> Result<(), Failure> {
        let known =
            self.data_dirs.iter().map(|place| Known { directory: place.id, path: place.root.clone() });
        let directories: Vec<Known> = known.collect();
        if directories == before {
            return Ok(());
        }
        let path = self.root().join(LIST);
        let text = serde_json::to_vec_pretty(&List { format: FORMAT, directories });
        files::replace(&path, &text.expect("paths that came from text"))
            .map_err(|error| Failure::io(&path, &error))
    }
}

#[cfg(test)]
mod tests;
