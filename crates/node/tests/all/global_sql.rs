//! SQL in a database whose transactions reach over all partitions, on a cluster of this process.

use crate::common::Cluster;
use crate::common::talk::{Behind, Talk, service};
use std::thread;

fn within(service: &sql::Sql) -> Talk {
    Talk::within(service, "ledger").unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// A database of six partitions with accounts 1 to 60, of 100 each.
fn world() -> (Cluster, Behind) {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service)
        .good("CREATE DATABASE ledger WITH (partitions = 6, transactions = global, factor = 3)");
    let mut talk = within(&service);
    talk.good("CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL, note text)");
    talk.good("INSERT INTO account SELECT n, 100 FROM generate_series(1, 60) AS s(n)");
    (cluster, service)
}

#[test]
fn statements_and_transactions_write_rows_of_any_partitions() {
    let (_cluster, service) = world();
    let (mut one, mut two) = (within(&service), within(&service));
    assert_eq!(one.good("SELECT count(*), sum(balance) FROM account"), "60|6000");
    assert_eq!(one.good("SELECT count(*) FROM account"), "60");
    assert_eq!(one.good("SELECT balance FROM account WHERE id = 7"), "100");
    assert_eq!(one.good("UPDATE account SET balance = balance + 1 WHERE id <= 30"), "UPDATE 30");
    assert_eq!(two.good("UPDATE account SET balance = 5 WHERE id = 60 RETURNING id, balance"), "60|5");
    assert_eq!(two.good("DELETE FROM account WHERE id > 55"), "DELETE 5");
    assert_eq!(
        two.good("INSERT INTO account VALUES (56, 1), (57, 2), (58, 3) ON CONFLICT DO NOTHING"),
        "INSERT 0 3"
    );
    let upsert = "INSERT INTO account VALUES (58, 9), (59, 4) ON CONFLICT (id) DO UPDATE SET balance = excluded.balance";
    assert_eq!(one.good(upsert), "INSERT 0 2");
    assert_eq!(
        two.good("SELECT string_agg(balance::text, ' ' ORDER BY id) FROM account WHERE id > 55"),
        "1 2 9 4"
    );
    for text in ["BEGIN", "UPDATE account SET balance = balance - 10 WHERE id = 1", "SAVEPOINT s"] {
        one.good(text);
    }
    one.good("UPDATE account SET balance = 0");
    assert_eq!(one.good("SELECT sum(balance), count(*) FROM account"), "0|59");
    one.good("ROLLBACK TO s");
    one.good("UPDATE account SET balance = balance + 10 WHERE id = 2");
    one.good("DELETE FROM account WHERE id = 3");
    one.good("INSERT INTO account VALUES (1000, 7, 'new')");
    assert_eq!(one.good("SELECT count(*) FROM account WHERE id IN (1, 2, 3, 1000)"), "3");
    assert_eq!(one.good("SELECT count(*) FROM account"), "59");
    assert_eq!(two.good("SELECT balance FROM account WHERE id IN (1, 2) ORDER BY id"), "101\n101");
    one.good("COMMIT");
    assert_eq!(two.good("SELECT balance FROM account WHERE id IN (1, 2, 3, 1000) ORDER BY id"), "91\n111\n7");
    let lines: String = (2_000..2_700).map(|id| format!("{id}\t1\tcopied\n")).collect();
    assert_eq!(two.copy("COPY account FROM STDIN", &lines), "COPY 700");
    let said = two.copy("COPY account FROM STDIN", "3000\t1\tx\n2001\t1\tx\n");
    assert!(said.starts_with("23505"), "{said}");
    one.good("BEGIN");
    assert_eq!(one.copy("COPY account (id, balance) FROM STDIN", "3000\t1\n3001\t1\n"), "COPY 2");
    assert_eq!(one.good("SELECT count(*) FROM account WHERE id >= 3000"), "2");
    assert_eq!(two.good("SELECT count(*) FROM account WHERE id >= 3000"), "0");
    one.good("COMMIT");
    assert_eq!(two.good("SELECT count(*) FROM account WHERE id >= 2000"), "702");
    one.good("CREATE TABLE entry (account int, at serial, amount int, PRIMARY KEY (account, at))");
    one.good("INSERT INTO entry (account, amount) SELECT id, balance FROM account WHERE id < 10");
    assert_eq!(two.good("SELECT count(*), sum(amount) FROM entry JOIN account ON account = id"), "8|808");
    one.good("ALTER TABLE entry ADD COLUMN memo text");
    one.good("UPDATE entry SET memo = 'm' WHERE account = 1");
    assert_eq!(two.good("SELECT count(*) FROM entry WHERE memo = 'm'"), "1");
    one.good("CREATE TABLE heap (v int)");
    one.good("INSERT INTO heap SELECT n FROM generate_series(1, 20) AS s(n)");
    assert_eq!(two.good("SELECT count(DISTINCT v) FROM heap"), "20");
    one.good("DROP TABLE heap");
}

