//! Checkers: each knows the promises alone. The ids are those of the invariants (I1 to I16) and rules (R1 to
//! R12).
//!
//! | file | what |
//! | --- | --- |
//! | `lineage` | I3, R3: one content per position |
//! | `epochs` | I10, R1, R6: configurations |
//! | `serving` | I2, R5: one primary at a time |
//! | `survival` | I1: acknowledged commits |
//! | `ends` | F04: what the dead had |
//! | `answers` | R12, I1, PR-21, I14: what an answer acknowledges |
//! | `nodes` | R6, R8, R10, I7, I12, PR-107, PR-145: what a node says, gives, sends, listens to and finds |
//! | `availability` | I13: what could be served is served soon |
//! | `backups` | PR-330: backups, and what is restored from them |
//! | `agree` | I3, I6: commits and states of replicas |
//! | `storage` | I12, R10: what was durable |
//! | `requests` | R12: one answer |
//! | `registers`, `linear` | R5: linearizability per key |
//! | `effects` | I9, I4, I5, PR-47: exactly once, nothing visible that is lost, no loss that is none |
//! | `final_log` | the log that won, and those that did not |
//! | `batches` | I9, I5: writes of several rows, whole or not at all |
//! | `ranges` | I4, I5: scans, finds by an index, and counts |
//! | `staleness` | I5, PR-27: how old reads at any replica are |
//! | `states` | the rows at every position of a log |
//! | `indexes` | I15: index rows are what the rows say |
//! | `removed` | I16: a node is removed that is a member of nothing, and stays out |
//! | `loads` | PR-39: bulk loads, whole or not at all |
//! | `catalog` | what a table of a database is |
//! | `tables` | PR-120 to PR-124: several tables in one partition |
//! | `jobs` | PR-47, PR-82: what a job said of its records |
//! | `calls` | PR-190, R11, I9: calls of procedures |
//! | `commits` | PR-250 to PR-254, PR-293, PR-322, PR-330: global transactions, and their backups |
//! | `cycles` | I5: dependencies of global transactions go round in no circle |
//! | `claims` | PR-324, PR-325, PR-369: unique values and references over all partitions |
//! | `timestamps` | PR-363, PR-250: a timestamp is that of one commit, and of its entry |
//! | `truncation` | I11, I14: commits that the manager's log keeps no more, and tails with them |
//! | `turns` | PR-377, PR-410: turns at rows |
//! | `cluster_snapshots` | PR-80: points over all partitions |
//! | `report` | I14, R9: reports of loss |
//! | `aside` | R9: tails have what is given up |
//! | `wanted` | what each policy promises, in the checkers' own words |

pub mod agree;
pub mod answers;
pub mod aside;
pub mod availability;
pub mod backups;
pub mod batches;
pub mod calls;
pub mod catalog;
pub mod claims;
pub mod cluster_snapshots;
pub mod commits;
pub mod cycles;
pub mod effects;
pub mod ends;
pub mod epochs;
pub mod final_log;
pub mod history;
pub mod indexes;
pub mod jobs;
#[cfg(test)]
mod known_bad;
pub mod lineage;
pub mod linear;
pub mod loads;
pub mod nodes;
pub mod ranges;
pub mod registers;
pub mod removed;
pub mod report;
pub mod requests;
pub mod serving;
pub mod staleness;
pub mod states;
pub mod storage;
pub mod survival;
pub mod tables;
pub mod timestamps;
pub mod truncation;
pub mod turns;
pub mod wanted;

use effects::ReportedLoss;
use history::Operation;
use std::collections::{BTreeMap, BTreeSet};
use tables::{TableAnswer, TableOperation};
use types::config::{FailoverRecord, TailReport};
use types::engine::Version;
use types::{Epoch, Member, PartitionId, Position, Term};
use wire::control::Suspect;
use wire::{Entry, RecordText};

