//! pgbench's bank while the primary that commits it is killed, frozen and cut off: no money comes or goes, on
//! any replica.

use super::drivers::{runs, with_database};
use super::faults::{alike, connect, in_sync, wait};
use super::sql::{of_node, rows};
use client::table::Table;
use client::{Client, Database, ScanOptions};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use types::NodeId;
use types::data::Value;
use understudy_local::{Cluster, ClusterOptions};
use wire::ReadLevel;

/// How long pgbench runs over each fault, in seconds.
const SECONDS: &str = "4";
/// Transactions of a run that were done before the fault comes.
const BEFORE: u64 = 20;

/// A fault of the primary, and its end.
type Fault = (&'static str, fn(&mut Cluster, NodeId), fn(&mut Cluster, NodeId));

const FAULTS: [Fault; 3] = [
    (
        "kill",
        |cluster, node| cluster.kill(node).expect("killed"),
        |cluster, node| cluster.restart(node).expect("restarted"),
    ),
    (
        "freeze",
        |cluster, node| cluster.stop(node).expect("frozen"),
        |cluster, node| cluster.cont(node).expect("goes on"),
    ),
    (
        "cut",
        |cluster, node| cluster.cut(node).expect("cut"),
        |cluster, node| cluster.heal(node).expect("healed"),
    ),
];

fn primary(client: &mut Client, database: &Database) -> NodeId {
    client.poll(Duration::from_millis(10)).expect("polls");
    client.cluster_map().primary(database.partition()).expect("it serves")
}

/// pgbench's own transaction, ten clients. What fails because others wrote the same rows is tried again.
fn pgbench(url: &str) -> Child {
    let mut command = Command::new("pgbench");
    command.args(["-n", "-M", "prepared", "-c", "10", "-j", "2", "-T", SECONDS, "--max-tries=1000", url]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("PGPASSWORD");
    command.spawn().expect("pgbench runs")
}

/// The sum of a column as this replica has it. pgbench's amounts are whole numbers.
fn total(client: &mut Client, table: &Table, column: &str, node: NodeId) -> i64 {
    let at = table.schema().columns().iter().position(|one| one.name == column).expect("a column");
    let read = ReadLevel::Any { max_lag_ms: 5_000, min_lsn: types::Lsn::ZERO };
    let options = ScanOptions { read, node: Some(node), ..ScanOptions::default() };
    let found: Vec<_> = client.scan(table, options).collect::<Result<_, _>>().expect("read");
    let amount =
        |found: &client::Found| match table.decode(&found.key, &found.stored).expect("a row").values[at] {
            Value::Int(amount) => amount,
            ref other => panic!("{column}: {other:?}"),
        };
    found.iter().map(amount).sum()
}

/// Accounts, tellers, branches and the history have changed by the same, on every replica.
fn conserved(client: &mut Client) {
    let mut table = |name: &str| client.table(&format!("bank.pgbench_{name}")).expect("there");
    let tables = [
        (table("history"), "delta"),
        (table("accounts"), "abalance"),
        (table("tellers"), "tbalance"),
        (table("branches"), "bbalance"),
    ];
    for (table, _) in &tables {
        alike(client, table);
    }
    for node in (1..=3).map(NodeId) {
        let totals = tables.each_ref().map(|(table, column)| total(client, table, column, node));
        assert!(totals.iter().all(|one| *one == totals[0]), "{node}: {totals:?}");
    }
}

/// What pgbench says of itself.
fn number(said: &str, before: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix(before)).unwrap_or_else(|| panic!("{said}"));
    let digits: String = line.trim().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{said}"))
}

fn round(cluster: &mut Cluster, client: &mut Client, url: &str, (what, strike, heal): Fault) {
    let database = client.database("bank").expect("there");
    let hit = primary(client, &database);
    // The session is with a node that stays.
    let listener = (1..=3).find(|node| NodeId(*node) != hit).expect("three nodes");
    let history =
        |url: &str| -> u64 { rows(url, "SELECT count(*) FROM pgbench_history").parse().expect("a number") };
    let url = of_node(url, listener as usize - 1);
    let before = history(&url);
    let bench = pgbench(&url);
    wait("the bank works", || history(&url) > before + BEFORE);
    strike(cluster, hit);
    let ended = bench.wait_with_output().expect("pgbench ends");
    heal(cluster, hit);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complaint) = (text(&ended.stdout), text(&ended.stderr));
    assert!(ended.status.success(), "{what}: {said}\n{complaint}");
    let done = number(&said, "number of transactions actually processed:");
    println!(
        "{what} of {hit}: {done} transactions, {} tries again",
        number(&said, "total number of retries:")
    );
    assert_eq!(number(&said, "number of failed transactions:"), 0, "{what}: {said}");
    assert_ne!(primary(client, &database), hit, "{what}: nobody was promoted");
    assert_eq!(history(&url), before + done, "{what}: each is in the history once");
    wait("all in sync", || in_sync(client));
    conserved(client);
}

/// Skipped where pgbench is not installed.
pub fn survives() {
    if !runs("pgbench", "--version") {
        return println!("skipped: pgbench is not installed");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(ClusterOptions::new(dir.path())).expect("starts");
    let url = cluster.sql_url().expect("a password");
    rows(&url, "CREATE DATABASE bank WITH (policy = durable, factor = 3)");
    let bank = with_database(&url, "bank");
    let filled = Command::new("pgbench").args(["-i", "-q", &bank]).output().expect("it runs");
    assert!(filled.status.success(), "{}", String::from_utf8_lossy(&filled.stderr));
    let mut client = connect(cluster.controllers());
    for fault in FAULTS {
        round(&mut cluster, &mut client, &bank, fault);
    }
    cluster.shutdown();
}
