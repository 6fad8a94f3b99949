//! SQL in databases on a cluster of this process: several tables that one transaction writes, tables that
//! others change meanwhile, databases that come and go.

mod common;

use common::Cluster;
use common::talk::{Talk, service};

fn within(service: &sql::Sql, database: &str) -> Talk {
    Talk::within(service, database).unwrap_or_else(|failure| panic!("{failure:?}"))
}

#[test]
fn one_transaction_writes_several_tables_of_a_database() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut main = Talk::new(&service);
    assert_eq!(main.good("CREATE DATABASE bank"), "CREATE DATABASE");
    assert!(main.say("CREATE DATABASE bank").starts_with("42P04"));
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    assert_eq!(one.good("SELECT current_database()"), "bank");
    one.good("CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL)");
    one.good("CREATE TABLE history (id int PRIMARY KEY, account int, delta int)");
    // One session has made them, and another one finds them.
    assert_eq!(two.good("INSERT INTO accounts VALUES (1, 100), (2, 100)"), "INSERT 0 2");
    let many = "INSERT INTO accounts SELECT n, 0 FROM generate_series(10, 1009) AS s(n)";
    assert_eq!(one.good(many), "INSERT 0 1000");
    one.good("BEGIN");
    one.good("UPDATE accounts SET balance = balance - 30 WHERE id = 1");
    one.good("UPDATE accounts SET balance = balance + 30 WHERE id = 2");
    one.good("INSERT INTO history VALUES (1, 1, -30), (2, 2, 30)");
    assert_eq!(one.good("SELECT count(*) FROM history"), "2");
    assert_eq!(one.good("SELECT balance FROM accounts WHERE id = 2"), "130");
    assert_eq!(two.good("SELECT count(*) FROM history"), "0");
    assert_eq!(two.good("SELECT balance FROM accounts WHERE id = 1"), "100");
    one.good("COMMIT");
    let joined =
        "SELECT a.id, a.balance, h.delta FROM accounts a JOIN history h ON h.account = a.id ORDER BY 1";
    assert_eq!(two.good(joined), "1|70|-30\n2|130|30");
    assert_eq!(two.good("SELECT sum(balance) FROM accounts"), "200");
    assert_eq!(two.good("SELECT count(*) FROM accounts"), "1002");
    // Nothing of it, in no table.
    one.good("BEGIN");
    one.good("DELETE FROM history");
    one.good("SAVEPOINT s");
    one.good("DELETE FROM accounts WHERE id >= 10");
    assert_eq!(one.good("SELECT count(*) FROM accounts"), "2");
    one.good("ROLLBACK TO SAVEPOINT s");
    assert_eq!(one.good("SELECT count(*) FROM accounts"), "1002");
    one.good("ROLLBACK");
    assert_eq!(two.good("SELECT count(*) FROM history"), "2");
    // The first committer wins, whatever else the other one has written.
    one.good("BEGIN");
    one.good("UPDATE accounts SET balance = 0 WHERE id = 1");
    one.good("INSERT INTO history VALUES (3, 1, 0)");
    two.good("UPDATE accounts SET balance = 71 WHERE id = 1");
    assert!(one.say("COMMIT").starts_with("40001"));
    assert_eq!(two.good("SELECT count(*) FROM history"), "2");
    for (refused, code) in [
        ("CREATE TABLE t (id int PRIMARY KEY) WITH (partitions = 2)", "0A000"),
        ("CREATE INDEX ON accounts (balance)", "0A000"),
        ("CREATE TABLE accounts (id int PRIMARY KEY)", "42P07"),
        ("SELECT * FROM nothing", "42P01"),
        ("DROP DATABASE bank", "55006"),
        ("BEGIN; CREATE DATABASE other", "25001"),
    ] {
        let said = one.say(refused);
        assert!(said.starts_with(code), "{refused}: {said}");
        one.say("ROLLBACK");
    }
}

