//! Scrubbing of a real cluster: a byte that changed on a disk is found, and good data fetched, but not
//! instead of the last good copy.

mod common;

use common::{Cluster, eventually};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The component files of a node's replica.
fn components(cluster: &Cluster, node: u64, partition: u64) -> Vec<PathBuf> {
    let replica = cluster.path(&format!("understudy-dev/node-{node}/partitions/{partition}/engine"));
    let list = |dir: PathBuf| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let trees = list(replica).into_iter().filter(|dir| dir.join("tables").is_dir());
    trees.flat_map(|tree| list(tree.join("tables"))).collect()
}

/// Waits until all copies are in sync and have components, and no more files come or go.
fn at_rest(cluster: &Cluster, partition: u64) {
    cluster.in_sync();
    let (mut before, mut since) = (Vec::new(), Instant::now());
    eventually("files that stay", || {
        let now: Vec<Vec<PathBuf>> = (1..=3).map(|node| components(cluster, node, partition)).collect();
        let line = record(cluster, partition);
        let all = line["replicas"].as_array().expect("a list");
        if now != before || now.iter().any(Vec::is_empty) || all.len() != 3 {
            (before, since) = (now, Instant::now());
        }
        (since.elapsed() >= Duration::from_secs(1)).then_some(())
    });
}

/// Changes one byte of every component that lies there: one that a merge has left behind may be among them.
/// Gives the files, and what is in them now.
fn flip(cluster: &Cluster, node: u64, partition: u64) -> Vec<(PathBuf, Vec<u8>)> {
    let one = |file: PathBuf| {
        let mut bytes = fs::read(&file).expect("at rest");
        let at = bytes.len() / 3;
        bytes[at] ^= 0x40;
        // In place: whoever has the file open sees it.
        let open = fs::OpenOptions::new().write(true).open(&file).expect("at rest");
        open.write_all_at(&bytes[at..=at], at as u64).expect("writable");
        (file, bytes)
    };
    components(cluster, node, partition).into_iter().map(one).collect()
}

/// True if the files are still as they were made by [`flip`]; those that were left behind may be gone.
fn untouched(flipped: &[(PathBuf, Vec<u8>)]) -> bool {
    let there = |(file, bytes): &(PathBuf, Vec<u8>)| fs::read(file).ok().map(|now| now == *bytes);
    let there: Vec<bool> = flipped.iter().filter_map(there).collect();
    !there.is_empty() && there.iter().all(|same| *same)
}

/// The partition's line of `status`.
fn record(cluster: &Cluster, partition: u64) -> Value {
    let seen = cluster.json(&["status"]);
    let all = seen["partitions"].as_array().expect("a list");
    all.iter().find(|line| line["partition"] == partition).expect("it exists").clone()
}

/// Nothing is found, on any of the three.
fn assert_clean(cluster: &Cluster) -> Value {
    let clean = cluster.run(&["scrub", "--json", "--timeout", "30s"]).object();
    assert_eq!(
        (&clean["damage"], &clean["unread"]),
        (&serde_json::json!([]), &serde_json::json!([])),
        "{clean}"
    );
    assert!(clean["files"].as_u64() >= Some(3) && clean["compared"].as_u64() >= Some(3), "{clean}");
    clean
}

/// The nodes with damage. All of it must be in this partition, in components that were flipped, and repaired
/// or not as is said.
fn damaged(report: &Value, partition: u64, flipped: &[(PathBuf, Vec<u8>)], repaired: bool) -> BTreeSet<u64> {
    let name = |file: &PathBuf| format!("component {}", file.file_name().expect("a name").to_string_lossy());
    let names: BTreeSet<String> = flipped.iter().map(|(file, _)| name(file)).collect();
    let one = |found: &Value| {
        assert_eq!((&found["partition"], &found["table"]), (&partition.into(), &"t".into()), "{report}");
        assert!(names.contains(found["file"].as_str().expect("a name")), "{report}");
        assert_eq!(found["repaired"], repaired, "{report}");
        found["node"].as_u64().expect("a node")
    };
    report["damage"].as_array().expect("a list").iter().map(one).collect()
}

