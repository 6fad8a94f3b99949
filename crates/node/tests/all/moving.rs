//! Tables that lie together with others get partitions of their own, those another number of them, and come
//! back, on a cluster of this process: with their rows, beside sessions that write them, and where whoever
//! moved one has died in the middle.

use crate::common::talk::{Talk, service};
use crate::common::{Cluster, LONG};
use client::{Client, created, wall_ms};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use types::data::{Column, ColumnType, Json, Row, Schema, Value};
use types::{CatalogTable, TableId, TableRecord, system};
use wire::control::{AdminCommand, CreateTable};
use wire::moves::{MoveStep, MoveTable};
use wire::{Op, RecordText, TableChange};

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
    one.good("CREATE TABLE heap (n int)");
    one.good("CREATE TABLE kept (id int PRIMARY KEY, code text UNIQUE)");
    one.good("CREATE TABLE child (id int PRIMARY KEY, kept int REFERENCES kept)");
    let refused = [
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

#[test]
fn a_bare_table_gets_another_number_of_partitions_with_its_rows_and_indexes() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let (here, there) = (service(&cluster), service(&cluster));
    let (mut one, mut two) = (Talk::new(&here), Talk::new(&there));
    one.good("CREATE TABLE t (id serial PRIMARY KEY, v int) WITH (partitions = 2)");
    for v in 1..=20 {
        one.good(&format!("INSERT INTO t (v) VALUES ({v})"));
    }
    one.good("CREATE INDEX by_v ON t (v)");
    one.good("ALTER TABLE t ADD COLUMN note text");
    one.good("UPDATE t SET note = 'seen' WHERE id = 7");
    let all = "SELECT count(*), count(DISTINCT id), sum(v), max(note) FROM t";
    let before = two.good(all);
    assert_eq!(before, "20|20|210|seen");
    one.refused(&[
        ("ALTER TABLE t SET (partitions = 3, policy = async)", "0A000", "whose policy is async"),
        ("ALTER TABLE t SET (partitions = 5000)", "22023", "out of range"),
        ("ALTER TABLE t SET (partitions = 3, partition_by = 2)", "42P16", ""),
        ("BEGIN; ALTER TABLE t SET (partitions = 3)", "25001", "transaction block"),
        ("ALTER TABLE sys_sequences SET (partitions = 3)", "42501", "permission denied"),
    ]);
    // What was refused is as it was, and is written.
    assert_eq!(two.good("UPDATE t SET note = 'seen' WHERE id = 8"), "UPDATE 1");
    for partitions in [5, 1] {
        assert_eq!(one.good(&format!("ALTER TABLE t SET (partitions = {partitions})")), "ALTER TABLE");
        for talk in [&mut one, &mut two] {
            assert_eq!(talk.good(all), before);
            assert_eq!(talk.good("SELECT id FROM t WHERE v = 13"), "13");
            let counted = talk.good("SELECT partitions FROM understudy.tables WHERE name = 't'");
            assert_eq!(counted, partitions.to_string());
        }
    }
    assert!(one.say("CREATE INDEX by_v ON t (v)").starts_with("42P07"), "it has come along");
    assert_eq!(two.good("INSERT INTO t (v) VALUES (21)"), "INSERT 0 1");
    assert_eq!(one.good(all), "21|21|231|seen", "numbers go on");
    assert!(two.say("INSERT INTO t (id, v) VALUES (13, 1)").starts_with("23505"));
    let client = cluster.client();
    assert!(client.cluster_map().tables().all(|table| system::moves(&table.name).is_none()));
    one.good("DROP TABLE t");
    assert!(two.say("SELECT * FROM t").starts_with("42P01"));
}

