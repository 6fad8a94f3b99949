//! Transactions of more rows than one write may have, beside other sessions.

use crate::common::talk::{Talk, service};
use crate::common::{Cluster, in_sync, wait_for};
use std::thread;
use std::time::{Duration, Instant};

fn within(service: &sql::Sql, database: &str) -> Talk {
    Talk::within(service, database).unwrap_or_else(|failure| panic!("{failure:?}"))
}

#[test]
fn pr78_a_large_transaction_is_seen_as_a_whole_and_the_first_committer_wins() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE big (id int PRIMARY KEY, n int NOT NULL)");
    one.good("CREATE TABLE journal (id int PRIMARY KEY, what text)");
    one.good("INSERT INTO big SELECT n, 0 FROM generate_series(1, 60000) AS s(n)");
    let sum = "SELECT count(*), sum(n) FROM big";
    one.good("BEGIN");
    assert_eq!(one.good("UPDATE big SET n = n + 1"), "UPDATE 60000");
    one.good("INSERT INTO journal VALUES (1, 'all')");
    assert_eq!(one.good(sum), "60000|60000");
    assert_eq!(two.good(sum), "60000|0");
    one.good("COMMIT");
    assert_eq!(two.good(sum), "60000|60000");
    assert_eq!(two.good("SELECT what FROM journal"), "all");
    // Others change a row that it has seen, remove one, and insert one that it inserts.
    let all = "UPDATE big SET n = n + 1";
    let more = "INSERT INTO big SELECT n, 0 FROM generate_series(100000, 160000) AS s(n)";
    let upsert = "UPDATE big SET n = n + 1; INSERT INTO big VALUES (200001, 0) ON CONFLICT DO NOTHING";
    for (mine, theirs, code, left) in [
        (all, "UPDATE big SET n = 7 WHERE id = 59999", "40001", "60000|60006"),
        (all, "DELETE FROM big WHERE id = 59999", "40001", "59999|59999"),
        (more, "INSERT INTO big VALUES (100001, 1)", "23505", "60000|60000"),
        (upsert, "INSERT INTO big VALUES (200001, 1)", "40001", "60001|60001"),
        (all, "ALTER TABLE big ADD COLUMN more int", "40001", "60001|60001"),
    ] {
        one.good("BEGIN");
        one.good(mine);
        one.good("UPDATE journal SET what = 'none of it'");
        two.good(theirs);
        assert!(one.say("COMMIT").starts_with(code), "{theirs}");
        assert_eq!(two.good(sum), left, "{theirs}");
        assert_eq!(two.good("SELECT what FROM journal"), "all", "{theirs}");
        // It is written as ever.
        assert_eq!(two.good("UPDATE big SET n = n + 0 WHERE id = 1"), "UPDATE 1");
    }
    // A row of a table with few rows is compared, too.
    one.good("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(one.good("SELECT what FROM journal"), "all");
    two.good("UPDATE journal SET what = 'theirs'");
    one.good(all);
    one.good("UPDATE journal SET what = 'mine'");
    assert!(one.say("COMMIT").starts_with("40001"));
    assert_eq!(two.good(sum), "60001|60001");
    // Who was slower has written a table that is another one now.
    two.good("BEGIN");
    two.good("UPDATE big SET n = 100 WHERE id = 2");
    one.good("BEGIN");
    one.good("UPDATE big SET n = n + 1 WHERE id > 2");
    one.good("COMMIT");
    assert!(two.say("COMMIT").starts_with("40001"));
    assert_eq!(one.good("SELECT n FROM big WHERE id = 2"), "1");
    // It sees its own rows until it is told so, which is by its next statement.
    two.good("BEGIN");
    two.good("UPDATE big SET n = 100 WHERE id = 2");
    assert_eq!(two.good("SELECT n FROM big WHERE id = 2"), "100");
    one.good("BEGIN");
    one.good("UPDATE big SET n = n + 1 WHERE id > 2");
    one.good("COMMIT");
    let said = two.say("SELECT n FROM big WHERE id = 2");
    assert!(said.starts_with("40001") && said.contains("big"), "{said}");
    two.good("ROLLBACK");
    assert_eq!(two.good("SELECT n FROM big WHERE id = 2"), "1");
}

