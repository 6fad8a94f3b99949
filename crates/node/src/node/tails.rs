//! Divergent tails on this node's disk (R9), and those that find no room there (F20): their partitions wait
//! until they can be set aside ([`BlockedOutputs`]).

use crate::datadir::data_dirs::is_passing;
use crate::failure::Failure;
use crate::tails;
use driver::BlockedOutputs;
pub use driver::held::Next;
use replica::Output;
use std::path::{Path, PathBuf};
use types::config::TailReport;
use types::engine::Version;
use types::{Micros, PartitionId};
use wire::Entry;

/// The tails on this disk, and those that are to be on it.
#[derive(Debug)]
pub struct Tails {
    /// Where their files are.
    dir: PathBuf,
    there: Vec<TailReport>,
    held: BlockedOutputs,
    /// Something happened that controllers should hear soon.
    news: bool,
}

impl Tails {
    /// Those that are in a directory.
    pub fn new(dir: PathBuf, there: Vec<TailReport>) -> Tails {
        Tails { dir, there, held: BlockedOutputs::default(), news: false }
    }

    /// Those on the disk.
    pub fn there(&self) -> &[TailReport] {
        &self.there
    }

    /// True once after something happened that controllers should hear soon.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// What is held back because a tail finds no room.
    pub fn held(&self) -> &BlockedOutputs {
        &self.held
    }

    /// Gives back what is to be carried out now.
    pub fn hold(&mut self, output: Output) -> Option<Output> {
        self.held.hold(output)
    }

    /// A divergent tail: on disk before anything that follows. None if there is no room for it, or the system
    /// has no open files or memory for it (PR-459): its partition waits. Whatever else fails is the end.
    pub fn set_aside(
        &mut self,
        report: TailReport,
        entries: Vec<Entry>,
        rows: Vec<Version>,
        now: Micros,
    ) -> Result<Option<TailReport>, Failure> {
        let error = match write(&self.dir, &mut self.there, &report, (&entries, &rows))? {
            Ok(written) => return Ok(Some(written)),
            Err(error) => error,
        };
        let partition = report.partition;
        eprintln!(
            "partition {partition}: {} of an older term find no room in {} ({error}): this replica waits until they can \
             be set aside",
            what(&report),
            self.dir.display()
        );
        self.held.begin(partition, Output::SetAside { report, entries, rows }, now);
        self.news = true;
        Ok(None)
    }

    /// Forgets the tails whose files are gone: an operator's command discards them while this process runs.
    pub fn forget_discarded(&mut self) {
        let before = self.there.len();
        // What cannot be told is still there.
        self.there.retain(|tail| self.dir.join(&tail.file).try_exists().unwrap_or(true));
        self.news |= self.there.len() < before;
    }

    /// What comes next of a partition that waits: asked for again and again until it waits or is free.
    pub fn next(&mut self, id: PartitionId, now: Micros) -> Result<Next, Failure> {
        let (dir, there) = (&self.dir, &mut self.there);
        let next = self.held.go_on(id, now, |report, entries, rows| {
            Ok::<_, Failure>(write(dir, there, report, (entries, rows))?.ok())
        })?;
        self.news |= matches!(next, Next::Free);
        Ok(next)
    }

    /// Nobody needs this partition any more. What is still to be carried out: its clients are answered, and
    /// that is all.
    pub fn give_up(&mut self, id: PartitionId) -> Vec<Output> {
        self.held.give_up(id)
    }
}

/// Writes a tail into `dir`, and notes that it is there. The inner error is want of room, of open files or of
/// memory.
fn write(
    dir: &Path,
    there: &mut Vec<TailReport>,
    report: &TailReport,
    (entries, rows): (&[Entry], &[Version]),
) -> Result<Result<TailReport, std::io::Error>, Failure> {
    let written = match tails::write(dir, report.clone(), entries, rows) {
        Ok(written) => written,
        Err(error) if wal::is_full(&error) || is_passing(&error) => return Ok(Err(error)),
        Err(error) => return Err(Failure::io(dir, &error)),
    };
    eprintln!(
        "partition {}: {} of an older term are set aside in tails/{}",
        written.partition,
        what(&written),
        written.file
    );
    if !there.contains(&written) {
        there.push(written.clone());
    }
    Ok(Ok(written))
}

/// What a tail has, for people.
fn what(report: &TailReport) -> String {
    match report.rows {
        None => format!("{} commits", report.commits),
        Some(rows) => format!("{rows} rows of LSN {} to {}", report.from, report.to),
    }
}
