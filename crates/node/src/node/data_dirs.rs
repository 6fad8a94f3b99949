//! Several directories for replicas' files: where a new replica goes, and what becomes of those whose directory is lost.
//!
//! The replicas of a lost directory are damaged and have no engine: whatever they led is led by others, and the node goes on with the
//! rest. One that a primary takes in again is given another directory, and a copy; until then nothing that may come back with the
//! lost one is disowned.

use super::Node;
use crate::datadir::data_dirs::{is_passing, probe, trouble};
use crate::datadir::{DataDir, DirectoryId};
use crate::failure::{Failure, status};
use crate::stores::{self, Meta};
use crate::watch::Watch;
use std::collections::{BTreeMap, BTreeSet};
use types::{Engine, LogKind, PartitionId};
use wire::control::DirectoryStatus;

/// Directories whose files take about as much are told apart by how many replicas they have: in steps of so many bytes.
const STEP: u64 = 64 << 20;

/// What the executor knows of its directories.
pub struct DataDirs {
    watch: Watch,
    /// Some replica is, or may be, in a further directory.
    several: bool,
    /// A replica there was found damaged: whether it is the disk is to be found out.
    suspects: BTreeSet<DirectoryId>,
    /// Lost, and its replicas know.
    told: BTreeSet<DirectoryId>,
}

impl DataDirs {
    /// For a node that starts.
    pub fn new(dir: &DataDir, metas: &BTreeMap<PartitionId, Meta>) -> std::io::Result<DataDirs> {
        let several = !dir.data_dirs().is_empty() || metas.values().any(|meta| meta.directory.is_some());
        Ok(DataDirs { watch: Watch::start(dir)?, several, suspects: BTreeSet::new(), told: BTreeSet::new() })
    }
}

impl Node {
    /// The directory in which a replica's files are, if it is a further one.
    pub(super) fn further(&self, id: PartitionId) -> Option<DirectoryId> {
        self.metas.get(&id).and_then(|meta| meta.directory)
    }

    /// A further directory cannot be used any more.
    pub(super) fn lose_directory(&mut self, id: DirectoryId, why: String) {
        if self.dir.lose(id, why) {
            self.timer.status_soon();
        }
    }

    /// A write of a replica's files failed. What the disk did with the bytes is unknown, and trying again would not tell (R10):
    /// their directory is lost, and if that is the data directory, this node.
    pub(super) fn disk_failed(&mut self, id: PartitionId, error: &str) -> Result<(), Failure> {
        match self.further(id) {
            Some(further) => {
                self.lose_directory(further, format!("partition {id} cannot be written: {error}"));
                Ok(())
            }
            None => {
                let why = format!("partition {id}: its engine cannot be written to disk, this node stops");
                Err(Failure::new(status::IO, format!("{why}: {error}")))
            }
        }
    }

    /// Finds the engines to whose files that happened while they received or installed some.
    pub(super) fn look_at_engines(&mut self) -> Result<(), Failure> {
        let failed = self.host.replicas().filter_map(|replica| {
            let error = replica.engine().failed_write()?;
            Some((replica.id(), error.to_owned()))
        });
        let failed: Vec<_> = failed.collect();
        failed.into_iter().try_for_each(|(id, error)| self.disk_failed(id, &error))
    }

    /// A replica was found damaged.
    pub(super) fn suspect_directory(&mut self, partition: PartitionId) {
        let further = self.further(partition);
        self.data_dirs.suspects.extend(further);
    }

    /// Looks after directories and the replicas that lost theirs.
    pub(super) fn keep_data_dirs(&mut self) -> Result<(), Failure> {
        if !self.data_dirs.several {
            return Ok(());
        }
        let troubles: Vec<_> = {
            let seen = self.data_dirs.watch.seen();
            seen.iter().filter_map(|seen| Some((seen.id?, seen.trouble.clone()?))).collect()
        };
        troubles.into_iter().for_each(|(id, why)| self.lose_directory(id, why));
        for id in std::mem::take(&mut self.data_dirs.suspects) {
            let place = self.dir.data_dirs().iter().find(|place| place.id == id && place.lost.is_none());
            let store = self.dir.identity().store;
            let why = place.and_then(|place| trouble(&place.root, store, id).or_else(|| probe(&place.root)));
            if let Some(why) = why {
                self.lose_directory(id, why);
            }
        }
        self.tell_replicas();
        let mut storage_lost = self.host.storage_lost();
        storage_lost.retain(|id| !self.waits_for_room(*id));
        storage_lost.into_iter().try_for_each(|id| {
            let housed = self.relocate(id);
            self.with_room(id, housed).map(drop)
        })
    }

    /// The replicas of directories that were lost give themselves up.
    fn tell_replicas(&mut self) {
        let lost: Vec<DirectoryId> =
            self.dir.data_dirs().iter().filter(|place| place.lost.is_some()).map(|place| place.id).collect();
        for id in lost.into_iter().filter(|id| self.data_dirs.told.insert(*id)) {
            let there = self.metas.values().filter(|meta| meta.directory == Some(id)).copied();
            for meta in there.collect::<Vec<_>>() {
                let why = self.dir.engine_dir(&meta).err().unwrap_or_default();
                let empty = stores::no_engine();
                if let Some(engine) = self.host.lose(self.now, meta.partition, empty, why, &mut self.out) {
                    close(engine);
                }
            }
            self.timer.status_soon();
        }
    }