/// What a checker objects to: the id of the promise that was broken, and a sentence.
pub type Broken = (&'static str, String);

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Violation {
    /// The seed.
    pub seed: u64,
    /// The promise: I1 to I16, R1 to R12, or `panic`.
    pub id: String,
    /// When, virtual microseconds.
    pub at: u64,
    /// What happened, as a sentence.
    pub sentence: String,
    /// The last lines of the trace.
    pub trace: Vec<String>,
}

/// What clients were told in the whole of a run.
#[derive(Clone, Copy, Debug)]
pub struct ClientAnswers<'a> {
    /// Operations that ended.
    pub operations: &'a [Operation],
    /// Ends of jobs.
    pub jobs: &'a [jobs::JobAnswer],
    /// Acknowledged writes of which sessions said that they are lost.
    pub lost: &'a [ReportedLoss],
    /// Operations on a database's tables that ended.
    pub tables: &'a [TableOperation],
    /// Global transactions that ended.
    pub transactions: &'a [commits::TxnOperation],
    /// What operators were told that they have given up of them.
    pub given_up: &'a [commits::GivenUp],
    /// Turns at rows.
    pub turns: &'a [turns::Turn],
}

/// All checkers.
#[derive(Debug, Default)]
pub struct Checks {
    /// Entries.
    pub lineage: lineage::Lineage,
    /// Configurations.
    pub epochs: epochs::Epochs,
    /// Primaries that answer.
    pub serving: serving::Serving,
    /// Acknowledged commits.
    pub survival: survival::Survival,
    /// What replicas had when their process ended.
    pub ends: ends::Ends,
    /// Replicas that agree.
    pub agreement: agree::Agreement,
    /// Disks.
    pub storage: storage::Storage,
    /// Partitions that are closed.
    pub availability: availability::Availability,
    /// Reads at any replica.
    pub staleness: staleness::Staleness,
    /// Nodes that were removed.
    pub removed: removed::Removed,
    /// Requests.
    pub requests: requests::Requests,
    /// What the transaction manager keeps no more.
    pub truncation: truncation::Truncation,
    /// Timestamps of commits.
    timestamps: timestamps::Timestamps,
    /// The newest committed entry of each partition's newest term.
    tips: BTreeMap<PartitionId, Position>,
    /// Tails set aside.
    aside: aside::Aside,
    failovers: Vec<FailoverRecord>,
    violations: Vec<Violation>,
}

impl Checks {
    /// What was broken.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// What was broken, to be completed with seed and trace.
    pub fn violations_mut(&mut self) -> &mut Vec<Violation> {
        &mut self.violations
    }

    /// Notes that a promise was broken.
    pub fn fault(&mut self, id: &str, now: u64, sentence: String) {
        self.violations.push(Violation { seed: 0, id: id.into(), at: now, sentence, trace: Vec::new() });
    }

    /// Notes an error of a checker.
    pub fn expect(&mut self, id: &str, now: u64, verdict: Result<(), String>) {
        if let Err(sentence) = verdict {
            self.fault(id, now, sentence);
        }
    }

    /// An entry goes to a log.
    pub fn entry(&mut self, now: u64, entry: &Entry) {
        if self.lineage.get(entry.header().partition, entry.at()).is_none() {
            self.truncation.add(self.lineage.transactional(), entry);
            let verdict = self.timestamps.add(self.lineage.transactional(), entry);
            self.expect("PR-363", now, verdict);
        }
        let verdict = self.lineage.add(entry);
        self.expect("I3", now, verdict);
    }

    /// A process ended.
    pub fn ended(&mut self, now: u64, member: Member) {
        self.survival.ended(now, member.node, self.storage.of_node(member.node));
    }

    /// A backup says that it misses its primary.
    pub fn suspected(&mut self, now: u64, suspect: &Suspect) {
        for (partition, ..) in &suspect.partitions {
            self.epochs.suspected(now, *partition, suspect.primary);
        }
    }

