//! How long range queries take while another table is ingested, by the number of copies (figure 5.3).

use super::ingestion::FACTORS;
use super::point::Shape;
use super::stage::{BenchCluster, ingest};
use super::users::Users;
use super::{LARGE, NODES, Run, increase, records_in_words};
use crate::error::BenchError;
use crate::stats::{Spread, median};
use client::{Client, Table};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use types::data::Value;
use wire::Op;
use wire::request::ReadSnapshot;

/// Figure 5.3.
pub(super) const BY_FACTOR: Shape = Shape {
    name: "query-by-factor",
    title: "range queries during ingestion, with different replication factors (figure 5.3)",
    across: "records",
    unit: "milliseconds",
    columns: &[
        ("counted", "records counted"),
        ("queries", "queries"),
        ("p50_ms", "p50 ms"),
        ("p99_ms", "p99 ms"),
        ("ingested_per_s", "ingested/s"),
        ("cpu_us_per_counted", "CPU us/counted"),
    ],
};

/// Records that are ingested between two looks at whether the round is over.
const SLICE: u64 = 5_000;

/// A pair of tables with as many copies: one is counted, the other is written.
struct Pair {
    factor: u8,
    counted: Table,
    written: Table,
    /// The next record to be written.
    next: u64,
    means_ms: Vec<f64>,
    all_ms: Vec<f64>,
    ingested_per_s: Vec<f64>,
    cpu_us: Vec<f64>,
}

/// The range that is counted: the document's is `100 < id < 10,000,000` of 15 million.
struct Query {
    from: i64,
    to: i64,
}

impl Query {
    fn of(records: u64) -> Query {
        let to = (records * 2 / 3) as i64;
        Query { from: 101.min(to), to }
    }

    /// Sends the query to every partition and adds up.
    fn ask(&self, client: &mut Client, table: &Table) -> Result<u64, BenchError> {
        let (from, to) = (table.key(&[Value::Int(self.from)])?, table.key(&[Value::Int(self.to)])?);
        let op = Op::Count { from, to, at: ReadSnapshot::Newest };
        let calls = table.partitions().map(|partition| table.call(partition, op.clone())).collect();
        let answers = client.all(calls)?;
        let counted: Option<u64> = answers.iter().map(client::Answer::number).sum();
        let counted =
            counted.ok_or_else(|| BenchError::Wrong("a count was answered with no number".into()))?;
        match counted == (self.to - self.from) as u64 {
            true => Ok(counted),
            false => Err(BenchError::Wrong(format!(
                "{counted} records were counted, and there are {}",
                self.to - self.from
            ))),
        }
    }
}

/// What one round did.
struct Round {
    times_ms: Vec<f64>,
    ingested: u64,
    took: Duration,
}

/// Counts again and again while another thread writes.
fn round(
    stage: &mut BenchCluster,
    pair: &Pair,
    users: &Users,
    query: &Query,
    time: Duration,
) -> Result<Round, BenchError> {
    let mut writer = stage.another_client()?;
    let over = AtomicBool::new(false);
    let (written, next) = (&pair.written, pair.next);
    let begun = Instant::now();
    let (times_ms, ingested) = std::thread::scope(|scope| {
        let over = &over;
        let writing = scope.spawn(move || -> Result<u64, BenchError> {
            let mut ingested = 0;
            while !over.load(Ordering::Relaxed) {
                let from = next + ingested;
                ingest(&mut writer, written, users, from..from + SLICE)?;
                ingested += SLICE;
            }
            Ok(ingested)
        });
        let mut times_ms = Vec::new();
        let mut asked = Ok(());
        while asked.is_ok() && begun.elapsed() < time {
            let at = Instant::now();
            asked = query.ask(&mut stage.client, &pair.counted).map(drop);
            times_ms.push(at.elapsed().as_secs_f64() * 1_000.0);
        }
        over.store(true, Ordering::Relaxed);
        let ingested = writing.join().expect("the writer does not panic");
        asked.and(ingested.map(|ingested| (times_ms, ingested)))
    })?;
    Ok(Round { times_ms, ingested, took: begun.elapsed() })
}

/// `query-by-factor`: all factors in turn, on one cluster.
pub(super) fn by_factor(run: &mut Run) -> Result<(), BenchError> {
    // The document counts in its second largest data set.
    let records = run.options.part(15);
    let memory = run.options.memory(LARGE);
    let (common, target) = (&run.options.common, &run.options.target);
    let mut stage = BenchCluster::start(common, target, NODES, Some(memory.of_partition), &[])?;
    let mut pairs = Vec::new();
    for factor in FACTORS {
        run.options.common.goes_on()?;
        let (partitions, standby) = (run.options.partitions, run.options.standby);
        let counted = stage.table(factor, partitions, standby)?;
        let written = stage.table(factor, partitions, standby)?;
        stage.copies(&written, factor.into(), Duration::from_secs(10))?;
        ingest(&mut stage.client, &counted, &run.users, 0..records)?;
        let (means_ms, all_ms, ingested_per_s, cpu_us) = Default::default();
        pairs.push(Pair { factor, counted, written, next: 0, means_ms, all_ms, ingested_per_s, cpu_us });
    }
    let query = Query::of(records);
    let time = Duration::from_secs_f64(run.options.common.seconds);
    for _ in 0..run.options.common.rounds {
        for pair in &mut pairs {
            run.options.common.goes_on()?;
            stage.settle()?;
            let before = stage.counts()?;
            let round = round(&mut stage, pair, &run.users, &query, time)?;
            let cost = stage.counts()?.since(before);
            let queries = round.times_ms.len() as f64;
            let mean = round.times_ms.iter().sum::<f64>() / queries;
            run.say(&format!("  factor {}: {mean:.1} ms, {queries} queries", pair.factor));
            pair.next += round.ingested;
            pair.means_ms.push(mean);
            pair.all_ms.extend(round.times_ms);
            pair.ingested_per_s.push(round.ingested as f64 / round.took.as_secs_f64());
            pair.cpu_us.push(cost.cpu_us() as f64 / queries / (query.to - query.from) as f64);
        }
    }
    let base = pairs[0].means_ms.clone();
    for pair in &pairs {
        let mut point = answered(run, pair, records, &query);
        point.increase_percent = (pair.factor > 1).then(|| increase(&pair.means_ms, &base)).flatten();
        run.done(point);
    }
    run.finish(&BY_FACTOR)
}

fn answered(run: &Run, pair: &Pair, records: u64, query: &Query) -> super::Point {
    let mut sorted = pair.all_ms.clone();
    sorted.sort_by(f64::total_cmp);
    let quantile = |part: f64| sorted[((sorted.len() - 1) as f64 * part).round() as usize];
    let figures = json!({
        "records": records,
        "factor": pair.factor,
        "standby": if pair.factor > 1 { Some(run.options.standby) } else { None },
        "partitions": run.options.partitions,
        "seconds": run.options.common.seconds,
        "counted": query.to - query.from,
        "queries": pair.all_ms.len(),
        "p50_ms": quantile(0.5),
        "p99_ms": quantile(0.99),
        "ingested_per_s": median(&pair.ingested_per_s),
        "ingested_per_s_rounds": Spread::of(pair.ingested_per_s.iter().copied()).map(|spread| spread.rounds),
        // Ingestion included: it is a part of the same processes.
        "cpu_us_per_counted": median(&pair.cpu_us),
    });
    run.point(
        &BY_FACTOR,
        records_in_words(records),
        format!("factor {}", pair.factor),
        &pair.means_ms,
        figures,
    )
}
