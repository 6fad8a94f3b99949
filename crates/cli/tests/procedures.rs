//! Procedures from the command line, on a cluster of real processes.

mod common;

use client::{Client, Database, Options, Table};
use common::Cluster;
use std::path::Path;
use std::time::{Duration, Instant};
use types::data::kind::{Language, Procedure as Definition};
use types::data::{Column, ColumnType, Schema, Value};
use types::{NodeId, Ship};
use wire::control::{AdminCommand, CreateTable};
use wire::{Body, Op, ReadLevel};

#[test]
fn procedures_are_made_called_listed_and_dropped() {
    let cluster = Cluster::start();
    cluster.json(&["database", "create", "bank"]);
    let columns = ["--columns", "id:int,balance:int", "--key", "id"];
    let create = ["table", "create", "accounts", "--database", "bank"];
    cluster.json(&[&create[..], &columns[..]].concat());
    for row in [["id=1", "balance=100"], ["id=2", "balance=5"]] {
        cluster.ok(&[&["put", "bank.accounts"], &row[..]].concat());
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/transfer.wat");
    let file = file.to_str().expect("a path");
    let parameters = ["--parameters", "source:int,target:int,amount:int", "--returns", "left:int"];
    let create = [&["procedure", "create", file, "--database", "bank"], &parameters[..]].concat();
    let made = cluster.json(&create);
    assert_eq!((&made["procedure"], &made["language"]), (&"transfer".into(), &"wasm".into()), "{made}");
    let again = cluster.run(&create);
    assert_eq!((again.status, again.sentence()), (1, "there is a `transfer` in database bank already"));
    let called = cluster.json(&["call", "transfer", "1", "2", "30", "--database", "bank"]);
    assert_eq!(called["left"], 70, "{called}");
    assert_eq!(cluster.json(&["get", "bank.accounts", "2"])["balance"], 35);
    let failed = cluster.run(&["call", "transfer", "1", "2", "1000", "--database", "bank"]);
    assert_eq!(failed.status, 1);
    assert!(failed.sentence().contains("there is not enough money"), "{failed:?}");
    assert_eq!(cluster.run(&["call", "transfer", "1", "--database", "bank"]).status, 2);
    assert_eq!(cluster.run(&["call", "other", "--database", "bank"]).status, 3);
    let wrong = [&["procedure", "create", file, "--database", "bank", "--name", "other"][..]].concat();
    let refused = cluster.run(&wrong);
    assert!(refused.status != 0 && refused.sentence().contains("it imports `arg`"), "{refused:?}");
    let listed = cluster.json(&["procedure", "list", "--database", "bank"]);
    assert_eq!(listed["parameters"], "source:int,target:int,amount:int", "{listed}");
    assert!(!cluster.ok(&["table", "list", "--database", "bank"]).contains("transfer"));
    // A backup has it, and what is restored of it calls it on its own tables.
    cluster.ok(&["backup", "create", "b", "--timeout", "30s"]);
    cluster.ok(&["backup", "restore", "b", "--databases", "bank", "--as", "copy", "--timeout", "60s"]);
    let called = cluster.json(&["call", "transfer", "2", "1", "5", "--database", "copy"]);
    assert_eq!(called["left"], 30, "{called}");
    assert_eq!(cluster.json(&["get", "bank.accounts", "2"])["balance"], 35);
    cluster.ok(&["procedure", "drop", "transfer", "--database", "bank"]);
    assert_eq!(cluster.run(&["call", "transfer", "1", "2", "30", "--database", "bank"]).status, 3);
}

/// Where transactions are global, a call runs as one, at the client.
#[test]
fn procedures_of_a_global_database_are_called_over_its_partitions() {
    let cluster = Cluster::start();
    cluster.json(&["database", "create", "bank", "--partitions", "4", "--transactions", "global"]);
    let columns = ["--columns", "id:int,balance:int", "--key", "id"];
    let create = ["table", "create", "accounts", "--database", "bank"];
    cluster.json(&[&create[..], &columns[..]].concat());
    for id in ["id=1", "id=2", "id=3", "id=4", "id=5"] {
        cluster.ok(&["put", "bank.accounts", id, "balance=100"]);
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let transfer = examples.join("transfer.wat");
    let transfer = transfer.to_str().expect("a path");
    let parameters = ["--parameters", "source:int,target:int,amount:int", "--returns", "left:int"];
    cluster.json(&[&["procedure", "create", transfer, "--database", "bank"], &parameters[..]].concat());
    let total = examples.join("total.wat");
    let total = total.to_str().expect("a path");
    let returns = ["--returns", "total:int", "--read-only"];
    cluster.json(&[&["procedure", "create", total, "--database", "bank"], &returns[..]].concat());
    for target in ["2", "3", "4", "5"] {
        let called = cluster.json(&["call", "transfer", "1", target, "20", "--database", "bank"]);
        assert!(called["left"].as_i64().expect("a number") < 100, "{called}");
    }
    let failed = cluster.run(&["call", "transfer", "1", "2", "1000", "--database", "bank"]);
    assert!(failed.status == 1 && failed.sentence().contains("there is not enough money"), "{failed:?}");
    assert_eq!(cluster.json(&["get", "bank.accounts", "1"])["balance"], 20);
    assert_eq!(cluster.json(&["get", "bank.accounts", "5"])["balance"], 120);
    assert_eq!(cluster.json(&["call", "total", "--database", "bank"])["total"], 500);
}

#[test]
fn a_database_that_ships_calls_has_both_in_every_log() {
    let mut cluster = Cluster::start();
    let create = ["database", "create", "bank", "--ship", "calls"];
    let refused = cluster.run(&[&create[..], &["--standby", "cold"]].concat());
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.sentence().contains("does not go with cold standbys"), "{refused:?}");
    assert_eq!(cluster.json(&create)["ship"], "calls");
    assert!(cluster.ok(&["database", "list"]).contains("calls"));
    let cold = cluster.run(&["database", "alter", "bank", "--standby", "cold"]);
    assert!(cold.status == 2 && cold.sentence().contains("cold standbys"), "{cold:?}");
    let columns = ["--columns", "id:int,balance:int", "--key", "id"];
    cluster.json(&[&["table", "create", "accounts", "--database", "bank"], &columns[..]].concat());
    for row in [["id=1", "balance=100"], ["id=2", "balance=5"]] {
        cluster.ok(&[&["put", "bank.accounts"], &row[..]].concat());
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/transfer.wat");
    let create = ["procedure", "create", file.to_str().expect("a path"), "--database", "bank"];
    let parameters = ["--parameters", "source:int,target:int,amount:int", "--returns", "left:int"];
    cluster.json(&[&create[..], &parameters[..]].concat());
    let call = |amount: &str| cluster.json(&["call", "transfer", "1", "2", amount, "--database", "bank"]);
    for left in [70, 40, 10] {
        assert_eq!(call("30")["left"], left);
    }
    cluster.ok(&["database", "alter", "bank", "--ship", "effects", "--timeout", "30s"]);
    assert_eq!(cluster.json(&["database", "list"])["ship"], "effects");
    let file = cluster.file();
    let nodes = file["nodes"].as_array().expect("nodes");
    let dirs: Vec<String> =
        nodes.iter().map(|node| node["data_dir"].as_str().expect("a path").into()).collect();
    cluster.kill_everything();
    for dir in &dirs {
        let dumped = cluster.ok(&["log", "dump", "--data-dir", dir, "--json"]);
        let lines = dumped.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let calls: Vec<serde_json::Value> =
            lines.filter(|line: &serde_json::Value| line["kind"] == "call").collect();
        // What each came to is there: without it the line would have no number of rows.
        assert_eq!(calls.iter().filter(|line| line["rows"].is_u64()).count(), 3, "{calls:?}");
    }
}

const SPIN: &str = r#"(module
  (import "arg" "push id" (func $id))
  (import "arg" "push n" (func $push_n))
  (import "arg" "int n" (func $n (result i64)))
  (import "table:counters" "put" (func $put))
  (func (export "run") (local $left i64)
    (local.set $left (call $n))
    (block $end
      (loop $on
        (br_if $end (i64.eqz (local.get $left)))
        (local.set $left (i64.sub (local.get $left) (i64.const 1)))
        (br $on)))
    (call $id) (call $push_n) (call $put)))"#;

/// Three processes with three limits of time. Whoever leads says what becomes of a call that one of them
/// would stop and another one not: what it says is the outcome everywhere, and nobody is taken for damaged
/// (F21).
#[test]
fn nodes_with_different_limits_keep_their_replicas_equal() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = local::ClusterOptions::new(dir.path().join("cluster"));
    options.binary = env!("CARGO_BIN_EXE_understudy").into();
    // Who was not run for a moment is not taken out: the end says that all three are in sync.
    options.settings.push(("timing.suspect_ms".into(), "1000".into()));
    let mut cluster = local::Cluster::start(options).expect("starts");
    let limits = [(1, "1"), (2, "1000"), (3, "0")];
    for (node, ms) in limits {
        cluster.restart_with(NodeId(node), &[("procedures.time_ms", ms)]).expect("starts");
        cluster.settle(NodeId(node), Duration::from_secs(20)).expect("runs");
    }
    let options =
        Options { controllers: cluster.controllers(), secret: local::secret(), ..Options::default() };
    let mut client = Client::connect(Options { wait: true, timeout: Duration::from_secs(30), ..options })
        .expect("connects");
    let create = CreateTable { ship: Ship::Calls, factor: Some(3), ..CreateTable::database("bank", "sync") };
    let database = client.create_database(&create).expect("creates");
    let int = |name: &str| Column::new(name, ColumnType::Int);
    let schema = Schema::new(vec![int("id"), int("n")], &["id"], 1, false).expect("valid");
    let counters = client.create_table_in(&database, "counters", schema).expect("creates");
    let spin = Definition {
        language: Language::Wasm,
        source: SPIN.into(),
        results: Vec::new(),
        read_only: false,
        checked: false,
    };
    let spin = client.create_procedure(&database, "spin", &["id", "n"].map(int), spin).expect("made");
    let mut outcomes = Vec::new();
    for (leader, _) in limits {
        lead(&mut client, &database, leader);
        for id in 0..20 {
            let call = |n: i64| vec![Value::Int(id + 100 * i64::from(leader)), Value::Int(n)];
            client.call_procedure(&spin, call(10)).expect("a short one is done");
        }
        for (id, n) in [(50, 2_000_000), (51, 20_000_000)] {
            let id = id + 100 * i64::from(leader);
            let called = client.call_procedure(&spin, vec![Value::Int(id), Value::Int(n)]);
            let there = client.get(&counters, &[Value::Int(id)]).expect("reads");
            assert_eq!(called.is_ok(), there.is_some(), "{called:?}");
            outcomes.push(called.is_ok());
        }
        alike(&mut client, &counters);
    }
    // A millisecond is too short for what a second is enough for; the longest takes more steps than any may.
    assert_eq!(outcomes, [false, false, true, false, true, false]);
}

/// Has this node lead the database.
fn lead(client: &mut Client, database: &Database, node: u32) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let record = client.cluster_map().partition(database.partition()).cloned().expect("known");
        if record.primary.node == NodeId(node) && record.in_sync.len() == 3 {
            return;
        }
        assert!(Instant::now() < deadline, "node {node} does not lead: {record:?}");
        let to = Some(NodeId(node));
        let _ = client.admin(AdminCommand::Switchover { partition: Some(database.partition()), to });
        client.poll(Duration::from_millis(100)).expect("polls");
    }
}

/// All three replicas have the same rows, and none was taken out.
fn alike(client: &mut Client, table: &Table) {
    let there = client.digest(table).expect("reads")[0];
    let level = ReadLevel::Any { max_lag_ms: 10_000, min_lsn: there.lsn };
    for node in 1..=3 {
        let read = client.replica_read(table, NodeId(node), there.partition, Op::Digest, level);
        assert_eq!(read.expect("it has it").body, Body::Number(there.digest), "node {node}");
    }
    let record = client.cluster_map().partition(there.partition).expect("known");
    assert_eq!(record.in_sync.len(), 3, "{record:?}");
}
