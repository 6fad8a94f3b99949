//! Threads that look after the directories of a node's replicas, where there are several or the log is
//! elsewhere, one for each: whether it is still the one that it was, whether its disk answers, what is free
//! there, and what the replicas' files take. A disk that hangs holds up its own thread, and neither the
//! others nor an executor.

use crate::datadir::data_dirs::{probe, trouble};
use crate::datadir::{DataDir, DirectoryId};
use driver::progress::DIRECTORY_DEAD;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use types::{Micros, StoreId};

/// How often directories are looked at.
const EVERY: Duration = Duration::from_millis(250);
/// How often a little is written to them, so that their disks have to answer.
const PROBE: Duration = Duration::from_secs(1);
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
    /// The log is not there: nothing else shows whether its disk answers.
    is_asked: bool,
    /// When its disk was asked for something that it has not answered yet.
    asked: Option<Instant>,
}

impl Seen {
    fn new(id: Option<DirectoryId>, root: &Path, is_asked: bool) -> Seen {
        Seen { id, root: root.to_owned(), bytes: 0, free: u64::MAX, trouble: None, is_asked, asked: None }
    }

    /// For how long its disk has not answered.
    fn silent(&self) -> Micros {
        self.asked.map_or(Micros::ZERO, |asked| Micros(asked.elapsed().as_micros() as u64))
    }
}

/// The threads. They end some time after this is dropped.
pub struct Watch {
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Hung up to end the threads.
    _ends: Vec<Sender<()>>,
}

impl Watch {
    /// Watches the directories of this node that can be used. Without further ones, and where the log is in
    /// the data directory and not elsewhere, there is nothing to watch, and no thread.
    pub fn start(dir: &DataDir, log_elsewhere: bool) -> std::io::Result<Watch> {
        let mut list = vec![Seen::new(None, dir.root(), log_elsewhere)];
        let sound = dir.data_dirs().iter().filter(|place| place.lost().is_none());
        list.extend(sound.map(|place| Seen::new(Some(place.id), &place.root, true)));
        // What a new replica's place is chosen by is known from the first on.
        list.iter_mut().for_each(|seen| seen.free = free_bytes(&seen.root));
        let alone = dir.data_dirs().is_empty() && !log_elsewhere;
        let store = dir.identity().store;
        Watch::of(list, store, alone)
    }

    fn of(list: Vec<Seen>, store: StoreId, alone: bool) -> std::io::Result<Watch> {
        let count = if alone { 0 } else { list.len() };
        let (seen, mut ends) = (Arc::new(Mutex::new(list)), Vec::new());
        for at in 0..count {
            let (hung_up, end) = channel();
            let shared = seen.clone();
            let run = move || watch(&shared, at, store, &end);
            std::thread::Builder::new().name("directory".into()).spawn(run)?;
            ends.push(hung_up);
        }
        Ok(Watch { seen, _ends: ends })
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
    pub fn of_directory(&self, id: Option<DirectoryId>) -> Option<Seen> {
        self.seen().iter().find(|seen| seen.id == id).cloned()
    }

    /// The directories whose disk has not answered for a while, and for how long (PR-456). Of the data
    /// directory nothing is said where it has the log too.
    pub fn silent(&self) -> Vec<(Option<DirectoryId>, Micros)> {
        let seen = self.seen();
        let silent = seen.iter().map(|seen| (seen.id, seen.silent()));
        silent.filter(|(_, silent)| *silent >= DIRECTORY_DEAD).collect()
    }
}

fn lock(seen: &Mutex<Vec<Seen>>) -> MutexGuard<'_, Vec<Seen>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at one of the directories until it is lost or nobody wants to know any more.
fn watch(shared: &Mutex<Vec<Seen>>, at: usize, store: StoreId, end: &Receiver<()>) {
    let (mut measure_at, mut probe_at) = (Instant::now(), Instant::now());
    let mut doubt = Doubt::default();
    loop {
        let known = lock(shared)[at].clone();
        if known.trouble.is_some() {
            return;
        }
        let began = Instant::now();
        if known.is_asked {
            lock(shared)[at].asked = Some(began);
            let trouble = known.id.and_then(|id| trouble(&known.root, store, id));
            if trouble.is_none() && began >= probe_at {
                // What comes of it is looked at where a replica is found damaged; here it is to come at all.
                let _ = probe(&known.root);
                probe_at = Instant::now() + PROBE;
            }
            let trouble = doubt.settled(trouble);
            let mut shared = lock(shared);
            (shared[at].trouble, shared[at].asked) = (trouble, None);
        }
        let (free, measures) = (free_bytes(&known.root), began >= measure_at);
        let began = Instant::now();
        let bytes = if measures { bytes_below(&known.root.join("partitions")) } else { known.bytes };
        if measures {
            measure_at = Instant::now() + MEASURE.max(began.elapsed() * SHARE);
        }
        {
            let mut shared = lock(shared);
            (shared[at].free, shared[at].bytes) = (free, bytes);
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

    /// Whether a look at the first of these directories is under way, and the second one was measured.
    fn looks(watch: &Watch) -> (bool, bool) {
        let seen = watch.seen();
        (seen[0].asked.is_some(), seen[1].free != u64::MAX)
    }

    #[test]
    fn pr456_a_disk_that_does_not_answer_is_seen_and_holds_up_nobody_else() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        for (dir, id) in dirs.iter().zip(1..) {
            let whose = format!("{{\"format\":1,\"node\":1,\"store\":1,\"directory\":{id}}}");
            fs::write(dir.path().join("directory.id"), whose).expect("writes");
        }
        // Whoever opens a pipe to write to it waits until somebody reads it.
        let pipe = dirs[0].path().join(".probe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|made| made.success()), "a pipe is made");
        let list = dirs.iter().zip(1..).map(|(dir, id)| Seen::new(Some(DirectoryId(id)), dir.path(), true));
        let watch = Watch::of(list.collect(), StoreId(1), false).expect("starts");
        let until = Instant::now() + Duration::from_secs(10);
        while looks(&watch) != (true, true) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(looks(&watch), (true, true), "the second one is looked at meanwhile");
        assert!(watch.silent().is_empty(), "it may answer soon");
        let late =
            Instant::now().checked_sub(Duration::from_secs(4)).expect("the machine has run for so long");
        watch.seen()[0].asked = Some(late);
        let silent = watch.silent();
        assert!(matches!(silent[..], [(Some(DirectoryId(1)), time)] if time >= DIRECTORY_DEAD), "{silent:?}");
        // It answers.
        drop(fs::File::open(&pipe).expect("opens"));
        while looks(&watch).0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(watch.silent().is_empty());
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
