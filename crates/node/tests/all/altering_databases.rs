//! CREATE, ALTER and DROP DATABASE on a cluster of this process: how a database is kept, its name, and who is
//! in it.

use crate::common::psql::Psql;
use crate::common::talk::{Talk, service};
use crate::common::{Cluster, LONG, in_sync, of_node, wait_for};
use client::Client;
use std::time::{Duration, Instant};
use wire::RecordText;
use wire::control::{AdminCommand, ClusterStatus};

fn within(service: &sql::Sql, database: &str) -> Talk {
    Talk::within(service, database).unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// What the records say of a database's partitions: the policy in force, and how many copies are in sync.
fn kept(client: &mut Client, database: &str) -> Vec<(String, usize)> {
    let id = client.database(database).expect("it is there").id();
    let status = client.admin(AdminCommand::Status).expect("told");
    let status: ClusterStatus = RecordText(status).read().expect("a status");
    let of_it = status.partitions.iter().filter(|record| record.table == id);
    of_it.map(|record| (record.policy.name.clone(), record.in_sync.len())).collect()
}

#[test]
fn a_database_is_altered_while_it_serves() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut main = Talk::new(&service);
    main.good("CREATE DATABASE bank WITH (policy = semi, factor = 2)");
    main.good(
        "CREATE DATABASE wide WITH (partitions = 2, partition_by = '(w)', policy = durable, factor = 2)",
    );
    let mut bank = within(&service, "bank");
    bank.good("CREATE TABLE t (id int PRIMARY KEY)");
    let mut client = cluster.client();
    assert_eq!(kept(&mut client, "bank"), [("semi".to_string(), 2)]);
    assert_eq!(main.good("ALTER DATABASE bank SET (policy = sync, factor = 3)"), "ALTER DATABASE");
    // It is told when every partition has it, of a database of several as well, and from within.
    assert_eq!(kept(&mut client, "bank"), [("sync".to_string(), 3)]);
    main.good("ALTER DATABASE wide SET (policy = sync, factor = 3)");
    assert_eq!(kept(&mut client, "wide"), vec![("sync".to_string(), 3); 2]);
    bank.good("ALTER DATABASE bank SET (policy = durable)");
    assert_eq!(kept(&mut client, "bank"), [("durable".to_string(), 3)]);
    bank.good("INSERT INTO t VALUES (1)");
    // The one that is always there has no record before it is needed.
    main.good("ALTER DATABASE understudy SET (policy = sync)");
    main.good("CREATE TABLE first (id int PRIMARY KEY)");
    assert_eq!(kept(&mut cluster.client(), "understudy"), [("sync".to_string(), 3)]);
    let too_many = "wants 4 copies, but only 3 nodes are live";
    main.refused(&[
        ("ALTER DATABASE nothing SET (policy = sync)", "3D000", "\"nothing\" does not exist"),
        ("ALTER DATABASE bank SET (factor = 4)", "53000", too_many),
        ("ALTER DATABASE bank SET (policy = quick)", "22023", "quick"),
        ("ALTER DATABASE bank SET (partitions = 2)", "0A000", "changing partitions"),
        ("ALTER DATABASE bank SET (speed = 2)", "22023", "unrecognized parameter \"speed\""),
        ("ALTER DATABASE bank SET TABLESPACE fast", "0A000", "SET TABLESPACE fast"),
        ("ALTER DATABASE bank SET default_transaction_read_only TO on", "0A000", "kept with a database"),
        ("BEGIN; ALTER DATABASE bank SET (policy = sync)", "25001", "ALTER DATABASE cannot run inside"),
    ]);
    assert_eq!(kept(&mut client, "bank"), [("durable".to_string(), 3)]);
    // What changes nothing is done anywhere, and said where somebody may count on it.
    main.notices();
    main.good("BEGIN; ALTER DATABASE bank OWNER TO understudy; COMMIT");
    assert_eq!(main.notices(), Vec::<String>::new());
    assert_eq!(main.good("ALTER DATABASE bank SET timezone TO 'UTC'"), "ALTER DATABASE");
    let told = main.notices();
    assert!(told.len() == 1 && told[0].starts_with("00000 parameters are not kept"), "{told:?}");
    assert!(main.say("ALTER DATABASE nothing OWNER TO understudy").starts_with("3D000"));
}

