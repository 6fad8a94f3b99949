//! What a job's end says: which of its records are committed, which are not, and of which nobody knows.

use super::{End, Job, Part, Phase};
use types::{JobId, PartitionId};
use wire::Outcome as Refusal;
use wire::job::JobState;

/// The most ranges of numbers in a report. What is on its way when a job is aborted lies scattered.
const MOST_RANGES: usize = 100_000;

/// How a job ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobReport {
    /// The job.
    pub job: JobId,
    /// True if all of it is committed, as the table's policy has it. Else it was aborted: what is named as
    /// committed stays so, as every copy that may come to lead has it.
    pub committed: bool,
    /// Why it was aborted.
    pub why: Option<String>,
    /// The record with the lowest number that was refused.
    pub refused: Option<JobRefused>,
    /// Records that were given to it.
    pub records: u64,
    /// Of those, how many are committed.
    pub records_committed: u64,
    /// How many may be committed or not: their partition did not answer.
    pub records_unknown: u64,
    /// Bytes of keys and rows that were given to it.
    pub bytes: u64,
    /// Every record up to this number is committed.
    pub all_through: u64,
    /// The numbers of the records that are committed, as ranges, both ends included.
    pub ranges: Vec<(u64, u64)>,
    /// The numbers of those of which nobody knows.
    pub unknown_ranges: Vec<(u64, u64)>,
    /// True if the ranges name all of them. Else there are too many, or a failover has lost records that had
    /// been acknowledged: then the parts say it, partition by partition.
    pub ranges_whole: bool,
    /// The fewest copies that the answer of any partition counted.
    pub copies: Option<u8>,
    /// What was done in each partition that has records of it.
    pub parts: Vec<JobPart>,
}

/// A record that was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobRefused {
    /// Its number.
    pub number: u64,
    /// Where.
    pub partition: PartitionId,
    /// Why.
    pub why: Refusal,
    /// The number of the constraint that forbids it; 0: none does.
    pub constraint: u32,
}

/// How a job ended in a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PartState {
    /// With all its records.
    Committed,
    /// Otherwise.
    Aborted,
    /// Nothing was sent there.
    Untouched,
    /// It did not answer, for this reason.
    Unknown(String),
}

/// A job in one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobPart {
    /// Where.
    pub partition: PartitionId,
    /// How it ended.
    pub state: PartState,
    /// Records that belong there.
    pub records: u64,
    /// How many of them are committed.
    pub committed: u64,
    /// The number of the last of them: those of this partition up to it are committed. 0: none.
    pub through: u64,
    /// How many after that may be committed or not.
    pub unknown: u64,
}

impl Part {
    /// What is surely committed, how many and up to where, and up to which number it may be.
    fn known(&self, lossy: bool) -> (u64, u64, u64) {
        match &self.end {
            End::Answered(status) => (status.records, status.through, status.through),
            _ if self.sent_through == 0 => (0, 0, 0),
            // What rests on the primary alone may be lost with it.
            _ if lossy => (0, 0, self.sent_through),
            _ => (self.acknowledged, self.acknowledged_through, self.sent_through),
        }
    }

    fn state(&self) -> PartState {
        match &self.end {
            End::Answered(status) if status.state == JobState::Committed => PartState::Committed,
            End::Answered(_) => PartState::Aborted,
            _ if self.sent_through == 0 => PartState::Untouched,
            End::Unknown(why) => PartState::Unknown(why.clone()),
            End::NotAsked | End::Asked => PartState::Unknown("it was not asked to the end".into()),
        }
    }
}

impl Job {
    /// What is known of it; all that will be, once it is over.
    pub fn report(&self) -> JobReport {
        let lossy = self.table.record().policy.rests_on().is_primary();
        let parts: Vec<JobPart> =
            self.parts.iter().map(|(partition, part)| self.part(*partition, part, lossy)).collect();
        let refused = self.parts.iter().filter_map(|(partition, part)| match &part.end {
            End::Answered(status) => status.refused.map(|refused| JobRefused {
                number: refused.number,
                partition: *partition,
                why: refused.outcome,
                constraint: refused.constraint,
            }),
            _ => None,
        });
        let mut report = JobReport {
            job: self.id,
            committed: self.phase == Phase::Over && self.why.is_none(),
            why: self.why.clone(),
            refused: refused.min_by_key(|refused| refused.number),
            records: parts.iter().map(|part| part.records).sum(),
            records_committed: parts.iter().map(|part| part.committed).sum(),
            records_unknown: parts.iter().map(|part| part.unknown).sum(),
            bytes: self.bytes,
            all_through: 0,
            ranges: Vec::new(),
            unknown_ranges: Vec::new(),
            ranges_whole: true,
            copies: self.parts.values().filter_map(|part| part.copies).min(),
            parts,
        };
        self.range(&mut report, lossy);
        report
    }

    fn part(&self, partition: PartitionId, part: &Part, lossy: bool) -> JobPart {
        let (committed, through, _) = part.known(lossy);
        let unknown = match part.state() {
            PartState::Unknown(_) => part.sent.saturating_sub(committed),
            _ => 0,
        };
        JobPart { partition, state: part.state(), records: part.added, committed, through, unknown }
    }

    /// Names records by ranges of their numbers.
    fn range(&self, report: &mut JobReport, lossy: bool) {
        // What had been acknowledged and is lost, or may be, lies among records whose places are forgotten.
        let short = self.parts.values().filter_map(|part| {
            let (_, through, _) = part.known(lossy);
            let settled = part.acknowledged_through.min(self.settled);
            (through < settled).then_some(through)
        });
        if let Some(lowest) = short.min() {
            report.ranges_whole = false;
            report.all_through = lowest;
            report.ranges.extend((lowest > 0).then_some((1, lowest)));
            return;
        }
        let mut committed = Ranges::default();
        let mut unknown = Ranges::default();
        if self.settled > 0 {
            committed.add(1, self.settled);
        }
        for (number, partition) in &self.recent {
            let (_, through, perhaps) = self.parts[partition].known(lossy);
            let (known, maybe) = (*number <= through, *number <= perhaps);
            committed.step(*number, known);
            unknown.step(*number, maybe && !known);
        }
        report.ranges_whole = committed.all.len() <= MOST_RANGES && unknown.all.len() <= MOST_RANGES;
        let first = if self.settled > 0 { Some(1) } else { self.recent.front().map(|(number, _)| *number) };
        let whole = committed.all.first().filter(|(from, _)| Some(*from) == first);
        report.all_through = whole.map_or(0, |(_, to)| *to);
        committed.all.truncate(MOST_RANGES);
        unknown.all.truncate(MOST_RANGES);
        (report.ranges, report.unknown_ranges) = (committed.all, unknown.all);
    }
}

#[derive(Default)]
struct Ranges {
    all: Vec<(u64, u64)>,
    /// The last record was in it.
    open: bool,
}

impl Ranges {
    fn add(&mut self, from: u64, to: u64) {
        self.all.push((from, to));
        self.open = true;
    }

    /// The next record, which is in it or not. Numbers that no record has do not divide a range.
    fn step(&mut self, number: u64, is_in: bool) {
        match self.all.last_mut().filter(|_| self.open && is_in) {
            Some(last) => last.1 = number,
            None if is_in => self.all.push((number, number)),
            None => {}
        }
        self.open = is_in;
    }
}
