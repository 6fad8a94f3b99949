//! Histories of real clusters: every policy, five minutes each with all faults in turn; then a bank over
//! global transactions, as long for each policy that is under them.

use super::{Measured, figure, median, shown, understudy};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const POLICIES: [&str; 6] = ["durable", "sync", "semi", "async", "local", "none"];
/// Seconds of load per policy.
const SECONDS: &str = "300";
/// Policies whose acknowledgements rest on the primary: a failover waits for the old one (PR-85), and of one
/// copy there is no other.
const WAITING: [&str; 3] = ["async", "local", "none"];
/// Policies of databases whose transactions are global. Their failovers wait for nobody (PR-291).
const GLOBAL: [&str; 3] = ["durable", "semi", "async"];

/// A run of each policy.
type Runs = Vec<(&'static str, Value)>;

/// Stands above the gaps.
const GAPS: &str = "
The longest time without an acknowledged write to some partition, in milliseconds; of two nodes at once from
when both were back. Goals: 400 with one node hit, 1000 with two hit and healed; none where one is hit again
as soon as it is back. A missed goal makes the run bad, as a wrong history does. `n/a`: the goal is not
applicable. Under `async` and `local` a failover waits for the old primary by PR-85: what was acknowledged may
be on its disk alone. Under `none` there is one copy, and nobody else can take over.

";

/// Stands above the gaps of the bank.
const BANK_GAPS: &str = "
The longest time without an acknowledged commit that writes in some partition, in milliseconds; of two nodes
at once from when both were back. Goals as above, with every policy: what a failover of a lazy partition loses
is in the manager's log, so nobody waits for the old primary (PR-291). The controller is killed as well, so
a missed goal fails nothing.

";

/// In front of the times that the test of heals prints.
const HEALS: &str = "heals, ms: ";
/// From a heal to the first write, milliseconds.
const HEAL_GOAL: f64 = 500.0;

pub(super) fn all(root: &Path) -> Result<Measured, String> {
    let mut measured = policies(root)?;
    for more in [bank(root), heals(root)] {
        measured.text.push_str(&more.text);
        measured.wrong.extend(more.wrong);
    }
    Ok(measured)
}

/// How long the first write takes after a heal, where nothing can be acknowledged without who comes back, and
/// however often that happened before: as the test of the binary plays it, with a goal for each.
fn heals(root: &Path) -> Measured {
    let test =
        ["test", "--release", "--quiet", "-p", "understudy-cli", "--test", "heals", "--", "--nocapture"];
    let output = match Command::new("cargo").args(test).current_dir(root).output() {
        Ok(output) => output,
        Err(error) => return Measured { text: String::new(), wrong: vec![format!("heals: {error}")] },
    };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let mut heals = healed(&said);
    if !output.status.success() {
        heals.wrong.push(format!("heals: {said}"));
    }
    heals
}

/// What the test of heals said, for the document.
fn healed(said: &str) -> Measured {
    let times = said.lines().find_map(|line| line.split_once(HEALS)).map_or("", |(_, times)| times);
    let times: Vec<f64> = times.split_whitespace().filter_map(|time| time.parse().ok()).collect();
    let (Some(longest), Some(median)) = (times.iter().copied().reduce(f64::max), median(times.clone()))
    else {
        return Measured { text: String::new(), wrong: vec!["heals: no figures".into()] };
    };
    let text = format!(
        "\nTwo of three nodes are cut off until the third one may acknowledge nothing, and healed, {} times in a row \
         (`crates/cli/tests/heals.rs`). From the heal to the first write: median {} ms, longest {} ms, goal {} ms each.\n",
        times.len(),
        whole(median),
        whole(longest),
        whole(HEAL_GOAL)
    );
    let late = times.iter().filter(|time| **time > HEAL_GOAL).count();
    let wrong = match late {
        0 => Vec::new(),
        _ => vec![format!("{late} first writes after a heal took longer than {} ms", whole(HEAL_GOAL))],
    };
    Measured { text, wrong }
}

fn policies(root: &Path) -> Result<Measured, String> {
    let mut runs = Runs::new();
    let mut wrong = Vec::new();
    for policy in POLICIES {
        let arguments = ["check", "--seconds", SECONDS, "--policy", policy, "--json"];
        let (objects, good) = understudy(root, &arguments)?;
        let run = objects.into_iter().next().ok_or("no figures")?;
        if !good {
            wrong.push(format!("{policy}: {}", what_is_wrong(&run)));
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
    text.push_str(GAPS);
    let _ = write!(text, "{}\n{}\n", gaps(&runs, &WAITING), missed(&runs, &WAITING));
    Ok(Measured { text, wrong })
}

/// Why a run is not good: its history, or goals that it missed.
fn what_is_wrong(run: &Value) -> String {
    if run["findings"].as_array().is_some_and(|findings| !findings.is_empty()) {
        return format!("the history is wrong, see {}", run["history"]);
    }
    let missed = run["missed_goals"].as_array().into_iter().flatten().filter_map(Value::as_str);
    format!("goals were missed: {}", missed.collect::<Vec<_>>().join("; "))
}

/// Transfers over all partitions, and snapshots of all accounts. A run that could not be played to its end
/// takes nothing away from the others.
fn bank(root: &Path) -> Measured {
    let mut runs = Runs::new();
    let mut wrong = Vec::new();
    for policy in GLOBAL {
        let arguments =
            ["check", "--transactions", "global", "--seconds", SECONDS, "--policy", policy, "--json"];
        let ended = understudy(root, &arguments);
        match ended.map(|(objects, good)| (objects.into_iter().next(), good)) {
            Ok((Some(run), good)) => {
                if !good {
                    wrong.push(format!(
                        "the bank under {policy}: the history is wrong, see {}",
                        run["history"]
                    ));
                }
                runs.push((policy, run));
            }
            Ok((None, _)) => wrong.push(format!("the bank under {policy}: no figures")),
            Err(reason) => wrong.push(format!("the bank under {policy}: {reason}")),
        }
    }
    let mut text = format!(
        "\n`check --transactions global --seconds {SECONDS}` with all faults in turn, also of the controller that plans, and every other \
         one of the node with the transaction manager: a bank of four partitions. Its total must be the same in every snapshot, and \
         nothing that was acknowledged may be lost, whatever the policy underneath.\n\n{}",
        transfers(&runs)
    );
    text.push_str(BANK_GAPS);
    let _ = write!(text, "{}\n{}\n", gaps(&runs, &[]), missed(&runs, &[]));
    Measured { text, wrong }
}

/// What became of transfers and snapshots, a row for each policy.
fn transfers(runs: &[(&str, Value)]) -> String {
    let mut text = format!(
        "| policy | committed | aborted | unknown | snapshots read | failovers | longest gap, ms | verdict |\n{}|\n",
        "| --- ".repeat(8)
    );
    for (policy, run) in runs {
        let of = |path: &str| shown(figure(run, path));
        let all = run["gaps"].as_array().into_iter().flatten();
        let longest = all.filter_map(|gap| figure(gap, "/longest_ms")).reduce(f64::max);
        let found = match run["good"] == true {
            true => "good".to_string(),
            false => format!("**wrong**: {}", run["findings"].as_array().map_or(0, Vec::len)),
        };
        let _ = writeln!(
            text,
            "| {policy} | {} | {} | {} | {} | {} | {} | {found} |",
            of("/bank/committed"),
            of("/bank/aborted"),
            of("/unknown"),
            of("/bank/snapshots"),
            of("/failovers"),
            shown(longest.map(f64::round)),
        );
    }
    text
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

/// What a kind of fault came to under a policy.
struct Gap {
    /// The longest one, milliseconds.
    ms: f64,
    /// The goal of this kind, if it has one.
    goal: Option<f64>,
    /// Under this policy it is not applicable.
    waits: bool,
}

impl Gap {
    /// Of a run; none where this kind was not played. `waits`: its failovers wait for the old primary.
    fn of(waits: bool, run: &Value, kind: &Value) -> Option<Gap> {
        let all = run["gaps"].as_array()?;
        let gap = all.iter().find(|gap| gap["fault"] == kind["fault"] && gap["shape"] == kind["shape"])?;
        let path = if gap["shape"] == "two" { "/healed_ms" } else { "/longest_ms" };
        Some(Gap { ms: figure(gap, path)?, goal: figure(gap, "/goal_ms"), waits })
    }

    fn missed_goal(&self) -> Option<f64> {
        self.goal.filter(|goal| !self.waits && self.ms > *goal)
    }

    fn cell(&self) -> String {
        let ms = whole(self.ms);
        match (self.goal, self.missed_goal()) {
            (None, _) => ms,
            (Some(_), Some(_)) => format!("**{ms} missed**"),
            (Some(_), None) if self.waits => format!("{ms} n/a"),
            (Some(_), None) => format!("{ms} met"),
        }
    }
}

fn whole(ms: f64) -> String {
    shown(Some(ms.round()))
}

/// The kinds of faults, in the order in which they were played.
fn kinds(runs: &[(&str, Value)]) -> Vec<Value> {
    runs.first().and_then(|(_, run)| run["gaps"].as_array().cloned()).unwrap_or_default()
}

fn name(kind: &Value) -> &str {
    kind["fault"].as_str().unwrap_or("?")
}

/// A row for each kind of fault with its goal, a column for each policy; those of `waiting` have no goal.
fn gaps(runs: &[(&str, Value)], waiting: &[&str]) -> String {
    let policies: Vec<&str> = runs.iter().map(|(policy, _)| *policy).collect();
    let mut text =
        format!("| fault | goal | {} |\n{}|\n", policies.join(" | "), "| --- ".repeat(2 + runs.len()));
    for kind in &kinds(runs) {
        let cell = |(policy, run): &(&str, Value)| {
            let gap = Gap::of(waiting.contains(policy), run, kind);
            gap.map_or_else(|| "-".to_string(), |gap| gap.cell())
        };
        let cells: Vec<String> = runs.iter().map(cell).collect();
        let goal = figure(kind, "/goal_ms").map_or_else(|| "none".to_string(), whole);
        let _ = writeln!(text, "| {} | {goal} | {} |", name(kind), cells.join(" | "));
    }
    text
}

/// The goals that were missed, in a sentence.
fn missed(runs: &[(&str, Value)], waiting: &[&str]) -> String {
    let kinds = kinds(runs);
    let each = runs.iter().flat_map(|(policy, run)| kinds.iter().map(move |kind| (*policy, run, kind)));
    let missed: Vec<String> = each
        .filter_map(|(policy, run, kind)| {
            let gap = Gap::of(waiting.contains(&policy), run, kind)?;
            let goal = whole(gap.missed_goal()?);
            Some(format!("`{policy}` with {}: {} ms, goal {goal}", name(kind), whole(gap.ms)))
        })
        .collect();
    match missed.is_empty() {
        true => "No goal was missed.".to_string(),
        false => format!("Missed goals: {}.", missed.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_missed_goal_is_shown_and_where_the_old_primary_is_waited_for_there_is_none() {
        let gap = |fault, shape, [longest, healed]: [f64; 2], goal: Option<f64>| {
            let mut gap = json!({ "fault": fault, "shape": shape, "goal_ms": goal });
            (gap["longest_ms"], gap["healed_ms"]) = (longest.into(), healed.into());
            gap
        };
        let run = |kill| {
            let one = gap("kill", "one", [kill, 0.0], Some(400.0));
            let two = gap("kill and stop", "two", [2300.0, 812.6], Some(1000.0));
            json!({ "gaps": [one, two, gap("kill, then stop", "again", [2000.0, 0.0], None)] })
        };
        let runs = [("durable", run(312.4)), ("semi", run(455.0)), ("async", run(1723.0))];
        let expected = "\
            | fault | goal | durable | semi | async |\n\
            | --- | --- | --- | --- | --- |\n\
            | kill | 400 | 312 met | **455 missed** | 1723 n/a |\n\
            | kill and stop | 1000 | 813 met | 813 met | 813 n/a |\n\
            | kill, then stop | none | 2000 | 2000 | 2000 |\n";
        assert_eq!(gaps(&runs, &WAITING), expected);
        assert_eq!(missed(&runs, &WAITING), "Missed goals: `semi` with kill: 455 ms, goal 400.");
        assert_eq!(missed(&runs[..1], &WAITING), "No goal was missed.");
        // Over global transactions nobody waits.
        let both = "`semi` with kill: 455 ms, goal 400; `async` with kill: 1723 ms, goal 400.";
        assert_eq!(missed(&runs, &[]), format!("Missed goals: {both}"));
        assert!(gaps(&runs, &[]).contains("**1723 missed** |"));
    }

    #[test]
    fn what_is_wrong_is_the_history_or_a_goal() {
        let run = |findings: &[&str]| json!({ "findings": findings, "history": "wrong.txt", "missed_goals": ["kill: 455", "cut: 401"] });
        assert_eq!(what_is_wrong(&run(&[])), "goals were missed: kill: 455; cut: 401");
        assert_eq!(what_is_wrong(&run(&["one"])), "the history is wrong, see \"wrong.txt\"");
    }

    #[test]
    fn each_first_write_after_a_heal_has_its_goal() {
        let good = healed("running 1 test\nheals, ms: 210 480 300 222 251 260\n.\n");
        assert!(good.text.contains("6 times in a row") && good.wrong.is_empty(), "{:?}", good.wrong);
        assert!(good.text.contains("median 251 ms, longest 480 ms, goal 500 ms"), "{}", good.text);
        let late = healed("heals, ms: 210 501 999");
        assert_eq!(late.wrong, ["2 first writes after a heal took longer than 500 ms"]);
        assert_eq!(healed("error").wrong, ["heals: no figures"]);
    }

    #[test]
    fn a_bank_shows_what_became_of_transfers_and_whether_it_is_good() {
        let run = |good: bool, findings: &[&str]| {
            json!({
                "good": good, "findings": findings, "unknown": 7, "failovers": 31,
                "bank": { "committed": 9_000, "aborted": 800, "snapshots": 4_000 },
                "gaps": [{ "longest_ms": 312.4 }, { "longest_ms": 1_723.6 }],
            })
        };
        let runs = [("durable", run(true, &[])), ("async", run(false, &["one", "two"]))];
        let expected = "\
            | policy | committed | aborted | unknown | snapshots read | failovers | longest gap, ms | verdict |\n\
            | --- | --- | --- | --- | --- | --- | --- | --- |\n\
            | durable | 9000 | 800 | 7 | 4000 | 31 | 1724 | good |\n\
            | async | 9000 | 800 | 7 | 4000 | 31 | 1724 | **wrong**: 2 |\n";
        assert_eq!(transfers(&runs), expected);
    }
}
