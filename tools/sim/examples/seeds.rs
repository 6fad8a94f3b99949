//! Runs seeds and prints what they find: `seeds FROM TO [FINDING] [verbose] [one] [nodes=N] [transactions]`;
//! `one` uses one thread, `transactions` chooses the seeds with global transactions.
//!
//! `seeds hunt FROM TO FINDING...` shows how soon plants are found, and whether the same seeds are clean with
//! the rule in; `all` names every finding. `seeds clean FROM TO FINDING...` runs their profiles with the rule
//! in, and `seeds list FROM TO FINDING...` prints the lines of `plants::FOUND`: the first seed that is found,
//! and clean otherwise.

use std::time::Instant;
use types::Finding;
use understudy_sim::{Options, Outcome, run, run_all};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_mode = |word: &String| ["hunt", "clean", "list"].contains(&word.as_str());
    let Some(mode) = words.first().filter(|word| is_mode(word)) else { return plain(&words) };
    let number = |at: usize, other| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(other);
    let (from, to): (u64, u64) = (number(1, 0), number(2, 100));
    let named = |finding: &Finding| {
        words.iter().skip(3).any(|word| word == "all" || Finding::parse(word) == Some(*finding))
    };
    for finding in Finding::ALL.into_iter().filter(named) {
        match mode.as_str() {
            "hunt" => hunt(finding, from, to),
            "list" => list(finding, from, to),
            _ => (from..to).for_each(|seed| tell_if_broken(finding, seed)),
        }
    }
}

/// Plants a finding in every seed of the range.
fn hunt(finding: Finding, from: u64, to: u64) {
    let begun = Instant::now();
    let mut found: Vec<u64> = Vec::new();
    let mut first = String::new();
    for seed in from..to {
        let started = Instant::now();
        let outcome = run(seed, Options::of_mutant(finding));
        if started.elapsed().as_secs() > 2 {
            println!("    seed {seed} takes {} s", started.elapsed().as_secs());
        }
        if !outcome.violations.is_empty() {
            if found.len() < 6 {
                first += &format!("    {}\n", sentence(&outcome));
            }
            found.push(seed);
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{} in {} of {} seeds, {seconds:.0} s: {found:?}\n{first}",
        finding.id(),
        found.len(),
        to - from
    );
    found.into_iter().take(6).for_each(|seed| tell_if_broken(finding, seed));
}

/// Looks for a seed for the list.
fn list(finding: Finding, from: u64, to: u64) {
    let broken = |seed, mutant| {
        let options = Options { mutant, ..Options::of_mutant(finding) };
        !run(seed, options).violations.is_empty()
    };
    match (from..to).find(|seed| broken(*seed, Some(finding)) && !broken(*seed, None)) {
        Some(seed) => println!("    (Finding::{finding:?}, {seed}),"),
        None => println!("    // {} is not found", finding.id()),
    }
}

fn tell_if_broken(finding: Finding, seed: u64) {
    let outcome = run(seed, Options { profile: Some(finding), ..Options::default() });
    if !outcome.violations.is_empty() {
        println!("    WITH THE REMEDY OF {} {}", finding.id(), sentence(&outcome));
    }
}

fn sentence(outcome: &Outcome) -> String {
    let first = outcome.violations.first().expect("called for broken promises");
    let short: String = first.sentence.chars().take(220).collect();
    format!("seed {} {} at {} us: {short}", outcome.seed, first.id, first.at)
}

fn plain(words: &[String]) {
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
    let (from, to): (u64, u64) = (number(0).unwrap_or(0), number(1).unwrap_or(100));
    let mutant = words.get(2).and_then(|word| Finding::parse(word));
    let nodes = words.iter().find_map(|word| word.strip_prefix("nodes=")?.parse().ok());
    if words.iter().any(|word| word == "verbose") {
        let profile = words.iter().any(|word| word == "sound");
        let options = mutant.map_or_else(Options::default, Options::of_mutant);
        let options = Options { mutant: options.mutant.filter(|_| !profile), nodes, ..options };
        println!("{}", run(from, Options { verbose: true, ..options }));
        return;
    }
    let begun = Instant::now();
    let threads = if words.iter().any(|word| word == "one") { 1 } else { 2 };
    let options = mutant.map_or_else(Options::default, Options::of_mutant);
    let transactions = words.iter().any(|word| word == "transactions");
    let options = Options { nodes, transactions, ..options };
    let summary = run_all(from..to, options, mutant.is_some(), |_, _| {}, threads);
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
        "{} failovers, median {} ms, at most {} ms",
        summary.times.failovers, summary.times.failover_median_ms, summary.times.failover_most_ms
    );
    println!(
        "{} operations, {} s, changes {}, twice {}, {:?} {}",
        summary.operations,
        summary.simulated_seconds,
        summary.primary_changes,
        summary.double_failovers,
        summary.faults,
        summary.event_hash
    );
}
