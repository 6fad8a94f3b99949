//! `ingest`: feeds that neither skip nor repeat.
//!
//! A feed's position lives in the partitions it writes: every batch carries the number of records below which
//! everything of its partition is in, in the same entry as the rows. A feed that starts again asks each
//! partition, passes over what all have, and leaves out for each what it has. Whatever happened in between,
//! what was committed is committed once.
//!
//! [`pass`] reads a source once, from some position on. [`run`] repeats it while something that passes went
//! wrong, and ends only when what was committed is secured. `source.rs` has the sources.

mod pass;
mod source;

pub use pass::{Ended, Pass, pass};
pub use source::{Fed, Opened, feed_id, read_records};

use crate::badrows::BadRows;
use crate::failure::Failure;
use crate::global_load::no_feed;
use crate::load::{OnBad, Watcher};
use crate::pipeline::{Limits, Trouble, feed_positions};
use crate::secured;
use client::table::Table;
use client::{Client, ClientError};
use input::Options;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use types::{FeedId, PartitionId, Position};

/// Where records come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// The files of a directory, in the order of their names, each a feed of its own.
    Directory(PathBuf),
    /// Standard input.
    Stdin,
}

/// What is to be fed, and how.
#[derive(Clone, Debug)]
pub struct IngestPlan {
    /// Where records come from.
    pub source: Source,
    /// The feed's name; `None`: the source's path. Standard input without a name keeps no position.
    pub feed: Option<String>,
    /// How the source is to be read.
    pub options: Options,
    /// What becomes of malformed records: the feed stops before the first, or leaves them out.
    pub on_bad: OnBad,
    /// Where malformed records are kept.
    pub bad_rows: Option<PathBuf>,
    /// How rows are cut into batches.
    pub limits: Limits,
    /// Goes on when the source has no more: waits for more.
    pub follow: bool,
    /// How long copies may take to follow at the end.
    pub secure_within: Duration,
}

/// How a feed ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct IngestReport {
    /// The table.
    pub table: String,
    /// The feed's name, if it keeps its position.
    pub feed: Option<String>,
    /// Sources read: files of a directory, each counted once however often it grows, else 1.
    pub sources: u64,
    /// Rows committed by this run.
    pub rows: u64,
    /// Records that were in before this run, over all sources.
    pub already_in: u64,
    /// Malformed records left out.
    pub bad_rows: u64,
    /// Where they are.
    pub bad_rows_file: Option<PathBuf>,
    /// Records of the last source that are in, or belong to nobody.
    pub position: u64,
    /// True if it was stopped before the end of the source.
    pub stopped: bool,
    /// The policy under which every row is committed.
    pub policy: String,
    /// The fewest copies that an acknowledgement counted.
    pub copies: Option<u8>,
}

/// How often in a row a source is read again without any progress before it is given up.
const ATTEMPTS: u32 = 5;
/// A table whose rows are being copied is waited for so long.
const STALE_LIMIT: Duration = Duration::from_secs(60);
/// How often a directory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Feeds a table until the source ends, `stop` is set, or something cannot be mended. What was committed is
/// secured then. A table that global transactions write is refused before anything is read.
pub fn run(
    client: &mut Client,
    table: &Table,
    plan: &IngestPlan,
    stop: &Arc<AtomicBool>,
    watcher: &mut dyn Watcher,
) -> Result<IngestReport, Failure> {
    if table.is_global() {
        return Err(no_feed(table.name()));
    }
    let name = match (&plan.source, &plan.feed) {
        (_, Some(name)) => Some(name.clone()),
        (Source::File(path) | Source::Directory(path), None) => Some(full_name(path)),
        (Source::Stdin, None) => None,
    };
    let mut bad_rows = match &plan.bad_rows {
        Some(path) => BadRows::appended_to(path),
        None => BadRows::counted(),
    };
    let policy = table.record().policy.name.clone();
    let report =
        IngestReport { table: table.name().into(), feed: name.clone(), policy, ..IngestReport::default() };
    let (counts, last) = (BTreeMap::new(), BTreeMap::new());
    let (table, bad) = (table.clone(), &mut bad_rows);
    let mut job = Job { client, table, plan, stop, watcher, bad_rows: bad, report, counts, last };
    let fed = match &plan.source {
        Source::Directory(dir) => job.directory(dir, &name.unwrap_or_default()),
        Source::File(path) => job.source(Some(path), name.as_deref()),
        Source::Stdin => job.source(None, name.as_deref()),
    };
    let mut report = job.report;
    report.bad_rows = bad_rows.count();
    report.stopped = stop.load(Ordering::Relaxed);
    report.bad_rows_file = bad_rows.finish()?;
    fed.map_err(|failure| failure.and(format!("rows of this run that are in: {}", report.rows)))?;
    Ok(report)
}

/// The path as every later run will name it.
fn full_name(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf()).to_string_lossy().into_owned()
}