    /// A tail was set aside: the file must hold what the report says.
    pub fn set_aside(&mut self, now: u64, report: &TailReport, entries: &[Entry], rows: &[Version]) {
        let of_database = self.lineage.has_tables(report.partition);
        let verdict = self.aside.add(report, entries, (rows, of_database));
        self.expect("I14", now, verdict);
        // Nothing that all had is lost, but where an operator had a copy lead since that lacks it.
        let (id, node) = (report.partition, report.node);
        let uncounted = self.epochs.last_uncounted(id, node).filter(|_| !self.epochs.was_rebuilt(id));
        let Some(uncounted) = uncounted else { return };
        let older = entries.iter().filter(|entry| entry.at().term < uncounted);
        let lost = self.truncation.lost_with(&self.lineage, older, self.tips.get(&id).copied());
        if report.commits < lost {
            let sentence = format!("{lost} parts of commits in a tail are kept nowhere else: {report:?}");
            self.fault("I14", now, sentence);
        }
    }

    /// R9: what this node acknowledged alone, and is lost, is in its tails, and a failover's report names
    /// them. It is back in sync.
    pub fn told_of_lost(&mut self, now: u64, partition: PartitionId, node: types::NodeId) {
        let mut lost = self.survival.lost_with(partition, node);
        lost.retain(|at| self.lineage.get(partition, *at).is_none_or(|known| known.is_write));
        let (Some(first), Some(last)) = (lost.iter().min().copied(), lost.iter().max().copied()) else {
            return;
        };
        // The whole log that had it, from there on: a row that a later entry wrote again is known by that
        // one. Tails of logs that the node had later say nothing of it.
        let of_that_log =
            |tip: &Position| *tip > last && self.lineage.line(partition, *tip).any(|known| known.at == last);
        let tip = self.aside.tails(node, partition).filter(of_that_log).max().unwrap_or(last);
        let line = self.lineage.line(partition, tip).take_while(|known| known.at >= first);
        let what = if let Some(at) = self.aside.lacks(node, partition, line) {
            format!("{at} is in no tail")
        } else if let Some(at) = lost.into_iter().find(|at| !self.is_named(partition, node, *at)) {
            format!("no failover's report names {at}")
        } else {
            return;
        };
        let sentence = format!("{partition}: what {node} acknowledged alone from {first} on is lost: {what}");
        self.fault("R9", now, sentence);
    }

    /// True if a failover's report has a tail of this node that reaches over `at`.
    fn is_named(&self, partition: PartitionId, node: types::NodeId, at: Position) -> bool {
        let of_partition = self.failovers.iter().filter(|failover| failover.partition == partition);
        let mut tails = of_partition.flat_map(|failover| &failover.loss.tails);
        tails.any(|tail| aside::covers(tail, node, partition, at))
    }

    /// R9: a node gives up its log above `above`, which it had up to `proven` on its disk. What nobody of
    /// `others` has is in a tail.
    pub fn given_up(
        &mut self,
        now: u64,
        node: types::NodeId,
        partition: PartitionId,
        (above, proven): (types::Lsn, Position),
        others: &[Position],
    ) {
        let tip = self.tips.get(&partition).copied();
        let others: Vec<Position> = others.iter().copied().chain(tip).collect();
        let kept = |at: Position| others.iter().any(|other| self.lineage.has(partition, *other, at));
        let line = self.lineage.line(partition, proven);
        let given_up = line.take_while(|known| known.at.lsn > above && !kept(known.at));
        if let Some(at) = self.aside.lacks(node, partition, given_up) {
            self.fault("R9", now, format!("{node} {partition}: {at} is given up and not set aside"));
        }
    }

    /// The newest primary holds this to be committed.
    pub fn tip(&mut self, partition: PartitionId, at: Position) {
        let tip = self.tips.entry(partition).or_insert(at);
        *tip = (*tip).max(at);
    }

