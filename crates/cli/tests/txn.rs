//! `txn status`, `txn recover` and `txn skip` as an operator uses them, on a cluster of real processes.

mod common;

use common::{Cluster, eventually};
use serde_json::{Value, json};

/// A database of global transactions with one table and one row.
fn ledger(cluster: &Cluster, partitions: &str) {
    let create = ["database", "create", "ledger", "--partitions", partitions, "--transactions", "global"];
    cluster.ok(&create);
    let columns = ["--columns", "id:int,n:int", "--key", "id"];
    cluster.ok(&[&["table", "create", "accounts", "--database", "ledger"][..], &columns].concat());
    put(cluster, 1);
}

fn put(cluster: &Cluster, id: u64) {
    let (key, n) = (format!("id={id}"), format!("n={}", 100 + id));
    cluster.ok(&["put", "ledger.accounts", &key, &n, "--timeout", "60s"]);
}

/// Every object of `txn status --json`; none: it fails.
fn asked(cluster: &Cluster) -> Option<Vec<Value>> {
    let ran = cluster.run(&["txn", "status", "--json"]);
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    (ran.status == 0).then(|| ran.out.lines().map(read).collect())
}

/// Partitions of the ledger, what was given up, and the object behind them.
fn parts(all: &[Value]) -> (Vec<&Value>, Vec<&Value>, &Value) {
    let partitions = all.iter().filter(|object| object["database"] == "ledger").collect();
    let given_up = all.iter().filter(|object| object["given_up"].is_u64()).collect();
    (partitions, given_up, all.last().expect("at least one object"))
}

/// Waits for a status that is as wanted.
fn status(cluster: &Cluster, what: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    eventually(what, || asked(cluster).filter(|all| wanted(all)))
}

fn is_level(all: &[Value]) -> bool {
    let (partitions, ..) = parts(all);
    !partitions.is_empty() && partitions.iter().all(|partition| partition["state"] == "level")
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// `(term,lsn)`.
fn position(text: &Value) -> (u64, u64) {
    let text = text.as_str().expect("a position");
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let (term, lsn) = inner.and_then(|inner| inner.split_once(',')).expect("(term,lsn)");
    (term.parse().expect("a number"), lsn.parse().expect("a number"))
}

#[test]
fn the_state_of_transactions_is_shown_and_partitions_are_named_as_they_are_printed() {
    let cluster = Cluster::start();
    for words in [&["txn", "status"][..], &["txn", "recover", "p66"], &["txn", "skip", "66", "--accept-loss"]]
    {
        let ran = cluster.run(words);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.sentence().starts_with("there are no global transactions"), "{ran:?}");
    }
    ledger(&cluster, "3");
    let none = json!({ "transactions": 0, "senders": 0, "oldest_ms": null });
    let all = status(&cluster, "all is secured, and nobody is counted any more", |all| {
        is_level(all) && parts(all).2["stages"]["executing"] == none
    });
    let (partitions, given_up, last) = parts(&all);
    assert_eq!((partitions.len(), given_up.len()), (3, 0), "{all:?}");
    let mut expected =
        "database partition committed flushed secured state holds_flushed_back holds_secured_back"
            .split(' ')
            .collect::<Vec<_>>();
    expected.sort_unstable();
    for partition in &partitions {
        let mut found = keys(partition);
        found.sort_unstable();
        assert_eq!(found, expected, "{partition}");
        assert!(partition["partition"].is_u64(), "{partition}");
        assert_eq!(partition["committed"], partition["flushed"], "{partition}");
        assert_eq!(partition["committed"], partition["secured"], "{partition}");
        assert!(position(&partition["committed"]) > (0, 0), "{partition}");
        let holds = (&partition["holds_flushed_back"], &partition["holds_secured_back"]);
        assert_eq!(holds, (&json!(false), &json!(false)), "{partition}");
    }
    let stages = &last["stages"];
    for stage in ["committed", "flushed", "persisted"] {
        assert!(stages[stage]["commits"].is_u64(), "{stage} in {last}");
        let oldest = &stages[stage]["oldest_ms"];
        assert_eq!(oldest.is_null(), stages[stage]["commits"] == 0, "{stage} in {last}");
    }
    // They were made in this minute: they are kept for one.
    assert!(stages["persisted"]["commits"].as_u64() >= Some(1), "{last}");
    assert!(stages["committed_in_term"].as_u64() >= Some(1), "{last}");
    assert!(stages["aborted_in_term"].is_u64() && stages["kept_bytes"].as_u64() > Some(0), "{last}");
    assert_eq!(stages["flushed_upto"], stages["secured_upto"], "{last}");
    assert!(position(&stages["secured_upto"]) > position(&last["truncated"]), "{last}");
    assert!(last["alarm"].is_null(), "{last}");

    let text = cluster.ok(&["txn", "status"]);
    for says in ["DATABASE", "executing: 0 transactions", "persisted: ", "since the manager leads: "] {
        assert!(text.to_lowercase().contains(&says.to_lowercase()), "{says} in {text}");
    }
    assert!(!text.contains("alarm"), "{text}");
    partitions_have_names(&cluster, partitions[0]);
}

