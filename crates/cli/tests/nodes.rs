//! Clusters of one to seven real processes; a node is added and removed again while rows are written.

mod common;

use common::{Cluster, understudy};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// A node that this test started; it ends with the test, whatever becomes of it.
struct Own(Child);

impl Drop for Own {
    fn drop(&mut self) {
        // It may have ended by itself: that is what is tested.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the node that `node add` has told how to start.
fn start(cluster: &Cluster, told: &serde_json::Value) -> Own {
    let data = cluster.path("node-4");
    let config = told["config"].as_str().expect("a configuration");
    let config = config.replace("/var/lib/understudy-4", data.to_str().expect("UTF-8"));
    // Ports are chosen by the system: this machine has others.
    let listeners = ["client", "peer", "heartbeat", "http"]
        .map(|listener| format!("listen_{listener} = \"127.0.0.1:0\"\n"));
    cluster.write("node4.toml", &format!("{config}{}[sql]\nlisten = \"127.0.0.1:0\"\n", listeners.concat()));
    cluster.ok(&["init", data.to_str().expect("UTF-8"), "--node", "4"]);
    let log = fs::File::create(cluster.path("node4.log")).expect("writable");
    let mut node = understudy(cluster.dir.path());
    let node = node.args(["node", "--config", "node4.toml"]).stdout(Stdio::null()).stderr(log);
    Own(node.spawn().expect("the binary runs"))
}

/// How many copies each node has.
fn copies(cluster: &Cluster) -> BTreeMap<u64, u64> {
    let seen = cluster.json(&["status", "--timeout", "30s"]);
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    let nodes = seen["nodes"].as_array().expect("a list");
    nodes.iter().map(|node| (number(&node["node"]), number(&node["holds"]))).collect()
}

#[test]
fn a_node_is_added_and_removed_while_rows_are_written() {
    let cluster = Cluster::start();
    let create =
        ["table", "create", "t", "--columns", "id:int,n:int", "--key", "id", "--placement", "spread"];
    cluster.ok(&[&create[..], &["--partitions", "4", "--factor", "2"]].concat());
    let told = cluster.json(&["node", "add", "4"]);
    assert_eq!(told["registered"], false, "{told}");
    let mut own = start(&cluster, &told);
    common::eventually("node 4 registers", || copies(&cluster).contains_key(&4).then_some(()));

    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let write = || {
            let mut id = 0;
            while !stop.load(Ordering::Relaxed) {
                let put = cluster.json(&["put", "t", &format!("id={id}"), "n=1", "--timeout", "30s"]);
                assert!(put["copies"].as_u64() >= Some(2), "{put}");
                id += 1;
            }
            id
        };
        let writer = scope.spawn(write);
        // Whatever fails below must not leave the writer at work: the scope would wait for it.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let ends = Ends(&stop);
        add_and_remove(&cluster, &mut own);
        drop(ends);
        writer.join().expect("every write is acknowledged")
    });
    assert!(written > 0);
    assert_eq!(cluster.ok(&["count", "t", "--timeout", "30s"]).trim(), written.to_string());
}

