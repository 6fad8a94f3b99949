//! Reads of every partition beside the load, to see where a fault shows.

use super::clients::get;
use super::store::Store;
use crate::cluster::WAIT_LIMIT;
use crate::error::BenchError;
use client::{Client, Completed, LaneId, Outcome};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use types::{PartitionId, Position};
use wire::{Body, CommitAnswer, ManagerOp};

/// Lanes of the watch begin here.
const LANES: u32 = 1_000_000;
/// Between two reads of a partition.
const INTERVAL: Duration = Duration::from_millis(5);

/// A read of a new snapshot in one partition, again and again.
struct Watched {
    partition: PartitionId,
    /// A row that lies there.
    row: u64,
    /// When the next one is to begin; none: one is on its way.
    next: Option<Instant>,
    /// When it began.
    began: Instant,
    /// When reads ended, from the round's beginning, and when they had begun.
    ended: Vec<(Duration, Duration)>,
}

/// All partitions of a database.
pub(super) struct Watch {
    watched: Vec<Watched>,
    over: bool,
}

impl Watch {
    /// Of this store, with a row in each partition.
    pub fn new(store: &Store, rows: u64) -> Result<Watch, BenchError> {
        let mut found: BTreeMap<PartitionId, u64> = BTreeMap::new();
        for id in 0..rows {
            found.entry(get(store, id, Position::ZERO)?.partition).or_insert(id);
        }
        let now = Instant::now();
        let watched = found.into_iter().map(|(partition, row)| Watched {
            partition,
            row,
            next: Some(now),
            began: now,
            ended: Vec::new(),
        });
        Ok(Watch { watched: watched.collect(), over: false })
    }

    /// Begins what is due.
    pub fn turn(&mut self, client: &mut Client, store: &Store) -> Result<(), BenchError> {
        let now = Instant::now();
        for (at, watched) in self.watched.iter_mut().enumerate() {
            if watched.next.is_some_and(|next| next <= now) && !self.over {
                (watched.next, watched.began) = (None, now);
                let call = store.manager.call(ManagerOp::Snapshot { since: Position::ZERO });
                client.submit_in_transaction(LaneId(LANES + at as u32), call);
            }
        }
        Ok(())
    }

    /// Takes in an answer, if it is one of the watch's.
    pub fn take(
        &mut self,
        client: &mut Client,
        store: &Store,
        completed: &Completed,
        begun: Instant,
    ) -> Result<bool, BenchError> {
        let at = completed.lane.0.checked_sub(LANES).map(|at| at as usize);
        let Some(watched) = at.and_then(|at| self.watched.get_mut(at)) else { return Ok(false) };
        // Whatever fails is tried again, and the gap grows.
        if let Outcome::Ok(answer) = &completed.outcome {
            match &answer.body {
                Body::Commit(CommitAnswer::Snapshot { at, .. }) => {
                    client.submit_in_transaction(completed.lane, get(store, watched.row, *at)?);
                    return Ok(true);
                }
                Body::Row(Some(_)) => {
                    watched.ended.push((begun.elapsed(), watched.began.saturating_duration_since(begun)));
                }
                other => return Err(BenchError::Wrong(format!("a read was answered with {other:?}"))),
            }
        }
        watched.next = Some(Instant::now() + INTERVAL);
        Ok(true)
    }

    /// Waits for what is on its way.
    pub fn end(&mut self, client: &mut Client, begun: Instant) -> Result<(), BenchError> {
        self.over = true;
        let deadline = Instant::now() + WAIT_LIMIT;
        while self.watched.iter().any(|watched| watched.next.is_none()) {
            for completed in client.poll(Duration::from_millis(20))? {
                let at = completed.lane.0.checked_sub(LANES).map(|at| at as usize);
                if let Some(watched) = at.and_then(|at| self.watched.get_mut(at)) {
                    watched.next = Some(begun);
                }
            }
            if Instant::now() >= deadline {
                return Err(BenchError::Wrong("a read beside the load was not answered".into()));
            }
        }
        Ok(())
    }

