//! How long a failover takes: by data size and memory component, with the node dying right at the end of
//! ingestion (figure 5.4), and by checkpoint interval (figure 5.6).
//!
//! A node is killed; while its partitions find new primaries, one write to each of them waits, and the
//! partitions that others lead are read every two milliseconds, to see whether replay keeps them from
//! serving.

use super::point::{Goal, Shape};
use super::stage::{BenchCluster, ingest};
use super::users::Users;
use super::{LARGE, Memory, NODES, Point, Run, SMALL, bytes_in_words, records_in_words};
use crate::cluster::WAIT_LIMIT;
use crate::error::BenchError;
use crate::stats::median;
use client::{Client, Completed, LaneId, Outcome, Table};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use types::data::Value;
use types::policy::Standby;
use types::{FailoverRecord, NodeId, PartitionId};
use wire::control::{AdminCommand, ClusterStatus};

const COLUMNS: &[(&str, &str)] = &[
    ("standby", "standby"),
    ("from_fault_ms", "from fault ms"),
    ("detect_ms", "detect"),
    ("seal_ms", "seal"),
    ("replay_ms", "replay"),
    ("estimated_replay_ms", "estimate"),
    ("first_write_ms", "first write ms"),
    ("replay_bytes", "to replay B"),
    ("log_bytes_of_node", "log B/node"),
    ("new_primaries", "new primaries"),
    ("others_longest_ms", "others' longest ms"),
];

/// Figure 5.4.
pub(super) const BY_SIZE: Shape = Shape {
    name: "failover",
    title: "failover from detection, node lost at the end of ingestion, factor 3 (figure 5.4)",
    across: "records",
    unit: "milliseconds",
    columns: COLUMNS,
};

/// Figure 5.6.
pub(super) const BY_CHECKPOINT: Shape = Shape {
    name: "failover-by-checkpoint",
    title: "failover from detection, after checkpoints, factor 3 (figure 5.6)",
    across: "checkpoint after",
    unit: "milliseconds",
    columns: COLUMNS,
};

/// Replay of a cold standby with 100 MB of log on each node, and of a hot one, milliseconds.
const COLD_GOAL: f64 = 500.0;
const HOT_GOAL: f64 = 20.0;
/// The log of a node for which the goal is set.
const LOG_BUDGET: f64 = 100e6;

/// Lanes of the waiting writes begin here, lanes of reads beside them at zero.
const WRITES: u32 = 1_000;
/// Between two reads of a partition.
const WRITE_INTERVAL: Duration = Duration::from_millis(2);

/// What is to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Case {
    records: u64,
    /// `None`: nothing is ever made a file.
    memory: Option<Memory>,
    standby: Standby,
    /// Ingestion goes on.
    load: bool,
    /// Components are made and shipped before the fault.
    settled: bool,
}

impl Case {
    fn memory_in_words(&self) -> String {
        match self.memory {
            Some(memory) => format!("{} memory", bytes_in_words(memory.of_node)),
            None => "no flush".into(),
        }
    }
}

/// What a failover was.
#[derive(Clone, Debug, Default)]
struct Failed {
    from_detection_ms: f64,
    from_fault_ms: f64,
    detect_ms: f64,
    seal_ms: f64,
    replay_ms: Vec<f64>,
    serve_ms: f64,
    first_write_ms: f64,
    others_longest_ms: f64,
    others_reads: u64,
    replay_bytes: f64,
    log_bytes_of_node: f64,
    estimated_ms: Option<f64>,
    new_primaries: usize,
    partitions: usize,
}

impl Failed {
    fn replay_longest_ms(&self) -> f64 {
        self.replay_ms.iter().copied().fold(0.0, f64::max)
    }
}

/// Who will be killed, and what depends on it.
pub(super) struct Victim {
    pub node: NodeId,
    pub led: Vec<PartitionId>,
    /// For each partition of the table a record that lies there.
    records: BTreeMap<PartitionId, u64>,
}

impl Victim {
    pub fn choose(stage: &mut BenchCluster, table: &Table, users: &Users) -> Result<Victim, BenchError> {
        let (node, led) = stage.busiest(table)?;
        let mut records = BTreeMap::new();
        for id in 0.. {
            records.entry(table.partition_of(users.put(id).key())?).or_insert(id);
            if records.len() == table.partitions().count() {
                break;
            }
        }
        Ok(Victim { node, led, records })
    }

