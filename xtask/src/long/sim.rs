//! The simulator's figures: 2,000 seeds without a violation, and every planted bug found.

use super::{Measured, median, shown, understudy, understudy_of_mutants};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

const PLANTS: [&str; 62] = [
    "F01", "F02", "F03", "F04", "F05", "F06", "F07", "F08", "F09", "F10", "F11", "F12", "F13", "F14", "F15",
    "F16", "F17", "F18", "F19", "F20", "F22", "F25", "PR-01", "PR-05", "PR-06", "PR-15", "PR-16", "PR-18",
    "PR-21", "PR-22", "PR-23", "PR-27", "PR-31", "PR-36", "PR-37", "PR-39", "PR-40", "PR-45", "PR-47",
    "PR-78", "PR-79", "PR-80", "PR-81", "PR-82", "PR-111", "PR-112", "PR-113", "PR-120", "PR-121", "PR-122",
    "PR-123", "PR-124", "LE-01", "LE-02", "LE-03", "LE-04", "LE-05", "LE-07", "LE-08", "LE-09", "LE-11",
    "LE-12",
];

/// What the simulator counts beside the classes of faults: what they led to.
const CONSEQUENCES: [&str; 11] = [
    "bulk-loaded",
    "damage-found",
    "job-aborted",
    "job-committed",
    "lease-ran-out",
    "log-refused",
    "lsm-directory-given-up",
    "lsm-no-open-file",
    "lsm-no-room",
    "lsm-sync-failed",
    "point-taken",
];

pub(super) fn seeds(root: &Path) -> Result<Measured, String> {
    let started = Instant::now();
    let (objects, good) = understudy(root, &["sim", "--seeds", "0..2000", "--json"])?;
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    let summary = &objects[0];
    let count = |field: &str| summary[field].as_u64().unwrap_or(0);
    let seeds = count("seeds");
    let share = |part: u64| 100.0 * part as f64 / seeds.max(1) as f64;
    let violations = summary["violations"].as_array().map_or(0, Vec::len);
    let mut text = format!(
        "{seeds} seeds of 300 operations in {minutes:.1} minutes: {:.0} a minute (goal 200).\n\n\
         | figure | value | goal |\n| --- | --- | --- |\n\
         | violations | {violations} | 0 |\n| operations | {} | |\n| simulated seconds | {} | |\n\
         | seeds that change a primary | {:.1} % | 60 % |\n| seeds that change one twice | {:.1} % | 30 % |\n\
         | hash of all traces | `{}` | |\n\n\
         Seeds in which each class of faults struck (goal: 2 % each):\n\n",
        seeds as f64 / minutes,
        count("operations"),
        count("simulated_seconds"),
        share(count("primary_changes")),
        share(count("double_failovers")),
        summary["trace_hash"].as_str().unwrap_or(""),
    );
    let counted = summary["faults"].as_object().into_iter().flatten();
    let came = |name: &str| CONSEQUENCES.contains(&name) || name.starts_with("table");
    let (came, injected): (Vec<_>, Vec<_>) = counted.partition(|(name, _)| came(name));
    let list = |counted: &[(&String, &Value)]| {
        let one =
            |(name, seeds): &(&String, &Value)| format!("{name} {:.1} %", share(seeds.as_u64().unwrap_or(0)));
        counted.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let _ = writeln!(text, "{}.\n\nWhat came of them: {}.", list(&injected), list(&came));
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
    for plant in PLANTS {
        let (objects, _) =
            understudy_of_mutants(root, &["sim", "--seeds", "0..2000", "--mutant", plant, "--json"])?;
        let summary = &objects[0];
        match summary["found_at"].as_u64() {
            Some(seed) => {
                let first = &summary["violations"][0];
                let text =
                    |field: &str| first[field].as_str().unwrap_or("").replace('|', "/").replace('\n', " ");
                let _ = writeln!(rows, "| {plant} | {seed} | {} | {} |", text("id"), text("sentence"));
                found_at.push(seed as f64);
            }
            None => {
                let _ = writeln!(rows, "| {plant} | **not found** | | |");
                missed.push(plant);
            }
        }
    }
    let middle = shown(median(found_at.clone()));
    let text = format!(
        "Each rule taken out, with the faults that bring it to light, over seeds 0 to 2,000: {} of {} found, the median \
         at seed {middle}.\n\n| finding | first seed | broken promise | how |\n| --- | --- | --- | --- |\n{rows}",
        found_at.len(),
        PLANTS.len(),
    );
    let wrong = missed.iter().map(|plant| format!("{plant} is not found")).collect();
    Ok(Measured { text, wrong })
}
