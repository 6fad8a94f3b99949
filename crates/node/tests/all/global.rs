//! Transactions over several partitions of a database, on a cluster of this process.

use crate::common::{Cluster, LONG, in_sync, wait_for};
use client::txn::Manager;
use client::view::transactions::{Transactions, flush_state};
use client::{Call, Client, ClientError, Database, FailKind, Outcome, Table};
use std::time::{Duration, Instant};
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::{Lsn, Micros, NodeId, PartitionId, Position, Term};
use wire::commit::{ExecutingTransactions, PartitionWrites, Threshold, TooLarge};
use wire::control::{AdminCommand, CreateTable};
use wire::{Body, CommitAnswer, CommitRequest, ManagerOp, ReadLevel, RowOp};

const ACCOUNTS: i64 = 24;

fn row(id: i64, balance: i64) -> Row {
    Row::new(vec![Value::Int(id), Value::Int(balance)])
}

fn key(id: i64) -> [Value; 1] {
    [Value::Int(id)]
}

fn bank(client: &mut Client, policy: &str) -> (Database, Table) {
    let request = CreateTable { partitions: 4, factor: Some(3), ..CreateTable::database("bank", policy) };
    let database = client.create_global_database(&request).expect("made");
    let columns = vec![Column::new("id", ColumnType::Int), Column::new("balance", ColumnType::Int)];
    let schema = Schema::new(columns, &["id"], 1, false).expect("valid");
    let table = client.create_table_in(&database, "accounts", schema).expect("made");
    let fill = |_: &mut Client, transaction: &mut client::Transaction| {
        (0..ACCOUNTS).try_for_each(|id| transaction.put(&table, &row(id, 100)))
    };
    client.transact(&database, fill).expect("filled");
    (database, table)
}

fn balance(client: &mut Client, transaction: &client::Transaction, table: &Table, id: i64) -> i64 {
    match client.get_in(transaction, table, &key(id)).expect("read").expect("there").values[1] {
        Value::Int(balance) => balance,
        ref other => panic!("{other:?}"),
    }
}

fn transfer(client: &mut Client, database: &Database, table: &Table, (from, to): (i64, i64)) {
    let act = |client: &mut Client, transaction: &mut client::Transaction| {
        let read = |client: &mut Client, id| {
            let row = client.get_in(transaction, table, &key(id))?.expect("there");
            match row.values[1] {
                Value::Int(balance) => Ok::<i64, ClientError>(balance),
                ref other => panic!("{other:?}"),
            }
        };
        let (one, other) = (read(client, from)?, read(client, to)?);
        transaction.put(table, &row(from, one - 1))?;
        transaction.put(table, &row(to, other + 1))
    };
    client.transact(database, act).expect("transferred");
}

fn total(client: &mut Client, database: &Database, table: &Table) -> i64 {
    let transaction = client.begin(database).expect("begun");
    let rows = client.scan_in(&transaction, table, Default::default()).expect("read");
    assert_eq!(rows.len(), ACCOUNTS as usize);
    let balance = |row: &Row| match row.values[1] {
        Value::Int(balance) => balance,
        ref other => panic!("{other:?}"),
    };
    rows.iter().map(balance).sum()
}