    /// What it leads now: under load partitions may have found another primary since it was chosen.
    pub fn look_again(&mut self, status: &ClusterStatus, table: &Table) -> Result<(), BenchError> {
        let ours = status.partitions.iter().filter(|record| record.table == table.id());
        self.led = ours.filter(|record| record.primary.node == self.node).map(|record| record.id).collect();
        match self.led.is_empty() {
            true => Err(BenchError::Wrong("the node to be lost leads nothing any more".into())),
            false => Ok(()),
        }
    }
}

pub(super) fn wall_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64() * 1_000.0)
}

/// What one round of a case is: a cluster of its own, ingestion, the fault, and the records that tell of it.
fn fail(run: &mut Run, case: Case) -> Result<Failed, BenchError> {
    run.options.common.goes_on()?;
    let (common, target) = (&run.options.common, &run.options.target);
    let memory = case.memory.map(|memory| memory.of_partition);
    let mut stage = BenchCluster::start(common, target, NODES, memory, &[])?;
    let table = stage.table(3, run.options.partitions, case.standby)?;
    stage.copies(&table, 3, Duration::from_secs(10))?;
    let mut victim = Victim::choose(&mut stage, &table, &run.users)?;
    ingest(&mut stage.client, &table, &run.users, 0..case.records)?;
    if case.settled {
        stage.settle()?;
    }
    let status = stage.last_status()?;
    victim.look_again(&status, &table)?;
    let estimate = estimate(&stage, &table, &status);
    let mut failed = Failed { estimated_ms: estimate, ..Failed::default() };
    measure_logs(&mut failed, &status, &victim, &table, &case);
    match case.load {
        false => kill_and_watch(&mut stage, &table, &run.users, &victim, &mut failed)?,
        true => {
            let mut writer = stage.another_client()?;
            let over = AtomicBool::new(false);
            let (users, written) = (&run.users, table.clone());
            std::thread::scope(|scope| {
                let over = &over;
                let writing = scope.spawn(move || -> Result<(), BenchError> {
                    let mut next = case.records;
                    while !over.load(Ordering::Relaxed) {
                        ingest(&mut writer, &written, users, next..next + 1_000)?;
                        next += 1_000;
                    }
                    Ok(())
                });
                let watched = kill_and_watch(&mut stage, &table, users, &victim, &mut failed);
                over.store(true, Ordering::Relaxed);
                watched.and(writing.join().expect("the writer does not panic"))
            })?;
        }
    }
    let counted = stage.client.count(&table)?;
    if counted < case.records || (!case.load && counted > case.records) {
        return Err(BenchError::Wrong(format!(
            "{counted} records are there after the failover of {}",
            case.records
        )));
    }
    Ok(failed)
}

/// What `understudy status` says that a failover would replay.
fn estimate(stage: &BenchCluster, table: &Table, status: &ClusterStatus) -> Option<f64> {
    let seen = client::view::overview::overview(stage.client.cluster_map(), status);
    let line = seen.tables.iter().find(|line| line.table == table.name())?;
    line.replay_ms.map(|ms| ms as f64)
}

/// What lies above the files of the backups, of what the victim leads, and the longest log, as the last
/// status has it.
fn measure_logs(failed: &mut Failed, status: &ClusterStatus, victim: &Victim, table: &Table, case: &Case) {
    let log = status.nodes.iter().map(|(node, _)| node.log_bytes).max().unwrap_or(0);
    failed.log_bytes_of_node = log as f64;
    // All records are of one size, so entries of a partition are shares of its records.
    let of_partition =
        (case.records * super::users::RECORD_BYTES) as f64 / table.partitions().count().max(1) as f64;
    let lost = status.nodes.iter().map(|(node, _)| node).filter(|node| node.member.node == victim.node);
    for replica in lost.flat_map(|node| &node.replicas) {
        let end = replica.end.lsn.0;
        let there = replica.members.iter().map(|(_, marks, ..)| match case.standby {
            Standby::Hot => marks.applied.0,
            Standby::Cold => marks.persisted.0,
        });
        if let Some(there) = there.min().filter(|_| victim.led.contains(&replica.partition)) {
            failed.replay_bytes += end.saturating_sub(there) as f64 / end.max(1) as f64 * of_partition;
        }
    }
}

