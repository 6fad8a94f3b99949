//! SQL in databases on a cluster of this process: several tables that one transaction writes, tables that
//! others change meanwhile, databases that come and go.

use crate::common::Cluster;
use crate::common::talk::{Talk, service};

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
        ("CREATE INDEX ON accounts (abs(balance))", "0A000"),
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
    let mut inside = within(&service, "bank");
    inside.good("BEGIN");
    inside.good("INSERT INTO t (v) VALUES ('c')");
    assert_eq!(main.good("DROP DATABASE bank WITH (FORCE)"), "DROP DATABASE");
    // Who is in a transaction there can end it.
    assert!(inside.say("SELECT * FROM t").starts_with("3D000"));
    assert_eq!(inside.good("ROLLBACK"), "ROLLBACK");
    // When it is silent, its connection ends.
    assert_eq!(inside.overdue(crate::common::LONG).as_deref(), Some("57P01"));
    drop(inside);
    assert!(main.say("DROP DATABASE bank").starts_with("3D000"));
    assert_eq!(main.good("DROP DATABASE IF EXISTS bank"), "DROP DATABASE");
    assert_eq!(main.good("DROP DATABASE empty"), "DROP DATABASE");
    assert_eq!(Talk::within(&service, "bank").map(drop).expect_err("gone").code, "3D000");
    assert_eq!(main.good(names), "understudy");
}

#[test]
fn what_changes_nothing_here_is_done_and_said() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let mut one = within(&service, "bank");
    for (text, code, says) in [
        ("CREATE TABLE a (id int PRIMARY KEY) WITH (fillfactor = 90)", "00000", "fillfactor"),
        ("CREATE TABLE b WITH (fillfactor = 90) AS SELECT 1 AS x", "00000", "fillfactor"),
        ("CREATE USER app PASSWORD 'secret'", "00000", "CREATE ROLE"),
        ("GRANT SELECT, UPDATE (id) ON a TO app", "00000", "GRANT"),
        ("GRANT SELECT ON ALL TABLES IN SCHEMA public TO app", "00000", "GRANT"),
        // Who counts on it is warned.
        ("REVOKE SELECT ON a FROM app", "01000", "REVOKE"),
        ("ALTER TABLE a OWNER TO app", "00000", "OWNER TO"),
        ("ALTER SCHEMA public OWNER TO app", "00000", "OWNER TO"),
        ("REASSIGN OWNED BY app TO understudy", "00000", "REASSIGN OWNED"),
        ("VACUUM (FREEZE) a", "00000", "VACUUM"),
    ] {
        one.noted();
        one.good(text);
        let noted = one.noted();
        let [only] = noted.as_slice() else { panic!("{text}: {noted:?}") };
        assert!(only.starts_with(code) && only.contains(says), "{text}: {only}");
    }
    assert_eq!(one.copy("COPY a FROM STDIN (FREEZE)", "1\n2\n"), "COPY 2");
    let noted = one.noted();
    assert!(noted.len() == 1 && noted[0].contains("FREEZE"), "{noted:?}");
    one.good("ALTER TABLE a OWNER TO understudy");
    assert_eq!(one.noted(), Vec::<String>::new());
    one.refused(&[
        ("GRANT SELECT ON nope TO app", "42P01", "nope"),
        ("ALTER TABLE nope OWNER TO app", "42P01", "nope"),
        ("ALTER SCHEMA nope OWNER TO app", "3F000", "nope"),
        ("GRANT SELECT ON a", "42601", "TO"),
    ]);
}

