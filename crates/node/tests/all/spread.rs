//! Databases of several partitions, on a cluster of this process: rows of all tables with one value of the
//! partition key lie together, and changes of tables go from partition to partition.

use crate::common::talk::{Behind, Talk, service};
use crate::common::{Cluster, LONG};
use client::{Client, ClientError, Database, created, wall_ms};
use std::time::Instant;
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::{CatalogTable, Lsn, Position, TableId, TableState};
use wire::{RecordText, TableChange};

fn within(service: &sql::Sql, database: &str) -> Talk {
    Talk::within(service, database).unwrap_or_else(|failure| panic!("{failure:?}"))
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
        "CREATE DATABASE bank WITH (partitions = 4, partition_by = '(w)', policy = durable, factor = 3)",
    );
    (cluster, service)
}

/// The names and versions of the tables in each partition.
fn catalogs(client: &mut Client, database: &Database) -> Vec<Vec<(String, u32)>> {
    let of = |partition| {
        let catalog = database.catalog_in(partition);
        let mut tables = Vec::new();
        for found in client.scan_all(&catalog) {
            let found = found.expect("a row");
            let (state, table) = database.read_row(&found.key, &found.stored).expect("a definition");
            if state != TableState::Dropping {
                tables.push((table.name.clone(), table.schema.version()));
            }
        }
        tables
    };
    database.partitions().map(of).collect()
}

fn is_level(client: &mut Client, database: &Database) -> bool {
    let all = catalogs(client, database);
    all.iter().all(|one| *one == all[0])
}

fn refused(talk: &mut Talk, all: &[(&str, &str, &str)]) {
    for (text, code, says) in all {
        let said = talk.say(text);
        assert!(said.starts_with(code) && said.contains(says), "{text}: {said}");
        talk.say("ROLLBACK");
    }
}

