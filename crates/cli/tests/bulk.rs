//! `load --bulk` on real clusters: sorted on disk, staged at every copy, whole or not at all, also where a
//! node dies in the middle.

mod common;

use common::{Cluster, eventually, signal, understudy};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

const ROWS: u64 = 60_000;

/// A file of rows with these names, in an order that is not that of their keys; every tenth key comes twice.
fn rows(name: &str, rows: u64) -> String {
    let mut text = String::from("id,name,n\n");
    for index in 0..rows {
        let id = index * 7_919 % rows;
        if id % 10 == 3 {
            text.push_str(&format!("{id},before,0\n"));
        }
        text.push_str(&format!("{id},{name} {},{}\n", "x".repeat(60), id * 3));
    }
    text
}

/// All copies are in sync and have the same rows.
fn all_equal(cluster: &Cluster) {
    cluster.in_sync();
    let report = eventually("copies that can be compared", || {
        let ran = cluster.run(&["scrub", "--json", "--timeout", "30s"]);
        (ran.status == 0).then(|| ran.object()).filter(|report| report["unread"] == serde_json::json!([]))
    });
    assert_eq!(report["damage"], serde_json::json!([]), "{report}");
    assert!(report["compared"].as_u64() >= Some(4), "{report}");
}

fn count(cluster: &Cluster) -> u64 {
    cluster.ok(&["count", "t"]).trim().parse().expect("a number")
}

fn create(cluster: &Cluster) {
    let columns = "id:int,name:text,n:int";
    cluster.ok(&["table", "create", "t", "--columns", columns, "--key", "id", "--partitions", "4"]);
}

/// How many rows have this name.
fn named(cluster: &Cluster, name: &str) -> u64 {
    let filter = format!("name={name} {}", "x".repeat(60));
    cluster
        .ok(&["scan", "t", "--where", &filter, "--limit", "1000000"])
        .lines()
        .filter(|line| line.contains(name))
        .count() as u64
}

#[test]
fn a_bulk_load_sorts_on_disk_and_replaces_what_was_there() {
    let cluster = Cluster::start();
    create(&cluster);
    cluster.write("first.csv", &rows("first", ROWS));
    cluster.write("second.csv", &rows("second", ROWS / 2));
    let report = cluster.json(&["load", "first.csv", "--table", "t", "--bulk", "--sort-memory", "1MB"]);
    assert_eq!(
        (report["rows"].as_u64(), report["replaced"].as_u64()),
        (Some(ROWS), Some(ROWS / 10)),
        "{report}"
    );
    assert!(report["spilled_bytes"].as_u64() > Some(1 << 20), "{report}");
    assert_eq!((&report["copies"], &report["installed"]), (&3.into(), &true.into()), "{report}");
    let parts = report["partitions"].as_array().expect("a list");
    assert!(parts.len() == 4 && parts.iter().all(|part| part["state"] == "loaded" && part["lsn"].is_u64()));
    assert_eq!(parts.iter().filter_map(|part| part["rows"].as_u64()).sum::<u64>(), ROWS);
    assert_eq!(count(&cluster), ROWS);
    // Into a table with rows, with an index and writes on top.
    cluster.ok(&["index", "create", "t", "n", "--name", "by_n", "--wait"]);
    cluster.ok(&["load", "second.csv", "--table", "t", "--bulk"]);
    cluster.ok(&["put", "t", "id=1", "name=third", "n=-1"]);
    assert_eq!(count(&cluster), ROWS);
    let found = cluster.ok(&["get", "t", "2"]);
    assert!(found.contains("second") && found.contains('6'), "{found}");
    assert!(cluster.ok(&["get", "t", "1"]).contains("third"));
    assert!(cluster.ok(&["get", "t", &(ROWS - 1).to_string()]).contains("first"));
    eventually("the index is there again", || {
        let listed = cluster.json(&["index", "list", "t"]);
        listed.to_string().contains("ready").then_some(())
    });
    let by_index = cluster.ok(&["scan", "t", "--where", "n=90"]);
    assert!(by_index.contains("second"), "{by_index}");
    all_equal(&cluster);
    let staged = |node: u64| cluster.path(&format!("understudy-dev/node-{node}/partitions/64/engine/staged"));
    for node in 1..=3 {
        let left = std::fs::read_dir(staged(node)).map_or(0, Iterator::count);
        assert_eq!(left, 0, "node {node} has files of a load that it has installed");
    }
}

#[test]
fn tables_without_files_refuse_it_and_nothing_is_made() {
    let cluster = Cluster::start();
    cluster.write("rows.csv", &rows("first", 50));
    let made =
        ["load", "rows.csv", "--table", "m", "--key", "id", "--create", "--bulk", "--engine", "memory"];
    let ran = cluster.run(&made);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.sentence().contains("load it without --bulk"), "{ran:?}");
    assert_eq!(cluster.run(&["count", "m"]).status, 3);
    let ran = cluster.run(&["load", "rows.csv", "--table", "t", "--sort-dir", "/tmp"]);
    assert_eq!(ran.status, 2, "--sort-dir is of --bulk: {ran:?}");
}