#[test]
fn fields_of_rows_that_are_no_columns_move_with_them() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let service = service(&cluster);
    let mut one = Talk::new(&service);
    let schema = Schema::new(vec![Column::new("id", ColumnType::Int).not_null()], &["id"], 1, true);
    let asked = CreateTable { partitions: 2, ..CreateTable::new("t", schema.expect("valid"), "durable") };
    let table = client.create_table(&asked).expect("made");
    let open = BTreeMap::from([("more".to_string(), Json::Text("kept".into()))]);
    let row = Row { values: vec![Value::Int(1)], open };
    client.put(&table, &row).expect("written");
    let deadline = Instant::now() + LONG;
    while one.say("SELECT count(*) FROM t") != "1" {
        assert!(Instant::now() < deadline, "the gateway has not heard of it");
    }
    for how in ["partitions = 3", "database = understudy", "partitions = 2"] {
        assert_eq!(one.good(&format!("ALTER TABLE t SET ({how})")), "ALTER TABLE");
        let mut client = cluster.client();
        let table = client.table("t").expect("there");
        assert_eq!(client.get(&table, &[Value::Int(1)]).expect("read").as_ref(), Some(&row), "{how}");
    }
}

#[test]
fn pr400_rows_that_are_written_while_a_bare_table_is_spread_again_are_in_it() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let (here, there) = (service(&cluster), service(&cluster));
    let (mut one, mut two, mut three) = (Talk::new(&here), Talk::new(&there), Talk::new(&here));
    let mut four = Talk::new(&there);
    one.good("CREATE TABLE t (id int PRIMARY KEY, v int) WITH (partitions = 1)");
    one.good("INSERT INTO t SELECT n, n FROM generate_series(1, 20000) AS s(n)");
    let over = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            for id in 100_000.. {
                match two.say(&format!("INSERT INTO t VALUES ({id}, 0)")).as_str() {
                    "INSERT 0 1" => written += 1,
                    // Where it was asked the partition has gone before it could answer.
                    said if said.starts_with("40003") => {
                        let there = two.good(&format!("SELECT count(*) FROM t WHERE id = {id}"));
                        written += there.parse::<u64>().expect("a number");
                    }
                    said => assert!(said.starts_with("40001"), "{said}"),
                }
                if over.load(Ordering::Acquire) {
                    break;
                }
            }
            written
        });
        let reader = scope.spawn(|| {
            let mut seen = 20_000;
            while !over.load(Ordering::Acquire) {
                let said = three.say("SELECT count(*) FROM t");
                if said.starts_with("40001") {
                    continue;
                }
                let now: i64 = said.parse().unwrap_or_else(|_| panic!("{said}"));
                assert!(now >= seen, "PR-403: {now} rows, and there were {seen}");
                seen = now;
            }
        });
        // Two of them: one waits for the other.
        let mover =
            scope.spawn(|| assert_eq!(four.good("ALTER TABLE t SET (partitions = 3)"), "ALTER TABLE"));
        assert_eq!(one.good("ALTER TABLE t SET (partitions = 3)"), "ALTER TABLE");
        mover.join().expect("no panic");
        one.good("INSERT INTO t VALUES (99999, 0)");
        over.store(true, Ordering::Release);
        reader.join().expect("no panic");
        writer.join().expect("no panic") + 1
    });
    assert_eq!(one.good("SELECT count(*) FROM t"), (20_000 + written).to_string());
    assert_eq!(one.good("SELECT sum(v) FROM t"), "200010000");
    assert_eq!(one.good("SELECT partitions FROM understudy.tables WHERE name = 't'"), "3");
}

/// A step of a bare table that moves, as a gateway asks for it. The table's record.
fn step(
    client: &mut Client,
    table: TableId,
    (number, version): (TableId, u32),
    step: MoveStep,
) -> TableRecord {
    let asked = MoveTable { table, number, version, step };
    let answer = client.admin(AdminCommand::MoveTable(RecordText::new(&asked))).expect("done");
    RecordText(answer).read().expect("a record")
}