#[test]
fn rows_of_all_tables_with_one_key_lie_together() {
    let (cluster, service) = world();
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    one.good("CREATE TABLE depot (w int PRIMARY KEY, name text, total int NOT NULL DEFAULT 0)");
    one.good("CREATE TABLE item (w int REFERENCES depot, id serial, code text, n int CHECK (n >= 0), PRIMARY KEY (w, id), UNIQUE (w, code))");
    for w in 1..=12 {
        two.good(&format!("INSERT INTO depot (w, name) VALUES ({w}, 'depot {w}')"));
        two.good(&format!("INSERT INTO item (w, code, n) VALUES ({w}, 'a', {w}), ({w}, 'b', 1)"));
    }
    assert_eq!(one.good("SELECT count(*), sum(n), count(DISTINCT id) FROM item"), "24|90|24");
    assert_eq!(one.good("SELECT count(*) FROM depot JOIN item USING (w) WHERE item.n > 10"), "2");
    for text in ["BEGIN", "UPDATE item SET n = n - 1 WHERE w = 3", "UPDATE depot SET total = 7 WHERE w = 3"] {
        one.good(text);
    }
    assert_eq!(two.good("SELECT total FROM depot WHERE w = 3"), "0");
    one.good("COMMIT");
    assert_eq!(two.good("SELECT total, (SELECT sum(n) FROM item WHERE w = 3) FROM depot WHERE w = 3"), "7|2");
    let wrong = [
        ("CREATE TABLE t (id int PRIMARY KEY)", "42P16", "must begin with w int"),
        ("CREATE TABLE t (id int, w int, PRIMARY KEY (id, w))", "42P16", "must begin with w int"),
        ("CREATE TABLE t (w text PRIMARY KEY)", "42P16", "must begin with w int"),
        ("CREATE TABLE t (w int)", "42P16", "must begin with w int"),
        ("CREATE TABLE t (w int PRIMARY KEY, v int UNIQUE)", "0A000", "UNIQUE over several partitions"),
        ("CREATE UNIQUE INDEX ON item (code)", "0A000", "UNIQUE over several partitions"),
        ("CREATE TABLE t (w int PRIMARY KEY, v int REFERENCES depot)", "0A000", "a foreign key over several"),
        ("ALTER TABLE item ADD PRIMARY KEY (id)", "0A000", "several partitions"),
        ("INSERT INTO item (w, code) VALUES (1, 'a')", "23505", "item_w_code_key"),
        ("INSERT INTO item (w, code) VALUES (99, 'a')", "23503", "item_w_fkey"),
        ("INSERT INTO item (w, code, n) VALUES (1, 'c', -1)", "23514", "item_n_check"),
        ("DELETE FROM depot WHERE w = 1", "23503", "item_w_fkey"),
        (
            "INSERT INTO depot (w) SELECT n FROM generate_series(100, 120) AS s(n)",
            "0A000",
            "several partitions",
        ),
        ("BEGIN; INSERT INTO depot (w) VALUES (50); CREATE TABLE t (w int PRIMARY KEY)", "25001", "written"),
    ];
    refused(&mut one, &wrong);
    let mut client = cluster.client();
    let depot = client.table("bank.depot").expect("there");
    let partition = |w: i64| {
        let key = depot.key(&[Value::Int(w)]).expect("a key");
        depot.partition_of(&key).expect("a partition")
    };
    for w in 2..=12 {
        one.good("BEGIN");
        one.good("UPDATE depot SET total = 1 WHERE w = 1");
        let said = one.say(&format!("UPDATE depot SET total = 1 WHERE w = {w}"));
        assert_eq!(said.starts_with("0A000"), partition(w) != partition(1), "{w}: {said}");
        one.good("ROLLBACK");
    }
    assert_eq!(
        one.good("INSERT INTO item (w, code) VALUES (1, 'a') ON CONFLICT (w, code) DO UPDATE SET n = 5"),
        "INSERT 0 1"
    );
    assert_eq!(two.good("SELECT n FROM item WHERE w = 1 AND code = 'a'"), "5");
    let lines: String = (100..140).map(|w| format!("{w}\tdepot\t0\n")).collect();
    assert_eq!(one.copy("COPY depot FROM STDIN", &lines), "COPY 40");
    assert_eq!(two.good("SELECT count(*) FROM depot"), "52");
    let database = client.database("bank").expect("there");
    let used = database.partitions().filter(|partition| {
        let depot = client.table("bank.depot").expect("there");
        client.scan_all(&depot).any(|found| found.expect("a row").partition == *partition)
    });
    assert_eq!(used.count(), 4, "each partition has some");
}

