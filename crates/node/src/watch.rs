//! A thread that looks after the directories of a node's replicas, where there are several: whether each is
//! still the one that it was, what is free there, and what the replicas' files take. A disk that hangs holds
//! up this thread, and not the executor.

use crate::datadir::data_dirs::trouble;
use crate::datadir::{DataDir, DirectoryId};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use types::StoreId;

/// How often directories are looked at.
const EVERY: Duration = Duration::from_millis(250);
/// How often what files take is added up, at most.
const MEASURE: Duration = Duration::from_secs(5);
/// Adding up takes at most one part in so many of the time.
const SHARE: u32 = 100;

/// What is known of a directory.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which; none: the data directory.
    pub id: Option<DirectoryId>,
    root: PathBuf,
    /// Bytes of replicas' files.
    pub bytes: u64,
    /// Bytes that are free, as far as that can be told.
    pub free: u64,
    /// Why it is not what it was.
    pub trouble: Option<String>,
}

/// The thread. It ends some time after this is dropped.
pub struct Watch {
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Hung up to end the thread.
    _ends: Option<Sender<()>>,
}

impl Watch {
    /// Watches the directories of this node that can be used. Without further ones there is nothing to watch,
    /// and no thread.
    pub fn start(dir: &DataDir) -> std::io::Result<Watch> {
        let new =
            |id, root: &Path| Seen { id, root: root.to_owned(), bytes: 0, free: u64::MAX, trouble: None };
        let mut list = vec![new(None, dir.root())];
        let sound = dir.data_dirs().iter().filter(|place| place.lost().is_none());
        list.extend(sound.map(|place| new(Some(place.id), &place.root)));
        // What a new replica's place is chosen by is known from the first on.
        list.iter_mut().for_each(|seen| seen.free = free_bytes(&seen.root));
        let (alone, store) = (dir.data_dirs().is_empty(), dir.identity().store);
        let seen = Arc::new(Mutex::new(list));
        if alone {
            return Ok(Watch { seen, _ends: None });
        }
        let (ends, end) = channel();
        let shared = seen.clone();
        std::thread::Builder::new().name("directories".into()).spawn(move || watch(&shared, store, &end))?;
        Ok(Watch { seen, _ends: Some(ends) })
    }

    /// What is known now.
    pub fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        lock(&self.seen)
    }

    /// Bytes that are free in one directory.
    pub fn free(&self, id: Option<DirectoryId>) -> u64 {
        self.seen().iter().find(|seen| seen.id == id).map_or(0, |seen| seen.free)
    }

    /// What is known of one directory.
    pub fn of(&self, id: Option<DirectoryId>) -> Option<Seen> {
        self.seen().iter().find(|seen| seen.id == id).cloned()
    }
}

fn lock(seen: &Mutex<Vec<Seen>>) -> MutexGuard<'_, Vec<Seen>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(shared: &Mutex<Vec<Seen>>, store: StoreId, end: &Receiver<()>) {
    let mut measure_at = Instant::now();
    let mut doubts = vec![Doubt::default(); lock(shared).len()];
    loop {
        let list = lock(shared).clone();
        let measures = Instant::now() >= measure_at;
        let began = Instant::now();
        for (at, known) in list.into_iter().enumerate().filter(|(_, known)| known.trouble.is_none()) {
            let trouble = known.id.and_then(|id| trouble(&known.root, store, id));
            let trouble = doubts[at].settled(trouble);
            let free = free_bytes(&known.root);
            let bytes = if measures { bytes_below(&known.root.join("partitions")) } else { known.bytes };
            let mut shared = lock(shared);
            (shared[at].trouble, shared[at].free, shared[at].bytes) = (trouble, free, bytes);
        }
        if measures {
            measure_at = Instant::now() + MEASURE.max(began.elapsed() * SHARE);
        }
        match end.recv_timeout(EVERY) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What was found once of a directory: it is lost if the next look finds trouble too.
#[derive(Clone, Copy, Default)]
struct Doubt(bool);

impl Doubt {
    fn settled(&mut self, trouble: Option<String>) -> Option<String> {
        let before = std::mem::replace(&mut self.0, trouble.is_some());
        trouble.filter(|_| before)
    }
}

/// Bytes that are free where this directory is; all there can be if that cannot be told.
pub fn free_bytes(place: &Path) -> u64 {
    let room = rustix::fs::statvfs(place);
    room.map_or(u64::MAX, |room| room.f_bavail.saturating_mul(room.f_frsize))
}

/// The lengths of all files there. What comes and goes meanwhile is counted or not.
fn bytes_below(root: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(root) else { return 0 };
    let length = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => bytes_below(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    };
    entries.flatten().map(length).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_counts_when_it_is_there_twice() {
        let (mut doubt, trouble) = (Doubt::default(), || Some("it is gone".to_owned()));
        let seen = [trouble(), None, trouble(), trouble(), trouble(), None, trouble()];
        let settled = seen.map(|trouble| doubt.settled(trouble).is_some());
        assert_eq!(settled, [false, false, false, true, true, false, false]);
    }

    #[test]
    fn files_are_added_up_at_every_depth() {
        let dir = tempfile::tempdir().expect("a directory");
        let deep = dir.path().join("64/engine");
        fs::create_dir_all(&deep).expect("makes");
        fs::write(deep.join("a"), [0; 10]).expect("writes");
        fs::write(dir.path().join("b"), [0; 5]).expect("writes");
        assert_eq!((bytes_below(dir.path()), bytes_below(&dir.path().join("none"))), (15, 0));
        assert!(free_bytes(dir.path()) > 0);
    }
}
