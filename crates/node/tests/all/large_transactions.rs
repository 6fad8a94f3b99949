//! Transactions of more rows than one write may have, beside other sessions.

use crate::common::talk::{Talk, service, service_spilling};
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

/// So much of a transaction is kept in memory in these tests, in bytes.
const THRESHOLD: usize = 1 << 20;

fn spilling(directory: &tempfile::TempDir) -> sql::txn::SpillSettings {
    let directory = directory.path().to_owned();
    sql::txn::SpillSettings { threshold: THRESHOLD, ..sql::txn::SpillSettings::within(directory) }
}

fn lines(ids: std::ops::RangeInclusive<u32>) -> String {
    let text = "x".repeat(300);
    ids.map(|id| format!("{id}\t{}\t{text}\n", id % 7)).collect()
}

#[test]
fn pr496_a_copy_in_a_block_that_spills_is_seen_by_the_block_and_committed_as_a_whole() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let directory = tempfile::TempDir::new().expect("a directory");
    let service = service_spilling(&cluster, spilling(&directory));
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE big (id int PRIMARY KEY, n int NOT NULL, text text)");
    one.good("CREATE TABLE journal (id int PRIMARY KEY, what text)");
    one.good("INSERT INTO big VALUES (0, 0, 'there')");
    let all = "SELECT count(*), sum(n), min(id), max(id) FROM big";
    let sum: u32 = (1..=60_000).map(|id| id % 7).sum();
    one.good("BEGIN");
    one.good("INSERT INTO journal VALUES (1, 'all')");
    assert_eq!(one.copy("COPY big FROM STDIN", &lines(1..=60_000)), "COPY 60000");
    let counters = service.spilled();
    assert!(counters.used > 20_000_000 && counters.times > 5, "{counters:?}");
    // What one piece of a COPY has, and what each row takes beside its bytes.
    assert!(counters.most_kept < 4 * THRESHOLD, "{counters:?}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), 0, "it has no name");
    // Its own rows are read by key, by range, all of them, and written again.
    assert_eq!(one.good("SELECT n, length(text) FROM big WHERE id = 31234"), format!("{}|300", 31_234 % 7));
    assert_eq!(one.good("SELECT id FROM big WHERE id > 40000 AND id < 40003 ORDER BY id"), "40001\n40002");
    assert_eq!(one.good("SELECT count(*) FROM big"), "60001");
    assert_eq!(one.good(all), format!("60001|{sum}|0|60000"));
    assert!(one.say("INSERT INTO big VALUES (70000, 1, 'a'), (70001, 1, 'b')").starts_with("INSERT"));
    assert_eq!(one.good("UPDATE big SET n = 100 WHERE id = 31234"), "UPDATE 1");
    assert_eq!(one.good("DELETE FROM big WHERE id IN (7, 70000)"), "DELETE 2");
    assert_eq!(one.good("SELECT n FROM big WHERE id = 31234"), "100");
    assert_eq!(one.good("SELECT count(*) FROM big WHERE id = 7"), "0");
    // 31,234 and 7 are multiples of 7, so theirs were 0.
    let changed = format!("60001|{}|0|70001", sum + 101);
    assert_eq!(one.good(all), changed);
    assert_eq!(two.good(all), "1|0|0|0", "nobody else sees any of it");
    one.good("COMMIT");
    assert_eq!(two.good(all), changed);
    assert_eq!(two.good("SELECT what FROM journal"), "all");
    assert_eq!(two.good("SELECT count(DISTINCT length(text)) FROM big WHERE id BETWEEN 1 AND 60000"), "1");
    assert_eq!(service.spilled().used, 0, "its file is gone");
}

