//! An operator decides to go on without the node that has everything: told before what may be lost, and after
//! what was.

mod common;

use common::{Cluster, Ran, eventually};

/// The partition's line in `status`.
fn line(cluster: &Cluster, partition: u64) -> Option<serde_json::Value> {
    let ran = cluster.run(&["status", "--json"]);
    let seen = (ran.status == 0).then(|| ran.object())?;
    seen["partitions"].as_array()?.iter().find(|line| line["partition"] == partition).cloned()
}

/// A table of two copies of which the backup is killed, and the third node too, so that nobody stands in for
/// it: the primary goes on alone, and what it acknowledges from now on is nowhere else.
struct Alone {
    cluster: Cluster,
    partition: u64,
    primary: u64,
    backup: u64,
    third: u64,
}

fn alone() -> Alone {
    let cluster = Cluster::start();
    let create = ["table", "create", "t", "--columns", "id:int,n:int", "--key", "id", "--partitions", "1"];
    let rules = ["--factor", "2", "--policy", "async", "--min-in-sync", "1"];
    cluster.ok(&[&create[..], &rules].concat());
    let first = cluster.json(&["put", "t", "id=1", "n=1"]);
    let partition = first["partition"].as_u64().expect("a partition");
    let nodes = eventually("two copies", || {
        let line = line(&cluster, partition)?;
        let in_sync: Vec<u64> = line["in_sync"].as_array()?.iter().filter_map(|node| node.as_u64()).collect();
        let replicas = line["replicas"].as_array()?;
        let level = replicas.len() == 2
            && replicas.iter().all(|copy| copy["durable"].as_u64() >= first["lsn"].as_u64());
        (in_sync.len() == 2 && level).then_some(in_sync)
    });
    let (primary, backup) = (nodes[0], nodes[1]);
    let third = (1..=3).find(|node| !nodes.contains(node)).expect("three nodes");
    cluster.ok(&["dev", "kill", &third.to_string()]);
    cluster.ok(&["dev", "kill", &backup.to_string()]);
    eventually("a primary that is alone", || {
        (line(&cluster, partition)?["in_sync"].as_array()?.len() == 1).then_some(())
    });
    Alone { cluster, partition, primary, backup, third }
}

/// Has the partition led by the best copy left.
fn force(cluster: &Cluster, partition: &str) -> Ran {
    eventually("a controller that misses the primary", || {
        let ran = cluster.run(&["partition", "recover", partition, "--yes"]);
        (ran.status == 0).then_some(ran)
    })
}

#[test]
fn pr08_a_forced_promotion_tells_before_and_after_what_is_lost() {
    let Alone { cluster, partition, primary, backup, third } = alone();
    let second = cluster.json(&["put", "t", "id=2", "n=2"]);
    let lost = second["lsn"].as_u64().expect("an LSN");
    eventually("the primary to tell of it", || {
        (line(&cluster, partition)?["committed"].as_u64() >= Some(lost)).then_some(())
    });
    cluster.ok(&["dev", "kill", &primary.to_string()]);
    cluster.ok(&["dev", "restart", &backup.to_string()]);

    let name = partition.to_string();
    let refused = eventually("the copy on the backup", || {
        let ran = cluster.run(&["partition", "recover", &name]);
        ran.err.contains(&format!("n{backup} has the log up to LSN")).then_some(ran)
    });
    assert_eq!(refused.status, 5, "{refused:?}");
    let sentence = refused.sentence();
    assert!(
        sentence.contains(&format!("n{primary}")) && sentence.contains(&format!("up to LSN {lost}:")),
        "{sentence}"
    );
    assert!(sentence.contains("may be lost") && sentence.contains("--yes"), "{sentence}");
    let before = line(&cluster, partition).expect("it is there");
    assert_eq!(
        (&before["primary"], &before["in_sync"]),
        (&primary.into(), &vec![primary].into()),
        "nothing was done"
    );

    let said = force(&cluster, &name);
    assert!(said.out.contains("may be lost") && said.out.contains("are lost"), "{said:?}");
    let found = cluster.ok(&["scan", "t", "--timeout", "30s"]);
    assert!(found.contains("id=1 ") && !found.contains("id=2 "), "{found}");
    cluster.ok(&["dev", "restart", &primary.to_string()]);
    cluster.ok(&["dev", "restart", &third.to_string()]);
    let tail = eventually("what only the old primary had", || {
        let listed = cluster.ok(&["partition", "tails", "list", "--json"]);
        let first = listed.lines().next()?;
        Some(serde_json::from_str::<serde_json::Value>(first).expect("JSON"))
    });
    assert_eq!((&tail["partition"], &tail["commits"]), (&partition.into(), &1.into()), "{tail}");
    its_tail_can_be_read_and_discarded(&cluster, &tail);
}

