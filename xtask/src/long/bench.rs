//! The benches' figures: every line with its ratio, and the reason where a goal is missed.

use super::{Measured, costs, figure, shown, understudy};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

pub(super) fn log(root: &Path) -> Result<Measured, String> {
    measure(root, &["bench", "log", "--json"])
}

pub(super) fn ycsb(root: &Path) -> Result<Measured, String> {
    measure(root, &["bench", "ycsb", "--json"])
}

pub(super) fn workloads(root: &Path) -> Result<Measured, String> {
    measure(root, &["bench", "ycsb", "--workload", "a,b,c,d,e,f", "--json"])
}

pub(super) fn sweep(root: &Path) -> Result<Measured, String> {
    measure(root, &["bench", "ycsb", "--sweep", "--cpu-quota", "30", "--json"])
}

pub(super) fn redis(root: &Path) -> Result<Measured, String> {
    measure(root, &["bench", "compare", "--peer", "redis", "--json"])
}

pub(super) fn postgres(root: &Path) -> Result<Measured, String> {
    measure(root, &["bench", "compare", "--peer", "postgres", "--json"])
}

/// Policies, peers and SQL with one client and with 64; with ten they have parts of their own.
pub(super) fn clients(root: &Path) -> Result<Measured, String> {
    let benches = [
        "bench ycsb --updates 100",
        "bench compare --peer redis",
        "bench compare --peer postgres",
        "bench sql --only select,update",
    ];
    let with = |clients: u32| benches.map(|bench| format!("{bench} --clients {clients} --json"));
    let all = [with(1), with(64)].concat();
    several(root, &all.iter().map(String::as_str).collect::<Vec<_>>())
}

/// What a node makes of a second core.
pub(super) fn executors(root: &Path) -> Result<Measured, String> {
    measure(root, &["bench", "executors", "--json"])
}

pub(super) fn sql(root: &Path) -> Result<Measured, String> {
    measure(root, &["bench", "sql", "--json"])
}

/// Without rows of other warehouses, in partitions by warehouse; then with as many as the specification has,
/// by global transactions.
pub(super) fn tpcc(root: &Path) -> Result<Measured, String> {
    several(root, &["bench tpcc --json", "bench tpcc --remote 15 --json"])
}

/// Tables in a database, and pgbench beside PostgreSQL; its bank over six partitions, with ten million
/// accounts.
pub(super) fn databases(root: &Path) -> Result<Measured, String> {
    let but_global = "put-in,get-in,get-among,pgbench-tpcb-vs,pgbench-select,pgbench-init";
    several(
        root,
        &[
            &format!("bench databases --json --only {but_global}"),
            "bench databases --json --only pgbench-tpcb-global --scale 100",
        ],
    )
}

/// The H-Store document's: calls, the ladder with calls shipped, TPC-C in memory with ten terminals for each
/// warehouse, as the specification has them.
pub(super) fn procedures(root: &Path) -> Result<Measured, String> {
    let all = [
        "bench calls --json",
        "bench ycsb --sweep --by procedure --ship calls --updates 100 --cpu-quota 30 --rounds 5 --seconds 2 --json",
        "bench tpcc --by procedure --json",
        "bench tpcc --by procedure --engine memory --clients 20 --json",
    ];
    several(root, &all)
}

/// One bench after the other.
fn several(root: &Path, all: &[&str]) -> Result<Measured, String> {
    let mut both = Measured { text: String::new(), wrong: Vec::new() };
    for words in all {
        let measured = measure(root, &words.split(' ').collect::<Vec<_>>())?;
        let _ = writeln!(both.text, "{}\n", measured.text.trim_end());
        both.wrong.extend(measured.wrong);
    }
    Ok(both)
}

fn measure(root: &Path, arguments: &[&str]) -> Result<Measured, String> {
    let (lines, good) = understudy(root, arguments)?;
    let rounds = lines.iter().filter_map(|line| line["rounds"].as_u64()).max().unwrap_or(0);
    let mut text = format!(
        "`understudy {}`, {rounds} rounds of each side. In each cell: ours / what it is compared with.\n\n\
         | line | operations/s | ratio (least to most) | goal | CPU us/op | wire bytes/op | commits/fsync of one node | p50 us | p99 us |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        arguments.join(" ")
    );
    let mut remarks = String::new();
    for line in &lines {
        let name = line["name"].as_str().unwrap_or("?");
        match line["skipped"].as_str() {
            Some(why) => {
                let _ = writeln!(text, "| {name} | not measured: {why} {}", "| ".repeat(8).trim_end());
            }
            None => {
                let _ = writeln!(text, "{}", row(name, line));
                let _ = writeln!(remarks, "{}", remark(name, line));
            }
        }
    }
    let _ = writeln!(text, "\n{remarks}");
    for table in [costs::table(&lines), costs::sums(&lines)].iter().filter(|table| !table.is_empty()) {
        let _ = writeln!(text, "{table}");
    }
    let wrong = if good { Vec::new() } else { vec!["the bench failed".to_string()] };
    Ok(Measured { text, wrong })
}

