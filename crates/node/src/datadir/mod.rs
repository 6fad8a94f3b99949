//! A data directory (conventions): whose it is, who uses it, and where its parts lie.
//!
//! ```text
//! VERSION            the layout's number
//! node.id            JSON: node, store, incarnation, cluster
//! LOCK               held by the process that uses the directory
//! ports.json         JSON: where the process listens, and its id
//! log/               the write-ahead log, unless `log.dir` says otherwise
//! partitions/ID/     one replica: partition.json and engine/
//! tails/             divergent tails set aside
//! damaged/ID-n       damaged replicas and engines set aside: nothing here is removed but by people
//! trash/             what is being removed
//! records/           what controllers told of the cluster (`kept`)
//! directories.json   further directories for replicas, where there are any (`data_dirs`)
//! ```
//!
//! A controller's directory has `controller.id` and `metastore/` instead of the last seven.

pub mod data_dirs;
pub mod files;
mod identity;
mod ports;
mod trash;

pub use data_dirs::{DataDirectory, DirectoryId};
pub use identity::{Identity, Kind};
pub use ports::Ports;

use crate::failure::Failure;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use types::{ClusterId, Generation, Incarnation, NodeId, PartitionId, StoreId};

/// A start waits so long for a process that may be ending to give its lock back, looking every `LOCK_POLL`.
const PREDECESSOR_WAIT: Duration = Duration::from_secs(2);
const LOCK_POLL: Duration = Duration::from_millis(10);

/// The layout that this version writes and reads.
pub const VERSION: u32 = 1;

/// A data directory that this process holds locked. Its threads share it: nobody waits here for a disk at
/// which another one hangs.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    kind: Kind,
    /// As it is on the disk. Held for a look-up, and never while it is written.
    identity: Mutex<Identity>,
    /// Held while the identity is changed and written.
    changing: Mutex<()>,
    /// Further directories for replicas.
    data_dirs: Vec<DataDirectory>,
    /// This life has its number ([`DataDir::starts`]).
    has_start: AtomicBool,
    /// Unlocked when closed.
    _lock: File,
}

/// Creates a data directory. Never formats: a directory with anything in it that is not ours is refused, and
/// so is one that was initialised before.
pub fn init(root: &Path, kind: Kind, node: NodeId) -> Result<Identity, Failure> {
    let io = |error: std::io::Error| Failure::io(root, &error);
    is_free(root)?;
    if kind == Kind::Node && node.0 == 0 {
        return Err(Failure::usage("a node's number must be at least 1"));
    }
    files::ensure_dir(root).map_err(io)?;
    let identity = Identity {
        node,
        store: StoreId(random()),
        incarnation: Incarnation(0),
        // A node learns its cluster from the controllers; a controller's own directory founds one.
        cluster: (kind == Kind::Controller).then(|| ClusterId(random())),
        removed: false,
        generation: Generation::default(),
        asked: 0,
        askings: Vec::new(),
        unasked: false,
        starts: Vec::new(),
    };
    identity.write(root, kind).map_err(io)?;
    // Last: with this file the directory is whole.
    files::replace(&root.join("VERSION"), format!("{VERSION}\n").as_bytes()).map_err(io)?;
    Ok(identity)
}

/// Refuses a directory that has anything in it.
pub fn is_free(root: &Path) -> Result<(), Failure> {
    let io = |error: std::io::Error| Failure::io(root, &error);
    if root.join("VERSION").exists() {
        return Err(Failure::refused(format!(
            "{} is initialised already; nothing was changed",
            root.display()
        )));
    }
    if root.exists() && fs::read_dir(root).map_err(io)?.next().is_some() {
        return Err(Failure::refused(format!(
            "{} is not empty and not a data directory of understudy; nothing was changed",
            root.display()
        )));
    }
    Ok(())
}

/// Creates the data directory of a controller of a cluster that exists, with what `fill` puts into it.
pub fn found(
    root: &Path,
    cluster: ClusterId,
    fill: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let io = |error: std::io::Error| Failure::io(root, &error);
    is_free(root)?;
    files::ensure_dir(root).map_err(io)?;
    let identity = Identity {
        node: NodeId(0),
        store: StoreId(random()),
        incarnation: Incarnation(0),
        cluster: Some(cluster),
        removed: false,
        generation: Generation::default(),
        asked: 0,
        askings: Vec::new(),
        unasked: false,
        starts: Vec::new(),
    };
    fill(root).map_err(io)?;
    identity.write(root, Kind::Controller).map_err(io)?;
    // Last: with this file the directory is whole.
    files::replace(&root.join("VERSION"), format!("{VERSION}\n").as_bytes()).map_err(io)
}

/// True if this is the directory of a node that was removed from its cluster.
pub fn is_removed(root: &Path) -> bool {
    Identity::read(root, Kind::Node).is_ok_and(|identity| identity.removed)
}

