//! What a node has on its disks of its replicas: which there are, in which directory each one's files are,
//! what the log had of those that are not open yet, and for which there is no room. The disks are the node's;
//! what is asked here is of the replicas of one executor, unless something else is said.
//!
//! The replicas of a lost directory are damaged and have no engine: whatever they led is led by others, and
//! the node goes on with the rest. One that a primary takes in again is given another directory, and a copy;
//! until then nothing that may come back with the lost one is disowned.

use super::data_dirs::{DataDirs, Metas};
use super::room::Room;
use crate::datadir::data_dirs::is_passing;
use crate::datadir::{DataDir, DirectoryId};
use crate::failure::{Failure, status};
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::stores::{self, Found, Meta};
use crate::watch::free_bytes;
use driver::WaitingReplicas;
use driver::directories::FailedWrite;
use driver::recovery::InLog;
use replica::Replica;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use types::{
    ClusterId, Engine, Executor, Executors, Generation, LogKind, Micros, PartitionId, PartitionRecord,
    TableId, TableRecord,
};
use wire::control::DirectoryStatus;

/// What all executors of a node share of its disks. Locks are held for a look-up and never while a disk is
/// waited for: who hangs at one holds up nobody else (PR-420). No request takes one unless a node has several
/// directories.
struct Disks {
    dir: DataDir,
    metas: Mutex<Metas>,
    /// What the log had of partitions that have no replica yet.
    found: Mutex<Found>,
}

/// A node's directories, and what is in them of the replicas of one executor.
pub struct Storage {
    executor: Executor,
    /// The data directory.
    root: PathBuf,
    /// Known once, and for ever.
    cluster: OnceCell<ClusterId>,
    disks: Arc<Disks>,
    directories: DataDirs,
    room: Room,
    waiting: WaitingReplicas,
    /// Replicas that this executor does not vouch for, as their files' disk hangs (PR-456).
    unvouched: BTreeSet<PartitionId>,
    /// Something happened that controllers should hear soon.
    news: bool,
}

impl Storage {
    /// What a node that starts has: each executor is given its part by [`Storage::beside`]. `log_elsewhere`:
    /// the log is not in the data directory.
    pub fn new(
        executors: Executors,
        dir: DataDir,
        (metas, found): (Metas, Found),
        room: Room,
        log_elsewhere: bool,
    ) -> Result<Storage, Failure> {
        let directories = DataDirs::new(&dir, &metas, log_elsewhere);
        let directories = directories.map_err(|error| Failure::io(dir.root(), &error))?;
        let twice = found.keys().find(|id| metas.contains_key(id));
        assert_eq!(twice, None, "a replica has a directory, and what the log had of it was not used");
        let (root, cluster) = (dir.root().to_owned(), OnceCell::new());
        let (metas, found) = (Mutex::new(metas), Mutex::new(found));
        let disks = Arc::new(Disks { dir, metas, found });
        let waiting = WaitingReplicas::default();
        let executor = Executor { all: executors, number: 0 };
        let unvouched = BTreeSet::new();
        Ok(Storage { executor, root, cluster, disks, directories, room, waiting, unvouched, news: false })
    }

    /// The same disks, for another executor.
    pub fn beside(&self, executor: Executor, room: Room) -> Storage {
        Storage {
            executor,
            root: self.root.clone(),
            cluster: OnceCell::new(),
            disks: self.disks.clone(),
            directories: self.directories.beside(),
            room,
            waiting: WaitingReplicas::default(),
            unvouched: BTreeSet::new(),
            news: false,
        }
    }

    /// The data directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The cluster that it belongs to, once that is known.
    pub fn cluster(&self) -> Option<ClusterId> {
        if let Some(known) = self.cluster.get() {
            return Some(*known);
        }
        let found = self.disks.dir.identity().cluster?;
        Some(*self.cluster.get_or_init(|| found))
    }

