//! How long a node that was lost takes to come back into its sets, and what it is sent: a full copy, as the
//! document does it, against what it lacks (figure 5.7, and the delta that the document leaves to the
//! future).
//!
//! While the node is away a hundredth of the records is written again, in the order of their keys or at
//! random.

use super::failover::{Victim, records_of, wall_ms};
use super::point::{Goal, Shape};
use super::stage::{BenchCluster, Counts, ingest};
use super::{LARGE, Memory, NODES, Point, Run, SMALL, bytes_in_words, records_in_words};
use crate::error::BenchError;
use crate::stats::median;
use client::Table;
use serde_json::json;
use std::time::{Duration, Instant};
use types::NodeId;
use types::random::Random;

/// Figure 5.7.
pub(super) const FAILBACK: Shape = Shape {
    name: "failback",
    title: "failback, full copy against delta, factor 3 (figure 5.7)",
    across: "records",
    unit: "seconds",
    columns: &[
        ("lead_back_s", "lead back s"),
        ("shipped_bytes", "shipped B"),
        ("log_bytes", "log B"),
        ("in_sync_bytes", "until in sync B"),
        ("cpu_ms", "CPU ms"),
        ("missed_records", "missed records"),
    ],
};

/// What of the records is written while the node is away.
const MISSED: u64 = 100;
/// The most bytes of a delta, in those of a full copy: updates in order, and random ones.
const IN_ORDER_GOAL: f64 = 0.05;
const RANDOM_GOAL: f64 = 0.25;
/// How long a node may take to come back.
const RETURNS: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Case {
    records: u64,
    memory: Memory,
    full: bool,
    random: bool,
}

impl Case {
    fn in_words(&self) -> String {
        let how = match (self.full, self.random) {
            (true, _) => "full",
            (false, false) => "delta in order",
            (false, true) => "delta random",
        };
        format!("{how}, {} memory", bytes_in_words(self.memory.of_node))
    }

    fn missed(&self) -> u64 {
        self.records.div_ceil(MISSED)
    }
}

/// How one failback went.
#[derive(Clone, Copy, Debug)]
struct Back {
    in_sync: Duration,
    lead_back: Duration,
    /// What it cost until all copies were in sync.
    until_in_sync: Counts,
    /// The same with the lead's return, for which cold standbys are flushed (PR-44), and until all is quiet.
    cost: Counts,
}

fn fail_back(run: &mut Run, case: Case) -> Result<Back, BenchError> {
    run.options.common.goes_on()?;
    let (common, target) = (&run.options.common, &run.options.target);
    let settings =
        [("failback.full", if case.full { "true" } else { "false" }), ("controller.balance_after_ms", "200")];
    let mut stage = BenchCluster::start(common, target, NODES, Some(case.memory.of_partition), &settings)?;
    let table = stage.table(3, run.options.partitions, run.options.standby)?;
    stage.copies(&table, 3, Duration::from_secs(10))?;
    let mut victim = Victim::choose(&mut stage, &table, &run.users)?;
    ingest(&mut stage.client, &table, &run.users, 0..case.records)?;
    stage.settle()?;
    victim.look_again(&stage.last_status()?, &table)?;
    let fault_ms = wall_ms();
    stage.cluster.kill(victim.node)?;
    records_of(&mut stage, &victim, fault_ms)?;
    let mut random = Random::new(common.seed);
    let missed = case.missed();
    match case.random {
        false => ingest(&mut stage.client, &table, &run.users, 0..missed)?,
        true => {
            let ids = (0..missed).map(|_| random.below(case.records));
            ingest(&mut stage.client, &table, &run.users, ids)?
        }
    };
    stage.settle_without(Some(victim.node))?;
    let before = stage.counts_without(Some(victim.node))?;
    let begun = Instant::now();
    stage.cluster.restart(victim.node)?;
    if stage.copies(&table, 3, RETURNS)? < 3 {
        return Err(BenchError::Wrong("a node was not back in its sets after ten minutes".into()));
    }
    let in_sync = begun.elapsed();
    let until_in_sync = stage.counts()?.since(before);
    let lead_back = lead_back(&mut stage, &table, &victim, begun)?;
    stage.settle()?;
    let cost = stage.counts()?.since(before);
    let counted = stage.client.count(&table)?;
    if counted != case.records {
        return Err(BenchError::Wrong(format!("{counted} records are there of {}", case.records)));
    }
    Ok(Back { in_sync, lead_back, until_in_sync, cost })
}