    /// A replica is to be given a copy, and has no place for it.
    fn relocate(&mut self, id: PartitionId) -> Result<(), Failure> {
        let Some(meta) = self.metas.get(&id).copied() else { return Ok(()) };
        let Some(meta) = self.make_engine_dir(meta)? else { return Ok(()) };
        // From here on what is in the lost directory is left over, should it come back.
        stores::describe(&self.dir, &meta)?;
        self.metas.insert(id, meta);
        match stores::fresh_engine(&self.dir, &meta) {
            Ok(engine) => self.host.relocate(self.now, id, engine, &mut self.out),
            Err(failure) => match meta.directory.filter(|_| !failure.passing) {
                Some(further) => self.lose_directory(further, failure.sentence),
                None => return Err(failure),
            },
        }
        Ok(())
    }

    /// Makes an empty place for a replica's files: in the directory that has the least, of those that have room. None if what
    /// was chosen was just found to be lost.
    fn make_engine_dir(&mut self, meta: Meta) -> Result<Option<Meta>, Failure> {
        if meta.log == LogKind::Memory {
            return Ok(Some(meta));
        }
        let meta = Meta { directory: self.choose(), ..meta };
        match (self.dir.clear_engine_dir(&meta), meta.directory) {
            (Ok(()), _) => Ok(Some(meta)),
            (Err(error), Some(id)) if !wal::is_full(&error) && !is_passing(&error) => {
                self.lose_directory(id, error.to_string());
                Ok(None)
            }
            (Err(error), _) => Err(Failure::io(self.dir.root(), &error)),
        }
    }

    /// The same for a new replica, in some directory.
    pub(super) fn new_engine_dir(&mut self, meta: Meta) -> Result<Meta, Failure> {
        loop {
            if let Some(meta) = self.make_engine_dir(meta)? {
                return Ok(meta);
            }
        }
    }

    /// A replica is removed: what it has in a further directory goes first, since its description says where that is. In a
    /// directory that is lost it stays, and is found when that comes back.
    pub(super) fn leave_engine_dir(&mut self, id: PartitionId) {
        let Some(meta) = self.metas.get(&id).copied() else { return };
        if let (Some(further), Ok(engine_dir)) = (meta.directory, self.dir.engine_dir(&meta))
            && let Err(error) = self.dir.discard(&engine_dir)
        {
            self.lose_directory(further, error.to_string());
        }
    }

    fn choose(&self) -> Option<DirectoryId> {
        let sound =
            self.dir.data_dirs().iter().filter(|place| place.lost.is_none()).map(|place| Some(place.id));
        let order = |id: &Option<DirectoryId>| {
            let seen = self.data_dirs.watch.of(*id);
            let (bytes, free) = seen.map_or((0, 0), |seen| (seen.bytes, seen.free));
            (free < self.config.log.reserve_bytes, bytes / STEP, self.replicas_in(*id))
        };
        // The first of those that are alike.
        [None].into_iter().chain(sound).min_by_key(order).flatten()
    }

    fn replicas_in(&self, id: Option<DirectoryId>) -> usize {
        self.metas.values().filter(|meta| meta.directory == id && meta.log == LogKind::Disk).count()
    }

    /// Bytes that are free where this replica's files are.
    pub(super) fn free_for(&self, id: PartitionId) -> u64 {
        match self.further(id) {
            Some(further) => self.data_dirs.watch.free(Some(further)),
            None => self.timer.free(),
        }
    }

    /// The directory in which there is no room for more of this partition, if so: writes are refused (F20).
    pub(super) fn full_directory(&self, id: PartitionId) -> Option<String> {
        let further = self.further(id)?;
        if self.free_for(id) >= self.config.log.reserve_bytes {
            return None;
        }
        self.dir.data_dirs().iter().find(|place| place.id == further).map(ToString::to_string)
    }

    /// What controllers and people are told, where there are several.
    pub(super) fn directories(&self) -> Vec<DirectoryStatus> {
        if !self.data_dirs.several {
            return Vec::new();
        }
        let status = |id: Option<DirectoryId>, path: String, lost: &Option<String>| {
            let seen = self.data_dirs.watch.of(id).filter(|_| lost.is_none());
            DirectoryStatus {
                path,
                bytes: seen.as_ref().map_or(0, |seen| seen.bytes),
                free: seen.as_ref().map_or(0, |seen| seen.free),
                replicas: self.replicas_in(id) as u32,
                lost: lost.clone().unwrap_or_default(),
            }
        };
        let data_dir = status(None, self.dir.root().display().to_string(), &None);
        let further =
            self.dir.data_dirs().iter().map(|place| status(Some(place.id), place.to_string(), &place.lost));
        [data_dir].into_iter().chain(further).collect()
    }
}

/// Closes an engine whose disk may answer late or never: without the thread its files are closed here.
fn close(engine: Box<dyn Engine>) {
    drop(std::thread::Builder::new().name("close".into()).spawn(move || drop(engine)));
}
