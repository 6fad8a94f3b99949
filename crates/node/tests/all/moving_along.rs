//! What comes along with a table that moves: numbers and checks; and moves from one database into another,
//! also where whoever moved one has died in the middle. On a cluster of this process.

use crate::common::talk::{Talk, service};
use crate::common::{Cluster, LONG};
use client::{Client, Database, Table, created, wall_ms};
use std::time::Instant;
use types::data::Schema;
use types::{CatalogTable, TableId, system};
use wire::control::{AdminCommand, CreateTable};
use wire::moves::{MoveStep, MoveTable};
use wire::{Op, RecordText, TableChange};

fn within(service: &sql::Sql, database: &str) -> Talk {
    Talk::within(service, database).unwrap_or_else(|failure| panic!("{failure:?}"))
}

#[test]
fn pr453_numbers_go_on_and_checks_are_kept_where_a_table_moves_to() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let (here, there) = (service(&cluster), service(&cluster));
    let (mut one, mut two) = (Talk::new(&here), Talk::new(&there));
    one.good(
        "CREATE TABLE t (id serial PRIMARY KEY, n int GENERATED ALWAYS AS IDENTITY, v int CHECK (v < 1000))",
    );
    one.good("CREATE TABLE odd (id int GENERATED ALWAYS AS IDENTITY (INCREMENT BY 2) PRIMARY KEY)");
    one.good("CREATE SEQUENCE s");
    one.good("CREATE TABLE others (id int DEFAULT nextval('s') PRIMARY KEY)");
    one.good("CREATE TABLE twice (id int PRIMARY KEY, v int UNIQUE)");
    one.good("CREATE TABLE late (id int PRIMARY KEY, v int)");
    one.good("ALTER TABLE late ADD CONSTRAINT sometimes CHECK (v > 0) NOT VALID");
    one.refused(&[
        ("ALTER TABLE odd SET (partitions = 2)", "0A000", "steps of 1"),
        ("ALTER TABLE others SET (partitions = 2)", "0A000", "does not go with it"),
        ("ALTER TABLE twice SET (partitions = 2)", "0A000", "UNIQUE"),
        ("ALTER TABLE late SET (partitions = 2)", "0A000", "a CHECK that is not valid"),
    ]);
    let insert = "INSERT INTO t (v) VALUES (7)";
    let mut count = 0;
    let mut both = |talks: [&mut Talk; 2]| {
        for talk in talks {
            (0..30).for_each(|_| drop(talk.good(insert)));
            count += 30;
            let all = "SELECT count(*), count(DISTINCT id), count(DISTINCT n), sum(v) FROM t";
            assert_eq!(talk.good(all), format!("{count}|{count}|{count}|{}", 7 * count));
            assert!(talk.say("INSERT INTO t (v) VALUES (1000)").starts_with("23514"));
        }
    };
    both([&mut one, &mut two]);
    for how in ["partitions = 3", "partitions = 2", "database = understudy", "partitions = 4"] {
        assert_eq!(one.good(&format!("ALTER TABLE t SET ({how})")), "ALTER TABLE", "{how}");
        both([&mut one, &mut two]);
    }
    assert_eq!(two.good("SELECT count(*) FROM pg_class WHERE relname IN ('t_id_seq', 't_n_seq')"), "0");
}

