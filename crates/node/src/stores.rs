//! The replicas on this node's disk: which there are, and how they are opened after a restart.
//!
//! A replica's directory in the data directory has `partition.json` from the moment it exists, since it
//! appears by a rename.

use crate::datadir::{DataDir, DirectoryId, files};
use crate::failure::{Failure, status};
use crate::metrics::Metrics;
use driver::recovery::{self, InLog, OpenEngine, Reopened};
use replica::Replica;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;
use types::{Engine, EngineError, EngineKind, LogKind, Member, PartitionId, Rules, TableId, TableRecord};
use wal::{Reader, RecoveredPartition};

/// Bytes of log that are read at a time while it is replayed.
const REPLAY_BYTES: usize = 4 << 20;

/// What `partition.json` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Meta {
    /// Format number.
    pub format: u16,
    /// The partition.
    pub partition: PartitionId,
    /// Its table.
    pub table: TableId,
    /// Its engine.
    pub engine: EngineKind,
    /// Where its log lives.
    pub log: LogKind,
    /// The further directory that has its engine's files; none: they are beside this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<DirectoryId>,
}

impl Meta {
    /// For a partition of this table.
    pub fn of(partition: PartitionId, table: &TableRecord) -> Meta {
        Meta {
            format: types::config::FORMAT,
            partition,
            table: table.id,
            engine: table.engine,
            log: table.log,
            directory: None,
        }
    }
}

