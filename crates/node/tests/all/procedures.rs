//! Procedures on whole clusters: made once, called where the rows are, and the same behind a failover.

use crate::common::talk::{Talk, service, service_with};
use crate::common::{Cluster, LONG, in_sync, wait_for};
use client::{Client, ClientError, Database, LaneId, Procedure};
use procedure::{Builtin, Limits, Runtime, Shape, Tables};
use sql::Programs;
use std::sync::Arc;
use types::Micros;
use types::data::kind::{Language, Procedure as Definition};
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::procedure::{Failure, FailureKind};
use wire::control::CreateTable;

const TRANSFER: &str = include_str!("../../../../docs/examples/transfer.wat");
const TOTAL: &str = include_str!("../../../../docs/examples/total.wat");
const SPIN: &str = r#"(module (func (export "run") (loop $on (br $on))))"#;

fn int(name: &str) -> Column {
    Column::new(name, ColumnType::Int)
}

fn ints(numbers: &[i64]) -> Vec<Value> {
    numbers.iter().copied().map(Value::Int).collect()
}

fn bank(client: &mut Client) -> Database {
    let database = client.create_database(&CreateTable::database("bank", "durable")).expect("creates");
    let schema = Schema::new(vec![int("id"), int("balance")], &["id"], 1, false).expect("valid");
    let accounts = client.create_table_in(&database, "accounts", schema).expect("creates");
    for id in 1..=20 {
        let row = Row::new(ints(&[id, 100]));
        client.call(accounts.put(&row).expect("a row")).expect("writes");
    }
    database
}

fn wasm(source: &str, returns: &[&str], read_only: bool) -> Definition {
    let results = returns.iter().map(|name| int(name)).collect();
    Definition { language: Language::Wasm, source: source.into(), results, read_only, checked: false }
}

fn transfer(client: &mut Client, database: &Database) -> Procedure {
    let parameters = ["source", "target", "amount"].map(int);
    client
        .create_procedure(database, "transfer", &parameters, wasm(TRANSFER, &["left"], false))
        .expect("made")
}

#[test]
fn procedures_are_called_where_the_rows_are_and_survive_a_node() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let database = bank(&mut client);
    let transfer = transfer(&mut client, &database);
    let total =
        client.create_procedure(&database, "total", &[], wasm(TOTAL, &["total"], true)).expect("made");
    for at in 0..100 {
        let (source, target) = (1 + at % 20, 1 + (at * 7 + 3) % 20);
        let _ = client.call_procedure(&transfer, ints(&[source, target, 10])).expect("it is done");
    }
    let summed = |client: &mut Client| client.call_procedure(&total, Vec::new()).expect("reads");
    assert_eq!(summed(&mut client), [ints(&[2000])]);
    let failed = client.call_procedure(&transfer, ints(&[1, 2, 100_000])).expect_err("too much");
    assert!(matches!(&failed, ClientError::Call(why) if why.kind == FailureKind::Raised), "{failed}");
    assert_eq!(failed.to_string(), "the call failed and nothing of it was done: there is not enough money");
    let status = wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let partition = status.partitions.iter().find(|record| record.id == database.partition());
    cluster.kill(partition.expect("known").primary.node.0);
    assert_eq!(summed(&mut client), [ints(&[2000])]);
    let left = client.call_procedure(&transfer, ints(&[5, 6, 1])).expect("it is done");
    assert_eq!(left.len(), 1);
    assert_eq!(summed(&mut client), [ints(&[2000])]);
}

#[test]
fn what_loops_is_stopped_and_who_waits_behind_it_is_served() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let database = bank(&mut client);
    let transfer = transfer(&mut client, &database);
    let spin = client.create_procedure(&database, "spin", &[], wasm(SPIN, &[], false)).expect("made");
    for _ in 0..20 {
        let failed = client.call_procedure(&spin, Vec::new()).expect_err("it never ends");
        // Which of both limits comes first depends on how fast it runs.
        let limits = [FailureKind::Steps, FailureKind::Time];
        assert!(matches!(&failed, ClientError::Call(why) if limits.contains(&why.kind)), "{failed}");
        client.call_procedure(&transfer, ints(&[1, 2, 1])).expect("it is done");
    }
    let refused =
        client.create_procedure(&database, "floats", &[], wasm("(module (func f64.nop))", &[], false));
    assert!(refused.is_err());
    let names: Vec<String> =
        client.procedures_of(&database).expect("reads").iter().map(|one| one.name().into()).collect();
    assert_eq!(names, ["spin", "transfer"]);
    client.drop_procedure(&spin).expect("drops");
    assert!(matches!(client.procedure(&database, "spin"), Err(ClientError::NoProcedure(_))));
    let gone = client.call_procedure(&spin, Vec::new()).expect_err("it is gone");
    assert!(matches!(gone, ClientError::NoProcedure(_)), "{gone}");
}