struct Job<'a> {
    client: &'a mut Client,
    table: Table,
    plan: &'a IngestPlan,
    stop: &'a Arc<AtomicBool>,
    watcher: &'a mut dyn Watcher,
    bad_rows: &'a mut BadRows,
    report: IngestReport,
    /// What became of each source, by its feed's name.
    counts: BTreeMap<Option<String>, Counts>,
    /// The last acknowledgement of each partition.
    last: BTreeMap<PartitionId, Position>,
}

/// What became of one source, however often it was read.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    /// Records that this run has dealt with: rows committed, bad ones left out.
    handled: u64,
    /// Records that were in before this run.
    already_in: u64,
}

impl Counts {
    /// Adds a pass. What an earlier pass of this run dealt with is in already for a later one, but was not
    /// before this run.
    fn add(&mut self, already_in: u64, handled: u64) {
        self.already_in = self.already_in.max(already_in.saturating_sub(self.handled));
        self.handled += handled;
    }
}

impl Job<'_> {
    /// Feeds the files of a directory, and with `follow` those that come or grow.
    fn directory(&mut self, dir: &Path, name: &str) -> Result<(), Failure> {
        let mut seen: BTreeMap<PathBuf, (u64, Option<SystemTime>)> = BTreeMap::new();
        loop {
            for path in files_of(dir)? {
                let about = std::fs::metadata(&path).map_err(|error| Failure::io(path.display(), &error))?;
                let look = (about.len(), about.modified().ok());
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if about.len() == 0 || seen.insert(path.clone(), look) == Some(look) {
                    continue;
                }
                let file =
                    path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
                self.source(Some(&path), Some(&format!("{name}/{file}")))?;
            }
            if !self.plan.follow || self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // The client's own timers run while the directory is quiet.
            let _ = self.client.poll(LOOK_EVERY)?;
        }
    }

    /// Feeds one source until it ends, reading it again when something that passes went wrong.
    fn source(&mut self, path: Option<&Path>, name: Option<&str>) -> Result<(), Failure> {
        let feed = name.map(feed_id);
        let mut rewind: BTreeMap<PartitionId, u64> = BTreeMap::new();
        let mut attempts = 0;
        let mut stale_since: Option<Instant> = None;
        loop {
            let mut start = self.positions(feed)?;
            for (partition, position) in std::mem::take(&mut rewind) {
                let known = start.entry(partition).or_default();
                *known = position.min(*known);
            }
            let bad_before = self.bad_rows.count();
            let pass = self.pass(path, feed, start)?;
            attempts = if pass.done.rows > 0 { 0 } else { attempts + 1 };
            let handled = pass.done.rows + (self.bad_rows.count() - bad_before);
            self.counts.entry(name.map(str::to_string)).or_default().add(pass.already_in, handled);
            let trouble = match self.take(pass)? {
                None => self.secured(feed)?,
                some => some,
            };
            let Some(Again { failure, rewind: again, stale }) = trouble else { return Ok(()) };
            // A table whose rows are being copied is waited for.
            let held = stale && stale_since.get_or_insert_with(Instant::now).elapsed() < STALE_LIMIT;
            match stale {
                true => drop(self.client.poll(LOOK_EVERY)?),
                false => stale_since = None,
            }
            if path.is_none() || attempts >= ATTEMPTS && !held {
                let advice = match (path, name) {
                    (None, None) => {
                        "give --feed NAME, so that a feed from standard input can go on where it stopped"
                    }
                    _ => "start the feed again: it goes on where it stopped",
                };
                return Err(failure.and(advice));
            }
            self.watcher.say(&format!("{failure}; going on from what is in"));
            rewind = again;
        }
    }

    /// How far the feed is, of the table as it is now.
    fn positions(&mut self, feed: Option<FeedId>) -> Result<BTreeMap<PartitionId, u64>, Failure> {
        for _ in 0..ATTEMPTS {
            self.table = self.client.look_again(&self.table)?;
            self.table.takes_rows()?;
            let Some(feed) = feed else { break };
            match feed_positions(self.client, &self.table, feed, self.plan.limits.deadline) {
                Err(ClientError::Stale) => {}
                told => return Ok(told?),
            }
        }
        match feed {
            Some(_) => Err(ClientError::Stale.into()),
            None => Ok(self.table.partitions().map(|partition| (partition, 0)).collect()),
        }
    }

    fn pass(
        &mut self,
        path: Option<&Path>,
        feed: Option<FeedId>,
        start: BTreeMap<PartitionId, u64>,
    ) -> Result<Pass, Failure> {
        // Directories are followed by looking at them; only a single file is followed to and fro its end.
        let tail = self.plan.follow && self.plan.source == Source::File(path.unwrap_or(Path::new("")).into());
        let from = start.values().copied().min().unwrap_or(0);
        let options = self.plan.options.clone();
        let opened = read_records(path, options, self.table.schema(), from, tail.then(|| self.stop.clone()))?;
        self.watcher.phase("feeding", Some(opened.progress.clone()));
        let fed = pass::Feeding { table: &self.table, feed, start, plan: self.plan, stop: self.stop };
        pass(self.client, &fed, &opened.records, self.bad_rows, self.watcher)
    }

    /// Adds a pass to the report: a failure that ends the feed, or what has to be done again.
    fn take(&mut self, pass: Pass) -> Result<Option<Again>, Failure> {
        self.report.rows += pass.done.rows;
        self.report.sources = self.counts.len() as u64;
        self.report.already_in = self.counts.values().map(|counts| counts.already_in).sum();
        self.report.position = pass.position;
        self.report.copies = self.report.copies.into_iter().chain(pass.done.copies).min();
        newest(&mut self.last, pass.done.last);
        match pass.ended {
            Ended::End | Ended::Stopped => Ok(None),
            Ended::Failed(failure) => Err(failure),
            Ended::Trouble(Trouble { failure, rewind, stale, passing: true, .. }) => {
                Ok(Some(Again { failure, rewind, stale }))
            }
            Ended::Trouble(trouble) => Err(trouble.failure),
        }
    }

    /// Waits until what was committed is secured. Under policies that may lose a tail, the positions are
    /// looked at once more: they were lost with it.
    fn secured(&mut self, feed: Option<FeedId>) -> Result<Option<Again>, Failure> {
        secured::wait(self.client, &self.table, &self.last, self.plan.secure_within)?;
        let Some(feed) = feed.filter(|_| !secured::by_acknowledgement(&self.table.record().policy)) else {
            return Ok(None);
        };
        let positions = self.positions(Some(feed))?;
        let behind = positions.values().filter(|position| **position < self.report.position).count();
        let failure =
            || Failure::failed(format!("a failover lost acknowledged records in {behind} partitions"));
        Ok((behind > 0).then(|| Again { failure: failure(), rewind: BTreeMap::new(), stale: false }))
    }
}