#[test]
fn changes_of_tables_come_to_all_partitions_or_to_none() {
    let (cluster, service) = world();
    let (mut one, mut two) = (within(&service, "bank"), within(&service, "bank"));
    let mut client = cluster.client();
    let database = client.database("bank").expect("there");
    one.good("CREATE TABLE t (w int PRIMARY KEY, v int)");
    for w in 1..=12 {
        one.good(&format!("INSERT INTO t VALUES ({w}, {w})"));
    }
    assert!(is_level(&mut client, &database));
    assert_eq!(two.good("SELECT sum(v) FROM t"), "78");
    one.good("ALTER TABLE t ADD COLUMN more text NOT NULL DEFAULT 'x', ADD COLUMN n int");
    assert_eq!(two.good("SELECT count(*) FROM t WHERE more = 'x'"), "12");
    one.good("UPDATE t SET n = 1 WHERE w = 5");
    one.good("CREATE INDEX by_v ON t (v)");
    assert_eq!(two.good("SELECT w FROM t WHERE v = 7"), "7");
    one.good("ALTER TABLE t ADD CONSTRAINT low CHECK (v < 100)");
    assert!(two.say("UPDATE t SET v = 100 WHERE w = 3").starts_with("23514"));
    // One row of one partition forbids it, and then it is nowhere.
    let wrong = [
        ("ALTER TABLE t ADD CONSTRAINT lower CHECK (v < 12)", "23514", "lower"),
        ("ALTER TABLE t ALTER COLUMN n SET NOT NULL", "23502", "null values"),
    ];
    refused(&mut one, &wrong);
    assert_eq!(two.good("UPDATE t SET v = 50 WHERE w = 4"), "UPDATE 1");
    one.good("CREATE TABLE twice (w int, id int, c int, PRIMARY KEY (w, id))");
    for w in 1..=8 {
        one.good(&format!("INSERT INTO twice VALUES ({w}, 1, 1), ({w}, 2, {})", if w == 6 { 1 } else { 2 }));
    }
    let said = one.say("ALTER TABLE twice ADD CONSTRAINT once UNIQUE (w, c)");
    assert!(said.starts_with("23505"), "{said}");
    assert_eq!(one.good("SELECT count(*) FROM pg_constraint WHERE conname = 'once'"), "0");
    two.good("INSERT INTO twice VALUES (1, 9, 1)");
    one.good("DELETE FROM twice WHERE w = 6 AND id = 2");
    one.good("DELETE FROM twice WHERE w = 1 AND id = 9");
    one.good("ALTER TABLE twice ADD CONSTRAINT once UNIQUE (w, c)");
    for w in 1..=8 {
        assert!(two.say(&format!("INSERT INTO twice VALUES ({w}, 7, 1)")).starts_with("23505"), "{w}");
    }
    one.good("TRUNCATE twice");
    assert_eq!(two.good("SELECT count(*) FROM twice"), "0");
    assert_eq!(two.good("INSERT INTO twice VALUES (6, 1, 1)"), "INSERT 0 1");
    one.good("CREATE SEQUENCE s");
    one.good("CREATE VIEW high AS SELECT w FROM t WHERE v > 10");
    assert_eq!(two.good("SELECT count(*), nextval('s') FROM high"), "3|1");
    one.good("DROP VIEW high");
    one.good("ALTER TABLE t RENAME TO u");
    one.good("DROP TABLE twice");
    assert!(two.say("SELECT * FROM t").starts_with("42P01"));
    assert_eq!(two.good("SELECT count(*) FROM u"), "12");
    assert!(is_level(&mut client, &database));
}

fn drawn(client: &mut Client, name: &str) -> CatalogTable {
    let columns = vec![Column::new("w", ColumnType::Int), Column::new("v", ColumnType::Int)];
    let schema = Schema::new(columns, &["w"], 1, false).expect("valid");
    CatalogTable::new(TableId(client.numbers(1).expect("numbers")), name, schema, wall_ms())
}

/// A table that is in the last partition alone, with where the first one was when it came from there. Its
/// number.
fn half_lost(client: &mut Client, database: &Database, (name, seen): (&str, Position)) -> u32 {
    let table = CatalogTable { seen: Some(seen), ..drawn(client, name) };
    let last = database.partitions().last().expect("several");
    client.call(database.transact_in(last, vec![created(&table)], Vec::new(), None)).expect("made");
    table.id.0
}

/// A table that is in the first partition alone, as if whoever made it had stopped there.
fn half_made(client: &mut Client, database: &Database, name: &str) -> CatalogTable {
    let table = drawn(client, name);
    client.call(database.transact(vec![created(&table)], Vec::new(), None)).expect("in the first one");
    table
}