/// Kills the victim, watches writes to its partitions and reads of the others, and reads the records of the
/// failovers.
fn kill_and_watch(
    stage: &mut BenchCluster,
    table: &Table,
    users: &Users,
    victim: &Victim,
    failed: &mut Failed,
) -> Result<(), BenchError> {
    let mut watch = Watch::new(table, users, victim)?;
    // Connections and sessions are there before the fault.
    watch.read_all(&mut stage.client)?;
    watch.longest = Duration::ZERO;
    let (fault, fault_ms) = (Instant::now(), wall_ms());
    stage.cluster.kill(victim.node)?;
    watch.writes(&mut stage.client)?;
    watch.run(&mut stage.client)?;
    failed.first_write_ms = (watch.written - fault).as_secs_f64() * 1_000.0;
    failed.others_longest_ms = watch.longest.as_secs_f64() * 1_000.0;
    failed.others_reads = watch.reads;
    let records = records_of(stage, victim, fault_ms)?;
    let latest = |of: fn(&FailoverRecord) -> u64| records.iter().map(of).max().unwrap_or(0) as f64;
    let suspected = records.iter().map(|record| record.suspected_ms).min().unwrap_or(0) as f64;
    let serving = latest(|record| record.serving_ms.unwrap_or(0));
    failed.from_fault_ms = serving - fault_ms;
    failed.from_detection_ms = serving - suspected;
    failed.detect_ms = suspected - fault_ms;
    let longest = |part: fn(&FailoverRecord) -> u64| records.iter().map(part).max().unwrap_or(0) as f64;
    failed.seal_ms = longest(|record| record.sealed_ms.saturating_sub(record.suspected_ms));
    failed.serve_ms =
        longest(|record| record.serving_ms.unwrap_or(0).saturating_sub(record.reconciled_ms.unwrap_or(0)));
    failed.replay_ms = records
        .iter()
        .map(|record| record.reconciled_ms.unwrap_or(0).saturating_sub(record.sealed_ms) as f64)
        .collect();
    failed.new_primaries =
        records.iter().map(|record| record.new_primary.node).collect::<BTreeSet<_>>().len();
    failed.partitions = records.len();
    Ok(())
}