#[test]
fn tables_have_what_pgbench_asks_for() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let mut one = within(&service, "bank");
    assert!(one.say("DROP TABLE IF EXISTS a, b, c").starts_with("DROP TABLE"));
    one.good("CREATE TABLE a (at timestamp, filler char(4), n int) WITH (fillfactor=100)");
    one.good("CREATE TABLE b (id serial, v int)");
    one.good("INSERT INTO a VALUES ('2024-01-02 03:04:05+07', 'ab  ', 1), (NULL, NULL, 2)");
    one.good("INSERT INTO a VALUES (CURRENT_TIMESTAMP, 'ab', 3), ('2024-01-02 03:04:05', 'ab', 1)");
    // Rows alike are two rows, and nobody sees what tells them apart.
    assert_eq!(one.good("SELECT count(*), min(n) FROM a WHERE filler = 'ab ' AND n = 1"), "2|1");
    assert_eq!(
        one.good("SELECT at::text, filler || '.', length(filler) FROM a WHERE n = 1 LIMIT 1"),
        "2024-01-02 03:04:05|ab.|2"
    );
    assert_eq!(
        one.good(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'a'::regclass AND attnum > 0 ORDER BY attnum"
        ),
        "at\nfiller\nn"
    );
    assert_eq!(one.good("SELECT count(*) FROM pg_index WHERE indrelid = 'a'::regclass"), "0");
    assert!(one.say("SELECT ctid FROM a").starts_with("42703"));
    assert!(one.say("INSERT INTO a (ctid) VALUES (1)").starts_with("42703"));
    assert!(one.say("ALTER TABLE a ADD COLUMN ctid int").starts_with("42701"));
    assert!(one.say("CREATE TABLE c (\"ctid\" int)").starts_with("42701"));
    one.good("ALTER TABLE a ADD COLUMN row_id int");
    assert!(one.say("INSERT INTO a VALUES (NULL, 'abcde', 1)").starts_with("22001"));
    one.good("ALTER TABLE a ADD COLUMN more int");
    one.good("UPDATE a SET more = n + 1 WHERE n = 1");
    assert_eq!(one.good("SELECT sum(more) FROM a"), "4");
    assert_eq!(one.good("DELETE FROM a WHERE n = 1"), "DELETE 2");
    assert_eq!(one.good("VACUUM ANALYZE a"), "VACUUM");
    assert!(one.say("VACUUM nothing").starts_with("42P01"));
    assert!(one.say("LOCK TABLE a").starts_with("25P01"));
    // Numbers go on where the rows are gone, or begin again.
    one.good("INSERT INTO b (v) VALUES (10), (20)");
    assert_eq!(one.good("TRUNCATE a, b"), "TRUNCATE TABLE");
    assert_eq!(one.good("SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)"), "0|0");
    let after: i64 = one.good("INSERT INTO b (v) VALUES (30) RETURNING id").parse().expect("a number");
    assert!(after > 2, "{after}");
    one.good("TRUNCATE b RESTART IDENTITY");
    assert_eq!(one.good("INSERT INTO b (v) VALUES (30) RETURNING id"), "1");
    assert!(one.say("TRUNCATE b, nothing").starts_with("42P01"));
    assert_eq!(one.good("SELECT count(*) FROM b"), "1", "all or none");
    assert_eq!(one.good("DROP TABLE IF EXISTS a, nothing, b"), "DROP TABLE");
    assert!(one.say("SELECT * FROM b").starts_with("42P01"));
}