#[test]
fn a_table_moves_from_one_database_into_another() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let (here, there) = (service(&cluster), service(&cluster));
    let mut main = Talk::new(&here);
    for database in ["bank", "shop", "wide WITH (partitions = 2, partition_by = '(w_id)')"] {
        main.good(&format!("CREATE DATABASE {database}"));
    }
    drop(Talk::new(&there));
    let (mut bank, mut shop) = (within(&here, "bank"), within(&there, "shop"));
    bank.good("CREATE TABLE t (id serial PRIMARY KEY, v int CHECK (v > 0))");
    bank.good("CREATE INDEX by_v ON t (v)");
    bank.good("INSERT INTO t (v) SELECT n FROM generate_series(1, 3000) AS s(n)");
    let all = "SELECT count(*), count(DISTINCT id), sum(v) FROM t";
    assert_eq!(bank.good(all), "3000|3000|4501500");
    shop.good("CREATE TABLE t (id int PRIMARY KEY)");
    bank.refused(&[
        ("ALTER TABLE t SET (database = nothing)", "3D000", "nothing"),
        ("ALTER TABLE t SET (database = wide)", "0A000", "wide"),
        ("ALTER TABLE t SET (database = shop)", "42P07", "\"t\" already exists"),
        ("ALTER TABLE t SET (database = shop, policy = sync)", "22023", "kept as that is"),
        ("BEGIN; ALTER TABLE t SET (database = shop)", "25001", "transaction block"),
    ]);
    bank.good("CREATE VIEW shown AS SELECT v FROM t");
    assert!(bank.say("ALTER TABLE t SET (partitions = 3)").starts_with("2BP01"));
    bank.good("DROP VIEW shown");
    assert_eq!(bank.good(all), "3000|3000|4501500", "it is as it was");
    shop.good("DROP TABLE t");
    // Partitions of its own are in the database that is always there.
    assert_eq!(bank.good("ALTER TABLE t SET (partitions = 3)"), "ALTER TABLE");
    assert!(bank.say("SELECT 1 FROM t").starts_with("42P01"));
    assert_eq!(main.good(all), "3000|3000|4501500");
    main.good("INSERT INTO t (v) VALUES (1)");
    assert_eq!(main.good("ALTER TABLE t SET (database = shop)"), "ALTER TABLE");
    assert!(main.say("SELECT 1 FROM t").starts_with("42P01"));
    assert_eq!(shop.good(all), "3001|3001|4501501");
    shop.good("INSERT INTO t (v) VALUES (2)");
    assert!(shop.say("INSERT INTO t (v) VALUES (0)").starts_with("23514"));
    assert_eq!(shop.good("SELECT count(*) FROM t WHERE v = 2"), "2");
    // By itself, over one partition of its own.
    assert_eq!(shop.good("ALTER TABLE t SET (database = bank)"), "ALTER TABLE");
    assert!(shop.say("SELECT 1 FROM t").starts_with("42P01"));
    assert!(main.say("SELECT 1 FROM t").starts_with("42P01"));
    assert_eq!(bank.good(all), "3002|3002|4501503");
    bank.good("ALTER TABLE t ADD CONSTRAINT once UNIQUE (id, v)");
    assert_eq!(bank.good("INSERT INTO t (v) VALUES (3)"), "INSERT 0 1");
}

fn known(client: &mut Client, name: &str) -> Database {
    let deadline = Instant::now() + LONG;
    loop {
        match client.database(name) {
            Ok(database) => return database,
            Err(why) => assert!(Instant::now() < deadline, "{why}"),
        }
        client.poll(std::time::Duration::from_millis(5)).expect("polls");
    }
}

fn found(client: &mut Client, database: &Database, name: &str) -> Table {
    let all = client.tables_of(database).expect("read");
    all.into_iter().find(|table| table.name() == name).expect("there")
}

fn of(table: &Table, version: u32) -> Schema {
    let mut parts = table.schema().clone().into_parts();
    parts.version = version;
    Schema::from_parts(parts).expect("valid")
}

/// What a gateway leaves that has died while a table moved out of a database: before it was decided, or
/// behind it. The name of the table that has the rows.
fn interrupted_out(client: &mut Client, database: &Database, name: &str, decided: bool) -> String {
    let table = found(client, database, name);
    let first = client.numbers(3).expect("numbers");
    let (number, begun) = (TableId(first), first + 1);
    let held_ms = Some(wall_ms());
    let held = CatalogTable { held_ms, ..CatalogTable::new(table.id(), name, of(&table, begun), 5) };
    let own = |version: u32| CatalogTable::new(number, name, of(&table, version), wall_ms());
    let marker = CatalogTable { fills: Some(table.id()), ..own(1) };
    let from = table.schema().version();
    let changes = vec![TableChange::Alter { from, to: RecordText::new(&held) }, created(&marker)];
    client.call(database.transact(changes, Vec::new(), None)).expect("it is held");
    let filled = system::moving(number);
    client.create_table(&CreateTable::new(&filled, of(&table, 1), "durable")).expect("made");
    if decided {
        let mut moved = CatalogTable { fills: Some(number), ..own(first + 2) };
        moved.unknown.insert(CatalogTable::MOVED.into(), true.into());
        let changes = vec![
            TableChange::Drop { table: table.id(), schema: begun },
            TableChange::Alter { from: 1, to: RecordText::new(&moved) },
        ];
        client.call(database.transact(changes, Vec::new(), None)).expect("decided");
    }
    filled
}