/// A number, the number behind a `p`, and a place in a table name the same partition.
fn partitions_have_names(cluster: &Cluster, partition: &Value) {
    let number = partition["partition"].as_u64().expect("a number");
    let first = cluster.json(&["txn", "recover", "ledger.accounts/0"])["partition"].clone();
    assert!(first.is_u64(), "{first}");
    for name in [number.to_string(), format!("p{number}")] {
        let done = cluster.json(&["txn", "recover", &name]);
        assert_eq!(done["partition"], number, "{done}");
        assert_eq!((&done["had"], &done["has"]), (&partition["flushed"], &partition["committed"]), "{done}");
        assert!(done["kept_alone"].is_null(), "{done}");
        let text = cluster.ok(&["txn", "recover", &name]);
        let has = partition["committed"].as_str().expect("a position");
        assert_eq!(text.trim(), format!("partition p{number} has every commit up to {has}"));
        // Nothing is lost, so nothing can be given up, whatever is accepted.
        for more in [&[][..], &["--accept-loss"]] {
            let ran = cluster.run(&[&["txn", "skip", &name][..], more].concat());
            let says = format!("nothing is to be given up: what partition p{number} lacks is kept");
            assert!(ran.status == 2 && ran.sentence().starts_with(&says), "{ran:?}");
        }
    }
    for (name, status, says) in [
        ("x66", 2, "names no partition"),
        ("p", 2, "names no partition"),
        ("-1", 2, ""),
        ("p+66", 2, "names no partition"),
        ("p4000000", 2, "no global transaction has written in partition p4000000"),
        ("ledger.accounts/3", 3, "has partitions 0 to 2"),
    ] {
        for command in ["recover", "skip"] {
            let ran = cluster.run(&["txn", command, name]);
            assert!(ran.status == status && ran.err.contains(says), "{command} {name}: {ran:?}");
        }
    }
}

/// In `status`, a partition's line.
fn line(cluster: &Cluster, partition: u64) -> Option<Value> {
    let ran = cluster.run(&["status", "--json"]);
    let seen = (ran.status == 0).then(|| ran.object())?;
    seen["partitions"].as_array()?.iter().find(|line| line["partition"] == partition).cloned()
}