#[test]
fn pr495_a_spilled_transaction_that_does_not_commit_leaves_nothing() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let directory = tempfile::TempDir::new().expect("a directory");
    let service = service_spilling(&cluster, spilling(&directory));
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE big (id int PRIMARY KEY, n int NOT NULL, text text)");
    one.good("INSERT INTO big VALUES (20000, 0, 'there')");
    let rest = |two: &mut Talk| {
        assert_eq!(two.good("SELECT count(*), min(n) FROM big"), "1|0");
        assert_eq!(service.spilled().used, 0, "its file is gone");
    };
    // It is rolled back.
    one.good("BEGIN");
    assert_eq!(one.copy("COPY big FROM STDIN", &lines(30_001..=50_000)), "COPY 20000");
    assert!(service.spilled().used > 5_000_000);
    one.good("ROLLBACK");
    rest(&mut two);
    // A row is there already, is given twice far apart, or is malformed, behind others that were set aside.
    let twice = format!("{}{}", lines(30_001..=50_000), lines(30_005..=30_005));
    let malformed = format!("{}oh\tno\t\n", lines(30_001..=50_000));
    for (lines, code) in [(lines(1..=20_000), "23505"), (twice, "23505"), (malformed, "22P02")] {
        one.good("BEGIN");
        let said = one.copy("COPY big FROM STDIN", &lines);
        assert!(said.starts_with(code), "{said}");
        assert!(one.say("SELECT 1 FROM big").starts_with("25P02"));
        one.good("ROLLBACK");
        rest(&mut two);
    }
    // Somebody else was faster at one of its rows.
    one.good("BEGIN");
    assert_eq!(one.copy("COPY big FROM STDIN", &lines(30_001..=50_000)), "COPY 20000");
    two.good("INSERT INTO big VALUES (30002, 1, 'theirs')");
    assert!(one.say("COMMIT").starts_with("23505"));
    assert_eq!(two.good("DELETE FROM big WHERE id = 30002"), "DELETE 1");
    rest(&mut two);
    // Most of it is taken back by itself: one write has the rest, which was set aside.
    one.good("BEGIN");
    assert_eq!(one.copy("COPY big FROM STDIN", &lines(30_001..=50_000)), "COPY 20000");
    assert_eq!(one.good("DELETE FROM big WHERE id > 30010"), "DELETE 19990");
    one.good("COMMIT");
    assert_eq!(two.good("SELECT count(*), max(id) FROM big"), "11|30010");
    assert_eq!(service.spilled().used, 0);
}

/// One entry has 16 MB; what has more with its index rows is done by several.
#[test]
fn a_transaction_of_16_mb_is_one_entry_and_one_with_as_many_index_rows_is_committed_too() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE plain (id int PRIMARY KEY, n int NOT NULL, text text)");
    one.good("CREATE TABLE indexed (id int PRIMARY KEY, n int NOT NULL, text text)");
    one.good("CREATE INDEX by_text ON indexed (text)");
    let text = "x".repeat(1_000);
    let lines: String = (1..=15_000).map(|id| format!("{id}\t1\t{text}\n")).collect();
    for table in ["plain", "indexed"] {
        one.good("BEGIN");
        assert_eq!(one.copy(&format!("COPY {table} FROM STDIN"), &lines), "COPY 15000");
        one.good("COMMIT");
        assert_eq!(two.good(&format!("SELECT count(*), sum(n) FROM {table}")), "15000|15000");
    }
    // The whole of it was one entry, or rows were written again under another id.
    let id = |talk: &mut Talk, table: &str| {
        talk.good(&format!("SELECT oid FROM pg_class WHERE relname = '{table}'"))
    };
    let before = [id(&mut one, "plain"), id(&mut one, "indexed")];
    for table in ["plain", "indexed"] {
        one.good("BEGIN");
        assert_eq!(one.good(&format!("UPDATE {table} SET n = 2, text = text || 'y'")), "UPDATE 15000");
        one.good("COMMIT");
        assert_eq!(two.good(&format!("SELECT sum(n) FROM {table}")), "30000");
    }
    assert_eq!(id(&mut one, "plain"), before[0], "one entry");
    assert_ne!(id(&mut one, "indexed"), before[1], "several");
}
