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
    /// Why it cannot be used, until the node starts again.
    pub lost: Option<String>,
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
    let removed = written.and_then(|()| fs::remove_file(&path));
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
        let looks = listed.into_iter().map(|root| (root.clone(), look(&root, self.identity()))).collect();
        let used = |id: DirectoryId| metas.values().any(|meta| meta.directory == Some(id));
        for Begins { id, root, lost } in recognise(looks, &known, used)? {
            let id = id.map_or_else(|| self.format(&root), Ok)?;
            self.data_dirs.push(DataDirectory { id, root, lost: None });
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
        match &place.lost {
            Some(why) => Err(format!("the directory {place} is lost: {why}")),
            None => Ok(place.root.join("partitions").join(meta.partition.0.to_string())),
        }
    }

    /// A further directory is not used again before the node starts anew. True if that is news, which is told
    /// here.
    pub fn lose(&mut self, id: DirectoryId, why: String) -> bool {
        let node = self.identity().node;
        let Some(place) = self.data_dirs.iter_mut().find(|place| place.id == id && place.lost.is_none())
        else {
            return false;
        };
        eprintln!(
            "the directory {place} of node {} is lost: {why}. Its replicas are made anew in other directories once their primaries \
             take them in; if only its disk was away, bring it back and start this node again",
            node.0
        );
        place.lost = Some(why);
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
    fn settle_in(&mut self, id: DirectoryId, metas: &BTreeMap<PartitionId, Meta>) {
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
mod tests {
    use super::*;
    use crate::datadir::{Kind, init};
    use types::{EngineKind, LogKind, TableId};

    /// A node's data directory, and two empty directories.
    struct Disks {
        keep: tempfile::TempDir,
        node: PathBuf,
    }

    type Metas = BTreeMap<PartitionId, Meta>;

    fn meta(id: u64, directory: Option<DirectoryId>) -> Meta {
        let (engine, log) = (EngineKind::Lsm, LogKind::Disk);
        Meta { format: 1, partition: PartitionId(id as u32), table: TableId(1), engine, log, directory }
    }

    fn in_it(directory: DirectoryId) -> Metas {
        [(PartitionId(64), meta(64, Some(directory)))].into()
    }

    impl Disks {
        fn new() -> Disks {
            let keep = tempfile::tempdir().expect("a directory");
            let node = keep.path().join("node");
            init(&node, Kind::Node, NodeId(1)).expect("initialises");
            let disks = Disks { keep, node };
            fs::create_dir(disks.at("a")).expect("makes");
            fs::create_dir(disks.at("b")).expect("makes");
            disks
        }

        fn at(&self, name: &str) -> PathBuf {
            self.keep.path().join(name)
        }

        fn open(&self, names: &[&str], metas: &Metas) -> Result<DataDir, Failure> {
            let mut dir = DataDir::open(&self.node, Kind::Node)?;
            let listed: Vec<PathBuf> = names.iter().map(|name| self.at(name)).collect();
            dir.open_data_dirs(&listed, metas)?;
            Ok(dir)
        }

        fn refused(&self, names: &[&str], metas: &Metas) -> Failure {
            self.open(names, metas).expect_err("refused")
        }
    }

    fn lost(dir: &DataDir) -> Vec<Option<&str>> {
        dir.data_dirs().iter().map(|place| place.lost.as_deref()).collect()
    }

    #[test]
    fn an_empty_directory_is_taken_into_use_and_known_again() {
        let disks = Disks::new();
        let none = Metas::new();
        disks.open(&[], &none).expect("opens");
        assert!(!disks.node.join(LIST).exists(), "without further directories nothing is new on the disk");
        let first = disks.open(&["a", "b"], &none).expect("opens").data_dirs()[0].id;
        let dir = disks.open(&["b", "a"], &none).expect("opens");
        assert_eq!((dir.data_dirs()[1].id, lost(&dir)), (first, vec![None, None]));
        let engine_dir = dir.engine_dir(&meta(64, Some(first))).expect("is there");
        assert_eq!(engine_dir, disks.at("a").join("partitions/64"));
        assert_eq!(dir.engine_dir(&meta(64, None)), Ok(disks.node.join("partitions/64")));
        assert!(dir.engine_dir(&meta(64, Some(DirectoryId(7)))).is_err());
        drop(dir);
        // Moved to another place it is the same one.
        fs::rename(disks.at("a"), disks.at("c")).expect("renames");
        let dir = disks.open(&["c", "b"], &in_it(first)).expect("opens");
        assert_eq!((dir.data_dirs()[0].id, lost(&dir)), (first, vec![None, None]));
    }

    #[test]
    fn what_is_not_this_nodes_is_refused_and_left_alone() {
        let disks = Disks::new();
        let none = Metas::new();
        fs::write(disks.at("b").join("letter.txt"), "dear").expect("writes");
        let error = disks.refused(&["a", "b"], &none);
        assert!(error.status == 5 && error.sentence.contains("not empty"), "{error}");
        assert_eq!(fs::read_dir(disks.at("a")).expect("lists").count(), 0, "nothing was changed");
        let error = disks.refused(&["none"], &none);
        assert!(error.status == 3 && error.sentence.contains("there is no directory"), "{error}");
        for (names, status) in [(&["node"][..], 2), (&["node/x"], 2), (&["a", "a"], 2)] {
            assert_eq!(disks.refused(names, &none).status, status, "{names:?}");
        }
        let others = Disks::new();
        others.open(&["a"], &none).expect("opens");
        fs::rename(others.at("a"), disks.at("c")).expect("renames");
        let error = disks.refused(&["c"], &none);
        assert!(error.status == 5 && error.sentence.contains("belongs to n1"), "{error}");
    }

    #[test]
    fn a_directory_with_replicas_that_is_not_there_is_lost_and_never_made_again() {
        let disks = Disks::new();
        let id = disks.open(&["a"], &Metas::new()).expect("opens").data_dirs()[0].id;
        fs::rename(disks.at("a"), disks.at("away")).expect("renames");
        let dir = disks.open(&["a"], &in_it(id)).expect("starts without it");
        assert_eq!(lost(&dir), [Some("it is not there")]);
        assert!(dir.engine_dir(&meta(64, Some(id))).is_err());
        drop(dir);
        // Its disk is not mounted; another file is there; its identity cannot be read.
        fs::create_dir(disks.at("a")).expect("makes");
        assert_eq!(
            lost(&disks.open(&["a"], &in_it(id)).expect("starts")),
            [Some("it is empty: is its disk mounted?")]
        );
        assert_eq!(fs::read_dir(disks.at("a")).expect("lists").count(), 0);
        fs::write(disks.at("a").join(IDENTITY), "{").expect("writes");
        assert!(lost(&disks.open(&["a"], &in_it(id)).expect("starts"))[0].is_some());
        fs::remove_dir_all(disks.at("a")).expect("removes");
        fs::write(disks.at("a"), "a file").expect("writes");
        assert!(lost(&disks.open(&["a"], &in_it(id)).expect("starts"))[0].is_some());
        // It may not be left out, and with nothing in it an empty one takes its place.
        assert_eq!(
            lost(&disks.open(&["a"], &Metas::new()).expect("starts")).len(),
            1,
            "nothing is in it, and it is missed"
        );
        let error = disks.refused(&["b"], &in_it(id));
        assert!(error.status == 5 && error.sentence.contains("does not list"), "{error}");
        fs::remove_file(disks.at("a")).expect("removes");
        fs::create_dir(disks.at("a")).expect("makes");
        let dir = disks.open(&["a"], &Metas::new()).expect("opens");
        assert!(dir.data_dirs()[0].id != id && lost(&dir) == [None]);
        drop(dir);
        fs::remove_dir_all(disks.at("a")).expect("removes");
        fs::rename(disks.at("away"), disks.at("a")).expect("renames");
        assert_eq!(disks.open(&["a"], &in_it(id)).expect("opens").data_dirs()[0].id, id);
    }

    #[test]
    fn what_is_left_of_replicas_that_are_elsewhere_is_removed() {
        let disks = Disks::new();
        let dir = disks.open(&["a"], &Metas::new()).expect("opens");
        let id = dir.data_dirs()[0].id;
        for number in [64, 65, 66] {
            dir.clear_engine_dir(&meta(number, Some(id))).expect("makes");
            fs::write(disks.at("a").join(format!("partitions/{number}/x")), "x").expect("writes");
        }
        dir.clear_engine_dir(&meta(64, Some(id))).expect("makes");
        assert!(!disks.at("a").join("partitions/64/x").exists(), "what is made for a replica is empty");
        drop(dir);
        let metas: Metas = [meta(64, Some(id)), meta(65, None)].map(|meta| (meta.partition, meta)).into();
        disks.open(&["a"], &metas).expect("opens");
        let there = |name: &str| disks.at("a").join(name).exists();
        assert!(there("partitions/64") && !there("partitions/65") && !there("partitions/66"));
        assert!(there("damaged/66-0/x"), "nothing says that it is not wanted");
    }

    #[test]
    fn pr359_a_directory_that_is_gone_is_not_made_for_a_replica() {
        let disks = Disks::new();
        let dir = disks.open(&["a"], &Metas::new()).expect("opens");
        let meta = meta(64, Some(dir.data_dirs()[0].id));
        let place = dir.engine_dir(&meta).expect("is there");
        fs::rename(disks.at("a"), disks.at("away")).expect("renames");
        assert!(dir.clear_engine_dir(&meta).is_err() && dir.ensure(&place).is_err());
        assert!(dir.set_aside(&place, "64").is_err());
        assert!(!disks.at("a").exists());
        fs::rename(disks.at("away"), disks.at("a")).expect("renames");
        dir.clear_engine_dir(&meta).expect("makes");
        assert!(place.is_dir());
    }

    #[test]
    fn a_directory_is_told_from_what_took_its_place() {
        let disks = Disks::new();
        let mut dir = disks.open(&["a"], &Metas::new()).expect("opens");
        let (id, store) = (dir.data_dirs()[0].id, dir.identity().store);
        let trouble = || trouble(&disks.at("a"), store, id);
        assert_eq!((trouble(), probe(&disks.at("a"))), (None, None));
        fs::rename(disks.at("a"), disks.at("away")).expect("renames");
        assert_eq!(trouble().as_deref(), Some("it is gone"));
        assert!(probe(&disks.at("a")).is_some());
        fs::create_dir(disks.at("a")).expect("makes");
        assert!(trouble().is_some_and(|why| why.contains("mounted")));
        fs::remove_dir(disks.at("a")).expect("removes");
        fs::write(disks.at("a"), "a file").expect("writes");
        assert!(trouble().is_some());
        assert!(dir.lose(id, "it is gone".into()) && !dir.lose(id, "again".into()));
        assert_eq!(lost(&dir), [Some("it is gone")]);
    }
}
