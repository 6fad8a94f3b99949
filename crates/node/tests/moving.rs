//! Tables that lie together with others get partitions of their own, on a cluster of this process: with
//! their rows, beside sessions that write them, and where whoever moved one has died in the middle.

mod common;

use client::{Client, created, wall_ms};
use common::talk::{Talk, service};
use common::{Cluster, LONG};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use types::data::Schema;
use types::{CatalogTable, TableId, system};
use wire::control::CreateTable;
use wire::{RecordText, TableChange};

#[test]
fn a_table_moves_with_its_rows_and_indexes_and_what_cannot_move_is_refused() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let (here, there) = (service(&cluster), service(&cluster));
    let (mut one, mut two) = (Talk::new(&here), Talk::new(&there));
    one.good("CREATE TABLE t (id int PRIMARY KEY, gone text, v int NOT NULL)");
    one.good("INSERT INTO t SELECT n, 'x', n * 2 FROM generate_series(1, 5000) AS s(n)");
    one.good("CREATE INDEX by_v ON t (v)");
    one.good("ALTER TABLE t ADD COLUMN w int NOT NULL DEFAULT 7");
    one.good("ALTER TABLE t DROP COLUMN gone");
    one.good("CREATE VIEW shown AS SELECT id FROM t WHERE v > 9000");
    one.good("CREATE TABLE counted (id serial PRIMARY KEY)");
    one.good("CREATE TABLE heap (n int)");
    one.good("CREATE TABLE kept (id int PRIMARY KEY, code text UNIQUE)");
    one.good("CREATE TABLE child (id int PRIMARY KEY, kept int REFERENCES kept)");
    let refused = [
        ("ALTER TABLE counted SET (partitions = 2)", "0A000", "is numbered"),
        ("ALTER TABLE heap SET (partitions = 2)", "0A000", "no primary key"),
        ("ALTER TABLE kept SET (partitions = 2)", "0A000", "to which others refer"),
        ("ALTER TABLE child SET (partitions = 2)", "0A000", "a foreign key"),
        ("ALTER TABLE t SET (partitions = 2, policy = async)", "0A000", "whose policy is async"),
        ("ALTER TABLE t SET (partitions = 5000)", "22023", "out of range"),
        ("BEGIN; ALTER TABLE t SET (partitions = 2)", "25001", "transaction block"),
    ];
    one.refused(&refused);
    // What was refused is as it was, and is written.
    assert_eq!(two.good("UPDATE t SET v = v WHERE id = 1"), "UPDATE 1");
    let all = "SELECT count(*), sum(id), sum(v), min(w), max(w) FROM t";
    let before = two.good(all);
    assert_eq!(before, "5000|12502500|25005000|7|7");
    assert_eq!(one.good("ALTER TABLE t SET (partitions = 4)"), "ALTER TABLE");
    for talk in [&mut one, &mut two] {
        assert_eq!(talk.good(all), before);
        assert_eq!(talk.good("SELECT id FROM t WHERE v = 154"), "77");
        assert_eq!(talk.good("SELECT count(*) FROM shown"), "500");
        assert_eq!(talk.good("SELECT partitions FROM understudy.tables WHERE name = 't'"), "4");
    }
    assert!(one.say("CREATE INDEX by_v ON t (v)").starts_with("42P07"), "it has come along");
    assert_eq!(two.good("INSERT INTO t (id, v) VALUES (6000, 1)"), "INSERT 0 1");
    assert_eq!(one.good("SELECT w FROM t WHERE id = 6000"), "7");
    assert!(two.say("INSERT INTO t (id, v) VALUES (77, 1)").starts_with("23505"));
    one.refused(&[
        ("ALTER TABLE t SET (partitions = 2)", "0A000", "changing partitions"),
        ("ALTER TABLE t SET (database = understudy)", "0A000", "into a database"),
    ]);
    // Nothing is left of it, and its name is free once it is dropped.
    let mut client = cluster.client();
    let database = client.shared_database().expect("there");
    assert!(client.tables_of(&database).expect("read").iter().all(|table| table.name() != "t"));
    assert!(client.cluster_map().tables().all(|table| system::moves(&table.name).is_none()));
    one.good("DROP VIEW shown");
    one.good("DROP TABLE t");
    one.good("CREATE TABLE t (id int PRIMARY KEY)");
    assert_eq!(one.good("SELECT count(*) FROM t"), "0");
}

#[test]
fn pr124_rows_that_are_written_while_a_table_moves_are_in_it() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let (here, there) = (service(&cluster), service(&cluster));
    let (mut one, mut two, mut three) = (Talk::new(&here), Talk::new(&there), Talk::new(&here));
    one.good("CREATE TABLE t (id int PRIMARY KEY, v int)");
    one.good("INSERT INTO t SELECT n, n FROM generate_series(1, 40000) AS s(n)");
    let over = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            for id in 100_000.. {
                let said = two.say(&format!("INSERT INTO t VALUES ({id}, 0)"));
                match said.as_str() {
                    "INSERT 0 1" => written += 1,
                    _ => assert!(said.starts_with("40001"), "{said}"),
                }
                if over.load(Ordering::Acquire) {
                    break;
                }
            }
            written
        });
        let reader = scope.spawn(|| {
            let mut seen = 40_000;
            while !over.load(Ordering::Acquire) {
                let now: i64 = three.good("SELECT count(*) FROM t").parse().expect("a number");
                assert!(now >= seen, "{now} rows, and there were {seen}");
                seen = now;
            }
        });
        assert_eq!(one.good("ALTER TABLE t SET (partitions = 3)"), "ALTER TABLE");
        one.good("INSERT INTO t VALUES (99999, 0)");
        over.store(true, Ordering::Release);
        reader.join().expect("no panic");
        writer.join().expect("no panic") + 1
    });
    assert_eq!(one.good("SELECT count(*) FROM t"), (40_000 + written).to_string());
    assert_eq!(one.good("SELECT sum(v) FROM t"), "800020000");
}

