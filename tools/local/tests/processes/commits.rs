//! A stream of transactions from psql, while the primary that commits them is killed.

use super::faults::wait;
use client::{Client, Options};
use std::process::{Command, Stdio};
use std::time::Duration;
use testing::missing;
use types::NodeId;
use understudy_local::{Cluster, ClusterOptions};

/// Transactions in the stream.
const STREAM: usize = 400;

fn psql(url: &str) -> Command {
    let mut command = Command::new("psql");
    command.args([url, "-X", "-A", "-t", "-q", "-v", "VERBOSITY=verbose", "-v", "ON_ERROR_STOP=0"]);
    command.env("PGCONNECT_TIMEOUT", "20").env_remove("PGPASSWORD");
    command
}

fn asked(url: &str, statement: &str) -> String {
    let output = psql(url).args(["-c", statement]).stdin(Stdio::null()).output().expect("psql runs");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(complaint, "", "{statement}");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// Each transaction adds one to a row and says that it is committed. Afterwards the row must say how many
/// were.
fn stream(cluster: &mut Cluster) {
    let url = cluster.sql_url().expect("a password");
    asked(&url, "CREATE TABLE counter (id bigint PRIMARY KEY, n bigint, s text) WITH (partitions = 1)");
    asked(&url, "INSERT INTO counter VALUES (1, 0)");
    let controllers = cluster.controllers();
    let options = Options { controllers, timeout: Duration::from_secs(60), wait: true, ..Options::default() };
    let mut client = Client::connect(options).expect("a controller answers");
    let table = client.table("counter").expect("it was made");
    let partition = table.partitions().next().expect("one");
    let primary = client.cluster_map().primary(partition).expect("it serves");
    // The session is with a node that stays.
    let listener = (0..3).find(|node| NodeId(node + 1) != primary).expect("three nodes");
    let (before, rest) = url.split_once('@').expect("a user");
    let (addresses, database) = rest.split_once('/').expect("a database");
    let address = addresses.split(',').nth(listener as usize).expect("a node");
    let listener = format!("{before}@{address}/{database}");

    let one = "BEGIN;\nUPDATE counter SET n = n + 1 WHERE id = 1;\nCOMMIT;\n";
    let script = format!("\\unset QUIET\n{}", one.repeat(STREAM));
    let file = cluster.dir().join("stream.sql");
    std::fs::write(&file, script).expect("writable");
    let mut command = psql(&listener);
    let running =
        command.arg("-f").arg(&file).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = running.spawn().expect("psql runs");
    let counted = |client: &mut Client| -> i64 {
        let row = client.get(&table, &[types::data::Value::Int(1)]).expect("read").expect("there");
        match row.values[1] {
            types::data::Value::Int(number) => number,
            ref other => panic!("{other:?}"),
        }
    };
    wait("the stream flows", || counted(&mut client) > 10);
    cluster.kill(primary).expect("killed");
    let ended = running.wait_with_output().expect("psql ends");
    let out = String::from_utf8_lossy(&ended.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&ended.stderr).into_owned();
    let committed = out.lines().filter(|line| *line == "COMMIT").count() as i64;
    assert!(!complaints.contains("40003"), "every outcome is known: {complaints}");
    assert_eq!(counted(&mut client), committed, "{complaints}");
    assert!(committed > STREAM as i64 / 2, "{committed} were committed: {complaints}");
}

/// Skipped where PostgreSQL's client is not installed.
pub fn client() {
    if Command::new("psql").arg("--version").stdout(Stdio::null()).status().is_err() {
        return missing("psql", "psql is not installed");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(ClusterOptions::new(dir.path())).expect("starts");
    stream(&mut cluster);
    cluster.shutdown();
}