#[test]
fn a_database_gets_another_name_while_nobody_is_in_it() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut main = Talk::new(&service);
    main.good("CREATE DATABASE bank");
    main.good("CREATE DATABASE other");
    main.refused(&[
        ("ALTER DATABASE nothing RENAME TO shop", "3D000", "\"nothing\" does not exist"),
        ("ALTER DATABASE bank RENAME TO other", "42P04", "\"other\" already exists"),
        ("ALTER DATABASE bank RENAME TO understudy", "42P04", "\"understudy\" already exists"),
        ("ALTER DATABASE understudy RENAME TO shop", "42501", "the cluster's own"),
        ("ALTER DATABASE bank RENAME TO \"a b\"", "22023", "not a database's name"),
    ]);
    let mut bank = within(&service, "bank");
    bank.good("CREATE TABLE t (id int PRIMARY KEY)");
    bank.good("INSERT INTO t VALUES (1)");
    bank.refused(&[("ALTER DATABASE bank RENAME TO shop", "0A000", "current database cannot be renamed")]);
    main.refused(&[("ALTER DATABASE bank RENAME TO shop", "55006", "is being accessed by other users")]);
    drop(bank);
    assert_eq!(main.good("ALTER DATABASE bank RENAME TO shop"), "ALTER DATABASE");
    assert_eq!(main.good("SELECT datname FROM pg_database ORDER BY 1"), "other\nshop\nunderstudy");
    assert_eq!(Talk::within(&service, "bank").map(drop).expect_err("gone").code, "3D000");
    let mut shop = within(&service, "shop");
    assert_eq!(shop.good("SELECT current_database()"), "shop");
    assert_eq!(shop.good("SELECT count(*) FROM t"), "1");
    drop(shop);
    // The name is free again.
    main.good("CREATE DATABASE bank");
    main.good("DROP DATABASE shop");
    assert_eq!(main.good("SELECT datname FROM pg_database ORDER BY 1"), "bank\nother\nunderstudy");
}

#[test]
fn what_cannot_be_made_is_refused_and_nothing_of_it_is_there() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let service = service(&cluster);
    let mut main = Talk::new(&service);
    main.good("CREATE DATABASE there");
    let before = wait_for(&mut client, "its partition", |status| !status.partitions.is_empty());
    main.refused(&[
        ("CREATE DATABASE bank WITH (factor = 4)", "53000", "wants 4 copies, but only 3 nodes are live"),
        ("CREATE DATABASE bank WITH (factor = 9)", "22023", "factor 9 is out of range"),
        ("CREATE DATABASE bank WITH (factor = 2, min_in_sync = 3)", "22023", "min_in_sync 3 is out of range"),
        ("CREATE DATABASE bank WITH (policy = quick)", "22023", "there is no policy 'quick'"),
        ("CREATE DATABASE bank WITH (engine = paper)", "22023", "\"engine\": \"paper\""),
        ("CREATE DATABASE bank WITH (log = memory, policy = durable)", "22023", "needs log = disk"),
        ("CREATE DATABASE bank WITH (speed = 6)", "22023", "unrecognized parameter \"speed\""),
        ("CREATE DATABASE bank WITH (partitions = 2, partition_by = '(w colour)')", "42704", "\"colour\""),
        ("CREATE DATABASE there", "42P04", "\"there\" already exists"),
        ("CREATE DATABASE there WITH (factor = 4)", "42P04", "\"there\" already exists"),
    ]);
    assert_eq!(main.good("SELECT datname FROM pg_database ORDER BY 1"), "there\nunderstudy");
    let after = wait_for(&mut client, "the same", |_| true);
    assert_eq!(after.partitions, before.partitions);
    let mut there = within(&service, "there");
    there.good("CREATE TABLE t (id int PRIMARY KEY)");
    there.refused(&[
        ("CREATE TABLE u (id int PRIMARY KEY, c colour)", "42704", "type \"colour\" does not exist"),
        ("CREATE TABLE u (id int PRIMARY KEY, c money)", "0A000", "type money"),
        ("ALTER TABLE t ADD COLUMN c colour", "42704", "type \"colour\" does not exist"),
        ("CREATE TABLE u (id int PRIMARY KEY) WITH (speed = 6)", "0A000", "storage options"),
        ("CREATE TABLE t (id int PRIMARY KEY)", "42P07", "\"t\" already exists"),
    ]);
    assert_eq!(there.good("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"), "t");
}