    /// A cluster answered: noted the first time, compared ever after.
    pub fn join(&mut self, cluster: ClusterId) -> Result<(), Failure> {
        self.disks.dir.join(cluster)
    }

    /// Controllers of a lower generation are not listened to.
    pub fn generation(&self) -> Generation {
        self.disks.dir.identity().generation
    }

    /// How often it was asked for what it keeps, so that the records could be made anew.
    pub fn asked(&self) -> u32 {
        self.disks.dir.identity().asked
    }

    /// For which generations of them it was asked, the newest ones.
    pub fn askings(&self) -> Vec<Generation> {
        self.disks.dir.identity().askings.clone()
    }

    /// True if the records that controllers have were made without asking this node: what it has and they do
    /// not name may be all that is left of it, and stays.
    pub fn is_unasked(&self) -> bool {
        self.disks.dir.identity().unasked
    }

    /// Notes that from now on no lower one is listened to.
    pub fn hear_only(&mut self, generation: Generation, asked: bool) -> Result<(), Failure> {
        self.disks.dir.hear_only(generation, asked)
    }

    /// The numbers of the lives on this directory that have registered, this one among them.
    pub fn starts(&mut self) -> Result<Vec<u64>, Failure> {
        self.disks.dir.starts()
    }

    /// Notes that the node was removed from its cluster. The error to end with: it says so.
    pub fn note_removed(&mut self) -> Failure {
        self.disks.dir.note_removed()
    }

    /// True once after something happened that controllers should hear soon.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Every partition of this executor of which something is here: files, or entries in the log.
    pub fn known(&self) -> BTreeSet<PartitionId> {
        let (metas, found) = (lock(&self.disks.metas), lock(&self.disks.found));
        let all = metas.keys().chain(found.keys()).copied();
        all.filter(|id| self.executor.has(*id)).collect()
    }

    /// True if nothing is here of any partition of this node.
    pub fn is_empty(&self) -> bool {
        lock(&self.disks.metas).is_empty() && lock(&self.disks.found).is_empty()
    }

    /// The partitions of a table that have a replica at this executor.
    pub fn of_table(&self, table: TableId) -> Vec<PartitionId> {
        let metas = lock(&self.disks.metas);
        let all = metas.values().filter(|meta| meta.table == table).map(|meta| meta.partition);
        all.filter(|id| self.executor.has(*id)).collect()
    }

    /// How many replicas this node has.
    pub fn replicas(&self) -> usize {
        lock(&self.disks.metas).len()
    }

    /// Makes a replica, or opens what there is of it. What fails for want of room has changed nothing that
    /// counts, and can be tried again.
    pub fn open(
        &mut self,
        record: &PartitionRecord,
        table: Option<&TableRecord>,
        journal: &mut Journal,
        metrics: &Metrics,
    ) -> Result<Replica, Failure> {
        let id = record.id;
        let known = lock(&self.disks.metas).get(&id).copied();
        let meta = match (known, table) {
            (Some(meta), _) => meta,
            (None, Some(table)) => self.new_engine_dir(Meta::of(id, table))?,
            (None, None) => {
                let why = format!("partition {id} came before its table {}", record.table);
                return Err(Failure::corrupt(why));
            }
        };
        match meta.log {
            LogKind::Disk => stores::create(&self.disks.dir, &meta)?,
            LogKind::Memory => journal.keep_in_memory(id),
        }
        // From here on its description says where its files are, whatever else finds no room.
        lock(&self.disks.metas).insert(id, meta);
        let found = lock(&self.disks.found).get(&id).cloned();
        let in_log = found.as_ref().map_or(InLog::New, InLog::Found);
        let me = self.disks.dir.identity().member();
        let engine = stores::open_engine(&self.disks.dir, &meta, metrics)?;
        // Other executors do not wait until its log is replayed.
        let replica = stores::replay((me, &meta), engine, in_log, journal.reader(), metrics)?;
        lock(&self.disks.found).remove(&id);
        Ok(replica)
    }