#[test]
fn tables_of_a_large_transaction_may_refer_to_each_other() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE shop");
    let mut one = within(&service, "shop");
    one.good("CREATE TABLE towns (id int PRIMARY KEY, name text UNIQUE)");
    one.good("CREATE TABLE pets (id int PRIMARY KEY, town int REFERENCES towns)");
    one.good("CREATE TABLE notes (id int PRIMARY KEY, town int REFERENCES towns)");
    let counts = "SELECT (SELECT count(*) FROM towns), (SELECT count(*) FROM pets)";
    // The table that the others refer to is filled first, though it is named last.
    one.good("INSERT INTO towns VALUES (0, 'there')");
    one.good("BEGIN");
    one.good("INSERT INTO towns VALUES (1, 'new')");
    one.good("INSERT INTO pets SELECT n, n % 2 FROM generate_series(1, 60000) AS s(n)");
    one.good("INSERT INTO notes VALUES (1, 1)");
    one.good("COMMIT");
    assert_eq!(one.good(counts), "2|60000");
    assert!(one.say("INSERT INTO notes VALUES (2, 2)").starts_with("23503"));
    assert!(one.say("DELETE FROM towns WHERE id = 1").starts_with("23503"));
    one.good("DROP TABLE notes");
    // Rows that refer to one that goes, and that nobody has removed.
    one.good("BEGIN");
    one.good("DELETE FROM pets WHERE town = 1 OR id > 8");
    one.good("DELETE FROM pets WHERE id > 2");
    one.good("DELETE FROM towns WHERE id = 0");
    assert!(one.say("COMMIT").starts_with("23503"));
    assert_eq!(one.good(counts), "2|60000");
    // They are removed with it; new rows of both are looked at as they are.
    one.good("BEGIN");
    one.good("DELETE FROM pets");
    one.good("DELETE FROM towns WHERE id = 0");
    one.good("INSERT INTO towns SELECT n, 'town ' || n FROM generate_series(2, 60001) AS s(n)");
    one.good("INSERT INTO pets SELECT n, n FROM generate_series(1, 5) AS s(n)");
    one.good("COMMIT");
    assert_eq!(one.good(counts), "60001|5");
    assert!(one.say("DELETE FROM towns WHERE id = 3").starts_with("23503"));
    // Nobody looks at rows of a table that is not written: what they may refer to stays.
    one.good("CREATE TABLE notes (id int PRIMARY KEY, town int REFERENCES towns)");
    one.good("BEGIN");
    one.good("DELETE FROM pets");
    one.good("DELETE FROM towns WHERE id > 1");
    assert!(one.say("COMMIT").starts_with("54000"));
    one.good("BEGIN");
    one.good("UPDATE towns SET name = name || '!'");
    one.good("DELETE FROM pets WHERE id = 5");
    one.good("COMMIT");
    assert_eq!(one.good(counts), "60001|4");
    // What is unique is kept, by rows that were there, too.
    one.good("BEGIN");
    one.good("UPDATE towns SET name = 'a' || id WHERE id > 2");
    one.good("UPDATE towns SET name = 'a3' WHERE id = 2");
    assert!(one.say("COMMIT").starts_with("23505"));
    assert_eq!(one.good("SELECT name FROM towns WHERE id = 2"), "town 2!");
}

/// Who leads the partition of this database.
fn leader(client: &mut client::Client, database: &str) -> u32 {
    let partition = client.database(database).expect("it is there").partition();
    let status = wait_for(client, "all copies", |status| in_sync(status, 3));
    let record = status.partitions.iter().find(|record| record.id == partition);
    record.expect("known").primary.node.0
}

