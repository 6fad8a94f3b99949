//! `understudy plan`: needs no cluster, and says what is wrong in one line.

mod common;

use common::{Ran, run};

fn plan(words: &str) -> Ran {
    let dir = tempfile::tempdir().expect("a directory");
    run(dir.path(), &["plan"].into_iter().chain(words.split_whitespace()).collect::<Vec<_>>())
}

#[test]
fn a_thousand_nodes_lose_one() {
    for (placement, sets, most) in
        [("chained", 1000, 24), ("interleaved", 2296, 19), ("mirrored", 336, 24), ("spread", 16_000, 17)]
    {
        let words =
            format!("--nodes 1000 --partitions 16 --factor 3 --fail 7 --placement {placement} --json");
        let ran = plan(&words);
        assert_eq!(ran.status, 0, "{ran:?}");
        let seen = ran.object();
        assert_eq!(seen["partitions"], 16_000);
        // The best of some runs, and far above what it takes: other processes share the machine.
        let took = |seen: &serde_json::Value| seen["elapsed_ms"].as_f64().expect("a number");
        let quick = took(&seen) < 1000.0 || (0..20).any(|_| took(&plan(&words).object()) < 1000.0);
        assert!(quick, "{placement}: {}", seen["elapsed_ms"]);
        let moves = seen["moves"].as_array().expect("a list");
        let primaries = moves.iter().filter(|line| line["what"] == "primary").count();
        assert_eq!((primaries, moves.len()), (16, 64), "{placement}");
        assert!(moves.iter().all(|line| line["from"] == 7 && line["to"] != 7));
        assert_eq!(seen["before"]["primaries"]["most"], 16, "{placement}");
        assert_eq!(seen["after"]["primaries"]["most"], most, "{placement}");
        assert_eq!(seen["after"]["copies"]["most"], 49, "{placement}");
        let fatal = &seen["fatal_sets"];
        assert_eq!((&fatal["nodes_in_each"], &fatal["sets"]), (&3.into(), &sets.into()), "{placement}");
        assert_eq!(fatal["of"], 166_167_000.0);
        let share = fatal["share"].as_f64().expect("a number");
        assert!((share - f64::from(sets) / 166_167_000.0).abs() < 1e-12, "{placement}: {share}");
    }
}

#[test]
fn text_names_every_move_and_what_is_lost() {
    let ran = plan("--nodes 4 --partitions 2 --factor 2 --fail 1,2 --placement mirrored");
    assert_eq!(ran.status, 0, "{ran:?}");
    for says in [
        "4 nodes, 8 partitions (2 per node) with 2 copies each, mirrored",
        "lost                   4 partitions, all copies failed: 0, 2, 4, 6",
        "taken over             0 primaries",
        "fatal pairs            2 of 6 (3.33e-1)",
    ] {
        assert!(ran.out.contains(says), "{says}: {}", ran.out);
    }
    let ran = plan("--nodes 3 --partitions 1 --factor 3 --fail 2");
    assert!(ran.out.contains("moves after the failure of 2"), "{}", ran.out);
    assert!(ran.out.contains("without a node         3 copies: too few nodes live"), "{}", ran.out);
    let without = plan("--nodes 3 --partitions 1 --factor 3");
    assert!(without.status == 0 && !without.out.contains("moves after"), "{without:?}");
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    for (words, says) in [
        (
            "--nodes 2 --partitions 1 --factor 3",
            "--factor 3 wants more copies of a partition than there are nodes",
        ),
        ("--nodes 3 --partitions 1 --fail 4", "--fail 4: there is no such node; they are 1 to 3"),
        ("--nodes 3 --partitions 1 --fail 0", "--fail 0: there is no such node"),
        ("--nodes 3 --partitions 1 --fail x", "`x` names no node"),
        ("--nodes 0 --partitions 1", "--nodes 0 is out of range: 1 to 10000"),
        ("--nodes 3 --partitions 0", "--partitions 0 is out of range"),
        ("--nodes 3 --partitions 1 --factor 0", "--factor 0 is out of range: 1 to 7"),
        ("--nodes 10000 --partitions 101", "--partitions 101 is out of range: 1 to 100"),
        ("--nodes 3 --partitions 1 --placement random", "'random' is no scheme of placement"),
        ("--nodes 3", "--partitions"),
    ] {
        let ran = plan(words);
        assert_eq!((ran.status, ran.err.lines().count()), (2, 1), "{words}: {ran:?}");
        assert!(ran.sentence().contains(says), "{words} should say {says:?}: {}", ran.err);
        assert_eq!(ran.out, "", "{words}");
    }
}