#[test]
fn a_transaction_writes_rows_of_any_partitions_and_the_first_committer_wins() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let (mut one, mut two) = (cluster.client(), cluster.client());
    let (database, table) = bank(&mut one, "durable");
    let spread: std::collections::BTreeSet<_> =
        (0..ACCOUNTS).map(|id| table.partition_of(&table.key(&key(id)).unwrap()).unwrap()).collect();
    assert!(spread.len() > 1, "the accounts lie in one partition");

    let mut first = one.begin(&database).expect("begun");
    let mut second = two.begin(&database).expect("begun");
    for (client, transaction) in [(&mut one, &mut first), (&mut two, &mut second)] {
        assert_eq!(balance(client, transaction, &table, 1), 100);
        transaction.put(&table, &row(1, 90)).expect("a row");
        assert_eq!(balance(client, transaction, &table, 1), 90, "its own write");
    }
    first.put(&table, &row(2, 110)).expect("a row");
    second.put(&table, &row(3, 110)).expect("a row");
    let at = one.commit(first).expect("committed");
    assert!(at > second.snapshot());
    assert_eq!(balance(&mut two, &second, &table, 2), 100, "its snapshot is from before");
    assert_eq!(two.commit(second), Err(ClientError::Changed));
    let seen = two.begin(&database).expect("begun");
    assert!(seen.snapshot() >= at);
    assert_eq!((balance(&mut two, &seen, &table, 1), balance(&mut two, &seen, &table, 2)), (90, 110));
    assert_eq!(balance(&mut two, &seen, &table, 3), 100);
    let keys: Vec<_> = [3, ACCOUNTS, 1].iter().map(|id| table.key(&key(*id)).expect("a key")).collect();
    let there = two.stored_all_in(&seen, &table, &keys).expect("read");
    let expected = [Some(row(3, 100)), None, Some(row(1, 90))];
    assert_eq!(there.len(), expected.len());
    for ((key, stored), expected) in keys.iter().zip(there).zip(expected) {
        assert_eq!(stored.map(|stored| table.decode(key, &stored).expect("a row")), expected);
    }
    assert_eq!(total(&mut two, &database, &table), 100 * ACCOUNTS);

    let mut gone = one.begin(&database).expect("begun");
    gone.delete(&table, &key(5)).expect("a key");
    assert_eq!(one.get_in(&gone, &table, &key(5)), Ok(None));
    drop(gone);
    assert!(one.get(&table, &key(5)).expect("read").is_some(), "what was dropped has never been");
    assert_eq!(two.delete(&table, &key(5)), Ok(true));
    assert_eq!(two.delete(&table, &key(5)), Ok(false));
    assert_eq!(one.get(&table, &key(5)), Ok(None));
    assert_eq!(one.insert(&table, &row(1, 0)), Err(ClientError::Exists));
    one.insert(&table, &row(5, 7)).expect("inserted");
    assert_eq!((two.count(&table), two.scan_all(&table).count()), (Ok(ACCOUNTS as u64), ACCOUNTS as usize));
}

#[test]
fn a_write_set_may_be_as_large_as_is_said_and_no_larger() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let request = CreateTable { partitions: 3, factor: Some(3), ..CreateTable::database("wide", "durable") };
    let database = client.create_global_database(&request).expect("made");
    let columns = vec![Column::new("id", ColumnType::Int), Column::new("text", ColumnType::Text)];
    let schema = Schema::new(columns, &["id"], 1, false).expect("valid");
    let table = client.create_table_in(&database, "texts", schema).expect("made");
    let row = |id: i64, length: usize| Row::new(vec![Value::Int(id), Value::Text("x".repeat(length))]);
    let write = |client: &mut Client, rows: i64, length: usize| {
        let mut transaction = client.begin(&database).expect("begun");
        (0..rows).try_for_each(|id| transaction.put(&table, &row(id, length)))?;
        client.commit(transaction)
    };
    write(&mut client, 6, 1 << 20).expect_err("six MiB, and what stands beside them");
    write(&mut client, 6, 1_000_000).expect("below");
    assert_eq!(client.get(&table, &key(5)).expect("read"), Some(row(5, 1_000_000)));
    // Many small rows are kept as one value, too.
    write(&mut client, 100_000, 8).expect("below");
    assert_eq!(client.count(&table), Ok(100_000));
    let refused = write(&mut client, 300_000, 1).expect_err("over");
    assert_eq!(refused, ClientError::TooLarge(TooLarge::Bytes), "PR-320");
    assert_eq!(client.count(&table), Ok(100_000), "nothing of it was done");
    // A write that is not taken leaves the transaction what it was.
    let mut transaction = client.begin(&database).expect("begun");
    (0..5).for_each(|id| transaction.put(&table, &row(id, 1 << 20)).expect("a row"));
    let over = transaction.put(&table, &row(5, 1 << 20));
    assert_eq!(over, Err(ClientError::TooLarge(TooLarge::Bytes)));
    transaction.put(&table, &row(4, 1)).expect("less than before");
    transaction.put(&table, &row(5, 1 << 20)).expect("there is room now");
    client.commit(transaction).expect("committed");
    assert_eq!(client.get(&table, &key(4)).expect("read"), Some(row(4, 1)));
    secured_everywhere(&mut client);
}