/// What a gateway leaves that has died while a table moved, long ago: before it was decided, or behind it.
/// The number of the move.
fn interrupted(client: &mut Client, name: &str, decided: bool) -> TableId {
    let database = client.shared_database().expect("there");
    let table = client.table(name).expect("there");
    let rows: Vec<_> = client.scan_all(&table).map(|found| found.expect("a row")).collect();
    let first = client.numbers(3).expect("numbers");
    let (number, begun) = (TableId(first), first + 1);
    let of = |version: u32| {
        let mut parts = table.schema().clone().into_parts();
        parts.version = version;
        Schema::from_parts(parts).expect("valid")
    };
    let held = CatalogTable { held_ms: Some(1), ..CatalogTable::new(table.id(), name, of(begun), 5) };
    let own = |version: u32| CatalogTable::new(number, name, of(version), wall_ms());
    let marker = CatalogTable { fills: Some(table.id()), ..own(1) };
    let from = table.schema().version();
    let changes = vec![TableChange::Alter { from, to: RecordText::new(&held) }, created(&marker)];
    client.call(database.transact(changes, Vec::new(), None)).expect("it is held");
    let request =
        CreateTable { partitions: 3, ..CreateTable::new(&system::moving(number), of(1), "durable") };
    let to = client.create_table(&request).expect("made");
    let copied = |found: &client::Found| {
        let row = table.decode(&found.key, &found.stored).expect("a row");
        to.put(&row).expect("a row")
    };
    client.all(rows.iter().map(copied).collect()).expect("copied");
    if decided {
        let mut moved = CatalogTable { fills: Some(number), ..own(first + 2) };
        moved.unknown.insert(CatalogTable::MOVED.into(), true.into());
        let changes = vec![
            TableChange::Drop { table: table.id(), schema: begun },
            TableChange::Alter { from: 1, to: RecordText::new(&moved) },
        ];
        client.call(database.transact(changes, Vec::new(), None)).expect("decided");
    }
    number
}

#[test]
fn pr378_whoever_needs_a_table_that_has_moved_gives_it_its_name() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let (here, there) = (service(&cluster), service(&cluster));
    let (mut one, mut two) = (Talk::new(&here), Talk::new(&there));
    for name in ["read", "written", "dropped", "made"] {
        one.good(&format!("CREATE TABLE {name} (id int PRIMARY KEY, v text)"));
        one.good(&format!("INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')"));
    }
    let number = interrupted(&mut client, "read", true);
    assert_eq!(two.good("SELECT count(*), max(v) FROM read"), "3|c");
    assert_eq!(one.good("SELECT v FROM read WHERE id = 2"), "b");
    assert_eq!(one.good("SELECT partitions FROM understudy.tables WHERE name = 'read'"), "3");
    assert!(one.say(&format!("SELECT * FROM {}", system::moving(number))).starts_with("42P01"));
    interrupted(&mut client, "written", true);
    assert_eq!(one.good("INSERT INTO written VALUES (4, 'd')"), "INSERT 0 1");
    assert_eq!(two.good("UPDATE written SET v = 'e' WHERE id = 4"), "UPDATE 1");
    assert_eq!(two.good("SELECT count(*), max(v) FROM written"), "4|e");
    interrupted(&mut client, "dropped", true);
    assert_eq!(two.good("DROP TABLE dropped"), "DROP TABLE");
    assert!(two.say("SELECT * FROM dropped").starts_with("42P01"));
    interrupted(&mut client, "made", true);
    assert!(one.say("CREATE TABLE made (id int PRIMARY KEY)").starts_with("42P07"));
    assert_eq!(two.good("SELECT count(*) FROM made"), "3");
    // The catalog has nothing of it any more.
    let database = client.shared_database().expect("there");
    let deadline = Instant::now() + LONG;
    while client.count(&database.catalog()).expect("counted") > 0 {
        assert!(two.say("SELECT * FROM nothing").starts_with("42P01"));
        assert!(Instant::now() < deadline, "definitions are left");
    }
}

#[test]
fn pr379_a_move_that_was_given_up_leaves_the_table_and_nothing_else() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let service = service(&cluster);
    let mut one = Talk::new(&service);
    one.good("CREATE TABLE t (id int PRIMARY KEY, v text)");
    one.good("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')");
    let name = system::moving(interrupted(&mut client, "t", false));
    let (deadline, filled) = (Instant::now() + LONG, format!("SELECT count(*) FROM {name}"));
    while one.say(&filled) != "3" {
        assert!(Instant::now() < deadline, "{}", one.say(&filled));
    }
    let dropping = format!("DROP TABLE {name}");
    one.refused(&[(dropping.as_str(), "42501", "permission denied")]);
    // It is read as ever, and who writes it lifts the hold.
    assert_eq!(one.good("SELECT count(*) FROM t"), "3");
    assert_eq!(one.good("INSERT INTO t VALUES (4, 'd')"), "INSERT 0 1");
    while client.cluster_map().table(&name).is_some() {
        assert!(Instant::now() < deadline, "{name} is there still");
        client.poll(std::time::Duration::from_millis(5)).expect("polls");
    }
    // Again, and this time nobody dies.
    assert_eq!(one.good("ALTER TABLE t SET (partitions = 2)"), "ALTER TABLE");
    assert_eq!(one.good("SELECT count(*), max(v) FROM t"), "4|d");
    assert_eq!(one.good("SELECT partitions FROM understudy.tables WHERE name = 't'"), "2");
}