fn row(name: &str, line: &Value) -> String {
    let pair = |path: &str| {
        let ours = shown(figure(&line["ours"], path));
        match line["base"].is_null() {
            true => ours,
            false => format!("{ours} / {}", shown(figure(&line["base"], path))),
        }
    };
    let ratio = match figure(line, "/ratio/median") {
        None => "-".to_string(),
        Some(ratio) => format!(
            "{ratio:.2} ({} to {})",
            shown(figure(line, "/ratio/min")),
            shown(figure(line, "/ratio/max"))
        ),
    };
    let goal = match (figure(line, "/goal"), line["met"].as_bool()) {
        (Some(goal), Some(true)) => format!("{goal}: met"),
        (Some(goal), _) => format!("{goal}: **missed**"),
        (None, _) => String::new(),
    };
    format!(
        "| {name} | {} | {ratio} | {goal} | {} | {} | {} | {} | {} |",
        pair("/ops_s/median"),
        pair("/cpu_us_per_op"),
        pair("/wire_bytes_per_op"),
        pair("/commits_per_fsync_of_one_node"),
        pair("/p50_us"),
        pair("/p99_us"),
    )
}

/// What stands on the two sides, and why a goal was missed.
fn remark(name: &str, line: &Value) -> String {
    let side = |side: &str| line[side]["label"].as_str().unwrap_or("").to_string();
    let beside = if line["base"].is_null() { String::new() } else { format!(" / {}", side("base")) };
    let reason = line["reason"].as_str().map_or(String::new(), |reason| format!(". Missed: {reason}"));
    let (ours, goals, ends) = (side("ours"), goals(line), ends(&line["workload"]));
    format!("- `{name}`: {ours}{beside}{goals}{ends}{reason}")
}

/// Goals that are about something else than the ratio, which has a column.
fn goals(line: &Value) -> String {
    let others = line["goals"].as_array().into_iter().flatten().filter(|goal| goal["what"] != "ratio");
    let told = others.map(|goal| {
        let of = |name: &str| shown(figure(goal, &format!("/{name}")));
        format!(
            ". {}: {} ({} to {}), goal {} {}: {}",
            goal["what"].as_str().unwrap_or("?"),
            of("value"),
            of("min"),
            of("max"),
            if goal["at_least"] == true { "at least" } else { "at most" },
            of("limit"),
            if goal["met"] == true { "met" } else { "**missed**" }
        )
    });
    told.collect()
}

/// What became of transactions of both sides, as far as the workload tells: how often one of them was done
/// again, and how many failed.
fn ends(workload: &Value) -> String {
    let of = |side: &str, what: &str| figure(workload, &format!("/done_{side}/{what}"));
    let ends = || {
        let pair = |what: &str| {
            Some(format!("{} / {}", shown(Some(of("ours", what)?)), shown(Some(of("base", what)?))))
        };
        let (aborts, failed) = (pair("aborts_per_transaction")?, pair("failed")?);
        Some(format!(". Aborts of a transaction: {aborts}; failed: {failed}"))
    };
    ends().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn goals_beside_the_ratio_are_in_the_remark() {
        let goal = |what: &str, met: bool| json!({ "what": what, "value": 80.0, "min": 79.0, "max": 81.5, "limit": 75.0, "at_least": false, "met": met });
        let line = json!({ "ours": { "label": "us" }, "goals": [goal("ratio", true), goal("us", false)] });
        let told = "- `put`: us. us: 80 (79 to 81.50), goal at most 75: **missed**";
        assert_eq!(remark("put", &line), told);
    }

    #[test]
    fn aborts_of_both_sides_are_in_the_remark() {
        let done = |aborts: f64, failed: u64| json!({ "transactions": 500, "aborts_per_transaction": aborts, "failed": failed });
        let line = |workload: Value| json!({ "ours": { "label": "us" }, "base": { "label": "them" }, "workload": workload });
        let with = line(json!({ "scale": 100, "done_ours": done(0.25, 1), "done_base": done(0.0, 0) }));
        let told = "- `tpcb`: us / them. Aborts of a transaction: 0.25 / 0; failed: 1 / 0";
        assert_eq!(remark("tpcb", &with), told);
        assert_eq!(remark("tpcb", &line(json!({ "scale": 100 }))), "- `tpcb`: us / them");
    }
}
