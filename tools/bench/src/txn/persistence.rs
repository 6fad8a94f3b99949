//! Figure 2(a): response time over throughput, with lazy and with synchronous persistence of what the
//! transaction manager has committed.
//!
//! Three kinds run in turn. `lazy` is a database of policy `async`: a transaction ends when the manager has
//! it. `durable underneath` is the same over a database of policy `durable`. `synchronous` is what the
//! document compares with: a transaction ends when its partitions have it on the disks of all copies.

use super::clients::{SharedStore, Transactions};
use super::figure::{self, Panel};
use super::store::{Store, start};
use super::{Goal, Run, Shape, figures_of, rates};
use crate::error::BenchError;
use crate::stats::{Spread, tidy};
use crate::subject::{Series, Subject, interleave};
use crate::ycsb::arrivals::Arrivals;
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;

pub(super) const SHAPE: Shape = Shape {
    name: "persistence",
    title: "lazy and synchronous persistence (figure 2a)",
    across: "servers, clients",
    unit: "transactions/s",
    columns: &[
        ("p50_ms", "p50 ms"),
        ("p99_ms", "p99 ms"),
        ("mean_ms", "mean ms"),
        ("cpu_us_per_txn", "CPU us/txn"),
        ("txn_per_fsync", "txn/fsync"),
        ("again", "again"),
        ("throughput_ratio", "over synchronous"),
        ("at_equal_p50", "at equal p50"),
    ],
};

/// More throughput at the same median response time; and what it is at least to be.
const GOAL: f64 = 1.5;
const LEAST: f64 = 1.3;
const KINDS: [&str; 3] = ["lazy", "durable underneath", "synchronous"];

/// Throughput and median response time of the three kinds, with one number of clients.
type Curves = [Vec<(f64, f64)>; 3];

pub(super) fn measure(run: &mut Run) -> Result<(), BenchError> {
    let mut panels = Vec::new();
    for servers in run.options.servers.clone() {
        let curves = with_servers(run, servers)?;
        let lines = KINDS.iter().zip(curves).map(|(kind, curve)| (kind.to_string(), curve)).collect();
        panels.push(Panel {
            title: format!("Response time over throughput, {servers} servers"),
            across: "transactions a second",
            unit: "median response time, ms",
            lines,
            mark: None,
        });
    }
    run.finish(&SHAPE);
    figure::write(&run.options.common, SHAPE.name, &panels)
}

fn with_servers(run: &mut Run, servers: u32) -> Result<Curves, BenchError> {
    let options = run.options;
    let shared = start(options, servers, &[])?;
    run.say(&format!("txn: loading {} rows, twice, on {servers} servers", options.rows()));
    let store = |policy: &str| -> Result<SharedStore, BenchError> {
        Ok(Rc::new(RefCell::new(Store::create(options, &shared, servers, policy)?)))
    };
    let (lazy, durable) = (store("async")?, store("durable")?);
    let of = |store: &SharedStore, number| {
        Transactions::new(&shared, store, options.mix(), (1, Arrivals::Closed), number)
    };
    let mut kinds = [of(&lazy, 1), of(&durable, 2), of(&durable, 3).waiting()];
    let mut curves: Curves = Default::default();
    for clients in &options.clients {
        let mut subjects: Vec<&mut dyn Subject> = Vec::new();
        for kind in &mut kinds {
            kind.set_clients(*clients, Arrivals::Closed);
            kind.ends = Default::default();
            subjects.push(kind);
        }
        let series = interleave(&mut subjects, options.common.plan(), run.progress)?;
        for (curve, series) in curves.iter_mut().zip(&series) {
            curve.push((median(&rates(series)), series.latencies.value_at_quantile(0.5) as f64 / 1e6));
        }
        let again: Vec<u64> = kinds.iter().map(|kind| kind.ends.again).collect();
        tell(run, (servers, *clients), &series, &again, &curves);
    }
    if options.check {
        for store in [&lazy, &durable] {
            let store = store.borrow();
            store.check(&shared)?;
            run.say(&format!("txn: every acknowledged write is there, {}", store.in_words()));
        }
    }
    Ok(curves)
}

fn median(figures: &[f64]) -> f64 {
    crate::stats::median(figures).unwrap_or(0.0)
}

/// The points of one number of clients.
fn tell(run: &mut Run, (servers, clients): (u32, u32), series: &[Series], again: &[u64], curves: &Curves) {
    let place = |clients| format!("{servers} servers, {clients} clients");
    for (at, kind) in KINDS.into_iter().enumerate() {
        let mut figures = figures_of(&series[at]);
        figures["servers"] = servers.into();
        figures["clients"] = clients.into();
        figures["settings"] = series[at].settings.clone().into();
        figures["again"] = again[at].into();
        if at < 2 {
            let ratio = Spread::of_ratios(&rates(&series[at]), &rates(&series[2]));
            figures["throughput_ratio"] = ratio.map_or(Value::Null, |ratio| ratio.median.into());
        }
        let mut point = run.point(&SHAPE, (place(clients), kind.into()), &rates(&series[at]), figures);
        let last = run.options.clients.last() == Some(&clients);
        if at == 0 && last {
            // What the lazy kind does where the synchronous one's clients wait as long.
            let (throughput, p50) = curves[2].last().copied().unwrap_or_default();
            let ratio = tidy(at_response_time(&curves[0], p50) / throughput.max(f64::MIN_POSITIVE));
            point.figures.insert("at_equal_p50".into(), ratio.into());
            point.goals.push(Goal::at_least("throughput at equal median response time", ratio, GOAL));
            point.goals.push(Goal::at_least("the same, as the least that will do", ratio, LEAST));
        }
        run.done(point);
    }
}

/// The throughput of a curve where the median response time is this: between its points on a line, below the
/// first in proportion, and beyond the last no more than was reached.
fn at_response_time(curve: &[(f64, f64)], p50: f64) -> f64 {
    let most = curve.iter().map(|(throughput, _)| *throughput).fold(0.0, f64::max);
    let Some((first, first_p50)) = curve.first().copied() else { return 0.0 };
    if p50 <= first_p50 {
        return first * p50 / first_p50.max(f64::MIN_POSITIVE);
    }
    let between = curve.windows(2).find(|pair| pair[0].1 <= p50 && p50 <= pair[1].1);
    between.map_or(most, |pair| {
        let share = (p50 - pair[0].1) / (pair[1].1 - pair[0].1).max(f64::MIN_POSITIVE);
        pair[0].0 + (pair[1].0 - pair[0].0) * share
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_at_a_response_time_lies_between_the_points() {
        let curve = [(100.0, 1.0), (300.0, 2.0), (400.0, 6.0)];
        assert_eq!(at_response_time(&curve, 1.5), 200.0);
        assert_eq!(at_response_time(&curve, 4.0), 350.0);
        assert_eq!(at_response_time(&curve, 0.5), 50.0, "with fewer clients");
        assert_eq!(at_response_time(&curve, 9.0), 400.0, "no more than was measured");
        assert_eq!(at_response_time(&[], 1.0), 0.0);
    }
}