    /// A replica is removed, its engine being closed. What it has in a further directory goes first, since
    /// its description says where that is; in a directory that is lost it stays, and is found when that comes
    /// back.
    pub fn remove(&mut self, id: PartitionId) -> Result<(), Failure> {
        if let Some((further, why)) = self.disks.discard_engine(id) {
            self.lose(further, why);
        }
        self.waiting.remove(id);
        lock(&self.disks.metas).remove(&id);
        lock(&self.disks.found).remove(&id);
        let dir = &self.disks.dir;
        let path = dir.partition(id);
        dir.discard(&path).map_err(|error| Failure::io(&path, &error))
    }

    /// What became of making a replica, or a place for it: nothing if there was no room, and it is tried
    /// again.
    pub fn with_room<T>(
        &mut self,
        id: PartitionId,
        now: Micros,
        outcome: Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        match outcome {
            Err(failure) if failure.passing => {
                if self.waiting.add(id, now) {
                    let node = self.disks.dir.identity().node.0;
                    eprintln!("partition {id} finds no place on node {node}: {failure}; it is tried again");
                    self.news = true;
                }
                Ok(None)
            }
            outcome => {
                self.waiting.remove(id);
                outcome.map(Some)
            }
        }
    }

    /// The partitions that wait for room.
    pub fn waiting(&self) -> &WaitingReplicas {
        &self.waiting
    }

    /// Those of the waiting partitions that are to be tried again, after forgetting those that need nothing
    /// any more.
    pub fn waiting_due(&mut self, now: Micros, needs: impl Fn(PartitionId) -> bool) -> Vec<PartitionId> {
        self.waiting.keep(needs);
        self.waiting.due(now)
    }

    /// True if a replica waits for room.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The directory in which a replica's files are, if it is a further one.
    pub fn further(&self, id: PartitionId) -> Option<DirectoryId> {
        if !self.has_several() {
            return None;
        }
        lock(&self.disks.metas).get(&id).and_then(|meta| meta.directory)
    }

    /// A further directory cannot be used any more.
    fn lose(&mut self, id: DirectoryId, why: String) {
        let is_news = self.disks.dir.lose(id, why);
        self.news |= is_news;
    }

    /// A write of a replica's files failed (R10).
    pub fn engine_failed(&mut self, id: PartitionId, error: &str) -> Result<(), Failure> {
        match FailedWrite::of(self.further(id)) {
            FailedWrite::LosesDirectory(further) => {
                self.lose(further, format!("partition {id} cannot be written: {error}"));
                Ok(())
            }
            FailedWrite::StopsNode => {
                let why = format!("partition {id}: its engine cannot be written to disk, this node stops");
                Err(Failure::new(status::IO, format!("{why}: {error}")))
            }
        }
    }

    /// A replica was found damaged.
    pub fn suspect(&mut self, partition: PartitionId) {
        self.news = true;
        if let Some(further) = self.further(partition) {
            self.directories.suspect(further);
        }
    }

    /// True if some replica is, or may be, in a further directory.
    pub fn has_several(&self) -> bool {
        self.directories.are_several()
    }

    /// Looks after the directories. The replicas that were in those that are lost, once each, with what to
    /// tell them.
    pub fn newly_lost(&mut self) -> Vec<(PartitionId, String)> {
        let lost = self.directories.look(&self.disks.dir);
        lost.into_iter().for_each(|(id, why)| self.lose(id, why));
        let dir = &self.disks.dir;
        let untold = self.directories.take_untold(dir);
        self.news |= !untold.is_empty();
        let metas = lock(&self.disks.metas);
        let there = metas.values().filter(|meta| meta.directory.is_some_and(|id| untold.contains(&id)));
        let own = there.filter(|meta| self.executor.has(meta.partition));
        own.map(|meta| (meta.partition, dir.engine_dir(meta).err().unwrap_or_default())).collect()
    }

