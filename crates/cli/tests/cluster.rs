//! Real processes: a cluster loses nodes, power and its temper, and nothing that was acknowledged.

mod common;

use common::{Cluster, connect, eventually, signal};
use std::io::{Read, Write};
use std::time::Duration;

/// A file of people with ids from 1 to `count`.
fn people(count: u64) -> String {
    let mut text = String::from("id,name,height\n");
    for id in 1..=count {
        text.push_str(&format!("{id},person {id},{}.5\n", 100 + id % 90));
    }
    text
}

/// Everything in a table, in key order.
fn everything(cluster: &Cluster, table: &str) -> String {
    cluster.ok(&["scan", table, "--json", "--timeout", "30s"])
}

fn load_people(cluster: &Cluster, count: u64) {
    cluster.write("people.csv", &people(count));
    let loaded = cluster.json(&[
        "load",
        "people.csv",
        "--table",
        "people",
        "--key",
        "id",
        "--create",
        "--timeout",
        "30s",
    ]);
    assert_eq!(
        (&loaded["rows"], &loaded["bad_rows"], &loaded["created"]),
        (&count.into(), &0.into(), &true.into())
    );
    assert_eq!(loaded["policy"], "durable");
    assert!(loaded["copies"].as_u64() >= Some(2), "{loaded}");
    // A slow machine may have put a copy out meanwhile.
    cluster.in_sync();
}