#[test]
fn pr402_a_hold_of_which_nobody_speaks_is_ended_by_who_waits_for_it() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let service = service(&cluster);
    let mut one = Talk::new(&service);
    one.good("CREATE TABLE t (id int PRIMARY KEY, v text) WITH (partitions = 3)");
    for id in 1..=5 {
        one.good(&format!("INSERT INTO t VALUES ({id}, 'a')"));
    }
    let table = client.wait_table("t").expect("there");
    // What a gateway leaves that has died: before all rows were copied, and behind that.
    for closed in [false, true] {
        let number = TableId(client.numbers(1).expect("a number"));
        let hold = MoveStep::Hold { at_ms: 1, into: None };
        let held = step(&mut client, table.id(), (number, 0), hold);
        let confirmed = |client: &mut Client, closed: bool| {
            let call = |partition| table.call(partition, Op::Held { number, closed });
            client.all(table.partitions().map(call).collect()).expect("every partition has it");
        };
        confirmed(&mut client, false);
        let request = CreateTable {
            partitions: 2,
            ..CreateTable::new(&system::moving(number), table.schema().clone(), "durable")
        };
        client.create_table(&request).expect("made");
        let written = client.call(table.write(table.partitions().next().expect("one"), Vec::new()));
        assert!(matches!(written, Err(client::ClientError::Stale)), "PR-400: {written:?}");
        if closed {
            step(&mut client, table.id(), (number, held.policy.version), MoveStep::Close);
            confirmed(&mut client, true);
            assert!(matches!(
                client.call(table.get(&[Value::Int(1)]).expect("a key")),
                Err(client::ClientError::Stale)
            ));
        }
        // It is read as ever, unless nobody may read it, and who writes it or drops it ends the hold.
        assert_eq!(one.good("SELECT count(*) FROM t"), "5");
        assert_eq!(one.good("UPDATE t SET v = 'b' WHERE id = 1"), "UPDATE 1");
        let deadline = Instant::now() + LONG;
        while client.cluster_map().tables().any(|table| system::moves(&table.name).is_some()) {
            assert!(Instant::now() < deadline, "the table for the rows is there still");
            client.poll(std::time::Duration::from_millis(5)).expect("polls");
        }
    }
    let number = TableId(client.numbers(1).expect("a number"));
    step(&mut client, table.id(), (number, 0), MoveStep::Hold { at_ms: 1, into: None });
    assert_eq!(one.good("ALTER TABLE t ADD COLUMN w text"), "ALTER TABLE");
    assert_eq!(one.good("ALTER TABLE t SET (partitions = 2)"), "ALTER TABLE");
    assert_eq!(one.good("SELECT count(*), max(v) FROM t"), "5|b");
    let table = client.wait_table("t").expect("there").id();
    step(&mut client, table, (number, 0), MoveStep::Hold { at_ms: 1, into: None });
    assert_eq!(one.good("DROP TABLE t"), "DROP TABLE");
}

#[test]
fn a_bare_table_comes_back_with_its_rows_and_indexes() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let (here, there) = (service(&cluster), service(&cluster));
    let (mut one, mut two) = (Talk::new(&here), Talk::new(&there));
    one.good("CREATE TABLE t (id serial PRIMARY KEY, v int) WITH (partitions = 3)");
    for v in 1..=20 {
        one.good(&format!("INSERT INTO t (v) VALUES ({v})"));
    }
    one.good("CREATE INDEX by_v ON t (v)");
    one.good("ALTER TABLE t ADD COLUMN note text");
    one.good("UPDATE t SET note = 'seen' WHERE id = 7");
    let all = "SELECT count(*), count(DISTINCT id), sum(v), max(note) FROM t";
    let before = two.good(all);
    one.refused(&[
        ("ALTER TABLE t SET (database = bank)", "3D000", "does not exist"),
        ("ALTER TABLE t SET (database = understudy, policy = sync)", "22023", "kept as that is"),
        ("BEGIN; ALTER TABLE t SET (database = understudy)", "25001", "transaction block"),
    ]);
    assert_eq!(one.good("ALTER TABLE t SET (database = understudy)"), "ALTER TABLE");
    for talk in [&mut one, &mut two] {
        assert_eq!(talk.good(all), before);
        assert_eq!(talk.good("SELECT id FROM t WHERE v = 13"), "13");
    }
    // It keeps what tables that lie together keep, and numbers go on.
    assert_eq!(two.good("INSERT INTO t (v) VALUES (21), (22)"), "INSERT 0 2");
    assert_eq!(one.good(all), "22|22|253|seen");
    one.good("ALTER TABLE t ADD CONSTRAINT once UNIQUE (v)");
    assert!(two.say("INSERT INTO t (v) VALUES (21)").starts_with("23505"));
    assert!(one.say("CREATE INDEX by_v ON t (id)").starts_with("42P07"), "it has come along");
    let mut client = cluster.client();
    assert!(client.cluster_map().table("t").is_none());
    let database = client.shared_database().expect("there");
    let named = client.tables_of(&database).expect("read").iter().filter(|one| one.name() == "t").count();
    assert_eq!(named, 1);
    one.good("DROP TABLE t");
    // There and back again.
    one.good("CREATE TABLE t (id int PRIMARY KEY, v int)");
    one.good("INSERT INTO t SELECT n, n FROM generate_series(1, 3000) AS s(n)");
    for how in ["partitions = 3", "partitions = 2", "database = understudy", "partitions = 4"] {
        assert_eq!(one.good(&format!("ALTER TABLE t SET ({how})")), "ALTER TABLE");
        assert_eq!(two.good("SELECT count(*), sum(v) FROM t"), "3000|4501500", "{how}");
    }
}

