//! Jobs against a model of their partitions, which loses answers, pieces and what it had acknowledged.

use super::*;
use crate::call::{Answer, FailKind};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::data::{Column, ColumnType, Schema};
use types::{Epoch, LogKind, Lsn, NodeId, Policy, TableId, TableRecord};
use wire::job::JobRefusal;

fn table(partitions: u32, policy: &str) -> Table {
    let columns = vec![Column::new("id", ColumnType::Int).not_null(), Column::new("name", ColumnType::Text)];
    let schema = Schema::new(columns, &["id"], 1, false).expect("valid");
    Table::new(Arc::new(TableRecord {
        partitions,
        seed: 1,
        placement: vec![vec![NodeId(1)]; partitions as usize],
        ..TableRecord::new(TableId(1), "t", schema, Policy::preset(policy, 3, LogKind::Disk).expect("known"))
    }))
}

/// Numbers that look drawn.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// One partition as far as jobs know it.
#[derive(Default)]
struct Model {
    status: JobStatus,
    done: BTreeSet<u64>,
    /// Nobody hears of it any more.
    dead: bool,
}

impl Model {
    fn answer(&mut self, op: &Op, refuses: &BTreeSet<u64>) -> Outcome {
        let ok = match op {
            Op::Job { after, records, .. } => self.piece(*after, records, refuses),
            Op::EndJob { through, abort, .. } => {
                let whole = self.status.refused.is_none() && self.status.through == *through && !abort;
                if matches!(self.status.state, JobState::Absent | JobState::Open) {
                    self.status.state = if whole { JobState::Committed } else { JobState::Aborted };
                }
                *abort || self.status.state == JobState::Committed
            }
            other => panic!("not a job's: {other:?}"),
        };
        let body = Body::Job(self.status);
        let answer = Answer { lsn: Lsn(1), epoch: Epoch(1), policy: 1, copies: 3, body };
        if ok { Outcome::Ok(answer) } else { Outcome::Refused(Refusal::Stopped, answer) }
    }

    fn piece(&mut self, after: u64, records: &[JobRecord], refuses: &BTreeSet<u64>) -> bool {
        let status = &mut self.status;
        if records.last().expect("records").number <= status.through {
            return true;
        }
        let open = matches!(status.state, JobState::Absent | JobState::Open);
        if !open || status.refused.is_some() || after != status.through {
            return false;
        }
        status.state = JobState::Open;
        for record in records {
            if refuses.contains(&record.number) {
                status.refused =
                    Some(JobRefusal { number: record.number, outcome: Refusal::Exists, constraint: 0 });
                return false;
            }
            self.done.insert(record.number);
            (status.records, status.through) = (status.records + 1, record.number);
        }
        true
    }

    /// A failover loses what came after this record.
    fn lose(&mut self, through: u64) {
        if self.status.state == JobState::Open && through < self.status.through {
            self.done.retain(|number| *number <= through);
            (self.status.through, self.status.records) = (through, self.done.len() as u64);
            self.status.refused = None;
        }
    }
}

struct Trial {
    job: Job,
    models: BTreeMap<PartitionId, Model>,
    queues: BTreeMap<PartitionId, VecDeque<(Ticket, Call)>>,
    refuses: BTreeSet<u64>,
    draws: Draws,
    tickets: u64,
    /// Of a thousand answers, how many are lost with the piece, and without it.
    loses: u64,
    unheard: u64,
    late: u64,
}

impl Trial {
    fn new(seed: u64, policy: &str) -> Trial {
        let options = JobOptions { max_rows: 3, in_flight: 4, ..JobOptions::default() };
        Trial {
            job: Job::new(table(3, policy), JobId::new(1, seed), options),
            models: BTreeMap::new(),
            queues: BTreeMap::new(),
            refuses: BTreeSet::new(),
            draws: Draws(seed.wrapping_mul(7_919) + 1),
            tickets: 0,
            loses: 0,
            unheard: 0,
            late: 1,
        }
    }

