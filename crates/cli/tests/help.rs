//! What the binary says about itself: every `--help`, against a file that people can review.
//!
//! `UPDATE=1 cargo test -p understudy-cli --test help` rewrites the file.

mod common;

use common::run;
use std::path::Path;

const COMMANDS: &[&str] = &[
    "",
    "demo",
    "check",
    "dev",
    "dev kill",
    "node",
    "node add",
    "node drain",
    "node remove",
    "controller",
    "controller rebuild",
    "init",
    "config check",
    "config show",
    "plan",
    "sim",
    "bench log",
    "bench ycsb",
    "bench compare",
    "bench sql",
    "bench gleambook",
    "backup create",
    "backup restore",
    "backup list",
    "backup verify",
    "scrub",
    "shell",
    "sql",
    "table create",
    "table list",
    "table alter",
    "table drop",
    "database create",
    "database list",
    "database alter",
    "database drop",
    "index create",
    "index drop",
    "index list",
    "procedure create",
    "procedure list",
    "procedure drop",
    "call",
    "txn status",
    "txn recover",
    "txn skip",
    "put",
    "insert",
    "get",
    "delete",
    "scan",
    "count",
    "load",
    "ingest",
    "status",
    "failover list",
    "partition list",
    "partition move",
    "partition recover",
    "partition tails",
    "partition tails export",
    "switchover",
    "log dump",
    "log verify",
    "version",
];

#[test]
fn every_help_is_as_reviewed() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut text = String::new();
    for command in COMMANDS {
        let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let ran = run(dir.path(), &words);
        assert_eq!(ran.status, 0, "{command}: {}", ran.err);
        text.push_str(&format!("$ understudy {}\n{}\n", words.join(" "), ran.out));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/help.txt");
    testing::expected::check(&path, |_| text);
}

#[test]
fn nothing_at_all_shows_the_help_and_fails() {
    let dir = tempfile::tempdir().expect("a directory");
    let ran = run(dir.path(), &[]);
    assert_eq!(ran.status, 2);
    assert!(ran.err.contains("Usage: understudy"), "{ran:?}");
}

#[test]
fn versions_are_said() {
    let dir = tempfile::tempdir().expect("a directory");
    assert!(run(dir.path(), &["version"]).out.starts_with("understudy "));
    assert_eq!(run(dir.path(), &["version", "--json"]).object()["protocol"], 5);
    assert!(run(dir.path(), &["--version"]).out.starts_with("understudy "));
}
