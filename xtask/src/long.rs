//! The full numbers: seeds, plants and figures, written into `docs/evidence.md` with the commit they were taken on.

use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const PLANTS: [&str; 29] = [
    "F01", "F02", "F03", "F04", "F05", "F06", "F07", "F08", "F09", "F10", "F13", "F16", "F17", "F18", "F19",
    "F20", "F22", "PR-01", "PR-05", "PR-06", "PR-15", "PR-16", "PR-18", "PR-21", "PR-22", "PR-23", "PR-40",
    "PR-45", "PR-47",
];

/// Runs everything, or only the parts named: `sim`, `plants`, `demo`, `bench`.
pub fn run(root: &Path, only: &[String]) -> Result<(), String> {
    let wanted = |part: &str| only.is_empty() || only.iter().any(|name| name == part);
    let mut report = heading(root)?;
    let mut failed = Vec::new();
    let mut part = |name: &str, act: fn(&Path, &mut String) -> Result<(), String>| {
        if wanted(name) {
            eprintln!("== {name}");
            if let Err(reason) = act(root, &mut report) {
                let _ = writeln!(report, "\n**{name} failed:** {reason}\n");
                failed.push(format!("{name}: {reason}"));
            }
        }
    };
    part("sim", seeds);
    part("plants", plants);
    part("demo", demos);
    part("bench", benches);
    std::fs::write(root.join("docs/evidence.md"), report).map_err(|error| error.to_string())?;
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn heading(root: &Path) -> Result<String, String> {
    let git = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).current_dir(root).output();
    let commit = git.map_err(|error| error.to_string())?;
    let commit = String::from_utf8_lossy(&commit.stdout).trim().to_string();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    Ok(format!(
        "# Evidence\n\nWritten by `cargo xtask long` on commit `{commit}`, on a machine with {cores} cores. All nodes of a \
         test share them, and other work may have been running: read ratios, not absolute figures.\n"
    ))
}

/// Runs the project's binary; gives the JSON objects that it printed, and whether it succeeded.
fn understudy(root: &Path, arguments: &[&str]) -> Result<(Vec<Value>, bool), String> {
    let output = Command::new("cargo")
        .args(["run", "--release", "--quiet", "--"])
        .args(arguments)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let objects: Vec<Value> = match serde_json::from_str::<Value>(&text) {
        Ok(one) => vec![one],
        Err(_) => text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
    };
    Ok((objects, output.status.success()))
}

fn seeds(root: &Path, report: &mut String) -> Result<(), String> {
    let started = Instant::now();
    let (objects, good) = understudy(root, &["sim", "--seeds", "0..2000", "--json"])?;
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    let summary = objects.first().ok_or("the simulator printed nothing")?;
    let _ = writeln!(
        report,
        "\n## Simulator\n\n2,000 seeds in {minutes:.1} minutes, {:.0} a minute.\n",
        2000.0 / minutes
    );
    let _ = writeln!(report, "```json\n{}\n```", pretty(summary));
    if good { Ok(()) } else { Err("there were violations".into()) }
}

fn plants(root: &Path, report: &mut String) -> Result<(), String> {
    let _ = writeln!(report, "\n## Planted bugs\n\n| finding | found at seed | how |\n| --- | --- | --- |");
    let mut missed = Vec::new();
    let mut found_at = Vec::new();
    for plant in PLANTS {
        let (objects, _) = understudy(root, &["sim", "--seeds", "0..2000", "--plant", plant, "--json"])?;
        let summary = objects.first().cloned().unwrap_or(Value::Null);
        match summary.get("found_at").and_then(Value::as_u64) {
            Some(seed) => {
                let how = summary.get("first_violation").and_then(Value::as_str).unwrap_or("");
                let _ = writeln!(report, "| {plant} | {seed} | {} |", how.replace('|', "/"));
                found_at.push(seed);
            }
            None => {
                let _ = writeln!(report, "| {plant} | **not found** | |");
                missed.push(plant);
            }
        }
    }
    found_at.sort_unstable();
    if let Some(median) = found_at.get(found_at.len() / 2) {
        let _ = writeln!(report, "\nMedian: seed {median}; {} of {} found.", found_at.len(), PLANTS.len());
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not found: {}", missed.join(", "))) }
}

fn demos(root: &Path, report: &mut String) -> Result<(), String> {
    let _ = writeln!(
        report,
        "\n## Failover of the demo\n\nFive runs each; milliseconds, medians; all runs below.\n\n\
         | fault | detection | failover | longest gap | rejoin | acknowledged | missing | different |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    let mut bad = Vec::new();
    for fault in ["kill", "stop", "cut"] {
        let mut runs = Vec::new();
        for _ in 0..5 {
            let (objects, good) = understudy(root, &["demo", "--short", "--fault", fault, "--json"])?;
            if !good {
                bad.push(fault);
            }
            runs.extend(objects);
        }
        let median = |field: &str| {
            let mut values: Vec<f64> = runs.iter().filter_map(|run| run.get(field)?.as_f64()).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let total = |field: &str| runs.iter().filter_map(|run| run.get(field)?.as_u64()).sum::<u64>();
        let _ = writeln!(
            report,
            "| {fault} | {:.0} | {:.0} | {:.0} | {:.0} | {} | {} | {} |",
            median("detection_ms"),
            median("failover_ms"),
            median("longest_gap_ms"),
            median("rejoin_ms"),
            total("acknowledged"),
            total("missing"),
            total("different"),
        );
    }
    if bad.is_empty() { Ok(()) } else { Err(format!("runs that did not end well: {}", bad.join(", "))) }
}

fn benches(root: &Path, report: &mut String) -> Result<(), String> {
    let _ = writeln!(report, "\n## Benchmarks\n");
    let mut bad = Vec::new();
    for arguments in [
        &["bench", "log", "--json"][..],
        &["bench", "ycsb", "--json"],
        &["bench", "compare", "--peer", "redis", "--json"],
        &["bench", "compare", "--peer", "postgres", "--json"],
    ] {
        let (objects, good) = understudy(root, arguments)?;
        let _ = writeln!(report, "### `understudy {}`\n\n```json", arguments.join(" "));
        for object in &objects {
            let _ = writeln!(report, "{object}");
        }
        let _ = writeln!(report, "```\n");
        if !good {
            bad.push(arguments.join(" "));
        }
    }
    if bad.is_empty() { Ok(()) } else { Err(format!("failed: {}", bad.join(", "))) }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