#[test]
fn pr404_rows_that_are_written_while_a_bare_table_comes_back_are_in_it() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let (here, there) = (service(&cluster), service(&cluster));
    let (mut one, mut two) = (Talk::new(&here), Talk::new(&there));
    one.good("CREATE TABLE other (id int PRIMARY KEY)");
    one.good("CREATE TABLE t (id int PRIMARY KEY, v int) WITH (partitions = 1)");
    one.good("INSERT INTO t SELECT n, n FROM generate_series(1, 20000) AS s(n)");
    let over = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            for id in 100_000.. {
                match two.say(&format!("INSERT INTO t VALUES ({id}, 0)")).as_str() {
                    "INSERT 0 1" => written += 1,
                    // Where it was asked the partition has gone before it could answer.
                    said if said.starts_with("40003") => {
                        let there = two.good(&format!("SELECT count(*) FROM t WHERE id = {id}"));
                        written += there.parse::<u64>().expect("a number");
                    }
                    said => assert!(said.starts_with("40001"), "{said}"),
                }
                if over.load(Ordering::Acquire) {
                    break;
                }
            }
            written
        });
        assert_eq!(one.good("ALTER TABLE t SET (database = understudy)"), "ALTER TABLE");
        one.good("INSERT INTO t VALUES (99999, 0)");
        over.store(true, Ordering::Release);
        writer.join().expect("no panic") + 1
    });
    assert_eq!(one.good("SELECT count(*) FROM t"), (20_000 + written).to_string());
    assert_eq!(one.good("SELECT sum(v) FROM t"), "200010000");
}

/// What a gateway leaves that has died while a bare table came back: before it was decided, or behind it. It
/// has spoken of it last at this time.
fn interrupted_back(client: &mut Client, name: &str, (decided, at_ms): (bool, u64)) -> TableId {
    let database = client.shared_database().expect("there");
    let table = client.wait_table(name).expect("there");
    let first = client.numbers(2).expect("numbers");
    let number = TableId(first);
    let of = |version: u32| {
        let mut parts = table.schema().clone().into_parts();
        parts.version = version;
        CatalogTable::new(number, name, Schema::from_parts(parts).expect("valid"), wall_ms())
    };
    let mut filled = CatalogTable { fills: Some(number), ..of(1) };
    filled.unknown.insert(CatalogTable::FOLLOWS.into(), table.id().0.into());
    client.call(database.transact(vec![created(&filled)], Vec::new(), None)).expect("made");
    step(client, table.id(), (number, 0), MoveStep::Hold { at_ms, into: Some(database.id()) });
    let confirm = |partition| table.call(partition, Op::Held { number, closed: false });
    client.all(table.partitions().map(confirm).collect()).expect("every partition has it");
    let rows: Vec<_> = client.scan_all(&table).map(|found| found.expect("a row")).collect();
    let to = database.table(filled);
    for found in rows {
        let row = table.decode(&found.key, &found.stored).expect("a row");
        client.call(to.put(&row).expect("a row")).expect("copied");
    }
    if decided {
        let mut follows = CatalogTable { held_ms: Some(1), ..of(first + 1) };
        follows.unknown.insert(CatalogTable::FOLLOWS.into(), table.id().0.into());
        let change = TableChange::Alter { from: 1, to: RecordText::new(&follows) };
        client.call(database.transact(vec![change], Vec::new(), None)).expect("decided");
    }
    number
}