    fn pump(&mut self) {
        let (queues, tickets) = (&mut self.queues, &mut self.tickets);
        self.job.pump(&mut |call| {
            *tickets += 1;
            queues.entry(call.partition).or_default().push_back((Ticket(*tickets), call));
            Ticket(*tickets)
        });
    }

    /// One partition answers the oldest of its calls.
    fn turn(&mut self) {
        self.pump();
        let busy: Vec<PartitionId> =
            self.queues.iter().filter(|(_, queue)| !queue.is_empty()).map(|(at, _)| *at).collect();
        if busy.is_empty() {
            return;
        }
        let partition = busy[self.draws.below(busy.len() as u64) as usize];
        let (ticket, call) = self.queues.get_mut(&partition).and_then(VecDeque::pop_front).expect("busy");
        let model = self.models.entry(partition).or_default();
        let fortune = self.draws.below(1_000);
        let mut latency_us = self.late;
        let outcome = if model.dead {
            latency_us = 60_000_000;
            Outcome::Unknown("nobody answers".into())
        } else if fortune < self.loses {
            Outcome::Unknown("the primary changed".into())
        } else {
            let outcome = model.answer(&call.op, &self.refuses);
            let heard = fortune >= self.loses + self.unheard;
            if heard { outcome } else { Outcome::Unknown("the primary changed".into()) }
        };
        let (lane, number) = (LaneId(1), None);
        let completed = Completed { ticket, lane, partition, outcome, latency_us, attempts: 1, number };
        assert!(self.job.completed(completed), "it is the job's");
    }

    fn add(&mut self, records: u64) {
        for number in 1..=records {
            if self.job.trouble().is_some() {
                return;
            }
            let row = Row::new(vec![(number as i64).into(), "x".into()]);
            let (key, row) = self.job.table().encode(&row).expect("fits");
            self.job.add(number, RowOp::Insert { key, row }).expect("it has a place");
            while self.job.is_full() || self.draws.below(3) == 0 && !self.job.tickets.is_empty() {
                self.turn();
            }
        }
    }

    fn end(&mut self) -> JobReport {
        if self.job.trouble().is_none() {
            self.job.commit();
        }
        for _ in 0..10_000 {
            if self.job.is_over() {
                return self.job.report();
            }
            self.turn();
        }
        panic!("it never ends: {:?}", self.job);
    }

    fn done(&self) -> BTreeSet<u64> {
        self.models.values().flat_map(|model| model.done.iter().copied()).collect()
    }

    /// What the report says is so.
    fn check(&self, report: &JobReport) {
        let done = self.done();
        let within = |ranges: &[(u64, u64)], number: u64| {
            ranges.iter().any(|(from, to)| (*from..=*to).contains(&number))
        };
        for (partition, model) in &self.models {
            let part = report.parts.iter().find(|part| part.partition == *partition).expect("it is told of");
            if model.dead {
                assert!(part.committed <= model.done.len() as u64, "{part:?}");
                assert!(part.committed + part.unknown >= model.done.len() as u64, "{part:?}");
            } else {
                assert_eq!((part.committed, part.unknown), (model.done.len() as u64, 0), "{report:?}");
                assert_eq!(part.through, model.status.through);
            }
        }
        for number in 1..=self.job.last() {
            if number <= report.all_through || within(&report.ranges, number) {
                assert!(done.contains(&number), "{number} is not committed: {report:?}");
            } else if report.ranges_whole && !within(&report.unknown_ranges, number) {
                assert!(!done.contains(&number), "{number} is committed: {report:?}");
            }
        }
        if report.committed {
            assert_eq!(done.len() as u64, report.records);
            assert_eq!((report.all_through, report.ranges_whole), (self.job.last(), true), "{report:?}");
        } else {
            assert!(report.why.is_some());
        }
    }
}