#[test]
fn pr170_whoever_comes_finishes_what_somebody_has_left_half_done() {
    let (cluster, service) = world();
    let mut client = cluster.client();
    let database = client.database("bank").expect("there");
    let table = half_made(&mut client, &database, "t");
    assert!(!is_level(&mut client, &database));
    let mut one = within(&service, "bank");
    for w in 1..=12 {
        one.good(&format!("INSERT INTO t VALUES ({w}, {w})"));
    }
    assert!(is_level(&mut client, &database));
    // The same with other columns, for somebody who reads all partitions.
    let mut parts = table.schema.clone().into_parts();
    parts.version = client.numbers(1).expect("numbers");
    parts.columns.push(Column::new("more", ColumnType::Text));
    let to = CatalogTable { schema: Schema::from_parts(parts).expect("valid"), ..table.clone() };
    let change = TableChange::Alter { from: 1, to: RecordText::new(&to) };
    client.call(database.transact(vec![change], Vec::new(), None)).expect("in the first one");
    assert!(!is_level(&mut client, &database));
    assert_eq!(one.good("SELECT count(more), sum(v) FROM t"), "0|78");
    assert!(is_level(&mut client, &database));
    // And for a native client that knows an older version.
    let old = database.table(table.clone());
    let change = TableChange::Drop { table: table.id, schema: to.schema.version() };
    let other = half_made(&mut client, &database, "other");
    for w in 1..=12 {
        let row = Row::new(vec![Value::Int(w), Value::Int(0)]);
        let put = client.put(&database.table(other.clone()), &row);
        assert!(put.is_ok(), "{w}: {put:?}");
    }
    client.call(database.transact(vec![change], Vec::new(), None)).expect("dropped in the first one");
    assert!(one.say("SELECT * FROM t").starts_with("42P01"));
    assert!(matches!(client.look_again(&old), Err(ClientError::NoTable(_))));
    assert!(is_level(&mut client, &database));
}

/// Waits until all partitions have the same tables, and says nothing to anybody who would see to that.
fn wait_level(client: &mut Client, database: &Database, what: &str) {
    let deadline = Instant::now() + LONG;
    while !is_level(client, database) {
        assert!(Instant::now() < deadline, "PR-503: {what} is not in all partitions");
        std::thread::yield_now();
    }
}

#[test]
fn pr503_gateways_finish_what_somebody_has_left_half_done_without_a_statement() {
    // The service below looks at nothing by itself: the gateways of the nodes do, which nobody connects to.
    let (mut cluster, service) = world_of(Cluster::with(3, &[("sql.listen", "127.0.0.1:0")]));
    let mut client = cluster.client();
    let database = client.database("bank").expect("there");
    let mut one = within(&service, "bank");
    one.good("CREATE TABLE kept (w int PRIMARY KEY, v int)");
    for w in 1..=12 {
        one.good(&format!("INSERT INTO kept VALUES ({w}, {w})"));
    }
    let table = half_made(&mut client, &database, "t");
    wait_level(&mut client, &database, "a new table");
    assert_eq!(catalogs(&mut client, &database)[0].len(), 2);
    let mut parts = table.schema.clone().into_parts();
    parts.version = client.numbers(1).expect("numbers");
    parts.columns.push(Column::new("more", ColumnType::Text));
    let to = CatalogTable { schema: Schema::from_parts(parts).expect("valid"), ..table.clone() };
    let change = TableChange::Alter { from: table.schema.version(), to: RecordText::new(&to) };
    client.call(database.transact(vec![change], Vec::new(), None)).expect("in the first one");
    wait_level(&mut client, &database, "a new column");
    assert_eq!(catalogs(&mut client, &database)[0][1], ("t".to_string(), to.schema.version()));
    // Whoever leads goes on, also behind a failover; and what the first partition has lost is not dropped.
    let leader = client.cluster_map().primary(database.partition()).expect("known");
    let change = TableChange::Drop { table: table.id, schema: to.schema.version() };
    client.call(database.transact(vec![change], Vec::new(), None)).expect("dropped in the first one");
    let newest = client.call(database.transact(Vec::new(), Vec::new(), None)).expect("a write of nothing");
    let ahead = Position { lsn: Lsn(newest.lsn.0 + 1_000), ..newest.position() };
    half_lost(&mut client, &database, ("lost", ahead));
    cluster.kill(leader.0);
    let mut client = cluster.client();
    wait_level(&mut client, &database, "a drop");
    let names = catalogs(&mut client, &database).remove(3).into_iter().map(|(name, _)| name);
    assert_eq!(names.collect::<Vec<_>>(), ["kept", "lost"]);
    assert_eq!(one.good("SELECT sum(v) FROM kept"), "78");
}