/// True if a replica has, or had, a directory here: then it has entries in the log, or had.
pub fn any(dir: &DataDir) -> Result<bool, Failure> {
    let root = dir.root().join("partitions");
    let io = |error: std::io::Error| Failure::io(&root, &error);
    for entry in fs::read_dir(&root).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if name.to_str().is_some_and(|name| name.parse::<u64>().is_ok()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Every replica that has a directory. One whose description cannot be read is set aside: it is fetched
/// again.
pub fn load(dir: &DataDir) -> Result<Vec<Meta>, Failure> {
    let root = dir.root().join("partitions");
    let io = |error: std::io::Error| Failure::io(&root, &error);
    let mut metas = Vec::new();
    for entry in fs::read_dir(&root).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let id = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let text = match files::read(&path.join("partition.json")) {
            Err(error) if wal::is_unreadable(&error) => None,
            read => read.map_err(io)?,
        };
        let meta: Option<Meta> = text.and_then(|text| serde_json::from_slice(&text).ok());
        match meta {
            Some(meta) if id == Some(meta.partition.0) => metas.push(meta),
            // The begin of a replica that never was.
            _ if id.is_none() => dir.discard(&path).map_err(io)?,
            _ => {
                let name = path.file_name().expect("an entry has a name").to_string_lossy();
                let aside = dir.set_aside(&path, &name).map_err(io)?;
                eprintln!(
                    "{} is not a whole replica: it is set aside in {}",
                    path.display(),
                    aside.display()
                );
            }
        }
    }
    metas.sort_by_key(|meta| meta.partition);
    Ok(metas)
}

/// Makes the directory of a new replica. Without room nothing is made that counts, as with [`describe`] and
/// [`fresh_engine`].
pub fn create(dir: &DataDir, meta: &Meta) -> Result<(), Failure> {
    let path = dir.partition(meta.partition);
    if path.exists() {
        return Ok(());
    }
    let root = dir.root().join("partitions");
    let aside = root.join(format!(".{}.new", meta.partition.0));
    let text = serde_json::to_vec_pretty(meta).expect("a description has only text keys");
    let made = (|| {
        if aside.exists() {
            fs::remove_dir_all(&aside)?;
        }
        fs::create_dir(&aside)?;
        files::replace(&aside.join("partition.json"), &text)?;
        fs::rename(&aside, &path)?;
        // Want of room is none of it: the directory is there by now, and nobody would sync it again.
        files::sync_dir(&root).map_err(std::io::Error::other)
    })();
    made.map_err(|error| Failure::io(&path, &error))
}

/// Its files are elsewhere from now on.
pub fn describe(dir: &DataDir, meta: &Meta) -> Result<(), Failure> {
    let path = dir.partition(meta.partition).join("partition.json");
    let text = serde_json::to_vec_pretty(meta).expect("a description has only text keys");
    files::replace(&path, &text).map_err(|error| Failure::io(&path, &error))
}

/// Opens the engine of a replica. One in a further directory that cannot be used has none, and is damaged.
pub fn open_engine(dir: &DataDir, meta: &Meta, metrics: &Metrics) -> Result<OpenEngine, Failure> {
    timed(&metrics.recovery_engines_us, || engine_of(dir, meta))
}

/// Makes the replica of an engine: it has executed what its log has above the engine's files.
pub fn replay(
    (me, meta): (Member, &Meta),
    engine: OpenEngine,
    in_log: InLog<'_>,
    reader: &Reader,
    metrics: &Metrics,
) -> Result<Replica, Failure> {
    timed(&metrics.recovery_replay_us, || execute_log((me, meta), engine, in_log, reader))
}

/// Opens every replica that has a directory, when a node starts: their engines one after the other; then
/// their logs are replayed side by side, on as many threads as the machine has cores. What the log had of
/// them is removed from `found`; `torn` are those of which a torn end may have been cut off. If several
/// cannot be opened, the error is that of the one with the least number.
pub fn open_all(
    dir: &DataDir,
    metas: &BTreeMap<PartitionId, Meta>,
    (found, (unknown_damaged, torn)): (&mut Found, (bool, &[PartitionId])),
    reader: &Reader,
    metrics: &Metrics,
) -> Result<Vec<Replica>, Failure> {
    let me = dir.identity().member();
    let mut opened = Vec::new();
    for meta in metas.values() {
        let engine = open_engine(dir, meta, metrics)?;
        opened.push((*meta, found.remove(&meta.partition), engine));
    }
    let replay_one = |(meta, found, engine): (Meta, Option<RecoveredPartition>, OpenEngine)| {
        let is_torn = torn.contains(&meta.partition);
        let in_log = recovery::in_log(found.as_ref(), (unknown_damaged, is_torn));
        execute_log((me, &meta), engine, in_log, reader)
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let replicas = timed(&metrics.recovery_replay_us, || side_by_side(opened, threads, replay_one));
    replicas.into_iter().collect()
}

fn execute_log(
    (me, meta): (Member, &Meta),
    engine: OpenEngine,
    in_log: InLog<'_>,
    reader: &Reader,
) -> Result<Replica, Failure> {
    let read = |next| reader.read(meta.partition, next, REPLAY_BYTES);
    let opened = recovery::open((me, meta.partition, Rules::ALL), engine, in_log, read);
    let Reopened { replica, unread } =
        opened.map_err(|error| Failure::corrupt(format!("partition {}: {error}", meta.partition)))?;
    if let Some(error) = unread {
        eprintln!("partition {}: what is left of its log cannot be read: {error}", meta.partition);
    }
    Ok(replica)
}

/// Does this, and adds the microseconds that it took.
fn timed<T>(total_us: &AtomicU64, act: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let outcome = act();
    total_us.fetch_add(started.elapsed().as_micros() as u64, Ordering::Relaxed);
    outcome
}

/// Does this with each of them, on at most so many threads, this one among them. The outcomes are in the
/// order of what they are of.
fn side_by_side<T: Send, R: Send>(all: Vec<T>, threads: usize, act: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = threads.min(all.len());
    let next = Mutex::new(all.into_iter().enumerate());
    let work = || {
        let mut done = Vec::new();
        loop {
            let one = next.lock().expect("a thread panicked while it looked for work").next();
            let Some((index, one)) = one else { return done };
            done.push((index, act(one)));
        }
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            done.extend(other.join().expect("a thread that works beside this one panicked"));
        }
        done
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Stands in for the engine of a replica whose place is lost.
pub fn no_engine() -> Box<dyn Engine> {
    engine::open(EngineKind::Memory, None).expect("an engine in memory alone needs nothing")
}

fn engine_of(dir: &DataDir, meta: &Meta) -> Result<OpenEngine, Failure> {
    let storage_lost = |why| OpenEngine { engine: no_engine(), broken: Some(why), storage_lost: true };
    if meta.log == LogKind::Memory {
        let engine = engine::open(meta.engine, None).map_err(|error| Failure::corrupt(error.to_string()))?;
        return Ok(OpenEngine { engine, broken: None, storage_lost: false });
    }
    let engine_dir = match dir.engine_dir(meta) {
        Ok(engine_dir) => engine_dir,
        Err(why) => return Ok(storage_lost(why)),
    };
    match open_files(dir, meta, &engine_dir) {
        Ok((engine, broken)) => Ok(OpenEngine { engine, broken, storage_lost: false }),
        Err(failure) => match meta.directory {
            Some(id) => {
                // Where only room is wanted, the engine that was to be begun there has nothing.
                if !failure.passing {
                    dir.lose(id, failure.sentence.clone());
                }
                Ok(storage_lost(failure.sentence))
            }
            None => Err(failure),
        },
    }
}

/// The engine, and a sentence if the one on disk was damaged: then it is a new one.
fn open_files(
    dir: &DataDir,
    meta: &Meta,
    engine_dir: &Path,
) -> Result<(Box<dyn Engine>, Option<String>), Failure> {
    let path = engine_dir.join("engine");
    dir.ensure(engine_dir).map_err(|error| Failure::io(engine_dir, &error))?;
    match engine::open(meta.engine, Some(&path)) {
        Ok(engine) => Ok((engine, None)),
        Err(EngineError::Io(error) | EngineError::Full(error) | EngineError::Later(error))
            if !wal::is_unreadable(&error) =>
        {
            Err(Failure::io(&path, &error))
        }
        Err(error) => {
            let why = error.to_string();
            let aside = dir.set_aside(&path, &meta.partition.0.to_string());
            let aside = aside.map_err(|error| Failure::io(&path, &error))?;
            eprintln!(
                "partition {}: {why}; its files are set aside in {} and a copy is asked for",
                meta.partition,
                aside.display()
            );
            let fresh = engine::open(meta.engine, Some(&path));
            fresh.map(|engine| (engine, Some(why))).map_err(|error| Failure::corrupt(error.to_string()))
        }
    }
}

/// The engine of a replica in a place that has just been made for it.
pub fn fresh_engine(dir: &DataDir, meta: &Meta) -> Result<Box<dyn Engine>, Failure> {
    let engine_dir = dir.engine_dir(meta).map_err(|why| Failure::new(status::IO, why))?;
    let path = engine_dir.join("engine");
    engine::open(meta.engine, Some(&path)).map_err(|error| match error {
        EngineError::Io(error) | EngineError::Full(error) | EngineError::Later(error) => {
            Failure::io(&path, &error)
        }
        error => Failure::new(status::IO, format!("{}: {error}", path.display())),
    })
}

/// What the log has of every partition, after opening it.
pub type Found = BTreeMap<PartitionId, RecoveredPartition>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn work_is_done_side_by_side_and_its_outcomes_are_in_order() {
        let (begun, deadline) = (AtomicU64::new(0), Instant::now() + Duration::from_secs(30));
        // Each waits until all have begun: one after the other would never come to an end.
        let outcomes = side_by_side(vec![7, 8, 9], 3, |number| {
            begun.fetch_add(1, Ordering::Relaxed);
            while begun.load(Ordering::Relaxed) < 3 && Instant::now() < deadline {
                thread::yield_now();
            }
            (number, begun.load(Ordering::Relaxed))
        });
        assert_eq!(outcomes, [(7, 3), (8, 3), (9, 3)]);
        assert_eq!(side_by_side(vec![1, 2, 3], 1, |number| number * 2), [2, 4, 6]);
        assert_eq!(side_by_side(Vec::<u8>::new(), 4, |number| number), Vec::<u8>::new());
    }
}