    /// The replicas of this executor whose files' disk, which is not the log's, has not answered for a while,
    /// and for how long it has not. Those of directories that are lost are not among them.
    pub fn silent(&self) -> Vec<(PartitionId, Micros)> {
        let (silent, dir) = (self.directories.silent(), &self.disks.dir);
        if silent.is_empty() {
            return Vec::new();
        }
        let lost = |id| dir.data_dirs().iter().any(|place| Some(place.id) == id && place.lost().is_some());
        let of = |meta: &Meta| {
            let (_, time) = silent.iter().find(|(id, _)| meta.directory == *id && !lost(*id))?;
            Some((meta.partition, *time))
        };
        let own = |meta: &&Meta| meta.log == LogKind::Disk && self.executor.has(meta.partition);
        lock(&self.disks.metas).values().filter(own).filter_map(of).collect()
    }

    /// These replicas are not vouched for from now on. Gives those that are again.
    pub fn note_unvouched(&mut self, unvouched: BTreeSet<PartitionId>) -> Vec<PartitionId> {
        let before = std::mem::replace(&mut self.unvouched, unvouched);
        before.difference(&self.unvouched).copied().collect()
    }

    /// Another place for a replica that is to be given a copy and has none: an empty engine. None if it was
    /// not to be had this time.
    pub fn relocate(&mut self, id: PartitionId) -> Result<Option<Box<dyn Engine>>, Failure> {
        let known = lock(&self.disks.metas).get(&id).copied();
        let Some(meta) = known else { return Ok(None) };
        let Some(meta) = self.make_engine_dir(meta)? else { return Ok(None) };
        // From here on what is in the lost directory is left over, should it come back.
        stores::describe(&self.disks.dir, &meta)?;
        lock(&self.disks.metas).insert(id, meta);
        let fresh = stores::fresh_engine(&self.disks.dir, &meta);
        match fresh {
            Ok(engine) => Ok(Some(engine)),
            Err(failure) => match meta.directory.filter(|_| !failure.passing) {
                Some(further) => {
                    self.lose(further, failure.sentence);
                    Ok(None)
                }
                None => Err(failure),
            },
        }
    }

    /// Makes an empty place for a replica's files. None if what was chosen was just found to be lost.
    fn make_engine_dir(&mut self, meta: Meta) -> Result<Option<Meta>, Failure> {
        if meta.log == LogKind::Memory {
            return Ok(Some(meta));
        }
        let reserve = self.room.reserve();
        let dir = &self.disks.dir;
        let directory = self.directories.choose(dir, &lock(&self.disks.metas), reserve);
        let meta = Meta { directory, ..meta };
        match (dir.clear_engine_dir(&meta), meta.directory) {
            (Ok(()), _) => Ok(Some(meta)),
            (Err(error), Some(id)) if !wal::is_full(&error) && !is_passing(&error) => {
                self.lose(id, error.to_string());
                Ok(None)
            }
            (Err(error), _) => Err(Failure::io(&self.root, &error)),
        }
    }

    /// The same for a new replica, in some directory.
    fn new_engine_dir(&mut self, meta: Meta) -> Result<Meta, Failure> {
        loop {
            if let Some(meta) = self.make_engine_dir(meta)? {
                return Ok(meta);
            }
        }
    }

    /// Room where the data directory is.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Looks at the disks' room.
    pub fn look_at_room(&mut self) {
        self.room.look(&self.root);
    }

    /// Writes are refused from now on if there is too little room, or the log refuses them.
    pub fn settle_room(&mut self, log_is_full: bool) {
        self.room.settle(log_is_full);
    }

    /// Bytes that are free where this replica's files are, as they were at the last look.
    pub fn free_for(&self, id: PartitionId) -> u64 {
        self.further(id).map_or(self.room.free(), |further| self.directories.free(further))
    }