/// Sessions of a node that is not asked count as well, and go with their database wherever they are.
#[test]
fn a_database_is_not_dropped_under_who_is_in_it_by_way_of_another_node() {
    let cluster = Cluster::with(3, &[("sql.listen", "127.0.0.1:0")]);
    let mut client = cluster.ready();
    let service = service(&cluster);
    let mut main = Talk::new(&service);
    let told = |client: &mut Client, number: u32| {
        let told =
            |status: &ClusterStatus| of_node(status, number).is_some_and(|node| !node.sessions.is_empty());
        wait_for(client, "a node to tell of its session", told);
    };
    main.good("CREATE DATABASE bank");
    let mut there = Psql::connect(&cluster, 2, "bank");
    there.say("CREATE TABLE t (id int PRIMARY KEY)").expect("made");
    told(&mut client, 2);
    let used = "database \"bank\" is being accessed by other users";
    main.refused(&[
        ("DROP DATABASE bank", "55006", used),
        ("ALTER DATABASE bank RENAME TO shop", "55006", used),
    ]);
    there.say("INSERT INTO t VALUES (1)").expect("nothing has happened");
    // Who is about to go is waited for.
    let goes = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        drop(there);
    });
    assert_eq!(main.good("DROP DATABASE bank"), "DROP DATABASE");
    goes.join().expect("it went");
    main.good("CREATE DATABASE bank");
    let mut silent = Psql::connect(&cluster, 1, "bank");
    let mut writing = Psql::connect(&cluster, 3, "bank");
    writing.say("CREATE TABLE t (id int PRIMARY KEY)").expect("made");
    writing.say("BEGIN").expect("begun");
    writing.say("INSERT INTO t VALUES (1)").expect("written");
    let mut other = Psql::connect(&cluster, 1, understudy_node::SQL_DATABASE);
    told(&mut client, 3);
    assert_eq!(main.good("DROP DATABASE bank WITH (FORCE)"), "DROP DATABASE");
    for ended in [silent.ended(), writing.ended()] {
        assert!(ended.contains("57P01"), "{ended}");
    }
    assert_eq!(other.say("SELECT 1"), Ok(vec!["1".to_string()]), "it is in another one");
}

/// Says this while the node that leads the database dies, so long after it was begun. What came of it, and
/// which node is gone.
fn interrupted(cluster: &mut Cluster, talk: &mut Talk, (text, after): (&str, Duration)) -> (String, u32) {
    let mut client = cluster.client();
    let partition = client.database("bank").expect("it is there").partition();
    let leads = client.cluster_map().primary(partition).expect("somebody leads").0;
    let said = std::thread::scope(|scope| {
        let said = scope.spawn(|| talk.say(text));
        std::thread::sleep(after);
        cluster.kill(leads);
        said.join().expect("it was answered")
    });
    (said, leads)
}

/// True if it is not known whether a statement was done, or it surely was not, and may be said again.
fn may_be_repeated(said: &str) -> bool {
    ["40001", "40003", "57P03"].iter().any(|code| said.starts_with(code))
}

/// What comes of it once somebody leads again.
fn repeated(talk: &mut Talk, text: &str) -> String {
    let deadline = Instant::now() + 3 * LONG;
    loop {
        let said = talk.say(text);
        if !may_be_repeated(&said) {
            return said;
        }
        assert!(Instant::now() < deadline, "{text}: {said}");
    }
}

#[test]
fn what_a_death_of_the_primary_interrupts_is_done_or_not_and_a_second_try_says_so() {
    let mut cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank WITH (policy = durable, factor = 3)");
    let mut bank = within(&service, "bank");
    bank.good("CREATE TABLE t (id int PRIMARY KEY, v int, w int)");
    bank.good("INSERT INTO t SELECT n, n, n FROM generate_series(1, 20000) AS s(n)");
    for (text, again, after_ms) in [
        ("CREATE TABLE u (id int PRIMARY KEY)", "42P07", 1),
        ("ALTER TABLE t ADD COLUMN n int NOT NULL DEFAULT 3", "42701", 3),
        ("ALTER TABLE t ADD CONSTRAINT large CHECK (v > 0)", "42710", 20),
        ("ALTER TABLE t ALTER COLUMN w TYPE text", "ALTER TABLE", 60),
        ("DROP TABLE u", "42P01", 0),
    ] {
        let after = Duration::from_millis(after_ms);
        let (first, gone) = interrupted(&mut cluster, &mut bank, (text, after));
        assert!(first == tag(text) || may_be_repeated(&first), "{text}: {first}");
        let second = repeated(&mut bank, text);
        // What was acknowledged is done, and what was not is done now, if it was not before.
        assert!(second.starts_with(again) || (first != second && second == tag(text)), "{first}, {second}");
        let third = repeated(&mut bank, text);
        assert!(third.starts_with(again), "{text}: {third}");
        assert_eq!(bank.good("SELECT count(*) FROM t"), "20000");
        assert_eq!(bank.good("SELECT sum(id) FROM t"), "200010000");
        cluster.start_node(gone);
        let mut client = cluster.client();
        wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    }
    assert_eq!(bank.good("SELECT sum(v) FROM t WHERE n = 3 AND w = v::text"), "200010000");
    assert!(bank.say("INSERT INTO t VALUES (0, 0, 'x', 3)").starts_with("23514"), "the CHECK is kept");
    assert_eq!(bank.good("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"), "t");
}