#[test]
fn a_table_gets_a_key_with_its_rows() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let (here, there) = (service(&cluster), service(&cluster));
    Talk::new(&here).good("CREATE DATABASE bank");
    drop(Talk::new(&there));
    let (mut one, mut two) = (within(&here, "bank"), within(&there, "bank"));
    one.good("CREATE TABLE t (id int, number serial, v text)");
    one.good("INSERT INTO t (id, v) SELECT n, 'x' FROM generate_series(1, 5000) AS s(n)");
    two.good("INSERT INTO t (id, v) VALUES (7, 'twice')");
    let refused = one.say("ALTER TABLE t ADD PRIMARY KEY (id)");
    assert!(refused.starts_with("23505 could not create unique index \"t_pkey\""), "{refused}");
    // Nothing is left of it.
    assert_eq!(two.good("DELETE FROM t WHERE v = 'twice'"), "DELETE 1");
    two.good("INSERT INTO t (v) VALUES ('none')");
    assert!(one.say("ALTER TABLE t ADD PRIMARY KEY (id)").starts_with("23502"));
    two.good("DELETE FROM t WHERE id IS NULL");
    assert!(one.say("ALTER TABLE t ADD PRIMARY KEY (nothing)").starts_with("42703"));
    assert_eq!(one.good("ALTER TABLE t ADD CONSTRAINT t_pkey PRIMARY KEY (id)"), "ALTER TABLE");
    assert!(one.say("ALTER TABLE t ADD PRIMARY KEY (v)").starts_with("42P16"));
    assert_eq!(two.good("SELECT count(*), sum(id) FROM t"), "5000|12502500");
    assert_eq!(two.good("SELECT v FROM t WHERE id = 77"), "x");
    assert!(two.say("INSERT INTO t (id) VALUES (77)").starts_with("23505"));
    let known: i64 = one.good("SELECT max(number) FROM t").parse().expect("a number");
    let next: i64 = one.good("INSERT INTO t (id) VALUES (9999) RETURNING number").parse().expect("a number");
    assert!(next > known, "numbers go on: {next}");
    assert_eq!(
        one.good("SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass AND indisprimary"),
        "1"
    );
}

#[test]
fn tables_are_made_and_taken_back_with_their_transaction() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE kept (id int PRIMARY KEY, v int)");
    one.good("INSERT INTO kept VALUES (1, 10), (2, 20)");
    let script = [
        "CREATE TABLE made (id int PRIMARY KEY, v int)",
        "INSERT INTO made VALUES (1, 1), (2, 2)",
        "UPDATE made SET v = v + 1 WHERE id = 2",
        "ALTER TABLE made ADD COLUMN w text",
        "UPDATE made SET w = 'new' WHERE id = 1",
        "TRUNCATE kept",
        "INSERT INTO kept SELECT id + 10, v FROM made",
    ];
    for end in ["ROLLBACK", "COMMIT"] {
        one.good("BEGIN");
        script.iter().for_each(|text| drop(one.good(text)));
        assert_eq!(one.good("SELECT id, v, w FROM made ORDER BY id"), "1|1|new\n2|3|-");
        assert_eq!(one.good("SELECT count(*), sum(v) FROM kept"), "2|4");
        assert!(two.say("SELECT * FROM made").starts_with("42P01"), "nobody else sees it");
        assert_eq!(two.good("SELECT count(*), sum(v) FROM kept"), "2|30");
        assert_eq!(one.good(end), end);
        assert_eq!(one.say("SELECT count(*) FROM made").starts_with("42P01"), end == "ROLLBACK");
    }
    assert_eq!(two.good("SELECT count(*), sum(v) FROM kept"), "2|4");
    assert_eq!(two.good("SELECT w FROM made WHERE id = 1"), "new");
    // Back to a savepoint.
    one.good("BEGIN");
    one.good("SAVEPOINT s");
    one.good("DROP TABLE made");
    one.good("CREATE TABLE made (other text)");
    assert_eq!(one.good("SELECT count(*) FROM made"), "0");
    one.good("ROLLBACK TO SAVEPOINT s");
    assert_eq!(one.good("SELECT count(*) FROM made"), "2");
    one.good("COMMIT");
    // A message by itself sees them at its end as its last statement has made them.
    let message = "INSERT INTO kept VALUES (50, 5); CREATE TABLE y (id int); INSERT INTO y VALUES (1);
                   ALTER TABLE y ADD COLUMN z int";
    one.good(message);
    assert_eq!(two.good("SELECT id, z FROM y"), "1|-");
    assert_eq!(two.good("DELETE FROM kept WHERE id = 50"), "DELETE 1");
    // Who was slower is told, and has done nothing.
    one.good("BEGIN");
    one.good("CREATE TABLE raced (id int)");
    two.good("CREATE TABLE raced (id int, own int)");
    assert!(one.say("COMMIT").starts_with("42P07"));
    one.good("BEGIN");
    one.good("TRUNCATE kept");
    one.good("INSERT INTO kept VALUES (1, 1)");
    two.good("ALTER TABLE kept ADD COLUMN w int");
    assert!(one.say("COMMIT").starts_with("40001"));
    assert_eq!(two.good("SELECT count(*) FROM kept"), "2");
}

