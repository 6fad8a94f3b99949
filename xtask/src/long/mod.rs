//! The full numbers: seeds, plants and figures, written into `docs/evidence.md` with the commit they were
//! taken on.

mod bench;
mod check;
mod costs;
mod crash;
mod demo;
mod document;
mod gleambook;
mod processors;
mod sim;

use document::Document;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// A part: its name, its heading, and what measures it. What it measured is text even where a goal was
/// missed.
type Part = (&'static str, &'static str, fn(&Path) -> Result<Measured, String>);

const PARTS: [Part; 21] = [
    ("sim", "Simulator", sim::seeds),
    ("plants", "Planted bugs", sim::plants),
    ("crash", "Power losses and failing calls", crash::all),
    ("check", "Histories of real clusters", check::all),
    ("demo", "Failover of the demo", demo::failovers),
    ("steady", "Full load without a fault", demo::steady),
    ("log", "The log", bench::log),
    ("ycsb", "Policies", bench::ycsb),
    ("workloads", "YCSB's workloads", bench::workloads),
    ("sweep", "The H-Store document's figures", bench::sweep),
    ("redis", "Beside Redis", bench::redis),
    ("postgres", "Beside PostgreSQL", bench::postgres),
    ("clients", "With one client and with 64", bench::clients),
    ("sql", "SQL beside PostgreSQL", bench::sql),
    ("executors", "Executors on cores of their own", bench::executors),
    ("processors", "Half the processor time", processors::all),
    ("tpcc", "TPC-C beside PostgreSQL", bench::tpcc),
    ("databases", "Databases, and pgbench beside PostgreSQL", bench::databases),
    ("procedures", "Procedures", bench::procedures),
    ("gleambook", "The AsterixDB document's experiments", gleambook::all),
    ("txn", "Transactions over partitions", gleambook::txn),
];

/// What a part found out.
pub struct Measured {
    /// Markdown.
    text: String,
    /// What must not be and was. A missed speed goal is not among it.
    wrong: Vec<String>,
}

/// Runs everything, or only the parts named. What is measured anew takes the place of what the document had.
pub fn run(root: &Path, only: &[String]) -> Result<(), String> {
    if let Some(other) = only.iter().find(|name| PARTS.iter().all(|(part, ..)| part != name)) {
        let names: Vec<&str> = PARTS.iter().map(|(name, ..)| *name).collect();
        return Err(format!("there is no part '{other}'; there are {}", names.join(", ")));
    }
    let path = root.join("docs/evidence.md");
    let order: Vec<&str> = PARTS.iter().map(|(_, heading, _)| *heading).collect();
    let mut document = Document::read(&path, &order);
    let commit = commit(root)?;
    let mut failed = Vec::new();
    for (name, heading, measure) in PARTS {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        eprintln!("== {name}");
        match measure(root) {
            Ok(Measured { text, wrong }) => {
                document.set(heading, &format!("On commit `{commit}`. {text}"));
                failed.extend(wrong.iter().map(|what| format!("{name}: {what}")));
            }
            Err(reason) => failed.push(format!("{name}: {reason}")),
        }
        // What was measured is kept, whatever comes after it.
        document.write(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// The commit that is measured, and whether there is something on top of it.
fn commit(root: &Path) -> Result<String, String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).map_err(|error| format!("git: {error}"))?;
    let sources = git(&["status", "--porcelain", "--", "crates", "tools", "Cargo.toml", "Cargo.lock"]);
    match sources.map_err(|error| format!("git: {error}"))?.is_empty() {
        true => Ok(commit),
        false => Ok(format!("{commit} with changes")),
    }
}

/// Runs the project's binary; gives the JSON objects that it printed, and whether it succeeded.
fn understudy(root: &Path, arguments: &[&str]) -> Result<(Vec<Value>, bool), String> {
    run_build(root, &[], arguments)
}

/// As [`understudy`], with the build that has mutants: in a target directory of its own, so that nobody takes
/// it for the other.
fn understudy_of_mutants(root: &Path, arguments: &[&str]) -> Result<(Vec<Value>, bool), String> {
    run_build(root, &["--features", "mutants", "--target-dir", "target/mutants"], arguments)
}

fn run_build(root: &Path, build: &[&str], arguments: &[&str]) -> Result<(Vec<Value>, bool), String> {
    let output = Command::new("cargo")
        .args(["run", "--release", "--quiet"])
        .args(build)
        .arg("--")
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
    match objects.is_empty() {
        true => Err(format!("`understudy {}` printed no figures", arguments.join(" "))),
        false => Ok((objects, output.status.success())),
    }
}

/// The middle of some figures; the lower one of two.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// A figure of a JSON object, if it has it.
fn figure(object: &Value, path: &str) -> Option<f64> {
    object.pointer(path).and_then(Value::as_f64)
}

/// A figure for people: whole from 100 on, else with two digits; `-` for none.
fn shown(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.fract() == 0.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
    }
}
