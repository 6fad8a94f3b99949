//! What can go wrong without a cluster: each time one clear line, the right exit status, and nothing half
//! done.

mod common;

use common::{run, understudy};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use types::config::TailReport;
use types::{Lsn, NodeId, PartitionId, Position, Term};
use wire::entry::{Entry, Header, Kind};

fn fails(dir: &Path, words: &[&str], status: i32, says: &[&str]) {
    let ran = run(dir, words);
    assert_eq!(ran.status, status, "{words:?}: {ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{words:?}: more than a line: {}", ran.err);
    for part in says {
        assert!(ran.sentence().contains(part), "{words:?} should say {part:?}: {}", ran.err);
    }
}

#[test]
fn wrong_command_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    fails(dir, &["tabel"], 2, &["tabel", "--help"]);
    fails(dir, &["table", "creat"], 2, &["similar subcommand", "create"]);
    fails(dir, &["get"], 2, &["<TABLE>"]);
    fails(dir, &["scan", "t", "--any", "--max-lag", "soon"], 2, &["500ms"]);
    fails(dir, &["sim", "--seeds", "9..3"], 2, &["0..100"]);
    fails(dir, &["sim", "--seeds", "0..3", "--plant", "F99"], 2, &["F05", "PR-47"]);
    fails(dir, &["sim", "--seeds", "0..2", "--transactions"], 2, &["one of seven"]);
    fails(dir, &["sim", "--trace", "2", "--transactions"], 2, &["--trace"]);
    fails(dir, &["switchover"], 2, &["PARTITION"]);
    fails(dir, &["node"], 2, &["--config FILE"]);
    fails(dir, &["controller"], 2, &["--config FILE"]);
    fails(dir, &["status", "--connect", "nowhere"], 2, &["HOST:PORT"]);
    fails(dir, &["demo", "--data", "x.csv"], 2, &["--key"]);
    fails(dir, &["put", "sys_failovers", "{}"], 5, &["sys_failovers", "by the cluster alone"]);
    fails(dir, &["delete", "sys_failovers", "1"], 5, &["by the cluster alone"]);
}

#[test]
fn without_a_cluster_it_says_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    for words in [&["status"][..], &["get", "t", "1"], &["table", "list"], &["failover", "list"], &["shell"]]
    {
        fails(dir, words, 4, &["understudy dev", "--connect", "UNDERSTUDY_CONNECT"]);
    }
    fails(dir, &["dev", "kill", "1"], 4, &["understudy dev"]);
    // A port that was free a moment ago: nobody listens there.
    let address =
        TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr()).expect("a port").to_string();
    fails(dir, &["status", "--connect", &address], 4, &[&address]);
    let output = understudy(dir).arg("status").env("UNDERSTUDY_CONNECT", &address).output().expect("runs");
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&address));
}

#[test]
fn files_that_are_not_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    fails(dir, &["load", "no.csv", "--table", "t", "--key", "id", "--create"], 3, &["no.csv"]);
    fails(dir, &["ingest", "no.csv", "--table", "t"], 3, &["no.csv"]);
    fails(dir, &["log", "verify", "--data-dir", "no"], 3, &["no"]);
    fails(dir, &["node", "--config", "no.toml"], 3, &["no.toml"]);
    fails(dir, &["partition", "tails", "export", "x.tail", "--data-dir", "."], 3, &["x.tail"]);
    let create = ["table", "create", "t", "--columns", "id:int", "--key", "id", "--placement", "no"];
    fails(dir, &create, 3, &["no"]);
    fails(dir, &["database", "create", "d", "--placement", "no"], 3, &["no"]);
    fs::write(dir.join("plan"), "1 2\nx\n").expect("writable");
    fails(
        dir,
        &["table", "create", "t", "--columns", "id:int", "--key", "id", "--placement", "plan"],
        2,
        &["`x`"],
    );
}

#[test]
fn configurations() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    fs::write(dir.join("odd.toml"), "[node]\nlisten_clint = \"127.0.0.1:1\"\n").expect("writable");
    fails(dir, &["config", "check", "--config", "odd.toml"], 2, &["listen_clint", "did you mean"]);
    fails(dir, &["node", "--config", "odd.toml"], 2, &["listen_clint"]);
    fs::write(dir.join("broken.toml"), "[node\n").expect("writable");
    fails(dir, &["config", "check", "--config", "broken.toml"], 2, &["broken.toml", "line 1"]);
    fs::write(dir.join("good.toml"), "[node]\nzone = \"a\"\n").expect("writable");
    assert_eq!(run(dir, &["config", "check", "--config", "good.toml"]).status, 0);
    let open = ["config", "check", "--config", "good.toml", "--set", "node.listen_http=0.0.0.0:7404"];
    fails(dir, &open, 5, &["node.listen_http", "--insecure"]);
    assert_eq!(run(dir, &[&open[..], &["--insecure"]].concat()).status, 0, "as the node itself takes it");
    let shown =
        run(dir, &["config", "show", "--config", "good.toml", "--origin", "--set", "timing.lease_ms=140"]);
    assert_eq!(shown.status, 0, "{}", shown.err);
    let line =
        |name: &str| shown.out.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_string();
    assert!(line("node.zone").contains("= a") && line("node.zone").contains("good.toml"), "{}", shown.out);
    assert!(
        line("timing.lease_ms").contains("140") && line("timing.lease_ms").contains("flag"),
        "{}",
        shown.out
    );
}