#[test]
fn rows_are_written_by_transactions_alone() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let (_, table) = bank(&mut client, "durable");
    let call = table.put(&row(1, 5)).expect("a row");
    let refused = client.call(call).expect_err("refused").to_string();
    assert!(refused.contains("written by global transactions"), "{refused}");
    // The client knows it, and sends nothing.
    let mut loader = client.load(&table, client::LoadOptions::default());
    let refused = loader.add(&mut client, &row(1, 5));
    assert!(matches!(refused, Err(ClientError::Data { .. })), "{refused:?}");
    assert_eq!(loader.finish(&mut client).map(|report| report.rows), Ok(0));
    let mut job = client.job(&table, client::JobOptions::default());
    let refused = job.put(&mut client, &row(1, 5));
    assert!(matches!(refused, Err(ClientError::Data { .. })), "{refused:?}");
    assert_eq!(client.get(&table, &key(1)).expect("read"), Some(row(1, 100)));
    let commits = client.table("sys_commits").expect("there");
    let first = Row::new(vec![
        Value::Int(1),
        Value::Int(1),
        Value::Timestamp(0),
        Value::Int(1),
        Value::Int(1),
        Value::Bytes(vec![]),
    ]);
    let refused = client.put(&commits, &first).expect_err("refused").to_string();
    assert!(refused.contains("has the commits of global transactions"), "{refused}");
    let plain = CreateTable { factor: Some(3), ..CreateTable::database("plain", "durable") };
    let plain = client.create_database(&plain).expect("made");
    assert!(client.begin(&plain).is_err());
}

/// The clients go on, and what was committed is there, while a node dies that leads partitions, or the
/// transaction manager, and comes back.
fn survives_the_end_of_nodes(policy: &str) {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, table) = bank(&mut client, policy);
    for number in [1, 2, 3] {
        for round in 0..20 {
            transfer(&mut client, &database, &table, (round % ACCOUNTS, (round * 7 + 1) % ACCOUNTS));
        }
        // Its last flushes may not have arrived.
        drop(client);
        cluster.kill(number);
        client = cluster.client();
        assert_eq!(total(&mut client, &database, &table), 100 * ACCOUNTS, "{policy}, without node {number}");
        for round in 0..20 {
            transfer(&mut client, &database, &table, (round % ACCOUNTS, (round * 5 + 1) % ACCOUNTS));
        }
        cluster.start_node(number);
        wait_for(&mut client, "level copies", |status| in_sync(status, 3));
        assert_eq!(total(&mut client, &database, &table), 100 * ACCOUNTS, "{policy}, with node {number}");
    }
    secured_everywhere(&mut client);
}

/// Waits until every partition has secured every commit.
fn secured_everywhere(client: &mut Client) {
    secured_as_told(client, |manager| manager.call(ManagerOp::Thresholds));
}

/// The same, until every copy of the manager's partition says it, and not its primary alone.
fn secured_at_all_copies(client: &mut Client) {
    for node in 1..=3 {
        secured_as_told(client, |manager| {
            let any = ReadLevel::Any { max_lag_ms: u64::MAX, min_lsn: Lsn::ZERO };
            manager.call(ManagerOp::Thresholds).at_node(NodeId(node)).at_level(any)
        });
    }
}

