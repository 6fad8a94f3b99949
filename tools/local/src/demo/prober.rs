//! The prober: writes to every partition every few milliseconds, on a thread and connections of its own, and
//! notes when each write was acknowledged. What it writes is judged like everything else.

use super::clock::{ms_between, wall_ms};
use super::dataset::Dataset;
use super::history::{Attempt, End, KeyId};
use super::told::Answered;
use super::workload::Shared;
use crate::error::LocalError;
use client::table::Table;
use client::{Client, Completed, LaneId, Outcome};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use types::{Epoch, Micros, PartitionId};
use wire::RowOp;

/// Between two writes to a partition.
pub(super) const EVERY: Duration = Duration::from_millis(5);
/// How long one write may take.
const WRITE_TIMEOUT: Micros = Micros(30_000_000);

/// An acknowledged write of the prober.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub at: Instant,
    pub epoch: Epoch,
}

/// What the prober saw.
#[derive(Debug, Default)]
pub(super) struct ProbeReport {
    pub attempts: Vec<Attempt>,
    /// Per partition, in order.
    pub acks: Vec<(PartitionId, Vec<Ack>)>,
}

/// The prober.
pub(super) struct Prober<'a> {
    pub client: Client,
    pub table: &'a Table,
    pub data: &'a Dataset,
    /// Its number as a client.
    pub number: u32,
    /// Its keys in each partition. The first half is written until a new term begins, the second after that:
    /// what a failover took back is not written over, and stays visible.
    pub keys: &'a [(PartitionId, Vec<KeyId>)],
    pub shared: &'a Shared,
}

/// A prober at work.
struct Probing<'a> {
    prober: Prober<'a>,
    report: ProbeReport,
    sequence: u64,
    /// Per partition: the write on its way, and how many came before it.
    open: Vec<(Option<(KeyId, u64)>, usize)>,
    /// Per partition: the term in which it began.
    terms: Vec<Epoch>,
    retired: HashSet<KeyId>,
}

impl Prober<'_> {
    /// Runs until asked to stop.
    pub fn run(self) -> Result<ProbeReport, LocalError> {
        let acks = self.keys.iter().map(|(partition, _)| (*partition, Vec::new())).collect();
        let mut probing = Probing {
            report: ProbeReport { attempts: Vec::new(), acks },
            sequence: 0,
            open: vec![(None, 0); self.keys.len()],
            terms: self.keys.iter().map(|(partition, _)| term(&self.client, *partition)).collect(),
            retired: HashSet::new(),
            prober: self,
        };
        let mut next = Instant::now();
        loop {
            let stopping = probing.prober.shared.stopping();
            if stopping && probing.prober.client.open_calls() == 0 {
                return Ok(probing.report);
            }
            if !stopping && Instant::now() >= next {
                probing.tick();
                // A late tick is not made up for: it would not come from a closed loop.
                next = (next + EVERY).max(Instant::now());
            }
            let wait =
                next.saturating_duration_since(Instant::now()).min(EVERY).max(Duration::from_micros(100));
            for completed in probing.prober.client.poll(wait)? {
                probing.take_in(completed)?;
            }
        }
    }
}

/// The epoch since which the present primary leads, as far as known.
fn term(client: &Client, partition: PartitionId) -> Epoch {
    client.cluster_map().partition(partition).map_or(Epoch::ZERO, |record| record.term.began())
}

impl Probing<'_> {
    /// A write to every partition that has none on its way.
    fn tick(&mut self) {
        for at in 0..self.open.len() {
            let (partition, keys) = &self.prober.keys[at];
            let half = keys.len() / 2;
            let first = term(&self.prober.client, *partition) == self.terms[at];
            let keys = if first { &keys[..half] } else { &keys[half..] };
            let (on_its_way, count) = &mut self.open[at];
            let key = keys[*count % keys.len()];
            if on_its_way.is_some() {
                continue;
            }
            *count += 1;
            if self.retired.contains(&key) {
                continue;
            }
            self.sequence += 1;
            *on_its_way = Some((key, self.sequence));
            let row = self.prober.data.written(key, self.prober.number, self.sequence);
            let put = RowOp::Put { key: self.prober.data.key(key).clone(), row };
            let call = self.prober.table.write(*partition, vec![put]).within(WRITE_TIMEOUT);
            self.prober.client.submit(LaneId(at as u32), call);
        }
    }

    fn take_in(&mut self, completed: Completed) -> Result<(), LocalError> {
        let at = completed.lane.0 as usize;
        let Some((key, sequence)) = self.open[at].0.take() else { return Ok(()) };
        let end = match completed.outcome {
            Outcome::Ok(answer) => {
                self.report.acks[at].1.push(Ack { at: Instant::now(), epoch: answer.epoch });
                let told = Answered { key, client: self.prober.number, sequence, at: answer.position() };
                self.prober.shared.told.tell(self.report.acks[at].0, told);
                End::Acknowledged { at: answer.position(), ms: wall_ms() }
            }
            Outcome::Unknown(_) => {
                self.retired.insert(key);
                End::Unknown
            }
            Outcome::Refused(..) | Outcome::Failed(..) => End::NotDone,
        };
        self.report.attempts.push(Attempt { key, client: self.prober.number, sequence, end });
        Ok(())
    }
}

impl ProbeReport {
    /// Milliseconds from the fault to the first acknowledged write of a newer term, on the slowest of these
    /// partitions. `None` if some partition never had one.
    pub fn failover_ms(&self, fault: Instant, led: &[(PartitionId, Epoch)]) -> Option<f64> {
        let of = |partition: PartitionId| self.acks.iter().find(|(place, _)| *place == partition);
        let first = |(partition, new_epoch): &(PartitionId, Epoch)| {
            let ack = of(*partition)?.1.iter().find(|ack| ack.at >= fault && ack.epoch >= *new_epoch)?;
            Some(ms_between(fault, ack.at))
        };
        led.iter().map(first).try_fold(0.0, |longest: f64, ms| Some(longest.max(ms?)))
    }

    /// The longest time without an acknowledged write on any partition, in milliseconds, and when it began.
    pub fn longest_gap(&self) -> Option<(f64, Instant)> {
        let gaps = self.acks.iter().flat_map(|(_, acks)| acks.windows(2));
        let gaps = gaps.map(|pair| (ms_between(pair[0].at, pair[1].at), pair[0].at));
        gaps.reduce(|one, other| if other.0 > one.0 { other } else { one })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_partition_counts_and_answers_of_the_old_term_do_not() {
        let start = Instant::now();
        let ack = |ms: u64, epoch: u64| Ack { at: start + Duration::from_millis(ms), epoch: Epoch(epoch) };
        let (one, two) = (PartitionId(64), PartitionId(65));
        let report = ProbeReport {
            attempts: Vec::new(),
            acks: vec![
                (one, vec![ack(90, 1), ack(101, 1), ack(350, 2)]),
                (two, vec![ack(95, 1), ack(400, 2)]),
            ],
        };
        let fault = start + Duration::from_millis(100);
        let ms = |led: &[(PartitionId, Epoch)]| report.failover_ms(fault, led).map(f64::round);
        assert_eq!(ms(&[(one, Epoch(2))]), Some(250.0));
        assert_eq!(ms(&[(one, Epoch(2)), (two, Epoch(2))]), Some(300.0));
        assert_eq!(ms(&[(one, Epoch(3))]), None);
        let (longest, from) = report.longest_gap().expect("there are several");
        assert_eq!((longest.round(), from), (305.0, start + Duration::from_millis(95)));
    }
}
