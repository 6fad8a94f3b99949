//! What a node keeps of the cluster's records (PR-107), on a thread of its own: a journal of the same
//! bytes as the embedded metastore's, below `records/` of the data directory.
//!
//! What cannot be written must not be missed later: then the journal is removed, which takes no room, and a
//! node without one says that it has lost what it kept. All of it is written again as soon as that works.

use crate::datadir::files;
use crate::stop::{Stopper, Watched};
use metastore::{Embedded, FileStore, MetaError, Metastore, Store as _, embedded::journal};
use mio::Waker;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;
use types::txn::Txn;

/// After a write that failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Keys and their bytes.
pub type Records = BTreeMap<String, Vec<u8>>;

pub use driver::kept::Change;

/// Some changes that were handed over together, with their number.
type Batch = (u64, Vec<Change>);

/// The thread. Dropping it writes what was handed over, and ends it.
pub struct Keeper {
    work: Option<Sender<Batch>>,
    /// The last number that was handed over.
    given: u64,
    /// Everything up to this number is on the disk, or will never be missed.
    done: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Begins with what is kept in this data directory. What cannot be read is set aside: then nothing is
    /// known.
    pub fn start(root: &Path, stopper: &Stopper) -> io::Result<(Keeper, Records)> {
        let place = root.join("records");
        files::ensure_dir(&place)?;
        let path = place.join("journal");
        let records = match read(&path) {
            Ok(records) => records,
            Err(why) => {
                let aside = place.join("journal.damaged");
                match fs::rename(&path, &aside) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => files::sync_dir(&place)?,
                }
                eprintln!(
                    "{} cannot be read ({why}) and is set aside in {}: a controller tells all of it again",
                    path.display(),
                    aside.display()
                );
                Records::new()
            }
        };
        let (work, todo) = mpsc::channel();
        let (done, watched) = (Arc::new(AtomicU64::new(0)), Watched::new(stopper, "records"));
        let writer = Writer { path, records: records.clone(), store: None, disowned: false };
        let (signal, waker) = (done.clone(), stopper.waker().clone());
        let run = move || match writer.run(&todo, &signal, &waker) {
            Ok(()) => watched.end_well(),
            Err(error) => watched.end(&error.to_string()),
        };
        let thread = std::thread::Builder::new().name("records".into()).spawn(run)?;
        Ok((Keeper { work: Some(work), given: 0, done, thread: Some(thread) }, records))
    }

    /// Hands changes over. Gives their number, for [`Keeper::is_done`].
    pub fn give(&mut self, changes: Vec<Change>) -> u64 {
        self.given += 1;
        if let Some(work) = &self.work {
            // The thread ends before this only if it cannot go on, which ends the node.
            let _ = work.send((self.given, changes));
        }
        self.given
    }

    /// True if everything up to this number is on the disk, or will never be missed.
    pub fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// The last number that was handed over.
    pub fn given(&self) -> u64 {
        self.given
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// What is in a journal; nothing, if there is none.
fn read(path: &Path) -> Result<Records, String> {
    let mut file = FileStore::open(path).map_err(|error| error.to_string())?;
    let Some(bytes) = file.read().map_err(|error| error.to_string())? else { return Ok(Records::new()) };
    let kept = journal::replay(&bytes)?.table.snapshot("");
    Ok(kept.entries.into_iter().map(|entry| (entry.key, entry.value)).collect())
}

/// What the thread has.
struct Writer {
    path: PathBuf,
    /// All that is to be there.
    records: Records,
    /// Open once something was to be written.
    store: Option<Embedded<FileStore>>,
    /// There is no journal: a write failed, and all of it is to be written.
    disowned: bool,
}

impl Writer {
    fn run(mut self, todo: &Receiver<Batch>, done: &AtomicU64, waker: &Waker) -> io::Result<()> {
        loop {
            let first = match self.disowned {
                true => todo.recv_timeout(RETRY_DELAY),
                false => todo.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let (number, changes) = match first {
                Ok(first) => self.gather(first, todo),
                Err(RecvTimeoutError::Timeout) => (0, BTreeMap::new()),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            self.keep(changes)?;
            if number > 0 {
                done.store(number, Ordering::Release);
                // Fails only when the executor is gone.
                let _ = waker.wake();
            }
        }
    }

    /// One fsync for all that waits. Gives the highest number with the changes of each key.
    fn gather(&mut self, first: Batch, todo: &Receiver<Batch>) -> (u64, BTreeMap<String, Option<Vec<u8>>>) {
        let mut changes = BTreeMap::new();
        let mut highest = 0;
        for (number, batch) in std::iter::once(first).chain(std::iter::from_fn(|| todo.try_recv().ok())) {
            highest = number;
            changes.extend(batch);
        }
        (highest, changes)
    }

    /// The error: not even that it is not kept can be kept.
    fn keep(&mut self, changes: BTreeMap<String, Option<Vec<u8>>>) -> io::Result<()> {
        for (key, value) in &changes {
            match value {
                Some(value) => drop(self.records.insert(key.clone(), value.clone())),
                None => drop(self.records.remove(key)),
            }
        }
        let Err(error) = self.write(changes) else { return Ok(()) };
        self.store = None;
        if !self.disowned {
            eprintln!("{} cannot be written ({error}): nothing is kept until it can be", self.path.display());
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => files::sync_dir(self.path.parent().expect("a file lies in a directory"))?,
        }
        self.disowned = true;
        Ok(())
    }

    fn write(&mut self, changes: BTreeMap<String, Option<Vec<u8>>>) -> Result<(), MetaError> {
        let store = match &mut self.store {
            Some(store) => store,
            None => {
                let file = FileStore::open(&self.path);
                let file = file.map_err(|error| MetaError::Unavailable(error.to_string()))?;
                self.store.insert(Embedded::open(file)?)
            }
        };
        let mut txn = Txn::default();
        let all: Vec<Change> = match self.disowned {
            true => self.records.clone().into_iter().map(some).collect(),
            false => changes.into_iter().collect(),
        };
        for (key, value) in all {
            match value {
                Some(value) => txn.puts.push((key, value)),
                None => txn.deletes.push(key),
            }
        }
        store.txn(txn)?;
        self.disowned = false;
        Ok(())
    }
}

fn some((key, value): (String, Vec<u8>)) -> Change {
    (key, Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopper() -> (mio::Poll, Stopper) {
        let poll = mio::Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
        (poll, Stopper::new(Arc::new(waker)))
    }

    fn put(key: &str, value: &[u8]) -> Change {
        (key.into(), Some(value.to_vec()))
    }

    #[test]
    fn pr107_what_is_kept_is_there_in_the_next_incarnation() {
        let dir = tempfile::tempdir().expect("a directory");
        let (_poll, stopper) = stopper();
        let (mut keeper, nothing) = Keeper::start(dir.path(), &stopper).expect("starts");
        assert!(nothing.is_empty() && keeper.is_done(0));
        keeper.give(vec![put("a", b"1"), put("b", b"2")]);
        let last = keeper.give(vec![put("a", b"3"), ("b".into(), None)]);
        drop(keeper);
        let (keeper, kept) = Keeper::start(dir.path(), &stopper).expect("starts");
        assert_eq!((kept, last), (Records::from([("a".into(), b"3".to_vec())]), 2));
        assert_eq!((keeper.given(), stopper.broken()), (0, None));
    }

    #[test]
    fn pr107_what_cannot_be_read_is_set_aside_and_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let (_poll, stopper) = stopper();
        let (mut keeper, _) = Keeper::start(dir.path(), &stopper).expect("starts");
        keeper.give(vec![put("a", b"1")]);
        drop(keeper);
        let journal = dir.path().join("records/journal");
        let mut bytes = fs::read(&journal).expect("there");
        bytes[20] ^= 1;
        fs::write(&journal, bytes).expect("writes");
        let (mut keeper, kept) = Keeper::start(dir.path(), &stopper).expect("starts");
        assert!(kept.is_empty() && dir.path().join("records/journal.damaged").exists());
        keeper.give(vec![put("b", b"2")]);
        drop(keeper);
        let (_, kept) = Keeper::start(dir.path(), &stopper).expect("starts");
        assert_eq!(kept, Records::from([("b".into(), b"2".to_vec())]));
    }

    #[test]
    fn pr107_what_cannot_be_written_is_disowned_until_it_can_be() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("journal");
        let writer = || Writer { path: path.clone(), records: Records::new(), store: None, disowned: false };
        let mut failing = writer();
        failing.keep([put("a", b"1")].into()).expect("keeps");
        failing.store = None;
        // Where a directory has the name, nothing can be written beside it.
        fs::create_dir(dir.path().join("journal.new")).expect("makes");
        failing.keep([put("b", b"2")].into()).expect("says that nothing is kept");
        assert!(failing.disowned && !path.exists());
        assert_eq!(read(&path), Ok(Records::new()));
        fs::remove_dir(dir.path().join("journal.new")).expect("removes");
        failing.keep(BTreeMap::new()).expect("keeps all of it");
        assert!(!failing.disowned);
        let both = Records::from([("a".into(), b"1".to_vec()), ("b".into(), b"2".to_vec())]);
        assert_eq!(failing.records, both);
        drop(failing);
        assert_eq!(read(&path), Ok(both));
    }
}