/// A copy is forced to lead that lacks what all others had secured, and what the manager keeps no more.
#[test]
fn pr293_commits_that_are_kept_nowhere_are_named_and_given_up_by_an_operators_word() {
    let cluster = Cluster::start();
    ledger(&cluster, "1");
    let all = status(&cluster, "all is secured", is_level);
    let partition = parts(&all).0[0]["partition"].as_u64().expect("a number");
    let first = parts(&all).0[0]["committed"].clone();
    let primary = cluster.primary_of(partition);
    let behind = (1..=3).find(|node| *node != primary).expect("three nodes");
    let others: Vec<u64> = (1..=3).filter(|node| *node != behind).collect();
    cluster.ok(&["dev", "kill", &behind.to_string()]);
    eventually("no partition counts the copies of the node that ended", || {
        let ran = cluster.run(&["status", "--json"]);
        let seen = (ran.status == 0).then(|| ran.object())?;
        let without =
            |line: &Value| line["in_sync"].as_array().is_some_and(|nodes| !nodes.contains(&json!(behind)));
        seen["partitions"].as_array()?.iter().all(without).then_some(())
    });
    put(&cluster, 2);
    let all = status(&cluster, "two copies have the second commit", |all| {
        is_level(all) && parts(all).0[0]["committed"] != first
    });
    let second = parts(&all).0[0]["committed"].clone();
    // A commit is kept for a minute: two waits, as each of them ends before the other one could.
    let is_removed = |all: &[Value]| position(&parts(all).2["truncated"]) >= position(&second);
    status(&cluster, "the first commit is removed", |all| {
        position(&parts(all).2["truncated"]) >= position(&first)
    });
    status(&cluster, "the second commit is removed", is_removed);

    others.iter().for_each(|node| drop(cluster.ok(&["dev", "kill", &node.to_string()])));
    cluster.ok(&["dev", "restart", &behind.to_string()]);
    let name = format!("p{partition}");
    let node = behind.to_string();
    eventually("the copy that is behind is forced to lead", || {
        let ran = cluster.run(&["partition", "recover", &name, "--node", &node, "--yes"]);
        (ran.status == 0).then_some(())
    });
    eventually("it leads", || (line(&cluster, partition)?["primary"] == behind).then_some(()));
    others.iter().for_each(|node| drop(cluster.ok(&["dev", "restart", &node.to_string()])));
    let all = status(&cluster, "the partition says what it lacks", |all| {
        parts(all).0.first().is_some_and(|partition| partition["state"] == "flushing")
    });
    let shown = parts(&all).0[0];
    assert_eq!((&shown["committed"], &shown["flushed"]), (&second, &first), "{shown}");
    assert_eq!(shown["holds_flushed_back"], true, "{shown}");
    given_up(&cluster, &name, (&first, &second));
}

/// The operator is told three times before anything is done, and can read afterwards what was.
fn given_up(cluster: &Cluster, name: &str, (from, upto): (&Value, &Value)) {
    let (from_text, upto_text) = (from.as_str().expect("a position"), upto.as_str().expect("a position"));
    let read = cluster.run(&["get", "ledger.accounts", "1"]);
    let says =
        format!("partition {name} has commits up to {from_text}, and the next ones are not kept any more");
    assert!(read.status != 0 && read.sentence().contains(&says), "{read:?}");
    let refused = cluster.run(&["txn", "recover", name]);
    let advice = format!("`understudy txn skip {name}` gives them up");
    assert!(refused.status == 1 && refused.sentence().ends_with(&advice), "{refused:?}");
    let lost = format!(
        "partition {name} has commits up to {from_text}, and those up to {upto_text} are kept nowhere"
    );
    let refused = cluster.run(&["txn", "skip", name]);
    assert_eq!(
        (refused.status, refused.sentence()),
        (2, &*format!("{lost}; with --accept-loss they are given up"))
    );
    assert!(parts(&asked(cluster).expect("answered")).1.is_empty(), "nothing was done");

    let done = cluster.json(&["txn", "skip", name, "--accept-loss"]);
    assert_eq!(done["given_up"], json!({ "from": from, "upto": upto }), "{done}");
    let row = |id: &str| cluster.run(&["get", "ledger.accounts", id, "--timeout", "60s"]);
    assert_eq!(row("1").status, 0, "what it has is read again");
    assert_ne!(row("2").status, 0, "what was lost is not there");
    put(cluster, 3);
    assert_eq!(row("3").status, 0);
    let all = status(cluster, "all is secured again", is_level);
    let (_, noted, _) = parts(&all);
    assert_eq!(noted.len(), 1, "{all:?}");
    assert_eq!((&noted[0]["from"], &noted[0]["upto"]), (from, upto), "{all:?}");
    assert!(noted[0]["when_ms"].as_u64() > Some(1_600_000_000_000), "{all:?}");
    let text = cluster.ok(&["txn", "status"]);
    let says = format!("commits of partition {name} above {from_text} up to {upto_text} were given up");
    assert!(text.contains(&says), "{says} in {text}");
    let again = cluster.run(&["txn", "skip", name, "--accept-loss"]);
    assert!(again.sentence().starts_with("nothing is to be given up"), "{again:?}");
}
