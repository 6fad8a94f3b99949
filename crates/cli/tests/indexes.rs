//! Indexes on a cluster of real processes: created while rows are there, kept up to date, read by, listed and
//! dropped.

mod common;

use common::Cluster;

/// The lines of a scan, in order.
fn sorted(out: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn an_index_is_created_used_and_dropped() {
    let cluster = Cluster::start();
    let create =
        ["table", "create", "pets", "--columns", "id:int,kind:text,age:int,notes:json", "--key", "id"];
    cluster.ok(&[&create[..], &["--partitions", "4"]].concat());
    let rows: String = (0..300)
        .map(|id| {
            let kind = if id % 10 == 0 {
                "null".to_string()
            } else {
                format!("\"{}\"", ["cat", "dog", "owl"][id % 3])
            };
            format!("{{\"id\": {id}, \"kind\": {kind}, \"age\": {}}}\n", id % 20)
        })
        .collect();
    cluster.write("pets.ndjson", &rows);
    cluster.ok(&["load", "pets.ndjson", "--table", "pets"]);

    let scan = |conditions: &[&str]| {
        let words: Vec<&str> = conditions.iter().flat_map(|condition| ["--where", condition]).collect();
        let ran = cluster.run(&[&["scan", "pets", "--json"], &words[..]].concat());
        assert_eq!(ran.status, 0, "{ran:?}");
        (ran.out, ran.err.trim().to_string())
    };
    let questions: [&[&str]; 5] = [
        &["kind = cat"],
        &["kind = 'dog'", "age >= 15"],
        &["kind >= cat", "kind < owl"],
        &["age BETWEEN 3 AND 4"],
        &["age > 100"],
    ];
    let before: Vec<String> = questions.iter().map(|question| scan(question).0).collect();
    assert_eq!(before[0].lines().count(), 90, "{}", before[0]);
    assert_eq!(scan(&["kind = cat"]).1, "no index fits: every row is read");

    let made = cluster.json(&["index", "create", "pets", "kind", "--wait"]);
    assert_eq!((&made["index"], &made["state"]), (&"pets_kind_idx".into(), &"ready".into()), "{made}");
    assert_eq!((&made["ready_partitions"], &made["indexed_rows"]), (&4.into(), &300.into()), "{made}");
    cluster.ok(&["index", "create", "pets", "kind,age", "--name", "both", "--wait"]);
    cluster.ok(&["index", "create", "pets", "age", "--wait"]);
    let by = ["pets_kind_idx", "both", "pets_kind_idx", "pets_age_idx", "pets_age_idx"];
    for ((question, before), by) in questions.iter().zip(&before).zip(by) {
        let (out, said) = scan(question);
        assert_eq!((sorted(&out), said), (sorted(before), format!("by index {by}")), "{question:?}");
    }

    // What is written from now on is in them, whoever leads.
    cluster.ok(&["put", "pets", "id=1000", "kind=emu", "age=1"]);
    cluster.ok(&["put", "pets", "id=1", "kind=emu", "age=1"]);
    cluster.ok(&["delete", "pets", "2"]);
    cluster.ok(&["dev", "kill", "1"]);
    let found = cluster.run(&["scan", "pets", "--where", "kind = emu", "--json", "--timeout", "30s"]);
    assert_eq!((found.status, found.out.lines().count()), (0, 2), "{found:?}");
    assert!(!scan(&["kind = owl"]).0.contains("\"id\":2,"));
    assert_eq!(cluster.ok(&["count", "pets", "--timeout", "30s"]).trim(), "300", "index rows are no rows");
    refused_and_dropped(&cluster);
}

fn refused_and_dropped(cluster: &Cluster) {
    let long = format!("kind={}", "x".repeat(40_000));
    let refused = cluster.run(&["put", "pets", "id=5", &long]);
    assert!(refused.status == 1 && refused.sentence().contains("cannot be indexed"), "{}", refused.err);

    assert_eq!(cluster.ok(&["index", "list", "pets"]).lines().count(), 4);
    cluster.ok(&["index", "drop", "pets", "both"]);
    let gone = cluster.run(&["index", "drop", "pets", "both"]);
    assert_eq!((gone.status, gone.sentence()), (3, "table 'pets' has no index 'both'"));
    let wrong = cluster.run(&["index", "create", "pets", "notes"]);
    assert_eq!((wrong.status, wrong.sentence().contains("of type json")), (2, true), "{wrong:?}");
    let other = cluster.run(&["index", "create", "pets", "age", "--name", "pets_kind_idx"]);
    assert_eq!((other.status, other.sentence().contains("of other columns")), (2, true), "{other:?}");
    common::eventually("the dropped index is gone everywhere", || {
        let listed = cluster.run(&["index", "list", "pets", "--json", "--timeout", "30s"]).out;
        (!listed.contains("\"both\"")).then_some(())
    });
}