#[test]
fn a_database_of_several_partitions_is_called_where_the_first_arguments_are() {
    let cluster = Cluster::start();
    let mut client = cluster.ready();
    let mut create = CreateTable::database("wide", "durable");
    create.partitions = 4;
    create.schema = types::database::catalog_schema_by(&[int("w")]).expect("valid");
    let database = client.create_database(&create).expect("creates");
    let schema = Schema::new(vec![int("w"), int("n")], &["w"], 1, false).expect("valid");
    let stocks = client.create_table_in(&database, "stocks", schema).expect("creates");
    let source = r#"(module
        (import "arg" "push w" (func $w))
        (import "arg" "push other" (func $other))
        (import "value" "int" (func $int (param i64)))
        (import "table:stocks" "get" (func $get (result i32)))
        (import "table:stocks" "put" (func $put))
        (func (export "run")
          (call $w) (call $int (i64.const 5)) (call $put)
          (call $other) (drop (call $get))))"#;
    let wrong = client.create_procedure(&database, "touch", &[], wasm("(module)", &[], false));
    assert!(wrong.expect_err("refused").to_string().contains("by which rows of `wide` are spread"));
    let parameters = [int("w"), int("other")];
    let touch =
        client.create_procedure(&database, "touch", &parameters, wasm(source, &[], false)).expect("made");
    for w in 0..20 {
        client.call_procedure(&touch, ints(&[w, w])).expect("it is done");
    }
    assert_eq!(client.count(&stocks).expect("counts"), 20);
    assert_eq!(client.get(&stocks, &[Value::Int(7)]).expect("reads"), Some(Row::new(ints(&[7, 5]))));
    let elsewhere = client.call_procedure(&touch, ints(&[100, 101])).expect_err("refused");
    assert!(
        matches!(&elsewhere, ClientError::Call(why) if why.kind == FailureKind::Elsewhere),
        "{elsewhere}"
    );
    assert_eq!(client.get(&stocks, &[Value::Int(100)]).expect("reads"), None, "nothing of it was done");
}

/// What the page teaches, statement by statement: behind each stands what is said to it, if that is said.
#[test]
fn the_page_on_procedures_is_right() {
    const PAGE: &str = include_str!("../../../../docs/procedures.md");
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let mut bank = Talk::within(&service, "bank").unwrap_or_else(|failure| panic!("{failure:?}"));
    let blocks = PAGE.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let (mut statement, mut said, mut compared) = (String::new(), String::new(), 0);
    for line in blocks.flat_map(str::lines) {
        if let Some(expected) = line.strip_prefix("-- ") {
            assert!(
                said.starts_with(expected) || said.replace(": ", " ").starts_with(expected),
                "{expected}: {said}"
            );
            compared += 1;
            continue;
        }
        statement.push_str(line);
        statement.push('\n');
        let open = statement.matches("$$").count() % 2 == 1;
        if line.trim_end().ends_with(';') && !open {
            said = bank.say(&std::mem::take(&mut statement));
        }
    }
    assert_eq!(compared, 9);
}

