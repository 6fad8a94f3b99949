//! Processes with two directories each: one is taken away while rows are written.

mod common;

use common::{Cluster, eventually};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn seen(cluster: &Cluster) -> Value {
    cluster.json(&["status", "--timeout", "30s"])
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().expect("a list")
}

/// What node 1 says of its second directory; none while it has not said anything since its start.
fn second(seen: &Value) -> Option<&Value> {
    let node = list(seen, "nodes").iter().find(|node| node["node"] == 1).expect("node 1");
    list(node, "directories").get(1)
}

/// Why node 1 does without its second directory; empty while it does not.
fn lost(seen: &Value) -> Option<&str> {
    second(seen).map(|directory| directory["lost"].as_str().expect("a text"))
}

/// Every partition has three copies in sync, and a primary.
fn is_level(seen: &Value) -> bool {
    list(seen, "partitions").iter().all(|one| list(one, "in_sync").len() == 3 && one["state"] == "serving")
}

fn epochs(seen: &Value) -> BTreeMap<u64, u64> {
    let number = |value: &Value| value.as_u64().expect("a number");
    list(seen, "partitions").iter().map(|one| (number(&one["partition"]), number(&one["epoch"]))).collect()
}

/// Ends the writer, whatever ends the test.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_directory_is_taken_away_under_load() {
    let cluster = Cluster::flagged(&["--data-dirs", "2"]);
    for name in ["a", "b"] {
        let create = ["table", "create", name, "--columns", "id:int,n:int", "--key", "id", "--factor", "3"];
        cluster.ok(&[&create[..], &["--partitions", "4"]].concat());
    }
    let disk = cluster.path("understudy-dev/node-1-disk-2");
    // Who is recorded as a copy has not necessarily made its directory yet.
    eventually("all replicas of node 1", || {
        let seen = seen(&cluster);
        let node = list(&seen, "nodes").iter().find(|node| node["node"] == 1)?;
        let made = list(node, "directories").iter().filter_map(|one| one["replicas"].as_u64());
        (made.sum::<u64>() >= list(&seen, "partitions").len() as u64).then_some(())
    });
    let there: BTreeSet<u64> = fs::read_dir(disk.join("partitions"))
        .expect("lists")
        .map(|entry| {
            entry
                .expect("readable")
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
                .expect("a number")
        })
        .collect();
    let before = eventually("all copies", || Some(seen(&cluster)).filter(is_level));
    assert!(there.len() >= 3 && there.len() < epochs(&before).len(), "{there:?}");

    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let ends = Ends(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let id = format!("id={}", written.load(Ordering::Acquire));
                // Asked again for as long as it is not known what became of it: the same row once more is the
                // same row.
                let acknowledged = |table| {
                    let words = ["put", table, &id, "n=1", "--timeout", "30s"];
                    (0..20).any(|_| cluster.run(&words).status == 0)
                };
                assert!(acknowledged("a") && acknowledged("b"), "{id} is never acknowledged");
                written.fetch_add(1, Ordering::AcqRel);
            }
        });
        eventually("rows are written", || (written.load(Ordering::Acquire) >= 5).then_some(()));
        fs::rename(&disk, cluster.path("away")).expect("renames");
        let after = eventually("copies anew", || {
            let seen = seen(&cluster);
            let elsewhere = lost(&seen).is_some_and(|why| !why.is_empty()) && second(&seen)?["replicas"] == 0;
            (elsewhere && is_level(&seen)).then_some(seen)
        });
        let more = written.load(Ordering::Acquire) + 5;
        eventually("more rows are written", || (written.load(Ordering::Acquire) >= more).then_some(()));
        let (before, after) = (epochs(&before), epochs(&after));
        for (id, epoch) in &before {
            assert_eq!(
                there.contains(id),
                after[id] > *epoch,
                "partition {id}: epoch {epoch}, then {}",
                after[id]
            );
        }
        drop(ends);
    });
    comes_back(&cluster, &disk, &written.load(Ordering::Acquire).to_string());
}

/// Node 1 is started without the directory, and with it.
fn comes_back(cluster: &Cluster, disk: &Path, rows: &str) {
    let count = |table| {
        assert_eq!(cluster.ok(&["count", table, "--timeout", "30s"]).trim(), rows, "rows of table {table}");
    };
    ["a", "b"].into_iter().for_each(count);
    // It starts without it, and says so.
    cluster.ok(&["dev", "restart", "1"]);
    let without = |seen: &Value| is_level(seen) && lost(seen).is_some_and(|why| !why.is_empty());
    let all = eventually("node 1 without it", || Some(seen(cluster)).filter(without));
    assert!(lost(&all).is_some_and(|why| why.contains("not there")), "{all}");
    let words = cluster.ok(&["status", "--timeout", "30s"]);
    assert!(words.contains("node-1-disk-2 is lost"), "{words}");
    fs::rename(cluster.path("away"), disk).expect("renames");
    cluster.ok(&["dev", "restart", "1"]);
    let with = |seen: &Value| is_level(seen) && lost(seen) == Some("");
    eventually("node 1 with it", || Some(seen(cluster)).filter(with));
    ["a", "b"].into_iter().for_each(count);
    assert_eq!(
        fs::read_dir(disk.join("partitions")).expect("lists").count(),
        0,
        "what was left over is removed"
    );
}
