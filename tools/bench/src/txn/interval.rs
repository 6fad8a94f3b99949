//! Figure 2(b): throughput and response time over the interval of what tracks commits. The document's clients
//! and servers send heartbeats; here it is the recovery manager that asks the partitions, in passes. Beside
//! each interval runs a cluster whose recovery manager makes a pass an hour.

use super::clients::Transactions;
use super::figure::{self, Panel};
use super::store::{Store, start};
use super::{Goal, Run, Shape, figures_of, rates};
use crate::cluster::Shared;
use crate::error::BenchError;
use crate::stats::Spread;
use crate::subject::{Series, interleave};
use crate::ycsb::arrivals::Arrivals;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;

const SHAPE: Shape = Shape {
    name: "interval",
    title: "the interval of the recovery manager's passes (figure 2b)",
    across: "interval, ms",
    unit: "transactions/s",
    columns: &[
        ("p50_ms", "p50 ms"),
        ("p99_ms", "p99 ms"),
        ("cpu_us_per_txn", "CPU us/txn"),
        ("throughput_ratio", "over none"),
        ("cpu_ratio", "CPU over none"),
    ],
};

/// So rarely is never.
const NEVER_MS: u64 = 3_600_000;
/// For which the goal is set, and how much more processor time than without.
const GOAL_MS: u64 = 1_000;
const GOAL: f64 = 1.03;

pub(super) fn measure(run: &mut Run) -> Result<(), BenchError> {
    let (base_cluster, mut base) = cluster(run, NEVER_MS, 1)?;
    let (mut throughput, mut response) = (Vec::new(), Vec::new());
    for interval in run.options.intervals() {
        run.options.common.goes_on()?;
        let (shared, mut ours) = cluster(run, interval, 2)?;
        let series = interleave(&mut [&mut ours, &mut base], run.options.common.plan(), run.progress)?;
        let median = |figures: &[f64]| crate::stats::median(figures).unwrap_or(0.0);
        throughput.push((interval as f64 / 1_000.0, median(&rates(&series[0]))));
        let p50 = series[0].latencies.value_at_quantile(0.5) as f64 / 1e6;
        response.push((interval as f64 / 1_000.0, p50));
        tell(run, interval, &series);
        if run.options.check {
            ours.check(&shared)?;
        }
    }
    if run.options.check {
        base.check(&base_cluster)?;
        run.say("txn: every acknowledged write is there");
    }
    run.finish(&SHAPE);
    let panel = |title: &str, unit, line| Panel {
        title: title.into(),
        across: "interval of passes, s",
        unit,
        lines: vec![("passes".into(), line)],
        mark: None,
    };
    let panels = [
        panel("Throughput over the interval", "transactions a second", throughput),
        panel("Response time over the interval", "median, ms", response),
    ];
    figure::write(&run.options.common, SHAPE.name, &panels)
}

/// A cluster with this interval, and the clients of a lazy database on it.
fn cluster(run: &mut Run, interval: u64, number: u64) -> Result<(Shared, Transactions), BenchError> {
    let options = run.options;
    let servers = options.first_servers();
    let named = interval.to_string();
    let shared = start(options, servers, &[("controller.recovery_ms", &named)])?;
    run.say(&format!("txn: loading {} rows, a pass every {interval} ms", options.rows()));
    let store = Rc::new(RefCell::new(Store::create(options, &shared, servers, "async")?));
    let clients = (options.most_clients(), Arrivals::Closed);
    let transactions = Transactions::new(&shared, &store, options.mix(), clients, number);
    Ok((shared, transactions))
}

fn tell(run: &mut Run, interval: u64, series: &[Series]) {
    let cpu =
        |series: &Series| -> Vec<f64> { series.rounds.iter().map(|round| round.cpu_us_per_op).collect() };
    let ratio = |of: &dyn Fn(&Series) -> Vec<f64>| Spread::of_ratios(&of(&series[0]), &of(&series[1]));
    let (cpu_ratio, throughput_ratio) = (ratio(&cpu), ratio(&|series| rates(series)));
    for (at, kind) in ["passes", "none"].into_iter().enumerate() {
        let mut figures = figures_of(&series[at]);
        figures["clients"] = run.options.most_clients().into();
        figures["servers"] = run.options.first_servers().into();
        if at == 0 {
            let median = |ratio: &Option<Spread>| ratio.as_ref().map_or(Value::Null, |of| of.median.into());
            figures["throughput_ratio"] = median(&throughput_ratio);
            figures["cpu_ratio"] = median(&cpu_ratio);
            figures["cpu_ratios"] = json!(cpu_ratio.as_ref().map(|ratio| &ratio.rounds));
        }
        let place = (interval.to_string(), kind.to_string());
        let mut point = run.point(&SHAPE, place, &rates(&series[at]), figures);
        if let (0, GOAL_MS, Some(ratio)) = (at, interval, &cpu_ratio) {
            let what = "processor time per transaction with passes each second, over none";
            point.goals.push(Goal::at_most(what, ratio.median, GOAL));
        }
        run.done(point);
    }
}
