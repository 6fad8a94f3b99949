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