#[test]
fn r9_what_a_frozen_primary_had_published_alone_is_set_aside_when_it_goes_on() {
    let Alone { cluster, partition, primary, backup, third } = alone();
    let mut last = 0;
    for id in 2..=40 {
        let (id, n) = (format!("id={id}"), format!("n={}", 1000 + id));
        last = cluster.json(&["put", "t", &id, &n])["lsn"].as_u64().expect("an LSN");
    }
    cluster.ok(&["delete", "t", "1"]);
    eventually("the primary to tell of it", || {
        (line(&cluster, partition)?["committed"].as_u64() > Some(last)).then_some(())
    });
    cluster.ok(&["dev", "stop", &primary.to_string()]);
    cluster.ok(&["dev", "restart", &backup.to_string()]);
    let name = partition.to_string();
    eventually("the copy on the backup", || {
        let ran = cluster.run(&["partition", "recover", &name]);
        ran.err.contains(&format!("n{backup} has the log up to LSN")).then_some(())
    });
    force(&cluster, &name);
    cluster.ok(&["put", "t", "id=2", "n=7", "--timeout", "30s"]);
    // It was never started again: all that it acknowledged is in its engine.
    cluster.ok(&["dev", "heal", &primary.to_string()]);
    cluster.ok(&["dev", "restart", &third.to_string()]);
    let tails = eventually("what only the old primary had", || {
        let listed = cluster.ok(&["partition", "tails", "list", "--json"]);
        let tails: Vec<serde_json::Value> =
            listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let commits: u64 = tails.iter().filter_map(|tail| tail["commits"].as_u64()).sum();
        (commits >= 40).then_some(tails)
    });
    let of_node = primary.to_string();
    let export = |tail: &serde_json::Value| {
        assert_eq!((&tail["partition"], &tail["node"]), (&partition.into(), &primary.into()), "{tail}");
        let file = tail["file"].as_str().expect("a name");
        cluster.ok(&["partition", "tails", "export", file, "--node", &of_node])
    };
    let exported: String = tails.iter().map(export).collect();
    for id in 2..=40 {
        let values = format!(r#""values":{{"id":{id},"n":{}}}"#, 1000 + id);
        assert!(exported.contains(&values), "{values} of {tails:?}: {exported}");
    }
    assert!(exported.contains(r#""change":"delete""#), "{exported}");
    cluster.in_sync();
    let found = cluster.ok(&["scan", "t", "--timeout", "30s"]);
    assert!(found.contains("id=1 ") && found.contains("id=2 ") && !found.contains("id=3 "), "{found}");
    let told = cluster.ok(&["failover", "list", "--json"]);
    let files = tails.iter().map(|tail| tail["file"].as_str().expect("a name"));
    files.for_each(|file| assert!(told.contains(file), "{file}: {told}"));
}

/// While its node runs: rows with their columns, and afterwards nobody counts it any more.
fn its_tail_can_be_read_and_discarded(cluster: &Cluster, tail: &serde_json::Value) {
    let (file, of_node) = (tail["file"].as_str().expect("a name"), tail["node"].to_string());
    let exported = cluster.ok(&["partition", "tails", "export", file, "--node", &of_node]);
    let lost = r#""table_name":"t""#;
    assert!(exported.contains(r#""values":{"id":2"#) && exported.contains(lost), "{exported}");
    cluster.ok(&["partition", "tails", "discard", file, "--node", &of_node, "--yes"]);
    eventually("the node that runs notices that its tail is discarded", || {
        let seen = cluster.json(&["status"]);
        let tails = seen["nodes"].as_array()?.iter().map(|node| node["tails"].as_u64().unwrap_or(1));
        (tails.sum::<u64>() == 0).then_some(())
    });
}
