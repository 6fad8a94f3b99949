//! The simulator's figures: 20,000 seeds without a violation, and every planted bug found.

use super::{Measured, figure, median, shown, understudy, understudy_of_mutants};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The table of the mutants that the simulator finds, each with a seed.
const MUTANTS: &str = include_str!("../../../tools/sim/src/plants.rs");

/// The classes of faults, each with its name. Whatever else the simulator counts is what came of them.
const FAULTS: &str = include_str!("../../../tools/sim/src/faults.rs");

/// True for a class of faults that is injected.
fn is_fault(name: &str) -> bool {
    FAULTS.contains(&format!("= \"{name}\""))
}

/// A class of faults is to strike in so many of a hundred seeds.
const GOAL_PERCENT: f64 = 2.0;

/// So many seeds are run.
const SEEDS: u64 = 20_000;

/// The first of today's seeds: each day has a million of its own, so that nobody has run them before.
fn first_of_today() -> Result<u64, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| format!("the clock: {error}"))?;
    Ok(now.as_secs() / 86_400 * 1_000_000)
}

pub(super) fn seeds(root: &Path) -> Result<Measured, String> {
    let started = Instant::now();
    let first = first_of_today()?;
    let range = format!("{first}..{}", first + SEEDS);
    let (objects, good) = understudy(root, &["sim", "--seeds", &range, "--json"])?;
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    let summary = &objects[0];
    let count = |field: &str| summary[field].as_u64().unwrap_or(0);
    let seeds = count("seeds");
    let share = |part: u64| 100.0 * part as f64 / seeds.max(1) as f64;
    let violations = summary["violations"].as_array().map_or(0, Vec::len);
    let mut text = format!(
        "`sim --seeds {range}`: {seeds} seeds of 300 operations in {minutes:.1} minutes: {:.0} a minute (goal 400).\n\n\
         | figure | value | goal |\n| --- | --- | --- |\n\
         | violations | {violations} | 0 |\n| operations | {} | |\n| simulated seconds | {} | |\n\
         | seeds that change a primary | {:.1} % | 60 % |\n| seeds that change one twice | {:.1} % | 30 % |\n\
         | simulated failover, median ms | {} | 300 |\n| the longest, with what befell it meanwhile, ms | {} | |\n\
         | from the last fault until a partition is served, median ms | {} | |\n| the longest, ms | {} | 2000 |\n\
         | hash of all traces | `{}` | |\n\n",
        seeds as f64 / minutes,
        count("operations"),
        count("simulated_seconds"),
        share(count("primary_changes")),
        share(count("double_failovers")),
        shown(figure(summary, "/failover_median_ms")),
        shown(figure(summary, "/failover_most_ms")),
        shown(figure(summary, "/fault_to_serving_median_ms")),
        shown(figure(summary, "/fault_to_serving_most_ms")),
        summary["trace_hash"].as_str().unwrap_or(""),
    );
    let counted = summary["faults"].as_object().into_iter().flatten();
    let (injected, came): (Vec<_>, Vec<_>) = counted.partition(|(name, _)| is_fault(name));
    let rare = |seeds: &Value| share(seeds.as_u64().unwrap_or(0)) < GOAL_PERCENT;
    let rare: Vec<&str> =
        injected.iter().filter(|(_, seeds)| rare(seeds)).map(|(name, _)| name.as_str()).collect();
    let list = |counted: &[(&String, &Value)]| {
        let one =
            |(name, seeds): &(&String, &Value)| format!("{name} {:.1} %", share(seeds.as_u64().unwrap_or(0)));
        counted.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let missed = if rare.is_empty() { String::new() } else { format!("Missed by {}.", rare.join(", ")) };
    let _ = writeln!(
        text,
        "Seeds in which each of {} classes of faults struck (goal: {GOAL_PERCENT} % each):\n\n{}. {missed}\n\n\
         What came of them: {}.",
        injected.len(),
        list(&injected),
        list(&came)
    );
    let mut wrong = Vec::new();
    if !good || violations > 0 {
        wrong.push(format!("{violations} violations"));
        for found in summary["violations"].as_array().into_iter().flatten() {
            let _ = writeln!(text, "\n- seed {} broke {}: {}", found["seed"], found["id"], found["sentence"]);
        }
    }
    Ok(Measured { text, wrong })
}

pub(super) fn plants(root: &Path) -> Result<Measured, String> {
    let mut rows = String::new();
    let mut missed = Vec::new();
    let mut found_at = Vec::new();
    let mutants = found_by_worlds(MUTANTS);
    for (mutant, seed) in &mutants {
        // One that takes a seed with all that this has is looked for there.
        let seeds = if *seed < 2_000 { "0..2000".into() } else { format!("{seed}..{}", seed + 1) };
        let (objects, _) =
            understudy_of_mutants(root, &["sim", "--seeds", &seeds, "--mutant", mutant, "--json"])?;
        let summary = &objects[0];
        match summary["found_at"].as_u64() {
            Some(seed) => {
                let first = &summary["violations"][0];
                let text =
                    |field: &str| first[field].as_str().unwrap_or("").replace('|', "/").replace('\n', " ");
                let _ = writeln!(rows, "| {mutant} | {seed} | {} | {} |", text("id"), text("sentence"));
                found_at.push(seed as f64);
            }
            None => {
                let _ = writeln!(rows, "| {mutant} | **not found** | | |");
                missed.push(mutant);
            }
        }
    }
    let middle = shown(median(found_at.clone()));
    let text = format!(
        "Each rule taken out, with the faults that bring it to light, over seeds 0 to 2,000: {} of {} found, the median \
         at seed {middle}.\n\n| finding | first seed | broken promise | how |\n| --- | --- | --- | --- |\n{rows}",
        found_at.len(),
        mutants.len(),
    );
    let wrong = missed.iter().map(|mutant| format!("{mutant} is not found")).collect();
    Ok(Measured { text, wrong })
}

/// The ids in the table `FOUND`, in its order, each with its seed: `(Finding::Pr01, 9)` is `PR-01` at 9.
fn found_by_worlds(source: &str) -> Vec<(String, u64)> {
    let table = source.split("FOUND").nth(1).and_then(|rest| rest.split("];").next()).unwrap_or("");
    let rows = table.split("(Finding::").skip(1).filter_map(|row| row.split(')').next()?.split_once(','));
    let id = |name: &str| match name.split_at_checked(2) {
        Some(("Pr", number)) => format!("PR-{number}"),
        Some(("Le", number)) => format!("LE-{number}"),
        _ => name.to_string(),
    };
    let seed = |text: &str| text.trim().replace('_', "").parse().unwrap_or(0);
    rows.map(|(name, at)| (id(name), seed(at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_are_those_of_the_simulators_table() {
        let source = "pub const FOUND: [(Finding, u64); 3] = [\n    (Finding::F01, 1),\n    (Finding::Pr150, 9_000),\n    \
                      (Finding::Le13, 10),\n];\npub const ELSEWHERE: [Finding; 1] = [Finding::Le06];";
        let expected = [("F01", 1), ("PR-150", 9_000), ("LE-13", 10)].map(|(id, at)| (id.to_string(), at));
        assert_eq!(found_by_worlds(source), expected);
        let rows = MUTANTS.lines().filter(|line| line.trim_start().starts_with("(Finding::")).count();
        let found: Vec<String> = found_by_worlds(MUTANTS).into_iter().map(|(id, _)| id).collect();
        assert_eq!(found.len(), rows);
        assert!(rows > 60 && found.contains(&"LE-13".to_string()) && !found.contains(&"LE-06".to_string()));
    }
}
