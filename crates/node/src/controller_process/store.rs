//! The metastore under a controller: the embedded one in the controller's own thread, etcd behind threads
//! that block.

use crate::config::MetastoreConfig;
use crate::datadir::files;
use crate::failure::Failure;
use crate::stop::{Stopper, Watched};
use controller::{Input, Tag, Txn, TxnError};
use metastore::{
    Changes, Election, Embedded, Etcd, EtcdConfig, FileStore, MetaError, Metastore, RecordsSnapshot,
};
use mio::Waker;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The threads that run transactions of etcd at the same time.
const WORKERS: [&str; 4] = ["etcd-0", "etcd-1", "etcd-2", "etcd-3"];
/// How long the one who plans keeps that office without renewing it.
const LEADER_TTL: Duration = Duration::from_secs(2);
/// How often etcd's news are looked at. They arrive by themselves; this only takes them in.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// After a failed read of everything.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// What the metastore has to say.
pub enum News {
    /// Something for the controller.
    Input(Input),
    /// The process cannot go on.
    Failed(Failure),
}

/// A metastore of either kind.
pub enum Store {
    /// In this thread.
    Embedded {
        /// The metastore.
        store: Box<Embedded<FileStore>>,
        /// What it has to say.
        news: Vec<News>,
    },
    /// Behind threads.
    Etcd(Threads),
}

impl Store {
    /// Opens it. Its first news is everything in it.
    pub fn open(config: &MetastoreConfig, dir: &Path, me: &str, stopper: &Stopper) -> Result<Store, Failure> {
        match config {
            MetastoreConfig::Embedded => {
                let place = dir.join("metastore");
                let io = |error: std::io::Error| Failure::io(&place, &error);
                files::ensure_dir(&place).map_err(io)?;
                let file = FileStore::open(place.join("journal")).map_err(io)?;
                let mut store = Box::new(Embedded::open(file).map_err(|error| at_start(error, &place))?);
                let all = store.range("").map_err(failure)?;
                let news = vec![News::Input(loaded(all)), News::Input(Input::Lead(true))];
                Ok(Store::Embedded { store, news })
            }
            MetastoreConfig::Etcd { endpoints, prefix } => {
                let config = EtcdConfig::new(endpoints.clone(), prefix.trim_end_matches('/'));
                Threads::start(config, me, stopper).map(Store::Etcd)
            }
        }
    }

    /// Runs a transaction; its outcome comes as news.
    pub fn submit(&mut self, tag: Tag, txn: Txn) {
        match self {
            Store::Embedded { store, news } => {
                let outcome = store.txn(txn);
                if let Err(error @ (MetaError::Poisoned(_) | MetaError::Damaged(_))) = outcome {
                    return news.push(News::Failed(failure(error)));
                }
                let known = outcome.as_ref().ok().map(|outcome| outcome.revision);
                news.push(News::Input(Input::TxnDone { tag, outcome: outcome.map_err(undone) }));
                // Nobody else writes here, and an outcome has every key that its transaction names.
                if let Some(revision) = known {
                    news.push(News::Input(Input::Changed { revision, changes: Vec::new() }));
                }
            }
            // The threads end only with this process.
            Store::Etcd(threads) => drop(threads.work.send((tag, txn))),
        }
    }

    /// Everything new.
    pub fn news(&mut self) -> Vec<News> {
        match self {
            Store::Embedded { news, .. } => std::mem::take(news),
            Store::Etcd(threads) => threads.shared.take(),
        }
    }

    /// What came of transactions that ran in this thread.
    pub fn done_at_once(&mut self) -> Vec<News> {
        match self {
            Store::Embedded { news, .. } => std::mem::take(news),
            Store::Etcd(_) => Vec::new(),
        }
    }
}

/// What an operator can do about records that cannot be used (PR-107).
fn at_start(error: MetaError, place: &Path) -> Failure {
    let place = place.display();
    match error {
        MetaError::Damaged(why) => Failure::new(
            6,
            format!(
                "the records in {place} are damaged ({why}): make them anew from the nodes, in another directory, with \
                 `understudy controller rebuild`"
            ),
        ),
        MetaError::Unavailable(why) => Failure::new(
            7,
            format!(
                "the records in {place} cannot be read ({why}): if that does not pass, make them anew from the nodes, in \
                 another directory, with `understudy controller rebuild`"
            ),
        ),
        MetaError::Unknown(why) | MetaError::Poisoned(why) => Failure::new(
            7,
            format!("the records in {place} cannot be written ({why}): make room, or mend the disk"),
        ),
        other => failure(other),
    }
}

fn loaded(all: RecordsSnapshot) -> Input {
    Input::Loaded { revision: all.revision, entries: all.entries }
}