#[test]
fn data_directories_are_never_formatted() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    assert_eq!(run(root, &["init", "n1", "--node", "1"]).status, 0);
    fails(root, &["init", "n1", "--node", "1"], 5, &["nothing was changed"]);
    fs::create_dir(root.join("mine")).expect("makes");
    fs::write(root.join("mine/letter"), "dear").expect("writable");
    fails(root, &["init", "mine", "--node", "1"], 5, &["not empty"]);
    assert_eq!(fs::read_dir(root.join("mine")).expect("there").count(), 1);
    fs::write(
        root.join("n.toml"),
        "[node]\ndata_dir = \"mine\"\ncontrollers = [\"127.0.0.1:1\"]\nlisten_client = \"127.0.0.1:0\"\n",
    )
    .expect("writable");
    fails(root, &["node", "--config", "n.toml"], 5, &["mine"]);
    fs::write(root.join("n1/VERSION"), "999\n").expect("writable");
    fs::write(root.join("n1.toml"), "[node]\ndata_dir = \"n1\"\ncontrollers = [\"127.0.0.1:1\"]\n")
        .expect("writable");
    let ran = run(root, &["node", "--config", "n1.toml"]);
    assert!(matches!(ran.status, 5 | 6), "{ran:?}");
}

#[test]
fn tails_are_listed_exported_and_discarded() {
    let dir = tempfile::tempdir().expect("a directory");
    let tails = dir.path().join("tails");
    fs::create_dir(&tails).expect("makes");
    let at = Position::new(Term(2), Lsn(11));
    let entry = Entry::encode(Header::new(Kind::Noop, PartitionId(64), at, 9), b"abc");
    let report = TailReport {
        partition: PartitionId(64),
        node: NodeId(1),
        file: String::new(),
        term: Term(2),
        from: Lsn(11),
        to: Lsn(11),
        commits: 1,
        surely_acknowledged: 1,
        sessions: 1,
        rows: None,
    };
    let file = node::tails::write(&tails, report, &[entry], &[]).expect("writes").file;
    let listed = run(dir.path(), &["partition", "tails", "list", "--data-dir", ".", "--json"]);
    assert_eq!(
        (listed.object()["file"].as_str(), listed.object()["commits"].as_u64()),
        (Some(&file[..]), Some(1))
    );
    let exported = run(dir.path(), &["partition", "tails", "export", &file, "--data-dir", "."]);
    assert_eq!((&exported.object()["lsn"], &exported.object()["term"]), (&11.into(), &2.into()));
    fails(
        dir.path(),
        &["partition", "tails", "discard", &file, "--data-dir", "."],
        5,
        &["1 commits", "--yes"],
    );
    assert!(tails.join(&file).exists());
    assert_eq!(
        run(dir.path(), &["partition", "tails", "discard", &file, "--data-dir", ".", "--yes"]).status,
        0
    );
    assert!(!tails.join(&file).exists());
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = understudy(dir.path())
        .args(["config", "show", "--origin"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("a child");
    assert_eq!(ended.status.code(), Some(0));
    assert!(ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn seeds_are_simulated_the_same_every_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let once = run(dir.path(), &["sim", "--seeds", "0..3", "--json"]);
    let again = run(dir.path(), &["sim", "--seeds", "0..3", "--threads", "1", "--json"]);
    assert_eq!(once.out, again.out);
    let object = once.object();
    let names = [
        "seeds",
        "violations",
        "operations",
        "simulated_seconds",
        "primary_changes",
        "double_failovers",
        "failovers",
        "failover_median_ms",
        "failover_most_ms",
        "fault_to_serving",
        "fault_to_serving_median_ms",
        "fault_to_serving_most_ms",
        "faults",
        "trace_hash",
        "event_hash",
    ];
    for name in names {
        assert!(!object[name].is_null(), "{name} is missing: {object}");
    }
    assert_eq!(object["seeds"], 3);
}
