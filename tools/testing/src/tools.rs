//! Programs and packages that tests use and that a machine may lack (`docs/testing.md`).

use std::fs::File;
use std::io::Write;

/// Names a file to which a line is added for each test that is skipped: what a test prints nobody sees as
/// long as it succeeds. `cargo xtask ci` shows them.
pub const SKIPPED: &str = "UNDERSTUDY_SKIPPED";
/// Names the tools that must be there, separated by commas; `required`: all of them.
pub const TOOLS: &str = "UNDERSTUDY_TOOLS";

/// Says that a test, or a part of one, is skipped, since a tool is not there. `.ci/run` and
/// `docs/testing.md` have the tools' names.
///
/// # Panics
///
/// If the machine is said to have it.
#[track_caller]
pub fn missing(tool: &str, why: &str) {
    let wanted = std::env::var(TOOLS).unwrap_or_default();
    assert!(!is_required(&wanted, tool), "{tool} must be there ({TOOLS}={wanted}): {why}");
    println!("skipped: {why}");
    if let Some(path) = std::env::var_os(SKIPPED) {
        let list = File::options().create(true).append(true).open(path);
        list.and_then(|mut list| writeln!(list, "skipped: {tool}: {why}")).expect("notes it");
    }
}

/// True if what [`TOOLS`] says demands this tool.
fn is_required(wanted: &str, tool: &str) -> bool {
    wanted.split(',').map(str::trim).any(|name| name == "required" || name == tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_required_by_their_whole_names() {
        for (wanted, tool, required) in [
            ("", "psql", false),
            ("psql", "psql", true),
            ("etcd, psql", "psql", true),
            ("psql", "pgbench", false),
            ("psqlx,xpsql", "psql", false),
            ("required", "psql", true),
        ] {
            assert_eq!(is_required(wanted, tool), required, "{wanted:?} {tool}");
        }
    }
}
