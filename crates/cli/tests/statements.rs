//! Statements of SQL in every kind of database, on a cluster of real processes: one partition, several with a
//! partition key, and several with global transactions.

mod common;

use common::{Cluster, Ran};
use serde_json::{Value, json};

/// What SQL says in a database.
fn sql(cluster: &Cluster, database: &str, statement: &str) -> Ran {
    cluster.run(&["sql", "--database", database, "--command", statement, "--timeout", "30s"])
}

fn good(cluster: &Cluster, database: &str, statement: &str) {
    let ran = sql(cluster, database, statement);
    assert_eq!(ran.status, 0, "{database}: {statement}: {ran:?}");
}

/// A statement that is refused, and what is said of that.
fn bad(cluster: &Cluster, database: &str, statement: &str, why: &str) {
    let ran = sql(cluster, database, statement);
    assert!(ran.status == 1 && ran.err.contains(why), "{database}: {statement}: {ran:?}");
}

/// The rows of a query, as JSON.
fn rows(cluster: &Cluster, database: &str, query: &str) -> Vec<Value> {
    let ran = cluster.ok(&["sql", "--database", database, "--command", query, "--json"]);
    ran.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The databases besides `understudy`, all but the one with a partition key.
fn databases(cluster: &Cluster) -> [&'static str; 3] {
    good(cluster, "understudy", "CREATE DATABASE bank");
    good(cluster, "understudy", "CREATE DATABASE ledger WITH (partitions = 4, transactions = global)");
    ["understudy", "bank", "ledger"]
}

#[test]
fn tables_are_made_from_queries_and_like_others() {
    let cluster = Cluster::start();
    for database in databases(&cluster) {
        let good = |statement: &str| good(&cluster, database, statement);
        let bad = |statement: &str, why: &str| bad(&cluster, database, statement, why);
        good("CREATE TABLE pets (id int PRIMARY KEY, name varchar(20) UNIQUE)");
        good("INSERT INTO pets SELECT n, 'pet ' || n FROM generate_series(1, 20) AS n");
        good("CREATE TABLE copies AS SELECT * FROM pets WHERE id > 18");
        let found = rows(&cluster, database, "TABLE copies ORDER BY id");
        assert_eq!(found, [json!({"id": 19, "name": "pet 19"}), json!({"id": 20, "name": "pet 20"})]);
        bad("CREATE TABLE copies AS SELECT 1 AS x", "already exists");
        good("CREATE TABLE IF NOT EXISTS copies AS SELECT 1 AS x");
        good("SELECT id INTO numbers FROM pets");
        assert_eq!(rows(&cluster, database, "SELECT count(*) FROM numbers"), [json!({"count": 20})]);
        bad("CREATE TABLE failing AS SELECT 1 / (id - 7) AS x FROM pets", "division by zero");
        bad("SELECT * FROM failing", "does not exist");
        good("CREATE TABLE alike (LIKE pets INCLUDING ALL)");
        good("INSERT INTO alike VALUES (1, 'one')");
        bad("INSERT INTO alike VALUES (1, 'two')", "alike_pkey");
        bad("INSERT INTO alike VALUES (2, 'one')", "alike_name_key");
    }
    good(
        &cluster,
        "bank",
        "BEGIN; CREATE TABLE gone AS SELECT 1 AS x; INSERT INTO gone VALUES (2); ROLLBACK",
    );
    bad(&cluster, "bank", "SELECT * FROM gone", "does not exist");
    bad(
        &cluster,
        "understudy",
        "CREATE TABLE apart WITH (partitions = 2) AS SELECT 1 AS x",
        "storage options",
    );
    good(&cluster, "understudy", "CREATE DATABASE shop WITH (partitions = 3, partition_by = '(w)')");
    good(&cluster, "shop", "CREATE TABLE stock (w int, item int, PRIMARY KEY (w, item))");
    good(&cluster, "shop", "CREATE TABLE more (LIKE stock INCLUDING INDEXES)");
    bad(&cluster, "shop", "CREATE TABLE other AS SELECT * FROM stock", "partition key");
}