#[test]
fn a_cluster_outlives_a_node_and_then_all_of_them() {
    let mut cluster = Cluster::start();
    load_people(&cluster, 300);
    assert_eq!(cluster.ok(&["count", "people"]).trim(), "300");
    assert_eq!(cluster.ok(&["get", "people", "7"]).trim(), r#"id=7 name="person 7" height=107.5"#);
    assert_eq!(cluster.ok(&["scan", "people", "--from", "5", "--to", "8"]).lines().count(), 3);
    let put = cluster.json(&["put", "people", "id=301", "name=Ada", "height=170"]);
    assert!(put["lsn"].as_u64() > Some(0) && put["policy"] == "durable" && put["copies"] == 3, "{put}");

    let partition = put["partition"].as_u64().expect("a partition");
    let primary = cluster.primary_of(partition);
    cluster.ok(&["dev", "kill", &primary.to_string()]);
    let put = cluster.json(&["put", "people", "id=301", "name=Grace", "height=171", "--timeout", "30s"]);
    assert_eq!((put["partition"].as_u64(), put["copies"].as_u64()), (Some(partition), Some(2)), "{put}");
    assert_ne!(cluster.primary_of(partition), primary);
    let failovers = cluster.ok(&["failover", "list", "--json"]);
    let ours: Vec<serde_json::Value> =
        failovers.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ours = ours.iter().find(|line| line["partition"] == partition && line["from"] == primary);
    assert_eq!(ours.expect("the failover is listed")["loss"], "nothing");
    let status = cluster.ok(&["status"]);
    let first = status.lines().next().expect("a line per table");
    assert!(
        first.contains("survives any one node crash") && first.contains("2 of 3 copies in sync"),
        "{first}"
    );

    cluster.ok(&["dev", "restart", &primary.to_string()]);
    cluster.in_sync();
    let status = cluster.ok(&["status"]);
    assert!(
        status.lines().next().expect("a line").ends_with("3 of 3 copies in sync; nobody is behind"),
        "{status}"
    );

    let before = everything(&cluster, "people");
    assert_eq!(before.lines().count(), 301);
    cluster.kill_everything();
    cluster.up();
    assert_eq!(everything(&cluster, "people"), before);
    let put = cluster.json(&["put", "people", "id=302", "name=Joan", "height=172", "--timeout", "30s"]);
    assert!(put["copies"].as_u64() >= Some(2), "{put}");
}

#[test]
fn a_node_is_sent_everything_if_that_is_asked_for() {
    // A copy that leads again does not say any more how it came back: leads stay where they are.
    let settings =
        [("UNDERSTUDY_LOG_CHECKPOINT_BYTES", "65536"), ("UNDERSTUDY_CONTROLLER_BALANCE_AFTER_MS", "600000")];
    let cluster = Cluster::with(|_| settings.map(|(name, value)| (name, value.into())).to_vec());
    // Enough for files of every partition.
    load_people(&cluster, 20_000);
    cluster.in_sync();
    let returns = |words: &[&str], full: bool| {
        cluster.ok(&["dev", "kill", "3"]);
        // Back at once, it would count as before where it led.
        eventually("every partition goes on without node 3", || {
            let status = cluster.json(&["status"]);
            let partitions = status["partitions"].as_array().expect("partitions").clone();
            let mut replicas =
                partitions.iter().flat_map(|partition| partition["replicas"].as_array().expect("replicas"));
            let counts = |replica: &serde_json::Value| {
                let role = replica["role"].as_str().expect("a role");
                replica["node"] == 3 && (role == "primary" || role == "in sync")
            };
            (!replicas.any(counts)).then_some(())
        });
        cluster.ok(&[&["dev", "restart", "3"], words].concat());
        cluster.in_sync();
        eventually("every copy on node 3 says how it came back", || {
            let status = cluster.json(&["status"]);
            let partitions = status["partitions"].as_array().expect("partitions").clone();
            let ours = partitions.iter().filter(|partition| partition["table"] == "people");
            let all: Vec<serde_json::Value> = ours
                .flat_map(|partition| partition["replicas"].as_array().expect("replicas"))
                .filter(|replica| replica["node"] == 3)
                .map(|replica| replica["failback"].clone())
                .collect();
            let back = |told: &serde_json::Value| told["stage"] == "in_sync" && told["full"] == full;
            (!all.is_empty() && all.iter().all(back)).then_some(all)
        })
    };
    let came = |told: &[serde_json::Value]| -> u64 {
        let bytes = |told: &serde_json::Value| {
            told["file_bytes"].as_u64().expect("a number") + told["row_bytes"].as_u64().expect("a number")
        };
        told.iter().map(bytes).sum()
    };
    let full = came(&returns(&["--full"], true));
    // It missed nothing.
    let delta = came(&returns(&[], false));
    assert!(full > 10_000 && delta < full / 2, "{full} bytes in full, {delta} otherwise");
    assert_eq!(cluster.ok(&["count", "people"]).trim(), "20000");
}

#[test]
fn a_frozen_primary_is_replaced_and_comes_back_level() {
    let cluster = Cluster::start();
    cluster.ok(&["table", "create", "t", "--columns", "id:int,n:int", "--key", "id", "--partitions", "1"]);
    let first = cluster.json(&["put", "t", "id=1", "n=1"]);
    let partition = first["partition"].as_u64().expect("a partition");
    let primary = cluster.primary_of(partition);
    cluster.ok(&["dev", "stop", &primary.to_string()]);
    let second = cluster.json(&["put", "t", "id=2", "n=2", "--timeout", "30s"]);
    assert!(second["epoch"].as_u64() > first["epoch"].as_u64(), "{second}");
    cluster.ok(&["dev", "heal", &primary.to_string()]);
    // What the old primary would answer now must be the new one's word.
    assert_eq!(cluster.ok(&["scan", "t", "--timeout", "30s"]).lines().count(), 2);
    cluster.in_sync();
    assert_eq!(cluster.ok(&["count", "t"]).trim(), "2");
    // Whoever has the token of a write reads it from any replica.
    let mut newest = second;
    for n in 3..20 {
        newest = cluster.json(&["put", "t", "id=2", &format!("n={n}")]);
        let token = newest["token"].as_str().expect("a token");
        let read = cluster.ok(&["get", "t", "2", "--any", "--max-lag", "10s", "--after", token, "--json"]);
        let read: serde_json::Value = serde_json::from_str(&read).expect("JSON");
        assert_eq!(read["n"], n, "{token}");
    }
    let token = newest["token"].as_str().expect("a token");
    let later = token
        .rsplit_once(':')
        .map(|(front, lsn)| format!("{front}:{}", lsn.parse::<u64>().expect("an LSN") + 1000));
    let ran =
        cluster.run(&["get", "t", "2", "--any", "--after", &later.expect("three parts"), "--timeout", "1s"]);
    assert_ne!(ran.status, 0, "nobody has what was never written: {ran:?}");
    let ran = cluster.run(&["get", "t", "2", "--any", "--after", "7:1:1"]);
    assert!(ran.status == 2 && ran.err.contains("of no partition of table t"), "{ran:?}");
}

#[test]
fn with_too_few_copies_the_error_says_what_is_left_and_what_goes_on() {
    let cluster = Cluster::start();
    cluster.ok(&["table", "create", "t", "--columns", "id:int", "--key", "id", "--partitions", "1"]);
    let put = cluster.json(&["put", "t", "id=1"]);
    let partition = put["partition"].as_u64().expect("a partition");
    let primary = cluster.primary_of(partition);
    // The primary stays, so that it knows that it is alone.
    for node in (1..=3).filter(|node| *node != primary) {
        cluster.ok(&["dev", "kill", &node.to_string()]);
    }
    let ran = cluster.run(&["put", "t", "id=2"]);
    assert_eq!(ran.status, 5, "{ran:?}");
    let left = format!("has 1 of at least 2 copies left (on n{primary})");
    assert!(ran.sentence().contains(&left), "{ran:?}");
    assert!(ran.sentence().contains("start the other nodes if they do not run"), "{ran:?}");
    let advice = "or go on with fewer: `understudy table alter t --min-in-sync 1`, or `--available`";
    assert!(ran.sentence().contains(advice), "{ran:?}");
    // Who was heard a moment ago may run.
    let dead: Vec<String> = (1..=3).filter(|node| *node != primary).map(|node| format!("n{node}")).collect();
    let lacks = "too few copies to acknowledge writes, 1 of at least 2";
    let said = format!("{lacks} (start {} again; {advice})", dead.join(", "));
    let status = || cluster.ok(&["status"]);
    eventually("the status names who is to be started", || status().contains(&said).then_some(()));
    for node in (1..=3).filter(|node| *node != primary) {
        cluster.ok(&["dev", "restart", &node.to_string()]);
    }
    cluster.in_sync();
    assert_eq!(cluster.json(&["put", "t", "id=2"])["copies"], 3);
}

#[test]
fn a_power_loss_of_everything_takes_nothing_durable() {
    let cluster = Cluster::start();
    load_people(&cluster, 200);
    let before = everything(&cluster, "people");
    cluster.ok(&["dev", "power-loss"]);
    eventually("the table is served again", || (cluster.run(&["count", "people"]).status == 0).then_some(()));
    assert_eq!(everything(&cluster, "people"), before);
}

#[test]
fn garbage_closes_its_connection_and_no_other() {
    let cluster = Cluster::start();
    cluster.ok(&["table", "create", "t", "--columns", "id:int", "--key", "id"]);
    let file = cluster.file();
    let mut listeners = vec![cluster.controller()];
    for node in file["nodes"].as_array().expect("nodes") {
        for listener in ["client", "peer", "heartbeat", "http"] {
            listeners.push(node["addresses"][listener].as_str().expect("an address").to_string());
        }
    }
    // Somebody who has said nothing yet is not to be harmed by what others say.
    let mut quiet: Vec<_> = listeners.iter().map(|listener| connect(listener)).collect();
    for listener in &listeners {
        let mut stream = connect(listener);
        let garbage: Vec<u8> = (0..4096u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        // It may be closed before all of it is written.
        let _ = stream.write_all(&garbage);
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{listener}: {error}")
            }
        }
    }
    for (stream, listener) in quiet.iter_mut().zip(&listeners) {
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
        let read = stream.read(&mut [0; 16]).map_err(|error| error.kind());
        assert!(!matches!(read, Ok(0)), "{listener} closed a connection that did nothing");
    }
    let put = cluster.json(&["put", "t", "id=1"]);
    assert_eq!(put["epoch"], 1, "no partition changed hands: {put}");
}

