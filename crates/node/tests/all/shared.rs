//! The database that is always there, on a cluster of this process: tables without options lie together in
//! one partition, those with options have partitions for themselves, and a session sees both.

use crate::common::Cluster;
use crate::common::talk::{Behind, Talk, service};
use client::ClientError;
use types::data::{Column, ColumnType, Schema};
use wire::control::CreateTable;

fn world() -> (Cluster, Behind) {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    (cluster, service)
}

/// Statements and the code with which each is refused.
fn refused(talk: &mut Talk, all: &[(&str, &str)]) {
    for (text, code) in all {
        let said = talk.say(text);
        assert!(said.starts_with(code), "{text}: {said}");
        talk.say("ROLLBACK");
    }
}

#[test]
fn whatever_is_typed_first_works() {
    let (_cluster, service) = world();
    let mut one = Talk::new(&service);
    assert_eq!(one.good("SELECT current_database()"), "understudy");
    assert!(one.say("SELECT * FROM towns").starts_with("42P01"));
    one.good("CREATE TABLE towns (id serial PRIMARY KEY, code text UNIQUE, size int CHECK (size > 0))");
    one.good("CREATE TABLE pets (id int PRIMARY KEY, town int REFERENCES towns ON DELETE CASCADE)");
    one.good("CREATE TABLE heap (n int, half numeric) WITH (fillfactor = 90)");
    let many = "INSERT INTO heap SELECT n, n / 2.0 FROM generate_series(1, 1000) AS s(n)";
    assert_eq!(one.good(many), "INSERT 0 1000");
    assert_eq!(one.good("INSERT INTO towns (code, size) VALUES ('a', 1), ('b', 2) RETURNING id"), "1\n2");
    for text in ["BEGIN", "INSERT INTO pets VALUES (1, 1), (2, 2)", "UPDATE heap SET n = 0", "COMMIT"] {
        one.good(text);
    }
    let mut two = Talk::new(&service);
    assert_eq!(two.good("SELECT sum(n), count(*) FROM heap"), "0|1000");
    assert_eq!(two.good("SELECT count(*) FROM pets JOIN towns ON pets.town = towns.id"), "2");
    let wrong = [
        ("INSERT INTO towns (code) VALUES ('a')", "23505"),
        ("INSERT INTO towns (size) VALUES (0)", "23514"),
        ("INSERT INTO pets VALUES (3, 99)", "23503"),
        ("DROP TABLE towns", "2BP01"),
        ("DROP DATABASE understudy", "42501"),
        ("DROP DATABASE understudy WITH (FORCE)", "42501"),
        ("CREATE DATABASE understudy", "42P04"),
    ];
    refused(&mut one, &wrong);
    one.good("CREATE SEQUENCE tickets START WITH 7");
    assert_eq!(one.good("SELECT nextval('tickets')"), "7");
    one.good("CREATE VIEW big AS SELECT * FROM towns WHERE size > 1");
    assert_eq!(two.good("SELECT code FROM big"), "b");
    assert_eq!(one.good("DELETE FROM towns WHERE id = 1"), "DELETE 1");
    assert_eq!(two.good("SELECT id FROM pets"), "2");
    for text in ["BEGIN", "CREATE TABLE gone (id int)", "TRUNCATE heap", "INSERT INTO gone VALUES (1)"] {
        one.good(text);
    }
    assert_eq!(one.good("SELECT count(*) FROM gone, heap"), "0");
    one.good("ROLLBACK");
    assert_eq!(one.good("SELECT count(*) FROM heap"), "1000");
    assert!(two.say("SELECT * FROM gone").starts_with("42P01"));
    one.good("ALTER TABLE pets ADD COLUMN name text NOT NULL DEFAULT 'Rex'");
    one.good("CREATE INDEX by_name ON pets (name)");
    assert_eq!(two.good("SELECT name FROM pets"), "Rex");
    assert_eq!(two.good("SELECT datname FROM pg_database"), "understudy");
    let tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1";
    assert_eq!(two.good(tables), "heap\npets\ntowns");
    // A transaction that reads by READ COMMITTED sees what others have committed meanwhile.
    one.good("BEGIN");
    assert_eq!(one.good("SELECT count(*) FROM pets"), "1");
    two.good("INSERT INTO pets VALUES (9, NULL, 'Tom')");
    assert_eq!(one.good("SELECT count(*) FROM pets"), "2");
    one.good("COMMIT");
}