#[test]
fn rows_are_found_by_indexes_and_keep_conditions() {
    let (_cluster, service) = world();
    let (mut one, mut two) = (within(&service), within(&service));
    one.good("CREATE INDEX by_balance ON account (balance)");
    one.good("CREATE TABLE item (id int PRIMARY KEY, kind text, n int CHECK (n > 0))");
    one.good("CREATE INDEX by_kind ON item (kind, n)");
    one.good("INSERT INTO item SELECT n, 'k' || n % 5, n FROM generate_series(1, 200) AS s(n)");
    one.good("UPDATE account SET balance = id WHERE id > 40");
    for (question, expected) in [
        ("SELECT count(*) FROM account WHERE balance = 100", "40"),
        ("SELECT id FROM account WHERE balance = 50", "50"),
        ("SELECT count(*), sum(n) FROM item WHERE kind = 'k3'", "40|4020"),
        ("SELECT count(*) FROM item WHERE kind = 'k3' AND n < 20", "4"),
    ] {
        assert_eq!(two.good(question), expected, "{question}");
    }
    let explained = two.good("EXPLAIN SELECT id FROM account WHERE balance = 50");
    assert!(explained.contains("by_balance"), "{explained}");
    one.good("BEGIN");
    one.good("DELETE FROM item WHERE kind = 'k3' AND n < 100");
    one.good("INSERT INTO item VALUES (1000, 'k3', 7)");
    assert_eq!(one.good("SELECT count(*) FROM item WHERE kind = 'k3'"), "21");
    assert_eq!(two.good("SELECT count(*) FROM item WHERE kind = 'k3'"), "40");
    one.good("COMMIT");
    assert_eq!(two.good("SELECT count(*) FROM item WHERE kind = 'k3'"), "21");
    one.refused(&[
        ("INSERT INTO item VALUES (2000, 'x', 0)", "23514", "item_n_check"),
        ("UPDATE item SET n = -n", "23514", "item_n_check"),
    ]);
    // An index has room for what a commit brings, or the commit is refused.
    one.good("CREATE TABLE wide (id int PRIMARY KEY, a int, b int)");
    (0..12).for_each(|n| drop(one.good(&format!("CREATE INDEX wide{n} ON wide (a, b)"))));
    let much = one.say("INSERT INTO wide SELECT n, n, n FROM generate_series(1, 40000) AS s(n)");
    assert!(much.starts_with("54000"), "{much}");
    one.good("INSERT INTO wide SELECT n, n, n FROM generate_series(1, 6000) AS s(n)");
    assert_eq!(one.good("UPDATE wide SET a = a + 1"), "UPDATE 6000");
    assert_eq!(two.good("SELECT count(*), min(id) FROM wide WHERE a = 500"), "1|499");
    // A snapshot stays what it was, also through an index that goes.
    let mut slow = within(&service);
    slow.good("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(slow.good("SELECT a FROM wide WHERE id = 1"), "2");
    one.good("UPDATE wide SET b = -1");
    two.good("DROP INDEX by_kind");
    assert_eq!(one.good("SELECT count(*) FROM item WHERE kind = 'k3'"), "21");
    assert_eq!(slow.good("SELECT count(*) FROM wide WHERE b = -1"), "0");
    // A table that goes while a transaction writes it.
    slow.good("ROLLBACK");
    slow.good("BEGIN");
    slow.good("UPDATE item SET n = n + 1 WHERE id = 1");
    two.good("DROP TABLE item");
    let said = slow.say("COMMIT");
    assert!(said.starts_with("40001"), "{said}");
}

#[test]
fn the_first_committer_wins_and_snapshots_stay() {
    let (_cluster, service) = world();
    let (mut one, mut two) = (within(&service), within(&service));
    one.good("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(one.good("SELECT balance FROM account WHERE id = 1"), "100");
    two.good("UPDATE account SET balance = balance + 1");
    assert_eq!(
        one.good("SELECT sum(balance) FROM account"),
        "6000",
        "also of partitions that it had not read"
    );
    let said = one.say("UPDATE account SET balance = 0 WHERE id = 2");
    assert_eq!(said, "UPDATE 1");
    let said = one.say("COMMIT");
    assert!(said.starts_with("40001"), "{said}");
    assert_eq!(two.good("SELECT balance FROM account WHERE id = 2"), "101");
    // Under READ COMMITTED each statement sees what is committed, and no increment is lost.
    one.good("BEGIN");
    one.good("UPDATE account SET balance = balance + 1 WHERE id = 3");
    two.good("UPDATE account SET balance = balance + 1 WHERE id = 4");
    assert_eq!(one.good("UPDATE account SET balance = balance + 1 WHERE id = 4 RETURNING balance"), "103");
    one.good("COMMIT");
    assert_eq!(two.good("SELECT balance FROM account WHERE id IN (3, 4) ORDER BY id"), "102\n103");
    // What is locked is not written by others.
    one.good("BEGIN");
    assert_eq!(one.good("SELECT balance FROM account WHERE id = 5 FOR UPDATE"), "101");
    one.good("UPDATE account SET balance = 1 WHERE id = 6");
    let mut client = _cluster.client();
    let account = client.table("ledger.account").expect("there");
    let row = types::data::Row::new(vec![
        types::data::Value::Int(5),
        types::data::Value::Int(0),
        types::data::Value::Null,
    ]);
    client.put(&account, &row).expect("written past this node's turns");
    let said = one.say("COMMIT");
    assert!(said.starts_with("40001"), "{said}");
    assert_eq!(two.good("SELECT balance FROM account WHERE id IN (5, 6) ORDER BY id"), "0\n101");
    let wrong = [
        ("INSERT INTO account VALUES (1, 1)", "23505", "account_pkey"),
        ("INSERT INTO account VALUES (777, 1), (777, 2)", "23505", "account_pkey"),
        ("ALTER TABLE account ADD UNIQUE (balance)", "23505", "account_balance_key"),
        ("ALTER TABLE account ADD FOREIGN KEY (balance) REFERENCES account", "23503", "account_balance_fkey"),
        ("ALTER TABLE account ADD CHECK (balance < 0)", "23514", "account_balance_check"),
        ("CREATE UNIQUE INDEX ON account (balance)", "23505", ""),
        (
            "BEGIN; INSERT INTO account VALUES (778, 1); CREATE TABLE t (id int PRIMARY KEY)",
            "25001",
            "written",
        ),
    ];
    one.refused(&wrong);
    Talk::new(&service).good("DROP DATABASE IF EXISTS nothing");
    let mut outside = Talk::new(&service);
    let wrong = [
        (
            "CREATE DATABASE x WITH (partitions = 2, transactions = global, partition_by = '(a)')",
            "22023",
            "partition_by",
        ),
        ("CREATE DATABASE x WITH (partitions = 2, transactions = always)", "22023", "\"transactions\""),
        ("CREATE DATABASE x WITH (partitions = 2)", "22023", "needs partition_by"),
    ];
    outside.refused(&wrong);
}

#[test]
fn transfers_of_many_sessions_conserve_the_total() {
    let (_cluster, service) = world();
    let service = &service;
    thread::scope(|scope| {
        for writer in 0..4_i64 {
            scope.spawn(move || {
                let mut talk = within(service);
                let mut done = 0;
                for number in 0..100_i64 {
                    let (from, to) = ((writer * 7 + number) % 60 + 1, (writer * 13 + number * 5) % 60 + 1);
                    talk.good("BEGIN");
                    let taken = format!("UPDATE account SET balance = balance - 1 WHERE id = {from}");
                    let given = format!("UPDATE account SET balance = balance + 1 WHERE id = {to}");
                    let said = [talk.say(&taken), talk.say(&given), talk.say("COMMIT")];
                    match said.iter().find(|said| said.starts_with("40")) {
                        None => done += i64::from(said[2] == "COMMIT"),
                        Some(_) => drop(talk.say("ROLLBACK")),
                    }
                }
                assert!(done > 30, "{done} of 100 transfers were committed");
            });
        }
        scope.spawn(move || {
            let mut talk = within(service);
            for _ in 0..40 {
                assert_eq!(talk.good("SELECT sum(balance) FROM account"), "6000");
            }
        });
    });
    assert_eq!(within(service).good("SELECT sum(balance), count(*) FROM account"), "6000|60");
}

#[test]
fn states_of_transactions_are_a_view_and_what_is_secured_is_a_snapshot() {
    let (_cluster, service) = world();
    let (mut one, mut two) = (within(&service), within(&service));
    let states = "SELECT string_agg(state, ' ') FROM understudy.transactions";
    assert_eq!(one.good(states), "executing aborted committed flushed persisted");
    let level = "SELECT count(*) FROM understudy.transaction_partitions WHERE state <> 'level'";
    let deadline = std::time::Instant::now() + crate::common::LONG;
    while one.good(level) != "0" {
        assert!(
            std::time::Instant::now() < deadline,
            "{}",
            one.good("TABLE understudy.transaction_partitions")
        );
    }
    let counted = "SELECT count(*), min(cardinality(held_back_by)) FROM understudy.transactions \
                   WHERE transactions = 0 AND state <> 'executing'";
    assert_eq!(one.good(counted), "3|0", "nothing was aborted, and all is secured");
    assert_eq!(one.good("SELECT count(DISTINCT partition) FROM understudy.transaction_partitions"), "6");
    one.good("BEGIN ISOLATION LEVEL REPEATABLE READ");
    one.good("SET TRANSACTION SNAPSHOT 'secured'");
    assert_eq!(one.good("SELECT sum(balance), count(*) FROM account"), "6000|60");
    two.good("UPDATE account SET balance = 0");
    assert_eq!(one.good("SELECT balance FROM account WHERE id = 7"), "100");
    assert_eq!(one.good("SELECT sum(balance) FROM account"), "6000");
    let said = one.say("UPDATE account SET balance = 1");
    assert!(said.starts_with("25006"), "{said}");
    one.say("ROLLBACK");
    assert_eq!(one.good("SELECT sum(balance) FROM account"), "0");
    let wrong = [
        ("BEGIN; SET TRANSACTION SNAPSHOT 'secured'", "0A000", "isolation level"),
        (
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '00000003-1'",
            "22023",
            "identifier",
        ),
    ];
    one.refused(&wrong);
    one.good("BEGIN ISOLATION LEVEL REPEATABLE READ");
    one.good("SELECT 1 FROM account");
    let said = one.say("SET TRANSACTION SNAPSHOT 'secured'");
    assert!(said.starts_with("25001"), "{said}");
    one.say("ROLLBACK");
}

/// `remote_apply` waits until lazy partitions have a commit on the disks of all copies: statements,
/// transactions and COPY. What is less is so in any case, as the manager has it.
#[test]
fn a_session_may_wait_until_its_commits_are_secured() {
    use client::view::transactions::{flush_state, owner, thresholds};
    let (cluster, service) = world();
    Talk::new(&service).good(
        "CREATE DATABASE lazy WITH (partitions = 3, transactions = global, policy = async, factor = 3)",
    );
    let mut talk = Talk::within(&service, "lazy").unwrap_or_else(|failure| panic!("{failure:?}"));
    talk.good("CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)");
    for less in ["off", "local", "remote_write", "on"] {
        talk.good(&format!("SET synchronous_commit = {less}"));
        talk.good("INSERT INTO account SELECT n, 100 FROM generate_series(1, 60) AS s(n)");
        talk.good("DELETE FROM account");
    }
    talk.good("SET synchronous_commit = remote_apply");
    let mut client = cluster.client();
    let mut secured = |what: &str| {
        for one in thresholds(&mut client).expect("answered").0 {
            let (table, name) = owner(&client, one.partition).expect("there");
            if name == "lazy" {
                let state = flush_state(&mut client, table, one.partition).expect("answered");
                assert!(state.secured >= one.newest, "{what}: {one:?} has secured {state:?}");
            }
        }
    };
    talk.good("INSERT INTO account SELECT n, 100 FROM generate_series(1, 60) AS s(n)");
    secured("a statement");
    for text in
        ["BEGIN", "UPDATE account SET balance = balance - 1", "UPDATE account SET balance = 7", "COMMIT"]
    {
        talk.good(text);
    }
    secured("a transaction");
    talk.good("BEGIN");
    talk.good("SET LOCAL synchronous_commit = off");
    talk.good("DELETE FROM account WHERE id > 30");
    talk.good("COMMIT");
    assert_eq!(talk.good("SHOW synchronous_commit"), "remote_apply");
    talk.good("DELETE FROM account");
    secured("a deletion");
}

/// A gateway says once a second what its sessions have open, and a statement that asks is itself one of them.
#[test]
fn open_transactions_of_sessions_are_counted_as_executing() {
    let (_cluster, service) = world();
    let (mut one, mut two) = (within(&service), within(&service));
    one.good("BEGIN");
    one.good("SELECT sum(balance) FROM account");
    let old = "SELECT count(*) FROM understudy.transactions \
               WHERE state = 'executing' AND transactions >= 1 AND senders >= 1 AND oldest_ms > 1500";
    let mut until = |wanted: &str| {
        let deadline = std::time::Instant::now() + crate::common::LONG;
        while two.good(old) != wanted {
            assert!(std::time::Instant::now() < deadline, "{}", two.good("TABLE understudy.transactions"));
        }
    };
    until("1");
    one.good("COMMIT");
    until("0");
}

/// Two sessions of different nodes take the same number of a row, and insert a row with it: who is too late
/// is told to begin again, and not that the row is there.
#[test]
fn who_was_overtaken_is_told_so_and_not_what_follows_from_it() {
    let (cluster, service) = world();
    let mut one = within(&service);
    one.good("CREATE TABLE orders (id int PRIMARY KEY, note text UNIQUE)");
    let mut client = cluster.client();
    let account = client.table("ledger.account").expect("there");
    let row = [1, 101].map(types::data::Value::Int).into_iter().chain([types::data::Value::Null]);
    let taken = types::data::Row::new(row.collect());
    for (at, insert) in ["INSERT INTO orders VALUES (100, 'a')", "INSERT INTO orders VALUES (7, 'n100')"]
        .into_iter()
        .enumerate()
    {
        one.good("UPDATE account SET balance = 100 WHERE id = 1");
        one.good("BEGIN");
        let take = "UPDATE account SET balance = balance + 1 WHERE id = 1 RETURNING balance - 1";
        assert_eq!(one.good(take), "100");
        // Another one, whom this node's turns do not hold up, takes the same number and has used it.
        client.put(&account, &taken).expect("written past this node's turns");
        if at == 0 {
            within(&service).good("INSERT INTO orders VALUES (100, 'n100')");
        }
        let said = match one.say(insert) {
            said if said.starts_with("INSERT") => one.say("COMMIT"),
            said => said,
        };
        assert!(said.starts_with("40001"), "{insert}: {said}");
        one.say("ROLLBACK");
    }
    // Where nothing was taken, it is there.
    one.good("BEGIN");
    one.good("UPDATE account SET balance = 5 WHERE id = 2");
    assert!(one.say("INSERT INTO orders VALUES (100, 'b')").starts_with("23505"));
    one.good("ROLLBACK");
}

/// Adds an amount to one account and takes it from another; fails if there is none.
const MOVE: &str = r#"CREATE PROCEDURE move(source bigint, target bigint, amount bigint)
RETURNS TABLE (balance bigint) LANGUAGE wasm AS $$
(module
  (import "arg" "push source" (func $source))
  (import "arg" "push target" (func $target))
  (import "arg" "int amount" (func $amount (result i64)))
  (import "value" "int" (func $number (param i64)))
  (import "table:account" "get" (func $get (result i32)))
  (import "table:account" "int balance" (func $balance (result i64)))
  (import "table:account" "set balance" (func $set_balance))
  (import "table:account" "push balance" (func $push_balance))
  (import "table:account" "put" (func $put))
  (import "call" "result" (func $result))
  (import "call" "fail" (func $fail (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "there is no such account")
  (func $add (param $by i64)
    (if (i32.eqz (call $get)) (then (call $fail (i32.const 0) (i32.const 24))))
    (call $number (i64.add (call $balance) (local.get $by)))
    (call $set_balance)
    (call $put))
  (func (export "run")
    (call $target)
    (call $add (call $amount))
    (call $source)
    (call $add (i64.sub (i64.const 0) (call $amount)))
    (call $push_balance)
    (call $result)))
$$"#;

/// The first so many accounts from one on.
const FIRST: &str = r#"CREATE PROCEDURE first(id bigint, many bigint)
RETURNS TABLE (id bigint, balance bigint) LANGUAGE wasm READ ONLY AS $$
(module
  (import "arg" "push id" (func $id))
  (import "arg" "int many" (func $many (result i64)))
  (import "table:account" "range" (func $range (param i32 i32) (result i32)))
  (import "table:account" "next" (func $next (result i32)))
  (import "table:account" "push id" (func $push_id))
  (import "table:account" "push balance" (func $push_balance))
  (import "call" "result" (func $result))
  (func (export "run")
    (call $id)
    (drop (call $range (i32.const 0) (i32.wrap_i64 (call $many))))
    (block $end
      (loop $on
        (br_if $end (i32.eqz (call $next)))
        (call $push_id)
        (call $push_balance)
        (call $result)
        (br $on)))))
$$"#;

/// A procedure's rows lie in any partitions: it runs where the session is, as a transaction of its own.
#[test]
fn procedures_run_over_all_partitions() {
    let (_cluster, service) = world();
    let (mut one, mut two) = (within(&service), within(&service));
    one.good(MOVE);
    one.good(FIRST);
    assert_eq!(one.good("CALL move(1, 2, 30)"), "70");
    assert_eq!(two.good("CALL move(3, 1, 5)"), "95");
    assert_eq!(two.good("CALL first(1, 4)"), "1|75\n2|130\n3|95\n4|100");
    assert_eq!(two.good("CALL first(59, 4)"), "59|100\n60|100");
    let failed = one.say("CALL move(61, 1, 5)");
    assert!(failed.starts_with("P0001"), "{failed}");
    assert_eq!(one.good("SELECT balance FROM account WHERE id = 1"), "75", "nothing of it was done");
    // Within a transaction it sees what that has written, and is undone with it.
    one.good("BEGIN");
    one.good("INSERT INTO account VALUES (61, 0)");
    assert_eq!(one.good("CALL move(61, 1, 5)"), "-5");
    assert_eq!(one.good("CALL first(60, 4)"), "60|100\n61|-5");
    one.good("DELETE FROM account WHERE id = 60");
    assert_eq!(one.good("CALL first(59, 2)"), "59|100\n61|-5");
    one.good("ROLLBACK");
    assert_eq!(two.good("CALL first(59, 4)"), "59|100\n60|100");
    // Calls at one moment on the same rows are all made.
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut talk = within(&service);
            scope.spawn(move || {
                for account in 10..30 {
                    talk.good(&format!("CALL move({account}, 9, 1)"));
                }
            });
        }
    });
    assert_eq!(two.good("SELECT balance FROM account WHERE id = 9"), "180");
    assert_eq!(two.good("SELECT sum(balance) FROM account"), "6000");
    // What it has looked up must be so when it commits.
    one.good("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(one.good("CALL move(40, 41, 1)"), "99");
    let mut client = _cluster.client();
    let account = client.table("ledger.account").expect("there");
    let row = [40, 0].map(types::data::Value::Int).into_iter().chain([types::data::Value::Null]);
    client.put(&account, &types::data::Row::new(row.collect())).expect("written past this node's turns");
    let said = one.say("COMMIT");
    assert!(said.starts_with("40001"), "{said}");
    one.good("DROP PROCEDURE move");
    two.refused(&[("CALL move(1, 2, 3)", "42883", "move")]);
}