fn secured_as_told(client: &mut Client, call: impl Fn(Manager) -> Call) {
    let deadline = Instant::now() + LONG;
    let mut committed = None;
    loop {
        let manager = client.transaction_manager().expect("there");
        let mut ask = |call| match client.call(call).expect("answered").body {
            Body::Commit(CommitAnswer::Thresholds { partitions, .. }) => partitions,
            other => panic!("{other:?}"),
        };
        let newest = |partitions: &[Threshold]| partitions.iter().map(|one| one.newest).max();
        let committed = *committed.get_or_insert_with(|| newest(&ask(manager.call(ManagerOp::Thresholds))));
        let partitions = ask(call(manager));
        let level = newest(&partitions) >= committed;
        if level && partitions.iter().all(|partition| partition.secured == partition.newest) {
            assert!(partitions.iter().all(|partition| partition.newest > Position::ZERO));
            return;
        }
        assert!(Instant::now() < deadline, "{partitions:?}");
        client.poll(Duration::from_millis(20)).expect("goes on");
    }
}

#[test]
fn what_was_committed_survives_the_end_of_any_node() {
    survives_the_end_of_nodes("durable");
}

#[test]
fn what_lazy_partitions_lose_comes_from_the_managers_log() {
    survives_the_end_of_nodes("async");
}

/// A commit that names partitions which nobody could tell would be kept for good, and everything behind it.
#[test]
fn pr292_a_commit_names_partitions_of_one_global_database_that_are_there() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, table) = bank(&mut client, "async");
    let other = CreateTable { factor: Some(3), ..CreateTable::database("other", "async") };
    let other = client.create_global_database(&other).expect("made");
    let plain = CreateTable { factor: Some(3), ..CreateTable::database("plain", "durable") };
    let plain = client.create_database(&plain).expect("made");
    let manager = client.transaction_manager().expect("there");
    let commit = |client: &mut Client, partitions: &[PartitionId]| {
        let snapshot = client.begin(&database).expect("begun").snapshot();
        let (key, row) = table.encode(&row(1, 100)).expect("a row");
        let writes = partitions.iter().map(|partition| {
            let parts = vec![table.part(vec![RowOp::Put { key: key.clone(), row: row.clone() }])];
            PartitionWrites { partition: *partition, parts }
        });
        let asked = CommitRequest { snapshot, writes: writes.collect() };
        let call = manager.call(ManagerOp::Commit(asked)).within(Micros::from_millis(3_000));
        client.call(call).map(|_| ())
    };
    let first = database.partition();
    let refused = commit(&mut client, &[plain.partition()]).expect_err("another kind").to_string();
    assert!(refused.contains("none that global transactions write"), "{refused}");
    let refused = commit(&mut client, &[first, other.partition()]).expect_err("two databases").to_string();
    assert!(refused.contains("writes in one database"), "{refused}");
    let unknown = commit(&mut client, &[PartitionId(1_000_000)]).expect_err("no such number").to_string();
    assert!(unknown.contains("p1000000 is not known here"), "{unknown}");
    let (has, partition) = (Position::new(Term(1), Lsn(1)), plain.partition());
    let mend = manager.call(ManagerOp::Mend { partition, has, upto: has });
    let refused = client.call(mend).expect_err("nobody commits there").to_string();
    assert!(refused.contains("none that global transactions write"), "{refused}");
    client.admin(AdminCommand::DropDatabase("other".into())).expect("dropped");
    let deadline = Instant::now() + LONG;
    loop {
        let gone = commit(&mut client, &[other.partition()]);
        if let Err(ClientError::Failed { kind: FailKind::NotFound, .. }) = gone {
            break;
        }
        assert!(Instant::now() < deadline, "{gone:?}");
    }
    let own = table.partition_of(&table.key(&key(1)).expect("a key")).expect("a partition");
    commit(&mut client, &[own]).expect("what is there is written");
    secured_everywhere(&mut client);
}