    /// The same, looked at now where that can be done without waiting for a disk, and without what is kept
    /// free.
    pub fn free_for_load(&self, id: PartitionId) -> u64 {
        let free = if self.further(id).is_some() { self.free_for(id) } else { free_bytes(&self.root) };
        free.saturating_sub(self.room.reserve())
    }

    /// The directory whose disk has no room for more of this partition, if so: writes are refused (F20).
    pub fn without_room(&self, id: PartitionId) -> Option<String> {
        if self.room.is_full() {
            return Some(self.root.display().to_string());
        }
        let further = self.further(id)?;
        if self.free_for(id) >= self.room.reserve() {
            return None;
        }
        let dir = &self.disks.dir;
        dir.data_dirs().iter().find(|place| place.id == further).map(ToString::to_string)
    }

    /// What controllers and people are told of the directories, where there are several.
    pub fn directories(&self) -> Vec<DirectoryStatus> {
        if !self.has_several() {
            return Vec::new();
        }
        let dir = &self.disks.dir;
        self.directories.status(dir, &lock(&self.disks.metas))
    }
}

impl Disks {
    /// Moves what a replica has in a further directory out of its way; in one that is lost it stays. The
    /// directory, and what is wrong with it, if that fails.
    fn discard_engine(&self, id: PartitionId) -> Option<(DirectoryId, String)> {
        let meta = lock(&self.metas).get(&id).copied()?;
        let further = meta.directory?;
        let engine_dir = self.dir.engine_dir(&meta).ok()?;
        let error = self.dir.discard(&engine_dir).err()?;
        Some((further, error.to_string()))
    }
}

fn lock<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().expect("a thread panicked while it looked at what is on the disks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datadir::{Kind, init};
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;
    use types::{EngineKind, NodeId};

    #[test]
    fn pr420_an_executor_that_hangs_at_a_disk_holds_up_no_other_one() {
        let keep = tempfile::tempdir().expect("a directory");
        let (root, further) = (keep.path().join("data"), keep.path().join("further"));
        init(&root, Kind::Node, NodeId(1)).expect("initialises");
        std::fs::create_dir(&further).expect("makes");
        let mut dir = DataDir::open(&root, Kind::Node).expect("opens");
        let executors = Executors::new(2).expect("so many can be");
        let of = |number| (64..).map(PartitionId).find(|id| executors.of(*id) == number).expect("has some");
        let (firsts, seconds) = (of(0), of(1));
        let (engine, log) = (EngineKind::Lsm, LogKind::Disk);
        let meta = |partition| Meta { format: 1, partition, table: TableId(1), engine, log, directory: None };
        let metas: Metas = [firsts, seconds].map(|id| (id, meta(id))).into();
        dir.open_data_dirs(&[further], &metas).expect("opens");
        metas.values().for_each(|meta| stores::create(&dir, meta).expect("makes"));
        // Whoever writes this file waits until somebody reads it.
        let hangs = dir.partition(firsts).join(".partition.json.new");
        assert!(Command::new("mkfifo").arg(&hangs).status().expect("runs").success());
        let room = || Room::new(0, root.clone());
        let mut first = Storage::new(executors, dir, (metas, Found::new()), room(), false).expect("starts");
        let mut second = first.beside(Executor { all: executors, number: 1 }, room());
        let hung = thread::spawn(move || drop(first.relocate(firsts)));
        thread::sleep(Duration::from_millis(100));
        let (to, done) = channel();
        let works = thread::spawn(move || {
            second.newly_lost();
            let told = (second.directories().len(), second.generation());
            second.remove(seconds).expect("removes");
            to.send(told).expect("somebody waits");
        });
        let told = done.recv_timeout(Duration::from_secs(30)).expect("it waits for the other one");
        assert_eq!(told, (2, Generation::default()));
        assert!(!hung.is_finished(), "it hangs all the while");
        works.join().expect("it worked");
        drop(std::fs::read(&hangs));
        hung.join().expect("it goes on");
    }
}