#[test]
fn a_job_that_nothing_happens_to_is_committed() {
    let mut trial = Trial::new(1, "durable");
    trial.add(5_000);
    assert!(trial.job.recent.len() < 3_000, "{} places are kept", trial.job.recent.len());
    let report = trial.end();
    trial.check(&report);
    assert!(report.committed, "{report:?}");
    assert_eq!((report.records, report.records_committed), (5_000, 5_000));
    assert_eq!(report.copies, Some(3));
    let empty = Trial::new(1, "durable").end();
    assert!(empty.committed && empty.records == 0);
}

#[test]
fn pr47_answers_and_pieces_that_are_lost_on_the_way_cost_nothing() {
    for seed in 0..200 {
        let mut trial = Trial::new(seed, "durable");
        (trial.loses, trial.unheard) = (30, 30);
        trial.add(200);
        let report = trial.end();
        trial.check(&report);
        assert!(report.committed || report.why.is_some());
        let pieces = trial.models.values().all(|model| model.status.state != JobState::Open);
        assert!(pieces, "seed {seed}: a partition was not told of the end");
    }
}

#[test]
fn a_refusal_ends_the_job_and_the_report_says_what_is_in() {
    for seed in 0..200 {
        let mut trial = Trial::new(seed, "durable");
        (trial.loses, trial.unheard) = (10, 10);
        trial.refuses = [70 + seed % 100].into();
        trial.add(200);
        let report = trial.end();
        trial.check(&report);
        assert!(!report.committed);
        if let Some(refused) = report.refused {
            assert_eq!((refused.number, refused.why), (70 + seed % 100, Refusal::Exists));
            assert!(report.all_through < refused.number);
        }
    }
}

#[test]
fn what_a_failover_lost_is_not_called_committed() {
    for seed in 0..200 {
        let mut trial = Trial::new(seed, "async");
        trial.add(100);
        let victim = *trial.models.keys().next().expect("pieces were sent");
        let through = trial.models[&victim].done.iter().nth(4).copied().unwrap_or(0);
        trial.models.get_mut(&victim).expect("it is one").lose(through);
        let report = trial.end();
        trial.check(&report);
        assert!(!report.committed, "seed {seed}");
    }
}

#[test]
fn a_partition_that_does_not_answer_is_unknown() {
    for (seed, policy) in (0..100).flat_map(|seed| [(seed, "durable"), (seed, "async")]) {
        let mut trial = Trial::new(seed, policy);
        trial.add(60 + seed % 30);
        let victim = *trial.models.keys().last().expect("pieces were sent");
        trial.models.get_mut(&victim).expect("it is one").dead = true;
        let report = trial.end();
        trial.check(&report);
        let part = report.parts.iter().find(|part| part.partition == victim).expect("it is told of");
        assert!(matches!(part.state, PartState::Unknown(_)), "{part:?}");
        assert!(!report.committed);
        assert!(report.records_unknown > 0 || part.committed == part.records, "{report:?}");
        assert!(policy == "durable" || part.committed == 0, "{part:?}");
    }
}

#[test]
fn a_write_that_surely_failed_ends_the_job() {
    let mut trial = Trial::new(3, "durable");
    trial.add(9);
    trial.pump();
    let (ticket, (partition, _)) = trial.job.tickets.iter().next().map(|(t, p)| (*t, *p)).expect("one");
    trial.queues.get_mut(&partition).expect("asked").retain(|(other, _)| *other != ticket);
    let outcome = Outcome::Failed(FailKind::Full, "the disk is full".into());
    let (lane, number) = (LaneId(1), None);
    let completed = Completed { ticket, lane, partition, outcome, latency_us: 1, attempts: 1, number };
    trial.job.completed(completed);
    let report = trial.end();
    trial.check(&report);
    assert!(report.why.expect("a reason").contains("the disk is full"));
    let key = Bytes::from_static(b"no key of this table");
    assert!(
        Job::new(table(1, "durable"), JobId::new(1, 1), JobOptions::default())
            .add(1, RowOp::Delete { key })
            .is_err()
    );
}