#[test]
fn pr454_what_another_database_speaks_of_is_not_dropped_and_gets_its_name() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let service = service(&cluster);
    let mut main = Talk::new(&service);
    main.good("CREATE TABLE other (id int PRIMARY KEY)");
    main.good("CREATE DATABASE bank");
    let mut bank = within(&service, "bank");
    for name in ["copied", "moved"] {
        bank.good(&format!("CREATE TABLE {name} (id int PRIMARY KEY, v text)"));
    }
    let database = known(&mut client, "bank");
    let filled = interrupted_out(&mut client, &database, "copied", false);
    // Somebody looks for what is not there, and finds a table of which only another database speaks.
    for _ in 0..3 {
        assert!(main.say("SELECT * FROM nothing").starts_with("42P01"));
    }
    client.poll(std::time::Duration::from_millis(50)).expect("polls");
    assert!(client.cluster_map().table(&filled).is_some(), "it is being filled");
    interrupted_out(&mut client, &database, "moved", true);
    let deadline = Instant::now() + LONG;
    while main.say("SELECT count(*) FROM moved") != "0" {
        assert!(Instant::now() < deadline, "it has no name");
    }
    assert!(bank.say("SELECT * FROM moved").starts_with("42P01"));
    // Where the database itself is asked it goes on, too.
    bank.good("CREATE TABLE again (id int PRIMARY KEY, v text)");
    interrupted_out(&mut client, &database, "again", true);
    assert!(bank.say("SELECT * FROM again").starts_with("42P01"));
    assert_eq!(main.good("INSERT INTO again VALUES (1, 'a')"), "INSERT 0 1");
}

/// What a gateway leaves that has died long ago while a bare table moved into a database: before it was
/// decided, or behind it.
fn interrupted_into(client: &mut Client, database: &Database, name: &str, decided: bool) {
    let table = client.wait_table(name).expect("there");
    let first = client.numbers(2).expect("numbers");
    let number = TableId(first);
    let own = |version: u32| CatalogTable::new(number, name, of(&table, version), wall_ms());
    let follows = |known: CatalogTable| {
        let mut known = known;
        known.unknown.insert(CatalogTable::FOLLOWS.into(), table.id().0.into());
        known
    };
    let filled = follows(CatalogTable { fills: Some(number), ..own(1) });
    client.call(database.transact(vec![created(&filled)], Vec::new(), None)).expect("made");
    let step = MoveStep::Hold { at_ms: 1, into: Some(database.id()) };
    let asked = MoveTable { table: table.id(), number, version: 0, step };
    client.admin(AdminCommand::MoveTable(RecordText::new(&asked))).expect("it is held");
    let confirm = |partition| table.call(partition, Op::Held { number, closed: false });
    client.all(table.partitions().map(confirm).collect()).expect("every partition has it");
    if decided {
        let named = follows(CatalogTable { held_ms: Some(1), ..own(first + 1) });
        let change = TableChange::Alter { from: 1, to: RecordText::new(&named) };
        client.call(database.transact(vec![change], Vec::new(), None)).expect("decided");
    }
}

#[test]
fn pr454_a_move_into_a_database_is_ended_or_finished_by_whoever_waits_for_it() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let service = service(&cluster);
    let mut main = Talk::new(&service);
    for database in ["bank", "gone"] {
        main.good(&format!("CREATE DATABASE {database}"));
    }
    for name in ["given_up", "stuck", "decided"] {
        main.good(&format!("CREATE TABLE {name} (id int PRIMARY KEY) WITH (partitions = 2)"));
    }
    let (bank, gone) = (known(&mut client, "bank"), known(&mut client, "gone"));
    // Nothing was decided, or nothing can be any more: it is written again, and can be moved again.
    interrupted_into(&mut client, &bank, "given_up", false);
    assert_eq!(main.good("INSERT INTO given_up VALUES (1)"), "INSERT 0 1");
    assert_eq!(main.good("ALTER TABLE given_up SET (database = bank)"), "ALTER TABLE");
    interrupted_into(&mut client, &gone, "stuck", true);
    main.good("DROP DATABASE gone WITH (FORCE)");
    assert_eq!(main.good("INSERT INTO stuck VALUES (1)"), "INSERT 0 1");
    // It was decided: it is there, and what it was is gone.
    interrupted_into(&mut client, &bank, "decided", true);
    let mut talk = within(&service, "bank");
    assert_eq!(talk.good("INSERT INTO decided VALUES (1)"), "INSERT 0 1");
    assert_eq!(talk.good("SELECT count(*) FROM given_up"), "1");
    let deadline = Instant::now() + LONG;
    while client.cluster_map().table("decided").is_some() {
        assert!(Instant::now() < deadline, "the bare table is left");
        client.poll(std::time::Duration::from_millis(5)).expect("polls");
    }
    assert!(main.say("SELECT * FROM decided").starts_with("42P01"));
}