#[test]
fn procedures_are_made_and_called_in_sql() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE bank");
    let mut bank = Talk::within(&service, "bank").unwrap_or_else(|failure| panic!("{failure:?}"));
    bank.good("CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint)");
    bank.good("INSERT INTO accounts VALUES (1, 100), (2, 5)");
    let create = format!(
        "CREATE PROCEDURE transfer(source bigint, target bigint, amount bigint) RETURNS TABLE (left_over bigint) \
         LANGUAGE wasm AS $${TRANSFER}$$"
    );
    assert_eq!(bank.good(&create), "CREATE PROCEDURE");
    assert!(bank.say(&create).starts_with("42P07"));
    assert_eq!(bank.good(&create.replace("CREATE", "CREATE OR REPLACE")), "CREATE PROCEDURE");
    assert_eq!(bank.good("CALL transfer(1, 2, 10 * 3)"), "70");
    assert_eq!(bank.good("SELECT id, balance FROM accounts ORDER BY id"), "1|70\n2|35");
    for (refused, code) in [
        ("CALL transfer(1, 2)", "42883"),
        ("CALL transfer(1, 2, 1000)", "P0001"),
        ("CALL transfer(1, 2, 'x')", "22P02"),
        ("CALL nothing()", "42883"),
        ("BEGIN; CALL transfer(1, 2, 1000)", "P0001"),
        ("SELECT * FROM transfer", "42P01"),
        ("CREATE PROCEDURE p() LANGUAGE basic AS 'x'", "42704"),
        ("CREATE PROCEDURE p() LANGUAGE wasm AS '(module)'", "42P13"),
        ("DROP PROCEDURE nothing", "42883"),
    ] {
        let said = bank.say(refused);
        assert!(said.starts_with(code), "{refused}: {said}");
        bank.say("ROLLBACK");
    }
    let total =
        format!("CREATE PROCEDURE total() RETURNS TABLE (sum bigint) LANGUAGE wasm READ ONLY AS $${TOTAL}$$");
    bank.good(&total);
    bank.good("SET default_transaction_read_only = on");
    assert_eq!(bank.good("CALL total()"), "105");
    assert!(bank.say("CALL transfer(1, 2, 1)").starts_with("25006"));
    bank.good("SET default_transaction_read_only = off");
    assert_eq!(bank.good("DROP PROCEDURE IF EXISTS total, nothing"), "DROP PROCEDURE");
    assert!(bank.say("CALL total()").starts_with("42883"));
    // A table that a procedure names is gone: the call says so.
    bank.good("DROP TABLE accounts");
    let said = bank.say("CALL transfer(1, 2, 1)");
    assert!(said.starts_with("42P01") && said.contains("accounts"), "{said}");
}

/// Calls are under way when the primary dies: each that was told to be done was made once, and none twice.
#[test]
fn calls_that_a_failover_interrupts_are_made_once() {
    let mut cluster = Cluster::start();
    let mut client = cluster.ready();
    let database = client.create_database(&CreateTable::database("bank", "durable")).expect("creates");
    let schema = Schema::new(vec![int("id"), int("n")], &["id"], 1, false).expect("valid");
    let counters = client.create_table_in(&database, "counters", schema).expect("creates");
    let results = vec![int("n")];
    let (language, source) = (Language::Builtin, "count".to_string());
    let count = Definition { language, source, results, read_only: false, checked: false };
    let count = client.create_procedure(&database, "count", &["id", "by"].map(int), count).expect("made");
    let status = wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let partition = status.partitions.iter().find(|record| record.id == database.partition());
    let leader = partition.expect("known").primary.node.0;
    let (lanes, each) = (8, 100);
    let (mut given, mut ended, mut killed) = (Vec::new(), 0, false);
    for lane in 0..lanes {
        for _ in 0..each {
            client.submit(LaneId(lane), count.call(ints(&[1, 1])).expect("fits"));
        }
    }
    while ended < lanes * each {
        for completed in client.poll(LONG).expect("turns") {
            ended += 1;
            let answer = completed.outcome.into_result().expect("it is done, sooner or later");
            given.extend(count.rows(&answer).expect("a row"));
        }
        if ended > 50 && !killed {
            cluster.kill(leader);
            killed = true;
        }
    }
    let mut numbers: Vec<i64> =
        given.iter().map(|row| if let Value::Int(n) = row[0] { n } else { 0 }).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=i64::from(lanes * each)), "each call has seen all before it");
    let row = client.get(&counters, &[Value::Int(1)]).expect("reads");
    assert_eq!(row, Some(Row::new(ints(&[1, i64::from(lanes * each)]))));
}

