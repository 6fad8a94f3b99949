//! `sim`.

use crate::args::process::SimArgs;
use crate::connect::Context;
use indicatif::{ProgressBar, ProgressStyle};
use ops::Failure;
use sim::{Options, Outcome, Summary};
use std::io::{IsTerminal, stderr};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use types::Finding;

/// Runs seeds, or one with its trace.
pub fn run(args: &SimArgs, context: &mut Context) -> Result<(), Failure> {
    sim::lsm_files::scratch().map_err(Failure::failed)?;
    match (&args.seeds, args.trace) {
        (_, Some(seed)) => trace(seed, args, context),
        (Some(seeds), None) => {
            let mutant = args.mutant.map_or_else(Options::default, Options::of_mutant);
            let options = Options { nodes: args.nodes, transactions: args.transactions, ..mutant };
            let Some(chosen) = chosen(seeds, &options) else {
                return Err(Failure::usage("none of these seeds has global transactions: one of seven has"));
            };
            let bar = bar(chosen);
            let threads = args.threads.unwrap_or_else(processors);
            let broken = AtomicU64::new(0);
            let progress = |done: u64, outcome: &Outcome| {
                let broken = broken.fetch_add(u64::from(!outcome.violations.is_empty()), Ordering::Relaxed);
                bar.set_position(done);
                bar.set_message(format!("seed {}, {broken} with violations", outcome.seed));
            };
            let summary = sim::run_all(seeds.clone(), options, args.mutant.is_some(), progress, threads);
            bar.finish_and_clear();
            report(&summary, args.mutant, context)
        }
        (None, None) => Err(Failure::usage("give --seeds A..B, or --trace SEED")),
    }
}

/// How many of these seeds are run; none: not one of them is.
fn chosen(seeds: &Range<u64>, options: &Options) -> Option<u64> {
    let chosen = match options.transactions {
        true => seeds.clone().filter(|seed| options.chooses(*seed)).count() as u64,
        false => seeds.end - seeds.start,
    };
    (chosen > 0).then_some(chosen)
}

fn trace(seed: u64, args: &SimArgs, context: &mut Context) -> Result<(), Failure> {
    let mutant = args.mutant.map_or_else(Options::default, Options::of_mutant);
    let outcome =
        sim::run(seed, Options { operations: args.operations, verbose: true, nodes: args.nodes, ..mutant });
    for line in &outcome.trace {
        context.out.line(line);
    }
    let found: Vec<_> = outcome.violations.iter().map(|found| (&found.id, &found.sentence)).collect();
    let object = serde_json::json!({
        "seed": seed,
        "violations": found.iter().map(|(id, why)| serde_json::json!({ "id": id, "sentence": why })).collect::<Vec<_>>(),
        "trace_hash": format!("{:016x}", outcome.trace_hash),
        "event_hash": format!("{:016x}", outcome.event_hash),
    });
    context.out.either(&object, || format!("seed {seed} trace {:016x}", outcome.trace_hash));
    match found.first() {
        None => Ok(()),
        Some((id, why)) => Err(Failure::failed(format!("seed {seed} broke {id}: {why}"))),
    }
}

fn report(summary: &Summary, mutant: Option<Finding>, context: &mut Context) -> Result<(), Failure> {
    let mut object = serde_json::to_value(summary).expect("a summary has only text keys");
    if let Some(mutant) = mutant {
        object["mutant"] = mutant.id().into();
        // As it was called before.
        object["plant"] = mutant.id().into();
        object["found"] = summary.found_at().is_some().into();
        object["found_at"] = summary.found_at().into();
    }
    if context.out.json {
        context.out.object(&object);
    } else {
        words(summary, context);
    }
    match (mutant, summary.violations.first()) {
        (Some(mutant), Some(found)) => {
            if !context.out.json {
                context.out.line(format!(
                    "{} is found at seed {}: {}",
                    mutant.id(),
                    found.seed,
                    found.sentence
                ));
            }
            Ok(())
        }
        (Some(mutant), None) => Err(Failure::failed(format!(
            "{} was planted and not found in {} seeds",
            mutant.id(),
            summary.seeds
        ))),
        (None, Some(found)) => Err(Failure::failed(format!(
            "{} violations; the first: seed {} broke {}: {}; `understudy sim --trace {}` shows it",
            summary.violations.len(),
            found.seed,
            found.id,
            found.sentence,
            found.seed
        ))),
        (None, None) => Ok(()),
    }
}

fn words(summary: &Summary, context: &mut Context) {
    let (out, times) = (&mut context.out, &summary.times);
    out.line(format!(
        "{} seeds, {} operations, {} simulated seconds: {} violations",
        summary.seeds,
        summary.operations,
        summary.simulated_seconds,
        summary.violations.len()
    ));
    out.line(format!(
        "a primary changed in {} seeds, twice or more in {}",
        summary.primary_changes, summary.double_failovers
    ));
    out.line(format!(
        "{} failovers, in the median {} ms from the fault to the next answer, at most {} ms",
        times.failovers, times.failover_median_ms, times.failover_most_ms
    ));
    out.line(format!(
        "{} times a partition was served again, in the median {} ms after its last fault, at most {} ms",
        times.fault_to_serving, times.fault_to_serving_median_ms, times.fault_to_serving_most_ms
    ));
    for (fault, seeds) in &summary.faults {
        out.line(format!("  {fault}: {seeds} seeds"));
    }
    out.line(format!("trace {}, events {}", summary.trace_hash, summary.event_hash));
}

fn bar(seeds: u64) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("[{bar:30}] {pos}/{len}  {per_sec}  {msg}");
    ProgressBar::new(seeds).with_style(style.expect("the shape is right").progress_chars("=> "))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, Into::into)
}
