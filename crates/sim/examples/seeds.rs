//! Runs seeds and prints what they find: `seeds FROM TO [FINDING] [verbose] [one]`; `one` uses one thread.

use std::time::Instant;
use types::Finding;
use understudy_sim::{Options, run, run_range};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
    let (from, to): (u64, u64) = (number(0).unwrap_or(0), number(1).unwrap_or(100));
    let plant = words.get(2).and_then(|word| Finding::parse(word));
    if words.iter().any(|word| word == "verbose") {
        let options = plant.map_or_else(Options::default, Options::planted);
        println!("{}", run(from, Options { verbose: true, ..options }));
        return;
    }
    let begun = Instant::now();
    let threads = if words.iter().any(|word| word == "one") { 1 } else { 2 };
    let summary = run_range(from..to, plant, |_, _| {}, threads);
    for violation in &summary.violations {
        println!("seed {} {} at {} us: {}", violation.seed, violation.id, violation.at, violation.sentence);
    }
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    println!(
        "{} seeds, {:.0} a minute, {} violations",
        summary.seeds,
        summary.seeds as f64 / minutes,
        summary.violations.len()
    );
    println!(
        "{} operations, {} s, changes {}, twice {}, {:?} {}",
        summary.operations,
        summary.simulated_seconds,
        summary.primary_changes,
        summary.double_failovers,
        summary.faults,
        summary.trace_hash
    );
}
