//! pgbench's bank while the primary that commits it is killed, frozen and cut off: no money comes or goes, on
//! any replica.

use super::drivers::{runs, with_database};
use super::faults::{alike, connect, in_sync, wait};
use super::sql::{of_node, rows};
use client::table::Table;
use client::{Client, Database, ScanOptions};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testing::missing;
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
fn conserved(client: &mut Client, bank: &str) {
    let mut table = |name: &str| client.table(&format!("{bank}.pgbench_{name}")).expect("there");
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
pub fn number(said: &str, before: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix(before)).unwrap_or_else(|| panic!("{said}"));
    let digits: String = line.trim().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{said}"))
}

fn round(cluster: &mut Cluster, client: &mut Client, (bank, url): (&str, &str), (what, strike, heal): Fault) {
    let database = client.database(bank).expect("there");
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
    // A snapshot has its commits brought to every partition first.
    assert_eq!(sums(&url), "t", "{what}: money came or went");
    conserved(client, bank);
}

/// Whether accounts, tellers, branches and the history have changed by the same, in one snapshot.
fn sums(url: &str) -> String {
    let sum = |column: &str, table: &str| format!("(SELECT coalesce(sum({column}), 0) FROM pgbench_{table})");
    let all = [
        sum("delta", "history"),
        sum("abalance", "accounts"),
        sum("tbalance", "tellers"),
        sum("bbalance", "branches"),
    ];
    rows(url, &format!("SELECT {0} = {1} AND {0} = {2} AND {0} = {3}", all[0], all[1], all[2], all[3]))
}

/// In a database of one partition. Skipped where pgbench is not installed.
pub fn survives() {
    survives_in("policy = durable, factor = 3", |bank| {
        let filled = Command::new("pgbench").args(["-i", "-q", bank]).output().expect("it runs");
        assert!(filled.status.success(), "{}", String::from_utf8_lossy(&filled.stderr));
    });
}

/// In one of six partitions, with transactions that reach over all of them.
pub fn survives_over_partitions() {
    survives_in("policy = durable, factor = 3, partitions = 6, transactions = global", |bank| {
        let tables = [
            "pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88))",
            "pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84))",
            "pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84))",
            "pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))",
        ];
        for table in tables {
            rows(bank, &format!("CREATE TABLE {table}"));
        }
        rows(bank, "INSERT INTO pgbench_branches VALUES (1, 0)");
        rows(bank, "INSERT INTO pgbench_tellers SELECT n, 1, 0 FROM generate_series(1, 10) AS s(n)");
        for from in (0..100_000).step_by(25_000) {
            let (from, to) = (from + 1, from + 25_000);
            rows(
                bank,
                &format!(
                    "INSERT INTO pgbench_accounts SELECT n, 1, 0 FROM generate_series({from}, {to}) AS s(n)"
                ),
            );
        }
    });
}

fn survives_in(options: &str, fill: impl Fn(&str)) {
    if !runs("pgbench", "--version") {
        return missing("pgbench", "pgbench is not installed");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(ClusterOptions::new(dir.path())).expect("starts");
    let url = cluster.sql_url().expect("a password");
    rows(&url, &format!("CREATE DATABASE bank WITH ({options})"));
    let bank = with_database(&url, "bank");
    fill(&bank);
    let mut client = connect(cluster.controllers());
    for fault in FAULTS {
        round(&mut cluster, &mut client, ("bank", &bank), fault);
    }
    cluster.shutdown();
}
