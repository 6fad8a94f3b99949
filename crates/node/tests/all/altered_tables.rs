//! Tables that were there and are altered within transactions: all of it is done with the rows, or nothing.

use crate::common::Cluster;
use crate::common::talk::{Talk, service};

fn within(service: &sql::Sql, database: &str) -> Talk {
    Talk::within(service, database).unwrap_or_else(|failure| panic!("{failure:?}"))
}

#[test]
fn pr451_tables_that_were_there_are_altered_with_their_transaction() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE t (id int PRIMARY KEY, v int, w text)");
    one.good("CREATE TABLE gone (id int PRIMARY KEY)");
    one.good("CREATE INDEX by_w ON t (w)");
    one.good("INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b')");
    let script = [
        "INSERT INTO t VALUES (3, 30, 'c')",
        "ALTER TABLE t ADD COLUMN more int NOT NULL DEFAULT 7",
        "UPDATE t SET more = 8 WHERE id = 1",
        "ALTER TABLE t RENAME COLUMN v TO amount",
        "ALTER TABLE t ALTER COLUMN amount SET DEFAULT 99",
        "INSERT INTO t (id) VALUES (4)",
        "ALTER TABLE t DROP COLUMN w",
        "CREATE INDEX by_amount ON t (amount)",
        "ALTER TABLE t RENAME TO renamed",
        "DROP TABLE gone",
    ];
    for end in ["ROLLBACK", "COMMIT"] {
        one.good("BEGIN");
        script.iter().for_each(|text| drop(one.good(text)));
        let seen = "1|10|8\n2|20|7\n3|30|7\n4|99|7";
        assert_eq!(one.good("SELECT id, amount, more FROM renamed ORDER BY id"), seen);
        assert_eq!(two.good("SELECT * FROM t ORDER BY id"), "1|10|a\n2|20|b", "nobody else sees it");
        assert_eq!(two.good("SELECT count(*) FROM gone"), "0");
        assert_eq!(one.good(end), end);
    }
    assert_eq!(two.good("SELECT id, more FROM renamed WHERE amount = 99"), "4|7");
    for text in ["SELECT 1 FROM t", "SELECT 1 FROM gone", "SELECT w FROM renamed"] {
        assert!(two.say(text).starts_with("42"), "{text}");
    }
    let indexes = "SELECT count(*) FROM pg_class WHERE relname IN ('by_w', 'by_amount')";
    for (end, left) in [("ROLLBACK", "1"), ("COMMIT", "0")] {
        one.good("BEGIN");
        one.good("DROP INDEX by_amount");
        one.good(end);
        assert_eq!(two.good(indexes), left, "{end}");
    }
}

#[test]
fn pr451_others_write_a_table_while_it_is_altered_and_who_is_slower_is_told() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE renamed (id int PRIMARY KEY, amount int, more int)");
    one.good("INSERT INTO renamed VALUES (1, 10, 7), (2, 20, 7), (3, 30, 7), (4, 40, 7)");
    one.good("BEGIN");
    one.good("SAVEPOINT s");
    one.good("ALTER TABLE renamed ADD COLUMN x int");
    one.good("UPDATE renamed SET x = 1");
    one.good("ROLLBACK TO SAVEPOINT s");
    one.good("ALTER TABLE renamed ADD COLUMN y int DEFAULT 5");
    two.good("INSERT INTO renamed VALUES (5, 50, 7)");
    assert_eq!(one.good("SELECT count(*), sum(y) FROM renamed"), "5|25");
    one.good("COMMIT");
    assert_eq!(two.good("SELECT count(*), sum(y) FROM renamed"), "5|25");
    // Who was slower is told, and has done nothing.
    for told in ["SELECT count(*) FROM renamed", "COMMIT"] {
        one.good("BEGIN");
        one.good("ALTER TABLE renamed ADD COLUMN z int");
        two.good("ALTER TABLE renamed ALTER COLUMN y SET DEFAULT 6");
        assert!(one.say(told).starts_with("40001"), "{told}");
        one.say("ROLLBACK");
        assert!(two.say("SELECT z FROM renamed").starts_with("42703"));
    }
    // What writes all rows again is refused before anything is done.
    one.refused(&[
        ("BEGIN; ALTER TABLE renamed ALTER COLUMN amount TYPE text", "0A000", "writes all rows"),
        ("BEGIN; ALTER TABLE renamed ADD COLUMN n serial", "0A000", "writes all rows"),
        ("BEGIN; ALTER TABLE renamed DROP CONSTRAINT renamed_pkey", "0A000", "primary key"),
        ("BEGIN; ALTER TABLE nothing ADD COLUMN n int", "42P01", "nothing"),
    ]);
    assert_eq!(two.good("SELECT count(*) FROM renamed"), "5");
}

