//! Divergent tails on this node's disk (R9), and those that find no room there (F20): their partitions wait until they can be set
//! aside.
//!
//! Nothing of such a partition leaves this node, since all of it would come after the tail. What changes its log and what
//! clients are told is kept in order; messages to others are lost as on a network, which asks again. And nothing reaches
//! it, so little is asked for: configurations, and what its own clock brings.

use crate::failure::Failure;
use crate::tails;
use replica::{LogOp, Output};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use types::config::TailReport;
use types::engine::Version;
use types::{Micros, PartitionId};
use wire::Entry;

/// A tail that found no room is tried again this often.
const RETRY: Micros = Micros::from_millis(500);

/// What a partition waits with: first the tail, then what came after it.
#[derive(Debug)]
struct BlockedOutputs {
    queue: VecDeque<Output>,
    tried_at: Micros,
}

impl BlockedOutputs {
    fn push(&mut self, output: Output) {
        // Others give it up and take it in again for as long as it waits: the last promise says what all have said.
        let promise = |output: &Output| matches!(output, Output::Log(LogOp::Promise { .. }));
        if promise(&output) && self.queue.back().is_some_and(promise) {
            self.queue.pop_back();
        }
        self.queue.push_back(output);
    }
}

/// What comes next of a partition that waited.
pub enum Next {
    /// A tail is on the disk now.
    SetAside(TailReport),
    /// This came after it, and is to be carried out.
    Carry(Output),
    /// There is no room yet.
    Waits,
    /// That was all: the partition goes on.
    Free,
}

/// The tails on this disk, and those that are to be on it.
#[derive(Debug)]
pub struct Tails {
    /// Where their files are.
    dir: PathBuf,
    there: Vec<TailReport>,
    /// Partitions that wait for room for a divergent tail. The first of what each waits with is a tail.
    blocked: BTreeMap<PartitionId, BlockedOutputs>,
    /// Something happened that controllers should hear soon.
    news: bool,
}

impl Tails {
    /// Those that are in a directory.
    pub fn new(dir: PathBuf, there: Vec<TailReport>) -> Tails {
        Tails { dir, there, blocked: BTreeMap::new(), news: false }
    }

    /// Those on the disk.
    pub fn there(&self) -> &[TailReport] {
        &self.there
    }

    /// True once after something happened that controllers should hear soon.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// The partitions that wait for room.
    pub fn blocked(&self) -> impl Iterator<Item = PartitionId> {
        self.blocked.keys().copied()
    }

    /// True if this partition waits for room.
    pub fn holds(&self, partition: PartitionId) -> bool {
        !self.blocked.is_empty() && self.blocked.contains_key(&partition)
    }

    /// Gives back what is to be carried out now.
    pub fn hold(&mut self, mut output: Output) -> Option<Output> {
        if self.blocked.is_empty() {
            return Some(output);
        }
        if let Output::Suspect(suspect) = &mut output {
            suspect.partitions.retain(|(id, ..)| !self.blocked.contains_key(id));
            return (!suspect.partitions.is_empty()).then_some(output);
        }
        let partition = output.partition();
        let Some(blocked) = partition.and_then(|id| self.blocked.get_mut(&id)) else { return Some(output) };
        match output {
            Output::Send { .. } | Output::Propose(_) | Output::ReadLog { .. } => {}
            output => blocked.push(output),
        }
        None
    }

    /// A divergent tail: on disk before anything that follows. None if there is no room for it: its partition waits. Whatever else
    /// fails is the end.
    pub fn set_aside(
        &mut self,
        report: TailReport,
        entries: Vec<Entry>,
        rows: Vec<Version>,
        now: Micros,
    ) -> Result<Option<TailReport>, Failure> {
        let error = match self.write(&report, &entries, &rows)? {
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
        let queue = VecDeque::from([Output::SetAside { report, entries, rows }]);
        let before = self.blocked.insert(partition, BlockedOutputs { queue, tried_at: now });
        assert!(before.is_none(), "partition {partition} waits for room already, and its outputs are held");
        self.news = true;
        Ok(None)
    }

    /// Writes a tail. The inner error is want of room.
    fn write(
        &mut self,
        report: &TailReport,
        entries: &[Entry],
        rows: &[Version],
    ) -> Result<Result<TailReport, std::io::Error>, Failure> {
        let written = match tails::write(&self.dir, report.clone(), entries, rows) {
            Ok(written) => written,
            Err(error) if wal::is_full(&error) => return Ok(Err(error)),
            Err(error) => return Err(Failure::io(&self.dir, &error)),
        };
        eprintln!(
            "partition {}: {} of an older term are set aside in tails/{}",
            written.partition,
            what(&written),
            written.file
        );
        if !self.there.contains(&written) {
            self.there.push(written.clone());
        }
        Ok(Ok(written))
    }

    /// Forgets the tails whose files are gone: an operator's command discards them while this process runs.
    pub fn forget_discarded(&mut self) {
        let before = self.there.len();
        // What cannot be told is still there.
        self.there.retain(|tail| self.dir.join(&tail.file).try_exists().unwrap_or(true));
        self.news |= self.there.len() < before;
    }

    /// The partitions whose tail is to be tried again.
    pub fn due(&self, now: Micros) -> Vec<PartitionId> {
        let due = self.blocked.iter().filter(|(_, blocked)| now.since(blocked.tried_at) >= RETRY);
        due.map(|(id, _)| *id).collect()
    }

    /// What comes next of a partition that waits: asked for again and again until it waits or is free.
    pub fn next(&mut self, id: PartitionId, now: Micros) -> Result<Next, Failure> {
        let next = self.blocked.get_mut(&id).and_then(|blocked| blocked.queue.pop_front());
        match next {
            Some(Output::SetAside { report, entries, rows }) => {
                match self.write(&report, &entries, &rows)? {
                    Ok(written) => Ok(Next::SetAside(written)),
                    Err(_) => {
                        let blocked = self.blocked.get_mut(&id).expect("its first output was just taken");
                        blocked.queue.push_front(Output::SetAside { report, entries, rows });
                        blocked.tried_at = now;
                        Ok(Next::Waits)
                    }
                }
            }
            Some(output) => Ok(Next::Carry(output)),
            None => {
                self.blocked.remove(&id);
                self.news = true;
                Ok(Next::Free)
            }
        }
    }

    /// Nobody needs this partition any more. What is still to be carried out: its clients are answered, and that is all.
    pub fn give_up(&mut self, id: PartitionId) -> Vec<Output> {
        let blocked = self.blocked.remove(&id).map(|blocked| blocked.queue).unwrap_or_default();
        blocked.into_iter().filter(|output| matches!(output, Output::Reply { .. })).collect()
    }
}

/// What a tail has, for people.
fn what(report: &TailReport) -> String {
    match report.rows {
        None => format!("{} commits", report.commits),
        Some(rows) => format!("{rows} rows of LSN {} to {}", report.from, report.to),
    }
}
