//! The demo's figures: how long failovers take and what they cost, and that nothing fails over without a
//! reason.

use super::{Measured, figure, median, shown, understudy};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

const RUNS: usize = 5;
/// Seconds of the long run: a third before the fault, and a good part after the return.
const STEADY_SECONDS: &str = "660";

pub(super) fn failovers(root: &Path) -> Result<Measured, String> {
    let mut text = format!(
        "`demo --short --seconds 9`, {RUNS} runs for each fault; medians in milliseconds, and the goal is a failover below 500. A failover \
         lasts from the fault to the first acknowledged write on every partition that the node led, and is the sum of the five \
         columns behind it.\n\n| fault | failover | all runs | suspicion | seal | replay | serving | first write | rejoin | \
         acknowledged | missing | different | stale acknowledgements | stale reads |\n{}|\n",
        "| --- ".repeat(14)
    );
    let mut wrong = Vec::new();
    for fault in ["kill", "stop", "cut"] {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let (objects, good) =
                understudy(root, &["demo", "--short", "--seconds", "9", "--fault", fault, "--json"])?;
            if !good {
                wrong.push(format!("a run with {fault} did not end well"));
            }
            runs.extend(objects);
        }
        let _ = writeln!(text, "{}", row(fault, &runs));
    }
    Ok(Measured { text, wrong })
}

fn row(fault: &str, runs: &[Value]) -> String {
    let middle = |path: &str| shown(median(runs.iter().filter_map(|run| figure(run, path)).collect()));
    let total = |path: &str| runs.iter().filter_map(|run| run.pointer(path)?.as_u64()).sum::<u64>();
    let all: Vec<String> = runs.iter().map(|run| shown(figure(run, "/failover_ms"))).collect();
    format!(
        "| {fault} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        middle("/failover_ms"),
        all.join(", "),
        middle("/split/suspect_ms"),
        middle("/split/seal_ms"),
        middle("/split/replay_ms"),
        middle("/split/serve_ms"),
        middle("/split/first_write_ms"),
        middle("/rejoin_ms"),
        total("/acknowledged"),
        total("/missing"),
        total("/different"),
        total("/stale/acknowledged"),
        total("/stale/stale_reads"),
    )
}

pub(super) fn steady(root: &Path) -> Result<Measured, String> {
    let (objects, good) = understudy(root, &["demo", "--short", "--seconds", STEADY_SECONDS, "--json"])?;
    let run = &objects[0];
    let others = figure(run, "/other_failovers").unwrap_or(f64::NAN);
    let mut text = format!(
        "`demo --short --seconds {STEADY_SECONDS}`: ten clients without a pause for {} minutes, one node killed after a third \
         and back after two thirds. Failovers that nobody caused: {others}. Acknowledged writes: {}, missing: {}. \
         Operations per second before, during and after the fault: {}, {}, {}.\n",
        STEADY_SECONDS.parse::<u32>().unwrap_or(0) / 60,
        shown(figure(run, "/acknowledged")),
        shown(figure(run, "/missing")),
        shown(figure(run, "/before_ops_s")),
        shown(figure(run, "/during_ops_s")),
        shown(figure(run, "/after_ops_s")),
    );
    for other in run["others"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let _ = writeln!(text, "\n- {other}");
    }
    let wrong = if good { Vec::new() } else { vec!["the run did not end well".to_string()] };
    Ok(Measured { text, wrong })
}