#[test]
fn a_node_that_dies_in_the_middle_costs_no_row() {
    let cluster = Cluster::start();
    create(&cluster);
    cluster.write("first.csv", &rows("first", ROWS));
    cluster.write("second.csv", &rows("second", ROWS));
    cluster.ok(&["load", "first.csv", "--table", "t", "--bulk"]);
    let victim = cluster.primary_of(64);
    let staged = cluster.path(&format!("understudy-dev/node-{victim}/partitions/64/engine/staged"));
    let mut load = understudy(cluster.dir.path());
    load.args(["load", "second.csv", "--table", "t", "--bulk", "--json", "--timeout", "60s"]);
    let load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    eventually("files that are being staged", || std::fs::read_dir(&staged).ok()?.next().map(drop));
    let nodes = cluster.file()["nodes"].as_array().expect("a list").clone();
    let dead =
        nodes.iter().find(|node| node["id"] == victim || node["node"] == victim).expect("it is listed");
    signal(dead["process"]["pid"].as_i64().expect("it runs"), "KILL");
    let ended = load.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    if !ended.status.success() {
        // Where a failover left it in some partitions only, it says so, and it can be done again.
        assert!(said.contains("loading the file again") || said.contains("nothing was loaded"), "{said}");
        eventually("the load, once more", || {
            (cluster.run(&["load", "second.csv", "--table", "t", "--bulk", "--timeout", "60s"]).status == 0)
                .then_some(())
        });
    }
    assert_eq!((count(&cluster), named(&cluster, "second")), (ROWS, ROWS));
    cluster.run(&["dev", "restart", &victim.to_string()]);
    all_equal(&cluster);
}

/// Tables of databases take files, too, of one partition and of several, while others in them are written.
#[test]
fn pr448_tables_of_databases_are_loaded_in_bulk_while_others_are_written() {
    let cluster = Cluster::start();
    cluster.json(&["database", "create", "bank"]);
    cluster.json(&["database", "create", "shop", "--partitions", "3", "--partition-by", "id"]);
    let few = ROWS / 4;
    cluster.write("first.csv", &rows("first", few));
    cluster.write("second.csv", &rows("second", few / 2));
    for (database, partitions) in [("bank", 1), ("shop", 3)] {
        for (name, columns) in [("t", "id:int,name:text,n:int"), ("other", "id:int")] {
            let create =
                ["table", "create", name, "--database", database, "--columns", columns, "--key", "id"];
            cluster.ok(&create);
        }
        let (table, other) = (format!("{database}.t"), format!("{database}.other"));
        let load = |file: &str| {
            let ran = cluster.run(&["load", file, "--table", &table, "--bulk", "--json", "--timeout", "60s"]);
            assert_eq!(ran.status, 0, "{ran:?}");
            ran
        };
        let done = AtomicBool::new(false);
        let (ran, written) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut id = 0;
                while !done.load(Ordering::Relaxed) {
                    id += 1;
                    cluster.ok(&["put", &other, &format!("id={id}"), "--timeout", "30s"]);
                }
                id
            });
            let ran = load("first.csv");
            done.store(true, Ordering::Relaxed);
            (ran, writer.join().expect("every row was acknowledged"))
        });
        let warning = format!("writes to all tables of the database `{database}` wait");
        assert!(ran.err.contains(&warning), "{ran:?}");
        let report = ran.object();
        assert_eq!(
            (&report["table"], report["rows"].as_u64()),
            (&table.clone().into(), Some(few)),
            "{report}"
        );
        assert_eq!(report["partitions"].as_array().map(Vec::len), Some(partitions), "{report}");
        assert!(report["writes_waited_ms"].is_u64(), "{report}");
        assert_eq!(cluster.ok(&["count", &table]).trim(), few.to_string());
        assert_eq!(cluster.ok(&["count", &other]).trim(), written.to_string());
        // Rows that are there are replaced, and the table is one like any other.
        cluster.ok(&["put", &table, "id=1", "name=third", "n=-1"]);
        load("second.csv");
        cluster.ok(&["put", &table, "id=2", "name=fourth", "n=-1"]);
        assert!(cluster.ok(&["get", &table, "1"]).contains("second"));
        assert!(cluster.ok(&["get", &table, "2"]).contains("fourth"));
        assert!(cluster.ok(&["get", &table, &(few - 1).to_string()]).contains("first"));
        assert_eq!(cluster.ok(&["count", &table]).trim(), few.to_string());
        let made = format!("{database}.made");
        let create = ["load", "second.csv", "--table", &made, "--create", "--key", "id", "--bulk"];
        let report = cluster.json(&create);
        assert_eq!((&report["created"], report["rows"].as_u64()), (&true.into(), Some(few / 2)), "{report}");
        let sum = ["sql", "--database", database, "--json", "--command", "SELECT count(*) AS n FROM made"];
        assert!(cluster.ok(&sum).contains(&(few / 2).to_string()));
    }
    all_equal(&cluster);
}
