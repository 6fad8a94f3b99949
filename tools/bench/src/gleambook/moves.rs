//! What writers notice of copies that move: one writer for each partition, while copies move to the node that
//! has none, one after the other, the primary's in turn with a backup's.

use super::point::{Goal, Shape};
use super::stage::{BenchCluster, ingest};
use super::users::Users;
use super::{LARGE, NODES, Run, records_in_words};
use crate::cluster::WAIT_LIMIT;
use crate::error::BenchError;
use crate::stats::median;
use client::{Client, LaneId, Outcome, Table};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use types::random::Random;
use types::{NodeId, PartitionId, PartitionRecord};
use wire::control::{AdminCommand, ClusterStatus};

/// The document moves no copies; this is a figure of ours.
pub(super) const MOVES: Shape = Shape {
    name: "moves",
    title: "the longest gap that a partition's writer sees while a copy of it moves",
    across: "records",
    unit: "milliseconds",
    columns: &[
        ("moves", "moves"),
        ("p99_ms", "p99 ms"),
        ("max_ms", "max ms"),
        ("primary_median_ms", "primaries' ms"),
        ("backup_median_ms", "backups' ms"),
        ("move_s", "s per move"),
        ("moved_mb_per_s", "MB/s moved"),
        ("writes_per_s", "writes/s"),
        ("writes_per_s_moving", "while moving"),
    ],
};

/// The longest gap, median of all moves, milliseconds.
const GAP_GOAL: f64 = 50.0;
/// What of the writes without moves should be left while copies move.
const SHARE_GOAL: f64 = 0.8;
/// Between two moves: writes without a move are counted then.
const REST: Duration = Duration::from_millis(700);
/// A copy that moved is looked for so often.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// One move.
#[derive(Clone, Copy, Debug)]
struct Moved {
    partition: PartitionId,
    /// The copy was the primary's.
    led: bool,
    from: Instant,
    to: Instant,
}

/// When writes of each partition were acknowledged.
struct Writes {
    partitions: Vec<PartitionId>,
    at: Vec<Vec<Instant>>,
}

impl Writes {
    /// The longest time without an acknowledgement that lies in these bounds, in part at least.
    fn longest_gap(&self, moved: &Moved) -> Option<Duration> {
        let at = &self.at[self.partitions.iter().position(|partition| *partition == moved.partition)?];
        let first = at.partition_point(|when| *when < moved.from).saturating_sub(1);
        let last = (at.partition_point(|when| *when <= moved.to) + 1).min(at.len());
        at[first..last].windows(2).map(|pair| pair[1] - pair[0]).max()
    }

    fn between(&self, from: Instant, to: Instant) -> u64 {
        let of = |at: &Vec<Instant>| {
            at.partition_point(|when| *when <= to) - at.partition_point(|when| *when < from)
        };
        self.at.iter().map(|at| of(at) as u64).sum()
    }
}

fn status(client: &mut Client) -> Result<ClusterStatus, BenchError> {
    let text = client.admin(AdminCommand::Status)?;
    serde_json::from_str(&text)
        .map_err(|error| BenchError::Wrong(format!("the cluster's status cannot be read: {error}")))
}

fn record(client: &mut Client, partition: PartitionId) -> Result<PartitionRecord, BenchError> {
    let found = status(client)?.partitions.into_iter().find(|record| record.id == partition);
    found.ok_or_else(|| BenchError::Wrong(format!("partition {partition} is gone")))
}