#[test]
fn pr404_whoever_needs_a_table_that_comes_back_goes_on_with_what_was_decided() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let (here, there) = (service(&cluster), service(&cluster));
    let (mut one, mut two) = (Talk::new(&here), Talk::new(&there));
    one.good("CREATE TABLE other (id int PRIMARY KEY)");
    for name in ["given_up", "read", "dropped"] {
        one.good(&format!("CREATE TABLE {name} (id int PRIMARY KEY, v text) WITH (partitions = 2)"));
        for id in 1..=3 {
            one.good(&format!("INSERT INTO {name} VALUES ({id}, 'a')"));
        }
    }
    // As long as somebody is at it, it can be asked how far it is.
    let number = interrupted_back(&mut client, "read", (false, wall_ms()));
    let filled = system::moving(number);
    assert_eq!(two.good(&format!("SELECT count(*) FROM {filled}")), "3");
    let (gone, truncate) = (format!("DROP TABLE {filled}"), format!("TRUNCATE {filled}"));
    let insert = format!("INSERT INTO {filled} VALUES (9, 'x')");
    let (spread, numbered) = (
        format!("ALTER TABLE {filled} SET (partitions = 2)"),
        format!("ALTER TABLE {filled} ADD COLUMN n serial"),
    );
    for text in [&gone, &truncate, &insert, &spread, &numbered] {
        two.refused(&[(text.as_str(), "42501", "permission denied")]);
    }
    let read = client.cluster_map().table("read").expect("there").id;
    step(&mut client, read, (number, 0), MoveStep::Free { said_ms: None });
    // Nothing was decided: it is as it was, what was copied is gone, and it can be done again.
    let number = interrupted_back(&mut client, "given_up", (false, 1));
    assert_eq!(two.good("SELECT count(*) FROM given_up"), "3");
    assert_eq!(two.good("UPDATE given_up SET v = 'b' WHERE id = 2"), "UPDATE 1");
    let table = client.cluster_map().table("given_up").cloned().expect("it is bare still");
    assert!(table.database().is_none());
    let database = client.shared_database().expect("there");
    let key = number.0.to_be_bytes().to_vec().into();
    let asked = database
        .catalog()
        .call(database.partition(), Op::Get { key, at: wire::request::ReadSnapshot::Newest });
    let answer = client.call(asked).expect("read");
    let state = answer.row().map(|(_, stored)| types::database::standing_of(stored).expect("sound").0);
    assert!(matches!(state, None | Some(types::TableState::Dropping)), "{state:?}");
    assert_eq!(one.good("ALTER TABLE given_up SET (database = understudy)"), "ALTER TABLE");
    assert_eq!(one.good("SELECT count(*), max(v) FROM given_up"), "3|b");
    // It was decided: it is here, and what it was is gone.
    interrupted_back(&mut client, "read", (true, 1));
    assert_eq!(two.good("SELECT count(*) FROM read"), "3");
    assert_eq!(two.good("UPDATE read SET v = 'c' WHERE id = 3"), "UPDATE 1");
    assert_eq!(one.good("SELECT count(*), max(v) FROM read"), "3|c");
    interrupted_back(&mut client, "dropped", (true, 1));
    assert_eq!(one.good("DROP TABLE dropped"), "DROP TABLE");
    assert!(two.say("SELECT * FROM dropped").starts_with("42P01"));
    let deadline = Instant::now() + LONG;
    while client.cluster_map().table("read").is_some() || client.cluster_map().table("dropped").is_some() {
        assert!(Instant::now() < deadline, "a bare table is left");
        client.poll(std::time::Duration::from_millis(5)).expect("polls");
    }
}