#[test]
fn a_transaction_makes_hundreds_of_tables_and_empties_them_with_those_that_refer_to_them() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE many");
    let (mut one, mut two) = (within(&service, "many"), within(&service, "many"));
    one.good("BEGIN");
    one.good("CREATE TABLE t0 (id int PRIMARY KEY, v int)");
    for number in 1..200 {
        let above = number / 2;
        one.good(&format!("CREATE TABLE t{number} (id int PRIMARY KEY, v int REFERENCES t{above})"));
    }
    assert_eq!(one.good("COMMIT"), "COMMIT");
    for number in 0..200 {
        two.good(&format!("INSERT INTO t{number} VALUES (0, 0)"));
    }
    assert!(two.say("TRUNCATE t0").starts_with("0A000"));
    assert!(two.say("TRUNCATE t0 RESTRICT").starts_with("0A000"));
    // In a transaction it can be rolled back, and by itself it is done at once.
    two.good("BEGIN");
    assert_eq!(two.good("TRUNCATE t1 CASCADE"), "TRUNCATE TABLE");
    assert_eq!(two.good("SELECT (SELECT count(*) FROM t1), (SELECT count(*) FROM t199)"), "0|0");
    assert_eq!(one.good("SELECT (SELECT count(*) FROM t1), (SELECT count(*) FROM t199)"), "1|1");
    two.good("ROLLBACK");
    assert_eq!(one.good("SELECT (SELECT count(*) FROM t1), (SELECT count(*) FROM t199)"), "1|1");
    assert_eq!(two.good("TRUNCATE t0 CASCADE"), "TRUNCATE TABLE");
    for number in [0, 1, 2, 100, 199] {
        assert_eq!(one.good(&format!("SELECT count(*) FROM t{number}")), "0", "t{number}");
    }
    assert!(one.say("INSERT INTO t199 VALUES (1, 1)").starts_with("23503"), "the rows to refer to are gone");
}