/// Moves copies, one after the other.
fn move_all(client: &mut Client, table: &Table, nodes: u32, moves: u32) -> Result<Vec<Moved>, BenchError> {
    let partitions: Vec<PartitionId> = table.partitions().collect();
    let mut all = Vec::new();
    for number in 0..moves as usize {
        std::thread::sleep(REST);
        let partition = partitions[number % partitions.len()];
        let before = record(client, partition)?;
        let led = (number / partitions.len()).is_multiple_of(2);
        let leaves = if led {
            before.primary.node
        } else {
            let backup = before.in_sync.iter().find(|member| member.node != before.primary.node);
            backup.ok_or_else(|| BenchError::Wrong("a partition lost its backups".into()))?.node
        };
        let free = (1..=nodes).map(NodeId).find(|node| before.member_on(*node).is_none());
        let free = free.ok_or_else(|| BenchError::Wrong("no node is without a copy".into()))?;
        let from = Instant::now();
        client.admin(AdminCommand::Move { partition, from: leaves, to: free })?;
        loop {
            let now = record(client, partition)?;
            let there = now.in_sync.iter().any(|member| member.node == free);
            if there && now.member_on(leaves).is_none() && now.catching_up.is_empty() {
                break;
            }
            if from.elapsed() > WAIT_LIMIT {
                return Err(BenchError::Wrong(format!("partition {partition} has not moved in 30 seconds")));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        all.push(Moved { partition, led, from, to: Instant::now() });
    }
    std::thread::sleep(REST);
    Ok(all)
}

/// One writer for each partition, each waiting for its answer, until it is over.
fn write_all(
    client: &mut Client,
    table: &Table,
    users: &Users,
    records: u64,
    seed: u64,
    over: &AtomicBool,
) -> Result<Writes, BenchError> {
    let partitions: Vec<PartitionId> = table.partitions().collect();
    let mut random = Random::new(seed);
    let mut call = |lane: usize| loop {
        let op = users.put(random.below(records));
        if table.partition_of(op.key())? == partitions[lane] {
            return Ok::<_, BenchError>(table.write(partitions[lane], vec![op]));
        }
    };
    for lane in 0..partitions.len() {
        client.submit(LaneId(lane as u32), call(lane)?);
    }
    let mut at = vec![Vec::new(); partitions.len()];
    let mut open = partitions.len();
    while open > 0 {
        let completed = client.poll(WAIT_LIMIT)?;
        if completed.is_empty() {
            return Err(BenchError::Wrong("no answer within thirty seconds beside moves".into()));
        }
        for completed in completed {
            if !matches!(completed.outcome, Outcome::Ok(_)) {
                return Err(BenchError::Wrong(format!(
                    "a write beside moves ended with {:?}",
                    completed.outcome
                )));
            }
            let lane = completed.lane.0 as usize;
            at[lane].push(Instant::now());
            match over.load(Ordering::Relaxed) {
                true => open -= 1,
                false => {
                    client.submit(LaneId(lane as u32), call(lane)?);
                }
            }
        }
    }
    Ok(Writes { partitions, at })
}

/// `moves`: on a cluster with one node more than there are copies.
pub(super) fn moves(run: &mut Run) -> Result<(), BenchError> {
    run.options.common.goes_on()?;
    let nodes = NODES + 1;
    let memory = run.options.memory(LARGE);
    let (common, target) = (&run.options.common, &run.options.target);
    // A primary's copy moves when its successor leads, and that is balanced.
    let settings = [("controller.balance_after_ms", "200")];
    let mut stage = BenchCluster::start(common, target, nodes, Some(memory.of_partition), &settings)?;
    let table = stage.table(3, run.options.partitions, run.options.standby)?;
    stage.copies(&table, 3, Duration::from_secs(10))?;
    let records = run.options.records;
    ingest(&mut stage.client, &table, &run.users, 0..records)?;
    stage.settle()?;
    let before = stage.counts()?;
    let mut mover = stage.another_client()?;
    let (over, count) = (AtomicBool::new(false), run.options.moves);
    let (users, seed) = (&run.users, common.seed);
    let (moved, writes) = std::thread::scope(|scope| {
        let (over, table) = (&over, &table);
        let moving = scope.spawn(move || {
            let moved = move_all(&mut mover, table, nodes, count);
            over.store(true, Ordering::Relaxed);
            moved
        });
        let writes = write_all(&mut stage.client, table, users, records, seed, over);
        let moved = moving.join().expect("the mover does not panic");
        Ok::<_, BenchError>((moved?, writes?))
    })?;
    let cost = stage.counts()?.since(before);
    stage.drop_table(&table)?;
    let point = told(run, &moved, &writes, cost.files)?;
    run.done(point);
    run.finish(&MOVES)
}

fn told(run: &Run, moved: &[Moved], writes: &Writes, shipped: u64) -> Result<super::Point, BenchError> {
    let gap = |moved: &Moved| writes.longest_gap(moved).map(|gap| gap.as_secs_f64() * 1_000.0);
    let gaps: Vec<f64> = moved.iter().filter_map(gap).collect();
    if gaps.len() != moved.len() || gaps.is_empty() {
        return Err(BenchError::Wrong("a writer had no answer beside a move".into()));
    }
    let of =
        |led: bool| median(&moved.iter().filter(|one| one.led == led).filter_map(gap).collect::<Vec<_>>());
    let mut sorted = gaps.clone();
    sorted.sort_by(f64::total_cmp);
    let p99 = sorted[((sorted.len() - 1) as f64 * 0.99).round() as usize];
    let moving: f64 = moved.iter().map(|one| (one.to - one.from).as_secs_f64()).sum();
    let while_moving: u64 = moved.iter().map(|one| writes.between(one.from, one.to)).sum();
    // Between the end of one move and the beginning of the next.
    let rests = moved.windows(2).map(|pair| (pair[0].to, pair[1].from));
    let (at_rest, resting) = rests.fold((0, 0.0), |(count, seconds), (from, to)| {
        (count + writes.between(from, to), seconds + (to - from).as_secs_f64())
    });
    let rate = while_moving as f64 / moving;
    let rest_rate = if resting > 0.0 { at_rest as f64 / resting } else { f64::NAN };
    let figures = json!({
        "records": run.options.records,
        "standby": run.options.standby,
        "partitions": run.options.partitions,
        "moves": moved.len(),
        "p99_ms": p99,
        "max_ms": sorted[sorted.len() - 1],
        "primary_median_ms": of(true),
        "backup_median_ms": of(false),
        "move_s": moving / moved.len() as f64,
        "moved_mb_per_s": shipped as f64 / 1e6 / moving,
        "writes_per_s": rest_rate,
        "writes_per_s_moving": rate,
        "share": rate / rest_rate,
    });
    let at = records_in_words(run.options.records);
    let mut point = run.point(&MOVES, at, "longest gap of a move".into(), &gaps, figures);
    let middle = median(&gaps).unwrap_or(0.0);
    point.goals.push(Goal::at_most("longest gap of a move, median ms", middle, GAP_GOAL));
    if rest_rate > 0.0 {
        let what = "writes while copies move, over those without";
        point.goals.push(Goal::at_least(what, rate / rest_rate, SHARE_GOAL));
    }
    Ok(point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_of_a_move_is_the_one_around_its_writes() {
        let zero = Instant::now();
        let at = |ms: u64| zero + Duration::from_millis(ms);
        let partitions = vec![PartitionId(64), PartitionId(65)];
        let of = |times: &[u64]| times.iter().map(|ms| at(*ms)).collect::<Vec<_>>();
        let writes =
            Writes { partitions, at: vec![of(&[0, 10, 500, 510, 570, 580]), of(&[0, 100, 200, 300])] };
        let moved = |partition, from, to| Moved { partition, led: true, from: at(from), to: at(to) };
        // What lies before and behind the move does not count; what reaches into it does.
        let gap = |moved: Moved| writes.longest_gap(&moved);
        assert_eq!(gap(moved(PartitionId(64), 505, 575)), Some(Duration::from_millis(60)));
        assert_eq!(gap(moved(PartitionId(64), 20, 30)), Some(Duration::from_millis(490)));
        assert_eq!(gap(moved(PartitionId(65), 505, 575)), None);
        assert_eq!(gap(moved(PartitionId(66), 505, 575)), None);
        assert_eq!(writes.between(at(100), at(510)), 2 + 3);
    }
}
