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

#[test]
fn statements_with_several_parts_that_write_are_one() {
    let cluster = Cluster::start();
    for database in databases(&cluster) {
        let good = |statement: &str| good(&cluster, database, statement);
        let bad = |statement: &str, why: &str| bad(&cluster, database, statement, why);
        let counts = "SELECT (SELECT count(*) FROM todo) AS todo, (SELECT count(*) FROM done) AS done";
        good("CREATE TABLE todo (id int PRIMARY KEY, name text)");
        good("CREATE TABLE done (id int PRIMARY KEY, name text)");
        good("INSERT INTO todo SELECT n, 'task ' || n FROM generate_series(1, 20) AS n");
        let moving =
            "WITH moved AS (DELETE FROM todo WHERE id <= 5 RETURNING *) INSERT INTO done SELECT * FROM moved";
        good(moving);
        assert_eq!(rows(&cluster, database, counts), [json!({"todo": 15, "done": 5})]);
        // What one part does is not done if another one cannot be.
        bad("WITH d AS (DELETE FROM todo RETURNING id) INSERT INTO done SELECT 1, 'x' FROM d", "done_pkey");
        assert_eq!(rows(&cluster, database, counts), [json!({"todo": 15, "done": 5})]);
        let told = "WITH i AS (INSERT INTO done VALUES (9, 'nine') RETURNING id), \
            u AS (UPDATE todo SET name = 'none' WHERE id = 9 RETURNING name) SELECT id, name FROM i, u";
        assert_eq!(rows(&cluster, database, told), [json!({"id": 9, "name": "none"})]);
        let back = "WITH d AS (DELETE FROM todo WHERE id = 9 RETURNING *) \
            INSERT INTO todo SELECT id, name || '!' FROM d";
        good(back);
        let found = rows(&cluster, database, "SELECT name FROM todo WHERE id = 9");
        assert_eq!(found, [json!({"name": "none!"})]);
        good("BEGIN; WITH d AS (DELETE FROM todo RETURNING id) UPDATE done SET name = 'all'; ROLLBACK");
        assert_eq!(rows(&cluster, database, counts), [json!({"todo": 15, "done": 6})]);
    }
    good(&cluster, "understudy", "CREATE TABLE apart (id int PRIMARY KEY) WITH (partitions = 2)");
    let beside = "WITH d AS (DELETE FROM todo RETURNING id) INSERT INTO apart SELECT id FROM d";
    bad(&cluster, "understudy", beside, "partitions for itself");
    good(&cluster, "understudy", "CREATE DATABASE shop WITH (partitions = 3, partition_by = '(w)')");
    good(&cluster, "shop", "CREATE TABLE stock (w int, item int, PRIMARY KEY (w, item))");
    good(&cluster, "shop", "CREATE TABLE sold (w int, item int, PRIMARY KEY (w, item))");
    good(&cluster, "shop", "INSERT INTO stock VALUES (1, 1), (1, 2)");
    let sell = "WITH s AS (DELETE FROM stock WHERE w = 1 RETURNING *) INSERT INTO sold SELECT * FROM s";
    good(&cluster, "shop", sell);
    assert_eq!(rows(&cluster, "shop", "SELECT count(*) FROM sold"), [json!({"count": 2})]);
}

#[test]
fn rows_are_numbered_in_new_columns() {
    let cluster = Cluster::start();
    for database in databases(&cluster) {
        good(&cluster, database, "CREATE TABLE pets (id int PRIMARY KEY, name text)");
        good(&cluster, database, "INSERT INTO pets SELECT n * 2, 'pet' FROM generate_series(1, 3000) AS n");
        let add = "ALTER TABLE pets ADD COLUMN number serial";
        if database == "ledger" {
            bad(&cluster, database, add, "in several partitions");
            bad(&cluster, database, "SELECT nextval('pets_number_seq')", "does not exist");
            continue;
        }
        good(&cluster, database, add);
        good(&cluster, database, "INSERT INTO pets VALUES (7000, 'new')");
        let query = "SELECT count(*), sum(number - id / 2) AS off, max(number) FROM pets WHERE id < 7000";
        assert_eq!(rows(&cluster, database, query), [json!({"count": 3000, "off": 0, "max": 3000})]);
        let found = rows(&cluster, database, "SELECT number FROM pets WHERE id = 7000");
        assert_eq!(found, [json!({"number": 3001})]);
    }
}