#[test]
fn tables_that_another_node_has_changed_are_looked_at_again() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let (here, there) = (service(&cluster), service(&cluster));
    Talk::new(&here).good("CREATE DATABASE bank");
    drop(Talk::new(&there));
    let (mut one, mut two) = (within(&here, "bank"), within(&there, "bank"));
    one.good("CREATE TABLE t (id int PRIMARY KEY, v int)");
    two.good("INSERT INTO t VALUES (1, 10)");
    one.good("ALTER TABLE t ADD COLUMN w text");
    // By a plan that was made for the table as it was.
    assert_eq!(two.good("INSERT INTO t VALUES (2, 20)"), "INSERT 0 1");
    assert_eq!(two.good("SELECT * FROM t WHERE id = 1"), "1|10|-");
    one.good("UPDATE t SET w = 'x' WHERE id = 2");
    assert_eq!(two.good("SELECT w FROM t WHERE id = 2"), "x");
    // In a transaction it is told, and the next one goes on.
    two.good("BEGIN");
    two.good("UPDATE t SET v = 0 WHERE id = 1");
    one.good("ALTER TABLE t ADD COLUMN more int");
    assert!(two.say("COMMIT").starts_with("40001"));
    two.good("UPDATE t SET v = 11 WHERE id = 1");
    // Another table of the name has none of the rows.
    one.good("DROP TABLE t");
    one.good("CREATE TABLE t (id int PRIMARY KEY, other text)");
    assert_eq!(two.good("INSERT INTO t VALUES (1, 'new')"), "INSERT 0 1");
    assert_eq!(two.good("SELECT * FROM t WHERE id = 1"), "1|new");
    assert_eq!(one.good("SELECT count(*) FROM t"), "1");
    one.good("DROP TABLE t");
    assert!(two.say("SELECT count(*) FROM t").starts_with("42P01"), "it is gone");
}

#[test]
fn databases_are_listed_and_dropped() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut main = Talk::new(&service);
    main.good("CREATE TABLE t (id int PRIMARY KEY) WITH (partitions = 1)");
    main.good("CREATE DATABASE bank WITH (policy = semi, factor = 2)");
    main.good("CREATE DATABASE empty");
    let names = "SELECT datname FROM pg_database ORDER BY 1";
    assert_eq!(main.good(names), "bank\nempty\nunderstudy");
    let mut bank = within(&service, "bank");
    assert_eq!(bank.good(names), "bank\nempty\nunderstudy");
    assert!(bank.say("SELECT * FROM t").starts_with("42P01"), "each has tables of its own");
    bank.good("CREATE TABLE t (id serial PRIMARY KEY, v text)");
    assert_eq!(bank.good("INSERT INTO t (v) VALUES ('a'), ('b') RETURNING id"), "1\n2");
    assert_eq!(main.good("SELECT count(*) FROM t"), "0");
    let tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(bank.good(tables), "t");
    assert!(main.say("DROP DATABASE bank").starts_with("55006"), "somebody is in it");
    bank.good("CREATE TABLE more (id int PRIMARY KEY, v text)");
    bank.good("INSERT INTO more SELECT id, v FROM t");
    assert_eq!(bank.good("SELECT count(*) FROM t JOIN more ON t.id = more.id"), "2");
    drop(bank);
    assert!(main.say("DROP DATABASE bank").starts_with("2BP01"), "it has a table");
    let mut inside = within(&service, "bank");
    inside.good("BEGIN");
    inside.good("INSERT INTO t (v) VALUES ('c')");
    assert_eq!(main.good("DROP DATABASE bank WITH (FORCE)"), "DROP DATABASE");
    // Who is in a transaction there can end it.
    assert!(inside.say("SELECT * FROM t").starts_with("3D000"));
    assert_eq!(inside.good("ROLLBACK"), "ROLLBACK");
    drop(inside);
    assert!(main.say("DROP DATABASE bank").starts_with("3D000"));
    assert_eq!(main.good("DROP DATABASE IF EXISTS bank"), "DROP DATABASE");
    assert_eq!(main.good("DROP DATABASE empty"), "DROP DATABASE");
    assert_eq!(Talk::within(&service, "bank").map(drop).expect_err("gone").code, "3D000");
    assert_eq!(main.good(names), "understudy");
}