    /// I5: an answer that any replica could give shows the state at an LSN, to who wants all that was
    /// acknowledged by a time, virtual microseconds. What a failover has lost need not be in it, nor what may
    /// be lost as long as that is not known.
    pub fn shows_at_any(&mut self, now: u64, partition: PartitionId, (must_have, shown): (u64, types::Lsn)) {
        let sealed = self.epochs.newest(partition).filter(|record| record.lossy);
        let served = self.survival.lossy(partition);
        let served = served.and_then(|lossy| self.epochs.get(partition, lossy.epoch));
        let served = served.map(|record| record.term);
        let lossy = sealed.map(|record| record.term).max(served);
        let kept = |at: Position| {
            let before = lossy.is_some_and(|term| at.term < term);
            !before || lossy == served && self.has_committed(partition, at)
        };
        let counts = |at: Position| !self.survival.lost().contains_key(&(partition, at)) && kept(at);
        let verdict = self.staleness.answered(partition, must_have, shown, counts);
        self.expect("I5", now, verdict);
    }

    /// True if the log that ends with what the newest primary holds to be committed has this entry.
    pub fn has_committed(&self, partition: PartitionId, at: Position) -> bool {
        self.tips.get(&partition).is_some_and(|tip| self.lineage.has(partition, *tip, at))
    }

    /// The records of all failovers, at the end.
    pub fn failovers(&mut self, records: &[RecordText]) {
        for text in records {
            match text.read::<FailoverRecord>() {
                Ok(record) => self.failovers.push(record),
                Err(reason) => self.fault("I14", 0, reason),
            }
        }
    }

    /// Looks at points that were taken. Where a failover may have lost something, a position says something
    /// of writes of the same log: before the first of these failovers, or behind the last one.
    pub fn cluster_snapshots(
        &mut self,
        now: u64,
        taken: &[cluster_snapshots::CompleteSnapshot],
        operations: &[Operation],
    ) {
        let counts = |partition: PartitionId, taken: Position, at: Position| {
            let Some((_, first)) = self.epochs.first_lossy(partition) else { return true };
            if taken.term.began().max(at.term.began()) < first {
                return true;
            }
            let lossy = self.survival.lossy(partition).map(|lossy| lossy.epoch);
            let newest =
                self.epochs.newest(partition).filter(|record| record.lossy).map(|record| record.term);
            let served = newest.is_none_or(|term| lossy.is_some_and(|epoch| term.began() <= epoch));
            let is_behind = lossy.is_some_and(|epoch| epoch <= taken.term.began());
            served && is_behind && self.has_committed(partition, at)
        };
        let wrong = taken.iter().find_map(|taken| cluster_snapshots::check(taken, operations, &counts).err());
        if let Some(sentence) = wrong {
            self.fault("PR-80", now, sentence);
        }
    }

    /// Looks at backups and at what was restored from them. What a failover has lost since may be in a
    /// backup, and missing in what was restored.
    pub fn backups(&mut self, now: u64, made: &[backups::Backup], restored: &[backups::Restored]) {
        let is_behind = |partition: &PartitionId, told: &Position| {
            let lossy = self.survival.lossy(*partition);
            lossy.is_none_or(|lossy| lossy.epoch <= told.term.began())
        };
        // A position is told with the configuration in which it was; entries have its term.
        let entry_at = |(partition, told): (&PartitionId, &Position)| {
            let term = self.epochs.terms(*partition).get(&told.term.began()).copied();
            (*partition, Position::new(term.unwrap_or(told.term), told.lsn))
        };
        let look = |told: &backups::Backup| {
            let made = backups::Backup { at: told.at.iter().map(entry_at).collect(), ..told.clone() };
            let committed =
                |partition: &PartitionId| told.at.get(partition).is_some_and(|at| is_behind(partition, at));
            let tip = |partition| self.tips.get(&partition).copied().filter(|_| committed(&partition));
            backups::check(&made, &self.lineage, &tip).err()
        };
        let wrong = made.iter().find_map(look);
        let sound = |id: &PartitionId| self.survival.lossy(*id).is_none();
        let whole = |restored: &&backups::Restored| restored.into.iter().all(sound);
        let restored = restored.iter().filter(whole);
        let wrong = wrong.or_else(|| restored.into_iter().find_map(|one| backups::check_restored(one).err()));
        if let Some(sentence) = wrong {
            self.fault("PR-330", now, sentence);
        }
    }