#[test]
fn a_node_that_dies_meanwhile_holds_nothing_up_for_long() {
    let (mut cluster, service) = world();
    let mut one = within(&service, "bank");
    one.good("CREATE TABLE t (w int PRIMARY KEY, v int)");
    for w in 1..=12 {
        one.good(&format!("INSERT INTO t VALUES ({w}, {w})"));
    }
    cluster.kill(1);
    one.good("ALTER TABLE t ADD COLUMN n int NOT NULL DEFAULT 3");
    one.good("CREATE TABLE u (w int REFERENCES t, id int, PRIMARY KEY (w, id))");
    for w in 1..=12 {
        one.good(&format!("INSERT INTO u VALUES ({w}, 1)"));
    }
    assert_eq!(one.good("SELECT sum(v), sum(n), count(u.id) FROM t JOIN u USING (w)"), "78|36|12");
    let mut client = cluster.client();
    let database = client.database("bank").expect("there");
    assert!(is_level(&mut client, &database));
}

#[test]
fn pr172_what_the_first_partition_has_lost_it_is_given_back() {
    let (cluster, service) = world();
    let mut client = cluster.client();
    let database = client.database("bank").expect("there");
    let mut one = within(&service, "bank");
    one.good("CREATE TABLE kept (w int PRIMARY KEY, v int)");
    let newest = client.call(database.transact(Vec::new(), Vec::new(), None)).expect("a write of nothing");
    // As if the first partition had been promoted without its last entries: another one has tables of which
    // it knows nothing, with where it was when they came.
    let ahead = Position { lsn: Lsn(newest.lsn.0 + 1_000), ..newest.position() };
    half_lost(&mut client, &database, ("lost", ahead));
    half_lost(&mut client, &database, ("dropped", newest.position()));
    one.good("CREATE TABLE more (w int PRIMARY KEY)");
    let names = |client: &mut Client| -> Vec<Vec<String>> {
        let all = catalogs(client, &database);
        all.into_iter().map(|one| one.into_iter().map(|(name, _)| name).collect()).collect()
    };
    assert_eq!(names(&mut client), vec![["kept", "lost", "more"]; 4]);
    for w in 1..=12 {
        one.good(&format!("INSERT INTO lost VALUES ({w}, {w})"));
    }
    assert_eq!(one.good("SELECT sum(v) FROM lost"), "78");
    // A name that somebody else has by now.
    let id = half_lost(&mut client, &database, ("again", ahead));
    half_made(&mut client, &database, "again");
    client.level(&database).expect("level");
    assert!(is_level(&mut client, &database));
    assert_eq!(one.good("SELECT count(*) FROM again"), "0");
    assert_eq!(one.good(&format!("SELECT count(*) FROM again_{id}")), "0");
}

/// Where the rows of a table lie: how many each partition has.
fn lying(client: &mut Client, name: &str) -> Vec<usize> {
    let table = client.table(name).expect("there");
    let found: Vec<_> = client.scan_all(&table).map(|found| found.expect("a row").partition).collect();
    table.partitions().map(|partition| found.iter().filter(|one| **one == partition).count()).collect()
}

/// What does not fit is refused in one line; then a database of three ranges is made.
fn ranges(main: &mut Talk) {
    let with = |more: &str| format!("CREATE DATABASE bank WITH (policy = durable, factor = 3, {more})");
    for (more, says) in [
        ("partitions = 3, partition_by = '(w)', ranges = '20,10'", "`10` does not come behind `20`"),
        (
            "partitions = 3, partition_by = '(w)', ranges = '10,x'",
            "`x` is no bound of `w`, which is of type int",
        ),
        (
            "partitions = 4, partition_by = '(w)', ranges = '10,20'",
            "4 partitions have 3 bounds between them, not 2",
        ),
        ("ranges = '10,20'", "there is none"),
    ] {
        let said = main.say(&with(more));
        assert!(
            said.starts_with("22023") && said.contains(says) && said.lines().count() <= 2,
            "{more}: {said}"
        );
    }
    main.good(&with("partitions = 3, partition_by = '(w)', ranges = '10,20'"));
}