#[test]
fn a_changed_byte_is_found_and_repaired_unless_it_is_in_the_last_good_copy() {
    let cluster = Cluster::with(|_| {
        // Components soon, and a log that is read back from the disk.
        vec![
            ("UNDERSTUDY_LOG_CHECKPOINT_BYTES", "131072".to_string()),
            ("UNDERSTUDY_LOG_KEEP_BYTES", "65536".to_string()),
        ]
    });
    let lines: String = (1..=40_000).map(|id| format!("{id},{}\n", id * 7)).collect();
    cluster.write("rows.csv", &format!("id,n\n{lines}"));
    cluster.ok(&["table", "create", "t", "--columns", "id:int,n:int", "--key", "id", "--partitions", "1"]);
    // Where a failover comes in between, it says that the file can be loaded again.
    let load = ["load", "rows.csv", "--table", "t", "--timeout", "60s"];
    eventually("all rows", || (cluster.run(&load).status == 0).then_some(()));
    let partition = cluster.json(&["status"])["partitions"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|line| line["partition"].as_u64())
        .find(|partition| *partition >= 64)
        .expect("the table's");
    at_rest(&cluster, partition);
    assert_clean(&cluster);
    // What is not in components yet is read back from the log.
    eventually("entries that are only in the log", || {
        cluster.ok(&["put", "t", "id=1", "n=0"]);
        let clean = assert_clean(&cluster);
        (clean["entries"].as_u64() > Some(0)).then_some(())
    });

    // A backup, then the primary: found, and only repaired when that is asked for.
    let backup = (1..=3).find(|node| *node != cluster.primary_of(partition)).expect("three nodes");
    for leads in [false, true] {
        at_rest(&cluster, partition);
        let victim = if leads { cluster.primary_of(partition) } else { backup };
        let flipped = flip(&cluster, victim, partition);
        let before = record(&cluster, partition);
        let seen = cluster.run(&["scrub", "--table", "t", "--json", "--timeout", "30s"]);
        assert_eq!(seen.status, 1, "{seen:?} {flipped}", flipped = flipped.len());
        assert_eq!(damaged(&seen.object(), partition, &flipped, false), [victim].into(), "{seen:?}");
        // Nothing comes of it: who leads, who counts, and the files are as they were.
        let after = record(&cluster, partition);
        assert_eq!((&before["epoch"], &before["primary"]), (&after["epoch"], &after["primary"]));
        assert_eq!(before["in_sync"], after["in_sync"]);
        assert!(untouched(&flipped));
        let repaired = cluster.json(&["scrub", "--table", "t", "--repair", "--timeout", "30s"]);
        assert_eq!(damaged(&repaired, partition, &flipped, true), [victim].into(), "{repaired}");
        assert_clean(&cluster);
    }
    assert_eq!(cluster.ok(&["count", "t", "--timeout", "30s"]).trim(), "40000");

    // Everywhere: nobody has anything good to fetch, so everybody keeps what there is.
    at_rest(&cluster, partition);
    let flipped: Vec<_> = (1..=3).flat_map(|node| flip(&cluster, node, partition)).collect();
    let before = record(&cluster, partition);
    let kept = cluster.run(&["scrub", "--table", "t", "--repair", "--json", "--timeout", "30s"]);
    assert_eq!(kept.status, 1, "{kept:?} {flipped}", flipped = flipped.len());
    let kept = kept.object();
    assert_eq!(damaged(&kept, partition, &flipped, false), [1, 2, 3].into(), "{kept}");
    assert!(kept["damage"][0]["kept"].as_str().expect("a reason").contains("no other replica"), "{kept}");
    assert_eq!(record(&cluster, partition)["epoch"], before["epoch"]);
    assert!(untouched(&flipped));
    assert_eq!(cluster.json(&["put", "t", "id=0", "n=0"])["copies"], 3, "all three are still there");
}