/// A bank in SQL with two accounts, `transfer` and `total`.
fn sql_bank(service: &sql::Sql) -> Talk {
    Talk::new(service).good("CREATE DATABASE bank");
    let mut bank = Talk::within(service, "bank").unwrap_or_else(|failure| panic!("{failure:?}"));
    bank.good("CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint)");
    bank.good("INSERT INTO accounts VALUES (1, 100), (2, 5)");
    bank.good(&format!(
        "CREATE PROCEDURE transfer(source bigint, target bigint, amount bigint) RETURNS TABLE (left_over bigint) \
         LANGUAGE wasm AS $${TRANSFER}$$"
    ));
    bank.good(&format!(
        "CREATE PROCEDURE total() RETURNS TABLE (sum bigint) LANGUAGE wasm READ ONLY AS $${TOTAL}$$"
    ));
    bank
}

const ALL: &str = "SELECT id, balance FROM accounts ORDER BY id";

#[test]
fn a_call_in_a_transaction_is_a_statement_of_it() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut bank = sql_bank(&service);
    let mut other = Talk::within(&service, "bank").unwrap_or_else(|failure| panic!("{failure:?}"));
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        bank.good("TRUNCATE accounts; INSERT INTO accounts VALUES (1, 100), (2, 5)");
        bank.good(&format!("BEGIN ISOLATION LEVEL {level}"));
        bank.good("INSERT INTO accounts VALUES (3, 40)");
        assert_eq!(bank.good("CALL total()"), "145", "{level}: it sees what the transaction has written");
        assert_eq!(bank.good("CALL transfer(3, 2, 10)"), "30");
        assert_eq!(bank.good(ALL), "1|100\n2|15\n3|30");
        assert_eq!(other.good(ALL), "1|100\n2|5", "nobody else sees it");
        bank.good("SAVEPOINT s");
        assert_eq!(bank.good("CALL transfer(1, 3, 100)"), "0");
        bank.good("DELETE FROM accounts WHERE id = 2");
        assert_eq!(bank.good("CALL total()"), "130");
        bank.good("ROLLBACK TO s");
        assert_eq!(bank.good("CALL total()"), "145");
        let failed = bank.say("CALL transfer(1, 2, 1000)");
        assert!(failed.starts_with("P0001") && failed.contains("not enough money"), "{failed}");
        assert!(bank.say("CALL total()").starts_with("25P02"), "the transaction has failed");
        bank.good("ROLLBACK TO s");
        assert_eq!(bank.good("CALL transfer(1, 2, 1)"), "99");
        bank.good("COMMIT");
        assert_eq!(other.good(ALL), "1|99\n2|16\n3|30", "{level}");
    }
    // Tables that the transaction has made, and several statements of one message.
    bank.good("BEGIN");
    bank.good("DROP TABLE accounts");
    bank.good("CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint)");
    bank.good("INSERT INTO accounts VALUES (1, 7), (2, 0)");
    assert_eq!(bank.good("CALL transfer(1, 2, 3)"), "4");
    bank.good("COMMIT");
    assert_eq!(other.good(ALL), "1|4\n2|3");
    bank.good("UPDATE accounts SET balance = 10; CALL transfer(1, 2, 5)");
    assert_eq!(other.good(ALL), "1|5\n2|15");
    bank.say("INSERT INTO accounts VALUES (9, 1); CALL transfer(1, 2, 500)");
    assert_eq!(other.good(ALL), "1|5\n2|15", "all of a message, or nothing");
    // A transaction that only reads.
    bank.good("BEGIN READ ONLY");
    assert_eq!(bank.good("CALL total()"), "20");
    assert!(bank.say("CALL transfer(1, 2, 1)").starts_with("25006"));
    bank.good("ROLLBACK");
}

