//! What psql's commands show of tables, and the cluster of itself, with a node killed in the middle.

use crate::sql::{of_node, psql, rows};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use types::NodeId;
use understudy_local::{Cluster, ClusterOptions};

/// What a statement must come to show.
const LONG: Duration = Duration::from_secs(30);

/// What one of psql's commands prints, as people see it.
fn shown(url: &str, command: &str) -> String {
    let (text, complaint) = psql(url, &["-P", "format=aligned", "-P", "tuples_only=off", "-c", command]);
    assert_eq!(complaint, "", "{command}");
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>().trim().to_string()
}

const PETS: &str = r#"Table "public.pets"
 Column |           Type           | Collation | Nullable | Default
--------+--------------------------+-----------+----------+---------
 owner  | bigint                   |           | not null |
 name   | text                     |           | not null |
 seen   | timestamp with time zone |           |          |
 weight | double precision         |           |          |
Indexes:
    "pets_pkey" PRIMARY KEY, btree (owner, name)"#;

const TABLES: &str = "List of relations
 Schema | Name | Type  |   Owner
--------+------+-------+------------
 public | pets | table | understudy
(1 row)";

const INDEXES: &str = "List of relations
 Schema |   Name    | Type  |   Owner    | Table
--------+-----------+-------+------------+-------
 public | pets_pkey | index | understudy | pets
(1 row)";

/// `\d` and its like, as PostgreSQL's own would be shown.
fn describes(url: &str) {
    rows(
        url,
        "CREATE TABLE pets (owner bigint, name text, seen timestamptz, weight float8, PRIMARY KEY (owner, name)) \
         WITH (partition_by = 1, partitions = 4)",
    );
    assert_eq!(shown(url, r"\d pets"), PETS);
    assert_eq!(shown(url, r"\d"), TABLES);
    assert_eq!(shown(url, r"\dt"), TABLES);
    assert_eq!(shown(url, r"\dt pe*"), TABLES);
    assert_eq!(shown(url, r"\di"), INDEXES);
    assert!(shown(url, r"\d pets_pkey").contains("primary key, btree, for table \"public.pets\""));
    let databases = shown(url, r"\l");
    assert!(databases.contains(" understudy | understudy | UTF8     | C"), "{databases}");
    assert!(databases.contains("(1 row)"), "{databases}");
    assert!(shown(url, r"\dn").contains(" understudy | understudy"));
    assert!(shown(url, r"\du").contains("understudy"));
    assert!(shown(url, r"\df").contains("(0 rows)"));
    assert!(shown(url, r"\d+ pets").contains("Access method: lsm"));
    let view = shown(url, r"\d understudy.nodes");
    assert!(view.starts_with("View \"understudy.nodes\"") && view.contains("log_bytes"), "{view}");
}

/// Where a query runs.
fn explains(url: &str) {
    let lines = rows(url, "EXPLAIN SELECT weight FROM pets WHERE owner = 1 AND name = 'Rex'");
    assert!(lines.contains("Point Read of pets") && lines.contains(" at n"), "{lines}");
    let lines = rows(url, "EXPLAIN SELECT count(*) FROM pets WHERE owner > 5");
    assert!(lines.starts_with("Sum of what the partitions have counted"), "{lines}");
    assert!(lines.contains("Partitions: 4 of 4") && lines.contains("Key Range: owner > 5"), "{lines}");
    let lines =
        rows(url, "EXPLAIN SELECT p.name, count(*) FROM pets p WHERE owner = 2 GROUP BY 1 ORDER BY 2");
    assert!(lines.starts_with("Evaluation on this node"), "{lines}");
    assert!(
        lines.contains("Partitions: 1 of 4") && lines.contains("USE TEMP B-TREE FOR ORDER BY"),
        "{lines}"
    );
    let json = rows(url, "EXPLAIN (FORMAT JSON) SELECT * FROM pets, understudy.nodes");
    assert!(json.contains("\"Rows of understudy.nodes, made on this node\""), "{json}");
}

/// The views, before and after a node is killed.
fn watches(cluster: &mut Cluster, url: &str) {
    for owner in 1..=8 {
        rows(url, &format!("INSERT INTO pets VALUES ({owner}, 'Rex', NULL, 1)"));
    }
    until(url, "SELECT count(*) FROM understudy.nodes WHERE live", "3");
    let survives = "SELECT policy, copies, acknowledges, survives FROM understudy.tables WHERE name = 'pets'";
    until(url, survives, "durable|3|t|survives any two node crashes, and a power loss of all nodes");
    until(
        url,
        "SELECT count(*), min(state) FROM understudy.partitions WHERE table_name = 'pets'",
        "4|serving",
    );
    until(
        url,
        "SELECT count(*), count(durable), max(lag_bytes) FROM understudy.replicas WHERE table_name = 'pets'",
        "12|12|0",
    );
    until(
        url,
        "SELECT state, sync_state, count(*) FROM pg_stat_replication WHERE application_name LIKE 'pets/%' GROUP BY 1, 2",
        "streaming|sync|8",
    );
    cluster.kill(NodeId(3)).expect("killed");
    until(url, "SELECT live, log_bytes FROM understudy.nodes WHERE node = 3", "f|");
    // Whoever led is followed by another one, and the two that are left count.
    until(url, "SELECT copies, acknowledges FROM understudy.tables WHERE name = 'pets'", "2|t");
    until(
        url,
        "SELECT count(*) FROM understudy.partitions WHERE state = 'serving' AND table_name = 'pets'",
        "4",
    );
    until(
        url,
        "SELECT min(loss_possible::text), min(from_node), max(from_node) FROM understudy.failovers \
         WHERE table_name = 'pets' AND total_ms > 0",
        "false|3|3",
    );
}

/// Asks until the answer is as wanted.
fn until(url: &str, statement: &str, wanted: &str) {
    let started = Instant::now();
    loop {
        let found = rows(url, statement);
        if found == wanted {
            return;
        }
        assert!(started.elapsed() < LONG, "{statement}\ngives {found}\nwanted {wanted}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Skipped where PostgreSQL's client is not installed.
pub fn client() {
    if Command::new("psql").arg("--version").stdout(Stdio::null()).status().is_err() {
        return println!("skipped: psql is not installed");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(ClusterOptions::new(dir.path())).expect("starts");
    let url = of_node(&cluster.sql_url().expect("a password"), 0);
    describes(&url);
    explains(&url);
    watches(&mut cluster, &url);
    cluster.shutdown();
}