#[test]
fn tables_with_options_have_partitions_for_themselves_beside_the_others() {
    let (_cluster, service) = world();
    let (mut one, mut two) = (Talk::new(&service), Talk::new(&service));
    one.good("CREATE TABLE wide (id int PRIMARY KEY, v int) WITH (partitions = 4)");
    one.good("CREATE TABLE near (id int PRIMARY KEY, v int)");
    assert_eq!(two.good("SELECT partitions FROM understudy.tables WHERE name = 'wide'"), "4");
    assert_eq!(two.good("SELECT count(*) FROM understudy.tables WHERE name = 'near'"), "0");
    for id in 1..=8 {
        one.good(&format!("INSERT INTO wide VALUES ({id}, {id})"));
    }
    assert_eq!(two.good("INSERT INTO near SELECT * FROM wide"), "INSERT 0 8");
    assert_eq!(two.good("SELECT count(*) FROM wide JOIN near USING (id)"), "8");
    assert_eq!(two.good("UPDATE near SET v = wide.v + 1 FROM wide WHERE wide.id = near.id"), "UPDATE 8");
    assert_eq!(two.good("SELECT sum(v) FROM near"), "44");
    let wrong = [
        ("CREATE TABLE near (id int PRIMARY KEY) WITH (partitions = 2)", "42P07"),
        ("CREATE TABLE wide (id int PRIMARY KEY)", "42P07"),
        ("CREATE SEQUENCE wide", "42P07"),
        ("ALTER TABLE near RENAME TO wide", "42P07"),
        ("INSERT INTO wide SELECT * FROM near", "0A000"),
        ("BEGIN; UPDATE wide SET v = 0 WHERE id = 1; UPDATE near SET v = 0 WHERE id = 1", "0A000"),
        ("BEGIN; UPDATE near SET v = 0 WHERE id = 1; UPDATE wide SET v = 0 WHERE id = 1", "0A000"),
        ("BEGIN; CREATE TABLE t (id int); UPDATE wide SET v = 0 WHERE id = 1", "0A000"),
        ("BEGIN; UPDATE wide SET v = 0 WHERE id = 1; CREATE TABLE t (id int)", "0A000"),
        ("BEGIN; UPDATE wide SET v = 0 WHERE id = 1; DROP TABLE near", "0A000"),
        ("TRUNCATE wide, near", "0A000"),
        ("CREATE TABLE t (id int REFERENCES wide)", "0A000"),
        ("ALTER TABLE wide ADD CHECK (v > 0)", "0A000"),
        ("ALTER TABLE wide DROP COLUMN v", "0A000"),
        ("ALTER TABLE wide ALTER COLUMN v ADD GENERATED ALWAYS AS IDENTITY", "0A000"),
        ("ALTER TABLE wide ADD PRIMARY KEY (v)", "0A000"),
        ("ALTER TABLE near SET (policy = sync)", "0A000"),
        ("SELECT * FROM t", "42P01"),
    ];
    refused(&mut one, &wrong);
    assert_eq!(one.good("SELECT count(*) FROM wide WHERE v = 0"), "0");
    // Each kind as ever: a state for the whole transaction here, for each statement there.
    one.good("BEGIN");
    assert_eq!(one.good("SELECT count(*), (SELECT count(*) FROM near) FROM wide"), "8|8");
    two.good("DELETE FROM wide WHERE id = 8");
    two.good("DELETE FROM near WHERE id = 8");
    assert_eq!(one.good("SELECT count(*), (SELECT count(*) FROM near) FROM wide"), "8|7");
    one.good("COMMIT");
    one.good("ALTER TABLE wide ADD COLUMN more text");
    one.good("CREATE INDEX by_v ON wide (v)");
    assert!(one.say("CREATE INDEX by_v ON near (v)").starts_with("42P07"));
    one.good("DROP INDEX by_v");
    one.good("CREATE VIEW shown AS SELECT id FROM wide");
    assert!(one.say("DROP TABLE wide").starts_with("2BP01"), "a view shows it");
    one.good("DROP VIEW shown");
    assert_eq!(one.good("DROP TABLE wide, near"), "DROP TABLE");
    refused(&mut two, &[("SELECT * FROM wide", "42P01"), ("SELECT * FROM near", "42P01")]);
    assert_eq!(one.good("DROP TABLE IF EXISTS wide, near"), "DROP TABLE");
}

#[test]
fn several_nodes_and_the_native_client_see_the_same_tables() {
    let (cluster, here) = world();
    let there = service(&cluster);
    let (mut one, mut two) = (Talk::new(&here), Talk::new(&there));
    std::thread::scope(|scope| {
        // Both make the partition.
        scope.spawn(|| one.good("CREATE TABLE a (id int PRIMARY KEY, v text)"));
        scope.spawn(|| two.good("CREATE TABLE b (id int PRIMARY KEY REFERENCES b)"));
    });
    assert_eq!(one.good("INSERT INTO b VALUES (1)"), "INSERT 0 1");
    assert_eq!(two.good("INSERT INTO a VALUES (1, 'one')"), "INSERT 0 1");
    one.good("ALTER TABLE a ADD COLUMN w int");
    assert_eq!(two.good("UPDATE a SET w = 5"), "UPDATE 1");
    let mut client = cluster.client();
    let names = client.shared_database().and_then(|shared| client.tables_of(&shared)).expect("tables");
    assert_eq!(names.iter().map(|table| table.name()).collect::<Vec<_>>(), ["a", "b"]);
    let a = client.table("a").expect("by its name");
    assert_eq!(client.table("understudy.a").expect("also so").id(), a.id());
    assert_eq!(client.count(&a).expect("counted"), 1);
    let schema = Schema::new(vec![Column::new("id", ColumnType::Int)], &["id"], 1, false).expect("valid");
    let taken = client
        .create_table(&CreateTable { partitions: 2, ..CreateTable::new("a", schema.clone(), "durable") });
    assert_eq!(taken.expect_err("it is there"), ClientError::NameTaken);
    let bare = CreateTable { partitions: 2, ..CreateTable::new("c", schema.clone(), "durable") };
    client.create_table(&bare).expect("made");
    let shared = client.shared_database().expect("there");
    let taken = client.create_table_in(&shared, "c", schema).expect_err("it is there");
    assert_eq!(taken, ClientError::NameTaken);
    assert!(matches!(client.table("nothing"), Err(ClientError::NoTable(_))));
    assert_eq!(one.good("SELECT count(*) FROM a, b"), "1");
    assert_eq!(two.good("SELECT count(*) FROM c"), "0");
}