#[test]
fn a_call_in_a_transaction_meets_what_others_commit() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    // Sessions behind another gateway know nothing of this one's turns.
    let elsewhere = crate::common::talk::service(&cluster);
    let mut bank = sql_bank(&service);
    let mut other = Talk::within(&elsewhere, "bank").unwrap_or_else(|failure| panic!("{failure:?}"));
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        // A row that the call has written.
        bank.good(&format!("BEGIN ISOLATION LEVEL {level}; CALL transfer(1, 2, 10)"));
        other.good("UPDATE accounts SET balance = balance + 1 WHERE id = 2");
        assert!(bank.say("COMMIT").starts_with("40001"), "{level}");
        // One that another call has written, outside of a transaction.
        bank.good(&format!("BEGIN ISOLATION LEVEL {level}; CALL transfer(1, 2, 10)"));
        other.good("CALL transfer(1, 2, 1)");
        assert!(bank.say("COMMIT").starts_with("40001"), "{level}");
        other.good("CALL transfer(2, 1, 1)");
    }
    bank.good("UPDATE accounts SET balance = 100");
    // What it sees: others' commits, or the state at which the transaction began to read.
    bank.good("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(bank.good("CALL total()"), "200");
    other.good("INSERT INTO accounts VALUES (3, 1)");
    assert_eq!(bank.good("CALL total()"), "200");
    bank.good("COMMIT");
    bank.good("BEGIN");
    assert_eq!(bank.good("CALL total()"), "201");
    other.good("INSERT INTO accounts VALUES (4, 1)");
    assert_eq!(bank.good("CALL total()"), "202");
    bank.good("COMMIT");
    // A row that it has only looked up is locked: what it has written follows from it.
    let copies = r#"(module
        (import "value" "int" (func $int (param i64)))
        (import "table:accounts" "get" (func $get (result i32)))
        (import "table:accounts" "int balance" (func $balance (result i64)))
        (import "table:accounts" "put" (func $put))
        (func (export "run")
          (call $int (i64.const 1)) (drop (call $get))
          (call $int (i64.const 50)) (call $int (call $balance)) (call $put)))"#;
    bank.good(&format!("CREATE PROCEDURE copies() LANGUAGE wasm AS $${copies}$$"));
    bank.good("BEGIN; CALL copies()");
    other.good("UPDATE accounts SET balance = 7 WHERE id = 1");
    assert!(bank.say("COMMIT").starts_with("40001"));
    // A row that it puts and that came meanwhile is none that it has seen.
    bank.good("BEGIN; CALL copies()");
    other.good("INSERT INTO accounts VALUES (50, 0)");
    assert!(bank.say("COMMIT").starts_with("40001"));
    bank.good("BEGIN; CALL copies(); COMMIT");
    assert_eq!(other.good("SELECT balance FROM accounts WHERE id = 50"), "7");
}

#[test]
fn a_call_in_a_transaction_has_the_limits_of_any_other() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let steps = Limits { time: Micros::ZERO, steps: 100_000, ..Limits::default() };
    let time = Limits { time: Micros::from_millis(1), ..Limits::default() };
    let gives = r#"(module
        (import "value" "int" (func $int (param i64)))
        (import "call" "result" (func $result))
        (func (export "run") (loop $on (call $int (i64.const 1)) (call $result) (br $on))))"#;
    let with = |limits: Limits| service_with(&cluster, Programs { limits, ..Programs::default() });
    let usual = service(&cluster);
    let mut bank = sql_bank(&usual);
    bank.good(&format!("CREATE PROCEDURE spin() LANGUAGE wasm AS $${SPIN}$$"));
    bank.good(&format!("CREATE PROCEDURE gives() RETURNS TABLE (n bigint) LANGUAGE wasm AS $${gives}$$"));
    for (limits, procedure, says) in [
        (steps, "spin", "57014 the call takes more steps"),
        (time, "spin", "57014 the call runs for longer than 1 ms"),
        (Limits::default(), "gives", "54000 the call gives more than 65536 bytes"),
    ] {
        let service = with(limits);
        drop(Talk::new(&service));
        let mut bank = Talk::within(&service, "bank").unwrap_or_else(|failure| panic!("{failure:?}"));
        bank.good("BEGIN; UPDATE accounts SET balance = 77 WHERE id = 1; SAVEPOINT s");
        let said = bank.say(&format!("CALL {procedure}()"));
        assert!(said.starts_with(says), "{said}");
        bank.good("ROLLBACK TO s");
        assert_eq!(bank.good("CALL total()"), "82", "the session goes on");
        bank.good("ROLLBACK");
    }
}