/// The node that was killed comes back.
fn comes_back(cluster: &mut Cluster, gone: u32) {
    cluster.start_node(gone);
    let mut client = cluster.client();
    wait_for(&mut client, "all copies", |status| in_sync(status, 3));
}

/// Rows that are there are looked at while the primary dies. A constraint of which a second try says that it
/// is there is one that all rows keep.
#[test]
fn pr490_a_constraint_that_a_death_of_the_primary_interrupts_is_valid_or_not_there() {
    let mut cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank WITH (policy = durable, factor = 3)");
    let mut bank = within(&service, "bank");
    bank.good("CREATE TABLE town (id int PRIMARY KEY)");
    bank.good("INSERT INTO town SELECT n FROM generate_series(1, 100) AS s(n)");
    bank.good("CREATE TABLE t (id int PRIMARY KEY, v int, w int, x int, y int)");
    let fill =
        "INSERT INTO t SELECT n, n, n % 100 + 1, n, n % 100 + 1 FROM generate_series(1, 30000) AS s(n)";
    bank.good(fill);
    bank.good("UPDATE t SET x = 1, y = 999 WHERE id = 30000");
    let not_valid = "SELECT count(*) FROM pg_constraint WHERE NOT convalidated";
    for (text, again, after_ms) in [
        ("ALTER TABLE t ADD CONSTRAINT once UNIQUE (v)", "42P07", 20),
        ("ALTER TABLE t ADD CONSTRAINT lives FOREIGN KEY (w) REFERENCES town", "42710", 40),
        ("CREATE INDEX by_w ON t (w, v)", "42P07", 10),
    ] {
        let (first, gone) = interrupted(&mut cluster, &mut bank, (text, Duration::from_millis(after_ms)));
        assert!(first == tag(text) || may_be_repeated(&first), "{text}: {first}");
        let second = repeated(&mut bank, text);
        assert!(second.starts_with(again) || (first != second && second == tag(text)), "{first}, {second}");
        let third = repeated(&mut bank, text);
        assert!(third.starts_with(again), "{text}: {third}");
        assert_eq!(bank.good(not_valid), "0", "{text}");
        comes_back(&mut cluster, gone);
    }
    for (text, code, mend) in [
        ("ALTER TABLE t ADD CONSTRAINT twice UNIQUE (x)", "23505", "UPDATE t SET x = 30000 WHERE id = 30000"),
        (
            "ALTER TABLE t ADD CONSTRAINT home FOREIGN KEY (y) REFERENCES town",
            "23503",
            "UPDATE t SET y = 100 WHERE id = 30000",
        ),
    ] {
        let (first, gone) = interrupted(&mut cluster, &mut bank, (text, Duration::from_millis(20)));
        assert!(first.starts_with(code) || may_be_repeated(&first), "{text}: {first}");
        let second = repeated(&mut bank, text);
        assert!(second.starts_with(code), "{text}: {second}");
        bank.good(mend);
        let third = repeated(&mut bank, text);
        let was_left = third.starts_with("42P07") || third.starts_with("42710");
        assert!(third == tag(text) || was_left, "{text}: {third}");
        assert_eq!(bank.good(not_valid), "0", "{text}");
        comes_back(&mut cluster, gone);
    }
    bank.refused(&[
        ("INSERT INTO t VALUES (40000, 29999, 1, 40000, 1)", "23505", "once"),
        ("INSERT INTO t VALUES (40000, 40000, 1, 29999, 1)", "23505", "twice"),
        ("INSERT INTO t VALUES (40000, 40000, 101, 40000, 1)", "23503", "lives"),
        ("INSERT INTO t VALUES (40000, 40000, 1, 40000, 101)", "23503", "home"),
        ("DELETE FROM town WHERE id = 100", "23503", ""),
    ]);
    assert_eq!(bank.good("SELECT count(*), sum(id) FROM t WHERE w = 8"), "300|4487100");
}

/// What is answered to a statement that is done: its first two words.
fn tag(text: &str) -> String {
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}
