//! Databases on whole clusters: several tables in one partition, written together, changed while others know
//! them as they were, and there after a failover.

use crate::common::{Cluster, LONG, in_sync, row, wait_for};
use client::{Client, ClientError, Database, Table};
use std::time::{Duration, Instant};
use types::data::{Column, ColumnType, Row, Value};
use wire::control::{AdminCommand, CreateTable};
use wire::{RowOp, TableChange};

fn bank(client: &mut Client) -> Database {
    client.create_database(&CreateTable::database("bank", "durable")).expect("creates")
}

/// The columns of [`row`].
fn table(client: &mut Client, database: &Database, name: &str) -> Table {
    let schema = crate::common::create("t", "durable", types::EngineKind::Lsm, types::LogKind::Disk).schema;
    client.create_table_in(database, name, schema).expect("creates")
}

fn put(table: &Table, row: &Row) -> RowOp {
    let (key, row) = table.encode(row).expect("a row");
    RowOp::Put { key, row }
}

/// Asks until it is so. The client turns meanwhile.
fn eventually(client: &mut Client, what: &str, mut so: impl FnMut(&mut Client) -> bool) {
    let deadline = Instant::now() + LONG;
    while !so(client) {
        assert!(Instant::now() < deadline, "not in time: {what}");
        let _ = client.poll(Duration::from_millis(20)).expect("turns");
    }
}

fn scanned(client: &mut Client, table: &Table) -> Vec<Row> {
    let found: Vec<_> = client.scan_all(table).collect::<Result<_, _>>().expect("reads");
    found.iter().map(|found| table.decode(&found.key, &found.stored).expect("a row")).collect()
}

#[test]
fn tables_of_a_database_are_written_together_and_survive_a_node() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let database = bank(&mut client);
    let (one, two) = (table(&mut client, &database, "one"), table(&mut client, &database, "two"));
    for id in 0..50 {
        let parts = vec![
            one.part(vec![put(&one, &row(id, "one")), put(&one, &row(100 + id, "one"))]),
            two.part(vec![put(&two, &row(id, "two"))]),
        ];
        client.call(database.transact(Vec::new(), parts, None)).expect("writes");
    }
    let check = |client: &mut Client| {
        assert_eq!(client.count(&one).expect("counts"), 100);
        assert_eq!(client.count(&two).expect("counts"), 50);
        assert_eq!(client.get(&one, &[Value::Int(7)]).expect("reads"), Some(row(7, "one")));
        assert_eq!(client.get(&two, &[Value::Int(7)]).expect("reads"), Some(row(7, "two")));
        assert_eq!(client.get(&two, &[Value::Int(107)]).expect("reads"), None);
        let rows = scanned(client, &one);
        assert!(rows.len() == 100 && rows.iter().all(|row| row.values[1] == "one".into()), "{rows:?}");
        assert_eq!(scanned(client, &two).len(), 50);
        let names: Vec<String> =
            client.tables_of(&database).expect("reads").iter().map(|table| table.name().into()).collect();
        assert_eq!(names, ["one", "two"]);
    };
    check(&mut client);
    // A row that is there already: nothing of the write is done, in no table.
    let (key, value) = two.encode(&row(7, "again")).expect("a row");
    let insert = RowOp::Insert { key, row: value };
    let parts = vec![one.part(vec![put(&one, &row(999, "one"))]), two.part(vec![insert])];
    let refused = client.call(database.transact(Vec::new(), parts, None));
    assert_eq!(refused.expect_err("it is there"), ClientError::Exists);
    check(&mut client);
    let status = wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let partition = status.partitions.iter().find(|record| record.id == database.partition());
    let leader = partition.expect("known").primary.node.0;
    cluster.kill(leader);
    check(&mut client);
    client.delete(&one, &[Value::Int(3)]).expect("removes");
    cluster.start_node(leader);
    wait_for(&mut client, "the return of the node", |status| in_sync(status, 3));
    assert_eq!(client.count(&one).expect("counts"), 99);
}