/// An error leaves the outcome unknown, unless the store is sure that nothing was done (F17).
fn undone(error: MetaError) -> TxnError {
    match error {
        MetaError::Invalid(why) => TxnError::Refused(why),
        _ => TxnError::Unknown,
    }
}

fn failure(error: MetaError) -> Failure {
    let status = match &error {
        MetaError::Damaged(_) => 6,
        MetaError::Poisoned(_) => 7,
        MetaError::Unknown(_) | MetaError::Unavailable(_) => 4,
        MetaError::Invalid(_) => 1,
    };
    Failure::new(status, format!("the metastore: {error}"))
}

/// What the threads leave for the controller.
struct Shared {
    news: Mutex<Vec<News>>,
    waker: Arc<Waker>,
    stop: AtomicBool,
}

impl Shared {
    fn put(&self, input: Input) {
        self.news.lock().expect("a thread panicked while it held the news").push(News::Input(input));
        // Fails only when the controller is gone.
        let _ = self.waker.wake();
    }

    fn take(&self) -> Vec<News> {
        std::mem::take(&mut *self.news.lock().expect("a thread panicked while it held the news"))
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// The threads in front of etcd.
pub struct Threads {
    work: Sender<(Tag, Txn)>,
    shared: Arc<Shared>,
}

impl Threads {
    fn start(config: EtcdConfig, me: &str, stopper: &Stopper) -> Result<Threads, Failure> {
        let waker = stopper.waker().clone();
        let shared = Arc::new(Shared { news: Mutex::default(), waker, stop: AtomicBool::new(false) });
        let (work, todo) = mpsc::channel();
        let todo = Arc::new(Mutex::new(todo));
        for name in WORKERS {
            let etcd = Etcd::new(config.clone()).map_err(failure)?;
            let (todo, shared) = (todo.clone(), shared.clone());
            spawn(name, stopper, move || run_transactions(etcd, &todo, &shared))?;
        }
        let etcd = Etcd::new(config.clone()).map_err(failure)?;
        let follower = shared.clone();
        spawn("etcd-watch", stopper, move || follow(etcd, &follower))?;
        let name = format!("{me} {:x}", crate::datadir::random());
        let election = Election::new(&config, name, LEADER_TTL).map_err(failure)?;
        let candidate = shared.clone();
        spawn("etcd-lead", stopper, move || stand(election, &candidate))?;
        Ok(Threads { work, shared })
    }
}

impl Drop for Threads {
    /// The threads end by themselves; one that waits for etcd may take a moment longer than this process's
    /// controller.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
    }
}

/// The controller cannot go on without any of its threads.
fn spawn(name: &'static str, stopper: &Stopper, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let watched = Watched::new(stopper, name);
    let run = move || {
        run();
        watched.end_well();
    };
    let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
    spawned.map(drop).map_err(|error| Failure::new(1, format!("a thread cannot start: {error}")))
}

fn run_transactions(mut etcd: Etcd, todo: &Mutex<Receiver<(Tag, Txn)>>, shared: &Shared) {
    loop {
        let next = todo.lock().expect("a worker panicked while it waited").recv();
        let Ok((tag, txn)) = next else { return };
        let outcome = etcd.txn(txn).map_err(undone);
        shared.put(Input::TxnDone { tag, outcome });
    }
}

/// Tells everything once, then every change.
fn follow(mut etcd: Etcd, shared: &Shared) {
    let mut known: Option<u64> = None;
    while !shared.stopped() {
        let Some(revision) = known else {
            match etcd.range("") {
                Ok(all) => {
                    known = Some(all.revision);
                    shared.put(loaded(all));
                }
                Err(_) => std::thread::sleep(RETRY_DELAY),
            }
            continue;
        };
        match etcd.changes_since(revision) {
            Ok(Changes::Since { changes, .. }) if changes.is_empty() => std::thread::sleep(POLL_INTERVAL),
            Ok(Changes::Since { revision, changes }) => {
                known = Some(revision);
                shared.put(Input::Changed { revision, changes });
            }
            Ok(Changes::Reload) => known = None,
            Err(_) => std::thread::sleep(RETRY_DELAY),
        }
    }
}

/// Stands for election, and tells whenever the outcome changes.
fn stand(mut election: Election, shared: &Shared) {
    let mut leads = false;
    while !shared.stopped() {
        let now = election.step().unwrap_or_else(|_| election.leads());
        if now != leads {
            leads = now;
            shared.put(Input::Lead(leads));
        }
        std::thread::sleep(LEADER_TTL / 6);
    }
    // Another one may plan at once.
    let _ = election.resign();
}