#[test]
fn pr123_a_transaction_loads_what_it_has_made_and_nobody_sees_it_before() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE t (id int, v char(84))");
    one.good("INSERT INTO t VALUES (0, 'old')");
    // More than one write takes.
    let lines: String = (1..=60_000).map(|id| format!("{id}\t{}\n", "x".repeat(80))).collect();
    for end in ["ROLLBACK", "COMMIT"] {
        one.good("BEGIN");
        one.good("TRUNCATE t");
        one.good("INSERT INTO t VALUES (-1, 'first')");
        assert_eq!(one.copy("COPY t FROM STDIN WITH (FREEZE ON)", &lines), "COPY 60000");
        assert_eq!(one.good("SELECT count(*) FROM t"), "60001");
        one.good("DELETE FROM t WHERE id = 60000");
        one.good("UPDATE t SET v = 'second' WHERE id = -1");
        assert_eq!(two.good("SELECT id, v FROM t"), "0|old");
        assert_eq!(one.good(end), end);
    }
    assert_eq!(two.good("SELECT count(*), sum(id) FROM t"), "60000|1799969999");
    assert_eq!(two.good("SELECT v FROM t WHERE id = -1"), "second");
    // Rows of a table that others know are the transaction's like any others.
    one.good("BEGIN");
    assert_eq!(one.copy("COPY t FROM STDIN", "-5\ta\n-6\tb\n"), "COPY 2");
    assert_eq!(one.good("SELECT count(*) FROM t WHERE id < -1"), "2");
    assert_eq!(two.good("SELECT count(*) FROM t WHERE id < -1"), "0");
    one.good("ROLLBACK");
    one.good("BEGIN");
    assert_eq!(one.copy("COPY t FROM STDIN", &lines), "COPY 60000", "more than one write takes");
    one.good("ROLLBACK");
    one.good("BEGIN");
    one.good("CREATE TABLE u (id int)");
    one.good("SAVEPOINT s");
    assert!(one.say("COPY u FROM STDIN").starts_with("0A000"));
    one.good("ROLLBACK");
    assert_eq!(one.good("SELECT count(*) FROM t"), "60000");
    // Who sends rows is not silent, and what it has loaded it can lock.
    one.good("SET idle_in_transaction_session_timeout = '800ms'");
    one.good("BEGIN");
    assert_eq!(one.good("SELECT count(*) FROM t WHERE id = -1"), "1");
    one.good("TRUNCATE t");
    let long = std::time::Duration::from_millis(2000);
    assert_eq!(one.copy_after("COPY t FROM STDIN", long, "7\tx\n"), "COPY 1");
    assert_eq!(one.good("SELECT id FROM t FOR UPDATE"), "7");
    one.good("COMMIT");
    assert_eq!(two.good("SELECT count(*), sum(id) FROM t"), "1|7");
    one.good("BEGIN");
    assert_eq!(one.good("SELECT count(*) FROM t"), "1");
    assert_eq!(one.copy("COPY t FROM STDIN", "8\ty\n"), "COPY 1");
    one.rest(long);
    assert!(one.say("COMMIT").starts_with("25P03"));
}

#[test]
fn statements_of_a_transaction_see_what_others_have_committed_and_wait_for_their_rows() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE t (id int PRIMARY KEY, v int)");
    one.good("INSERT INTO t VALUES (1, 0), (2, 0)");
    for (begin, seen) in [("BEGIN", "1"), ("BEGIN ISOLATION LEVEL REPEATABLE READ", "0")] {
        one.good("UPDATE t SET v = 0");
        one.good(begin);
        assert_eq!(one.good("SELECT v FROM t WHERE id = 1"), "0");
        two.good("UPDATE t SET v = 1 WHERE id = 1");
        assert_eq!(one.good("SELECT v FROM t WHERE id = 1"), seen, "{begin}");
        one.good("UPDATE t SET v = v + 1 WHERE id = 2");
        one.good("COMMIT");
        assert_eq!(two.good("SELECT v FROM t ORDER BY id"), "1\n1");
    }
    // What a statement has read must still be so when it is committed: here somebody of another node came.
    let other = self::service(&cluster);
    drop(Talk::new(&other));
    let mut far = within(&other, "bank");
    one.good("BEGIN");
    one.good("UPDATE t SET v = v + 10 WHERE id = 1");
    far.good("UPDATE t SET v = v + 100 WHERE id = 1");
    assert!(one.say("COMMIT").starts_with("40001"));
    // Those of one node take turns: nobody is told to do it again.
    two.good("UPDATE t SET v = 0");
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut talk = within(&service, "bank");
                for _ in 0..20 {
                    talk.good("BEGIN");
                    talk.good("UPDATE t SET v = v + 1 WHERE id = 1");
                    talk.good("UPDATE t SET v = v + 1 WHERE v >= 0 AND id > 1");
                    talk.good("COMMIT");
                }
            });
        }
    });
    assert_eq!(two.good("SELECT v FROM t ORDER BY id"), "120\n120");
}