/// The newest record of every partition that the victim led, once all of them serve. What was suspected more
/// than a second before the fault, in milliseconds since 1970, was another failover.
pub(super) fn records_of(
    stage: &mut BenchCluster,
    victim: &Victim,
    fault_ms: f64,
) -> Result<Vec<FailoverRecord>, BenchError> {
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let text = stage.client.admin(AdminCommand::Failovers)?;
        let all: Vec<FailoverRecord> = serde_json::from_str(&text)
            .map_err(|error| BenchError::Wrong(format!("the failovers cannot be read: {error}")))?;
        let newest = all.into_iter().filter(|record| {
            let of_victim = victim.led.contains(&record.partition) && record.old_primary.node == victim.node;
            of_victim && record.suspected_ms as f64 + 1_000.0 > fault_ms
        });
        let newest: BTreeMap<PartitionId, FailoverRecord> =
            newest.map(|record| (record.partition, record)).collect();
        let all_serve = newest.values().all(|record| record.serving_ms.is_some());
        if newest.len() == victim.led.len() && all_serve {
            return Ok(newest.into_values().collect());
        }
        if Instant::now() >= deadline {
            return Err(BenchError::Wrong(format!(
                "{} of {} partitions reported their failover",
                newest.len(),
                victim.led.len()
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Writes that wait for the victim's partitions, and reads of all others meanwhile.
struct Watch<'a> {
    table: &'a Table,
    users: &'a Users,
    affected: Vec<u64>,
    others: Vec<u64>,
    /// For each of the others: when it is to be read next, if no read is on its way.
    next: Vec<Option<Instant>>,
    open: usize,
    written: Instant,
    longest: Duration,
    reads: u64,
}

impl<'a> Watch<'a> {
    fn new(table: &'a Table, users: &'a Users, victim: &Victim) -> Result<Watch<'a>, BenchError> {
        let of = |affected: bool| -> Vec<u64> {
            let records = victim.records.iter();
            let wanted = records.filter(|(partition, _)| victim.led.contains(partition) == affected);
            wanted.map(|(_, record)| *record).collect()
        };
        let (affected, others) = (of(true), of(false));
        let next = vec![Some(Instant::now()); others.len()];
        let (open, written) = (affected.len(), Instant::now());
        Ok(Watch { table, users, affected, others, next, open, written, longest: Duration::ZERO, reads: 0 })
    }

    fn get(&self, id: u64) -> Result<client::Call, BenchError> {
        Ok(self.table.get(&[Value::Int(id as i64)])?)
    }

    /// Reads one record of every partition, and waits.
    fn read_all(&self, client: &mut Client) -> Result<(), BenchError> {
        let ids = self.affected.iter().chain(&self.others);
        let calls = ids.map(|id| self.get(*id)).collect::<Result<Vec<_>, _>>()?;
        client.all(calls)?;
        Ok(())
    }

    /// Sends a write to each partition that lost its primary.
    fn writes(&mut self, client: &mut Client) -> Result<(), BenchError> {
        for (lane, id) in (WRITES..).zip(&self.affected) {
            let op = self.users.put(*id);
            let partition = self.table.partition_of(op.key())?;
            client.submit(LaneId(lane), self.table.write(partition, vec![op]));
        }
        Ok(())
    }

    /// Until every write was acknowledged.
    fn run(&mut self, client: &mut Client) -> Result<(), BenchError> {
        let deadline = Instant::now() + WAIT_LIMIT;
        while self.open > 0 {
            let now = Instant::now();
            if now >= deadline {
                return Err(BenchError::Wrong(
                    "a partition took no write for 30 seconds after a fault".into(),
                ));
            }
            for at in 0..self.others.len() {
                if self.next[at].is_some_and(|next| next <= now) {
                    self.next[at] = None;
                    client.submit(LaneId(at as u32), self.get(self.others[at])?);
                }
            }
            for completed in client.poll(WRITE_INTERVAL)? {
                self.take(&completed)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, completed: &Completed) -> Result<(), BenchError> {
        if !matches!(completed.outcome, Outcome::Ok(_)) {
            let what = if completed.lane.0 >= WRITES { "write" } else { "read" };
            return Err(BenchError::Wrong(format!(
                "a {what} beside a failover ended with {:?}",
                completed.outcome
            )));
        }
        if completed.lane.0 >= WRITES {
            self.open -= 1;
            self.written = Instant::now();
        } else {
            self.reads += 1;
            self.longest = self.longest.max(Duration::from_micros(completed.latency_us));
            self.next[completed.lane.0 as usize] = Some(Instant::now() + WRITE_INTERVAL);
        }
        Ok(())
    }
}

/// All rounds of a case as a point.
fn told(run: &Run, shape: &Shape, at: String, series: String, case: Case, rounds: &[Failed]) -> Point {
    let middle = |of: fn(&Failed) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let detection: Vec<f64> = rounds.iter().map(|failed| failed.from_detection_ms).collect();
    let replays: Vec<&Vec<f64>> = rounds.iter().map(|failed| &failed.replay_ms).collect();
    let estimates: Option<Vec<f64>> = rounds.iter().map(|failed| failed.estimated_ms).collect();
    let estimate = estimates.and_then(|estimates| median(&estimates));
    let figures = json!({
        "records": case.records,
        "data_bytes": case.records * super::users::RECORD_BYTES,
        "standby": case.standby,
        "memory_bytes_per_node": case.memory.map(|memory| memory.of_node),
        "load": case.load,
        "partitions": run.options.partitions,
        "failed_over": rounds.iter().map(|failed| failed.partitions).max(),
        "from_detection_ms": middle(|failed| failed.from_detection_ms),
        "from_fault_ms": middle(|failed| failed.from_fault_ms),
        "detect_ms": middle(|failed| failed.detect_ms),
        "seal_ms": middle(|failed| failed.seal_ms),
        "replay_ms": middle(Failed::replay_longest_ms),
        "replay_ms_by_partition": replays,
        "estimated_replay_ms": estimate,
        "serve_ms": middle(|failed| failed.serve_ms),
        "first_write_ms": middle(|failed| failed.first_write_ms),
        "replay_bytes": middle(|failed| failed.replay_bytes),
        "log_bytes_of_node": middle(|failed| failed.log_bytes_of_node),
        "new_primaries": rounds.iter().map(|failed| failed.new_primaries).min(),
        "others_longest_ms": middle(|failed| failed.others_longest_ms),
        "others_reads": middle(|failed| failed.others_reads as f64),
    });
    run.point(shape, at, series, &detection, figures)
}

fn rounds(run: &mut Run, case: Case) -> Result<Vec<Failed>, BenchError> {
    let mut all = Vec::new();
    for _ in 0..run.options.rounds(case.records) {
        let failed = fail(run, case)?;
        run.say(&format!(
            "  {} records, {}, {}{}: {:.0} ms from detection, {:.0} of it replay; first write after {:.0} ms",
            records_in_words(case.records),
            case.memory_in_words(),
            if case.standby == Standby::Hot { "hot" } else { "cold" },
            if case.load { ", under load" } else { "" },
            failed.from_detection_ms,
            failed.replay_longest_ms(),
            failed.first_write_ms,
        ));
        all.push(failed);
    }
    Ok(all)
}

/// `failover`: by data size and memory component, cold; hot, without any flush and under load at the largest
/// size.
pub(super) fn by_size(run: &mut Run) -> Result<(), BenchError> {
    let sizes = run.options.data_sets();
    let case = |records, memory, standby, load| Case { records, memory, standby, load, settled: false };
    let (large, small) = (run.options.memory(LARGE), run.options.memory(SMALL));
    let mut cases = Vec::new();
    for records in &sizes {
        for memory in [large, small] {
            cases.push(case(*records, Some(memory), Standby::Cold, false));
        }
    }
    let largest = run.options.records;
    cases.push(case(largest, None, Standby::Cold, false));
    cases.push(case(largest, None, Standby::Hot, false));
    cases.push(case(largest, None, Standby::Cold, true));
    for case in cases {
        let failed = rounds(run, case)?;
        let mut series = case.memory_in_words();
        series.push_str(if case.standby == Standby::Hot { ", hot" } else { "" });
        series.push_str(if case.load { ", under load" } else { "" });
        let mut point = told(run, &BY_SIZE, records_in_words(case.records), series, case, &failed);
        let replay = point.figure("replay_ms").unwrap_or(0.0);
        if case.memory.is_none() && !case.load {
            point.goals.push(match case.standby {
                Standby::Hot => Goal::at_most("replay of hot standbys, ms", replay, HOT_GOAL),
                Standby::Cold => {
                    // For other sizes of the log the goal is in proportion.
                    let log = point.figure("log_bytes_of_node").unwrap_or(LOG_BUDGET);
                    let what = "replay of cold standbys, ms per 100 MB of log on each node";
                    Goal::at_most(what, replay * LOG_BUDGET / log.max(1.0), COLD_GOAL)
                }
            });
        }
        run.done(point);
    }
    run.finish(&BY_SIZE)
}

/// `failover-by-checkpoint`: a long interval, a tenth of it, and none; components are made and shipped before
/// the fault.
pub(super) fn by_checkpoint(run: &mut Run) -> Result<(), BenchError> {
    let records = run.options.records;
    let memories = [Some(run.options.memory(LARGE)), Some(run.options.memory(SMALL)), None];
    for memory in memories {
        let standby = run.options.standby;
        let case = Case { records, memory, standby, load: false, settled: true };
        let failed = rounds(run, case)?;
        let at = memory.map_or("never".to_string(), |memory| {
            format!("{} of log per partition", bytes_in_words(memory.of_partition))
        });
        let series = format!("{} records", records_in_words(records));
        let point = told(run, &BY_CHECKPOINT, at, series, case, &failed);
        run.done(point);
    }
    run.finish(&BY_CHECKPOINT)
}