    /// Looks at the whole history, unless something is broken already. Of each checker the first objection
    /// is noted.
    pub fn finish(&mut self, now: u64, told: ClientAnswers<'_>) {
        if self.violations.is_empty() {
            self.look_at_history(now, told, 1);
        }
    }

    /// The same to the end, whatever is broken already: every objection of every checker is noted. So a
    /// history can be shown to break one promise alone.
    #[cfg(test)]
    pub(crate) fn finish_to_the_end(&mut self, now: u64, told: ClientAnswers<'_>) {
        self.look_at_history(now, told, usize::MAX);
    }

    /// Looks at the whole history. `most`: so many objections of each checker are noted.
    fn look_at_history(&mut self, now: u64, told: ClientAnswers<'_>, most: usize) {
        let acknowledged: BTreeSet<(PartitionId, Position)> =
            told.operations.iter().filter_map(|op| Some((op.partition, op.acknowledged()?))).collect();
        let of_tables = told.tables.iter().filter_map(|op| match op.told {
            TableAnswer::Done(at) => Some((op.partition, at)),
            _ => None,
        });
        let acknowledged: BTreeSet<_> = acknowledged.into_iter().chain(of_tables).collect();
        if !self.failovers.is_empty() {
            let had = |id, term: Term, at| {
                let tip = self.lineage.tips(id).get(&term).copied();
                tip.is_none_or(|tip| self.lineage.has(id, tip, at))
            };
            let verdict = report::check(&self.failovers, &acknowledged, self.survival.missed(), had);
            self.expect("I14", now, verdict);
        }
        let tips = self.tips.clone();
        for (partition, tip) in tips {
            let tip = self.last_acknowledged(partition, tip, &acknowledged, told);
            self.finish_partition(now, (partition, tip), told, most);
        }
        self.finish_transactions(now, told, most);
        let term = |partition, epoch: Epoch| self.epochs.terms(partition).get(&epoch).copied();
        let of_turns = turns::check(told.turns, &self.lineage, term);
        for (id, sentence) in of_turns.into_iter().take(most) {
            self.fault(id, now, sentence);
        }
    }

    /// Compares what clients saw of global transactions with the manager's log.
    fn finish_transactions(&mut self, now: u64, told: ClientAnswers<'_>, most: usize) {
        let Some(manager) = self.lineage.transactional().manager else { return };
        if let Some(sentence) = self.timestamps.misnamed().cloned() {
            self.fault("PR-250", now, sentence);
        }
        let Some(tip) = self.tips.get(&manager).copied() else { return };
        let mut line: Vec<_> = self.lineage.line(manager, tip).collect();
        line.reverse();
        let lost = self.lost_commits(manager, &line);
        let whole = told.given_up.is_empty() && lost.is_empty();
        let history = commits::History::of(line.into_iter());
        let history = history.without(told.given_up, self.lineage.places()).and_lost(lost);
        let mut broken = history.check(told.transactions);
        // What is given up, or lost, is seen before, and not behind.
        if whole {
            broken.extend(cycles::check(history.commits(), told.transactions).err());
        }
        for (id, sentence) in broken.into_iter().take(most) {
            self.fault(id, now, sentence);
        }
    }

    /// What a promotion with loss has lost of the manager's log, the newest one of which is this.
    fn lost_commits(&self, manager: PartitionId, line: &[&lineage::Known]) -> commits::Lost {
        if self.survival.lossy(manager).is_none() {
            return commits::Lost::default();
        }
        let left: BTreeSet<Position> = line.iter().map(|known| known.at).collect();
        let had = |commit: Position| -> BTreeMap<PartitionId, bool> {
            let written = self.lineage.transactional().written.iter();
            let had = written.filter_map(|id| {
                let tip = self.tips.get(id).copied();
                let kept = self.truncation.has(&self.lineage, (*id, commit), tip)?;
                // What an operator had another copy lead for may be back, and so may what a node had without
                // which the records were made again.
                let same = !self.epochs.was_forced(*id) && !self.epochs.was_rebuilt(*id);
                Some((*id, kept && same))
            });
            had.collect()
        };
        let gone = self.lineage.all(manager).filter(|known| !left.contains(&known.at));
        commits::Lost::of(gone, had)
    }