/// Transactions that are open are their client's business: nobody keeps anything for them, and there is a
/// limit.
#[test]
fn open_transactions_are_bounded_and_one_that_never_ends_hinders_nobody() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, table) = bank(&mut client, "async");
    let mut slow = client.begin(&database).expect("begun");
    slow.put(&table, &row(1, 7)).expect("a row");
    let mut open: Vec<_> = (1..client::txn::MAX_OPEN).map(|_| slow.clone()).collect();
    let full = client.begin(&database).expect_err("too many");
    assert_eq!(full, ClientError::TooManyOpen(client::txn::MAX_OPEN));
    let mut other = cluster.client();
    transfer(&mut other, &database, &table, (1, 2));
    open.pop();
    drop(client.begin(&database).expect("there is room for one"));
    drop(open);
    // Nobody waits for it. What it reads in the end is what it read in the beginning, or too old; and it
    // commits nothing that others wrote.
    for _ in 0..20 {
        transfer(&mut other, &database, &table, (3, 4));
    }
    std::thread::sleep(Duration::from_secs(11));
    transfer(&mut other, &database, &table, (3, 4));
    let read = client.get_in(&slow, &table, &key(3));
    let old = matches!(read, Err(ClientError::Failed { kind: FailKind::TooOld, .. }));
    assert!(old || read == Ok(Some(row(3, 100))), "{read:?}");
    assert_eq!(client.commit(slow), Err(ClientError::Changed));
    assert_eq!(total(&mut other, &database, &table), 100 * ACCOUNTS);
}

/// Who wants it waits until the partitions have a commit on the disks of all copies, whatever their policy.
#[test]
fn a_client_may_wait_until_its_commits_are_secured() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, table) = bank(&mut client, "async");
    let written: std::collections::BTreeSet<PartitionId> = (0..ACCOUNTS)
        .map(|id| table.partition_of(&table.key(&key(id)).expect("a key")).expect("a partition"))
        .collect();
    let mut other = cluster.client();
    client.set_synchronous(true);
    for round in 0..20 {
        let mut transaction = client.begin(&database).expect("begun");
        (0..ACCOUNTS).try_for_each(|id| transaction.put(&table, &row(id, round))).expect("rows");
        let at = client.commit(transaction).expect("committed, and secured");
        for partition in &written {
            let state = flush_state(&mut other, database.id(), *partition).expect("it answers");
            assert!(state.secured >= at, "{partition} has secured {state:?}, and {at} was committed");
        }
    }
    client.put(&table, &row(1, 7)).expect("what commits by itself waits as well");
    client.wait_until_secured(Position::ZERO, written).expect("that is so at once");
    client.set_synchronous(false);
    transfer(&mut client, &database, &table, (1, 2));
}

/// Waits until the manager counts these as executing. A client says what it has open while it is used.
fn until_executing(
    (client, other): (&mut Client, &mut Client),
    wanted: impl Fn(&ExecutingTransactions) -> bool,
) {
    let deadline = Instant::now() + LONG;
    loop {
        client.poll(Duration::from_millis(20)).expect("goes on");
        let found = Transactions::ask(other).expect("answered").expect("there is a manager");
        let executing = found.stages.executing;
        if wanted(&executing) {
            return;
        }
        assert!(Instant::now() < deadline, "{executing:?}");
    }
}

#[test]
fn transactions_that_execute_are_counted_until_they_end() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, table) = bank(&mut client, "async");
    let mut other = cluster.client();
    let mut first = client.begin(&database).expect("begun");
    let second = client.begin(&database).expect("begun");
    first.put(&table, &row(1, 7)).expect("a row");
    until_executing((&mut client, &mut other), |executing| {
        (executing.transactions, executing.senders) == (2, 1) && executing.oldest_ms > Some(1_000)
    });
    drop(second);
    until_executing((&mut client, &mut other), |executing| executing.transactions == 1);
    client.commit(first).expect("committed");
    let none = ExecutingTransactions::default();
    until_executing((&mut client, &mut other), |executing| *executing == none);
    // Who ends without a word is forgotten.
    let mut third = cluster.client();
    let left = third.begin(&database).expect("begun");
    until_executing((&mut third, &mut other), |executing| executing.transactions == 1);
    drop((third, left));
    until_executing((&mut client, &mut other), |executing| *executing == none);
}