/// PR-270: what reads, writes, loads, calls and scans finds a row by its bounds, whoever asks.
#[test]
fn pr270_rows_that_are_spread_by_ranges_lie_where_the_bounds_say() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let service = service(&cluster);
    let mut main = Talk::new(&service);
    ranges(&mut main);
    let mut bank = within(&service, "bank");
    bank.good("CREATE TABLE depot (w int PRIMARY KEY, n int)");
    bank.good("CREATE TABLE item (w int REFERENCES depot, id int, n int, PRIMARY KEY (w, id))");
    let lines: String = (0..35).map(|w| format!("{w}\t1\n")).collect();
    assert_eq!(bank.copy("COPY depot FROM STDIN", &lines), "COPY 35");
    assert_eq!(lying(&mut client, "bank.depot"), [10, 10, 15]);
    for w in [-3, 9] {
        bank.good(&format!("INSERT INTO depot VALUES ({w}, 1) ON CONFLICT (w) DO NOTHING"));
        bank.good(&format!("INSERT INTO item VALUES ({w}, 1, 7)"));
    }
    // One transaction over what lies in one range, and none beyond it.
    for text in
        ["BEGIN", "UPDATE depot SET n = 2 WHERE w = 10", "UPDATE depot SET n = 2 WHERE w = 19", "COMMIT"]
    {
        bank.good(text);
    }
    refused(
        &mut bank,
        &[("BEGIN; UPDATE depot SET n = 3 WHERE w = 19; UPDATE depot SET n = 3 WHERE w = 20", "0A000", "")],
    );
    assert_eq!(bank.good("SELECT count(*), sum(n) FROM depot WHERE w >= 8 AND w < 21"), "13|15");
    assert_eq!(bank.good("SELECT w FROM depot WHERE w > 32 OR w < 0 ORDER BY w"), "-3\n33\n34");
    let explained = bank.good("EXPLAIN SELECT * FROM depot WHERE w >= 21");
    assert!(explained.contains("1 of 3") || explained.contains("1 partition"), "{explained}");
    // A procedure runs where its first argument lies.
    bank.good(
        "CREATE PROCEDURE mark(w bigint) LANGUAGE wasm AS $$(module (import \"arg\" \"push w\" (func $w)) \
         (import \"value\" \"int\" (func $int (param i64))) (import \"table:depot\" \"put\" (func $put)) \
         (func (export \"run\") (call $w) (call $int (i64.const 9)) (call $put)))$$",
    );
    for w in [5, 15, 1_000] {
        bank.good(&format!("CALL mark({w})"));
    }
    assert_eq!(lying(&mut client, "bank.depot"), [11, 10, 16]);
    assert_eq!(bank.good("SELECT sum(n) FROM depot WHERE w IN (5, 15, 1000)"), "27");
    // The native loader, and a primary that is lost.
    let depot = client.table("bank.depot").expect("there");
    let mut loader = client.load(&depot, client::LoadOptions::default());
    for w in 2_000..2_020 {
        loader.add(&mut client, &Row::new(vec![Value::Int(w), Value::Int(1)])).expect("goes");
    }
    assert_eq!(loader.finish(&mut client).expect("loaded").rows, 20);
    cluster.kill(1);
    assert_eq!(bank.good("SELECT count(*) FROM depot"), "57");
    assert_eq!(lying(&mut client, "bank.depot"), [11, 10, 36]);
    assert_eq!(
        client.get(&depot, &[Value::Int(19)]).expect("reads").map(|row| row.values[1].clone()),
        Some(Value::Int(2))
    );
}