#[test]
fn a_call_that_runs_too_long_is_stopped_by_its_primary() {
    let cluster = Cluster::with(1, &[("procedures.time_ms", "1")]);
    let mut client = cluster.ready();
    let database = client.create_database(&CreateTable::database("bank", "sync")).expect("creates");
    let spin = client.create_procedure(&database, "spin", &[], wasm(SPIN, &[], false)).expect("made");
    let failed = client.call_procedure(&spin, Vec::new()).expect_err("it never ends");
    assert!(matches!(&failed, ClientError::Call(why) if why.kind == FailureKind::Time), "{failed}");
    assert!(failed.to_string().contains("raise procedures.time_ms"), "{failed}");
}

/// Doubles a balance: a program of whoever builds a node of their own.
struct Double;

impl Builtin for Double {
    fn tables(&self) -> Vec<String> {
        vec!["accounts".into()]
    }

    fn fault(&self, parameters: &[Column], _: &[Column], _: &[Shape]) -> Option<String> {
        (parameters.len() != 1).then(|| "`double` is (id bigint)".into())
    }

    fn call(&self, tables: &mut Tables<'_>, arguments: &[Value]) -> Result<(), Failure> {
        let Some(mut row) = tables.get(0, arguments.to_vec())? else {
            return Err(Failure::new(FailureKind::Raised, "there is no such account"));
        };
        if let Value::Int(balance) = &mut row.values[1] {
            *balance *= 2;
            let doubled = *balance;
            tables.put(0, row)?;
            tables.give(vec![Value::Int(doubled)])?;
        }
        Ok(())
    }
}

#[test]
fn an_embedder_compiles_a_program_into_its_node() {
    let doubles = || vec![("double".to_string(), Arc::new(Double) as Arc<dyn Builtin>)];
    let mut cluster = Cluster::with(1, &[]);
    drop(cluster.ready());
    let service =
        service_with(&cluster, Programs { runtime: Runtime::with(doubles()), ..Programs::default() });
    Talk::new(&service).good("CREATE DATABASE bank");
    let mut bank = Talk::within(&service, "bank").unwrap_or_else(|failure| panic!("{failure:?}"));
    bank.good("CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint)");
    bank.good("INSERT INTO accounts VALUES (1, 100)");
    let create =
        "CREATE PROCEDURE double(id bigint) RETURNS TABLE (balance bigint) LANGUAGE builtin AS 'double'";
    let refused = bank.say(create);
    assert!(refused.starts_with("42P13") && refused.contains("no program `double`"), "{refused}");
    cluster.stop(1);
    let config = cluster.node_config(1).with_programs(doubles());
    let node = understudy_node::node::start(config).expect("the node starts");
    bank.good(create);
    assert_eq!(bank.good("CALL double(1)"), "200");
    assert_eq!(bank.good("CALL double(1)"), "400");
    assert!(bank.say("CALL double(2)").starts_with("P0001"));
    // In a transaction it runs at the gateway, like any other.
    bank.good("BEGIN; INSERT INTO accounts VALUES (2, 3)");
    assert_eq!(bank.good("CALL double(2)"), "6");
    assert_eq!(bank.good("CALL double(1)"), "800");
    bank.good("COMMIT");
    assert_eq!(bank.good(ALL), "1|800\n2|6");
    // What only SQL may write it may not write either.
    bank.good("DROP TABLE accounts");
    bank.good("CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint CHECK (balance < 1000))");
    bank.good("INSERT INTO accounts VALUES (1, 600)");
    for call in ["CALL double(1)", "BEGIN; CALL double(1)"] {
        let said = bank.say(call);
        assert!(said.starts_with("22000") && said.contains("CHECK"), "{call}: {said}");
        bank.say("ROLLBACK");
    }
    node.stopper().ask(understudy_node::stop::Stop::Gently);
    node.wait().expect("it ends well");
}

