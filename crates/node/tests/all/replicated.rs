//! Replicated tables of databases of several partitions, on a cluster of this process: every partition has
//! all of their rows, and other rows come under another id, from partition to partition.

use crate::common::talk::{Behind, Talk, service};
use crate::common::{Cluster, LONG};
use bytes::Bytes;
use client::{Client, ClientError, Database, Table, created, wall_ms};
use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::{CatalogTable, Lsn, PartitionId, Position, TableId, TableState};
use wire::request::ReadSnapshot;
use wire::{Op, RecordText, RowOp, TableChange};

fn within(service: &sql::Sql) -> Talk {
    Talk::within(service, "shop").unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// A database of four partitions.
fn world() -> (Cluster, Behind) {
    world_of(Cluster::start())
}

/// The same in this cluster.
fn world_of(cluster: Cluster) -> (Cluster, Behind) {
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good(
        "CREATE DATABASE shop WITH (partitions = 4, partition_by = '(w)', policy = durable, factor = 3)",
    );
    (cluster, service)
}

/// A table and rows that refer to it.
fn filled(talk: &mut Talk) {
    talk.good(
        "CREATE TABLE item (id int PRIMARY KEY, name text UNIQUE, price int CHECK (price >= 0)) \
         WITH (replicated = true)",
    );
    talk.good("INSERT INTO item VALUES (1, 'a', 10), (2, 'b', 20)");
    talk.good("CREATE TABLE stock (w int, item int REFERENCES item, n int, PRIMARY KEY (w, item))");
    for w in 1..=12 {
        talk.good(&format!("INSERT INTO stock VALUES ({w}, 1, {w}), ({w}, 2, 1)"));
    }
}

/// How many rows of a table each partition has, under the table's id of now.
fn counts(client: &mut Client, name: &str) -> Vec<u64> {
    let table = client.table(name).expect("there");
    let database = client.database("shop").expect("there");
    let count = || Op::Count { from: Bytes::new(), to: Bytes::new(), at: ReadSnapshot::Newest };
    let of = |partition| client.call(table.call(partition, count())).expect("it has the table");
    database.partitions().map(of).map(|answer| answer.number().expect("a number")).collect()
}

/// The tables of each partition that have a name, with their versions.
fn catalogs(client: &mut Client, database: &Database) -> Vec<Vec<(TableId, String, u32)>> {
    let of = |partition: PartitionId| {
        let catalog = database.catalog_in(partition);
        let mut tables = Vec::new();
        for found in client.scan_all(&catalog) {
            let found = found.expect("a row");
            let (state, table) = database.read_row(&found.key, &found.stored).expect("a definition");
            if state.is_named() {
                tables.push((table.id, table.name.clone(), table.schema.version()));
            }
        }
        tables
    };
    database.partitions().map(of).collect()
}

/// How far each table of a partition is.
fn states(client: &mut Client, database: &Database, partition: PartitionId) -> BTreeMap<TableId, TableState> {
    let catalog = database.catalog_in(partition);
    let found = client.scan_all(&catalog).map(|found| found.expect("a row"));
    let read = found.map(|found| database.read_row(&found.key, &found.stored).expect("a definition"));
    read.map(|(state, table)| (table.id, state)).collect()
}

fn is_level(client: &mut Client, database: &Database) -> bool {
    let all = catalogs(client, database);
    all.iter().all(|one| *one == all[0])
}

#[test]
fn rows_of_a_replicated_table_are_in_every_partition_and_counted_once() {
    let (cluster, service) = world();
    let (mut one, mut two) = (within(&service), within(&service));
    let mut client = cluster.client();
    let database = client.database("shop").expect("there");
    filled(&mut one);
    assert_eq!(counts(&mut client, "shop.item"), [2; 4]);
    assert_eq!(two.good("SELECT count(*), sum(price) FROM item"), "2|30");
    assert_eq!(two.good("SELECT sum(n * price) FROM stock JOIN item ON item = id WHERE w = 7"), "90");
    for text in ["BEGIN", "UPDATE stock SET n = n + 1 WHERE w = 7 AND item = 1"] {
        two.good(text);
    }
    assert_eq!(two.good("SELECT sum(n * price) FROM stock JOIN item ON item = id WHERE w = 7"), "100");
    two.good("ROLLBACK");
    assert_eq!(one.good("UPDATE item SET price = price + 1"), "UPDATE 2");
    assert_eq!(two.good("SELECT price FROM item WHERE id = 2"), "21");
    assert_eq!(one.good("INSERT INTO item VALUES (3, 'c', 1) RETURNING id + 1"), "4");
    let upsert = "INSERT INTO item VALUES (3, 'd', 2) ON CONFLICT (id) DO UPDATE SET price = 7";
    assert_eq!(one.good(upsert), "INSERT 0 1");
    assert_eq!(two.good("SELECT name, price FROM item WHERE id = 3"), "c|7");
    two.good("INSERT INTO stock VALUES (1, 3, 1)");
    let lines: String = (10..110).map(|id| format!("{id}\titem {id}\t1\n")).collect();
    assert_eq!(one.copy("COPY item FROM STDIN", &lines), "COPY 100");
    assert_eq!(counts(&mut client, "shop.item"), [103; 4]);
    one.good("ALTER TABLE item ADD COLUMN note text NOT NULL DEFAULT 'x'");
    one.good("CREATE INDEX by_price ON item (price)");
    assert_eq!(one.good("UPDATE item SET note = 'y' WHERE price = 7"), "UPDATE 1");
    assert_eq!(two.good("SELECT note, count(*) FROM item GROUP BY note ORDER BY note"), "x|102\ny|1");
    assert_eq!(one.good("SELECT reloptions FROM pg_class WHERE relname = 'item'"), "{replicated=true}");
    assert!(is_level(&mut client, &database));
    let item = client.table("shop.item").expect("there");
    assert_eq!(client.count(&item).expect("counts"), 103);
    assert_eq!(client.scan_all(&item).count(), 103);
    let row = Row::new(vec![Value::Int(9), "z".into(), Value::Int(1), "x".into()]);
    let put = client.put(&item, &row).expect_err("SQL alone writes it").to_string();
    assert!(put.contains("it is in all partitions"), "{put}");
    assert!(matches!(client.delete(&item, &[Value::Int(1)]), Err(ClientError::Data { .. })));
    one.good("TRUNCATE item, stock");
    assert_eq!(counts(&mut client, "shop.item"), [0; 4]);
    one.good("INSERT INTO item VALUES (1, 'a', 10)");
    // Who knows it by an id of before finds it by its name.
    assert!(client.get(&item, &[Value::Int(1)]).expect("it is read").is_some());
    assert_eq!(client.count(&item).expect("counts"), 1);
    one.good("INSERT INTO stock VALUES (5, 1, 1)");
    one.good("DROP TABLE stock");
    assert_eq!(one.good("DELETE FROM item"), "DELETE 1");
    one.good("DROP TABLE item");
    assert!(is_level(&mut client, &database));
}

#[test]
fn a_replicated_table_gets_another_key_and_other_types() {
    let (cluster, service) = world();
    let mut one = within(&service);
    let mut client = cluster.client();
    let database = client.database("shop").expect("there");
    one.good("CREATE TABLE kind (id int, name text) WITH (replicated = true)");
    one.good("INSERT INTO kind VALUES (2, 'b'), (1, 'a')");
    one.good("ALTER TABLE kind ADD PRIMARY KEY (id)");
    one.good("ALTER TABLE kind ALTER COLUMN name TYPE int USING length(name)");
    one.good("ALTER TABLE kind ADD COLUMN number serial");
    one.good("INSERT INTO kind VALUES (3, 5)");
    assert_eq!(one.good("SELECT id, name, number FROM kind WHERE id < 3 ORDER BY id"), "1|1|1\n2|1|2");
    assert_eq!(counts(&mut client, "shop.kind"), [3; 4]);
    assert!(is_level(&mut client, &database));
    one.good("CREATE TABLE thing (w int, kind int REFERENCES kind, n int, PRIMARY KEY (w, kind))");
    one.refused(&[
        ("ALTER TABLE kind DROP CONSTRAINT kind_pkey, ADD PRIMARY KEY (name)", "2BP01", "depend on it"),
        ("ALTER TABLE thing ALTER COLUMN n TYPE text", "0A000", "several partitions"),
        ("ALTER TABLE thing ADD PRIMARY KEY (kind)", "0A000", "several partitions"),
    ]);
    one.good("DROP TABLE thing");
    let said = one.say("ALTER TABLE kind DROP CONSTRAINT kind_pkey, ADD PRIMARY KEY (name)");
    assert!(said.starts_with("23505"), "{said}");
    one.good("ALTER TABLE kind DROP CONSTRAINT kind_pkey, ADD PRIMARY KEY (number)");
    assert_eq!(one.good("SELECT id FROM kind WHERE number = 2"), "2");
    assert_eq!(counts(&mut client, "shop.kind"), [3; 4]);
}

#[test]
fn what_a_replicated_table_does_not_do_is_refused_by_name() {
    let (_cluster, service) = world();
    let mut one = within(&service);
    filled(&mut one);
    one.good("CREATE TABLE plain (w int PRIMARY KEY, v int)");
    one.good("INSERT INTO plain VALUES (1, 1)");
    one.refused(&[
        (
            "BEGIN; INSERT INTO item VALUES (3, 'c', 1)",
            "0A000",
            "the replicated table \"item\" in a transaction",
        ),
        ("BEGIN; COPY item FROM STDIN", "0A000", "the replicated table \"item\" in a transaction"),
        ("BEGIN; SELECT * FROM item FOR UPDATE", "0A000", "the replicated table \"item\" in a transaction"),
        ("INSERT INTO item VALUES (1, 'z', 1)", "23505", "item_pkey"),
        ("INSERT INTO item VALUES (3, 'a', 1)", "23505", "item_name_key"),
        ("UPDATE item SET price = -1", "23514", "item_price_check"),
        ("INSERT INTO stock VALUES (1, 9, 1)", "23503", "stock_item_fkey"),
        ("DELETE FROM item WHERE id = 2", "0A000", "to which \"stock_item_fkey\" of \"stock\" refers"),
        (
            "WITH gone AS (DELETE FROM plain RETURNING w) INSERT INTO item SELECT w + 5, 'x', 1 FROM gone",
            "0A000",
            "a replicated table and another one in one statement",
        ),
        (
            "CREATE TABLE kind (id int PRIMARY KEY, of int REFERENCES item) WITH (replicated = true)",
            "0A000",
            "a foreign key of a replicated table",
        ),
        ("CREATE TABLE t (id int PRIMARY KEY) WITH (replicated = 3)", "22023", "replicated"),
    ]);
    assert_eq!(one.good("SELECT count(*) FROM item"), "2");
    let mut main = Talk::new(&service);
    main.good("CREATE TABLE item (id int PRIMARY KEY) WITH (replicated = true)");
    main.good("BEGIN; INSERT INTO item VALUES (1); COMMIT");
    main.refused(&[(
        "CREATE TABLE t (id int PRIMARY KEY) WITH (replicated = true, partitions = 3)",
        "0A000",
        "a replicated table with partitions for itself",
    )]);
}

/// A definition of `id` and `v`, as it is behind its last entry.
fn drawn(client: &mut Client, name: &str) -> CatalogTable {
    let numbers = client.numbers(2).expect("numbers");
    let columns = vec![Column::new("id", ColumnType::Int), Column::new("v", ColumnType::Int)];
    let mut parts = Schema::new(columns, &["id"], 1, false).expect("valid").into_parts();
    (parts.replicated, parts.version) = (true, numbers + 1);
    CatalogTable::new(TableId(numbers), name, Schema::from_parts(parts).expect("valid"), wall_ms())
}

/// Makes its definition without a name in a partition, with rows of these ids.
fn fill(client: &mut Client, database: &Database, (at, named): (PartitionId, &CatalogTable), ids: &[i64]) {
    let filling = named.to_fill().expect("the version before");
    let made = database.transact_in(at, vec![created(&filling)], Vec::new(), None);
    client.call(made).expect("made");
    let table: Table = database.table(filling);
    let put = |id: &i64| {
        let (key, row) = table.encode(&Row::new(vec![Value::Int(*id), Value::Int(1)])).expect("a row");
        RowOp::Put { key, row }
    };
    client.call(table.write(at, ids.iter().map(put).collect())).expect("written");
}

/// Gives it its name there.
fn name(
    client: &mut Client,
    database: &Database,
    (at, named): (PartitionId, &CatalogTable),
    gone: &[&Table],
) {
    let drop = |table: &&Table| TableChange::Drop { table: table.id(), schema: table.schema().version() };
    let mut changes: Vec<TableChange> = gone.iter().map(drop).collect();
    let from = named.schema.version() - 1;
    changes.push(TableChange::Alter { from, to: RecordText::new(named) });
    client.call(database.transact_in(at, changes, Vec::new(), None)).expect("named");
}

#[test]
fn pr405_whoever_comes_copies_the_rows_that_somebody_has_left_half_copied() {
    let (cluster, service) = world();
    let mut client = cluster.client();
    let database = client.database("shop").expect("there");
    let mut one = within(&service);
    one.good("CREATE TABLE item (id bigint PRIMARY KEY, v bigint) WITH (replicated = true)");
    one.good("INSERT INTO item VALUES (1, 1), (2, 1)");
    one.good("CREATE TABLE stock (w int, item bigint, PRIMARY KEY (w, item))");
    // Whoever wrote it has stopped behind the first partition's switch, and somebody in the middle of a copy.
    let (before, first) = (client.table("shop.item").expect("there"), database.partition());
    let new = drawn(&mut client, "item");
    fill(&mut client, &database, (first, &new), &[1, 2, 3, 4, 5]);
    name(&mut client, &database, (first, &new), &[&before]);
    let last = database.partitions().last().expect("several");
    fill(&mut client, &database, (last, &new), &[1, 2]);
    assert!(!is_level(&mut client, &database));
    // Everybody reads it as of behind the switch.
    assert_eq!(one.good("SELECT count(*), sum(id) FROM item"), "5|15");
    one.good("ALTER TABLE stock ADD FOREIGN KEY (item) REFERENCES item");
    assert!(is_level(&mut client, &database));
    assert_eq!(counts(&mut client, "shop.item"), [5; 4]);
    for w in 1..=12 {
        one.good(&format!("INSERT INTO stock VALUES ({w}, 5)"));
    }
    // Whoever wrote it has stopped before that: nothing of it is seen, and the next one goes on.
    let never = drawn(&mut client, "item");
    fill(&mut client, &database, (first, &never), &[9]);
    assert_eq!(one.good("INSERT INTO item VALUES (6, 1)"), "INSERT 0 1");
    assert_eq!(counts(&mut client, "shop.item"), [6; 4]);
}

#[test]
fn pr503_rows_that_are_left_half_copied_come_and_what_nobody_fills_any_more_goes_by_itself() {
    let (cluster, service) = world_of(Cluster::with(3, &[("sql.listen", "127.0.0.1:0")]));
    let mut client = cluster.client();
    let database = client.database("shop").expect("there");
    let mut one = within(&service);
    one.good("CREATE TABLE item (id bigint PRIMARY KEY, v bigint) WITH (replicated = true)");
    one.good("INSERT INTO item VALUES (1, 1), (2, 1)");
    let (before, first) = (client.table("shop.item").expect("there"), database.partition());
    // Somebody fills one now, and one was left seven hours ago.
    let fresh = drawn(&mut client, "item");
    fill(&mut client, &database, (first, &fresh), &[9]);
    let long_ago = wall_ms() - 7 * 3_600_000;
    let old = CatalogTable { created_ms: long_ago, ..drawn(&mut client, "item") };
    fill(&mut client, &database, (first, &old), &[8]);
    // Behind the first partition's switch whoever wrote it has stopped in the middle of a copy.
    let new = drawn(&mut client, "item");
    fill(&mut client, &database, (first, &new), &[1, 2, 3, 4, 5]);
    name(&mut client, &database, (first, &new), &[&before]);
    let last = database.partitions().last().expect("several");
    fill(&mut client, &database, (last, &new), &[1, 2]);
    let deadline = Instant::now() + LONG;
    let is_done = |client: &mut Client| {
        let there = states(client, &database, first);
        is_level(client, &database) && there.get(&old.id).is_none_or(|state| *state == TableState::Dropping)
    };
    while !is_done(&mut client) {
        assert!(Instant::now() < deadline, "PR-503: {:?}", states(&mut client, &database, first));
        thread::yield_now();
    }
    assert_eq!(counts(&mut client, "shop.item"), [5; 4]);
    assert_eq!(states(&mut client, &database, first).get(&fresh.id), Some(&TableState::Filling));
    assert_eq!(one.good("SELECT count(*), sum(id) FROM item"), "5|15");
}

#[test]
fn pr407_of_several_who_write_at_once_nobody_is_overwritten_and_readers_see_one_state() {
    const EACH: i64 = 6;
    let (cluster, service) = world();
    let mut one = within(&service);
    one.good("CREATE TABLE item (id int PRIMARY KEY, v int) WITH (replicated = true)");
    one.good("INSERT INTO item SELECT n, 0 FROM generate_series(1, 8) AS s(n)");
    let written = |talk: &mut Talk, text: &str| {
        while talk.say(text).starts_with("40001") {
            thread::yield_now();
        }
    };
    let (mut two, mut three, mut reader) = (within(&service), within(&service), within(&service));
    thread::scope(|scope| {
        let adds = |talk: &mut Talk, from: i64| {
            for id in from..from + EACH {
                written(talk, &format!("INSERT INTO item VALUES ({id}, 100)"));
            }
        };
        let first = scope.spawn(move || adds(&mut two, 100));
        let second = scope.spawn(move || adds(&mut three, 200));
        let reads = scope.spawn(move || {
            for _ in 0..50 {
                let said = reader.say("SELECT count(DISTINCT v), count(*) FROM item WHERE id <= 8");
                assert!(said == "1|8" || said.starts_with("40001"), "{said}");
            }
        });
        for v in 1..=EACH {
            written(&mut one, &format!("UPDATE item SET v = {v} WHERE id <= 8"));
        }
        for thread in [first, second, reads] {
            thread.join().expect("no panic");
        }
    });
    let mut client = cluster.client();
    let database = client.database("shop").expect("there");
    client.level(&database).expect("level");
    assert_eq!(counts(&mut client, "shop.item"), [8 + 2 * EACH as u64; 4]);
    assert_eq!(
        within(&service).good("SELECT min(v), max(v) FROM item WHERE id <= 8"),
        format!("{EACH}|{EACH}")
    );
}

#[test]
fn pr409_a_replicated_table_that_the_first_partition_has_lost_comes_back_with_its_rows() {
    let (cluster, service) = world();
    let mut client = cluster.client();
    let database = client.database("shop").expect("there");
    let mut one = within(&service);
    let newest = client.call(database.transact(Vec::new(), Vec::new(), None)).expect("a write of nothing");
    let ahead = Position { lsn: Lsn(newest.lsn.0 + 1_000), ..newest.position() };
    let last = database.partitions().last().expect("several");
    // As if the first partition had been promoted without its last entries.
    let lost = CatalogTable { seen: Some(ahead), ..drawn(&mut client, "lost") };
    fill(&mut client, &database, (last, &lost), &[1, 2, 3]);
    name(&mut client, &database, (last, &lost), &[]);
    client.level(&database).expect("level");
    assert!(is_level(&mut client, &database));
    assert_eq!(counts(&mut client, "shop.lost"), [3; 4]);
    assert_eq!(one.good("SELECT sum(id) FROM lost"), "6");
    // The same without its name alone, and with some of its rows.
    let other = drawn(&mut client, "other");
    fill(&mut client, &database, (database.partition(), &other), &[1]);
    fill(&mut client, &database, (last, &other), &[1, 2]);
    name(&mut client, &database, (last, &other), &[]);
    client.level(&database).expect("level");
    assert_eq!(counts(&mut client, "shop.other"), [2; 4]);
    // And where nobody says any more that the table as it was has gone.
    one.good("CREATE TABLE item (id int PRIMARY KEY, v int) WITH (replicated = true)");
    one.good("INSERT INTO item VALUES (1, 1)");
    let before = client.table("shop.item").expect("there");
    let newer = CatalogTable { seen: Some(ahead), ..drawn(&mut client, "item") };
    fill(&mut client, &database, (last, &newer), &[1, 2]);
    name(&mut client, &database, (last, &newer), &[&before]);
    while states(&mut client, &database, last).contains_key(&before.id()) {
        thread::yield_now();
    }
    client.level(&database).expect("level");
    assert!(is_level(&mut client, &database));
    assert_eq!(counts(&mut client, "shop.item"), [2; 4]);
    // Whoever filled it takes it for one that never got its name.
    let named = drawn(&mut client, "named");
    fill(&mut client, &database, (database.partition(), &named), &[1, 2, 3]);
    fill(&mut client, &database, (last, &CatalogTable { seen: Some(ahead), ..named.clone() }), &[1, 2, 3]);
    name(&mut client, &database, (last, &CatalogTable { seen: Some(ahead), ..named.clone() }), &[]);
    let gone = TableChange::Drop { table: named.id, schema: named.schema.version() - 1 };
    client.call(database.transact(vec![gone], Vec::new(), None)).expect("dropped");
    client.level(&database).expect("level");
    assert_eq!(counts(&mut client, "shop.named"), [3; 4]);
}

#[test]
fn a_node_that_dies_meanwhile_holds_nothing_up_for_long() {
    let (mut cluster, service) = world();
    let mut one = within(&service);
    filled(&mut one);
    cluster.kill(1);
    one.good("INSERT INTO item VALUES (3, 'c', 5)");
    for w in 1..=12 {
        one.good(&format!("INSERT INTO stock VALUES ({w}, 3, 1)"));
    }
    assert_eq!(one.good("SELECT count(*), sum(price) FROM stock JOIN item ON item = id"), "36|420");
    let mut client = cluster.client();
    assert_eq!(counts(&mut client, "shop.item"), [3; 4]);
    let database = client.database("shop").expect("there");
    let filling = |partition: PartitionId| {
        let states = states(&mut client, &database, partition);
        states.into_values().filter(|state| *state == TableState::Filling).count()
    };
    assert_eq!(database.partitions().map(filling).sum::<usize>(), 0, "nothing is left over");
}
