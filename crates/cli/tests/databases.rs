//! Databases from the command line, on a cluster of real processes.

mod common;

use common::Cluster;

#[test]
fn tables_of_a_database_are_made_used_changed_and_dropped() {
    let cluster = Cluster::start();
    let bank = cluster.json(&["database", "create", "bank"]);
    assert_eq!((&bank["partitions"], &bank["factor"]), (&1.into(), &3.into()), "{bank}");
    for name in ["accounts", "history"] {
        let create =
            ["table", "create", name, "--database", "bank", "--columns", "id:int,v:text", "--key", "id"];
        let made = cluster.json(&create);
        assert_eq!(made["table"], format!("bank.{name}"), "{made}");
    }
    let again = cluster.run(&[
        "table",
        "create",
        "history",
        "--database",
        "bank",
        "--columns",
        "k:int",
        "--key",
        "k",
    ]);
    assert_eq!((again.status, again.sentence()), (1, "table 'bank.history' exists already"));
    cluster.ok(&["put", "bank.accounts", "id=1", "v=one"]);
    cluster.ok(&["put", "bank.accounts", "id=3", "v=three"]);
    cluster.ok(&["put", "bank.history", "id=2", "v=two"]);
    // A scan without an end stops at the end of its table.
    assert_eq!(cluster.ok(&["scan", "bank.accounts", "--json"]).lines().count(), 2);
    assert_eq!(cluster.ok(&["scan", "bank.history", "--json"]).lines().count(), 1);
    assert_eq!(cluster.ok(&["count", "bank.accounts"]).trim(), "2");
    cluster.ok(&["table", "alter", "bank.accounts", "--add-column", "note:text"]);
    cluster.ok(&["put", "bank.accounts", "id=1", "v=one", "note=new"]);
    let row = cluster.json(&["get", "bank.accounts", "3"]);
    assert_eq!((&row["v"], &row["note"]), (&"three".into(), &serde_json::Value::Null), "{row}");
    let policy = cluster.run(&["table", "alter", "bank.accounts", "--policy", "sync"]);
    assert_eq!(policy.status, 2, "{policy:?}");
    cluster.ok(&["database", "alter", "bank", "--policy", "sync"]);
    assert!(cluster.ok(&["database", "list"]).contains("sync"));
    cluster.ok(&["dev", "kill", "1"]);
    assert_eq!(cluster.ok(&["count", "bank.accounts", "--timeout", "30s"]).trim(), "2");
    cluster.ok(&["table", "drop", "bank.history", "--yes", "--timeout", "30s"]);
    let listed = cluster.ok(&["table", "list", "--database", "bank", "--timeout", "30s"]);
    assert!(listed.contains("bank.accounts") && !listed.contains("bank.history"), "{listed}");
    let gone = cluster.run(&["get", "bank.history", "2"]);
    assert_eq!(gone.status, 3, "{gone:?}");
    let backup = cluster.run(&["backup", "create", "away"]);
    assert!(backup.sentence().contains("cannot be backed up yet"), "{backup:?}");
    let kept = cluster.run(&["database", "drop", "bank"]);
    assert_eq!(kept.status, 5, "{kept:?}");
    assert!(kept.sentence().contains("1 table and all its rows"), "{kept:?}");
    cluster.ok(&["database", "drop", "bank", "--yes"]);
    assert_eq!(cluster.run(&["count", "bank.accounts"]).status, 3);
}
