//! The engine on every state that a power loss can leave, and under failing system calls: what `cargo test`
//! looks at, and much more.

use super::Measured;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Lines with this in front are for the document.
const MARK: &str = "crash: ";

pub(super) fn all(root: &Path) -> Result<Measured, String> {
    let started = Instant::now();
    let output = Command::new("cargo")
        .args(["test", "--quiet", "-p", "understudy-crash", "--test", "crash", "--", "--nocapture"])
        .env("UNDERSTUDY_CRASH_LONG", "1")
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> =
        said.lines().filter_map(|line| line.split_once(MARK)).map(|(_, line)| line).collect();
    if lines.is_empty() {
        return Err(format!("nothing was looked at:\n{said}"));
    }
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    let text = format!(
        "States of the LSM engine's files that a power loss can leave, answers to failing calls, and how bugs that were put in \
         are found, in {minutes:.1} minutes (`tools/crash`).\n\n```text\n{}\n```\n",
        lines.join("\n")
    );
    let wrong = if output.status.success() { Vec::new() } else { vec![said.into_owned()] };
    Ok(Measured { text, wrong })
}