/// What all have secured is read at any of them, and where two of three nodes are gone at the third.
#[test]
fn pr322_what_is_secured_is_read_while_partitions_have_no_primary() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, table) = bank(&mut client, "durable");
    secured_at_all_copies(&mut client);
    let mut stale = client.begin_stale(&database).expect("begun");
    let refused = stale.put(&table, &row(1, 1)).expect_err("it writes nothing").to_string();
    assert!(refused.contains("writes nothing"), "{refused}");
    transfer(&mut client, &database, &table, (1, 2));
    let sum = |client: &mut Client, transaction: &client::Transaction| {
        let rows = client.scan_in(transaction, &table, Default::default()).expect("read");
        rows.iter().map(|row| if let Value::Int(one) = row.values[1] { one } else { 0 }).sum::<i64>()
    };
    assert_eq!(sum(&mut client, &stale), 100 * ACCOUNTS);
    assert_eq!(balance(&mut client, &stale, &table, 1), 100, "it does not see what came later");
    secured_at_all_copies(&mut client);
    let fresh = client.begin_stale(&database).expect("begun");
    assert_eq!((balance(&mut client, &fresh, &table, 1), sum(&mut client, &fresh)), (99, 100 * ACCOUNTS));
    cluster.kill(1);
    cluster.kill(2);
    assert_eq!(sum(&mut client, &fresh), 100 * ACCOUNTS, "the third node has all of it");
    let again = client.begin_stale(&database).expect("the manager's third copy says how far all are");
    assert_eq!(balance(&mut client, &again, &table, 1), 99);
}

/// A client that has told all partitions of its change goes on, and does not wait until something else comes.
#[test]
fn changes_of_tables_end_when_all_partitions_know_them() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, _) = bank(&mut client, "async");
    let begun = Instant::now();
    for number in 0..30 {
        let columns = vec![Column::new("id", ColumnType::Int)];
        let schema = Schema::new(columns, &["id"], 1, false).expect("valid");
        client.create_table_in(&database, &format!("t{number}"), schema).expect("made");
    }
    // One that waits does so for the client's whole timeout.
    assert!(begun.elapsed() < client.timeout(), "{:?}", begun.elapsed());
}