/// A number that nobody can guess or draw again.
pub fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // Its keys come from the system's source of randomness.
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u64(crate::clock::mono().0);
    hasher.finish() >> 1
}

impl DataDir {
    /// Opens a directory for a new life of its process: locks it, checks that it is ours, and raises the
    /// incarnation.
    pub fn open(root: &Path, kind: Kind) -> Result<DataDir, Failure> {
        let io = |error: std::io::Error| Failure::io(root, &error);
        let version = files::read(&root.join("VERSION")).map_err(io)?;
        check_version(root, version)?;
        let lock = lock(root)?;
        let mut identity = Identity::read(root, kind)?;
        if identity.removed {
            return Err(was_removed(identity.node));
        }
        identity.incarnation = Incarnation(identity.incarnation.0 + 1);
        identity.write(root, kind).map_err(io)?;
        let dir = DataDir {
            root: root.to_owned(),
            kind,
            identity: Mutex::new(identity),
            changing: Mutex::default(),
            data_dirs: Vec::new(),
            has_start: AtomicBool::new(false),
            _lock: lock,
        };
        if kind == Kind::Node {
            for part in ["partitions", "tails", "trash"] {
                files::ensure_dir(&root.join(part)).map_err(io)?;
            }
            dir.empty_trash(root);
        }
        Ok(dir)
    }

    /// Where it lies.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whose it is. For a look-up: whoever keeps what this gives holds up all others.
    pub fn identity(&self) -> MutexGuard<'_, Identity> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes another identity; from then on it is what it was made.
    fn change(&self, change: impl FnOnce(&mut Identity)) -> Result<(), Failure> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = self.identity().clone();
        change(&mut changed);
        changed.write(&self.root, self.kind).map_err(|error| Failure::io(&self.root, &error))?;
        *self.identity() = changed;
        Ok(())
    }

    /// The cluster that answered: noted the first time, compared ever after.
    pub fn join(&self, cluster: ClusterId) -> Result<(), Failure> {
        let known = self.identity().cluster;
        match known {
            Some(ours) if ours == cluster => Ok(()),
            Some(ours) => Err(Failure::refused(format!(
                "{} belongs to cluster {ours}, but the controllers are those of {cluster}; \
                 use another data directory or the right controllers",
                self.root.display()
            ))),
            None => self.change(|identity| identity.cluster = Some(cluster)),
        }
    }

    /// Notes durably that controllers of a lower generation are not listened to any more. `asked`: the
    /// records of this one are made of what is kept here, too.
    pub fn hear_only(&self, generation: Generation, asked: bool) -> Result<(), Failure> {
        let known = self.identity().generation;
        if generation <= known {
            return Ok(());
        }
        self.change(|identity| {
            (identity.generation, identity.unasked) = (generation, !asked);
            if asked {
                identity.is_asked(generation);
            }
        })
    }

    /// The numbers of its lives that have registered, this one among them: it gets one the first time, which
    /// is durable before anybody hears it (PR-145).
    pub fn starts(&self) -> Result<Vec<u64>, Failure> {
        if !self.has_start.load(Ordering::Acquire) {
            self.change(|identity| identity.starts(random()))?;
            self.has_start.store(true, Ordering::Release);
        }
        Ok(self.identity().starts.clone())
    }

    /// Notes that the node was removed from its cluster. The error to end with: it says so.
    pub fn note_removed(&self) -> Failure {
        let node = self.identity().node;
        match self.change(|identity| identity.removed = true) {
            Ok(()) => was_removed(node),
            Err(failure) => failure,
        }
    }

    /// The directory of a partition's replica.
    pub fn partition(&self, id: PartitionId) -> PathBuf {
        self.root.join("partitions").join(id.0.to_string())
    }

    /// The directory of tails.
    pub fn tails(&self) -> PathBuf {
        self.root.join("tails")
    }
}

fn was_removed(node: NodeId) -> Failure {
    Failure::refused(format!(
        "{node} was removed from the cluster; to take part again it needs an empty data directory"
    ))
}

fn check_version(root: &Path, version: Option<Vec<u8>>) -> Result<(), Failure> {
    let Some(version) = version else {
        return Err(match root.exists() {
            true => {
                Failure::refused(format!("{} is not a data directory; run: understudy init", root.display()))
            }
            false => {
                Failure::new(3, format!("there is no directory {}; run: understudy init", root.display()))
            }
        });
    };
    let text = String::from_utf8_lossy(&version);
    let number: u32 = text.trim().parse().map_err(|_| {
        Failure::corrupt(format!("{} holds '{}', not a number", root.join("VERSION").display(), text.trim()))
    })?;
    if number > VERSION {
        return Err(Failure::refused(format!(
            "{} has layout {number}, written by a newer version; this one knows {VERSION}",
            root.display()
        )));
    }
    Ok(())
}

