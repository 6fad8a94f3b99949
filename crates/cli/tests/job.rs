//! `load --job` on real clusters: one answer at the end, and where it is an abort, what it says is what is in
//! the table.

mod common;

use common::{Cluster, eventually, signal, understudy};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Stdio;

/// Rows with these keys, in this order, which is that of the job's records.
fn rows(name: &str, keys: impl Iterator<Item = u64>) -> String {
    let mut text = String::from("id,name,n\n");
    for id in keys {
        text.push_str(&format!("{id},{name} {},{}\n", "x".repeat(60), id * 3));
    }
    text
}

fn create(cluster: &Cluster, policy: &str) {
    let columns = "id:int,name:text,n:int";
    let made = ["table", "create", "t", "--columns", columns, "--key", "id", "--partitions", "4"];
    cluster.ok(&[&made[..], &["--policy", policy]].concat());
}

/// The keys of the table's rows with this name, as its primaries have them.
fn keys(cluster: &Cluster, name: &str) -> BTreeSet<u64> {
    let scanned = eventually("a table that can be read", || {
        let ran = cluster.run(&["scan", "t", "--json"]);
        (ran.status == 0).then_some(ran)
    });
    let row = |line| serde_json::from_str::<Value>(line).expect("a row");
    let rows: Vec<Value> = scanned.out.lines().map(row).collect();
    let named = rows.iter().filter(|row| row["name"].as_str().is_some_and(|text| text.starts_with(name)));
    named.map(|row| row["id"].as_u64().expect("a key")).collect()
}

/// The records that the report calls committed.
fn committed(report: &Value) -> BTreeSet<u64> {
    let bound = |range: &Value, at: usize| range[at].as_u64().expect("a number");
    let ranges = report["ranges"].as_array().expect("ranges");
    ranges.iter().flat_map(|range| bound(range, 0)..=bound(range, 1)).collect()
}