#[test]
fn procedures_are_in_the_catalogs() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut bank = sql_bank(&service);
    let shown = r#"SELECT n.nspname, p.proname, pg_catalog.pg_get_function_result(p.oid),
        pg_catalog.pg_get_function_arguments(p.oid),
        CASE p.prokind WHEN 'a' THEN 'agg' WHEN 'w' THEN 'window' WHEN 'p' THEN 'proc' ELSE 'func' END
        FROM pg_catalog.pg_proc p LEFT JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
        WHERE pg_catalog.pg_function_is_visible(p.oid) AND n.nspname <> 'pg_catalog'
        AND n.nspname <> 'information_schema' ORDER BY 1, 2, 4"#;
    let transfer =
        "public|transfer|TABLE(left_over bigint)|IN source bigint, IN target bigint, IN amount bigint|proc";
    assert_eq!(bank.good(shown), format!("public|total|TABLE(sum bigint)||proc\n{transfer}"));
    let routines = "SELECT routine_name, routine_type, external_language, sql_data_access \
        FROM information_schema.routines ORDER BY 1";
    assert_eq!(bank.good(routines), "total|PROCEDURE|WASM|READS\ntransfer|PROCEDURE|WASM|MODIFIES");
    let languages = "SELECT l.lanname FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang \
        WHERE p.oid = 'transfer'::regproc::oid";
    assert_eq!(bank.good(languages), "wasm");
    // What a definition is shown as makes the same one again.
    let defined = "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'transfer'";
    let text = bank.good(defined);
    bank.good("DROP PROCEDURE transfer");
    assert_eq!(bank.good(defined), "SELECT 0");
    bank.good(&text);
    assert_eq!(bank.good(defined), text);
    assert_eq!(bank.good("CALL transfer(1, 2, 30)"), "70");
}

#[test]
fn a_call_in_a_transaction_lies_in_one_partition_like_its_other_rows() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service).good("CREATE DATABASE wide WITH (partitions = 4, partition_by = '(w)', factor = 3)");
    let mut wide = Talk::within(&service, "wide").unwrap_or_else(|failure| panic!("{failure:?}"));
    wide.good("CREATE TABLE stocks (w bigint, i bigint, n bigint, PRIMARY KEY (w, i))");
    let source = r#"(module
        (import "arg" "push w" (func $w))
        (import "arg" "push other" (func $other))
        (import "value" "int" (func $int (param i64)))
        (import "table:stocks" "put" (func $put))
        (import "table:stocks" "range_back" (func $back (param i32 i32) (result i32)))
        (import "table:stocks" "next" (func $next (result i32)))
        (import "table:stocks" "push i" (func $i))
        (import "call" "result" (func $result))
        (func (export "run")
          (call $other) (call $int (i64.const 2)) (call $int (i64.const 20)) (call $put)
          (call $w) (drop (call $back (i32.const 1) (i32.const 2)))
          (drop (call $next)) (call $i) (call $result)
          (drop (call $next)) (call $i) (call $result)))"#;
    wide.good(&format!(
        "CREATE PROCEDURE fill(w bigint, other bigint) RETURNS TABLE (i bigint) LANGUAGE wasm AS $${source}$$"
    ));
    for w in 0..8 {
        wide.good(&format!("INSERT INTO stocks VALUES ({w}, 0, 0)"));
        wide.good(&format!("BEGIN; INSERT INTO stocks VALUES ({w}, 1, 10)"));
        assert_eq!(
            wide.good(&format!("CALL fill({w}, {w})")),
            "2\n1",
            "what the transaction has written too"
        );
        let said = wide.say(&format!("SAVEPOINT s; CALL fill({w}, {})", w + 100));
        assert!(said.starts_with("0A000") && said.contains("`stocks`"), "{said}");
        wide.good("ROLLBACK TO s; COMMIT");
    }
    assert_eq!(wide.good("SELECT count(*), sum(n) FROM stocks"), "24|240");
    // Rows of two statements lie in one partition, and a call is a statement.
    wide.good("BEGIN; INSERT INTO stocks VALUES (0, 7, 0)");
    let refused = (1..8).map(|w| wide.say(&format!("SAVEPOINT s; CALL fill({w}, {w})")));
    let refused: Vec<String> = refused.filter(|said| said.starts_with("0A000")).collect();
    assert!(!refused.is_empty(), "all eight lie in one of four partitions");
    wide.say("ROLLBACK");
    assert_eq!(wide.good("SELECT count(*) FROM stocks"), "24");
}