fn add_and_remove(cluster: &Cluster, own: &mut Own) {
    let added = cluster.json(&["node", "add", "4", "--timeout", "30s"]);
    assert_eq!((&added["registered"], &added["copies"]), (&true.into(), &2.into()), "{added}");
    let held = copies(cluster);
    assert_eq!(held, BTreeMap::from([(1, 2), (2, 2), (3, 2), (4, 2)]));

    // One copy alone, there: it would be lost.
    cluster.write("there", "4\n");
    let alone = ["table", "create", "alone", "--columns", "k:int", "--key", "k", "--placement", "there"];
    cluster.ok(&[&alone[..], &["--partitions", "1", "--policy", "none"]].concat());
    let refused = cluster.run(&["node", "remove", "4"]);
    assert_eq!(refused.status, 5, "{refused:?}");
    assert!(refused.sentence().contains("holds the last copy of table 'alone' partition 68"), "{refused:?}");
    assert_eq!(copies(cluster)[&4], 3, "nothing was changed");
    cluster.ok(&["table", "drop", "alone", "--yes"]);

    let ran = cluster.run(&["node", "remove", "4", "--json", "--timeout", "30s"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!((&ran.object()["removed"], &ran.object()["moved"]), (&true.into(), &2.into()));
    assert!(ran.err.contains("node 4 is being removed: 2 of 2 copies left"), "progress is shown: {ran:?}");
    let held = copies(cluster);
    assert_eq!((held.len(), held.values().sum::<u64>()), (3, 8), "{held:?}");
    assert_eq!(cluster.run(&["node", "remove", "4"]).status, 3);
    // Its process knows that there is nothing more to do.
    let ended = common::eventually("the node's process ends", || own.0.try_wait().expect("a child"));
    assert_eq!(ended.code(), Some(5));
    let said = fs::read_to_string(cluster.path("node4.log")).expect("written");
    assert!(said.contains("n4 was removed from the cluster"), "{said}");
    // Nor does its directory start another one.
    let again = cluster.run(&["node", "--config", "node4.toml"]);
    assert_eq!(again.status, 5, "{again:?}");
    assert!(again.sentence().contains("n4 was removed from the cluster"), "{again:?}");
}

#[test]
fn a_removed_node_of_dev_is_not_started_again() {
    let mut cluster = Cluster::start();
    cluster.ok(&["table", "create", "t", "--columns", "id:int,n:int", "--key", "id", "--factor", "2"]);
    cluster.ok(&["put", "t", "id=1", "n=1", "--timeout", "30s"]);
    cluster.ok(&["node", "remove", "3", "--timeout", "60s"]);
    common::eventually("it ends", || {
        let identity = fs::read_to_string(cluster.path("understudy-dev/node-3/node.id")).expect("it ran");
        identity.contains("\"removed\": true").then_some(())
    });
    cluster.kill_everything();
    cluster.up_with(2);
    assert_eq!(copies(&cluster).keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(cluster.ok(&["count", "t", "--timeout", "30s"]).trim(), "1");
}

/// What a table with a copy on every node goes through: as many nodes are killed as it can lose, then all of
/// them.
fn lives_through_it(nodes: usize) {
    // Seven processes share two cores: who was not run for a moment is not dead.
    let mut cluster = Cluster::of(nodes, |_| vec![("UNDERSTUDY_TIMING_SUSPECT_MS", "1000".into())]);
    let (factor, partitions) = (nodes.to_string(), (2 * nodes).to_string());
    let create = ["table", "create", "t", "--columns", "id:int,n:int", "--key", "id", "--available"];
    cluster.ok(&[&create[..], &["--factor", &factor, "--partitions", &partitions]].concat());
    cluster.in_sync();
    // Who was suspected all the same leads again after a while.
    common::eventually("every node leads two partitions", || {
        let status = cluster.json(&["status"]);
        let leads = status["nodes"].as_array().expect("a list");
        leads.iter().all(|node| node["leads"].as_u64() >= Some(2)).then_some(())
    });
    let put = |cluster: &Cluster, id: usize| {
        cluster.json(&["put", "t", &format!("id={id}"), "n=1", "--timeout", "60s"])
    };
    let first = put(&cluster, 0);
    assert_eq!(first["copies"].as_u64(), Some(nodes as u64), "{first}");
    // One is enough to go on with, as the table says.
    let dead = nodes - 1;
    for node in 1..=dead {
        cluster.ok(&["dev", "kill", &node.to_string()]);
    }
    for id in 1..=5 {
        put(&cluster, id);
    }
    for node in 1..=dead {
        cluster.ok(&["dev", "restart", &node.to_string()]);
    }
    cluster.in_sync();
    cluster.kill_everything();
    cluster.up();
    cluster.in_sync();
    assert_eq!(cluster.ok(&["count", "t", "--timeout", "60s"]).trim(), "6", "{nodes} nodes");
    assert_eq!(put(&cluster, 6)["copies"].as_u64(), Some(nodes as u64));
}

#[test]
fn one_node() {
    lives_through_it(1);
}

#[test]
fn two_nodes() {
    lives_through_it(2);
}

#[test]
fn five_nodes() {
    lives_through_it(5);
}

#[test]
fn seven_nodes() {
    lives_through_it(7);
}