/// The lock of this directory, for as long as the file is open. Who held it may just be ending: a supervisor
/// starts a process again at once when it has killed it.
fn lock(root: &Path) -> Result<File, Failure> {
    let path = root.join("LOCK");
    let open = File::options().create(true).truncate(false).write(true).open(&path);
    let file = open.map_err(|error| Failure::io(&path, &error))?;
    let deadline = Instant::now() + PREDECESSOR_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(LOCK_POLL),
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::refused(format!("{} is in use by another process", root.display())));
            }
            Err(TryLockError::Error(error)) => return Err(Failure::io(&path, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("data");
        (dir, root)
    }

    #[test]
    fn every_start_is_another_incarnation_of_the_same_store() {
        let (_keep, root) = fresh();
        let made = init(&root, Kind::Node, NodeId(7)).expect("initialises");
        let first = DataDir::open(&root, Kind::Node).expect("opens").identity().clone();
        let second = DataDir::open(&root, Kind::Node).expect("opens").identity().clone();
        assert_eq!((first.node, first.store, first.incarnation), (NodeId(7), made.store, Incarnation(1)));
        assert_eq!((second.store, second.incarnation), (made.store, Incarnation(2)));
    }

    #[test]
    fn nothing_is_formatted_silently() {
        let (keep, root) = fresh();
        std::fs::write(keep.path().join("letter.txt"), "dear").expect("writes");
        let refused = init(keep.path(), Kind::Node, NodeId(1)).unwrap_err();
        assert!(refused.status == 5 && refused.sentence.contains("not empty"), "{refused}");
        init(&root, Kind::Node, NodeId(1)).expect("initialises");
        assert_eq!(init(&root, Kind::Node, NodeId(1)).unwrap_err().status, 5);
        let error = DataDir::open(keep.path(), Kind::Node).unwrap_err();
        assert!(error.status == 5 && error.sentence.contains("not a data directory"), "{error}");
        assert_eq!(DataDir::open(&keep.path().join("none"), Kind::Node).unwrap_err().status, 3);
    }

    #[test]
    fn a_directory_serves_one_process_of_its_version() {
        let (_keep, root) = fresh();
        init(&root, Kind::Node, NodeId(1)).expect("initialises");
        let blocked = DataDir::open(&root, Kind::Node).expect("opens");
        let error = DataDir::open(&root, Kind::Node).unwrap_err();
        assert!(error.sentence.contains("in use"), "{error}");
        drop(blocked);
        std::fs::write(root.join("VERSION"), "2\n").expect("writes");
        let error = DataDir::open(&root, Kind::Node).unwrap_err();
        assert!(error.status == 5 && error.sentence.contains("newer"), "{error}");
        std::fs::write(root.join("VERSION"), "x\n").expect("writes");
        assert_eq!(DataDir::open(&root, Kind::Node).unwrap_err().status, 6);
    }

    #[test]
    fn another_clusters_directory_is_refused() {
        let (_keep, root) = fresh();
        init(&root, Kind::Node, NodeId(1)).expect("initialises");
        let dir = DataDir::open(&root, Kind::Node).expect("opens");
        dir.join(ClusterId(5)).expect("the first one");
        drop(dir);
        let dir = DataDir::open(&root, Kind::Node).expect("opens");
        dir.join(ClusterId(5)).expect("the same one");
        let error = dir.join(ClusterId(6)).unwrap_err();
        assert!(
            error.status == 5 && error.sentence.contains("c5") && error.sentence.contains("c6"),
            "{error}"
        );
    }

    #[test]
    fn the_directory_of_a_removed_node_starts_no_process() {
        let (_keep, root) = fresh();
        init(&root, Kind::Node, NodeId(3)).expect("initialises");
        let dir = DataDir::open(&root, Kind::Node).expect("opens");
        assert!(!is_removed(&root));
        let said = dir.note_removed();
        drop(dir);
        assert!(is_removed(&root) && !is_removed(&root.join("none")));
        let error = DataDir::open(&root, Kind::Node).unwrap_err();
        assert_eq!((error.status, &error.sentence), (5, &said.sentence));
        assert!(error.sentence.starts_with("n3 was removed from the cluster"), "{error}");
    }

    #[test]
    fn a_damaged_identity_is_told() {
        let (_keep, root) = fresh();
        init(&root, Kind::Node, NodeId(1)).expect("initialises");
        std::fs::write(root.join("node.id"), "{").expect("writes");
        assert_eq!(DataDir::open(&root, Kind::Node).unwrap_err().status, 6);
        std::fs::remove_file(root.join("node.id")).expect("removes");
        assert_eq!(DataDir::open(&root, Kind::Controller).unwrap_err().status, 6);
    }
}
