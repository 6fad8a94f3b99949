//! Copies that move while rows are written, and feeds that go on where they were, whatever dies.

mod common;

use common::{Cluster, eventually};
use std::process::Stdio;

/// The nodes that hold a partition in sync, the primary first, if nothing else is under way there.
fn holders(cluster: &Cluster, partition: u64) -> Option<Vec<u64>> {
    let ran = cluster.run(&["status", "--json", "--timeout", "30s"]);
    if ran.status != 0 {
        return None;
    }
    let seen = ran.object();
    let all = seen["partitions"].as_array().expect("a list");
    let line = all.iter().find(|line| line["partition"] == partition).expect("it exists");
    let catching_up = line["catching_up"].as_array().expect("a list");
    let quiet = catching_up.is_empty() && line["state"] == "serving";
    quiet.then(|| {
        line["in_sync"].as_array().expect("a list").iter().filter_map(|node| node.as_u64()).collect()
    })
}

fn put(cluster: &Cluster, id: u64) -> serde_json::Value {
    cluster.json(&["put", "t", &format!("id={id}"), "n=1", "--timeout", "30s"])
}

#[test]
fn a_partition_moves_to_other_nodes_while_it_is_written() {
    let cluster = Cluster::start();
    cluster.ok(&[
        "table",
        "create",
        "t",
        "--columns",
        "id:int,n:int",
        "--key",
        "id",
        "--partitions",
        "1",
        "--factor",
        "2",
    ]);
    let partition = put(&cluster, 0)["partition"].as_u64().expect("a partition");
    let name = partition.to_string();
    let mut written = 1;
    let mut await_holders = |what: &str, wanted: &dyn Fn(&[u64]) -> bool| {
        eventually(what, || {
            put(&cluster, written);
            written += 1;
            holders(&cluster, partition).filter(|nodes| wanted(nodes))
        })
    };
    let before = await_holders("two copies", &|nodes| nodes.len() == 2);
    let (primary, backup) = (before[0], before[1]);
    let free = (1..=3).find(|node| !before.contains(node)).expect("three nodes");
    let wrong = cluster.run(&["partition", "move", &name, "--from", &free.to_string(), "--to", "1"]);
    assert_eq!(wrong.status, 3, "{wrong:?}");
    let place = |from: u64, to: u64| {
        cluster.ok(&["partition", "move", &name, "--from", &from.to_string(), "--to", &to.to_string()]);
    };
    place(backup, free);
    await_holders("the backup's copy elsewhere", &|nodes| *nodes == [primary, free]);
    // The one that leads moves too: its successor leads first.
    place(primary, backup);
    await_holders("the primary's copy elsewhere", &|nodes| nodes.len() == 2 && !nodes.contains(&primary));
    // Nothing is left to be missed on the node that has no copy any more.
    cluster.ok(&["dev", "kill", &primary.to_string()]);
    let last = put(&cluster, written);
    assert_eq!(last["copies"], 2, "{last}");
    assert_eq!(cluster.ok(&["count", "t", "--timeout", "30s"]).trim(), (written + 1).to_string());
    let rows = cluster.ok(&["scan", "t", "--json", "--timeout", "30s"]);
    let ids: Vec<u64> = rows
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).expect("JSON")["id"].as_u64().expect("an id")
        })
        .collect();
    assert_eq!(ids, (0..=written).collect::<Vec<_>>());
}

#[test]
fn a_feed_goes_on_exactly_where_it_was_after_a_failover_and_its_own_death() {
    let cluster = Cluster::start();
    // Three columns of which one counts: what came twice would be seen in no row, so the feed's own numbers
    // are compared.
    cluster.ok(&["table", "create", "t", "--columns", "id:int,n:int", "--key", "id", "--partitions", "3"]);
    const ROWS: u64 = 3000;
    let text: String = (1..=ROWS).map(|id| format!("{id},{}\n", id * 7)).collect();
    cluster.write("rows.csv", &format!("id,n\n{text}"));
    let count = || -> u64 {
        let ran = cluster.run(&["count", "t", "--timeout", "30s"]);
        assert_eq!(ran.status, 0, "{ran:?}");
        ran.out.trim().parse().expect("a number")
    };
    let mut feed = common::understudy(cluster.dir.path());
    let feed = feed.args(["ingest", "rows.csv", "--table", "t", "--batch", "20", "--timeout", "60s"]);
    let mut feed = feed.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    eventually("some rows are in", || (count() > 50).then_some(()));
    let status = cluster.json(&["status", "--timeout", "30s"]);
    let victim = status["partitions"][0]["primary"].as_u64().expect("a node");
    cluster.ok(&["dev", "kill", &victim.to_string()]);
    let at_failover = count();
    eventually("rows go on coming in", || (count() > at_failover || at_failover == ROWS).then_some(()));
    feed.kill().expect("ours");
    feed.wait().expect("ours");
    let there = eventually("what was on its way has arrived", || {
        let once = count();
        (once == count()).then_some(once)
    });
    let rest = cluster.json(&["ingest", "rows.csv", "--table", "t", "--timeout", "60s"]);
    assert_eq!(rest["rows"].as_u64(), Some(ROWS - there), "neither skipped nor repeated: {rest}");
    cluster.ok(&["dev", "restart", &victim.to_string()]);
    cluster.in_sync();
    let again = cluster.json(&["ingest", "rows.csv", "--table", "t", "--timeout", "60s"]);
    assert_eq!((&again["rows"], count()), (&0.into(), ROWS), "{again}");
    let scanned = cluster.ok(&["scan", "t", "--json", "--timeout", "30s"]);
    for (line, id) in scanned.lines().zip(1..) {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!((row["id"].as_u64(), row["n"].as_u64()), (Some(id), Some(id * 7)));
    }
}