#[test]
fn a_job_is_answered_once_and_an_insert_of_a_key_that_is_there_aborts_it() {
    let cluster = Cluster::start();
    create(&cluster, "durable");
    cluster.write("first.csv", &rows("first", 1..=20_000));
    let report = cluster.json(&["load", "first.csv", "--table", "t", "--job", "--insert"]);
    assert_eq!((&report["committed"], report["rows"].as_u64()), (&true.into(), Some(20_000)), "{report}");
    assert_eq!(report["all_through"].as_u64(), Some(20_000), "{report}");
    // A node that has no processor for a while is no member meanwhile; the policy asks for two.
    assert!(report["copies"].as_u64().is_some_and(|copies| (2..=3).contains(&copies)), "{report}");
    assert_eq!(cluster.ok(&["count", "t"]).trim(), "20000");
    // The 5,001st record has a key that is there: what the report says is in, and nothing else.
    let order = (30_001..=35_000).chain([7]).chain(35_001..=50_000);
    cluster.write("second.csv", &rows("second", order.clone()));
    let ran = cluster.run(&["load", "second.csv", "--table", "t", "--job", "--insert", "--json"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.sentence().contains("record 5001 was refused: a row with its key exists already"), "{ran:?}");
    let report = ran.object();
    assert_eq!((&report["committed"], &report["ranges_whole"]), (&false.into(), &true.into()), "{report}");
    assert_eq!(
        (&report["refused"]["record"], &report["refused"]["reason"]),
        (&5_001.into(), &"exists".into())
    );
    // Each partition stops by itself when one has refused: some had not come to record 5,000 then.
    let all_through = report["all_through"].as_u64().expect("a number");
    let done = committed(&report);
    let first_left_out = (1..).find(|record| !done.contains(record)).expect("not all are done");
    assert!(all_through <= 5_000 && all_through == first_left_out - 1, "{first_left_out}: {report}");
    let numbered: Vec<u64> = order.collect();
    let said: BTreeSet<u64> =
        committed(&report).into_iter().map(|record| numbered[record as usize - 1]).collect();
    assert_eq!(said, keys(&cluster, "second"), "{report}");
    assert_eq!(report["rows"].as_u64(), Some(said.len() as u64), "{report}");
    assert!(cluster.ok(&["get", "t", "7"]).contains("first"));
    // Said to people.
    let ran = cluster.run(&["load", "second.csv", "--table", "t", "--job", "--insert"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(
        ran.out.contains("committed: nothing") && ran.out.contains("not committed: everything else"),
        "{ran:?}"
    );
    let ran = cluster.run(&["load", "second.csv", "--table", "t", "--insert"]);
    assert_eq!(ran.status, 2, "--insert is of --job: {ran:?}");
}

/// Loads a file whose 40,001st record is refused, kills a primary on the way, and compares the report with
/// the table.
fn abort_while_a_primary_dies(policy: &str) {
    let cluster = Cluster::start();
    create(&cluster, policy);
    cluster.write("first.csv", &rows("first", 1..=100));
    cluster.ok(&["load", "first.csv", "--table", "t"]);
    let order = (101..=40_100).chain([50]).chain(40_101..=60_000);
    cluster.write("second.csv", &rows("second", order.clone()));
    let victim = cluster.primary_of(64);
    let mut load = understudy(cluster.dir.path());
    load.args(["load", "second.csv", "--table", "t", "--job", "--insert", "--batch", "100", "--json"]);
    let mut load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    eventually("rows of the job", || {
        let counted = cluster.ok(&["count", "t"]).trim().parse::<u64>().expect("a number");
        (counted > 500).then_some(())
    });
    let nodes = cluster.file()["nodes"].as_array().expect("a list").clone();
    let dead =
        nodes.iter().find(|node| node["id"] == victim || node["node"] == victim).expect("it is listed");
    signal(dead["process"]["pid"].as_i64().expect("it runs"), "KILL");
    assert!(load.try_wait().expect("it is ours").is_none(), "the job ended before the primary did");
    let ended = load.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&ended.stdout).expect("one object");
    assert_eq!(
        (&report["committed"], report["rows_unknown"].as_u64()),
        (&false.into(), Some(0)),
        "{report} {said}"
    );
    // The numbers of rows by partition are exact in any case; the ranges where the report says so.
    let there = keys(&cluster, "second");
    assert_eq!(report["rows"].as_u64(), Some(there.len() as u64), "{said}");
    let numbered: Vec<u64> = order.collect();
    let listed: BTreeSet<u64> =
        committed(&report).into_iter().map(|record| numbered[record as usize - 1]).collect();
    match report["ranges_whole"].as_bool() {
        Some(true) => assert_eq!(listed, there, "{said}"),
        _ => assert!(listed.is_subset(&there), "{said}"),
    }
    if policy == "durable" {
        // Where the dead one led, records before that may not have been sent yet.
        assert!(said.contains("record 40001 was refused"), "{said}");
    }
    assert_ne!(cluster.primary_of(64), victim, "{said}");
    // What was told stays when the dead one comes back.
    cluster.run(&["dev", "restart", &victim.to_string()]);
    cluster.in_sync();
    assert_eq!(keys(&cluster, "second"), there);
}

#[test]
fn the_report_of_an_aborted_job_is_what_is_in_the_table_when_a_primary_dies() {
    abort_while_a_primary_dies("durable");
}

#[test]
fn pr82_and_so_it_is_where_acknowledgements_can_be_lost() {
    abort_while_a_primary_dies("async");
}

#[test]
fn ctrl_c_aborts_a_job_and_says_what_is_in() {
    let cluster = Cluster::start();
    create(&cluster, "durable");
    cluster.write("rows.csv", &rows("some", 1..=400_000));
    let mut load = understudy(cluster.dir.path());
    load.args(["load", "rows.csv", "--table", "t", "--job", "--batch", "20", "--json"]);
    let load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    eventually("rows of the job", || {
        (cluster.ok(&["count", "t"]).trim().parse::<u64>().expect("a number") > 100).then_some(())
    });
    signal(i64::from(load.id()), "INT");
    let ended = load.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("was aborted: stopped"), "{said}");
    let report: Value = serde_json::from_slice(&ended.stdout).expect("one object");
    let there = keys(&cluster, "some");
    assert_eq!((report["ranges_whole"].as_bool(), committed(&report)), (Some(true), there), "{said}");
}