/// Waits until the node leads again what it led.
fn lead_back(
    stage: &mut BenchCluster,
    table: &Table,
    victim: &Victim,
    begun: Instant,
) -> Result<Duration, BenchError> {
    while begun.elapsed() < RETURNS {
        let status = stage.last_status()?;
        let leads = |node: NodeId| {
            let ours = status.partitions.iter().filter(|record| record.table == table.id());
            ours.filter(|record| record.primary.node == node).count()
        };
        if leads(victim.node) >= victim.led.len() {
            return Ok(begun.elapsed());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(BenchError::Wrong("a node did not lead again after ten minutes".into()))
}

/// `failback`: both ways at every size with random updates; at the largest also with updates in order, and
/// with the small memory.
pub(super) fn failback(run: &mut Run) -> Result<(), BenchError> {
    let (large, small) = (run.options.memory(LARGE), run.options.memory(SMALL));
    let mut cases = Vec::new();
    let largest = run.options.records;
    for records in run.options.data_sets().into_iter().filter(|records| *records != largest) {
        cases.extend([true, false].map(|full| Case { records, memory: large, full, random: true }));
    }
    for memory in [large, small] {
        let kinds = [(true, true), (false, true), (false, false)];
        cases.extend(kinds.map(|(full, random)| Case { records: largest, memory, full, random }));
    }
    let mut full_bytes = None;
    for case in cases {
        let mut backs = Vec::new();
        for _ in 0..run.options.rounds(case.records) {
            let back = fail_back(run, case)?;
            run.say(&format!(
                "  {} records, {}: in sync after {:.2} s, {} shipped",
                records_in_words(case.records),
                case.in_words(),
                back.in_sync.as_secs_f64(),
                bytes_in_words(back.cost.files),
            ));
            backs.push(back);
        }
        let mut point = told(run, case, &backs);
        let came = |name: &str| point.figure(name).unwrap_or(0.0);
        let bytes = came("in_sync_bytes");
        match (case.full, full_bytes) {
            (true, _) => full_bytes = Some(bytes),
            (false, Some(full)) if full > 0.0 => {
                let (what, limit) = match case.random {
                    false => {
                        ("bytes until in sync over those of a full copy, updates in order", IN_ORDER_GOAL)
                    }
                    true => ("bytes until in sync over those of a full copy, random updates", RANDOM_GOAL),
                };
                point.goals.push(Goal::at_most(what, bytes / full, limit));
            }
            _ => {}
        }
        run.done(point);
    }
    run.finish(&FAILBACK)
}

fn told(run: &Run, case: Case, backs: &[Back]) -> Point {
    let middle = |of: fn(&Back) -> f64| median(&backs.iter().map(of).collect::<Vec<_>>());
    let seconds: Vec<f64> = backs.iter().map(|back| back.in_sync.as_secs_f64()).collect();
    let figures = json!({
        "records": case.records,
        "data_bytes": case.records * super::users::RECORD_BYTES,
        "memory_bytes_per_node": case.memory.of_node,
        "standby": run.options.standby,
        "partitions": run.options.partitions,
        "full": case.full,
        "updates": if case.random { "random" } else { "in order" },
        "missed_records": case.missed(),
        "lead_back_s": middle(|back| back.lead_back.as_secs_f64()),
        "shipped_bytes": middle(|back| back.cost.files as f64),
        // Nobody else writes meanwhile: it is what came to the log of the node that is back.
        "log_bytes": middle(|back| back.cost.log as f64),
        // Files and log until all copies were in sync; the rest came with the lead's return.
        "in_sync_bytes": middle(|back| (back.until_in_sync.files + back.until_in_sync.log) as f64),
        "cpu_ms": middle(|back| back.cost.cpu_us() as f64 / 1_000.0),
    });
    run.point(&FAILBACK, records_in_words(case.records), case.in_words(), &seconds, figures)
}
