//! Histories of real clusters: every policy, five minutes each with all faults in turn.

use super::{Measured, figure, shown, understudy};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

const POLICIES: [&str; 6] = ["durable", "sync", "semi", "async", "local", "none"];
/// Seconds of load per policy.
const SECONDS: &str = "300";

pub(super) fn policies(root: &Path) -> Result<Measured, String> {
    let mut runs = Vec::new();
    let mut wrong = Vec::new();
    for policy in POLICIES {
        let arguments = ["check", "--seconds", SECONDS, "--policy", policy, "--json"];
        let (objects, good) = understudy(root, &arguments)?;
        let run = objects.into_iter().next().ok_or("no figures")?;
        if !good {
            wrong.push(format!("{policy}: the history is wrong, see {}", run["history"]));
        }
        runs.push((policy, run));
    }
    let mut text = format!(
        "`check --seconds {SECONDS}` with all faults in turn, for each policy. Reported losses are subtracted where the policy may lose \
         something, and nothing else.\n\n| policy | operations | over SQL | unknown | not done | failovers | reported lost | unsure | \
         anomalies | checked in s |\n{}|\n",
        "| --- ".repeat(10)
    );
    for (policy, run) in &runs {
        let _ = writeln!(text, "{}", row(policy, run));
    }
    text.push_str(
        "\nThe longest time without an acknowledged write to some partition, in milliseconds; of two nodes at once from when both \
         were back. Goals: 400 with one node hit, 1000 with two hit and healed. In brackets: a goal that was missed.\n\n",
    );
    text.push_str(&gaps(&runs));
    Ok(Measured { text, wrong })
}

fn row(policy: &str, run: &Value) -> String {
    let of = |path: &str| shown(figure(run, path));
    let anomalies = run["findings"].as_array().map_or(0, Vec::len);
    format!(
        "| {policy} | {} | {} | {} | {} | {} | {} | {} | {anomalies} | {} |",
        of("/operations"),
        of("/sql"),
        of("/unknown"),
        of("/not_done"),
        of("/failovers"),
        of("/lost/reported"),
        of("/lost/unsure"),
        of("/checked_in_s"),
    )
}

/// A row for each kind of fault, a column for each policy.
fn gaps(runs: &[(&str, Value)]) -> String {
    let policies: Vec<&str> = runs.iter().map(|(policy, _)| *policy).collect();
    let mut text = format!("| fault | {} |\n{}|\n", policies.join(" | "), "| --- ".repeat(1 + runs.len()));
    let of = |run: &Value| run["gaps"].as_array().cloned().unwrap_or_default();
    let kinds = runs.first().map(|(_, run)| of(run)).unwrap_or_default();
    for kind in &kinds {
        let cell = |(_, run): &(&str, Value)| {
            let gap = of(run)
                .into_iter()
                .find(|gap| gap["fault"] == kind["fault"] && gap["shape"] == kind["shape"]);
            let Some(gap) = gap else { return "-".to_string() };
            let path = if gap["shape"] == "two" { "/healed_ms" } else { "/longest_ms" };
            let ms = shown(figure(&gap, path).map(f64::round));
            if gap["missed"] == true { format!("({ms})") } else { ms }
        };
        let cells: Vec<String> = runs.iter().map(cell).collect();
        let _ = writeln!(text, "| {} | {} |", kind["fault"].as_str().unwrap_or("?"), cells.join(" | "));
    }
    text
}