#[test]
fn bad_input_is_refused_and_nothing_is_half_done() {
    let cluster = Cluster::start();
    let fails = |words: &[&str], status: i32, says: &str| {
        let ran = cluster.run(words);
        assert_eq!(ran.status, status, "{words:?}: {ran:?}");
        assert!(ran.sentence().contains(says), "{words:?} should say {says:?}: {}", ran.err);
        ran
    };
    cluster.write("bad.csv", "id,name\n1,a\nx,b\n3\n,d\n5,e\n");
    let load = ["load", "bad.csv", "--table", "t", "--key", "id", "--create", "--types", "id:int"];
    let ran = fails(&load, 1, "3 of 5 rows of bad.csv are malformed, so nothing was loaded");
    for line in ["bad.csv line 3, column `id`", "bad.csv line 4: it has 1 field,", "bad.csv line 5"] {
        assert!(ran.err.contains(line), "{line}: {}", ran.err);
    }
    fails(&["count", "t"], 3, "there is no table `t`");
    let skipped = cluster.json(&[&load[..], &["--on-error", "skip", "--bad-rows", "left.csv"]].concat());
    assert_eq!((&skipped["rows"], &skipped["bad_rows"]), (&2.into(), &3.into()));
    let left = std::fs::read_to_string(cluster.path("left.csv")).expect("kept");
    assert_eq!(left, "id,name\nx,b\n3\n,d\n");
    assert_eq!(cluster.ok(&["count", "t"]).trim(), "2");

    fails(&load, 1, "exists already");
    fails(&["get", "t", "x"], 2, "not an int");
    fails(&["get", "t", "1", "2"], 2, "1 column (id)");
    fails(&["get", "t", "99"], 3, "there is no row");
    fails(&["delete", "t", "99"], 3, "there is no row");
    fails(&["insert", "t", "id=1"], 1, "exists already");
    fails(&["put", "t", "id=1", "colour=red"], 2, "no column `colour`");
    fails(&["put", "t", r#"{"id": "one"}"#], 2, "`id`");
    fails(&["load", "bad.csv", "--table", "none"], 3, "--create");
    fails(&["load", "bad.csv", "--table", "t", "--key", "name"], 1, "the key of table `t` is id");
    let create = ["table", "create", "u", "--columns", "id:int", "--key", "id"];
    fails(&[&create[..], &["--factor", "5"]].concat(), 5, "only 3 nodes are live");
    fails(&[&create[..], &["--policy", "triplet"]].concat(), 2, "not available yet");
    fails(&[&create[..], &["--policy", "strong"]].concat(), 2, "there is no policy 'strong'");
    fails(&[&create[..], &["--log", "memory"]].concat(), 2, "log = disk");
    fails(&[&create[..], &["--min-in-sync", "4"]].concat(), 2, "min_in_sync 4");
    fails(&["table", "create", "1u", "--columns", "id:int", "--key", "id"], 2, "letters");
    fails(&["table", "drop", "t"], 5, "--yes");
    fails(&["table", "drop", "u", "--yes"], 3, "'u'");
    fails(&["switchover", "t/9"], 3, "partitions 0 to 5");
    fails(&["partition", "recover", "t/0"], 5, "--yes");
    let listed = cluster.ok(&["table", "list", "--json"]);
    let of_users = listed.lines().filter(|line| !line.contains("\"table\":\"sys_"));
    assert_eq!(of_users.count(), 1, "only the table that was meant: {listed}");
    foreign_directories(&cluster);
}

/// A node on another cluster's data, on a port in use, on data in use: it does not start, and nothing
/// changes.
fn foreign_directories(cluster: &Cluster) {
    cluster.ok(&["init", "other", "--node", "9"]);
    let path = cluster.path("other/node.id");
    let text = std::fs::read_to_string(&path).expect("made");
    let mut id: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    id["cluster"] = 12345.into();
    std::fs::write(&path, id.to_string()).expect("writable");
    let config = |dir: &str, client: &str| {
        format!(
            "[node]\ndata_dir = \"{dir}\"\ncontrollers = [\"{}\"]\nlisten_client = \"{client}\"\nlisten_peer = \
             \"127.0.0.1:0\"\nlisten_heartbeat = \"127.0.0.1:0\"\nlisten_http = \"127.0.0.1:0\"\n[sql]\nlisten = \"off\"\n",
            cluster.controller()
        )
    };
    let refused = |text: String, status: &[i32], says: &str| {
        cluster.write("node.toml", &text);
        let ran = cluster.run(&["node", "--config", "node.toml"]);
        assert!(status.contains(&ran.status), "{ran:?}");
        assert!(ran.sentence().contains(says), "should say {says:?}: {}", ran.err);
    };
    refused(config("other", "127.0.0.1:0"), &[5], "another cluster's data directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("a port").to_string();
    refused(config("other", &address), &[1], "is in use");
    let used = cluster.file()["nodes"][0]["data_dir"].as_str().expect("a path").to_string();
    refused(config(&used, "127.0.0.1:0"), &[5], "in use");
    let nodes = cluster.ok(&["node", "list", "--json"]);
    assert_eq!(nodes.lines().count(), 3, "{nodes}");

    // A node that opens its doors and is then turned away was not started.
    let path = std::path::Path::new(&used).join("node.id");
    let own = std::fs::read_to_string(&path).expect("made");
    let mut id: serde_json::Value = serde_json::from_str(&own).expect("JSON");
    id["cluster"] = 12345.into();
    cluster.ok(&["dev", "kill", "1"]);
    std::fs::write(&path, id.to_string()).expect("writable");
    let ran = cluster.run(&["dev", "restart", "1"]);
    assert!(ran.status == 1 && ran.sentence().contains("another cluster's data directory"), "{ran:?}");
    std::fs::write(&path, own).expect("writable");
    cluster.ok(&["dev", "restart", "1"]);
}

#[test]
fn a_feed_that_is_killed_goes_on_without_skipping_or_repeating() {
    let cluster = Cluster::start();
    cluster.ok(&["table", "create", "people", "--columns", "id:int,name:text,height:float", "--key", "id"]);
    let all = people(2000);
    let half = all.lines().take(1001).map(|line| format!("{line}\n")).collect::<String>();
    cluster.write("people.csv", &half);
    let mut feed = common::understudy(cluster.dir.path());
    let feed = feed.args(["ingest", "people.csv", "--table", "people", "--follow", "--batch", "50"]);
    let mut feed =
        feed.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().expect("runs");
    let count =
        || cluster.ok(&["count", "people", "--timeout", "30s"]).trim().parse::<u64>().expect("a number");
    eventually("some rows are in", || (count() > 100).then_some(()));
    cluster.write("people.csv", &all);
    feed.kill().expect("ours");
    feed.wait().expect("ours");
    let there = eventually("what was on its way has arrived", || {
        let once = count();
        (once == count()).then_some(once)
    });
    let rest = cluster.json(&["ingest", "people.csv", "--table", "people", "--timeout", "30s"]);
    assert_eq!(rest["rows"].as_u64(), Some(2000 - there), "{rest}");
    assert_eq!((&rest["position"], count()), (&2000.into(), 2000));
    let again = cluster.json(&["ingest", "people.csv", "--table", "people", "--timeout", "30s"]);
    assert_eq!(again["rows"], 0, "{again}");
}

#[test]
fn a_directory_is_followed_until_ctrl_c() {
    let cluster = Cluster::start();
    cluster.ok(&["table", "create", "t", "--columns", "id:int", "--key", "id"]);
    std::fs::create_dir(cluster.path("in")).expect("makes");
    cluster.write("in/b.csv", "id\n3\n4\n");
    cluster.write("in/a.csv", "id\n1\n2\n");
    let mut feed = common::understudy(cluster.dir.path());
    let feed = feed.args(["ingest", "in", "--table", "t", "--follow", "--json"]);
    let feed =
        feed.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("runs");
    let count = || cluster.ok(&["count", "t"]).trim().to_string();
    eventually("the first files are in", || (count() == "4").then_some(()));
    cluster.write("in/c.tmp", "id\n5\n6\n");
    std::fs::rename(cluster.path("in/c.tmp"), cluster.path("in/c.csv")).expect("renames");
    eventually("the new file is in", || (count() == "6").then_some(()));
    signal(feed.id().into(), "INT");
    let ended = feed.wait_with_output().expect("a child");
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    assert_eq!(
        (&report["rows"], &report["sources"], &report["stopped"]),
        (&6.into(), &3.into(), &true.into())
    );

    // Once more, with a bad record: what was in is told over all files, and the bad one is kept though nobody
    // named a file.
    cluster.write("in/d.csv", "id\n7\nx\n");
    let again = cluster.json(&["ingest", "in", "--table", "t", "--on-error", "skip"]);
    assert_eq!((&again["rows"], &again["already_in"], &again["bad_rows"]), (&1.into(), &6.into(), &1.into()));
    assert_eq!(again["bad_rows_file"], "in.bad");
    assert_eq!(std::fs::read_to_string(cluster.path("in.bad")).expect("kept"), "x\n");
}

#[test]
fn operators_move_leads_and_the_shell_reads_a_script() {
    let cluster = Cluster::start();
    cluster.ok(&["table", "create", "t", "--columns", "id:int,n:int", "--key", "id", "--partitions", "3"]);
    // A new table's leads have to be taken over first, and its copies to be in sync: the command waits for
    // both.
    let line = cluster.json(&["switchover", "t/0", "--to", "3", "--timeout", "30s"]);
    let partition = line["partition"].as_u64().expect("a partition");
    assert_eq!(cluster.primary_of(partition), 3);
    cluster.ok(&["table", "alter", "t", "--policy", "sync", "--available"]);
    let listed = cluster.ok(&["table", "list", "--json"]);
    let parsed = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    // Beside a system table, if the machine was so busy that a node was missed.
    let table = listed.lines().map(parsed).find(|table| table["table"] == "t").expect("it is listed");
    assert_eq!((&table["policy"], &table["below"]), (&"sync".into(), &"available".into()));
    let mut shell = common::understudy(cluster.dir.path());
    let mut shell = shell
        .arg("shell")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("runs");
    let script = "# a comment\nput t id=1 'n=-2'\ncount t\nget t 1 --json\nbogus\ncount t\n";
    shell.stdin.take().expect("piped").write_all(script.as_bytes()).expect("it reads");
    let ended = shell.wait_with_output().expect("a child");
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!(ended.status.code(), Some(2), "{err}");
    assert!(out.contains("put t 1: LSN") && out.ends_with("1\n{\"id\":1,\"n\":-2}\n"), "{out}");
    assert!(err.contains("understudy: unrecognized subcommand 'bogus'"), "{err}");
    cluster.ok(&["node", "drain", "3"]);
    eventually("node 3 leads nothing", || (cluster.primary_of(partition) != 3).then_some(()));
    let drained = |json: bool| {
        let listed = cluster.ok(if json { &["node", "list", "--json"] } else { &["node", "list"] });
        let of = |line: &&str| {
            line.contains(if json { "\"drained\":true" } else { "drained: leads nothing until" })
        };
        listed.lines().filter(of).count()
    };
    eventually("the list says who is drained", || (drained(true) == 1).then_some(()));
    assert_eq!(drained(false), 1);
    cluster.ok(&["dev", "restart", "3"]);
    eventually("a node that starts again takes part again", || (drained(true) == 0).then_some(()));
}

#[test]
fn a_stopped_nodes_log_is_verified() {
    let mut cluster = Cluster::start();
    load_people(&cluster, 100);
    let file = cluster.file();
    let nodes = file["nodes"].as_array().expect("nodes");
    let dirs: Vec<String> =
        nodes.iter().map(|node| node["data_dir"].as_str().expect("a path").into()).collect();
    let busy = cluster.run(&["log", "verify", "--data-dir", &dirs[0]]);
    assert_eq!((busy.status, busy.sentence().contains("in use")), (5, true), "{busy:?}");
    cluster.kill_everything();
    for dir in &dirs {
        let verified = cluster.json(&["log", "verify", "--data-dir", dir]);
        assert!(
            verified["entries"].as_u64() >= Some(6) && verified["damage"] == serde_json::json!([]),
            "{verified}"
        );
    }
    // A copy that was put out and taken in again may have its rows from a scan: then they are not in its log.
    let rows = |dir: &String| -> u64 {
        let dumped = cluster.ok(&["log", "dump", "--data-dir", dir, "--json"]);
        let line =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["rows"].as_u64();
        dumped.lines().filter_map(line).sum()
    };
    let dir = dirs.iter().max_by_key(|dir| rows(dir)).expect("three nodes").clone();
    assert!(rows(&dir) > 0, "no log has rows");
    let log = std::path::Path::new(&dir).join("log");
    let mut hit = false;
    for segment in std::fs::read_dir(&log).expect("there").map(|item| item.expect("readable").path()) {
        let mut bytes = std::fs::read(&segment).expect("readable");
        if let Some(place) = bytes.windows(7).position(|window| window == b"person ") {
            bytes[place] ^= 0x20;
            std::fs::write(&segment, bytes).expect("writable");
            hit = true;
            break;
        }
    }
    assert!(hit, "no row is in the log of {dir}");
    let damaged = cluster.run(&["log", "verify", "--data-dir", &dir]);
    assert_eq!(damaged.status, 6, "{damaged:?}");
    assert!(damaged.sentence().contains("damaged"), "{damaged:?}");
}