/// What is committed is never refused, so what does not fit is not committed.
#[test]
fn pr323_a_commit_fits_its_tables_and_a_change_of_them_has_a_timestamp_in_all_chains() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, table) = bank(&mut client, "durable");
    let mut other = cluster.client();
    let manager = client.transaction_manager().expect("there");
    let newest = |client: &mut Client| -> Vec<Position> {
        let answer = client.call(manager.call(ManagerOp::Thresholds)).expect("answered");
        match answer.body {
            wire::Body::Commit(wire::CommitAnswer::Thresholds { partitions, .. }) => {
                partitions.iter().map(|partition| partition.newest).collect()
            }
            body => panic!("{body:?}"),
        }
    };
    let (key_of, stored) = table.encode(&row(1, 100)).expect("a row");
    let own = table.partition_of(&key_of).expect("a partition");
    let elsewhere = database.partitions().find(|partition| *partition != own).expect("four of them");
    let parts = vec![table.part(vec![RowOp::Put { key: key_of, row: stored }])];
    let writes = vec![PartitionWrites { partition: elsewhere, parts }];
    let asked = CommitRequest { snapshot: client.begin(&database).expect("begun").snapshot(), writes };
    let refused = client.call(manager.call(ManagerOp::Commit(asked))).expect_err("not its own").to_string();
    assert!(refused.contains(&format!("lies in partition {own}")), "{refused}");
    // Others add a column: who began before does not write by the old ones.
    let mut slow = client.begin(&database).expect("begun");
    slow.put(&table, &row(1, 7)).expect("a row");
    let before = newest(&mut other);
    let wider = |known: &Table| {
        let mut columns = known.schema().columns().to_vec();
        columns.push(Column::new("note", ColumnType::Text));
        let schema = Schema::new(columns, &["id"], 1, false).expect("valid");
        Ok((known.name().to_string(), schema))
    };
    let named = other.table("bank.accounts").expect("there");
    other.alter_table_in(&named, wider).expect("wider");
    let behind = newest(&mut other);
    assert!(behind.iter().all(|at| *at == behind[0]) && behind[0] > before[0], "{before:?} {behind:?}");
    assert_eq!(client.commit(slow), Err(ClientError::Stale));
    client.put(&table, &row(1, 8)).expect("it looks again");
    let named = other.table("bank.accounts").expect("there");
    let found = other.get(&named, &key(1)).expect("read").expect("there");
    assert_eq!(found.values[1], Value::Int(8));
    // A table that is gone.
    let mut late = client.begin(&database).expect("begun");
    late.put(&named, &Row::new(vec![Value::Int(1), Value::Int(9), Value::Null])).expect("a row");
    other.drop_table_in(&named).expect("dropped");
    assert_eq!(client.commit(late), Err(ClientError::Stale));
    secured_everywhere(&mut client);
}

/// The transaction manager's primary is alone while it is asked for a commit. Whether the client is told then
/// or before its next transaction, it is told what has become of it, and nothing comes later.
#[test]
fn pr361_what_became_of_a_commit_is_known_before_the_next_transaction() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let (database, table) = bank(&mut client, "durable");
    secured_everywhere(&mut client);
    let manager = client.transaction_manager().expect("there");
    let leads = client.cluster_map().partition(manager.partition()).expect("known").primary.node;
    let snapshot = client.begin(&database).expect("begun").snapshot();
    let (key, stored) = table.encode(&row(1, 77)).expect("a row");
    let partition = table.partition_of(&key).expect("a partition");
    let parts = vec![table.part(vec![RowOp::Put { key, row: stored }])];
    let asked = CommitRequest { snapshot, writes: vec![PartitionWrites { partition, parts }] };
    let others: Vec<u32> = (1..=3).filter(|number| NodeId(*number) != leads).collect();
    others.iter().for_each(|number| cluster.kill(*number));
    let call = manager.call(ManagerOp::Commit(asked)).within(Micros::from_millis(300));
    let ticket = client.submit_in_transaction(Client::BLOCKING, call);
    let said = client.wait_for(ticket).expect("it ends").outcome;
    others.iter().for_each(|number| cluster.start_node(*number));
    wait_for(&mut client, "level copies", |status| in_sync(status, 3));
    let transaction = client.begin(&database).expect("begun");
    let resolved = client.resolved_commits();
    let committed = match (&said, &resolved[..]) {
        (Outcome::Ok(_), []) | (Outcome::Unknown(_), [Ok(_)]) => true,
        (Outcome::Refused(..) | Outcome::Failed(..), []) => false,
        (Outcome::Unknown(_), [Err(ClientError::Changed)]) => false,
        other => panic!("{other:?}"),
    };
    let expected = if committed { 77 } else { 100 };
    assert_eq!(balance(&mut client, &transaction, &table, 1), expected, "{said:?}, {resolved:?}");
    for _ in 0..5 {
        transfer(&mut client, &database, &table, (2, 3));
        let transaction = client.begin(&database).expect("begun");
        assert_eq!(balance(&mut client, &transaction, &table, 1), expected, "nothing comes later");
    }
    assert!(client.resolved_commits().is_empty(), "each is told once");
}
