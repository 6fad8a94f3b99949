//! Procedures from the command line, on a cluster of real processes.

mod common;

use common::Cluster;
use std::path::Path;

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
