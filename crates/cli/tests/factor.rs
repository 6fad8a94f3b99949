//! The number of copies changes, up and down, in a cluster of real processes while rows are written.

mod common;

use common::{Cluster, eventually, understudy};
use serde_json::Value;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The nodes that hold each partition of the table in sync, if nothing is under way there.
fn holders(cluster: &Cluster) -> Option<Vec<Vec<u64>>> {
    let ran = cluster.run(&["status", "--json", "--timeout", "30s"]);
    if ran.status != 0 {
        return None;
    }
    let seen = ran.object();
    let all = seen["partitions"].as_array().expect("a list").clone();
    let nodes = |line: &Value| {
        let quiet = line["catching_up"].as_array().expect("a list").is_empty() && line["state"] == "serving";
        let in_sync = line["in_sync"].as_array().expect("a list");
        quiet.then(|| in_sync.iter().filter_map(Value::as_u64).collect())
    };
    let own = |line: &&Value| line["partition"].as_u64() >= Some(64);
    all.iter().filter(own).map(nodes).collect()
}

/// Every replica has the same rows at one position: so many were compared.
fn compared(cluster: &Cluster) -> u64 {
    let clean = cluster.json(&["scrub", "--timeout", "60s"]);
    let none = serde_json::json!([]);
    assert_eq!((&clean["damage"], &clean["unread"]), (&none, &none), "{clean}");
    clean["compared"].as_u64().expect("a number")
}

/// Stops the writer when the test is through, whatever becomes of it.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn copies_are_added_and_removed_while_rows_are_written() {
    let cluster = Cluster::start();
    let create = ["table", "create", "t", "--columns", "id:int,n:int", "--key", "id", "--partitions", "4"];
    cluster.ok(&[&create[..], &["--factor", "1"]].concat());
    let before = eventually("four partitions serve", || holders(&cluster));
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let write = || {
            while !stop.load(Ordering::Relaxed) {
                let id = written.load(Ordering::Relaxed);
                cluster.ok(&["put", "t", &format!("id={id}"), &format!("n={}", id * 3), "--timeout", "30s"]);
                written.fetch_add(1, Ordering::Relaxed);
            }
        };
        let writer = scope.spawn(write);
        let ends = Ends(&stop);
        up_and_down(&cluster, &before, &written);
        drop(ends);
        writer.join().expect("every write is acknowledged");
    });
    let written = written.load(Ordering::Relaxed);
    assert_eq!(cluster.ok(&["count", "t", "--timeout", "30s"]).trim(), written.to_string());
    let rows = cluster.ok(&["scan", "t", "--json", "--timeout", "30s"]);
    for (line, id) in rows.lines().zip(0u64..) {
        let row: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!((row["id"].as_u64(), row["n"].as_u64()), (Some(id), Some(id * 3)));
    }
    assert!(compared(&cluster) >= 8, "two copies of four partitions, and the cluster's own tables");
}

fn up_and_down(cluster: &Cluster, before: &[Vec<u64>], written: &AtomicU64) {
    let refused = cluster.run(&["table", "alter", "t", "--factor", "4"]);
    assert_eq!(refused.status, 5, "{refused:?}");
    assert!(refused.sentence().contains("wants 4 copies, but only 3 nodes are live"), "{refused:?}");

    let ran = cluster.run(&["table", "alter", "t", "--factor", "2", "--json", "--timeout", "60s"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let object = ran.object();
    assert_eq!((&object["policy"]["factor"], &object["everywhere"]), (&2.into(), &true.into()));
    assert!(ran.err.contains("is to have 2 copies of each partition"), "progress is shown: {ran:?}");
    let two = eventually("quiet", || holders(cluster));
    for (two, one) in two.iter().zip(before) {
        assert_eq!((two.len(), &two[..1]), (2, &one[..]), "who was there leads on");
    }

    // Whoever asked dies: the cluster goes on with it.
    let mut asks = understudy(cluster.dir.path());
    let asks = asks.args(["table", "alter", "t", "--factor", "3", "--min-in-sync", "2"]);
    let mut asks = asks.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    eventually("the change has begun", || {
        let list = cluster.json(&["table", "list", "--timeout", "30s"]);
        (list["factor"] == 3).then_some(())
    });
    asks.kill().expect("ours");
    asks.wait().expect("ours");
    let at = written.load(Ordering::Relaxed);
    eventually("three copies of each", || {
        holders(cluster)?.iter().all(|nodes| nodes.len() == 3).then_some(())
    });
    eventually("writes go on", || (written.load(Ordering::Relaxed) > at + 5).then_some(()));

    let refused = cluster.run(&["table", "alter", "t", "--factor", "1"]);
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.sentence().contains("min_in_sync 1"), "{refused:?}");
    // One node dies while copies go: which ones, and that they go, is in the records.
    let victim = two[0][0];
    let mut asks = understudy(cluster.dir.path());
    let asks = asks.args(["table", "alter", "t", "--factor", "2", "--timeout", "60s"]);
    let mut asks = asks.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    cluster.ok(&["dev", "kill", &victim.to_string()]);
    let at = written.load(Ordering::Relaxed);
    eventually("writes go on", || (written.load(Ordering::Relaxed) > at + 5).then_some(()));
    cluster.ok(&["dev", "restart", &victim.to_string()]);
    assert!(asks.wait().expect("ours").success());
    let again = cluster.json(&["table", "alter", "t", "--factor", "2", "--timeout", "60s"]);
    assert_eq!(again["everywhere"], true, "asked again it is there already: {again}");
    let last = eventually("quiet", || holders(cluster));
    assert!(last.iter().all(|nodes| nodes.len() == 2), "{last:?}");
}