#[test]
fn pr452_what_a_transaction_demands_of_rows_holds_when_it_is_committed() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE p (id int PRIMARY KEY)");
    one.good("CREATE TABLE t (id int PRIMARY KEY, v int, p int)");
    one.good("INSERT INTO p VALUES (1), (2)");
    one.good("INSERT INTO t VALUES (1, 10, 1), (2, 20, 2)");
    let demands = [
        ("ADD CONSTRAINT one UNIQUE (v)", "(9, 10, 1)", "23505", "DROP CONSTRAINT one"),
        ("ADD CONSTRAINT one CHECK (v < 100)", "(9, 100, 1)", "23514", "DROP CONSTRAINT one"),
        ("ADD CONSTRAINT one FOREIGN KEY (p) REFERENCES p", "(9, 90, 9)", "23503", "DROP CONSTRAINT one"),
        ("ALTER COLUMN v SET NOT NULL", "(9, NULL, 1)", "23502", "ALTER COLUMN v DROP NOT NULL"),
        ("ALTER COLUMN v TYPE smallint", "(9, 40000, 1)", "22003", "ALTER COLUMN v TYPE int"),
    ];
    for (demand, row, code, back) in demands {
        let (demand, against) = (format!("ALTER TABLE t {demand}"), format!("INSERT INTO t VALUES {row}"));
        // By rows that are there.
        two.good(&against);
        one.good("BEGIN");
        let said = one.say(&demand);
        assert!(said.starts_with(code), "{demand}: {said}");
        one.good("ROLLBACK");
        two.good("DELETE FROM t WHERE id = 9");
        // By one that comes behind the statement: nothing of the transaction is done.
        one.good("BEGIN");
        one.good("INSERT INTO t VALUES (5, 50, 1)");
        one.good(&demand);
        two.good(&against);
        let said = one.say("COMMIT");
        assert!(said.starts_with(code), "{demand}: {said}");
        assert_eq!(two.good("SELECT count(*) FROM t"), "3");
        two.good("DELETE FROM t WHERE id = 9");
        // By one of the transaction itself.
        one.good("BEGIN");
        one.good(&against);
        let said = one.say(&demand);
        assert!(said.starts_with(code), "{demand}: {said}");
        one.good("ROLLBACK");
        // It is in force for all once it is committed, and not when it is rolled back.
        for end in ["ROLLBACK", "COMMIT"] {
            one.good("BEGIN");
            one.good(&demand);
            one.good("INSERT INTO t VALUES (5, 50, 1)");
            one.good(end);
            let said = two.say(&against);
            assert_eq!(said.starts_with(code), end == "COMMIT", "{demand}: {said}");
            two.good("DELETE FROM t WHERE id IN (5, 9)");
        }
        one.good(&format!("ALTER TABLE t {back}"));
        two.good(&against);
        two.good("DELETE FROM t WHERE id = 9");
    }
    assert_eq!(two.good("SELECT count(*) FROM pg_class WHERE relname LIKE 'sys_ahead%'"), "0");
}

#[test]
fn columns_and_foreign_keys_come_and_go_with_their_transaction() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    // A column that is never null comes to a table without rows, and with rows of the transaction.
    one.good("CREATE TABLE e (id int PRIMARY KEY)");
    one.good("BEGIN");
    one.good("ALTER TABLE e ADD COLUMN n int NOT NULL");
    one.good("INSERT INTO e VALUES (1, 1)");
    one.good("COMMIT");
    assert!(two.say("INSERT INTO e VALUES (2, NULL)").starts_with("23502"));
    one.refused(&[("BEGIN; ALTER TABLE e ADD COLUMN m int NOT NULL", "23502", "\"m\"")]);
    // What refers goes with a table, or stays with it.
    one.good("CREATE TABLE p (id int PRIMARY KEY)");
    one.good("CREATE TABLE t (id int PRIMARY KEY, v int, p int REFERENCES p)");
    for (end, code) in [("ROLLBACK", "23503"), ("COMMIT", "INSERT")] {
        one.good("BEGIN");
        one.good("DROP TABLE p CASCADE");
        one.good("INSERT INTO t VALUES (7, 70, 77)");
        one.good(end);
        assert!(two.say("INSERT INTO t VALUES (8, 80, 78)").starts_with(code), "{end}");
    }
}