#[test]
fn a_large_commit_that_loses_its_primary_is_done_as_a_whole_or_not_at_all() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE big (id int PRIMARY KEY, n int NOT NULL)");
    one.good("CREATE TABLE journal (id int PRIMARY KEY, n int NOT NULL)");
    one.good("INSERT INTO big SELECT n, 0 FROM generate_series(1, 60000) AS s(n)");
    one.good("INSERT INTO journal VALUES (1, 0)");
    let all = "SELECT count(*), sum(big.n), min(big.n), max(big.n), min(journal.n) FROM big, journal";
    let state = |done: u32| format!("60000|{}|{done}|{done}|{done}", 60_000 * done);
    let mut done = 0;
    for wait in [100, 400, 800] {
        let primary = leader(&mut client, "bank");
        one.good("BEGIN");
        one.good("UPDATE big SET n = n + 1");
        one.good("UPDATE journal SET n = n + 1");
        let said = thread::scope(|scope| {
            let commit = scope.spawn(|| one.say("COMMIT"));
            thread::sleep(Duration::from_millis(wait));
            cluster.kill(primary);
            while !commit.is_finished() {
                let seen = two.say(all);
                let whole = [done, done + 1].iter().any(|done| seen == state(*done));
                assert!(whole || seen.starts_with("40001") || seen.starts_with("57P03"), "{seen}");
            }
            commit.join().expect("no panic")
        });
        let seen = two.good(all);
        let is_done = seen == state(done + 1);
        assert!(is_done || seen == state(done), "{said}: {seen}");
        match &said[..5.min(said.len())] {
            "COMMI" => assert!(is_done, "{seen}"),
            "40001" | "57P03" => assert!(!is_done, "{said}: {seen}"),
            "40003" => {}
            _ => panic!("{said}"),
        }
        done += u32::from(is_done);
        // Nobody is held up.
        assert_eq!(two.good("UPDATE big SET n = n + 0 WHERE id = 7"), "UPDATE 1");
        cluster.start_node(primary);
    }
}

/// A table is altered while it is filled together with one that it refers to: the COMMIT is refused, and both
/// are free at once.
#[test]
fn pr371_a_table_that_is_altered_meanwhile_leaves_no_other_one_held() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE shop");
    let (mut one, mut two) = (within(&service, "shop"), within(&service, "shop"));
    one.good("CREATE TABLE towns (id int PRIMARY KEY, n int NOT NULL)");
    one.good("CREATE TABLE pets (id int PRIMARY KEY, town int REFERENCES towns, n int NOT NULL)");
    one.good("INSERT INTO towns SELECT n, 0 FROM generate_series(1, 60000) AS s(n)");
    one.good("INSERT INTO pets SELECT n, n, 0 FROM generate_series(1, 60000) AS s(n)");
    for (round, altered) in ["pets", "towns", "pets"].into_iter().enumerate() {
        one.good("BEGIN");
        one.good("UPDATE towns SET n = n + 1");
        one.good("UPDATE pets SET n = n + 1");
        let said = thread::scope(|scope| {
            let commit = scope.spawn(|| one.say("COMMIT"));
            thread::sleep(Duration::from_millis(150));
            two.say(&format!("ALTER TABLE {altered} ADD COLUMN more{round} int"));
            commit.join().expect("no panic")
        });
        assert!(said.starts_with("COMMIT") || said.starts_with("40001"), "{said}");
        let since = Instant::now();
        assert_eq!(two.good("UPDATE towns SET n = n WHERE id = 7"), "UPDATE 1");
        two.good("BEGIN");
        two.good("UPDATE pets SET n = n WHERE id = 7");
        two.good("COMMIT");
        two.good(&format!("CREATE TABLE other{round} (id int PRIMARY KEY)"));
        assert!(since.elapsed() < Duration::from_secs(50), "they were held until that was old: {since:?}");
        let whole = "SELECT min(t.n) = max(t.n) AND min(p.n) = max(p.n) AND min(t.n) = min(p.n) FROM towns t, pets p \
                     WHERE p.town = t.id";
        assert_eq!(two.good(whole), "t");
    }
}