/// Adds the last acknowledgements of another pass: in each partition the newest counts, whichever pass it is
/// of.
fn newest(last: &mut BTreeMap<PartitionId, Position>, more: BTreeMap<PartitionId, Position>) {
    for (partition, position) in more {
        let known = last.entry(partition).or_insert(position);
        *known = position.max(*known);
    }
}

/// Why a source is read again.
struct Again {
    failure: Failure,
    /// From where on, whatever the marks say.
    rewind: BTreeMap<PartitionId, u64>,
    /// The table is not as it was, or is being copied.
    stale: bool,
}

/// The files of a directory in the order of their names. Hidden ones, and those named as unfinished, are left
/// alone.
fn files_of(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| Failure::io(dir.display(), &error);
    let mut files = Vec::new();
    for item in std::fs::read_dir(dir).map_err(failed)? {
        let item = item.map_err(failed)?;
        let name = item.file_name().to_string_lossy().into_owned();
        let unfinished = name.starts_with('.') || name.ends_with(".tmp") || name.ends_with(".part");
        if !unfinished && item.file_type().map_err(failed)?.is_file() {
            files.push(item.path());
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_pass_committed_must_be_secured_too() {
        let at = |epoch, lsn| Position::new(types::Term(epoch), types::Lsn(lsn));
        let of = |partitions: &[(u32, Position)]| -> BTreeMap<PartitionId, Position> {
            partitions.iter().map(|(partition, position)| (PartitionId(*partition), *position)).collect()
        };
        let mut last = of(&[(64, at(1, 10)), (65, at(1, 30)), (66, at(1, 7))]);
        newest(&mut last, of(&[(65, at(2, 20)), (66, at(1, 6)), (67, at(1, 1))]));
        assert_eq!(last, of(&[(64, at(1, 10)), (65, at(2, 20)), (66, at(1, 7)), (67, at(1, 1))]));
    }

    #[test]
    fn what_this_run_committed_itself_was_not_in_already() {
        let mut counts = Counts::default();
        counts.add(100, 40);
        counts.add(140, 10);
        assert_eq!((counts.already_in, counts.handled), (100, 50), "read again after trouble");
        // The first pass met trouble before it had seen everything that was in.
        let mut counts = Counts::default();
        counts.add(20, 5);
        counts.add(65, 0);
        assert_eq!(counts.already_in, 60);
    }

    #[test]
    fn a_directory_gives_finished_files_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["b.csv", "a.csv", ".hidden", "c.tmp", "d.csv.part"] {
            std::fs::write(dir.path().join(name), "x").expect("writable");
        }
        std::fs::create_dir(dir.path().join("sub")).expect("writable");
        let files = files_of(dir.path()).expect("readable");
        let names: Vec<_> = files.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, ["a.csv", "b.csv"]);
    }
}
