//! The experiments of the AsterixDB replication document: a table for each, and its goals.

use super::{Measured, figure, shown, understudy};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

/// Columns that an experiment has if any of its points has them: figure and heading.
const COLUMNS: [(&str, &str); 45] = [
    ("records_per_s", "records/s"),
    ("cpu_us_per_record", "CPU us/record"),
    ("cluster_cpu_us_per_record", "of it nodes"),
    ("cpu_ratio", "CPU ratio"),
    ("throughput_ratio", "throughput ratio"),
    ("network_bytes_per_record", "network bytes/record"),
    ("log_bytes_per_record", "log bytes/record"),
    ("files_bytes_per_record", "shipped bytes/record"),
    ("file_bytes_per_record", "file bytes/record"),
    ("components", "components"),
    ("node_peak_bytes", "peak bytes of a node"),
    ("queries", "queries"),
    ("ingested_per_s", "ingested/s"),
    ("from_fault_ms", "from fault ms"),
    ("detect_ms", "detection ms"),
    ("seal_ms", "seal ms"),
    ("replay_ms", "replay ms"),
    ("estimated_replay_ms", "estimated ms"),
    ("first_write_ms", "first write ms"),
    ("replay_bytes", "replayed bytes"),
    ("log_bytes_of_node", "log bytes of a node"),
    ("others_longest_ms", "others' longest read ms"),
    ("shipped_bytes", "shipped bytes"),
    ("log_bytes", "log bytes"),
    ("in_sync_bytes", "bytes until in sync"),
    ("lead_back_s", "lead back s"),
    ("moves", "moves"),
    ("p99_ms", "p99 ms"),
    ("max_ms", "max ms"),
    ("move_s", "s per move"),
    ("moved_mb_per_s", "MB/s moved"),
    ("writes_per_s", "writes/s"),
    ("writes_per_s_moving", "writes/s while moving"),
    ("p50_ms", "p50 ms"),
    ("mean_ms", "mean ms"),
    ("cpu_us_per_txn", "CPU us/txn"),
    ("txn_per_fsync", "txn/fsync"),
    ("offered_s", "offered/s"),
    ("peak_s", "peak/s"),
    ("before_s", "txn/s before"),
    ("others_gap_ms", "others' longest gap ms"),
    ("own_back_ms", "its own back ms"),
    ("stall_ms", "longest without a commit ms"),
    ("most_ms", "longest txn ms"),
    ("unknown", "unknown"),
];

/// Goals that name a size of their own.
const LARGER: [(&str, &[&str]); 2] = [
    (
        "A gigabyte in each node, for its memory",
        &["--only", "ingestion-by-factor", "--records", "2700000", "--sizes", "20", "--rounds", "1"],
    ),
    (
        "Two gigabytes of which a node has missed a hundredth",
        &["--only", "failback", "--records", "5400000", "--sizes", "20", "--rounds", "1"],
    ),
];

pub(super) fn all(root: &Path) -> Result<Measured, String> {
    let arguments = ["bench", "gleambook", "--json"];
    let (points, good) = understudy(root, &[&arguments[..], &["--rounds", "3"]].concat())?;
    let mut text = format!(
        "`understudy {} --rounds 3`: {} records of 384 bytes in the largest data set. Data sets and memory components have the document's \
         proportions; three nodes share two processors. Medians of the rounds, with the least and the greatest.\n",
        arguments.join(" "),
        points.iter().filter_map(|point| point["records"].as_u64()).max().unwrap_or(0),
    );
    add_tables(&mut text, &points);
    let mut all_good = good;
    for (what, more) in LARGER {
        let (points, good) = understudy(root, &[&arguments[..], more].concat())?;
        let _ = writeln!(text, "\n{what}: `{}`.", more.join(" "));
        add_tables(&mut text, &points);
        all_good &= good;
    }
    let wrong = if all_good { Vec::new() } else { vec!["the bench failed".to_string()] };
    Ok(Measured { text, wrong })
}

/// The experiments of the document on transactional failure recovery, at its sizes, with two servers and with
/// three; then what tracking costs at heartbeats of a second, in twenty pairs, as its goal asks for.
const TXN: [&str; 3] = [
    "bench txn --paper --servers 2 --check --json",
    "bench txn --paper --servers 3 --check --json",
    "bench txn --paper --servers 2 --only interval --intervals 1000 --rounds 20 --check --json",
];

/// Global transactions. pgbench's TPC-B over six partitions is a line of the part `databases`.
pub(super) fn txn(root: &Path) -> Result<Measured, String> {
    let mut measured = Measured { text: String::new(), wrong: Vec::new() };
    for words in TXN {
        let arguments: Vec<&str> = words.split(' ').collect();
        let (points, good) = understudy(root, &arguments)?;
        let _ = writeln!(
            measured.text,
            "\n`understudy {words}`: medians of the rounds, with the least and the greatest; clients and servers share two processors.",
        );
        add_tables(&mut measured.text, &points);
        if !good {
            measured.wrong.push(format!("`{words}` failed"));
        }
    }
    measured.text.push_str(
        "\npgbench's TPC-B over six partitions, beside PostgreSQL: `cargo xtask long databases`.\n",
    );
    Ok(measured)
}

/// A table for each experiment, and its goals below.
fn add_tables(text: &mut String, points: &[Value]) {
    let mut names: Vec<&str> = Vec::new();
    for name in points.iter().filter_map(|point| point["name"].as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        let of_it: Vec<&Value> = points.iter().filter(|point| point["name"] == name).collect();
        let _ = writeln!(text, "\n### {name}\n\n{}", table(&of_it));
        for point in of_it {
            for goal in point["goals"].as_array().into_iter().flatten() {
                let _ = writeln!(text, "- {}", compared(point, goal));
            }
        }
    }
}

fn table(points: &[&Value]) -> String {
    let there = |name: &str| points.iter().any(|point| figure(point, &format!("/{name}")).is_some());
    let columns: Vec<(&str, &str)> = COLUMNS.into_iter().filter(|(name, _)| there(name)).collect();
    let increases = points.iter().any(|point| !point["increase_percent"].is_null());
    let mut head = vec!["at", "series", "time"];
    head.extend(increases.then_some("increase %"));
    head.extend(columns.iter().map(|(_, heading)| *heading));
    let mut text = format!("| {} |\n{}|\n", head.join(" | "), "| --- ".repeat(head.len()));
    for point in points {
        let name = |field: &str| point[field].as_str().unwrap_or("?").to_string();
        let mut row = vec![name("at"), name("series"), spread(&point["value"])];
        row.extend(increases.then(|| spread(&point["increase_percent"])));
        row.extend(columns.iter().map(|(name, _)| shown(figure(point, &format!("/{name}")))));
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

fn spread(spread: &Value) -> String {
    match spread["rounds"].as_array().map(Vec::len) {
        None => "-".into(),
        Some(1) => shown(figure(spread, "/median")),
        Some(_) => format!(
            "{} ({} to {})",
            shown(figure(spread, "/median")),
            shown(figure(spread, "/min")),
            shown(figure(spread, "/max"))
        ),
    }
}

fn compared(point: &Value, goal: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_string();
    format!(
        "{}, {}: {}: {}, goal at {} {}: {}",
        text(&point["at"]),
        text(&point["series"]),
        text(&goal["what"]),
        shown(figure(goal, "/value")),
        if goal["at_least"] == true { "least" } else { "most" },
        shown(figure(goal, "/limit")),
        if goal["met"] == true { "met" } else { "**missed**" },
    )
}
