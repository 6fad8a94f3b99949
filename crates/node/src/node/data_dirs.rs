//! Several directories for replicas' files: where a new replica goes, and which of them are lost.

use crate::datadir::data_dirs::{probe, trouble};
use crate::datadir::{DataDir, DirectoryId};
use crate::stores::Meta;
use crate::watch::Watch;
use driver::directories::{self, Candidate};
use driver::progress::is_lost;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{LogKind, Micros, PartitionId};
use wire::control::DirectoryStatus;

/// Replicas there are, and what they are made of.
pub type Metas = BTreeMap<PartitionId, Meta>;

/// What an executor knows of its node's directories.
pub struct DataDirs {
    watch: Arc<Watch>,
    /// Some replica is, or may be, in a further directory.
    several: bool,
    /// A replica there was found damaged: whether it is the disk is to be found out.
    suspects: BTreeSet<DirectoryId>,
    /// Lost, and its replicas know.
    told: BTreeSet<DirectoryId>,
}

impl DataDirs {
    /// For a node that starts. `log_elsewhere`: the log is not in the data directory.
    pub fn new(dir: &DataDir, metas: &Metas, log_elsewhere: bool) -> std::io::Result<DataDirs> {
        let several = !dir.data_dirs().is_empty() || metas.values().any(|meta| meta.directory.is_some());
        let watch = Arc::new(Watch::start(dir, log_elsewhere)?);
        Ok(DataDirs { watch, several, suspects: BTreeSet::new(), told: BTreeSet::new() })
    }

    /// The same for another executor, which tells its own replicas.
    pub fn beside(&self) -> DataDirs {
        let (watch, several) = (self.watch.clone(), self.several);
        DataDirs { watch, several, suspects: BTreeSet::new(), told: BTreeSet::new() }
    }

    /// True if some replica is, or may be, in a further directory.
    pub fn are_several(&self) -> bool {
        self.several
    }

    /// A replica in this directory was found damaged.
    pub fn suspect(&mut self, id: DirectoryId) {
        self.suspects.insert(id);
    }

    /// The directories whose disk has not answered for a while, and for how long; none: the data directory,
    /// if the log is elsewhere.
    pub fn silent(&self) -> Vec<(Option<DirectoryId>, Micros)> {
        self.watch.silent()
    }

    /// The directories that are found to be lost, and why: those whose disk has not answered for long are
    /// (PR-456). One that a replica's damage has brought under suspicion is tried now, unless nobody would
    /// answer.
    pub fn look(&mut self, dir: &DataDir) -> Vec<(DirectoryId, String)> {
        let silent = self.silent();
        let hangs = |id: &DirectoryId| silent.iter().any(|(other, _)| *other == Some(*id));
        let mut lost: Vec<(DirectoryId, String)> = {
            let seen = self.watch.seen();
            seen.iter().filter_map(|seen| Some((seen.id?, seen.trouble.clone()?))).collect()
        };
        let given_up = silent.iter().filter(|(_, time)| is_lost(*time));
        lost.extend(given_up.filter_map(|(id, time)| {
            let seconds = time.as_millis() / 1000;
            Some(((*id)?, format!("its disk has not answered for {seconds} s")))
        }));
        let store = dir.identity().store;
        let (later, suspects): (BTreeSet<DirectoryId>, BTreeSet<DirectoryId>) =
            std::mem::take(&mut self.suspects).into_iter().partition(hangs);
        self.suspects = later;
        for id in suspects {
            let known = lost.iter().any(|(lost, _)| *lost == id);
            let place = dir.data_dirs().iter().find(|place| place.id == id && place.lost().is_none());
            let place = place.filter(|_| !known);
            let why = place.and_then(|place| trouble(&place.root, store, id).or_else(|| probe(&place.root)));
            lost.extend(why.map(|why| (id, why)));
        }
        lost
    }

    /// The directories that are lost, once each: their replicas are told.
    pub fn take_untold(&mut self, dir: &DataDir) -> Vec<DirectoryId> {
        let lost = dir.data_dirs().iter().filter(|place| place.lost().is_some()).map(|place| place.id);
        lost.filter(|id| self.told.insert(*id)).collect()
    }

    /// Where a new replica goes: to the directory that has the least, of those that have `reserve` bytes of
    /// room and whose disk answers. None: beside its description.
    pub fn choose(&self, dir: &DataDir, metas: &Metas, reserve: u64) -> Option<DirectoryId> {
        let silent = self.silent();
        let answers = |id: DirectoryId| silent.iter().all(|(other, _)| *other != Some(id));
        let sound = dir.data_dirs().iter().filter(|place| place.lost().is_none() && answers(place.id));
        let sound = sound.map(|place| Some(place.id));
        let candidate = |id: Option<DirectoryId>| {
            let seen = self.watch.of_directory(id);
            let (bytes, free) = seen.map_or((0, 0), |seen| (seen.bytes, seen.free));
            Candidate { id, bytes, free, replicas: replicas_in(metas, id) }
        };
        directories::choose([None].into_iter().chain(sound).map(candidate), reserve)
    }

    /// Bytes that are free in a further directory.
    pub fn free(&self, id: DirectoryId) -> u64 {
        self.watch.free(Some(id))
    }

    /// What controllers and people are told, where there are several.
    pub fn status(&self, dir: &DataDir, metas: &Metas) -> Vec<DirectoryStatus> {
        if !self.several {
            return Vec::new();
        }
        let status = |id: Option<DirectoryId>, path: String, lost: Option<&str>| {
            let seen = self.watch.of_directory(id).filter(|_| lost.is_none());
            DirectoryStatus {
                path,
                bytes: seen.as_ref().map_or(0, |seen| seen.bytes),
                free: seen.as_ref().map_or(0, |seen| seen.free),
                replicas: replicas_in(metas, id) as u32,
                lost: lost.unwrap_or_default().to_owned(),
            }
        };
        let data_dir = status(None, dir.root().display().to_string(), None);
        let further =
            dir.data_dirs().iter().map(|place| status(Some(place.id), place.to_string(), place.lost()));
        [data_dir].into_iter().chain(further).collect()
    }
}

fn replicas_in(metas: &Metas, id: Option<DirectoryId>) -> usize {
    metas.values().filter(|meta| meta.directory == id && meta.log == LogKind::Disk).count()
}