#[test]
fn a_transaction_that_was_overtaken_on_another_node_is_to_begin_again() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    // Two nodes: until they find out that both want a row, their sessions take no turns with each other.
    let (here, there) = (service(&cluster), service(&cluster));
    Talk::new(&here).good("CREATE DATABASE shop");
    let within = |service| Talk::within(service, "shop").unwrap_or_else(|failure| panic!("{failure:?}"));
    let (mut one, mut two) = (within(&here), within(&there));
    one.good("CREATE TABLE district (id int PRIMARY KEY, next int)");
    one.good("CREATE TABLE orders (id int PRIMARY KEY, code int UNIQUE)");
    one.good("INSERT INTO district VALUES (1, 7)");
    let take = "UPDATE district SET next = next + 1 WHERE id = 1 RETURNING next - 1";
    for talk in [&mut one, &mut two] {
        talk.good("BEGIN");
        assert_eq!(talk.good(take), "7");
    }
    one.good("INSERT INTO orders VALUES (7, 70)");
    one.good("COMMIT");
    let said = two.say("INSERT INTO orders VALUES (7, 71)");
    assert!(said.starts_with("40001"), "the number was another's: {said}");
    two.good("ROLLBACK");
    // At COMMIT, too, whatever is met first there.
    for talk in [&mut one, &mut two] {
        talk.good("BEGIN");
        assert_eq!(talk.good(take), "8");
        talk.good("INSERT INTO orders VALUES (8, 80)");
    }
    one.good("COMMIT");
    let said = two.say("COMMIT");
    assert!(said.starts_with("40001"), "{said}");
    // A row that is gone is another one, too.
    one.good("INSERT INTO district VALUES (2, 7)");
    two.good("BEGIN");
    two.good("SELECT next FROM district WHERE id = 2 FOR UPDATE");
    two.good("UPDATE district SET next = 8 WHERE id = 2");
    one.good("DELETE FROM district WHERE id = 2");
    let said = two.say("INSERT INTO orders VALUES (8, 81)");
    assert!(said.starts_with("40001"), "its row is gone: {said}");
    two.good("ROLLBACK");
    // What was taken back is nothing that others could be in the way of.
    two.good("BEGIN");
    two.good("SAVEPOINT s");
    assert_eq!(two.good(take), "9");
    two.good("ROLLBACK TO s");
    one.good("UPDATE district SET next = 9 WHERE id = 1");
    assert!(two.say("INSERT INTO orders VALUES (8, 82)").starts_with("23505"));
    two.good("ROLLBACK");
    // Who was not overtaken is told what is wrong.
    two.good("BEGIN");
    assert_eq!(two.good(take), "9");
    assert!(two.say("INSERT INTO orders VALUES (8, 90)").starts_with("23505"));
    two.good("ROLLBACK");
    two.good("BEGIN");
    two.good(take);
    assert!(two.say("INSERT INTO orders VALUES (9, 80)").starts_with("23505"));
    two.good("ROLLBACK");
}

#[test]
fn commit_names_the_row_that_another_one_has_inserted() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let here = service(&cluster);
    Talk::new(&here).good("CREATE DATABASE shop");
    let within = || Talk::within(&here, "shop").unwrap_or_else(|failure| panic!("{failure:?}"));
    let (mut one, mut two) = (within(), within());
    one.good("CREATE TABLE a (id bigint PRIMARY KEY)");
    one.good("CREATE TABLE b (id bigint PRIMARY KEY, v text)");
    for talk in [&mut one, &mut two] {
        talk.good("BEGIN");
    }
    one.good("INSERT INTO b VALUES (5, 'one')");
    two.good("INSERT INTO a VALUES (1), (2)");
    two.good("INSERT INTO b VALUES (4, 'two'), (5, 'two'), (6, 'two')");
    one.good("COMMIT");
    let said = two.ask("COMMIT").expect_err("it is there");
    assert_eq!((said.code, said.detail.as_deref()), ("23505", Some("Key (id)=(5) already exists.")));
    assert!(said.message.contains("\"b_pkey\""), "{}", said.message);
    assert_eq!(one.good("SELECT count(*) FROM a"), "0", "nothing was changed");
}
