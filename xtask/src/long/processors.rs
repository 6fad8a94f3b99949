//! The goals of processor time in one place: a row for each line of the table of "Half the processor time",
//! from one run of every bench that has one of them.

use super::{Measured, costs, figure, shown, understudy};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

/// What is run.
const RUNS: [&str; 7] = [
    "bench compare --peer postgres --only durable-vs-postgres-on --json",
    "bench compare --peer postgres --only durable-vs-postgres-on --clients 64 --json",
    "bench compare --peer postgres --only durable-vs-postgres-on --clients 1 --json",
    "bench compare --peer redis --only durable,semi --json",
    "bench ycsb --updates 100 --only semi,async --json",
    "bench sql --only select,update-durable,psql --json",
    "bench executors --only executors-put --json",
];

/// A row of the table.
struct Row {
    /// What it is called, with its number in the table.
    title: &'static str,
    /// By which of the runs.
    run: usize,
    /// The line that has it.
    line: &'static str,
    /// Which of the line's goals, as its JSON has it.
    what: &'static str,
}

const fn row(title: &'static str, run: usize, line: &'static str, what: &'static str) -> Row {
    Row { title, run, line, what }
}

const CPU: &str = "processor time per operation, us";
const RATIO: &str = "ratio";
const POSTGRES: &str = "durable-vs-postgres-on";
const OWN: &str = "durable-vs-postgres-on-own-connections";

const ROWS: [Row; 17] = [
    row("1. `durable` lsm, ten clients, processor time per put, us", 0, POSTGRES, CPU),
    row("2. commits per fsync of a node, ten clients", 0, POSTGRES, "commits per fsync of a node"),
    row("3. `durable` over PostgreSQL 15 `on`, two standbys, ten clients", 0, POSTGRES, RATIO),
    row("4. the same with a connection per client", 0, OWN, RATIO),
    row("5. 64 clients", 1, POSTGRES, RATIO),
    row("5. 64 clients, with a connection per client", 1, OWN, RATIO),
    row("6. one client alone", 2, POSTGRES, RATIO),
    row("7. p99 of `durable` lsm, ten clients, over PostgreSQL's", 0, POSTGRES, "p99 over the other side's"),
    row("8. `durable` over Redis 7 appendfsync always, WAIT 2", 3, "durable-vs-redis-always-wait2", RATIO),
    row("9. `semi` in memory over Redis 7 WAIT 2 without a file", 3, "semi-vs-redis-nofile-wait2", RATIO),
    row("10. `semi` put, processor time, us", 4, "semi-vs-none-u100", CPU),
    row("10. `async` put, processor time, us", 4, "async-vs-none-u100", CPU),
    row(
        "10. `none` put, processor time, us",
        4,
        "async-vs-none-u100",
        "processor time per operation of the other side, us",
    ),
    row("11. SQL UPDATE by key, `durable`, over PostgreSQL `on`", 5, "update-durable-vs-postgres-on", RATIO),
    row("12. SQL SELECT by key over PostgreSQL", 5, "select-vs-postgres", RATIO),
    row("13. one node, two executors on two cores over one on one core", 6, "executors-put", RATIO),
    row(
        "14. psql from start to end, ms over the same with PostgreSQL",
        5,
        "psql-first-result",
        "longer than the other side, ms",
    ),
];

/// Runs all, and writes the table, what an operation costs in each line, and the sums by arithmetic.
pub(super) fn all(root: &Path) -> Result<Measured, String> {
    let (mut runs, mut wrong) = (Vec::new(), Vec::new());
    for run in RUNS {
        let arguments: Vec<&str> = run.split(' ').collect();
        match understudy(root, &arguments) {
            Ok((lines, good)) => {
                wrong.extend((!good).then(|| format!("`{run}` failed")));
                runs.push(lines);
            }
            Err(why) => {
                wrong.push(why);
                runs.push(Vec::new());
            }
        }
    }
    let mut text = table(&runs);
    let told: Vec<String> = RUNS.iter().map(|run| format!("`understudy {run}`")).collect();
    let _ = writeln!(text, "\nBy {}.", told.join(", "));
    for (run, lines) in RUNS.iter().zip(&runs) {
        let tables = [costs::table(lines), costs::sums(lines)];
        for table in tables.iter().filter(|table| !table.is_empty()) {
            let _ = writeln!(text, "\n`{run}`: {table}");
        }
    }
    Ok(Measured { text, wrong })
}

/// The table, and the reasons of what was missed below it.
fn table(runs: &[Vec<Value>]) -> String {
    let mut text =
        String::from("| line | least | median | most | goal | |\n| --- | --- | --- | --- | --- | --- |\n");
    let mut reasons = String::new();
    for row in &ROWS {
        let line = runs.get(row.run).and_then(|lines| lines.iter().find(|line| line["name"] == row.line));
        let goal =
            line.and_then(|line| line["goals"].as_array()?.iter().find(|goal| goal["what"] == row.what));
        let Some(goal) = goal else {
            let why = line.and_then(|line| line["skipped"].as_str()).unwrap_or("the run did not tell it");
            let _ = writeln!(text, "| {} | - | - | - | | not measured: {why} |", row.title);
            continue;
        };
        let [least, median, most, limit] =
            ["min", "value", "max", "limit"].map(|name| shown(figure(goal, &format!("/{name}"))));
        let is_met = goal["met"] == true;
        let bound = if goal["at_least"] == true { "at least" } else { "at most" };
        let result = if is_met { "met" } else { "**missed**" };
        let _ =
            writeln!(text, "| {} | {least} | {median} | {most} | {bound} {limit} | {result} |", row.title);
        let reason = line.and_then(|line| line["reason"].as_str()).filter(|_| !is_met);
        if let Some(reason) = reason {
            let _ = writeln!(reasons, "- {}: {reason}", row.title);
        }
    }
    if !reasons.is_empty() {
        let _ = write!(text, "\nWhy goals were missed:\n\n{reasons}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_of_the_fourteen_lines_has_a_row() {
        let numbers: Vec<&str> = ROWS.iter().filter_map(|row| row.title.split('.').next()).collect();
        for number in 1..=14 {
            assert!(numbers.contains(&number.to_string().as_str()), "{number} of {numbers:?}");
        }
        assert!(ROWS.iter().all(|row| row.run < RUNS.len()));
    }

    #[test]
    fn a_row_has_its_figures_and_the_reason_where_it_is_missed() {
        let goal = |what: &str, value: f64, at_least: bool, met: bool| {
            json!({ "what": what, "value": value, "min": value - 1.0, "max": value + 1.0, "limit": 5.0,
                "at_least": at_least, "met": met })
        };
        let line = json!({
            "name": POSTGRES, "reason": "by counts it costs 80 us",
            "goals": [goal(CPU, 80.0, false, false), goal("commits per fsync of a node", 9.0, true, true)],
        });
        let mut runs = vec![Vec::new(); RUNS.len()];
        runs[0].push(line);
        runs[5].push(json!({ "name": "select-vs-postgres", "skipped": "it is not installed" }));
        let text = table(&runs);
        for expected in [
            "| 1. `durable` lsm, ten clients, processor time per put, us | 79 | 80 | 81 | at most 5 | **missed** |\n",
            "| 2. commits per fsync of a node, ten clients | 8 | 9 | 10 | at least 5 | met |\n",
            "| 12. SQL SELECT by key over PostgreSQL | - | - | - | | not measured: it is not installed |\n",
            "| 6. one client alone | - | - | - | | not measured: the run did not tell it |\n",
            "\n- 1. `durable` lsm, ten clients, processor time per put, us: by counts it costs 80 us\n",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
    }
}
