//! `cargo xtask ci` is the one gate; `cargo xtask long` runs the full numbers and writes `docs/evidence.md`.

mod long;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

const HELP: &str = "cargo xtask <command>

  ci      format, clippy, tidy, tests (what .ci/run calls)
  tidy    only the project's own rules: floors, sizes, documents
  long    20,000 simulator seeds, every plant, every figure, or only the parts named; writes docs/evidence.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("ci") => ci(),
        Some("tidy") => tidy::check(&root()),
        Some("long") => long::run(&root(), &arguments[1..]),
        _ => {
            println!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_path_buf()
}

/// Everything that must hold before a change lands, cheapest first.
fn ci() -> Result<(), String> {
    step("format", || run("cargo", &["fmt", "--all", "--check"]))?;
    step("tidy", || tidy::check(&root()))?;
    // This crate is no default member, so its own tests are asked for by name.
    step("tests of these checks", || run("cargo", &["test", "--quiet", "-p", "xtask"]))?;
    step("clippy", || {
        run("cargo", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
    })?;
    step("tests", tests)?;
    step("demo", || run("cargo", &["run", "--release", "--quiet", "--", "demo", "--short", "--seconds", "9"]))
}

/// All tests; then those that could not be run here are named.
fn tests() -> Result<(), String> {
    let list = root().join("target/skipped-tests.txt");
    // There is none if nothing was skipped the last time.
    let _ = std::fs::remove_file(&list);
    let done = run_with("cargo", &["test"], &[("UNDERSTUDY_SKIPPED", list.as_path())]);
    print!("{}", std::fs::read_to_string(&list).unwrap_or_default());
    done
}

fn step(name: &str, act: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    println!("== {name}");
    let started = Instant::now();
    act().map_err(|reason| format!("{name}: {reason}"))?;
    println!("== {name}: ok in {} s", started.elapsed().as_secs());
    Ok(())
}

/// Runs a command in the root. Its output is the reader's.
fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    run_with(program, arguments, &[])
}

/// The same with variables of its environment.
fn run_with(program: &str, arguments: &[&str], environment: &[(&str, &Path)]) -> Result<(), String> {
    let status = Command::new(program)
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root())
        .status()
        .map_err(|error| format!("cannot start {program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{program} {}` failed", arguments.join(" "))) }
}