    /// The longest time without an answer of one of these partitions that ends behind `fault`, in a round of
    /// this length. A partition that answers no more has a gap until the round's end. None: there are none.
    pub fn longest_gap(
        &self,
        of: impl Fn(PartitionId) -> bool,
        (fault, length): (Duration, Duration),
    ) -> Option<Duration> {
        let watched = self.watched.iter().filter(|watched| of(watched.partition));
        watched.map(|watched| longest(&watched.ended, (fault, length))).max()
    }

    /// How long after `fault` the last of these partitions has answered what was asked behind it.
    pub fn all_back(&self, of: impl Fn(PartitionId) -> bool, fault: Duration) -> Option<Duration> {
        let watched = self.watched.iter().filter(|watched| of(watched.partition));
        let first = |watched: &Watched| {
            let after = watched.ended.iter().find(|(_, began)| *began >= fault);
            after.map(|(ended, _)| *ended - fault)
        };
        let firsts: Vec<Option<Duration>> = watched.map(first).collect();
        firsts.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

/// The longest time between two answers, the second of which came behind `fault`. The round's beginning and
/// its end count as answers: who is silent from some time on has a gap that nothing else ends.
fn longest(ended: &[(Duration, Duration)], (fault, length): (Duration, Duration)) -> Duration {
    let last = ended.last().map_or(length, |(last, _)| length.max(*last));
    let ends: Vec<Duration> =
        [Duration::ZERO].into_iter().chain(ended.iter().map(|(end, _)| *end)).chain([last]).collect();
    let behind = ends.windows(2).filter(|pair| pair[1] >= fault);
    behind.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_gap_counts_if_it_ends_behind_the_fault() {
        let ended: Vec<_> = [10, 100, 110, 150, 155].map(|end| (ms(end), ms(end - 1))).into();
        let of = |ended: &[_], fault, length| longest(ended, (ms(fault), ms(length)));
        assert_eq!((of(&ended, 105, 160), of(&ended, 50, 160)), (ms(40), ms(90)));
        assert_eq!((of(&ended[..1], 0, 10), of(&ended[..1], 11, 12)), (ms(10), ms(2)));
        assert_eq!(of(&ended, 105, 155), ms(40), "the last answer may come at the end, or behind it");
        assert_eq!(of(&ended, 105, 100), ms(40));
    }

    #[test]
    fn who_answers_no_more_has_a_gap_until_the_end() {
        let ended: Vec<_> = [10, 20, 30].map(|end| (ms(end), ms(end - 1))).into();
        assert_eq!(longest(&ended, (ms(35), ms(900))), ms(870));
        assert_eq!(longest(&[], (ms(35), ms(900))), ms(900), "nor was it ever heard");
        let watched =
            Watched { partition: PartitionId(64), row: 0, next: None, began: Instant::now(), ended };
        let watch = Watch { watched: vec![watched], over: false };
        assert_eq!(watch.longest_gap(|_| true, (ms(35), ms(900))), Some(ms(870)));
        assert_eq!(watch.longest_gap(|_| false, (ms(35), ms(900))), None);
    }

    #[test]
    fn a_partition_is_back_with_an_answer_to_what_was_asked_behind_the_fault() {
        let watched = |partition, ended: &[(u64, u64)]| Watched {
            partition: PartitionId(partition),
            row: 0,
            next: None,
            began: Instant::now(),
            ended: ended.iter().map(|(end, began)| (ms(*end), ms(*began))).collect(),
        };
        let watched = vec![watched(64, &[(50, 40), (300, 90), (320, 310)]), watched(65, &[(110, 105)])];
        let watch = Watch { watched, over: false };
        assert_eq!(watch.all_back(|_| true, ms(100)), Some(ms(220)));
        assert_eq!(watch.all_back(|partition| partition == PartitionId(65), ms(100)), Some(ms(10)));
        assert_eq!(watch.all_back(|_| true, ms(315)), None, "one has not answered");
    }
}