#[test]
fn whoever_knows_a_table_as_it_was_looks_again_and_never_writes_by_old_columns() {
    let cluster = Cluster::start();
    let (mut client, mut other) = (cluster.ready(), cluster.client());
    let database = bank(&mut client);
    let old = table(&mut client, &database, "pets");
    client.put(&old, &row(1, "old")).expect("writes");
    let known = other.table("bank.pets").expect("it is there");
    let more = Column::new("more", ColumnType::Int);
    let new = client
        .alter_table_in(&known, |table| {
            let schema = table.schema().with_column(more.clone()).expect("valid");
            Ok((table.name().to_string(), schema))
        })
        .expect("alters");
    assert_eq!(new.schema().columns().len(), 3);
    // By itself a call of the old version is refused, read or write.
    assert_eq!(other.call(old.put(&row(2, "x")).expect("a call")).expect_err("stale"), ClientError::Stale);
    let get = old.get(&[Value::Int(1)]).expect("a call");
    assert_eq!(other.call(get).expect_err("stale"), ClientError::Stale);
    // The client looks again.
    other.put(&old, &row(2, "by another")).expect("looks again");
    let wide = |id: i64, text: &str| {
        let mut wide = row(id, text);
        wide.values.push(Value::Null);
        Some(wide)
    };
    assert_eq!(other.get(&old, &[Value::Int(1)]).expect("reads"), wide(1, "old"));
    assert_eq!(client.get(&new, &[Value::Int(2)]).expect("reads"), wide(2, "by another"));
    client.drop_table_in(&known).expect("drops, looking again");
    let gone = other.get(&new, &[Value::Int(1)]).expect_err("it is gone");
    assert!(matches!(gone, ClientError::NoTable(_)), "{gone}");
    // Another table of the name has none of its rows.
    let again = table(&mut client, &database, "pets");
    assert_eq!(client.count(&again).expect("counts"), 0);
    let twice = client.create_table_in(&database, "pets", again.schema().clone());
    assert_eq!(twice.expect_err("there is one"), ClientError::NameTaken);
}

#[test]
fn rows_of_a_dropped_table_go_and_what_a_database_cannot_do_is_refused() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let database = bank(&mut client);
    let (one, two) = (table(&mut client, &database, "one"), table(&mut client, &database, "two"));
    for id in 0..200 {
        client.put(&one, &row(id, "x")).expect("writes");
    }
    client.put(&two, &row(1, "stays")).expect("writes");
    client.drop_table_in(&one).expect("drops");
    // Its definition is gone when its last row is.
    let catalog = database.catalog();
    eventually(&mut client, "the rows of a dropped table go", |client| {
        client.count(&catalog).expect("counts") == 1
    });
    assert_eq!(scanned(&mut client, &two), [row(1, "stays")]);
    // The catalog is no table that rows are put into.
    let put = catalog.write(database.partition(), vec![RowOp::Delete { key: "k".into() }]);
    assert!(matches!(client.call(put), Err(ClientError::Failed { .. })));
    // A bare table's partition has no tables.
    let bare = crate::common::create("t", "durable", types::EngineKind::Lsm, types::LogKind::Disk);
    let bare = client.create_table(&bare).expect("creates");
    let change = TableChange::Drop { table: two.id(), schema: two.schema().version() };
    let op = wire::Op::Transact { changes: vec![change], parts: Vec::new(), since: None };
    let partition = bare.partitions().next().expect("one");
    assert!(matches!(client.call(bare.call(partition, op)), Err(ClientError::Failed { .. })));
    client.admin(AdminCommand::DropDatabase("bank".into())).expect("drops");
    eventually(&mut client, "the database is gone", |client| client.database("bank").is_err());
    assert!(matches!(client.table("bank.two"), Err(ClientError::NoDatabase(_))));
    let empty = bank(&mut client);
    assert!(client.tables_of(&empty).expect("reads").is_empty());
}