    /// Where the log of a partition ends, of which the newest primary of all that came to serve knew that it
    /// was committed up to `tip`. One that was sealed a moment ago and did not know it yet may have
    /// acknowledged more behind that, and the one after it never have come to serve.
    fn last_acknowledged(
        &self,
        partition: PartitionId,
        tip: Position,
        acknowledged: &BTreeSet<(PartitionId, Position)>,
        told: ClientAnswers<'_>,
    ) -> Position {
        let here = acknowledged.iter().filter(|(of, _)| *of == partition).map(|(_, at)| *at);
        let of_here = told.tables.iter().filter(|op| op.partition == partition);
        let refused = of_here.filter_map(|op| match op.told {
            TableAnswer::Refused(_, at) => Some(Position::new(tip.term, at)),
            _ => None,
        });
        let behind = |at: &Position| *at > tip && self.lineage.has(partition, *at, tip);
        here.chain(refused).filter(behind).max().unwrap_or(tip)
    }

    fn finish_partition(
        &mut self,
        now: u64,
        (partition, tip): (PartitionId, Position),
        told: ClientAnswers<'_>,
        most: usize,
    ) {
        let of_here = told.operations.iter().filter(|op| op.partition == partition);
        let operations: Vec<&Operation> = of_here.collect();
        let mut line: Vec<_> = self.lineage.line(partition, tip).collect();
        line.reverse();
        let lossy = self.survival.lossy(partition);
        let lost = self.survival.lost().iter().filter(|((of, _), _)| *of == partition);
        let lost = lost.map(|((_, at), since)| (*at, *since)).collect();
        let others = lossy.map(|_| self.lineage.tips(partition)).unwrap_or_default();
        let gone = others.into_iter().filter(|(_, tip)| !line.iter().any(|known| known.at == *tip));
        let gone = gone.map(|(term, tip)| {
            let mut line: Vec<_> = self.lineage.line(partition, tip).collect();
            line.reverse();
            (term, line)
        });
        let gone: Vec<_> = gone.collect();
        let last = final_log::Final::new(line, lost, lossy);
        let last = last.with_terms(self.epochs.terms(partition), gone.clone().into_iter());
        let of_tables = match self.lineage.has_tables(partition) {
            true => {
                let of_here = told.tables.iter().filter(|op| op.partition == partition);
                let of_here: Vec<TableOperation> = of_here.cloned().collect();
                tables::told::check(&tables::told::Logs::new(&last, gone.into_iter()), &of_here)
            }
            false => Vec::new(),
        };
        let jobs: Vec<_> = told.jobs.iter().filter(|told| told.partition == partition).collect();
        let of_jobs = jobs::check(&last, &jobs);
        let lost = told.lost.iter().filter(|lost| lost.partition == partition);
        let of_losses = effects::check_losses(&last, lost, self.survival.last_forced(partition));
        let of_operations: Vec<Broken> = effects::faults(&last, &operations).take(most).collect();
        let present: BTreeSet<u64> =
            last.line.iter().flat_map(|known| known.changes.iter().filter_map(|(_, value)| *value)).collect();
        for (id, sentence) in of_operations.into_iter().chain(of_tables.into_iter().take(most)) {
            self.fault(id, now, sentence);
        }
        self.expect("PR-82", now, of_jobs);
        self.expect("PR-47", now, of_losses);
        let of_won = registers::steps(&operations, lossy.map(|_| &present));
        // Until something may have been lost everything counts that was done then.
        let first = self.epochs.first_lossy(partition);
        let before = first.map(|(time, _)| registers::before(&operations, time)).unwrap_or_default();
        let before: Vec<&Operation> = before.iter().collect();
        let of_before = registers::steps(&before, None);
        for (key, steps) in of_won.iter().chain(&of_before) {
            if let Err(sentence) = linear::check(steps) {
                let sentence = format!("{partition} key {key} is not linearizable: {sentence}");
                self.fault("R5", now, sentence);
            }
        }
    }
}
